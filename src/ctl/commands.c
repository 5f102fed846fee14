/* commands.c: the commands of all files; find one, parse its options, run it. */
#include "ctl/ctl.h"
#include "cluster/cluster.h"

#include <limits.h>
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

/* Measure how far a word is from the first one of the command's name, if that has several. UINT_MAX: nothing is
 * alike. */
static unsigned group_distance(const char *word, const char *name)
{
	size_t len = strcspn(name, " ");
	char group[32];
	unsigned d;

	if (!name[len] || len >= sizeof(group))
		return UINT_MAX;
	snprintf(group, sizeof(group), "%.*s", (int)len, name);
	d = words_distance(word, group);
	return d < len ? d : UINT_MAX;
}

/* Names that other tools have for a command. Behind the name of a group, only commands of that group count. */
static const struct {
	const char *said, *meant;
} synonyms[] = {
	{"put", "kv set"},
	{"setex", "kv set"},
	{"rm", "kv del"},
	{"delete", "kv del"},
	{"remove", "kv del"},
	{"unset", "kv del"},
	{"unlink", "kv del"},
	{"keys", "kv list"},
	{"scan", "kv list"},
	{"ls", "kv list"},
	{"expire", "kv ttl"},
	{"pexpire", "kv ttl"},
	{"pttl", "kv ttl"},
	{"persist", "kv ttl"},
	{"incrby", "kv incr"},
	{"decr", "kv incr KEY -- -1"},
	{"decrby", "kv incr KEY -- -N"},
	{"info", "status"},
	{"info", "kv stat"},
	{"stats", "status"},
	{"stats", "kv stat"},
	{"health", "status"},
	{"flushall", "kv flush"},
	{"flushdb", "kv flush"},
	{"clients", "conn list"},
	{"connections", "conn list"},
	{"disconnect", "conn close"},
	{"kill", "conn close"},
	{"stop", "shutdown"},
};

/* Find the command that was probably meant by these words, which name none, or its first word: `len` characters. NULL:
 * none is alike. A first word may have been left out. */
static const char *meant_command(const struct ctl_arguments *words, size_t *len)
{
	bool group = ctl_help_list(NULL, words->text[0]) > 0;
	const char *best = NULL, *said = words->text[group && words->count > 1];
	size_t group_len = group ? strlen(words->text[0]) : 0;
	const struct ctl_command *c;
	unsigned least = 3;
	char both[64];

	*len = 0;
	for (size_t i = 0; i < ARRAY_SIZE(synonyms); i++) {
		if (strcasecmp(synonyms[i].said, said) != 0 ||
		    strncmp(synonyms[i].meant, words->text[0], group_len) != 0)
			continue;
		*len = strlen(synonyms[i].meant);
		return synonyms[i].meant;
	}
	snprintf(both, sizeof(both), "%s %s", words->text[0], words->count > 1 ? words->text[1] : "");
	for (unsigned n = 0; (c = ctl_command_at(n)); n++) {
		const char *second = strchr(c->name, ' ');
		unsigned d = words_distance(second ? both : words->text[0], c->name);
		unsigned first = group ? UINT_MAX : group_distance(words->text[0], c->name);

		if (second && !group && strcasecmp(second + 1, words->text[0]) == 0)
			d = 1;
		if (strcasecmp(second ? both : words->text[0], c->name) == 0)
			d = 0;
		if (MIN(d, first) < least) {
			least = MIN(d, first);
			best = c->name;
			*len = d <= first ? strlen(best) : (size_t)(second - best);
		}
	}
	return best;
}

int ctl_unknown_command(const struct ctl_arguments *words)
{
	size_t len = 0;
	const char *group = words->count ? words->text[0] : NULL, *best = group ? meant_command(words, &len) : NULL;
	bool two = words->count > 1 && ctl_help_list(NULL, group) > 0;

	if (!group)
		fputs("usage: rdmactl [OPTION...] COMMAND [ARGUMENT...]\n", stderr);
	else if (best)
		ctl_say("%s%s%s: no such command; did you mean %.*s?", group, two ? " " : "", two ? words->text[1] : "",
			(int)len, best);
	else if (!ctl_help_list(stderr, group))
		ctl_say("%s: no such command", group);
	else if (words->count > 1)
		ctl_say("%s: %s: no such command; the above are there", group, words->text[1]);
	else
		ctl_say("%s: which of the above?", group);
	fputs("for the commands: rdmactl help\n", stderr);
	return CTL_USAGE;
}

/* The arguments that are keys: the first, of "KEY..." all, and of "KEY VALUE..." every other one. */
static bool has_empty_key(const struct ctl_arguments *arguments)
{
	const char *form = running->arguments;
	int step = strcmp(form, "KEY...") == 0 ? 1 : strcmp(form, "KEY VALUE...") == 0 ? 2 : arguments->count;

	if (strncmp(form, "KEY", 3) != 0)
		return false;
	for (int i = 0; i < arguments->count; i += step)
		if (!*arguments->text[i])
			return true;
	return false;
}

static int run_command(const struct ctl_arguments *arguments)
{
	struct address address;

	if (ctl.help) {
		ctl_help_command(stdout, running);
		return CTL_OK;
	}
	if (ctl.version)
		return ctl_version_commands[0].main(arguments);
	if (arguments->count < running->min)
		return ctl_usage_error("%s: an argument is missing: rdmactl %s %s", running->name, running->name,
				       running->arguments);
	if (running->max >= 0 && arguments->count > running->max)
		return ctl_usage_error("%s: too many arguments, from \"%s\" on", running->name,
				       arguments->text[running->max]);
	if (has_empty_key(arguments))
		return ctl_usage_error("%s: the key is empty; a key has 1 to 4095 bytes", running->name);
	if (running->local && ctl.host_given)
		return ctl_usage_error("%s asks the daemon of this machine; --host is for another: log in there",
				       running->name);
	if (!ctl.host)
		ctl.host = getenv("RDMAD_HOST");
	if (!ctl.host || !*ctl.host)
		ctl.host = "127.0.0.1";
	if (!cluster_is_named(ctl.host, NULL) &&
	    address_parse(ctl.host, &address) != 0) /* an argument is looked at where it is used */
		return ctl_usage_error("%s: no usable address in $RDMAD_HOST", running->name);
	return running->main(arguments);
}

/* Find the command whose name are the first words that are no options, also where options stand between them. Which
 * words are values of options depends on the command, so each is tried. */
static const struct ctl_command *choose_command(int argc, const char **argv, struct ctl_arguments *words)
{
	const struct ctl_command *c, *doubtful = NULL;

	for (unsigned n = 0; (c = ctl_command_at(n)); n++) {
		bool known = ctl_options_words(c->options, argc, argv, words);

		if (!match_words(c->name, words->count, words->text))
			continue;
		if (known)
			return c;
		doubtful = doubtful ? doubtful : c;
	}
	return doubtful; /* its options are told when they are parsed */
}

/* Answer a command line without a command: an option of its own, a help, or what is wrong with it. */
static int run_without_command(int argc, const char **argv, struct ctl_arguments *words)
{
	int front = 1, name;

	while (front <= argc && ctl_options_words(NULL, front, argv, words))
		front++;
	if (front <= argc && !words->count)
		argc = front; /* an unknown option in front of all words: those behind it may be its value */
	else if (!ctl_options_words(NULL, argc, argv, words) && words->count)
		return ctl_unknown_command(words);
	if (ctl_options_parse(NULL, argc, argv, words) != 0)
		return ctl_usage_hint();
	if (ctl.version)
		return ctl_version_commands[0].main(words);
	if (ctl.help && words->count > 1 && ctl_command_find(words->count - 1, words->text + 1, &name))
		return ctl_usage_error("-h is --help; to say which host: -H %s", words->text[0]);
	if (ctl.help)
		return ctl_help(words);
	if (words->count > 1 && strcmp(words->text[1], "help") == 0 && ctl_help_list(NULL, words->text[0])) {
		words->text[1] = words->text[0]; /* "kv help get" is "help kv get" */
		words->text++;
		words->count--;
		return ctl_help(words);
	}
	return ctl_unknown_command(words);
}

int ctl_run(int argc, const char **argv)
{
	const char **all = calloc((size_t)argc + 1, sizeof(char *));
	struct ctl_arguments arguments = {.text = all};
	int words, rc;

	if (!all)
		return CTL_FAILED;
	running = choose_command(argc, argv, &arguments);
	if (!running) {
		rc = run_without_command(argc, argv, &arguments);
	} else if (ctl_options_parse(running->options, argc, argv, &arguments) != 0) {
		rc = ctl_usage_hint();
	} else {
		words = match_words(running->name, arguments.count, arguments.text);
		arguments.text += words;
		arguments.count -= words;
		rc = run_command(&arguments);
	}
	rc = ctl_json_end(rc);
	free(all);
	return rc;
}
