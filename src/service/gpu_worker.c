/*
 * gpu_worker.c: the turn of a worker thread's sessions. A descriptor out, progress() in: an epoll of what the worker
 * processes say. While the thread polls, results are seen in the rings themselves, and the descriptor is asked only now
 * and then; before it sleeps it has the processes told to write to it.
 */
#include "service/gpu.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define LOOK TIME_MS /* how late a thread that never sleeps hears of a process that ended */
#define EVENTS 16
#define END_LOOK_MS 10 /* between looks at the patience with processes that are to end */

int gpu_worker_create(struct service_worker *w)
{
	struct gpu_worker_sessions *gpu = calloc(1, sizeof(*gpu));
	int rc;

	if (!gpu)
		return -ENOMEM;
	list_init(&gpu->agents);
	gpu->fd = epoll_create1(EPOLL_CLOEXEC);
	if (gpu->fd < 0) {
		rc = -errno;
		log_error("gpu", "cannot make a descriptor to wait on: %m");
		free(gpu);
		return rc;
	}
	w->gpu = gpu;
	return 0;
}

int gpu_worker_watch(struct gpu_agent *a)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = a};
	int rc = epoll_ctl(a->worker->gpu->fd, EPOLL_CTL_ADD, gpu_session_fd(a->session), &event);

	return rc == 0 ? 0 : -errno;
}

void gpu_worker_unwatch(struct gpu_agent *a)
{
	epoll_ctl(a->worker->gpu->fd, EPOLL_CTL_DEL, gpu_session_fd(a->session), NULL);
}

int service_worker_fd(const struct service_worker *w)
{
	return w->gpu ? w->gpu->fd : -1;
}

void service_worker_readable(struct service_worker *w)
{
	w->gpu->look = 0;
}

/* Who has something to say. */
static void look(struct service_worker *w)
{
	struct epoll_event event[EVENTS];
	int n = epoll_wait(w->gpu->fd, event, EVENTS, 0);

	for (int i = 0; i < n; i++)
		((struct gpu_agent *)event[i].data.ptr)->look = true;
	w->gpu->look = n == EVENTS ? 0 : w->now + LOOK;
}

static int fault(const struct gpu_agent *a)
{
	switch ((enum wire_ring_error)wire_ring_header(a->ring)->error) {
	case WIRE_RING_JUMPED:
	case WIRE_RING_SEQUENCE:
	case WIRE_RING_BAD_JOB:
		return -EBADMSG; /* the client's */
	default:
		return -EIO;
	}
}

/* What the worker process says, and its end. */
static void hear(struct gpu_agent *a)
{
	uint64_t now = a->worker->now;

	if (likely(!a->look && now < gpu_session_deadline(a->session)))
		return;
	a->look = false;
	a->process = gpu_session_progress(a->session, now);
	if (a->process >= GPU_ENDING && a->state < GPU_AGENT_ENDING)
		gpu_agent_fail(a, fault(a), "%s", gpu_session_reason(a->session));
}

static int serve(struct gpu_agent *a)
{
	int n = 0;

	switch (a->state) {
	case GPU_AGENT_STARTING:
		if (a->process == GPU_RUNNING && gpu_open_answer(a))
			gpu_agent_handle(a, GPU_AGENT_READY);
		break;
	case GPU_AGENT_RUNNING:
	case GPU_AGENT_FINISHING:
		if (a->jobs)
			n = gpu_rpc_turn(a);
		if (a->state == GPU_AGENT_FINISHING && !gpu_agent_busy(a) && gpu_rpc_answer_end(a))
			gpu_agent_handle(a, GPU_AGENT_DRAINED);
		break;
	case GPU_AGENT_ENDING:
		gpu_agent_say_ended(a);
		break;
	case GPU_AGENT_WAITING:
	case GPU_AGENT_CLOSED:
		break;
	}
	return n;
}

static int turn(struct gpu_agent *a)
{
	int n;

	if (a->session)
		hear(a);
	if (unlikely(a->worker->now >= a->deadline))
		gpu_agent_handle(a, GPU_AGENT_TIMED_OUT);
	n = serve(a);
	if (likely(a->conn))
		conn_flush(a->conn);
	else if (a->state == GPU_AGENT_CLOSED && a->process == GPU_GONE)
		gpu_agent_free(a);
	return n;
}

int gpu_worker_turn(struct service_worker *w)
{
	struct list *pos, *next;
	int n = 0;

	if (w->now >= w->gpu->look)
		look(w);
	list_for_each_safe (pos, next, &w->gpu->agents)
		n += turn(container_of(pos, struct gpu_agent, node));
	return n;
}

uint64_t service_worker_deadline(const struct service_worker *w)
{
	uint64_t when = TIME_NEVER;

	if (!w->sessions)
		return when;
	for (struct list *pos = w->gpu->agents.next; pos != &w->gpu->agents; pos = pos->next) {
		const struct gpu_agent *a = container_of(pos, struct gpu_agent, node);

		when = MIN(when, a->deadline);
		if (a->session)
			when = MIN(when, gpu_session_deadline(a->session));
	}
	return when;
}

bool service_worker_arm(struct service_worker *w)
{
	bool armed = true;

	if (!w->sessions)
		return true;
	for (struct list *pos = w->gpu->agents.next; pos != &w->gpu->agents; pos = pos->next) {
		struct gpu_agent *a = container_of(pos, struct gpu_agent, node);

		if (a->jobs)
			armed &= gpu_port_arm(a->port);
	}
	return armed;
}

void service_worker_disarm(struct service_worker *w)
{
	if (!w->sessions)
		return;
	for (struct list *pos = w->gpu->agents.next; pos != &w->gpu->agents; pos = pos->next) {
		struct gpu_agent *a = container_of(pos, struct gpu_agent, node);

		if (a->port)
			gpu_port_disarm(a->port);
	}
}

void service_worker_get_stats(const struct service_worker *w, struct service_stats *out)
{
	*out = w->stats;
	if (!w->sessions)
		return;
	for (struct list *pos = w->gpu->agents.next; pos != &w->gpu->agents; pos = pos->next)
		out->gpu_queue_jobs += gpu_agent_queue_jobs(container_of(pos, struct gpu_agent, node));
}

/* One that was asked to end has a moment for it. */
static void wait_for_processes(struct service_worker *w)
{
	struct pollfd fd = {.fd = w->gpu->fd, .events = POLLIN};

	poll(&fd, 1, END_LOOK_MS);
	w->now = time_now();
	w->gpu->look = 0;
	gpu_worker_turn(w);
}

static bool has_processes(const struct service_worker *w)
{
	for (struct list *pos = w->gpu->agents.next; pos != &w->gpu->agents; pos = pos->next) {
		const struct gpu_agent *a = container_of(pos, struct gpu_agent, node);

		if (a->session && a->process != GPU_GONE)
			return true;
	}
	return false;
}

void service_worker_end(struct service_worker *w)
{
	if (!w->sessions)
		return;
	for (struct list *pos = w->gpu->agents.next; pos != &w->gpu->agents; pos = pos->next) {
		struct gpu_agent *a = container_of(pos, struct gpu_agent, node);

		if (!a->session)
			continue;
		gpu_agent_fail(a, -ESHUTDOWN, "the server is shutting down");
		gpu_session_stop(a->session, w->now);
	}
	while (has_processes(w))
		wait_for_processes(w);
}

void gpu_worker_free(struct service_worker *w)
{
	if (!w->gpu)
		return;
	while (w->sessions)
		wait_for_processes(w);
	close(w->gpu->fd);
	free(w->gpu);
	w->gpu = NULL;
}
