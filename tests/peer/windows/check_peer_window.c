/* check_peer_window.c: memory that peers read and write, words that they change, notices, and the end of windows. */
#include "tests/peer/windows/peer_sides.h"

#include "tests/regions.h"

static _Atomic int windows; /* of the fabric, of all sides */

int __real_fabric_window_open(struct fabric_endpoint *endpoint, const struct fabric_region *region, void *addr,
			      size_t len, unsigned access, struct fabric_window **out);
int __wrap_fabric_window_open(struct fabric_endpoint *endpoint, const struct fabric_region *region, void *addr,
			      size_t len, unsigned access, struct fabric_window **out);
int __wrap_fabric_window_open(struct fabric_endpoint *endpoint, const struct fabric_region *region, void *addr,
			      size_t len, unsigned access, struct fabric_window **out)
{
	int rc = __real_fabric_window_open(endpoint, region, addr, len, access, out);

	windows += rc == 0;
	return rc;
}

void __real_fabric_window_close(struct fabric_window *fabric);
void __wrap_fabric_window_close(struct fabric_window *fabric);
void __wrap_fabric_window_close(struct fabric_window *fabric)
{
	windows -= fabric != NULL;
	__real_fabric_window_close(fabric);
}

/*
 * Reads and writes
 */
static const size_t lengths[] = {0, 1, 8, 64, 256, 257, 4095, 4096, 4097, 65536, 262144, 262145, 1048579, 5000000};

START_TEST(lengths_of_all_kinds)
{
	const size_t room = 6000000, length = lengths[_i], offset = 1000 + (size_t)_i;
	uint8_t *data = malloc(room), *back = malloc(room), *memory;

	begin(2);
	window_begin(NULL, room, RDMA_WINDOW_READ | RDMA_WINDOW_WRITE);
	memory = rdma_window_addr(window);
	ck_assert_uint_eq(rdma_remote_size(remote), room);
	ck_assert_uint_eq(rdma_remote_rights(remote), RDMA_WINDOW_READ | RDMA_WINDOW_WRITE);
	memset(memory, 0xee, room);
	fill(data, length, (unsigned)_i);
	expect_ok(of(1, rdma_write(remote, offset, data, length, RDMA_NO_NOTICE)));
	ck_assert(memcmp(memory + offset, data, length) == 0);
	ck_assert(memory[offset - 1] == 0xee && memory[offset + length] == 0xee);
	memset(back, 0x11, room);
	expect_ok(of(1, rdma_read(remote, offset, back + 1, length)));
	ck_assert(memcmp(back + 1, data, length) == 0);
	ck_assert(back[0] == 0x11 && back[length + 1] == 0x11);
	window_end();
	free(data);
	free(back);
	end();
}
END_TEST

/* Many under way, of all sizes, each at its place; and read back likewise. */
START_TEST(many_at_a_time)
{
	enum { MANY = 300, ROOM = 70000 };
	static rdma_request *requests[MANY];
	uint8_t *data = malloc(MANY * ROOM), *back = calloc(MANY, ROOM), *memory;

	begin(2);
	window_begin(NULL, MANY * ROOM, RDMA_WINDOW_READ | RDMA_WINDOW_WRITE);
	memory = rdma_window_addr(window);
	fill(data, MANY * ROOM, 1);
	for (int pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < MANY; i++) {
			size_t at = i * ROOM, length = i * i * 37 % ROOM;

			requests[i] = pass ? of(1, rdma_iread(remote, at, back + at, length))
					   : of(1, rdma_iwrite(remote, at, data + at, length, RDMA_NO_NOTICE));
			ck_assert_msg(requests[i], "%s", rdma_get_error());
		}
		expect_ok(of(1, rdma_wait_all(requests, MANY, 120000, NULL)));
	}
	for (size_t i = 0; i < MANY; i++) {
		ck_assert(memcmp(memory + i * ROOM, data + i * ROOM, i * i * 37 % ROOM) == 0);
		ck_assert(memcmp(back + i * ROOM, data + i * ROOM, i * i * 37 % ROOM) == 0);
		ck_assert_uint_eq(memory[i * ROOM + i * i * 37 % ROOM], 0);
	}
	window_end();
	free(data);
	free(back);
	end();
}
END_TEST

/* More of them than are kept, from two peers: in each one's order, and what was written before is there. */
START_TEST(notices)
{
	enum { MANY = 3000 };
	static rdma_request *requests[MANY];
	static uint64_t values[2][MANY];
	uint64_t next[2] = {0}, notify;
	uint64_t *memory;
	rdma_remote *other;
	int from;

	begin_with(3, _i ? 10000 : 0);
	window_begin(NULL, 2 * sizeof(uint64_t) * MANY, RDMA_WINDOW_WRITE);
	memory = rdma_window_addr(window);
	other = share_with(2, window);
	for (uint64_t i = 0; i < MANY; i++) {
		unsigned who = i % 2;

		values[who][i] = i + 1;
		requests[i] = of(1 + who, rdma_iwrite(who ? other : remote, (who * MANY + i) * 8, &values[who][i],
						      i % 5 ? 8 : 0, i));
		ck_assert_msg(requests[i], "%s", rdma_get_error());
	}
	for (unsigned i = 0; i < MANY; i++) {
		unsigned who;

		expect_ok(of(0, rdma_notice(window, &notify, &from, 600000)));
		who = from == sides[2].index;
		ck_assert(who || from == sides[1].index);
		ck_assert_uint_eq(notify, 2 * next[who]++ + who);
		if (notify % 5)
			ck_assert_uint_eq(memory[who * MANY + notify], notify + 1);
	}
	expect_error(of(0, rdma_notice(window, &notify, &from, 0)), ETIMEDOUT, "Timed out");
	for (unsigned i = 0; i < MANY; i++)
		expect_ok(of(1 + i % 2, rdma_wait(requests[i], 600000, NULL)));
	pthread_mutex_lock(&sides[2].lock);
	rdma_remote_close(other);
	pthread_mutex_unlock(&sides[2].lock);
	window_end();
	end();
}
END_TEST

static void notices_written(unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++)
		expect_ok(of(1, rdma_write(remote, 0, "12345678", 8, i)));
}

/* What waits from a share that is gone does not count for the next one. */
START_TEST(notices_of_an_earlier_share)
{
	const unsigned earlier = _i ? 200 : 300, all = 401;
	uint64_t notify;

	begin(2);
	window_begin(NULL, 8, RDMA_WINDOW_WRITE);
	notices_written(0, earlier);
	pthread_mutex_lock(&sides[1].lock);
	rdma_remote_close(remote);
	pthread_mutex_unlock(&sides[1].lock);
	while (of(0, rdma_window_share(window, sides[1].index)) != 0) { /* until the owner has heard of it */
		ck_assert_int_eq(rdma_get_errno(), EEXIST);
		usleep(1000);
	}
	remote = open_by(1);
	notices_written(earlier, all - 1);
	for (unsigned i = 0; i < all; i++) {
		if (i == all - 1)
			notices_written(i, all);
		expect_ok(of(0, rdma_notice(window, &notify, NULL, 600000)));
		ck_assert_uint_eq(notify, i);
	}
	window_end();
	end();
}
END_TEST

/*
 * What is refused before anything is sent
 */
START_TEST(parameters)
{
	const uint64_t far = UINT64_MAX;
	uint64_t word = 1;
	char data[200];
	rdma_window *w;

	begin(2);
	window_begin(NULL, 100, RDMA_WINDOW_READ);
	expect_error(of(1, rdma_write(remote, 0, data, 1, RDMA_NO_NOTICE)), EACCES, "without RDMA_WINDOW_WRITE");
	expect_error(of(1, rdma_fetch_add(remote, 0, 1, &word)), EACCES, "without RDMA_WINDOW_ATOMIC");
	expect_error(of(1, rdma_read(remote, 0, data, 101)), ERANGE, "101 bytes at 0 of a window of 100");
	expect_error(of(1, rdma_read(remote, 100, data, 1)), ERANGE, "Out of range");
	expect_error(of(1, rdma_read(remote, far, data, 1)), ERANGE, "Out of range");
	expect_error(of(1, rdma_read(remote, far - 50, data, 100)), ERANGE, "Out of range");
	expect_error(of(1, rdma_read(remote, 50, data, SIZE_MAX)), ERANGE, "Out of range");
	expect_error(of(1, rdma_read(remote, 101, data, 0)), ERANGE, "Out of range");
	expect_error(of(1, rdma_read(remote, 0, NULL, 1)), EINVAL, "the memory is NULL");
	expect_error(of(1, rdma_read(NULL, 0, data, 1)), EINVAL, "the window is NULL");
	expect_error(of(1, rdma_fetch_add(NULL, 0, 1, NULL)), EINVAL, "the window is NULL");
	ck_assert_ptr_null(of(1, rdma_iread(remote, 0, data, 101)));
	ck_assert_int_eq(rdma_get_errno(), ERANGE);
	expect_ok(of(1, rdma_read(remote, 100, NULL, 0)));
	window_end();
	window_begin(NULL, 20, ALL);
	expect_error(of(1, rdma_fetch_add(remote, 4, 1, &word)), EINVAL, "Not aligned");
	expect_error(of(1, rdma_compare_swap(remote, 16, 1, 1, &word)), ERANGE, "Out of range");
	expect_error(of(1, rdma_fetch_add(remote, far - 7, 1, &word)), ERANGE, "Out of range");
	expect_error(of(0, rdma_window_share(window, sides[1].index)), EEXIST, "already");
	expect_error(of(0, rdma_window_share(window, 77)), rdma_get_errno(), "Invalid peer index");
	expect_error(of(0, rdma_window_share(NULL, 0)), EINVAL, "the window is NULL");
	expect_error(of(0, rdma_notice(NULL, NULL, NULL, 0)), EINVAL, "the window is NULL");
	window_end();
	for (unsigned i = 0; i < 4; i++) {
		w = i == 0   ? rdma_window_create(NULL, NULL, 10, ALL)
		    : i == 1 ? rdma_window_create(sides[0].ctx, NULL, 10, 0)
		    : i == 2 ? rdma_window_create(sides[0].ctx, data, SIZE_MAX - 5, ALL)
			     : rdma_window_create(sides[0].ctx, (char *)&word + 4, 4, ALL);
		ck_assert_ptr_null(w);
		ck_assert_int_eq(rdma_get_errno(), EINVAL);
	}
	ck_assert_ptr_null(of(1, rdma_window_open(sides[1].ctx, sides[1].owner, 10)));
	ck_assert_int_eq(rdma_get_errno(), ETIMEDOUT);
	rdma_window_close(NULL);
	rdma_remote_close(NULL);
	end();
}
END_TEST

/* Nothing, and a great deal of which little is touched; and the caller's own, which is what it was afterwards. */
START_TEST(sizes)
{
	const size_t large = (size_t)1 << 30;
	uint64_t notify;
	char mine[64] = "mine", data[8] = "1234567";

	begin(2);
	window_begin(NULL, 0, RDMA_WINDOW_READ | RDMA_WINDOW_WRITE);
	ck_assert_uint_eq(rdma_remote_size(remote), 0);
	expect_ok(of(1, rdma_write(remote, 0, data, 0, 5)));
	expect_ok(of(0, rdma_notice(window, &notify, NULL, 600000)));
	ck_assert_uint_eq(notify, 5);
	expect_error(of(1, rdma_write(remote, 0, data, 1, 5)), ERANGE, "Out of range");
	window_end();
	window_begin(mine, sizeof(mine), ALL);
	ck_assert_ptr_eq(rdma_window_addr(window), mine);
	expect_ok(of(1, rdma_write(remote, 56, data, 8, RDMA_NO_NOTICE)));
	window_end();
	ck_assert_str_eq(mine + 56, "1234567");
	ck_assert_str_eq(mine, "mine");
	if (strcmp(scheme, "rdma") != 0) { /* a device pins all of it */
		window_begin(NULL, large, ALL);
		expect_ok(of(1, rdma_write(remote, large - 8, data, 8, RDMA_NO_NOTICE)));
		ck_assert_str_eq((char *)rdma_window_addr(window) + large - 8, "1234567");
		window_end();
	}
	end();
}
END_TEST

/*
 * Atomic operations
 */
START_TEST(values)
{
	uint64_t before = 1, *memory;
	const char *by;

	begin(2);
	window_begin(NULL, 64, ALL);
	memory = rdma_window_addr(window);
	by = rdma_remote_atomics(remote);
	ck_assert(strcmp(by, "device") == 0 || strcmp(by, "peer") == 0);
	ck_assert(strcmp(scheme, "rdma") == 0 || strcmp(by, "peer") == 0);
	expect_ok(of(1, rdma_fetch_add(remote, 56, 5, &before)));
	ck_assert_uint_eq(before, 0);
	expect_ok(of(1, rdma_fetch_add(remote, 56, UINT64_MAX, &before)));
	ck_assert_uint_eq(before, 5);
	expect_ok(of(1, rdma_compare_swap(remote, 56, 3, 9, &before)));
	ck_assert_uint_eq(before, 4);
	expect_ok(of(1, rdma_compare_swap(remote, 56, 4, 1ull << 63, NULL)));
	ck_assert_uint_eq(memory[7], 1ull << 63);
	ck_assert_uint_eq(memory[6], 0);
	window_end();
	end();
}
END_TEST

enum { ADDERS = 5 };

START_TEST(sums)
{
	struct adder adders[ADDERS];
	pthread_t threads[ADDERS];
	uint64_t *memory;

	begin(1 + ADDERS);
	window_begin(NULL, 24, ALL);
	memory = rdma_window_addr(window);
	for (unsigned i = 0; i < ADDERS; i++) {
		adders[i] = (struct adder){.side = 1 + i, .remote = i ? share_with(1 + i, window) : remote};
		ck_assert_int_eq(pthread_create(&threads[i], NULL, adder_run, &adders[i]), 0);
	}
	for (unsigned i = 0; i < ADDERS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(memory[1], ADDERS * ADDS);
	ck_assert_uint_eq(memory[2], ADDERS * ADDS);
	ck_assert_uint_eq(memory[0], 0);
	window_end();
	end();
}
END_TEST

/*
 * The end of windows
 */
START_TEST(closed_by_the_owner)
{
	rdma_request *requests[20];
	char data[100] = "x", *memory;
	static char large[20][400000];
	int64_t result;
	unsigned failed = 0;

	begin(2);
	window_begin(calloc(20, 400000), 20 * 400000, ALL);
	memory = rdma_window_addr(window);
	for (unsigned i = 0; i < 20; i++)
		requests[i] = of(1, rdma_iwrite(remote, i * 400000, large[i], 400000, RDMA_NO_NOTICE));
	pthread_mutex_lock(&sides[0].lock);
	rdma_window_close(window);
	pthread_mutex_unlock(&sides[0].lock);
	free(memory); /* nobody touches it */
	for (unsigned i = 0; i < 20; i++)
		if (of(1, rdma_wait(requests[i], 600000, &result)) != 0) {
			ck_assert_int_eq(rdma_get_errno(), EPIPE);
			failed++;
		}
	expect_error(of(1, rdma_write(remote, 0, data, 1, RDMA_NO_NOTICE)), EPIPE, "Window closed");
	expect_error(of(1, rdma_fetch_add(remote, 0, 1, NULL)), EPIPE, "Window closed");
	pthread_mutex_lock(&sides[1].lock);
	rdma_remote_close(remote);
	pthread_mutex_unlock(&sides[1].lock);
	window_begin(NULL, 100, ALL); /* and the connection is well */
	expect_ok(of(1, rdma_write(remote, 0, data, 1, RDMA_NO_NOTICE)));
	window_end();
	ck_assert_uint_le(failed, 20);
	end();
}
END_TEST

/* One on offer that nobody opened goes with its owner's close, at once. */
START_TEST(never_opened)
{
	rdma_window *w;

	begin(2);
	w = of(0, rdma_window_create(sides[0].ctx, NULL, 100, ALL));
	expect_ok(of(0, rdma_window_share(w, sides[1].index)));
	pthread_mutex_lock(&sides[0].lock);
	rdma_window_close(w);
	pthread_mutex_unlock(&sides[0].lock);
	ck_assert_ptr_null(of(1, rdma_window_open(sides[1].ctx, sides[1].owner, 10)));
	ck_assert_int_eq(rdma_get_errno(), ETIMEDOUT);
	end();
}
END_TEST

/* A user that lets go while something is under way: that is finished. */
START_TEST(closed_by_the_user)
{
	static char data[3000000];
	rdma_request *request;
	uint64_t notify;

	begin(2);
	window_begin(NULL, sizeof(data), ALL);
	fill((uint8_t *)data, sizeof(data), 3);
	request = of(1, rdma_iwrite(remote, 0, data, sizeof(data), 8));
	pthread_mutex_lock(&sides[1].lock);
	rdma_remote_close(remote);
	pthread_mutex_unlock(&sides[1].lock);
	expect_ok(of(1, rdma_wait(request, 600000, NULL)));
	expect_ok(of(0, rdma_notice(window, &notify, NULL, 600000)));
	ck_assert(memcmp(rdma_window_addr(window), data, sizeof(data)) == 0);
	expect_error(of(0, rdma_notice(window, &notify, NULL, 600000)), EPIPE, "no peer has the window");
	remote = share_with(1, window); /* it can be had again */
	expect_ok(of(1, rdma_write(remote, 0, data, 100, RDMA_NO_NOTICE)));
	window_end();
	end();
}
END_TEST

/* Nothing of them remains. */
START_TEST(thousands)
{
	const unsigned many = strcmp(scheme, "rdma") ? 2000 : 200;
	char data[8] = "1234567";
	int before = 0;

	begin(2);
	for (unsigned i = 0; i < many; i++) {
		if (i == 20) /* buffers that are kept were made */
			before = windows + regions;
		window_begin(NULL, 4096, ALL);
		if (i % 16 == 0)
			expect_ok(of(1, rdma_write(remote, 8, data, 8, RDMA_NO_NOTICE)));
		window_end();
	}
	ck_assert_int_eq(windows + regions, before);
	ck_assert(list_empty(&sides[0].ctx->windows));
	for (unsigned i = 0; i < 2; i++) {
		struct peer_window *pw = sides[i].ctx->peer[0]->window;

		ck_assert(list_empty(&pw->shares) && list_empty(&pw->remotes) && list_empty(&pw->offers));
		ck_assert_uint_eq(pw->share_count + pw->remote_count, 0);
	}
	end();
}
END_TEST

/* What a program does not close is closed with its context. */
START_TEST(left_open)
{
	static char data[5000000];

	begin(2);
	window_begin(NULL, sizeof(data), ALL);
	ck_assert_ptr_nonnull(of(1, rdma_iwrite(remote, 0, data, sizeof(data), 8)));
	ck_assert_ptr_nonnull(of(1, rdma_iread(remote, 0, data, 100)));
	end();
}
END_TEST

static void add(Suite *suite, const char *name, const TTest *test, int times)
{
	tcase_add_loop_test(suite_case(suite, name, NULL, NULL), test, 0, times);
}

static Suite *suite_of_windows(void)
{
	Suite *suite = suite_create("peer_window");

	add(suite, "lengths", lengths_of_all_kinds, ARRAY_SIZE(lengths));
	add(suite, "many", many_at_a_time, 1);
	add(suite, "notices", notices, 2);
	add(suite, "notices of an earlier share", notices_of_an_earlier_share, 2);
	add(suite, "parameters", parameters, 1);
	add(suite, "sizes", sizes, 1);
	add(suite, "values", values, 1);
	add(suite, "sums", sums, 1);
	add(suite, "closed", closed_by_the_owner, 1);
	add(suite, "offer", never_opened, 1);
	add(suite, "let go", closed_by_the_user, 1);
	add(suite, "thousands", thousands, 1);
	add(suite, "left open", left_open, 1);
	return suite;
}

int main(int argc, char **argv)
{
	sides_arguments(argc, argv);
	return suite_run(suite_of_windows());
}
