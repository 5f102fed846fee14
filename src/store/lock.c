/* lock.c: waiting for a lock, and what contracts know of locks. */
#include "store/lock.h"

#include <sched.h>
#include <time.h>

#define LOCK_SPINS 128
#define LOCK_YIELDS 64

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

/* The locks that the thread holds, the last one last: ranks rise, and so do addresses of one rank. */
static _Thread_local struct held {
	const void *lock[LOCK_MOST];
	enum lock_rank rank[LOCK_MOST];
	unsigned n;
} held;

bool lock_is_mine(const void *lock, enum lock_rank rank)
{
	for (unsigned i = held.n; i > 0; i--)
		if (held.lock[i - 1] == lock)
			return held.rank[i - 1] == rank;
	return false;
}

bool lock_rank_is_held(enum lock_rank rank)
{
	for (unsigned i = held.n; i > 0 && held.rank[i - 1] >= rank; i--)
		if (held.rank[i - 1] == rank)
			return true;
	return false;
}

static void note_lock(const void *lock, enum lock_rank rank)
{
	must(held.n < ARRAY_SIZE(held.lock));
	held.lock[held.n] = lock;
	held.rank[held.n++] = rank;
}

void lock_note_take(const void *lock, enum lock_rank rank)
{
	must(!held.n || held.rank[held.n - 1] < rank);
	note_lock(lock, rank);
}

void lock_note_take_further(const void *lock, enum lock_rank rank)
{
	must(!held.n || held.rank[held.n - 1] < rank ||
	     (held.rank[held.n - 1] == rank && (uintptr_t)held.lock[held.n - 1] < (uintptr_t)lock));
	note_lock(lock, rank);
}

void lock_note_give(const void *lock, enum lock_rank rank)
{
	unsigned at = held.n;

	must(lock_is_mine(lock, rank));
	while (at > 0 && held.lock[at - 1] != lock)
		at--;
	if (at == 0)
		return;
	for (held.n--; at <= held.n; at++) {
		held.lock[at - 1] = held.lock[at];
		held.rank[at - 1] = held.rank[at];
	}
}
