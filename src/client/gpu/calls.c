/*
 * calls.c: the calls of a session: jobs, without waiting and with, and memory for them.
 */
#include "client/gpu/gpu.h"

/* Refuses what can be refused here; the server checks again. The output's length, or a negative errno, logged. */
static int64_t job_check(const struct rdmad_gpu *gpu, const struct rdmad_gpu_job *job)
{
	const char *why;
	int64_t output;

	if (!job->input || !job->output)
		return log_fail(-EINVAL, "gpu", "a job needs an input, and room for the output");
	if (job->input_size > gpu->session.size_max)
		return log_fail(-EMSGSIZE, "gpu", "an input of %zu bytes; this session takes at most %u, see size_max",
				job->input_size, gpu->session.size_max);
	output = wire_gpu_operation_output(job->op, job->param, (uint32_t)job->input_size, &why);
	if (output < 0)
		return log_fail(-EINVAL, "gpu", "operation %u (%s) of %zu byte%s: %s", job->op,
				wire_gpu_operation_name(job->op), job->input_size, job->input_size == 1 ? "" : "s",
				why);
	if ((uint64_t)output > job->output_size || output > gpu->session.size_max)
		return log_fail(-EMSGSIZE, "gpu", "the output has %lld bytes; there is room for %zu", (long long)output,
				job->output_size);
	return output;
}

/*
 * Jobs
 */

/* Make its memory reachable: for the server in RPC mode, for this side's own reads and writes in queue mode. The output
 * comes first, which needs more: where both lie in one registration, that is not in use yet. */
static int job_reach(struct rdmad_gpu *gpu, struct job *job)
{
	struct buffers *buffers = engine_buffers(gpu->engine);
	bool local = gpu->queues;
	int rc = buffers_reach(buffers, job->asked.output, job->output_size, local ? gpu->sink : FABRIC_REMOTE_WRITE,
			       &job->output);

	if (rc != 0)
		return rc;
	rc = buffers_reach(buffers, job->asked.input, job->input_size, local ? 0 : FABRIC_REMOTE_READ, &job->input);
	if (rc != 0)
		buffers_unreach(buffers, &job->output);
	return rc;
}

static int session_take_job(struct rdmad_gpu *gpu, const struct rdmad_gpu_job *asked, rdmad_gpu_callback done,
			    void *arg)
{
	int64_t output = job_check(gpu, asked);
	struct job *job;
	int rc;

	if (output < 0)
		return (int)output;
	if (!gpu->conn)
		return client_gpu_ended(gpu);
	if (gpu->terminated)
		return log_fail(-ENOTCONN, "gpu", "the session was terminated, and takes no more jobs");
	job = job_take(&gpu->jobs, asked->id, !done, &rc);
	if (!job && rc == -EEXIST)
		log_error("gpu", "a job with the id %u is outstanding, or its result not dequeued", asked->id);
	else if (!job)
		log_error("gpu", "%u jobs are outstanding, the most of this session: take results first",
			  gpu->outstanding);
	if (!job)
		return rc;
	job->asked = *asked;
	job->input_size = (uint32_t)asked->input_size;
	job->output_size = (uint32_t)output;
	job->done = done;
	job->arg = arg;
	rc = job_reach(gpu, job);
	if (rc != 0) {
		job_give(&gpu->jobs, job);
		return rc;
	}
	job->begun = time_now();
	job->state = JOB_WAITING;
	list_add_tail(&gpu->waiting, &job->node);
	gpu->waits++;
	gpu->outstanding++;
	if (!gpu->queues)
		client_gpu_rpc_pump(gpu);
	return 0;
}

int rdmad_gpu_enqueue(struct rdmad_gpu *gpu, const struct rdmad_gpu_job *job)
{
	int rc = client_gpu_begin(gpu);

	if (rc == 0 && (!job || job->id > RDMAD_GPU_ID_MAX))
		rc = client_gpu_lacks("rdmad_gpu_enqueue", "a job with an id up to RDMAD_GPU_ID_MAX");
	if (rc != 0)
		return rc;
	engine_enter(gpu->engine);
	rc = session_take_job(gpu, job, NULL, NULL);
	engine_leave(gpu->engine);
	return client_end("gpu", "enqueue", rc);
}

int rdmad_gpu_submit(struct rdmad_gpu *gpu, const struct rdmad_gpu_job *job, rdmad_gpu_callback done, void *arg)
{
	int rc = client_gpu_begin(gpu);

	if (rc == 0 && (!job || !done))
		rc = client_gpu_lacks("rdmad_gpu_submit", "a job and a callback");
	if (rc != 0)
		return rc;
	engine_enter(gpu->engine);
	rc = session_take_job(gpu, job, done, arg);
	engine_leave(gpu->engine);
	return client_end("gpu", "submit", rc);
}

static unsigned session_take_results(struct rdmad_gpu *gpu, struct rdmad_gpu_result *results, unsigned max)
{
	unsigned n = MIN(max, gpu->ready);

	for (unsigned i = 0; i < n; i++) {
		struct job *job = list_first(&gpu->results, struct job, node);

		results[i] = job->result;
		list_del(&job->node);
		job_forget(gpu, job);
	}
	gpu->ready -= n;
	return n;
}

/* Everything that can be sent and received without waiting. */
static int session_turn(struct rdmad_gpu *gpu)
{
	int rc;

	client_gpu_pump(gpu);
	rc = engine_turn(gpu->engine);
	return MIN(rc, 0);
}

int rdmad_gpu_dequeue(struct rdmad_gpu *gpu, struct rdmad_gpu_result *results, unsigned max)
{
	int rc = client_gpu_begin(gpu);
	unsigned n;

	if (rc != 0)
		return rc;
	engine_enter(gpu->engine);
	rc = session_turn(gpu);
	if (rc == 0 || rc == -EDEADLK) { /* in a callback there may be some all the same */
		n = session_take_results(gpu, results, max);
		rc = n || gpu->conn || !max ? (int)n : client_gpu_ended(gpu);
	}
	engine_leave(gpu->engine);
	return client_end("gpu", "dequeue", rc);
}

static int result_here(struct blocking *b)
{
	const struct rdmad_gpu *gpu = b->handle;

	if (!gpu->ready && gpu->outstanding)
		return -EAGAIN;
	blocking_done(b, 0);
	return 0;
}

int rdmad_gpu_wait(struct rdmad_gpu *gpu, uint64_t timeout_us)
{
	struct blocking b = {.handle = gpu, .submit = result_here, .await = client_gpu_await_job};
	int rc = client_gpu_begin(gpu);

	if (rc != 0)
		return rc;
	engine_enter(gpu->engine);
	if (!gpu->ready && gpu->outstanding)
		rc = engine_block(gpu->engine, &b, time_of_us(timeout_us));
	if (rc == -ETIMEDOUT && !gpu->ready)
		log_error("gpu", "no result after %llu us, of %u jobs", (unsigned long long)timeout_us,
			  gpu->outstanding);
	if (gpu->ready)
		rc = (int)gpu->ready;
	engine_leave(gpu->engine);
	return client_end("gpu", "wait", rc);
}

int rdmad_gpu_progress(struct rdmad_gpu *gpu, uint64_t timeout_us)
{
	int rc = client_gpu_begin(gpu);
	uint64_t before;

	if (rc != 0)
		return rc;
	engine_enter(gpu->engine);
	before = gpu->completed;
	rc = session_turn(gpu);
	if (rc == 0 && timeout_us)
		rc = client_gpu_await(gpu, &gpu->completed, before, time_after(time_now(), time_of_us(timeout_us)));
	if (rc == 0 || rc == -ETIMEDOUT)
		rc = gpu->completed == before && !gpu->conn ? client_gpu_ended(gpu) : (int)(gpu->completed - before);
	engine_leave(gpu->engine);
	return client_end("gpu", "progress", rc);
}

int rdmad_gpu_flush(struct rdmad_gpu *gpu)
{
	int rc = client_gpu_begin(gpu);

	if (rc != 0)
		return rc;
	engine_enter(gpu->engine);
	client_gpu_pump(gpu);
	if (gpu->conn)
		conn_flush(gpu->conn);
	else
		rc = client_gpu_ended(gpu);
	engine_leave(gpu->engine);
	return client_end("gpu", "flush", rc);
}

size_t rdmad_gpu_outstanding(const struct rdmad_gpu *gpu)
{
	size_t n;

	if (client_gpu_begin(gpu) != 0)
		return 0;
	engine_enter(gpu->engine);
	n = gpu->outstanding;
	engine_leave(gpu->engine);
	return n;
}

int rdmad_gpu_fd(const struct rdmad_gpu *gpu)
{
	int rc = client_gpu_begin(gpu);

	return rc != 0 ? rc : engine_fd(gpu->engine);
}

int rdmad_gpu_arm(struct rdmad_gpu *gpu)
{
	int rc = client_gpu_begin(gpu);

	if (rc != 0)
		return rc;
	engine_enter(gpu->engine);
	client_gpu_pump(gpu);
	rc = engine_arm(gpu->engine);
	engine_leave(gpu->engine);
	return client_end("gpu", "arm", rc);
}

/*
 * Blocking: submit, send, wait.
 */
struct running {
	struct blocking b;
	const struct rdmad_gpu_job *job;
};

static void run_done(void *arg, const struct rdmad_gpu_result *result)
{
	blocking_done(arg, result->status);
}

static int run_submit(struct blocking *b)
{
	return session_take_job(b->handle, container_of(b, struct running, b)->job, run_done, b);
}

/* Where nothing is under way there is nothing to wait for: the results that are here are to be dequeued. */
static int run_await(void *handle, uint64_t until)
{
	struct rdmad_gpu *gpu = handle;

	return client_gpu_undone(gpu) ? client_gpu_await_job(gpu, until) : -EAGAIN;
}

static int run_job(struct rdmad_gpu *gpu, const struct rdmad_gpu_job *job)
{
	struct running run = {.b = {.handle = gpu, .submit = run_submit, .await = run_await}, .job = job};
	int rc = engine_block(gpu->engine, &run.b, gpu->options.timeout);

	if (rc != -ETIMEDOUT || run.b.done)
		return rc;
	/* The caller gets its memory back, which the server may still have to do with: there is no other way. */
	client_disconnect(gpu->engine, gpu->conn, &gpu->closed);
	log_error("gpu", "the job is not done after %llu ms; the session was ended",
		  (unsigned long long)(gpu->options.timeout / TIME_MS));
	return rc;
}

static int run_outside(struct rdmad_gpu *gpu, const struct rdmad_gpu_job *job)
{
	int rc = client_gpu_begin(gpu);

	if (rc != 0)
		return rc;
	engine_enter(gpu->engine);
	rc = run_job(gpu, job);
	if (rc < 0 && !*log_last() && !gpu->conn) /* no message says more than the number */
		log_error("gpu", "%s of %zu bytes was not done: the session has ended: %s",
			  wire_gpu_operation_name(job->op), job->input_size, gpu->reason);
	rc = client_end("gpu", wire_gpu_operation_name(job->op), rc);
	engine_leave(gpu->engine);
	return rc;
}

int rdmad_gpu_quantize(struct rdmad_gpu *gpu, uint32_t width, uint32_t height, uint32_t levels, const void *input,
		       void *output)
{
	size_t pixels = (size_t)width * height;

	return run_outside(gpu, &(struct rdmad_gpu_job){
					.op = RDMAD_GPU_QUANTIZE,
					.param = {width, height, levels},
					.input = input,
					.input_size = pixels,
					.output = output,
					.output_size = pixels,
				});
}

int rdmad_gpu_echo(struct rdmad_gpu *gpu, const void *input, size_t size, uint32_t delay_us, void *output)
{
	return run_outside(gpu, &(struct rdmad_gpu_job){
					.op = RDMAD_GPU_ECHO,
					.param = {delay_us},
					.input = input,
					.input_size = size,
					.output = output,
					.output_size = size,
				});
}

/*
 * Registered memory
 */
int rdmad_gpu_buffer_lend(struct rdmad_gpu *gpu, size_t size, void **buffer)
{
	int rc = client_gpu_begin(gpu);

	if (rc == 0 && (!buffer || !size))
		rc = client_gpu_lacks("rdmad_gpu_buffer_lend", "a size and a place for the buffer");
	if (rc != 0)
		return rc;
	engine_enter(gpu->engine);
	rc = buffers_lend(engine_buffers(gpu->engine), size, buffer);
	engine_leave(gpu->engine);
	return client_end("gpu", "lend a buffer", rc);
}

void rdmad_gpu_buffer_release(void *buffer)
{
	value_release(buffer);
}

int rdmad_gpu_buffer_register(struct rdmad_gpu *gpu, void *addr, size_t len)
{
	int rc = client_gpu_begin(gpu);

	if (rc == 0 && (!addr || !len))
		rc = client_gpu_lacks("rdmad_gpu_buffer_register", "an address and a length");
	if (rc != 0)
		return rc;
	engine_enter(gpu->engine);
	rc = buffers_register(engine_buffers(gpu->engine), addr, len, FABRIC_REMOTE_READ);
	engine_leave(gpu->engine);
	if (rc == -EEXIST)
		log_error("gpu", "part of this memory is registered already");
	return client_end("gpu", "register memory", rc);
}

int rdmad_gpu_buffer_unregister(struct rdmad_gpu *gpu, void *addr)
{
	int rc = client_gpu_begin(gpu);

	if (rc == 0 && !addr)
		rc = client_gpu_lacks("rdmad_gpu_buffer_unregister", "an address");
	if (rc != 0)
		return rc;
	engine_enter(gpu->engine);
	rc = buffers_unregister(engine_buffers(gpu->engine), addr);
	engine_leave(gpu->engine);
	if (rc == -ENOENT)
		log_error("gpu", "no memory was registered with this address");
	if (rc == -EBUSY)
		log_error("gpu", "jobs that use this memory are outstanding: wait for them first");
	return client_end("gpu", "unregister memory", rc);
}
