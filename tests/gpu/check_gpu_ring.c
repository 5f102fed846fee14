/*
 * check_gpu_ring.c: the ring's words, and the port that drives them, against a process that is a
 * function or a thread of this process. RDMAD_RING_OPERATIONS: how many jobs the threads exchange.
 */
#include <check.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gpu/program/process.h"
#include "tests/suite.h"

static struct wire_ring ring;
static struct gpu_port *port;

static void make(uint32_t queues, uint32_t slots, uint32_t payload)
{
	struct wire_ring_shape shape = {queues, slots, payload};

	ck_assert(wire_ring_shape_valid(&shape));
	ring.shape = shape;
	ring.at = wire_ring_layout(&shape);
	ring.base = aligned_alloc(WIRE_RING_PAGE, ring.at.bytes);
	ck_assert_ptr_nonnull(ring.base);
	memset(ring.base, 0, ring.at.bytes);
	ck_assert_int_eq(gpu_port_create(&ring, &port), 0);
}

static void unmake(void)
{
	gpu_port_destroy(port);
	free(ring.base);
	port = NULL;
	ring.base = NULL;
}

/* Every part is aligned, holds what it should and overlaps no other. */
START_TEST(test_layout)
{
	static const struct wire_ring_shape shapes[] = {
		{1, 1, 64},
		{8, 16, 4096},
		{64, 1024, 64},
		{64, 1024, WIRE_RING_PAYLOAD_MAX},
	};

	for (unsigned i = 0; i < ARRAY_SIZE(shapes); i++) {
		const struct wire_ring_shape *s = &shapes[i];
		struct wire_ring_layout at = wire_ring_layout(s);
		uint64_t last = wire_ring_cell(s, s->queues - 1, s->slots - 1);

		ck_assert_uint_ge(at.lines, sizeof(struct wire_ring_header));
		ck_assert_uint_ge(at.results, at.lines + s->queues * WIRE_RING_LINE);
		ck_assert_uint_ge(at.client, at.results + last + wire_ring_stride(s));
		ck_assert_uint_ge(at.jobs, at.client + s->queues * WIRE_RING_LINE);
		ck_assert_uint_ge(at.control, at.jobs + last + wire_ring_stride(s));
		ck_assert_uint_ge(at.bytes, at.control + sizeof(struct wire_ring_control));
		ck_assert_uint_eq((at.results | at.client | at.jobs | at.control | at.bytes) % WIRE_RING_PAGE, 0);
	}
}
END_TEST

START_TEST(test_shapes)
{
	static const struct {
		struct wire_ring_shape shape;
		bool valid;
	} cases[] = {
		{{1, 1, 64}, true},
		{{64, 1024, WIRE_RING_PAYLOAD_MAX}, true},
		{{0, 1, 64}, false},
		{{65, 1, 64}, false},
		{{1, 0, 64}, false},
		{{1, 1025, 64}, false},
		{{1, 1, 0}, false},
		{{1, 1, 100}, false},
		{{1, 1, WIRE_RING_PAYLOAD_MAX + 64}, false},
		{{UINT32_MAX, UINT32_MAX, UINT32_MAX}, false},
	};

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++)
		ck_assert_int_eq(wire_ring_shape_valid(&cases[i].shape), cases[i].valid);
}
END_TEST

/* What a client may write: the process sees it for what it is. */
static int take_after(uint64_t submitted, uint64_t taken, uint64_t sequence)
{
	struct wire_ring_job job;

	wire_ring_client_line(&ring, 1)->submitted = submitted;
	wire_ring_job(&ring, 1, taken)->sequence = sequence;
	return wire_ring_take(&ring, 1, taken, &job);
}

START_TEST(test_take)
{
	make(2, 4, 64);
	ck_assert_int_eq(take_after(0, 0, 0), 0);
	ck_assert_int_eq(take_after(1, 0, 1), 1);
	ck_assert_int_eq(take_after(4, 0, 1), 1);
	ck_assert_int_eq(take_after(5, 0, 1), -WIRE_RING_JUMPED);
	ck_assert_int_eq(take_after(UINT64_MAX, 0, 1), -WIRE_RING_JUMPED); /* back by one */
	ck_assert_int_eq(take_after(6, 7, 8), -WIRE_RING_JUMPED);
	ck_assert_int_eq(take_after(1, 0, 0), -WIRE_RING_SEQUENCE);
	ck_assert_int_eq(take_after(1, 0, 2), -WIRE_RING_SEQUENCE);
	ck_assert_int_eq(take_after(9, 8, 5), -WIRE_RING_SEQUENCE); /* that of the round before */
	ck_assert_int_eq(take_after(9, 8, 9), 1);
	/* Counts of 64 bits go round as well. */
	ck_assert_int_eq(take_after(2, UINT64_MAX, 0), 1);
	ck_assert_int_eq(take_after(4, UINT64_MAX, 0), -WIRE_RING_JUMPED);
	unmake();
}
END_TEST

static int room_after(uint64_t collected, uint64_t done)
{
	wire_ring_client_line(&ring, 0)->collected = collected;
	return wire_ring_room(&ring, 0, done);
}

START_TEST(test_room)
{
	make(1, 4, 64);
	ck_assert_int_eq(room_after(0, 0), 4);
	ck_assert_int_eq(room_after(0, 3), 1);
	ck_assert_int_eq(room_after(0, 4), 0);
	ck_assert_int_eq(room_after(4, 4), 4);
	ck_assert_int_eq(room_after(5, 4), -WIRE_RING_JUMPED);
	ck_assert_int_eq(room_after(0, 5), -WIRE_RING_JUMPED);
	ck_assert_int_eq(room_after(UINT64_MAX - 1, 1), 1);
	ck_assert_int_eq(room_after(UINT64_MAX - 1, 2), 0);
	unmake();
}
END_TEST

/* Any byte of a result that is not as it was written, or is of another turn, is seen. */
START_TEST(test_torn_results)
{
	struct wire_ring_result result = {.sequence = 17, .id = 3, .length = 61, .nanoseconds = 5};
	_Alignas(8) uint8_t payload[72];
	unsigned seen = 0;

	for (unsigned i = 0; i < sizeof(payload); i++)
		payload[i] = (uint8_t)(i * 41 + 1);
	result.check = wire_ring_check(&result, payload);
	for (unsigned i = 0; i < sizeof(payload); i++) {
		payload[i] ^= 0x20;
		seen += wire_ring_check(&result, payload) != result.check;
		ck_assert_int_eq(wire_ring_check(&result, payload) != result.check, i < result.length);
		payload[i] ^= 0x20;
	}
	ck_assert_uint_eq(seen, result.length);
	for (unsigned i = 0; i < 4; i++) {
		struct wire_ring_result other = result;

		switch (i) {
		case 0:
			other.sequence += 4;
			break;
		case 1:
			other.id++;
			break;
		case 2:
			other.length++;
			break;
		default:
			other.nanoseconds++;
		}
		ck_assert_uint_ne(wire_ring_check(&other, payload), result.check);
	}
	/* A reader copies it to any address. */
	memmove(payload + 1, payload, 61);
	ck_assert_uint_eq(wire_ring_check(&result, payload + 1), result.check);
}
END_TEST

/* The process, as a function: the next job of the queue, answered by the same bytes. */
static int answer(uint32_t queue, uint64_t *index)
{
	struct wire_ring_result result = {.sequence = *index + 1};
	struct wire_ring_job job = {0};
	void *output = wire_ring_result(&ring, queue, *index) + 1;
	int rc = wire_ring_room(&ring, queue, *index);

	if (rc > 0)
		rc = wire_ring_take(&ring, queue, *index, &job);
	if (rc <= 0)
		return rc;
	result.id = job.id;
	result.length = job.length;
	memcpy(output, wire_ring_job(&ring, queue, *index) + 1, job.length);
	result.check = wire_ring_check(&result, output);
	wire_ring_finish(&ring, queue, *index, &result);
	++*index;
	return 1;
}

static void submit(const struct gpu_cell *cell, uint32_t id)
{
	struct wire_ring_job job = {.id = id, .op = WIRE_RING_ECHO, .length = 4};

	memcpy(wire_ring_job(&ring, cell->queue, cell->index) + 1, &id, sizeof(id));
	gpu_port_submit(port, cell, &job);
}

static struct gpu_cell reserve(void)
{
	struct gpu_cell cell;
	void *input;

	ck_assert_int_eq(gpu_port_reserve(port, &cell, &input), 0);
	ck_assert_ptr_eq(input, wire_ring_job(&ring, cell.queue, cell.index) + 1);
	return cell;
}

/* All cells of all queues are handed out, evenly; then none. */
START_TEST(test_reserve_until_full)
{
	unsigned count[3] = {0};
	struct gpu_cell cell;
	uint64_t index = 0;
	void *input;

	make(3, 4, 64);
	for (unsigned i = 0; i < 12; i++) {
		cell = reserve();
		ck_assert_uint_eq(cell.index, i / 3);
		count[cell.queue]++;
		submit(&cell, i);
	}
	for (unsigned i = 0; i < 3; i++)
		ck_assert_uint_eq(count[i], 4);
	ck_assert_int_eq(gpu_port_reserve(port, &cell, &input), -EAGAIN);
	/* One of queue 2 is taken: that is the free one. */
	ck_assert_int_eq(answer(2, &index), 1);
	cell = reserve();
	ck_assert_uint_eq(cell.queue, 2);
	ck_assert_uint_eq(cell.index, 4);
	ck_assert_int_eq(gpu_port_reserve(port, &cell, &input), -EAGAIN);
	unmake();
}
END_TEST

/* Submitted last first: the process sees none before the first, then all. */
START_TEST(test_submit_in_any_order)
{
	struct gpu_cell cell[4];
	uint64_t index = 0;

	make(1, 4, 64);
	for (unsigned i = 0; i < 4; i++)
		cell[i] = reserve();
	for (unsigned i = 3; i > 0; i--) {
		submit(&cell[i], i);
		ck_assert_int_eq(answer(0, &index), 0);
	}
	submit(&cell[0], 0);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(answer(0, &index), 1);
	ck_assert_int_eq(answer(0, &index), 0);
	unmake();
}
END_TEST

/* Given back last first: there is no room for results before the first is. */
START_TEST(test_release_in_any_order)
{
	struct gpu_done done[8];
	struct gpu_cell cell;
	uint64_t index = 0;

	make(1, 4, 64);
	for (unsigned round = 0; round < 5; round++) {
		for (unsigned i = 0; i < 4; i++) {
			cell = reserve();
			submit(&cell, i);
			ck_assert_int_eq(answer(0, &index), 1);
		}
		cell = reserve();
		submit(&cell, 4);
		ck_assert_int_eq(gpu_port_poll(port, done, 3), 3);
		ck_assert_int_eq(gpu_port_poll(port, done + 3, 5), 1);
		for (unsigned i = 3; i > 0; i--) {
			gpu_port_release(port, &done[i].cell);
			ck_assert_int_eq(answer(0, &index), 0);
		}
		ck_assert_uint_eq(*(const uint32_t *)done[0].output, 0);
		gpu_port_release(port, &done[0].cell);
		ck_assert_int_eq(answer(0, &index), 1);
		ck_assert_int_eq(gpu_port_poll(port, done, 8), 1);
		ck_assert_uint_eq(done[0].result.id, 4);
		gpu_port_release(port, &done[0].cell);
	}
	unmake();
}
END_TEST

/* A process is another process, which may write anything. */
static void assert_nonsense(void (*spoil)(struct wire_ring_worker_line *line))
{
	struct gpu_done done[4];
	struct gpu_cell cell;
	uint64_t index = 0;

	make(2, 4, 64);
	for (unsigned i = 0; i < 2; i++) {
		cell = reserve();
		submit(&cell, i);
	}
	ck_assert_int_eq(answer(1, &index), 1);
	ck_assert_int_eq(gpu_port_poll(port, done, 4), 1);
	spoil(wire_ring_worker_line(&ring, 0));
	ck_assert_int_eq(gpu_port_poll(port, done, 4), -EBADMSG);
	ck_assert(!gpu_port_arm(port));
	unmake();
}

static void done_what_was_not_asked(struct wire_ring_worker_line *line)
{
	line->done = 2;
}

static void took_what_was_not_asked(struct wire_ring_worker_line *line)
{
	line->taken = 2;
}

static void went_back(struct wire_ring_worker_line *line)
{
	line->done = UINT64_MAX;
}

static void no_sequence(struct wire_ring_worker_line *line)
{
	line->done = 1;
}

static void too_long(struct wire_ring_worker_line *line)
{
	*wire_ring_result(&ring, 0, 0) = (struct wire_ring_result){.sequence = 1, .length = 65};
	line->done = 1;
}

START_TEST(test_nonsense_of_the_process)
{
	assert_nonsense(done_what_was_not_asked);
	assert_nonsense(took_what_was_not_asked);
	assert_nonsense(went_back);
	assert_nonsense(no_sequence);
	assert_nonsense(too_long);
}
END_TEST

START_TEST(test_arm)
{
	struct wire_ring_control *control;
	struct gpu_done done[4];
	struct gpu_cell cell;
	uint64_t index = 0;
	uint32_t first;

	make(1, 4, 64);
	control = wire_ring_control(&ring);
	ck_assert(gpu_port_arm(port));
	first = control->waits;
	ck_assert_uint_ne(first, 0);
	gpu_port_disarm(port);
	ck_assert_uint_eq(control->waits, 0);
	ck_assert(gpu_port_arm(port));
	ck_assert_uint_ne(control->waits, first); /* another wait */
	cell = reserve();
	submit(&cell, 1);
	ck_assert(gpu_port_arm(port));
	answer(0, &index);
	ck_assert(!gpu_port_arm(port));
	ck_assert_uint_eq(control->waits, 0);
	ck_assert_int_eq(gpu_port_poll(port, done, 4), 1);
	ck_assert(gpu_port_arm(port));
	unmake();
}
END_TEST

static void *sleep_on_waits(void *argument)
{
	struct wire_ring_control *control = argument;

	wire_ring_store32(&control->watches, 1);
	wire_ring_fence();
	syscall(SYS_futex, &control->waits, FUTEX_WAIT, 0, NULL, NULL, 0);
	return NULL;
}

/* A thread that sleeps while nobody waits for results is woken by one that begins to. */
START_TEST(test_arm_wakes)
{
	struct wire_ring_control *control;
	pthread_t thread;

	make(1, 4, 64);
	control = wire_ring_control(&ring);
	ck_assert_int_eq(pthread_create(&thread, NULL, sleep_on_waits, control), 0);
	while (!wire_ring_load32(&control->watches))
		sched_yield();
	usleep(10000); /* it is asleep, or finds the word changed */
	ck_assert(gpu_port_arm(port));
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	unmake();
}
END_TEST

/* Only a sleeper is kicked, once for all that came. */
START_TEST(test_kick)
{
	struct wire_ring_control *control;
	struct gpu_cell cell;

	make(1, 4, 64);
	control = wire_ring_control(&ring);
	cell = reserve();
	submit(&cell, 1);
	gpu_port_kick(port);
	ck_assert_uint_eq(control->kick, 0);
	control->sleepers = 1;
	gpu_port_kick(port);
	ck_assert_uint_eq(control->kick, 0); /* it looked after that one */
	cell = reserve();
	submit(&cell, 2);
	gpu_port_kick(port);
	gpu_port_kick(port);
	ck_assert_uint_eq(control->kick, 1);
	unmake();
}
END_TEST

/* The process sleeps for room of results only when there was none: else giving some back is no reason to wake it. */
START_TEST(test_kick_for_room)
{
	struct wire_ring_control *control;
	struct gpu_done done[2];
	struct gpu_cell cell;
	uint64_t index = 0;

	make(1, 2, 64);
	control = wire_ring_control(&ring);
	for (uint32_t i = 0; i < 2; i++) {
		cell = reserve();
		submit(&cell, i);
		gpu_port_kick(port);
		answer(0, &index);
		ck_assert_int_eq(gpu_port_poll(port, &done[i], 1), 1);
		control->sleepers = 1;
		if (i == 0)
			gpu_port_release(port, &done[0].cell);
		gpu_port_kick(port);
		ck_assert_uint_eq(control->kick, 0);
		control->sleepers = 0;
	}
	cell = reserve();
	submit(&cell, 2);
	gpu_port_kick(port);
	answer(0, &index); /* two are not given back: the next finds no room */
	control->sleepers = 1;
	gpu_port_release(port, &done[1].cell);
	gpu_port_kick(port);
	ck_assert_uint_eq(control->kick, 1);
	unmake();
}
END_TEST

/*
 * Two threads, one as daemon, one as process, until so many jobs went round.
 */
#define THREADS_QUEUES 3
#define OUTSTANDING 150

static uint64_t operations(void)
{
	const char *text = getenv("RDMAD_RING_OPERATIONS");
	uint64_t n = 250000;

	if (text)
		ck_assert_int_eq(units_parse_number(text, 1, UINT64_MAX / 2, &n), 0);
	return n;
}

static void *process_thread(void *argument)
{
	uint64_t index[THREADS_QUEUES] = {0}, left = *(uint64_t *)argument;

	while (left) {
		uint64_t before = left;

		for (uint32_t queue = 0; queue < THREADS_QUEUES; queue++)
			while (answer(queue, &index[queue]) > 0)
				left--;
		if (left == before)
			sched_yield();
	}
	return NULL;
}

static uint64_t submit_some(uint64_t sent, uint64_t received, uint64_t n)
{
	for (; sent < n && sent - received < OUTSTANDING; sent++) {
		struct gpu_cell cell;
		void *input;

		if (gpu_port_reserve(port, &cell, &input) != 0)
			break;
		submit(&cell, (uint32_t)sent);
	}
	return sent;
}

static int receive_some(void)
{
	struct gpu_done done[OUTSTANDING];
	int n = gpu_port_poll(port, done, OUTSTANDING);

	ck_assert_int_ge(n, 0);
	for (int i = n - 1; i >= 0; i--) {
		if (*(const uint32_t *)done[i].output != done[i].result.id ||
		    wire_ring_check(&done[i].result, done[i].output) != done[i].result.check)
			ck_abort_msg("a result that is not whole");
		gpu_port_release(port, &done[i].cell);
	}
	return n;
}

START_TEST(test_two_threads)
{
	uint64_t n = operations(), sent = 0, received = 0;
	pthread_t thread;

	make(THREADS_QUEUES, 64, 64);
	ck_assert_int_eq(pthread_create(&thread, NULL, process_thread, &n), 0);
	while (received < n) {
		int got;

		sent = submit_some(sent, received, n);
		gpu_port_kick(port);
		got = receive_some();
		received += (uint64_t)got;
		if (!got)
			sched_yield();
	}
	pthread_join(thread, NULL);
	unmake();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gpu ring");
	TCase *words = suite_case(suite, "words", NULL, NULL);
	TCase *ports = suite_case(suite, "port", NULL, NULL);
	TCase *threads = suite_case(suite, "threads", NULL, NULL);

	tcase_add_test(words, test_layout);
	tcase_add_test(words, test_shapes);
	tcase_add_test(words, test_take);
	tcase_add_test(words, test_room);
	tcase_add_test(words, test_torn_results);
	tcase_add_test(ports, test_reserve_until_full);
	tcase_add_test(ports, test_submit_in_any_order);
	tcase_add_test(ports, test_release_in_any_order);
	tcase_add_test(ports, test_nonsense_of_the_process);
	tcase_add_test(ports, test_arm);
	tcase_add_test(ports, test_arm_wakes);
	tcase_add_test(ports, test_kick);
	tcase_add_test(ports, test_kick_for_room);
	tcase_set_timeout(threads, 0);
	tcase_add_test(threads, test_two_threads);
	return suite_run(suite);
}
