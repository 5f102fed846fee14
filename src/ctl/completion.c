/* completion.c: the script for bash, written from the tables of commands and options. */
#include "ctl/ctl.h"

static const char head[] = "# Completion of rdmactl for bash. Written by \"rdmactl completion\": do not edit.\n"
			   "_rdmactl()\n"
			   "{\n"
			   "\tlocal word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
			   "\tlocal first=${COMP_WORDS[1]} second=${COMP_WORDS[2]-} options words=\n"
			   "\tCOMPREPLY=()\n";

static const char tail[] = "\tif [[ $word == -* ]]; then\n"
			   "\t\tmapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\")\n"
			   "\telif [[ $words ]]; then\n"
			   "\t\tmapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
			   "\telse\n"
			   "\t\tmapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
			   "\tfi\n"
			   "}\n"
			   "complete -o filenames -F _rdmactl rdmactl\n";

/* The first words of all commands, or the second words of those that begin with `group`. */
static void write_words(FILE *out, const char *group, size_t group_len)
{
	const char *last = "", *gap = "";
	const struct ctl_command *c;
	size_t last_len = 0;

	for (unsigned n = 0; (c = ctl_command_at(n)); n++) {
		const char *word = c->name;
		size_t len = strcspn(word, " ");

		if (group) {
			if (len != group_len || memcmp(word, group, len) != 0 || !word[len])
				continue;
			word += len + 1;
			len = strlen(word);
		}
		if (len == last_len && memcmp(word, last, len) == 0)
			continue; /* "kv get", "kv set": one "kv" */
		fprintf(out, "%s%.*s", gap, (int)len, word);
		gap = " ";
		last = word;
		last_len = len;
	}
}

static void write_options(FILE *out, const struct ctl_option *options)
{
	const char *gap = "";

	for (; options && options->name; options++, gap = " ")
		fprintf(out, "%s--%s", gap, options->name);
}

/* The words that may follow an option that takes a value. */
static void write_values(FILE *out, const struct ctl_option *options, const char *indent)
{
	const struct ctl_option *o = options;

	while (o->name && o->type == CTL_FLAG)
		o++;
	if (!o->name)
		return; /* none takes a value */
	fprintf(out, "%scase $previous in\n", indent);
	for (; options->name; options++) {
		if (options->type == CTL_FLAG)
			continue;
		fprintf(out, "%s--%s", indent, options->name);
		if (options->letter)
			fprintf(out, " | -%c", options->letter);
		if (!options->choices)
			fputs(") return ;;\n", out);
		else if (strcmp(options->choices, "@file") == 0)
			fputs(") words='' options='' ;;\n", out);
		else
			fprintf(out, ") words=\"%s\" ;;\n", options->choices);
	}
	fprintf(out, "%sesac\n", indent);
}

static bool first_of_group(const struct ctl_command *command, size_t len)
{
	const struct ctl_command *c;

	for (unsigned n = 0; (c = ctl_command_at(n)) != command; n++)
		if (strncmp(c->name, command->name, len + 1) == 0)
			return false;
	return true;
}

static void write_command(FILE *out, const struct ctl_command *c)
{
	size_t len = strcspn(c->name, " ");

	if (c->name[len] && first_of_group(c, len)) {
		fprintf(out, "\t\"%.*s \"*)\n\t\t((COMP_CWORD == 2)) && words=\"", (int)len, c->name);
		write_words(out, c->name, len);
		fputs("\"\n\t\t;;&\n", out);
	}
	if (!c->options)
		return;
	fprintf(out, c->name[len] ? "\t\"%s\")\n" : "\t\"%s \"*)\n", c->name);
	fputs("\t\toptions+=\" ", out);
	write_options(out, c->options);
	fputs("\"\n", out);
	write_values(out, c->options, "\t\t");
	fputs("\t\t;;&\n", out);
}

void ctl_completion_write(FILE *out)
{
	const struct ctl_command *c;

	fputs(head, out);
	fputs("\t((COMP_CWORD == 1)) && words=\"", out);
	write_words(out, NULL, 0);
	fputs("\"\n\toptions=\"", out);
	write_options(out, ctl_globals);
	fputs("\"\n\tcase \"$first $second\" in\n", out);
	for (unsigned n = 0; (c = ctl_command_at(n)); n++)
		write_command(out, c);
	fputs("\t\"help \"*)\n\t\t((COMP_CWORD == 2)) && words=\"", out);
	write_words(out, NULL, 0);
	fputs("\"\n\t\t;;\n\tesac\n", out);
	write_values(out, ctl_globals, "\t");
	fputs(tail, out);
}

static int command_completion(const struct ctl_arguments *arguments)
{
	ctl_completion_write(stdout);
	return CTL_OK;
}

const struct ctl_command ctl_completion_commands[] = {
	{"completion", command_completion, "", "print the completion script for bash", NULL, 0, 0},
	{NULL},
};
