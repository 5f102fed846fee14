/*
 * lock.h: the store's lock. It is held for some tens of nanoseconds, so it spins; when the holder lost its processor,
 * the waiter yields, and at last sleeps. Unlocking is one plain store, which no pthread lock offers.
 */
#ifndef RDMAD_STORE_LOCK_H
#define RDMAD_STORE_LOCK_H

#include "base/base.h"

struct lock {
	_Atomic uint32_t held;
};

/* Ranks, in the order in which a thread may take them. It holds two of one rank only where it takes them by
 * lock_take_further(), in the order of their addresses. */
#define LOCK_MOST 160 /* that a thread holds at once */
enum lock_rank { LOCK_WINDOW, LOCK_STRIPE, LOCK_ORDER, LOCK_HEAP, LOCK_PAGES };

#ifdef RDMAD_CONTRACTS
#define LOCK_NOTED true
#else
#define LOCK_NOTED false
#endif

/*
 * lock.c
 */
void lock_wait(struct lock *l) __attribute__((cold));

/* Builds with contracts note what each thread holds, and check the order; so must() can ask for it. */
void lock_note_take(const void *lock, enum lock_rank rank);
void lock_note_take_further(const void *lock, enum lock_rank rank);
void lock_note_give(const void *lock, enum lock_rank rank);

/* For must() alone: whether the calling thread holds this lock, or any of the rank. */
bool lock_is_mine(const void *lock, enum lock_rank rank);
bool lock_rank_is_held(enum lock_rank rank);

static inline void lock_seize(struct lock *l)
{
	while (unlikely(atomic_exchange_explicit(&l->held, 1, memory_order_acquire)))
		lock_wait(l);
}

static inline void lock_take(struct lock *l, enum lock_rank rank)
{
	if (LOCK_NOTED)
		lock_note_take(l, rank);
	lock_seize(l);
}

/* One more of the rank, behind all of it that the thread holds: so two threads that take several never wait for each
 * other, nor for one that takes a single one. They are given back in any order. */
static inline void lock_take_further(struct lock *l, enum lock_rank rank)
{
	if (LOCK_NOTED)
		lock_note_take_further(l, rank);
	lock_seize(l);
}

static inline void lock_give(struct lock *l, enum lock_rank rank)
{
	if (LOCK_NOTED)
		lock_note_give(l, rank);
	atomic_store_explicit(&l->held, 0, memory_order_release);
}

#endif
