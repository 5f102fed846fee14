/* main.c: rdmactl, the command for people and scripts. */
#include "ctl/ctl.h"

/* The messages of the rooms below, for instance about an address. */
static void say_log(enum log_level level, const char *room, const char *text)
{
	if (level <= LOG_LEVEL_WARN)
		ctl_say("%s", text);
}

int main(int argc, char **argv)
{
	int rc;

	standard_begin();
	log_set_handler(say_log);
	rc = ctl_run(MAX(argc - 1, 0), (const char **)argv + 1);
	errno = 0; /* of an earlier write nobody knows it any more */
	if ((ctl_flush() != 0 || ferror(stdout)) && !ctl_interrupted()) {
		ctl_say("cannot write to stdout%s%s", errno ? ": " : "", errno ? strerror(errno) : "");
		rc = rc ? rc : CTL_FAILED;
	}
	return rc;
}
