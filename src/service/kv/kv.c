/*
 * kv.c: the server's half of the key/value service: admission, the table of operations, and how a request goes
 * through it. Small requests are eager, a request and its answer are one record each; large values are in
 * rendezvous.c. The answer is built where it will be sent from.
 */
#include "service/kv/kv.h"

#include <stdlib.h>

static uint64_t value_max_of(const struct kv_shared *shared, const struct fabric_region *arena)
{
	return arena ? shared->value_max : MIN(shared->value_max, WIRE_EAGER_MAX);
}

uint64_t kv_agent_value_max(const struct kv_agent *agent)
{
	return value_max_of(agent->thread->part.shared, agent->arena);
}

static uint64_t push_max_of(const struct kv_shared *shared, const struct service_way *way)
{
	bool can = way->limits.pushes && kv_shared_region(shared, way);

	return can ? MIN(shared->push_max, value_max_of(shared, kv_shared_region(shared, way))) : 0;
}

static enum wire_reason kv_admit(struct service_part *part, const struct service_way *way,
				 const struct wire_request *request, struct wire_accept *grant, uint64_t *detail)
{
	const struct kv_shared *shared = part->shared;

	*detail = value_max_of(shared, kv_shared_region(shared, way));
	if (request->flags & WIRE_CHOICE && *detail < shared->value_max)
		return WIRE_REASON_VALUES;
	/* Longer ones bring nothing that is worth buffers of its own. */
	grant->message_size = conn_group_attr(way->group)->message_size;
	grant->eager_max = WIRE_EAGER_MAX;
	grant->value_max = *detail;
	grant->push_max = (uint32_t)push_max_of(shared, way);
	grant->flags |= WIRE_LEASES | WIRE_WATCHES | WIRE_TABLES | WIRE_DIRECT | WIRE_MOVES;
	grant->pieces = (uint16_t)MIN(WIRE_PIECES_MAX, conn_group_attr(way->group)->transfers);
	return WIRE_REASON_NONE;
}

static int kv_thread_init(struct service_part *part)
{
	struct kv_thread *thread = container_of(part, struct kv_thread, part);
	struct kv_shared *shared = part->shared;
	int rc;

	thread->store = shared->store;
	list_init(&thread->free_agains);
	list_init(&thread->keeping);
	thread->keeping_until = TIME_NEVER;
	list_init(&thread->leasing);
	list_init(&thread->watching);
	thread->leased_until = TIME_NEVER;
	list_init(&thread->clustered);
	rc = kv_gate_init(thread);
	if (rc == 0 && shared->cluster)
		kv_cluster_join(shared->cluster, thread);
	return rc;
}

static void kv_part_clear(struct service_part *part)
{
	must(!container_of(part, struct kv_thread, part)->watch.on);
	kv_thread_clear(part);
	kv_again_clear(container_of(part, struct kv_thread, part));
	list_del(&container_of(part, struct kv_thread, part)->clustered);
	kv_gate_clear(container_of(part, struct kv_thread, part));
}

static void *kv_agent_new(struct service_part *part, const struct service_way *way)
{
	struct kv_agent *agent = calloc(1, sizeof(*agent));

	if (!agent)
		return NULL;
	agent->thread = container_of(part, struct kv_thread, part);
	list_init(&agent->sets);
	list_init(&agent->finished);
	list_init(&agent->uncommitted);
	list_init(&agent->waiting);
	list_init(&agent->again);
	list_init(&agent->keeping);
	list_init(&agent->leasing);
	list_init(&agent->watching);
	agent->beside = ((const struct kv_shared *)part->shared)->cluster ? KV_BESIDE_CLUSTER : 0;
	agent->arena = kv_shared_region(part->shared, way);
	agent->push_max = push_max_of(part->shared, way);
	return agent;
}

/*
 * The operations.
 */

/* Counters of a row's requests, their names, and the class of the time that they take. */
/* clang-format off */
#define COUNTS(X) \
	X(GETS, "kv_gets", READ) \
	X(SETS, "kv_sets", WRITE) \
	X(DELETES, "kv_deletes", WRITE) \
	X(EXISTS, "kv_exists", READ) \
	X(STATS, "kv_stats", READ) \
	X(EXPIRES, "kv_expires", WRITE) \
	X(INCRS, "kv_incrs", WRITE) \
	X(SCANS, "kv_scans", SCAN) \
	X(FLUSHES, "kv_flushes", SCAN) \
	X(INFOS, "kv_infos", READ) \
	X(EDITS, "kv_edits", WRITE) \
	X(LEASES, "kv_leases", READ) \
	X(MOVES, "kv_moves", READ)
/* clang-format on */

#define NUMBER_OF(COUNT, name, class) COUNT_##COUNT,
#define NAME_OF(COUNT, name, class) [COUNT_##COUNT] = name,
#define CLASS_OF(COUNT, name, class) [COUNT_##COUNT] = SERVICE_##class,
enum { COUNT_BEFORE = KV_COUNT_OPERATIONS - 1, COUNTS(NUMBER_OF) COUNT_END };
_Static_assert(COUNT_END <= SERVICE_COUNTERS, "there is room for all counters");

/* clang-format off */
static const uint8_t class_of[] = { COUNTS(CLASS_OF) };

static const char *const counters[] = {
	[KV_COUNT_ERRORS] = "kv_errors",
	[KV_COUNT_READS] = "kv_reads",
	[KV_COUNT_WRITES] = "kv_writes",
	[KV_COUNT_PULLS] = "kv_pulls",
	[KV_COUNT_PUSHES] = "kv_pushes",
	[KV_COUNT_WAITS] = "kv_waits",
	[KV_COUNT_HELD] = "kv_held",
	[KV_COUNT_DENIED] = "kv_denied",
	[KV_COUNT_OVER_QUOTA] = "kv_over_quota",
	[KV_COUNT_ELSEWHERE] = "kv_elsewhere",
	[KV_COUNT_LEASES_REFUSED] = "kv_leases_refused",
	[KV_COUNT_LEASES_EXPIRED] = "kv_leases_expired",
	[KV_COUNT_WATCHES] = "kv_watches",
	[KV_COUNT_EVENTS] = "kv_events",
	[KV_COUNT_EVENTS_MISSED] = "kv_events_missed",
	COUNTS(NAME_OF)
	[COUNT_END] = NULL,
};
/* clang-format on */

#define NUMBER sizeof(uint64_t)
#define PUT sizeof(struct wire_put)
#define REMOTE sizeof(struct wire_remote)
#define STAT sizeof(struct wire_stat)
#define INFO sizeof(struct wire_info)
#define WHOLE sizeof(struct wire_whole)
#define FETCH (REMOTE + PART)
#define MOVE sizeof(struct wire_move)
#define MOVE_BEGIN sizeof(struct wire_move_begin)
#define KEY WIRE_KEY_MAX
#define PIECES (WIRE_PIECES_MAX * REMOTE)
#define PART sizeof(struct wire_fetch)
#define BODY(min, max) (min), (max) + 1
#define ANY (UINT32_MAX - 1) /* as much as a message holds; the handler looks */
#define AT_NONE 254          /* the operation is on no key */
#define AT_ALL 255           /* or on all of them */
#define VARIABLE UINT32_MAX  /* the handler reserves: only it knows how long the answer is, or when, or is asked most */

static const struct operation {
	kv_serve_fn *serve;
	uint32_t body_min; /* the body's length is at least this */
	uint32_t body_end; /* and below this: where a row is missing, none is taken */
	uint32_t reply;    /* room to reserve for the answer's body */
	uint32_t counter;  /* of requests that were answered */
	uint8_t key_at;    /* where in the body the key begins */
	bool key_arg;      /* the argument is its length; else it goes to the body's end */
	bool writes;
} operations[] = {
	[WIRE_OP_GET] = {kv_serve_get, BODY(1, KEY), VARIABLE, COUNT_GETS, 0},
	[WIRE_OP_SET] = {kv_serve_set, BODY(1, ANY), VARIABLE, COUNT_SETS, 0, .key_arg = true, .writes = true},
	[WIRE_OP_DELETE] = {kv_serve_delete, BODY(1, KEY), 0, COUNT_DELETES, 0, .writes = true},
	[WIRE_OP_EXISTS] = {kv_serve_exists, BODY(1, KEY), 0, COUNT_EXISTS, 0},
	[WIRE_OP_GET_INTO] = {kv_serve_fetch, BODY(REMOTE + 1, REMOTE + KEY), VARIABLE, COUNT_GETS, REMOTE},
	[WIRE_OP_SET_FROM] = {kv_serve_set_from, BODY(REMOTE + 1, REMOTE + KEY), VARIABLE, COUNT_SETS, REMOTE,
			      .writes = true},
	[WIRE_OP_PUT] = {kv_serve_put, BODY(PUT + 1, ANY), VARIABLE, COUNT_SETS, PUT, .key_arg = true, .writes = true},
	[WIRE_OP_PUT_FROM] = {kv_serve_set_from, BODY(REMOTE + PUT + 1, REMOTE + PUT + KEY), VARIABLE, COUNT_SETS,
			      REMOTE + PUT, .writes = true},
	[WIRE_OP_STAT] = {kv_serve_stat, BODY(1, KEY), STAT, COUNT_STATS, 0},
	[WIRE_OP_EXPIRE] = {kv_serve_expire, BODY(NUMBER + 1, NUMBER + KEY), 0, COUNT_EXPIRES, NUMBER, .writes = true},
	[WIRE_OP_DELETE_IF] = {kv_serve_delete, BODY(NUMBER + 1, NUMBER + KEY), 0, COUNT_DELETES, NUMBER,
			       .writes = true},
	[WIRE_OP_INCR] = {kv_serve_count, BODY(NUMBER + 1, NUMBER + KEY), 2 * NUMBER, COUNT_INCRS, NUMBER,
			  .writes = true},
	[WIRE_OP_SCAN] = {kv_serve_scan, BODY(NUMBER, NUMBER + KEY), VARIABLE, COUNT_SCANS, AT_ALL},
	[WIRE_OP_FLUSH] = {kv_serve_flush, BODY(NUMBER, NUMBER), 2 * NUMBER, COUNT_FLUSHES, AT_ALL, .writes = true},
	[WIRE_OP_INFO] = {kv_serve_info, BODY(0, 0), INFO, COUNT_INFOS, AT_NONE},
	[WIRE_OP_FETCH] = {kv_serve_fetch, BODY(FETCH + 1, FETCH + KEY), VARIABLE, COUNT_GETS, FETCH},
	[WIRE_OP_EDIT] = {kv_serve_edit, BODY(NUMBER + 1, ANY), WHOLE, COUNT_EDITS, NUMBER, .key_arg = true,
			  .writes = true},
	[WIRE_OP_COUNT] = {kv_serve_count, BODY(2 * NUMBER + 1, 2 * NUMBER + KEY), 2 * NUMBER, COUNT_INCRS, 2 * NUMBER,
			   .writes = true},
	[WIRE_OP_PUT_PIECES] = {kv_serve_set_from, BODY(PUT + 1 + REMOTE, PUT + KEY + PIECES), VARIABLE, COUNT_SETS,
				PUT, .key_arg = true, .writes = true},
	[WIRE_OP_FETCH_PIECES] = {kv_serve_fetch, BODY(PART + 1 + REMOTE, PART + KEY + PIECES), VARIABLE, COUNT_GETS,
				  PART, .key_arg = true},
	[WIRE_OP_LEASE] = {kv_serve_lease, BODY(NUMBER + 1, NUMBER + KEY), NUMBER, COUNT_LEASES, NUMBER},
	[WIRE_OP_WATCH] = {kv_serve_watch, BODY(0, NUMBER + KEY), VARIABLE, KV_COUNT_WATCHES, AT_NONE},
	[WIRE_OP_TABLE] = {kv_serve_table, BODY(2 * NUMBER, 2 * NUMBER), VARIABLE, COUNT_INFOS, AT_NONE},
	[WIRE_OP_MOVE] = {kv_serve_move, BODY(MOVE, MOVE_BEGIN), VARIABLE, COUNT_MOVES, AT_NONE},
};
_Static_assert(ARRAY_SIZE(operations) == WIRE_OP_KV_END, "the last operation of the wire's list has a row");
_Static_assert(CONN_AHEAD <= STORE_AHEAD, "the store looks as far ahead as a connection");
_Static_assert(PART + KEY + PIECES <= WIRE_BODY_MAX(WIRE_MESSAGE_MIN), "each request fits any message");
_Static_assert(MOVE_BEGIN <= PART + KEY + PIECES, "and the longest one does");

/* NULL: there is none, or not with a body of that length. */
static inline const struct operation *operation_of(const struct wire_record *request)
{
	const struct operation *op;

	if (unlikely(request->op >= ARRAY_SIZE(operations)))
		return NULL;
	op = &operations[request->op];
	return likely(request->length >= op->body_min && request->length < op->body_end) ? op : NULL;
}

static __attribute__((noinline)) int reserve_and_serve(struct conn *conn, struct kv_agent *agent,
						       const struct operation *op, const struct wire_record *request,
						       const char *body)
{
	struct wire_record *reply = conn_reserve(conn, op->reply, NULL);

	return likely(reply) ? op->serve(conn, agent, request, body, reply) : -EAGAIN;
}

static inline int carry_out(struct conn *conn, struct kv_agent *agent, const struct operation *op,
			    const struct wire_record *request, const char *body)
{
	if (op->reply == VARIABLE)
		return op->serve(conn, agent, request, body, NULL);
	return reserve_and_serve(conn, agent, op, request, body);
}

static bool has_key(const struct operation *op)
{
	return op->key_at != AT_NONE && op->key_at != AT_ALL;
}

static uint32_t key_length(const struct operation *op, const struct wire_record *request)
{
	uint32_t rest = request->length - op->key_at;

	return op->key_arg ? MIN(rest, request->arg) : rest;
}

/* Whether a request is on a key that a large SET before it is on, and waits for that. */
static bool waits_for_set(struct conn *conn, const struct kv_agent *agent, const struct operation *op,
			  const struct wire_record *request, const char *body)
{
	const struct kv_transfer *set = NULL;

	if (has_key(op))
		set = kv_key_busy(agent, body + op->key_at, key_length(op, request));
	if (!set && op->key_at != AT_ALL)
		return false;
	if (set && set->wire.pushed)
		conn_wait_pulled(conn);
	else
		conn_wait_writable(conn);
	return true;
}

/* A fetch may be both. */
static bool op_writes(const struct operation *op, const struct wire_record *request, const char *body)
{
	struct wire_fetch fetch;

	if (request->op != WIRE_OP_FETCH && request->op != WIRE_OP_FETCH_PIECES)
		return op->writes;
	memcpy(&fetch, body + op->key_at - PART, sizeof(fetch));
	return fetch.then != WIRE_THEN_NOTHING;
}

/* Whether the client may do what it asks for. */
static bool has_right(const struct conn *conn, const struct operation *op, const struct wire_record *request,
		      const char *body)
{
	const struct auth_client *client = conn_client(conn);
	bool write, read;

	if (op->key_at == AT_NONE)
		return true;
	if (request->op == WIRE_OP_FLUSH)
		return client->flush;
	if (request->op == WIRE_OP_SCAN)
		return auth_may(client, AUTH_READ, body + NUMBER, request->length - NUMBER);
	write = op_writes(op, request, body);
	read = !write || op->counter == COUNT_INCRS || op->counter == COUNT_GETS;
	return (!read || auth_may(client, AUTH_READ, body + op->key_at, key_length(op, request))) &&
	       (!write || auth_may(client, AUTH_WRITE, body + op->key_at, key_length(op, request)));
}

/* Whether another server has the key, or had it just now; and its slot. */
static inline bool is_elsewhere(struct kv_agent *agent, const struct operation *op, const struct wire_record *request,
				const char *body, unsigned *slot)
{
	const struct kv_shared *shared = agent->thread->part.shared;

	if (!has_key(op))
		return false;
	if (kv_view_elsewhere(kv_cluster_view(shared->cluster), body + op->key_at, key_length(op, request), slot))
		return true;
	return unlikely(agent->refusals) && kv_overtakes(agent, request, *slot);
}

/* A request that is refused may have waited for memory, or have come again for a value that was kept for it. */
static int request_refused(struct kv_agent *agent, const struct wire_record *request, int rc)
{
	if (rc != 0)
		return rc;
	agent->beside &= ~(unsigned)(KV_BESIDE_WAIT | KV_BESIDE_FULL);
	if (agent->beside & KV_BESIDE_AGAIN)
		kv_again_given_up(agent, request->id);
	return 0;
}

/* Large SETs are under way, or gets may come again, or the request has waited, or it has to do with the log, or with
 * rights; and perhaps with a cluster. */
static __attribute__((cold, noinline)) int carry_out_beside(struct conn *conn, struct kv_agent *agent,
							    const struct operation *op,
							    const struct wire_record *request, const char *body)
{
	unsigned slot;
	int rc;

	if (agent->beside & KV_BESIDE_RIGHTS && !has_right(conn, op, request, body)) {
		rc = kv_answer_status(conn, agent, request, WIRE_DENIED, 0, 0);
		if (rc != 0)
			return rc;
		log_info("kv", "%s has no right to %s", conn_client(conn)->name, wire_op_name(request->op));
		kv_agent_count(agent, KV_COUNT_DENIED);
		return request_refused(agent, request, 0);
	}
	if (agent->beside & KV_BESIDE_SETS && waits_for_set(conn, agent, op, request, body))
		return -EAGAIN;
	if (agent->beside & KV_BESIDE_CLUSTER && is_elsewhere(agent, op, request, body, &slot) &&
	    !kv_move_writes(agent, request, body, slot))
		return request_refused(agent, request, kv_answer_elsewhere(conn, agent, request, slot));
	rc = kv_gate_admit(conn, agent, request, op_writes(op, request, body));
	if (rc != 1)
		return rc;
	if (agent->beside & KV_BESIDE_AGAIN && request->op != WIRE_OP_GET_INTO && request->op != WIRE_OP_WATCH)
		kv_again_given_up(agent, request->id);
	if (agent->beside & KV_BESIDE_AGAIN && has_key(op) && op_writes(op, request, body))
		kv_again_before_write(agent, body + op->key_at, key_length(op, request));
	rc = carry_out(conn, agent, op, request, body);
	if (rc != -EAGAIN)
		agent->beside &=
			KV_BESIDE_SETS | KV_BESIDE_GATE | KV_BESIDE_AGAIN | KV_BESIDE_RIGHTS | KV_BESIDE_CLUSTER;
	return rc;
}

static inline int carry_out_at_all(struct conn *conn, struct kv_agent *agent, const struct operation *op,
				   const struct wire_record *request, const char *body)
{
	unsigned beside = agent->beside | (unsigned)kv_gate_refused(agent->thread) | (request->flags & WIRE_DURABLE);
	unsigned slot;

	if (unlikely(beside) && beside != KV_BESIDE_CLUSTER)
		return carry_out_beside(conn, agent, op, request, body);
	if (unlikely(beside) && unlikely(is_elsewhere(agent, op, request, body, &slot)) &&
	    !kv_move_writes(agent, request, body, slot))
		return kv_answer_elsewhere(conn, agent, request, slot);
	return carry_out(conn, agent, op, request, body);
}

/* Slow requests are logged. */
static __attribute__((cold, noinline)) int carry_out_timed(struct conn *conn, struct kv_agent *agent,
							   const struct operation *op,
							   const struct wire_record *request, const char *body)
{
	bool keyed = has_key(op);
	bool timed = kv_slow_begin(agent, request, body, keyed ? body + op->key_at : NULL,
				   keyed ? key_length(op, request) : 0);
	int rc = carry_out_at_all(conn, agent, op, request, body);

	if (timed)
		kv_slow_end(agent, rc);
	return rc;
}

static int kv_agent_record(struct conn *conn, const struct wire_record *request, const void *body)
{
	struct kv_agent *agent = conn_context(conn);
	const struct operation *op = operation_of(request);

	must(service_part_is_mine(&agent->thread->part));
	if (unlikely(!op))
		return -EPROTO;
	if (unlikely(agent->thread->part.slow) && request->op != WIRE_OP_WATCH) /* which waits */
		return carry_out_timed(conn, agent, op, request, body);
	return carry_out_at_all(conn, agent, op, request, body);
}

/* What the keys' lookups touch is fetched from memory for all of them at once. One that is no key is refused when its
 * turn comes. */
static void kv_agent_ahead(struct conn *conn, const struct wire_record *const record[], unsigned count)
{
	const struct kv_agent *agent = conn_context(conn);
	struct store_key key[CONN_AHEAD];
	unsigned n = 0;

	for (unsigned i = 0; i < count; i++) {
		const struct operation *op = operation_of(record[i]);
		uint32_t len = op && has_key(op) ? key_length(op, record[i]) : 0;

		if (likely(len >= 1 && len <= KEY))
			key[n++] = (struct store_key){(const char *)(record[i] + 1) + op->key_at, len};
	}
	store_look_ahead(agent->thread->store, key, n);
}

/* Sends the answer, or has it wait for the log. `counts`: the request was counted. */
static void reply_commit(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
			 struct wire_record *reply, enum wire_status status, uint32_t length, uint64_t tells,
			 bool counts)
{
	if (unlikely(agent->slow))
		kv_slow_answered(conn, agent, request, length);
	reply->id = request->id;
	reply->op = request->op;
	reply->flags |= WIRE_REPLY;
	reply->status = status;
	reply->length = length;
	if (kv_gate_may_wait(agent, request, tells) && kv_gate_waits(agent, tells))
		kv_gate_hold(conn, agent, reply, tells, counts);
	else
		conn_commit(conn, reply, length);
}

void kv_late(struct kv_agent *agent, const struct wire_record *request)
{
	service_part_late(&agent->thread->part, class_of[operations[request->op].counter], 1);
}

void kv_took(struct kv_agent *agent, const struct wire_record *request, uint64_t since)
{
	service_part_took(&agent->thread->part, class_of[operations[request->op].counter], since, 1);
}

static void kv_answered(const struct service_part *part, uint64_t classes[static SERVICE_COUNTED])
{
	memset(classes, 0, SERVICE_COUNTED * sizeof(classes[0]));
	for (unsigned i = KV_COUNT_OPERATIONS; i < COUNT_END; i++)
		classes[class_of[i]] += part->count[i];
}

/* A condition that does not hold is no error, nor is a missing key. */
static __attribute__((cold)) void count_error(struct kv_agent *agent, enum wire_status status)
{
	if (status != WIRE_EXISTS && status != WIRE_STALE)
		kv_agent_count(agent, KV_COUNT_ERRORS);
}

void kv_answer(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, struct wire_record *reply,
	       enum wire_status status, uint32_t length, uint64_t tells)
{
	kv_agent_count(agent, operations[request->op].counter);
	if (unlikely(status > WIRE_NOT_FOUND) && !(reply->flags & WIRE_PUSHED))
		count_error(agent, status);
	reply_commit(conn, agent, request, reply, status, length, tells, true);
}

int kv_answer_status(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
		     enum wire_status status, uint32_t arg, uint64_t tells)
{
	struct wire_record *reply = conn_reserve(conn, 0, NULL);

	if (!reply)
		return -EAGAIN;
	reply->arg = arg;
	kv_answer(conn, agent, request, reply, status, 0, tells);
	return 0;
}

int kv_answer_result(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
		     struct wire_record *reply, int rc, const void *body, uint32_t length, uint64_t tells)
{
	if (unlikely(rc == -EDQUOT))
		return kv_answer_over_quota(conn, agent, request);
	if (rc != 0)
		length = 0;
	if (length)
		memcpy(reply + 1, body, length);
	kv_answer(conn, agent, request, reply, rc == 0 ? WIRE_OK : wire_status_of(rc), length, tells);
	return 0;
}

int kv_answer_too_large(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *key,
			uint32_t key_len, uint64_t value_len, uint64_t version)
{
	struct wire_record *reply = conn_reserve(conn, (uint32_t)sizeof(value_len) + key_len, NULL);

	if (!reply)
		return -EAGAIN;
	memcpy(reply + 1, &value_len, sizeof(value_len));
	memcpy((char *)(reply + 1) + sizeof(value_len), key, key_len);
	reply_commit(conn, agent, request, reply, WIRE_TOO_LARGE, (uint32_t)sizeof(value_len) + key_len, version,
		     false);
	if (request->flags & WIRE_AGAIN && agent->arena)
		kv_again_expect(agent, request, key, key_len);
	return 0;
}

static void kv_agent_revised(struct conn *conn)
{
	struct kv_agent *agent = conn_context(conn);

	agent->beside &= ~(unsigned)KV_BESIDE_RIGHTS;
	agent->beside |= auth_has_all(conn_client(conn)) ? 0 : KV_BESIDE_RIGHTS;
	agent->owner = kv_owner_of(agent->thread->part.shared, conn_client(conn));
	kv_watch_revised(agent);
	if (agent->session && !conn_client(conn)->move)
		kv_move_closed(agent);
}

static void kv_agent_closed(struct conn *conn, int error, const char *reason)
{
	struct kv_agent *agent = conn_context(conn);

	if (error != 0)
		service_warn("kv", conn, reason);
	kv_gate_close(agent);
	kv_again_close(agent);
	kv_lease_close(agent);
	kv_watch_close(agent);
	kv_move_closed(agent);
	kv_rendezvous_close(agent);
	free(agent->slow);
	free(agent);
}

static bool kv_agent_quiet(const struct conn *conn)
{
	const struct kv_agent *agent = conn_context(conn);

	return list_empty(&agent->sets) && list_empty(&agent->finished) && kv_gate_quiet(agent);
}

static const struct conn_ops kv_agent_ops = {
	.established = kv_agent_revised,
	.record = kv_agent_record,
	.ahead = kv_agent_ahead,
	.writable = kv_gate_writable,
	.closed = kv_agent_closed,
};

const struct service service_kv = {
	.id = WIRE_KV,
	.help = "key/value store",
	.settings = &kv_settings,
	.counters = counters,
	.check = kv_shared_check,
	.registered = kv_shared_registered,
	.open = kv_shared_open,
	.close = kv_shared_close,
	.tick = kv_shared_tick,
	.reload = kv_shared_reload,
	.engine = kv_cluster_engine,
	.cluster = &kv_service_cluster,
	.command = kv_shared_command,
	.status = kv_shared_status,
	.memory = kv_shared_memory,
	.resources = kv_shared_resources,
	.part_size = sizeof(struct kv_thread),
	.part_init = kv_thread_init,
	.part_clear = kv_part_clear,
	.fd = kv_thread_fd,
	.readable = kv_thread_readable,
	.progress = kv_thread_progress,
	.deadline = kv_thread_deadline,
	.arm = kv_thread_arm,
	.disarm = kv_thread_disarm,
	.admit = kv_admit,
	.ops = &kv_agent_ops,
	.agent_new = kv_agent_new,
	.agent_free = free,
	.quiet = kv_agent_quiet,
	.times = SERVICE_TIMES(READ) | SERVICE_TIMES(WRITE) | SERVICE_TIMES(SCAN) | SERVICE_TIMES(IN) |
		 SERVICE_TIMES(OUT),
	.answered = kv_answered,
	.answers_each = true,
	.revised = kv_agent_revised,
};
