/* gather.c: gather and scatter. Trees are of virtual ranks, in which the root is 0. */
#include "peer/collectives/collective.h"

/* Each sends to the root. */
void gather_linear(struct plan *plan, const struct collective *call)
{
	if (plan->rank != call->root) {
		plan_send(plan, call->root, call->send, call->length);
		return;
	}
	for (int by = 1; by < plan->size; by++) {
		int rank = rank_after(plan, plan->rank, by);

		plan_recv(plan, rank, call->recv + rank * call->length, call->length);
	}
	plan_copy(plan, call->recv + plan->rank * call->length, call->send, call->length);
}

void scatter_linear(struct plan *plan, const struct collective *call)
{
	if (plan->rank != call->root) {
		plan_recv(plan, call->root, call->recv, call->length);
		return;
	}
	for (int by = 1; by < plan->size; by++) {
		int rank = rank_after(plan, plan->rank, by);

		plan_send(plan, rank, call->send + rank * call->length, call->length);
	}
	plan_copy(plan, call->recv, call->send + plan->rank * call->length, call->length);
}

/*
 * A binomial tree. The subtree of a member are the members from its virtual rank on, as many as its lowest bit says, or
 * to the end. Their parts are in the order of virtual ranks, of which the first is the root's.
 */
struct subtree {
	int virtual, span; /* the first, how many */
	int parent;        /* rank */
};

static struct subtree subtree_of(const struct plan *plan, const struct collective *call)
{
	struct subtree tree = {.virtual = rank_before(plan, plan->rank, call->root)};
	int bit = 1;

	while (bit < plan->size && !(tree.virtual & bit))
		bit *= 2;
	tree.span = MIN(bit, plan->size - tree.virtual);
	tree.parent = rank_after(plan, call->root, tree.virtual ? tree.virtual - bit : 0);
	return tree;
}

/* How many members are below the child that is `bit` away. */
static int subtree_below(const struct subtree *tree, int bit)
{
	return MIN(bit, tree->span - bit);
}

void gather_binomial(struct plan *plan, const struct collective *call)
{
	struct subtree tree = subtree_of(plan, call);
	bool root = !tree.virtual;
	char *parts;

	if (tree.span == 1 && !root) {
		plan_send(plan, tree.parent, call->send, call->length);
		return;
	}
	parts = root && !call->root ? call->recv : plan_memory(plan, tree.span * call->length);
	for (int bit = 1; bit < tree.span; bit *= 2)
		plan_recv(plan, rank_after(plan, call->root, tree.virtual + bit), parts + bit * call->length,
			  subtree_below(&tree, bit) * call->length);
	plan_copy(plan, parts, call->send, call->length);
	plan_round(plan);
	if (!root)
		plan_send(plan, tree.parent, parts, tree.span * call->length);
	for (int by = 0; by < plan->size && root && call->root; by++)
		plan_copy(plan, call->recv + rank_after(plan, call->root, by) * call->length, parts + by * call->length,
			  call->length);
}

static void scatter_subtree(struct plan *plan, const struct collective *call, const struct subtree *tree,
			    const char *parts)
{
	int bit = 1;

	while (bit < tree->span)
		bit *= 2;
	for (bit /= 2; bit; bit /= 2)
		plan_send(plan, rank_after(plan, call->root, tree->virtual + bit), parts + bit * call->length,
			  subtree_below(tree, bit) * call->length);
	plan_copy(plan, call->recv, parts, call->length);
}

void scatter_binomial(struct plan *plan, const struct collective *call)
{
	struct subtree tree = subtree_of(plan, call);
	bool root = !tree.virtual;
	char *parts;

	if (tree.span == 1 && !root) {
		plan_recv(plan, tree.parent, call->recv, call->length);
		return;
	}
	if (root && !call->root) {
		scatter_subtree(plan, call, &tree, call->send);
		return;
	}
	parts = plan_memory(plan, tree.span * call->length);
	for (int by = 0; by < plan->size && root; by++)
		plan_copy(plan, parts + by * call->length, call->send + rank_after(plan, call->root, by) * call->length,
			  call->length);
	if (!root)
		plan_recv(plan, tree.parent, parts, tree.span * call->length);
	plan_round(plan);
	scatter_subtree(plan, call, &tree, parts);
}
