/* log.h: what log.c, load.c and checkpoint.c share: the log of one store. */
#ifndef RDMAD_SERVICE_KV_LOG_H
#define RDMAD_SERVICE_KV_LOG_H

#include "service/kv/kv.h"

#include <pthread.h>

#define KV_GROUP 1024 /* changes that are written at once */
_Static_assert(KV_GROUP <= WAL_GROUP_MAX, "the log takes them by one call");

/* Changes that are being written. The writer's alone. */
struct kv_group {
	struct store_change change[KV_GROUP];
	struct wal_record record[KV_GROUP];
	unsigned count; /* that were taken */
	unsigned put;   /* of them, changes that the log has */
	uint64_t bytes; /* of keys and values */
};

struct kv_log {
	struct store *store;
	struct wal *wal;
	enum kv_policy policy;
	enum kv_on_error on_error;
	uint64_t sync_every, checkpoint_budget, poll;
	void (*fatal)(void *arg, int error);
	void *fatal_arg;

	/* The writer. */
	pthread_t writer;
	int event;           /* by which it is woken */
	_Atomic bool asleep; /* and has to be */
	_Atomic bool stop;
	_Atomic uint64_t wanted; /* an answer waits for this number */
	_Atomic uint64_t durable;
	_Atomic bool failed;             /* for ever, and the waiting threads are to be told */
	_Atomic uint64_t taken, largest; /* changes, and the longest row of them that was synced at once */
	/* The writer's: numbers, behind which no commit goes on; when that was, bytes since then. */
	uint64_t written, synced, synced_at, unsynced;
	uint64_t looked_at;   /* the files, when */
	_Atomic bool removed; /* the files were removed */
	bool near_full;       /* no room for the next segment */
	bool alone;           /* a change was synced that others wait for, and no other one with it */
	bool broken;          /* an error that is for ever */
	bool lags;            /* at its end: the log lacks changes */
	struct kv_group group;

	/* The checkpoints. */
	pthread_t checkpointer;
	pthread_cond_t cond;
	bool checkpoint_asked, checkpointing;
	int checkpoint_error;              /* of the last one */
	_Atomic uint64_t checkpoint_began; /* of one under way: when; 0: there is none */
	_Atomic uint64_t checkpoint_done;  /* bytes of keys and values */

	pthread_mutex_t lock; /* of what follows, and of the checkpoints */
	struct list threads;  /* kv_thread.node */
	_Atomic int refused;  /* as in each of them */
	bool threads_run;
};

/* The two clocks, to convert times between: those of the store end with the machine, those of the log do not. */
struct kv_clocks {
	uint64_t mono; /* time_now() */
	uint64_t real; /* microseconds */
};
struct kv_clocks kv_clocks_now(void);
uint64_t kv_expires_to_log(const struct kv_clocks *clocks, uint64_t expires);

/*
 * load.c
 */

/* All that is found goes into the store. *last: the highest number. 0 or -errno, logged. */
int kv_load(struct kv_log *log, const struct service_host *host, uint64_t *last);

/*
 * checkpoint.c
 */

/* Writes all that there is, and lets go of what it replaces. 0; -ECANCELED: the end came first; or -errno, logged. */
int kv_checkpoint_make(struct kv_log *log);
/* One of nothing: what was kept is gone. 0 or -errno, logged. */
int kv_checkpoint_forget(struct kv_log *log);
void *kv_checkpoint_run(void *log); /* a thread */

#endif
