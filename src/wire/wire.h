/*
 * wire: every byte that two processes exchange above the fabric. Layouts, encode, decode,
 * names. No I/O. rdmad-protocol(7) describes the same for writers of another peer.
 *
 * All integers are little endian. Reserved fields are sent as 0 and ignored.
 */
#ifndef RDMAD_WIRE_H
#define RDMAD_WIRE_H

#include "wire/channel.h"
#include "wire/gpu.h"
#include "wire/kv.h"
#include "wire/peer.h"
#include "wire/record.h"

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
	ROW(PEER, 5, "peer")                                                                                           \
	ROW(RESP, 6, "resp")                                                                                           \
	ROW(MEMCACHED, 7, "memcached")

enum wire_service {
#define WIRE_SERVICE_NUMBER(SERVICE, number, name) WIRE_##SERVICE = number,
	WIRE_SERVICE_ROWS(WIRE_SERVICE_NUMBER)
#undef WIRE_SERVICE_NUMBER
		WIRE_SERVICES
};

#define WIRE_ANSWERS 1u /* flags of a request or an accept: its sender answers WIRE_ASK */
#define WIRE_CHOICE                                                                                                    \
	2u /* of a request: the client has another transport to try, if this one does not carry everything */

/* A request's: the client writes nothing to a server that has not admitted it. Earlier ones made room in a full send
 * queue by a write of no bytes. */
#define WIRE_WRITES_NOT 4u

/*
 * A request's: what it has in place of a nonce is a public key of X25519, and the client would have all bytes behind
 * the answer encrypted. An accept's: so it is, and so they are. Only with a key, and where the kernel can (TLS).
 */
#define WIRE_ENCRYPT 8u
#define WIRE_ENCRYPT_REQUIRED 16u /* of a request with it: else the client does not stay */

#define WIRE_LEASES 2u   /* an accept's, of kv: there is the operation LEASE */
#define WIRE_WATCHES 32u /* likewise: WATCH */
#define WIRE_TABLES 64u  /* likewise: TABLE */
#define WIRE_MOVES 16u   /* likewise: MOVE, and WIRE_PUT_ITEM */
#define WIRE_DIRECT 128u /* likewise: values are written to the client's memory only, where a request wants that */
#define WIRE_FACTS 64u   /* an accept's, of ping: there is the operation FACTS */

#define WIRE_REQUEST_SIZE 56
/* clang-format off */
struct wire_request {            /* offset, size */
	                         /*  0 4 magic */
	uint16_t version;        /*  4 2 */
	uint8_t flags;           /*  6 1 WIRE_ANSWERS, WIRE_CHOICE, WIRE_WRITES_NOT, WIRE_ENCRYPT ... */
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
	uint8_t flags;           /*  6 1 WIRE_ANSWERS, WIRE_ENCRYPT, WIRE_LEASES, WIRE_WATCHES ... */
	uint8_t service;         /*  7 1 */
	uint32_t message_size;   /*  8 4 granted, at most what was asked for */
	uint16_t credits;        /* 12 2 messages that the server can take */
	/* 14 2 kv: ranges of memory that a request may have, at most WIRE_PIECES_MAX; 0: one */
	uint16_t pieces;
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
	WIRE_REASON_RIGHTS,       /* the client has no right to the service; detail: the service */
	WIRE_REASON_ENCRYPT,      /* the server takes encrypted connections only */
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

/* Whether it begins as those of rdmad's clients, of any version, do. */
bool wire_request_is_ours(const uint8_t *data, size_t len);
/* 0, or the reason to refuse: bad magic or too short; another version (fields up to version are set); a service, size
 * or credit count that the protocol does not have. */
enum wire_reason wire_request_decode(struct wire_request *r, const uint8_t *data, size_t len);

/* 0, -EPROTO: not from rdmad, or outside of the protocol's bounds; -EPROTONOSUPPORT: another version. */
int wire_accept_decode(struct wire_accept *a, const uint8_t *data, size_t len);
int wire_reject_decode(struct wire_reject *r, const uint8_t *data, size_t len);

/* A refusal in words, with its numbers. Returns buf. */
char *wire_reject_text(const struct wire_reject *r, char *buf, size_t size);

/*
 * Requests of the services, a row each: constant, number, name in C, name in words. Behind it the body, then the
 * meaning of `arg`, then the reply. A service has a range of numbers without a gap, and behind the last of them its
 * END.
 */
/* clang-format off */
#define WIRE_OPS_PING(X) \
	X(ECHO, 1, echo, "echo") /* any bytes. Reply: the same */ \
	/* No body. Reply: what the server tells of its machine, lines of text, see rdmad-protocol(7). For servers \
	 * whose accept has WIRE_FACTS, and clients with the right to it. */ \
	X(FACTS, 2, facts, "facts")
#define WIRE_OPS_RESP(X)      /* its clients have a protocol of their own */
#define WIRE_OPS_MEMCACHED(X) /* the same */
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
	/* the server's log failed: a write was not done, or it and what was read may be lost by a restart */
	WIRE_READ_ONLY,
	WIRE_DENIED,     /* the client has no right to it */
	WIRE_OTHER_TYPE, /* the key has a value that other commands are for */
	WIRE_OVER_QUOTA, /* the client has as many bytes stored as it may: the body says how many */
	WIRE_STATUSES
};

/* Bytes of the reply to FACTS, at most, and how its first line begins. */
#define WIRE_FACTS_MAX 4096u
#define WIRE_FACTS_VERSION "facts 1\n"
_Static_assert(WIRE_FACTS_MAX < WIRE_MESSAGE_MIN - 64, "each message takes it");

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

/* Whether it may be the reply to FACTS: of this version, and whole lines that are printable. */
bool wire_facts_valid(const char *text, size_t len);

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
