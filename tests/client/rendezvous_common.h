/*
 * rendezvous_common.h: what the suites of large values share: a server in the same process, which has a thread of its own or, while
 * that is stopped, is turned by the test, and counts of what is allocated, copied and registered. They are linked with --wrap of
 * malloc, calloc, realloc, memcpy, memmove, fabric_register and fabric_deregister.
 */
#ifndef RDMAD_TESTS_RENDEZVOUS_COMMON_H
#define RDMAD_TESTS_RENDEZVOUS_COMMON_H

#include "tests/client/caller.h"
#include "tests/suite.h"
#include "tests/service/value.h"

#define LARGEST (8 * MIB)
#define PUSH_MAX 65536
#define PATIENCE (60 * TIME_S)

/*
 * Calls that are counted, of the rooms and of the suites.
 */
extern _Atomic unsigned allocations, registrations;
extern _Atomic size_t longest_copy;
/* The longest copy that there may be. Between programs that share memory a value's bytes are moved by copies of this length; one of a
 * whole value would be longer. */
size_t copy_limit(void *kv);
extern unsigned refuse; /* so many registrations to come of the thread `refused` */
extern pthread_t refused;
extern unsigned rights; /* of the last registration of that thread */

/* And not deregistered. */
unsigned registered(void);

/*
 * The server
 */
/* A case for each transport, and for each that values are pushed over; they differ in the tests that are added. */
Suite *suite_over_each(const char *name, void (*add)(TCase *tc), void (*add_pushed)(TCase *tc));

extern uint8_t *value, *space; /* LARGEST bytes and some each */

void set_up_memory(void);
void set_up_no_arena(void);
void tear_down(void);

/* Nobody is connected and no key is left: then nothing is held either. */
void assert_store_empty(void);
/* Writes that were posted before their reader went away complete in the server's own time. */
void server_rests(void);
uint64_t records_taken(void);

/*
 * One without manners, in the place of the service: each answer is the same, whatever was asked.
 */
struct rogue {
	const char *what;
	uint64_t length; /* the body: it, and a key */
	uint32_t body;
	uint8_t flags;
	uint16_t status;
	int set, get; /* what becomes of a large set, and then of a get */
};
extern const struct rogue *rogue;

void set_up_rogue(void);

/*
 * Its client
 */
struct call {
	unsigned called;
	int status;
	size_t len;
	const void *at;
	uint64_t seed; /* of the value that a get must bring */
	size_t want;
	bool whole;
};

extern unsigned total; /* calls that came back */

void set_value(void *kv, const char *key, size_t len, uint64_t seed);
void assert_value(void *kv, const char *key, size_t len, uint64_t seed);
/* Callbacks: of a struct call, and of a caller that does not care. */
void done(void *arg, int status, const void *bytes, size_t len);
void ignored(void *arg, const struct kv_result *result);
void assert_done(const struct call *call, int status);
void assert_brought(const struct call *call);
/* With nobody else at work: turns of both until `calls` more were called back. Allocates nothing itself. */
void turn_until(void *kv, unsigned calls);

#endif
