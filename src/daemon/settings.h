/* settings.h: a row of the table of settings; between settings.c, which has it, and config.c. */
#ifndef RDMAD_DAEMON_SETTINGS_H
#define RDMAD_DAEMON_SETTINGS_H

#include "daemon/daemon.h"

enum setting_type {
	SETTING_NUMBER, /* uint64_t; an integer, as all others are strings */
	SETTING_SIZE,   /* uint64_t, bytes */
	SETTING_TIME,   /* uint64_t, ns */
	SETTING_MODE,   /* uint64_t, octal */
	SETTING_BOOL,   /* bool */
	SETTING_STRING, /* char * */
	SETTING_CHOICE, /* uint64_t, index of the choice */
	SETTING_SET,    /* uint64_t, a bit for each choice; a list of strings */
	SETTING_LIST,   /* struct config_list; a list of strings */
};

enum setting_check { SETTING_ANY, SETTING_PATH, SETTING_ADDRESS, SETTING_TARGET };

struct setting {
	const char *path; /* "kv.memory" */
	enum setting_type type;
	size_t offset;     /* in struct config */
	const char *value; /* the default as text, items separated by commas; NULL: unset */
	uint64_t min, max;
	const char *const *choices; /* NULL for a set: the services */
	const char *former[2];      /* an old word that is still read, and the choice that it stands for */
	enum setting_check check;
	bool always;        /* a time that may be "always" */
	bool reload;        /* may change at run time */
	const char *sample; /* shown where there is no default */
	const char *help;
};

extern const struct setting settings[];
extern const unsigned settings_count;

/* Name of choice i, NULL behind the last; *usable: may be chosen. */
const char *setting_choice(const struct setting *s, unsigned i, bool *usable);

/*
 * value.c: from text to the field and back to nothing.
 */

/* Set the setting's field from text, or add it to a list or set. False: `why` says what is wrong; nothing changed. */
bool setting_set(const struct setting *s, struct config *config, const char *text, char *why, size_t size);
/* Empty a list or set before its first item. */
void setting_clear(const struct setting *s, struct config *config);
bool setting_equal(const struct setting *s, const struct config *a, const struct config *b);
void setting_swap(const struct setting *s, struct config *a, struct config *b);

#endif
