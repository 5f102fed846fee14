/*
 * peer.h: the inside of the peer service, at which programs meet that talk as equals.
 *
 *   peer.c     its row, settings and counters
 *   group.c    a group in words and in records: missing members, entries of the list
 *   agent.c    a connection of it: its end, time, what it is told of its group
 *   request.c  what it asks for
 *
 * A group is a name of service/meet. Names begin with meeting_, as peer_ is the room of programs.
 */
#ifndef RDMAD_SERVICE_PEER_H
#define RDMAD_SERVICE_PEER_H

#include "service/meet/meet.h"

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

/* What the process has. */
struct meeting_service {
	struct meet_table table;
	struct meeting_settings settings;
};

/* What a worker has. */
struct meeting_thread {
	struct meet_thread meet;
	struct list telling; /* agents that are told of their group */
};

struct meeting_agent {
	struct meet_member m;
	uint32_t told; /* members of its group that it was told of */
};

static inline struct meeting_service *meeting_service_of(const struct meeting_agent *a)
{
	return container_of(meet_table_of(&a->m), struct meeting_service, table);
}

/*
 * group.c
 */

/* Whether it may come in: NULL, or why not. */
const char *meeting_group_closed(const struct meet_name *group, uint32_t size, uint32_t rank);
/* A secret of a group that is full, if all its members can be told it. */
void meeting_group_secret(struct meet_name *group);
/* The members that did not come, in words. Returns buf. */
char *meeting_group_missing(const struct meet_name *group, char *buf, size_t size);
/* As meet_view.entry. */
uint32_t meeting_group_entry(const struct meet_name *group, uint32_t *member, uint8_t *out, uint32_t room);
/* A member as others see it: its bytes, 0: there is no room. */
uint32_t meeting_member_put(const struct meet_member *m, bool token, uint8_t *out, uint32_t room);

/*
 * agent.c
 */
extern const struct conn_ops meeting_agent_ops;
int meeting_thread_init(struct service_part *part);
int meeting_thread_progress(struct service_part *part);
uint64_t meeting_thread_deadline(const struct service_part *part);

/* It is of no group any more. */
void meeting_agent_part(struct meeting_agent *a);
/* All of a group that has become complete are to be told. */
void meeting_agents_tell(struct meet_name *group);

/*
 * request.c
 */

/* As conn_ops.record. */
int meeting_serve_join(struct meeting_agent *a, const struct wire_record *record, const void *body);
int meeting_serve_leave(struct meeting_agent *a, const struct wire_record *record, const void *body);

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
