/* peer_work.c: the works of "bench peer". scripts/benchmarks/mpi.c has the same loops. */
#include "ctl/peer.h"

#define WINDOW PEER_STREAM_WINDOW

static int other_rank(const struct peer_bench *b)
{
	return rdma_group_peer(b->group, !b->rank);
}

static int run_latency(struct peer_bench *b, uint64_t count)
{
	int peer = b->rank < 2 ? other_rank(b) : -1;
	uint64_t begin = time_now(), end;

	histogram_init(&b->round);
	for (uint64_t i = 0; i < count && b->rank < 2; i++, begin = end) {
		if (b->rank == 0 && rdma_send(b->ctx, peer, b->sent, b->size) < 0)
			return -1;
		if (rdma_recv(b->ctx, peer, b->received, b->size) < 0)
			return -1;
		if (b->rank == 1 && rdma_send(b->ctx, peer, b->sent, b->size) < 0)
			return -1;
		end = time_now();
		histogram_add(&b->round, end - begin);
	}
	return 0;
}

static int stream_window(struct peer_bench *b, int peer)
{
	rdma_request *request[WINDOW];

	for (unsigned k = 0; k < WINDOW; k++) {
		request[k] = b->rank == 0 ? rdma_isend(b->ctx, peer, b->sent, b->size)
					  : rdma_irecv(b->ctx, peer, b->received, b->size);
		if (!request[k])
			return -1;
	}
	return rdma_wait_all(request, WINDOW, UINT64_MAX, NULL);
}

/* Stream messages, until rank 1 says that all have come. */
static int run_bandwidth(struct peer_bench *b, uint64_t count)
{
	int peer = b->rank < 2 ? other_rank(b) : -1;
	char over = 0;

	if (b->rank > 1)
		return 0;
	for (uint64_t i = 0; i < count; i += WINDOW)
		if (stream_window(b, peer) < 0)
			return -1;
	return b->rank == 0 ? MIN(rdma_recv(b->ctx, peer, &over, 1), 0) : MIN(rdma_send(b->ctx, peer, &over, 1), 0);
}

/*
 * Memory of rank 1
 */
int peer_bench_window(struct peer_bench *b)
{
	if (b->remote || b->window || b->rank > 1)
		return 0;
	if (b->rank == 0) {
		b->remote = rdma_window_open(b->ctx, other_rank(b), UINT64_MAX);
		return b->remote ? 0 : -1;
	}
	b->window = rdma_window_create(b->ctx, NULL, MAX(b->size, sizeof(uint64_t)),
				       RDMA_WINDOW_READ | RDMA_WINDOW_WRITE | RDMA_WINDOW_ATOMIC);
	return b->window ? rdma_window_share(b->window, other_rank(b)) : -1;
}

void peer_bench_window_close(struct peer_bench *b)
{
	rdma_remote_close(b->remote);
	rdma_window_close(b->window);
	b->remote = NULL;
	b->window = NULL;
}

/* Let rank 1 wait until rank 0 is done; where its processor moves the bytes, it does so in this wait. */
static int finish_remote(struct peer_bench *b)
{
	char over = 0;

	if (b->rank == 0)
		return MIN(rdma_send(b->ctx, other_rank(b), &over, 1), 0);
	return b->rank == 1 ? MIN(rdma_recv(b->ctx, other_rank(b), &over, 1), 0) : 0;
}

static int run_write_latency(struct peer_bench *b, uint64_t count)
{
	for (uint64_t i = 0; i < count && b->rank == 0; i++)
		if (rdma_write(b->remote, 0, b->sent, b->size, RDMA_NO_NOTICE) < 0)
			return -1;
	return finish_remote(b);
}

static int run_read_latency(struct peer_bench *b, uint64_t count)
{
	for (uint64_t i = 0; i < count && b->rank == 0; i++)
		if (rdma_read(b->remote, 0, b->received, b->size) < 0)
			return -1;
	return finish_remote(b);
}

enum remote_access { REMOTE_READ, REMOTE_WRITE };

static int remote_window(struct peer_bench *b, enum remote_access access)
{
	rdma_request *request[WINDOW];

	for (unsigned k = 0; k < WINDOW; k++) {
		request[k] = access == REMOTE_WRITE ? rdma_iwrite(b->remote, 0, b->sent, b->size, RDMA_NO_NOTICE)
						    : rdma_iread(b->remote, 0, b->received, b->size);
		if (!request[k])
			return -1;
	}
	return rdma_wait_all(request, WINDOW, UINT64_MAX, NULL);
}

static int run_write(struct peer_bench *b, uint64_t count)
{
	for (uint64_t i = 0; i < count && b->rank == 0; i += WINDOW)
		if (remote_window(b, REMOTE_WRITE) < 0)
			return -1;
	return finish_remote(b);
}

static int run_read(struct peer_bench *b, uint64_t count)
{
	for (uint64_t i = 0; i < count && b->rank == 0; i += WINDOW)
		if (remote_window(b, REMOTE_READ) < 0)
			return -1;
	return finish_remote(b);
}

static int run_fetch_add(struct peer_bench *b, uint64_t count)
{
	uint64_t before;

	for (uint64_t i = 0; i < count && b->rank == 0; i++)
		if (rdma_fetch_add(b->remote, 0, 1, &before) < 0)
			return -1;
	return finish_remote(b);
}

/*
 * All members; each is measured alone
 */
static int run_barrier(struct peer_bench *b, uint64_t count)
{
	return rdma_barrier(b->group);
}

static int run_bcast(struct peer_bench *b, uint64_t count)
{
	return rdma_bcast(b->group, b->sent, b->size, 0);
}

static int run_gather(struct peer_bench *b, uint64_t count)
{
	return rdma_gather(b->group, b->sent, b->received, b->size, 0);
}

static int run_scatter(struct peer_bench *b, uint64_t count)
{
	return rdma_scatter(b->group, b->sent, b->received, b->size, 0);
}

static int run_allgather(struct peer_bench *b, uint64_t count)
{
	return rdma_allgather(b->group, b->sent, b->received, b->size);
}

static int run_reduce(struct peer_bench *b, uint64_t count)
{
	return rdma_reduce(b->group, b->sent, b->received, b->size / sizeof(float), RDMA_FLOAT, RDMA_SUM, 0);
}

static int run_allreduce(struct peer_bench *b, uint64_t count)
{
	return rdma_allreduce(b->group, b->sent, b->received, b->size / sizeof(float), RDMA_FLOAT, RDMA_SUM);
}

static int run_alltoall(struct peer_bench *b, uint64_t count)
{
	return rdma_alltoall(b->group, b->sent, b->received, b->size);
}

/* Exchange strings, as the benchmark by MPI does. */
static int run_exchange(struct peer_bench *b, uint64_t count)
{
	char own[256], all[RDMACTL_PEERS_MAX * 8];

	snprintf(own, sizeof(own), "a message of rank %d", b->rank);
	if ((size_t)b->ranks * (sizeof(own) + 2) > sizeof(all))
		return 0;
	return rdma_sequential_alltoall(b->ctx, own, all, sizeof(own));
}

const struct peer_work peer_works[] = {
	{"latency", PEER_WORK_PAIR, .sized = true, .run = run_latency, .share = 0.5},
	{"bandwidth", PEER_WORK_PAIR, .sized = true, .run = run_bandwidth, .share = 1},
	{"write-latency", PEER_WORK_PAIR, .sized = true, .remote = true, .run = run_write_latency, .share = 1},
	{"write", PEER_WORK_PAIR, .sized = true, .remote = true, .run = run_write, .share = 1},
	{"read-latency", PEER_WORK_PAIR, .sized = true, .remote = true, .run = run_read_latency, .share = 1},
	{"read", PEER_WORK_PAIR, .sized = true, .remote = true, .run = run_read, .share = 1},
	{"fetch-add", PEER_WORK_PAIR, .remote = true, .run = run_fetch_add, .share = 1},
	{"barrier", PEER_WORK_ALL, .run = run_barrier, .share = 1},
	{"bcast", PEER_WORK_ALL, .sized = true, .run = run_bcast, .share = 1},
	{"gather", PEER_WORK_ALL, .sized = true, .run = run_gather, .share = 1},
	{"scatter", PEER_WORK_ALL, .sized = true, .run = run_scatter, .share = 1},
	{"allgather", PEER_WORK_ALL, .sized = true, .run = run_allgather, .share = 1},
	{"reduce", PEER_WORK_ALL, .sized = true, .least = sizeof(float), .run = run_reduce, .share = 1},
	{"allreduce", PEER_WORK_ALL, .sized = true, .least = sizeof(float), .run = run_allreduce, .share = 1},
	{"alltoall", PEER_WORK_ALL, .sized = true, .run = run_alltoall, .share = 1},
	{"exchange", PEER_WORK_STAR, .run = run_exchange, .share = 1},
	{NULL},
};
