/* mirror.c: memory that is mapped twice, one behind the other, so that no piece of a ring is ever in two parts. */
#include "channel/channel.h"

#include <sys/mman.h>
#include <unistd.h>

size_t channel_mirror_size(size_t capacity)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (capacity + page - 1) / page * page;
}

static bool map_half(int fd, off_t offset, size_t size, uint8_t *at)
{
	return mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, offset) != MAP_FAILED;
}

int channel_mirror_map(int fd, off_t offset, size_t size, struct channel_mirror *out)
{
	uint8_t *data;
	int rc;

	must(size && size == channel_mirror_size(size));
	/* Taken as a whole first, so that nothing else can come between the halves. */
	data = mmap(NULL, 2 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (data == MAP_FAILED)
		goto failed;
	if (!map_half(fd, offset, size, data) || !map_half(fd, offset, size, data + size))
		goto unmap;
	*out = (struct channel_mirror){.data = data, .size = size};
	return 0;

unmap:
	rc = errno;
	munmap(data, 2 * size);
	errno = rc;
failed:
	rc = -errno;
	log_error("channel", "cannot map a ring of %zu bytes twice: %m", size);
	return rc;
}

void channel_mirror_unmap(struct channel_mirror *mirror)
{
	if (mirror->data)
		munmap(mirror->data, 2 * mirror->size);
	*mirror = (struct channel_mirror){.data = NULL};
}

int channel_memory_create(size_t size)
{
	int fd = memfd_sealed("rdmad-channel", size);

	if (fd < 0)
		log_error("channel", "cannot make %zu bytes of shared memory: %s%s", size, strerror(-fd),
			  fd == -EFBIG                    ? "; see RLIMIT_FSIZE (ulimit -f)"
			  : fd == -EPERM || fd == -ENOSYS ? "; where memfd_create() is forbidden, open both ends of a "
							    "shm:// channel with posix_memory"
							  : "");
	return fd;
}
