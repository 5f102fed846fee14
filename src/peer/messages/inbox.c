/* inbox.c: what has come and was not received: matching with receives. An urgent message goes before others, a bulk one
 * behind. */
#include "peer/messages/message.h"

#include <stdlib.h>

static const uint32_t sizes[MESSAGE_LETTER_SIZES] = {128, 1024, PEER_EAGER_MAX};

static void queue_init(struct inbox_queue *queue)
{
	list_init(&queue->receives);
	for (unsigned i = 0; i < PEER_CLASSES; i++)
		list_init(&queue->letters[i]);
}

void inbox_init(struct peer_message *m)
{
	for (unsigned i = 0; i < ARRAY_SIZE(m->queue); i++)
		queue_init(&m->queue[i]);
	for (unsigned i = 0; i < MESSAGE_LETTER_SIZES; i++)
		list_init(&m->spare[i]);
}

/*
 * Letters: what was made is kept, and is never more than what may wait at a time.
 */
struct letter *letter_new(struct peer_message *m, uint64_t length)
{
	unsigned size = 0;
	struct letter *letter;

	while (sizes[size] < length)
		size++;
	if (unlikely(list_empty(&m->spare[size]))) {
		letter = malloc(sizeof(*letter) + sizes[size]);
		if (!letter)
			return NULL;
	} else {
		letter = list_first(&m->spare[size], struct letter, node);
		list_del(&letter->node);
	}
	letter->size = (uint8_t)size;
	letter->intake = NULL;
	return letter;
}

void letter_free(struct peer_message *m, struct letter *letter)
{
	if (unlikely(m->gone)) {
		free(letter);
		return;
	}
	list_add_head(&m->spare[letter->size], &letter->node);
}

static void letters_free(struct list *letters)
{
	while (!list_empty(letters)) {
		struct letter *letter = list_first(letters, struct letter, node);

		list_del(&letter->node);
		free(letter);
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

static struct letter *letter_find(const struct inbox_queue *queue, uint64_t stream)
{
	for (unsigned i = 0; i < PEER_CLASSES; i++) {
		const struct list *letters = &queue->letters[message_ranks[i]];

		list_for_each (at, letters)
			if (likely(container_of(at, struct letter, node)->stream == stream))
				return container_of(at, struct letter, node);
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

static void receive_short(struct peer *peer, struct rdma_request *request, const void *data, size_t length)
{
	message_received(peer, request->stream, WIRE_PEER_COST(length));
	if (length)
		memcpy(request->data, data, length);
	request_complete(request, 0, length);
}

static void letter_store(struct peer_message *m, struct letter *letter, unsigned message_class, uint64_t stream,
			 uint64_t length)
{
	letter->message_class = (uint8_t)message_class;
	letter->stream = stream;
	letter->length = length;
	list_add_tail(&queue_of(m, stream)->letters[message_class], &letter->node);
	must(!is_forgotten(m, stream));
}

int inbox_take(struct peer *peer, unsigned message_class, uint64_t stream, const void *data, size_t length)
{
	struct peer_message *m = peer->message;
	struct rdma_request *request = receive_with_room(queue_of(m, stream), stream, length);
	struct letter *letter;

	if (likely(request)) {
		receive_short(peer, request, data, length);
		return 0;
	}
	if (unlikely(m->forgotten_count && is_forgotten(m, stream))) {
		message_received(peer, stream, WIRE_PEER_COST(length));
		return 0;
	}
	letter = letter_new(m, length);
	if (!letter)
		return -ENOMEM;
	if (length)
		memcpy(letter->data, data, length);
	letter_store(m, letter, message_class, stream, length);
	peer->ctx->progressed++; /* for rdma_probe() */
	return 0;
}

int inbox_take_long(struct intake *intake)
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
	intake->letter = letter_new(m, 0);
	if (!intake->letter)
		return -ENOMEM;
	intake->letter->intake = intake;
	letter_store(m, intake->letter, intake->message_class, intake->stream, intake->length);
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

static void receive_letter(struct peer *peer, struct rdma_request *request, struct letter *letter)
{
	struct intake *intake = letter->intake;

	if (unlikely(letter->length > request->length)) {
		fail_too_long(request, letter->length);
		return;
	}
	list_del(&letter->node);
	if (intake) {
		intake->letter = NULL;
		letter_free(peer->message, letter);
		message_intake_begin(intake, request);
		return;
	}
	/* The letter is free before done() is called, which may receive the next one. */
	request->length = letter->length;
	if (letter->length)
		memcpy(request->data, letter->data, letter->length);
	message_received(peer, request->stream, WIRE_PEER_COST(letter->length));
	letter_free(peer->message, letter);
	peer_released(peer);
	request_complete(request, 0, request->length);
}

void message_recv(struct rdma_request *request)
{
	struct peer *peer = request->peer;
	struct peer_message *m = peer->message;
	struct inbox_queue *queue = queue_of(m, request->stream);
	struct letter *letter = letter_find(queue, request->stream);

	must(!request->complete);
	if (letter) {
		receive_letter(peer, request, letter);
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
	struct letter *letter = letter_find(queue, request->stream);

	if (letter) {
		receive_letter(peer, request, letter);
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
	struct letter *letter = letter_new(m, 0);

	if (!letter)
		return false;
	intake->letter = letter;
	letter->intake = intake;
	letter->message_class = intake->message_class;
	letter->stream = intake->stream;
	letter->length = intake->length;
	list_add_head(&queue_of(m, intake->stream)->letters[intake->message_class], &letter->node);
	return true;
}

int64_t inbox_probe(struct peer *peer, uint64_t stream)
{
	const struct letter *letter = letter_find(queue_of(peer->message, stream), stream);

	return letter ? (int64_t)letter->length : -EAGAIN;
}

bool inbox_has_more(const struct peer *peer)
{
	return letter_find(&peer->message->queue[PEER_STREAM_PROGRAM], PEER_STREAM_PROGRAM) != NULL;
}

/*
 * Streams that are not used any more
 */
static void letter_drop(struct peer *peer, struct letter *letter)
{
	struct intake *intake = letter->intake;

	list_del(&letter->node);
	message_received(peer, letter->stream, WIRE_PEER_COST(intake ? 0 : letter->length));
	letter_free(peer->message, letter);
	if (!intake)
		return;
	intake->letter = NULL;
	message_intake_drop(intake);
}

static void queue_forget(struct peer *peer, struct inbox_queue *queue, uint64_t first, uint64_t last)
{
	struct list *at, *next;

	for (unsigned i = 0; i < PEER_CLASSES; i++) {
		list_for_each_safe (at, next, &queue->letters[i]) {
			struct letter *letter = container_of(at, struct letter, node);

			if (letter->stream >= first && letter->stream < last)
				letter_drop(peer, letter);
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
	struct letter *letter = letter_find(queue_of(peer->message, stream), stream);

	if (letter)
		letter_drop(peer, letter);
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
	for (unsigned i = 0; i < MESSAGE_LETTER_SIZES; i++)
		letters_free(&m->spare[i]);
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
			letters_free(&m->queue[i].letters[c]);
	spare_free(m);
	free(m->forgotten);
}
