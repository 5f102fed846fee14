/*
 * wire: every byte that two processes exchange above the fabric. Layouts, encode, decode,
 * names. No I/O. rdmad-protocol(7) describes the same for writers of another peer.
 *
 * All integers are little endian. Reserved fields are sent as 0 and ignored.
 */
#ifndef RDMAD_WIRE_H
#define RDMAD_WIRE_H

#include "base/base.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "message and record headers are overlaid on the wire's little endian");

#define WIRE_MAGIC 0x44414d52u /* "RMAD" in memory order */
#define WIRE_VERSION 1
#define WIRE_NONCE 32
#define WIRE_PROOF 32

#define WIRE_MESSAGE_MIN 4608u /* an eager pair and its headers must fit */
#define WIRE_MESSAGE_MAX (1u << 20)
#define WIRE_CREDITS_MIN 2u
#define WIRE_RETURNS_MAX 4u /* messages without records under way: see struct wire_message */
#define WIRE_CREDITS_MAX 1024u
#define WIRE_KEY_MAX 4095u
#define WIRE_INLINE_MAX 4096u /* most bytes of a value that a processor copies */
#define WIRE_EAGER_MAX 4095u  /* key plus value of an eager request or reply */
#define WIRE_PIECES_MAX 16u   /* ranges of memory that a value may be in */

/*
 * cursor.c: bounds-checked reading and writing. The first error sticks: reads after it give
 * zeros, writes nothing, and one look at `failed` at the end replaces a check at each step.
 */
struct wire_cursor {
	uint8_t *at, *end;
	bool failed;
};

void wire_cursor_init(struct wire_cursor *c, void *data, size_t len);
uint8_t wire_get8(struct wire_cursor *c);
uint16_t wire_get16(struct wire_cursor *c);
uint32_t wire_get32(struct wire_cursor *c);
uint64_t wire_get64(struct wire_cursor *c);
void wire_get_bytes(struct wire_cursor *c, void *out, size_t len);
void wire_put8(struct wire_cursor *c, uint8_t value);
void wire_put16(struct wire_cursor *c, uint16_t value);
void wire_put32(struct wire_cursor *c, uint32_t value);
void wire_put64(struct wire_cursor *c, uint64_t value);
void wire_put_bytes(struct wire_cursor *c, const void *data, size_t len);

/*
 * handshake.c: private data of connect, accept and reject.
 */

/* The services: constant, number and name. Numbers have no gap. */
#define WIRE_SERVICE_ROWS(ROW)                                                                                         \
	ROW(PING, 1, "ping")                                                                                           \
	ROW(KV, 2, "kv")                                                                                               \
	ROW(GPU, 3, "gpu")                                                                                             \
	ROW(CHANNEL, 4, "channel")                                                                                     \
	ROW(PEER, 5, "peer")

enum wire_service {
#define WIRE_SERVICE_NUMBER(SERVICE, number, name) WIRE_##SERVICE = number,
	WIRE_SERVICE_ROWS(WIRE_SERVICE_NUMBER)
#undef WIRE_SERVICE_NUMBER
		WIRE_SERVICES
};

#define WIRE_ANSWERS 1u /* flags of a request or an accept: its sender answers WIRE_ASK */
#define WIRE_CHOICE                                                                                                    \
	2u /* of a request: the client has another transport to try, if this one does not carry everything */

/* Of a request: the client writes nothing to a server that has not admitted it. Earlier ones made room in a full send queue by a write
 * of no bytes. */
#define WIRE_WRITES_NOT 4u

#define WIRE_REQUEST_SIZE 56
/* clang-format off */
struct wire_request {            /* offset, size */
	                         /*  0 4 magic */
	uint16_t version;        /*  4 2 */
	uint8_t flags;           /*  6 1 WIRE_ANSWERS, WIRE_CHOICE, WIRE_WRITES_NOT */
	uint8_t service;         /*  7 1 enum wire_service */
	uint16_t key_id;         /*  8 2 0: no key */
	uint16_t credits;        /* 10 2 messages that the client can take before it returns credits */
	uint32_t message_size;   /* 12 4 longest message that the client sends or takes */
	uint32_t count;          /* 16 4 ping: round trips that will come, 0: until disconnect */
	uint32_t size;           /* 20 4 ping: bytes of each echo */
	uint8_t nonce[WIRE_NONCE]; /* 24 32 */
};
/* clang-format on */

#define WIRE_ACCEPT_SIZE 96
/* clang-format off */
struct wire_accept {
	                         /*  0 4 magic */
	uint16_t version;        /*  4 2 */
	uint8_t flags;           /*  6 1 WIRE_ANSWERS */
	uint8_t service;         /*  7 1 */
	uint32_t message_size;   /*  8 4 granted, at most what was asked for */
	uint16_t credits;        /* 12 2 messages that the server can take */
	uint16_t pieces;         /* 14 2 kv: ranges of memory that a request may have, at most WIRE_PIECES_MAX; 0: one */
	uint32_t eager_max;      /* 16 4 kv: key plus value that go by eager */
	uint32_t push_max;       /* 20 4 longest value that either side may push; 0: none */
	uint64_t value_max;      /* 24 8 kv: longest value */
	uint8_t nonce[WIRE_NONCE]; /* 32 32 */
	uint8_t proof[WIRE_PROOF]; /* 64 32 HMAC over the transcript where a key is configured, else 0 */
};
/* clang-format on */

enum wire_reason {
	WIRE_REASON_NONE,
	WIRE_REASON_BAD_REQUEST,  /* magic or length */
	WIRE_REASON_VERSION,      /* detail: the server's version */
	WIRE_REASON_SERVICE,      /* unknown or not enabled; detail: the service */
	WIRE_REASON_CONNECTIONS,  /* too many; detail: the limit */
	WIRE_REASON_MESSAGE_SIZE, /* detail: the limit it is beyond */
	WIRE_REASON_CREDITS,      /* detail: the least */
	WIRE_REASON_KEY,          /* unknown key, or a key is required */
	WIRE_REASON_DRAINING,     /* the server takes no more connections, or is shutting down */
	WIRE_REASON_RESOURCES,    /* memory, descriptors, device limits */
	WIRE_REASON_SESSIONS,     /* gpu: too many; detail: the limit */
	WIRE_REASON_SOURCE,       /* too many of this client's address or user; detail: the limit */
	WIRE_REASON_PACKET,       /* detail: the server's longest packet in the upper half, the client's in the lower */
	WIRE_REASON_VALUES,       /* kv, of WIRE_CHOICE: not all values by this transport; detail: the longest */
	WIRE_REASONS              /* here: one that this program does not know */
};

#define WIRE_REJECT_SIZE 16
/* clang-format off */
struct wire_reject {
	                  /* 0 4 magic */
	uint16_t version; /* 4 2 the server's */
	uint16_t reason;  /* 6 2 enum wire_reason */
	uint64_t detail;  /* 8 8 */
};
/* clang-format on */

void wire_request_encode(const struct wire_request *r, uint8_t out[static WIRE_REQUEST_SIZE]);
void wire_accept_encode(const struct wire_accept *a, uint8_t out[static WIRE_ACCEPT_SIZE]);
void wire_reject_encode(const struct wire_reject *r, uint8_t out[static WIRE_REJECT_SIZE]);

/* 0, or the reason to refuse: bad magic or too short; another version (fields up to version are set); a service, size
 * or credit count that the protocol does not have. */
enum wire_reason wire_request_decode(struct wire_request *r, const uint8_t *data, size_t len);

/* 0, -EPROTO: not from rdmad, or outside of the protocol's bounds; -EPROTONOSUPPORT: another version. */
int wire_accept_decode(struct wire_accept *a, const uint8_t *data, size_t len);
int wire_reject_decode(struct wire_reject *r, const uint8_t *data, size_t len);

/* A refusal in words, with its numbers. Returns buf. */
char *wire_reject_text(const struct wire_reject *r, char *buf, size_t size);

/*
 * Messages and records. A message is one send: this header, then records, each a header and a body,
 * each begun on a multiple of 8.
 *
 * A message with records takes one of the credits that the receiver granted, and so does a write with immediate. A
 * message without records takes none, and returns at least one or has a flag. A sender sends such a message when it owes
 * half of the credits that it granted, or more.
 *
 * A side that heard nothing for long asks whether the other's program still runs, by WIRE_ASK in a message with
 * or without records, if the other has said WIRE_ANSWERS. The other answers at once by WIRE_ANSWER, likewise. Nobody asks
 * again before the answer. So no more than WIRE_RETURNS_MAX messages without records can be under way, two that
 * return credits, one that asks and one that answers, and the receiver has further receives for these.
 *
 * A server that is to end, or takes no new connections, says WIRE_GOAWAY once. It goes on as before: the client finishes what
 * it asked for, asks for nothing more and disconnects. Of one that stays all the same the server takes no more records when
 * it has answered all, says WIRE_LAST and disconnects: whatever it has not answered by then, it has not carried out.
 */
#define WIRE_ASK 1u
#define WIRE_ANSWER 2u
#define WIRE_GOAWAY 4u
#define WIRE_LAST 8u
#define WIRE_ADMITS                                                                                                    \
	16u /* said once, when a peer that may be away admits the other: its memory takes writes of no bytes now */

struct wire_message {
	uint32_t length;  /* of the whole message */
	uint16_t credits; /* receives that the sender posted again since its last message */
	uint16_t flags;   /* WIRE_ASK, WIRE_ANSWER, WIRE_GOAWAY, WIRE_LAST, WIRE_ADMITS; others are ignored */
};
_Static_assert(sizeof(struct wire_message) == 8, "wire layout");

struct wire_record {
	uint32_t length; /* of the body, without padding */
	uint32_t id;     /* chosen by the requester, comes back in the reply */
	uint8_t op;      /* enum wire_op of the service */
	uint8_t flags;   /* WIRE_REPLY */
	uint16_t status; /* replies: enum wire_status */
	uint32_t arg;    /* by op */
};
_Static_assert(sizeof(struct wire_record) == 16, "wire layout");

#define WIRE_REPLY 1u   /* flags: this record answers the request of the same id */
#define WIRE_WRITTEN 2u /* flags: the value is in the landing buffer, not in the body */
/* Flag 4 is reserved. */
/* Where push_max was granted, flag of a record: behind its message comes the value of which the body begins with the place or
 * the length, by a push of the fabric. One who is not ready for it drops it: a SET_FROM or PUT_FROM then reads the value where
 * it lies, a GET is asked again. A message has WIRE_PUSHES of them at most. A GET's answer has then the
 * status WIRE_TOO_LARGE, and with WIRE_VERSIONED the version between the length and the key. */
#define WIRE_PUSHED 64u
#define WIRE_PUSHES 31u
#define WIRE_PUSH_MAX (1u << 20)
#define WIRE_TAKES_PUSH 32u /* flag of a GET: its answer may come so */
/* Flag of a GET or GET_INTO: the answer has the version, 8 bytes. It stands before a value that is in the body, and
 * behind the length of a value that was written. */
#define WIRE_VERSIONED 8u
/* Flag of a GET or GET_INTO: answered with WIRE_TOO_LARGE it comes again, as a GET_INTO under the same id, and has the value of
 * before any write that its sender sent behind it. WIRE_STALE: that one is not there any more. A request of another kind under the
 * id says that it will not come. */
#define WIRE_AGAIN 16u
/* Flag of any request of kv: it is answered when all that the answer tells of is on the server's disk. WIRE_UNSUPPORTED where the
 * server keeps no log; nothing was done then. */
#define WIRE_DURABLE 128u

#define WIRE_PAD(n) (((n) + 7u) & ~(uint32_t)7u)

/* Longest body that one record in a message of `message_size` can have. */
#define WIRE_BODY_MAX(message_size)                                                                                    \
	((message_size) - (uint32_t)(sizeof(struct wire_message) + sizeof(struct wire_record)))

/* The header of a received message of `bytes` bytes, or NULL when its length lies. */
static inline const struct wire_message *wire_message_check(const void *data, size_t bytes)
{
	const struct wire_message *m = data;

	return bytes >= sizeof(*m) && m->length == bytes ? m : NULL;
}

/* The record at *offset, which is moved past it; the first offset is sizeof(struct wire_message). NULL at the end of
 * the message. NULL with *offset 0: a length lies. */
static inline const struct wire_record *wire_record_next(const void *data, size_t bytes, size_t *offset)
{
	const struct wire_record *r = (const void *)((const char *)data + *offset);
	size_t left = bytes - *offset;

	if (left == 0)
		return NULL;
	if (unlikely(left < sizeof(*r) || r->length > left - sizeof(*r))) {
		*offset = 0;
		return NULL;
	}
	/* The last record's padding may be left out. */
	*offset = MIN(bytes, *offset + sizeof(*r) + WIRE_PAD((size_t)r->length));
	return r;
}

/*
 * Requests of the services, a row each: constant, number, name in C, name in words. Behind it the body, then the meaning of
 * `arg`, then the reply. A service has a range of numbers without a gap, and behind the last of them its END.
 */
/* clang-format off */
#define WIRE_OPS_PING(X) \
	X(ECHO, 1, echo, "echo") /* any bytes. Reply: the same */

/*
 * A reply with WIRE_WRITTEN: the value was written to the landing buffer, and the body is its length, 8 bytes. Without: the
 * body is the value. The reply WIRE_TOO_LARGE of GET and GET_INTO: the value's length, 8 bytes, and the key, for the next
 * request.
 * A cursor is 8 bytes; in a request 0 is the start, in a reply the end. The reply of SCAN has for each key, behind the
 * cursor, struct wire_entry and the key, padded to 8; arg: how many.
 * The reply of FETCH is struct wire_whole and the part that was asked for; with WIRE_WRITTEN the part's length, 8 bytes, stands
 * before it, and the part is in the landing buffer, of which the length 0 says that there is none. WIRE_TOO_LARGE as of GET, for
 * the part: nothing was done then.
 * Pieces are struct wire_remote, 1 to the accept's `pieces`: the value is in the first, goes on in the second and so on.
 */
#define WIRE_OPS_KV(X) \
	X(GET, 16, get, "get")                   /* key. Reply: value */ \
	X(SET, 17, set, "set")                   /* key, value; arg: length of the key */ \
	X(DELETE, 18, delete, "delete")          /* key */ \
	X(EXISTS, 19, exists, "exists")          /* key. Reply's arg: the value's length, cut to 32 bits */ \
	X(GET_INTO, 20, get_into, "get into")    /* struct wire_remote (landing buffer), key. Reply: value, see above */ \
	X(SET_FROM, 21, set_from, "set from")    /* struct wire_remote (value, which must stay until the reply), key */ \
	X(PUT, 22, put, "put")                   /* struct wire_put, key, value; arg as SET. Reply: version, 8 bytes */ \
	X(PUT_FROM, 23, put_from, "put from")    /* struct wire_remote as SET_FROM, struct wire_put, key. Reply as PUT */ \
	X(STAT, 24, stat, "stat")                /* key. Reply: struct wire_meta */ \
	X(EXPIRE, 25, expire, "expire")          /* ttl, 8 bytes, key */ \
	X(DELETE_IF, 26, delete_if, "delete if") /* version, 8 bytes, key */ \
	X(INCR, 27, incr, "incr")                /* delta, 8 bytes, key. Reply: number, version, 8 bytes each */ \
	X(SCAN, 28, scan, "scan")                /* cursor, prefix; arg: most keys, 0: no limit. Reply: see above */ \
	X(FLUSH, 29, flush, "flush")             /* cursor. Reply: cursor, keys deleted, 8 bytes */ \
	X(INFO, 30, info, "info")                /* nothing. Reply: struct wire_info, perhaps longer */ \
	X(FETCH, 31, fetch, "fetch")             /* struct wire_remote, struct wire_fetch, key. Reply: see above */ \
	X(EDIT, 32, edit, "edit")                /* offset, 8 bytes, key, bytes; arg as SET. Reply: struct wire_whole */ \
	X(COUNT, 33, count, "count")             /* delta, ttl of a new key, 8 bytes each, key. Reply as INCR */ \
	X(PUT_PIECES, 34, put_pieces, "put pieces") /* struct wire_put, key, pieces; arg as SET. Reply as PUT */ \
	X(FETCH_PIECES, 35, fetch_pieces, "fetch pieces") /* struct wire_fetch, key, pieces; arg as SET. Reply as FETCH */

/*
 * GPU_JOB, RPC mode: struct wire_gpu_job. The answer is a write of the output, with the id as immediate. After
 * WIRE_GPU_SENDS it is a write, then a reply.
 * Both modes: the id WIRE_GPU_TERMINATE without a body ends the session after all jobs before it. The answer is an empty
 * write with that immediate, or a reply.
 */
#define WIRE_OPS_GPU(X) \
	X(GPU_INFO, 48, gpu_info, "gpu info")    /* nothing. Reply: struct wire_gpu_info, perhaps longer */ \
	X(GPU_OPEN, 49, gpu_open, "gpu open")    /* struct wire_gpu_open, once. Reply, when ready: struct wire_gpu_ring */ \
	X(GPU_JOB, 50, gpu_job, "gpu job")       /* see above */ \
	X(GPU_ENDED, 51, gpu_ended, "gpu ended") /* from the server: the session is over, status and text say why */

/*
 * A channel is two rings of bytes, whose indices count bytes from the beginning: head, put; tail, got. Whoever listens, a program or
 * rdmad, is asked by CHANNEL_OPEN, once on a connection, and answers when somebody has accepted. The records behind it go both
 * ways and have no reply. The one who puts never goes more than the capacity beyond the tail that he was told.
 * rdmad takes the last three between the two connections that it has joined, as they are. The name `echo` joins one with
 * itself. What it may do in addition is asked on another connection: LISTEN, and what follows from it.
 * The connect request of all of them has in `count` WIRE_CHANNEL_COUNT(name), so that one worker has what belongs together.
 */
#define WIRE_OPS_CHANNEL(X) \
	X(CHANNEL_OPEN, 64, channel_open, "channel open")       /* struct wire_channel_open, name. Reply: see there */ \
	X(CHANNEL_DATA, 65, channel_data, "channel data")       /* struct wire_channel_data, perhaps bytes: the last ones put */ \
	X(CHANNEL_TAIL, 66, channel_tail, "channel tail")       /* tail, 8 bytes: got until here */ \
	X(CHANNEL_WANT, 67, channel_want, "channel want")       /* tail, 8 bytes: send CHANNEL_TAIL when it is reached */ \
	X(CHANNEL_LISTEN, 68, channel_listen, "channel listen") /* struct wire_channel_listen, name, addresses. Reply: nothing */ \
	X(CHANNEL_INVITE, 69, channel_invite, "channel invite") /* to a listener: token, 8 bytes: a client waits; CHANNEL_OPEN it */ \
	X(CHANNEL_LIST, 70, channel_list, "channel list")       /* cursor, 8 bytes. Reply: cursor, struct wire_channel_entry, name ... */ \
	X(CHANNEL_LEAVE, 71, channel_leave, "channel leave")    /* of a listener: it gives its name back. Reply: nothing; it is free */

/*
 * Peers: the programs of rdma_lib talk with each other by the first six, and meet at rdmad by the last three.
 */
#define WIRE_OPS_PEER(X) \
	X(PEER_HELLO, 80, peer_hello, "peer hello")       /* the first record of who connected. Reply: when it was accepted */ \
	X(PEER_BYE, 81, peer_bye, "peer bye")             /* the session ends in peace */ \
	X(PEER_DATA, 82, peer_data, "peer data")          /* a short message */ \
	X(PEER_OFFER, 83, peer_offer, "peer offer")       /* a long one, to be read */ \
	X(PEER_TAKEN, 84, peer_taken, "peer taken")       /* it was read */ \
	X(PEER_CONFIRM, 85, peer_confirm, "peer confirm") /* what came, and what was received */ \
	X(PEER_JOIN, 86, peer_join, "peer join")          /* to rdmad: struct wire_peer_join ... Reply: struct wire_peer_group ... */ \
	X(PEER_LIST, 87, peer_list, "peer list")          /* to rdmad: cursor, 8 bytes. Reply: cursor, struct wire_peer_entry ... */ \
	X(PEER_LEAVE, 88, peer_leave, "peer leave")       /* to rdmad: it is no member any more. Reply: nothing */
/* clang-format on */

#define WIRE_OP_NUMBER(OP, number, name, words) WIRE_OP_##OP = number,
enum wire_op {
#define WIRE_OP_RANGE(SERVICE, number, name) WIRE_OPS_##SERVICE(WIRE_OP_NUMBER) WIRE_OP_##SERVICE##_END,
	WIRE_SERVICE_ROWS(WIRE_OP_RANGE)
#undef WIRE_OP_RANGE
};
#undef WIRE_OP_NUMBER

enum wire_status {
	WIRE_OK,
	WIRE_NOT_FOUND,
	WIRE_TOO_LARGE, /* arg: low 32 bits of the limit */
	WIRE_NO_MEMORY,
	WIRE_BAD_REQUEST, /* lengths or op outside the protocol; the connection ends */
	WIRE_UNSUPPORTED,
	WIRE_EXISTS,
	WIRE_STALE,
	WIRE_NOT_NUMBER,
	WIRE_RANGE,
	WIRE_FAILED,    /* the fault is the server's, or its end has come */
	WIRE_BUSY,      /* what was asked for is all in use: later, perhaps */
	WIRE_MOVED,     /* elsewhere: the body says where */
	WIRE_DISK_FULL, /* that of the server's log: nothing was done */
	WIRE_READ_ONLY, /* the server's log failed: a write was not done, or it and what was read may be lost by a restart */
	WIRE_STATUSES
};

/* A range of the requester's memory, at the start of a body. */
struct wire_remote {
	uint64_t addr;
	uint64_t length;
	uint32_t rkey;
	uint32_t reserved;
};
_Static_assert(sizeof(struct wire_remote) == 24, "wire layout");

/*
 * The first record between two programs of rdma_lib, and its reply. Whoever connected chose session and secret, by which
 * only he comes back to the session on another connection. A reply with another status than WIRE_OK has words for people, and
 * nothing follows it; one with WIRE_OK has no secret.
 *
 * Who has to wait for a program that connects to another one itself gets a reply with WIRE_PEER_WAITS before that, which has a random number in place of the secret. Two programs that
 * connect to each other find so that they do. The one with the lower number then says WIRE_PEER_CROSSES to the other, with that random number of its
 * own connection, which is the one that is used.
 */
#define WIRE_PEER_VERSION 2u
#define WIRE_PEER_SECRET 16
#define WIRE_PEER_CLASSES 3u
#define WIRE_PEER_RESUME 1u /* flags: the session is there already */
#define WIRE_PEER_WAITS 2u  /* of a reply: not accepted yet */
#define WIRE_PEER_CROSSES 4u
struct wire_peer_hello {
	uint16_t version; /* WIRE_PEER_VERSION; the same place in every version */
	uint16_t flags;
	uint32_t reconnect_ms; /* its sender keeps the session so long without a connection; 0: not at all */
	uint64_t session;
	uint8_t secret[WIRE_PEER_SECRET];
	uint64_t group;                   /* what the other one expects it by, or 0 */
	uint64_t room;                    /* bytes of short messages that may wait at its sender */
	uint64_t next[WIRE_PEER_CLASSES]; /* the first number of each class that its sender has not got */
	uint64_t program;                 /* a number of its sender, by chance, the same on all of its connections */
};
_Static_assert(sizeof(struct wire_peer_hello) == 80, "wire layout");

/*
 * Windows of peers: what they are, and what is asked about them, in control messages. `id` is the owner's number for one window
 * and one peer; it is not given out again.
 */
#define WIRE_WINDOW_READ 1u
#define WIRE_WINDOW_WRITE 2u
#define WIRE_WINDOW_ATOMIC 4u
#define WIRE_WINDOW_RIGHTS 7u
#define WIRE_WINDOW_BY_DEVICE 1u  /* flags of a share: a device carries out its atomic operations */
#define WIRE_WINDOW_NO_DEVICE 1u  /* flags of an ask: that can not be, on the asker's side */
#define WIRE_WINDOW_NOTICES 1024u /* that an owner keeps of one share */
#define WIRE_WINDOW_ATOMICS 256u  /* of one share that may wait for their answers */
#define WIRE_WINDOW_SHARES 4096u  /* of one peer that another may have open or on offer */
struct wire_window_share {
	uint64_t id, addr, size;
	uint32_t rights, flags;
};
_Static_assert(sizeof(struct wire_window_share) == 32, "wire layout");

struct wire_window_ask {
	uint64_t id, epoch; /* of the asker's connections */
	uint32_t flags, reserved;
};
_Static_assert(sizeof(struct wire_window_ask) == 24, "wire layout");

struct wire_window_key {
	uint64_t id, epoch;   /* as asked */
	uint32_t rkey, error; /* 0, or an errno value: there is no key */
};
_Static_assert(sizeof(struct wire_window_key) == 24, "wire layout");

/* Of close, closed, switch, switched. */
struct wire_window_id {
	uint64_t id;
};
_Static_assert(sizeof(struct wire_window_id) == 8, "wire layout");

enum wire_window_operation { WIRE_WINDOW_FETCH_ADD = 1, WIRE_WINDOW_COMPARE_SWAP };
struct wire_window_atomic {
	uint64_t id, number, offset, operand, swap;
	uint32_t operation, reserved;
};
_Static_assert(sizeof(struct wire_window_atomic) == 48, "wire layout");

struct wire_window_answer {
	uint64_t number, before;
	uint32_t error, reserved; /* 0, or an errno value: nothing was done */
};
_Static_assert(sizeof(struct wire_window_answer) == 24, "wire layout");

/* Of a notice its number, of noticed how many of them were taken since the last. */
struct wire_window_notice {
	uint64_t id, value;
};
_Static_assert(sizeof(struct wire_window_notice) == 16, "wire layout");

/* Times to live are in microseconds: in a request from its execution on, in a reply the rest. 0: does not expire. */
enum wire_condition { WIRE_ALWAYS, WIRE_IF_ABSENT, WIRE_IF_PRESENT, WIRE_IF_VERSION, WIRE_CONDITIONS };

struct wire_put {
	uint64_t version; /* of WIRE_IF_VERSION */
	uint64_t ttl;
	uint32_t condition; /* enum wire_condition */
	uint32_t flags;     /* WIRE_KEEP_TTL */
};
#define WIRE_KEEP_TTL 1u /* what is left of the replaced value's; `ttl` where there is none */
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

/* Of the whole value. */
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
 * The gpu service. wire/ring.h has the ring that both modes go through.
 */
#define WIRE_GPU_TERMINATE UINT32_MAX
#define WIRE_GPU_PARAMS 8
#define WIRE_GPU_NAME 64

enum wire_gpu_mode { WIRE_GPU_RPC, WIRE_GPU_QUEUE, WIRE_GPU_MODES };

#define WIRE_GPU_SENDS 1u /* flags of an open: no write with immediate, but a write and then a reply */

/* The wishes of a client; 0: the server chooses. The server grants at most these. */
struct wire_gpu_open {
	uint32_t mode; /* enum wire_gpu_mode */
	uint32_t flags;
	uint32_t queues, slots;
	uint32_t payload; /* bytes of the largest input or output */
	uint32_t reserved;
};
_Static_assert(sizeof(struct wire_gpu_open) == 24, "wire layout");

/* The session as granted. Addresses and keys are of queue mode, else 0. The client may read the worker's part of the
 * ring and write its own part. */
struct wire_gpu_ring {
	uint32_t queues, slots, payload;
	uint32_t flags; /* WIRE_GPU_SENDS: also where the server's device has no write with immediate */
	uint64_t worker_addr, client_addr;
	uint32_t worker_rkey, client_rkey;
	char backend[16], device[WIRE_GPU_NAME]; /* text, ended by 0 */
};
_Static_assert(sizeof(struct wire_gpu_ring) == 120, "wire layout");

struct wire_gpu_job {
	uint32_t op; /* enum wire_ring_op */
	uint32_t reserved;
	uint32_t param[WIRE_GPU_PARAMS];
	struct wire_remote input, output; /* of the client's memory; the op gives the output's length */
};
_Static_assert(sizeof(struct wire_gpu_job) == 88, "wire layout");

struct wire_gpu_info {
	uint32_t sessions, sessions_max;
	uint32_t queues_max, slots_max;
	uint64_t payload_max, memory_max;   /* bytes, of one session */
	uint64_t operations;                /* bit 1 << enum wire_ring_op */
	uint64_t jobs, bytes_in, bytes_out; /* since the daemon started; of RPC mode */
	char backend[16], device[WIRE_GPU_NAME];
};
_Static_assert(sizeof(struct wire_gpu_info) == 144, "wire layout");

/*
 * The channel service.
 */
#define WIRE_CHANNEL_NAME_MAX 200u
#define WIRE_CHANNEL_SIZE_MIN 64u
#define WIRE_CHANNEL_SIZE_MAX (1ull << 32)
#define WIRE_CHANNEL_ADDRESSES_MAX 1024u /* bytes: URLs without the name, separated by blanks */
#define WIRE_CHANNEL_COUNT(name, len) ((uint32_t)hash_bytes(name, len))

#define WIRE_CHANNEL_RELAY 1u /* flags of an open: rdmad is to join the two rather than tell of addresses */

/* With the reply WIRE_OK: the same of the other end, without a name. WIRE_MOVED: the body is URLs, separated by
 * blanks; open one of these, or ask again with WIRE_CHANNEL_RELAY. */
struct wire_channel_open {
	uint64_t capacity; /* bytes of each ring: both ends have the same */
	uint64_t addr;     /* of the sender's ring for what the other one puts; it is there twice, */
	uint64_t ring;     /* the second time this many bytes behind the first, so that no write is in two parts */
	uint32_t rkey;     /* addr 0: may not be written to, bytes come with CHANNEL_DATA */
	uint32_t flags;
	uint64_t token; /* of an invitation, else 0 */
};
_Static_assert(sizeof(struct wire_channel_open) == 40, "wire layout");

/* Record's flag of CHANNEL_DATA: its sender puts no more, and closes in peace when it has the same from the other one, who
 * answers so at once. */
#define WIRE_CHANNEL_LAST 16u

/* Behind it `arg` bytes that end at `head`; none: they were written to the ring, or there are none. */
struct wire_channel_data {
	uint64_t head; /* the sender put until here */
	uint64_t tail; /* and got until here */
};
_Static_assert(sizeof(struct wire_channel_data) == 16, "wire layout");

struct wire_channel_listen {
	uint64_t capacity;
	uint32_t name_len;
	uint32_t reserved;
};
_Static_assert(sizeof(struct wire_channel_listen) == 16, "wire layout");

/* Behind it the name, padded to 8. */
struct wire_channel_entry {
	uint64_t capacity;
	uint64_t clients; /* joined by this rdmad, now */
	uint32_t name_len;
	uint32_t reserved;
};
_Static_assert(sizeof(struct wire_channel_entry) == 24, "wire layout");

/*
 * The peer service: where programs meet. What a member says of itself, rdmad tells the others of its group. A connection is one member
 * at most, and its end is the member's. The connect request has in `count` WIRE_PEER_COUNT(name), so that one worker has them all.
 */
#define WIRE_PEER_NAME_MAX 200u
#define WIRE_PEER_ADDRESSES_MAX 512u /* bytes: URLs by which a member is reached, separated by blanks */
#define WIRE_PEER_MEMBERS_MAX 4096u  /* of a group */
#define WIRE_PEER_ANY_RANK UINT32_MAX
#define WIRE_PEER_COUNT(name, len) ((uint32_t)hash_bytes(name, len))

/* Behind it the name and the addresses. */
struct wire_peer_join {
	uint64_t token;    /* which the others say when they connect to this member */
	uint64_t patience; /* microseconds that it waits for the others; 0: as long as rdmad lets it */
	uint32_t size;     /* of the group */
	uint32_t rank;     /* that it wants, or WIRE_PEER_ANY_RANK */
	uint32_t name_len;
	uint32_t reserved;
};
_Static_assert(sizeof(struct wire_peer_join) == 32, "wire layout");

/* A reply to JOIN, of one or more, each with members of consecutive ranks; first + count is size in the last. Behind it
 * struct wire_peer_member and its addresses, padded to 8, of each. */
struct wire_peer_group {
	uint32_t number; /* of the group: not 0, and no other group of this rdmad has it */
	uint32_t size;
	uint32_t rank; /* of who joined */
	uint32_t first, count;
	uint32_t reserved;
};
_Static_assert(sizeof(struct wire_peer_group) == 24, "wire layout");

struct wire_peer_member {
	uint64_t token; /* in a reply to LIST 0 */
	uint32_t rank;  /* in a reply to LIST WIRE_PEER_ANY_RANK, where it gets one when the group is complete */
	uint32_t addresses_len;
};
_Static_assert(sizeof(struct wire_peer_member) == 16, "wire layout");

/* Of a reply to LIST. Behind it the name, padded to 8, and `count` members as above. A group that goes on in the next reply
 * has an entry in each, the later ones with WIRE_PEER_FURTHER. */
#define WIRE_PEER_FURTHER 1u
struct wire_peer_entry {
	uint32_t number; /* 0: it is not complete yet */
	uint32_t size;
	uint32_t here; /* how many members there are */
	uint32_t count;
	uint32_t name_len;
	uint32_t flags;
};
_Static_assert(sizeof(struct wire_peer_entry) == 24, "wire layout");

/*
 * Messages between peers. Each is of one of three classes and has a number in it, counted from 0: `id` is its lower 32 bits, and the lower two
 * bits of the flags are the class. What a side may send is limited for each of three uses (streams 0, 1 and others) by `room`: the sum of
 * WIRE_PEER_COST() of all that it ever sent there. At first it is WIRE_PEER_ROOM.
 */
#define WIRE_PEER_CLASS 3u /* flags: which class */
#define WIRE_PEER_AGAIN 4u /* of an offer: it was made on an earlier connection, and its key is another now */
#define WIRE_PEER_MORE 8u  /* of an offer: only `ready` is news */
#define WIRE_PEER_BACK 16u /* of an offer: it is withdrawn; of PEER_TAKEN: it was given up unread */
#define WIRE_PEER_ASKS 32u /* of PEER_CONFIRM: confirm what you have got by now */
#define WIRE_PEER_USES 3u
#define WIRE_PEER_ROOM (64u * 1024)
#define WIRE_PEER_COST(length) (((uint64_t)(length) + 63 + !(length)) & ~(uint64_t)63) /* an offer's length is 0 here */

struct wire_peer_data {
	uint64_t stream; /* then the message */
};
_Static_assert(sizeof(struct wire_peer_data) == 8, "wire layout");

struct wire_peer_offer {
	uint64_t stream, length, addr;
	uint64_t ready; /* bytes of it that may be read now */
	uint32_t rkey, reserved;
};
_Static_assert(sizeof(struct wire_peer_offer) == 40, "wire layout");

struct wire_peer_confirm {
	uint64_t next[WIRE_PEER_CLASSES]; /* what the sender of this expects next of each class */
	uint64_t room[WIRE_PEER_USES];
};
_Static_assert(sizeof(struct wire_peer_confirm) == 48, "wire layout");

/* Begin of each message of stream 1. */
struct wire_peer_control {
	uint32_t kind, reserved;
};
_Static_assert(sizeof(struct wire_peer_control) == 8, "wire layout");

/*
 * rdma_sequential_alltoall(), stream 2: who called it sends this and his string; the server answers, when it has all, by this and the result; or by
 * an error and words.
 */
#define WIRE_PEER_ANY_ROUND UINT32_MAX
struct wire_peer_exchange {
	uint32_t round;   /* counted by who called; the answer has the same, or ANY if what came was not looked at */
	uint32_t error;   /* errno value */
	uint32_t members; /* of an answer */
	uint32_t reserved;
};
_Static_assert(sizeof(struct wire_peer_exchange) == 16, "wire layout");

/*
 * names.c
 */
const char *wire_service_name(unsigned service); /* "ping"; "unknown" for others */
const char *wire_op_name(unsigned op);
const char *wire_reason_name(unsigned reason); /* short, for logs */
int wire_reason_errno(unsigned reason);        /* a refusal as an error of the caller's */
bool wire_reason_final(unsigned reason);       /* the server would give it over another transport, too */
const char *wire_status_text(unsigned status);
bool wire_printable(const char *text, size_t len); /* as names are to be: without control characters */

/* The one border between errno and the wire. */
enum wire_status wire_status_of(int error);
int wire_status_errno(unsigned status);

/*
 * The control socket: rdmactl writes one line, `COMMAND [ARGUMENT]\n`; the daemon answers one JSON object,
 * {"ok": true, ...} or {"ok": false, "error": TEXT}, and closes. Same host only.
 */
#define WIRE_CONTROL_LINE 512

/*
 * control.c
 */

/* Where it is unless configured: control.sock, rdmad-control.sock in $XDG_RUNTIME_DIR; see address_runtime_path(). */
char *wire_control_path(const char *given, char *buf, size_t size);

#endif
