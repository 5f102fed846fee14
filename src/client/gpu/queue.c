/*
 * queue.c: jobs by the server's queues, driven from here by reads and writes of its memory alone. rdmad-gpu-ring(7)
 * tells the protocol.
 *
 * What is written: a chain of cells, each its descriptor and the caller's input by one gathering write, and behind the
 * cells of a queue both of its words. So `collected` needs no write of its own: no job is submitted whose result would
 * not have room by what this very write tells of those collected.
 *
 * What is read: one probe at a time, a chain. Where few results are expected, their cells at once: a result that is
 * whole says so itself, and one that is not is read again. Until a result is due, by how long others took, only its
 * descriptor is read, which says as well that it is there. Where many are, or large ones, the lines of all queues, and
 * the cells that these say are there; each chain of cells then brings the lines of the next. Outputs are read to where
 * callers want them.
 */
#include "client/gpu/gpu.h"

#include <sched.h>
#include <stdlib.h>

#define FLIGHTS 3              /* chains of writes under way; with the probe they are CLIENT_GPU_TRANSFERS */
#define DIRECT 8               /* results that are read without asking whether they are there */
#define DIRECT_SIZE (16 * KIB) /* and the longest of them */
#define TORN_LIMIT                                                                                                     \
	(5 * TIME_S) /* for a result that is there to become whole: its writer may have to wait for a processor */
#define BUSY 4       /* times options.poll, before the first back-off */
#define BACKOFF_MIN (20 * TIME_US)
#define BACKOFF_MAX TIME_MS

/* Words of a queue, as they are written: the start of struct wire_ring_client_line. */
struct words {
	uint64_t submitted, collected;
};
_Static_assert(offsetof(struct wire_ring_client_line, submitted) == 0 &&
		       offsetof(struct wire_ring_client_line, collected) == 8,
	       "one write for both words");

/* A chain of writes. */
struct flight {
	struct conn_transfer transfer;
	struct rdmad_gpu *gpu;
	struct words *words; /* registered; one for each queue, of which each has at least two parts */
	bool busy;
	unsigned count, queues;
	struct conn_part part[CONN_CHAIN_MAX];
};

/* Free-running counts of one pair of queues. */
struct pair {
	uint64_t submitted, received;
	uint64_t done;   /* that the worker was last seen to have */
	uint64_t torn;   /* when the next result was seen first that is there and not whole; 0: it was not */
	uint32_t window; /* results that are checked at once: more while they are found */
};

struct check {
	uint32_t queue;
	bool whole; /* with its output */
	uint64_t index;
};

struct client_gpu_queues {
	struct wire_ring_shape shape;
	uint64_t lines_addr, results_addr, words_addr, jobs_addr; /* at the server */
	uint32_t worker_rkey, client_rkey;

	struct landing *landing;            /* registered, and in it: */
	struct wire_ring_job *descriptor;   /* of each cell */
	struct wire_ring_result *result;    /* of each cell */
	struct wire_ring_worker_line *line; /* of each queue */

	struct job **job; /* in each cell */
	uint64_t *sent;   /* when it was written there */
	uint64_t expect;  /* ns from then to the probe that first saw its result, a mean of late */
	struct pair *pair;
	uint32_t inside; /* jobs in cells */
	struct flight flight[FLIGHTS];
	struct flight *unposted; /* full, but there was no room to post it */

	struct conn_transfer probe;
	struct rdmad_gpu *gpu;
	bool probing, asked_lines;
	uint64_t asked; /* when */
	unsigned checks;
	struct check check[CONN_CHAIN_MAX];
	uint32_t first; /* queue to check first: none is always last */
	uint64_t news;  /* counts probes that came back */
};

static uint32_t cell_of(const struct client_gpu_queues *q, uint32_t queue, uint64_t index)
{
	return queue * q->shape.slots + (uint32_t)(index % q->shape.slots);
}

static uint32_t pair_load(const struct pair *pair)
{
	return (uint32_t)(pair->submitted - pair->received);
}

/*
 * Writing
 */

/* The queue with the most room. False: all are full. */
static bool queues_roomiest(const struct client_gpu_queues *q, uint32_t *queue)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < q->shape.queues; i++)
		if (pair_load(&q->pair[i]) < pair_load(&q->pair[best]))
			best = i;
	*queue = best;
	return pair_load(&q->pair[best]) < q->shape.slots;
}

static void flight_add_cell(struct client_gpu_queues *q, struct flight *f, uint32_t queue, struct job *job)
{
	uint64_t index = q->pair[queue].submitted++;
	uint32_t cell = cell_of(q, queue, index);
	struct wire_ring_job *descriptor = &q->descriptor[cell];

	q->job[cell] = job;
	q->sent[cell] = time_now();
	q->inside++;
	*descriptor = (struct wire_ring_job){
		.sequence = index + 1,
		.id = job->id,
		.op = job->asked.op,
		.length = job->input_size,
	};
	memcpy(descriptor->param, job->asked.param, sizeof(descriptor->param));
	f->part[f->count++] = (struct conn_part){
		.opcode = FABRIC_WRITE,
		.sge_count = 2,
		.sge = {{descriptor, sizeof(*descriptor), landing_region(q->landing)},
			{(void *)job->asked.input, job->input_size, reach_region(&job->input)}},
		.remote_addr = q->jobs_addr + wire_ring_cell(&q->shape, queue, index),
		.rkey = q->client_rkey,
	};
}

/* Some of what waits into one queue: no more than its share, that all queues have work. */
static void flight_add_run(struct rdmad_gpu *gpu, struct flight *f, uint32_t queue)
{
	struct client_gpu_queues *q = gpu->queues;
	uint32_t share = (gpu->waits + q->shape.queues - 1) / q->shape.queues;
	uint32_t room = q->shape.slots - pair_load(&q->pair[queue]);
	uint32_t n = MIN(MIN(share, room), CONN_CHAIN_MAX - 1 - f->count);
	struct words *words;

	while (n-- > 0)
		flight_add_cell(q, f, queue, job_next(gpu));
	words = &f->words[f->queues++];
	*words = (struct words){q->pair[queue].submitted, q->pair[queue].received};
	f->part[f->count++] = (struct conn_part){
		.opcode = FABRIC_WRITE,
		.sge_count = 1,
		.sge = {{words, sizeof(*words), landing_region(q->landing)}},
		.remote_addr = q->words_addr + queue * sizeof(struct wire_ring_client_line),
		.rkey = q->client_rkey,
	};
}

static void flight_written(struct conn_transfer *transfer, enum fabric_status status)
{
	struct flight *f = container_of(transfer, struct flight, transfer);

	f->busy = false;
	if (status == FABRIC_OK && f->gpu->waits)
		client_gpu_queues_pump(f->gpu);
}

/* A chain of as many jobs as there are and it takes. NULL: none. */
static struct flight *flight_fill(struct rdmad_gpu *gpu)
{
	struct client_gpu_queues *q = gpu->queues;
	struct flight *f = NULL;
	uint32_t queue;

	for (unsigned i = 0; i < FLIGHTS && !f; i++)
		if (!q->flight[i].busy)
			f = &q->flight[i];
	if (!f)
		return NULL;
	f->count = f->queues = 0;
	while (gpu->waits && f->count + 2 <= CONN_CHAIN_MAX && queues_roomiest(q, &queue))
		flight_add_run(gpu, f, queue);
	return f->count ? f : NULL;
}

static void flights_write(struct rdmad_gpu *gpu)
{
	struct client_gpu_queues *q = gpu->queues;
	struct flight *f;

	while ((f = q->unposted ? q->unposted : flight_fill(gpu))) {
		f->busy = true;
		q->unposted = f;
		if (conn_transfer_chain(gpu->conn, &f->transfer, f->part, f->count) != 0)
			return; /* again from writable(), or the connection ends */
		q->unposted = NULL;
	}
}

/*
 * Reading
 */

/* Results up to index `end` of a queue, of which some may be there; room for the lines is left. */
static void checks_add(struct client_gpu_queues *q, struct conn_part *parts, uint32_t queue, uint64_t end)
{
	for (uint64_t i = q->pair[queue].received; i < end && q->checks + 1 < CONN_CHAIN_MAX; i++) {
		uint32_t cell = cell_of(q, queue, i);
		const struct job *job = q->job[cell];
		/* Its line or descriptor said that it is there, or it should be soon. */
		bool whole = i < q->pair[queue].done || q->asked - q->sent[cell] >= q->expect - q->expect / 8;

		parts[q->checks] = (struct conn_part){
			.opcode = FABRIC_READ,
			.sge_count = whole ? 2 : 1,
			.sge = {{&q->result[cell], sizeof(q->result[cell]), landing_region(q->landing)},
				{job->asked.output, job->output_size, reach_region(&job->output)}},
			.remote_addr = q->results_addr + wire_ring_cell(&q->shape, queue, i),
			.rkey = q->worker_rkey,
		};
		q->check[q->checks++] = (struct check){.queue = queue, .whole = whole, .index = i};
	}
}

/* The next results of all queues, which validate themselves. False: they are too many or too large for that. */
static bool check_directly(struct client_gpu_queues *q, struct conn_part *parts)
{
	if (q->gpu->read_indices || q->inside > DIRECT)
		return false;
	for (uint32_t i = 0; i < q->shape.queues; i++) {
		const struct pair *pair = &q->pair[i];

		if (pair_load(pair) && q->job[cell_of(q, i, pair->received)]->output_size > DIRECT_SIZE)
			return false;
	}
	for (uint32_t i = 0; i < q->shape.queues; i++)
		checks_add(q, parts, i, q->pair[i].received + MIN(q->pair[i].window, pair_load(&q->pair[i])));
	return true;
}

static void queues_probe(struct rdmad_gpu *gpu)
{
	struct client_gpu_queues *q = gpu->queues;
	struct conn_part parts[CONN_CHAIN_MAX];

	if (q->probing || !q->inside || q->unposted)
		return;
	q->asked = time_now();
	q->checks = 0;
	q->asked_lines = false;
	for (uint32_t i = 0; i < q->shape.queues; i++) { /* the results that the lines promised */
		uint32_t queue = (q->first + i) % q->shape.queues;

		checks_add(q, parts, queue, q->pair[queue].done);
	}
	q->first = (q->first + 1) % q->shape.queues;
	if (q->checks ? q->checks < q->inside : !check_directly(q, parts)) {
		parts[q->checks] = (struct conn_part){
			.opcode = FABRIC_READ,
			.sge_count = 1,
			.sge = {{q->line, q->shape.queues * sizeof(q->line[0]), landing_region(q->landing)}},
			.remote_addr = q->lines_addr,
			.rkey = q->worker_rkey,
		};
		q->asked_lines = true;
	}
	q->probing = conn_transfer_chain(gpu->conn, &q->probe, parts, q->checks + q->asked_lines) == 0;
}

static bool result_is_whole(const struct wire_ring_result *result, uint64_t index, const struct job *job)
{
	return result->sequence == index + 1 && result->id == job->id && result->length == job->output_size &&
	       result->check == wire_ring_check(result, job->asked.output);
}

/* The time of the first result, then a mean. What it takes to read a result that is there already does not
 * count: it would have the next one checked even later. */
static void queues_learn(struct client_gpu_queues *q, const struct check *check)
{
	uint64_t took = q->asked - q->sent[cell_of(q, check->queue, check->index)];

	if (check->index >= q->pair[check->queue].done)
		q->expect = q->expect ? q->expect - q->expect / 8 + took / 8 : took;
}

/* A result that should be there, by its queue's line or its own number, is not whole, or was not read whole. It
 * may have been read while it was written, but not for ever. */
static void pair_distrust(struct client_gpu_queues *q, const struct check *check, const struct wire_ring_result *result)
{
	struct pair *pair = &q->pair[check->queue];

	if (check->index >= pair->done && result->sequence != check->index + 1)
		return;
	queues_learn(q, check);
	pair->done = MAX(pair->done, check->index + 1);
	if (!check->whole)
		return;
	if (!pair->torn)
		pair->torn = time_now();
	else if (time_now() - pair->torn > TORN_LIMIT)
		conn_close(q->gpu->conn, -EBADMSG, "result %llu of queue %u does not become whole",
			   (unsigned long long)check->index, check->queue);
}

/* Take the result if it is there. In a queue they come one after the other. */
static bool result_take(struct client_gpu_queues *q, const struct check *check)
{
	struct pair *pair = &q->pair[check->queue];
	uint32_t cell = cell_of(q, check->queue, check->index);
	struct job *job = q->job[cell];

	if (check->index != pair->received)
		return false;
	if (!check->whole || !result_is_whole(&q->result[cell], check->index, job)) {
		pair_distrust(q, check, &q->result[cell]);
		pair->window = 1;
		return false;
	}
	job->result.work_ns = q->result[cell].nanoseconds;
	q->job[cell] = NULL;
	q->inside--;
	pair->received++;
	pair->torn = 0;
	queues_learn(q, check);
	job_finish(q->gpu, job, 0);
	return true;
}

/* Whether there was a result, or is one to be read. */
static bool queues_take_results(struct client_gpu_queues *q)
{
	bool news = false;

	for (unsigned i = 0; i < q->checks; i++) {
		struct pair *pair = &q->pair[q->check[i].queue];
		uint64_t done = pair->done;

		if (result_take(q, &q->check[i])) {
			news = true;
			pair->window = MIN(pair->window + 1, DIRECT);
		}
		news |= pair->done != done;
	}
	return news;
}

/* Whether a line promises a result. One that says what cannot be was read while it was written. */
static bool queues_take_lines(struct client_gpu_queues *q)
{
	bool promised = false;

	for (uint32_t i = 0; i < q->shape.queues; i++) {
		struct pair *pair = &q->pair[i];
		uint64_t done = q->line[i].done;

		if (done < pair->received || done > pair->submitted)
			continue;
		pair->done = done;
		promised |= done > pair->received;
	}
	return promised;
}

static void queues_probed(struct conn_transfer *transfer, enum fabric_status status)
{
	struct client_gpu_queues *q = container_of(transfer, struct client_gpu_queues, probe);
	bool news = false;

	q->news++;
	if (status == FABRIC_OK)
		news = queues_take_results(q);
	if (status == FABRIC_OK && q->asked_lines)
		news |= queues_take_lines(q);
	q->probing = false; /* not before: a callback may have pumped */
	if (news)
		client_gpu_queues_pump(q->gpu);
}

void client_gpu_queues_pump(struct rdmad_gpu *gpu)
{
	if (!gpu->conn || !conn_established(gpu->conn))
		return;
	flights_write(gpu);
	queues_probe(gpu);
}

/*
* Results are not told of: a caller that waits polls without a pause, then with a back-off that grows as the
 * wait does. The worker backs off as well when it has had nothing for a while. A caller that backed off before the
 * worker can have woken, worked and answered would find the result late and send the next job late. So the worker would
 * back off again. Hence BUSY.
 */
int client_gpu_queues_wait(struct rdmad_gpu *gpu, const uint64_t *counter, uint64_t before, uint64_t until)
{
	struct client_gpu_queues *q = gpu->queues;
	uint64_t begin = time_now(), now = begin, poll = gpu->options.poll;
	uint64_t busy_until = poll >= (TIME_NEVER - now) / BUSY ? TIME_NEVER : now + BUSY * poll;
	uint64_t backoff;
	int rc;

	while (*counter == before && gpu->conn) {
		if (now >= until)
			return -ETIMEDOUT;
		client_gpu_queues_pump(gpu);
		rc = q->probing ? engine_yield_until_change(gpu->engine, &q->news, until) : engine_turn(gpu->engine);
		if (rc < 0 && rc != -ETIMEDOUT)
			return rc;
		if (*counter != before)
			break;
		now = time_now();
		if (now < busy_until) {
			sched_yield(); /* the worker may need this processor */
			continue;
		}
		backoff = MIN(MAX((now - begin) / 8, BACKOFF_MIN), BACKOFF_MAX);
		engine_doze(gpu->engine, MIN(now + backoff, until));
		now = time_now();
	}
	return 0;
}

/*
 * Building up and taking down
 */

/* Addresses, and what is registered: descriptors and results of all cells, lines, words. */
static int queues_lay_out(struct rdmad_gpu *gpu, struct client_gpu_queues *q)
{
	struct wire_ring_layout at = wire_ring_layout(&q->shape);
	const struct wire_gpu_ring *ring = &gpu->ring;
	uint32_t cells = q->shape.queues * q->shape.slots;
	struct words *words;

	q->lines_addr = ring->worker_addr + at.lines;
	q->results_addr = ring->worker_addr + at.results;
	q->words_addr = ring->client_addr;
	q->jobs_addr = ring->client_addr + (at.jobs - at.client);
	q->worker_rkey = ring->worker_rkey;
	q->client_rkey = ring->client_rkey;
	q->landing =
		landing_take(engine_buffers(gpu->engine),
			     cells * (sizeof(*q->descriptor) + sizeof(*q->result)) +
				     q->shape.queues * sizeof(*q->line) + FLIGHTS * CONN_CHAIN_MAX / 2 * sizeof(*words),
			     gpu->sink);
	if (!q->landing)
		return -ENOMEM;
	q->descriptor = landing_data(q->landing);
	q->result = (void *)(q->descriptor + cells);
	q->line = (void *)(q->result + cells);
	words = (void *)(q->line + q->shape.queues);
	memset(q->result, 0, cells * sizeof(*q->result));
	for (unsigned i = 0; i < FLIGHTS; i++) {
		q->flight[i].gpu = gpu;
		q->flight[i].transfer.done = flight_written;
		q->flight[i].words = words + i * CONN_CHAIN_MAX / 2;
	}
	return 0;
}

int client_gpu_queues_create(struct rdmad_gpu *gpu)
{
	struct client_gpu_queues *q = calloc(1, sizeof(*q));
	const struct wire_gpu_ring *ring = &gpu->ring;

	if (!q)
		return -ENOMEM;
	q->gpu = gpu;
	q->probe.done = queues_probed;
	q->shape = (struct wire_ring_shape){ring->queues, ring->slots, ring->payload};
	q->pair = calloc(ring->queues, sizeof(*q->pair));
	q->job = calloc((size_t)ring->queues * ring->slots, sizeof(struct job *));
	q->sent = calloc((size_t)ring->queues * ring->slots, sizeof(*q->sent));
	if (!q->pair || !q->job || !q->sent || queues_lay_out(gpu, q) != 0) {
		client_gpu_queues_destroy(q);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < ring->queues; i++)
		q->pair[i].window = 1;
	gpu->queues = q;
	return 0;
}

void client_gpu_queues_destroy(struct client_gpu_queues *q)
{
	if (!q)
		return;
	if (q->landing)
		landing_give(q->landing);
	free(q->pair);
	free(q->sent);
	free(q->job);
	free(q);
}
