/*
 * connect.h: what the files of a peer's connections share.
 *
 *   listen.c    doors, pending connections, sessions that wait to be accepted
 *   dial.c      connecting: what engine/dial.c needs to know of peers
 *   address.c   by what others reach a context
 *   link.c      a connection: hello, bye, and whose its records are
 *   connect.c   peers: their states, their end, and the public calls
 *   roster.c    peers by their indices
 *   crossing.c  two programs that connect to each other
 *   thread.c    the progress thread
 *   session.c   a connection that broke is made anew, and whom the time has come for
 */
#ifndef RDMAD_PEER_LINKS_CONNECT_H
#define RDMAD_PEER_LINKS_CONNECT_H

#include "peer/peer.h"

#define PEER_GUESTS 16                    /* connections without a hello, or refused and closing */
#define PEER_GUEST_PATIENCE (5 * TIME_S)  /* for a hello, and for taking a refusal */
#define PEER_GUEST_GIVES_WAY (TIME_S / 4) /* for its hello, before it may have to give way to another */
#define PEER_FAREWELL (1 * TIME_S)        /* for what was sent, and for the answer to a bye, at the end of all */
#define PEER_GRAVES 64                    /* that have gone last, of whom the reason is known */

enum link_state {
	LINK_CONNECTING, /* of this side: not established */
	LINK_ASKING,     /* of this side: said hello */
	LINK_SILENT,     /* of the other side: has not said hello */
	LINK_ASKED,      /* of the other side: said hello, was not answered */
	LINK_OPEN,
	LINK_OVER, /* nothing is expected of it but its end: refused, replaced, or a bye was said */
};

/* One connection, from its begin until conn says closed(); its peer outlives it. */
struct peer_link {
	struct list node; /* of ctx->connections->links */
	rdma_context *ctx;
	struct peer *peer; /* NULL: a pending connection, or one without a peer any more */
	struct conn *conn;
	struct engine *engine;
	const struct fabric_transport *transport;
	enum link_state state;
	struct pending_entry pending; /* among the guests */
	struct wire_peer_hello hello; /* LINK_ASKED */
	bool say_bye, bye_answer;     /* there was no room to */
};

struct peer_session {
	struct peer *peer;
	struct list node; /* of ctx->connections->sessions, while it has something to do by itself; else unlinked */
	uint64_t id, group;
	uint32_t ticket; /* a group's number, whose ticket is proved in place of this program's key; 0: none is */
	uint8_t secret[WIRE_PEER_SECRET];
	uint32_t their_reconnect_ms;
	bool dials;                      /* this side connects */
	bool greeted;                    /* hello was answered once: the session exists at both ends */
	bool bye_heard;                  /* or its answer */
	bool parts;                      /* peer_part() */
	bool waits;                      /* PEER_WAITING: WIRE_PEER_WAITS was said */
	uint64_t other;                  /* the program at the other end, by its number; 0: not known yet */
	uint8_t token[WIRE_PEER_SECRET]; /* of WIRE_PEER_WAITS, that was said or came */
	struct dial dial;
	struct dial_target target[DIAL_TARGETS];
	bool given_up;         /* the server took the connection, and ended it before it answered */
	uint64_t broken_until; /* PEER_BROKEN: its end; of one that parts: of the step */
	char broken_why[256];
};

/* Compares in a time that does not depend on them: a peer that guesses does not learn how much of it was right. */
static inline bool secret_same(const uint8_t a[static WIRE_PEER_SECRET], const uint8_t b[static WIRE_PEER_SECRET])
{
	volatile uint8_t differs = 0;

	for (unsigned i = 0; i < WIRE_PEER_SECRET; i++)
		differs |= a[i] ^ b[i];
	return !differs;
}

/* A tombstone: the peer has gone and was freed. */
struct peer_grave {
	int index;
	char *words; /* owned; NULL: it is free */
};

struct peer_expected {
	struct list node;
	uint64_t group;
	void (*arrived)(void *arg, struct peer *peer);
	void *arg;
};

/* A context's part that concerns connections alone. */
struct peer_connections {
	uint64_t number; /* of this program, by chance */
	struct doors doors;
	struct address at; /* that it listens on */
	int port;          /* the same; 0: none, or a path */
	char url[300];     /* what it listens on, for people */
	char ip[256];      /* a client's own address; "": any */
	struct address_socket from[ADDRESS_SOCKETS];
	int froms;
	struct list links;    /* oldest first */
	struct list sessions; /* peers with something to do: they connect, are broken, or leave */
	struct list expected;
	struct pending guests; /* also links that are over, until the other end has gone */
	uint64_t doors_looked; /* when they were looked at; 0: they are to be */
	uint32_t held;         /* peers that count for max_peers: all but the waiting ones */
	struct peer_grave grave[PEER_GRAVES];
	uint32_t graves; /* of all that were there */
};

/* To look at a door is a system call: now and then, but before a sleep, and as long as there is something. */
#define DOORS_EVERY TIME_MS

static inline bool doors_may_wait(const struct peer_connections *c, uint64_t now)
{
	return now - c->doors_looked < DOORS_EVERY;
}

/* Nothing pending, no session with something to do, no peer expected, and nothing to look at. */
static inline bool connections_are_quiet(const struct peer_connections *c, uint64_t now)
{
	return !c->guests.count && list_empty(&c->sessions) && list_empty(&c->expected) && doors_may_wait(c, now);
}

/*
 * context.c
 */
/* A holder more of what the engines and the doors of a provider have together; as doors_attr.fabric. */
int context_fabric(void *ctx, const struct fabric_transport *transport, struct engine_fabric **out);
void context_engine_options(const rdma_context *ctx, struct engine_options *out);

/* For the thread, outside and with the lock: turn once or twice. Whether there is nothing more to do until `deadline`,
 * or until the descriptor tells. */
bool context_serve(rdma_context *ctx, uint64_t *deadline);

/*
 * thread.c
 */
int thread_create(rdma_context *ctx);
void thread_destroy(rdma_context *ctx); /* outside */
void thread_enter(struct progress_thread *t);
void thread_leave(struct progress_thread *t);
/* Between these two the caller, which is inside, sleeps. */
void thread_unlock(struct progress_thread *t);
void thread_lock(struct progress_thread *t);
/* The descriptor that the program's loop sleeps on. */
int thread_fd(const struct progress_thread *t);

/*
 * error.c
 */
struct error_kept {
	int error;
	char text[512];
};
/* A callback's calls are none of the call that is failing. */
void error_keep(struct error_kept *out);
void error_restore(const struct error_kept *kept);

/*
 * listen.c
 */
int connections_create(rdma_context *ctx);
void connections_close(rdma_context *ctx);
/* All connections are closed, the engines are still there. */
void connections_destroy(rdma_context *ctx);
int listen_open(rdma_context *ctx, const char *ip, int port);
/* Connections that come, and hellos. How much there was. */
int listen_turn(rdma_context *ctx, uint64_t now, bool arm);
/* -EUSERS: there are max_peers; rdma_fail() was called. */
int listen_room(rdma_context *ctx);

/*
 * dial.c
 */
/* A client's own address. 0; else rdma_fail() was called. */
int dial_from(rdma_context *ctx, const char *ip);
extern const struct dial_ops peer_dial_ops;
/* Targets for the peer's dialer: an address, or several that are separated by blanks. 0, or -errno, logged. */
int peer_dial(struct peer *peer, const char *address, int port);

/*
 * link.c
 */
extern const struct conn_ops link_ops;
struct peer_link *link_new(rdma_context *ctx, struct engine *engine, const struct fabric_transport *transport);
void link_free(struct peer_link *link); /* without a connection */
/* Makes the link a guest, of which there are few, from here on, or anew; and ends that. */
void link_enter_guests(struct peer_link *link);
void link_leave_guests(struct peer_link *link);
/* Say hello, or answer one: the link is a peer's. -ENOTCONN: it is ending. */
int link_say_hello(struct peer_link *link, unsigned flags, unsigned reply);
/* Takes the link's peer away; it is closed when the other end has gone, or after a while. */
void link_over(struct peer_link *link);
/* The same in words. */
void link_refuse(struct peer_link *link, enum wire_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void link_say_bye(struct peer_link *link, bool answer);
void link_close(struct peer_link *link, int error, const char *why);
/* NULL: it has no connection. */
struct peer_link *peer_link_of(const struct peer *peer);
/* How guests are closed. */
extern const struct pending_attr link_guests;

/*
 * connect.c
 */
/* NULL: no memory. It has no index yet, and is PEER_CONNECTING. */
struct peer *peer_new(rdma_context *ctx);
/* One without an index, or at the end of all. */
void peer_free(struct peer *peer);
void peer_set_name(struct peer *peer);
/* Both have said hello on its connection. 0; -EPROTO: it is lost. */
int peer_begin(struct peer *peer, const struct wire_peer_hello *hello);
/* One that waited is accepted. Else -errno, and it is no more. */
int peer_welcome(struct peer *peer);
/* Hello was answered. 0; -EPROTO */
int peer_answered(struct peer *peer, const struct wire_peer_hello *hello);
/* peer_lose(), and the connection stays as it is. */
void peer_go(struct peer *peer, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The layers hear that its connection is gone. */
void peer_closed(struct peer *peer);
/* Its connection has ended. `final`: so would others. */
void peer_disconnected(struct peer *peer, int error, const char *reason, bool final);
/* In each turn, of one for whom peer_part() was called. */
void peer_parts(struct peer *peer, uint64_t now);
/* For a context that ends. */
void peers_say_goodbye(rdma_context *ctx);

/*
 * roster.c
 */
/* An index, and what it needs for messages. -ENOMEM. */
int peer_number(struct peer *peer);
/* NULL: none is there by that index. And why one that was there is not: "(NAME): REASON". */
struct peer *peer_at(const rdma_context *ctx, int index);
const char *peer_grave(const rdma_context *ctx, int index);
void roster_free(rdma_context *ctx);

/*
 * crossing.c
 */
/* Ends a waiting peer; its connection is left. */
struct peer_link *waiting_leave(struct peer *waiting);
/* In each turn, of one that this side connects to, and that has not accepted. True: it is lost. */
bool crossing_look(struct peer *peer);
/* The peer says that of a session that waits here the connection with this token is to be used. */
void crossing_use(struct peer *peer, const uint8_t token[static WIRE_PEER_SECRET]);

/*
 * session.c
 */
int session_create(struct peer *peer);
void session_destroy(struct peer *peer);
/* Adds a session that has something to do by itself: it connects, or is broken. */
void session_watch(struct peer *peer);
void session_rest(struct peer *peer);
/* Whether a connection that broke is made anew. */
bool session_resumes(const struct peer *peer);
void session_broken(struct peer *peer, const char *reason);
/* The server does not want it, in these words. */
void session_refused(struct peer *peer, int error, const char *words);
/* A pending connection says that it is of a session. */
void session_come_back(struct peer_link *link);

#endif
