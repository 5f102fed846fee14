/*
 * bytes.h: what channel.c does with a channel's bytes, in bytes.c and pipe.c. Each call returns 0 or -errno: the
 * channel's, -EINTR for Ctrl-C, or one of this process's own faults, which ctl_channel_fault tells of.
 */
#ifndef RDMAD_CTL_CHANNEL_BYTES_H
#define RDMAD_CTL_CHANNEL_BYTES_H

#include "base/base.h"
#include "rdmad/channel.h"

#define CTL_CHANNEL_PIECE (64u * 1024) /* moved at a time */

extern const char *ctl_channel_fault; /* in words, where what failed is this process's, not the channel */
int ctl_channel_fail_own(int error, const char *words); /* error */

/* Whether to wait for the other end any longer, where nothing moved since then: 0; -EINTR: Ctrl-C; -ETIMEDOUT: a
 * --timeout that was given has passed. */
int ctl_channel_go_on(uint64_t since);

int ctl_channel_put(struct rdmad_channel *channel, const void *data, size_t len);
int ctl_channel_flush(struct rdmad_channel *channel);
/* Puts what a descriptor has, until its end. */
int ctl_channel_put_stream(struct rdmad_channel *channel, int fd);
/* Waits until the other end has got everything. */
int ctl_channel_await_got(struct rdmad_channel *channel);

/* Bytes that came: to standard output, or kept for --json. */
struct ctl_sink {
	uint64_t count; /* taken; so many bytes are kept */
	char *kept;
	size_t room;
	bool drop;
	uint64_t most; /* to be taken; 0: until the other end closes */
	bool line;     /* up to its line feed */
};

/* -EPIPE: the other end has closed it, and all was taken. 0: so much was asked for. */
int ctl_sink_fill(struct rdmad_channel *channel, struct ctl_sink *sink);

/* Write as many bytes as standard output takes without a wait, after ctl_output_takes(). How many. */
ssize_t ctl_channel_output(const void *data, size_t len);

/* Standard input and output, until the other end closes, -EPIPE, or so many bytes came, unless that is 0. */
int ctl_channel_pipe(struct rdmad_channel *channel, uint64_t most);

#endif
