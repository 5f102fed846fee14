/*
 * schedule.c: carries schedules out. A message's done() only takes note; what follows from it is done by the next
 * schedule_turn(), so nothing is posted or cancelled in the midst of a list that is being walked.
 */
#include "peer/collectives/schedule_private.h"

static void schedule_mark(struct schedule *schedule)
{
	if (schedule->ready)
		return;
	schedule->ready = true;
	list_del(&schedule->node);
	list_add_head(&schedule->ctx->schedules, &schedule->node);
}

/* The first failure is what it ends with. In words, without the call's name. */
static void __attribute__((format(printf, 3, 4)))
schedule_fail(struct schedule *schedule, int status, const char *format, ...)
{
	va_list args;

	if (schedule->status)
		return;
	schedule->status = status;
	va_start(args, format);
	vsnprintf(schedule->why, sizeof(schedule->why), format, args);
	va_end(args);
	schedule_mark(schedule);
}

/*
 * Messages.
 */
static void step_done(struct rdma_request *request)
{
	struct step *step = request->owner;
	struct schedule *schedule = step->lane->schedule;
	int status = request->status;

	must(step->request == request && schedule->under_way);
	step->request = NULL;
	schedule->under_way--;
	if (step->kind != STEP_SEND_LOOSE)
		step->lane->waiting--;
	if ((status == -ECONNRESET || status == -ENOTCONN) && schedule->group)
		group_member_missed(schedule->group, step->rank);
	if (status == -EMSGSIZE || (!status && step->kind == STEP_RECV && request->length != step->length))
		schedule_fail(schedule, status ? status : -EPROTO,
			      "rank %d sent %zu bytes where %zu are expected: the arguments do not fit", step->rank,
			      request->length, step->length);
	else if (status)
		schedule_fail(schedule, status, "rank %d: %s", step->rank,
			      request->why ? request->why : strerror(-status));
	request_free(request);
	schedule_mark(schedule);
}

static void step_post(struct step *step)
{
	struct schedule *schedule = step->lane->schedule;
	struct rdma_request *request = request_new(schedule->ctx, schedule->group->member[step->rank]);

	if (!request) {
		schedule_fail(schedule, -ENOMEM, "no memory for a message");
		return;
	}
	request->stream = step->lane->stream;
	request->message_class = schedule->message_class;
	request->data = step->to;
	request->length = step->length;
	request->done = step_done;
	request->owner = step;
	step->request = request;
	schedule->under_way++;
	if (step->kind != STEP_SEND_LOOSE)
		step->lane->waiting++;
	(step->kind == STEP_RECV ? message_recv : message_send)(request);
}

/*
 * Rounds.
 */
static void lane_begin_round(struct lane *lane)
{
	struct schedule *schedule = lane->schedule;
	struct step *first = &schedule->step[lane->next], *step;

	for (step = first; step->kind != STEP_ROUND && !schedule->status; step++) {
		if (step->kind <= STEP_SEND_LOOSE)
			step_post(step);
	}
	for (step = first; step->kind != STEP_ROUND && !schedule->status; step++) {
		if (step->kind == STEP_COPY)
			memcpy(step->to, step->from, step->length);
		else if (step->kind > STEP_SEND_LOOSE)
			schedule->reduce(step->to, step->from, step->length, step->kind == STEP_REDUCE_LEFT);
	}
	lane->next = step - schedule->step + 1;
}

/* Send what was posted before this member does anything else, so that others begin at once. */
static void schedule_flush(struct schedule *schedule)
{
	const struct rdma_group *group = schedule->group;

	for (int rank = 0; group && rank < group->size; rank++) {
		if (group->member[rank] && !group->gone[rank])
			message_flush(group->member[rank]);
	}
}

static bool schedule_step(struct schedule *schedule)
{
	bool moved = false, lanes_left = false;

	for (uint32_t i = 0; i < schedule->lanes && !schedule->status; i++) {
		struct lane *lane = &schedule->lane[i];

		while (!lane->waiting && lane->next < lane->end && !schedule->status) {
			lane_begin_round(lane);
			moved = true;
		}
		lanes_left |= lane->waiting || lane->next < lane->end;
	}
	if (moved)
		schedule_flush(schedule);
	return lanes_left;
}

/*
 * The end.
 */
static uint64_t schedule_stream(const struct rdma_group *group, uint32_t sequence)
{
	return (uint64_t)group->number << 32 | (uint32_t)(sequence * SCHEDULE_LANES);
}

/* Members that wait for something of this one fail, too, and for the same reason; unless they know of it. Until when to
 * wait for what is under way, and then to call this again: a peer that hangs does not say that it lets go of a
 * message. */
static uint64_t schedule_give_up(struct schedule *schedule)
{
	uint64_t until = TIME_NEVER;

	schedule->given_up = true;
	if (schedule->group && !schedule->told && !schedule->group->lost)
		group_abort_say(schedule->group, schedule->sequence, schedule->status, schedule->why);
	schedule->told = true;
	for (uint32_t i = 0; i < schedule->steps; i++) {
		struct step *step = &schedule->step[i];
		struct rdma_request *request = step->request;

		if (request && request->cancel && request->cancel(request)) {
			step->request = NULL;
			schedule->under_way--;
			request_free(request);
		} else if (request) {
			uint64_t look = message_abandon(request); /* and now or soon step_done() */

			until = MIN(until, look);
		}
	}
	return until;
}

static void streams_forget(const struct rdma_group *group, uint64_t first, uint64_t last)
{
	for (int rank = 0; rank < group->size; rank++) {
		if (group->member[rank])
			inbox_forget(group->member[rank], first, last);
	}
}

/* Drop the messages that came for it; each further collective of a group that has lost a member fails before it
 * receives anything. */
static void collective_forget(const struct rdma_group *group, uint32_t sequence)
{
	uint64_t all = (uint64_t)group->number << 32, first = schedule_stream(group, sequence);

	if (group->lost)
		streams_forget(group, all, all | UINT32_MAX);
	else
		streams_forget(group, first, first + SCHEDULE_LANES);
}

static void schedule_end(struct schedule *schedule)
{
	struct rdma_request *request = schedule->request;

	if (schedule->status && schedule->group)
		collective_forget(schedule->group, schedule->sequence);
	list_del(&schedule->node);
	if (schedule->status)
		request_fail(request, schedule->status, "%s: %s", schedule->name, schedule->why);
	else
		request_complete(request, 0, 0);
	schedule_free(schedule->ctx, schedule);
}

static void schedule_advance(struct schedule *schedule)
{
	bool lanes_left = schedule_step(schedule);

	schedule->ready = false;
	list_del(&schedule->node);
	list_add_tail(&schedule->ctx->schedules, &schedule->node);
	if (schedule->status && !schedule->given_up)
		schedule_give_up(schedule);
	if (!schedule->under_way && (schedule->status || !lanes_left))
		schedule_end(schedule);
}

int schedule_turn(rdma_context *ctx, uint64_t now, bool arm)
{
	int count = 0;

	(void)now;
	(void)arm;
	while (!list_empty(&ctx->schedules)) {
		struct schedule *schedule = list_first(&ctx->schedules, struct schedule, node);

		if (!schedule->ready)
			break;
		schedule_advance(schedule);
		count++;
	}
	return count;
}

void schedule_group_lost(struct rdma_group *group)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &group->ctx->schedules) {
		struct schedule *schedule = container_of(pos, struct schedule, node);

		if (schedule->group == group)
			schedule_fail(schedule, -ECONNRESET, "%s", group->why);
	}
}

void schedule_group_abort(struct rdma_group *group, uint32_t sequence, int error, const char *words)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &group->ctx->schedules) {
		struct schedule *schedule = container_of(pos, struct schedule, node);

		if (schedule->group != group || schedule->sequence != sequence || schedule->status)
			continue;
		schedule->told = true;
		schedule_fail(schedule, error, "%s", words);
	}
}

void schedule_group_end(struct rdma_group *group)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &group->ctx->schedules) {
		struct schedule *schedule = container_of(pos, struct schedule, node);

		if (schedule->group != group)
			continue;
		schedule_fail(schedule, -ECANCELED, "its group was freed");
		schedule_give_up(schedule);
		collective_forget(group, schedule->sequence);
		schedule->group = NULL;
	}
}

void schedule_context_end(rdma_context *ctx)
{
	while (!list_empty(&ctx->schedules)) {
		struct schedule *schedule = list_first(&ctx->schedules, struct schedule, node);

		schedule->group = NULL;
		schedule_fail(schedule, -ECANCELED, "its context has ended");
		schedule_give_up(schedule);
		must(!schedule->under_way);
		schedule_end(schedule);
	}
	schedule_free_spares(ctx);
}

/*
 * The begin.
 */
static void schedule_start(struct schedule *schedule, const struct schedule_order *order, struct rdma_request *request)
{
	struct rdma_group *group = order->group;

	schedule->ctx = group->ctx;
	schedule->group = group;
	schedule->request = request;
	schedule->name = order->name;
	schedule->reduce = order->reduce;
	schedule->message_class = group->ctx->message_class;
	schedule->sequence = group->sequence++;
	for (uint32_t i = 0; i < schedule->lanes; i++) {
		schedule->lane[i].schedule = schedule;
		schedule->lane[i].stream = schedule_stream(group, schedule->sequence) + i;
	}
	list_add_tail(&schedule->ctx->schedules, &schedule->node);
	schedule_advance(schedule);
}

/* The collective counts as begun, as it does at the others, and has failed. */
static int schedule_begin_failed(const struct schedule_order *order, int error, const char *why)
{
	collective_forget(order->group, order->group->sequence++);
	rdma_fail(error, "%s: %s", order->name, why);
	return error;
}

static int schedule_begin_without_memory(const struct schedule_order *order)
{
	static const char why[] = "no memory for its schedule";

	group_abort_say(order->group, order->group->sequence, -ENOMEM, why);
	return schedule_begin_failed(order, -ENOMEM, why);
}

int schedule_begin(const struct schedule_order *order, struct rdma_request **out)
{
	rdma_context *ctx = order->group->ctx;
	struct rdma_request *request;
	struct schedule *schedule;
	const char *why;
	int error;

	group_look_left(order->group);
	if (order->group->lost)
		return schedule_begin_failed(order, -ECONNRESET, order->group->why);
	error = group_aborted(order->group, &why);
	if (error)
		return schedule_begin_failed(order, error, why);
	request = request_new(ctx, NULL);
	if (!request)
		return schedule_begin_without_memory(order);
	schedule = schedule_plan(order);
	if (!schedule) {
		request_free(request);
		return schedule_begin_without_memory(order);
	}
	*out = request;
	schedule_start(schedule, order, request);
	return 0;
}

static bool request_is_complete(const void *arg)
{
	return ((const struct rdma_request *)arg)->complete;
}

/* The schedule that a request is of. */
static struct schedule *schedule_of(const struct rdma_request *request)
{
	list_for_each (pos, &request->ctx->schedules) {
		struct schedule *schedule = container_of(pos, struct schedule, node);

		if (schedule->request == request)
			return schedule;
	}
	must(false);
	return NULL;
}

/* A member that it waits for: its part is not there, or not taken. */
static int schedule_waits_for(const struct schedule *schedule)
{
	for (uint32_t i = 0; i < schedule->steps; i++)
		if (schedule->step[i].request)
			return schedule->step[i].rank;
	return schedule->group->rank;
}

/* The call's time is over: its memory is its caller's again. */
static void schedule_give_back(const struct rdma_request *request, int rc)
{
	struct schedule *schedule = schedule_of(request);

	if (rc == -ETIMEDOUT)
		schedule_fail(schedule, rc, "not all members have done their part in time; it waits for rank %d",
			      schedule_waits_for(schedule));
	else
		schedule_fail(schedule, rc, "%s", strerror(-rc));
	while (!request->complete) {
		uint64_t until = schedule_give_up(schedule);

		schedule_mark(schedule);
		context_wait(request->ctx, request_is_complete, request, until);
	}
}

int schedule_run(const struct schedule_order *order)
{
	rdma_context *ctx = order->group->ctx;
	struct rdma_request *request;
	int rc = 0;

	if (ctx->running)
		return rdma_fail(-EDEADLK, "%s: called from within a turn of its context", order->name);
	if (schedule_begin(order, &request))
		return -1;
	if (!request->complete)
		rc = context_wait(ctx, request_is_complete, request, context_until(ctx));
	if (rc && !request->complete)
		schedule_give_back(request, rc);
	return request_finish(request) < 0 ? -1 : 0;
}

const struct peer_layer peer_collectives = {
	.group_lost = schedule_group_lost,
	.group_failed = schedule_group_abort,
	.group_end = schedule_group_end,
	.turn = schedule_turn,
	.end = schedule_context_end,
};
