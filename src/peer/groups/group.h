/*
 * group.h: what the files of groups share.
 *
 *   group.c         groups: members, losses, subsets, the end
 *   form.c    how a group forms: tables of addresses, the mesh of connections, the word that it is whole
 *   create.c  the way by a server and its clients
 *   shrink.c  how survivors agree on the members of the next group
 *   abort.c   collectives that failed at one member
 *   meet.c          the way by an rdmad
 *   run.c           the programs of a launcher, which meet so, or by PMIx
 *
 * A group is in ctx->groups from the moment that another one knows its number. What others say of a group that is not
 * there, or not in that state, is late, and passed over.
 *
 * All that members say to each other goes by control messages, so in order: a member that hears of a member's loss and
 * then anything else from the same one knows that the latter was said with the loss in mind. shrink.c rests on that.
 */
#ifndef RDMAD_PEER_GROUPS_GROUP_H
#define RDMAD_PEER_GROUPS_GROUP_H

#include "peer/links/connect.h"
#include "peer/messages/messages.h"

#define GROUP_INVITATIONS 64 /* of servers, that the program has not come for */
#define GROUP_WORDS 200

enum group_state { GROUP_INVITED, GROUP_FORMING, GROUP_WHOLE, GROUP_FREED };

struct group_form;
struct group_meeting;
struct shrink_state;

/* The part of a group that only these files see. */
struct group {
	struct rdma_group base;
	enum group_state state;
	uint64_t timeout;        /* ns that its members have to come, and again to connect to each other */
	char name[224];          /* for people: "group \"work\"", "the group of 127.0.0.1:7000" */
	struct peer *server;     /* GROUP_INVITED: by it */
	bool *left;              /* by rank: in peace, and is in `gone`, too, when a collective without it begins */
	uint32_t *left_at;       /* by rank, of those: which is the first of these */
	struct group_form *form; /* while it forms */
	bool ticket;             /* members prove to each other that an rdmad told them its secret */
	struct group_meeting *meeting; /* NULL: it has not met at an rdmad */
	struct shrink_state *shrink;
	struct group_derived {
		uint64_t hash;
		uint32_t times;
	} * derived; /* subsets: how often the same was made */
	uint32_t deriveds;
};

static inline struct group *group_of(const struct rdma_group *base)
{
	return container_of((struct rdma_group *)(uintptr_t)base, struct group, base);
}

/*
 * group.c
 */
/* In the list of groups, without members. NULL: no memory, rdma_fail() was called. */
struct group *group_new(rdma_context *ctx, uint32_t number, int rank, int size, enum group_state state);
/* Out of the list, with all that it has but connections. */
void group_discard(struct group *group);
/* NULL: there is none of that number. */
struct group *group_find(const rdma_context *ctx, uint32_t number);
/* Its rank in the group; -1: it is none of it. */
int group_rank_of(const struct group *group, const struct peer *peer);
/* A number that is not 0; 0: no random numbers. */
uint32_t group_number_random(const rdma_context *ctx);
/* The number of a group that all of its members derive alike from another one: how often says `times`. */
uint32_t group_number_derived(uint32_t number, const int *ranks, int count, uint32_t times);
/* A group of members of another one, that is whole. NULL: rdma_fail() was called. */
struct group *group_derive(struct group *from, uint32_t number, const int *ranks, int count);
/* A member is lost: every other one is told. */
void group_member_lost(struct group *group, int rank, const char *why);
/* Members that left in peace, too: none is kept that takes no part any more. */
void group_lose_left(struct group *group);
/* Whether a peer is a client of this server; whether there is a server that this client is connected to. */
bool group_client(const struct peer *peer);
bool group_servers(const rdma_context *ctx);
/* Say it to each member that is there. */
void group_say(const struct group *group, enum wire_control_kind kind, const void *body, size_t length);
/* Out of a body that came: the words behind `size` bytes, printable. Returns buf. */
char *group_words(const void *body, size_t length, size_t size, char buf[static GROUP_WORDS]);

/*
 * form.c
 */
/* Writes what members are told: an own token, and addresses by which it listens now. -errno: rdma_fail() was called. */
int form_begin(struct group *group, uint64_t until);
uint64_t form_token(const struct group *group);
/* Gives it as much time from now on as at its begin. */
void form_patient(struct group *group);
/* Takes a part of a table: `count` members from rank `first` on, see struct wire_peer_member. 0, -EPROTO, -ENOMEM. */
int form_table(struct group *group, const uint8_t *at, size_t left, uint32_t first, uint32_t count);
/* A member is connected already. */
void form_linked(struct group *group, int rank, struct peer *peer);
/* All is known: connect, and wait until the group is whole or came to nothing, which frees it. 0; -1: rdma_fail() was
 * called. */
int form_finish(struct group *group);
void form_free(struct group *group);
void form_lost(struct group *group, int rank, const char *why);
int form_control(struct group *group, struct peer *peer, enum wire_control_kind kind, const void *body, size_t length);

/*
 * create.c
 */
/* A server says that there is a group. */
int form_invited(struct peer *peer, const void *body, size_t length);

/*
 * shrink.c
 */
int shrink_init(struct group *group);
int shrink_control(struct group *group, struct peer *peer, const void *body, size_t length);
/* A member has gone. */
void shrink_lost(struct group *group);
/* The program is in the call. */
bool shrink_is_under_way(const struct group *group);
/* There is a decision that another member may yet ask for. */
bool shrink_is_wanted(const struct group *group);

/*
 * abort.c
 */
/* `group`: NULL: it is not known, perhaps not yet. */
int abort_control(struct group *group, struct peer *peer, const void *body, size_t length);
/* The group is no more; of all groups, at the end of the context. */
void aborts_forget(const struct group *group);
void aborts_free(rdma_context *ctx);

/*
 * meet.c
 */
void meeting_free(struct group_meeting *meeting);
/* As rdma_group_meet(); it has at least `timeout` ns. */
rdma_group *group_meet_within(rdma_context *ctx, const char *meeting, const char *name, int size, int rank,
			      uint64_t timeout);

/*
 * For collectives.
 */
/* A collective is about to begin: a member that has ended is looked for, and members that left in peace are lost for
 * it. And one cannot be completed without a member that has gone: all others learn it. */
void group_look_left(struct rdma_group *group);
void group_member_missed(struct rdma_group *group, int rank);
/* peer/groups/abort.c: what fails at one member fails at all that are not done with it. This member's part of
 * collective `sequence` has failed: tell the others. And whether the next one, by group->sequence, has failed at
 * another member: its error and *why, valid until the next turn; 0. */
void group_abort_say(struct rdma_group *group, uint32_t sequence, int error, const char *why);
int group_aborted(struct rdma_group *group, const char **why);

#endif
