/*
 * move.c: slots that come here with their values. Another server's connection asks for a session, the main thread
 * decides, and the view has the slots as incoming until a table says what becomes of them: they are this server's, with
 * what came, or their keys are swept. cluster/move.c has the rules.
 *
 * What a worker may write it finds in the view, by the session's number, so a session that has ended takes no item from
 * the next turn of each worker on, and its slots are swept behind that.
 */
#include "service/kv/kv.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#define IDLE (10 * TIME_S)
#define ASKED TIME_S /* for which a session that asks is in the way of another one */
#define LOOK TIME_S
#define VERSIONS (1ull << 47) /* beyond this machine's clock, as store_epoch() has it: a year */
#define EPOCHS 1024u          /* of tables that this server may not have seen when a session is complete */

_Static_assert(WIRE_MOVE_NAME == CLUSTER_NAME_MAX + 1 && WIRE_MOVE_BOOT == CLUSTER_BOOT &&
		       WIRE_MOVE_ID == CLUSTER_ID_SIZE && sizeof(((struct wire_move_begin *)0)->slots) == KV_SLOT_BYTES,
	       "the wire's session is the cluster's");

struct kv_moves {
	struct store *store;
	pthread_mutex_t lock; /* workers and the main thread: */
	struct cluster_session asks;
	uint64_t asks_version;
	uint64_t asked; /* when it did; 0: none asks */
	bool decided;   /* it was refused, */
	char why[WIRE_MOVE_WHY + 1];

	struct cluster_session session;
	uint64_t number;  /* 0: there is none */
	uint64_t highest; /* version that its donor may have given when it is complete */
	uint64_t flushes; /* that there were when it began */
	bool open;        /* every worker goes by its view */
	bool bound;       /* a connection has it */
	bool gone;        /* that connection has ended, or has given it up */
	bool frozen;

	uint64_t last; /* number that was given; main thread */
	_Atomic uint64_t used;
	_Atomic uint64_t items, bytes;                /* of the session */
	_Atomic uint64_t begun, served, lost;         /* sessions */
	_Atomic uint64_t all_items, all_bytes, slots; /* of all; slots that came with their values */
	void (*look)(void *arg);
	void *arg;
};

static struct kv_cluster *cluster_of(const struct kv_agent *agent)
{
	return ((const struct kv_shared *)agent->thread->part.shared)->cluster;
}

static struct kv_moves *moves_of(const struct kv_agent *agent)
{
	return cluster_of(agent) ? cluster_of(agent)->moves : NULL;
}

static bool same_id(const struct cluster_session *session, const uint8_t id[static CLUSTER_ID_SIZE])
{
	return memcmp(session->id, id, CLUSTER_ID_SIZE) == 0;
}

/* Whether it is in, under the lock. */
static bool is_in(const struct kv_moves *m, const uint8_t id[static CLUSTER_ID_SIZE])
{
	return m->number && same_id(&m->session, id);
}

int kv_moves_open(struct kv_cluster *cluster, const struct service_host *host)
{
	struct kv_moves *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	pthread_mutex_init(&m->lock, NULL);
	m->store = cluster->store;
	m->look = host->look;
	m->arg = host->arg;
	cluster->moves = m;
	return 0;
}

void kv_moves_close(struct kv_cluster *cluster)
{
	if (cluster->moves)
		pthread_mutex_destroy(&cluster->moves->lock);
	free(cluster->moves);
}

/*
 * The session's end
 */

/* Under the lock. The view follows. */
static void session_end(struct kv_moves *m, bool served, const char *why)
{
	if (m->session.complete)
		store_hold_flushes(m->store, false);
	log_info("kv", "slots %u of node %s %s: %s; keys %" PRIu64 ", bytes %" PRIu64,
		 cluster_bit_count(m->session.slots), m->session.donor,
		 served ? "are here with their values" : "do not come", why, atomic_load(&m->items),
		 atomic_load(&m->bytes));
	m->number = 0;
	atomic_fetch_add(served ? &m->served : &m->lost, 1);
	if (served)
		atomic_fetch_add(&m->slots, cluster_bit_count(m->session.slots));
}

void kv_moves_lose(struct kv_cluster *cluster, struct kv_view *view)
{
	(void)cluster;
	for (unsigned i = 0; i < KV_SLOT_BYTES; i++)
		view->old[i] |= view->incoming[i];
	memset(view->incoming, 0, sizeof(view->incoming));
	view->session = 0;
}

/* The slots of a session that has ended are swept from here on. */
static void publish_lost(struct kv_cluster *cluster)
{
	struct kv_view *view = kv_view_next(cluster);

	if (!view)
		return; /* the next tick tries it again */
	kv_moves_lose(cluster, view);
	kv_view_count(view);
	cluster->sweeps = false;
	kv_cluster_publish(cluster, view);
}

void kv_moves_follow(struct kv_cluster *cluster, const struct kv_view *before, struct kv_view *view)
{
	struct kv_moves *m = cluster->moves;
	struct cluster_session session;
	bool here;

	if (!before->session)
		return;
	memcpy(view->incoming, before->incoming, sizeof(view->incoming));
	view->session = before->session;
	pthread_mutex_lock(&m->lock);
	here = m->number == before->session;
	session = m->session;
	pthread_mutex_unlock(&m->lock);
	if (here && !cluster_session_over(&session, &view->table, view->self))
		return;
	for (unsigned slot = 0; here && slot < CLUSTER_SLOTS; slot++)
		if (cluster_session_keeps(&session, &view->table, view->self, slot))
			view->incoming[slot / 8] &= (uint8_t) ~(1u << slot % 8);
	kv_moves_lose(cluster, view);
}

void kv_moves_freeze(struct kv_cluster *cluster)
{
	struct kv_moves *m = cluster->moves;

	if (!m)
		return;
	pthread_mutex_lock(&m->lock);
	m->frozen = true;
	pthread_mutex_unlock(&m->lock);
}

/* Whether any of its slots came, by the view that took the place of the session's. */
static bool any_kept(const struct cluster_session *session, const struct kv_view *view)
{
	for (unsigned i = 0; i < KV_SLOT_BYTES; i++)
		if (session->slots[i] & ~view->old[i])
			return true;
	return false;
}

void kv_moves_thaw(struct kv_cluster *cluster)
{
	struct kv_moves *m = cluster->moves;
	const struct kv_view *view = atomic_load(&cluster->view);
	bool ends, served;
	char why[64];

	if (!m)
		return;
	snprintf(why, sizeof(why), "by the table of epoch %" PRIu64, view->table.epoch);
	pthread_mutex_lock(&m->lock);
	ends = m->number && view->session != m->number;
	served = ends && any_kept(&m->session, view);
	if (ends)
		session_end(m, served, why);
	m->frozen = false;
	pthread_mutex_unlock(&m->lock);
	/* Slots are on no node for a moment: a reader of all keys may not have found theirs. */
	if (served)
		store_tell_came(m->store);
}

uint64_t kv_moves_tick(struct kv_cluster *cluster, uint64_t now)
{
	const struct kv_view *view = atomic_load(&cluster->view);
	struct kv_moves *m = cluster->moves;
	uint64_t number;

	if (!m)
		return TIME_NEVER;
	pthread_mutex_lock(&m->lock);
	if (m->number && !m->session.complete) {
		if (m->gone)
			session_end(m, false, "its connection has ended, or has given it up");
		else if (now > time_after(atomic_load(&m->used), IDLE))
			session_end(m, false, "nothing came for 10 s");
	}
	m->open = m->number && cluster->settled && view->session == m->number;
	number = m->number;
	pthread_mutex_unlock(&m->lock);
	if (view->session && view->session != number)
		publish_lost(cluster);
	return number ? now + LOOK : TIME_NEVER;
}

/*
 * Beginning
 */

/* What the table does not say. Under the lock. */
static bool may_enter(struct kv_moves *m, const struct kv_view *view, const struct cluster_session *asks, char *why,
		      size_t size)
{
	unsigned old = 0;

	for (unsigned i = 0; i < KV_SLOT_BYTES; i++)
		old += (unsigned)__builtin_popcount(view->old[i] & asks->slots[i]);
	if (m->number && !cluster_session_replaces(&m->session, asks)) {
		snprintf(why, size, "slots come from node %s already", m->session.donor);
	} else if (m->number) {
		session_end(m, false, "the node begins anew");
		snprintf(why, size, "the keys of the session before are deleted first");
	} else if (view->out) {
		snprintf(why, size, "this server is out of the table");
	} else if (view->session || old) {
		snprintf(why, size, "keys of before are deleted first, in slots %u", old);
	} else {
		return true;
	}
	return false;
}

/* 0 or -ENOMEM. */
static int session_begin(struct kv_cluster *cluster, const struct cluster_session *asks, uint64_t version)
{
	struct kv_moves *m = cluster->moves;
	struct kv_view *view = kv_view_next(cluster);

	if (!view)
		return -ENOMEM;
	memcpy(view->incoming, asks->slots, sizeof(view->incoming));
	view->session = ++m->last;
	kv_view_count(view);
	store_raise(cluster->store, version + WIRE_MOVE_AHEAD);
	pthread_mutex_lock(&m->lock);
	m->session = *asks;
	m->number = m->last;
	m->highest = version + WIRE_MOVE_AHEAD;
	m->flushes = store_flushes(cluster->store);
	m->open = m->bound = m->gone = false;
	m->asked = 0;
	pthread_mutex_unlock(&m->lock);
	atomic_store(&cluster->coming, 0);
	atomic_store(&m->used, time_now());
	atomic_store(&m->items, 0);
	atomic_store(&m->bytes, 0);
	atomic_fetch_add(&m->begun, 1);
	kv_cluster_publish(cluster, view);
	log_info("kv", "slots %u come from node %s, by its table of epoch %" PRIu64, cluster_bit_count(asks->slots),
		 asks->donor, asks->epoch);
	return 0;
}

/* Main thread: it alone begins and ends sessions. */
static void end_abandoned(struct kv_cluster *cluster,
			  bool (*abandoned)(void *arg, const struct cluster_session *session), void *arg)
{
	struct kv_moves *m = cluster->moves;
	struct cluster_session session;
	bool complete;

	pthread_mutex_lock(&m->lock);
	complete = m->number && m->session.complete;
	session = m->session;
	pthread_mutex_unlock(&m->lock);
	if (!complete || !abandoned(arg, &session))
		return;
	pthread_mutex_lock(&m->lock);
	session_end(m, false, "its node is out, or has been started anew");
	pthread_mutex_unlock(&m->lock);
	kv_moves_tick(cluster, time_now()); /* the view follows */
}

void kv_moves_receive(void *shared,
		      bool (*allowed)(void *arg, const struct cluster_session *session, char *why, size_t size),
		      bool (*abandoned)(void *arg, const struct cluster_session *session), void *arg)
{
	struct kv_cluster *cluster = ((struct kv_shared *)shared)->cluster;
	struct kv_moves *m = cluster->moves;
	struct cluster_session asks;
	char why[WIRE_MOVE_WHY + 1];
	bool waits, may;
	uint64_t version;

	end_abandoned(cluster, abandoned, arg);
	pthread_mutex_lock(&m->lock);
	waits = m->asked && !m->decided;
	asks = m->asks;
	version = m->asks_version;
	pthread_mutex_unlock(&m->lock);
	if (!waits)
		return;
	may = allowed(arg, &asks, why, sizeof(why));
	if (may) {
		pthread_mutex_lock(&m->lock);
		may = may_enter(m, atomic_load(&cluster->view), &asks, why, sizeof(why));
		pthread_mutex_unlock(&m->lock);
		kv_moves_tick(cluster, time_now()); /* the view follows the end of another one */
	}
	if (may && session_begin(cluster, &asks, version) == 0)
		return;
	pthread_mutex_lock(&m->lock);
	if (same_id(&m->asks, asks.id)) {
		m->decided = true;
		snprintf(m->why, sizeof(m->why), "%s", may ? "there is no memory for a table" : why);
	}
	pthread_mutex_unlock(&m->lock);
}

/*
 * Requests. The worker.
 */
bool kv_move_takes(const struct kv_agent *agent, unsigned slot)
{
	const struct kv_cluster *cluster = cluster_of(agent);
	const struct kv_view *view = agent->session ? atomic_load(&cluster->view) : NULL;

	return view && view->session == agent->session && cluster_bit(view->incoming, slot);
}

bool kv_move_writes(const struct kv_agent *agent, const struct wire_record *request, const char *body, unsigned slot)
{
	struct wire_put put = {0};

	if (likely(!agent->session))
		return false;
	if (request->op == WIRE_OP_PUT)
		memcpy(&put, body, sizeof(put));
	else if (request->op == WIRE_OP_PUT_FROM)
		memcpy(&put, body + sizeof(struct wire_remote), sizeof(put));
	if (request->op != WIRE_OP_DELETE && !(put.flags & WIRE_PUT_ITEM))
		return false;
	if (!kv_move_takes(agent, slot))
		return false;
	atomic_store_explicit(&moves_of(agent)->used, kv_now(agent->thread), memory_order_relaxed);
	return true;
}

void kv_move_wrote(const struct kv_agent *agent, uint64_t bytes)
{
	struct kv_moves *m = moves_of(agent);

	atomic_fetch_add_explicit(&m->items, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&m->bytes, bytes, memory_order_relaxed);
	atomic_fetch_add_explicit(&m->all_items, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&m->all_bytes, bytes, memory_order_relaxed);
}

/* The connection has it no more. `gone`: nobody has. */
static void session_leave(struct kv_agent *agent, bool gone)
{
	struct kv_moves *m = moves_of(agent);

	pthread_mutex_lock(&m->lock);
	if (gone && m->number == agent->session)
		m->gone = true;
	pthread_mutex_unlock(&m->lock);
	agent->session = KV_SESSION_PAST;
}

void kv_move_closed(struct kv_agent *agent)
{
	if (agent->session)
		session_leave(agent, true);
}

static bool is_boot(const char digits[static WIRE_MOVE_BOOT])
{
	for (unsigned i = 0; i < WIRE_MOVE_BOOT; i++)
		if (!strchr("0123456789abcdef", digits[i]) || !digits[i])
			return false;
	return true;
}

static bool is_name(const char name[static WIRE_MOVE_NAME])
{
	return !name[WIRE_MOVE_NAME - 1] && words_is_name(name, CLUSTER_NAME_MAX);
}

static bool begin_is_valid(const struct wire_move_begin *begin)
{
	return is_name(begin->cluster) && is_name(begin->node) && is_boot(begin->boot) && begin->move.epoch &&
	       begin->move.epoch <= CLUSTER_EPOCH_MAX;
}

/* It is in: the connection that asks first has it. Under the lock. */
static enum wire_status session_take(struct kv_moves *m, struct kv_agent *agent, char *why, size_t size)
{
	if (m->bound && agent->session != m->number)
		return WIRE_STALE;
	if (!m->open && !m->bound) {
		snprintf(why, size, "the workers are told");
		return WIRE_BUSY;
	}
	m->bound = true;
	atomic_store(&m->used, kv_now(agent->thread));
	agent->session = m->number;
	return WIRE_OK;
}

/* It waits for the main thread. Under the lock. */
static enum wire_status session_ask(struct kv_moves *m, const struct wire_move_begin *begin, uint64_t now, char *why,
				    size_t size)
{
	const bool mine = m->asked && same_id(&m->asks, begin->move.id);

	if (m->asked && !mine && now < time_after(m->asked, ASKED) && strcmp(m->asks.donor, begin->node) != 0) {
		snprintf(why, size, "node %s asks, too", m->asks.donor);
		return WIRE_BUSY;
	}
	snprintf(why, size, "%s", mine && m->decided ? m->why : "it is being looked at");
	if (!mine) {
		m->asks = (struct cluster_session){.epoch = begin->move.epoch};
		memcpy(m->asks.id, begin->move.id, sizeof(m->asks.id));
		memcpy(m->asks.donor, begin->node, sizeof(begin->node));
		memcpy(m->asks.boot, begin->boot, sizeof(begin->boot));
		memcpy(m->asks.slots, begin->slots, sizeof(m->asks.slots));
	}
	m->asks_version = begin->move.version;
	m->asked = now;
	m->decided = false;
	return WIRE_BUSY;
}

static enum wire_status move_begin(struct kv_agent *agent, const struct wire_move_begin *begin, char *why, size_t size)
{
	const struct kv_cluster *cluster = cluster_of(agent);
	struct kv_moves *m = cluster->moves;
	enum wire_status status;
	bool asks;

	if (strcmp(begin->cluster, atomic_load(&cluster->view)->table.name) != 0) {
		snprintf(why, size, "this server is of cluster %s", atomic_load(&cluster->view)->table.name);
		return WIRE_BUSY;
	}
	if (begin->move.version > store_epoch() + VERSIONS) {
		snprintf(why, size, "the clock here is a year behind that of %s: timedatectl at both", begin->node);
		return WIRE_BUSY;
	}
	pthread_mutex_lock(&m->lock);
	asks = !is_in(m, begin->move.id);
	status = asks ? session_ask(m, begin, kv_now(agent->thread), why, size) : session_take(m, agent, why, size);
	pthread_mutex_unlock(&m->lock);
	if (asks && m->look)
		m->look(m->arg);
	return status;
}

/* A delete-all may have taken items away that had come: from here on there is none, and none was before. */
static bool is_whole(struct kv_moves *m)
{
	store_hold_flushes(m->store, true);
	if (store_flushes(m->store) == m->flushes)
		return true;
	store_hold_flushes(m->store, false);
	return false;
}

/* -EAGAIN: a table takes the place of another. */
static int move_complete(struct kv_agent *agent, const struct wire_move *move, enum wire_status *status)
{
	struct kv_cluster *cluster = cluster_of(agent);
	struct kv_moves *m = cluster->moves;
	const struct kv_view *view;
	int rc = 0;

	*status = WIRE_STALE;
	pthread_mutex_lock(&m->lock);
	view = atomic_load(&cluster->view);
	if (m->frozen) {
		rc = -EAGAIN;
	} else if (agent->session && is_in(m, move->id) && m->number == agent->session && view->session == m->number) {
		m->gone = move->epoch > view->table.epoch + EPOCHS || move->version > m->highest || !is_whole(m);
		if (!m->gone) {
			m->session.complete = move->epoch;
			atomic_store(&cluster->coming, time_now() + KV_HOLD);
			*status = WIRE_OK;
		}
	}
	pthread_mutex_unlock(&m->lock);
	if (rc == 0 && agent->session)
		agent->session = KV_SESSION_PAST; /* it takes nothing any more */
	return rc;
}

/* The table is there by which they are this server's. */
static void move_done(struct kv_agent *agent, const struct wire_move *move)
{
	struct kv_cluster *cluster = cluster_of(agent);
	struct kv_moves *m = cluster->moves;

	pthread_mutex_lock(&m->lock);
	if (is_in(m, move->id) && m->session.complete)
		atomic_store(&cluster->coming, time_now() + KV_HOLD);
	pthread_mutex_unlock(&m->lock);
	if (m->look)
		m->look(m->arg);
}

static int move_status(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		       enum wire_status *status, char *why, size_t size)
{
	struct kv_moves *m = moves_of(agent);
	struct wire_move_begin begin;
	struct conn_info client;
	bool mine;

	memcpy(&begin, body, request->length);
	if (!conn_client(conn)->move) {
		conn_get_info(conn, &client);
		snprintf(
			why, size,
			"%s has no right to move slots there: give its line in auth.clients the word move, and rdmactl "
			"reload",
			client.key);
		log_info("kv", "%s has no right to move slots here", client.key);
		kv_agent_count(agent, KV_COUNT_DENIED);
		*status = WIRE_DENIED;
		return 0;
	}
	if (!m) {
		*status = WIRE_UNSUPPORTED;
		return 0;
	}
	if (request->arg == WIRE_MOVE_BEGIN
		    ? !begin_is_valid(&begin)
		    : request->arg == WIRE_MOVE_COMPLETE && (!begin.move.epoch || begin.move.epoch > CLUSTER_EPOCH_MAX))
		return -EPROTO;
	if (request->arg == WIRE_MOVE_BEGIN) {
		*status = move_begin(agent, &begin, why, size);
		return 0;
	}
	if (request->arg == WIRE_MOVE_COMPLETE)
		return move_complete(agent, &begin.move, status);
	if (request->arg == WIRE_MOVE_DONE)
		move_done(agent, &begin.move);
	pthread_mutex_lock(&m->lock);
	mine = agent->session && is_in(m, begin.move.id) && m->number == agent->session;
	pthread_mutex_unlock(&m->lock);
	if (request->arg == WIRE_MOVE_END && mine)
		session_leave(agent, true);
	*status = request->arg == WIRE_MOVE_DONE || mine ? WIRE_OK : WIRE_STALE;
	return 0;
}

int kv_serve_move(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		  struct wire_record *reply)
{
	char why[WIRE_MOVE_WHY + 1] = "";
	enum wire_status status;
	int rc;

	if (request->arg < WIRE_MOVE_BEGIN || request->arg >= WIRE_MOVE_KINDS ||
	    request->length !=
		    (request->arg == WIRE_MOVE_BEGIN ? sizeof(struct wire_move_begin) : sizeof(struct wire_move)))
		return -EPROTO;
	if (agent->beside & KV_BESIDE_SETS) { /* items are on their way */
		conn_wait_writable(conn);
		return -EAGAIN;
	}
	reply = conn_reserve(conn, WIRE_MOVE_WHY, NULL);
	if (!reply)
		return -EAGAIN;
	rc = move_status(conn, agent, request, body, &status, why, sizeof(why));
	if (rc == -EAGAIN)
		kv_hold_retry(conn, agent->thread);
	if (rc != 0)
		return rc;
	memcpy(reply + 1, why, strlen(why));
	kv_answer(conn, agent, request, reply, status, (uint32_t)strlen(why), 0);
	return 0;
}

void kv_moves_report(const struct kv_cluster *cluster, struct service_report *report)
{
	const struct kv_view *view = atomic_load(&cluster->view);
	const struct kv_moves *m = cluster->moves;

	if (!m)
		return;
	report->number(report, "incoming_slots", cluster_bit_count(view->incoming));
	report->number(report, "sealed_slots", cluster_bit_count(view->sealed));
	report->number(report, "incoming_keys", view->session ? atomic_load(&m->items) : 0);
	report->number(report, "incoming_bytes", view->session ? atomic_load(&m->bytes) : 0);
	report->number(report, "received_sessions", atomic_load(&m->begun));
	report->number(report, "received_done", atomic_load(&m->served));
	report->number(report, "received_lost", atomic_load(&m->lost));
	report->number(report, "received_slots", atomic_load(&m->slots));
	report->number(report, "received_keys", atomic_load(&m->all_items));
	report->number(report, "received_bytes", atomic_load(&m->all_bytes));
}
