/* calls.c: messages as programs send and receive them. */
#include "peer/messages/message.h"

#include <limits.h>
#include <stdlib.h>

static bool memory_is_valid(const void *data, size_t len)
{
	if (data || len == 0)
		return memory_ends(data, len);
	rdma_fail(-EINVAL, "Invalid parameters: the memory is NULL, its length is %zu", len);
	return false;
}

static bool context_is_valid(const rdma_context *ctx)
{
	if (ctx)
		return true;
	rdma_fail(-EINVAL, "Invalid parameters: no context");
	return false;
}

/*
 * Beginning
 */
struct rdma_request *message_begin_send(struct peer *peer, uint64_t stream, const void *data, size_t len)
{
	struct rdma_request *request = request_new(peer->ctx, peer);

	if (!request)
		return NULL;
	request->stream = stream;
	request->message_class = peer->ctx->message_class;
	request->data = (char *)data;
	request->length = len;
	message_send(request);
	return request;
}

struct rdma_request *message_begin_recv(struct peer *peer, uint64_t stream, void *data, size_t max_len)
{
	struct rdma_request *request = request_new(peer->ctx, peer);

	if (!request)
		return NULL;
	request->stream = stream;
	request->data = data;
	request->length = max_len;
	message_recv(request);
	message_read_on(peer); /* for what was there before, the caller had a turn */
	return request;
}

struct peer *peer_to_send(rdma_context *ctx, int index)
{
	struct peer *peer = peer_connected(ctx, index);

	if (unlikely(!peer))
		return NULL;
	peer_look(peer);
	return likely(peer->state == PEER_CONNECTED) ? peer : peer_connected(ctx, index);
}

/* Messages that came before a peer went can be received. */
static struct peer *peer_to_receive(rdma_context *ctx, int index)
{
	struct peer *peer = peer_find(ctx, index);
	int64_t length = peer && peer->message ? inbox_probe(peer, PEER_STREAM_PROGRAM) : -EAGAIN;

	if (length > PEER_EAGER_MAX)
		context_turn(ctx); /* it may have been withdrawn meanwhile */
	if (!peer || length >= 0)
		return peer;
	return peer_connected(ctx, index);
}

static struct rdma_request *begin_recv(rdma_context *ctx, int index, void *data, size_t max_len)
{
	struct peer *peer = peer_to_receive(ctx, index);

	return peer ? message_begin_recv(peer, PEER_STREAM_PROGRAM, data, max_len) : NULL;
}

rdma_request *rdma_isend(rdma_context *ctx, int peer_idx, const void *data, size_t len)
{
	struct rdma_request *request;
	struct peer *peer;

	if (!context_is_valid(ctx) || !memory_is_valid(data, len))
		return NULL;
	rdma_enter(ctx);
	peer = peer_to_send(ctx, peer_idx);
	request = peer ? message_begin_send(peer, PEER_STREAM_PROGRAM, data, len) : NULL;
	if (request)
		message_gather(peer);
	rdma_leave(ctx);
	return request;
}

rdma_request *rdma_irecv(rdma_context *ctx, int peer_idx, void *data, size_t max_len)
{
	struct rdma_request *request;

	if (!context_is_valid(ctx) || !memory_is_valid(data, max_len))
		return NULL;
	rdma_enter(ctx);
	request = begin_recv(ctx, peer_idx, data, max_len);
	rdma_leave(ctx);
	return request;
}

/*
 * Calls that wait
 */
int rdma_send(rdma_context *ctx, int peer_idx, const void *data, size_t len)
{
	struct rdma_request *request;
	struct peer *peer;
	int64_t rc = -1;

	if (!context_is_valid(ctx) || !memory_is_valid(data, len))
		return -1;
	if (len > INT_MAX)
		return rdma_fail(-EMSGSIZE,
				 "Invalid parameters: %zu bytes are too many for rdma_send(); use rdma_isend()", len);
	rdma_enter(ctx);
	peer = peer_to_send(ctx, peer_idx);
	request = peer ? message_begin_send(peer, PEER_STREAM_PROGRAM, data, len) : NULL;
	if (request) {
		message_flush(peer);
		rc = request_finish(request);
	}
	rdma_leave(ctx);
	return (int)rc;
}

int rdma_recv(rdma_context *ctx, int peer_idx, void *data, size_t max_len)
{
	struct rdma_request *request;
	int64_t rc = -1;

	if (!context_is_valid(ctx) || !memory_is_valid(data, max_len))
		return -1;
	rdma_enter(ctx);
	request = begin_recv(ctx, peer_idx, data, MIN(max_len, (size_t)INT_MAX));
	if (request)
		rc = request_finish(request);
	rdma_leave(ctx);
	return (int)rc;
}

static bool probe_is_over(const void *arg)
{
	struct peer *peer = (struct peer *)arg;

	return inbox_probe(peer, PEER_STREAM_PROGRAM) >= 0 || peer->state == PEER_GONE;
}

static int64_t probe_peer(rdma_context *ctx, struct peer *peer, uint64_t timeout_ms)
{
	uint64_t until = context_after(timeout_ms);
	int64_t length;

	if (!probe_is_over(peer)) {
		context_turn(ctx);
		if (!probe_is_over(peer) && timeout_ms)
			context_wait(ctx, probe_is_over, peer, until);
	}
	length = inbox_probe(peer, PEER_STREAM_PROGRAM);
	if (length >= 0)
		return length;
	if (peer->state == PEER_GONE)
		return rdma_fail(-ECONNRESET, "Peer not connected: %s: %s", peer->name, message_gone_why(peer));
	return rdma_fail(-EAGAIN, "No message has come from %s", peer->name);
}

int64_t rdma_probe(rdma_context *ctx, int peer_idx, uint64_t timeout_ms)
{
	struct peer *peer;
	int64_t rc = -1;

	if (!context_is_valid(ctx))
		return -1;
	rdma_enter(ctx);
	peer = peer_to_receive(ctx, peer_idx);
	if (peer)
		rc = probe_peer(ctx, peer, timeout_ms);
	rdma_leave(ctx);
	return rc;
}

/*
 * Settings
 */
int rdma_send_class(rdma_context *ctx, int message_class)
{
	if (!context_is_valid(ctx))
		return -1;
	if (message_class < 0 || message_class >= PEER_CLASSES)
		return rdma_fail(-EINVAL, "Invalid parameters: there is no class %d", message_class);
	rdma_enter(ctx);
	ctx->message_class = (unsigned)message_class;
	rdma_leave(ctx);
	return 0;
}

int rdma_rate_limit(rdma_context *ctx, int peer_idx, uint32_t mib)
{
	struct peer *peer;

	if (!context_is_valid(ctx))
		return -1;
	rdma_enter(ctx);
	peer = peer_connected(ctx, peer_idx);
	if (peer) {
		message_limit_set(peer, mib * (uint64_t)MIB);
		message_pump(peer);
	}
	rdma_leave(ctx);
	return peer ? 0 : -1;
}

/*
 * To all
 */

struct peer *peer_of_program(const rdma_context *ctx, uint32_t place)
{
	struct peer *peer = place < ctx->peers ? ctx->peer[place] : NULL;

	if (!peer || peer->inner || (peer->state != PEER_CONNECTED && peer->state != PEER_BROKEN))
		return NULL;
	return peer;
}

/* The peers that did not get it, in words. */
struct missed {
	unsigned count;
	int error;
	char text[400];
};

static void missed_add(struct missed *missed)
{
	size_t used = strlen(missed->text);

	missed->error = -rdma_get_errno();
	snprintf(missed->text + used, sizeof(missed->text) - used, "%s%s", missed->count++ ? "; " : "",
		 rdma_get_error());
}

static int broadcast_finish(struct rdma_request **requests, uint32_t count, struct missed *missed)
{
	uint32_t of = count + missed->count;
	int sent = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (request_finish(requests[i]) < 0)
			missed_add(missed);
		else
			sent++;
	}
	if (missed->count)
		rdma_fail(missed->error, "Not sent to %u of %u: %s", missed->count, of, missed->text);
	else if (!of)
		rdma_fail(-ENOTCONN, "Peer not connected: there is none");
	return sent ? sent : -1;
}

static int broadcast_send(rdma_context *ctx, const void *data, size_t len)
{
	struct rdma_request **requests = calloc(ctx->peers + 1, sizeof(*requests));
	struct missed missed = {0};
	uint32_t count = 0;
	int rc;

	if (!requests)
		return rdma_fail(-ENOMEM, "No memory for a broadcast to %u peers", ctx->peers);
	for (uint32_t i = 0; i < ctx->peers; i++) {
		struct peer *peer = peer_of_program(ctx, i);

		if (!peer)
			continue;
		peer_look(peer);
		requests[count] = message_begin_send(peer, PEER_STREAM_PROGRAM, data, len);
		if (requests[count]) {
			count++;
		} else {
			rdma_fail(-ENOMEM, "%s: no memory for another operation", peer->name);
			missed_add(&missed);
		}
		message_flush(peer);
	}
	rc = broadcast_finish(requests, count, &missed);
	free(requests);
	return rc;
}

int rdma_broadcast(rdma_context *ctx, const void *data, size_t len)
{
	int rc;

	if (!context_is_valid(ctx) || !memory_is_valid(data, len))
		return -1;
	rdma_enter(ctx);
	rc = broadcast_send(ctx, data, len);
	rdma_leave(ctx);
	return rc;
}
