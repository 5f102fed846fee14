/* stream.c: groups and the life of a stream. */
#include "stream/internal.h"

#include <stdarg.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS 128
#define EMPTY_POLLS 64 /* without anything, until the group asks the kernel only every SKIP turns */
#define SKIP 8
#define LOOK TIME_S

int stream_group_create(const struct stream_attr *attr, struct stream_group **out)
{
	struct stream_group *group = calloc(1, sizeof(*group));
	int rc;

	if (!group)
		return -ENOMEM;
	group->attr = *attr;
	list_init(&group->streams);
	list_init(&group->ready);
	list_init(&group->timed);
	list_init(&group->quiet);
	group->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (group->epoll < 0) {
		rc = -errno;
		log_error("stream", "cannot make a set of descriptors: %m");
		free(group);
		return rc;
	}
	rc = stream_rdma_create(group);
	if (rc != 0) {
		stream_group_destroy(group);
		return rc;
	}
	*out = group;
	return 0;
}

static void stream_end(struct stream *s)
{
	struct stream_group *group = s->group;

	s->ops->closed(s, s->error, s->reason);
	s->transport->end(s);
	stream_drop_pieces(s);
	if (s->in.at)
		stream_buffer_give(group, s->in.at, s->in.room);
	list_del(&s->node);
	list_del(&s->ready);
	list_del(&s->timed);
	list_del(&s->quiet);
	quota_give(s->share);
	auth_admission_end(&s->admission);
	group->stats.streams--;
	s->kind->streams--;
	group->stats.closed++;
	free(s);
}

void stream_group_destroy(struct stream_group *group)
{
	struct list *pos, *next;

	if (!group)
		return;
	list_for_each_safe (pos, next, &group->streams)
		stream_end(container_of(pos, struct stream, node));
	while (group->spares)
		free(group->spare[--group->spares]);
	stream_rdma_destroy(group);
	close(group->epoll);
	free(group);
}

int stream_group_fd(const struct stream_group *group)
{
	return group->epoll;
}

char *stream_buffer_take(struct stream_group *group)
{
	char *buffer = group->spares ? group->spare[--group->spares] : malloc(STREAM_READ);

	group->stats.buffer_bytes += buffer ? STREAM_READ : 0;
	return buffer;
}

void stream_buffer_give(struct stream_group *group, char *buffer, size_t room)
{
	group->stats.buffer_bytes -= room;
	if (room == STREAM_READ && group->spares < STREAM_SPARES)
		group->spare[group->spares++] = buffer;
	else
		free(buffer);
}

void stream_make_ready(struct stream *s)
{
	if (!list_linked(&s->ready))
		list_add_tail(&s->group->ready, &s->ready);
}

void stream_wait_until(struct stream *s, uint64_t when)
{
	s->until = when;
	if (!list_linked(&s->timed))
		list_add_tail(&s->group->timed, &s->timed);
}

void stream_again(struct stream *s, uint64_t when)
{
	s->again = true;
	if (when > s->group->now)
		stream_wait_until(s, when);
	else
		stream_make_ready(s);
}

void stream_receive(struct stream *s, void *to, size_t len)
{
	s->in.to = to;
	s->in.left = len;
}

void stream_charge(struct stream *s, unsigned requests)
{
	uint64_t when;

	if (!s->admission.client || !s->admission.client->spent)
		return;
	when = auth_spend(s->admission.client, 0, requests, s->group->now);
	if (when <= s->group->now)
		return;
	s->group->stats.paced++;
	stream_wait_until(s, when);
}

void stream_served(struct stream *s, unsigned requests)
{
	s->out.answers += requests;
	s->group->stats.requests += requests;
	if (!s->out.waiting)
		s->out.answered = s->out.answers;
}

/* Ask the kernel, unless it had nothing so often that every few turns do. */
static int poll_events(struct stream_group *group)
{
	struct epoll_event event[EVENTS];
	int n;

	if (!group->sockets)
		return 0;
	if (group->skip) {
		group->skip--;
		return 0;
	}
	n = epoll_wait(group->epoll, event, EVENTS, 0);
	for (int i = 0; i < n; i++)
		if (event[i].data.ptr) /* NULL: that of the RDMA queue, which is polled */
			stream_socket_events(event[i].data.ptr, event[i].events);
	group->empty = n > 0 ? 0 : group->empty + 1;
	if (group->empty >= EMPTY_POLLS)
		group->skip = SKIP;
	return MAX(n, 0);
}

static void look_at_times(struct stream_group *group)
{
	const struct stream_attr *attr = &group->attr;

	list_for_each (pos, &group->streams) {
		struct stream *s = container_of(pos, struct stream, node);

		if (attr->stall && s->out.stuck && group->now - s->out.stuck > attr->stall && !s->error) {
			group->stats.stalled++;
			stream_close(s, -ETIMEDOUT, "it took no answers for %llu s: %zu bytes wait",
				     (unsigned long long)(attr->stall / TIME_S), s->out.waiting);
		} else if (attr->idle && !s->out.waiting && group->now - s->active > attr->idle) {
			stream_close(s, 0, "it said nothing for %llu s", (unsigned long long)(attr->idle / TIME_S));
		}
		if (!s->closing)
			s->transport->look(s);
	}
	group->look = group->now + LOOK;
}

static void look_at_timed(struct stream_group *group)
{
	struct list *pos, *next;

	list_for_each_safe (pos, next, &group->timed) {
		struct stream *s = container_of(pos, struct stream, timed);

		if (s->until > group->now)
			continue;
		list_del(&s->timed);
		stream_make_ready(s);
	}
}

/* A stream that is closed in peace stays until what was written has left. */
static bool is_over(struct stream *s)
{
	return s->closing && (s->error || (!s->out.waiting && s->transport->settled(s)));
}

int stream_group_progress(struct stream_group *group, uint64_t now)
{
	struct list visits;
	int n;

	group->now = now;
	n = poll_events(group) + stream_rdma_poll(group);
	if (!list_empty(&group->timed))
		look_at_timed(group);
	if (now >= group->look)
		look_at_times(group);
	if (list_empty(&group->ready))
		return n;
	list_init(&visits);
	list_prepend(&visits, &group->ready);
	while (!list_empty(&visits)) {
		struct stream *s = list_first(&visits, struct stream, ready);

		list_del(&s->ready);
		if (!is_over(s))
			stream_visit(s);
		if (is_over(s))
			stream_end(s);
		n++;
	}
	return n;
}

uint64_t stream_group_deadline(const struct stream_group *group)
{
	bool waits = group->stats.waiting_bytes || (group->attr.idle && !list_empty(&group->streams)) ||
		     stream_rdma_any(group);
	uint64_t when = waits ? group->look : TIME_NEVER;

	list_for_each (pos, &group->timed)
		when = MIN(when, container_of(pos, struct stream, timed)->until);
	return list_empty(&group->ready) ? when : group->now;
}

bool stream_group_quiet(struct stream_group *group)
{
	group->skip = 0;
	return list_empty(&group->ready) && stream_rdma_arm(group);
}

struct fabric_domain *stream_group_domain(const struct stream_group *group)
{
	return group->attr.rdma.domain;
}

uint64_t stream_group_count(const struct stream_group *group)
{
	return group->stats.streams;
}

uint64_t stream_group_oldest(const struct stream_group *group)
{
	return list_empty(&group->quiet) || !group->attr.first
		       ? TIME_NEVER
		       : container_of(group->quiet.next, struct stream, quiet)->opened;
}

bool stream_group_make_room(struct stream_group *group, uint64_t now)
{
	struct stream *s;

	if (stream_group_oldest(group) == TIME_NEVER)
		return false;
	s = container_of(group->quiet.next, struct stream, quiet);
	if (s->opened + group->attr.first > now)
		return false;
	group->stats.gave_way++;
	stream_close(s, -ETIMEDOUT, "it had asked for nothing, and gave way");
	stream_end(s);
	return true;
}

void stream_group_each(struct stream_group *group, void (*fn)(void *arg, struct stream *stream), void *arg)
{
	list_for_each (pos, &group->streams)
		fn(arg, container_of(pos, struct stream, node));
}

void stream_group_get_stats(const struct stream_group *group, struct stream_stats *out)
{
	*out = group->stats;
}

void stream_refuse(const struct stream_open *open)
{
	if (open->request)
		fabric_reject(open->request, NULL, 0);
	else
		local_close(open->fd);
}

static struct stream_kind *kind_of(struct stream_group *group, const char *service, const char *transport)
{
	struct stream_kind *kind = group->stats.kind;

	while (kind->service && (strcmp(kind->service, service) != 0 || strcmp(kind->transport, transport) != 0))
		kind++;
	must(kind < group->stats.kind + STREAM_KINDS - 1);
	*kind = (struct stream_kind){service, transport, kind->streams};
	return kind;
}

int stream_open(struct stream_group *group, const struct stream_open *open, uint64_t now, struct stream **out)
{
	struct stream *s = calloc(1, sizeof(*s));
	int rc;

	if (!s) {
		stream_refuse(open);
		return -ENOMEM;
	}
	*s = (struct stream){.context = open->context,
			     .group = group,
			     .ops = open->ops,
			     .fd = open->fd,
			     .id = open->id,
			     .service = open->service,
			     .opened = now,
			     .active = now,
			     .share = open->share};
	rc = open->request ? stream_rdma_open(s, open) : stream_socket_open(s, open);
	if (rc != 0) {
		free(s);
		return rc;
	}
	if (open->admission) {
		s->admission = *open->admission;
		*open->admission = (struct auth_admission){0};
	}
	list_init(&s->ready);
	list_init(&s->timed);
	list_add_tail(&group->streams, &s->node);
	list_add_tail(&group->quiet, &s->quiet);
	group->stats.streams++;
	group->stats.accepted++;
	s->kind = kind_of(group, s->service, s->transport->name(s));
	s->kind->streams++;
	*out = s;
	return 0;
}

void stream_close(struct stream *s, int error, const char *format, ...)
{
	va_list args;

	if (s->closing && (s->error || !error))
		return;
	s->error = error;
	s->group->stats.violations += error == -EPROTO;
	if (!s->closing) {
		va_start(args, format);
		vsnprintf(s->reason, sizeof(s->reason), format, args);
		va_end(args);
	}
	s->closing = true;
	stream_make_ready(s);
}

void stream_broken(struct stream *s, int error)
{
	stream_close(s, error, "%s", strerror(-error));
}

/* Whether its owner will be handed what is here already. A part of a command waits for its client alone. */
static bool has_work(const struct stream *s)
{
	return s->in.len && (s->again || list_linked(&s->ready) || list_linked(&s->timed));
}

void stream_drain(struct stream *s)
{
	if (!s->closing && !s->out.waiting && !has_work(s) && (!s->ops->quiet || s->ops->quiet(s)))
		stream_close(s, 0, "the server is shutting down");
}

const struct auth_client *stream_client(const struct stream *s)
{
	return s->admission.client ? s->admission.client : &auth_everything;
}

struct auth_admission *stream_admission(struct stream *s)
{
	return &s->admission;
}

bool stream_admit(struct stream *s, struct auth_admission *admission)
{
	/* The same client again keeps its place. */
	if (s->admission.entered && s->admission.client == admission->client) {
		admission->proved = admission->entered = true;
		s->admission.entered = false;
	} else if (!auth_enter(admission)) {
		return false;
	}
	auth_admission_end(&s->admission);
	s->admission = *admission;
	*admission = (struct auth_admission){0};
	return true;
}

bool stream_revise(struct stream *s, struct auth_table *table)
{
	bool unknown = !s->admission.key && s->admission.client == &auth_nothing, holds, serves;

	if (unknown && s->admission.table && s->admission.table != table) { /* in which it will be looked for */
		auth_table_put(s->admission.table);
		s->admission.table = auth_table_get(table);
	}
	holds = unknown || auth_readmit(&s->admission, table);
	serves = holds && (!s->ops->revised || s->ops->revised(s));
	if (serves || (holds && !s->admission.key)) /* one that has not said a password may say it yet */
		return true;
	s->group->stats.revoked++;
	stream_close(s, -EACCES, holds ? "its right to the service was revoked" : "its key was revoked");
	return false;
}

struct stream_group *stream_group_of(const struct stream *s)
{
	return s->group;
}

uint64_t stream_now(const struct stream *s)
{
	return s->group->now;
}

size_t stream_waiting(const struct stream *s)
{
	return s->out.waiting;
}

uint64_t stream_written(const struct stream *s)
{
	return s->out.written;
}

void stream_get_info(const struct stream *s, struct stream_info *out)
{
	*out = (struct stream_info){.id = s->id,
				    .service = s->service,
				    .transport = s->kind->transport,
				    .bytes_in = s->in.bytes,
				    .bytes_out = s->out.left,
				    .requests = s->out.answers,
				    .answered = s->out.answered,
				    .opened = s->opened,
				    .active = s->active,
				    .waiting_bytes = s->out.waiting,
				    .unused_bytes = s->in.len,
				    .fd = s->fd};
	auth_admission_name(&s->admission, out->key);
	s->transport->info(s, out);
}
