/*
 * peer.h: the inside of rdma_lib. A context turns the engines of librdmad (engine/engine.h) that it needs, one for each
 * provider; a peer is a session with another program, which outlives its connection: what was not confirmed is sent
 * again on the next one.
 *
 *   context.c, thread.c   a context: options, engines, turns, waiting, the end; the progress thread
 *   layers.c       the layers, a row each: struct peer_layer below
 *   links/         listening, dialing, a connection's begin and end; peers: states, indices, tombstones; reconnection
 *   messages/      classes, streams, confirmation, room; unexpected messages; requests; the calls that send and receive
 *   windows/       memory that peers reach
 *   groups/        members, ranks; how they find each other; losses
 *   collectives/   rounds of sends, receives, reductions and copies; the algorithms, and the table that chooses one
 *   launch.c, pmix.c  what the launcher of a program tells it; how its ranks find each other by PMIx
 *   error.c        what a thread's last failed call says
 *
 * Locking. With a progress thread all of a context that changes is behind its lock, which a public call takes at its
 * begin (rdma_enter) and leaves at its end; a call that sleeps leaves it meanwhile, so that the thread goes on. Without
 * a thread there is no lock. "Inside" below: between the two. Callbacks of the program are called by rdma_leave(),
 * outside.
 *
 * Nothing is freed in a callback of conn. A peer that has gone is kept until nothing refers to it, and freed when the
 * program's call ends; its index stays its own.
 */
#ifndef RDMAD_PEER_PEER_H
#define RDMAD_PEER_PEER_H

#include <pthread.h>

#include "engine/engine.h"
#include <rdma_lib.h>

#define PEER_EAGER_MAX 4096u        /* bytes of a message that a processor copies */
#define PEER_CLASSES 3              /* RDMA_NORMAL, RDMA_URGENT, RDMA_BULK */
#define PEER_INBOX_MIN (64u * 1024) /* bytes of short messages that a peer may have waiting here */

struct peer;
struct peer_connections;
struct progress_thread;

/* The receivers of messages at a peer. */
enum {
	PEER_STREAM_PROGRAM,  /* rdma_send(), rdma_recv() */
	PEER_STREAM_CONTROL,  /* the library: peer/messages/control.c */
	PEER_STREAM_EXCHANGE, /* rdma_sequential_alltoall() */
	/* Others: a group's number << 32 | the number of its collective * SCHEDULE_LANES + a lane. */
};

/*
 * An operation under way: peer/messages/request.c
 */
struct rdma_request {
	struct list node; /* of the list in which it waits */
	rdma_context *ctx;
	struct peer *peer; /* NULL: of a collective */
	/* An inner operation: called once when it is complete, inside, in a turn or in the call that began it; its
	 * owner frees it. NULL: the program's, which it tests. */
	void (*done)(struct rdma_request *request);
	void *owner; /* for done() */
	/* How to give it up. True: it was, is in no list, and done() will not be called; its owner frees it.
	 * False, or NULL: it is too late, as its memory is being read or written; it completes soon. A send whose peer
	 * was told of it and does not take it, as it forgot the stream, completes, too. */
	bool (*cancel)(struct rdma_request *request);
	/* The call's time is over, and it cannot be cancelled: have it complete soon; as message_abandon(),
	 * which NULL stands for. */
	uint64_t (*abandon)(struct rdma_request *request);
	uint64_t stream;
	unsigned message_class;
	char *data;
	size_t length; /* of data; when complete, of what came */
	bool complete;
	bool late;  /* it was abandoned: a receive waits for no other message */
	int status; /* 0 or -errno */
	char *why;  /* of a failure, where there is more to say than strerror(); owned */
};

/*
 * A peer.
 */
enum peer_state {
	PEER_CONNECTING, /* of this side; hello was not answered */
	PEER_WAITING,    /* of the other side; not accepted yet */
	PEER_CONNECTED,
	PEER_BROKEN,  /* the connection is gone; by whom a new one is made, and until when, says peer/links/session.c */
	PEER_LEAVING, /* rdma_disconnect_peer(): until all is confirmed, or time */
	PEER_GONE,    /* by either */
};

struct peer {
	rdma_context *ctx;
	int index;
	enum peer_state state; /* by peer_set_state() alone, which logs */
	struct engine *engine;
	struct conn *conn; /* NULL: none */
	const struct fabric_transport *transport;
	char name[128];               /* for people: its address, and its rank if it has one */
	char why[256];                /* PEER_GONE: the reason */
	bool told;                    /* the program heard of its loss */
	bool inner;                   /* of a group's mesh; it has an index as others */
	struct list node;             /* in ctx->waiting, ctx->lost */
	uint64_t room;                /* bytes of short messages that may wait at the other end */
	bool resumes;                 /* a connection that breaks is made anew */
	struct peer_session *session; /* peer/links/session.c */
	struct peer_message *message; /* peer/messages/message.c and peer/messages/inbox.c */
	struct peer_window *window;   /* peer/windows/window.c: what is open of and for this peer */
};

/* Find a peer; in a failed call: "Invalid peer index: ..." or "Peer not connected: ...". NULL: rdma_fail() was
 * called. */
struct peer *peer_find(rdma_context *ctx, int index);      /* also one that has gone, and is still needed */
struct peer *peer_connected(rdma_context *ctx, int index); /* PEER_CONNECTED or PEER_BROKEN */
/* First of all in a call that may succeed without a turn: has it ended since the last one? Then turns tell. */
void peer_look(struct peer *peer);
void peer_set_state(struct peer *peer, enum peer_state state);
/* The peer has gone: fails its operations under way, tells groups and windows, and the program later. */
void peer_lose(struct peer *peer, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Connect without waiting: the peer is PEER_CONNECTED or PEER_GONE when it has come to an end, and ctx->progressed is
 * another. For meshes. `address`: as rdma_connect_peer()'s with a port, or several, separated by blanks, which are
 * tried in turn. `hello_group`: what the other end knows it by, or 0; see peer_expect(). *out has its index at once. 0
 * or -errno. */
int peer_connect_begin(rdma_context *ctx, const char *address, uint64_t hello_group, struct peer **out);
/* A peer that says `hello_group` is accepted without rdma_accept_peer(): arrived() is called, inside. NULL: no more. */
void peer_expect(rdma_context *ctx, uint64_t hello_group, void (*arrived)(void *arg, struct peer *peer), void *arg);
/* Disconnect without waiting; what was sent is delivered first. */
void peer_part(struct peer *peer);
/* Listen on a free port, if this context does not listen yet. 0 or -errno, logged. */
int peer_listen(rdma_context *ctx);
/* The URLs by which others reach this context, separated by blanks, best first: the end here of the connection `via`
 * (or NULL), then those of the interfaces, bridges last; as many as there is room for. Bytes, or -errno. */
int peer_addresses(rdma_context *ctx, const struct conn *via, char *out, size_t size);

/*
 * context.c
 */
struct rdma_context {
	rdma_options options; /* with the defaults filled in */
	bool is_server, listening;
	pthread_mutex_t lock;
	struct progress_thread *thread; /* NULL */
	unsigned inside;                /* of rdma_enter(); the caller's own */
	unsigned depth;                 /* of those inside; with the lock */
	uint64_t turns;                 /* of callers */
	bool running;                   /* in a turn */
	bool news;           /* peer_look() turned since the last rdma_progress(): the descriptor does not tell */
	unsigned crowded;    /* how much tells that other threads want the processor of the one that waits */
	uint64_t yield_long; /* ns of a yield that tell it */
	bool telling;        /* in a callback of the program */
	char device[80];
	struct engine
		*engine[FABRIC_TRANSPORTS]; /* at the place of its provider's first transport. NULL: not needed yet */
	struct engine *own[FABRIC_TRANSPORTS]; /* the open ones */
	unsigned engines;
	struct engine_fabric *fabric[FABRIC_TRANSPORTS]; /* as engine */
	struct engine_key *key;                          /* of all of them; NULL: none */
	pid_t pmix;                                      /* the process that uses PMIx by it; 0: none */
	struct peer_connections *connections;            /* peer/links/connect.h */
	int epoll;                                       /* of engines, doors; what rdma_fd() gives */
	struct peer **peer; /* peer/links/roster.c: in the order of their indices; peers that have gone leave */
	uint32_t peers, peers_room;
	uint32_t indices;      /* given out */
	bool gone_to_bury;     /* perhaps: a peer has gone, or is not needed any more */
	struct list waiting;   /* peers that were not accepted, in the order of their coming */
	struct list lost;      /* peers to be told of */
	struct list schedules; /* collectives under way; peer/collectives/schedule.c */
	void *schedule_spare;  /* memory of schedules that have ended */
	struct list groups;    /* peer/groups/group.c */
	struct list aborts;    /* peer/groups/abort.c */
	struct list windows;   /* peer/windows/window.c */
	uint64_t progressed;   /* counts what was completed: a wait looks again when it changes */

	struct request_pool *requests; /* request.c; NULL: none yet */
	struct message_memory *memory; /* peer/messages/register.c; NULL: none yet */
	struct list limited;           /* peer/messages/limit.c: peers (peer_message.limited_node) with a rate limit */
	struct list to_read;           /* peers (peer_message.to_read_node) of which something is to be read */
	uint32_t exchange_round;       /* peer/collectives/exchange.c: of this side's calls */

	unsigned message_class;
	rdma_lost_fn *lost_fn;
	void *lost_arg;
};

void rdma_enter(rdma_context *ctx);
void rdma_leave(rdma_context *ctx);
/* Inside. One turn: engines, doors, sessions, schedules, timers. How much there was. */
int context_turn(rdma_context *ctx);
/* Inside. Turn until finished(arg) or time_now() is `until`: polls, then sleeps. 0, -ETIMEDOUT; -EDEADLK from within a
 * turn, as of done(). */
int context_wait(rdma_context *ctx, bool (*finished)(const void *arg), const void *arg, uint64_t until);
/* The end of a call that waits, by rdma_options.timeout_ms; and of one that has a time of its own, UINT64_MAX: for
 * ever. */
uint64_t context_until(const rdma_context *ctx);
uint64_t context_after(uint64_t timeout_ms);
/* The engine for a transport, made when it is first asked for. */
int context_engine(rdma_context *ctx, const struct fabric_transport *transport, struct engine **out);

/*
 * peer/links/roster.c
 */
/* Something of a peer was given back: if it has gone, it may be free when the program's call ends. */
static inline void peer_released(struct peer *peer)
{
	if (unlikely(peer->state == PEER_GONE))
		peer->ctx->gone_to_bury = true;
}
/* Inside, at the end of the program's call, when no function refers to a peer. */
void peers_bury(rdma_context *ctx);

/*
 * A group: peer/groups/group.c
 */
struct rdma_group {
	struct list node; /* of ctx->groups */
	rdma_context *ctx;
	uint32_t number; /* the same at all members, and no other group of theirs has it */
	int rank, size;
	struct peer **member; /* by rank; NULL: this program */
	bool *gone;           /* by rank */
	int lost;             /* how many; then `failed` is what its collectives answer, and why */
	char why[256];
	uint32_t sequence;         /* of its next collective */
	const char *algorithm[16]; /* by enum collective; NULL: by size */
};
/*
 * The layers. Each is a folder, which calls those below it, and is called by those below it through its row alone; NULL
 * stands for nothing. `peer_layers` has the rows from the lowest to the highest: links, messages, windows, groups,
 * collectives. Inside, all of them.
 */
struct peer_layer {
	/* A peer gets its index: 0 or -ENOMEM. */
	int (*init)(struct peer *peer);
	/* Called when the peer is freed; the highest layer first. May come without init(). */
	void (*free)(struct peer *peer);
	/* Each record of an open connection, as conn_ops.record: the messages'. */
	int (*record)(struct peer *peer, const struct wire_record *record, const void *body);
	/* A control message of a kind from first_control to last_control; the body lasts for the call. 0, or a negative
	 * errno: the peer breaks the protocol. */
	enum wire_control_kind first_control, last_control;
	int (*control)(struct peer *peer, enum wire_control_kind kind, const void *body, size_t length);
	/* As conn_ops.writable. */
	void (*writable)(struct peer *peer);
	/* The number of the next message of each class that this end expects, for a hello. */
	void (*next)(const struct peer *peer, uint64_t next[static PEER_CLASSES]);
	/* A connection is there (again): `next` is what the other end expects. False: that cannot be. */
	bool (*resumed)(struct peer *peer, const uint64_t next[static PEER_CLASSES]);
	/* The connection is gone, not the peer. */
	void (*closed)(struct peer *peer);
	/* The peer has gone, peer->why says why; its connection was closed() if it had one. Its requests end with
	 * -ECONNRESET. May be called again. */
	void (*lost)(struct peer *peer);
	/* Whether all that was sent is confirmed, or read. Else the other end is asked to confirm: check again when
	 * something came. */
	bool (*idle)(struct peer *peer);
	/* Whether the layer refers to a peer that has gone; and whether the program may still receive something of
	 * it. */
	bool (*refers)(const struct peer *peer);
	bool (*unread)(const struct peer *peer);
	/* Whether a group is being formed here, of whose members one may say `hello_group`. */
	bool (*expects)(const rdma_context *ctx, uint64_t hello_group);
	/* A group: a member was lost; collective `sequence` has failed at another member, with these words; it is about
	 * to be freed, not in a callback. */
	void (*group_lost)(struct rdma_group *group);
	void (*group_failed)(struct rdma_group *group, uint32_t sequence, int error, const char *words);
	void (*group_end)(struct rdma_group *group);
	/* In each turn, behind the engines, the highest layer first. How much there was. `arm`: a sleep may follow. */
	int (*turn)(rdma_context *ctx, uint64_t now, bool arm);
	/* When the next turn has something to do though nothing comes; TIME_NEVER. */
	uint64_t (*deadline)(const rdma_context *ctx);
	/* The context ends, the highest layer first: each connection was closed(), peers and engines are there. And
	 * behind that: peers are freed. */
	void (*end)(rdma_context *ctx);
	void (*release)(rdma_context *ctx);
};

#define PEER_LAYERS 5
#define PEER_LAYER_RECORDS 1 /* the one that has records */
extern const struct peer_layer peer_links, peer_messages, peer_windows, peer_groups, peer_collectives;
extern const struct peer_layer *const peer_layers[PEER_LAYERS];

/* For each layer that has this member, from the lowest, and from the highest. */
#define for_each_layer(layer, member)                                                                                  \
	for (const struct peer_layer *const *at_ = peer_layers, *layer; at_ < peer_layers + PEER_LAYERS; at_++)        \
		if (!(layer = *at_)->member) {                                                                         \
		} else
#define for_each_layer_down(layer, member)                                                                             \
	for (const struct peer_layer *const *at_ = peer_layers + PEER_LAYERS, *layer; at_ > peer_layers;)              \
		if (!(layer = *--at_)->member) {                                                                       \
		} else

/*
 * launch.c
 */
struct launch {
	const char *launcher; /* for people */
	int rank, size;
	char group[WIRE_PEER_NAME_MAX + 1];
	const char *meeting; /* of the environment; NULL: none is named */
	const char *nspace;  /* PMIx's name of the job; NULL: the launcher has no PMIx */
};

/* As the environment says, checked. 0; -1: rdma_fail() was called. */
int launch_read(struct launch *out);

/*
 * pmix.c: PMIx, in which each rank of a job publishes what the others read. One thread at a time; not in a child of a
 * process that uses it. Failures call rdma_fail().
 */
/* The context uses it from now on. 0; -EHOSTUNREACH: there is none here; or another -errno. */
int pmix_enter(rdma_context *ctx, const struct launch *launch);
/* The context's end. */
void pmix_leave(rdma_context *ctx);
/* Publish `data`, and wait until all ranks have published theirs. *number: of this time. Inside. 0 or -errno. */
int pmix_share(rdma_context *ctx, const struct launch *launch, const void *data, size_t length, uint64_t timeout,
	       unsigned *number);
/* What a rank has published the time of this number. Bytes, or -errno. */
int pmix_shared(const struct launch *launch, unsigned number, int rank, void *out, size_t room);

/*
 * error.c
 */
/* Returns what a failing call answers: -1, with `error` (negative) and words: as rdma_lib(3) lists them, with the
 * cause behind: "Invalid peer index: 7 was never given out"; or others, where none of them fits. */
int rdma_fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same with what librdmad logged last behind the words. */
int rdma_fail_logged(int error, const char *words);

#endif
