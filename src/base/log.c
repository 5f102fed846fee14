/* log.c: the one place where a message becomes a line. */
#include "base/base.h"

_Atomic int log_threshold = LOG_LEVEL_INFO;

static const char *const level_names[] = {
	[LOG_LEVEL_ERROR] = "error",
	[LOG_LEVEL_WARN] = "warn",
	[LOG_LEVEL_INFO] = "info",
	[LOG_LEVEL_DEBUG] = "debug",
};

static void write_stderr(enum log_level level, const char *room, const char *text)
{
	fprintf(stderr, "%s %s: %s\n", level_names[level], room, text);
}

static _Atomic(log_handler) handler = write_stderr; /* a reload sets it while threads log */
static __thread char last[512];
static __thread bool hushed;

void log_set_handler(log_handler h)
{
	handler = h ? h : write_stderr;
}

void log_keep(enum log_level level, const char *room, const char *text)
{
	(void)room;
	if (level <= LOG_LEVEL_WARN)
		snprintf(last, sizeof(last), "%s", text);
}

const char *log_last(void)
{
	return last;
}

void log_clear_last(void)
{
	last[0] = '\0';
}

void log_hush_begin(void)
{
	log_clear_last();
	hushed = true;
}

const char *log_hush_end(void)
{
	hushed = false;
	return log_last();
}

const char *log_level_name(enum log_level level)
{
	return level_names[level];
}

int log_level_parse(const char *name, enum log_level *level)
{
	for (size_t i = 0; i < ARRAY_SIZE(level_names); i++) {
		if (strcmp(name, level_names[i]) == 0) {
			*level = i;
			return 0;
		}
	}
	return -EINVAL;
}

void log_write(enum log_level level, const char *room, const char *format, ...)
{
	int saved = errno; /* callers log on the way out with errno still to be read */
	log_handler handle = hushed ? log_keep : atomic_load(&handler);
	char text[512];
	va_list args;

	va_start(args, format);
	errno = saved; /* for %m */
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	handle(level, room, text);
	errno = saved;
}
