/*
 * cluster: which server has which keys. The slot of a key, the table of slots as a text, and how one table becomes the
 * next. It knows files, and neither a network nor a clock. rdmad-cluster(7) has the table's words.
 *
 * Functions that return an int answer 0 or a negative errno, logged. Any thread; a table has one writer.
 */
#ifndef RDMAD_CLUSTER_H
#define RDMAD_CLUSTER_H

#include "base/base.h"

#define CLUSTER_SLOTS 16384u
#define CLUSTER_NODES 256u
#define CLUSTER_NAME_MAX 63u        /* characters: letters, digits and "._-" */
#define CLUSTER_ADDRESS_MAX 127u    /* characters */
#define CLUSTER_TEXT_MAX 65536u     /* bytes of a table */
#define CLUSTER_EPOCH_MAX INT64_MAX /* so that every program's integers hold it */

/*
 * slot.c
 */

/* As Redis Cluster's: CRC-16/XMODEM of the key modulo 16384, or of what is between its first { and the first } behind
 * that, unless there is nothing between them. */
unsigned cluster_slot(const void *key, size_t len);

/*
 * table.c: nodes and owners.
 */

/* What a node listens for. Native is that of librdmad, and every node has it. */
enum cluster_kind { CLUSTER_NATIVE, CLUSTER_RESP, CLUSTER_METRICS, CLUSTER_KINDS };

struct cluster_node {
	char name[CLUSTER_NAME_MAX + 1];
	char address[CLUSTER_KINDS][CLUSTER_ADDRESS_MAX + 1]; /* by cluster_node_set(); "": none */
};

/* Slots as bits: bit slot % 8 of byte slot / 8. */
#define CLUSTER_SLOT_BYTES (CLUSTER_SLOTS / 8)

static inline bool cluster_bit(const uint8_t slots[static CLUSTER_SLOT_BYTES], unsigned slot)
{
	return slots[slot / 8] >> slot % 8 & 1;
}

static inline void cluster_bit_set(uint8_t slots[static CLUSTER_SLOT_BYTES], unsigned slot)
{
	slots[slot / 8] |= (uint8_t)(1u << slot % 8);
}

static inline unsigned cluster_bit_count(const uint8_t slots[static CLUSTER_SLOT_BYTES])
{
	unsigned n = 0;

	for (unsigned i = 0; i < CLUSTER_SLOT_BYTES; i++)
		n += (unsigned)__builtin_popcount(slots[i]);
	return n;
}

#define CLUSTER_ABSENT UINT16_MAX /* an owner: the slot has no server, and its keys are nowhere */

struct cluster_table {
	char name[CLUSTER_NAME_MAX + 1]; /* of the cluster */
	uint64_t epoch;                  /* from 1 on; of two tables of a cluster the higher one is valid */
	unsigned count;                  /* of nodes */
	struct cluster_node node[CLUSTER_NODES];
	uint16_t owner[CLUSTER_SLOTS]; /* index of a node, or CLUSTER_ABSENT */
	/* 1 + index of the node that had the slot, and has to say that it has it no more before another one serves it;
	 * 0: none has to */
	uint16_t from[CLUSTER_SLOTS];
	uint16_t to[CLUSTER_SLOTS];    /* 1 + index of the node that is to get it with its values; 0: none */
	uint64_t moved[CLUSTER_SLOTS]; /* epoch by which its owner got it with its values; 0: it did not,
					* or has said since that it serves it */
};

/* The owner of a slot when it has gone where it is to go. */
static inline unsigned cluster_next_owner(const struct cluster_table *table, unsigned slot)
{
	return table->to[slot] ? table->to[slot] - 1u : table->owner[slot];
}

/* "native", "resp", "metrics"; CLUSTER_KINDS for others. */
const char *cluster_kind_name(enum cluster_kind kind);
enum cluster_kind cluster_kind_find(const char *name);

/* Check an address, and keep it as it stands in a table: host in small letters, port always. A scheme, or the path of a
 * socket, is for the native one alone, which has a default port. */
int cluster_node_set(struct cluster_node *node, enum cluster_kind kind, const char *text);

/* Add a node, with no slot. -EINVAL: its name is none, it lacks the native address, or another node has the name or an
 * address. -E2BIG: there are CLUSTER_NODES. */
int cluster_add(struct cluster_table *table, const struct cluster_node *node);

/* Whether the text names a cluster as servers of librdmad are named: cluster:ADDRESS,ADDRESS... or cluster:/PATH. Then
 * *rest, which may be NULL, is what is behind the colon. cluster:7471 is a host of that name. */
bool cluster_is_named(const char *text, const char **rest);

/* The index of a node, or CLUSTER_NODES. */
unsigned cluster_find(const struct cluster_table *table, const char *name);

/* The last slot of those from `first` on that have its owner. */
unsigned cluster_run(const struct cluster_table *table, unsigned first);

/* The next range of an owner, from slot *next on; false: there is none. *next is behind it then. */
bool cluster_range(const struct cluster_table *table, unsigned owner, unsigned *next, unsigned *first, unsigned *last);

/* Each node's count of slots. */
void cluster_count(const struct cluster_table *table, unsigned counts[static CLUSTER_NODES]);

/*
 * print.c
 */

/* The table's one text, which parses to the same table: nodes in their order, ranges in rising order, and a checksum of
 * what is before it. Its length, without the 0 behind it; -EFBIG: it has more than CLUSTER_TEXT_MAX bytes. */
int cluster_print(const struct cluster_table *table, char text[static CLUSTER_TEXT_MAX + 1]);

/*
 * parse.c
 */

/* A table of a text, which is complete: each slot has one owner or is declared absent, names and addresses are unique.
 * Comments, blanks and the order of ranges are free. The checksum may be left out, by a person; where it is there, it
 * is that of the table as it is printed. `path`: the text's name in messages, which have the line. -EINVAL, -E2BIG,
 * -EFBIG, -ENOMEM. */
int cluster_parse(const char *path, const char *text, size_t length, struct cluster_table *out);

/*
 * file.c
 */

/* The table of a file: cluster_parse(); or another -errno, where the file cannot be read. */
int cluster_load(const char *path, struct cluster_table *out);

/* Replace a file by the table's text, which is on disk then: a crash leaves the former one or this one. */
int cluster_save(const char *path, const struct cluster_table *table);

/*
 * plan.c
 */

/* The table after `now` with these nodes, every slot on one of them, and the epoch one higher. Counts differ by one at
 * most, and the least number of slots moves, in few and long ranges; absent ones get a node. A slot that is to go to a
 * node counts as that one's. A node is the same where its name is. `now` may have no node yet: epoch 0, all slots
 * absent. -EINVAL, -E2BIG as cluster_add(). -ERANGE: no
 * higher epoch. */
int cluster_plan(const struct cluster_table *now, const struct cluster_node *nodes, unsigned count,
		 struct cluster_table *out);

/* The table after `now` in which nodes that are gone have no slot, which live ones get, each as many as makes their
 * counts alike; no other slot moves. -ESRCH: none lives. -ERANGE as above. */
int cluster_spread(const struct cluster_table *now, const bool gone[static CLUSTER_NODES],
		   const bool lives[static CLUSTER_NODES], struct cluster_table *out);

/* Mark in `next` from which node of `now` each slot comes that gets another owner, and which slots came with their
 * values. Of `next` only the owners and `to` are used. settled: nodes that serve by `now`, or are out; gone: nodes
 * that are out, and stay so until `next` is valid. A node that loses slots and is not in `next` comes to be there,
 * without a slot. A slot that gets another owner, or is to go to one that is gone, is to go nowhere. -EBUSY: a slot
 * would be handed on that its last node has not let go of. -EINVAL: another name, or no higher epoch. -E2BIG as
 * cluster_add(). */
int cluster_hand_over(const struct cluster_table *now, const bool settled[static CLUSTER_NODES],
		      const bool gone[static CLUSTER_NODES], struct cluster_table *next);

/* Before that: slots of live nodes of `now` that have another owner in `next`, or are to go to one there, stay where
 * they are, and are to go there with their values. -E2BIG as cluster_add(). */
int cluster_keep_values(const struct cluster_table *now, const bool lives[static CLUSTER_NODES],
			struct cluster_table *next);

/* The table after `now` by which a node of it has got these slots (bits) with their values. It serves them by that
 * table at once, as their last node has let go of them before; which is to say so before they go on to a third one.
 * Otherwise as cluster_hand_over(); -ERANGE: no higher epoch. */
int cluster_move(const struct cluster_table *now, const bool settled[static CLUSTER_NODES],
		 const uint8_t slots[static CLUSTER_SLOT_BYTES], unsigned target, struct cluster_table *out);

/*
 * member.c: what a node may serve, by an engine of agreement that the nodes share (etcd). It has the table as one key,
 * and a key of each node; it carries out transactions one after the other, says of each key by which revision it was
 * written last, and never loses one. The rules are in rdmad-cluster(7), "ENGINE". One thread. No clock: `now` is in ns,
 * goes on while the machine sleeps, and is that of this node alone.
 */
#define CLUSTER_BOOT 32u       /* digits that no other start of a node has */
#define CLUSTER_VALUE_MAX 256u /* bytes of a node's value */

/* What a node says of itself in its key. */
struct cluster_entry {
	char node[CLUSTER_NAME_MAX + 1];
	uint64_t revision; /* 0: there is no such key */
	char boot[CLUSTER_BOOT + 1];
	char place[CLUSTER_BOOT + 1]; /* two processes with one place are not at the same time; "-": it is not known */
	uint64_t count;               /* of beats */
	uint64_t epoch;               /* of the table by which it serves; 0: by none */
	uint64_t period;              /* its own, in ns; 0: it is not known */
	bool lasting;                 /* it goes on without the engine */
	bool out;                     /* it serves nothing, until it comes back by a beat */
};

/* The value of a key, of any length: -EINVAL, and the entry has no boot. The node and the revision stay. */
int cluster_entry_parse(const char *text, size_t length, struct cluster_entry *out);
void cluster_entry_print(const struct cluster_entry *entry, char text[static CLUSTER_VALUE_MAX]);
/* The node serves no slot that the table of this epoch gives to others. NULL: nothing is known of it. */
bool cluster_entry_settled(const struct cluster_entry *entry, uint64_t epoch);
/* The node may give slots and get them. NULL: nothing is known of it. */
bool cluster_entry_is_member(const struct cluster_entry *entry);

/*
 * move.c: a node gets slots with their values. A session is one move of some slots from their owner, the donor, which
 * sends the values and commits the table by which the slots are this node's.
 */
#define CLUSTER_STEP 1024u  /* slots of a session, at most */
#define CLUSTER_ID_SIZE 16u /* bytes */

struct cluster_session {
	char donor[CLUSTER_NAME_MAX + 1];
	char boot[CLUSTER_BOOT + 1]; /* the donor's */
	uint8_t id[CLUSTER_ID_SIZE]; /* of one start of a donor the later session has the higher one, by memcmp() */
	uint64_t epoch;              /* of the donor's table */
	uint8_t slots[CLUSTER_SLOT_BYTES];
	uint64_t complete; /* all values have come, and the table of this epoch is to say so; 0: not yet */
};

/* Whether this node may take it now, by its own table and what the engine has of the donor (NULL: nothing). False, and
 * why: perhaps a look at the engine helps. It is another's to see that no other session is here which this one does not
 * replace, and that the slots have no keys here. */
bool cluster_session_allowed(const struct cluster_session *session, const struct cluster_table *table, unsigned self,
			     const struct cluster_entry *donor, char *why, size_t size);
/* Whether the donor has begun the next one behind it: then no table can be committed for the former any more. */
bool cluster_session_replaces(const struct cluster_session *session, const struct cluster_session *next);
/* The session has ended by this table. A complete one ends by a table of its epoch or a later one alone: until then the
 * donor may be about to commit it, and an older table says nothing of that. One that is not complete ends as a whole
 * when any of its slots is not to come any more. */
bool cluster_session_over(const struct cluster_session *session, const struct cluster_table *table, unsigned self);
/* The slot of a session that is over by this table is served with the values that came. All others are swept. */
bool cluster_session_keeps(const struct cluster_session *session, const struct cluster_table *table, unsigned self,
			   unsigned slot);

/* All keys, as they were behind a transaction. */
struct cluster_view {
	uint64_t revision;       /* of the engine */
	uint64_t table_revision; /* 0: there is no table */
	const char *table;       /* its text, not checked */
	size_t table_length;
	const struct cluster_entry *member; /* in rising order of names */
	unsigned members;
};

const struct cluster_entry *cluster_view_find(const struct cluster_view *view, const char *node);

/* What the engine is to do: if the keys have these revisions, write one; and tell all keys in every case, as they are
 * then. A key is that of a node, or of the table where the name is NULL. */
#define CLUSTER_COMPARES 17u
struct cluster_txn {
	struct {
		const char *node;
		uint64_t revision;
	} compare[CLUSTER_COMPARES];
	unsigned compares;
	const char *node;
	const char *value; /* NULL: none is written */
	size_t length;
};

struct cluster_member_attr {
	const char *cluster, *node; /* names */
	const char *boot;           /* CLUSTER_BOOT digits */
	const char *place;          /* as struct cluster_entry */
	uint64_t epoch;             /* a table with a lower one is refused: what was served before */
	uint64_t period;            /* ns */
	uint64_t spread_after;      /* ns from which on slots of a node that is out go to others; 0: never */
	bool lasting;               /* serve on without the engine, by the last table */
	/* Parts of a period, in percent: how long a beat is good for, and how long a node is silent until it is out.
	 * They are CLUSTER_SERVES and CLUSTER_SILENCE, but in tests of what happens with others. */
	unsigned serves, silence;
};

#define CLUSTER_SERVES 50u
#define CLUSTER_SILENCE 100u

enum cluster_member_state {
	CLUSTER_LOOKING,  /* not a member yet, or not any more: it looks whether it may become one */
	CLUSTER_BEATING,  /* a member */
	CLUSTER_REPLACED, /* another process is the node now; for ever */
	CLUSTER_LEFT,     /* it was told to */
	CLUSTER_REFUSED   /* the engine has a table that is none, or is older than what it had; until it has another */
};

struct cluster_member;

/* -ENOMEM. */
int cluster_member_new(const struct cluster_member_attr *attr, struct cluster_member **out);
void cluster_member_free(struct cluster_member *member); /* NULL is fine */

/* The transaction to send now; false: none. There is one at a time, of which cluster_member_answer() or
 * cluster_member_lost() is to be told before the next. What it points at stays until then. */
bool cluster_member_next(struct cluster_member *member, uint64_t now, struct cluster_txn *out);
/* When to ask for the next again. */
uint64_t cluster_member_due(const struct cluster_member *member);
/* The transaction's answer. The view is used up on return. */
void cluster_member_answer(struct cluster_member *member, uint64_t now, const struct cluster_view *view);
/* It has none, and may have been carried out, or be so later. */
void cluster_member_lost(struct cluster_member *member, uint64_t now);

/* What the node is to serve. */
struct cluster_wish {
	const struct cluster_table *table; /* NULL: there is none yet */
	uint8_t slots[CLUSTER_SLOT_BYTES];
	uint64_t serial; /* changes when any of it does */
	bool anew;       /* drop the keys of every slot, also of slots that stay */
};

const struct cluster_wish *cluster_member_wish(const struct cluster_member *member);
/* The node serves the slots of the wish of that serial, and no other, from now on. */
void cluster_member_adopted(struct cluster_member *member, uint64_t serial);
/* Leave: the node serves nothing from now on, and the next transaction says that it is out. */
void cluster_member_leave(struct cluster_member *member);
/* The slots that were adopted may be served until then; 0: not. */
uint64_t cluster_member_until(const struct cluster_member *member);

/* Ask the engine now. The look has been done when cluster_member_seen() is the number that it gets, or more. */
uint64_t cluster_member_look(struct cluster_member *member);
uint64_t cluster_member_seen(const struct cluster_member *member);

/* Slots of this node that are to go to another one next. */
struct cluster_step {
	char target[CLUSTER_NAME_MAX + 1];
	char boot[CLUSTER_BOOT + 1]; /* the target's */
	uint8_t slots[CLUSTER_SLOT_BYTES];
};

/* The step to take now; false: none. Targets take turns: it goes to the next one behind the target of *step. `rests`:
 * nodes of the wish's table that get none now; NULL: all may. */
bool cluster_member_step(const struct cluster_member *member, const bool *rests, struct cluster_step *step);
/* Whether this node still serves its slots, which are to go there, to the same start of the target. */
bool cluster_member_holds(const struct cluster_member *member, const struct cluster_step *step);
/* Whether the table behind the step would have room; else cluster_member_fault() says why not. Not while a commit is
 * open. */
bool cluster_member_fits(struct cluster_member *member, const struct cluster_step *step);
/* Commit the table of that epoch by which the target has the slots with their values: this node has carried out no
 * request for them since the last value was sent, and does not until the outcome is known. False: it failed already. */
bool cluster_member_commit(struct cluster_member *member, const struct cluster_step *step, uint64_t epoch);

const char *cluster_member_fault(const struct cluster_member *member); /* why there was no text to commit; "" */

/* Whether this node may take the session of another one now: cluster_session_allowed(), and it serves by the table. */
bool cluster_member_allows(const struct cluster_member *member, const struct cluster_session *session, char *why,
			   size_t size);
/* Whether the table by which a complete session is served never comes: its donor is out, or has been started anew, and
 * the engine has an earlier table. */
bool cluster_member_abandoned(const struct cluster_member *member, const struct cluster_session *session);

enum cluster_outcome {
	CLUSTER_NO_COMMIT,
	CLUSTER_OPEN,     /* it may have been carried out, or be so later */
	CLUSTER_DONE,     /* it was */
	CLUSTER_NOT_DONE, /* it never will be; or it was, and a later table is there by which the slots are others' */
};

/* Once it is known, go by the wish as it is then before anything else is done with the slots. */
enum cluster_outcome cluster_member_outcome(const struct cluster_member *member);

/* For its operator. */
enum cluster_member_state cluster_member_state(const struct cluster_member *member);
const char *cluster_member_reason(const struct cluster_member *member); /* why it serves nothing; "" */
/* That of a node of the table; NULL: nothing is known. */
const struct cluster_entry *cluster_member_entry(const struct cluster_member *member, unsigned node);

#endif
