/*
 * gate.c: the commit gate: an answer leaves when everything that it tells of is on disk. Requests are carried out
 * meanwhile; only answers wait, so a slow disk delays the ones that need it and no others. What an answer tells of is a
 * number, that of the last change in it: of a write its own, of a read that of the value's version, of a miss that of
 * the last deletion where the key would be.
 *
 * Answers that wait are copies, in chunks that the thread keeps, a queue for each connection: so one that takes no
 * answers holds up no other one. A number may be lower than that before it in the queue, and then waits with it, for
 * one group of the log at most. Large values are not copied, they stay pinned: see rendezvous.c. Nothing is carried out
 * a second time, or readers of a key that others write would never get an answer.
 *
 * A client has a limit of what may wait for it. Beyond that its next request is not carried out but comes again.
 */
#include "service/kv/kv.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define CHUNK (8 * KIB)
#define CHUNKS_MAX 8  /* of a client */
#define SPARES_MAX 64 /* kept by a thread */
#define READS_MAX 16  /* transfers of a client that wait */

struct kv_chunk {
	struct kv_chunk *next;
	uint32_t begin, end; /* of what is used in `bytes` */
	_Alignas(8) char bytes[];
};
#define CHUNK_ROOM ((uint32_t)(CHUNK - sizeof(struct kv_chunk)))

struct waiting {
	uint64_t tells;
	uint64_t since; /* when the request was taken up; 0: it does not count */
	struct wire_record record;
};
#define WAITING_SIZE(body) ((uint32_t)sizeof(struct waiting) + WIRE_PAD(body))
_Static_assert(WAITING_SIZE(KV_GATE_BODY) <= CHUNK_ROOM, "any answer that waits fits a chunk");

static struct kv_log *log_of(const struct kv_thread *thread)
{
	return ((const struct kv_shared *)thread->part.shared)->log;
}

/*
 * What is asked before an answer.
 */

bool kv_gate_waits(struct kv_agent *agent, uint64_t tells)
{
	struct kv_thread *thread = agent->thread;
	uint64_t durable = kv_log_durable(log_of(thread));

	if (thread->committed != UINT64_MAX)
		thread->committed = durable;
	return tells > durable;
}

/* When the log has failed, walks and figures go on: writes do not, so that there is nothing to wait for any more. */
uint64_t kv_gate_all(const struct kv_agent *agent)
{
	return kv_log_failed(log_of(agent->thread)) ? 0 : store_lsn(agent->thread->store);
}

int kv_gate_admit(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, bool writes)
{
	int error = writes ? kv_gate_refused(agent->thread) : 0;
	struct wire_record plain = *request;

	if (request->flags & WIRE_DURABLE && !kv_log_keeps(log_of(agent->thread)))
		error = -EOPNOTSUPP;
	if (error != 0) {
		plain.flags &= (uint8_t)~WIRE_DURABLE; /* nothing was done that could be on disk */
		return kv_answer_status(conn, agent, &plain, wire_status_of(error), 0, 0);
	}
	if (!(agent->beside & KV_BESIDE_GATE))
		return 1;
	conn_wait_writable(conn);
	return -EAGAIN;
}

/*
 * Chunks.
 */

static struct kv_chunk *chunk_take(struct kv_thread *thread)
{
	struct kv_chunk *chunk = thread->free_chunks;

	if (chunk) {
		thread->free_chunks = chunk->next;
		thread->spare_chunks--;
	} else {
		chunk = malloc(CHUNK);
	}
	if (chunk)
		*chunk = (struct kv_chunk){.next = NULL};
	return chunk;
}

/* The first goes, as all in it has left. */
static void chunk_drop(struct kv_agent *agent)
{
	struct kv_thread *thread = agent->thread;
	struct kv_chunk *chunk = agent->first;

	agent->first = chunk->next;
	if (!agent->first)
		agent->last = NULL;
	agent->chunks--;
	if (thread->spare_chunks == SPARES_MAX) {
		free(chunk);
		return;
	}
	chunk->next = thread->free_chunks;
	thread->free_chunks = chunk;
	thread->spare_chunks++;
}

/* Whether any answer finds room. */
static void look_at_room(struct kv_agent *agent)
{
	bool fits = agent->last && CHUNK_ROOM - agent->last->end >= WAITING_SIZE(KV_GATE_BODY);
	bool room = (fits || agent->chunks < CHUNKS_MAX) && agent->reads < READS_MAX;

	agent->beside &= ~(unsigned)KV_BESIDE_GATE;
	agent->beside |= room ? 0 : KV_BESIDE_GATE;
}

/*
 * Waiting.
 */

/* No other thread writes it. */
static void count_held(struct kv_thread *thread, uint64_t change)
{
	uint64_t held = atomic_load_explicit(&thread->held, memory_order_relaxed);

	atomic_store_explicit(&thread->held, held + change, memory_order_relaxed);
}

/* Nothing of the thread waits for the log. */
static bool none_waits(const struct kv_thread *thread)
{
	return list_empty(&thread->waiting) && list_empty(&thread->waiters);
}

/* Called before the first begins to wait. */
static void thread_waits(struct kv_thread *thread)
{
	if (!none_waits(thread))
		return;
	service_part_join(&thread->part);
	thread->part.thread->busy++; /* the log's thread works for it */
}

/* Called behind the last one. */
static void thread_waits_no_more(struct kv_thread *thread)
{
	if (!none_waits(thread))
		return;
	service_part_leave(&thread->part);
	thread->part.thread->busy--;
}

static void agent_waits(struct conn *conn, struct kv_agent *agent, uint64_t tells)
{
	struct kv_thread *thread = agent->thread;

	agent->conn = conn;
	thread_waits(thread);
	if (!list_linked(&agent->waiting))
		list_add_tail(&thread->waiting, &agent->waiting);
	thread->wants = MAX(thread->wants, tells);
	thread->look |= kv_log_failed(log_of(thread)); /* it is told once */
	agent->held_answers++;
	count_held(thread, 1);
	kv_agent_count(agent, KV_COUNT_HELD);
	look_at_room(agent);
}

static void agent_waits_no_more(struct kv_agent *agent)
{
	struct kv_thread *thread = agent->thread;

	if (!list_linked(&agent->waiting))
		return;
	list_del(&agent->waiting);
	thread_waits_no_more(thread);
}

void kv_gate_wait(struct kv_thread *thread, struct kv_waiter *waiter, uint64_t tells)
{
	thread_waits(thread);
	if (!list_linked(&waiter->node))
		list_add_tail(&thread->waiters, &waiter->node);
	thread->wants = MAX(thread->wants, tells);
	thread->look = true; /* by now it may be on disk */
}

void kv_gate_wait_end(struct kv_thread *thread, struct kv_waiter *waiter)
{
	if (!list_linked(&waiter->node))
		return;
	list_del(&waiter->node);
	thread_waits_no_more(thread);
}

uint64_t kv_gate_durable(struct kv_thread *thread)
{
	if (thread->committed != UINT64_MAX)
		thread->committed = kv_log_durable(log_of(thread));
	return thread->committed;
}

void kv_gate_hold(struct conn *conn, struct kv_agent *agent, const struct wire_record *reply, uint64_t tells,
		  bool counts)
{
	uint32_t size = WAITING_SIZE(reply->length);
	struct kv_chunk *chunk = agent->last;
	struct waiting *w;

	must(reply->length <= KV_GATE_BODY);
	if (!chunk || CHUNK_ROOM - chunk->end < size) {
		chunk = chunk_take(agent->thread);
		if (!chunk) {
			conn_close(conn, -ENOMEM, "no memory for an answer that waits for the log");
			return;
		}
		*(agent->last ? &agent->last->next : &agent->first) = chunk;
		agent->last = chunk;
		agent->chunks++;
	}
	w = (void *)(chunk->bytes + chunk->end);
	chunk->end += size;
	w->tells = tells;
	w->since = counts ? agent->since ? agent->since : kv_now(agent->thread) : 0;
	if (counts)
		kv_late(agent, reply);
	agent->since = 0;
	w->record = *reply;
	memcpy(w + 1, reply + 1, reply->length);
	agent_waits(conn, agent, tells);
}

void kv_gate_join(struct conn *conn, struct kv_agent *agent, uint64_t tells)
{
	agent->reads++;
	agent->thread->look = true; /* by now it may be on disk */
	agent_waits(conn, agent, tells);
}

/* The part is active, as the request is to be tried again in any case: it may be memory of others that is in the
 * way. */
void kv_gate_wait_ring(struct kv_agent *agent)
{
	struct kv_thread *thread = agent->thread;

	if (!thread->waits_for_ring)
		thread->ring_seen = kv_log_taken(log_of(thread));
	thread->waits_for_ring = true;
	kv_log_want(log_of(thread), 0);
}

/*
 * Leaving.
 */

/* Sends as many answers as may leave and find room. A write that will never be on disk is no success. */
static unsigned answers_leave(struct conn *conn, struct kv_agent *agent, uint64_t durable, bool failed)
{
	unsigned n = 0;

	for (; agent->first; n++) {
		struct kv_chunk *chunk = agent->first;
		const struct waiting *w = (void *)(chunk->bytes + chunk->begin);
		struct wire_record *record;
		bool lost;

		if (w->tells > durable && !failed)
			break;
		record = conn_reserve(conn, w->record.length, NULL);
		if (!record)
			break;
		lost = w->tells > durable;
		*record = w->record;
		if (lost)
			record->status = WIRE_READ_ONLY;
		else
			memcpy(record + 1, w + 1, w->record.length);
		conn_commit(conn, record, lost ? 0 : w->record.length);
		if (w->since)
			kv_took(agent, &w->record, w->since);
		chunk->begin += WAITING_SIZE(w->record.length);
		if (chunk->begin == chunk->end)
			chunk_drop(agent);
	}
	return n;
}

static unsigned agent_leaves(struct kv_agent *agent)
{
	const struct kv_log *log = log_of(agent->thread);
	bool failed = kv_log_failed(log); /* first: a number that comes later is not to be taken for a failure */
	uint64_t durable = kv_log_durable(log);
	struct conn *conn = agent->conn;
	unsigned n;

	n = answers_leave(conn, agent, durable, failed);
	n += kv_rendezvous_committed(conn, agent, durable, failed);
	agent->held_answers -= n;
	count_held(agent->thread, -(uint64_t)n);
	look_at_room(agent);
	if (!agent->first && list_empty(&agent->uncommitted))
		agent_waits_no_more(agent);
	if (!(agent->beside & KV_BESIDE_GATE))
		kv_rendezvous_writable(conn);
	return n;
}

void kv_gate_writable(struct conn *conn)
{
	struct kv_agent *agent = conn_context(conn);

	if (list_linked(&agent->waiting))
		agent_leaves(agent);
	else
		kv_rendezvous_writable(conn);
	kv_watch_writable(agent);
}

/* All whose time has come; each once. */
static unsigned thread_leaves(struct kv_thread *thread)
{
	struct list *pos, *next;
	unsigned n = 0;

	list_for_each_safe (pos, next, &thread->waiting) {
		struct kv_agent *agent = container_of(pos, struct kv_agent, waiting);
		unsigned left = agent_leaves(agent);

		if (left)
			conn_flush(agent->conn);
		n += left;
	}
	list_for_each_safe (pos, next, &thread->waiters) {
		struct kv_waiter *waiter = container_of(pos, struct kv_waiter, node);

		waiter->look(waiter, thread->seen, thread->seen_failed);
		n++;
	}
	return n;
}

/* Whether the log got on since all were looked at. */
static bool log_got_on(const struct kv_thread *thread)
{
	const struct kv_log *log = log_of(thread);

	return thread->look || kv_log_durable(log) != thread->seen || kv_log_failed(log) != thread->seen_failed;
}

static bool ring_got_on(const struct kv_thread *thread)
{
	return thread->waits_for_ring && kv_log_taken(log_of(thread)) != thread->ring_seen;
}

static int gate_turn(struct kv_thread *thread)
{
	struct kv_log *log = log_of(thread);

	if (none_waits(thread))
		return 0;
	if (thread->wants) { /* once for all of a turn: they are a group */
		kv_log_want(log, thread->wants);
		thread->wants = 0;
	}
	if (!log_got_on(thread))
		return 0;
	thread->look = false;
	thread->seen_failed = kv_log_failed(log);
	thread->seen = kv_log_durable(log);
	return (int)thread_leaves(thread);
}

/*
 * The thread.
 */

int kv_gate_init(struct kv_thread *thread)
{
	struct kv_log *log = log_of(thread);

	thread->committed = UINT64_MAX;
	list_init(&thread->waiting);
	list_init(&thread->waiters);
	list_init(&thread->node);
	thread->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (thread->event < 0)
		return log_fail(-errno, "kv", "cannot make an event for the log and for changes of keys: %m");
	if (!kv_log_keeps(log))
		return 0;
	if (kv_log_gates(log))
		thread->committed = kv_log_durable(log);
	kv_log_join(log, thread);
	return 0;
}

void kv_gate_clear(struct kv_thread *thread)
{
	must(none_waits(thread));
	if (kv_log_keeps(log_of(thread)))
		kv_log_leave(log_of(thread), thread);
	close(thread->event);
	while (thread->free_chunks) {
		struct kv_chunk *chunk = thread->free_chunks;

		thread->free_chunks = chunk->next;
		free(chunk);
	}
}

void kv_gate_close(struct kv_agent *agent)
{
	while (agent->first)
		chunk_drop(agent);
	count_held(agent->thread, -(uint64_t)agent->held_answers);
	agent_waits_no_more(agent);
}

int kv_thread_fd(const struct service_part *part)
{
	return container_of(part, const struct kv_thread, part)->event;
}

/* Takes the wake-up: the part's turn finds what there is to do. */
void kv_thread_readable(struct service_part *part)
{
	uint64_t count;

	if (read(container_of(part, struct kv_thread, part)->event, &count, sizeof(count)) < 0)
		return; /* another wake-up took it */
}

int kv_thread_progress(struct service_part *part)
{
	struct kv_thread *thread = container_of(part, struct kv_thread, part);
	int n = gate_turn(thread);

	kv_cluster_pass(thread);
	if (ring_got_on(thread)) { /* what waits for it comes in the groups' next turn: there is one, as n is not 0 */
		thread->waits_for_ring = false;
		n++;
	}
	kv_hold_turn(thread);
	kv_again_turn(thread);
	kv_lease_turn(thread);
	return n + kv_watch_turn(thread);
}

uint64_t kv_thread_deadline(const struct service_part *part)
{
	const struct kv_thread *thread = container_of(part, const struct kv_thread, part);

	return MIN(thread->retry_at ? thread->retry_at : TIME_NEVER, MIN(thread->keeping_until, thread->leased_until));
}

/* The log's thread sets the number and looks whether a worker sleeps, in this order; here it is the other way
 * around. */
bool kv_thread_arm(struct service_part *part)
{
	struct kv_thread *thread = container_of(part, struct kv_thread, part);

	atomic_store(&thread->sleeps, !none_waits(thread));
	atomic_store(&thread->ring_sleeps, thread->waits_for_ring);
	if (ring_got_on(thread))
		return false;
	return (none_waits(thread) || (!thread->wants && !log_got_on(thread))) && service_watch_arm(&thread->watch);
}

void kv_thread_disarm(struct service_part *part)
{
	struct kv_thread *thread = container_of(part, struct kv_thread, part);

	atomic_store_explicit(&thread->sleeps, false, memory_order_relaxed);
	atomic_store_explicit(&thread->ring_sleeps, false, memory_order_relaxed);
	service_watch_disarm(&thread->watch);
}
