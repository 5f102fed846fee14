/* connect.c: from an address to an established connection, by the best transport both ends have. */
#include "engine/engine.h"

#define FIRST_ATTEMPT (2 * TIME_S) /* before another transport is tried: a host may swallow RDMA's packets */

struct attempt {
	bool done;
	int error;
	enum wire_reason refusal;
	char reason[160];
	struct address_socket to;
};

static void attempt_established(struct conn *conn)
{
	struct attempt *attempt = conn_context(conn);

	conn_admit(conn);
	attempt->done = true;
}

static int attempt_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	(void)conn;
	(void)record;
	(void)body;
	return -EPROTO; /* a server answers, and does not ask */
}

static void attempt_closed(struct conn *conn, int error, const char *reason)
{
	struct attempt *attempt = conn_context(conn);

	attempt->done = true;
	attempt->error = error ? error : -ECONNRESET;
	attempt->refusal = conn_refusal(conn);
	snprintf(attempt->reason, sizeof(attempt->reason), "%s", reason);
}

static const struct conn_ops attempt_ops = {
	.established = attempt_established,
	.record = attempt_record,
	.closed = attempt_closed,
};

static int try_connect(struct engine *engine, const struct address_socket *to, const struct wire_request *request,
		       uint64_t timeout, struct attempt *attempt, struct conn **conn)
{
	const struct sockaddr *sa = (const struct sockaddr *)&to->sa;
	struct conn_attr attr = {.memory = to->memory, .key = engine_key_to(engine_key_of(engine), sa)};
	int rc;

	*attempt = (struct attempt){.to = *to};
	rc = conn_connect(engine_group(engine), sa, to->len, request, &attr, &attempt_ops, attempt, time_now(), conn);
	if (rc != 0) {
		snprintf(attempt->reason, sizeof(attempt->reason), "%s", strerror(-rc));
		return attempt->error = rc;
	}
	rc = engine_wait(engine, &attempt->done, timeout);
	if (rc == 0)
		return attempt->error;
	conn_close(*conn, rc, "no answer");
	engine_wait(engine, &attempt->done, TIME_S);
	return rc;
}

/* Would another transport bring the same answer? */
static bool attempt_final(const struct attempt *attempt)
{
	if (attempt->refusal)
		return wire_reason_final(attempt->refusal);
	return attempt->error == -EPROTONOSUPPORT || attempt->error == -EPROTO || attempt->error == -EACCES;
}

/* What to look at next. The other end of a channel, which has a count, is any program that listens, or an rdmad. */
static const struct {
	int error;
	const char *rdmad, *channel;
} hints[] = {
	{-ECONNREFUSED, "; nothing listens there: is rdmad running, and does its configuration name this address?",
	 "; nothing listens there: is the program that listens, or the rdmad, running, and is this its address?"},
	{-ENOENT, "; nothing listens there: is rdmad running, and does its configuration name this address?",
	 "; nothing listens there: is the program that listens, or the rdmad, running, and is this its address?"},
	{-ENOKEY, "; encryption is required, which needs a key: see rdmad-auth(7)",
	 "; encryption is required, which needs a key: see rdmad-auth(7)"},
	{-ENOPROTOOPT, "; encryption is required, and this kernel lacks it: modprobe tls",
	 "; encryption is required, and this kernel lacks it: modprobe tls"},
	{-ETIMEDOUT, "; is the host up, no firewall between, and what listens there rdmad?",
	 "; is the host up, no firewall between, and does the rdmad there answer, or the program call "
	 "rdmad_channel_accept()?"},
	{-EPROTO, "; what listens there does not answer like rdmad",
	 "; what listens there does not answer like a channel"},
	{-ECONNRESET, "; what listens there does not answer like rdmad, or has just ended",
	 "; what listens there does not answer like a channel, or has just ended"},
};

static const char *attempt_hint(const struct attempt *attempt, const struct wire_request *request)
{
	if (attempt->refusal && attempt->error != -ETIMEDOUT)
		return "";
	for (size_t i = 0; i < ARRAY_SIZE(hints); i++)
		if (hints[i].error == attempt->error)
			return request->service == WIRE_CHANNEL && request->count ? hints[i].channel : hints[i].rdmad;
	return "";
}

/* `which`: of several addresses that the name has, or "" */
static void attempt_explain(const struct attempt *attempt, const char *server, const char *which,
			    const struct fabric_transport *transport, const struct wire_request *request)
{
	log_error("client", "cannot connect to %s%s by %s: %s%s", server, which, transport->text, attempt->reason,
		  attempt_hint(attempt, request));
}

/* The addresses of a name, in turn: 0, or the error of the last, logged. The last has all the time. */
static int connect_each(struct engine *engine, const struct fabric_transport *transport, const char *server,
			const struct address_socket *to, int count, const struct wire_request *request,
			uint64_t timeout, struct attempt *attempt, struct conn **conn)
{
	char which[80] = "", number[64];
	int rc = -EHOSTUNREACH;

	for (int i = 0; i < count; i++) {
		uint64_t most = i + 1 < count ? MIN(timeout, FIRST_ATTEMPT) : timeout;

		rc = try_connect(engine, &to[i], request, most, attempt, conn);
		if (rc == 0)
			return 0;
		attempt->error = rc;
		if (count > 1)
			snprintf(which, sizeof(which), " (%s)",
				 address_format_socket((const struct sockaddr *)&to[i].sa, number, sizeof(number)));
		attempt_explain(attempt, server, which, transport, request);
		if (attempt_final(attempt))
			break;
	}
	return rc;
}

/* One transport: 0, inside the engine, or an error that was logged. */
static int connect_by(const struct fabric_transport *transport, const char *server, const struct address *address,
		      const struct engine_options *options, struct engine *share, const struct wire_request *request,
		      uint64_t timeout, struct attempt *attempt, struct engine **out, struct conn **conn)
{
	struct address_socket to[ADDRESS_SOCKETS];
	struct engine *engine = share;
	int rc, count = fabric_transport_resolve(transport, address, to);

	if (count < 0)
		return count;
	rc = share ? engine_join(share, options) : engine_create(transport, options, &engine);
	if (rc != 0)
		return rc;
	engine_enter(engine);
	rc = connect_each(engine, transport, server, to, count, request, timeout, attempt, conn);
	if (rc == 0) {
		*out = engine;
		return 0;
	}
	engine_leave(engine);
	engine_release(engine);
	return rc;
}

/* The transports to try, best first: 0, or an error that was logged. */
static int choose_transports(const char *server, const struct address *address, const struct engine_options *options,
			     const struct engine *share, const struct fabric_transport *out[FABRIC_TRANSPORTS + 1])
{
	unsigned n = 0;
	bool any = false;

	for (unsigned i = 0; i < FABRIC_TRANSPORTS; i++) {
		const struct fabric_transport *t = &fabric_transports[i];

		if (!fabric_transport_serves(t, address) || (options->require_rdma && t->processor))
			continue;
		any = true;
		if (!share || engine_has(share, t))
			out[n++] = t;
	}
	out[n] = NULL;
	if (!any) {
		log_error("client", "%s is not RDMA, which is required", server);
		return -EINVAL;
	}
	if (n == 0) {
		log_error("client", "%s cannot be reached by the transport of the handle to share with", server);
		return -EPROTOTYPE;
	}
	return 0;
}

int client_connect_to(const char *server, const struct engine_options *options, struct engine *share,
		      const struct wire_request *request, const struct conn_ops *ops, void *context,
		      struct engine **engine, struct conn **conn, struct address_socket *reached)
{
	const struct fabric_transport *transport[FABRIC_TRANSPORTS + 2], *small = NULL;
	struct address address;
	int rc;

	if (share && engine_may_wait(share) != 0)
		return -EDEADLK;
	rc = fabric_address_parse(server, &address);
	if (rc == 0)
		rc = choose_transports(server, &address, options, share, transport);
	if (rc != 0)
		return rc;
	for (unsigned i = 0; transport[i]; i++) {
		uint64_t timeout = options->connect_timeout;
		struct attempt attempt = {.error = 0};
		struct wire_request asks = *request;

		if (transport[i + 1]) {
			timeout = MIN(timeout, FIRST_ATTEMPT);
			asks.flags |= WIRE_CHOICE;
		}
		rc = connect_by(transport[i], server, &address, options, share, &asks, timeout, &attempt, engine, conn);
		if (rc == 0) {
			conn_set_owner(*conn, ops, context);
			*reached = attempt.to;
			log_clear_last(); /* of attempts before */
		}
		if (rc == 0 || attempt_final(&attempt))
			break;
		if (attempt.refusal == WIRE_REASON_VALUES) {
			small = small ? small : transport[i];
		} else if (small && !transport[i + 1]) { /* better short values than none */
			transport[i + 1] = small;
			transport[i + 2] = small = NULL;
		}
	}
	return rc;
}

int client_connect(const char *server, const struct engine_options *options, struct engine *share,
		   const struct wire_request *request, const struct conn_ops *ops, void *context,
		   struct engine **engine, struct conn **conn)
{
	struct address_socket reached;

	return client_connect_to(server, options, share, request, ops, context, engine, conn, &reached);
}

void client_disconnect(struct engine *engine, struct conn *conn, const bool *closed)
{
	if (conn)
		conn_close(conn, 0, CLIENT_CLOSED);
	engine_wait(engine, closed, 10 * TIME_S);
}
