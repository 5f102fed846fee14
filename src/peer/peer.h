/*
 * peer.h: the inside of rdma_lib. A context turns the engines of librdmad (client/client.h) that it needs, one for each provider; a peer is
 * a session with another program, which outlives its connection: what was not confirmed is sent again on the next one.
 *
 *   context.c      a context: options, engines, turns, waiting, the end
 *   connect.c      peers: states, who is meant, their end
 *   roster.c       peers by their indices, until nobody needs them any more
 *   listen.c, dial.c, link.c   who comes, and waits to be accepted; connecting; a connection, what is said at its begin and end
 *   session.c      connections made anew
 *   thread.c, address.c   the progress thread; by what others reach a context
 *   message*.c     messages of a peer: classes, streams, confirmation, room; short ones with the record, long ones by RDMA read
 *   inbox.c        what has come and was not received: matching with receives
 *   register.c     memory that is registered until further notice
 *   request.c      operations under way: test, wait, cancel
 *   control.c      messages of the library to itself
 *   calls.c, exchange.c   the calls that send, receive, broadcast and exchange
 *   window*.c, atomic.c   memory that peers reach: window.h
 *   group*.c, meet.c      members, ranks; how they find each other; who was lost: group.h
 *   schedule*.c    a collective as rounds of sends, receives, reductions and copies
 *   collective.c, collective_*.c, reduce.c   the collectives, their algorithms, the table by which one is chosen
 *   error.c        what a thread's last failed call says
 *
 * Locking. With a progress thread all of a context that changes is behind its lock, which a public call takes at its begin (rdma_enter) and
 * leaves at its end; a call that sleeps leaves it meanwhile, so that the thread goes on. Without a thread there is no lock. "Inside" below: between
 * the two. Callbacks of the program are called by rdma_leave(), outside.
 *
 * Nothing is freed in a callback of conn. A peer that has gone is kept until nothing refers to it, and freed when the program's call ends; its
 * index stays its own.
 */
#ifndef RDMAD_PEER_H
#define RDMAD_PEER_H

#include <pthread.h>

#include "client/client.h"
#include <rdma_lib.h>

#define PEER_EAGER_MAX 4096u        /* bytes of a message that a processor copies */
#define PEER_CLASSES 3              /* RDMA_NORMAL, RDMA_URGENT, RDMA_BULK */
#define PEER_INBOX_MIN (64u * 1024) /* bytes of short messages that a peer may have waiting here */

struct peer;
struct peer_connections;
struct progress_thread;

/* Whom a message is for, at a peer. */
enum {
	PEER_STREAM_PROGRAM,  /* rdma_send(), rdma_recv() */
	PEER_STREAM_CONTROL,  /* the library: control.c */
	PEER_STREAM_EXCHANGE, /* rdma_sequential_alltoall() */
	/* Others: a group's number << 32 | the number of its collective * SCHEDULE_LANES + a lane. */
};

/*
 * request.c
 */
struct rdma_request {
	struct list node; /* of the list in which it waits: message.c, inbox.c, schedule.c, window.c */
	rdma_context *ctx;
	struct peer *peer; /* NULL: of a collective */
	/* An inner operation: called once when it is complete, inside, in a turn or in the call that began it; whoever it is of frees it. NULL:
	 * the program's, which it tests. */
	void (*done)(struct rdma_request *request);
	void *owner; /* for done() */
	/* How to give it up. True: it was, is in no list, and done() will not be called; whoever it is of frees it. False, or NULL: it is too late,
	 * as its memory is being read or written; it completes soon. A send whose peer was told of it and does not take it, as it forgot the stream,
	 * completes, too. */
	bool (*cancel)(struct rdma_request *request);
	/* Of a call whose time is over, when it can not be cancelled: have it complete soon; as message_abandon(), which NULL stands for. */
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

/* From the context's pool, zeroed, with ctx and peer. NULL: no memory, rdma_fail() was called. Inside, all of them. */
struct rdma_request *request_new(rdma_context *ctx, struct peer *peer);
/* One of the program's, or one whose done() was called. */
void request_free(struct rdma_request *request);
/* It is in no list any more. status 0: `length` bytes. Calls done(), or wakes who waits. */
void request_complete(struct rdma_request *request, int status, size_t length);
/* With words; format NULL: none. */
void request_fail(struct rdma_request *request, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* For a call that waits: until `request` is complete or context_until(); frees it. Its length, or -1 (rdma_fail() was called). */
int64_t request_finish(struct rdma_request *request);
/* The same for one of several of a call. */
int64_t request_finish_until(struct rdma_request *request, uint64_t until);
/* The last of a context's end, when no peer, schedule or window has any: those that nobody ended are void. */
void request_pool_end(rdma_context *ctx);
/* register.c. Likewise, of what was registered; before the engines are released or after. */
void register_end(rdma_context *ctx);
/* register.c. Whether the address space has them; else the error says so. */
bool memory_ends(const void *addr, size_t len);

/*
 * message.c, inbox.c. Inside. request->peer, stream, data and length are set; a send has its class, too. They complete at once where they can.
 * A peer that has gone fails them at once, a connection that is being made anew lets them wait.
 *
 * A send completes when `data` may be used again: up to PEER_EAGER_MAX at once or when there is room at the peer; a
 * longer one when the peer has read it. A receive: its length is the room for the message, and then what came; -EMSGSIZE: the message is
 * longer, which stays, and request->length is its length.
 */
void message_send(struct rdma_request *request);
void message_recv(struct rdma_request *request);
/* Post what waits; else it leaves with the next turn. */
void message_flush(struct peer *peer);
/* The length of the next message of a stream; -EAGAIN: none has come. */
int64_t inbox_probe(struct peer *peer, uint64_t stream);
/* Of one that has gone: the program may still receive something. */
bool inbox_has_more(const struct peer *peer);
/* A stream is not used any more: what comes on it is dropped. Only a group's. From `first` up to `last`. */
void inbox_forget(struct peer *peer, uint64_t first, uint64_t last);

/* For connect.c and session.c: the parts of a peer that are of messages. */
int message_init(struct peer *peer);
/* The peer has gone (peer->why says why): completes what waits, with -ECONNRESET. What has come stays for who receives it. Behind
 * conn_close() or closed(); may be called again. */
void message_clear(struct peer *peer);
/* At the end of the context: cleared before, its connection closed() if it had one, its engine still there. */
void message_free(struct peer *peer);
int message_record(struct peer *peer, const struct wire_record *record, const void *body); /* as conn_ops.record */
void message_writable(struct peer *peer);                                                  /* as conn_ops.writable */
void message_closed(struct peer *peer); /* the connection is gone, not the peer */
/* A connection is there (again): `next` of each class is what the other end has not got. False: that can not be. */
bool message_resume(struct peer *peer, const uint64_t next[static PEER_CLASSES]);
void message_next(const struct peer *peer, uint64_t next[static PEER_CLASSES]);
/* All that was sent is confirmed, or read. Else the other end is asked to confirm: look again when something came. */
bool message_idle(struct peer *peer);
/* For request.c: the time of a call is over whose request can not be cancelled. Wait for it until what this answers, then call it again. A long
 * message that is sent is withdrawn, and complete after the second call; one that is being received completes when it is here, or withdrawn. */
uint64_t message_abandon(struct rdma_request *request);
/* In each turn, behind what came and schedules: rate limits, and reading of long messages begins. How much there was. And when
 * the next rate limit has something to do; TIME_NEVER. */
int messages_turn(rdma_context *ctx);
uint64_t messages_deadline(const rdma_context *ctx);

/*
 * control.c: short messages of the library, ordered, once. Each kind has one row with its handler.
 */
enum peer_control {
	PEER_WINDOW_SHARE = 1, /* window.h has all of them */
	PEER_WINDOW_ASK,
	PEER_WINDOW_KEY,
	PEER_WINDOW_CLOSE,
	PEER_WINDOW_CLOSED,
	PEER_WINDOW_ATOMIC,
	PEER_WINDOW_ANSWER,
	PEER_WINDOW_NOTICE,
	PEER_WINDOW_NOTICED,
	PEER_WINDOW_SWITCH,
	PEER_WINDOW_SWITCHED,
	PEER_GROUP_ADDRESS, /* group.c */
	PEER_GROUP_TABLE,
	PEER_GROUP_READY,
	PEER_GROUP_LOST,
	PEER_GROUP_SHRINK,
	PEER_GROUP_ABORT,
	PEER_CONTROLS
};

#define PEER_CONTROL_MAX (PEER_EAGER_MAX - 8) /* bytes of a body */

/* `body` is copied. -ENOMEM; -ECONNRESET: the peer has gone. */
int control_send(struct peer *peer, enum peer_control kind, const void *body, size_t length);
/* Handlers: inside; the body lasts for the call. 0, or a negative errno: the peer breaks the protocol. */
int window_control(struct peer *peer, enum peer_control kind, const void *body, size_t length);
int group_control(struct peer *peer, enum peer_control kind, const void *body, size_t length);

/*
 * A peer.
 */
enum peer_state {
	PEER_CONNECTING, /* of this side; hello was not answered */
	PEER_WAITING,    /* of the other side; not accepted yet */
	PEER_CONNECTED,
	PEER_BROKEN,  /* the connection is gone; by whom a new one is made, and until when, says session.c */
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
	struct peer_session *session; /* session.c */
	struct peer_message *message; /* message.c and inbox.c */
	struct peer_window *window;   /* window.c: what is open of and for this peer */
};

/* Who a peer is, in a failed call: "Invalid peer index: ..." or "Peer not connected: ...". NULL: rdma_fail() was called. */
struct peer *peer_find(rdma_context *ctx, int index);      /* also one that has gone, and is still needed */
struct peer *peer_connected(rdma_context *ctx, int index); /* PEER_CONNECTED or PEER_BROKEN */
/* First of all in a call that may succeed without a turn: has it ended since the last one? Then turns tell. */
void peer_look(struct peer *peer);
struct peer *peer_to_send(rdma_context *ctx, int index); /* calls.c: peer_connected() after a look */
void peer_set_state(struct peer *peer, enum peer_state state);
/* It has gone: fails what is under way with it, tells groups and windows, and the program later. */
void peer_lose(struct peer *peer, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Connect without waiting: the peer is PEER_CONNECTED or PEER_GONE when it has come to an end, and ctx->progressed is another. For
 * meshes. `address`: as rdma_connect_peer()'s with a port, or several, separated by blanks, which are tried in turn. `hello_group`:
 * what the other end knows it by, or 0; see peer_expect(). *out has its index at once. 0 or -errno. */
int peer_connect_begin(rdma_context *ctx, const char *address, uint64_t hello_group, struct peer **out);
/* Who says `hello_group` is accepted without rdma_accept_peer(): arrived() is called, inside. NULL: no more. */
void peer_expect(rdma_context *ctx, uint64_t hello_group, void (*arrived)(void *arg, struct peer *peer), void *arg);
/* Disconnect without waiting; what was sent is delivered first. */
void peer_part(struct peer *peer);
/* Listen on a free port, if this context does not listen yet. 0 or -errno, logged. */
int peer_listen(rdma_context *ctx);
/* The URLs by which others reach this context, separated by blanks, best first: the end here of the connection `via` (or NULL), then those
 * of the interfaces, bridges last; as many as there is room for. Bytes, or -errno. */
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
	struct engine *own[FABRIC_TRANSPORTS]; /* those that there are */
	unsigned engines;
	struct engine_fabric *fabric[FABRIC_TRANSPORTS]; /* as engine */
	struct peer_connections *connections;            /* connect.h */
	int epoll;                                       /* of engines, doors; what rdma_fd() gives */
	struct peer **peer; /* roster.c: in the order of their indices; those that have gone leave */
	uint32_t peers, peers_room;
	uint32_t indices;      /* given out */
	bool gone_to_bury;     /* perhaps: somebody has gone, or is not needed any more */
	struct list waiting;   /* peers that were not accepted, in the order of their coming */
	struct list lost;      /* peers to be told of */
	struct list schedules; /* collectives under way; schedule.c */
	void *schedule_spare;  /* memory of schedules that have ended */
	struct list groups;    /* group.c */
	struct list aborts;    /* group_abort.c */
	struct list windows;   /* window.c */
	uint64_t progressed;   /* counts what was completed: a wait looks again when it changes */

	struct request_pool *requests; /* request.c; NULL: none yet */
	struct message_memory *memory; /* register.c; NULL: none yet */
	struct list limited;           /* message_limit.c: peers (peer_message.limited_node) with a rate limit */
	struct list hungry;            /* peers (peer_message.hungry_node) of whom something is to be read */
	uint32_t exchange_round;       /* exchange.c: of this side's calls */

	unsigned message_class;
	rdma_lost_fn *lost_fn;
	void *lost_arg;
};

void rdma_enter(rdma_context *ctx);
void rdma_leave(rdma_context *ctx);
/* Inside. One turn: engines, doors, sessions, schedules, timers. How much there was. */
int context_turn(rdma_context *ctx);
/* Inside. Turn until finished(arg) or time_now() is `until`: polls, then sleeps. 0, -ETIMEDOUT; -EDEADLK from within a turn, as of done(). */
int context_wait(rdma_context *ctx, bool (*finished)(const void *arg), const void *arg, uint64_t until);
/* The end of a call that waits, by rdma_options.timeout_ms; and of one that has a time of its own, UINT64_MAX: for ever. */
uint64_t context_until(const rdma_context *ctx);
uint64_t context_after(uint64_t timeout_ms);
/* The engine for a transport, made when it is first asked for. */
int context_engine(rdma_context *ctx, const struct fabric_transport *transport, struct engine **out);

/*
 * roster.c
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
 * group.c
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
/* A peer has gone: its groups learn it, and their members. And whether a group still has it. */
void group_peer_lost(struct peer *peer);
bool group_has_peer(const struct peer *peer);
/* Whether a group is being formed here, of whose members one may say `hello_group`. */
bool group_forms(const rdma_context *ctx, uint64_t hello_group);
/* A collective is about to begin: a member that has ended is looked for, and members that left in peace are lost for it. And one cannot be completed without a member that has gone: all
 * others learn it. */
void group_look_left(struct rdma_group *group);
void group_member_missed(struct rdma_group *group, int rank);
/* group_abort.c: what fails at one member fails at all who are not done with it. This member's part of collective `sequence` has failed: tell
 * the others. And whether the next one, by group->sequence, has failed at another member: its error and *why, valid until the next turn; 0. */
void group_abort_say(struct rdma_group *group, uint32_t sequence, int error, const char *why);
int group_aborted(struct rdma_group *group, const char **why);
/* The context ends: groups that the program did not free are, too. */
void group_context_end(rdma_context *ctx);

/*
 * schedule.c: see schedule.h. A collective that was begun is a request whose `peer` is NULL. Inside, all of them.
 */
/* A member was lost: collectives of the group that are under way fail, in the next turn. */
void schedule_group_lost(struct rdma_group *group);
/* Collective `sequence` has failed at another member: if it is under way it fails in the next turn, with these words. */
void schedule_group_abort(struct rdma_group *group, uint32_t sequence, int error, const char *words);
/* The group is about to be freed: those that are under way fail, and do not look at it any more. Not in a callback. */
void schedule_group_end(struct rdma_group *group);
/* Continues the collectives for which something has completed; after the engines in each turn. How many. */
int schedule_turn(rdma_context *ctx);
/* The context ends, and all requests of its peers have: gives the memory back. */
void schedule_context_end(rdma_context *ctx);

/*
 * window.c. Inside.
 */
void window_peer_lost(struct peer *peer);
/* Of one that is lost: the program still has handles. And it is freed. */
bool window_has_peer(const struct peer *peer);
void window_peer_free(struct peer *peer);
/* A connection is there again, messages go. */
void window_peer_resumed(struct peer *peer);
void window_writable(struct peer *peer); /* as conn_ops.writable, behind message_writable() */
/* At the end of the context: each connection was closed(), the engines are still there. */
void window_context_end(rdma_context *ctx);

/*
 * error.c
 */
/* What the call that is failing answers: -1, with `error` (negative) and words: those that rdma_lib(3) lists, with the cause behind: "Invalid
 * peer index: 7 was never given out"; or others, where none of them fits. */
int rdma_fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same with what librdmad logged last behind the words. */
int rdma_fail_logged(int error, const char *words);

#endif
