/*
 * life.c: the life of a session, from the request for it to its end. gpu_session_handle() is the only writer of its
 * state. Any event may come in any state, late, twice or never: what has no row is ignored.
 *
 *     state      waits for                                                                     whose event
 *     WAITING    the record that opens a session                                               the client's
 *     PLACING    one of the places that there are; maybe an idle session is asked to leave     the service's
 *     MAKING     ring and process: the service's helper, a thread, makes them                  the helper's
 *     STARTING   the process: it says that it is ready                                         the process's
 *     ANSWERING  room for the answer to the request                                            the service's
 *     RUNNING    jobs and their results                                                        the client's
 *     FINISHING  the results of jobs from before the request to end                            the service's
 *     ENDING     the client, which was told of the end, to leave; its process may end now      the client's
 *     CLOSED     the end of the process, which is asked for it, and killed if that does        the process's
 *                not help; of a session that is being made, the helper first
 *     GONE       nothing: its memory can be given back, which is the helper's work again
 *
 * It fails in any state before ENDING: by a limit or a fault of the client, which the service finds, or of the process,
 * which session.c finds. The client may leave in any state before CLOSED. A session without a client, of a measurement
 * or a test, begins with STARTING; session.c stands in for the client and the service then.
 */
#include "gpu/gpu.h"

static const char *const state_names[] = {
	[GPU_WAITING] = "waiting",     [GPU_PLACING] = "placing",     [GPU_MAKING] = "making",
	[GPU_STARTING] = "starting",   [GPU_ANSWERING] = "answering", [GPU_RUNNING] = "running",
	[GPU_FINISHING] = "finishing", [GPU_ENDING] = "ending",       [GPU_CLOSED] = "closed",
	[GPU_GONE] = "gone",
};

/* From each of `first` to `last`. */
static const struct {
	enum gpu_session_event event;
	enum gpu_session_state first, last, to;
} moves[] = {
	{GPU_EVENT_OPENED, GPU_WAITING, GPU_WAITING, GPU_PLACING},
	{GPU_EVENT_PLACED, GPU_PLACING, GPU_PLACING, GPU_MAKING},
	{GPU_EVENT_MADE, GPU_MAKING, GPU_MAKING, GPU_STARTING},
	{GPU_EVENT_READY, GPU_STARTING, GPU_STARTING, GPU_ANSWERING},
	{GPU_EVENT_ANSWERED, GPU_ANSWERING, GPU_ANSWERING, GPU_RUNNING},
	{GPU_EVENT_TERMINATE, GPU_RUNNING, GPU_RUNNING, GPU_FINISHING},
	{GPU_EVENT_DRAINED, GPU_FINISHING, GPU_FINISHING, GPU_ENDING},
	{GPU_EVENT_FAILED, GPU_WAITING, GPU_FINISHING, GPU_ENDING},
	{GPU_EVENT_LEFT, GPU_WAITING, GPU_ENDING, GPU_CLOSED},
	{GPU_EVENT_EXITED, GPU_CLOSED, GPU_CLOSED, GPU_GONE},
};

bool gpu_session_handle(enum gpu_session_state *state, enum gpu_session_event event)
{
	for (size_t i = 0; i < ARRAY_SIZE(moves); i++) {
		if (moves[i].event != event || *state < moves[i].first || *state > moves[i].last)
			continue;
		log_debug("gpu", "session %p: %s to %s", (void *)state, state_names[*state], state_names[moves[i].to]);
		*state = moves[i].to;
		return true;
	}
	return false;
}
