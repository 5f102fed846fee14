/* process.c: what a process says: to its daemon, and in the ring's header. */
#include "gpu/message.h"
#include "gpu/program/program.h"

#include <inttypes.h>
#include <unistd.h>

/* The daemon reads as it comes; should it not, the process does not wait for it. Whether it was
 * sent. */
static bool message_send(struct gpu_process *process, struct gpu_message *message)
{
	return process->control >= 0 &&
	       send(process->control, message, sizeof(*message), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

static void set_state(struct gpu_process *process, enum wire_ring_state state)
{
	wire_ring_store32(&wire_ring_header(&process->ring)->state, state);
}

void gpu_process_ready(struct gpu_process *process)
{
	struct gpu_message message = {.kind = GPU_SAYS_READY, .probe = process->probe};

	must(wire_ring_header(&process->ring)->state == WIRE_RING_STARTING);
	if (process->control >= 0 && process->backend && process->backend->sealed)
		gpu_sandbox_calls(process->probe.lacks);
	set_state(process, WIRE_RING_RUNNING);
	message_send(process, &message);
}

void gpu_process_log(struct gpu_process *process, enum log_level level, const char *room, const char *text)
{
	struct gpu_message message = {.kind = GPU_SAYS_LOG, .level = level};

	snprintf(message.room, sizeof(message.room), "%s", room);
	snprintf(message.text, sizeof(message.text), "%s", text);
	if (!message_send(process, &message))
		fprintf(stderr, "%s %s: %s\n", log_level_name(level), room, text);
}

void gpu_process_stopped(struct gpu_process *process)
{
	if (!atomic_load(&process->failed))
		set_state(process, WIRE_RING_STOPPED);
}

void gpu_process_fail(struct gpu_process *process, enum wire_ring_error error, uint32_t queue, uint64_t index,
		      const char *format, ...)
{
	struct wire_ring_header *header = wire_ring_header(&process->ring);
	struct gpu_message message = {.kind = GPU_SAYS_FAILED};
	va_list args;

	if (atomic_exchange(&process->failed, true))
		return;
	va_start(args, format);
	vsnprintf(message.text, sizeof(message.text), format, args);
	va_end(args);
	header->error = error;
	header->error_queue = queue;
	header->error_index = index;
	set_state(process, WIRE_RING_FAILED);
	message_send(process, &message);
	atomic_store(&process->stopping, true);
}

void gpu_process_fail_ring(struct gpu_process *process, int rc, uint32_t queue, uint64_t index)
{
	if (rc == -WIRE_RING_SEQUENCE)
		gpu_process_fail(process, WIRE_RING_SEQUENCE, queue, index,
				 "job %" PRIu64 " of queue %u: its sequence number is not %" PRIu64, index, queue,
				 index + 1);
	else
		gpu_process_fail(process, WIRE_RING_JUMPED, queue, index,
				 "queue %u: an index went back, or on by more than the %u slots that "
				 "there are; at %" PRIu64,
				 queue, process->ring.shape.slots, index);
}

void gpu_process_results(struct gpu_process *process)
{
	uint64_t one = 1;
	uint32_t waits;

	wire_ring_fence(); /* it sees the results, or we see that it waits */
	waits = wire_ring_load32(&wire_ring_control(&process->ring)->waits);
	if (likely(!waits) || atomic_exchange(&process->told, waits) == waits || process->event < 0)
		return;
	while (write(process->event, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}
