/*
 * helper.c: the thread for what takes long. An agent is on one errand at a time, and meanwhile what the errand makes or
 * gives back is the helper's; its end goes back to the agent's thread, by a list and an event.
 */
#include "service/gpu/gpu.h"
#include "base/thread.h"

static struct gpu_agent *next_errand(struct gpu_service_helper *h)
{
	struct gpu_agent *a = NULL;

	pthread_mutex_lock(&h->lock);
	while (list_empty(&h->errands) && !h->quit)
		pthread_cond_wait(&h->more, &h->lock);
	if (!list_empty(&h->errands)) {
		a = list_first(&h->errands, struct gpu_agent, errand);
		list_del(&a->errand);
	}
	pthread_mutex_unlock(&h->lock);
	return a;
}

/* Wakes within the lock: the thread that takes the errand out may end right then. */
static void bring_back(struct gpu_agent *a)
{
	struct gpu_service_thread *t = a->thread;

	pthread_mutex_lock(&t->lock);
	list_add_tail(&t->ended, &a->errand);
	gpu_service_thread_wake(t);
	pthread_mutex_unlock(&t->lock);
}

static void *helper_run(void *argument)
{
	struct gpu_service_helper *h = argument;
	struct gpu_agent *a;

	atomic_store(&h->self, thread_self());
	while ((a = next_errand(h))) {
		a->work(a);
		bring_back(a);
	}
	return NULL;
}

int gpu_helper_start(struct gpu_service_helper *h)
{
	int rc;

	list_init(&h->errands);
	h->quit = false;
	pthread_mutex_init(&h->lock, NULL);
	pthread_cond_init(&h->more, NULL);
	rc = thread_start(&h->thread, "gpu helper", helper_run, h);
	if (rc == 0)
		return 0;
	pthread_cond_destroy(&h->more);
	pthread_mutex_destroy(&h->lock);
	return log_fail(rc, "gpu", "cannot start a thread: %s", strerror(-rc));
}

void gpu_helper_stop(struct gpu_service_helper *h)
{
	pthread_mutex_lock(&h->lock);
	must(list_empty(&h->errands));
	h->quit = true;
	pthread_cond_signal(&h->more);
	pthread_mutex_unlock(&h->lock);
	pthread_join(h->thread, NULL);
	pthread_cond_destroy(&h->more);
	pthread_mutex_destroy(&h->lock);
}

void gpu_agent_send_errand(struct gpu_agent *a, void (*work)(struct gpu_agent *a))
{
	struct gpu_service_helper *h = &gpu_agent_service(a)->helper;

	must(gpu_agent_is_mine(a));
	must(!a->work);
	a->work = work;
	pthread_mutex_lock(&h->lock);
	list_add_tail(&h->errands, &a->errand);
	pthread_cond_signal(&h->more);
	pthread_mutex_unlock(&h->lock);
}
