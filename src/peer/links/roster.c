/*
 * roster.c: peers by their indices. An index is given out once. A peer that has gone leaves as soon as nothing refers
 * to it: no group, no handle of a window, no message that may still be received, and the program was told. So what a
 * context keeps, and walks through, is bounded by the peers that there are, however many came and went.
 */
#include "peer/links/connect.h"

#include <stdlib.h>

static int roster_grow(rdma_context *ctx)
{
	uint32_t room = MAX(2 * ctx->peers_room, 16u);
	struct peer **peers;

	if (ctx->peers < ctx->peers_room)
		return 0;
	peers = realloc(ctx->peer, room * sizeof(*peers));
	if (!peers)
		return -ENOMEM;
	ctx->peer = peers;
	ctx->peers_room = room;
	return 0;
}

int peer_number(struct peer *peer)
{
	rdma_context *ctx = peer->ctx;
	int rc = ctx->indices < INT32_MAX ? roster_grow(ctx) : -EUSERS;

	for_each_layer (layer, init)
		if (rc == 0)
			rc = layer->init(peer);
	if (rc != 0)
		return rc;
	peer->index = (int)ctx->indices++;
	ctx->peer[ctx->peers++] = peer;
	return 0;
}

/* As long as no peer has left, an index is a place. */
struct peer *peer_at(const rdma_context *ctx, int index)
{
	uint32_t first = 0, end = ctx->peers;

	if (likely(index >= 0 && (uint32_t)index < end && ctx->peer[index]->index == index))
		return ctx->peer[index];
	while (first < end) {
		uint32_t middle = first + (end - first) / 2;

		if (ctx->peer[middle]->index == index)
			return ctx->peer[middle];
		if (ctx->peer[middle]->index < index)
			first = middle + 1;
		else
			end = middle;
	}
	return NULL;
}

/* Peers that leave
 */
const char *peer_grave(const rdma_context *ctx, int index)
{
	const struct peer_connections *c = ctx->connections;

	for (unsigned i = 0; i < PEER_GRAVES; i++)
		if (c->grave[i].words && c->grave[i].index == index)
			return c->grave[i].words;
	return "has gone";
}

/* A peer has ended when it has gone, and nothing but its messages keeps it. */
static bool has_ended(const struct peer *peer)
{
	if (peer->state != PEER_GONE || peer->conn || list_linked(&peer->node))
		return false;
	for_each_layer (layer, refers)
		if (layer->refers(peer))
			return false;
	return true;
}

static bool has_unread(const struct peer *peer)
{
	for_each_layer (layer, unread)
		if (layer->unread(peer))
			return true;
	return false;
}

/* Where many have gone whose messages were not received, the first give way. */
void peers_bury(rdma_context *ctx)
{
	struct peer_connections *c = ctx->connections;
	uint32_t kept = 0, unread = 0;

	ctx->gone_to_bury = false;
	for (uint32_t i = 0; i < ctx->peers; i++)
		unread += has_ended(ctx->peer[i]) && has_unread(ctx->peer[i]);
	for (uint32_t i = 0; i < ctx->peers; i++) {
		struct peer *peer = ctx->peer[i];
		bool more = has_ended(peer) && has_unread(peer);
		struct peer_grave *grave;

		if (!has_ended(peer) || (more && unread <= ctx->options.max_peers)) {
			ctx->peer[kept++] = peer;
			continue;
		}
		unread -= more;
		grave = &c->grave[c->graves++ % PEER_GRAVES];
		free(grave->words);
		grave->index = peer->index;
		if (asprintf(&grave->words, "(%s): %s", peer->name, peer->why) < 0)
			grave->words = NULL;
		peer_free(peer);
	}
	ctx->peers = kept;
}

void roster_free(rdma_context *ctx)
{
	for (uint32_t i = 0; i < ctx->peers; i++)
		peer_free(ctx->peer[i]);
	for (unsigned i = 0; i < PEER_GRAVES; i++)
		free(ctx->connections->grave[i].words);
	free(ctx->peer);
	ctx->peer = NULL;
	ctx->peers = 0;
}
