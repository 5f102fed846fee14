/* options.c: the command line, from one table. */
#include "base/option.h"
#include "daemon/daemon.h"

#include <stdlib.h>
#include <sysexits.h>

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

static int set_config(void *to, const char *argument)
{
	struct options *options = to;

	options->config = argument;
	return -1;
}

static int set_test(void *to, const char *argument)
{
	struct options *options = to;

	(void)argument;
	options->test = true;
	return -1;
}

static int set_offline(void *to, const char *argument)
{
	struct options *options = to;

	(void)argument;
	options->test = options->offline = true;
	return -1;
}

static int set_print(void *to, const char *argument)
{
	struct options *options = to;

	(void)argument;
	options->print = true;
	return -1;
}

static int set_daemonize(void *to, const char *argument)
{
	struct options *options = to;

	(void)argument;
	options->daemonize = true;
	return -1;
}

static int add_listen(void *to, const char *argument)
{
	struct options *options = to;
	struct setting_list *list = &options->overrides.listen;
	struct address address;

	if (fabric_address_parse(argument, &address) != 0)
		return EX_USAGE;
	if (list->count == SETTING_LIST_MAX)
		return log_fail(EX_USAGE, "rdmad", "more than %d addresses to listen on", SETTING_LIST_MAX);
	list->item[list->count++] = (char *)argument;
	return -1;
}

static int set_level(void *to, const char *argument)
{
	struct options *options = to;
	enum log_level level;

	if (log_level_parse(argument, &level) != 0)
		return log_fail(EX_USAGE, "rdmad", "there is no log level %s: error, warn, info or debug", argument);
	options->overrides.log_level = argument;
	log_threshold = level;
	return -1;
}

static int set_insecure(void *to, const char *argument)
{
	struct options *options = to;

	(void)argument;
	options->overrides.insecure = true;
	return -1;
}

static int print_sample(void *to, const char *argument)
{
	(void)to, (void)argument;
	config_print_sample(stdout);
	return option_printed("rdmad") ? 0 : EX_IOERR;
}

static int print_metrics(void *to, const char *argument)
{
	(void)to, (void)argument;
	metrics_print_table(stdout);
	return option_printed("rdmad") ? 0 : EX_IOERR;
}

static int print_version(void *to, const char *argument)
{
	(void)to, (void)argument;
	printf("rdmad " PACKAGE_VERSION "\nprotocol %u\n", WIRE_VERSION);
	return option_printed("rdmad") ? 0 : EX_IOERR;
}

static int print_help(void *to, const char *argument);

enum { OPTION_HELP_CONFIG = OPTION_LONG, OPTION_HELP_METRICS, OPTION_OFFLINE, OPTION_INSECURE };

static const struct option_row rows[] = {
	{'c', "config", "FILE", set_config,
	 "read FILE; without this option " SYSCONFDIR "/rdmad.conf "
	 "if it is there, else the defaults"},
	{'t', "test", NULL, set_test,
	 "check the configuration, and whether this machine lets it start; exit status 0, 78 if the file is wrong, "
	 "else as of "
	 "the start"},
	{OPTION_OFFLINE, "offline", NULL, set_offline, "as -t, but check the file alone"},
	{'T', "print-config", NULL, set_print, "print the configuration as it is understood, every setting"},
	{'D', "daemonize", NULL, set_daemonize,
	 "go into the background; the exit status tells whether the start succeeded"},
	{'l', "listen", "ADDRESS", add_listen,
	 "listen on ADDRESS instead of what the file says; may be repeated. host[:port], "
	 "rdma://..., tcp://..., unix:///path"},
	{OPTION_INSECURE, "insecure", NULL, set_insecure, "let other machines in without keys, see rdmad-auth(7)"},
	{'v', "log-level", "LEVEL", set_level, "error, warn, info or debug"},
	{OPTION_HELP_CONFIG, "help-config", NULL, print_sample,
	 "print a configuration file with every setting explained"},
	{OPTION_HELP_METRICS, "help-metrics", NULL, print_metrics,
	 "print a line for each metric: name, type, unit, labels, meaning"},
	{'V', "version", NULL, print_version, "print the versions of rdmad and its protocol"},
	{'h', "help", NULL, print_help, "print this help"},
};

static const struct option_table table = {
	rows, ARRAY_SIZE(rows), .width = 24, .program = "rdmad", .wrong = EX_USAGE,
};

static int print_help(void *to, const char *argument)
{
	(void)to, (void)argument;
	puts("usage: rdmad [OPTION...]\n\n"
	     "Serves machines of a cluster over RDMA, TCP and UNIX sockets: rdmad(8),\nrdmad.conf(5).\n");
	option_print(&table);
	puts("\nservices:");
	for (unsigned id = 0; id < WIRE_SERVICES; id++)
		if (service_find(id))
			words_row(stdout, wire_service_name(id), table.width + 2, service_find(id)->help);
	return option_printed("rdmad") ? 0 : EX_IOERR;
}

int options_parse(int argc, char **argv, struct options *out)
{
	int first, rc = option_parse(&table, argc, argv, out, &first);

	if (rc >= 0 || first == argc)
		return rc;
	log_error("rdmad", "unexpected argument %s", argv[first]);
	return option_usage(&table);
}
