/* peer_members.c: the members of a group of rdma_lib. */
#include "tests/peer/groups/peer_members.h"

struct world world;

void meet_all(void)
{
	pthread_barrier_wait(&world.barrier);
}

void options_default(void)
{
	if (!world.options.connect_timeout_ms)
		world.options.connect_timeout_ms = 600000;
	if (!world.options.heartbeat_ms)
		world.options.heartbeat_ms = 20000;
	if (!world.options.max_peers)
		world.options.max_peers = 2 * MEMBERS;
}

rdma_context *context_of(int number)
{
	rdma_context *ctx = rdma_init_options(suite_address(), 0, number == 0, &world.options);

	SAYS(ctx);
	return ctx;
}

static void *member_main(void *arg)
{
	struct member *m = arg;

	world.run(m);
	return NULL;
}

void run(int size, void (*member_run)(struct member *m))
{
	world.size = size;
	world.run = member_run;
	pthread_barrier_init(&world.barrier, NULL, (unsigned)size);
	pthread_barrier_init(&world.clients, NULL, (unsigned)MAX(size - 1, 1));
	for (int i = 0; i < size; i++) {
		world.member[i] = (struct member){.number = i};
		ck_assert_int_eq(pthread_create(&world.member[i].thread, NULL, member_main, &world.member[i]), 0);
	}
	for (int i = 0; i < size; i++)
		pthread_join(world.member[i].thread, NULL);
	pthread_barrier_destroy(&world.clients);
	pthread_barrier_destroy(&world.barrier);
}

void star(struct member *m)
{
	m->ctx = context_of(m->number);
	if (m->number == 0)
		world.port = rdma_port(m->ctx);
	meet_all();
	for (int i = 1; i < world.size && m->number == 0; i++)
		SAYS(rdma_accept_peer(m->ctx) == i - 1);
	for (int i = 1; i < world.size; i++) { /* one after the other: a number is a rank */
		if (m->number == i)
			SAYS(rdma_connect_peer(m->ctx, suite_address(), world.port) == 0);
		if (m->number)
			pthread_barrier_wait(&world.clients);
	}
}

void assert_works(rdma_group *group, int size)
{
	int64_t mine = (int64_t)(1ull << rdma_group_rank(group)), sum = 0;
	int64_t to[MEMBERS], from[MEMBERS];

	ck_assert_int_eq(rdma_group_size(group), size);
	SAYS(rdma_barrier(group) == 0);
	if (size < 60) {
		SAYS(rdma_allreduce(group, &mine, &sum, 1, RDMA_INT64, RDMA_SUM) == 0);
		ck_assert_int_eq(sum, (1ll << size) - 1);
	}
	for (int i = 0; i < size; i++)
		to[i] = rdma_group_rank(group) * 1000 + i;
	SAYS(rdma_alltoall(group, to, from, sizeof(to[0])) == 0);
	for (int i = 0; i < size; i++)
		ck_assert_int_eq(from[i], i * 1000 + rdma_group_rank(group));
}

void end(struct member *m)
{
	if (world.run)
		meet_all();
	rdma_group_free(m->group);
	m->group = NULL;
	rdma_cleanup(m->ctx);
}

unsigned descriptors_before(void)
{
	rdma_cleanup(context_of(0));
	return count_entries("/proc/self/fd");
}
