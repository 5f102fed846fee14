/* peer_list.c: the groups of programs that meet at an rdmad. */
#include <rdmad/peer.h>

#include "engine/engine.h"

_Static_assert(RDMAD_PEER_NAME_MAX == WIRE_PEER_NAME_MAX && RDMAD_PEER_ADDRESSES_MAX == WIRE_PEER_ADDRESSES_MAX,
	       "as the wire has it");

struct groups {
	rdmad_peer_each each;
	void *arg;
	const uint8_t *page; /* being read, and where */
	uint32_t length, at;
};

static const struct list_kind groups;

/* The next bytes; NULL: the page has not as many. */
static const uint8_t *groups_take(struct groups *g, uint32_t bytes)
{
	const uint8_t *taken = g->page + g->at;

	if (bytes > g->length - g->at)
		return NULL;
	g->at += bytes;
	return taken;
}

/* 0, -EPROTO, or what each() answered. */
static int groups_member(struct groups *g, struct rdmad_peer_entry *out)
{
	const uint8_t *head = groups_take(g, sizeof(struct wire_peer_member)), *addresses;
	struct wire_peer_member member;

	if (!head)
		return list_broken(&groups);
	memcpy(&member, head, sizeof(member));
	if (member.addresses_len > RDMAD_PEER_ADDRESSES_MAX ||
	    !(addresses = groups_take(g, WIRE_PAD(member.addresses_len))))
		return list_broken(&groups);
	memcpy(out->addresses, addresses, member.addresses_len);
	out->addresses[member.addresses_len] = '\0';
	out->rank = member.rank > (uint32_t)INT32_MAX ? -1 : (int)member.rank;
	return g->each(g->arg, out);
}

static int groups_group(struct groups *g)
{
	const uint8_t *head = groups_take(g, sizeof(struct wire_peer_entry)), *name;
	struct rdmad_peer_entry out = {.rank = -1};
	struct wire_peer_entry entry;
	int rc = 0;

	if (!head)
		return list_broken(&groups);
	memcpy(&entry, head, sizeof(entry));
	if (entry.name_len > RDMAD_PEER_NAME_MAX || !(name = groups_take(g, WIRE_PAD(entry.name_len))))
		return list_broken(&groups);
	memcpy(out.name, name, entry.name_len);
	out.number = entry.number;
	out.size = entry.size;
	out.here = entry.here;
	for (uint32_t i = 0; i < entry.count && rc == 0; i++)
		rc = groups_member(g, &out);
	return rc;
}

static int groups_page(void *arg, const uint8_t *page, uint32_t length)
{
	struct groups *g = arg;
	int rc = 0;

	g->page = page;
	g->length = length;
	g->at = 0;
	while (rc == 0 && g->at < g->length)
		rc = groups_group(g);
	return rc;
}

static const struct list_kind groups = {
	.service = WIRE_PEER,
	.op = WIRE_OP_PEER_LIST,
	.room = "peer",
	.things = "groups",
	.page = groups_page,
};

int rdmad_peer_list(const char *server, const struct rdmad_options *options, rdmad_peer_each each, void *arg,
		    char transport[8])
{
	return list_all(&groups, server, options, &(struct groups){.each = each, .arg = arg}, transport);
}
