/*
 * channel.h: what channel.c measures and what it measures it against. Two processes do it, this one and its peer, a
 * child: over the channel between them it is told what comes next.
 */
#ifndef RDMAD_CTL_BENCH_CHANNEL_H
#define RDMAD_CTL_BENCH_CHANNEL_H

#include "base/base.h"
#include "rdmad/channel.h"
#include "rdmad/channel_types.h"

#define BENCH_CALLS 1000 /* that are not answered, before one that is */

/* The work that both do next. */
struct bench_order {
	uint32_t work; /* a row of the table of works */
	bool in_place; /* by reserve and view, rather than by put and get */
	bool flush;    /* each message of a stream */
	uint64_t size, count;
};

/*
 * raw.c: the same work without a channel. Made before the processes part.
 */
struct bench_raw {
	struct raw_memory *memory; /* both have it */
	size_t memory_size;
	uint64_t capacity;
	int fd[2];   /* connected sockets: TCP, or UNIX ones */
	pid_t peer;  /* the other process */
	bool parent; /* this is the first one */
};

/* `path`: with UNIX sockets, else with those of TCP. 0 or -errno. */
int bench_raw_open(struct bench_raw *raw, uint64_t capacity, bool path);
/* In each of the two, after they have parted. */
void bench_raw_part(struct bench_raw *raw, pid_t peer, bool parent);
void bench_raw_close(struct bench_raw *raw);

/* The work of each side; `buffer` has order->size bytes. 0, -EINTR, or -errno: the peer has ended. */
int bench_raw_words(struct bench_raw *raw, const struct bench_order *order); /* two words on two cache lines */
int bench_raw_ring(struct bench_raw *raw, const struct bench_order *order, void *buffer); /* a single-producer ring */
int bench_raw_copy(struct bench_raw *raw, const struct bench_order *order,
		   void *buffer); /* memcpy, by the first side alone */
int bench_raw_echo(struct bench_raw *raw, const struct bench_order *order,
		   void *buffer); /* ping-pong over polled sockets */
int bench_raw_send(struct bench_raw *raw, const struct bench_order *order,
		   void *buffer); /* a loop of send, and of recv */

/*
 * channel_work.c
 */

/* One of the two processes. */
struct bench_side {
	struct rdmad_channel *channel;
	struct bench_raw raw;
	uint8_t *buffer;   /* for the largest message, and for all calls */
	uint64_t limit_us; /* of each wait */
	bool first;        /* it says what comes next */
};

/* Works up to BENCH_CALL need a channel alone, the others what raw.c makes. */
enum {
	BENCH_PINGPONG,
	BENCH_STREAM,
	BENCH_CALL,
	BENCH_WORDS,
	BENCH_RING,
	BENCH_COPY,
	BENCH_ENCODING,
	BENCH_ECHO,
	BENCH_SEND,
	BENCH_WORKS
};

struct bench_work {
	const char *name;
	int (*run)(struct bench_side *side, const struct bench_order *order); /* 0 or -errno */
};
extern const struct bench_work bench_works[BENCH_WORKS];

extern const struct rdmad_type bench_order_type; /* struct bench_order */
extern const struct rdmad_type bench_call_type;  /* a call */
#define BENCH_CALL_SIZE 24u                      /* bytes of one */

/*
 * channel_print.c
 */
struct bench_channel_result {
	const char *op, *way, *beside; /* beside NULL: nothing is */
	uint64_t size;
	double ns, beside_ns; /* of a message, a round trip, or all calls; 0: there is nothing beside it */
};

/* The command's exit status. */
int bench_channel_print(const char *url, const char *transport, uint64_t capacity,
			const struct bench_channel_result *results, size_t n);

#endif
