/*
 * cpu.c: the backend of threads. Every thread goes round all queues and takes one job of each in
 * turn; a queue is held by the thread that works on it, so its results come in order.
 */
#include "gpu/program/cpu.h"

#include <inttypes.h>
#include <sched.h>

#define FEW 4 /* processors: fewer are few */

static int cpu_probe(const struct gpu_process_attr *attr, struct gpu_probe *out, char *why)
{
	const char *vectors = cpu_vectors(0)->name;

	(void)why;
	snprintf(out->device, sizeof(out->device), "%u thread%s%s%s", attr->threads, attr->threads == 1 ? "" : "s",
		 *vectors ? ", " : "", vectors);
	return 0;
}

uint64_t cpu_run(const struct wire_ring_job *job, const void *input, void *output, const uint32_t *stop)
{
	uint32_t scratch[GPU_TEAM_SCRATCH / sizeof(uint32_t)];
	struct gpu_team alone = {.count = 1, .scratch = scratch, .stop = stop};

	if (job->op == WIRE_RING_QUANTIZE)
		return cpu_vectors(0)->quantize(job, input, output);
	return gpu_operation_body(&alone, job, input, output);
}

/* A job that was found good has its result at the same index. */
static void carry_out(struct cpu_thread *t, uint32_t queue, uint64_t index, const struct wire_ring_job *job,
		      uint32_t length)
{
	struct gpu_process *process = t->cpu->process;
	const struct wire_ring *ring = &process->ring;
	struct wire_ring_result result = {.sequence = index + 1, .id = job->id, .length = length};
	uint64_t begin = time_now(), sum;

	gpu_process_begin(process, t->number, queue, index, begin);
	sum = cpu_run(job, wire_ring_job(ring, queue, index) + 1, wire_ring_result(ring, queue, index) + 1,
		      &wire_ring_control(ring)->stop);
	gpu_process_end(process, t->number);
	result.nanoseconds = (uint32_t)MIN(time_now() - begin, 4 * TIME_S);
	result.check = wire_ring_check_descriptor(&result) + sum;
	wire_ring_finish(ring, queue, index, &result);
	gpu_process_results(process);
}

/* The next job of a queue that this thread holds. 1, 0: there is none or no room for its result;
 * negative: the session is over. */
static int cpu_take_job(struct cpu_thread *t, uint32_t queue, uint64_t index)
{
	struct gpu_process *process = t->cpu->process;
	struct wire_ring_job job;
	const char *why = "";
	int64_t length;
	int rc = wire_ring_room(&process->ring, queue, index);

	if (rc > 0)
		rc = wire_ring_take(&process->ring, queue, index, &job);
	if (rc < 0)
		gpu_process_fail_ring(process, rc, queue, index);
	if (rc <= 0)
		return rc;
	length = gpu_job_check(&process->ring.shape, &job, &why);
	if (length < 0) {
		gpu_process_fail(process, WIRE_RING_BAD_JOB, queue, index, "job %" PRIu64 " of queue %u: %s", index,
				 queue, why);
		return (int)length;
	}
	carry_out(t, queue, index, &job, (uint32_t)length);
	return 1;
}

static int serve_queue(struct cpu_thread *t, uint32_t queue)
{
	const struct wire_ring *ring = &t->cpu->process->ring;
	struct cpu_queue *q = &t->cpu->queue[queue];
	uint64_t index = atomic_load_explicit(&q->index, memory_order_relaxed);
	int rc;

	/* Whether it has jobs is seen without holding it. */
	if (wire_ring_load_relaxed(&wire_ring_client_line(ring, queue)->submitted) == index ||
	    atomic_exchange_explicit(&q->held, true, memory_order_acquire))
		return 0;
	index = atomic_load_explicit(&q->index, memory_order_relaxed);
	rc = cpu_take_job(t, queue, index);
	if (rc > 0)
		atomic_store_explicit(&q->index, index + 1, memory_order_relaxed);
	atomic_store_explicit(&q->held, false, memory_order_release);
	return rc;
}

int cpu_step(struct cpu_thread *t)
{
	uint32_t queues = t->cpu->process->ring.shape.queues;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < queues; i++) {
		rc = serve_queue(t, t->next);
		t->next = t->next + 1 < queues ? t->next + 1 : 0;
	}
	return rc;
}

static void *cpu_thread_main(void *argument)
{
	struct cpu_thread *t = argument;
	struct gpu_process *process = t->cpu->process;
	struct gpu_idle idle;

	gpu_idle_init(process, &idle);
	pthread_mutex_lock(&t->cpu->gate);
	pthread_mutex_unlock(&t->cpu->gate);
	while (!gpu_process_stopping(process)) {
		if (cpu_step(t) > 0)
			gpu_idle_end(process, &idle);
		else
			gpu_idle(process, &idle);
	}
	gpu_idle_end(process, &idle);
	return NULL;
}

/* The session's share: `threads` of those processors that this process may use, from the `share`th
 * on. The scheduler places threads within it. Where there are few, only the scheduler can tell which is better. */
static void cpu_keep_near(struct gpu_process *process)
{
	cpu_set_t all, share;
	unsigned count, first, n = 0;

	if (process->share < 0 || sched_getaffinity(0, sizeof(all), &all) != 0)
		return;
	count = (unsigned)CPU_COUNT(&all);
	if (count < FEW)
		return;
	first = (unsigned)process->share % count;
	CPU_ZERO(&share);
	for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &all))
			continue;
		if ((n + count - first) % count < process->attr.threads)
			CPU_SET(cpu, &share);
		n++;
	}
	if (sched_setaffinity(0, sizeof(share), &share) != 0)
		log_warn("gpu", "cannot stay on some processors: %m");
}

/* How many threads run beside this one. */
static unsigned start_threads(struct cpu_thread *threads, unsigned count)
{
	unsigned n = 1;
	int rc = 0;

	for (; n < count; n++) {
		rc = pthread_create(&threads[n].thread, NULL, cpu_thread_main, &threads[n]);
		if (rc != 0)
			break;
	}
	if (rc != 0)
		log_warn("gpu", "only %u of %u threads could be started: %s", n, count, strerror(rc));
	return n;
}

static int cpu_serve(struct gpu_process *process, char *why)
{
	struct cpu cpu = {.process = process, .gate = PTHREAD_MUTEX_INITIALIZER};
	struct cpu_thread threads[GPU_THREADS_MAX];
	unsigned count = MIN(process->attr.threads, (unsigned)GPU_THREADS_MAX);

	for (unsigned i = 0; i < count; i++)
		threads[i] = (struct cpu_thread){.cpu = &cpu, .number = i, .next = i % process->ring.shape.queues};
	cpu_probe(&process->attr, &process->probe, why);
	/* The waiting side polls, too: the daemon's worker, and a client. Without kicks, sleeping is no way to be
	 * woken, and a processor more or less is for spin.h to find out. */
	if (process->share >= 0)
		process->attr.poll =
			spin_allowed(process->attr.poll, process->queue_mode ? 1 : process->attr.threads + 2);
	cpu_keep_near(process);
	pthread_mutex_lock(&cpu.gate); /* no thread sees a job before the process is sealed */
	count = start_threads(threads, count);
	gpu_process_ready(process);
	pthread_mutex_unlock(&cpu.gate);
	cpu_thread_main(&threads[0]);
	for (unsigned i = 1; i < count; i++)
		pthread_join(threads[i].thread, NULL);
	return atomic_load(&process->failed) ? -ECANCELED : 0;
}

const struct gpu_backend gpu_backend_cpu = {
	.name = "cpu",
	.help = "threads of this machine's processors",
	.descriptors = 64,
	.file_bytes = 0,
	.sealed = true,
	.probe = cpu_probe,
	.run = cpu_serve,
};
