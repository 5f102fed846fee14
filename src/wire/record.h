/* record.h: messages and records, the frame of all requests. wire/wire.h includes it. */
#ifndef RDMAD_WIRE_RECORD_H
#define RDMAD_WIRE_RECORD_H

#include "base/base.h"

/*
 * Messages and records. A message is one send: this header, then records, each a header and a body,
 * each begun on a multiple of 8.
 *
 * A message with records takes one of the credits that the receiver granted, and so does a write with immediate. A
 * message without records takes none, and returns at least one or has a flag. A sender sends such a message when it
 * owes half of the credits that it granted, or more.
 *
 * A side that heard nothing for long asks whether the other's program still runs, by WIRE_ASK in a message with or
 * without records, if the other has said WIRE_ANSWERS. The other answers at once by WIRE_ANSWER, likewise. No end asks
 * again before the answer. So no more than WIRE_RETURNS_MAX messages without records can be under way, two that return
 * credits, one that asks and one that answers, and the receiver has further receives for these.
 *
 * A server that is to end, or takes no new connections, says WIRE_GOAWAY once. It goes on as before: the client
 * finishes what it asked for, asks for nothing more and disconnects. Of one that stays all the same the server takes no
 * more records when it has answered all, says WIRE_LAST and disconnects: whatever it has not answered by then, it has
 * not carried out.
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
	uint16_t status; /* replies: enum wire_status; requests: by service, else 0 */
	uint32_t arg;    /* by op */
};
_Static_assert(sizeof(struct wire_record) == 16, "wire layout");

#define WIRE_REPLY 1u /* flags: this record answers the request of the same id */
/* Operation of the first record of a client that has a key: its proof, 32 bytes. It has no answer. In place of that of
 * a key it may be a credential of MUNGE, which the first record of the server answers by another one. */
#define WIRE_OP_PROOF 240u
#define WIRE_OP_PROVED 241u

/* Secrets that rdmad hands on are sealed for the connection that they go by, so they go only to and from programs that
 * have a key. */
#define WIRE_SECRET 32
#define WIRE_SEALED (WIRE_SECRET + 16)

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

/* A range of the requester's memory, at the start of a body. */
struct wire_remote {
	uint64_t addr;
	uint64_t length;
	uint32_t rkey;
	uint32_t reserved;
};
_Static_assert(sizeof(struct wire_remote) == 24, "wire layout");

#endif
