/*
 * rendezvous.c: large values. The server moves the bytes: it reads a SET's value from the caller's memory into its
 * final place in the arena, and writes a GET's value from the arena into the caller's landing buffer. So nothing of
 * the store is ever remotely accessible, and no byte is copied by a processor. A value is pinned while the
 * wire touches it.
 *
 * SET: free, reserved, reading, published, waiting where no message has room for the answer, free. A long one for which
 * others have to be evicted is read in pieces, and room for a piece is made when the one before the last has come: a
 * client that never sends costs no more than that. Growing: room for its next piece is not there yet, and none is on
 * its way. GET: free, reserved, uncommitted where the value is newer than what is on disk, writing, free.
 */
#include "service/kv/kv.h"

#include <stdlib.h>

#define AFTER(state) (1u << KV_TRANSFER_##state)

static const struct {
	const char *name;
	unsigned after; /* the states that it may follow */
	bool holds;     /* the value's bytes count in kv_hold */
} states[KV_TRANSFER_STATES] = {
	[KV_TRANSFER_FREE] = {"free", AFTER(RESERVED) | AFTER(READING) | AFTER(GROWING) | AFTER(UNCOMMITTED) |
					      AFTER(WRITING) | AFTER(PUBLISHED) | AFTER(WAITING)},
	[KV_TRANSFER_RESERVED] = {"reserved", AFTER(FREE), true},
	[KV_TRANSFER_READING] = {"reading", AFTER(RESERVED) | AFTER(GROWING), true},
	[KV_TRANSFER_GROWING] = {"growing", AFTER(READING), true},
	[KV_TRANSFER_UNCOMMITTED] = {"uncommitted", AFTER(RESERVED), true},
	[KV_TRANSFER_WRITING] = {"writing", AFTER(RESERVED) | AFTER(UNCOMMITTED), true},
	[KV_TRANSFER_PUBLISHED] = {"published", AFTER(READING) | AFTER(GROWING)},
	[KV_TRANSFER_WAITING] = {"waiting", AFTER(PUBLISHED)},
};

/* NULL: in none. */
static struct list *list_of(struct kv_agent *agent, enum kv_transfer_state state)
{
	if (state == KV_TRANSFER_READING || state == KV_TRANSFER_GROWING)
		return &agent->sets;
	if (state == KV_TRANSFER_UNCOMMITTED)
		return &agent->uncommitted;
	return state == KV_TRANSFER_WAITING ? &agent->finished : NULL;
}

static bool in_its_list(const struct kv_transfer *t)
{
	const struct list *list = list_of(t->agent, t->state);

	if (!list)
		return !list_linked(&t->node);
	list_for_each (at, list)
		if (at == &t->node)
			return true;
	return false;
}

void kv_transfer_set_state(struct kv_transfer *t, enum kv_transfer_state state)
{
	struct list *from = list_of(t->agent, t->state), *to = list_of(t->agent, state);

	must(states[state].after & 1u << t->state);
	must(in_its_list(t));
	log_debug("kv", "transfer of %llu bytes: %s to %s", (unsigned long long)t->ref.len, states[t->state].name,
		  states[state].name);
	if (from)
		list_del(&t->node);
	if (states[t->state].holds && !states[state].holds)
		kv_hold_give(t->agent, t->ref.len);
	t->state = state;
	if (to)
		list_add_tail(to, &t->node);
	t->agent->beside &= ~(unsigned)KV_BESIDE_SETS;
	t->agent->beside |= list_empty(&t->agent->sets) ? 0 : KV_BESIDE_SETS;
}

/* Transfers are kept by the thread for the next request. What `ref` holds goes with the transfer once it is posted;
 * what was taken of kv_hold goes with it at once, or back. */
static struct kv_transfer *transfer_take(struct kv_agent *agent, const struct store_ref *ref)
{
	struct kv_thread *thread = agent->thread;
	struct kv_transfer *t = thread->free_transfers;

	if (t)
		thread->free_transfers = t->next_free;
	else
		t = malloc(sizeof(*t) + WIRE_PIECES_MAX * sizeof(t->kept[0]));
	if (!t) {
		kv_hold_cancel(agent, ref->len);
		return NULL;
	}
	*t = (struct kv_transfer){.agent = agent, .ref = *ref};
	list_init(&t->node);
	kv_transfer_set_state(t, KV_TRANSFER_RESERVED);
	return t;
}

static void transfer_give(struct kv_transfer *t)
{
	struct kv_thread *thread = t->agent->thread;

	kv_transfer_set_state(t, KV_TRANSFER_FREE);
	t->next_free = thread->free_transfers;
	thread->free_transfers = t;
}

void kv_thread_clear(struct service_part *part)
{
	struct kv_thread *thread = container_of(part, struct kv_thread, part);

	while (thread->free_transfers) {
		struct kv_transfer *t = thread->free_transfers;

		thread->free_transfers = t->next_free;
		free(t);
	}
}

static bool ranges_read(const struct conn *conn, struct kv_named *named, const char *body, size_t len)
{
	struct kv_ranges *ranges = &named->ranges;

	*ranges = (struct kv_ranges){.at = named->at, .count = (unsigned)(len / sizeof(named->at[0]))};
	if (!len || len % sizeof(named->at[0]) || ranges->count > MAX(conn_granted(conn)->pieces, 1))
		return false;
	memcpy(named->at, body, len);
	for (unsigned i = 0; i < ranges->count; i++)
		if (!named->at[i].length || named->at[i].addr + named->at[i].length < named->at[i].addr ||
		    __builtin_add_overflow(ranges->length, named->at[i].length, &ranges->length))
			return false;
	return true;
}

bool kv_named_read(const struct conn *conn, const struct wire_record *request, const char *body, uint32_t head,
		   bool may_be_none, struct kv_named *named)
{
	const bool pieces = request->op == WIRE_OP_PUT_PIECES || request->op == WIRE_OP_FETCH_PIECES;
	const uint32_t before = pieces ? 0 : sizeof(named->at[0]), rest = request->length - before - head;

	named->head = body + before;
	named->key = named->head + head;
	named->key_len = pieces ? request->arg : rest;
	if (named->key_len < 1 || named->key_len > MIN(WIRE_KEY_MAX, rest))
		return false;
	if (pieces)
		return ranges_read(conn, named, named->key + named->key_len, rest - named->key_len);
	return ranges_read(conn, named, body, before) ||
	       (may_be_none && named->ranges.length == 0 && named->at[0].length == 0);
}

/* All of `here`, from or to the ranges behind their first `skip` bytes, which are no shorter. */
static int ranges_post(struct conn *conn, struct conn_transfer *wire, enum fabric_opcode opcode,
		       const struct kv_ranges *ranges, uint64_t skip, struct fabric_sge here)
{
	struct conn_part parts[WIRE_PIECES_MAX];
	const struct wire_remote *there = ranges->at;
	unsigned n = 0;

	for (; skip >= there->length; there++)
		skip -= there->length;
	for (; here.len; n++, there++, skip = 0) {
		size_t len = MIN(here.len, there->length - skip);

		parts[n] = (struct conn_part){
			.opcode = opcode,
			.sge_count = 1,
			.sge = {{here.addr, len, here.region}},
			.remote_addr = there->addr + skip,
			.rkey = there->rkey,
		};
		here.addr = (char *)here.addr + len;
		here.len -= len;
	}
	return conn_transfer_chain(conn, wire, parts, n);
}

const struct kv_transfer *kv_key_busy(const struct kv_agent *agent, const void *key, size_t key_len)
{
	uint64_t hash;

	if (likely(list_empty(&agent->sets)))
		return NULL;
	hash = hash_bytes(key, key_len);
	list_for_each (pos, &agent->sets)
		if (container_of(pos, const struct kv_transfer, node)->key_hash == hash)
			return container_of(pos, const struct kv_transfer, node);
	return NULL;
}

/*
 * Reading: a write into the caller's memory.
 */

/* The value is in the caller's memory, or never will be: it may go. */
static void kv_get_done(struct conn_transfer *wire, enum fabric_status status)
{
	struct kv_transfer *t = container_of(wire, struct kv_transfer, wire);

	must(t->state == KV_TRANSFER_WRITING);
	/* A failed write ends the connection, and the answer behind it never arrives. */
	if (status == FABRIC_OK)
		service_part_moved(&t->agent->thread->part, SERVICE_OUT, t->since);
	store_unpin(t->agent->thread->store, &t->ref);
	transfer_give(t);
}

static struct kv_transfer *write_take(struct kv_agent *agent, const struct wire_record *request,
				      const struct kv_write *write, const struct store_ref *ref)
{
	struct kv_transfer *t = transfer_take(agent, ref);

	if (!t)
		return NULL;
	t->wire.done = kv_get_done;
	t->request = *request;
	t->request.flags &= (uint8_t)~WIRE_DURABLE; /* that is seen to before it is answered */
	t->write = *write;
	return t;
}

static int write_post(struct conn *conn, struct kv_transfer *t)
{
	const struct kv_write *w = &t->write;
	struct fabric_sge from = {(char *)t->ref.addr + w->at, w->len, t->agent->arena};
	int rc = ranges_post(conn, &t->wire, FABRIC_WRITE, &w->to, 0, from);

	if (rc != 0)
		return rc;
	t->since = kv_now(t->agent->thread);
	kv_transfer_set_state(t, KV_TRANSFER_WRITING);
	kv_agent_count(t->agent, KV_COUNT_WRITES);
	return 0;
}

int kv_write_part(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
		  const struct kv_write *write, const struct store_ref *ref)
{
	struct kv_transfer *t = write_take(agent, request, write, ref);
	int rc = t ? write_post(conn, t) : -ENOMEM;

	if (t && rc != 0)
		transfer_give(t);
	return rc;
}

void kv_write_answer(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
		     struct wire_record *reply, const struct kv_write *write)
{
	memcpy(reply + 1, write->body, write->body_len);
	reply->flags |= WIRE_WRITTEN;
	kv_answer(conn, agent, request, reply, WIRE_OK, write->body_len, 0);
}

/* Post the write, then its answer behind it: one round trip in all. */
static int write_and_answer(struct conn *conn, struct kv_transfer *t, struct wire_record *reply)
{
	struct kv_agent *agent = t->agent;
	struct wire_record request = t->request;
	struct kv_write write = t->write;
	int rc = write_post(conn, t);

	if (rc == 0)
		kv_write_answer(conn, agent, &request, reply, &write);
	return rc;
}

int kv_write_value(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
		   struct wire_record *reply, const struct kv_write *write, const struct store_ref *ref)
{
	struct kv_transfer *t = write_take(agent, request, write, ref);
	int rc;

	if (!t)
		return -ENOMEM;
	if (write->later || (kv_gate_may_wait(agent, request, write->tells) && kv_gate_waits(agent, write->tells))) {
		memcpy(t->kept, write->to.at, write->to.count * sizeof(t->kept[0]));
		t->write.to.at = t->kept;
		kv_transfer_set_state(t, KV_TRANSFER_UNCOMMITTED);
		kv_gate_join(conn, agent, write->tells);
		return 0;
	}
	rc = write_and_answer(conn, t, reply);
	if (rc != 0)
		transfer_give(t);
	return rc;
}

/* Ends the wait: the transfer goes on, or has failed. False: there is no room now. */
static bool uncommitted_end(struct conn *conn, struct kv_transfer *t, bool failed)
{
	struct wire_record *reply = conn_reserve(conn, KV_WRITE_BODY, NULL);

	if (!reply)
		return false;
	if (failed) {
		kv_answer(conn, t->agent, &t->request, reply, WIRE_READ_ONLY, 0, 0);
		store_unpin(t->agent->thread->store, &t->ref);
		transfer_give(t);
		return true;
	}
	if (conn_transfer_room(conn, t->write.to.count))
		return write_and_answer(conn, t, reply) == 0;
	conn_wait_writable(conn);
	return false;
}

unsigned kv_rendezvous_committed(struct conn *conn, struct kv_agent *agent, uint64_t durable, bool failed)
{
	unsigned n = 0;

	for (; !list_empty(&agent->uncommitted); n++) {
		struct kv_transfer *t = list_first(&agent->uncommitted, struct kv_transfer, node);

		if (t->write.tells > durable && !failed)
			break;
		if (!uncommitted_end(conn, t, t->write.tells > durable))
			break;
		agent->reads--;
	}
	return n;
}

/* Puts the value into the answer, which is cheaper than a write of its own, though it may take a message of its own. */
static int inline_value(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
			const struct store_ref *ref)
{
	uint32_t head = request->flags & WIRE_VERSIONED;
	struct wire_record *reply = conn_reserve(conn, (uint32_t)ref->len + head, NULL);

	if (!reply)
		return -EAGAIN;
	memcpy(reply + 1, &ref->version, head);
	memcpy((char *)(reply + 1) + head, ref->addr, ref->len);
	kv_answer(conn, agent, request, reply, WIRE_OK, (uint32_t)ref->len + head, ref->version);
	return 0;
}

/* Sends the value behind the answer, which is reserved. */
static void push_value(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *key,
		       struct wire_record *reply, struct kv_transfer *t)
{
	uint32_t head = request->flags & WIRE_VERSIONED, key_len = request->length;
	char *body = (char *)(reply + 1);

	t->wire.done = kv_get_done;
	t->since = kv_now(agent->thread);
	kv_transfer_set_state(t, KV_TRANSFER_WRITING);
	kv_agent_count(agent, KV_COUNT_PUSHES);
	conn_push(conn, &t->wire, reply, &(struct fabric_sge){t->ref.addr, t->ref.len, agent->arena});
	memcpy(body, &t->ref.len, sizeof(t->ref.len));
	memcpy(body + sizeof(t->ref.len), &t->ref.version, head);
	memcpy(body + sizeof(t->ref.len) + head, key, key_len);
	reply->flags |= (uint8_t)head;
	kv_answer(conn, agent, request, reply, WIRE_TOO_LARGE, (uint32_t)sizeof(t->ref.len) + head + key_len, 0);
}

int kv_push_value(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body)
{
	struct wire_record *reply = conn_reserve(conn, 2 * sizeof(uint64_t) + request->length, NULL);
	struct wire_ways can = kv_get_ways(agent, request);
	struct store *store = agent->thread->store;
	struct kv_transfer *t;
	struct store_ref ref;
	bool held = false;
	int rc;

	if (!reply)
		return -EAGAIN;
	if (!conn_push_room(conn, agent->push_max)) {
		conn_wait_writable(conn);
		return -EAGAIN;
	}
	if (store_get(store, body, request->length, kv_now(agent->thread), &ref) == 0) {
		kv_answer(conn, agent, request, reply, WIRE_NOT_FOUND, 0,
			  kv_tells_removed(agent, request, body, request->length));
		return 0;
	}
	if (ref.type != STORE_STRING) {
		kv_answer(conn, agent, request, reply, WIRE_OTHER_TYPE, 0, ref.version);
		store_unpin(store, &ref);
		return 0;
	}
	/* Where it is not on disk yet it goes another way, by which it can wait. */
	if (kv_gate_may_wait(agent, request, ref.version) && kv_gate_waits(agent, ref.version))
		can.push_max = 0;
	if (wire_way(WIRE_OP_GET, ref.len, &can) == WIRE_WAY_PUSHED) {
		held = !kv_hold_take(agent, ref.len);
		t = held ? NULL : transfer_take(agent, &ref);
		if (t) {
			push_value(conn, agent, request, body, reply, t);
			return 0; /* pinned until it is sent */
		}
		can.push_max = 0;
	}
	if (wire_way(WIRE_OP_GET, ref.len, &can) == WIRE_WAY_MESSAGE)
		rc = inline_value(conn, agent, request, &ref);
	else if (held)
		rc = kv_hold_wait(conn, agent);
	else
		rc = kv_answer_too_large(conn, agent, request, body, request->length, ref.len, ref.version);
	store_unpin(store, &ref);
	return rc;
}

bool kv_get_waits(const struct kv_agent *agent, const char *key, uint32_t key_len)
{
	const struct kv_shared *shared = agent->thread->part.shared;
	struct store_meta meta;

	return kv_hold_bytes(&shared->hold) &&
	       store_stat(agent->thread->store, key, key_len, kv_now(agent->thread), &meta) &&
	       wire_way(WIRE_OP_GET_INTO, meta.len, &(struct wire_ways){0}) != WIRE_WAY_MESSAGE &&
	       kv_hold_would_wait(agent, meta.len);
}

/*
 * Writing: a read of the caller's memory.
 */

/* Answer a SET that was carried out; false when there is no room, in a message or where answers wait. */
static bool set_answer(struct conn *conn, struct kv_transfer *t)
{
	bool versioned = t->request.op != WIRE_OP_SET_FROM && t->status == WIRE_OK;
	struct wire_record *reply = NULL;

	if (t->agent->beside & KV_BESIDE_GATE)
		return false;
	if (t->status != WIRE_MOVED)
		reply = conn_reserve(conn, (uint32_t)sizeof(t->version), NULL);
	if (!reply && (t->status != WIRE_MOVED || kv_refuse_elsewhere(conn, t->agent, &t->request, t->slot) != 0))
		return false;
	if (versioned)
		memcpy(reply + 1, &t->version, sizeof(t->version));
	t->agent->since = t->since;
	if (reply)
		kv_answer(conn, t->agent, &t->request, reply, t->status, versioned ? sizeof(t->version) : 0,
			  t->version);
	if (t->agent->since) {
		kv_late(t->agent, &t->request);
		kv_took(t->agent, &t->request, t->since);
	}
	t->agent->since = 0;
	return true;
}

/* The connection failed: the old value stays. */
static void set_give_up(struct kv_transfer *t)
{
	store_abandon(t->agent->thread->store, &t->ref);
	transfer_give(t);
}

/* Why no value is published any more that was on its way: the log takes no writes, or the slot was given away. 0: it
 * is. */
static int set_refused(const struct kv_transfer *t)
{
	const struct kv_cluster *cluster = ((const struct kv_shared *)t->agent->thread->part.shared)->cluster;
	int rc = kv_gate_refused(t->agent->thread);

	if (unlikely(t->put.flags & WIRE_PUT_ITEM))
		return rc ? rc : kv_move_takes(t->agent, t->slot) ? 0 : -ESTALE;
	if (rc == 0 && cluster && !kv_view_has(kv_cluster_view(cluster), t->slot))
		rc = -EREMOTE;
	return rc;
}

/* The value is in its place; or refused: meanwhile no write is taken any more, with this error. */
static void set_publish(struct conn *conn, struct kv_transfer *t, int refused)
{
	struct kv_thread *thread = t->agent->thread;
	struct store *store = thread->store;
	struct store_put put;
	uint64_t length = 0;
	int rc = refused;

	if (unlikely(rc != 0)) {
		store_abandon(store, &t->ref);
	} else {
		put = kv_store_put(&t->put, kv_now(thread));
		length = t->ref.len;
		rc = store_publish(store, &t->ref, &put, kv_now(thread), &t->version);
	}
	if (unlikely(t->put.flags & WIRE_PUT_ITEM) && rc == 0)
		kv_move_wrote(t->agent, length);
	if (rc != 0)
		t->version = kv_tells_all(t->agent, &t->request);
	t->status = rc == 0 ? WIRE_OK : wire_status_of(rc);
	kv_transfer_set_state(t, KV_TRANSFER_PUBLISHED);
	if (list_empty(&t->agent->finished) && set_answer(conn, t))
		transfer_give(t);
	else
		kv_transfer_set_state(t, KV_TRANSFER_WAITING);
}

static void piece_done(struct conn *conn, struct kv_transfer *t, enum fabric_status status)
{
	must(t->state == KV_TRANSFER_READING && t->coming);
	t->coming--;
	t->failed |= status != FABRIC_OK;
	if (!t->failed && t->asked < t->ref.len)
		conn_wait_writable(conn); /* the next one is asked for there: that may take a while */
	if (t->coming)
		return;
	if (t->failed) {
		set_give_up(t);
	} else if (t->asked == t->ref.len) {
		service_part_moved(&t->agent->thread->part, SERVICE_IN, t->since);
		set_publish(conn, t, set_refused(t));
	} else {
		kv_transfer_set_state(t, KV_TRANSFER_GROWING);
	}
}

static void kv_set_done(struct conn_transfer *wire, enum fabric_status status)
{
	piece_done(wire->conn, container_of(wire, struct kv_transfer, wire), status);
}

static void kv_set_next_done(struct conn_transfer *next, enum fabric_status status)
{
	piece_done(next->conn, container_of(next, struct kv_transfer, next), status);
}

/* Ask for what there is room for. */
static int piece_post(struct conn *conn, struct kv_transfer *t, const struct kv_ranges *from)
{
	struct fabric_sge to = {(char *)t->ref.addr + t->asked, t->ready - t->asked, t->agent->arena};
	int rc = ranges_post(conn, t->pieces % 2 ? &t->next : &t->wire, FABRIC_READ, from, t->asked, to);

	if (rc != 0)
		return rc;
	t->asked = t->ready;
	if (!t->pieces++)
		kv_agent_count(t->agent, KV_COUNT_READS);
	t->coming++;
	return 0;
}

/* A request of a large SET, taken apart. */
struct large_set {
	struct kv_named named;
	struct wire_put put;
	enum wire_way way; /* a value that is pushed comes behind the request */
};

static int read_value(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
		      const struct large_set *set, struct store_ref *ref, uint64_t ready)
{
	struct kv_transfer *t = transfer_take(agent, ref);
	struct fabric_sge to = {ref->addr, ref->len, agent->arena};
	bool pushed = set->way == WIRE_WAY_PUSHED;
	int rc;

	if (!t)
		return -ENOMEM;
	t->wire.done = kv_set_done;
	t->next.done = kv_set_next_done;
	t->ready = ready;
	t->request = *request;
	t->put = set->put;
	t->since = kv_now(agent->thread);
	t->key_hash = hash_bytes(set->named.key, set->named.key_len);
	if (agent->beside & KV_BESIDE_CLUSTER)
		t->slot = (uint16_t)cluster_slot(set->named.key, set->named.key_len);
	if (pushed)
		rc = conn_pull(conn, &t->wire, &to);
	else
		rc = piece_post(conn, t, &set->named.ranges);
	if (rc != 0) {
		transfer_give(t);
		return rc;
	}
	if (pushed) {
		t->asked = ref->len;
		t->coming = 1;
		kv_agent_count(agent, KV_COUNT_PULLS);
	}
	kv_transfer_set_state(t, KV_TRANSFER_READING);
	if (t->asked < ref->len) {
		memcpy(t->kept, set->named.at, set->named.ranges.count * sizeof(t->kept[0]));
		t->from = set->named.ranges;
		t->from.at = t->kept;
		conn_wait_writable(conn);
	}
	return 0;
}

/* A SET that is refused before a byte is moved. */
static int refuse_set(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
		      enum wire_status status)
{
	uint64_t most = status == WIRE_TOO_LARGE ? kv_agent_value_max(agent) : 0;

	return kv_answer_status(conn, agent, request, status, (uint32_t)MIN(most, UINT32_MAX),
				kv_tells_all(agent, request));
}

/* A condition that does not hold now spares the bytes; one that does is looked at again when they are here. */
static int condition_check(struct store *store, const struct large_set *set, uint64_t now)
{
	struct store_meta meta;
	int found;

	if (set->put.condition == WIRE_ALWAYS)
		return 0;
	found = store_stat(store, set->named.key, set->named.key_len, now, &meta);
	if (set->put.condition == WIRE_IF_ABSENT)
		return found ? -EEXIST : 0;
	if (!found)
		return -ENOENT;
	return set->put.condition == WIRE_IF_VERSION && meta.version != set->put.version ? -ESTALE : 0;
}

static int set_begin(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
		     const struct large_set *set)
{
	const struct kv_shared *shared = agent->thread->part.shared;
	struct store *store = agent->thread->store;
	const struct kv_named *named = &set->named;
	const bool item = set->put.flags & WIRE_PUT_ITEM;
	const struct store_put terms = kv_store_put(&set->put, kv_now(agent->thread));
	const struct store_put put = {.owner = item ? 0 : agent->owner, .type = terms.type, .flags = terms.flags};
	uint64_t length = named->ranges.length, ready = length;
	struct store_ref ref;
	int rc;

	if (set->way == WIRE_WAY_NONE)
		return refuse_set(conn, agent, request, WIRE_UNSUPPORTED);
	if (unlikely(item) && !kv_move_takes(agent, cluster_slot(named->key, named->key_len)))
		return refuse_set(conn, agent, request, WIRE_STALE);
	if (length > kv_agent_value_max(agent))
		return refuse_set(conn, agent, request, WIRE_TOO_LARGE);
	rc = condition_check(store, set, kv_now(agent->thread));
	if (rc != 0)
		return refuse_set(conn, agent, request, wire_status_of(rc));
	if (set->way == WIRE_WAY_PUSHED ? !conn_push_room(conn, length)
					: !conn_transfer_room(conn, named->ranges.count)) {
		conn_wait_writable(conn);
		return -EAGAIN;
	}
	if (!kv_hold_take(agent, length))
		return kv_hold_wait(conn, agent);
	do {
		if (length <= shared->ahead)
			rc = store_reserve_for(store, named->key, named->key_len, length, &put, kv_now(agent->thread),
					       &ref);
		else
			rc = store_reserve_part(store, named->key, named->key_len, length, &put, shared->ahead / 2,
						kv_now(agent->thread), &ref, &ready);
	} while (kv_step_again(conn, agent, rc));
	if (rc != 0) {
		kv_hold_cancel(agent, length);
		if (kv_write_waits(conn, agent, rc))
			return -EAGAIN;
		return rc == -EDQUOT ? kv_answer_over_quota(conn, agent, request)
				     : refuse_set(conn, agent, request, wire_status_of(rc));
	}
	rc = read_value(conn, agent, request, set, &ref, ready);
	if (rc != 0)
		store_abandon(store, &ref);
	return rc;
}

int kv_serve_set_from(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		      struct wire_record *reply)
{
	const uint32_t head = request->op == WIRE_OP_SET_FROM ? 0 : sizeof(struct wire_put);
	struct large_set set;

	if (!kv_named_read(conn, request, body, head, false, &set.named))
		return -EPROTO;
	set.put = (struct wire_put){0};
	memcpy(&set.put, set.named.head, head);
	if (!kv_put_valid(&set.put) || (request->op == WIRE_OP_PUT_PIECES && set.put.flags & WIRE_PUT_ITEM))
		return -EPROTO;
	set.way = wire_way((enum wire_op)request->op, set.named.ranges.length,
			   &(struct wire_ways){
				   /* A pushed one that is not taken is dropped, and read like any other. */
				   .push_max = request->flags & WIRE_PUSHED ? agent->push_max : 0,
				   .ranges = set.named.ranges.count,
				   .moves = agent->arena,
			   });
	return set_begin(conn, agent, request, &set);
}

/* Room for the next piece, and the request for it, as long as fewer than two are on their way. */
static void set_go_on(struct conn *conn, struct kv_agent *agent, struct kv_transfer *t)
{
	const struct kv_shared *shared = agent->thread->part.shared;
	int rc = set_refused(t);

	if (unlikely(rc != 0)) { /* nothing is evicted for it any more */
		if (!t->coming)
			set_publish(conn, t, rc);
		return;
	}
	while (rc == 0 && t->coming < 2 && t->asked < t->ref.len) {
		if (!conn_transfer_room(conn, t->from.count)) {
			conn_wait_writable(conn);
			return;
		}
		if (t->ready < t->ref.len) { /* it grows */
			do {
				rc = store_reserve_more(agent->thread->store, &t->ref, t->asked + shared->ahead / 2,
							&t->ready);
			} while (kv_step_again(conn, agent, rc));
		}
		if (rc == 0)
			rc = piece_post(conn, t, &t->from);
		if (rc == 0 && t->state == KV_TRANSFER_GROWING)
			kv_transfer_set_state(t, KV_TRANSFER_READING);
	}
	if (rc == -EAGAIN) {
		kv_hold_room(conn, agent, rc);
		conn_wait_writable(conn);
	} else if (rc == -EBUSY) {
		if (store_changes_hold(agent->thread->store))
			kv_gate_wait_ring(agent);
		kv_hold_retry(conn, agent->thread);
	} else if (rc != 0 && !t->coming) {
		set_give_up(t); /* with the connection */
	}
}

void kv_rendezvous_writable(struct conn *conn)
{
	struct kv_agent *agent = conn_context(conn);
	struct list *pos, *next;

	list_for_each_safe (pos, next, &agent->sets) {
		struct kv_transfer *t = container_of(pos, struct kv_transfer, node);

		if (t->asked < t->ref.len && !t->failed)
			set_go_on(conn, agent, t);
	}
	while (!list_empty(&agent->finished)) {
		struct kv_transfer *t = list_first(&agent->finished, struct kv_transfer, node);

		if (!set_answer(conn, t))
			return;
		transfer_give(t);
	}
}

void kv_rendezvous_close(struct kv_agent *agent)
{
	while (!list_empty(&agent->uncommitted)) {
		struct kv_transfer *t = list_first(&agent->uncommitted, struct kv_transfer, node);

		store_unpin(agent->thread->store, &t->ref);
		transfer_give(t);
	}
	while (!list_empty(&agent->sets)) { /* done() came for each piece */
		struct kv_transfer *t = list_first(&agent->sets, struct kv_transfer, node);

		must(t->state == KV_TRANSFER_GROWING);
		set_give_up(t);
	}
	must(agent->held == 0);
	while (!list_empty(&agent->finished))
		transfer_give(list_first(&agent->finished, struct kv_transfer, node));
}
