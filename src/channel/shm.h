/*
 * shm.h: shared memory, between its files: shm.c moves bytes; shm_listen.c, _open.c and _socket.c have the
 * two ends find each other. wire/channel_shm.h has what they exchange.
 */
#ifndef RDMAD_CHANNEL_SHM_H
#define RDMAD_CHANNEL_SHM_H

#include "base/local.h"
#include "channel/channel.h"
#include "wire/channel_shm.h"

#include <poll.h>

/*
 * shm.c
 */

/* Takes the descriptors and the socket, also when it fails; logged. `side`: 0 opened, 1 accepted. `object`: the name of
 * posix_memory, or "". */
int channel_shm_new(int fds[static WIRE_SHM_FDS], int socket, int side, size_t capacity, const char *object,
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

/* The directory of this user's channels. */
void channel_shm_directory(char buf[static SHM_DIRECTORY_MAX]);
/* 0: no other user can put anything into it; or -errno, logged. */
int channel_shm_directory_check(const char *path);
/* -ENAMETOOLONG, logged. */
int channel_shm_path(const char *directory, const char *name, struct sockaddr_un *out);
void channel_shm_close_all(int fds[static WIRE_SHM_FDS]);

/* Bytes of the memory. */
static inline size_t channel_shm_size(size_t capacity)
{
	return channel_mirror_size(sizeof(struct wire_shm_header)) + 2 * channel_mirror_size(capacity);
}

#endif
