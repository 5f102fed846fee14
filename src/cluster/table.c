/* table.c: nodes, their addresses, and which slots they have. */
#include "cluster/cluster.h"

#include <ctype.h>

#define STRIDE 32u /* slots that are compared at once, as runs are long */

static const char *const kinds[] = {"native", "resp", "metrics"};

const char *cluster_kind_name(enum cluster_kind kind)
{
	return kinds[kind];
}

enum cluster_kind cluster_kind_find(const char *name)
{
	enum cluster_kind kind = CLUSTER_NATIVE;

	while (kind < CLUSTER_KINDS && strcmp(kinds[kind], name) != 0)
		kind++;
	return kind;
}

/* Why an address of that kind is of no use to other machines' clients; NULL: it is. */
static const char *fault_of(enum cluster_kind kind, const struct address *address)
{
	if (kind != CLUSTER_NATIVE && *address->scheme)
		return "it is host:port, without a scheme";
	if (kind != CLUSTER_NATIVE && !address->port_given)
		return "it needs a port";
	for (const char *c = address->host; *c; c++)
		if (!isgraph((unsigned char)*c))
			return "its host has a blank, or a character that no host has";
	if (!address->path && !address->port)
		return "port 0 is no port to connect to";
	if (!address->path && strcmp(address->host, "*") == 0)
		return "* is where to listen, not where to connect";
	return NULL;
}

int cluster_node_set(struct cluster_node *node, enum cluster_kind kind, const char *text)
{
	char written[sizeof(struct address) + 16];
	struct address address;
	const char *why;
	bool v6;

	if (address_parse(text, &address) != 0)
		return -EINVAL;
	why = fault_of(kind, &address);
	if (why)
		return log_fail(-EINVAL, "cluster", "%s address \"%.200s\": %s", kinds[kind], text, why);
	for (char *c = address.host; *c && !address.path; c++)
		*c = (char)tolower((unsigned char)*c);
	v6 = !address.path && strchr(address.host, ':');
	snprintf(written, sizeof(written), "%s%s%s%s%s", address.scheme, *address.scheme ? "://" : "", v6 ? "[" : "",
		 address.host, v6 ? "]" : "");
	if (!address.path)
		snprintf(written + strlen(written), sizeof(written) - strlen(written), ":%u", address.port);
	if (strlen(written) > CLUSTER_ADDRESS_MAX)
		return log_fail(-EINVAL, "cluster", "%s address \"%.200s\": it has more than %u characters",
				kinds[kind], text, CLUSTER_ADDRESS_MAX);
	strcpy(node->address[kind], written);
	return 0;
}

/* The part of an address that is the same by each transport. */
static const char *place_of(const char *address)
{
	const char *scheme = strstr(address, "://");

	return scheme ? scheme + 3 : address;
}

/* The kind of another node's, or of the same node's other kind, that has an address of `node`; CLUSTER_KINDS: none. */
static enum cluster_kind address_taken(const struct cluster_node *node, const struct cluster_node *other)
{
	for (enum cluster_kind kind = 0; kind < CLUSTER_KINDS; kind++)
		for (enum cluster_kind own = 0; own < CLUSTER_KINDS && *other->address[kind]; own++)
			if ((node != other || own != kind) &&
			    strcmp(place_of(node->address[own]), place_of(other->address[kind])) == 0)
				return kind;
	return CLUSTER_KINDS;
}

int cluster_add(struct cluster_table *table, const struct cluster_node *node)
{
	enum cluster_kind kind = address_taken(node, node);

	if (table->count == CLUSTER_NODES)
		return log_fail(-E2BIG, "cluster", "more than %u nodes", CLUSTER_NODES);
	if (!words_is_name(node->name, CLUSTER_NAME_MAX))
		return log_fail(-EINVAL, "cluster",
				"\"%.80s\" is no name of a node: it has 1 to %u of letters, digits and \"._-\"",
				node->name, CLUSTER_NAME_MAX);
	if (!*node->address[CLUSTER_NATIVE])
		return log_fail(-EINVAL, "cluster", "node %s has no address", node->name);
	if (kind != CLUSTER_KINDS)
		return log_fail(-EINVAL, "cluster", "node %s has %s twice", node->name, node->address[kind]);
	for (unsigned i = 0; i < table->count; i++) {
		if (strcmp(table->node[i].name, node->name) == 0)
			return log_fail(-EINVAL, "cluster", "there are two nodes %s", node->name);
		kind = address_taken(node, &table->node[i]);
		if (kind != CLUSTER_KINDS)
			return log_fail(-EINVAL, "cluster", "%s is the address of node %s and of node %s",
					table->node[i].address[kind], table->node[i].name, node->name);
	}
	table->node[table->count++] = *node;
	return 0;
}

bool cluster_is_named(const char *text, const char **rest)
{
	static const char prefix[] = "cluster:";
	const char *at = text + strlen(prefix);

	if (strncmp(text, prefix, strlen(prefix)) != 0 || !at[strspn(at, "0123456789")])
		return false;
	if (rest)
		*rest = at;
	return true;
}

unsigned cluster_find(const struct cluster_table *table, const char *name)
{
	for (unsigned i = 0; i < table->count; i++)
		if (strcmp(table->node[i].name, name) == 0)
			return i;
	return CLUSTER_NODES;
}

unsigned cluster_run(const struct cluster_table *table, unsigned first)
{
	const uint16_t *owner = table->owner;
	unsigned last = first;

	while (last + STRIDE < CLUSTER_SLOTS && memcmp(&owner[last + 1], &owner[last], STRIDE * sizeof(owner[0])) == 0)
		last += STRIDE;
	while (last + 1 < CLUSTER_SLOTS && owner[last + 1] == owner[first])
		last++;
	return last;
}

bool cluster_range(const struct cluster_table *table, unsigned owner, unsigned *next, unsigned *first, unsigned *last)
{
	for (; *next < CLUSTER_SLOTS; *next = *last + 1) {
		*first = *next;
		*last = cluster_run(table, *first);
		if (table->owner[*first] != owner)
			continue;
		*next = *last + 1;
		return true;
	}
	return false;
}

void cluster_count(const struct cluster_table *table, unsigned counts[static CLUSTER_NODES])
{
	memset(counts, 0, CLUSTER_NODES * sizeof(counts[0]));
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++)
		if (table->owner[slot] < CLUSTER_NODES)
			counts[table->owner[slot]]++;
}
