/* check_kv_lease.c: leases, by librdmad's calls, against a server in the same process: what they keep, and for how long. */
#include <check.h>

#include "base/base.h"
#include "client/kv/kv.h"
#include "service/kv/kv.h"
#include "tests/client/caller.h"
#include "tests/suite.h"

#define VALUE 100000u
#define KEYS 10u
#define SECOND 1000000u /* us */

static void *kv;
static char value[VALUE];
static char names[KEYS][8];
static struct kv_item items[KEYS];

static void start(const struct services_options *services)
{
	server_start(&(struct server_options){.services = *services, .time = TIME_S});
	kv = open_kv(NULL, NULL);
	memset(value, 'v', sizeof(value));
	for (unsigned i = 0; i < KEYS; i++) {
		snprintf(names[i], sizeof(names[i]), "k%u", i);
		items[i] = (struct kv_item){names[i], strlen(names[i]), value, VALUE, 0};
	}
}

static void set_up(void)
{
	start(&(struct services_options){.arena = 8 * MIB,
					 .value_max = 2 * MIB,
					 .lease_memory = 6 * MIB,
					 .eviction = STORE_EVICT_S3_FIFO,
					 .lease_time = 10 * TIME_S});
}

/* 1 MiB may be leased, and a quarter of it by one client. */
static void set_up_little(void)
{
	start(&(struct services_options){.arena = 8 * MIB, .value_max = 2 * MIB, .lease_memory = MIB});
}

static void tear_down(void)
{
	struct store_stats stats;

	ck_assert_int_eq(kv_close(kv), 0);
	server_pause();
	while (server_turn() > 0)
		continue;
	stats = services_store_stats(&server.services);
	ck_assert_uint_eq(stats.pins, 0); /* what a client has leased comes back at its end */
	server_stop();
}

/* The server's thread has done all that it was asked for. */
static uint64_t leased_bytes(void)
{
	uint64_t bytes;

	server_pause();
	bytes = kv_lease_bytes(&((struct kv_shared *)server.services.shared.of[WIRE_KV])->leases);
	server_resume();
	return bytes;
}

static void let_pass(uint64_t time)
{
	server_pause();
	server.time += time;
	server_turn();
	server_resume();
}

/* So many bytes that the store lets go what nobody reads. */
static void fill(unsigned first)
{
	char key[16];

	for (unsigned i = 0; i < 300; i++) {
		snprintf(key, sizeof(key), "f%u", first + i);
		ck_assert_int_eq(kv_set_bytes(kv, key, strlen(key), value, VALUE), 0);
	}
}

static int64_t found(void)
{
	int64_t n = 0;

	ck_assert_int_ge(kv_mexists(kv, items, KEYS, false), 0);
	for (unsigned i = 0; i < KEYS; i++)
		n += items[i].status == 0;
	return n;
}

START_TEST(test_kept)
{
	size_t leased = 1;

	ck_assert_int_eq(kv_mlease(kv, items, KEYS, SECOND, &leased), 0);
	ck_assert_uint_eq(leased, 0);
	ck_assert_int_eq(items[3].status, -ENOENT);
	ck_assert_int_eq(kv_mset(kv, items, KEYS, NULL), 0);
	fill(0);
	ck_assert_int_eq(found(), 0); /* without one they go */
	ck_assert_int_eq(kv_mset(kv, items, KEYS, NULL), 0);
	ck_assert_int_eq(kv_delete(kv, "k4", 2), 1);
	ck_assert_int_eq(kv_mlease(kv, items, KEYS, SECOND, &leased), 4);
	ck_assert_uint_eq(leased, KEYS - 1);
	ck_assert_uint_eq(leased_bytes(), (KEYS - 1) * VALUE);
	fill(1000);
	ck_assert_int_eq(found(), KEYS - 1);
	ck_assert_int_eq(kv_mrelease(kv, items, KEYS), 0);
	ck_assert_int_eq(items[0].status, 0);
	ck_assert_int_eq(items[4].status, -ENOENT);
	ck_assert_uint_eq(leased_bytes(), 0);
	for (unsigned i = 1; i < 6 && found() > 0; i++) /* they were read, which keeps them for some time */
		fill(1000 * i + 1000);
	ck_assert_int_eq(found(), 0);
	ck_assert_uint_eq(server_count("kv_leases"), 3 * KEYS);
}
END_TEST

static struct kv_result last;

static void keep_result(void *arg, const struct kv_result *result)
{
	last = *result;
}

static int64_t lease_one(const char *key, uint64_t time)
{
	last = (struct kv_result){.number = -1};
	ck_assert_int_eq(kv_submit_lease(kv, key, strlen(key), time, keep_result, NULL), 0);
	ck_assert_int_eq(kv_wait(kv), 0);
	return last.status ? last.status : last.number;
}

START_TEST(test_time)
{
	struct kv_request request = {.tag = 7, .op = KV_OP_LEASE, .key = "k1", .key_len = 2, .ttl_us = 2 * SECOND};
	struct kv_completion done;

	ck_assert_int_eq(kv_mset(kv, items, KEYS, NULL), 0);
	ck_assert_int_eq(lease_one("k0", 3600ull * SECOND), 10 * SECOND); /* the server's limit */
	ck_assert_int_eq(lease_one("k0", UINT64_MAX), 10 * SECOND);
	ck_assert_int_eq(kv_submit(kv, &request, 1), 1);
	ck_assert_int_eq(kv_done(kv, &done, 1, UINT64_MAX), 1);
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.tag, 7);
	ck_assert_int_eq(done.number, 2 * SECOND);
	ck_assert_uint_eq(leased_bytes(), 2 * VALUE);
	let_pass(TIME_S);
	ck_assert_uint_eq(leased_bytes(), 2 * VALUE);
	ck_assert_int_eq(lease_one("k0", 4 * SECOND), 4 * SECOND); /* another time, from now on */
	let_pass(TIME_S);
	ck_assert_uint_eq(leased_bytes(), VALUE);
	ck_assert_uint_eq(server_count("kv_leases_expired"), 1);
	let_pass(3 * TIME_S);
	ck_assert_uint_eq(leased_bytes(), 0);
	ck_assert_uint_eq(server_count("kv_leases_expired"), 2);
	ck_assert_int_eq(lease_one("k0", 0), -ENOENT);
	ck_assert_int_eq(lease_one("k0", 1), 1);
	ck_assert_int_eq(lease_one("k0", 0), 0);
}
END_TEST

/* A lease does not stand in the way of writes. */
START_TEST(test_written)
{
	void *got;
	size_t len;

	ck_assert_int_eq(kv_mset(kv, items, KEYS, NULL), 0);
	ck_assert_int_eq(kv_mlease(kv, items, KEYS, SECOND, NULL), KEYS);
	ck_assert_int_eq(kv_set_bytes(kv, "k0", 2, "new", 3), 0);
	ck_assert_int_eq(kv_delete(kv, "k1", 2), 1);
	ck_assert_int_eq(kv_get_bytes(kv, "k0", 2, &got, &len), 0);
	ck_assert_uint_eq(len, 3);
	kv_release(got);
	ck_assert_uint_eq(leased_bytes(), KEYS * VALUE);
	ck_assert_int_eq(kv_mlease(kv, items, KEYS, SECOND, NULL), 1); /* of what there is now */
	ck_assert_uint_eq(leased_bytes(), (KEYS - 2) * VALUE + 3);
}
END_TEST

START_TEST(test_limits)
{
	struct kv_item large[2] = {{"large", 5, NULL, 0, 0}, {"k0", 2, value, VALUE, 0}};
	size_t leased = 0;
	char *bytes = calloc(1, 600 * KIB);
	void *other = open_kv(NULL, NULL);

	ck_assert_ptr_nonnull(bytes);
	large[0].value = bytes;
	large[0].value_len = 600 * KIB;
	ck_assert_int_eq(kv_mset(kv, items, KEYS, NULL), 0);
	ck_assert_int_eq(kv_mset(kv, large, 2, NULL), 0);
	ck_assert_int_eq(kv_mlease(kv, items, KEYS, SECOND, &leased), KEYS);
	ck_assert_uint_eq(leased, 2); /* a quarter of the memory */
	ck_assert_uint_eq(server_count("kv_leases_refused"), KEYS - 2);
	ck_assert_int_eq(items[5].status, 0);
	ck_assert_int_eq(kv_mlease(other, large, 2, SECOND, &leased), 2);
	ck_assert_uint_eq(leased, 1); /* or one value, however long */
	ck_assert_uint_eq(leased_bytes(), 2 * VALUE + 600 * KIB);
	ck_assert_int_eq(kv_mrelease(kv, items, KEYS), 0);
	ck_assert_int_eq(kv_mlease(kv, large, 1, SECOND, &leased), 1);
	ck_assert_uint_eq(leased, 0); /* all have a limit, too */
	ck_assert_int_eq(kv_close(other), 0);
	while (leased_bytes() > 0)
		continue; /* until the server has heard of the end */
	ck_assert_int_eq(kv_mlease(kv, large, 1, SECOND, &leased), 1);
	ck_assert_uint_eq(leased, 1);
	free(bytes);
}
END_TEST

/* Of small values the number is limited. */
START_TEST(test_many)
{
	enum { MANY = 5000 };
	struct kv_item *many = calloc(MANY, sizeof(*many));
	char(*text)[8] = calloc(MANY, sizeof(*text));
	size_t leased = 0;

	ck_assert(many && text);
	for (unsigned i = 0; i < MANY; i++) {
		snprintf(text[i], sizeof(text[i]), "m%u", i);
		many[i] = (struct kv_item){text[i], strlen(text[i]), "v", 1, 0};
	}
	ck_assert_int_eq(kv_mset(kv, many, MANY, NULL), 0);
	ck_assert_int_eq(kv_mlease(kv, many, MANY, SECOND, &leased), MANY);
	ck_assert_uint_eq(leased, 4096);
	ck_assert_int_eq(kv_mrelease(kv, many, MANY / 2), 0);
	ck_assert_int_eq(kv_mlease(kv, many, MANY, SECOND, &leased), MANY);
	ck_assert_uint_eq(leased, 4096);
	free(many);
	free(text);
}
END_TEST

START_TEST(test_refused)
{
	ck_assert_int_eq(kv_mlease(kv, NULL, 1, SECOND, NULL), -EINVAL);
	ck_assert_int_eq(kv_mlease(kv, items, 1, 0, NULL), -EINVAL);
	ck_assert_int_eq(kv_mrelease(kv, NULL, 1), -EINVAL);
	ck_assert_int_eq(kv_mlease(kv, NULL, 0, SECOND, NULL), 0);
	ck_assert_int_eq(kv_mrelease(kv, NULL, 0), 0);
	ck_assert_int_eq(kv_mset(kv, items, KEYS, NULL), 0);
	server_pause();
	conn_group_each(server.group, restrict_reads, (void *)(uintptr_t) "other");
	server_resume();
	ASSERT_ERROR(kv_mlease(kv, items, KEYS, SECOND, NULL), -EACCES, "10 of 10 items failed");
	ck_assert_uint_eq(leased_bytes(), 0);
	((struct kv *)kv)->leases = false; /* as of an older server */
	ASSERT_ERROR(kv_mlease(kv, items, KEYS, SECOND, NULL), -EOPNOTSUPP, "10 of 10 items failed");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kv_lease");
	TCase *tc = suite_case(suite, "leases", set_up, tear_down);

	tcase_add_test(tc, test_kept);
	tcase_add_test(tc, test_time);
	tcase_add_test(tc, test_written);
	tcase_add_test(tc, test_refused);
	tc = suite_case(suite, "limits", set_up_little, tear_down);
	tcase_add_test(tc, test_limits);
	tcase_add_test(tc, test_many);
	return suite_run(suite);
}
