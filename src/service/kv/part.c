/*
 * part.c: values that are read into memory which the request names, all of them or a part; what is to happen to the key
 * happens in the same step. A write into a value makes another, as values do not change: the old one is copied, so it
 * has a limit, beyond which clients do that themselves.
 */
#include "service/kv/kv.h"

#define TRIES 8 /* to be faster than other writers of the key, in one turn */

struct part {
	struct kv_named to;
	struct wire_fetch fetch;
	struct kv_again *again; /* a GET_INTO that comes again; NULL: none that does */
	struct store_ref ref;
	uint64_t at, len; /* of the range that was asked for, what the value has */
};

/* Carries out what follows the reading. False: the key was changed meanwhile, and is read again. */
static bool part_then(struct kv_agent *agent, const struct part *p)
{
	struct store *store = agent->thread->store;
	uint64_t now = kv_now(agent->thread);

	switch ((enum wire_then)p->fetch.then) {
	case WIRE_THEN_DELETE:
		return store_delete(store, p->to.key, p->to.key_len, p->ref.version, now) == 1;
	case WIRE_THEN_EXPIRE:
		return store_expire(store, p->to.key, p->to.key_len, p->ref.version, kv_expires_of(p->fetch.ttl, now),
				    now) == 1;
	case WIRE_THEN_NOTHING:
	case WIRE_THENS:
		break;
	}
	return true;
}

/* Encodes what an answer has before the bytes. Returns its length. */
static uint32_t head_encode(char *body, const struct wire_record *request, const struct part *p)
{
	struct wire_whole whole = {p->ref.len, p->ref.version};

	if (request->op != WIRE_OP_GET_INTO) {
		memcpy(body, &whole, sizeof(whole));
		return sizeof(whole);
	}
	memcpy(body, &whole.version, request->flags & WIRE_VERSIONED);
	return request->flags & WIRE_VERSIONED;
}

static int part_inline(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
		       const struct part *p)
{
	struct wire_record *reply = conn_reserve(conn, sizeof(struct wire_whole) + (uint32_t)p->len, NULL);
	uint32_t head;

	if (!reply)
		return -EAGAIN;
	if (!part_then(agent, p))
		return -ESTALE;
	head = head_encode((char *)(reply + 1), request, p);
	memcpy((char *)(reply + 1) + head, (char *)p->ref.addr + p->at, p->len);
	kv_answer(conn, agent, request, reply, WIRE_OK, head + (uint32_t)p->len,
		  p->fetch.then == WIRE_THEN_NOTHING ? p->ref.version : kv_tells_all(agent, request));
	return 0;
}

/* What follows the reading comes when the bytes are on their way; but first where it has to be on disk before they
 * leave: they wait for that, and the request does not come again. */
static int part_write_then(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
			   struct wire_record *reply, struct part *p, struct kv_write *w)
{
	int rc;

	if (kv_gate_is_on(agent, request)) {
		w->later = true;
		if (!part_then(agent, p)) {
			kv_hold_cancel(agent, p->ref.len);
			return -ESTALE;
		}
		w->tells = kv_gate_all(agent);
		return kv_write_value(conn, agent, request, reply, w, &p->ref);
	}
	rc = kv_write_part(conn, agent, request, w, &p->ref);
	if (rc != 0)
		return rc;
	p->ref.item = NULL; /* pinned until it is written */
	if (!part_then(agent, p))
		return -ESTALE; /* written in vain: the next one goes behind it */
	kv_write_answer(conn, agent, request, reply, w);
	return 0;
}

static int part_write(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, struct part *p)
{
	struct wire_record *reply = conn_reserve(conn, KV_WRITE_BODY, NULL);
	struct kv_write w = {.to = p->to.ranges, .at = p->at, .len = p->len, .tells = p->ref.version};
	int rc;

	if (!reply)
		return -EAGAIN;
	if (!kv_hold_take(agent, p->ref.len))
		return kv_hold_wait(conn, agent);
	memcpy(w.body, &p->len, sizeof(p->len));
	w.body_len = (uint32_t)sizeof(p->len) + head_encode(w.body + sizeof(p->len), request, p);
	rc = p->fetch.then == WIRE_THEN_NOTHING ? kv_write_value(conn, agent, request, reply, &w, &p->ref)
						: part_write_then(conn, agent, request, reply, p, &w);
	if (rc == 0)
		p->ref.item = NULL; /* pinned until it is written */
	return rc;
}

/* -ESTALE: again. */
static int part_serve(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, struct part *p)
{
	const struct wire_ways can = {
		.named = p->to.ranges.length,
		.ranges = p->to.ranges.count,
		.fits = p->fetch.flags & WIRE_FETCH_FITS,
		.direct = request->flags & WIRE_WRITTEN,
		.moves = agent->arena,
	};
	struct wire_record *reply = conn_reserve(conn, 0, NULL);
	enum wire_way way;
	uint64_t tells;
	int rc;

	if (!reply)
		return -EAGAIN;
	rc = kv_again_get(agent, p->again, p->to.key, p->to.key_len, &p->ref);
	if (rc == 0 && p->ref.type != STORE_STRING) {
		kv_again_put_back(agent, p->again, &p->ref);
		rc = -EMEDIUMTYPE;
	}
	if (rc != 0) {
		tells = rc == -EMEDIUMTYPE ? p->ref.version
					   : kv_tells_removed(agent, request, p->to.key, p->to.key_len);
		kv_answer(conn, agent, request, reply, wire_status_of(rc), 0, tells);
		kv_again_end(agent, p->again, false);
		return 0;
	}
	p->at = MIN(p->fetch.offset, p->ref.len);
	p->len = MIN(p->fetch.length, p->ref.len - p->at);
	way = wire_way((enum wire_op)request->op, p->len, &can);
	if (way == WIRE_WAY_MESSAGE)
		rc = part_inline(conn, agent, request, p);
	else if (way == WIRE_WAY_NONE)
		rc = kv_answer_too_large(conn, agent, request, p->to.key, p->to.key_len, p->len, p->ref.version);
	else
		rc = part_write(conn, agent, request, p);
	if (rc != 0 || way == WIRE_WAY_NONE) {
		kv_again_put_back(agent, p->again, &p->ref);
	} else {
		store_unpin(agent->thread->store, &p->ref);
		kv_again_end(agent, p->again, true);
	}
	return rc;
}

int kv_serve_fetch(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		   struct wire_record *reply)
{
	const bool get = request->op == WIRE_OP_GET_INTO;
	const uint32_t head = get ? 0 : sizeof(struct wire_fetch);
	struct part p;
	int rc = -ESTALE;

	if (!kv_named_read(conn, request, body, head, !get, &p.to))
		return -EPROTO;
	p.fetch = (struct wire_fetch){.length = UINT64_MAX};
	memcpy(&p.fetch, p.to.head, head);
	if (p.fetch.then >= WIRE_THENS)
		return -EPROTO;
	if (!conn_transfer_room(conn, MAX(p.to.ranges.count, 1u))) {
		conn_wait_writable(conn);
		return -EAGAIN;
	}
	p.again = get ? kv_again_find(agent, request) : NULL;
	if (!p.again && kv_get_waits(agent, p.to.key, p.to.key_len))
		return kv_hold_wait(conn, agent);
	/* What follows the reading would find no room, and the bytes would go in vain. */
	if (p.fetch.then != WIRE_THEN_NOTHING && store_changes_full(agent->thread->store) &&
	    kv_write_waits(conn, agent, -EAGAIN))
		return -EAGAIN;
	for (unsigned i = 0; i < TRIES && rc == -ESTALE; i++)
		rc = part_serve(conn, agent, request, &p);
	if (rc != -ESTALE)
		return rc;
	conn_yield(conn);
	return -EAGAIN;
}

/* Writing into a value, or behind it. */
struct edit {
	const char *key, *bytes;
	uint32_t key_len, len;
	uint64_t at;
	struct wire_whole whole;
};

/* -EEXIST, -ENOENT, -ESTALE: another writer was faster. */
static int edit_once(struct kv_agent *agent, uint64_t offset, struct edit *e, struct store_ref *old)
{
	struct store *store = agent->thread->store;
	uint64_t now = kv_now(agent->thread);
	struct store_put put = {
		.condition = STORE_IF_VERSION, .expires = TIME_NEVER, .keep_expiry = true, .owner = agent->owner};
	struct store_ref fresh;
	uint64_t kept, end;
	char *to;
	int rc;

	if (!store_get(store, e->key, e->key_len, now, old)) {
		*old = (struct store_ref){0};
		put.condition = STORE_IF_ABSENT;
	}
	if (old->type != STORE_STRING)
		return -EMEDIUMTYPE;
	put.version = old->version;
	put.keep_attributes = old->flags;
	e->at = offset == WIRE_APPEND ? old->len : offset;
	if (e->at > WIRE_EDIT_MAX - e->len)
		return -EMSGSIZE;
	e->whole.length = MAX(old->len, e->at + e->len);
	if (e->whole.length > MIN(WIRE_EDIT_MAX, kv_agent_value_max(agent)))
		return -EMSGSIZE;
	rc = store_reserve_for(store, e->key, e->key_len, e->whole.length, &put, now, &fresh);
	if (rc != 0)
		return rc;
	to = fresh.addr;
	kept = MIN(old->len, e->at);
	end = e->at + e->len;
	if (kept)
		memcpy(to, old->addr, kept);
	memset(to + kept, 0, e->at - kept);
	if (e->len)
		memcpy(to + e->at, e->bytes, e->len);
	if (old->len > end)
		memcpy(to + end, (char *)old->addr + end, old->len - end);
	return store_publish(store, &fresh, &put, now, &e->whole.version);
}

int kv_serve_edit(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		  struct wire_record *reply)
{
	uint32_t length = request->length - (uint32_t)sizeof(uint64_t);
	struct edit e = {.key = body + sizeof(uint64_t), .key_len = request->arg};
	struct store_ref old;
	bool late; /* another writer was faster */
	int rc;

	if (e.key_len < 1 || e.key_len > MIN(WIRE_KEY_MAX, length) || length > WIRE_EAGER_MAX)
		return -EPROTO;
	e.bytes = e.key + e.key_len;
	e.len = length - e.key_len;
	do {
		rc = edit_once(agent, kv_number(body), &e, &old);
		store_unpin(agent->thread->store, &old);
		late = rc == -EEXIST || rc == -ENOENT || rc == -ESTALE;
	} while ((late && conn_time_left(conn)) || kv_step_again(conn, agent, rc));
	conn_charge(conn, 1 + (unsigned)(e.whole.length / 4096));
	if (late) {
		conn_yield(conn);
		return -EAGAIN;
	}
	if (kv_write_waits(conn, agent, rc))
		return -EAGAIN;
	return kv_answer_result(conn, agent, request, reply, rc, &e.whole, sizeof(e.whole),
				rc == 0 ? e.whole.version : kv_tells_all(agent, request));
}
