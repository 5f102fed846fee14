/*
 * shm.h: shared memory, between its files: shm.c moves bytes; shm_listen.c, _open.c and _meet.c have the
 * two ends find each other.
 *
 * One memory for a channel: a page with struct shm_header, then the bytes of ring 0, of what the opener puts,
 * then those of ring 1, each of whole pages. The listener makes it. What is in it the peer may write at any
 * time, whatever the rules: it is read once, checked, then used.
 */
#ifndef RDMAD_CHANNEL_SHM_H
#define RDMAD_CHANNEL_SHM_H

#include "channel/channel.h"

#include <poll.h>

#define SHM_MAGIC 0x6d68732d64616d64ull /* "dmad-shm" */
#define SHM_VERSION 1
#define SHM_APART 128 /* bytes: processors fetch cache lines in pairs */

/* An index is written by one end. Those of sleepers are on a line of their own, which stays in both caches while nobody
 * sleeps. */
struct shm_ring {
	_Alignas(SHM_APART) _Atomic uint64_t head;        /* put */
	_Alignas(SHM_APART) _Atomic uint64_t tail;        /* got */
	_Alignas(SHM_APART) _Atomic uint64_t head_wanted; /* the end that gets sleeps until head is this; 0: is awake */
	_Atomic uint64_t tail_wanted;                     /* the end that puts sleeps until tail is this; 0: is awake */
	_Atomic uint32_t closed;                          /* the end that puts has closed the channel in peace */
};

struct shm_shape {
	uint64_t magic;
	uint32_t version;
	uint32_t page;     /* where ring 0 begins */
	uint64_t capacity; /* of a ring */
	uint64_t ring;     /* bytes of a ring in memory */
};
_Static_assert(sizeof(struct shm_shape) == 32, "no padding");

struct shm_header {
	struct shm_shape shape;
	struct shm_ring rings[2];
};
/* The bytes that rdmad-channel(7) describes. */
_Static_assert(offsetof(struct shm_header, rings[0].tail) == 256 &&
		       offsetof(struct shm_header, rings[0].closed) == 400 &&
		       offsetof(struct shm_header, rings[1].head) == 512,
	       "layout of the memory");

/* The opener's request. */
struct shm_hello {
	uint64_t magic;
	uint32_t version;
	uint32_t name_len;
	uint64_t capacity;
	char name[RDMAD_CHANNEL_NAME_MAX];
};

/* The answer; where error is 0, SHM_FDS descriptors come with it. */
struct shm_answer {
	uint64_t magic;
	uint32_t version;
	uint32_t error; /* errno */
	uint64_t capacity;
};

_Static_assert(sizeof(struct shm_hello) == 224 && sizeof(struct shm_answer) == 24, "layout of the meeting");

/* Descriptors that are handed over, in this order. */
enum shm_fd { SHM_MEMORY, SHM_HEAD_0, SHM_TAIL_0, SHM_HEAD_1, SHM_TAIL_1, SHM_FDS };

/*
 * shm.c
 */

/* Takes the descriptors and the socket, also when it fails; logged. `side`: 0 opened, 1 accepted. `object`: the name of
 * posix_memory, or "". */
int channel_shm_new(int fds[static SHM_FDS], int socket, int side, size_t capacity, const char *object,
		    const struct rdmad_channel_options *options, struct rdmad_channel **out);

/* The peer has what it needs, or needs nothing: the memory's own descriptor is closed, unless it is what locks its
 * name. */
void channel_shm_handed(struct rdmad_channel *channel);

/* poll(), for so many nanoseconds; TIME_NEVER: for ever. */
int channel_poll(struct pollfd *fds, unsigned count, uint64_t ns);

/*
 * shm_socket.c
 */
#define SHM_DIRECTORY_MAX 200
struct sockaddr_un;

/* The directory of this user's channels. */
void channel_shm_directory(char buf[static SHM_DIRECTORY_MAX]);
/* Nobody else can put anything into it: its descriptor, or -errno, logged. */
int channel_shm_directory_open(const char *path);
/* -ENAMETOOLONG, logged. */
int channel_shm_path(const char *directory, const char *name, struct sockaddr_un *out);
/* The process at the other end is this user's, or root's. */
bool channel_shm_user_may(int socket);
void channel_shm_close_all(int fds[static SHM_FDS]);

/* Bytes of the memory. */
static inline size_t channel_shm_size(size_t capacity)
{
	return channel_mirror_size(sizeof(struct shm_header)) + 2 * channel_mirror_size(capacity);
}

#endif
