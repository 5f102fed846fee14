/*
 * far.c: towards a host, stage by stage and by each transport. A stage counts as verified when it was done; where one
 * fails no later one is tried, and none is claimed.
 */
#include "ctl/doctor/doctor.h"
#include "rdmad/ping.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define STAGE_LIMIT (5 * TIME_S) /* unless --timeout says less */

/* Messages of a while, in which the ports' counters of errors are watched: D20. */
#define LOAD "load" /* the stage's name */
#define LOAD_TIME (2 * TIME_S)
#define LOAD_SIZE 65536u
#define LOAD_DEPTH 4u

/* Of pings. The last is the longest that there is: 1 MiB with its head. */
static const uint32_t sizes[] = {64, 4096, 65536, RDMAD_PING_SIZE_MAX};

struct path {
	struct doctor *d;
	const char *host, *transport;
	struct address address;
	json_t *stages;
	char furthest[64], failed[64], why[512];
	int error;        /* of the stage that failed; 0: none did */
	uint32_t largest; /* bytes of a ping that came back */
	struct cm_way way;
};

static uint64_t stage_limit(void)
{
	return MIN(ctl.timeout, STAGE_LIMIT);
}

static void stage_verified(struct path *path, const char *name, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static void stage_verified(struct path *path, const char *name, const char *format, ...)
{
	char figures[256];
	va_list args;

	va_start(args, format);
	vsnprintf(figures, sizeof(figures), format, args);
	va_end(args);
	snprintf(path->furthest, sizeof(path->furthest), "%s", name);
	json_array_append_new(path->stages,
			      json_pack("{s:s, s:b, s:s}", "stage", name, "verified", true, "figures", figures));
}

static void stage_failed(struct path *path, const char *name, int error, const char *why)
{
	path->error = error;
	snprintf(path->failed, sizeof(path->failed), "%s", name);
	snprintf(path->why, sizeof(path->why), "%s", why && *why ? why : strerror(-error));
	json_array_append_new(path->stages,
			      json_pack("{s:s, s:b, s:s}", "stage", name, "verified", false, "figures", path->why));
}

/*
 * Stages.
 */

/* The address of this machine from which packets go there: the kernel's route says. */
static int find_source(const struct address_socket *to, struct sockaddr_storage *from)
{
	int fd = socket(to->sa.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc = 0;
	socklen_t len = sizeof(*from);

	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)&to->sa, to->len) != 0 ||
	    getsockname(fd, (struct sockaddr *)from, &len) != 0)
		rc = -errno;
	close(fd);
	((struct sockaddr_in *)from)->sin_port = 0; /* at the same place in both families */
	return rc;
}

/* The stages of rdma_cm in front of a connection. */
static bool walk_cm(struct path *path, const struct address_socket *to)
{
	struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
	int error = find_source(to, &from);
	enum cm_stage stage;
	char text[128], why[256];

	if (error) {
		stage_failed(path, "route of IP", error, NULL);
		return false;
	}
	stage = verbs_resolve((const struct sockaddr *)&from, (const struct sockaddr *)&to->sa,
			      (int)(stage_limit() / 2 / TIME_MS), &error, &path->way);
	address_format_socket((const struct sockaddr *)&from, text, sizeof(text));
	*strrchr(text, ':') = '\0'; /* it has no port */
	if (stage >= CM_BIND)
		stage_verified(path, cm_stage_name(CM_BIND), "%s, device %s", text,
			       *path->way.device ? path->way.device : "unknown");
	if (stage >= CM_ADDRESS)
		stage_verified(path, cm_stage_name(CM_ADDRESS), "GID %s here, %s there", path->way.from_gid,
			       path->way.to_gid);
	if (stage >= CM_ROUTE)
		stage_verified(path, cm_stage_name(CM_ROUTE), "port %u, packets of %u B", path->way.port,
			       path->way.mtu);
	if (error) {
		snprintf(why, sizeof(why), "from %s: %s", text, strerror(-error));
		stage_failed(path, cm_stage_name((enum cm_stage)(stage + 1)), error, why);
	}
	return !error;
}

/* Whether the other end has answered, by refusing: so there is a connection as far as the network goes. */
static bool is_refusal(int error)
{
	return error == -EACCES || error == -EPERM || error == -EPROTONOSUPPORT || error == -EUSERS ||
	       error == -EMSGSIZE || error == -EOPNOTSUPP || error == -ENOKEY || error == -EKEYREJECTED;
}

/* `limit`: of each message. */
static int open_ping(const struct path *path, struct rdmad_ping_options options, uint64_t limit,
		     struct rdmad_ping **out)
{
	char url[320];

	snprintf(url, sizeof(url), strchr(path->address.host, ':') ? "%s://[%s]:%u" : "%s://%s:%u", path->transport,
		 path->address.host, path->address.port);
	ctl_library_options(&options.common);
	options.common.require_rdma = false;
	options.common.connect_timeout_us = stage_limit() / TIME_US;
	options.common.timeout_us = limit / TIME_US;
	return rdmad_ping_open(url, &options, out);
}

/* Open one, send and receive: -errno, with the stage that failed. */
static int ping_once(struct path *path, uint32_t size, uint64_t *rtt)
{
	struct rdmad_ping *ping;
	char stage[64];
	const struct rdmad_ping_options options = {.size = size, .count = 1, .verify = true};
	int rc = open_ping(path, options, stage_limit(), &ping);

	if (rc != 0 && !path->largest) {
		if (is_refusal(rc) && strcmp(path->transport, scheme_rdma) == 0)
			stage_verified(path, "connect", "the other end answers");
		stage_failed(path, is_refusal(rc) || strcmp(path->transport, scheme_tcp) == 0 ? "handshake" : "connect",
			     rc, rdmad_error());
		return rc;
	}
	snprintf(stage, sizeof(stage), "message of %u B", size);
	if (rc != 0) {
		stage_failed(path, stage, rc, rdmad_error());
		return rc;
	}
	if (!path->largest && strcmp(path->transport, scheme_rdma) == 0)
		stage_verified(path, "connect", "rdma_connect");
	if (!path->largest)
		stage_verified(path, "handshake", "transport %s", rdmad_ping_transport(ping));
	rc = rdmad_ping_send(ping);
	if (rc == 0)
		rc = rdmad_ping_receive(ping, rtt);
	if (rc != 0)
		stage_failed(path, stage, rc, rdmad_error());
	else
		stage_verified(path, stage, "round trip %.1f us", (double)*rtt / 1e3);
	if (rc == 0 && !path->largest)
		there_ask(path->d, ping, path->host);
	rdmad_ping_close(ping);
	return rc;
}

static void walk_load(struct path *path)
{
	const struct rdmad_ping_options options = {.size = LOAD_SIZE, .depth = LOAD_DEPTH, .verify = true};
	uint64_t began = time_now(), sent = 0, received = 0, rtt;
	struct rdmad_ping *ping;
	int rc = open_ping(path, options, ctl.timeout, &ping); /* a slow way is no fault */
	bool open = rc == 0;

	while (rc == 0 && (time_now() - began < LOAD_TIME || received < sent)) {
		if (time_now() - began < LOAD_TIME && sent - received < LOAD_DEPTH) {
			rc = rdmad_ping_send(ping);
			sent += rc == 0;
		} else {
			rc = rdmad_ping_receive(ping, &rtt);
			received += rc == 0;
		}
	}
	if (rc == 0)
		stage_verified(path, LOAD, "%" PRIu64 " messages of %u B in %.1f s", received, LOAD_SIZE,
			       (double)(time_now() - began) / (double)TIME_S);
	else
		stage_failed(path, LOAD, rc, rdmad_error());
	if (open)
		rdmad_ping_close(ping);
}

static void walk_pings(struct path *path)
{
	uint64_t rtt;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		if (ping_once(path, sizes[i], &rtt) != 0)
			return;
		path->largest = sizes[i];
	}
	walk_load(path);
}

/* All addresses of the name: the first one to which its first stages go decides. */
static void walk_tcp(struct path *path, const struct address_socket *at, int count)
{
	int rc = 0;

	for (int i = 0; i < count; i++) {
		rc = address_connect(&at[i], stage_limit());
		if (rc >= 0)
			break;
	}
	if (rc < 0) {
		stage_failed(path, "connect", rc, NULL);
		return;
	}
	close(rc);
	stage_verified(path, "connect", "port %u", path->address.port);
	walk_pings(path);
}

static void walk_rdma(struct path *path, const struct address_socket *to)
{
	if (walk_cm(path, to))
		walk_pings(path);
}

/*
 * What is found.
 */

/* A size that does not work where smaller ones do: without an answer it is lost on the way; else it was refused. */
static void judge_sizes(struct path *path)
{
	bool lost = path->error == -ETIMEDOUT || path->error == -ENOTCONN || path->error == -ECONNRESET ||
		    path->error == -EPIPE || path->error == -EHOSTUNREACH || path->error == -ENETUNREACH;

	finding_add(path->d, lost ? 4007 : 4011, NAMES("HOST", path->address.host),
		    "%s: %u B come back, %s does not: %s", path->transport, path->largest, path->failed, path->why);
}

static unsigned fault_of_tcp(const struct path *path)
{
	if (strcmp(path->failed, "connect") == 0)
		return path->error == -ECONNREFUSED ? 4002 : 4003;
	return strcmp(path->failed, "handshake") == 0 ? 4004 : 4008;
}

static unsigned fault_of_rdma(const struct path *path)
{
	if (strcmp(path->failed, "handshake") == 0)
		return 4004;
	if (strcmp(path->failed, "connect") == 0)
		return 4006;
	return strncmp(path->failed, "message", 7) == 0 ? 4008 : 4005;
}

/* `other` is the path by the other transport, NULL: it was not tried. */
static void judge_path(struct path *path, const struct path *other)
{
	bool is_tcp = strcmp(path->transport, scheme_tcp) == 0;
	char port[16];

	if (!path->error)
		return;
	if (strcmp(path->failed, LOAD) == 0) {
		finding_add(path->d, 4012, NAMES("HOST", path->address.host), "%s: %s", path->transport, path->why);
		return;
	}
	if (path->largest) {
		judge_sizes(path);
		return;
	}
	snprintf(port, sizeof(port), "%u", path->address.port);
	finding_add(path->d,
		    is_tcp && other && other->largest ? 4010
		    : is_tcp                          ? fault_of_tcp(path)
						      : fault_of_rdma(path),
		    NAMES("HOST", path->address.host, "PORT", port), "%s to %s: verified %s; %s fails: %s",
		    path->transport, path->host, *path->furthest ? path->furthest : "nothing", path->failed, path->why);
}

static void path_done(struct path *path)
{
	json_t *o = json_pack("{s:s, s:s, s:s, s:I, s:o}", "transport", path->transport, "host", path->host, "furthest",
			      *path->furthest ? path->furthest : "nothing", "largest_bytes", (json_int_t)path->largest,
			      "stages", path->stages);

	json_array_append_new(path->d->paths, o);
}

void far_look(struct doctor *d, const char *host)
{
	struct path by_tcp = {.d = d, .host = host, .transport = scheme_tcp, .stages = json_array()};
	struct path by_rdma = {.d = d, .host = host, .transport = scheme_rdma, .stages = json_array()};
	struct address_socket at[ADDRESS_SOCKETS];
	bool try_tcp, try_rdma;
	struct address address;
	const char *why;
	char list[256] = "";
	int count;

	d->paths = json_array();
	address_parse(host, &address); /* it was looked at before */
	try_tcp = !*address.scheme || strcmp(address.scheme, scheme_tcp) == 0;
	try_rdma = !*address.scheme || strcmp(address.scheme, scheme_rdma) == 0;
	by_tcp.address = by_rdma.address = address;
	log_hush_begin();
	count = address_resolve(&address, at);
	why = log_hush_end();
	if (count <= 0) {
		finding_add(d, 4001, NAMES("HOST", address.host), "%s", *why ? why : "the name has no address");
		stage_failed(&by_tcp, "name", -EHOSTUNREACH, why);
		stage_failed(&by_rdma, "name", -EHOSTUNREACH, why);
		try_tcp = try_rdma = false;
	}
	for (int i = 0; i < count; i++) {
		char text[128];

		address_format_socket((const struct sockaddr *)&at[i].sa, text, sizeof(text));
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", *list ? ", " : "", text);
	}
	if (try_tcp) {
		stage_verified(&by_tcp, "name", "%s", list);
		walk_tcp(&by_tcp, at, count);
	}
	if (try_rdma)
		stage_verified(&by_rdma, "name", "%s", list);
	if (try_rdma && !d->ports)
		stage_failed(&by_rdma, "rdma_create_id", -ENODEV, "there is no RDMA device here");
	else if (try_rdma)
		walk_rdma(&by_rdma, &at[0]);
	if (try_tcp)
		judge_path(&by_tcp, try_rdma ? &by_rdma : NULL);
	if (try_rdma && (d->ports || !try_tcp)) /* else D01 has told it */
		judge_path(&by_rdma, NULL);
	d->check = "D41";
	there_judge(d, address.host, &by_rdma.way);
	path_done(&by_tcp);
	path_done(&by_rdma);
}

void far_print(const struct doctor *d)
{
	json_t *path, *stage;
	size_t i, k;

	json_array_foreach(d->paths, i, path)
	{
		if (!json_array_size(json_object_get(path, "stages")))
			continue; /* the address says another transport */
		printf("%s by %s: furthest stage verified: %s\n", json_string_value(json_object_get(path, "host")),
		       json_string_value(json_object_get(path, "transport")),
		       json_string_value(json_object_get(path, "furthest")));
		json_array_foreach(json_object_get(path, "stages"), k, stage)
		{
			char line[1024];

			printf("  %-3s %-22s %s\n", json_is_true(json_object_get(stage, "verified")) ? "yes" : "no",
			       json_string_value(json_object_get(stage, "stage")),
			       log_printable(json_string_value(json_object_get(stage, "figures")), line, sizeof(line)));
		}
	}
	there_print(d);
}
