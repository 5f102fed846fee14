/* main.c: the process, in the order in which it is built. */
#include "daemon/daemon.h"

#include <stdlib.h>

static const struct {
	int (*start)(struct daemon *daemon); /* 0 or the exit status, with the cause logged */
	void (*stop)(struct daemon *daemon); /* in reverse, of the parts that started */
} parts[] = {
	{inherited_open, inherited_close},             /* sockets that listen already */
	{daemon_process_start, daemon_process_stop},   /* fork before verbs and threads */
	{access_open, access_close},                   /* keys and rights of clients */
	{daemon_loop_start, daemon_loop_stop},         /* timers, and signals that a start outlives */
	{metrics_open, metrics_close},                 /* by HTTP: from here on it tells that it loads */
	{fabrics_open, fabrics_close},                 /* devices */
	{daemon_services_start, daemon_services_stop}, /* what their connections will share */
	{engine_open, engine_close},                   /* by which a cluster's nodes agree */
	{workers_start, workers_stop},                 /* threads that serve connections */
	{daemon_signals_start, NULL},                  /* from here on the end is in peace */
	{listeners_open, listeners_close},             /* from here on clients come */
	{streams_open, streams_close},                 /* and those of streams */
	{control_open, control_close},                 /* and rdmactl */
	{inherited_settle, NULL},                      /* what none of them took */
	{notify_watchdog_start, notify_watchdog_stop}, /* of the workers */
	{fabrics_renew_start, fabrics_renew_stop},     /* devices that go and come */
	{daemon_ready, NULL},
};

static int daemon_serve(struct daemon *daemon)
{
	size_t n = 0;
	int rc = 0;

	while (rc == 0 && n < ARRAY_SIZE(parts))
		rc = parts[n++].start(daemon);
	if (rc == 0)
		loop_run(daemon->loop);
	else
		n--; /* that one did not start */
	while (n-- > 0)
		if (parts[n].stop)
			parts[n].stop(daemon);
	if (rc == 0)
		log_info("rdmad", "ended");
	return rc ? rc : daemon_exit_status(atomic_load(&daemon->fatal));
}

int main(int argc, char **argv)
{
	struct daemon daemon = {.main = thread_self()};
	int rc;

	standard_begin();
	logging_open("stderr", LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
	rc = options_parse(argc, argv, &daemon.options);
	if (rc >= 0)
		return rc;
	rc = daemon_configure(&daemon);
	if (rc == 0 && !daemon.options.test && !daemon.options.print)
		rc = daemon_serve(&daemon);
	daemon_unconfigure(&daemon);
	return rc;
}
