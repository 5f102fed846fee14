/*
 * setting.h: settings as data. A row says all of a setting: its name, type, bounds, default and help; reading a file,
 * checking it, printing a sample and comparing two configurations go by the rows. A room that has settings has a table
 * of them and a struct of the values.
 */
#ifndef RDMAD_BASE_SETTING_H
#define RDMAD_BASE_SETTING_H

#include "base/base.h"

#define SETTING_LIST_MAX 32

enum setting_type {
	SETTING_NUMBER, /* uint64_t; an integer, as all others are strings */
	SETTING_SIZE,   /* uint64_t, bytes */
	SETTING_TIME,   /* uint64_t, ns */
	SETTING_MODE,   /* uint64_t, octal */
	SETTING_BOOL,   /* bool */
	SETTING_STRING, /* char *, NULL when unset */
	SETTING_CHOICE, /* uint64_t, index of the choice */
	SETTING_SET,    /* uint64_t, a bit for each choice; a list of strings */
	SETTING_LIST,   /* struct setting_list; a list of strings */
};

struct setting_list {
	unsigned count;
	char *item[SETTING_LIST_MAX];
};

struct setting {
	const char *path; /* "kv.memory" */
	enum setting_type type;
	size_t offset;     /* in the struct of the table's values */
	const char *value; /* the default as text, items separated by commas, SETTING_EVERY; NULL: unset */
	uint64_t min, max;
	const char *const *choices; /* ended by NULL */
	const char *former[2];      /* an old word that is still read, and the choice that it stands for */
	/* In place of `choices`: the name of choice i, "" where it cannot be chosen, NULL behind the last. */
	const char *(*choice)(unsigned i);
	/* Whether a text or an item is right; else `why` says what is wrong. NULL: anything but nothing. */
	bool (*check)(const char *text, char *why, size_t size);
	/* For a number or a size: what is in effect, where the value leaves that to the daemon or something else bounds
	 * it. NULL: the value. `values` has those of the whole table. */
	uint64_t (*effective)(const void *values);
	bool always;        /* a time that may be "always", which is TIME_NEVER */
	bool zero;          /* a size that may be 0, too */
	bool reload;        /* may change at run time */
	const char *sample; /* shown where there is no default */
	const char *help;
};

#define SETTING_EVERY "*" /* the default of a set: every choice */

struct setting_table {
	const struct setting *row;
	unsigned count;
	size_t size; /* of the struct of the values; zeros are unset ones */
};

/* `values` is the struct that the setting's offset is in. */

/* Set the setting's value from text, or add it to a list or set. False: `why` says what is wrong; nothing changed. */
bool setting_set(const struct setting *s, void *values, const char *text, char *why, size_t size);
/* Set the default. */
void setting_set_default(const struct setting *s, void *values);
/* Free a text; empty a list or set, as before its first item. */
void setting_clear(const struct setting *s, void *values);
bool setting_equal(const struct setting *s, const void *a, const void *b);
void setting_swap(const struct setting *s, void *a, void *b);

/* The value as setting_set() takes it, of a list or set its item i; NULL: it is unset, or has no such item. In `buf` or
 * in the value itself. */
const char *setting_text(const struct setting *s, const void *values, unsigned i, char buf[static 32]);

/* Name of choice i, "" where it cannot be chosen, NULL behind the last. */
const char *setting_choice(const struct setting *s, unsigned i);

/* For `check`: a path from / that also fits a UNIX socket. */
bool setting_check_path(const char *text, char *why, size_t size);
/* The same, for an address: what `parse`, such as address_parse(), makes of the text, or why that failed. */
bool setting_check_address(int (*parse)(const char *text, struct address *out), const char *text, struct address *out,
			   char *why, size_t size);
/* The same: "host" or "host:port". */
bool setting_check_host(const char *text, char *why, size_t size);

#endif
