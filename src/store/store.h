/*
 * store: the key/value index and its value arena. Offsets, pins, versions, expiry, eviction.
 * It knows no network; the arena is handed to it as memory that its owner may have registered.
 *
 * Threads: every function may be called from any thread, except create and destroy. The index is
 * striped by key hash, and a stripe's lock is held for the index step only. Values are written
 * before it is taken. They are read after it was given back, under a pin, but for values of at
 * most STORE_COPY_MAX bytes in store_read: to copy those under the lock costs less than the two
 * atomic operations of a pin, and the item is not touched again afterwards.
 *
 * A value is immutable once published. Readers that outlast a call hold a pin; an overwritten or
 * deleted value is freed when its last pin goes, by the thread that drops it. So a reader sees
 * the old value or the new one, never a mix.
 *
 * Cost: no malloc and no system call but for the growth of the index (13 to 26 bytes a key, outside the
 * arena). An item takes 48 bytes beside key and value, and at most 12.5 % for rounding.
 *
 * Eviction is S3-FIFO, see evict.c: a hit costs two bits, and a scan does not displace what is
 * used.
 *
 * Steps: where the arena is full, a write makes room, see room.c. It moves items that are not pinned, and evicts
 * where that is on. So without eviction no write is refused that leaves a tenth of the arena free, as long as the arena
 * is of 64 MiB or more, values are of 4 MiB at most and few are pinned; with it, none that fits while what may be
 * evicted lies in a row. A call does some 100 us of that (to move one value of 4 MiB takes up to a millisecond), and
 * then returns -EAGAIN: progress was made, nothing was written, call again with the same key and length. The caller may
 * do other things between two calls. Repeated calls end, with the write or with another error, however many callers
 * compete: room is made for one request at a time, whose own calls and those of all others are its steps, and it is
 * kept for that one until it comes, though not for longer than 64 calls of others, or two seconds of store_tick. A
 * caller may give up without a word.
 */
#ifndef RDMAD_STORE_H
#define RDMAD_STORE_H

#include "base/base.h"

#define STORE_KEY_MAX 4095  /* bytes; the shortest key is 1 byte */
#define STORE_COPY_MAX 4096 /* bytes that store_read copies under the stripe's lock */

enum store_eviction { STORE_EVICT_NONE, STORE_EVICT_S3_FIFO };

struct store_config {
	void *arena;        /* memory for keys and values; page-aligned, zeroed or not */
	size_t arena_size;  /* bytes, at least 1 MiB */
	uint64_t value_max; /* longest value, bytes */
	enum store_eviction eviction;
	bool gives_back;  /* memory that is free for long goes back to the system: no device knows the arena's pages */
	uint64_t epoch;   /* versions begin above it, at most 2^55: see store_epoch */
	uint32_t changes; /* length of the ring of changes, a power of two from 64 to 2^20; 0: changes are not kept */
};

struct store;

struct store_item;
struct store_put;

/* What an item's value is, and so which commands take it. The store keeps it and looks at it no further. */
enum store_type { STORE_STRING, STORE_HASH };

/* A bit beside it, of what is written and of a change: a client has said that the value is out of date, and is to be
 * made anew. What reads the item has it as `stale`. It is of no meaning here, and goes with the next write. */
#define STORE_STALE 0x80

/* A value or an extent for one: memory in the arena, and the hold on it. */
struct store_ref {
	struct store_item *item; /* NULL: none */
	void *addr;              /* of the value's first byte, in the arena; from 4 KiB on it begins a cache line */
	uint64_t len;
	uint64_t version; /* rises with each write of the key, also over a delete; never 0 */
	uint64_t expires; /* of what store_get() has found; else 0 */
	uint32_t flags;   /* the client's, see struct store_put; 0 of a reservation */
	uint8_t type;     /* an enum store_type; STORE_STRING of a reservation */
	bool stale;       /* see STORE_STALE */
};

struct store_stats {
	uint64_t items;
	uint64_t expiring;    /* items among them that expire some time */
	uint64_t pins;        /* and reservations, that are not given back */
	uint64_t bytes_used;  /* of the arena: extents, with headers and rounding */
	uint64_t bytes_asked; /* of it: keys and values as they were given */
	uint64_t bytes_held;  /* pages that hold any of it: bytes_used and what is free beside it */
	uint64_t bytes_total;
	/* The longest that is free, to an eighth: a value beyond it needs others to move or to go. */
	uint64_t bytes_free_run;
	uint64_t bytes_reserved; /* of bytes_used: values on their way */
	uint64_t hits, misses, sets, deletes, evictions, expired;
	uint64_t evicted_age;    /* how long keys that were evicted lately had been there, us, on the average of some */
	uint64_t moves;          /* of items, to make room */
	uint64_t out_of_memory;  /* writes refused */
	uint64_t bytes_returned; /* of the arena, to the system, ever */
};

/* The epoch of a store that begins now: the system's clock in quarters of a microsecond. So versions go on rising over
 * a restart, unless the clock was set back, or the keys of one stripe took more than four million writes a second all
 * the time. They fit the 53 bits that JSON's readers have for numbers until 2041. */
uint64_t store_epoch(void);

/* -EINVAL: arena too small, too large (16 TiB) or not page-aligned; -ENOMEM. Outside the arena are
 * the index and 32 bytes a page of records, none of them touched before use; nor is the arena. */
int store_create(const struct store_config *config, struct store **out);
void store_destroy(struct store *store); /* every pin and reservation given back first */

/* Read: on 1 the value is pinned, give it back with store_unpin. 0: no such key. `now` is
 * time_now(); what has expired is not found. */
int store_get(struct store *store, const void *key, size_t key_len, uint64_t now, struct store_ref *out);
void store_unpin(struct store *store, struct store_ref *ref); /* ref->item NULL: nothing is done */

#define STORE_AHEAD 8

struct store_key {
	const void *key;
	size_t len;
};

/* These keys, at most STORE_AHEAD, are looked up next: the index and then the items are fetched from memory for all of
 * them at once, which else each waits for alone. Changes nothing and counts nothing. They need not be there. (Group
 * prefetching: Chen, Ailamaki, Gibbons, Mowry, "Improving Hash Join Performance through Prefetching", ICDE 2004.) */
void store_look_ahead(struct store *store, const struct store_key key[], unsigned count);

struct store_meta {
	uint64_t len, version;
	uint64_t expires; /* TIME_NEVER: never */
	uint32_t flags;   /* the client's */
	uint8_t type;     /* an enum store_type */
	bool stale;       /* see STORE_STALE */
	uint8_t heat;     /* hits, up to 3; eviction takes them away again */
};

/* Read: copies the value to buf when it fits. Returns 1 and what is to be told of the item, 0: no such key. out->len is
 * the value's length, also when that is more than size: then nothing was copied, and no hit is counted. */
int store_read(struct store *store, const void *key, size_t key_len, uint64_t now, void *buf, size_t size,
	       struct store_meta *out);

/* Seeded hash of a key. Clients cannot construct collisions. */
uint64_t store_hash(const struct store *store, const void *key, size_t key_len);

/* Write in two steps. reserve: memory for key and value that no reader sees; fill ref->addr, then
 * publish or abandon. -EINVAL: not a key's length. -EFBIG: over value_max or longer than the arena;
 * nothing was evicted. -ENOMEM: arena full, and eviction is off or what it may evict does not do:
 * pinned and reserved memory stays where it is. -EAGAIN: call again, see "Steps" above. */
int store_reserve(struct store *store, const void *key, size_t key_len, uint64_t value_len, uint64_t now,
		  struct store_ref *out);

/*
 * The same for a long value whose bytes may never come. If nothing has to be evicted for it, there is room for all of
 * it. Else there is for `part` bytes at least, 64 KiB or more, and *ready says for how many. What lies where the rest
 * is to be stays there until that is asked for: by store_reserve_more(), which makes room for the first `bytes` of it.
 * It returns 0; -EAGAIN: call again, see "Steps" above; -EBUSY: something that is pinned is in the way, call again
 * later. *ready may rise in each case. Publish when all is ready; abandon at any time. `put`: as of
 * store_reserve_for(), or NULL.
 */
#define STORE_PART_MIN (64 * KIB)
int store_reserve_part(struct store *store, const void *key, size_t key_len, uint64_t value_len,
		       const struct store_put *put, uint64_t part, uint64_t now, struct store_ref *out,
		       uint64_t *ready);
int store_reserve_more(struct store *store, struct store_ref *ref, uint64_t bytes, uint64_t *ready);

enum store_condition {
	STORE_ALWAYS,
	STORE_IF_ABSENT,
	STORE_IF_PRESENT,
	STORE_IF_VERSION, /* the key's present version is `version` */
	STORE_IF_OLDER,   /* it has none, or a lower one: `version` is given to what is written. For loading. */
};

struct store_put {
	enum store_condition condition;
	uint64_t version;
	uint64_t expires; /* absolute, on time_now()'s scale; TIME_NEVER: does not */
	bool keep_expiry; /* that of the value that is replaced; `expires` where there is none */
	/* An item's attributes, with zeros those of a plain one. They stay with it until it is written again, and come
	 * back with whatever reads it. One that has any takes 8 bytes more. */
	bool keep_attributes; /* those of the value that is replaced; these where there is none */
	uint8_t type;         /* an enum store_type, and STORE_STALE */
	uint32_t flags;       /* the client's, of no meaning here */
	uint16_t owner;       /* below STORE_OWNERS: for which it counts from now on, see store_set_limit(); 0: none */
	uint64_t note;        /* the caller's, see struct store_event */
};

/* store_reserve() for an item that is to have attributes or an owner, or perhaps, as it keeps those of another: with
 * the put that it is published with, or one that has the same. */
int store_reserve_for(struct store *store, const void *key, size_t key_len, uint64_t value_len,
		      const struct store_put *put, uint64_t now, struct store_ref *out);

/* Publish a reservation under its key; consumed in every case. One that store_reserve() made takes no attributes: its
 * put has zeros there. Returns 0 and the new version in
 * *version (may be NULL), -EEXIST (if absent), -ENOENT (if present, or version of a missing key),
 * -ESTALE (another version), -ENOMEM (no memory for the index). put NULL: always, never expires. */
int store_publish(struct store *store, struct store_ref *ref, const struct store_put *put, uint64_t now,
		  uint64_t *version);
/* Give a reservation up; ref->item NULL: nothing is done. */
void store_abandon(struct store *store, struct store_ref *ref);

/* reserve + copy + publish in one call, and their errors, -EAGAIN among them: the hot path of eager SET. */
int store_set(struct store *store, const void *key, size_t key_len, const void *value, size_t value_len,
	      const struct store_put *put, uint64_t now, uint64_t *version);

/* Add `delta` to a decimal integer value, as one step; its expiry and its flags stay. A missing one is 0, and expires
 * at with->expires; the sum counts for with->owner. -EINVAL: not digits with an optional minus, or not in 64 bits;
 * -EMEDIUMTYPE: not a STORE_STRING; -ERANGE: would overflow; -ENOMEM; -EAGAIN: call again. value and version may be
 * NULL. */
int store_count(struct store *store, const void *key, size_t key_len, int64_t delta, const struct store_put *with,
		uint64_t now, int64_t *value, uint64_t *version);

/*
 * Owners: some bytes of the store count for an owner, and have a limit. An item counts, with key, value and 56 bytes,
 * for the owner that wrote it last, from its reservation on until it is deleted, expires, is evicted or written over. A
 * write beyond the limit evicts what else the owner has, where eviction is on; these are steps, see above. -EDQUOT:
 * eviction is off, or what the owner has is pinned or not published yet, or the item is longer than the limit. What a
 * write takes the place of makes room for it. Owners are numbers of the caller's; nothing of them is in a change.
 */
#define STORE_OWNERS 1024
void store_set_limit(struct store *store, uint16_t owner, uint64_t limit); /* UINT64_MAX: none, as in the beginning */
uint64_t store_owner_bytes(const struct store *store, uint16_t owner);

/* 1 deleted, 0 no such key. `if_version` 0: whatever version; else -ESTALE for another one. -EAGAIN: no room for
 * changes. */
int store_delete(struct store *store, const void *key, size_t key_len, uint64_t if_version, uint64_t now);

/* 1 and *out, 0 no such key; counts neither hit nor miss. */
int store_stat(struct store *store, const void *key, size_t key_len, uint64_t now, struct store_meta *out);

/* Change the expiry, not the version: 1, or 0 no such key. `if_version` as for store_delete. -EAGAIN: no room for
 * changes. */
int store_expire(struct store *store, const void *key, size_t key_len, uint64_t if_version, uint64_t expires,
		 uint64_t now);

/*
 * Several keys in one step, a commit. What it is decided by was read before, one call at a time, with each key's
 * version; what it writes was reserved. Then either all of it happens, or nothing: the parts of the table that the keys
 * are in are locked together, the checks are made, and the steps are carried out in their order. So the caller reads,
 * computes, commits, and begins anew where that answers -ESTALE. (Kung, Robinson, "On Optimistic Methods for
 * Concurrency Control", ACM TODS 1981.)
 *
 * All other calls, of any user of the store, see of each key what was before the commit or what is after it. One that
 * reads two keys by two calls may see one key before and the other after; checks of both in a commit, which needs no
 * steps, tell that they were so at one time.
 *
 * A commit takes no memory of its own, and makes no room: reservations have theirs. It holds up other calls for these
 * parts of the table for half a microsecond a check or step, about; one of 65536 steps all of them for some 40 ms.
 */
#define STORE_COMMIT_MAX 65536 /* steps of one */

/* What a key has to be when it is committed: as it was read. */
struct store_check {
	const void *key;
	size_t key_len;
	uint64_t version; /* 0: it is not there, or has expired */
	uint64_t expires; /* if it is there: when it expires, which a version does not tell; 0: at any time */
	uint32_t tag;     /* the store's own */
};

enum store_step_kind {
	STORE_STEP_PUT,    /* publish a reservation */
	STORE_STEP_DELETE, /* of what is not there: nothing happens */
	STORE_STEP_EXPIRE, /* the same; changes the expiry, not the version */
};

struct store_step {
	enum store_step_kind kind;
	bool keep_expiry;     /* of PUT: that of the value that is replaced; `expires` where there is none */
	bool found;           /* out: the key was there when the step's turn came */
	uint32_t tag;         /* the store's own */
	const void *key;      /* of DELETE and EXPIRE; a PUT has that of its reservation */
	size_t key_len;       /* the same */
	struct store_ref ref; /* of PUT: a reservation, whole and filled, with the attributes that it was made with; of
			       * others undefined afterwards */
	uint64_t expires;     /* of PUT and EXPIRE */
	uint64_t note;        /* see struct store_event */
	uint64_t version;     /* out: of PUT, the new one; of EXPIRE, that of the item; else 0 */
};

/*
 * 0: all checks held, and all steps were carried out in their order; of several for one key the last one wins.
 * Reservations are consumed: ref.item is NULL. *lsn (may be NULL) is the number of the last change, which answers may
 * have to wait for; 0: no changes were asked for, or nothing was changed.
 *
 * Else nothing was changed, and reservations stay the caller's, to be committed again or abandoned. -ESTALE: a check
 * did not hold. -EAGAIN: no room for changes, see below, call again. -ENOMEM: no memory for the index. -E2BIG: too many
 * steps, also where the ring of changes has no places for so many. As each reservation has a place in that ring, a
 * caller that waits for room with some in hand holds up others: it gives them up when it has waited for long.
 */
int store_commit(struct store *store, struct store_check checks[], unsigned nchecks, struct store_step steps[],
		 unsigned nsteps, uint64_t now, uint64_t *lsn);

/* A key that is there, about each with the same probability: its length, and the key in `key`, which has STORE_KEY_MAX
 * bytes; 0: there is none. `random` is drawn by the caller anew for each call. Where most of
 * what there was has gone it takes longer, and draws less evenly. */
size_t store_random(struct store *store, uint64_t random, uint64_t now, void *key);

/* Walk the keys. *cursor 0 begins; 0 again: the end; any other value is harmless. Looks at about `budget` keys and
 * calls back for those with the prefix, under a stripe's lock (no store call from inside). false from fn: that key is
 * not taken, the call ends, and it comes first the next time; the first key of a call has to be taken. Each key that is
 * there for the whole walk comes at least once, however the table grows, unless more keys share 32 bits of their hash
 * than a call takes. */
typedef bool (*store_scan_fn)(void *arg, const void *key, size_t key_len, const struct store_meta *meta);
void store_scan(struct store *store, uint64_t *cursor, unsigned budget, const void *prefix, size_t prefix_len,
		uint64_t now, store_scan_fn fn, void *arg);

/* The same for copies: at most `most` items, pinned, so that their values can be read without a lock; each ref is given
 * back by store_unpin. Returns how many; *cursor 0 again: the end. With `now` 0 also what has expired, as is needed
 * beside changes: a thread whose clock is a little earlier may still prolong it. */
struct store_walked {
	struct store_ref ref;
	const void *key;
	size_t key_len;
	uint64_t expires;
};
unsigned store_walk(struct store *store, uint64_t *cursor, uint64_t now, struct store_walked *out, unsigned most);
/* The LSN of the last change that a walk sees for sure which begins now. */
uint64_t store_walk_begin(struct store *store);

/* Delete all: what is written meanwhile may stay. One call is a step of some 1000 keys: *cursor 0 begins, 0 again:
 * done; any other value is harmless. 0 and how many were deleted in *deleted; it needs no memory. -EAGAIN: no room for
 * changes, call again. */
int store_flush_some(struct store *store, uint64_t *cursor, uint64_t *deleted);
/* Delete the keys that `goes` says it of, under a stripe's lock (no store call from inside), each with its event; where
 * changes are not kept. What is written meanwhile may stay. A step and a cursor as of store_flush_some(); returns how
 * many were deleted. */
typedef bool (*store_goes_fn)(void *arg, const void *key, size_t key_len);
unsigned store_sweep_some(struct store *store, uint64_t *cursor, store_goes_fn goes, void *arg);
/* With changes: a delete-all that was not carried on for a second is carried on here, a step a call, as it is in the
 * changes, and a copy that applies these has deleted all. True: there is more to do. One thread. */
bool store_flush_rest(struct store *store, uint64_t now);

/* No step of a delete-all is made until as many calls have ended that: store_flush_some() says -EAGAIN. One that has
 * begun in another thread may still end; it is counted by then. */
void store_hold_flushes(struct store *store, bool held);
bool store_flushes_held(const struct store *store);
/* How many steps of a delete-all there were. */
uint64_t store_flushes(const struct store *store);

/* Where changes are not kept: the highest version that was given; and none is given from here on that is not above
 * this one. */
uint64_t store_highest(struct store *store);
void store_raise(struct store *store, uint64_t version);

/* Free what has expired, some 1000 items per call, by a timer wheel that is about 1 ms late. Returns when to call
 * again: at the latest a second from now, and not after `now` when there is more to do at once. What is written after a
 * call and expires before the next is not found any more, but counts and holds memory until then, up to that second; a
 * write that needs the memory does not wait for the tick. */
uint64_t store_tick(struct store *store, uint64_t now);

/* Gives memory back to the system, where the configuration says so: each stretch of 2 MiB that was free for ten
 * seconds, at most 16 MiB a call and 160 MiB a second. Returns when to call again. One thread. */
uint64_t store_give_back(struct store *store, uint64_t now);

void store_get_stats(struct store *store, struct store_stats *out);
/* A write for which there was no memory is not refused, but comes again: it was counted too early. */
void store_refuse_later(struct store *store);

/*
 * Changes, to be kept elsewhere: a log on disk, a copy on another machine. From store_changes_begin() on,
 * each change takes the next log sequence number (LSN), which is also the version of what it writes, and enters the
 * ring. One thread takes them, in their order. A short key and value are copied into the ring, of longer ones a change
 * holds the item. Where the ring is full, or changes hold a sixteenth of the arena, writes answer -EAGAIN until some
 * were released; a reservation has its place in the ring from the beginning.
 *
 * The changes of a commit have numbers in a row, and each of them but the last says that it goes on. What keeps
 * changes takes all of them or none: what ends with one that says so is cut in front of the first.
 *
 * An expired item leaves without a change, as its time stands in the one that wrote it. An evicted one is a change,
 * since else a deletion that finds it gone would be told nowhere, and an older value come back.
 */
enum store_change_type { STORE_CHANGE_SET = 1, STORE_CHANGE_DELETE, STORE_CHANGE_EXPIRE, STORE_CHANGE_FLUSH };
#define STORE_CHANGE_EVICTED 1 /* flag of a DELETE: no client asked for it */
#define STORE_CHANGE_MORE 2    /* flag: the next change belongs to the same commit */

struct store_change {
	uint64_t lsn;
	uint64_t version; /* of EXPIRE: what it applies to; of SET: the LSN */
	uint64_t expires; /* of SET and EXPIRE, on time_now()'s scale */
	enum store_change_type type;
	uint8_t flags;
	const void *key; /* NULL: FLUSH, which deletes all with a lower version */
	size_t key_len;
	const void *value; /* of SET */
	uint64_t value_len;
	uint32_t item_flags;     /* of SET: the client's */
	uint8_t item_type;       /* of SET: an enum store_type, and STORE_STALE */
	struct store_item *item; /* NULL: key and value are copies in the ring */
};

/* Begin, with the LSN after `last`. Before, versions are given as without changes, and nothing enters the ring. */
void store_changes_begin(struct store *store, uint64_t last);

/* The next changes in the order of their LSNs, without a gap; how many there are by now, at most `most`. */
unsigned store_changes_take(struct store *store, struct store_change *out, unsigned most);
/* Done with some: their items and places in the ring are given back. In any order. */
void store_changes_release(struct store *store, struct store_change *change, unsigned n);

/*
 * Events: which keys were changed, by whatever client, or have expired or were evicted, for watchers that keep copies
 * of values elsewhere. An event comes when the change is to be seen: what is read behind it is no older. Where several
 * threads change different keys, their events come in any order. No thread waits for a watcher: one that is more than a
 * lap of the ring behind (some 65,000 keys of at most 104 bytes) is told that it missed some. Without a watcher it
 * costs a look at a flag.
 */
enum store_event_type {
	STORE_EVENT_MISSED, /* of any key, and in any number */
	STORE_EVENT_SET,    /* written */
	STORE_EVENT_DELETED,
	STORE_EVENT_EXPIRY, /* it expires at another time, or no more */
	STORE_EVENT_EXPIRED,
	STORE_EVENT_EVICTED,
	STORE_EVENT_FLUSHED, /* all keys that were there before */
};

struct store_event {
	enum store_event_type type;
	bool fresh;      /* of SET: there was no such key */
	bool timed;      /* of SET and EXPIRY: it has got a time at which it expires */
	uint64_t number; /* rises, with gaps */
	uint64_t note;   /* of the put or step that it comes of; 0 of others */
	uint64_t missed; /* of MISSED: so many events, at most; 0: keys came, and no change is missing */
	size_t key_len;  /* 0 of MISSED and FLUSHED */
	unsigned char key[STORE_KEY_MAX];
};

/* One thread's, in its memory. */
struct store_watcher {
	struct list node;
	uint64_t next, lost;
	int fd;
	_Atomic bool asleep;
};

/* Events from here on. `fd` is an eventfd, to which 1 is written when there are events for a watcher that sleeps; it
 * stays the caller's. 0 or -ENOMEM. */
int store_watch_begin(struct store *store, struct store_watcher *watcher, int fd);
void store_watch_end(struct store *store, struct store_watcher *watcher);
/* The next event; false: there is none now. */
bool store_watch_next(struct store *store, struct store_watcher *watcher, struct store_event *out);
/* Every watcher is told that it missed one of any key: its copies are to be taken for old, though no key changed. */
void store_watch_all_missed(struct store *store);
/* Keys are shown now that had come without an event. */
void store_tell_came(struct store *store);
/* The number that the next event gets: those below it are of changes that a read from here on sees. */
uint64_t store_event_head(const struct store *store);
/* Before the thread sleeps, and behind it. False: do not sleep, there is something. */
bool store_watch_sleep(struct store *store, struct store_watcher *watcher);
void store_watch_rise(struct store *store, struct store_watcher *watcher);

/*
 * Loading what was kept, before store_changes_begin(): by store_set() and store_publish() under STORE_IF_OLDER, with
 * the LSN as version, and by these. A key's changes come in their order, those of different keys in any, and any of
 * them twice; copies that store_walk made meanwhile come before those changes that were made from its beginning on. For
 * all of these calls `now` is 0: what has expired may have been prolonged by a change that comes later.
 */
void store_load_delete(struct store *store, const void *key, size_t key_len, uint64_t lsn);
void store_load_expire(struct store *store, const void *key, size_t key_len, uint64_t version, uint64_t expires);
void store_load_flush(struct store *store, uint64_t lsn);

/*
 * Meanwhile a thread takes the pages that are about to be used, as the kernel clears each at its first use, which may
 * take longer than to load what it is for. It is ahead by as much as is used, and 32 MiB at most, at each end of the
 * arena. Where the kernel cannot do that, or the machine or a control group has less memory than the arena, all goes on
 * without it; NULL: there is no thread, and store_load_ahead_end() takes that, too.
 */
struct store_ahead *store_load_ahead(struct store *store);
void store_load_ahead_end(struct store_ahead *ahead);

/* The end of it, where no changes are to begin: versions rise from above `last`, the highest that was loaded. */
void store_load_end(struct store *store, uint64_t last);

/* Writes that answer -EAGAIN do so until changes are released. */
bool store_changes_full(const struct store *store);
/* Memory of what was written over or evicted comes free when changes are released. */
bool store_changes_hold(const struct store *store);

/* The last LSN that was drawn. */
uint64_t store_lsn(const struct store *store);

/* What a miss tells of, or a time to live: the LSN of the last change that took away a key of this one's part of the
 * table, or set a time to live there, or wrote what has expired there since; 0: none. Asked for after the miss. */
uint64_t store_removed(struct store *store, const void *key, size_t key_len);

#endif
