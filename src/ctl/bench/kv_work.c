/*
 * kv_work.c: keep `depth` requests outstanding on each connection, or send them when their time has come, and count the
 * answers.
 *
 * The loop must cost less than the requests that it measures: keys and values are made beforehand, nothing is
 * allocated, and the clock is read once a turn. Small requests of a connection are answered in order. So the number
 * of an answer gives its key, its expected value and, by the stamps of the turns, its round trip. Large values may
 * overtake each other, and so may those of several servers: there each get has a ticket with the expected value.
 *
 * With --rate a request has an intended time, by its number alone, and its latency begins there, sent or not: a server
 * that stops for a second has slowed down a second's requests, not one.
 */
#include "ctl/bench/kv.h"

struct bench_kv bench_kv;

/*
 * Answers. These run for each operation.
 */
static void lane_failed(struct lane *lane, int status)
{
	struct bench_kv_worker *w = lane->worker;

	/* A delete that finds nothing has nothing to do, and a get may find that the store dropped the key, or its time
	 * is over. */
	if (status == -ENOENT) {
		w->thread.result.misses += lane->phase != PHASE_DELETE;
		return;
	}
	bench_result_fail(&w->thread.result, status, ctl_kv_status_text(status));
	w->stopping = true;
}

static void lane_set_done(void *arg, int status, const void *value, size_t len)
{
	struct lane *lane = arg;

	lane->done++;
	if (unlikely(status != 0))
		lane_failed(lane, status);
}

static void lane_put_done(void *arg, const struct kv_result *result)
{
	lane_set_done(arg, result->status, NULL, 0);
}

static inline bool value_expected(const void *value, size_t len, uint32_t window)
{
	return len == bench.size && memcmp(value, bench_kv.text + window % BENCH_KV_WINDOWS, len) == 0;
}

static void lane_get_done(void *arg, int status, const void *value, size_t len)
{
	struct lane *lane = arg;
	uint32_t window = lane->phase == PHASE_MIXED ? lane->done_pair++ : lane->done_key;

	lane->done++;
	if (++lane->done_key == lane->keys)
		lane->done_key = 0;
	if (unlikely(status != 0))
		lane_failed(lane, status);
	else if (!bench.no_verify && unlikely(!value_expected(value, len, window)))
		lane->worker->thread.result.mismatches++;
}

static void lane_unordered_done(void *arg, int status, const void *value, size_t len)
{
	struct ticket *ticket = arg;
	struct lane *lane = ticket->lane;

	lane->done++;
	if (unlikely(status != 0))
		lane_failed(lane, status);
	else if (!bench.no_verify && unlikely(!value_expected(value, len, ticket->window)))
		lane->worker->thread.result.mismatches++;
	ticket->next = lane->ticket;
	lane->ticket = ticket;
}

/*
 * Requests.
 */
static int lane_get(struct lane *lane, const char *key, uint32_t window)
{
	struct ticket *ticket = lane->ticket;
	int rc;

	if (likely(!bench_kv.unordered))
		return kv_submit_get(lane->kv, key, lane->key_len, lane_get_done, lane);
	ticket->window = window;
	lane->ticket = ticket->next; /* before: it may be answered within */
	rc = kv_submit_get(lane->kv, key, lane->key_len, lane_unordered_done, ticket);
	if (rc != 0)
		lane->ticket = ticket;
	return rc;
}

/* Send the next request: for the next key; in mixed, after the get of a pair. */
static int lane_submit(struct lane *lane)
{
	const char *key = lane->key + (size_t)lane->submit_key * lane->key_len;
	bool mixed = lane->phase == PHASE_MIXED;
	uint32_t window = mixed ? lane->submit_pair : lane->submit_key;
	const char *value = bench_kv.text + window % BENCH_KV_WINDOWS;
	int rc;

	if (lane->phase == PHASE_DELETE)
		rc = kv_submit_delete(lane->kv, key, lane->key_len, lane_set_done, lane);
	else if (lane->phase == PHASE_GET || (mixed && lane->submitted % 2))
		rc = lane_get(lane, key, window);
	else if (likely(!bench_kv.ttl_us))
		rc = kv_submit_set(lane->kv, key, lane->key_len, value, bench.size, lane_set_done, lane);
	else
		rc = kv_submit_put(lane->kv, key, lane->key_len, value, bench.size,
				   &(struct kv_put_options){.ttl_us = bench_kv.ttl_us}, lane_put_done, lane);
	if (unlikely(rc != 0))
		return rc;
	if (lane->submitted++ % 2 == 0 && mixed)
		return 0;
	lane->submit_pair++;
	if (++lane->submit_key == lane->keys)
		lane->submit_key = 0;
	return 0;
}

/* How many requests are to have been sent by now. */
static uint64_t lane_due(const struct lane *lane, uint64_t now)
{
	if (!bench_kv.apart)
		return lane->quota;
	return now < lane->first ? 0 : MIN((now - lane->first) / bench_kv.apart + 1, lane->quota);
}

static void lane_fill(struct lane *lane, uint64_t now)
{
	uint64_t before = lane->submitted, limit = MIN(lane->done + bench_kv.depth, lane_due(lane, now));
	int rc = 0;

	while (rc == 0 && lane->submitted < limit)
		rc = lane_submit(lane);
	if (unlikely(rc != 0 && rc != -EAGAIN)) {
		bench_result_fail(&lane->worker->thread.result, rc, rdmad_error());
		lane->worker->stopping = true;
	}
	if (lane->submitted != before && !bench.no_latency)
		lane->stamp[lane->stamp_head++ & lane->stamp_mask] = (struct stamp){now, lane->submitted};
}

static void add_latency(struct bench_kv_worker *w, uint64_t latency)
{
	histogram_add(&w->thread.result.latency, latency);
	if (bench_kv.interval)
		histogram_add(&w->slice.latency, latency);
}

/* Round trips of the requests answered in this turn: all of one stamp are alike. With --rate they begin at their
 * intended times. */
static void lane_latency(struct lane *lane, uint64_t now)
{
	for (; bench_kv.apart && lane->stamped != lane->done; lane->stamped++)
		add_latency(lane->worker, now - (lane->first + lane->stamped * bench_kv.apart));
	while (lane->stamped != lane->done) {
		struct stamp *s = &lane->stamp[lane->stamp_tail & lane->stamp_mask];
		uint64_t upto = MIN(s->upto, lane->done);

		for (; lane->stamped != upto; lane->stamped++)
			add_latency(lane->worker, now - s->time);
		lane->stamp_tail += upto == s->upto;
	}
}

static bool worker_idle(const struct bench_kv_worker *w)
{
	for (unsigned i = 0; i < w->lanes; i++)
		if (w->lane[i].done != w->lane[i].submitted)
			return false;
	return true;
}

static bool worker_satisfied(const struct bench_kv_worker *w)
{
	for (unsigned i = 0; i < w->lanes; i++)
		if (w->lane[i].done < w->lane[i].quota)
			return false;
	return true;
}

/* How long the turn may wait: no request is to be sent earlier. */
static uint64_t worker_wait_us(const struct bench_kv_worker *w, uint64_t now)
{
	uint64_t next = time_after(now, CTL_SLICE);

	for (unsigned i = 0; bench_kv.apart && !w->stopping && i < w->lanes; i++) {
		const struct lane *lane = &w->lane[i];

		if (lane->submitted < lane->quota && lane->submitted < lane->done + bench_kv.depth)
			next = MIN(next, lane->first + lane->submitted * bench_kv.apart);
	}
	return next > now ? (next - now) / TIME_US : 0;
}

/* Send, receive, count. How many requests were answered, or a negative errno. */
static int worker_turn(struct bench_kv_worker *w, uint64_t *now)
{
	int n;

	if (likely(!w->stopping))
		for (unsigned i = 0; i < w->lanes; i++)
			lane_fill(&w->lane[i], *now);
	if (unlikely(w->stopping && worker_idle(w)))
		return 0;
	n = kv_progress(w->lane[0].kv, worker_wait_us(w, *now));
	*now = time_now();
	if (bench.no_latency)
		return n;
	if (bench_kv.interval)
		pthread_mutex_lock(&w->lock);
	for (unsigned i = 0; i < w->lanes; i++)
		lane_latency(&w->lane[i], *now);
	if (bench_kv.interval)
		pthread_mutex_unlock(&w->lock);
	return n;
}

/* Print what all workers did since the last time. Called by the first, whose thread is the caller's. */
static void print_slice(uint64_t now)
{
	static struct bench_result all; /* too large for a stack */
	struct bench_kv_worker *first = &bench_kv.worker[0];

	bench_result_init(&all, first->thread.result.op);
	all.depth = bench_kv.depth;
	all.begin = first->slice.begin;
	for (uint64_t i = 0; i < bench.threads; i++) {
		struct bench_kv_worker *w = &bench_kv.worker[i];

		pthread_mutex_lock(&w->lock);
		histogram_merge(&all.latency, &w->slice.latency);
		histogram_init(&w->slice.latency);
		pthread_mutex_unlock(&w->lock);
	}
	all.operations = all.latency.count;
	all.end = first->slice.begin = now;
	all.at = now - first->thread.result.begin;
	bench_report_slice(&all, bench_kv.driven.transport);
}

static void worker_loop(struct bench_kv_worker *w)
{
	uint64_t now = w->thread.result.begin, alive = now, limit = ctl_answer_limit();
	uint64_t until = time_after(now, w->thread.duration);
	int n;

	do {
		bool interrupted = ctl_interrupted() && bench_kv.phase != PHASE_DELETE;

		if (now >= until || interrupted || worker_satisfied(w))
			w->stopping = true;
		n = worker_turn(w, &now);
		if (bench_kv.interval && w == bench_kv.worker && now - w->slice.begin >= bench_kv.interval)
			print_slice(now);
		if (n > 0 || worker_idle(w))
			alive = now;
		else if (n == 0 && interrupted && now - alive > CTL_SLICE)
			n = -EINTR;
		else if (n == 0 && now - alive > limit)
			n = -ETIMEDOUT;
	} while (n >= 0 && !(w->stopping && worker_idle(w)));
	w->thread.result.end = now;
	if (n < 0)
		bench_result_fail(&w->thread.result, n, n == -ETIMEDOUT ? "no answer in time" : rdmad_error());
}

/* Count the requests that were due and never sent, because too many others had no answer: they have waited until
 * now. */
static void count_unsent(struct bench_kv_worker *w)
{
	struct bench_result *result = &w->thread.result;
	uint64_t until = MIN(time_after(result->begin, w->thread.duration), result->end);

	for (unsigned i = 0; bench_kv.apart && i < w->lanes; i++) {
		struct lane *lane = &w->lane[i];

		for (uint64_t n = lane->submitted, due = lane_due(lane, until - 1); n < due; n++, result->unsent++)
			histogram_add(&result->latency, until - (lane->first + n * bench_kv.apart));
	}
}

void bench_kv_work(struct bench_thread *thread)
{
	struct bench_kv_worker *w = (struct bench_kv_worker *)thread; /* which begins with it */

	w->stopping = false;
	thread->result.begin = w->slice.begin = time_now();
	for (unsigned i = 0; i < w->lanes; i++) /* lanes take turns */
		w->lane[i].first = thread->result.begin + (thread->first + i) * bench_kv.apart / bench.clients;
	worker_loop(w);
	if (!ctl_interrupted())
		count_unsent(w);
	for (unsigned i = 0; i < w->lanes; i++)
		thread->result.operations += w->lane[i].done;
}
