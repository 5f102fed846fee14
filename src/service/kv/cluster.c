/*
 * cluster.c: which keys are this server's, by the table of a cluster, and how one table takes the place of another
 * while the workers serve.
 *
 * A table is published by a pointer. Each worker is asked to pass, which it does between two turns: what it carried out
 * by the table before has ended then. When all have passed, keys of slots that were lost are swept, and tables that
 * were replaced are freed. What lasts longer than a turn looks at the table again before it writes.
 */
#include "service/kv/kv.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define SWEEP_TIME TIME_MS /* of one tick, and a step more */

/*
 * Tables
 */

/* What is here by the table, what is swept, and what comes. Counts them. */
void kv_view_count(struct kv_view *view)
{
	view->slots = view->sweeping = view->waiting = view->hidden = 0;
	memset(view->here, 0, sizeof(view->here));
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++) {
		bool own = view->table.owner[slot] == view->self, old = cluster_bit(view->old, slot);
		bool hidden = old || cluster_bit(view->incoming, slot);

		view->slots += own;
		view->sweeping += old;
		view->hidden += hidden;
		view->waiting += own && hidden;
		if (own && !hidden && !cluster_bit(view->held, slot) && !cluster_bit(view->sealed, slot) && !view->out)
			cluster_bit_set(view->here, slot);
	}
}

static void view_free(struct kv_view *view)
{
	if (view)
		free(view->closed);
	free(view);
}

/* With an engine, what there is when its word is too old: the same table, and nothing of it here. */
static int view_close(const struct kv_cluster *cluster, struct kv_view *view)
{
	if (!cluster->fenced)
		return 0;
	view->closed = malloc(sizeof(*view));
	if (!view->closed)
		return log_fail(-ENOMEM, "kv", "no memory for a table");
	*view->closed = *view;
	view->closed->closed = NULL;
	view->closed->out = true;
	view->closed->hidden = CLUSTER_SLOTS; /* no key is shown */
	view->closed->sealed_until = 0;
	memset(view->closed->here, 0, sizeof(view->closed->here));
	memset(view->closed->sealed, 0, sizeof(view->closed->sealed));
	return 0;
}

/* What becomes of slots whose keys are here by the view before. */
static void view_follow(struct kv_cluster *cluster, const struct kv_view *before, struct kv_view *view)
{
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++) {
		bool sealed = cluster_bit(before->sealed, slot);
		bool stays = view->table.owner[slot] == view->self && !cluster_bit(view->held, slot);

		if (cluster_bit(before->old, slot) || (!stays && (sealed || cluster_bit(before->here, slot))))
			cluster_bit_set(view->old, slot);
		if (sealed && stays) {
			cluster_bit_set(view->sealed, slot);
			view->sealed_until = before->sealed_until;
		}
	}
	kv_moves_follow(cluster, before, view);
}

/* A view of the table; `before`: the one that it follows, NULL: none; `slots`: bits of what may be here, NULL: all. */
static int view_make(struct kv_cluster *cluster, const struct cluster_table *table, const uint8_t *slots,
		     const struct kv_view *before, struct kv_view **out)
{
	struct kv_view *view = calloc(1, sizeof(*view));
	int length;

	if (!view)
		return log_fail(-ENOMEM, "kv", "no memory for a table");
	view->table = *table;
	view->self = cluster_find(table, cluster->name);
	length =
		view->self == CLUSTER_NODES
			? log_fail(-EINVAL, "kv", "the table of epoch %" PRIu64 " has no node %s, which this server is",
				   table->epoch, cluster->name)
			: cluster_print(table, view->text);
	if (length < 0) {
		view_free(view);
		return length;
	}
	for (unsigned i = 0; slots && i < KV_SLOT_BYTES; i++)
		view->held[i] = (uint8_t)~slots[i];
	view->length = (uint32_t)length;
	view->number = before ? before->number + 1 : 1;
	list_init(&view->node);
	if (before)
		view_follow(cluster, before, view);
	kv_view_count(view);
	if (view_close(cluster, view) != 0) {
		view_free(view);
		return -ENOMEM;
	}
	*out = view;
	return 0;
}

/* Whether a table may follow another that is known to have been served. */
static int check_order(const struct cluster_table *before, const struct cluster_table *table, bool same, const char *by)
{
	if (strcmp(before->name, table->name) != 0)
		return log_fail(-EINVAL, "kv", "the table is of cluster %s, and this server of %s%s", table->name,
				before->name, by);
	if (table->epoch < before->epoch)
		return log_fail(-ESTALE, "kv",
				"the table has epoch %" PRIu64 ", and %" PRIu64 " was served already%s: an older table "
				"is never served again",
				table->epoch, before->epoch, by);
	if (table->epoch == before->epoch && !same)
		return log_fail(-ESTALE, "kv",
				"there are two tables of epoch %" PRIu64
				", and the other one was served already%s: give "
				"what is changed a higher epoch",
				table->epoch, by);
	return 0;
}

unsigned kv_view_unknown(const struct kv_view *view)
{
	unsigned next = 0, first, last;

	return kv_view_is_closed(view) && cluster_range(&view->table, view->self, &next, &first, &last) ? first
													: CLUSTER_SLOTS;
}

/* The main thread's, whatever the time. */
static const struct kv_view *view_now(const struct kv_cluster *cluster)
{
	return atomic_load(&cluster->view);
}

/*
 * Open and close
 */

static int check_engine(const struct kv_settings *s)
{
	if (!s->cluster_name || !s->cluster_node || !s->cluster_endpoints.count || s->cluster_table)
		return log_fail(
			-EINVAL, "kv",
			"cluster.engine: it needs cluster.endpoints, cluster.name and cluster.node, and has the "
			"table itself, so that cluster.table stays unset");
	if (!words_is_name(s->cluster_name, CLUSTER_NAME_MAX) || !words_is_name(s->cluster_node, CLUSTER_NAME_MAX))
		return log_fail(-EINVAL, "kv",
				"cluster.name and cluster.node have letters, digits and \"._-\", %u at most",
				CLUSTER_NAME_MAX);
	return 0;
}

static int check_settings(const struct kv_settings *s)
{
	if (s->cluster_engine != KV_ENGINE_NONE && check_engine(s) != 0)
		return -EINVAL;
	if (s->cluster_engine != KV_ENGINE_NONE && kv_log_wanted(s))
		return log_fail(-EINVAL, "kv",
				"cluster.engine and log.policy or log.save_at_exit: keys of slots that have another "
				"server meanwhile would come back from the log; set one of them");
	if (s->cluster_engine != KV_ENGINE_NONE)
		return 0;
	if (!s->cluster_table || !s->cluster_node)
		return log_fail(-EINVAL, "kv",
				"cluster.table and cluster.node: set both, which table there is and which of its nodes "
				"this server is");
	if (kv_log_wanted(s))
		return log_fail(-EINVAL, "kv",
				"cluster.table and log.policy or log.save_at_exit: keys of slots that have another "
				"server meanwhile would come back from the log; set one of them");
	return 0;
}

/* What was served before this process lives, if that is known. */
static int check_state(struct kv_cluster *cluster, const struct kv_view *view)
{
	struct kv_view *before;
	char by[512];
	int rc;

	if (!cluster->state || (access(cluster->state, F_OK) != 0 && errno == ENOENT))
		return 0;
	before = calloc(1, sizeof(*before));
	if (!before)
		return -ENOMEM;
	rc = cluster_load(cluster->state, &before->table);
	if (rc != 0)
		rc = log_fail(-EINVAL, "kv",
			      "cluster.state: %s does not say which table was served last; remove it if no other "
			      "server has what this one would serve",
			      cluster->state);
	else
		rc = cluster_print(&before->table, before->text);
	snprintf(by, sizeof(by), " (%.500s)", cluster->state);
	if (rc > 0 && cluster->fenced) {
		cluster->served = before->table.epoch;
		before->table.epoch = 0; /* the engine's table is yet to come */
	}
	if (rc > 0)
		rc = check_order(&before->table, &view->table,
				 cluster->fenced || ((uint32_t)rc == view->length &&
						     memcmp(before->text, view->text, view->length) == 0),
				 by);
	free(before);
	return rc;
}

static int view_load(struct kv_cluster *cluster, struct kv_view **out)
{
	struct cluster_table *table = malloc(sizeof(*table));
	int rc = table ? cluster_load(cluster->file, table) : -ENOMEM;

	if (rc == 0)
		rc = view_make(cluster, table, NULL, NULL, out);
	free(table);
	return rc;
}

/* What there is before the engine was asked: a table of this node alone, and nothing of it. */
static int view_begin(const struct kv_cluster *cluster, const char *name, struct kv_view **out)
{
	struct kv_view *view = calloc(1, sizeof(*view));

	if (!view)
		return -ENOMEM;
	strcpy(view->table.name, name);
	strcpy(view->table.node[0].name, cluster->name);
	view->table.count = 1;
	memset(view->table.owner, 0xff, sizeof(view->table.owner)); /* CLUSTER_ABSENT */
	view->number = 1;
	view->out = true;
	list_init(&view->node);
	if (view_close(cluster, view) != 0) {
		view_free(view);
		return -ENOMEM;
	}
	*out = view;
	return 0;
}

int kv_cluster_open(const struct kv_settings *s, struct kv_cluster **out)
{
	struct kv_cluster *cluster;
	struct kv_view *view = NULL;
	int rc;

	*out = NULL;
	if (!s->cluster_table && !s->cluster_node && !s->cluster_state && s->cluster_engine == KV_ENGINE_NONE)
		return 0;
	rc = check_settings(s);
	if (rc != 0)
		return rc;
	cluster = calloc(1, sizeof(*cluster));
	if (!cluster)
		return -ENOMEM;
	*cluster = (struct kv_cluster){
		.file = s->cluster_table, .name = s->cluster_node, .state = s->cluster_state, .settled = true};
	list_init(&cluster->threads);
	list_init(&cluster->replaced);
	cluster->fenced = s->cluster_engine != KV_ENGINE_NONE;
	rc = cluster->fenced ? view_begin(cluster, s->cluster_name, &view) : view_load(cluster, &view);
	if (rc == 0)
		rc = check_state(cluster, view);
	if (rc != 0) {
		view_free(view);
		free(cluster);
		return rc == -ENOMEM ? rc : -EINVAL; /* the setting is wrong, however the file fails */
	}
	atomic_store(&cluster->view, view);
	atomic_store(&cluster->number, view->number);
	*out = cluster;
	return 0;
}

int kv_cluster_begin(struct kv_cluster *cluster, struct store *store, const struct service_host *host)
{
	cluster->store = store;
	cluster->soon = host->soon;
	cluster->arg = host->arg;
	if (cluster->fenced && kv_moves_open(cluster, host) != 0)
		return log_fail(-ENOMEM, "kv", "no memory for slots that come with their values");
	return cluster->state && !cluster->fenced ? cluster_save(cluster->state, &view_now(cluster)->table) : 0;
}

static void free_replaced(struct kv_cluster *cluster)
{
	while (!list_empty(&cluster->replaced)) {
		struct kv_view *view = list_first(&cluster->replaced, struct kv_view, node);

		list_del(&view->node);
		view_free(view);
	}
}

void kv_cluster_close(struct kv_cluster *cluster)
{
	if (!cluster)
		return;
	must(list_empty(&cluster->threads));
	kv_moves_close(cluster);
	free_replaced(cluster);
	view_free(atomic_load(&cluster->view));
	free(cluster);
}

/*
 * Threads
 */

void kv_cluster_join(struct kv_cluster *cluster, struct kv_thread *thread)
{
	list_add_tail(&cluster->threads, &thread->clustered);
	kv_cluster_pass(thread);
}

void kv_cluster_pass(struct kv_thread *thread)
{
	const struct kv_cluster *cluster = ((const struct kv_shared *)thread->part.shared)->cluster;

	if (cluster)
		atomic_store_explicit(&thread->passed, atomic_load(&cluster->number), memory_order_release);
}

/* Ask each for it, whether it works or sleeps. */
static void ask_threads(struct kv_cluster *cluster)
{
	const uint64_t one = 1;

	list_for_each (pos, &cluster->threads) {
		struct kv_thread *thread = container_of(pos, struct kv_thread, clustered);

		service_part_ask(&thread->part);
		if (write(thread->event, &one, sizeof(one)) < 0 && errno != EAGAIN)
			log_error("kv", "cannot wake a worker: %m");
	}
}

static bool all_passed(const struct kv_cluster *cluster)
{
	uint64_t number = atomic_load(&cluster->number);

	list_for_each (pos, &cluster->threads)
		if (atomic_load_explicit(&container_of(pos, const struct kv_thread, clustered)->passed,
					 memory_order_acquire) != number)
			return false;
	return true;
}

/*
 * Changes
 */

void kv_cluster_publish(struct kv_cluster *cluster, struct kv_view *view)
{
	struct kv_view *before = atomic_load(&cluster->view);

	if (!before->sealed_until != !view->sealed_until)
		store_hold_flushes(cluster->store, view->sealed_until);
	atomic_store(&cluster->view, view);
	atomic_store(&cluster->number, view->number);
	list_add_tail(&cluster->replaced, &before->node);
	cluster->settled = false;
	ask_threads(cluster);
	if (cluster->soon)
		cluster->soon(cluster->arg);
}

struct kv_view *kv_view_next(const struct kv_cluster *cluster)
{
	struct kv_view *view = malloc(sizeof(*view));

	if (view) {
		*view = *view_now(cluster);
		view->closed = NULL;
		view->number++;
		list_init(&view->node);
	}
	if (view && view_close(cluster, view) == 0)
		return view;
	free(view);
	log_error("kv", "no memory for a table");
	return NULL;
}

/* Slots that have keys here are lost. `old`: slots that were swept before. */
static void lose_slots(struct kv_cluster *cluster, const struct kv_view *view, const uint8_t old[static KV_SLOT_BYTES])
{
	bool more = false;

	cluster->sweeps = false; /* it begins anew */
	for (unsigned i = 0; i < KV_SLOT_BYTES; i++)
		more |= view->old[i] & ~old[i];
	if (more)
		store_watch_all_missed(cluster->store);
}

/* In no table: all that is here is lost. */
static int go_out(struct kv_cluster *cluster, const struct kv_view *before)
{
	struct kv_view *view = before->out ? NULL : kv_view_next(cluster);

	if (before->out)
		return 0;
	if (!view)
		return -ENOMEM;
	view->out = true;
	for (unsigned i = 0; i < KV_SLOT_BYTES; i++)
		view->old[i] |= view->here[i] | view->sealed[i];
	memset(view->sealed, 0, sizeof(view->sealed));
	view->sealed_until = 0;
	kv_moves_lose(cluster, view);
	kv_view_count(view);
	kv_cluster_publish(cluster, view);
	lose_slots(cluster, view, before->old);
	log_warn("kv", "cluster %s: this server is out of the table of epoch %" PRIu64 ": it answers for no slot",
		 view->table.name, view->table.epoch);
	return 0;
}

static int change_table(struct kv_cluster *cluster, const struct cluster_table *table, const uint8_t *slots)
{
	const struct kv_view *before = view_now(cluster);
	struct kv_view *view;
	bool same;
	int rc;

	if (!table)
		return go_out(cluster, before);
	rc = view_make(cluster, table, slots, before, &view);
	if (rc != 0)
		return rc;
	same = view->length == before->length && memcmp(view->text, before->text, view->length) == 0;
	rc = check_order(&before->table, table, same, "");
	if (rc == 0 && cluster->state && !same)
		rc = cluster_save(cluster->state, table);
	if (rc != 0 || (same && !before->out && memcmp(view->held, before->held, sizeof(view->held)) == 0)) {
		view_free(view);
		return rc;
	}
	kv_cluster_publish(cluster, view);
	lose_slots(cluster, view, before->old);
	log_info("kv", "cluster %s: epoch %" PRIu64 ", slots %u; %u have keys of before and are swept", table->name,
		 table->epoch, view->slots, view->sweeping);
	return 0;
}

int kv_cluster_change(struct kv_shared *shared, const struct cluster_table *table, const uint8_t *slots)
{
	struct kv_cluster *cluster = shared->cluster;
	int rc;

	if (!cluster)
		return log_fail(-EOPNOTSUPP, "kv", "this server is of no cluster: set cluster.table and cluster.node");
	kv_moves_freeze(cluster);
	rc = change_table(cluster, table, slots);
	kv_moves_thaw(cluster);
	return rc;
}

bool kv_cluster_settled(const struct kv_shared *shared, uint64_t *epoch)
{
	const struct kv_cluster *cluster = shared->cluster;

	if (epoch)
		*epoch = view_now(cluster)->table.epoch;
	return cluster->settled || all_passed(cluster);
}

int kv_shared_reload(void *of, const char **changed)
{
	struct kv_shared *shared = of;
	struct cluster_table *table;
	uint64_t number;
	int rc;

	if (!shared->cluster || shared->cluster->fenced)
		return 0;
	table = malloc(sizeof(*table));
	number = atomic_load(&shared->cluster->number);
	rc = table ? cluster_load(shared->cluster->file, table) : -ENOMEM;
	if (rc == 0)
		rc = kv_cluster_change(shared, table, NULL);
	free(table);
	if (number != atomic_load(&shared->cluster->number))
		*changed = "cluster.table";
	return rc;
}

/*
 * What an engine says
 */

bool kv_cluster_engine(const void *settings, struct service_engine *out)
{
	const struct kv_settings *s = settings;

	*out = (struct service_engine){.cluster = s->cluster_name,
				       .node = s->cluster_node,
				       .state = s->cluster_state,
				       .endpoints = &s->cluster_endpoints,
				       .user = s->cluster_user,
				       .password_file = s->cluster_password_file,
				       .key_file = s->cluster_key_file,
				       .period = s->cluster_period,
				       .spread_after = s->cluster_spread_after,
				       .lasting = s->cluster_fence == KV_FENCE_NONE};
	return s->cluster_engine != KV_ENGINE_NONE;
}

static int engine_change(void *shared, const struct cluster_table *table, const uint8_t *slots)
{
	return kv_cluster_change(shared, table, slots);
}

static bool engine_settled(const void *shared)
{
	return kv_cluster_settled(shared, NULL);
}

static void engine_until(void *shared, uint64_t until)
{
	atomic_store(&((struct kv_shared *)shared)->cluster->until, until);
}

static uint64_t engine_served(const void *shared)
{
	return ((const struct kv_shared *)shared)->cluster->served;
}

static bool engine_serves(const void *shared, const uint8_t *slots)
{
	const struct kv_view *view = view_now(((const struct kv_shared *)shared)->cluster);

	for (unsigned i = 0; i < KV_SLOT_BYTES; i++)
		if (slots[i] & ~(view->here[i] | view->sealed[i]))
			return false;
	return true;
}

/* Slots that are this server's; the others stay as they are. */
static int engine_seal(void *shared, const uint8_t *slots)
{
	struct kv_cluster *cluster = ((struct kv_shared *)shared)->cluster;
	struct kv_view *view;

	if (!slots && !view_now(cluster)->sealed_until)
		return 0;
	view = kv_view_next(cluster);
	if (!view)
		return -ENOMEM;
	for (unsigned i = 0; i < KV_SLOT_BYTES; i++)
		view->sealed[i] = slots ? (uint8_t)((view->here[i] | view->sealed[i]) & slots[i]) : 0;
	view->sealed_until = slots ? time_now() + KV_HOLD : 0;
	kv_view_count(view);
	kv_cluster_publish(cluster, view);
	return 0;
}

const struct service_cluster kv_service_cluster = {
	.change = engine_change,
	.settled = engine_settled,
	.until = engine_until,
	.served = engine_served,
	.serves = engine_serves,
	.seal = engine_seal,
	.receive = kv_moves_receive,
	.moves = &kv_source_moves,
};

/*
 * The sweep
 */

static bool is_old(void *arg, const void *key, size_t key_len)
{
	return cluster_bit(arg, cluster_slot(key, key_len));
}

/* All keys of slots that were lost are gone: slots that are this server's again are served. False: no memory. */
static bool sweep_end(struct kv_cluster *cluster, uint64_t now)
{
	const struct kv_view *before = view_now(cluster);
	struct kv_view *view = kv_view_next(cluster);

	if (!view)
		return false;
	memset(view->old, 0, sizeof(view->old));
	kv_view_count(view);
	kv_cluster_publish(cluster, view);
	cluster->sweeps = false;
	log_info("kv", "cluster %s: swept %u slots, keys %" PRIu64 ", in %llu ms", view->table.name, before->sweeping,
		 cluster->swept, (unsigned long long)((now - cluster->began) / TIME_MS));
	return true;
}

static uint64_t sweep_slots(struct kv_cluster *cluster, uint64_t now)
{
	struct kv_view *view = atomic_load(&cluster->view);
	uint64_t at = now;

	if (!cluster->sweeps) {
		cluster->sweeps = true;
		cluster->cursor = cluster->swept = 0;
		cluster->began = now;
	}
	do {
		cluster->swept += store_sweep_some(cluster->store, &cluster->cursor, is_old, view->old);
		at = time_now();
	} while (cluster->cursor && at < now + SWEEP_TIME);
	if (!cluster->cursor)
		return sweep_end(cluster, at) ? now : at + TIME_S;
	return now;
}

uint64_t kv_cluster_tick(struct kv_cluster *cluster, uint64_t now)
{
	uint64_t next;

	if (!cluster->settled && all_passed(cluster)) {
		cluster->settled = true;
		free_replaced(cluster);
	}
	next = kv_moves_tick(cluster, now);
	if (!cluster->settled)
		return now;
	return view_now(cluster)->sweeping ? sweep_slots(cluster, now) : next;
}

/*
 * Answers
 */

bool kv_overtakes(struct kv_agent *agent, const struct wire_record *request, unsigned slot)
{
	bool overtakes = false;

	for (unsigned i = 0; i < agent->refusals;) {
		if (wire_took_moved(request->status, agent->refusal[i].number)) {
			agent->refusal[i] = agent->refusal[--agent->refusals];
		} else {
			overtakes |= agent->refusal[i++].slot == slot;
		}
	}
	return overtakes;
}

/* Of each slot the last one. */
static void note_refusal(struct kv_agent *agent, unsigned slot)
{
	unsigned i = 0;

	agent->moved++;
	while (i < agent->refusals && agent->refusal[i].slot != slot)
		i++;
	if (i == KV_REFUSALS)
		i = agent->moved % KV_REFUSALS;
	else if (i == agent->refusals)
		agent->refusals++;
	agent->refusal[i] = (struct kv_refusal){(uint16_t)slot, agent->moved};
}

int kv_refuse_elsewhere(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, unsigned slot)
{
	const struct kv_cluster *cluster = ((const struct kv_shared *)agent->thread->part.shared)->cluster;
	const struct kv_view *view = kv_cluster_view(cluster);
	uint16_t owner = view->table.owner[slot];
	bool waits = kv_view_waits(view, slot);
	/* A slot that waits is this server's by the table, and not yet by what it does. */
	struct wire_elsewhere where = {.epoch = waits ? 0 : view->table.epoch, .slot = (uint16_t)slot};
	const char *address = owner == CLUSTER_ABSENT || waits ? "" : view->table.node[owner].address[CLUSTER_NATIVE];
	uint32_t length = (uint32_t)(sizeof(where) + strlen(address));
	struct wire_record *reply;

	reply = conn_reserve(conn, length, NULL);
	if (!reply)
		return -EAGAIN;
	memcpy(reply + 1, &where, sizeof(where));
	memcpy((char *)(reply + 1) + sizeof(where), address, strlen(address));
	kv_agent_count(agent, KV_COUNT_ELSEWHERE);
	note_refusal(agent, slot);
	kv_answer(conn, agent, request, reply, WIRE_MOVED, length, 0);
	return 0;
}

int kv_answer_elsewhere(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, unsigned slot)
{
	const struct kv_cluster *cluster = ((const struct kv_shared *)agent->thread->part.shared)->cluster;

	if (kv_view_holds(cluster, kv_cluster_view(cluster), slot)) {
		kv_hold_retry(conn, agent->thread);
		return -EAGAIN;
	}
	return kv_refuse_elsewhere(conn, agent, request, slot);
}

void kv_cluster_report(const struct kv_cluster *cluster, struct service_report *report)
{
	const struct kv_view *view = view_now(cluster);

	report->begin(report, "cluster");
	report->text(report, "name", view->table.name);
	report->text(report, "node", view->table.node[view->self].name);
	report->number(report, "epoch", view->table.epoch);
	report->number(report, "nodes", view->table.count);
	report->number(report, "slots", view->slots);
	report->number(report, "sweeping_slots", view->sweeping);
	report->number(report, "waiting_slots", view->out ? view->slots : view->waiting);
	report->number(report, "settled", cluster->settled || all_passed(cluster));
	kv_moves_report(cluster, report);
	report->end(report);
}

int kv_serve_table(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		   struct wire_record *reply)
{
	const struct kv_cluster *cluster = ((const struct kv_shared *)agent->thread->part.shared)->cluster;
	uint64_t has = kv_number(body), offset = kv_number(body + sizeof(has));
	const struct kv_view *view;
	struct wire_table head;
	uint32_t room, length;

	if (!cluster)
		return kv_answer_status(conn, agent, request, WIRE_UNSUPPORTED, 0, 0);
	reply = conn_reserve(conn, KV_GATE_BODY, &room);
	if (!reply)
		return -EAGAIN;
	view = kv_cluster_view(cluster);
	head = (struct wire_table){view->table.epoch, view->length};
	memcpy(reply + 1, &head, sizeof(head));
	offset = has == head.epoch ? head.length : MIN(offset, head.length);
	length = (uint32_t)MIN(head.length - offset, room - sizeof(head));
	memcpy((char *)(reply + 1) + sizeof(head), view->text + offset, length);
	kv_answer(conn, agent, request, reply, WIRE_OK, (uint32_t)sizeof(head) + length, 0);
	return 0;
}
