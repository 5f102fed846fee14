/* form.h: what the files by which a group forms share: form.c, create.c. */
#ifndef RDMAD_PEER_GROUPS_FORM_H
#define RDMAD_PEER_GROUPS_FORM_H

#include "peer/groups/group.h"

#define FORM_GRACE (1 * TIME_S) /* of members beside rank 0, so that its words reach them */

struct form_member {
	struct group *group;
	struct peer *dial; /* that is connecting, or has */
	uint64_t token;
	char *addresses, *copy; /* copy: is taken apart while they are tried */
	char *next;             /* in copy: of the addresses that were not tried; NULL: none was */
	uint64_t again;         /* after the last of them all are tried anew, at this time */
	struct pauses pauses;
	uint64_t attempt; /* most for one of them; doubles each time that all are tried */
	bool known, linked, ready, expected;
	char why[GROUP_WORDS]; /* of the attempt that failed last */
};

struct group_form {
	uint64_t token, until;
	bool dialing; /* the table is whole */
	bool told;    /* the group is whole, as rank 0 says */
	bool said;    /* that this member is connected to all */
	int known, linked, ready;
	int error;
	char why[512];
	struct form_member member[];
};

/* Fails a group that forms; the first failure is told. */
void form_fail(struct group *group, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Its time is over: form_fail(), with the members that are missing. */
void form_late(struct group *group);
/* The table, to all. */
void form_table_say(struct group *group);
/* Whether it is whole, from rank 0 to all; that it is not, and why, from others to rank 0. */
void form_say_outcome(const struct group *group, int error, const char *why);

#endif
