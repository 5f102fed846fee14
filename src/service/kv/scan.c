/* scan.c: operations on all keys: a walk over them, their deletion, figures of the store. Long ones go in steps, a
 * request each. */
#include "service/kv/kv.h"

#define SCAN_KEYS 256          /* looked at for one request: some ten microseconds under the store's locks */
#define SCAN_CHARGE 32         /* as many short requests take as long as that */
#define FLUSH_CHARGE 128       /* and as a step of the store's */
#define SCAN_PAGE (64u * 1024) /* bytes copied under them at most */
#define SCAN_ROOM KV_GATE_BODY
_Static_assert(SCAN_ROOM <= WIRE_BODY_MAX(WIRE_MESSAGE_MIN), "any key fits the page that it is first in");

struct scan_page {
	char *at, *end;
	uint64_t now;
	uint32_t count, limit;
	const struct kv_view *hiding; /* keys of slots that are not this server's; NULL: there are none */
};

/* Under a stripe's lock: a key is copied into the answer, or it comes first in the next. */
static bool scan_page_add(void *arg, const void *key, size_t key_len, const struct store_meta *meta)
{
	struct scan_page *page = arg;
	struct wire_entry entry = {kv_wire_meta(meta, page->now), (uint32_t)key_len, 0};
	size_t padded = WIRE_PAD(key_len);

	if (unlikely(page->hiding) && kv_view_hides(page->hiding, key, key_len))
		return true;
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

int kv_serve_scan(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		  struct wire_record *reply)
{
	const struct kv_cluster *cluster = ((const struct kv_shared *)agent->thread->part.shared)->cluster;
	const struct kv_view *view = cluster ? kv_cluster_view(cluster) : NULL;
	const unsigned unknown = view ? kv_view_unknown(view) : CLUSTER_SLOTS;
	struct kv_thread *thread = agent->thread;
	uint64_t cursor = kv_number(body);
	struct scan_page page;
	uint32_t room;

	if (unlikely(unknown < CLUSTER_SLOTS))
		return kv_answer_elsewhere(conn, agent, request, unknown);
	reply = conn_reserve(conn, SCAN_ROOM, &room);
	if (!reply)
		return -EAGAIN;
	if (kv_gate_is_on(agent, request))
		room = KV_GATE_BODY; /* it may have to wait */
	page = (struct scan_page){
		.at = (char *)(reply + 1) + sizeof(cursor),
		.end = (char *)(reply + 1) + MIN(room, SCAN_PAGE),
		.now = kv_now(thread),
		.limit = request->arg ? request->arg : UINT32_MAX,
		.hiding = view && view->hidden ? view : NULL,
	};
	store_scan(thread->store, &cursor, MIN(page.limit, SCAN_KEYS), body + sizeof(cursor),
		   request->length - sizeof(cursor), kv_now(thread), scan_page_add, &page);
	memcpy(reply + 1, &cursor, sizeof(cursor));
	reply->arg = page.count;
	kv_answer(conn, agent, request, reply, WIRE_OK, (uint32_t)(page.at - (char *)(reply + 1)),
		  kv_tells_all(agent, request));
	conn_charge(conn, SCAN_CHARGE);
	return 0;
}

int kv_serve_flush(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		   struct wire_record *reply)
{
	struct {
		uint64_t cursor, deleted;
	} flushed = {kv_number(body), 0};
	int rc = store_flush_some(agent->thread->store, &flushed.cursor, &flushed.deleted);

	conn_charge(conn, FLUSH_CHARGE);
	if (rc == -EAGAIN && store_flushes_held(agent->thread->store)) {
		kv_hold_retry(conn, agent->thread);
		return -EAGAIN;
	}
	if (kv_write_waits(conn, agent, rc))
		return -EAGAIN;
	return kv_answer_result(conn, agent, request, reply, rc, &flushed, sizeof(flushed),
				kv_tells_all(agent, request));
}

int kv_serve_info(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		  struct wire_record *reply)
{
	struct store_stats stats;
	struct wire_info info;

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
	return kv_answer_result(conn, agent, request, reply, 0, &info, sizeof(info), kv_tells_all(agent, request));
}
