/*
 * rings.h: the memory that the two ends of a connection within one machine share. rdmad-protocol(7) describes it.
 *
 * The frames of frame.h need not pass through the kernel there: each direction has a ring of bytes, and the socket
 * tells of the peer's end and wakes a side that sleeps. The memory is a sealed memfd, which the server makes; share.c
 * says how the client comes to have it.
 *
 *   bytes 0..7    SOFT_RINGS_MAGIC
 *   from 64       the indices of the ring from client to server, struct soft_ring
 *   from 320      those of the ring back
 *   from 4096     the bytes of the first ring, SOFT_RING_SIZE, then those of the second
 *
 * An index counts all bytes ever, is written by one side, and never goes back. A side that wants to sleep sets its flag
 * and looks again; a side that moves an index looks at the flag after it, and if it is set clears it and sends one
 * byte, of no meaning, by the socket. The peer may write anything at any time: an index is checked when it is read, and
 * bytes are copied out before they are looked at.
 */
#ifndef RDMAD_FABRIC_SOFT_RINGS_H
#define RDMAD_FABRIC_SOFT_RINGS_H

#include <stdatomic.h>

#include "base/base.h"

#define SOFT_RINGS_MAGIC 0x676e697261646d72ull /* "rmdaring" */
#define SOFT_RING_SIZE ((size_t)512 * 1024)
#define SOFT_RING_STEP                                                                                                 \
	((size_t)32 * 1024) /* moved at most before the other side hears of it, so that both copy at once */
/* Argument of ACCEPT: one of them, or 0. */
#define SOFT_ACCEPT_RINGS 1u /* of servers to which the client passed the memory, as none does any more */
#define SOFT_ACCEPT_SHARE 2u

struct soft_ring {
	_Alignas(CACHE_LINE) _Atomic uint64_t head;   /* the producer has put so many bytes */
	_Alignas(CACHE_LINE) _Atomic uint64_t tail;   /* the consumer has taken so many */
	_Alignas(CACHE_LINE) _Atomic uint32_t asleep; /* the consumer wants to be told of bytes */
	_Alignas(CACHE_LINE) _Atomic uint32_t full;   /* the producer wants to be told of room */
};

struct soft_rings_memory {
	uint64_t magic;
	struct soft_ring ring[2];
	_Alignas(4096) uint8_t data[2][SOFT_RING_SIZE];
};

_Static_assert(offsetof(struct soft_rings_memory, ring) == 64, "indices at 64");
_Static_assert(offsetof(struct soft_rings_memory, ring[1]) == 320, "and at 320");
_Static_assert(offsetof(struct soft_rings_memory, data) == 4096, "bytes at 4096");

/* One ring as one of its sides has it. */
struct soft_side {
	struct soft_ring *ring;
	uint8_t *data;
	uint64_t own;  /* the index that is ours */
	uint64_t peer; /* the other one, as last read */
};

struct soft_rings {
	struct soft_rings_memory *memory;
	struct soft_side in, out;
	struct soft_endpoint *endpoint;
	struct list awake;    /* in queue->awake ... */
	uint32_t quiet;       /* ... and nothing has come in so many polls */
	struct list roomless; /* in queue->roomless */
};

#endif
