/*
 * progress.c: the thread that turns an engine while its caller does something else. It sleeps on the engine's
 * descriptors. While a caller turns the engine itself the thread leaves it alone, as handing over would cost that
 * caller a sleep and a wake-up: it only looks now and then whether the caller still does, and begins again when it did
 * not for a while. Calls that do not turn the engine, but may leave it something to do, bring the thread a moment
 * later, so that many travel together.
 */
#include "engine/engine.h"
#include "base/thread.h"

#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define STEP_ASIDE_MS 1 /* until the next look */

struct progress {
	struct engine *engine;
	pthread_t thread;
	int wake;                 /* an eventfd */
	_Atomic unsigned waiting; /* callers that found the lock taken: the thread does not take it before them */
	_Atomic bool stop;
	unsigned depth; /* calls inside calls; the caller's own */

	pthread_mutex_t lock; /* of the engine and of what follows */
	bool inside;          /* a caller, perhaps asleep */
	bool asleep;          /* the thread, until a caller enters or leaves */
	char said[512];       /* errors of the thread, for the next caller */

	uint64_t seen; /* of the caller's turns; from here on the thread's own */
	nfds_t count;
	struct pollfd fds[1 + FABRIC_MAX_FDS]; /* wake, then the engine's */
};

static void progress_rouse(struct progress *p)
{
	uint64_t one = 1;

	if (write(p->wake, &one, sizeof(one)) < 0)
		log_error("client", "cannot wake the progress thread: %m");
}

static void progress_rouse_asleep(struct progress *p)
{
	if (!p->asleep)
		return;
	p->asleep = false;
	progress_rouse(p);
}

void progress_enter(struct progress *p)
{
	if (p->depth++)
		return;
	if (unlikely(pthread_mutex_trylock(&p->lock) != 0)) {
		atomic_fetch_add(&p->waiting, 1);
		pthread_mutex_lock(&p->lock);
		atomic_fetch_sub(&p->waiting, 1);
	}
	must(!p->inside);
	p->inside = true;
	progress_rouse_asleep(p);
	if (unlikely(p->said[0])) {
		log_warn("client", "%s", p->said);
		p->said[0] = '\0';
	}
}

void progress_leave(struct progress *p)
{
	must(p->depth && p->inside);
	if (--p->depth)
		return;
	p->inside = false;
	progress_rouse_asleep(p);
	pthread_mutex_unlock(&p->lock);
}

void progress_unlock(struct progress *p)
{
	must(p->depth && p->inside);
	pthread_mutex_unlock(&p->lock);
}

void progress_lock(struct progress *p)
{
	pthread_mutex_lock(&p->lock);
	must(p->depth && p->inside);
}

/* Turn; true: there is nothing more, and the descriptors tell when there is. */
static bool progress_serve(struct progress *p)
{
	int work;

	must(!p->inside);
	work = engine_serve(p->engine);
	if (!work) {
		fabric_arm(conn_group_queue(engine_group(p->engine)));
		work = engine_serve(p->engine);
	}
	if (unlikely(*log_last())) { /* lost to rdmad_error() of the caller, unless it is said there again */
		snprintf(p->said, sizeof(p->said), "%s", log_last());
		log_clear_last();
	}
	return !work;
}

static int until_deadline(const struct progress *p)
{
	uint64_t deadline = conn_group_deadline(engine_group(p->engine)), now = time_now();

	if (deadline == TIME_NEVER)
		return -1;
	return deadline <= now ? 0 : (int)MIN((deadline - now) / TIME_MS + 1, (uint64_t)INT_MAX);
}

/* With the lock: what to sleep on, and how long in ms, -1: for ever. */
static int progress_look(struct progress *p, nfds_t *count)
{
	uint64_t turns = engine_turns(p->engine);
	bool same = turns == p->seen;

	p->seen = turns;
	p->asleep = p->inside; /* asleep, too: the caller leaves when it is awake */
	if (p->inside)
		return -1;
	if (!same)
		return STEP_ASIDE_MS;
	*count = p->count;
	p->asleep = progress_serve(p);
	return p->asleep ? until_deadline(p) : 0;
}

static void *progress_run(void *arg)
{
	struct progress *p = arg;
	bool roused = false; /* by a caller */
	uint64_t told;

	while (!atomic_load(&p->stop)) {
		int timeout = STEP_ASIDE_MS;
		nfds_t count = 1;

		if (!roused && !atomic_load(&p->waiting) && pthread_mutex_trylock(&p->lock) == 0) {
			timeout = progress_look(p, &count);
			pthread_mutex_unlock(&p->lock);
		}
		roused =
			poll(p->fds, count, timeout) > 0 && p->fds[0].revents && read(p->wake, &told, sizeof(told)) > 0;
	}
	return NULL;
}

int progress_create(struct engine *engine, struct progress **out)
{
	struct progress *p = calloc(1, sizeof(*p));
	int fds[FABRIC_MAX_FDS], n, rc;

	if (!p)
		return -ENOMEM;
	p->engine = engine;
	pthread_mutex_init(&p->lock, NULL);
	p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	rc = p->wake < 0 ? -errno : 0;
	if (rc != 0)
		goto free_progress;
	p->fds[p->count++] = (struct pollfd){.fd = p->wake, .events = POLLIN};
	n = fabric_fds(conn_group_queue(engine_group(engine)), fds);
	for (int i = 0; i < n; i++)
		p->fds[p->count++] = (struct pollfd){.fd = fds[i], .events = POLLIN};
	rc = thread_start(&p->thread, "rdmad-progress", progress_run, p);
	if (rc != 0)
		goto close_wake;
	*out = p;
	return 0;

close_wake:
	close(p->wake);
free_progress:
	log_error("client", "cannot start the progress thread: %s", strerror(-rc));
	pthread_mutex_destroy(&p->lock);
	free(p);
	return rc;
}

void progress_abandon(struct progress *p)
{
	if (p)
		close(p->wake);
}

void progress_destroy(struct progress *p)
{
	if (!p)
		return;
	must(p->depth == 0);
	atomic_store(&p->stop, true);
	progress_rouse(p);
	pthread_join(p->thread, NULL);
	close(p->wake);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
