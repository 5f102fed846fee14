/*
 * engine.h: the caller's half. An engine is one thread's queue and connections on one fabric, with
 * the waiting that a library without a loop needs; the files kv_, gpu_ and ping are what callers see of it.
 *
 * Locking. An engine belongs to one caller's thread, and without a progress thread there is nothing to lock. With
 * one (rdmad_options.progress_thread, progress.c) the thread turns the engine while the caller is elsewhere:
 *  - A public function that touches the engine, its connections or buffers, or what their operations write, does so
 *    between engine_enter and engine_leave. Both may be nested, as in a callback, and are nothing without a thread.
 *    What is set before the handle is given out and never changes may be read outside.
 *  - The thread does nothing while a caller is inside, also while that caller sleeps in a wait.
 *  - The thread calls no callback. A function that finds the end of an operation asks engine_defers(); if so it
 *    keeps the outcome and calls engine_defer(), and the caller's next turn tells it.
 *  - A callback that may wait (kv_scan's) is called outside, and by no turn.
 * "Inside" below is what must(engine_entered(engine)) checks: between the two calls, or in the thread's own turn.
 */
#ifndef RDMAD_ENGINE_H
#define RDMAD_ENGINE_H

#include "conn/conn.h"
#include "rdmad/rdmad.h"

struct engine; /* counted: each connection that uses it holds one */
struct progress;

/* How every engine begins: what is looked at on every way. */
struct engine_head {
	struct progress *progress; /* NULL: no thread */
	bool serving;              /* the thread turns the engine */
	unsigned depth;            /* contracts: how often `owner` is inside */
	_Atomic uintptr_t owner;   /* contracts: thread_self() of the thread that is inside, or 0 */
};

/* Outcomes that the thread left to the caller: of a handle, which knows what they are. */
struct deferred {
	struct list node;                           /* linked: deliver is to be called */
	void (*deliver)(struct deferred *deferred); /* inside, in the caller's turn */
};

/* A provider, opened, that a listener and the engines of accepted clients have together. Any thread. */
struct engine_fabric {
	struct fabric *fabric;
	_Atomic unsigned holders;
};

/* Something to be done at a time, by the caller's turn. Embedded in what knows what; unlinked: not set. */
struct engine_timer {
	struct list node;
	uint64_t when;
	void (*due)(struct engine_timer *timer); /* inside; the timer is not set any more */
};

/* Sources of the key by which a program proves its identity: see key.c. */
struct engine_key_source {
	const char *file; /* of its key; NULL: the environment or the user says it */
	/* Where `file` is NULL, in place of all other files, the key as text; NULL: none. Then users of this machine
	 * need the key, too. */
	const char *line;
	bool munge;              /* MUNGE says which user it is */
	const char *server_user; /* with it: name or number of a user that servers may be of; NULL: root or this one */
};

/* Options with defaults filled in. */
struct engine_options {
	uint64_t connect_timeout, timeout, poll; /* ns; TIME_NEVER: always poll */
	uint64_t keepalive;                      /* ns without a word before the peer is asked whether it lives */
	bool away;                               /* as conn_group_attr's */
	uint32_t credits, message_size;
	uint32_t processor_message_size; /* in place of message_size where a processor moves the bytes; 0: the same */
	uint32_t transfers;   /* reads and writes of the server's memory in flight on each connection; 0: none */
	uint32_t connections; /* most of the engine; 0: many */
	uint32_t completions; /* that its queue has room for at least; 0: as its first connections need */
	const char *device;   /* the only one to be used; NULL: each */
	struct engine_key_source proof; /* what it proves who it is by */
	struct engine_key *key;         /* in place of that; held by each engine that is made with it */
	struct engine_fabric *fabric;   /* in place of one of its own */
	bool require_rdma, require_encryption, progress_thread;
	uint8_t traffic_class;
};

/*
 * progress.c
 */
int progress_create(struct engine *engine, struct progress **out);
void progress_destroy(struct progress *progress); /* joins; not inside */
void progress_abandon(struct progress *progress); /* in a child, which has not the thread: closes the descriptor */
void progress_enter(struct progress *progress);
void progress_leave(struct progress *progress);

/* Between these two the caller, which is inside, sleeps. */
void progress_unlock(struct progress *progress);
void progress_lock(struct progress *progress);

#ifdef RDMAD_CONTRACTS
static inline void engine_own(struct engine_head *head)
{
	must(!head->owner || head->owner == thread_self()); /* one thread at a time */
	head->owner = thread_self();
	head->depth++;
}

static inline void engine_disown(struct engine_head *head)
{
	must(head->depth && head->owner == thread_self());
	if (--head->depth == 0)
		head->owner = 0;
}
#else
static inline void engine_own(struct engine_head *head)
{
	(void)head;
}

static inline void engine_disown(struct engine_head *head)
{
	(void)head;
}
#endif

/* Whether the calling thread is inside; for must(). */
static inline bool engine_entered(const struct engine *engine)
{
	return ((const struct engine_head *)engine)->owner == thread_self();
}

static inline void engine_enter(struct engine *engine)
{
	struct engine_head *head = (struct engine_head *)engine;

	if (unlikely(head->progress))
		progress_enter(head->progress);
	engine_own(head);
}

static inline void engine_leave(struct engine *engine)
{
	struct engine_head *head = (struct engine_head *)engine;

	engine_disown(head);
	if (unlikely(head->progress))
		progress_leave(head->progress);
}

/* Inside. Whether this turn is the thread's, which calls no callback. */
static inline bool engine_defers(const struct engine *engine)
{
	return ((const struct engine_head *)engine)->serving;
}

/*
 * engine.c
 */
void engine_options_from(const struct rdmad_options *options, struct engine_options *out);

/* Inside. One turn without waiting: what was deferred is told, completions and events are handled. Returns how much
 * there was of them. -EDEADLK from inside a callback. */
int engine_turn(struct engine *engine);
/* Like engine_turn(), with the current time. */
int engine_turn_at(struct engine *engine, uint64_t now);
/* Inside, outside a turn. The other end of *conn has hung up (conn_hung_up()): turn until closed() has come, which sets
 * *conn to NULL. */
void engine_see_end(struct engine *engine, struct conn *const *conn);

/* Inside. Have it due at `when`, in place of when it was set for; or not at all. */
void engine_timer_set(struct engine *engine, struct engine_timer *timer, uint64_t when);
void engine_timer_cancel(struct engine *engine, struct engine_timer *timer);

/* The thread's turn, which is inside by it: calls no callback. And how many turns the caller had. */
int engine_serve(struct engine *engine);
uint64_t engine_turns(const struct engine *engine);

/* In the thread's turn: have deliver called by the caller's next turn, and the caller's descriptor readable until
 * then. */
void engine_defer(struct engine *engine, struct deferred *deferred);

/* 0, or -EDEADLK from inside a callback: for what must not be begun there. In the caller's thread. */
int engine_may_wait(const struct engine *engine);

/* Around the callbacks that a call makes itself, in no turn: what must not be begun in others must not in these. begin
 * answers what end takes. */
bool engine_callbacks_begin(struct engine *engine);
void engine_callbacks_end(struct engine *engine, bool before);

/* Inside. Turns until *done or `timeout` ns passed: 0, -ETIMEDOUT. Polls, then sleeps, as the engine's options
 * say. -EDEADLK from inside a callback. */
int engine_wait(struct engine *engine, const bool *done, uint64_t timeout);

/* As above, until *counter is another than it was, or time_now() is `until`. */
int engine_wait_change(struct engine *engine, const uint64_t *counter, uint64_t until);
/* The same, for what more threads than one work for that may be on this machine: they get this processor at each idle
 * turn. */
int engine_yield_until_change(struct engine *engine, const uint64_t *counter, uint64_t until);

/* A call that waits: what it asks for, and its end. Zero it, then set the first three. */
struct blocking {
	void *handle;
	/* Ask: 0: it was taken, and blocking_done() comes, or came; -EAGAIN: not now, but perhaps when something was
	 * completed. Anything else is the call's answer. */
	int (*submit)(struct blocking *b);
	/* Send, and turn until something of the handle's was completed: 0, -ETIMEDOUT; or why no answer can come. */
	int (*await)(void *handle, uint64_t until);
	bool taken, waited, done;
	int status; /* when done */
};

static inline void blocking_done(struct blocking *b, int status)
{
	b->done = true;
	b->status = status;
}

/* Inside. The loop of every call that waits: submits, waits, and answers b->status, or why there is none: -ETIMEDOUT;
 * -EDEADLK from inside a callback; what submit and await returned. Where b->taken and not b->done, the answer may still
 * come. */
int engine_block(struct engine *engine, struct blocking *b, uint64_t timeout);

/* Counts finished operations of all connections of the engine; a function that finishes one adds to it. */
uint64_t *engine_completed(struct engine *engine);

/* Inside. A thread that waits for that counter to change checks again, though nothing was completed; and how often that
 * was. */
void engine_rouse(struct engine *engine);
uint64_t engine_roused(const struct engine *engine);
/* What was counted last was no request of the caller's, which is not told of it. */
void engine_uncount(struct engine *engine);

/* Inside. Sleep until something comes, at the latest until `until`, without polling before. Turns once first. */
void engine_doze(struct engine *engine, uint64_t until);

/* For a loop of the caller's own. Readable when there is work, also by the time. -errno */
int engine_fd(struct engine *engine);
/* Inside. 0: the descriptor tells when there is work; 1: there was some, now handled or to be handled. */
int engine_arm(struct engine *engine);

/* Outside, and not from a callback. */
void engine_release(struct engine *engine);
/* In its place in a child of the process that made the engine: closes descriptors, see fabric_queue_abandon(). */
void engine_abandon(struct engine *engine);

/* Memory that the server may reach, of this engine. */
struct buffers *engine_buffers(struct engine *engine);

/*
 * buffers.c. Inside, but for buffers_create, buffers_destroy and value_.
 */
struct buffers *buffers_create(struct engine *engine, struct fabric_domain *domain);
void buffers_destroy(struct buffers *buffers); /* what is lent stays readable, and is released later */

/* A buffer of at least `size` bytes, registered with these rights, kept for reuse when given back. NULL: logged. */
struct landing *landing_take(struct buffers *buffers, size_t size, unsigned access);
void landing_give(struct landing *landing);
void *landing_data(struct landing *landing);
size_t landing_size(const struct landing *landing);
const struct fabric_region *landing_region(const struct landing *landing);

/* Values that callers hold: a copy, or a landing buffer's data. Given back with value_release (NULL is allowed). */
void *value_copy(const void *bytes, size_t len);
void value_release(void *value);

/* The public kv_buffer_ calls. What is registered has the rights `access` at first, and gets those for which it is
 * reached. */
int buffers_register(struct buffers *buffers, void *addr, size_t len, unsigned access);
/* The same of a device's memory, which no processor may touch from now on by this address; the descriptor stays the
 * caller's. *addr NULL: becomes a range of addresses that is nobody else's. */
int buffers_register_dmabuf(struct buffers *buffers, const struct fabric_dmabuf *dmabuf, void **addr, size_t len,
			    unsigned access);
int buffers_unregister(struct buffers *buffers, const void *addr);
int buffers_lend(struct buffers *buffers, size_t size, void **buffer);

/* Whether no processor may touch it, as it is a device's, at least in part: 1. -EFAULT, logged: it is, and not as a
 * whole in one range that is registered here. Asked where there is device_memory(). */
int buffers_device(const struct buffers *buffers, const void *addr, size_t len);

/* Make a caller's memory reachable for one request: by the registration it has, or a temporary one. */
struct reach {
	const void *addr;
	const struct fabric_region *region; /* found */
	struct fabric_region *temporary;    /* or made */
};
static inline const struct fabric_region *reach_region(const struct reach *reach)
{
	return reach->region ? reach->region : reach->temporary;
}
/* Whether it has a registration, so that it takes no time. */
bool buffers_reached(const struct buffers *buffers, const void *addr, size_t len);
int buffers_reach(struct buffers *buffers, const void *addr, size_t len, unsigned access, struct reach *out);
void buffers_unreach(struct buffers *buffers, struct reach *reach);

/*
 * device.c. Any thread.
 */

/* Memory that no processor may touch, of the process: one list, however many engines have it registered. */
extern _Atomic unsigned device_ranges;
static inline bool device_memory(void)
{
	return unlikely(atomic_load_explicit(&device_ranges, memory_order_relaxed) != 0);
}
int device_memory_add(const void *addr, size_t len); /* 0, -ENOMEM */
void device_memory_remove(const void *addr, size_t len);
/* Whether some of these bytes are of it. */
bool device_memory_has(const void *addr, size_t len);

/* 1: it is an accelerator's, and *out is its dmabuf, whose descriptor is the caller's; 0: it is not, as far as is
 * known; -EOPNOTSUPP: it is, and has none; logged. */
int device_memory_export(const void *addr, size_t len, struct fabric_dmabuf *out);

/*
 * error.c
 */

/* How many forks lie between the first process that had the library and this one: a handle belongs to the process of
 * which it has the number. */
extern unsigned client_forks;

/* 0; -EPERM: the handle is of the process that forked this one, of which there were `forks` when it was opened.
 * Said. */
int client_owned(const char *room, unsigned forks);
/* A handle that is closed. True: it is of the process that forked this one, and engine_abandon() was all that there
 * was to do. */
bool client_abandoned(struct engine *engine, unsigned forks);

/* How a public function ends, which began with log_clear_last(): a failure has words, here those of its number
 * if there are no others, and a success has none, whatever callbacks did meanwhile. */
int client_end(const char *room, const char *what, int rc);

/*
 * key.c
 */
struct engine_key;

/* The program's key, out of the file that is named, or of that of the environment, the user or the machine; with one
 * holder. *out is NULL where there is none. 0 or -errno, logged: the file that was named is not there, a file is not
 * one of a key, there is no such user, or no MUNGE. */
int engine_key_create(const struct engine_key_source *source, struct engine_key **out);
/* One holder more, or less; NULL is passed over. Any thread. */
struct engine_key *engine_key_hold(struct engine_key *key);
void engine_key_release(struct engine_key *key);
/* A key that this program has from rdmad, for one connection to a program that issues such. 0 or -ENOMEM. */
int engine_key_of_ticket(const uint8_t secret[static AUTH_SECRET], struct engine_key **out);
/* Takes the tickets that rdmad makes of this secret: of clients whose request has this `count`, and in `size` the
 * serial number. In place of what was issued for that count before. 0 or -ENOMEM. */
int engine_key_issue(struct engine_key *key, uint32_t count, const uint8_t secret[static AUTH_SECRET]);
/* The key that a client of that count proves, with the serial number 0: *room, or NULL. */
const struct auth_key *engine_key_ticket(const struct engine_key *key, uint32_t count, struct auth_key *room);
void engine_key_withdraw(struct engine_key *key); /* all that was issued */
/* The user that servers may be of, beside root and this process's; root: no other. `key` may be NULL. */
uid_t engine_key_server(const struct engine_key *key);
/* The key to prove to a server at that address, and that it must prove; NULL: none. `key` may be NULL. */
const struct auth_key *engine_key_to(const struct engine_key *key, const struct sockaddr *sa);
/* The key to have a client prove that asks this program, perhaps in *room; NULL in *out: none. Or why the client is to
 * be refused. */
enum wire_reason engine_key_from(const struct engine_key *key, const struct fabric_request *request,
				 const struct wire_request *asked, struct auth_key *room, const struct auth_key **out);
/* engine.c: that of an engine, or NULL. */
const struct engine_key *engine_key_of(const struct engine *engine);

/*
 * dial.c: the dialer: from an address to a connection, without waiting. It tries the transports that the address means
 * in turn, best first, and each address of a name. It holds the limits of time and the pauses between rounds, and says
 * at the end what each transport answered. Its user makes the connections: begin() starts one, and the user tells
 * dial_established() or dial_failed() what became of it. dial_turn() is called after either, and at dial_deadline().
 * One thread, or under the user's lock. connect.c has the form that waits.
 */
#define DIAL_FIRST (2 * TIME_S)            /* before another transport is tried: a host may swallow RDMA's packets */
#define DIAL_TARGETS (2 * ADDRESS_SOCKETS) /* of one address */

struct dial;

/* Pauses that double, in ns. */
struct pauses {
	uint64_t next, most;
};

static inline uint64_t pauses_take(struct pauses *pauses)
{
	uint64_t pause = pauses->next;

	pauses->next = MIN(2 * pause, pauses->most);
	return pause;
}

struct dial_target {
	const struct fabric_transport *transport;
	struct address_socket to;
};

struct dial_ops {
	/* Starts a connection. 0, or -errno; it may have called dial_failed(). */
	int (*begin)(struct dial *dial, const struct dial_target *target, uint64_t now);
	/* Ends the connection that was begun, if there is one: nothing is told of it any more. May be NULL. */
	void (*abandon)(struct dial *dial, const char *why);
	/* The sentence about a failure; dial->error and dial->final are set. `target` may be NULL. */
	void (*explain)(const struct dial *dial, const struct dial_target *target, const char *reason, char *out,
			size_t size);
};

/* Zero it, set the first block; then resolve, or fill in targets. */
struct dial {
	const struct dial_ops *ops;
	const char *room;           /* failures are logged for it; NULL: they are not */
	struct dial_target *target; /* the user's: DIAL_TARGETS of them where it resolves */
	uint64_t until;             /* of all attempts; TIME_NEVER: no limit */
	uint64_t first, last;       /* most ns for an attempt that others follow, and for the last */
	struct pauses pauses;       /* between rounds */

	unsigned targets, next;
	unsigned small;         /* 1 + the target whose server offers shorter values than by another way; 0: none */
	uint64_t attempt_until; /* of the one under way */
	uint64_t again;         /* none begins before */
	bool under_way;
	bool final;      /* another transport would bring the same answer */
	int error;       /* of the last attempt */
	char why[512];   /* the sentence about it */
	char before[96]; /* what another transport answered last */
	char answer[96]; /* the last answer, of `answered` */
	const struct fabric_transport *answered;
};

/* Adds the targets of an address. `share`: only what this engine has; may be NULL. 0, or -errno, logged for `room`. */
int dial_resolve(struct dial *dial, const char *room, const char *text, const struct address *address,
		 bool require_rdma, const struct engine *share);
/* Whether a target of another transport follows the one under way. */
bool dial_has_choice(const struct dial *dial);
/* Begins what is due. 0: an attempt is under way, or there is a pause; else the error: no target or no time is left. */
int dial_turn(struct dial *dial, uint64_t now);
void dial_established(struct dial *dial); /* no other limit than dial->until from here on */
void dial_failed(struct dial *dial, int error, const char *reason, bool final);
/* Starts from the first target again, after a pause. */
void dial_again(struct dial *dial, uint64_t now);
/* Ends it: the attempt under way is abandoned, and dial_turn() answers -ECANCELED. */
void dial_cancel(struct dial *dial, const char *why);
/* When dial_turn() has something to do. */
static inline uint64_t dial_deadline(const struct dial *dial)
{
	return dial->under_way ? dial->attempt_until : dial->again;
}

/*
 * connect.c
 */

/* Connect `server` for a service: chooses the transport, falls back where the address allows it, waits until
 * established. `share`: an engine to join, or NULL for a new one; *engine is held for the caller, which is inside, and
 * leaves when its handle is complete. On failure ops->closed was not called, the reason is logged. */
int client_connect(const char *server, const struct engine_options *options, struct engine *share,
		   const struct wire_request *request, const struct conn_ops *ops, void *context,
		   struct engine **engine, struct conn **conn);
/* The same; *reached is where it is. */
int client_connect_to(const char *server, const struct engine_options *options, struct engine *share,
		      const struct wire_request *request, const struct conn_ops *ops, void *context,
		      struct engine **engine, struct conn **conn, struct address_socket *reached);

/* Disconnect, unless conn is NULL, and wait until ops->closed was called (it sets *closed); what was deferred is
 * told. */
void client_disconnect(struct engine *engine, struct conn *conn, const bool *closed);
#define CLIENT_CLOSED "closed by this side"
/* For closed(): whether the end was not by client_disconnect(). Then rdmad_error() has to say why, also of an end in
 * peace. */
static inline bool client_was_ended(int error, const char *reason)
{
	return error || strcmp(reason, CLIENT_CLOSED) != 0;
}

/*
 * engine.c, for connect.c and channel/conn_listen.c
 */
/* Hold the options' fabric or, without one, open a transport's provider. To be released by each holder. */
int engine_fabric_open(const struct fabric_transport *transport, const struct engine_options *options,
		       struct engine_fabric **out);
void engine_fabric_hold(struct engine_fabric *fabric);
void engine_fabric_release(struct engine_fabric *fabric);

int engine_create(const struct fabric_transport *transport, const struct engine_options *options, struct engine **out);
/* One holder more, with a thread if its options ask for one. */
int engine_join(struct engine *engine, const struct engine_options *options);
struct conn_group *engine_group(const struct engine *engine);
bool engine_has(const struct engine *engine, const struct fabric_transport *transport);

/*
 * listen.c: where programs that listen themselves are asked: one door for each transport that an address means, with a
 * queue of its own, on which requests come out. An accepted request has its connection on another queue of the door's
 * fabric.
 */
struct door {
	const struct fabric_transport *transport;
	struct engine_fabric *fabric; /* for the engines of accepted clients */
	struct fabric_domain *domain;
	struct fabric_queue *queue;
	struct fabric_listener *listener[ADDRESS_SOCKETS];
	struct address_socket at[ADDRESS_SOCKETS]; /* of each listener; the port may be another */
	unsigned listeners;
};

struct doors {
	unsigned count;
	struct door door[FABRIC_TRANSPORTS];
	char why[400]; /* transports were left out */
};

struct doors_attr {
	const char *room;                    /* of what is logged */
	const char *url;                     /* the address, for people */
	const struct engine_options *engine; /* device, traffic_class, require_rdma */
	int epoll;                           /* tells of clients that come */
	/* A holder more of what the engines have open; NULL: each door opens its own. */
	int (*fabric)(void *arg, const struct fabric_transport *transport, struct engine_fabric **out);
	void *arg;
};

/* Listen on each transport that `address` means, with one port; port 0: address->port is then the one chosen. What is
 * no transport of this machine is left out, where the address leaves the choice. 0; -EADDRINUSE, -EADDRNOTAVAIL ...,
 * logged, and all is closed. */
int doors_open(struct doors *doors, const struct doors_attr *attr, struct address *address);
void doors_close(struct doors *doors);

/* Have `epoll` tell of `fd`. 0 or -errno, logged for `room`. */
int door_watch(const char *room, int epoll, int fd);

/* Polls the queue, whose events are for door_next(). Returns how much there was. */
int door_poll(struct door *door);
/* One event: 0: there is none. 1: there was; *out: a request for `service`, to be accepted or refused; NULL: it was
 * refused, or it was something else. */
int door_next(struct door *door, enum wire_service service, struct wire_request *request, struct fabric_request **out);

/*
 * list.c: what an rdmad has of a kind, page by page.
 */
struct list_kind {
	enum wire_service service;
	enum wire_op op;
	const char *room;   /* of what is logged */
	const char *things; /* for people */
	/* The entries of a page. 0 goes on; list_broken(), or what the caller's function answered, ends it. */
	int (*page)(void *arg, const uint8_t *page, uint32_t length);
};

int list_all(const struct list_kind *kind, const char *server, const struct rdmad_options *options, void *arg,
	     char transport[8]);
/* Logs that a page is none: -EPROTO. */
int list_broken(const struct list_kind *kind);

#endif
