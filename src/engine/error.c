/* error.c: the last failure in words. */
#include "config.h"

#include <pthread.h>

#include "engine/engine.h"

/* How often the process is the child of a fork: what belongs to another one is not used. */
unsigned client_forks;

static void count_fork(void)
{
	client_forks++;
}

/* The library prints nothing: what the rooms below log is kept for rdmad_error(). */
__attribute__((constructor)) static void keep_errors(void)
{
	log_set_handler(log_keep);
	log_threshold = LOG_LEVEL_WARN;
	pthread_atfork(NULL, NULL, count_fork);
}

int client_owned(const char *room, unsigned forks)
{
	if (likely(forks == client_forks))
		return 0;
	return log_fail(-EPERM, room,
			"the handle is of the process that forked: it may be closed here, and another opened, "
			"by RDMA only where the parent has not used it");
}

bool client_abandoned(struct engine *engine, unsigned forks)
{
	if (likely(forks == client_forks))
		return false;
	engine_abandon(engine);
	return true;
}

int client_end(const char *room, const char *what, int rc)
{
	if (rc >= 0)
		log_clear_last();
	else if (!*log_last())
		log_error(room, "%s: %s", what, strerror(-rc));
	return rc;
}

const char *rdmad_error(void)
{
	return log_last();
}

const char *rdmad_version(void)
{
	return PACKAGE_VERSION;
}
