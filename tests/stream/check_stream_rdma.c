/*
 * check_stream_rdma.c: streams of Valkey's clients over RDMA: bytes cut anywhere and at the windows' ends, answers from where they
 * are, keepalive, how they end, and clients that break the protocol. By TCP's provider of the fabric; by the device where
 * RDMAD_GUEST_ADDR says its address.
 */
#include <arpa/inet.h>
#include <check.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "stream/stream.h"
#include "tests/stream/valkey.h"
#include "tests/suite.h"

#define STALL (60 * TIME_S)
#define HANDSHAKE (20 * TIME_S)
#define WINDOW (16 * KIB)
#define RX (64 * KIB)
#define VALUES (8 * MIB)
#define CLIENTS 3

static const char *provider = "soft";
static struct in_addr address;

struct end {
	struct stream *stream; /* NULL: closed */
	char *came;            /* what bytes() used */
	size_t came_len, came_room;
	unsigned released;
	int error;
	char reason[128];
};

/* The server's side, with its clients. */
static struct side {
	struct fabric *fabric;
	struct fabric_domain *domain;
	struct fabric_queue *queue;
	struct fabric_listener *listener;
	struct stream_group *group;
	struct memory_budget budget;
	struct fabric_region *values;
	char *memory;
	uint64_t now;
	int refused;
	ssize_t (*bytes)(struct end *e, const char *at, size_t len);
	struct end end[CLIENTS];
	struct valkey client[CLIENTS];
	unsigned ends, clients;
} side;

static uint64_t clock_of_side(void)
{
	return side.now;
}

static ssize_t on_bytes(struct stream *stream, const char *at, size_t len)
{
	return side.bytes(stream_context(stream), at, len);
}

static void on_closed(struct stream *stream, int error, const char *reason)
{
	struct end *e = stream_context(stream);

	e->stream = NULL;
	e->error = error;
	snprintf(e->reason, sizeof(e->reason), "%s", reason);
}

static const struct stream_ops ops = {.bytes = on_bytes, .closed = on_closed};

static ssize_t use_all(struct end *e, const char *at, size_t len)
{
	if (e->came_len + len > e->came_room) {
		e->came_room = 2 * (e->came_len + len);
		e->came = realloc(e->came, e->came_room);
	}
	memcpy(e->came + e->came_len, at, len);
	e->came_len += len;
	return (ssize_t)len;
}

static void setup(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = address};
	struct stream_attr attr = {
		.stall = STALL, .keepalive = TIME_S, .budget = 16 * MIB, .turn = TIME_S, .clock = clock_of_side};

	side = (struct side){.now = TIME_S, .bytes = use_all, .budget.limit = 4 * MIB};
	ck_assert_int_eq(fabric_open(provider, &(struct fabric_config){.device = NULL}, &side.fabric), 0);
	ck_assert_int_eq(fabric_domain_create(side.fabric, &side.domain), 0);
	ck_assert_int_eq(fabric_queue_create(side.domain, &(struct fabric_queue_attr){.completions = 64}, &side.queue),
			 0);
	ck_assert_int_eq(fabric_listen(side.queue, (struct sockaddr *)&at, sizeof(at), NULL, &side.listener), 0);
	side.memory = mmap(NULL, VALUES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_int_eq(fabric_register(side.domain, side.memory, VALUES, FABRIC_LOCAL_WRITE, &side.values), 0);
	attr.rdma = (struct stream_rdma_attr){
		.domain = side.domain, .window = WINDOW, .handshake = HANDSHAKE, .budget = &side.budget};
	ck_assert_int_eq(stream_group_create(&attr, &side.group), 0);
}

static void teardown(void)
{
	struct stream_stats stats;

	for (unsigned i = 0; i < side.clients; i++)
		valkey_close(&side.client[i]);
	stream_group_get_stats(side.group, &stats);
	if (!stats.streams) {
		ck_assert_uint_eq(stats.waiting_bytes, 0);
		ck_assert_uint_eq(stats.buffer_bytes, 0);
	}
	stream_group_destroy(side.group);
	ck_assert_uint_eq(side.budget.used, 0);
	for (unsigned i = 0; i < side.ends; i++) {
		ck_assert_ptr_null(side.end[i].stream);
		free(side.end[i].came);
	}
	fabric_deregister(side.values);
	munmap(side.memory, VALUES);
	fabric_listener_close(side.listener);
	fabric_queue_destroy(side.queue);
	fabric_domain_destroy(side.domain);
	fabric_close(side.fabric);
}

/* The first that had no stream yet, then one that has none any more. */
static struct end *free_end(void)
{
	unsigned i = 0;

	if (side.ends < CLIENTS)
		return &side.end[side.ends];
	while (i < CLIENTS - 1 && side.end[i].stream)
		i++;
	return &side.end[i];
}

static void take(struct fabric_request *request)
{
	struct end *e = free_end();
	struct stream_open open = {.fd = -1,
				   .request = request,
				   .id = side.ends,
				   .service = "test",
				   .ops = &ops,
				   .context = e,
				   .values = side.values};

	if (stream_open(side.group, &open, side.now, &e->stream) == 0)
		side.ends = MIN(side.ends + 1, CLIENTS);
	else
		side.refused++;
}

/* One look at both sides; how much there was. */
static int turn(void)
{
	struct fabric_completion completion;
	struct fabric_event event;
	int n = MAX(fabric_poll(side.queue, &completion, 1), 0);

	while (fabric_next_event(side.queue, &event)) {
		n++;
		if (event.type == FABRIC_REQUEST)
			take(event.request);
	}
	side.now += TIME_US;
	n += stream_group_progress(side.group, side.now);
	for (unsigned i = 0; i < side.clients; i++)
		n += valkey_turn(&side.client[i]);
	return n;
}

/* Until the condition holds. The limit only ends what hangs. */
#define TURN_UNTIL(condition)                                                                                          \
	do {                                                                                                           \
		uint64_t until = time_now() + 60 * TIME_S;                                                             \
		while (!(condition)) {                                                                                 \
			turn();                                                                                        \
			ck_assert_msg(time_now() < until, "waited in vain for " #condition);                           \
		}                                                                                                      \
	} while (0)

/* Turns, until nothing came for so long that nothing is on its way. */
static void settle(void)
{
	uint64_t last = time_now();

	while (time_now() - last < 50 * TIME_MS)
		if (turn() > 0)
			last = time_now();
}

static struct valkey *join_as(bool silent)
{
	struct sockaddr_in at = {
		.sin_family = AF_INET, .sin_addr = address, .sin_port = htons(fabric_listener_port(side.listener))};
	struct valkey *v = &side.client[side.clients++];

	valkey_connect(v, provider, (struct sockaddr *)&at, sizeof(at), RX, NULL, 0);
	v->silent = silent;
	return v;
}

static struct valkey *join(void)
{
	struct valkey *v = join_as(false);

	TURN_UNTIL(v->registers > 0);
	ck_assert_uint_eq(v->window, WINDOW);
	return v;
}

static void write_all(struct valkey *v, const char *bytes, size_t len)
{
	size_t at = 0;

	TURN_UNTIL((at += valkey_write(v, bytes + at, len - at)) == len);
}

static void read_all(struct valkey *v, char *to, size_t len)
{
	size_t at = 0;

	TURN_UNTIL((at += valkey_read(v, to + at, len - at)) == len);
}

static void make_random(char *to, size_t len)
{
	for (size_t i = 0; i < len; i++)
		to[i] = (char)random();
}

START_TEST(test_bytes_come_in_order_over_many_windows)
{
	static char sent[20 * WINDOW + 77];
	struct valkey *v = join();
	size_t at = 0;

	srandom(_i + 1);
	make_random(sent, sizeof(sent));
	while (at < sizeof(sent)) {
		size_t n = MIN((size_t)random() % (WINDOW / 2) + 1, sizeof(sent) - at);

		write_all(v, sent + at, n);
		at += n;
	}
	TURN_UNTIL(side.end[0].came_len == sizeof(sent));
	ck_assert_mem_eq(side.end[0].came, sent, sizeof(sent));
	ck_assert_uint_eq(v->registers, 21);
	ck_assert_uint_eq(v->filled, 77);
}
END_TEST

static bool reads;
static unsigned offers; /* of bytes that were not used */

static ssize_t use_later(struct end *e, const char *at, size_t len)
{
	if (reads)
		return use_all(e, at, len);
	offers++;
	stream_again(e->stream, side.now + TIME_MS);
	return 0;
}

/* The other window is offered when the first is full, though nothing of that was used; and the first once more, as its
 * bytes were copied out. */
START_TEST(test_a_client_writes_into_one_window_while_the_other_waits)
{
	static char sent[3 * WINDOW];
	struct valkey *v;

	reads = false;
	side.bytes = use_later;
	make_random(sent, sizeof(sent));
	v = join();
	write_all(v, sent, WINDOW + WINDOW / 2);
	ck_assert_uint_eq(v->registers, 2);
	write_all(v, sent + WINDOW + WINDOW / 2, WINDOW / 2);
	offers = 0;
	TURN_UNTIL(offers == 3);
	ck_assert_uint_eq(v->registers, 3);
	reads = true;
	write_all(v, sent + 2 * WINDOW, WINDOW);
	TURN_UNTIL(side.end[0].came_len == sizeof(sent));
	ck_assert_mem_eq(side.end[0].came, sent, sizeof(sent));
}
END_TEST

/* Answers each byte with a value from where it is, between small bytes. */
static void release_piece(void *owner, void *item)
{
	struct end *e = owner;

	ck_assert_ptr_eq(item, side.memory);
	e->released++;
}

static size_t value_len;

static ssize_t answer(struct end *e, const char *at, size_t len)
{
	struct stream_piece piece[3] = {{"<", 1, NULL, NULL, NULL},
					{side.memory, value_len, release_piece, e, side.memory},
					{">\r\n", 3, NULL, NULL, NULL}};

	(void)at;
	for (size_t i = 0; i < len; i++)
		stream_write(e->stream, piece, 3);
	e->came_len += len;
	return (ssize_t)len;
}

START_TEST(test_answers_leave_from_where_they_are)
{
	static const size_t lens[] = {1, 64, 250, 1024, 1025, 5000, RX - 4, RX, 3 * RX + 5, MIB};
	struct valkey *v;
	char *heard;

	value_len = lens[_i];
	heard = malloc(40 * (value_len + 4));
	make_random(side.memory, value_len);
	side.bytes = answer;
	v = join();
	write_all(v, "0123456789012345678901234567890123456789", 40);
	read_all(v, heard, 40 * (value_len + 4));
	for (size_t i = 0; i < 40; i++) {
		const char *at = heard + i * (value_len + 4);

		ck_assert_int_eq(at[0], '<');
		ck_assert_mem_eq(at + 1, side.memory, value_len);
		ck_assert_mem_eq(at + 1 + value_len, ">\r\n", 3);
	}
	TURN_UNTIL(side.end[0].released == 40);
	ck_assert_ptr_nonnull(side.end[0].stream);
	free(heard);
}
END_TEST

/* Many requests one by one: a request that does not tell of its end comes back all the same. */
START_TEST(test_a_thousand_small_answers_one_by_one)
{
	struct valkey *v;
	char heard[68];

	value_len = 64;
	side.bytes = answer;
	v = join();
	for (unsigned i = 0; i < 1000; i++) {
		write_all(v, "x", 1);
		read_all(v, heard, sizeof(heard));
	}
	TURN_UNTIL(side.end[0].released == 1000);
}
END_TEST

START_TEST(test_a_client_that_reads_nothing_is_not_read)
{
	struct stream_stats stats;
	struct valkey *v;
	char asks[200] = {0};

	value_len = MIB;
	side.bytes = answer;
	v = join();
	write_all(v, asks, 40);
	settle();
	stream_group_get_stats(side.group, &stats);
	ck_assert_uint_gt(stats.waiting_bytes, 0);
	side.now += STALL + 2 * TIME_S;
	TURN_UNTIL(!side.end[0].stream);
	ck_assert_int_eq(side.end[0].error, -ETIMEDOUT);
	TURN_UNTIL(side.end[0].released == 40);
	TURN_UNTIL(v->over);
}
END_TEST

START_TEST(test_clients_do_not_see_each_other)
{
	struct valkey *v[CLIENTS];

	for (unsigned i = 0; i < CLIENTS; i++)
		v[i] = join();
	for (unsigned k = 0; k < 50; k++)
		for (unsigned i = 0; i < CLIENTS; i++) {
			static char sent[3000];

			memset(sent, 'a' + (int)i, sizeof(sent));
			write_all(v[i], sent, sizeof(sent));
		}
	for (unsigned i = 0; i < CLIENTS; i++) {
		TURN_UNTIL(side.end[i].came_len == 50 * 3000);
		for (size_t k = 0; k < side.end[i].came_len; k++)
			ck_assert_int_eq(side.end[i].came[k], 'a' + (int)i);
	}
}
END_TEST

static ssize_t say_goodbye(struct end *e, const char *at, size_t len)
{
	struct stream_piece piece = {"+OK\r\n", 5, NULL, NULL, NULL};

	(void)at;
	stream_write(e->stream, &piece, 1);
	stream_close(e->stream, 0, "it said goodbye");
	return (ssize_t)len;
}

START_TEST(test_a_close_in_peace_comes_behind_the_last_answer)
{
	struct valkey *v;
	char heard[5];

	side.bytes = say_goodbye;
	v = join();
	write_all(v, "QUIT\r\n", 6);
	TURN_UNTIL(v->over);
	ck_assert_uint_eq(valkey_read(v, heard, sizeof(heard)), 5);
	ck_assert_mem_eq(heard, "+OK\r\n", 5);
	ck_assert_ptr_null(side.end[0].stream);
	ck_assert_int_eq(side.end[0].error, 0);
}
END_TEST

START_TEST(test_a_client_that_leaves_is_heard_to_its_last_byte)
{
	struct valkey *v = join();

	write_all(v, "last", 4);
	TURN_UNTIL(v->under_way == 0);
	fabric_disconnect(v->endpoint);
	TURN_UNTIL(!side.end[0].stream);
	ck_assert_int_eq(side.end[0].error, 0);
	ck_assert_uint_eq(side.end[0].came_len, 4);
}
END_TEST

START_TEST(test_a_silent_client_is_kept_alive)
{
	struct valkey *v = join();

	side.now += 4 * TIME_S;
	ck_assert_uint_le(stream_group_deadline(side.group), side.now);
	TURN_UNTIL(v->keepalives == 1);
	settle();
	ck_assert_uint_eq(v->keepalives, 1);
	side.now += 4 * TIME_S;
	TURN_UNTIL(v->keepalives == 2);
	ck_assert_ptr_nonnull(side.end[0].stream);
}
END_TEST

START_TEST(test_features_are_none)
{
	struct valkey *v = join();

	valkey_message(v, VALKEY_GET_FEATURES, 0x1234, 0);
	TURN_UNTIL(v->features == 1);
	ck_assert_uint_eq(v->select, 0x1234);
	valkey_message(v, VALKEY_SET_FEATURES, 0, 0);
	valkey_message(v, VALKEY_SET_FEATURES, 0, 7);
	valkey_message(v, VALKEY_KEEPALIVE, 0, 0);
	write_all(v, "x", 1);
	TURN_UNTIL(side.end[0].came_len == 1);
	ck_assert_uint_eq(v->features, 1);
}
END_TEST

START_TEST(test_memory_is_bounded_and_comes_back)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	void *window;

	side.budget.limit = 250 * KIB; /* of two clients */
	window = (void *)((uintptr_t)join()->addr & ~(page - 1));
	ck_assert_int_eq(msync(window, page, MS_ASYNC), 0);
	join();
	join_as(false);
	TURN_UNTIL(side.client[2].over);
	ck_assert_int_eq(side.refused, 1);
	fabric_disconnect(side.client[0].endpoint);
	TURN_UNTIL(!side.end[0].stream);
	ck_assert_int_eq(msync(window, page, MS_ASYNC), -1); /* it is no memory any more */
	valkey_close(&side.client[2]);
	side.clients--;
	join();
}
END_TEST

/*
 * Clients that break the protocol: each is cut off, and another goes on.
 */

static void write_past(struct valkey *v)
{
	valkey_write_at(v, v->addr + v->window - 8, v->key, 16, 16);
}

static void write_before(struct valkey *v)
{
	valkey_write_at(v, v->addr - 8, v->key, 16, 16);
}

static void write_by_another_key(struct valkey *v)
{
	valkey_write_at(v, side.client[0].addr, side.client[0].key, 16, 16);
}

static void say_too_much(struct valkey *v)
{
	valkey_write_at(v, v->addr, v->key, 16, v->window + 1);
}

static void say_all(struct valkey *v)
{
	valkey_write_at(v, v->addr, v->key, 16, UINT32_MAX);
}

/* With room for the rest of the window only. */
static void say_more_and_more(struct valkey *v)
{
	valkey_write_at(v, v->addr, v->key, 16, v->window - 1);
	valkey_write_at(v, v->addr, v->key, 16, 2);
}

static void send_short(struct valkey *v)
{
	valkey_send(v, "\0\2", 2);
}

static void send_unknown(struct valkey *v)
{
	valkey_message(v, 4, 0, 0);
}

static void send_free_slot(struct valkey *v)
{
	valkey_message(v, 0xffff, 0, 0);
}

static void register_early(struct valkey *v)
{
	valkey_register(v);
}

static void register_nothing(struct valkey *v)
{
	v->silent = true;
	valkey_register_as(v, (uintptr_t)v->memory, 0, 1);
}

static void flood(struct valkey *v)
{
	for (unsigned i = 0; i < 100; i++)
		valkey_message(v, VALKEY_GET_FEATURES, i, 0);
}

static void flood_with_nothing(struct valkey *v)
{
	for (unsigned i = 0; i < 100; i++)
		valkey_write_at(v, v->addr, v->key, 0, 0);
}

static const struct {
	void (*act)(struct valkey *v);
	bool by_device; /* which refuses it; else what is said of it */
	const char *said;
} acts[] = {
	{write_past, true, ""},
	{write_before, true, ""},
	{write_by_another_key, true, ""},
	{say_too_much, false, "its window has room for 16384"},
	{say_all, false, "its window has room for 16384"},
	{say_more_and_more, false, "its window has room for 1"},
	{send_short, false, "a message of 2 bytes"},
	{send_unknown, false, "unknown kind 4"},
	{send_free_slot, false, "unknown kind 65535"},
	{register_early, false, "registered again"},
	{flood, false, "without need"},
	{flood_with_nothing, false, "without need"},
};

START_TEST(test_a_client_that_breaks_the_protocol_is_cut_off_alone)
{
	struct valkey *good = join(), *bad = join();
	uint64_t used = side.budget.used / 2;

	memset(side.client[0].memory, 'g', 16);
	acts[_i].act(bad);
	TURN_UNTIL(!side.end[1].stream);
	TURN_UNTIL(bad->over);
	ck_assert_msg(strstr(side.end[1].reason, acts[_i].said), "%s", side.end[1].reason);
	ck_assert_uint_eq(side.budget.used, used);
	if (acts[_i].by_device)
		ck_assert_int_eq(bad->status, FABRIC_REMOTE_ACCESS);
	write_all(good, "still here", 10);
	TURN_UNTIL(side.end[0].came_len == 10);
	ck_assert_mem_eq(side.end[0].came, "still here", 10);
}
END_TEST

/* Nothing of what an earlier client wrote. */
START_TEST(test_bytes_that_were_not_written_are_zeros)
{
	static char secret[WINDOW - 1];
	struct valkey *v = join();

	memset(secret, 's', sizeof(secret));
	write_all(v, secret, sizeof(secret));
	TURN_UNTIL(side.end[0].came_len == sizeof(secret));
	fabric_disconnect(v->endpoint);
	TURN_UNTIL(!side.end[0].stream);
	v = join();
	valkey_write_at(v, v->addr, v->key, 0, 100);
	TURN_UNTIL(side.end[1].came_len == 100);
	for (unsigned i = 0; i < 100; i++)
		ck_assert_int_eq(side.end[1].came[i], 0);
}
END_TEST

START_TEST(test_a_client_that_never_registers_is_cut_off)
{
	struct valkey *v = join_as(true);

	TURN_UNTIL(v->registers > 0);
	if (_i)
		register_nothing(v);
	else
		side.now += HANDSHAKE + 2 * TIME_S;
	TURN_UNTIL(!side.end[0].stream);
	ck_assert_ptr_nonnull(strstr(side.end[0].reason, "registered no memory"));
}
END_TEST

/* Not there, longer than it is, beyond the last address, of another key. */
START_TEST(test_a_client_whose_memory_is_wrong_is_cut_off)
{
	struct valkey *good = join(), *v = join_as(true);
	uint64_t here = (uintptr_t)v->memory;
	uint32_t key = fabric_region_rkey(v->region, v->endpoint);
	const struct {
		uint64_t addr;
		uint32_t len, key;
	} wrong[] = {{4096, RX, key}, {here, UINT32_MAX, key}, {UINT64_MAX - 100, RX, key}, {here, RX, key ^ 0x5a5a00}};

	side.bytes = answer;
	value_len = MIB;
	TURN_UNTIL(v->registers > 0);
	valkey_register_as(v, wrong[_i].addr, wrong[_i].len, wrong[_i].key);
	write_all(v, "x", 1);
	TURN_UNTIL(!side.end[1].stream);
	ck_assert_uint_eq(side.end[1].released, 1);
	write_all(good, "x", 1);
	TURN_UNTIL(side.end[0].came_len == 1);
	ck_assert_ptr_nonnull(side.end[0].stream);
}
END_TEST

/*
 * Clients that leave, in each state.
 */

static void leave_when_asked(struct valkey *v)
{
	(void)v;
}

static void leave_when_taken(struct valkey *v)
{
	TURN_UNTIL(side.end[0].stream || v->over);
}

static void leave_when_established(struct valkey *v)
{
	TURN_UNTIL(v->established);
}

static void leave_when_offered(struct valkey *v)
{
	TURN_UNTIL(v->registers > 0);
}

static void leave_with_a_part(struct valkey *v)
{
	static const char zeros[WINDOW / 2];

	leave_when_offered(v);
	write_all(v, zeros, sizeof(zeros));
}

static void leave_with_full_windows(struct valkey *v)
{
	static const char zeros[2 * WINDOW];

	reads = false;
	side.bytes = use_later;
	leave_when_offered(v);
	write_all(v, zeros, sizeof(zeros));
}

/* Pinned values are under way, and more of them wait. */
static void leave_with_answers(struct valkey *v)
{
	value_len = MIB;
	side.bytes = answer;
	leave_when_offered(v);
	write_all(v, "0123", 4);
	TURN_UNTIL(v->came > 0);
}

static const struct {
	void (*until)(struct valkey *v);
	bool silent;
} leaves[] = {
	{leave_when_asked, true},         {leave_when_taken, true},    {leave_when_established, true},
	{leave_when_established, false},  {leave_when_offered, true},  {leave_when_offered, false},
	{leave_with_a_part, true},        {leave_with_a_part, false},  {leave_with_full_windows, true},
	{leave_with_full_windows, false}, {leave_with_answers, false},
};

static unsigned descriptors(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static bool is_alone(void)
{
	struct stream_stats stats;

	stream_group_get_stats(side.group, &stats);
	return !stats.streams && !stats.waiting_bytes && !stats.buffer_bytes && !side.budget.used;
}

/* With a word, or as one whose program was killed. All that it had comes back, each time. */
START_TEST(test_clients_that_leave_leave_nothing)
{
	unsigned rounds = (unsigned)suite_part(1000), before = 0, asked = 0, released = 0;

	for (unsigned i = 0; i < rounds; i++) {
		unsigned way = i % ARRAY_SIZE(leaves);
		struct valkey *v = join_as(leaves[way].silent);

		side.bytes = use_all;
		leaves[way].until(v);
		if (i / ARRAY_SIZE(leaves) % 2) {
			fabric_disconnect(v->endpoint);
			TURN_UNTIL(v->over);
		}
		valkey_close(v);
		side.clients--;
		reads = true;
		TURN_UNTIL(is_alone());
		for (unsigned k = 0; k < side.ends; k++) {
			asked += leaves[way].until == leave_with_answers ? (unsigned)side.end[k].came_len : 0;
			released += side.end[k].released;
			free(side.end[k].came);
			side.end[k] = (struct end){.stream = NULL};
		}
		side.ends = 0;
		if (i == 2 * ARRAY_SIZE(leaves))
			before = descriptors();
	}
	ck_assert_uint_eq(asked, released);
	settle();
	ck_assert(is_alone());
	if (before)
		ck_assert_uint_eq(descriptors(), before);
	ck_assert_int_eq(side.refused, 0);
}
END_TEST

START_TEST(test_a_message_before_the_connection_is_made_counts)
{
	/* The client sends as soon as it is established, which the server may learn later. */
	for (unsigned i = 0; i < CLIENTS; i++) {
		struct valkey *v = join();

		write_all(v, "x", 1);
		TURN_UNTIL(side.end[i].came_len == 1);
	}
}
END_TEST

int main(void)
{
	const char *guest = getenv("RDMAD_GUEST_ADDR");
	Suite *suite = suite_create("stream_rdma");
	TCase *tc = suite_case(suite, "bytes", setup, teardown);

	provider = guest ? "verbs" : "soft";
	if (!inet_aton(guest ? guest : "127.0.0.1", &address))
		return 1;
	tcase_add_loop_test(tc, test_bytes_come_in_order_over_many_windows, 0, 3);
	tcase_add_test(tc, test_a_client_writes_into_one_window_while_the_other_waits);
	tcase_add_test(tc, test_clients_do_not_see_each_other);
	tcase_add_test(tc, test_a_message_before_the_connection_is_made_counts);
	tcase_add_test(tc, test_bytes_that_were_not_written_are_zeros);
	tc = suite_case(suite, "answers", setup, teardown);
	tcase_add_loop_test(tc, test_answers_leave_from_where_they_are, 0, 10);
	tcase_add_test(tc, test_a_thousand_small_answers_one_by_one);
	tcase_add_test(tc, test_a_client_that_reads_nothing_is_not_read);
	tc = suite_case(suite, "end", setup, teardown);
	tcase_add_test(tc, test_a_close_in_peace_comes_behind_the_last_answer);
	tcase_add_test(tc, test_a_client_that_leaves_is_heard_to_its_last_byte);
	tcase_add_test(tc, test_a_silent_client_is_kept_alive);
	tcase_add_test(tc, test_features_are_none);
	tcase_add_test(tc, test_memory_is_bounded_and_comes_back);
	tc = suite_case(suite, "hostile", setup, teardown);
	tcase_add_loop_test(tc, test_a_client_that_breaks_the_protocol_is_cut_off_alone, 0, ARRAY_SIZE(acts));
	tcase_add_loop_test(tc, test_a_client_that_never_registers_is_cut_off, 0, 2);
	tcase_add_loop_test(tc, test_a_client_whose_memory_is_wrong_is_cut_off, 0, 4);
	tc = suite_case(suite, "leave", setup, teardown);
	tcase_add_test(tc, test_clients_that_leave_leave_nothing);
	return suite_run(suite);
}
