/*
 * ring.c: a client of queue mode that writes what it likes into its part of the ring, and the process's side of it
 * without threads. What the input says is done in turn: words and bytes anywhere in the client's part, whole jobs
 * that are nearly good, and steps of the process.
 */
#include "fuzz.h"

#include "gpu/program/cpu.h"

#define STEPS_MAX 256

struct input {
	const uint8_t *data;
	size_t left;
};

static uint64_t next(struct input *in, size_t bytes)
{
	uint64_t value = 0;

	bytes = MIN(bytes, in->left);
	memcpy(&value, in->data, bytes);
	in->data += bytes;
	in->left -= bytes;
	return value;
}

static struct gpu_process process;
static struct cpu cpu;

static void make_ring(struct input *in)
{
	struct wire_ring_shape shape = {(uint32_t)next(in, 1) % 4 + 1, (uint32_t)next(in, 1) % 4 + 1,
					((uint32_t)next(in, 1) % 4 + 1) * WIRE_RING_LINE};

	process = (struct gpu_process){.control = -1, .event = -1};
	process.ring.shape = shape;
	process.ring.at = wire_ring_layout(&shape);
	process.ring.base = aligned_alloc(WIRE_RING_PAGE, process.ring.at.bytes);
	REQUIRE(process.ring.base);
	memset(process.ring.base, 0, process.ring.at.bytes);
	wire_ring_control(&process.ring)->stop = 1; /* so that an echo takes no time */
	cpu = (struct cpu){.process = &process};
}

/* Anywhere in the client's part, as the network lets it. */
static void write_bytes(struct input *in)
{
	uint64_t part = process.ring.at.control - process.ring.at.client;
	uint64_t at = next(in, 3) % part, length = MIN(next(in, 1), part - at);

	for (uint64_t i = 0; i < length; i++)
		process.ring.base[process.ring.at.client + at + i] = (uint8_t)next(in, 1);
}

static void write_indices(struct input *in)
{
	struct wire_ring_client_line *line =
		wire_ring_client_line(&process.ring, (uint32_t)next(in, 1) % process.ring.shape.queues);

	line->submitted += (uint64_t)(int8_t)next(in, 1);
	line->collected += (uint64_t)(int8_t)next(in, 1);
}

/* The queue's next job, and told; each field may be something else. */
static void write_job(struct input *in)
{
	uint32_t queue = (uint32_t)next(in, 1) % process.ring.shape.queues;
	struct wire_ring_client_line *line = wire_ring_client_line(&process.ring, queue);
	struct wire_ring_job *job = wire_ring_job(&process.ring, queue, line->submitted);
	uint64_t spoil = next(in, 1);

	*job = (struct wire_ring_job){
		.sequence = line->submitted + 1,
		.id = (uint32_t)next(in, 1),
		.op = spoil & 1 ? (uint32_t)next(in, 4) : WIRE_RING_QUANTIZE,
		.length = spoil & 2 ? (uint32_t)next(in, 4) : 64,
		.param = {spoil & 4 ? (uint32_t)next(in, 4) : 8, spoil & 8 ? (uint32_t)next(in, 4) : 8,
			  spoil & 16 ? (uint32_t)next(in, 4) : 4},
	};
	if (job->op == WIRE_RING_ECHO) /* which may be asked to last a minute */
		job->param[WIRE_GPU_ECHO_MICROSECONDS] %= 1000;
	for (unsigned i = 0; spoil & 32 && i < 64; i++)
		((uint8_t *)(job + 1))[i] = (uint8_t)next(in, 1);
	line->submitted++;
}

/* Whatever the client wrote: the results are whole, and of the process's own part. */
static void check_results(const struct cpu_queue *q, uint32_t queue)
{
	uint64_t index = atomic_load(&q->index);
	struct wire_ring_result *result;

	REQUIRE(wire_ring_worker_line(&process.ring, queue)->done == index);
	REQUIRE(wire_ring_worker_line(&process.ring, queue)->taken == index);
	if (!index)
		return;
	result = wire_ring_result(&process.ring, queue, index - 1);
	REQUIRE(result->sequence == index);
	REQUIRE(result->length <= process.ring.shape.payload);
	REQUIRE(result->check == wire_ring_check(result, result + 1));
}

static bool step(struct cpu_thread *t)
{
	int rc = cpu_step(t);

	for (uint32_t queue = 0; queue < process.ring.shape.queues; queue++)
		check_results(&cpu.queue[queue], queue);
	REQUIRE((rc < 0) == atomic_load(&process.failed));
	REQUIRE((rc < 0) == (wire_ring_header(&process.ring)->state == WIRE_RING_FAILED));
	return rc >= 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	struct cpu_thread thread = {.cpu = &cpu};
	bool alive = true;

	fuzz_silence();
	make_ring(&in);
	for (unsigned i = 0; alive && in.left && i < STEPS_MAX; i++) {
		switch (next(&in, 1) % 6) {
		case 0:
			write_bytes(&in);
			break;
		case 1:
			write_indices(&in);
			break;
		case 2:
		case 3:
			write_job(&in);
			break;
		default:
			alive = step(&thread);
		}
	}
	while (alive && cpu_step(&thread) > 0)
		;
	free(process.ring.base);
	return 0;
}
