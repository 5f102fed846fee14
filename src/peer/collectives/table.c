/* table.c: which algorithm carries out a collective. rdma_lib(3) prints this table. */
#include "peer/collectives/collective.h"

#define ALL INT32_MAX
#define K 1024u

const struct algorithm algorithms[] = {
	{COLLECTIVE_BARRIER, "dissemination", 0, SIZE_MAX, 1, ALL, ALGORITHM_ANY, barrier_dissemination},
	{COLLECTIVE_BCAST, "linear", 0, 1024 * K, 1, 4, ALGORITHM_ANY, bcast_linear},
	{COLLECTIVE_BCAST, "binomial", 0, 32 * K, 5, ALL, ALGORITHM_ANY, bcast_binomial},
	{COLLECTIVE_BCAST, "scatter", 32 * K + 1, 4096 * K, 1, 16, ALGORITHM_ANY, bcast_scatter},
	{COLLECTIVE_BCAST, "binary", 32 * K + 1, 1024 * K, 17, ALL, ALGORITHM_ANY, bcast_binary},
	{COLLECTIVE_BCAST, "chain", 0, SIZE_MAX, 1, ALL, ALGORITHM_ANY, bcast_chain},
	{COLLECTIVE_GATHER, "binomial", 0, 1 * K, 9, ALL, ALGORITHM_ANY, gather_binomial},
	{COLLECTIVE_GATHER, "linear", 0, SIZE_MAX, 1, ALL, ALGORITHM_ANY, gather_linear},
	{COLLECTIVE_SCATTER, "binomial", 0, 1 * K, 9, ALL, ALGORITHM_ANY, scatter_binomial},
	{COLLECTIVE_SCATTER, "linear", 0, SIZE_MAX, 1, ALL, ALGORITHM_ANY, scatter_linear},
	{COLLECTIVE_ALLGATHER, "linear", 0, 64 * K, 1, 4, ALGORITHM_ANY, allgather_linear},
	{COLLECTIVE_ALLGATHER, "doubling", 0, 16 * K, 1, ALL, ALGORITHM_POWER_OF_TWO, allgather_doubling},
	{COLLECTIVE_ALLGATHER, "bruck", 0, 4 * K, 1, ALL, ALGORITHM_ANY, allgather_bruck},
	{COLLECTIVE_ALLGATHER, "ring", 0, SIZE_MAX, 1, ALL, ALGORITHM_ANY, allgather_ring},
	{COLLECTIVE_REDUCE, "linear", 0, 64 * K, 1, 4, ALGORITHM_ANY, reduce_linear},
	{COLLECTIVE_REDUCE, "binomial", 0, 512 * K, 1, ALL, ALGORITHM_ANY, reduce_binomial},
	{COLLECTIVE_REDUCE, "scatter", 0, SIZE_MAX, 1, ALL, ALGORITHM_ANY, reduce_scatter},
	{COLLECTIVE_ALLREDUCE, "linear", 0, 1 * K, 1, 4, ALGORITHM_ANY, allreduce_linear},
	{COLLECTIVE_ALLREDUCE, "doubling", 0, 64 * K, 1, ALL, ALGORITHM_ANY, allreduce_doubling},
	{COLLECTIVE_ALLREDUCE, "direct", 64 * K + 1, SIZE_MAX, 1, 8, ALGORITHM_ANY, allreduce_direct},
	{COLLECTIVE_ALLREDUCE, "ring", 0, SIZE_MAX, 1, ALL, ALGORITHM_ANY, allreduce_ring},
	{COLLECTIVE_ALLTOALL, "bruck", 0, 256, 9, ALL, ALGORITHM_ANY, alltoall_bruck},
	{COLLECTIVE_ALLTOALL, "linear", 0, 128 * K, 1, 16, ALGORITHM_ANY, alltoall_linear},
	{COLLECTIVE_ALLTOALL, "linear", 0, 4 * K, 17, ALL, ALGORITHM_ANY, alltoall_linear},
	{COLLECTIVE_ALLTOALL, "pairwise", 0, SIZE_MAX, 1, ALL, ALGORITHM_ANY, alltoall_pairwise},
	{COLLECTIVE_ALLTOALLV, "linear", 0, SIZE_MAX, 1, 16, ALGORITHM_ANY, alltoallv_linear},
	{COLLECTIVE_ALLTOALLV, "pairwise", 0, SIZE_MAX, 1, ALL, ALGORITHM_ANY, alltoallv_pairwise},
};
const size_t algorithms_count = ARRAY_SIZE(algorithms);

static const char *const names[COLLECTIVES] = {
	[COLLECTIVE_BARRIER] = "barrier",     [COLLECTIVE_BCAST] = "bcast",
	[COLLECTIVE_GATHER] = "gather",       [COLLECTIVE_SCATTER] = "scatter",
	[COLLECTIVE_ALLGATHER] = "allgather", [COLLECTIVE_REDUCE] = "reduce",
	[COLLECTIVE_ALLREDUCE] = "allreduce", [COLLECTIVE_ALLTOALL] = "alltoall",
	[COLLECTIVE_ALLTOALLV] = "alltoallv",
};
_Static_assert(COLLECTIVES <= ARRAY_SIZE(((struct rdma_group *)0)->algorithm), "a group names one for each collective");

const char *collective_name(enum collective_kind kind)
{
	return names[kind];
}

const struct algorithm *algorithm_choose(enum collective_kind kind, size_t bytes, int members, const char *named)
{
	const struct algorithm *chosen = NULL;

	for (size_t i = 0; i < algorithms_count; i++) {
		const struct algorithm *each = &algorithms[i];

		if (each->kind != kind || (each->condition == ALGORITHM_POWER_OF_TWO && members & (members - 1)))
			continue;
		if (named && !strcmp(each->name, named))
			return each;
		if (!chosen && bytes >= each->least && bytes <= each->most && members >= each->least_members &&
		    members <= each->most_members)
			chosen = each;
	}
	must(chosen);
	return chosen;
}

/*
 * rdma_group_algorithm().
 */
static int kind_find(const char *name)
{
	for (int kind = 0; name && kind < COLLECTIVES; kind++) {
		if (!strcmp(names[kind], name))
			return kind;
	}
	return -EINVAL;
}

/* The names of its algorithms go to `text`. */
static const struct algorithm *algorithm_find(int kind, const char *name, char *text, size_t size)
{
	size_t at = 0;

	for (size_t i = 0; i < algorithms_count; i++) {
		const struct algorithm *each = &algorithms[i];

		if ((int)each->kind != kind)
			continue;
		if (!strcmp(each->name, name))
			return each;
		if (at < size &&
		    (!i || algorithms[i - 1].kind != each->kind || strcmp(algorithms[i - 1].name, each->name)))
			at += snprintf(text + at, size - at, " %s", each->name);
	}
	return NULL;
}

int rdma_group_algorithm(rdma_group *group, const char *collective, const char *algorithm)
{
	int kind = kind_find(collective);
	const struct algorithm *found = NULL;
	char text[200] = "";

	if (!group)
		return rdma_fail(-EINVAL, "Invalid parameters: no group");
	if (kind < 0)
		return rdma_fail(-EINVAL, "Invalid parameters: there is no collective \"%s\"",
				 collective ? collective : "");
	if (algorithm)
		found = algorithm_find(kind, algorithm, text, sizeof(text));
	if (algorithm && !found)
		return rdma_fail(-EINVAL, "Invalid parameters: %s has no algorithm \"%s\", but:%s", collective,
				 algorithm, text);
	rdma_enter(group->ctx);
	group->algorithm[kind] = found ? found->name : NULL;
	rdma_leave(group->ctx);
	return 0;
}
