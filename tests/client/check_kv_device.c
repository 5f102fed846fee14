/*
 * check_kv_device.c: values in memory that the processor of their program cannot touch. A file in memory is the device's;
 * the addresses by which the calls know it have no access, so that a copy from or to them ends the test.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/udmabuf.h>

#include "client/kv/kv.h"
#include "tests/client/rendezvous_common.h"

#define DEVICE (4 * MIB)

static int device_fd;
static char *device;    /* its addresses */
static uint8_t *inside; /* what it holds, as the device sees it */
static void *kv;

static const size_t lengths[] = {1, 64, 4000, 4095, 4096, 4097, 60000, PUSH_MAX, PUSH_MAX + 1, 2 * MIB};

/* Soft-RoCE takes no dmabuf, unless tests/fake/verbs_shim makes it. */
static bool registers(void)
{
	const char *shapes = getenv("VERBS_SHIM");

	return strcmp(kv_transport(kv), "rdma") != 0 || (shapes && strstr(shapes, "dmabuf"));
}

static void device_make(void)
{
	device_fd = memfd_create("device", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ck_assert_int_ge(device_fd, 0);
	ck_assert_int_eq(ftruncate(device_fd, DEVICE), 0);
	inside = mmap(NULL, DEVICE, PROT_READ | PROT_WRITE, MAP_SHARED, device_fd, 0);
	device = mmap(NULL, DEVICE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert(inside != MAP_FAILED && device != MAP_FAILED);
}

static void device_free(void)
{
	munmap(inside, DEVICE);
	munmap(device, DEVICE);
	close(device_fd);
}

/* A handle, with the device's memory registered. False: it cannot be, which is said. */
static bool begin(const struct rdmad_options *options)
{
	void *addr;
	bool can;
	int rc;

	device_make();
	addr = device;
	kv = open_kv(options, NULL);
	can = registers();
	rc = kv_buffer_register_dmabuf(kv, device_fd, 0, DEVICE, &addr);
	if (can) {
		ck_assert_msg(rc == 0, "%s", rdmad_error());
		ck_assert_ptr_eq(addr, device);
		return true;
	}
	ck_assert_int_eq(rc, -EOPNOTSUPP);
	ck_assert_msg(strstr(rdmad_error(), "Linux 5.12"), "%s", rdmad_error());
	ck_assert_uint_eq(device_ranges, 0);
	ck_assert_int_eq(kv_close(kv), 0);
	device_free();
	return false;
}

static void end(void)
{
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert_int_eq(kv_buffer_unregister(kv, device), 0);
	ck_assert_uint_eq(device_ranges, 0);
	ck_assert_int_eq(kv_close(kv), 0);
	device_free();
}

#define EACH_LENGTH(len, at)                                                                                           \
	for (size_t l_ = 0, len, at; l_ < ARRAY_SIZE(lengths) && (len = lengths[l_], at = l_ * 1001, true); l_++)

static struct call calls[64];

static struct call *call(size_t want, uint64_t seed)
{
	struct call *c = &calls[total % ARRAY_SIZE(calls)];

	*c = (struct call){.want = want, .seed = seed};
	return c;
}

static void told(void *arg, const struct kv_result *result)
{
	*(struct kv_result *)arg = *result;
}

static void wait_all(void)
{
	ck_assert_int_eq(kv_wait(kv), 0);
}

/* What the store has under the key goes to the device, where it is cleared before. */
static void fill(size_t at, size_t len, uint64_t seed)
{
	value_fill(value, len, seed);
	__builtin_memcpy(inside + at, value, len);
}

static void assert_inside(size_t at, size_t len, uint64_t seed)
{
	ck_assert(at == 0 || inside[at - 1] == 0xee);
	ck_assert_uint_eq(inside[at + len], 0xee);
	ck_assert(value_holds(inside + at, len, seed));
	memset(inside, 0xee, DEVICE);
}

static void test_sets(void)
{
	EACH_LENGTH(len, at)
	{
		struct kv_put_options absent = {.condition = KV_IF_ABSENT}, version = {.condition = KV_IF_VERSION};
		struct kv_result result = {.status = 1};
		void *old;
		size_t old_len;

		fill(at, len, 1);
		ck_assert_msg(kv_set_bytes(kv, "k", 1, device + at, len) == 0, "%zu: %s", len, rdmad_error());
		assert_value(kv, "k", len, 1);
		ck_assert_int_eq(kv_put(kv, "k", 1, device + at, len, &absent, NULL), -EEXIST);
		ck_assert_int_eq(kv_delete(kv, "k", 1), 1);
		fill(at, len, 2);
		ck_assert_int_eq(kv_put(kv, "k", 1, device + at, len, &absent, &version.version), 0);
		assert_value(kv, "k", len, 2);
		fill(at, len, 3);
		ck_assert_int_eq(kv_submit_set(kv, "k", 1, device + at, len, done, call(0, 0)), 0);
		ck_assert_int_eq(kv_buffer_unregister(kv, device), -EBUSY);
		wait_all();
		assert_value(kv, "k", len, 3);
		ck_assert_int_eq(kv_put(kv, "k", 1, device + at, len, &version, NULL), -ESTALE);
		fill(at, len, 4);
		ck_assert_int_eq(kv_submit_put(kv, "k", 1, device + at, len, NULL, told, &result), 0);
		wait_all();
		ck_assert_int_eq(result.status, 0);
		assert_value(kv, "k", len, 4);
		fill(at, len, 5);
		ck_assert_int_eq(kv_get_set(kv, "k", 1, device + at, len, &old, &old_len), 0);
		ck_assert(old_len == len && value_holds(old, len, 4));
		kv_release(old);
		assert_value(kv, "k", len, 5);
		ck_assert_int_eq(kv_delete(kv, "k", 1), 1);
	}
	ck_assert_int_eq(kv_set_bytes(kv, "k", 1, device, 0), 0);
	assert_value(kv, "k", 0, 0);
	ck_assert_int_eq(kv_delete(kv, "k", 1), 1);
}

static void test_gets(void)
{
	memset(inside, 0xee, DEVICE);
	EACH_LENGTH(len, at)
	{
		const struct kv_fetch taken = {.length = UINT64_MAX, .then = KV_THEN_DELETE};
		struct kv_result result = {.status = 1};
		struct kv_meta meta;
		struct call *c;
		size_t got;

		set_value(kv, "k", len, len);
		ck_assert_msg(kv_get_into(kv, "k", 1, device + at, len, &got) == 0, "%zu: %s", len, rdmad_error());
		ck_assert_uint_eq(got, len);
		assert_inside(at, len, len);
		c = call(0, 0); /* it does not look */
		ck_assert_int_eq(kv_submit_get_into(kv, "k", 1, device + at, len + 7, done, c), 0);
		wait_all();
		ck_assert_int_eq(c->status, 0);
		ck_assert_ptr_eq(c->at, device + at);
		ck_assert_uint_eq(c->len, len);
		assert_inside(at, len, len);
		if (len > 1) {
			ck_assert_int_eq(kv_get_into(kv, "k", 1, device + at, len - 1, &got), -EMSGSIZE);
			ck_assert_uint_eq(got, len);
			ck_assert_int_eq(kv_submit_get_into(kv, "k", 1, device + at, len - 1, done, c = call(0, 0)), 0);
			wait_all();
			ck_assert_int_eq(c->status, -EMSGSIZE);
			ck_assert_uint_eq(c->len, len);
		}
		ck_assert_int_eq(kv_get_range(kv, "k", 1, len / 8 * 8, device + at, 100, &got), 0);
		ck_assert_uint_eq(got, MIN(len % 8, 100));
		ck_assert_int_eq(kv_fetch(kv, "k", 1, NULL, device + at, DEVICE - at, &got, &meta), 0);
		ck_assert(got == len && meta.length == len && meta.version);
		memset(inside, 0xee, DEVICE);
		ck_assert_int_eq(kv_submit_fetch(kv, "k", 1, &taken, device + at, len, told, &result), 0);
		wait_all();
		ck_assert(result.status == 0 && result.value == device + at && result.value_len == len);
		assert_inside(at, len, len);
		ck_assert_int_eq(kv_exists(kv, "k", 1), 0);
	}
	ck_assert_int_eq(kv_get_into(kv, "none", 4, device, 100, NULL), -ENOENT);
	set_value(kv, "k", 0, 0);
	ck_assert_int_eq(kv_get_into(kv, "k", 1, device, 100, NULL), 0);
	ck_assert_int_eq(kv_delete(kv, "k", 1), 1);
}

/* In batches and by the queue. */
static void test_many(void)
{
	static const char keys[] = "abcdefghij";
	struct kv_item items[ARRAY_SIZE(lengths)];
	struct kv_place places[ARRAY_SIZE(lengths)];
	struct kv_request requests[ARRAY_SIZE(lengths)] = {0};
	struct kv_completion completion;
	struct kv_result result;
	size_t at[ARRAY_SIZE(lengths)], next = 1;

	for (size_t i = 0; i < ARRAY_SIZE(lengths); next += lengths[i++] + 3)
		at[i] = next;
	for (unsigned round = 0; round < 3; round++) {
		memset(inside, 0xee, DEVICE);
		for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
			fill(at[i], lengths[i], i + round);
			items[i] = (struct kv_item){&keys[i], 1, device + at[i], lengths[i], 0};
			places[i] = (struct kv_place){.key = &keys[i], .key_len = 1};
			places[i].buffer = device + at[i];
			places[i].size = lengths[i];
			requests[i] = (struct kv_request){.tag = i, .op = KV_OP_SET, .key = &keys[i], .key_len = 1};
			requests[i].value = device + at[i];
			requests[i].value_len = lengths[i];
		}
		if (round == 0) {
			ck_assert_int_eq(kv_mset(kv, items, ARRAY_SIZE(items), NULL), 0);
		} else if (round == 1) {
			for (size_t i = 0; i < ARRAY_SIZE(items); i++) {
				while (kv_submit_mset(kv, &items[i], 1, NULL, told, &result) == -EAGAIN)
					kv_progress(kv, UINT64_MAX);
				wait_all();
				ck_assert_int_eq(result.status, 0);
			}
		} else {
			for (size_t i = 0; i < ARRAY_SIZE(items); i++) {
				ck_assert_int_eq(kv_submit(kv, &requests[i], 1), 1);
				ck_assert_int_eq(kv_done(kv, &completion, 1, UINT64_MAX), 1);
				ck_assert_int_eq(completion.status, 0);
			}
		}
		memset(inside, 0xee, DEVICE);
		for (size_t i = 0; i < ARRAY_SIZE(lengths); i++)
			assert_value(kv, (char[]){keys[i], 0}, lengths[i], i + round);
		if (round == 0) {
			ck_assert_int_eq(kv_mget_into(kv, places, ARRAY_SIZE(places)), 0);
		} else if (round == 1) {
			for (size_t i = 0; i < ARRAY_SIZE(items); i++) {
				ck_assert_int_eq(kv_submit_mget_into(kv, &places[i], 1, told, &result), 1);
				wait_all();
				ck_assert_int_eq(result.status, 0);
			}
		} else {
			for (size_t i = 0; i < ARRAY_SIZE(items); i++) {
				requests[i].op = KV_OP_GET;
				ck_assert_int_eq(kv_submit(kv, &requests[i], 1), 1);
				ck_assert_int_eq(kv_done(kv, &completion, 1, UINT64_MAX), 1);
				ck_assert_int_eq(completion.status, 0);
				ck_assert_ptr_eq(completion.value, device + at[i]);
				ck_assert_uint_eq(completion.length, lengths[i]);
			}
		}
		for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
			ck_assert(value_holds(inside + at[i], lengths[i], i + round));
			ck_assert_uint_eq(inside[at[i] + lengths[i]], 0xee);
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++)
		kv_delete(kv, &keys[i], 1);
}

/* Pieces of both kinds; 'd' and 'D' are the device's, short and long, 'h' and 'H' are not. */
static void test_pieces(void)
{
	static const char *const kinds[] = {"d", "D", "dh", "hd", "hhdhh", "hDh", "dd", "dDHd", "dhdh", "hhHd"};

	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
		struct iovec pieces[8];
		size_t count = strlen(kinds[k]), sum = 0, len;
		struct kv_request request = {.op = KV_OP_GET, .key = "k", .key_len = 1};
		struct kv_completion completion;

		value_fill(value, LARGEST, k);
		for (size_t i = 0; i < count; sum += pieces[i++].iov_len) {
			size_t n = strchr("dh", kinds[k][i]) ? 13 + i : 5000 + i;
			bool of_device = strchr("dD", kinds[k][i]);

			pieces[i] = (struct iovec){(of_device ? device : (char *)space) + i * 8192, n};
			memcpy(of_device ? inside + i * 8192 : space + i * 8192, value + sum, n);
		}
		ck_assert_msg(kv_putv(kv, "k", 1, pieces, count, NULL, NULL) == 0, "%s: %s", kinds[k], rdmad_error());
		assert_value(kv, "k", sum, k);
		for (unsigned how = 0; how < 2; how++) {
			memset(inside, 0xee, DEVICE);
			memset(space, 0xee, LARGEST);
			if (how == 0) {
				ck_assert_msg(kv_fetchv(kv, "k", 1, NULL, pieces, count, &len, NULL) == 0, "%s: %s",
					      kinds[k], rdmad_error());
				ck_assert_uint_eq(len, sum);
			} else {
				request.value = pieces;
				request.pieces = count;
				ck_assert_int_eq(kv_submit(kv, &request, 1), 1);
				ck_assert_int_eq(kv_done(kv, &completion, 1, UINT64_MAX), 1);
				ck_assert_int_eq(completion.status, 0);
			}
			value_fill(value, LARGEST, k);
			for (size_t i = 0, at = 0; i < count; at += pieces[i++].iov_len) {
				const uint8_t *is = strchr("dD", kinds[k][i]) ? inside : space;

				ck_assert(memcmp(is + i * 8192, value + at, pieces[i].iov_len) == 0);
				ck_assert_uint_eq(is[i * 8192 + pieces[i].iov_len], 0xee);
			}
		}
	}
	ck_assert_int_eq(kv_delete(kv, "k", 1), 1);
}

static int never(void *arg, const void *key, size_t key_len, const struct kv_meta *meta)
{
	(void)arg, (void)key, (void)key_len, (void)meta;
	return 1;
}

static void refused_item(void *arg, size_t index, int status, const void *bytes, size_t len)
{
	(void)arg, (void)index, (void)bytes, (void)len;
	ck_assert_int_eq(status, -EFAULT);
}

/* What a processor has to read is refused, by each call, before anything is sent. */
static void test_refused(void)
{
	struct kv_item item = {device, 3, "x", 1, 0};
	struct kv_place place = {.key = device, .key_len = 3, .buffer = space, .size = 10};
	struct kv_request request = {.op = KV_OP_GET, .key = device, .key_len = 3};
	struct kv_meta meta;
	struct iovec pieces[20];
	uint64_t cursor = 0, number;
	int64_t sum;
	void *got;
	char *text;
	size_t len;

	set_value(kv, "k", 10, 1);
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++)
		pieces[i] = (struct iovec){device + 10 * i, 5};
#define REFUSED(call) ASSERT_ERROR(call, -EFAULT, "memory of a device")
	REFUSED(kv_set(kv, device, "x"));
	REFUSED(kv_set(kv, "k", device));
	REFUSED(kv_get(kv, device, &text));
	REFUSED(kv_set_bytes(kv, device, 3, "x", 1));
	REFUSED(kv_get_bytes(kv, device, 3, &got, &len));
	REFUSED(kv_delete(kv, device, 3));
	REFUSED(kv_exists(kv, device, 3));
	REFUSED(kv_submit_set(kv, device, 3, "x", 1, NULL, NULL));
	REFUSED(kv_submit_get(kv, device, 3, NULL, NULL));
	REFUSED(kv_submit_delete(kv, device, 3, NULL, NULL));
	REFUSED(kv_submit_exists(kv, device, 3, NULL, NULL));
	REFUSED(kv_submit_get_into(kv, device, 3, space, 10, NULL, NULL));
	REFUSED(kv_put(kv, device, 3, "x", 1, NULL, NULL));
	REFUSED(kv_get_version(kv, device, 3, &got, &len, &number));
	REFUSED(kv_stat(kv, device, 3, &meta));
	REFUSED(kv_type(kv, device, 3, NULL));
	REFUSED(kv_expire(kv, device, 3, 1));
	REFUSED(kv_delete_if(kv, device, 3, 1));
	REFUSED(kv_incr(kv, device, 3, 1, &sum, NULL));
	REFUSED(kv_count(kv, device, 3, 1, 1, &sum, NULL));
	REFUSED(kv_fetch(kv, device, 3, NULL, space, 10, &len, NULL));
	REFUSED(kv_get_range(kv, device, 3, 0, space, 10, &len));
	REFUSED(kv_get_delete(kv, device, 3, &got, &len));
	REFUSED(kv_get_touch(kv, device, 3, 1, &got, &len));
	REFUSED(kv_get_set(kv, device, 3, "x", 1, &got, &len));
	REFUSED(kv_append(kv, device, 3, "x", 1, NULL));
	REFUSED(kv_append(kv, "k", 1, device, 1, NULL));
	REFUSED(kv_append(kv, "k", 1, device, 9000, NULL));
	REFUSED(kv_submit_append(kv, "k", 1, device, 1, told, NULL));
	REFUSED(kv_set_range(kv, "k", 1, 0, device, 1, NULL));
	REFUSED(kv_set_range(kv, "k", 1, 0, device, 9000, NULL));
	REFUSED(kv_submit_set_range(kv, "k", 1, 0, device, 1, told, NULL));
	REFUSED(kv_putv(kv, device, 3, pieces, 1, NULL, NULL));
	REFUSED(kv_putv(kv, "k", 1, pieces, ARRAY_SIZE(pieces), NULL, NULL));
	REFUSED(kv_fetchv(kv, "k", 1, NULL, pieces, ARRAY_SIZE(pieces), &len, NULL));
	REFUSED(kv_expect_length(kv, device, 3, 100));
	REFUSED(kv_scan(kv, &cursor, device, 3, 0, never, NULL));
	REFUSED(kv_each(kv, device, 3, never, NULL));
	REFUSED(kv_delete_prefix(kv, device, 3, NULL));
	REFUSED(kv_submit(kv, &request, 1));
	REFUSED(kv_submit_lease(kv, device, 3, 1000, told, NULL));
	REFUSED(kv_watch(kv, device, 3, KV_EVENT_ALL));
	/* Beyond the registration, in part. */
	REFUSED(kv_set_bytes(kv, "k", 1, device + DEVICE - 1, 2));
	REFUSED(kv_set_bytes(kv, "k", 1, device - 1, 2));
	REFUSED(kv_get_into(kv, "k", 1, device - 5, MIB, &len));
	rdmad_error();
	ck_assert_uint_eq(kv_checksum(pieces, 1), 0);
	ck_assert_msg(strstr(rdmad_error(), "memory of a device"), "%s", rdmad_error());
	ck_assert_uint_eq(kv_checksum(pieces, 3), 0);
	ck_assert_int_eq(kv_mset(kv, &item, 1, NULL), -EFAULT);
	ck_assert_int_eq(kv_mget(kv, &item, 1, refused_item, NULL), -EFAULT);
	ck_assert_int_eq(kv_mget_into(kv, &place, 1), -EFAULT);
	ck_assert_int_eq(kv_mexists(kv, &item, 1, true), -EFAULT);
	ck_assert_int_eq(kv_mlease(kv, &item, 1, 1000, NULL), -EFAULT);
	ck_assert_int_eq(kv_mrelease(kv, &item, 1), -EFAULT);
	assert_value(kv, "k", 10, 1);
	ck_assert_int_eq(kv_delete(kv, "k", 1), 1);
#undef REFUSED
}

static void test_all(const struct rdmad_options *options)
{
	if (!begin(options))
		return;
	test_sets();
	test_gets();
	test_many();
	test_pieces();
	test_refused();
	end();
	server_rests();
	assert_store_empty();
}

START_TEST(test_values)
{
	test_all(NULL);
}
END_TEST

/* The thread finds answers while the caller is away. */
START_TEST(test_progress_thread)
{
	test_all(&(struct rdmad_options){.progress_thread = true});
}
END_TEST

/* A request that is given up leaves the memory alone, and the handle goes on. */
START_TEST(test_cancelled)
{
	struct call *c = call(0, 0);

	if (!begin(NULL))
		return;
	set_value(kv, "k", 3000, 3);
	memset(inside, 0xee, DEVICE);
	server_pause();
	ck_assert_int_eq(kv_submit_get_into(kv, "k", 1, device, 4096, done, c), 0);
	ck_assert_int_eq(kv_flush(kv), 0);
	ck_assert_int_eq(kv_cancel(kv, c), 1);
	assert_done(c, -ECANCELED);
	server_resume();
	ck_assert_int_eq(kv_exists(kv, "k", 1), 1);
	ck_assert_int_eq(kv_get_into(kv, "k", 1, device + 5000, 4096, NULL), 0);
	ck_assert(value_holds(inside + 5000, 3000, 3));
	end();
}
END_TEST

/*
 * Registrations
 */
START_TEST(test_registration)
{
	unsigned before;
	void *addr, *of_its_own = NULL;
	int fds[2], copy;

	if (!begin(NULL))
		return;
	before = count_descriptors();
	/* Addresses for memory that has none; the descriptor is not needed any more. */
	copy = fcntl(device_fd, F_DUPFD_CLOEXEC, 0);
	ck_assert_int_eq(kv_buffer_register_dmabuf(kv, copy, 4096 + 24, 9000, &of_its_own), 0);
	ck_assert_int_eq(close(copy), 0);
	ck_assert_ptr_nonnull(of_its_own);
	ck_assert_uint_eq((uintptr_t)of_its_own % 4096, 24);
	fill(4096 + 24, 9000, 9);
	ck_assert_int_eq(kv_set_bytes(kv, "k", 1, of_its_own, 9000), 0);
	assert_value(kv, "k", 9000, 9);
	set_value(kv, "k", 100, 10);
	ck_assert_int_eq(kv_get_into(kv, "k", 1, (char *)of_its_own + 8000, 1000, NULL), 0);
	ck_assert(value_holds(inside + 4096 + 24 + 8000, 100, 10));
	ASSERT_ERROR(kv_set_bytes(kv, "k", 1, (char *)of_its_own + 1, 9000), -EFAULT, "memory of a device");
	ck_assert_int_eq(kv_buffer_unregister(kv, of_its_own), 0);
	ck_assert_uint_eq(count_descriptors(), before);

	addr = device;
	ASSERT_ERROR(kv_buffer_register_dmabuf(kv, device_fd, 0, 4096, &addr), -EEXIST, "already");
	ASSERT_ERROR(kv_buffer_register_dmabuf(kv, device_fd, 0, 0, &addr), -EINVAL, "a length");
	ASSERT_ERROR(kv_buffer_register_dmabuf(kv, -1, 0, 1, &addr), -EINVAL, "a descriptor");
	ASSERT_ERROR(kv_buffer_register_dmabuf(kv, device_fd, 0, 1, NULL), -EINVAL, "a place");
	addr = NULL;
	ASSERT_ERROR(kv_buffer_register_dmabuf(kv, 9999, 0, 1, &addr), -EBADF, "9999");
	ASSERT_ERROR(kv_buffer_register_dmabuf(kv, device_fd, 4096, DEVICE, &addr), -EINVAL, "bytes at 4096");
	ASSERT_ERROR(kv_buffer_register_dmabuf(kv, device_fd, UINT64_MAX - 4095, 4096, &addr), -EINVAL, "dmabuf of");
	addr = space;
	ASSERT_ERROR(kv_buffer_register_dmabuf(kv, device_fd, (uintptr_t)space % 4096 ^ 1, 8, &addr), -EINVAL,
		     "same place of a page");
	addr = NULL;
	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	ck_assert_int_eq(kv_buffer_register_dmabuf(kv, fds[0], 0, 4096, &addr), -EOPNOTSUPP);
	ck_assert_msg(strstr(rdmad_error(), "memory of the host"), "%s", rdmad_error());
	close(fds[0]);
	close(fds[1]);
	ck_assert_ptr_null(addr);
	ck_assert_uint_eq(count_descriptors(), before);
	ck_assert_uint_eq(device_ranges, 1);
	ck_assert_int_eq(kv_delete(kv, "k", 1), 1);
	end();
}
END_TEST

/* What may only be read can be set from, and gets into it are refused. tests/fake/verbs_shim takes no such thing. */
START_TEST(test_read_only)
{
	char path[64];
	void *addr = NULL;
	int fd;

	if (!begin(NULL))
		return;
	if (strcmp(kv_transport(kv), "rdma") == 0) {
		end();
		return;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", device_fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(kv_buffer_register_dmabuf(kv, fd, 0, 8192, &addr), 0);
	close(fd);
	fill(0, 8192, 5);
	ck_assert_int_eq(kv_set_bytes(kv, "k", 1, addr, 100), 0);
	assert_value(kv, "k", 100, 5);
	ck_assert_int_eq(kv_get_into(kv, "k", 1, addr, 8192, NULL), -EFAULT);
	ck_assert_int_eq(kv_set_bytes(kv, "k", 1, addr, 8192), 0);
	assert_value(kv, "k", 8192, 5);
	ck_assert_int_eq(kv_buffer_unregister(kv, addr), 0);
	ck_assert_int_eq(kv_delete(kv, "k", 1), 1);
	end();
}
END_TEST

/* Another handle has no registration of it; and one that is closed with one leaves nothing. */
START_TEST(test_other_handle)
{
	unsigned mappings;
	void *other, *addr;

	if (!begin(NULL))
		return;
	mappings = count_mappings();
	other = open_kv(NULL, NULL);
	ASSERT_ERROR(kv_set_bytes(other, "k", 1, device, 10), -EFAULT, "this handle");
	addr = device;
	ck_assert_int_eq(kv_buffer_register_dmabuf(other, device_fd, 0, DEVICE, &addr), 0);
	ck_assert_int_eq(kv_set_bytes(other, "k", 1, device, 10), 0);
	ck_assert_uint_eq(device_ranges, 2);
	ck_assert_int_eq(kv_close(other), 0);
	ck_assert_uint_eq(device_ranges, 1);
	if (strcmp(kv_transport(kv), "shm") != 0)
		ck_assert_uint_eq(count_mappings(), mappings);
	ck_assert_int_eq(kv_reopen(kv), 0);
	ck_assert_int_eq(kv_set_bytes(kv, "k", 1, device, 10), 0);
	ck_assert_int_eq(kv_delete(kv, "k", 1), 1);
	end();
}
END_TEST

/*
 * CUDA, as tests/fake has it
 */
static int (*cuda_alloc)(uint64_t *pointer, size_t size), (*cuda_free)(uint64_t pointer);
static int (*cuda_put)(uint64_t to, const void *from, size_t size), (*cuda_get)(void *to, uint64_t from, size_t size);

static void cuda_load(void)
{
	void *library = dlopen("tests/fake/.libs/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	ck_assert_msg(library, "%s", dlerror());
	*(void **)&cuda_alloc = dlsym(library, "cuMemAlloc_v2");
	*(void **)&cuda_free = dlsym(library, "cuMemFree_v2");
	*(void **)&cuda_put = dlsym(library, "cuMemcpyHtoD_v2");
	*(void **)&cuda_get = dlsym(library, "cuMemcpyDtoH_v2");
	ck_assert(cuda_alloc && cuda_free && cuda_put && cuda_get);
}

/* The call for memory of the host knows its addresses. */
START_TEST(test_cuda)
{
	static uint8_t back[8192];
	unsigned before;
	uint64_t pointer;
	char *addr;

	if (!begin(NULL))
		return;
	cuda_load();
	before = count_descriptors();
	ck_assert_int_eq(cuda_alloc(&pointer, 2 * MIB), 0);
	addr = (char *)(uintptr_t)pointer + 24;
	ck_assert_msg(kv_buffer_register(kv, addr, MIB) == 0, "%s", rdmad_error());
	ck_assert_uint_eq(device_ranges, 2);
	value_fill(value, 5000, 1);
	ck_assert_int_eq(cuda_put((uintptr_t)addr + 3, value, 5000), 0);
	ck_assert_int_eq(kv_set_bytes(kv, "k", 1, addr + 3, 17), 0);
	assert_value(kv, "k", 17, 1);
	ck_assert_int_eq(kv_set_bytes(kv, "k", 1, addr + 3, 5000), 0);
	assert_value(kv, "k", 5000, 1);
	for (size_t len = 100; len < 8192; len += 5000) {
		set_value(kv, "k", len, len);
		ck_assert_int_eq(kv_get_into(kv, "k", 1, addr, 8192, NULL), 0);
		ck_assert_int_eq(cuda_get(back, (uintptr_t)addr, len), 0);
		ck_assert(value_holds(back, len, len));
	}
	ASSERT_ERROR(kv_append(kv, "k", 1, addr, 3, NULL), -EFAULT, "memory of a device");
	ck_assert_int_eq(kv_buffer_unregister(kv, addr), 0);

	/* What CUDA does not give out, and what it does not have. */
	setenv("RDMAD_FAKE_CUDA", "cuMemGetHandleForAddressRange=201", 1);
	ASSERT_ERROR(kv_buffer_register(kv, addr, MIB), -EOPNOTSUPP, "invalid device context");
	ck_assert_msg(strstr(rdmad_error(), "CUDA 11.7"), "%s", rdmad_error());
	ck_assert_int_eq(kv_buffer_register(kv, space, 8192), 0);
	ck_assert_int_eq(kv_buffer_unregister(kv, space), 0);
	unsetenv("RDMAD_FAKE_CUDA");
	ck_assert_int_eq(cuda_free(pointer), 0);
	ck_assert_uint_eq(count_descriptors(), before);
	ck_assert_int_eq(kv_delete(kv, "k", 1), 1);
	end();
}
END_TEST

/* A dmabuf of the kernel, of pages of a file; which needs /dev/udmabuf. */
START_TEST(test_udmabuf)
{
	struct udmabuf_create create = {.flags = UDMABUF_FLAGS_CLOEXEC, .size = DEVICE};
	int maker = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), fd;
	void *addr = NULL;

	if (maker < 0 || !begin(NULL)) {
		fprintf(stderr, "%s: no dmabuf of the kernel was tried\n", maker < 0 ? "/dev/udmabuf" : "rdma");
		return;
	}
	ck_assert_int_eq(fcntl(device_fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	create.memfd = (uint32_t)device_fd;
	fd = ioctl(maker, UDMABUF_CREATE, &create);
	ck_assert_msg(fd >= 0, "UDMABUF_CREATE: %m");
	ck_assert_msg(kv_buffer_register_dmabuf(kv, fd, 0, DEVICE, &addr) == 0, "%s", rdmad_error());
	close(fd);
	close(maker);
	ASSERT_ERROR(kv_buffer_register_dmabuf(kv, device_fd, 1, DEVICE, &(void *){NULL}), -EINVAL, "dmabuf of");
	fill(0, 5000, 1);
	ck_assert_int_eq(kv_set_bytes(kv, "k", 1, addr, 5000), 0);
	assert_value(kv, "k", 5000, 1);
	set_value(kv, "k", 64, 2);
	ck_assert_int_eq(kv_get_into(kv, "k", 1, (char *)addr + 100, 64, NULL), 0);
	ck_assert(value_holds(inside + 100, 64, 2));
	ck_assert_int_eq(kv_buffer_unregister(kv, addr), 0);
	ck_assert_int_eq(kv_delete(kv, "k", 1), 1);
	end();
}
END_TEST

/*
 * Other servers
 */

/* One that does not know that short values are to be written. */
START_TEST(test_older_server)
{
	if (!begin(NULL))
		return;
	((struct kv *)kv)->direct = false;
	fill(0, 10, 1);
	ck_assert_int_eq(kv_set_bytes(kv, "k", 1, device, 10), 0);
	ASSERT_ERROR(kv_get_into(kv, "k", 1, device, 10, NULL), -EFAULT, "older one");
	ASSERT_ERROR(kv_submit_get_into(kv, "k", 1, device, 8192, NULL, NULL), -EFAULT, "older one");
	ck_assert_int_eq(kv_delete(kv, "k", 1), 1);
	end();
}
END_TEST

START_TEST(test_no_arena)
{
	if (!begin(NULL))
		return;
	ASSERT_ERROR(kv_set_bytes(kv, "k", 1, device, 10), -EFAULT, "no registered memory");
	ASSERT_ERROR(kv_get_into(kv, "k", 1, device, 10, NULL), -EFAULT, "no registered memory");
	end();
}
END_TEST

/* One that answers with the value all the same: it goes nowhere, and the connection ends. */
START_TEST(test_rogue_answer)
{
	static const struct rogue copies = {"", 0, 64, 0, WIRE_OK, 0, 0};
	struct iovec piece;

	rogue = &copies;
	if (!begin(NULL))
		return;
	piece = (struct iovec){device, 100};
	((struct kv *)kv)->direct = true;
	if (_i == 0)
		ck_assert_int_eq(kv_get_into(kv, "k", 1, device, 100, NULL), -EPROTO);
	else
		ck_assert_int_eq(kv_fetchv(kv, "k", 1, NULL, &piece, 1, NULL, NULL), -EPROTO);
	ck_assert_int_eq(kv_close(kv), 0);
	ck_assert_uint_eq(device_ranges, 0);
	device_free();
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, test_values);
	tcase_add_test(tc, test_progress_thread);
	tcase_add_test(tc, test_cancelled);
	tcase_add_test(tc, test_registration);
	tcase_add_test(tc, test_read_only);
	tcase_add_test(tc, test_other_handle);
	tcase_add_test(tc, test_cuda);
	tcase_add_test(tc, test_udmabuf);
	tcase_add_test(tc, test_older_server);
}

static void add_pushed(TCase *tc)
{
	tcase_add_test(tc, test_values);
	tcase_add_test(tc, test_progress_thread);
}

int main(void)
{
	Suite *suite = suite_over_each("kv_device", add, add_pushed);

	tcase_add_test(suite_case(suite, "no arena", set_up_no_arena, tear_down), test_no_arena);
	tcase_add_loop_test(suite_case(suite, "rogue", set_up_rogue, tear_down), test_rogue_answer, 0, 2);
	return suite_run(suite);
}
