/* raw.c: what a channel is measured against: words, a ring and memcpy in memory that two processes share, and plain
 * sockets. */
#include "ctl/bench/channel.h"
#include "ctl/ctl.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct raw_memory {
	_Alignas(CACHE_LINE) _Atomic uint64_t word[2][CACHE_LINE / 8];
	_Alignas(CACHE_LINE) _Atomic uint64_t head;
	_Alignas(CACHE_LINE) _Atomic uint64_t tail;
	_Alignas(CACHE_LINE) uint8_t ring[];
};

/*
 * Making it
 */
static int tcp_pair(int fd[2])
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), rc = 0;

	fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0 || fd[0] < 0 || bind(listener, (struct sockaddr *)&address, length) != 0 ||
	    listen(listener, 1) != 0 || getsockname(listener, (struct sockaddr *)&address, &length) != 0 ||
	    connect(fd[0], (struct sockaddr *)&address, length) != 0 ||
	    (fd[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0)
		rc = -errno;
	if (listener >= 0)
		close(listener);
	for (int i = 0; i < 2 && rc == 0; i++)
		if (setsockopt(fd[i], IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) != 0)
			rc = -errno;
	return rc;
}

int bench_raw_open(struct bench_raw *raw, uint64_t capacity, bool path)
{
	*raw = (struct bench_raw){
		.capacity = capacity, .memory_size = sizeof(struct raw_memory) + capacity, .fd = {-1, -1}};
	raw->memory =
		mmap(NULL, raw->memory_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (raw->memory == MAP_FAILED) {
		raw->memory = NULL;
		return -errno;
	}
	if (path)
		return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, raw->fd) == 0 ? 0 : -errno;
	return tcp_pair(raw->fd);
}

void bench_raw_part(struct bench_raw *raw, pid_t peer, bool parent)
{
	int other = parent ? 1 : 0;

	raw->peer = peer;
	raw->parent = parent;
	if (raw->fd[other] >= 0)
		close(raw->fd[other]);
	raw->fd[other] = -1;
}

void bench_raw_close(struct bench_raw *raw)
{
	for (int i = 0; i < 2; i++)
		if (raw->fd[i] >= 0)
			close(raw->fd[i]);
	if (raw->memory)
		munmap(raw->memory, raw->memory_size);
}

/*
 * Waiting for a word, while the peer runs, which is checked once in a while. The child dies with its parent.
 */
static int check_peer(const struct bench_raw *raw)
{
	siginfo_t info = {0};

	if (ctl_interrupted())
		return -EINTR;
	if (raw->parent && waitid(P_PID, (id_t)raw->peer, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid)
		return -ECONNRESET;
	return 0;
}

static inline int await_word(const struct bench_raw *raw, _Atomic uint64_t *word, uint64_t least, uint64_t *now)
{
	for (unsigned idle = 1;; idle++) {
		int rc;

		*now = atomic_load_explicit(word, memory_order_acquire);
		if ((int64_t)(*now - least) >= 0)
			return 0;
		if (time_to_yield(idle)) /* as a channel does */
			sched_yield();
		rc = idle % 65536 ? 0 : check_peer(raw);
		if (rc != 0)
			return rc;
	}
}

/* The words count up from one order to the next. */
int bench_raw_words(struct bench_raw *raw, const struct bench_order *order)
{
	_Atomic uint64_t *mine = raw->memory->word[raw->parent ? 0 : 1],
			 *theirs = raw->memory->word[raw->parent ? 1 : 0];
	uint64_t number = atomic_load(mine), now;
	int rc = 0;

	for (uint64_t i = 0; rc == 0 && i < order->count; i++) {
		number++;
		if (raw->parent)
			atomic_store_explicit(mine, number, memory_order_release);
		rc = await_word(raw, theirs, number, &now);
		if (!raw->parent)
			atomic_store_explicit(mine, number, memory_order_release);
	}
	return rc;
}

/* Messages lie one behind the other, and none at the end in two parts. Each side remembers what it saw of the other's
 * index. */
static int ring_put(struct bench_raw *raw, const struct bench_order *order, const void *buffer)
{
	struct raw_memory *memory = raw->memory;
	uint64_t slots = raw->capacity / order->size, head = atomic_load(&memory->head),
		 tail = atomic_load(&memory->tail);
	uint64_t slot = 0;
	int rc = 0;

	for (uint64_t i = 0; rc == 0 && i < order->count; i++) {
		if (head - tail == slots)
			rc = await_word(raw, &memory->tail, head - slots + 1, &tail);
		memcpy(memory->ring + slot * order->size, buffer, order->size);
		slot = slot + 1 == slots ? 0 : slot + 1;
		atomic_store_explicit(&memory->head, ++head, memory_order_release);
	}
	return rc != 0 ? rc : await_word(raw, &memory->tail, head, &tail);
}

static int ring_get(struct bench_raw *raw, const struct bench_order *order, void *buffer)
{
	struct raw_memory *memory = raw->memory;
	uint64_t slots = raw->capacity / order->size, tail = atomic_load(&memory->tail), head = tail, slot = 0;
	int rc = 0;

	for (uint64_t i = 0; rc == 0 && i < order->count; i++) {
		if (head == tail)
			rc = await_word(raw, &memory->head, tail + 1, &head);
		memcpy(buffer, memory->ring + slot * order->size, order->size);
		slot = slot + 1 == slots ? 0 : slot + 1;
		atomic_store_explicit(&memory->tail, ++tail, memory_order_release);
	}
	return rc;
}

int bench_raw_ring(struct bench_raw *raw, const struct bench_order *order, void *buffer)
{
	return raw->parent ? ring_put(raw, order, buffer) : ring_get(raw, order, buffer);
}

/* Copy into as much memory as the ring has. */
int bench_raw_copy(struct bench_raw *raw, const struct bench_order *order, void *buffer)
{
	uint64_t slots = raw->capacity / order->size;

	for (uint64_t i = 0; raw->parent && i < order->count; i++) {
		memcpy(raw->memory->ring + i % slots * order->size, buffer, order->size);
		atomic_signal_fence(memory_order_seq_cst);
	}
	return 0;
}

/*
 * Sockets
 */
static int move_all(int fd, bool sending, uint8_t *buffer, size_t size, int flags)
{
	unsigned idle = 0;

	for (size_t done = 0; done < size; idle++) {
		ssize_t n = sending ? send(fd, buffer + done, size - done, MSG_NOSIGNAL | flags)
				    : recv(fd, buffer + done, size - done, flags);

		if (n == 0)
			return -ECONNRESET;
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		if (n < 0 && ctl_interrupted())
			return -EINTR;
		if (n < 0 && time_to_yield(idle))
			sched_yield();
		done += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

int bench_raw_echo(struct bench_raw *raw, const struct bench_order *order, void *buffer)
{
	int fd = raw->fd[raw->parent ? 0 : 1], rc = 0;

	for (uint64_t i = 0; rc == 0 && i < order->count; i++) {
		rc = move_all(fd, raw->parent, buffer, order->size, MSG_DONTWAIT);
		if (rc == 0)
			rc = move_all(fd, !raw->parent, buffer, order->size, MSG_DONTWAIT);
	}
	return rc;
}

/* Stream messages, until the other side says that all have come. */
int bench_raw_send(struct bench_raw *raw, const struct bench_order *order, void *buffer)
{
	int fd = raw->fd[raw->parent ? 0 : 1], rc = 0;

	for (uint64_t i = 0; rc == 0 && i < order->count; i++)
		rc = move_all(fd, raw->parent, buffer, order->size, 0);
	return rc != 0 ? rc : move_all(fd, !raw->parent, buffer, 1, 0);
}
