/*
 * worker.c: a thread with a loop, connection groups and services. Its turn is the daemon's hot
 * path: no malloc, no system call of ours while there is work.
 */
#include "daemon/daemon.h"
#include "base/spin.h"
#include "base/thread.h"

#include <sched.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#define TRANSFERS 16             /* large values that are transferred on one connection at a time */
#define DRAIN_LOOK (5 * TIME_MS) /* between looks at connections that are still busy */
#define REPORT_STEP 256          /* connections that are looked at in one turn, for a report */
#define ARM_FAILED_WAIT TIME_MS
#define HOT_LIMIT (60 * TIME_S) /* where no operator asks for what was found */
#define INBOX_TURN 2      /* messages of one turn: a connection may take a queue pair, and others wait meanwhile */
#define PUBLISH_TURNS 16  /* that find nothing, until the main thread learns what is new all the same */
#define BUSY_POLL TIME_MS /* polled at least, while other processes work for our connections */

struct worker {
	struct daemon *daemon;
	unsigned index;
	pthread_t thread;
	struct loop *loop;
	struct loop_watch *watch[FABRICS_MAX * FABRIC_MAX_FDS + WIRE_SERVICES + 1];
	unsigned watches;
	struct conn_group *group[FABRICS_MAX];
	unsigned groups;
	struct stream_group *streams;
	struct service_thread services;
	struct spin spin;
	unsigned unpublished; /* turns since worker_publish() */
	bool worked;          /* the last turn: its time is to be counted */
	uint64_t busy;        /* ns of such turns */
	struct buckets turns;
	bool draining;
	uint64_t drain_look; /* when to look again */
	atomic_bool quit;
	_Atomic uint64_t connections;  /* written by the worker */
	_Atomic uint64_t oldest;       /* conn_group_oldest() of its groups, by the worker */
	_Atomic uint64_t taken;        /* requests, by the worker */
	_Atomic uint64_t turned;       /* when its last turn began, by the worker */
	bool stuck;                    /* the log said so; the main thread's */
	uint64_t handed;               /* requests, by the main thread */
	struct worker_message *report; /* that is being made; NULL: none */
	unsigned reported;             /* groups that are in it */
	struct ring inbox, outbox;
	_Atomic unsigned words;            /* of enum worker_word, by the main thread */
	_Atomic uint64_t polling;          /* what WORKER_SETTINGS is about */
	struct auth_table *_Atomic access; /* and WORKER_ACCESS; NULL: it was taken over */
	struct auth_table *revised;        /* the last that was; by the worker */
};

static bool worker_runs_here(const struct worker *w)
{
	return w->services.owner == thread_self();
}

static uint64_t worker_count(const struct worker *w)
{
	uint64_t n = stream_group_count(w->streams);

	for (unsigned i = 0; i < w->groups; i++)
		n += conn_group_connections(w->group[i]);
	return n;
}

/* Publish for the main thread the load, when the oldest connection that may give way was opened, and a drain's end. */
static void worker_publish(struct worker *w)
{
	uint64_t n = worker_count(w), oldest = stream_group_oldest(w->streams);

	for (unsigned i = 0; i < w->groups; i++) {
		uint64_t opened = conn_group_oldest(w->group[i]);

		oldest = MIN(oldest, opened);
	}
	w->unpublished = 0;
	if (unlikely(oldest != atomic_load_explicit(&w->oldest, memory_order_relaxed)))
		atomic_store_explicit(&w->oldest, oldest, memory_order_relaxed);
	if (likely(n == atomic_load_explicit(&w->connections, memory_order_relaxed)))
		return;
	atomic_store_explicit(&w->connections, n, memory_order_release);
	if (w->draining && n == 0)
		loop_wake(w->daemon->loop);
}

/* The turn that has ended did something. */
static void worker_time(struct worker *w, uint64_t now)
{
	uint64_t took = now - w->services.now;

	w->busy += took;
	buckets_add(&w->turns, BUCKETS_REQUEST, took, 1);
	service_thread_time(&w->services, took);
}

static int worker_turn(struct worker *w, uint64_t now)
{
	int n = 0;

	must(worker_runs_here(w));
	if (w->worked)
		worker_time(w, now);
	w->services.now = now;
	for (unsigned i = 0; i < w->groups; i++)
		n += conn_group_progress(w->group[i], now);
	n += stream_group_progress(w->streams, now);
	n += service_thread_progress(&w->services);
	w->worked = n > 0;
	if (n > 0 || ++w->unpublished == PUBLISH_TURNS)
		worker_publish(w);
	return n;
}

/* Whether the daemon has a place for a connection. One that is let in instead of an older one takes its place, in its
 * group or else in any. In a group whose devices have no room for more, an older one may give way, too. */
static bool worker_has_place(struct worker *w, const struct worker_message *m)
{
	struct conn_group *group = w->group[m->connection.group];

	if (m->connection.instead) {
		bool made = m->verb == WORKER_CONNECTION && conn_group_make_room(group, w->services.now);

		for (unsigned i = 0; i < w->groups && !made; i++)
			made = conn_group_make_room(w->group[i], w->services.now);
		return made || stream_group_make_room(w->streams, w->services.now);
	}
	if (m->verb == WORKER_CONNECTION && conn_group_connections(group) >= conn_group_attr(group)->max_connections)
		conn_group_make_room(group, w->services.now);
	return true;
}

static void revise_connection(void *arg, struct conn *conn)
{
	if (conn_revise(conn, arg))
		service_revised(conn);
}

static void revise_stream(void *arg, struct stream *stream)
{
	stream_revise(stream, arg);
}

static void worker_revise(struct worker *w)
{
	struct auth_table *access = atomic_exchange(&w->access, NULL);

	for (unsigned i = 0; access && i < w->groups; i++)
		conn_group_each(w->group[i], revise_connection, access);
	if (!access)
		return;
	stream_group_each(w->streams, revise_stream, access);
	auth_table_put(w->revised);
	w->revised = access;
}

/* Admit a request again that was admitted by a table which a reload has replaced since. */
static bool worker_readmit(const struct worker *w, struct worker_message *m)
{
	struct auth_admission *admission = &m->connection.admission;

	if (admission->table == w->revised || !admission->table)
		return true;
	return auth_readmit(admission, w->revised) && auth_may_use(admission, m->connection.request.service);
}

static int worker_accept_stream(struct worker *w, struct worker_message *m)
{
	struct stream_open open = {.fd = m->connection.fd,
				   .request = m->connection.fabric_request,
				   .id = conn_next_id(),
				   .service = wire_service_name(m->connection.service->id),
				   .share = m->connection.source,
				   .admission = &m->connection.admission};
	bool late = w->revised && open.admission->table && open.admission->table != w->revised;
	int rc = service_accept_stream(m->connection.service, &w->services, w->streams, &open);

	/* A reload came between: it is looked at as those that were here then. */
	if (rc == 0 && late)
		stream_group_each(w->streams, revise_stream, w->revised);
	return rc;
}

/* Tell a client that it is refused. */
static void worker_refuse(const struct worker_message *m, enum wire_reason reason, uint64_t detail)
{
	if (m->verb == WORKER_CONNECTION)
		conn_refuse(m->connection.fabric_request, reason, detail);
	else
		streams_refuse(m->connection.service, m->connection.fd, m->connection.fabric_request, reason);
}

static void worker_take_connection(struct worker *w, struct worker_message *m)
{
	int rc = -ESHUTDOWN;

	/* It was admitted by the table of its time, which a reload may have replaced since. */
	worker_revise(w);
	if (w->draining)
		worker_refuse(m, WIRE_REASON_DRAINING, 0);
	else if (w->revised && m->verb == WORKER_CONNECTION && !worker_readmit(w, m))
		worker_refuse(m, WIRE_REASON_KEY, 0);
	else if (!worker_has_place(w, m))
		worker_refuse(m, WIRE_REASON_CONNECTIONS, m->connection.places);
	else if (m->verb == WORKER_STREAM)
		rc = worker_accept_stream(w, m);
	else
		rc = service_accept(m->connection.service, &w->services, w->group[m->connection.group],
				    m->connection.fabric_request, &m->connection.request, m->connection.source,
				    &m->connection.admission);
	auth_admission_end(&m->connection.admission);
	if (rc != 0)
		quota_give(m->connection.source);
	/* In this order: the main thread may count it twice for a moment, but never not at all. */
	worker_publish(w);
	atomic_fetch_add_explicit(&w->taken, 1, memory_order_release);
	if (w->draining)
		loop_wake(w->daemon->loop);
}

static void add_info(void *arg, struct conn *conn)
{
	struct worker_report *report = arg;
	struct conn_info *info = &report->list[report->count];

	if (report->count == report->size)
		return;
	service_get_info(conn, info);
	if (report->only && info->id != report->only)
		return;
	report->count++;
	if (report->end)
		conn_close(conn, 0, "disconnected by the operator");
}

static void add_stream_info(void *arg, struct stream *stream)
{
	struct worker_report *report = arg;
	struct conn_info *info = &report->list[report->count];
	struct stream_info of;

	if (report->count == report->size)
		return;
	stream_get_info(stream, &of);
	if (report->only && of.id != report->only)
		return;
	*info = (struct conn_info){.id = of.id,
				   .transport = of.transport,
				   .service = of.service,
				   .state = "established",
				   .records_in = of.requests,
				   .records_out = of.answered,
				   .bytes_in = of.bytes_in,
				   .bytes_out = of.bytes_out,
				   .in_flight = of.requests - of.answered,
				   .parked_bytes = of.unused_bytes,
				   .opened = of.opened};
	snprintf(info->peer, sizeof(info->peer), "%s", of.peer);
	snprintf(info->key, sizeof(info->key), "%s", of.key);
	report->count++;
	if (report->end)
		stream_close(stream, -ECONNRESET, "disconnected by the operator");
}

static void report_connection(void *arg, struct conn *conn)
{
	struct worker_report *report = arg;

	report->kind[conn_transport(conn) - fabric_transports][conn_request(conn)->service]++;
	if (report->list)
		add_info(report, conn);
}

/* The list has room for the connections that there are now. */
static void worker_begin_report(struct worker *w, struct worker_message *m)
{
	struct worker_report *report = &m->report.report;

	w->report = m;
	w->reported = 0;
	if (m->report.list == STATUS_HOT) {
		service_hot_end(&w->services);
		report->hot = service_hot_copy(&w->services);
	}
	if (m->report.list == STATUS_NO_LIST || m->report.list == STATUS_HOT)
		return;
	report->size = worker_count(w);
	report->list = calloc(report->size + 1, sizeof(*report->list));
}

static void leave_connection(void *arg, struct conn *conn)
{
	(void)arg;
	service_leave(conn);
}

/* Do what the main thread asks of all workers. */
static void worker_apply_words(struct worker *w, unsigned words)
{
	atomic_fetch_and(&w->words, ~words);
	if (words & WORKER_SETTINGS) {
		spin_limit(&w->spin, atomic_load(&w->polling));
		service_thread_slow(&w->services, w->daemon->slow);
	}
	if (words & WORKER_HOT && service_hot_begin(&w->services, time_now() + HOT_LIMIT) != 0)
		log_warn("worker", "no memory to look for hot keys");
	if (words & WORKER_ACCESS)
		worker_revise(w);
	for (unsigned i = 0; words & WORKER_LEAVE && i < w->groups; i++)
		conn_group_each(w->group[i], leave_connection, NULL);
	if (words & WORKER_DRAIN) {
		w->draining = true;
		w->drain_look = 0;
		loop_wake(w->daemon->loop); /* there may be nothing to wait for */
	}
}

static void (*const verbs[])(struct worker *w, struct worker_message *m) = {
	[WORKER_CONNECTION] = worker_take_connection,
	[WORKER_STREAM] = worker_take_connection,
	[WORKER_REPORT] = worker_begin_report,
};

/* Never full: the main thread has fewer questions out than the ring has room. */
static void worker_answer(struct worker *w, struct worker_message *m)
{
	while (!ring_push(&w->outbox, m))
		sched_yield();
	loop_wake(w->daemon->loop);
}

static bool worker_has_message(struct worker *w)
{
	return atomic_load_explicit(&w->inbox.head, memory_order_acquire) !=
	       atomic_load_explicit(&w->inbox.tail, memory_order_relaxed);
}

static bool worker_inbox_empty(struct worker *w)
{
	return !w->report && !worker_has_message(w) && !atomic_load_explicit(&w->words, memory_order_relaxed);
}

/* Report some of the connections, so that the others do not wait for an operator's question. */
static void worker_step_report(struct worker *w)
{
	struct worker_message *m = w->report;
	struct worker_report *report = &m->report.report;
	struct conn_group_stats stats;

	if (w->reported < w->groups) {
		if (!conn_group_step_stats(w->group[w->reported], REPORT_STEP, report_connection, report, &stats))
			return;
		status_add_conn(report, &stats);
		w->reported++;
		return;
	}
	if (report->list)
		stream_group_each(w->streams, add_stream_info, report);
	stream_group_get_stats(w->streams, &report->stream);
	service_thread_get_counts(&w->services, &report->service);
	report->worker = w->index;
	report->busy = w->busy;
	report->turns = w->turns;
	w->report = NULL;
	worker_answer(w, m);
}

/* What follows a question for a report waits until that is complete. */
static int worker_read_inbox(struct worker *w)
{
	unsigned words = atomic_load(&w->words); /* first: what was sent before them comes before them */
	struct worker_message *m;
	int n = 0;

	must(worker_runs_here(w));
	if (w->report) {
		worker_step_report(w);
		return 1;
	}
	for (; n < INBOX_TURN && !w->report && (m = ring_pop(&w->inbox)); n++) {
		verbs[m->verb](w, m);
		if (m == w->report)
			continue;
		if (m->done)
			worker_answer(w, m);
		else
			free(m);
	}
	if (words && !w->report && !worker_has_message(w)) {
		worker_apply_words(w, words);
		n++;
	}
	return n;
}

static void drain_connection(void *arg, struct conn *conn)
{
	(void)arg;
	service_drain(conn);
}

static void drain_stream(void *arg, struct stream *stream)
{
	(void)arg;
	stream_drain(stream);
}

static void worker_look_drained(struct worker *w, uint64_t now)
{
	must(worker_runs_here(w));
	if (now < w->drain_look)
		return;
	w->drain_look = now + DRAIN_LOOK;
	for (unsigned i = 0; i < w->groups; i++)
		conn_group_each(w->group[i], drain_connection, NULL);
	stream_group_each(w->streams, drain_stream, NULL);
}

/* Sleep until something comes, or the next deadline. Queues are armed first and polled once more, so that nothing comes
 * unseen. True: something had come, or is coming. */
static bool worker_sleep(struct worker *w)
{
	uint64_t now = time_now(), when;
	bool armed = true, quiet;

	must(worker_runs_here(w));
	quiet = service_thread_arm(&w->services);
	for (unsigned i = 0; i < w->groups; i++)
		armed &= fabric_arm(conn_group_queue(w->group[i])) == 0;
	quiet &= stream_group_quiet(w->streams);
	quiet &= worker_turn(w, now) == 0 && worker_inbox_empty(w);
	worker_publish(w);
	when = MIN(service_thread_deadline(&w->services), stream_group_deadline(w->streams));
	if (w->draining && worker_count(w))
		when = MIN(when, w->drain_look);
	for (unsigned i = 0; i < w->groups; i++)
		when = MIN(when, conn_group_deadline(w->group[i]));
	if (!armed)
		when = now + ARM_FAILED_WAIT;
	if (quiet && when > now)
		loop_once(w->loop, when == TIME_NEVER ? TIME_NEVER : when - now);
	service_thread_disarm(&w->services);
	return !quiet;
}

static void *worker_run(void *arg)
{
	struct worker *w = arg;

	service_thread_own(&w->services);
	spin_begin(&w->spin, time_now());
	while (!atomic_load_explicit(&w->quit, memory_order_relaxed)) {
		uint64_t now = time_now();
		int work;
		bool idle;

		atomic_store_explicit(&w->turned, now, memory_order_relaxed);
		if (unlikely(w->draining))
			worker_look_drained(w, now);
		work = worker_turn(w, now);
		idle = spin_turn(&w->spin, now, (uint64_t)work);
		if (w->services.busy && w->spin.window && now - w->spin.since < BUSY_POLL)
			idle = false;
		if (!work && (time_to_yield(w->spin.idle) || w->services.busy))
			sched_yield(); /* a process that works for us may need this processor */
		if (unlikely(!worker_inbox_empty(w)) && worker_read_inbox(w) > 0)
			spin_begin(&w->spin, now);
		else if (idle && worker_sleep(w))
			spin_turn(&w->spin, now, 1);
	}
	while (w->report)
		worker_step_report(w);
	service_thread_end(&w->services);
	service_thread_disown(&w->services);
	return NULL;
}

static void wake_readable(void *arg)
{
	(void)arg; /* the next turn progresses every group */
}

static void part_readable(void *arg)
{
	struct service_part *part = arg;

	part->service->readable(part);
}

static int worker_watch(struct worker *w, int fd, loop_fn fn, void *arg)
{
	w->watch[w->watches] = loop_add_fd(w->loop, fd, LOOP_READ, fn, arg);
	if (!w->watch[w->watches])
		return -ENOMEM;
	w->watches++;
	return 0;
}

static int worker_make_services(struct worker *w)
{
	int rc = service_thread_create(&w->services, &w->daemon->shared);

	if (rc == 0)
		service_thread_slow(&w->services, w->daemon->slow);
	for (unsigned id = 0; id < WIRE_SERVICES && rc == 0; id++) {
		struct service_part *part = w->services.part[id];

		if (part && part->service->fd && part->service->fd(part) >= 0)
			rc = worker_watch(w, part->service->fd(part), part_readable, part);
	}
	return rc;
}

static void worker_free(struct worker *w)
{
	while (w->watches > 0)
		loop_remove(w->watch[--w->watches]);
	while (w->groups > 0)
		conn_group_destroy(w->group[--w->groups]);
	stream_group_destroy(w->streams);
	service_thread_free(&w->services);
	auth_table_put(atomic_load(&w->access));
	auth_table_put(w->revised);
	loop_destroy(w->loop);
	free(w);
}

/* Any thread. */
static void munge_has_answered(void *arg)
{
	struct worker *w = arg;

	loop_wake(w->loop);
}

/* As a rule a connection goes to the least worker, so queues begin with room for a share and one. But a service may
 * choose the worker by what is asked for, so that a client can fill one of them: that one takes as many as there may be
 * at all. */
static struct conn_group_attr group_attr(const struct daemon *d)
{
	const struct config *c = d->config;

	return (struct conn_group_attr){
		.message_size = (uint32_t)c->message_size,
		.message_max = (uint32_t)c->message_max,
		.credits = (uint16_t)c->credits,
		.transfers = TRANSFERS,
		.receives = (uint32_t)c->shared_receives,
		.max_connections = (uint32_t)d->connections_fit,
		.first_connections = (uint32_t)(d->connections_fit / d->workers + 1),
		.handshake_timeout = c->handshake_timeout,
		.keepalive = c->keepalive,
		.memory = config_shares_memory(c),
		.encrypt = (enum conn_encrypt)c->auth_encrypt,
		.stall_timeout = c->stall_timeout,
		.own = (struct memory_budget *)(uintptr_t)&d->own,
		.parked = MAX(c->parked_memory / d->workers, 2 * c->message_max),
		.first_request = c->first_request_timeout,
		.turn = c->turn,
		.clock = time_now,
		.munge = d->munge,
		.wake = munge_has_answered,
	};
}

static int worker_make_groups(struct worker *w)
{
	struct daemon *d = w->daemon;
	struct conn_group_attr attr = group_attr(d);
	int rc, n, fds[FABRIC_MAX_FDS];
	const char *reason;
	uint32_t fit;

	attr.wake_arg = w;
	for (unsigned i = 0; i < d->fabrics; i++) {
		struct daemon_fabric *f = &d->fabric[i];

		/* Devices have more limits than can be asked for. A device that refuses does not end the others. */
		log_hush_begin();
		rc = conn_group_create(f->domain, &attr, &w->group[i]);
		reason = log_hush_end();
		if (rc != 0) {
			snprintf(f->spoilt, sizeof(f->spoilt), "%s", *reason ? reason : strerror(-rc));
			return rc;
		}
		w->groups++;
		fit = conn_group_attr(w->group[i])->max_connections;
		if (w->index == 0 && atomic_load(&f->devices) && (uint64_t)fit * d->workers < d->connections_fit)
			log_info("worker",
				 "the devices of %s have room for %u connections of each worker: "
				 "more with fewer credits, fewer shared_receives or more workers",
				 fabric_name(f->fabric), fit);
		n = fabric_fds(conn_group_queue(w->group[i]), fds);
		for (int k = 0; k < n && rc == 0; k++)
			rc = worker_watch(w, fds[k], wake_readable, w);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int worker_make_streams(struct worker *w)
{
	const struct config *c = w->daemon->config;
	struct stream_attr attr = {.rdma = w->daemon->rdma,
				   .stall = c->stall_timeout,
				   .first = c->first_request_timeout,
				   .keepalive = c->keepalive,
				   .budget = c->parked_memory / w->daemon->workers,
				   .turn = c->turn,
				   .clock = time_now};
	int rc = stream_group_create(&attr, &w->streams);

	return rc == 0 ? worker_watch(w, stream_group_fd(w->streams), wake_readable, w) : rc;
}

/* Beside one worker there is the client that asks it. */
uint64_t workers_polling(const struct daemon *d)
{
	return spin_allowed(d->config->poll, MAX(workers_count(d->config), 2u));
}

static int worker_start(struct daemon *d, unsigned index)
{
	struct worker *w = aligned_alloc(CACHE_LINE, sizeof(*w));
	char name[24];
	int rc;

	if (!w)
		return -ENOMEM;
	memset(w, 0, sizeof(*w));
	w->daemon = d;
	w->index = index;
	spin_init(&w->spin, workers_polling(d));
	w->oldest = TIME_NEVER;
	rc = loop_create(&w->loop);
	if (rc == 0)
		rc = worker_make_streams(w);
	if (rc == 0)
		rc = worker_make_services(w);
	if (rc == 0)
		rc = worker_make_groups(w);
	if (rc == 0) {
		snprintf(name, sizeof(name), "worker %u", index);
		rc = thread_start(&w->thread, name, worker_run, w);
		if (rc != 0)
			log_error("worker", "cannot start a thread: %s", strerror(-rc));
	}
	if (rc == 0)
		d->worker[index] = w;
	else
		worker_free(w);
	return rc;
}

unsigned workers_count(const struct config *c)
{
	return c->workers ? (unsigned)c->workers : processors_half();
}

/* Every device has all of it: what services open with, the buffers, of which receives are for one device each, and the
 * windows of Valkey's clients. */
static uint64_t memory_registered(const struct daemon *d)
{
	uint64_t devices = fabrics_devices(d), bytes;

	bytes = (devices + 1) * d->workers * d->config->shared_receives * d->config->message_size;
	for (unsigned id = 0; id < WIRE_SERVICES; id++) {
		const struct service *service = service_find(id);

		if (service && service->registered && daemon_serves(d, id))
			bytes += service->registered(d->config->service[id]);
	}
	if (d->rdma.domain)
		bytes += d->windows.limit;
	return devices * bytes;
}

int workers_start(struct daemon *d)
{
	int rc = 0;

	must(daemon_is_main(d));
	d->connections_fit = d->config->max_connections;
	d->own.limit = d->config->own_buffers;
	d->workers = workers_count(d->config);
	d->worker = calloc(d->workers, sizeof(*d->worker));
	if (!d->worker)
		return EX_OSERR;
	/* How many there may be in all, each listener and worker says; requests on the way come on top. */
	rc = quota_create((uint32_t)(2 * d->connections_fit + 16), sizeof(struct fabric_source), &d->sources);
	if (rc == 0)
		rc = conn_munge_create(&d->munge);
	streams_find_rdma(d);
	atomic_store(&d->facts.registered, memory_registered(d));
	process_check_memlock(atomic_load(&d->facts.registered));
	for (unsigned i = 0; rc == 0 && i < d->workers; i++)
		rc = worker_start(d, i);
	if (rc == 0)
		return 0;
	workers_stop(d);
	if (!fabrics_spoilt(d))
		return daemon_exit_status(rc);
	rc = fabrics_give_up(d);
	return rc == 0 ? workers_start(d) : rc;
}

/* Refuse what came after the thread's end. */
static void worker_empty_inbox(struct worker *w)
{
	struct worker_message *m;

	while ((m = ring_pop(&w->inbox))) {
		if (m->verb == WORKER_CONNECTION || m->verb == WORKER_STREAM) {
			worker_refuse(m, WIRE_REASON_DRAINING, 0);
			auth_admission_end(&m->connection.admission);
			quota_give(m->connection.source);
		}
		if (m->done)
			m->done(m);
		else
			free(m);
	}
}

void workers_stop(struct daemon *d)
{
	must(daemon_is_main(d));
	for (unsigned i = 0; i < d->workers; i++) {
		struct worker *w = d->worker[i];

		if (!w)
			continue;
		atomic_store(&w->quit, true);
		loop_wake(w->loop);
		pthread_join(w->thread, NULL);
		worker_empty_inbox(w);
	}
	workers_collect(d);
	if (d->munge)
		conn_munge_stop(d->munge);
	for (unsigned i = 0; i < d->workers; i++)
		if (d->worker[i])
			worker_free(d->worker[i]);
	conn_munge_destroy(d->munge);
	d->munge = NULL;
	quota_destroy(d->sources);
	d->sources = NULL;
	free(d->worker);
	d->worker = NULL;
	d->workers = 0;
}

bool worker_send(struct worker *w, struct worker_message *m)
{
	bool connection = m->verb == WORKER_CONNECTION || m->verb == WORKER_STREAM;

	must(daemon_is_main(w->daemon));
	if (!ring_push(&w->inbox, m))
		return false;
	if (connection)
		w->handed++; /* m may be gone by now */
	loop_wake(w->loop);
	return true;
}

void workers_tell(struct daemon *d, enum worker_word word)
{
	must(daemon_is_main(d));
	for (unsigned i = 0; i < d->workers; i++) {
		struct worker *w = d->worker[i];

		if (word == WORKER_SETTINGS)
			atomic_store(&w->polling, workers_polling(d));
		if (word == WORKER_ACCESS)
			auth_table_put(atomic_exchange(&w->access, auth_table_get(d->access)));
		atomic_fetch_or(&w->words, word);
		loop_wake(w->loop);
	}
}

/* Say once that a worker makes no turn any more, and when it does again. */
static void worker_judge(struct worker *w, bool turns, uint64_t silent)
{
	char text[32];

	if (turns != w->stuck)
		return;
	w->stuck = !turns;
	units_format_time(silent / TIME_MS * TIME_MS, text);
	if (turns)
		log_warn("worker", "worker %u turns again", w->index);
	else
		log_error("worker",
			  "worker %u has not turned for %s, and its clients wait; where it is says gdb -p %d -batch "
			  "-ex 'thread apply all bt'",
			  w->index, text, (int)getpid());
}

bool workers_turned(struct daemon *d, uint64_t since, uint64_t now)
{
	bool all = true;

	must(daemon_is_main(d));
	for (unsigned i = 0; i < d->workers; i++) {
		struct worker *w = d->worker[i];
		uint64_t turned = atomic_load_explicit(&w->turned, memory_order_relaxed);

		worker_judge(w, turned >= since, now - MIN(turned, now));
		all &= !w->stuck;
		loop_wake(w->loop); /* a worker that sleeps turns until the next look, too */
	}
	return all;
}

/* Connections of it, and requests on the way to it. */
static uint64_t worker_load(const struct worker *w)
{
	uint64_t taken = atomic_load_explicit(&w->taken, memory_order_acquire);

	return w->handed - taken + atomic_load_explicit(&w->connections, memory_order_acquire);
}

uint64_t workers_load(const struct daemon *d)
{
	uint64_t n = 0;

	must(daemon_is_main(d));
	for (unsigned i = 0; i < d->workers; i++)
		n += worker_load(d->worker[i]);
	return n;
}

struct worker *workers_least(const struct daemon *d)
{
	struct worker *least = d->worker[0];

	must(daemon_is_main(d));
	for (unsigned i = 1; i < d->workers; i++)
		if (worker_load(d->worker[i]) < worker_load(least))
			least = d->worker[i];
	return least;
}

struct worker *workers_of_number(const struct daemon *d, unsigned number)
{
	must(daemon_is_main(d));
	return d->worker[number % d->workers];
}

struct worker *workers_oldest(const struct daemon *d, uint64_t now)
{
	uint64_t first = d->config->first_request_timeout, oldest = TIME_NEVER;
	struct worker *found = NULL;

	must(daemon_is_main(d));
	for (unsigned i = 0; first && i < d->workers; i++) {
		uint64_t opened = atomic_load_explicit(&d->worker[i]->oldest, memory_order_relaxed);

		if (opened < oldest && opened + first <= now) {
			oldest = opened;
			found = d->worker[i];
		}
	}
	return found;
}

void workers_collect(struct daemon *d)
{
	struct worker_message *m;

	must(daemon_is_main(d));
	for (unsigned i = 0; i < d->workers; i++)
		while (d->worker[i] && (m = ring_pop(&d->worker[i]->outbox)))
			m->done(m);
}
