/* options.c: one parser for all commands, driven by their tables. */
#include "ctl/ctl.h"
#include "cluster/cluster.h"

#include <inttypes.h>
#include <stdlib.h>

static int check_address(const char *text)
{
	struct address address;

	return cluster_is_named(text, NULL) ? 0 : address_parse(text, &address);
}

struct ctl_settings ctl = {.timeout = TIME_NEVER};

const struct ctl_option ctl_globals[] = {
	{"host", 'H', CTL_CHECKED, &ctl.host, "ADDRESS",
	 "HOST[:PORT], rdma://, tcp://, unix:///PATH; of kv also cluster:ADDRESS,...; else $RDMAD_HOST or 127.0.0.1",
	 .check = check_address, .given = &ctl.host_given, .of = CTL_OF_SERVER},
	{"json", 'j', CTL_FLAG, &ctl.json, NULL, "print one JSON object instead of text"},
	{"quiet", 'q', CTL_FLAG, &ctl.quiet, NULL, "no summary on stderr, errors only"},
	{"timeout", 't', CTL_TIME, &ctl.timeout, "TIME", "give up after this, e.g. 500ms; default 30s", .min = TIME_US},
	{"poll", 0, CTL_POLL, &ctl.poll, "TIME",
	 "poll this long before sleeping; 0 sleeps at once; \"always\"; default 200us", .choices = "0 200us always",
	 .given = &ctl.poll_given, .of = CTL_OF_SERVER},
	{"require-rdma", 0, CTL_FLAG, &ctl.require_rdma, NULL, "fail rather than use another transport",
	 .of = CTL_OF_SERVER},
	{"require-encryption", 0, CTL_FLAG, &ctl.require_encryption, NULL,
	 "fail rather than have bytes go in clear over TCP to another machine", .of = CTL_OF_SERVER},
	{"key", 0, CTL_TEXT, &ctl.key, "FILE", "with the key of this client; default $RDMAD_KEY_FILE, or the user's",
	 .choices = "@file", .of = CTL_OF_SERVER},
	{"munge", 0, CTL_FLAG, &ctl.munge, NULL, "with MUNGE in place of a key: it says which user this is",
	 .of = CTL_OF_SERVER},
	{"server-user", 0, CTL_TEXT, &ctl.server_user, "USER",
	 "with --munge: the server's user, by name or number; default root, or the same as here", .of = CTL_OF_SERVER},
	{"control", 0, CTL_TEXT, &ctl.control, "PATH", "the daemon's control socket; default $RDMAD_CONTROL",
	 .choices = "@file", .of = CTL_OF_DAEMON},
	{"help", 'h', CTL_FLAG, &ctl.help, NULL, "say how to use the command"},
	{"version", 'V', CTL_FLAG, &ctl.version, NULL, "print the versions, do nothing else"},
	{NULL},
};

static void find_closest(const struct ctl_option *table, const char *name, const char **best, unsigned *least)
{
	for (; table && table->name; table++) {
		unsigned d = words_distance(name, table->name);

		if (d < *least) {
			*least = d;
			*best = table->name;
		}
	}
}

/* Where the words are. */
struct words {
	const struct ctl_option *own;
	int argc, at;
	const char **argv;
	bool dry;     /* only find out what is an option and what is not */
	bool unknown; /* one of the options is, which is told unless `dry` */
	bool wrong;   /* one before was: --json among the others says how that is told */
};

static int unknown_option(struct words *w, const char *word)
{
	const char *best = NULL;
	unsigned least = 3;

	w->unknown = true;
	if (w->dry)
		return 0;
	if (word[1] == '-') {
		find_closest(w->own, word + 2, &best, &least);
		find_closest(ctl_globals, word + 2, &best, &least);
	}
	if (best)
		ctl_say("unknown option %s; did you mean --%s?", word, best);
	else
		ctl_say("unknown option %s", word);
	return -EINVAL;
}

static const struct ctl_option *find_long(const struct ctl_option *table, const char *name, size_t len)
{
	for (; table && table->name; table++)
		if (strlen(table->name) == len && memcmp(table->name, name, len) == 0)
			return table;
	return NULL;
}

static const struct ctl_option *find_letter(const struct ctl_option *table, char letter)
{
	for (; table && table->name; table++)
		if (table->letter == letter)
			return table;
	return NULL;
}

static int fail_value(const struct ctl_option *o, const char *text, int error)
{
	static const char *const kind[] = {
		[CTL_NUMBER] = "a whole number",
		[CTL_SIZE] = "a size like 64, 4K or 1M",
		[CTL_TIME] = "a time like 20us, 500ms or 1.5s",
		[CTL_POLL] = "a time like 20us, 0 or \"always\"",
	};
	char min[32], max[32];

	if (error != -ERANGE) {
		ctl_say("--%s %s: not %s", o->name, text, kind[o->type]);
		return -EINVAL;
	}
	if (o->type == CTL_TIME || o->type == CTL_POLL) {
		units_format_time(o->min, min);
		units_format_time(o->max, max);
	} else {
		snprintf(min, sizeof(min), "%" PRIu64, o->min);
		snprintf(max, sizeof(max), "%" PRIu64, o->max);
	}
	if (o->max)
		ctl_say("--%s %s: outside of %s to %s", o->name, text, min, max);
	else
		ctl_say("--%s %s: too large, or less than %s", o->name, text, min);
	return -EINVAL;
}

static int parse_quantity(const struct ctl_option *o, const char *text, uint64_t *out)
{
	uint64_t max = o->max ? o->max : INT64_MAX;
	int rc;

	if (o->type == CTL_NUMBER)
		return units_parse_number(text, o->min, max, out);
	rc = o->type == CTL_SIZE ? units_parse_size(text, out) : units_parse_time(text, out);
	if (rc != 0)
		return rc;
	return *out < o->min || *out > max ? -ERANGE : 0;
}

static int set_value(const struct ctl_option *o, const char *text)
{
	uint64_t number;
	int rc;

	if (o->given)
		*o->given = true;
	switch (o->type) {
	case CTL_FLAG:
		*(bool *)o->value = true;
		return 0;
	case CTL_CHECKED:
		if (o->check(text) != 0)
			return -EINVAL;
		/* fallthrough */
	case CTL_TEXT:
		*(const char **)o->value = text;
		return 0;
	case CTL_POLL:
		if (strcmp(text, "always") == 0) {
			*(uint64_t *)o->value = TIME_NEVER;
			return 0;
		}
		/* fallthrough */
	case CTL_NUMBER:
	case CTL_SIZE:
	case CTL_TIME:
		rc = parse_quantity(o, text, &number);
		if (rc != 0)
			return fail_value(o, text, rc);
		*(uint64_t *)o->value = number;
		return 0;
	}
	return -EINVAL;
}

/* An option's value: the rest of its word, or else the next word. */
static int parse_value(struct words *w, const struct ctl_option *o, const char *rest)
{
	if (w->wrong && o->value == &ctl.json)
		ctl.json = true;
	if (w->dry) {
		w->at += ctl_option_takes_word(o) && !rest;
		return 0;
	}
	if (o->type == CTL_FLAG)
		return set_value(o, NULL);
	if (rest || o->otherwise)
		return set_value(o, rest ? rest : o->otherwise);
	if (w->at + 1 >= w->argc) {
		ctl_say("--%s needs a value: --%s %s", o->name, o->name, o->metavar);
		return -EINVAL;
	}
	return set_value(o, w->argv[++w->at]);
}

static int parse_long(struct words *w, const char *word)
{
	const char *name = word + 2, *equals = strchr(name, '=');
	size_t len = equals ? (size_t)(equals - name) : strlen(name);
	const struct ctl_option *o = find_long(w->own, name, len);

	if (!o)
		o = find_long(ctl_globals, name, len);
	if (!o)
		return unknown_option(w, word);
	if (equals && o->type == CTL_FLAG && !w->dry) {
		ctl_say("--%s takes no value", o->name);
		return -EINVAL;
	}
	return parse_value(w, o, equals ? equals + 1 : NULL);
}

/* "-c5", "-c 5", "-jv". */
static int parse_letters(struct words *w, const char *word)
{
	for (const char *p = word + 1; *p; p++) {
		const struct ctl_option *o = find_letter(w->own, *p);
		int rc;

		if (!o)
			o = find_letter(ctl_globals, *p);
		if (!o)
			return unknown_option(w, word);
		rc = parse_value(w, o, p[1] ? p + 1 : NULL);
		if (rc != 0 || o->type != CTL_FLAG)
			return rc;
	}
	return 0;
}

static int walk_words(struct words *w, struct ctl_arguments *arguments)
{
	bool literal = false;
	int rc = 0;

	arguments->count = 0;
	for (; w->at < w->argc && rc == 0; w->at++) {
		const char *word = w->argv[w->at];

		if (literal || word[0] != '-' || !word[1])
			arguments->text[arguments->count++] = word;
		else if (strcmp(word, "--") == 0)
			literal = true;
		else
			rc = word[1] == '-' ? parse_long(w, word) : parse_letters(w, word);
	}
	return rc;
}

int ctl_options_parse(const struct ctl_option *own, int argc, const char **argv, struct ctl_arguments *arguments)
{
	struct words w = {.own = own, .argc = argc, .argv = argv};
	int rc = walk_words(&w, arguments);

	if (rc != 0) {
		w.dry = w.wrong = true;
		walk_words(&w, arguments);
	}
	return rc;
}

bool ctl_options_words(const struct ctl_option *own, int argc, const char **argv, struct ctl_arguments *arguments)
{
	struct words w = {.own = own, .argc = argc, .argv = argv, .dry = true};

	walk_words(&w, arguments);
	return !w.unknown;
}

/* One item of a list: "N" or "A-B". Answers how many sizes it gave. */
static int parse_range(const char *item, uint64_t limit, uint64_t *sizes, size_t max)
{
	char first[64];
	const char *dash = strchr(item, '-');
	size_t len = dash ? (size_t)(dash - item) : strlen(item), n = 0;
	uint64_t from, to;

	if (len >= sizeof(first))
		return -EINVAL;
	memcpy(first, item, len);
	first[len] = '\0';
	if (units_parse_size(first, &from) != 0 || units_parse_size(dash ? dash + 1 : first, &to) != 0)
		return -EINVAL;
	if (to < from || to > limit || (from == 0 && to != 0))
		return -ERANGE;
	for (; from <= to; from *= 2) {
		if (n == max)
			return -ERANGE;
		sizes[n++] = from;
		if (!from)
			break;
	}
	return (int)n;
}

int ctl_sizes_parse(const char *text, uint64_t limit, uint64_t *sizes, size_t max)
{
	char *copy = strdup(text), *next = copy, *item;
	size_t n = 0;
	int rc = copy ? 0 : -ENOMEM;

	while (rc >= 0 && (item = strsep(&next, ","))) {
		rc = parse_range(item, limit, sizes + n, max - n);
		if (rc > 0)
			n += (size_t)rc;
	}
	free(copy);
	return rc < 0 ? rc : (int)n;
}

uint64_t ctl_answer_limit(void)
{
	return ctl.timeout == TIME_NEVER ? 30 * TIME_S : ctl.timeout;
}

void ctl_library_options(struct rdmad_options *options)
{
	memset(options, 0, sizeof(*options));
	options->require_rdma = ctl.require_rdma;
	options->require_encryption = ctl.require_encryption;
	options->key_file = ctl.key;
	options->munge = ctl.munge;
	options->server_user = ctl.server_user;
	if (ctl.timeout != TIME_NEVER) {
		options->timeout_us = ctl.timeout / TIME_US;
		options->connect_timeout_us = ctl.timeout / TIME_US;
	}
	if (!ctl.poll_given)
		return;
	options->no_poll = ctl.poll == 0;
	options->poll_us = ctl.poll == TIME_NEVER ? RDMAD_POLL_ALWAYS : MAX(ctl.poll / TIME_US, 1ull);
}

void ctl_options_usage(FILE *out, const struct ctl_option *options, const struct ctl_command *command)
{
	for (const struct ctl_option *o = options; o->name; o++) {
		char left[64], letter[8] = "   ";

		if (command && o->of == (command->local ? CTL_OF_SERVER : CTL_OF_DAEMON))
			continue;
		if (o->letter)
			snprintf(letter, sizeof(letter), "-%c,", o->letter);
		snprintf(left, sizeof(left), o->otherwise ? "%s --%s[=%s%s]" : "%s --%s%s%s", letter, o->name,
			 o->metavar && !o->otherwise ? " " : "", o->metavar ? o->metavar : "");
		words_row(out, left, 28, o->help);
	}
}
