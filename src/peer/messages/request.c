/* request.c: operations under way. They come from slabs of the context, whose end so finds those that the program did
 * not end. */
#include "peer/messages/message.h"

#include <stdlib.h>

#define SLAB 64

struct slab {
	struct slab *next;
	struct rdma_request request[SLAB];
};

struct request_pool {
	struct list free;
	struct slab *slabs;
};

static bool pool_grow(rdma_context *ctx)
{
	struct request_pool *pool = ctx->requests ? ctx->requests : calloc(1, sizeof(*pool));
	struct slab *slab = calloc(1, sizeof(*slab));

	if (pool && !ctx->requests)
		list_init(&pool->free);
	ctx->requests = pool;
	if (!pool || !slab) {
		free(slab);
		return false;
	}
	slab->next = pool->slabs;
	pool->slabs = slab;
	for (unsigned i = 0; i < SLAB; i++)
		list_add_tail(&pool->free, &slab->request[i].node);
	return true;
}

void request_pool_end(rdma_context *ctx)
{
	struct slab *slab = ctx->requests ? ctx->requests->slabs : NULL, *next;

	for (; slab; slab = next) {
		next = slab->next;
		for (unsigned i = 0; i < SLAB; i++)
			free(slab->request[i].why);
		free(slab);
	}
	free(ctx->requests);
	ctx->requests = NULL;
}

struct rdma_request *request_new(rdma_context *ctx, struct peer *peer)
{
	struct rdma_request *request;

	if (unlikely(!ctx->requests || list_empty(&ctx->requests->free)) && !pool_grow(ctx)) {
		rdma_fail(-ENOMEM, "No memory for another operation");
		return NULL;
	}
	request = list_first(&ctx->requests->free, struct rdma_request, node);
	list_del(&request->node);
	*request = (struct rdma_request){.ctx = ctx, .peer = peer};
	list_init(&request->node);
	return request;
}

void request_free(struct rdma_request *request)
{
	must(!list_linked(&request->node));
	if (unlikely(request->why)) {
		free(request->why);
		request->why = NULL;
	}
	list_add_head(&request->ctx->requests->free, &request->node);
}

void request_complete(struct rdma_request *request, int status, size_t length)
{
	must(!request->complete && !list_linked(&request->node));
	request->complete = true;
	request->status = status;
	request->length = length;
	request->cancel = NULL;
	request->ctx->progressed++;
	if (request->done)
		request->done(request);
	else
		request->peer = NULL; /* which may have gone before the program ends it */
}

void request_fail(struct rdma_request *request, int status, const char *format, ...)
{
	va_list args;

	if (format) {
		va_start(args, format);
		if (vasprintf(&request->why, format, args) < 0)
			request->why = NULL;
		va_end(args);
	}
	request_complete(request, status, request->length);
}

/* Returns what the blocking call answers; the request is void then. */
static int64_t request_end(struct rdma_request *request)
{
	int64_t result = (int64_t)request->length;

	must(request->complete);
	if (unlikely(request->status != 0))
		result = rdma_fail(request->status, "%s", request->why ? request->why : strerror(-request->status));
	request_free(request);
	return result;
}

static bool request_is_complete(const void *arg)
{
	return ((const struct rdma_request *)arg)->complete;
}

/* Messages that were gathered leave at the latest with the first check of a request. */
static void request_flush(struct rdma_request *request)
{
	if (request->peer)
		message_flush(request->peer);
}

static int request_await(struct rdma_request *request, uint64_t until)
{
	request_flush(request);
	if (likely(request->complete))
		return 0;
	return context_wait(request->ctx, request_is_complete, request, until);
}

/* The call's time is over: its memory is its caller's again. */
static int64_t request_give_up(struct rdma_request *request, int rc)
{
	if (request->cancel && request->cancel(request)) {
		request_free(request);
		return rdma_fail(rc, "%s: %s", rc == -ETIMEDOUT ? "Timed out" : "Cannot wait here",
				 request->peer ? request->peer->name : "a collective operation");
	}
	while (!request->complete) {
		uint64_t until = request->abandon ? request->abandon(request) : message_abandon(request);

		if (!request->complete)
			context_wait(request->ctx, request_is_complete, request, until);
	}
	return request_end(request);
}

int64_t request_finish_until(struct rdma_request *request, uint64_t until)
{
	int rc = 0;

	if (!request->complete)
		rc = request_await(request, until);
	return likely(rc == 0) ? request_end(request) : request_give_up(request, rc);
}

int64_t request_finish(struct rdma_request *request)
{
	return request_finish_until(request, request->complete ? 0 : context_until(request->ctx));
}

/*
 * The program's calls
 */
static int no_request(void)
{
	return rdma_fail(-EINVAL, "Invalid parameters: no request");
}

/* Why a wait ended before what it was for. */
static int not_awaited(int rc)
{
	if (rc == -ETIMEDOUT)
		return rdma_fail(rc, "Timed out: the operation goes on");
	return rdma_fail(rc, "Cannot wait here: a callback was called by what it would wait for");
}

/* Void requests answer nothing, but where the result goes. */
static void request_harvest(struct rdma_request *request, int64_t *result)
{
	int64_t value = request_end(request);

	if (result)
		*result = value;
}

int rdma_test(rdma_request *request, int64_t *result)
{
	rdma_context *ctx;
	int complete;

	if (!request)
		return no_request();
	ctx = request->ctx;
	rdma_enter(ctx);
	request_flush(request);
	if (!request->complete)
		context_turn(ctx);
	complete = request->complete;
	if (complete)
		request_harvest(request, result);
	rdma_leave(ctx);
	return complete;
}

int rdma_wait(rdma_request *request, uint64_t timeout_ms, int64_t *result)
{
	rdma_context *ctx;
	int64_t value = -1;
	int rc;

	if (!request)
		return no_request();
	ctx = request->ctx;
	rdma_enter(ctx);
	rc = request_await(request, context_after(timeout_ms));
	if (rc == 0)
		value = request_end(request);
	else
		not_awaited(rc);
	rdma_leave(ctx);
	if (rc == 0 && result)
		*result = value;
	return value < 0 ? -1 : 0;
}

/* NULL: there is none, or they are of several contexts; rdma_fail() was called. */
static rdma_context *context_of(rdma_request **requests, int count)
{
	rdma_context *ctx = NULL;

	for (int i = 0; requests && i < count; i++) {
		if (!requests[i])
			continue;
		if (ctx && requests[i]->ctx != ctx) {
			rdma_fail(-EINVAL, "Invalid parameters: the requests are of several contexts");
			return NULL;
		}
		ctx = requests[i]->ctx;
	}
	if (!ctx)
		no_request();
	return ctx;
}

struct any {
	rdma_request **requests;
	int count, found;
	uint64_t seen; /* of ctx->progressed: nothing was completed since it was looked through */
	const rdma_context *ctx;
};

static bool any_is_complete(const void *arg)
{
	struct any *any = (struct any *)arg;

	if (any->seen == any->ctx->progressed)
		return false;
	any->seen = any->ctx->progressed;
	for (int i = 0; i < any->count; i++) {
		if (!any->requests[i] || !any->requests[i]->complete)
			continue;
		any->found = i;
		return true;
	}
	return false;
}

static void requests_flush(rdma_request **requests, int count)
{
	const struct peer *last = NULL;

	for (int i = 0; i < count; i++) {
		if (!requests[i] || requests[i]->peer == last)
			continue;
		request_flush(requests[i]);
		last = requests[i]->peer;
	}
}

int rdma_wait_any(rdma_request **requests, int count, uint64_t timeout_ms, int64_t *result)
{
	rdma_context *ctx = context_of(requests, count);
	struct any any = {.requests = requests, .count = count, .found = -1, .ctx = ctx};
	int rc;

	if (!ctx)
		return -1;
	rdma_enter(ctx);
	requests_flush(requests, count);
	any.seen = ctx->progressed - 1;
	rc = any_is_complete(&any) ? 0 : context_wait(ctx, any_is_complete, &any, context_after(timeout_ms));
	if (rc == 0) {
		request_harvest(requests[any.found], result);
		requests[any.found] = NULL;
	} else {
		not_awaited(rc);
	}
	rdma_leave(ctx);
	return rc == 0 ? any.found : -1;
}

int rdma_wait_all(rdma_request **requests, int count, uint64_t timeout_ms, int64_t *results)
{
	rdma_context *ctx = count ? context_of(requests, count) : NULL;
	struct {
		int error;
		char text[512];
	} failure = {0}; /* the first, which is what the caller reads at the end */
	uint64_t until;
	int rc = 0;

	if (!count)
		return 0;
	if (!ctx)
		return -1;
	rdma_enter(ctx);
	until = context_after(timeout_ms);
	requests_flush(requests, count);
	for (int i = 0; i < count && rc == 0; i++) {
		int64_t value;

		if (!requests[i])
			continue;
		if (!requests[i]->complete)
			rc = request_await(requests[i], until);
		if (rc != 0)
			break;
		value = request_end(requests[i]);
		requests[i] = NULL;
		if (value < 0 && !failure.error) {
			failure.error = -rdma_get_errno();
			snprintf(failure.text, sizeof(failure.text), "%s", rdma_get_error());
		}
		if (results)
			results[i] = value;
	}
	if (rc != 0)
		not_awaited(rc);
	else if (failure.error)
		rc = rdma_fail(failure.error, "%s", failure.text);
	rdma_leave(ctx);
	return rc == 0 ? 0 : -1;
}

int rdma_cancel(rdma_request *request)
{
	rdma_context *ctx;
	int rc = 0;

	if (!request)
		return no_request();
	ctx = request->ctx;
	rdma_enter(ctx);
	if (request->cancel && request->cancel(request))
		request_free(request);
	else
		rc = rdma_fail(-EBUSY, "Too late to give it up: wait for it");
	rdma_leave(ctx);
	return rc;
}
