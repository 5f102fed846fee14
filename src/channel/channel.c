/* channel.c: the public calls, the same over all transports. Putting and getting is a copy and an index; the rest is
 * rare. */
#include "channel/channel.h"

#include "engine/engine.h"

#include <limits.h>
#include <stdlib.h>

#define FLUSH_MAX (256 * KIB) /* of a large ring: it is still in a cache when the peer gets it */
#define CLOSE_TIMEOUT TIME_S
#define GATHER TIME_MS /* that a long put waits for room worth a piece */

void *channel_new(size_t size, const struct channel_transport *transport, uint64_t capacity,
		  const struct rdmad_channel_options *options)
{
	size_t whole = (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
	struct rdmad_channel *channel = aligned_alloc(CACHE_LINE, whole);
	struct engine_options filled;

	if (!channel) {
		log_error("channel", "no memory for a channel");
		return NULL;
	}
	memset((void *)channel, 0, whole);
	engine_options_from(&options->common, &filled);
	channel->transport = transport;
	channel->capacity = capacity;
	channel->flush_at = MIN(capacity / 4, transport->flush_at ? transport->flush_at : FLUSH_MAX);
	channel->poll = filled.poll;
	channel_flush_again(channel);
	return channel;
}

void channel_free(struct rdmad_channel *channel)
{
	if (!channel)
		return;
	channel_mirror_unmap(&channel->out.mirror);
	channel_mirror_unmap(&channel->in.mirror);
	free(channel);
}

static uint64_t until_of(uint64_t timeout_us)
{
	return timeout_us ? time_after(time_now(), time_of_us(timeout_us)) : 0;
}

/* A caller that does not wait asks often, and is answered by the number alone. */
static int not_now(int rc)
{
	log_clear_last();
	return rc;
}

static int timed_out(const char *what, uint64_t count, uint64_t timeout_us)
{
	if (!timeout_us)
		return not_now(-ETIMEDOUT);
	return log_fail(-ETIMEDOUT, "channel", "timed out after %llu us, waiting for %s: %llu bytes",
			(unsigned long long)timeout_us, what, (unsigned long long)count);
}

static int too_long(const struct rdmad_channel *channel, const char *what, size_t count)
{
	return log_fail(-ENOSPC, "channel", "%s of %zu bytes, beyond the capacity of %llu", what, count,
			(unsigned long long)channel->capacity);
}

/*
 * Waiting
 */

/* Up to the capacity. -EAGAIN: not until `until`. */
static int wait_room(struct rdmad_channel *channel, size_t count, uint64_t until)
{
	uint64_t index = channel_put_so_far(channel) + count - channel->capacity;
	int rc = channel_wait(channel, CHANNEL_PUT, index, until);

	channel->out.wanted = rc == -EAGAIN ? index : 0;
	return rc;
}

static int wait_bytes(struct rdmad_channel *channel, size_t count, uint64_t until)
{
	return channel_wait(channel, CHANNEL_GET, channel_got_so_far(channel) + count, until);
}

/* Large pieces cost less; but the peer may view so much of the ring that there will never be more than a little. */
static int wait_some_room(struct rdmad_channel *channel, size_t count, uint64_t until)
{
	uint64_t soon = time_after(time_now(), GATHER);
	int rc = wait_room(channel, count, MIN(soon, until));

	return rc == -EAGAIN && soon < until ? wait_room(channel, 1, until) : rc;
}

static int wait_way(struct rdmad_channel *channel, enum channel_way way, size_t count, uint64_t timeout_us)
{
	uint64_t until = until_of(timeout_us);
	int rc = way == CHANNEL_PUT ? wait_room(channel, count, until) : wait_bytes(channel, count, until);

	return rc == -EAGAIN ? timed_out(way == CHANNEL_PUT ? "room" : "the peer", count, timeout_us) : rc;
}

/*
 * By pieces, either way
 */

/* The next byte. */
struct cursor {
	const struct iovec *piece;
	size_t at; /* in it */
};

/* The sum of the pieces. -EINVAL: there is none. */
static int sum_of(const struct iovec *pieces, int count, size_t *sum)
{
	*sum = 0;
	if (count < 0 || count > IOV_MAX)
		goto invalid;
	for (int i = 0; i < count; i++)
		if (__builtin_add_overflow(*sum, pieces[i].iov_len, sum))
			goto invalid;
	return 0;

invalid:
	return log_fail(-EINVAL, "channel",
			"%d pieces, or more bytes than there is memory; at most %d pieces go in one call", count,
			IOV_MAX);
}

static bool has_count(const struct rdmad_channel *channel, enum channel_way way, size_t count)
{
	return way == CHANNEL_PUT ? channel_has_room(channel, count) : channel_has_bytes(channel, count);
}

static void move_pieces(struct rdmad_channel *channel, enum channel_way way, struct cursor *cursor, size_t count)
{
	bool put = way == CHANNEL_PUT;
	uint8_t *ring = put ? channel->out.mirror.data + channel->out.at : channel->in.mirror.data + channel->in.at;

	for (size_t done = 0; done < count;) {
		size_t n = MIN(count - done, cursor->piece->iov_len - cursor->at);

		if (n) {
			uint8_t *own = (uint8_t *)cursor->piece->iov_base + cursor->at;

			memcpy(put ? ring + done : own, put ? own : ring + done, n);
		}
		done += n;
		cursor->at += n;
		if (cursor->at == cursor->piece->iov_len)
			*cursor = (struct cursor){.piece = cursor->piece + 1};
	}
	if (put)
		channel_advance_out(channel, count);
	else
		channel_advance_in(channel, count);
}

/* Up to half of the capacity a call waits for all of its bytes. If a put of more did so, and a get at the other end,
 * each could wait for the other for ever: so the rest goes piece by piece. A caller that does not wait cannot. */
static bool goes_by_pieces(const struct rdmad_channel *channel, size_t count, uint64_t timeout_us)
{
	return count > (timeout_us ? channel->capacity / 2 : channel->capacity);
}

static int move_long(struct rdmad_channel *channel, enum channel_way way, const struct iovec *pieces, size_t count,
		     uint64_t timeout_us)
{
	bool put = way == CHANNEL_PUT;
	struct cursor cursor = {.piece = pieces};
	uint64_t until = until_of(timeout_us);

	for (size_t done = 0, n; done < count; done += n) {
		int rc = 0;

		n = MIN(count - done, channel->flush_at);
		if (!has_count(channel, way, n))
			rc = put ? wait_some_room(channel, n, until) : wait_bytes(channel, n, until);
		if (rc == -EAGAIN && !done)
			return timed_out(put ? "room" : "the peer", n, timeout_us);
		if (rc == -EAGAIN) { /* it has no place to go on from */
			channel_end(channel, -EIO,
				    "%s of %zu bytes, more than half of the capacity, timed out after %zu; the channel "
				    "has ended, as it has lost its place",
				    put ? "a put" : "a get", count, done);
			return -ETIMEDOUT;
		}
		if (rc != 0)
			return rc;
		n = MIN(count - done, put ? channel_known_room(channel) : channel_known_bytes(channel));
		move_pieces(channel, way, &cursor, n);
	}
	return 0;
}

static int move_vector(struct rdmad_channel *channel, enum channel_way way, const struct iovec *pieces, int count,
		       uint64_t timeout_us)
{
	struct cursor cursor = {.piece = pieces};
	size_t sum;
	int rc = sum_of(pieces, count, &sum);

	if (rc == 0 && !has_count(channel, way, sum)) {
		if (goes_by_pieces(channel, sum, timeout_us))
			return move_long(channel, way, pieces, sum, timeout_us);
		rc = wait_way(channel, way, sum, timeout_us);
	}
	if (rc == 0)
		move_pieces(channel, way, &cursor, sum);
	return rc;
}

/*
 * Putting
 */
int rdmad_channel_put(struct rdmad_channel *channel, const void *bytes, size_t count, uint64_t timeout_us)
{
	if (unlikely(!channel_has_room(channel, count))) {
		struct iovec piece = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = count};
		int rc;

		if (goes_by_pieces(channel, count, timeout_us))
			return move_long(channel, CHANNEL_PUT, &piece, count, timeout_us);
		rc = wait_way(channel, CHANNEL_PUT, count, timeout_us);
		if (rc != 0)
			return rc;
	}
	if (likely(count)) /* else there may be no bytes at all */
		memcpy(channel->out.mirror.data + channel->out.at, bytes, count);
	channel_advance_out(channel, count);
	return 0;
}

int rdmad_channel_putv(struct rdmad_channel *channel, const struct iovec *pieces, int count, uint64_t timeout_us)
{
	return move_vector(channel, CHANNEL_PUT, pieces, count, timeout_us);
}

int rdmad_channel_try_put(struct rdmad_channel *channel, const void *bytes, size_t count)
{
	if (unlikely(!channel_has_room(channel, count))) {
		int rc;

		if (count > channel->capacity)
			return too_long(channel, "a put without waiting", count);
		rc = wait_room(channel, count, 0);
		if (rc == -EAGAIN) /* the peer can make room only for what it has got */
			channel_flush_some(channel);
		if (rc != 0)
			return rc == -EAGAIN ? not_now(-ENOSPC) : rc;
	}
	if (likely(count)) /* else there may be no bytes at all */
		memcpy(channel->out.mirror.data + channel->out.at, bytes, count);
	channel_advance_out(channel, count);
	return 0;
}

/* Wait until the transport has taken all: for an index that the peer can never have. */
static int flush_waiting(struct rdmad_channel *channel, uint64_t timeout_us)
{
	uint64_t until = until_of(timeout_us);

	for (;;) {
		int rc = channel_flush_some(channel);

		if (atomic_load(&channel->out.flushed) == atomic_load(&channel->out.head) || (rc != -EAGAIN && rc != 0))
			return channel_ended(channel);
		rc = channel->transport->look(channel, CHANNEL_PUT, 0);
		if (rc == 0)
			rc = channel->transport->sleep(channel, CHANNEL_PUT, channel_put_so_far(channel) + 1, until);
		if (rc == -ETIMEDOUT && time_now() >= until)
			return timed_out("room for a flush", channel_put_so_far(channel) - channel->out.flushed,
					 timeout_us);
		if (rc != 0 && rc != -ETIMEDOUT)
			return channel_ended(channel);
	}
}

int rdmad_channel_flush(struct rdmad_channel *channel, uint64_t timeout_us)
{
	int rc = channel_flush_some(channel);

	channel_flush_again(channel);
	if (likely(rc == 0 && !atomic_load_explicit(&channel->ended, memory_order_relaxed)))
		return 0;
	return flush_waiting(channel, timeout_us);
}

size_t rdmad_channel_room(struct rdmad_channel *channel)
{
	wait_room(channel, channel->capacity, 0);
	if (channel->out.wanted) /* any more than there is now */
		channel->out.wanted = channel->out.tail + 1;
	return channel_known_room(channel);
}

int rdmad_channel_reserve(struct rdmad_channel *channel, size_t count, uint64_t timeout_us, void **bytes)
{
	int rc;

	if (count > channel->capacity)
		return too_long(channel, "a reservation", count);
	if (!channel_has_room(channel, count)) {
		rc = wait_way(channel, CHANNEL_PUT, count, timeout_us);
		if (rc != 0)
			return rc;
	}
	channel->out.reserved = count;
	*bytes = channel->out.mirror.data + channel->out.at;
	return 0;
}

int rdmad_channel_commit(struct rdmad_channel *channel, size_t count)
{
	if (count > channel->out.reserved)
		return log_fail(-EINVAL, "channel", "a commit of %zu bytes where %zu are reserved", count,
				channel->out.reserved);
	channel_advance_out(channel, count);
	return channel_ended(channel);
}

/*
 * Getting
 */
int rdmad_channel_get(struct rdmad_channel *channel, void *bytes, size_t count, uint64_t timeout_us)
{
	if (unlikely(!channel_has_bytes(channel, count))) {
		struct iovec piece = {.iov_base = bytes, .iov_len = count};
		int rc;

		if (goes_by_pieces(channel, count, timeout_us))
			return move_long(channel, CHANNEL_GET, &piece, count, timeout_us);
		rc = wait_way(channel, CHANNEL_GET, count, timeout_us);
		if (rc != 0)
			return rc;
	}
	if (likely(count))
		memcpy(bytes, channel->in.mirror.data + channel->in.at, count);
	channel_advance_in(channel, count);
	return 0;
}

int rdmad_channel_getv(struct rdmad_channel *channel, const struct iovec *pieces, int count, uint64_t timeout_us)
{
	return move_vector(channel, CHANNEL_GET, pieces, count, timeout_us);
}

ssize_t rdmad_channel_peek(struct rdmad_channel *channel, void *bytes, size_t count)
{
	size_t n;

	if (!channel_has_bytes(channel, MIN(count, channel->capacity))) {
		int rc = wait_bytes(channel, MAX(MIN(count, channel->capacity), 1), 0);

		if (rc != 0 && rc != -EAGAIN && (channel_known_bytes(channel) == 0 || rc == -EIO))
			return rc;
	}
	n = MIN(count, channel_known_bytes(channel));
	if (n)
		memcpy(bytes, channel->in.mirror.data + channel->in.at, n);
	return (ssize_t)n;
}

ssize_t rdmad_channel_try_get(struct rdmad_channel *channel, void *bytes, size_t count)
{
	ssize_t n = rdmad_channel_peek(channel, bytes, count);

	if (n > 0)
		channel_advance_in(channel, (size_t)n);
	return n;
}

int rdmad_channel_try_get_all(struct rdmad_channel *channel, void *bytes, size_t count)
{
	if (unlikely(!channel_has_bytes(channel, count))) {
		int rc;

		if (count > channel->capacity)
			return too_long(channel, "a get without waiting", count);
		rc = wait_bytes(channel, count, 0);
		if (rc != 0)
			return rc == -EAGAIN ? not_now(rc) : rc;
	}
	if (likely(count))
		memcpy(bytes, channel->in.mirror.data + channel->in.at, count);
	channel_advance_in(channel, count);
	return 0;
}

size_t rdmad_channel_available(struct rdmad_channel *channel)
{
	wait_bytes(channel, channel->capacity, 0);
	return channel_known_bytes(channel);
}

int rdmad_channel_view(struct rdmad_channel *channel, size_t count, uint64_t timeout_us, const void **bytes,
		       size_t *available)
{
	int rc;

	if (count > channel->capacity)
		return too_long(channel, "a view", count);
	if (!channel_has_bytes(channel, count)) {
		rc = wait_way(channel, CHANNEL_GET, count, timeout_us);
		if (rc != 0)
			return rc;
	}
	*bytes = channel->in.mirror.data + channel->in.at;
	*available = channel_known_bytes(channel);
	return 0;
}

int rdmad_channel_consume(struct rdmad_channel *channel, size_t count)
{
	if (count > channel_known_bytes(channel))
		return log_fail(-EINVAL, "channel", "%zu bytes to consume where %zu were seen", count,
				channel_known_bytes(channel));
	channel_advance_in(channel, count);
	return 0;
}

/*
 * The program's own loop
 */
int rdmad_channel_fd(const struct rdmad_channel *channel)
{
	return channel->transport->fd(channel);
}

int rdmad_channel_arm(struct rdmad_channel *channel)
{
	int rc;

	channel_flush_some(channel);
	rc = channel->transport->arm(channel);
	if (likely(!atomic_load(&channel->ended)))
		return rc;
	/* Bytes that came before the end are to be got first. */
	return wait_bytes(channel, 1, 0) == 0 ? 1 : channel_ended(channel);
}

int rdmad_channel_progress(struct rdmad_channel *channel)
{
	channel_flush_some(channel);
	wait_bytes(channel, channel->capacity, 0);
	return channel_ended(channel);
}

void rdmad_channel_info(const struct rdmad_channel *channel, struct rdmad_channel_info *info)
{
	*info = (struct rdmad_channel_info){
		.capacity = channel->capacity,
		.bytes_put = channel->out.head,
		.bytes_got = channel->in.tail,
		.flushes = channel->flushes,
		.sleeps = channel->put_sleeps + channel->get_sleeps,
	};
	channel->transport->info(channel, info);
}

int rdmad_channel_close(struct rdmad_channel *channel)
{
	int rc, told;

	if (!channel)
		return 0;
	rc = flush_waiting(channel, CLOSE_TIMEOUT / TIME_US);
	channel->transport->look(channel, CHANNEL_PUT, 0);
	if (channel->out.tail == channel_put_so_far(channel)) /* it was all got, whatever has ended */
		rc = 0;
	told = channel->transport->close(channel);
	channel_free(channel);
	return rc != 0 ? rc : told;
}
