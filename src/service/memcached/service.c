/* service.c: the row of the service for memcached's clients, and what the process and a worker have of it. */
#include "service/memcached/memcached.h"

#include <stdlib.h>

#define ANSWERS_MAX (512 * MIB) /* of one visit, but for values that leave from where they are */

static const struct setting settings[] = {
	TEXT_SETTINGS("memcached", "memcached's", "11211", "/run/rdmad/memcached.sock", "rdmad-memcached(7)"),
};

static const struct setting_table memcached_settings = {settings, ARRAY_SIZE(settings), sizeof(struct text_settings)};

static const char *const counters[] = {
#define MEMCACHED_NAME(ID, name) "memcached_" name,
	MEMCACHED_COUNTERS(MEMCACHED_NAME)
#undef MEMCACHED_NAME
		NULL};

_Static_assert(MEMCACHED_COUNTS <= SERVICE_COUNTERS, "a service has so many counters");

static int memcached_check(const void *values, uint64_t services)
{
	return text_check(values, services, "memcached");
}

static int memcached_open(const struct service_host *host, const void *values, void **out)
{
	struct memcached_shared *shared;
	int rc = text_offered(values, service_is_open(host->shared, WIRE_KV), "memcached");

	if (rc != 0)
		return rc;
	shared = calloc(1, sizeof(*shared));
	if (!shared)
		return -ENOMEM;
	shared->settings = values;
	shared->kv = host->shared->of[WIRE_KV];
	shared->store = shared->kv->store;
	shared->started = time_now();
	shared->connections = host->connections;
	shared->flush_at = TIME_NEVER;
	list_init(&shared->threads);
	if (memcached_won_open(&shared->won) != 0) {
		free(shared);
		return -ENOMEM;
	}
	pthread_mutex_init(&shared->lock, NULL);
	*out = shared;
	return 0;
}

static void memcached_close(void *of)
{
	struct memcached_shared *shared = of;

	must(list_empty(&shared->threads));
	memcached_won_close(&shared->won);
	pthread_mutex_destroy(&shared->lock);
	free(shared);
}

static const char *memcached_refusal(enum wire_reason reason)
{
	switch (reason) {
	case WIRE_REASON_CONNECTIONS:
	case WIRE_REASON_SOURCE:
		return "ERROR Too many open connections\r\n";
	case WIRE_REASON_DRAINING:
		return "SERVER_ERROR the server is shutting down\r\n";
	default:
		return "SERVER_ERROR the server has no room for the connection\r\n";
	}
}

static int memcached_thread_init(struct service_part *part)
{
	struct memcached_thread *thread = container_of(part, struct memcached_thread, part);
	struct memcached_shared *shared = part->shared;

	thread->shared = shared;
	thread->store = shared->store;
	thread->kv = container_of(part->thread->part[WIRE_KV], struct kv_thread, part);
	thread->out.most = ANSWERS_MAX;
	pthread_mutex_lock(&shared->lock);
	list_add_tail(&shared->threads, &thread->node);
	pthread_mutex_unlock(&shared->lock);
	return 0;
}

static void memcached_thread_clear(struct service_part *part)
{
	struct memcached_thread *thread = container_of(part, struct memcached_thread, part);

	must(thread->pins.count == 0);
	pthread_mutex_lock(&thread->shared->lock);
	list_del(&thread->node);
	pthread_mutex_unlock(&thread->shared->lock);
	free(thread->pins.pin);
	free(thread->out.at);
}

static int memcached_take(struct service_part *part, struct stream_group *group, struct stream_open *open)
{
	struct memcached_thread *thread = container_of(part, struct memcached_thread, part);
	struct memcached_client *c = memcached_client_new(thread, open->fd);
	struct stream *stream;
	int rc = text_open(part, group, open, &memcached_stream_ops, c, &stream);

	if (rc == 0)
		memcached_client_begin(c, stream);
	else if (c)
		memcached_client_free(c);
	return rc;
}

const struct service service_memcached = {
	.id = WIRE_MEMCACHED,
	.help = "keys and values for memcached's clients",
	.settings = &memcached_settings,
	.counters = counters,
	.descriptors = text_descriptors,
	.check = memcached_check,
	.open = memcached_open,
	.close = memcached_close,
	.tick = memcached_tick,
	.part_size = sizeof(struct memcached_thread),
	.part_init = memcached_thread_init,
	.part_clear = memcached_thread_clear,
	.times = SERVICE_TIMES(READ) | SERVICE_TIMES(WRITE) | SERVICE_TIMES(SCAN) | SERVICE_TIMES(IN),
	.door = text_door,
	.refusal = memcached_refusal,
	.stream = memcached_take,
};
