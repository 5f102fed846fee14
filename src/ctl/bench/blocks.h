/*
 * blocks.h: what the files of "bench blocks" share. blocks.c has the requests of a cache, blocks_kv.c and blocks_resp.c
 * carry out the steps of one at an rdmad or at a server that speaks RESP.
 */
#ifndef RDMAD_CTL_BENCH_BLOCKS_H
#define RDMAD_CTL_BENCH_BLOCKS_H

#include "ctl/ctl.h"

#define BLOCKS_BATCH_MAX 1024u
#define BLOCKS_KEY_MAX 96u

/* One block of a request. */
struct block {
	char key[BLOCKS_KEY_MAX];
	uint32_t key_len;
	int status;     /* of the last step: 0, or a negative errno; -ENOENT: it is not there */
	uint8_t *bytes; /* bench.size of them, in the client's memory */
};

struct blocks_client;

/* The steps of a request, each of which waits. They answer 0, or a negative errno that ends the benchmark, and leave
 * its sentence in client->why. */
struct blocks_way {
	/* Connect; `client` has its memory already. An exit status, after saying why. */
	int (*open)(struct blocks_client *client);
	/* How many blocks come before the first one that is missing, or a negative errno. */
	int64_t (*look_up)(struct blocks_client *client, struct block *blocks, uint32_t count);
	/* Read the blocks to their memory, and set the status of each. */
	int (*load)(struct blocks_client *client, struct block *blocks, uint32_t count);
	int (*store)(struct blocks_client *client, struct block *blocks, uint32_t count);
	int (*drop)(struct blocks_client *client, struct block *blocks, uint32_t count);
	void (*close)(struct blocks_client *client); /* also one that was not opened */
};

extern const struct blocks_way blocks_kv, blocks_resp;

/* A connection of one thread, and the memory of the program that has it: places of bench.size bytes, one for each block
 * of a request. */
struct blocks_client {
	struct bench_thread thread; /* first */
	void *kv;                   /* of blocks_kv */
	int fd;                     /* of blocks_resp; -1: none */
	uint8_t *memory;
	size_t memory_len;
	const char *transport; /* set by open */
	const char *why;       /* the sentence of the last error */
	struct blocks_steps *steps;
};

#endif
