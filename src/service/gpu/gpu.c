/*
 * gpu.c: the server's half of the gpu service: one session, with a process and a ring of its own, for each connection
 * that opens one and finds a place. Whatever goes wrong in a session ends that one alone: the client is told why and
 * has a moment to read it; then the endpoint goes, and the keys to the ring with it, after it the process, and last the
 * memory.
 */
#include "service/gpu/gpu.h"

#include <inttypes.h>
#include <stdlib.h>

#define OPEN_PATIENCE (10 * TIME_S) /* of the server, until a client says what it wants */
#define LEAVE_PATIENCE TIME_S       /* until a client whose session ended is cut off */
#define DRAIN_LOOK TIME_MS          /* between looks at a ring that the client has left to run empty */
#define PLACE_PATIENCE (3 * TIME_S) /* until an idle session has left its place */
#define PLACE_LOOK (10 * TIME_MS)   /* between looks whether it has */
#define IDLE_LOOKS 8                /* within gpu.idle_timeout */

static void log_running(const struct gpu_agent *a)
{
	const struct gpu_probe *probe = gpu_session_probe(a->session);
	const struct wire_ring_shape *shape = &a->ring->shape;
	struct conn_info info;
	char payload[32];

	conn_get_info(a->conn, &info);
	log_info("gpu", "%s (%s): session in %s mode, %u queues of %u slots of %s, worker %d, %s %s", info.peer,
		 info.transport, a->mode == WIRE_GPU_RPC ? "RPC" : "queue", shape->queues, shape->slots,
		 units_format_size(shape->payload, payload), (int)gpu_session_pid(a->session), probe->backend,
		 probe->device);
}

/* The next look whether there were jobs: the place of a session without may be wanted. */
static uint64_t idle_look(const struct gpu_agent *a)
{
	uint64_t timeout = gpu_agent_service(a)->idle_timeout;

	return timeout ? time_after(gpu_agent_now(a), timeout / IDLE_LOOKS + 1) : TIME_NEVER;
}

/* Begins what the new state needs, and says how long that may take. */
static void gpu_agent_entered(struct gpu_agent *a)
{
	uint64_t now = gpu_agent_now(a);

	a->deadline = TIME_NEVER;
	switch (a->state) {
	case GPU_PLACING:
		a->patience = now + PLACE_PATIENCE;
		a->deadline = now;
		break;
	case GPU_MAKING:
		gpu_agent_send_errand(a, gpu_agent_make);
		break;
	case GPU_RUNNING:
		gpu_agent_count(a, GPU_SERVICE_SESSIONS, 1);
		gpu_agent_used_place(a, now);
		a->deadline = idle_look(a);
		log_running(a);
		break;
	case GPU_FINISHING:
		gpu_agent_used_place(a, TIME_NEVER);
		a->deadline = a->mode == WIRE_GPU_QUEUE ? now : TIME_NEVER;
		break;
	case GPU_ENDING:
		gpu_agent_used_place(a, TIME_NEVER);
		a->deadline = now + LEAVE_PATIENCE;
		break;
	default: /* its process has a deadline of its own */
		break;
	}
}

void gpu_agent_handle(struct gpu_agent *a, enum gpu_session_event event)
{
	must(gpu_agent_is_mine(a));
	if (gpu_session_handle(&a->state, event))
		gpu_agent_entered(a);
}

/* Takes a place, waits for that of an idle session, or refuses. */
static void gpu_agent_find_place(struct gpu_agent *a)
{
	const struct gpu_service *gpu = gpu_agent_service(a);
	enum gpu_place_answer answer = gpu_agent_take_place(a);

	if (answer == GPU_PLACE_TAKEN)
		gpu_agent_handle(a, GPU_EVENT_PLACED);
	else if (a->evicts && gpu_agent_now(a) < a->patience)
		a->deadline = gpu_agent_now(a) + PLACE_LOOK;
	else if (answer == GPU_PLACE_FULL)
		gpu_agent_fail(a, -EAGAIN,
			       "the server has all the gpu sessions it allows, %u; see gpu.sessions in its rdmad.conf",
			       gpu->sessions_max);
	else if (answer == GPU_PLACE_CLIENT)
		gpu_agent_fail(a, -EAGAIN,
			       "this client has all the gpu sessions that it may have, %llu; see gpu= in the server's "
			       "file of clients",
			       (unsigned long long)conn_client(a->conn)->gpu_sessions);
	else
		gpu_agent_fail(a, -EAGAIN,
			       "this client has all the gpu sessions that the server allows one address, network of "
			       "IPv6 (/64) or user, %u; see gpu.sessions_per_source in its rdmad.conf",
			       gpu->per_source);
}

/* Whether there were no jobs since the last look; if there were, its place knows. */
static bool gpu_agent_is_idle(struct gpu_agent *a)
{
	uint64_t jobs = gpu_ring_submitted(a->ring);

	if (jobs == a->seen && !gpu_agent_busy(a))
		return true;
	a->seen = jobs;
	gpu_agent_used_place(a, gpu_agent_now(a));
	return false;
}

void gpu_agent_leave_place(struct gpu_agent *a)
{
	char time[32];

	if (a->state == GPU_RUNNING && gpu_agent_is_to_leave(a) && gpu_agent_is_idle(a))
		gpu_agent_fail(a, -ETIME,
			       "it had no job for %s and another client wanted its place; see gpu.idle_timeout in the "
			       "server's rdmad.conf",
			       units_format_time(gpu_agent_service(a)->idle_timeout, time));
}

void gpu_agent_expired(struct gpu_agent *a)
{
	switch (a->state) {
	case GPU_WAITING:
		gpu_agent_fail(a, -EBADMSG, "no session was opened in time");
		break;
	case GPU_PLACING:
		gpu_agent_find_place(a);
		break;
	case GPU_RUNNING:
		gpu_agent_is_idle(a);
		a->deadline = idle_look(a);
		break;
	case GPU_FINISHING:
		a->deadline = gpu_agent_now(a) + DRAIN_LOOK;
		break;
	default: /* ENDING, as no other state has a deadline; the connection has some of its own from here on */
		a->deadline = TIME_NEVER;
		conn_close(a->conn, a->error, "%s", a->error ? a->reason : "the session ended");
		break;
	}
}

/* Every end has its reason, and some are no fault. */
void gpu_agent_failed(struct gpu_agent *a, int error)
{
	enum gpu_service_count what = error == -EAGAIN ? GPU_SERVICE_REFUSED : GPU_SERVICE_ERRORS;

	must(gpu_agent_is_mine(a));
	a->error = error;
	gpu_agent_entered(a);
	if (error != -ESHUTDOWN) {
		gpu_agent_count(a, error == -ETIME ? GPU_SERVICE_EVICTED : what, 1);
		service_warn("gpu", a->conn, a->reason);
	}
	gpu_agent_say_ended(a);
}

void gpu_agent_fail(struct gpu_agent *a, int error, const char *format, ...)
{
	va_list args;

	if (!gpu_session_handle(&a->state, GPU_EVENT_FAILED))
		return;
	va_start(args, format);
	vsnprintf(a->reason, sizeof(a->reason), format, args);
	va_end(args);
	gpu_agent_failed(a, error);
}

void gpu_agent_say_ended(struct gpu_agent *a)
{
	struct wire_record head = {.op = WIRE_OP_GPU_ENDED, .status = (uint16_t)wire_status_of(a->error)};

	must(a->state == GPU_ENDING);
	if (head.status == WIRE_BAD_REQUEST && a->error != -EBADMSG)
		head.status = WIRE_FAILED; /* what is no fault of the client's is one of the server's */
	if (!a->answered)
		a->answered = conn_say(a->conn, &head, a->reason, strlen(a->reason), NULL, 0);
}

bool gpu_agent_reply(struct gpu_agent *a, uint8_t op, uint32_t id, const void *body, uint32_t length)
{
	const struct wire_record head = {.op = op, .flags = WIRE_REPLY, .id = id};

	return conn_say(a->conn, &head, body, length, NULL, 0);
}

uint64_t gpu_agent_queue_jobs(const struct gpu_agent *a)
{
	bool open = gpu_agent_has_session(a) && a->state < GPU_CLOSED;

	return open && a->mode == WIRE_GPU_QUEUE ? gpu_ring_done(a->ring) : 0;
}

/* In queue mode only the ring knows. */
bool gpu_agent_busy(const struct gpu_agent *a)
{
	if (a->state != GPU_RUNNING && a->state != GPU_FINISHING)
		return false;
	return a->mode == WIRE_GPU_RPC ? a->jobs > 0 : gpu_ring_submitted(a->ring) != gpu_ring_done(a->ring);
}

/*
 * Records
 */
static int gpu_agent_info(struct gpu_agent *a, const struct wire_record *request, const void *body)
{
	struct gpu_service *gpu = gpu_agent_service(a);
	const struct gpu_probe *probe = &gpu->probe;
	struct wire_gpu_info answer = {
		.sessions = quota_taken(gpu->sources),
		.sessions_max = gpu->sessions_max,
		.queues_max = gpu->queues,
		.slots_max = gpu->slots,
		.payload_max = gpu_service_payload_max(gpu->memory),
		.memory_max = gpu->memory,
		.jobs = atomic_load_explicit(&gpu->jobs, memory_order_relaxed),
		.bytes_in = atomic_load_explicit(&gpu->bytes_in, memory_order_relaxed),
		.bytes_out = atomic_load_explicit(&gpu->bytes_out, memory_order_relaxed),
	};

	(void)body;
	for (unsigned op = 0; op < WIRE_RING_OPS; op++)
		if (wire_gpu_operation_name(op))
			answer.operations |= 1ull << op;
	memcpy(answer.backend, probe->backend, sizeof(answer.backend));
	/* With what sessions are not confined by, and why it is not one that was wanted more, as far as there is room;
	 * log and status have all of it. */
	if (snprintf(answer.device, sizeof(answer.device), "%s%s%s%s%s", probe->device,
		     probe->lacks[0] ? "; without " : "", probe->lacks, probe->passed[0] ? "; not " : "",
		     probe->passed) >= (int)sizeof(answer.device))
		memcpy(answer.device + sizeof(answer.device) - 4, "...", 4);
	return gpu_agent_reply(a, WIRE_OP_GPU_INFO, request->id, &answer, sizeof(answer)) ? 0 : -EAGAIN;
}
_Static_assert(sizeof(((struct gpu_probe *)0)->backend) == 16 &&
		       sizeof(((struct gpu_probe *)0)->device) == WIRE_GPU_NAME,
	       "names go to the client as the process tells them");

static int gpu_agent_job(struct gpu_agent *a, const struct wire_record *request, const void *body)
{
	bool ends = request->id == WIRE_GPU_TERMINATE && !request->length;

	if (a->state != GPU_RUNNING)
		gpu_agent_fail(a, -EBADMSG, "a job %s",
			       a->state == GPU_FINISHING ? "after the request to end the session"
							 : "before the session was opened");
	else if (ends)
		gpu_agent_handle(a, GPU_EVENT_TERMINATE);
	else if (a->mode == WIRE_GPU_RPC)
		return gpu_agent_rpc_job(a, request, body);
	else
		gpu_agent_fail(a, -EBADMSG, "a job by request in queue mode");
	return 0;
}

static const struct {
	int (*handle)(struct gpu_agent *agent, const struct wire_record *request, const void *body);
	uint32_t body_min, body_max;
} handlers[] = {
	[WIRE_OP_GPU_INFO] = {gpu_agent_info, 0, 0},
	[WIRE_OP_GPU_OPEN] = {gpu_agent_open, sizeof(struct wire_gpu_open), sizeof(struct wire_gpu_open)},
	[WIRE_OP_GPU_JOB] = {gpu_agent_job, 0, sizeof(struct wire_gpu_job)},
};

static int gpu_agent_record(struct conn *conn, const struct wire_record *request, const void *body)
{
	struct gpu_agent *a = conn_context(conn);

	must(gpu_agent_is_mine(a));
	if (unlikely(a->state >= GPU_ENDING))
		return 0; /* it cannot know yet */
	if (likely(request->op < ARRAY_SIZE(handlers) && handlers[request->op].handle &&
		   request->length >= handlers[request->op].body_min &&
		   request->length <= handlers[request->op].body_max))
		return handlers[request->op].handle(a, request, body);
	gpu_agent_fail(a, -EBADMSG, "a request that is none: operation %u with %u bytes", request->op, request->length);
	return 0;
}

/*
 * Errands
 */

/* Takes over what the errand made, also when the client has gone meanwhile or the service is about to end. */
void gpu_agent_errand_ended(struct gpu_agent *a)
{
	must(gpu_agent_is_mine(a));
	a->work = NULL;
	if (a->session) {
		gpu_session_own(a->session, &a->state);
		if (gpu_agent_watch(a) != 0 && a->made == 0)
			a->made = -ENOMEM; /* its end is seen all the same, at its deadline */
	}
	gpu_agent_handle(a, GPU_EVENT_MADE);
	if (a->state == GPU_STARTING && a->made != 0)
		gpu_agent_fail(a, a->made == -ENOMEM ? a->made : -EIO,
			       "the server cannot make a ring of %" PRIu64 " bytes and its worker: %s",
			       wire_ring_layout(&a->shape).bytes, strerror(-a->made));
	else if (!a->conn)
		gpu_agent_bury(a);
}

void gpu_agent_bury(struct gpu_agent *a)
{
	must(a->state >= GPU_CLOSED);
	if (a->work)
		return;
	if (!a->session) {
		gpu_agent_free(a);
		return;
	}
	if (a->state == GPU_CLOSED)
		gpu_session_stop(a->session, gpu_agent_now(a));
	if (a->state == GPU_GONE) {
		gpu_agent_unwatch(a);
		gpu_agent_send_errand(a, gpu_agent_unmake);
	}
}

/*
 * The row of the service
 */
static void *gpu_agent_new(struct service_part *part, const struct service_way *way)
{
	struct fabric *fabric = fabric_domain_fabric(conn_group_domain(way->group));
	struct gpu_agent *a = calloc(1, sizeof(*a));

	if (!a || fabric_domain_create(fabric, &a->domain) != 0) {
		free(a);
		return NULL;
	}
	a->thread = container_of(part, struct gpu_service_thread, part);
	a->limits = way->limits;
	list_init(&a->reads);
	list_init(&a->answers);
	a->deadline = TIME_NEVER;
	list_add_tail(&a->thread->agents, &a->node);
	service_part_join(part);
	return a;
}

/* Which mode it will be is not known yet: in queue mode the client reads, in RPC mode there is nothing to be read. */
static void gpu_agent_attr(void *agent, struct conn_attr *out)
{
	struct gpu_agent *a = agent;

	*out = (struct conn_attr){
		.domain = a->domain,
		.transfers = GPU_AGENT_TRANSFERS,
		.reads_in = a->limits.max_reads,
	};
}

void gpu_agent_free(void *agent)
{
	struct gpu_agent *a = agent;

	must(gpu_agent_is_mine(a));
	must(!a->conn && list_linked(&a->node));
	must(!a->work && !a->session);
	if (a->domain)
		fabric_domain_destroy(a->domain);
	gpu_agent_give_place(a);
	list_del(&a->node);
	service_part_leave(&a->thread->part);
	free(a);
}

static void gpu_agent_established(struct conn *conn)
{
	struct gpu_agent *a = conn_context(conn);

	a->conn = conn;
	a->deadline = gpu_agent_now(a) + OPEN_PATIENCE;
}

static void gpu_agent_closed(struct conn *conn, int error, const char *reason)
{
	struct gpu_agent *a = conn_context(conn);

	if (error && !a->error) {
		gpu_agent_count(a, GPU_SERVICE_ERRORS, 1);
		service_warn("gpu", conn, reason);
	}
	gpu_agent_count(a, GPU_SERVICE_QUEUE_JOBS, gpu_agent_queue_jobs(a));
	a->conn = NULL;
	gpu_agent_close_windows(a);
	a->thread->part.thread->busy -= a->jobs + a->occupied;
	a->jobs = 0; /* there may have been some: no client waits for them */
	a->occupied = false;
	gpu_agent_handle(a, GPU_EVENT_LEFT);
	gpu_agent_bury(a);
}

/* Jobs that were begun are finished first. */
static void gpu_agent_drain(struct conn *conn)
{
	struct gpu_agent *a = conn_context(conn);

	if (!a->conn)
		conn_close(conn, 0, "the server is shutting down");
	else if (!gpu_agent_busy(a))
		gpu_agent_fail(a, -ESHUTDOWN, "the server is shutting down");
}

static const struct conn_ops gpu_agent_ops = {
	.established = gpu_agent_established,
	.record = gpu_agent_record,
	.closed = gpu_agent_closed,
};

const struct service service_gpu = {
	.id = WIRE_GPU,
	.help = "jobs for an accelerator, or for processors where there is none",
	.settings = &gpu_service_settings,
	.counters = gpu_service_counters,
	.check = gpu_service_check,
	.open = gpu_service_open,
	.close = gpu_service_close,
	.descriptors = gpu_service_descriptors,
	.status = gpu_service_status,
	.resources = gpu_service_resources,
	.part_size = sizeof(struct gpu_service_thread),
	.part_init = gpu_service_thread_init,
	.part_clear = gpu_service_thread_clear,
	.fd = gpu_service_thread_fd,
	.readable = gpu_service_thread_readable,
	.progress = gpu_service_thread_progress,
	.deadline = gpu_service_thread_deadline,
	.arm = gpu_service_thread_arm,
	.disarm = gpu_service_thread_disarm,
	.end = gpu_service_thread_end,
	.times = SERVICE_TIMES(JOB),
	.count = gpu_service_thread_count,
	.ops = &gpu_agent_ops,
	.agent_new = gpu_agent_new,
	.agent_free = gpu_agent_free,
	.attr = gpu_agent_attr,
	.drain = gpu_agent_drain,
};
