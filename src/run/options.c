/* options.c: the command line, by one table. */
#include "config.h"

#include "base/option.h"
#include "run/run.h"

#include <stdlib.h>

struct run_options run_options = {
	.grace = 5 * TIME_S,
	.timeout = TIME_NEVER,
	.rsh = "ssh -T -o BatchMode=yes",
};

static int set_count(void *to, const char *argument)
{
	if (units_parse_number(argument, 1, RUN_RANKS_MAX, &run_options.count) == 0)
		return -1;
	run_say("--count %s: not a number from 1 to %u", argument, RUN_RANKS_MAX);
	return RUN_USAGE;
}

static int set_hosts(void *to, const char *argument)
{
	return run_hosts_parse(argument, &run_options.hosts) == 0 ? -1 : RUN_USAGE;
}

static int set_hostfile(void *to, const char *argument)
{
	return run_hosts_read(argument, &run_options.hosts) == 0 ? -1 : RUN_USAGE;
}

/* Options of which only the value is kept. */
#define SETTER(field, value)                                                                                           \
	static int set_##field(void *to, const char *argument)                                                         \
	{                                                                                                              \
		run_options.field = (value);                                                                           \
		return -1;                                                                                             \
	}

SETTER(no_stdin, true)
SETTER(label, true)
SETTER(keep_going, true)
SETTER(verbose, true)
SETTER(meeting, argument)
SETTER(rsh, argument)
SETTER(remote, argument)
SETTER(rdmad, argument)
SETTER(address, argument)
SETTER(directory, argument)

static int take_time(const char *name, const char *argument, uint64_t *out)
{
	if (units_parse_time(argument, out) == 0)
		return -1;
	run_say("--%s %s: not a time like 500ms or 10s", name, argument);
	return RUN_USAGE;
}

static int set_grace(void *to, const char *argument)
{
	return take_time("grace", argument, &run_options.grace);
}

static int set_timeout(void *to, const char *argument)
{
	return take_time("timeout", argument, &run_options.timeout);
}

/* NAME alone: as it is here. */
static int add_env(void *to, const char *argument)
{
	const char *value = getenv(argument);

	if (!argument[0] || argument[0] == '=') {
		run_say("--env \"%s\": not NAME or NAME=VALUE", argument);
		return RUN_USAGE;
	}
	if (!strchr(argument, '=') && !value)
		return -1;
	buffer_add(&run_options.env, argument, strlen(argument));
	if (!strchr(argument, '=')) {
		buffer_add(&run_options.env, "=", 1);
		buffer_add(&run_options.env, value, strlen(value));
	}
	buffer_add(&run_options.env, "", 1);
	return -1;
}

/* One rank, here, of which the launcher tells the rest. */
static int set_agent(void *to, const char *argument)
{
	run_options.agent = true;
	run_options.meeting = "none";
	return set_hosts(to, "localhost");
}

static int print_version(void *to, const char *argument)
{
	puts("rdmarun " PACKAGE_VERSION);
	return option_printed("rdmarun") ? RUN_OK : RUN_FAILED;
}

static int print_help(void *to, const char *argument);

static const struct option_row rows[] = {
	{'n', "count", "N", set_count, "start N ranks; default: as many as the hosts have slots"},
	{'H', "hosts", "HOST[:SLOTS],...", set_hosts,
	 "where, in this order; default: the hosts of the batch job,\nelse this machine"},
	{OPTION_LONG + 9, "hostfile", "FILE", set_hostfile,
	 "the same, a host a line: HOST[:SLOTS] or HOST slots=SLOTS"},
	{'l', "label", NULL, set_label, "put its rank in front of each line of output"},
	{'v', "verbose", NULL, set_verbose, "say what is done"},
	{'k', "keep-going", NULL, set_keep_going, "a rank that fails does not end the others"},
	{'C', "directory", "DIR", set_directory, "start the ranks in DIR; default: this one"},
	{OPTION_LONG + 10, "no-stdin", NULL, set_no_stdin, "leave standard input alone: no rank reads it"},
	{OPTION_LONG, "env", "NAME[=VALUE]", add_env, "pass a variable on, also to other hosts; may be repeated"},
	{OPTION_LONG + 1, "grace", "TIME", set_grace, "from SIGTERM to SIGKILL, when one has failed; default 5s"},
	{OPTION_LONG + 2, "timeout", "TIME", set_timeout, "end the run after this time, with exit status 124"},
	{OPTION_LONG + 3, "meeting", "ADDRESS", set_meeting,
	 "the rdmad where the ranks meet; \"none\": nowhere; default: one that is started for this run"},
	{OPTION_LONG + 4, "address", "HOST", set_address, "this machine, as other hosts reach it; default: its name"},
	{OPTION_LONG + 5, "rsh", "COMMAND", set_rsh, "reaches a host; default \"ssh -T -o BatchMode=yes\""},
	{OPTION_LONG + 6, "remote", "PATH", set_remote, "rdmarun at other hosts; default: the path that it has here"},
	{OPTION_LONG + 7, "rdmad", "PATH", set_rdmad, "the rdmad to start; default: the one installed with rdmarun"},
	{OPTION_LONG + 8, "agent", NULL, set_agent, NULL},
	{'V', "version", NULL, print_version, "print the version"},
	{'h', "help", NULL, print_help, "print this help"},
};

static const struct option_table table = {
	rows, ARRAY_SIZE(rows), .width = 32, .first_ends = true, .program = "rdmarun", .wrong = RUN_USAGE,
};

static int print_help(void *to, const char *argument)
{
	puts("usage: rdmarun [OPTION...] PROGRAM [ARGUMENT...]\n\n"
	     "Starts a program many times, as the ranks of a run that find each other by\nrdma_lib(3): rdmarun(1).\n");
	option_print(&table);
	return option_printed("rdmarun") ? RUN_OK : RUN_FAILED;
}

int run_options_parse(int argc, char **argv)
{
	int first, rc = option_parse(&table, argc, argv, NULL, &first);
	bool named;

	if (rc >= 0)
		return rc;
	if (!argv[first] && !run_options.agent) {
		run_say("no program is named");
		return option_usage(&table);
	}
	named = run_options.hosts.count;
	if (!named && run_hosts_of_job(&run_options.hosts) != 0)
		return RUN_USAGE;
	if (!run_options.agent)
		run_hosts_say_launcher(!named && run_options.hosts.count > 1);
	if (!run_options.hosts.count && run_hosts_parse("localhost", &run_options.hosts) != 0)
		return RUN_FAILED;
	if (!run_options.count)
		run_options.count = run_hosts_slots(&run_options.hosts);
	if (run_options.count > RUN_RANKS_MAX) {
		run_say("%llu ranks are more than %u", (unsigned long long)run_options.count, RUN_RANKS_MAX);
		return RUN_USAGE;
	}
	run_options.argv = argv + first;
	return -1;
}

void run_options_free(void)
{
	run_hosts_free(&run_options.hosts);
	buffer_free(&run_options.env);
}
