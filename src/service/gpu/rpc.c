/*
 * rpc.c: jobs by request. A request is checked in all that can be said of it before a byte is moved; then it has a cell
 * of the ring, into which its input is read from the client's memory, and the process is told. The result is written to
 * the client's memory from where the process left it, with the job's id as immediate, which is the answer; results that
 * are there at the same time are posted together. No byte is copied and nothing is allocated on the way. What finds no
 * room waits in a list and is tried again each turn: all that makes room is a completion, and that is a turn.
 */
#include "service/gpu/gpu.h"

#include <inttypes.h>
#include <stdlib.h>

#define RESULTS 64 /* taken at once */

/* A cell of a job is free again when its result is written, and that cell when the result is released: so twice the
 * slots can be under way in a queue. */
static unsigned transfer_places(const struct gpu_agent *a)
{
	return 2 * a->ring->shape.slots;
}

int gpu_agent_rpc_start(struct gpu_agent *a)
{
	unsigned jobs = a->ring->shape.queues * transfer_places(a), bits = 1;
	int rc = gpu_port_create(a->ring, &a->port);

	if (rc != 0)
		return rc;
	while (1u << bits < jobs)
		bits++;
	a->bucket_shift = 32 - bits;
	a->job = calloc(jobs, sizeof(*a->job));
	a->bucket = calloc(1ull << bits, sizeof(struct gpu_agent_job *));
	if (!a->job || !a->bucket)
		return -ENOMEM;
	rc = random_fill(&a->multiplier, sizeof(a->multiplier));
	a->multiplier |= 1;
	return rc;
}

/* Multiplicative, with a factor that no client knows: none can have all its ids in one bucket. */
static struct gpu_agent_job **bucket_of(const struct gpu_agent *a, uint32_t id)
{
	return &a->bucket[id * a->multiplier >> a->bucket_shift];
}

static bool id_taken(const struct gpu_agent *a, uint32_t id)
{
	const struct gpu_agent_job *job = *bucket_of(a, id);

	while (job && job->ring.id != id)
		job = job->next;
	return job;
}

static struct gpu_agent_job *job_of(const struct gpu_agent *a, const struct gpu_cell *cell)
{
	return &a->job[cell->queue * transfer_places(a) + cell->index % transfer_places(a)];
}

/*
 * In
 */
static bool range_good(const struct wire_remote *range)
{
	return !range->reserved && range->addr + range->length >= range->addr;
}

/* Fill *job; a wrong one ends the session. */
static bool check_job(struct gpu_agent *a, uint32_t id, const struct wire_gpu_job *asked, struct wire_ring_job *job)
{
	const char *why = NULL;
	int64_t output;

	*job = (struct wire_ring_job){
		.id = id,
		.op = asked->op,
		.length = (uint32_t)MIN(asked->input.length, (uint64_t)UINT32_MAX),
	};
	memcpy(job->param, asked->param, sizeof(job->param));
	output = gpu_job_check(&a->ring->shape, job, &why);
	if (output >= 0 && (asked->reserved || !range_good(&asked->input) || !range_good(&asked->output)))
		why = "a reserved field is not 0, or a range ends beyond the last address";
	else if (output >= 0 && id == WIRE_GPU_TERMINATE)
		why = "this id is the request to end the session";
	else if (output >= 0 && id_taken(a, id))
		why = "this id is that of a job which is not answered yet";
	if (why)
		gpu_agent_fail(a, -EBADMSG, "job %u: %s", id, why);
	else if (asked->output.length != (uint64_t)output)
		gpu_agent_fail(a, -EBADMSG,
			       "job %u: room for %" PRIu64 " bytes of output was given, and it has %" PRId64, id,
			       asked->output.length, output);
	return a->state == GPU_RUNNING;
}

static void input_read(struct conn_transfer *wire, enum fabric_status status)
{
	struct gpu_agent_job *job = container_of(wire, struct gpu_agent_job, wire);
	struct gpu_agent *a = job->agent;

	if (status != FABRIC_OK || a->state >= GPU_ENDING)
		return; /* the connection is ending */
	gpu_port_submit(a->port, &job->cell, &job->ring);
}

static int read_input(struct gpu_agent *a, struct gpu_agent_job *job)
{
	struct fabric_sge to = {job->to, job->ring.length, a->region[1] ? a->region[1] : a->region[0]};

	job->wire.done = input_read;
	return conn_read(a->conn, &job->wire, &to, job->input.addr, job->input.rkey);
}

int gpu_agent_rpc_job(struct gpu_agent *a, const struct wire_record *request, const void *body)
{
	struct wire_gpu_job asked;
	struct wire_ring_job ring;
	struct gpu_cell cell;
	struct gpu_agent_job *job, **bucket = bucket_of(a, request->id);
	void *input;

	must(a->state == GPU_RUNNING);
	must(a->mode == WIRE_GPU_RPC);
	if (request->length != sizeof(asked)) {
		gpu_agent_fail(a, -EBADMSG, "job %u: a request of %u bytes", request->id, request->length);
		return 0;
	}
	memcpy(&asked, body, sizeof(asked));
	if (!check_job(a, request->id, &asked, &ring))
		return 0;
	if (gpu_port_reserve(a->port, &cell, &input) != 0) {
		conn_wait_writable(a->conn);
		return -EAGAIN;
	}
	job = job_of(a, &cell);
	if (unlikely(job->agent)) {
		gpu_agent_fail(a, -EIO, "the worker gave a job's place back before it was done");
		return 0;
	}
	*job = (struct gpu_agent_job){
		.agent = a,
		.cell = cell,
		.ring = ring,
		.to = input,
		.input = asked.input,
		.output = asked.output,
		.since = service_part_now(&a->thread->part),
		.next = *bucket,
	};
	*bucket = job;
	a->jobs++;
	a->thread->part.thread->busy++;
	if (!list_empty(&a->reads) || read_input(a, job) == -EAGAIN)
		list_add_tail(&a->reads, &job->node);
	return 0;
}

/*
 * Out
 */

/* The clients have these answers, or never will: the cells are free. */
static void write_done(struct conn_transfer *wire, enum fabric_status status)
{
	struct gpu_agent_job *job = container_of(wire, struct gpu_agent_job, wire), *next;
	struct gpu_agent *a = job->agent;

	(void)status; /* a failed write ends the connection */
	for (; job; job = next) {
		next = job->next;
		gpu_port_release(a->port, &job->cell);
		job->agent = NULL;
		a->jobs--;
		a->thread->part.thread->busy--;
	}
}

/* The first `count` results, in order. */
static void fill_chain(struct gpu_agent *a, struct conn_part *parts, unsigned count)
{
	struct list *pos = a->answers.next;

	for (unsigned i = 0; i < count; i++, pos = pos->next) {
		const struct gpu_agent_job *job = container_of(pos, struct gpu_agent_job, node);

		parts[i] = (struct conn_part){
			.opcode = a->sends ? FABRIC_WRITE : FABRIC_WRITE_IMM,
			.sge_count = 1,
			.sge = {{(void *)(uintptr_t)job->from, job->output.length, a->region[0]}},
			.remote_addr = job->output.addr,
			.rkey = job->output.rkey,
			.imm = job->ring.id,
		};
	}
}

/* The client may use a job's id again as soon as it has the answer, which is posted. */
static struct gpu_agent_job *job_forget_first(struct gpu_agent *a)
{
	struct gpu_agent_job *job = list_first(&a->answers, struct gpu_agent_job, node);
	struct gpu_agent_job **at = bucket_of(a, job->ring.id);

	list_del(&job->node);
	while (*at != job)
		at = &(*at)->next;
	*at = job->next;
	job->next = NULL;
	return job;
}

/* Post the answers of the first `count` results together: all of them or none. */
static int post_answers(struct gpu_agent *a, unsigned count)
{
	struct gpu_agent_job *first = list_first(&a->answers, struct gpu_agent_job, node), *job;
	struct conn_part parts[CONN_CHAIN_MAX];
	struct wire_record *reply = NULL;
	int rc;

	if (a->sends) {
		reply = conn_reserve(a->conn, (count - 1) * (uint32_t)sizeof(*reply), NULL);
		if (!reply)
			return -EAGAIN;
	}
	fill_chain(a, parts, count);
	first->wire.done = write_done;
	rc = conn_transfer_chain(a->conn, &first->wire, parts, count);
	if (rc != 0)
		return rc;
	for (struct gpu_agent_job **end = &first; count > 0; count--, end = &job->next) {
		job = *end = job_forget_first(a);
		service_part_took(&a->thread->part, SERVICE_JOB, job->since, 1);
		if (!reply)
			continue;
		/* To a client that takes no immediates; room for all of a chain was made with the first. */
		reply->op = WIRE_OP_GPU_JOB;
		reply->flags = WIRE_REPLY;
		reply->id = job->ring.id;
		conn_commit(a->conn, reply, 0);
		if (count > 1)
			reply = conn_reserve(a->conn, 0, NULL);
	}
	return 0;
}

/* Most that may be posted together now. */
static unsigned count_answers(const struct gpu_agent *a)
{
	unsigned n = 0;

	for (const struct list *pos = a->answers.next; pos != &a->answers && n < CONN_CHAIN_MAX; pos = pos->next)
		n++;
	return n;
}

/* Answers as many at a time as find room. */
static void answer_jobs(struct gpu_agent *a)
{
	unsigned count = count_answers(a);
	int rc;

	while (count) {
		rc = post_answers(a, count);
		if (rc == 0)
			count = count_answers(a);
		else if (rc == -EAGAIN)
			count /= 2;
		else
			return;
	}
}

static void last_done(struct conn_transfer *wire, enum fabric_status status)
{
	(void)wire;
	(void)status;
}

bool gpu_agent_rpc_answer_end(struct gpu_agent *a)
{
	struct fabric_sge nothing = {0};

	must(a->state == GPU_FINISHING);
	if (a->answered)
		return true;
	a->last.done = last_done;
	if (a->sends)
		a->answered = gpu_agent_reply(a, WIRE_OP_GPU_JOB, WIRE_GPU_TERMINATE, NULL, 0);
	else
		a->answered = conn_write_imm(a->conn, &a->last, &nothing, 0, 0, WIRE_GPU_TERMINATE) == 0;
	return a->answered;
}

/* Checks a result: the process is believed no more than the client. */
static void take_result(struct gpu_agent *a, const struct gpu_done *done)
{
	struct gpu_agent_job *job = job_of(a, &done->cell);
	struct gpu_service *gpu = gpu_agent_service(a);

	if (done->result.id != job->ring.id || done->result.length != job->output.length) {
		gpu_agent_fail(a, -EIO, "the worker answered job %u by job %u with %u bytes", job->ring.id,
			       done->result.id, done->result.length);
		return;
	}
	job->from = done->output;
	gpu_agent_count(a, GPU_SERVICE_JOBS + job->ring.op, 1);
	gpu_agent_count(a, GPU_SERVICE_IN_BYTES, job->ring.length);
	gpu_agent_count(a, GPU_SERVICE_OUT_BYTES, job->output.length);
	atomic_fetch_add_explicit(&gpu->jobs, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&gpu->bytes_in, job->ring.length, memory_order_relaxed);
	atomic_fetch_add_explicit(&gpu->bytes_out, job->output.length, memory_order_relaxed);
	list_add_tail(&a->answers, &job->node);
}

/* Reads in order, until one finds no room. */
static void read_inputs(struct gpu_agent *a)
{
	while (!list_empty(&a->reads)) {
		struct gpu_agent_job *job = list_first(&a->reads, struct gpu_agent_job, node);

		if (read_input(a, job) != 0)
			return;
		list_del(&job->node);
	}
}

int gpu_agent_rpc_turn(struct gpu_agent *a)
{
	struct gpu_done done[RESULTS];
	int n;

	must(gpu_agent_is_mine(a));
	must(a->port);
	read_inputs(a);
	gpu_port_kick(a->port);
	n = gpu_port_poll(a->port, done, RESULTS);
	if (unlikely(n < 0))
		gpu_agent_fail(a, -EIO, "the worker wrote a result that is none");
	for (int i = 0; i < n && a->state < GPU_ENDING; i++)
		take_result(a, &done[i]);
	answer_jobs(a);
	return MAX(n, 0);
}
