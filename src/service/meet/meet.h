/*
 * meet.h: where clients meet under a name. A name has members, a number of them that is waited for, and what each says
 * of itself. The names that programs listen on for channels, and the groups of peers, are two views of it: each view
 * decodes its own records and words its own answers. service/channel and service/peer are these.
 *
 *   table.c    names, which all workers share: limits, places, members coming and leaving, the list
 *   member.c   a connection: what it asks for, what it waits for and how long, its rights
 *
 * A name is of one worker, that of its members, by the number that their connect requests have, the name's hash. Other
 * workers see it when they list names: so it changes under a lock, which is taken when a member comes or goes.
 */
#ifndef RDMAD_SERVICE_MEET_H
#define RDMAD_SERVICE_MEET_H

#include <pthread.h>

#include "service/service.h"

#define MEET_ANY_RANK WIRE_PEER_ANY_RANK
#define MEET_NO_RIGHT "this client has no right to the name; see names= in the server's file of clients"

/* Names, members and places that are looked at in the time of a short record. */
#define MEET_NAMES_OF_RECORD 16
#define MEET_PLACES_OF_RECORD 512
#define MEET_MEMBERS_OF_RECORD 32

_Static_assert(WIRE_CHANNEL_NAME_MAX == WIRE_PEER_NAME_MAX, "one length of names");

/* A limit: so many in all, and of one source. The table's lock is for taking. */
struct meet_limit {
	struct quota *quota;
	uint32_t max, per_source;
	const char *full, *enough; /* why there is no more: for any source, and for this one */
};

/* Whether the member of a rank has come. */
enum meet_presence { MEET_MISSING, MEET_HERE, MEET_LEFT };

/* The worker reads it as it is, others under the table's lock, under which it changes. Before it has a member, others
 * read what it is found by alone. */
struct meet_name {
	struct quota_share *share; /* of its first member's source */
	struct meet_name *next;    /* of the same bucket */
	uint32_t place;            /* in table->name */
	uint32_t number;           /* 0: not complete */
	uint32_t size, here;       /* members that are waited for; that are there */
	/* Until it is complete: the members here, in the order of their coming. Then all by rank; NULL: has gone. */
	struct meet_member **member;
	uint8_t *presence; /* by rank, enum meet_presence, of members that want one */
	bool issues;       /* tickets, out of this secret */
	uint8_t secret[WIRE_SECRET];
	/* What only a channel's name has, whose one member is the listener. */
	struct list guests; /* the worker's: clients that wait or are joined, by of_name */
	uint32_t clients;   /* pairs that are joined */
	uint32_t serial;    /* the worker's: of the last ticket */
	uint64_t capacity;
	uint32_t len;
	char text[WIRE_PEER_NAME_MAX];
};

/* What the process has; what a view shares begins with it. */
struct meet_table {
	pthread_mutex_t lock;
	struct meet_limit names;
	struct meet_name **name;   /* by its place; NULL: free */
	struct meet_name **bucket; /* by its hash: names that can be found */
	uint32_t mask;             /* of the hash */
	uint32_t *vacant, vacancies;
	uint64_t members; /* of all names */
	bool secret;      /* it is not told which names there are */
};

struct meet_member;

/* What is of one view alone. */
struct meet_view {
	size_t agent_size;         /* of what begins with a struct meet_member */
	unsigned op;               /* by which it waits */
	uint32_t reply;            /* bytes of a reply, and more where there is room */
	unsigned refused, limits;  /* places of its counters */
	const char *revoked;       /* why a connection ends that has no right to its name any more */
	void (*ends)(void *agent); /* it waits no more, though what it waits for did not come */
	void (*late)(void *agent); /* nor does it in time; it is to be refused */
	/* An entry of the list, under the lock: its bytes; 0: no room. *member, where it goes on, is moved; 0: it was
	 * told whole. */
	uint32_t (*entry)(const struct meet_name *name, uint32_t *member, uint8_t *out, uint32_t room);
};

/* What a worker has; a view's begins with it. */
struct meet_thread {
	struct service_part part;
	const struct meet_view *view;
	struct list waiting; /* members that wait: to be looked at ... */
	struct list looked;  /* ... and ones that were, since `next` */
	uint64_t next;       /* the earliest deadline of members that wait, or earlier */
	uint64_t coming;     /* the earliest of `looked` */
};

enum meet_role {
	MEET_FRESH,  /* asked for nothing that lasts */
	MEET_WAITS,  /* for other members, or as a guest for the listener */
	MEET_MEMBER, /* of a name that is complete: it listens, or is a peer */
	MEET_JOINED, /* a guest with a partner */
	MEET_LEAVES, /* the partner is gone */
};

/* A connection; a view's agent begins with it. */
struct meet_member {
	struct meet_thread *thread;
	struct conn *conn; /* from the first record on */
	enum meet_role role;
	struct list node; /* in waiting, looked, or a list of the view's */
	struct meet_name *name;
	struct list of_name; /* of a guest */
	uint32_t rank;       /* MEET_ANY_RANK */
	uint32_t id;         /* of the request that waits */
	bool again;          /* it has asked for a place that was taken */
	uint64_t patience, deadline;
	uint64_t token;
	uint32_t addresses_len;
	char *addresses;
};

static inline struct meet_table *meet_table_of(const struct meet_member *m)
{
	return m->thread->part.shared;
}

static inline void meet_count(struct meet_member *m, unsigned what)
{
	m->thread->part.count[what]++;
}

/*
 * table.c
 */

/* With table->names but for its quota, by the view; so a further limit. 0 or -errno; close it in either case. */
int meet_open(struct meet_table *table);
void meet_close(struct meet_table *table);
int meet_limit_open(struct meet_limit *limit);
/* NAME, NAME_max and NAME_per_source. */
void meet_limit_report(const struct meet_limit *limit, const char *name, struct service_report *report);
uint64_t meet_members(struct meet_table *table);

/* One more for the member's source; NULL: *why is what the limit is, in words, and it was counted. */
struct quota_share *meet_take(struct meet_member *m, struct meet_limit *limit, const char **why);
/* A new name, without members, that waits for so many. NULL: *status and *why are the answer. */
struct meet_name *meet_name_new(struct meet_table *table, const struct fabric_source *source, const char *text,
				uint32_t len, uint32_t size, enum wire_status *status, const char **why);
/* Without members. */
void meet_name_free(struct meet_table *table, struct meet_name *name);
/* One that waits for members, or has all. NULL: there is none. It stays as long as the worker, which asks, leaves
 * it. */
struct meet_name *meet_find(struct meet_member *m, const char *text, uint32_t len);
/* A number for a name that is complete, which no other has. 0: there are no random numbers. */
uint32_t meet_number(struct meet_member *m);
/* Into a name that is not complete, by m->rank. */
void meet_enter(struct meet_name *name, struct meet_member *m);
/* The text of a name that is complete is free then; the last member frees the name. */
void meet_leave(struct meet_member *m);
/* All are there: members that want a rank have it, the others get what is left, in the order of their coming. */
void meet_complete(struct meet_name *name, uint32_t number);
static inline bool meet_is_full(const struct meet_name *name)
{
	return name->here == name->size;
}

/* The request for a list: as many entries that the client may use as there is room for. */
int meet_serve_list(struct meet_member *m, const struct wire_record *record, const void *body);

/*
 * member.c
 */

/* As the service's members of these names; part_init by the view. */
void meet_thread_init(struct service_part *part, const struct meet_view *view);
void *meet_agent_new(struct service_part *part, const struct service_way *way);
void meet_agent_free(void *agent);
void meet_established(struct conn *conn);
void meet_revised(struct conn *conn);
/* Refuse members whose time is up; some of them in each turn. And when that is next. */
int meet_turn(struct meet_thread *t);

/* The answer to the request of this id; NULL: there is no room for it now. */
struct wire_record *meet_answer(const struct meet_member *m, unsigned op, uint32_t id);
/* The body of a refusal says why, for people. */
int meet_refuse(struct meet_member *m, struct wire_record *reply, enum wire_status status, const char *why);

/* A name is that of the connect request: only so has one worker all that say it. And the client may use it. */
bool meet_is_of(const struct meet_member *m, const char *text, uint32_t len);
bool meet_may_use(const struct meet_member *m, const char *text, uint32_t len);

/* As meet_name_new(), for the member's source. */
struct meet_name *meet_begin(struct meet_member *m, const char *text, uint32_t len, uint32_t size,
			     enum wire_status *status, const char **why);
/* Keeps the addresses that it says. False: no memory. */
bool meet_keep_addresses(struct meet_member *m, const char *addresses, uint32_t len);
/* It was told, or is about to be, that `name` has no place for it; NULL: it has. Whether to ask again in a turn: a
 * program may end and begin again, and the end of its connection may be behind its request, or not be complete. */
bool meet_asks_again(struct meet_member *m, const struct meet_name *name);

/* Puts it into a list of the thread's, so that it has turns; and takes it out. */
void meet_list(struct meet_member *m, struct list *list);
void meet_rest(struct meet_member *m);
/* Begins a wait of so long, with the request of this id unanswered. */
void meet_wait(struct meet_member *m, uint32_t id, uint64_t patience);
/* Ends the wait, and tells why; `arg` is the answer's. */
void meet_wait_refused(struct meet_member *m, enum wire_status status, uint32_t arg, const char *why);

#endif
