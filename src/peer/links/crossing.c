/*
 * crossing.c: two programs that connect to each other at the same time, each of which would wait for the other one's
 * accept. Both connections tell the numbers of the programs at their ends, as a hello and as the reply that says to
 * wait. The connection of the program with the lower number is kept: that program says so to the other one, by what the
 * other one's reply said; a program that only knows the numbers cannot come in another's place. The other program takes
 * the connection as the answer to its own call, and both have one peer.
 */
#include "peer/links/connect.h"

static struct peer *waiting_find(const rdma_context *ctx, uint64_t program, const uint8_t *token)
{
	list_for_each (pos, &ctx->waiting) {
		struct peer *peer = container_of(pos, struct peer, node);
		const struct peer_session *session = peer->session;

		if (!session->group && (token ? secret_same(session->token, token) : session->other == program))
			return peer;
	}
	return NULL;
}

struct peer_link *waiting_leave(struct peer *waiting)
{
	struct peer_link *link = peer_link_of(waiting);

	link->peer = NULL;
	peer_free(waiting);
	return link;
}

/* The connection of the session that waits is that of the peer, and is accepted. */
static void take_over(struct peer *peer, struct peer *waiting)
{
	struct peer_link *link = waiting_leave(waiting);
	int rc;

	dial_cancel(&peer->session->dial, "both sides connected, and the other connection is used");
	link->peer = peer;
	link->state = LINK_OPEN;
	peer->conn = link->conn;
	peer->engine = link->engine;
	peer->transport = link->transport;
	peer->session->id = link->hello.session;
	memcpy(peer->session->secret, link->hello.secret, sizeof(peer->session->secret));
	peer->session->dials = false;
	peer->session->dial.error = 0; /* that of the other connection counts */
	rc = link_say_hello(link, 0, WIRE_REPLY);
	if (rc == 0)
		peer_answered(peer, &link->hello);
	else
		peer_lose(peer, rc, "both sides connected, and the connection ended");
}

void crossing_use(struct peer *peer, const uint8_t token[static WIRE_PEER_SECRET])
{
	struct peer *waiting = waiting_find(peer->ctx, 0, token);

	if (waiting && peer->state == PEER_CONNECTING && !peer->session->group)
		take_over(peer, waiting);
}

/* Peers that wait here learn which program this is: it may be that it waits for one of them. */
static void tell_waiting(const rdma_context *ctx)
{
	list_for_each (pos, &ctx->waiting) {
		struct peer *peer = container_of(pos, struct peer, node);

		if (peer->session->group || peer->session->waits)
			continue;
		peer->session->waits = true;
		if (link_say_hello(peer_link_of(peer), WIRE_PEER_WAITS, WIRE_REPLY) == 0)
			conn_flush(peer->conn);
	}
}

bool crossing_look(struct peer *peer)
{
	const struct peer_session *session = peer->session;
	uint64_t own = peer->ctx->connections->number;
	struct peer *waiting;

	if (session->group)
		return false;
	tell_waiting(peer->ctx);
	if (session->other == own) {
		peer->session->dial.error = -EINVAL;
		peer_lose(peer, -EINVAL, "this program itself listens there, and accepts nobody while it connects");
		return true;
	}
	waiting = own < session->other ? waiting_find(peer->ctx, session->other, NULL) : NULL;
	if (!waiting)
		return false;
	memcpy(waiting->session->token, session->token, sizeof(session->token));
	if (link_say_hello(peer_link_of(waiting), WIRE_PEER_CROSSES, WIRE_REPLY) == 0) {
		conn_flush(waiting->conn);
		link_over(waiting_leave(waiting)); /* the other one closes it */
	}                                          /* else it ends, or has no room yet */
	return false;
}
