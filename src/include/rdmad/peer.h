/*
 * peer.h: the groups of programs that meet at an rdmad. The programs themselves use rdma_lib.h. See rdmad_peer(3).
 */
#ifndef RDMAD_PEER_LIST_H
#define RDMAD_PEER_LIST_H

#include <rdmad/rdmad.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RDMAD_PEER_NAME_MAX 200
#define RDMAD_PEER_ADDRESSES_MAX 512

/* A member of a group. */
struct rdmad_peer_entry {
	char name[RDMAD_PEER_NAME_MAX + 1];           /* of its group */
	uint32_t number;                              /* of its group; 0: it waits for members */
	uint32_t size, here;                          /* members that there are to be, and that there are */
	int rank;                                     /* -1: it gets one when all are there */
	char addresses[RDMAD_PEER_ADDRESSES_MAX + 1]; /* URLs by which it is reached, separated by blanks */
};
typedef int (*rdmad_peer_each)(void *arg, const struct rdmad_peer_entry *entry);

/* Calls each() for every member of every group; members of one group follow one another. If each() returns anything but
 * 0, the list ends, and this call returns the same. Names and addresses are what clients said, and may have any bytes.
 * `options` may be NULL. transport: set to how the server was reached, "tcp" and so on. Returns 0, what each()
 * returned, or a negative errno: rdmad_error() says why. */
int rdmad_peer_list(const char *server, const struct rdmad_options *options, rdmad_peer_each each, void *arg,
		    char transport[8]);

#ifdef __cplusplus
}
#endif

#endif
