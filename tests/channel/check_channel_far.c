/*
 * check_channel_far.c: channels over a connection: what is refused, streams, ends, peers that lie.
 *
 *     check_channel_far [URL]     unix and tcp here, unless another one is given: rdma://10.99.0.1:0/test
 */
#include "channel/conn.h"

#include "tests/channel/channel_cases.h"
#include "tests/regions.h"
#include "tests/suite.h"

#include <poll.h>
#include <pthread.h>
#include <rdmad/channel.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE 120000000ull /* us; only ends a test that hangs */

static const char *target; /* of the suite that runs */
const char *channel_cases_url;
static char directory[64];

/*
 * What the library calls, counted and bent
 */
static _Atomic unsigned requests; /* work requests posted */
static _Atomic unsigned arms;     /* of a queue, to be told of what comes */
static uint64_t keepalive;
static bool other_version, storm;
static _Thread_local bool late; /* with the first that this thread posts */

int __real_fabric_post(struct fabric_endpoint *endpoint, const struct fabric_wr *chain);
int __wrap_fabric_post(struct fabric_endpoint *endpoint, const struct fabric_wr *chain);
int __wrap_fabric_post(struct fabric_endpoint *endpoint, const struct fabric_wr *chain)
{
	for (const struct fabric_wr *wr = chain; wr; wr = wr->next)
		requests++;
	if (late) {
		late = false;
		usleep(500000);
	}
	return __real_fabric_post(endpoint, chain);
}

int __real_fabric_arm(struct fabric_queue *queue);
int __wrap_fabric_arm(struct fabric_queue *queue);
int __wrap_fabric_arm(struct fabric_queue *queue)
{
	arms++;
	return __real_fabric_arm(queue);
}

int __real_conn_group_create(struct fabric_domain *domain, const struct conn_group_attr *attr, struct conn_group **out);
int __wrap_conn_group_create(struct fabric_domain *domain, const struct conn_group_attr *attr, struct conn_group **out);
int __wrap_conn_group_create(struct fabric_domain *domain, const struct conn_group_attr *attr, struct conn_group **out)
{
	struct conn_group_attr own = *attr;

	if (keepalive)
		own.keepalive = keepalive;
	return __real_conn_group_create(domain, &own, out);
}

void __real_wire_request_encode(const struct wire_request *r, uint8_t out[static WIRE_REQUEST_SIZE]);
void __wrap_wire_request_encode(const struct wire_request *r, uint8_t out[static WIRE_REQUEST_SIZE]);
void __wrap_wire_request_encode(const struct wire_request *r, uint8_t out[static WIRE_REQUEST_SIZE])
{
	struct wire_request other = *r;

	other.version = (uint16_t)(r->version + other_version);
	__real_wire_request_encode(&other, out);
}

/* In a storm there is always one more. */
int __real_fabric_next_event(struct fabric_queue *queue, struct fabric_event *out);
int __wrap_fabric_next_event(struct fabric_queue *queue, struct fabric_event *out);
int __wrap_fabric_next_event(struct fabric_queue *queue, struct fabric_event *out)
{
	*out = (struct fabric_event){.type = FABRIC_UNREACHABLE};
	return storm ? 1 : __real_fabric_next_event(queue, out);
}

/*
 * Two ends in one process
 */
static struct rdmad_channel_listener *listener;
static unsigned descriptors;

/* Devices have descriptors that stay, from their first use on. */
static void set_up(void)
{
	ck_assert_msg(rdmad_channel_listen(target, 1000, NULL, &listener) == 0, "%s", rdmad_error());
	rdmad_channel_listener_close(listener);
	listener = NULL;
	descriptors = count_descriptors();
}

static void tear_down(void)
{
	rdmad_channel_listener_close(listener);
	ck_assert_int_eq(regions, 0);
	ck_assert_uint_eq(count_mappings(), 0);
	ck_assert_uint_eq(count_descriptors(), descriptors);
}

static void listen_for(size_t size)
{
	ck_assert_msg(rdmad_channel_listen(target, size, NULL, &listener) == 0, "%s", rdmad_error());
}

struct opening {
	pthread_t thread;
	char url[640];
	size_t size;
	bool late;
	struct rdmad_channel *channel;
	int rc;
	char error[600];
};

static const struct rdmad_channel_options patient = {.common.connect_timeout_us = PATIENCE};
static const struct rdmad_channel_options *opening_options = &patient; /* of the channels that follow */

static void *opening_run(void *arg)
{
	struct opening *opening = arg;

	late = opening->late;
	opening->rc = rdmad_channel_open(opening->url, opening->size, opening_options, &opening->channel);
	snprintf(opening->error, sizeof(opening->error), "%s", opening->rc ? rdmad_error() : "");
	return NULL;
}

static void opening_begin(struct opening *opening, const char *url, size_t size, bool is_late)
{
	*opening = (struct opening){.size = size, .late = is_late};
	snprintf(opening->url, sizeof(opening->url), "%s", url);
	ck_assert_int_eq(pthread_create(&opening->thread, NULL, opening_run, opening), 0);
}

static struct rdmad_channel *take(void)
{
	struct rdmad_channel *channel;

	ck_assert_msg(rdmad_channel_accept(listener, PATIENCE, &channel) == 0, "%s", rdmad_error());
	return channel;
}

static void *take_run(void *arg)
{
	(void)arg;
	return take();
}

struct pair {
	struct rdmad_channel *server, *client;
};

static struct pair connect_pair(size_t size)
{
	struct opening opening;
	struct pair pair;

	if (!listener)
		listen_for(size);
	opening_begin(&opening, rdmad_channel_listener_url(listener), size, false);
	pair.server = take();
	pthread_join(opening.thread, NULL);
	ck_assert_msg(opening.rc == 0, "%s", opening.error);
	pair.client = opening.channel;
	return pair;
}

static void *close_run(void *channel)
{
	return (void *)(intptr_t)rdmad_channel_close(channel);
}

/* Both at once: each waits for the other's last word. */
static void close_pair(const struct pair *pair)
{
	pthread_t thread;
	void *rc;

	pthread_create(&thread, NULL, close_run, pair->client);
	ck_assert_int_eq(rdmad_channel_close(pair->server), 0);
	pthread_join(thread, &rc);
	ck_assert_ptr_null(rc);
}

/* An end that polls is not told of what comes: that costs the peer's system calls time. One that sleeps is. */
START_TEST(test_polls_without_being_told)
{
	static const struct rdmad_channel_options polls = {
		.common = {.connect_timeout_us = PATIENCE, .poll_us = UINT64_MAX}};
	static const struct rdmad_channel_options sleeps = {
		.common = {.connect_timeout_us = PATIENCE, .no_poll = true}};
	struct pair pair;
	unsigned before;

	opening_options = _i ? &sleeps : &polls;
	pair = connect_pair(4096);
	before = arms;
	/* on a busy machine the time may be over before a sleeper has begun */
	for (unsigned tries = 0; tries < (_i ? 1000u : 1u) && arms == before; tries++)
		ck_assert_int_eq(rdmad_channel_get(pair.client, &(uint8_t){0}, 1, 5000), -ETIMEDOUT);
	ck_assert_int_eq(arms != before, _i);
	close_pair(&pair);
	opening_options = &patient;
}
END_TEST

/* More at once than a listener has places for: each waits for one, and none is sent away. Nor is one that, on a busy
 * machine, asks so late that it had to give way: it comes again. */
START_TEST(test_crowd)
{
	static struct opening crowd[200];
	static struct rdmad_channel *server[ARRAY_SIZE(crowd)];
	static pthread_t closing[2][ARRAY_SIZE(crowd)];
	unsigned count = strncmp(target, "rdma:", 5) == 0 ? 40 : MAX(40u, (unsigned)suite_part(ARRAY_SIZE(crowd)));

	listen_for(1000);
	for (unsigned i = 0; i < count; i++)
		opening_begin(&crowd[i], rdmad_channel_listener_url(listener), 1000, _i && i % 8 == 0);
	for (unsigned i = 0; i < count; i++)
		ck_assert_msg(rdmad_channel_accept(listener, PATIENCE, &server[i]) == 0, "%u of %u came: %s", i, count,
			      rdmad_error());
	for (unsigned i = 0; i < count; i++) {
		pthread_join(crowd[i].thread, NULL);
		ck_assert_msg(crowd[i].rc == 0, "%u: %d, %s", i, crowd[i].rc, crowd[i].error);
	}
	for (unsigned i = 0; i < count; i++) {
		ck_assert_int_eq(pthread_create(&closing[0][i], NULL, close_run, server[i]), 0);
		ck_assert_int_eq(pthread_create(&closing[1][i], NULL, close_run, crowd[i].channel), 0);
	}
	for (unsigned i = 0; i < count; i++)
		for (unsigned k = 0; k < 2; k++)
			pthread_join(closing[k][i], NULL);
}
END_TEST

START_TEST(test_both_ways)
{
	struct pair pair = connect_pair(1000);
	struct rdmad_channel_info info;
	char text[16];

	ck_assert_uint_eq(rdmad_channel_room(pair.client), 1000);
	ck_assert_int_eq(rdmad_channel_put(pair.client, "question", 9, PATIENCE), 0);
	ck_assert_int_eq(rdmad_channel_flush(pair.client, PATIENCE), 0);
	ck_assert_int_eq(rdmad_channel_get(pair.server, text, 9, PATIENCE), 0);
	ck_assert_str_eq(text, "question");
	ck_assert_int_eq(rdmad_channel_put(pair.server, "answer", 7, PATIENCE), 0);
	ck_assert_int_eq(rdmad_channel_flush(pair.server, PATIENCE), 0);
	ck_assert_int_eq(rdmad_channel_get(pair.client, text, 7, PATIENCE), 0);
	ck_assert_str_eq(text, "answer");
	ck_assert_uint_eq(rdmad_channel_room(pair.client), 1000); /* the answer told */
	rdmad_channel_info(pair.client, &info);
	ck_assert_uint_eq(info.capacity, 1000);
	ck_assert_uint_eq(info.bytes_put, 9);
	ck_assert_uint_eq(info.bytes_got, 7);
	ck_assert_int_eq(
		strncmp(strncmp(target, "unix", 4) == 0 ? "shm" : target, info.transport, strlen(info.transport)), 0);
	ck_assert(info.peer[0] && !info.relayed);
	close_pair(&pair);
}
END_TEST

static void expect_refusal(const char *url, size_t size, int rc, const char *words)
{
	struct rdmad_channel *channel;
	struct opening opening;

	opening_begin(&opening, url, size, false);
	while (pthread_tryjoin_np(opening.thread, NULL) != 0)
		ck_assert_int_eq(rdmad_channel_accept(listener, 10000, &channel), -ETIMEDOUT);
	ck_assert_int_eq(opening.rc, rc);
	ck_assert_msg(strstr(opening.error, words), "%s", opening.error);
}

/* In the guest, whose device has one port. */
START_TEST(test_ports)
{
	struct rdmad_channel_options first = {.device = "rxe0:1"}, second = {.device = "rxe0:2"};
	struct rdmad_channel *channel;
	struct pair pair;

	if (strncmp(target, "rdma:", 5) != 0)
		return;
	ck_assert_int_eq(rdmad_channel_listen(target, 1000, &second, &listener), -ENODEV);
	ck_assert_msg(strstr(rdmad_error(), "no active port 2; active: 1"), "%s", rdmad_error());
	ck_assert_msg(rdmad_channel_listen(target, 1000, &first, &listener) == 0, "%s", rdmad_error());
	ck_assert_int_eq(rdmad_channel_open(rdmad_channel_listener_url(listener), 1000, &second, &channel), -ENODEV);
	ck_assert_msg(strstr(rdmad_error(), "no active port 2; active: 1"), "%s", rdmad_error());
	opening_options = &first;
	pair = connect_pair(1000);
	close_pair(&pair);
}
END_TEST

/* The refused are no hindrance for others. */
START_TEST(test_refused)
{
	char url[700];
	struct pair pair;

	listen_for(1000);
	snprintf(url, sizeof(url), "%sother", rdmad_channel_listener_url(listener));
	if (!strncmp(url, "unix:", 5))
		expect_refusal(url, 1000, -ENOENT, "No such file");
	else
		expect_refusal(url, 1000, -ENOENT, "nobody listens on a channel \"testother\"");
	expect_refusal(rdmad_channel_listener_url(listener), 1001, -EMSGSIZE, "1000 bytes here, not 1001");
	other_version = true;
	expect_refusal(rdmad_channel_listener_url(listener), 1000, -EPROTONOSUPPORT, "version");
	other_version = false;
	pair = connect_pair(1000);
	close_pair(&pair);
}
END_TEST

START_TEST(test_nobody)
{
	struct rdmad_channel_options options = {.common.connect_timeout_us = 300000};
	struct rdmad_channel *channel;
	char url[640];

	listen_for(1000);
	snprintf(url, sizeof(url), "%s", rdmad_channel_listener_url(listener));
	ck_assert_int_eq(rdmad_channel_accept(listener, 0, &channel), -ETIMEDOUT);
	ck_assert_int_eq(rdmad_channel_open(url, 1000, &options, &channel), -ETIMEDOUT); /* nobody accepts */
	ck_assert_msg(strstr(rdmad_error(), "rdmad_channel_accept()"), "%s", rdmad_error());
	rdmad_channel_listener_close(listener);
	listener = NULL;
	ck_assert_int_ne(rdmad_channel_open(url, 1000, &options, &channel), 0);
	ck_assert_msg(strstr(rdmad_error(), "is the program that listens"), "%s", rdmad_error());
}
END_TEST

/* Where the address leaves the choice of transports, and none does, it is told why. */
START_TEST(test_no_address_of_ours)
{
	ck_assert_int_lt(rdmad_channel_listen("192.0.2.1:0/test", 1000, NULL, &listener), 0);
	ck_assert_msg(strstr(rdmad_error(), "no transport to listen there; "), "%s", rdmad_error());
	ck_assert_msg(strstr(rdmad_error(), strerror(EADDRNOTAVAIL)), "%s", rdmad_error());
}
END_TEST

/* Whatever it was that the last one could not get. */
START_TEST(test_no_descriptors)
{
	struct rlimit limit, few;
	int rc = -1;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	few = limit;
	for (few.rlim_cur = descriptors; rc != 0; few.rlim_cur++) {
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
		rc = rdmad_channel_listen(target, 1000, NULL, &listener);
		ck_assert_msg(rc == 0 || rc == -EMFILE, "%d: %s", rc, rdmad_error());
	}
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}
END_TEST

START_TEST(test_several_clients)
{
	enum { CLIENTS = 4 };
	struct opening opening[CLIENTS];
	struct rdmad_channel *server[CLIENTS];
	struct rdmad_channel_listener *second;

	listen_for(5000);
	ck_assert_int_eq(rdmad_channel_listen(rdmad_channel_listener_url(listener), 5000, NULL, &second), -EADDRINUSE);
	for (int i = 0; i < CLIENTS; i++)
		opening_begin(&opening[i], rdmad_channel_listener_url(listener), 5000, false);
	for (int i = 0; i < CLIENTS; i++)
		server[i] = take();
	rdmad_channel_listener_close(listener); /* accepted channels stay */
	listener = NULL;
	for (int i = 0; i < CLIENTS; i++) {
		pthread_join(opening[i].thread, NULL);
		ck_assert_msg(opening[i].rc == 0, "%s", opening[i].error);
		ck_assert_int_eq(rdmad_channel_put(opening[i].channel, &i, sizeof(i), PATIENCE), 0);
		ck_assert_int_eq(rdmad_channel_flush(opening[i].channel, PATIENCE), 0);
	}
	for (int i = 0, seen = 0, mine; i < CLIENTS; i++) {
		ck_assert_int_eq(rdmad_channel_get(server[i], &mine, sizeof(mine), PATIENCE), 0);
		ck_assert_int_eq(seen & 1 << mine, 0);
		seen |= 1 << mine;
		ck_assert_int_eq(rdmad_channel_put(server[i], &mine, sizeof(mine), PATIENCE), 0);
		ck_assert_int_eq(rdmad_channel_flush(server[i], PATIENCE), 0);
	}
	for (int i = 0, back; i < CLIENTS; i++) {
		ck_assert_int_eq(rdmad_channel_get(opening[i].channel, &back, sizeof(back), PATIENCE), 0);
		ck_assert_int_eq(back, i);
	}
	for (int i = 0; i < CLIENTS; i++) {
		pthread_t thread;

		pthread_create(&thread, NULL, close_run, opening[i].channel);
		for (int k = i; k == i && server[0]; k++) { /* whose peer it is nobody knows: all are looked at */
			for (int j = 0; j < CLIENTS; j++)
				if (server[j])
					rdmad_channel_available(server[j]);
			if (pthread_tryjoin_np(thread, NULL) != 0)
				k--;
		}
	}
	for (int i = 0; i < CLIENTS; i++)
		ck_assert_int_eq(rdmad_channel_close(server[i]), 0);
}
END_TEST

/*
 * Streams
 */
struct stream {
	pthread_t thread;
	struct rdmad_channel *channel;
	uint64_t bytes;
	size_t most; /* of one piece; 0: ten bytes each */
	unsigned seed;
};

static uint8_t byte_at(uint64_t i)
{
	return (uint8_t)(i * 7 + (i >> 8) * 13 + (i >> 16));
}

static size_t piece(struct stream *s, uint64_t done)
{
	size_t n = s->most ? (size_t)rand_r(&s->seed) % s->most + 1 : 10;
	return (size_t)MIN((uint64_t)n, s->bytes - done);
}

/* Each assertion of check's writes to a file: for what is looked at a million times. */
#define EXPECT(condition)                                                                                              \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			ck_abort_msg("not " #condition ": %s", rdmad_error());                                         \
	} while (0)

static void *stream_put(void *arg)
{
	struct stream *s = arg;
	uint8_t *bytes = malloc(MAX(s->most, (size_t)10));

	for (uint64_t done = 0, n; done < s->bytes; done += n) {
		n = piece(s, done);
		for (uint64_t i = 0; i < n; i++)
			bytes[i] = byte_at(done + i);
		EXPECT(rdmad_channel_put(s->channel, bytes, n, PATIENCE) == 0);
		if (rand_r(&s->seed) % 16 == 0)
			EXPECT(rdmad_channel_flush(s->channel, PATIENCE) == 0);
	}
	EXPECT(rdmad_channel_flush(s->channel, PATIENCE) == 0);
	free(bytes);
	return NULL;
}

static void *stream_get(void *arg)
{
	struct stream *s = arg;
	uint8_t *bytes = malloc(MAX(s->most, (size_t)10));

	for (uint64_t done = 0, n; done < s->bytes; done += n) {
		n = piece(s, done);
		EXPECT(rdmad_channel_get(s->channel, bytes, n, PATIENCE) == 0);
		for (uint64_t i = 0; i < n; i++)
			EXPECT(bytes[i] == byte_at(done + i));
	}
	free(bytes);
	return NULL;
}

static void run_streams(const struct pair *pair, uint64_t bytes, size_t most, bool both)
{
	struct stream s[4] = {{.channel = pair->client},
			      {.channel = pair->server},
			      {.channel = pair->server},
			      {.channel = pair->client}};

	for (unsigned i = 0; i < (both ? 4 : 2); i++) {
		s[i].bytes = bytes;
		s[i].most = most;
		s[i].seed = i + 1;
		ck_assert_int_eq(pthread_create(&s[i].thread, NULL, i % 2 ? stream_get : stream_put, &s[i]), 0);
	}
	for (unsigned i = 0; i < (both ? 4 : 2); i++)
		pthread_join(s[i].thread, NULL);
}

START_TEST(test_stress)
{
	struct pair pair = connect_pair(1024);

	run_streams(&pair, 10000, 0, false);
	close_pair(&pair);
}
END_TEST

/* A thousand times more, both ways, four threads; small rings, odd ones, and large ones, which are written to. */
static const struct {
	size_t capacity, most;
	uint64_t bytes;
} stresses[] = {{1024, 1024, 10000000}, {1024, 3000, 2000000}, {77777, 77777, 40000000}, {1 << 20, 700000, 80000000}};

START_TEST(test_large_stress)
{
	struct pair pair = connect_pair(stresses[_i].capacity);

	run_streams(&pair, suite_part(stresses[_i].bytes), stresses[_i].most, true);
	close_pair(&pair);
}
END_TEST

/* All sizes, after an odd number of bytes: an end that waits for a whole ring has it when the other one has got all. */
static void *whole_get(void *arg)
{
	struct stream *s = arg;
	const void *bytes;
	size_t n;

	for (uint64_t done = 0; done < s->bytes; done += n) {
		EXPECT(rdmad_channel_view(s->channel, 1, PATIENCE, &bytes, &n) == 0);
		EXPECT(rdmad_channel_consume(s->channel, n) == 0);
	}
	return NULL;
}

START_TEST(test_whole_ring)
{
	static const size_t sizes[] = {64, 65, 100, 4095, 4096, 4097, 20000};

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct pair pair = connect_pair(sizes[i]);
		struct stream s = {.channel = pair.server};
		void *bytes;

		for (size_t odd = 1; odd < 40; odd += 6)
			s.bytes += odd + sizes[i];
		pthread_create(&s.thread, NULL, whole_get, &s);
		for (size_t odd = 1; odd < 40; odd += 6) {
			ck_assert_int_eq(rdmad_channel_reserve(pair.client, odd, PATIENCE, &bytes), 0);
			ck_assert_int_eq(rdmad_channel_commit(pair.client, odd), 0);
			ck_assert_int_eq(rdmad_channel_reserve(pair.client, sizes[i], PATIENCE, &bytes), 0);
			memset(bytes, (int)odd, sizes[i]);
			ck_assert_int_eq(rdmad_channel_commit(pair.client, sizes[i]), 0);
		}
		ck_assert_int_eq(rdmad_channel_flush(pair.client, PATIENCE), 0);
		pthread_join(s.thread, NULL);
		close_pair(&pair);
		rdmad_channel_listener_close(listener);
		listener = NULL;
	}
}
END_TEST

/* How many work requests a put and a flush take, whichever of them sends. */
static unsigned flush_of(struct rdmad_channel *channel, size_t bytes)
{
	static uint8_t zeros[1 << 20];
	unsigned before = requests;

	ck_assert_int_eq(rdmad_channel_put(channel, zeros, bytes, PATIENCE), 0);
	ck_assert_int_eq(rdmad_channel_flush(channel, PATIENCE), 0);
	return requests - before;
}

START_TEST(test_requests_of_a_flush)
{
	struct pair pair = connect_pair(1 << 20);
	static uint8_t bytes[64 + 4096 + 4097 + 200000];

	ck_assert_uint_eq(flush_of(pair.client, 0), 0);
	ck_assert_uint_eq(flush_of(pair.client, 64), 1);
	ck_assert_uint_eq(flush_of(pair.client, 0), 0);
	ck_assert_uint_eq(flush_of(pair.client, 4096), 1);
	ck_assert_uint_eq(flush_of(pair.client, 4097), 2);
	ck_assert_uint_eq(flush_of(pair.client, 200000), 2);
	ck_assert_int_eq(rdmad_channel_get(pair.server, bytes, sizeof(bytes), PATIENCE), 0);
	close_pair(&pair);
}
END_TEST

/* Three thousand tiny flushes beyond all credits, and the large ones whose bytes may not be overwritten before they are
 * there: nothing is lost while nobody gets. */
START_TEST(test_more_than_fits)
{
	struct pair pair = connect_pair(100000);
	struct stream s = {.channel = pair.server, .bytes = 1000000, .most = 1000};
	uint8_t bytes[500];
	int rc = 0;

	for (uint64_t i = 0; i < 1000000; i += sizeof(bytes)) {
		for (size_t k = 0; k < sizeof(bytes); k++)
			bytes[k] = byte_at(i + k);
		rc = rdmad_channel_put(pair.client, bytes, sizeof(bytes), s.thread ? PATIENCE : 1000);
		if (rc == -ETIMEDOUT && !s.thread) { /* the ring is full, and all credits may be taken */
			pthread_create(&s.thread, NULL, stream_get, &s);
			rc = rdmad_channel_put(pair.client, bytes, sizeof(bytes), PATIENCE);
		}
		ck_assert_int_eq(rc, 0);
		rc = rdmad_channel_flush(pair.client, s.thread ? PATIENCE : 1000);
		ck_assert(rc == 0 || (rc == -ETIMEDOUT && !s.thread));
	}
	ck_assert(s.thread);
	ck_assert_int_eq(rdmad_channel_flush(pair.client, PATIENCE), 0);
	pthread_join(s.thread, NULL);
	close_pair(&pair);
}
END_TEST

/* Puts of a KiB, `first` of them without a flush and one that flushes. */
static void put_until_flush(struct pair *pair, unsigned first)
{
	const uint8_t bytes[1024] = {0};
	struct rdmad_channel_info before, info;

	rdmad_channel_info(pair->client, &before);
	for (unsigned i = 0; i <= first; i++) {
		rdmad_channel_info(pair->client, &info);
		ck_assert_uint_eq(info.flushes, before.flushes);
		ck_assert_int_eq(rdmad_channel_put(pair->client, bytes, sizeof(bytes), PATIENCE), 0);
	}
	rdmad_channel_info(pair->client, &info);
	ck_assert_uint_eq(info.flushes, before.flushes + 1);
}

/* Without a flush of its own a stream goes ever more at a time; after a flush, or a wait for an answer, it begins anew. */
START_TEST(test_stream_flushes)
{
	static uint8_t bytes[176 * 1024];
	struct pair pair = connect_pair(1048576);

	put_until_flush(&pair, 15);
	put_until_flush(&pair, 31);
	put_until_flush(&pair, 63);
	ck_assert_int_eq(rdmad_channel_flush(pair.client, PATIENCE), 0);
	put_until_flush(&pair, 15);
	put_until_flush(&pair, 31);
	ck_assert_int_eq(rdmad_channel_get(pair.client, &(uint8_t){0}, 1, 1000), -ETIMEDOUT);
	put_until_flush(&pair, 15);
	ck_assert_int_eq(rdmad_channel_get(pair.server, bytes, sizeof(bytes), PATIENCE), 0);
	close_pair(&pair);
}
END_TEST

/* An end without an address for its ring: bytes come in records, in whatever number of messages. */
START_TEST(test_without_an_address)
{
	struct channel_far_ask ask = {.size = 50000};
	struct rdmad_channel_options options = {.posix_memory = false};
	struct channel_url url;
	struct pair pair;
	char moved[100];
	struct rdmad_channel *client;
	pthread_t thread;

	listen_for(50000);
	ck_assert_int_eq(channel_url_parse(rdmad_channel_listener_url(listener), &url), 0);
	ask.address = url.address;
	ask.name = url.name;
	ask.moved = moved;
	ask.moved_size = sizeof(moved);
	pthread_create(&thread, NULL, take_run, NULL);
	ck_assert_int_eq(channel_far_ask(&ask, &options, &client), 0);
	pthread_join(thread, (void **)&pair.server);
	pair.client = client;
	run_streams(&pair, 2000000, 60000, true);
	close_pair(&pair);
}
END_TEST

/*
 * Ends
 */
START_TEST(test_closed_in_peace)
{
	struct pair pair = connect_pair(2000);
	pthread_t thread;
	char bytes[600];
	void *rc;

	memset(bytes, 'x', sizeof(bytes));
	ck_assert_int_eq(rdmad_channel_put(pair.client, bytes, sizeof(bytes), PATIENCE), 0);
	pthread_create(&thread, NULL, close_run, pair.client); /* flushes */
	ck_assert_int_eq(rdmad_channel_get(pair.server, bytes, 100, PATIENCE), 0);
	ck_assert_int_eq(rdmad_channel_get(pair.server, bytes, 501, PATIENCE), -EPIPE);
	ck_assert_int_eq(rdmad_channel_get(pair.server, bytes, 500, PATIENCE), 0);
	ck_assert_int_eq(rdmad_channel_get(pair.server, bytes, 1, PATIENCE), -EPIPE);
	ck_assert_int_eq(rdmad_channel_put(pair.server, bytes, 1, PATIENCE), -EPIPE);
	ck_assert(strstr(rdmad_error(), "closed the channel"));
	pthread_join(thread, &rc);
	ck_assert_ptr_null(rc);
	ck_assert_int_eq(rdmad_channel_close(pair.server), 0);
}
END_TEST

/* Puts until the other end closes, and closes, too, with bytes that have not left. */
static void *put_and_close(void *arg)
{
	struct rdmad_channel *channel = arg;
	static uint8_t bytes[1 << 20];
	int rc;

	do
		rc = rdmad_channel_put(channel, bytes, sizeof(bytes), PATIENCE);
	while (rc == 0);
	ck_assert_int_eq(rc, -EPIPE);
	ck_assert_int_eq(rdmad_channel_get(channel, bytes, 4, PATIENCE), 0);
	ck_assert_int_eq(rdmad_channel_close(channel), -EPIPE);
	return NULL;
}

/* An end that closes in the midst of the other's stream, and was heard, is told so. */
START_TEST(test_closed_in_a_stream)
{
	struct pair pair = connect_pair(4 << 20);
	static uint8_t bytes[2 << 20];
	pthread_t thread;

	pthread_create(&thread, NULL, put_and_close, pair.server);
	ck_assert_int_eq(rdmad_channel_get(pair.client, bytes, sizeof(bytes), PATIENCE), 0);
	ck_assert_int_eq(rdmad_channel_put(pair.client, "last", 4, PATIENCE), 0);
	ck_assert_int_eq(rdmad_channel_close(pair.client), 0);
	pthread_join(thread, NULL);
}
END_TEST

/* What was flushed is got also by an end that was busy with something else when the other end closed, and for a while
 * longer. */
START_TEST(test_got_late)
{
	enum { BYTES = 250000 };
	struct pair pair = connect_pair(262144);
	char *bytes = malloc(BYTES), *got = malloc(BYTES);

	for (int i = 0; i < BYTES; i++)
		bytes[i] = (char)(i % 251);
	ck_assert_int_eq(rdmad_channel_put(pair.client, bytes, BYTES, PATIENCE), 0);
	ck_assert_int_eq(rdmad_channel_close(pair.client), 0);
	sleep(3);
	for (int at = 0; at < BYTES; at += 50000)
		ck_assert_int_eq(rdmad_channel_get(pair.server, got + at, 50000, PATIENCE), 0);
	ck_assert_mem_eq(got, bytes, BYTES);
	ck_assert_int_eq(rdmad_channel_get(pair.server, got, 1, PATIENCE), -EPIPE);
	ck_assert_int_eq(rdmad_channel_close(pair.server), 0);
	free(got);
	free(bytes);
}
END_TEST

/* A thread that gets at an end that has lost its place is woken. */
static void *get_for_ever(void *channel)
{
	return (void *)(intptr_t)rdmad_channel_get(channel, &(uint8_t){0}, 1, RDMAD_CHANNEL_FOREVER);
}

START_TEST(test_lost_place_wakes)
{
	struct pair pair = connect_pair(1000);
	struct rdmad_channel_info info = {.sleeps = 0};
	static uint8_t bytes[3000];
	pthread_t thread;
	void *rc;

	pthread_create(&thread, NULL, get_for_ever, pair.client);
	while (info.sleeps == 0)
		rdmad_channel_info(pair.client, &info);
	ck_assert_int_eq(rdmad_channel_put(pair.client, bytes, sizeof(bytes), 1000), -ETIMEDOUT);
	pthread_join(thread, &rc);
	ck_assert_int_eq((int)(intptr_t)rc, -EIO);
	ck_assert_int_eq(rdmad_channel_arm(pair.client), -EIO);
	rdmad_channel_close(pair.client);
	rdmad_channel_close(pair.server);
}
END_TEST

/*
 * Peers in processes of their own. One that has used a device cannot give it to a child, so that a process that never
 * did makes them. A peer puts again and again until it is ended, and gets never.
 */
struct peer_order {
	char url[640];
	size_t size;
};

static int peers[2];
static pid_t peers_maker;

static void peer_run(const struct peer_order *order)
{
	struct rdmad_channel *channel;
	uint8_t bytes[3000] = {0};

	if (rdmad_channel_open(order->url, order->size, &patient, &channel) != 0)
		_exit(1);
	while (rdmad_channel_put(channel, bytes, MIN(order->size, sizeof(bytes)), PATIENCE) == 0)
		;
	_exit(1);
}

static void peers_run(int orders, int answers)
{
	struct peer_order order;
	pid_t pid;

	signal(SIGCHLD, SIG_IGN);
	while (read(orders, &order, sizeof(order)) == sizeof(order)) {
		pid = fork();
		if (pid == 0)
			peer_run(&order);
		if (write(answers, &pid, sizeof(pid)) != sizeof(pid))
			break;
	}
	_exit(0);
}

static void peers_up(void)
{
	int orders[2], answers[2];

	ck_assert_int_eq(pipe(orders), 0);
	ck_assert_int_eq(pipe(answers), 0);
	peers_maker = fork();
	if (peers_maker == 0) {
		close(orders[1]);
		peers_run(orders[0], answers[1]);
	}
	close(orders[0]);
	close(answers[1]);
	peers[0] = answers[0];
	peers[1] = orders[1];
	set_up();
}

static void peers_down(void)
{
	tear_down();
	close(peers[0]);
	close(peers[1]);
	waitpid(peers_maker, NULL, 0);
}

static pid_t peer_process(size_t size)
{
	struct peer_order order = {.size = size};
	pid_t pid;

	listen_for(size);
	snprintf(order.url, sizeof(order.url), "%s", rdmad_channel_listener_url(listener));
	ck_assert_int_eq(write(peers[1], &order, sizeof(order)), sizeof(order));
	ck_assert_int_eq(read(peers[0], &pid, sizeof(pid)), sizeof(pid));
	return pid;
}

static void peer_stop(pid_t pid)
{
	char path[64], state = 0;

	kill(pid, SIGSTOP);
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	while (state != 'T') {
		FILE *file = fopen(path, "r");

		ck_assert_ptr_nonnull(file);
		ck_assert_int_eq(fscanf(file, "%*d %*s %c", &state), 1);
		fclose(file);
		sched_yield();
	}
}

static int get_until_end(struct rdmad_channel *channel)
{
	uint8_t bytes[100];
	int rc;

	do
		rc = rdmad_channel_get(channel, bytes, sizeof(bytes), PATIENCE);
	while (rc == 0);
	return rc;
}

START_TEST(test_killed)
{
	static const size_t sizes[] = {100, 5000, 300000};

	for (int i = 0; i < 12; i++) {
		pid_t pid = peer_process(sizes[i % 3]);
		struct rdmad_channel *channel = take();
		uint8_t bytes[100];

		for (int n = 0; n < i * i * 7; n++)
			ck_assert_int_eq(rdmad_channel_get(channel, bytes, sizeof(bytes), PATIENCE), 0);
		kill(pid, SIGKILL);
		ck_assert_int_eq(get_until_end(channel), -ECONNRESET);
		ck_assert_int_eq(rdmad_channel_put(channel, bytes, 1, PATIENCE), -ECONNRESET);
		rdmad_channel_close(channel);
		rdmad_channel_listener_close(listener);
		listener = NULL;
	}
}
END_TEST

START_TEST(test_stopped)
{
	pid_t pid = peer_process(5000);
	struct rdmad_channel *channel = take();

	peer_stop(pid);
	while (rdmad_channel_try_get(channel, (uint8_t[100]){0}, 100) > 0)
		;
	ck_assert_int_eq(rdmad_channel_get(channel, (uint8_t[100]){0}, 100, 50000), -ETIMEDOUT);
	kill(pid, SIGCONT);
	ck_assert_int_eq(rdmad_channel_get(channel, (uint8_t[100]){0}, 100, PATIENCE), 0);
	kill(pid, SIGKILL);
	ck_assert_int_eq(get_until_end(channel), -ECONNRESET);
	rdmad_channel_close(channel);
}
END_TEST

/* One that makes no call for many heartbeats lives, as long as its process and its host do. */
START_TEST(test_frozen)
{
	struct rdmad_channel *channel;
	uint8_t bytes[100];
	pid_t pid;

	keepalive = 100 * TIME_MS;
	pid = peer_process(5000);
	channel = take();
	peer_stop(pid);
	while (rdmad_channel_try_get(channel, bytes, sizeof(bytes)) > 0)
		;
	ck_assert_int_eq(rdmad_channel_get(channel, bytes, sizeof(bytes), 2000000), -ETIMEDOUT);
	kill(pid, SIGCONT);
	ck_assert_int_eq(rdmad_channel_get(channel, bytes, sizeof(bytes), PATIENCE), 0);
	kill(pid, SIGKILL);
	ck_assert_int_eq(get_until_end(channel), -ECONNRESET);
	rdmad_channel_close(channel);
}
END_TEST

/* Of a process that may be another one's child. */
static bool runs(pid_t pid)
{
	char path[40], text[200] = "";
	const char *state;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "r");
	if (!file)
		return false;
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	state = strrchr(text, ')');
	return state && state[1] && state[2] != 'Z';
}

/* The first flush behind a peer's death tells, though it waits for nothing. */
START_TEST(test_flush_to_a_dead_peer)
{
	pid_t pid = peer_process(300000);
	struct rdmad_channel *channel = take();
	uint8_t byte;

	ck_assert_int_eq(rdmad_channel_get(channel, &byte, 1, PATIENCE), 0);
	kill(pid, SIGKILL);
	while (runs(pid)) /* its descriptors are closed then */
		usleep(1000);
	usleep(strstr(target, "rdma:") ? 1000000 : 50000);
	ck_assert_int_eq(rdmad_channel_put(channel, &byte, 1, PATIENCE), 0);
	ck_assert_int_eq(rdmad_channel_flush(channel, PATIENCE), -ECONNRESET);
	ck_assert_int_eq(rdmad_channel_close(channel), -ECONNRESET);
}
END_TEST

/*
 * A peer that lies: a connection by hand
 */
struct liar {
	struct engine *engine;
	struct conn *conn;
	bool answered, closed;
	unsigned status;
	struct wire_channel_open open;
};

static void liar_established(struct conn *conn)
{
	(void)conn;
}

static int liar_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct liar *liar = conn_context(conn);

	if (record->op != WIRE_OP_CHANNEL_OPEN)
		return 0;
	liar->answered = true;
	liar->status = record->status;
	if (record->status == WIRE_OK)
		memcpy(&liar->open, body, sizeof(liar->open));
	return 0;
}

static void liar_closed(struct conn *conn, int error, const char *reason)
{
	struct liar *liar = conn_context(conn);

	(void)error, (void)reason;
	liar->conn = NULL;
	liar->closed = liar->answered = true;
}

static const struct conn_ops liar_ops = {.established = liar_established, .record = liar_record, .closed = liar_closed};

/* `message_size` 0: as the library does. */
static void liar_connect_with(struct liar *liar, uint32_t message_size)
{
	static const struct rdmad_channel_options none;
	struct wire_request request = {.service = WIRE_CHANNEL};
	struct engine_options options;
	struct channel_url url;

	*liar = (struct liar){0};
	channel_far_options(&none, &options);
	request.credits = (uint16_t)options.credits;
	if (message_size)
		options.message_size = message_size;
	request.message_size = options.message_size;
	ck_assert_int_eq(channel_url_parse(rdmad_channel_listener_url(listener), &url), 0);
	ck_assert_int_eq(
		client_connect(url.address, &options, NULL, &request, &liar_ops, liar, &liar->engine, &liar->conn), 0);
}

static void liar_connect(struct liar *liar)
{
	liar_connect_with(liar, 0);
}

static void liar_say(struct liar *liar, enum wire_op op, unsigned flags, uint32_t arg, const void *body,
		     uint32_t length)
{
	struct wire_record record = {.op = (uint8_t)op, .flags = (uint8_t)flags, .arg = arg};

	if (liar->conn && conn_say(liar->conn, &record, body, length, NULL, 0))
		conn_flush(liar->conn);
}

static void liar_leave(struct liar *liar)
{
	client_disconnect(liar->engine, liar->conn, &liar->closed);
	engine_leave(liar->engine);
	engine_release(liar->engine);
}

struct open_body {
	struct wire_channel_open open;
	char name[256];
};

/* The right name, and what else the case says. */
static void liar_ask(struct liar *liar, struct open_body *body, uint32_t more)
{
	struct channel_url url;

	ck_assert_int_eq(channel_url_parse(rdmad_channel_listener_url(listener), &url), 0);
	memcpy(body->name, url.name, strlen(url.name));
	liar_say(liar, WIRE_OP_CHANNEL_OPEN, 0, 0, body, (uint32_t)(sizeof(body->open) + strlen(url.name)) + more);
}

/* The server: accepts one after the other until it is told to stop; of each the end. */
struct honest {
	pthread_t thread;
	_Atomic bool stop;
	_Atomic unsigned accepted;
	_Atomic int last;   /* how the last one ended */
	_Atomic size_t put; /* to each, first */
};

static void *honest_run(void *arg)
{
	struct honest *honest = arg;
	struct rdmad_channel *channel;

	while (!honest->stop) {
		if (rdmad_channel_accept(listener, 20000, &channel) != 0)
			continue;
		for (size_t i = 0; i < honest->put; i += 10000)
			rdmad_channel_put(channel, (uint8_t[10000]){0}, 10000, PATIENCE);
		honest->last = get_until_end(channel);
		honest->accepted++;
		rdmad_channel_close(channel);
	}
	return NULL;
}

static void honest_begin(struct honest *honest, size_t size)
{
	listen_for(size);
	pthread_create(&honest->thread, NULL, honest_run, honest);
}

static void honest_end(struct honest *honest)
{
	honest->stop = true;
	pthread_join(honest->thread, NULL);
}

#define LIE(...)                                                                                                       \
#__VA_ARGS__,                                                                                                  \
	{                                                                                                              \
		__VA_ARGS__                                                                                            \
	}
static const struct {
	const char *text;
	struct wire_channel_open open;
	uint32_t more; /* bytes of the name beyond the right ones */
	unsigned status;
} bad_opens[] = {
	{LIE(.capacity = 1001), 0, WIRE_TOO_LARGE},
	{LIE(.capacity = 0), 0, WIRE_TOO_LARGE},
	{LIE(.capacity = 1000), 1, WIRE_STATUSES}, /* a 0 in the name: the connection ends */
	{LIE(.capacity = 1000), 250, WIRE_STATUSES},
	{LIE(.capacity = 1000, .addr = 4096, .ring = 999), 0, WIRE_BAD_REQUEST},
	{LIE(.capacity = 1000, .addr = UINT64_MAX - 4096, .ring = 4096), 0, WIRE_BAD_REQUEST},
	{LIE(.capacity = 1000, .addr = 4096, .ring = UINT64_MAX), 0, WIRE_BAD_REQUEST},
	{LIE(.capacity = 1000, .flags = WIRE_CHANNEL_RELAY), 0, WIRE_BAD_REQUEST},
	{LIE(.capacity = 1000, .token = 1), 0, WIRE_BAD_REQUEST},
};

START_TEST(test_bad_open)
{
	struct honest honest = {0};
	struct open_body body = {.open = bad_opens[_i].open};
	struct rdmad_channel *channel;
	struct liar liar;

	honest_begin(&honest, 1000);
	liar_connect(&liar);
	liar_ask(&liar, &body, bad_opens[_i].more);
	ck_assert_int_eq(engine_wait(liar.engine, &liar.answered, PATIENCE * TIME_US), 0);
	if (bad_opens[_i].status == WIRE_STATUSES)
		ck_assert(liar.closed);
	else
		ck_assert_msg(liar.status == bad_opens[_i].status, "%s: %u", bad_opens[_i].text, liar.status);
	liar_leave(&liar);
	ck_assert_int_eq(rdmad_channel_open(rdmad_channel_listener_url(listener), 1000, &patient, &channel), 0);
	ck_assert_int_eq(rdmad_channel_close(channel), 0);
	honest_end(&honest);
	ck_assert_uint_eq(honest.accepted, 1);
}
END_TEST

/* Many that say nothing leave room for one that does. */
START_TEST(test_silent_guests)
{
	enum { LIARS = 20 };
	struct honest honest = {0};
	struct rdmad_channel *channel;
	struct liar liar[LIARS];

	honest_begin(&honest, 1000);
	for (int i = 0; i < LIARS; i++) {
		liar_connect(&liar[i]);
		engine_leave(liar[i].engine);
	}
	ck_assert_int_eq(rdmad_channel_open(rdmad_channel_listener_url(listener), 1000, &patient, &channel), 0);
	ck_assert_int_eq(rdmad_channel_close(channel), 0);
	for (int i = 0; i < LIARS; i++) {
		engine_enter(liar[i].engine);
		liar_leave(&liar[i]);
	}
	honest_end(&honest);
	ck_assert_uint_eq(honest.accepted, 1);
}
END_TEST

/* However long the messages are that a guest asks for, its own are not longer than others'. */
START_TEST(test_greedy_guest)
{
	struct honest honest = {0};
	struct liar liar;
	uint32_t usual;

	honest_begin(&honest, 1000);
	liar_connect(&liar);
	usual = conn_granted(liar.conn)->message_size;
	liar_leave(&liar);
	liar_connect_with(&liar, WIRE_MESSAGE_MAX);
	ck_assert_uint_eq(conn_granted(liar.conn)->message_size, usual);
	liar_leave(&liar);
	honest_end(&honest);
}
END_TEST

/* Clients that come without a pause do not keep an accept whose time is over; what it leaves behind is told of. */
START_TEST(test_storm)
{
	struct rdmad_channel *channel;
	struct pollfd ready = {.events = POLLIN};

	listen_for(1000);
	ready.fd = rdmad_channel_listener_fd(listener);
	storm = true;
	ck_assert_int_eq(rdmad_channel_accept(listener, 0, &channel), -ETIMEDOUT);
	ck_assert_int_eq(poll(&ready, 1, 0), 1);
	ck_assert_int_eq(rdmad_channel_accept(listener, 1000, &channel), -ETIMEDOUT);
	storm = false;
	ck_assert_int_eq(rdmad_channel_accept(listener, 0, &channel), -ETIMEDOUT);
	ck_assert_int_eq(poll(&ready, 1, 0), 0);
}
END_TEST

struct data_body {
	struct wire_channel_data data;
	char bytes[64];
};

/* Of a ring of 1000 bytes, to a peer that put nothing; its one end is -EPROTO. */
static const struct {
	enum wire_op op;
	uint32_t arg, length;
	struct wire_channel_data data;
	unsigned flags;
	bool unasked; /* before an OPEN: never accepted */
} lies[] = {
	{WIRE_OP_CHANNEL_DATA, 8, 24, {.head = 8}, 0, true},
	{WIRE_OP_CHANNEL_TAIL, 0, 8, {0}, 0, true},
	{WIRE_OP_CHANNEL_WANT, 0, 8, {0}, 0, true},
	{WIRE_OP_CHANNEL_OPEN, 0, 0, {0}, 0, true},
	{WIRE_OP_CHANNEL_OPEN, 0, 64, {.head = 1000}, 0, false}, /* again */
	{WIRE_OP_CHANNEL_OPEN, 0, 64, {.head = 1000}, WIRE_REPLY, false},
	{WIRE_OP_CHANNEL_DATA, 0, 0, {0}, 0, false},
	{WIRE_OP_CHANNEL_DATA, 0, 15, {0}, 0, false},
	{WIRE_OP_CHANNEL_DATA, 8, 23, {.head = 8}, 0, false},
	{WIRE_OP_CHANNEL_DATA, UINT32_MAX, 24, {.head = 8}, 0, false},
	{WIRE_OP_CHANNEL_DATA, 8, 24, {.head = 9}, 0, false},
	{WIRE_OP_CHANNEL_DATA, 8, 24, {.head = 7}, 0, false},
	{WIRE_OP_CHANNEL_DATA, 0, 16, {.head = 1001}, 0, false},
	{WIRE_OP_CHANNEL_DATA, 0, 16, {.head = UINT64_MAX}, 0, false},
	{WIRE_OP_CHANNEL_DATA, 8, 24, {.head = 8, .tail = 1}, 0, false},
	{WIRE_OP_CHANNEL_DATA, 8, 24, {.head = 8, .tail = UINT64_MAX}, 0, false},
	{WIRE_OP_CHANNEL_TAIL, 0, 8, {.head = 1}, 0, false},
	{WIRE_OP_CHANNEL_TAIL, 0, 8, {.head = UINT64_MAX}, 0, false},
	{WIRE_OP_CHANNEL_TAIL, 0, 7, {0}, 0, false},
	{WIRE_OP_CHANNEL_WANT, 0, 9, {0}, 0, false},
	{WIRE_OP_CHANNEL_LISTEN, 0, 16, {0}, 0, false},
	{WIRE_OP_CHANNEL_DATA, 0, 16, {0}, WIRE_REPLY, false},
};

START_TEST(test_lies)
{
	struct open_body open = {.open.capacity = 1000};
	struct data_body body = {.data = lies[_i].data};
	struct honest honest = {0};
	struct rdmad_channel *channel;
	struct liar liar;

	honest_begin(&honest, 1000);
	liar_connect(&liar);
	if (!lies[_i].unasked) {
		liar_ask(&liar, &open, 0);
		ck_assert_int_eq(engine_wait(liar.engine, &liar.answered, PATIENCE * TIME_US), 0);
		ck_assert_uint_eq(liar.status, WIRE_OK);
		ck_assert_uint_eq(liar.open.capacity, 1000);
	}
	liar_say(&liar, lies[_i].op, lies[_i].flags, lies[_i].arg, &body, lies[_i].length);
	ck_assert_int_eq(engine_wait(liar.engine, &liar.closed, PATIENCE * TIME_US), 0);
	liar_leave(&liar);
	ck_assert_int_eq(rdmad_channel_open(rdmad_channel_listener_url(listener), 1000, &patient, &channel), 0);
	while (!lies[_i].unasked && honest.accepted < 1)
		sched_yield();
	if (!lies[_i].unasked)
		ck_assert_int_eq(honest.last, -EPROTO);
	ck_assert_int_eq(rdmad_channel_close(channel), 0);
	honest_end(&honest);
	ck_assert_uint_eq(honest.accepted, lies[_i].unasked ? 1 : 2);
}
END_TEST

/* Words after the last one. */
START_TEST(test_after_the_last)
{
	struct open_body open = {.open.capacity = 1000};
	struct data_body body = {.data.head = 0};
	struct honest honest = {0};
	struct liar liar;

	honest_begin(&honest, 1000);
	liar_connect(&liar);
	liar_ask(&liar, &open, 0);
	ck_assert_int_eq(engine_wait(liar.engine, &liar.answered, PATIENCE * TIME_US), 0);
	liar_say(&liar, WIRE_OP_CHANNEL_DATA, WIRE_CHANNEL_LAST, 0, &body, 16);
	body.data.head = 8;
	liar_say(&liar, WIRE_OP_CHANNEL_DATA, 0, 8, &body, 24);
	ck_assert_int_eq(engine_wait(liar.engine, &liar.closed, PATIENCE * TIME_US), 0);
	liar_leave(&liar);
	honest_end(&honest);
	ck_assert_uint_eq(honest.accepted, 1);
	ck_assert_int_eq(honest.last, -EPIPE);
}
END_TEST

/* An address that is none harms the program that gave it: the write is refused where it arrives, and the channel
 * ends. */
START_TEST(test_bad_address)
{
	struct open_body open = {.open = {.capacity = 100000, .addr = 4096, .ring = 100000, .rkey = 12345}};
	struct honest honest = {.put = 200000};
	struct rdmad_channel *channel;
	struct liar liar;

	honest_begin(&honest, 100000);
	liar_connect(&liar);
	liar_ask(&liar, &open, 0);
	ck_assert_int_eq(engine_wait(liar.engine, &liar.closed, PATIENCE * TIME_US), 0);
	liar_leave(&liar);
	honest.put = 0;
	ck_assert_int_eq(rdmad_channel_open(rdmad_channel_listener_url(listener), 100000, &patient, &channel), 0);
	ck_assert_int_eq(rdmad_channel_close(channel), 0);
	honest_end(&honest);
	ck_assert_uint_eq(honest.accepted, 2);
}
END_TEST

/*
 * A loop of the program's own
 */
START_TEST(test_own_loop)
{
	struct pair pair = connect_pair(1000);
	struct stream s = {.channel = pair.client, .bytes = 100000, .most = 300, .seed = 1};
	uint64_t got = 0;

	pthread_create(&s.thread, NULL, stream_put, &s);
	while (got < s.bytes) {
		uint8_t bytes[256];
		fd_set set;
		ssize_t n = rdmad_channel_try_get(pair.server, bytes, sizeof(bytes));

		ck_assert_int_ge(n, 0);
		for (ssize_t i = 0; i < n; i++)
			EXPECT(bytes[i] == byte_at(got + (uint64_t)i));
		got += (uint64_t)n;
		if (n || rdmad_channel_arm(pair.server) != 0)
			continue;
		FD_ZERO(&set);
		FD_SET(rdmad_channel_fd(pair.server), &set);
		select(rdmad_channel_fd(pair.server) + 1, &set, NULL, NULL, NULL);
		ck_assert_int_eq(rdmad_channel_progress(pair.server), 0);
	}
	pthread_join(s.thread, NULL);
	close_pair(&pair);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create(target);
	TCase *tc = suite_case(suite, "opening", set_up, tear_down);

	tcase_add_test(tc, test_both_ways);
	tcase_add_test(tc, test_refused);
	tcase_add_test(tc, test_ports);
	tcase_add_test(tc, test_nobody);
	tcase_add_test(tc, test_no_address_of_ours);
	if (strncmp(target, "rdma:", 5) != 0)
		tcase_add_test(tc, test_no_descriptors); /* libraries of devices say what they like */
	tcase_add_test(tc, test_several_clients);
	tcase_add_loop_test(tc, test_crowd, 0, 2);
	tc = suite_case(suite, "streams", set_up, tear_down);
	tcase_add_test(tc, test_stress);
	tcase_add_loop_test(tc, test_large_stress, 0, ARRAY_SIZE(stresses));
	tcase_add_test(tc, test_whole_ring);
	tcase_add_test(tc, test_requests_of_a_flush);
	tcase_add_test(tc, test_stream_flushes);
	tcase_add_test(tc, test_more_than_fits);
	tcase_add_test(tc, test_without_an_address);
	tcase_add_test(tc, test_own_loop);
	tcase_add_loop_test(tc, test_polls_without_being_told, 0, 2);
	tc = suite_case(suite, "ends", peers_up, peers_down);
	tcase_add_test(tc, test_closed_in_peace);
	tcase_add_loop_test(tc, test_closed_in_a_stream, 0, 20);
	tcase_add_test(tc, test_got_late);
	tcase_add_test(tc, test_lost_place_wakes);
	tcase_add_test(tc, test_killed);
	tcase_add_test(tc, test_flush_to_a_dead_peer);
	tcase_add_test(tc, test_stopped);
	tcase_add_test(tc, test_frozen);
	tcase_add_test(tc, test_bad_address);
	tc = suite_case(suite, "lies", set_up, tear_down);
	tcase_add_loop_test(tc, test_bad_open, 0, ARRAY_SIZE(bad_opens));
	tcase_add_loop_test(tc, test_lies, 0, ARRAY_SIZE(lies));
	tcase_add_test(tc, test_silent_guests);
	tcase_add_test(tc, test_greedy_guest);
	tcase_add_test(tc, test_storm);
	tcase_add_test(tc, test_after_the_last);
	channel_cases_errors(suite);
	return suite;
}

static int run_target(const char *url)
{
	target = channel_cases_url = url;
	return suite_run(make_suite());
}

int main(int argc, char **argv)
{
	char path[100];
	int failed;

	if (argc > 1)
		return run_target(argv[1]);
	strcpy(directory, "/tmp/check-channel-far.XXXXXX");
	if (!mkdtemp(directory))
		return EXIT_FAILURE;
	snprintf(path, sizeof(path), "unix://%s/socket", directory);
	failed = run_target(path);
	rmdir(directory);
	return run_target("tcp://127.0.0.1:0/test") || failed;
}
