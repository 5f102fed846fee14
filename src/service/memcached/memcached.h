/*
 * memcached.h: what the files of the service for memcached's clients share. memcached/memcached.h has the protocol's
 * bytes, stream/stream.h the connections, service/text/text.h what other such services need, too.
 *
 *   service.c  the service's row: settings, counters, what the process and a thread have
 *   client.c   a connection: bytes to commands, values that come with them, rights, answers on their way
 *   login.c    ASCII authentication
 *   read.c     commands that read, meta or not
 *   write.c    commands that write
 *   won.c      which values some client was told to make anew
 *   flush.c    flush_all, at once or later
 *   stats.c    stats
 *
 * A command is of one key, but for get and its relatives, of which each key is read by itself. So it reads, computes,
 * and writes on condition that what it read is still there; else it begins anew.
 */
#ifndef RDMAD_SERVICE_MEMCACHED_H
#define RDMAD_SERVICE_MEMCACHED_H

#include "memcached/memcached.h"
#include "service/internal.h"
#include "service/text/text.h"

#include <pthread.h>

#define MEMCACHED_VERSION "1.6.18" /* whose clients this is made for */
#define MEMCACHED_RUNS 64          /* of a command that others disturb, until it waits for its next turn */

/* Counters, by the names that memcached has for them. */
/* clang-format off */
#define MEMCACHED_COUNTERS(ROW) \
	ROW(CMD_GET, "cmd_get") ROW(CMD_SET, "cmd_set") ROW(CMD_FLUSH, "cmd_flush") ROW(CMD_TOUCH, "cmd_touch") \
	ROW(CMD_META, "cmd_meta") ROW(GET_HITS, "get_hits") ROW(GET_MISSES, "get_misses") \
	ROW(DELETE_MISSES, "delete_misses") ROW(DELETE_HITS, "delete_hits") ROW(INCR_MISSES, "incr_misses") \
	ROW(INCR_HITS, "incr_hits") ROW(DECR_MISSES, "decr_misses") ROW(DECR_HITS, "decr_hits") \
	ROW(CAS_MISSES, "cas_misses") ROW(CAS_HITS, "cas_hits") ROW(CAS_BADVAL, "cas_badval") \
	ROW(TOUCH_HITS, "touch_hits") ROW(TOUCH_MISSES, "touch_misses") ROW(STORE_TOO_LARGE, "store_too_large") \
	ROW(STORE_NO_MEMORY, "store_no_memory") ROW(AUTH_CMDS, "auth_cmds") ROW(AUTH_ERRORS, "auth_errors") \
	ROW(BYTES_READ, "bytes_read") ROW(BYTES_WRITTEN, "bytes_written")
/* clang-format on */

enum memcached_counter {
#define MEMCACHED_COUNTER(ID, name) MEMCACHED_##ID,
	MEMCACHED_COUNTERS(MEMCACHED_COUNTER)
#undef MEMCACHED_COUNTER
		MEMCACHED_COUNTS
};

#define MEMCACHED_WON (64 * 1024u) /* values that some client is known to make anew */

struct memcached_won {
	_Atomic uint64_t *mark; /* of a key's version; 0: free */
	_Atomic bool any;
	pthread_mutex_t lock; /* of writing */
};

/* What the workers share. */
struct memcached_shared {
	const struct text_settings *settings;
	struct kv_shared *kv;
	struct store *store;
	uint64_t started;     /* time_now() */
	uint64_t connections; /* that the daemon takes */
	_Atomic uint64_t clients, accepted;
	struct memcached_won won;
	_Atomic uint64_t flush_at; /* TIME_NEVER: there is none to come */
	uint64_t flush_cursor;     /* tick()'s */
	bool flushing;             /* the same */
	pthread_mutex_t lock;      /* of what follows */
	struct list threads;       /* memcached_thread.node */
	uint64_t base[MEMCACHED_COUNTS +
		      1]; /* what counters were at the last "stats reset"; the last is of connections */
};

struct memcached_thread {
	struct service_part part;
	struct memcached_shared *shared;
	struct store *store;
	struct kv_thread *kv;  /* of the same worker: its gate */
	struct memc_out out;   /* answers of the stream that is visited */
	struct text_pins pins; /* and values that they have */
	struct list node;      /* in shared->threads */
	char scratch[STORE_COPY_MAX];
};

struct memcached_client {
	struct memcached_thread *thread;
	struct stream *stream;
	struct memc_out *out;
	struct memc_parser parser;
	struct {
		char *at; /* the line of a command whose long value comes, or came */
		size_t len;
	} line;
	struct text_value large;
	bool pending;          /* that command is whole, and comes again */
	struct text_gate gate; /* for the log, while answers are held */
	uint64_t begun;        /* of the command that comes again, for the log of slow ones; 0: none */
	uint64_t since;        /* when it came first, or a long value began to come; 0: neither */
	bool held;             /* it waits for slots, or the engine: it comes again in a while */
	uint64_t tells;        /* the last change that the answers of this visit tell of */
	bool authenticated;    /* or it need not be */
	bool spoke;            /* its first byte has come */
	uint16_t owner;        /* the store's, see kv_owner_of() */
	bool closing;          /* behind what was answered */
	uint32_t login;        /* bytes of a password that are to come, with the line's end; 0: none are */
	uint64_t flush_cursor; /* of flush_all */
	int fd;
};

/* Only its own thread counts; others read. */
static inline void memcached_add(struct memcached_client *c, enum memcached_counter counter, uint64_t n)
{
	uint64_t *count = &c->thread->part.count[counter];

	__atomic_store_n(count, *count + n, __ATOMIC_RELAXED);
}

static inline void memcached_count(struct memcached_client *c, enum memcached_counter counter)
{
	memcached_add(c, counter, 1);
}

static inline uint64_t memcached_now(const struct memcached_client *c)
{
	return stream_now(c->stream); /* time_now() scale, of this turn */
}

/* An answer in one line, unless the client wants none. Returns 0, as commands do that are answered. */
int memcached_say(struct memcached_client *c, const struct memc_command *command, const char *text);
/* The same of what went wrong, which clients of meta commands hear in every case. */
int memcached_fault(struct memcached_client *c, const struct memc_command *command, const char *text);
/* What memcached's time means on the store's scale; at the least now: it has expired. */
uint64_t memcached_expires(const struct memcached_client *c, int32_t exptime);
/* When an item expires that a meta command makes: of T and N the one that comes last says so. */
uint64_t memcached_expires_made(const struct memcached_client *c, const struct memc_command *command);
/* Whole seconds until then, as memcached tells them; -1: it does not expire. */
int64_t memcached_ttl(const struct memcached_client *c, uint64_t expires);
/* The answer tells of this version of the key; 0: that it is not there. */
void memcached_tell(struct memcached_client *c, const struct memc_word *key, uint64_t version);
/* The answer tells of what is there now, whatever that is. */
void memcached_tell_all(struct memcached_client *c);
/* Values of other types are not there for memcached's clients. */
static inline bool memcached_is_value(uint8_t type)
{
	return type == STORE_STRING;
}

/* The value that comes with a command: bytes, or a place in the arena that it has already. */
struct memcached_data {
	const char *at;
	size_t len;
	struct store_ref *ref; /* NULL: it has none yet */
};

/*
 * Commands: 0: it was answered. -EAGAIN: the same comes again, and what was answered is taken back. Others: as of the
 * store, answered by the caller.
 */
int memcached_get(struct memcached_client *c, struct memc_command *command);
int memcached_meta_get(struct memcached_client *c, const struct memc_command *command);
int memcached_meta_debug(struct memcached_client *c, const struct memc_command *command);
int memcached_store(struct memcached_client *c, const struct memc_command *command, const struct memcached_data *data);
int memcached_append(struct memcached_client *c, const struct memc_command *command, const struct memcached_data *data);
int memcached_count_by(struct memcached_client *c, const struct memc_command *command);
int memcached_meta_count(struct memcached_client *c, const struct memc_command *command);
int memcached_delete(struct memcached_client *c, const struct memc_command *command);
int memcached_meta_delete(struct memcached_client *c, const struct memc_command *command);
int memcached_touch(struct memcached_client *c, const struct memc_command *command);
int memcached_flush(struct memcached_client *c, const struct memc_command *command);
int memcached_stats(struct memcached_client *c, struct memc_command *command);

/* The put of a value that comes with this command. */
struct store_put memcached_put(const struct memcached_client *c, const struct memc_command *command);
/* A value could not be stored: what was there before is not to be taken for it. */
int memcached_not_stored(struct memcached_client *c, const struct memc_command *command, int error);

/*
 * won.c: which values a client was told to make anew. Where more are under way than there is room for, a second client
 * may be told so, too.
 */
int memcached_won_open(struct memcached_won *won);
void memcached_won_close(struct memcached_won *won);
bool memcached_won_sent(const struct memcached_won *won, uint64_t hash, uint64_t version);
/* False: another client was told before. */
bool memcached_won_take(struct memcached_won *won, uint64_t hash, uint64_t version);

/*
 * flush.c: the service's clock carries out what is to come.
 */
uint64_t memcached_tick(void *shared, uint64_t now);

/*
 * login.c: what may be said before a client has given its password. How many bytes were used; -EPROTO.
 */
ssize_t memcached_login(struct memcached_client *c, const char *at, size_t len);

/*
 * client.c
 */
extern const struct stream_ops memcached_stream_ops;
struct memcached_client *memcached_client_new(struct memcached_thread *thread, int fd);
void memcached_client_free(struct memcached_client *c);
void memcached_client_begin(struct memcached_client *c, struct stream *stream);
void memcached_client_revised(struct memcached_client *c);

#endif
