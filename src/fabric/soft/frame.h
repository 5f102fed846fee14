/*
 * frame.h: the bytes between two processes that use the soft provider.
 * rdmad-protocol(7) describes them; only fabric/soft* reads or writes them.
 *
 * Each frame is a header of 24 bytes, little endian, and for some operations a payload:
 *
 *   byte  0      operation, enum soft_op
 *   byte  1      flags, SOFT_FLAG_*
 *   bytes 2..7   length, 48 bits: of the payload, or, of READ, of what is asked for
 *   bytes 8..15  the target's virtual address
 *   bytes 16..19 the key of the target's region
 *   bytes 20..23 argument: the immediate; of ACK, how many requests are done; of ERROR, the
 *                number of the request that failed
 *
 *   operation   payload  uses
 *   CONNECT     0..56    the greeting (below), the private data of the connect request
 *   ACCEPT      0..196   the greeting, the private data of the accept; argument: SOFT_ACCEPT_*, or 0
 *   REJECT      0..148   the greeting, the private data of the reject; argument: enum soft_reason
 *   SEND        yes      length
 *   WRITE       yes      length, address, key
 *   WRITE_IMM   yes      length, address, key, argument
 *   READ        no       length, address, key
 *   READ_DATA   yes      length; a piece of at most SOFT_PIECE bytes of the oldest READ's answer
 *   ACK         no       argument
 *   PUSH        yes      length, 1 to 1 MiB; the receiver says where it goes, or drops it
 *   SHARE       no of a client that ACCEPT told to ask: over TCP, address and, key and argument, 64 bits that are
 *                        secret; of the server: argument, 1 or 0. share.c has the rest
 *   ERROR       no       argument; key: enum soft_refusal. The sender then ends the stream
 *
 * What a frame does not use is zero. Requests (SEND, WRITE, WRITE_IMM, READ, PUSH) are numbered from
 * 0 in each direction by their order in the stream. An ACK of n says that requests 0..n-1 are
 * done; it is owed for those with SOFT_FLAG_ACK and may stand for many. For a READ the last piece
 * of its answer is an ACK too.
 *
 * The greeting lies in the fields of address and key:
 *
 *   bytes 8..15  SOFT_MAGIC
 *   bytes 16..17 SOFT_VERSION
 *   byte  18     READs that the sender wants to have in flight
 *   byte  19     READs in flight that the sender will serve
 *
 * The connecting side sends CONNECT and then nothing before it has ACCEPT, and after SHARE nothing before the answer.
 */
#ifndef RDMAD_FABRIC_SOFT_FRAME_H
#define RDMAD_FABRIC_SOFT_FRAME_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SOFT_HEADER 24
#define SOFT_MAGIC 0x74666f73616d6472ull /* "rdmasoft" */
#define SOFT_VERSION 1
#define SOFT_PIECE (256u * 1024)

enum soft_op {
	SOFT_CONNECT = 1,
	SOFT_ACCEPT = 2,
	SOFT_REJECT = 3,
	SOFT_SEND = 4,
	SOFT_WRITE = 5,
	SOFT_WRITE_IMM = 6,
	SOFT_READ = 7,
	SOFT_READ_DATA = 8,
	SOFT_ACK = 9,
	SOFT_ERROR = 10,
	SOFT_PUSH = 11,
	SOFT_SHARE = 12,
	SOFT_OP_END
};

#define SOFT_FLAG_ACK 1 /* the sender waits for an ACK of this request */

/* Why a REJECT was sent. */
enum soft_reason {
	SOFT_REASON_CALLER = 0,    /* the listening program refused */
	SOFT_REASON_VERSION = 1,   /* the greeting's version is not spoken here */
	SOFT_REASON_RESOURCES = 2, /* no memory or descriptors */
};

/* Why a request was refused. */
enum soft_refusal {
	SOFT_REFUSED_ACCESS = 1, /* key, range or right */
	SOFT_REFUSED_LENGTH = 2, /* the receive was too short or its memory gone */
};

/* The header as it lies in the stream. */
struct soft_header {
	uint64_t op_flags_length;
	uint64_t addr;
	uint32_t key;
	uint32_t arg;
};

_Static_assert(sizeof(struct soft_header) == SOFT_HEADER, "the header is 24 bytes");
_Static_assert(offsetof(struct soft_header, addr) == 8, "address at 8");
_Static_assert(offsetof(struct soft_header, key) == 16, "key at 16");
_Static_assert(offsetof(struct soft_header, arg) == 20, "argument at 20");

/* The header in the host's order. */
struct soft_frame {
	uint8_t op, flags;
	uint32_t key, arg;
	uint64_t len, addr;
};

static inline void soft_frame_encode(uint8_t *out, const struct soft_frame *f)
{
	struct soft_header h = {
		.op_flags_length = htole64(f->op | (uint64_t)f->flags << 8 | f->len << 16),
		.addr = htole64(f->addr),
		.key = htole32(f->key),
		.arg = htole32(f->arg),
	};

	memcpy(out, &h, sizeof(h));
}

static inline void soft_frame_decode(const uint8_t *in, struct soft_frame *f)
{
	struct soft_header h;
	uint64_t first;

	memcpy(&h, in, sizeof(h));
	first = le64toh(h.op_flags_length);
	f->op = first & 0xff;
	f->flags = first >> 8 & 0xff;
	f->len = first >> 16;
	f->addr = le64toh(h.addr);
	f->key = le32toh(h.key);
	f->arg = le32toh(h.arg);
}

/* The greeting's part of the key field. */
static inline uint32_t soft_greeting_key(uint16_t version, uint8_t reads_out, uint8_t reads_in)
{
	return version | (uint32_t)reads_out << 16 | (uint32_t)reads_in << 24;
}

#endif
