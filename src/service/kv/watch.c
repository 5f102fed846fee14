/*
 * watch.c: changed keys, for clients that ask for them. The thread goes through the store's events once; each agent
 * that watches gets what its client wants and may read into its own buffer, which goes to the client as the answer to
 * its next WATCH. So a client has events at the speed at which it asks, and of its messages they take one at a time. If
 * its buffer is full, it misses what comes until it has taken all that is there, and is told how many that were.
 */
#include "service/kv/kv.h"

#include <stdlib.h>

#define BUFFER (64 * KIB)
#define KINDS                                                                                                          \
	(WIRE_EVENT_STORED | WIRE_EVENT_DELETED | WIRE_EVENT_EXPIRED | WIRE_EVENT_EVICTED | WIRE_EVENT_TTL |           \
	 WIRE_EVENT_FLUSHED)

struct kv_watch {
	uint32_t kinds;  /* bits of enum wire_event_kind; 0: the client's rights have ended it */
	uint64_t missed; /* behind what is in the buffer; until it is told, all others are missed, too */
	bool asked;      /* a WATCH waits, */
	uint32_t id;     /* which has this id, */
	uint32_t most;   /* and takes so many bytes */
	/* Events lie from `head` to `tail`; where that is before `head`, from there to `end` and from 0 to `tail`. */
	uint32_t head, tail, end;
	uint32_t prefix_len;
	char prefix[WIRE_KEY_MAX];
	_Alignas(8) char bytes[BUFFER];
};

static uint32_t size_of(const struct wire_event *event)
{
	return (uint32_t)sizeof(*event) + WIRE_PAD(event->key_len);
}

/* Where the next event is to be written; NULL: there is no room. */
static struct wire_event *buffer_reserve(struct kv_watch *w, uint32_t size)
{
	if (w->head == w->tail)
		w->head = w->tail = 0;
	if (w->tail >= w->head && BUFFER - w->tail < size) {
		if (w->head <= size) /* the two meet only where it is empty */
			return NULL;
		w->end = w->tail;
		w->tail = 0;
	}
	if (w->tail < w->head && w->head - w->tail <= size)
		return NULL;
	return (void *)(w->bytes + w->tail);
}

/* The oldest event; NULL: there is none. Those of kind 0 are not for the client any more. */
static struct wire_event *buffer_first(struct kv_watch *w)
{
	while (w->head != w->tail) {
		struct wire_event *first = (void *)(w->bytes + w->head);

		if (w->tail < w->head && w->head == w->end)
			w->head = 0;
		else if (first->kind)
			return first;
		else
			w->head += size_of(first);
	}
	return NULL;
}

/*
 * Answers
 */

/* The answer to the WATCH that waits, of which the body is there. */
static void watch_answer(struct kv_agent *agent, struct wire_record *reply, uint32_t id, enum wire_status status,
			 uint32_t length)
{
	reply->id = id;
	reply->op = WIRE_OP_WATCH;
	reply->flags |= WIRE_REPLY;
	reply->status = status;
	kv_agent_count(agent, KV_COUNT_WATCHES);
	conn_commit(agent->conn, reply, length);
}

/* Answer what waits with as many events as it takes, or with none. False: there is no room now. */
static bool watch_tell(struct kv_agent *agent)
{
	struct kv_watch *w = agent->watch;
	struct wire_event *event = w->kinds ? buffer_first(w) : NULL;
	uint64_t missed = event ? 0 : w->missed;
	uint32_t room, length = sizeof(missed);
	struct wire_record *reply = conn_reserve(agent->conn, length + (event ? size_of(event) : 0), &room);
	char *at;

	if (!reply)
		return false;
	room = MIN(room, w->most);
	at = (char *)(reply + 1);
	memcpy(at, &missed, sizeof(missed));
	for (; event && length + size_of(event) <= room; event = buffer_first(w)) {
		memcpy(at + length, event, size_of(event));
		length += size_of(event);
		w->head += size_of(event);
		kv_agent_count(agent, KV_COUNT_EVENTS);
	}
	if (missed)
		w->missed = 0;
	w->asked = false;
	watch_answer(agent, reply, w->id, w->kinds ? WIRE_OK : WIRE_DENIED, w->kinds ? length : 0);
	return true;
}

static bool has_news(struct kv_watch *w)
{
	return w->missed || !w->kinds || buffer_first(w);
}

void kv_watch_writable(struct kv_agent *agent)
{
	if (agent->watch && agent->watch->asked && has_news(agent->watch))
		watch_tell(agent);
}

/*
 * Events
 */

static void watch_miss(struct kv_agent *agent, uint64_t events)
{
	agent->watch->missed += events;
	agent->thread->part.count[KV_COUNT_EVENTS_MISSED] += events;
}

static uint32_t kind_of(enum store_event_type type)
{
	switch (type) {
	case STORE_EVENT_SET:
		return WIRE_EVENT_STORED;
	case STORE_EVENT_DELETED:
		return WIRE_EVENT_DELETED;
	case STORE_EVENT_EXPIRY:
		return WIRE_EVENT_TTL;
	case STORE_EVENT_EXPIRED:
		return WIRE_EVENT_EXPIRED;
	case STORE_EVENT_EVICTED:
		return WIRE_EVENT_EVICTED;
	case STORE_EVENT_FLUSHED:
		return WIRE_EVENT_FLUSHED;
	case STORE_EVENT_MISSED:
		break;
	}
	return 0;
}

/* Whether the client wants to hear of it, and may. */
static bool is_for(const struct kv_agent *agent, uint32_t kind, const void *key, size_t key_len)
{
	const struct kv_watch *w = agent->watch;

	if (!(w->kinds & kind))
		return false;
	if (kind == WIRE_EVENT_FLUSHED)
		return true;
	return key_len >= w->prefix_len && memcmp(key, w->prefix, w->prefix_len) == 0 &&
	       (!(agent->beside & KV_BESIDE_RIGHTS) || auth_may(conn_client(agent->conn), AUTH_READ, key, key_len));
}

static void watch_hear(struct kv_agent *agent, const struct store_event *event)
{
	const struct wire_event head = {.kind = kind_of(event->type),
					.key_len = (uint16_t)event->key_len,
					.flags = event->fresh ? WIRE_EVENT_FRESH : 0};
	struct kv_watch *w = agent->watch;
	struct wire_event *to;

	if (event->type == STORE_EVENT_MISSED && w->kinds)
		watch_miss(agent, MAX(event->missed, 1u));
	if (!is_for(agent, head.kind, event->key, event->key_len))
		return;
	to = w->missed ? NULL : buffer_reserve(w, size_of(&head));
	if (!to) {
		watch_miss(agent, 1);
		return;
	}
	*to = head;
	memset((char *)to + size_of(&head) - WIRE_PAD(head.key_len), 0, WIRE_PAD(head.key_len));
	memcpy(to + 1, event->key, head.key_len);
	w->tail += size_of(&head);
}

int kv_watch_turn(struct kv_thread *thread)
{
	const struct kv_cluster *cluster = ((const struct kv_shared *)thread->part.shared)->cluster;
	struct store_event event;
	int n = 0;

	for (; service_watch_next(&thread->watch, &event); n++) {
		if (kv_event_hides(cluster, &event))
			continue;
		list_for_each (pos, &thread->watching)
			watch_hear(container_of(pos, struct kv_agent, watching), &event);
	}
	if (n == 0)
		return 0;
	list_for_each (pos, &thread->watching) {
		struct kv_agent *agent = container_of(pos, struct kv_agent, watching);

		if (agent->watch->asked && has_news(agent->watch) && watch_tell(agent))
			conn_flush(agent->conn);
	}
	return n;
}

/*
 * Begin and end
 */

static int watch_begin(struct kv_agent *agent)
{
	struct kv_thread *thread = agent->thread;
	int rc;

	if (agent->watch)
		return 0;
	agent->watch = malloc(sizeof(*agent->watch));
	if (!agent->watch)
		return -ENOMEM;
	rc = service_watch_set(&thread->watch, &thread->part, thread->store, thread->event, true);
	if (rc != 0) {
		free(agent->watch);
		agent->watch = NULL;
		return rc;
	}
	list_add_tail(&thread->watching, &agent->watching);
	atomic_fetch_add(&((struct kv_shared *)thread->part.shared)->watches, 1);
	return 0;
}

static void watch_end(struct kv_agent *agent)
{
	struct kv_thread *thread = agent->thread;

	if (!agent->watch)
		return;
	list_del(&agent->watching);
	free(agent->watch);
	agent->watch = NULL;
	atomic_fetch_sub(&((struct kv_shared *)thread->part.shared)->watches, 1);
	service_watch_set(&thread->watch, &thread->part, thread->store, thread->event, !list_empty(&thread->watching));
}

void kv_watch_close(struct kv_agent *agent)
{
	watch_end(agent);
}

/* Begins, or begins anew, or ends; the status to answer with. */
static enum wire_status watch_change(struct kv_agent *agent, const char *body, uint32_t prefix_len)
{
	const uint32_t kinds = (uint32_t)kv_number(body) & (KINDS & ~WIRE_EVENT_FLUSHED);
	const char *prefix = body + sizeof(uint64_t);
	struct kv_watch *w;

	if (!kinds) {
		watch_end(agent);
		return WIRE_OK;
	}
	if (!auth_may_some(conn_client(agent->conn), AUTH_READ, prefix, prefix_len)) {
		watch_end(agent);
		kv_agent_count(agent, KV_COUNT_DENIED);
		log_info("kv", "%s has no right to watch keys of that prefix", conn_client(agent->conn)->name);
		return WIRE_DENIED;
	}
	if (watch_begin(agent) != 0)
		return WIRE_FAILED;
	w = agent->watch;
	w->kinds = kinds | (kinds & WIRE_EVENT_DELETED ? WIRE_EVENT_FLUSHED : 0);
	w->missed = 0;
	w->asked = false;
	w->head = w->tail = w->end = 0;
	w->prefix_len = prefix_len;
	memcpy(w->prefix, prefix, prefix_len);
	return WIRE_OK;
}

int kv_serve_watch(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		   struct wire_record *reply)
{
	struct kv_watch *w = agent->watch;
	const uint64_t missed = 0;
	enum wire_status status;

	if (request->arg < WIRE_EVENTS_MIN || (request->length && request->length < sizeof(uint64_t)))
		return -EPROTO;
	agent->conn = conn;
	if (!request->length) {
		if (!w || w->asked)
			return -EPROTO;
		w->asked = true;
		w->id = request->id;
		w->most = request->arg;
		kv_watch_writable(agent);
		return 0;
	}
	if (w && w->asked && !watch_tell(agent))
		return -EAGAIN;
	reply = conn_reserve(conn, sizeof(missed), NULL);
	if (!reply)
		return -EAGAIN;
	status = watch_change(agent, body, request->length - (uint32_t)sizeof(uint64_t));
	memcpy(reply + 1, &missed, sizeof(missed));
	watch_answer(agent, reply, request->id, status, status == WIRE_OK ? sizeof(missed) : 0);
	return 0;
}

void kv_watch_revised(struct kv_agent *agent)
{
	struct kv_watch *w = agent->watch;

	if (!w || !(agent->beside & KV_BESIDE_RIGHTS))
		return;
	if (!auth_may_some(conn_client(agent->conn), AUTH_READ, w->prefix, w->prefix_len))
		w->kinds = 0;
	for (uint32_t at = w->head, wraps = w->tail < w->head; wraps || at != w->tail;) {
		struct wire_event *event = (void *)(w->bytes + at);

		if (wraps && at == w->end) {
			at = wraps = 0;
			continue;
		}
		if (!is_for(agent, event->kind, event + 1, event->key_len))
			event->kind = 0;
		at += size_of(event);
	}
	kv_watch_writable(agent);
}
