/*
 * peer_members.h: the members of a group of rdma_lib, threads with a context each. `world` is what they have in common; it is as it was
 * set in each test, which is a process of its own.
 */
#ifndef RDMAD_TESTS_PEER_MEMBERS_H
#define RDMAD_TESTS_PEER_MEMBERS_H

#include <rdma_lib.h>

#include <pthread.h>
#include <unistd.h>

#include "peer/groups/group.h"
#include "tests/suite.h"

#define MEMBERS 64

/* One program. */
struct member {
	int number; /* 0: the server */
	pthread_t thread;
	rdma_context *ctx;
	rdma_group *group;
};

extern struct world {
	struct member member[MEMBERS];
	int size, port;
	rdma_options options;
	void (*run)(struct member *m);
	pthread_barrier_t barrier, clients;
	unsigned step;
} world;

/* Fails in the thread that it is in, which ends the process of the test. */
#define SAYS(condition) ck_assert_msg(condition, #condition ": %s", rdma_get_error())
#define REFUSED(call, error, words)                                                                                    \
	do {                                                                                                           \
		ck_assert_msg(!(call), #call " was allowed");                                                          \
		ck_assert_msg(strstr(rdma_get_error(), words), "%s", rdma_get_error());                                \
		ck_assert_int_eq(rdma_get_errno(), error);                                                             \
	} while (0)

/* With more patience than users have. A fixture. */
void options_default(void);
rdma_context *context_of(int number);

/* Run it as `size` programs at a time. */
void run(int size, void (*member_run)(struct member *m));
void meet_all(void);

/* A server that has accepted all, and its clients. */
void star(struct member *m);
/* All are there, and each to each. */
void assert_works(rdma_group *group, int size);
/* No thread ends before all have done what they came for: on a busy machine it would end before the others heard its last word. */
void end(struct member *m);

/* What a device keeps open for the process once it was used is none of a group's. */
unsigned descriptors_before(void);

#endif
