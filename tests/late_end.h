/*
 * late_end.h: a server (tests/service/server.h) that hears of the end of its connections late, as over a device that is slow to tell. For a suite
 * that is linked with --wrap=fabric_next_event.
 */
#ifndef RDMAD_TESTS_LATE_END_H
#define RDMAD_TESTS_LATE_END_H

#include "tests/service/server.h"

#define LATE_ENDS 256

static struct late_end {
	uint64_t by; /* 0: in time */
	unsigned first, count;
	uint64_t due[LATE_ENDS];
	struct fabric_event event[LATE_ENDS];
} late_end;

int __real_fabric_next_event(struct fabric_queue *queue, struct fabric_event *out);
int __wrap_fabric_next_event(struct fabric_queue *queue, struct fabric_event *out);
int __wrap_fabric_next_event(struct fabric_queue *queue, struct fabric_event *out)
{
	struct late_end *l = &late_end;

	if (!l->by || queue != conn_group_queue(server.group))
		return __real_fabric_next_event(queue, out);
	if (l->count && time_now() >= l->due[l->first % LATE_ENDS]) {
		*out = l->event[l->first++ % LATE_ENDS];
		l->count--;
		return 1;
	}
	while (__real_fabric_next_event(queue, out)) {
		unsigned last = (l->first + l->count) % LATE_ENDS;

		if (out->type != FABRIC_DISCONNECTED || l->count == LATE_ENDS)
			return 1;
		l->event[last] = *out;
		l->due[last] = time_now() + l->by;
		l->count++;
	}
	return 0;
}

/* Before server_start(). */
static inline void late_end_by(uint64_t time)
{
	late_end = (struct late_end){.by = time};
}

#endif
