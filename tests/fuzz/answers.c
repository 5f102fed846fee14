/*
 * answers.c: what a server may answer to a client of librdmad. The first byte: 1: an honest accept comes first,
 * 2: then chunks of fuzz_stream() rather than raw bytes; in the others the credits granted.
 */
#include <pthread.h>
#include <sys/un.h>
#include <unistd.h>

#include <rdmad/kv.h>

#include "fuzz.h"

static uint8_t stream[1u << 17];
static size_t stream_len, accept_len;
static int listener;
static char dir[] = "/tmp/rdmad-fuzz.XXXXXX", path[100], url[120];

static void send_all(int fd, const uint8_t *data, size_t len)
{
	for (size_t at = 0; at < len;) {
		ssize_t n = send(fd, data + at, len - at, MSG_NOSIGNAL);

		if (n <= 0)
			break;
		at += (size_t)n;
	}
}

static bool takes(int fd)
{
	uint8_t waste[4096];

	return recv(fd, waste, sizeof(waste), 0) > 0;
}

/* Answers each connection by `stream` and its end: what is behind an honest accept when requests have come. */
static void *serve(void *arg)
{
	while (true) {
		int fd = accept(listener, NULL, NULL);
		bool more = true;

		REQUIRE(fd >= 0);
		if (accept_len) {
			send_all(fd, stream, accept_len);
			more = takes(fd) && takes(fd); /* to be let in, and requests */
		}
		if (more)
			send_all(fd, stream + accept_len, stream_len - accept_len);
		shutdown(fd, SHUT_WR);
		while (takes(fd))
			;
		close(fd);
	}
	return arg;
}

static void begin(void)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	pthread_t thread;

	REQUIRE(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/socket", dir);
	snprintf(url, sizeof(url), "unix://%s", path);
	snprintf(un.sun_path, sizeof(un.sun_path), "%s", path);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	REQUIRE(bind(listener, (struct sockaddr *)&un, sizeof(un)) == 0);
	REQUIRE(listen(listener, 16) == 0);
	REQUIRE(pthread_create(&thread, NULL, serve, NULL) == 0);
	pthread_detach(thread);
}

static void end(void)
{
	unlink(path);
	rmdir(dir);
}

static unsigned called;

static void done(void *arg, int status, const void *value, size_t len)
{
	size_t sum = 0;

	for (size_t i = 0; value && i < len; i++)
		sum += ((const uint8_t *)value)[i];
	called += 1 + (sum > 255 * len);
}

static void result_done(void *arg, const struct kv_result *result)
{
	done(arg, result->status, result->value, result->value_len);
}

static int key_done(void *arg, const void *key, size_t key_len, const struct kv_meta *meta)
{
	size_t sum = meta->length != 0;

	(void)arg;
	for (size_t i = 0; i < key_len; i++)
		sum += ((const uint8_t *)key)[i];
	return sum == SIZE_MAX;
}

static void use(void *kv)
{
	static char space[20000];
	static const struct iovec pieces[] = {{space, 100}, {space + 100, 9000}, {space + 10000, 5}};
	unsigned accepted = 0;
	struct kv_event events[8];
	uint64_t cursor = 0, epoch = 0;
	char *table;

	called = 0;
	kv_watch(kv, "k", 1, KV_EVENT_ALL);
	for (unsigned i = 0; i < 8; i++) {
		accepted += kv_submit_set(kv, "key", 3, "value", 5, done, NULL) == 0;
		accepted += kv_submit_get(kv, "key", 3, done, NULL) == 0;
		accepted += kv_submit_exists(kv, "key", 3, done, NULL) == 0;
		accepted += kv_submit_delete(kv, "key", 3, done, NULL) == 0;
		accepted += kv_submit_put(kv, "key", 3, "value", 5, NULL, result_done, NULL) == 0;
		accepted += kv_submit_get_version(kv, "key", 3, result_done, NULL) == 0;
		accepted += kv_submit_stat(kv, "key", 3, result_done, NULL) == 0;
		accepted += kv_submit_incr(kv, "key", 3, 1, result_done, NULL) == 0;
		if (i == 4)
			kv_flush(kv);
	}
	accepted += kv_submit_putv(kv, "key", 3, pieces, 3, NULL, result_done, NULL) == 0;
	accepted += kv_submit_fetchv(kv, "key", 3, NULL, pieces, 3, result_done, NULL) == 0;
	kv_scan(kv, &cursor, NULL, 0, 0, key_done, NULL);
	if (kv_cluster_table(kv, &epoch, &table) == 0)
		kv_release(table);
	kv_wait(kv);
	for (int64_t n; (n = kv_events(kv, events, 8, 0)) > 0;)
		for (int64_t i = 0; i < n; i++)
			key_done(NULL, events[i].key, events[i].key_len, &(struct kv_meta){0});
	REQUIRE(kv_close(kv) == 0);
	REQUIRE(called == accepted);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rdmad_options options = {
		.connect_timeout_us = 10000000,
		.timeout_us = 10000000,
		.no_poll = true,
	};
	void *kv;

	fuzz_silence();
	if (!listener) {
		begin();
		atexit(end);
	}
	if (!size)
		return 0;
	stream_len = accept_len = *data & 1 ? fuzz_accept(stream, *data >> 2) : 0;
	if (*data & 2) {
		stream_len += fuzz_stream(data + 1, size - 1, stream + stream_len, sizeof(stream) - stream_len);
	} else {
		size = MIN(size - 1, sizeof(stream) - stream_len);
		memcpy(stream + stream_len, data + 1, size);
		stream_len += size;
	}
	if (kv_open_options(url, &options, NULL, &kv) == 0)
		use(kv);
	return 0;
}
