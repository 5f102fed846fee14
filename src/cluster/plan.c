/* plan.c: the next table, by moving few slots in long ranges. */
#include "cluster/cluster.h"

struct run {
	unsigned first, length;
	bool left, right; /* of the new owner is the slot before it, behind it */
};

/* Of two runs, the one to take of when `want` slots are to move: one that goes whole; then one beside slots of the new
 * owner; then the longest that goes whole, or the shortest that has to be cut. */
static bool better(const struct run *a, const struct run *b, unsigned want)
{
	bool whole = a->length <= want, beside = a->left || a->right;

	if (whole != (b->length <= want))
		return whole;
	if (beside != (b->left || b->right))
		return beside;
	return whole ? a->length > b->length : a->length < b->length;
}

/* Move `count` of the slots of an owner, which has as many, to another one. */
static void move(struct cluster_table *table, unsigned from, unsigned to, unsigned count)
{
	const uint16_t *owner = table->owner;

	while (count) {
		struct run best = {.length = 0};
		unsigned n, first;

		for (unsigned slot = 0, last; slot < CLUSTER_SLOTS; slot = last + 1) {
			struct run run;

			last = cluster_run(table, slot);
			run = (struct run){slot, last - slot + 1, slot && owner[slot - 1] == to,
					   last + 1 < CLUSTER_SLOTS && owner[last + 1] == to};
			if (owner[slot] == from && (!best.length || better(&run, &best, count)))
				best = run;
		}
		must(best.length);
		n = MIN(best.length, count);
		/* One that gives loses its end and one that gets begins in front, unless it touches what is there. */
		first = best.left || (from == CLUSTER_ABSENT && !best.right) ? best.first
									     : best.first + best.length - n;
		for (unsigned i = 0; i < n; i++)
			table->owner[first + i] = (uint16_t)to;
		count -= n;
	}
}

/* How many slots each node is to have: as many as all others, and those that have most get what is left over. */
static void share_out(unsigned nodes, const unsigned have[static CLUSTER_NODES], unsigned want[static CLUSTER_NODES])
{
	for (unsigned i = 0; i < nodes; i++)
		want[i] = CLUSTER_SLOTS / nodes;
	for (unsigned left = CLUSTER_SLOTS % nodes; left; left--) {
		unsigned most = nodes;

		for (unsigned i = 0; i < nodes; i++)
			if (want[i] == CLUSTER_SLOTS / nodes && (most == nodes || have[i] > have[most]))
				most = i;
		want[most]++;
	}
}

int cluster_plan(const struct cluster_table *now, const struct cluster_node *nodes, unsigned count,
		 struct cluster_table *out)
{
	unsigned have[CLUSTER_NODES], want[CLUSTER_NODES], place[CLUSTER_NODES];
	int rc = 0;

	if (!count)
		return log_fail(-EINVAL, "cluster", "a cluster needs a node");
	if (now->epoch >= CLUSTER_EPOCH_MAX)
		return log_fail(-ERANGE, "cluster", "no epoch is higher than the table's");
	memset(out, 0, sizeof(*out));
	strcpy(out->name, now->name);
	out->epoch = now->epoch + 1;
	for (unsigned i = 0; i < count && rc == 0; i++)
		rc = cluster_add(out, &nodes[i]);
	if (rc != 0)
		return rc;
	for (unsigned i = 0; i < now->count; i++)
		place[i] = cluster_find(out, now->node[i].name);
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++) {
		unsigned old = now->owner[slot] == CLUSTER_ABSENT ? CLUSTER_NODES : place[now->owner[slot]];

		out->owner[slot] = old == CLUSTER_NODES ? CLUSTER_ABSENT : (uint16_t)old;
	}
	cluster_count(out, have);
	share_out(count, have, want);
	for (unsigned i = 0; i < count; i++)
		if (have[i] > want[i])
			move(out, i, CLUSTER_ABSENT, have[i] - want[i]);
	for (unsigned i = 0; i < count; i++)
		if (have[i] < want[i])
			move(out, CLUSTER_ABSENT, i, want[i] - have[i]);
	return 0;
}
