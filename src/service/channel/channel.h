/*
 * channel.h: the inside of the channel service.
 *
 *   channel.c          its row, settings and counters; names and limits, which all workers share
 *   agent.c    a connection of it: what it is, its end, time
 *   request.c  what it asks for
 *   relay.c    the bytes between two that are joined
 *
 * A name, the clients that wait for its listener and those joined under it are of one worker, by the number that their
 * connect requests have: see WIRE_CHANNEL_COUNT. Workers share the table of names of meet.h, whose lock is taken when
 * something begins or ends, never for bytes.
 */
#ifndef RDMAD_SERVICE_CHANNEL_H
#define RDMAD_SERVICE_CHANNEL_H

#include "service/meet.h"

#define CHANNEL_ECHO "echo" /* the name that rdmad itself answers to */

enum channel_count {
	CHANNEL_COUNT_LISTENS,
	CHANNEL_COUNT_OPENS,
	CHANNEL_COUNT_MOVED,
	CHANNEL_COUNT_INVITES,
	CHANNEL_COUNT_JOINED,
	CHANNEL_COUNT_ECHOES,
	CHANNEL_COUNT_BYTES,
	CHANNEL_COUNT_REFUSED,
	CHANNEL_COUNT_LIMITS,
	CHANNEL_COUNT_EXPIRED,
	CHANNEL_COUNTS
};

struct channel_settings {
	uint64_t names, names_per_source;
	uint64_t joined, joined_per_source;
	uint64_t invite_timeout;
};

/* A name that has a listener. But for `clients`, and `serial` of the worker's, nothing of it changes. */
struct channel_name {
	struct meet_name name;
	struct channel_agent *listener; /* the worker's */
	uint32_t clients;               /* under the table's lock */
	struct list joined;             /* the worker's: agents by of_name */
	uint64_t capacity;
	uint32_t addresses_len;
	uint32_t serial; /* of the last ticket */
	char addresses[WIRE_CHANNEL_ADDRESSES_MAX];
};

/* What the process has. */
struct channel_service {
	struct channel_settings settings;
	struct meet_table names;
	struct meet_limit joined; /* under the lock of the names */
};

/* What a worker has. */
struct channel_thread {
	struct service_part part;
	struct list waiting; /* agents for whom a listener is to come, the oldest first */
	unsigned uninvited;  /* of them, clients that it was not told of */
	struct list leaving; /* agents whose other end is gone, the oldest first */
};

enum channel_role {
	CHANNEL_FRESH,   /* asked for nothing that lasts */
	CHANNEL_LISTENS, /* has a name */
	CHANNEL_WAITS,   /* for the listener, which is invited; woken by it, its end, or time */
	CHANNEL_JOINED,  /* with a partner; echo is its own */
	CHANNEL_LEAVES,  /* the partner is gone; ends when all was sent that came from there, or by time */
};

struct channel_agent {
	struct channel_thread *thread;
	struct conn *conn; /* from the first record on */
	enum channel_role role;
	struct list node;          /* in waiting or leaving */
	struct channel_name *name; /* that it listens on or waits for */
	struct quota_share *share; /* of the pairs that are joined */
	uint64_t capacity;
	uint64_t token, deadline; /* of a client that waits; the latter also of one that leaves */
	uint32_t id;              /* of the request that waits */
	bool invited;             /* the listener was told */
	bool again;               /* it has asked for a name that was taken */
	struct channel_agent *partner;
	bool last; /* it has closed its channel in peace: all of it was relayed */
	struct list of_name;
	uint32_t relayed; /* bytes of the record that is being relayed */
	bool got_on;      /* something was relayed since it last waited */
};

static inline struct channel_service *channel_service_of(const struct channel_agent *a)
{
	return a->thread->part.shared;
}

static inline void channel_count(struct channel_agent *a, enum channel_count what, uint64_t n)
{
	a->thread->part.count[what] += n;
}

/*
 * channel.c
 */

void channel_name_clients(struct channel_service *service, struct channel_name *name, int change);

/*
 * agent.c
 */
extern const struct conn_ops channel_agent_ops;
void *channel_agent_new(struct service_part *part, const struct service_way *way);
int channel_thread_init(struct service_part *part);
int channel_thread_progress(struct service_part *part);
uint64_t channel_thread_deadline(const struct service_part *part);

/* Its name has no listener any more. Waiting clients are told; joined ones stay. */
void channel_listener_ends(struct channel_agent *a);

/* In a list of agents whose time is limited: they are looked at in each turn. And out of it. */
void channel_agent_enter(struct channel_agent *a, struct list *list, uint64_t patience);
void channel_agent_leave(struct channel_agent *a);

/*
 * request.c
 */

/* As conn_ops.record. */
int channel_serve_listen(struct channel_agent *a, const struct wire_record *record, const void *body);
int channel_serve_open(struct channel_agent *a, const struct wire_record *record, const void *body);
int channel_serve_leave(struct channel_agent *a, const struct wire_record *record, const void *body);
int channel_serve_list(struct channel_agent *a, const struct wire_record *record, const void *body);

/* As service.revised: whether it may still use its name. */
void channel_agent_revised(struct conn *conn);

/* Tell the listener of a client that waits. False: there is no room for it; once more in each turn. */
bool channel_invite(struct channel_agent *a);
/* It waits no more, and no listener came; and it is told why. */
void channel_wait_ends(struct channel_agent *a);
void channel_wait_refused(struct channel_agent *a, enum wire_status status, const char *why);
/* Its share, if it has one. */
void channel_give(struct channel_agent *a);

/*
 * relay.c
 */

/* A record of an agent that is joined, for its partner. As conn_ops.record. */
int channel_relay(struct channel_agent *a, const struct wire_record *record, const void *body);

#endif
