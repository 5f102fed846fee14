/*
 * cluster.c: what the servers of a cluster say of themselves: which can be reached, by which table each answers, and
 * for what. Servers that a told table has, and the first one has not, are asked as well.
 */
#include "cluster/cluster.h"
#include "ctl/ctl.h"

#include <rdmad/kv.h>

#include <stdlib.h>
#include <unistd.h>

#define AGAIN 3 /* looks at what two servers answer for */

struct seen {
	struct cluster_node node;
	bool reached;
	struct cluster_table *table; /* as it tells it; NULL: not reached, or of no cluster */
	unsigned self;               /* itself in that; CLUSTER_NODES: not there */
	struct kv_info info;
};

static struct seen seen[CLUSTER_NODES];
static unsigned count;

/* Nodes whose names are not known yet, as far as there is room. */
static void add_nodes(const struct cluster_table *table)
{
	for (unsigned i = 0; i < table->count; i++) {
		unsigned at = 0;

		while (at < count && strcmp(seen[at].node.name, table->node[i].name) != 0)
			at++;
		if (at == count && count < CLUSTER_NODES)
			seen[count++].node = table->node[i];
	}
}

/* The table that the server tells; NULL: why not was said. */
static struct cluster_table *table_of(void *kv, const char *address)
{
	struct cluster_table *table = calloc(1, sizeof(*table));
	uint64_t epoch = 0;
	char *text = NULL;
	int rc = table ? kv_cluster_table(kv, &epoch, &text) : -ENOMEM;

	if (rc == 0)
		rc = cluster_parse(address, text, strlen(text), table);
	else
		ctl_say("%s: %s", address, *rdmad_error() ? rdmad_error() : strerror(-rc));
	kv_release(text);
	if (rc == 0)
		return table;
	free(table);
	return NULL;
}

/* What is there by a connection of its own, in place of what was: 0, or the error of opening it. */
static int ask_server(const char *address, struct seen *s)
{
	struct rdmad_options options;
	void *kv;
	int rc;

	ctl_library_options(&options);
	rc = kv_open_options(address, &options, NULL, &kv);
	free(s->table);
	s->table = NULL;
	s->reached = false;
	if (rc != 0)
		return rc;
	s->reached = kv_info(kv, &s->info) == 0;
	s->table = table_of(kv, address ? address : "the server");
	s->self = s->table && *s->node.name ? cluster_find(s->table, s->node.name) : CLUSTER_NODES;
	kv_close(kv);
	return 0;
}

static bool answers_for(const struct seen *s, unsigned slot)
{
	return s->table && s->self != CLUSTER_NODES && s->table->owner[slot] == s->self;
}

/* The first servers: of a table's file, or of the one that the first host tells that answers. An exit status. */
static int first_servers(const struct ctl_arguments *arguments)
{
	struct cluster_table table;
	int rc = CTL_OK;

	if (arguments->count == 1 && access(arguments->text[0], R_OK) == 0) {
		rc = cluster_load(arguments->text[0], &table);
		if (rc == 0)
			add_nodes(&table);
		return (int)ctl_exit_of(rc);
	}
	for (int i = 0; i < MAX(arguments->count, 1) && !count; i++) {
		const char *host = i < arguments->count ? arguments->text[i] : ctl.host;
		struct seen first = {.reached = false};
		int error = ask_server(host, &first);

		rc = error ? ctl_fail_open(error, host) : first.table ? CTL_OK : CTL_FAILED;
		if (first.table)
			add_nodes(first.table);
		free(first.table);
	}
	return rc;
}

static json_t *describe_node(const struct seen *s)
{
	json_t *o = json_pack("{s:s, s:s}", "node", s->node.name, "address", s->node.address[CLUSTER_NATIVE]);
	unsigned slots = 0;

	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++)
		slots += answers_for(s, slot);
	json_object_set_new(o, "reached", json_boolean(s->reached));
	json_object_set_new(o, "epoch", s->table ? json_integer((json_int_t)s->table->epoch) : json_null());
	json_object_set_new(o, "slots", s->table ? json_integer(slots) : json_null());
	json_object_set_new(o, "keys", s->reached ? json_integer((json_int_t)s->info.keys) : json_null());
	json_object_set_new(o, "used_bytes", s->reached ? json_integer((json_int_t)s->info.bytes_used) : json_null());
	json_object_set_new(o, "total_bytes", s->reached ? json_integer((json_int_t)s->info.bytes_total) : json_null());
	return o;
}

/* Two servers that both answer for a slot; CLUSTER_NODES: there are none. */
static unsigned second_of(unsigned slot, unsigned *first)
{
	unsigned n = 0;

	for (unsigned i = 0; i < count; i++) {
		if (!answers_for(&seen[i], slot))
			continue;
		if (n++)
			return i;
		*first = i;
	}
	if (!n)
		*first = CLUSTER_NODES;
	return CLUSTER_NODES;
}

/* The ranges for which two would answer; and how many slots none answers for that was reached. */
static json_t *find_conflicts(unsigned *nobodys)
{
	json_t *list = json_array();

	*nobodys = 0;
	for (unsigned slot = 0, last; slot < CLUSTER_SLOTS; slot = last + 1) {
		unsigned one, other = second_of(slot, &one), first, second;

		for (last = slot; last + 1 < CLUSTER_SLOTS; last++) {
			second = second_of(last + 1, &first);
			if (first != one || second != other)
				break;
		}
		if (one == CLUSTER_NODES)
			*nobodys += last - slot + 1;
		else if (other != CLUSTER_NODES)
			json_array_append_new(list,
					      json_pack("{s:i, s:i, s:s, s:s}", "first", slot, "last", last, "node",
							seen[one].node.name, "other", seen[other].node.name));
	}
	return list;
}

/* A slot may have gone to a server between its former owner's answer and its own: servers with older tables
 * are asked once more. */
static void ask_again(void)
{
	uint64_t highest = 0;

	for (unsigned i = 0; i < count; i++)
		if (seen[i].table)
			highest = MAX(highest, seen[i].table->epoch);
	for (unsigned i = 0; i < count && !ctl_interrupted(); i++)
		if (seen[i].table && seen[i].table->epoch < highest)
			ask_server(seen[i].node.address[CLUSTER_NATIVE], &seen[i]);
}

static int command_status(const struct ctl_arguments *arguments)
{
	uint64_t lowest = UINT64_MAX, highest = 0;
	unsigned reached = 0, nobodys;
	json_t *nodes, *both;
	size_t ranges;
	int rc = first_servers(arguments);

	if (rc != CTL_OK)
		return rc;
	for (unsigned i = 0; i < count && !ctl_interrupted(); i++) {
		int error = ask_server(seen[i].node.address[CLUSTER_NATIVE], &seen[i]);

		if (error && !ctl.json)
			ctl_say("%s: %s", seen[i].node.name, *rdmad_error() ? rdmad_error() : strerror(-error));
		if (seen[i].table)
			add_nodes(seen[i].table); /* and they are asked behind these */
	}
	both = find_conflicts(&nobodys);
	for (unsigned i = 0; i < AGAIN && json_array_size(both); i++) {
		json_decref(both);
		ask_again();
		both = find_conflicts(&nobodys);
	}
	nodes = json_array();
	for (unsigned i = 0; i < count; i++) {
		reached += seen[i].reached;
		if (seen[i].table) {
			lowest = MIN(lowest, seen[i].table->epoch);
			highest = MAX(highest, seen[i].table->epoch);
		}
		json_array_append_new(nodes, describe_node(&seen[i]));
	}
	ranges = json_array_size(both);
	rc = ctl_print(json_pack("{s:I, s:I, s:i, s:i, s:i, s:o, s:o}", "epoch", (json_int_t)highest, "lowest_epoch",
				 (json_int_t)MIN(lowest, highest), "reached", reached, "not_reached", count - reached,
				 "slots_of_nobody", nobodys, "nodes", nodes, "both", both));
	if (rc == CTL_OK && ranges) {
		ctl_say("%s: two servers answer for one slot by their tables, in %zu range%s: give the server that "
			"loses it the newer table by rdmactl reload, or stop it; with etcd it waits by itself, see "
			"rdmactl "
			"cluster show",
			ctl_command_name(), ranges, CTL_S(ranges));
		rc = CTL_FAILED;
	}
	for (unsigned i = 0; i < count; i++)
		free(seen[i].table);
	return rc;
}

const struct ctl_command ctl_cluster_status_commands[] = {
	{"cluster status", command_status, "[FILE | HOST...]",
	 "what each server of a cluster answers for, by which table", NULL, 0, -1, .choices = "@file"},
	{NULL},
};
