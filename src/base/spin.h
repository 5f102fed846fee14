/*
 * spin.h: whether a thread that waits polls first, or sleeps at once. One for each thread that waits; no locks.
 *
 * Polling saves a wake-up where there is a processor to spare, and costs the one that is waited for a processor where
 * there is none. No figure of the machine tells which, so it is measured: how long it is from each piece of work to the
 * next. Now and then some waits go the other way, until it is clear which one is better; that one is taken. Where
 * polling ends without work most of the time it is left, too: the wake-up is paid anyway.
 *
 *     spin_begin(&spin, now);
 *     while (!done)
 *             if (spin_turn(&spin, now, work = turn()))
 *                     sleep, unless there is work after all;
 */
#ifndef RDMAD_BASE_SPIN_H
#define RDMAD_BASE_SPIN_H

#include "base/base.h"

struct spin {
	uint64_t limit;  /* ns; 0: never polls, TIME_NEVER: never sleeps */
	uint64_t window; /* the limit, or 0: how long it polls at present */
	uint64_t since;  /* the last work, or the begin of the wait */
	unsigned idle;   /* turns since, see time_to_yield() */

	/* The rest is spin.c's. */
	int waits;             /* of this round; below 0: they still show how it was before */
	int vain;              /* of them, as long as the limit or longer */
	uint64_t waited, work; /* of this round: ns, and the pieces of work that came in them */
	uint64_t most;         /* that is counted of one of them, so that a rare long one does not decide */
	double usual;          /* ns from a piece of work to the next in the rounds before, but for trials */
	double other;          /* in the last trial, which went the other way; 0: there was none */
	bool sleeps;           /* the better way as far as is known ... */
	bool useless;          /* ... because waits are longer than the limit */
	bool trial;            /* this round goes the other way */
	unsigned rounds;       /* until the next trial */
	unsigned interval;     /* between trials; grows while they change nothing */
};

/* How long `threads` threads may poll that could for `poll`: not at all where they are more than the processors, or
 * where a control group limits processor time, of which polling would take what work needs. TIME_NEVER stays. */
uint64_t spin_allowed(uint64_t poll, unsigned threads);

void spin_init(struct spin *spin, uint64_t limit);
/* Another limit from now on; nothing happens where it is the same. */
void spin_limit(struct spin *spin, uint64_t limit);
void spin_waited(struct spin *spin, uint64_t now); /* for spin_turn() */

/* A wait begins, or has a reason to go on as if it did. */
static inline void spin_begin(struct spin *spin, uint64_t now)
{
	spin->since = now;
	spin->idle = 0;
}

/* A turn at `now` found so much work. True: none for so long that it is time to sleep. */
static inline bool spin_turn(struct spin *spin, uint64_t now, uint64_t work)
{
	if (work == 0) {
		spin->idle++;
		return now - spin->since >= spin->window;
	}
	spin->work += work;
	if (spin->idle)
		spin_waited(spin, now);
	else
		spin->waited += MIN(now - spin->since, spin->most); /* what the work before took, as in a wait's time */
	spin_begin(spin, now);
	return false;
}

#endif
