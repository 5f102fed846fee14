/*
 * stream: connections that are bytes in both directions, of TCP, a UNIX socket, or RDMA as Valkey's clients have it,
 * for protocols of other programs' clients. A group is what one thread has. It knows nothing of their requests: bytes
 * that came are handed to the owner of the stream, which says how many it used; what it writes leaves in order, as
 * memory of its own or as memory that is pinned until it has left. Owns no loop and no clock.
 *
 * Back-pressure: a stream whose other end takes no answers is not read, so its owner is handed nothing, while as many
 * bytes wait to leave as the group's budget has left (STREAM_OUT_HIGH in any case). So one alone has half of it, and
 * many have little each. (Dynamic thresholds: Choudhury, Hahne, IEEE/ACM Transactions on Networking 1998.) Clients that
 * write many requests before they read any answer need that. One that takes no answer for `stall` is closed.
 *
 * Cost of a turn: one epoll_wait() for all, and for each stream that has something a read and a write. A stream at rest
 * has no buffers, but for one of RDMA, whose client has two windows to write into while it lasts.
 *
 * Threads: all functions of a group and of its streams are called by the thread that has it.
 */
#ifndef RDMAD_STREAM_H
#define RDMAD_STREAM_H

#include "auth/auth.h"
#include "base/local.h"
#include "memory/memory.h"

#include <sys/socket.h>

struct stream;
struct stream_group;

#define STREAM_READ (64 * KIB)    /* most bytes of one read, but into memory of the owner's */
#define STREAM_OUT_HIGH (1 * MIB) /* waiting to leave, which each stream may have */

/* Memory that leaves in its place among the bytes. When it has left, or never will, release(owner, item). */
struct stream_piece {
	const char *at;
	size_t len;
	void (*release)(void *owner, void *item); /* NULL: the bytes are copied, as far as they cannot leave at once */
	void *owner, *item;
};

struct stream_ops {
	/*
	 * Bytes that came, and those that were not used before. Returns how many are used now; the rest comes again
	 * when more has come, or after stream_again(). Negative: the other end broke the protocol, and the stream is
	 * closed when all that was written has left. Not called while too much waits to leave.
	 */
	ssize_t (*bytes)(struct stream *stream, const char *at, size_t len);
	/* All bytes asked for by stream_receive() are in place. */
	void (*received)(struct stream *stream);
	/* Its client's rights (stream_client()) may be others now. False: it has none to the service. NULL: it looks
	 * each time. */
	bool (*revised)(struct stream *stream);
	/* Nothing that it was asked for whole is under way: it may be closed for a shutdown. NULL: always. */
	bool (*quiet)(const struct stream *stream);
	/* The last call. error 0: in peace. Pieces that wait are released behind it. */
	void (*closed)(struct stream *stream, int error, const char *reason);
};

/* For clients that come by RDMA. */
struct stream_rdma_attr {
	struct fabric_domain *domain; /* NULL: none come */
	uint32_t window;              /* bytes of each of the two that a client has; a multiple of a page */
	uint64_t handshake; /* ns until a client must be connected, and have said where answers go; 0: never */
	struct memory_budget *budget; /* registered bytes of all groups */
};

struct stream_attr {
	struct stream_rdma_attr rdma;
	uint64_t stall;     /* ns that answers may wait for a client that takes none; 0: for ever */
	uint64_t idle;      /* ns after which a client that says nothing is closed; 0: never */
	uint64_t first;     /* ns after which a stream that said nothing may give way; 0: never */
	uint64_t keepalive; /* ns of silence after which the other end's host is asked; 0: never */
	uint64_t budget;    /* bytes that may wait to leave, of all streams */
	uint64_t turn;      /* ns of work after which a visit leaves the rest to the next turn */
	uint64_t (*clock)(void);
};

/* So many streams of a service come by a transport now. */
struct stream_kind {
	const char *service, *transport; /* as in struct stream_info; NULL behind the last */
	uint64_t streams;
};

#define STREAM_KINDS 16

struct stream_stats {
	uint64_t streams, accepted, closed, stalled, gave_way, paced, revoked, violations;
	uint64_t reads, writes, bytes_in, bytes_out;
	uint64_t requests;      /* stream_served() */
	uint64_t waiting_bytes; /* to leave, now */
	uint64_t buffer_bytes;  /* memory for what came and was not used, and for what waits to leave */
	struct stream_kind kind[STREAM_KINDS];
};

struct stream_info {
	uint64_t id;
	const char *service;   /* as it was opened */
	const char *transport; /* "tcp", "unix", "rdma" */
	char peer[128], local[128];
	char key[AUTH_NAME_MAX + 1]; /* as auth_admission_name() */
	uint64_t bytes_in, bytes_out;
	uint64_t requests, answered; /* requests that stream_served() told of; requests whose answers have left */
	uint64_t opened, active;     /* time_now() scale: accepted, last said something */
	uint64_t waiting_bytes;      /* to leave */
	size_t unused_bytes;         /* that came */
	int fd;                      /* -1: it has none */
};

/*
 * A group.
 */
int stream_group_create(const struct stream_attr *attr, struct stream_group **out);
void stream_group_destroy(struct stream_group *group); /* closes what remains; NULL is fine */
int stream_group_fd(const struct stream_group *group); /* readable: there is something to do */
/* One turn; how much was done, 0: it may be time to sleep. */
int stream_group_progress(struct stream_group *group, uint64_t now);
uint64_t stream_group_deadline(const struct stream_group *group); /* when to call it though nothing comes */
bool stream_group_quiet(
	struct stream_group *group); /* no stream wants another turn now; the next one asks the kernel */
uint64_t stream_group_count(const struct stream_group *group);
struct fabric_domain *stream_group_domain(const struct stream_group *group); /* of RDMA; NULL: none come by it */
/* When the oldest that may give way was accepted; TIME_NEVER: there is none. And close it: false: there is none. */
uint64_t stream_group_oldest(const struct stream_group *group);
bool stream_group_make_room(struct stream_group *group, uint64_t now);
void stream_group_each(struct stream_group *group, void (*fn)(void *arg, struct stream *stream), void *arg);
void stream_group_get_stats(const struct stream_group *group, struct stream_stats *out);

/*
 * A stream.
 */
struct stream_open {
	int fd;                         /* taken over in each case, as the next is; -1: */
	struct fabric_request *request; /* of RDMA, of the group's fabric */
	/* Of RDMA: of the group's domain, where pinned pieces are; they leave from there. NULL: they are copied. */
	const struct fabric_region *values;
	uint64_t id;         /* unique in the process */
	const char *service; /* a name, told in lists of connections; stays. A group has few of them */
	const struct stream_ops *ops;
	void *context;
	struct quota_share *share;        /* given back at the end; not where the call failed */
	struct auth_admission *admission; /* taken over; NULL: all rights */
};
int stream_open(struct stream_group *group, const struct stream_open *open, uint64_t now, struct stream **out);
void stream_refuse(const struct stream_open *open); /* in its place */

static inline void *stream_context(const struct stream *stream)
{
	return *(void *const *)(const void *)stream;
}
/* Mark for closing: at once, or, when `error` is 0, when all that was written has left. The first counts. -EPROTO is
 * counted as a violation. */
void stream_close(struct stream *stream, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The daemon is to end: closed, as soon as its owner has nothing under way (stream_ops.quiet), nor is to be handed what
 * came, and all that was written has left. Bytes that wait for more of them hold nothing. Again and again. */
void stream_drain(struct stream *stream);
/* From within bytes(): to be handed the same again in a next turn; at the latest at `when`, 0: at once. */
void stream_again(struct stream *stream, uint64_t when);
/* From within bytes() or received(): the next `len` bytes, behind those that bytes() uses, go to memory at `to`, which
 * stays until then, or NULL: they are dropped. Then received() is called. Bytes that are here already are copied. */
void stream_receive(struct stream *stream, void *to, size_t len);
/* Behind all that was written. From any callback, or between turns; then it leaves in the next turn. */
void stream_write(struct stream *stream, const struct stream_piece *pieces, unsigned count);
/* What is written from now on waits until stream_release_to() says that this mark may leave. Marks rise. */
void stream_hold(struct stream *stream, uint64_t mark);
void stream_release_to(struct stream *stream, uint64_t mark);
uint64_t stream_held(const struct stream *stream); /* the first mark that something waits for; UINT64_MAX: none */
/* Whether the visit may go on. Asks the clock. */
bool stream_time_left(const struct stream *stream);
/* Count so many requests of its client, which may be over its limit: then it is not visited for a while. */
void stream_charge(struct stream *stream, unsigned requests);
/* So many requests of its client were carried out, and their answers written: for lists of connections. */
void stream_served(struct stream *stream, unsigned requests);

const struct auth_client *stream_client(const struct stream *stream);
/* Another client, whose password it knew. False: that one has as many connections as it may. */
bool stream_admit(struct stream *stream, struct auth_admission *admission);
struct auth_admission *stream_admission(struct stream *stream);
/* False: its key is gone, or a client that has said a password may not use the service any more; it is closed. */
bool stream_revise(struct stream *stream, struct auth_table *table);
void stream_get_info(const struct stream *stream, struct stream_info *out);
struct stream_group *stream_group_of(const struct stream *stream);
uint64_t stream_now(const struct stream *stream);
size_t stream_waiting(const struct stream *stream);   /* bytes to leave */
uint64_t stream_written(const struct stream *stream); /* all bytes so far, also those that wait */

#endif
