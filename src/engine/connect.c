/* connect.c: the dialer's form that waits: from an address to an established connection. */
#include "engine/engine.h"

/* The form of the dialer that waits. */
struct call {
	struct dial dial;
	struct dial_target target[DIAL_TARGETS];
	const char *server;
	const struct engine_options *options;
	const struct wire_request *request;
	const struct fabric_transport *transport; /* `engine` is of it, and was entered; NULL: there is none */
	struct engine *share, *engine;
	struct conn *conn; /* until closed() */
	bool moved;        /* established or closed */
	enum wire_reason refusal;
};

static void call_established(struct conn *conn)
{
	struct call *call = conn_context(conn);

	conn_admit(conn);
	dial_established(&call->dial);
	call->moved = true;
}

static int call_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	(void)conn;
	(void)record;
	(void)body;
	return -EPROTO; /* a server answers, and does not ask */
}

/* Another transport would bring the same answer. */
static bool is_final(int error)
{
	return error == -EPROTONOSUPPORT || error == -EPROTO || error == -EACCES;
}

static void call_closed(struct conn *conn, int error, const char *reason)
{
	struct call *call = conn_context(conn);

	call->moved = true;
	call->conn = NULL;
	if (!call->dial.under_way)
		return; /* it was abandoned */
	call->refusal = conn_refusal(conn);
	if (call->refusal == WIRE_REASON_VALUES && !dial_has_choice(&call->dial))
		call->dial.small = 0;
	else if (call->refusal == WIRE_REASON_VALUES && !call->dial.small)
		call->dial.small = call->dial.next;
	dial_failed(&call->dial, error ? error : -ECONNRESET, reason,
		    call->refusal ? wire_reason_final(call->refusal) : is_final(error));
}

static const struct conn_ops call_ops = {
	.established = call_established,
	.record = call_record,
	.closed = call_closed,
};

static void call_leave_engine(struct call *call)
{
	if (call->transport) {
		engine_leave(call->engine);
		engine_release(call->engine);
	}
	call->transport = NULL;
}

/* An engine that cannot be made is logged, and the transport's other addresses are passed over. */
static int call_begin(struct dial *dial, const struct dial_target *target, uint64_t now)
{
	struct call *call = container_of(dial, struct call, dial);
	const struct sockaddr *sa = (const struct sockaddr *)&target->to.sa;
	struct wire_request request = *call->request;
	struct conn_attr attr = {.memory = target->to.memory};
	int rc = 0;

	if (call->transport != target->transport) {
		call_leave_engine(call);
		call->engine = call->share;
		rc = call->share ? engine_join(call->share, call->options)
				 : engine_create(target->transport, call->options, &call->engine);
		while (rc != 0 && dial->next < dial->targets && dial->target[dial->next].transport == target->transport)
			dial->next++;
		if (rc != 0)
			return rc;
		engine_enter(call->engine);
		call->transport = target->transport;
	}
	if (dial_has_choice(dial))
		request.flags |= WIRE_CHOICE;
	call->refusal = WIRE_REASON_NONE;
	attr.key = engine_key_to(engine_key_of(call->engine), sa);
	rc = conn_connect(engine_group(call->engine), sa, target->to.len, &request, &attr, &call_ops, call, now,
			  &call->conn);
	if (rc == 0)
		return 0;
	call->conn = NULL;
	dial_failed(dial, rc, strerror(-rc), is_final(rc));
	return rc;
}

static void call_abandon(struct dial *dial, const char *why)
{
	struct call *call = container_of(dial, struct call, dial);

	if (!call->conn)
		return;
	call->moved = false;
	conn_close(call->conn, dial->error, "%s", why);
	engine_wait(call->engine, &call->moved, TIME_S);
}

/* Advice on what to look at next. The other end of a channel, which has a count, is any program that listens, or an
 * rdmad. */
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

static void call_explain(const struct dial *dial, const struct dial_target *target, const char *reason, char *out,
			 size_t size)
{
	const struct call *call = container_of(dial, struct call, dial);
	const struct wire_request *request = call->request;
	char which[80] = "", number[64];
	const char *hint = "";
	unsigned addresses = 0;

	for (unsigned i = 0; i < dial->targets; i++)
		addresses += dial->target[i].transport == target->transport;
	if (addresses > 1)
		snprintf(which, sizeof(which), " (%s)",
			 address_format_socket((const struct sockaddr *)&target->to.sa, number, sizeof(number)));
	for (size_t i = 0; i < ARRAY_SIZE(hints) && (!call->refusal || dial->error == -ETIMEDOUT); i++)
		if (hints[i].error == dial->error)
			hint = request->service == WIRE_CHANNEL && request->count ? hints[i].channel : hints[i].rdmad;
	snprintf(out, size, "cannot connect to %s%s by %s: %s%s", call->server, which, target->transport->text, reason,
		 hint);
}

static const struct dial_ops call_dial_ops = {
	.begin = call_begin,
	.abandon = call_abandon,
	.explain = call_explain,
};

int client_connect_to(const char *server, const struct engine_options *options, struct engine *share,
		      const struct wire_request *request, const struct conn_ops *ops, void *context,
		      struct engine **engine, struct conn **conn, struct address_socket *reached)
{
	struct call call = {
		.dial = {.ops = &call_dial_ops,
			 .room = "client",
			 .until = TIME_NEVER,
			 .first = MIN(options->connect_timeout, DIAL_FIRST),
			 .last = options->connect_timeout},
		.server = server,
		.options = options,
		.request = request,
		.share = share,
	};
	struct address address;
	int rc;

	if (share && engine_may_wait(share) != 0)
		return -EDEADLK;
	call.dial.target = call.target;
	rc = fabric_address_parse(server, &address);
	if (rc == 0)
		rc = dial_resolve(&call.dial, "client", server, &address, options->require_rdma, share);
	while (rc == 0 && (rc = dial_turn(&call.dial, time_now())) == 0) {
		uint64_t now = time_now(), until = dial_deadline(&call.dial);

		call.moved = false;
		engine_wait(call.engine, &call.moved, until - MIN(now, until));
		if (!call.dial.under_way || !call.conn || !conn_established(call.conn))
			continue;
		conn_set_owner(call.conn, ops, context);
		*engine = call.engine;
		*conn = call.conn;
		*reached = call.target[call.dial.next - 1].to;
		log_clear_last(); /* of attempts before */
		return 0;
	}
	call_leave_engine(&call);
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
