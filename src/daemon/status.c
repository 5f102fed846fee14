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
	CONN("violations", violations), CONN("yields", yields),           CONN("stalled", stalled),
	CONN("silent", silent),         CONN("gave_way", gave_way),       CONN("overparked", overparked),
	CONN("unproved", unproved),     CONN("revoked", revoked),         CONN("paced", paced),
	CONN("encrypted", encrypted),   CONN("messages_in", messages_in), CONN("messages_out", messages_out),
	CONN("records_in", records_in), CONN("records_out", records_out), CONN("in_bytes", bytes_in),
	CONN("out_bytes", bytes_out),
};

static const struct counter buffer_counters[] = {
	CONN("buffers", buffers),           CONN("buffers_in_use", buffers_in_use),
	CONN("buffer_bytes", buffer_bytes), CONN("own_buffer_bytes", own_buffer_bytes),
	CONN("parked_bytes", parked_bytes),
};

static uint64_t *counter_at(const void *stats, const struct counter *c)
{
	return (uint64_t *)((char *)(uintptr_t)stats + c->offset);
}

static void add_counters(void *into, const void *from, const struct counter *c, size_t n)
{
	for (size_t i = 0; i < n; i++)
		*counter_at(into, &c[i]) += *counter_at(from, &c[i]);
}

static void put_number(json_t *object, const char *name, uint64_t value)
{
	json_object_set_new(object, name, json_integer((json_int_t)value));
}

static void put_counters(json_t *object, const void *stats, const struct counter *c, size_t n)
{
	for (size_t i = 0; i < n; i++)
		put_number(object, c[i].name, *counter_at(stats, &c[i]));
}

/* Make text of others printable: it may be no UTF-8, which jansson refuses, and rdmactl writes it to a terminal. */
static json_t *printable_text(const char *s)
{
	char line[512];

	return json_string(log_printable(s, line, sizeof(line)));
}

void status_add_conn(struct worker_report *into, const struct conn_group_stats *from)
{
	into->conn.connections += from->connections;
	add_counters(&into->conn, from, conn_counters, ARRAY_SIZE(conn_counters));
	add_counters(&into->conn, from, buffer_counters, ARRAY_SIZE(buffer_counters));
}

#define STREAM(name, member)                                                                                           \
	{                                                                                                              \
		name, offsetof(struct stream_stats, member)                                                            \
	}
/* Of streams, what connections have no counter for. */
static const struct counter stream_counters[] = {
	STREAM("stream_reads", reads),
	STREAM("stream_writes", writes),
	STREAM("stream_waiting_bytes", waiting_bytes),
	STREAM("stream_buffer_bytes", buffer_bytes),
};

static void add_kind(struct worker_report *into, const struct stream_kind *kind)
{
	const struct fabric_transport *transport = fabric_transport_find(kind->transport);

	for (unsigned id = 0; transport && id < WIRE_SERVICES; id++)
		if (strcmp(wire_service_name(id), kind->service) == 0)
			into->kind[transport - fabric_transports][id] += kind->streams;
}

static void add_stream(struct worker_report *into, const struct stream_stats *from)
{
	into->conn.connections += from->streams;
	into->conn.accepted += from->accepted;
	into->conn.closed += from->closed;
	into->conn.stalled += from->stalled;
	into->conn.gave_way += from->gave_way;
	into->conn.paced += from->paced;
	into->conn.revoked += from->revoked;
	into->conn.violations += from->violations;
	into->conn.records_in += from->requests;
	into->conn.records_out += from->requests;
	into->conn.bytes_in += from->bytes_in;
	into->conn.bytes_out += from->bytes_out;
	add_counters(&into->stream, from, stream_counters, ARRAY_SIZE(stream_counters));
	for (const struct stream_kind *kind = from->kind; kind->service; kind++)
		add_kind(into, kind);
}

static void status_finish(struct status *status)
{
	status->done(status->arg, status);
	free(status->total.list);
	free(status->hot);
	free(status);
}

/* Add the report of a worker to the total. */
static void report_answered(struct worker_message *m)
{
	struct status *status = m->arg;
	struct worker_report *from = &m->report.report, *total = &status->total;
	struct conn_info *all = NULL;

	status_add_conn(total, &from->conn);
	add_stream(total, &from->stream);
	service_counts_add(&total->service, &from->service);
	status->busy[from->worker] = from->busy;
	buckets_merge(&total->turns, &from->turns);
	for (unsigned t = 0; t < FABRIC_TRANSPORTS; t++)
		for (unsigned id = 0; id < WIRE_SERVICES; id++)
			total->kind[t][id] += from->kind[t][id];
	if (from->list)
		all = realloc(total->list, (total->count + from->count + 1) * sizeof(*all));
	if (all) {
		memcpy(all + total->count, from->list, from->count * sizeof(*all));
		total->list = all;
		total->count += from->count;
	}
	free(from->list);
	if (from->hot && status->hot)
		service_hot_add(status->hot, from->hot);
	free(from->hot);
	free(m);
	if (--status->pending == 0)
		status_finish(status);
}

int status_gather(struct daemon *d, enum status_list list, uint64_t only,
		  void (*done)(void *arg, struct status *status), void *arg)
{
	struct status *status = calloc(1, sizeof(*status));

	must(daemon_is_main(d));
	if (!status)
		return -ENOMEM;
	*status = (struct status){.daemon = d, .pending = 1, .done = done, .arg = arg};
	if (list == STATUS_HOT)
		status->hot = calloc(1, sizeof(*status->hot));
	for (unsigned i = 0; i < d->workers; i++) {
		struct worker_message *m = calloc(1, sizeof(*m));

		if (!m)
			continue; /* its share is missing in the total */
		m->verb = WORKER_REPORT;
		m->done = report_answered;
		m->arg = status;
		m->report.list = list;
		m->report.report.only = only;
		m->report.report.end = list == STATUS_END;
		if (worker_send(d->worker[i], m))
			status->pending++;
		else
			free(m);
	}
	if (--status->pending == 0)
		status_finish(status);
	return 0;
}

static json_t *listeners_json(const struct daemon *d)
{
	json_t *array = json_array();

	for (unsigned i = 0; i < d->listeners; i++) {
		const struct listener *l = &d->listener[i];

		if (l->handle && l->native)
			json_array_append_new(array, json_pack("{s:s, s:o}", "transport", l->transport->name, "address",
							       printable_text(l->address)));
		if (l->handle && l->stream)
			json_array_append_new(array, json_pack("{s:s, s:o, s:s}", "transport", l->transport->name,
							       "address", printable_text(l->address), "service",
							       wire_service_name(l->stream->id)));
	}
	for (unsigned i = 0; i < d->streams; i++)
		json_array_append_new(array, json_pack("{s:s, s:o, s:s}", "transport", d->stream[i].transport,
						       "address", printable_text(d->stream[i].address), "service",
						       wire_service_name(d->stream[i].service->id)));
	return array;
}

static json_t *missing_json(const struct daemon *d)
{
	json_t *array = json_array();

	for (unsigned i = 0; i < d->missings; i++) {
		const struct missing *m = &d->missing[i];

		json_array_append_new(array, json_pack("{s:s, s:o, s:o, s:b}", "transport", m->transport->name,
						       "address", printable_text(m->address), "reason",
						       printable_text(m->reason), "waits", m->waits));
	}
	return array;
}

static json_t *metrics_addresses_json(const struct daemon *d)
{
	json_t *array = json_array();
	const char *address;

	for (unsigned i = 0; (address = metrics_address(d, i)); i++)
		json_array_append_new(array, json_string(address));
	return array;
}

static json_t *services_json(const struct daemon *d)
{
	json_t *array = json_array();

	for (unsigned id = 0; id < WIRE_SERVICES; id++)
		if (daemon_serves(d, id) && service_is_open(&d->shared, id))
			json_array_append_new(array, json_string(wire_service_name(id)));
	return array;
}

/*
 * The reports of the services
 */
struct json_report {
	struct service_report report;
	json_t *at, *outer; /* NULL: `at` is the answer itself */
};

static void report_number(struct service_report *report, const char *name, uint64_t number)
{
	put_number(container_of(report, struct json_report, report)->at, name, number);
}

static void report_text(struct service_report *report, const char *name, const char *s)
{
	json_object_set_new(container_of(report, struct json_report, report)->at, name, printable_text(s));
}

static void report_begin(struct service_report *report, const char *name)
{
	struct json_report *r = container_of(report, struct json_report, report);

	must(!r->outer);
	r->outer = r->at;
	r->at = json_object();
	json_object_set_new(r->outer, name, r->at);
}

static void report_end(struct service_report *report)
{
	struct json_report *r = container_of(report, struct json_report, report);

	must(r->outer);
	r->at = r->outer;
	r->outer = NULL;
}

static struct json_report report_into(json_t *object)
{
	return (struct json_report){{report_number, report_text, report_begin, report_end}, object, NULL};
}

static json_t *counters_json(const struct status *status)
{
	const struct worker_report *total = &status->total;
	const uint64_t *refused = status->daemon->refused;
	uint64_t all = total->conn.refused;
	json_t *counters = json_object();

	put_counters(counters, &total->conn, conn_counters, ARRAY_SIZE(conn_counters));
	put_counters(counters, &total->stream, stream_counters, ARRAY_SIZE(stream_counters));
	/* Refusals of the listeners, which no worker saw, are told apart where a limit was met. */
	for (unsigned i = 0; i < WIRE_REASONS; i++)
		all += refused[i];
	put_number(counters, "refused", all);
	put_number(counters, "refused_connections", refused[WIRE_REASON_CONNECTIONS]);
	put_number(counters, "refused_sources", refused[WIRE_REASON_SOURCE]);
	for (unsigned id = 0; id < WIRE_SERVICES; id++) {
		const struct service *service = service_find(id);

		for (unsigned i = 0; service && service->counters && service->counters[i]; i++)
			put_number(counters, service->counters[i], total->service.of[id][i]);
	}
	return counters;
}

/* NULL where there is none. */
static json_t *engine_json(const struct daemon *d)
{
	struct engine_report of;
	json_t *o;

	if (!engine_report(d, &of))
		return NULL;
	o = json_object();
	json_object_set_new(o, "state", json_string(of.state));
	json_object_set_new(o, "endpoint", json_string(of.endpoint));
	json_object_set_new(o, "reason", printable_text(of.reason));
	put_number(o, "epoch", of.epoch);
	put_number(o, "asked", of.asked);
	put_number(o, "lost", of.lost);
	put_number(o, "heard_ms", of.heard == TIME_NEVER ? 0 : of.heard / TIME_MS);
	put_number(o, "serves_ms", of.left == TIME_NEVER ? INT64_MAX : of.left / TIME_MS);
	put_number(o, "nodes_out", of.out);
	json_object_set_new(o, "moving", json_string(of.moving.phase));
	json_object_set_new(o, "moving_to", json_string(of.moving.target));
	json_object_set_new(o, "move_reason", printable_text(of.moving.reason));
	put_number(o, "wished_slots", of.moving.wished);
	put_number(o, "moving_slots", of.moving.slots);
	put_number(o, "moving_keys", of.moving.progress.keys);
	put_number(o, "moving_bytes", of.moving.progress.bytes);
	put_number(o, "moving_behind", of.moving.progress.behind);
	put_number(o, "moves_begun", of.moves.begun);
	put_number(o, "moves_done", of.moves.done);
	put_number(o, "moves_failed", of.moves.failed);
	put_number(o, "moved_slots", of.moves.slots);
	put_number(o, "moved_keys", of.moves.keys);
	put_number(o, "moved_bytes", of.moves.bytes);
	put_number(o, "sealed_us", of.moves.sealed / TIME_US);
	put_number(o, "sealed_most_us", of.moves.sealed_most / TIME_US);
	return o;
}

json_t *status_json(const struct status *status)
{
	const struct daemon *d = status->daemon;
	json_t *o = json_object();
	struct json_report report = report_into(o);

	json_object_set_new(o, "version", json_string(PACKAGE_VERSION));
	put_number(o, "pid", (uint64_t)getpid());
	json_object_set_new(o, "state", json_string(d->ending ? "ending" : d->draining ? "draining" : "running"));
	put_number(o, "uptime_seconds", (time_now() - d->started) / TIME_S);
	put_number(o, "workers", d->workers);
	put_number(o, "connections", status->total.conn.connections);
	put_number(o, "max_connections", d->config->max_connections);
	json_object_set_new(o, "services", services_json(d));
	json_object_set_new(o, "listen", listeners_json(d));
	json_object_set_new(o, "missing", missing_json(d));
	json_object_set_new(o, "metrics", metrics_addresses_json(d));
	if (d->engine)
		json_object_set_new(o, "engine", engine_json(d));
	json_object_set_new(o, "counters", counters_json(status));
	for (unsigned id = 0; id < WIRE_SERVICES; id++)
		if (service_is_open(&d->shared, id) && service_find(id)->status)
			service_find(id)->status(d->shared.of[id], &report.report);
	return o;
}

static json_t *connection_json(const struct conn_info *c, uint64_t now)
{
	json_t *o = json_object();

	put_number(o, "id", c->id);
	json_object_set_new(o, "peer", printable_text(c->peer));
	json_object_set_new(o, "transport", printable_text(c->transport));
	json_object_set_new(o, "service", printable_text(c->service));
	json_object_set_new(o, "key", *c->key ? printable_text(c->key) : json_null());
	json_object_set_new(o, "state", printable_text(c->state));
	put_number(o, "age_seconds", (now - MIN(now, c->opened)) / TIME_S);
	put_number(o, "messages_in", c->messages_in);
	put_number(o, "messages_out", c->messages_out);
	put_number(o, "records_in", c->records_in);
	put_number(o, "records_out", c->records_out);
	put_number(o, "in_bytes", c->bytes_in);
	put_number(o, "out_bytes", c->bytes_out);
	put_number(o, "in_flight", c->in_flight);
	put_number(o, "parked_bytes", c->parked_bytes);
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

/* Read a line of /proc/self/status, in bytes. */
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
	const struct daemon *d = status->daemon;
	json_t *o = json_object();
	struct json_report report = report_into(o);

	put_number(o, "resident_bytes", proc_bytes("VmRSS:"));
	put_number(o, "locked_bytes", proc_bytes("VmLck:"));
	put_number(o, "pinned_bytes", proc_bytes("VmPin:"));
	put_number(o, "heap_bytes", heap_bytes());
	put_counters(o, &status->total.conn, buffer_counters, ARRAY_SIZE(buffer_counters));
	for (unsigned id = 0; id < WIRE_SERVICES; id++)
		if (service_find(id) && service_find(id)->memory)
			service_find(id)->memory(d->shared.of[id], &report.report);
	return o;
}

json_t *status_resources_json(const struct status *status)
{
	const struct daemon *d = status->daemon;
	struct rlimit limit = {0};
	json_t *o = json_object();
	struct json_report report = report_into(o);

	getrlimit(RLIMIT_NOFILE, &limit);
	put_number(o, "descriptors", process_count_fds());
	put_number(o, "descriptors_max", limit.rlim_cur);
	put_number(o, "connections", status->total.conn.connections);
	put_number(o, "sources", quota_sources(d->sources));
	put_counters(o, &status->total.conn, buffer_counters, ARRAY_SIZE(buffer_counters));
	for (unsigned id = 0; id < WIRE_SERVICES; id++)
		if (service_find(id) && service_find(id)->resources)
			service_find(id)->resources(d->shared.of[id], &report.report);
	put_number(o, "heap_bytes", heap_bytes());
	return o;
}

/* The beginning of a key. */
static json_t *key_text(const char *key, uint32_t len)
{
	char text[SERVICE_SLOW_KEY + 1];

	for (uint32_t i = 0; i < len; i++)
		text[i] = key[i] ? key[i] : '?';
	text[len] = '\0';
	return printable_text(text);
}

json_t *status_hot_json(const struct status *status)
{
	const struct service_hot_sum *hot = status->hot;
	json_t *keys = json_array();

	for (unsigned i = 0; hot && i < hot->keys; i++) {
		const struct service_hot_key *k = &hot->key[i];
		json_t *o = json_object();
		double each = 100.0 / (double)MAX(hot->sampled, 1u);

		json_object_set_new(o, "key", key_text(k->key, k->len));
		json_object_set_new(o, "share_percent", json_real((double)k->count * each));
		json_object_set_new(o, "over_percent", json_real((double)k->over * each));
		json_array_append_new(keys, o);
	}
	return json_pack("{s:I, s:I, s:o}", "requests", (json_int_t)(hot ? hot->seen : 0), "sampled",
			 (json_int_t)(hot ? hot->sampled : 0), "keys", keys);
}

static json_t *slow_json(const struct service_slow_entry *e)
{
	json_t *o = json_object();

	put_number(o, "id", e->id);
	json_object_set_new(o, "at_unix_seconds", json_real((double)e->at / 1e6));
	json_object_set_new(o, "service", json_string(wire_service_name(e->service)));
	json_object_set_new(o, "operation", json_string(e->operation));
	put_number(o, "us", e->took / TIME_US);
	put_number(o, "size_bytes", e->size);
	json_object_set_new(o, "client", printable_text(e->client));
	json_object_set_new(o, "key_of_client", *e->key_of ? printable_text(e->key_of) : json_null());
	if (e->key_len)
		json_object_set_new(o, "key", key_text(e->key, e->key_len));
	return o;
}

json_t *status_slow_json(struct daemon *d)
{
	struct service_slow_entry *entry = calloc(SERVICE_SLOW_MAX, sizeof(*entry));
	json_t *array = json_array();
	size_t n;

	if (!entry) {
		json_decref(array);
		return NULL;
	}
	n = service_slow_read(d->slow, entry, SERVICE_SLOW_MAX);
	for (size_t i = 0; i < n; i++)
		json_array_append_new(array, slow_json(&entry[i]));
	free(entry);
	return json_pack("{s:I, s:o}", "limit_us", (json_int_t)(d->config->slow / TIME_US), "slow", array);
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
