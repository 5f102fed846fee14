/* plan.c: the next table, by moving few slots in long ranges. */
#include "cluster/cluster.h"

#include <inttypes.h>

struct run {
	unsigned first, length;
	bool left, right; /* of the new owner is the slot before it, behind it */
};

/* Of two runs, the one to take of when `want` slots are to move: one that goes whole; then one beside slots of the new
 * owner; then the longest that goes whole, or the shortest that has to be cut. */
static bool run_better(const struct run *a, const struct run *b, unsigned want)
{
	bool whole = a->length <= want, beside = a->left || a->right;

	if (whole != (b->length <= want))
		return whole;
	if (beside != (b->left || b->right))
		return beside;
	return whole ? a->length > b->length : a->length < b->length;
}

/* Move `count` of the slots of an owner, which has as many, to another one. */
static void move_slots(struct cluster_table *table, unsigned from, unsigned to, unsigned count)
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
			if (owner[slot] == from && (!best.length || run_better(&run, &best, count)))
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
		unsigned owner = cluster_next_owner(now, slot);
		unsigned old = owner == CLUSTER_ABSENT ? CLUSTER_NODES : place[owner];

		out->owner[slot] = old == CLUSTER_NODES ? CLUSTER_ABSENT : (uint16_t)old;
	}
	cluster_count(out, have);
	share_out(count, have, want);
	for (unsigned i = 0; i < count; i++)
		if (have[i] > want[i])
			move_slots(out, i, CLUSTER_ABSENT, have[i] - want[i]);
	for (unsigned i = 0; i < count; i++)
		if (have[i] < want[i])
			move_slots(out, CLUSTER_ABSENT, i, want[i] - have[i]);
	return 0;
}

int cluster_spread(const struct cluster_table *now, const bool gone[static CLUSTER_NODES],
		   const bool lives[static CLUSTER_NODES], struct cluster_table *out)
{
	unsigned have[CLUSTER_NODES];

	if (now->epoch >= CLUSTER_EPOCH_MAX)
		return -ERANGE;
	*out = *now;
	out->epoch++;
	memset(out->from, 0, sizeof(out->from));
	cluster_count(out, have);
	for (unsigned i = 0; i < out->count; i++) {
		unsigned gets[CLUSTER_NODES] = {0};

		for (unsigned left = gone[i] ? have[i] : 0; left; left--) {
			unsigned least = CLUSTER_NODES;

			for (unsigned n = 0; n < out->count; n++)
				if (lives[n] && !gone[n] && (least == CLUSTER_NODES || have[n] < have[least]))
					least = n;
			if (least == CLUSTER_NODES)
				return -ESRCH;
			gets[least]++;
			have[least]++;
		}
		for (unsigned n = 0; n < out->count; n++)
			move_slots(out, i, n, gets[n]);
	}
	return 0;
}

/* Where the node of `now` is in `next`: it is added where it is not there. */
static int place_in(const struct cluster_table *now, unsigned node, struct cluster_table *next)
{
	unsigned at = cluster_find(next, now->node[node].name);
	int rc = at == CLUSTER_NODES ? cluster_add(next, &now->node[node]) : 0;

	return rc < 0 ? rc : (int)cluster_find(next, now->node[node].name);
}

/* Whether two tables have a slot on the same node, or on none. */
static bool same_owner(const struct cluster_table *now, const struct cluster_table *next, unsigned slot)
{
	unsigned old = now->owner[slot], owner = next->owner[slot];

	return old == CLUSTER_ABSENT || owner == CLUSTER_ABSENT
		       ? old == owner
		       : strcmp(now->node[old].name, next->node[owner].name) == 0;
}

/* Whether a node of `next` is in `now`, and `which` has it. */
static bool node_is(const struct cluster_table *now, const bool which[static CLUSTER_NODES],
		    const struct cluster_table *next, unsigned node)
{
	unsigned at = cluster_find(now, next->node[node].name);

	return at != CLUSTER_NODES && which[at];
}

int cluster_hand_over(const struct cluster_table *now, const bool settled[static CLUSTER_NODES],
		      const bool gone[static CLUSTER_NODES], struct cluster_table *next)
{
	bool lost[CLUSTER_NODES];

	if (strcmp(now->name, next->name) != 0)
		return log_fail(-EINVAL, "cluster", "the table is of cluster %s, not of %s", next->name, now->name);
	if (next->epoch <= now->epoch)
		return log_fail(-EINVAL, "cluster",
				"epoch %" PRIu64 " is not higher than that of the valid table, %" PRIu64, next->epoch,
				now->epoch);
	for (unsigned i = 0; i < next->count; i++)
		lost[i] = node_is(now, gone, next, i);
	memset(next->from, 0, sizeof(next->from));
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++) {
		unsigned old = now->owner[slot], from = now->from[slot], to = next->to[slot];
		bool same = same_owner(now, next, slot);
		int at;

		if (!same || (to && (lost[to - 1] || to - 1 == next->owner[slot])))
			next->to[slot] = 0;
		/* It is needed until the owner has said that it goes by that table, or a later one. */
		next->moved[slot] = same && old != CLUSTER_ABSENT && !settled[old] ? now->moved[slot] : 0;
		if (from && settled[from - 1])
			from = 0;
		if (!same && from)
			return log_fail(-EBUSY, "cluster",
					"slot %u goes on from node %s, and node %s has not let go of it: wait until it "
					"serves by epoch %" PRIu64 ", or is out",
					slot, old == CLUSTER_ABSENT ? "none" : now->node[old].name,
					now->node[from - 1].name, now->epoch);
		if (!same && old != CLUSTER_ABSENT && !gone[old])
			from = old + 1;
		if (!from)
			continue;
		at = place_in(now, from - 1, next);
		if (at < 0)
			return at;
		next->from[slot] = (uint16_t)(at + 1);
	}
	return 0;
}

int cluster_keep_values(const struct cluster_table *now, const bool lives[static CLUSTER_NODES],
			struct cluster_table *next)
{
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++) {
		unsigned old = now->owner[slot], to = cluster_next_owner(next, slot);
		int at;

		next->to[slot] = 0;
		next->owner[slot] = (uint16_t)to;
		if (to == CLUSTER_ABSENT || old == CLUSTER_ABSENT || !lives[old] || same_owner(now, next, slot))
			continue;
		at = place_in(now, old, next);
		if (at < 0)
			return at;
		next->owner[slot] = (uint16_t)at;
		next->to[slot] = (uint16_t)(to + 1);
	}
	return 0;
}

int cluster_move(const struct cluster_table *now, const bool settled[static CLUSTER_NODES],
		 const uint8_t slots[static CLUSTER_SLOT_BYTES], unsigned target, struct cluster_table *out)
{
	static const bool none[CLUSTER_NODES];
	int rc;

	if (now->epoch >= CLUSTER_EPOCH_MAX)
		return -ERANGE;
	*out = *now;
	out->epoch++;
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++)
		if (cluster_bit(slots, slot))
			out->owner[slot] = (uint16_t)target;
	rc = cluster_hand_over(now, settled, none, out);
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++)
		if (cluster_bit(slots, slot))
			out->moved[slot] = out->epoch;
	return rc;
}
