/*
 * channel.h: two rings of bytes between two programs, one for each direction, over shared memory, TCP, UNIX sockets or RDMA.
 * See rdmad_channel(3); <rdmad/channel_types.h> has typed values on top of it.
 *
 * A channel is a stream: what one end puts the other gets, in order, whatever the pieces. Putting is local. What was put
 * leaves with rdmad_channel_flush(), when a quarter of the ring or 16 KiB wait (in a long stream up to 256 KiB; shm: 8 KiB), when
 * the ring is full, or when a get of the same end is about to wait: so many small values travel together.
 *
 * URLs:
 *   shm://NAME            memory of this machine that both programs map
 *   unix:///PATH          a UNIX socket, which introduces two programs that share memory; the path is the name
 *   tcp://HOST:PORT/NAME
 *   rdma://HOST:PORT/NAME
 *   HOST:PORT/NAME        RDMA where both ends have it, else TCP, which only introduces programs of one machine
 *   meet://HOST[:PORT]/NAME   by way of an rdmad there: whoever listens on NAME is found, and bytes flow directly where
 *                         the two can reach each other, else through that rdmad. The channel `echo` is the rdmad itself
 * A NAME has 1 to RDMAD_CHANNEL_NAME_MAX characters, none of them '/' or a control character.
 *
 * Threads: at each end one thread may put (put, putv, try_put, reserve, commit, flush, room) and one may get (get, getv,
 * try_get, try_get_all, peek, view, consume, available) at the same time, without a lock. They may be one thread.
 * progress, arm and fd are for a program that has its own loop, and one thread, instead. open, accept and close are called
 * while no other thread is in a call of the same handle.
 *
 * Errors are negative errno values, of these kinds:
 *   operation      -EINVAL an argument makes no sense
 *   no space       -ENOSPC more than fits: now (try_put), or ever (reserve and view beyond the capacity)
 *   timed out      -ETIMEDOUT in time nothing was done, and the call may be made again; -EAGAIN a try that found too little
 *   closed         -EPIPE the peer closed the channel in peace. What it flushed before can still be got
 *   I/O            -ECONNRESET the peer died or cannot be reached any more; -EPROTO it broke the rules of the ring; -EIO ...
 *   another peer   -ENOENT nobody has a channel of that name there; -EMSGSIZE it has another size; -EPROTONOSUPPORT another
 *                  version; -EACCES the peer is a user who may not
 * rdmad_error() says it in words. After closed and I/O each call on the channel answers the same, until it is closed.
 *
 * Death. That a peer died shared memory tells at once, and so does a connection whose program was ended. A host that is gone says
 * nothing: after 30 seconds of silence this end asks, and without an answer the channel ends with -ECONNRESET, about a minute after the
 * last word; over RDMA some minutes. The same befalls a peer whose program makes no call on the channel for so long, as
 * only its calls answer: a program that computes for longer calls rdmad_channel_progress() meanwhile. Nor is anything asked
 * but in a call: a program that sleeps on the descriptor without a time limit hears of a silent death late or never; it sleeps for some
 * seconds at most, and then calls rdmad_channel_progress() or rdmad_channel_arm().
 */
#ifndef RDMAD_CHANNEL_H
#define RDMAD_CHANNEL_H

#include <sys/types.h>
#include <sys/uio.h>

#include <rdmad/rdmad.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rdmad_channel;
struct rdmad_channel_listener;

#define RDMAD_CHANNEL_NAME_MAX 200
#define RDMAD_CHANNEL_SIZE_MIN 64u
#define RDMAD_CHANNEL_SIZE_MAX (1ull << 32) /* bytes of one ring */
#define RDMAD_CHANNEL_FOREVER UINT64_MAX    /* a timeout_us */

/* Zero it, then set what matters: 0 is the default of each field. */
struct rdmad_channel_options {
	struct rdmad_options common; /* connect_timeout_us, poll_us, no_poll, require_rdma, traffic_class */
	const char *device; /* rdma: the device to use where there are several, "mlx5_0", or "mlx5_0:2" with its port */
	bool posix_memory; /* shm: an object below /dev/shm, rdmad-NAME, mode 0600, rather than memory without a name */
};

/*
 * Making one. `size` is the capacity of each of the two rings in bytes, the same at both ends; powers of two are not needed.
 */

/* Be the server of a name. Clients that open it wait until they are accepted. -EADDRINUSE: somebody listens there. */
int rdmad_channel_listen(const char *url, size_t size, const struct rdmad_channel_options *options,
			 struct rdmad_channel_listener **listener);
/* Wait for the next client; each gets rings of its own. 0, -ETIMEDOUT. A client that was refused is not told of. */
int rdmad_channel_accept(struct rdmad_channel_listener *listener, uint64_t timeout_us, struct rdmad_channel **channel);
/* Readable when rdmad_channel_accept() with a timeout of 0 may have a client. */
int rdmad_channel_listener_fd(const struct rdmad_channel_listener *listener);
/* With the port that was taken where 0 was asked for. Valid until it is closed. */
const char *rdmad_channel_listener_url(const struct rdmad_channel_listener *listener);
/* Those who were accepted stay. The name is free for the next at once; of meet://, unless the rdmad does not answer within a
 * second. NULL is allowed. */
void rdmad_channel_listener_close(struct rdmad_channel_listener *listener);

/* Be a client. Waits until the server accepted, up to common.connect_timeout_us. */
int rdmad_channel_open(const char *url, size_t size, const struct rdmad_channel_options *options,
		       struct rdmad_channel **channel);

/* Flush, tell the peer, and free it. What the peer did not get yet it still gets. Over shared memory it waits for nobody; else at
 * most a second for room to flush, and one more until the peer, in a call of its own, has answered; through an rdmad for some
 * seconds, until the peer has got it. 0, or why what was put may not have arrived. NULL is allowed. */
int rdmad_channel_close(struct rdmad_channel *channel);

/*
 * Putting. A put of up to half of the capacity is all or nothing. A longer one goes piece by piece where there is no room for it at
 * once, so that a put and a get never wait for each other; if its time is over in the midst the channel has lost its place: it
 * ends, with -EIO from later calls. With a timeout of 0, up to the capacity is all or nothing.
 */
int rdmad_channel_put(struct rdmad_channel *channel, const void *bytes, size_t count, uint64_t timeout_us);
int rdmad_channel_putv(struct rdmad_channel *channel, const struct iovec *pieces, int count, uint64_t timeout_us);
/* All of it without waiting, or -ENOSPC and none of it. */
int rdmad_channel_try_put(struct rdmad_channel *channel, const void *bytes, size_t count);
/* Send what was put. Waits only where the transport has no room for it. */
int rdmad_channel_flush(struct rdmad_channel *channel, uint64_t timeout_us);
/* Bytes that can be put without waiting. */
size_t rdmad_channel_room(struct rdmad_channel *channel);

/* Room of `count` bytes in the ring itself, in one piece, for the caller to write; it is sent after commit. -ENOSPC: beyond the
 * capacity. Reserving again gives the same place. */
int rdmad_channel_reserve(struct rdmad_channel *channel, size_t count, uint64_t timeout_us, void **bytes);
/* The first `count` of the bytes reserved are put. */
int rdmad_channel_commit(struct rdmad_channel *channel, size_t count);

/*
 * Getting.
 */

/* Exactly `count` bytes. Up to half of the capacity it is all or nothing; a longer one goes piece by piece, as a put does. */
int rdmad_channel_get(struct rdmad_channel *channel, void *bytes, size_t count, uint64_t timeout_us);
int rdmad_channel_getv(struct rdmad_channel *channel, const struct iovec *pieces, int count, uint64_t timeout_us);
/* What there is, up to `count` bytes, without waiting. How many, 0 where there is nothing. */
ssize_t rdmad_channel_try_get(struct rdmad_channel *channel, void *bytes, size_t count);
/* All of `count` bytes, or -EAGAIN and none of them. */
int rdmad_channel_try_get_all(struct rdmad_channel *channel, void *bytes, size_t count);
/* Copy what there is, up to `count` bytes, and leave it there. How many. */
ssize_t rdmad_channel_peek(struct rdmad_channel *channel, void *bytes, size_t count);
/* Bytes that can be got without waiting. Looks at the peer. */
size_t rdmad_channel_available(struct rdmad_channel *channel);

/* At least `count` bytes in the ring itself, in one piece; *available is how many there are. They stay until consume().
 * The peer of shared memory or RDMA could change them meanwhile: check what is copied, not what is looked at. */
int rdmad_channel_view(struct rdmad_channel *channel, size_t count, uint64_t timeout_us, const void **bytes,
		       size_t *available);
int rdmad_channel_consume(struct rdmad_channel *channel, size_t count);

/*
 * For a program's own loop: a descriptor that becomes readable when there may be something to get, room to put, or an end.
 * Before each sleep call rdmad_channel_arm(): 0: sleep; 1: there is something now, perhaps left from before an end.
 */
int rdmad_channel_fd(const struct rdmad_channel *channel);
int rdmad_channel_arm(struct rdmad_channel *channel);
/* Send and receive without waiting. 0, or why the channel has ended. */
int rdmad_channel_progress(struct rdmad_channel *channel);

/*
 * What there is.
 */
struct rdmad_channel_info {
	uint64_t capacity;
	uint64_t bytes_put, bytes_got; /* of this end */
	uint64_t flushes;              /* that had something to send */
	uint64_t sleeps;               /* waits that did not end while polling */
	char transport[8];             /* "shm", "unix", "tcp", "rdma" */
	char peer[128];                /* for people */
	bool relayed;                  /* through an rdmad */
};
void rdmad_channel_info(const struct rdmad_channel *channel, struct rdmad_channel_info *info);

/*
 * The names that programs listen on at an rdmad, "HOST[:PORT]" and so on as for rdmad_ping_open(). Each is handed to each(), which may
 * end it by another answer than 0. transport: "tcp" and so on. 0, each()'s answer, or why not.
 */
struct rdmad_channel_entry {
	char name[RDMAD_CHANNEL_NAME_MAX + 1];
	uint64_t capacity;
	uint64_t
		clients; /* that this rdmad joined with its listener, now; those who reach it directly it does not know */
};
typedef int (*rdmad_channel_each)(void *arg, const struct rdmad_channel_entry *entry);
int rdmad_channel_list(const char *server, const struct rdmad_options *options, rdmad_channel_each each, void *arg,
		       char transport[8]);

#ifdef __cplusplus
}
#endif

#endif
