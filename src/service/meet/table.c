/* table.c: the names of one view, which all workers share: limits, places, their members, the list. */
#include "service/meet/meet.h"

#include <stdlib.h>
#include <sys/random.h>

#define LIST_BYTES_OF_RECORD 256u /* of entries that are told */

/*
 * Limits
 */
int meet_limit_open(struct meet_limit *limit)
{
	return quota_create(limit->max, sizeof(struct fabric_source), &limit->quota);
}

void meet_limit_report(const struct meet_limit *limit, const char *name, struct service_report *report)
{
	char text[64];

	report->number(report, name, quota_taken(limit->quota));
	snprintf(text, sizeof(text), "%s_max", name);
	report->number(report, text, limit->max);
	snprintf(text, sizeof(text), "%s_per_source", name);
	report->number(report, text, limit->per_source);
}

/* Under the lock. NULL: it was taken. */
static const char *limit_take(struct meet_limit *limit, const struct fabric_source *source, struct quota_share **share)
{
	unsigned met = quota_take(limit->quota, fabric_source_key(source), limit->per_source, share);

	if (!met)
		return NULL;
	return met & QUOTA_ALL ? limit->full : limit->enough;
}

struct quota_share *meet_take(struct meet_member *m, struct meet_limit *limit, const char **why)
{
	struct meet_table *table = meet_table_of(m);
	struct fabric_source source;
	struct quota_share *share;

	fabric_endpoint_source(conn_endpoint(m->conn), &source);
	pthread_mutex_lock(&table->lock);
	*why = limit_take(limit, &source, &share);
	pthread_mutex_unlock(&table->lock);
	if (*why)
		meet_count(m, m->thread->view->limits);
	return *why ? NULL : share;
}

/*
 * The process
 */
int meet_open(struct meet_table *table)
{
	uint32_t max = table->names.max, buckets = 1;

	while (buckets < max)
		buckets *= 2;
	pthread_mutex_init(&table->lock, NULL);
	table->name = calloc(max, sizeof(struct meet_name *));
	table->bucket = calloc(buckets, sizeof(struct meet_name *));
	table->vacant = calloc(max, sizeof(uint32_t));
	table->mask = buckets - 1;
	if (!table->name || !table->bucket || !table->vacant)
		return -ENOMEM;
	for (; table->vacancies < max; table->vacancies++)
		table->vacant[table->vacancies] = max - 1 - table->vacancies;
	return meet_limit_open(&table->names);
}

void meet_close(struct meet_table *table)
{
	must(!table->members);
	pthread_mutex_destroy(&table->lock);
	free(table->name);
	free(table->bucket);
	free(table->vacant);
	quota_destroy(table->names.quota);
}

uint64_t meet_members(struct meet_table *table)
{
	uint64_t n;

	pthread_mutex_lock(&table->lock);
	n = table->members;
	pthread_mutex_unlock(&table->lock);
	return n;
}

/*
 * Names
 */
static struct meet_name **bucket_of(const struct meet_table *table, const char *text, uint32_t len)
{
	return &table->bucket[hash_bytes(text, len) & table->mask];
}

struct meet_name *meet_name_new(struct meet_table *table, const struct fabric_source *source, const char *text,
				uint32_t len, uint32_t size, enum wire_status *status, const char **why)
{
	struct meet_name *name = calloc(1, sizeof(*name) + size * (sizeof(struct meet_member *) + 1)), **bucket;

	*status = WIRE_NO_MEMORY;
	*why = "the server has no memory";
	if (!name)
		return NULL;
	name->size = size;
	name->member = (struct meet_member **)(name + 1);
	name->presence = (uint8_t *)(name->member + size);
	name->len = len;
	memcpy(name->text, text, len);
	list_init(&name->guests);
	bucket = bucket_of(table, text, len);
	pthread_mutex_lock(&table->lock);
	*why = limit_take(&table->names, source, &name->share);
	if (!*why) { /* a name with a share finds a place */
		name->place = table->vacant[--table->vacancies];
		table->name[name->place] = name;
		name->next = *bucket;
		*bucket = name;
	}
	pthread_mutex_unlock(&table->lock);
	if (!*why)
		return name;
	*status = WIRE_BUSY;
	free(name);
	return NULL;
}

/* Under the lock. It is found no more, if it was. */
static void name_hide(struct meet_table *table, const struct meet_name *name)
{
	struct meet_name **at = bucket_of(table, name->text, name->len);

	while (*at && *at != name)
		at = &(*at)->next;
	if (*at)
		*at = name->next;
}

void meet_name_free(struct meet_table *table, struct meet_name *name)
{
	must(!name->here && list_empty(&name->guests));
	pthread_mutex_lock(&table->lock);
	name_hide(table, name);
	table->name[name->place] = NULL;
	table->vacant[table->vacancies++] = name->place;
	pthread_mutex_unlock(&table->lock);
	quota_give(name->share);
	auth_wipe(name->secret, sizeof(name->secret));
	free(name);
}

struct meet_name *meet_find(struct meet_member *m, const char *text, uint32_t len)
{
	struct meet_table *table = meet_table_of(m);
	struct meet_name *name;
	unsigned looked = 0;

	pthread_mutex_lock(&table->lock);
	for (name = *bucket_of(table, text, len); name; name = name->next, looked++)
		if (name->len == len && memcmp(name->text, text, len) == 0)
			break;
	pthread_mutex_unlock(&table->lock);
	conn_charge(m->conn, looked / MEET_NAMES_OF_RECORD);
	return name;
}

static bool number_is_free(struct meet_table *table, uint32_t number)
{
	bool free = number != 0;

	pthread_mutex_lock(&table->lock);
	for (uint32_t i = 0; i < table->names.max && free; i++)
		free = !table->name[i] || table->name[i]->number != number;
	pthread_mutex_unlock(&table->lock);
	return free;
}

uint32_t meet_number(struct meet_member *m)
{
	struct meet_table *table = meet_table_of(m);
	uint32_t number;

	conn_charge(m->conn, table->names.max / MEET_PLACES_OF_RECORD);
	do {
		if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != sizeof(number))
			return 0;
	} while (!number_is_free(table, number));
	return number;
}

/*
 * Members of a name
 */
void meet_enter(struct meet_name *name, struct meet_member *m)
{
	struct meet_table *table = meet_table_of(m);

	must(!name->number && name->here < name->size && !m->name);
	pthread_mutex_lock(&table->lock);
	name->member[name->here++] = m;
	if (m->rank != MEET_ANY_RANK)
		name->presence[m->rank] = MEET_HERE;
	table->members++;
	pthread_mutex_unlock(&table->lock);
	m->name = name;
	m->again = false;
}

/* Under the lock. */
static void member_remove(struct meet_name *name, struct meet_member *m)
{
	uint32_t at = name->number ? m->rank : 0;

	while (name->member[at] != m)
		at++;
	name->here--;
	if (m->rank != MEET_ANY_RANK)
		name->presence[m->rank] = MEET_LEFT;
	if (!name->number)
		memmove(name->member + at, name->member + at + 1, (name->here - at) * sizeof(struct meet_member *));
	name->member[name->number ? at : name->here] = NULL;
}

void meet_leave(struct meet_member *m)
{
	struct meet_table *table = meet_table_of(m);
	struct meet_name *name = m->name;

	pthread_mutex_lock(&table->lock);
	member_remove(name, m);
	table->members--;
	if (name->number) /* it will never be whole again */
		name_hide(table, name);
	pthread_mutex_unlock(&table->lock);
	m->name = NULL;
	m->rank = MEET_ANY_RANK;
	if (!name->here)
		meet_name_free(table, name);
}

static void ranks_give(struct meet_name *name)
{
	uint32_t next = 0;

	for (uint32_t i = 0; i < name->size; i++) {
		struct meet_member *m = name->member[i];

		if (m->rank != MEET_ANY_RANK)
			continue;
		while (name->presence[next] == MEET_HERE)
			next++;
		m->rank = next;
		name->presence[next] = MEET_HERE;
	}
}

/* Each swap puts one at its place. */
static void members_sort(struct meet_name *name)
{
	for (uint32_t i = 0; i < name->size; i++)
		while (name->member[i]->rank != i) {
			struct meet_member *m = name->member[i];

			name->member[i] = name->member[m->rank];
			name->member[m->rank] = m;
		}
}

void meet_complete(struct meet_name *name, uint32_t number)
{
	struct meet_table *table = meet_table_of(name->member[0]);

	must(meet_is_full(name) && number);
	pthread_mutex_lock(&table->lock);
	ranks_give(name);
	members_sort(name);
	name->number = number;
	pthread_mutex_unlock(&table->lock);
}

/*
 * The list. A cursor is a place and the members of its name that were told.
 */
static uint32_t put_entries(struct meet_member *m, uint64_t *cursor, uint8_t *out, uint32_t room)
{
	uint32_t at = (uint32_t)(*cursor >> 32), member = (uint32_t)*cursor, used = 0, bytes;
	struct meet_table *table = meet_table_of(m);
	uint32_t end = table->secret ? 0 : table->names.max;

	pthread_mutex_lock(&table->lock);
	for (; at < end; at++, member = 0) {
		const struct meet_name *name = table->name[at];

		if (!name || !name->here || !meet_may_use(m, name->text, name->len))
			continue; /* one without a member is about to begin, or to end, at its worker */
		bytes = m->thread->view->entry(name, &member, out + used, room - used);
		used += bytes;
		if (!bytes || member)
			break;
	}
	pthread_mutex_unlock(&table->lock);
	*cursor = at < end ? (uint64_t)at << 32 | member : 0;
	return used;
}

int meet_serve_list(struct meet_member *m, const struct wire_record *record, const void *body)
{
	const struct meet_limit *names = &meet_table_of(m)->names;
	struct wire_record *reply;
	uint32_t room, used;
	uint64_t cursor;

	if (record->length != sizeof(cursor))
		return -EPROTO;
	reply = conn_reserve_reply(m->conn, record->op, record->id, m->thread->view->reply, &room);
	if (!reply)
		return -EAGAIN;
	memcpy(&cursor, body, sizeof(cursor));
	conn_charge(m->conn, names->max / MEET_PLACES_OF_RECORD + quota_taken(names->quota) / MEET_NAMES_OF_RECORD +
				     room / LIST_BYTES_OF_RECORD);
	used = put_entries(m, &cursor, (uint8_t *)(reply + 1) + sizeof(cursor), room - (uint32_t)sizeof(cursor));
	memcpy(reply + 1, &cursor, sizeof(cursor));
	conn_commit(m->conn, reply, (uint32_t)sizeof(cursor) + used);
	return 0;
}
