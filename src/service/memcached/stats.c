/* stats.c: stats, by the names that memcached has for them. What rdmad has no like of is not told, or 0. */
#include "service/memcached/memcached.h"

#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct totals {
	uint64_t count[MEMCACHED_COUNTS + 1]; /* the last is of connections */
	unsigned threads;
	struct store_stats store;
};

static void totals_get(struct memcached_shared *shared, struct totals *t, bool since_reset)
{
	*t = (struct totals){.threads = 0};
	pthread_mutex_lock(&shared->lock);
	list_for_each (pos, &shared->threads) {
		struct memcached_thread *thread = container_of(pos, struct memcached_thread, node);

		t->threads++;
		for (unsigned i = 0; i < MEMCACHED_COUNTS; i++)
			t->count[i] += __atomic_load_n(&thread->part.count[i], __ATOMIC_RELAXED);
	}
	t->count[MEMCACHED_COUNTS] = atomic_load_explicit(&shared->accepted, memory_order_relaxed);
	for (unsigned i = 0; i <= MEMCACHED_COUNTS && since_reset; i++)
		t->count[i] -= shared->base[i];
	pthread_mutex_unlock(&shared->lock);
	store_get_stats(shared->store, &t->store);
}

static void stat_text(struct memcached_client *c, const char *name, const char *value)
{
	memc_put_text(c->out, "STAT ");
	memc_put_text(c->out, name);
	memc_put(c->out, " ", 1);
	memc_line(c->out, value);
}

static void stat_number(struct memcached_client *c, const char *name, uint64_t value)
{
	char digits[24];

	snprintf(digits, sizeof(digits), "%llu", (unsigned long long)value);
	stat_text(c, name, digits);
}

static void stat_seconds(struct memcached_client *c, const char *name, struct timeval tv)
{
	char value[40];

	snprintf(value, sizeof(value), "%lld.%06ld", (long long)tv.tv_sec, (long)tv.tv_usec);
	stat_text(c, name, value);
}

static void stats_general(struct memcached_client *c)
{
	static const char *const names[] = {
#define STATS_NAME(ID, name) name,
		MEMCACHED_COUNTERS(STATS_NAME)
#undef STATS_NAME
	};
	struct memcached_shared *shared = c->thread->shared;
	struct rusage usage;
	struct totals t;

	totals_get(shared, &t, true);
	getrusage(RUSAGE_SELF, &usage);
	stat_number(c, "pid", (uint64_t)getpid());
	stat_number(c, "uptime", (memcached_now(c) - MIN(shared->started, memcached_now(c))) / TIME_S);
	stat_number(c, "time", (uint64_t)time(NULL));
	stat_text(c, "version", MEMCACHED_VERSION);
	stat_number(c, "pointer_size", 8 * sizeof(void *));
	stat_seconds(c, "rusage_user", usage.ru_utime);
	stat_seconds(c, "rusage_system", usage.ru_stime);
	stat_number(c, "max_connections", shared->connections);
	stat_number(c, "curr_connections", atomic_load_explicit(&shared->clients, memory_order_relaxed));
	stat_number(c, "total_connections", t.count[MEMCACHED_COUNTS]);
	for (unsigned i = 0; i < MEMCACHED_COUNTS; i++)
		stat_number(c, names[i], t.count[i]);
	stat_number(c, "limit_maxbytes", t.store.bytes_total);
	stat_number(c, "accepting_conns", 1);
	stat_number(c, "threads", t.threads);
	stat_number(c, "bytes", t.store.bytes_used);
	stat_number(c, "curr_items", t.store.items);
	stat_number(c, "total_items", t.store.sets);
	stat_number(c, "evictions", t.store.evictions);
	stat_number(c, "reclaimed", t.store.expired);
}

static void stats_settings(struct memcached_client *c)
{
	const struct memcached_shared *shared = c->thread->shared;
	const struct text_settings *s = shared->settings;
	struct totals t;

	totals_get(c->thread->shared, &t, false);
	stat_number(c, "maxbytes", t.store.bytes_total);
	stat_number(c, "maxconns", shared->connections);
	stat_number(c, "tcpport", text_tcp_port(s));
	stat_number(c, "udpport", 0);
	stat_text(c, "inter", s->listen.count ? s->listen.item[0] : "NULL");
	stat_number(c, "verbosity", 0);
	stat_text(c, "evictions", shared->kv->ahead != UINT64_MAX ? "on" : "off");
	stat_text(c, "domain_socket", s->unix_socket ? s->unix_socket : "NULL");
	stat_number(c, "num_threads", t.threads);
	stat_text(c, "detail_enabled", "no");
	stat_text(c, "cas_enabled", "yes");
	stat_text(c, "auth_enabled_sasl", "no");
	stat_text(c, "auth_enabled_ascii", stream_admission(c->stream)->table ? "yes" : "no");
	stat_number(c, "item_size_max", MIN(shared->kv->value_max, (uint64_t)MEMC_VALUE_MAX));
	stat_text(c, "flush_enabled", "yes");
	stat_text(c, "dump_enabled", "no");
}

/* The store has one class of slabs, so to say. */
static void stats_items(struct memcached_client *c)
{
	struct totals t;

	totals_get(c->thread->shared, &t, false);
	if (!t.store.items)
		return;
	stat_number(c, "items:1:number", t.store.items);
	stat_number(c, "items:1:mem_requested", t.store.bytes_asked);
	stat_number(c, "items:1:evicted", t.store.evictions);
	stat_number(c, "items:1:outofmemory", t.store.out_of_memory);
	stat_number(c, "items:1:reclaimed", t.store.expired);
}

static void stats_slabs(struct memcached_client *c)
{
	struct totals t;

	totals_get(c->thread->shared, &t, false);
	if (t.store.items) {
		stat_number(c, "1:chunk_size", t.store.bytes_used / t.store.items);
		stat_number(c, "1:used_chunks", t.store.items);
		stat_number(c, "1:mem_requested", t.store.bytes_asked);
	}
	stat_number(c, "active_slabs", t.store.items ? 1 : 0);
	stat_number(c, "total_malloced", t.store.bytes_held);
}

static void stats_reset(struct memcached_shared *shared)
{
	struct totals t;

	totals_get(shared, &t, false);
	pthread_mutex_lock(&shared->lock);
	memcpy(shared->base, t.count, sizeof(shared->base));
	pthread_mutex_unlock(&shared->lock);
}

/* Lengths are not counted. */
static void stats_sizes(struct memcached_client *c)
{
	stat_text(c, "sizes_status", "disabled");
}

static void stats_conns(struct memcached_client *c)
{
	struct stream_info info;

	stream_get_info(c->stream, &info);
	memc_put_text(c->out, "STAT ");
	memc_put_number(c->out, info.id);
	memc_put_text(c->out, ":addr ");
	memc_put_text(c->out, info.transport);
	memc_put_text(c->out, ":");
	memc_line(c->out, info.peer);
}

static int stats_detail(struct memcached_client *c, struct memc_command *command)
{
	struct memc_word word;

	if (!memc_next_key(command, &word) ||
	    !(memc_is(&word, "on") || memc_is(&word, "off") || memc_is(&word, "dump")))
		memc_line(c->out, "CLIENT_ERROR usage: stats detail on|off|dump");
	else if (memc_is(&word, "dump"))
		memc_line(c->out, "END"); /* none are kept */
	else
		memc_line(c->out, "CLIENT_ERROR stats detail not allowed");
	return 0;
}

int memcached_stats(struct memcached_client *c, struct memc_command *command)
{
	static const struct {
		const char *name;
		void (*tell)(struct memcached_client *c);
	} rows[] = {{"settings", stats_settings},
		    {"items", stats_items},
		    {"slabs", stats_slabs},
		    {"sizes", stats_sizes},
		    {"conns", stats_conns}};
	struct memc_word word;

	if (!memc_next_key(command, &word)) {
		stats_general(c);
		memc_line(c->out, "END");
		return 0;
	}
	if (memc_is(&word, "reset")) {
		stats_reset(c->thread->shared);
		memc_line(c->out, "RESET");
		return 0;
	}
	if (memc_is(&word, "detail"))
		return stats_detail(c, command);
	if (memc_is(&word, "cachedump")) {
		memc_line(c->out, "CLIENT_ERROR stats cachedump not allowed");
		return 0;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		if (!memc_is(&word, rows[i].name))
			continue;
		rows[i].tell(c);
		memc_line(c->out, "END");
		return 0;
	}
	memc_line(c->out, "ERROR");
	return 0;
}
