/*
 * wait.c: how long a caller waits for answers. What counts is not how long a request takes, but how long nothing of the
 * connection gets on: a value of a gigabyte may take as long as its bytes need.
 */
#include "client/kv/kv.h"

#define CHECKS 8               /* of what moves, in the time of a timeout */
#define SLOWEST (TIME_S / MIB) /* ns a byte, where a device moves values and does not tell how far it is */

/* What tells by its change that something of the connections got on. */
static uint64_t moved_of(const struct kv *kv)
{
	const struct kv *part;
	uint64_t moved = 0;

	for (unsigned i = 0; (part = kv_part(kv, i)); i++)
		moved += part->conn ? conn_moved(part->conn) : 0;
	return moved;
}

/* When something of the connection got on last. */
static uint64_t moved_at(struct kv *kv, uint64_t now)
{
	uint64_t moved = moved_of(kv);

	if (moved != kv->moved) {
		kv->moved = moved;
		kv->moved_at = now;
	}
	return kv->moved_at;
}

static uint64_t large_bytes(const struct kv *kv)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < kv->slots; i++) {
		const struct request *r = kv_slot(kv, i);

		if (r->done && r->large)
			bytes += r->landing ? landing_size(r->landing) : r->into_size;
	}
	return bytes;
}

/* The time that is too long; asked when `timeout` has passed, not before. */
static uint64_t timeout_allowed(const struct kv *kv, uint64_t timeout)
{
	uint64_t most = timeout;

	for (unsigned i = 0; kv->nodes && kv_part(kv, i); i++)
		most = MAX(most, timeout_allowed(kv_part(kv, i), timeout));
	if (kv->nodes)
		return most;
	if (timeout == TIME_NEVER || !kv->conn || !conn_established(kv->conn) ||
	    fabric_moved_bytes(conn_endpoint(kv->conn)) != FABRIC_MOVED_UNKNOWN)
		return timeout;
	return time_after(timeout, large_bytes(kv) * SLOWEST);
}

void kv_timeout_begin(struct kv *kv)
{
	kv->moved_at = time_now();
	kv->moved = moved_of(kv);
	if (kv->nodes)
		kv->nodes->spoke = NULL;
}

int kv_await(void *handle, uint64_t until)
{
	struct kv *kv = handle;
	uint64_t timeout = kv->options.timeout, now = time_now(), at = moved_at(kv, now);
	struct kv *part;
	int rc;

	(void)until;
	if (now - at >= timeout && now - at >= timeout_allowed(kv, timeout))
		/* Without a connection nothing has left; the reason of its end tells why. */
		return !kv->lost ? -ETIMEDOUT : kv->refused == WIRE_REASON_DRAINING ? -ESHUTDOWN : -ENOTCONN;
	for (unsigned i = 0; (part = kv_part(kv, i)); i++)
		if (part->conn)
			conn_flush(part->conn);
	until = MAX(time_after(at, timeout), now + timeout / CHECKS + 1);
	rc = engine_wait_change(kv->engine, kv->completed, MIN(until, time_after(now, timeout / CHECKS + 1)));
	return rc == -ETIMEDOUT ? 0 : rc;
}

/* Its callback is told, though the answer may still come. */
static void request_give_up(struct kv *kv, struct request *r, int status)
{
	kv_callback done = r->done;
	kv_result_callback result = r->result;
	struct kv_result outcome = {.status = status};
	void *arg = result ? r->result_arg : r->arg;

	request_orphan(kv, r);
	if (result)
		result(arg, &outcome);
	else
		done(arg, status, NULL, 0);
}

/* The timer of submitted requests. */
static void check_requests(struct engine_timer *timer)
{
	struct kv *kv = container_of(timer, struct kv, watch);
	uint64_t now = time_now(), timeout = kv->request_timeout, at = moved_at(kv, now);
	bool late = timeout && now - at >= timeout && now - at >= timeout_allowed(kv, timeout);

	for (uint32_t i = 0; late && i < kv->slots; i++) {
		struct request *r = kv_slot(kv, i);

		if (r->done && !request_is_orphan(r) && r->since && now - r->since >= timeout) {
			request_give_up(kv, r, -ETIMEDOUT);
			++*kv->completed;
		}
	}
	if (kv->request_timeout && kv->outstanding > kv->orphans)
		engine_timer_set(kv->engine, &kv->watch, now + kv->request_timeout / CHECKS + 1);
}

void request_watch(struct kv *kv, struct request *r)
{
	r->since = time_now();
	if (list_linked(&kv->watch.node))
		return;
	moved_at(kv, r->since);
	engine_timer_set(kv->engine, &kv->watch, r->since + kv->request_timeout / CHECKS + 1);
}

void kv_timeout_init(struct kv *kv)
{
	kv->watch.due = check_requests;
}

int kv_request_timeout(void *kv_handle, uint64_t timeout_us)
{
	struct kv *kv = kv_handle, *part;
	int rc = kv_begin(kv);

	if (rc != 0)
		return rc;
	kv_enter(kv);
	kv->request_timeout = time_of_us(timeout_us);
	for (unsigned i = 0; (part = kv_part(kv, i)); i++)
		part->request_timeout = kv->request_timeout;
	kv_leave(kv);
	return 0;
}

/* Out of what the progress thread left to the caller. False: it is not there. */
static bool finished_remove(struct kv *kv, const struct request *r)
{
	uint32_t *at = &kv->finished;

	while (*at != KV_SLOTS && kv_slot(kv, *at) != r)
		at = &kv_slot(kv, *at)->next;
	if (*at == KV_SLOTS)
		return false;
	*at = r->next;
	if (kv->finished_tail == &r->next)
		kv->finished_tail = at;
	return true;
}

static bool request_is_of(const struct request *r, const void *arg)
{
	return r->done && !request_is_orphan(r) && request_arg(r) == arg;
}

static int cancel_requests(struct kv *kv, const void *arg)
{
	uint32_t id[KV_SLOTS], count = 0;
	bool before = engine_callbacks_begin(kv->engine);
	int n = 0;

	/* Callbacks may submit more of the same. */
	for (uint32_t i = 0; i < kv->slots; i++)
		if (request_is_of(kv_slot(kv, i), arg))
			id[count++] = kv_slot(kv, i)->id;
	for (uint32_t i = 0; i < count; i++) {
		struct request *r = kv_slot(kv, id[i]);

		if (r->id != id[i] || !request_is_of(r, arg))
			continue;
		if (finished_remove(kv, r)) {            /* what the progress thread has for it is not wanted */
			struct landing *lent = kv->lent; /* of the callback that this may be inside of */
			void *copy = r->copied ? (void *)r->value : NULL;

			kv_request_finish(kv, r, -ECANCELED, NULL, 0);
			kv->lent = lent;
			value_release(copy);
		} else {
			request_give_up(kv, r, -ECANCELED);
		}
		n++;
	}
	engine_callbacks_end(kv->engine, before);
	return n;
}

static bool ask_is_of(const struct ask *ask, const void *arg)
{
	return kv_caller_arg(ask->result, ask->arg) == arg;
}

int kv_cancel(void *kv_handle, const void *arg)
{
	struct kv *kv = kv_handle, *part;
	int rc = kv_begin(kv);

	if (rc != 0)
		return rc;
	kv_enter(kv);
	for (unsigned i = 0; (part = kv_part(kv, i)); i++)
		rc += cancel_requests(part, arg);
	if (kv->nodes)
		rc += kv_route_drop(kv, ask_is_of, arg, true);
	kv_leave(kv);
	return rc;
}
