/*
 * channel_far.h: what the files of far channels share, and channel_meet.c uses.
 *
 *   channel_far.c         the transport: bytes, indices, sleep
 *   channel_far_open.c    the end that connects and asks
 *   channel_far_listen.c  the end that is asked
 */
#ifndef RDMAD_CLIENT_CHANNEL_FAR_H
#define RDMAD_CLIENT_CHANNEL_FAR_H

#include "client/channel.h"
#include "client/client.h"

struct channel_far;

/* What a listener, or an rdmad, is asked for. */
struct channel_far_ask {
	const char *address;   /* for fabric_address_parse() */
	const char *name;      /* "" where the path is the name */
	uint64_t size;         /* of each ring */
	uint64_t token;        /* of an invitation by rdmad, else 0 */
	uint32_t flags;        /* WIRE_CHANNEL_RELAY */
	uint32_t message_size; /* what is relayed travels in messages of so many bytes; 0: a default */
	char *moved;           /* for what comes with WIRE_MOVED, ended by a 0; NULL: then it breaks the protocol */
	size_t moved_size;
};

/* Connect and ask. 0; -EREMOTE: *moved says where; else why not, logged. */
int channel_far_ask(const struct channel_far_ask *ask, const struct rdmad_channel_options *options,
		    struct rdmad_channel **out);

#endif
