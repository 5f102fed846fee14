/* connect.c: from an address to an established connection, by the best transport both ends have. */
#include "client/client.h"

#define RDMA_ATTEMPT (2 * TIME_S) /* before falling back: a host may swallow RDMA packets */

struct attempt {
	bool done;
	int error;
	char reason[160];
};

static void attempt_established(struct conn *conn)
{
	struct attempt *attempt = conn_context(conn);

	attempt->done = true;
}

static int attempt_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	(void)conn;
	(void)record;
	(void)body;
	return -EPROTO; /* a server answers, it does not ask */
}

static void attempt_closed(struct conn *conn, int error, const char *reason)
{
	struct attempt *attempt = conn_context(conn);

	attempt->done = true;
	attempt->error = error ? error : -ECONNRESET;
	snprintf(attempt->reason, sizeof(attempt->reason), "%s", reason);
}

static const struct conn_ops attempt_ops = {
	.established = attempt_established,
	.record = attempt_record,
	.closed = attempt_closed,
};

static int try_connect(struct engine *engine, const struct sockaddr *sa, socklen_t len,
		       const struct wire_request *request, uint64_t timeout, struct attempt *attempt,
		       struct conn **conn)
{
	int rc;

	*attempt = (struct attempt){.error = 0};
	rc = conn_connect(engine_group(engine), sa, len, request, NULL, &attempt_ops, attempt, time_now(), conn);
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

/* Which providers an address allows, best first. */
static const char *const *providers_for(const struct address *address, bool require_rdma)
{
	static const char *const any[] = {"verbs", "soft", NULL};
	static const char *const rdma[] = {"verbs", NULL};
	static const char *const soft[] = {"soft", NULL};
	static const char *const none[] = {NULL};

	if (address->transport == ADDRESS_RDMA || (address->transport == ADDRESS_ANY && require_rdma))
		return rdma;
	if (address->transport == ADDRESS_ANY)
		return any;
	return require_rdma ? none : soft;
}

/* Answers of a server that another transport would give too. */
static bool final_answer(int error)
{
	return error == -EPROTONOSUPPORT || error == -EPROTO || error == -EACCES;
}

static void explain(const char *server, const char *provider, const struct attempt *attempt)
{
	const char *next = "";

	if (attempt->error == -ECONNREFUSED && strncmp(attempt->reason, "refused:", 8) != 0)
		next = "; nothing listens there: is rdmad running, and does its configuration name this "
		       "address?";
	else if (attempt->error == -ETIMEDOUT)
		next = "; is the host up, and no firewall between?";
	log_error("client", "cannot connect to %s by %s: %s%s", server,
		  strcmp(provider, "verbs") == 0 ? "RDMA" : "software transport", attempt->reason, next);
}

/* One provider: 0, inside the engine, or an error that was logged. */
static int connect_by(const char *provider, const char *server, const struct address *address,
		      const struct engine_options *options, struct engine *share, const struct wire_request *request,
		      uint64_t timeout, struct engine **out, struct conn **conn)
{
	struct sockaddr_storage ss;
	struct attempt attempt;
	struct engine *engine = share;
	socklen_t len;
	int rc = address_resolve(address, &ss, &len);

	if (rc != 0)
		return rc;
	rc = share ? engine_join(share, options) : engine_create(provider, options, &engine);
	if (rc != 0)
		return rc;
	engine_enter(engine);
	rc = try_connect(engine, (struct sockaddr *)&ss, len, request, timeout, &attempt, conn);
	if (rc == 0) {
		*out = engine;
		return 0;
	}
	attempt.error = rc;
	explain(server, provider, &attempt);
	engine_leave(engine);
	engine_release(engine);
	return rc;
}

int client_connect(const char *server, const struct engine_options *options, struct engine *share,
		   const struct wire_request *request, const struct conn_ops *ops, void *context,
		   struct engine **engine, struct conn **conn)
{
	const char *const *provider;
	struct address address;
	int rc;

	if (share && engine_may_wait(share) != 0)
		return -EDEADLK;
	rc = address_parse(server, &address);
	if (rc != 0)
		return rc;
	provider = providers_for(&address, options->require_rdma);
	if (!*provider) {
		log_error("client", "%s is not RDMA, which is required", server);
		return -EINVAL;
	}
	rc = -EPROTOTYPE;
	for (; *provider; provider++) {
		uint64_t timeout = options->connect_timeout;

		if (share && strcmp(engine_provider(share), *provider) != 0)
			continue;
		if (provider[1])
			timeout = MIN(timeout, RDMA_ATTEMPT);
		rc = connect_by(*provider, server, &address, options, share, request, timeout, engine, conn);
		if (rc == 0) {
			conn_set_owner(*conn, ops, context);
			return 0;
		}
		if (final_answer(rc))
			break;
	}
	if (rc == -EPROTOTYPE)
		log_error("client", "%s cannot be reached by the transport of the handle to share with", server);
	return rc;
}

void client_disconnect(struct engine *engine, struct conn *conn, const bool *closed)
{
	if (conn)
		conn_close(conn, 0, "closed by this side");
	engine_wait(engine, closed, 10 * TIME_S);
}
