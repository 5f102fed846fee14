/*
 * handle.c: a handle: open and close, what it tells, registered memory, and the calls of a caller with a loop of its
 * own.
 */
#include "client/kv/kv.h"

#include <stdlib.h>
#include <unistd.h>

/* Where a processor moves the bytes, a message costs a poll of the socket, and what of it came with its header is
 * copied: so the answers to many gets are to need few. A server grants no longer ones than its connections share. */
#define KV_PROCESSOR_MESSAGE (16u * 1024)

struct kv *kv_new(const char *server, const struct engine_options *options, uint32_t eager_limit)
{
	struct kv *kv = calloc(1, sizeof(*kv));

	if (!kv)
		return NULL;
	kv->server = strdup(server);
	if (!kv->server) {
		free(kv);
		return NULL;
	}
	kv->forks = client_forks;
	kv->retry_tail = &kv->retry;
	kv->eager_limit = eager_limit;
	kv->options = *options;
	kv->options.processor_message_size = KV_PROCESSOR_MESSAGE;
	kv_slots_init(kv);
	kv_timeout_init(kv);
	return kv;
}

void kv_free(struct kv *kv)
{
	if (!kv)
		return;
	kv_queue_free(kv);
	kv_watch_free(kv);
	kv_slots_free(kv);
	kv_pieces_free(kv);
	for (unsigned i = 0; kv->nodes && i < kv->nodes->count; i++)
		kv_free(kv->nodes->member[i]);
	kv_route_forget(kv);
	free(kv->targets);
	free(kv->nodes);
	free(kv->pushes);
	free(kv->server);
	free(kv);
}

int kv_open_options(const char *server, const struct rdmad_options *options, void *share, void **kv_handle)
{
	struct engine_options engine_options;
	struct kv *kv;
	int rc = share ? kv_begin(share) : 0;

	if (rc != 0)
		return rc;
	log_clear_last();
	if (!server || !kv_handle)
		return log_fail(-EINVAL, "kv", "kv_open needs a server and a place for the handle");
	if (cluster_is_named(server, NULL))
		return kv_nodes_open(server, options, share ? ((struct kv *)share)->engine : NULL,
				     (struct kv **)kv_handle);
	engine_options_from(options, &engine_options);
	kv = kv_new(server, &engine_options, options ? options->eager_limit : 0);
	if (!kv)
		return log_fail(-ENOMEM, "kv", "no memory for a handle");
	rc = kv_join(kv, share ? ((struct kv *)share)->engine : NULL);
	if (rc != 0) {
		kv_free(kv);
		return rc;
	}
	kv_leave(kv);
	*kv_handle = kv;
	return 0;
}

int rdmad_kv_open(const char *server, const struct rdmad_options *options, struct rdmad_kv *share, struct rdmad_kv **kv)
{
	return kv_open_options(server, options, share, (void **)kv);
}

int kv_open(char *servername, void **kv_handle)
{
	return kv_open_options(servername, NULL, NULL, kv_handle);
}

int kv_close(void *kv_handle)
{
	struct kv *kv = kv_handle;

	log_clear_last();
	if (!kv || client_abandoned(kv->engine, kv->forks))
		return 0;
	if (engine_may_wait(kv->engine) != 0)
		return -EDEADLK;
	kv_enter(kv);
	if (kv->nodes)
		kv_nodes_close(kv);
	else
		kv_hang_up(kv);
	kv_leave(kv);
	engine_release(kv->engine);
	kv_free(kv);
	log_clear_last();
	return 0;
}

/*
 * Registered memory
 */
int kv_buffer_lend(void *kv_handle, size_t size, void **buffer)
{
	struct kv *kv = kv_handle;
	int rc = kv_begin_given(kv, buffer && size, "kv_buffer_lend needs a size and a place for the buffer");

	if (rc != 0)
		return rc;
	kv_enter(kv);
	rc = buffers_lend(kv->buffers, size, buffer);
	kv_leave(kv);
	return kv_end(kv, rc, "kv_buffer_lend");
}

/* `dmabuf` NULL: a processor reaches it. */
static int register_memory(struct kv *kv, const struct fabric_dmabuf *dmabuf, void **addr, size_t len, const char *what)
{
	int rc;

	kv_enter(kv);
	if (dmabuf)
		rc = buffers_register_dmabuf(kv->buffers, dmabuf, addr, len, FABRIC_REMOTE_READ);
	else
		rc = buffers_register(kv->buffers, *addr, len, FABRIC_REMOTE_READ);
	kv_leave(kv);
	if (rc == -EEXIST)
		log_error("kv", "part of this memory is registered already");
	return kv_end(kv, rc, what);
}

int kv_buffer_register(void *kv_handle, void *addr, size_t len)
{
	struct kv *kv = kv_handle;
	int rc = kv_begin_given(kv, addr && len, "kv_buffer_register needs an address and a length");
	struct fabric_dmabuf exported;

	if (rc == 0)
		rc = device_memory_export(addr, len, &exported);
	if (rc < 0)
		return rc;
	if (rc == 0)
		return register_memory(kv, NULL, &addr, len, "kv_buffer_register");
	rc = register_memory(kv, &exported, &addr, len, "kv_buffer_register");
	close(exported.fd);
	return rc;
}

int kv_buffer_register_dmabuf(void *kv_handle, int fd, uint64_t offset, size_t len, void **addr)
{
	struct kv *kv = kv_handle;
	const struct fabric_dmabuf dmabuf = {fd, offset};
	int rc = kv_begin_given(kv, fd >= 0 && len && addr,
				"kv_buffer_register_dmabuf needs a descriptor, a length and a place for the address");

	return rc != 0 ? rc : register_memory(kv, &dmabuf, addr, len, "kv_buffer_register_dmabuf");
}

int kv_buffer_unregister(void *kv_handle, void *addr)
{
	struct kv *kv = kv_handle;
	int rc = kv_begin_given(kv, addr, "kv_buffer_unregister needs an address");

	if (rc != 0)
		return rc;
	kv_enter(kv);
	rc = buffers_unregister(kv->buffers, addr);
	kv_leave(kv);
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
	struct kv *kv = kv_handle, *part;
	int rc = kv_begin(kv);

	if (rc != 0)
		return rc;
	kv_enter(kv);
	for (unsigned i = 0; (part = kv_part(kv, i)); i++)
		if (part->conn)
			conn_flush(part->conn);
	if (kv->closed)
		rc = -ENOTCONN;
	kv_leave(kv);
	return kv_end(kv, rc, "kv_flush");
}

/* Requests that were completed since then. */
static int completed_since(const struct kv *kv, uint64_t completed, uint64_t roused)
{
	return (int)(*kv->completed - completed - (engine_roused(kv->engine) - roused));
}

static int kv_progress_inside(struct kv *kv, uint64_t timeout_us)
{
	uint64_t completed = *kv->completed, roused = engine_roused(kv->engine);
	int rc = engine_turn(kv->engine);

	if (rc < 0)
		return rc;
	while (rc >= 0 && *kv->completed == completed && timeout_us && !kv->closed) {
		rc = engine_wait_change(kv->engine, kv->completed, time_after(time_now(), time_of_us(timeout_us)));
		/* A caller that waits for ever is told of what was completed, and of nothing else. */
		if (timeout_us == UINT64_MAX && completed_since(kv, completed, roused) == 0)
			completed = *kv->completed, roused = engine_roused(kv->engine);
	}
	if (rc < 0 && rc != -ETIMEDOUT)
		return rc;
	rc = completed_since(kv, completed, roused);
	return rc == 0 && kv->closed ? -ENOTCONN : rc;
}

int kv_progress(void *kv_handle, uint64_t timeout_us)
{
	struct kv *kv = kv_handle;
	int rc = kv_begin(kv);

	if (rc != 0)
		return rc;
	kv_enter(kv);
	rc = kv_progress_inside(kv, timeout_us);
	kv_leave(kv);
	return kv_end(kv, rc, "kv_progress");
}

static int nothing_outstanding(struct blocking *b)
{
	const struct kv *kv = b->handle;

	if (kv_outstanding_of(kv))
		return -EAGAIN;
	blocking_done(b, 0);
	return 0;
}

int kv_wait(void *kv_handle)
{
	struct kv *kv = kv_handle;
	struct blocking b = {.handle = kv, .submit = nothing_outstanding, .await = kv_await};
	int rc = kv_begin(kv);

	if (rc != 0)
		return rc;
	kv_enter(kv);
	if (kv_outstanding_of(kv)) {
		kv_timeout_begin(kv);
		rc = engine_block(kv->engine, &b, TIME_NEVER);
	}
	if (rc == 0 && kv->closed)
		rc = -ENOTCONN;
	kv_leave(kv);
	return kv_end(kv, rc, "kv_wait");
}

int kv_fd(const void *kv_handle)
{
	const struct kv *kv = kv_handle;
	int rc = kv_begin(kv);

	return rc != 0 ? rc : engine_fd(kv->engine);
}

int kv_arm(void *kv_handle)
{
	struct kv *kv = kv_handle;
	int rc = kv_begin(kv);

	if (rc != 0)
		return rc;
	kv_enter(kv);
	rc = kv_queue_filled(kv) || kv_watch_filled(kv) ? 1 : engine_arm(kv->engine);
	kv_leave(kv);
	return kv_end(kv, rc == 0 && kv->closed ? -ENOTCONN : rc, "kv_arm");
}

int kv_expect_length(void *kv_handle, const void *key, size_t key_len, uint64_t length)
{
	struct kv *kv = kv_handle, *node;
	int rc = kv_begin_given(kv, key && key_len, "kv_expect_length needs a key");

	if (rc == 0)
		rc = kv_readable(key, key_len, "the key");
	if (rc != 0)
		return rc;
	kv_enter(kv);
	node = kv->nodes ? kv_route_to(kv, key, key_len) : kv;
	if (node)
		kv_size_remember(node, key, key_len, MIN(length, node->value_max));
	kv_leave(kv);
	return 0;
}

/*
 * What a handle tells
 */
size_t kv_outstanding(const void *kv_handle)
{
	const struct kv *kv = kv_handle;

	size_t outstanding;

	if (kv_begin(kv) != 0)
		return 0;
	kv_enter((struct kv *)kv);
	outstanding = kv_outstanding_of(kv);
	kv_leave((struct kv *)kv);
	return outstanding;
}

const char *kv_transport(const void *kv_handle)
{
	const struct kv *kv = kv_handle;

	return kv_begin(kv) ? "" : kv->transport;
}

/* The least of what the servers have granted. */
static uint64_t limit_of(const struct kv *kv, size_t member)
{
	uint64_t least = UINT64_MAX, of;
	const struct kv *part;

	for (unsigned i = 0; (part = kv_part(kv, i)); i++) {
		memcpy(&of, (const char *)part + member, sizeof(of));
		if (of)
			least = MIN(least, of);
	}
	return least;
}

uint64_t kv_eager_max(const void *kv_handle)
{
	const struct kv *kv = kv_handle;

	return kv_begin(kv) ? 0 : limit_of(kv, offsetof(struct kv, eager_max));
}

uint64_t kv_value_max(const void *kv_handle)
{
	const struct kv *kv = kv_handle;

	return kv_begin(kv) ? 0 : limit_of(kv, offsetof(struct kv, value_max));
}
