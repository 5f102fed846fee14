/*
 * large.c: values that do not pass through a message. The server reads the value of a set from the caller's memory, and
 * writes that of a get to the caller's memory or to a landing buffer of ours. A get whose value turns out longer than
 * was thought is sent again with a buffer that holds it; where there is no room for that, when there is.
 */
#include "client/kv/kv.h"

#include <stdlib.h>

#define KV_TRIES 8 /* a value that grows faster than it can be fetched */
#define LARGE_HEAD (sizeof(struct wire_remote) + sizeof(struct wire_fetch)) /* at most, without pieces */

/* A slot for a request whose value is moved by the server. */
static struct request *large_take(struct kv *kv, const struct ask *ask, enum wire_op op)
{
	struct request *r = request_take(kv, ask);

	r->op = (uint8_t)op;
	r->large = true;
	r->direct = ask->direct;
	return r;
}

/* No peer was told of it. */
static void large_drop(struct kv *kv, struct request *r)
{
	if (r->landing)
		landing_give(r->landing);
	r->landing = NULL;
	r->large = false;
	buffers_unreach(kv->buffers, &r->reach);
	if (r->pieces)
		kv_pieces_give(kv, r);
	request_give(kv, r);
}

/*
 * Values that go with their message, where a processor moves them
 */
void kv_pushes_init(struct kv *kv, uint64_t push_max)
{
	if (push_max && !kv->pushes) {
		kv->pushes = calloc(KV_PUSHES, sizeof(kv->pushes[0]));
		for (struct kv_push *p = kv->pushes; p && p < kv->pushes + KV_PUSHES; p++) {
			p->kv = kv;
			p->next = kv->free_push;
			kv->free_push = p;
			kv->free_pushes++;
		}
	}
	kv->push_max = kv->pushes ? push_max : 0;
}

static void push_give(struct kv_push *p)
{
	p->request->push = NULL;
	p->next = p->kv->free_push;
	p->kv->free_push = p;
	p->kv->free_pushes++;
	if (unlikely(p->kv->wants_room)) {
		p->kv->wants_room = false;
		engine_rouse(p->kv->engine);
	}
}

static struct kv_push *push_take(struct request *r, struct kv *kv,
				 void (*done)(struct conn_transfer *wire, enum fabric_status status))
{
	struct kv_push *p = kv->free_push;

	kv->free_push = p->next;
	kv->free_pushes--;
	p->wire.done = done;
	p->request = r;
	p->answered = false;
	r->push = p;
	return p;
}

/* The value of a set is out of the caller's memory. */
static void set_pushed(struct conn_transfer *wire, enum fabric_status status)
{
	struct kv_push *p = container_of(wire, struct kv_push, wire);

	push_give(p);
	if (p->answered)
		kv_request_finish(p->kv, p->request, p->status, NULL, 0);
}

/* The value of a get is in the landing buffer. */
static void get_pushed(struct conn_transfer *wire, enum fabric_status status)
{
	struct kv_push *p = container_of(wire, struct kv_push, wire);
	struct request *r = p->request;

	push_give(p);
	if (status == FABRIC_OK)
		kv_request_finish(p->kv, r, 0, landing_data(r->landing), wire->bytes);
}

/* Some bytes of a request's body. */
struct span {
	const void *at;
	size_t len;
};

/* The body is three spans: where the value lies or goes, head and key; or head, key, and where the pieces do, and `arg`
 * says the key's length. `value`: goes behind it, if not NULL. */
static int large_send(struct kv *kv, struct request *r, uint8_t flags, uint32_t arg, const struct span body[static 3],
		      const struct fabric_sge *value)
{
	uint32_t length = (uint32_t)(body[0].len + body[1].len + body[2].len);
	struct wire_record *record = conn_reserve(kv->conn, length, NULL);
	char *at;

	if (!record)
		return kv_no_room(kv);
	at = (char *)(record + 1);
	record->id = r->id;
	record->op = r->op;
	record->status = kv->took_moved;
	record->flags = flags | (r->op == WIRE_OP_GET_INTO && r->result ? WIRE_VERSIONED : 0);
	record->arg = arg;
	for (unsigned i = 0; i < 3; at += body[i++].len)
		if (body[i].len)
			memcpy(at, body[i].at, body[i].len);
	if (value)
		conn_push(kv->conn, &push_take(r, kv, set_pushed)->wire, record, value);
	conn_commit(kv->conn, record, length);
	r->message = conn_message_begun(kv->conn);
	return 0;
}

struct wire_remote kv_remote(const struct kv *kv, const void *addr, size_t length, const struct fabric_region *region)
{
	return (struct wire_remote){
		.addr = fabric_region_named(region, addr),
		.length = length,
		.rkey = fabric_region_rkey(region, conn_endpoint(kv->conn)),
	};
}

/* The operation by which a request names memory for its value, or with its value. */
static enum wire_op op_naming(enum wire_op op, bool pieces)
{
	if (op == WIRE_OP_SET)
		return WIRE_OP_SET_FROM;
	if (op == WIRE_OP_PUT)
		return pieces ? WIRE_OP_PUT_PIECES : WIRE_OP_PUT_FROM;
	return op == WIRE_OP_FETCH && pieces ? WIRE_OP_FETCH_PIECES : op;
}

/* Names the caller's memory to the server, and a landing buffer for the pieces that are copied. *one: the memory, if it
 * is in one range. */
static int memory_take(struct kv *kv, struct request *r, const struct ask *ask, const struct kv_plan *plan,
		       struct fabric_sge *one, struct wire_remote ranges[static WIRE_PIECES_MAX])
{
	const unsigned access = wire_op_reads(ask->op) ? FABRIC_REMOTE_WRITE : FABRIC_REMOTE_READ;
	int rc;

	if (ask->pieces) {
		rc = kv_pieces_take(kv, r, plan, access, ranges);
		if (rc != 0 || !plan->landing)
			return rc;
		if (!wire_op_reads(ask->op))
			kv_pieces_gather(plan->pieces, plan->count, plan->small, landing_data(r->landing));
		*one = (struct fabric_sge){landing_data(r->landing), plan->landing, landing_region(r->landing)};
		return 0;
	}
	rc = buffers_reach(kv->buffers, one->addr, one->len, access, &r->reach);
	if (rc != 0)
		return rc;
	one->region = reach_region(&r->reach);
	ranges[0] = kv_remote(kv, one->addr, one->len, one->region);
	return 0;
}

/* By which way the value goes, or the server's comes; WIRE_WAY_NONE is logged. */
static enum wire_way large_way(const struct kv *kv, const struct ask *ask, uint64_t size, const struct kv_plan *plan)
{
	struct wire_ways can = kv_ways(kv, ask->key_len);
	enum wire_way way;

	can.direct = ask->direct;
	/* The length of what is read only the server knows: it may use the memory, or not. */
	if (wire_op_reads(ask->op))
		return plan->ranges > 1 ? WIRE_WAY_PIECES : WIRE_WAY_REMOTE;
	can.ranges = (unsigned)plan->ranges;
	if (ask->pieces && plan->landing != size) /* what is pushed is in one place */
		can.push_max = 0;
	way = wire_way(ask->op, size, &can);
	if (way == WIRE_WAY_NONE)
		log_error(
			"kv",
			"a key of %zu and a value of %zu bytes do not fit a message, and the server has no "
			"registered memory for large values on this transport; its log says why, and tcp:// takes them",
			ask->key_len, (size_t)size);
	return way;
}

int request_large(struct kv *kv, const struct ask *ask, uint64_t size, struct request **taken)
{
	const bool reads = wire_op_reads(ask->op);
	const uint8_t flags = (uint8_t)(ask->flags | (reads && ask->direct ? WIRE_WRITTEN : 0));
	struct kv_plan plan = {.ranges = 1};
	struct fabric_sge one = {reads ? ask->into : (void *)ask->value, size, NULL};
	struct span named, head = {ask->head, ask->head_len}, key = {ask->key, ask->key_len};
	struct wire_remote ranges[WIRE_PIECES_MAX];
	enum wire_way way;
	struct request *r;
	int rc;

	if (ask->pieces)
		kv_pieces_plan(kv, one.addr, ask->pieces, &plan);
	else
		plan.reached = buffers_reached(kv->buffers, one.addr, size);
	if (ask->op == WIRE_OP_FETCH) { /* which begins with room for a range */
		head.at = (const char *)head.at + sizeof(ranges[0]);
		head.len -= sizeof(ranges[0]);
	}
	if (unlikely(ask->direct) && (rc = kv_direct_ranges(kv, &plan)) != 0)
		return rc;
	way = large_way(kv, ask, size, &plan);
	if (way == WIRE_WAY_NONE)
		return -EMSGSIZE;
	/* One that went another way would hold up those behind it, whose values were dropped then. Room for those of a
	 * message of the server is left: what it pushes is always taken, as it does not expect to be asked again. */
	if (way == WIRE_WAY_PUSHED && (kv->free_pushes <= WIRE_PUSHES || !conn_push_room(kv->conn, size)))
		return kv_no_room(kv);
	/* Whether it could leave now is to be known before anything is registered for it. What waits travels meanwhile;
	 * where nothing is to be registered, or the value goes along, it shares a message with this request. */
	if (way != WIRE_WAY_PUSHED && !plan.reached)
		conn_flush(kv->conn);
	if (!conn_reserve(kv->conn, (uint32_t)(LARGE_HEAD + ask->key_len + (ask->pieces ? sizeof(ranges) : 0)), NULL))
		return kv_no_room(kv);
	r = large_take(kv, ask, op_naming(ask->op, way == WIRE_WAY_PIECES));
	r->into = ask->into;
	r->into_size = size;
	r->key_hash = 0;
	rc = memory_take(kv, r, ask, &plan, &one, ranges);
	named = (struct span){ranges, plan.ranges * sizeof(ranges[0])};
	if (rc == 0 && way == WIRE_WAY_PIECES)
		rc = large_send(kv, r, flags, (uint32_t)key.len, (struct span[]){head, key, named}, NULL);
	else if (rc == 0)
		rc = large_send(kv, r, flags, 0, (struct span[]){named, head, key},
				way == WIRE_WAY_PUSHED ? &one : NULL);
	if (rc != 0) {
		large_drop(kv, r);
		return rc;
	}
	if (!reads && kv_get_names(kv, size))
		kv_size_remember(kv, ask->key, ask->key_len, size);
	*taken = r;
	return 0;
}

static int send_get_landing(struct kv *kv, struct request *r, const void *key, size_t key_len)
{
	struct wire_remote remote;

	must(r->large && r->landing);
	remote = kv_remote(kv, landing_data(r->landing), landing_size(r->landing), landing_region(r->landing));
	r->op = WIRE_OP_GET_INTO;
	return large_send(kv, r, WIRE_AGAIN, 0, (struct span[]){{&remote, sizeof(remote)}, {NULL, 0}, {key, key_len}},
			  NULL);
}

int request_get_large(struct kv *kv, const struct ask *ask, uint64_t size, struct request **taken)
{
	struct request *r = large_take(kv, ask, WIRE_OP_GET_INTO);
	int rc = -ENOMEM;

	r->key_hash = hash_bytes(ask->key, ask->key_len);
	r->landing = landing_take(kv->buffers, size, FABRIC_REMOTE_WRITE);
	if (r->landing)
		rc = send_get_landing(kv, r, ask->key, ask->key_len);
	if (rc != 0)
		large_drop(kv, r);
	*taken = r;
	return rc;
}

static void retry_add(struct kv *kv, struct request *r, const void *key, size_t key_len)
{
	struct retry *a = malloc(sizeof(*a) + key_len);

	if (!a) {
		kv_request_finish(kv, r, -ENOMEM, NULL, 0);
		return;
	}
	a->next = NULL;
	a->id = r->id;
	a->key_len = key_len;
	memcpy(a->key, key, key_len);
	*kv->retry_tail = a;
	kv->retry_tail = &a->next;
}

void kv_large_writable(struct kv *kv)
{
	struct retry *a;

	while ((a = kv->retry)) {
		struct request *r = kv_slot(kv, a->id);

		/* A server that answers twice may have finished it meanwhile. */
		if (r->id == a->id && r->landing && send_get_landing(kv, r, a->key, a->key_len) != 0)
			return;
		kv->retry = a->next;
		if (!kv->retry)
			kv->retry_tail = &kv->retry;
		free(a);
	}
}

void kv_large_end(struct kv *kv)
{
	while (kv->retry) {
		struct retry *a = kv->retry;

		kv->retry = a->next;
		free(a);
	}
	kv->retry_tail = &kv->retry;
}

/* The value comes behind the answer. False: it is dropped, and to be asked for again. */
static bool get_pushed_begin(struct kv *kv, struct request *r, uint64_t length)
{
	struct fabric_sge to;

	if (!kv->free_push)
		return false;
	r->landing = landing_take(kv->buffers, length, FABRIC_REMOTE_WRITE);
	if (!r->landing)
		return false;
	to = (struct fabric_sge){landing_data(r->landing), length, landing_region(r->landing)};
	if (conn_pull(kv->conn, &push_take(r, kv, get_pushed)->wire, &to) == 0) {
		r->large = true;
		r->key_hash = 0;
		return true;
	}
	push_give(r->push);
	landing_give(r->landing);
	r->landing = NULL;
	return false;
}

/* The server need not keep the value for it: a request of another kind says so, as it has the same id. */
static void get_give_up(struct kv *kv, struct request *r, const char *key, size_t key_len)
{
	struct wire_record *record = conn_reserve(kv->conn, (uint32_t)key_len, NULL);

	if (!record) {
		kv_request_finish(kv, r, -EMSGSIZE, NULL, 0);
		return;
	}
	r->op = WIRE_OP_EXISTS;
	record->id = r->id;
	record->op = r->op;
	record->status = kv->took_moved;
	memcpy(record + 1, key, key_len);
	conn_commit(kv->conn, record, (uint32_t)key_len);
	r->message = conn_message_begun(kv->conn);
}

int request_get_again(struct kv *kv, struct request *r, const struct wire_record *record, const char *body)
{
	size_t head = sizeof(uint64_t) + (record->flags & WIRE_VERSIONED), key_len = record->length - head;
	const char *key = body + head;
	uint64_t length;

	if (record->length <= head || key_len > WIRE_KEY_MAX || r->push)
		return -EPROTO;
	memcpy(&length, body, sizeof(length));
	if (record->flags & WIRE_VERSIONED)
		memcpy(&r->meta.version, body + sizeof(length), sizeof(r->meta.version));
	if (record->flags & WIRE_PUSHED && r->op == WIRE_OP_GET && !r->large && get_pushed_begin(kv, r, length))
		return 0;
	if (r->op == WIRE_OP_FETCH || r->op == WIRE_OP_FETCH_PIECES) { /* it may be a part */
		kv_request_finish(kv, r, -EMSGSIZE, NULL, length);
		return 0;
	}
	if (request_is_orphan(r)) {
		get_give_up(kv, r, key, key_len);
		return 0;
	}
	/* Another transport of the server may take longer values than this one. */
	if (length <= kv->value_max)
		kv_size_remember(kv, key, key_len, length);
	if (r->into || length > kv->value_max || r->tries++ == KV_TRIES) {
		kv_request_finish(kv, r, -EMSGSIZE, NULL, length);
		return 0;
	}
	if (r->landing)
		landing_give(r->landing);
	r->large = true;
	r->key_hash = hash_bytes(key, key_len);
	r->landing = landing_take(kv->buffers, length, FABRIC_REMOTE_WRITE);
	if (!r->landing)
		kv_request_finish(kv, r, -ENOMEM, NULL, 0);
	else if (kv->retry || send_get_landing(kv, r, key, key_len) != 0)
		retry_add(kv, r, key, key_len);
	return 0;
}

int request_get_landed(struct kv *kv, struct request *r, const char *body, size_t length)
{
	size_t size = r->landing && !r->pieces ? landing_size(r->landing) : r->into_size;
	void *value = r->landing ? landing_data(r->landing) : r->into;
	uint64_t value_len;

	if (length != sizeof(value_len) || !r->large)
		return -EPROTO;
	memcpy(&value_len, body, sizeof(value_len));
	if (value_len > size)
		return -EPROTO;
	kv_size_correct(kv, r, value_len);
	if (r->pieces) {
		if (r->landing && r->into) /* else it was given up */
			kv_pieces_scatter(r->into, r->pieces->small, value, value_len);
		value = NULL;
	}
	kv_request_finish(kv, r, 0, value, value_len);
	return 0;
}
