/*
 * rdma_lib.h: programs that talk as equals: send, receive, broadcast, exchange; memory that others read and write; groups with
 * collective operations. Over RDMA where both ends have it, else the same in software. See rdma_lib(3).
 *
 *     cc -o hello hello.c $(pkg-config --cflags --libs rdma_lib)
 *
 * A context is a program's place among its peers. One that is a server accepts peers, any context connects to
 * servers; a peer is then an index, which is its own until rdma_cleanup(). Messages from one peer come in order, whole and once.
 *
 * Errors: a call that fails returns -1, or NULL where it returns a pointer. rdma_get_error() then has a sentence and
 * rdma_get_errno() a positive errno value, both of the calling thread's last failed call.
 *
 * Threads: a context is used by one thread at a time; different contexts are independent. With rdma_options.progress_thread a
 * thread of the library's own moves bytes while the program does something else; without it the library works only while a call of it
 * runs. Callbacks run in the thread that calls the library.
 */
#ifndef RDMA_LIB_H
#define RDMA_LIB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* May be defined before the include; rdma_options has the same for one context. */
#ifndef MAX_PEERS
#define MAX_PEERS 64 /* peers at a time */
#endif
#ifndef MAX_WR
#define MAX_WR 128 /* operations of one peer that are under way on the device; more wait their turn */
#endif
#ifndef CQ_DEPTH
#define CQ_DEPTH 256 /* completions that a device's queue has room for at least; it grows with the peers */
#endif
#ifndef BUFFER_SIZE
#define BUFFER_SIZE 4096 /* a buf_size of 0 */
#endif

typedef struct rdma_context rdma_context;
typedef struct rdma_request rdma_request; /* an operation under way */
typedef struct rdma_window rdma_window;   /* memory of this program that peers may reach */
typedef struct rdma_remote rdma_remote;   /* memory of a peer that this program may reach */
typedef struct rdma_group rdma_group;     /* members that know each other, with ranks */

/* Zero it, then set what matters: 0 is the default of each field. */
typedef struct rdma_options {
	uint32_t max_peers;      /* MAX_PEERS */
	uint32_t max_wr;         /* MAX_WR */
	uint32_t cq_depth;       /* CQ_DEPTH */
	uint32_t rate_limit_mib; /* MiB/s to each peer; none */
	size_t buf_size; /* BUFFER_SIZE: bytes of short messages that each peer may have waiting here; at least 64 KiB are
	                                 granted */
	uint64_t timeout_ms; /* of a call that waits and has no time of its own; none: it waits until it is done, or
	                        the peer has gone */
	uint64_t connect_timeout_ms; /* 5,000 */
	uint64_t heartbeat_ms; /* silence after which a peer is asked whether it lives; 5,000. Not answered for as long
	                                 again, it is gone: a program that makes no call for so long needs progress_thread */
	uint64_t
		reconnect_ms; /* how long a connection that broke is made anew before its peer is gone; 0: not at all */
	uint64_t poll_us;     /* a wait polls so long before it sleeps; 200 */
	bool no_poll;         /* sleep at once */
	bool require_rdma;    /* fail rather than use another transport */
	bool progress_thread; /* a thread of the library's own works while the program makes no call */
	uint8_t traffic_class; /* of the packets: what IPv4 calls type of service, the DSCP in its upper six bits */
	const char *device;    /* RDMA: the device to use where there are several */
} rdma_options;

/*
 * Contexts.
 */

/* Make a context. A server listens on ip:port (NULL or "0.0.0.0": all of IPv4; "::": all of IPv6; port 0: one that is free, see rdma_port()).
 * A client's ip is where it connects from (NULL: any), its port is not used. */
rdma_context *rdma_init(const char *ip, int port, size_t buf_size, bool is_server);
rdma_context *rdma_init_options(const char *ip, int port, bool is_server, const rdma_options *options);
/* Ends all of it: groups, windows, requests, peers. What was sent is delivered first, and peers are told; it waits for at most a
 * second for those that make no call meanwhile. Not in a callback. NULL is allowed. */
void rdma_cleanup(rdma_context *ctx);
/* The port that a server listens on; 0: none, as of a client and of unix:///PATH. */
int rdma_port(const rdma_context *ctx);

/* A program's own limits reach rdma_init() by this; (rdma_init)(...) is the plain function, with the defaults. */
static inline rdma_context *rdma_init_limits(const char *ip, int port, size_t buf_size, bool is_server,
					     uint32_t max_peers, uint32_t max_wr, uint32_t cq_depth, size_t buffer_size)
{
	rdma_options options;

	memset(&options, 0, sizeof(options));
	options.max_peers = max_peers;
	options.max_wr = max_wr;
	options.cq_depth = cq_depth;
	options.buf_size = buf_size ? buf_size : buffer_size;
	return rdma_init_options(ip, port, is_server, &options);
}
#define rdma_init(ip, port, buf_size, is_server)                                                                       \
	rdma_init_limits(ip, port, buf_size, is_server, MAX_PEERS, MAX_WR, CQ_DEPTH, BUFFER_SIZE)

/*
 * Peers.
 */

/* Connect to a server. The peer's index, or -1. peer_ip: an address, a name, or a URL: rdma://HOST, tcp://HOST (port as
 * given; 0: that of the URL), unix:///PATH. Waits until the server has accepted, for at most connect_timeout_ms. */
int rdma_connect_peer(rdma_context *ctx, const char *peer_ip, int peer_port);
/* Wait for the next client. Its index, or -1. Clients that connect meanwhile wait for their turn. */
int rdma_accept_peer(rdma_context *ctx);
/* What was sent to it is delivered first, for at most 5 seconds. 0; -1, errno ETIMEDOUT: not all of it was, and the peer is
 * disconnected all the same. Its index is not given out again. */
int rdma_disconnect_peer(rdma_context *ctx, int peer_idx);

/* "rdma", "tcp", "unix" or "shm": shared memory; NULL: no such peer. */
const char *rdma_transport(rdma_context *ctx, int peer_idx);
/* How many peers there are now. */
int rdma_peers(rdma_context *ctx);
/* Called once for a peer that has gone without rdma_disconnect_peer() of this side, from within a later call. `why` is for people. */
typedef void rdma_lost_fn(rdma_context *ctx, int peer_idx, const char *why, void *arg);
void rdma_on_lost(rdma_context *ctx, rdma_lost_fn *lost, void *arg);

/*
 * Messages.
 */

/* Send a message of 0 bytes or more. The length, or -1. Returns when `data` may be used again: a message up to 4 KiB was copied, a
 * longer one has arrived. Waits while the peer has buf_size bytes not received, or its program makes no call and about 30 messages
 * wait for one (a progress_thread there takes them). Above INT_MAX: rdma_isend(). */
int rdma_send(rdma_context *ctx, int peer_idx, const void *data, size_t len);
/* Receive the next message. Its length, or -1. One that is longer than max_len is an error, and stays: rdma_probe() has its length. */
int rdma_recv(rdma_context *ctx, int peer_idx, void *data, size_t max_len);
/* The length of the next message; -1 with errno EAGAIN: none has come within timeout_ms (UINT64_MAX: for ever). */
int64_t rdma_probe(rdma_context *ctx, int peer_idx, uint64_t timeout_ms);
/* Send to each peer that is connected, to all at the same time. How many got it; -1: none. With peers lost meanwhile rdma_get_error() names
 * them. */
int rdma_broadcast(rdma_context *ctx, const void *data, size_t len);
/* Called by a server and all its clients: the server gathers the string of each, in the order of acceptance, and everybody gets
 * all in recv_buf: the server's, then each client's, each followed by ';', with a blank between ("s; c0; c1;"), ended by a 0
 * byte. send_buf: a string of less than msg_size bytes, which is the same at all. recv_buf has room for (members) * (msg_size + 2)
 * bytes. 0 or -1. */
int rdma_sequential_alltoall(rdma_context *ctx, const void *send_buf, void *recv_buf, size_t msg_size);

/* Classes of messages. Order holds within a class; an urgent message overtakes others that wait or are under way. */
enum { RDMA_NORMAL, RDMA_URGENT, RDMA_BULK };
/* The class of what this context sends from now on. 0 or -1. */
int rdma_send_class(rdma_context *ctx, int message_class);
/* MiB/s to one peer; 0: no limit. */
int rdma_rate_limit(rdma_context *ctx, int peer_idx, uint32_t mib);

/* Memory of long messages is registered with an RDMA device for each of them, unless it is registered until further notice by this.
 * It is unregistered before it is freed: -1, errno EBUSY: an operation uses it. 0 or -1. */
int rdma_register(rdma_context *ctx, void *addr, size_t len);
int rdma_unregister(rdma_context *ctx, const void *addr);

/*
 * Asynchronous operations. A call that begins one gives a request; the memory belongs to the operation until it is complete.
 * Every request ends by exactly one rdma_test() that says so, or one of the rdma_wait() calls; it is void then. Also one whose peer is lost or was
 * disconnected is to be ended so, and fails. rdma_cleanup() makes all requests of its context void. Those that a call has together are of one
 * context.
 */
rdma_request *rdma_isend(rdma_context *ctx, int peer_idx, const void *data, size_t len);
rdma_request *rdma_irecv(rdma_context *ctx, int peer_idx, void *data, size_t max_len);

/* 1: complete, *result is what the plain call would have returned (-1: failed, rdma_get_error() says why), and the request is void. 0: not yet.
 * Turns the context. */
int rdma_test(rdma_request *request, int64_t *result);
/* The same, waits up to timeout_ms (UINT64_MAX: for ever). 0 or -1: errno ETIMEDOUT, and the request goes on; else it has failed, and is
 * void. `result` may be NULL. */
int rdma_wait(rdma_request *request, uint64_t timeout_ms, int64_t *result);
/* The first that is complete: its place in `requests`, which becomes NULL; places with NULL are passed over. -1: errno ETIMEDOUT, or
 * EINVAL: there is none. *result: as rdma_test(). */
int rdma_wait_any(rdma_request **requests, int count, uint64_t timeout_ms, int64_t *result);
/* All of them; each that is complete becomes NULL. 0, at once if `count` is 0; -1: errno ETIMEDOUT, the first failure, or EINVAL: all
 * places are NULL. `results` may be NULL. */
int rdma_wait_all(rdma_request **requests, int count, uint64_t timeout_ms, int64_t *results);
/* Give one up: it never completes, and its memory is the caller's again. -1 with errno EBUSY: it is too late, wait for it. */
int rdma_cancel(rdma_request *request);

/* For a program with a loop of its own: readable when rdma_progress() has something to do. */
int rdma_fd(rdma_context *ctx);
/* One turn without waiting, then arm the descriptor. 1: call again, do not sleep; 0. */
int rdma_progress(rdma_context *ctx);
/* Milliseconds until it must be called though the descriptor is quiet; -1: never. */
int rdma_progress_timeout(rdma_context *ctx);

/*
 * Windows: memory that peers read and write without this program's doing anything for it.
 */
enum { RDMA_WINDOW_READ = 1, RDMA_WINDOW_WRITE = 2, RDMA_WINDOW_ATOMIC = 4 };

/* addr NULL: the library's own memory, zeros, page-aligned. Else the caller's, which must stay until close. */
rdma_window *rdma_window_create(rdma_context *ctx, void *addr, size_t size, unsigned rights);
void *rdma_window_addr(const rdma_window *window);
/* Let a peer reach it: the peer takes it by rdma_window_open(). */
int rdma_window_share(rdma_window *window, int peer_idx);
/* Nobody reaches it any more: whoever does gets an error. NULL is allowed. */
void rdma_window_close(rdma_window *window);

/* Wait for a window that the peer shares, in the order of its sharing. NULL: errno ETIMEDOUT (UINT64_MAX: never), or the peer has
 * gone. */
rdma_remote *rdma_window_open(rdma_context *ctx, int peer_idx, uint64_t timeout_ms);
size_t rdma_remote_size(const rdma_remote *remote);
unsigned rdma_remote_rights(const rdma_remote *remote);
void rdma_remote_close(rdma_remote *remote); /* NULL is allowed */

/* Any length; 0 or -1. They return when the bytes are there. notify: RDMA_NO_NOTICE, or a number that the owner gets by rdma_notice(). */
#define RDMA_NO_NOTICE UINT64_MAX
int rdma_write(rdma_remote *remote, uint64_t offset, const void *data, size_t len, uint64_t notify);
int rdma_read(rdma_remote *remote, uint64_t offset, void *data, size_t len);
rdma_request *rdma_iwrite(rdma_remote *remote, uint64_t offset, const void *data, size_t len, uint64_t notify);
rdma_request *rdma_iread(rdma_remote *remote, uint64_t offset, void *data, size_t len);
/* On a word of 8 bytes, aligned; *before: what it was. */
int rdma_fetch_add(rdma_remote *remote, uint64_t offset, uint64_t add, uint64_t *before);
int rdma_compare_swap(rdma_remote *remote, uint64_t offset, uint64_t expected, uint64_t desired, uint64_t *before);
/* "device", or "peer": whose progress carries them out. All of one window are carried out by the same. */
const char *rdma_remote_atomics(const rdma_remote *remote);
/* The next notice that came for a window, *from: the peer's index; either may be NULL. What was written before it is there. 0;
 * -1: errno ETIMEDOUT (UINT64_MAX: never), or EPIPE: none can come, as no peer has the window. */
int rdma_notice(rdma_window *window, uint64_t *notify, int *from, uint64_t timeout_ms);

/*
 * Groups: members with ranks, each connected to each.
 */

/* Called by a server and all its clients: rank 0 is the server, then its clients in the order of acceptance. */
rdma_group *rdma_group_create(rdma_context *ctx);
/* Meet at an rdmad: those who name the same group there, `size` of them. rank -1: in the order of arrival. `meeting`: an address
 * as rdmactl's; NULL: $RDMAD_HOST, else 127.0.0.1. */
rdma_group *rdma_group_meet(rdma_context *ctx, const char *meeting, const char *name, int size, int rank);
/* As rdmarun says in the environment: RDMA_RANK, RDMA_SIZE, RDMA_GROUP, RDMA_MEETING. Waits for the others for two minutes, or
 * connect_timeout_ms if that is longer. */
rdma_group *rdma_group_run(rdma_context *ctx);
/* Members by their ranks in `group`, in that order. Called by those; others need not. */
rdma_group *rdma_group_subset(rdma_group *group, const int *ranks, int count);
/* The survivors of `group`, in the order of their ranks. Called by all of them. */
rdma_group *rdma_group_shrink(rdma_group *group);
void rdma_group_free(rdma_group *group); /* NULL is allowed */
int rdma_group_rank(const rdma_group *group);
int rdma_group_size(const rdma_group *group);
/* The peer's index of a member, for rdma_send() and its like; -1: there is no such rank, or it is this program's. */
int rdma_group_peer(const rdma_group *group, int rank);
/* Whether a member was lost or has left, 0 or 1: each collective of the group in which it has no part fails then, on all survivors. */
int rdma_group_lost(const rdma_group *group, int rank);

/*
 * Collective operations: called by all members, in the same order, with arguments that fit. 0 or -1. Lengths and counts are of
 * one member's part. What fails at one member, but with EINVAL, fails soon and with the same errno at all who are not done with it; the text
 * names the rank and the reason. The group goes on, but after ECONNRESET, a member's loss. Buffers do not overlap, but RDMA_IN_PLACE as the
 * sent one means that it is in the received one, at its place.
 */
#define RDMA_IN_PLACE ((const void *)-1)
typedef enum rdma_type { RDMA_BYTE, RDMA_INT32, RDMA_INT64, RDMA_UINT64, RDMA_FLOAT, RDMA_DOUBLE } rdma_type;
typedef enum rdma_op { RDMA_SUM, RDMA_PRODUCT, RDMA_MIN, RDMA_MAX, RDMA_AND, RDMA_OR, RDMA_XOR } rdma_op;

int rdma_barrier(rdma_group *group);
int rdma_bcast(rdma_group *group, void *data, size_t len, int root);
int rdma_gather(rdma_group *group, const void *send, void *recv, size_t len, int root);
int rdma_scatter(rdma_group *group, const void *send, void *recv, size_t len, int root);
int rdma_allgather(rdma_group *group, const void *send, void *recv, size_t len);
int rdma_reduce(rdma_group *group, const void *send, void *recv, size_t count, rdma_type type, rdma_op op, int root);
int rdma_allreduce(rdma_group *group, const void *send, void *recv, size_t count, rdma_type type, rdma_op op);
int rdma_alltoall(rdma_group *group, const void *send, void *recv, size_t len);
/* Lengths and offsets in bytes, one for each member. */
int rdma_alltoallv(rdma_group *group, const void *send, const size_t *send_len, const size_t *send_at, void *recv,
		   const size_t *recv_len, const size_t *recv_at);

rdma_request *rdma_ibarrier(rdma_group *group);
rdma_request *rdma_ibcast(rdma_group *group, void *data, size_t len, int root);
rdma_request *rdma_igather(rdma_group *group, const void *send, void *recv, size_t len, int root);
rdma_request *rdma_iscatter(rdma_group *group, const void *send, void *recv, size_t len, int root);
rdma_request *rdma_iallgather(rdma_group *group, const void *send, void *recv, size_t len);
rdma_request *rdma_ireduce(rdma_group *group, const void *send, void *recv, size_t count, rdma_type type, rdma_op op,
			   int root);
rdma_request *rdma_iallreduce(rdma_group *group, const void *send, void *recv, size_t count, rdma_type type,
			      rdma_op op);
rdma_request *rdma_ialltoall(rdma_group *group, const void *send, void *recv, size_t len);
rdma_request *rdma_ialltoallv(rdma_group *group, const void *send, const size_t *send_len, const size_t *send_at,
			      void *recv, const size_t *recv_len, const size_t *recv_at);

/* Name the algorithm for a collective of this group, on all members alike; rdma_lib(3) has the table. NULL: by size again. 0 or -1. */
int rdma_group_algorithm(rdma_group *group, const char *collective, const char *algorithm);

/*
 * Errors. Of the calling thread's last failed call; "" and 0 if none failed. Valid until its next call.
 */
const char *rdma_get_error(void);
int rdma_get_errno(void);

#ifdef __cplusplus
}
#endif

#endif
