/* server.c: services, a group, a listener, and the thread that turns them: while there is work, else it sleeps. */
#include "tests/service/server.h"
#include "conn/internal.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

struct test_server server;

#define OR(value, otherwise) ((value) ? (value) : (otherwise))

struct conn_group_attr server_group_attr(struct conn_group_attr particular)
{
	struct conn_group_attr attr = particular;

	attr.message_size = OR(attr.message_size, 8192);
	attr.message_max = OR(attr.message_max, 1u << 20);
	attr.credits = OR(attr.credits, 32);
	attr.transfers = OR(attr.transfers, 4);
	attr.receives = OR(attr.receives, 1024);
	attr.max_connections = OR(attr.max_connections, 64);
	attr.handshake_timeout = OR(attr.handshake_timeout, 60 * TIME_S);
	attr.memory = true;
	return attr;
}

/*
 * Services
 */

/* Of settings that are numbers alone. */
static void take_settings(enum wire_service id, void *values, const void *particular, size_t size)
{
	const struct setting_table *table = service_find(id)->settings;
	const uint64_t *from = particular;
	uint64_t *to = values;

	memset(values, 0, size);
	for (unsigned i = 0; i < table->count; i++)
		setting_set_default(&table->row[i], values);
	for (unsigned i = 0; i < size / sizeof(*to); i++)
		to[i] = OR(from[i], to[i]);
}

static void revise(void *arg, struct conn *conn)
{
	conn->admission.client = arg;
	service_revised(conn);
}

void services_revise_names(struct conn_group *group, const char *prefix)
{
	static char text[256];
	static struct auth_client client;

	client = auth_everything;
	if (prefix) {
		snprintf(text, sizeof(text), "%s", prefix);
		client.text = text;
		client.prefixes[AUTH_NAMES] =
			(struct auth_prefixes){.count = 1, .prefix = {{.length = (uint16_t)strlen(text)}}};
	}
	conn_group_each(group, revise, &client);
}

void services_open(struct services *services, const struct services_options *options)
{
	struct kv_settings kv = {
		.memory = OR(options->arena, 64 * MIB),
		.value_max = OR(options->value_max, GIB),
		.push_max = options->push_max,
		.transfer_memory = options->transfer_memory,
		.lease_memory = options->lease_memory,
		.lease_time = OR(options->lease_time, 60 * TIME_S),
		.eviction = options->eviction,
		.directory = (char *)(uintptr_t)options->log.directory,
		.policy = options->log.policy,
		.sync_every = OR(options->log.sync_every, 3600 * TIME_S),
		.segment = OR(options->log.segment, 256 * KIB),
		.on_error = options->log.on_error,
		.recover = options->log.recover,
		.save_at_exit = options->log.save_at_exit,
		.files = options->log.files,
		.cluster_table = (char *)(uintptr_t)options->cluster_table,
		.cluster_node = (char *)(uintptr_t)options->cluster_node,
		.cluster_state = (char *)(uintptr_t)options->cluster_state,
	};
	struct channel_settings channel;
	struct meeting_settings peer;
	if (options->cluster_engine) {
		kv.cluster_engine = KV_ENGINE_ETCD;
		kv.cluster_name = (char *)(uintptr_t) "test";
		kv.cluster_endpoints.count = 1;
	}
	void *const settings[WIRE_SERVICES] = {[WIRE_KV] = &kv, [WIRE_CHANNEL] = &channel, [WIRE_PEER] = &peer};
	struct service_host host = {.domain = &options->domain,
				    .domains = options->domain ? 1 : 0,
				    .facts = options->facts,
				    .fatal = options->log.fatal};
	struct service_shared *shared = &services->shared;

	*services = (struct services){.gpu = options->gpu};
	take_settings(WIRE_CHANNEL, &channel, &options->channel, sizeof(channel));
	take_settings(WIRE_PEER, &peer, &options->peer, sizeof(peer));
	REQUIRE(service_shared_open(shared, &host,
				    1u << WIRE_PING | 1u << WIRE_KV | 1u << WIRE_CHANNEL | 1u << WIRE_PEER,
				    settings) == 0);
	services->store = ((struct kv_shared *)shared->of[WIRE_KV])->store;
	if (options->gpu) {
		REQUIRE(gpu_service_start(options->gpu) == 0);
		shared->of[WIRE_GPU] = options->gpu;
		shared->open |= 1u << WIRE_GPU;
	}
	REQUIRE(service_thread_create(&services->thread, shared) == 0);
	services->kv = services->thread.part[WIRE_KV];
}

/* A checkpoint that is under way holds what it writes at the moment. */
static void await_pins(struct services *services)
{
	uint64_t until = time_now() + 10 * TIME_S;

	while (services_store_stats(services).pins && time_now() < until)
		usleep(1000);
}

void services_close(struct services *services)
{
	services_enable_kv(services, true);
	service_thread_free(&services->thread);
	await_pins(services);
	REQUIRE(services_store_stats(services).pins == 0);
	if (services->gpu)
		gpu_service_stop(services->gpu);
	services->shared.open &= ~(1ull << WIRE_GPU);
	service_shared_close(&services->shared);
}

struct channel_service *services_channel(const struct services *services)
{
	return services->shared.of[WIRE_CHANNEL];
}

struct meeting_service *services_peer(const struct services *services)
{
	return services->shared.of[WIRE_PEER];
}

void services_enable_kv(struct services *services, bool enabled)
{
	services->thread.part[WIRE_KV] = enabled ? services->kv : NULL;
}

void services_take(struct services *services, struct conn_group *group, struct fabric_request *request,
		   const struct wire_request *wire, enum wire_reason reason)
{
	const struct service *service = service_find(wire->service);

	if (reason == WIRE_REASON_NONE && !service)
		reason = WIRE_REASON_SERVICE;
	if (reason != WIRE_REASON_NONE)
		conn_refuse(request, reason, wire->service);
	else
		service_accept(service, &services->thread, group, request, wire, NULL, NULL);
}

void services_set_time(struct services *services, uint64_t now)
{
	services->thread.now = now;
}

int services_turn(struct services *services)
{
	int n = service_thread_progress(&services->thread);

	service_thread_time(&services->thread, 0); /* which has its own look at what was counted */
	return n;
}

static int kv_fd_of(const struct services *services)
{
	return services->kv->service->fd(services->kv);
}

int services_fd(const struct services *services)
{
	const struct service_part *part = services->thread.part[WIRE_GPU];

	return part ? part->service->fd(part) : -1;
}

void services_readable(struct services *services)
{
	struct service_part *part = services->thread.part[WIRE_GPU];

	part->service->readable(part);
}

bool services_arm(struct services *services)
{
	return service_thread_arm(&services->thread);
}

void services_disarm(struct services *services)
{
	service_thread_disarm(&services->thread);
}

uint64_t services_deadline(const struct services *services)
{
	return service_thread_deadline(&services->thread);
}

void services_end(struct services *services)
{
	service_thread_end(&services->thread);
}

struct service_counts services_counts(const struct services *services)
{
	struct service_counts counts = {0};

	service_thread_get_counts(&services->thread, &counts);
	return counts;
}

uint64_t *services_counter(struct service_counts *counts, const char *name)
{
	for (unsigned id = 0; id < WIRE_SERVICES; id++) {
		const struct service *service = service_find(id);

		for (unsigned i = 0; service && service->counters && service->counters[i]; i++)
			if (strcmp(service->counters[i], name) == 0)
				return &counts->of[id][i];
	}
	REQUIRE(!"there is no such counter");
	return NULL;
}

uint64_t services_count(const struct services *services, const char *name)
{
	struct service_counts counts = services_counts(services);

	return *services_counter(&counts, name);
}

unsigned services_sessions(const struct services *services)
{
	return services->thread.active;
}

const struct kv_hold *services_hold(const struct services *services)
{
	return &((const struct kv_shared *)services->shared.of[WIRE_KV])->hold;
}

struct store_stats services_store_stats(const struct services *services)
{
	struct store_stats stats;

	store_get_stats(services->store, &stats);
	return stats;
}

/*
 * The listener
 */
static bool is(const char *transport, const char *name)
{
	return strcmp(transport, name) == 0;
}

static void bind_inet(const char *host)
{
	struct sockaddr_in *in = (struct sockaddr_in *)&server.bound;

	in->sin_family = AF_INET;
	REQUIRE(host && inet_pton(AF_INET, host, &in->sin_addr) == 1);
	server.bound_len = sizeof(*in);
}

static void bind_unix(const char *path)
{
	struct sockaddr_un *un = (struct sockaddr_un *)&server.bound;

	if (!path) {
		strcpy(server.dir, "/tmp/check-XXXXXX");
		REQUIRE(mkdtemp(server.dir));
		snprintf(server.path, sizeof(server.path), "%s/socket", server.dir);
	} else {
		snprintf(server.path, sizeof(server.path), "%s", path);
		unlink(path);
	}
	un->sun_family = AF_UNIX;
	strcpy(un->sun_path, server.path);
	server.bound_len = sizeof(*un);
}

/* It leaves nothing behind, however the process ends. */
static void bind_abstract(void)
{
	struct sockaddr_un *un = (struct sockaddr_un *)&server.bound;

	un->sun_family = AF_UNIX;
	snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1, "rdmad-check-%d", (int)getpid());
	server.bound_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(un->sun_path + 1));
}

static void server_listen(const char *transport, const char *path)
{
	const char *host = is(transport, "rdma") ? getenv("RDMAD_GUEST_ADDR") : "127.0.0.1";
	bool memory = is(transport, "shm"); /* a client of an address without a scheme has it */
	bool unix_socket = is(transport, "unix"), abstract = is(transport, "abstract");

	if (unix_socket)
		bind_unix(path);
	else if (abstract)
		bind_abstract();
	else
		bind_inet(host);
	REQUIRE(fabric_listen(server.queue, (struct sockaddr *)&server.bound, server.bound_len, NULL,
			      &server.listener) == 0);
	if (unix_socket)
		snprintf(server.address, sizeof(server.address), "unix://%s", server.path);
	else if (!abstract)
		snprintf(server.address, sizeof(server.address), "%s%s%s:%u", memory ? "" : transport,
			 memory ? "" : "://", host, fabric_listener_port(server.listener));
	if (!unix_socket && !abstract)
		((struct sockaddr_in *)&server.bound)->sin_port = htons(fabric_listener_port(server.listener));
}

/*
 * The server
 */
static void take_service(struct fabric_event *event)
{
	struct wire_request wire;
	enum wire_reason reason = wire_request_decode(&wire, event->data, event->data_len);

	services_take(&server.services, server.group, event->request, &wire, reason);
}

static void server_make_group(void)
{
	struct fabric_queue_attr attr = {.completions = 16};

	REQUIRE(fabric_queue_create(server.domain, &attr, &server.queue) == 0);
	REQUIRE(conn_group_create(server.domain, &server.attr, &server.group) == 0);
}

/* A fork in the middle of a turn would leave the child the locks that the thread held, for ever. */
static bool resumes;

static void before_fork(void)
{
	resumes = server.running;
	server_pause();
}

static void after_fork(void)
{
	if (resumes)
		server_resume();
}

static void register_at_fork(void)
{
	REQUIRE(pthread_atfork(before_fork, after_fork, NULL) == 0);
}

void server_open(const struct server_options *options)
{
	const char *transport = OR(options->transport, "tcp");
	struct services_options services = options->services;
	static pthread_once_t at_fork = PTHREAD_ONCE_INIT;

	pthread_once(&at_fork, register_at_fork);
	server = (struct test_server){
		.take = OR(options->take, take_service), .work = options->work, .time = options->time};
	REQUIRE(fabric_open(is(transport, "rdma") ? "verbs" : "soft", NULL, &server.fabric) == 0);
	REQUIRE(fabric_domain_create(server.fabric, &server.domain) == 0);
	services.domain = options->no_large ? NULL : server.domain;
	services_open(&server.services, &services);
	server.attr = server_group_attr(options->group);
	server_make_group();
	server_listen(transport, options->path);
}

void server_revive(void)
{
	if (server.dir[0] != '\0')
		unlink(server.path);
	server_make_group();
	REQUIRE(fabric_listen(server.queue, (struct sockaddr *)&server.bound, server.bound_len, NULL,
			      &server.listener) == 0);
}

void server_start(const struct server_options *options)
{
	server_open(options);
	server_resume();
}

void server_die(void)
{
	server_pause();
	if (!server.group)
		return;
	fabric_listener_close(server.listener);
	conn_group_destroy(server.group);
	fabric_queue_destroy(server.queue);
	server.group = NULL;
}

void server_stop(void)
{
	server_die();
	services_close(&server.services);
	fabric_domain_destroy(server.domain);
	fabric_close(server.fabric);
	if (server.dir[0] != '\0') {
		unlink(server.path);
		rmdir(server.dir);
	}
}

/*
 * Turns
 */
int server_turn(void)
{
	uint64_t now = server.time ? server.time : time_now();
	struct fabric_completion c;
	struct fabric_event event;
	int n = 0;

	services_set_time(&server.services, now);
	fabric_poll(server.queue, &c, 1);
	for (; fabric_next_event(server.queue, &event); n++)
		server.take(&event);
	n += conn_group_progress(server.group, now);
	n += services_turn(&server.services);
	return n + (server.work ? server.work() : 0);
}

static void server_sleep(void)
{
	struct fabric_queue *queues[] = {server.queue, conn_group_queue(server.group)};
	struct pollfd pfd[2 * FABRIC_MAX_FDS + 1];
	int fds[FABRIC_MAX_FDS];
	bool quiet = services_arm(&server.services);
	nfds_t n = 0;

	for (unsigned q = 0; q < 2; q++)
		fabric_arm(queues[q]);
	if (server_turn() || !quiet) {
		services_disarm(&server.services);
		return;
	}
	for (unsigned q = 0; q < 2; q++)
		for (int i = fabric_fds(queues[q], fds); i-- > 0;)
			pfd[n++] = (struct pollfd){.fd = fds[i], .events = POLLIN};
	pfd[n++] = (struct pollfd){.fd = kv_fd_of(&server.services), .events = POLLIN}; /* -1: none */
	poll(pfd, n, 10);
	if (pfd[n - 1].revents)
		server.services.kv->service->readable(server.services.kv);
	services_disarm(&server.services);
}

static void *server_run(void *arg)
{
	while (!server.stop)
		if (!server_turn())
			server_sleep();
	return arg;
}

void server_resume(void)
{
	server.stop = false;
	REQUIRE(pthread_create(&server.thread, NULL, server_run, NULL) == 0);
	server.running = true;
}

void server_pause(void)
{
	if (!server.running)
		return;
	server.stop = true;
	pthread_join(server.thread, NULL);
	server.running = false;
}

void server_ignores_established(struct conn *conn)
{
	(void)conn;
}

void server_ignores_closed(struct conn *conn, int error, const char *reason)
{
	(void)conn;
	(void)error;
	(void)reason;
}
