/* check_rendezvous_price.c: what large values cost: messages, allocations, copies, and memory that is registered. */
#include "tests/client/rendezvous_common.h"

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
	ck_assert_uint_le(large, copy_limit(kv));
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
	ck_assert_uint_le(longest_copy, copy_limit(kv));
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
	ck_assert_uint_le(longest_copy, copy_limit(kv));
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

/* Some of what would have room in an answer goes behind it, too; what does costs one record as well. */
START_TEST(test_pushed_from)
{
	static const size_t sizes[] = {4000, 4001, 4050, 4096};
	const uint64_t *pushes = &server.services.kv->count[KV_COUNT_PUSHES];
	void *a = open_kv(NULL, NULL), *b = open_kv(NULL, NULL);

	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		set_value(a, "k", sizes[i], i);
		server_pause();
		ck_assert_uint_eq(records_of_get(b, sizes[i], i), 1);
		ck_assert_uint_eq(*pushes, i);
		server_resume();
	}
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
	ck_assert_uint_le(longest_copy, copy_limit(kv) + 24);
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

/* Requests that leave together bring their values with one message, and so do the answers. */
START_TEST(test_pushed_together)
{
	/* So many that none need be returned meanwhile. */
	struct rdmad_options options = {.credits = 64};
	struct conn_group_stats before, after;
	void *kv = open_kv(&options, NULL);
	char bytes[5000];

	value_fill(bytes, sizeof(bytes), 1);
	set_value(kv, "a", sizeof(bytes), 1);
	server_pause();
	conn_group_get_stats(server.group, &before);
	for (unsigned i = 0; i < 16; i++)
		ck_assert_int_eq(_i ? kv_submit_get(kv, "a", 1, NULL, NULL)
				    : kv_submit_set(kv, "b", 1, bytes, sizeof(bytes), NULL, NULL),
				 0);
	server_resume();
	ck_assert_int_eq(kv_wait(kv), 0);
	server_pause();
	conn_group_get_stats(server.group, &after);
	ck_assert_uint_eq(after.records_in - before.records_in, 16);
	if (_i)
		ck_assert_uint_eq(after.messages_out - before.messages_out, 1);
	else
		ck_assert_uint_eq(after.messages_in - before.messages_in, 1);
	server_resume();
	kv_close(kv);
}
END_TEST

/* However many are on their way, however short the server's turns are, and be they all of one key: none of the values is brought a
 * second time. */
START_TEST(test_pushed_many)
{
	char bytes[20000], key[8];
	uint64_t reads;
	void *kv;

	if (_i == 1) {
		server_die();
		server.attr.turn = 1;
		server.attr.clock = time_now;
		server_revive();
		server_resume();
	}
	kv = open_kv(NULL, NULL);
	value_fill(bytes, sizeof(bytes), 1);
	set_value(kv, "a", sizeof(bytes), 1);
	server_pause();
	reads = reads_of_server();
	server_resume();
	for (int i = 0; i < 400; i++) {
		int rc, len = snprintf(key, sizeof(key), "%d", _i == 2 ? 0 : i);

		while ((rc = kv_submit_set(kv, key, (size_t)len, bytes, sizeof(bytes), NULL, NULL)) == -EAGAIN)
			ck_assert_int_ge(kv_progress(kv, 10000000), 0);
		ck_assert_int_eq(rc, 0);
	}
	ck_assert_int_eq(kv_wait(kv), 0);
	server_pause();
	ck_assert_uint_eq(reads_of_server() - reads, 0);
	server_resume();
	kv_close(kv);
}
END_TEST

/* But a value does not wait for the next that comes: the two ways are in use at a time. */
START_TEST(test_pushed_both_ways)
{
	void *kv = open_kv(NULL, NULL);
	char bytes[5000];
	uint64_t before;

	value_fill(bytes, sizeof(bytes), 1);
	ck_assert_int_eq(kv_set_bytes(kv, "a", 1, bytes, sizeof(bytes)), 0);
	before = messages_of_server();
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_int_eq(kv_submit_get(kv, "a", 1, NULL, NULL), 0);
		ck_assert_int_eq(kv_flush(kv), 0);
		ck_assert_int_eq(kv_submit_set(kv, "b", 1, bytes, sizeof(bytes), NULL, NULL), 0);
		ck_assert_int_eq(kv_flush(kv), 0);
	}
	server_resume();
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert_uint_ge(messages_of_server() - before, 4);
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

/* The server may do with memory what it is asked for, and no more: to read what is set, to write what is got. */
START_TEST(test_rights)
{
	size_t len = 200000;
	void *kv = open_kv(NULL, NULL), *got, *lent;
	unsigned before;

	refused = pthread_self();
	value_fill(value, len, 1);
	ck_assert_int_eq(kv_set_bytes(kv, "key", 3, value, len), 0);
	ck_assert_uint_eq(rights, FABRIC_REMOTE_READ);
	ck_assert_int_eq(kv_get_into(kv, "key", 3, space, len, &(size_t){0}), 0);
	ck_assert_uint_eq(rights, FABRIC_REMOTE_WRITE);
	rights = 0;
	ck_assert_int_eq(kv_get_bytes(kv, "key", 3, &got, &len), 0);
	ck_assert_uint_eq(rights, FABRIC_REMOTE_WRITE);
	kv_release(got);
	ck_assert_int_eq(kv_buffer_register(kv, value, len), 0);
	before = registrations;
	ck_assert_int_eq(kv_set_bytes(kv, "key", 3, value, len), 0);
	ck_assert_uint_eq(registrations, before);
	ck_assert_uint_eq(rights, FABRIC_REMOTE_READ);
	for (unsigned i = 0; i < 3; i++) { /* from now on it is used for both */
		ck_assert_int_eq(kv_get_into(kv, "key", 3, value, len, &(size_t){0}), 0);
		ck_assert_int_eq(kv_set_bytes(kv, "key", 3, value, len), 0);
		ck_assert_uint_eq(registrations, before + 1);
		ck_assert_uint_eq(rights, FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE);
	}
	ck_assert_int_eq(kv_buffer_unregister(kv, value), 0);
	ck_assert_int_eq(kv_buffer_lend(kv, len, &lent), 0);
	ck_assert_uint_eq(rights, FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE);
	kv_release(lent);
	rights = 0;
	ck_assert_int_eq(kv_get_bytes(kv, "key", 3, &got, &len), 0);
	ck_assert_uint_eq(rights, 0); /* where it landed before, not in what was lent */
	kv_release(got);
	kv_close(kv);
}
END_TEST

/* Memory that is used for both at a time is registered once more in all, and the first one goes when nothing uses it. */
START_TEST(test_rights_in_use)
{
	struct call set = {0}, get = {.want = 20000, .seed = 2};
	void *kv = open_kv(NULL, NULL);
	unsigned before;

	set_value(kv, "k", get.want, 2);
	ck_assert_int_eq(kv_buffer_register(kv, value, 1 << 16), 0);
	before = registered();
	for (unsigned i = 0; i < 3; i++) {
		server_pause();
		for (unsigned n = 0; n < 4; n++) {
			ck_assert_int_eq(kv_submit_set(kv, "s", 1, value, 20000, done, &set), 0);
			get.called = 0;
			ck_assert_int_eq(kv_submit_get_into(kv, "k", 1, value + 20000, 20000, done, &get), 0);
			ck_assert_uint_eq(registered(), before + (i == 0));
		}
		ASSERT_ERROR(kv_buffer_unregister(kv, value), -EBUSY, "outstanding");
		server_resume();
		ck_assert_int_eq(kv_wait(kv), 0);
		ck_assert_uint_eq(registered(), before);
	}
	ck_assert_int_eq(kv_buffer_unregister(kv, value), 0);
	kv_close(kv);
}
END_TEST

/* Where more rights are refused, the rights that were there come back. */
START_TEST(test_rights_refused)
{
	void *kv = open_kv(NULL, NULL);
	size_t len = 200000;
	unsigned before;

	refused = pthread_self();
	value_fill(value, len, 1);
	ck_assert_int_eq(kv_buffer_register(kv, value, len), 0);
	ck_assert_int_eq(kv_set_bytes(kv, "key", 3, value, len), 0);
	refuse = 1;
	ck_assert_int_eq(kv_get_into(kv, "key", 3, value, len, &(size_t){0}), 0);
	before = registrations;
	ck_assert_int_eq(kv_set_bytes(kv, "key", 3, value, len), 0);
	ck_assert_uint_eq(registrations, before);
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

/* A caller that was told that there was no answer in time may free the value. */
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

static void add(TCase *tc)
{
	tcase_add_test(tc, test_round_trips);
	tcase_add_test(tc, test_no_allocation);
	tcase_add_test(tc, test_no_copy);
	tcase_add_test(tc, test_small_in_a_row);
	tcase_add_test(tc, test_register);
	tcase_add_test(tc, test_rights);
	tcase_add_test(tc, test_rights_in_use);
	tcase_add_test(tc, test_rights_refused);
	tcase_add_test(tc, test_kept_buffers_give_way);
	tcase_add_test(tc, test_longest_unused_goes);
	tcase_add_test(tc, test_temporary_registration);
	tcase_add_test(tc, test_value_outlives_the_handle);
	tcase_add_test(tc, test_timeout_revokes);
}

static void add_pushed(TCase *tc)
{
	tcase_add_test(tc, test_pushed);
	tcase_add_test(tc, test_pushed_from);
	tcase_add_test(tc, test_pushed_price);
	tcase_add_test(tc, test_pushed_in_a_row);
	tcase_add_loop_test(tc, test_pushed_together, 0, 2);
	tcase_add_loop_test(tc, test_pushed_many, 0, 3);
	tcase_add_test(tc, test_pushed_both_ways);
	tcase_add_test(tc, test_pushed_and_refused);
}

int main(void)
{
	log_set_handler(log_keep);
	return suite_run(suite_over_each("rendezvous_price", add, add_pushed));
}
