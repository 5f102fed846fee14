/*
 * meet.h: what the two ends of a meet:// URL share.
 *
 *   meet_listen.c  the listener
 *   meet_open.c    the opener
 *   meet.c         what both do
 */
#ifndef RDMAD_CHANNEL_MEET_H
#define RDMAD_CHANNEL_MEET_H

#include "channel/conn.h"

#define CHANNEL_SHM_SCHEME "shm://"
#define CHANNEL_MACHINE_MAX 64

/* This machine, until it is started anew: programs of one machine may have memory in common. "": it cannot be told. */
const char *channel_machine(char buf[static CHANNEL_MACHINE_MAX]);
/* Sets the time to connect: one part of `share` of the time until `end`. */
void channel_give_time(struct rdmad_channel_options *options, uint64_t end, unsigned share);
/* Through the rdmad; by small messages where it refuses a connection with large ones, for which it has no memory.
 * Answers as channel_far_ask(). */
int channel_meet_ask(const struct channel_far_ask *asked, const struct rdmad_channel_options *options,
		     struct rdmad_channel **out);

#endif
