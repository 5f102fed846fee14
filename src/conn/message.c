/* message.c: messages built, posted, received and taken apart; credits. */
#include "conn/internal.h"

#include <stdlib.h>

#define CHAIN_MAX 16 /* messages posted by one call */

static void conn_mark_dirty(struct conn *conn)
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
		conn_timer_set(conn->group, conn->group->now + conn->group->attr.stall_timeout);
}

static struct memory_pool *send_pool(const struct conn *conn)
{
	return conn->own ? conn->own : conn->group->sends;
}

/* Begin a message: takes a buffer and, if it is for records, a credit. */
static bool message_open(struct conn *conn, bool records)
{
	must(!conn->open);
	if (records && !conn->credits)
		return false;
	conn->open = memory_pool_get(send_pool(conn));
	if (!conn->open)
		return false;
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
	return length > conn->group->inline_size || number % (conn->credits_max / 2) == 0;
}

/* Post a chain of up to CHAIN_MAX ready messages; the first carries the credits that are owed. False: none left
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
	for (unsigned i = 0; i < n; i++, conn->ready = next) {
		buffer = conn->ready;
		next = buffer->next;
		conn->bytes_out += wr[i].sge[0].len;
		conn->messages_out++;
		if (wr[i].signaled) {
			conn->in_flight++;
			list_add_tail(&conn->sending, &buffer->node);
		} else {
			memory_pool_put(send_pool(conn), buffer);
		}
	}
	if (!conn->ready)
		conn->ready_tail = &conn->ready;
	return conn->ready != NULL;
}

/* With nothing to say, credits go back by a message of their own when half of them are owed. It takes
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
	else if (!conn->ready && conn->owed * 2 >= conn->granted)
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
	list_del(&buffer->node);
	memory_pool_put(send_pool(conn), buffer);
	if (unlikely(conn->ready && conn->state == CONN_ESTABLISHED))
		conn_mark_dirty(conn);
}

/* A record was carried out: whether it is time to look after others. One that is long takes long. */
static inline bool record_ends_visit(struct conn_group *group, const struct wire_record *record)
{
	group->units -= 1 + (int32_t)(record->length / CONN_UNIT_BYTES);
	return unlikely(group->units <= 0) && conn_group_look(group);
}

/* Hand each record from *offset on to the service. 0, -EAGAIN with *offset at the record to
 * try again or to go on with, or the violation. */
static int message_take_apart(struct conn *conn, const void *data, size_t bytes, size_t *offset)
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

static void conn_violation(struct conn *conn, int error, const char *what)
{
	conn->group->stats.violations++;
	conn_close(conn, error, "%s", what);
}

static void bad_record(struct conn *conn, int error)
{
	conn_violation(conn, error,
		       error == -EBADMSG ? "a record's length is beyond its message"
					 : "a request that breaks the protocol");
}

static bool conn_take_credits(struct conn *conn, const struct wire_message *m)
{
	if (unlikely(conn->credits + m->credits > conn->credits_max)) {
		conn_violation(conn, -EPROTO, "more credits returned than were taken");
		return false;
	}
	if (unlikely(!m->credits && m->length == sizeof(*m))) {
		conn_violation(conn, -EPROTO, "a message of nothing");
		return false;
	}
	if (m->credits)
		conn->stuck_since = conn->group->now; /* it takes what it is sent */
	conn->credits += m->credits;
	return true;
}

static void conn_consumed(struct conn *conn)
{
	conn->owed++;
	if (conn->owed * 2 >= conn->granted)
		conn_mark_dirty(conn);
}

static bool parked_long(const struct conn_group *group, size_t bytes)
{
	return bytes > group->attr.message_size;
}

/* What was parked before leaves its memory to what comes, so that in the long run nothing is allocated. */
static struct conn_parked *parked_new(struct conn_group *group, size_t bytes)
{
	struct conn_parked *p = group->spare;

	if (!p || parked_long(group, bytes))
		return malloc(sizeof(*p) + MAX(bytes, (size_t)group->attr.message_size));
	group->spare = p->next;
	group->spares--;
	return p;
}

static void parked_done(struct conn_group *group, struct conn_parked *p)
{
	if (parked_long(group, p->bytes) || group->spares == CONN_SPARES) {
		free(p);
		return;
	}
	p->next = group->spare;
	group->spare = p;
	group->spares++;
}

/* The last of those that are parked, to be filled in. NULL: the connection was closed for want of memory. */
static struct conn_parked *parked_add(struct conn *conn, size_t bytes)
{
	struct conn_parked *p = parked_new(conn->group, bytes);

	if (!p) {
		conn_close(conn, -ENOMEM, "no memory for a message of %zu bytes", bytes);
		return NULL;
	}
	p->next = NULL;
	p->bytes = bytes;
	p->immediate = false;
	*conn->parked_tail = p;
	conn->parked_tail = &p->next;
	return p;
}

static void park_message(struct conn *conn, const void *data, size_t bytes, size_t offset)
{
	struct conn_parked *p = parked_add(conn, bytes);

	if (!p)
		return;
	memcpy(p->data, data, bytes);
	p->offset = offset;
}

static void park_immediate(struct conn *conn, uint32_t imm)
{
	struct conn_parked *p = parked_add(conn, 0);

	if (!p)
		return;
	p->immediate = true;
	p->imm = imm;
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
	if (!conn_take_credits(conn, m) || bytes == sizeof(*m))
		return;
	if (must_park(conn)) {
		park_message(conn, data, bytes, offset);
		return;
	}
	rc = message_take_apart(conn, data, bytes, &offset);
	if (likely(rc == 0)) {
		conn_consumed(conn);
	} else if (rc == -EAGAIN) {
		park_message(conn, data, bytes, offset);
		conn_mark_stuck(conn);
	} else if (conn->state == CONN_ESTABLISHED) { /* else it ended for another reason */
		bad_record(conn, rc);
	}
}

void conn_message_received(struct conn *conn, struct memory_buffer *buffer, uint32_t bytes)
{
	if (likely(conn->state <= CONN_ESTABLISHED))
		message_received(conn, buffer->addr, bytes);
}

/* 0, or the violation. */
static int hand_immediate(struct conn *conn, uint32_t imm)
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
	if (must_park(conn))
		park_immediate(conn, imm);
	else if (hand_immediate(conn, imm) == 0)
		conn_consumed(conn);
}

static int parked_resume_one(struct conn *conn, struct conn_parked *p)
{
	return p->immediate ? hand_immediate(conn, p->imm) : message_take_apart(conn, p->data, p->bytes, &p->offset);
}

static int parked_resume(struct conn *conn)
{
	struct conn_parked *p;
	int rc = 0;

	while ((p = conn->parked) && conn->state == CONN_ESTABLISHED) {
		rc = parked_resume_one(conn, p);
		if (rc == -EAGAIN)
			return rc;
		if (rc != 0) {
			if (conn->state == CONN_ESTABLISHED)
				bad_record(conn, rc);
			return rc;
		}
		conn->parked = p->next;
		if (!conn->parked)
			conn->parked_tail = &conn->parked;
		parked_done(conn->group, p);
		conn_consumed(conn);
		if (conn->group->visited && conn->parked) {
			conn_yield(conn);
			return -EAGAIN;
		}
	}
	return rc;
}

void conn_messages_resume(struct conn *conn)
{
	uint64_t since = conn->stuck_since;

	must(list_linked(&conn->stuck));
	list_del(&conn->stuck);
	conn->busy = false;
	if (conn->state != CONN_ESTABLISHED)
		return;
	if (conn->ready || conn->owed * 2 >= conn->granted)
		conn_mark_dirty(conn);
	if (conn->want_writable && conn->credits) {
		conn->want_writable = false;
		if (conn->ops->writable)
			conn->ops->writable(conn);
	}
	if (parked_resume(conn) == -EAGAIN || conn->want_writable) {
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
		memory_pool_put(send_pool(conn), buffer);
	}
	if (conn->open) {
		memory_pool_put(send_pool(conn), conn->open);
		conn->open = NULL;
	}
	for (buffer = conn->ready; buffer; buffer = next) {
		next = buffer->next;
		memory_pool_put(send_pool(conn), buffer);
	}
	conn->ready = NULL;
	conn->ready_tail = &conn->ready;
	while (conn->parked) {
		struct conn_parked *p = conn->parked;

		conn->parked = p->next;
		parked_done(conn->group, p);
	}
	conn->parked_tail = &conn->parked;
}

void conn_spares_free(struct conn_group *group)
{
	while (group->spare) {
		struct conn_parked *p = group->spare;

		group->spare = p->next;
		free(p);
	}
}

int conn_post_receive(struct conn *conn, struct memory_buffer *buffer)
{
	struct fabric_recv recv = {
		.id = (uintptr_t)buffer | CONN_ID_RECEIVE,
		.sge = {buffer->addr, conn->message_size, buffer->region},
	};

	return fabric_post_recv(conn->group->queue, conn->endpoint, &recv, 1);
}

bool conn_idle(const struct conn *conn)
{
	return !conn->ready && conn->in_flight == 0 && (!conn->open || conn->open_used == sizeof(struct wire_message));
}
