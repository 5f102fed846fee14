/*
 * rings.c: the rings of two ends that share memory.
 *
 * A poll looks at an index of each ring, which takes no system call; of more than SOFT_RINGS_FEW, at those that are
 * awake: those from which something came not long ago, and at most SOFT_AWAKE. Of rings that are awake the flag is
 * clear, so that the peer makes no system call either. Before the caller may sleep (soft_rings_arm()) all of them set
 * it.
 */
#include "fabric/soft/soft.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SOFT_AWAKE 64   /* so many are looked at by each poll */
#define SOFT_QUIET 256  /* polls without a byte after which one of many is awake no more */
#define SOFT_ROOMLESS 8 /* of the rings that wait for room, so many are looked at by each poll */

static struct soft_rings *soft_rings_map(int fd)
{
	struct soft_rings *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->memory = mmap(NULL, sizeof(*r->memory), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (r->memory != MAP_FAILED)
		return r;
	free(r);
	return NULL;
}

struct soft_rings *soft_rings_create(int *fd)
{
	struct soft_rings *r;

	*fd = memfd_sealed("rdmad-rings", sizeof(struct soft_rings_memory));
	if (*fd < 0)
		return NULL;
	r = soft_rings_map(*fd);
	if (!r) {
		close(*fd);
		*fd = -1;
		return NULL;
	}
	r->memory->magic = SOFT_RINGS_MAGIC;
	for (unsigned i = 0; i < ARRAY_SIZE(r->memory->ring); i++)
		atomic_store_explicit(&r->memory->ring[i].asleep, 1, memory_order_relaxed);
	return r;
}

struct soft_rings *soft_rings_take(int fd)
{
	struct soft_rings *r = NULL;
	struct stat st;

	if (memfd_is_sealed(fd) && fstat(fd, &st) == 0 && st.st_size == sizeof(*r->memory))
		r = soft_rings_map(fd);
	close(fd);
	if (!r || r->memory->magic == SOFT_RINGS_MAGIC)
		return r;
	soft_rings_free(r);
	return NULL;
}

void soft_rings_free(struct soft_rings *r)
{
	if (!r)
		return;
	munmap(r->memory, sizeof(*r->memory));
	free(r);
}

/* Switch the endpoint from its socket to rings. */
void soft_rings_open(struct soft_endpoint *ep, bool client)
{
	struct soft_queue *q = ep->queue;
	struct soft_rings *r = ep->offer;
	int rc = soft_near_watch(ep);

	if (rc != 0) {
		soft_fail_socket(ep, -rc);
		return;
	}
	r->endpoint = ep;
	r->out = (struct soft_side){.ring = &r->memory->ring[!client], .data = r->memory->data[!client]};
	r->in = (struct soft_side){.ring = &r->memory->ring[client], .data = r->memory->data[client]};
	ep->offer = NULL;
	ep->rings = r;
	soft_near_leave(ep);
	q->endpoint_count--;
	list_del(&ep->source.link);
	list_add_tail(&q->rings.list, &ep->source.link);
	q->rings.count++;
	soft_ready(ep);
}

/* The peer's index: no less than it was, and no more than `most` further. */
static bool soft_side_read(struct soft_side *side, const _Atomic uint64_t *index, uint64_t most)
{
	uint64_t now = atomic_load_explicit(index, memory_order_acquire);

	if (now - side->peer > most)
		return false;
	side->peer = now;
	return true;
}

/* False: it is no index. */
static bool soft_side_check_in(struct soft_side *in)
{
	return soft_side_read(in, &in->ring->head, SOFT_RING_SIZE - (in->peer - in->own));
}

static bool soft_side_check_out(struct soft_side *out)
{
	return soft_side_read(out, &out->ring->tail, out->own - out->peer);
}

static size_t soft_side_room(const struct soft_side *out)
{
	return SOFT_RING_SIZE - (out->own - out->peer);
}

static bool soft_rings_have_room(struct soft_rings *r)
{
	return !soft_side_check_out(&r->out) || soft_side_room(&r->out) > 0;
}

/* The index has moved: a thread that sleeps for that is woken. */
static void soft_rings_tell(struct soft_endpoint *ep, _Atomic uint32_t *flag)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (likely(!atomic_load_explicit(flag, memory_order_relaxed)))
		return;
	atomic_store_explicit(flag, 0, memory_order_relaxed);
	/* EAGAIN: it has not read the earlier ones. */
	if (send(ep->source.fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1 || errno == EAGAIN)
		return;
	if (errno == EPIPE || errno == ECONNRESET) {
		ep->hung_up = true;
		soft_ready(ep);
		return;
	}
	atomic_store_explicit(flag, 1, memory_order_relaxed);
	if (!list_linked(&ep->later))
		list_add_tail(&ep->queue->later, &ep->later);
	soft_timer_want(ep->queue, SOFT_RETRY_MS);
}

void soft_rings_tell_again(struct soft_endpoint *ep)
{
	soft_rings_tell(ep, &ep->rings->out.ring->asleep);
	soft_rings_tell(ep, &ep->rings->in.ring->full);
}

static void soft_rings_publish(struct soft_endpoint *ep)
{
	struct soft_side *out = &ep->rings->out;

	atomic_store_explicit(&out->ring->head, out->own, memory_order_release);
	soft_rings_tell(ep, &out->ring->asleep);
}

uint8_t *soft_rings_reserve(struct soft_endpoint *ep, size_t len)
{
	struct soft_side *out = &ep->rings->out;
	size_t at = out->own % SOFT_RING_SIZE;

	if (SOFT_RING_SIZE - at < len)
		return NULL;
	if (soft_side_room(out) < len && (!soft_side_check_out(out) || soft_side_room(out) < len))
		return NULL;
	return out->data + at;
}

void soft_rings_commit(struct soft_endpoint *ep, size_t len)
{
	ep->rings->out.own += len;
	soft_rings_publish(ep);
}

/* Up to SOFT_RING_STEP bytes of what is left of the vector; how many. */
static size_t soft_rings_put(struct soft_side *out, const struct iovec *iov, unsigned iovs, unsigned *at, size_t *done)
{
	size_t room = MIN(soft_side_room(out), SOFT_RING_STEP), put = 0;

	while (put < room && *at < iovs) {
		size_t place = out->own % SOFT_RING_SIZE;
		size_t n = MIN(MIN(iov[*at].iov_len - *done, room - put), SOFT_RING_SIZE - place);

		memcpy(out->data + place, (const uint8_t *)iov[*at].iov_base + *done, n);
		out->own += n;
		put += n;
		*done += n;
		if (*done == iov[*at].iov_len) {
			*done = 0;
			++*at;
		}
	}
	return put;
}

ssize_t soft_rings_send(struct soft_endpoint *ep, const struct iovec *iov, unsigned iovs)
{
	struct soft_side *out = &ep->rings->out;
	size_t sent = 0, done = 0, n;
	unsigned at = 0;

	while (at < iovs) {
		if (soft_side_room(out) < SOFT_RING_STEP && !soft_side_check_out(out)) {
			soft_fail_protocol(ep, "took more from a ring than there was");
			return -1;
		}
		n = soft_rings_put(out, iov, iovs, &at, &done);
		if (!n)
			break;
		sent += n;
		soft_rings_publish(ep);
	}
	return (ssize_t)sent;
}

void soft_rings_block(struct soft_endpoint *ep)
{
	struct soft_queue *q = ep->queue;
	struct soft_rings *r = ep->rings;

	ep->out.blocked = true;
	if (!q->armed && q->rings.roomless_count < SOFT_ROOMLESS) {
		list_add_tail(&q->rings.roomless, &r->roomless);
		q->rings.roomless_count++;
		return;
	}
	q->blocked++;
	atomic_store_explicit(&r->out.ring->full, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	if (soft_rings_have_room(r)) {
		soft_unblock(ep);
		soft_ready(ep);
	}
}

void soft_rings_unblock(struct soft_endpoint *ep)
{
	struct soft_queue *q = ep->queue;

	if (!list_linked(&ep->rings->roomless)) {
		q->blocked--;
		return;
	}
	list_del(&ep->rings->roomless);
	q->rings.roomless_count--;
}

/* Whether there is something that can be worked off. */
static bool soft_rings_are_due(struct soft_rings *r)
{
	if (r->endpoint->state != SOFT_OPEN || soft_stands_still(r->endpoint))
		return false;
	/* Is something there, or wrong? */
	return r->in.peer != r->in.own || !soft_side_check_in(&r->in) || r->in.peer != r->in.own;
}

/* The flag is set. True: something has come meanwhile. */
static bool soft_rings_doze(struct soft_rings *r)
{
	atomic_store_explicit(&r->in.ring->asleep, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	return soft_rings_are_due(r);
}

static void soft_rings_drop(struct soft_queue *q, struct soft_rings *r)
{
	list_del(&r->awake);
	q->rings.awake_count--;
}

/* Wake a ring that has brought something: more is near. */
static void soft_rings_wake(struct soft_endpoint *ep)
{
	struct soft_queue *q = ep->queue;
	struct soft_rings *r = ep->rings;

	r->quiet = 0;
	if (list_linked(&r->awake) || q->armed || q->rings.awake_count == SOFT_AWAKE)
		return;
	atomic_store_explicit(&r->in.ring->asleep, 0, memory_order_relaxed);
	list_add_tail(&q->rings.awake, &r->awake);
	q->rings.awake_count++;
}

/* The bytes that are there in one piece; 0: none, or it failed. */
static size_t soft_rings_piece(struct soft_endpoint *ep, const uint8_t **bytes)
{
	struct soft_side *in = &ep->rings->in;
	size_t at = in->own % SOFT_RING_SIZE;

	if (in->peer == in->own && !soft_side_check_in(in)) {
		soft_fail_protocol(ep, "put more into a ring than has room there");
		return 0;
	}
	*bytes = in->data + at;
	return MIN(in->peer - in->own, SOFT_RING_SIZE - at);
}

bool soft_rings_receive(struct soft_endpoint *ep, size_t *budget)
{
	bool payload = ep->phase == SOFT_PHASE_PAYLOAD;
	const uint8_t *bytes;
	enum soft_step step;
	size_t n = soft_rings_piece(ep, &bytes);

	if (!n && ep->state < SOFT_FLUSHING && ep->hung_up) {
		soft_fail_socket(ep, 0);
		return false;
	}
	if (!n) /* before it sleeps it looks once more: there may be something now */
		return ep->state < SOFT_FLUSHING && !list_linked(&ep->rings->awake) &&
		       !atomic_load_explicit(&ep->rings->in.ring->asleep, memory_order_relaxed) &&
		       soft_rings_doze(ep->rings);
	if (payload && !soft_target_check(ep)) {
		soft_target_lost(ep);
		return false;
	}
	n = soft_parse(ep, bytes, MIN(MIN(n, *budget), SOFT_RING_STEP), &step);
	if (payload && ep->frame.op != SOFT_SEND && ep->frame.op != SOFT_READ_DATA)
		ep->moved += n; /* of answers the provider counts whole pieces */
	ep->queue->moved |= n > SOFT_STAGE && payload;
	ep->heard++;
	*budget -= n;
	if (ep->state < SOFT_FLUSHING) {
		struct soft_side *in = &ep->rings->in;

		in->own += n;
		atomic_store_explicit(&in->ring->tail, in->own, memory_order_release);
		soft_rings_tell(ep, &in->ring->full);
		soft_rings_wake(ep);
	}
	return step == SOFT_GO;
}

void soft_rings_run(struct soft_endpoint *ep, uint32_t events)
{
	struct soft_queue *q = ep->queue;
	ssize_t n = recv(ep->source.fd, q->stage, sizeof(q->stage), MSG_DONTWAIT);

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || events & (EPOLLHUP | EPOLLRDHUP | EPOLLERR))
		ep->hung_up = true;
	if (ep->hung_up && ep->state == SOFT_REFUSING) {
		soft_fail_socket(ep, 0); /* the peer does not read why */
		return;
	}
	/* Also where there is no room: the flag may be clear, by a peer that was late, and is set again. */
	if (ep->out.blocked) {
		soft_unblock(ep);
		soft_transmit(ep);
	}
	soft_receive(ep);
}

static void soft_rings_progress_out(struct soft_queue *q)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &q->rings.roomless) {
		struct soft_rings *r = container_of(pos, struct soft_rings, roomless);

		if (!soft_rings_have_room(r))
			continue;
		soft_unblock(r->endpoint);
		soft_ready(r->endpoint);
	}
}

/* Whether something came. */
static bool soft_rings_check(struct soft_rings *r)
{
	if (!soft_rings_are_due(r))
		return false;
	if (!list_linked(&r->endpoint->ready))
		soft_receive(r->endpoint);
	return true;
}

static void soft_rings_progress_awake(struct soft_queue *q)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &q->rings.awake) {
		struct soft_rings *r = container_of(pos, struct soft_rings, awake);

		if (soft_rings_check(r) || ++r->quiet < SOFT_QUIET)
			continue;
		soft_rings_drop(q, r);
		if (soft_rings_doze(r))
			soft_ready(r->endpoint);
	}
}

void soft_rings_progress(struct soft_queue *q)
{
	struct list *pos, *tmp;

	if (!list_empty(&q->rings.roomless))
		soft_rings_progress_out(q);
	if (q->rings.count > 1)
		q->turn.share = MIN(q->turn.share, SOFT_BUDGET);
	if (q->rings.count > SOFT_RINGS_FEW)
		soft_rings_progress_awake(q);
	else if (q->rings.count)
		list_for_each_safe (pos, tmp, &q->rings.list)
			soft_rings_check(container_of(pos, struct soft_endpoint, source.link)->rings);
}

void soft_rings_arm(struct soft_queue *q)
{
	while (!list_empty(&q->rings.awake)) {
		struct soft_rings *r = list_first(&q->rings.awake, struct soft_rings, awake);

		soft_rings_drop(q, r);
		if (soft_rings_doze(r))
			soft_ready(r->endpoint);
	}
	while (!list_empty(&q->rings.roomless)) {
		struct soft_endpoint *ep = list_first(&q->rings.roomless, struct soft_rings, roomless)->endpoint;

		soft_unblock(ep);
		soft_rings_block(ep);
	}
}

void soft_rings_leave(struct soft_endpoint *ep)
{
	if (!ep->rings)
		return;
	ep->queue->rings.count--;
	if (list_linked(&ep->rings->awake))
		soft_rings_drop(ep->queue, ep->rings);
}
