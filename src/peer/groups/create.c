/*
 * create.c: the group of a server and its clients. The table goes by the connections that there are, which the group
 * uses, too. Rank 0, the server, invites each client; a client whose program comes to form the group answers with its
 * addresses; the server sends the table. What follows is in form.c.
 */
#include "peer/groups/form.h"

/*
 * Invitations that came
 */
int form_invited(struct peer *peer, const void *body, size_t length)
{
	struct wire_group_invitation invitation;
	struct group *group;
	unsigned n = 0;

	if (length != sizeof(invitation))
		return 0; /* an answer to what is no more */
	memcpy(&invitation, body, sizeof(invitation));
	if (!invitation.number || !invitation.size || invitation.size > WIRE_PEER_MEMBERS_MAX || !invitation.rank ||
	    invitation.rank >= invitation.size)
		return -EPROTO;
	list_for_each (pos, &peer->ctx->groups) {
		group = group_of(container_of(pos, struct rdma_group, node));
		n += group->state == GROUP_INVITED;
	}
	if (n >= GROUP_INVITATIONS)
		return -EPROTO;
	group = group_new(peer->ctx, invitation.number, (int)invitation.rank, (int)invitation.size, GROUP_INVITED);
	if (!group)
		return -ENOMEM;
	group->server = peer;
	snprintf(group->name, sizeof(group->name), "the group of %s", peer->name);
	peer->ctx->progressed++;
	return 0;
}

/*
 * Both sides
 */
static bool table_is_whole(const void *arg)
{
	const struct group_form *form = ((const struct group *)arg)->form;
	int others = ((const struct group *)arg)->base.size - (((const struct group *)arg)->base.rank == 0);

	return form->error || form->known == others;
}

static int table_wait(struct group *group)
{
	int rc = context_wait(group->base.ctx, table_is_whole, group,
			      group->form->until + (group->base.rank ? FORM_GRACE : 0));

	if (rc == -ETIMEDOUT)
		form_late(group);
	else if (rc != 0)
		form_fail(group, rc, "%s", strerror(-rc));
	return rc;
}

static rdma_group *create_as_server(rdma_context *ctx)
{
	uint32_t number = group_number_random(ctx);
	struct wire_group_invitation invitation = {.number = number};
	struct group *group;
	int size = 1;

	for (uint32_t i = 0; i < ctx->peers; i++)
		size += group_client(ctx->peer[i]);
	invitation.size = (uint32_t)size;
	if (size > (int)WIRE_PEER_MEMBERS_MAX) {
		rdma_fail(-EUSERS, "A group of %d members: there may be %u", size, WIRE_PEER_MEMBERS_MAX);
		return NULL;
	}
	if (!number) {
		rdma_fail(-EIO, "No random numbers for a group");
		return NULL;
	}
	group = group_new(ctx, number, 0, size, GROUP_FORMING);
	if (!group)
		return NULL;
	snprintf(group->name, sizeof(group->name), "the group of %.150s", ctx->connections->url);
	if (form_begin(group, time_after(time_now(), group->timeout)) != 0) {
		group_discard(group);
		return NULL;
	}
	for (uint32_t i = 0; i < ctx->peers; i++) {
		if (!group_client(ctx->peer[i]))
			continue;
		invitation.rank++;
		form_linked(group, (int)invitation.rank, ctx->peer[i]);
		if (control_send(ctx->peer[i], WIRE_CONTROL_GROUP_ADDRESS, &invitation, sizeof(invitation)) == 0)
			message_flush(ctx->peer[i]);
	}
	table_wait(group);
	if (!group->form->error) {
		group->form->member[0].token = 0;
		form_table_say(group);
	}
	return form_finish(group) == 0 ? &group->base : NULL;
}

static struct group *group_invited(const rdma_context *ctx)
{
	list_for_each (pos, &ctx->groups) {
		struct group *group = group_of(container_of(pos, struct rdma_group, node));

		if (group->state == GROUP_INVITED)
			return group;
	}
	return NULL;
}

static bool client_is_invited(const void *ctx)
{
	return group_invited(ctx) || !group_servers(ctx);
}

static rdma_group *create_as_client(rdma_context *ctx)
{
	struct {
		struct wire_group_answer answer;
		char addresses[WIRE_PEER_ADDRESSES_MAX];
	} say;
	uint64_t timeout = ctx->options.connect_timeout_ms * TIME_MS;
	int rc = context_wait(ctx, client_is_invited, ctx, time_after(time_now(), timeout));
	struct group *group = group_invited(ctx);
	int length;

	if (!group) {
		rdma_fail(rc ? rc : -ENOTCONN,
			  rc ? "The server did not call rdma_group_create() within %g s"
			     : "No server is connected that could make a group",
			  (double)timeout / TIME_S);
		return NULL;
	}
	group->state = GROUP_FORMING;
	group->base.member[0] = group->server;
	if (form_begin(group, time_after(time_now(), timeout)) != 0) {
		form_say_outcome(group, -rdma_get_errno(), rdma_get_error());
		group_discard(group);
		return NULL;
	}
	form_linked(group, 0, group->server);
	length = rc = peer_addresses(ctx, group->server->conn, say.addresses, sizeof(say.addresses));
	if (rc >= 0) {
		say.answer = (struct wire_group_answer){
			.number = group->base.number, .addresses_len = (uint32_t)length, .token = group->form->token};
		rc = control_send(group->server, WIRE_CONTROL_GROUP_ADDRESS, &say, sizeof(say.answer) + (size_t)length);
	}
	if (rc != 0)
		form_fail(group, rc, "the server cannot be answered: %s", strerror(-rc));
	else
		table_wait(group);
	return form_finish(group) == 0 ? &group->base : NULL;
}

rdma_group *rdma_group_create(rdma_context *ctx)
{
	rdma_group *group;

	if (!ctx) {
		rdma_fail(-EINVAL, "Invalid parameters: the context is NULL");
		return NULL;
	}
	rdma_enter(ctx);
	if (ctx->running) {
		rdma_fail(-EDEADLK, "rdma_group_create() from within a callback");
		group = NULL;
	} else {
		group = ctx->is_server ? create_as_server(ctx) : create_as_client(ctx);
	}
	rdma_leave(ctx);
	return group;
}
