/* slow.c: the log of slow requests of the daemon of this machine. */
#include "ctl/watch/watch.h"

static bool reset;

static const struct ctl_option options[] = {
	{"reset", 0, CTL_FLAG, &reset, NULL, "empty the log, too"},
	{NULL},
};

static json_t *row_of(const json_t *entry)
{
	static const char *const members[] = {"id",         "service", "operation",     "us",
					      "size_bytes", "client",  "key_of_client", "key"};
	double at = json_number_value(json_object_get(entry, "at_unix_seconds"));
	time_t seconds = (time_t)at;
	json_t *row = json_object();
	char day[32];

	json_object_set_new(
		row, "at",
		json_sprintf("%s.%03u", watch_time_text(seconds, day), (unsigned)((at - (double)seconds) * 1000)));
	for (size_t i = 0; i < ARRAY_SIZE(members); i++)
		json_object_set(row, strcmp(members[i], "us") == 0 ? "took_us" : members[i],
				json_object_get(entry, members[i]));
	return row;
}

static int command_slow(const struct ctl_arguments *arguments)
{
	json_t *answer;
	int rc = ctl_control_ask(reset ? "slow-reset" : "slow", &answer);

	(void)arguments;
	if (rc != CTL_OK)
		return rc;
	if (!json_integer_value(json_object_get(answer, "limit_us")) && !ctl.quiet)
		ctl_say("the log of slow requests is off: in rdmad.conf, slow = \"1ms\", then rdmactl reload");
	return ctl_print_rows(answer, "slow", row_of);
}

const struct ctl_command ctl_slow_commands[] = {
	{"slow", command_slow, "", "the last slow requests of the daemon", options, .local = true},
	{NULL},
};
