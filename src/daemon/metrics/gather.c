/* gather.c: what a text is made of: the answers to rdmactl, and beside them what only a monitoring system asks for. */
#include "daemon/metrics/metrics.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

/* Each name with 0, but with 1 the name that holds. */
static json_t *one_of(const char *const names[], size_t n, const char *holds)
{
	json_t *o = json_object();

	for (size_t i = 0; i < n; i++)
		json_object_set_new(o, names[i], json_integer(strcmp(names[i], holds) == 0));
	return o;
}

static json_t *states_json(enum metrics_state state)
{
	static const char *const names[] = {
		[METRICS_LOADING] = "loading", [METRICS_READY] = "ready", [METRICS_DRAINING] = "draining"};

	return one_of(names, ARRAY_SIZE(names), names[state]);
}

static json_t *log_states_json(const json_t *log)
{
	static const char *const names[] = {"good", "prefix", "disk full", "failed", "removed"};

	return log ? one_of(names, ARRAY_SIZE(names), json_string_value(json_object_get(log, "state"))) : NULL;
}

static json_t *build_json(const struct daemon *d)
{
	return json_pack("{s:{s:i}}", PACKAGE_VERSION, d->config->require_rdma ? "required" : "optional", 1);
}

static json_t *transports_json(const struct daemon *d)
{
	json_t *o = json_object();

	for (unsigned i = 0; i < d->missings; i++)
		json_object_set_new(o, d->missing[i].transport->name, json_integer(0));
	for (unsigned i = 0; i < d->listeners; i++)
		if (d->listener[i].handle || !json_object_get(o, d->listener[i].transport->name))
			json_object_set_new(o, d->listener[i].transport->name,
					    json_integer(d->listener[i].handle != NULL));
	for (unsigned i = 0; i < d->streams; i++)
		json_object_set_new(o, d->stream[i].transport, json_integer(1));
	return o;
}

static json_t *buckets_json(const struct buckets *b, struct buckets_scale scale)
{
	json_t *counts = json_array();

	for (unsigned i = 0; i <= scale.count; i++)
		json_array_append_new(counts, json_integer((json_int_t)b->count[i]));
	return json_pack("{s:I, s:o, s:I}", "first", (json_int_t)scale.first, "counts", counts, "sum",
			 (json_int_t)b->sum);
}

/* Durations of the classes from `first` to before `end`. */
static json_t *durations_json(const struct daemon *d, const struct service_counts *counts, unsigned first, unsigned end)
{
	static const char *const names[] = {[SERVICE_READ] = "read", [SERVICE_WRITE] = "write", [SERVICE_SCAN] = "scan",
					    [SERVICE_JOB] = "job",   [SERVICE_IN] = "in",       [SERVICE_OUT] = "out"};
	json_t *o = json_object();

	for (unsigned id = 0; id < WIRE_SERVICES; id++) {
		json_t *classes = json_object();

		for (unsigned i = first; i < end; i++)
			if (service_is_open(&d->shared, id) && service_find(id)->times & 1u << i)
				json_object_set_new(classes, names[i],
						    buckets_json(&counts->took[id][i], BUCKETS_REQUEST));
		json_object_set_new(o, wire_service_name(id), classes);
	}
	return o;
}

static json_t *busy_json(const struct status *status)
{
	json_t *o = json_object();
	char name[16];

	for (unsigned i = 0; i < status->daemon->workers; i++) {
		snprintf(name, sizeof(name), "%u", i);
		json_object_set_new(o, name, json_integer((json_int_t)status->busy[i]));
	}
	return o;
}

/* Of transports that are offered and services that are open; others have no connections. */
static json_t *connections_json(const struct daemon *d, const struct worker_report *total)
{
	json_t *o = json_object();

	for (unsigned t = 0; t < FABRIC_TRANSPORTS; t++) {
		json_t *services = json_object();

		for (unsigned id = 0; config_allows(d->config, &fabric_transports[t]) && id < WIRE_SERVICES; id++)
			if (service_is_open(&d->shared, id) || total->kind[t][id])
				json_object_set_new(services, wire_service_name(id),
						    json_integer((json_int_t)total->kind[t][id]));
		json_object_set_new(o, fabric_transports[t].name, services);
	}
	return o;
}

/* As labels have it: words that hang together. */
static json_t *refused_json(const struct daemon *d, const struct worker_report *total)
{
	json_t *o = json_object();
	char name[64];

	for (unsigned i = WIRE_REASON_NONE + 1; i < WIRE_REASONS; i++) {
		snprintf(name, sizeof(name), "%s", wire_reason_name(i));
		for (char *at = name; (at = strchr(at, ' '));)
			*at = '_';
		json_object_set_new(o, name, json_integer((json_int_t)d->refused[i]));
	}
	json_object_set_new(o, "by_worker", json_integer((json_int_t)total->conn.refused));
	return o;
}

static json_t *process_json(const struct daemon *d)
{
	struct rlimit limit = {RLIM_INFINITY, 0};
	struct timespec used = {0};
	json_t *o = json_object();

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	json_object_set_new(o, "start_seconds", json_integer(d->started_at));
	json_object_set_new(o, "processor_ns",
			    json_integer((json_int_t)used.tv_sec * (json_int_t)TIME_S + used.tv_nsec));
	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (limit.rlim_cur != RLIM_INFINITY)
		json_object_set_new(o, "memlock_bytes", json_integer((json_int_t)limit.rlim_cur));
	return o;
}

/* The names of the RDMA devices, which ports.c asks the kernel about. */
static json_t *devices_json(const struct daemon *d)
{
	const struct daemon_fabric *f = fabrics_device(d);
	char names[512];

	return f ? json_string(fabric_devices(f->fabric, names, sizeof(names))) : NULL;
}

static enum metrics_state state_of(const struct daemon *d)
{
	return d->draining || d->ending ? METRICS_DRAINING : METRICS_READY;
}

json_t *metrics_gather_start(const struct daemon *d)
{
	json_t *o = json_object();

	json_object_set_new(o, "build", build_json(d));
	json_object_set_new(o, "process", process_json(d));
	json_object_set_new(o, "states", states_json(METRICS_LOADING));
	return o;
}

json_t *metrics_gather(const struct status *status)
{
	struct daemon *d = status->daemon;
	json_t *o = status_json(status), *log = json_object_get(o, "log");

	must(daemon_is_main(d));
	json_object_set_new(o, "memory", status_memory_json(status));
	json_object_set_new(o, "resources", status_resources_json(status));
	json_object_set_new(o, "build", build_json(d));
	json_object_set_new(o, "process", process_json(d));
	json_object_set_new(o, "states", states_json(state_of(d)));
	json_object_set_new(o, "log_states", log_states_json(log));
	json_object_set_new(o, "transports", transports_json(d));
	json_object_set_new(o, "connections_of", connections_json(d, &status->total));
	json_object_set_new(o, "refused_of", refused_json(d, &status->total));
	json_object_set_new(o, "durations", durations_json(d, &status->total.service, 0, SERVICE_REQUESTS));
	json_object_set_new(o, "moves", durations_json(d, &status->total.service, SERVICE_REQUESTS, SERVICE_CLASSES));
	json_object_set_new(o, "turns", buckets_json(&status->total.turns, BUCKETS_REQUEST));
	json_object_set_new(o, "busy", busy_json(status));
	json_object_set_new(o, "devices", devices_json(d));
	json_object_set_new(o, "reload",
			    json_pack("{s:i, s:I}", "successful", !d->reload_failed, "success_seconds",
				      (json_int_t)d->configured_at));
	return o;
}

json_t *metrics_json(const struct status *status)
{
	json_t *from = metrics_gather(status), *answer = NULL;
	size_t length;
	char *text = metrics_text(from, false, &length);

	if (text)
		answer = json_pack("{s:s%}", "text", text, length);
	free(text);
	json_decref(from);
	return answer;
}
