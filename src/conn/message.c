/* message.c: messages built, posted, received and taken apart; credits. */
#include "conn/internal.h"

#define CHAIN_MAX 16 /* messages posted by one call */

void conn_mark_dirty(struct conn *conn)
{
	if (!list_linked(&conn->dirty))
		list_add_tail(&conn->group->dirty, &conn->dirty);
}

void conn_mark_stuck(struct conn *conn)
{
	if (list_linked(&conn->stuck))
		return;
	conn->stuck_since = conn->group->now;
	list_add_tail(&conn->group->stuck, &conn->stuck);
	if (conn->group->attr.stall_timeout)
		conn_timer_set(conn, conn->group->now + conn->group->attr.stall_timeout);
}

static struct memory_pool *send_pool(const struct conn *conn)
{
	return conn->own ? conn->own : conn->group->sends;
}

static void send_put(struct conn *conn, struct memory_buffer *buffer)
{
	conn->sends--;
	memory_pool_put(send_pool(conn), buffer);
}

/* Begin a message: takes a buffer and, if it is for records, a credit. The pool has a share for each connection, its
 * window: whatever a peer grants, what it leaves untaken is never the others'. */
static bool message_open(struct conn *conn, bool records)
{
	must(!conn->open);
	if (records ? !conn_may_send(conn) : conn->sends >= conn->window + WIRE_RETURNS_MAX)
		return false;
	conn->open = memory_pool_get(send_pool(conn));
	if (!conn->open)
		return false;
	conn->sends++;
	conn->credits -= records;
	conn->open->owner = conn;
	conn->open_used = sizeof(struct wire_message);
	return true;
}

/* The message being built is complete: behind the ready ones. */
static void message_seal(struct conn *conn)
{
	struct wire_message *m = conn->open->addr;

	must(!conn->ready || *conn->ready_tail == NULL);
	m->length = conn->open_used;
	m->credits = 0;
	m->flags = 0;
	conn->open->next = NULL;
	*conn->ready_tail = conn->open;
	conn->ready_tail = &conn->open->next;
	conn->open = NULL;
}

struct wire_record *conn_reserve(struct conn *conn, uint32_t body, uint32_t *room)
{
	struct wire_record *record;
	uint32_t at;

	must(conn_group_is_mine(conn->group));
	if (unlikely(conn->state != CONN_ESTABLISHED || body > WIRE_BODY_MAX(conn->message_size)))
		return NULL;
	at = WIRE_PAD(conn->open_used);
	if (conn->open && (uint64_t)at + sizeof(*record) + body > conn->message_size)
		message_seal(conn);
	if (!conn->open) {
		if (!message_open(conn, true)) {
			conn->want_writable = true;
			conn_mark_stuck(conn);
			return NULL;
		}
		at = sizeof(struct wire_message);
	}
	record = (void *)((char *)conn->open->addr + at);
	*record = (struct wire_record){0};
	if (room)
		*room = conn->message_size - at - (uint32_t)sizeof(*record);
	return record;
}

bool conn_has_room(const struct conn *conn, uint32_t body)
{
	uint64_t end = (uint64_t)WIRE_PAD(conn->open_used) + sizeof(struct wire_record) + body;

	return conn->state == CONN_ESTABLISHED && ((conn->open && end <= conn->message_size) || conn_may_send(conn));
}

void conn_commit(struct conn *conn, struct wire_record *record, uint32_t length)
{
	must(conn_group_is_mine(conn->group) && conn->open);
	must((char *)record > (char *)conn->open->addr);
	must((char *)(record + 1) + length <= (char *)conn->open->addr + conn->message_size);
	record->length = length;
	conn->open_used = (uint32_t)((char *)(record + 1) - (char *)conn->open->addr) + length;
	conn->records_out++;
	conn_mark_dirty(conn);
}

/* An inlined message is out of its buffer when the post returns, so it asks for no completion; but its place in the
 * send queue comes back only with that of a later one, so now and then one asks. */
static bool wants_completion(const struct conn *conn, uint32_t length, uint64_t number)
{
	return length > conn->group->inline_size || number % (conn->window / 2) == 0;
}

static void sending_begins(struct conn *conn)
{
	conn->send_since = conn->group->now;
	if (conn->watch_sends)
		conn_timer_set(conn, conn->send_since + conn->group->attr.stall_timeout);
}

/* Post a chain of up to CHAIN_MAX ready messages; the first carries the credits that are owed, and flags. False: none left
 * or no room in the send queue. */
static bool messages_post(struct conn *conn)
{
	struct fabric_wr wr[CHAIN_MAX];
	struct memory_buffer *buffer = conn->ready, *next;
	unsigned n = 0;
	int rc;

	if (!buffer)
		return false;
	((struct wire_message *)buffer->addr)->credits = (uint16_t)conn->owed;
	((struct wire_message *)buffer->addr)->flags = conn->say;
	for (; buffer && n < CHAIN_MAX; buffer = buffer->next, n++) {
		const struct wire_message *m = buffer->addr;
		bool inlined = !wants_completion(conn, m->length, conn->messages_out + n);

		wr[n] = (struct fabric_wr){
			.id = inlined ? CONN_ID_UNSIGNALED : (uintptr_t)buffer | CONN_ID_SEND,
			.opcode = FABRIC_SEND,
			.signaled = !inlined,
			.sge_count = 1,
			.sge = {{buffer->addr, m->length, buffer->region}},
			.next = NULL,
		};
		if (n)
			wr[n - 1].next = &wr[n];
	}
	rc = fabric_post(conn->endpoint, wr);
	if (rc == -EAGAIN) {
		conn_mark_stuck(conn); /* inlined sends bring no completion that would retry */
		return false;
	}
	if (rc != 0) {
		conn_close(conn, rc, "cannot send: %s", strerror(-rc));
		return false;
	}
	conn->unreturned -= conn->owed;
	conn->owed = 0;
	conn->say = 0;
	if (list_empty(&conn->sending))
		sending_begins(conn);
	for (unsigned i = 0; i < n; i++, conn->ready = next) {
		buffer = conn->ready;
		next = buffer->next;
		conn->bytes_out += wr[i].sge[0].len;
		conn->messages_out++;
		if (wr[i].signaled) {
			conn->in_flight++;
			list_add_tail(&conn->sending, &buffer->node);
		} else {
			send_put(conn, buffer);
		}
	}
	if (!conn->ready)
		conn->ready_tail = &conn->ready;
	return conn->ready != NULL;
}

/* With no records to send, credits go back by a message of their own when half of them are owed, and flags likewise. It takes
 * no credit, or two peers that wait for credits could each wait for ever for the other's return. */
static void return_credits(struct conn *conn)
{
	if (conn->open)
		conn->credits++; /* begun for records, which did not come */
	else if (!message_open(conn, false))
		conn_mark_stuck(conn);
	if (conn->open)
		message_seal(conn);
}

void conn_messages_flush(struct conn *conn)
{
	must(list_linked(&conn->dirty));
	list_del(&conn->dirty);
	if (conn->state != CONN_ESTABLISHED)
		return;
	if (conn->open && conn->open_used > sizeof(struct wire_message))
		message_seal(conn);
	else if (!conn->ready && (conn->owed * 2 >= conn->granted || conn->say))
		return_credits(conn);
	while (messages_post(conn))
		;
}

void conn_wait_writable(struct conn *conn)
{
	must(conn_group_is_mine(conn->group));
	conn->want_writable = true;
	conn_mark_stuck(conn);
}

void conn_charge(struct conn *conn, unsigned records)
{
	must(conn_group_is_mine(conn->group));
	conn->group->units -= (int32_t)MIN(records, (unsigned)CONN_LOOK_UNITS);
}

bool conn_time_left(struct conn *conn)
{
	return !conn_group_look(conn->group);
}

void conn_yield(struct conn *conn)
{
	must(conn_group_is_mine(conn->group));
	conn->busy = true;
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
	conn->send_since = conn->group->now;
	list_del(&buffer->node);
	send_put(conn, buffer);
	if (unlikely(conn->ready && conn->state == CONN_ESTABLISHED))
		conn_mark_dirty(conn);
}

/* A record was carried out: whether it is time to look after others. One that is long takes long. */
static inline bool record_ends_visit(struct conn_group *group, const struct wire_record *record)
{
	group->units -= 1 + (int32_t)(record->length / CONN_UNIT_BYTES);
	return unlikely(group->units <= 0) && conn_group_look(group);
}

int conn_message_take_apart(struct conn *conn, const void *data, size_t bytes, size_t *offset)
{
	const struct wire_record *record;
	size_t at = *offset;
	int rc;

	while ((record = wire_record_next(data, bytes, &at))) {
		rc = conn->ops->record(conn, record, record + 1);
		if (unlikely(rc != 0))
			return rc;
		conn->records_in++;
		*offset = at;
		if (unlikely(conn->state != CONN_ESTABLISHED))
			return 0;
		if (record_ends_visit(conn->group, record) && at < bytes) {
			conn_yield(conn);
			return -EAGAIN;
		}
	}
	return at == 0 ? -EBADMSG : 0;
}

void conn_violation(struct conn *conn, int error, const char *what)
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

/* What the peer asks, it is told at once. */
static __attribute__((cold)) bool conn_take_flags(struct conn *conn, uint16_t flags)
{
	if (flags & WIRE_ANSWER)
		conn->probing = false;
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

static bool conn_take_credits(struct conn *conn, const struct wire_message *m)
{
	if (unlikely(conn->credits + m->credits > conn->credits_max)) {
		conn_violation(conn, -EPROTO, "more credits returned than were taken");
		return false;
	}
	if (unlikely(m->flags) && !conn_take_flags(conn, m->flags))
		return false;
	if (unlikely(!m->credits && m->length == sizeof(*m) && !m->flags)) {
		conn_violation(conn, -EPROTO, "a message of nothing");
		return false;
	}
	if (m->credits)
		conn->stuck_since = conn->group->now; /* it takes what it is sent */
	conn->credits += m->credits;
	return true;
}

void conn_consumed(struct conn *conn)
{
	conn->owed++;
	if (conn->owed * 2 >= conn->granted)
		conn_mark_dirty(conn);
}

/* Each message with records and each immediate takes one of the credits that the peer was granted. */
static bool within_credits(struct conn *conn, const char *what)
{
	if (likely(++conn->unreturned <= conn->granted))
		return true;
	conn_violation(conn, -EPROTO, what);
	return false;
}

/* Whether something that came must wait for what came before it. */
static bool must_park(const struct conn *conn)
{
	return unlikely(conn->state != CONN_ESTABLISHED || conn->parked);
}

static void message_received(struct conn *conn, const void *data, uint32_t bytes)
{
	const struct wire_message *m = wire_message_check(data, bytes);
	size_t offset = sizeof(*m);
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
	if (!conn_take_credits(conn, m) || bytes == sizeof(*m))
		return;
	if (must_park(conn)) {
		conn_park_message(conn, data, bytes, offset);
		return;
	}
	rc = conn_message_take_apart(conn, data, bytes, &offset);
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
	if (must_park(conn))
		conn_park_immediate(conn, imm);
	else if (conn_hand_immediate(conn, imm) == 0)
		conn_consumed(conn);
}

void conn_messages_resume(struct conn *conn)
{
	uint64_t since = conn->stuck_since;

	must(list_linked(&conn->stuck));
	list_del(&conn->stuck);
	conn->busy = false;
	if (conn->state != CONN_ESTABLISHED)
		return;
	if (conn->ready || conn->say || conn->owed * 2 >= conn->granted)
		conn_mark_dirty(conn);
	if (conn->want_writable && conn_may_send(conn)) {
		conn->want_writable = false;
		if (conn->ops->writable)
			conn->ops->writable(conn);
	}
	if (conn_parked_resume(conn) == -EAGAIN || conn->want_writable) {
		conn_mark_stuck(conn);
		if (!conn->busy)
			conn->stuck_since = since;
	}
}

void conn_messages_drop(struct conn *conn)
{
	struct memory_buffer *buffer, *next;

	while (!list_empty(&conn->sending)) {
		buffer = list_first(&conn->sending, struct memory_buffer, node);
		list_del(&buffer->node);
		send_put(conn, buffer);
	}
	if (conn->open) {
		send_put(conn, conn->open);
		conn->open = NULL;
	}
	for (buffer = conn->ready; buffer; buffer = next) {
		next = buffer->next;
		send_put(conn, buffer);
	}
	conn->ready = NULL;
	conn->ready_tail = &conn->ready;
	conn_parked_drop(conn);
}

bool conn_idle(const struct conn *conn)
{
	return !conn->ready && !conn->parked && !conn->want_writable && conn->in_flight == 0 &&
	       (!conn->open || conn->open_used == sizeof(struct wire_message));
}
