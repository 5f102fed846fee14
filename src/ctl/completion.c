/* completion.c: the script for bash, written from the tables of commands and options. */
#include "ctl/ctl.h"

static const char head[] =
	"# Completion of rdmactl for bash. Written by \"rdmactl completion\": do not edit.\n"
	"_rdmactl()\n"
	"{\n"
	"\tlocal word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
	"\tlocal first=${COMP_WORDS[1]} second=${COMP_WORDS[2]} options words\n"
	"\tCOMPREPLY=()\n";

static const char tail[] =
	"\tif [[ $word != -* && -z $words ]]; then\n"
	"\t\tCOMPREPLY=($(compgen -f -- \"$word\"))\n"
	"\t\treturn\n"
	"\tfi\n"
	"\tCOMPREPLY=($(compgen -W \"$words $options\" -- \"$word\"))\n"
	"}\n"
	"complete -o filenames -F _rdmactl rdmactl\n";

/* The first words of all commands, or the second words of those that begin with `group`. */
static void write_words(FILE *out, const char *group, size_t group_len)
{
	const char *last = "", *gap = "";
	size_t last_len = 0;

	for (const struct ctl_command *c = ctl_commands; c->name; c++) {
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

/* What may follow an option that takes a value. */
static void write_values(FILE *out, const struct ctl_option *options)
{
	for (; options && options->name; options++) {
		if (options->type == CTL_FLAG)
			continue;
		fprintf(out, "\t--%s", options->name);
		if (options->letter)
			fprintf(out, " | -%c", options->letter);
		if (!options->choices)
			fprintf(out, ") return ;;\n");
		else if (strcmp(options->choices, "@file") == 0)
			fprintf(out, ") COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n");
		else
			fprintf(out, ") COMPREPLY=($(compgen -W \"%s\" -- \"$word\")); return ;;\n",
				options->choices);
	}
}

static bool first_of_group(const struct ctl_command *command, size_t len)
{
	for (const struct ctl_command *c = ctl_commands; c != command; c++)
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
	fprintf(out, "\t\"%s%s\"%s)\n\t\toptions+=\" ", c->name, c->name[len] ? "" : " ",
		c->name[len] ? "" : "*");
	write_options(out, c->options);
	fputs("\"\n\t\tcase $previous in\n", out);
	write_values(out, c->options);
	fputs("\t\tesac\n\t\t;;&\n", out);
}

void ctl_completion_write(FILE *out)
{
	fputs(head, out);
	fputs("\toptions=\"", out);
	write_options(out, ctl_globals);
	fputs("\"\n\tcase $previous in\n", out);
	write_values(out, ctl_globals);
	fputs("\tesac\n\tcase \"$first $second\" in\n", out);
	for (const struct ctl_command *c = ctl_commands; c->name; c++)
		if (c->options || strchr(c->name, ' '))
			write_command(out, c);
	fputs("\t\"help \"*)\n\t\t((COMP_CWORD == 2)) && words=\"", out);
	write_words(out, NULL, 0);
	fputs("\"\n\t\t;;\n\tesac\n\tif ((COMP_CWORD == 1)); then\n\t\twords=\"", out);
	write_words(out, NULL, 0);
	fputs("\"\n\tfi\n", out);
	fputs(tail, out);
}

int ctl_completion(const struct ctl_arguments *arguments)
{
	ctl_completion_write(stdout);
	return CTL_OK;
}
