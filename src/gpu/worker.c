/* worker.c: what a worker process says: to its daemon, and in the ring's header. */
#include "gpu/worker.h"
#include "gpu/message.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

/* The daemon reads as it comes; should it not, the worker does not wait for it. Whether it was
 * sent. */
static bool say(struct gpu_worker *worker, struct gpu_message *message)
{
	return worker->control >= 0 &&
	       send(worker->control, message, sizeof(*message), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

static void set_state(struct gpu_worker *worker, enum wire_ring_state state)
{
	wire_ring_store32(&wire_ring_header(&worker->ring)->state, state);
}

void gpu_worker_ready(struct gpu_worker *worker)
{
	struct gpu_message message = {.kind = GPU_SAYS_READY, .probe = worker->probe};

	set_state(worker, WIRE_RING_RUNNING);
	say(worker, &message);
}

void gpu_worker_log(struct gpu_worker *worker, enum log_level level, const char *room, const char *text)
{
	struct gpu_message message = {.kind = GPU_SAYS_LOG, .level = level};

	snprintf(message.room, sizeof(message.room), "%s", room);
	snprintf(message.text, sizeof(message.text), "%s", text);
	if (!say(worker, &message))
		fprintf(stderr, "%s %s: %s\n", log_level_name(level), room, text);
}

void gpu_worker_stopped(struct gpu_worker *worker)
{
	if (!atomic_load(&worker->failed))
		set_state(worker, WIRE_RING_STOPPED);
}

void gpu_worker_fail(struct gpu_worker *worker, enum wire_ring_error error, uint32_t queue, uint64_t index,
		     const char *format, ...)
{
	struct wire_ring_header *header = wire_ring_header(&worker->ring);
	struct gpu_message message = {.kind = GPU_SAYS_FAILED};
	va_list args;

	if (atomic_exchange(&worker->failed, true))
		return;
	va_start(args, format);
	vsnprintf(message.text, sizeof(message.text), format, args);
	va_end(args);
	header->error = error;
	header->error_queue = queue;
	header->error_index = index;
	set_state(worker, WIRE_RING_FAILED);
	say(worker, &message);
	atomic_store(&worker->stopping, true);
}

void gpu_worker_fail_ring(struct gpu_worker *worker, int rc, uint32_t queue, uint64_t index)
{
	if (rc == -WIRE_RING_SEQUENCE)
		gpu_worker_fail(worker, WIRE_RING_SEQUENCE, queue, index,
				"job %" PRIu64 " of queue %u: its sequence number is not %" PRIu64, index, queue,
				index + 1);
	else
		gpu_worker_fail(worker, WIRE_RING_JUMPED, queue, index,
				"queue %u: an index went back, or on by more than the %u slots that "
				"there are; at %" PRIu64,
				queue, worker->ring.shape.slots, index);
}

void gpu_worker_results(struct gpu_worker *worker)
{
	uint64_t one = 1;
	uint32_t waits;

	wire_ring_fence(); /* it sees the results, or we see that it waits */
	waits = wire_ring_load32(&wire_ring_control(&worker->ring)->waits);
	if (likely(!waits) || atomic_exchange(&worker->told, waits) == waits || worker->event < 0)
		return;
	while (write(worker->event, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}
