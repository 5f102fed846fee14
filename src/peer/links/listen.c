/*
 * listen.c: the side that is connected to. A connection is pending until it has said hello; there are few places for
* such. The one that says nothing for longest gives way, but one that has asked never does. Then it waits to be
 * accepted, comes back to its session, or is refused.
 */
#include "peer/links/connect.h"

#include <stdlib.h>
#include <sys/random.h>

int connections_create(rdma_context *ctx)
{
	struct peer_connections *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	if (getrandom(&c->number, sizeof(c->number), 0) != sizeof(c->number)) {
		free(c);
		return -ENOSYS;
	}
	c->number |= 1; /* 0 is no session's */
	list_init(&c->links);
	list_init(&c->sessions);
	list_init(&c->expected);
	pending_init(&c->guests, &link_guests);
	ctx->connections = c;
	return 0;
}

void connections_close(rdma_context *ctx)
{
	struct list *links = &ctx->connections->links, *pos, *tmp;

	doors_close(&ctx->connections->doors);
	list_for_each_safe (pos, tmp, links)
		link_close(container_of(pos, struct peer_link, node), 0, "the other program ends");
}

void connections_destroy(rdma_context *ctx)
{
	list_for_each (pos, &ctx->connections->links)
		container_of(pos, struct peer_link, node)->peer = NULL;
	roster_free(ctx);
	while (!list_empty(&ctx->waiting))
		peer_free(list_first(&ctx->waiting, struct peer, node));
	while (!list_empty(&ctx->connections->expected)) {
		struct peer_expected *expected = list_first(&ctx->connections->expected, struct peer_expected, node);

		list_del(&expected->node);
		free(expected);
	}
}

int listen_room(rdma_context *ctx)
{
	if (ctx->connections->held < ctx->options.max_peers)
		return 0;
	return rdma_fail(-EUSERS,
			 "Maximum number of peers reached: %u; rdma_options.max_peers or MAX_PEERS is the limit",
			 ctx->options.max_peers);
}

/*
 * Doors
 */
static void listen_url(struct peer_connections *c, const struct address *address)
{
	const char *separator = *address->scheme ? "://" : "";
	bool v6 = strchr(address->host, ':');

	if (address->path)
		snprintf(c->url, sizeof(c->url), "%s%s%s", address->scheme, separator, address->host);
	else
		snprintf(c->url, sizeof(c->url), "%s%s%s%s%s:%u", address->scheme, separator, v6 ? "[" : "",
			 address->host, v6 ? "]" : "", address->port);
}

int listen_open(rdma_context *ctx, const char *ip, int port)
{
	struct peer_connections *c = ctx->connections;
	struct engine_options engine;
	struct doors_attr attr = {
		.room = "peer",
		.url = c->url,
		.engine = &engine,
		.epoll = ctx->epoll,
		.fabric = context_fabric,
		.arg = ctx,
	};
	struct address address;
	int rc = fabric_address_parse(ip && *ip ? ip : "*", &address);

	if (rc != 0)
		return rdma_fail_logged(rc, "Invalid parameters");
	context_engine_options(ctx, &engine);
	if (!address.path && !(address.port_given && port == 0))
		address.port = (uint16_t)port;
	listen_url(c, &address);
	rc = doors_open(&c->doors, &attr, &address);
	if (rc != 0)
		return rdma_fail_logged(rc, "Failed to listen");
	c->port = address.path ? 0 : address.port;
	c->at = address;
	listen_url(c, &address);
	ctx->listening = true;
	return 0;
}

/*
* Pending connections
 */
/* Consumes the request. */
static void guest_enters(rdma_context *ctx, struct door *door, struct fabric_request *asks,
			 const struct wire_request *asked)
{
	struct wire_accept grant = {0};
	enum wire_reason reason = WIRE_REASON_RESOURCES;
	struct conn_attr attr = {0};
	struct auth_key ticket;
	struct peer_link *link = NULL;
	struct engine *engine;

	if (context_engine(ctx, door->transport, &engine) == 0)
		reason = engine_key_from(engine_key_of(engine), asks, asked, &ticket, &attr.key);
	if (reason == WIRE_REASON_NONE)
		link = link_new(ctx, engine, door->transport);
	if (!link) {
		auth_wipe(&ticket, sizeof(ticket));
		conn_refuse(asks, reason ? reason : WIRE_REASON_RESOURCES, 0);
		return;
	}
	grant.message_size = MIN(asked->message_size, conn_group_attr(engine_group(engine))->message_size);
	link->state = LINK_SILENT;
	if (conn_accept(engine_group(engine), asks, asked, &grant, &attr, &link_ops, link, time_now(), &link->conn) ==
	    0)
		link_enter_guests(link);
	else
		link_free(link);
	auth_wipe(&ticket, sizeof(ticket));
}

static int door_turn(rdma_context *ctx, struct door *door)
{
	struct fabric_request *asks;
	struct wire_request request;
	int n = door_poll(door);

	for (; n < PEER_GUESTS && pending_has_place(&ctx->connections->guests, time_now()) &&
	       door_next(door, WIRE_PEER, &request, &asks);
	     n++)
		if (asks)
			guest_enters(ctx, door, asks, &request);
	return n;
}

static struct peer_expected *find_expected(rdma_context *ctx, uint64_t group)
{
	list_for_each (pos, &ctx->connections->expected)
		if (container_of(pos, struct peer_expected, node)->group == group)
			return container_of(pos, struct peer_expected, node);
	return NULL;
}

/* Whether peers have all places, and keep them: one that this side connects to may yet leave its own. */
static bool is_full(const rdma_context *ctx)
{
	uint32_t held = ctx->connections->held;

	if (likely(held < ctx->options.max_peers))
		return false;
	list_for_each (pos, &ctx->connections->sessions)
		held -= container_of(pos, struct peer_session, node)->peer->state == PEER_CONNECTING;
	return held >= ctx->options.max_peers;
}

/* True: there is no place among the peers, and it was told so. */
static bool refused_for_room(struct peer_link *link)
{
	rdma_context *ctx = link->ctx;

	if (!is_full(ctx))
		return false;
	link_refuse(link, WIRE_BUSY, "Maximum number of peers reached: %u at %s", ctx->options.max_peers,
		    ctx->connections->url);
	return true;
}

static bool same_source(const struct peer *a, const struct peer *b)
{
	struct fabric_source one, other;

	fabric_endpoint_source(conn_endpoint(a->conn), &one);
	fabric_endpoint_source(conn_endpoint(b->conn), &other);
	return fabric_source_same(&one, &other);
}

/* At most as many links wait as there may be peers. Members of a group know its token: links that wait to be accepted
 * give way to them. The one that gives way is the first of the source that has half of them, if there is one, so that
 * a single one keeps no other out: the vote of Boyer and Moore finds it by one walk. Where all are members, the last
 * gives way. */
static void waiting_gives_way(rdma_context *ctx)
{
	struct peer *most = NULL;
	uint32_t all = 0, votes = 0;

	list_for_each (pos, &ctx->waiting) {
		struct peer *each = container_of(pos, struct peer, node);

		all++;
		if (each->session->group)
			continue;
		if (votes == 0)
			most = each;
		votes += votes == 0 || same_source(most, each) ? 1 : UINT32_MAX;
	}
	if (all <= ctx->options.max_peers)
		return;
	list_for_each (pos, &ctx->waiting) {
		struct peer *each = container_of(pos, struct peer, node);

		if (most ? each != most && (each->session->group || !same_source(most, each))
			 : pos->next != &ctx->waiting)
			continue;
		link_refuse(waiting_leave(each), WIRE_BUSY, "Maximum number of peers reached: %u wait at %s", all - 1,
			    ctx->connections->url);
		return;
	}
}

static bool hello_expected(const rdma_context *ctx, uint64_t group)
{
	for_each_layer (layer, expects)
		if (layer->expects(ctx, group))
			return true;
	return false;
}

/* The link waits in the queue from here on. No member of a group that does not form here is ever taken from it. A
 * machine may have an address that another one has, too, as those of bridges for containers: then a member of a group
 * comes to itself, or to a member that it does not mean. It is told at once, and tries its next address. */
static void guest_waits(struct peer_link *link)
{
	rdma_context *ctx = link->ctx;
	struct peer *peer;

	if (link->hello.group && link->hello.program == ctx->connections->number) {
		link_refuse(link, WIRE_NOT_FOUND, "this program itself listens there");
		return;
	}
	if (link->hello.group && !find_expected(ctx, link->hello.group) && !hello_expected(ctx, link->hello.group)) {
		link_refuse(link, WIRE_NOT_FOUND, "no such group is being formed at %s", ctx->connections->url);
		return;
	}
	if (refused_for_room(link))
		return;
	peer = peer_new(ctx);
	if (!peer) {
		link_refuse(link, WIRE_NO_MEMORY, "the server has no memory for another peer");
		return;
	}
	link_leave_guests(link);
	link->peer = peer;
	peer->conn = link->conn;
	peer->engine = link->engine;
	peer->transport = link->transport;
	memcpy(peer->session->token, peer->session->secret, sizeof(peer->session->token)); /* random */
	peer->session->id = link->hello.session;
	peer->session->group = link->hello.group;
	peer->session->other = link->hello.program;
	memcpy(peer->session->secret, link->hello.secret, sizeof(peer->session->secret));
	peer_set_name(peer);
	peer_set_state(peer, PEER_WAITING);
	list_add_tail(&ctx->waiting, &peer->node);
	ctx->progressed++;
	waiting_gives_way(ctx);
}

static int guests_turn(rdma_context *ctx)
{
	struct list *pos, *tmp;
	int n = 0;

	list_for_each_safe (pos, tmp, &ctx->connections->guests.entries) {
		struct peer_link *link = container_of(pos, struct peer_link, pending.node);

		if (link->state != LINK_ASKED)
			continue;
		n++;
		if (link->hello.version != WIRE_PEER_VERSION)
			link_refuse(link, WIRE_UNSUPPORTED,
				    "this program speaks version %u of the protocol of peers, the other one version %u",
				    WIRE_PEER_VERSION, link->hello.version);
		else if (link->hello.flags & WIRE_PEER_RESUME)
			session_come_back(link);
		else
			guest_waits(link);
	}
	return n;
}

/* Peers of a group that is expected. */
static int expected_turn(rdma_context *ctx)
{
	struct list *pos, *tmp;
	int n = 0;

	if (likely(list_empty(&ctx->waiting) || list_empty(&ctx->connections->expected)))
		return 0;
	list_for_each_safe (pos, tmp, &ctx->waiting) {
		struct peer *peer = container_of(pos, struct peer, node);
		struct peer_expected *expected = peer->session->group ? find_expected(ctx, peer->session->group) : NULL;

		if (!expected)
			continue;
		if (ctx->connections->held >= ctx->options.max_peers)
			break;
		list_del(&peer->node);
		peer->inner = true;
		n++;
		if (peer_welcome(peer) == 0)
			expected->arrived(expected->arg, peer);
	}
	return n;
}

static int doors_turn(rdma_context *ctx, uint64_t now, bool arm)
{
	struct peer_connections *c = ctx->connections;
	int n = 0;

	if (!arm && doors_may_wait(c, now))
		return 0;
	for (unsigned i = 0; i < c->doors.count; i++) {
		if (arm)
			fabric_arm(c->doors.door[i].queue);
		n += door_turn(ctx, &c->doors.door[i]);
	}
	c->doors_looked = n ? 0 : now;
	return n;
}

int listen_turn(rdma_context *ctx, uint64_t now, bool arm)
{
	int n = guests_turn(ctx); /* first: a connection that has asked leaves its place to new ones */

	n += doors_turn(ctx, now, arm);
	n += expected_turn(ctx);
	if (unlikely(!list_empty(&ctx->waiting)) &&
	    is_full(ctx)) /* no place among the peers for connections that wait */
		for (; !list_empty(&ctx->waiting); n++)
			refused_for_room(waiting_leave(list_first(&ctx->waiting, struct peer, node)));
	return n;
}

void peer_expect(rdma_context *ctx, uint64_t hello_group, void (*arrived)(void *arg, struct peer *peer), void *arg)
{
	struct peer_expected *expected = find_expected(ctx, hello_group);

	if (!arrived) {
		if (expected) {
			list_del(&expected->node);
			free(expected);
		}
		return;
	}
	if (!expected) {
		expected = calloc(1, sizeof(*expected));
		if (!expected)
			return; /* they wait in vain, until they give up */
		expected->group = hello_group;
		list_add_tail(&ctx->connections->expected, &expected->node);
	}
	expected->arrived = arrived;
	expected->arg = arg;
	ctx->progressed++;
}

int peer_listen(rdma_context *ctx)
{
	int rc = ctx->listening ? 0 : listen_open(ctx, ctx->connections->ip, 0);

	return rc == 0 ? 0 : -rdma_get_errno();
}

/*
 * Accepting
 */
/* A peer that was told to wait may have no room yet for what is said next. None, while the last place is one's that
 * this side connects to. */
static struct peer *first_acceptable(rdma_context *ctx)
{
	struct list *pos;

	if (ctx->connections->held >= ctx->options.max_peers)
		return NULL;
	for (pos = ctx->waiting.next; pos != &ctx->waiting; pos = pos->next) {
		struct peer *peer = container_of(pos, struct peer, node);

		if (!peer->session->group &&
		    (!peer->session->waits || conn_has_room(peer->conn, sizeof(struct wire_peer_hello))))
			return peer;
	}
	return NULL;
}

static bool somebody_waits(const void *ctx)
{
	return first_acceptable((rdma_context *)ctx) != NULL;
}

static int accept_next(rdma_context *ctx)
{
	uint64_t until = context_until(ctx);

	if (!ctx->is_server)
		return rdma_fail(-EOPNOTSUPP, "Not a server context: rdma_init() with is_server makes one");
	while (true) {
		int rc = context_wait(ctx, somebody_waits, ctx, until);
		struct peer *peer;

		if (rc != 0)
			return rdma_fail(rc, "No peer has connected within %llu ms",
					 (unsigned long long)ctx->options.timeout_ms);
		peer = first_acceptable(ctx);
		list_del(&peer->node);
		if (peer_welcome(peer) != 0)
			continue;
		context_turn(ctx); /* the answer leaves, though the program may make no other call for a while */
		return peer->index;
	}
}

int rdma_accept_peer(rdma_context *ctx)
{
	int rc;

	if (!ctx)
		return rdma_fail(-EINVAL, "Invalid parameters: the context is NULL");
	rdma_enter(ctx);
	rc = accept_next(ctx);
	rdma_leave(ctx);
	return rc;
}
