/*
 * thread.c: the turn of a worker thread's sessions. A descriptor out, progress() in: an epoll of what the processes
 * say. While the thread polls, results are seen in the rings themselves, and the descriptor is asked only now and then;
 * before it sleeps it has the processes told to write to it.
 */
#include "service/gpu/gpu.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LOOK TIME_MS /* how late a thread that never sleeps hears of a process that ended */
#define EVENTS 16
#define END_LOOK_MS 10                            /* between looks at the deadlines of processes that are to end */
#define END_PATIENCE (GPU_KILL_PATIENCE + TIME_S) /* of a thread's end, with processes that even SIGKILL does not end */

static struct gpu_service_thread *thread_of(const struct service_part *part)
{
	return container_of((struct service_part *)(uintptr_t)part, struct gpu_service_thread, part);
}

static struct gpu_agent *agent_at(struct list *node)
{
	return container_of(node, struct gpu_agent, node);
}

#define for_each_agent(a, t)                                                                                           \
	for (struct list *pos_ = (t)->agents.next; pos_ != &(t)->agents && ((a) = agent_at(pos_)); pos_ = pos_->next)

int gpu_service_thread_init(struct service_part *part)
{
	struct gpu_service_thread *t = thread_of(part);
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
	int rc;

	list_init(&t->agents);
	list_init(&t->ended);
	t->fd = epoll_create1(EPOLL_CLOEXEC);
	t->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (t->fd >= 0 && t->event >= 0 && epoll_ctl(t->fd, EPOLL_CTL_ADD, t->event, &event) == 0) {
		pthread_mutex_init(&t->lock, NULL);
		return 0;
	}
	rc = log_fail(-errno, "gpu", "cannot make a descriptor to wait on: %m");
	if (t->event >= 0)
		close(t->event);
	if (t->fd >= 0)
		close(t->fd);
	return rc;
}

void gpu_service_thread_wake(struct gpu_service_thread *t)
{
	uint64_t one = 1;

	while (write(t->event, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

int gpu_agent_watch(struct gpu_agent *a)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = a};
	int rc = epoll_ctl(a->thread->fd, EPOLL_CTL_ADD, gpu_session_fd(a->session), &event);

	return rc == 0 ? 0 : -errno;
}

void gpu_agent_unwatch(struct gpu_agent *a)
{
	epoll_ctl(a->thread->fd, EPOLL_CTL_DEL, gpu_session_fd(a->session), NULL);
}

int gpu_service_thread_fd(const struct service_part *part)
{
	return thread_of(part)->fd;
}

static void take_wakes(struct gpu_service_thread *t)
{
	uint64_t count;

	while (read(t->event, &count, sizeof(count)) < 0 && errno == EINTR)
		;
}

/* A wake may come for an agent that is gone: no thread has turns then that would take it. */
void gpu_service_thread_readable(struct service_part *part)
{
	thread_of(part)->look = 0;
	if (!part->active)
		take_wakes(thread_of(part));
}

static struct gpu_agent *next_ended(struct gpu_service_thread *t)
{
	struct gpu_agent *a = NULL;

	pthread_mutex_lock(&t->lock);
	if (!list_empty(&t->ended)) {
		a = list_first(&t->ended, struct gpu_agent, errand);
		list_del(&a->errand);
	}
	pthread_mutex_unlock(&t->lock);
	return a;
}

/* Sessions that have something to say. */
static void gpu_service_thread_look(struct gpu_service_thread *t, uint64_t now)
{
	struct epoll_event event[EVENTS];
	int n = epoll_wait(t->fd, event, EVENTS, 0);
	bool woken = false;
	struct gpu_agent *a;

	for (int i = 0; i < n; i++)
		if (event[i].data.ptr)
			((struct gpu_agent *)event[i].data.ptr)->look = true;
		else
			woken = true;
	t->look = n == EVENTS ? 0 : now + LOOK;
	if (!woken)
		return;
	/* Errands have ended, places are wanted. Agents may be freed. */
	take_wakes(t);
	while ((a = next_ended(t)))
		gpu_agent_errand_ended(a);
	for_each_agent (a, t)
		gpu_agent_leave_place(a);
}

static int ring_fault(const struct gpu_agent *a)
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

/* Hears what the process says, and its end. */
static void gpu_agent_hear(struct gpu_agent *a, uint64_t now)
{
	enum gpu_session_state before = a->state;

	if (likely(!a->look && now < gpu_session_deadline(a->session)))
		return;
	a->look = false;
	if (gpu_session_progress(a->session, now) != GPU_ENDING || before == GPU_ENDING)
		return;
	snprintf(a->reason, sizeof(a->reason), "%s", gpu_session_reason(a->session));
	gpu_agent_failed(a, ring_fault(a));
}

static int gpu_agent_serve(struct gpu_agent *a)
{
	int n = 0;

	switch (a->state) {
	case GPU_ANSWERING:
		if (gpu_agent_open_answer(a))
			gpu_agent_handle(a, GPU_EVENT_ANSWERED);
		break;
	case GPU_RUNNING:
	case GPU_FINISHING:
		if (a->jobs)
			n = gpu_agent_rpc_turn(a);
		if (a->state == GPU_FINISHING && !gpu_agent_busy(a) && gpu_agent_rpc_answer_end(a))
			gpu_agent_handle(a, GPU_EVENT_DRAINED);
		break;
	case GPU_ENDING:
		gpu_agent_say_ended(a);
		break;
	default:
		break;
	}
	return n;
}

static int gpu_agent_turn(struct gpu_agent *a, uint64_t now)
{
	bool occupied;
	int n;

	if (gpu_agent_has_session(a))
		gpu_agent_hear(a, now);
	if (unlikely(now >= a->deadline))
		gpu_agent_expired(a);
	n = gpu_agent_serve(a);
	if (a->mode == WIRE_GPU_QUEUE) {
		/* Jobs are not told of: whether there are some is looked at, so that the worker yields to their
		 * process. */
		occupied = a->conn && gpu_agent_has_session(a) && gpu_agent_busy(a);
		a->thread->part.thread->busy += (int)occupied - (int)a->occupied;
		a->occupied = occupied;
	}
	if (likely(a->conn))
		conn_flush(a->conn);
	else if (a->state >= GPU_CLOSED)
		gpu_agent_bury(a);
	return n;
}

int gpu_service_thread_progress(struct service_part *part)
{
	struct gpu_service_thread *t = thread_of(part);
	uint64_t now = service_part_now(part);
	struct list *pos, *next;
	int n = 0;

	must(service_part_is_mine(part));
	if (now >= t->look)
		gpu_service_thread_look(t, now);
	list_for_each_safe (pos, next, &t->agents)
		n += gpu_agent_turn(agent_at(pos), now);
	return n;
}

uint64_t gpu_service_thread_deadline(const struct service_part *part)
{
	uint64_t when = TIME_NEVER;
	struct gpu_agent *a;

	for_each_agent (a, thread_of(part)) {
		when = MIN(when, a->deadline);
		if (gpu_agent_has_session(a))
			when = MIN(when, gpu_session_deadline(a->session));
	}
	return when;
}

bool gpu_service_thread_arm(struct service_part *part)
{
	struct gpu_agent *a;
	bool armed = true;

	for_each_agent (a, thread_of(part))
		if (a->jobs)
			armed &= gpu_port_arm(a->port);
	return armed;
}

void gpu_service_thread_disarm(struct service_part *part)
{
	struct gpu_agent *a;

	for_each_agent (a, thread_of(part))
		if (!a->work && a->port)
			gpu_port_disarm(a->port);
}

void gpu_service_thread_count(const struct service_part *part, uint64_t *count)
{
	struct gpu_agent *a;

	for_each_agent (a, thread_of(part))
		count[GPU_SERVICE_QUEUE_JOBS] += gpu_agent_queue_jobs(a);
}

/* One that was asked to end has a moment for it; or for the helper. */
static void wait_for_processes(struct service_part *part)
{
	struct gpu_service_thread *t = thread_of(part);
	struct pollfd fd = {.fd = t->fd, .events = POLLIN};

	poll(&fd, 1, END_LOOK_MS);
	part->thread->now = time_now();
	t->look = 0;
	gpu_service_thread_progress(part);
}

/* Stop what there is. Whether there is anything yet. */
static bool stop_processes(struct service_part *part)
{
	bool left = false;
	struct gpu_agent *a;

	for_each_agent (a, thread_of(part)) {
		left |= a->work != NULL;
		if (!gpu_agent_has_session(a))
			continue;
		if (a->conn)
			gpu_agent_fail(a, -ESHUTDOWN, "the server is shutting down");
		gpu_session_stop(a->session, service_part_now(part));
		left |= gpu_session_alive(a->session);
	}
	return left;
}

void gpu_service_thread_end(struct service_part *part)
{
	uint64_t until = time_now() + END_PATIENCE;
	struct gpu_agent *a;

	while (stop_processes(part)) {
		wait_for_processes(part);
		if (time_now() < until)
			continue;
		/* A process that waits for a device in the kernel may never end, and must not keep the daemon. */
		for_each_agent (a, thread_of(part))
			if (gpu_agent_has_session(a) && gpu_session_alive(a->session))
				gpu_session_abandon(a->session);
	}
}

void gpu_service_thread_clear(struct service_part *part)
{
	struct gpu_service_thread *t = thread_of(part);

	while (part->active) {
		gpu_service_thread_end(part);
		wait_for_processes(part);
	}
	pthread_mutex_lock(&t->lock); /* the helper has let go of it */
	pthread_mutex_unlock(&t->lock);
	pthread_mutex_destroy(&t->lock);
	close(t->event);
	close(t->fd);
}
