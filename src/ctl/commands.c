/* commands.c: the table of commands; find one, parse its options, run it. */
#include "ctl/ctl.h"

#include <stdlib.h>

const struct ctl_command ctl_commands[] = {
	{"ping", ctl_ping, "[HOST]", "measure round trips to rdmad and back", ctl_ping_options, 0, 1},
	{"kv get", ctl_kv_get, "KEY", "write a key's value to stdout", ctl_kv_get_options, 1, 1},
	{"kv set", ctl_kv_set, "KEY [VALUE|-]", "store a value", ctl_kv_set_options, 1, 2},
	{"kv del", ctl_kv_del, "KEY", "delete a key", NULL, 1, 1},
	{"kv exists", ctl_kv_exists, "KEY", "say whether there is such a key", NULL, 1, 1},
	{"kv mget", ctl_kv_mget, "KEY...", "write the values of some keys", NULL, 1, -1},
	{"kv mset", ctl_kv_mset, "KEY VALUE...", "store some values", ctl_kv_mset_options, 2, -1},
	{"kv incr", ctl_kv_incr, "KEY [N]", "add to a number", NULL, 1, 2},
	{"kv cas", ctl_kv_cas, "KEY VERSION [VALUE|-]", "store a value if the key has this version", ctl_kv_cas_options,
	 2, 3},
	{"kv ttl", ctl_kv_ttl, "KEY [TIME|never]", "when a key expires; change that", NULL, 1, 2},
	{"kv stat", ctl_kv_stat, "[KEY]", "length, version and ttl of a key; the store's figures", NULL, 0, 1},
	{"kv list", ctl_kv_list, "[PREFIX]", "list the keys", ctl_kv_list_options, 0, 1},
	{"kv bigkeys", ctl_kv_bigkeys, "[PREFIX]", "find the largest values", ctl_kv_bigkeys_options, 0, 1},
	{"kv export", ctl_kv_export, "[FILE|-]", "write all keys to a file", ctl_kv_export_options, 0, 1},
	{"kv import", ctl_kv_import, "[FILE|-]", "store the keys of an exported file", NULL, 0, 1},
	{"kv flush", ctl_kv_flush, "", "delete all keys", ctl_kv_flush_options, 0, 0},
	{"kv run", ctl_kv_run, "FILE|-", "carry out a file of commands", NULL, 1, 1},
	{"bench kv", ctl_bench_kv, "[HOST]", "measure the key/value store", ctl_bench_kv_options, 0, 1},
	{"bench ping", ctl_bench_ping, "[HOST]", "measure echoes by many clients", ctl_bench_ping_options, 0, 1},
	{"bench sweep", ctl_bench_sweep, "[HOST]", "throughput by size of the values", ctl_bench_sweep_options, 0, 1},
	{"bench gpu", ctl_bench_gpu, "[HOST]", "many images, compared and measured", ctl_bench_gpu_options, 0, 1},
	{"gpu quantize", ctl_gpu_quantize, "IN|- OUT|-", "reduce the levels of grey of an image",
	 ctl_gpu_quantize_options, 2, 2},
	{"gpu info", ctl_gpu_info, "", "facts about the server's gpu service", NULL, 0, 0},
	{"gpu bench", ctl_bench_gpu, "[HOST]", "another name for bench gpu", ctl_bench_gpu_options, 0, 1},
	{"status", ctl_control, "", "state, addresses and counters of the daemon", NULL, 0, 0},
	{"connections", ctl_control, "", "the connections of the daemon", NULL, 0, 0},
	{"memory", ctl_control, "", "the memory of the daemon", NULL, 0, 0},
	{"resources", ctl_control, "", "descriptors, buffers and queues in use", NULL, 0, 0},
	{"reload", ctl_control, "", "read the configuration again, all or nothing", NULL, 0, 0},
	{"drain", ctl_control, "", "take no new connections, let the present ones finish", NULL, 0, 0},
	{"shutdown", ctl_control, "", "drain, then end the daemon", NULL, 0, 0},
	{"completion", ctl_completion, "", "print the completion script for bash", NULL, 0, 0},
	{"version", ctl_version, "", "versions of rdmactl, the library and the protocol", NULL, 0, 0},
	{"help", ctl_help, "[COMMAND]", "say how to use rdmactl or one command", NULL, 0, 2},
	{NULL},
};

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
	for (const struct ctl_command *c = ctl_commands; c->name; c++) {
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
