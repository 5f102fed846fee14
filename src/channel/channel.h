/*
 * channel.h: the inside of <rdmad/channel.h>. A channel is two rings, and a transport that tells the peer of what was
 * put and taken.
 *
 *   channel.c         the public calls: what is the same over all transports
 *   wait.c    flush, the end, and waiting for the peer
 *   mirror.c    memory that is mapped twice, one behind the other, so that no piece of a ring is ever in two parts
 *   url.c    URLs, listen, accept, open
 *   shm*.c            both rings in memory that both programs map; eventfds wake, a UNIX socket tells of a death
 *   conn*.c           a connection: the ring of what is put is this end's, and flush copies new bytes into the peer's
 *   meet*.c           meet://: by way of an rdmad
 *   list.c    rdmad_channel_list()
 *   types.c, encode.c, decode.c   <rdmad/channel_types.h>
 *
 * Indices count bytes since the beginning, over 64 bits, and never go back. head: put. tail: got. head - tail is at
 * most the capacity. The end that puts owns head, the other one tail; what either learns of the other's index is
 * checked before it is used: channel_in_told(), channel_out_told(). So a peer that lies ends its channel, and never
 * makes us touch memory outside of the ring.
 */
#ifndef RDMAD_CHANNEL_CHANNEL_H
#define RDMAD_CHANNEL_CHANNEL_H

#include "base/base.h"
#include "rdmad/channel.h"

/*
 * mirror.c
 */

/* `size` bytes, a multiple of the page, of `fd` from `offset` on, mapped at `data` and again at data + size. */
struct channel_mirror {
	uint8_t *data;
	size_t size;
};

/* Whole pages for a ring of this capacity. */
size_t channel_mirror_size(size_t capacity);
int channel_mirror_map(int fd, off_t offset, size_t size, struct channel_mirror *out); /* 0 or -errno, logged */
void channel_mirror_unmap(struct channel_mirror *mirror);
/* Memory without a name, sealed against shrinking and growing: its descriptor, or -errno, logged. */
int channel_memory_create(size_t size);

/* Output of this end: of the thread that puts; the other thread may read atomic members. A place is an index modulo
 * mirror.size, which may be more than the capacity. */
struct channel_out {
	struct channel_mirror mirror;
	_Atomic uint64_t head;    /* put; its bytes are in the ring. channel.c writes it */
	_Atomic uint64_t flushed; /* of it, handed to the transport, which writes it in flush() */
	uint64_t tail;            /* got by the peer, as far as is known */
	size_t at;                /* head's place in the ring */
	size_t reserved;          /* bytes from `at` that the caller may write */
	_Atomic bool flushing;    /* a thread is in the transport's flush() */
	uint64_t checked;         /* when the peer's end was checked for */
	_Atomic bool inside;      /* contracts: a thread is in a call that puts */
	uint64_t wanted;          /* arm(): the tail that a try to put lacked; 0: none did */
};

/* Input of this end: of the thread that gets, likewise. */
struct channel_in {
	struct channel_mirror mirror;
	_Atomic uint64_t tail; /* got; channel.c writes it */
	uint64_t head;         /* put by the peer, as far as is known; its bytes are in the ring */
	size_t at;             /* tail's place */
	uint64_t checked;      /* when the peer's end was checked for */
	_Atomic bool inside;   /* contracts: a thread is in a call that gets */
};

enum channel_way { CHANNEL_PUT, CHANNEL_GET };

/*
 * Operations of a transport. `way` says which of the two threads calls. None waits but sleep() and close().
 *
 * flush() is called by the thread that puts, and by the one that gets when it is about to wait: for what the other one
 * put but did not flush. One at a time is let in (out.flushing), unless the transport has assist(). So flush() reads
 * out.head once, and of the rest of `out` nothing that is not atomic but the mirror: a place in it is out.flushed %
 * out.mirror.size.
 */
struct channel_transport {
	uint64_t flush_at; /* so many bytes that wait are flushed, or a quarter of the ring; 0: 256 KiB */
	/* Have the peer know of out.head: sets out.flushed, perhaps only in part, when there is no room now: -EAGAIN,
	 * and it is called again after the next sleep(). */
	int (*flush)(struct rdmad_channel *channel);
	/* Optional: the same for the thread that gets, while the other one may be in flush(): spares that one a
	 * lock. */
	int (*assist)(struct rdmad_channel *channel);
	/* Learn what the peer put or got, without a system call where that is possible: it is called in a loop. 0, or
	 * why the channel has ended; what came before can still be got, so it goes on to learn of that. `now`, read a
	 * few polls ago at most, is for a transport that needs it; 0: it reads the clock itself. */
	int (*look)(struct rdmad_channel *channel, enum channel_way way, uint64_t now);
	/* in.tail has moved. The thread that gets. */
	void (*taken)(struct rdmad_channel *channel);
	/* Sleeps until `index` of the peer (its head for CHANNEL_GET, its tail for CHANNEL_PUT) was reached, that
	 * flush() can go on, or that the channel ended, at the latest at `until`. Loses no wake-up: says that it
	 * sleeps, polls again, then sleeps. 0, -ETIMEDOUT, or why the channel has ended. A caller that polls calls it
	 * each millisecond with an `until` that has passed: it checks for the peer's end then, and does not sleep. */
	int (*sleep)(struct rdmad_channel *channel, enum channel_way way, uint64_t index, uint64_t until);
	/* For a program's loop. arm: 0; 1: since the last look() the peer put something, or out.wanted was reached:
	 * then that becomes 0. Its answer after the channel's end is ignored. */
	int (*fd)(const struct rdmad_channel *channel);
	int (*arm)(struct rdmad_channel *channel);
	/* Optional: channel->ended is set: if a thread is in sleep(), or goes there, it returns, and fd() is readable.
	 * Any thread, also one that is within a call of the transport. Once. */
	void (*wake)(struct rdmad_channel *channel);
	/* Tell the peer of a peaceful end, unless channel->ended. Frees what the transport has, but neither the mirrors
	 * nor the channel itself: channel.c does. 0, or why what was flushed may not have arrived. */
	int (*close)(struct rdmad_channel *channel);
	void (*info)(const struct rdmad_channel *channel, struct rdmad_channel_info *info);
};

#define CHANNEL_FLUSH_FIRST (16 * KIB)

/* Every channel begins so; a transport's own struct begins with it. Nothing of one thread shares a cache line with what
 * is the other thread's. */
struct rdmad_channel {
	const struct channel_transport *transport;
	uint64_t capacity;
	uint64_t flush_at; /* so many bytes that wait are flushed by a put in a long stream ... */
	uint64_t poll;     /* ns to poll before sleeping; TIME_NEVER: never sleep */
	_Atomic int ended; /* 0, or the negative errno of each later call */
	_Atomic bool ending;
	char why[200]; /* once it has ended */
	_Alignas(CACHE_LINE) struct channel_out out;
	_Atomic uint64_t flush_next; /* ... and now: at first less, so that the peer works while this end puts on */
	_Atomic uint64_t flushes, put_sleeps;
	_Alignas(CACHE_LINE) struct channel_in in;
	_Atomic uint64_t get_sleeps;
};

/* A contract, of which nothing but a crash depends: so no step that cannot be divided, of which a put and a get of a
 * few bytes would mostly consist. Two that come within the same nanoseconds go unseen, two of which one waits do
 * not. */
static inline void channel_enter(_Atomic bool *inside)
{
	must(!atomic_load_explicit(inside, memory_order_relaxed));
	atomic_store_explicit(inside, true, memory_order_relaxed);
}

static inline void channel_leave(_Atomic bool *inside)
{
	must(atomic_load_explicit(inside, memory_order_relaxed));
	atomic_store_explicit(inside, false, memory_order_relaxed);
}

/*
 * wait.c. The first three are for transports.
 */

/* The peer says that it put up to `head`, or got up to `tail`. -EPROTO: that cannot be. */
int channel_in_told(struct rdmad_channel *channel, uint64_t head);
int channel_out_told(struct rdmad_channel *channel, uint64_t tail);

/* The first end counts; logged. `error`: -EPIPE, -ECONNRESET, -EPROTO ... Any thread. Returns what counts. */
int channel_end(struct rdmad_channel *channel, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Hands bytes that were put and not flushed to the transport. -EAGAIN: not all of it now; other errors: the channel
 * has ended. */
int channel_flush_some(struct rdmad_channel *channel);
/* Flushes without being asked, as so much waits; the next time twice as much does. */
void channel_flush_early(struct rdmad_channel *channel);

/* Waits until the peer's index is `index`: polls, then sleeps, after a flush. `until` 0: no waiting. -EAGAIN: not
 * until then; other errors: the channel has ended. */
int channel_wait(struct rdmad_channel *channel, enum channel_way way, uint64_t index, uint64_t until);

/* 0, or why it has ended, logged again. */
int channel_ended(struct rdmad_channel *channel);

/*
 * Most puts and gets, but for the copy. advance: the bytes at out.at are there now, those at in.at were
 * got.
 */
static inline uint64_t channel_put_so_far(const struct rdmad_channel *channel)
{
	return atomic_load_explicit(&channel->out.head, memory_order_relaxed);
}

static inline size_t channel_known_room(const struct rdmad_channel *channel)
{
	return (size_t)(channel->capacity - (channel_put_so_far(channel) - channel->out.tail));
}

static inline bool channel_has_room(const struct rdmad_channel *channel, size_t count)
{
	return likely(count <= channel_known_room(channel) &&
		      !atomic_load_explicit(&channel->ended, memory_order_relaxed));
}

/* Begins a new stream with what is put from here on. */
static inline void channel_flush_again(struct rdmad_channel *channel)
{
	uint64_t first = MIN(channel->flush_at, CHANNEL_FLUSH_FIRST);

	if (unlikely(atomic_load_explicit(&channel->flush_next, memory_order_relaxed) != first))
		atomic_store_explicit(&channel->flush_next, first, memory_order_relaxed);
}

/* The bytes at out.at are there now. */
static inline void channel_advance_out(struct rdmad_channel *channel, size_t count)
{
	struct channel_out *out = &channel->out;
	uint64_t head = channel_put_so_far(channel) + count;

	channel_enter(&out->inside); /* one thread puts */
	out->at += count;
	if (out->at >= out->mirror.size)
		out->at -= out->mirror.size;
	out->reserved = 0;
	atomic_store_explicit(&out->head, head, memory_order_release);
	channel_leave(&out->inside);
	if (unlikely(head - atomic_load_explicit(&out->flushed, memory_order_relaxed) >=
		     atomic_load_explicit(&channel->flush_next, memory_order_relaxed)))
		channel_flush_early(channel);
}

static inline uint64_t channel_got_so_far(const struct rdmad_channel *channel)
{
	return atomic_load_explicit(&channel->in.tail, memory_order_relaxed);
}

static inline size_t channel_known_bytes(const struct rdmad_channel *channel)
{
	return (size_t)(channel->in.head - channel_got_so_far(channel));
}

static inline bool channel_has_bytes(const struct rdmad_channel *channel, size_t count)
{
	return likely(count <= channel_known_bytes(channel) &&
		      !atomic_load_explicit(&channel->ended, memory_order_relaxed));
}

static inline void channel_advance_in(struct rdmad_channel *channel, size_t count)
{
	struct channel_in *in = &channel->in;

	channel_enter(&in->inside); /* one thread gets */
	in->at += count;
	if (in->at >= in->mirror.size)
		in->at -= in->mirror.size;
	atomic_store_explicit(&in->tail, channel_got_so_far(channel) + count, memory_order_release);
	channel_leave(&in->inside);
	channel->transport->taken(channel);
}

/*
 * channel.c, for transports
 */

/* A zeroed channel of `size` bytes, those of the transport's own struct, with what all have set. The transport maps the
 * mirrors. NULL: no memory, logged. channel_free() unmaps them; it takes NULL. */
void *channel_new(size_t size, const struct channel_transport *transport, uint64_t capacity,
		  const struct rdmad_channel_options *options);
void channel_free(struct rdmad_channel *channel);

/*
 * url.c: a URL, and what each transport listens with.
 */
enum channel_scheme { CHANNEL_SHM, CHANNEL_FAR, CHANNEL_MEET };

struct channel_url {
	enum channel_scheme scheme;
	char address[320];                     /* CHANNEL_FAR, CHANNEL_MEET: for fabric_address_parse() */
	char name[RDMAD_CHANNEL_NAME_MAX + 1]; /* "" where the path is the name */
};
/* -EINVAL, logged. */
int channel_url_parse(const char *text, struct channel_url *out);

/* A listener of one kind; its own struct begins with it. */
struct rdmad_channel_listener {
	const struct channel_listener_ops *ops;
	char url[600];
};

struct channel_listener_ops {
	int (*accept)(struct rdmad_channel_listener *listener, uint64_t until, struct rdmad_channel **channel);
	int (*fd)(const struct rdmad_channel_listener *listener);
	void (*close)(struct rdmad_channel_listener *listener);
};

/*
 * shm_listen.c, shm_open.c, conn_listen.c, conn_open.c, meet_listen.c, meet_open.c. The size is checked; options
 * are never NULL.
 */
int channel_shm_listen(const struct channel_url *url, size_t size, const struct rdmad_channel_options *options,
		       struct rdmad_channel_listener **out);
int channel_shm_open(const struct channel_url *url, size_t size, const struct rdmad_channel_options *options,
		     struct rdmad_channel **out);
int channel_far_listen(const struct channel_url *url, size_t size, const struct rdmad_channel_options *options,
		       struct rdmad_channel_listener **out);
int channel_far_open(const struct channel_url *url, size_t size, const struct rdmad_channel_options *options,
		     struct rdmad_channel **out);
int channel_meet_listen(const struct channel_url *url, size_t size, const struct rdmad_channel_options *options,
			struct rdmad_channel_listener **out);
int channel_meet_open(const struct channel_url *url, size_t size, const struct rdmad_channel_options *options,
		      struct rdmad_channel **out);

#endif
