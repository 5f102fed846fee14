/* control.c: messages of the library to itself. */
#include "peer/messages/message.h"

#include <stdlib.h>

static const struct peer_layer *layer_of(unsigned kind)
{
	for_each_layer (layer, control)
		if (kind >= layer->first_control && kind <= layer->last_control)
			return layer;
	return NULL;
}

#define ANSWERS_MAX                                                                                                    \
	16384u /* that may wait for room; a peer that reads, and asks for no more than it may, has a tenth of that */

/* Kinds that are said because the peer asked, or may be. */
static bool is_answer(enum wire_control_kind kind)
{
	return kind == WIRE_CONTROL_WINDOW_KEY || kind == WIRE_CONTROL_WINDOW_ANSWER ||
	       kind == WIRE_CONTROL_WINDOW_CLOSED || kind == WIRE_CONTROL_GROUP_SHRINK;
}

static void control_sent(struct rdma_request *request)
{
	struct peer_message *m = request->owner;

	if (m)
		m->answers--;
	free(request->data);
	request_free(request);
}

int control_send(struct peer *peer, enum wire_control_kind kind, const void *body, size_t length)
{
	struct wire_peer_control head = {.kind = kind};
	struct rdma_request *request;

	must(kind > 0 && kind < WIRE_CONTROLS && length <= PEER_CONTROL_MAX);
	if (peer->state == PEER_GONE)
		return -ECONNRESET;
	request = request_new(peer->ctx, peer);
	if (!request)
		return -ENOMEM;
	request->data = malloc(sizeof(head) + length);
	if (!request->data) {
		request_free(request);
		return -ENOMEM;
	}
	memcpy(request->data, &head, sizeof(head));
	if (length)
		memcpy(request->data + sizeof(head), body, length);
	request->length = sizeof(head) + length;
	request->stream = PEER_STREAM_CONTROL;
	request->message_class = RDMA_URGENT;
	request->done = control_sent;
	if (is_answer(kind)) {
		request->owner = peer->message;
		peer->message->answers++;
	}
	message_send(request);
	return 0;
}

int control_record(struct peer *peer, const void *data, size_t length)
{
	const struct peer_layer *layer;
	struct wire_peer_control head;

	if (length < sizeof(head))
		return message_violation(peer, "a control message of %zu bytes", length);
	memcpy(&head, data, sizeof(head));
	layer = layer_of(head.kind);
	if (!layer)
		return message_violation(peer, "a control message of kind %u, which there is not", head.kind);
	if (layer->control(peer, head.kind, (const char *)data + sizeof(head), length - sizeof(head)) != 0)
		return message_violation(peer, "a control message of kind %u and %zu bytes that does not fit",
					 head.kind, length - sizeof(head));
	if (peer->message->answers > ANSWERS_MAX + peer->message->window / WIRE_PEER_COST(0))
		return message_violation(peer, "it asks and asks, and makes no room for %u answers",
					 peer->message->answers);
	return 0;
}
