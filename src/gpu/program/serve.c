/* serve.c: a process from its descriptors to its end. */
#include "gpu/program/program.h"

#include <sysexits.h>
#include <unistd.h>

static struct gpu_process process = {.control = -1, .event = -1, .share = -1};

/* stderr may be a file, which this process cannot write to. */
static void log_to_daemon(enum log_level level, const char *room, const char *text)
{
	log_keep(level, room, text);
	gpu_process_log(&process, level, room, text);
}

static int run(void)
{
	int rc = gpu_watch_start(&process);

	if (rc != 0)
		return rc;
	return gpu_backend_run(&process);
}

int gpu_serve(const struct gpu_arguments *arguments)
{
	process.attr = arguments->attr;
	process.queue_mode = arguments->queue_mode;
	process.share = arguments->share == UINT64_MAX ? -1 : (int)arguments->share;
	process.control = (int)arguments->control;
	process.event = (int)arguments->event;
	log_set_handler(log_to_daemon);
	if (gpu_ring_map((int)arguments->ring, &process.ring) != 0)
		return EX_DATAERR;
	close((int)arguments->ring); /* the mapping keeps it */
	processors_limited();        /* reads files, which is over when it is confined */
	if (gpu_confine(process.control, gpu_backend_find(process.attr.backend)) != 0 || run() != 0) {
		/* Unless it was told already: what was logged last is the cause. */
		gpu_process_fail(&process, WIRE_RING_DEVICE, 0, 0, "%s", log_last());
		return EX_UNAVAILABLE;
	}
	gpu_process_stopped(&process);
	return EX_OK;
}
