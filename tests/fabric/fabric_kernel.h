/* fabric_kernel.h: some calls of the kernel, in place of the C library's: counted, and failing on demand. */
#ifndef RDMAD_TESTS_FABRIC_KERNEL_H
#define RDMAD_TESTS_FABRIC_KERNEL_H

#include <stdint.h>

struct kernel_fault {
	_Atomic int times; /* as many of the next calls fail */
	int error;
};

extern struct kernel {
	struct kernel_fault send, accept;
	_Atomic uint64_t bytes;  /* sent and received */
	_Atomic unsigned epolls; /* calls of epoll_wait() */
	_Atomic unsigned told;   /* events that these brought */
	_Atomic unsigned reads;  /* of recv() */
} kernel;

#endif
