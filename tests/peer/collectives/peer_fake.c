/* peer_fake.c: see peer_fake.h. */
#include "tests/peer/collectives/peer_fake.h"

#include <limits.h>
#include <stdlib.h>

#include "tests/suite.h"

/* As ck_assert(), which writes to a file each time. */
#define sure(condition) ((condition) ? (void)0 : ck_abort_msg("%s:%d: %s", __FILE__, __LINE__, #condition))

enum message_state { QUEUED, READING, TAKEN };

struct fake_message {
	struct list node; /* in `messages`, in the order of sending */
	int from, to;
	uint64_t stream;
	size_t length;
	char *copy;                /* of an eager one */
	struct rdma_request *send; /* NULL: complete */
	struct rdma_request *recv; /* READING */
	enum message_state state;
	bool told;      /* the receiver knows of it: it can not be given up */
	bool withdrawn; /* but it was asked to */
};

struct forgotten {
	struct forgotten *next;
	int from, to;
	uint64_t first, last;
};

/* A collective has failed at `from`: `to` learns it at some time, and keeps it until it begins that one. */
struct fake_abort {
	struct list node;
	int from, to, error;
	uint32_t sequence;
	bool arrived;
	char words[400];
};

static struct {
	int size;
	uint64_t random;
	rdma_context context[FAKE_MAX];
	struct peer peer[FAKE_MAX][FAKE_MAX];
	rdma_group group[FAKE_MAX];
	struct peer *member[FAKE_MAX][FAKE_MAX];
	bool gone[FAKE_MAX][FAKE_MAX];
	bool dead[FAKE_MAX], noticing[FAKE_MAX];
	int victim;
	struct list messages, receives, aborts;
	struct forgotten *forgotten;
	unsigned requests, events, limit[FAKE_MAX];
} net;

static uint64_t chance(uint64_t of)
{
	net.random = net.random * 6364136223846793005ull + 1442695040888963407ull;
	return (net.random >> 33) % of;
}

static int rank_of(const rdma_context *ctx)
{
	return (int)(ctx - net.context);
}

static int other_of(const struct rdma_request *request)
{
	return request->peer->index;
}

/*
 * Requests.
 */
struct rdma_request *request_new(rdma_context *ctx, struct peer *peer)
{
	unsigned *limit = &net.limit[rank_of(ctx)];
	struct rdma_request *request = *limit ? calloc(1, sizeof(*request)) : NULL;

	if (!request) {
		rdma_fail(-ENOMEM, "No memory for another operation");
		return NULL;
	}
	if (*limit != UINT_MAX)
		--*limit;
	net.requests++;
	request->ctx = ctx;
	request->peer = peer;
	list_init(&request->node);
	return request;
}

void request_free(struct rdma_request *request)
{
	sure(!list_linked(&request->node));
	net.requests--;
	free(request->why);
	free(request);
}

void request_complete(struct rdma_request *request, int status, size_t length)
{
	sure(!request->complete && !list_linked(&request->node));
	request->complete = true;
	request->status = status;
	request->length = length;
	request->cancel = NULL;
	if (request->done)
		request->done(request);
}

void request_fail(struct rdma_request *request, int status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (format && vasprintf(&request->why, format, args) < 0)
		request->why = NULL;
	va_end(args);
	request_complete(request, status, request->length);
}

int64_t request_finish(struct rdma_request *request)
{
	int64_t result = request->length;

	sure(request->complete);
	if (request->status)
		result = rdma_fail(request->status, "%s", request->why ? request->why : strerror(-request->status));
	request_free(request);
	return result;
}

int rdma_test(rdma_request *request, int64_t *result)
{
	schedule_turn(request->ctx, 0, false);
	if (!request->complete)
		return 0;
	*result = request_finish(request);
	return 1;
}

/*
 * Contexts.
 */
void rdma_enter(rdma_context *ctx)
{
}

void rdma_leave(rdma_context *ctx)
{
}

uint64_t context_until(const rdma_context *ctx)
{
	return ctx->options.timeout_ms ? 1 : TIME_NEVER;
}

/* Time passes when nothing else happens. */
int context_wait(rdma_context *ctx, bool (*finished)(const void *arg), const void *arg, uint64_t until)
{
	for (;;) {
		schedule_turn(ctx, 0, false);
		if (finished(arg))
			return 0;
		if (fake_event())
			continue;
		ck_assert_msg(until != TIME_NEVER, "waits for ever");
		return -ETIMEDOUT;
	}
}

/*
 * Messages.
 */
static void message_end(struct fake_message *message, int status)
{
	struct rdma_request *send = message->send, *recv = message->recv;

	list_del(&message->node);
	free(message->copy);
	if (recv)
		request_complete(recv, status, message->length);
	if (send)
		request_complete(send, status, message->length);
	free(message);
}

static bool send_cancel(struct rdma_request *request)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &net.messages) {
		struct fake_message *message = container_of(pos, struct fake_message, node);

		if (message->send != request)
			continue;
		if (message->told || message->state != QUEUED)
			return false;
		message->send = NULL;
		message_end(message, 0);
		return true;
	}
	ck_abort_msg("it is under way");
	return false;
}

void group_look_left(struct rdma_group *group)
{
}

void group_member_missed(struct rdma_group *group, int rank)
{
}

void group_abort_say(struct rdma_group *group, uint32_t sequence, int error, const char *why)
{
	for (int to = 0; to < net.size; to++) {
		struct fake_abort *abort = to == group->rank || net.dead[to] ? NULL : calloc(1, sizeof(*abort));

		if (!abort)
			continue;
		*abort = (struct fake_abort){.from = group->rank, .to = to, .error = error, .sequence = sequence};
		snprintf(abort->words, sizeof(abort->words), "rank %d (fake) gave it up: %s", group->rank, why);
		list_add_tail(&net.aborts, &abort->node);
	}
}

int group_aborted(struct rdma_group *group, const char **why)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &net.aborts) {
		struct fake_abort *abort = container_of(pos, struct fake_abort, node);

		if (abort->to != group->rank || !abort->arrived || abort->sequence != group->sequence)
			continue;
		*why = abort->words;
		return abort->error;
	}
	return 0;
}

static void abort_arrives(struct fake_abort *abort)
{
	rdma_group *group = &net.group[abort->to];

	abort->arrived = true;
	if ((int32_t)(abort->sequence - group->sequence) < 0)
		schedule_group_abort(group, abort->sequence, abort->error, abort->words);
}

static void fake_aborts_free(void)
{
	while (!list_empty(&net.aborts)) {
		struct fake_abort *abort = list_first(&net.aborts, struct fake_abort, node);

		list_del(&abort->node);
		free(abort);
	}
}

uint64_t message_abandon(struct rdma_request *request)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &net.messages) {
		struct fake_message *message = container_of(pos, struct fake_message, node);

		if (message->send == request)
			message->withdrawn = true;
	}
	return TIME_NEVER;
}

static bool is_forgotten(int from, int to, uint64_t stream)
{
	for (const struct forgotten *each = net.forgotten; each; each = each->next) {
		if (each->from == from && each->to == to && stream >= each->first && stream < each->last)
			return true;
	}
	return false;
}

void message_send(struct rdma_request *request)
{
	struct fake_message *message;
	int from = rank_of(request->ctx), to = other_of(request);

	sure(from != to && !net.dead[from]);
	if (net.gone[from][to]) {
		request_fail(request, -ECONNRESET, "it has gone");
		return;
	}
	message = calloc(1, sizeof(*message));
	*message = (struct fake_message){.from = from,
					 .to = to,
					 .stream = request->stream,
					 .length = request->length,
					 .send = request,
					 .told = chance(2)};
	list_add_tail(&net.messages, &message->node);
	request->cancel = send_cancel;
	if (message->length > PEER_EAGER_MAX || chance(4) == 0)
		return;
	message->copy = malloc(message->length + 1);
	memcpy(message->copy, message->length ? request->data : "", message->length);
	message->send = NULL;
	request_complete(request, 0, request->length);
}

static bool recv_cancel(struct rdma_request *request)
{
	sure(list_linked(&request->node));
	list_del(&request->node);
	return true;
}

void message_recv(struct rdma_request *request)
{
	if (net.gone[rank_of(request->ctx)][other_of(request)]) {
		request_fail(request, -ECONNRESET, "it has gone");
		return;
	}
	request->cancel = recv_cancel;
	list_add_tail(&net.receives, &request->node);
}

void message_flush(struct peer *peer)
{
}

void inbox_forget(struct peer *peer, uint64_t first, uint64_t last)
{
	struct forgotten *forgotten = calloc(1, sizeof(*forgotten));

	*forgotten = (struct forgotten){net.forgotten, peer->index, rank_of(peer->ctx), first, last};
	net.forgotten = forgotten;
}

/*
 * What happens.
 */
static struct rdma_request *receive_of(const struct fake_message *message)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &net.receives) {
		struct rdma_request *request = container_of(pos, struct rdma_request, node);

		if (rank_of(request->ctx) == message->to && other_of(request) == message->from &&
		    request->stream == message->stream)
			return request;
	}
	return NULL;
}

static bool is_first(const struct fake_message *message)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &net.messages) {
		struct fake_message *each = container_of(pos, struct fake_message, node);

		if (each == message)
			return true;
		if (each->from == message->from && each->to == message->to && each->stream == message->stream &&
		    each->state == QUEUED)
			return false;
	}
	return false;
}

static bool can_happen(const struct fake_message *message)
{
	return message->state != QUEUED || message->withdrawn ||
	       is_forgotten(message->from, message->to, message->stream) || (is_first(message) && receive_of(message));
}

static void message_arrives(struct fake_message *message)
{
	struct rdma_request *recv = receive_of(message);

	list_del(&recv->node);
	recv->cancel = NULL;
	if (message->length > recv->length) {
		request_complete(recv, -EMSGSIZE, message->length);
		message_end(message, -ECANCELED);
		return;
	}
	message->recv = recv;
	if (message->send)
		message->send->cancel = NULL;
	if (message->length > PEER_EAGER_MAX) {
		message->state = READING;
		return;
	}
	if (message->length)
		memcpy(recv->data, message->copy ? message->copy : message->send->data, message->length);
	message_end(message, 0);
}

static void message_is_read(struct fake_message *message)
{
	struct rdma_request *recv = message->recv;

	memcpy(recv->data, message->send->data, message->length);
	message->recv = NULL;
	message->state = TAKEN;
	request_complete(recv, 0, message->length);
}

static void message_happens(struct fake_message *message)
{
	if (message->state == TAKEN)
		message_end(message, 0);
	else if (message->state == READING)
		message_is_read(message);
	else if (message->withdrawn)
		message_end(message, -ETIMEDOUT);
	else if (is_forgotten(message->from, message->to, message->stream))
		message_end(message, 0);
	else
		message_arrives(message);
}

/* A survivor learns that its peer has gone; its group, that it has lost a member. */
static void lose_messages(int rank, int victim)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &net.messages) {
		struct fake_message *message = container_of(pos, struct fake_message, node);

		if ((message->from == rank && message->to == victim) ||
		    (message->from == victim && message->to == rank)) {
			message_end(message, -ECONNRESET);
			tmp = net.messages.next;
		}
	}
	list_for_each_safe (pos, tmp, &net.receives) {
		struct rdma_request *request = container_of(pos, struct rdma_request, node);

		if (rank_of(request->ctx) != rank || other_of(request) != victim)
			continue;
		list_del(&request->node);
		request_fail(request, -ECONNRESET, "the connection is gone");
		tmp = net.receives.next;
	}
}

static void notice(int rank)
{
	rdma_group *group = &net.group[rank];

	net.noticing[rank] = false;
	net.gone[rank][net.victim] = true;
	lose_messages(rank, net.victim);
	group->lost++;
	snprintf(group->why, sizeof(group->why), "rank %d (fake) was lost", net.victim);
	schedule_group_lost(group);
}

/* The n-th of the messages that did not arrive; NULL: there are `*n` less. */
static struct fake_abort *abort_under_way(uint64_t *n)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &net.aborts) {
		struct fake_abort *abort = container_of(pos, struct fake_abort, node);

		if (!abort->arrived && !(*n)--)
			return abort;
	}
	return NULL;
}

bool fake_event(void)
{
	struct fake_message *candidate[4096];
	unsigned count = 0, notices = 0;
	uint64_t which = UINT64_MAX, aborts;
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &net.messages) {
		struct fake_message *message = container_of(pos, struct fake_message, node);

		if (can_happen(message) && count < ARRAY_SIZE(candidate))
			candidate[count++] = message;
	}
	for (int rank = 0; rank < net.size; rank++)
		notices += net.noticing[rank];
	abort_under_way(&which);
	aborts = UINT64_MAX - which;
	if (!count && !notices && !aborts)
		return false;
	net.events++;
	which = chance(count + notices + aborts);
	if (which < count) {
		message_happens(candidate[which]);
		return true;
	}
	which -= count;
	for (int rank = 0; rank < net.size; rank++) {
		if (net.noticing[rank] && !which--) {
			notice(rank);
			return true;
		}
	}
	abort_arrives(abort_under_way(&which));
	return true;
}

unsigned fake_events(void)
{
	return net.events;
}

void fake_limit(int rank, unsigned n)
{
	net.limit[rank] = n;
}

void fake_kill(int victim)
{
	net.victim = victim;
	net.dead[victim] = true;
	for (int rank = 0; rank < net.size; rank++) {
		lose_messages(victim, rank);
		net.noticing[rank] = rank != victim;
	}
	for (int rank = 0; rank < net.size; rank++)
		net.gone[victim][rank] = true;
	schedule_context_end(&net.context[victim]);
}

/*
 * The whole.
 */
static void member_begin(int rank, rdma_group **group)
{
	rdma_context *ctx = &net.context[rank];

	list_init(&ctx->schedules);
	for (int other = 0; other < net.size; other++) {
		net.peer[rank][other] = (struct peer){.ctx = ctx, .index = other, .state = PEER_CONNECTED};
		net.member[rank][other] = other == rank ? NULL : &net.peer[rank][other];
	}
	net.group[rank] = (struct rdma_group){.ctx = ctx,
					      .number = 7,
					      .rank = rank,
					      .size = net.size,
					      .member = net.member[rank],
					      .gone = net.gone[rank]};
	group[rank] = &net.group[rank];
}

void fake_begin(int size, uint64_t seed, rdma_group **groups)
{
	memset(&net, 0, sizeof(net));
	net.size = size;
	net.random = seed;
	list_init(&net.messages);
	list_init(&net.receives);
	list_init(&net.aborts);
	for (int rank = 0; rank < size; rank++)
		fake_limit(rank, UINT_MAX);
	for (int rank = 0; rank < size; rank++)
		member_begin(rank, groups);
}

void fake_end(void)
{
	while (fake_event())
		;
	for (int rank = 0; rank < net.size; rank++) {
		sure(list_empty(&net.context[rank].schedules));
		schedule_context_end(&net.context[rank]);
	}
	sure(list_empty(&net.messages));
	sure(list_empty(&net.receives));
	sure(!net.requests);
	fake_aborts_free();
	while (net.forgotten) {
		struct forgotten *next = net.forgotten->next;

		free(net.forgotten);
		net.forgotten = next;
	}
}
