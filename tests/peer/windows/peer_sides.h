/*
 * peer_sides.h: contexts in one process, of which the first is a server that the others are connected to.
 *
 * Contexts are turned by one thread, so that each makes progress while the test waits in another. `of(side, call)` makes a call
 * of one meanwhile. A program's argument, SCHEME://ADDRESS, says how they are connected; tcp://127.0.0.1 if there is none.
 */
#ifndef RDMAD_TESTS_PEER_SIDES_H
#define RDMAD_TESTS_PEER_SIDES_H

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "peer/windows/window.h"
#include "tests/suite.h"

#define SIDES 6
#define ALL (RDMA_WINDOW_READ | RDMA_WINDOW_WRITE | RDMA_WINDOW_ATOMIC)

extern const char *scheme, *host;

struct side {
	rdma_context *ctx;
	int owner; /* the peer's index of side 0 */
	int index; /* its own there */
	pthread_mutex_t lock;
};
extern struct side sides[SIDES];

#define of(side, call)                                                                                                 \
	({                                                                                                             \
		pthread_mutex_lock(&sides[side].lock);                                                                 \
		__auto_type result_ = call;                                                                            \
		pthread_mutex_unlock(&sides[side].lock);                                                               \
		result_;                                                                                               \
	})

void sides_arguments(int argc, char **argv);
/* Side 0 and n - 1 others. */
void begin(unsigned n);
void begin_with(unsigned n, uint64_t reconnect_ms);
void end(void);
/* The thread: from here on nobody turns them but the test; and again. */
void halt(void);
void go_on(void);
/* One more, connected by this scheme. */
void side_add(unsigned i, const char *by);
/* Its connection, with an error. */
void break_connection(unsigned side);

/* A window of side 0 that side 1 has open. */
extern rdma_window *window;
extern rdma_remote *remote;
void window_begin(void *addr, size_t size, unsigned rights);
void window_end(void);
rdma_remote *open_by(unsigned side);
rdma_remote *share_with(unsigned side, rdma_window *w);

#define expect_ok(call) ck_assert_msg((call) == 0, "%s", rdma_get_error())
#define expect_error(call, error, words)                                                                               \
	do {                                                                                                           \
		ck_assert_msg((intptr_t)(call) == (intptr_t)(-1), "it was taken");                                     \
		ck_assert_msg(rdma_get_errno() == (error), "%d: %s", rdma_get_errno(), rdma_get_error());              \
		ck_assert_msg(strstr(rdma_get_error(), words), "%s", rdma_get_error());                                \
	} while (0)

void fill(uint8_t *data, size_t length, unsigned seed);

/* A user that adds to the second word of a window, and to the third by compare and swap, each so often. */
enum { ADDS = 400 };
struct adder {
	unsigned side;
	rdma_remote *remote;
};
void *adder_run(void *arg);

#endif
