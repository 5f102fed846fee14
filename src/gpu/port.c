/*
 * port.c: the client's side of a ring in this process. Cells are filled and given back in any
 * order, as network transfers complete; what the process sees moves in order.
 */
#include "gpu/gpu.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

struct port_queue {
	uint64_t reserved, submitted; /* jobs handed out, of those published */
	uint64_t taken;               /* as last seen */
	uint64_t done;                /* as last seen */
	uint64_t polled, collected;   /* results handed out, of those given back */
	uint64_t before;              /* what was given back at the last kick */
};

struct gpu_port {
	struct wire_ring ring;
	struct port_queue *queue;
	bool *filled, *released; /* of each cell: beyond `submitted`, beyond `collected` */
	uint32_t first;          /* the queue that is reserved from first */
	uint32_t turn;           /* the queue that is polled first */
	uint32_t arming;         /* the last value of control->waits */
	bool moved;              /* jobs were published since the last kick */
	bool given;              /* results were given back since then */
	bool broken;             /* the process wrote nonsense */
};

int gpu_port_create(const struct wire_ring *ring, struct gpu_port **out)
{
	size_t cells = (size_t)ring->shape.queues * ring->shape.slots;
	struct gpu_port *port = calloc(1, sizeof(*port));

	if (!port)
		return -ENOMEM;
	port->ring = *ring;
	port->queue = calloc(ring->shape.queues, sizeof(*port->queue));
	port->filled = calloc(cells, sizeof(*port->filled));
	port->released = calloc(cells, sizeof(*port->released));
	if (!port->queue || !port->filled || !port->released) {
		gpu_port_destroy(port);
		return -ENOMEM;
	}
	*out = port;
	return 0;
}

void gpu_port_destroy(struct gpu_port *port)
{
	if (!port)
		return;
	free(port->released);
	free(port->filled);
	free(port->queue);
	free(port);
}

static bool *cell_flag(const struct gpu_port *port, bool *flags, uint32_t queue, uint64_t index)
{
	uint32_t slots = port->ring.shape.slots;

	return &flags[(size_t)queue * slots + index % slots];
}

/* Clear the flags of cells from `index` on that are set, before `end`; returns the first that is not. */
static uint64_t flags_clear(const struct gpu_port *port, bool *flags, uint32_t queue, uint64_t index, uint64_t end)
{
	for (; index < end && *cell_flag(port, flags, queue, index); index++)
		*cell_flag(port, flags, queue, index) = false;
	return index;
}

/* Read the process's indices: it takes and does no more than there are, and never goes back. */
static void port_read_indices(struct gpu_port *port, uint32_t queue)
{
	struct wire_ring_worker_line *line = wire_ring_worker_line(&port->ring, queue);
	struct port_queue *q = &port->queue[queue];
	uint64_t done = wire_ring_load(&line->done), taken = wire_ring_load(&line->taken);

	if (taken - q->taken > q->submitted - q->taken || done - q->done > q->submitted - q->done ||
	    done - q->collected > port->ring.shape.slots) {
		port->broken = true;
		return;
	}
	q->taken = taken;
	q->done = done;
}

static uint64_t queue_room(const struct gpu_port *port, uint32_t queue)
{
	const struct port_queue *q = &port->queue[queue];

	return port->ring.shape.slots - (q->reserved - q->taken);
}

/* The queue with the most room, as far as is known. */
static uint32_t queue_roomiest(struct gpu_port *port)
{
	uint32_t queues = port->ring.shape.queues, best = port->first;

	for (uint32_t i = 1, queue = port->first; i < queues; i++) {
		queue = queue + 1 < queues ? queue + 1 : 0;
		if (queue_room(port, queue) > queue_room(port, best))
			best = queue;
	}
	return best;
}

int gpu_port_reserve(struct gpu_port *port, struct gpu_cell *cell, void **input)
{
	uint32_t queue = queue_roomiest(port);

	if (!queue_room(port, queue)) {
		for (uint32_t i = 0; i < port->ring.shape.queues; i++)
			port_read_indices(port, i);
		queue = queue_roomiest(port);
		if (!queue_room(port, queue))
			return -EAGAIN;
	}
	cell->queue = queue;
	cell->index = port->queue[queue].reserved++;
	*input = wire_ring_job(&port->ring, queue, cell->index) + 1;
	port->first = queue + 1 < port->ring.shape.queues ? queue + 1 : 0;
	return 0;
}

void gpu_port_submit(struct gpu_port *port, const struct gpu_cell *cell, const struct wire_ring_job *job)
{
	struct wire_ring_job *to = wire_ring_job(&port->ring, cell->queue, cell->index);
	struct port_queue *q = &port->queue[cell->queue];
	uint64_t submitted;

	must(*cell_flag(port, port->filled, cell->queue, cell->index) == false);
	*to = *job;
	to->sequence = cell->index + 1;
	*cell_flag(port, port->filled, cell->queue, cell->index) = true;
	submitted = flags_clear(port, port->filled, cell->queue, q->submitted, q->reserved);
	if (submitted == q->submitted)
		return;
	q->submitted = submitted;
	wire_ring_store(&wire_ring_client_line(&port->ring, cell->queue)->submitted, submitted);
	port->moved = true;
}

/* Whether results had filled a queue since the last kick: only then may the process sleep until some are given back. It
 * has told of the last of them before it slept. */
static bool was_full(struct gpu_port *port)
{
	bool full = false;

	for (uint32_t queue = 0; queue < port->ring.shape.queues; queue++) {
		struct port_queue *q = &port->queue[queue];
		uint64_t done = wire_ring_load(&wire_ring_worker_line(&port->ring, queue)->done);

		full |= q->collected != q->before && done - q->before >= port->ring.shape.slots;
		q->before = q->collected;
	}
	return full;
}

void gpu_port_kick(struct gpu_port *port)
{
	struct wire_ring_control *control = wire_ring_control(&port->ring);
	bool moved = port->moved;

	if (!moved && !port->given)
		return;
	wire_ring_fence(); /* it sees what moved, or we see that it sleeps */
	moved |= port->given && was_full(port);
	port->moved = port->given = false;
	if (!moved || !wire_ring_load32(&control->sleepers))
		return;
	wire_ring_store32(&control->kick, control->kick + 1);
	syscall(SYS_futex, &control->kick, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

int gpu_port_poll(struct gpu_port *port, struct gpu_done *out, int max)
{
	uint32_t queues = port->ring.shape.queues;
	int n = 0;

	for (uint32_t i = 0; i < queues && n < max; i++) {
		uint32_t queue = (port->turn + i) % queues;
		struct port_queue *q = &port->queue[queue];

		port_read_indices(port, queue);
		for (; q->polled != q->done && n < max; q->polled++, n++) {
			const struct wire_ring_result *result = wire_ring_result(&port->ring, queue, q->polled);

			out[n] = (struct gpu_done){
				.cell = {queue, q->polled},
				.result = *result,
				.output = result + 1,
			};
			if (out[n].result.sequence != q->polled + 1 || out[n].result.length > port->ring.shape.payload)
				port->broken = true; /* it is none */
		}
	}
	port->turn = (port->turn + 1) % queues;
	return port->broken ? -EBADMSG : n;
}

void gpu_port_release(struct gpu_port *port, const struct gpu_cell *cell)
{
	struct port_queue *q = &port->queue[cell->queue];
	uint64_t collected;

	must(*cell_flag(port, port->released, cell->queue, cell->index) == false);
	*cell_flag(port, port->released, cell->queue, cell->index) = true;
	collected = flags_clear(port, port->released, cell->queue, q->collected, q->polled);
	if (collected == q->collected)
		return;
	q->collected = collected;
	wire_ring_store(&wire_ring_client_line(&port->ring, cell->queue)->collected, collected);
	port->given = true;
}

static bool has_results(struct gpu_port *port)
{
	for (uint32_t queue = 0; queue < port->ring.shape.queues; queue++) {
		port_read_indices(port, queue);
		if (port->queue[queue].done != port->queue[queue].polled)
			return true;
	}
	return port->broken; /* which poll will say */
}

bool gpu_port_arm(struct gpu_port *port)
{
	struct wire_ring_control *control = wire_ring_control(&port->ring);

	port->arming += port->arming == UINT32_MAX ? 2 : 1; /* 0: not armed */
	wire_ring_store32(&control->waits, port->arming);
	wire_ring_fence(); /* it sees that we wait, or we see its result, and that it sleeps */
	if (wire_ring_load32(&control->watches))
		syscall(SYS_futex, &control->waits, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	if (!has_results(port))
		return true;
	gpu_port_disarm(port);
	return false;
}

void gpu_port_disarm(struct gpu_port *port)
{
	wire_ring_store32(&wire_ring_control(&port->ring)->waits, 0);
}
