/*
 * abort.c: a collective that has failed at one member, for another reason than a loss, fails at all that are not done
 * with it. That member tells all others, which do not pass it on. What was said of a collective that this
 * member has not begun is kept, as it has to fail when it begins, also of a subset that this member has not made yet.
 */
#include "peer/groups/group.h"

#include <stdlib.h>

#define ABORTS_MAX 64 /* that a context keeps; then the oldest is forgotten */

/* Collectives `first` to `last` of the group of that number. */
struct group_abort {
	struct list node; /* of ctx->aborts */
	uint32_t number, first, last, rank;
	int peer; /* index */
	int error;
	char words[GROUP_WORDS + 160];
};

void group_abort_say(struct rdma_group *base, uint32_t sequence, int error, const char *why)
{
	const struct group *group = group_of(base);
	struct {
		struct wire_group_abort word;
		char words[GROUP_WORDS];
	} say = {.word = {.number = base->number, .sequence = sequence, .rank = (uint32_t)base->rank, .error = error}};
	size_t len = MIN(strlen(why), sizeof(say.words));

	if (group->state != GROUP_WHOLE)
		return;
	log_info("peer", "%s: collective %u failed: %s", group->name, sequence, why);
	memcpy(say.words, why, len);
	group_say(group, WIRE_CONTROL_GROUP_ABORT, &say, sizeof(say.word) + len);
}

/*
 * What others say
 */
/* As this peer said it: whether it is the member that it speaks of shows only when the group is known. */
static struct group_abort *abort_find(const struct peer *peer, uint32_t number, uint32_t sequence)
{
	list_for_each (pos, &peer->ctx->aborts) {
		struct group_abort *each = container_of(pos, struct group_abort, node);

		if (each->peer == peer->index && each->number == number &&
		    sequence - each->first <= each->last - each->first)
			return each;
	}
	return NULL;
}

static void abort_free(struct group_abort *each)
{
	list_del(&each->node);
	free(each);
}

/* Collectives that fail one after the other at a member that is ahead are one. */
static void abort_keep(struct peer *peer, const struct wire_group_abort *word, const char *words)
{
	struct group_abort *new, *before = abort_find(peer, word->number, word->sequence - 1);
	struct list *aborts = &peer->ctx->aborts;
	unsigned count = 0;

	if (abort_find(peer, word->number, word->sequence))
		return;
	if (before && before->rank == word->rank && before->error == word->error) {
		before->last = word->sequence;
		return;
	}
	list_for_each (pos, aborts)
		count++;
	if (count >= ABORTS_MAX)
		abort_free(list_first(aborts, struct group_abort, node));
	new = calloc(1, sizeof(*new));
	if (!new)
		return; /* this member's part ends when its time is over */
	*new = (struct group_abort){.number = word->number,
				    .first = word->sequence,
				    .last = word->sequence,
				    .rank = word->rank,
				    .peer = peer->index,
				    .error = word->error};
	snprintf(new->words, sizeof(new->words), "%s", words);
	list_add_tail(aborts, &new->node);
}

int abort_control(struct group *group, struct peer *peer, const void *body, size_t length)
{
	char why[GROUP_WORDS], words[sizeof(((struct group_abort *)0)->words)];
	struct wire_group_abort word;

	if (length < sizeof(word))
		return -EPROTO;
	memcpy(&word, body, sizeof(word));
	if (word.error >= 0 || word.error < -4095)
		return -EPROTO;
	if (group && (group->state == GROUP_INVITED || group->state == GROUP_FREED))
		return 0;
	if (group && group->state == GROUP_WHOLE && (int)word.rank != group_rank_of(group, peer))
		return 0;
	snprintf(words, sizeof(words), "rank %u (%.110s) gave it up: %s", word.rank, peer->name,
		 group_words(body, length, sizeof(word), why));
	if (group && (int32_t)(word.sequence - group->base.sequence) < 0)
		for_each_layer (layer, group_failed)
			layer->group_failed(&group->base, word.sequence, word.error, words);
	else
		abort_keep(peer, &word, words);
	return 0;
}

int group_aborted(struct rdma_group *base, const char **why)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &base->ctx->aborts) {
		struct group_abort *each = container_of(pos, struct group_abort, node);
		const struct peer *member;

		if (each->number != base->number)
			continue;
		member = each->rank < (uint32_t)base->size ? base->member[each->rank] : NULL;
		if (!member || member->index != each->peer || (int32_t)(each->last - base->sequence) < 0) {
			abort_free(each);
		} else if ((int32_t)(each->first - base->sequence) <= 0) {
			*why = each->words;
			return each->error;
		}
	}
	return 0;
}

void aborts_forget(const struct group *group)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &group->base.ctx->aborts) {
		struct group_abort *each = container_of(pos, struct group_abort, node);

		if (each->number == group->base.number)
			abort_free(each);
	}
}

void aborts_free(rdma_context *ctx)
{
	while (!list_empty(&ctx->aborts))
		abort_free(list_first(&ctx->aborts, struct group_abort, node));
}
