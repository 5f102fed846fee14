/* engine.c: one thread's queue and connections, and the waiting. */
#include "engine/engine.h"
#include "base/spin.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define DEFAULT_POLL (200 * TIME_US)
#define POLLERS 2 /* the caller and whom it asks */
#define DEFAULT_CREDITS 32
#define MESSAGE_SIZE (8u * 1024)
#define MAX_CONNECTIONS 1024
/* Devices pin what they keep of a queue, and an ordinary user may pin 8 MiB: completion queues begin small and grow,
 * the queue of shared receives cannot on every device. */
#define FIRST_CONNECTIONS 16
#define MAX_RECEIVES 2048
#define KEEPALIVE (10 * TIME_S)
#define AWAY_MS (24u * 3600 * 1000)
#define LOOK_MOST (2 * TIME_S) /* what came before the end, and what a device flushes, take several turns */
#define READS_IN 16            /* large values that the server fetches at once */

struct engine {
	struct engine_head head; /* first: engine.h looks there */
	unsigned holders;
	struct engine_options options;
	struct spin spin;
	struct engine_key *key; /* NULL: it has none */
	struct engine_fabric *fabric;
	struct fabric_domain *domain;
	struct conn_group *group;
	struct buffers *buffers;
	uint64_t completed; /* operations of all connections, and what roused the threads that wait for one */
	uint64_t roused;    /* of it, the latter */
	uint64_t turns;     /* of the caller */
	struct list timers;
	uint64_t timer_due;   /* the first of them */
	uint64_t clock_due;   /* what `clock` is set to */
	int clock;            /* a timerfd in epoll, from when the caller asks for the descriptor; else -1 */
	struct list deferred; /* outcomes that the thread left to the caller */
	int epoll;
	int told;     /* an eventfd in epoll, readable while something is deferred; -1 without a thread */
	bool running; /* callbacks must not turn the engine again; the caller's own */
};

static uint64_t us_or(uint64_t us, uint64_t fallback)
{
	return us ? time_of_us(us) : fallback;
}

void engine_options_from(const struct rdmad_options *options, struct engine_options *out)
{
	static const struct rdmad_options defaults;

	if (!options)
		options = &defaults;
	*out = (struct engine_options){
		.connect_timeout = us_or(options->connect_timeout_us, 5 * TIME_S),
		.timeout = us_or(options->timeout_us, 30 * TIME_S),
		.poll = spin_allowed(us_or(options->poll_us, DEFAULT_POLL), POLLERS),
		.credits = options->credits ? options->credits : DEFAULT_CREDITS,
		.message_size = MESSAGE_SIZE,
		.keepalive = KEEPALIVE,
		.require_rdma = options->require_rdma,
		.require_encryption = options->require_encryption,
		.progress_thread = options->progress_thread,
		.traffic_class = options->traffic_class,
		.proof = {.file = options->key_file, .munge = options->munge, .server_user = options->server_user},
	};
	if (options->no_poll)
		out->poll = 0;
	out->credits = MIN(MAX(out->credits, WIRE_CREDITS_MIN), WIRE_CREDITS_MAX);
}

static int engine_watch_fd(struct engine *engine, int fd)
{
	struct epoll_event event = {.events = EPOLLIN};

	return epoll_ctl(engine->epoll, EPOLL_CTL_ADD, fd, &event);
}

static int engine_watch(struct engine *engine)
{
	int fds[FABRIC_MAX_FDS];
	int n = fabric_fds(conn_group_queue(engine->group), fds);

	engine->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (engine->epoll < 0)
		goto failed;
	for (int i = 0; i < n; i++)
		if (engine_watch_fd(engine, fds[i]) != 0)
			goto failed;
	return 0;

failed:
	n = -errno;
	log_error("client", "cannot watch the transport's descriptors: %m");
	if (engine->epoll >= 0)
		close(engine->epoll);
	return n;
}

static int engine_start_thread(struct engine *engine)
{
	int rc;

	engine->told = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (engine->told < 0 || engine_watch_fd(engine, engine->told) != 0) {
		rc = -errno;
		log_error("client", "cannot make a descriptor for the progress thread: %m");
	} else {
		rc = progress_create(engine, &engine->head.progress);
	}
	if (rc != 0 && engine->told >= 0) {
		close(engine->told);
		engine->told = -1;
	}
	return rc;
}

int engine_fabric_open(const struct fabric_transport *transport, const struct engine_options *options,
		       struct engine_fabric **out)
{
	struct fabric_config config = {
		.traffic_class = options->traffic_class,
		.device = options->device,
		.stall_ms = options->away ? AWAY_MS : 0, /* what it began it goes on with in its next call */
	};
	struct engine_fabric *fabric = options->fabric;
	int rc;

	if (fabric) {
		engine_fabric_hold(fabric);
		*out = fabric;
		return 0;
	}
	fabric = calloc(1, sizeof(*fabric));
	if (!fabric)
		return -ENOMEM;
	atomic_init(&fabric->holders, 1);
	rc = fabric_open(fabric_transport_provider(transport), &config, &fabric->fabric);
	if (rc != 0) {
		free(fabric);
		return rc;
	}
	*out = fabric;
	return 0;
}

void engine_fabric_hold(struct engine_fabric *fabric)
{
	atomic_fetch_add(&fabric->holders, 1);
}

void engine_fabric_release(struct engine_fabric *fabric)
{
	if (!fabric || atomic_fetch_sub(&fabric->holders, 1) != 1)
		return;
	fabric_close(fabric->fabric);
	free(fabric);
}

static struct conn_group_attr engine_group_attr(const struct fabric_transport *transport,
						const struct engine_options *options)
{
	/* An engine with few connections has receives for these only. */
	uint64_t receives = (uint64_t)options->connections * (options->credits + WIRE_RETURNS_MAX);

	return (struct conn_group_attr){
		.message_size = transport->processor && options->processor_message_size
					? options->processor_message_size
					: options->message_size,
		.message_max = WIRE_MESSAGE_MAX,
		.credits = (uint16_t)options->credits,
		.receives = receives && receives < MAX_RECEIVES ? (uint32_t)receives : MAX_RECEIVES,
		.max_connections = options->connections ? options->connections : MAX_CONNECTIONS,
		.first_connections = FIRST_CONNECTIONS,
		.completions = options->completions,
		.transfers = options->transfers,
		.reads_in = READS_IN,
		.handshake_timeout = options->connect_timeout,
		.keepalive = options->keepalive,
		.memory = true,
		.encrypt = options->require_encryption ? CONN_REQUIRE : CONN_DEMAND,
		.asks = true,
		.away = options->away,
	};
}

int engine_create(const struct fabric_transport *transport, const struct engine_options *options, struct engine **out)
{
	struct engine *engine = calloc(1, sizeof(*engine));
	struct conn_group_attr attr = engine_group_attr(transport, options);
	int rc;

	if (!engine)
		return -ENOMEM;
	engine->holders = 1;
	engine->options = *options;
	spin_init(&engine->spin, options->poll);
	engine->told = -1;
	engine->clock = -1;
	engine->timer_due = engine->clock_due = TIME_NEVER;
	list_init(&engine->timers);
	list_init(&engine->deferred);
	engine->key = engine_key_hold(options->key);
	rc = engine->key ? 0 : engine_key_create(&options->proof, &engine->key);
	if (rc != 0)
		goto free_engine;
	attr.server_user = engine_key_server(engine->key);
	rc = engine_fabric_open(transport, options, &engine->fabric);
	if (rc != 0)
		goto destroy_key;
	rc = fabric_domain_create(engine->fabric->fabric, &engine->domain);
	if (rc != 0)
		goto release_fabric;
	rc = conn_group_create(engine->domain, &attr, &engine->group);
	if (rc != 0)
		goto destroy_domain;
	rc = -ENOMEM;
	engine->buffers = buffers_create(engine, engine->domain);
	if (!engine->buffers)
		goto destroy_group;
	rc = engine_watch(engine);
	if (rc != 0)
		goto destroy_buffers;
	if (options->progress_thread)
		rc = engine_start_thread(engine);
	if (rc != 0)
		goto close_epoll;
	*out = engine;
	return 0;

close_epoll:
	close(engine->epoll);
destroy_buffers:
	buffers_destroy(engine->buffers);
destroy_group:
	conn_group_destroy(engine->group);
destroy_domain:
	fabric_domain_destroy(engine->domain);
release_fabric:
	engine_fabric_release(engine->fabric);
destroy_key:
	engine_key_release(engine->key);
free_engine:
	free(engine);
	return rc;
}

int engine_join(struct engine *engine, const struct engine_options *options)
{
	int rc = 0;

	if (options->require_encryption && !engine->options.require_encryption)
		return log_fail(-EPROTOTYPE, "client",
				"encryption is required, and the handle to share with does not require it");
	if (options->progress_thread && !engine->head.progress)
		rc = engine_start_thread(engine);
	if (rc == 0)
		engine->holders++;
	return rc;
}

static void descriptors_close(struct engine *engine)
{
	if (engine->told >= 0)
		close(engine->told);
	if (engine->clock >= 0)
		close(engine->clock);
	close(engine->epoll);
}

void engine_release(struct engine *engine)
{
	if (!engine)
		return;
	must(!engine->running && !engine_entered(engine));
	if (--engine->holders)
		return;
	progress_destroy(engine->head.progress);
	descriptors_close(engine);
	conn_group_destroy(engine->group);
	buffers_destroy(engine->buffers);
	fabric_domain_destroy(engine->domain);
	engine_fabric_release(engine->fabric);
	engine_key_release(engine->key);
	free(engine);
}

void engine_abandon(struct engine *engine)
{
	if (--engine->holders)
		return;
	progress_abandon(engine->head.progress);
	descriptors_close(engine);
	fabric_queue_abandon(conn_group_queue(engine->group));
}

const struct engine_key *engine_key_of(const struct engine *engine)
{
	return engine->key;
}

struct buffers *engine_buffers(struct engine *engine)
{
	return engine->buffers;
}

struct conn_group *engine_group(const struct engine *engine)
{
	return engine->group;
}

bool engine_has(const struct engine *engine, const struct fabric_transport *transport)
{
	return fabric_has(engine->fabric->fabric, transport);
}

int engine_fd(struct engine *engine)
{
	int rc;

	if (engine->clock >= 0)
		return engine->epoll;
	engine->clock = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (engine->clock >= 0 && engine_watch_fd(engine, engine->clock) == 0)
		return engine->epoll;
	rc = -errno;
	log_error("client", "cannot make a timer for the descriptor: %m");
	if (engine->clock >= 0)
		close(engine->clock);
	engine->clock = -1;
	return rc;
}

static uint64_t engine_deadline(const struct engine *engine)
{
	return MIN(engine->timer_due, conn_group_deadline(engine->group));
}

/* The clock rings no later than something is due, and not after it rang. */
static void clock_set(struct engine *engine, uint64_t now)
{
	uint64_t due = engine_deadline(engine);
	struct itimerspec when = {0};

	if (engine->clock < 0 || (engine->clock_due <= due && engine->clock_due > now))
		return;
	engine->clock_due = due;
	if (due != TIME_NEVER) {
		when.it_value.tv_sec = (time_t)(due / TIME_S);
		when.it_value.tv_nsec = (long)(due % TIME_S) + (due == 0);
	}
	if (timerfd_settime(engine->clock, TFD_TIMER_ABSTIME, &when, NULL) != 0)
		log_error("client", "cannot set the timer of the descriptor: %m");
}

uint64_t *engine_completed(struct engine *engine)
{
	return &engine->completed;
}

void engine_rouse(struct engine *engine)
{
	must(engine_entered(engine));
	engine->completed++;
	engine->roused++;
}

void engine_uncount(struct engine *engine)
{
	must(engine_entered(engine));
	engine->roused++;
}

uint64_t engine_roused(const struct engine *engine)
{
	return engine->roused;
}

void engine_defer(struct engine *engine, struct deferred *deferred)
{
	uint64_t one = 1;

	must(engine_entered(engine) && engine_defers(engine));
	if (list_linked(&deferred->node))
		return;
	/* A count of one cannot overflow. */
	if (list_empty(&engine->deferred) && write(engine->told, &one, sizeof(one)) < 0)
		log_error("client", "cannot tell the caller of what is finished: %m");
	list_add_tail(&engine->deferred, &deferred->node);
}

/* How many handles were told. */
static int engine_deliver(struct engine *engine)
{
	uint64_t count;
	int n = 0;

	if (read(engine->told, &count, sizeof(count)) < 0)
		log_error("client", "cannot clear what told of finished operations: %m");
	for (; !list_empty(&engine->deferred); n++) {
		struct deferred *deferred = list_first(&engine->deferred, struct deferred, node);

		list_del(&deferred->node);
		deferred->deliver(deferred);
	}
	return n;
}

static void timers_look(struct engine *engine)
{
	engine->timer_due = TIME_NEVER;
	list_for_each (at, &engine->timers)
		engine->timer_due = MIN(engine->timer_due, container_of(at, struct engine_timer, node)->when);
}

void engine_timer_cancel(struct engine *engine, struct engine_timer *timer)
{
	must(engine_entered(engine));
	if (!list_linked(&timer->node))
		return;
	list_del(&timer->node);
	timers_look(engine);
}

void engine_timer_set(struct engine *engine, struct engine_timer *timer, uint64_t when)
{
	engine_timer_cancel(engine, timer);
	timer->when = when;
	list_add_tail(&engine->timers, &timer->node);
	engine->timer_due = MIN(engine->timer_due, when);
}

static __attribute__((cold)) int engine_ring(struct engine *engine, uint64_t now)
{
	struct list *at = engine->timers.next;
	int n = 0;

	/* From the start again after each: it may have cancelled or set others. */
	while (at != &engine->timers) {
		struct engine_timer *timer = container_of(at, struct engine_timer, node);

		at = at->next;
		if (timer->when > now)
			continue;
		list_del(&timer->node);
		timer->due(timer);
		at = engine->timers.next;
		n++;
	}
	timers_look(engine);
	return n;
}

static int engine_progress(struct engine *engine, uint64_t now)
{
	int work = 0;

	must(engine_entered(engine) && !engine_defers(engine));
	must(!engine->running);
	engine->turns++;
	engine->running = true;
	if (unlikely(!list_empty(&engine->deferred)))
		work = engine_deliver(engine);
	work += conn_group_progress(engine->group, now);
	if (unlikely(engine->timer_due <= now))
		work += engine_ring(engine, now);
	engine->running = false;
	return work;
}

uint64_t engine_turns(const struct engine *engine)
{
	return engine->turns;
}

int engine_serve(struct engine *engine)
{
	int work;

	must(!engine->running);
	engine_own(&engine->head);
	engine->head.serving = true;
	work = conn_group_progress(engine->group, time_now());
	engine->head.serving = false;
	engine_disown(&engine->head);
	return work;
}

int engine_may_wait(const struct engine *engine)
{
	if (likely(!engine->running))
		return 0;
	return log_fail(-EDEADLK, "client", "a callback must not wait: it was called by the wait it would begin");
}

bool engine_callbacks_begin(struct engine *engine)
{
	bool before = engine->running;

	must(engine_entered(engine));
	engine->running = true;
	return before;
}

void engine_callbacks_end(struct engine *engine, bool before)
{
	must(engine->running);
	engine->running = before;
}

int engine_turn_at(struct engine *engine, uint64_t now)
{
	if (engine->running)
		return -EDEADLK;
	return engine_progress(engine, now);
}

int engine_turn(struct engine *engine)
{
	return engine_turn_at(engine, time_now());
}

void engine_see_end(struct engine *engine, struct conn *const *conn)
{
	uint64_t until = time_now() + LOOK_MOST;

	do
		engine_turn(engine);
	while (*conn && (!conn_established(*conn) || fabric_hung_up(conn_endpoint(*conn))) && time_now() < until);
}

int engine_arm(struct engine *engine)
{
	uint64_t now = time_now();
	int work;

	must(engine_entered(engine));
	if (engine->running)
		return -EDEADLK;
	fabric_arm(conn_group_queue(engine->group));
	work = engine_progress(engine, now);
	clock_set(engine, now);
	return work != 0;
}

/* The lock is not held while its caller sleeps; the thread leaves the engine alone all the same. */
static void engine_sleep(struct engine *engine, const struct timespec *timeout)
{
	struct pollfd pfd = {.fd = engine->epoll, .events = POLLIN};
	struct progress *progress = engine->head.progress;

	if (progress)
		progress_unlock(progress);
	ppoll(&pfd, 1, timeout, NULL);
	if (progress)
		progress_lock(progress);
}

/* Sleep until the fabric has something, a timer of the group is due or `until`. */
static void engine_sleep_until(struct engine *engine, uint64_t now, uint64_t until)
{
	struct timespec timeout;

	until = MIN(until, engine_deadline(engine));
	if (until <= now)
		return;
	if (until == TIME_NEVER) {
		engine_sleep(engine, NULL);
		return;
	}
	timeout.tv_sec = (time_t)((until - now) / TIME_S);
	timeout.tv_nsec = (long)((until - now) % TIME_S);
	engine_sleep(engine, &timeout);
}

void engine_doze(struct engine *engine, uint64_t until)
{
	uint64_t now = time_now();

	if (engine_arm(engine) == 0 && now < until)
		engine_sleep_until(engine, now, until);
}

/* Turn until `finished` or the time is over: polls first, see spin.h, then sleeps. `yields`: at each idle turn, not
 * only when it is time_to_yield(). */
static int engine_wait_until(struct engine *engine, bool (*finished)(const void *, uint64_t), const void *what,
			     uint64_t value, uint64_t until, bool yields)
{
	uint64_t now = time_now();

	must(engine_entered(engine));
	if (engine_may_wait(engine) != 0)
		return -EDEADLK;
	spin_begin(&engine->spin, now);
	while (true) {
		int work = engine_progress(engine, now);
		bool tired = spin_turn(&engine->spin, now, (uint64_t)work);

		if (finished(what, value))
			return 0;
		now = time_now();
		if (now >= until)
			return -ETIMEDOUT;
		if (!tired) {
			if (yields ? engine->spin.idle > 0 : time_to_yield(engine->spin.idle))
				sched_yield();
			continue;
		}
		if (engine_arm(engine)) {
			spin_turn(&engine->spin, now, 1);
			continue;
		}
		if (finished(what, value))
			return 0;
		engine_sleep_until(engine, now, until);
		now = time_now();
	}
}

static bool is_true(const void *what, uint64_t value)
{
	(void)value;
	return *(const bool *)what;
}

static bool word_differs(const void *what, uint64_t value)
{
	return *(const uint64_t *)what != value;
}

int engine_wait(struct engine *engine, const bool *done, uint64_t timeout)
{
	return engine_wait_until(engine, is_true, done, 0, time_after(time_now(), timeout), false);
}

int engine_wait_change(struct engine *engine, const uint64_t *counter, uint64_t until)
{
	return engine_wait_until(engine, word_differs, counter, *counter, until, false);
}

int engine_yield_until_change(struct engine *engine, const uint64_t *counter, uint64_t until)
{
	return engine_wait_until(engine, word_differs, counter, *counter, until, true);
}

/* Other requests may be completed all the time: the clock is looked at here, too. */
static int blocking_await(struct blocking *b, uint64_t until)
{
	if (b->waited && time_now() >= until)
		return -ETIMEDOUT;
	b->waited = true;
	return b->await(b->handle, until);
}

int engine_block(struct engine *engine, struct blocking *b, uint64_t timeout)
{
	uint64_t until = time_after(time_now(), timeout);
	int rc = engine_may_wait(engine);

	must(engine_entered(engine));
	while (rc == 0 && (rc = b->submit(b)) == -EAGAIN)
		rc = blocking_await(b, until);
	b->taken = rc == 0;
	while (rc == 0 && !b->done)
		rc = blocking_await(b, until);
	return rc == 0 ? b->status : rc;
}
