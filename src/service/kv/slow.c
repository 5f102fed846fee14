/*
 * slow.c: how long requests take, for the log of slow ones, while that is kept. The time of one begins when it is first
 * handed to the service and ends when its answer is ready; it has the transfer of a large value, and has no wait for
 * the disk.
 */
#include "service/kv/kv.h"

#include <stdlib.h>

#define UNDER_WAY 32 /* requests of a client, large values as a rule, that are timed at once; others are not */

struct timed {
	uint64_t begun; /* time_now(); 0: none */
	uint64_t id, size;
	uint16_t op;
	uint32_t key_len;
	char key[SERVICE_SLOW_KEY];
};

struct kv_slow {
	struct timed now; /* the request that is carried out, or is to come again */
	struct timed under_way[UNDER_WAY];
	unsigned count;
};

/* Bytes of the client's memory that a request names. */
static uint64_t named_bytes(const struct wire_record *request, const char *body, const char *key_end)
{
	const char *at = body, *end = body;
	struct wire_remote remote;
	uint64_t bytes = 0;

	switch (request->op) {
	case WIRE_OP_GET_INTO:
	case WIRE_OP_SET_FROM:
	case WIRE_OP_PUT_FROM:
	case WIRE_OP_FETCH:
		end = body + sizeof(remote);
		break;
	case WIRE_OP_PUT_PIECES:
	case WIRE_OP_FETCH_PIECES:
		at = key_end;
		end = body + request->length;
		break;
	}
	for (; end - at >= (ptrdiff_t)sizeof(remote); at += sizeof(remote)) {
		memcpy(&remote, at, sizeof(remote));
		bytes += remote.length;
	}
	return bytes;
}

bool kv_slow_begin(struct kv_agent *agent, const struct wire_record *request, const char *body, const char *key,
		   uint32_t key_len)
{
	struct timed *t;

	if (!agent->slow)
		agent->slow = calloc(1, sizeof(*agent->slow));
	if (!agent->slow)
		return false;
	t = &agent->slow->now;
	if (t->begun && t->id == request->id && t->op == request->op)
		return true; /* it comes again */
	*t = (struct timed){
		.begun = time_now(),
		.id = request->id,
		.op = request->op,
		.size = request->length + named_bytes(request, body, key ? key + key_len : body),
		.key_len = MIN(key_len, (uint32_t)SERVICE_SLOW_KEY),
	};
	if (!key)
		return true;
	memcpy(t->key, key, t->key_len);
	service_hot_key(&agent->thread->part, key, key_len);
	return true;
}

void kv_slow_end(struct kv_agent *agent, int rc)
{
	struct kv_slow *slow = agent->slow;

	if (rc == -EAGAIN || !slow)
		return;
	if (rc == 0 && slow->now.begun && slow->count < UNDER_WAY)
		slow->under_way[slow->count++] = slow->now;
	slow->now.begun = 0;
}

static void report_slow(const struct conn *conn, struct kv_agent *agent, const struct timed *t, uint32_t length)
{
	uint64_t took = time_now() - t->begun;
	struct conn_info info;

	if (!service_part_is_slow(&agent->thread->part, took))
		return;
	conn_get_info(conn, &info);
	service_slow_add(&agent->thread->part, &(struct service_slow_request){
						       .operation = wire_op_name(t->op),
						       .took = took,
						       .size = t->size + length,
						       .key = t->key_len ? t->key : NULL,
						       .key_len = t->key_len,
						       .client = info.peer,
						       .key_of = info.key,
					       });
}

void kv_slow_answered(const struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
		      uint32_t length)
{
	struct kv_slow *slow = agent->slow;

	if (!agent->thread->part.slow) { /* no request is timed any more */
		free(slow);
		agent->slow = NULL;
		return;
	}
	if (slow->now.begun && slow->now.id == request->id) {
		report_slow(conn, agent, &slow->now, length);
		slow->now.begun = 0;
		return;
	}
	for (unsigned i = 0; i < slow->count; i++)
		if (slow->under_way[i].id == request->id) {
			report_slow(conn, agent, &slow->under_way[i], length);
			slow->under_way[i] = slow->under_way[--slow->count];
			return;
		}
}
