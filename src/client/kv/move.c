/* move.c: items and sessions, by which rdmad moves slots to another server. */
#include "client/kv/kv.h" /* first: a handle is any pointer there */

#include "client/client.h"

static int submit_any(struct kv *kv, const struct ask *ask)
{
	struct request *r;
	int rc = kv_begin(kv);

	if (rc != 0)
		return rc;
	kv_enter(kv);
	rc = request_submit(kv, ask, &r);
	kv_leave(kv);
	return kv_end(kv, rc, wire_op_name(ask->op));
}

int client_put_item(void *kv_handle, const struct client_item *item, kv_callback done, void *arg)
{
	const struct wire_put put = {.version = wire_item(item->flags, item->type),
				     .ttl = item->ttl,
				     .condition = WIRE_ALWAYS,
				     .flags = WIRE_PUT_ITEM};

	return submit_any(kv_handle, &(struct ask){.op = WIRE_OP_PUT,
						   .head = &put,
						   .head_len = sizeof(put),
						   .key = item->key,
						   .key_len = item->key_len,
						   .value = item->value,
						   .value_len = item->value_len,
						   .done = done,
						   .arg = arg});
}

int client_move(void *kv_handle, uint32_t kind, const void *body, size_t length, kv_callback done, void *arg)
{
	return submit_any(kv_handle, &(struct ask){.op = WIRE_OP_MOVE,
						   .limit = kind,
						   .value = body,
						   .value_len = length,
						   .done = done,
						   .arg = arg});
}
