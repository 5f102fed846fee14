/*
 * channel.h: two rings of bytes between two programs, one for each direction, over shared memory, TCP, UNIX sockets or
 * RDMA. See rdmad_channel(3); <rdmad/channel_types.h> has typed values on top of it.
 *
 * A channel is a stream: the other end gets all bytes that one end puts, in order, but not necessarily in the same
 * pieces. A put only writes to the ring here. What was put leaves with rdmad_channel_flush(); when a quarter of the
 * ring or 16 KiB wait (in a long stream up to 256 KiB; shm: 8 KiB); when the ring is full; or when a get at the same
 * end is about to wait. So many small values travel together.
 *
 * URLs:
 *   shm://NAME            memory of this machine that both programs map
 *   unix:///PATH          a UNIX socket, which introduces two programs that share memory; the path is the name
 *   tcp://HOST:PORT/NAME
 *   rdma://HOST:PORT/NAME
 *   HOST:PORT/NAME        RDMA where both ends have it, else TCP; between programs of one machine TCP only introduces
 *                         them
 *   meet://HOST[:PORT]/NAME   an rdmad there finds the program that listens on NAME. Bytes flow directly if the two
 *                         programs can reach each other, else through that rdmad. The channel `echo` is the rdmad
 *                         itself
 * A NAME has 1 to RDMAD_CHANNEL_NAME_MAX characters, none of them '/' or a control character.
 *
 * Threads: at each end one thread may put (put, putv, try_put, reserve, commit, flush, room) and one may get (get,
 * getv, try_get, try_get_all, peek, view, consume, available) at the same time, without a lock. They may be one thread.
 * progress, arm and fd are for a program that has its own loop, and one thread, instead. open, accept and close are
 * called while no other thread is in a call of the same handle.
 *
 * Errors are negative errno values, of these kinds:
 *   operation      -EINVAL an argument makes no sense
 *   no space       -ENOSPC more than fits: now (try_put), or ever (reserve and view beyond the capacity)
 *   timed out      -ETIMEDOUT the time is over, nothing was done, and the call may be made again; -EAGAIN a try found
 *                  too little
 *   closed         -EPIPE the peer has closed the channel. What it flushed before that can still be got
 *   I/O            -ECONNRESET the peer died or cannot be reached any more; -EPROTO it broke the rules of the ring;
 *                  -EIO ...
 *   another peer   -ENOENT no program has a channel of that name there; -EMSGSIZE it has another size; -EPROTONOSUPPORT
 *                  another version; -EACCES the peer is a user that may not
 * rdmad_error() says it in words. After an error of the kinds "closed" and "I/O", each call on the channel returns the
 * same error, until this end closes it.
 *
 * Death of the peer. Over shared memory, and where the peer's program was ended, this end learns of it at once: by the
 * call that waits, or by the next flush, at the latest some milliseconds later. A host that is gone says nothing: after
 * 30 seconds of silence this end asks, and if the host does not acknowledge that, the channel ends with -ECONNRESET,
 * about a minute after the last sign of life; over RDMA after some minutes.
 *
 * A program may make no call on its channel for as long as it likes: the channel lives while its process does. Through
 * an rdmad that does not hold for a receiver for which more waits than it has room for: after the rdmad's
 * stall_timeout, 30 seconds, the channel ends. Only calls on the channel ask. So a program that sleeps on the
 * descriptor without a time limit may learn late, or never, that the peer's host is gone: it should sleep some seconds
 * at most, and then call rdmad_channel_progress() or rdmad_channel_arm().
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
 * Making one. `size` is the capacity of each of the two rings in bytes. Both ends must give the same; any size will do,
 * not only powers of two.
 */

/* Be the server of a name. Clients that open it wait until they are accepted. -EADDRINUSE: another program listens
 * there. */
int rdmad_channel_listen(const char *url, size_t size, const struct rdmad_channel_options *options,
			 struct rdmad_channel_listener **listener);
/* Wait for the next client; each gets rings of its own. 0, -ETIMEDOUT. Clients that are refused are not reported
 * here. */
int rdmad_channel_accept(struct rdmad_channel_listener *listener, uint64_t timeout_us, struct rdmad_channel **channel);
/* A descriptor that is readable when rdmad_channel_accept() with a timeout of 0 may have a client. */
int rdmad_channel_listener_fd(const struct rdmad_channel_listener *listener);
/* The URL, with the port that was taken if 0 was asked for. Valid until the listener is closed. */
const char *rdmad_channel_listener_url(const struct rdmad_channel_listener *listener);
/* Channels that were accepted stay. Another program can take the name at once; with meet://, later if the rdmad does
 * not answer within a second. NULL is allowed. */
void rdmad_channel_listener_close(struct rdmad_channel_listener *listener);

/* Be a client. Waits until the server accepted, up to common.connect_timeout_us. */
int rdmad_channel_open(const char *url, size_t size, const struct rdmad_channel_options *options,
		       struct rdmad_channel **channel);

/* Flush, tell the peer, and free the channel. The peer can still get what it has not got yet. Over shared memory this
 * does not wait. Otherwise it waits at most a second for room to flush, and another until the peer, in a call of its
 * own, has answered; through an rdmad some seconds, until the peer has got everything. 0, or an error: what was put may
 * not have arrived. NULL is allowed. */
int rdmad_channel_close(struct rdmad_channel *channel);

/*
 * Putting. A put of up to half of the capacity is done as a whole or not at all. A longer one goes piece by piece if
 * there is no room for it at once, so that a put and a get never wait for each other. If its time is over when only
 * some pieces are put, the other end could not tell where the next value begins: the channel ends, and later calls
 * return -EIO. With a timeout of 0, a put of up to the whole capacity is done as a whole or not at all.
 */
int rdmad_channel_put(struct rdmad_channel *channel, const void *bytes, size_t count, uint64_t timeout_us);
int rdmad_channel_putv(struct rdmad_channel *channel, const struct iovec *pieces, int count, uint64_t timeout_us);
/* Put all of it without waiting, or none of it: -ENOSPC. */
int rdmad_channel_try_put(struct rdmad_channel *channel, const void *bytes, size_t count);
/* Send what was put. Waits only where the transport has no room for it. */
int rdmad_channel_flush(struct rdmad_channel *channel, uint64_t timeout_us);
/* Bytes that can be put without waiting. */
size_t rdmad_channel_room(struct rdmad_channel *channel);

/* Give the caller `count` bytes of the ring itself, in one piece, to write to. They are put by commit. -ENOSPC: more
 * than the capacity. To reserve again, without a commit, gives the same place. */
int rdmad_channel_reserve(struct rdmad_channel *channel, size_t count, uint64_t timeout_us, void **bytes);
/* Put the first `count` of the reserved bytes. */
int rdmad_channel_commit(struct rdmad_channel *channel, size_t count);

/*
 * Getting.
 */

/* Get exactly `count` bytes: up to half of the capacity as a whole or not at all; more piece by piece, as a long
 * put. */
int rdmad_channel_get(struct rdmad_channel *channel, void *bytes, size_t count, uint64_t timeout_us);
int rdmad_channel_getv(struct rdmad_channel *channel, const struct iovec *pieces, int count, uint64_t timeout_us);
/* Get what there is, up to `count` bytes, without waiting. Returns how many; 0: there is nothing. */
ssize_t rdmad_channel_try_get(struct rdmad_channel *channel, void *bytes, size_t count);
/* Get all of `count` bytes without waiting, or none of them: -EAGAIN. */
int rdmad_channel_try_get_all(struct rdmad_channel *channel, void *bytes, size_t count);
/* Copy what there is, up to `count` bytes, and leave it in the ring. Returns how many. */
ssize_t rdmad_channel_peek(struct rdmad_channel *channel, void *bytes, size_t count);
/* Bytes that can be got without waiting. Looks at the peer. */
size_t rdmad_channel_available(struct rdmad_channel *channel);

/* Look at least at `count` bytes in the ring itself, in one piece; *available is how many there are. They stay until
 * consume(). Over shared memory and RDMA the peer could change them meanwhile: if its bytes must be checked, copy them
 * first. */
int rdmad_channel_view(struct rdmad_channel *channel, size_t count, uint64_t timeout_us, const void **bytes,
		       size_t *available);
int rdmad_channel_consume(struct rdmad_channel *channel, size_t count);

/*
 * For a program's own loop: a descriptor that becomes readable when there may be something to get, room to put, or when
 * the channel has ended. Call rdmad_channel_arm() before each sleep. 0: sleep; 1: there is something now, perhaps from
 * before the end.
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
	char transport[8];             /* "shm", "unix", "tcp", "tls", "rdma" */
	char peer[128];                /* for people */
	bool relayed;                  /* through an rdmad */
	bool memory;                   /* the bytes go by memory that both ends have */
	bool sockets; /* processors move them, and both ends have a connection of TCP or a UNIX socket */
};
void rdmad_channel_info(const struct rdmad_channel *channel, struct rdmad_channel_info *info);

/*
 * List the names that programs listen on at an rdmad. `server`: as for rdmad_ping_open(), "HOST[:PORT]" and so on.
 * each() is called for each name, and ends the list if it returns anything but 0. transport: set to "tcp" and so on.
 * Returns 0, what each() returned, or a negative errno.
 */
struct rdmad_channel_entry {
	char name[RDMAD_CHANNEL_NAME_MAX + 1];
	uint64_t capacity;
	uint64_t
		/* whose bytes go through this rdmad, now; clients that reach the listener directly are not counted */
		clients;
};
typedef int (*rdmad_channel_each)(void *arg, const struct rdmad_channel_entry *entry);
int rdmad_channel_list(const char *server, const struct rdmad_options *options, rdmad_channel_each each, void *arg,
		       char transport[8]);

#ifdef __cplusplus
}
#endif

#endif
