/*
 * meet.h: where programs meet by a name, at the services channel and peer: the names that all workers share, how much a
 * source may have, which client may use a name, the pages in which names are listed, and refusals.
 *
 * What a name has, a listener or the members of a group, is its service's. It belongs to one worker: that of the number
 * which connect requests for the name have.
 */
#ifndef RDMAD_SERVICE_MEET_H
#define RDMAD_SERVICE_MEET_H

#include <pthread.h>

#include "service/service.h"

#define MEET_NAME_MAX 200u
_Static_assert(MEET_NAME_MAX == WIRE_CHANNEL_NAME_MAX && MEET_NAME_MAX == WIRE_PEER_NAME_MAX, "names are equally long");

#define MEET_NO_RIGHT "this client has no right to the name; see names= in the server's file of clients"

/* Records cost a client as much time as looking at so many names, or at so many places for one. */
#define MEET_NAMES_OF_RECORD 16
#define MEET_PLACES_OF_RECORD 512

/* So many in all, and of one source. Taken under a lock. */
struct meet_limit {
	struct quota *quota;
	uint32_t max, per_source;
	const char *full, *enough; /* why there is no more: for any source, and for this one */
};

/* A name, the first member of what it stands for. */
struct meet_name {
	struct quota_share *share;
	uint32_t place; /* in table->name */
	bool over;      /* another may enter the name; under the lock */
	bool issues;    /* tickets, out of this secret */
	uint8_t secret[WIRE_SECRET];
	uint32_t len;
	char text[MEET_NAME_MAX];
};

struct meet_table {
	pthread_mutex_t lock; /* of the names, and of what is listed of them */
	struct meet_limit limit;
	struct meet_name **name; /* by its place; NULL: free */
	uint32_t entered;
	/* Under the lock: the entry of a name in a page, from *part of it on, which is moved; 0: that was the last. Its
	 * bytes; 0: there is no room. */
	uint32_t (*entry)(const struct meet_name *name, uint32_t *part, uint8_t *out, uint32_t room);
};

/* For the limit and the entries that are set. -ENOMEM; meet_table_close() also after that. */
int meet_table_open(struct meet_table *table);
void meet_table_close(struct meet_table *table);

int meet_limit_open(struct meet_limit *limit);

/* NULL: *why are the words. */
struct quota_share *meet_take(struct meet_limit *limit, pthread_mutex_t *lock, const struct conn *conn,
			      const char **why);

/* 0; -EEXIST; -EBUSY: *why are the words. The client pays for the search. */
int meet_enter(struct meet_table *table, struct meet_name *name, struct conn *conn, const char **why);
/* Out of the table; and its share and secret go. */
void meet_remove(struct meet_table *table, struct meet_name *name);

/* NULL: nothing has that name. It stays as long as its worker, which asks, leaves it. The client pays here, too. */
struct meet_name *meet_find(struct meet_table *table, const char *text, uint32_t len, struct conn *conn);

static inline bool meet_may_use(const struct conn *conn, const char *text, uint32_t len)
{
	return auth_may(conn_client(conn), AUTH_NAMES, text, len);
}

/* As conn_ops.record: a page of the names that the client may use, of `page` bytes at least. A cursor is a place, and
 * the part of its name. `hidden`: there are none to see. */
int meet_serve_list(struct conn *conn, const struct wire_record *record, const void *body, struct meet_table *table,
		    uint32_t page, bool hidden);

/* The body of a refusal says why, for people. */
int meet_refuse(struct conn *conn, struct wire_record *reply, enum wire_status status, const char *why);

/* A request that waited ends so; `reply` NULL: there is no room for it, and the connection ends. */
int meet_end_wait(struct conn *conn, struct wire_record *reply, enum wire_status status, const char *why);

void meet_log_end(struct conn *conn, const char *service, const char *reason);

#endif
