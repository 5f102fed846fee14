/* peer_groups.c: the groups of programs that meet at rdmad. */
#include "ctl/ctl.h"
#include "rdmad/peer.h"

struct groups {
	json_t *list, *members; /* members: of the group that came last */
	char name[RDMAD_PEER_NAME_MAX + 1];
	uint32_t number;
};

static void set_text(json_t *o, const char *key, const char *text)
{
	char printable[4 * RDMAD_PEER_ADDRESSES_MAX + 1];

	if (ctl.json)
		ctl_json_set_bytes(o, key, text, strlen(text));
	else
		json_object_set_new(o, key, json_string(log_printable(text, printable, sizeof(printable))));
}

static int add_member(void *arg, const struct rdmad_peer_entry *entry)
{
	struct groups *groups = arg;
	json_t *o;

	if (!groups->members || groups->number != entry->number || strcmp(groups->name, entry->name) != 0) {
		o = json_object();
		set_text(o, "name", entry->name);
		json_object_set_new(o, "complete", json_boolean(entry->number != 0));
		json_object_set_new(o, "size", json_integer(entry->size));
		json_object_set_new(o, "here", json_integer(entry->here));
		groups->members = json_array();
		json_object_set_new(o, "members", groups->members);
		json_array_append_new(groups->list, o);
		snprintf(groups->name, sizeof(groups->name), "%s", entry->name);
		groups->number = entry->number;
	}
	o = json_object();
	json_object_set_new(o, "rank", entry->rank < 0 ? json_null() : json_integer(entry->rank));
	set_text(o, "addresses", entry->addresses);
	json_array_append_new(groups->members, o);
	return ctl_interrupted() ? -EINTR : 0;
}

/* Make a table with a line for each member. */
static json_t *member_table(const json_t *list)
{
	json_t *table = json_array(), *group, *member;
	size_t i, k;

	json_array_foreach(list, i, group) json_array_foreach(json_object_get(group, "members"), k, member)
	{
		json_t *line = json_object();

		json_object_set(line, "name", json_object_get(group, "name"));
		json_object_set(line, "complete", json_object_get(group, "complete"));
		json_object_set(line, "size", json_object_get(group, "size"));
		json_object_set(line, "here", json_object_get(group, "here"));
		json_object_update(line, member);
		if (json_is_null(json_object_get(line, "rank")))
			json_object_set_new(line, "rank", json_string("any"));
		json_array_append_new(table, line);
	}
	return table;
}

static int command_groups(const struct ctl_arguments *arguments)
{
	struct groups groups = {.list = json_array()};
	struct rdmad_options options = {0};
	char transport[8] = "";
	json_t *o;
	int rc;

	(void)arguments;
	ctl_library_options(&options);
	ctl_catch_interrupt();
	rc = rdmad_peer_list(ctl.host, &options, add_member, &groups, transport);
	if (rc != 0) {
		json_decref(groups.list);
		return rc == -EINTR ? CTL_INTERRUPTED : ctl_fail_open(rc, ctl.host);
	}
	if (ctl.json)
		return ctl_json_print(json_pack("{s:s, s:s, s:s, s:o}", "command", "peer groups", "server", ctl.host,
						"transport", transport, "groups", groups.list));
	o = json_pack("{s:o}", "groups", member_table(groups.list));
	ctl_render(stdout, o);
	ctl_say_transport(ctl.host, transport);
	json_decref(o);
	json_decref(groups.list);
	return CTL_OK;
}

const struct ctl_command ctl_peer_groups_commands[] = {
	{"peer groups", command_groups, "", "the groups of programs that meet at rdmad, and who is there", NULL, 0, 0},
	{NULL},
};
