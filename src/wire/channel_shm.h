/*
 * channel_shm.h: what the two ends of a channel in shared memory exchange, to the byte; rdmad-channel(7) describes the
 * same. The opener sends a hello by a UNIX socket, and has an answer with descriptors: one of the memory, four of
 * eventfds.
 *
 * The memory, which the listener makes: a page with struct wire_shm_header, then the bytes of ring 0, of what the
 * opener puts, then those of ring 1, each of whole pages. What is in it the peer may write at any time, whatever the
 * rules: it is read once, checked, then used.
 */
#ifndef RDMAD_WIRE_CHANNEL_SHM_H
#define RDMAD_WIRE_CHANNEL_SHM_H

#include "wire/wire.h"

#define WIRE_SHM_MAGIC 0x6d68732d64616d64ull /* "dmad-shm" */
#define WIRE_SHM_VERSION 1
#define WIRE_SHM_APART 128 /* bytes: processors fetch cache lines in pairs */

/* An index is written by one end. Those of sleepers are on a line of their own, which stays in both caches while no end
 * sleeps. */
struct wire_shm_ring {
	_Alignas(WIRE_SHM_APART) _Atomic uint64_t head; /* put */
	_Alignas(WIRE_SHM_APART) _Atomic uint64_t tail; /* got */
	_Alignas(WIRE_SHM_APART) _Atomic uint64_t
		head_wanted;          /* the end that gets sleeps until head is this; 0: awake */
	_Atomic uint64_t tail_wanted; /* the end that puts sleeps until tail is this; 0: awake */
	_Atomic uint32_t closed;      /* the end that puts has closed the channel in peace */
};
_Static_assert(sizeof(struct wire_shm_ring) == 384 && offsetof(struct wire_shm_ring, tail) == 128 &&
		       offsetof(struct wire_shm_ring, head_wanted) == 256 &&
		       offsetof(struct wire_shm_ring, tail_wanted) == 264 &&
		       offsetof(struct wire_shm_ring, closed) == 272,
	       "wire layout");

struct wire_shm_shape {
	uint64_t magic;
	uint32_t version;
	uint32_t page;     /* where ring 0 begins */
	uint64_t capacity; /* of a ring */
	uint64_t ring;     /* bytes of a ring in memory */
};
_Static_assert(sizeof(struct wire_shm_shape) == 32, "wire layout");

struct wire_shm_header {
	struct wire_shm_shape shape;
	struct wire_shm_ring rings[2];
};
_Static_assert(sizeof(struct wire_shm_header) == 896 && offsetof(struct wire_shm_header, rings) == 128, "wire layout");

struct wire_shm_hello {
	uint64_t magic;
	uint32_t version;
	uint32_t name_len;
	uint64_t capacity;
	char name[WIRE_CHANNEL_NAME_MAX];
};
_Static_assert(sizeof(struct wire_shm_hello) == 224, "wire layout");

/* Where error is 0, WIRE_SHM_FDS descriptors come with it. */
struct wire_shm_answer {
	uint64_t magic;
	uint32_t version;
	uint32_t error; /* errno */
	uint64_t capacity;
};
_Static_assert(sizeof(struct wire_shm_answer) == 24, "wire layout");

/* Descriptors that are handed over, in this order. */
enum wire_shm_fd {
	WIRE_SHM_MEMORY,
	WIRE_SHM_HEAD_0,
	WIRE_SHM_TAIL_0,
	WIRE_SHM_HEAD_1,
	WIRE_SHM_TAIL_1,
	WIRE_SHM_FDS,
};

#endif
