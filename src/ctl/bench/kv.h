/*
 * kv.h: what the files of "bench kv" share: kv.c has the phases and their set-up, kv_work.c the requests of one.
 */
#ifndef RDMAD_CTL_BENCH_KV_H
#define RDMAD_CTL_BENCH_KV_H

#include "ctl/ctl.h"
#include "rdmad/kv.h"

#define BENCH_KV_WINDOWS 64u /* different values: that many places in one random text */

enum bench_kv_phase { PHASE_FILL, PHASE_SET, PHASE_GET, PHASE_MIXED, PHASE_DELETE };

/* The requests below number `upto` that have no stamp yet were submitted at `time`. */
struct stamp {
	uint64_t time, upto;
};

/* A get of a large value that is under way. */
struct ticket {
	struct lane *lane;
	struct ticket *next; /* free one behind this one */
	uint32_t window;
};

/* One connection. Hot members first. */
struct lane {
	void *kv;
	struct bench_kv_worker *worker;
	uint64_t submitted, done, stamped; /* numbers of requests in this phase */
	uint64_t quota;                    /* how many there are to be */
	uint64_t first; /* --rate: when the first request is to leave; the others follow b.apart behind it */
	uint32_t submit_key, done_key;   /* wrap at `keys` */
	uint32_t submit_pair, done_pair; /* mixed: pairs of a set and a get */
	enum bench_kv_phase phase;
	uint32_t keys;
	uint32_t key_len;
	char *key; /* key_len bytes each */
	struct stamp *stamp;
	uint32_t stamp_mask, stamp_head, stamp_tail;
	struct ticket *tickets, *ticket; /* bench.depth of them, the first free one */
};

/* One thread with its lanes. */
struct bench_kv_worker {
	struct bench_thread thread;
	struct lane *lane;
	unsigned lanes;
	bool stopping;
	pthread_mutex_t lock; /* of `slice`, which the first worker takes and prints; --interval only */
	struct bench_result slice;
};

struct bench_kv {
	struct bench_case driven; /* of which the driver runs the phases */
	enum bench_kv_phase phase;
	void **idle;
	struct lane *lane; /* all of them */
	struct bench_kv_worker *worker;
	char *text; /* text_len random bytes */
	size_t text_len;
	uint32_t keys;
	uint64_t depth;       /* bench.depth, less for large values */
	uint64_t apart;       /* ns between requests of a lane; 0: no --rate */
	uint64_t interval;    /* of --interval, 0: none, or nothing is measured in this phase */
	uint64_t ttl_us;      /* of the keys; 0: none */
	uint32_t eager_limit; /* of the options; 0: the default */
	bool unordered;       /* values do not fit the answer, or come from several servers */
	bool lost;            /* a connection ended */
};

extern struct bench_kv bench_kv;

/* A thread's part of a phase. */
void bench_kv_work(struct bench_thread *thread);

#endif
