/* loop.c: the one door to libevent. */
#include "daemon/daemon.h"

#include <event2/event.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct loop {
	uintptr_t owner; /* thread_self() of the thread that is in it; 0: none is */
	struct event_base *base;
	struct event *wake, *alarm;
	int wake_fd;
	loop_fn on_wake;
	void *wake_arg;
};

struct loop_watch {
	struct loop *loop;
	struct event *event;
	int fd;
	loop_fn fn;
	void *arg;
};

static bool loop_is_mine(const struct loop *loop)
{
	return !loop->owner || loop->owner == thread_self();
}

static void libevent_said(int severity, const char *text)
{
	log_at(severity >= EVENT_LOG_WARN ? LOG_LEVEL_WARN : LOG_LEVEL_DEBUG, "loop", "%s", text);
}

static void loop_woken(evutil_socket_t fd, short what, void *arg)
{
	struct loop *loop = arg;
	uint64_t count;

	(void)what;
	if (read(fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		log_error("loop", "cannot read the eventfd: %m");
	if (loop->on_wake)
		loop->on_wake(loop->wake_arg);
}

static void alarm_rang(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what, (void)arg; /* that loop_once() returns is all */
}

int loop_create(struct loop **out)
{
	struct loop *loop = calloc(1, sizeof(*loop));
	struct event_config *config;

	if (!loop)
		return -ENOMEM;
	event_set_log_callback(libevent_said);
	loop->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (loop->wake_fd < 0)
		goto fail;
	/* A loop is one thread's and its waking goes by an eventfd: libevent's locks would only cost. */
	config = event_config_new();
	if (config && event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK) == 0)
		loop->base = event_base_new_with_config(config);
	if (config)
		event_config_free(config);
	if (!loop->base)
		goto fail;
	loop->wake = event_new(loop->base, loop->wake_fd, EV_READ | EV_PERSIST, loop_woken, loop);
	loop->alarm = evtimer_new(loop->base, alarm_rang, loop);
	if (!loop->wake || !loop->alarm || event_add(loop->wake, NULL) != 0)
		goto fail;
	*out = loop;
	return 0;

fail:
	log_error("loop", "cannot make an event loop: %s", strerror(errno ? errno : ENOMEM));
	loop_destroy(loop);
	return errno ? -errno : -ENOMEM;
}

struct event_base *loop_base(struct loop *loop)
{
	return loop->base;
}

void loop_destroy(struct loop *loop)
{
	if (!loop)
		return;
	if (loop->alarm)
		event_free(loop->alarm);
	if (loop->wake)
		event_free(loop->wake);
	if (loop->base)
		event_base_free(loop->base);
	if (loop->wake_fd >= 0)
		close(loop->wake_fd);
	free(loop);
}

static void watch_happened(evutil_socket_t fd, short what, void *arg)
{
	struct loop_watch *watch = arg;

	(void)fd, (void)what;
	watch->fn(watch->arg); /* may remove the watch: nothing after it */
}

static short event_flags(unsigned events)
{
	return (short)((events & LOOP_READ ? EV_READ : 0) | (events & LOOP_WRITE ? EV_WRITE : 0) | EV_PERSIST);
}

static struct loop_watch *watch_add(struct loop *loop, int fd, short flags, loop_fn fn, void *arg)
{
	struct loop_watch *watch = malloc(sizeof(*watch));

	must(loop_is_mine(loop));
	if (!watch)
		return NULL;
	*watch = (struct loop_watch){.loop = loop, .fd = fd, .fn = fn, .arg = arg};
	watch->event = event_new(loop->base, fd, flags, watch_happened, watch);
	if (!watch->event)
		goto fail;
	if (flags && event_add(watch->event, NULL) != 0)
		goto fail;
	return watch;

fail:
	log_error("loop", "cannot watch descriptor or signal %d: %m", fd);
	loop_remove(watch);
	return NULL;
}

struct loop_watch *loop_add_fd(struct loop *loop, int fd, unsigned events, loop_fn fn, void *arg)
{
	return watch_add(loop, fd, event_flags(events), fn, arg);
}

struct loop_watch *loop_add_signal(struct loop *loop, int signal, loop_fn fn, void *arg)
{
	return watch_add(loop, signal, EV_SIGNAL | EV_PERSIST, fn, arg);
}

struct loop_watch *loop_add_timer(struct loop *loop, loop_fn fn, void *arg)
{
	return watch_add(loop, -1, 0, fn, arg);
}

void loop_remove(struct loop_watch *watch)
{
	if (!watch)
		return;
	must(loop_is_mine(watch->loop));
	if (watch->event)
		event_free(watch->event);
	free(watch);
}

void loop_change_fd(struct loop_watch *watch, unsigned events)
{
	must(loop_is_mine(watch->loop));
	event_del(watch->event);
	event_assign(watch->event, watch->loop->base, watch->fd, event_flags(events), watch_happened, watch);
	event_add(watch->event, NULL);
}

/* Set a timer, rounded up: one that fires early would be set again and again. */
static void set_alarm(struct event *event, uint64_t ns)
{
	uint64_t us = MIN(ns, 86400 * TIME_S) / TIME_US + 1;
	struct timeval tv = {.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};

	if (ns == TIME_NEVER)
		event_del(event);
	else
		event_add(event, &tv);
}

void loop_set_timer(struct loop_watch *watch, uint64_t ns)
{
	must(loop_is_mine(watch->loop));
	set_alarm(watch->event, ns);
}

void loop_run(struct loop *loop)
{
	must(!loop->owner);
	loop->owner = thread_self();
	event_base_dispatch(loop->base);
	loop->owner = 0;
}

void loop_break(struct loop *loop)
{
	must(loop_is_mine(loop));
	event_base_loopbreak(loop->base);
}

void loop_once(struct loop *loop, uint64_t ns)
{
	must(!loop->owner);
	loop->owner = thread_self();
	if (ns)
		set_alarm(loop->alarm, ns);
	event_base_loop(loop->base, ns ? EVLOOP_ONCE : EVLOOP_NONBLOCK);
	loop->owner = 0;
}

void loop_wake(struct loop *loop)
{
	uint64_t one = 1;

	/* EAGAIN: it was woken 2^64-2 times and not looked; it will. */
	if (write(loop->wake_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		log_error("loop", "cannot write the eventfd: %m");
}

void loop_on_wake(struct loop *loop, loop_fn fn, void *arg)
{
	loop->on_wake = fn;
	loop->wake_arg = arg;
}
