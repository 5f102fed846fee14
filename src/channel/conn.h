/*
 * conn.h: what the files of far channels share, and meet_listen.c uses.
 *
 *   conn.c         the transport: bytes, indices, sleep
 *   conn_record.c    what the peer says
 *   conn_open.c    the end that connects and asks
 *   conn_listen.c  the end that is asked
 */
#ifndef RDMAD_CHANNEL_CONN_H
#define RDMAD_CHANNEL_CONN_H

#include <pthread.h>

#include "channel/channel.h"
#include "engine/engine.h"

#define CHANNEL_FAR_WRITES 8u /* flushes by RDMA write that are under way */

/* A write under way: from its bytes on the ring is not to be overwritten. */
struct channel_far_write {
	struct conn_transfer transfer;
	struct channel_far *far;
	uint64_t begin;
};

enum channel_far_state {
	CHANNEL_FAR_SILENT,  /* accepted, asked for nothing yet */
	CHANNEL_FAR_ASKED,   /* not answered yet */
	CHANNEL_FAR_ASKING,  /* the other one has not answered */
	CHANNEL_FAR_REFUSED, /* by either */
	CHANNEL_FAR_OPEN,
};

/*
 * Locking: all but the atomics is behind `lock`, which is the engine's, too: its holder is inside. It is
 * held for a turn or for a post. One of the two threads may sleep in the engine, without the lock; while it does, the
 * other one does not turn the engine, which would take what wakes the first, but waits for it to tell.
 */
struct channel_far {
	struct rdmad_channel channel; /* first */
	struct engine *engine;
	struct conn *conn;            /* NULL when it has ended */
	struct pending_entry pending; /* of its listener, outside of the lock, until it has its channel */
	enum channel_far_state state;

	pthread_mutex_t lock;
	pthread_cond_t turned;         /* the engine was, or no thread sleeps in it any more */
	_Atomic unsigned lock_waiters; /* threads that found the lock taken */
	unsigned waiting;              /* threads that wait for `turned` */
	bool asleep;                   /* a thread sleeps in the engine */
	int end_event;                 /* readable, and so the engine's descriptor is: the channel has ended; or -1 */

	/* Indices that the peer has said, checked. */
	_Atomic uint64_t head;   /* put until here; the bytes are in the ring */
	_Atomic uint64_t tail;   /* got until here, and not needed by a write under way */
	_Atomic uint64_t wanted; /* a tail that it waits for; UINT64_MAX: none */
	uint64_t got;            /* of what this end put */
	bool last;               /* closes in peace */

	/* Indices that the peer was told. */
	_Atomic uint64_t told; /* this end's tail */
	uint64_t want;         /* the tail that this end waits for */
	bool tell, say_last;   /* there was no room to */
	bool said_last;

	/* Flushes. What was posted counts as flushed when it needs no further turn of this end. */
	uint64_t sent;
	bool unsent;  /* the transport had no room */
	bool blocked; /* one found no room */
	bool resumed; /* since then there is */
	unsigned first, writes;
	struct channel_far_write write[CHANNEL_FAR_WRITES];

	/* The peer's ring, and what it may reach here. */
	uint64_t remote_addr, remote_ring;
	uint32_t remote_rkey;
	struct fabric_region *in, *out;

	/* State while it is opened. */
	bool over; /* a last word was said, or the connection ended: nothing is to be waited for any more */
	bool relayed;
	int error; /* why not */
	char why[256];
	char *moved;
	size_t moved_size;
	struct channel_ticket *issued;
	struct wire_channel_open asked;
	char name[WIRE_CHANNEL_NAME_MAX + 1];
	const struct fabric_transport *by;
	char peer[128];
};

extern const struct conn_ops channel_far_ops;

/* NULL: no memory, logged. */
struct channel_far *channel_far_new(uint64_t capacity, const struct rdmad_channel_options *options);
/* Neither opened nor told of: ends what there is of it. Outside. */
void channel_far_drop(struct channel_far *far);
/* The engine's options. */
void channel_far_options(const struct rdmad_channel_options *options, struct engine_options *out);

void channel_far_enter(struct channel_far *far);

static inline void channel_far_leave(struct channel_far *far)
{
	engine_leave(far->engine);
	pthread_mutex_unlock(&far->lock);
}

static inline int channel_far_ended(const struct channel_far *far)
{
	return atomic_load_explicit(&far->channel.ended, memory_order_acquire);
}

/* Inside, all that follow. This end's tail, and its last word: now, or when there is room for a record. */
void channel_far_tell(struct channel_far *far);
void channel_far_say_last(struct channel_far *far);
/* More of what was put may be overwritten; a flush that found no room may go on. */
void channel_far_free(struct channel_far *far);
void channel_far_resume(struct channel_far *far);

/*
 * conn_open.c
 */

/* Memory for both rings, of which the peer may write to one. */
int channel_far_map(struct channel_far *far);
/* Names the transport and the peer, for people. */
void channel_far_name(struct channel_far *far);
/* Say where the ring is: an OPEN, or the answer to one (status WIRE_OK). */
int channel_far_say_open(struct channel_far *far, const struct wire_channel_open *open, const char *name,
			 unsigned flags);
/* The peer's ring. -EPROTO: it cannot be one. */
int channel_far_take_ring(struct channel_far *far, const struct wire_channel_open *open);

/* A ticket, which rdmad gives the client of a listener that issues them. */
struct channel_ticket {
	bool given;
	uint32_t serial;
	uint8_t secret[WIRE_SECRET];
};

/* A request to a listener, or to an rdmad. */
struct channel_far_ask {
	const char *address;   /* for fabric_address_parse() */
	const char *name;      /* "" where the path is the name */
	uint64_t size;         /* of each ring */
	uint64_t token;        /* of an invitation by rdmad, else 0 */
	uint32_t flags;        /* WIRE_CHANNEL_RELAY */
	uint32_t message_size; /* what is relayed travels in messages of so many bytes; 0: a default */
	char *moved;           /* for what comes with WIRE_MOVED, ended by a 0; NULL: then it breaks the protocol */
	size_t moved_size;
	struct channel_ticket *issued;       /* for the ticket that comes with it */
	const struct channel_ticket *ticket; /* to be shown to a listener; NULL: none */
	struct engine_key *key;              /* in place of the options' file; NULL: that */
	bool *connected;                     /* it got so far; NULL: it is not asked for */
};

/* Clients with tickets that rdmad makes of this secret may come, beside those with the program's key. Listeners that
 * ask for no key, and those of other kinds, are left as they are. 0 or -ENOMEM. */
int channel_far_listener_issue(struct rdmad_channel_listener *listener, const uint8_t secret[static WIRE_SECRET]);

/* Connect and ask. 0; -EREMOTE: *moved says where; else why not, logged. */
int channel_far_ask(const struct channel_far_ask *ask, const struct rdmad_channel_options *options,
		    struct rdmad_channel **out);

#endif
