/* ping.c: the agent that answers one client's pings with the same bytes. */
#include "service/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/resource.h>

#define MEASURED 1000 /* round trips; fewer are a health check, which does not fill the log */

enum { PING_COUNT_AGENTS, PING_COUNT_PINGS };
static const char *const counters[] = {
	[PING_COUNT_AGENTS] = "ping_agents", [PING_COUNT_PINGS] = "pings", [PING_COUNT_PINGS + 1] = NULL};

struct ping_shared {
	size_t (*facts)(void *arg, char out[static WIRE_FACTS_MAX]); /* NULL: there are none */
	void *arg;
};

struct ping_agent {
	struct service_part *part;
	uint64_t echoes, begun;
	struct rusage usage; /* of the worker's thread when the first ping came */
};

static int ping_open(const struct service_host *host, const void *settings, void **shared)
{
	struct ping_shared *ping = calloc(1, sizeof(*ping));

	(void)settings;
	if (!ping)
		return log_fail(-ENOMEM, "ping", "no memory");
	ping->facts = host->facts;
	ping->arg = host->arg;
	*shared = ping;
	return 0;
}

static enum wire_reason ping_admit(struct service_part *part, const struct service_way *way,
				   const struct wire_request *request, struct wire_accept *grant, uint64_t *detail)
{
	const struct ping_shared *shared = part->shared;
	uint32_t most = WIRE_BODY_MAX(conn_group_attr(way->group)->message_max);

	if (shared->facts)
		grant->flags |= WIRE_FACTS;
	if (request->size > most || request->size > WIRE_BODY_MAX(request->message_size)) {
		*detail = most;
		return WIRE_REASON_MESSAGE_SIZE;
	}
	return WIRE_REASON_NONE;
}

static void *ping_agent_new(struct service_part *part, const struct service_way *way)
{
	struct ping_agent *agent = calloc(1, sizeof(*agent));

	(void)way;
	if (agent) {
		agent->part = part;
		part->count[PING_COUNT_AGENTS]++;
	}
	return agent;
}

static void ping_agent_established(struct conn *conn)
{
	(void)conn;
}

/* What this machine is, for a client that looks for what is wrong between both. */
static int tell_facts(struct conn *conn, const struct wire_record *request)
{
	const struct ping_agent *agent = conn_context(conn);
	const struct ping_shared *shared = agent->part->shared;
	bool may = conn_client(conn)->facts;
	struct wire_record *reply;
	char text[WIRE_FACTS_MAX];
	size_t len;

	if (request->length || !shared->facts)
		return -EPROTO;
	len = may ? shared->facts(shared->arg, text) : 0;
	reply = conn_reserve(conn, (uint32_t)len, NULL);
	if (!reply)
		return -EAGAIN;
	reply->op = WIRE_OP_FACTS;
	reply->flags = WIRE_REPLY;
	reply->id = request->id;
	reply->status = may ? WIRE_OK : WIRE_DENIED;
	memcpy(reply + 1, text, len);
	conn_commit(conn, reply, (uint32_t)len);
	return 0;
}

/* The client said how many pings of which size will come; anything else is not a ping. */
static int ping_agent_record(struct conn *conn, const struct wire_record *ping, const void *body)
{
	struct ping_agent *agent = conn_context(conn);
	const struct wire_request *request = conn_request(conn);
	struct wire_record *pong;

	must(service_part_is_mine(agent->part));
	if (ping->op == WIRE_OP_FACTS)
		return tell_facts(conn, ping);
	if (ping->op != WIRE_OP_ECHO || ping->length != request->size ||
	    (request->count && agent->echoes >= request->count))
		return -EPROTO;
	pong = conn_reserve(conn, ping->length, NULL);
	if (!pong)
		return -EAGAIN;
	if (agent->echoes++ == 0) {
		agent->begun = service_part_now(agent->part);
		getrusage(RUSAGE_THREAD, &agent->usage);
	}
	agent->part->count[PING_COUNT_PINGS]++;
	pong->op = WIRE_OP_ECHO;
	pong->flags = WIRE_REPLY;
	pong->id = ping->id;
	memcpy(pong + 1, body, ping->length);
	conn_commit(conn, pong, ping->length);
	return 0;
}

static double seconds_between(const struct timeval *from, const struct timeval *to)
{
	return (double)(to->tv_sec - from->tv_sec) + (double)(to->tv_usec - from->tv_usec) / 1e6;
}

static void print_statistics(const struct conn *conn, const struct ping_agent *agent)
{
	double seconds = (double)(service_part_now(agent->part) - agent->begun) / (double)TIME_S;
	struct conn_info info;
	struct rusage usage;
	double rate;

	getrusage(RUSAGE_THREAD, &usage);
	conn_get_info(conn, &info);
	rate = seconds > 0 ? (double)agent->echoes / seconds : 0;
	log_at(agent->echoes < MEASURED ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO, "ping",
	       "%s (%s): %" PRIu64 " round trips of %u bytes in %.3f s, %.0f messages/s, "
	       "%.1f Mb/s each way, user %.3f s, system %.3f s",
	       info.peer, info.transport, agent->echoes, conn_request(conn)->size, seconds, rate,
	       rate * conn_request(conn)->size * 8 / 1e6, seconds_between(&agent->usage.ru_utime, &usage.ru_utime),
	       seconds_between(&agent->usage.ru_stime, &usage.ru_stime));
}

static void ping_agent_closed(struct conn *conn, int error, const char *reason)
{
	struct ping_agent *agent = conn_context(conn);

	if (agent->echoes)
		print_statistics(conn, agent);
	if (error)
		service_warn("ping", conn, reason);
	free(agent);
}

static const struct conn_ops ping_agent_ops = {
	.established = ping_agent_established,
	.record = ping_agent_record,
	.closed = ping_agent_closed,
};

const struct service service_ping = {
	.id = WIRE_PING,
	.help = "round trips: each message comes back as it was sent",
	.counters = counters,
	.open = ping_open,
	.always = true,
	.close = free,
	.admit = ping_admit,
	.ops = &ping_agent_ops,
	.agent_new = ping_agent_new,
	.agent_free = free,
	.answers_each = true,
};
