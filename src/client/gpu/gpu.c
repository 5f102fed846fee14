/*
 * gpu.c: the caller's half of the gpu service: a session, and how jobs end. What callers do with it is in calls.c, how
 * jobs get to the server and back in rpc.c and queue.c.
 */
#include "client/gpu/gpu.h"

#include <stdlib.h>

#define DEFAULT_CREDITS 128 /* of RPC mode: an immediate takes one */
#define DEFAULT_SIZE 4096

#define OPERATION_IS_PUBLIC(OP, number, name, names) &&(int)RDMAD_GPU_##OP == (int)WIRE_RING_##OP
_Static_assert((int)RDMAD_GPU_RPC == (int)WIRE_GPU_RPC && (int)RDMAD_GPU_QUEUE == (int)WIRE_GPU_QUEUE &&
		       RDMAD_GPU_PARAMS == WIRE_RING_PARAMS &&
		       RDMAD_GPU_SIZE_MAX == WIRE_RING_PAYLOAD_MAX WIRE_GPU_OPERATIONS(OPERATION_IS_PUBLIC),
	       "what callers name goes over the wire as it is");

/*
 * The end of jobs
 */
struct job *job_next(struct rdmad_gpu *gpu)
{
	struct job *job;

	must(engine_entered(gpu->engine));
	if (!gpu->waits)
		return NULL;
	job = list_first(&gpu->waiting, struct job, node);
	must(job->state == JOB_WAITING);
	list_del(&job->node);
	job->state = JOB_SENT;
	gpu->waits--;
	return job;
}

void job_forget(struct rdmad_gpu *gpu, struct job *job)
{
	must(job->state == JOB_DONE);
	job_give(&gpu->jobs, job);
	gpu->outstanding--;
}

/* Tell of jobs that are done. */
static void jobs_deliver(struct deferred *deferred)
{
	struct rdmad_gpu *gpu = container_of(deferred, struct rdmad_gpu, deferred);

	must(!engine_defers(gpu->engine));
	while (!list_empty(&gpu->finished)) {
		struct job *job = list_first(&gpu->finished, struct job, node);
		struct rdmad_gpu_result result = job->result;
		rdmad_gpu_callback done = job->done;
		void *arg = job->arg;

		list_del(&job->node);
		gpu->completed++;
		if (!done) {
			list_add_tail(&gpu->results, &job->node);
			gpu->ready++;
			continue;
		}
		job_forget(gpu, job); /* the callback may submit the next in its place */
		done(arg, &result);
	}
}

void job_finish(struct rdmad_gpu *gpu, struct job *job, int status)
{
	must(job->state == JOB_SENT);
	buffers_unreach(engine_buffers(gpu->engine), &job->input);
	buffers_unreach(engine_buffers(gpu->engine), &job->output);
	job->state = JOB_DONE;
	job->result.id = job->asked.id;
	job->result.status = status;
	job->result.output_size = status == 0 ? job->output_size : 0;
	job->result.latency_ns = time_now() - job->begun;
	list_add_tail(&gpu->finished, &job->node);
	if (unlikely(engine_defers(gpu->engine)))
		engine_defer(gpu->engine, &gpu->deferred);
	else
		jobs_deliver(&gpu->deferred);
}

/*
 * What the server says
 */
static void session_established(struct conn *conn)
{
	(void)conn;
}

static void session_answered(struct rdmad_gpu *gpu, int status)
{
	gpu->answers++;
	if (gpu->asked)
		blocking_done(gpu->asked, status);
}

/* Texts of the server are for people, but it alone knows what is in them. */
static void copy_text(char *to, size_t size, const void *text, size_t length)
{
	size_t n = MIN(length, size - 1);

	for (size_t i = 0; i < n; i++)
		to[i] = ((const char *)text)[i];
	to[n] = '\0';
	for (char *c = to; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 127)
			*c = '?';
}

static int took_info(struct rdmad_gpu *gpu, const struct wire_record *record, const void *body)
{
	if (record->status != WIRE_OK || record->length < sizeof(gpu->info))
		return -EPROTO;
	memcpy(&gpu->info, body, sizeof(gpu->info));
	session_answered(gpu, 0);
	return 0;
}

static int took_ring(struct rdmad_gpu *gpu, const struct wire_record *record, const void *body)
{
	struct wire_ring_shape shape;

	if (record->status != WIRE_OK) {
		copy_text(gpu->reason, sizeof(gpu->reason), body, record->length);
		session_answered(gpu, wire_status_errno(record->status));
		return 0;
	}
	if (record->length < sizeof(gpu->ring))
		return -EPROTO;
	memcpy(&gpu->ring, body, sizeof(gpu->ring));
	shape = (struct wire_ring_shape){gpu->ring.queues, gpu->ring.slots, gpu->ring.payload};
	if (!wire_ring_shape_valid(&shape))
		return -EPROTO;
	session_answered(gpu, 0);
	return 0;
}

static int job_done(struct rdmad_gpu *gpu, uint32_t id, int status)
{
	if (id == WIRE_GPU_TERMINATE && gpu->terminated) {
		session_answered(gpu, status);
		return 0;
	}
	return gpu->session.mode == RDMAD_GPU_RPC ? client_gpu_rpc_done(gpu, id, status) : -EPROTO;
}

static int took_job(struct rdmad_gpu *gpu, const struct wire_record *record, const void *body)
{
	(void)body;
	return job_done(gpu, record->id, wire_status_errno(record->status));
}

static int took_end(struct rdmad_gpu *gpu, const struct wire_record *record, const void *body)
{
	int error = wire_status_errno(record->status);

	copy_text(gpu->reason, sizeof(gpu->reason), body, record->length);
	conn_close(gpu->conn, error ? error : -ECONNABORTED, "%s", gpu->reason);
	return 0;
}

static const struct {
	enum wire_op op;
	bool reply;
	int (*took)(struct rdmad_gpu *gpu, const struct wire_record *record, const void *body);
} records[] = {
	{.op = WIRE_OP_GPU_JOB, .reply = true, .took = took_job},
	{.op = WIRE_OP_GPU_INFO, .reply = true, .took = took_info},
	{.op = WIRE_OP_GPU_OPEN, .reply = true, .took = took_ring},
	{.op = WIRE_OP_GPU_ENDED, .took = took_end},
};

static int session_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct rdmad_gpu *gpu = conn_context(conn);

	for (size_t i = 0; i < ARRAY_SIZE(records); i++)
		if (record->op == records[i].op && !!(record->flags & WIRE_REPLY) == records[i].reply)
			return records[i].took(gpu, record, body);
	return -EPROTO;
}

static void session_immediate(struct conn *conn, uint32_t imm)
{
	if (job_done(conn_context(conn), imm, 0) != 0)
		conn_close(conn, -EPROTO, "the server ended job %u, which it does not have", imm);
}

void client_gpu_pump(struct rdmad_gpu *gpu)
{
	if (gpu->queues)
		client_gpu_queues_pump(gpu);
	else
		client_gpu_rpc_pump(gpu);
}

static void session_writable(struct conn *conn)
{
	client_gpu_pump(conn_context(conn));
}

static void session_closed(struct conn *conn, int error, const char *reason)
{
	struct rdmad_gpu *gpu = conn_context(conn);

	gpu->error = error ? error : -ECONNABORTED;
	if (!gpu->reason[0])
		snprintf(gpu->reason, sizeof(gpu->reason), "%s", gpu->terminated ? "it was terminated" : reason);
	if (client_was_ended(error, reason) && (error || !gpu->terminated))
		log_warn("gpu", "the session ended: %s", gpu->reason);
	gpu->conn = NULL;
	gpu->closed = true;
	/* End the jobs that were not done: nothing of the connection is in flight any more. */
	while (job_next(gpu))
		;
	for (uint32_t i = 0; i < gpu->jobs.count; i++)
		if (gpu->jobs.job[i].state == JOB_SENT)
			job_finish(gpu, &gpu->jobs.job[i], gpu->error);
	if (gpu->asked && !gpu->asked->done)
		session_answered(gpu, gpu->error);
	gpu->completed++; /* a caller that waits for anything checks again */
}

static const struct conn_ops session_ops = {
	.established = session_established,
	.record = session_record,
	.immediate = session_immediate,
	.writable = session_writable,
	.closed = session_closed,
};

int client_gpu_begin(const struct rdmad_gpu *gpu)
{
	log_clear_last();
	if (likely(gpu))
		return client_owned("gpu", gpu->forks);
	return log_fail(-EINVAL, "gpu", "the handle is NULL: open one with rdmad_gpu_open");
}

int client_gpu_lacks(const char *function, const char *what)
{
	return log_fail(-EINVAL, "gpu", "%s needs %s", function, what);
}

int client_gpu_ended(const struct rdmad_gpu *gpu)
{
	return log_fail(-ENOTCONN, "gpu", "the session has ended: %s", gpu->reason);
}

/*
 * Waiting
 */
int client_gpu_await(struct rdmad_gpu *gpu, const uint64_t *counter, uint64_t before, uint64_t until)
{
	int rc = engine_may_wait(gpu->engine);

	if (rc != 0 || *counter != before)
		return rc;
	if (!gpu->conn) {
		engine_turn(gpu->engine); /* the progress thread may have left something to tell */
		return 0;
	}
	if (gpu->queues)
		return client_gpu_queues_wait(gpu, counter, before, until);
	conn_flush(gpu->conn);
	return engine_wait_change(gpu->engine, counter, until);
}

int client_gpu_await_job(void *handle, uint64_t until)
{
	struct rdmad_gpu *gpu = handle;

	return client_gpu_await(gpu, &gpu->completed, gpu->completed, until);
}

/* A request without a job. */
struct asking {
	struct blocking b;
	enum wire_op op;
	uint32_t id;
	const void *body;
	uint32_t length;
};

static int ask_submit(struct blocking *b)
{
	const struct asking *asking = container_of(b, struct asking, b);
	struct rdmad_gpu *gpu = b->handle;
	struct wire_record *record;

	if (!gpu->conn)
		return client_gpu_ended(gpu);
	record = conn_reserve(gpu->conn, asking->length, NULL);
	if (!record)
		return -EAGAIN;
	record->op = (uint8_t)asking->op;
	record->id = asking->id;
	memcpy(record + 1, asking->body, asking->length);
	conn_commit(gpu->conn, record, asking->length);
	conn_flush(gpu->conn);
	gpu->asked = b;
	return 0;
}

static int ask_await(void *handle, uint64_t until)
{
	struct rdmad_gpu *gpu = handle;

	if (gpu->asked)
		return engine_wait_change(gpu->engine, &gpu->answers, until);
	return client_gpu_await_job(gpu, until);
}

/* Ask, and wait: 0, what the server says, or why the session ended. */
static int session_ask(struct rdmad_gpu *gpu, enum wire_op op, uint32_t id, const void *body, uint32_t length)
{
	struct asking asking = {
		.b = {.handle = gpu, .submit = ask_submit, .await = ask_await},
		.op = op,
		.id = id,
		.body = body,
		.length = length,
	};
	int rc = engine_block(gpu->engine, &asking.b, gpu->options.timeout);

	if (gpu->asked == &asking.b)
		gpu->asked = NULL;
	if (rc == -ETIMEDOUT && !asking.b.done)
		log_error("gpu", "no answer to %s after %llu ms", wire_op_name(op),
			  (unsigned long long)(gpu->options.timeout / TIME_MS));
	if (asking.b.done && rc != 0 && !gpu->conn)
		client_gpu_ended(gpu);
	return rc;
}

/*
 * The session
 */
static void session_free(struct rdmad_gpu *gpu)
{
	if (gpu->engine) {
		engine_enter(gpu->engine);
		client_disconnect(gpu->engine, gpu->conn, &gpu->closed);
		client_gpu_queues_destroy(gpu->queues);
		engine_leave(gpu->engine);
		engine_release(gpu->engine);
	}
	job_table_destroy(&gpu->jobs);
	free(gpu);
}

/* A handle with a connection, and without a session. */
static int session_connect(const char *server, const struct rdmad_options *options, uint32_t transfers,
			   struct rdmad_gpu **out)
{
	struct wire_request request = {.service = WIRE_GPU};
	struct rdmad_gpu *gpu = calloc(1, sizeof(*gpu));
	int rc;

	if (!gpu)
		return log_fail(-ENOMEM, "gpu", "no memory for a session");
	gpu->forks = client_forks;
	list_init(&gpu->waiting);
	list_init(&gpu->results);
	list_init(&gpu->finished);
	gpu->deferred.deliver = jobs_deliver;
	engine_options_from(options, &gpu->options);
	if (!transfers && (!options || !options->credits))
		gpu->options.credits = DEFAULT_CREDITS;
	gpu->options.transfers = transfers;
	request.credits = (uint16_t)gpu->options.credits;
	request.message_size = gpu->options.message_size;
	rc = client_connect(server, &gpu->options, NULL, &request, &session_ops, gpu, &gpu->engine, &gpu->conn);
	if (rc != 0) {
		free(gpu);
		return rc;
	}
	gpu->session.transport = conn_transport(gpu->conn)->name;
	engine_leave(gpu->engine);
	*out = gpu;
	return 0;
}

/* Keep what was granted. */
static int session_granted(struct rdmad_gpu *gpu, uint32_t size_max)
{
	const struct wire_gpu_ring *ring = &gpu->ring;
	struct rdmad_gpu_session *session = &gpu->session;

	if (ring->payload < size_max)
		return log_fail(-EMSGSIZE, "gpu",
				"jobs of %u bytes; the server takes at most %u, see gpu.memory in its rdmad.conf",
				size_max, ring->payload);
	copy_text(gpu->backend, sizeof(gpu->backend), ring->backend, strnlen(ring->backend, sizeof(ring->backend)));
	copy_text(gpu->device, sizeof(gpu->device), ring->device, strnlen(ring->device, sizeof(ring->device)));
	session->backend = gpu->backend;
	session->device = gpu->device;
	session->queues = ring->queues;
	session->slots = ring->slots;
	session->size_max = ring->payload;
	session->immediate = session->mode == RDMAD_GPU_RPC && !(ring->flags & WIRE_GPU_SENDS);
	return session->mode == RDMAD_GPU_QUEUE ? client_gpu_queues_create(gpu) : 0;
}

static int open_session(struct rdmad_gpu *gpu, const struct rdmad_gpu_options *options)
{
	struct wire_gpu_open open = {
		.mode = options->mode,
		.queues = options->queues,
		.slots = options->slots,
		.payload = options->size_max ? options->size_max : DEFAULT_SIZE,
	};
	struct fabric_limits limits;
	uint32_t size_max = open.payload;
	int rc;

	fabric_limits(fabric_domain_fabric(conn_group_domain(engine_group(gpu->engine))), &limits);
	gpu->no_immediate |= !limits.write_imm;
	gpu->sink = limits.open_sinks ? FABRIC_REMOTE_WRITE : FABRIC_LOCAL_WRITE;
	open.flags = gpu->no_immediate ? WIRE_GPU_SENDS : 0;
	/* A cell is a whole number of lines. */
	open.payload = (open.payload + WIRE_RING_LINE - 1) / WIRE_RING_LINE * WIRE_RING_LINE;
	rc = session_ask(gpu, WIRE_OP_GPU_OPEN, 0, &open, sizeof(open));
	if (rc == 0)
		return session_granted(gpu, size_max);
	if (rc != -ETIMEDOUT)
		log_error("gpu", "the server made no session: %s",
			  gpu->reason[0] ? gpu->reason : wire_status_text(wire_status_of(rc)));
	return rc;
}

static int check_options(const char *server, const struct rdmad_gpu_options *options, struct rdmad_gpu **out)
{
	log_clear_last();
	if (!server || !options || !out)
		return log_fail(-EINVAL, "gpu", "rdmad_gpu_open needs a server, options and a place for the handle");
	if ((unsigned)options->mode > RDMAD_GPU_QUEUE)
		return log_fail(-EINVAL, "gpu", "there is no mode %u", (unsigned)options->mode);
	if (options->size_max > RDMAD_GPU_SIZE_MAX || options->outstanding > RDMAD_GPU_OUTSTANDING)
		return log_fail(-EINVAL, "gpu", "size_max is at most %u, and outstanding %u", RDMAD_GPU_SIZE_MAX,
				RDMAD_GPU_OUTSTANDING);
	return 0;
}

int rdmad_gpu_open(const char *server, const struct rdmad_gpu_options *options, struct rdmad_gpu **out)
{
	struct rdmad_gpu *gpu;
	int rc = check_options(server, options, out);

	if (rc != 0)
		return rc;
	rc = session_connect(server, &options->common, options->mode == RDMAD_GPU_QUEUE ? CLIENT_GPU_TRANSFERS : 0,
			     &gpu);
	if (rc != 0)
		return rc;
	gpu->no_immediate = options->no_immediate;
	gpu->read_indices = options->read_indices;
	gpu->session.mode = options->mode;
	gpu->session.outstanding = options->outstanding ? options->outstanding : RDMAD_GPU_OUTSTANDING;
	engine_enter(gpu->engine);
	rc = job_table_create(&gpu->jobs, gpu->session.outstanding);
	if (rc == 0)
		rc = open_session(gpu, options);
	engine_leave(gpu->engine);
	if (rc != 0) {
		client_end("gpu", "open a session", rc);
		session_free(gpu);
		return rc;
	}
	*out = gpu;
	return client_end("gpu", "open", 0);
}

int rdmad_gpu_close(struct rdmad_gpu *gpu)
{
	log_clear_last();
	if (!gpu || client_abandoned(gpu->engine, gpu->forks))
		return 0;
	if (engine_may_wait(gpu->engine) != 0)
		return -EDEADLK;
	session_free(gpu);
	return client_end("gpu", "close", 0);
}

static int jobs_done(struct blocking *b)
{
	const struct rdmad_gpu *gpu = b->handle;

	if (gpu->conn && client_gpu_undone(gpu))
		return -EAGAIN;
	blocking_done(b, 0);
	return 0;
}

int rdmad_gpu_terminate(struct rdmad_gpu *gpu)
{
	struct blocking b = {.handle = gpu, .submit = jobs_done, .await = client_gpu_await_job};
	int rc = client_gpu_begin(gpu);

	if (rc != 0)
		return rc;
	engine_enter(gpu->engine);
	rc = engine_block(gpu->engine, &b, gpu->options.timeout);
	if (rc == -ETIMEDOUT)
		log_error("gpu", "%u jobs are not done after %llu ms", client_gpu_undone(gpu),
			  (unsigned long long)(gpu->options.timeout / TIME_MS));
	if (rc == 0 && !gpu->conn) {
		rc = client_gpu_ended(gpu);
	} else if (rc == 0) {
		gpu->terminated = true;
		rc = session_ask(gpu, WIRE_OP_GPU_JOB, WIRE_GPU_TERMINATE, "", 0);
	}
	engine_leave(gpu->engine);
	return client_end("gpu", "terminate", rc);
}

/*
 * What there is
 */
const char *rdmad_gpu_operation_name(unsigned op)
{
	return wire_gpu_operation_name(op);
}

const struct rdmad_gpu_session *rdmad_gpu_session(const struct rdmad_gpu *gpu)
{
	return &gpu->session;
}

const char *rdmad_gpu_transport(const struct rdmad_gpu *gpu)
{
	return gpu->session.transport;
}

static int ask_info(struct rdmad_gpu *gpu, struct rdmad_gpu_info *out)
{
	const struct wire_gpu_info *info = &gpu->info;
	int rc = session_ask(gpu, WIRE_OP_GPU_INFO, 0, "", 0);

	if (rc != 0)
		return rc;
	*out = (struct rdmad_gpu_info){
		.sessions = info->sessions,
		.sessions_max = info->sessions_max,
		.queues_max = info->queues_max,
		.slots_max = info->slots_max,
		.size_max = info->payload_max,
		.memory_max = info->memory_max,
		.operations = info->operations,
		.jobs = info->jobs,
		.bytes_in = info->bytes_in,
		.bytes_out = info->bytes_out,
	};
	copy_text(out->backend, sizeof(out->backend), info->backend, strnlen(info->backend, sizeof(info->backend)));
	copy_text(out->device, sizeof(out->device), info->device, strnlen(info->device, sizeof(info->device)));
	snprintf(out->transport, sizeof(out->transport), "%s", gpu->session.transport);
	return 0;
}

int rdmad_gpu_info(struct rdmad_gpu *gpu, struct rdmad_gpu_info *info)
{
	int rc = client_gpu_begin(gpu);

	if (rc == 0 && !info)
		rc = client_gpu_lacks("rdmad_gpu_info", "a place for the answer");
	if (rc != 0)
		return rc;
	engine_enter(gpu->engine);
	rc = ask_info(gpu, info);
	engine_leave(gpu->engine);
	return client_end("gpu", "info", rc);
}

int rdmad_gpu_server_info(const char *server, const struct rdmad_options *options, struct rdmad_gpu_info *info)
{
	struct rdmad_gpu *gpu;
	int rc;

	log_clear_last();
	if (!server || !info)
		return log_fail(-EINVAL, "gpu", "rdmad_gpu_server_info needs a server and a place for the answer");
	rc = session_connect(server, options, 0, &gpu);
	if (rc != 0)
		return rc;
	rc = rdmad_gpu_info(gpu, info);
	session_free(gpu);
	return rc;
}
