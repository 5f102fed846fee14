/*
 * watch.c: changes of keys. The server answers a WATCH with a batch of events when it has some. There is room for two
 * batches: one that the caller reads, whose keys stay until its next kv_events(), and one that comes meanwhile. While
 * both are full nothing is asked for, and the server counts what is missed.
 */
#include "client/kv/kv.h"

#include <stdlib.h>

#define ROOM (16u * 1024)
#define KINDS ((unsigned)(KV_EVENT_STORED | KV_EVENT_DELETED | KV_EVENT_EXPIRED | KV_EVENT_EVICTED | KV_EVENT_TTL))

_Static_assert(ROOM >= WIRE_EVENTS_MIN, "a batch has room for any event");
_Static_assert((int)KV_EVENT_STORED == WIRE_EVENT_STORED && (int)KV_EVENT_DELETED == WIRE_EVENT_DELETED &&
		       (int)KV_EVENT_EXPIRED == WIRE_EVENT_EXPIRED && (int)KV_EVENT_EVICTED == WIRE_EVENT_EVICTED &&
		       (int)KV_EVENT_TTL == WIRE_EVENT_TTL && (int)KV_EVENT_FLUSHED == WIRE_EVENT_FLUSHED,
	       "the kinds of events are the wire's");

struct batch {
	bool began;          /* it is the first of a watch, or of a connection */
	uint64_t missed;     /* before its events */
	uint32_t at, length; /* what was not read yet of `bytes` */
	_Alignas(8) char bytes[ROOM];
};

struct kv_watch {
	uint32_t kinds;   /* 0: there is none */
	uint32_t id;      /* of its WATCHes; those of an earlier watch have others */
	bool begins;      /* a WATCH is to be sent that begins it, or ends it */
	bool asked;       /* a WATCH of it waits for its answer */
	bool first;       /* the next answer is its first */
	bool told;        /* the progress thread has got a batch */
	int error;        /* that ended it, which kv_events() is to tell; 0: none */
	unsigned waiting; /* WATCHes that wait for their answers, also of earlier watches */
	unsigned reading; /* the batch that the caller reads; the other one is the next */
	struct batch batch[2];
	size_t prefix_len;
	char prefix[WIRE_KEY_MAX];
};

static bool batch_is_empty(const struct batch *b)
{
	return !b->began && !b->missed && b->at == b->length;
}

static struct batch *next_of(struct kv_watch *w)
{
	return &w->batch[!w->reading];
}

bool kv_watch_filled(const struct kv *kv)
{
	const struct kv *part;

	for (unsigned i = 0; (part = kv_part(kv, i)); i++) {
		const struct kv_watch *w = part->watching;

		if (w && (w->error || !batch_is_empty(&w->batch[0]) || !batch_is_empty(&w->batch[1])))
			return true;
	}
	return false;
}

void kv_watch_free(struct kv *kv)
{
	free(kv->watching);
}

/* A caller that waits sees that there is something. */
static void tell_caller(struct kv *kv)
{
	if (engine_defers(kv->engine)) {
		kv->watching->told = true;
		engine_defer(kv->engine, &kv->deferred);
	} else {
		++*kv->completed;
	}
}

void kv_watch_deliver(struct kv *kv)
{
	if (!kv->watching || !kv->watching->told)
		return;
	kv->watching->told = false;
	++*kv->completed;
}

/*
 * Asking
 */

void kv_watch_send(struct kv *kv)
{
	struct kv_watch *w = kv->watching;
	const uint64_t kinds = w ? w->kinds : 0;
	struct wire_record *record;
	uint32_t length = 0;

	if (!w || !kv->taking || (!w->begins && (!w->kinds || w->asked)) || (w->kinds && !batch_is_empty(next_of(w))))
		return;
	if (unlikely(!kv->watches)) { /* another server, in the place of one that had them */
		w->begins = false;
		w->error = w->kinds ? -EOPNOTSUPP : 0;
		w->kinds = 0;
		tell_caller(kv);
		return;
	}
	if (w->begins)
		length = (uint32_t)(sizeof(kinds) + w->prefix_len);
	record = conn_reserve(kv->conn, length, NULL);
	if (!record)
		return; /* again from writable() */
	record->id = w->id;
	record->op = WIRE_OP_WATCH;
	record->arg = ROOM;
	if (w->begins) {
		memcpy(record + 1, &kinds, sizeof(kinds));
		memcpy((char *)(record + 1) + sizeof(kinds), w->prefix, w->prefix_len);
	}
	conn_commit(kv->conn, record, length);
	w->begins = false;
	w->asked = true;
	w->waiting++;
}

/* The next event of a batch, of any kind; false where there is none, and *bad where it does not lie in it. */
static bool batch_next(struct batch *b, struct wire_event *event, const char **key, bool *bad)
{
	uint32_t left = b->length - b->at;

	*bad = left && left < sizeof(*event);
	if (!left || *bad)
		return false;
	memcpy(event, b->bytes + b->at, sizeof(*event));
	left -= (uint32_t)sizeof(*event);
	*bad = event->key_len > WIRE_KEY_MAX || WIRE_PAD(event->key_len) > left;
	if (*bad)
		return false;
	*key = b->bytes + b->at + sizeof(*event);
	b->at += (uint32_t)sizeof(*event) + WIRE_PAD(event->key_len);
	return true;
}

/* False: it cannot be read. */
static bool batch_take(struct batch *b, const char *body, uint32_t length)
{
	struct wire_event event;
	const char *key;
	bool bad;

	if (length < sizeof(b->missed) || length - sizeof(b->missed) > sizeof(b->bytes))
		return false;
	memcpy(&b->missed, body, sizeof(b->missed));
	b->at = 0;
	b->length = length - (uint32_t)sizeof(b->missed);
	memcpy(b->bytes, body + sizeof(b->missed), b->length);
	while (batch_next(b, &event, &key, &bad))
		continue;
	b->at = 0;
	return !bad;
}

int kv_watch_answered(struct kv *kv, const struct wire_record *record, const char *body)
{
	struct kv_watch *w = kv->watching;
	struct batch *b;

	if (!w || !w->waiting || !(record->flags & WIRE_REPLY))
		return -EPROTO;
	w->waiting--;
	if (record->id != w->id)
		return 0; /* of an earlier watch */
	if (!w->asked)
		return -EPROTO;
	w->asked = false;
	if (record->status != WIRE_OK) {
		w->error = w->kinds ? kv_status_errno(record->status) : 0;
		w->kinds = 0;
		tell_caller(kv);
		return 0;
	}
	if (!w->kinds)
		return 0;
	b = next_of(w);
	must(batch_is_empty(b));
	if (!batch_take(b, body, record->length))
		return -EPROTO;
	b->began = w->first;
	w->first = false;
	if (!batch_is_empty(b))
		tell_caller(kv);
	kv_watch_send(kv);
	return 0;
}

void kv_watch_end(struct kv *kv)
{
	struct kv_watch *w = kv->watching;

	if (!w)
		return;
	w->waiting = 0;
	w->asked = false;
	w->begins = w->first = w->kinds;
}

/*
 * The calls
 */

static int watch_check(const struct kv *kv, const void *prefix, size_t prefix_len, unsigned kinds)
{
	int rc = kv_begin_given(kv, prefix || !prefix_len, "kv_watch needs a prefix where that has a length");

	if (rc != 0)
		return rc;
	if (kinds & ~KINDS)
		return log_fail(-EINVAL, "kv", "kv_watch takes kinds of events, which %#x are not", kinds & ~KINDS);
	if (prefix_len > WIRE_KEY_MAX)
		return log_fail(-ENAMETOOLONG, "kv", "the prefix has %zu bytes; a key has at most %u", prefix_len,
				WIRE_KEY_MAX);
	return 0;
}

static int watch_begin(struct kv *kv, const void *prefix, size_t prefix_len, unsigned kinds)
{
	struct kv_watch *w = kv->watching;

	if (kv->closed)
		return -ENOTCONN;
	if (kv_readable(prefix, prefix_len, "the prefix") != 0)
		return -EFAULT;
	if (kv->taking && !kv->watches)
		return log_fail(-EOPNOTSUPP, "kv", "the server at %s tells of no events: it is an older one",
				kv->server);
	if (!w)
		w = kv->watching = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->kinds = kinds;
	w->id++;
	w->begins = w->first = true;
	w->asked = false;
	w->error = 0;
	for (unsigned i = 0; i < ARRAY_SIZE(w->batch); i++) {
		w->batch[i].began = false;
		w->batch[i].missed = w->batch[i].at = w->batch[i].length = 0;
	}
	w->prefix_len = prefix_len;
	if (prefix_len)
		memcpy(w->prefix, prefix, prefix_len);
	kv_watch_send(kv);
	return 0;
}

static bool has_watch(const struct kv *kv)
{
	return kv->watching && kv->watching->kinds;
}

void kv_watch_follow(struct kv *kv)
{
	struct kv_nodes *nodes = kv->nodes;

	for (unsigned i = 0; i < nodes->count; i++) {
		struct kv *part = nodes->member[i];
		unsigned kinds = part->retired ? 0 : nodes->kinds;

		if (kinds || has_watch(part))
			watch_begin(part, nodes->prefix, nodes->prefix_len, kinds);
	}
}

/* Servers that come later watch too. */
static void watch_note(struct kv_nodes *nodes, const void *prefix, size_t prefix_len, unsigned kinds)
{
	nodes->kinds = kinds;
	nodes->prefix_len = prefix_len;
	if (prefix_len)
		memcpy(nodes->prefix, prefix, prefix_len);
}

int kv_watch(void *kv_handle, const void *prefix, size_t prefix_len, unsigned kinds)
{
	struct kv *kv = kv_handle, *part;
	int rc = watch_check(kv, prefix, prefix_len, kinds);

	if (rc != 0)
		return rc;
	kv_enter(kv);
	if (kv->nodes)
		watch_note(kv->nodes, prefix, prefix_len, kinds);
	for (unsigned i = 0; rc == 0 && (part = kv_part(kv, i)); i++)
		if (!part->retired && (kinds || has_watch(part)))
			rc = watch_begin(part, prefix, prefix_len, kinds);
	kv_leave(kv);
	return kv_end(kv, rc, "kv_watch");
}

/* Hands on up to `count` events of a batch. */
static size_t batch_read(struct batch *b, struct kv_event *out, size_t count)
{
	struct wire_event event;
	const char *key;
	bool bad;
	size_t n = 0;

	if (n < count && b->began)
		out[n++] = (struct kv_event){.kind = KV_EVENT_BEGAN};
	if (n)
		b->began = false;
	if (n < count && b->missed) {
		out[n++] = (struct kv_event){.kind = KV_EVENT_MISSED, .missed = b->missed};
		b->missed = 0;
	}
	while (n < count && batch_next(b, &event, &key, &bad))
		if (event.kind & (KINDS | KV_EVENT_FLUSHED)) /* else it is of a later server */
			out[n++] = (struct kv_event){.kind = (enum kv_event_kind)event.kind,
						     .fresh = event.flags & WIRE_EVENT_FRESH,
						     .key = event.key_len ? key : NULL,
						     .key_len = event.key_len};
	return n;
}

/* Hands on what there is, in the first call after a wait; the keys of the call before go. */
static size_t events_take(struct kv *kv, struct kv_event *out, size_t count)
{
	struct kv_watch *w = kv->watching;
	size_t n = batch_read(&w->batch[w->reading], out, count);

	if (n == 0 && !batch_is_empty(next_of(w))) {
		w->reading = !w->reading;
		n = batch_read(&w->batch[w->reading], out, count);
		kv_watch_send(kv);
		if (kv->conn)
			conn_flush(kv->conn);
	}
	return n;
}

/* The same of all servers, each in its turn the first. */
static size_t events_take_all(struct kv *kv, struct kv_event *out, size_t count)
{
	unsigned parts = kv->nodes ? kv->nodes->count : 1, first = kv->nodes ? kv->nodes->next++ : 0;
	size_t n = 0;

	for (unsigned i = 0; i < parts && n < count; i++) {
		struct kv *part = kv_part(kv, (first + i) % parts);

		n += part->watching ? events_take(part, out + n, count - n) : 0;
	}
	return n;
}

/* Why none will come; 0: they may. */
static int watch_over(struct kv *kv)
{
	bool watched = false;
	struct kv *part;

	for (unsigned i = 0; (part = kv_part(kv, i)); i++) {
		struct kv_watch *w = part->watching;
		int error = w ? w->error : 0;

		if (error) {
			w->error = 0;
			return error;
		}
		watched |= has_watch(part);
	}
	if (!watched)
		return log_fail(-EINVAL, "kv", "kv_events needs a watch, which kv_watch begins");
	return 0;
}

/* How long to wait; 0 where there are events, or will be none. */
static uint64_t events_wait(const struct kv *kv, uint64_t until, uint64_t now)
{
	bool watched = false;

	for (unsigned i = 0; kv_part(kv, i); i++)
		watched |= has_watch(kv_part(kv, i));
	if (!watched || kv_watch_filled(kv) || now >= until)
		return 0;
	return until == TIME_NEVER ? UINT64_MAX : (until - now) / TIME_US + 1;
}

int64_t kv_events(void *kv_handle, struct kv_event *events, size_t count, uint64_t timeout_us)
{
	struct kv *kv = kv_handle;
	uint64_t until = time_after(time_now(), time_of_us(timeout_us)), now, wait;
	int rc = kv_begin_given(kv, events && count, "kv_events needs room for events");
	size_t n = 0;

	if (rc != 0)
		return rc;
	/* What callers of callbacks wait for ends no wait for events. */
	do {
		now = time_now();
		kv_enter(kv);
		wait = events_wait(kv, until, now);
		kv_leave(kv);
		rc = kv_progress(kv, wait);
		if (rc == -EDEADLK)
			return rc;
		kv_enter(kv);
		n = events_take_all(kv, events, count);
		if (n == 0 && rc >= 0)
			rc = watch_over(kv);
		kv_leave(kv);
	} while (n == 0 && rc >= 0 && now < until);
	return n ? (int64_t)n : kv_end(kv, MIN(rc, 0), "kv_events");
}
