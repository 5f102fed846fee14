/* fabric_memory.h: memory as two ends share it, or other, and how it is passed. */
#ifndef RDMAD_TESTS_FABRIC_MEMORY_H
#define RDMAD_TESTS_FABRIC_MEMORY_H

#include <check.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/soft/rings.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

static inline int memory_make(off_t size, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	uint64_t magic = SOFT_RINGS_MAGIC;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pwrite(fd, &magic, sizeof(magic), 0), sizeof(magic));
	ck_assert_int_eq(ftruncate(fd, size), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

/* Bytes with descriptors, to an address or (NULL) the connected end. Whether they were taken. */
static inline bool memory_pass_flags(int fd, const struct sockaddr *to, socklen_t to_len, const void *bytes, size_t len,
				     const int *pass, unsigned count, int flags)
{
	union {
		struct cmsghdr align;
		uint8_t space[CMSG_SPACE(8 * sizeof(int))];
	} control = {0};
	struct iovec iov = {(void *)(uintptr_t)bytes, len};
	struct msghdr m = {.msg_name = (void *)(uintptr_t)to,
			   .msg_namelen = to_len,
			   .msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = &control};

	m.msg_controllen = CMSG_SPACE(count * sizeof(int));
	CMSG_FIRSTHDR(&m)->cmsg_level = SOL_SOCKET;
	CMSG_FIRSTHDR(&m)->cmsg_type = SCM_RIGHTS;
	CMSG_FIRSTHDR(&m)->cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), pass, count * sizeof(int));
	return sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT | flags) >= 0;
}

static inline bool memory_pass(int fd, const struct sockaddr *to, socklen_t to_len, const void *bytes, size_t len,
			       const int *pass, unsigned count)
{
	return memory_pass_flags(fd, to, to_len, bytes, len, pass, count, 0);
}

#endif
