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
	ROW(CHANNEL, 4, "channel")

enum wire_service {
#define WIRE_SERVICE_NUMBER(SERVICE, number, name) WIRE_##SERVICE = number,
	WIRE_SERVICE_ROWS(WIRE_SERVICE_NUMBER)
#undef WIRE_SERVICE_NUMBER
		WIRE_SERVICES
};

#define WIRE_ANSWERS 1u /* flags of a request or an accept: its sender answers WIRE_ASK */

#define WIRE_REQUEST_SIZE 56
/* clang-format off */
struct wire_request {            /* offset, size */
	                         /*  0 4 magic */
	uint16_t version;        /*  4 2 */
	uint8_t flags;           /*  6 1 WIRE_ANSWERS */
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
	                         /* 14 2 reserved */
	uint32_t eager_max;      /* 16 4 kv: key plus value that go by eager */
	                         /* 20 4 reserved */
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
 */
#define WIRE_ASK 1u
#define WIRE_ANSWER 2u

struct wire_message {
	uint32_t length;  /* of the whole message */
	uint16_t credits; /* receives that the sender posted again since its last message */
	uint16_t flags;   /* WIRE_ASK, WIRE_ANSWER */
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
/* Flag of a GET or GET_INTO: the answer has the version, 8 bytes. It stands before a value that is in the body, and
 * behind the length of a value that was written. */
#define WIRE_VERSIONED 8u

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
	X(INFO, 30, info, "info")                /* nothing. Reply: struct wire_info, perhaps longer */

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
	X(CHANNEL_LIST, 70, channel_list, "channel list")       /* cursor, 8 bytes. Reply: cursor, struct wire_channel_entry, name ... */
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
	WIRE_FAILED, /* the fault is the server's, or its end has come */
	WIRE_BUSY,   /* what was asked for is all in use: later, perhaps */
	WIRE_MOVED,  /* elsewhere: the body says where */
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

/* Times to live are in microseconds: in a request from its execution on, in a reply the rest. 0: does not expire. */
enum wire_condition { WIRE_ALWAYS, WIRE_IF_ABSENT, WIRE_IF_PRESENT, WIRE_IF_VERSION, WIRE_CONDITIONS };

struct wire_put {
	uint64_t version; /* of WIRE_IF_VERSION */
	uint64_t ttl;
	uint32_t condition; /* enum wire_condition */
	uint32_t reserved;
};
_Static_assert(sizeof(struct wire_put) == 24, "wire layout");

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
 * names.c
 */
const char *wire_service_name(unsigned service); /* "ping"; "unknown" for others */
const char *wire_op_name(unsigned op);
const char *wire_reason_name(unsigned reason); /* short, for logs */
int wire_reason_errno(unsigned reason);        /* a refusal as an error of the caller's */
bool wire_reason_final(unsigned reason);       /* the server would give it over another transport, too */
const char *wire_status_text(unsigned status);

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
