/*
 * info.c: INFO, in the fields that programs read. What rdmad does not have is told as of a Redis that does not use it.
 */
#include "service/resp/server.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <unistd.h>

_Atomic uint64_t resp_refused;

#define GET(atomic) atomic_load_explicit(&(atomic), memory_order_relaxed)

void resp_print(struct resp_out *text, const char *format, ...)
{
	char line[512];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	resp_raw(text, line, MIN((size_t)MAX(n, 0), sizeof(line) - 1));
}

/*
 * Errors
 */

static bool error_find(struct resp_errors *e, const char *name)
{
	unsigned used = atomic_load_explicit(&e->used, memory_order_acquire);

	for (unsigned i = 0; i < used; i++) {
		if (strcmp(e->of[i].name, name) != 0)
			continue;
		atomic_fetch_add_explicit(&e->of[i].count, 1, memory_order_relaxed);
		return true;
	}
	return false;
}

/* Another thread may have been first. */
static void error_add(struct resp_errors *e, const char *name)
{
	unsigned used;

	pthread_mutex_lock(&e->lock);
	used = GET(e->used);
	if (!error_find(e, name)) {
		unsigned at = used < RESP_ERROR_CLASSES ? used : 0;

		atomic_fetch_add_explicit(&e->of[at].count, 1, memory_order_relaxed);
		if (at) {
			strcpy(e->of[at].name, name);
			atomic_store_explicit(&e->used, at + 1, memory_order_release);
		}
	}
	pthread_mutex_unlock(&e->lock);
}

void resp_count_error(struct resp_shared *shared, const char *at, size_t len)
{
	const char *end = memchr(at, ' ', MIN(len, RESP_ERROR_NAME - 1));
	char name[RESP_ERROR_NAME] = "ERR";

	if (end) {
		memcpy(name, at, (size_t)(end - at));
		name[end - at] = '\0';
	}
	for (char *c = name; *c; c++)
		if (strchr("#:\r\n", *c)) /* a script may say anything, and INFO is lines of fields */
			*c = '_';
	if (!error_find(&shared->errors, name))
		error_add(&shared->errors, name);
}

static uint64_t errors_of(const struct resp_shared *shared)
{
	unsigned used = atomic_load_explicit(&shared->errors.used, memory_order_acquire);
	uint64_t sum = 0;

	for (unsigned i = 0; i < used; i++)
		sum += GET(shared->errors.of[i].count);
	return sum;
}

void resp_errors_reset(struct resp_shared *shared)
{
	unsigned used = atomic_load_explicit(&shared->errors.used, memory_order_acquire);

	for (unsigned i = 0; i < used; i++)
		atomic_store_explicit(&shared->errors.of[i].count, 0, memory_order_relaxed);
}

/*
 * Numbers of all threads
 */

/* What is on all keys is a class of its own; a step of several commands may write. */
static enum service_class class_of(unsigned id)
{
	switch (id) {
	case RESP_CMD_KEYS:
	case RESP_CMD_SCAN:
	case RESP_CMD_FLUSHDB:
	case RESP_CMD_FLUSHALL:
		return SERVICE_SCAN;
	case RESP_CMD_EXEC:
	case RESP_CMD_EVAL:
	case RESP_CMD_EVALSHA:
		return SERVICE_WRITE;
	default:
		return id < RESP_IDS && resp_commands[id].flags & RESP_WRITE ? SERVICE_WRITE : SERVICE_READ;
	}
}

void resp_time(struct resp_thread *thread, unsigned id)
{
	struct resp_timed *timed = &thread->timed;
	uint64_t now = time_now();

	if (timed->id != RESP_IDS)
		atomic_store_explicit(&thread->ns[timed->id], GET(thread->ns[timed->id]) + now - timed->since,
				      memory_order_relaxed);
	*timed = (struct resp_timed){.since = now, .id = id, .class = class_of(id)};
}

static void add_thread(const struct resp_thread *thread, struct resp_totals *out)
{
	for (unsigned id = 0; id < RESP_IDS; id++)
		out->commands += GET(thread->calls[id]);
	out->reads += GET(thread->figures.reads);
	out->writes += GET(thread->figures.writes);
	out->bytes_in += GET(thread->figures.bytes_in);
	out->bytes_out += GET(thread->figures.bytes_out);
	out->buffer_bytes += GET(thread->figures.buffer_bytes) + GET(thread->figures.waiting_bytes);
}

/* Under the lock. */
static void add_all(const struct resp_shared *shared, struct resp_totals *out)
{
	const struct list *pos;

	for (pos = shared->threads.next; pos != &shared->threads; pos = pos->next)
		add_thread(container_of(pos, struct resp_thread, node), out);
}

/* Bytes that the store and connections use. */
static uint64_t memory_of(const struct resp_totals *totals)
{
	return totals->store.bytes_used + totals->buffer_bytes;
}

static void get_totals(struct resp_shared *shared, struct resp_totals *out)
{
	const struct list *pos;

	*out = (struct resp_totals){.clients = 0};
	store_get_stats(shared->store, &out->store);
	pthread_mutex_lock(&shared->lock);
	add_all(shared, out);
	for (pos = shared->clients.next; pos != &shared->clients; pos = pos->next) {
		const struct resp_client *c = container_of(pos, struct resp_client, node);

		if (GET(c->seen.end)) /* it was told to; its thread has not closed it yet */
			continue;
		out->clients++;
		out->pubsub += resp_subscriptions(c) != 0;
		out->kept += GET(c->seen.kept) >= 0;
	}
	shared->peak = MAX(shared->peak, memory_of(out));
	out->peak = shared->peak;
	memcpy(out->sample, shared->sample, sizeof(out->sample));
	memcpy(out->base, shared->base, sizeof(out->base));
	pthread_mutex_unlock(&shared->lock);
}

void resp_get_totals(struct resp_client *c, struct resp_totals *out)
{
	get_totals(c->thread->shared, out);
}

uint64_t resp_sample(void *of, uint64_t now)
{
	struct resp_shared *shared = of;
	struct resp_totals totals = {.clients = 0};

	pthread_mutex_lock(&shared->lock);
	if (now - shared->sample[0].at >= TIME_S || !shared->sample[0].at) {
		add_all(shared, &totals);
		shared->sample[1] = shared->sample[0];
		shared->sample[0] = (struct resp_sample){now, totals.commands, totals.bytes_in, totals.bytes_out};
	}
	pthread_mutex_unlock(&shared->lock);
	return shared->sample[0].at + TIME_S;
}

/* What came to `now_is` in the last second or two, for a second. */
static double sample_rate(const struct resp_totals *totals, uint64_t now, uint64_t is, size_t member)
{
	const struct resp_sample *then = &totals->sample[totals->sample[1].at ? 1 : 0];
	uint64_t was = *(const uint64_t *)((const char *)then + member);

	if (!then->at || now <= then->at || is < was)
		return 0;
	return (double)(is - was) * (double)TIME_S / (double)(now - then->at);
}

bool resp_evicts(const struct resp_shared *shared)
{
	return shared->kv->ahead != UINT64_MAX;
}

/* That the client came by, or the first of the settings; 0: there is none. */
unsigned resp_tcp_port(const struct resp_client *c)
{
	const char *colon = c->seen.is_unix || !c->seen.local ? NULL : strrchr(c->seen.local, ':');

	return colon ? (unsigned)strtoul(colon + 1, NULL, 10) : text_tcp_port(&c->thread->shared->settings->text);
}

/*
 * Sections
 */

struct info {
	struct resp_client *c;
	struct resp_shared *shared;
	struct resp_out *text;
	struct resp_totals totals;
};

#define NUMBER(info, name, value) resp_print((info)->text, "%s:%llu\r\n", name, (unsigned long long)(value))
#define TEXT(info, name, value) resp_print((info)->text, "%s:%s\r\n", name, value)

/* Since the process began, or CONFIG RESETSTAT. */
static uint64_t since_reset(const struct info *info, enum resp_base base, uint64_t value)
{
	return value - MIN(info->totals.base[base], value);
}

/* As Redis writes it: 1.50M. */
static void put_bytes(struct info *info, const char *name, uint64_t bytes)
{
	static const char units[] = "BKMGT";
	double number = (double)bytes;
	unsigned unit = 0;

	for (; number >= 1024 && units[unit + 1]; unit++)
		number /= 1024;
	NUMBER(info, name, bytes);
	if (unit == 0)
		resp_print(info->text, "%s_human:%lluB\r\n", name, (unsigned long long)bytes);
	else
		resp_print(info->text, "%s_human:%.2f%c\r\n", name, number, units[unit]);
}

static void put_server(struct info *info)
{
	uint64_t up = (resp_now(info->c) - info->shared->started) / TIME_S;
	struct timeval now;
	struct utsname system;
	char path[256] = "";

	gettimeofday(&now, NULL);
	if (uname(&system) != 0)
		memset(&system, 0, sizeof(system));
	if (readlink("/proc/self/exe", path, sizeof(path) - 1) < 0)
		path[0] = '\0';
	TEXT(info, "redis_version", RESP_REDIS_VERSION);
	TEXT(info, "server_name", "rdmad");
	TEXT(info, "rdmad_version", PACKAGE_VERSION);
	TEXT(info, "redis_git_sha1", "00000000");
	NUMBER(info, "redis_git_dirty", 0);
	TEXT(info, "redis_build_id", "0");
	TEXT(info, "redis_mode", info->shared->kv->cluster ? "cluster" : "standalone");
	resp_print(info->text, "os:%s %s %s\r\n", system.sysname, system.release, system.machine);
	NUMBER(info, "arch_bits", 8 * sizeof(long));
	TEXT(info, "monotonic_clock", "POSIX clock_gettime");
	TEXT(info, "multiplexing_api", "epoll");
	TEXT(info, "atomicvar_api", "c11-builtin");
#ifdef __VERSION__
	TEXT(info, "gcc_version", __VERSION__);
#endif
	NUMBER(info, "process_id", getpid());
	TEXT(info, "process_supervised", getenv("NOTIFY_SOCKET") ? "systemd" : "no");
	TEXT(info, "run_id", info->shared->run_id);
	NUMBER(info, "tcp_port", resp_tcp_port(info->c));
	NUMBER(info, "server_time_usec", (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_usec);
	NUMBER(info, "uptime_in_seconds", up);
	NUMBER(info, "uptime_in_days", up / 86400);
	NUMBER(info, "hz", 1);
	NUMBER(info, "configured_hz", 1);
	NUMBER(info, "lru_clock", now.tv_sec & 0xffffff);
	TEXT(info, "executable", path);
	TEXT(info, "config_file", "");
	NUMBER(info, "io_threads_active", 0);
}

static void put_clients(struct info *info)
{
	NUMBER(info, "connected_clients", info->totals.clients);
	NUMBER(info, "cluster_connections", 0);
	NUMBER(info, "maxclients", info->shared->connections);
	NUMBER(info, "client_recent_max_input_buffer", 0);
	NUMBER(info, "client_recent_max_output_buffer", 0);
	NUMBER(info, "blocked_clients", 0);
	NUMBER(info, "tracking_clients", atomic_load(&info->shared->trackers));
	NUMBER(info, "pubsub_clients", info->totals.pubsub);
	NUMBER(info, "clients_in_timeout_table", 0);
}

static uint64_t resident_bytes(void)
{
	unsigned long long all, pages = 0;
	FILE *file = fopen("/proc/self/statm", "re");

	if (!file)
		return 0;
	if (fscanf(file, "%llu %llu", &all, &pages) != 2)
		pages = 0;
	fclose(file);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void put_memory(struct info *info)
{
	uint64_t scripts, script_bytes;
	uint64_t used = memory_of(&info->totals), asked = info->totals.store.bytes_asked, rss = resident_bytes();
	uint64_t peak = info->totals.peak;

	put_bytes(info, "used_memory", used);
	put_bytes(info, "used_memory_rss", rss);
	put_bytes(info, "used_memory_peak", peak);
	resp_print(info->text, "used_memory_peak_perc:%.2f%%\r\n", peak ? 100.0 * (double)used / (double)peak : 100.0);
	NUMBER(info, "used_memory_overhead", used - MIN(asked, used));
	NUMBER(info, "used_memory_startup", 0);
	NUMBER(info, "used_memory_dataset", asked);
	resp_print(info->text, "used_memory_dataset_perc:%.2f%%\r\n",
		   used ? 100.0 * (double)MIN(asked, used) / (double)used : 0.0);
	NUMBER(info, "allocator_allocated", used);
	NUMBER(info, "allocator_active", info->totals.store.bytes_held);
	NUMBER(info, "allocator_resident", rss);
	put_bytes(info, "total_system_memory", (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
	put_bytes(info, "used_memory_lua", 0);
	resp_scripts_count(info->shared, &scripts, &script_bytes);
	put_bytes(info, "used_memory_scripts", script_bytes);
	NUMBER(info, "number_of_cached_scripts", scripts);
	NUMBER(info, "number_of_functions", 0);
	NUMBER(info, "number_of_libraries", 0);
	put_bytes(info, "maxmemory", info->totals.store.bytes_total);
	TEXT(info, "maxmemory_policy", resp_evicts(info->shared) ? "allkeys-lru" : "noeviction");
	resp_print(info->text, "mem_fragmentation_ratio:%.2f\r\n", used ? (double)rss / (double)used : 0.0);
	resp_print(info->text, "mem_fragmentation_bytes:%lld\r\n", (long long)rss - (long long)used);
	NUMBER(info, "mem_not_counted_for_evict", 0);
	NUMBER(info, "mem_replication_backlog", 0);
	NUMBER(info, "mem_clients_slaves", 0);
	NUMBER(info, "mem_clients_normal", info->totals.buffer_bytes);
	NUMBER(info, "mem_aof_buffer", 0);
	TEXT(info, "mem_allocator", "rdmad");
	NUMBER(info, "active_defrag_running", 0);
	NUMBER(info, "lazyfree_pending_objects", 0);
	NUMBER(info, "lazyfreed_objects", 0);
}

static void put_persistence(struct info *info)
{
	struct kv_log *log = info->shared->kv->log;
	bool refused = kv_gate_refused(info->c->thread->kv) != 0;
	bool failed = log && kv_log_failed(log);

	NUMBER(info, "loading", 0);
	NUMBER(info, "async_loading", 0);
	NUMBER(info, "rdb_changes_since_last_save",
	       log ? store_lsn(info->shared->store) - MIN(kv_log_durable(log), store_lsn(info->shared->store)) : 0);
	NUMBER(info, "rdb_bgsave_in_progress", 0);
	NUMBER(info, "rdb_last_save_time", (uint64_t)text_unix_of(info->shared->started) / 1000);
	TEXT(info, "rdb_last_bgsave_status", failed ? "err" : "ok");
	resp_print(info->text, "rdb_last_bgsave_time_sec:-1\r\nrdb_current_bgsave_time_sec:-1\r\n");
	NUMBER(info, "rdb_saves", 0);
	NUMBER(info, "rdb_last_cow_size", 0);
	NUMBER(info, "aof_enabled", log && kv_log_keeps(log));
	NUMBER(info, "aof_rewrite_in_progress", 0);
	NUMBER(info, "aof_rewrite_scheduled", 0);
	resp_print(info->text, "aof_last_rewrite_time_sec:-1\r\naof_current_rewrite_time_sec:-1\r\n");
	TEXT(info, "aof_last_bgrewrite_status", "ok");
	TEXT(info, "aof_last_write_status", failed || refused ? "err" : "ok");
	NUMBER(info, "aof_last_cow_size", 0);
	if (log && kv_log_keeps(log)) {
		struct wal_info wal;

		wal_get_info(kv_log_wal(log), &wal);
		NUMBER(info, "aof_current_size", wal.log_bytes);
		NUMBER(info, "aof_base_size", wal.checkpoint_bytes);
		NUMBER(info, "aof_pending_rewrite", 0);
	}
	NUMBER(info, "module_fork_in_progress", 0);
	NUMBER(info, "module_fork_last_cow_size", 0);
}

static void put_stats(struct info *info)
{
	const struct resp_totals *t = &info->totals;
	uint64_t now = resp_now(info->c);

	NUMBER(info, "total_connections_received",
	       since_reset(info, RESP_BASE_CONNECTIONS, atomic_load(&info->shared->last_id)));
	NUMBER(info, "total_commands_processed", since_reset(info, RESP_BASE_COMMANDS, t->commands));
	NUMBER(info, "instantaneous_ops_per_sec",
	       sample_rate(t, now, t->commands, offsetof(struct resp_sample, commands)));
	NUMBER(info, "total_net_input_bytes", since_reset(info, RESP_BASE_IN, t->bytes_in));
	NUMBER(info, "total_net_output_bytes", since_reset(info, RESP_BASE_OUT, t->bytes_out));
	NUMBER(info, "total_net_repl_input_bytes", 0);
	NUMBER(info, "total_net_repl_output_bytes", 0);
	resp_print(info->text, "instantaneous_input_kbps:%.2f\r\n",
		   sample_rate(t, now, t->bytes_in, offsetof(struct resp_sample, bytes_in)) / 1024);
	resp_print(info->text, "instantaneous_output_kbps:%.2f\r\n",
		   sample_rate(t, now, t->bytes_out, offsetof(struct resp_sample, bytes_out)) / 1024);
	NUMBER(info, "rejected_connections", since_reset(info, RESP_BASE_REFUSED, GET(resp_refused)));
	NUMBER(info, "sync_full", 0);
	NUMBER(info, "sync_partial_ok", 0);
	NUMBER(info, "sync_partial_err", 0);
	NUMBER(info, "expired_keys", since_reset(info, RESP_BASE_EXPIRED, t->store.expired));
	NUMBER(info, "evicted_keys", since_reset(info, RESP_BASE_EVICTED, t->store.evictions));
	NUMBER(info, "evicted_clients", 0);
	NUMBER(info, "keyspace_hits", since_reset(info, RESP_BASE_HITS, t->store.hits));
	NUMBER(info, "keyspace_misses", since_reset(info, RESP_BASE_MISSES, t->store.misses));
	NUMBER(info, "pubsub_channels", resp_pubsub_count(info->shared, RESP_CHANNEL));
	NUMBER(info, "pubsub_patterns", resp_pubsub_count(info->shared, RESP_PATTERN));
	NUMBER(info, "pubsubshard_channels", resp_pubsub_count(info->shared, RESP_SHARD));
	NUMBER(info, "latest_fork_usec", 0);
	NUMBER(info, "total_forks", 0);
	NUMBER(info, "migrate_cached_sockets", 0);
	NUMBER(info, "tracking_total_keys", atomic_load(&info->shared->tracked));
	NUMBER(info, "tracking_total_items", atomic_load(&info->shared->tracked));
	NUMBER(info, "tracking_total_prefixes", atomic_load(&info->shared->prefixes));
	NUMBER(info, "unexpected_error_replies", 0);
	NUMBER(info, "total_error_replies", errors_of(info->shared));
	NUMBER(info, "total_reads_processed", since_reset(info, RESP_BASE_READS, t->reads));
	NUMBER(info, "total_writes_processed", since_reset(info, RESP_BASE_WRITES, t->writes));
	NUMBER(info, "io_threaded_reads_processed", 0);
	NUMBER(info, "io_threaded_writes_processed", 0);
}

static void put_replication(struct info *info)
{
	TEXT(info, "role", "master");
	NUMBER(info, "connected_slaves", 0);
	TEXT(info, "master_failover_state", "no-failover");
	TEXT(info, "master_replid", info->shared->run_id);
	TEXT(info, "master_replid2", "0000000000000000000000000000000000000000");
	NUMBER(info, "master_repl_offset", 0);
	resp_print(info->text, "second_repl_offset:-1\r\n");
	NUMBER(info, "repl_backlog_active", 0);
	NUMBER(info, "repl_backlog_size", 0);
	NUMBER(info, "repl_backlog_first_byte_offset", 0);
	NUMBER(info, "repl_backlog_histlen", 0);
}

static void put_time(struct info *info, const char *name, const struct timeval *time)
{
	resp_print(info->text, "%s:%lld.%06lld\r\n", name, (long long)time->tv_sec, (long long)time->tv_usec);
}

static void put_cpu(struct info *info)
{
	struct rusage self, children;

	getrusage(RUSAGE_SELF, &self);
	getrusage(RUSAGE_CHILDREN, &children);
	put_time(info, "used_cpu_sys", &self.ru_stime);
	put_time(info, "used_cpu_user", &self.ru_utime);
	put_time(info, "used_cpu_sys_children", &children.ru_stime);
	put_time(info, "used_cpu_user_children", &children.ru_utime);
}

static void put_modules(struct info *info)
{
}

struct resp_calls resp_calls_of(const struct resp_shared *shared, unsigned id)
{
	struct resp_calls sum = {0};
	const struct list *pos;

	for (pos = shared->threads.next; pos != &shared->threads; pos = pos->next) {
		const struct resp_thread *thread = container_of(pos, struct resp_thread, node);

		sum.calls += GET(thread->calls[id]);
		sum.failed += GET(thread->failed[id]);
		sum.rejected += GET(thread->rejected[id]);
		sum.ns += GET(thread->ns[id]);
	}
	return sum;
}

static void put_commands(struct info *info)
{
	for (unsigned id = 0; id < RESP_IDS; id++) {
		struct resp_calls sum, base;

		pthread_mutex_lock(&info->shared->lock);
		sum = resp_calls_of(info->shared, id);
		base = info->shared->base_calls[id];
		pthread_mutex_unlock(&info->shared->lock);
		sum.calls -= base.calls;
		sum.failed -= base.failed;
		sum.rejected -= base.rejected;
		sum.ns -= base.ns;
		if (sum.calls || sum.failed || sum.rejected)
			resp_print(info->text,
				   "cmdstat_%s:calls=%llu,usec=%llu,usec_per_call=%.2f,rejected_calls=%llu,"
				   "failed_calls=%llu\r\n",
				   resp_commands[id].name, (unsigned long long)sum.calls,
				   (unsigned long long)(sum.ns / TIME_US),
				   sum.calls ? (double)sum.ns / TIME_US / (double)sum.calls : 0.0,
				   (unsigned long long)sum.rejected, (unsigned long long)sum.failed);
	}
}

static void put_errors(struct info *info)
{
	const struct resp_errors *e = &info->shared->errors;
	unsigned used = atomic_load_explicit(&e->used, memory_order_acquire), order[RESP_ERROR_CLASSES];

	for (unsigned i = 0; i < used; i++) {
		unsigned at = i;

		for (; at > 0 && strcmp(e->of[order[at - 1]].name, e->of[i].name) > 0; at--)
			order[at] = order[at - 1];
		order[at] = i;
	}
	for (unsigned i = 0; i < used; i++) {
		uint64_t count = GET(e->of[order[i]].count);

		if (count)
			resp_print(info->text, "errorstat_%s:count=%llu\r\n", e->of[order[i]].name,
				   (unsigned long long)count);
	}
}

static void put_latency(struct info *info)
{
}

static void put_cluster(struct info *info)
{
	NUMBER(info, "cluster_enabled", info->shared->kv->cluster != NULL);
}

static void put_keyspace(struct info *info)
{
	const struct store_stats *store = &info->totals.store;

	if (store->items)
		resp_print(info->text, "db0:keys=%llu,expires=%llu,avg_ttl=0\r\n", (unsigned long long)store->items,
			   (unsigned long long)store->expiring);
}

enum when { USUAL = 1, ALL = 2, EVERYTHING = 4 };

static const struct section {
	const char *name, *title;
	void (*put)(struct info *info);
	unsigned when;
} sections[] = {
	{"server", "Server", put_server, USUAL | ALL | EVERYTHING},
	{"clients", "Clients", put_clients, USUAL | ALL | EVERYTHING},
	{"memory", "Memory", put_memory, USUAL | ALL | EVERYTHING},
	{"persistence", "Persistence", put_persistence, USUAL | ALL | EVERYTHING},
	{"stats", "Stats", put_stats, USUAL | ALL | EVERYTHING},
	{"replication", "Replication", put_replication, USUAL | ALL | EVERYTHING},
	{"cpu", "CPU", put_cpu, USUAL | ALL | EVERYTHING},
	{"modules", "Modules", put_modules, USUAL | EVERYTHING},
	{"commandstats", "Commandstats", put_commands, ALL | EVERYTHING},
	{"errorstats", "Errorstats", put_errors, USUAL | ALL | EVERYTHING},
	{"latencystats", "Latencystats", put_latency, ALL | EVERYTHING},
	{"cluster", "Cluster", put_cluster, USUAL | ALL | EVERYTHING},
	{"keyspace", "Keyspace", put_keyspace, USUAL | ALL | EVERYTHING},
};

static bool is_asked(const struct section *section, const struct resp_arg *argv, unsigned argc)
{
	bool asked = argc == 1 && section->when & USUAL;

	for (unsigned i = 1; i < argc && !asked; i++)
		asked = resp_is(&argv[i], section->name) || (resp_is(&argv[i], "default") && section->when & USUAL) ||
			(resp_is(&argv[i], "all") && section->when & ALL) ||
			(resp_is(&argv[i], "everything") && section->when & EVERYTHING);
	return asked;
}

int resp_do_info(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_out text = {.most = MIB};
	struct info info = {.c = c, .shared = c->thread->shared, .text = &text};

	resp_get_totals(c, &info.totals);
	for (size_t i = 0; i < ARRAY_SIZE(sections); i++) {
		if (!is_asked(&sections[i], argv, argc))
			continue;
		resp_print(&text, "%s# %s\r\n", text.len ? "\r\n" : "", sections[i].title);
		sections[i].put(&info);
	}
	if (text.failed)
		resp_error(c->out, "ERR no memory for the reply");
	else
		resp_verbatim(c->out, text.len ? text.at : "", text.len);
	free(text.at);
	return 0;
}

/*
 * MEMORY
 */

int resp_do_memory_doctor(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_totals totals;
	char text[256];

	resp_get_totals(c, &totals);
	snprintf(text, sizeof(text),
		 "Keys and values take %llu of %llu bytes (kv.memory), and %llu writes found no room. "
		 "See rdmactl memory.\n",
		 (unsigned long long)totals.store.bytes_used, (unsigned long long)totals.store.bytes_total,
		 (unsigned long long)totals.store.out_of_memory);
	resp_verbatim(c->out, text, strlen(text));
	return 0;
}

int resp_do_memory_stats(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_totals t;
	uint64_t used, rss = resident_bytes();

	resp_get_totals(c, &t);
	used = memory_of(&t);
	const struct {
		const char *name;
		uint64_t number;
	} numbers[] = {
		{"peak.allocated", t.peak},
		{"total.allocated", used},
		{"startup.allocated", 0},
		{"replication.backlog", 0},
		{"clients.slaves", 0},
		{"clients.normal", t.buffer_bytes},
		{"cluster.links", 0},
		{"aof.buffer", 0},
		{"lua.caches", 0},
		{"functions.caches", 0},
		{"overhead.total", used - MIN(t.store.bytes_asked, used)},
		{"keys.count", t.store.items},
		{"keys.bytes-per-key", t.store.items ? t.store.bytes_used / t.store.items : 0},
		{"dataset.bytes", t.store.bytes_asked},
		{"allocator.allocated", used},
		{"allocator.active", t.store.bytes_held},
		{"allocator.resident", rss},
	};
	resp_map(c->out, ARRAY_SIZE(numbers) + 3);
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		resp_bulk_text(c->out, numbers[i].name);
		resp_number(c->out, (int64_t)numbers[i].number);
	}
	resp_bulk_text(c->out, "dataset.percentage");
	resp_double(c->out, used ? 100.0 * (double)MIN(t.store.bytes_asked, used) / (double)used : 0);
	resp_bulk_text(c->out, "peak.percentage");
	resp_double(c->out, t.peak ? 100.0 * (double)used / (double)t.peak : 100);
	resp_bulk_text(c->out, "fragmentation");
	resp_double(c->out, used ? (double)rss / (double)used : 0);
	return 0;
}
