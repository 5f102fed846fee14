/* service.c: the row of the service for Redis's clients, and what the process and a worker have of it. */
#include "service/resp/resp.h"

#include <stdlib.h>

#define REPLY_MAX (512 * MIB) /* longest reply of one command, but for values that leave from where they are */

#define AT(member) offsetof(struct resp_settings, member)

_Static_assert(offsetof(struct resp_settings, text) == 0, "TEXT_SETTINGS are rows of the same table");

static const struct setting settings[] = {
	TEXT_SETTINGS("resp", "Redis's", "6379", "/run/rdmad/redis.sock", "rdmad-resp(7)"),
	{"resp.notify", SETTING_STRING, AT(notify), NULL, .check = resp_notify_check, .sample = "KEA",
	 .help = "Events of keys that are published, as Redis's notify-keyspace-events, which CONFIG SET changes.\n"
		 "Unset: none. See rdmad-resp(7)."},
	TEXT_RDMA_SETTINGS("resp", "rdmad-resp(7)"),
	{"resp.scripts", SETTING_BOOL, AT(scripts), "false",
	 .help = "Let Redis's clients run scripts (EVAL). While one runs, its worker serves nobody else."},
	{"resp.script_time", SETTING_TIME, AT(script_time), "100ms", TIME_MS, 60 * TIME_S,
	 .help = "Longest time of a script: then it is ended, and nothing of it happens."},
	{"resp.script_memory", SETTING_SIZE, AT(script_memory), "64M", MIB, 64 * GIB,
	 .help = "Memory of the scripts of one worker."},
};

static const struct setting_table resp_settings = {settings, ARRAY_SIZE(settings), sizeof(struct resp_settings)};

static void make_run_id(char id[static 41])
{
	uint8_t random[20];

	if (random_fill(random, sizeof(random)) != 0)
		memset(random, 0, sizeof(random));
	for (unsigned i = 0; i < sizeof(random); i++)
		snprintf(id + 2 * i, 3, "%02x", random[i]);
}

static int resp_check(const void *values, uint64_t services)
{
	return text_check(values, services, "resp");
}

static int resp_open(const struct service_host *host, const void *values, void **out)
{
	const struct resp_settings *s = values;
	struct resp_shared *shared;
	int rc = text_offered(&s->text, service_is_open(host->shared, WIRE_KV), "resp");

	if (rc != 0)
		return rc;
	shared = calloc(1, sizeof(*shared));
	if (!shared)
		return -ENOMEM;
	shared->settings = s;
	shared->kv = host->shared->of[WIRE_KV];
	shared->store = shared->kv->store;
	shared->started = time_now();
	make_run_id(shared->run_id);
	shared->connections = host->connections;
	shared->pubsub = resp_pubsub_new();
	if (s->notify) {
		unsigned flags;

		resp_notify_read(s->notify, strlen(s->notify), &flags);
		atomic_store(&shared->notify, flags);
	}
	list_init(&shared->clients);
	list_init(&shared->threads);
	if (!shared->pubsub || (s->scripts && resp_scripts_open(shared) != 0)) {
		resp_pubsub_free(shared->pubsub);
		free(shared);
		return -ENOMEM;
	}
	pthread_mutex_init(&shared->lock, NULL);
	pthread_mutex_init(&shared->errors.lock, NULL);
	strcpy(shared->errors.of[0].name, "ERR");
	atomic_store(&shared->errors.used, 1);
	*out = shared;
	return 0;
}

static void resp_close(void *of)
{
	struct resp_shared *shared = of;

	must(list_empty(&shared->clients) && list_empty(&shared->threads));
	resp_pubsub_free(shared->pubsub);
	pthread_mutex_destroy(&shared->lock);
	pthread_mutex_destroy(&shared->errors.lock);
	resp_scripts_close(shared);
	free(shared);
}

static const char *resp_refusal(enum wire_reason reason)
{
	atomic_fetch_add_explicit(&resp_refused, 1, memory_order_relaxed);
	switch (reason) {
	case WIRE_REASON_CONNECTIONS:
	case WIRE_REASON_SOURCE:
		return "-ERR max number of clients reached\r\n";
	case WIRE_REASON_DRAINING:
		return "-LOADING the server is shutting down\r\n";
	default:
		return "-ERR the server has no room for the connection\r\n";
	}
}

static int resp_thread_init(struct service_part *part)
{
	struct resp_thread *thread = container_of(part, struct resp_thread, part);
	struct resp_shared *shared = part->shared;
	int rc;

	thread->shared = shared;
	thread->store = shared->store;
	thread->kv = container_of(part->thread->part[WIRE_KV], struct kv_thread, part);
	thread->out.most = REPLY_MAX;
	thread->timed.id = RESP_IDS;
	thread->ended.fn = resp_kill_marked;
	rc = resp_mailbox_init(&thread->mailbox);
	if (rc != 0)
		return rc;
	thread->tracks = resp_tracks_new();
	rc = thread->tracks ? resp_view_new(thread) : -ENOMEM;
	if (rc != 0) {
		resp_tracks_free(thread->tracks);
		resp_mailbox_clear(&thread->mailbox);
		return rc;
	}
	pthread_mutex_lock(&shared->lock);
	list_add_tail(&shared->threads, &thread->node);
	pthread_mutex_unlock(&shared->lock);
	return 0;
}

static void resp_thread_clear(struct service_part *part)
{
	struct resp_thread *thread = container_of(part, struct resp_thread, part);

	must(thread->pins.count == 0 && !thread->watch.on);
	pthread_mutex_lock(&thread->shared->lock);
	list_del(&thread->node);
	pthread_mutex_unlock(&thread->shared->lock);
	resp_mailbox_clear(&thread->mailbox);
	resp_tracks_free(thread->tracks);
	free(thread->pins.pin);
	free(thread->out.at);
	resp_view_free(thread);
	resp_fields_free(thread);
	resp_script_free(thread);
}

static int resp_take(struct service_part *part, struct stream_group *group, struct stream_open *open)
{
	struct resp_thread *thread = container_of(part, struct resp_thread, part);
	struct resp_client *c = resp_client_new(thread);
	struct stream *stream;
	int rc = text_open(part, group, open, &resp_stream_ops, c, &stream);

	if (rc == 0)
		resp_client_begin(c, stream);
	else if (c)
		resp_client_free(c);
	return rc;
}

const struct service service_resp = {
	.id = WIRE_RESP,
	.help = "keys and values for Redis's clients",
	.settings = &resp_settings,
	.descriptors = text_descriptors,
	.open = resp_open,
	.close = resp_close,
	.part_size = sizeof(struct resp_thread),
	.part_init = resp_thread_init,
	.part_clear = resp_thread_clear,
	.times = SERVICE_TIMES(READ) | SERVICE_TIMES(WRITE) | SERVICE_TIMES(SCAN) | SERVICE_TIMES(IN),
	.tick = resp_sample,
	.progress = resp_watch_turn,
	.arm = resp_watch_arm,
	.disarm = resp_watch_disarm,
	.fd = resp_mailbox_fd,
	.readable = resp_mailbox_readable,
	.check = resp_check,
	.door = text_door,
	.refusal = resp_refusal,
	.stream = resp_take,
};
