/* options.c: the command line, from one table. */
#include "daemon/daemon.h"

#include <getopt.h>
#include <stdlib.h>
#include <sysexits.h>

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

/* -1: go on, else the exit status. */
typedef int (*option_fn)(struct options *options, const char *argument);

static int set_config(struct options *options, const char *argument)
{
	options->config = argument;
	return -1;
}

static int set_test(struct options *options, const char *argument)
{
	(void)argument;
	options->test = true;
	return -1;
}

static int set_daemonize(struct options *options, const char *argument)
{
	(void)argument;
	options->daemonize = true;
	return -1;
}

static int add_listen(struct options *options, const char *argument)
{
	struct setting_list *list = &options->overrides.listen;
	struct address address;

	if (fabric_address_parse(argument, &address) != 0)
		return EX_USAGE;
	if (list->count == SETTING_LIST_MAX) {
		log_error("rdmad", "more than %d addresses to listen on", SETTING_LIST_MAX);
		return EX_USAGE;
	}
	list->item[list->count++] = (char *)argument;
	return -1;
}

static int set_level(struct options *options, const char *argument)
{
	enum log_level level;

	if (log_level_parse(argument, &level) != 0) {
		log_error("rdmad", "there is no log level %s: error, warn, info or debug", argument);
		return EX_USAGE;
	}
	options->overrides.log_level = argument;
	log_threshold = level;
	return -1;
}

static int print_sample(struct options *options, const char *argument)
{
	(void)options, (void)argument;
	config_print_sample(stdout);
	return fflush(stdout) == 0 ? 0 : EX_IOERR;
}

static int print_version(struct options *options, const char *argument)
{
	(void)options, (void)argument;
	puts("rdmad " PACKAGE_VERSION);
	return fflush(stdout) == 0 ? 0 : EX_IOERR;
}

static int print_help(struct options *options, const char *argument);

enum { OPTION_HELP_CONFIG = 256 };

static const struct {
	int letter;
	const char *name, *argument;
	option_fn fn;
	const char *help;
} table[] = {
	{'c', "config", "FILE", set_config,
	 "read FILE; without this option " SYSCONFDIR "/rdmad.conf\n"
	 "if it is there, else the defaults"},
	{'t', "test", NULL, set_test, "check the configuration; exit status 0, or 78 if it is wrong"},
	{'D', "daemonize", NULL, set_daemonize,
	 "go into the background; the exit status tells whether\nthe start succeeded"},
	{'l', "listen", "ADDRESS", add_listen,
	 "listen on ADDRESS instead of what the file says; may be\nrepeated. host[:port], "
	 "rdma://..., tcp://..., unix:///path"},
	{'v', "log-level", "LEVEL", set_level, "error, warn, info or debug"},
	{OPTION_HELP_CONFIG, "help-config", NULL, print_sample,
	 "print a configuration file with every setting explained"},
	{'V', "version", NULL, print_version, "print the version"},
	{'h', "help", NULL, print_help, "print this help"},
};

static void print_option(size_t i)
{
	const char *line = table[i].help;
	char left[40], letter[8] = "    ";

	if (table[i].letter < 256)
		snprintf(letter, sizeof(letter), "-%c, ", table[i].letter);
	snprintf(left, sizeof(left), "%s--%s%s%s", letter, table[i].name, table[i].argument ? " " : "",
		 table[i].argument ? table[i].argument : "");
	printf("  %-24s", left);
	for (; *line; line += *line == '\n' ? 1 : 0) {
		int n = (int)strcspn(line, "\n");

		printf("%s%.*s\n", line == table[i].help ? "" : "                          ", n, line);
		line += n;
	}
}

static int print_help(struct options *options, const char *argument)
{
	(void)options, (void)argument;
	puts("usage: rdmad [OPTION...]\n\n"
	     "Serves machines of a cluster over RDMA, TCP and UNIX sockets: rdmad(8), rdmad.conf(5).\n");
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		print_option(i);
	puts("\nservices:");
	for (unsigned id = 0; id < WIRE_SERVICES; id++)
		if (service_find(id))
			printf("  %-24s%s\n", wire_service_name(id), service_find(id)->help);
	return fflush(stdout) == 0 ? 0 : EX_IOERR;
}

static void make_getopt(char *letters, struct option *names)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (table[i].letter < 256) {
			*letters++ = (char)table[i].letter;
			if (table[i].argument)
				*letters++ = ':';
		}
		names[i] = (struct option){
			.name = table[i].name,
			.has_arg = table[i].argument ? required_argument : no_argument,
			.val = table[i].letter,
		};
	}
	*letters = '\0';
	names[ARRAY_SIZE(table)] = (struct option){0};
}

static int usage(void)
{
	fputs("Try 'rdmad --help'.\n", stderr);
	return EX_USAGE;
}

static int dispatch(struct options *options, int letter)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (table[i].letter == letter)
			return table[i].fn(options, optarg);
	return usage(); /* getopt has said what is wrong */
}

int options_parse(int argc, char **argv, struct options *out)
{
	struct option names[ARRAY_SIZE(table) + 1];
	char letters[2 * ARRAY_SIZE(table) + 1];
	int letter, rc;

	make_getopt(letters, names);
	while ((letter = getopt_long(argc, argv, letters, names, NULL)) != -1) {
		rc = dispatch(out, letter);
		if (rc >= 0)
			return rc;
	}
	if (optind < argc) {
		log_error("rdmad", "unexpected argument %s", argv[optind]);
		return usage();
	}
	return -1;
}
