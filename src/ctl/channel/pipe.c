/*
 * pipe.c: standard input into a channel, and what comes out of it to standard output, both at once: neither waits for
 * the other, as the input may be made from the output.
 */
#include "ctl/channel/bytes.h"
#include "ctl/ctl.h"

#include <poll.h>
#include <unistd.h>

/* Bytes that have left one side, and are not at the other one yet. */
struct piece {
	char bytes[CTL_CHANNEL_PIECE];
	size_t at, len;
};

struct pipe_run {
	struct rdmad_channel *channel;
	uint64_t most, got;
	size_t chunk; /* most to put at once: with more than half of the ring, two ends can wait for each other */
	bool eof;
	bool closed; /* the other end takes no more; what it put before may still be there */
	struct piece in, out;
};

static int pipe_read(struct pipe_run *run, bool *work)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
	ssize_t n;

	if (run->eof || run->closed || run->in.len || poll(&in, 1, 0) <= 0)
		return 0;
	n = read(STDIN_FILENO, run->in.bytes, run->chunk);
	if (n < 0 && errno != EINTR && errno != EAGAIN)
		return ctl_channel_fail_own(-EIO, strerror(errno));
	if (n < 0)
		return 0;
	run->eof = n == 0;
	run->in.len = (size_t)n;
	*work = true;
	return 0;
}

/* Put what was read. An end of the channel is told of when all that came before it was got. */
static void pipe_put(struct pipe_run *run, bool *work)
{
	int rc =
		run->in.len && !run->closed ? rdmad_channel_try_put(run->channel, run->in.bytes, run->in.len) : -ENOSPC;

	if (rc == -ENOSPC)
		return;
	if (rc == 0)
		rc = rdmad_channel_flush(run->channel, 0);
	run->in.len = 0;
	run->closed = rc != 0 && rc != -ETIMEDOUT && rc != -EAGAIN;
	*work = true;
}

static int pipe_get(struct pipe_run *run, bool *work)
{
	size_t room = sizeof(run->out.bytes);
	ssize_t n;

	if (run->out.len)
		return 0;
	if (run->most)
		room = (size_t)MIN(run->most - run->got, (uint64_t)room);
	n = rdmad_channel_try_get(run->channel, run->out.bytes, room);
	if (n <= 0)
		return (int)n;
	run->out.at = 0;
	run->out.len = (size_t)n;
	run->got += (uint64_t)n;
	*work = true;
	return 0;
}

/* 1: as much as was asked for came. */
static int pipe_write(struct pipe_run *run, bool *work)
{
	struct piece *out = &run->out;
	ssize_t n;

	if (!out->len || !ctl_output_takes(0))
		return 0;
	n = ctl_channel_output(out->bytes + out->at, out->len);
	if (n < 0)
		return (int)n;
	out->at += (size_t)n;
	out->len -= (size_t)n;
	*work = true;
	return !out->len && run->most && run->got == run->most;
}

/* Sleep until there is work again, unless the channel has some now. */
static void pipe_sleep(struct pipe_run *run)
{
	struct pollfd fds[] = {
		{.fd = -1, .events = POLLIN},
		{.fd = -1, .events = POLLIN},
		{.fd = run->out.len ? STDOUT_FILENO : -1, .events = POLLOUT},
	};

	if (run->out.len && rdmad_channel_progress(run->channel) != 0)
		run->closed = true;
	/* With output that has no room, a closed channel is no reason to stay awake. */
	if (!(run->closed && run->out.len) && rdmad_channel_arm(run->channel) != 0)
		return;
	if (!run->closed)
		fds[0].fd = rdmad_channel_fd(run->channel);
	if (!run->eof && !run->closed && !run->in.len)
		fds[1].fd = STDIN_FILENO;
	poll(fds, ARRAY_SIZE(fds), (int)(CTL_SLICE / TIME_MS));
}

int ctl_channel_pipe(struct rdmad_channel *channel, uint64_t most)
{
	static struct pipe_run run;
	struct rdmad_channel_info info;
	uint64_t since = time_now();
	int rc = 0;

	rdmad_channel_info(channel, &info);
	run.channel = channel;
	run.most = most;
	run.chunk = (size_t)MIN(info.capacity / 2, (uint64_t)CTL_CHANNEL_PIECE);
	while (rc == 0) {
		bool work = false;

		rc = pipe_get(&run, &work);
		if (rc == 0)
			rc = pipe_write(&run, &work);
		if (rc == 0)
			rc = pipe_read(&run, &work);
		if (rc == 0)
			pipe_put(&run, &work);
		if (work || run.out.len) /* what waits for our reader is no fault of the other end */
			since = time_now();
		if (rc == 0 && !work)
			pipe_sleep(&run);
		if (rc == 0)
			rc = ctl_channel_go_on(since);
	}
	return MIN(rc, 0);
}
