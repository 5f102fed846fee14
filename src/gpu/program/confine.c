/* confine.c: what the process of a session may do, and the ring that it was given. */
#include "gpu/message.h"
#include "base/local.h"
#include "gpu/program/program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* It dies with its parent; the parent that made the socket may have gone before that was asked for.
 */
static int tie_to_parent(int control)
{
	struct ucred daemon;
	int rc = prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 ? local_peer(control, &daemon) : -errno;

	if (rc != 0)
		return rc;
	return daemon.pid == getppid() ? 0 : -ESRCH;
}

static int limit(int what, rlim_t most)
{
	struct rlimit limits;

	if (getrlimit(what, &limits) != 0)
		return -errno;
	limits.rlim_cur = limits.rlim_max = MIN(most, limits.rlim_max);
	return setrlimit(what, &limits) == 0 ? 0 : -errno;
}

static void close_others(void)
{
	if (syscall(SYS_close_range, GPU_FD_END, ~0u, 0) == 0)
		return;
	for (int fd = GPU_FD_END; fd < sysconf(_SC_OPEN_MAX); fd++)
		close(fd);
}

int gpu_confine(int control, const struct gpu_backend *backend)
{
	int rc = tie_to_parent(control);
	char lacks[GPU_WHY] = ""; /* gpu_probe() has told of it */

	if (rc == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		rc = -errno;
	signal(SIGPIPE, SIG_IGN);
	if (rc == 0)
		rc = limit(RLIMIT_CORE, 0);
	close_others();
	if (rc == 0)
		rc = gpu_sandbox(backend && backend->sealed, lacks);
	if (rc == -ESRCH)
		log_error("gpu", "who started this process is gone");
	else if (rc != 0)
		log_error("gpu", "cannot confine this process: %s", strerror(-rc));
	return rc;
}

int gpu_confine_files(const struct gpu_backend *backend)
{
	int rc;

	signal(SIGXFSZ, SIG_IGN); /* to write too much is no reason to die */
	rc = limit(RLIMIT_FSIZE, backend->file_bytes);
	if (rc == 0)
		rc = limit(RLIMIT_NOFILE, backend->descriptors);
	if (rc != 0)
		log_error("gpu", "cannot limit this process's files: %s", strerror(-rc));
	return rc;
}

static int check_seals(int fd, struct stat *st)
{
	if (!memfd_is_sealed(fd) || fstat(fd, st) != 0) {
		log_error("gpu", "descriptor %d is no sealed memory", fd);
		return -EINVAL;
	}
	return 0;
}

/* The header is read once: it is the daemon's, but it is memory that others map. */
static int check_header(const uint8_t *base, uint64_t bytes, struct wire_ring *ring)
{
	struct wire_ring_header header = *(const struct wire_ring_header *)base;

	if (header.magic != WIRE_RING_MAGIC || header.version != WIRE_RING_VERSION) {
		log_error("gpu", "this is no ring of version %d", WIRE_RING_VERSION);
		return -EINVAL;
	}
	ring->shape = (struct wire_ring_shape){header.queues, header.slots, header.payload};
	if (!wire_ring_shape_valid(&ring->shape)) {
		log_error("gpu", "no ring has %u queues of %u slots of %u bytes", header.queues, header.slots,
			  header.payload);
		return -EINVAL;
	}
	ring->at = wire_ring_layout(&ring->shape);
	if (ring->at.bytes != bytes) {
		log_error("gpu", "the ring has %llu bytes, and should have %llu", (unsigned long long)bytes,
			  (unsigned long long)ring->at.bytes);
		return -EINVAL;
	}
	return 0;
}

int gpu_ring_map(int fd, struct wire_ring *ring)
{
	uint64_t bytes;
	struct stat st;
	int rc = check_seals(fd, &st);

	if (rc != 0)
		return rc;
	bytes = (uint64_t)st.st_size;
	if (bytes < WIRE_RING_PAGE) {
		log_error("gpu", "the ring has %llu bytes", (unsigned long long)bytes);
		return -EINVAL;
	}
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
