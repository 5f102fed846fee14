/* check_channel_meet.c: channels by way of an rdmad, in this process: how the two find each other, what goes through the rdmad where
 * they cannot reach each other, and what ends it. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/channel/channel_pair.h"
#include "tests/late_end.h"
#include "tests/suite.h"

#include "channel/channel.h"

#define SIZE 65536

/* Ways that lead nowhere, and the ones that were tried. */
static bool no_shm, no_far;
static unsigned shm_tried, far_tried;
static uint64_t far_time; /* us, in all */
static char far_address[600];
static char url[300];
static const char *transport = "tcp"; /* "rdma" where there is a device, at $RDMAD_GUEST_ADDR */
static uint64_t stream_bytes = 8 * MIB;
static unsigned descriptors;
static char runtime[64];

int __real_channel_shm_open(const struct channel_url *url, size_t size, const struct rdmad_channel_options *options,
			    struct rdmad_channel **out);
int __wrap_channel_shm_open(const struct channel_url *url, size_t size, const struct rdmad_channel_options *options,
			    struct rdmad_channel **out);
int __real_channel_far_open(const struct channel_url *url, size_t size, const struct rdmad_channel_options *options,
			    struct rdmad_channel **out);
int __wrap_channel_far_open(const struct channel_url *url, size_t size, const struct rdmad_channel_options *options,
			    struct rdmad_channel **out);

int __wrap_channel_shm_open(const struct channel_url *to, size_t size, const struct rdmad_channel_options *options,
			    struct rdmad_channel **out)
{
	shm_tried++;
	return no_shm ? -ENOENT : __real_channel_shm_open(to, size, options, out);
}

int __wrap_channel_far_open(const struct channel_url *to, size_t size, const struct rdmad_channel_options *options,
			    struct rdmad_channel **out)
{
	far_tried++;
	far_time += options->common.connect_timeout_us;
	snprintf(far_address, sizeof(far_address), "%s/%s", to->address, to->name);
	return no_far ? -EHOSTUNREACH : __real_channel_far_open(to, size, options, out);
}

static bool is_rdma(void)
{
	return strcmp(transport, "rdma") == 0;
}

static const char *host(void)
{
	return is_rdma() ? getenv("RDMAD_GUEST_ADDR") : "127.0.0.1";
}

static const char *meet(const char *name)
{
	snprintf(url, sizeof(url), "meet://%s/%s", strstr(server.address, "://") + 3, name);
	return url;
}

static void set_up_with(struct channel_settings settings)
{
	no_shm = no_far = false;
	shm_tried = far_tried = 0;
	far_time = 0;
	strcpy(runtime, "/tmp/check-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(runtime));
	setenv("XDG_RUNTIME_DIR", runtime, 1);
	server_start(
		&(struct server_options){.transport = transport, .services = {.arena = 4 * MIB, .channel = settings}});
	descriptors = count_descriptors();
}

static void set_up(void)
{
	set_up_with((struct channel_settings){.invite_timeout = 0});
}

static void set_up_late(void)
{
	late_end_by(200 * TIME_MS);
	set_up();
}

static bool something_left(void)
{
	struct channel_service *service = services_channel(&server.services);
	bool left;

	pthread_mutex_lock(&service->table.lock);
	left = quota_taken(service->table.names.quota) || quota_taken(service->joined.quota);
	pthread_mutex_unlock(&service->table.lock);
	return left || count_descriptors() > descriptors;
}

/* All is given back, here and, soon, there. */
static void wait_given_back(void)
{
	uint64_t until = time_now() + 60 * TIME_S;

	for (; something_left(); usleep(1000))
		ck_assert_msg(time_now() < until, "%u descriptors, not %u; or names or pairs stay", count_descriptors(),
			      descriptors);
}

static void tear_down(void)
{
	char command[128];

	wait_given_back();
	server_stop();
	snprintf(command, sizeof(command), "rm -rf %s", runtime);
	ck_assert_int_eq(system(command), 0);
}

/* By the addresses of a meeting point, which have no scheme: memory that both ends of a connection share, or a device. */
static const char *by(void)
{
	return is_rdma() ? "rdma" : "shm";
}

static void assert_transport(const struct rdmad_channel *channel, const char *name, bool relayed)
{
	struct rdmad_channel_info info;

	rdmad_channel_info(channel, &info);
	ck_assert_str_eq(info.transport, name);
	ck_assert(info.relayed == relayed);
}

/* Some bytes each way. */
static void assert_works(struct rdmad_channel *a, struct rdmad_channel *b)
{
	char bytes[8];

	WORKS(rdmad_channel_put(a, "question", 8, SECONDS(20)));
	WORKS(rdmad_channel_flush(a, SECONDS(20)));
	WORKS(rdmad_channel_get(b, bytes, 8, SECONDS(20)));
	ck_assert_mem_eq(bytes, "question", 8);
	WORKS(rdmad_channel_put(b, "answer", 6, SECONDS(20)));
	WORKS(rdmad_channel_flush(b, SECONDS(20)));
	WORKS(rdmad_channel_get(a, bytes, 6, SECONDS(20)));
	ck_assert_mem_eq(bytes, "answer", 6);
}

/* The one end closes in another thread: each waits for the other's last word. */
static void *close_one(void *channel)
{
	return (void *)(intptr_t)rdmad_channel_close(channel);
}

static void close_both(struct channel_pair *pair)
{
	pthread_t thread;
	void *rc;

	pthread_create(&thread, NULL, close_one, pair->client);
	WORKS(rdmad_channel_close(pair->server));
	pthread_join(thread, &rc);
	ck_assert_int_eq((int)(intptr_t)rc, 0);
	rdmad_channel_listener_close(pair->listener);
}

/* The nearest way first. */
static const struct {
	bool no_shm, no_far, relayed;
} ways[] = {{false, false, false}, {true, false, false}, {true, true, true}};

static void open_pair(struct channel_pair *pair, int way)
{
	no_shm = ways[way].no_shm;
	no_far = ways[way].no_far;
	channel_pair_open(pair, meet("some name"), SIZE, NULL);
}

START_TEST(test_ways)
{
	struct channel_pair pair;

	open_pair(&pair, _i);
	assert_transport(pair.client, ways[_i].no_shm ? by() : "shm", ways[_i].relayed);
	assert_transport(pair.server, ways[_i].no_shm ? by() : "shm", ways[_i].relayed);
	ck_assert_uint_eq(shm_tried, 1);
	ck_assert_uint_eq(far_tried, _i >= 1);
	if (far_tried)
		ck_assert_msg(strncmp(far_address, host(), strlen(host())) == 0 && strstr(far_address, "/some name"),
			      "%s", far_address);
	assert_works(pair.client, pair.server);
	assert_works(pair.server, pair.client);
	close_both(&pair);
}
END_TEST

/* Both ways at once. A put and a get that are all or nothing fit into the ring together, or each would wait for the other. */
START_TEST(test_stream)
{
	struct channel_pair pair;
	struct channel_stream stream[4];
	pthread_t thread[4];

	open_pair(&pair, _i);
	for (unsigned i = 0; i < 4; i++) {
		stream[i] = (struct channel_stream){.channel = i % 2 ? pair.client : pair.server,
						    .total = stream_bytes,
						    .most = i < 2 ? 3000 : SIZE / 2,
						    .seed = i + 1};
		pthread_create(&thread[i], NULL, i < 2 ? channel_stream_put : channel_stream_get, &stream[i]);
	}
	for (unsigned i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(stream[i].rc, 0);
	close_both(&pair);
}
END_TEST

START_TEST(test_several_clients)
{
	struct channel_pair pair[4];

	open_pair(&pair[0], _i);
	for (unsigned i = 1; i < 4; i++) {
		pair[i] = pair[0];
		channel_pair_join(&pair[i]);
	}
	for (unsigned i = 0; i < 4; i++)
		assert_works(pair[i].client, pair[i].server);
	for (unsigned i = 4; i-- > 1;) {
		rdmad_channel_close(pair[i].client);
		rdmad_channel_close(pair[i].server);
	}
	assert_works(pair[0].client, pair[0].server);
	close_both(&pair[0]);
}
END_TEST

START_TEST(test_echo)
{
	struct rdmad_channel *channel;
	struct channel_stream put, get;
	pthread_t thread[2];
	char bytes[5];

	WORKS(rdmad_channel_open(meet("echo"), SIZE, NULL, &channel));
	assert_transport(channel, by(), true);
	WORKS(rdmad_channel_put(channel, "hello", 5, SECONDS(20)));
	WORKS(rdmad_channel_get(channel, bytes, 5, SECONDS(20)));
	ck_assert_mem_eq(bytes, "hello", 5);
	put = get = (struct channel_stream){.channel = channel, .total = stream_bytes / 2, .most = 30000, .seed = 1};
	pthread_create(&thread[0], NULL, channel_stream_put, &put);
	pthread_create(&thread[1], NULL, channel_stream_get, &get);
	pthread_join(thread[0], NULL);
	pthread_join(thread[1], NULL);
	ck_assert_int_eq(put.rc, 0);
	ck_assert_int_eq(get.rc, 0);
	WORKS(rdmad_channel_close(channel));
}
END_TEST

/* What was flushed before can still be got. */
START_TEST(test_peaceful_end)
{
	struct channel_pair pair;
	pthread_t thread;
	char bytes[4];

	open_pair(&pair, _i);
	WORKS(rdmad_channel_put(pair.client, "last", 4, SECONDS(20)));
	WORKS(rdmad_channel_flush(pair.client, SECONDS(20)));
	pthread_create(&thread, NULL, close_one, pair.client);
	WORKS(rdmad_channel_get(pair.server, bytes, 4, SECONDS(20)));
	ck_assert_int_eq(rdmad_channel_get(pair.server, bytes, 1, SECONDS(20)), -EPIPE);
	rdmad_channel_close(pair.server);
	pthread_join(thread, NULL);
	rdmad_channel_listener_close(pair.listener);
}
END_TEST

static uint64_t count_of(const char *counter)
{
	uint64_t n;

	server_pause();
	n = services_count(&server.services, counter);
	server_resume();
	return n;
}

/* Nobody looks: what is at the peer's machine is not lost, but what is at the rdmad may be. */
START_TEST(test_close_unheard)
{
	struct channel_pair pair;
	int rc;

	open_pair(&pair, _i);
	WORKS(rdmad_channel_put(pair.client, "last", 4, SECONDS(20)));
	rc = rdmad_channel_close(pair.client);
	ck_assert_msg(rc == (ways[_i].relayed ? -ETIMEDOUT : 0), "%d, %s", rc, rdmad_error());
	if (rc != 0)
		ck_assert_msg(strstr(rdmad_error(), "had not got 4 bytes"), "%s", rdmad_error());
	rdmad_channel_close(pair.server);
	rdmad_channel_listener_close(pair.listener);
}
END_TEST

#define ASSERT_ERROR(call, error, text)                                                                                \
	do {                                                                                                           \
		int rc_ = (call);                                                                                      \
		ck_assert_msg(rc_ == (error), "%d, %s", rc_, rdmad_error());                                           \
		ck_assert_msg(strstr(rdmad_error(), text), "%s", rdmad_error());                                       \
	} while (0)

START_TEST(test_refused)
{
	struct rdmad_channel_listener *listener, *second;
	struct rdmad_channel *channel;
	uint64_t before;

	ASSERT_ERROR(rdmad_channel_open(meet("n"), SIZE, NULL, &channel), -ENOENT, "nobody listens");
	WORKS(rdmad_channel_listen(meet("n"), SIZE, NULL, &listener));
	ASSERT_ERROR(rdmad_channel_listen(meet("n"), SIZE, NULL, &second), -EADDRINUSE, "somebody listens");
	ASSERT_ERROR(rdmad_channel_listen(meet("echo"), SIZE, NULL, &second), -EADDRINUSE, "somebody listens");
	before = count_of("channel_opens");
	ASSERT_ERROR(rdmad_channel_open(meet("n"), 2 * SIZE, NULL, &channel), -EMSGSIZE, "65536 bytes");
	ck_assert_uint_eq(count_of("channel_opens"), before + 1); /* an answer is final */
	ASSERT_ERROR(rdmad_channel_open(meet("a/b"), SIZE, NULL, &channel), -EINVAL, "slash");
	ck_assert_str_eq(rdmad_channel_listener_url(listener), meet("n"));
	ck_assert_int_eq(rdmad_channel_accept(listener, 1000, &channel), -ETIMEDOUT);
	rdmad_channel_listener_close(listener);
}
END_TEST

/* Nobody accepts: the client that opens gives up, and the listener never hears of it. */
START_TEST(test_nobody_accepts)
{
	struct rdmad_channel_options options = {.common.connect_timeout_us = 300000};
	struct rdmad_channel_listener *listener;
	struct rdmad_channel *channel;
	int rc;

	no_shm = no_far = true;
	WORKS(rdmad_channel_listen(meet("n"), SIZE, NULL, &listener));
	rc = rdmad_channel_open(meet("n"), SIZE, &options, &channel);
	ck_assert_msg(rc == -ETIMEDOUT, "%d, %s", rc, rdmad_error());
	ck_assert_int_eq(rdmad_channel_accept(listener, 10000, &channel), -ETIMEDOUT);
	rdmad_channel_listener_close(listener);
}
END_TEST

/* Clients that have gone are not all looked after by one look, but the descriptor says that there are more. */
START_TEST(test_clients_leave)
{
	/* an emulated device takes long to connect */
	struct rdmad_channel_options options = {.common.connect_timeout_us = is_rdma() ? 1000000 : 50000};
	struct rdmad_channel_listener *listener;
	struct pollfd pfd = {.events = POLLIN};
	struct rdmad_channel *channel;
	uint64_t before = 0;

	no_shm = no_far = true;
	WORKS(rdmad_channel_listen(meet("n"), SIZE, NULL, &listener));
	pfd.fd = rdmad_channel_listener_fd(listener);
	while (count_of("channel_invites") < 6) /* a client whose time is over too soon is not heard of */
		ck_assert_int_eq(rdmad_channel_open(meet("n"), SIZE, &options, &channel), -ETIMEDOUT);
	for (uint64_t now; before < 6; before = now) {
		ck_assert_int_eq(rdmad_channel_accept(listener, 0, &channel), -ETIMEDOUT);
		now = count_of("channel_refused");
		ck_assert_uint_le(now, before + 2);
		if (now < 6)
			ck_assert_int_eq(poll(&pfd, 1, 60000), 1);
	}
	rdmad_channel_listener_close(listener);
}
END_TEST

/* The rdmad gives up first. */
static void set_up_impatient(void)
{
	set_up_with((struct channel_settings){.invite_timeout = 50 * TIME_MS});
}

START_TEST(test_invitation_expires)
{
	struct rdmad_channel_listener *listener;
	struct rdmad_channel *channel;

	no_shm = no_far = true;
	WORKS(rdmad_channel_listen(meet("n"), SIZE, NULL, &listener));
	ASSERT_ERROR(rdmad_channel_open(meet("n"), SIZE, NULL, &channel), -EAGAIN, "did not come in time");
	rdmad_channel_listener_close(listener);
}
END_TEST

static void say_addresses(const char *text)
{
	const struct meet_name *name;

	server_pause();
	name = services_channel(&server.services)->table.name[0];
	ck_assert(meet_keep_addresses(name->member[0], text, (uint32_t)strlen(text)));
	server_resume();
}

/* Which of a listener's addresses lead anywhere: of one that is reached by the loopback, as is the rdmad. */
START_TEST(test_addresses)
{
	static const struct {
		bool shm;
		const char *before, *after;
		unsigned far;
	} cases[] = {
		{true, "", " 10.0.0.1:7", 1},           {true, "10.0.0.1:7 ", "", 1},
		{true, "", ".x 0.0.0.0:7 [::]:7", 0},   {false, "127.0.0.1:7 [::1]:7", "", 2},
		{false, "[::ffff:127.0.0.1]:7", "", 1}, {false, "shm://elsewhere.1 10.0.0.1:7", "", 1},
	};
	struct rdmad_channel_options options = {.common.connect_timeout_us = 200000};
	struct rdmad_channel_listener *listener;
	struct rdmad_channel *channel;
	unsigned far;
	char boot[64] = "", shm[100], text[300];
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");

	ck_assert(file && fgets(boot, sizeof(boot), file));
	fclose(file);
	boot[strcspn(boot, "\n")] = 0;
	snprintf(shm, sizeof(shm), "shm://%s.1", boot);
	no_shm = no_far = true;
	WORKS(rdmad_channel_listen(meet("n"), SIZE, NULL, &listener));
	snprintf(text, sizeof(text), "%s%s%s", cases[_i].before, cases[_i].shm ? shm : "", cases[_i].after);
	say_addresses(text);
	far = is_rdma() && strstr(text, "127.") ? 0 : cases[_i].far;
	do { /* a busy machine may need more time to come as far as that */
		shm_tried = far_tried = 0;
		ck_assert_int_lt(rdmad_channel_open(meet("n"), SIZE, &options, &channel), 0);
		options.common.connect_timeout_us *= 2;
	} while ((shm_tried != cases[_i].shm || far_tried != far) && options.common.connect_timeout_us < SECONDS(60));
	ck_assert_uint_eq(shm_tried, cases[_i].shm);
	ck_assert_uint_eq(far_tried, far);
	rdmad_channel_listener_close(listener);
}
END_TEST

/* Few of them are tried, and there is time for the way through the rdmad. */
START_TEST(test_many_addresses)
{
	struct rdmad_channel_options options = {.common.connect_timeout_us = SECONDS(60)};
	struct channel_pair pair = {.size = SIZE, .options = &options};
	char text[WIRE_CHANNEL_ADDRESSES_MAX] = "";

	no_far = true;
	WORKS(rdmad_channel_listen(meet("n"), SIZE, NULL, &pair.listener));
	while (strlen(text) + 20 < sizeof(text))
		strcat(text, "10.0.0.1:7 ");
	say_addresses(text);
	channel_pair_join(&pair);
	assert_transport(pair.client, by(), true);
	ck_assert_uint_eq(far_tried, 4);
	/* a quarter of the half, a third of what is left, as these take none, ... */
	ck_assert_uint_le(far_time, SECONDS(60) / 2 / 12 * (3 + 4 + 6 + 12));
	close_both(&pair);
}
END_TEST

/* What a listener says of itself leads nowhere else. */
START_TEST(test_hostile_addresses)
{
	static const char *const addresses[] = {
		"unix:///etc/passwd",
		"tcp://localhost:1",
		"example.com:80",
		"meet://127.0.0.1:1",
		"10.0.0.1:1/../x",
		"shm://../../etc",
		"",
		"   ",
		"[::1",
		"0.0.0.0:1",
		"[::ffff:0.0.0.0]:1",
	};
	struct rdmad_channel_options options = {.common.connect_timeout_us = 200000};
	struct rdmad_channel_listener *listener;
	struct rdmad_channel *channel;

	no_far = true;
	WORKS(rdmad_channel_listen(meet("n"), SIZE, NULL, &listener));
	say_addresses(addresses[_i]);
	ck_assert_int_lt(rdmad_channel_open(meet("n"), SIZE, &options, &channel), 0);
	ck_assert_uint_eq(shm_tried, 0);
	ck_assert_uint_eq(far_tried, 0);
	rdmad_channel_listener_close(listener);
}
END_TEST

/* By the descriptor, as a program with a loop of its own does. */
START_TEST(test_listener_descriptor)
{
	struct channel_pair pair = {.size = SIZE};
	struct pollfd pfd = {.events = POLLIN};
	pthread_t thread;
	int rc;

	no_shm = ways[_i].no_shm;
	no_far = ways[_i].no_far;
	pair.url = meet("n");
	WORKS(rdmad_channel_listen(pair.url, SIZE, NULL, &pair.listener));
	pfd.fd = rdmad_channel_listener_fd(pair.listener);
	pthread_create(&thread, NULL, channel_pair_client, &pair);
	while ((rc = rdmad_channel_accept(pair.listener, 0, &pair.server)) == -ETIMEDOUT)
		ck_assert_int_eq(poll(&pfd, 1, 60000), 1);
	WORKS(rc);
	pthread_join(thread, NULL);
	assert_works(pair.client, pair.server);
	close_both(&pair);
}
END_TEST

/* The rdmad ends: a channel through it does, too, and the listener is told; one that is direct goes on. */
START_TEST(test_rdmad_ends)
{
	struct channel_pair pair;
	struct rdmad_channel *channel;
	char byte;

	open_pair(&pair, _i);
	assert_works(pair.client, pair.server);
	server_die();
	if (ways[_i].relayed) {
		ck_assert_int_eq(rdmad_channel_get(pair.client, &byte, 1, SECONDS(20)), -ECONNRESET);
		ck_assert_int_eq(rdmad_channel_get(pair.server, &byte, 1, SECONDS(20)), -ECONNRESET);
	} else {
		assert_works(pair.client, pair.server);
	}
	ASSERT_ERROR(rdmad_channel_accept(pair.listener, SECONDS(20), &channel), -ECONNRESET, "rdmad");
	rdmad_channel_close(pair.client);
	rdmad_channel_close(pair.server);
	rdmad_channel_listener_close(pair.listener);
	descriptors = count_descriptors(); /* without the server's */
}
END_TEST

/* The listener ends: its name is free; joined clients stay. */
START_TEST(test_listener_ends)
{
	const struct rdmad_channel_options options = {.common.no_poll = true};
	struct rdmad_channel_listener *next;
	struct channel_pair pair;

	open_pair(&pair, _i);
	rdmad_channel_listener_close(pair.listener);
	pair.listener = NULL;
	assert_works(pair.client, pair.server);
	for (int i = 0; i < 100; i++) {
		WORKS(rdmad_channel_listen(meet("some name"), SIZE, &options, &next));
		rdmad_channel_listener_close(next);
	}
	close_both(&pair);
}
END_TEST

/* Also by an rdmad that hears late of the connection's end. */
START_TEST(test_listens_again)
{
	struct rdmad_channel_listener *listener;

	for (int i = 0; i < 10; i++) {
		WORKS(rdmad_channel_listen(meet("some name"), SIZE, NULL, &listener));
		rdmad_channel_listener_close(listener);
	}
}
END_TEST

static int count_names(void *arg, const struct rdmad_channel_entry *entry)
{
	ck_assert_str_eq(entry->name, "some name");
	ck_assert_uint_eq(entry->capacity, SIZE);
	*(uint64_t *)arg += 1 + 100 * entry->clients;
	return 0;
}

START_TEST(test_list)
{
	struct channel_pair pair;
	char by[8];
	uint64_t n = 0;

	WORKS(rdmad_channel_list(server.address, NULL, count_names, &n, by));
	ck_assert_uint_eq(n, 0);
	ck_assert_str_eq(by, transport);
	open_pair(&pair, _i);
	WORKS(rdmad_channel_list(server.address, NULL, count_names, &n, by));
	ck_assert_uint_eq(n, ways[_i].relayed ? 101 : 1);
	close_both(&pair);
}
END_TEST

/*
 * Peers in processes of their own, of which each is one end of a channel through the rdmad. A process that never used a device
 * makes them, see check_channel_far.c. A peer puts again and again until it is ended, and never gets.
 */
struct peer_order {
	char url[300], runtime[64];
	bool listens;
};

static int orders[2], answers[2];
static pid_t peers_maker;

static void peer_run(const struct peer_order *order)
{
	struct rdmad_channel_listener *listener;
	struct rdmad_channel *channel;
	uint8_t bytes[3000] = {0};
	int rc;

	setenv("XDG_RUNTIME_DIR", order->runtime, 1);
	no_shm = no_far = true;
	rc = order->listens ? rdmad_channel_listen(order->url, SIZE, NULL, &listener) : 0;
	if (rc == 0)
		rc = order->listens ? rdmad_channel_accept(listener, SECONDS(60), &channel)
				    : rdmad_channel_open(order->url, SIZE, NULL, &channel);
	if (rc != 0)
		fprintf(stderr, "the peer in a process of its own: %s\n", rdmad_error());
	while (rc == 0)
		rc = rdmad_channel_put(channel, bytes, sizeof(bytes), SECONDS(60));
	_exit(1);
}

static void set_up_peers(void)
{
	struct peer_order order;
	pid_t pid;

	ck_assert_int_eq(pipe(orders), 0);
	ck_assert_int_eq(pipe(answers), 0);
	peers_maker = fork();
	if (peers_maker != 0) {
		close(orders[0]);
		close(answers[1]);
		set_up();
		return;
	}
	close(orders[1]);
	signal(SIGCHLD, SIG_IGN);
	while (read(orders[0], &order, sizeof(order)) == sizeof(order)) {
		pid = fork();
		if (pid == 0)
			peer_run(&order);
		if (write(answers[1], &pid, sizeof(pid)) != sizeof(pid))
			break;
	}
	_exit(0);
}

static void tear_down_peers(void)
{
	tear_down();
	close(orders[1]);
	close(answers[0]);
	waitpid(peers_maker, NULL, 0);
}

static void wait_listens(pid_t pid)
{
	uint64_t until = time_now() + 60 * TIME_S;

	for (; !quota_taken(services_channel(&server.services)->table.names.quota); usleep(1000)) {
		ck_assert_msg(kill(pid, 0) == 0, "the peer ended");
		ck_assert_msg(time_now() < until, "the peer does not listen");
	}
}

/* The other end of it is *out. */
static pid_t peer_process(bool listens, struct rdmad_channel_listener **listener, struct rdmad_channel **out)
{
	struct peer_order order = {.listens = listens};
	pid_t pid;

	no_shm = no_far = true;
	*listener = NULL;
	snprintf(order.url, sizeof(order.url), "%s", meet("n"));
	snprintf(order.runtime, sizeof(order.runtime), "%s", runtime);
	if (!listens)
		WORKS(rdmad_channel_listen(order.url, SIZE, NULL, listener));
	ck_assert_int_eq(write(orders[1], &order, sizeof(order)), sizeof(order));
	ck_assert_int_eq(read(answers[0], &pid, sizeof(pid)), sizeof(pid));
	if (!listens) {
		WORKS(rdmad_channel_accept(*listener, SECONDS(60), out));
		return pid;
	}
	wait_listens(pid);
	WORKS(rdmad_channel_open(order.url, SIZE, NULL, out));
	return pid;
}

static int get_until_end(struct rdmad_channel *channel)
{
	uint8_t bytes[100];
	int rc;

	do
		rc = rdmad_channel_get(channel, bytes, sizeof(bytes), SECONDS(60));
	while (rc == 0);
	return rc;
}

/* At several points of its stream. The rdmad gives back what it had for the two, and then the name is free. */
START_TEST(test_peer_killed)
{
	for (int i = 0; i < 6; i++) {
		struct rdmad_channel_listener *listener;
		struct rdmad_channel *channel;
		uint8_t bytes[100];
		pid_t pid = peer_process(_i, &listener, &channel);

		for (int n = 0; n < i * i * 100; n++)
			WORKS(rdmad_channel_get(channel, bytes, sizeof(bytes), SECONDS(60)));
		kill(pid, SIGKILL);
		ck_assert_int_eq(get_until_end(channel), -ECONNRESET);
		ck_assert_int_eq(rdmad_channel_put(channel, bytes, 1, SECONDS(60)), -ECONNRESET);
		rdmad_channel_close(channel);
		rdmad_channel_listener_close(listener);
		wait_given_back();
	}
}
END_TEST

/* What is on its way comes, then nothing does, and after it has woken the stream goes on. */
START_TEST(test_peer_stopped)
{
	struct rdmad_channel_listener *listener;
	struct rdmad_channel *channel;
	uint8_t bytes[100];
	pid_t pid = peer_process(_i, &listener, &channel);
	int rc;

	WORKS(rdmad_channel_get(channel, bytes, sizeof(bytes), SECONDS(60)));
	kill(pid, SIGSTOP);
	while ((rc = rdmad_channel_get(channel, bytes, sizeof(bytes), 50000)) == 0)
		;
	ck_assert_int_eq(rc, -ETIMEDOUT);
	kill(pid, SIGCONT);
	for (int n = 0; n < 3 * SIZE / 100; n++)
		WORKS(rdmad_channel_get(channel, bytes, sizeof(bytes), SECONDS(60)));
	kill(pid, SIGKILL);
	ck_assert_int_eq(get_until_end(channel), -ECONNRESET);
	rdmad_channel_close(channel);
	rdmad_channel_listener_close(listener);
}
END_TEST

/* Nobody looks for one that stays so: puts have their deadline when the rings on the way are full. */
START_TEST(test_peer_frozen)
{
	struct rdmad_channel_listener *listener;
	struct rdmad_channel *channel;
	uint8_t bytes[1000] = {0};
	pid_t pid = peer_process(_i, &listener, &channel);
	int rc;

	kill(pid, SIGSTOP);
	while ((rc = rdmad_channel_put(channel, bytes, sizeof(bytes), 200000)) == 0)
		;
	ck_assert_int_eq(rc, -ETIMEDOUT);
	kill(pid, SIGKILL);
	ck_assert_int_eq(get_until_end(channel), -ECONNRESET);
	ck_assert_int_eq(rdmad_channel_put(channel, bytes, 1, SECONDS(60)), -ECONNRESET);
	rdmad_channel_close(channel);
	rdmad_channel_listener_close(listener);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("channel_meet");
	TCase *tc = suite_case(suite, "meet", set_up, tear_down);
	TCase *late = suite_case(suite, "late", set_up_late, tear_down);
	TCase *impatient = suite_case(suite, "impatient", set_up_impatient, tear_down);

	log_set_handler(log_keep);
	if (getenv("RDMAD_GUEST_ADDR")) {
		transport = "rdma";
		stream_bytes = MIB / 4;
	}
	tcase_add_loop_test(tc, test_ways, 0, 3);
	tcase_add_loop_test(tc, test_stream, 0, 3);
	tcase_add_loop_test(tc, test_several_clients, 0, 3);
	tcase_add_test(tc, test_echo);
	tcase_add_loop_test(tc, test_peaceful_end, 0, 3);
	tcase_add_loop_test(tc, test_close_unheard, 0, 3);
	tcase_add_test(tc, test_refused);
	tcase_add_test(tc, test_nobody_accepts);
	tcase_add_test(tc, test_clients_leave);
	tcase_add_loop_test(tc, test_addresses, 0, 6);
	tcase_add_test(tc, test_many_addresses);
	tcase_add_loop_test(tc, test_hostile_addresses, 0, 11);
	tcase_add_loop_test(tc, test_listener_descriptor, 0, 3);
	tcase_add_loop_test(tc, test_rdmad_ends, 0, 3);
	tcase_add_loop_test(tc, test_listener_ends, 0, 3);
	tcase_add_test(late, test_listens_again);
	tcase_add_loop_test(tc, test_list, 0, 3);
	tcase_add_test(impatient, test_invitation_expires);
	tc = suite_case(suite, "peers", set_up_peers, tear_down_peers);
	tcase_add_loop_test(tc, test_peer_killed, 0, 2);
	tcase_add_loop_test(tc, test_peer_stopped, 0, 2);
	tcase_add_loop_test(tc, test_peer_frozen, 0, 2);
	return suite_run(suite);
}
