/*
 * way.h: which way a value of the kv service goes, the one place that says so. Both sides ask: the one that has the
 * value before it sends it, and a client also before it names memory for an answer.
 */
#ifndef RDMAD_WIRE_WAY_H
#define RDMAD_WIRE_WAY_H

#include "wire/wire.h"

/* How a value comes from one side's memory into the other's. */
enum wire_way {
	WIRE_WAY_MESSAGE, /* in the body of the request or of its answer, copied by a processor */
	WIRE_WAY_PUSHED,  /* behind the message, with WIRE_PUSHED: no copy beyond the fabric's, no round trip more */
	WIRE_WAY_REMOTE,  /* by rendezvous: the server reads or writes the range of memory that the request names */
	WIRE_WAY_PIECES,  /* likewise with several ranges, one behind the other */
	WIRE_WAY_NONE, /* in none: the request is refused, or a GET comes again and names memory that is long enough */
};

/* What a value's way depends on beside operation and length: what both sides can, and what the request names. */
struct wire_ways {
	uint64_t message_max; /* to the server: longest value that the request's message takes beside the key */
	uint64_t push_max;    /* longest value that may be pushed, by grant and flags of this request; 0: none */
	uint64_t named;       /* to the client: bytes of its memory that the request names; 0: none */
	unsigned ranges;      /* pieces of the client's memory, of either direction; up to 1: it is in one */
	bool fits;            /* WIRE_FETCH_FITS */
	bool direct;          /* no processor may touch the client's memory: WIRE_WRITTEN of a request that reads */
	bool moves;           /* the server's memory is registered: it may read and write the client's */
};

/* Shorter values of a GET are not pushed: where a processor moves the bytes that saves a copy, but is one more thing to
 * wait for. Of these a message of 16 KiB takes four, and of what is longer three, with a try to find room for one more
 * (measured). */
#define WIRE_PUSH_OVER 4000u

/* The longest value that goes by message, however empty that is. */
static inline uint64_t wire_message_max(enum wire_op op, const struct wire_ways *can)
{
	if (can->direct)
		return 0;
	switch ((int)op) {
	case WIRE_OP_GET:
		return can->push_max >= WIRE_INLINE_MAX ? WIRE_PUSH_OVER : WIRE_INLINE_MAX;
	case WIRE_OP_GET_INTO: /* also beyond the range: the client has the length to tell its caller then */
		return WIRE_INLINE_MAX;
	case WIRE_OP_FETCH:
	case WIRE_OP_FETCH_PIECES:
		return can->named || can->fits ? MIN(can->named, WIRE_INLINE_MAX) : WIRE_INLINE_MAX;
	default:
		return can->message_max;
	}
}

/* Whether values of the operation go to the client; else to the server. */
static inline bool wire_op_reads(enum wire_op op)
{
	return op == WIRE_OP_GET || op == WIRE_OP_GET_INTO || op == WIRE_OP_FETCH || op == WIRE_OP_FETCH_PIECES;
}

/* The way of a value of `size`. A client asks with the operation that it was called with, a server with that of the
 * request: SET may become SET_FROM, and PUT or FETCH the form for pieces, without another answer. */
static inline enum wire_way wire_way(enum wire_op op, uint64_t size, const struct wire_ways *can)
{
	if (size <= wire_message_max(op, can))
		return WIRE_WAY_MESSAGE;
	if (size <= can->push_max && !can->direct)
		return WIRE_WAY_PUSHED;
	if (!can->moves || (wire_op_reads(op) && size > can->named))
		return WIRE_WAY_NONE;
	return can->ranges > 1 ? WIRE_WAY_PIECES : WIRE_WAY_REMOTE;
}

#endif
