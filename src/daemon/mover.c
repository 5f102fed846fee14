/*
 * mover.c: copies the keys of some slots to the node that is to get these. A thread speaks with it by a handle of
 * librdmad, as any client does: it begins a session, puts what service->moves tells of, and completes the session when
 * the main thread says that the slots are sealed and nothing is left. They tell each other by atomic members.
 *
 * As long as it connects, which takes long where the other node does not answer, the thread has nothing of the
 * daemon's: a mover that is closed then is left to it.
 */
#include "daemon/daemon.h"
#include "base/thread.h"
#include "client/client.h"

#include <inttypes.h>
#include <stdlib.h>

#define SENT 512u               /* items under way, */
#define SENT_BYTES (32 * MIB)   /* or so many bytes of them */
#define NEAR 1024u              /* changes that are left */
#define ASK_FIRST (2 * TIME_MS) /* the pause between two tries, doubled */
#define ASK_LAST (64 * TIME_MS)
#define TURN_US 1000u  /* without anything to do */
#define DONE_TURNS 20u /* for which the answer to the last request is waited for */
#define CONNECT_US 2000000u
#define KEEP (3 * TIME_S) /* without a request: the session is not to be idle */

/* An item under way. */
struct sent {
	struct mover *mover;
	struct sent *next; /* free one */
	struct service_item item;
};

struct mover {
	struct daemon *daemon;
	pthread_t thread;
	char address[CLUSTER_ADDRESS_MAX + 1];
	char *key_file;
	uint64_t patience;
	struct wire_move_begin begin;
	const struct service_moves *moves;
	void *shared;
	void (*changed)(void *arg);
	void *arg;

	pthread_mutex_t lock;
	bool connecting; /* the thread has nothing of the daemon's; under the lock */
	bool left;       /* to the thread, which frees it; under the lock */
	_Atomic bool stop, done;
	_Atomic uint64_t finish; /* epoch; 0: not yet */
	_Atomic enum mover_state state;
	_Atomic bool news;
	_Atomic uint64_t keys, bytes, behind;
	char reason[256]; /* before `state` */

	/* The thread's. */
	struct rdmad_kv *kv;
	struct service_source *source;
	struct sent pool[SENT], *free;
	unsigned under_way;
	uint64_t under_way_bytes;
	struct service_item next; /* for which there was no room */
	bool has_next;
	uint64_t sent_at; /* the last request of the session */
	int failed;       /* of an item: 0, or -errno, with the reason */
	bool answered;    /* of a request of the session */
	int status;
};

/*
 * What the main thread sees
 */
static void set_state(struct mover *m, enum mover_state state)
{
	atomic_store(&m->state, state);
	atomic_store(&m->news, true);
	loop_wake(m->daemon->loop);
}

enum mover_state mover_state(const struct mover *m)
{
	return atomic_load(&m->state);
}

const char *mover_reason(const struct mover *m)
{
	return atomic_load(&m->state) == MOVER_ENDED ? m->reason : "";
}

void mover_get_progress(const struct mover *m, struct mover_progress *out)
{
	*out = (struct mover_progress){
		.keys = atomic_load(&m->keys), .bytes = atomic_load(&m->bytes), .behind = atomic_load(&m->behind)};
}

void mover_turn(struct daemon *d)
{
	must(daemon_is_main(d));
	if (d->mover && atomic_exchange(&d->mover->news, false))
		d->mover->changed(d->mover->arg);
}

/* The thread's error; the first one holds. Returns rc. */
static int mover_fail(struct mover *m, int rc, const char *what, const char *why)
{
	if (!*m->reason)
		snprintf(m->reason, sizeof(m->reason), "%s: %s", what, *why ? why : strerror(-rc));
	return rc;
}

/*
 * Requests of the session
 */
static void move_answered(void *arg, int status, const void *value, size_t value_len)
{
	struct mover *m = arg;

	m->answered = true;
	m->status = status;
	if (value_len && !m->failed) /* why not, in the other node's words */
		snprintf(m->reason, sizeof(m->reason), "%.*s", (int)value_len, (const char *)value);
}

/* Sends it and waits for the answer: its status. */
static int move_ask(struct mover *m, enum wire_move_kind kind, const void *body, size_t length)
{
	int rc;

	m->answered = false;
	if (!m->failed)
		m->reason[0] = '\0'; /* of a begin before it */
	while ((rc = client_move(m->kv, kind, body, length, move_answered, m)) == -EAGAIN && !atomic_load(&m->stop))
		if (kv_progress(m->kv, TURN_US) < 0)
			return -ECONNABORTED;
	if (rc != 0)
		return rc;
	while (!m->answered && !atomic_load(&m->stop))
		if (kv_progress(m->kv, TURN_US) < 0 && !m->answered)
			return -ECONNABORTED;
	return m->answered ? m->status : -ECANCELED;
}

static int source_begin(struct mover *m)
{
	m->moves->close(m->source);
	m->source = NULL;
	return m->moves->open(m->shared, m->begin.slots, &m->source);
}

/* Until the other node takes the session. */
static int session_begin(struct mover *m)
{
	uint64_t until = time_now() + m->patience, pause = ASK_FIRST, now, next;
	int rc;

	do {
		rc = source_begin(m);
		if (rc != 0)
			return mover_fail(m, rc, "changes of keys cannot be watched", "");
		m->begin.move.version = m->moves->version(m->source);
		rc = move_ask(m, WIRE_MOVE_BEGIN, &m->begin, sizeof(m->begin));
		if (rc != -EAGAIN)
			break;
		next = time_now() + pause;
		while ((now = time_now()) < next && !atomic_load(&m->stop))
			if (kv_progress(m->kv, (next - now) / TIME_US + 1) < 0)
				return mover_fail(m, -ECONNABORTED, "the connection ended", rdmad_error());
		pause = MIN(2 * pause, ASK_LAST);
	} while (time_now() < until && !atomic_load(&m->stop));
	if (rc == -EAGAIN)
		return rc; /* the reason is the other node's */
	return rc == 0 ? 0 : mover_fail(m, rc, "it does not take the slots", rdmad_error());
}

static int session_complete(struct mover *m, uint64_t epoch)
{
	struct wire_move move = m->begin.move;
	int rc;

	move.epoch = epoch;
	move.version = m->moves->version(m->source);
	rc = move_ask(m, WIRE_MOVE_COMPLETE, &move, sizeof(move));
	return rc == 0 ? 0
		       : mover_fail(m, rc, "it does not take it as complete",
				    rc == -ESTALE ? "the session is over" : "");
}

/*
 * Items
 */
static void item_answered(void *arg, int status, const void *value, size_t value_len)
{
	struct sent *sent = arg;
	struct mover *m = sent->mover;

	if (status == -ENOENT && !sent->item.there)
		status = 0;
	if (status != 0 && !m->failed) {
		m->failed = status;
		mover_fail(m, status, sent->item.there ? "a key was not taken" : "a key was not deleted",
			   status == -ENOMEM || status == -ENOSPC ? "its store is full"
			   : status == -ESTALE                    ? "the session is over"
			   : status == -EACCES ? "its client has no right to it there: give its line in auth.clients "
						 "the word write=, and "
						 "rdmactl reload"
					       : "");
	}
	atomic_fetch_add(&m->keys, 1);
	atomic_fetch_add(&m->bytes, sent->item.key_len + sent->item.value_len);
	m->under_way--;
	m->under_way_bytes -= sent->item.value_len;
	m->moves->release(m->source, &sent->item);
	sent->next = m->free;
	m->free = sent;
}

/* -EAGAIN: no room. */
static int item_send(struct mover *m)
{
	struct sent *sent = m->free;
	const struct service_item *item = &m->next;
	int rc;

	if (!sent || (m->under_way && m->under_way_bytes + item->value_len > SENT_BYTES))
		return -EAGAIN;
	sent->item = *item;
	if (item->there)
		rc = client_put_item(m->kv,
				     &(struct client_item){.key = item->key,
							   .key_len = item->key_len,
							   .value = item->value,
							   .value_len = item->value_len,
							   .ttl = item->ttl,
							   .flags = item->flags,
							   .type = item->type},
				     item_answered, sent);
	else
		rc = kv_submit_delete(m->kv, item->key, item->key_len, item_answered, sent);
	if (rc != 0)
		return rc;
	m->free = sent->next;
	m->has_next = false;
	m->sent_at = time_now();
	m->under_way++;
	m->under_way_bytes += item->value_len;
	return 0;
}

static int changes_missed(struct mover *m)
{
	return mover_fail(m, -ESTALE, "changes", "more of them came than were kept, or all keys were deleted");
}

/* What there is room for. 1: there is no room; 0: there is nothing more now; or -errno. */
static int send_items(struct mover *m)
{
	int rc;

	while (!m->failed && !atomic_load(&m->stop)) {
		if (!m->has_next) {
			rc = m->moves->next(m->source, &m->next);
			if (rc <= 0)
				return rc < 0 ? changes_missed(m) : 0;
			m->has_next = true;
		}
		rc = item_send(m);
		if (rc == -EAGAIN)
			return 1;
		if (rc != 0)
			return mover_fail(m, rc, "a key cannot be sent", rdmad_error());
	}
	return m->failed ? m->failed : 1;
}

static void look_whether_near(struct mover *m)
{
	uint64_t behind = m->moves->behind(m->source, m->moves->mark(m->source)) + m->under_way;

	atomic_store(&m->behind, behind);
	if (atomic_load(&m->state) == MOVER_COPYING && m->moves->walked(m->source) && behind < NEAR)
		set_state(m, MOVER_NEAR);
}

/* Until it is complete: 0; or -errno. */
static int copy_items(struct mover *m)
{
	uint64_t epoch, mark = 0;
	bool marked = false;
	int rc;

	m->sent_at = time_now();
	set_state(m, MOVER_COPYING);
	while (!atomic_load(&m->stop)) {
		epoch = atomic_load(&m->finish);
		if (epoch && !marked) {
			marked = true;
			mark = m->moves->mark(m->source);
		}
		rc = send_items(m);
		if (rc > 0 && m->moves->hear(m->source) != 0)
			rc = changes_missed(m);
		if (rc < 0)
			return rc;
		look_whether_near(m);
		if (rc == 0 && marked && m->moves->walked(m->source) && m->moves->behind(m->source, mark) == 0 &&
		    !m->under_way)
			return session_complete(m, epoch);
		if (time_now() > time_after(m->sent_at, KEEP)) {
			rc = move_ask(m, WIRE_MOVE_BEGIN, &m->begin, sizeof(m->begin));
			if (rc != 0)
				return mover_fail(m, rc, "the session is over", "");
			m->sent_at = time_now();
		}
		if (kv_progress(m->kv, rc == 0 || m->under_way ? TURN_US / (epoch ? 10 : 1) : 0) < 0)
			return mover_fail(m, -ECONNABORTED, "the connection ended", rdmad_error());
	}
	return -ECANCELED;
}

/* The other node has all: it is told when the table is there, also where the mover is closed right behind that. */
static void stay_complete(struct mover *m)
{
	struct wire_move done = m->begin.move;

	while (!atomic_load(&m->stop) && !atomic_load(&m->done))
		if (kv_progress(m->kv, TURN_US) < 0)
			return;
	done.epoch = done.version = 0;
	m->answered = false;
	if (!atomic_load(&m->done) || client_move(m->kv, WIRE_MOVE_DONE, &done, sizeof(done), move_answered, m) != 0)
		return;
	for (unsigned i = 0; i < DONE_TURNS && !m->answered; i++)
		if (kv_progress(m->kv, TURN_US) < 0)
			return;
}

static void mover_free(struct mover *m)
{
	pthread_mutex_destroy(&m->lock);
	free(m->key_file);
	free(m);
}

static void *mover_run(void *arg)
{
	struct mover *m = arg;
	const struct rdmad_options options = {
		.connect_timeout_us = CONNECT_US, .no_poll = true, .key_file = m->key_file};
	bool left;
	int rc;

	log_hush_begin(); /* for all that it does: why it ends is told, and a queue that is full is no error */
	rc = rdmad_kv_open(m->address, &options, NULL, &m->kv);
	if (rc == -EACCES || rc == -EPERM)
		snprintf(m->reason, sizeof(m->reason), "%s; rdmactl -H %s%s%s key check", rdmad_error(), m->address,
			 m->key_file ? " --key " : "", m->key_file ? m->key_file : "");
	else if (rc != 0)
		mover_fail(m, rc, "no connection", rdmad_error());
	pthread_mutex_lock(&m->lock);
	m->connecting = false;
	left = m->left;
	pthread_mutex_unlock(&m->lock);
	if (left) {
		kv_close(m->kv);
		mover_free(m);
		return NULL;
	}
	if (rc == 0)
		rc = session_begin(m);
	if (rc == 0)
		rc = copy_items(m);
	if (rc == 0) {
		set_state(m, MOVER_COMPLETE);
		stay_complete(m);
	}
	kv_close(m->kv); /* the callbacks come */
	m->kv = NULL;
	if (m->has_next)
		m->moves->release(m->source, &m->next);
	m->moves->close(m->source);
	if (rc != 0)
		set_state(m, MOVER_ENDED);
	return NULL;
}

/*
 * Open and close
 */
static void make_id(uint8_t id[static WIRE_MOVE_ID])
{
	uint64_t now = time_boot();

	/* That of a later session is higher. */
	for (unsigned i = 0; i < sizeof(now); i++)
		id[i] = (uint8_t)(now >> (56 - 8 * i));
	if (random_fill(id + sizeof(now), WIRE_MOVE_ID - sizeof(now)) != 0)
		memset(id + sizeof(now), 0, WIRE_MOVE_ID - sizeof(now));
}

int mover_open(struct daemon *d, const struct mover_attr *attr, struct mover **out)
{
	struct mover *m = calloc(1, sizeof(*m));
	int rc = -ENOMEM;

	must(daemon_is_main(d) && !d->mover);
	if (!m)
		return log_fail(-ENOMEM, "mover", "no memory for a session");
	pthread_mutex_init(&m->lock, NULL);
	m->daemon = d;
	m->connecting = true;
	m->moves = attr->service->cluster->moves;
	m->shared = attr->shared;
	m->changed = attr->changed;
	m->arg = attr->arg;
	m->patience = attr->patience;
	m->key_file = attr->key_file ? strdup(attr->key_file) : NULL;
	snprintf(m->address, sizeof(m->address), "%s", attr->address);
	make_id(m->begin.move.id);
	m->begin.move.epoch = attr->epoch;
	snprintf(m->begin.cluster, sizeof(m->begin.cluster), "%s", attr->cluster);
	snprintf(m->begin.node, sizeof(m->begin.node), "%s", attr->node);
	memcpy(m->begin.boot, attr->boot, MIN(strlen(attr->boot), sizeof(m->begin.boot)));
	memcpy(m->begin.slots, attr->slots, sizeof(m->begin.slots));
	for (unsigned i = 0; i < SENT; i++) {
		m->pool[i] = (struct sent){.mover = m, .next = m->free};
		m->free = &m->pool[i];
	}
	if (!attr->key_file || m->key_file)
		rc = thread_start(&m->thread, "mover", mover_run, m);
	if (rc != 0) {
		mover_free(m);
		return log_fail(rc, "mover", "a session cannot be begun: %s", strerror(-rc));
	}
	d->mover = m;
	*out = m;
	return 0;
}

void mover_finish(struct mover *m, uint64_t epoch)
{
	must(daemon_is_main(m->daemon) && epoch);
	atomic_store(&m->finish, epoch);
}

void mover_done(struct mover *m)
{
	must(daemon_is_main(m->daemon));
	atomic_store(&m->done, true);
}

void mover_close(struct mover *m)
{
	bool left;

	if (!m)
		return;
	must(daemon_is_main(m->daemon));
	m->daemon->mover = NULL;
	pthread_mutex_lock(&m->lock);
	left = m->left = m->connecting;
	if (left)
		pthread_detach(m->thread);
	pthread_mutex_unlock(&m->lock);
	if (left)
		return;
	atomic_store(&m->stop, true);
	pthread_join(m->thread, NULL);
	mover_free(m);
}
