/* main.c: rdmarun. */
#include "run/run.h"

static struct sink *say_to;

void run_say_to(struct sink *sink)
{
	say_to = sink;
}

__attribute__((format(printf, 1, 0))) static void say(const char *format, va_list args)
{
	struct sink *sink = say_to;
	char text[2048], line[2100];
	int length;

	vsnprintf(text, sizeof(text), format, args);
	length = snprintf(line, sizeof(line), "rdmarun: %s\n", text);
	if (!sink) {
		fputs(line, stderr);
		return;
	}
	say_to = NULL; /* it may say that there is no memory */
	sink_put(sink, line, (size_t)length);
	sink_flush(sink);
	say_to = sink;
}

void run_say(const char *format, ...)
{
	int error = errno;
	va_list args;

	va_start(args, format);
	say(format, args);
	va_end(args);
	errno = error;
}

void run_note(const char *format, ...)
{
	va_list args;

	if (!run_options.verbose)
		return;
	va_start(args, format);
	say(format, args);
	va_end(args);
}

static void say_log(enum log_level level, const char *room, const char *text)
{
	if (level <= LOG_LEVEL_WARN)
		run_say("%s", text);
}

int main(int argc, char **argv)
{
	int rc;

	standard_begin();
	log_set_handler(say_log);
	rc = run_options_parse(argc, argv);
	if (rc < 0)
		rc = run_launch();
	run_options_free();
	return rc;
}
