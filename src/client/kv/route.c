/*
 * route.c: where the requests of a cluster's handle go. The table says which node has a key, and the request becomes
 * one of that node's handle, which knows nothing of the others. What was submitted is kept beside its slot: a server
 * that answers that it has not the key has not carried it out, and so it is submitted again, by a newer table or later.
 * Such requests wait in a list, which a timer looks at, in the caller's turn.
 */
#include "client/kv/kv.h"

#include <stdlib.h>

#define TRIES 8 /* to submit a request, and to read a table for it */
#define FIRST_PAUSE (10 * TIME_MS)
#define LONGEST_PAUSE TIME_S
#define FULL_PAUSE TIME_MS
#define KEPT_MIN 256              /* bytes that there is room for */
#define READING_TIME (5 * TIME_S) /* for a table */

static uint64_t pause_after(unsigned tries)
{
	return MIN(FIRST_PAUSE << MIN(tries, 16u), LONGEST_PAUSE);
}

struct kv *kv_route_to(const struct kv *kv, const void *key, size_t key_len)
{
	return kv_node_of(kv, cluster_slot(key, key_len));
}

bool kv_route_gone(int status)
{
	return status == -ENOTCONN || status == -ESHUTDOWN;
}

/* Whether a request only asks for what is there, so that it may be answered that nothing is. */
static bool only_reads(const struct ask *ask)
{
	struct kv_fetch_head head;

	switch (ask->op) {
	case WIRE_OP_GET:
	case WIRE_OP_GET_INTO:
	case WIRE_OP_EXISTS:
	case WIRE_OP_STAT:
	case WIRE_OP_LEASE:
		return true;
	case WIRE_OP_FETCH:
		memcpy(&head, ask->head, sizeof(head));
		return head.fetch.then == WIRE_THEN_NOTHING;
	default:
		return false;
	}
}

/* What its caller is told of a node that is not there. */
static int status_of(const struct kv_nodes *nodes, const struct ask *ask, int status)
{
	bool gone = kv_route_gone(status) || status == -ECONNABORTED || status == -EPROTO;

	return gone && nodes->miss && only_reads(ask) ? -ENOENT : status;
}

/*
 * Requests under way
 */

/* Makes room for so many bytes. NULL: no memory. */
static struct kv_kept *kept_room(struct kv_kept **place, size_t room)
{
	if (*place && (*place)->room >= room)
		return *place;
	free(*place);
	room = MAX(room, (size_t)KEPT_MIN);
	*place = malloc(sizeof(**place) + room);
	if (*place)
		(*place)->room = room;
	return *place;
}

/* What goes in the message, the caller may change: it is copied. NULL: no memory. */
static struct kv_kept *ask_keep(struct kv_kept **place, const struct ask *ask, bool large)
{
	const bool pieces = ask->value && ask->pieces, gathered = pieces && !large;
	size_t value = pieces && large ? ask->pieces * sizeof(struct iovec) : large ? 0 : ask->value_len;
	struct kv_kept *kept = kept_room(place, value + ask->head_len + ask->key_len);
	char *at;

	if (!kept)
		return NULL;
	kept->packed = false;
	kept->fails = 0;
	kept->order = 0;
	kept->ask = *ask;
	at = kept->bytes;
	if (gathered)
		kv_pieces_gather(ask->value, ask->pieces, SIZE_MAX, at);
	else if (value)
		memcpy(at, ask->value, value);
	if (value)
		kept->ask.value = at;
	if (gathered)
		kept->ask.pieces = 0;
	at += value;
	if (ask->head_len)
		memcpy(at, ask->head, ask->head_len);
	kept->ask.head = at;
	at += ask->head_len;
	memcpy(at, ask->key, ask->key_len);
	kept->ask.key = at;
	return kept;
}

/* It is this request of a node now. */
static void kept_submitted(struct kv_kept *kept, const struct request *r, uint64_t epoch, unsigned tries)
{
	kept->id = r->id;
	kept->tries = (uint8_t)tries;
	kept->epoch = epoch;
}

static struct kv_kept **kept_place(const struct kv *node, const struct request *r)
{
	return &node->kept[r->id % KV_SLOTS];
}

/* Not inlined: the common way saves no registers for it. */
static __attribute__((cold, noinline)) void keep_more(struct kv *node, const struct kv_nodes *nodes,
						      const struct wire_record *record, const struct request *r)
{
	if (kept_room(kept_place(node, r), sizeof(*record) + record->length))
		kv_route_keep(node, nodes, record, r);
}

void kv_route_keep(struct kv *node, const struct kv_nodes *nodes, const struct wire_record *record,
		   const struct request *r)
{
	struct kv_kept *kept = *kept_place(node, r);
	size_t length = sizeof(*record) + record->length;

	if (unlikely(!kept) || unlikely(kept->room < length)) {
		keep_more(node, nodes, record, r);
		return;
	}
	kept->packed = true;
	kept->id = r->id;
	kept->epoch = nodes->epoch;
	memcpy(kept->bytes, record, length);
}

void kv_route_keep_large(struct kv *node, const struct ask *ask, const struct request *r)
{
	struct kv_kept *kept = ask_keep(kept_place(node, r), ask, r->large);

	if (kept)
		kept_submitted(kept, r, node->whole->nodes->epoch, 1);
}

static struct kv_kept *kept_of(const struct kv *node, const struct request *r)
{
	struct kv_kept *kept = *kept_place(node, r);

	if (!kept || kept->id != r->id)
		return NULL;
	if (!kept->packed)
		return kept;
	kv_ask_read(&kept->ask, (const struct wire_record *)kept->bytes);
	kept->packed = false;
	kept->tries = 1;
	kept->fails = 0;
	kept->order = 0;
	return kept;
}

void kv_route_forget(struct kv *node)
{
	for (unsigned i = 0; node->kept && i < KV_SLOTS; i++)
		free(node->kept[i]);
	free(node->kept);
	node->kept = NULL;
}

static int slot_nowhere(const struct kv *kv, unsigned slot)
{
	return log_fail(-EREMOTE, "kv", "%s: no server has slot %u, which is the key's, by the table of epoch %llu",
			kv->server, slot, (unsigned long long)kv->nodes->epoch);
}

static void wait_until(struct kv *kv, struct kv_kept *kept, uint64_t when);

/* Others of its slot wait to be submitted again: it is submitted behind them. */
static int submit_behind(struct kv *kv, const struct ask *ask, unsigned slot, bool large)
{
	struct kv_kept *kept = NULL;

	if (kv->nodes->waiters >= KV_SLOTS)
		return -EAGAIN;
	if (!ask_keep(&kept, ask, large))
		return log_fail(-ENOMEM, "kv", "no memory for a request");
	kept->slot = (uint16_t)slot;
	kept->order = KV_ORDER_NEW;
	kept->tries = 0;
	kept->status = 0;
	kept->answered = 0;
	wait_until(kv, kept, 0);
	return 0;
}

struct kv *kv_route_aside(struct kv *kv, const struct ask *ask, unsigned slot, int *rc)
{
	struct kv *node = kv_node_of(kv, slot);
	int large;

	kv->nodes->spoke = node;
	if (kv->ending)
		*rc = -ENOTCONN;
	else if (!node)
		*rc = slot_nowhere(kv, slot);
	if (*rc != 0)
		return NULL;
	large = kv->nodes->waits[slot] ? kv_goes_large(node, ask) : -1;
	if (large < 0)
		return node; /* it goes there, or is refused there */
	*rc = submit_behind(kv, ask, slot, large);
	return NULL;
}

int kv_route_failed(struct kv *kv, struct kv *node, const struct ask *ask, int rc)
{
	int status = status_of(kv->nodes, ask, rc);

	kv->nodes->spoke = node;
	return status == rc ? rc : kv_route_tell(kv, ask, status);
}

int kv_route_end_status(const struct kv *node, const struct request *r, int status)
{
	const struct kv_kept *kept = kept_of(node, r);

	return kept ? status_of(node->whole->nodes, &kept->ask, status) : status;
}

/*
 * Requests that wait
 */

/* The caller's turn looks at the list, not before that time. */
static void see_soon(struct kv *kv, uint64_t when)
{
	struct kv_nodes *nodes = kv->nodes;

	if (engine_defers(kv->engine))
		engine_defer(kv->engine, &nodes->deferred);
	else if (!list_linked(&nodes->timer.node) || nodes->timer.when > when)
		engine_timer_set(kv->engine, &nodes->timer, when);
}

static bool is_of_slot(const struct kv_kept *kept, unsigned slot)
{
	return kept->status == 0 && kept->slot == slot;
}

/* Into the list, to be seen to at that time: those of a slot by their order. */
static void wait_until(struct kv *kv, struct kv_kept *kept, uint64_t when)
{
	struct kv_nodes *nodes = kv->nodes;
	struct kv_kept **at = nodes->waiting_tail;

	kept->when = when;
	kept->behind = false;
	if (kept->status == 0 && nodes->waits[kept->slot]++) {
		for (at = &nodes->waiting; *at; at = &(*at)->next) {
			if (is_of_slot(*at, kept->slot) && (*at)->order > kept->order)
				break;
			kept->behind |= is_of_slot(*at, kept->slot);
		}
		if (*at && !kept->behind)
			(*at)->behind = true;
	}
	kept->next = *at;
	*at = kept;
	if (!kept->next)
		nodes->waiting_tail = &kept->next;
	nodes->waiters++;
	if (when != TIME_NEVER && !kept->behind)
		see_soon(kv, when);
}

/* Out of the list, whose place for it is `at`. */
static struct kv_kept *kept_take(struct kv_nodes *nodes, struct kv_kept **at)
{
	struct kv_kept *kept = *at, *next = kept->next;

	*at = next;
	if (nodes->waiting_tail == &kept->next)
		nodes->waiting_tail = at;
	nodes->waiters--;
	if (kept->status != 0 || !--nodes->waits[kept->slot] || kept->behind)
		return kept;
	while (!is_of_slot(next, kept->slot))
		next = next->next;
	next->behind = false;
	return kept;
}

static void kept_tell(struct kv *kv, struct kv_kept *kept, int status)
{
	const struct kv_result outcome = {.status = status};
	const struct ask ask = kept->ask;

	free(kept);
	++*kv->completed;
	if (ask.result)
		ask.result(ask.arg, &outcome);
	else if (ask.done)
		ask.done(ask.arg, status, NULL, 0);
}

int kv_route_tell(struct kv *kv, const struct ask *ask, int status)
{
	struct kv_kept *kept;

	if (kv->nodes->waiters >= KV_SLOTS)
		return -EAGAIN;
	kept = calloc(1, sizeof(*kept));
	if (!kept)
		return -ENOMEM;
	kept->ask.result = ask->result;
	kept->ask.done = ask->done;
	kept->ask.arg = ask->arg;
	kept->status = status;
	wait_until(kv, kept, time_now());
	return 0;
}

int kv_route_tell_outside(struct kv *kv, const struct ask *ask, int status)
{
	int rc;

	kv_enter(kv);
	rc = kv_route_tell(kv, ask, status);
	kv_leave(kv);
	return rc;
}

/* Two servers that go by one table do not agree on it. */
static void say_fault(struct kv_nodes *nodes, const struct kv *node)
{
	const struct kv_elsewhere *e = &node->elsewhere;

	snprintf(nodes->fault, sizeof(nodes->fault),
		 "%.120s says that slot %u is at %.127s, and has the table of epoch %llu, by which it is its own",
		 node->server, e->where.slot, *e->address ? e->address : "no server",
		 (unsigned long long)e->where.epoch);
}

static void elsewhere_read(struct kv *node, const struct wire_record *record, const char *body)
{
	struct kv_elsewhere *e = &node->elsewhere;
	size_t length = record->length - sizeof(e->where);

	memset(e, 0, sizeof(*e));
	e->told = true;
	memcpy(&e->where, body, sizeof(e->where));
	if (length < sizeof(e->address) && wire_printable(body + sizeof(e->where), length))
		memcpy(e->address, body + sizeof(e->where), length);
}

bool kv_route_moved(struct kv *node, struct request *r, const struct wire_record *record, const char *body)
{
	struct kv *kv = node->whole;
	struct kv_nodes *nodes = kv->nodes;
	struct kv_kept *kept = kept_of(node, r);
	uint64_t epoch, now = time_now();
	bool fault;

	node->elsewhere.told = false;
	if (record->length < sizeof(struct wire_elsewhere))
		return false;
	elsewhere_read(node, record, body);
	if (!kept || request_is_orphan(r) || kv->ending)
		return false;
	*kept_place(node, r) = NULL;
	kept->ask.result = r->result;
	kept->ask.done = r->done;
	kept->ask.arg = r->result ? r->result_arg : r->arg;
	request_pass_on(node, r);
	epoch = node->elsewhere.where.epoch;
	kept->from = node;
	kept->answered = epoch > kept->epoch ? epoch : 0;
	fault = epoch == kept->epoch && epoch == nodes->epoch;
	kept->status = fault || kept->tries >= TRIES ? -EREMOTE : 0;
	kept->slot = (uint16_t)cluster_slot(kept->ask.key, kept->ask.key_len);
	if (!kept->order)
		kept->order = ++nodes->order;
	if (fault)
		say_fault(nodes, node);
	wait_until(kv, kept, epoch < kept->epoch ? now + pause_after(kept->tries - 1u) : now);
	return true;
}

/*
 * Tables that are read for them
 */

static void table_came(void *arg, int status, const void *value, size_t length);

/* The caller neither counts nor awaits this request: so it counts as a request that was given up. */
static int table_ask(struct kv *kv)
{
	struct kv_nodes *nodes = kv->nodes;
	const struct kv_table_head head = kv_table_next(nodes->text);
	const struct ask ask = {
		.op = WIRE_OP_TABLE, .head = &head, .head_len = sizeof(head), .done = table_came, .arg = kv};
	struct request *r;
	int rc = request_submit(nodes->from, &ask, &r);

	nodes->from->orphans += rc == 0;
	return rc;
}

static void table_end(struct kv *kv, bool read);

static void table_begin(struct kv *kv, struct kv *from)
{
	struct kv_nodes *nodes = kv->nodes;

	nodes->text = calloc(1, sizeof(*nodes->text));
	nodes->from = from;
	nodes->reading_until = time_now() + READING_TIME;
	from->asks = false;
	if (nodes->text)
		nodes->text->has = nodes->epoch;
	if (!nodes->text || table_ask(kv) != 0)
		table_end(kv, false);
}

/* The table of the next server of which it is wanted, one after the other. */
static void table_next(struct kv *kv)
{
	struct kv_nodes *nodes = kv->nodes;

	for (unsigned i = 0; !nodes->text && !kv->ending && i < nodes->count; i++)
		if (nodes->member[i]->asks && nodes->member[i]->taking)
			table_begin(kv, nodes->member[i]);
}

void kv_route_ask(struct kv *kv, struct kv *node)
{
	node->asks = true;
	kv->nodes->asked = time_now();
	table_next(kv);
}

/* Another may know whether it is in the table at all. */
void kv_route_away(struct kv *kv)
{
	struct kv_nodes *nodes = kv->nodes;

	if (time_now() - nodes->asked < LONGEST_PAUSE)
		return;
	for (unsigned i = 0; i < nodes->count; i++) {
		struct kv *node = nodes->member[nodes->next_asked++ % nodes->count];

		if (node->taking) {
			kv_route_ask(kv, node);
			return;
		}
	}
}

static void table_end(struct kv *kv, bool read)
{
	struct kv_nodes *nodes = kv->nodes;
	uint64_t now = time_now();

	free(nodes->text);
	nodes->text = NULL;
	for (struct kv_kept *kept = nodes->waiting; kept; kept = kept->next)
		if (kept->when == TIME_NEVER) {
			kept->when = read ? now : now + pause_after(kept->fails);
			kept->fails++;
		}
	see_soon(kv, now);
	table_next(kv);
}

static void table_came(void *arg, int status, const void *value, size_t length)
{
	struct kv *kv = arg;
	struct kv_nodes *nodes = kv->nodes;
	int rc = status;

	nodes->from->orphans--;
	engine_uncount(kv->engine);
	if (rc == 0)
		rc = kv_table_page(nodes->text, value, length);
	if (rc == 1 && table_ask(kv) == 0)
		return;
	table_end(kv, rc == 0 && kv_table_take(kv, nodes->from, nodes->text) == 0);
}

static bool request_is_table(const struct request *r, const struct kv *kv)
{
	return r->done == table_came && r->arg == kv;
}

/* Gives up a table that does not come. */
static void table_abandon(struct kv *kv)
{
	struct kv *from = kv->nodes->from;

	for (uint32_t i = 0; i < from->slots; i++)
		if (request_is_table(kv_slot(from, i), kv))
			request_orphan(from, kv_slot(from, i)), from->orphans--;
	table_end(kv, false);
}

/* The server that answered can be asked for its table: it is not gone, and was not freed. */
static bool can_be_asked(const struct kv_nodes *nodes, const struct kv *from)
{
	for (unsigned i = 0; i < nodes->count; i++)
		if (nodes->member[i] == from)
			return from->taking;
	return false;
}

/* It waits until the server's table is here; where that cannot be asked any more, for a while, as others may know. */
static void table_await(struct kv *kv, struct kv_kept *kept, uint64_t now)
{
	if (can_be_asked(kv->nodes, kept->from)) {
		wait_until(kv, kept, TIME_NEVER);
		kept->from->asks = true;
		table_next(kv);
	} else {
		wait_until(kv, kept, now + pause_after(kept->fails++));
		kv_route_away(kv);
	}
}

/*
 * Seeing to them
 */
static void submit_again(struct kv *kv, struct kv_kept *kept, uint64_t now)
{
	struct kv_nodes *nodes = kv->nodes;
	struct kv *node = kv_node_of(kv, kept->slot);
	struct kv_kept **place;
	struct request *r;
	int rc = -ECONNABORTED;

	if (!kv->ending)
		rc = node ? request_submit(node, &kept->ask, &r) : slot_nowhere(kv, kept->slot);
	if (rc == -EAGAIN) {
		wait_until(kv, kept, now + FULL_PAUSE);
	} else if (rc != 0) {
		kept_tell(kv, kept, status_of(nodes, &kept->ask, rc));
	} else { /* the value may be sent from where it is kept */
		kept_submitted(kept, r, nodes->epoch, kept->tries + 1u);
		if (kept->order == KV_ORDER_NEW)
			kept->order = ++nodes->order;
		place = kept_place(node, r);
		free(*place);
		*place = kept;
	}
}

/* Whether its value is still sent to the server that refused it, from memory that is the caller's again when this
 * request has its answer. */
static bool is_sent_still(const struct kv_nodes *nodes, const struct kv_kept *kept)
{
	const struct request *r;

	if (kept->order == KV_ORDER_NEW)
		return false;
	for (unsigned i = 0; i < nodes->count; i++) {
		if (!kept->from || nodes->member[i] != kept->from || kept->id % KV_SLOTS >= kept->from->slots)
			continue;
		r = kv_slot(kept->from, kept->id);
		return r->id == kept->id && r->push;
	}
	return false;
}

static void see_to(struct kv *kv, struct kv_kept *kept, uint64_t now)
{
	if (unlikely(is_sent_still(kv->nodes, kept)))
		wait_until(kv, kept, now + FULL_PAUSE);
	else if (kept->status != 0)
		kept_tell(kv, kept, kept->status);
	else if (kept->answered <= kv->nodes->epoch)
		submit_again(kv, kept, now);
	else if (kept->fails >= TRIES)
		kept_tell(kv, kept, -EREMOTE);
	else
		table_await(kv, kept, now);
}

/* Callbacks may submit more, and cancel what waits: so from the start again after each. */
static void nodes_due(struct kv *kv)
{
	struct kv_nodes *nodes = kv->nodes;
	uint64_t now = time_now(), next = TIME_NEVER;
	struct kv_kept **at = &nodes->waiting;

	if (nodes->text && now >= nodes->reading_until)
		table_abandon(kv);
	while (*at) {
		if ((*at)->when <= now && !(*at)->behind) {
			see_to(kv, kept_take(nodes, at), now);
			at = &nodes->waiting;
		} else {
			at = &(*at)->next;
		}
	}
	for (struct kv_kept *kept = nodes->waiting; kept; kept = kept->next)
		next = kept->behind ? next : MIN(next, kept->when);
	if (nodes->text)
		next = MIN(next, nodes->reading_until);
	if (next != TIME_NEVER)
		engine_timer_set(kv->engine, &nodes->timer, next);
}

int kv_route_drop(struct kv *kv, bool (*is)(const struct ask *ask, const void *arg), const void *arg, bool told)
{
	struct kv_nodes *nodes = kv->nodes;
	bool before = engine_callbacks_begin(kv->engine);
	struct kv_kept *out = NULL, **end = &out;
	int n = 0;

	for (struct kv_kept **at = &nodes->waiting; *at;) {
		if (is(&(*at)->ask, arg)) {
			*end = kept_take(nodes, at);
			end = &(*end)->next;
			*end = NULL;
		} else {
			at = &(*at)->next;
		}
	}
	for (; out; n++) {
		struct kv_kept *kept = out;

		out = kept->next;
		if (told)
			kept_tell(kv, kept, -ECANCELED);
		else
			free(kept);
	}
	if (n && nodes->waiting) /* those behind them may be the first now */
		see_soon(kv, time_now());
	engine_callbacks_end(kv->engine, before);
	return n;
}

static void timer_due(struct engine_timer *timer)
{
	nodes_due(container_of(timer, struct kv_nodes, timer)->whole);
}

static void nodes_deliver(struct deferred *deferred)
{
	nodes_due(container_of(deferred, struct kv_nodes, deferred)->whole);
}

void kv_route_init(struct kv *kv)
{
	struct kv_nodes *nodes = kv->nodes;

	nodes->whole = kv;
	nodes->waiting_tail = &nodes->waiting;
	nodes->timer.due = timer_due;
	nodes->deferred.deliver = nodes_deliver;
}

void kv_route_end(struct kv *kv, int status)
{
	struct kv_nodes *nodes = kv->nodes;
	bool before = engine_callbacks_begin(kv->engine);

	free(nodes->text);
	nodes->text = NULL;
	while (nodes->waiting)
		kept_tell(kv, kept_take(nodes, &nodes->waiting), status);
	engine_timer_cancel(kv->engine, &nodes->timer);
	engine_callbacks_end(kv->engine, before);
}

/*
 * Calls that wait
 */

/* The server has not the key: whether it is worth asking again. 0, or the call's answer. */
static int call_moved(struct kv *kv, struct kv *node, uint64_t by, unsigned tries)
{
	const uint64_t epoch = node->elsewhere.where.epoch;
	const bool never = false;
	int rc = 0;

	if (!node->elsewhere.told)
		return -EREMOTE;
	if (epoch == by && by == kv->nodes->epoch) {
		say_fault(kv->nodes, node);
		return log_fail(-EREMOTE, "kv", "%s", kv->nodes->fault);
	}
	if (epoch > kv->nodes->epoch)
		rc = kv_table_learn(kv, node);
	if (rc == 0 && epoch >= by && epoch <= kv->nodes->epoch)
		return 0;
	rc = engine_wait(kv->engine, &never, pause_after(tries - 1));
	return rc == -ETIMEDOUT ? 0 : rc;
}

/* Requests of its slot wait that were submitted before it. */
static int call_behind(struct kv *kv, unsigned slot)
{
	const uint64_t until = time_after(time_now(), kv->options.timeout);
	const bool never = false;
	int rc = -ETIMEDOUT;

	while (rc == -ETIMEDOUT && kv->nodes->waits[slot] && time_now() < until)
		rc = engine_wait(kv->engine, &never, FULL_PAUSE);
	return rc == -ETIMEDOUT && !kv->nodes->waits[slot] ? 0 : rc;
}

static int call_inside(struct kv *kv, struct ask *ask, struct kv_call *call,
		       int (*run)(struct kv *kv, struct ask *ask, struct kv_call *call))
{
	int rc = unlikely(kv->nodes->waiters) ? call_behind(kv, cluster_slot(ask->key, ask->key_len)) : 0;

	if (rc != 0)
		return rc;
	for (unsigned tries = 1; tries <= TRIES; tries++) {
		struct kv *node = kv_route_to(kv, ask->key, ask->key_len);
		uint64_t by = kv->nodes->epoch;

		kv->nodes->spoke = node;
		if (!node)
			return slot_nowhere(kv, cluster_slot(ask->key, ask->key_len));
		rc = run(node, ask, call);
		if (rc != -EREMOTE)
			return status_of(kv->nodes, ask, rc);
		rc = tries < TRIES ? call_moved(kv, node, by, tries) : 0;
		if (rc != 0)
			return rc;
	}
	return log_fail(-EREMOTE, "kv",
			"%s: none of %u servers that were asked in turn has slot %u; see rdmad-cluster(7)", kv->server,
			TRIES, cluster_slot(ask->key, ask->key_len));
}

int kv_route_call(struct kv *kv, struct ask *ask, struct kv_call *call,
		  int (*run)(struct kv *kv, struct ask *ask, struct kv_call *call))
{
	int rc;

	if (!ask->key || !ask->key_len)
		return log_fail(-EINVAL, "kv", "a request needs a key of at least one byte");
	rc = kv_readable(ask->key, ask->key_len, "the key");
	if (rc != 0)
		return rc;
	kv_enter(kv);
	rc = call_inside(kv, ask, call, run);
	kv_leave(kv);
	return rc;
}
