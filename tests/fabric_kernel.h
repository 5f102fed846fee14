/* fabric_kernel.h: some calls of the kernel, in place of the C library's: counted, and failing on demand. */
#ifndef RDMAD_TESTS_FABRIC_KERNEL_H
#define RDMAD_TESTS_FABRIC_KERNEL_H

#include <stdint.h>

struct kernel_fault {
	int times, error; /* the next `times` calls fail by `error` */
};

extern struct kernel {
	struct kernel_fault send, accept;
	uint64_t bytes;  /* sent and received */
	unsigned epolls; /* calls of epoll_wait() */
} kernel;

#endif
