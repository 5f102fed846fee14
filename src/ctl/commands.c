/* commands.c: the commands of all files; find one, parse its options, run it. */
#include "ctl/ctl.h"

#include <stdlib.h>

#define TABLE(file) ctl_##file##_commands,
static const struct ctl_command *const tables[] = {CTL_FILES(TABLE)};
#undef TABLE

const struct ctl_command *ctl_command_at(unsigned number)
{
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		for (const struct ctl_command *c = tables[i]; c->name; c++)
			if (number-- == 0)
				return c;
	return NULL;
}

static const struct ctl_command *running;

const char *ctl_command_name(void)
{
	return running ? running->name : "";
}

/* How many words of argv the name is; 0: it is another command. */
static int match_words(const char *name, int argc, const char **argv)
{
	int words = 0;

	for (;; words++) {
		size_t len = strcspn(name, " ");

		if (words == argc || strlen(argv[words]) != len || memcmp(argv[words], name, len) != 0)
			return 0;
		if (!name[len])
			return words + 1;
		name += len + 1;
	}
}

const struct ctl_command *ctl_command_find(int argc, const char **argv, int *words)
{
	const struct ctl_command *c;

	for (unsigned n = 0; (c = ctl_command_at(n)); n++) {
		*words = match_words(c->name, argc, argv);
		if (*words)
			return c;
	}
	return NULL;
}

int ctl_usage_hint(void)
{
	fprintf(stderr, "for its usage: rdmactl help%s%s\n", running ? " " : "", ctl_command_name());
	return CTL_USAGE;
}

int ctl_usage_error(const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	ctl_say("%s", text);
	return ctl_usage_hint();
}

static int unknown_command(int argc, const char **argv)
{
	if (!argc)
		fputs("usage: rdmactl [OPTION...] COMMAND [ARGUMENT...]\n", stderr);
	else if (ctl_help_list(stderr, argv[0]))
		ctl_say("%s: %s: no such command; the above are there", argv[0], argc > 1 ? argv[1] : "\"\"");
	else
		ctl_say("%s: no such command", argv[0]);
	fputs("for the commands: rdmactl help\n", stderr);
	return CTL_USAGE;
}

static void default_host(void)
{
	if (!ctl.host)
		ctl.host = getenv("RDMAD_HOST");
	if (!ctl.host || !*ctl.host)
		ctl.host = "127.0.0.1";
}

static int run_command(const struct ctl_arguments *arguments)
{
	struct address address;

	if (ctl.help) {
		ctl_help_command(stdout, running);
		return CTL_OK;
	}
	if (arguments->count < running->min)
		return ctl_usage_error("%s: an argument is missing: rdmactl %s %s", running->name, running->name,
				       running->arguments);
	if (running->max >= 0 && arguments->count > running->max)
		return ctl_usage_error("%s: too many arguments, from \"%s\" on", running->name,
				       arguments->text[running->max]);
	default_host();
	if (address_parse(ctl.host, &address) != 0) /* an argument is looked at where it is used */
		return ctl_usage_error("%s: no usable address in $RDMAD_HOST", running->name);
	return running->main(arguments);
}

static int dispatch(int argc, const char **argv, struct ctl_arguments *arguments)
{
	int words, at = ctl_options_parse(NULL, argc, argv, arguments, true);

	if (at < 0)
		return ctl_usage_hint();
	running = ctl_command_find(argc - at, argv + at, &words);
	if (!running && at == argc && ctl.help)
		return ctl_help(arguments);
	if (!running)
		return unknown_command(argc - at, argv + at);
	at += words;
	if (ctl_options_parse(running->options, argc - at, argv + at, arguments, false) != 0)
		return ctl_usage_hint();
	return run_command(arguments);
}

int ctl_run(int argc, const char **argv)
{
	struct ctl_arguments arguments = {.text = calloc((size_t)argc + 1, sizeof(char *))};
	int rc;

	if (!arguments.text)
		return CTL_FAILED;
	rc = dispatch(argc, argv, &arguments);
	free(arguments.text);
	return rc;
}
