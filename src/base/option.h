/* option.h: the command line of a program as a table: getopt_long(3) and the help are made from its rows. */
#ifndef RDMAD_BASE_OPTION_H
#define RDMAD_BASE_OPTION_H

#include "base/base.h"

#define OPTION_LONG 256 /* letters from here on: the option has a name alone */
#define OPTION_ROWS_MAX 32

struct option_row {
	int letter;
	const char *name, *argument; /* NULL: it takes none */
	/* -1: go on, else the exit status. */
	int (*fn)(void *to, const char *argument);
	const char *help; /* NULL: not for people */
};

struct option_table {
	const struct option_row *row;
	unsigned count;  /* OPTION_ROWS_MAX at most */
	unsigned width;  /* of the help's left column */
	bool first_ends; /* the first argument that is no option ends them: what follows is another program's */
	const char *program;
	int wrong; /* exit status for a command line that is wrong */
};

/* Where the help is found, on stderr. Returns table->wrong. What is wrong was said before. */
int option_usage(const struct option_table *table);

/* Call the rows' functions in the order of the options. -1: go on, with *first the place in argv of what is no option;
 * else the exit status. Once in a process, before there are threads. */
int option_parse(const struct option_table *table, int argc, char **argv, void *to, int *first);

/* A line or more on stdout for each option. */
void option_print(const struct option_table *table);

/* Whether what an option printed on standard output is there. If not, that is said in the program's name. */
bool option_printed(const char *program);

#endif
