/* lock.c: waiting for a lock, and what contracts know of locks. */
#include "store/lock.h"

#include <sched.h>
#include <time.h>

#define LOCK_SPINS 128
#define LOCK_YIELDS 64

static _Thread_local const void *held[LOCK_RANKS];

static void lock_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

void lock_wait(struct lock *l)
{
	for (unsigned n = 0; atomic_load_explicit(&l->held, memory_order_relaxed); n++) {
		if (n < LOCK_SPINS)
			lock_relax();
		else if (n < LOCK_SPINS + LOCK_YIELDS)
			sched_yield();
		else
			nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
	}
}

bool lock_is_mine(const void *lock, enum lock_rank rank)
{
	return held[rank] == lock;
}

bool lock_rank_is_held(enum lock_rank rank)
{
	return held[rank];
}

void lock_note_take(const void *lock, enum lock_rank rank)
{
	for (unsigned above = rank; above < LOCK_RANKS; above++)
		must(!lock_rank_is_held((enum lock_rank)above));
	held[rank] = lock;
}

void lock_note_give(const void *lock, enum lock_rank rank)
{
	must(lock_is_mine(lock, rank));
	held[rank] = NULL;
}
