/*
 * device.c: a device of threads. One kernel at a time runs on it; each block's threads meet at
 * barriers, and end in the middle when the device is made to fail.
 */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "fake/device.h"
#include "fake/fake.h"

struct fake_barrier {
	unsigned arrived, turn;
};

struct fake_block {
	pthread_mutex_t lock;
	pthread_cond_t met;
	struct fake_barrier all, team, warp;
	unsigned index, threads, turns;
	_Atomic bool still; /* its threads go on no more */
	_Alignas(CACHE_LINE) uint8_t shared[FAKE_SHARED_BYTES];
};

struct fake_thread {
	struct fake_block *block;
	unsigned index;
};

FAKE_OF_THREAD struct fake_dim threadIdx, blockIdx, blockDim, gridDim;

static FAKE_OF_THREAD struct fake_block *here;
static struct gpu_kernel_args kernel_args;
static unsigned grid;
static struct fake_block *blocks;
static struct fake_thread *threads;
static _Atomic unsigned running, waiting, jobs; /* waiting: for ever */
static _Atomic int fault;
static _Atomic bool hangs;
_Atomic unsigned fake_launches, fake_helped;

/* Every word of the device passes here: a device that failed ends its threads, one that hangs keeps
 * them for ever. */
static void step(void)
{
	if (here->still) {
		waiting++;
		for (;;)
			pause();
	}
	while (hangs)
		pause();
	if (fault)
		pthread_exit(NULL);
}

static void meet(struct fake_barrier *barrier, unsigned count)
{
	unsigned turn;

	pthread_mutex_lock(&here->lock);
	turn = barrier->turn;
	if (++barrier->arrived == count) {
		barrier->arrived = 0;
		barrier->turn++;
		pthread_cond_broadcast(&here->met);
	}
	while (barrier->turn == turn && !fault && !here->still)
		pthread_cond_wait(&here->met, &here->lock);
	pthread_mutex_unlock(&here->lock);
	step();
}

void __syncthreads(void)
{
	meet(&here->all, here->threads);
}

void device_barrier(uint32_t count)
{
	meet(&here->team, count);
}

void *fake_shared(size_t bytes)
{
	if (bytes > sizeof(here->shared))
		abort();
	return here->shared;
}

uint64_t device_time(void)
{
	step();
	return time_now();
}

void __nanosleep(uint32_t ns)
{
	struct timespec ts = {.tv_nsec = ns};

	nanosleep(&ts, NULL);
	step();
}

static void wake(struct fake_block *block)
{
	pthread_mutex_lock(&block->lock);
	pthread_cond_broadcast(&block->met);
	pthread_mutex_unlock(&block->lock);
}

static void fail(int result)
{
	fault = result;
	for (unsigned i = 0; i < grid; i++)
		wake(&blocks[i]);
}

void __threadfence_system(void)
{
	if (blockIdx.x != 0)
		fake_helped++;
	step();
}

static void finish_job(void)
{
	long job = ++jobs;

	if (job == fake_setting("hang", 0))
		hangs = true;
	if (job == fake_setting("still", 0)) {
		here->still = true;
		wake(here);
	}
	if (job == fake_setting("fault", 0))
		fail(700);
	step();
}

void device_barrier_warp(void)
{
	meet(&here->warp, FAKE_TEAM);
	if (threadIdx.x == 0 && ++here->turns % 2 == 0)
		finish_job();
}

static void ended(void *arg)
{
	running--;
}

static void *thread_main(void *arg)
{
	struct fake_thread *thread = arg;

	here = thread->block;
	threadIdx.x = thread->index;
	blockIdx.x = here->index;
	blockDim.x = here->threads;
	gridDim.x = grid;
	pthread_cleanup_push(ended, NULL);
	gpu_kernel(kernel_args);
	pthread_cleanup_pop(1);
	return NULL;
}

static int start(struct fake_block *block, struct fake_thread *thread, unsigned index, const pthread_attr_t *attr)
{
	pthread_t id;
	int rc;

	thread->block = block;
	thread->index = index;
	running++;
	rc = pthread_create(&id, attr, thread_main, thread);
	if (rc != 0)
		running--;
	return rc;
}

int fake_launch(unsigned count, const struct gpu_kernel_args *args)
{
	unsigned each = FAKE_TEAM + GPU_KERNEL_WATCH;
	pthread_attr_t attr;
	int rc = 0;

	fake_end();
	fake_launches++;
	blocks = aligned_alloc(CACHE_LINE, count * sizeof(*blocks));
	threads = calloc(count * each, sizeof(*threads));
	if (!blocks || !threads)
		return ENOMEM;
	memset(blocks, 0xa5, count * sizeof(*blocks)); /* shared memory begins as anything */
	kernel_args = *args;
	grid = count;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	for (unsigned i = 0; i < count; i++) {
		blocks[i].index = i;
		blocks[i].threads = each;
		blocks[i].turns = 0;
		blocks[i].still = false;
		blocks[i].all = blocks[i].team = blocks[i].warp = (struct fake_barrier){0};
		pthread_mutex_init(&blocks[i].lock, NULL);
		pthread_cond_init(&blocks[i].met, NULL);
	}
	count = (unsigned)MIN((long)count, fake_setting("resident", count));
	for (unsigned i = 0; i < count * each && !rc; i++)
		rc = start(&blocks[i / each], &threads[i], i % each, &attr);
	pthread_attr_destroy(&attr);
	return rc;
}

void fake_end(void)
{
	free(threads);
	free(blocks);
	threads = NULL;
	blocks = NULL;
}

bool fake_running(void)
{
	return running && !fault;
}

bool fake_busy(void)
{
	return running > waiting && !hangs;
}

int fake_fault(void)
{
	return fault;
}
