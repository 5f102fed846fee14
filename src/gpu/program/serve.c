/* serve.c: a process from its descriptors to its end. */
#include "gpu/program/program.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

static struct gpu_process process = {.control = -1, .event = -1, .share = -1};

/* stderr may be a file, which this process cannot write to. */
static void log_to_daemon(enum log_level level, const char *room, const char *text)
{
	log_keep(level, room, text);
	gpu_process_log(&process, level, room, text);
}

/* The header is read once: it is the daemon's, but it is memory that others map. */
static int check_header(const uint8_t *base, uint64_t bytes, struct wire_ring *ring)
{
	struct wire_ring_header header = *(const struct wire_ring_header *)base;

	if (header.magic != WIRE_RING_MAGIC || header.version != WIRE_RING_VERSION)
		return log_fail(-EINVAL, "gpu", "this is no ring of version %d", WIRE_RING_VERSION);
	ring->shape = (struct wire_ring_shape){header.queues, header.slots, header.payload};
	if (!wire_ring_shape_valid(&ring->shape))
		return log_fail(-EINVAL, "gpu", "no ring has %u queues of %u slots of %u bytes", header.queues,
				header.slots, header.payload);
	ring->at = wire_ring_layout(&ring->shape);
	if (ring->at.bytes != bytes)
		return log_fail(-EINVAL, "gpu", "the ring has %llu bytes, and should have %llu",
				(unsigned long long)bytes, (unsigned long long)ring->at.bytes);
	return 0;
}

int gpu_ring_map(int fd, struct wire_ring *ring)
{
	uint64_t bytes;
	struct stat st;
	int rc;

	if (!memfd_is_sealed(fd) || fstat(fd, &st) != 0)
		return log_fail(-EINVAL, "gpu", "descriptor %d is no sealed memory", fd);
	bytes = (uint64_t)st.st_size;
	if (bytes < WIRE_RING_PAGE)
		return log_fail(-EINVAL, "gpu", "the ring has %llu bytes", (unsigned long long)bytes);
	ring->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (ring->base == MAP_FAILED) {
		rc = -errno;
		log_error("gpu", "cannot map the ring: %m");
		return rc;
	}
	rc = check_header(ring->base, bytes, ring);
	if (rc != 0)
		munmap(ring->base, bytes);
	return rc;
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
	if (gpu_confine(process.control, gpu_backend_find(process.attr.backend)) != 0 ||
	    gpu_watch_start(&process) != 0 || gpu_backend_run(&process) != 0) {
		/* Unless it was told already: what was logged last is the cause. */
		gpu_process_fail(&process, WIRE_RING_DEVICE, 0, 0, "%s", log_last());
		return EX_UNAVAILABLE;
	}
	gpu_process_stopped(&process);
	return EX_OK;
}
