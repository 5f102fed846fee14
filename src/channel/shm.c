/*
 * shm.c: both rings in memory that both programs map. The end that puts stores the head, the end that gets the tail. A
 * thread that is about to sleep says for which index, in the ring; then each of the two threads reads what the other
 * one wrote, after a fence: the one whether it has come, the other whether a thread sleeps for it. So at least one of
 * them sees the other. An eventfd wakes. The socket on which the two met stays open: its end tells that the peer's
 * process is gone.
 */
#include "channel/shm.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FLUSH_AT (8 * KIB)         /* a flush is some ten nanoseconds, and the peer gets while this end puts on */
#define CHECK_EVERY (10 * TIME_MS) /* between two polls for the peer's end by a program that only puts */

struct shm {
	struct rdmad_channel base;
	struct wire_shm_header *header;
	struct wire_shm_ring *out, *in;
	int fds[WIRE_SHM_FDS];      /* WIRE_SHM_MEMORY: open where the memory has a name, else -1 */
	int put_event, get_event;   /* of fds: wake this end */
	int head_event, tail_event; /* of fds: wake the peer: what was put, what was got */
	int socket, epoll;
	uint64_t flush_tick; /* of the thread that is in flush(): when the socket was checked */
	char object[RDMAD_CHANNEL_NAME_MAX + 32];
	char peer[64];
};

static struct shm *shm_of(const struct rdmad_channel *channel)
{
	return (struct shm *)(uintptr_t)channel;
}

/* The peer's process is gone, or has closed. What it put before stays in the memory. */
static int peer_gone(struct shm *shm)
{
	if (atomic_load(&shm->in->closed))
		return channel_end(&shm->base, -EPIPE, "the peer, %s, closed the channel", shm->peer);
	return channel_end(&shm->base, -ECONNRESET, "the peer, %s, died: its end of the channel is gone", shm->peer);
}

static bool socket_ended(const struct pollfd *socket)
{
	return socket->revents & (POLLIN | POLLHUP | POLLERR | POLLRDHUP | POLLNVAL); /* nothing is sent on it */
}

static int check_socket(struct shm *shm)
{
	struct pollfd socket = {.fd = shm->socket, .events = POLLIN | POLLRDHUP};

	if (poll(&socket, 1, 0) > 0 && socket_ended(&socket))
		return peer_gone(shm);
	return 0;
}

/* The peer's thread that waits for `index`: this end's is there now. Stored before it is woken: if it went to
 * sleep anew in between, it is woken once too often rather than not at all. */
static inline void peer_wake(_Atomic uint64_t *wanted, uint64_t index, int event)
{
	uint64_t want = atomic_load_explicit(wanted, memory_order_relaxed);

	if (likely(want == 0) || (int64_t)(index - want) < 0)
		return;
	atomic_store_explicit(wanted, 0, memory_order_relaxed);
	if (eventfd_write(event, 1) != 0 && errno != EAGAIN)
		log_error("channel", "cannot wake the peer: %m");
}

static int shm_flush(struct rdmad_channel *channel)
{
	struct shm *shm = shm_of(channel);
	uint64_t head = atomic_load_explicit(&channel->out.head, memory_order_acquire), tick;

	atomic_store_explicit(&shm->out->head, head, memory_order_release);
	atomic_store_explicit(&channel->out.flushed, head, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	peer_wake(&shm->out->head_wanted, head, shm->head_event);
	/* A program that never waits would not hear of the peer's end. */
	tick = time_coarse();
	if (likely(tick - shm->flush_tick < CHECK_EVERY))
		return 0;
	shm->flush_tick = tick;
	return check_socket(shm);
}

/* Forward to `head`, unless the other thread was there already. */
static void index_forward(_Atomic uint64_t *index, uint64_t head)
{
	uint64_t was = atomic_load(index);

	while ((int64_t)(head - was) > 0 && !atomic_compare_exchange_weak(index, &was, head))
		;
}

/* The thread that puts stores each head before it puts more, so a head that is read here is behind none that it stores
 * later. */
static int shm_assist(struct rdmad_channel *channel)
{
	struct shm *shm = shm_of(channel);
	uint64_t head = atomic_load_explicit(&channel->out.head, memory_order_acquire);

	index_forward(&shm->out->head, head);
	index_forward(&channel->out.flushed, head);
	atomic_thread_fence(memory_order_seq_cst);
	peer_wake(&shm->out->head_wanted, head, shm->head_event);
	return 0;
}

static int shm_poll(struct rdmad_channel *channel, enum channel_way way, uint64_t now)
{
	struct shm *shm = shm_of(channel);
	int ended = atomic_load_explicit(&channel->ended,
					 memory_order_acquire); /* before the index: all that came is seen */
	uint64_t index;
	int rc = 0;

	if (way == CHANNEL_GET) {
		index = atomic_load_explicit(&shm->in->head, memory_order_acquire);
		if (index != channel->in.head)
			rc = channel_in_told(channel, index);
	} else {
		index = atomic_load_explicit(&shm->out->tail, memory_order_acquire);
		if (index != channel->out.tail)
			rc = channel_out_told(channel, index);
	}
	return ended != 0 ? ended : rc;
}

static void shm_taken(struct rdmad_channel *channel)
{
	struct shm *shm = shm_of(channel);
	uint64_t tail = atomic_load_explicit(&channel->in.tail, memory_order_relaxed);

	atomic_store_explicit(&shm->in->tail, tail, memory_order_release);
	atomic_thread_fence(memory_order_seq_cst);
	peer_wake(&shm->in->tail_wanted, tail, shm->tail_event);
}

int channel_poll(struct pollfd *fds, unsigned count, uint64_t ns)
{
	const struct timespec time = {.tv_sec = (time_t)(ns / TIME_S), .tv_nsec = (long)(ns % TIME_S)};

	return ppoll(fds, count, ns == TIME_NEVER ? NULL : &time, NULL);
}

static void event_drain(int event)
{
	eventfd_t count;

	eventfd_read(event, &count);
}

/* Says for what, polls again, sleeps. Returns whether there was a wake-up. */
static int ring_sleep(_Atomic uint64_t *wanted, const _Atomic uint64_t *index, uint64_t want,
		      struct pollfd fds[static 2], uint64_t ns)
{
	int n = 1;

	atomic_store_explicit(wanted, want, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	if ((int64_t)(atomic_load_explicit(index, memory_order_relaxed) - want) < 0)
		n = channel_poll(fds, 2, ns);
	atomic_store_explicit(wanted, 0, memory_order_relaxed);
	return n;
}

static int shm_sleep(struct rdmad_channel *channel, enum channel_way way, uint64_t index, uint64_t until)
{
	struct shm *shm = shm_of(channel);
	struct pollfd fds[2] = {
		{.fd = way == CHANNEL_GET ? shm->get_event : shm->put_event, .events = POLLIN},
		{.fd = shm->socket, .events = POLLIN | POLLRDHUP},
	};
	uint64_t now = time_now();
	int n;

	if (now >= until)
		return check_socket(shm) ? atomic_load(&channel->ended) : -ETIMEDOUT;
	if (atomic_load(&channel->ended))
		return atomic_load(&channel->ended);
	now = until == TIME_NEVER ? TIME_NEVER : until - now;
	if (way == CHANNEL_GET)
		n = ring_sleep(&shm->in->head_wanted, &shm->in->head, index, fds, now);
	else
		n = ring_sleep(&shm->out->tail_wanted, &shm->out->tail, index, fds, now);
	if (n > 0 && fds[0].revents)
		event_drain(fds[0].fd);
	if (n > 0 && socket_ended(&fds[1]))
		return peer_gone(shm);
	return n == 0 ? -ETIMEDOUT : 0;
}

static void shm_wake(struct rdmad_channel *channel)
{
	eventfd_write(shm_of(channel)->get_event, 1);
	eventfd_write(shm_of(channel)->put_event, 1);
}

static int shm_fd(const struct rdmad_channel *channel)
{
	return shm_of(channel)->epoll;
}

static int shm_arm(struct rdmad_channel *channel)
{
	struct shm *shm = shm_of(channel);
	struct channel_out *out = &channel->out;
	uint64_t head = channel->in.head;
	int rc;

	event_drain(shm->get_event);
	event_drain(shm->put_event);
	atomic_store_explicit(&shm->in->head_wanted, head + 1, memory_order_relaxed);
	atomic_store_explicit(&shm->out->tail_wanted, out->wanted, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	rc = check_socket(shm);
	if (rc != 0)
		return rc;
	if (out->wanted && (int64_t)(atomic_load(&shm->out->tail) - out->wanted) >= 0) {
		out->wanted = 0;
		return 1;
	}
	return atomic_load(&shm->in->head) != head;
}

static void shm_info(const struct rdmad_channel *channel, struct rdmad_channel_info *info)
{
	snprintf(info->transport, sizeof(info->transport), "shm");
	info->memory = true;
	snprintf(info->peer, sizeof(info->peer), "%s", shm_of(channel)->peer);
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void shm_free(struct shm *shm)
{
	if (shm->header)
		munmap(shm->header, channel_mirror_size(sizeof(*shm->header)));
	if (shm->object[0])
		shm_unlink(shm->object);
	for (int i = 0; i < WIRE_SHM_FDS; i++)
		close_fd(shm->fds[i]);
	close_fd(shm->socket);
	close_fd(shm->epoll);
}

static int shm_close(struct rdmad_channel *channel)
{
	struct shm *shm = shm_of(channel);

	if (!atomic_load(&channel->ended))
		atomic_store(&shm->out->closed, 1);
	shutdown(shm->socket, SHUT_RDWR); /* a copy of the descriptor in a child of this process would keep it open */
	shm_free(shm);
	return 0;
}

static const struct channel_transport shm_transport = {
	.flush_at = FLUSH_AT,
	.flush = shm_flush,
	.assist = shm_assist,
	.look = shm_poll,
	.taken = shm_taken,
	.sleep = shm_sleep,
	.wake = shm_wake,
	.fd = shm_fd,
	.arm = shm_arm,
	.close = shm_close,
	.info = shm_info,
};

/* The memory is what the channel says, and cannot get shorter under our feet: seals tell. */
static int check_memory(int fd, size_t capacity, bool named)
{
	size_t size = channel_shm_size(capacity);
	struct stat st;

	if (fstat(fd, &st) != 0 || (uint64_t)st.st_size != size)
		return log_fail(-EPROTO, "channel", "the peer's memory has not the %zu bytes of two rings of %zu", size,
				capacity);
	if (!named && !memfd_is_sealed(fd))
		return log_fail(-EPROTO, "channel",
				"the peer's memory is not sealed, so that it could vanish; if its listener uses "
				"posix_memory, open it with posix_memory, too");
	return 0;
}

static int shm_map(struct shm *shm, int side, size_t capacity, bool named)
{
	int fd = shm->fds[WIRE_SHM_MEMORY], rc = check_memory(fd, capacity, named);
	size_t page = channel_mirror_size(sizeof(struct wire_shm_header)), ring = channel_mirror_size(capacity);
	struct channel_mirror *out = &shm->base.out.mirror, *in = &shm->base.in.mirror;
	struct wire_shm_shape shape = {
		.magic = WIRE_SHM_MAGIC,
		.version = WIRE_SHM_VERSION,
		.page = (uint32_t)page,
		.capacity = capacity,
		.ring = ring,
	};
	void *header;

	if (rc != 0)
		return rc;
	header = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (header == MAP_FAILED) {
		rc = -errno;
		log_error("channel", "cannot map a channel's memory: %m");
		return rc;
	}
	shm->header = header;
	if (side == 1) {
		shm->header->shape = shape;
	} else if (memcmp(&shm->header->shape, &shape, sizeof(shape)) != 0) {
		log_error("channel", "the peer's memory has not the shape of two rings of %zu bytes", capacity);
		rc = -EPROTO;
	}
	shm->out = &shm->header->rings[side];
	shm->in = &shm->header->rings[1 - side];
	if (rc == 0)
		rc = channel_mirror_map(fd, (off_t)page, ring, side == 0 ? out : in);
	if (rc == 0)
		rc = channel_mirror_map(fd, (off_t)(page + ring), ring, side == 0 ? in : out);
	return rc;
}

static int shm_watch(struct shm *shm)
{
	const int fds[] = {shm->get_event, shm->put_event, shm->socket};
	int rc;

	shm->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (shm->epoll < 0)
		goto failed;
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP};

		if (epoll_ctl(shm->epoll, EPOLL_CTL_ADD, fds[i], &event) != 0)
			goto failed;
	}
	return 0;

failed:
	rc = -errno;
	log_error("channel", "cannot watch a channel's descriptors: %m");
	return rc;
}

int channel_shm_new(int fds[static WIRE_SHM_FDS], int socket, int side, size_t capacity, const char *object,
		    const struct rdmad_channel_options *options, struct rdmad_channel **out)
{
	struct shm *shm = channel_new(sizeof(*shm), &shm_transport, capacity, options);
	struct ucred peer = {.pid = 0};
	int rc;

	if (!shm) {
		for (int i = 0; i < WIRE_SHM_FDS; i++)
			close(fds[i]);
		close(socket);
		if (*object)
			shm_unlink(object);
		return -ENOMEM;
	}
	memcpy(shm->fds, fds, sizeof(shm->fds));
	shm->socket = socket;
	shm->epoll = -1;
	snprintf(shm->object, sizeof(shm->object), "%s", object);
	shm->head_event = fds[side == 0 ? WIRE_SHM_HEAD_0 : WIRE_SHM_HEAD_1];
	shm->put_event = fds[side == 0 ? WIRE_SHM_TAIL_0 : WIRE_SHM_TAIL_1];
	shm->get_event = fds[side == 0 ? WIRE_SHM_HEAD_1 : WIRE_SHM_HEAD_0];
	shm->tail_event = fds[side == 0 ? WIRE_SHM_TAIL_1 : WIRE_SHM_TAIL_0];
	local_peer(socket, &peer);
	snprintf(shm->peer, sizeof(shm->peer), "process %ld of user %lu", (long)peer.pid, (unsigned long)peer.uid);
	rc = shm_map(shm, side, capacity, options->posix_memory);
	if (rc == 0)
		rc = shm_watch(shm);
	if (rc != 0) {
		shm_free(shm);
		channel_free(&shm->base);
		return rc;
	}
	*out = &shm->base;
	return 0;
}

void channel_shm_handed(struct rdmad_channel *channel)
{
	struct shm *shm = shm_of(channel);

	if (shm->object[0])
		return;
	close(shm->fds[WIRE_SHM_MEMORY]);
	shm->fds[WIRE_SHM_MEMORY] = -1;
}
