/* watch.h: what is looked at again and again, on the screen of a terminal, or as lines. */
#ifndef RDMAD_CTL_WATCH_H
#define RDMAD_CTL_WATCH_H

#include "ctl/ctl.h"

#include <time.h>

/*
 * screen.c: the screen of a terminal, which comes back as it was on every way out: the end of the program, signals, a
 * stop by ^Z.
 */
enum screen_event { SCREEN_TIME, SCREEN_RESIZED, SCREEN_END }; /* of screen_wait(), beside keys, which are above 7 */

/* Whether there is one: stdin and stdout are terminals, and not of a kind that only prints lines. */
bool screen_is_there(void);
void screen_open(void);
void screen_close(void);
void screen_size(unsigned *rows, unsigned *columns);
/* The lines of a text, cut to its size. */
void screen_show(const char *text);
/* Waits until a key is pressed, which it returns, or a screen_event. */
int screen_wait(uint64_t until);

/*
 * watch.c
 */
struct watch_view {
	int (*look)(void *arg);             /* ask the daemon: an exit status, with the cause told */
	void (*draw)(void *arg, FILE *out); /* for the screen */
	void (*line)(void *arg, FILE *out); /* where there is none; NULL: the same, and an empty line */
	json_t *(*json)(void *arg);
	void (*key)(void *arg, int key); /* NULL: q and the space bar are all */
	bool compares;                   /* two looks are needed for what is shown */
	void *arg;
};

struct watch_times {
	uint64_t every; /* ns */
	uint64_t count; /* 0: until q or ^C, which then is no failure */
};

/* For an option of that kind: "2" or "0.5" are seconds, "500ms" is a time. 0, or says why not and answers -EINVAL. */
int watch_every_check(const char *text);
uint64_t watch_every(const char *text);
/* False: it was interrupted before. */
bool watch_wait(uint64_t until);
/* Date and time here, to the second. Returns buf. */
char *watch_time_text(time_t at, char buf[static 32]);
/* An exit status. */
int watch_run(const struct watch_view *view, const struct watch_times *times);

#endif
