/*
 * peer_fake.h: a network of members in one thread, in place of message.c, peer/messages/inbox.c, request.c and context.c. Messages of one stream between two
 * members come in order; whose turn it is otherwise, and whether a send completes at once, is by chance, and the same for the same seed.
 */
#ifndef RDMAD_TESTS_PEER_FAKE_H
#define RDMAD_TESTS_PEER_FAKE_H

#include "peer/collectives/schedule.h"

#define FAKE_MAX 16

/* Groups of this test's process. `seed` is of the chance. */
void fake_begin(int size, uint64_t seed, rdma_group **groups);
/* Nothing may be left: requests, messages. */
void fake_end(void);
/* One thing happens: a message arrives, a transfer ends, a loss becomes known. False: there was none. Turns nobody. */
bool fake_event(void);
/* A member's process ends. Its own requests are void. Others learn it in later events, each at its own time. */
void fake_kill(int rank);
/* How many things have happened. */
unsigned fake_events(void);
/* The next `n` requests of a member are granted, further ones not; UINT_MAX: all. */
void fake_limit(int rank, unsigned n);

#endif
