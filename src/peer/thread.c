/*
 * thread.c: rdma_options.progress_thread: a thread that turns a context while its program does something else. It
 * sleeps on the context's descriptor. While the program turns the context itself, or sleeps in a call, the thread
 * leaves it alone, as handing over would cost the program a sleep and a wake-up: it looks now and then whether the
 * program still does. It calls no callback: what there is to tell, that hears from its next call, and its descriptor
 * is readable until then.
 */
#include "peer/links/connect.h"
#include "base/thread.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define STEP_ASIDE_MS 1 /* until the next look */

struct progress_thread {
	rdma_context *ctx;
	pthread_t thread;
	int wake;                 /* an eventfd: the thread's */
	int told, epoll;          /* an eventfd for the program, and what has it and the context's descriptor */
	_Atomic unsigned waiting; /* callers that found the lock taken: the thread does not take it before them */
	_Atomic bool stop;
	bool telling;  /* told is readable */
	bool inside;   /* a caller, perhaps asleep */
	bool asleep;   /* the thread, until a caller enters or leaves */
	uint64_t seen; /* of the program's turns; the thread's own */
};

static void rouse_thread(int fd)
{
	uint64_t one = 1;

	if (write(fd, &one, sizeof(one)) < 0)
		log_error("peer", "cannot wake a thread: %m");
}

static void thread_rouse_asleep(struct progress_thread *t)
{
	if (!t->asleep)
		return;
	t->asleep = false;
	rouse_thread(t->wake);
}

void thread_enter(struct progress_thread *t)
{
	pthread_mutex_t *lock = &t->ctx->lock;
	uint64_t count;

	if (unlikely(pthread_mutex_trylock(lock) != 0)) {
		atomic_fetch_add(&t->waiting, 1);
		pthread_mutex_lock(lock);
		atomic_fetch_sub(&t->waiting, 1);
	}
	must(!t->inside);
	t->inside = true;
	thread_rouse_asleep(t);
	if (t->telling && read(t->told, &count, sizeof(count)) > 0)
		t->telling = false;
}

void thread_leave(struct progress_thread *t)
{
	must(t->inside);
	t->inside = false;
	thread_rouse_asleep(t);
	pthread_mutex_unlock(&t->ctx->lock);
}

void thread_unlock(struct progress_thread *t)
{
	must(t->inside);
	pthread_mutex_unlock(&t->ctx->lock);
}

void thread_lock(struct progress_thread *t)
{
	pthread_mutex_lock(&t->ctx->lock);
	must(t->inside);
}

int thread_fd(const struct progress_thread *t)
{
	return t->epoll;
}

/* With the lock: turn, as long as there is something. How long to sleep in ms, -1: for ever. */
static int thread_serve(struct progress_thread *t)
{
	rdma_context *ctx = t->ctx;
	uint64_t progressed = ctx->progressed, deadline, now;
	bool idle = context_serve(ctx, &deadline);

	if (ctx->progressed != progressed && !t->telling) {
		t->telling = true;
		rouse_thread(t->told);
	}
	now = time_now();
	t->asleep = idle;
	if (!idle || deadline <= now)
		return 0;
	return deadline == TIME_NEVER ? -1 : (int)MIN((deadline - now) / TIME_MS + 1, 1000000000ull);
}

/* With the lock: what to sleep on, and how long. */
static int thread_look(struct progress_thread *t, nfds_t *count)
{
	bool same = t->ctx->turns == t->seen;

	t->seen = t->ctx->turns;
	t->asleep = t->inside; /* asleep, too: the caller leaves when it is awake */
	if (t->inside)
		return -1;
	if (!same)
		return STEP_ASIDE_MS;
	*count = 2;
	return thread_serve(t);
}

static void *thread_run(void *arg)
{
	struct progress_thread *t = arg;
	struct pollfd fds[2] = {{.fd = t->wake, .events = POLLIN}, {.fd = t->ctx->epoll, .events = POLLIN}};
	bool roused = false;

	while (!atomic_load(&t->stop)) {
		int timeout = STEP_ASIDE_MS;
		nfds_t count = 1;
		uint64_t n;

		if (!roused && !atomic_load(&t->waiting) && pthread_mutex_trylock(&t->ctx->lock) == 0) {
			timeout = thread_look(t, &count);
			pthread_mutex_unlock(&t->ctx->lock);
		}
		roused = poll(fds, count, timeout) > 0 && fds[0].revents && read(t->wake, &n, sizeof(n)) > 0;
	}
	return NULL;
}

static void close_all(struct progress_thread *t)
{
	const int fds[] = {t->wake, t->told, t->epoll};

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

int thread_create(rdma_context *ctx)
{
	struct progress_thread *t = calloc(1, sizeof(*t));
	struct epoll_event event = {.events = EPOLLIN};
	int rc;

	if (!t)
		return -ENOMEM;
	t->ctx = ctx;
	pthread_mutex_init(&ctx->lock, NULL);
	t->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	t->told = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	t->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (t->wake < 0 || t->told < 0 || t->epoll < 0 || epoll_ctl(t->epoll, EPOLL_CTL_ADD, t->told, &event) != 0 ||
	    epoll_ctl(t->epoll, EPOLL_CTL_ADD, ctx->epoll, &event) != 0)
		rc = -errno;
	else
		rc = thread_start(&t->thread, "rdma-progress", thread_run, t);
	if (rc == 0) {
		ctx->thread = t;
		return 0;
	}
	close_all(t);
	pthread_mutex_destroy(&ctx->lock);
	free(t);
	return rc;
}

void thread_destroy(rdma_context *ctx)
{
	struct progress_thread *t = ctx->thread;

	if (!t)
		return;
	atomic_store(&t->stop, true);
	rouse_thread(t->wake);
	pthread_join(t->thread, NULL);
	ctx->thread = NULL;
	pthread_mutex_destroy(&ctx->lock);
	close_all(t);
	free(t);
}
