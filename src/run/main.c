/* main.c: rdmarun. */
#include "run/run.h"

__attribute__((format(printf, 1, 0))) static void say(const char *format, va_list args)
{
	char text[2048];

	vsnprintf(text, sizeof(text), format, args);
	fprintf(stderr, "rdmarun: %s\n", text);
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

	standard_descriptors_keep();
	log_set_handler(say_log);
	rc = run_options_parse(argc, argv);
	if (rc < 0)
		rc = run_options.agent ? run_agent() : run_launch();
	run_options_free();
	return rc;
}
