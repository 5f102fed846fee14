/*
 * kv_handle.c: a handle: open and close, what it tells, registered memory, and the calls of a caller with a loop of its own.
 */
#include "client/kv.h"

#include <stdlib.h>

static void kv_established(struct conn *conn)
{
	(void)conn;
}

static void kv_writable(struct conn *conn)
{
	kv_large_writable(conn_context(conn));
}

static void kv_closed(struct conn *conn, int error, const char *reason)
{
	struct kv *kv = conn_context(conn);

	if (client_was_ended(error, reason))
		log_warn("kv", "the connection ended: %s", reason);
	kv->conn = NULL;
	kv->closed = true;
	kv->error = error ? error : -ECONNABORTED;
	kv_large_end(kv);
	kv_slots_end(kv);
}

static const struct conn_ops kv_ops = {
	.established = kv_established,
	.record = kv_answered,
	.writable = kv_writable,
	.closed = kv_closed,
};

static void take_granted(struct kv *kv, const struct rdmad_options *options)
{
	kv->completed = engine_completed(kv->engine);
	kv->buffers = engine_buffers(kv->engine);
	kv->eager_max = conn_granted(kv->conn)->eager_max;
	if (options && options->eager_limit)
		kv->eager_max = MIN(kv->eager_max, options->eager_limit);
	kv->value_max = conn_granted(kv->conn)->value_max;
	kv->transport = fabric_endpoint_transport(conn_endpoint(kv->conn))->name;
}

int kv_open_options(const char *server, const struct rdmad_options *options, void *share, void **kv_handle)
{
	struct wire_request request = {.service = WIRE_KV};
	struct kv *kv;
	int rc;

	if (!server || !kv_handle) {
		log_error("kv", "kv_open needs a server and a place for the handle");
		return -EINVAL;
	}
	kv = calloc(1, sizeof(*kv));
	if (!kv)
		return -ENOMEM;
	kv_slots_init(kv);
	kv->again_tail = &kv->again;
	engine_options_from(options, &kv->options);
	request.credits = (uint16_t)kv->options.credits;
	request.message_size = kv->options.message_size;
	rc = client_connect(server, &kv->options, share ? ((struct kv *)share)->engine : NULL, &request, &kv_ops, kv,
			    &kv->engine, &kv->conn);
	if (rc != 0) {
		free(kv);
		return rc;
	}
	take_granted(kv, options);
	engine_leave(kv->engine);
	*kv_handle = kv;
	return 0;
}

int kv_open(char *servername, void **kv_handle)
{
	return kv_open_options(servername, NULL, NULL, kv_handle);
}

int kv_close(void *kv_handle)
{
	struct kv *kv = kv_handle;

	if (!kv)
		return 0;
	if (engine_may_wait(kv->engine) != 0)
		return -EDEADLK;
	engine_enter(kv->engine);
	client_disconnect(kv->engine, kv->conn, &kv->closed);
	engine_leave(kv->engine);
	engine_release(kv->engine);
	free(kv);
	return 0;
}

/*
 * Registered memory
 */
int kv_buffer_lend(void *kv_handle, size_t size, void **buffer)
{
	struct kv *kv = kv_handle;
	int rc;

	if (!kv_handle || !buffer || !size) {
		log_error("kv", "kv_buffer_lend needs a handle, a size and a place for the buffer");
		return -EINVAL;
	}
	engine_enter(kv->engine);
	rc = buffers_lend(kv->buffers, size, buffer);
	engine_leave(kv->engine);
	return rc;
}

int kv_buffer_register(void *kv_handle, void *addr, size_t len)
{
	struct kv *kv = kv_handle;
	int rc;

	if (!kv_handle || !addr || !len) {
		log_error("kv", "kv_buffer_register needs a handle, an address and a length");
		return -EINVAL;
	}
	engine_enter(kv->engine);
	rc = buffers_register(kv->buffers, addr, len);
	engine_leave(kv->engine);
	if (rc == -EEXIST)
		log_error("kv", "part of this memory is registered already");
	return rc;
}

int kv_buffer_unregister(void *kv_handle, void *addr)
{
	struct kv *kv = kv_handle;
	int rc;

	if (!kv_handle || !addr) {
		log_error("kv", "kv_buffer_unregister needs a handle and an address");
		return -EINVAL;
	}
	engine_enter(kv->engine);
	rc = buffers_unregister(kv->buffers, addr);
	engine_leave(kv->engine);
	if (rc == -ENOENT)
		log_error("kv", "no memory was registered with this address");
	if (rc == -EBUSY)
		log_error("kv", "requests that use this memory are outstanding: wait for them first");
	return rc;
}

/*
 * Progress
 */
int kv_flush(void *kv_handle)
{
	struct kv *kv = kv_handle;
	int rc = 0;

	engine_enter(kv->engine);
	if (kv->conn)
		conn_flush(kv->conn);
	else
		rc = -ENOTCONN;
	engine_leave(kv->engine);
	return rc;
}

static int kv_progress_inside(struct kv *kv, uint64_t timeout_us)
{
	uint64_t before = *kv->completed;
	int rc;

	rc = engine_turn(kv->engine);
	if (rc < 0)
		return rc;
	if (*kv->completed == before && timeout_us && kv->conn) {
		rc = engine_wait_change(kv->engine, kv->completed, time_after(time_now(), time_of_us(timeout_us)));
		if (rc != 0 && rc != -ETIMEDOUT)
			return rc;
	}
	if (*kv->completed == before && !kv->conn)
		return -ENOTCONN;
	return (int)(*kv->completed - before);
}

int kv_progress(void *kv_handle, uint64_t timeout_us)
{
	struct kv *kv = kv_handle;
	int rc;

	engine_enter(kv->engine);
	rc = kv_progress_inside(kv, timeout_us);
	engine_leave(kv->engine);
	return rc;
}

int kv_await(void *handle, uint64_t until)
{
	struct kv *kv = handle;

	if (kv->conn)
		conn_flush(kv->conn);
	return engine_wait_change(kv->engine, kv->completed, until);
}

static int nothing_outstanding(struct blocking *b)
{
	const struct kv *kv = b->handle;

	if (kv->outstanding)
		return -EAGAIN;
	blocking_done(b, 0);
	return 0;
}

static int kv_wait_inside(struct kv *kv)
{
	struct blocking b = {.handle = kv, .submit = nothing_outstanding, .await = kv_await};
	int rc = kv->outstanding ? engine_block(kv->engine, &b, kv->options.timeout) : 0;

	if (rc == -ETIMEDOUT)
		log_error("kv", "%zu requests have no answer after %llu ms", kv->outstanding,
			  (unsigned long long)(kv->options.timeout / TIME_MS));
	if (rc != 0)
		return rc;
	return kv->conn ? 0 : -ENOTCONN;
}

int kv_wait(void *kv_handle)
{
	struct kv *kv = kv_handle;
	int rc;

	engine_enter(kv->engine);
	rc = kv_wait_inside(kv);
	engine_leave(kv->engine);
	return rc;
}

int kv_fd(const void *kv_handle)
{
	return engine_fd(((const struct kv *)kv_handle)->engine);
}

int kv_arm(void *kv_handle)
{
	struct kv *kv = kv_handle;
	int rc;

	engine_enter(kv->engine);
	rc = engine_arm(kv->engine);
	engine_leave(kv->engine);
	return rc;
}

/*
 * What a handle tells
 */
size_t kv_outstanding(const void *kv_handle)
{
	return ((const struct kv *)kv_handle)->outstanding;
}

const char *kv_transport(const void *kv_handle)
{
	return ((const struct kv *)kv_handle)->transport;
}

uint64_t kv_eager_max(const void *kv_handle)
{
	return ((const struct kv *)kv_handle)->eager_max;
}

uint64_t kv_value_max(const void *kv_handle)
{
	return ((const struct kv *)kv_handle)->value_max;
}
