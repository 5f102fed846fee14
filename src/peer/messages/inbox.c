/* inbox.c: what has come and was not received: matching with receives. An urgent message goes before others, a bulk one
 * behind. */
#include "peer/messages/message.h"

#include <stdlib.h>

static const uint32_t sizes[MESSAGE_STORED_SIZES] = {128, 1024, PEER_EAGER_MAX};

void inbox_init(struct peer_message *m)
{
	for (unsigned i = 0; i < ARRAY_SIZE(m->queue); i++) {
		list_init(&m->queue[i].receives);
		for (unsigned k = 0; k < PEER_CLASSES; k++)
			list_init(&m->queue[i].unexpected[k]);
	}
	for (unsigned i = 0; i < MESSAGE_STORED_SIZES; i++)
		list_init(&m->spare[i]);
}

/*
 * Memory of stored messages: what was made is kept, and is never more than what may wait at a time.
 */
struct stored *stored_new(struct peer_message *m, uint64_t length)
{
	unsigned size = 0;
	struct stored *stored;

	while (sizes[size] < length)
		size++;
	if (unlikely(list_empty(&m->spare[size]))) {
		stored = malloc(sizeof(*stored) + sizes[size]);
		if (!stored)
			return NULL;
	} else {
		stored = list_first(&m->spare[size], struct stored, node);
		list_del(&stored->node);
	}
	stored->size = (uint8_t)size;
	stored->intake = NULL;
	return stored;
}

void stored_free(struct peer_message *m, struct stored *stored)
{
	if (unlikely(m->gone)) {
		free(stored);
		return;
	}
	list_add_head(&m->spare[stored->size], &stored->node);
}

static void stored_list_free(struct list *messages)
{
	while (!list_empty(messages)) {
		struct stored *stored = list_first(messages, struct stored, node);

		list_del(&stored->node);
		free(stored);
	}
}

/*
 * Queues
 */
static struct inbox_queue *queue_of(struct peer_message *m, uint64_t stream)
{
	if (likely(stream <= PEER_STREAM_CONTROL))
		return &m->queue[stream];
	return &m->queue[2 + (stream ^ stream >> 4 ^ stream >> 32) % MESSAGE_BUCKETS];
}

static struct rdma_request *receive_find(const struct inbox_queue *queue, uint64_t stream)
{
	list_for_each (at, &queue->receives) {
		struct rdma_request *request = container_of(at, struct rdma_request, node);

		if (likely(request->stream == stream))
			return request;
	}
	return NULL;
}

static struct stored *stored_find(const struct inbox_queue *queue, uint64_t stream)
{
	for (unsigned i = 0; i < PEER_CLASSES; i++) {
		const struct list *unexpected = &queue->unexpected[message_ranks[i]];

		list_for_each (at, unexpected)
			if (likely(container_of(at, struct stored, node)->stream == stream))
				return container_of(at, struct stored, node);
	}
	return NULL;
}

static bool is_forgotten(const struct peer_message *m, uint64_t stream)
{
	for (unsigned i = 0; i < m->forgotten_count; i++)
		if (stream >= m->forgotten[i].first && stream < m->forgotten[i].last)
			return true;
	return false;
}

static void fail_too_long(struct rdma_request *request, uint64_t length)
{
	size_t room = request->length;

	request->length = length;
	request_fail(
		request, -EMSGSIZE,
		"Message too long: it has %llu bytes and there is room for %zu; it stays, to be received with more",
		(unsigned long long)length, room);
}

/* The first receive that waits with room for it; those before it fail. */
static struct rdma_request *receive_with_room(struct inbox_queue *queue, uint64_t stream, uint64_t length)
{
	struct rdma_request *request;

	while ((request = receive_find(queue, stream))) {
		list_del(&request->node);
		if (likely(length <= request->length))
			return request;
		fail_too_long(request, length);
	}
	return NULL;
}

static void inbox_store(struct peer_message *m, struct stored *stored, unsigned message_class, uint64_t stream,
			uint64_t length)
{
	stored->message_class = (uint8_t)message_class;
	stored->stream = stream;
	stored->length = length;
	list_add_tail(&queue_of(m, stream)->unexpected[message_class], &stored->node);
	must(!is_forgotten(m, stream));
}

int inbox_deliver(struct peer *peer, unsigned message_class, uint64_t stream, const void *data, size_t length)
{
	struct peer_message *m = peer->message;
	struct rdma_request *request = receive_with_room(queue_of(m, stream), stream, length);
	struct stored *stored;

	if (likely(request)) {
		message_received(peer, stream, WIRE_PEER_COST(length));
		if (length)
			memcpy(request->data, data, length);
		request_complete(request, 0, length);
		return 0;
	}
	if (unlikely(m->forgotten_count && is_forgotten(m, stream))) {
		message_received(peer, stream, WIRE_PEER_COST(length));
		return 0;
	}
	stored = stored_new(m, length);
	if (!stored)
		return -ENOMEM;
	if (length)
		memcpy(stored->data, data, length);
	inbox_store(m, stored, message_class, stream, length);
	peer->ctx->progressed++; /* for rdma_probe() */
	return 0;
}

int inbox_deliver_long(struct intake *intake)
{
	struct peer *peer = intake->peer;
	struct peer_message *m = peer->message;
	struct rdma_request *request = receive_with_room(queue_of(m, intake->stream), intake->stream, intake->length);

	if (request) {
		message_intake_begin(intake, request);
		return 0;
	}
	if (m->forgotten_count && is_forgotten(m, intake->stream)) {
		message_intake_drop(intake);
		return 0;
	}
	intake->stored = stored_new(m, 0);
	if (!intake->stored)
		return -ENOMEM;
	intake->stored->intake = intake;
	inbox_store(m, intake->stored, intake->message_class, intake->stream, intake->length);
	peer->ctx->progressed++;
	return 0;
}

/*
 * Receives
 */
static bool receive_cancel(struct rdma_request *request)
{
	list_del(&request->node);
	return true;
}

static void receive_stored(struct peer *peer, struct rdma_request *request, struct stored *stored)
{
	struct intake *intake = stored->intake;

	if (unlikely(stored->length > request->length)) {
		fail_too_long(request, stored->length);
		return;
	}
	list_del(&stored->node);
	if (intake) {
		intake->stored = NULL;
		stored_free(peer->message, stored);
		message_intake_begin(intake, request);
		return;
	}
	/* Its memory is free before done() is called, which may receive the next one. */
	request->length = stored->length;
	if (stored->length)
		memcpy(request->data, stored->data, stored->length);
	message_received(peer, request->stream, WIRE_PEER_COST(stored->length));
	stored_free(peer->message, stored);
	peer_released(peer);
	request_complete(request, 0, request->length);
}

void message_recv(struct rdma_request *request)
{
	struct peer *peer = request->peer;
	struct peer_message *m = peer->message;
	struct inbox_queue *queue = queue_of(m, request->stream);
	struct stored *stored = stored_find(queue, request->stream);

	must(!request->complete);
	if (stored) {
		receive_stored(peer, request, stored);
		if (unlikely(m->say_confirm))
			message_say(peer);
		return;
	}
	if (unlikely(m->gone)) {
		message_fail_gone(request);
		return;
	}
	request->cancel = receive_cancel;
	list_add_tail(&queue->receives, &request->node);
}

void inbox_wait_again(struct rdma_request *request)
{
	struct peer *peer = request->peer;
	struct inbox_queue *queue = queue_of(peer->message, request->stream);
	struct stored *stored = stored_find(queue, request->stream);

	if (stored) {
		receive_stored(peer, request, stored);
		return;
	}
	if (request->late) {
		request_fail(request, -ETIMEDOUT, "Timed out: %s", peer->name);
		return;
	}
	request->cancel = receive_cancel;
	list_add_head(&queue->receives, &request->node);
}

bool inbox_put_back(struct intake *intake)
{
	struct peer_message *m = intake->peer->message;
	struct stored *stored = stored_new(m, 0);

	if (!stored)
		return false;
	intake->stored = stored;
	stored->intake = intake;
	stored->message_class = intake->message_class;
	stored->stream = intake->stream;
	stored->length = intake->length;
	list_add_head(&queue_of(m, intake->stream)->unexpected[intake->message_class], &stored->node);
	return true;
}

int64_t inbox_probe(struct peer *peer, uint64_t stream)
{
	const struct stored *stored = stored_find(queue_of(peer->message, stream), stream);

	return stored ? (int64_t)stored->length : -EAGAIN;
}

bool inbox_has_more(const struct peer *peer)
{
	return stored_find(&peer->message->queue[PEER_STREAM_PROGRAM], PEER_STREAM_PROGRAM) != NULL;
}

/*
 * Streams that are not used any more
 */
static void stored_drop(struct peer *peer, struct stored *stored)
{
	struct intake *intake = stored->intake;

	list_del(&stored->node);
	message_received(peer, stored->stream, WIRE_PEER_COST(intake ? 0 : stored->length));
	stored_free(peer->message, stored);
	if (!intake)
		return;
	intake->stored = NULL;
	message_intake_drop(intake);
}

static void queue_forget(struct peer *peer, struct inbox_queue *queue, uint64_t first, uint64_t last)
{
	struct list *at, *next;

	for (unsigned i = 0; i < PEER_CLASSES; i++) {
		list_for_each_safe (at, next, &queue->unexpected[i]) {
			struct stored *stored = container_of(at, struct stored, node);

			if (stored->stream >= first && stored->stream < last)
				stored_drop(peer, stored);
		}
	}
}

/* Ranges that touch become one: collectives of a group fail one after the other. */
static bool forgotten_extend(struct peer_message *m, uint64_t first, uint64_t last)
{
	for (unsigned i = 0; i < m->forgotten_count; i++) {
		struct forgotten *f = &m->forgotten[i];

		if (first > f->last || last < f->first)
			continue;
		f->first = MIN(f->first, first);
		f->last = MAX(f->last, last);
		return true;
	}
	return false;
}

static bool forgotten_add(struct peer_message *m, uint64_t first, uint64_t last)
{
	if (forgotten_extend(m, first, last))
		return true;
	if (m->forgotten_count == m->forgotten_room) {
		unsigned room = m->forgotten_room ? 2 * m->forgotten_room : 8;
		struct forgotten *more = realloc(m->forgotten, room * sizeof(*more));

		if (!more)
			return false;
		m->forgotten = more;
		m->forgotten_room = room;
	}
	m->forgotten[m->forgotten_count++] = (struct forgotten){first, last};
	return true;
}

void inbox_drop(struct peer *peer, uint64_t stream)
{
	struct stored *stored = stored_find(queue_of(peer->message, stream), stream);

	if (stored)
		stored_drop(peer, stored);
	message_say(peer);
}

void inbox_forget(struct peer *peer, uint64_t first, uint64_t last)
{
	struct peer_message *m = peer->message;

	must(first > PEER_STREAM_EXCHANGE && first <= last);
	if (!forgotten_add(m, first, last))
		log_warn("peer", "no memory to remember which streams of %s are not used any more", peer->name);
	for (unsigned i = 2; i < ARRAY_SIZE(m->queue); i++)
		queue_forget(peer, &m->queue[i], first, last);
	message_say(peer);
}

/*
 * The end
 */

/* The peer has gone, and its index stays, perhaps for long: what is for messages that come is not kept. */
static void spare_free(struct peer_message *m)
{
	for (unsigned i = 0; i < MESSAGE_STORED_SIZES; i++)
		stored_list_free(&m->spare[i]);
}

void inbox_clear(struct peer *peer)
{
	struct peer_message *m = peer->message;

	for (unsigned i = 0; i < ARRAY_SIZE(m->queue); i++) {
		struct inbox_queue *queue = &m->queue[i];

		while (!list_empty(&queue->receives)) {
			struct rdma_request *request = list_first(&queue->receives, struct rdma_request, node);

			list_del(&request->node);
			message_fail_gone(request);
		}
	}
	spare_free(m);
}

void inbox_free(struct peer_message *m)
{
	for (unsigned i = 0; i < ARRAY_SIZE(m->queue); i++)
		for (unsigned c = 0; c < PEER_CLASSES; c++)
			stored_list_free(&m->queue[i].unexpected[c]);
	spare_free(m);
	free(m->forgotten);
}
