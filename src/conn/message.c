/* message.c: messages built, posted, received and taken apart; credits. */
#include "conn/internal.h"

#define CHAIN_MAX 32 /* messages, and what is pushed behind them, posted by one call; but see messages_chain() */
#define LAST_PART 4  /* the part of its timeout that a peer has to take the last word */
_Static_assert(WIRE_PUSHES < CHAIN_MAX, "any message fits a chain");

void conn_mark_stuck(struct conn *conn)
{
	if (list_linked(&conn->stuck.node))
		return;
	conn->stuck.since = conn->group->now;
	list_add_tail(&conn->group->stuck, &conn->stuck.node);
	if (conn->group->attr.stall_timeout)
		conn_timer_set(conn, conn->group->now + conn->group->attr.stall_timeout);
}

static struct memory_pool *send_pool(const struct conn *conn)
{
	return conn->own.pool ? conn->own.pool : conn->group->sends;
}

static void send_put(struct conn *conn, struct memory_buffer *buffer)
{
	conn->send.buffers--;
	memory_pool_put(send_pool(conn), buffer);
}

/* Begin a message: takes a buffer and, if it is for records, a credit. The pool has a share for each connection, its
 * window: whatever a peer grants, what it leaves untaken is never the others'. */
enum message_kind { MESSAGE_PLAIN, MESSAGE_RECORDS };
static bool message_open(struct conn *conn, enum message_kind kind)
{
	bool records = kind == MESSAGE_RECORDS;

	must(!conn->open);
	if (records ? !conn_may_send(conn) : conn->send.buffers >= conn->send.window + WIRE_RETURNS_MAX)
		return false;
	conn->open = memory_pool_get(send_pool(conn));
	if (!conn->open)
		return false;
	conn->send.buffers++;
	conn->credit.left -= records;
	conn->begun += records;
	conn->open->owner = conn;
	conn->open_used = sizeof(struct wire_message);
	return true;
}

/* The message being built is complete: behind the ready ones. */
static void message_seal(struct conn *conn)
{
	struct wire_message *m = conn->open->addr;

	must(!conn->send.ready || *conn->send.ready_tail == NULL);
	m->length = conn->open_used;
	m->credits = 0;
	m->flags = 0;
	conn->open->count = conn->open_pushes;
	conn->open_pushes = 0;
	conn->open->next = NULL;
	*conn->send.ready_tail = conn->open;
	conn->send.ready_tail = &conn->open->next;
	conn->open = NULL;
}

static inline struct wire_record *record_at(struct conn *conn, uint32_t at, uint32_t *room)
{
	struct wire_record *record = (void *)((char *)conn->open->addr + at);

	*record = (struct wire_record){0};
	if (room)
		*room = conn->message_size - at - (uint32_t)sizeof(*record);
	return record;
}

/* The first of a message. */
static __attribute__((noinline)) struct wire_record *reserve_first(struct conn *conn, uint32_t body, uint32_t *room)
{
	if (!conn_speaks(conn) || body > WIRE_BODY_MAX(conn->message_size))
		return NULL;
	if (conn->open)
		message_seal(conn);
	if (message_open(conn, MESSAGE_RECORDS))
		return record_at(conn, sizeof(struct wire_message), room);
	conn->stuck.writable = true;
	conn_mark_stuck(conn);
	return NULL;
}

struct wire_record *conn_reserve(struct conn *conn, uint32_t body, uint32_t *room)
{
	uint32_t at = WIRE_PAD(conn->open_used);

	must(conn_group_is_mine(conn->group));
	if (unlikely(!conn->open || conn->state != CONN_ESTABLISHED ||
		     (uint64_t)at + sizeof(struct wire_record) + body > conn->message_size))
		return reserve_first(conn, body, room);
	/* The buffer was another connection's, and the peer is not to read in the padding what that one said. What is
	 * cleared beyond it the header covers. */
	memset((char *)conn->open->addr + conn->open_used, 0, sizeof(uint64_t));
	return record_at(conn, at, room);
}

struct wire_record *conn_reserve_reply(struct conn *conn, unsigned op, uint32_t id, uint32_t body, uint32_t *room)
{
	struct wire_record *reply = conn_reserve(conn, body, room);

	if (!reply)
		return NULL;
	reply->op = (uint8_t)op;
	reply->flags = WIRE_REPLY;
	reply->id = id;
	return reply;
}

bool conn_has_room(const struct conn *conn, uint32_t body)
{
	uint64_t end = (uint64_t)WIRE_PAD(conn->open_used) + sizeof(struct wire_record) + body;

	return conn->state == CONN_ESTABLISHED && ((conn->open && end <= conn->message_size) || conn_may_send(conn));
}

/* The first record since the last post, or as many values are pushed as a message takes. */
static __attribute__((noinline)) void commit_more(struct conn *conn)
{
	conn_mark_dirty(conn);
	if (conn->open_pushes == WIRE_PUSHES)
		message_seal(conn);
}

void conn_commit(struct conn *conn, struct wire_record *record, uint32_t length)
{
	must(conn_group_is_mine(conn->group) && conn->open);
	must((char *)record > (char *)conn->open->addr);
	must((char *)(record + 1) + length <= (char *)conn->open->addr + conn->message_size);
	record->length = length;
	conn->open_used = (uint32_t)((char *)(record + 1) - (char *)conn->open->addr) + length;
	conn->records_out++;
	if (unlikely(!list_linked(&conn->dirty) || conn->open_pushes == WIRE_PUSHES))
		commit_more(conn);
}

bool conn_say(struct conn *conn, const struct wire_record *head, const void *body, size_t length, const void *rest,
	      size_t rest_length)
{
	uint32_t whole = (uint32_t)(length + rest_length);
	struct wire_record *record = conn_reserve(conn, whole, NULL);

	if (!record)
		return false;
	*record = *head;
	if (length)
		memcpy(record + 1, body, length);
	if (rest_length)
		memcpy((char *)(record + 1) + length, rest, rest_length);
	conn_commit(conn, record, whole);
	return true;
}

/* Ready messages with what is pushed behind them, linked: no more messages than half of the send queue, which has at
 * least their window, as the peer may not have admitted it (fabric.h, promise 10). How many messages; *pushes: and
 * values. */
static inline unsigned messages_chain(struct conn *conn, struct fabric_wr wr[static CHAIN_MAX], unsigned *pushes)
{
	struct memory_buffer *buffer = conn->send.ready;
	const struct conn_transfer *push = conn->push.first;
	unsigned n = 0, messages = 0;

	for (; buffer && n + buffer->count < CHAIN_MAX && messages <= conn->send.window / 2;
	     buffer = buffer->next, messages++) {
		const struct wire_message *m = buffer->addr;
		/* An inlined message is out of its buffer when the post returns, so it asks for no completion; but its
		 * place in the send queue comes back only with that of a later one, so now and then one asks. */
		bool inlined = m->length <= conn->group->inline_size &&
			       (conn->messages_out + messages) % (conn->send.window / 2) != 0;

		wr[n++] = (struct fabric_wr){
			.id = inlined ? CONN_ID_UNSIGNALED : (uintptr_t)buffer | CONN_ID_SEND,
			.opcode = FABRIC_SEND,
			.signaled = !inlined,
			.sge_count = 1,
			.sge = {{buffer->addr, m->length, buffer->region}},
		};
		if (unlikely(buffer->count))
			push = conn_pushes_chain(push, buffer->count, &wr[n]);
		n += buffer->count;
	}
	for (unsigned i = 0; i < n; i++)
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
	*pushes = n - messages;
	return messages;
}

/* Messages that ask for a completion are in flight; the others are out of their buffers. */
static inline void messages_posted(struct conn *conn, const struct fabric_wr *wr, unsigned messages)
{
	for (unsigned requests; messages; messages--, wr += requests) {
		struct memory_buffer *buffer = conn->send.ready;

		requests = 1 + buffer->count;
		conn->send.ready = buffer->next;
		conn->bytes_out += wr->sge[0].len;
		conn->messages_out++;
		if (wr->signaled) {
			conn->in_flight++;
			list_add_tail(&conn->send.posted, &buffer->node);
		} else {
			send_put(conn, buffer);
		}
	}
	if (!conn->send.ready)
		conn->send.ready_tail = &conn->send.ready;
}

/* Post a chain of ready messages, as many as CHAIN_MAX requests are; the first carries the credits that are owed, and
 * flags. False: none left or no room in the send queue. */
static bool messages_post(struct conn *conn)
{
	struct fabric_wr wr[CHAIN_MAX];
	unsigned messages, pushes;
	int rc;

	if (!conn->send.ready)
		return false;
	((struct wire_message *)conn->send.ready->addr)->credits = (uint16_t)conn->credit.owed;
	((struct wire_message *)conn->send.ready->addr)->flags = conn->say;
	messages = messages_chain(conn, wr, &pushes);
	rc = fabric_post(conn->endpoint, wr);
	if (rc == -EAGAIN) {
		conn_mark_stuck(conn); /* inlined sends bring no completion that would retry */
		return false;
	}
	if (rc == -ENOTCONN)
		return false; /* its end is on its way, behind what the peer sent before */
	if (rc != 0) {
		conn_close(conn, rc, "cannot send: %s", strerror(-rc));
		return false;
	}
	conn->credit.unreturned -= conn->credit.owed;
	conn->credit.owed = 0;
	conn->say = 0;
	if (list_empty(&conn->send.posted)) {
		conn->send.since = conn->group->now;
		if (conn->send.watched)
			conn_timer_set(conn, conn->send.since + conn->group->attr.stall_timeout);
	}
	if (unlikely(pushes))
		conn_pushes_posted(conn, pushes);
	messages_posted(conn, wr, messages);
	return conn->send.ready != NULL;
}

/* With no records to send, credits go back by a message of their own when half of them are owed, and flags likewise. It
 * takes no credit, or two peers that wait for credits could each wait for ever for the other's return. */
static void message_return_credits(struct conn *conn)
{
	if (conn->open) { /* begun for records, which did not come */
		conn->credit.left++;
		conn->begun--;
	} else if (!message_open(conn, MESSAGE_PLAIN)) {
		conn_mark_stuck(conn);
	}
	if (conn->open)
		message_seal(conn);
}

void conn_messages_flush(struct conn *conn)
{
	must(list_linked(&conn->dirty));
	list_del(&conn->dirty);
	conn->push.held = 0;
	if (!conn_speaks(conn))
		return;
	if (conn->open && conn->open_used > sizeof(struct wire_message))
		message_seal(conn);
	else if (!conn->send.ready && (conn->credit.owed * 2 >= conn->credit.granted || conn->say))
		message_return_credits(conn);
	while (messages_post(conn))
		;
}

uint64_t conn_message_begun(const struct conn *conn)
{
	return conn->begun;
}

/* Count the bytes of messages with records that are not posted. */
static uint64_t count_unposted(const struct conn *conn)
{
	uint64_t n = conn->open != NULL;

	for (const struct memory_buffer *b = conn->send.ready; b; b = b->next)
		n += ((const struct wire_message *)b->addr)->length > sizeof(struct wire_message);
	return n;
}

uint64_t conn_message_unposted(const struct conn *conn)
{
	return conn->begun - conn->unposted - count_unposted(conn) + 1;
}

uint64_t conn_moved(const struct conn *conn)
{
	return conn->records_in + fabric_moved_bytes(conn->endpoint);
}

/* All that it asked for is answered, whether it has taken the answers or not. */
static bool owes_nothing(const struct conn *conn)
{
	return !conn->send.ready && !conn->parked.first && !conn->stuck.writable && !conn->transfer.count &&
	       (!conn->open || conn->open_used == sizeof(struct wire_message));
}

/* The only writer of conn->leave.state: tells the peer, as soon as it can hear. */
static void conn_set_leaving(struct conn *conn, enum conn_leaving state)
{
	must(state == conn->leave.state + 1);
	conn->leave.state = state;
	conn->leave.since = conn->group->now;
	conn->say |= state == CONN_LEFT ? WIRE_LAST : WIRE_GOAWAY;
	if (conn->state == CONN_ESTABLISHED)
		conn_mark_dirty(conn);
}

void conn_leave(struct conn *conn, uint64_t timeout, bool quiet)
{
	uint64_t since = conn->group->now - conn->leave.since;

	must(conn_group_is_mine(conn->group));
	if (conn->state == CONN_CONNECTING || conn->state > CONN_ESTABLISHED)
		return;
	if (conn->leave.state == CONN_STAYS)
		conn_set_leaving(conn, CONN_LEAVES);
	else if (conn->state != CONN_ESTABLISHED)
		return;
	else if (conn->leave.state == CONN_LEFT && (conn_idle(conn) || since >= timeout / LAST_PART))
		conn_close(conn, 0, "it stayed when told to leave");
	else if (conn->leave.state == CONN_LEAVES && quiet && owes_nothing(conn) && since >= timeout)
		conn_set_leaving(conn, CONN_LEFT);
}

void conn_wait_writable(struct conn *conn)
{
	must(conn_group_is_mine(conn->group));
	conn->stuck.writable = true;
	conn_mark_stuck(conn);
}

void conn_wait_pulled(struct conn *conn)
{
	conn->stuck.behind = true;
	conn_wait_writable(conn);
}

void conn_charge(struct conn *conn, unsigned records)
{
	must(conn_group_is_mine(conn->group));
	conn->group->units -= (int32_t)MIN(records, (unsigned)CONN_CLOCK_UNITS);
}

bool conn_time_left(struct conn *conn)
{
	return !conn_group_check_clock(conn->group);
}

void conn_yield(struct conn *conn)
{
	must(conn_group_is_mine(conn->group));
	conn->stuck.busy = true;
	conn->group->unfinished = true;
	conn->group->stats.yields++;
}

void conn_flush(struct conn *conn)
{
	must(conn_group_is_mine(conn->group));
	if (list_linked(&conn->dirty))
		conn_messages_flush(conn);
}

void conn_message_sent(struct conn *conn, struct memory_buffer *buffer)
{
	must(conn->in_flight && list_linked(&buffer->node));
	conn->in_flight--;
	conn->send.since = conn->group->now;
	list_del(&buffer->node);
	send_put(conn, buffer);
	if (unlikely(conn->send.ready && conn->state == CONN_ESTABLISHED))
		conn_mark_dirty(conn);
}

static inline bool is_pushed(const struct conn *conn, const struct wire_record *record)
{
	return record->flags & WIRE_PUSHED && conn->accept.push_max;
}

/* A parked message sees to the values of its records, this one's, too. */
static __attribute__((noinline)) int record_hand_flagged(struct conn *conn, const struct wire_record *record)
{
	int rc;

	if (!is_pushed(conn, record))
		return conn->ops->record(conn, record, record + 1);
	conn->push.pulled = false;
	rc = conn->ops->record(conn, record, record + 1);
	must(rc != -EAGAIN || !conn->push.pulled);
	if (rc == 0 && !conn->push.pulled)
		conn_drop_pushed(conn, 1);
	return rc;
}

void conn_park_pushed(struct conn *conn, struct conn_parked *p)
{
	size_t at = p->offset, next = p->offset;
	unsigned dropped = 0;

	for (; wire_record_next(p->data, p->bytes, &next); at = next) {
		struct wire_record *record = (void *)(p->data + at);

		if (!is_pushed(conn, record))
			continue;
		record->flags &= (uint8_t)~WIRE_PUSHED;
		dropped++;
	}
	conn_drop_pushed(conn, dropped);
}

/* Tell of the next few records. Where in the message the first one is that was not told of. */
static __attribute__((noinline)) size_t records_look_ahead(struct conn *conn, const void *data, size_t bytes, size_t at)
{
	const struct wire_record *record[CONN_AHEAD];
	unsigned n = 0;

	if (!conn->ops->ahead)
		return bytes;
	while (n < CONN_AHEAD && (record[n] = wire_record_next(data, bytes, &at)))
		n++;
	if (n > 1)
		conn->ops->ahead(conn, record, n);
	return n == CONN_AHEAD ? at : bytes;
}

int conn_message_take_apart(struct conn *conn, const void *data, size_t bytes, size_t *offset, size_t *told)
{
	struct conn_group *group = conn->group;
	const struct wire_record *record;
	size_t at = *offset;
	int rc;

	for (;;) {
		if (at >= *told && at < bytes)
			*told = records_look_ahead(conn, data, bytes, at);
		record = wire_record_next(data, bytes, &at);
		if (!record)
			break;
		if (unlikely(record->flags & WIRE_PUSHED))
			rc = record_hand_flagged(conn, record);
		else
			rc = conn->ops->record(conn, record, record + 1);
		if (unlikely(rc != 0))
			return rc;
		conn->records_in++;
		*offset = at;
		if (unlikely(conn->state != CONN_ESTABLISHED))
			return 0;
		group->units -= 1 + (int32_t)(record->length / CONN_UNIT_BYTES); /* one that is long takes long */
		if (unlikely(group->units <= 0) && conn_group_check_clock(group) && at < bytes) {
			conn_yield(conn);
			return -EAGAIN;
		}
	}
	return at == 0 ? -EBADMSG : 0;
}

static void conn_violation(struct conn *conn, int error, const char *what)
{
	conn->group->stats.violations++;
	conn_close(conn, error, "%s", what);
}

void conn_bad_record(struct conn *conn, int error)
{
	conn_violation(conn, error,
		       error == -EBADMSG ? "a record's length is beyond its message"
					 : "a request that breaks the protocol");
}

void conn_told_to_leave(struct conn *conn, uint16_t flags)
{
	if (conn->state != CONN_ESTABLISHED)
		conn->leave.told |= flags;
	else if (conn->ops->leave)
		conn->ops->leave(conn, flags & WIRE_LAST);
}

/* Answer what the peer asks at once. */
static __attribute__((cold)) bool message_handle_flags(struct conn *conn, uint16_t flags)
{
	if (flags & WIRE_ANSWER)
		conn->probe.pending = false;
	if (flags & WIRE_ADMITS) {
		conn->admitted = true;
		if (conn->state == CONN_ESTABLISHED)
			conn_choose_probe(conn);
	}
	if (flags & (WIRE_GOAWAY | WIRE_LAST))
		conn_told_to_leave(conn, flags);
	if (!(flags & WIRE_ASK))
		return true;
	if (conn->say & WIRE_ANSWER) {
		conn_violation(conn, -EPROTO, "asks again before it was answered");
		return false;
	}
	conn->say |= WIRE_ANSWER;
	conn_mark_dirty(conn);
	return true;
}

static bool message_credits(struct conn *conn, const struct wire_message *m)
{
	if (unlikely(conn->credit.left + m->credits > conn->credit.max)) {
		conn_violation(conn, -EPROTO, "more credits returned than were taken");
		return false;
	}
	if (unlikely(m->flags) && !message_handle_flags(conn, m->flags))
		return false;
	if (unlikely(!m->credits && m->length == sizeof(*m) && !m->flags)) {
		conn_violation(conn, -EPROTO, "a message of nothing");
		return false;
	}
	if (m->credits)
		conn->stuck.since = conn->group->now; /* it takes what it is sent */
	conn->credit.left += m->credits;
	return true;
}

void conn_consumed(struct conn *conn)
{
	conn->credit.owed++;
	if (conn->credit.owed * 2 >= conn->credit.granted)
		conn_mark_dirty(conn);
}

/* Each message with records and each immediate takes one of the credits that the peer was granted. */
static bool within_credits(struct conn *conn, const char *what)
{
	if (likely(++conn->credit.unreturned <= conn->credit.granted))
		return true;
	conn_violation(conn, -EPROTO, what);
	return false;
}

/* Whether something that came must wait for what came before it. */
static bool must_park(const struct conn *conn)
{
	return unlikely(conn->state != CONN_ESTABLISHED || conn->parked.first);
}

static void message_received(struct conn *conn, const void *data, uint32_t bytes)
{
	const struct wire_message *m = wire_message_check(data, bytes);
	size_t offset = sizeof(*m), told = offset;
	int rc;

	if (!m) {
		conn_violation(conn, -EBADMSG, "the message's length is not what it says");
		return;
	}
	if (bytes > sizeof(*m) && !within_credits(conn, "a message beyond its credits"))
		return;
	conn->messages_in++;
	conn->bytes_in += bytes;
	conn->heard = conn->group->now;
	if (!message_credits(conn, m) || bytes == sizeof(*m) || unlikely(conn->leave.state == CONN_LEFT))
		return;
	if (must_park(conn)) {
		if (conn->prover && !conn_prove_received(conn, data, bytes, &offset))
			return;
		if (must_park(conn)) {
			conn_park_message(conn, data, bytes, offset);
			return;
		}
		told = offset;
	}
	if (unlikely(conn->pace.used) && conn_pace_waits(conn)) {
		conn_park_message(conn, data, bytes, offset);
		conn_mark_stuck(conn);
		return;
	}
	if (unlikely(conn_had_visit(conn))) {
		conn_yield(conn);
		conn_park_message(conn, data, bytes, offset);
		conn_mark_stuck(conn);
		return;
	}
	rc = conn_message_take_apart(conn, data, bytes, &offset, &told);
	if (likely(rc == 0)) {
		conn_consumed(conn);
	} else if (rc == -EAGAIN) {
		conn_park_message(conn, data, bytes, offset);
		conn_mark_stuck(conn);
	} else if (conn->state == CONN_ESTABLISHED) { /* else it ended for another reason */
		conn_bad_record(conn, rc);
	}
}

void conn_message_received(struct conn *conn, struct memory_buffer *buffer, uint32_t bytes)
{
	if (likely(conn->state <= CONN_ESTABLISHED))
		message_received(conn, buffer->addr, bytes);
}

int conn_hand_immediate(struct conn *conn, uint32_t imm)
{
	if (unlikely(!conn->ops->immediate)) {
		conn_violation(conn, -EPROTO, "an immediate that nobody asked for");
		return -EPROTO;
	}
	conn->ops->immediate(conn, imm);
	return 0;
}

void conn_immediate_received(struct conn *conn, uint32_t imm)
{
	if (unlikely(conn->state > CONN_ESTABLISHED || !within_credits(conn, "an immediate beyond its credits")))
		return;
	conn->messages_in++;
	conn->heard = conn->group->now;
	if (conn_unproved(conn))
		conn_prove_failed(conn);
	else if (must_park(conn))
		conn_park_immediate(conn, imm);
	else if (conn_hand_immediate(conn, imm) == 0)
		conn_consumed(conn);
}

void conn_messages_resume(struct conn *conn)
{
	uint64_t since = conn->stuck.since;

	must(list_linked(&conn->stuck.node));
	list_del(&conn->stuck.node);
	conn->stuck.busy = conn->stuck.behind = false;
	if (conn->state != CONN_ESTABLISHED)
		return;
	if (conn->send.ready || conn->say || conn->credit.owed * 2 >= conn->credit.granted)
		conn_mark_dirty(conn);
	if (conn->stuck.writable && conn_may_send(conn)) {
		conn->stuck.writable = false;
		if (conn->ops->writable)
			conn->ops->writable(conn);
	}
	if (conn_parked_resume(conn) == -EAGAIN || conn->stuck.writable) {
		conn_mark_stuck(conn);
		if (!conn->stuck.busy)
			conn->stuck.since = since;
	}
}

void conn_messages_drop(struct conn *conn)
{
	struct memory_buffer *buffer, *next;

	conn->unposted += count_unposted(conn);
	while (!list_empty(&conn->send.posted)) {
		buffer = list_first(&conn->send.posted, struct memory_buffer, node);
		list_del(&buffer->node);
		send_put(conn, buffer);
	}
	if (conn->open) {
		send_put(conn, conn->open);
		conn->open = NULL;
		conn->open_pushes = 0;
	}
	for (buffer = conn->send.ready; buffer; buffer = next) {
		next = buffer->next;
		send_put(conn, buffer);
	}
	conn->send.ready = NULL;
	conn->send.ready_tail = &conn->send.ready;
	conn_parked_drop(conn);
}

bool conn_idle(const struct conn *conn)
{
	return !conn->say && conn->in_flight == 0 && owes_nothing(conn);
}
