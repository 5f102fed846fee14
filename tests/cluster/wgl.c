/* wgl.c: the search. A list has the begins and ends of all requests by time; a request that was given its moment leaves
 * it. An end that is reached before its request has one means that some moment before was wrong. */
#include "tests/cluster/wgl.h"

#include <stdlib.h>

#define NONE UINT32_MAX

struct event {
	uint64_t time;
	uint32_t op;
	bool is_end;
	uint32_t next, prev; /* in the list; the place behind the last event is its head */
};

/* A set of requests that have their moment, as two sums of random numbers, and the value behind them. */
struct tried {
	uint64_t sum[2], value;
};

struct search {
	const struct wgl_op *op;
	struct event *event;
	uint32_t *begin, *end; /* of each request: its events; end NONE: it has no answer */
	uint32_t *stack;       /* requests in the order of their moments */
	uint64_t *before;      /* and the value before each */
	uint32_t head, depth, open;
	struct tried now, *tried;
	uint64_t places, used;
};

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* By time; what begins when another ends is concurrent with it, so begins come first. */
static int compare_events(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	if (x->time != y->time)
		return x->time < y->time ? -1 : 1;
	return x->is_end - y->is_end;
}

static int compare_numbers(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* A request without an answer is left out where that can only help: a deletion, which makes nothing possible, and a
 * write of which nobody saw the value. `seen` has room for a number for each request. */
static void list_build(struct search *s, unsigned count, uint64_t *seen)
{
	uint32_t events = 0;
	size_t reads = 0;

	for (unsigned i = 0; i < count; i++) {
		if (s->op[i].kind == WGL_HIT || s->op[i].kind == WGL_CAS)
			seen[reads++] = s->op[i].kind == WGL_HIT ? s->op[i].value : s->op[i].expect;
	}
	qsort(seen, reads, sizeof(*seen), compare_numbers);
	for (unsigned i = 0; i < count; i++) {
		s->end[i] = NONE;
		if (s->op[i].unknown && (s->op[i].kind == WGL_DELETE ||
					 !bsearch(&s->op[i].value, seen, reads, sizeof(*seen), compare_numbers)))
			continue;
		s->event[events++] = (struct event){.time = s->op[i].begin, .op = i};
		if (!s->op[i].unknown)
			s->event[events++] = (struct event){.time = s->op[i].end, .op = i, .is_end = true};
	}
	qsort(s->event, events, sizeof(*s->event), compare_events);
	s->head = events;
	for (uint32_t i = 0; i <= events; i++) {
		s->event[i].next = i == events ? 0 : i + 1;
		s->event[i].prev = i == 0 ? events : i - 1;
		if (i < events)
			(s->event[i].is_end ? s->end : s->begin)[s->event[i].op] = i;
	}
}

static void event_remove(struct search *s, uint32_t at)
{
	s->event[s->event[at].prev].next = s->event[at].next;
	s->event[s->event[at].next].prev = s->event[at].prev;
}

/* In the opposite order of removals. */
static void event_insert(struct search *s, uint32_t at)
{
	s->event[s->event[at].prev].next = at;
	s->event[s->event[at].next].prev = at;
}

/* The value behind the request, 0: none; false: the request cannot be here. */
static bool op_apply(const struct wgl_op *op, uint64_t value, uint64_t *after)
{
	*after = op->kind == WGL_DELETE ? 0 : op->value;
	switch (op->kind) {
	case WGL_HIT:
		return value == op->value;
	case WGL_CAS:
		return value == op->expect;
	default:
		return true;
	}
}

/* 1: it is new; 0: it was tried before; -1: no memory. */
static int tried_add(struct search *s, const struct tried *t)
{
	uint64_t place;

	if (2 * (s->used + 1) > s->places) {
		uint64_t places = s->places ? 2 * s->places : 1024;
		struct tried *old = s->tried;

		s->tried = calloc(places, sizeof(*s->tried));
		if (!s->tried) {
			s->tried = old;
			return -1;
		}
		for (uint64_t i = 0; i < s->places; i++) {
			if (!old[i].sum[0])
				continue;
			for (place = old[i].sum[1] & (places - 1); s->tried[place].sum[0];)
				place = (place + 1) & (places - 1);
			s->tried[place] = old[i];
		}
		free(old);
		s->places = places;
	}
	for (place = t->sum[1] & (s->places - 1); s->tried[place].sum[0]; place = (place + 1) & (s->places - 1)) {
		const struct tried *there = &s->tried[place];

		if (there->sum[0] == t->sum[0] && there->sum[1] == t->sum[1] && there->value == t->value)
			return 0;
	}
	s->tried[place] = *t;
	s->used++;
	return 1;
}

/* Give the request its moment here, or take it back. */
static void op_place(struct search *s, uint32_t i, const struct tried *after)
{
	s->stack[s->depth] = i;
	s->before[s->depth++] = s->now.value;
	s->now = *after;
	event_remove(s, s->begin[i]);
	if (s->end[i] != NONE) {
		event_remove(s, s->end[i]);
		s->open--;
	}
}

static uint32_t op_take_back(struct search *s)
{
	uint32_t i = s->stack[--s->depth];

	if (s->end[i] != NONE) {
		event_insert(s, s->end[i]);
		s->open++;
	}
	event_insert(s, s->begin[i]);
	s->now.value = s->before[s->depth];
	s->now.sum[0] -= mix(2 * (uint64_t)i);
	s->now.sum[1] -= mix(2 * (uint64_t)i + 1);
	return i;
}

static enum wgl_verdict search_run(struct search *s, uint64_t steps)
{
	uint32_t at = s->event[s->head].next;

	while (s->open) {
		const struct event *event = &s->event[at];
		struct tried after = s->now;
		int added;

		if (!steps--)
			return WGL_UNDECIDED;
		if (event->is_end) {
			if (!s->depth)
				return WGL_NOT;
			at = s->event[s->begin[op_take_back(s)]].next;
			continue;
		}
		after.sum[0] += mix(2 * (uint64_t)event->op);
		after.sum[1] += mix(2 * (uint64_t)event->op + 1);
		if (!op_apply(&s->op[event->op], s->now.value, &after.value)) {
			at = event->next;
			continue;
		}
		added = tried_add(s, &after);
		if (added < 0)
			return WGL_UNDECIDED;
		if (added) {
			op_place(s, event->op, &after);
			at = s->event[s->head].next;
		} else {
			at = event->next;
		}
	}
	return WGL_LINEARIZABLE;
}

enum wgl_verdict wgl_check(const struct wgl_op *op, unsigned count, uint64_t steps)
{
	struct search s = {.op = op, .now = {{1, 1}, 0}};
	enum wgl_verdict verdict = WGL_UNDECIDED;

	s.event = calloc(2 * (size_t)count + 1, sizeof(*s.event));
	s.begin = calloc(count + 1, sizeof(*s.begin));
	s.end = calloc(count + 1, sizeof(*s.end));
	s.stack = calloc(count + 1, sizeof(*s.stack));
	s.before = calloc(count + 1, sizeof(*s.before));
	if (s.event && s.begin && s.end && s.stack && s.before) {
		list_build(&s, count, s.before); /* which is not in use yet */
		for (unsigned i = 0; i < count; i++)
			s.open += !op[i].unknown;
		verdict = search_run(&s, steps);
	}
	free(s.event);
	free(s.begin);
	free(s.end);
	free(s.stack);
	free(s.before);
	free(s.tried);
	return verdict;
}
