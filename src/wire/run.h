/*
 * run.h: what rdmarun says to its agent, which is rdmarun at another host, for one rank. The agent's standard output
 * begins with a line, the greeting, behind what the remote shell may have said; then it is the rank's, as is its
 * standard error. Its standard input brings frames, a head and as many bytes as that says; its end is the rank's.
 * wire/wire.h does not include it.
 */
#ifndef RDMAD_WIRE_RUN_H
#define RDMAD_WIRE_RUN_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_RUN_GREETING "rdmarun agent 1"
#define WIRE_RUN_LENGTH_MAX (4u << 20)

enum wire_run_kind {
	WIRE_RUN_ARGUMENT = 'a',    /* the program, then its arguments */
	WIRE_RUN_ENVIRONMENT = 'e', /* NAME=VALUE; of two with one name the first holds */
	WIRE_RUN_DIRECTORY = 'd',
	WIRE_RUN_GRACE = 'w', /* text: nanoseconds from the signal that ends the rank to SIGKILL */
	WIRE_RUN_START = 'g', /* all of these have come */
	WIRE_RUN_INPUT = 'i',
	WIRE_RUN_INPUT_OVER = 'o',
	WIRE_RUN_SIGNAL = 's' /* text: its number */
};

struct wire_run_head {
	uint8_t kind;      /* enum wire_run_kind */
	uint8_t length[4]; /* of what follows; unlike all else the most significant byte comes first */
};
_Static_assert(sizeof(struct wire_run_head) == 5, "wire layout");

static inline struct wire_run_head wire_run_encode(enum wire_run_kind kind, size_t length)
{
	return (struct wire_run_head){
		(uint8_t)kind,
		{(uint8_t)(length >> 24), (uint8_t)(length >> 16), (uint8_t)(length >> 8), (uint8_t)length}};
}

/* -EPROTO: longer than a frame is. */
static inline int wire_run_decode(const struct wire_run_head *head, size_t *length)
{
	*length = (size_t)head->length[0] << 24 | (size_t)head->length[1] << 16 | (size_t)head->length[2] << 8 |
		  head->length[3];
	return *length > WIRE_RUN_LENGTH_MAX ? -EPROTO : 0;
}

#endif
