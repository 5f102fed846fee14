/*
 * verbs_shim_events.c: what goes wrong on command. For it, a program sees a socket in the place of each event
 * descriptor of the kernel. A thread tells it when there is something, and at the other end's loss it says POLLERR and POLLHUP
 * for ever, as a descriptor of a device that was taken away.
 */
#include "fake/verbs_shim.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define RELAYS 256
#define FAKES 1024

/* One descriptor. */
static struct relay {
	const void *owner; /* its context or channel; NULL: free */
	int real, mine, other;
	bool dead;
} relays[RELAYS];

/* Events that the kernel never sent. */
static struct {
	struct ibv_async_event event;
	bool used, got;
} fakes[FAKES];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ibv_context *the_context;
static int epoll = -1;
static _Atomic bool gone, cut, cm_fails;

bool shim_gone(void)
{
	return gone;
}

bool shim_cut(void)
{
	return cut;
}

static void nonblock(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static void take_commands(const char *path)
{
	char line[128];
	FILE *file = fopen(path, "r");

	if (!file)
		return;
	while (fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = 0;
		if (verbs_shim_do(line))
			fprintf(stderr, "verbs_shim: there is no command %s\n", line);
	}
	fclose(file);
	unlink(path);
}

static void *relay_thread(void *arg)
{
	struct epoll_event event;

	for (;;) {
		int n = epoll_wait(epoll, &event, 1, shim_on(SHAPE_file) ? 20 : -1);
		struct relay *r = event.data.ptr;

		pthread_mutex_lock(&lock);
		if (n > 0 && r->owner && !r->dead)
			send(r->other, "", 1, MSG_NOSIGNAL);
		pthread_mutex_unlock(&lock);
		if (shim_on(SHAPE_file))
			take_commands(shim_text(SHAPE_file));
	}
	return arg;
}

static struct relay *relay_find(const void *owner)
{
	for (int i = 0; i < RELAYS; i++)
		if (relays[i].owner == owner)
			return &relays[i];
	return NULL;
}

static void relay_arm(struct relay *r, int how)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = r};

	epoll_ctl(epoll, how, r->real, &event);
}

/* In the place of *fd comes a socket. */
static void relay_make(const void *owner, int *fd)
{
	struct relay *r;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair))
		abort();
	pthread_mutex_lock(&lock);
	r = relay_find(NULL);
	*r = (struct relay){owner, *fd, pair[0], pair[1], false};
	nonblock(r->real);
	relay_arm(r, EPOLL_CTL_ADD);
	pthread_mutex_unlock(&lock);
	*fd = pair[0];
}

/* Unread data at the closed end is what makes an error of it. */
static void relay_kill(struct relay *r)
{
	if (r->dead)
		return;
	r->dead = true;
	send(r->mine, "", 1, MSG_NOSIGNAL);
	close(r->other);
	epoll_ctl(epoll, EPOLL_CTL_DEL, r->real, NULL);
}

/* Nothing there: the socket is emptied before the kernel is asked to tell the thread again, so nothing is missed. */
static int relay_read(struct relay *r, void *to, size_t size)
{
	char junk[64];
	int error;

	if (r->dead) {
		errno = EIO;
		return -1;
	}
	if (read(r->real, to, size) == (ssize_t)size)
		return 0;
	error = errno;
	while (recv(r->mine, junk, sizeof(junk), 0) > 0)
		;
	relay_arm(r, EPOLL_CTL_MOD);
	errno = error;
	return -1;
}

static bool watching(void)
{
	return epoll >= 0;
}

void shim_watch_context(struct ibv_context *context)
{
	pthread_t thread;

	if (!watching()) {
		epoll = epoll_create1(EPOLL_CLOEXEC);
		if (epoll < 0 || pthread_create(&thread, NULL, relay_thread, NULL))
			abort();
		pthread_detach(thread);
	}
	the_context = context;
	relay_make(context, &context->async_fd);
}

static pthread_mutex_t kernel_lock = PTHREAD_MUTEX_INITIALIZER;

void shim_kernel_begin(struct ibv_context *context, struct ibv_comp_channel *channel)
{
	if (!watching())
		return;
	pthread_mutex_lock(&kernel_lock);
	context->async_fd = relay_find(context)->real;
	if (channel)
		channel->fd = relay_find(channel)->real;
}

void shim_kernel_end(struct ibv_context *context, struct ibv_comp_channel *channel)
{
	if (!watching())
		return;
	context->async_fd = relay_find(context)->mine;
	if (channel)
		channel->fd = relay_find(channel)->mine;
	pthread_mutex_unlock(&kernel_lock);
}

/*
 * Completion channels.
 */
SHIM_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct ibv_comp_channel *channel;

	if (gone) {
		errno = EIO;
		return NULL;
	}
	channel = SHIM_NEXT(ibv_create_comp_channel)(context);
	if (channel && watching())
		relay_make(channel, &channel->fd);
	return channel;
}

SHIM_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct relay *r;

	if (!watching())
		return SHIM_NEXT(ibv_destroy_comp_channel)(channel);
	pthread_mutex_lock(&lock);
	r = relay_find(channel);
	relay_kill(r);
	close(r->mine);
	channel->fd = r->real;
	r->owner = NULL;
	pthread_mutex_unlock(&lock);
	return SHIM_NEXT(ibv_destroy_comp_channel)(channel);
}

SHIM_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	struct ib_uverbs_comp_event_desc event;

	if (!watching())
		return SHIM_NEXT(ibv_get_cq_event)(channel, cq, cq_context);
	if (relay_read(relay_find(channel), &event, sizeof(event)))
		return -1;
	*cq = (struct ibv_cq *)(uintptr_t)event.cq_handle;
	*cq_context = (*cq)->cq_context;
	return 0;
}

/*
 * Asynchronous events.
 */
void shim_async(enum ibv_event_type type, void *element)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < FAKES; i++)
		if (!fakes[i].used) {
			fakes[i].used = true;
			fakes[i].got = false;
			fakes[i].event = (struct ibv_async_event){.element.qp = element, .event_type = type};
			break;
		}
	if (watching())
		send(relay_find(the_context)->other, "", 1, MSG_NOSIGNAL);
	pthread_mutex_unlock(&lock);
}

static bool fake_next(struct ibv_async_event *event)
{
	for (int i = 0; i < FAKES; i++)
		if (fakes[i].used && !fakes[i].got) {
			*event = fakes[i].event;
			fakes[i].got = true;
			return true;
		}
	return false;
}

SHIM_EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct ib_uverbs_async_event_desc from;
	int rc = 0;

	if (!watching())
		return SHIM_NEXT(ibv_get_async_event)(context, event);
	pthread_mutex_lock(&lock);
	if (!fake_next(event)) {
		rc = relay_read(relay_find(context), &from, sizeof(from));
		if (rc == 0)
			*event = (struct ibv_async_event){.element.qp = (void *)(uintptr_t)from.element,
							  .event_type = from.event_type};
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

SHIM_EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	bool fake = false;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < FAKES && !fake; i++) {
		fake = fakes[i].used && fakes[i].got && fakes[i].event.event_type == event->event_type &&
		       fakes[i].event.element.qp == event->element.qp;
		if (fake)
			fakes[i].used = false;
	}
	pthread_mutex_unlock(&lock);
	if (!fake)
		SHIM_NEXT(ibv_ack_async_event)(event);
}

static bool fake_pending(const void *element)
{
	bool pending = false;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < FAKES; i++)
		if (fakes[i].used && fakes[i].event.element.qp == element) {
			fakes[i].used = fakes[i].got;
			pending = pending || fakes[i].got;
		}
	pthread_mutex_unlock(&lock);
	return pending;
}

void shim_forget(const void *element)
{
	for (int ms = 0; fake_pending(element); ms++) {
		if (ms == 20000) {
			fprintf(stderr, "verbs_shim: an event was not acknowledged before its object was destroyed\n");
			abort();
		}
		usleep(1000);
	}
}

SHIM_EXPORT int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	int rc;

	if (cm_fails) {
		errno = EIO;
		return -1;
	}
	rc = SHIM_NEXT(rdma_get_cm_event)(channel, event);
	if (rc == 0 && shim_on(SHAPE_no_depths))
		(*event)->param.conn.responder_resources = (*event)->param.conn.initiator_depth = 0;
	return rc;
}

/*
 * Commands. `which` counts living objects from 1; 0: all.
 */
static void do_cq_err(int which)
{
	for (int i = 0, n = 0; i < SHIM_OBJECTS; i++)
		if (shim_cqs[i].cq && (++n == which || !which)) {
			shim_cqs[i].silent = true;
			shim_async(IBV_EVENT_CQ_ERR, shim_cqs[i].cq);
		}
}

static void do_srq_err(int which)
{
	for (int i = 0, n = 0; i < SHIM_OBJECTS; i++)
		if (shim_srqs[i] && (++n == which || !which))
			shim_async(IBV_EVENT_SRQ_ERR, shim_srqs[i]);
}

static void do_poll_error(int which)
{
	for (int i = 0, n = 0; i < SHIM_OBJECTS; i++)
		if (shim_cqs[i].cq && (++n == which || !which))
			shim_cqs[i].negative = true;
}

static void do_arm_error(int which)
{
	for (int i = 0, n = 0; i < SHIM_OBJECTS; i++)
		if (shim_cqs[i].cq && (++n == which || !which))
			shim_cqs[i].deaf = true;
}

static void do_fatal(int which)
{
	shim_async(IBV_EVENT_DEVICE_FATAL, NULL);
}

static void do_port_err(int which)
{
	shim_async(IBV_EVENT_PORT_ERR, (void *)(uintptr_t)(which ? which : 1));
}

static void do_port_active(int which)
{
	shim_async(IBV_EVENT_PORT_ACTIVE, (void *)(uintptr_t)(which ? which : 1));
}

static void do_link_down(int which)
{
	cut = true;
}

static void do_gone(int which)
{
	pthread_mutex_lock(&lock);
	gone = true;
	for (int i = 0; i < RELAYS; i++)
		if (relays[i].owner)
			relay_kill(&relays[i]);
	pthread_mutex_unlock(&lock);
}

static void do_cm_error(int which)
{
	cm_fails = true;
}

static const struct {
	const char *name;
	void (*act)(int which);
	const char *help;
} commands[] = {
	{"cq_err", do_cq_err, "[=K] completion queue K (all) brings nothing more, and CQ_ERR says so"},
	{"srq_err", do_srq_err, "[=K] SRQ_ERR for shared receive queue K (all)"},
	{"poll_error", do_poll_error, "[=K] ibv_poll_cq is negative for completion queue K (all)"},
	{"arm_error", do_arm_error, "[=K] ibv_req_notify_cq fails for completion queue K (all)"},
	{"fatal", do_fatal, "DEVICE_FATAL"},
	{"port_err", do_port_err, "[=PORT] PORT_ERR"},
	{"port_active", do_port_active, "[=PORT] PORT_ACTIVE"},
	{"link_down", do_link_down, "no port is active, and what is sent fails as with Soft-RoCE"},
	{"gone", do_gone, "the device is taken away: descriptors fail for ever, calls answer EIO, nothing completes"},
	{"cm_error", do_cm_error, "rdma_get_cm_event fails from now on"},
};

void shim_commands_help(void)
{
	fprintf(stderr, "commands:\n");
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		fprintf(stderr, "  %-16s %s\n", commands[i].name, commands[i].help);
}

int verbs_shim_do(const char *command)
{
	size_t length = strcspn(command, "=");
	int which = command[length] ? atoi(command + length + 1) : 0;

	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		if (strlen(commands[i].name) == length && strncmp(commands[i].name, command, length) == 0) {
			commands[i].act(which);
			return 0;
		}
	return -1;
}
