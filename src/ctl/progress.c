/* progress.c: how far a long command has come. */
#include "ctl/ctl.h"

#include <unistd.h>

#define EVERY (200 * TIME_MS)

void ctl_progress_begin(struct ctl_progress *progress, const char *things)
{
	*progress = (struct ctl_progress){.things = things, .begin = time_now()};
	progress->shown = progress->begin;
	progress->on = isatty(STDERR_FILENO) && !ctl.quiet && !ctl.json;
}

void ctl_progress_add(struct ctl_progress *p, uint64_t bytes)
{
	char size[32], rate[32];
	double seconds;
	uint64_t now;

	p->count++;
	p->bytes += bytes;
	if (!p->on)
		return;
	now = time_now();
	if (now - p->shown < EVERY)
		return;
	p->shown = now;
	p->drawn = true;
	seconds = (double)(now - p->begin) / 1e9;
	fprintf(stderr, "\r%s: %llu %s, %s, %.0f %s/s, %s/s\033[K", ctl_command_name(), (unsigned long long)p->count,
		p->things, units_human_size((double)p->bytes, size), (double)p->count / seconds, p->things,
		units_human_size((double)p->bytes / seconds, rate));
}

void ctl_progress_end(struct ctl_progress *progress)
{
	if (progress->drawn)
		fputs("\r\033[K", stderr);
	progress->drawn = false;
}
