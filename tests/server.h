/*
 * server.h: a server in a thread of the test's own process. A test program makes its fabric, group and store as it
 * needs them, and says by `take` what becomes of a connect request.
 */
#ifndef RDMAD_TESTS_SERVER_H
#define RDMAD_TESTS_SERVER_H

#include <pthread.h>

#include "service/service.h"

extern struct test_server {
	struct fabric *fabric;
	struct fabric_domain *domain;
	struct fabric_queue *queue; /* listens */
	struct fabric_listener *listener;
	struct conn_group *group;
	struct service_shared shared;
	struct service_worker worker;
	void *arena;
	void (*take)(struct fabric_event *event);
	int (*work)(void); /* more that a turn does; how much there was. NULL: nothing */
	pthread_t thread;
	bool running;
	_Atomic bool stop;
	char address[160], path[100];
} server;

/* One turn, in the thread that calls; not while the server's own thread runs. */
int server_turn(void);

/* Start the thread; pause ends it, and does nothing when there is none. */
void server_resume(void);
void server_pause(void);

#endif
