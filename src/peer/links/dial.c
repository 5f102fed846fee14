/* dial.c: what the dialer needs to know of peers: addresses, own ones, how a connection begins, and the hints. */
#include "peer/links/connect.h"

#include <arpa/inet.h>
#include <netinet/in.h>

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

static const struct {
	int error;
	const char *next;
} hints[] = {
	{-ECONNREFUSED, "; nothing listens there: is the server up, and is this its port?"},
	{-ETIMEDOUT, "; does the server call rdma_accept_peer(), is the host up, and no firewall between?"},
	{-EADDRNOTAVAIL, "; is the address that rdma_init() was given one of this machine?"},
};

/* A server's refusal is a sentence of its own. */
static void peer_explain(const struct dial *dial, const struct dial_target *target, const char *reason, char *out,
			 size_t size)
{
	char where[120] = "";
	const char *next = "";

	if (dial->final || !target) {
		snprintf(out, size, "%s", reason);
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(hints); i++)
		if (dial->error == hints[i].error)
			next = hints[i].next;
	if (!target->transport->path)
		address_format_socket((const struct sockaddr *)&target->to.sa, where, sizeof(where));
	snprintf(out, size, "%s%s%s: %s%s", target->transport->text, *where ? " to " : "", where, reason, next);
}

static int peer_begin_dial(struct dial *dial, const struct dial_target *target, uint64_t now)
{
	struct peer *peer = container_of(dial, struct peer_session, dial)->peer;
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

		dial_failed(dial, rc, *logged ? logged : strerror(-rc), false);
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
		dial_failed(dial, rc, strerror(-rc), rc == -EACCES);
		return rc;
	}
	link->peer = peer;
	peer->conn = link->conn;
	peer->engine = engine;
	peer->transport = target->transport;
	return 0;
}

static void peer_abandon(struct dial *dial, const char *why)
{
	struct peer *peer = container_of(dial, struct peer_session, dial)->peer;
	struct peer_link *link = peer_link_of(peer);

	if (!link)
		return;
	link->peer = NULL;
	peer->conn = NULL;
	link_close(link, -ETIMEDOUT, why);
}

const struct dial_ops peer_dial_ops = {
	.begin = peer_begin_dial,
	.abandon = peer_abandon,
	.explain = peer_explain,
};

static int resolve_one(struct dial *dial, const char *text, int port, bool require_rdma)
{
	unsigned before = dial->targets;
	struct address address;
	int rc = fabric_address_parse(text, &address);

	if (rc != 0)
		return rc;
	if (!address.path && (port || !address.port_given))
		address.port = (uint16_t)port;
	if (!address.path && !address.port)
		return log_fail(-EINVAL, "peer", "port 0 of %s is none to connect to", text);
	rc = dial_resolve(dial, "peer", text, &address, require_rdma, NULL);
	for (unsigned i = before; i < dial->targets && !address.path; i++)
		((struct sockaddr_in *)&dial->target[i].to.sa)->sin_port = htons(address.port); /* of both families */
	return rc;
}

int peer_dial(struct peer *peer, const char *text, int port)
{
	const rdma_options *options = &peer->ctx->options;
	struct dial *dial = &peer->session->dial;
	int rc = -EINVAL;
	char one[300];

	for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
		size_t n = strcspn(text, " ");

		snprintf(one, sizeof(one), "%.*s", (int)MIN(n, sizeof(one) - 1), text);
		text += n;
		rc = resolve_one(dial, one, port, options->require_rdma);
	}
	if (rc == -EINVAL && !*log_last())
		log_error("peer", "the address is empty");
	dial->until = time_after(time_now(), options->connect_timeout_ms * TIME_MS);
	return dial->targets ? 0 : rc;
}
