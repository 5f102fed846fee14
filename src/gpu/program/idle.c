/* idle.c: polling, then napping, without losing a kick. */
#include "gpu/program/process.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NAP_FIRST (16 * TIME_US)
#define NAP_LONGEST TIME_MS
#define CLOCK_TURNS 64 /* turns between looks at the clock */

/* First say so, and let the caller look once more; then sleep, unless there was a kick since. */
static void sleep_until_kicked(struct gpu_process *process, struct gpu_idle *idle)
{
	struct wire_ring_control *control = wire_ring_control(&process->ring);

	if (!idle->armed) {
		idle->kick = wire_ring_load32(&control->kick);
		__atomic_fetch_add(&control->sleepers, 1, __ATOMIC_SEQ_CST);
		wire_ring_fence();
		idle->armed = true;
		return;
	}
	syscall(SYS_futex, &control->kick, FUTEX_WAIT, idle->kick, NULL, NULL, 0);
	idle->kick = wire_ring_load32(&control->kick);
}

void gpu_idle_init(const struct gpu_process *process, struct gpu_idle *idle)
{
	*idle = (struct gpu_idle){.turns = 0};
	spin_init(&idle->spin, process->attr.poll);
}

/* Looks at the clock now and then. */
static bool should_sleep(struct gpu_idle *idle)
{
	if (idle->turns == 1)
		spin_begin(&idle->spin, time_now());
	if (idle->armed || idle->nap)
		return true;
	if (idle->turns % CLOCK_TURNS && idle->spin.window)
		return false;
	return spin_turn(&idle->spin, time_now(), 0);
}

void gpu_idle(struct gpu_process *process, struct gpu_idle *idle)
{
	struct timespec nap = {0};

	idle->turns++;
	if (time_to_yield(idle->turns))
		sched_yield();
	if (!should_sleep(idle))
		return;
	if (!process->queue_mode) {
		sleep_until_kicked(process, idle);
		return;
	}
	idle->nap = idle->nap ? MIN(2 * idle->nap, NAP_LONGEST) : NAP_FIRST;
	nap.tv_nsec = (long)idle->nap;
	nanosleep(&nap, NULL);
}

void gpu_idle_disarm(struct gpu_process *process, struct gpu_idle *idle)
{
	if (idle->armed)
		__atomic_fetch_sub(&wire_ring_control(&process->ring)->sleepers, 1, __ATOMIC_SEQ_CST);
	idle->spin.idle = idle->turns;
	spin_turn(&idle->spin, time_now(), 1);
	idle->turns = 0;
	idle->nap = 0;
	idle->armed = false;
}
