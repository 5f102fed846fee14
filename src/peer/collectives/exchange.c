/*
 * exchange.c: rdma_sequential_alltoall(). The server takes a string of each peer and gives all of them to all. The
 * messages have a stream of their own, so that ordinary ones are not mixed up with them, and calls may be early or
 * late.
 */
#include "peer/messages/message.h"

#include <stdlib.h>

#define HEAD sizeof(struct wire_peer_exchange)

struct member {
	struct peer *peer;
	struct rdma_request *request;
	char *message; /* its string, behind the head; owned */
	size_t length; /* of both */
	uint32_t round;
	bool called;
};

struct exchange {
	rdma_context *ctx;
	uint64_t until; /* of the call, for all members */
	size_t msg_size;
	uint32_t members;
	struct member *member;
	int error; /* the first failure, in words */
	char why[400];
};

static void exchange_failed(struct exchange *x, int error, const char *why)
{
	if (x->error)
		return;
	x->error = error;
	snprintf(x->why, sizeof(x->why), "%s", why);
}

/*
 * The server
 */
static int exchange_members(struct exchange *x)
{
	x->member = calloc(x->ctx->peers + 1, sizeof(*x->member));
	if (!x->member)
		return -ENOMEM;
	for (uint32_t i = 0; i < x->ctx->peers; i++) {
		struct peer *peer = peer_of_program(x->ctx, i);
		struct member *member = &x->member[x->members];

		if (!peer)
			continue;
		x->members++;
		member->peer = peer;
		member->message = malloc(HEAD + x->msg_size);
		if (!member->message) /* still receive its call, to report the failure to it */
			exchange_failed(x, -ENOMEM, "No memory for the members' messages");
	}
	return 0;
}

static void member_finish(struct exchange *x, struct member *member)
{
	int64_t length = request_finish_until(member->request, x->until);
	struct wire_peer_exchange head;
	char why[400];

	member->request = NULL;
	if (length >= (int64_t)HEAD) { /* and less than msg_size behind it, as all members' are */
		member->length = (size_t)length;
		memcpy(&head, member->message, HEAD);
		member->round = head.round;
		member->called = true;
		if (memchr(member->message + HEAD, '\0', member->length - HEAD))
			exchange_failed(x, -EINVAL, "Invalid parameters: a member's string has a 0 byte");
		return;
	}
	if (length >= 0)
		rdma_fail(-EPROTO, "Exchange failed: %s sent %lld bytes", member->peer->name, (long long)length);
	if (rdma_get_errno() == EMSGSIZE) {
		inbox_drop(member->peer, PEER_STREAM_EXCHANGE);
		member->called = true;
		member->round = WIRE_PEER_ANY_ROUND;
		snprintf(why, sizeof(why), "Message too long: that of %s does not fit into the %zu bytes of a message",
			 member->peer->name, x->msg_size);
		rdma_fail(-EMSGSIZE, "%s", why);
	}
	exchange_failed(x, -rdma_get_errno(), rdma_get_error());
}

static void exchange_gather(struct exchange *x)
{
	for (uint32_t i = 0; i < x->members; i++) {
		struct member *member = &x->member[i];

		member->request = message_begin_recv(member->peer, PEER_STREAM_EXCHANGE, member->message,
						     member->message ? HEAD + x->msg_size - 1 : 0);
		if (!member->request)
			exchange_failed(x, -rdma_get_errno(), rdma_get_error());
	}
	for (uint32_t i = 0; i < x->members; i++)
		if (x->member[i].request)
			member_finish(x, &x->member[i]);
}

/* "s; c0; c1;" */
static size_t exchange_compose(const struct exchange *x, const char *own, char *out)
{
	char *at = out;

	at = stpcpy(at, own);
	for (uint32_t i = 0; i < x->members; i++) {
		at = stpcpy(at, "; ");
		at = mempcpy(at, x->member[i].message + HEAD, x->member[i].length - HEAD);
	}
	at = stpcpy(at, ";");
	return (size_t)(at - out) + 1;
}

/* The answer has another round for each. A peer that has not called gets none. */
static void exchange_answer(struct exchange *x, const char *result, size_t length)
{
	for (uint32_t i = 0; i < x->members; i++) {
		struct member *member = &x->member[i];
		struct wire_peer_exchange head = {
			.round = member->round, .error = (uint32_t)-x->error, .members = x->members + 1};
		char *message = member->called ? realloc(member->message, HEAD + length) : NULL;

		if (!message)
			continue;
		member->message = message;
		memcpy(message, &head, HEAD);
		memcpy(message + HEAD, result, length);
		member->request = message_begin_send(member->peer, PEER_STREAM_EXCHANGE, message, HEAD + length);
		message_flush(member->peer);
	}
	for (uint32_t i = 0; i < x->members; i++)
		if (x->member[i].request && request_finish_until(x->member[i].request, x->until) < 0)
			exchange_failed(x, -rdma_get_errno(), rdma_get_error());
}

static int exchange_as_server(rdma_context *ctx, const char *own, char *out, size_t msg_size)
{
	struct exchange x = {.ctx = ctx, .until = context_until(ctx), .msg_size = msg_size};

	if (exchange_members(&x) != 0) {
		exchange_failed(&x, -ENOMEM, "No memory for the members' messages");
	} else {
		exchange_gather(&x);
		if (x.error)
			exchange_answer(&x, x.why, strlen(x.why) + 1);
		else
			exchange_answer(&x, out, exchange_compose(&x, own, out));
	}
	for (uint32_t i = 0; i < x.members; i++)
		free(x.member[i].message);
	free(x.member);
	return x.error ? rdma_fail(x.error, "%s", x.why) : 0;
}

/*
 * A client
 */
static struct peer *exchange_server(const rdma_context *ctx)
{
	for (uint32_t i = 0; i < ctx->peers; i++)
		if (peer_of_program(ctx, i))
			return peer_of_program(ctx, i);
	rdma_fail(-ENOTCONN, "Peer not connected: there is no server to exchange messages by");
	return NULL;
}

static bool answer_is_there(const void *arg)
{
	struct peer *peer = (struct peer *)arg;

	return inbox_probe(peer, PEER_STREAM_EXCHANGE) >= 0 || peer->state == PEER_GONE;
}

/* Owned by the caller; NULL: rdma_fail() was called. */
static char *answer_receive(struct peer *server, uint64_t until, size_t *length)
{
	int rc = answer_is_there(server) ? 0 : context_wait(server->ctx, answer_is_there, server, until);
	int64_t came = inbox_probe(server, PEER_STREAM_EXCHANGE);
	struct rdma_request *request;
	char *message;

	if (came < 0) {
		if (rc != 0)
			rdma_fail(rc, "Timed out: %s has not answered", server->name);
		else
			rdma_fail(-ECONNRESET, "Peer not connected: %s: %s", server->name, message_gone_why(server));
		return NULL;
	}
	message = malloc((size_t)came + 1);
	if (!message) {
		inbox_drop(server, PEER_STREAM_EXCHANGE);
		rdma_fail(-ENOMEM, "No memory for the %lld bytes that %s sent", (long long)came, server->name);
		return NULL;
	}
	*length = (size_t)came;
	request = message_begin_recv(server, PEER_STREAM_EXCHANGE, message, *length);
	if (request && request_finish_until(request, until) == came)
		return message;
	free(message);
	return NULL;
}

/* The answer has to be a string, of a length that the members' strings can add up to: then it fits into `out`. */
static int answer_copy(const char *message, size_t length, char *out, size_t msg_size)
{
	struct wire_peer_exchange head;

	memcpy(&head, message, HEAD);
	if (message[length - 1] != '\0')
		return rdma_fail(-EPROTO, "Exchange failed: the server's answer is no string");
	if (head.error)
		return rdma_fail(-(int)MIN(head.error, 4095u), "Exchange failed: %s", message + HEAD);
	if (!head.members || (length - HEAD + head.members - 1) / head.members > msg_size + 2)
		return rdma_fail(-EMSGSIZE, "Message too long: the result has %zu bytes, %u members may have %zu each",
				 length - HEAD, head.members, msg_size);
	memcpy(out, message + HEAD, length - HEAD);
	return 0;
}

/* An answer to a call that was given up comes first. */
static int exchange_await(struct peer *server, uint32_t round, uint64_t until, char *out, size_t msg_size)
{
	while (true) {
		struct wire_peer_exchange head;
		size_t length = 0;
		char *message = answer_receive(server, until, &length);
		int rc;

		if (!message)
			return -1;
		if (length > HEAD)
			memcpy(&head, message, HEAD);
		if (length > HEAD && (head.round == round || head.round == WIRE_PEER_ANY_ROUND)) {
			rc = answer_copy(message, length, out, msg_size);
			free(message);
			return rc;
		}
		free(message);
	}
}

static int exchange_as_client(rdma_context *ctx, const char *own, size_t length, char *out, size_t msg_size)
{
	struct peer *server = exchange_server(ctx);
	uint64_t until = context_until(ctx);
	struct wire_peer_exchange head;
	struct rdma_request *request;
	char *message;
	int rc = -1;

	if (!server)
		return -1;
	message = malloc(HEAD + length);
	if (!message)
		return rdma_fail(-ENOMEM, "No memory for a message of %zu bytes", length);
	head = (struct wire_peer_exchange){.round = ++ctx->exchange_round};
	memcpy(message, &head, HEAD);
	memcpy(message + HEAD, own, length);
	request = message_begin_send(server, PEER_STREAM_EXCHANGE, message, HEAD + length);
	message_flush(server);
	if (request && request_finish_until(request, until) >= 0)
		rc = exchange_await(server, head.round, until, out, msg_size);
	free(message);
	return rc;
}

int rdma_sequential_alltoall(rdma_context *ctx, const void *send_buf, void *recv_buf, size_t msg_size)
{
	size_t length;
	int rc;

	if (!ctx || !send_buf || !recv_buf || !msg_size)
		return rdma_fail(-EINVAL, "Invalid parameters: the %s",
				 !ctx        ? "context is NULL"
				 : !msg_size ? "message size is 0"
					     : "memory is NULL");
	if (msg_size > PTRDIFF_MAX / 2)
		return rdma_fail(-EINVAL, "Invalid parameters: messages of %zu bytes are beyond memory", msg_size);
	length = strnlen(send_buf, msg_size);
	if (length == msg_size)
		return rdma_fail(-EINVAL, "Invalid parameters: no string of less than %zu bytes", msg_size);
	rdma_enter(ctx);
	rc = ctx->is_server ? exchange_as_server(ctx, send_buf, recv_buf, msg_size)
			    : exchange_as_client(ctx, send_buf, length, recv_buf, msg_size);
	rdma_leave(ctx);
	return rc;
}
