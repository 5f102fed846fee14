/*
 * fabric_siege.h: a server of the soft provider, one good connection, and raw sockets. The frames are not known here: they
 * are recorded from a real client and then cut, changed and sent again.
 */
#ifndef RDMAD_TESTS_FABRIC_SIEGE_H
#define RDMAD_TESTS_FABRIC_SIEGE_H

#include "tests/fabric/fabric_pair.h"

#define SIEGE_RECEIVES 16 /* shared ones that the server keeps posted */

struct siege {
	struct fabric_pair p;
	struct buffer inbox, region;
	uint8_t bytes[8192];      /* what a client sent: its hello, then its frames */
	size_t hello, first, len; /* of the hello, of the first message, of all */
	unsigned fds;
};

void siege_open(struct siege *x); /* of fabric_pair_shared */
void siege_open_with(struct siege *x, const struct fabric_pair_options *options);
/* The good connection still works, nothing outside the buffers was touched, and as many
 * descriptors are open as before. */
void siege_close(struct siege *x);

/* What the server does: accept all, keep the shared receives posted, forget connections that end. */
void siege_serve(struct siege *x);
/* Serve until the raw connection was cut off, or, where `may_live`, nothing happens any more. */
bool siege_serve_raw(struct siege *x, int fd, bool may_live);
/* Send the hello, let it be answered, send the rest. True when the server cut it off. */
bool siege_replay(struct siege *x, const uint8_t *bytes, size_t len, bool may_live);

/* Each send leaves at once, as bytes of its own. */
int raw_connect(const struct sockaddr_storage *sa, socklen_t len);
/* Send all that fits, as far as the other side takes it. */
void raw_send(int fd, const uint8_t *bytes, size_t len);
/* Drain; true when the other side has closed or reset. */
bool raw_ended(int fd);

#endif
