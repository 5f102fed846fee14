/* thread.h: threads of a daemon or a library. */
#ifndef RDMAD_BASE_THREAD_H
#define RDMAD_BASE_THREAD_H

#include <pthread.h>

/*
 * Start one that takes no signals: they are for the main thread's loop, or for the program's own threads. `name` is
 * what `top -H` shows, of 15 characters at most. 0 or -errno; nothing is logged. Any thread may call it.
 */
int thread_start(pthread_t *thread, const char *name, void *(*run)(void *arg), void *arg);

#endif
