/* option.c: see option.h. */
#include "base/option.h"

#include <getopt.h>
#include <stdio.h>

void option_print(const struct option_table *table)
{
	for (unsigned i = 0; i < table->count; i++) {
		const struct option_row *row = &table->row[i];
		char left[60], letter[8] = "    ";

		if (!row->help)
			continue;
		if (row->letter < OPTION_LONG)
			snprintf(letter, sizeof(letter), "-%c, ", row->letter);
		snprintf(left, sizeof(left), "%s--%s%s%s", letter, row->name, row->argument ? " " : "",
			 row->argument ? row->argument : "");
		words_row(stdout, left, table->width + 2, row->help);
	}
}

bool option_printed(const char *program)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return true;
	fprintf(stderr, "%s: cannot write to stdout: %s\n", program, strerror(errno));
	return false;
}

static void make_getopt(const struct option_table *table, char *letters, struct option *names)
{
	if (table->first_ends)
		*letters++ = '+';
	for (unsigned i = 0; i < table->count; i++) {
		const struct option_row *row = &table->row[i];

		if (row->letter < OPTION_LONG) {
			*letters++ = (char)row->letter;
			if (row->argument)
				*letters++ = ':';
		}
		names[i] = (struct option){
			.name = row->name,
			.has_arg = row->argument ? required_argument : no_argument,
			.val = row->letter,
		};
	}
	*letters = '\0';
	names[table->count] = (struct option){0};
}

int option_usage(const struct option_table *table)
{
	fprintf(stderr, "Try '%s --help'.\n", table->program);
	return table->wrong;
}

static int dispatch_row(const struct option_table *table, int letter, void *to)
{
	for (unsigned i = 0; i < table->count; i++)
		if (table->row[i].letter == letter)
			return table->row[i].fn(to, optarg);
	return option_usage(table); /* getopt has said what is wrong */
}

int option_parse(const struct option_table *table, int argc, char **argv, void *to, int *first)
{
	struct option names[OPTION_ROWS_MAX + 1];
	char letters[2 * OPTION_ROWS_MAX + 2];
	int letter, rc = -1;

	must(table->count <= OPTION_ROWS_MAX);
	make_getopt(table, letters, names);
	while (rc < 0 && (letter = getopt_long(argc, argv, letters, names, NULL)) != -1)
		rc = dispatch_row(table, letter, to);
	*first = optind;
	return rc;
}
