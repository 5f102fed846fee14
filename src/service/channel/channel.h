/*
 * channel.h: the inside of the channel service.
 *
 *   channel.c  its row, settings and counters
 *   agent.c    a connection of it: its end, time
 *   request.c  what it asks for
 *   relay.c    the bytes between two that are joined
 *
 * Names are those of service/meet, with one member, the listener. Clients that wait for it, and clients joined under
 * the name, are the name's guests. The lock is taken when something begins or ends, never for bytes.
 */
#ifndef RDMAD_SERVICE_CHANNEL_H
#define RDMAD_SERVICE_CHANNEL_H

#include "service/meet/meet.h"

#define CHANNEL_REPLY_MAX (sizeof(struct wire_channel_open) + WIRE_CHANNEL_ADDRESSES_MAX + WIRE_CHANNEL_TICKET_SIZE)
#define CHANNEL_ECHO "echo" /* the name that rdmad itself answers to */

_Static_assert(CHANNEL_REPLY_MAX <= WIRE_BODY_MAX(WIRE_MESSAGE_MIN), "every answer fits in the least message");

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

/* What the process has. */
struct channel_service {
	struct meet_table table;
	struct channel_settings settings;
	struct meet_limit joined;
};

/* What a worker has. */
struct channel_thread {
	struct meet_thread meet;
	struct list uninvited; /* agents that wait for a listener that was not told of them */
	struct list leaving;   /* agents whose other end is gone, the oldest first */
};

struct channel_agent {
	struct meet_member m;
	struct list uninvited;
	struct quota_share *share; /* of the pairs that are joined */
	uint64_t capacity;
	struct channel_agent *partner; /* echo's is itself */
	bool last;                     /* it has closed its channel in peace: all of it was relayed */
	uint32_t relayed;              /* bytes of the record that is being relayed */
	bool got_on;                   /* something was relayed since it last waited */
};

static inline struct channel_service *channel_service_of(const struct channel_agent *a)
{
	return container_of(meet_table_of(&a->m), struct channel_service, table);
}

static inline struct channel_thread *channel_thread_of(const struct channel_agent *a)
{
	return container_of(a->m.thread, struct channel_thread, meet);
}

static inline void channel_count(struct channel_agent *a, enum channel_count what, uint64_t n)
{
	a->m.thread->part.count[what] += n;
}

/*
 * agent.c
 */
extern const struct conn_ops channel_agent_ops;
int channel_thread_init(struct service_part *part);
int channel_thread_progress(struct service_part *part);
uint64_t channel_thread_deadline(const struct service_part *part);

/* Pairs that are joined under the name: so many more. */
void channel_clients(struct channel_agent *a, int change);
/* Its name has no listener any more. Waiting clients are told; joined ones stay. */
void channel_listener_ends(struct channel_agent *a);

/*
 * request.c
 */

/* As conn_ops.record. */
int channel_serve_listen(struct channel_agent *a, const struct wire_record *record, const void *body);
int channel_serve_open(struct channel_agent *a, const struct wire_record *record, const void *body);
int channel_serve_leave(struct channel_agent *a, const struct wire_record *record, const void *body);

/* Tell the listener of a client that waits. False: there is no room for it; once more in each turn. */
bool channel_invite(struct channel_agent *a);

/*
 * relay.c
 */

/* A record of an agent that is joined, for its partner. As conn_ops.record. */
int channel_relay(struct channel_agent *a, const struct wire_record *record, const void *body);

#endif
