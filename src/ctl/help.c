/* help.c: usage of rdmactl and of each command, from the tables. */
#include "ctl/ctl.h"

void ctl_help_command(FILE *out, const struct ctl_command *command)
{
	fprintf(out, "usage: rdmactl %s [OPTION...]%s%s\n\n%s\n", command->name, command->arguments[0] ? " " : "",
		command->arguments, command->help);
	if (command->options) {
		fputs("\noptions:\n", out);
		ctl_options_usage(out, command->options, command);
	}
	fputs("\ngeneral options:\n", out);
	ctl_options_usage(out, ctl_globals, command);
}

static bool in_group(const char *name, const char *group)
{
	size_t len = group ? strlen(group) : 0;

	return !group || (strncmp(name, group, len) == 0 && (!name[len] || name[len] == ' '));
}

int ctl_help_list(FILE *out, const char *group)
{
	const struct ctl_command *c;
	int listed = 0, width = 0;

	for (unsigned n = 0; (c = ctl_command_at(n)); n++)
		if (in_group(c->name, group))
			width = MAX(width, (int)(strlen(c->name) + 1 + strlen(c->arguments)));
	for (unsigned n = 0; (c = ctl_command_at(n)); n++) {
		char left[128];

		if (!in_group(c->name, group))
			continue;
		snprintf(left, sizeof(left), "%s%s%s", c->name, *c->arguments ? " " : "", c->arguments);
		if (out)
			words_row(out, left, (unsigned)width + 4, c->help);
		listed++;
	}
	return listed;
}

int ctl_help(const struct ctl_arguments *arguments)
{
	const struct ctl_command *command;
	int words;

	if (!arguments->count) {
		puts("usage: rdmactl [OPTION...] COMMAND [ARGUMENT...]\n\ncommands:");
		ctl_help_list(stdout, NULL);
		puts("\ngeneral options:");
		ctl_options_usage(stdout, ctl_globals, NULL);
		puts("\nexit status: 0 done, 1 failed, 2 wrong usage, 3 no server, 4 no such key,\n"
		     "5 no answer in time, 7 another version of the protocol, 130 interrupted");
		puts("\nfor the options of one command: rdmactl help COMMAND; for all of it, and\n"
		     "examples: man rdmactl");
		return CTL_OK;
	}
	command = ctl_command_find(arguments->count, arguments->text, &words);
	if (command) {
		ctl_help_command(stdout, command);
		return CTL_OK;
	}
	if (arguments->count == 1 && ctl_help_list(stdout, arguments->text[0]))
		return CTL_OK;
	return ctl_unknown_command(arguments);
}

const struct ctl_command ctl_help_commands[] = {
	{"help", ctl_help, "[COMMAND]", "say how to use rdmactl or one command", NULL, 0, 2},
	{NULL},
};
