/* check_cluster.c: the table of a cluster, the daemon's place in it, its engine, and whether its nodes are reached:
 * D32. */
#include "ctl/doctor/doctor.h"
#include "cluster/cluster.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define NODE_LIMIT TIME_S
#define NODES_LIMIT (10 * TIME_S) /* of all: others are not tried then */

/* False: a connection came to nothing. What is no host, as the path of a socket, is not tried, nor what listens by RDMA
 * alone. */
static bool is_reached(const char *text)
{
	struct address_socket at[ADDRESS_SOCKETS];
	struct address address;
	bool tries;
	int count, fd = -1;

	log_hush_begin();
	tries = address_parse(text, &address) == 0 && !address.path && strcmp(address.scheme, scheme_rdma) != 0;
	count = tries ? address_resolve(&address, at) : 0;
	for (int i = 0; i < count && fd < 0; i++)
		fd = address_connect(&at[i], NODE_LIMIT);
	log_hush_end();
	if (fd >= 0)
		close(fd);
	return fd >= 0 || !tries;
}

static void check_nodes_of(struct doctor *d, const struct cluster_table *table, unsigned self)
{
	uint64_t until = time_now() + NODES_LIMIT;

	for (unsigned i = 0; i < table->count && time_now() < until; i++) {
		const char *address = table->node[i].address[CLUSTER_NATIVE];

		if (i != self && !is_reached(address))
			finding_add(d, 3204, NAMES("HOST", address), "node %s at %s", table->node[i].name, address);
	}
}

/* What the daemon says of the engine that its nodes agree by, which it asks four times in a period. */
static void check_engine(struct doctor *d, const char *cluster)
{
	const char *state = "", *reason = "", *url = "";
	json_int_t heard = 0, asked = 0, lost = 0, out = 0;
	uint64_t period;
	char text[32];

	if (json_unpack(json_object_get(d->status, "engine"), "{s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "state", &state,
			"reason", &reason, "endpoint", &url, "heard_ms", &heard, "asked", &asked, "lost", &lost,
			"nodes_out", &out) != 0)
		return;
	if (strcmp(state, "beating") != 0)
		finding_add(d, 3205, NAMES("NAME", cluster, "URL", url), "%s: %s", state,
			    *reason ? reason : "it waits");
	if (!config_value(d, "cluster.period", text, sizeof(text)) || units_parse_time(text, &period) != 0)
		period = TIME_NEVER;
	if ((uint64_t)heard > period / 2 / TIME_MS || (asked > 1 && asked == lost))
		finding_add(d, 3206, NAMES("URL", url),
			    "%s: %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT " requests without an answer", url,
			    lost, asked);
	if (out)
		finding_add(d, 3207, NAMES("NAME", cluster, "URL", url), "%" JSON_INTEGER_FORMAT, out);
}

void check_cluster(struct doctor *d)
{
	static struct cluster_table table;
	const json_t *running = json_object_get(d->status, "cluster");
	char file[512], node[CLUSTER_NAME_MAX + 1], *text;
	unsigned self;
	size_t len;
	int rc;

	if (config_value(d, "cluster.name", node, sizeof(node)) && *node)
		check_engine(d, node);
	if (!config_value(d, "cluster.table", file, sizeof(file)) || !*file ||
	    !config_value(d, "cluster.node", node, sizeof(node)) || !*node)
		return;
	text = look_bytes(&d->look, &len, "%s", file);
	rc = text ? 0 : -errno;
	log_hush_begin();
	if (rc == 0)
		rc = cluster_parse(file, text, len, &table);
	free(text);
	if (rc != 0) {
		const char *why = log_hush_end();

		finding_add(d, 3201, NAMES("FILE", file), "%s: %s", file, *why ? why : strerror(-rc));
		return;
	}
	log_hush_end();
	self = cluster_find(&table, node);
	if (self == CLUSTER_NODES) {
		finding_add(d, 3202, NAMES("FILE", file, "NAME", node), "%s has no node %s", file, node);
		return;
	}
	if (running && json_integer_value(json_object_get(running, "epoch")) != (json_int_t)table.epoch)
		finding_add(d, 3203, NAMES("FILE", file, "UNIT", d->unit),
			    "%s has the epoch %" PRIu64 ", the daemon %" JSON_INTEGER_FORMAT, file, table.epoch,
			    json_integer_value(json_object_get(running, "epoch")));
	if (d->live)
		check_nodes_of(d, &table, self);
}
