/*
 * completion.c: the scripts for bash, zsh and fish, written from the tables of commands and options. Each finds the
 * words of the command line that are no options, and knows by the first two of them what may follow. Of rdmad and
 * rdmarun, whose tables are not here, each script reads the options from their --help.
 */
#include "ctl/ctl.h"

/* A place where options may stand: of every command, or of one. */
struct place {
	const struct ctl_command *command; /* NULL: everywhere */
	const struct ctl_option *options;
};

struct shell {
	const char *name;
	void (*write)(FILE *out);
};

static bool takes_files(const struct ctl_command *c)
{
	return strstr(c->arguments, "FILE") || strstr(c->arguments, "IN|");
}

static size_t first_length(const struct ctl_command *c)
{
	return strcspn(c->name, " ");
}

static bool is_group(const struct ctl_command *c)
{
	return c->name[first_length(c)];
}

/* Whether no command in front of it has the same first word. */
static bool first_of_group(const struct ctl_command *command)
{
	size_t len = first_length(command);
	const struct ctl_command *c;

	for (unsigned n = 0; (c = ctl_command_at(n)) != command; n++)
		if (first_length(c) == len && strncmp(c->name, command->name, len) == 0)
			return false;
	return true;
}

/* The next command, from *n on, that is one of the group (NULL: the first of each); *word is what tells it from the
 * others. */
static const struct ctl_command *next_word(unsigned *n, const struct ctl_command *group, const char **word, size_t *len)
{
	const struct ctl_command *c;

	while ((c = ctl_command_at((*n)++))) {
		size_t first = first_length(c);

		*word = group ? c->name + first + 1 : c->name;
		*len = group ? strlen(c->name) - first - 1 : first;
		if (group ? first == first_length(group) && strncmp(c->name, group->name, first + 1) == 0
			  : first_of_group(c))
			return c;
	}
	return NULL;
}

static void write_words(FILE *out, const struct ctl_command *group)
{
	const char *word, *gap = "";
	size_t len;

	for (unsigned n = 0; next_word(&n, group, &word, &len); gap = " ")
		fprintf(out, "%s%.*s", gap, (int)len, word);
}

/* Options of every command that take a value: the word behind them is none of the command's. */
static void write_valued(FILE *out, const char *gap)
{
	const char *between = "";

	for (const struct ctl_option *o = ctl_globals; o->name; o++) {
		if (!ctl_option_takes_word(o))
			continue;
		fprintf(out, "%s--%s", between, o->name);
		between = gap;
		if (o->letter)
			fprintf(out, "%s-%c", gap, o->letter);
	}
}

/* Between single quotes, with what ends them, and `special`, written so that they do not. */
static void write_quoted(FILE *out, const char *text, const char *quote, const char *special)
{
	for (; *text; text++) {
		if (*text == '\'')
			fputs(quote, out);
		else
			fprintf(out, "%s%c", strchr(special, *text) ? "\\" : "", *text);
	}
}

/*
 * bash
 */
static void bash_values(FILE *out, const struct ctl_option *options, const char *indent)
{
	const struct ctl_option *o = options;

	while (o->name && !ctl_option_takes_word(o))
		o++;
	if (!o->name)
		return; /* none takes a value */
	fprintf(out, "%scase $previous in\n", indent);
	for (; options->name; options++) {
		if (!ctl_option_takes_word(options))
			continue;
		fprintf(out, "%s--%s", indent, options->name);
		if (options->letter)
			fprintf(out, " | -%c", options->letter);
		if (!options->choices)
			fputs(") return ;;\n", out);
		else if (strcmp(options->choices, "@file") == 0)
			fputs(") words='' options='' files=yes ;;\n", out);
		else
			fprintf(out, ") words=\"%s\" ;;\n", options->choices);
	}
	fprintf(out, "%sesac\n", indent);
}

static void bash_options(FILE *out, const struct ctl_option *options)
{
	for (; options && options->name; options++)
		fprintf(out, " --%s", options->name);
}

static void bash_command(FILE *out, const struct ctl_command *c)
{
	if (is_group(c) && first_of_group(c)) {
		fprintf(out, "\t\"%.*s \") words=\"", (int)first_length(c), c->name);
		write_words(out, c);
		fputs("\" ;;\n", out);
	}
	if (!c->options && !c->choices && !takes_files(c))
		return;
	fprintf(out, is_group(c) ? "\t\"%s\")\n" : "\t\"%s \"*)\n", c->name);
	if (c->choices)
		fprintf(out, "\t\t[[ $second ]] || words=\"%s\"\n", c->choices);
	if (takes_files(c))
		fputs("\t\tfiles=yes\n", out);
	if (c->options) {
		fputs("\t\toptions+=\"", out);
		bash_options(out, c->options);
		fputs("\"\n", out);
		bash_values(out, c->options, "\t\t");
	}
	fputs("\t\t;;\n", out);
}

static void bash_write(FILE *out)
{
	const struct ctl_command *c;

	fputs("# Completion of rdmactl, rdmad and rdmarun for bash: source <(rdmactl completion bash)\n"
	      "# Written by that command: do not edit.\n"
	      "_rdmactl()\n"
	      "{\n"
	      "\tlocal word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
	      "\tlocal first='' second='' words='' files='' before='' at options=\"",
	      out);
	bash_options(out, ctl_globals);
	fputs("\"\n\tCOMPREPLY=()\n"
	      "\tif [[ $word == --*=* ]]; then # where bash does not part words there\n"
	      "\t\tprevious=${word%%=*} before=${word%%=*}= word=${word#*=}\n"
	      "\telif [[ $word == = ]]; then\n"
	      "\t\tword=''\n"
	      "\telif [[ $previous == = ]] && ((COMP_CWORD > 1)); then\n"
	      "\t\tprevious=${COMP_WORDS[COMP_CWORD-2]}\n"
	      "\tfi\n"
	      "\tfor ((at = 1; at < COMP_CWORD; at++)); do\n"
	      "\t\tcase ${COMP_WORDS[at]} in\n"
	      "\t\t: | = | ",
	      out);
	write_valued(out, " | ");
	fputs(") # a value, or what bash cut off of host:port\n"
	      "\t\t\t((at++))\n"
	      "\t\t\t[[ ${COMP_WORDS[at]} != = ]] || ((at++)) ;;\n"
	      "\t\t-*) ;;\n"
	      "\t\thelp) [[ ! $first ]] || second=help ;;\n"
	      "\t\t*) if [[ ! $first ]]; then first=${COMP_WORDS[at]}; elif [[ ! $second ]]; then "
	      "second=${COMP_WORDS[at]}; fi ;;\n"
	      "\t\tesac\n"
	      "\tdone\n"
	      "\t[[ $first ]] || words=\"",
	      out);
	write_words(out, NULL);
	fputs("\"\n\tcase \"$first $second\" in\n", out);
	for (unsigned n = 0; (c = ctl_command_at(n)); n++)
		bash_command(out, c);
	fputs("\tesac\n", out);
	bash_values(out, ctl_globals, "\t");
	fputs("\tif [[ $word == -* ]]; then\n"
	      "\t\tmapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\")\n"
	      "\telif [[ $words ]]; then\n"
	      "\t\tmapfile -t COMPREPLY < <(compgen -P \"$before\" -W \"$words\" -- \"$word\")\n"
	      "\telif [[ $files ]]; then\n"
	      "\t\tcompopt -o filenames 2>/dev/null\n"
	      "\t\tmapfile -t COMPREPLY < <(compgen -P \"$before\" -f -- \"$word\")\n"
	      "\tfi\n"
	      "}\n"
	      "complete -F _rdmactl rdmactl\n"
	      "_rdmactl_help()\n"
	      "{\n"
	      "\tCOMPREPLY=()\n"
	      "\t[[ $2 != -* ]] || mapfile -t COMPREPLY < <(compgen -W \"$(\"$1\" --help 2>/dev/null |\n"
	      "\t\tsed -n 's/^  \\(-., \\|    \\)\\(--[a-z-]*\\).*/\\2/p')\" -- \"$2\")\n"
	      "}\n"
	      "complete -o default -F _rdmactl_help rdmad rdmarun\n",
	      out);
}

/*
 * zsh
 */
static void zsh_pair(FILE *out, const char *dashes, const char *word, size_t len, const char *help)
{
	fprintf(out, " '%s%.*s:", dashes, (int)len, word);
	write_quoted(out, help, "'\\''", ":\\");
	putc('\'', out);
}

static void zsh_options(FILE *out, const struct ctl_option *options)
{
	for (; options && options->name; options++)
		zsh_pair(out, "--", options->name, strlen(options->name), options->help);
}

static void zsh_words(FILE *out, const struct ctl_command *group)
{
	const struct ctl_command *c;
	const char *word;
	size_t len;

	for (unsigned n = 0; (c = next_word(&n, group, &word, &len));)
		zsh_pair(out, "", word, len, group || !is_group(c) ? c->help : "its commands");
}

static void zsh_values(FILE *out, const struct ctl_option *options)
{
	fputs("\t\tcase $previous in\n", out);
	for (; options && options->name; options++) {
		if (!ctl_option_takes_word(options))
			continue;
		fprintf(out, "\t\t(--%s", options->name);
		if (options->letter)
			fprintf(out, "|-%c", options->letter);
		if (options->choices && strcmp(options->choices, "@file") == 0)
			fputs(") _files; return ;;\n", out);
		else
			fprintf(out, ") compadd -- %s; return ;;\n", options->choices ? options->choices : "");
	}
	fputs("\t\tesac\n", out);
}

static void zsh_command(FILE *out, const struct ctl_command *c)
{
	if (is_group(c) && first_of_group(c)) {
		fprintf(out, "\t('%.*s ') choices=(", (int)first_length(c), c->name);
		zsh_words(out, c);
		fputs(") ;;\n", out);
	}
	if (!c->options && !c->choices && !takes_files(c))
		return;
	fprintf(out, is_group(c) ? "\t('%s')\n" : "\t('%s '*)\n", c->name);
	if (c->choices)
		fprintf(out, "\t\t[[ -n $second || ${words[CURRENT]} == -* ]] || { compadd -- %s; return }\n",
			c->choices);
	if (takes_files(c))
		fputs("\t\tfiles=yes\n", out);
	if (c->options) {
		fputs("\t\toptions+=(", out);
		zsh_options(out, c->options);
		fputs(")\n", out);
		zsh_values(out, c->options);
	}
	fputs("\t\t;;\n", out);
}

static void zsh_write(FILE *out)
{
	const struct ctl_command *c;

	fputs("#compdef rdmactl rdmad rdmarun\n"
	      "# Completion of rdmactl, rdmad and rdmarun for zsh: source <(rdmactl completion zsh)\n"
	      "# Written by that command: do not edit.\n"
	      "_rdmactl()\n"
	      "{\n"
	      "\t[[ $service != (rdmad|rdmarun) ]] || { _gnu_generic; return }\n"
	      "\tlocal previous=${words[CURRENT-1]} first='' second='' files='' at\n"
	      "\tlocal -a choices options\n"
	      "\toptions=(",
	      out);
	zsh_options(out, ctl_globals);
	fputs(")\n\tfor ((at = 2; at < CURRENT; at++)); do\n"
	      "\t\tcase ${words[at]} in\n"
	      "\t\t(",
	      out);
	write_valued(out, "|");
	fputs(") ((at++)) ;;\n"
	      "\t\t(-*) ;;\n"
	      "\t\t(help) [[ -z $first ]] || second=help ;;\n"
	      "\t\t(*) if [[ -z $first ]]; then first=${words[at]}; elif [[ -z $second ]]; then second=${words[at]}; "
	      "fi ;;\n"
	      "\t\tesac\n"
	      "\tdone\n"
	      "\t[[ -n $first ]] || choices=(",
	      out);
	zsh_words(out, NULL);
	fputs(")\n\tcase \"$first $second\" in\n", out);
	for (unsigned n = 0; (c = ctl_command_at(n)); n++)
		zsh_command(out, c);
	fputs("\tesac\n", out);
	zsh_values(out, ctl_globals);
	fputs("\tif [[ ${words[CURRENT]} == -* ]]; then\n"
	      "\t\t_describe option options\n"
	      "\telif (( ${#choices} )); then\n"
	      "\t\t_describe command choices\n"
	      "\telif [[ -n $files ]]; then\n"
	      "\t\t_files\n"
	      "\tfi\n"
	      "}\n"
	      "if [[ $funcstack[1] == _rdmactl ]]; then # the file of that name, which zsh found\n"
	      "\t_rdmactl \"$@\"\n"
	      "else\n"
	      "\t(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }\n"
	      "\tcompdef _rdmactl rdmactl rdmad rdmarun\n"
	      "fi\n",
	      out);
}

/*
 * fish
 */

/* "complete" where the words are `where`, or everywhere. */
static void fish_begin(FILE *out, const char *where, size_t len, const char *behind)
{
	fputs("complete -c rdmactl", out);
	if (where)
		fprintf(out, " -n \"__rdmactl_at '%.*s%s'\"", (int)len, where, behind);
}

static void fish_help(FILE *out, const char *help)
{
	fputs(" -d '", out);
	write_quoted(out, help, "\\'", "\\");
	fputs("'\n", out);
}

static void fish_options(FILE *out, const struct place *place)
{
	const struct ctl_command *c = place->command;

	for (const struct ctl_option *o = place->options; o && o->name; o++) {
		fish_begin(out, c ? c->name : NULL, c ? strlen(c->name) : 0, c && !is_group(c) ? " *" : "");
		fprintf(out, " -l %s", o->name);
		if (o->letter)
			fprintf(out, " -s %c", o->letter);
		if (ctl_option_takes_word(o) && o->choices && strcmp(o->choices, "@file") == 0)
			fputs(" -r -F", out);
		else if (ctl_option_takes_word(o))
			fprintf(out, " -x -a '%s'", o->choices ? o->choices : "");
		fish_help(out, o->help);
	}
}

static void fish_words(FILE *out, const struct ctl_command *group)
{
	const struct ctl_command *c;
	const char *word;
	size_t len;

	for (unsigned n = 0; (c = next_word(&n, group, &word, &len));) {
		fish_begin(out, group ? group->name : "", group ? first_length(group) : 0, " ");
		fprintf(out, " -a %.*s", (int)len, word);
		fish_help(out, group || !is_group(c) ? c->help : "its commands");
	}
}

static void fish_command(FILE *out, const struct ctl_command *c)
{
	const struct place place = {c, c->options};

	if (is_group(c) && first_of_group(c))
		fish_words(out, c);
	if (takes_files(c)) {
		fish_begin(out, c->name, strlen(c->name), is_group(c) ? "" : " *");
		fputs(" -F\n", out);
	}
	if (c->choices) {
		fish_begin(out, c->name, strlen(c->name), is_group(c) ? "" : " ");
		fprintf(out, " -a '%s'\n", c->choices);
	}
	fish_options(out, &place);
}

static void fish_write(FILE *out)
{
	const struct place everywhere = {NULL, ctl_globals};
	const struct ctl_command *c;

	fputs("# Completion of rdmactl, rdmad and rdmarun for fish: rdmactl completion fish | source\n"
	      "# Written by that command: do not edit.\n"
	      "for program in rdmactl rdmad rdmarun\n"
	      "\tcomplete -c $program -e\n"
	      "end\n"
	      "for program in rdmad rdmarun\n"
	      "\tfor line in ($program --help 2>/dev/null)\n"
	      "\t\tset -l option (string match -r -- '^  (-., |    )--([a-z-]+)((?: \\S+)?) *(.*)' $line); or "
	      "continue\n"
	      "\t\tset -l row -l $option[3] -d $option[5]\n"
	      "\t\ttest $option[2] = '    '; or set -a row -s (string sub -s 2 -l 1 -- $option[2])\n"
	      "\t\ttest -z $option[4]; or set -a row -r\n"
	      "\t\tcomplete -c $program $row\n"
	      "\tend\n"
	      "end\n"
	      "function __rdmactl_at\n"
	      "\tset -l all\n"
	      "\tset -l skip no\n"
	      "\tfor word in (commandline -opc)[2..]\n"
	      "\t\tif test $skip = yes\n"
	      "\t\t\tset skip no\n"
	      "\t\t\tcontinue\n"
	      "\t\tend\n"
	      "\t\tswitch $word\n"
	      "\t\t\tcase ",
	      out);
	write_valued(out, " ");
	fputs("\n"
	      "\t\t\t\tset skip yes\n"
	      "\t\t\tcase '-*'\n"
	      "\t\t\tcase '*'\n"
	      "\t\t\t\ttest \"$all$word\" = help; or set -a all $word\n"
	      "\t\tend\n"
	      "\tend\n"
	      "\tstring match -q -- $argv[1] \"$all[1] $all[2]\"\n"
	      "end\n"
	      "complete -c rdmactl -f\n",
	      out);
	fish_words(out, NULL);
	for (unsigned n = 0; (c = ctl_command_at(n)); n++)
		fish_command(out, c);
	fish_options(out, &everywhere);
}

static const struct shell shells[] = {{"bash", bash_write}, {"zsh", zsh_write}, {"fish", fish_write}};

bool ctl_completion_write(FILE *out, const char *shell)
{
	for (size_t i = 0; i < ARRAY_SIZE(shells); i++) {
		if (strcmp(shells[i].name, shell) == 0) {
			shells[i].write(out);
			return true;
		}
	}
	return false;
}

static int command_completion(const struct ctl_arguments *arguments)
{
	const char *shell = arguments->count ? arguments->text[0] : "bash";

	if (!ctl_completion_write(stdout, shell))
		return ctl_usage_error("completion: %s: there are bash, zsh and fish", shell);
	return CTL_OK;
}

const struct ctl_command ctl_completion_commands[] = {
	{"completion", command_completion, "[SHELL]",
	 "print what a shell needs to complete: source <(rdmactl completion bash)", NULL, 0, 1,
	 .choices = "bash zsh fish"},
	{NULL},
};
