/*
 * session.c: what peers do by themselves: connect, and make a connection anew that broke. A session is known by a
 * random number and a secret, both from the side that connected; another program that comes in its place lacks the
 * secret.
 */
#include "peer/links/connect.h"

#include <stdlib.h>
#include <sys/random.h>

#define PAUSE_FIRST (20 * TIME_MS) /* before a connection that broke is made anew; doubles */
#define PAUSE_MOST (2 * TIME_S)

int session_create(struct peer *peer)
{
	struct peer_session *session = calloc(1, sizeof(*session));

	if (!session)
		return -ENOMEM;
	list_init(&session->node);
	session->peer = peer;
	session->dial = (struct dial){
		.ops = &peer_dial_ops,
		.target = session->target,
		.first = DIAL_FIRST,
		.last = TIME_NEVER,
		.pauses = {PAUSE_FIRST, PAUSE_MOST},
	};
	if (getrandom(&session->id, sizeof(session->id), 0) != sizeof(session->id) ||
	    getrandom(session->secret, sizeof(session->secret), 0) != sizeof(session->secret)) {
		free(session);
		return -ENOSYS;
	}
	peer->session = session;
	return 0;
}

void session_destroy(struct peer *peer)
{
	session_rest(peer);
	free(peer->session);
}

void session_watch(struct peer *peer)
{
	struct peer_session *session = peer->session;

	if (!list_linked(&session->node))
		list_add_tail(&peer->ctx->connections->sessions, &session->node);
}

void session_rest(struct peer *peer)
{
	if (list_linked(&peer->session->node))
		list_del(&peer->session->node);
}

bool session_resumes(const struct peer *peer)
{
	return peer->ctx->options.reconnect_ms && peer->session->their_reconnect_ms;
}

/*
 * A connection that broke
 */
void session_broken(struct peer *peer, const char *reason)
{
	struct peer_session *session = peer->session;
	uint64_t now = time_now();

	peer_closed(peer);
	peer_set_state(peer, PEER_BROKEN);
	log_info("peer", "%s: the connection broke: %s", peer->name, reason);
	snprintf(session->broken_why, sizeof(session->broken_why), "%s", reason);
	session->broken_until = time_after(now, peer->ctx->options.reconnect_ms * TIME_MS);
	session->dial.until = session->broken_until;
	session->dial.pauses.next = PAUSE_FIRST;
	session->dial.why[0] = '\0';
	dial_again(&session->dial, now);
	session_watch(peer);
}

void session_refused(struct peer *peer, int error, const char *words)
{
	if (peer->state == PEER_BROKEN) {
		peer_lose(peer, error, "the connection broke (%s), and was not made anew: %s",
			  peer->session->broken_why, words);
		return;
	}
	dial_failed(&peer->session->dial, error, words, true);
	link_close(peer_link_of(peer), error, words);
}

/*
* A peer that comes back
 */
static struct peer *find_session(rdma_context *ctx, const struct wire_peer_hello *hello)
{
	for (uint32_t i = 0; i < ctx->peers; i++) {
		struct peer_session *session = ctx->peer[i]->session;

		if (session->id == hello->session && !session->dials && secret_same(session->secret, hello->secret))
			return ctx->peer[i];
	}
	return NULL;
}

static void session_resume(struct peer *peer, struct peer_link *link)
{
	link_leave_guests(link);
	link->state = LINK_OPEN;
	link->peer = peer;
	peer->conn = link->conn;
	peer->engine = link->engine;
	peer->transport = link->transport;
	if (link_say_hello(link, WIRE_PEER_RESUME, WIRE_REPLY) != 0)
		return; /* it ends by itself */
	peer_begin(peer, &link->hello);
}

/* The old connection has to be freed first: the device may still use the memory of what was under way. */
void session_come_back(struct peer_link *link)
{
	struct peer *peer = find_session(link->ctx, &link->hello);

	if (!peer || (peer->state != PEER_CONNECTED && peer->state != PEER_BROKEN) || !peer->resumes)
		link_refuse(link, WIRE_NOT_FOUND, "the session is over here%s%s", peer ? ": " : "",
			    peer ? peer->why : "");
	else if (peer->conn)
		link_close(peer_link_of(peer), -ECONNRESET, "the peer came back on another connection");
	else
		session_resume(peer, link);
}

/*
 * Time
 */
static void look_connecting(struct peer *peer, uint64_t now)
{
	struct peer_session *session = peer->session;
	struct dial *dial = &session->dial;
	struct peer_link *link = peer_link_of(peer);
	int rc;

	if (link && link->state == LINK_ASKING) {
		if (crossing_look(peer) || now < dial->until)
			return;
		dial->error = -ETIMEDOUT;
		peer_lose(peer, -ETIMEDOUT,
			  "it was not accepted within %llu ms; does the server call rdma_accept_peer()?",
			  (unsigned long long)peer->ctx->options.connect_timeout_ms);
		return;
	}
	rc = dial_turn(dial, now);
	if (rc == 0)
		return;
	if (session->given_up && !dial->final && !session->group && now < dial->until) {
		/* Where many come at once, one may have had to give way to others. Groups try anew by themselves. */
		session->given_up = false;
		dial_again(dial, now);
		return;
	}
	dial->error = rc;
	peer_lose(peer, rc, "%s", dial->why);
}

static void look_broken(struct peer *peer, uint64_t now)
{
	struct peer_session *session = peer->session;

	if (now >= session->broken_until)
		peer_lose(peer, -ETIMEDOUT, "the connection broke (%s), and was not made anew within %llu ms%s%s",
			  session->broken_why, (unsigned long long)peer->ctx->options.reconnect_ms,
			  session->dial.why[0] ? ": " : "", session->dial.why);
	else if (session->dials && dial_turn(&session->dial, now) != 0)
		dial_again(&session->dial, now);
}

static uint64_t session_deadline(const struct peer *peer)
{
	const struct peer_session *session = peer->session;

	if (session->parts)
		return session->broken_until;
	if (peer->state == PEER_CONNECTING)
		return dial_deadline(&session->dial);
	return session->dials ? MIN(session->broken_until, dial_deadline(&session->dial)) : session->broken_until;
}

static uint64_t sessions_deadline(const rdma_context *ctx)
{
	uint64_t deadline = pending_deadline(&ctx->connections->guests);

	list_for_each (pos, &ctx->connections->sessions)
		deadline = MIN(deadline, session_deadline(container_of(pos, struct peer_session, node)->peer));
	return deadline;
}

static int links_turn(rdma_context *ctx, uint64_t now, bool arm)
{
	struct list *head = &ctx->connections->sessions, *pos, *tmp;
	int work = listen_turn(ctx, now, arm);

	pending_turn(&ctx->connections->guests, now);
	list_for_each_safe (pos, tmp, head) {
		struct peer *peer = container_of(pos, struct peer_session, node)->peer;

		if (peer->session->parts)
			peer_parts(peer, now);
		else if (peer->state == PEER_CONNECTING)
			look_connecting(peer, now);
		else if (peer->state == PEER_BROKEN)
			look_broken(peer, now);
	}
	return work;
}

const struct peer_layer peer_links = {
	.turn = links_turn,
	.deadline = sessions_deadline,
};
