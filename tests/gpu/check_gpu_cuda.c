/*
 * check_gpu_cuda.c: the backend of an accelerator, in this process: its kernel's text runs on the
 * threads of tests/fake, or with RDMAD_TEST_CUDA=real on a device. Then what needs failures on
 * demand is left out.
 */
#include <check.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gpu/cuda/cuda.h"
#include "gpu/cuda/api.h"
#include "gpu/cuda/kernel.h"
#include "gpu/message.h"
#include "gpu/program/process.h"
#include "tests/suite.h"

#define FAKE "tests/fake/.libs/" CUDA_LIBRARY

static bool real;
static void *fake;         /* the library */
static char kernels[4096]; /* a file that the fake library takes */

/* A session without a daemon: a ring, a port, and the backend in a thread. */
static struct gpu_process *process;
static struct gpu_port *port;
static pthread_t thread;
static int control;
static int status;
static struct gpu_message said;
static uint64_t limit; /* by then all is over that is not stuck */

static void *run(void *argument)
{
	char why[GPU_WHY];

	status = gpu_backend_cuda.run(process, why);
	if (status == -ENODEV) /* as gpu_backend_run() does */
		gpu_process_fail(process, WIRE_RING_DEVICE, 0, 0, "%s", why);
	gpu_process_stopped(process);
	return NULL;
}

static void make_process(uint32_t queues, uint32_t slots, uint32_t payload)
{
	struct wire_ring_shape shape = {queues, slots, payload};
	int ends[2];

	ck_assert(wire_ring_shape_valid(&shape));
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	process = aligned_alloc(CACHE_LINE, sizeof(*process));
	ck_assert_ptr_nonnull(process);
	memset(process, 0, sizeof(*process));
	process->ring.shape = shape;
	process->ring.at = wire_ring_layout(&shape);
	process->ring.base =
		mmap(NULL, process->ring.at.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(process->ring.base, MAP_FAILED);
	process->attr.backend = "cuda";
	process->attr.kernels = real ? getenv("RDMAD_TEST_KERNELS") : kernels;
	process->attr.poll = 50 * TIME_US;
	process->attr.job_timeout = 60 * TIME_S;
	process->attr.park = TIME_NEVER;
	process->event = -1;
	process->control = ends[0];
	control = ends[1];
}

static void start(void)
{
	/* The backend does it too, but here beside a thread that may look into the environment. */
	setenv("CUDA_MODULE_LOADING", "EAGER", 1);
	setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
	ck_assert_int_eq(gpu_port_create(&process->ring, &port), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, run, NULL), 0);
	limit = time_now() + 200 * TIME_S;
}

/* The last that the backend has said. */
static void hear(void)
{
	while (recv(control, &said, sizeof(said), MSG_DONTWAIT) == sizeof(said))
		;
}

/* Where somebody waits for a result: that it can still come. */
static void assert_runs(void)
{
	const struct wire_ring_worker_line *line = wire_ring_worker_line(&process->ring, 0);

	if (gpu_process_stopping(process))
		hear();
	ck_assert_msg(!gpu_process_stopping(process), "the session ended: %s", said.text);
	ck_assert_msg(time_now() < limit, "no result: of queue 0 it was given %llu, took %llu and did %llu",
		      (unsigned long long)wire_ring_load(&wire_ring_client_line(&process->ring, 0)->submitted),
		      (unsigned long long)wire_ring_load(&line->taken),
		      (unsigned long long)wire_ring_load(&line->done));
}

/* Between two looks: a test that polls without a rest takes the processor that the kernel's threads need, on a busy
 * machine for minutes, and at real-time priority for ever. */
static void rest(void)
{
	assert_runs();
	usleep(100);
}

/* Wait for the backend's end, which says why in `said`. */
static void join(void)
{
	/* What the watch of a process does: wake what sleeps. */
	while (pthread_tryjoin_np(thread, NULL) == EBUSY) {
		syscall(SYS_futex, &wire_ring_control(&process->ring)->kick, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
		usleep(1000);
	}
	said = (struct gpu_message){.kind = GPU_SAYS_READY};
	hear();
	gpu_port_destroy(port);
}

static void free_process(void)
{
	bool (*busy)(void) = fake ? (bool (*)(void))dlsym(fake, "fake_busy") : NULL;

	while (busy && busy())
		usleep(1000);
	close(control);
	close(process->control);
	munmap(process->ring.base, process->ring.at.bytes);
	free(process);
}

static void stop(void)
{
	wire_ring_store32(&wire_ring_control(&process->ring)->stop, 1);
	join();
	ck_assert_msg(status == 0, "%s", said.text);
	ck_assert_uint_eq(wire_ring_header(&process->ring)->state, WIRE_RING_STOPPED);
}

/* It ends by itself, and says so; `text` is the start of the reason. */
static void assert_fails(enum wire_ring_error error, const char *text)
{
	join();
	ck_assert_int_ne(status, 0);
	ck_assert_uint_eq(wire_ring_header(&process->ring)->state, WIRE_RING_FAILED);
	ck_assert_uint_eq(wire_ring_header(&process->ring)->error, error);
	ck_assert_uint_eq(said.kind, GPU_SAYS_FAILED);
	ck_assert_msg(strncmp(said.text, text, strlen(text)) == 0, "\"%s\" is not \"%s\"", said.text, text);
}

static struct wire_ring_job image(uint32_t id, uint32_t width, uint32_t height, uint32_t levels)
{
	return (struct wire_ring_job){
		.id = id, .op = WIRE_RING_QUANTIZE, .length = width * height, .param = {width, height, levels}};
}

static struct wire_ring_job echo(uint32_t id, uint32_t length, uint32_t microseconds)
{
	return (struct wire_ring_job){.id = id, .op = WIRE_RING_ECHO, .length = length, .param = {microseconds}};
}

/* What the operation's description says, without a thought of speed. */
static void expect(const struct wire_ring_job *job, const uint8_t *input, uint8_t *output)
{
	uint64_t count[256] = {0}, levels = job->param[2];

	memcpy(output, input, job->length);
	if (job->op == WIRE_RING_ECHO)
		return;
	for (uint32_t i = 0; i < job->length; i++)
		count[input[i]]++;
	for (int v = 1; v < 256; v++)
		count[v] += count[v - 1];
	for (uint32_t i = 0; i < job->length; i++)
		output[i] = (uint8_t)(256 / levels * (levels * count[input[i]] / job->length));
}

static void fill(uint8_t *bytes, uint32_t length, uint32_t seed)
{
	for (uint32_t i = 0; i < length; i++) {
		seed = seed * 1664525 + 1013904223;
		bytes[i] = (uint8_t)(seed >> 24) & (uint8_t)(seed >> 16);
	}
}

static void submit(const struct wire_ring_job *job)
{
	struct gpu_cell cell;
	void *input;

	while (gpu_port_reserve(port, &cell, &input) == -EAGAIN)
		rest();
	fill(input, job->length, job->id);
	gpu_port_submit(port, &cell, job);
	gpu_port_kick(port);
}

/* The result of a job that submit() filled. */
static void check_result(const struct gpu_done *done, const struct wire_ring_job *job)
{
	uint8_t *input = malloc(job->length + 1), *output = malloc(job->length + 1);

	ck_assert_uint_eq(done->result.id, job->id);
	ck_assert_uint_eq(done->result.length, job->length);
	ck_assert_uint_eq(done->result.check, wire_ring_check(&done->result, done->output));
	fill(input, job->length, job->id);
	expect(job, input, output);
	ck_assert_msg(memcmp(output, done->output, job->length) == 0, "job %u: wrong output", job->id);
	free(output);
	free(input);
}

/* All jobs, with as many in the ring as it takes; each has its result once. */
static void work_through(const struct wire_ring_job *jobs, unsigned count)
{
	bool *seen = calloc(count, sizeof(*seen));
	unsigned sent = 0, got = 0;

	while (got < count) {
		struct gpu_done done[16];
		struct gpu_cell cell;
		void *input;
		int n;

		while (sent < count && gpu_port_reserve(port, &cell, &input) == 0) {
			fill(input, jobs[sent].length, jobs[sent].id);
			gpu_port_submit(port, &cell, &jobs[sent++]);
		}
		gpu_port_kick(port);
		n = gpu_port_poll(port, done, ARRAY_SIZE(done));
		ck_assert_int_ge(n, 0);
		for (int i = 0; i < n; i++, got++) {
			ck_assert_uint_lt(done[i].result.id, count);
			ck_assert(!seen[done[i].result.id]);
			seen[done[i].result.id] = true;
			check_result(&done[i], &jobs[done[i].result.id]);
			gpu_port_release(port, &done[i].cell);
		}
		if (n == 0)
			rest();
	}
	free(seen);
}

/* One queue and many, fewer blocks than queues, and a ring that is full all the time. */
static const struct wire_ring_shape shapes[] = {{1, 1, 4096}, {3, 16, 4096}, {64, 2, 4096}};

START_TEST(test_every_job_once)
{
	struct wire_ring_job jobs[300];

	for (uint32_t i = 0; i < ARRAY_SIZE(jobs); i++)
		jobs[i] = i % 3 ? image(i, 64, 64, i % 256 + 1) : echo(i, i * 13 + 1, 0);
	make_process(shapes[_i].queues, shapes[_i].slots, shapes[_i].payload);
	start();
	work_through(jobs, ARRAY_SIZE(jobs));
	stop();
	free_process();
}
END_TEST

/* Around what a word, a wide load, the staging and a warp hold. */
START_TEST(test_lengths)
{
	static const uint32_t lengths[] = {1,  2,    7,    8,    9,     15,    16,    17,    31,    63,    64,
					   65, 4095, 4097, 8191, 16383, 16384, 16385, 16391, 65536, 65537, 100003};
	struct wire_ring_job jobs[2 * ARRAY_SIZE(lengths)];
	uint32_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		jobs[n] = image(n, lengths[i], 1, 4), n++;
		jobs[n] = echo(n, lengths[i], 0), n++;
	}
	make_process(2, 4, 131072);
	start();
	work_through(jobs, n);
	stop();
	free_process();
}
END_TEST

/* What the fake device counts. */
static unsigned fake_count(const char *name)
{
	return *(_Atomic unsigned *)dlsym(fake, name);
}

/* Large images, whose last piece is whole, short or one byte, beside small ones; with more blocks than queues, as many, and
 * fewer. */
START_TEST(test_large_images)
{
	static const uint32_t queues[] = {1, 2, 6};
	static const uint32_t lengths[] = {131071, 131072, 131073, 196608, 200003, 1048576 + 13, 7, 4096};
	struct wire_ring_job jobs[3 * ARRAY_SIZE(lengths)];

	for (uint32_t i = 0; i < ARRAY_SIZE(jobs); i++)
		jobs[i] = image(i, lengths[i % ARRAY_SIZE(lengths)], 1, i % 256 + 1);
	make_process(queues[_i], 2, 2 << 20);
	start();
	work_through(jobs, ARRAY_SIZE(jobs));
	stop();
	free_process();
}
END_TEST

/* The block of the only queue is not alone with it. */
START_TEST(test_others_help)
{
	struct wire_ring_job job = image(0, 1 << 20, 1, 4);
	uint64_t until = time_now() + 60 * TIME_S;

	make_process(1, 2, 1 << 20);
	start();
	do
		work_through(&job, 1);
	while (fake_count("fake_helped") == 0 && time_now() < until);
	ck_assert_uint_gt(fake_count("fake_helped"), 0);
	stop();
	free_process();
}
END_TEST

START_TEST(test_stop_during_a_large_image)
{
	/* On the threads of the fake, which may be watched, this is some hundred times the wait. */
	uint32_t size = real ? 32 << 20 : 4 << 20;
	struct wire_ring_job job = image(0, size, 1, 4);

	make_process(1, 2, size);
	start();
	submit(&job);
	usleep(1000);
	stop();
	free_process();
}
END_TEST

/* A session without jobs leaves the device, and is back with the next; by requests, and by queues, of which nobody tells. */
START_TEST(test_park)
{
	bool (*running)(void) = fake ? (bool (*)(void))dlsym(fake, "fake_running") : NULL;
	struct wire_ring_job jobs[10];
	unsigned before = fake ? fake_count("fake_launches") : 0;

	for (uint32_t i = 0; i < ARRAY_SIZE(jobs); i++)
		jobs[i] = image(i, 64, 64, 4);
	make_process(3, 2, 4096);
	process->attr.park = 10 * TIME_MS;
	process->queue_mode = _i;
	start();
	for (unsigned round = 0; round < 4; round++) {
		work_through(jobs, ARRAY_SIZE(jobs));
		if (running)
			while (running())
				usleep(1000);
		else
			usleep(50000);
	}
	stop();
	if (fake)
		ck_assert_uint_ge(fake_count("fake_launches") - before, 4);
	free_process();
}
END_TEST

START_TEST(test_stop_during_a_job)
{
	struct wire_ring_job job = echo(0, 64, 30000000);

	make_process(2, 4, 4096);
	start();
	submit(&job);
	submit(&job);
	stop();
	free_process();
}
END_TEST

/* The thread that tells of results sleeps while the daemon looks for them itself, and is there when that waits. */
START_TEST(test_tells_who_waits)
{
	struct wire_ring_job job = echo(0, 64, 20000);
	struct gpu_done done;
	unsigned sleeps = 0;
	uint64_t one;

	make_process(1, 4, 4096);
	process->event = eventfd(0, EFD_CLOEXEC);
	start();
	for (int i = 0; i < 20; i++) {
		int n = 0;

		submit(&job);
		while (n == 0 && !wire_ring_load32(&wire_ring_control(&process->ring)->watches)) {
			rest();
			n = gpu_port_poll(port, &done, 1);
		}
		sleeps += n == 0;
		while (n == 0) { /* the event may be of a result that was found before it */
			if (gpu_port_arm(port)) {
				ck_assert_int_eq(read(process->event, &one, sizeof(one)), sizeof(one));
				gpu_port_disarm(port);
			}
			assert_runs();
			n = gpu_port_poll(port, &done, 1);
		}
		ck_assert_int_eq(n, 1);
		check_result(&done, &job);
		gpu_port_release(port, &done.cell);
	}
	ck_assert_uint_gt(sleeps, 0);
	stop();
	close(process->event);
	free_process();
}
END_TEST

START_TEST(test_overtime)
{
	struct wire_ring_job job = echo(0, 64, 30000000);

	make_process(1, 4, 4096);
	process->attr.job_timeout = 50 * TIME_MS;
	start();
	submit(&job);
	assert_fails(WIRE_RING_OVERTIME, "job 0 of queue 0 takes longer than 50ms");
	free_process();
}
END_TEST

START_TEST(test_bad_jobs)
{
	static const struct {
		struct wire_ring_job job;
		const char *why;
	} bad[] = {
		{{.op = 77}, "job 0 of queue 0: there is no such operation"},
		{{.op = WIRE_RING_QUANTIZE, .length = 4, .param = {2, 2, 0}},
		 "job 0 of queue 0: levels is not between 1 and 256"},
		{{.op = WIRE_RING_QUANTIZE, .length = 4, .param = {2, 3, 4}},
		 "job 0 of queue 0: width times height is not the length of the input"},
		{{.op = WIRE_RING_ECHO, .length = 4097}, "job 0 of queue 0: input or output"},
		{{.op = WIRE_RING_ECHO, .length = UINT32_MAX}, "job 0 of queue 0: input or output"},
		{{.op = WIRE_RING_ECHO, .length = 4, .reserved = 1}, "job 0 of queue 0: a reserved field"},
	};
	struct gpu_cell cell;
	void *input;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		make_process(1, 2, 4096);
		start();
		ck_assert_int_eq(gpu_port_reserve(port, &cell, &input), 0);
		gpu_port_submit(port, &cell, &bad[i].job);
		assert_fails(WIRE_RING_BAD_JOB, bad[i].why);
		free_process();
	}
}
END_TEST

/* A client that breaks the rules of the ring, after some that it kept. */
static void assert_broken(uint64_t submitted, uint64_t collected, enum wire_ring_error error, const char *text)
{
	struct wire_ring_job jobs[] = {echo(0, 8, 0), echo(1, 8, 0)};
	struct wire_ring_client_line *line;

	make_process(1, 2, 4096);
	line = wire_ring_client_line(&process->ring, 0);
	start();
	work_through(jobs, ARRAY_SIZE(jobs));
	wire_ring_store(&line->collected, collected);
	wire_ring_store(&line->submitted, submitted);
	assert_fails(error, text);
	free_process();
}

START_TEST(test_broken_rules)
{
	assert_broken(3, 2, WIRE_RING_SEQUENCE, "job 2 of queue 0: its sequence number is not 3");
	assert_broken(1, 2, WIRE_RING_JUMPED, "queue 0: an index went back");
	assert_broken(5, 2, WIRE_RING_JUMPED, "queue 0: an index went back");
	assert_broken(UINT64_MAX, 2, WIRE_RING_JUMPED, "queue 0: an index went back");
	assert_broken(3, 3, WIRE_RING_JUMPED, "queue 0: an index went back");
}
END_TEST

/* Indices of results are looked at when there may be no room for the next. */
START_TEST(test_broken_collected)
{
	struct wire_ring_job job = echo(0, 8, 0);

	make_process(1, 2, 4096);
	wire_ring_store(&wire_ring_client_line(&process->ring, 0)->collected, 1);
	start();
	submit(&job);
	assert_fails(WIRE_RING_JUMPED, "queue 0: an index went back");
	free_process();
}
END_TEST

/* Each entry of the library fails once: the session ends and says which. */
#define ENTRY_NAME(name, exported, version, arguments) #name,
static const char *const entries[] = {CUDA_ENTRIES(ENTRY_NAME)};

static bool before_the_launch(const char *entry)
{
	static const char *const others[] = {"cuGetErrorString",    "cuCtxDestroy",  "cuModuleUnload",
					     "cuMemHostUnregister", "cuStreamQuery", "cuStreamDestroy"};

	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (strcmp(others[i], entry) == 0)
			return false;
	return true;
}

START_TEST(test_entry_fails)
{
	char setting[128], text[128];

	if (!before_the_launch(entries[_i]))
		return;
	snprintf(setting, sizeof(setting), "%s=2", entries[_i]);
	snprintf(text, sizeof(text), "%s: out of memory (2)", entries[_i]);
	setenv("RDMAD_FAKE_CUDA", setting, 1);
	make_process(1, 1, 4096);
	start();
	assert_fails(WIRE_RING_DEVICE, text);
	free_process();
}
END_TEST

START_TEST(test_kernel_fails)
{
	setenv("RDMAD_FAKE_CUDA", "cuStreamQuery=719", 1);
	make_process(1, 1, 4096);
	start();
	assert_fails(WIRE_RING_DEVICE, "the kernel: unspecified launch failure (719)");
	free_process();
}
END_TEST

static void assert_fault(const char *setting, const char *text)
{
	struct wire_ring_job jobs[] = {echo(0, 8, 0), echo(1, 8, 0), echo(2, 8, 0)};

	setenv("RDMAD_FAKE_CUDA", setting, 1);
	make_process(1, 1, 4096);
	start();
	work_through(jobs, 2);
	submit(&jobs[2]);
	assert_fails(WIRE_RING_DEVICE, text);
	free_process();
}

START_TEST(test_fault)
{
	assert_fault("fault=3", "the kernel: an illegal memory access was encountered (700)");
}
END_TEST

START_TEST(test_device_stands_still)
{
	assert_fault("hang=3",
		     "block 0 of the "); /* it stands still, or, where the watch had no turn before, does not begin */
}
END_TEST

/* One block stands still, another goes on: that shows, for the jobs of the first would wait for ever. */
START_TEST(test_block_stands_still)
{
	struct wire_ring_job jobs[] = {echo(0, 8, 0), echo(1, 8, 0)};

	setenv("RDMAD_FAKE_CUDA", "still=3", 1);
	make_process(2, 1, 4096);
	start();
	work_through(jobs, ARRAY_SIZE(jobs));
	submit(&jobs[0]);
	assert_fails(WIRE_RING_DEVICE, "block ");
	ck_assert_ptr_nonnull(strstr(said.text, " of the device's 2 stands still"));
	free_process();
}
END_TEST

/* Only what was looked at counts: not the time in which this host was away, nor one without a beat before the device had one. */
START_TEST(test_silence)
{
	struct cuda_heard heard = {0, 0};

	for (uint64_t i = 1; i <= 10; i++)
		ck_assert_uint_eq(cuda_silence(&heard, 0, 5 * TIME_MS), i * 5 * TIME_MS);
	ck_assert_uint_eq(cuda_silence(&heard, 1, 3600 * TIME_S), 0);
	ck_assert_uint_eq(cuda_silence(&heard, 1, 3600 * TIME_S), CUDA_LOOK_MAX);
	ck_assert_uint_eq(cuda_silence(&heard, 1, 5 * TIME_MS), CUDA_LOOK_MAX + 5 * TIME_MS);
	ck_assert_uint_eq(cuda_silence(&heard, 3, 5 * TIME_MS), 0);
}
END_TEST

/* One block serves its queue, the other never begins: the session ends rather than half of its jobs. */
START_TEST(test_block_is_not_resident)
{
	setenv("RDMAD_FAKE_CUDA", "resident=1", 1);
	make_process(2, 1, 4096);
	start();
	assert_fails(WIRE_RING_DEVICE, "block 1 of the kernel's 2 does not begin");
	free_process();
}
END_TEST

/* A host that was killed says nothing any more, and nobody else can end the kernel. */
START_TEST(test_host_is_gone)
{
	int (*launch)(unsigned, const struct gpu_kernel_args *) =
		(int (*)(unsigned, const struct gpu_kernel_args *))dlsym(fake, "fake_launch");
	bool (*running)(void) = (bool (*)(void))dlsym(fake, "fake_running");
	struct gpu_kernel_board *board = calloc(1, sizeof(*board));
	struct gpu_kernel_args args = {.board = board, .job_timeout = TIME_NEVER, .lease = TIME_S};
	uint64_t begin = time_now();

	make_process(2, 1, 4096);
	args.ring = process->ring;
	ck_assert_int_eq(launch(2, &args), 0);
	for (uint64_t beat = 1; time_now() - begin < 2 * args.lease; beat++) {
		wire_ring_store(&board->beat, beat);
		ck_assert(running());
		usleep(1000);
	}
	while (running())
		usleep(1000);
	ck_assert_uint_gt(wire_ring_load(&board->block[1].beat), 0);
	free_process();
	free(board);
}
END_TEST

/* Libraries from before cuGetProcAddress have the entries under the names of their versions. */
START_TEST(test_old_library)
{
	struct wire_ring_job job = echo(0, 64, 0);

	setenv("RDMAD_FAKE_CUDA", "cuGetProcAddress=500", 1);
	make_process(1, 1, 4096);
	start();
	work_through(&job, 1);
	stop();
	free_process();
}
END_TEST

static void assert_probe(const char *device, const char *answer)
{
	struct gpu_process_attr attr = {.device = device, .kernels = kernels};
	struct gpu_probe probe = {.backend = "cuda"};
	char why[GPU_WHY] = "";
	int rc;

	unsetenv("CUDA_VISIBLE_DEVICES");
	rc = gpu_backend_cuda.probe(&attr, &probe, why);
	ck_assert_int_eq(rc, strncmp(answer, "Fake", 4) == 0 ? 0 : -ENODEV);
	ck_assert_str_eq(rc == 0 ? probe.device : why, answer);
}

START_TEST(test_devices)
{
	setenv("RDMAD_FAKE_CUDA", "devices=2", 1);
	assert_probe(NULL, "Fake GPU 0");
	assert_probe("1", "Fake GPU 1");
	assert_probe("2", "there is no device number 2, of 2");
	assert_probe("GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae01", "Fake GPU 1");
	assert_probe("GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae00", "Fake GPU 0");
	assert_probe("GPU-0", "no device has the UUID GPU-0");
	assert_probe("MIG-0", "no device has the UUID MIG-0");
	setenv("RDMAD_FAKE_CUDA", "cuInit=100", 1);
	assert_probe(NULL, "cuInit: no CUDA-capable device is detected (100)");
	setenv("RDMAD_FAKE_CUDA", "cuInit=12345", 1);
	assert_probe(NULL, "cuInit: unknown error (12345)");
}
END_TEST

/* What the probe promises a session finds too. */
START_TEST(test_what_a_session_needs)
{
	static const struct {
		const char *setting, *answer;
	} cases[] = {
		{"capable=75", "Fake GPU 0"},
		{"capable=61", "its compute capability is 6.1, and the kernel needs 7.0"},
		{"limited=1", "it ends each kernel after some seconds, as one with a display does"},
		{"mode=2", "its compute mode is \"prohibited\": nvidia-smi -c DEFAULT lifts that"},
		{"mode=3", "Fake GPU 0, for one process"},
		{"cuCtxCreate=2", "cuCtxCreate: out of memory (2)"},
		{"capable=70,cuModuleLoadDataEx=209",
		 "cuModuleLoadDataEx: no kernel image is available for execution on the device (209), on compute "
		 "capability 7.0"},
		{"cuModuleGetFunction=500", "cuModuleGetFunction: named symbol not found (500)"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		setenv("RDMAD_FAKE_CUDA", cases[i].setting, 1);
		assert_probe(NULL, cases[i].answer);
	}
}
END_TEST

/* Nothing is kept of a probe: a session after it takes the same. */
START_TEST(test_probe_gives_back)
{
	struct wire_ring_job job = echo(0, 64, 0);

	assert_probe(NULL, "Fake GPU 0");
	ck_assert(!*(bool *)dlsym(fake, "fake_context_there"));
	make_process(1, 1, 4096);
	start();
	work_through(&job, 1);
	stop();
	free_process();
}
END_TEST

static void assert_kernels(const char *path, const char *text)
{
	make_process(1, 1, 4096);
	process->attr.kernels = path;
	start();
	assert_fails(WIRE_RING_DEVICE, text);
	free_process();
}

START_TEST(test_kernels_file)
{
	char text[8192];

	snprintf(text, sizeof(text), "cannot read the kernels in /dev/null: it is empty");
	assert_kernels("/dev/null", text);
	assert_kernels("/nonexistent", "cannot read the kernels in /nonexistent: No such file");
	assert_kernels("/proc/self/exe/x", "cannot read the kernels in /proc/self/exe/x: ");
	assert_kernels("/etc/passwd", "cuModuleLoadDataEx: device kernel image is invalid (200): "
				      "ptxas fatal: this is no PTX, on compute capability 9.0");
}
END_TEST

START_TEST(test_built_in)
{
	struct gpu_process_attr attr = {0};
	struct gpu_probe probe = {.backend = "cuda"};
	char why[GPU_WHY] = "";
	int rc = gpu_backend_cuda.probe(&attr, &probe, why);

	if (cuda_image()) {
		ck_assert_int_eq(rc, 0);
	} else {
		ck_assert_int_eq(rc, -ENODEV);
		ck_assert_str_eq(why, "built without kernels for CUDA: give gpu.kernels = FILE or "
				      "build with nvcc");
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("gpu_cuda");
	TCase *jobs = tcase_create("jobs"), *failures = tcase_create("failures on demand");

	tcase_set_timeout(jobs, 300);
	tcase_add_loop_test(jobs, test_every_job_once, 0, ARRAY_SIZE(shapes));
	tcase_add_test(jobs, test_lengths);
	tcase_add_loop_test(jobs, test_large_images, 0, 3);
	tcase_add_test(jobs, test_stop_during_a_large_image);
	tcase_add_loop_test(jobs, test_park, 0, 2);
	tcase_add_test(jobs, test_stop_during_a_job);
	tcase_add_test(jobs, test_tells_who_waits);
	tcase_add_test(jobs, test_overtime);
	tcase_add_test(jobs, test_bad_jobs);
	tcase_add_test(jobs, test_broken_rules);
	tcase_add_test(jobs, test_broken_collected);
	suite_add_tcase(s, jobs);
	if (real)
		return s;
	tcase_set_timeout(failures, 240);
	tcase_add_loop_test(failures, test_entry_fails, 0, ARRAY_SIZE(entries));
	tcase_add_test(failures, test_kernel_fails);
	tcase_add_test(failures, test_fault);
	tcase_add_test(failures, test_silence);
	tcase_add_test(failures, test_device_stands_still);
	tcase_add_test(failures, test_block_stands_still);
	tcase_add_test(failures, test_others_help);
	tcase_add_test(failures, test_block_is_not_resident);
	tcase_add_test(failures, test_host_is_gone);
	tcase_add_test(failures, test_old_library);
	tcase_add_test(failures, test_devices);
	tcase_add_test(failures, test_what_a_session_needs);
	tcase_add_test(failures, test_probe_gives_back);
	tcase_add_test(failures, test_kernels_file);
	tcase_add_test(failures, test_built_in);
	suite_add_tcase(s, failures);
	return s;
}

/* A library that is there already is found by its name. */
static void load_fake(void)
{
	const char *srcdir = getenv("srcdir");

	snprintf(kernels, sizeof(kernels), "%s/tests/fake/kernels.ptx", srcdir ? srcdir : ".");
	fake = dlopen(FAKE, RTLD_NOW);
	if (!fake) {
		fprintf(stderr, "%s\n", dlerror());
		exit(99);
	}
}

int main(void)
{
	const char *device = getenv("RDMAD_TEST_CUDA");

	real = device && strcmp(device, "real") == 0;
	if (!real)
		load_fake();
	return suite_run(suite());
}
