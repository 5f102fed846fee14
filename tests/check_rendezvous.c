/*
 * check_rendezvous.c: large values by librdmad, against a server in the same process, which has a thread of its own or,
 * while that is stopped, is turned by the test. Clients without manners are in check_service_rendezvous.c.
 */
#include <pthread.h>
#include <unistd.h>

#include "caller.h"
#include "suite.h"
#include "value.h"

#define TRANSFERS 4 /* of a connection at once: few, so that tests go beyond */
#define LARGEST (8 * MIB)
#define PUSH_MAX 65536
#define PATIENCE (60 * TIME_S)

/*
 * Calls that are counted, of the rooms and of this file.
 */
static _Atomic unsigned allocations, registrations, deregistrations;
static unsigned refuse; /* so many of this thread's registrations to come */
static pthread_t refused;
static _Atomic size_t longest_copy;

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__real_calloc(size_t n, size_t m);
void *__wrap_calloc(size_t n, size_t m);
void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);
void *__real_memcpy(void *to, const void *from, size_t n);
void *__wrap_memcpy(void *to, const void *from, size_t n);
void *__real_memmove(void *to, const void *from, size_t n);
void *__wrap_memmove(void *to, const void *from, size_t n);
int __real_fabric_register(struct fabric_domain *domain, void *addr, size_t len, unsigned access,
			   struct fabric_region **out);
int __wrap_fabric_register(struct fabric_domain *domain, void *addr, size_t len, unsigned access,
			   struct fabric_region **out);
void __real_fabric_deregister(struct fabric_region *region);
void __wrap_fabric_deregister(struct fabric_region *region);

void *__wrap_malloc(size_t n)
{
	allocations++;
	return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t m)
{
	allocations++;
	return __real_calloc(n, m);
}

void *__wrap_realloc(void *p, size_t n)
{
	allocations++;
	return __real_realloc(p, n);
}

void *__wrap_memcpy(void *to, const void *from, size_t n)
{
	if (n > longest_copy)
		longest_copy = n;
	return __real_memcpy(to, from, n);
}

void *__wrap_memmove(void *to, const void *from, size_t n)
{
	if (n > longest_copy)
		longest_copy = n;
	return __real_memmove(to, from, n);
}

int __wrap_fabric_register(struct fabric_domain *domain, void *addr, size_t len, unsigned access,
			   struct fabric_region **out)
{
	int rc;

	if (refuse && pthread_equal(pthread_self(), refused)) {
		refuse--;
		return -ENOMEM;
	}
	rc = __real_fabric_register(domain, addr, len, access, out);
	registrations += rc == 0;
	return rc;
}

void __wrap_fabric_deregister(struct fabric_region *region)
{
	deregistrations += region != NULL;
	__real_fabric_deregister(region);
}

static unsigned registered(void)
{
	return registrations - deregistrations;
}

/*
 * The server
 */
static const struct conn_ops *instead; /* of the service */

static void server_take(struct fabric_event *event)
{
	struct wire_request wire;

	if (wire_request_decode(&wire, event->data, event->data_len) != WIRE_REASON_NONE)
		conn_refuse(event->request, WIRE_REASON_BAD_REQUEST, 0);
	else if (instead)
		conn_accept(server.group, event->request, &wire,
			    &(struct wire_accept){.eager_max = WIRE_EAGER_MAX, .value_max = GIB, .pieces = 4}, NULL,
			    instead, NULL, time_now(), &(struct conn *){NULL});
	else
		services_take(&server.services, server.group, event->request, &wire, WIRE_REASON_NONE);
}

static void start(const char *transport, bool large, uint64_t push_max)
{
	server_start(&(struct server_options){
		.transport = transport,
		.no_large = !large,
		.group.transfers = TRANSFERS,
		.services.push_max = push_max,
		.take = server_take,
	});
}

/* Nobody is connected and no key is left: then nothing is held either. */
static void assert_store_empty(void)
{
	struct store_stats stats = services_store_stats(&server.services);

	ck_assert_uint_eq(stats.pins, 0);
	ck_assert_uint_eq(stats.items, 0);
	ck_assert_uint_eq(stats.bytes_used, 0);
}

/* Writes that were posted before their reader went away complete in the server's own time. */
static void server_rests(void)
{
	uint64_t until = time_now() + PATIENCE;

	server_pause();
	while (conn_group_connections(server.group) || services_store_stats(&server.services).pins) {
		server_turn();
		ck_assert_msg(time_now() < until, "connections or pins are left");
	}
}

static uint8_t *value, *space; /* LARGEST bytes and some each */

static void set_up_memory(void)
{
	value = malloc(LARGEST + 8192);
	space = malloc(LARGEST + 8192);
	ck_assert(value && space);
}

static void set_up(void)
{
	set_up_memory();
	start("tcp", true, 0);
}

static void set_up_unix(void)
{
	set_up_memory();
	start("unix", true, 0);
}

static void set_up_pushed(void)
{
	set_up_memory();
	start("tcp", true, PUSH_MAX);
}

static void set_up_unix_pushed(void)
{
	set_up_memory();
	start("unix", true, PUSH_MAX);
}

static void set_up_rdma(void)
{
	set_up_memory();
	start("rdma", true, PUSH_MAX); /* which that is not told */
}

static void set_up_no_arena(void)
{
	set_up_memory();
	start("tcp", false, 0);
}

static void tear_down(void)
{
	server_stop();
	free(value);
	free(space);
}

/*
 * Sizes
 */
static void set_value(void *kv, const char *key, size_t len, uint64_t seed)
{
	int rc;

	value_fill(value, len, seed);
	rc = kv_set_bytes(kv, key, strlen(key), value, len);
	ck_assert_msg(rc == 0, "set of %zu bytes: %d %s", len, rc, rdmad_error());
}

static void assert_value(void *kv, const char *key, size_t len, uint64_t seed)
{
	size_t got;
	void *back;
	int rc = kv_get_bytes(kv, key, strlen(key), &back, &got);

	ck_assert_msg(rc == 0, "get of %zu bytes: %d %s", len, rc, rdmad_error());
	ck_assert_uint_eq(got, len);
	ck_assert_msg(value_holds(back, len, seed), "%zu bytes are not what was set", len);
	ck_assert_int_eq(((char *)back)[len], 0);
	kv_release(back);
}

static const size_t sizes[] = {
	1,     2,     4090,   4094,   4095,   4096,    4097, 8191,    8192,    8193,        65535,
	65536, 65537, 131071, 131072, 131073, MIB - 1, MIB,  MIB + 1, 2 * MIB, LARGEST - 1, LARGEST,
};

START_TEST(test_sizes)
{
	struct rdmad_options options = {.eager_limit = (uint32_t)_i};
	void *a = open_kv(&options, NULL), *b = open_kv(NULL, NULL), *c = open_kv(NULL, NULL);

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		set_value(a, "k", sizes[i], i);
		assert_value(a, "k", sizes[i], i);
		assert_value(b, "k", sizes[i], i); /* what it remembers is the size before */
		kv_close(c);
		c = open_kv(NULL, NULL);
		assert_value(c, "k", sizes[i], i); /* it remembers nothing */
	}
	for (size_t i = ARRAY_SIZE(sizes); i-- > 0;) {
		set_value(a, "k", sizes[i], i);
		assert_value(b, "k", sizes[i], i);
	}
	ck_assert_int_eq(kv_delete(a, "k", 1), 1);
	kv_close(a);
	kv_close(b);
	kv_close(c);
	server_rests();
	assert_store_empty();
}
END_TEST

/*
 * Many at once
 */
struct call {
	unsigned called;
	int status;
	size_t len;
	const void *at;
	uint64_t seed; /* of the value that a get must bring */
	size_t want;
	bool whole;
};

static unsigned total;

static void done(void *arg, int status, const void *bytes, size_t len)
{
	struct call *call = arg;

	call->called++;
	call->status = status;
	call->len = len;
	call->at = bytes;
	call->whole = bytes && len == call->want && value_holds(bytes, len, call->seed);
	total++;
}

static void ignored(void *arg, const struct kv_result *result)
{
	(void)arg;
	(void)result;
}

static void assert_done(const struct call *call, int status)
{
	ck_assert_uint_eq(call->called, 1);
	ck_assert_int_eq(call->status, status);
}

static void assert_brought(const struct call *call)
{
	assert_done(call, 0);
	ck_assert_uint_eq(call->len, call->want);
	ck_assert(call->whole);
}

#define SUBMIT(kv, call)                                                                                               \
	do {                                                                                                           \
		int rc_;                                                                                               \
		while ((rc_ = (call)) == -EAGAIN)                                                                      \
			ck_assert_int_ge(kv_progress(kv, 10000000), 0);                                                \
		ck_assert_msg(rc_ == 0, #call ": %d %s", rc_, rdmad_error());                                          \
	} while (0)

#define MANY 96
#define EACH 40000

/* More than the server fetches at once, by two clients, with small requests between them. */
START_TEST(test_many_outstanding)
{
	static struct call set[2][MANY], get[2][MANY], small[2][MANY];
	static uint8_t values[2][MANY][EACH];
	void *kv[2] = {open_kv(NULL, NULL), open_kv(NULL, NULL)};
	char key[16], small_key[16];

	memset(set, 0, sizeof(set));
	for (unsigned i = 0; i < MANY; i++) {
		for (unsigned k = 0; k < 2; k++) {
			snprintf(key, sizeof(key), "key%u-%03u", k, i);
			snprintf(small_key, sizeof(small_key), "small%u", k);
			value_fill(values[k][i], EACH, k * MANY + i);
			small[k][i] = (struct call){.want = 100, .seed = i};
			get[k][i] = (struct call){.want = EACH, .seed = k * MANY + i};
			SUBMIT(kv[k], kv_submit_set(kv[k], key, 8, values[k][i], EACH, done, &set[k][i]));
			value_fill(space, 100, i);
			SUBMIT(kv[k], kv_submit_set(kv[k], small_key, 6, space, 100, done, &set[k][0]));
			SUBMIT(kv[k], kv_submit_get(kv[k], small_key, 6, done, &small[k][i]));
			SUBMIT(kv[k], kv_submit_get(kv[k], key, 8, done, &get[k][i]));
		}
	}
	for (unsigned k = 0; k < 2; k++)
		ck_assert_int_eq(kv_wait(kv[k]), 0);
	for (unsigned k = 0; k < 2; k++) {
		for (unsigned i = 0; i < MANY; i++) {
			ck_assert_int_eq(set[k][i].status, 0);
			assert_brought(&get[k][i]);
			assert_brought(&small[k][i]);
		}
		kv_close(kv[k]);
	}
	server_rests();
}
END_TEST

/* Requests for one key are carried out in their order, whatever way each takes. */
START_TEST(test_order_of_a_key)
{
	static struct call set, get[120];
	static uint8_t values[120][20000];
	void *kv = open_kv(NULL, NULL);

	for (unsigned i = 0; i < ARRAY_SIZE(get); i++) {
		size_t len = i % 3 == 0 ? 100 + i : 5000 + 100 * i;

		value_fill(values[i], len, i);
		get[i] = (struct call){.want = len, .seed = i};
		SUBMIT(kv, kv_submit_set(kv, "k", 1, values[i], len, done, &set));
		SUBMIT(kv, kv_submit_get(kv, "k", 1, done, &get[i]));
	}
	SUBMIT(kv, kv_submit_set(kv, "k", 1, values[0], 20000, done, &set));
	SUBMIT(kv, kv_submit_delete(kv, "k", 1, done, &set));
	ck_assert_int_eq(kv_wait(kv), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(get); i++)
		assert_brought(&get[i]);
	ck_assert_int_eq(set.status, 0);
	kv_close(kv);
	server_rests();
	assert_store_empty();
}
END_TEST

/* Writes of all kinds, of the key of a get that does not know how long its value is: what comes behind it, it does not see. */
static void write_behind(void *kv, unsigned kind, const uint8_t *bytes, size_t len)
{
	static const struct kv_fetch and_delete = {.length = 10, .then = KV_THEN_DELETE};
	static char part[10];

	switch (kind) {
	case 0: /* small or large, see test_order_of_a_get() */
		SUBMIT(kv, kv_submit_set(kv, "k", 1, bytes, len, NULL, NULL));
		break;
	case 1:
		SUBMIT(kv, kv_submit_delete(kv, "k", 1, NULL, NULL));
		break;
	case 2:
		SUBMIT(kv, kv_submit_append(kv, "k", 1, bytes, 10, ignored, NULL));
		break;
	case 3:
		SUBMIT(kv, kv_submit_fetch(kv, "k", 1, &and_delete, part, sizeof(part), ignored, NULL));
		break;
	case 4:
		SUBMIT(kv, kv_submit_put(kv, "k", 1, bytes, len, NULL, ignored, NULL));
		break;
	}
}

START_TEST(test_order_of_a_get)
{
	static const size_t lengths[] = {100, 20000, 70000, 300000};
	static uint8_t other[300000];
	void *a = open_kv(NULL, NULL), *b;

	for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
		struct call get = {.want = 200000, .seed = i}, last = {.want = lengths[i], .seed = 50 + i};

		set_value(a, "k", get.want, get.seed);
		value_fill(other, lengths[i], 50 + i);
		b = open_kv(NULL, NULL);
		SUBMIT(b, kv_submit_get(b, "k", 1, done, &get));
		write_behind(b, (unsigned)_i, other, lengths[i]);
		if (_i != 0)
			write_behind(b, 0, other, lengths[i]);
		SUBMIT(b, kv_submit_get(b, "k", 1, done, &last));
		ck_assert_int_eq(kv_wait(b), 0);
		assert_brought(&get);
		assert_brought(&last);
		kv_close(b);
	}
	ck_assert_int_eq(kv_delete(a, "k", 1), 1);
	kv_close(a);
	server_rests();
	assert_store_empty();
}
END_TEST

/* Many of them, so that there is no room for all at once. */
START_TEST(test_order_of_gets)
{
	static struct call get[300];
	static uint8_t other[30000];
	void *a = open_kv(NULL, NULL), *b = open_kv(NULL, NULL);
	char key[8];

	for (unsigned i = 0; i < ARRAY_SIZE(get); i++) {
		snprintf(key, sizeof(key), "%u", i);
		get[i] = (struct call){.want = 5000 + 100 * i, .seed = i};
		set_value(a, key, get[i].want, i);
	}
	value_fill(other, sizeof(other), 1000);
	for (unsigned i = 0; i < ARRAY_SIZE(get); i++) {
		snprintf(key, sizeof(key), "%u", i);
		SUBMIT(b, kv_submit_get(b, key, strlen(key), done, &get[i]));
		SUBMIT(b, kv_submit_set(b, key, strlen(key), other, i & 1 ? 100 : sizeof(other), NULL, NULL));
	}
	ck_assert_int_eq(kv_wait(b), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(get); i++)
		assert_brought(&get[i]);
	kv_close(a);
	kv_close(b);
}
END_TEST

/* Keys that somebody has chosen because they share a hash that is not seeded: of FNV-1a, both have 0. */
START_TEST(test_order_of_chosen_keys)
{
	static const char key[9] = "\xd5\x6b\xb9\x53\x42\x87\x08\x36";
	struct call get = {.want = 200000, .seed = 1};
	void *a = open_kv(NULL, NULL), *b = open_kv(NULL, NULL);

	for (size_t len = 8; len <= 9; len++) {
		value_fill(value, get.want, len - 7);
		ck_assert_int_eq(kv_set_bytes(a, key, len, value, get.want), 0);
	}
	SUBMIT(b, kv_submit_get(b, key, 8, done, &get));
	SUBMIT(b, kv_submit_set(b, key, 9, value, 100, NULL, NULL));
	ck_assert_int_eq(kv_wait(b), 0);
	assert_brought(&get);
	kv_close(a);
	kv_close(b);
}
END_TEST

/* A get that was given up meanwhile keeps nothing of the server's. */
START_TEST(test_order_given_up)
{
	struct call get = {0}, last = {.want = 100, .seed = 2};
	void *a = open_kv(NULL, NULL), *b = open_kv(NULL, NULL);
	uint64_t until = time_now() + PATIENCE;

	set_value(a, "k", 200000, 1);
	value_fill(value, 100, 2);
	server_pause();
	ck_assert_int_eq(kv_submit_get(b, "k", 1, done, &get), 0);
	ck_assert_int_eq(kv_cancel(b, &get), 1);
	assert_done(&get, -ECANCELED);
	ck_assert_int_eq(kv_submit_set(b, "k", 1, value, 100, NULL, NULL), 0);
	ck_assert_int_eq(kv_submit_get(b, "k", 1, done, &last), 0);
	while (kv_outstanding(b) || services_store_stats(&server.services).pins) {
		server_turn();
		ck_assert_int_ge(kv_progress(b, 0), 0);
		ck_assert(time_now() < until);
	}
	assert_brought(&last);
	server_resume();
	kv_close(a);
	kv_close(b);
}
END_TEST

/*
 * Prices
 */
static uint64_t records_taken(void)
{
	struct conn_group_stats stats;

	conn_group_get_stats(server.group, &stats);
	return stats.records_in;
}

/* With nobody else at work: turns of both until `calls` more were called back. Allocates nothing itself. */
static void turn_until(void *kv, unsigned calls)
{
	while (total < calls) {
		server_turn();
		if (kv_progress(kv, 0) < 0)
			abort();
	}
}

static unsigned records_of_get(void *kv, size_t want, uint64_t seed)
{
	uint64_t before = records_taken();
	struct call call = {.want = want, .seed = seed};

	ck_assert_int_eq(kv_submit_get(kv, "k", 1, done, &call), 0);
	turn_until(kv, total + 1);
	assert_brought(&call);
	return (unsigned)(records_taken() - before);
}

START_TEST(test_round_trips)
{
	void *a = open_kv(NULL, NULL), *b = open_kv(NULL, NULL);
	uint64_t before;

	server_pause();
	before = records_taken();
	server_resume();
	set_value(a, "k", 20000, 1);
	server_pause();
	ck_assert_uint_eq(records_taken() - before, 1);
	ck_assert_uint_eq(records_of_get(a, 20000, 1), 1); /* it set the value itself */
	ck_assert_uint_eq(records_of_get(b, 20000, 1), 2); /* it could not know */
	ck_assert_uint_eq(records_of_get(b, 20000, 1), 1);
	server_resume();
	set_value(a, "k", 32768, 2); /* just what the buffer holds that b will lend */
	server_pause();
	ck_assert_uint_eq(records_of_get(b, 32768, 2), 1);
	server_resume();
	set_value(a, "k", 32769, 3);
	server_pause();
	ck_assert_uint_eq(records_of_get(b, 32769, 3), 2);
	ck_assert_uint_eq(records_of_get(b, 32769, 3), 1);
	server_resume();
	kv_close(a);
	kv_close(b);
}
END_TEST

/* A set and a get of a value in memory that the library lends, warmed up before. */
static void set_and_get(void *kv, const void *bytes, size_t len, struct call *get)
{
	static struct call set;

	get->called = 0;
	if (kv_submit_set(kv, "k", 1, bytes, len, done, &set) != 0 || kv_submit_get(kv, "k", 1, done, get) != 0)
		abort();
	turn_until(kv, total + 2);
}

START_TEST(test_no_allocation)
{
	struct call get = {.want = 100000, .seed = 5};
	void *kv = open_kv(NULL, NULL), *lent;
	unsigned allocated, registered_before;

	ck_assert_int_eq(kv_buffer_lend(kv, get.want, &lent), 0);
	value_fill(lent, get.want, get.seed);
	server_pause();
	for (unsigned i = 0; i < 8; i++)
		set_and_get(kv, lent, get.want, &get);
	allocated = allocations;
	registered_before = registrations;
	for (unsigned i = 0; i < 64; i++)
		set_and_get(kv, lent, get.want, &get);
	allocated = allocations - allocated;
	registered_before = registrations - registered_before;
	assert_brought(&get);
	/* Though the get waits for the set of the same key, parked. */
	ck_assert_uint_eq(allocated, 0);
	ck_assert_uint_eq(registered_before, 0);
	kv_release(lent);
	server_resume();
	kv_close(kv);
}
END_TEST

START_TEST(test_no_copy)
{
	struct call get = {.want = MIB, .seed = 6};
	void *kv = open_kv(NULL, NULL), *lent;
	size_t small, large;

	ck_assert_int_eq(kv_buffer_lend(kv, MIB, &lent), 0);
	value_fill(lent, MIB, get.seed);
	server_pause();
	longest_copy = 0;
	get.want = 3000;
	set_and_get(kv, lent, 3000, &get);
	small = longest_copy;
	longest_copy = 0;
	get.want = MIB;
	set_and_get(kv, lent, MIB, &get);
	large = longest_copy;
	assert_brought(&get);
	ck_assert_uint_ge(small, 3000); /* copies are seen */
	ck_assert_uint_le(large, 4096);
	kv_release(lent);
	server_resume();
	kv_close(kv);
}
END_TEST

/* Requests in flight in one message, which the client sends by one call. */
static void set_many(void *kv)
{
	static const char bytes[64];
	static struct call set;
	char key[8];

	for (unsigned i = 0; i < 64; i++) {
		snprintf(key, sizeof(key), "many%02u", i);
		ck_assert_int_eq(kv_submit_set(kv, key, 6, bytes, sizeof(bytes), done, &set), 0);
	}
	turn_until(kv, total + 64);
}

/* They also come by one call, which a copy from where it left them shows, while no large value does. */
START_TEST(test_small_in_a_row)
{
	struct call get = {.want = MIB, .seed = 6};
	void *kv = open_kv(NULL, NULL), *lent;

	ck_assert_int_eq(kv_buffer_lend(kv, MIB, &lent), 0);
	value_fill(lent, MIB, get.seed);
	server_pause();
	longest_copy = 0;
	for (unsigned i = 0; i < 8; i++)
		set_many(kv);
	ck_assert_uint_le(longest_copy, 4096);
	for (unsigned i = 0; i < 512; i++)
		set_many(kv);
	longest_copy = 0;
	set_many(kv);
	if (strcmp(kv_transport(kv), "rdma") != 0) /* a device brings each by itself */
		ck_assert_uint_ge(longest_copy, 64 * (6 + 64));
	set_and_get(kv, lent, MIB, &get);
	longest_copy = 0;
	set_many(kv);
	set_and_get(kv, lent, MIB, &get);
	assert_brought(&get);
	ck_assert_uint_le(longest_copy, 4096);
	kv_release(lent);
	server_resume();
	kv_close(kv);
}
END_TEST

/*
 * Values that go with their message
 */
static uint64_t reads_of_server(void)
{
	return server.services.kv->count[KV_COUNT_READS];
}

/* One record each way, whatever the client knows, and the server fetches nothing. */
START_TEST(test_pushed)
{
	struct call get = {.want = PUSH_MAX, .seed = 1};
	void *a = open_kv(NULL, NULL), *b = open_kv(NULL, NULL);

	set_value(a, "k", PUSH_MAX, 1);
	server_pause();
	ck_assert_uint_eq(reads_of_server(), 0);
	ck_assert_uint_eq(records_of_get(b, PUSH_MAX, 1), 1);
	/* So it comes before what was submitted behind it. */
	ck_assert_int_eq(kv_submit_get(b, "k", 1, done, &get), 0);
	ck_assert_int_eq(kv_submit_delete(b, "k", 1, NULL, NULL), 0);
	turn_until(b, total + 1);
	assert_brought(&get);
	server_resume();
	ck_assert_int_eq(kv_wait(b), 0);
	set_value(a, "k", PUSH_MAX + 1, 2);
	server_pause();
	ck_assert_uint_eq(reads_of_server(), 1);
	ck_assert_uint_eq(records_of_get(b, PUSH_MAX + 1, 2), 2);
	server_resume();
	kv_close(a);
	kv_close(b);
}
END_TEST

/* Nothing is allocated, and no byte copied but what came with a header. */
START_TEST(test_pushed_price)
{
	struct call get = {.want = 60000, .seed = 5};
	void *kv = open_kv(NULL, NULL), *lent;
	unsigned allocated;

	ck_assert_int_eq(kv_buffer_lend(kv, get.want, &lent), 0);
	value_fill(lent, get.want, get.seed);
	server_pause();
	for (unsigned i = 0; i < 8; i++)
		set_and_get(kv, lent, get.want, &get);
	longest_copy = 0;
	allocated = allocations;
	for (unsigned i = 0; i < 64; i++)
		set_and_get(kv, lent, get.want, &get);
	allocated = allocations - allocated;
	assert_brought(&get);
	ck_assert_uint_eq(allocated, 0);
	ck_assert_uint_le(longest_copy, 4096 + 24);
	kv_release(lent);
	server_resume();
	kv_close(kv);
}
END_TEST

static uint64_t messages_of_server(void)
{
	struct conn_group_stats stats;

	server_pause();
	conn_group_get_stats(server.group, &stats);
	return stats.messages_out;
}

/* Requests that are at hand together are answered together, though each brings a value. */
START_TEST(test_pushed_in_a_row)
{
	void *kv = open_kv(NULL, NULL);
	char bytes[5000], key[8][2];
	uint64_t before = messages_of_server();

	value_fill(bytes, sizeof(bytes), 1);
	for (unsigned i = 0; i < ARRAY_SIZE(key); i++) {
		snprintf(key[i], sizeof(key[i]), "%u", i);
		ck_assert_int_eq(kv_submit_set(kv, key[i], 1, bytes, sizeof(bytes), NULL, NULL), 0);
		ck_assert_int_eq(kv_flush(kv), 0);
	}
	server_resume();
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert_uint_le(messages_of_server() - before, ARRAY_SIZE(key) / 2);
	server_resume();
	kv_close(kv);
}
END_TEST

/* What a server does not want, it drops: the connection goes on. */
START_TEST(test_pushed_and_refused)
{
	struct kv_put_options absent = {.condition = KV_IF_ABSENT};
	void *kv = open_kv(NULL, NULL);

	set_value(kv, "k", 100, 1);
	value_fill(value, 50000, 2);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(kv_put(kv, "k", 1, value, 50000, &absent, NULL), -EEXIST);
	assert_value(kv, "k", 100, 1);
	set_value(kv, "k", 50000, 2);
	assert_value(kv, "k", 50000, 2);
	kv_close(kv);
}
END_TEST

/*
 * Memory
 */
START_TEST(test_register)
{
	void *kv = open_kv(NULL, NULL), *lent, *again;
	struct call set = {0};
	unsigned before;

	ck_assert_int_eq(kv_buffer_register(kv, value, 1 << 16), 0);
	before = registrations;
	for (unsigned i = 0; i < 3; i++)
		set_value(kv, "k", 1 << 16, i);
	ck_assert_uint_eq(registrations, before);
	ASSERT_ERROR(kv_buffer_register(kv, value, 1 << 16), -EEXIST, "already");
	ASSERT_ERROR(kv_buffer_register(kv, value + 100, 10), -EEXIST, "already");
	ASSERT_ERROR(kv_buffer_register(kv, value + (1 << 16) - 1, 4096), -EEXIST, "already");
	ck_assert_int_eq(kv_buffer_register(kv, value + (1 << 16), 4096), 0);
	ck_assert_int_eq(kv_buffer_unregister(kv, value + (1 << 16)), 0);
	ASSERT_ERROR(kv_buffer_unregister(kv, value + 1), -ENOENT, "no memory");
	server_pause();
	ck_assert_int_eq(kv_submit_set(kv, "k", 1, value + 1000, 5000, done, &set), 0);
	ASSERT_ERROR(kv_buffer_unregister(kv, value), -EBUSY, "outstanding");
	server_resume();
	ck_assert_int_eq(kv_wait(kv), 0);
	assert_done(&set, 0);
	ck_assert_int_eq(kv_buffer_unregister(kv, value), 0);
	ASSERT_ERROR(kv_buffer_unregister(kv, value), -ENOENT, "no memory");
	ASSERT_ERROR(kv_buffer_unregister(NULL, value), -EINVAL, "handle");
	ASSERT_ERROR(kv_buffer_register(kv, NULL, 1), -EINVAL, "address");
	ck_assert_int_eq(kv_buffer_lend(kv, 5000, &lent), 0);
	ASSERT_ERROR(kv_buffer_unregister(kv, lent), -ENOENT, "no memory");
	ASSERT_ERROR(kv_buffer_register(kv, lent, 10), -EEXIST, "already");
	kv_release(lent);
	ck_assert_int_eq(kv_buffer_lend(kv, 8192, &again), 0);
	ck_assert_ptr_eq(lent, again); /* kept for the next request */
	kv_release(again);
	kv_close(kv);
}
END_TEST

/* What is kept for later makes room for what is needed now. */
START_TEST(test_kept_buffers_give_way)
{
	void *kv = open_kv(NULL, NULL), *lent;
	unsigned before = registered();

	refused = pthread_self();
	ck_assert_int_eq(kv_buffer_lend(kv, 1 << 20, &lent), 0);
	kv_release(lent);
	ck_assert_uint_eq(registered(), before + 1);
	refuse = 1;
	ck_assert_int_eq(kv_buffer_register(kv, value, 1 << 16), 0);
	ck_assert_uint_eq(registered(), before + 1); /* the kept one went */
	refuse = 1;
	ASSERT_ERROR(kv_buffer_register(kv, value + (1 << 16), 4096), -ENOMEM, "");
	ck_assert_uint_eq(refuse, 0);
	kv_close(kv);
}
END_TEST

/* Beyond what is kept in all, the longest unused buffers go, and the one that was used last stays. */
START_TEST(test_longest_unused_goes)
{
	void *kv = open_kv(NULL, NULL), *lent[3];
	unsigned before = registered();

	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(kv_buffer_lend(kv, i < 2 ? 128 * MIB : 4096, &lent[i]), 0);
	for (unsigned i = 0; i < 3; i++)
		kv_release(lent[i]);
	ck_assert_uint_eq(registered(), before + 2);
	ck_assert_int_eq(kv_buffer_lend(kv, 4096, &lent[2]), 0);
	ck_assert_int_eq(kv_buffer_lend(kv, 128 * MIB, &lent[1]), 0);
	ck_assert_uint_eq(registered(), before + 2);
	kv_release(lent[1]);
	kv_release(lent[2]);
	kv_close(kv);
}
END_TEST

/* What was registered for one request is not reachable when it has called back. */
START_TEST(test_temporary_registration)
{
	void *kv = open_kv(NULL, NULL);
	struct call get = {.want = 100000, .seed = 3};
	unsigned before;

	set_value(kv, "warm", 100000, 1);
	assert_value(kv, "warm", 100000, 1);
	before = registered();
	set_value(kv, "k", 100000, 3);
	ck_assert_uint_eq(registered(), before);
	ck_assert_int_eq(kv_submit_get_into(kv, "k", 1, space, 100000, done, &get), 0);
	ck_assert_uint_eq(registered(), before + 1);
	ck_assert_int_eq(kv_wait(kv), 0);
	assert_brought(&get);
	ck_assert_ptr_eq(get.at, space);
	ck_assert_uint_eq(registered(), before);
	kv_close(kv);
}
END_TEST

START_TEST(test_get_into)
{
	static const size_t lengths[] = {10, 3000, 4096, 5000, 100000};
	void *kv = open_kv(NULL, NULL);
	char key[8];

	for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
		size_t len = lengths[i];
		struct call fits = {.want = len, .seed = i}, exact = fits, over = fits, none = fits;

		snprintf(key, sizeof(key), "k%u", i);
		set_value(kv, key, len, i);
		memset(space, 0xee, len + 8);
		ck_assert_int_eq(kv_submit_get_into(kv, key, 2, space, len - 1, done, &over), 0);
		ck_assert_int_eq(kv_wait(kv), 0);
		assert_done(&over, -EMSGSIZE);
		ck_assert_uint_eq(over.len, len);
		for (size_t at = 0; at < len + 8; at++)
			ck_assert_uint_eq(space[at], 0xee);
		ck_assert_int_eq(kv_submit_get_into(kv, key, 2, space, len, done, &exact), 0);
		ck_assert_int_eq(kv_wait(kv), 0);
		assert_brought(&exact);
		ck_assert_uint_eq(space[len], 0xee);
		ck_assert_int_eq(kv_submit_get_into(kv, key, 2, space, LARGEST, done, &fits), 0);
		ck_assert_int_eq(kv_submit_get_into(kv, "none", 4, value, LARGEST, done, &none), 0);
		ck_assert_int_eq(kv_wait(kv), 0);
		assert_brought(&fits);
		assert_done(&none, -ENOENT);
	}
	kv_close(kv);
}
END_TEST

/* Answers in front of it take the message's room: it is told to nobody as too large. */
START_TEST(test_get_into_behind_others)
{
	static uint8_t into[16][3000];
	static struct call get[16];
	void *kv = open_kv(NULL, NULL);

	set_value(kv, "k", 3000, 9);
	for (unsigned i = 0; i < 16; i++) {
		get[i] = (struct call){.want = 3000, .seed = 9};
		ck_assert_int_eq(kv_submit_get_into(kv, "k", 1, into[i], 3000, done, &get[i]), 0);
	}
	ck_assert_int_eq(kv_wait(kv), 0);
	for (unsigned i = 0; i < 16; i++)
		assert_brought(&get[i]);
	kv_close(kv);
}
END_TEST

START_TEST(test_value_outlives_the_handle)
{
	void *kv = open_kv(NULL, NULL), *large, *small, *lent;
	unsigned before = registered();
	size_t len;

	set_value(kv, "large", 100000, 1);
	set_value(kv, "small", 10, 2);
	ck_assert_int_eq(kv_get_bytes(kv, "large", 5, &large, &len), 0);
	ck_assert_int_eq(kv_get_bytes(kv, "small", 5, &small, &len), 0);
	ck_assert_int_eq(kv_buffer_lend(kv, 1, &lent), 0);
	kv_close(kv);
	ck_assert_uint_lt(registered(), before); /* the server's way to them is gone */
	ck_assert(value_holds(large, 100000, 1));
	ck_assert(value_holds(small, 10, 2));
	memset(lent, 1, 4096);
	kv_release(large);
	kv_release(small);
	kv_release(lent);
}
END_TEST

/* Another client sets what this one remembers by another size: each get brings the value that is there. */
START_TEST(test_remembered_size_is_wrong)
{
	static const size_t after[] = {1, 100, 4000, 4096, 4097, 5001, 8191, 8192, 8193, 1000000};
	void *a = open_kv(NULL, NULL), *b = open_kv(NULL, NULL);

	for (unsigned i = 0; i < ARRAY_SIZE(after); i++) {
		set_value(a, "k", 5000, 100 + i);
		assert_value(a, "k", 5000, 100 + i);
		set_value(b, "k", after[i], i);
		assert_value(a, "k", after[i], i);
		assert_value(a, "k", after[i], i);
	}
	kv_close(a);
	kv_close(b);
}
END_TEST

/* Who was told that there was no answer in time may free the value. */
START_TEST(test_timeout_revokes)
{
	struct rdmad_options options = {.timeout_us = 20000};
	void *kv = open_kv(&options, NULL), *other = open_kv(NULL, NULL);
	unsigned before = registered();
	uint64_t until = time_now() + PATIENCE;

	set_value(other, "k", 10, 1);
	server_pause();
	ASSERT_ERROR(kv_set_bytes(kv, "k", 1, value, 100000), -ETIMEDOUT, "20 ms");
	ck_assert_uint_eq(registered(), before);
	server_resume();
	while (kv_progress(kv, 10000) != -ENOTCONN) /* its read was refused, and that ends the connection */
		ck_assert(time_now() < until);
	assert_value(other, "k", 10, 1);
	kv_close(kv);
	kv_close(other);
	server_rests();
}
END_TEST

/*
 * One value or the other
 */
#define CLIENTS 3

static _Atomic bool stop_readers;

static size_t length_of(unsigned writer, unsigned i)
{
	static const size_t lengths[] = {100, 5000, 300000, 4096, 70000};

	return lengths[(writer + i) % ARRAY_SIZE(lengths)];
}

/* The first word of a value is its seed, and the rest follows from it. */
static void *write_often(void *arg)
{
	unsigned writer = (unsigned)(uintptr_t)arg;
	uint64_t *bytes = malloc(300000);
	void *kv = open_kv(NULL, NULL);

	for (unsigned i = 0; i < 60; i++) {
		size_t len = length_of(writer, i);

		bytes[0] = (uint64_t)writer << 32 | i;
		value_fill(bytes + 1, len - 8, bytes[0]);
		ck_assert_int_eq(kv_set_bytes(kv, "shared", 6, bytes, len), 0);
		if (i % 16 == 15)
			ck_assert_int_ge(kv_delete(kv, "shared", 6), 0);
	}
	kv_close(kv);
	free(bytes);
	return NULL;
}

static void *read_often(void *arg)
{
	void *kv = open_kv(NULL, NULL), *got;
	size_t len;

	while (!stop_readers) {
		int rc = kv_get_bytes(kv, "shared", 6, &got, &len);
		uint64_t seed;

		if (rc == -ENOENT)
			continue;
		ck_assert_int_eq(rc, 0);
		__builtin_memcpy(&seed, got, 8);
		ck_assert_uint_eq(len, length_of((unsigned)(seed >> 32), (unsigned)seed));
		ck_assert_msg(value_holds((char *)got + 8, len - 8, seed), "a mix of two values");
		kv_release(got);
	}
	kv_close(kv);
	return arg;
}

START_TEST(test_whole_values)
{
	pthread_t writer[CLIENTS], reader[2];
	void *kv;

	for (uintptr_t i = 0; i < 2; i++)
		pthread_create(&reader[i], NULL, read_often, NULL);
	for (uintptr_t i = 0; i < CLIENTS; i++)
		pthread_create(&writer[i], NULL, write_often, (void *)i);
	for (unsigned i = 0; i < CLIENTS; i++)
		pthread_join(writer[i], NULL);
	stop_readers = true;
	for (unsigned i = 0; i < 2; i++)
		pthread_join(reader[i], NULL);
	kv = open_kv(NULL, NULL);
	ck_assert_int_ge(kv_delete(kv, "shared", 6), 0);
	kv_close(kv);
	server_rests();
	assert_store_empty();
}
END_TEST

/* Deleted and set anew while it is on the way: the get brings what it found. */
START_TEST(test_delete_while_sent)
{
	struct call get = {.want = LARGEST, .seed = 1};
	void *kv = open_kv(NULL, NULL), *other = open_kv(NULL, NULL);
	unsigned calls = total + 1;

	set_value(kv, "k", LARGEST, 1);
	server_pause();
	ck_assert_int_eq(kv_submit_get(kv, "k", 1, done, &get), 0);
	ck_assert_int_eq(kv_flush(kv), 0);
	while (services_store_stats(&server.services).pins == 0)
		server_turn();
	server_resume();
	ck_assert_int_eq(kv_delete(other, "k", 1), 1);
	set_value(other, "k", 100, 2);
	while (total < calls)
		ck_assert_int_ge(kv_progress(kv, 1000000), 0);
	assert_brought(&get);
	assert_value(kv, "k", 100, 2);
	ck_assert_int_eq(kv_delete(kv, "k", 1), 1);
	kv_close(kv);
	kv_close(other);
	server_rests();
	assert_store_empty();
}
END_TEST

/* A handle that is closed, and a server that dies, with transfers under way: each calls back once. */
START_TEST(test_close_in_between)
{
	struct call calls[12] = {0};
	void *kv = open_kv(NULL, NULL);
	unsigned before = registered();

	set_value(kv, "k", MIB, 1);
	server_pause();
	for (unsigned i = 0; i < 12; i++) {
		if (i % 2)
			ck_assert_int_eq(kv_submit_get(kv, "k", 1, done, &calls[i]), 0);
		else
			ck_assert_int_eq(kv_submit_set(kv, &(char){(char)i}, 1, value, MIB, done, &calls[i]), 0);
	}
	for (int i = 0; i < _i; i++) {
		kv_flush(kv);
		server_turn();
		kv_progress(kv, 0);
	}
	server_resume();
	kv_close(kv);
	for (unsigned i = 0; i < 12; i++)
		ck_assert_uint_eq(calls[i].called, 1);
	ck_assert_uint_le(registered(), before);
	server_rests();
}
END_TEST

START_TEST(test_no_callback)
{
	void *kv = open_kv(NULL, NULL);

	value_fill(value, 5000, 1);
	ck_assert_int_eq(kv_submit_set(kv, "k", 1, value, 5000, NULL, NULL), 0);
	ck_assert_int_eq(kv_submit_set(kv, "s", 1, value, 50, NULL, NULL), 0);
	ck_assert_int_eq(kv_submit_get(kv, "k", 1, NULL, NULL), 0);
	ck_assert_int_eq(kv_wait(kv), 0);
	assert_value(kv, "k", 5000, 1);
	assert_value(kv, "s", 50, 1);
	kv_close(kv);
}
END_TEST

/*
 * Values in pieces
 */
#define GAP 16 /* between two of them */

static const struct shape {
	unsigned count;
	size_t length[8];
} shapes[] = {
	{1, {10}},
	{4, {0, 100, 0, 1}},
	{2, {4000, 90}},
	{3, {4096, 1, 4096}},
	{2, {1, 5000}},
	{1, {20000}},
	{3, {64, 100000, 16}},
	{7, {3, 3, 5000, 3, 0, 4097, 3}}, /* 5 ranges: more than the server takes, as below */
	{5, {5000, 6000, 7000, 8000, 9000}},
	{8, {4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096}},
	{4, {MIB, 4097, 70000, 2 * MIB}},
};
static struct iovec pieces[8];
static uint8_t *edge;

/* Lays the pieces out in `space`, all 0xee to a gap behind them. Their sum. */
static size_t lay_out(const struct shape *shape)
{
	uint8_t *at = space + GAP;

	for (unsigned i = 0; i < shape->count; at += shape->length[i++] + GAP)
		pieces[i] = (struct iovec){at, shape->length[i]};
	edge = at;
	memset(space, 0xee, (size_t)(edge - space));
	return (size_t)(edge - space) - (shape->count + 1) * GAP;
}

static bool is_untouched(const uint8_t *from, const uint8_t *to)
{
	while (from < to && *from == 0xee)
		from++;
	return from == to;
}

/* The first `len` bytes that they hold are the value's, and nothing else was touched. */
static void assert_pieces(const struct shape *shape, size_t len, uint64_t seed)
{
	uint8_t *end = space, *to = value;

	for (unsigned i = 0; i < shape->count; i++) {
		size_t n = MIN(pieces[i].iov_len, len);

		ck_assert(is_untouched(end, pieces[i].iov_base));
		memcpy(to, pieces[i].iov_base, n);
		end = (uint8_t *)pieces[i].iov_base + n;
		to += n;
		len -= n;
	}
	ck_assert(is_untouched(end, edge));
	ck_assert(value_holds(value, (size_t)(to - value), seed));
}

static void fill_pieces(const struct shape *shape, size_t sum, uint64_t seed)
{
	uint8_t *from = value;

	value_fill(value, sum, seed);
	for (unsigned i = 0; i < shape->count; from += pieces[i++].iov_len)
		memcpy(pieces[i].iov_base, from, pieces[i].iov_len);
}

START_TEST(test_pieces)
{
	void *kv = open_kv(NULL, NULL), *other = open_kv(NULL, NULL);
	unsigned before = registered();
	struct kv_meta meta;
	uint64_t version;

	for (unsigned s = 0; s < ARRAY_SIZE(shapes); s++) {
		size_t sum = lay_out(&shapes[s]), len;

		fill_pieces(&shapes[s], sum, s);
		ck_assert_int_eq(kv_putv(kv, "k", 1, pieces, shapes[s].count, NULL, &version), 0);
		assert_value(other, "k", sum, s);
		for (unsigned g = 0; g < ARRAY_SIZE(shapes); g++) {
			size_t room = lay_out(&shapes[g]);
			int rc = kv_fetchv(kv, "k", 1, NULL, pieces, shapes[g].count, &len, &meta);

			ck_assert_msg(rc == (room < sum ? -EMSGSIZE : 0), "%u to %u: %d %s", s, g, rc, rdmad_error());
			ck_assert_uint_eq(len, sum);
			assert_pieces(&shapes[g], rc == 0 ? sum : 0, s);
			ck_assert(rc != 0 || (meta.length == sum && meta.version == version));
		}
	}
	ck_assert_int_eq(kv_delete(kv, "k", 1), 1);
	kv_close(kv);
	kv_close(other);
	ck_assert_uint_le(registered(), before);
	server_rests();
	assert_store_empty();
}
END_TEST

static struct kv_result came;

static void result_came(void *arg, const struct kv_result *result)
{
	(void)arg;
	came = *result;
	total++;
}

START_TEST(test_pieces_submitted)
{
	struct kv_put_options absent = {.condition = KV_IF_ABSENT};
	struct kv_fetch what = {.offset = 1000, .length = 4000, .then = KV_THEN_DELETE};
	const struct shape *shape = &shapes[6], *many = &shapes[8];
	void *kv = open_kv(NULL, NULL);
	size_t sum = lay_out(shape);

	fill_pieces(shape, sum, 1);
	ck_assert_int_eq(kv_submit_putv(kv, "k", 1, pieces, shape->count, &absent, result_came, NULL), 0);
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert(came.status == 0 && came.meta.version);
	ck_assert_int_eq(kv_submit_putv(kv, "k", 1, pieces, shape->count, &absent, result_came, NULL), 0);
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert_int_eq(came.status, -EEXIST);
	assert_value(kv, "k", sum, 1);
	lay_out(shape);
	ck_assert_int_eq(kv_submit_fetchv(kv, "k", 1, NULL, pieces, shape->count, result_came, NULL), 0);
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert(came.status == 0 && !came.value && came.value_len == sum && came.meta.length == sum);
	assert_pieces(shape, sum, 1);
	for (what.length = 4000; what.length <= 30000; what.length += 26000) { /* in the answer, and beside it */
		set_value(kv, "k", 40000, 2);
		lay_out(many);
		ck_assert_int_eq(kv_submit_fetchv(kv, "k", 1, &what, pieces, many->count, result_came, NULL), 0);
		ck_assert_int_eq(kv_wait(kv), 0);
		ck_assert(came.status == 0 && came.value_len == what.length && came.meta.length == 40000);
		ck_assert_int_eq(kv_exists(kv, "k", 1), 0);
		value_fill(value, 40000, 2);
		ck_assert(memcmp(pieces[0].iov_base, value + 1000, 4000) == 0);
	}
	kv_close(kv);
	server_rests();
}
END_TEST

START_TEST(test_pieces_refused)
{
	struct iovec null = {NULL, 1}, wraps[2] = {{space, SIZE_MAX}, {space, 1}}, nothing = {NULL, 0};
	struct iovec beyond[2] = {{space, 10}, {space, (size_t)GIB + 1}};
	void *kv = open_kv(NULL, NULL);
	size_t len;

	ASSERT_ERROR(kv_putv(kv, "k", 1, NULL, 1, NULL, NULL), -EINVAL, "pieces");
	ASSERT_ERROR(kv_putv(kv, "k", 1, &null, 1, NULL, NULL), -EINVAL, "pieces");
	ASSERT_ERROR(kv_fetchv(kv, "k", 1, NULL, wraps, 2, NULL, NULL), -EINVAL, "pieces");
	ASSERT_ERROR(kv_submit_putv(kv, "k", 1, wraps, 2, NULL, ignored, NULL), -EINVAL, "pieces");
	ASSERT_ERROR(kv_submit_fetchv(kv, "k", 1, NULL, &null, 1, ignored, NULL), -EINVAL, "pieces");
	ASSERT_ERROR(kv_submit_fetchv(kv, "k", 1, NULL, wraps, 1, NULL, NULL), -EINVAL, "callback");
	ASSERT_ERROR(kv_putv(NULL, "k", 1, wraps, 1, NULL, NULL), -EINVAL, "handle");
	ASSERT_ERROR(kv_fetchv(NULL, "k", 1, NULL, wraps, 1, NULL, NULL), -EINVAL, "handle");
	ASSERT_ERROR(kv_putv(kv, "k", 1, beyond, 2, NULL, NULL), -EMSGSIZE, "at most");
	ck_assert_int_eq(kv_putv(kv, "k", 1, &nothing, 1, NULL, NULL), 0);
	ck_assert_int_eq(kv_putv(kv, "n", 1, NULL, 0, NULL, NULL), 0);
	ck_assert_int_eq(kv_fetchv(kv, "k", 1, NULL, NULL, 0, &len, NULL), 0);
	ck_assert_int_eq(kv_fetchv(kv, "k", 1, NULL, &nothing, 1, &len, NULL), 0);
	ck_assert_uint_eq(len, 0);
	kv_close(kv);
}
END_TEST

/* Long pieces stay where they are, short ones go in one: nothing is registered, allocated or asked twice. */
START_TEST(test_pieces_price)
{
	void *kv = open_kv(NULL, NULL), *lent[2];
	unsigned allocated = 0, registered_before = 0, calls;
	uint64_t records = 0;

	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(kv_buffer_lend(kv, MIB, &lent[i]), 0);
	pieces[0] = (struct iovec){space, 100};
	pieces[1] = (struct iovec){lent[0], MIB};
	pieces[2] = (struct iovec){space + 5000, 10};
	pieces[3] = (struct iovec){space + 6000, 4096};
	pieces[4] = (struct iovec){lent[1], 5000};
	server_pause();
	for (unsigned i = 0; i < 16; i++) {
		if (i == 8) {
			allocated = allocations;
			registered_before = registrations;
			records = records_taken();
			longest_copy = 0;
		}
		calls = total + 2;
		if (kv_submit_putv(kv, "k", 1, pieces, 5, NULL, result_came, NULL) != 0 ||
		    kv_submit_fetchv(kv, "k", 1, NULL, pieces, 5, result_came, NULL) != 0)
			abort();
		turn_until(kv, calls);
	}
	allocated = allocations - allocated;
	ck_assert_uint_eq(registrations - registered_before, 0);
	ck_assert(came.status == 0 && came.value_len == 100 + MIB + 10 + 4096 + 5000);
	ck_assert_uint_eq(allocated, 0);
	ck_assert_uint_eq(records_taken() - records, 16);
	ck_assert_uint_le(longest_copy, 4096);
	kv_release(lent[0]);
	kv_release(lent[1]);
	server_resume();
	kv_close(kv);
}
END_TEST

/* Who gave up may free the array, and what it names. */
START_TEST(test_pieces_given_up)
{
	struct rdmad_options options = {.timeout_us = 20000};
	void *kv = open_kv(&options, NULL), *other = open_kv(NULL, NULL);
	struct iovec *array = malloc(3 * sizeof(*array));
	unsigned before = registered();
	uint64_t until = time_now() + PATIENCE;

	set_value(other, "k", 6000, 1);
	lay_out(&shapes[5]);
	array[0] = (struct iovec){space + 100, 3000};
	array[1] = (struct iovec){space + 5000, 3000};
	server_pause();
	ASSERT_ERROR(kv_fetchv(kv, "k", 1, NULL, array, 2, NULL, NULL), -ETIMEDOUT, "20 ms");
	server_resume();
	array[2] = (struct iovec){space + 10000, 10000};
	ck_assert_int_eq(kv_stat(kv, "k", 1, &(struct kv_meta){0}), 0); /* what was given up is answered before it */
	before = MAX(before, registered());                             /* one landing buffer is kept */
	server_pause();
	ASSERT_ERROR(kv_putv(kv, "k", 1, array, 3, NULL, NULL), -ETIMEDOUT, "20 ms");
	free(array);
	ck_assert_uint_eq(registered(), before);
	ck_assert(is_untouched(space, edge));
	server_resume();
	while (kv_progress(kv, 10000) != -ENOTCONN) /* its read was refused */
		ck_assert(time_now() < until);
	assert_value(other, "k", 6000, 1);
	kv_close(kv);
	kv_close(other);
	server_rests();
}
END_TEST

static void set_up_single(void)
{
	set_up_memory();
	server_start(&(struct server_options){.group.transfers = 1});
}

/* A server that takes one range, as those of before do: the pieces go in one. */
START_TEST(test_pieces_single)
{
	void *kv = open_kv(NULL, NULL);
	size_t sum = lay_out(&shapes[10]), len;

	fill_pieces(&shapes[10], sum, 1);
	ck_assert_int_eq(kv_putv(kv, "k", 1, pieces, shapes[10].count, NULL, NULL), 0);
	assert_value(kv, "k", sum, 1);
	lay_out(&shapes[10]);
	ck_assert_int_eq(kv_fetchv(kv, "k", 1, NULL, pieces, shapes[10].count, &len, NULL), 0);
	assert_pieces(&shapes[10], sum, 1);
	kv_close(kv);
}
END_TEST

/*
 * A server without manners: each answer is the same, whatever was asked.
 */
static const struct rogue {
	const char *what;
	uint64_t length; /* the body: it, and a key */
	uint32_t body;
	uint8_t flags;
	uint16_t status;
	int set, get; /* what becomes of a large set, and then of a get */
} rogues[] = {
	{"written, though nothing was lent", 5000, 8, WIRE_WRITTEN, WIRE_OK, -EPROTO, -ENOTCONN},
	{"written beyond the buffer", 1u << 20, 8, WIRE_WRITTEN, WIRE_OK, -EPROTO, -ENOTCONN},
	{"too large, and no length", 0, 0, 0, WIRE_TOO_LARGE, -EMSGSIZE, -EPROTO},
	{"too large, and no key", 5000, 8, 0, WIRE_TOO_LARGE, -EMSGSIZE, -EPROTO},
	{"too large, of no length", 0, 9, 0, WIRE_TOO_LARGE, -EMSGSIZE, -EMSGSIZE},
	{"too large beyond the limit", UINT64_MAX, 9, 0, WIRE_TOO_LARGE, -EMSGSIZE, -EMSGSIZE},
	{"too large for ever", 9000, 9, 0, WIRE_TOO_LARGE, -EMSGSIZE, -EMSGSIZE},
};
static const struct rogue *rogue;

static int rogue_record(struct conn *c, const struct wire_record *record, const void *body)
{
	struct wire_record *r = conn_reserve(c, rogue->body, NULL);

	(void)body;
	if (!r)
		return -EAGAIN;
	r->id = record->id;
	r->op = record->op;
	r->flags = WIRE_REPLY | rogue->flags;
	r->status = rogue->status;
	if (record->op == WIRE_OP_SET_FROM && !rogue->set) {
		r->flags = WIRE_REPLY;
		conn_commit(c, r, 0);
		return 0;
	}
	if (rogue->body)
		memset(r + 1, 'k', rogue->body);
	if (rogue->body >= 8)
		memcpy(r + 1, &rogue->length, 8);
	conn_commit(c, r, rogue->body);
	return 0;
}

static void rogue_established(struct conn *c)
{
	(void)c;
}

static void rogue_closed(struct conn *c, int error, const char *reason)
{
	(void)c;
	(void)error;
	(void)reason;
}

static const struct conn_ops rogue_ops = {
	.established = rogue_established,
	.record = rogue_record,
	.closed = rogue_closed,
};

static void set_up_rogue(void)
{
	instead = &rogue_ops;
	set_up();
}

START_TEST(test_rogue_server)
{
	void *kv = open_kv(NULL, NULL), *got;
	unsigned before = registered();
	size_t len;

	rogue = &rogues[_i];
	ck_assert_msg(kv_set_bytes(kv, "k", 1, value, 5000) == rogue->set, "%s: %s", rogue->what, rdmad_error());
	ck_assert_uint_eq(registered(), before);
	ck_assert_msg(kv_get_bytes(kv, "k", 1, &got, &len) == rogue->get, "%s: %s", rogue->what, rdmad_error());
	kv_close(kv);
}
END_TEST

/* Into a buffer of the caller's, and behind one that the library lent. */
START_TEST(test_rogue_written)
{
	static const struct rogue beyond = {"", 8193, 8, WIRE_WRITTEN, WIRE_OK, 0, 0};
	static const struct rogue short_body = {"", 10, 4, WIRE_WRITTEN, WIRE_OK, 0, 0};
	struct call get = {.want = 0};
	void *kv = open_kv(NULL, NULL);

	rogue = _i / 2 ? &short_body : &beyond;
	if (_i % 2) /* so that its size is remembered */
		ck_assert_int_eq(kv_submit_set(kv, "k", 1, value, 8192, NULL, NULL), 0);
	ck_assert_int_eq(_i % 2 ? kv_submit_get(kv, "k", 1, done, &get)
				: kv_submit_get_into(kv, "k", 1, space, 8192, done, &get),
			 0);
	ck_assert_int_eq(kv_wait(kv), -ENOTCONN);
	assert_done(&get, -EPROTO);
	kv_close(kv);
}
END_TEST

/* To two pieces, of 5000 bytes and 100. */
static const struct rogue piece_rogues[] = {
	{"written beyond them", 5101, 24, WIRE_WRITTEN, WIRE_OK, 0, -EPROTO},
	{"written, and a body too short", 5100, 16, WIRE_WRITTEN, WIRE_OK, 0, -EPROTO},
	{"longer than both", 0, 16 + 5101, 0, WIRE_OK, 0, -EMSGSIZE},
	{"too large", 6000, 9, 0, WIRE_TOO_LARGE, 0, -EMSGSIZE},
};

START_TEST(test_rogue_pieces)
{
	const struct shape two = {2, {5000, 100}};
	void *kv = open_kv(NULL, NULL);
	unsigned before = registered();

	rogue = &piece_rogues[_i];
	lay_out(&two);
	ck_assert_msg(kv_fetchv(kv, "k", 1, NULL, pieces, 2, NULL, NULL) == rogue->get, "%s: %s", rogue->what,
		      rdmad_error());
	ck_assert(is_untouched(space, edge));
	ck_assert_uint_le(registered(), before + 1); /* a landing buffer is kept */
	kv_close(kv);
}
END_TEST

/* The server has a value that came by another transport and is too long for this one: that get fails, and no other. */
START_TEST(test_beyond_this_transport)
{
	void *kv = open_kv(NULL, NULL), *got;
	size_t len;

	value_fill(value, 5000, 1);
	ck_assert_int_eq(store_set(server.services.store, "k", 1, value, 5000, NULL, time_now(), NULL), 0);
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(kv_get_bytes(kv, "k", 1, &got, &len), -EMSGSIZE);
	set_value(kv, "small", 100, 2);
	assert_value(kv, "small", 100, 2);
	ck_assert_int_eq(kv_close(kv), 0);
}
END_TEST

static void add_client(Suite *suite, const char *name, void (*up)(void))
{
	TCase *tc = suite_case(suite, name, up, tear_down);

	tcase_add_loop_test(tc, test_sizes, 0, 2); /* 1: nothing is eager */
	tcase_add_test(tc, test_many_outstanding);
	tcase_add_test(tc, test_order_of_a_key);
	tcase_add_loop_test(tc, test_order_of_a_get, 0, 5);
	tcase_add_test(tc, test_order_of_gets);
	tcase_add_test(tc, test_order_of_chosen_keys);
	tcase_add_test(tc, test_order_given_up);
	tcase_add_test(tc, test_round_trips);
	tcase_add_test(tc, test_no_allocation);
	tcase_add_test(tc, test_no_copy);
	tcase_add_test(tc, test_small_in_a_row);
	tcase_add_test(tc, test_register);
	tcase_add_test(tc, test_kept_buffers_give_way);
	tcase_add_test(tc, test_longest_unused_goes);
	tcase_add_test(tc, test_temporary_registration);
	tcase_add_test(tc, test_get_into);
	tcase_add_test(tc, test_get_into_behind_others);
	tcase_add_test(tc, test_pieces);
	tcase_add_test(tc, test_pieces_submitted);
	tcase_add_test(tc, test_pieces_refused);
	tcase_add_test(tc, test_pieces_price);
	tcase_add_test(tc, test_pieces_given_up);
	tcase_add_test(tc, test_value_outlives_the_handle);
	tcase_add_test(tc, test_remembered_size_is_wrong);
	tcase_add_test(tc, test_timeout_revokes);
	tcase_add_test(tc, test_whole_values);
	tcase_add_test(tc, test_delete_while_sent);
	tcase_add_loop_test(tc, test_close_in_between, 0, 8);
	tcase_add_test(tc, test_no_callback);
}

static void add_pushed(Suite *suite, const char *name, void (*up)(void))
{
	TCase *tc = suite_case(suite, name, up, tear_down);

	tcase_add_loop_test(tc, test_sizes, 0, 2);
	tcase_add_test(tc, test_many_outstanding);
	tcase_add_test(tc, test_order_of_a_key);
	tcase_add_loop_test(tc, test_order_of_a_get, 0, 5);
	tcase_add_test(tc, test_order_of_gets);
	tcase_add_test(tc, test_order_of_chosen_keys);
	tcase_add_test(tc, test_order_given_up);
	tcase_add_test(tc, test_whole_values);
	tcase_add_test(tc, test_delete_while_sent);
	tcase_add_loop_test(tc, test_close_in_between, 0, 8);
	tcase_add_test(tc, test_no_callback);
	tcase_add_test(tc, test_pieces);
	tcase_add_test(tc, test_pieces_submitted);
	tcase_add_test(tc, test_pushed);
	tcase_add_test(tc, test_pushed_price);
	tcase_add_test(tc, test_pushed_in_a_row);
	tcase_add_test(tc, test_pushed_and_refused);
}

static Suite *suite_of_rendezvous(void)
{
	Suite *suite = suite_create("rendezvous");
	TCase *tc;

	add_client(suite, "tcp", set_up);
	add_client(suite, "unix", set_up_unix);
	add_pushed(suite, "pushed tcp", set_up_pushed);
	add_pushed(suite, "pushed unix", set_up_unix_pushed);
	if (getenv("RDMAD_GUEST_ADDR")) /* there is a device, and this is its address */
		add_client(suite, "rdma", set_up_rdma);
	tc = suite_case(suite, "no arena", set_up_no_arena, tear_down);
	tcase_add_test(tc, test_beyond_this_transport);
	tcase_add_test(tc, test_get_into_behind_others);
	tc = suite_case(suite, "single", set_up_single, tear_down);
	tcase_add_test(tc, test_pieces_single);
	tc = suite_case(suite, "rogue", set_up_rogue, tear_down);
	tcase_add_loop_test(tc, test_rogue_server, 0, ARRAY_SIZE(rogues));
	tcase_add_loop_test(tc, test_rogue_written, 0, 4);
	tcase_add_loop_test(tc, test_rogue_pieces, 0, ARRAY_SIZE(piece_rogues));
	return suite;
}

int main(void)
{
	log_set_handler(log_keep);
	return suite_run(suite_of_rendezvous());
}
