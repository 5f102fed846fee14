/*
 * client.h: the caller's half. An engine is one thread's queue and connections on one fabric, with
 * the waiting that a library without a loop needs; kv.c and ping.c are what callers see of it.
 *
 * Locking. An engine belongs to one caller's thread, and without a progress thread there is nothing to lock. With
 * one (rdmad_options.progress_thread, progress.c) the thread turns the engine while the caller is elsewhere:
 *  - A public function that touches the engine, its connections or buffers, or what their operations write, does so
 *    between engine_enter and engine_leave. Both may be nested, as in a callback, and are nothing without a thread. What is set
 *    before the handle is given out and never changes may be read outside.
 *  - The thread does nothing while a caller is inside, also while he sleeps in engine_wait.
 *  - The thread calls nobody's callback. Who finds the end of an operation asks engine_defers(); if so he keeps
 *    the outcome and calls engine_defer(), and the caller's next turn tells it.
 *  - A callback that may wait (kv_scan's) is called outside, and by no turn.
 */
#ifndef RDMAD_CLIENT_H
#define RDMAD_CLIENT_H

#include "conn/conn.h"
#include "rdmad/rdmad.h"

struct engine; /* counted: each connection that uses it holds one */
struct progress;

/* How every engine begins: what is looked at on every way. */
struct engine_head {
	struct progress *progress; /* NULL: no thread */
	bool serving;              /* the thread turns the engine */
};

/* Outcomes that the thread left to the caller: of a handle, which knows what they are. */
struct deferred {
	struct list node; /* linked: deliver is to be called */
	void (*deliver)(struct deferred *deferred);
};

/* Options with defaults filled in. */
struct engine_options {
	uint64_t connect_timeout, timeout, poll; /* ns; TIME_NEVER: always poll */
	uint32_t credits, message_size;
	uint32_t transfers; /* reads and writes of the server's memory in flight on each connection; 0: none */
	bool require_rdma, progress_thread;
};

/*
 * progress.c
 */
int progress_create(struct engine *engine, struct progress **out);
void progress_destroy(struct progress *progress); /* joins; not inside */
void progress_enter(struct progress *progress);
void progress_leave(struct progress *progress);

/* Between these two the caller, who is inside, sleeps. */
void progress_unlock(struct progress *progress);
void progress_lock(struct progress *progress);

static inline void engine_enter(struct engine *engine)
{
	struct progress *progress = ((struct engine_head *)engine)->progress;

	if (unlikely(progress))
		progress_enter(progress);
}

static inline void engine_leave(struct engine *engine)
{
	struct progress *progress = ((struct engine_head *)engine)->progress;

	if (unlikely(progress))
		progress_leave(progress);
}

static inline bool engine_defers(const struct engine *engine)
{
	return ((const struct engine_head *)engine)->serving;
}

/*
 * engine.c
 */
void engine_options_from(const struct rdmad_options *options, struct engine_options *out);

/* One turn without waiting: what was deferred is told, completions and events are handled. Returns how much there
 * was of them. -EDEADLK from inside a callback. */
int engine_turn(struct engine *engine);

/* The thread's turn: tells nobody. And how many turns the caller had. */
int engine_serve(struct engine *engine);
uint64_t engine_turns(const struct engine *engine);

/* Have deliver called by the caller's next turn, and his descriptor readable until then. */
void engine_defer(struct engine *engine, struct deferred *deferred);

/* 0, or -EDEADLK from inside a callback: for what must not be begun there. */
int engine_may_wait(const struct engine *engine);

/* Turns until *done or `timeout` ns passed: 0, -ETIMEDOUT. Polls, then sleeps, as the engine's options
 * say. -EDEADLK from inside a callback. */
int engine_wait(struct engine *engine, const bool *done, uint64_t timeout);

/* As above, until *counter is another than it was. */
int engine_wait_change(struct engine *engine, const uint64_t *counter, uint64_t timeout);

/* Counts finished operations of all connections of the engine; who finishes one adds to it. */
uint64_t *engine_completed(struct engine *engine);

/* Sleep until something comes, at the latest until `until`, without polling before. Turns once first. */
void engine_doze(struct engine *engine, uint64_t until);

int engine_fd(const struct engine *engine);
/* 0: the descriptor tells when there is work; 1: there was some, now handled or to be handled. */
int engine_arm(struct engine *engine);

void engine_release(struct engine *engine);

/* Memory that the server may reach, of this engine. */
struct buffers *engine_buffers(struct engine *engine);

/*
 * buffers.c
 */
struct buffers *buffers_create(struct engine *engine, struct fabric_domain *domain);
void buffers_destroy(struct buffers *buffers); /* what is lent stays readable, and is released later */

/* A registered buffer of at least `size` bytes, kept for reuse when given back. NULL: logged. */
struct landing *landing_take(struct buffers *buffers, size_t size);
void landing_give(struct landing *landing);
void *landing_data(struct landing *landing);
size_t landing_size(const struct landing *landing);
const struct fabric_region *landing_region(const struct landing *landing);

/* Values that callers hold: a copy, or a landing buffer's data. Given back with value_release (NULL is allowed). */
void *value_copy(const void *bytes, size_t len);
void value_release(void *value);

/* The public kv_buffer_ calls. */
int buffers_register(struct buffers *buffers, void *addr, size_t len);
int buffers_unregister(struct buffers *buffers, const void *addr);
int buffers_lend(struct buffers *buffers, size_t size, void **buffer);

/* Make a caller's memory reachable for one request: by the registration it has, or a temporary one. */
struct reach {
	const void *addr;
	const struct fabric_region *region; /* found */
	struct fabric_region *temporary;    /* or made */
};
int memory_reach(struct buffers *buffers, const void *addr, size_t len, unsigned access, struct reach *out);
void memory_unreach(struct buffers *buffers, struct reach *reach);

/*
 * connect.c
 */

/* Connect `server` for a service: chooses the transport, falls back where the address allows it, waits until
 * established. `share`: an engine to join, or NULL for a new one; *engine is held for the caller, who is inside, and leaves
 * when his handle is complete. On failure ops->closed was not called, the reason is logged. */
int client_connect(const char *server, const struct engine_options *options, struct engine *share,
		   const struct wire_request *request, const struct conn_ops *ops, void *context,
		   struct engine **engine, struct conn **conn);

/* Disconnect, unless conn is NULL, and wait until ops->closed was called (it sets *closed); what was deferred is told. */
void client_disconnect(struct engine *engine, struct conn *conn, const bool *closed);

/*
 * engine.c, for connect.c
 */
int engine_create(const struct fabric_transport *transport, const struct engine_options *options, struct engine **out);
/* One holder more, with a thread if he asks for one. */
int engine_join(struct engine *engine, const struct engine_options *options);
struct conn_group *engine_group(const struct engine *engine);
bool engine_has(const struct engine *engine, const struct fabric_transport *transport);

#endif
