/* group.c: groups: members, losses, and groups of a part of the members. */
#include "peer/groups/group.h"

#include <stdlib.h>
#include <sys/random.h>

#define LEFT "it has left the group"

struct group *group_find(const rdma_context *ctx, uint32_t number)
{
	list_for_each (pos, &ctx->groups) {
		struct group *group = group_of(container_of(pos, struct rdma_group, node));

		if (group->base.number == number)
			return group;
	}
	return NULL;
}

int group_rank_of(const struct group *group, const struct peer *peer)
{
	for (int i = 0; i < group->base.size; i++)
		if (group->base.member[i] == peer)
			return i;
	return -1;
}

bool group_client(const struct peer *peer)
{
	return !peer->inner && !peer->session->dials && (peer->state == PEER_CONNECTED || peer->state == PEER_BROKEN);
}

bool group_servers(const rdma_context *ctx)
{
	for (uint32_t i = 0; i < ctx->peers; i++) {
		const struct peer *peer = ctx->peer[i];

		if (!peer->inner && peer->session->dials &&
		    (peer->state == PEER_CONNECTED || peer->state == PEER_BROKEN))
			return true;
	}
	return false;
}

/*
 * Begin and end
 */
static void group_release(struct group *group)
{
	form_free(group);
	/* Groups of its members use its connections, and may have to make them again. */
	if (group->ticket && list_empty(&group->base.ctx->groups))
		engine_key_withdraw(group->base.ctx->key);
	free(group->shrink);
	meeting_free(group->meeting);
	free(group->derived);
	free(group->left);
	free(group->left_at);
	free(group->base.gone);
	free(group->base.member);
	free(group);
}

struct group *group_new(rdma_context *ctx, uint32_t number, int rank, int size, enum group_state state)
{
	struct group *group = calloc(1, sizeof(*group));

	if (group) {
		group->base = (struct rdma_group){.ctx = ctx, .number = number, .rank = rank, .size = size};
		group->state = state;
		group->timeout = ctx->options.connect_timeout_ms * TIME_MS;
		group->base.member = calloc((size_t)size, sizeof(struct peer *));
		group->base.gone = calloc((size_t)size, sizeof(bool));
		group->left = calloc((size_t)size, sizeof(bool));
		group->left_at = calloc((size_t)size, sizeof(uint32_t));
	}
	if (!group || !group->base.member || !group->base.gone || !group->left || !group->left_at ||
	    shrink_init(group) != 0) {
		if (group)
			group_release(group);
		rdma_fail(-ENOMEM, "No memory for a group of %d members", size);
		return NULL;
	}
	snprintf(group->name, sizeof(group->name), "the group");
	list_add_tail(&ctx->groups, &group->base.node);
	return group;
}

void group_discard(struct group *group)
{
	group->base.ctx->gone_to_bury = true;
	aborts_forget(group);
	list_del(&group->base.node);
	group_release(group);
}

static bool peer_is_in_a_group(const struct peer *peer)
{
	list_for_each (pos, &peer->ctx->groups) {
		struct group *group = group_of(container_of(pos, struct rdma_group, node));

		if (group->state != GROUP_FREED && group_rank_of(group, peer) >= 0)
			return true;
	}
	return false;
}

/* For a peer that has gone: a group knows it, in any state. */
static bool group_has_peer(const struct peer *peer)
{
	list_for_each (pos, &peer->ctx->groups) {
		struct group *group = group_of(container_of(pos, struct rdma_group, node));

		if (group->server == peer || group_rank_of(group, peer) >= 0)
			return true;
	}
	return false;
}

static bool group_forms(const rdma_context *ctx, uint64_t hello_group)
{
	list_for_each (pos, &ctx->groups) {
		const struct group *group = group_of(container_of(pos, struct rdma_group, node));

		if (group->form && form_token(group) == (hello_group & ~(uint64_t)UINT16_MAX))
			return true;
	}
	return false;
}

/* A decision of a shrink is kept: another member may yet ask for it. */
static void group_end(struct group *group)
{
	struct wire_group_lost leave = {.number = group->base.number,
					.rank = (uint32_t)group->base.rank,
					.left = 1,
					.sequence = group->base.sequence};
	uint64_t streams = (uint64_t)group->base.number << 32;

	if (group->state == GROUP_WHOLE)
		group_say(group, WIRE_CONTROL_GROUP_LOST, &leave, sizeof(leave));
	for_each_layer (layer, group_end)
		layer->group_end(&group->base);
	for (int i = 0; i < group->base.size; i++)
		if (group->base.member[i] && group->base.member[i]->message)
			inbox_forget(group->base.member[i], streams, streams | UINT32_MAX);
	meeting_free(group->meeting);
	group->meeting = NULL;
	group->state = GROUP_FREED;
	for (int i = 0; i < group->base.size; i++) /* connections that were made for groups end with the last one */
		if (group->base.member[i] && group->base.member[i]->inner && !peer_is_in_a_group(group->base.member[i]))
			peer_part(group->base.member[i]);
	if (!shrink_is_wanted(group))
		group_discard(group);
}

void rdma_group_free(rdma_group *group)
{
	rdma_context *ctx;

	if (!group)
		return;
	ctx = group->ctx;
	rdma_enter(ctx);
	group_end(group_of(group));
	rdma_leave(ctx);
}

static void group_context_end(rdma_context *ctx)
{
	while (!list_empty(&ctx->groups))
		group_discard(group_of(list_first(&ctx->groups, struct rdma_group, node)));
	aborts_free(ctx);
}

/*
 * Numbers
 */
uint32_t group_number_random(const rdma_context *ctx)
{
	uint32_t number;

	do {
		if (getrandom(&number, sizeof(number), 0) != sizeof(number))
			return 0;
	} while (!number || group_find(ctx, number));
	return number;
}

static uint64_t derived_hash(uint32_t number, const int *ranks, int count)
{
	return hash_bytes(ranks, (size_t)count * sizeof(*ranks)) ^ (uint64_t)number * 0x9e3779b97f4a7c15ull;
}

uint32_t group_number_derived(uint32_t number, const int *ranks, int count, uint32_t times)
{
	const uint64_t parts[2] = {derived_hash(number, ranks, count), times};
	uint64_t hash = hash_bytes(parts, sizeof(parts));
	uint32_t derived = (uint32_t)(hash >> 32 ^ hash);

	return derived ? derived : 1;
}

/* Count how often this subset was made before; UINT32_MAX: no memory. */
static uint32_t derived_times(struct group *group, const int *ranks, int count)
{
	uint64_t hash = derived_hash(group->base.number, ranks, count);
	struct group_derived *derived;

	for (uint32_t i = 0; i < group->deriveds; i++)
		if (group->derived[i].hash == hash)
			return group->derived[i].times++;
	derived = realloc(group->derived, (group->deriveds + 1) * sizeof(*derived));
	if (!derived)
		return UINT32_MAX;
	group->derived = derived;
	derived[group->deriveds++] = (struct group_derived){.hash = hash, .times = 1};
	return 0;
}

/*
 * Parts of a group
 */
struct group *group_derive(struct group *from, uint32_t number, const int *ranks, int count)
{
	struct group *group;
	int rank = -1;

	for (int i = 0; i < count; i++)
		if (ranks[i] == from->base.rank)
			rank = i;
	if (group_find(from->base.ctx, number)) {
		rdma_fail(-EEXIST,
			  "%s: the number of the new group, %u, is that of another one; make another subset first",
			  from->name, number);
		return NULL;
	}
	group = group_new(from->base.ctx, number, rank, count, GROUP_WHOLE);
	if (!group)
		return NULL;
	snprintf(group->name, sizeof(group->name), "%s", from->name);
	for (int i = 0; i < count; i++)
		group->base.member[i] = from->base.member[ranks[i]];
	return group;
}

static int subset_check(const struct group *group, const int *ranks, int count)
{
	bool mine = false;

	if (!ranks || count < 1 || count > group->base.size)
		return rdma_fail(-EINVAL, "Invalid parameters: a subset of %d members of a group of %d",
				 ranks ? count : 0, group->base.size);
	for (int i = 0; i < count; i++) {
		if (ranks[i] < 0 || ranks[i] >= group->base.size)
			return rdma_fail(-EINVAL, "Invalid parameters: rank %d of a group of %d", ranks[i],
					 group->base.size);
		if (group->base.gone[ranks[i]])
			return rdma_fail(-ECONNRESET, "%s: rank %d is lost: %s", group->name, ranks[i],
					 group->base.why);
		for (int k = 0; k < i; k++)
			if (ranks[k] == ranks[i])
				return rdma_fail(-EINVAL, "Invalid parameters: rank %d is named twice", ranks[i]);
		mine |= ranks[i] == group->base.rank;
	}
	if (!mine)
		return rdma_fail(-EINVAL, "Invalid parameters: a subset without this program, rank %d",
				 group->base.rank);
	return 0;
}

static rdma_group *group_subset(struct group *group, const int *ranks, int count)
{
	struct group *out;
	uint32_t times;

	if (subset_check(group, ranks, count) != 0)
		return NULL;
	times = derived_times(group, ranks, count);
	if (times == UINT32_MAX) {
		rdma_fail(-ENOMEM, "No memory for a group of %d members", count);
		return NULL;
	}
	out = group_derive(group, group_number_derived(group->base.number, ranks, count, times), ranks, count);
	if (!out)
		return NULL;
	for (int i = 0; i < count; i++) { /* what was lost meanwhile the new group learns at once */
		const struct peer *peer = out->base.member[i];

		if (peer && peer->state == PEER_GONE && !out->base.gone[i])
			group_member_lost(out, i, peer->why);
	}
	return &out->base;
}

rdma_group *rdma_group_subset(rdma_group *group, const int *ranks, int count)
{
	rdma_group *out;

	if (!group) {
		rdma_fail(-EINVAL, "Invalid parameters: the group is NULL");
		return NULL;
	}
	rdma_enter(group->ctx);
	out = group_subset(group_of(group), ranks, count);
	rdma_leave(group->ctx);
	return out;
}

/*
 * Losses
 */
void group_say(const struct group *group, enum wire_control_kind kind, const void *body, size_t length)
{
	for (int i = 0; i < group->base.size; i++) {
		struct peer *peer = group->base.member[i];

		if (peer && !group->base.gone[i] && peer->state != PEER_GONE &&
		    control_send(peer, kind, body, length) == 0)
			message_flush(peer);
	}
}

char *group_words(const void *body, size_t length, size_t size, char buf[static GROUP_WORDS])
{
	char words[GROUP_WORDS];
	size_t len = length > size ? MIN(length - size, sizeof(words) - 1) : 0;

	memcpy(words, (const char *)body + size, len);
	words[len] = '\0';
	log_printable(words, buf, GROUP_WORDS);
	return buf;
}

static void say_lost(const struct group *group, int rank, const char *why)
{
	struct {
		struct wire_group_lost lost;
		char words[GROUP_WORDS];
	} say = {.lost = {.number = group->base.number,
			  .rank = (uint32_t)rank,
			  .left = group->left[rank],
			  .sequence = group->left_at[rank]}};
	size_t len = MIN(strlen(why), sizeof(say.words));

	memcpy(say.words, why, len);
	group_say(group, WIRE_CONTROL_GROUP_LOST, &say, sizeof(say.lost) + len);
}

static void group_member_gone(struct group *group, int rank, const char *why)
{
	const struct peer *peer = group->base.member[rank];
	const char *at = peer ? strstr(peer->name, ", ") : NULL; /* behind its rank, which another group gave it */

	group->base.gone[rank] = true;
	if (group->base.lost++ == 0)
		snprintf(group->base.why, sizeof(group->base.why), "rank %d%s%.90s%s was lost: %.120s", rank,
			 peer ? " (" : "",
			 at     ? at + 2
			 : peer ? peer->name
				: "",
			 peer ? ")" : "", why);
	log_info("peer", "%s: rank %d was lost: %s", group->name, rank, why);
	group->base.ctx->progressed++;
}

void group_member_lost(struct group *group, int rank, const char *why)
{
	if (group->base.gone[rank] || rank == group->base.rank)
		return;
	group_member_gone(group, rank, why);
	if (group->state == GROUP_FREED)
		return;
	say_lost(group, rank, why);
	if (group->state == GROUP_FORMING)
		form_lost(group, rank, why);
	if (group->state == GROUP_WHOLE) {
		for_each_layer (layer, group_lost)
			layer->group_lost(&group->base);
	}
	shrink_lost(group);
}

/*
 * In peace: it did its part of the collectives before number `sequence`, which others may yet begin. It is lost for
 * that one. In a shrink it may have left because it knows the decision, which is on its way to the others, too: they
 * are not told, and a new group may have it.
 */
static void group_member_left(struct group *group, int rank, uint32_t sequence)
{
	if (group->base.gone[rank])
		return;
	if (!group->left[rank])
		group->left_at[rank] = sequence;
	group->left[rank] = true;
	if (group->state == GROUP_FORMING) {
		group_member_lost(group, rank, LEFT);
	} else if (shrink_is_under_way(group)) {
		group_member_gone(group, rank, LEFT);
		shrink_lost(group);
	}
}

void group_look_left(struct rdma_group *base)
{
	struct group *group = group_of(base);

	for (int i = 0; i < base->size; i++)
		if (base->member[i])
			peer_look(base->member[i]);
	for (int i = 0; i < base->size; i++)
		if (group->left[i] && (int32_t)(base->sequence - group->left_at[i]) >= 0)
			group_member_lost(group, i, LEFT);
}

void group_lose_left(struct group *group)
{
	for (int i = 0; i < group->base.size; i++)
		if (group->left[i])
			group_member_lost(group, i, LEFT);
}

void group_member_missed(struct rdma_group *base, int rank)
{
	const struct peer *peer = base->member[rank];

	group_member_lost(group_of(base), rank, peer && peer->state == PEER_GONE ? peer->why : LEFT);
}

static void group_peer_lost(struct peer *peer)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &peer->ctx->groups) {
		struct group *group = group_of(container_of(pos, struct rdma_group, node));
		int rank = group_rank_of(group, peer);

		if (group->state == GROUP_INVITED && group->server == peer)
			group_discard(group);
		else if (rank >= 0 && peer->session->bye_heard)
			group_member_left(group, rank, group->base.sequence);
		else if (rank >= 0)
			group_member_lost(group, rank, peer->why);
	}
}

static int group_lost_control(struct group *group, struct peer *peer, const void *body, size_t length)
{
	struct wire_group_lost lost;
	char words[GROUP_WORDS];
	int from = group_rank_of(group, peer);

	if (length < sizeof(lost))
		return -EPROTO;
	memcpy(&lost, body, sizeof(lost));
	if (lost.rank >= (uint32_t)group->base.size)
		return -EPROTO;
	if (from < 0 || group->base.gone[from] || lost.rank == (uint32_t)group->base.rank)
		return 0;
	if (lost.left && lost.rank == (uint32_t)from) {
		group_member_left(group, from, lost.sequence);
		return 0;
	}
	if (!group->base.gone[lost.rank] && !group->left[lost.rank]) {
		group->left[lost.rank] = lost.left;
		group->left_at[lost.rank] = lost.sequence;
	}
	group_member_lost(group, (int)lost.rank, group_words(body, length, sizeof(lost), words));
	return 0;
}

static int group_control(struct peer *peer, enum wire_control_kind kind, const void *body, size_t length)
{
	struct group *group;
	uint32_t number;

	if (length < sizeof(number))
		return -EPROTO;
	memcpy(&number, body, sizeof(number));
	group = group_find(peer->ctx, number);
	if (kind == WIRE_CONTROL_GROUP_ABORT)
		return abort_control(group, peer, body, length);
	if (!group && kind == WIRE_CONTROL_GROUP_ADDRESS)
		return form_invited(peer, body, length);
	if (!group)
		return 0;
	if (kind == WIRE_CONTROL_GROUP_SHRINK)
		return shrink_control(group, peer, body, length);
	if (kind != WIRE_CONTROL_GROUP_LOST)
		return form_control(group, peer, kind, body, length);
	return group->state == GROUP_FREED ? 0 : group_lost_control(group, peer, body, length);
}

/*
 * Looking
 */
int rdma_group_rank(const rdma_group *group)
{
	return group ? group->rank : rdma_fail(-EINVAL, "Invalid parameters: the group is NULL");
}

int rdma_group_size(const rdma_group *group)
{
	return group ? group->size : rdma_fail(-EINVAL, "Invalid parameters: the group is NULL");
}

static int rank_check(const rdma_group *group, int rank)
{
	if (!group)
		return rdma_fail(-EINVAL, "Invalid parameters: the group is NULL");
	if (rank < 0 || rank >= group->size)
		return rdma_fail(-EINVAL, "Invalid parameters: rank %d of a group of %d", rank, group->size);
	return 0;
}

int rdma_group_peer(const rdma_group *group, int rank)
{
	if (rank_check(group, rank) != 0)
		return -1;
	if (!group->member[rank])
		return rdma_fail(-EINVAL, "Invalid parameters: rank %d is this program", rank);
	return group->member[rank]->index;
}

int rdma_group_lost(const rdma_group *group, int rank)
{
	int lost;

	if (rank_check(group, rank) != 0)
		return -1;
	rdma_enter(group->ctx);
	lost = group->gone[rank] || group_of(group)->left[rank];
	rdma_leave(group->ctx);
	return lost;
}

const struct peer_layer peer_groups = {
	.first_control = WIRE_CONTROL_GROUP_ADDRESS,
	.last_control = WIRE_CONTROL_GROUP_ABORT,
	.control = group_control,
	.lost = group_peer_lost,
	.refers = group_has_peer,
	.expects = group_forms,
	.end = group_context_end,
};
