/* dial.c: from an address to a connection, by the best transport that both ends have; without waiting. */
#include "peer/links/connect.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#define FIRST_ATTEMPT (2 * TIME_S) /* before another transport is tried: a host may swallow RDMA's packets */

static int dial_add(struct peer_dial *dial, const struct fabric_transport *transport, const struct address *address)
{
	struct address_socket to[ADDRESS_SOCKETS];
	int count = fabric_transport_resolve(transport, address, to);

	for (int i = 0; i < count && dial->targets < PEER_TARGETS; i++) {
		struct sockaddr_in *sa =
			(struct sockaddr_in *)&to[i].sa; /* the ports of both families are at one place */

		if (!address->path)
			sa->sin_port = htons(address->port);
		dial->target[dial->targets++] = (struct dial_target){transport, to[i]};
	}
	return count < 0 ? count : 0;
}

int dial_from(rdma_context *ctx, const char *ip)
{
	struct peer_connections *c = ctx->connections;
	struct address address;
	int rc;

	if (!ip || !*ip)
		return 0;
	rc = fabric_address_parse(ip, &address);
	if (rc == 0 && !address.path)
		rc = c->froms = address_resolve(&address, c->from);
	if (rc < 0) {
		c->froms = 0;
		return rdma_fail_logged(rc, "Invalid parameters");
	}
	snprintf(c->ip, sizeof(c->ip), "%s", ip);
	for (int i = 0; i < c->froms; i++) {
		((struct sockaddr_in *)&c->from[i].sa)->sin_port = 0;
		if (address_is_unspecified((struct sockaddr *)&c->from[i].sa))
			c->froms = 0;
	}
	return 0;
}

/* The own address of the same family, or NULL. */
static const struct sockaddr *dial_source(const rdma_context *ctx, int family)
{
	const struct peer_connections *c = ctx->connections;

	for (int i = 0; i < c->froms; i++)
		if (c->from[i].sa.ss_family == family)
			return (const struct sockaddr *)&c->from[i].sa;
	return NULL;
}

static int dial_resolve_one(rdma_context *ctx, const char *text, int port, struct peer_dial *out)
{
	struct address address;
	bool any = false;
	int rc = fabric_address_parse(text, &address);

	if (rc != 0)
		return rc;
	if (!address.path && (port || !address.port_given))
		address.port = (uint16_t)port;
	if (!address.path && !address.port) {
		log_error("peer", "port 0 of %s is none to connect to", text);
		return -EINVAL;
	}
	for (unsigned i = 0; i < FABRIC_TRANSPORTS && rc == 0; i++) {
		const struct fabric_transport *t = &fabric_transports[i];

		if (!fabric_transport_serves(t, &address) || (ctx->options.require_rdma && t->processor))
			continue;
		any = true;
		rc = dial_add(out, t, &address);
	}
	if (any)
		return out->targets ? 0 : rc;
	log_error("peer", "%s is not RDMA, which is required", text);
	return -EINVAL;
}

int dial_resolve(rdma_context *ctx, const char *text, int port, struct peer_dial *out)
{
	int rc = -EINVAL;
	char one[300];

	for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
		size_t n = strcspn(text, " ");

		snprintf(one, sizeof(one), "%.*s", (int)MIN(n, sizeof(one) - 1), text);
		text += n;
		rc = dial_resolve_one(ctx, one, port, out);
	}
	if (rc == -EINVAL && !*log_last())
		log_error("peer", "the address is empty");
	return out->targets ? 0 : rc;
}

static const struct {
	int error;
	const char *next;
} hints[] = {
	{-ECONNREFUSED, "; nothing listens there: is the server up, and is this its port?"},
	{-ETIMEDOUT, "; does the server call rdma_accept_peer(), is the host up, and no firewall between?"},
	{-EADDRNOTAVAIL, "; is the address that rdma_init() was given one of this machine?"},
};

void dial_failed(struct peer *peer, int error, const char *why, bool final)
{
	struct peer_dial *dial = &peer->session->dial;
	const struct dial_target *target = dial->next && !final ? &dial->target[dial->next - 1] : NULL;
	char where[120] = "";
	const char *next = "";

	for (size_t i = 0; i < ARRAY_SIZE(hints) && !final; i++)
		if (error == hints[i].error)
			next = hints[i].next;
	dial->error = error;
	dial->final = final;
	if (target && !target->transport->path)
		address_format_socket((const struct sockaddr *)&target->to.sa, where, sizeof(where));
	snprintf(dial->why, sizeof(dial->why), "%s%s%s%s%s%s", target ? target->transport->text : "",
		 *where ? " to " : "", where, target ? ": " : "", why, next);
	dial->attempt_until = 0;
}

/* 0, or -errno with dial->why. */
static int dial_target(struct peer *peer, const struct dial_target *target, uint64_t now)
{
	struct conn_attr attr = {.from = dial_source(peer->ctx, target->to.sa.ss_family), .memory = target->to.memory};
	struct wire_request request = {.service = WIRE_PEER};
	struct auth_key ticket = {0};
	struct peer_link *link;
	struct engine *engine;
	int rc;

	log_hush_begin();
	rc = context_engine(peer->ctx, target->transport, &engine);
	if (rc != 0) {
		const char *logged = log_hush_end();

		dial_failed(peer, rc, *logged ? logged : strerror(-rc), false);
		return rc;
	}
	log_hush_end();
	link = link_new(peer->ctx, engine, target->transport);
	if (!link)
		return -ENOMEM;
	request.credits = conn_group_attr(engine_group(engine))->credits;
	request.message_size = conn_group_attr(engine_group(engine))->message_size;
	request.count = peer->session->ticket;
	attr.key = request.count ? engine_key_ticket(engine_key_of(engine), request.count, &ticket)
				 : engine_key_to(engine_key_of(engine), (const struct sockaddr *)&target->to.sa);
	link->state = LINK_CONNECTING;
	if (request.count && !attr.key)
		rc = -EACCES; /* the group is gone, and its secret with it */
	else
		rc = conn_connect(engine_group(engine), (const struct sockaddr *)&target->to.sa, target->to.len,
				  &request, &attr, &link_ops, link, now, &link->conn);
	auth_wipe(&ticket, sizeof(ticket));
	if (rc != 0) {
		link_free(link);
		dial_failed(peer, rc, strerror(-rc), rc == -EACCES);
		return rc;
	}
	link->peer = peer;
	peer->conn = link->conn;
	peer->engine = engine;
	peer->transport = target->transport;
	return 0;
}

int dial_next(struct peer *peer, uint64_t now)
{
	struct peer_dial *dial = &peer->session->dial;
	int rc = dial->error ? dial->error : -ETIMEDOUT;

	while (!dial->final && dial->next < dial->targets && now < dial->until) {
		const struct dial_target *target = &dial->target[dial->next++];
		uint64_t most = dial->attempt ? dial->attempt : dial->next < dial->targets ? FIRST_ATTEMPT : TIME_NEVER;

		dial->attempt_until = MIN(dial->until, time_after(now, most));
		rc = dial_target(peer, target, now);
		if (rc == 0)
			return 0;
	}
	return rc;
}
