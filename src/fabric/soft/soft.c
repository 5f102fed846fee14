/*
 * soft.c: the provider, its queues, and the one place where a queue's sockets are turned
 * into progress.
 */
#include "fabric/soft/soft.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define SOFT_EVENTS 32 /* of one turn; as many ACKs */
#define SOFT_ACK_TIMEOUT_MS 1000
#define SOFT_STALL_MS 30000

static int soft_open(const struct fabric_config *config, struct fabric **out)
{
	uint32_t stall_ms = config->stall_ms ? config->stall_ms : SOFT_STALL_MS;
	struct soft_fabric *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->lost_ms = 8 * (config->ack_timeout_ms ? config->ack_timeout_ms : SOFT_ACK_TIMEOUT_MS);
	f->check_ms = MAX(MIN(f->lost_ms, stall_ms) / 4, SOFT_TICKS);
	f->stall_checks = stall_ms / f->check_ms;
	f->traffic_class = config->traffic_class;
	list_init(&f->queues);
	pthread_mutex_init(&f->lock, NULL);
	*out = &f->base;
	return 0;
}

static void soft_close(struct fabric *fabric)
{
	struct soft_fabric *f = container_of(fabric, struct soft_fabric, base);

	must(list_empty(&f->queues)); /* these first */
	pthread_mutex_destroy(&f->lock);
	free(f);
}

static void soft_limits(const struct fabric *fabric, struct fabric_limits *limits)
{
	*limits = (struct fabric_limits){
		.inline_size = SOFT_INLINE,
		.max_send_depth = SOFT_MAX_DEPTH,
		.max_recv_depth = SOFT_MAX_DEPTH,
		.max_shared_depth = SOFT_MAX_DEPTH,
		.max_completions = SOFT_MAX_COMPLETIONS,
		.max_reads = SOFT_MAX_READS,
		.write_imm = true,
		.windows = true,
		.shared = true,
		.devices = 1,
		.pushes = true,
	};
}

static void soft_request_limits(const struct fabric_request *request, struct fabric_limits *limits)
{
	soft_limits(NULL, limits);
}

static char *soft_devices(const struct fabric *fabric, char *buf, size_t size)
{
	snprintf(buf, size, "tcp, unix");
	return buf;
}

uint32_t soft_ring_size(uint32_t depth)
{
	uint32_t size = 1;

	while (size < depth)
		size *= 2;
	return size;
}

int soft_watch(struct soft_queue *q, struct soft_source *source, uint32_t events, bool add)
{
	struct epoll_event event = {.events = events, .data.ptr = source};

	if (epoll_ctl(q->epoll_fd, add ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, source->fd, &event) == 0)
		return 0;
	return -errno;
}

static void soft_close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void soft_queue_free(struct soft_queue *q)
{
	soft_close_fd(q->reserve_fd);
	soft_close_fd(q->timer.fd);
	soft_close_fd(q->kick.fd);
	soft_close_fd(q->epoll_fd);
	free(q->recvs.shared.ring);
	free(q->batch);
	free(q->dropped);
	free(q->cq.ring);
	free(q);
}

static void soft_queue_lists(struct soft_queue *q)
{
	struct list *const all[] = {&q->endpoints,   &q->ready,         &q->recvs.starved,   &q->notes,
				    &q->listeners,   &q->requests,      &q->lingers,         &q->buried,
				    &q->owing.list,  &q->owing.now,     &q->recvs.borrowing, &q->check.list,
				    &q->later,       &q->near.list,     &q->near.alone,      &q->rings.list,
				    &q->rings.awake, &q->rings.roomless};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		list_init(all[i]);
	pending_init(&q->asking, &soft_requests_asking);
}

static int soft_queue_create(struct fabric_domain *domain, const struct fabric_queue_attr *attr,
			     struct fabric_queue **out)
{
	struct soft_queue *q;
	int rc = -ENOMEM;

	if (attr->completions > SOFT_MAX_COMPLETIONS || attr->shared_depth > SOFT_MAX_DEPTH)
		return -EINVAL;
	q = aligned_alloc(CACHE_LINE, (sizeof(*q) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
	if (!q)
		return -ENOMEM;
	memset(q, 0, sizeof(*q));
	q->base.ops = domain->ops;
	q->domain = container_of(domain, struct soft_domain, base);
	q->fabric = q->domain->fabric;
	q->epoll_fd = q->kick.fd = q->timer.fd = q->reserve_fd = -1;
	soft_queue_lists(q);
	q->cq.depth = attr->completions;
	q->cq.mask = soft_ring_size(attr->completions) - 1;
	q->cq.ring = calloc((size_t)q->cq.mask + 1, sizeof(*q->cq.ring));
	q->batch = malloc(sizeof(*q->batch));
	if (!q->cq.ring || !q->batch || soft_recvs_create(&q->recvs.shared, attr->shared_depth))
		goto free_queue;
	q->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	q->kick = (struct soft_source){.kind = SOFT_KICK, .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
	q->timer = (struct soft_source){.kind = SOFT_TIMER,
					.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)};
	q->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	rc = q->epoll_fd < 0 || q->kick.fd < 0 || q->timer.fd < 0 || q->reserve_fd < 0 ? -errno : 0;
	if (rc == 0)
		rc = soft_watch(q, &q->kick, EPOLLIN, true);
	if (rc == 0)
		rc = soft_watch(q, &q->timer, EPOLLIN, true);
	if (rc != 0)
		goto free_queue;
	pthread_mutex_lock(&q->fabric->lock);
	list_add_tail(&q->fabric->queues, &q->link);
	pthread_mutex_unlock(&q->fabric->lock);
	*out = &q->base;
	return 0;

free_queue:
	log_error("soft", "cannot make a queue: %s", strerror(-rc));
	soft_queue_free(q);
	return rc;
}

void soft_unwatch(struct soft_queue *q, struct soft_source *source)
{
	epoll_ctl(q->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
}

void soft_source_close(struct soft_queue *q, struct soft_source *source)
{
	soft_unwatch(q, source);
	if (source->kind == SOFT_REQUEST)
		local_close(source->fd);
	else
		close(source->fd);
	source->fd = -1;
}

void soft_bury_later(struct soft_queue *q, struct soft_source *source)
{
	soft_source_close(q, source);
	list_add_tail(&q->buried, &source->link);
}

static void soft_bury(struct soft_queue *q)
{
	while (!list_empty(&q->buried)) {
		struct soft_source *source = list_first(&q->buried, struct soft_source, link);

		list_del(&source->link);
		if (source->kind == SOFT_REQUEST)
			free(container_of(source, struct soft_request, source));
		else
			free(container_of(source, struct soft_linger, source));
	}
}

static void soft_queue_destroy(struct fabric_queue *queue)
{
	struct soft_queue *q = container_of(queue, struct soft_queue, base);

	must(list_empty(&q->endpoints) && list_empty(&q->rings.list) && list_empty(&q->listeners)); /* these first */
	pthread_mutex_lock(&q->fabric->lock);
	list_del(&q->link);
	pthread_mutex_unlock(&q->fabric->lock);
	soft_requests_drop(q, NULL);
	soft_linger_tick(q, TIME_NEVER);
	soft_bury(q);
	soft_queue_free(q);
}

static void soft_abandon(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void soft_queue_abandon(struct fabric_queue *queue)
{
	struct soft_queue *q = container_of(queue, struct soft_queue, base);
	struct list *const all[] = {&q->endpoints, &q->rings.list, &q->listeners, &q->requests, &q->lingers};
	struct list *pos, *tmp;

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		list_for_each_safe (pos, tmp, all[i])
			soft_abandon(&container_of(pos, struct soft_source, link)->fd);
	soft_abandon(&q->kick.fd);
	soft_abandon(&q->timer.fd);
	soft_abandon(&q->reserve_fd);
	soft_abandon(&q->epoll_fd);
}

void soft_note_post(struct soft_queue *q, struct soft_note *note, enum fabric_event_type type, void *object)
{
	note->type = type;
	note->object = object;
	list_add_tail(&q->notes, &note->link);
}

void soft_complain(const struct soft_peer *peer, const char *what)
{
	char name[160];

	log_warn("soft", "cut off %s: %s", soft_peer_format(peer, name, sizeof(name)), what);
}

static void soft_timer_set(struct soft_queue *q, uint32_t ms)
{
	struct timespec every = {ms / 1000, ms % 1000 * 1000000l};
	struct itimerspec spec = {.it_interval = every, .it_value = every};

	if (ms != q->timer_ms)
		timerfd_settime(q->timer.fd, 0, &spec, NULL);
	q->timer_ms = ms;
}

void soft_timer_want(struct soft_queue *q, uint32_t ms)
{
	if (!q->timer_ms || ms < q->timer_ms)
		soft_timer_set(q, ms);
}

static void soft_timer_run(struct soft_queue *q, struct soft_source *source, uint32_t events)
{
	uint64_t count, now = time_now();
	uint32_t ms;
	bool busy;

	if (read(source->fd, &count, sizeof(count)) != sizeof(count))
		return;
	ms = soft_check_tick(q, now);
	busy = soft_connect_tick(q, now);
	busy |= soft_linger_tick(q, now);
	soft_timer_set(q, busy && (!ms || ms > SOFT_TICK_MS) ? SOFT_TICK_MS : ms);
}

/* The kick is cleared by soft_settle(). */
static void soft_kick_run(struct soft_queue *q, struct soft_source *source, uint32_t events)
{
}

static void (*const soft_run[])(struct soft_queue *, struct soft_source *, uint32_t) = {
	[SOFT_KICK] = soft_kick_run,       [SOFT_TIMER] = soft_timer_run,       [SOFT_LISTENER] = soft_listener_run,
	[SOFT_REQUEST] = soft_request_run, [SOFT_ENDPOINT] = soft_endpoint_run, [SOFT_LINGER] = soft_linger_run,
};

void soft_settle(struct soft_queue *q)
{
	bool want = !list_empty(&q->notes) || (q->armed && (q->cq.head != q->cq.tail || !list_empty(&q->ready) ||
							    q->check.more || q->owing.more || soft_recvs_wanted(q)));
	uint64_t one = 1;

	if (likely(want == q->kicked))
		return;
	if (want ? write(q->kick.fd, &one, sizeof(one)) : read(q->kick.fd, &one, sizeof(one)))
		q->kicked = want;
}

/* Each once, as long as this turn's bytes last; the others come first in the next. True when bytes moved. */
static bool soft_progress_round(struct soft_queue *q)
{
	struct list round = q->ready;
	bool moved = false;

	q->turn.share = round.next == round.prev ? SOFT_TURN : SOFT_BUDGET;
	round.next->prev = round.prev->next = &round;
	list_init(&q->ready);
	while (!list_empty(&round) && q->turn.allowance) {
		struct soft_endpoint *ep = list_first(&round, struct soft_endpoint, ready);
		size_t before = q->turn.allowance;

		list_del(&ep->ready);
		soft_endpoint_continue(ep);
		moved |= q->turn.allowance != before;
		soft_spend(q, SOFT_VISIT);
	}
	list_prepend(&q->ready, &round);
	return moved;
}

/* Continue what earlier turns left over. One endpoint alone has all of the turn, many share it. */
static void soft_progress_ready(struct soft_queue *q)
{
	while (!list_empty(&q->ready) && q->turn.allowance && soft_progress_round(q))
		;
	q->turn.share = list_empty(&q->ready) ? SOFT_TURN : SOFT_BUDGET;
}

/* The ACKs that no post has carried for so many turns. True: more are due than one turn sends. */
static bool soft_acks_pay(struct soft_queue *q, struct list *list, uint32_t turns)
{
	for (unsigned i = 0; i < SOFT_EVENTS; i++) {
		struct soft_endpoint *ep = list_first(list, struct soft_endpoint, owing.link);

		if (list_empty(list) || q->turn.number - ep->owing.since < turns)
			return false;
		list_del(&ep->owing.link);
		if (ep->out.ack_due)
			soft_transmit(ep);
	}
	return true;
}

/* While the caller has completions to see it may still post something; before it sleeps it has done so. The peer's
 * memory of a write is held until then, and a caller that has all that it waits for may not come again for long: of one
 * it is told in any case. */
static void soft_progress_owing(struct soft_queue *q)
{
	bool seen = q->cq.head == q->cq.tail;

	q->owing.more = false;
	if (likely(list_empty(&q->owing.now) && list_empty(&q->owing.list)))
		return;
	q->owing.more = soft_acks_pay(q, &q->owing.now, 0);
	q->owing.more |= soft_acks_pay(q, &q->owing.list, !seen ? 2 * SOFT_PATIENCE : q->armed ? 0 : SOFT_PATIENCE);
}

static void soft_progress_epoll(struct soft_queue *q)
{
	struct epoll_event event[SOFT_EVENTS];
	int n = epoll_wait(q->epoll_fd, event, SOFT_EVENTS, 0);

	q->near.skipped = 0;
	soft_near_found(q, n);
	for (int i = 0; i < n; i++) {
		struct soft_source *source = event[i].data.ptr;

		if (source->fd >= 0)
			soft_run[source->kind](q, source, event[i].events);
	}
	soft_bury(q);
}

static void soft_progress(struct soft_queue *q)
{
	soft_section_enter(q);
	q->turn.number++;
	q->turn.allowance = q->turn.share = SOFT_TURN;
	if (unlikely(soft_recvs_wanted(q)))
		soft_recvs_feed(q);
	if (unlikely(q->check.more))
		soft_check_continue(q);
	soft_progress_ready(q);
	soft_rings_progress(q);
	if (!soft_near_progress(q))
		soft_progress_epoll(q);
	soft_progress_owing(q);
	soft_section_leave(q);
}

static int soft_cq_pop(struct soft_queue *q, struct fabric_completion *out, int max)
{
	int n = 0;

	while (n < max && q->cq.tail != q->cq.head) {
		out[n] = q->cq.ring[q->cq.tail++ & q->cq.mask];
		if (out[n].endpoint || out[n].context != SOFT_DROPPED)
			n++;
	}
	if (q->cq.tail == q->cq.head)
		q->cq.tail = q->cq.head = 0; /* stay in the same few cache lines */
	return n;
}

static uint64_t soft_cq_work(const struct fabric_completion *c, int n)
{
	uint64_t work = 0;

	for (int i = 0; i < n; i++)
		work += 1 + c[i].bytes;
	return work;
}

static int soft_poll(struct fabric_queue *queue, struct fabric_completion *out, int max)
{
	struct soft_queue *q = container_of(queue, struct soft_queue, base);
	int n;

	if (q->cq.head - q->cq.tail < (uint32_t)max) {
		soft_progress(q);
		q->polled = true;
	}
	n = soft_cq_pop(q, out, max);
	q->near.worked = list_empty(&q->near.list) && list_empty(&q->rings.awake) ? 0 : soft_cq_work(out, n);
	if (n)
		q->armed = q->moved = q->served = false;
	soft_settle(q);
	return n;
}

static void soft_event_fill(struct soft_note *note, struct fabric_event *out)
{
	struct soft_endpoint *ep = note->object;

	*out = (struct fabric_event){.type = note->type};
	if (note->type == FABRIC_REQUEST) {
		struct soft_request *r = note->object;

		list_del(&r->source.link);
		r->queue->request_count--;
		out->request = &r->base;
		out->context = r->listener->context;
		out->data_len = r->data_len;
		memcpy(out->data, r->buf + SOFT_HEADER, r->data_len);
		return;
	}
	out->endpoint = &ep->base;
	out->context = ep->context;
	if (note->type == FABRIC_DISCONNECTED)
		return;
	out->error = ep->error;
	out->data_len = ep->data_len;
	memcpy(out->data, ep->data, ep->data_len);
}

static int soft_next_event(struct fabric_queue *queue, struct fabric_event *out)
{
	struct soft_queue *q = container_of(queue, struct soft_queue, base);
	struct soft_note *note;

	if (list_empty(&q->notes) && !q->polled)
		soft_progress(q);
	if (list_empty(&q->notes)) {
		q->polled = false;
		soft_settle(q);
		return 0;
	}
	note = list_first(&q->notes, struct soft_note, link);
	list_del(&note->link);
	soft_event_fill(note, out);
	soft_settle(q);
	return 1;
}

static bool soft_moving(struct fabric_queue *queue)
{
	struct soft_queue *q = container_of(queue, struct soft_queue, base);
	bool moved = q->moved || q->served;

	q->moved = q->served = false;
	if (moved)
		q->armed = false; /* the quick way to poll */
	return moved;
}

static bool soft_arriving(const struct fabric_endpoint *endpoint)
{
	const struct soft_endpoint *ep = container_of(endpoint, struct soft_endpoint, base);

	return list_linked(&ep->ready) && ep->phase == SOFT_PHASE_BEGIN && ep->frame.op == SOFT_PUSH &&
	       ep->frame.len <= SOFT_SHORT_PUSH;
}

static bool soft_unsent(const struct fabric_endpoint *endpoint)
{
	const struct soft_endpoint *ep = container_of(endpoint, struct soft_endpoint, base);

	return ep->sq.sent != ep->sq.head && ep->state < SOFT_FLUSHING;
}

static uint32_t soft_shared_wanted(const struct fabric_queue *queue, uint32_t spare)
{
	const struct soft_queue *q = container_of(queue, struct soft_queue, base);

	return q->recvs.wanted ? MIN(q->recvs.wanted + spare, q->recvs.shared.depth) : 0;
}

static uint64_t soft_moved_bytes(const struct fabric_endpoint *endpoint)
{
	return container_of(endpoint, const struct soft_endpoint, base)->moved;
}

static int soft_arm(struct fabric_queue *queue)
{
	struct soft_queue *q = container_of(queue, struct soft_queue, base);

	soft_near_watch_all(q);
	q->armed = true;
	soft_rings_arm(q);
	soft_settle(q);
	return 0;
}

static int soft_fds(const struct fabric_queue *queue, int fds[static FABRIC_MAX_FDS])
{
	fds[0] = container_of(queue, const struct soft_queue, base)->epoll_fd;
	return 1;
}

const struct fabric_provider fabric_soft = {
	.name = "soft",
	.open = soft_open,
	.close = soft_close,
	.limits = soft_limits,
	.devices = soft_devices,
	.domain_create = soft_domain_create,
	.domain_destroy = soft_domain_destroy,
	.queue_create = soft_queue_create,
	.queue_destroy = soft_queue_destroy,
	.queue_abandon = soft_queue_abandon,
	.listen = soft_listen,
	.listener_port = soft_listener_port,
	.listener_close = soft_listener_close,
	.connect = soft_connect,
	.take = soft_take,
	.accept = soft_accept,
	.reject = soft_reject,
	.request_limits = soft_request_limits,
	.request_peer = soft_request_peer,
	.request_source = soft_request_source,
	.endpoint_peer = soft_endpoint_peer,
	.endpoint_source = soft_endpoint_source,
	.endpoint_local = soft_endpoint_local,
	.endpoint_transport = soft_endpoint_transport,
	.admit = soft_admit,
	.encrypt = soft_encrypt,
	.encrypts = soft_encrypts,
	.exposed = soft_exposed,
	.request_exposed = soft_request_exposed,
	.disconnect = soft_disconnect,
	.endpoint_destroy = soft_endpoint_destroy,
	.register_memory = soft_register,
	.register_dmabuf = soft_register_dmabuf,
	.deregister = soft_deregister,
	.region_rkey = soft_rkey,
	.window_open = soft_window_open,
	.window_close = soft_window_close,
	.post_recv = soft_post_recv,
	.shared_wanted = soft_shared_wanted,
	.pull = soft_pull,
	.post = soft_post,
	.poll = soft_poll,
	.next_event = soft_next_event,
	.moving = soft_moving,
	.moved_bytes = soft_moved_bytes,
	.arriving = soft_arriving,
	.unsent = soft_unsent,
	.hung_up = soft_hung_up,
	.host_lost = soft_host_lost,
	.arm = soft_arm,
	.fds = soft_fds,
};
