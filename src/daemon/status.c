/* status.c: the state of the daemon as JSON. Names end in their unit. */
#include "daemon/daemon.h"

#include <inttypes.h>
#include <jansson.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

/* A counter of one of the statistics: one line here puts it into every answer. */
struct counter {
	const char *name;
	size_t offset;
};

#define CONN(name, member)                                                                                             \
	{                                                                                                              \
		name, offsetof(struct conn_group_stats, member)                                                        \
	}
static const struct counter conn_counters[] = {
	CONN("accepted", accepted),     CONN("closed", closed),           CONN("refused", refused),
	CONN("violations", violations), CONN("messages_in", messages_in), CONN("messages_out", messages_out),
	CONN("records_in", records_in), CONN("records_out", records_out), CONN("in_bytes", bytes_in),
	CONN("out_bytes", bytes_out),
};

static const struct counter buffer_counters[] = {
	CONN("buffers", buffers),
	CONN("buffers_in_use", buffers_in_use),
	CONN("buffer_bytes", buffer_bytes),
};

#define SERVICE(member) {#member, offsetof(struct service_stats, member)},
static const struct counter service_counters[] = {SERVICE_COUNTERS(SERVICE)};

#define STORE(name, member)                                                                                            \
	{                                                                                                              \
		name, offsetof(struct store_stats, member)                                                             \
	}
static const struct counter store_counters[] = {
	STORE("items", items),
	STORE("pins", pins),
	STORE("used_bytes", bytes_used),
	STORE("asked_bytes", bytes_asked),
	STORE("total_bytes", bytes_total),
	STORE("hits", hits),
	STORE("misses", misses),
	STORE("sets", sets),
	STORE("deletes", deletes),
	STORE("evictions", evictions),
	STORE("expired", expired),
	STORE("out_of_memory", out_of_memory),
};

static uint64_t *counter_at(const void *stats, const struct counter *c)
{
	return (uint64_t *)((char *)(uintptr_t)stats + c->offset);
}

static void add(void *into, const void *from, const struct counter *c, size_t n)
{
	for (size_t i = 0; i < n; i++)
		*counter_at(into, &c[i]) += *counter_at(from, &c[i]);
}

static void put(json_t *object, const char *name, uint64_t value)
{
	json_object_set_new(object, name, json_integer((json_int_t)value));
}

static void put_counters(json_t *object, const void *stats, const struct counter *c, size_t n)
{
	for (size_t i = 0; i < n; i++)
		put(object, c[i].name, *counter_at(stats, &c[i]));
}

/* Text that others chose may be no UTF-8, which jansson refuses. */
static json_t *text(const char *s)
{
	json_t *string = json_string(s);

	return string ? string : json_string("?");
}

void status_add_conn(struct worker_report *into, const struct conn_group_stats *from)
{
	into->conn.connections += from->connections;
	add(&into->conn, from, conn_counters, ARRAY_SIZE(conn_counters));
	add(&into->conn, from, buffer_counters, ARRAY_SIZE(buffer_counters));
}

static void append(struct worker_report *into, struct worker_report *from)
{
	struct conn_info *all;

	if (!from->list)
		return;
	all = realloc(into->list, (into->count + from->count + 1) * sizeof(*all));
	if (all) {
		memcpy(all + into->count, from->list, from->count * sizeof(*all));
		into->list = all;
		into->count += from->count;
	}
	free(from->list);
}

static void finish(struct status *status)
{
	status->done(status->arg, status);
	free(status->total.list);
	free(status);
}

static void answered(struct worker_message *m)
{
	struct status *status = m->arg;
	struct worker_report *from = &m->report.report;

	status_add_conn(&status->total, &from->conn);
	add(&status->total.service, &from->service, service_counters, ARRAY_SIZE(service_counters));
	append(&status->total, from);
	free(m);
	if (--status->pending == 0)
		finish(status);
}

int status_gather(struct daemon *d, bool list, void (*done)(void *arg, struct status *status), void *arg)
{
	struct status *status = calloc(1, sizeof(*status));

	if (!status)
		return -ENOMEM;
	*status = (struct status){.daemon = d, .pending = 1, .done = done, .arg = arg};
	for (unsigned i = 0; i < d->workers; i++) {
		struct worker_message *m = calloc(1, sizeof(*m));

		if (!m)
			continue; /* its share is missing; the others are worth telling */
		m->verb = WORKER_REPORT;
		m->done = answered;
		m->arg = status;
		m->report.list = list;
		if (worker_send(d->worker[i], m))
			status->pending++;
		else
			free(m);
	}
	if (--status->pending == 0)
		finish(status);
	return 0;
}

static json_t *listeners_json(const struct daemon *d)
{
	json_t *array = json_array();

	for (unsigned i = 0; i < d->listeners; i++) {
		const struct listener *l = &d->listener[i];

		if (l->handle)
			json_array_append_new(
				array, json_pack("{s:s, s:o}", "transport", l->transport, "address", text(l->address)));
	}
	return array;
}

static json_t *missing_json(const struct daemon *d)
{
	json_t *array = json_array();

	for (unsigned i = 0; i < d->missings; i++) {
		const struct missing *m = &d->missing[i];

		json_array_append_new(array, json_pack("{s:s, s:o, s:o}", "transport", m->transport, "address",
						       text(m->address), "reason", text(m->reason)));
	}
	return array;
}

static json_t *services_json(const struct daemon *d)
{
	json_t *array = json_array();

	for (unsigned id = 0; id < WIRE_SERVICES; id++)
		if (daemon_serves(d, id) && (id != WIRE_GPU || d->shared.gpu))
			json_array_append_new(array, json_string(wire_service_name(id)));
	return array;
}

static json_t *store_json(const struct daemon *d)
{
	struct store_stats stats;
	json_t *object = json_object();

	store_get_stats(d->shared.store, &stats);
	put_counters(object, &stats, store_counters, ARRAY_SIZE(store_counters));
	return object;
}

static json_t *gpu_json(const struct daemon *d)
{
	const struct service_gpu *gpu = d->shared.gpu;
	json_t *o = json_pack("{s:o, s:o}", "backend", text(gpu->probe.backend), "device", text(gpu->probe.device));

	put(o, "sessions", atomic_load_explicit(&gpu->sessions, memory_order_relaxed));
	put(o, "sessions_max", gpu->sessions_max);
	return o;
}

json_t *status_json(const struct status *status)
{
	const struct daemon *d = status->daemon;
	json_t *o = json_object(), *counters = json_object();

	json_object_set_new(o, "version", json_string(PACKAGE_VERSION));
	put(o, "pid", (uint64_t)getpid());
	json_object_set_new(o, "state", json_string(d->ending ? "ending" : d->draining ? "draining" : "running"));
	put(o, "uptime_seconds", (time_now() - d->started) / TIME_S);
	put(o, "workers", d->workers);
	put(o, "connections", status->total.conn.connections);
	put(o, "max_connections", d->config->max_connections);
	json_object_set_new(o, "services", services_json(d));
	json_object_set_new(o, "listen", listeners_json(d));
	json_object_set_new(o, "missing", missing_json(d));
	put_counters(counters, &status->total.conn, conn_counters, ARRAY_SIZE(conn_counters));
	put_counters(counters, &status->total.service, service_counters, ARRAY_SIZE(service_counters));
	json_object_set_new(o, "counters", counters);
	if (d->shared.store)
		json_object_set_new(o, "store", store_json(d));
	if (d->shared.gpu)
		json_object_set_new(o, "gpu", gpu_json(d));
	return o;
}

static json_t *connection_json(const struct conn_info *c, uint64_t now)
{
	json_t *o = json_object();

	put(o, "id", c->id);
	json_object_set_new(o, "peer", text(c->peer));
	json_object_set_new(o, "transport", text(c->transport));
	json_object_set_new(o, "service", text(c->service));
	json_object_set_new(o, "state", text(c->state));
	put(o, "age_seconds", (now - MIN(now, c->opened)) / TIME_S);
	put(o, "messages_in", c->messages_in);
	put(o, "messages_out", c->messages_out);
	put(o, "records_in", c->records_in);
	put(o, "records_out", c->records_out);
	put(o, "in_bytes", c->bytes_in);
	put(o, "out_bytes", c->bytes_out);
	return o;
}

json_t *status_connections_json(const struct status *status)
{
	json_t *o = json_object(), *array = json_array();
	uint64_t now = time_now();

	for (size_t i = 0; i < status->total.count; i++)
		json_array_append_new(array, connection_json(&status->total.list[i], now));
	json_object_set_new(o, "connections", array);
	return o;
}

/* A line of /proc/self/status in bytes. */
static uint64_t proc_bytes(const char *name)
{
	FILE *in = fopen("/proc/self/status", "re");
	char line[256];
	uint64_t kib = 0;

	if (!in)
		return 0;
	while (fgets(line, sizeof(line), in))
		if (strncmp(line, name, strlen(name)) == 0)
			kib = strtoull(line + strlen(name), NULL, 10);
	fclose(in);
	return kib * KIB;
}

static uint64_t heap_bytes(void)
{
	return (uint64_t)mallinfo2().uordblks;
}

json_t *status_memory_json(const struct status *status)
{
	json_t *o = json_object();

	put(o, "resident_bytes", proc_bytes("VmRSS:"));
	put(o, "locked_bytes", proc_bytes("VmLck:"));
	put(o, "pinned_bytes", proc_bytes("VmPin:"));
	put(o, "heap_bytes", heap_bytes());
	put_counters(o, &status->total.conn, buffer_counters, ARRAY_SIZE(buffer_counters));
	put(o, "arena_bytes", status->daemon->arena_size);
	if (status->daemon->shared.store)
		json_object_set_new(o, "store", store_json(status->daemon));
	return o;
}

json_t *status_resources_json(const struct status *status)
{
	struct store_stats store = {0};
	struct rlimit limit = {0};
	json_t *o = json_object();

	getrlimit(RLIMIT_NOFILE, &limit);
	if (status->daemon->shared.store)
		store_get_stats(status->daemon->shared.store, &store);
	put(o, "descriptors", process_count_fds());
	put(o, "descriptors_max", limit.rlim_cur);
	put(o, "connections", status->total.conn.connections);
	put_counters(o, &status->total.conn, buffer_counters, ARRAY_SIZE(buffer_counters));
	if (status->daemon->shared.gpu)
		put(o, "gpu_sessions",
		    atomic_load_explicit(&status->daemon->shared.gpu->sessions, memory_order_relaxed));
	put(o, "store_items", store.items);
	put(o, "store_pins", store.pins);
	put(o, "store_used_bytes", store.bytes_used);
	put(o, "heap_bytes", heap_bytes());
	return o;
}

void status_log(void *arg, struct status *status)
{
	const struct worker_report *t = &status->total;

	(void)arg;
	log_info("rdmad",
		 "connections %" PRIu64 " accepted %" PRIu64 " closed %" PRIu64 " refused %" PRIu64
		 " violations %" PRIu64 " records in %" PRIu64 " out %" PRIu64 " bytes in %" PRIu64 " out %" PRIu64,
		 t->conn.connections, t->conn.accepted, t->conn.closed, t->conn.refused, t->conn.violations,
		 t->conn.records_in, t->conn.records_out, t->conn.bytes_in, t->conn.bytes_out);
}
