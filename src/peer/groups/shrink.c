/*
 * shrink.c: how the survivors of a group agree on which they are. All that return from one shrink return the same
 * members.
 *
 * The member of the lowest rank that is not known to be lost leads. A member that comes into the call, or sees another
 * leader because the former one was lost, reports to all which leader it follows, and what it accepted last. The leader
 * waits for the reports of all that it does not know to be lost, and proposes a set under a ballot: its rank and a
 * count. A follower accepts; when all of the set that are not lost meanwhile have accepted, the leader has decided, and
 * says so. A member that has a decision answers every report of that round with it.
 *
 * Why two leaders cannot decide differently: a follower of the second one accepts nothing of the first any more. Where
 * the first decided, all that live had accepted, and report that to the second, which then is bound to the same set,
 * even if members of it are lost by now: the new group learns that at once. Where one of the living has not accepted,
 * the first cannot have decided, nor ever will, and the second is free.
 *
 * A member dies during it: the leader proposes again, or there is another leader. A member that lives and was given up
 * by the others, which could not reach it, is told, and its call fails. Where a survivor does not come into the call,
 * that of the others fails when their time is over, and may be made again. What a leader decided while this program had
 * left the call is what its next call answers.
 */
#include "peer/groups/group.h"

#include <stdlib.h>

#define SET_MAX ((WIRE_PEER_MEMBERS_MAX + 7) / 8)

/* By rank, but for the sets, which have a bit for each. */
struct shrink_state {
	uint32_t round;
	bool entered; /* the program is in the call */
	int leader;   /* that this member follows; -1: none yet */
	bool decided; /* `set` */
	bool excluded;
	uint64_t ballot;   /* of a leader, that was proposed; else that was accepted last; 0: none */
	bool judged;       /* of a leader: it knows whether it is bound */
	bool bound;        /* of a leader: to `set` */
	bool proposed;     /* of a leader */
	uint32_t attempts; /* of a leader */
	bool *heard, *reported, *accepted;
	bool *told, *told_last; /* the outcome of this round, and of the one before, when they reported: once */
	uint64_t *ballots;      /* of the members that reported */
	uint64_t highest;       /* of them, and of this one */
	uint8_t *set, *highest_set;
	uint8_t *last; /* what was decided in the round before */
};

static size_t rank_set_bytes(const struct group *group)
{
	return ((size_t)group->base.size + 7) / 8;
}

static bool rank_set_has(const uint8_t *set, int rank)
{
	return set[rank / 8] >> rank % 8 & 1;
}

int shrink_init(struct group *group)
{
	size_t size = (size_t)group->base.size, bytes = rank_set_bytes(group);
	struct shrink_state *s = calloc(1, sizeof(*s) + size * (sizeof(uint64_t) + 5) + 3 * bytes);

	if (!s)
		return -ENOMEM;
	s->leader = -1;
	s->ballots = (uint64_t *)(s + 1);
	s->heard = (bool *)(s->ballots + size);
	s->reported = s->heard + size;
	s->accepted = s->reported + size;
	s->told = s->accepted + size;
	s->told_last = s->told + size;
	s->set = (uint8_t *)(s->told_last + size);
	s->highest_set = s->set + bytes;
	s->last = s->highest_set + bytes;
	group->shrink = s;
	return 0;
}

bool shrink_is_wanted(const struct group *group)
{
	return group->shrink->round || group->shrink->decided;
}

bool shrink_is_under_way(const struct group *group)
{
	return group->shrink->entered;
}

static bool member_lives(const struct group *group, int rank)
{
	return !group->base.gone[rank];
}

/*
 * To say
 */
static void shrink_say(struct group *group, int rank, enum wire_group_shrink_kind kind, uint32_t round, uint64_t ballot,
		       const uint8_t *set)
{
	const struct shrink_state *s = group->shrink;
	struct {
		struct wire_group_shrink word;
		uint8_t set[SET_MAX];
	} body = {.word = {.number = group->base.number,
			   .round = round,
			   .kind = kind,
			   .ballot = ballot,
			   .leader = (uint32_t)s->leader,
			   .flags = s->bound ? WIRE_GROUP_SHRINK_BOUND : 0}};
	struct peer *peer = group->base.member[rank];

	memcpy(body.set, set, rank_set_bytes(group));
	if (peer &&
	    control_send(peer, WIRE_CONTROL_GROUP_SHRINK, &body, sizeof(body.word) + rank_set_bytes(group)) == 0)
		message_flush(peer);
}

static void shrink_say_report(struct group *group, int rank)
{
	const struct shrink_state *s = group->shrink;

	shrink_say(group, rank, WIRE_GROUP_SHRINK_REPORT, s->round, s->highest, s->highest_set);
}

static void shrink_say_all(struct group *group, enum wire_group_shrink_kind kind)
{
	const struct shrink_state *s = group->shrink;

	for (int i = 0; i < group->base.size; i++)
		if (i != group->base.rank && member_lives(group, i))
			kind == WIRE_GROUP_SHRINK_REPORT ? shrink_say_report(group, i)
							 : shrink_say(group, i, kind, s->round, s->ballot, s->set);
}

/*
 * To lead
 */
static bool shrink_all_reported(const struct group *group)
{
	for (int i = 0; i < group->base.size; i++)
		if (i != group->base.rank && member_lives(group, i) && !group->shrink->reported[i])
			return false;
	return true;
}

static void shrink_propose(struct group *group)
{
	struct shrink_state *s = group->shrink;

	if (!s->judged) {
		/* An earlier leader may have decided: all that live have accepted the same of it. */
		s->judged = true;
		s->bound = s->highest != 0;
		s->ballots[group->base.rank] = s->ballot;
		for (int i = 0; i < group->base.size; i++)
			if (member_lives(group, i) && s->ballots[i] != s->highest)
				s->bound = false;
	}
	memset(s->set, 0, rank_set_bytes(group));
	for (int i = 0; i < group->base.size; i++)
		if (s->bound ? rank_set_has(s->highest_set, i) : member_lives(group, i))
			s->set[i / 8] |= (uint8_t)(1u << i % 8);
	s->ballot = (uint64_t)(group->base.rank + 1) << 32 | ++s->attempts;
	s->highest = s->ballot;
	memcpy(s->highest_set, s->set, rank_set_bytes(group));
	memset(s->accepted, 0, (size_t)group->base.size);
	s->proposed = true;
	shrink_say_all(group, WIRE_GROUP_SHRINK_PROPOSE);
}

static void shrink_decide(struct group *group, const uint8_t *set)
{
	struct shrink_state *s = group->shrink;

	s->decided = true;
	memmove(s->set, set, rank_set_bytes(group));
	group->base.ctx->progressed++;
}

static void shrink_lead(struct group *group)
{
	struct shrink_state *s = group->shrink;

	for (int i = 0; i < group->base.size && s->proposed && !s->bound; i++)
		if (rank_set_has(s->set, i) && !member_lives(group, i))
			s->proposed = false;
	if (!s->proposed && !shrink_all_reported(group))
		return;
	if (!s->proposed)
		shrink_propose(group);
	for (int i = 0; i < group->base.size; i++)
		if (i != group->base.rank && rank_set_has(s->set, i) && member_lives(group, i) && !s->accepted[i])
			return;
	shrink_say_all(group, WIRE_GROUP_SHRINK_DECIDE);
	shrink_decide(group, s->set);
}

static void shrink_step(struct group *group)
{
	struct shrink_state *s = group->shrink;
	int leader = 0;

	if (!s->entered || s->decided || s->excluded)
		return;
	while (!member_lives(group, leader))
		leader++;
	if (leader != s->leader) {
		s->leader = leader;
		shrink_say_all(group, WIRE_GROUP_SHRINK_REPORT);
	}
	if (leader == group->base.rank)
		shrink_lead(group);
}

void shrink_lost(struct group *group)
{
	shrink_step(group);
}

/*
 * What others say
 */

/* The outcome of a round, to a member that asks: that is on its way when it asks again. */
static void shrink_say_outcome(struct group *group, int rank, enum wire_group_shrink_kind kind, uint32_t round,
			       bool *told, const uint8_t *set)
{
	if (!told[rank])
		shrink_say(group, rank, kind, round, 0, set);
	told[rank] = true;
}

static void shrink_handle_report(struct group *group, int from, const struct wire_group_shrink *word,
				 const uint8_t *set)
{
	struct shrink_state *s = group->shrink;
	bool first = !s->heard[from];

	if (!member_lives(group, from)) {
		shrink_say_outcome(group, from, WIRE_GROUP_SHRINK_EXCLUDE, s->round, s->told, s->set);
		return;
	}
	s->heard[from] = true;
	if (s->decided) {
		shrink_say_outcome(group, from, WIRE_GROUP_SHRINK_DECIDE, s->round, s->told, s->set);
		return;
	}
	s->reported[from] = word->leader == (uint32_t)group->base.rank;
	s->ballots[from] = word->ballot;
	if (word->ballot > s->highest) {
		s->highest = word->ballot;
		memcpy(s->highest_set, set, rank_set_bytes(group));
	}
	if (s->entered && first && s->leader >= 0)
		shrink_say_report(group, from);
	if (s->entered && s->proposed && s->reported[from] && rank_set_has(s->set, from) && !s->accepted[from])
		shrink_say(group, from, WIRE_GROUP_SHRINK_PROPOSE, s->round, s->ballot,
			   s->set); /* it is back in the call */
}

static void shrink_handle_proposal(struct group *group, int from, const struct wire_group_shrink *word,
				   const uint8_t *set)
{
	struct shrink_state *s = group->shrink;

	if (!s->entered || !member_lives(group, from) || from != s->leader || !rank_set_has(set, group->base.rank) ||
	    word->ballot < s->ballot)
		return;
	for (int i = 0; i < group->base.size; i++)
		if (rank_set_has(set, i) && !member_lives(group, i) && !(word->flags & WIRE_GROUP_SHRINK_BOUND))
			return; /* the leader hears of that loss, and proposes again */
	s->ballot = word->ballot;
	s->highest = word->ballot;
	memcpy(s->highest_set, set, rank_set_bytes(group));
	shrink_say(group, from, WIRE_GROUP_SHRINK_ACCEPT, s->round, s->ballot, set);
}

static void shrink_handle_acceptance(struct group *group, int from, const struct wire_group_shrink *word,
				     const uint8_t *set)
{
	struct shrink_state *s = group->shrink;

	(void)set;
	if (s->proposed && word->ballot == s->ballot)
		s->accepted[from] = true;
}

static void shrink_handle_decision(struct group *group, int from, const struct wire_group_shrink *word,
				   const uint8_t *set)
{
	struct shrink_state *s = group->shrink;

	(void)from;
	(void)word;
	if (s->decided)
		return;
	if (rank_set_has(set, group->base.rank))
		shrink_decide(group, set);
	else
		s->excluded = true;
}

static void shrink_handle_exclusion(struct group *group, int from, const struct wire_group_shrink *word,
				    const uint8_t *set)
{
	(void)word;
	(void)set;
	if (member_lives(group, from) && !group->shrink->decided)
		group->shrink->excluded = true;
}

static void shrink_handle_withdrawal(struct group *group, int from, const struct wire_group_shrink *word,
				     const uint8_t *set)
{
	(void)word;
	(void)set;
	group->shrink->reported[from] = false;
	group->shrink->accepted[from] = false;
	group->shrink->heard[from] = false;
}

static void (*const shrink_handlers[])(struct group *group, int from, const struct wire_group_shrink *word,
				       const uint8_t *set) = {
	[WIRE_GROUP_SHRINK_REPORT] = shrink_handle_report,     [WIRE_GROUP_SHRINK_PROPOSE] = shrink_handle_proposal,
	[WIRE_GROUP_SHRINK_ACCEPT] = shrink_handle_acceptance, [WIRE_GROUP_SHRINK_DECIDE] = shrink_handle_decision,
	[WIRE_GROUP_SHRINK_EXCLUDE] = shrink_handle_exclusion, [WIRE_GROUP_SHRINK_WITHDRAW] = shrink_handle_withdrawal,
};

int shrink_control(struct group *group, struct peer *peer, const void *body, size_t length)
{
	struct shrink_state *s = group->shrink;
	int from = group_rank_of(group, peer);
	struct wire_group_shrink word;
	const uint8_t *set = (const uint8_t *)body + sizeof(word);

	if (length != sizeof(word) + rank_set_bytes(group))
		return -EPROTO;
	memcpy(&word, body, sizeof(word));
	if (word.kind >= ARRAY_SIZE(shrink_handlers) || !shrink_handlers[word.kind])
		return -EPROTO;
	if (from < 0 || (group->state != GROUP_WHOLE && group->state != GROUP_FREED))
		return 0;
	if (s->round && word.round == s->round - 1 && word.kind == WIRE_GROUP_SHRINK_REPORT)
		shrink_say_outcome(group, from, WIRE_GROUP_SHRINK_DECIDE, word.round, s->told_last, s->last);
	if (word.round != s->round)
		return 0;
	shrink_handlers[word.kind](group, from, &word, set);
	shrink_step(group);
	group->base.ctx->progressed++;
	return 0;
}

/*
 * The call
 */
static bool shrink_over(const void *arg)
{
	const struct shrink_state *s = ((const struct group *)arg)->shrink;

	return s->decided || s->excluded;
}

/* Another round begins: of the former one nothing but the decision stays. */
static void shrink_next_round(struct group *group)
{
	struct shrink_state *s = group->shrink;
	size_t size = (size_t)group->base.size;

	memcpy(s->last, s->set, rank_set_bytes(group));
	memcpy(s->told_last, s->told, size);
	memset(s->told, 0, size);
	memset(s->heard, 0, size);
	memset(s->reported, 0, size);
	memset(s->accepted, 0, size);
	memset(s->ballots, 0, size * sizeof(s->ballots[0]));
	s->round++;
	s->decided = s->excluded = s->judged = s->bound = s->proposed = false;
	s->leader = -1;
	s->attempts = 0;
	s->ballot = s->highest = 0;
}

static struct group *shrink_derive(struct group *group)
{
	uint32_t times = UINT32_MAX - group->shrink->round; /* no subset was made so often */
	int *ranks = calloc((size_t)group->base.size, sizeof(*ranks)), count = 0;
	struct group *out;

	if (!ranks) {
		rdma_fail(-ENOMEM, "No memory for a group of %d members", group->base.size);
		return NULL;
	}
	for (int i = 0; i < group->base.size; i++)
		if (rank_set_has(group->shrink->set, i))
			ranks[count++] = i;
	out = group_derive(group, group_number_derived(group->base.number, ranks, count, times), ranks, count);
	for (int i = 0; out && i < count; i++) {
		const struct peer *peer = group->base.member[ranks[i]];

		if ((peer && peer->state == PEER_GONE) || (!member_lives(group, ranks[i]) && !group->left[ranks[i]]))
			group_member_lost(out, i, peer && peer->state == PEER_GONE ? peer->why : group->base.why);
	}
	free(ranks);
	return out;
}

static void shrink_fail_late(const struct group *group, uint64_t timeout)
{
	const struct shrink_state *s = group->shrink;
	double seconds = (double)timeout / TIME_S;
	int rank = s->leader;

	for (int i = 0; i < group->base.size && s->leader == group->base.rank; i++)
		if (i != group->base.rank && member_lives(group, i) && !s->reported[i])
			rank = i;
	if (rank != group->base.rank && !s->heard[rank])
		rdma_fail(-ETIMEDOUT, "%s: rank %d of %d did not call rdma_group_shrink() within %g s", group->name,
			  rank, group->base.size, seconds);
	else
		rdma_fail(-ETIMEDOUT, "%s: the survivors did not agree within %g s; rank %d leads", group->name,
			  seconds, s->leader);
}

static rdma_group *shrink_within_call(struct group *group)
{
	struct shrink_state *s = group->shrink;
	const rdma_options *options = &group->base.ctx->options;
	/* The others learn of a loss up to two heartbeats later. */
	uint64_t timeout = (options->connect_timeout_ms + 2 * MIN(options->heartbeat_ms, 3600000ull)) * TIME_MS;
	struct group *out;
	int rc;

	if (!s->decided)
		group_lose_left(group);
	s->entered = true;
	s->leader = -1;
	shrink_step(group);
	rc = context_wait(group->base.ctx, shrink_over, group, time_after(time_now(), timeout));
	s->entered = false;
	if (!shrink_over(group)) {
		shrink_fail_late(group, timeout);
		if (rc == -EDEADLK)
			rdma_fail(rc, "rdma_group_shrink() from within a callback");
		s->proposed = false;
		shrink_say_all(group, WIRE_GROUP_SHRINK_WITHDRAW);
		return NULL;
	}
	if (s->excluded) {
		rdma_fail(-ECONNRESET, "%s: the other members have given this program up, rank %d", group->name,
			  group->base.rank);
		return NULL;
	}
	out = shrink_derive(group);
	if (out)
		shrink_next_round(group);
	return out ? &out->base : NULL;
}

rdma_group *rdma_group_shrink(rdma_group *group)
{
	rdma_group *out;

	if (!group) {
		rdma_fail(-EINVAL, "Invalid parameters: the group is NULL");
		return NULL;
	}
	rdma_enter(group->ctx);
	out = shrink_within_call(group_of(group));
	rdma_leave(group->ctx);
	return out;
}
