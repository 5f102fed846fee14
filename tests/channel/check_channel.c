/* check_channel.c: the ring by itself, and channels over shared memory between processes that are ended, stopped, or hostile. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/channel/channel_cases.h"
#include "tests/channel/channel_pair.h"
#include "channel/shm.h"
#include "tests/suite.h"

#define URL "shm://check"
#define SIZE 1000

const char *channel_cases_url = URL;

/*
 * The ring by itself: a transport that only remembers, whose indices begin where the test wants.
 */
struct alone {
	struct rdmad_channel base;
	int fd;
};

/* A thread in flush(), which has read the head, stays there until more was put, and a while longer. */
static bool stays;
static _Atomic bool inside;

static int alone_flush(struct rdmad_channel *channel)
{
	uint64_t head = channel->out.head;

	if (stays && !inside) {
		inside = true;
		while (channel->out.head == head)
			sched_yield();
		for (int i = 0; i < 1000; i++)
			sched_yield();
	}
	channel->out.flushed = head;
	return 0;
}

/* What was flushed comes back, and is got at once. */
static int alone_look(struct rdmad_channel *channel, enum channel_way way, uint64_t now)
{
	if (way == CHANNEL_GET)
		return channel_in_told(channel, channel->out.flushed);
	return channel_out_told(channel, channel->in.tail);
}

static void alone_taken(struct rdmad_channel *channel)
{
	(void)channel;
}

static int alone_sleep(struct rdmad_channel *channel, enum channel_way way, uint64_t index, uint64_t until)
{
	(void)channel, (void)way, (void)index, (void)until;
	return -ETIMEDOUT;
}

static int alone_close(struct rdmad_channel *channel)
{
	close(((struct alone *)channel)->fd);
	return 0;
}

static const struct channel_transport alone_transport = {
	.flush = alone_flush,
	.look = alone_look,
	.taken = alone_taken,
	.sleep = alone_sleep,
	.close = alone_close,
};

static struct rdmad_channel *alone_at(size_t capacity, uint64_t index)
{
	static const struct rdmad_channel_options options;
	struct alone *alone = channel_new(sizeof(*alone), &alone_transport, capacity, &options);
	size_t size = channel_mirror_size(capacity);

	alone->fd = channel_memory_create(size);
	ck_assert_int_ge(alone->fd, 0);
	WORKS(channel_mirror_map(alone->fd, 0, size, &alone->base.out.mirror));
	WORKS(channel_mirror_map(alone->fd, 0, size, &alone->base.in.mirror));
	alone->base.out.tail = alone->base.in.head = index;
	atomic_store(&alone->base.out.head, index);
	atomic_store(&alone->base.out.flushed, index);
	atomic_store(&alone->base.in.tail, index);
	alone->base.out.at = alone->base.in.at = (size_t)(index % size);
	return &alone->base;
}

/* Over 2^32 and over 2^64 (which nobody lives to see) as anywhere else. */
static const uint64_t beginnings[] = {0, UINT32_MAX - 1500, (1ull << 63) - 1500, UINT64_MAX - 1500};

START_TEST(test_indices)
{
	struct rdmad_channel *channel = alone_at(1000, beginnings[_i]);
	uint64_t seed = 7, put = 0, got = 0;
	uint8_t bytes[1000];

	while (got < 100000) {
		size_t n = (size_t)(channel_random(&seed) % 900);

		n = MIN(n, rdmad_channel_room(channel));
		for (size_t i = 0; i < n; i++)
			bytes[i] = channel_stream_byte(put++);
		WORKS(rdmad_channel_try_put(channel, bytes, n));
		WORKS(rdmad_channel_flush(channel, 0));
		ck_assert_uint_eq(rdmad_channel_available(channel), put - got);
		ck_assert_int_eq(rdmad_channel_try_put(channel, bytes, 1001 - (put - got)), -ENOSPC);
		n = (size_t)(channel_random(&seed) % 900);
		n = (size_t)rdmad_channel_try_get(channel, bytes, n);
		for (size_t i = 0; i < n; i++)
			ck_assert_uint_eq(bytes[i], channel_stream_byte(got++));
	}
	rdmad_channel_close(channel);
}
END_TEST

static void *get_none(void *channel)
{
	rdmad_channel_get(channel, &(uint8_t){0}, 1, 1);
	return NULL;
}

/* What is put while the thread that gets is in a flush is not left behind by the one that puts. */
START_TEST(test_both_flush)
{
	struct rdmad_channel *channel = alone_at(1000, 0);
	pthread_t thread;

	stays = true;
	WORKS(rdmad_channel_try_put(channel, "a", 1));
	pthread_create(&thread, NULL, get_none, channel);
	while (!inside)
		sched_yield();
	WORKS(rdmad_channel_try_put(channel, "b", 1));
	WORKS(channel_flush_some(channel));
	ck_assert_uint_eq(channel->out.flushed, 2);
	pthread_join(thread, NULL);
	rdmad_channel_close(channel);
}
END_TEST

/* Twice the same memory. */
START_TEST(test_mirror)
{
	struct channel_mirror mirror;
	size_t size = channel_mirror_size(5000);
	int fd = channel_memory_create(size);

	ck_assert_uint_eq(size, 2 * (size_t)sysconf(_SC_PAGESIZE));
	ck_assert_int_ge(fd, 0);
	ck_assert_int_ne(ftruncate(fd, 0), 0); /* sealed */
	ck_assert_int_ne(ftruncate(fd, (off_t)size * 2), 0);
	WORKS(channel_mirror_map(fd, 0, size, &mirror));
	strcpy((char *)mirror.data + size - 3, "wrapped");
	ck_assert_str_eq((char *)mirror.data, "pped");
	channel_mirror_unmap(&mirror);
	channel_mirror_unmap(&mirror);                                                     /* nothing any more */
	ck_assert_int_lt(channel_mirror_map(fd, (off_t)size * 100 + 1, size, &mirror), 0); /* no page's beginning */
	close(fd);
}
END_TEST

/* What a peer tells is believed within bounds alone. */
#define TALES 7

START_TEST(test_told)
{
	static const struct {
		uint64_t head, tail; /* of which one is told */
	} tales[] = {{1001, 0}, {UINT64_MAX, 0}, {1ull << 63, 0}, {499, 0}, {0, 501}, {0, UINT64_MAX}, {0, 99}};
	struct rdmad_channel *channel = alone_at(1000, 0);
	uint8_t bytes[500] = {0};

	WORKS(rdmad_channel_put(channel, bytes, 500, 0));
	WORKS(rdmad_channel_flush(channel, 0));
	ck_assert_uint_eq(rdmad_channel_available(channel), 500);
	channel->out.tail = 100;
	if (tales[_i].head)
		ck_assert_int_eq(channel_in_told(channel, tales[_i].head), -EPROTO);
	else
		ck_assert_int_eq(channel_out_told(channel, tales[_i].tail), -EPROTO);
	ck_assert_ptr_nonnull(strstr(rdmad_error(), "claims"));
	ck_assert_int_eq(rdmad_channel_put(channel, bytes, 1, 0), -EPROTO);
	ck_assert_int_eq(channel_end(channel, -EPIPE, "later"), -EPROTO); /* the first counts */
	rdmad_channel_close(channel);
}
END_TEST

/*
 * URLs
 */
START_TEST(test_urls)
{
	static const struct {
		const char *text, *address, *name;
		enum channel_scheme scheme;
	} good[] = {
		{"shm://a name", "", "a name", CHANNEL_SHM},
		{"tcp://host:1/n", "tcp://host:1", "n", CHANNEL_FAR},
		{"rdma://[::1]:1/n", "rdma://[::1]:1", "n", CHANNEL_FAR},
		{"host:1/n", "host:1", "n", CHANNEL_FAR},
		{"unix:///a/b", "unix:///a/b", "", CHANNEL_FAR},
		{"meet://host/n", "host", "n", CHANNEL_MEET},
		{"meet://host:5/n", "host:5", "n", CHANNEL_MEET},
	};
	static const char *bad[] = {"",           "shm://",      "shm:///a",        "shm://a/b",
				    "shm://a\nb", "shm://..",    "tcp://host:1",    "tcp://host:1/",
				    "host:1",     "meet://host", "meet://host/a/b", "tcp://h/a/b"};
	struct channel_url url;
	char text[400];

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		WORKS(channel_url_parse(good[i].text, &url));
		ck_assert_str_eq(url.address, good[i].address);
		ck_assert_str_eq(url.name, good[i].name);
		ck_assert_int_eq(url.scheme, good[i].scheme);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_msg(channel_url_parse(bad[i], &url) == -EINVAL, "%s", bad[i]);
	snprintf(text, sizeof(text), "shm://%0201d", 0);
	ck_assert_int_eq(channel_url_parse(text, &url), -EINVAL);
	snprintf(text, sizeof(text), "shm://%0200d", 0);
	WORKS(channel_url_parse(text, &url));
	snprintf(text, sizeof(text), "tcp://%0330d/n", 0);
	ck_assert_int_eq(channel_url_parse(text, &url), -EINVAL);
}
END_TEST

/*
 * Processes
 */
static unsigned count_ring_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	unsigned n = 0;

	while (fgets(line, sizeof(line), maps))
		n += strstr(line, "rdmad-ch") != NULL;
	fclose(maps);
	return n;
}

/* A child that does `work` and ends by itself only when that ends. */
static pid_t child_of(void (*work)(void))
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		alarm(200); /* whatever becomes of the parent */
		work();
		_exit(0);
	}
	return pid;
}

static void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

static struct rdmad_channel *open_patiently(void)
{
	struct rdmad_channel *channel;
	int rc;

	do
		rc = rdmad_channel_open(URL, SIZE, NULL, &channel);
	while (rc == -ENOENT && usleep(1000) == 0); /* the child listens soon */
	ck_assert_msg(rc == 0, "%d, %s", rc, rdmad_error());
	return channel;
}

static void put_for_ever(struct rdmad_channel *channel)
{
	struct channel_stream stream = {.channel = channel, .total = UINT64_MAX, .most = 300, .seed = 9};

	channel_stream_put(&stream);
}

static void client_puts(void)
{
	put_for_ever(open_patiently());
}

static struct rdmad_channel *listen_and_accept(struct rdmad_channel_listener **listener)
{
	struct rdmad_channel *channel;

	WORKS(rdmad_channel_listen(URL, SIZE, NULL, listener));
	WORKS(rdmad_channel_accept(*listener, SECONDS(60), &channel));
	return channel;
}

static void server_puts(void)
{
	struct rdmad_channel_listener *listener;

	put_for_ever(listen_and_accept(&listener));
}

/* A thread that puts for ever, as long as the peer gets. */
static void *put_thread(void *arg)
{
	put_for_ever(arg);
	return NULL;
}

/* Both directions, so that it may be ended in the midst of either. */
static void client_talks(void)
{
	struct rdmad_channel *channel = open_patiently();
	struct channel_stream stream = {.channel = channel, .total = UINT64_MAX, .most = 300, .seed = 3};
	pthread_t thread;

	pthread_create(&thread, NULL, put_thread, channel);
	channel_stream_get(&stream);
}

/* Gets `total` bytes of the stream, kills the other end, gets the rest. The error that ended it. */
static int get_until_killed(struct rdmad_channel *channel, uint64_t total, pid_t child)
{
	uint8_t bytes[64];
	uint64_t got = 0;
	bool killed = false;

	for (;;) {
		ssize_t n;

		if (got >= total && !killed) {
			kill(child, SIGKILL);
			killed = true;
		}
		n = rdmad_channel_try_get(channel, bytes, sizeof(bytes));
		if (n == 0)
			n = rdmad_channel_get(channel, bytes, 1, RDMAD_CHANNEL_FOREVER) == 0 ? 1 : -1;
		for (ssize_t i = 0; i < n; i++)
			ck_assert_uint_eq(bytes[i], channel_stream_byte(got++));
		if (n < 0)
			return rdmad_channel_get(channel, bytes, 1, RDMAD_CHANNEL_FOREVER);
	}
}

static struct rdmad_channel *other_end(void (*work)(void), struct rdmad_channel_listener **listener, pid_t *child)
{
	*listener = NULL;
	if (work == server_puts) {
		*child = child_of(work);
		return open_patiently();
	}
	WORKS(rdmad_channel_listen(URL, SIZE, NULL, listener));
	*child = child_of(work);
	{
		struct rdmad_channel *channel;

		WORKS(rdmad_channel_accept(*listener, SECONDS(60), &channel));
		return channel;
	}
}

static void (*const works[])(void) = {client_puts, server_puts, client_talks};

/* Killed anywhere, also in the midst of a put: what came is whole, then the end is told, and all is given back. */
START_TEST(test_killed)
{
	unsigned descriptors = count_descriptors(), mappings = count_ring_mappings();
	uint64_t seed = 77 + (uint64_t)_i;

	for (int round = 0; round < 12; round++) {
		struct rdmad_channel_listener *listener;
		struct rdmad_channel *channel;
		pthread_t thread;
		pid_t child;

		channel = other_end(works[_i], &listener, &child);
		if (works[_i] == client_talks)
			pthread_create(&thread, NULL, put_thread, channel);
		ck_assert_int_eq(get_until_killed(channel, channel_random(&seed) % 100000, child), -ECONNRESET);
		ck_assert_ptr_nonnull(strstr(rdmad_error(), "died"));
		if (works[_i] == client_talks)
			pthread_join(thread, NULL); /* it heard of it, too */
		rdmad_channel_close(channel);
		rdmad_channel_listener_close(listener);
		ck_assert_int_eq(waitpid(child, NULL, 0), child);
	}
	ck_assert_uint_eq(count_descriptors(), descriptors);
	ck_assert_uint_eq(count_ring_mappings(), mappings);
}
END_TEST

/* Of ends that wait, try, flush or sleep by the descriptor, each hears of a death. */
static int death_by_get(struct rdmad_channel *channel)
{
	uint8_t byte;

	return rdmad_channel_get(channel, &byte, 1, RDMAD_CHANNEL_FOREVER);
}

static int death_by_try(struct rdmad_channel *channel)
{
	uint8_t byte;
	ssize_t n;

	while ((n = rdmad_channel_try_get(channel, &byte, 1)) == 0)
		;
	return (int)n;
}

static int death_by_put(struct rdmad_channel *channel)
{
	uint8_t bytes[100] = {0};
	int rc;

	while ((rc = rdmad_channel_put(channel, bytes, sizeof(bytes), RDMAD_CHANNEL_FOREVER)) == 0)
		;
	return rc;
}

static int death_by_flush(struct rdmad_channel *channel)
{
	int rc = 0;

	while (rc == 0) {
		uint8_t byte = 0;

		rdmad_channel_try_put(channel, &byte, 1);
		rc = rdmad_channel_flush(channel, 0);
	}
	return rc;
}

static int death_by_fd(struct rdmad_channel *channel)
{
	struct pollfd ready = {.fd = rdmad_channel_fd(channel), .events = POLLIN};

	for (;;) {
		int rc = rdmad_channel_arm(channel);

		if (rc != 0)
			return rc;
		ck_assert_int_ne(poll(&ready, 1, 60000), 0);
	}
}

static int (*const deaths[])(struct rdmad_channel *) = {death_by_get, death_by_try, death_by_put, death_by_flush,
							death_by_fd};

static void client_waits(void)
{
	death_by_get(open_patiently());
}

START_TEST(test_death_told)
{
	struct rdmad_channel_listener *listener;
	pid_t child;
	struct rdmad_channel *channel = other_end(client_waits, &listener, &child);

	kill(child, SIGKILL);
	ck_assert_int_eq(deaths[_i](channel), -ECONNRESET);
	ck_assert_int_eq(deaths[_i](channel), -ECONNRESET); /* and again */
	rdmad_channel_close(channel);
	rdmad_channel_listener_close(listener);
	waitpid(child, NULL, 0);
}
END_TEST

static void client_echoes(void)
{
	struct rdmad_channel *channel = open_patiently();
	uint8_t bytes[10];

	while (rdmad_channel_get(channel, bytes, sizeof(bytes), RDMAD_CHANNEL_FOREVER) == 0)
		rdmad_channel_put(channel, bytes, sizeof(bytes), RDMAD_CHANNEL_FOREVER);
}

/* A peer that is stopped is not dead: calls time out, and all goes on when it does. */
START_TEST(test_stopped)
{
	struct rdmad_channel_listener *listener;
	pid_t child;
	struct rdmad_channel *channel = other_end(client_echoes, &listener, &child);
	uint8_t out[10] = "123456789", in[10];
	unsigned put = 0;
	int rc, status;

	for (int round = 0; round < 3; round++) {
		kill(child, SIGSTOP);
		ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
		ck_assert_int_eq(rdmad_channel_get(channel, in, sizeof(in), 10000), -ETIMEDOUT);
		while ((rc = rdmad_channel_put(channel, out, sizeof(out), 10000)) == 0)
			put++;
		ck_assert_int_eq(rc, -ETIMEDOUT);
		kill(child, SIGCONT);
		for (; put; put--) {
			WORKS(rdmad_channel_get(channel, in, sizeof(in), SECONDS(60)));
			ck_assert_mem_eq(in, out, sizeof(in));
		}
	}
	rdmad_channel_close(channel);
	rdmad_channel_listener_close(listener);
	end_child(child);
}
END_TEST

/* What the scheduler knows of a process: whether it sleeps, for how many nanoseconds it ran, and how often. */
struct schedule {
	char state;
	unsigned long long ran, times;
};

static struct schedule read_schedule(pid_t pid)
{
	struct schedule schedule;
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)pid);
	file = fopen(path, "r");
	ck_assert_int_eq(fscanf(file, "%llu %*u %llu", &schedule.ran, &schedule.times), 2);
	fclose(file);
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "r");
	ck_assert_int_eq(fscanf(file, "%*s %*s %c", &schedule.state), 1);
	fclose(file);
	return schedule;
}

/* An end that waits takes no time: neither now and then nor at all. */
START_TEST(test_idle)
{
	struct rdmad_channel_listener *listener;
	struct schedule before, after;
	pid_t child;
	struct rdmad_channel *channel = other_end(client_waits, &listener, &child);

	do { /* until it has polled enough and sleeps */
		before = read_schedule(child);
		usleep(100000);
		after = read_schedule(child);
	} while (before.state != 'S' || after.times != before.times || after.ran != before.ran);
	usleep(300000); /* what is measured is that nothing happens meanwhile */
	after = read_schedule(child);
	ck_assert_uint_eq(after.ran, before.ran);
	ck_assert_uint_eq(after.times, before.times);
	rdmad_channel_close(channel);
	rdmad_channel_listener_close(listener);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
}
END_TEST

static void listens(void)
{
	struct rdmad_channel_listener *listener;

	WORKS(rdmad_channel_listen(URL, SIZE, NULL, &listener));
	kill(getpid(), SIGSTOP); /* it is there */
	pause();
}

/* A name has one listener, and one that died is no obstacle. */
START_TEST(test_listeners)
{
	const struct rdmad_channel_options rdma = {.common.require_rdma = true};
	struct rdmad_channel_listener *listener, *other;
	struct rdmad_channel *channel;
	pid_t child = child_of(listens);
	int status;

	ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
	ck_assert_int_eq(rdmad_channel_listen(URL, SIZE, NULL, &listener), -EADDRINUSE);
	ck_assert_ptr_nonnull(strstr(rdmad_error(), "listens on shm://check already"));
	end_child(child);
	ck_assert_int_eq(rdmad_channel_open(URL, SIZE, NULL, &channel), -ENOENT);
	ck_assert_ptr_nonnull(strstr(rdmad_error(), "nobody listens"));
	WORKS(rdmad_channel_listen(URL, SIZE, NULL, &listener));
	ck_assert_str_eq(rdmad_channel_listener_url(listener), URL);
	ck_assert_int_eq(rdmad_channel_listen(URL, SIZE, NULL, &other), -EADDRINUSE);
	ck_assert_int_eq(rdmad_channel_accept(listener, 0, &channel), -ETIMEDOUT);
	rdmad_channel_listener_close(listener);
	ck_assert_int_eq(rdmad_channel_open(URL, SIZE, NULL, &channel), -ENOENT);
	ck_assert_int_eq(rdmad_channel_open("shm://other", SIZE, NULL, &channel), -ENOENT);
	ck_assert_int_eq(rdmad_channel_listen(URL, 63, NULL, &listener), -EINVAL);
	ck_assert_int_eq(rdmad_channel_listen(URL, SIZE, &rdma, &listener), -EINVAL);
	ck_assert_int_eq(rdmad_channel_open(URL, SIZE, &rdma, &channel), -EINVAL);
	ck_assert_ptr_nonnull(strstr(rdmad_error(), "is not RDMA"));
	ck_assert_int_eq(rdmad_channel_open(URL, (size_t)RDMAD_CHANNEL_SIZE_MAX + 1, NULL, &channel), -EINVAL);
}
END_TEST

static void *open_meanwhile(void *arg)
{
	struct rdmad_channel *channel;

	*(int *)arg = rdmad_channel_open(URL, SIZE, NULL, &channel);
	return NULL;
}

/* A client that waits to be accepted hears that nobody will. */
START_TEST(test_listener_killed)
{
	pid_t child = child_of(listens);
	pthread_t thread;
	int rc, status;

	ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
	pthread_create(&thread, NULL, open_meanwhile, &rc);
	usleep(10000); /* or it finds nobody from the beginning */
	end_child(child);
	pthread_join(thread, NULL);
	ck_assert_int_eq(rc, -ENOENT);
}
END_TEST

static bool socket_is_there(const char *name)
{
	char path[300];

	snprintf(path, sizeof(path), "%s/rdmad-channel/%s", getenv("XDG_RUNTIME_DIR"), name);
	return access(path, F_OK) == 0;
}

/* The socket of a listener that was killed goes with the next one of any name, and that of a living one stays. */
START_TEST(test_sockets_are_swept)
{
	const char *name = &URL[strlen("shm://")];
	struct rdmad_channel_listener *second, *third;
	struct channel_pair pair = {.size = SIZE};
	pid_t child = child_of(listens);
	int status;

	ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
	WORKS(rdmad_channel_listen("shm://second", SIZE, NULL, &second));
	ck_assert(socket_is_there(name)); /* stopped is not dead */
	end_child(child);
	ck_assert(socket_is_there(name));
	WORKS(rdmad_channel_listen("shm://third", SIZE, NULL, &third));
	ck_assert(!socket_is_there(name) && socket_is_there("second") && socket_is_there("third"));
	pair.listener = second; /* the one looked at takes that for a client that left */
	channel_pair_join(&pair);
	channel_pair_close(&pair);
	rdmad_channel_listener_close(third);
}
END_TEST

/* Names as long as they may be; one that is cut is not mistaken for another. */
START_TEST(test_long_names)
{
	char url[300], other[300];
	struct channel_pair pair;
	struct rdmad_channel *channel;

	snprintf(url, sizeof(url), "shm://%0200d", 0);
	snprintf(other, sizeof(other), "shm://%0199d1", 0);
	channel_pair_open(&pair, url, SIZE, NULL);
	ck_assert_int_eq(rdmad_channel_open(other, SIZE, NULL, &channel), -ENOENT);
	channel_pair_close(&pair);
}
END_TEST

/* A client that nobody accepts gives up in time; the listener's descriptor tells of one. */
START_TEST(test_not_accepted)
{
	const struct rdmad_channel_options options = {.common = {.connect_timeout_us = 20000}};
	struct rdmad_channel_listener *listener;
	struct rdmad_channel *channel;
	struct pollfd ready = {.events = POLLIN};

	WORKS(rdmad_channel_listen(URL, SIZE, NULL, &listener));
	ready.fd = rdmad_channel_listener_fd(listener);
	ck_assert_int_eq(poll(&ready, 1, 0), 0);
	ck_assert_int_eq(rdmad_channel_open(URL, SIZE, &options, &channel), -ETIMEDOUT);
	ck_assert_ptr_nonnull(strstr(rdmad_error(), "did not accept in time"));
	ck_assert_int_eq(poll(&ready, 1, 0), 1);
	ck_assert_int_eq(rdmad_channel_accept(listener, 0, &channel), -ETIMEDOUT); /* it has left */
	ck_assert_int_eq(poll(&ready, 1, 0), 0);
	rdmad_channel_listener_close(listener);
}
END_TEST

/*
 * Peers that speak for themselves
 */
struct raw {
	int socket, fds[WIRE_SHM_FDS];
	struct wire_shm_header *header;
};

static void raw_path(struct sockaddr_un *path)
{
	char directory[SHM_DIRECTORY_MAX];

	channel_shm_directory(directory);
	WORKS(channel_shm_path(directory, "check", path));
}

static int raw_connect(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un path;

	raw_path(&path);
	WORKS(connect(fd, (struct sockaddr *)&path, sizeof(path)));
	return fd;
}

static const struct wire_shm_hello honest = {
	.magic = WIRE_SHM_MAGIC, .version = WIRE_SHM_VERSION, .name_len = 5, .capacity = SIZE, .name = "check"};

/* The error that it is answered with. */
static unsigned raw_ask(struct rdmad_channel_listener *listener, const void *hello, size_t len)
{
	struct rdmad_channel *channel;
	struct wire_shm_answer answer;
	int fd = raw_connect();
	unsigned error;

	ck_assert_int_eq(send(fd, hello, len, 0), (ssize_t)len);
	ck_assert_int_eq(rdmad_channel_accept(listener, 10000, &channel), -ETIMEDOUT);
	ck_assert_int_eq(recv(fd, &answer, sizeof(answer), 0), sizeof(answer));
	error = answer.error;
	close(fd);
	return error;
}

START_TEST(test_hello)
{
	struct wire_shm_hello hello = honest;
	struct rdmad_channel_listener *listener;
	unsigned before = count_descriptors();

	WORKS(rdmad_channel_listen(URL, SIZE, NULL, &listener));
	ck_assert_uint_eq(raw_ask(listener, &hello, 20), EPROTO);
	hello.magic++;
	ck_assert_uint_eq(raw_ask(listener, &hello, sizeof(hello)), EPROTO);
	hello = honest;
	hello.version++;
	ck_assert_uint_eq(raw_ask(listener, &hello, sizeof(hello)), EPROTONOSUPPORT);
	hello = honest;
	hello.name[0]++;
	ck_assert_uint_eq(raw_ask(listener, &hello, sizeof(hello)), ENOENT);
	hello = honest;
	hello.name_len = UINT32_MAX;
	ck_assert_uint_eq(raw_ask(listener, &hello, sizeof(hello)), ENOENT);
	hello = honest;
	hello.capacity++;
	ck_assert_uint_eq(raw_ask(listener, &hello, sizeof(hello)), EMSGSIZE);
	rdmad_channel_listener_close(listener);
	ck_assert_uint_eq(count_descriptors(), before);
}
END_TEST

/* Clients that say nothing are not waited for by the others, however many they are. */
START_TEST(test_silent_clients)
{
	struct channel_pair pair;
	int silent[40];

	channel_pair_open(&pair, URL, SIZE, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(silent); i++)
		silent[i] = raw_connect();
	rdmad_channel_close(pair.client);
	rdmad_channel_close(pair.server);
	channel_pair_join(&pair);
	channel_pair_close(&pair);
	for (size_t i = 0; i < ARRAY_SIZE(silent); i++)
		close(silent[i]);
}
END_TEST

static void raw_receive(struct raw *raw)
{
	char control[CMSG_SPACE(WIRE_SHM_FDS * sizeof(int))];
	struct wire_shm_answer answer;
	struct iovec piece = {&answer, sizeof(answer)};
	struct msghdr message = {
		.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};

	ck_assert_int_eq(recvmsg(raw->socket, &message, 0), sizeof(answer));
	ck_assert_uint_eq(answer.error, 0);
	memcpy(raw->fds, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(raw->fds));
}

/* A client that is not the library: its end is the raw memory. */
static struct rdmad_channel *raw_join(struct rdmad_channel_listener *listener, struct raw *raw)
{
	struct rdmad_channel *channel;

	raw->socket = raw_connect();
	ck_assert_int_eq(send(raw->socket, &honest, sizeof(honest), 0), sizeof(honest));
	WORKS(rdmad_channel_accept(listener, SECONDS(60), &channel));
	raw_receive(raw);
	raw->header = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, raw->fds[WIRE_SHM_MEMORY], 0);
	ck_assert_ptr_ne(raw->header, MAP_FAILED);
	return channel;
}

static void raw_leave(struct raw *raw)
{
	munmap(raw->header, 4096);
	channel_shm_close_all(raw->fds);
	close(raw->socket);
}

/* Nor does one that has said what it wants give way to clients that come after it. */
START_TEST(test_crowd)
{
	struct rdmad_channel_listener *listener;
	struct rdmad_channel *channel;
	struct raw raw[40];

	WORKS(rdmad_channel_listen(URL, SIZE, NULL, &listener));
	for (size_t i = 0; i < ARRAY_SIZE(raw); i++) {
		raw[i].socket = raw_connect();
		ck_assert_int_eq(send(raw[i].socket, &honest, sizeof(honest), 0), sizeof(honest));
	}
	for (size_t i = 0; i < ARRAY_SIZE(raw); i++) {
		WORKS(rdmad_channel_accept(listener, SECONDS(60), &channel));
		raw_receive(&raw[i]);
		for (size_t k = 0; k < ARRAY_SIZE(raw[i].fds); k++)
			close(raw[i].fds[k]);
		close(raw[i].socket);
		rdmad_channel_close(channel);
	}
	ck_assert_int_eq(rdmad_channel_accept(listener, 1000, &channel), -ETIMEDOUT);
	ck_assert_str_eq(rdmad_error(), "no client came to " URL " in 1000 us");
	rdmad_channel_listener_close(listener);
}
END_TEST

/* A client that speaks so late that it had to give way comes again. */
static _Thread_local bool late; /* with the first that this thread sends */

ssize_t send(int fd, const void *bytes, size_t size, int flags)
{
	if (late)
		usleep(300000);
	late = false;
	return sendto(fd, bytes, size, flags, NULL, 0);
}

static void *late_run(void *pair)
{
	late = true;
	return channel_pair_client(pair);
}

START_TEST(test_late)
{
	struct channel_pair pair = {.url = URL, .size = SIZE};
	pthread_t thread;
	int silent[40];

	WORKS(rdmad_channel_listen(URL, SIZE, NULL, &pair.listener));
	ck_assert_int_eq(pthread_create(&thread, NULL, late_run, &pair), 0);
	ck_assert_int_eq(rdmad_channel_accept(pair.listener, 100000, &pair.server), -ETIMEDOUT);
	for (size_t i = 0; i < ARRAY_SIZE(silent); i++)
		silent[i] = raw_connect();
	WORKS(rdmad_channel_accept(pair.listener, SECONDS(60), &pair.server));
	pthread_join(thread, NULL);
	channel_pair_close(&pair);
	for (size_t i = 0; i < ARRAY_SIZE(silent); i++)
		close(silent[i]);
}
END_TEST

static uint64_t nasty(uint64_t *seed)
{
	static const uint64_t values[] = {
		0,          1,          SIZE - 1,   SIZE,       SIZE + 1,          4095,     4096, 4097, 8192,
		UINT32_MAX, 1ull << 32, 1ull << 63, UINT64_MAX, UINT64_MAX - SIZE, INT64_MAX};
	uint64_t n = channel_random(seed) % (ARRAY_SIZE(values) + 2);

	return n < ARRAY_SIZE(values) ? values[n] : channel_random(seed) >> n % 60;
}

/* Writes anything anywhere in the header. */
static void spoil(struct wire_shm_header *header, uint64_t *seed)
{
	_Atomic uint64_t *const targets[] = {
		&header->rings[0].head,
		&header->rings[1].tail,
		&header->rings[0].tail,
		&header->rings[1].head,
		&header->rings[0].head_wanted,
		&header->rings[1].head_wanted,
		&header->rings[0].tail_wanted,
		&header->rings[1].tail_wanted,
		(_Atomic uint64_t *)&header->shape.capacity,
		(_Atomic uint64_t *)&header->shape.ring,
	};

	atomic_store(targets[channel_random(seed) % ARRAY_SIZE(targets)], nasty(seed));
	if (channel_random(seed) % 8 == 0)
		atomic_store(&header->rings[0].closed, (uint32_t)nasty(seed));
}

/* Any call: it may fail, but by the peer's fault only in one way. */
static int any_call(struct rdmad_channel *channel, uint64_t *seed)
{
	static uint8_t bytes[SIZE];
	size_t n = (size_t)(channel_random(seed) % (SIZE + 1)), available;
	const void *seen;
	void *room;
	int rc;

	switch (channel_random(seed) % 10) {
	case 0:
		return (int)rdmad_channel_try_get(channel, bytes, n);
	case 1:
		return rdmad_channel_get(channel, bytes, n, 0);
	case 2:
		return rdmad_channel_try_put(channel, bytes, n);
	case 3:
		rc = rdmad_channel_reserve(channel, n, 0, &room);
		if (rc != 0)
			return rc;
		memset(room, 1, n);
		return rdmad_channel_commit(channel, n);
	case 4:
		rc = rdmad_channel_view(channel, 1, 0, &seen, &available);
		if (rc != 0)
			return rc;
		ck_assert_uint_le(available, SIZE);
		memcpy(bytes, seen, available);
		return rdmad_channel_consume(channel, available);
	case 5:
		ck_assert_uint_le(rdmad_channel_available(channel), SIZE);
		return 0;
	case 6:
		ck_assert_uint_le(rdmad_channel_room(channel), SIZE);
		return 0;
	case 7:
		rc = rdmad_channel_arm(channel);
		return rc;
	case 8:
		return rdmad_channel_get(channel, bytes, n / 2, 50);
	default:
		return rdmad_channel_flush(channel, 0);
	}
}

/* Whatever the peer writes, no call reads or writes outside of the ring, and what cannot be ends the channel. */
START_TEST(test_hostile_memory)
{
	struct rdmad_channel_listener *listener;
	uint64_t seed = 4711;
	unsigned ended = 0, descriptors, mappings;

	WORKS(rdmad_channel_listen(URL, SIZE, NULL, &listener));
	descriptors = count_descriptors();
	mappings = count_ring_mappings();
	for (int round = 0; round < 300; round++) {
		struct raw raw;
		struct rdmad_channel *channel = raw_join(listener, &raw);

		for (int i = 0; i < 60; i++) {
			int rc;

			spoil(raw.header, &seed);
			rc = any_call(channel, &seed);
			if (rc == -EPROTO) {
				ended++;
				ck_assert_int_eq(rdmad_channel_put(channel, "x", 1, 0), -EPROTO);
				break;
			}
			ck_assert_msg(rc >= 0 || rc == -EAGAIN || rc == -ENOSPC || rc == -ETIMEDOUT, "%d", rc);
		}
		rdmad_channel_close(channel);
		raw_leave(&raw);
	}
	ck_assert_uint_gt(ended, 200);
	ck_assert_uint_eq(count_descriptors(), descriptors);
	ck_assert_uint_eq(count_ring_mappings(), mappings);
	rdmad_channel_listener_close(listener);
}
END_TEST

/* A listener that hands over what it should not. */
enum lie {
	LIE_MAGIC,
	LIE_VERSION,
	LIE_ERROR,
	LIE_STRANGE_ERROR,
	LIE_NOTHING,
	LIE_FEW,
	LIE_SHORT,
	LIE_UNSEALED,
	LIE_FILE,
	LIE_SHAPE,
	LIES
};

static const struct {
	int error;
	const char *says;
} lies[LIES] = {
	[LIE_MAGIC] = {-EPROTO, "is no channel"},
	[LIE_VERSION] = {-EPROTONOSUPPORT, "another version"},
	[LIE_ERROR] = {-EMSGSIZE, "another size"},
	[LIE_STRANGE_ERROR] = {-EPROTO, "did not understand"},
	[LIE_NOTHING] = {-ENOENT, "closed before it accepted"},
	[LIE_FEW] = {-EPROTO, "2 of 5 descriptors"},
	[LIE_SHORT] = {-EPROTO, "has not the"},
	[LIE_UNSEALED] = {-EPROTO, "not sealed"},
	[LIE_FILE] = {-EPROTO, "not sealed"},
	[LIE_SHAPE] = {-EPROTO, "has not the shape"},
};

static int lie_memory(enum lie lie)
{
	size_t size = channel_shm_size(SIZE) - (lie == LIE_SHORT ? 4096 : 0);
	char name[] = "check_channel.XXXXXX"; /* on a disk, where nothing can be sealed */
	int fd;

	if (lie != LIE_UNSEALED && lie != LIE_FILE)
		return channel_memory_create(size);
	fd = lie == LIE_FILE ? mkstemp(name) : memfd_create("rdmad-channel", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (lie == LIE_FILE)
		unlink(name);
	WORKS(ftruncate(fd, (off_t)size));
	return fd;
}

static void lie_to(int socket, enum lie lie)
{
	char control[CMSG_SPACE(WIRE_SHM_FDS * sizeof(int))] = "";
	int count = lie == LIE_FEW ? 2 : WIRE_SHM_FDS, fds[WIRE_SHM_FDS], memory = lie_memory(lie);
	struct wire_shm_answer answer = {.magic = WIRE_SHM_MAGIC + (lie == LIE_MAGIC),
					 .version = WIRE_SHM_VERSION + (lie == LIE_VERSION),
					 .error = lie == LIE_ERROR           ? EMSGSIZE
						  : lie == LIE_STRANGE_ERROR ? UINT32_MAX
									     : 0};
	struct iovec piece = {&answer, sizeof(answer)};
	struct msghdr message = {.msg_iov = &piece,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = CMSG_SPACE((size_t)count * sizeof(int))};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	for (int i = 0; i < WIRE_SHM_FDS; i++)
		fds[i] = memory;
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
	memcpy(CMSG_DATA(header), fds, (size_t)count * sizeof(int));
	if (lie != LIE_NOTHING)
		ck_assert_int_eq(sendmsg(socket, &message, 0), sizeof(answer));
	close(memory);
}

static void *liar(void *arg)
{
	int listener = *(int *)arg;

	for (int lie = 0; lie < LIES; lie++) {
		struct wire_shm_hello hello;
		int fd = accept(listener, NULL, NULL);

		ck_assert_int_eq(recv(fd, &hello, sizeof(hello), 0), sizeof(hello));
		lie_to(fd, (enum lie)lie);
		close(fd);
	}
	return NULL;
}

START_TEST(test_hostile_listener)
{
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct rdmad_channel_listener *once;
	unsigned descriptors, mappings;
	struct sockaddr_un path;
	pthread_t thread;

	WORKS(rdmad_channel_listen(URL, SIZE, NULL, &once)); /* makes the directory */
	rdmad_channel_listener_close(once);
	raw_path(&path);
	WORKS(bind(listener, (struct sockaddr *)&path, sizeof(path)));
	WORKS(listen(listener, 10));
	descriptors = count_descriptors();
	mappings = count_ring_mappings();
	pthread_create(&thread, NULL, liar, &listener);
	for (int lie = 0; lie < LIES; lie++) {
		struct rdmad_channel *channel;
		int rc = rdmad_channel_open(URL, SIZE, NULL, &channel);

		ck_assert_msg(rc == lies[lie].error, "%d: %d, %s", lie, rc, rdmad_error());
		ck_assert_msg(strstr(rdmad_error(), lies[lie].says), "%d: %s", lie, rdmad_error());
	}
	pthread_join(thread, NULL);
	ck_assert_uint_eq(count_descriptors(), descriptors);
	ck_assert_uint_eq(count_ring_mappings(), mappings);
	close(listener);
	unlink(path.sun_path);
}
END_TEST

/* The directory's mode and owner count, and what the kernel says of the user at the other end. */
static void foreigner(void)
{
	struct rdmad_channel *channel;
	struct sockaddr_un path;
	struct wire_shm_answer answer = {.error = 0};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	raw_path(&path);
	if (setegid(65534) != 0 || seteuid(65534) != 0)
		_exit(1);
	if (rdmad_channel_open(URL, SIZE, NULL, &channel) != -EACCES || !strstr(rdmad_error(), "is of user 0"))
		_exit(2);
	if (connect(fd, (struct sockaddr *)&path, sizeof(path)) != 0)
		_exit(3);
	recv(fd, &answer, sizeof(answer), 0);
	_exit(answer.error == EACCES ? 0 : 4);
}

START_TEST(test_foreign_user)
{
	char directory[SHM_DIRECTORY_MAX];
	struct rdmad_channel_listener *listener;
	struct rdmad_channel *channel;
	struct sockaddr_un path;
	int status;
	pid_t child;

	WORKS(rdmad_channel_listen(URL, SIZE, NULL, &listener));
	channel_shm_directory(directory);
	raw_path(&path);
	WORKS(chmod(directory, 0755)); /* more than it may have */
	ck_assert_int_eq(rdmad_channel_open(URL, SIZE, NULL, &channel), -EACCES);
	if (geteuid() == 0) {
		WORKS(chmod(path.sun_path, 0777));
		WORKS(chmod(getenv("XDG_RUNTIME_DIR"), 0755));
		child = child_of(foreigner);
		ck_assert_int_eq(rdmad_channel_accept(listener, 1000000, &channel), -ETIMEDOUT);
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert_int_eq(status, 0);
	}
	rdmad_channel_listener_close(listener);
	ck_assert_int_eq(rdmad_channel_listen(URL, SIZE, NULL, &listener), -EACCES);
	WORKS(chmod(directory, 0700));
	WORKS(chmod(getenv("XDG_RUNTIME_DIR"), 0700));
}
END_TEST

/*
 * Memory by a name
 */
static unsigned count_objects(void)
{
	DIR *dir = opendir("/dev/shm");
	struct dirent *entry;
	unsigned n = 0;

	while ((entry = readdir(dir)))
		n += strncmp(entry->d_name, "rdmad-check", 11) == 0;
	closedir(dir);
	return n;
}

static const struct rdmad_channel_options named = {.posix_memory = true};

static void accept_named(void)
{
	struct rdmad_channel_listener *listener;
	struct rdmad_channel *channel;

	WORKS(rdmad_channel_listen(URL, SIZE, &named, &listener));
	WORKS(rdmad_channel_accept(listener, SECONDS(60), &channel));
	pause();
}

START_TEST(test_posix_memory)
{
	struct channel_pair pair, second;
	struct rdmad_channel *channel;
	pid_t child = child_of(accept_named);
	struct stat st;
	int rc;

	do
		rc = rdmad_channel_open(URL, SIZE, &named, &channel);
	while (rc == -ENOENT && usleep(1000) == 0);
	WORKS(rc);
	WORKS(stat("/dev/shm/rdmad-check", &st));
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	end_child(child); /* leaves it behind */
	rdmad_channel_close(channel);
	ck_assert_uint_eq(count_objects(), 1);
	channel_pair_open(&pair, URL, SIZE, &named); /* takes its name */
	ck_assert_uint_eq(count_objects(), 1);
	second = pair;
	channel_pair_join(&second);
	ck_assert_uint_eq(count_objects(), 2);
	WORKS(rdmad_channel_put(second.client, "a", 1, 0));
	WORKS(rdmad_channel_flush(second.client, 0));
	ck_assert_uint_eq(rdmad_channel_available(pair.server), 0);
	ck_assert_uint_eq(rdmad_channel_available(second.server), 1);
	rdmad_channel_close(second.client);
	rdmad_channel_close(second.server);
	channel_pair_close(&pair);
	ck_assert_uint_eq(count_objects(), 0);
}
END_TEST

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *where)
{
	(void)st, (void)kind, (void)where;
	return remove(path);
}

int main(void)
{
	Suite *suite = suite_create("channel");
	char runtime[] = "/tmp/check_channel.XXXXXX";
	TCase *tc = suite_case(suite, "ring", NULL, NULL);
	int status;

	tcase_add_test(tc, test_mirror);
	tcase_add_loop_test(tc, test_indices, 0, ARRAY_SIZE(beginnings));
	tcase_add_loop_test(tc, test_told, 0, TALES);
	tcase_add_test(tc, test_both_flush);
	tcase_add_test(tc, test_urls);
	channel_cases(suite);
	tc = suite_case(suite, "processes", NULL, NULL);
	tcase_add_loop_test(tc, test_killed, 0, ARRAY_SIZE(works));
	tcase_add_loop_test(tc, test_death_told, 0, ARRAY_SIZE(deaths));
	tcase_add_test(tc, test_stopped);
	tcase_add_test(tc, test_idle);
	tc = suite_case(suite, "listeners", NULL, NULL);
	tcase_add_test(tc, test_listeners);
	tcase_add_test(tc, test_listener_killed);
	tcase_add_test(tc, test_sockets_are_swept);
	tcase_add_test(tc, test_long_names);
	tcase_add_test(tc, test_not_accepted);
	tcase_add_test(tc, test_posix_memory);
	tc = suite_case(suite, "hostile", NULL, NULL);
	tcase_add_test(tc, test_hello);
	tcase_add_test(tc, test_silent_clients);
	tcase_add_test(tc, test_crowd);
	tcase_add_test(tc, test_late);
	tcase_add_test(tc, test_hostile_memory);
	tcase_add_test(tc, test_hostile_listener);
	tcase_add_test(tc, test_foreign_user);
	if (!mkdtemp(runtime)) {
		perror(runtime);
		return EXIT_FAILURE;
	}
	setenv("XDG_RUNTIME_DIR", runtime, 1);
	status = suite_run(suite);
	nftw(runtime, remove_entry, 10, FTW_DEPTH | FTW_PHYS);
	return status;
}
