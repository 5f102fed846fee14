/*
 * check_kv_log.c: what answers promise with a log: none tells of what is not on disk, others go on meanwhile, and what is found
 * after a restart. The disk is the test's: it can be slow, full or broken.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "tests/client/caller.h"
#include "tests/suite.h"
#include "tests/service/value.h"

#define LARGE (100 * KIB)
#define VALUE 4000

/*
 * A disk
 */
static struct {
	struct wal_files files;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool holds;   /* a sync does not return */
	bool stops;   /* nor does a write */
	int error;    /* of each write, and sync; 0: none */
	uint64_t lag; /* of each sync, ns */
	unsigned held, syncs;
	_Atomic uint64_t largest; /* file that there is room for; 0: any */
	_Atomic bool crowded;     /* there is no room for a further file */
	_Atomic unsigned refused; /* files that a checkpoint wanted then */
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

static _Atomic int fatal;

static void disk_wait(const bool *holds)
{
	disk.held++;
	pthread_cond_broadcast(&disk.cond);
	while (*holds)
		pthread_cond_wait(&disk.cond, &disk.lock);
	disk.held--;
}

static int disk_sync(void *arg, int fd)
{
	uint64_t lag;
	int error;

	pthread_mutex_lock(&disk.lock);
	disk.syncs++;
	disk_wait(&disk.holds);
	error = disk.error == -ENOSPC ? 0 : disk.error;
	lag = disk.lag;
	pthread_mutex_unlock(&disk.lock);
	if (lag)
		usleep((useconds_t)(lag / TIME_US));
	return error ? error : wal_files_kernel.sync(arg, fd);
}

static ssize_t disk_pwritev(void *arg, int fd, const struct iovec *iov, int n, uint64_t at)
{
	int error;

	pthread_mutex_lock(&disk.lock);
	disk_wait(&disk.stops);
	error = disk.error;
	pthread_mutex_unlock(&disk.lock);
	return error ? error : wal_files_kernel.pwritev(arg, fd, iov, n, at);
}

static int disk_open(void *arg, int directory, const char *name, int flags)
{
	bool makes = flags & O_CREAT && !(flags & O_DIRECTORY);
	char thread[16] = "";

	if (!disk.crowded || !makes)
		return wal_files_kernel.open(arg, directory, name, flags);
	pthread_getname_np(pthread_self(), thread, sizeof(thread));
	disk.refused += strcmp(thread, "checkpoint") == 0;
	return -ENOSPC;
}

static int disk_allocate(void *arg, int fd, uint64_t size)
{
	return disk.largest && size > disk.largest ? -ENOSPC : wal_files_kernel.allocate(arg, fd, size);
}

static void disk_set(bool *what, bool to)
{
	pthread_mutex_lock(&disk.lock);
	*what = to;
	pthread_cond_broadcast(&disk.cond);
	pthread_mutex_unlock(&disk.lock);
}

static void disk_slow(uint64_t lag)
{
	pthread_mutex_lock(&disk.lock);
	disk.lag = lag;
	pthread_mutex_unlock(&disk.lock);
}

static unsigned disk_syncs(void)
{
	unsigned n;

	pthread_mutex_lock(&disk.lock);
	n = disk.syncs;
	pthread_mutex_unlock(&disk.lock);
	return n;
}

static void disk_fail(int error)
{
	pthread_mutex_lock(&disk.lock);
	disk.error = error;
	pthread_mutex_unlock(&disk.lock);
}

static void on_fatal(void *arg, int error)
{
	(void)arg;
	fatal = error;
}

/*
 * A server with a log
 */
static char dir[32], path[64];
static struct server_options options;
static void *kv, *other;

static void start(void)
{
	server_start(&options);
	kv = open_kv(NULL, NULL);
	other = open_kv(NULL, NULL);
}

static void configure(enum kv_policy policy)
{
	strcpy(dir, "/tmp/check-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/log", dir);
	disk.files = wal_files_kernel;
	disk.files.sync = disk_sync;
	disk.files.pwritev = disk_pwritev;
	disk.files.open = disk_open;
	disk.files.allocate = disk_allocate;
	fatal = 0;
	options = (struct server_options){
		.services = {.arena = 16 * MIB,
			     .log = {.directory = path, .policy = policy, .files = &disk.files, .fatal = on_fatal}},
	};
}

static void set_up(void)
{
	configure(KV_POLICY_ALWAYS);
	start();
}

static void stop(void)
{
	disk_fail(0);
	disk_set(&disk.holds, false);
	disk_set(&disk.stops, false);
	kv_close(kv);
	kv_close(other);
	server_stop();
}

static void remove_all(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", dir);
	ck_assert_int_eq(system(command), 0);
}

static void tear_down(void)
{
	stop();
	remove_all();
}

/* As a crash would: what is in memory is lost, and the disk stays. */
static void restart(void)
{
	stop();
	start();
}

/*
 * Requests
 */
struct told {
	bool came;
	int status;
	size_t len;
	char value[VALUE];
	struct kv_meta meta;
};

static void take(void *arg, int status, const void *value, size_t len)
{
	struct told *told = arg;

	told->came = true;
	told->status = status;
	told->len = len;
	if (status == 0 && value && len <= sizeof(told->value))
		memcpy(told->value, value, len);
}

static void take_result(void *arg, const struct kv_result *result)
{
	take(arg, result->status, result->value, result->value_len);
	((struct told *)arg)->meta = result->meta;
}

static void set(void *handle, const char *key, const char *value)
{
	ck_assert_msg(kv_set_bytes(handle, key, strlen(key), value, strlen(value)) == 0, "%s", rdmad_error());
}

static void submit_set(const char *key, const char *value, struct told *told)
{
	*told = (struct told){.came = false};
	ck_assert_int_eq(kv_submit_set(kv, key, strlen(key), value, strlen(value), take, told), 0);
}

static void submit_get(void *handle, const char *key, struct told *told)
{
	*told = (struct told){.came = false};
	ck_assert_int_eq(kv_submit_get(handle, key, strlen(key), take, told), 0);
}

static void await(void *handle, const struct told *told)
{
	uint64_t until = time_now() + 60 * TIME_S;

	while (!told->came) {
		ck_assert_int_ge(kv_progress(handle, 10000), 0);
		ck_assert_msg(time_now() < until, "no answer");
	}
}

static void assert_value(const struct told *told, const char *value)
{
	ck_assert_msg(told->came && told->status == 0, "%s", kv_status_text(told->status));
	ck_assert_uint_eq(told->len, strlen(value));
	ck_assert(memcmp(told->value, value, told->len) == 0);
}

/* All that was asked before it would have been answered before it, if it could: an answer that waits for nothing. */
static void pass(void *handle)
{
	char value[8];
	size_t len;

	ck_assert_msg(kv_get_into(handle, "old", 3, value, sizeof(value), &len) == 0, "%s", rdmad_error());
	ck_assert_uint_eq(len, 3);
}

/* Of the server, which does not turn meanwhile. */
static struct kv_thread *thread(void)
{
	return container_of(server.services.kv, struct kv_thread, part);
}

static struct store_stats stats(void)
{
	return services_store_stats(&server.services);
}

/*
 * The gate
 */
START_TEST(test_nothing_is_told)
{
	struct told write, read, again, version, miss, stat, removed, exists;

	set(kv, "old", "was");
	set(kv, "k", "one");
	set(kv, "gone", "here");
	disk_set(&disk.holds, true);
	submit_set("k", "two", &write);
	removed = (struct told){.came = false};
	ck_assert_int_eq(kv_submit_delete(kv, "gone", 4, take, &removed), 0);
	pass(kv);
	ck_assert(!write.came && !removed.came);
	submit_get(other, "k", &read);
	submit_get(other, "k", &again);
	submit_get(other, "gone", &miss);
	exists = stat = version = (struct told){.came = false};
	ck_assert_int_eq(kv_submit_exists(other, "gone", 4, take, &exists), 0);
	ck_assert_int_eq(kv_submit_stat(other, "k", 1, take_result, &stat), 0);
	ck_assert_int_eq(kv_submit_get_version(other, "k", 1, take_result, &version), 0);
	pass(other);
	pass(kv);
	ck_assert(!write.came && !removed.came && !read.came && !again.came && !miss.came && !exists.came);
	ck_assert(!stat.came && !version.came);
	disk_set(&disk.holds, false);
	await(kv, &write);
	await(kv, &removed);
	await(other, &version);
	ck_assert_int_eq(write.status, 0);
	ck_assert_int_eq(removed.status, 0);
	assert_value(&read, "two");
	assert_value(&again, "two");
	assert_value(&version, "two");
	ck_assert(miss.came && miss.status == -ENOENT && exists.came && exists.status == -ENOENT);
	ck_assert(stat.came && stat.status == 0 && stat.meta.length == 3);
	ck_assert_uint_eq(stat.meta.version, version.meta.version);
}
END_TEST

static uint64_t times(enum service_class class)
{
	struct service_counts counts;
	uint64_t n = 0;

	server_pause();
	counts = services_counts(&server.services);
	server_resume();
	for (unsigned i = 0; i < BUCKETS; i++)
		n += counts.took[WIRE_KV][class].count[i];
	return n;
}

/* Leases tell of it, too: they are reads, and each request has one time. */
START_TEST(test_lease)
{
	struct kv_item item = {.key = "k", .key_len = 1};
	struct told write;
	size_t leased;

	set(kv, "old", "was");
	disk_slow(2 * TIME_MS);
	for (unsigned i = 0; i < 10; i++) {
		submit_set("k", "new", &write);
		ck_assert_int_ge(kv_progress(kv, 0), 0);
		ck_assert_int_ge(kv_mlease(other, &item, 1, 1000000, &leased), 0);
		await(kv, &write);
	}
	disk_slow(0);
	pass(other);
	ck_assert_uint_eq(times(SERVICE_READ), 11);
	ck_assert_uint_eq(times(SERVICE_WRITE), 11);
}
END_TEST

/* Conditions, numbers, times to live and walks tell of it as well. */
START_TEST(test_nothing_is_told_otherwise)
{
	struct kv_put_options absent = {.condition = KV_IF_ABSENT};
	struct told failed, sum, expired, part, waits;
	struct kv_fetch whole = {.length = 100, .then = KV_THEN_DELETE};

	set(kv, "old", "was");
	set(kv, "n", "5");
	set(kv, "p", "part");
	disk_set(&disk.holds, true);
	submit_set("k", "new", &waits);
	pass(kv);
	failed = sum = expired = part = (struct told){.came = false};
	ck_assert_int_eq(kv_submit_put(other, "k", 1, "x", 1, &absent, take_result, &failed), 0);
	ck_assert_int_eq(kv_submit_incr(other, "n", 1, 1, take_result, &sum), 0);
	ck_assert_int_eq(kv_submit_expire(other, "n", 1, 1000000000, take_result, &expired), 0);
	ck_assert_int_eq(kv_submit_fetch(other, "p", 1, &whole, NULL, 0, take_result, &part), 0);
	pass(other);
	pass(kv);
	ck_assert(!failed.came && !sum.came && !expired.came && !part.came && !waits.came);
	disk_set(&disk.holds, false);
	await(other, &part);
	await(other, &failed);
	await(kv, &waits);
	ck_assert_int_eq(failed.status, -EEXIST);
	ck_assert_int_eq(sum.status, 0);
	ck_assert_int_eq(expired.status, 0);
	assert_value(&part, "part");
	ck_assert_int_eq(kv_exists(kv, "p", 1), 0);
}
END_TEST

/* What was written and has expired since: that the older one is gone, is told by the miss. */
START_TEST(test_expired)
{
	struct kv_put_options soon = {.ttl_us = 1000};
	struct told write = {.came = false}, read;

	set(kv, "old", "was");
	set(kv, "k", "one");
	disk_set(&disk.holds, true);
	ck_assert_int_eq(kv_submit_put(kv, "k", 1, "two", 3, &soon, take_result, &write), 0);
	pass(kv);
	usleep(20000);
	submit_get(other, "k", &read);
	pass(other);
	pass(other);
	ck_assert(!write.came && !read.came);
	disk_set(&disk.holds, false);
	await(other, &read);
	ck_assert_int_eq(read.status, -ENOENT);
	await(kv, &write); /* while it is there */
}
END_TEST

static size_t length = LARGE;

static void set_up_push(void)
{
	configure(KV_POLICY_ALWAYS);
	options.services.push_max = 64 * KIB;
	length = 20000;
	start();
}

/* Values that do not go by the message stay pinned, and go when they may. Values that go behind their messages do it another way
 * then. */
START_TEST(test_large)
{
	struct kv_fetch gets = {.length = LARGE, .then = KV_THEN_DELETE};
	struct told write = {.came = false}, read = write, fetched = write, plain;
	char *value = malloc(LARGE), *into = malloc(LARGE), *part = malloc(LARGE);
	struct iovec pieces[2] = {{part, 5000}, {part + 5000, LARGE - 5000}};

	set(kv, "old", "was");
	value_fill(value, length, 1);
	ck_assert_int_eq(kv_set_bytes(kv, "k", 1, value, length), 0);
	value_fill(value, length, 2);
	disk_set(&disk.holds, true);
	ck_assert_int_eq(kv_submit_set(kv, "k", 1, value, length, take, &write), 0);
	pass(kv);
	while (server.services.store && stats().sets < 3)
		pass(kv);
	memset(into, 0, LARGE);
	ck_assert_int_eq(kv_submit_get_into(other, "k", 1, into, LARGE, take, &read), 0);
	submit_get(other, "k", &plain);
	pass(other);
	ck_assert_int_eq(kv_submit_fetchv(other, "k", 1, &gets, pieces, 2, take_result, &fetched), 0);
	pass(other);
	pass(other);
	ck_assert(!write.came && !read.came && !fetched.came && !plain.came);
	ck_assert_int_eq(into[0] | into[length / 2] | into[length - 1], 0); /* nor do its bytes */
	ck_assert_uint_ge(stats().pins, 2);
	disk_set(&disk.holds, false);
	await(kv, &write);
	await(other, &read);
	await(other, &fetched);
	await(other, &plain);
	ck_assert(write.status == 0 && read.status == 0 && fetched.status == 0);
	ck_assert(value_holds((uint8_t *)into, length, 2) && value_holds((uint8_t *)part, length, 2));
	ck_assert(plain.status == 0 ? plain.len == length : plain.status == -ENOENT);
	ck_assert_int_eq(kv_exists(kv, "k", 1), 0);
	free(value);
	free(into);
	free(part);
}
END_TEST

static uint64_t records_taken(void)
{
	struct conn_group_stats stats;

	server_pause();
	conn_group_get_stats(server.group, &stats);
	server_resume();
	return stats.records_in;
}

/* One that has room in the answer waits in it, and is not asked for again. */
START_TEST(test_pushed_small)
{
	struct told write = {.came = false}, read;
	char value[4050];
	uint64_t before;

	set(kv, "old", "was");
	value_fill(value, sizeof(value), 1);
	disk_set(&disk.holds, true);
	ck_assert_int_eq(kv_submit_set(kv, "k", 1, value, sizeof(value), take, &write), 0);
	pass(kv);
	before = records_taken();
	submit_get(other, "k", &read);
	pass(other);
	ck_assert(!write.came && !read.came);
	disk_set(&disk.holds, false);
	await(kv, &write);
	await(other, &read);
	ck_assert(read.status == 0 && read.len == sizeof(value));
	ck_assert_uint_eq(records_taken() - before, 2); /* with that of pass() */
}
END_TEST

/* No client reads it twice, so that a key which is always written is read all the same. */
static _Atomic bool writes;

static void *write_always(void *arg)
{
	void *handle = open_kv(NULL, NULL);
	char *value = calloc(1, LARGE);
	size_t len = *(size_t *)arg;

	while (writes)
		ck_assert_int_eq(kv_set_bytes(handle, "hot", 3, value, len), 0);
	free(value);
	kv_close(handle);
	return NULL;
}

START_TEST(test_hot_key)
{
	size_t len = _i ? LARGE : 100, got;
	char *into = malloc(LARGE);
	pthread_t thread[2];

	set(kv, "hot", "first");
	disk_slow(2 * TIME_MS);
	writes = true;
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, write_always, &len), 0);
	for (unsigned i = 0; i < 50; i++)
		ck_assert_msg(kv_get_into(other, "hot", 3, into, LARGE, &got) == 0, "%s", rdmad_error());
	writes = false;
	for (unsigned i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	disk_slow(0);
	free(into);
}
END_TEST

/* A client that goes leaves nothing behind, and what it had written goes on to the disk. */
START_TEST(test_close)
{
	struct told told[100], large = {.came = false};
	char *value = calloc(1, LARGE), *into = malloc(LARGE);

	set(kv, "old", "was");
	disk_set(&disk.holds, true);
	ck_assert_int_eq(kv_submit_set(kv, "l", 1, value, LARGE, take, &large), 0);
	while (stats().sets < 2)
		pass(kv);
	for (unsigned i = 0; i < ARRAY_SIZE(told); i++)
		if (i % 2)
			submit_get(kv, "k", &told[i]);
		else
			submit_set("k", "value", &told[i]);
	ck_assert_int_eq(kv_submit_get_into(kv, "l", 1, into, LARGE, take, &large), 0);
	pass(kv);
	kv_close(kv);
	for (unsigned i = 0; i < ARRAY_SIZE(told); i++)
		ck_assert(told[i].came && told[i].status < 0);
	pass(other);
	server_pause();
	for (uint64_t until = time_now() + 60 * TIME_S; conn_group_connections(server.group) > 1 && time_now() < until;)
		server_turn();
	ck_assert_uint_eq(conn_group_connections(server.group), 1);
	ck_assert(list_empty(&thread()->waiting));
	ck_assert_uint_eq(thread()->held, 0);
	ck_assert_uint_eq(thread()->part.active, 0);
	ck_assert_uint_eq(kv_hold_bytes(services_hold(&server.services)), 0);
	server_resume();
	disk_set(&disk.holds, false);
	kv = open_kv(NULL, NULL);
	ck_assert_int_eq(kv_exists(kv, "k", 1), 1);
	free(value);
	free(into);
}
END_TEST

/* What waits for a client is limited: beyond it requests are not carried out, and come again. */
START_TEST(test_bounded)
{
	static struct told told[1000];
	char value[VALUE];
	struct told write = {.came = false};
	unsigned chunks;

	set(kv, "old", "was");
	memset(value, 'v', sizeof(value));
	disk_set(&disk.holds, true);
	ck_assert_int_eq(kv_submit_set(other, "k", 1, value, sizeof(value), take, &write), 0);
	pass(other);
	for (unsigned i = 0; i < ARRAY_SIZE(told); i++)
		submit_get(kv, "k", &told[i]);
	for (unsigned i = 0; i < 100; i++) {
		kv_progress(kv, 1000);
		pass(other);
	}
	server_pause();
	ck_assert(!list_empty(&thread()->waiting));
	ck_assert_uint_gt(thread()->held, 1);
	chunks = 0;
	for (struct list *at = thread()->waiting.next; at != &thread()->waiting; at = at->next)
		chunks = MAX(chunks, container_of(at, struct kv_agent, waiting)->chunks);
	ck_assert_uint_ge(chunks, 2);
	ck_assert_uint_le(chunks, 8);
	ck_assert_uint_lt(stats().hits, 200); /* the others were not carried out */
	server_resume();
	disk_set(&disk.holds, false);
	for (unsigned i = 0; i < ARRAY_SIZE(told); i++) {
		await(kv, &told[i]);
		ck_assert_int_eq(told[i].status, 0);
		ck_assert_uint_eq(told[i].len, sizeof(value));
	}
	await(other, &write);
}
END_TEST

static void count_busy(void *arg, struct conn *conn)
{
	*(unsigned *)arg += !service_find(WIRE_KV)->quiet(conn);
}

/* The end of the daemon waits for what waits. */
START_TEST(test_drain)
{
	struct told write;
	unsigned busy = 0;

	set(kv, "old", "was");
	disk_set(&disk.holds, true);
	submit_set("k", "v", &write);
	pass(kv);
	server_pause();
	conn_group_each(server.group, count_busy, &busy);
	ck_assert_uint_eq(busy, 1);
	server_resume();
	disk_set(&disk.holds, false);
	await(kv, &write);
	server_pause();
	busy = 0;
	conn_group_each(server.group, count_busy, &busy);
	ck_assert_uint_eq(busy, 0);
	server_resume();
}
END_TEST

/* A thread that sleeps is woken; the number that is on disk may rise at any moment before. */
START_TEST(test_wake_up)
{
	struct service_part *part;
	uint64_t woken;
	struct told write;
	bool armed;

	set(kv, "old", "was");
	disk_set(&disk.holds, true);
	submit_set("k", "v", &write);
	pass(kv);
	server_pause();
	part = server.services.kv;
	ck_assert_int_ge(part->service->fd(part), 0);
	while (server_turn())
		;
	ck_assert(services_arm(&server.services));
	disk_set(&disk.holds, false);
	for (uint64_t until = time_now() + 60 * TIME_S; time_now() < until;) {
		if (read(part->service->fd(part), &woken, sizeof(woken)) == sizeof(woken))
			break;
		usleep(1000);
	}
	ck_assert_uint_eq(woken, 1);
	services_disarm(&server.services);
	armed = services_arm(&server.services); /* it has not looked since */
	ck_assert(!armed);
	services_disarm(&server.services);
	server_resume();
	await(kv, &write);
}
END_TEST

/* More changes than the log is behind for: a write waits, and comes again. */
START_TEST(test_ring_is_full)
{
	static struct told told[200];
	char key[16], *value = calloc(1, LARGE);
	unsigned n = 0;
	int rc = 0;

	set(kv, "old", "was");
	disk_set(&disk.stops, true);
	for (; n < ARRAY_SIZE(told) && rc == 0; n += rc == 0) {
		snprintf(key, sizeof(key), "%u", n % 20);
		rc = kv_submit_set(kv, key, strlen(key), value, LARGE, take, &told[n]);
	}
	ck_assert_uint_gt(n, 30);
	for (unsigned i = 0; i < 20; i++) {
		kv_progress(kv, 1000);
		pass(other);
	}
	ck_assert_uint_lt(stats().sets, 30); /* a sixteenth of the memory, and what was on its way */
	disk_set(&disk.stops, false);
	for (unsigned i = 0; i < n; i++) {
		await(kv, &told[i]);
		ck_assert_int_eq(told[i].status, 0);
	}
	free(value);
}
END_TEST

/* What reads a value and deletes it waits as well, and no byte of the value goes in vain meanwhile. */
START_TEST(test_read_and_delete_when_full)
{
	static struct told told[20], last;
	struct kv_fetch fetch = {.length = LARGE, .then = KV_THEN_DELETE};
	char key[16], *value = calloc(1, LARGE), *into = calloc(1, LARGE);

	memset(value, 'v', LARGE);
	ck_assert_int_eq(kv_set_bytes(kv, "v", 1, value, LARGE), 0);
	disk_set(&disk.stops, true);
	for (unsigned i = 0; i < ARRAY_SIZE(told); i++) {
		told[i].came = false;
		snprintf(key, sizeof(key), "%u", i);
		ck_assert_int_eq(kv_submit_set(other, key, strlen(key), value, LARGE, take, &told[i]), 0);
	}
	while (!store_changes_full(server.services.store))
		kv_progress(other, 1000);
	last.came = false;
	ck_assert_int_eq(kv_submit_fetch(kv, "v", 1, &fetch, into, LARGE, take_result, &last), 0);
	for (unsigned i = 0; i < 50; i++)
		kv_progress(kv, 1000);
	ck_assert(!last.came && !into[0] && !into[LARGE - 1]);
	disk_set(&disk.stops, false);
	await(kv, &last);
	ck_assert(last.status == 0 && into[0] == 'v');
	for (unsigned i = 0; i < ARRAY_SIZE(told); i++)
		await(other, &told[i]);
	free(value);
	free(into);
}
END_TEST

/*
 * A client's own wish
 */
static void set_up_interval(void)
{
	configure(KV_POLICY_INTERVAL);
	start();
}

static const struct kv_put_options durable = {.condition = (enum kv_condition)(KV_ALWAYS | KV_DURABLE)};

START_TEST(test_durable)
{
	struct told told = {.came = false}, large = told;
	char *value = calloc(1, LARGE);
	unsigned syncs;

	set(kv, "old", "was");
	disk_set(&disk.holds, true);
	set(kv, "k", "plain");
	ck_assert_int_eq(kv_submit_put(kv, "d", 1, "v", 1, &durable, take_result, &told), 0);
	ck_assert_int_eq(kv_submit_put(kv, "l", 1, value, LARGE, &durable, take_result, &large), 0);
	pass(kv);
	set(kv, "k", "again");
	pass(kv);
	while (stats().sets < 5)
		pass(kv);
	pass(kv);
	ck_assert(!told.came && !large.came);
	disk_set(&disk.holds, false);
	await(kv, &told);
	await(kv, &large);
	ck_assert(told.status == 0 && told.meta.version && large.status == 0);
	syncs = disk_syncs();
	ck_assert_int_eq(kv_put(kv, "d", 1, "w", 1, &durable, NULL), 0);
	ck_assert_uint_gt(disk_syncs(), syncs);
	free(value);
}
END_TEST

static struct wal_info log_figures(void)
{
	struct kv_shared *shared = server.services.shared.of[WIRE_KV];
	struct wal_info info;

	wal_get_info(kv_log_wal(shared->log), &info);
	return info;
}

/* What the kernel has is on disk in time, though there is no room for what comes after it. */
START_TEST(test_sync_when_full)
{
	uint64_t until = time_now() + 60 * TIME_S, version;

	kv_close(other);
	kv_close(kv);
	server_stop();
	options.services.log.sync_every = 500 * TIME_MS;
	start();
	ck_assert_int_eq(kv_put(kv, "k", 1, "first", 5, NULL, &version), 0);
	while (log_figures().written < version && time_now() < until)
		usleep(1000);
	disk_fail(-ENOSPC);
	set(kv, "k", "no room");
	while (kv_set_bytes(kv, "k", 1, "v", 1) != -ENOSPC && time_now() < until)
		usleep(1000);
	ck_assert_msg(strstr(rdmad_error(), "the disk of the server's log is full"), "%s", rdmad_error());
	while (log_figures().durable < version && time_now() < until)
		usleep(1000);
	ck_assert_uint_ge(log_figures().durable, version);
	disk_fail(0);
}
END_TEST

/* Answered, and not on disk when all ends. */
START_TEST(test_end_when_full)
{
	disk_fail(-ENOSPC);
	set(kv, "k", "answered");
	kv_close(other);
	kv_close(kv);
	server_stop();
	ck_assert_int_eq(fatal, -EIO);
	disk_fail(0);
	start();
	ck_assert_uint_eq(stats().items, 0);
}
END_TEST

/* Where a checkpoint finds room it is there all the same. */
START_TEST(test_end_when_the_log_is_full)
{
	char value[VALUE] = {0}, key[16];
	unsigned n = 0;
	int rc;

	disk.largest = 4096;
	do {
		snprintf(key, sizeof(key), "%u", n);
		rc = kv_set_bytes(kv, key, strlen(key), value, sizeof(value));
	} while (rc == 0 && ++n);
	ck_assert_int_eq(rc, -ENOSPC);
	stop();
	ck_assert_int_eq(fatal, 0);
	start();
	ck_assert_uint_eq(stats().items, n);
}
END_TEST

/* Changes that were taken before it was known get into what room there is, so that a checkpoint ends, and makes more. */
START_TEST(test_checkpoint_when_full)
{
	enum { SETS = 200, BYTES = 8192 };
	static struct told told[SETS];
	uint64_t until = time_now() + 30 * TIME_S;
	char *value = calloc(1, BYTES);
	int rc;

	set(kv, "old", "was");
	disk.largest = 64 * KIB;
	for (unsigned i = 0; i < SETS; i++) {
		ck_assert_int_eq(kv_submit_set(kv, "k", 1, value, BYTES, take, &told[i]), 0);
		pass(kv);
	}
	for (unsigned i = 0; i < SETS; i++)
		await(kv, &told[i]);
	while ((rc = kv_set_bytes(kv, "k", 1, "last", 4)) == -ENOSPC && time_now() < until)
		usleep(1000);
	ck_assert_int_eq(rc, 0);
	/* The file that the set began may be full again until the next checkpoint. */
	while ((rc = kv_put(kv, "d", 1, "v", 1, &durable, NULL)) == -ENOSPC && time_now() < until)
		usleep(1000);
	ck_assert_int_eq(rc, 0);
	ck_assert_int_eq(fatal, 0);
	free(value);
}
END_TEST

/* The log has no room for what was answered, and gets none but by a checkpoint that has all of that. */
START_TEST(test_checkpoint_with_a_lag)
{
	enum { BYTES = 8192 };
	uint64_t until = time_now() + 60 * TIME_S;
	char *value = calloc(1, BYTES);
	int rc;

	disk.largest = 4096;
	while (log_figures().log_bytes < WAL_SEGMENT_MIN && (rc = kv_set_bytes(kv, "k", 1, value, BYTES)) == 0)
		;
	while ((rc = kv_set_bytes(kv, "k", 1, value, BYTES)) == 0)
		;
	ck_assert_int_eq(rc, -ENOSPC);
	while ((rc = kv_set_bytes(kv, "k", 1, "last", 4)) == -ENOSPC && time_now() < until)
		usleep(1000);
	ck_assert_int_eq(rc, 0);
	ck_assert_uint_ge(log_figures().checkpoints, 1);
	ck_assert_int_eq(kv_put(kv, "d", 1, "v", 1, &durable, NULL), 0);
	ck_assert_int_eq(fatal, 0);
	free(value);
}
END_TEST

/* So does a checkpoint that had no room at first, although none asks for it again. */
START_TEST(test_checkpoint_again)
{
	enum { BYTES = 8192, REFUSED = 2 /* before there is no room, and when there is none */ };
	uint64_t until = time_now() + 60 * TIME_S;
	char *value = calloc(1, BYTES);
	int rc;

	disk.largest = 64 * KIB;
	disk.crowded = true;
	while ((rc = kv_set_bytes(kv, "k", 1, value, BYTES)) == 0)
		;
	ck_assert_int_eq(rc, -ENOSPC);
	while (disk.refused < REFUSED && time_now() < until)
		usleep(1000);
	ck_assert_uint_ge(disk.refused, REFUSED);
	disk.crowded = false;
	until = time_now() + 60 * TIME_S;
	while ((rc = kv_set_bytes(kv, "k", 1, "last", 4)) == -ENOSPC && time_now() < until)
		usleep(1000);
	ck_assert_int_eq(rc, 0);
	ck_assert_int_eq(fatal, 0);
	free(value);
}
END_TEST

/* Not taken for what it is not. */
START_TEST(test_durable_without_a_log)
{
	void *plain;

	server_start(&(struct server_options){.services = {.arena = 4 * MIB}});
	plain = open_kv(NULL, NULL);
	ASSERT_ERROR(kv_put(plain, "k", 1, "v", 1, &durable, NULL), -EOPNOTSUPP, "log.policy");
	ck_assert_int_eq(kv_exists(plain, "k", 1), 0);
	ck_assert_int_eq(kv_put(plain, "k", 1, "v", 1, NULL, NULL), 0);
	kv_close(plain);
	server_stop();
}
END_TEST

/*
 * Errors
 */
START_TEST(test_disk_full)
{
	static struct told told[1024]; /* writes that were taken before it was known wait */
	uint64_t until = time_now() + 60 * TIME_S;
	struct told first;
	unsigned n = 0;
	char value[8];
	size_t len;
	int rc;

	set(kv, "old", "was");
	disk_fail(-ENOSPC);
	submit_set("k", "v", &first);
	pass(kv);
	do {
		usleep(1000);
		told[n] = (struct told){.came = false};
		ck_assert_int_eq(kv_submit_set(other, "r", 1, "v", 1, take, &told[n]), 0);
		pass(other);
		rc = told[n].came ? told[n].status : 0;
		n += !told[n].came;
		ck_assert(time_now() < until && n < ARRAY_SIZE(told));
	} while (rc == 0);
	ck_assert_int_eq(rc, -ENOSPC);
	ASSERT_ERROR(kv_set_bytes(kv, "r", 1, "v", 1), -ENOSPC, "disk of the server's log is full");
	ck_assert_int_eq(kv_delete(kv, "old", 3), -ENOSPC);
	ck_assert_int_eq(kv_get_into(kv, "old", 3, value, sizeof(value), &len), 0);
	ck_assert(!first.came);
	disk_fail(0);
	await(kv, &first);
	ck_assert_int_eq(first.status, 0);
	while ((rc = kv_set_bytes(kv, "k", 1, "v", 1)) == -ENOSPC && time_now() < until)
		usleep(1000);
	ck_assert_int_eq(rc, 0);
	ck_assert_int_eq(fatal, 0);
}
END_TEST

/* What is there is there to be read, and what is written meanwhile is refused at once, and not taken first. */
START_TEST(test_disk_full_from_the_start)
{
	uint64_t until = time_now() + 60 * TIME_S;
	char value[8];
	size_t len;
	int rc;

	set(kv, "old", "was");
	stop();
	disk.crowded = true;
	start();
	ck_assert_int_eq(kv_get_into(kv, "old", 3, value, sizeof(value), &len), 0);
	ASSERT_ERROR(kv_set_bytes(kv, "k", 1, "v", 1), -ENOSPC, "disk of the server's log is full");
	disk.crowded = false;
	while ((rc = kv_set_bytes(kv, "k", 1, "v", 1)) == -ENOSPC && time_now() < until)
		usleep(1000);
	ck_assert_int_eq(rc, 0);
	restart();
	ck_assert_int_eq(kv_get_into(kv, "old", 3, value, sizeof(value), &len), 0);
	ck_assert_int_eq(kv_get_into(kv, "k", 1, value, sizeof(value), &len), 0);
}
END_TEST

static void await_fatal(void)
{
	for (uint64_t until = time_now() + 60 * TIME_S; !fatal && time_now() < until;)
		usleep(1000);
	ck_assert_int_eq(fatal, -EIO);
}

START_TEST(test_disk_fails)
{
	struct told first;

	set(kv, "old", "was");
	disk_fail(-EIO);
	submit_set("k", "v", &first);
	pass(kv);
	await_fatal();
	disk_fail(0); /* which is nothing to rely on */
	for (unsigned i = 0; i < 20; i++) {
		pass(kv);
		usleep(1000);
	}
	ck_assert(!first.came);
}
END_TEST

static void set_up_read_only(void)
{
	configure(KV_POLICY_ALWAYS);
	options.services.log.on_error = KV_ERROR_READ_ONLY;
	start();
}

static int count_key(void *arg, const void *key, size_t key_len, const struct kv_meta *meta)
{
	(void)key;
	(void)key_len;
	(void)meta;
	++*(unsigned *)arg;
	return 0;
}

START_TEST(test_read_only)
{
	struct told first, read, large = {.came = false};
	char *value = calloc(1, LARGE);
	unsigned keys = 0;

	set(kv, "old", "was");
	disk_set(&disk.holds, true);
	submit_set("k", "v", &first);
	submit_get(kv, "k", &read);
	ck_assert_int_eq(kv_submit_set(kv, "l", 1, value, LARGE, take, &large), 0);
	while (stats().sets < 3)
		pass(kv);
	disk_fail(-EIO);
	disk_set(&disk.holds, false);
	await(kv, &first);
	await(kv, &read);
	await(kv, &large);
	ck_assert(first.status == -EROFS && read.status == -EROFS && large.status == -EROFS);
	disk_fail(0);
	ASSERT_ERROR(kv_set_bytes(kv, "k", 1, "w", 1), -EROFS, "takes no writes any more");
	ck_assert_int_eq(kv_delete(kv, "old", 3), -EROFS);
	ck_assert_int_eq(kv_set_bytes(other, "l", 1, value, LARGE), -EROFS);
	pass(kv);
	ck_assert_int_eq(kv_each(other, "", 0, count_key, &keys), 0);
	ck_assert_uint_ge(keys, 1);
	submit_get(other, "k", &read);
	await(other, &read);
	ck_assert_int_eq(read.status, -EROFS);
	free(value);
	kv_close(other);
	kv_close(kv);
	server_stop();
	ck_assert_int_eq(fatal, 0); /* nothing that was answered is lost */
	start();
}
END_TEST

static void set_up_read_only_interval(void)
{
	configure(KV_POLICY_INTERVAL);
	options.services.log.on_error = KV_ERROR_READ_ONLY;
	start();
}

/* What was answered and is lost is told of at the end. */
START_TEST(test_read_only_interval)
{
	uint64_t until = time_now() + 60 * TIME_S;
	int rc;

	set(kv, "k", "v");
	ck_assert_int_eq(kv_put(kv, "d", 1, "v", 1, &durable, NULL), 0);
	disk_fail(-EIO);
	set(kv, "k", "lost");
	while ((rc = kv_set_bytes(kv, "m", 1, "v", 1)) == 0 && time_now() < until)
		usleep(1000);
	ck_assert_int_eq(rc, -EROFS);
	ck_assert_int_eq(fatal, 0);
	kv_close(other);
	kv_close(kv);
	server_stop();
	ck_assert_int_eq(fatal, -EIO);
	disk_fail(0);
	start();
	ck_assert_uint_eq(stats().items, 2);
}
END_TEST

/*
 * The next start
 */
START_TEST(test_found)
{
	struct kv_put_options hour = {.ttl_us = 3600 * 1000000ull}, soon = {.ttl_us = 50000};
	struct kv_put_options stale = {.condition = KV_IF_VERSION};
	struct store_put put = {.expires = TIME_NEVER, .flags = 0xfedcba98, .type = STORE_HASH};
	char *value = calloc(1, LARGE);
	struct kv_meta meta, after;
	uint32_t flags;
	struct told told;
	size_t len;
	void *got;

	set(kv, "k", "one");
	set(kv, "k", "two");
	set(kv, "gone", "v");
	ck_assert_int_eq(kv_delete(kv, "gone", 4), 1);
	ck_assert_int_eq(kv_put(kv, "hour", 4, "v", 1, &hour, NULL), 0);
	ck_assert_int_eq(kv_put(kv, "soon", 4, "v", 1, &soon, NULL), 0);
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(store_set(server.services.store, i ? "hash" : "flags", i ? 4 : 5, value,
					   i ? 100000 : 5, &put, time_now(), NULL),
				 0);
	set(kv, "touched", "v");
	ck_assert_int_eq(kv_expire(kv, "touched", 7, hour.ttl_us), 1);
	for (unsigned i = 0; i < 7; i++)
		ck_assert_int_eq(kv_incr(kv, "n", 1, 1, NULL, NULL), 0);
	value_fill(value, LARGE, 3);
	ck_assert_int_eq(kv_set_bytes(kv, "large", 5, value, LARGE), 0);
	ck_assert_int_eq(kv_stat(kv, "k", 1, &meta), 0);
	usleep(60000);
	restart();
	submit_get(kv, "k", &told);
	await(kv, &told);
	assert_value(&told, "two");
	submit_get(kv, "n", &told);
	await(kv, &told);
	assert_value(&told, "7");
	ck_assert_int_eq(kv_exists(kv, "gone", 4), 0);
	ck_assert_int_eq(kv_exists(kv, "soon", 4), 0);
	ck_assert_int_eq(kv_stat(kv, "hour", 4, &after), 0);
	ck_assert(after.ttl_us && after.ttl_us <= hour.ttl_us);
	ck_assert_int_eq(kv_stat(kv, "touched", 7, &after), 0);
	ck_assert(after.ttl_us && after.ttl_us <= hour.ttl_us);
	ck_assert_int_eq(kv_get_bytes(kv, "large", 5, &got, &len), 0);
	ck_assert(len == LARGE && value_holds(got, len, 3));
	kv_release(got);
	ck_assert(kv_type(kv, "flags", 5, &flags) == KV_HASH && flags == put.flags);
	ck_assert(kv_type(kv, "hash", 4, &flags) == KV_HASH && flags == put.flags);
	ck_assert_int_eq(kv_get_bytes(kv, "hash", 4, &got, &len), -EMEDIUMTYPE);
	ck_assert(kv_type(kv, "k", 1, &flags) == KV_STRING && flags == 0);
	ck_assert_int_eq(kv_type(kv, "none", 4, NULL), -ENOENT);
	/* A version is the same, and the next ones are higher. */
	ck_assert_int_eq(kv_stat(kv, "k", 1, &after), 0);
	ck_assert_uint_eq(after.version, meta.version);
	set(kv, "k", "three");
	ck_assert_int_eq(kv_stat(kv, "k", 1, &after), 0);
	ck_assert_uint_gt(after.version, meta.version + UINT32_MAX);
	stale.version = meta.version;
	ck_assert_int_eq(kv_put(kv, "k", 1, "x", 1, &stale, NULL), -ESTALE);
	ck_assert_int_eq(kv_delete_all(kv, NULL), 0);
	set(kv, "last", "v");
	restart();
	ck_assert_uint_eq(stats().items, 1);
	ck_assert_int_eq(kv_exists(kv, "last", 4), 1);
	free(value);
}
END_TEST

/*
 * Commits
 */
#define COMMIT 5u /* changes */

static struct store_step step_of(enum store_step_kind kind, const char *key, const void *value, size_t len)
{
	struct store_step step = {.kind = kind, .key = key, .key_len = strlen(key), .expires = TIME_NEVER};
	int rc;

	if (kind != STORE_STEP_PUT)
		return step;
	do
		rc = store_reserve(thread()->store, key, strlen(key), len, time_now(), &step.ref);
	while (rc == -EAGAIN);
	ck_assert_int_eq(rc, 0);
	memcpy(step.ref.addr, value, len);
	return step;
}

static uint64_t durable_lsn(void)
{
	return kv_log_durable(((const struct kv_shared *)thread()->part.shared)->log);
}

static uint64_t commit_five(void)
{
	static unsigned char large[LARGE];
	struct store_step steps[COMMIT];
	uint64_t lsn;

	value_fill(large, LARGE, 3);
	steps[0] = step_of(STORE_STEP_PUT, "k", "two", 3);
	steps[1] = step_of(STORE_STEP_DELETE, "gone", NULL, 0);
	steps[2] = step_of(STORE_STEP_PUT, "large", large, LARGE);
	steps[3] = step_of(STORE_STEP_EXPIRE, "hour", NULL, 0);
	steps[4] = step_of(STORE_STEP_PUT, "also", "new", 3);
	ck_assert_int_eq(store_commit(thread()->store, NULL, 0, steps, COMMIT, time_now(), &lsn), 0);
	while (durable_lsn() < lsn)
		usleep(100);
	return lsn;
}

/* Where a record is in the log: of the file that is named last. */
struct where {
	char file[400];
	uint64_t lsn, at;
	unsigned more; /* records that say so */
};

static int where_file(void *arg, const char *name, uint64_t end)
{
	struct where *w = arg;

	(void)end;
	snprintf(w->file, sizeof(w->file), "%s.cut/%s", path, name);
	return 0;
}

static int where_record(void *arg, uint64_t at, const struct wal_record *record, const char *type)
{
	struct where *w = arg;

	(void)type;
	if (record->lsn == w->lsn && record->key_len)
		w->at = at;
	w->more += record->flags & WAL_MORE ? 1 : 0;
	return 0;
}

/* What a crash may leave: a copy of the log in which nothing is behind the first `left` changes of the last commit. */
static void copy_and_cut(uint64_t lsn, unsigned left)
{
	static const char zeros[2 * LARGE];
	struct where where = {.lsn = lsn - COMMIT + 1 + left};
	char command[400];
	uint64_t end;
	int fd;

	snprintf(command, sizeof(command), "cp -r %s %s.cut", path, path);
	ck_assert_int_eq(system(command), 0);
	snprintf(command, sizeof(command), "%s.cut", path);
	ck_assert_int_eq(wal_read_directory(command, where_file, &where), 0);
	ck_assert_int_eq(wal_read_file(where.file, where_record, &where, &end), 0);
	ck_assert_uint_eq(where.more, COMMIT - 1);
	if (left == COMMIT)
		return;
	ck_assert_uint_gt(where.at, 0);
	fd = open(where.file, O_WRONLY);
	ck_assert_int_eq(pwrite(fd, zeros, sizeof(zeros), (off_t)where.at), sizeof(zeros));
	close(fd);
}

static void assert_commit(bool whole)
{
	struct kv_meta meta;
	struct told told;
	size_t len;
	void *got;

	submit_get(kv, "k", &told);
	await(kv, &told);
	assert_value(&told, whole ? "two" : "one");
	ck_assert_int_eq(kv_exists(kv, "gone", 4), !whole);
	ck_assert_int_eq(kv_exists(kv, "large", 5), whole);
	ck_assert_int_eq(kv_exists(kv, "also", 4), whole);
	ck_assert_int_eq(kv_stat(kv, "hour", 4, &meta), 0);
	ck_assert_int_eq(meta.ttl_us == 0, whole);
	if (!whole)
		return;
	ck_assert_int_eq(kv_get_bytes(kv, "large", 5, &got, &len), 0);
	ck_assert(len == LARGE && value_holds(got, len, 3));
	kv_release(got);
}

/* A commit that a crash has cut short is not there, also behind what was written afterwards. _i: changes that are left of it. */
START_TEST(test_commit_is_whole)
{
	struct kv_put_options hour = {.ttl_us = 3600 * 1000000ull};
	char command[400];
	uint64_t lsn;

	set(kv, "k", "one");
	set(kv, "gone", "here");
	ck_assert_int_eq(kv_put(kv, "hour", 4, "v", 1, &hour, NULL), 0);
	lsn = commit_five();
	copy_and_cut(lsn, (unsigned)_i);
	stop();
	snprintf(command, sizeof(command), "rm -r %s && mv %s.cut %s", path, path, path);
	ck_assert_int_eq(system(command), 0);
	options.services.log.recover = KV_RECOVER_PREFIX; /* should a mark have been written already */
	start();
	assert_commit(_i == COMMIT);
	set(kv, "after", "v");
	restart();
	assert_commit(_i == COMMIT);
	ck_assert_int_eq(kv_exists(kv, "after", 5), 1);
	ck_assert_uint_eq(stats().pins, 0);
}
END_TEST

/* One that takes several syncs is on disk at once, for the clients that wait for it. */
START_TEST(test_commit_is_durable_at_once)
{
	enum { N = 1000, LEN = 8000 };
	static struct store_step steps[N];
	static char value[LEN], key[N][8];
	uint64_t lsn, there;

	for (unsigned i = 0; i < N; i++) {
		snprintf(key[i], sizeof(key[i]), "k%u", i);
		steps[i] = step_of(STORE_STEP_PUT, key[i], value, sizeof(value));
	}
	disk_slow(5 * TIME_MS);
	ck_assert_int_eq(store_commit(thread()->store, NULL, 0, steps, N, time_now(), &lsn), 0);
	do {
		there = durable_lsn();
		ck_assert_msg(there <= lsn - N || there >= lsn, "%llu of %d", (unsigned long long)(lsn - there), N);
		usleep(50);
	} while (there < lsn);
	disk_slow(0);
	restart();
	ck_assert_uint_eq(stats().items, N);
}
END_TEST

/* What a client knew of a state that was lost never fits one that comes. */
START_TEST(test_versions_after_a_loss)
{
	struct kv_put_options known = {.condition = KV_IF_VERSION};
	uint64_t version, fresh;

	set(kv, "k", "kept");
	ck_assert_int_eq(kv_put(kv, "d", 1, "v", 1, &durable, NULL), 0);
	disk_fail(-EIO); /* from here on nothing is kept */
	ck_assert_int_eq(kv_put(kv, "k", 1, "lost", 4, NULL, &version), 0);
	await_fatal();
	restart();
	ck_assert_int_eq(kv_put(kv, "k", 1, "another", 7, NULL, &fresh), 0);
	ck_assert_uint_gt(fresh, version);
	known.version = version;
	ck_assert_int_eq(kv_put(kv, "k", 1, "x", 1, &known, NULL), -ESTALE);
}
END_TEST

static uint64_t put_version(const char *key)
{
	uint64_t version;

	ck_assert_int_eq(kv_put(kv, key, strlen(key), "v", 1, NULL, &version), 0);
	return version;
}

/* A life of which nothing came to the disk gave out versions all the same, and no other value has one of them. */
START_TEST(test_versions_of_a_lost_life)
{
	uint64_t version = put_version("a");

	restart();
	for (unsigned i = 0; i < 3; i++) {
		uint64_t lost;

		fatal = 0;
		disk_fail(-EIO);
		lost = put_version("b");
		ck_assert_uint_gt(lost, version);
		version = lost;
		await_fatal();
		restart();
	}
	ck_assert_uint_gt(put_version("c"), version);
}
END_TEST

/* What was evicted is gone from the log, too: else its deletion, which finds nothing, would be told nowhere. */
START_TEST(test_eviction)
{
	char key[16], value[VALUE] = {0};
	unsigned found = 0, after = 0;

	for (unsigned i = 0; i < 1000; i++) {
		snprintf(key, sizeof(key), "%u", i);
		ck_assert_int_eq(kv_set_bytes(kv, key, strlen(key), value, sizeof(value)), 0);
	}
	ck_assert_uint_gt(stats().evictions, 0);
	found = (unsigned)stats().items;
	stop();
	options.services.arena = 16 * MIB;
	start();
	after = (unsigned)stats().items;
	ck_assert_uint_eq(after, found);
}
END_TEST

/* What found no room at a start is gone for ever: a deletion of it, which finds nothing, is told nowhere. */
START_TEST(test_eviction_at_a_start)
{
	char key[16], value[VALUE] = {0};
	unsigned i;

	stop();
	options.services.arena = 16 * MIB;
	start();
	for (i = 0; i < 1000; i++) {
		snprintf(key, sizeof(key), "%u", i);
		ck_assert_int_eq(kv_set_bytes(kv, key, strlen(key), value, sizeof(value)), 0);
	}
	stop();
	options.services.arena = 2 * MIB;
	start();
	for (i = 0; i < 1000; i++) {
		snprintf(key, sizeof(key), "%u", i);
		if (kv_exists(kv, key, strlen(key)) == 0)
			break;
	}
	ck_assert_uint_lt(i, 1000);
	ck_assert_int_eq(kv_delete(kv, key, strlen(key)), 0);
	stop();
	options.services.arena = 16 * MIB;
	start();
	ck_assert_int_eq(kv_exists(kv, key, strlen(key)), 0);
}
END_TEST

static void set_up_eviction(void)
{
	configure(KV_POLICY_ALWAYS);
	options.services.arena = 2 * MIB;
	options.services.eviction = STORE_EVICT_S3_FIFO;
	start();
}

static void set_up_full(void)
{
	configure(KV_POLICY_ALWAYS);
	options.services.arena = 2 * MIB;
	start();
}

/* Some time, and then what was written before it, has expired: the store has room for what it could not hold beside that. */
static void put_full(const char *key, unsigned size, uint64_t ttl_us)
{
	struct kv_put_options put = {.condition = KV_ALWAYS, .ttl_us = ttl_us};
	static char value[200000];
	int rc;

	memset(value, key[0], size);
	while ((rc = kv_put(kv, key, strlen(key), value, size, &put, NULL)) == -ENOSPC)
		usleep(1000);
	ck_assert_int_eq(rc, 0);
}

static void assert_full(const char *key, size_t size)
{
	char *value;
	size_t len;

	ck_assert_int_eq(kv_get_bytes(kv, key, strlen(key), (void **)&value, &len), 0);
	ck_assert_uint_eq(len, size);
	ck_assert_int_eq(value[0], key[0]);
	ck_assert_mem_eq(value, value + 1, len - 1);
	kv_release(value);
}

/* A store that held it all finds it all, though what had expired by then made room without a record; by either size it is put into
 * place in another way. */
START_TEST(test_full)
{
	const unsigned size = _i ? 100000 : 30000, count = 8 * MIB / size;
	struct kv_meta meta;
	char key[16];

	put_full("early", size, 0);
	put_full("longer", size, 60000000);
	for (unsigned i = 0; i < count; i++) {
		snprintf(key, sizeof(key), "x%u", i);
		put_full(key, size, 1000);
		if (i == count / 2) {
			put_full("kept", size, 60000000);
			put_full("gone", size, 0);
			put_full("twice", size, 0);
			put_full("early", size + 1, 0);
		}
	}
	ck_assert_int_eq(kv_expire(kv, "longer", 6, 0), 1);
	ck_assert_int_eq(kv_expire(kv, "kept", 4, 0), 1);
	ck_assert_int_eq(kv_delete(kv, "gone", 4), 1);
	put_full("twice", size + 2, 0);
	put_full("late", 3, 0);
	for (unsigned i = 0; i < 2; i++) {
		restart();
		assert_full("early", size + 1);
		assert_full("longer", size);
		assert_full("kept", size);
		assert_full("twice", size + 2);
		assert_full("late", 3);
		ck_assert_int_eq(kv_stat(kv, "kept", 4, &meta), 0);
		ck_assert_uint_eq(meta.ttl_us, 0);
		ck_assert_int_eq(kv_exists(kv, "gone", 4), 0);
		ck_assert_int_eq(kv_exists(kv, key, strlen(key)), 0);
	}
}
END_TEST

/* A commit whose values find no room beside what has expired is read again like others; so is what it replaces, or not at all. */
START_TEST(test_full_commit)
{
	const unsigned size = _i % 2 ? 100000 : 30000;
	static const char value[100000];
	struct store_step steps[4];
	struct kv_meta meta;
	char key[16];
	uint64_t lsn;

	put_full("old", size - 1, 0);
	put_full("gone", size, 0);
	for (unsigned i = 0; i < 8 * MIB / size; i++) {
		snprintf(key, sizeof(key), "x%u", i);
		put_full(key, size, 1000);
		if (i == (_i < 2 ? 0 : 1500000u / size)) { /* beside what fills the store first, or behind it */
			steps[0] = step_of(STORE_STEP_PUT, "first", value, size);
			steps[1] = step_of(STORE_STEP_DELETE, "gone", NULL, 0);
			steps[2] = step_of(STORE_STEP_PUT, "first", value, size - 2);
			steps[3] = step_of(STORE_STEP_PUT, "old", value, size);
			ck_assert_int_eq(store_commit(thread()->store, NULL, 0, steps, 4, time_now(), &lsn), 0);
		}
	}
	for (unsigned i = 0; i < 2; i++) {
		restart();
		ck_assert_int_eq(kv_stat(kv, "first", 5, &meta), 0);
		ck_assert_uint_eq(meta.length, size - 2);
		ck_assert_uint_eq(meta.version, lsn - 1);
		ck_assert_int_eq(kv_stat(kv, "old", 3, &meta), 0);
		ck_assert_uint_eq(meta.length, size);
		ck_assert_uint_eq(meta.version, lsn);
		ck_assert_int_eq(kv_exists(kv, "gone", 4), 0);
		ck_assert_uint_eq(stats().pins, 0);
	}
}
END_TEST

/* A delete-all is for what is still to be read again, too. */
START_TEST(test_full_flushed)
{
	char key[16];

	for (unsigned i = 0; i < 8 * MIB / 30000; i++) {
		snprintf(key, sizeof(key), "x%u", i);
		put_full(key, 30000, 1000);
	}
	put_full("gone", 30000, 0);
	ck_assert_int_eq(kv_delete_all(kv, NULL), 0);
	put_full("late", 3, 0);
	restart();
	ck_assert_int_eq(kv_exists(kv, "gone", 4), 0);
	assert_full("late", 3);
}
END_TEST

/* The log keeps short: what a checkpoint replaces goes. */
START_TEST(test_checkpoint)
{
	struct wal_info before, info;
	struct kv_shared *shared = server.services.shared.of[WIRE_KV];
	char value[VALUE];
	struct told told;

	memset(value, 'v', sizeof(value));
	set(kv, "once", "here");
	for (unsigned i = 0; i < 500; i++)
		ck_assert_int_eq(kv_set_bytes(kv, "k", 1, value, sizeof(value)), 0);
	wal_get_info(kv_log_wal(shared->log), &before);
	ck_assert_int_eq(kv_log_checkpoint(shared->log), 0);
	for (uint64_t until = time_now() + 60 * TIME_S; time_now() < until;) {
		wal_get_info(kv_log_wal(shared->log), &info);
		if (info.checkpoints > before.checkpoints)
			break;
		usleep(1000);
	}
	ck_assert_uint_eq(info.checkpoints, before.checkpoints + 1);
	ck_assert_uint_lt(info.log_bytes, before.log_bytes);
	set(kv, "twice", "here");
	restart();
	ck_assert_uint_eq(stats().items, 3);
	submit_get(kv, "once", &told);
	await(kv, &told);
	assert_value(&told, "here");
	ck_assert_int_eq(kv_exists(kv, "twice", 5), 1);
}
END_TEST

static void await_checkpoints(uint64_t n)
{
	for (uint64_t until = time_now() + 60 * TIME_S; log_figures().checkpoints < n && time_now() < until;)
		usleep(1000);
	ck_assert_uint_eq(log_figures().checkpoints, n);
}

/* No client writes. */
START_TEST(test_checkpoint_after_a_start)
{
	struct kv_shared *shared;

	set(kv, "k", "v");
	for (unsigned i = 1; i < 3; i++) {
		restart();
		shared = server.services.shared.of[WIRE_KV];
		for (unsigned made = 1; made < 3; made++) {
			while (kv_log_checkpoint(shared->log) == -EALREADY) /* the one before is about to end */
				usleep(1000);
			await_checkpoints(made);
		}
	}
	restart();
	ck_assert_uint_eq(stats().items, 1);
}
END_TEST

static void set_up_save(void)
{
	configure(KV_POLICY_NONE);
	options.services.log.save_at_exit = true;
	start();
}

static void set_up_none(void)
{
	configure(KV_POLICY_NONE);
}

/* An end in peace keeps all, once. */
START_TEST(test_save_at_exit)
{
	struct kv_put_options hour = {.ttl_us = 3600 * 1000000ull};
	struct kv_meta meta, after;
	uint64_t deleted;

	set(kv, "k", "v");
	ck_assert_int_eq(kv_put(kv, "hour", 4, "v", 1, &hour, NULL), 0);
	ck_assert_int_eq(kv_put(kv, "d", 1, "v", 1, &durable, NULL), -EOPNOTSUPP);
	ck_assert_int_eq(kv_stat(kv, "k", 1, &meta), 0);
	restart();
	ck_assert_uint_eq(stats().items, 2);
	ck_assert_int_eq(kv_stat(kv, "hour", 4, &after), 0);
	ck_assert(after.ttl_us && after.ttl_us <= hour.ttl_us);
	set(kv, "k", "w");
	ck_assert_int_eq(kv_stat(kv, "k", 1, &after), 0);
	ck_assert_uint_gt(after.version, meta.version);
	/* As a crash: nothing is saved, which is told, and nothing that is older comes back. */
	disk_fail(-EIO);
	kv_close(kv);
	kv_close(other);
	server_stop();
	ck_assert_int_eq(fatal, -EIO);
	disk_fail(0);
	start();
	ck_assert_uint_eq(stats().items, 0);
	set(kv, "k", "v");
	ck_assert_int_eq(kv_delete_all(kv, &deleted), 0);
	ck_assert_uint_eq(deleted, 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kv_log");
	TCase *tc = suite_case(suite, "gate", set_up, tear_down);

	tcase_add_test(tc, test_nothing_is_told);
	tcase_add_test(tc, test_lease);
	tcase_add_test(tc, test_nothing_is_told_otherwise);
	tcase_add_test(tc, test_expired);
	tcase_add_test(tc, test_large);
	tcase_add_loop_test(tc, test_hot_key, 0, 2);
	tcase_add_test(tc, test_close);
	tcase_add_test(tc, test_bounded);
	tcase_add_test(tc, test_drain);
	tcase_add_test(tc, test_wake_up);
	tcase_add_test(tc, test_ring_is_full);
	tcase_add_test(tc, test_disk_full);
	tcase_add_test(tc, test_disk_full_from_the_start);
	tcase_add_test(tc, test_disk_fails);
	tcase_add_test(tc, test_found);
	tcase_add_test(tc, test_checkpoint);
	tcase_add_test(tc, test_checkpoint_after_a_start);
	tc = suite_case(suite, "commit", set_up, tear_down);
	tcase_add_loop_test(tc, test_commit_is_whole, 0, COMMIT + 1);
	tcase_add_test(tc, test_commit_is_durable_at_once);
	tc = suite_case(suite, "push", set_up_push, tear_down);
	tcase_add_test(tc, test_large);
	tcase_add_test(tc, test_pushed_small);
	tc = suite_case(suite, "interval", set_up_interval, tear_down);
	tcase_add_test(tc, test_sync_when_full);
	tcase_add_test(tc, test_end_when_full);
	tcase_add_test(tc, test_end_when_the_log_is_full);
	tcase_add_test(tc, test_checkpoint_when_full);
	tcase_add_test(tc, test_checkpoint_again);
	tcase_add_test(tc, test_checkpoint_with_a_lag);
	tcase_add_test(tc, test_checkpoint_after_a_start);
	tcase_add_test(tc, test_durable);
	tcase_add_test(tc, test_read_and_delete_when_full);
	tcase_add_test(tc, test_found);
	tcase_add_test(tc, test_versions_after_a_loss);
	tcase_add_test(tc, test_versions_of_a_lost_life);
	tc = suite_case(suite, "read_only", set_up_read_only, tear_down);
	tcase_add_test(tc, test_read_only);
	tc = suite_case(suite, "read_only_interval", set_up_read_only_interval, tear_down);
	tcase_add_test(tc, test_read_only_interval);
	tc = suite_case(suite, "eviction", set_up_eviction, tear_down);
	tcase_add_test(tc, test_eviction);
	tcase_add_test(tc, test_eviction_at_a_start);
	tc = suite_case(suite, "full", set_up_full, tear_down);
	tcase_add_loop_test(tc, test_full, 0, 2);
	tcase_add_loop_test(tc, test_full_commit, 0, 4);
	tcase_add_test(tc, test_full_flushed);
	tc = suite_case(suite, "save", set_up_save, tear_down);
	tcase_add_test(tc, test_save_at_exit);
	tc = suite_case(suite, "none", set_up_none, remove_all);
	tcase_add_test(tc, test_durable_without_a_log);
	return suite_run(suite);
}
