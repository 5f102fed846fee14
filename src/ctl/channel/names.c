/* names.c: the names that programs listen on at rdmad. */
#include "ctl/ctl.h"
#include "rdmad/channel.h"

struct names {
	json_t *list;
	const char *only;
};

static int add_name(void *arg, const struct rdmad_channel_entry *entry)
{
	const struct names *names = arg;
	char text[4 * RDMAD_CHANNEL_NAME_MAX + 1];
	json_t *o = json_object();

	if (names->only && strcmp(names->only, entry->name) != 0) {
		json_decref(o);
		return 0;
	}
	if (ctl.json)
		ctl_json_set_bytes(o, "name", entry->name, strlen(entry->name));
	else
		json_object_set_new(o, "name", json_string(log_printable(entry->name, text, sizeof(text))));
	json_object_set_new(o, "capacity_bytes", json_integer((json_int_t)entry->capacity));
	json_object_set_new(o, "clients", json_integer((json_int_t)entry->clients));
	json_array_append_new(names->list, o);
	return ctl_interrupted() ? -EINTR : 0;
}

static int fetch_names(struct names *names, char transport[8])
{
	struct rdmad_options options = {0};
	int rc;

	ctl_library_options(&options);
	ctl_catch_interrupt();
	names->list = json_array();
	rc = rdmad_channel_list(ctl.host, &options, add_name, names, transport);
	if (rc == 0)
		return CTL_OK;
	json_decref(names->list);
	return rc == -EINTR ? CTL_INTERRUPTED : ctl_fail_open(rc, ctl.host);
}

static int command_list(const struct ctl_arguments *arguments)
{
	struct names names = {0};
	char transport[8] = "";
	json_t *o;
	int rc = fetch_names(&names, transport);

	(void)arguments;
	if (rc != CTL_OK)
		return rc;
	o = json_pack("{s:s, s:s, s:s, s:o}", "command", "channel list", "server", ctl.host, "transport", transport,
		      "channels", names.list);
	if (ctl.json)
		return ctl_json_print(o);
	json_object_del(o, "command");
	json_object_del(o, "server");
	json_object_del(o, "transport");
	ctl_render(stdout, o);
	ctl_say_transport(ctl.host, transport);
	json_decref(o);
	return CTL_OK;
}

static int command_stat(const struct ctl_arguments *arguments)
{
	struct names names = {.only = arguments->text[0]};
	char transport[8] = "";
	json_t *o;
	int rc = fetch_names(&names, transport);

	if (rc != CTL_OK)
		return rc;
	if (json_array_size(names.list) == 0) {
		json_decref(names.list);
		return ctl_fail(-ENOENT, "nobody listens on that name", "channel stat %s", arguments->text[0]);
	}
	o = json_incref(json_array_get(names.list, 0));
	json_decref(names.list);
	if (!ctl.json) {
		ctl_render(stdout, o);
		ctl_say_transport(ctl.host, transport);
		json_decref(o);
		return CTL_OK;
	}
	json_object_set_new(o, "command", json_string("channel stat"));
	json_object_set_new(o, "server", json_string(ctl.host));
	json_object_set_new(o, "transport", json_string(transport));
	return ctl_json_print(o);
}

const struct ctl_command ctl_channel_names_commands[] = {
	{"channel list", command_list, "", "the names that programs listen on at rdmad", NULL, 0, 0},
	{"channel stat", command_stat, "NAME", "what rdmad knows of one name", NULL, 1, 1},
	{NULL},
};
