/*
 * peer.h: the inside of the peer service, at which programs meet that talk as equals.
 *
 *   peer.c         its row, settings and counters; groups, which all workers share
 *   group.c   the members of a group: those there, and the missing ones
 *   agent.c   a connection of it: what it is, its end, time, what it is told of its group
 *   request.c what it asks for
 *
 * A group is of one worker, that of its members, by the number that their connect requests have: see WIRE_PEER_COUNT.
 * Other workers see it when they list groups, so it changes under a lock, which is taken when a member comes or goes.
 *
 * Names begin with meeting_, as peer_ is the room of programs.
 */
#ifndef RDMAD_SERVICE_PEER_H
#define RDMAD_SERVICE_PEER_H

#include "service/meet.h"

enum meeting_count {
	MEETING_COUNT_JOINS,
	MEETING_COUNT_GROUPS,
	MEETING_COUNT_LEFT,
	MEETING_COUNT_REFUSED,
	MEETING_COUNT_LIMITS,
	MEETING_COUNT_EXPIRED,
	MEETING_COUNTS
};

struct meeting_settings {
	uint64_t groups, groups_per_source;
	uint64_t members;
	uint64_t join_timeout;
	bool list;
};

/* Whether the member of a rank has come. */
enum meeting_presence { MEETING_MISSING, MEETING_HERE, MEETING_LEFT };

/* The worker reads it as it is, others under the table's lock, under which it changes. */
struct meeting_group {
	struct meet_name name; /* over: complete, and has lost a member; it will never be whole again */
	uint32_t number;       /* 0: not complete */
	uint32_t size, here;
	/* Until it is complete: the members here, in the order of their coming. Then all by rank; NULL: has gone. */
	struct meeting_agent **member;
	uint8_t *presence; /* by rank, enum meeting_presence, of members that want one */
};

static inline struct meeting_group *meeting_group_of(const struct meet_name *name)
{
	return container_of((struct meet_name *)(uintptr_t)name, struct meeting_group, name);
}

/* What the process has. */
struct meeting_service {
	struct meeting_settings settings; /* groups_per_source is not 0 */
	struct meet_table groups;
	uint64_t members; /* of all; under the table's lock */
};

/* What a worker has. */
struct meeting_thread {
	struct service_part part;
	struct list waiting; /* agents whose group is not complete; to be looked at ... */
	struct list looked;  /* ... and members that were, since `next` */
	struct list telling; /* agents that are told of their group */
	uint64_t next;       /* the earliest deadline of clients that wait, or earlier */
	uint64_t coming;     /* the earliest of `looked` */
};

enum meeting_role {
	MEETING_FRESH,  /* asked for nothing that lasts */
	MEETING_WAITS,  /* for the others of its group */
	MEETING_MEMBER, /* of a group that is complete */
};

struct meeting_agent {
	struct meeting_thread *thread;
	struct conn *conn; /* from the first record on */
	enum meeting_role role;
	struct list node; /* in waiting, looked or telling */
	struct meeting_group *group;
	uint32_t rank; /* WIRE_PEER_ANY_RANK */
	uint32_t id;   /* of its join */
	uint32_t told; /* members of its group that it was told of */
	bool again;    /* it has asked for a place that was taken */
	uint64_t patience, deadline;
	uint64_t token;
	uint32_t addresses_len;
	char *addresses;
};

static inline struct meeting_service *meeting_service_of(const struct meeting_agent *a)
{
	return a->thread->part.shared;
}

static inline void meeting_count(struct meeting_agent *a, enum meeting_count what)
{
	a->thread->part.count[what]++;
}

/*
 * peer.c
 */

/* A new group without members. NULL: no memory. It is freed with its name in the table, or by itself. */
struct meeting_group *meeting_group_new(const char *name, uint32_t name_len, uint32_t size);
void meeting_group_free(struct meeting_group *group);
/* A number for a group that is complete. 0: there are no random numbers. */
uint32_t meeting_group_number(struct meeting_service *service);
/*
 * group.c
 */

/* Whether it may come in: NULL, or why not. */
const char *meeting_group_closed(const struct meeting_group *group, uint32_t size, uint32_t rank);
void meeting_group_enter(struct meeting_group *group, struct meeting_agent *a);
/* Its last member frees the group. */
void meeting_group_leave(struct meeting_agent *a);
static inline bool meeting_group_is_full(const struct meeting_group *group)
{
	return group->here == group->size;
}
/* All are there: ranks, and a number. */
void meeting_group_complete(struct meeting_service *service, struct meeting_group *group, uint32_t number);
/* A member whose place another client waits for is about to leave: its connection ends. */
bool meeting_group_loses(const struct meeting_group *group);
/* The members that did not come, in words. Returns buf. */
char *meeting_group_missing(const struct meeting_group *group, char *buf, size_t size);
/* A member as others see it: its bytes, 0: there is no room. */
uint32_t meeting_member_put(const struct meeting_agent *a, bool token, uint8_t *out, uint32_t room);

/*
 * agent.c
 */
extern const struct conn_ops meeting_agent_ops;
void *meeting_agent_new(struct service_part *part, const struct service_way *way);
void meeting_agent_free(void *agent);
int meeting_thread_init(struct service_part *part);
int meeting_thread_progress(struct service_part *part);
uint64_t meeting_thread_deadline(const struct service_part *part);

/* It waits from now on; its deadline is set. And it waits or is told no more. */
void meeting_agent_wait(struct meeting_agent *a);
void meeting_agent_rest(struct meeting_agent *a);
/* It is of no group any more. */
void meeting_agent_part(struct meeting_agent *a);
/* All of a group that has become complete are to be told. */
void meeting_agents_tell(struct meeting_group *group);

/*
 * request.c
 */

/* As conn_ops.record. */
int meeting_serve_join(struct meeting_agent *a, const struct wire_record *record, const void *body);
int meeting_serve_leave(struct meeting_agent *a, const struct wire_record *record, const void *body);
int meeting_serve_list(struct meeting_agent *a, const struct wire_record *record, const void *body);
/* As service.revised: whether it may still be of its group. */
void meeting_agent_revised(struct conn *conn);
/* The others did not come in time. */
void meeting_join_expired(struct meeting_agent *a);

#define MEETING_PAGE_MIN 4096u /* bytes of a reply, and more where there is room */
_Static_assert(MEETING_PAGE_MIN <= WIRE_BODY_MAX(WIRE_MESSAGE_MIN), "every answer fits in the least message");
_Static_assert(sizeof(struct wire_peer_group) + WIRE_SEALED + sizeof(struct wire_peer_member) +
			       WIRE_PEER_ADDRESSES_MAX <=
		       MEETING_PAGE_MIN,
	       "a page has one member at least");
_Static_assert(sizeof(uint64_t) + sizeof(struct wire_peer_entry) + WIRE_PEER_NAME_MAX +
			       sizeof(struct wire_peer_member) + WIRE_PEER_ADDRESSES_MAX <=
		       MEETING_PAGE_MIN,
	       "a page has one member at least");

#endif
