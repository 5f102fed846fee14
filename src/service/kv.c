/*
 * kv.c: the server's half of the key/value service: who is admitted, the table of operations, and how a request goes
 * through it. Small requests are eager, a request and its answer are one record each; large values are in
 * rendezvous.c. The answer is built where it will be sent from.
 */
#include "service/kv.h"

#include <stdlib.h>

static uint64_t value_max_of(const struct kv_shared *shared, const struct fabric_region *arena)
{
	return arena ? shared->value_max : MIN(shared->value_max, WIRE_EAGER_MAX);
}

uint64_t kv_agent_value_max(const struct kv_agent *agent)
{
	return value_max_of(agent->thread->part.shared, agent->arena);
}

static enum wire_reason kv_admit(struct service_part *part, const struct service_way *way,
				 const struct wire_request *request, struct wire_accept *grant, uint64_t *detail)
{
	const struct kv_shared *shared = part->shared;

	(void)request;
	(void)detail;
	grant->eager_max = WIRE_EAGER_MAX;
	grant->value_max = value_max_of(shared, kv_shared_region(shared, way));
	return WIRE_REASON_NONE;
}

static int kv_thread_init(struct service_part *part)
{
	const struct kv_shared *shared = part->shared;

	container_of(part, struct kv_thread, part)->store = shared->store;
	return 0;
}

static void *kv_agent_new(struct service_part *part, const struct service_way *way)
{
	struct kv_agent *agent = calloc(1, sizeof(*agent));

	if (!agent)
		return NULL;
	agent->thread = container_of(part, struct kv_thread, part);
	list_init(&agent->sets);
	list_init(&agent->finished);
	agent->arena = kv_shared_region(part->shared, way);
	return agent;
}

/*
 * The operations.
 */

/* What a row counts its requests as, and the counter's name. */
/* clang-format off */
#define COUNTS(X) \
	X(GETS, "kv_gets") \
	X(SETS, "kv_sets") \
	X(DELETES, "kv_deletes") \
	X(EXISTS, "kv_exists") \
	X(STATS, "kv_stats") \
	X(EXPIRES, "kv_expires") \
	X(INCRS, "kv_incrs") \
	X(SCANS, "kv_scans") \
	X(FLUSHES, "kv_flushes") \
	X(INFOS, "kv_infos")
/* clang-format on */

#define NUMBER_OF(COUNT, name) COUNT_##COUNT,
#define NAME_OF(COUNT, name) [COUNT_##COUNT] = name,
enum { COUNT_BEFORE = KV_COUNT_OPERATIONS - 1, COUNTS(NUMBER_OF) COUNT_END };
_Static_assert(COUNT_END <= SERVICE_COUNTERS, "there is room for all counters");

/* clang-format off */
static const char *const counters[] = {
	[KV_COUNT_ERRORS] = "kv_errors",
	[KV_COUNT_READS] = "kv_reads",
	[KV_COUNT_WRITES] = "kv_writes",
	[KV_COUNT_WAITS] = "kv_waits",
	COUNTS(NAME_OF)
	[COUNT_END] = NULL,
};
/* clang-format on */

#define NUMBER sizeof(uint64_t)
#define PUT sizeof(struct wire_put)
#define REMOTE sizeof(struct wire_remote)
#define META sizeof(struct wire_meta)
#define INFO sizeof(struct wire_info)
#define KEY WIRE_KEY_MAX
#define BODY(min, max) (min), (max) + 1
#define ANY (UINT32_MAX - 1) /* as much as a message holds; the handler looks */
#define AT_NONE 254          /* the operation is on no key */
#define AT_ALL 255           /* or on all of them */
#define VARIABLE UINT32_MAX  /* how long the answer is, or when it is given, only the handler knows: it reserves */

static const struct operation {
	kv_serve_fn *serve;
	uint32_t body_min; /* the body's length is at least this */
	uint32_t body_end; /* and below this: where a row is missing, none is taken */
	uint32_t reply;    /* room to reserve for the answer's body */
	uint32_t counter;  /* of requests that were answered */
	uint8_t key_at;    /* where in the body the key begins */
	bool key_arg;      /* the argument is its length; else it goes to the body's end */
} operations[] = {
	[WIRE_OP_GET] = {kv_serve_get, BODY(1, KEY), VARIABLE, COUNT_GETS, 0, false},
	[WIRE_OP_SET] = {kv_serve_set, BODY(1, ANY), 0, COUNT_SETS, 0, true},
	[WIRE_OP_DELETE] = {kv_serve_delete, BODY(1, KEY), 0, COUNT_DELETES, 0, false},
	[WIRE_OP_EXISTS] = {kv_serve_exists, BODY(1, KEY), 0, COUNT_EXISTS, 0, false},
	[WIRE_OP_GET_INTO] = {kv_serve_get_into, BODY(REMOTE + 1, REMOTE + KEY), 2 * NUMBER, COUNT_GETS, REMOTE, false},
	[WIRE_OP_SET_FROM] = {kv_serve_set_from, BODY(REMOTE + 1, REMOTE + KEY), VARIABLE, COUNT_SETS, REMOTE, false},
	[WIRE_OP_PUT] = {kv_serve_put, BODY(PUT + 1, ANY), NUMBER, COUNT_SETS, PUT, true},
	[WIRE_OP_PUT_FROM] = {kv_serve_put_from, BODY(REMOTE + PUT + 1, REMOTE + PUT + KEY), VARIABLE, COUNT_SETS,
			      REMOTE + PUT, false},
	[WIRE_OP_STAT] = {kv_serve_stat, BODY(1, KEY), META, COUNT_STATS, 0, false},
	[WIRE_OP_EXPIRE] = {kv_serve_expire, BODY(NUMBER + 1, NUMBER + KEY), 0, COUNT_EXPIRES, NUMBER, false},
	[WIRE_OP_DELETE_IF] = {kv_serve_delete_if, BODY(NUMBER + 1, NUMBER + KEY), 0, COUNT_DELETES, NUMBER, false},
	[WIRE_OP_INCR] = {kv_serve_incr, BODY(NUMBER + 1, NUMBER + KEY), 2 * NUMBER, COUNT_INCRS, NUMBER, false},
	[WIRE_OP_SCAN] = {kv_serve_scan, BODY(NUMBER, NUMBER + KEY), VARIABLE, COUNT_SCANS, AT_ALL, false},
	[WIRE_OP_FLUSH] = {kv_serve_flush, BODY(NUMBER, NUMBER), 2 * NUMBER, COUNT_FLUSHES, AT_ALL, false},
	[WIRE_OP_INFO] = {kv_serve_info, BODY(0, 0), INFO, COUNT_INFOS, AT_NONE, false},
};
_Static_assert(ARRAY_SIZE(operations) == WIRE_OP_KV_END, "the last operation of the wire's list has a row");

static inline int carry_out(struct conn *conn, struct kv_agent *agent, const struct operation *op,
			    const struct wire_record *request, const char *body)
{
	struct wire_record *reply;

	if (op->reply == VARIABLE)
		return op->serve(conn, agent, request, body, NULL);
	reply = conn_reserve(conn, op->reply, NULL);
	if (unlikely(!reply))
		return -EAGAIN;
	return op->serve(conn, agent, request, body, reply);
}

/* Whether a request is on a key that a large SET before it is on. */
static bool waits_for_set(const struct kv_agent *agent, const struct operation *op, const struct wire_record *request,
			  const char *body)
{
	uint32_t rest = request->length - op->key_at;

	if (op->key_at == AT_NONE || op->key_at == AT_ALL)
		return op->key_at == AT_ALL;
	if (op->key_arg)
		rest = MIN(rest, request->arg);
	return kv_key_busy(agent, body + op->key_at, rest);
}

/* Large SETs are under way, or the request has waited. */
static __attribute__((cold, noinline)) int carry_out_beside(struct conn *conn, struct kv_agent *agent,
							    const struct operation *op,
							    const struct wire_record *request, const char *body)
{
	int rc;

	if (agent->beside & KV_BESIDE_SETS && waits_for_set(agent, op, request, body)) {
		conn_wait_writable(conn);
		return -EAGAIN;
	}
	rc = carry_out(conn, agent, op, request, body);
	if (rc != -EAGAIN)
		agent->beside &= KV_BESIDE_SETS;
	return rc;
}

static int kv_agent_record(struct conn *conn, const struct wire_record *request, const void *body)
{
	struct kv_agent *agent = conn_context(conn);
	const struct operation *op;

	must(service_part_is_mine(&agent->thread->part));
	if (unlikely(request->op >= ARRAY_SIZE(operations)))
		return -EPROTO;
	op = &operations[request->op];
	if (unlikely(request->length < op->body_min || request->length >= op->body_end))
		return -EPROTO;
	if (unlikely(agent->beside))
		return carry_out_beside(conn, agent, op, request, body);
	return carry_out(conn, agent, op, request, body);
}

static void reply_commit(struct conn *conn, const struct wire_record *request, struct wire_record *reply,
			 enum wire_status status, uint32_t length)
{
	reply->id = request->id;
	reply->op = request->op;
	reply->flags = WIRE_REPLY;
	reply->status = status;
	conn_commit(conn, reply, length);
}

/* A condition that does not hold is no error, nor is a missing key. */
static __attribute__((cold)) void count_error(struct kv_agent *agent, enum wire_status status)
{
	if (status != WIRE_EXISTS && status != WIRE_STALE)
		kv_agent_count(agent, KV_COUNT_ERRORS);
}

void kv_answer(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, struct wire_record *reply,
	       enum wire_status status, uint32_t length)
{
	kv_agent_count(agent, operations[request->op].counter);
	if (unlikely(status > WIRE_NOT_FOUND))
		count_error(agent, status);
	reply_commit(conn, request, reply, status, length);
}

int kv_answer_result(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
		     struct wire_record *reply, int rc, const void *body, uint32_t length)
{
	if (rc != 0)
		length = 0;
	if (length)
		memcpy(reply + 1, body, length);
	kv_answer(conn, agent, request, reply, rc == 0 ? WIRE_OK : wire_status_of(rc), length);
	return 0;
}

int kv_answer_too_large(struct conn *conn, const struct wire_record *request, const char *key, uint32_t key_len,
			uint64_t value_len)
{
	struct wire_record *reply = conn_reserve(conn, (uint32_t)sizeof(value_len) + key_len, NULL);

	if (!reply)
		return -EAGAIN;
	memcpy(reply + 1, &value_len, sizeof(value_len));
	memcpy((char *)(reply + 1) + sizeof(value_len), key, key_len);
	reply_commit(conn, request, reply, WIRE_TOO_LARGE, (uint32_t)sizeof(value_len) + key_len);
	return 0;
}

static void kv_agent_established(struct conn *conn)
{
	(void)conn;
}

static void kv_agent_closed(struct conn *conn, int error, const char *reason)
{
	struct conn_info info;

	if (error != 0) {
		conn_get_info(conn, &info);
		log_warn("kv", "%s (%s): %s", info.peer, info.transport, reason);
	}
	kv_rendezvous_close(conn_context(conn));
	free(conn_context(conn));
}

static const struct conn_ops kv_agent_ops = {
	.established = kv_agent_established,
	.record = kv_agent_record,
	.writable = kv_rendezvous_writable,
	.closed = kv_agent_closed,
};

const struct service service_kv = {
	.id = WIRE_KV,
	.help = "key/value store",
	.settings = &kv_settings,
	.counters = counters,
	.open = kv_shared_open,
	.close = kv_shared_close,
	.tick = kv_shared_tick,
	.status = kv_shared_status,
	.memory = kv_shared_memory,
	.resources = kv_shared_resources,
	.part_size = sizeof(struct kv_thread),
	.part_init = kv_thread_init,
	.part_clear = kv_thread_clear,
	.progress = kv_hold_progress,
	.deadline = kv_hold_deadline,
	.admit = kv_admit,
	.ops = &kv_agent_ops,
	.agent_new = kv_agent_new,
	.agent_free = free,
};
