/*
 * config.c: CONFIG. What programs read and rdmad has is told in Redis's names; nothing of it can be changed here, as
 * the configuration is a file: see rdmad.conf(5).
 */
#include "service/resp/server.h"

#include <stdio.h>
#include <stdlib.h>

#define TEXT_MAX 160

/* One parameter as text. */
struct parameter {
	const char *name;
	const char *fixed; /* NULL: */
	void (*tell)(struct resp_client *c, char out[static TEXT_MAX]);
};

static void tell_maxmemory(struct resp_client *c, char out[static TEXT_MAX])
{
	struct store_stats stats;

	store_get_stats(c->thread->store, &stats);
	snprintf(out, TEXT_MAX, "%llu", (unsigned long long)stats.bytes_total);
}

static void tell_policy(struct resp_client *c, char out[static TEXT_MAX])
{
	snprintf(out, TEXT_MAX, "%s", resp_evicts(c->thread->shared) ? "allkeys-lru" : "noeviction");
}

static void tell_maxclients(struct resp_client *c, char out[static TEXT_MAX])
{
	snprintf(out, TEXT_MAX, "%llu", (unsigned long long)c->thread->shared->connections);
}

static void tell_port(struct resp_client *c, char out[static TEXT_MAX])
{
	snprintf(out, TEXT_MAX, "%u", resp_tcp_port(c));
}

static void tell_appendonly(struct resp_client *c, char out[static TEXT_MAX])
{
	const struct kv_log *log = c->thread->shared->kv->log;

	snprintf(out, TEXT_MAX, "%s", log && kv_log_keeps(log) ? "yes" : "no");
}

static void tell_appendfsync(struct resp_client *c, char out[static TEXT_MAX])
{
	const struct kv_log *log = c->thread->shared->kv->log;

	snprintf(out, TEXT_MAX, "%s", log && kv_log_gates(log) ? "always" : "everysec");
}

static void tell_bulk_max(struct resp_client *c, char out[static TEXT_MAX])
{
	snprintf(out, TEXT_MAX, "%llu", (unsigned long long)MIN(c->thread->shared->kv->value_max, RESP_BULK_MAX));
}

static void tell_socket(struct resp_client *c, char out[static TEXT_MAX])
{
	const char *path = c->thread->shared->settings->text.unix_socket;

	snprintf(out, TEXT_MAX, "%s", path ? path : "");
}

#define NOTIFY "notify-keyspace-events"

static void tell_notify(struct resp_client *c, char out[static TEXT_MAX])
{
	resp_notify_text(atomic_load(&c->thread->shared->notify), out);
}

static void tell_cluster(struct resp_client *c, char out[static TEXT_MAX])
{
	snprintf(out, TEXT_MAX, "%s", c->thread->shared->kv->cluster ? "yes" : "no");
}

/* Sorted. */
static const struct parameter parameters[] = {
	{"activedefrag", "no", NULL},
	{"appendfsync", NULL, tell_appendfsync},
	{"appendonly", NULL, tell_appendonly},
	{"cluster-enabled", NULL, tell_cluster},
	{"daemonize", "no", NULL},
	{"databases", "1", NULL},
	{"dir", "", NULL},
	{"io-threads", "1", NULL},
	{"latency-monitor-threshold", "0", NULL},
	{"lazyfree-lazy-eviction", "no", NULL},
	{"lazyfree-lazy-expire", "no", NULL},
	{"lua-time-limit", "5000", NULL},
	{"maxclients", NULL, tell_maxclients},
	{"maxmemory", NULL, tell_maxmemory},
	{"maxmemory-policy", NULL, tell_policy},
	{"maxmemory-samples", "5", NULL},
	{"min-replicas-max-lag", "10", NULL},
	{"min-replicas-to-write", "0", NULL},
	{NOTIFY, NULL, tell_notify},
	{"port", NULL, tell_port},
	{"proto-max-bulk-len", NULL, tell_bulk_max},
	{"rdbcompression", "no", NULL},
	{"replica-read-only", "yes", NULL},
	{"save", "", NULL},
	{"slave-read-only", "yes", NULL},
	{"slowlog-log-slower-than", "-1", NULL},
	{"slowlog-max-len", "0", NULL},
	{"tcp-keepalive", "0", NULL},
	{"timeout", "0", NULL},
	{"tls-port", "0", NULL},
	{"unixsocket", NULL, tell_socket},
};

static const char *value_of(struct resp_client *c, const struct parameter *parameter, char text[static TEXT_MAX])
{
	if (parameter->fixed)
		return parameter->fixed;
	parameter->tell(c, text);
	return text;
}

static bool is_asked(const struct parameter *parameter, const struct resp_arg *argv, unsigned argc)
{
	for (unsigned i = 2; i < argc; i++)
		if (resp_match(argv[i].at, argv[i].len, parameter->name, strlen(parameter->name), true))
			return true;
	return false;
}

int resp_do_config_get(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	bool asked[ARRAY_SIZE(parameters)];
	char text[TEXT_MAX];
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(parameters); i++)
		n += asked[i] = is_asked(&parameters[i], argv, argc);
	resp_map(c->out, n);
	for (size_t i = 0; i < ARRAY_SIZE(parameters); i++) {
		if (!asked[i])
			continue;
		resp_bulk_text(c->out, parameters[i].name);
		resp_bulk_text(c->out, value_of(c, &parameters[i], text));
	}
	return 0;
}

static const struct parameter *parameter_find(const struct resp_arg *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(parameters); i++)
		if (resp_is(name, parameters[i].name))
			return &parameters[i];
	return NULL;
}

/* To set what is so already is fine: programs do so to be sure. */
static bool is_so(struct resp_client *c, const struct parameter *parameter, const struct resp_arg *value)
{
	char text[TEXT_MAX];
	const char *is = value_of(c, parameter, text);

	return strlen(is) == value->len && strncasecmp(is, value->at, value->len) == 0;
}

static void cannot_set(struct resp_client *c, const struct parameter *parameter, const char *why)
{
	resp_error(c->out, "ERR CONFIG SET failed (possibly related to argument '%s') - %s", parameter->name, why);
}

int resp_do_config_set(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	bool named[ARRAY_SIZE(parameters)] = {0}, notifies = false;
	unsigned flags = 0;

	if (argc % 2 != 0)
		return resp_syntax_error(c);
	for (unsigned i = 2; i < argc; i += 2) {
		const struct parameter *parameter = parameter_find(&argv[i]);

		if (!parameter) {
			resp_error(c->out, "ERR Unknown option or number of arguments for CONFIG SET - '%.*s'",
				   (int)MIN(argv[i].len, 128u), argv[i].at);
			return 0;
		}
		if (named[parameter - parameters]) {
			cannot_set(c, parameter, "duplicate parameter");
			return 0;
		}
		named[parameter - parameters] = true;
	}
	for (unsigned i = 2; i < argc; i += 2) {
		const struct parameter *parameter = parameter_find(&argv[i]);

		if (strcmp(parameter->name, NOTIFY) == 0) {
			if (!resp_may_all(c))
				return 0;
			if (!resp_notify_read(argv[i + 1].at, argv[i + 1].len, &flags)) {
				cannot_set(c, parameter,
					   "Invalid event class character. Use 'Ag$lshzxeKEtdn': rdmad tells of no "
					   "misses ('m').");
				return 0;
			}
			notifies = true;
		} else if (!is_so(c, parameter, &argv[i + 1])) {
			cannot_set(c, parameter, "can't set immutable config: see rdmad.conf(5)");
			return 0;
		}
	}
	if (notifies)
		atomic_store(&c->thread->shared->notify, flags);
	resp_ok(c);
	return 0;
}

/* What INFO counts begins with 0 again; the daemon's own counters go on. */
int resp_do_config_resetstat(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_shared *shared = c->thread->shared;
	struct resp_totals totals;

	if (!resp_may_all(c))
		return 0;
	resp_get_totals(c, &totals);
	pthread_mutex_lock(&shared->lock);
	shared->base[RESP_BASE_CONNECTIONS] = atomic_load(&shared->last_id);
	shared->base[RESP_BASE_REFUSED] = atomic_load(&resp_refused);
	shared->base[RESP_BASE_COMMANDS] = totals.commands;
	shared->base[RESP_BASE_IN] = totals.bytes_in;
	shared->base[RESP_BASE_OUT] = totals.bytes_out;
	shared->base[RESP_BASE_READS] = totals.reads;
	shared->base[RESP_BASE_WRITES] = totals.writes;
	shared->base[RESP_BASE_HITS] = totals.store.hits;
	shared->base[RESP_BASE_MISSES] = totals.store.misses;
	shared->base[RESP_BASE_EXPIRED] = totals.store.expired;
	shared->base[RESP_BASE_EVICTED] = totals.store.evictions;
	for (unsigned id = 0; id < RESP_IDS; id++)
		shared->base_calls[id] = resp_calls_of(shared, id);
	pthread_mutex_unlock(&shared->lock);
	resp_errors_reset(shared);
	resp_ok(c);
	return 0;
}

int resp_do_config_rewrite(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	resp_error(c->out, "ERR The server is running without a config file");
	return 0;
}

int resp_do_config_help(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	static const char *const lines[] = {
		"CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
		"GET <pattern>",
		"    Return parameters matching the glob-like <pattern> and their values.",
		"SET <directive> <value>",
		"    Set the configuration <directive> to <value>.",
		"RESETSTAT",
		"    Reset statistics reported by the INFO command.",
		"REWRITE",
		"    Rewrite the configuration file.",
		"HELP",
		"    Prints this help.",
	};

	return resp_help(c, lines, ARRAY_SIZE(lines));
}
