/*
 * check_rendezvous.c: large values by librdmad: of each length, many at once, in their order, one or the other, and from a server
 * without manners. Clients without manners are in tests/service/check_service_rendezvous.c.
 */
#include "tests/client/rendezvous_common.h"

#include <unistd.h>

/*
 * Sizes
 */
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
 * Into memory of the caller
 */
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

/*
 * One value or the other
 */
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

/* A client that has a value holds nothing of the server's any more, however long it is away then. */
START_TEST(test_away_with_a_value)
{
	uint64_t until = time_now() + 30 * TIME_S;
	void *kv = open_kv(NULL, NULL);

	set_value(kv, "k", LARGEST, 1);
	assert_value(kv, "k", LARGEST, 1);
	while (services_store_stats(&server.services).pins && time_now() < until)
		usleep(1000);
	ck_assert_uint_eq(services_store_stats(&server.services).pins, 0);
	ck_assert_int_eq(kv_delete(kv, "k", 1), 1);
	kv_close(kv);
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
 * A server without manners
 */
static const struct rogue rogues[] = {
	{"written, though nothing was lent", 5000, 8, WIRE_WRITTEN, WIRE_OK, -EPROTO, -ENOTCONN},
	{"written beyond the buffer", 1u << 20, 8, WIRE_WRITTEN, WIRE_OK, -EPROTO, -ENOTCONN},
	{"too large, and no length", 0, 0, 0, WIRE_TOO_LARGE, -EMSGSIZE, -EPROTO},
	{"too large, and no key", 5000, 8, 0, WIRE_TOO_LARGE, -EMSGSIZE, -EPROTO},
	{"too large, of no length", 0, 9, 0, WIRE_TOO_LARGE, -EMSGSIZE, -EMSGSIZE},
	{"too large beyond the limit", UINT64_MAX, 9, 0, WIRE_TOO_LARGE, -EMSGSIZE, -EMSGSIZE},
	{"too large for ever", 9000, 9, 0, WIRE_TOO_LARGE, -EMSGSIZE, -EMSGSIZE},
};

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

/* Whichever way they go. */
static void add_either(TCase *tc)
{
	tcase_add_loop_test(tc, test_sizes, 0, 2); /* 1: nothing is eager */
	tcase_add_test(tc, test_many_outstanding);
	tcase_add_test(tc, test_order_of_a_key);
	tcase_add_loop_test(tc, test_order_of_a_get, 0, 5);
	tcase_add_test(tc, test_order_of_gets);
	tcase_add_test(tc, test_order_of_chosen_keys);
	tcase_add_test(tc, test_order_given_up);
	tcase_add_test(tc, test_whole_values);
	tcase_add_test(tc, test_delete_while_sent);
	tcase_add_test(tc, test_away_with_a_value);
	tcase_add_loop_test(tc, test_close_in_between, 0, 8);
	tcase_add_test(tc, test_no_callback);
}

static void add(TCase *tc)
{
	add_either(tc);
	tcase_add_test(tc, test_get_into);
	tcase_add_test(tc, test_get_into_behind_others);
	tcase_add_test(tc, test_remembered_size_is_wrong);
}

int main(void)
{
	Suite *suite = suite_over_each("rendezvous", add, add_either);
	TCase *tc = suite_case(suite, "no arena", set_up_no_arena, tear_down);

	log_set_handler(log_keep);
	tcase_add_test(tc, test_beyond_this_transport);
	tcase_add_test(tc, test_get_into_behind_others);
	tc = suite_case(suite, "rogue", set_up_rogue, tear_down);
	tcase_add_loop_test(tc, test_rogue_server, 0, ARRAY_SIZE(rogues));
	tcase_add_loop_test(tc, test_rogue_written, 0, 4);
	return suite_run(suite);
}
