/* error.c: the last failure in words. */
#include "config.h"

#include "client/client.h"

/* The library prints nothing: what the rooms below log is kept for rdmad_error(). */
__attribute__((constructor)) static void keep_errors(void)
{
	log_set_handler(log_keep);
	log_threshold = LOG_LEVEL_WARN;
}

const char *rdmad_error(void)
{
	return log_last();
}

const char *rdmad_version(void)
{
	return PACKAGE_VERSION;
}
