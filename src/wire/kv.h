/* kv.h: requests and replies of the kv service. wire/wire.h includes it. */
#ifndef RDMAD_WIRE_KV_H
#define RDMAD_WIRE_KV_H

#include "wire/record.h"

/* Flags: the value is in the landing buffer, not in the body. Of a GET_INTO, FETCH or FETCH_PIECES: it is to be,
 * however short it is, as the client's processor cannot put it there; for servers whose accept has WIRE_DIRECT. */
#define WIRE_WRITTEN 2u
/* Flag 4 is reserved. */
/* Where push_max was granted, flag of a record: behind its message comes the value of which the body begins with the
 * place or the length, by a push of the fabric. An end that is not ready drops it: a SET_FROM or PUT_FROM then reads
 * the value where it lies, a GET is asked again. A message has WIRE_PUSHES of them at most. A GET's answer has then the
 * status WIRE_TOO_LARGE, and with WIRE_VERSIONED the version between the length and the key. */
#define WIRE_PUSHED 64u
#define WIRE_PUSHES 31u
#define WIRE_PUSH_MAX (1u << 20)
#define WIRE_TAKES_PUSH 32u /* flag of a GET: its answer may come so */
/* Flag of a GET or GET_INTO: the answer has the version, 8 bytes. It stands before a value that is in the body, and
 * behind the length of a value that was written. */
#define WIRE_VERSIONED 8u
/* Flag of a GET or GET_INTO: answered with WIRE_TOO_LARGE it comes again, as a GET_INTO under the same id, and has the
 * value of before any write that its sender sent behind it. WIRE_STALE: that one is not there any more. A request of
 * another kind under the id says that it will not come. */
#define WIRE_AGAIN 16u
/* Flag of any request of kv: it is answered when all that the answer tells of is on the server's disk. WIRE_UNSUPPORTED
 * where the server keeps no log; nothing was done then. */
#define WIRE_DURABLE 128u

/*
 * A reply with WIRE_WRITTEN: the value was written to the landing buffer, and the body is its length, 8 bytes. Without:
 * the body is the value. The reply WIRE_TOO_LARGE of GET and GET_INTO: the value's length, 8 bytes, and the key, for
 * the next request. A cursor is 8 bytes; in a request 0 is the start, in a reply the end. The reply of SCAN has for
 * each key, behind the cursor, struct wire_entry and the key, padded to 8; arg: how many. The reply of FETCH is struct
 * wire_whole and the part that was asked for; with WIRE_WRITTEN the part's length, 8 bytes, stands before it, and the
 * part is in the landing buffer, of which the length 0 says that there is none. WIRE_TOO_LARGE as of GET, for the part:
 * nothing was done then. Pieces are struct wire_remote, 1 to the accept's `pieces`: the value is in the first, goes on
 * in the second and so on.
 */
/* clang-format off */
#define WIRE_OPS_KV(X) \
	X(GET, 16, get, "get")                   /* key. Reply: value */ \
	X(SET, 17, set, "set")                   /* key, value; arg: length of the key */ \
	X(DELETE, 18, delete, "delete")          /* key */ \
	X(EXISTS, 19, exists, "exists")          /* key. Reply's arg: the value's length, cut to 32 bits */ \
	/* struct wire_remote (landing buffer), key. Reply: value, see above */ \
	X(GET_INTO, 20, get_into, "get into") \
	/* struct wire_remote (value, which must stay until the reply), key */ \
	X(SET_FROM, 21, set_from, "set from") \
	/* struct wire_put, key, value; arg as SET. Reply: version, 8 bytes */ \
	X(PUT, 22, put, "put") \
	/* struct wire_remote as SET_FROM, struct wire_put, key. Reply as PUT */ \
	X(PUT_FROM, 23, put_from, "put from") \
	X(STAT, 24, stat, "stat")                /* key. Reply: struct wire_stat, perhaps longer */ \
	X(EXPIRE, 25, expire, "expire")          /* ttl, 8 bytes, key */ \
	X(DELETE_IF, 26, delete_if, "delete if") /* version, 8 bytes, key */ \
	X(INCR, 27, incr, "incr")                /* delta, 8 bytes, key. Reply: number, version, 8 bytes each */ \
	X(SCAN, 28, scan, "scan")                /* cursor, prefix; arg: most keys, 0: no limit. Reply: see above */ \
	X(FLUSH, 29, flush, "flush")             /* cursor. Reply: cursor, keys deleted, 8 bytes */ \
	X(INFO, 30, info, "info")                /* nothing. Reply: struct wire_info, perhaps longer */ \
	X(FETCH, 31, fetch, "fetch")             /* struct wire_remote, struct wire_fetch, key. Reply: see above */ \
	/* offset, 8 bytes, key, bytes; arg as SET. Reply: struct wire_whole */ \
	X(EDIT, 32, edit, "edit") \
	X(COUNT, 33, count, "count")             /* delta, ttl of a new key, 8 bytes each, key. Reply as INCR */ \
	X(PUT_PIECES, 34, put_pieces, "put pieces") /* struct wire_put, key, pieces; arg as SET. Reply as PUT */ \
	/* struct wire_fetch, key, pieces; arg as SET. Reply as FETCH */ \
	X(FETCH_PIECES, 35, fetch_pieces, "fetch pieces") \
	/* time, 8 bytes, 0: give it back; key. Reply: the time that was granted, 8 bytes, 0: it is not leased. \
	 * For servers whose accept has WIRE_LEASES. */ \
	X(LEASE, 36, lease, "lease") \
	/* nothing; or kinds, 8 bytes, prefix; arg: bytes that the reply may have. Reply: see below. \
	 * For servers whose accept has WIRE_WATCHES. */ \
	X(WATCH, 37, watch, "watch") \
	/* epoch of the table that the client has, 0: none; offset, 8 bytes each. Reply: see below. For servers whose \
	 * accept has WIRE_TABLES. */ \
	X(TABLE, 38, table, "table") \
	/* struct wire_move_begin, or struct wire_move; arg: enum wire_move_kind. For servers whose accept has \
	 * WIRE_MOVES, and clients with the right to it. */ \
	X(MOVE, 39, move, "move")
/* clang-format on */

/* Times to live are in microseconds: in a request from its execution on, in a reply the rest. 0: does not expire. */
enum wire_condition { WIRE_ALWAYS, WIRE_IF_ABSENT, WIRE_IF_PRESENT, WIRE_IF_VERSION, WIRE_CONDITIONS };

struct wire_put {
	uint64_t version; /* of WIRE_IF_VERSION; of WIRE_PUT_ITEM: wire_item() */
	uint64_t ttl;
	uint32_t condition; /* enum wire_condition */
	uint32_t flags;     /* WIRE_KEEP_TTL, WIRE_PUT_ITEM */
};
#define WIRE_KEEP_TTL 1u /* what is left of the replaced value's; `ttl` where there is none */
/* Of PUT and PUT_FROM, under WIRE_ALWAYS: an item of a slot that is being moved here, with its attributes. WIRE_STALE:
 * the connection has no session that takes it. */
#define WIRE_PUT_ITEM 2u
_Static_assert(sizeof(struct wire_put) == 24, "wire layout");

/* What FETCH reads, and then does. */
enum wire_then { WIRE_THEN_NOTHING, WIRE_THEN_DELETE, WIRE_THEN_EXPIRE, WIRE_THENS };

struct wire_fetch {
	uint64_t offset, length; /* of the part; what is beyond the value is not there */
	uint64_t ttl;            /* of WIRE_THEN_EXPIRE */
	uint32_t then;           /* enum wire_then */
	uint32_t flags;          /* WIRE_FETCH_FITS */
};
#define WIRE_FETCH_FITS 1u /* a range of length 0 is one that only an empty part fits, rather than none */
_Static_assert(sizeof(struct wire_fetch) == 32, "wire layout");

/* The whole value's. */
struct wire_whole {
	uint64_t length, version;
};
_Static_assert(sizeof(struct wire_whole) == 16, "wire layout");

#define WIRE_APPEND UINT64_MAX     /* offset of an EDIT: at the end */
#define WIRE_EDIT_MAX (1ull << 20) /* longest value that EDIT makes; its bytes are copied by a processor */

struct wire_meta {
	uint64_t length; /* of the value */
	uint64_t version;
	uint64_t ttl;
};
_Static_assert(sizeof(struct wire_meta) == 24, "wire layout");

/* Body of an answer with WIRE_MOVED: another server of the cluster has the key's slot. Its address follows, which
 * wire_printable() is true of; nothing where no server has it. */
struct wire_elsewhere {
	uint64_t epoch; /* of the server's table; 0 where the slot is its own by that, and not served yet */
	uint16_t slot;
	uint16_t reserved[3]; /* 0 */
};
_Static_assert(sizeof(struct wire_elsewhere) == 16, "wire layout");

/* Head of the reply of TABLE; behind it the table's text from the offset on, as far as the message holds it, or nothing
 * where the client has that epoch. WIRE_UNSUPPORTED: the server is of no cluster. */
struct wire_table {
	uint64_t epoch;  /* of the server's table: another one than in the reply before has to be read from the start */
	uint64_t length; /* of the whole text */
};
_Static_assert(sizeof(struct wire_table) == 16, "wire layout");

/* The attributes of an item: the flags that its writer gave it; its type, and a bit beside that of a value that is out
 * of date. */
#define WIRE_ITEM_STALE 0x80u
#define WIRE_ITEM_TYPES 2u

static inline uint64_t wire_item(uint32_t flags, uint8_t type)
{
	return (uint64_t)type << 32 | flags;
}

static inline bool wire_item_valid(uint64_t item)
{
	return item >> 40 == 0 && (item >> 32 & ~(uint64_t)WIRE_ITEM_STALE) < WIRE_ITEM_TYPES;
}

/*
 * MOVE: the server that has some slots copies their values to the one that is to get these, by one connection. BEGIN is
 * sent again until it is answered with WIRE_OK. Then come PUT and PUT_FROM with WIRE_PUT_ITEM, and DELETE, which show
 * nothing to others. WIRE_BUSY: not now; the body is a text that says why. WIRE_STALE: there is no such session any
 * more; so a DELETE is answered, too, by whose connection a session has come before.
 */
enum wire_move_kind {
	WIRE_MOVE_BEGIN = 1,
	WIRE_MOVE_COMPLETE, /* all is here, and is to be served by the table of this epoch and no earlier one */
	WIRE_MOVE_DONE,     /* that table is there: look at it */
	WIRE_MOVE_END,      /* the session is given up; not behind COMPLETE */
	WIRE_MOVE_KINDS
};

#define WIRE_MOVE_ID 16
#define WIRE_MOVE_NAME 64 /* with zeros at its end */
#define WIRE_MOVE_BOOT 32 /* digits */
#define WIRE_MOVE_WHY 255u
#define WIRE_MOVE_AHEAD (1ull << 24) /* versions that the sender may give until it is complete */

struct wire_move {
	uint8_t id[WIRE_MOVE_ID];
	uint64_t epoch;   /* of BEGIN: of the sender's table; of COMPLETE: see there; else 0 */
	uint64_t version; /* of BEGIN and COMPLETE: the highest that the sender has given; else 0 */
};
_Static_assert(sizeof(struct wire_move) == 32, "wire layout");

struct wire_move_begin {
	struct wire_move move;
	char cluster[WIRE_MOVE_NAME], node[WIRE_MOVE_NAME]; /* the sender's */
	char boot[WIRE_MOVE_BOOT];
	uint8_t slots[2048]; /* bit slot % 8 of byte slot / 8 */
};
_Static_assert(sizeof(struct wire_move_begin) == 2240, "wire layout");

/* Body of an answer with WIRE_OVER_QUOTA. */
struct wire_over_quota {
	uint64_t stored, limit; /* bytes of the client's name */
};
_Static_assert(sizeof(struct wire_over_quota) == 16, "wire layout");

/* A former server's ends with the meta. */
struct wire_stat {
	struct wire_meta meta;
	uint32_t flags; /* the client's that wrote it */
	uint8_t type;   /* 0 string, 1 hash */
	uint8_t reserved[3];
};
_Static_assert(sizeof(struct wire_stat) == 32, "wire layout");

struct wire_entry {
	struct wire_meta meta;
	uint32_t key_len;
	uint32_t reserved;
};
_Static_assert(sizeof(struct wire_entry) == 32, "wire layout");

struct wire_info {
	uint64_t key_max, eager_max, value_max; /* bytes */
	uint64_t keys, bytes_used, bytes_total;
	uint64_t hits, misses, evictions, expired;
};
_Static_assert(sizeof(struct wire_info) == 80, "wire layout");

/*
 * WATCH: changes of keys that begin with the prefix, as far as the client may read these. One with a body begins a
 * watch in place of one that there is, and is answered at once: what is changed behind that answer is told of. Kinds of
 * 0 end it. One without a body is answered when there is something to tell; so the client takes events at its own
 * speed, and one that is slow misses some. The reply is so many events, at most, as were missed, 8 bytes, and behind
 * them for each event struct wire_event and the key, padded to 8. Events that are in a reply that tells of missed ones
 * came behind these. A connection has one watch, and one WATCH of it may wait: where another one begins a watch, or
 * ends it, the one that waits is answered first.
 */
enum wire_event_kind { /* bits */
		       WIRE_EVENT_STORED = 1,
		       WIRE_EVENT_DELETED = 2,
		       WIRE_EVENT_EXPIRED = 4,
		       WIRE_EVENT_EVICTED = 8,
		       WIRE_EVENT_TTL = 16, /* it expires at another time, or no more */
		       WIRE_EVENT_FLUSHED =
			       32, /* all keys that were there before; it has no key, and comes to watches of DELETED */
};

struct wire_event {
	uint32_t kind;
	uint16_t key_len;
	uint16_t flags; /* WIRE_EVENT_FRESH */
};
#define WIRE_EVENT_FRESH 1u /* of STORED: there was no such key */
_Static_assert(sizeof(struct wire_event) == 8, "wire layout");

#define WIRE_EVENTS_MIN (8u + (uint32_t)sizeof(struct wire_event) + WIRE_PAD(WIRE_KEY_MAX)) /* arg is at least this */

#endif
