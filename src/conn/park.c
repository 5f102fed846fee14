/* park.c: messages and immediates that came too early, or whose answers find no room, or that wait for their turn. */
#include "conn/internal.h"

#include <stdlib.h>

#define SPARES 64      /* kept by a group */
#define ROOM_STEP 1024 /* of their sizes */
#define STAND_STILL TIME_S

static uint64_t parked_size(const struct conn_parked *p)
{
	return sizeof(*p) + p->room;
}

static void parked_count(struct conn *conn, int64_t change)
{
	conn->parked.bytes += (uint64_t)change;
	conn->group->parked_bytes += (uint64_t)change;
}

static void parked_free(struct conn *conn, struct conn_parked *p)
{
	struct conn_group *group = conn->group;

	if (conn->state <= CONN_ESTABLISHED)
		parked_count(conn, -(int64_t)parked_size(p));
	if (p->room > group->attr.message_size || group->spares == SPARES) {
		free(p);
		return;
	}
	p->next = group->spare;
	group->spare = p;
	group->spares++;
}

void conn_spares_free(struct conn_group *group)
{
	while (group->spare) {
		struct conn_parked *p = group->spare;

		group->spare = p->next;
		free(p);
	}
}

/* The connection with most of the waiting bytes goes, not the last one. */
static __attribute__((cold, noinline)) bool parked_make_room(struct conn *conn)
{
	struct list *stuck = &conn->group->stuck; /* all are in it, but for one that is to come in */
	struct conn *most = conn;

	list_for_each (pos, stuck) {
		struct conn *each = container_of(pos, struct conn, stuck.node);

		if (each->state == CONN_ESTABLISHED && each->parked.bytes > most->parked.bytes)
			most = each;
	}
	most->group->stats.overparked++;
	conn_close(most, -ENOBUFS, "its requests are most of those that wait, and there are too many");
	return most != conn;
}

/* The last parked message, to be filled in. NULL: the connection was closed for want of memory. */
static struct conn_parked *parked_add(struct conn *conn, size_t bytes)
{
	size_t room = (bytes + ROOM_STEP - 1) / ROOM_STEP * ROOM_STEP;
	struct conn_group *group = conn->group;
	struct conn_parked *p;

	if (unlikely(group->attr.parked && group->parked_bytes + sizeof(*p) + bytes > group->attr.parked) &&
	    !parked_make_room(conn))
		return NULL;
	/* A parked message leaves its memory to the next one, so that in the long run nothing is allocated. */
	p = group->spare;
	if (p && p->room >= bytes) {
		group->spare = p->next;
		group->spares--;
	} else {
		p = malloc(sizeof(*p) + room);
		if (!p) {
			conn_close(conn, -ENOMEM, "no memory for a message of %zu bytes", bytes);
			return NULL;
		}
		p->room = room;
	}
	p->next = NULL;
	p->bytes = bytes;
	p->immediate = false;
	*conn->parked.tail = p;
	conn->parked.tail = &p->next;
	if (conn->state <= CONN_ESTABLISHED)
		parked_count(conn, (int64_t)parked_size(p));
	return p;
}

/* A connection that only waits for its turn goes on whatever the peer does: until then the stream stands still before
 * what is pushed. A connection that waits for the peer drops it, as what it waits for may stand behind it; and so does
 * one that has waited for turns for long, as the peer may have asked behind it whether this side is there. */
static bool parked_may_stand_still(const struct conn *conn)
{
	return (conn->stuck.busy || conn->stuck.behind) && conn->state == CONN_ESTABLISHED &&
	       (!conn->parked.still_until || conn->group->now < conn->parked.still_until);
}

static __attribute__((noinline)) void parked_drop_pushed(struct conn *conn)
{
	conn->parked.still_until = 0;
	for (struct conn_parked *p = conn->parked.first; p; p = p->next)
		if (!p->immediate)
			conn_park_pushed(conn, p);
}

void conn_park_message(struct conn *conn, const void *data, size_t bytes, size_t offset)
{
	struct conn_parked *p = parked_add(conn, bytes);

	if (!p)
		return;
	memcpy(p->data, data, bytes);
	p->offset = p->told = offset;
	if (likely(!conn->accept.push_max))
		return;
	if (!parked_may_stand_still(conn))
		conn_park_pushed(conn, p);
	else if (!conn->parked.still_until)
		conn->parked.still_until = conn->group->now + STAND_STILL;
}

void conn_park_immediate(struct conn *conn, uint32_t imm)
{
	struct conn_parked *p = parked_add(conn, 0);

	if (!p)
		return;
	p->immediate = true;
	p->imm = imm;
}

int conn_parked_resume(struct conn *conn)
{
	struct conn_parked *p;
	int rc = 0;

	while ((p = conn->parked.first) && conn->state == CONN_ESTABLISHED) {
		if (conn->pace.used && conn_pace_waits(conn))
			rc = -EAGAIN;
		else if (p->immediate)
			rc = conn_hand_immediate(conn, p->imm);
		else
			rc = conn_message_take_apart(conn, p->data, p->bytes, &p->offset, &p->told);
		if (rc == -EAGAIN) {
			if (unlikely(conn->parked.still_until && !parked_may_stand_still(conn)))
				parked_drop_pushed(conn);
			return rc;
		}
		if (rc != 0) {
			if (conn->state == CONN_ESTABLISHED)
				conn_bad_record(conn, rc);
			return rc;
		}
		conn->parked.first = p->next;
		if (!conn->parked.first)
			conn->parked.tail = &conn->parked.first;
		parked_free(conn, p);
		conn_consumed(conn);
		if (conn->group->visited && conn->parked.first) {
			conn_yield(conn);
			return -EAGAIN;
		}
	}
	if (!conn->parked.first)
		conn->parked.still_until = 0;
	return rc;
}

void conn_parked_forget(struct conn *conn)
{
	parked_count(conn, -(int64_t)conn->parked.bytes);
}

void conn_parked_drop(struct conn *conn)
{
	while (conn->parked.first) {
		struct conn_parked *p = conn->parked.first;

		conn->parked.first = p->next;
		parked_free(conn, p);
	}
	conn->parked.tail = &conn->parked.first;
}
