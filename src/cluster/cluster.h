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

#define CLUSTER_ABSENT UINT16_MAX /* an owner: the slot has no server, and its keys are nowhere */

struct cluster_table {
	char name[CLUSTER_NAME_MAX + 1]; /* of the cluster */
	uint64_t epoch;                  /* from 1 on; of two tables of a cluster the higher one is valid */
	unsigned count;                  /* of nodes */
	struct cluster_node node[CLUSTER_NODES];
	uint16_t owner[CLUSTER_SLOTS]; /* index of a node, or CLUSTER_ABSENT */
};

/* "native", "resp", "metrics"; CLUSTER_KINDS for others. */
const char *cluster_kind_name(enum cluster_kind kind);
enum cluster_kind cluster_kind_find(const char *name);

/* Check an address, and keep it as it stands in a table: host in small letters, port always. A scheme, or the path of a
 * socket, is for the native one alone, which has a default port. */
int cluster_node_set(struct cluster_node *node, enum cluster_kind kind, const char *text);

/* Add a node, with no slot. -EINVAL: its name is none, it lacks the native address, or another node has the name or an
 * address. -E2BIG: there are CLUSTER_NODES. */
int cluster_add(struct cluster_table *table, const struct cluster_node *node);

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
 * most, and the least number of slots moves, in few and long ranges; absent ones get a node. A node is the same where
 * its name is. `now` may have no node yet: epoch 0, all slots absent. -EINVAL, -E2BIG as cluster_add(). -ERANGE: no
 * higher epoch. */
int cluster_plan(const struct cluster_table *now, const struct cluster_node *nodes, unsigned count,
		 struct cluster_table *out);

#endif
