/* channel.c: the public calls, the same over all transports. Putting and getting is a copy and an index; the rest is rare. */
#include "client/channel.h"

#include "client/client.h"

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
	channel->flush_at = MIN(capacity / 4, FLUSH_MAX);
	channel->poll = filled.poll;
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

static int timed_out(const char *what, uint64_t count, uint64_t timeout_us)
{
	if (timeout_us)
		log_error("channel", "timed out after %llu us, waiting for %s: %llu bytes",
			  (unsigned long long)timeout_us, what, (unsigned long long)count);
	return -ETIMEDOUT;
}

static int too_long(const struct rdmad_channel *channel, const char *what, size_t count)
{
	log_error("channel", "%s of %zu bytes, beyond the capacity of %llu", what, count,
		  (unsigned long long)channel->capacity);
	return -ENOSPC;
}

/* A call by pieces: the next byte. */
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
	log_error("channel", "%d pieces, or more bytes than there is memory; at most %d pieces go in one call", count,
		  IOV_MAX);
	return -EINVAL;
}

/*
 * Putting
 */
static inline uint64_t put_so_far(const struct rdmad_channel *channel)
{
	return atomic_load_explicit(&channel->out.head, memory_order_relaxed);
}

static inline size_t known_room(const struct rdmad_channel *channel)
{
	return (size_t)(channel->capacity - (put_so_far(channel) - channel->out.tail));
}

/* Up to the capacity. -EAGAIN: not until `until`. */
static int wait_room(struct rdmad_channel *channel, size_t count, uint64_t until)
{
	uint64_t index = put_so_far(channel) + count - channel->capacity;
	int rc = channel_wait(channel, CHANNEL_PUT, index, until);

	channel->out.wanted = rc == -EAGAIN ? index : 0;
	return rc;
}

static inline bool has_room(const struct rdmad_channel *channel, size_t count)
{
	return likely(count <= known_room(channel) && !atomic_load_explicit(&channel->ended, memory_order_relaxed));
}

/* The bytes at out.at are there now. */
static inline void advance_out(struct rdmad_channel *channel, size_t count)
{
	struct channel_out *out = &channel->out;
	uint64_t head = put_so_far(channel) + count;

	must(!atomic_exchange(&out->inside, true)); /* one thread puts */
	out->at += count;
	if (out->at >= out->mirror.size)
		out->at -= out->mirror.size;
	out->reserved = 0;
	atomic_store_explicit(&out->head, head, memory_order_release);
	must(atomic_exchange(&out->inside, false));
	if (unlikely(head - atomic_load_explicit(&out->flushed, memory_order_relaxed) >= channel->flush_at))
		channel_flush_some(channel);
}

static void put_pieces(struct rdmad_channel *channel, struct cursor *from, size_t count)
{
	uint8_t *to = channel->out.mirror.data + channel->out.at;

	for (size_t done = 0; done < count;) {
		size_t n = MIN(count - done, from->piece->iov_len - from->at);

		if (n)
			memcpy(to + done, (const uint8_t *)from->piece->iov_base + from->at, n);
		done += n;
		from->at += n;
		if (from->at == from->piece->iov_len)
			*from = (struct cursor){.piece = from->piece + 1};
	}
	advance_out(channel, count);
}

/* A stream whose reader or writer gave up in the midst of something has no place to go on from. */
static int lost_place(struct rdmad_channel *channel, const char *what, size_t done, size_t count)
{
	channel_end(
		channel, -EIO,
		"%s of %zu bytes, more than the capacity, timed out after %zu; the channel has ended, as it has lost "
		"its place",
		what, count, done);
	return -ETIMEDOUT;
}

/* Up to half of the capacity a call waits for all of its bytes. If a put of more did so, and a get at the other end, each could
 * wait for the other for ever: so the rest goes piece by piece. Who does not wait at all cannot. */
static bool goes_by_pieces(const struct rdmad_channel *channel, size_t count, uint64_t timeout_us)
{
	return count > (timeout_us ? channel->capacity / 2 : channel->capacity);
}

/* Of much at once each piece has less to do; but the peer may view so much of the ring that there will never be more than a little. */
static int wait_some_room(struct rdmad_channel *channel, size_t count, uint64_t until)
{
	uint64_t soon = time_after(time_now(), GATHER);
	int rc = wait_room(channel, count, MIN(soon, until));

	return rc == -EAGAIN && soon < until ? wait_room(channel, 1, until) : rc;
}

static int put_long(struct rdmad_channel *channel, const struct iovec *pieces, size_t count, uint64_t timeout_us)
{
	struct cursor from = {.piece = pieces};
	uint64_t until = until_of(timeout_us);

	for (size_t done = 0, n; done < count; done += n) {
		int rc = 0;

		n = MIN(count - done, channel->flush_at);
		if (!has_room(channel, n))
			rc = wait_some_room(channel, n, until);
		if (rc == -EAGAIN)
			return done ? lost_place(channel, "a put", done, count) : timed_out("room", n, timeout_us);
		if (rc != 0)
			return rc;
		n = MIN(count - done, known_room(channel));
		put_pieces(channel, &from, n);
	}
	return 0;
}

static int put_waiting(struct rdmad_channel *channel, size_t count, uint64_t timeout_us)
{
	int rc = wait_room(channel, count, until_of(timeout_us));

	return rc == -EAGAIN ? timed_out("room", count, timeout_us) : rc;
}

int rdmad_channel_put(struct rdmad_channel *channel, const void *bytes, size_t count, uint64_t timeout_us)
{
	if (unlikely(!has_room(channel, count))) {
		struct iovec piece = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = count};
		int rc;

		if (goes_by_pieces(channel, count, timeout_us))
			return put_long(channel, &piece, count, timeout_us);
		rc = put_waiting(channel, count, timeout_us);
		if (rc != 0)
			return rc;
	}
	if (likely(count)) /* else there may be no bytes at all */
		memcpy(channel->out.mirror.data + channel->out.at, bytes, count);
	advance_out(channel, count);
	return 0;
}

int rdmad_channel_putv(struct rdmad_channel *channel, const struct iovec *pieces, int count, uint64_t timeout_us)
{
	struct cursor from = {.piece = pieces};
	size_t sum;
	int rc = sum_of(pieces, count, &sum);

	if (rc == 0 && !has_room(channel, sum)) {
		if (goes_by_pieces(channel, sum, timeout_us))
			return put_long(channel, pieces, sum, timeout_us);
		rc = put_waiting(channel, sum, timeout_us);
	}
	if (rc == 0)
		put_pieces(channel, &from, sum);
	return rc;
}

int rdmad_channel_try_put(struct rdmad_channel *channel, const void *bytes, size_t count)
{
	if (unlikely(!has_room(channel, count))) {
		int rc;

		if (count > channel->capacity)
			return too_long(channel, "a put without waiting", count);
		rc = wait_room(channel, count, 0);
		if (rc == -EAGAIN) /* the peer can make room only for what it has got */
			channel_flush_some(channel);
		if (rc != 0)
			return rc == -EAGAIN ? -ENOSPC : rc;
	}
	if (likely(count)) /* else there may be no bytes at all */
		memcpy(channel->out.mirror.data + channel->out.at, bytes, count);
	advance_out(channel, count);
	return 0;
}

static bool all_flushed(const struct rdmad_channel *channel)
{
	return atomic_load(&channel->out.flushed) == atomic_load(&channel->out.head);
}

/* Until the transport has taken all. The peer's index is not what is waited for: one that it can never have. */
static int flush_waiting(struct rdmad_channel *channel, uint64_t timeout_us)
{
	uint64_t until = until_of(timeout_us);

	for (;;) {
		int rc = channel_flush_some(channel);

		if (all_flushed(channel))
			return channel_ended(channel);
		if (rc != -EAGAIN && rc != 0)
			return channel_ended(channel);
		rc = channel->transport->look(channel, CHANNEL_PUT);
		if (rc == 0)
			rc = channel->transport->sleep(channel, CHANNEL_PUT, put_so_far(channel) + 1, until);
		if (rc == -ETIMEDOUT && time_now() >= until)
			return timed_out("room for a flush", put_so_far(channel) - channel->out.flushed, timeout_us);
		if (rc != 0 && rc != -ETIMEDOUT)
			return channel_ended(channel);
	}
}

int rdmad_channel_flush(struct rdmad_channel *channel, uint64_t timeout_us)
{
	int rc = channel_flush_some(channel);

	if (likely(rc == 0 && !atomic_load_explicit(&channel->ended, memory_order_relaxed)))
		return 0;
	return flush_waiting(channel, timeout_us);
}

size_t rdmad_channel_room(struct rdmad_channel *channel)
{
	wait_room(channel, channel->capacity, 0);
	if (channel->out.wanted) /* any more than there is now */
		channel->out.wanted = channel->out.tail + 1;
	return known_room(channel);
}

int rdmad_channel_reserve(struct rdmad_channel *channel, size_t count, uint64_t timeout_us, void **bytes)
{
	int rc;

	if (count > channel->capacity)
		return too_long(channel, "a reservation", count);
	if (!has_room(channel, count)) {
		rc = put_waiting(channel, count, timeout_us);
		if (rc != 0)
			return rc;
	}
	channel->out.reserved = count;
	*bytes = channel->out.mirror.data + channel->out.at;
	return 0;
}

int rdmad_channel_commit(struct rdmad_channel *channel, size_t count)
{
	if (count > channel->out.reserved) {
		log_error("channel", "a commit of %zu bytes where %zu are reserved", count, channel->out.reserved);
		return -EINVAL;
	}
	advance_out(channel, count);
	return channel_ended(channel);
}

/*
 * Getting
 */
static inline uint64_t got_so_far(const struct rdmad_channel *channel)
{
	return atomic_load_explicit(&channel->in.tail, memory_order_relaxed);
}

static inline size_t known_bytes(const struct rdmad_channel *channel)
{
	return (size_t)(channel->in.head - got_so_far(channel));
}

static int wait_bytes(struct rdmad_channel *channel, size_t count, uint64_t until)
{
	return channel_wait(channel, CHANNEL_GET, got_so_far(channel) + count, until);
}

static inline bool has_bytes(const struct rdmad_channel *channel, size_t count)
{
	return likely(count <= known_bytes(channel) && !atomic_load_explicit(&channel->ended, memory_order_relaxed));
}

static inline void advance_in(struct rdmad_channel *channel, size_t count)
{
	struct channel_in *in = &channel->in;

	must(!atomic_exchange(&in->inside, true)); /* one thread gets */
	in->at += count;
	if (in->at >= in->mirror.size)
		in->at -= in->mirror.size;
	atomic_store_explicit(&in->tail, got_so_far(channel) + count, memory_order_release);
	must(atomic_exchange(&in->inside, false));
	channel->transport->taken(channel);
}

static void get_pieces(struct rdmad_channel *channel, struct cursor *to, size_t count)
{
	const uint8_t *from = channel->in.mirror.data + channel->in.at;

	for (size_t done = 0; done < count;) {
		size_t n = MIN(count - done, to->piece->iov_len - to->at);

		if (n)
			memcpy((uint8_t *)to->piece->iov_base + to->at, from + done, n);
		done += n;
		to->at += n;
		if (to->at == to->piece->iov_len)
			*to = (struct cursor){.piece = to->piece + 1};
	}
	advance_in(channel, count);
}

static int get_long(struct rdmad_channel *channel, const struct iovec *pieces, size_t count, uint64_t timeout_us)
{
	struct cursor to = {.piece = pieces};
	uint64_t until = until_of(timeout_us);

	for (size_t done = 0, n; done < count; done += n) {
		int rc = 0;

		n = MIN(count - done, channel->flush_at);
		if (!has_bytes(channel, n))
			rc = wait_bytes(channel, n, until);
		if (rc == -EAGAIN)
			return done ? lost_place(channel, "a get", done, count) : timed_out("the peer", n, timeout_us);
		if (rc != 0)
			return rc;
		n = MIN(count - done, known_bytes(channel));
		get_pieces(channel, &to, n);
	}
	return 0;
}

static int get_waiting(struct rdmad_channel *channel, size_t count, uint64_t timeout_us)
{
	int rc = wait_bytes(channel, count, until_of(timeout_us));

	return rc == -EAGAIN ? timed_out("the peer", count, timeout_us) : rc;
}

int rdmad_channel_get(struct rdmad_channel *channel, void *bytes, size_t count, uint64_t timeout_us)
{
	if (unlikely(!has_bytes(channel, count))) {
		struct iovec piece = {.iov_base = bytes, .iov_len = count};
		int rc;

		if (goes_by_pieces(channel, count, timeout_us))
			return get_long(channel, &piece, count, timeout_us);
		rc = get_waiting(channel, count, timeout_us);
		if (rc != 0)
			return rc;
	}
	if (likely(count))
		memcpy(bytes, channel->in.mirror.data + channel->in.at, count);
	advance_in(channel, count);
	return 0;
}

int rdmad_channel_getv(struct rdmad_channel *channel, const struct iovec *pieces, int count, uint64_t timeout_us)
{
	struct cursor to = {.piece = pieces};
	size_t sum;
	int rc = sum_of(pieces, count, &sum);

	if (rc == 0 && !has_bytes(channel, sum)) {
		if (goes_by_pieces(channel, sum, timeout_us))
			return get_long(channel, pieces, sum, timeout_us);
		rc = get_waiting(channel, sum, timeout_us);
	}
	if (rc == 0)
		get_pieces(channel, &to, sum);
	return rc;
}

ssize_t rdmad_channel_peek(struct rdmad_channel *channel, void *bytes, size_t count)
{
	size_t n;

	if (!has_bytes(channel, MIN(count, channel->capacity))) {
		int rc = wait_bytes(channel, MAX(MIN(count, channel->capacity), 1), 0);

		if (rc != 0 && rc != -EAGAIN && (known_bytes(channel) == 0 || rc == -EIO))
			return rc;
	}
	n = MIN(count, known_bytes(channel));
	if (n)
		memcpy(bytes, channel->in.mirror.data + channel->in.at, n);
	return (ssize_t)n;
}

ssize_t rdmad_channel_try_get(struct rdmad_channel *channel, void *bytes, size_t count)
{
	ssize_t n = rdmad_channel_peek(channel, bytes, count);

	if (n > 0)
		advance_in(channel, (size_t)n);
	return n;
}

int rdmad_channel_try_get_all(struct rdmad_channel *channel, void *bytes, size_t count)
{
	if (unlikely(!has_bytes(channel, count))) {
		int rc;

		if (count > channel->capacity)
			return too_long(channel, "a get without waiting", count);
		rc = wait_bytes(channel, count, 0);
		if (rc != 0)
			return rc;
	}
	if (likely(count))
		memcpy(bytes, channel->in.mirror.data + channel->in.at, count);
	advance_in(channel, count);
	return 0;
}

size_t rdmad_channel_available(struct rdmad_channel *channel)
{
	wait_bytes(channel, channel->capacity, 0);
	return known_bytes(channel);
}

int rdmad_channel_view(struct rdmad_channel *channel, size_t count, uint64_t timeout_us, const void **bytes,
		       size_t *available)
{
	int rc;

	if (count > channel->capacity)
		return too_long(channel, "a view", count);
	if (!has_bytes(channel, count)) {
		rc = get_waiting(channel, count, timeout_us);
		if (rc != 0)
			return rc;
	}
	*bytes = channel->in.mirror.data + channel->in.at;
	*available = known_bytes(channel);
	return 0;
}

int rdmad_channel_consume(struct rdmad_channel *channel, size_t count)
{
	if (count > known_bytes(channel)) {
		log_error("channel", "%zu bytes to consume where %zu were seen", count, known_bytes(channel));
		return -EINVAL;
	}
	advance_in(channel, count);
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
	/* What came before the end is to be got first. */
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
	channel->transport->look(channel, CHANNEL_PUT);
	if (channel->out.tail == put_so_far(channel)) /* it was all got, whatever has ended */
		rc = 0;
	told = channel->transport->close(channel);
	channel_free(channel);
	return rc != 0 ? rc : told;
}
