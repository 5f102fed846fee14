/*
 * kv_more.c: what the key/value service does beside get, set, delete and exists: conditions, versions, expiry,
 * numbers, walks. All of it is eager; a large value put under a condition is in rendezvous.c.
 */
#include "service/kv.h"

_Static_assert((int)WIRE_ALWAYS == STORE_ALWAYS && (int)WIRE_IF_ABSENT == STORE_IF_ABSENT &&
		       (int)WIRE_IF_PRESENT == STORE_IF_PRESENT && (int)WIRE_IF_VERSION == STORE_IF_VERSION,
	       "a condition has one number on the wire and in the store");

#define SCAN_KEYS 256          /* looked at for one request: some ten microseconds under the store's locks */
#define SCAN_PAGE (64u * 1024) /* bytes copied under them at most */
#define SCAN_ROOM ((uint32_t)(sizeof(uint64_t) + sizeof(struct wire_entry)) + WIRE_PAD(WIRE_KEY_MAX))
_Static_assert(SCAN_ROOM <= WIRE_BODY_MAX(WIRE_MESSAGE_MIN), "any key fits the page that it is first in");

uint64_t kv_expires(uint64_t ttl, uint64_t now)
{
	if (ttl == 0 || ttl >= (TIME_NEVER - now) / TIME_US)
		return TIME_NEVER;
	return now + ttl * TIME_US;
}

/* Rounded up: what is left is never told as 0, which would be for ever. */
static uint64_t ttl_left(uint64_t expires, uint64_t now)
{
	return expires == TIME_NEVER ? 0 : (expires - now - 1) / TIME_US + 1;
}

static struct wire_meta meta_of(const struct store_meta *meta, uint64_t now)
{
	return (struct wire_meta){meta->len, meta->version, ttl_left(meta->expires, now)};
}

struct store_put kv_store_put(const struct wire_put *put, uint64_t now)
{
	return (struct store_put){
		.condition = (enum store_condition)put->condition,
		.version = put->version,
		.expires = kv_expires(put->ttl, now),
	};
}

/* With a body of up to 16 bytes, where it went well. */
static int answer(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
		  struct wire_record *reply, int rc, const void *body, uint32_t length)
{
	if (rc == 0 && length)
		memcpy(reply + 1, body, length);
	kv_answer(conn, agent->thread, request, reply, rc == 0 ? WIRE_OK : wire_status_of(rc), rc == 0 ? length : 0);
	return 0;
}

int kv_serve_put(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body)
{
	struct kv_thread *thread = agent->thread;
	uint32_t key_len = request->arg, length = request->length - (uint32_t)sizeof(struct wire_put);
	const char *key = body + sizeof(struct wire_put);
	struct wire_record *reply;
	struct store_put put;
	struct wire_put wire;
	uint64_t version;
	int rc;

	memcpy(&wire, body, sizeof(wire));
	if (key_len < 1 || key_len > WIRE_KEY_MAX || key_len > length || wire.condition >= WIRE_CONDITIONS)
		return -EPROTO;
	reply = conn_reserve(conn, sizeof(version), NULL);
	if (!reply)
		return -EAGAIN;
	thread->part.count[KV_COUNT_SETS]++;
	if (length > WIRE_EAGER_MAX) {
		reply->arg = WIRE_EAGER_MAX;
		return answer(conn, agent, request, reply, -EMSGSIZE, NULL, 0);
	}
	put = kv_store_put(&wire, kv_now(thread));
	rc = store_set(thread->store, key, key_len, key + key_len, length - key_len, &put, kv_now(thread), &version);
	return answer(conn, agent, request, reply, rc, &version, sizeof(version));
}

int kv_serve_stat(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body)
{
	struct kv_thread *thread = agent->thread;
	struct wire_record *reply = conn_reserve(conn, sizeof(struct wire_meta), NULL);
	struct wire_meta wire = {0};
	struct store_meta meta;
	int found;

	if (!reply)
		return -EAGAIN;
	thread->part.count[KV_COUNT_STATS]++;
	found = store_stat(thread->store, body, request->length, kv_now(thread), &meta);
	if (found)
		wire = meta_of(&meta, kv_now(thread));
	return answer(conn, agent, request, reply, found ? 0 : -ENOENT, &wire, sizeof(wire));
}

/* The number that some bodies begin with. */
static uint64_t number_of(const char *body)
{
	uint64_t number;

	memcpy(&number, body, sizeof(number));
	return number;
}

int kv_serve_expire(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body)
{
	struct kv_thread *thread = agent->thread;
	struct wire_record *reply = conn_reserve(conn, 0, NULL);
	uint64_t expires = kv_expires(number_of(body), kv_now(thread));
	int found;

	if (!reply)
		return -EAGAIN;
	thread->part.count[KV_COUNT_EXPIRES]++;
	found = store_expire(thread->store, body + sizeof(uint64_t), request->length - sizeof(uint64_t), expires,
			     kv_now(thread));
	return answer(conn, agent, request, reply, found ? 0 : -ENOENT, NULL, 0);
}

int kv_serve_delete_if(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body)
{
	struct kv_thread *thread = agent->thread;
	struct wire_record *reply;
	int rc;

	if (!number_of(body)) /* no version, and to the store: any */
		return -EPROTO;
	reply = conn_reserve(conn, 0, NULL);
	if (!reply)
		return -EAGAIN;
	thread->part.count[KV_COUNT_DELETES]++;
	rc = store_delete(thread->store, body + sizeof(uint64_t), request->length - sizeof(uint64_t), number_of(body),
			  kv_now(thread));
	if (rc >= 0)
		rc = rc == 1 ? 0 : -ENOENT;
	return answer(conn, agent, request, reply, rc, NULL, 0);
}

int kv_serve_incr(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body)
{
	struct kv_thread *thread = agent->thread;
	struct {
		int64_t number;
		uint64_t version;
	} sum = {0};
	struct wire_record *reply = conn_reserve(conn, sizeof(sum), NULL);
	int rc;

	if (!reply)
		return -EAGAIN;
	thread->part.count[KV_COUNT_INCRS]++;
	rc = store_incr(thread->store, body + sizeof(uint64_t), request->length - sizeof(uint64_t),
			(int64_t)number_of(body), kv_now(thread), &sum.number, &sum.version);
	if (rc == -EINVAL) /* the key was checked: it is the value */
		rc = -EDOM;
	return answer(conn, agent, request, reply, rc, &sum, sizeof(sum));
}

struct page {
	char *at, *end;
	uint64_t now;
	uint32_t count, limit;
};

/* Under a stripe's lock: a key is copied into the answer, or it comes first in the next. */
static bool page_add(void *arg, const void *key, size_t key_len, const struct store_meta *meta)
{
	struct page *page = arg;
	struct wire_entry entry = {meta_of(meta, page->now), (uint32_t)key_len, 0};
	size_t padded = WIRE_PAD(key_len);

	if (page->count == page->limit || sizeof(entry) + padded > (size_t)(page->end - page->at))
		return false;
	memcpy(page->at, &entry, sizeof(entry));
	page->at += sizeof(entry);
	memset(page->at + padded - sizeof(uint64_t), 0, sizeof(uint64_t)); /* the padding */
	memcpy(page->at, key, key_len);
	page->at += padded;
	page->count++;
	return true;
}

int kv_serve_scan(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body)
{
	struct kv_thread *thread = agent->thread;
	uint64_t cursor = number_of(body);
	struct wire_record *reply;
	struct page page;
	uint32_t room;

	reply = conn_reserve(conn, SCAN_ROOM, &room);
	if (!reply)
		return -EAGAIN;
	thread->part.count[KV_COUNT_SCANS]++;
	page = (struct page){
		.at = (char *)(reply + 1) + sizeof(cursor),
		.end = (char *)(reply + 1) + MIN(room, SCAN_PAGE),
		.now = kv_now(thread),
		.limit = request->arg ? request->arg : UINT32_MAX,
	};
	store_scan(thread->store, &cursor, MIN(page.limit, SCAN_KEYS), body + sizeof(cursor),
		   request->length - sizeof(cursor), kv_now(thread), page_add, &page);
	memcpy(reply + 1, &cursor, sizeof(cursor));
	reply->arg = page.count;
	kv_answer(conn, thread, request, reply, WIRE_OK, (uint32_t)(page.at - (char *)(reply + 1)));
	return 0;
}

int kv_serve_flush(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body)
{
	struct {
		uint64_t cursor, deleted;
	} flushed = {number_of(body), 0};
	struct wire_record *reply = conn_reserve(conn, sizeof(flushed), NULL);

	if (!reply)
		return -EAGAIN;
	agent->thread->part.count[KV_COUNT_FLUSHES]++;
	flushed.deleted = store_flush_some(agent->thread->store, &flushed.cursor);
	return answer(conn, agent, request, reply, 0, &flushed, sizeof(flushed));
}

int kv_serve_info(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body)
{
	struct wire_record *reply = conn_reserve(conn, sizeof(struct wire_info), NULL);
	struct store_stats stats;
	struct wire_info info;

	(void)body;
	if (!reply)
		return -EAGAIN;
	agent->thread->part.count[KV_COUNT_INFOS]++;
	store_get_stats(agent->thread->store, &stats);
	info = (struct wire_info){
		.key_max = WIRE_KEY_MAX,
		.eager_max = WIRE_EAGER_MAX,
		.value_max = kv_agent_value_max(agent),
		.keys = stats.items,
		.bytes_used = stats.bytes_used,
		.bytes_total = stats.bytes_total,
		.hits = stats.hits,
		.misses = stats.misses,
		.evictions = stats.evictions,
		.expired = stats.expired,
	};
	return answer(conn, agent, request, reply, 0, &info, sizeof(info));
}
