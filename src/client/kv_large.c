/*
 * kv_large.c: values that do not pass through a message. The server reads the value of a set from the caller's memory, and
 * writes that of a get to the caller's memory or to a landing buffer of ours. A get whose value turns out longer than was
 * thought is sent again with a buffer that holds it; where there is no room for that, when there is.
 */
#include "client/kv.h"

#include <stdlib.h>

#define KV_TRIES 8 /* a value that grows faster than it can be fetched */
#define LARGE_HEAD (sizeof(struct wire_remote) + sizeof(struct wire_put)) /* at most */

/* A slot for a request whose value is moved by the server. */
static struct request *take_large(struct kv *kv, const struct ask *ask, enum wire_op op)
{
	struct request *r = request_take(kv, ask);

	r->op = (uint8_t)op;
	r->large = true;
	return r;
}

/* Nobody was told of it. */
static void drop_large(struct kv *kv, struct request *r)
{
	if (r->landing)
		landing_give(r->landing);
	r->landing = NULL;
	r->large = false;
	buffers_unreach(kv->buffers, &r->reach);
	request_give(kv, r);
}

/* Whether a request could leave now: to be known before anything is registered for it. What waits
 * travels meanwhile. */
static int room_for_large(struct kv *kv, size_t key_len)
{
	conn_flush(kv->conn);
	if (conn_reserve(kv->conn, (uint32_t)(LARGE_HEAD + key_len), NULL))
		return 0;
	return conn_established(kv->conn) ? -EAGAIN : -ENOTCONN;
}

/* The body is `remote`, which says where the value lies or goes, head and key. */
static int send_large(struct kv *kv, const struct request *r, const struct wire_remote *remote, const void *head,
		      size_t head_len, const void *key, size_t key_len)
{
	uint32_t length = (uint32_t)(sizeof(*remote) + head_len + key_len);
	struct wire_record *record = conn_reserve(kv->conn, length, NULL);
	char *at;

	if (!record)
		return conn_established(kv->conn) ? -EAGAIN : -ENOTCONN;
	at = (char *)(record + 1);
	record->id = r->id;
	record->op = r->op;
	record->flags = r->op == WIRE_OP_GET_INTO && r->result ? WIRE_VERSIONED : 0;
	memcpy(at, remote, sizeof(*remote));
	if (head_len)
		memcpy(at + sizeof(*remote), head, head_len);
	memcpy(at + sizeof(*remote) + head_len, key, key_len);
	conn_commit(kv->conn, record, length);
	return 0;
}

static struct wire_remote remote_of(const struct kv *kv, const void *addr, size_t length,
				    const struct fabric_region *region)
{
	return (struct wire_remote){
		.addr = (uintptr_t)addr,
		.length = length,
		.rkey = fabric_region_rkey(region, conn_endpoint(kv->conn)),
	};
}

int request_set_large(struct kv *kv, const struct ask *ask, uint64_t size, struct request **taken)
{
	struct wire_remote remote;
	struct request *r;
	int rc;

	if (unlikely(kv->value_max <= WIRE_EAGER_MAX)) {
		log_error("kv",
			  "a key of %zu and a value of %zu bytes do not fit a message, and the server has no "
			  "registered memory for large values on this transport; its log says why",
			  ask->key_len, (size_t)size);
		return -EMSGSIZE;
	}
	rc = room_for_large(kv, ask->key_len);
	if (rc != 0)
		return rc;
	r = take_large(kv, ask, ask->op == WIRE_OP_PUT ? WIRE_OP_PUT_FROM : WIRE_OP_SET_FROM);
	rc = buffers_reach(kv->buffers, ask->value, size, FABRIC_REMOTE_READ, &r->reach);
	if (rc == 0) {
		remote = remote_of(kv, ask->value, size, reach_region(&r->reach));
		rc = send_large(kv, r, &remote, ask->head, ask->head_len, ask->key, ask->key_len);
	}
	if (rc != 0) {
		drop_large(kv, r);
		return rc;
	}
	kv_size_remember(kv, ask->key, ask->key_len, size);
	*taken = r;
	return 0;
}

static int send_get_landing(struct kv *kv, struct request *r, const void *key, size_t key_len)
{
	struct wire_remote remote;

	must(r->large && r->landing);
	remote = remote_of(kv, landing_data(r->landing), landing_size(r->landing), landing_region(r->landing));
	r->op = WIRE_OP_GET_INTO;
	return send_large(kv, r, &remote, NULL, 0, key, key_len);
}

int request_get_large(struct kv *kv, const struct ask *ask, uint64_t size, struct request **taken)
{
	struct request *r = take_large(kv, ask, WIRE_OP_GET_INTO);
	int rc = -ENOMEM;

	r->key_hash = hash_bytes(ask->key, ask->key_len);
	r->landing = landing_take(kv->buffers, size);
	if (r->landing)
		rc = send_get_landing(kv, r, ask->key, ask->key_len);
	if (rc != 0)
		drop_large(kv, r);
	*taken = r;
	return rc;
}

int request_get_into(struct kv *kv, const struct ask *ask, uint64_t size, struct request **taken)
{
	struct wire_remote remote;
	struct request *r;
	int rc = room_for_large(kv, ask->key_len);

	if (rc != 0)
		return rc;
	r = take_large(kv, ask, WIRE_OP_GET_INTO);
	r->into = ask->into;
	r->into_size = size;
	rc = buffers_reach(kv->buffers, r->into, size, FABRIC_REMOTE_WRITE, &r->reach);
	if (rc == 0) {
		remote = remote_of(kv, r->into, size, reach_region(&r->reach));
		rc = send_large(kv, r, &remote, NULL, 0, ask->key, ask->key_len);
	}
	if (rc != 0)
		drop_large(kv, r);
	*taken = r;
	return rc;
}

static void remember_again(struct kv *kv, struct request *r, const void *key, size_t key_len)
{
	struct again *a = malloc(sizeof(*a) + key_len);

	if (!a) {
		request_finish(kv, r, -ENOMEM, NULL, 0);
		return;
	}
	a->next = NULL;
	a->id = r->id;
	a->key_len = key_len;
	memcpy(a->key, key, key_len);
	*kv->again_tail = a;
	kv->again_tail = &a->next;
}

void kv_large_writable(struct kv *kv)
{
	struct again *a;

	while ((a = kv->again)) {
		struct request *r = &kv->slot[a->id % KV_SLOTS];

		/* A server that answers twice may have finished it meanwhile. */
		if (r->id == a->id && r->landing && send_get_landing(kv, r, a->key, a->key_len) != 0)
			return;
		kv->again = a->next;
		if (!kv->again)
			kv->again_tail = &kv->again;
		free(a);
	}
}

void kv_large_end(struct kv *kv)
{
	while (kv->again) {
		struct again *a = kv->again;

		kv->again = a->next;
		free(a);
	}
	kv->again_tail = &kv->again;
}

int request_get_again(struct kv *kv, struct request *r, const struct wire_record *record, const char *body)
{
	const char *key = body + sizeof(uint64_t);
	size_t key_len = record->length - sizeof(uint64_t);
	uint64_t length;

	if (record->length <= sizeof(length) || key_len > WIRE_KEY_MAX)
		return -EPROTO;
	memcpy(&length, body, sizeof(length));
	/* Another transport of the server may take longer values than this one. */
	if (length <= kv->value_max)
		kv_size_remember(kv, key, key_len, length);
	if (r->into || length > kv->value_max || r->tries++ == KV_TRIES) {
		request_finish(kv, r, -EMSGSIZE, NULL, length);
		return 0;
	}
	if (r->landing)
		landing_give(r->landing);
	r->large = true;
	r->key_hash = hash_bytes(key, key_len);
	r->landing = landing_take(kv->buffers, length);
	if (!r->landing)
		request_finish(kv, r, -ENOMEM, NULL, 0);
	else if (kv->again || send_get_landing(kv, r, key, key_len) != 0)
		remember_again(kv, r, key, key_len);
	return 0;
}

int request_get_landed(struct kv *kv, struct request *r, const char *body, size_t length)
{
	size_t size = r->landing ? landing_size(r->landing) : r->into_size;
	uint64_t value_len;

	if (length != sizeof(value_len) || !r->large || !(r->landing || r->into))
		return -EPROTO;
	memcpy(&value_len, body, sizeof(value_len));
	if (value_len > size)
		return -EPROTO;
	kv_size_correct(kv, r, value_len);
	request_finish(kv, r, 0, r->landing ? landing_data(r->landing) : r->into, value_len);
	return 0;
}
