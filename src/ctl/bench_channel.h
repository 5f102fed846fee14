/*
 * bench_channel.h: what bench_channel.c measures and what it measures it against. Two processes do it, this one and its peer, a child:
 * over the channel between them it is told what comes next.
 */
#ifndef RDMAD_CTL_BENCH_CHANNEL_H
#define RDMAD_CTL_BENCH_CHANNEL_H

#include "base/base.h"
#include "rdmad/channel.h"

/* What both do next. */
struct bench_order {
	uint32_t work; /* a row of the table of works */
	bool in_place; /* by reserve and view, rather than by put and get */
	bool flush;    /* each message of a stream */
	uint64_t size, count;
};

/*
 * bench_raw.c: the same work without a channel. Made before the processes part.
 */
struct bench_raw {
	struct raw_memory *memory; /* both have it */
	size_t memory_size;
	uint64_t capacity;
	int fd[2];   /* connected sockets: TCP, or UNIX ones */
	pid_t peer;  /* the other process */
	bool parent; /* this is the first one */
};

/* `transport` "unix" or "tcp": with sockets. 0 or -errno. */
int bench_raw_open(struct bench_raw *raw, uint64_t capacity, const char *transport);
/* In each of the two, after they have parted. */
void bench_raw_part(struct bench_raw *raw, pid_t peer, bool parent);
void bench_raw_close(struct bench_raw *raw);

/* What each side does; `buffer` has order->size bytes. 0, -EINTR, or -errno: the peer has ended. */
int bench_raw_words(struct bench_raw *raw, const struct bench_order *order); /* two words on two cache lines */
int bench_raw_ring(struct bench_raw *raw, const struct bench_order *order, void *buffer); /* a single-producer ring */
int bench_raw_copy(struct bench_raw *raw, const struct bench_order *order,
		   void *buffer); /* memcpy, by the first side alone */
int bench_raw_echo(struct bench_raw *raw, const struct bench_order *order,
		   void *buffer); /* ping-pong over polled sockets */
int bench_raw_send(struct bench_raw *raw, const struct bench_order *order,
		   void *buffer); /* a loop of send, and of recv */

#endif
