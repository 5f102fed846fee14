/* wait.c: flush, the end of a channel, what a peer tells of its index, and waiting until it has moved far enough. */
#include "channel/channel.h"

#include <sched.h>
#include <stdlib.h>

#define CHECK_INTERVAL TIME_MS /* between two polls for the peer's end while nothing comes */

int channel_end(struct rdmad_channel *channel, int error, const char *format, ...)
{
	va_list args;

	if (!atomic_exchange(&channel->ending, true)) {
		va_start(args, format);
		vsnprintf(channel->why, sizeof(channel->why), format, args);
		va_end(args);
		log_error("channel", "%s", channel->why);
		atomic_store(&channel->ended, error);
		if (channel->transport->wake) /* the other thread may wait for a peer that will not say any more */
			channel->transport->wake(channel);
	}
	while (!atomic_load(&channel->ended)) /* the other thread is about to say why */
		sched_yield();
	return atomic_load(&channel->ended);
}

int channel_ended(struct rdmad_channel *channel)
{
	int ended = atomic_load(&channel->ended);

	if (ended != 0)
		log_error("channel", "%s", channel->why); /* again: each thread has its own last error */
	return ended;
}

int channel_in_told(struct rdmad_channel *channel, uint64_t head)
{
	const struct channel_in *in = &channel->in;

	if (head - in->head > channel->capacity - (in->head - atomic_load_explicit(&in->tail, memory_order_relaxed)))
		return channel_end(
			channel, -EPROTO,
			"the peer claims to have put %llu bytes, after %llu of which %llu were got, in a ring of %llu; "
			"the channel has ended",
			(unsigned long long)head, (unsigned long long)in->head, (unsigned long long)in->tail,
			(unsigned long long)channel->capacity);
	channel->in.head = head;
	return 0;
}

int channel_out_told(struct rdmad_channel *channel, uint64_t tail)
{
	const struct channel_out *out = &channel->out;

	if (tail - out->tail > atomic_load_explicit(&out->head, memory_order_relaxed) - out->tail)
		return channel_end(channel, -EPROTO,
				   "the peer claims to have got %llu bytes, after %llu, where %llu were put; the "
				   "channel has ended",
				   (unsigned long long)tail, (unsigned long long)out->tail,
				   (unsigned long long)out->head);
	channel->out.tail = tail;
	return 0;
}

/* A thread that finds the other one at it: the one that puts knows of more than the other one saw, and waits for its
 * turn; to the one that gets nothing is left to do. */
static int flush_locked(struct rdmad_channel *channel, enum channel_way way)
{
	int rc;

	while (atomic_exchange_explicit(&channel->out.flushing, true, memory_order_acquire)) {
		if (way == CHANNEL_GET)
			return 0;
		sched_yield();
	}
	rc = channel->transport->flush(channel);
	atomic_store_explicit(&channel->out.flushing, false, memory_order_release);
	return rc;
}

static int flush_some(struct rdmad_channel *channel, enum channel_way way)
{
	const struct channel_transport *transport = channel->transport;
	int ended = atomic_load_explicit(&channel->ended, memory_order_relaxed);

	if (atomic_load_explicit(&channel->out.head, memory_order_acquire) ==
	    atomic_load_explicit(&channel->out.flushed, memory_order_relaxed))
		return 0;
	if (ended != 0)
		return ended;
	/* Not by one step that cannot be divided: of two threads that flush at once one may go uncounted. */
	atomic_store_explicit(&channel->flushes, atomic_load_explicit(&channel->flushes, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	if (!transport->assist)
		return flush_locked(channel, way);
	return way == CHANNEL_PUT ? transport->flush(channel) : transport->assist(channel);
}

int channel_flush_some(struct rdmad_channel *channel)
{
	return flush_some(channel, CHANNEL_PUT);
}

void channel_flush_early(struct rdmad_channel *channel)
{
	uint64_t next = atomic_load_explicit(&channel->flush_next, memory_order_relaxed);

	channel_flush_some(channel);
	atomic_store_explicit(&channel->flush_next, MIN(channel->flush_at, 2 * next), memory_order_relaxed);
}

/* -EAGAIN: not yet. What came before the end can still be got, but nothing can be put. */
static int index_check(struct rdmad_channel *channel, enum channel_way way, uint64_t index, uint64_t now)
{
	int rc = channel->transport->look(channel, way, now);

	if (rc != 0 && (way == CHANNEL_PUT || rc == -EIO))
		return rc;
	if ((int64_t)((way == CHANNEL_GET ? channel->in.head : channel->out.tail) - index) >= 0)
		return 0;
	return rc != 0 ? rc : -EAGAIN;
}

/* Once in a while, also for programs that never wait: the peer may have ended. */
static int index_check_end(struct rdmad_channel *channel, enum channel_way way, uint64_t index, uint64_t now)
{
	uint64_t *checked = way == CHANNEL_GET ? &channel->in.checked : &channel->out.checked;

	if (now - *checked < CHECK_INTERVAL)
		return -EAGAIN;
	*checked = now;
	channel->transport->sleep(channel, way, index, now);
	return index_check(channel, way, index, now);
}

/* -EAGAIN: not until `until`. The clock costs a part of a poll, and is read for so many of them. */
static int index_spin(struct rdmad_channel *channel, enum channel_way way, uint64_t index, uint64_t now, uint64_t until)
{
	for (unsigned idle = 1;; idle++) {
		int rc = index_check(channel, way, index, now);

		if (rc != -EAGAIN)
			return rc;
		if (idle % 16)
			continue;
		now = time_now();
		rc = now >= until ? -EAGAIN : index_check_end(channel, way, index, now);
		if (rc != -EAGAIN || now >= until)
			return rc;
		flush_some(channel, way);
		if (time_to_yield(idle))
			sched_yield();
	}
}

static int index_sleep(struct rdmad_channel *channel, enum channel_way way, uint64_t index, uint64_t until)
{
	for (;;) {
		int seen, rc;

		flush_some(channel, way);
		rc = channel->transport->sleep(channel, way, index, until);
		seen = index_check(channel, way, index, 0);
		if (seen != -EAGAIN)
			return seen;
		if (rc == -ETIMEDOUT || time_now() >= until)
			return -EAGAIN;
	}
}

static int index_wait(struct rdmad_channel *channel, enum channel_way way, uint64_t index, uint64_t until)
{
	int rc = index_check(channel, way, index, 0);
	uint64_t now;

	if (rc != -EAGAIN)
		return rc;
	now = time_now();
	if (until == 0)
		return index_check_end(channel, way, index, now);
	flush_some(channel, way);
	if (way == CHANNEL_GET)
		channel_flush_again(channel);
	rc = channel->poll ? index_spin(channel, way, index, now, MIN(until, time_after(now, channel->poll))) : -EAGAIN;
	if (rc == -EAGAIN && now < until) {
		atomic_fetch_add(way == CHANNEL_GET ? &channel->get_sleeps : &channel->put_sleeps, 1);
		rc = index_sleep(channel, way, index, until);
	}
	return rc;
}

int channel_wait(struct rdmad_channel *channel, enum channel_way way, uint64_t index, uint64_t until)
{
	_Atomic bool *inside = way == CHANNEL_GET ? &channel->in.inside : &channel->out.inside;
	int rc;

	channel_enter(inside); /* each way is one thread's */
	rc = index_wait(channel, way, index, until);
	channel_leave(inside);
	return rc != 0 && rc != -EAGAIN ? channel_ended(channel) : rc;
}
