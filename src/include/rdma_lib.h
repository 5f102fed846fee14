/*
 * rdma_lib.h: programs that talk as equals: send, receive, broadcast, exchange; memory that others read and write;
 * groups with collective operations. Over RDMA where both ends have it, else the same in software. See rdma_lib(3).
 *
 *     cc -o hello hello.c $(pkg-config --cflags --libs rdma_lib)
 *
 * A context is a program's place among its peers. A server's context accepts peers, and any context can connect to
 * servers. A peer is then known by an index, which no other peer gets until rdma_cleanup(). Messages from one peer come
 * in order, whole and once.
 *
 * Errors: a call that fails returns -1, or NULL where it returns a pointer. rdma_get_error() then has a sentence and
 * rdma_get_errno() a positive errno value, both of the calling thread's last failed call.
 *
 * Threads: a context is used by one thread at a time; different contexts are independent. With
 * rdma_options.progress_thread, a thread of the library moves bytes while the program does something else; without it
 * the library works only while the program is in one of its calls. Callbacks run in the thread that calls the library.
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
#define MAX_WR 128 /* operations with one peer that are under way on the device at a time; more wait their turn */
#endif
#ifndef CQ_DEPTH
#define CQ_DEPTH 256 /* completions for which a device's queue has room, at least; it grows with the peers */
#endif
#ifndef BUFFER_SIZE
#define BUFFER_SIZE 4096 /* what a buf_size of 0 stands for */
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
	/* BUFFER_SIZE: bytes of short messages that each peer may have waiting here; at least 64 KiB are granted */
	size_t buf_size;
	uint64_t timeout_ms;         /* of calls that wait and have no such parameter; default: they wait until they are
	                        done, or the peer has gone */
	uint64_t connect_timeout_ms; /* 5,000 */
	uint64_t
		/* silence after which a peer is asked whether it lives; 5,000. It counts as gone if its host does not
		 * acknowledge that for as long. A program may make no call for as long as it likes */
		heartbeat_ms;
	uint64_t
		/* how long to try to replace a broken connection before its peer counts as gone; 0: not at all */
		reconnect_ms;
	uint64_t poll_us;        /* how long a wait polls before it sleeps; 200 */
	bool no_poll;            /* sleep at once */
	bool require_rdma;       /* fail rather than use another transport */
	bool progress_thread;    /* a thread of the library's own works while the program makes no call */
	uint8_t traffic_class;   /* of the packets; IPv4 calls it type of service. The upper six bits are the DSCP */
	const char *device;      /* RDMA: the device to use where there are several */
	const char *key_file;    /* with the key of this program, as in rdmad.h */
	bool require_encryption; /* as in rdmad.h */
	bool munge; /* as in rdmad.h; of other programs such a context takes those only that rdmad introduces */
	const char *server_user; /* as in rdmad.h */
} rdma_options;

/*
 * Contexts.
 */

/* Make a context. A server listens on ip:port. ip: NULL or "*" is all addresses, "0.0.0.0" all of IPv4, "::" all of
 * IPv6; port 0: one that is free, see rdma_port(). For a client, ip is the address that it connects from (NULL: any),
 * and port is not used. */
rdma_context *rdma_init(const char *ip, int port, size_t buf_size, bool is_server);
rdma_context *rdma_init_options(const char *ip, int port, bool is_server, const rdma_options *options);
/* End a context and all that belongs to it: groups, windows, requests, peers. What was sent is delivered first, and the
 * peers are told. It waits at most a second for peers that make no call meanwhile. Not from within a callback. NULL is
 * allowed. */
void rdma_cleanup(rdma_context *ctx);
/* The port that a server listens on; 0: it has none, as for a client, or a server on unix:///PATH. */
int rdma_port(const rdma_context *ctx);

/* Makes rdma_init() use the limits that a program defines before the include. (rdma_init)(...), with parentheses, is
 * the function with the library's defaults. */
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

/* Connect to a server. Returns the peer's index, or -1. peer_ip: an address, a name, or a URL: rdma://HOST, tcp://HOST
 * or unix:///PATH. peer_port 0: the port is in the URL. Waits until the server has accepted, for at most
 * connect_timeout_ms. */
int rdma_connect_peer(rdma_context *ctx, const char *peer_ip, int peer_port);
/* Wait for the next client. Returns its index, or -1. Clients that connect before the next call wait for that. */
int rdma_accept_peer(rdma_context *ctx);
/* Disconnect a peer. What was sent to it is delivered first, for at most 5 seconds. 0; -1 with errno ETIMEDOUT: not all
 * of that was delivered, and the peer is disconnected all the same. Its index is not given out again. */
int rdma_disconnect_peer(rdma_context *ctx, int peer_idx);

/* "rdma", "tcp", "tls" (TCP, encrypted), "unix" or "shm": shared memory; NULL: no such peer. */
const char *rdma_transport(rdma_context *ctx, int peer_idx);
/* How many peers there are now; one whose end has come is none. */
int rdma_peers(rdma_context *ctx);
/* Called once for each peer that has gone though this side did not call rdma_disconnect_peer(). It is called from
 * within a later call of the library. `why` is for people. */
typedef void rdma_lost_fn(rdma_context *ctx, int peer_idx, const char *why, void *arg);
void rdma_on_lost(rdma_context *ctx, rdma_lost_fn *lost, void *arg);

/*
 * Messages.
 */

/* Send a message of 0 bytes or more. Returns the length, or -1, when `data` may be used again: a message up to 4 KiB
 * has been copied then, a longer one has arrived. It waits while buf_size bytes wait at the peer to be received, or
 * while the peer's program makes no call and about 30 messages wait for that; a progress_thread there takes them. A
 * message above INT_MAX bytes: rdma_isend(). It fails where the peer has ended; where that comes to be known later, a
 * later call tells: rdma_disconnect_peer() certainly. */
int rdma_send(rdma_context *ctx, int peer_idx, const void *data, size_t len);
/* Receive the next message. Returns its length, or -1. If the message is longer than max_len, the call fails, and the
 * message stays: rdma_probe() tells its length. */
int rdma_recv(rdma_context *ctx, int peer_idx, void *data, size_t max_len);
/* The length of the next message; -1 with errno EAGAIN: none has come within timeout_ms (UINT64_MAX: wait for ever). */
int64_t rdma_probe(rdma_context *ctx, int peer_idx, uint64_t timeout_ms);
/* Send to all connected peers at the same time, as rdma_send(). Returns to how many; -1: to none. If peers were lost
 * meanwhile, rdma_get_error() names them. */
int rdma_broadcast(rdma_context *ctx, const void *data, size_t len);
/* Called by a server and all its clients. Each gives a string in send_buf, and all get all strings in recv_buf: the
 * server's, then those of the clients in the order in which they were accepted. Each is followed by ';', with a blank
 * between them and a 0 byte at the end: "s; c0; c1;". msg_size is the same for all callers, and each string is shorter
 * than it. recv_buf has room for (members) * (msg_size + 2) bytes. 0 or -1. */
int rdma_sequential_alltoall(rdma_context *ctx, const void *send_buf, void *recv_buf, size_t msg_size);

/* Classes of messages. Messages of one class come in order; an urgent message overtakes others that wait or are under
 * way. */
enum { RDMA_NORMAL, RDMA_URGENT, RDMA_BULK };
/* Set the class of all messages that this context sends from now on. 0 or -1. */
int rdma_send_class(rdma_context *ctx, int message_class);
/* Send at most this many MiB/s to one peer; 0: no limit. */
int rdma_rate_limit(rdma_context *ctx, int peer_idx, uint32_t mib);

/* Register memory for long messages with the RDMA device once, until it is unregistered; else it is registered for each
 * message. Unregister it before it is freed. 0 or -1; errno EBUSY: an operation uses the memory. */
int rdma_register(rdma_context *ctx, void *addr, size_t len);
int rdma_unregister(rdma_context *ctx, const void *addr);

/*
 * Asynchronous operations. A call that begins one returns a request; until it is complete, the operation owns the
 * memory. A request ends when rdma_test() or one of the rdma_wait() calls says that it is complete or has failed, and
 * must not be used after that. A request whose peer was lost or disconnected fails, and has to be ended in this way,
 * too. rdma_cleanup() ends all requests of its context. Requests that are given to one call together must be of one
 * context.
 */
rdma_request *rdma_isend(rdma_context *ctx, int peer_idx, const void *data, size_t len);
rdma_request *rdma_irecv(rdma_context *ctx, int peer_idx, void *data, size_t max_len);

/* 1: complete. *result is what the call that waits would have returned (-1: failed, rdma_get_error() says why), and the
 * request has ended. 0: not yet. This call also sends and receives, without waiting. */
int rdma_test(rdma_request *request, int64_t *result);
/* The same, but wait up to timeout_ms (UINT64_MAX: for ever). 0: complete; -1 with errno ETIMEDOUT: the request goes
 * on; -1 with another errno: it has failed, and has ended. `result` may be NULL. */
int rdma_wait(rdma_request *request, uint64_t timeout_ms, int64_t *result);
/* Wait for the first that is complete. Returns its place in `requests`, where NULL stands then; places with NULL are
 * passed over. -1 with errno ETIMEDOUT, or EINVAL: all places are NULL. *result: as of rdma_test(). */
int rdma_wait_any(rdma_request **requests, int count, uint64_t timeout_ms, int64_t *result);
/* Wait for all of them; NULL stands in the place of each that is complete. 0, at once if `count` is 0; -1 with errno
 * ETIMEDOUT, or that of the first failure, or EINVAL: all places are NULL. `results` may be NULL. */
int rdma_wait_all(rdma_request **requests, int count, uint64_t timeout_ms, int64_t *results);
/* Give a request up: it never completes, and its memory is the caller's again. -1 with errno EBUSY: it is too late,
 * wait for it. */
int rdma_cancel(rdma_request *request);

/* For a program with a loop of its own: a descriptor that is readable when rdma_progress() has something to do. */
int rdma_fd(rdma_context *ctx);
/* Send and receive without waiting, and get the descriptor ready for a sleep. 1: call again, do not sleep; 0: sleep. */
int rdma_progress(rdma_context *ctx);
/* Milliseconds after which rdma_progress() must be called even if the descriptor is not readable; -1: no need. */
int rdma_progress_timeout(rdma_context *ctx);

/*
 * Windows: memory that peers read and write while this program does nothing for it.
 */
enum { RDMA_WINDOW_READ = 1, RDMA_WINDOW_WRITE = 2, RDMA_WINDOW_ATOMIC = 4 };

/* addr NULL: memory of the library, page-aligned and full of zeros. Else memory of the caller, which must stay until
 * close. */
rdma_window *rdma_window_create(rdma_context *ctx, void *addr, size_t size, unsigned rights);
void *rdma_window_addr(const rdma_window *window);
/* Let a peer reach it: the peer takes it by rdma_window_open(). */
int rdma_window_share(rdma_window *window, int peer_idx);
/* From now on no peer can reach it: an attempt gets an error. NULL is allowed. */
void rdma_window_close(rdma_window *window);

/* Wait for the next window that the peer shares, in the order in which it shares them. NULL with errno ETIMEDOUT (never
 * if timeout_ms is UINT64_MAX), or because the peer has gone. */
rdma_remote *rdma_window_open(rdma_context *ctx, int peer_idx, uint64_t timeout_ms);
size_t rdma_remote_size(const rdma_remote *remote);
unsigned rdma_remote_rights(const rdma_remote *remote);
void rdma_remote_close(rdma_remote *remote); /* NULL is allowed */

/* Any length; 0 or -1. They return when all bytes have arrived. notify: RDMA_NO_NOTICE, or a number that the owner gets
 * by rdma_notice(). */
#define RDMA_NO_NOTICE UINT64_MAX
int rdma_write(rdma_remote *remote, uint64_t offset, const void *data, size_t len, uint64_t notify);
int rdma_read(rdma_remote *remote, uint64_t offset, void *data, size_t len);
rdma_request *rdma_iwrite(rdma_remote *remote, uint64_t offset, const void *data, size_t len, uint64_t notify);
rdma_request *rdma_iread(rdma_remote *remote, uint64_t offset, void *data, size_t len);
/* Both work on an aligned word of 8 bytes; *before: what it was. */
int rdma_fetch_add(rdma_remote *remote, uint64_t offset, uint64_t add, uint64_t *before);
int rdma_compare_swap(rdma_remote *remote, uint64_t offset, uint64_t expected, uint64_t desired, uint64_t *before);
/* What carries them out: "device"; or "peer", whose program has to make calls for it. It is the same for all of one
 * window. */
const char *rdma_remote_atomics(const rdma_remote *remote);
/* Wait for the next notice that comes for a window. *notify: its number, *from: the peer's index; either may be NULL.
 * What the peer wrote before it is there. 0; -1 with errno ETIMEDOUT (never if timeout_ms is UINT64_MAX), or EPIPE:
 * none can come, as no peer has the window. */
int rdma_notice(rdma_window *window, uint64_t *notify, int *from, uint64_t timeout_ms);

/*
 * Groups: members with ranks, each of which is connected to all others.
 */

/* Called by a server and all its clients: rank 0 is the server, then its clients in the order of acceptance. */
rdma_group *rdma_group_create(rdma_context *ctx);
/* Meet at an rdmad: the `size` programs that name the same group there are its members. rank -1: ranks are given in the
 * order of arrival. `meeting`: the rdmad's address, as for rdmactl; NULL: $RDMAD_HOST, else 127.0.0.1. */
rdma_group *rdma_group_meet(rdma_context *ctx, const char *meeting, const char *name, int size, int rank);
/* The group of the programs that a launcher has started: rdmarun, Slurm, Open MPI, MPICH, torchrun, Kubernetes, as the
 * environment says. They meet at $RDMA_MEETING, else at $RDMAD_HOST, else by PMIx where the launcher has that, else at
 * 127.0.0.1. Waits two minutes for the others, or connect_timeout_ms if that is longer. */
rdma_group *rdma_group_run(rdma_context *ctx);
/* Which launcher has started this program, for people: "srun". NULL: none that rdma_group_run() knows. */
const char *rdma_launcher(void);
/* A group of some members: those with these ranks in `group`, in that order. They all call it; other members need
 * not. */
rdma_group *rdma_group_subset(rdma_group *group, const int *ranks, int count);
/* A group of the survivors of `group`, in the order of their ranks. Called by all of them. */
rdma_group *rdma_group_shrink(rdma_group *group);
void rdma_group_free(rdma_group *group); /* NULL is allowed */
int rdma_group_rank(const rdma_group *group);
int rdma_group_size(const rdma_group *group);
/* A member's index as a peer, for rdma_send() and the like; -1: there is no such rank, or it is this program's own. */
int rdma_group_peer(const rdma_group *group, int rank);
/* 1: the member was lost or has left, and each collective of the group in which it does not take part fails on all
 * survivors; 0. */
int rdma_group_lost(const rdma_group *group, int rank);

/*
 * Collective operations: all members call them, in the same order, with arguments that fit together. 0 or -1. Lengths
 * and counts are those of one member's part. If an operation fails at one member, it soon fails, with the same errno,
 * at all members not done with it, and the text names the rank and the reason; but EINVAL is told to the caller
 * alone. The group can be used further, but not after ECONNRESET, which is the loss of a member. Buffers do not
 * overlap. With RDMA_IN_PLACE for `send`, what a member sends is in its receive buffer already, at its place.
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

/* Choose the algorithm for a collective of this group; all members choose the same. rdma_lib(3) has the table. NULL:
 * the library chooses by size, as at first. 0 or -1. */
int rdma_group_algorithm(rdma_group *group, const char *collective, const char *algorithm);

/*
 * Errors: of the last call of this thread that failed; "" and 0 if none has. Valid until the thread's next call.
 */
const char *rdma_get_error(void);
int rdma_get_errno(void);

#ifdef __cplusplus
}
#endif

#endif
