/* meet.c: where programs meet by a name: the table, its limit, its pages. */
#include "service/meet.h"

#include <stdlib.h>

int meet_limit_open(struct meet_limit *limit)
{
	return quota_create(limit->max, sizeof(struct fabric_source), &limit->quota);
}

int meet_table_open(struct meet_table *table)
{
	pthread_mutex_init(&table->lock, NULL);
	table->name = calloc(table->limit.max, sizeof(struct meet_name *));
	return table->name ? meet_limit_open(&table->limit) : -ENOMEM;
}

void meet_table_close(struct meet_table *table)
{
	must(!table->entered);
	pthread_mutex_destroy(&table->lock);
	free(table->name);
	quota_destroy(table->limit.quota);
}

/* Under the lock. */
static struct quota_share *limit_take(struct meet_limit *limit, const struct conn *conn, const char **why)
{
	struct fabric_source source;
	struct quota_share *share;
	unsigned met;

	fabric_endpoint_source(conn_endpoint(conn), &source);
	met = quota_take(limit->quota, fabric_source_key(&source), limit->per_source, &share);
	if (met)
		*why = met & QUOTA_ALL ? limit->full : limit->enough;
	return share;
}

struct quota_share *meet_take(struct meet_limit *limit, pthread_mutex_t *lock, const struct conn *conn,
			      const char **why)
{
	struct quota_share *share;

	pthread_mutex_lock(lock);
	share = limit_take(limit, conn, why);
	pthread_mutex_unlock(lock);
	return share;
}

/* Under the lock. */
static struct meet_name *name_look(const struct meet_table *table, const char *text, uint32_t len)
{
	for (uint32_t i = 0, left = table->entered; left; i++) {
		struct meet_name *name = table->name[i];

		left -= name != NULL;
		if (name && name->len == len && memcmp(name->text, text, len) == 0 && !name->over)
			return name;
	}
	return NULL;
}

struct meet_name *meet_find(struct meet_table *table, const char *text, uint32_t len, struct conn *conn)
{
	struct meet_name *name;

	conn_charge(conn, quota_taken(table->limit.quota) / MEET_NAMES_OF_RECORD);
	pthread_mutex_lock(&table->lock);
	name = name_look(table, text, len);
	pthread_mutex_unlock(&table->lock);
	return name;
}

/* Under the lock. A name with a share finds a place. */
static int name_place(struct meet_table *table, struct meet_name *name, const struct conn *conn, const char **why)
{
	if (name_look(table, name->text, name->len))
		return -EEXIST;
	name->share = limit_take(&table->limit, conn, why);
	if (!name->share)
		return -EBUSY;
	for (name->place = 0; table->name[name->place];)
		name->place++;
	table->name[name->place] = name;
	table->entered++;
	return 0;
}

int meet_enter(struct meet_table *table, struct meet_name *name, struct conn *conn, const char **why)
{
	int rc;

	conn_charge(conn, table->limit.max / MEET_PLACES_OF_RECORD);
	pthread_mutex_lock(&table->lock);
	rc = name_place(table, name, conn, why);
	pthread_mutex_unlock(&table->lock);
	return rc;
}

void meet_remove(struct meet_table *table, struct meet_name *name)
{
	pthread_mutex_lock(&table->lock);
	table->name[name->place] = NULL;
	table->entered--;
	pthread_mutex_unlock(&table->lock);
	quota_give(name->share);
	auth_wipe(name->secret, sizeof(name->secret));
}

static uint32_t names_put(struct meet_table *table, const struct auth_client *client, uint64_t *cursor, uint8_t *out,
			  uint32_t room)
{
	uint32_t at = (uint32_t)(*cursor >> 32), part = (uint32_t)*cursor, used = 0, bytes;

	pthread_mutex_lock(&table->lock);
	for (; at < table->limit.max; at++, part = 0) {
		const struct meet_name *name = table->name[at];

		if (!name || !auth_may(client, AUTH_NAMES, name->text, name->len))
			continue;
		bytes = table->entry(name, &part, out + used, room - used);
		used += bytes;
		if (!bytes || part)
			break;
	}
	pthread_mutex_unlock(&table->lock);
	*cursor = at < table->limit.max ? (uint64_t)at << 32 | part : 0;
	return used;
}

int meet_serve_list(struct conn *conn, const struct wire_record *record, const void *body, struct meet_table *table,
		    uint32_t page, bool hidden)
{
	struct wire_record *reply;
	uint32_t room, used = 0;
	uint64_t cursor;

	if (record->length != sizeof(cursor))
		return -EPROTO;
	reply = conn_reserve_reply(conn, record->op, record->id, page, &room);
	if (!reply)
		return -EAGAIN;
	memcpy(&cursor, body, sizeof(cursor));
	conn_charge(conn, table->limit.max / MEET_PLACES_OF_RECORD +
				  (quota_taken(table->limit.quota) + room / 32) / MEET_NAMES_OF_RECORD);
	if (hidden)
		cursor = 0;
	else
		used = names_put(table, conn_client(conn), &cursor, (uint8_t *)(reply + 1) + sizeof(cursor),
				 room - (uint32_t)sizeof(cursor));
	memcpy(reply + 1, &cursor, sizeof(cursor));
	conn_commit(conn, reply, (uint32_t)sizeof(cursor) + used);
	return 0;
}

int meet_refuse(struct conn *conn, struct wire_record *reply, enum wire_status status, const char *why)
{
	uint32_t len = (uint32_t)strlen(why);

	reply->status = (uint16_t)status;
	memcpy(reply + 1, why, len);
	conn_commit(conn, reply, len);
	return 0;
}

int meet_end_wait(struct conn *conn, struct wire_record *reply, enum wire_status status, const char *why)
{
	if (reply)
		return meet_refuse(conn, reply, status, why);
	conn_close(conn, -ETIMEDOUT, "%s, and it takes no answers", why);
	return 0;
}

void meet_log_end(struct conn *conn, const char *service, const char *reason)
{
	struct conn_info info;

	conn_get_info(conn, &info);
	log_warn(service, "%s (%s): %s", info.peer, info.transport, reason);
}
