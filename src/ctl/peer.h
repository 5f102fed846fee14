/* peer.h: what the commands of rdma_lib share. */
#ifndef RDMAD_CTL_PEER_H
#define RDMAD_CTL_PEER_H

#include "base/base.h"
#include <rdma_lib.h>

#define RDMACTL_PEERS_MAX 1025u

/* Checks an option that is an address. */
int ctl_peer_check_address(const char *text);
/* Fills options from ctl_globals. */
void ctl_peer_options(rdma_options *options);
/* Say that the running command failed as rdma_get_error() says, at `address` unless that is NULL. An exit status. */
int ctl_peer_fail(const char *address);

/*
 * ctl/bench/peer_work.c: what is measured, between ranks of a group.
 */
struct peer_bench {
	rdma_context *ctx;
	rdma_group *group;
	int rank, ranks;
	const char *transport; /* of rank 0: to rank 1, which may have ended before it */
	size_t size;           /* bytes of a message, or of a rank's part */
	char *sent;            /* for all ranks, as is what they receive */
	char *received;
	struct histogram round; /* trips of the last run of "latency", ns, on rank 0 */
	rdma_window *window;    /* of rank 1 */
	rdma_remote *remote;    /* which rank 0 reaches; NULL until it is needed */
};

enum peer_work_kind {
	PEER_WORK_PAIR, /* of ranks 0 and 1 */
	PEER_WORK_ALL,  /* one operation of all members */
	PEER_WORK_STAR, /* of a server and its peers, where the context has them */
};

struct peer_work {
	const char *name;
	enum peer_work_kind kind;
	bool sized;
	bool remote;  /* on a window */
	size_t least; /* bytes */
	/* On each rank: so many. 0 or -1, as the library's calls. */
	int (*run)(struct peer_bench *b, uint64_t count);
	double share; /* of its time that is one operation's: a ping-pong is two */
};

extern const struct peer_work peer_works[]; /* ended by a NULL name */

#define PEER_STREAM_WINDOW 64u /* messages under way: counts of a stream are its multiples */
/* The window that works on memory need, for b->size bytes; nothing if it is there. 0 or -1. */
int peer_bench_window(struct peer_bench *b);
void peer_bench_window_close(struct peer_bench *b);

#endif
