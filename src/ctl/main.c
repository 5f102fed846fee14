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
	standard_begin();
	log_set_handler(say_log);
	ctl_output_begin();
	return ctl_output_end(ctl_run(MAX(argc - 1, 0), (const char **)argv + 1));
}
