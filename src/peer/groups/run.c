/*
 * run.c: the group of the programs that a launcher has started. They meet at the rdmad that the environment names, or
 * need none where the launcher has PMIx: then each publishes what a meeting would be told.
 */
#include "peer/groups/group.h"

#include <stdlib.h>

#define RUN_TIMEOUT (2 * 60 * TIME_S) /* a launcher ends all when one fails */

struct published {
	struct wire_peer_group head; /* of one member; `number` is rank 0's */
	struct wire_peer_member member;
	char addresses[WIRE_PAD(WIRE_PEER_ADDRESSES_MAX)];
};

static int published_make(struct group *group, struct published *out)
{
	uint32_t rank = (uint32_t)group->base.rank;
	int length;

	memset(out, 0, sizeof(*out));
	length = peer_addresses(group->base.ctx, NULL, out->addresses, WIRE_PEER_ADDRESSES_MAX);
	if (length < 0)
		return length;
	if (rank == 0)
		group->base.number = group_number_random(group->base.ctx);
	if (rank == 0 && !group->base.number)
		return -EIO;
	out->head = (struct wire_peer_group){.number = group->base.number,
					     .size = (uint32_t)group->base.size,
					     .rank = rank,
					     .first = rank,
					     .count = 1};
	out->member =
		(struct wire_peer_member){.token = form_token(group), .rank = rank, .addresses_len = (uint32_t)length};
	return (int)(offsetof(struct published, addresses) + WIRE_PAD((size_t)length));
}

static int published_take(struct group *group, uint32_t rank, const uint8_t *bytes, size_t length)
{
	struct wire_peer_group head;

	if (length < sizeof(head))
		return -EPROTO;
	memcpy(&head, bytes, sizeof(head));
	if (head.size != (uint32_t)group->base.size || head.rank != rank || head.first != rank || head.count != 1)
		return -EPROTO;
	if (rank == 0 && group->base.rank) {
		if (!head.number || group_find(group->base.ctx, head.number))
			return -EPROTO;
		group->base.number = head.number;
	}
	return form_table(group, bytes + sizeof(head), length - sizeof(head), rank, 1);
}

/* What all have published. 0; -1: rdma_fail() was called. */
static int published_take_all(struct group *group, const struct launch *launch, unsigned number)
{
	struct published it;

	for (int rank = 0; rank < launch->size; rank++) {
		int length = pmix_shared(launch, number, rank, &it, sizeof(it));

		if (length < 0)
			return -1;
		if (published_take(group, (uint32_t)rank, (const uint8_t *)&it, (size_t)length) != 0)
			return rdma_fail(-EPROTO, "%s: what rank %d has published by PMIx is broken", group->name,
					 rank);
	}
	return 0;
}

/* By PMIx, which the context uses. NULL: rdma_fail() was called. */
static rdma_group *group_by_pmix(rdma_context *ctx, const struct launch *launch)
{
	struct group *group = group_new(ctx, 0, launch->rank, launch->size, GROUP_FORMING);
	struct published it;
	unsigned number;
	int rc;

	if (!group)
		return NULL;
	group->timeout = MAX(group->timeout, RUN_TIMEOUT);
	snprintf(group->name, sizeof(group->name), "group \"%s\"", launch->group);
	rc = form_begin(group, time_after(time_now(), group->timeout));
	if (rc == 0) {
		rc = published_make(group, &it);
		if (rc < 0)
			rdma_fail(rc, "%s: no address or number can be published: %s", group->name, strerror(-rc));
		else
			rc = pmix_share(ctx, launch, &it, (size_t)rc, group->timeout, &number);
	}
	if (rc != 0 || published_take_all(group, launch, number) != 0) {
		group_discard(group);
		return NULL;
	}
	form_patient(group);
	return form_finish(group) == 0 ? &group->base : NULL;
}

/* At the rdmad that is named, or is here; `without`: why PMIx is not used, or "". */
static rdma_group *group_by_meeting(rdma_context *ctx, const struct launch *launch, const char *without)
{
	rdma_group *group =
		group_meet_within(ctx, launch->meeting, launch->group, launch->size, launch->rank, RUN_TIMEOUT);
	struct error_kept kept;

	if (group || launch->meeting || !ctx)
		return group;
	error_keep(&kept);
	rdma_fail(-kept.error, "%.240s; RDMA_MEETING names no other rdmad%s%.150s", kept.text, *without ? "; " : "",
		  without);
	return NULL;
}

/* Where all ranks are on this machine they need no port for others, but a socket in a directory of the run. A context
 * that listens, or has an address of its own, stays as it is, as does one that must not be without RDMA: that needs the
 * address of a device. */
static void run_listen_in(rdma_context *ctx, const char *directory, int rank)
{
	struct peer_connections *c = ctx->connections;

	rdma_enter(ctx);
	if (!ctx->listening && !*c->ip && !ctx->options.require_rdma)
		snprintf(c->ip, sizeof(c->ip), "unix://%s/peer.%d.%08x", directory, rank, (unsigned)(c->number >> 32));
	rdma_leave(ctx);
}

rdma_group *rdma_group_run(rdma_context *ctx)
{
	const char *directory = secure_getenv("RDMA_DIRECTORY");
	struct error_kept kept = {0};
	rdma_group *group = NULL;
	struct launch launch;
	int rc;

	if (launch_read(&launch) != 0)
		return NULL;
	if (ctx && directory)
		run_listen_in(ctx, directory, launch.rank);
	if (!ctx || !launch.nspace || launch.meeting)
		return group_by_meeting(ctx, &launch, "");
	rdma_enter(ctx);
	rc = ctx->running ? rdma_fail(-EDEADLK, "rdma_group_run() from within a callback") : pmix_enter(ctx, &launch);
	if (rc == 0)
		group = group_by_pmix(ctx, &launch);
	rdma_leave(ctx);
	if (rc != -EHOSTUNREACH)
		return group;
	error_keep(&kept);
	return group_by_meeting(ctx, &launch, kept.text);
}
