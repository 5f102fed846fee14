/* serve.c: a worker process from its descriptors to its end. */
#include "gpu/program.h"

#include <sysexits.h>
#include <unistd.h>

static struct gpu_worker worker = {.control = -1, .event = -1, .share = -1};

/* stderr may be a file, which this process cannot write to. */
static void log_to_daemon(enum log_level level, const char *room, const char *text)
{
	log_keep(level, room, text);
	gpu_worker_log(&worker, level, room, text);
}

static int run(void)
{
	int rc = gpu_watch_start(&worker);

	if (rc != 0)
		return rc;
	worker.backend = gpu_backend_choose(&worker.attr, &worker.probe);
	if (!worker.backend)
		return -ENODEV;
	rc = gpu_confine_files(worker.backend);
	return rc == 0 ? worker.backend->run(&worker) : rc;
}

int gpu_serve(const struct gpu_arguments *arguments)
{
	worker.attr = arguments->attr;
	worker.queue_mode = arguments->queue_mode;
	worker.share = arguments->share == UINT64_MAX ? -1 : (int)arguments->share;
	worker.control = (int)arguments->control;
	worker.event = (int)arguments->event;
	log_set_handler(log_to_daemon);
	if (gpu_ring_map((int)arguments->ring, &worker.ring) != 0)
		return EX_DATAERR;
	close((int)arguments->ring); /* the mapping keeps it */
	if (gpu_confine(worker.control) != 0 || run() != 0) {
		/* Unless it was told already: what was logged last is the cause. */
		gpu_worker_fail(&worker, WIRE_RING_DEVICE, 0, 0, "%s", log_last());
		return EX_UNAVAILABLE;
	}
	gpu_worker_stopped(&worker);
	return EX_OK;
}
