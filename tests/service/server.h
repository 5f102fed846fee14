/*
 * server.h: a server in the test's own process: the one place in which the tests know how services, a group and a
 * listener are set up. It needs no check, so that the fuzz targets have it too: what goes wrong here aborts.
 */
#ifndef RDMAD_TESTS_SERVER_H
#define RDMAD_TESTS_SERVER_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "tests/require.h"
#include "service/channel/channel.h"
#include "service/gpu/gpu.h"
#include "service/kv/kv.h"
#include "service/peer/peer.h"

/* What tests give a group; a member of `particular` that is not 0 is taken from there. */
struct conn_group_attr server_group_attr(struct conn_group_attr particular);

/*
 * What a daemon has for its services and one of its workers has of them, over any group.
 */
struct services_options {
	size_t arena;                 /* bytes of the store; 0: 64 MiB */
	uint64_t value_max;           /* 0: 1 GiB */
	uint64_t push_max;            /* longest value that goes with its message; 0: none */
	uint64_t transfer_memory;     /* 0: half of the arena */
	uint64_t lease_memory;        /* 0: a quarter of it */
	uint64_t lease_time;          /* 0: a minute */
	enum store_eviction eviction; /* as a rule, none */
	struct fabric_domain *domain; /* the arena is registered there; NULL: nowhere, and there are no large values */
	struct gpu_service *gpu;      /* stays the caller's; NULL: gpu is not enabled */
	struct channel_settings channel;                             /* members that are 0: the default */
	struct meeting_settings peer;                                /* the same */
	size_t (*facts)(void *arg, char out[static WIRE_FACTS_MAX]); /* NULL: as a server of an earlier version */
	/* Of the log, as in the settings; `directory` NULL: none. `fatal`: as the daemon hears of it. */
	struct {
		const char *directory;
		enum kv_policy policy;
		enum kv_on_error on_error;
		enum kv_recover recover;
		uint64_t sync_every, segment; /* 0: an hour; 256 KiB */
		bool save_at_exit;
		const struct wal_files *files;
		void (*fatal)(void *arg, int error);
	} log;
	const char *cluster_table, *cluster_node, *cluster_state; /* as in the settings; NULL: of no cluster */
	bool cluster_engine; /* of the cluster "test"; the test says what an engine would */
};

struct services {
	struct store *store;
	struct service_shared shared;
	struct service_thread thread;
	struct service_part *kv; /* of the thread, whether it is enabled or not */
	struct gpu_service *gpu;
};

/* A reload: each client of the group may use names that begin so and no others. NULL: all, as at first. */
void services_revise_names(struct conn_group *group, const char *prefix);

void services_open(struct services *services, const struct services_options *options);
/* After the connections have ended. Nothing may be pinned any more. */
void services_close(struct services *services);
/* Offer kv, or do not. */
void services_enable_kv(struct services *services, bool enabled);
/* Names that are listened on, and pairs that are joined or wait for it. */
struct channel_service *services_channel(const struct services *services);
/* Groups that meet. */
struct meeting_service *services_peer(const struct services *services);
/* Accept or refuse a connect request, as a worker of the daemon does. */
void services_take(struct services *services, struct conn_group *group, struct fabric_request *request,
		   const struct wire_request *wire, enum wire_reason reason);
/* The time for what comes next. */
void services_set_time(struct services *services, uint64_t now);
/* After each turn of the group; how much there was. */
int services_turn(struct services *services);
/* What a thread does that sleeps: watch the descriptor (-1: none), tell that it is readable, arm before and disarm
 * after, look again at the deadline. */
int services_fd(const struct services *services);
void services_readable(struct services *services);
bool services_arm(struct services *services);
void services_disarm(struct services *services);
uint64_t services_deadline(const struct services *services);
/* The thread is about to end. */
void services_end(struct services *services);
/* What was counted so far: all, one of it by its name, one alone. */
struct service_counts services_counts(const struct services *services);
uint64_t *services_counter(struct service_counts *counts, const char *name);
uint64_t services_count(const struct services *services, const char *name);
/* Sessions of gpu. */
unsigned services_sessions(const struct services *services);
struct store_stats services_store_stats(const struct services *services);
/* What large values under way hold. */
const struct kv_hold *services_hold(const struct services *services);

/*
 * The server: one of a process.
 */
struct server_options {
	const char *transport;            /* "unix", "abstract", "rdma" at $RDMAD_GUEST_ADDR; NULL: "tcp" */
	const char *path;                 /* of "unix", in a folder of the test's; NULL: in one of its own */
	struct services_options services; /* `domain` is the server's own, unless: */
	bool no_large;                    /* the arena is not registered */
	struct conn_group_attr group;     /* see server_group_attr */
	/* What becomes of a connect request. NULL: services_take */
	void (*take)(struct fabric_event *event);
	int (*work)(void); /* more that a turn does; how much there was. NULL: nothing */
	uint64_t time;     /* that the test sets; 0: the real time */
};

extern struct test_server {
	struct fabric *fabric;
	struct fabric_domain *domain;
	struct fabric_queue *queue; /* listens */
	struct fabric_listener *listener;
	struct conn_group *group; /* NULL: the server died */
	struct services services;
	void (*take)(struct fabric_event *event);
	int (*work)(void);
	uint64_t time;
	pthread_t thread;
	bool running;
	_Atomic bool stop;
	struct conn_group_attr attr; /* of the group */
	struct sockaddr_storage bound;
	socklen_t bound_len;
	char dir[32], path[64]; /* of a UNIX socket */
	char address[160];      /* for a client of librdmad */
} server;

/* Everything but the thread: the caller turns the server. */
void server_open(const struct server_options *options);
/* With a thread that turns it. */
void server_start(const struct server_options *options);
/* Every connection ends, nobody listens any more. The store stays, and its arena. */
void server_die(void);
/* After it: listen at the same address again, with the same store. The thread is server_resume()'s. */
void server_revive(void);
/* All ends, also after server_die. */
void server_stop(void);

/* One turn, in the thread that calls; not while the server's own thread runs. */
int server_turn(void);

/* Start the thread; pause ends it, and does nothing when there is none. A fork() of the test pauses it meanwhile. */
void server_resume(void);
void server_pause(void);

/* For a server of a test's own, in the place of the services, that looks at records only. */
void server_ignores_established(struct conn *conn);
void server_ignores_closed(struct conn *conn, int error, const char *reason);

#endif
