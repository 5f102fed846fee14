/*
 * log_world.h: a store that has a log, as far as a test needs one: a history of changes, the state after each of them, groups and
 * checkpoints of it on a disk that may fail, and what has to be found afterwards.
 */
#ifndef TESTS_LOG_WORLD_H
#define TESTS_LOG_WORLD_H

#include "tests/fake/disk.h"
#include "wal/wal.h"

#define WORLD_KEYS 12

struct change {
	enum wal_type type;
	unsigned key;
	uint64_t lsn, expires, version, len;
};

struct item {
	bool there;
	uint64_t version, expires, len;
};

struct state {
	struct item item[WORLD_KEYS];
};

struct world {
	unsigned seed;
	uint64_t random;
	struct disk *disk;
	struct wal *wal;
	struct wal_config config;
	struct change *history;
	unsigned drawn, room; /* changes that were made */
	unsigned handed;      /* of them, to the log */
	uint64_t durable;     /* LSN that the log has said is */
	uint64_t above;       /* numbers are drawn from here on */
	uint64_t given;       /* above this one numbers may have been given out */
	struct state state;
	bool walking; /* a checkpoint is under way */
	unsigned walk;
	bool rests; /* while one is made: it ends by itself */
	bool long_values;
	bool twice; /* all is told a second time */
	/* What recovery told. */
	struct change *told;
	unsigned tolds, told_room;
	struct state found;
	uint64_t seen; /* by the checkpoint */
	void *placed;
};

uint64_t world_draw(struct world *w, uint64_t below);

void world_create(struct world *w, unsigned seed);
void world_destroy(struct world *w);

/* Opens and recovers. What was found is not compared. -errno. */
int world_open(struct world *w, struct wal_found *found);
void world_close(struct world *w);
/* What was found is a prefix of the history; the history goes on from there. */
void world_compare_prefix(struct world *w, const struct wal_found *found);
/* And it has all that was durable. */
void world_compare(struct world *w, const struct wal_found *found);

/* So many changes are made. */
void world_change(struct world *w, unsigned n);
void world_set(struct world *w, unsigned key, uint64_t len);
void world_flush(struct world *w);
/* At most so many of them are handed to the log. -errno of wal_write(). */
int world_write(struct world *w, unsigned n);
int world_sync(struct world *w);
/* Some step of a checkpoint, its begin if there is none. -errno. */
int world_checkpoint(struct world *w);
/* All of a checkpoint. */
int world_checkpoint_whole(struct world *w);
/* Any of these. -errno. */
int world_step(struct world *w);

#endif
