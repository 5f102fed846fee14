/*
 * watch.c: the thread that a process cannot do without: a job may never return, and the
 * daemon may go. It looks at both, counts the heartbeat, and ends the process when the backend does
 * not.
 */
#include "gpu/message.h"
#include "gpu/program/program.h"

#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sysexits.h>
#include <unistd.h>

#define TICK (100 * TIME_MS)
#define TICK_STOPPING (5 * TIME_MS)

/* The job of one thread. `index` and `queue` are of the time `since` if that is the same after
 * them. */
static void look_at(struct gpu_process *process, struct gpu_busy *busy, uint64_t now)
{
	uint64_t since = atomic_load(&busy->since), index = atomic_load(&busy->index);
	uint32_t queue = atomic_load(&busy->queue);
	char limit[32];

	if (!since || now < since || now - since <= process->attr.job_timeout || atomic_load(&busy->since) != since)
		return;
	gpu_process_fail(process, WIRE_RING_OVERTIME, queue, index, "job %" PRIu64 " of queue %u takes longer than %s",
			 index, queue, units_format_time(process->attr.job_timeout, limit));
	_exit(EX_TEMPFAIL);
}

static void *watch_main(void *argument)
{
	struct gpu_process *process = argument;
	struct wire_ring_header *header = wire_ring_header(&process->ring);
	/* Readable: the daemon wants no more, or is gone. It never says anything. */
	struct pollfd control = {.fd = process->control, .events = POLLIN | POLLRDHUP};
	/* Often enough that a job is at most an eighth late. */
	uint64_t tick = MAX(MIN(process->attr.job_timeout / 8, TICK), TIME_MS), now, give_up = TIME_NEVER;
	bool over = false;

	for (;;) {
		if (gpu_process_stopping(process))
			tick = TICK_STOPPING;
		if (over)
			usleep((useconds_t)(TICK_STOPPING / TIME_US));
		else
			over = poll(&control, 1, (int)(tick / TIME_MS)) > 0;
		now = time_now();
		wire_ring_store(&header->heartbeat, header->heartbeat + 1);
		for (unsigned i = 0; i < GPU_THREADS_MAX; i++)
			look_at(process, &process->busy[i], now);
		if (over)
			atomic_store(&process->stopping, true);
		if (!gpu_process_stopping(process))
			continue;
		/* Threads that sleep see that it is over. One may be about to sleep: the next turn wakes it. */
		syscall(SYS_futex, &wire_ring_control(&process->ring)->kick, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
		if (give_up == TIME_NEVER)
			give_up = now + GPU_STOP_GRACE;
		if (now >= give_up)
			_exit(EX_SOFTWARE);
	}
	return NULL;
}

int gpu_watch_start(struct gpu_process *process)
{
	pthread_t thread;
	int rc = pthread_create(&thread, NULL, watch_main, process);

	if (rc != 0) {
		log_error("gpu", "cannot start a thread: %s", strerror(rc));
		return -rc;
	}
	pthread_detach(thread); /* it ends with the process */
	return 0;
}
