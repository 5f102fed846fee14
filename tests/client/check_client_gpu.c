/*
 * check_client_gpu.c: the caller's half of the gpu service against a server in the same process that does what it is told
 * to, also what no server should: it has the protocol and no worker process. Each test that says "each way" runs in RPC mode, with and
 * without immediates, and in queue mode, with and without results that validate themselves.
 */
#include <check.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdmad/gpu.h>

#include "tests/service/server.h"
#include "tests/suite.h"
#include "wire/ring.h"

/*
 * Calls that are counted.
 */
static _Atomic unsigned allocations, registrations;

#define WRAP(type, name, args, pass, count)                                                                            \
	type __real_##name args;                                                                                       \
	type __wrap_##name args;                                                                                       \
	type __wrap_##name args                                                                                        \
	{                                                                                                              \
		count;                                                                                                 \
		return __real_##name pass;                                                                             \
	}

static pthread_t caller;

#define BY_CALLER(counter) (counter += pthread_equal(pthread_self(), caller))

WRAP(void *, malloc, (size_t n), (n), BY_CALLER(allocations))
WRAP(void *, calloc, (size_t n, size_t m), (n, m), BY_CALLER(allocations))
WRAP(void *, realloc, (void *p, size_t n), (p, n), BY_CALLER(allocations))
WRAP(int, fabric_register, (struct fabric_domain * d, void *p, size_t n, unsigned access, struct fabric_region **out),
     (d, p, n, access, out), BY_CALLER(registrations))

/*
 * The server. What it is to do is set before a session is opened, or while its thread is paused; a few words at any time.
 */
static struct fake {
	_Atomic bool hold;         /* takes jobs and finishes none */
	_Atomic bool hold0;        /* queue mode: serves all queues but the first */
	_Atomic bool end;          /* ends the session now */
	uint32_t payload_max;      /* grants no more */
	bool torn;                 /* queue mode: publishes results before their outputs */
	bool lies;                 /* answers what it was not asked for, or other bytes */
	bool refuses, ends;        /* makes no session, and says so or ends the connection */
	uint64_t messages;         /* of the last connection that ended */
	_Atomic unsigned answered; /* jobs of RPC mode */
} fake;

struct agent {
	struct list node; /* in agents */
	struct conn *conn;
	bool queue_mode, sends, lied;
	uint32_t terminate; /* asked for with this id + 1 */
	unsigned jobs;      /* of RPC mode, under way */
	struct list done;   /* of RPC mode, to be answered */
	struct wire_ring ring;
	struct fabric_region *region;
	uint64_t *taken, *tore;
};

struct fake_job {
	struct conn_transfer transfer;
	struct list node; /* in agent->done */
	struct agent *agent;
	uint32_t id;
	struct wire_gpu_job wire;
	struct fabric_region *region;
	uint8_t bytes[];
};

static struct list agents;

/* By the definition, another way than the library's users do it. */
static void quantize(const uint8_t *in, size_t n, unsigned levels, uint8_t *out)
{
	for (size_t i = 0; i < n; i++) {
		size_t below = 0;

		for (size_t j = 0; j < n && n <= 4096; j++)
			below += in[j] <= in[i];
		/* Of large images only what does not depend on the place. */
		out[i] = n <= 4096 ? (uint8_t)(256 / levels * (levels * below / n)) : (uint8_t)(in[i] ^ levels);
	}
}

static void work(uint32_t op, const uint32_t *param, const uint8_t *in, size_t n, uint8_t *out)
{
	if (op == RDMAD_GPU_QUANTIZE)
		quantize(in, n, param[2], out);
	else
		memmove(out, in, n);
}

static void fake_answer(struct agent *agent, uint32_t op, uint32_t id, unsigned status, const void *body,
			uint32_t length)
{
	struct wire_record record = {
		.id = id,
		.op = (uint8_t)op,
		.flags = op == WIRE_OP_GPU_ENDED ? 0 : WIRE_REPLY,
		.status = (uint8_t)status,
	};

	ck_assert(conn_say(agent->conn, &record, body, length, NULL, 0));
}

static void job_free(struct fake_job *job)
{
	job->agent->jobs--;
	fabric_deregister(job->region);
	free(job);
}

static void job_written(struct conn_transfer *transfer, enum fabric_status status)
{
	struct fake_job *job = container_of(transfer, struct fake_job, transfer);

	(void)status;
	job_free(job);
}

static void job_read(struct conn_transfer *transfer, enum fabric_status status)
{
	struct fake_job *job = container_of(transfer, struct fake_job, transfer);

	if (status != FABRIC_OK) {
		job_free(job);
		return;
	}
	work(job->wire.op, job->wire.param, job->bytes, job->wire.input.length, job->bytes + job->wire.input.length);
	list_add_tail(&job->agent->done, &job->node);
}

static int fake_job_begin(struct agent *agent, uint32_t id, const struct wire_gpu_job *wire)
{
	size_t in = wire->input.length, out = wire->output.length;
	struct fake_job *job = calloc(1, sizeof(*job) + in + out);
	struct fabric_sge to;
	int rc;

	*job = (struct fake_job){.transfer.done = job_read, .agent = agent, .id = id, .wire = *wire};
	ck_assert_int_eq(fabric_register(server.domain, job->bytes, in + out, FABRIC_LOCAL_WRITE, &job->region), 0);
	to = (struct fabric_sge){job->bytes, in, job->region};
	agent->jobs++;
	rc = conn_read(agent->conn, &job->transfer, &to, wire->input.addr, wire->input.rkey);
	if (rc != 0)
		job_free(job);
	return rc;
}

/* As much as there is room for: the output, then the immediate or the record. */
static int answer_job(struct agent *agent, struct fake_job *job)
{
	struct fabric_sge from = {job->bytes + job->wire.input.length, job->wire.output.length, job->region};
	int rc;

	job->transfer.done = job_written;
	if (!agent->sends)
		return conn_write_imm(agent->conn, &job->transfer, &from, job->wire.output.addr, job->wire.output.rkey,
				      job->id);
	if (!conn_reserve(agent->conn, 0, NULL))
		return -EAGAIN;
	rc = conn_write(agent->conn, &job->transfer, &from, job->wire.output.addr, job->wire.output.rkey);
	if (rc == 0)
		fake_answer(agent, WIRE_OP_GPU_JOB, job->id, WIRE_OK, "", 0);
	return rc;
}

static int answer_jobs(struct agent *agent)
{
	int n = 0;

	while (!fake.hold && !list_empty(&agent->done)) {
		struct fake_job *job = list_first(&agent->done, struct fake_job, node);
		struct list *node = &job->node;

		list_del(node);
		if (answer_job(agent, job) != 0) {
			list_add_head(&agent->done, node);
			break;
		}
		fake.answered++;
		n++;
	}
	return n;
}

static void nothing_done(struct conn_transfer *transfer, enum fabric_status status)
{
	(void)status;
	free(transfer);
}

static void terminated(struct agent *agent)
{
	struct conn_transfer *transfer = calloc(1, sizeof(*transfer));
	struct fabric_sge nothing = {0};
	uint32_t id = agent->terminate - 1;

	agent->terminate = 0;
	transfer->done = nothing_done;
	if (agent->sends || agent->queue_mode) {
		fake_answer(agent, WIRE_OP_GPU_JOB, id, WIRE_OK, "", 0);
		free(transfer);
	} else if (conn_write_imm(agent->conn, transfer, &nothing, 0, 0, id) != 0) {
		free(transfer);
	}
	conn_flush(agent->conn);
}

/* A ring as the worker process would have it. */
static void make_ring(struct agent *agent, struct wire_gpu_ring *answer)
{
	struct wire_ring *ring = &agent->ring;

	ring->shape = (struct wire_ring_shape){answer->queues, answer->slots, answer->payload};
	ring->at = wire_ring_layout(&ring->shape);
	ring->base = mmap(NULL, ring->at.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(ring->base, MAP_FAILED);
	ck_assert_int_eq(fabric_register(server.domain, ring->base, ring->at.bytes,
					 FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE, &agent->region),
			 0);
	agent->taken = calloc(answer->queues, sizeof(uint64_t));
	agent->tore = calloc(answer->queues, sizeof(uint64_t));
	answer->worker_addr = (uintptr_t)ring->base;
	answer->client_addr = (uintptr_t)ring->base + ring->at.client;
	answer->worker_rkey = answer->client_rkey = fabric_region_rkey(agent->region, conn_endpoint(agent->conn));
}

static void open_session(struct agent *agent, const struct wire_gpu_open *open)
{
	struct wire_gpu_ring answer = {
		.queues = open->queues ? open->queues : 2,
		.slots = open->slots ? open->slots : 16,
		.payload = MIN(open->payload, fake.payload_max),
		.flags = open->flags & WIRE_GPU_SENDS,
		.backend = "fake",
		.device = "none\x1b[2J",
	};

	if (fake.refuses) {
		fake_answer(agent, WIRE_OP_GPU_OPEN, 0, WIRE_NO_MEMORY, "no worker today", 15);
		return;
	}
	if (fake.ends) {
		fake_answer(agent, WIRE_OP_GPU_ENDED, 0, WIRE_TOO_LARGE, "that is too large", 17);
		return;
	}
	agent->queue_mode = open->mode == WIRE_GPU_QUEUE;
	agent->sends = answer.flags & WIRE_GPU_SENDS;
	if (agent->queue_mode)
		make_ring(agent, &answer);
	fake_answer(agent, WIRE_OP_GPU_OPEN, 0, WIRE_OK, &answer, sizeof(answer));
}

static int fake_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct wire_gpu_info info = {.sessions = 1, .sessions_max = 8, .operations = 6, .jobs = 42, .backend = "fake"};
	struct agent *agent = conn_context(conn);

	switch (record->op) {
	case WIRE_OP_GPU_INFO:
		fake_answer(agent, WIRE_OP_GPU_INFO, record->id, WIRE_OK, &info, sizeof(info));
		return 0;
	case WIRE_OP_GPU_OPEN:
		open_session(agent, body);
		return 0;
	case WIRE_OP_GPU_JOB:
		if (record->length)
			return fake_job_begin(agent, record->id, body);
		agent->terminate = record->id + 1;
		ck_assert_uint_eq(record->id, WIRE_GPU_TERMINATE);
		terminated(agent);
		return 0;
	}
	return -EPROTO;
}

static void fake_established(struct conn *conn)
{
	conn_admit(conn);
}

static void fake_closed(struct conn *conn, int error, const char *reason)
{
	struct agent *agent = conn_context(conn);
	struct conn_info info;

	(void)error;
	(void)reason;
	conn_get_info(conn, &info);
	fake.messages = info.messages_in;
	while (!list_empty(&agent->done)) {
		struct fake_job *job = list_first(&agent->done, struct fake_job, node);

		list_del(&job->node);
		job_free(job);
	}
	ck_assert_uint_eq(agent->jobs, 0);
	list_del(&agent->node);
	fabric_deregister(agent->region);
	if (agent->ring.base)
		munmap(agent->ring.base, agent->ring.at.bytes);
	free(agent->taken);
	free(agent->tore);
	free(agent);
}

static const struct conn_ops fake_ops = {
	.established = fake_established,
	.record = fake_record,
	.closed = fake_closed,
};

/* The worker's half of a queue: one job. */
static int serve_queue(struct agent *agent, uint32_t queue)
{
	struct wire_ring *ring = &agent->ring;
	uint64_t *taken = &agent->taken[queue];
	struct wire_ring_job job;
	struct wire_ring_result result;
	uint8_t *output = (uint8_t *)(wire_ring_result(ring, queue, *taken) + 1);
	int rc = wire_ring_take(ring, queue, *taken, &job);

	ck_assert_int_ge(rc, 0);
	if (!rc || !wire_ring_room(ring, queue, *taken))
		return 0;
	work(job.op, job.param, (uint8_t *)(wire_ring_job(ring, queue, *taken) + 1), job.length, output);
	result =
		(struct wire_ring_result){.sequence = *taken + 1, .id = job.id, .length = job.length, .nanoseconds = 7};
	result.check = wire_ring_check(&result, output);
	if (fake.lies)
		result.check++;
	if (fake.torn && agent->tore[queue]++ % 3 != 2) {
		/* All of it but the first byte of the output; whole in a later turn. */
		output[0]++;
		*wire_ring_result(ring, queue, *taken) = result;
		wire_ring_store(&wire_ring_worker_line(ring, queue)->done, *taken + 1);
		return 0;
	}
	wire_ring_finish(ring, queue, *taken, &result);
	++*taken;
	return 1;
}

static int serve_agent(struct agent *agent)
{
	int n = answer_jobs(agent);

	if (fake.lies && !agent->queue_mode && agent->jobs && !agent->lied) {
		struct conn_transfer *transfer = calloc(1, sizeof(*transfer));

		agent->lied = true;
		transfer->done = nothing_done;
		conn_write_imm(agent->conn, transfer, &(struct fabric_sge){0}, 0, 0, 4711);
	}
	if (fake.end) {
		fake.end = false;
		fake_answer(agent, WIRE_OP_GPU_ENDED, 0, WIRE_FAILED, "job 17 of queue 2: \n nonsense", 29);
		conn_flush(agent->conn);
		return 1;
	}
	for (uint32_t i = fake.hold0; agent->region && !fake.hold && i < agent->ring.shape.queues; i++)
		n += serve_queue(agent, i);
	conn_flush(agent->conn);
	return n;
}

static int serve_agents(void)
{
	struct list *pos, *tmp;
	int n = 0;

	list_for_each_safe (pos, tmp, &agents)
		if (conn_established(container_of(pos, struct agent, node)->conn))
			n += serve_agent(container_of(pos, struct agent, node));
	return n;
}

static void take(struct fabric_event *event)
{
	struct wire_accept grant = {0};
	struct wire_request wire;
	struct agent *agent = calloc(1, sizeof(*agent));

	ck_assert_int_eq(wire_request_decode(&wire, event->data, event->data_len), WIRE_REASON_NONE);
	ck_assert_int_eq(wire.service, WIRE_GPU);
	list_init(&agent->done);
	list_add_tail(&agents, &agent->node);
	ck_assert_int_eq(conn_accept(server.group, event->request, &wire, &grant, NULL, &fake_ops, agent, time_now(),
				     &agent->conn),
			 0);
}

static void set_up_over(const char *transport)
{
	caller = pthread_self();
	list_init(&agents);
	fake = (struct fake){0};
	fake.payload_max = RDMAD_GPU_SIZE_MAX;
	server_start(&(struct server_options){
		.transport = transport,
		.group = {.transfers = 16, .reads_in = 128},
		.take = take,
		.work = serve_agents,
	});
}

static void set_up(void)
{
	set_up_over("unix");
}

static void set_up_errors(void)
{
	set_up_over(getenv("RDMAD_GUEST_ADDR") ? "rdma" : "unix");
}

/*
 * Sessions, each way
 */
enum way { RPC, RPC_SENDS, QUEUE, QUEUE_INDICES, WAYS };

static struct rdmad_gpu *gpu_open_with(int way, struct rdmad_gpu_options options)
{
	struct rdmad_gpu *gpu;

	options.mode = way >= QUEUE ? RDMAD_GPU_QUEUE : RDMAD_GPU_RPC;
	options.no_immediate = way == RPC_SENDS;
	options.read_indices = way == QUEUE_INDICES;
	ck_assert_msg(rdmad_gpu_open(server.address, &options, &gpu) == 0, "%s", rdmad_error());
	return gpu;
}

static struct rdmad_gpu *gpu_open(int way)
{
	return gpu_open_with(way, (struct rdmad_gpu_options){.size_max = 8192});
}

static void fill(uint8_t *bytes, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)((i * 31 + seed * 17) >> (seed % 5));
}

/* An echo of the input with seed `id`. */
static struct rdmad_gpu_job echo_of(uint32_t id, uint8_t *input, uint8_t *output, size_t n)
{
	fill(input, n, id);
	memset(output, 0xee, n);
	return (struct rdmad_gpu_job){
		.id = id, .op = RDMAD_GPU_ECHO, .input = input, .input_size = n, .output = output, .output_size = n};
}

START_TEST(test_blocking)
{
	static const struct {
		uint32_t width, height, levels;
	} some[] = {{1, 1, 1}, {1, 1, 256},    {64, 64, 4},  {7, 13, 3},
		    {3, 1, 2}, {4096, 1, 256}, {1, 63, 255}, {90, 91, 5}};
	struct rdmad_gpu *gpu = gpu_open(_i);
	const struct rdmad_gpu_session *session = rdmad_gpu_session(gpu);
	uint8_t in[8191], out[8192], want[8191];

	ck_assert_str_eq(rdmad_gpu_transport(gpu), "shm");
	ck_assert_str_eq(session->backend, "fake");
	ck_assert_str_eq(session->device, "none?[2J");
	ck_assert_uint_eq(session->size_max, 8192);
	ck_assert_uint_eq(session->outstanding, RDMAD_GPU_OUTSTANDING);
	ck_assert_int_eq(session->immediate, _i == RPC);
	for (unsigned i = 0; i < ARRAY_SIZE(some); i++) {
		size_t n = some[i].width * some[i].height;

		fill(in, n, i);
		quantize(in, n, some[i].levels, want);
		/* Neither is aligned. */
		ck_assert_int_eq(rdmad_gpu_quantize(gpu, some[i].width, some[i].height, some[i].levels, in, out + 1),
				 0);
		ck_assert_mem_eq(out + 1, want, n);
		ck_assert_int_eq(rdmad_gpu_echo(gpu, in, n, 0, out), 0);
		ck_assert_mem_eq(out, in, n);
		ck_assert_int_eq(rdmad_gpu_echo(gpu, in, n, 0, in), 0);
		ck_assert_mem_eq(out, in, n);
	}
	ck_assert_int_eq(rdmad_gpu_close(gpu), 0);
}
END_TEST

START_TEST(test_large)
{
	size_t n = 3 * MIB + 5;
	struct rdmad_gpu *gpu = gpu_open_with(_i, (struct rdmad_gpu_options){.size_max = (uint32_t)n, .slots = 2});
	uint8_t *in = malloc(4 * n), *out = in + n;

	for (unsigned i = 0; i < 3; i++) {
		struct rdmad_gpu_result results[2];
		struct rdmad_gpu_job job = echo_of(i, in, out, n);
		int got = 0;

		ck_assert_int_eq(rdmad_gpu_enqueue(gpu, &job), 0);
		job = echo_of(i + 10, in + 2 * n, out + 2 * n, n);
		ck_assert_int_eq(rdmad_gpu_enqueue(gpu, &job), 0);
		while (got < 2) {
			ck_assert_int_gt(rdmad_gpu_wait(gpu, 20000000), 0);
			got += rdmad_gpu_dequeue(gpu, results, 2);
		}
		ck_assert_mem_eq(in, out, n);
		ck_assert_mem_eq(in + 2 * n, out + 2 * n, n);
	}
	rdmad_gpu_close(gpu);
	free(in);
}
END_TEST

/* As many as there may be, small credits: what finds no room waits; none is lost, none comes twice. */
static void many(struct rdmad_gpu *gpu, uint32_t total, size_t n)
{
	uint32_t most = rdmad_gpu_session(gpu)->outstanding;
	uint8_t *in = calloc(total, n), *out = calloc(total, n);
	struct rdmad_gpu_result results[100];
	uint32_t sent = 0, got = 0;
	bool full = false;
	int rc;

	while (got < total) {
		for (; sent < total; sent++) {
			struct rdmad_gpu_job job = echo_of(sent * 7919, in + sent * n, out + sent * n, n);

			rc = rdmad_gpu_enqueue(gpu, &job);
			if (rc != 0)
				break;
		}
		if (sent < total) {
			ck_assert_int_eq(rc, -EAGAIN);
			ck_assert_uint_eq(rdmad_gpu_outstanding(gpu), most);
			full = true;
		}
		rc = rdmad_gpu_wait(gpu, 20000000);
		ck_assert_msg(rc > 0, "%d %s", rc, rdmad_error());
		rc = rdmad_gpu_dequeue(gpu, results, ARRAY_SIZE(results));
		ck_assert_int_gt(rc, 0);
		for (int i = 0; i < rc; i++, got++) {
			uint32_t k = results[i].id / 7919;

			ck_assert_uint_eq(results[i].id % 7919, 0);
			ck_assert_int_eq(results[i].status, 0);
			ck_assert_uint_eq(results[i].output_size, n);
			ck_assert_mem_eq(out + k * n, in + k * n, n);
			in[k * n]++; /* so that it does not match twice */
		}
	}
	ck_assert_int_eq(full, total > most);
	ck_assert_uint_eq(rdmad_gpu_outstanding(gpu), 0);
	ck_assert_int_eq(rdmad_gpu_wait(gpu, UINT64_MAX), 0);
	free(in);
	free(out);
}

START_TEST(test_many)
{
	static const struct rdmad_gpu_options some[] = {
		{.outstanding = 0},
		{.outstanding = 100, .queues = 1, .slots = 1},
		{.outstanding = 1000, .queues = 7, .slots = 3, .common = {.credits = 2}},
		{.outstanding = 1400, .queues = 64, .slots = 5},
		{.outstanding = 3, .queues = 2},
	};

	for (unsigned i = 0; i < ARRAY_SIZE(some); i++) {
		struct rdmad_gpu *gpu = gpu_open_with(_i, some[i]);

		many(gpu, i == 0 ? 9000 : 1500, 65);
		rdmad_gpu_close(gpu);
	}
}
END_TEST

START_TEST(test_torn)
{
	struct rdmad_gpu *gpu;

	fake.torn = true;
	gpu = gpu_open(_i);
	many(gpu, 2000, 300);
	rdmad_gpu_close(gpu);
}
END_TEST

START_TEST(test_batches)
{
	struct rdmad_gpu *gpu = gpu_open(RPC);

	many(gpu, 64, 64);
	rdmad_gpu_close(gpu);
	server_pause();
	/* Open, 64 jobs in as few messages as they fit, credits that go back. */
	ck_assert_uint_le(fake.messages, 8);
}
END_TEST

/* A queue that does not move keeps what is in it, and nothing else. */
START_TEST(test_full_queue)
{
	struct rdmad_gpu *gpu =
		gpu_open_with(_i, (struct rdmad_gpu_options){.queues = 3, .slots = 4, .outstanding = 1000});
	static uint8_t in[300][8], out[300][8];
	struct rdmad_gpu_result results[300];
	int got = 0;

	fake.hold0 = true;
	for (uint32_t i = 0; i < 300; i++) {
		struct rdmad_gpu_job job = echo_of(i, in[i], out[i], 8);

		ck_assert_int_eq(rdmad_gpu_enqueue(gpu, &job), 0);
	}
	while (got < 296) {
		ck_assert_int_gt(rdmad_gpu_wait(gpu, 20000000), 0);
		got += rdmad_gpu_dequeue(gpu, results, 300);
	}
	ck_assert_int_eq(got, 296);
	ck_assert_uint_eq(rdmad_gpu_outstanding(gpu), 4);
	fake.hold0 = false;
	while (got < 300) {
		ck_assert_int_gt(rdmad_gpu_wait(gpu, 20000000), 0);
		got += rdmad_gpu_dequeue(gpu, results, 300);
	}
	ck_assert_mem_eq(in, out, sizeof(in));
	rdmad_gpu_close(gpu);
}
END_TEST

START_TEST(test_bad_jobs)
{
	struct rdmad_gpu *gpu = gpu_open(_i);
	uint8_t in[64], out[64];
	struct rdmad_gpu_job good = echo_of(1, in, out, 64), job;
	struct rdmad_gpu_result result;

#define REFUSED(error, change)                                                                                         \
	do {                                                                                                           \
		job = good;                                                                                            \
		change;                                                                                                \
		ck_assert_int_eq(rdmad_gpu_enqueue(gpu, &job), error);                                                 \
		ck_assert_str_ne(rdmad_error(), "");                                                                   \
	} while (0)

	REFUSED(-EINVAL, job.id = RDMAD_GPU_ID_MAX + 1);
	REFUSED(-EINVAL, job.id = UINT32_MAX);
	REFUSED(-EINVAL, job.op = 0);
	REFUSED(-EINVAL, job.op = WIRE_RING_OPS);
	REFUSED(-EINVAL, job.op = UINT32_MAX);
	REFUSED(-EINVAL, job.input = NULL);
	REFUSED(-EINVAL, job.output = NULL);
	REFUSED(-EINVAL, job.input_size = 0);
	REFUSED(-EMSGSIZE, job.input_size = 8193);
	REFUSED(-EMSGSIZE, job.input_size = SIZE_MAX);
	REFUSED(-EMSGSIZE, job.output_size = 63);
	REFUSED(-EINVAL, job.param[0] = 60000001);
	good.op = RDMAD_GPU_QUANTIZE;
	good.param[0] = good.param[1] = 8;
	good.param[2] = 4;
	REFUSED(-EINVAL, job.param[0] = 9);
	REFUSED(-EINVAL, job.param[0] = UINT32_MAX; job.param[1] = UINT32_MAX);
	REFUSED(-EINVAL, job.param[2] = 0);
	REFUSED(-EINVAL, job.param[2] = 257);
	ck_assert_int_eq(rdmad_gpu_enqueue(gpu, NULL), -EINVAL);
	ck_assert_int_eq(rdmad_gpu_enqueue(NULL, &good), -EINVAL);
	ck_assert_int_eq(rdmad_gpu_submit(gpu, &good, NULL, NULL), -EINVAL);
	ck_assert_int_eq(rdmad_gpu_quantize(gpu, 0, 5, 4, in, out), -EINVAL);
	ck_assert_int_eq(rdmad_gpu_quantize(gpu, 65536, 65536, 4, in, out), -EMSGSIZE);
	ck_assert_int_eq(rdmad_gpu_quantize(NULL, 1, 1, 4, in, out), -EINVAL);
	ck_assert_uint_eq(rdmad_gpu_outstanding(gpu), 0);

	/* An id is taken until its result is dequeued. */
	ck_assert_int_eq(rdmad_gpu_enqueue(gpu, &good), 0);
	ck_assert_int_eq(rdmad_gpu_enqueue(gpu, &good), -EEXIST);
	ck_assert_int_eq(rdmad_gpu_wait(gpu, 20000000), 1);
	ck_assert_int_eq(rdmad_gpu_enqueue(gpu, &good), -EEXIST);
	ck_assert_int_eq(rdmad_gpu_dequeue(gpu, &result, 0), 0);
	ck_assert_int_eq(rdmad_gpu_dequeue(gpu, &result, 1), 1);
	ck_assert_int_eq(rdmad_gpu_dequeue(gpu, &result, 1), 0);
	ck_assert_uint_eq(result.id, 1);
	ck_assert_uint_gt(result.latency_ns, 0);
	ck_assert_uint_eq(result.work_ns, _i >= QUEUE ? 7 : 0);
	ck_assert_int_eq(rdmad_gpu_enqueue(gpu, &good), 0);
	rdmad_gpu_close(gpu);
}
END_TEST

/* Ids that meet in the table, taken and given back in all orders. */
START_TEST(test_ids)
{
	struct rdmad_gpu *gpu = gpu_open_with(RPC, (struct rdmad_gpu_options){.outstanding = 100});
	static uint8_t in[8], out[8];
	struct rdmad_gpu_result results[8];
	bool taken[200] = {0};
	unsigned state = 1, count = 0;

	for (unsigned i = 0; i < 20000; i++) {
		uint32_t k = ((state = state * 1103515245 + 12345) >> 16) % 200;
		struct rdmad_gpu_job job = echo_of(k % 7 + k / 7 * 256, in, out, 8); /* seven homes */
		int n, rc = rdmad_gpu_enqueue(gpu, &job);

		ck_assert_int_eq(rc, taken[k] ? -EEXIST : count == 100 ? -EAGAIN : 0);
		taken[k] |= rc == 0;
		count += rc == 0;
		if (count < 100 && state >> 28)
			continue;
		ck_assert_int_gt(rdmad_gpu_wait(gpu, 20000000), 0);
		n = rdmad_gpu_dequeue(gpu, results, 1 + (state >> 20) % 8);
		count -= (unsigned)n;
		while (n-- > 0)
			taken[results[n].id % 256 + results[n].id / 256 * 7] = false;
	}
	rdmad_gpu_close(gpu);
}
END_TEST

/*
 * Callbacks
 */
struct chain {
	struct rdmad_gpu *gpu;
	uint8_t in[16], out[16];
	unsigned left, called;
	int status;
};

static void chain_next(void *arg, const struct rdmad_gpu_result *result)
{
	struct chain *chain = arg;
	struct rdmad_gpu_job job = echo_of(5, chain->in, chain->out, 16);
	struct rdmad_gpu_result other;
	int rc;

	chain->called++;
	chain->status = result->status;
	ck_assert_uint_eq(result->id, 5);
	ck_assert_int_eq(rdmad_gpu_close(chain->gpu), -EDEADLK);
	ck_assert_int_eq(rdmad_gpu_terminate(chain->gpu), -EDEADLK);
	ck_assert_int_eq(rdmad_gpu_echo(chain->gpu, chain->in, 16, 0, chain->out), -EDEADLK);
	rc = rdmad_gpu_wait(chain->gpu, 1000); /* there may be some already */
	ck_assert(rc > 0 || rc == (rdmad_gpu_outstanding(chain->gpu) ? -EDEADLK : 0));
	rc = rdmad_gpu_dequeue(chain->gpu, &other, 0);
	ck_assert(rc == 0 || rc == -ENOTCONN);
	if (result->status == 0 && chain->left && chain->left--)
		ck_assert_int_eq(rdmad_gpu_submit(chain->gpu, &job, chain_next, chain), 0);
}

START_TEST(test_callbacks)
{
	struct chain chain = {.gpu = gpu_open_with(_i, (struct rdmad_gpu_options){.outstanding = 2}), .left = 50};
	struct rdmad_gpu_job job = echo_of(5, chain.in, chain.out, 16);
	int total = 0;

	/* The same id twice is none of the library's business here. */
	ck_assert_int_eq(rdmad_gpu_submit(chain.gpu, &job, chain_next, &chain), 0);
	ck_assert_int_eq(rdmad_gpu_submit(chain.gpu, &job, chain_next, &chain), 0);
	ck_assert_int_eq(rdmad_gpu_submit(chain.gpu, &job, chain_next, &chain), -EAGAIN);
	while (rdmad_gpu_outstanding(chain.gpu)) {
		int n = rdmad_gpu_progress(chain.gpu, 20000000);

		ck_assert_int_gt(n, 0);
		total += n;
	}
	ck_assert_uint_eq(chain.called, 52);
	ck_assert_int_eq(total, 52);
	fake.hold = true;
	ck_assert_int_eq(rdmad_gpu_submit(chain.gpu, &job, chain_next, &chain), 0);
	ck_assert_int_eq(rdmad_gpu_progress(chain.gpu, 30000), 0);
	rdmad_gpu_close(chain.gpu);
	ck_assert_uint_eq(chain.called, 53);
	ck_assert_int_eq(chain.status, -ECONNABORTED);
}
END_TEST

/*
 * Ends
 */

/* Jobs that the server does not finish, more than are in its queues. */
static void enqueue_held(struct rdmad_gpu *gpu, uint8_t (*in)[8], uint8_t (*out)[8], uint32_t n)
{
	fake.hold = true;
	for (uint32_t i = 0; i < n; i++) {
		struct rdmad_gpu_job job = echo_of(i, in[i], out[i], 8);

		ck_assert_int_eq(rdmad_gpu_enqueue(gpu, &job), 0);
	}
	ck_assert_int_eq(rdmad_gpu_wait(gpu, 20000), -ETIMEDOUT);
}

/* Each ends with this error, once. */
static void assert_all_ended(struct rdmad_gpu *gpu, uint32_t n, int error)
{
	struct rdmad_gpu_job job;
	struct rdmad_gpu_result results[500];
	uint8_t bytes[8];
	bool seen[500] = {0};
	int got;

	ck_assert_int_eq(rdmad_gpu_wait(gpu, 20000000), (int)n);
	got = rdmad_gpu_dequeue(gpu, results, 500);
	ck_assert_int_eq(got, (int)n);
	for (int i = 0; i < got; i++) {
		ck_assert_int_eq(results[i].status, error);
		ck_assert_uint_eq(results[i].output_size, 0);
		ck_assert(!seen[results[i].id]);
		seen[results[i].id] = true;
	}
	job = echo_of(1, bytes, bytes, 8);
	ck_assert_int_eq(rdmad_gpu_enqueue(gpu, &job), -ENOTCONN);
	ck_assert_int_eq(rdmad_gpu_dequeue(gpu, results, 1), -ENOTCONN);
	ck_assert_int_eq(rdmad_gpu_progress(gpu, 1000), -ENOTCONN);
	ck_assert_int_eq(rdmad_gpu_flush(gpu), -ENOTCONN);
	ck_assert_int_eq(rdmad_gpu_echo(gpu, bytes, 8, 0, bytes), -ENOTCONN);
	ck_assert_int_eq(rdmad_gpu_terminate(gpu), -ENOTCONN);
	ck_assert_int_eq(rdmad_gpu_wait(gpu, 1000), 0);
}

START_TEST(test_session_ended)
{
	struct rdmad_gpu *gpu = gpu_open(_i);
	static uint8_t in[500][8], out[500][8];

	enqueue_held(gpu, in, out, 500);
	fake.end = true;
	assert_all_ended(gpu, 500, -EIO);
	ck_assert_int_eq(rdmad_gpu_flush(gpu), -ENOTCONN);
	ck_assert_ptr_nonnull(strstr(rdmad_error(), "job 17 of queue 2: ? nonsense"));
	ck_assert_int_eq(rdmad_gpu_close(gpu), 0);
}
END_TEST

START_TEST(test_server_dies)
{
	struct rdmad_gpu *gpu = gpu_open(_i);
	static uint8_t in[500][8], out[500][8];
	struct rdmad_gpu_result results[500];

	enqueue_held(gpu, in, out, 500);
	server_die();
	ck_assert_int_eq(rdmad_gpu_wait(gpu, 20000000), 500);
	ck_assert_int_eq(rdmad_gpu_dequeue(gpu, results, 500), 500);
	for (int i = 0; i < 500; i++)
		ck_assert_int_lt(results[i].status, 0);
	ck_assert_int_eq(rdmad_gpu_close(gpu), 0);
}
END_TEST

START_TEST(test_closed_with_jobs)
{
	struct rdmad_gpu *gpu = gpu_open(_i);
	static uint8_t in[500][8], out[500][8];
	struct chain chain = {.gpu = gpu};
	struct rdmad_gpu_job job = echo_of(5, chain.in, chain.out, 16);

	ck_assert_int_eq(rdmad_gpu_submit(gpu, &job, chain_next, &chain), 0);
	enqueue_held(gpu, in, out, 500);
	ck_assert_int_eq(rdmad_gpu_close(gpu), 0);
	ck_assert_uint_eq(chain.called, 1);
}
END_TEST

START_TEST(test_terminate)
{
	struct rdmad_gpu *gpu = gpu_open(_i);
	static uint8_t in[200][8], out[200][8];
	struct rdmad_gpu_result results[200];
	struct rdmad_gpu_job job;

	for (uint32_t i = 0; i < 200; i++) {
		job = echo_of(i, in[i], out[i], 8);
		ck_assert_int_eq(rdmad_gpu_enqueue(gpu, &job), 0);
	}
	ck_assert_int_eq(rdmad_gpu_terminate(gpu), 0);
	job = echo_of(1000, in[0], out[0], 8);
	ck_assert_int_eq(rdmad_gpu_enqueue(gpu, &job), -ENOTCONN);
	ck_assert_int_eq(rdmad_gpu_dequeue(gpu, results, 200), 200);
	ck_assert_mem_eq(in[1], out[1], 199 * 8);
	for (int i = 0; i < 200; i++)
		ck_assert_int_eq(results[i].status, 0);
	ck_assert_int_eq(rdmad_gpu_close(gpu), 0);
}
END_TEST

/* A call that gave up leaves nothing that writes the caller's memory. */
START_TEST(test_timeout)
{
	struct rdmad_gpu *gpu = gpu_open_with(_i, (struct rdmad_gpu_options){.common = {.timeout_us = 50000}});
	uint8_t in[16], out[16] = {0}, before[16] = {0};

	fill(in, 16, 1);
	fake.hold = true;
	ck_assert_int_eq(rdmad_gpu_echo(gpu, in, 16, 0, out), -ETIMEDOUT);
	ck_assert_ptr_nonnull(strstr(rdmad_error(), "50 ms"));
	memcpy(before, out, sizeof(before)); /* what was read too early may be there */
	fake.hold = false;
	ck_assert_int_eq(rdmad_gpu_progress(gpu, 20000), -ENOTCONN);
	ck_assert_mem_eq(out, before, 16);
	ck_assert_int_eq(rdmad_gpu_echo(gpu, in, 16, 0, out), -ENOTCONN);
	rdmad_gpu_close(gpu);
}
END_TEST

/* A server that ends jobs which are not there, or never has a whole result. */
START_TEST(test_lies)
{
	struct rdmad_gpu *gpu;
	uint8_t in[16], out[16];
	int rc;

	fake.lies = true;
	fake.hold = _i < QUEUE; /* so that it has a job to lie about */
	gpu = gpu_open(_i);
	fill(in, 16, 1);
	rc = rdmad_gpu_echo(gpu, in, 16, 0, out);
	ck_assert_int_eq(rc, _i < QUEUE ? -EPROTO : -EBADMSG);
	rdmad_gpu_close(gpu);
}
END_TEST

/* An output is not read before it is due: what is read lands with the caller. What the clock says is that it is still early. */
START_TEST(test_not_read_early)
{
	struct rdmad_gpu *gpu = gpu_open(QUEUE);
	struct rdmad_gpu_result result;
	uint8_t in[2][64], out[2][64];
	uint64_t took = 0, begin;

	for (uint32_t i = 0; i < 2; i++) {
		struct rdmad_gpu_job job = echo_of(i, in[i], out[i], 64);

		fake.hold = true;
		begin = time_now();
		ck_assert_int_eq(rdmad_gpu_enqueue(gpu, &job), 0);
		for (uint64_t limit = i ? took / 2 : 400 * TIME_MS; time_now() - begin < limit;) {
			uint8_t there;

			ck_assert_int_ge(rdmad_gpu_progress(gpu, 1000), 0);
			there = out[i][63];
			if (i == 1 && time_now() - begin < took / 2)
				ck_assert_uint_eq(there, 0xee);
		}
		took = time_now() - begin;
		fake.hold = false;
		while (rdmad_gpu_dequeue(gpu, &result, 1) == 0)
			ck_assert(rdmad_gpu_wait(gpu, 60000000) >= 0);
		ck_assert_int_eq(result.status, 0);
		ck_assert_mem_eq(in[i], out[i], 64);
	}
	rdmad_gpu_close(gpu);
}
END_TEST

START_TEST(test_open_fails)
{
	struct rdmad_gpu_options options = {.size_max = 8192};
	struct rdmad_gpu *gpu;

	ck_assert_int_eq(rdmad_gpu_open(server.address, NULL, &gpu), -EINVAL);
	ck_assert_int_eq(rdmad_gpu_open(NULL, &options, &gpu), -EINVAL);
	options.size_max = RDMAD_GPU_SIZE_MAX + 1;
	ck_assert_int_eq(rdmad_gpu_open(server.address, &options, &gpu), -EINVAL);
	options.size_max = 8192;
	options.outstanding = RDMAD_GPU_OUTSTANDING + 1;
	ck_assert_int_eq(rdmad_gpu_open(server.address, &options, &gpu), -EINVAL);
	options.outstanding = 0;
	options.mode = 2;
	ck_assert_int_eq(rdmad_gpu_open(server.address, &options, &gpu), -EINVAL);
	options.mode = 0;
	fake.payload_max = 4096;
	ck_assert_int_eq(rdmad_gpu_open(server.address, &options, &gpu), -EMSGSIZE);
	ck_assert_ptr_nonnull(strstr(rdmad_error(), "4096"));
	fake.ends = true;
	ck_assert_int_eq(rdmad_gpu_open(server.address, &options, &gpu), -EMSGSIZE);
	ck_assert_ptr_nonnull(strstr(rdmad_error(), "that is too large"));
	fake.refuses = true;
	ck_assert_int_eq(rdmad_gpu_open(server.address, &options, &gpu), -ENOMEM);
	ck_assert_ptr_nonnull(strstr(rdmad_error(), "no worker today"));
	server_die();
	ck_assert_int_lt(rdmad_gpu_open(server.address, &options, &gpu), 0);
	ck_assert_int_eq(rdmad_gpu_close(NULL), 0);
}
END_TEST

START_TEST(test_info)
{
	struct rdmad_gpu *gpu = gpu_open(_i);
	struct rdmad_gpu_info info;

	ck_assert_int_eq(rdmad_gpu_info(gpu, &info), 0);
	ck_assert_uint_eq(info.jobs, 42);
	rdmad_gpu_close(gpu);
	memset(&info, 0, sizeof(info));
	ck_assert_int_eq(rdmad_gpu_server_info(server.address, NULL, &info), 0);
	ck_assert_uint_eq(info.sessions_max, 8);
	ck_assert_uint_eq(info.operations, 6);
	ck_assert_str_eq(info.backend, "fake");
	ck_assert_str_eq(info.transport, "shm");
	ck_assert_int_eq(rdmad_gpu_server_info(NULL, NULL, &info), -EINVAL);
	ck_assert_str_eq(rdmad_gpu_operation_name(RDMAD_GPU_ECHO), "echo");
	ck_assert_ptr_null(rdmad_gpu_operation_name(0));
	ck_assert_ptr_null(rdmad_gpu_operation_name(64));
}
END_TEST

/* Sixty-four echoes there and back; how many were right. Asserts nothing: that would allocate. */
static int echoes(struct rdmad_gpu *gpu, uint8_t *in, uint8_t *out)
{
	struct rdmad_gpu_result results[64];
	int sent = 0, got = 0, right = 0;

	for (uint32_t i = 0; i < 64; i++) {
		struct rdmad_gpu_job job = echo_of(i, in + i * 256, out + i * 256, 256);

		sent += rdmad_gpu_enqueue(gpu, &job) == 0;
	}
	while (got < sent && rdmad_gpu_wait(gpu, 20000000) > 0) {
		int n = rdmad_gpu_dequeue(gpu, results, 64);

		for (int i = 0; i < n; i++)
			right += memcmp(in + results[i].id * 256, out + results[i].id * 256, 256) == 0;
		got += n;
	}
	return right;
}

/* With registered memory the hot path allocates nothing and registers nothing. */
START_TEST(test_hot_path)
{
	struct rdmad_gpu *gpu = gpu_open(_i);
	static uint8_t own[2][64 * 256]; /* input and output, of one registration */
	struct rdmad_gpu_job job;
	int right = 0;
	void *lent;

	ck_assert_int_eq(rdmad_gpu_buffer_lend(gpu, sizeof(own), &lent), 0);
	ck_assert_int_eq(rdmad_gpu_buffer_register(gpu, own, sizeof(own)), 0);
	ck_assert_int_eq(rdmad_gpu_buffer_register(gpu, own, 1), -EEXIST);
	for (unsigned round = 0; round < 20; round++) {
		if (round == 2)
			allocations = registrations = 0;
		right += echoes(gpu, own[0], lent);
		right += echoes(gpu, own[0], own[1]);
	}
	ck_assert_uint_eq(allocations, 0);
	ck_assert_uint_eq(registrations, 0);
	ck_assert_int_eq(right, 2 * 20 * 64);
	job = echo_of(1, own[0], lent, 256);
	ck_assert_int_eq(rdmad_gpu_enqueue(gpu, &job), 0);
	ck_assert_int_eq(rdmad_gpu_buffer_unregister(gpu, own), -EBUSY);
	ck_assert_int_eq(rdmad_gpu_wait(gpu, 20000000), 1);
	ck_assert_int_eq(rdmad_gpu_buffer_unregister(gpu, own), 0);
	ck_assert_int_eq(rdmad_gpu_buffer_unregister(gpu, own), -ENOENT);
	ck_assert_int_eq(rdmad_gpu_buffer_lend(gpu, 0, &lent), -EINVAL);
	rdmad_gpu_close(gpu);
	rdmad_gpu_buffer_release(lent);
	rdmad_gpu_buffer_release(NULL);
}
END_TEST

/* The thread keeps requests going while the caller is away, and calls nobody. */
START_TEST(test_progress_thread)
{
	struct rdmad_gpu *gpu = gpu_open_with(
		_i, (struct rdmad_gpu_options){.common = {.progress_thread = true, .credits = 2}, .size_max = 8192});
	struct pollfd pfd = {.fd = rdmad_gpu_fd(gpu), .events = POLLIN};
	static uint8_t in[500][8], out[500][8];
	struct chain chain = {.gpu = gpu, .left = 20};
	struct rdmad_gpu_job job = echo_of(5, chain.in, chain.out, 16);
	struct rdmad_gpu_result results[500];
	int got = 0;

	ck_assert_int_eq(rdmad_gpu_submit(gpu, &job, chain_next, &chain), 0);
	for (uint32_t i = 0; i < 500; i++) {
		job = echo_of(i, in[i], out[i], 8);
		ck_assert_int_eq(rdmad_gpu_enqueue(gpu, &job), 0);
	}
	/* Away, and in RPC mode all that was submitted is carried out, though there are but two credits. */
	while (_i < QUEUE && fake.answered < 501)
		usleep(1000);
	ck_assert_uint_eq(chain.called, 0);
	while (rdmad_gpu_outstanding(gpu)) {
		ck_assert_int_ge(rdmad_gpu_wait(gpu, 20000000), 0);
		got += rdmad_gpu_dequeue(gpu, results, 500);
	}
	ck_assert_int_eq(got, 500);
	ck_assert_mem_eq(in, out, sizeof(in));
	ck_assert_uint_eq(chain.called, 21);
	/* And when the session ends while the caller is away, nothing is lost either. */
	job = echo_of(5, chain.in, chain.out, 16);
	ck_assert_int_eq(rdmad_gpu_submit(gpu, &job, chain_next, &chain), 0);
	fake.hold = true;
	job.id = 77;
	ck_assert_int_eq(rdmad_gpu_enqueue(gpu, &job), 0);
	server_die();
	ck_assert_int_eq(poll(&pfd, 1, 60000), 1);
	ck_assert_int_eq(rdmad_gpu_wait(gpu, 20000000), 1);
	ck_assert_int_eq(rdmad_gpu_dequeue(gpu, results, 1), 1);
	ck_assert_uint_eq(rdmad_gpu_outstanding(gpu), 0);
	rdmad_gpu_close(gpu);
}
END_TEST

/* A caller with a loop of its own. */
START_TEST(test_own_loop)
{
	struct rdmad_gpu *gpu = gpu_open(_i);
	struct pollfd pfd = {.fd = rdmad_gpu_fd(gpu), .events = POLLIN};
	struct rdmad_gpu_result result;
	uint8_t in[64], out[64];

	for (uint32_t i = 0; i < 100; i++) {
		struct rdmad_gpu_job job = echo_of(i, in, out, 64);

		ck_assert_int_eq(rdmad_gpu_enqueue(gpu, &job), 0);
		ck_assert_int_eq(rdmad_gpu_flush(gpu), 0);
		while (rdmad_gpu_dequeue(gpu, &result, 1) == 0)
			if (rdmad_gpu_arm(gpu) == 0)
				ck_assert_int_eq(poll(&pfd, 1, 60000), 1);
		ck_assert_mem_eq(in, out, 64);
	}
	rdmad_gpu_close(gpu);
}
END_TEST

/*
 * What rdmad_error() says: of the last call alone, whatever an earlier one left
 */
#define STALE "stale words"

#define FAILS(call, error, text)                                                                                       \
	do {                                                                                                           \
		int fails_;                                                                                            \
		log_error("test", STALE);                                                                              \
		fails_ = (int)(call);                                                                                  \
		ck_assert_msg(fails_ == (error), "%d: %s", fails_, rdmad_error());                                     \
		ck_assert_msg(strstr(rdmad_error(), text) && !strstr(rdmad_error(), STALE), "%s", rdmad_error());      \
		ck_assert_str_ne(rdmad_error(), "");                                                                   \
	} while (0)

#define SUCCEEDS(call, result)                                                                                         \
	do {                                                                                                           \
		int succeeds_;                                                                                         \
		log_error("test", STALE);                                                                              \
		succeeds_ = (int)(call);                                                                               \
		ck_assert_msg(succeeds_ == (result), "%d: %s", succeeds_, rdmad_error());                              \
		ck_assert_str_eq(rdmad_error(), "");                                                                   \
	} while (0)

static void ignore(void *arg, const struct rdmad_gpu_result *result)
{
	(void)arg;
	(void)result;
}

static uint8_t error_in[16], error_out[16];

/* Each function that a session which has ended, or none, fails. */
static void walk(struct rdmad_gpu *gpu, int error, const char *text)
{
	struct rdmad_gpu_job job = echo_of(7, error_in, error_out, 16);
	struct rdmad_gpu_result result;
	struct rdmad_gpu_info info;

	FAILS(rdmad_gpu_enqueue(gpu, &job), error, text);
	FAILS(rdmad_gpu_submit(gpu, &job, ignore, NULL), error, text);
	FAILS(rdmad_gpu_dequeue(gpu, &result, 1), error, text);
	FAILS(rdmad_gpu_progress(gpu, 0), error, text);
	FAILS(rdmad_gpu_progress(gpu, UINT64_MAX), error, text);
	FAILS(rdmad_gpu_flush(gpu), error, text);
	FAILS(rdmad_gpu_quantize(gpu, 4, 4, 4, error_in, error_out), error, text);
	FAILS(rdmad_gpu_echo(gpu, error_in, 16, 0, error_out), error, text);
	FAILS(rdmad_gpu_terminate(gpu), error, text);
	FAILS(rdmad_gpu_info(gpu, &info), error, text);
}

START_TEST(test_errors_null)
{
	void *buffer;

	walk(NULL, -EINVAL, "handle");
	FAILS(rdmad_gpu_wait(NULL, 0), -EINVAL, "handle is NULL");
	FAILS(rdmad_gpu_fd(NULL), -EINVAL, "handle is NULL");
	FAILS(rdmad_gpu_arm(NULL), -EINVAL, "handle is NULL");
	FAILS(rdmad_gpu_buffer_lend(NULL, 1, &buffer), -EINVAL, "handle");
	FAILS(rdmad_gpu_buffer_register(NULL, error_in, 1), -EINVAL, "handle");
	FAILS(rdmad_gpu_buffer_unregister(NULL, error_in), -EINVAL, "handle");
	ck_assert_uint_eq(rdmad_gpu_outstanding(NULL), 0);
	SUCCEEDS(rdmad_gpu_close(NULL), 0);
}
END_TEST

START_TEST(test_errors_open)
{
	struct rdmad_gpu_options options = {.size_max = 8192};
	struct rdmad_gpu_info info;
	struct rdmad_gpu *gpu;

	FAILS(rdmad_gpu_open(NULL, &options, &gpu), -EINVAL, "needs a server");
	FAILS(rdmad_gpu_open(server.address, &(struct rdmad_gpu_options){.mode = 2}, &gpu), -EINVAL, "no mode 2");
	FAILS(rdmad_gpu_open(server.address, &(struct rdmad_gpu_options){.size_max = UINT32_MAX}, &gpu), -EINVAL,
	      "at most");
	FAILS(rdmad_gpu_open("tcp://127.0.0.1:1", &options, &gpu), -ECONNREFUSED, "nothing listens");
	FAILS(rdmad_gpu_server_info(NULL, NULL, &info), -EINVAL, "needs a server");
	FAILS(rdmad_gpu_server_info("tcp://127.0.0.1:1", NULL, &info), -ECONNREFUSED, "nothing listens");
	fake.payload_max = 4096;
	FAILS(rdmad_gpu_open(server.address, &options, &gpu), -EMSGSIZE, "4096");
	fake.ends = true;
	FAILS(rdmad_gpu_open(server.address, &options, &gpu), -EMSGSIZE, "that is too large");
	fake.refuses = true;
	FAILS(rdmad_gpu_open(server.address, &options, &gpu), -ENOMEM, "no worker today");
	SUCCEEDS(rdmad_gpu_server_info(server.address, NULL, &info), 0);
}
END_TEST

/* One that soon loses its patience, though not with the server that makes it. */
static struct rdmad_gpu *gpu_open_impatient(int way)
{
	struct rdmad_gpu_options options = {.outstanding = 2, .common = {.timeout_us = 20000}};
	uint64_t until = time_now() + 60 * TIME_S;
	struct rdmad_gpu *gpu;
	int rc;

	options.mode = way >= QUEUE ? RDMAD_GPU_QUEUE : RDMAD_GPU_RPC;
	options.no_immediate = way == RPC_SENDS;
	options.read_indices = way == QUEUE_INDICES;
	while ((rc = rdmad_gpu_open(server.address, &options, &gpu)) == -ETIMEDOUT)
		ck_assert(time_now() < until);
	ck_assert_msg(rc == 0, "%s", rdmad_error());
	return gpu;
}

START_TEST(test_errors_jobs)
{
	struct rdmad_gpu *gpu = gpu_open_impatient(_i);
	struct rdmad_gpu_job job = echo_of(1, error_in, error_out, 16);
	struct rdmad_gpu_result result;
	uint8_t second[2][16];
	void *buffer;

	ck_assert_str_eq(rdmad_error(), "");
	fake.hold = true;
	SUCCEEDS(rdmad_gpu_progress(gpu, 1000), 0);
	SUCCEEDS(rdmad_gpu_wait(gpu, 1000), 0);
	SUCCEEDS(rdmad_gpu_enqueue(gpu, &job), 0);
	FAILS(rdmad_gpu_enqueue(gpu, &job), -EEXIST, "id 1");
	FAILS(rdmad_gpu_wait(gpu, 1000), -ETIMEDOUT, "1000 us");
	SUCCEEDS(rdmad_gpu_dequeue(gpu, &result, 1), 0);
	FAILS(rdmad_gpu_terminate(gpu), -ETIMEDOUT, "1 jobs are not done after 20 ms");
	job = echo_of(2, second[0], second[1], 16);
	SUCCEEDS(rdmad_gpu_submit(gpu, &job, ignore, NULL), 0);
	job.id = 3;
	FAILS(rdmad_gpu_enqueue(gpu, &job), -EAGAIN, "2 jobs are outstanding");
	FAILS(rdmad_gpu_submit(gpu, &job, ignore, NULL), -EAGAIN, "2 jobs are outstanding");
	job.op = 0;
	FAILS(rdmad_gpu_enqueue(gpu, &job), -EINVAL, "operation 0");
	FAILS(rdmad_gpu_echo(gpu, error_in, 5000, 0, error_out), -EMSGSIZE, "5000");
	FAILS(rdmad_gpu_quantize(gpu, 4, 4, 257, error_in, error_out), -EINVAL, "operation 1");
	SUCCEEDS(rdmad_gpu_buffer_lend(gpu, 100, &buffer), 0);
	rdmad_gpu_buffer_release(buffer);
	FAILS(rdmad_gpu_buffer_lend(gpu, 0, &buffer), -EINVAL, "a size");
	FAILS(rdmad_gpu_buffer_unregister(gpu, second), -ENOENT, "no memory was registered");
	SUCCEEDS(rdmad_gpu_buffer_register(gpu, second, sizeof(second)), 0);
	FAILS(rdmad_gpu_buffer_register(gpu, second, 1), -EEXIST, "already");
	SUCCEEDS(rdmad_gpu_buffer_unregister(gpu, second), 0);
	fake.hold = false;
	while (rdmad_gpu_outstanding(gpu) > 1 || rdmad_gpu_wait(gpu, 0) != 1)
		ck_assert_int_ge(rdmad_gpu_progress(gpu, 60000000), 0);
	SUCCEEDS(rdmad_gpu_dequeue(gpu, &result, 1), 1);
	fake.hold = true;
	FAILS(rdmad_gpu_echo(gpu, error_in, 16, 0, error_out), -ETIMEDOUT, "20 ms");
	walk(gpu, -ENOTCONN, "the session has ended");
	SUCCEEDS(rdmad_gpu_close(gpu), 0);
}
END_TEST

static void wait_inside(void *arg, const struct rdmad_gpu_result *result)
{
	struct rdmad_gpu *gpu = arg;
	struct rdmad_gpu_info info;

	(void)result;
	FAILS(rdmad_gpu_echo(gpu, error_in, 16, 0, error_out), -EDEADLK, "a callback must not wait");
	FAILS(rdmad_gpu_info(gpu, &info), -EDEADLK, "a callback must not wait");
	FAILS(rdmad_gpu_close(gpu), -EDEADLK, "a callback must not wait");
}

/* Its end, by each side that may bring it about. */
START_TEST(test_errors_end)
{
	struct rdmad_gpu *gpu = gpu_open(_i);
	struct rdmad_gpu_job job = echo_of(1, error_in, error_out, 16);
	struct rdmad_gpu_result result;
	struct rdmad_gpu_info info;

	SUCCEEDS(rdmad_gpu_info(gpu, &info), 0);
	SUCCEEDS(rdmad_gpu_submit(gpu, &job, wait_inside, gpu), 0);
	while (rdmad_gpu_outstanding(gpu))
		SUCCEEDS(MIN(rdmad_gpu_progress(gpu, 60000000), 0), 0);
	SUCCEEDS(rdmad_gpu_terminate(gpu), 0);
	FAILS(rdmad_gpu_enqueue(gpu, &job), -ENOTCONN, "terminated");
	rdmad_gpu_close(gpu);

	gpu = gpu_open(_i);
	fake.hold = true;
	SUCCEEDS(rdmad_gpu_enqueue(gpu, &job), 0);
	SUCCEEDS(rdmad_gpu_flush(gpu), 0);
	fake.end = true;
	SUCCEEDS(rdmad_gpu_wait(gpu, 60000000), 1);
	SUCCEEDS(rdmad_gpu_dequeue(gpu, &result, 1), 1);
	ck_assert_int_eq(result.status, -EIO);
	walk(gpu, -ENOTCONN, "job 17 of queue 2");
	rdmad_gpu_close(gpu);

	fake.end = false;
	gpu = gpu_open(_i);
	server_die();
	while (rdmad_gpu_progress(gpu, 60000000) >= 0)
		;
	walk(gpu, -ENOTCONN, "the session has ended");
	rdmad_gpu_close(gpu);
}
END_TEST

/* In a child the handle can only be closed, and the parent's goes on. */
START_TEST(test_errors_fork)
{
	struct rdmad_gpu *gpu = gpu_open(_i);
	int status;
	pid_t pid;

	pid = fork();
	if (pid == 0) {
		walk(gpu, -EPERM, "forked");
		_exit(rdmad_gpu_close(gpu));
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	SUCCEEDS(rdmad_gpu_echo(gpu, error_in, 16, 0, error_out), 0);
	SUCCEEDS(rdmad_gpu_close(gpu), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client gpu");
	TCase *tcase = suite_case(suite, "client gpu", set_up, server_stop);

	tcase_add_loop_test(tcase, test_blocking, 0, WAYS);
	tcase_add_loop_test(tcase, test_large, 0, WAYS);
	tcase_add_loop_test(tcase, test_many, 0, WAYS);
	tcase_add_loop_test(tcase, test_torn, QUEUE, WAYS);
	tcase_add_test(tcase, test_batches);
	tcase_add_loop_test(tcase, test_full_queue, QUEUE, WAYS);
	tcase_add_loop_test(tcase, test_bad_jobs, 0, WAYS);
	tcase_add_test(tcase, test_ids);
	tcase_add_loop_test(tcase, test_callbacks, 0, WAYS);
	tcase_add_loop_test(tcase, test_session_ended, 0, WAYS);
	tcase_add_loop_test(tcase, test_server_dies, 0, WAYS);
	tcase_add_loop_test(tcase, test_closed_with_jobs, 0, WAYS);
	tcase_add_loop_test(tcase, test_terminate, 0, WAYS);
	tcase_add_loop_test(tcase, test_timeout, 0, WAYS);
	tcase_add_loop_test(tcase, test_lies, 0, WAYS);
	tcase_add_test(tcase, test_not_read_early);
	tcase_add_test(tcase, test_open_fails);
	tcase_add_loop_test(tcase, test_info, 0, WAYS);
	tcase_add_loop_test(tcase, test_hot_path, 0, WAYS);
	tcase_add_loop_test(tcase, test_progress_thread, 0, WAYS);
	tcase_add_loop_test(tcase, test_own_loop, 0, WAYS);
	tcase = suite_case(suite, "errors", set_up_errors, server_stop);
	tcase_add_test(tcase, test_errors_null);
	tcase_add_test(tcase, test_errors_open);
	tcase_add_loop_test(tcase, test_errors_jobs, 0, WAYS);
	tcase_add_loop_test(tcase, test_errors_end, 0, WAYS);
	tcase_add_loop_test(tcase, test_errors_fork, 0, WAYS);
	return suite_run(suite);
}
