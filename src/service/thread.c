/* thread.c: what a worker thread has of the services, and how a request becomes a connection of one. */
#include "service/service.h"

#include <stdlib.h>

#define COUNTED (SERVICE_TIMES(READ) | SERVICE_TIMES(WRITE) | SERVICE_TIMES(SCAN))
#define LEAVE_PATIENCE TIME_S /* for a client that was told to leave: a program that is elsewhere does not hear it */

void service_thread_own(struct service_thread *thread)
{
	must(!thread->owner);
	thread->owner = thread_self();
}

void service_thread_disown(struct service_thread *thread)
{
	must(thread->owner == thread_self());
	thread->owner = 0;
}

static bool counters_fit(const struct service *service)
{
	unsigned n = 0;

	while (service->counters && service->counters[n])
		n++;
	return n <= SERVICE_COUNTERS;
}

static int part_create(struct service_thread *thread, const struct service *service, void *shared)
{
	size_t size = (MAX(service->part_size, sizeof(struct service_part)) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
	struct service_part *part = aligned_alloc(CACHE_LINE, size); /* workers count side by side */
	int rc;

	must(counters_fit(service));
	if (!part)
		return -ENOMEM;
	memset(part, 0, size);
	part->service = service;
	part->thread = thread;
	part->shared = shared;
	rc = service->part_init ? service->part_init(part) : 0;
	if (rc == 0)
		thread->part[service->id] = part;
	else
		free(part);
	if (rc == 0 && service->times & COUNTED)
		thread->timed[thread->timed_count++] = part;
	return rc;
}

int service_thread_create(struct service_thread *thread, const struct service_shared *shared)
{
	int rc = 0;

	*thread = (struct service_thread){.now = 0};
	for (unsigned id = 0; id < WIRE_SERVICES && rc == 0; id++)
		if (service_is_open(shared, id))
			rc = part_create(thread, service_find(id), shared->of[id]);
	if (rc != 0)
		service_thread_free(thread);
	return rc;
}

void service_thread_slow(struct service_thread *thread, struct service_slow *slow)
{
	uint64_t limit = service_slow_limit(slow);

	must(service_thread_is_mine(thread));
	thread->slow = slow;
	if (!limit && service_hot_is_on(thread))
		limit = TIME_NEVER;
	for (unsigned id = 0; id < WIRE_SERVICES; id++)
		if (thread->part[id])
			thread->part[id]->slow = limit;
}

void service_thread_free(struct service_thread *thread)
{
	must(service_thread_is_mine(thread));
	for (unsigned id = WIRE_SERVICES; id-- > 0;) {
		struct service_part *part = thread->part[id];

		if (part && part->service->part_clear)
			part->service->part_clear(part);
		free(part);
		thread->part[id] = NULL;
	}
	free(thread->hot);
	thread->hot = NULL;
}

/* A part that wants turns and whose service has that hook. */
#define for_each_active(part, thread, hook)                                                                            \
	for (unsigned id_ = 0; id_ < WIRE_SERVICES; id_++)                                                             \
		if (!((part) = (thread)->part[id_]) || !(part)->active || !(part)->service->hook) {                    \
		} else

int service_thread_turn(struct service_thread *thread)
{
	struct service_part *part;
	int n = 0;

	bool asked = atomic_exchange(&thread->asked, false);

	must(service_thread_is_mine(thread));
	for (unsigned id = 0; id < WIRE_SERVICES; id++) {
		part = thread->part[id];
		if (part && part->service->progress &&
		    (part->active || (asked && atomic_exchange(&part->asked, false))))
			n += part->service->progress(part);
	}
	return n;
}

uint64_t service_thread_deadline(const struct service_thread *thread)
{
	uint64_t when = TIME_NEVER;
	struct service_part *part;

	must(service_thread_is_mine(thread));
	for_each_active (part, thread, deadline)
		when = MIN(when, part->service->deadline(part));
	return when;
}

bool service_thread_arm(struct service_thread *thread)
{
	struct service_part *part;
	bool armed = true;

	must(service_thread_is_mine(thread));
	for_each_active (part, thread, arm)
		armed &= part->service->arm(part);
	return armed;
}

void service_thread_disarm(struct service_thread *thread)
{
	struct service_part *part;

	must(service_thread_is_mine(thread));
	for_each_active (part, thread, disarm)
		part->service->disarm(part);
}

void service_thread_end(struct service_thread *thread)
{
	struct service_part *part;

	must(service_thread_is_mine(thread));
	for_each_active (part, thread, end)
		part->service->end(part);
}

void service_thread_time(struct service_thread *thread, uint64_t took)
{
	must(service_thread_is_mine(thread));
	for (unsigned n = 0; n < thread->timed_count; n++) {
		struct service_part *part = thread->timed[n];

		if (part->service->answered)
			part->service->answered(part, part->answered);
		for (unsigned i = 0; i < SERVICE_COUNTED; i++) {
			uint64_t times = part->answered[i] - part->timed[i];

			if (!times)
				continue;
			must(part->late[i] <= times);
			buckets_add(&part->took[i], BUCKETS_REQUEST, took, times - part->late[i]);
			part->timed[i] = part->answered[i];
			part->late[i] = 0;
		}
	}
}

void service_thread_get_counts(const struct service_thread *thread, struct service_counts *out)
{
	must(service_thread_is_mine(thread));
	for (unsigned id = 0; id < WIRE_SERVICES; id++) {
		const struct service_part *part = thread->part[id];

		if (!part)
			continue;
		memcpy(out->of[id], part->count, sizeof(out->of[id]));
		memcpy(out->took[id], part->took, sizeof(out->took[id]));
		if (part->active && part->service->count)
			part->service->count(part, out->of[id]);
	}
}

void service_counts_add(struct service_counts *into, const struct service_counts *from)
{
	for (unsigned id = 0; id < WIRE_SERVICES; id++)
		for (unsigned i = 0; i < SERVICE_COUNTERS; i++)
			into->of[id][i] += from->of[id][i];
	for (unsigned id = 0; id < WIRE_SERVICES; id++)
		for (unsigned i = 0; i < SERVICE_CLASSES; i++)
			buckets_merge(&into->took[id][i], &from->took[id][i]);
}

int service_accept(const struct service *service, struct service_thread *thread, struct conn_group *group,
		   struct fabric_request *fabric_request, const struct wire_request *request, struct quota_share *share,
		   struct auth_admission *admission)
{
	struct service_part *part = thread->part[service->id];
	struct service_way way = {.group = group};
	enum wire_reason reason = WIRE_REASON_SERVICE;
	struct wire_accept grant = {0};
	struct conn_attr attr = {0};
	uint64_t detail = service->id;
	struct conn *conn;
	void *agent;
	int rc;

	must(service_thread_is_mine(thread));
	fabric_request_limits(fabric_request, &way.limits);
	if (part && service->ops)
		reason = service->admit ? service->admit(part, &way, request, &grant, &detail) : WIRE_REASON_NONE;
	if (reason != WIRE_REASON_NONE) {
		conn_refuse(fabric_request, reason, detail);
		return -EACCES;
	}
	agent = service->agent_new(part, &way);
	if (!agent) {
		conn_refuse(fabric_request, WIRE_REASON_RESOURCES, 0);
		return -ENOMEM;
	}
	if (service->attr)
		service->attr(agent, &attr);
	attr.share = share;
	attr.admission = admission;
	attr.key = admission ? admission->key : NULL;
	/* An earlier client could not send else. It reaches nothing by that: what peers may reach has keys, which it
	 * was not told. */
	attr.admitted = !(request->flags & WIRE_WRITES_NOT);
	rc = conn_accept(group, fabric_request, request, &grant, &attr, service->ops, agent, thread->now, &conn);
	if (rc != 0)
		service->agent_free(agent);
	return rc;
}

int service_accept_stream(const struct service *service, struct service_thread *thread, struct stream_group *group,
			  struct stream_open *open)
{
	struct service_part *part = thread->part[service->id];

	must(service_thread_is_mine(thread));
	if (part && service->stream)
		return service->stream(part, group, open);
	stream_refuse(open);
	return -EOPNOTSUPP;
}

void service_leave(struct conn *conn)
{
	if (service_find(conn_request(conn)->service)->quiet)
		conn_leave(conn, TIME_NEVER, false);
}

void service_revised(struct conn *conn)
{
	const struct service *service = service_find(conn_request(conn)->service);

	if (service->revised && conn_established(conn))
		service->revised(conn);
}

void service_get_info(const struct conn *conn, struct conn_info *out)
{
	conn_get_info(conn, out);
	if (service_find(conn_request(conn)->service)->answers_each)
		out->in_flight = out->records_in - MIN(out->records_in, out->records_out);
}

void service_drain(struct conn *conn)
{
	const struct service *service = service_find(conn_request(conn)->service);

	if (service->quiet)
		conn_leave(conn, LEAVE_PATIENCE, service->quiet(conn));
	if (service->quiet || !conn_idle(conn))
		return;
	if (service->drain)
		service->drain(conn);
	else
		conn_close(conn, 0, "the server is shutting down");
}
