/* watch.c: look again and again. */
#include "ctl/watch/watch.h"

#include <stdlib.h>
#include <unistd.h>

#define LEAST (100 * TIME_MS)
#define MOST (3600 * TIME_S)

uint64_t watch_every(const char *text)
{
	uint64_t ns;
	char *end;
	double seconds = strtod(text, &end);

	if (!*end && end != text)
		return seconds >= 0 && seconds <= 3600 ? (uint64_t)(seconds * (double)TIME_S) : TIME_NEVER;
	return units_parse_time(text, &ns) == 0 ? ns : TIME_NEVER;
}

int watch_every_check(const char *text)
{
	uint64_t ns = watch_every(text);

	if (ns >= LEAST && ns <= MOST)
		return 0;
	ctl_say("%s: not seconds like 2 or 0.5, nor a time like 500ms, of 0.1 to 3600 s", text);
	return -EINVAL;
}

char *watch_time_text(time_t at, char buf[static 32])
{
	struct tm tm;

	localtime_r(&at, &tm);
	strftime(buf, 32, "%Y-%m-%dT%H:%M:%S", &tm);
	return buf;
}

static void view_draw(const struct watch_view *view)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return;
	view->draw(view->arg, out);
	if (fclose(out) == 0)
		screen_show(text);
	free(text);
}

static int view_print(const struct watch_view *view)
{
	json_t *object;

	if (!ctl.json && view->line) {
		view->line(view->arg, stdout);
	} else if (!ctl.json) {
		view->draw(view->arg, stdout);
		putchar('\n');
	} else {
		object = view->json(view->arg);
		if (!object || ctl_put_json(stdout, object) != 0)
			ctl_say("no memory for the result");
		json_decref(object);
		putchar('\n');
	}
	return ctl_flush() == 0 && !ferror(stdout) ? CTL_OK : CTL_FAILED;
}

/* Wait until the next look. False: no more of them. */
static bool wait_on_screen(const struct watch_view *view, uint64_t until)
{
	for (;;) {
		int key = screen_wait(until);

		if (key == SCREEN_END || key == 'q' || key == 'Q')
			return false;
		if (key == SCREEN_TIME || key == ' ')
			return true;
		if (key != SCREEN_RESIZED && view->key)
			view->key(view->arg, key);
		view_draw(view);
	}
}

bool watch_wait(uint64_t until)
{
	uint64_t now;

	while (!ctl_interrupted() && (now = time_now()) < until)
		usleep((useconds_t)(MIN(until - now, (uint64_t)CTL_SLICE) / TIME_US + 1));
	return !ctl_interrupted();
}

/* Ask for the next values. A failure says why; the screen would take that away, so it is said again when that is
 * closed. */
static int view_look(const struct watch_view *view, bool screen)
{
	int rc = view->look(view->arg);

	if (rc == CTL_OK || !screen || ctl_interrupted())
		return rc;
	screen_close();
	rc = view->look(view->arg);
	if (rc == CTL_OK)
		screen_open();
	return rc;
}

int watch_run(const struct watch_view *view, const struct watch_times *times)
{
	bool screen = !ctl.json && screen_is_there(), goes_on = true;
	uint64_t next = time_now(), looks = 0;
	int rc = CTL_OK;

	if (!screen)
		ctl_catch_interrupt();
	while (goes_on && rc == CTL_OK) {
		rc = view_look(view, screen && looks);
		if (rc != CTL_OK)
			break;
		if (screen && !looks)
			screen_open();
		looks++;
		if (screen)
			view_draw(view);
		else if (looks > view->compares)
			rc = view_print(view);
		if (times->count && looks == times->count + view->compares)
			break;
		next = MAX(next + times->every, time_now());
		goes_on = screen ? wait_on_screen(view, next) : watch_wait(next);
	}
	screen_close();
	if (!ctl_interrupted())
		return rc;
	return times->count ? CTL_INTERRUPTED : CTL_OK;
}
