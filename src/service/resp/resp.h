/*
 * resp.h: what the files of the service for Redis's clients share. resp/resp.h has the protocol's bytes and the table
 * of commands, stream/stream.h the connections.
 *
 *   service.c     the service's row: settings, counters, what the process and a thread have
 *   client.c      a connection: bytes to commands, rights, replies on their way
 *   view.c        what a command sees of the store and changes in it, as one step
 *   multi.c       MULTI, EXEC, DISCARD, WATCH
 *   strings.c     commands on strings
 *   hash.c        commands on hashes
 *   keys.c        commands on keys of any type, and on all keys
 *   connection.c  HELLO, AUTH, and others about the connection
 *   clients.c     what is seen of a client: CLIENT LIST, KILL and others
 *   acl.c         ACL: which client it is, and what it may do
 *   mailbox.c     what one worker's thread says to another
 *   server.c      COMMAND and others about the server
 *   config.c      CONFIG
 *   info.c        INFO
 *   pubsub.c      SUBSCRIBE, PUBLISH
 *   script/       EVAL, SCRIPT
 */
#ifndef RDMAD_SERVICE_RESP_H
#define RDMAD_SERVICE_RESP_H

#include "resp/resp.h"
#include "service/internal.h"
#include "service/kv/kv.h"
#include "service/text/text.h"
#include "stream/stream.h"

#include <pthread.h>

struct resp_client;
struct resp_thread;
struct resp_script;
struct resp_scripts;
struct resp_pubsub;
struct resp_published;

/* By the rows of resp_settings. */
struct resp_settings {
	struct text_settings text; /* the first */
	char *notify;              /* classes of events that are published; NULL: none */
	bool scripts;
	uint64_t script_time;   /* ns that one may take */
	uint64_t script_memory; /* bytes of all in one worker */
};

/* Counters that CONFIG RESETSTAT sets to 0. */
enum resp_base {
	RESP_BASE_CONNECTIONS,
	RESP_BASE_REFUSED,
	RESP_BASE_COMMANDS,
	RESP_BASE_IN,
	RESP_BASE_OUT,
	RESP_BASE_READS,
	RESP_BASE_WRITES,
	RESP_BASE_HITS,
	RESP_BASE_MISSES,
	RESP_BASE_EXPIRED,
	RESP_BASE_EVICTED,
	RESP_BASES
};

/* Errors by the word they begin with, as in "ERR". The table only grows; what is beyond it is an ERR. */
#define RESP_ERROR_CLASSES 64u
#define RESP_ERROR_NAME 32u /* of Redis: longer words are an ERR, too */
struct resp_errors {
	pthread_mutex_t lock;  /* of growing */
	_Atomic unsigned used; /* the first is ERR */
	struct {
		char name[RESP_ERROR_NAME];
		_Atomic uint64_t count;
	} of[RESP_ERROR_CLASSES];
};

/* What INFO tells of one command. */
struct resp_calls {
	uint64_t calls, failed, rejected;
	uint64_t ns; /* that they took */
};

struct resp_sample {
	uint64_t at, commands, bytes_in, bytes_out;
};

/* What the workers share. */
struct resp_shared {
	const struct resp_settings *settings;
	struct kv_shared *kv;
	struct store *store;
	char run_id[41];
	uint64_t started; /* time_now() */
	_Atomic uint64_t last_id;
	uint64_t connections;         /* that the daemon takes */
	pthread_mutex_t lock;         /* of what follows */
	struct list clients;          /* all, in the order in which they came */
	struct list threads;          /* resp_thread.node */
	struct resp_sample sample[2]; /* for the figures of a second: the last one, and the one before */
	uint64_t peak;                /* most memory that was seen in use */
	uint64_t base[RESP_BASES];    /* what counters were at the last CONFIG RESETSTAT */
	struct resp_calls base_calls[RESP_IDS];
	struct resp_errors errors;                    /* has a lock of its own */
	struct resp_scripts *scripts;                 /* that are known; NULL: off */
	struct resp_pubsub *pubsub;                   /* has a lock of its own */
	_Atomic unsigned notify;                      /* classes of events that are published, see resp_notify_read() */
	_Atomic uint64_t trackers, prefixes, tracked; /* clients that track keys, and what they have, of all threads */
};

/* What one thread has for another. fn() is called by that one's turn, with the note its own again; with NULL when the
 * thread ends before. */
struct resp_note {
	struct list node;
	size_t bytes; /* that it holds, and which are bounded; 0: it is taken always */
	void (*fn)(struct resp_thread *to, struct resp_note *note);
};

struct resp_mailbox {
	pthread_mutex_t lock;
	struct list notes;
	size_t bytes;     /* of the notes */
	_Atomic bool any; /* there are notes */
	int event;        /* by which the thread is woken */
};

/* What a thread's streams did, as it was at the end of the last visit. Read by others. */
struct resp_figures {
	_Atomic uint64_t reads, writes, bytes_in, bytes_out, buffer_bytes, waiting_bytes;
};

/* Commands of one kind, one behind the other in a visit, share two looks at the clock. */
struct resp_timed {
	uint64_t since; /* time_now() */
	unsigned id;    /* RESP_IDS: none */
	enum service_class class;
};

struct resp_thread {
	struct service_part part;
	struct resp_shared *shared;
	struct store *store;
	struct kv_thread *kv;        /* of the same worker: its gate */
	const struct kv_view *table; /* by which the command under way goes; NULL: there is no cluster */
	struct resp_out out;         /* replies of the stream that is visited */
	struct text_pins pins;       /* and values that they have */
	struct resp_view *view;
	struct resp_fields *fields;                        /* of the hash that is changed; NULL: none was yet */
	struct resp_script *script;                        /* what runs scripts; NULL: none ran yet */
	struct resp_published *published, *published_last; /* by the command under way */
	_Atomic uint64_t calls[RESP_IDS], failed[RESP_IDS], rejected[RESP_IDS]; /* read by others, for figures */
	_Atomic uint64_t ns[RESP_IDS];
	struct resp_timed timed;
	struct resp_figures figures;
	struct resp_mailbox mailbox;
	struct resp_note ended; /* resp_seen_kill() has marked clients of it */
	bool ending;            /* and that was posted; under shared->lock */
	struct resp_tracks *tracks;
	struct service_watch watch;
	unsigned listeners; /* subscriptions of its clients by which they may hear of keys */
	struct list node;   /* in shared->threads */
};

/* What other threads see of a client. */
struct resp_seen {
	/* As at the end of its last visit. */
	_Atomic(const struct resp_command *) command;
	_Atomic uint64_t active, unused, waiting;
	_Atomic int kept;                            /* commands that wait for EXEC; -1: no MULTI */
	_Atomic unsigned channels, patterns, shards; /* that it subscribed to */
	_Atomic char tracking;                       /* 't', with BCAST 'B'; 0: it does not track keys */
	_Atomic int64_t redirect;                    /* the client that hears of them; 0: itself; -1: there is none */
	/* Under shared->lock, by which its own thread changes it, and reads it without. */
	char user[AUTH_NAME_MAX + 1];
	char *name, *library, *library_version; /* NULL: none */
	bool three, no_evict, no_touch;
	_Atomic(const char *) end; /* why its thread is to close it, and nothing more is carried out; NULL: it is not */
	/* Do not change. */
	char *peer, *local;
	uint64_t opened;
	int fd;
	bool is_unix;
};

/* What a command sees: values as they are, behind what was written before it in the same step. */
struct resp_value {
	const char *at; /* stays until the command has ended */
	size_t len;
	uint64_t version; /* 0: it was written in this step */
	uint64_t expires; /* time_now() scale; TIME_NEVER: never */
	uint8_t type;     /* an enum store_type */
	uint32_t flags;   /* that a client of another protocol gave it */
	void *entry;      /* view.c's */
};

struct resp_put {
	uint64_t expires; /* TIME_NEVER: never */
	bool keep_expiry; /* that of the value that is there */
	uint8_t type;     /* an enum store_type */
	uint32_t flags;
};

struct resp_client {
	struct resp_thread *thread;
	struct stream *stream;
	struct resp_out *out; /* where replies go; of a script, elsewhere */
	struct resp_parser parser;
	struct {
		char *at; /* the bytes of a command before and behind a long value that was received */
		size_t len, room;
	} head;
	struct text_value large; /* its key is in the head */
	bool pending;            /* the command in the head is whole, and comes again */
	struct list node;        /* in shared->clients */
	uint64_t id;
	bool three;         /* RESP3 */
	bool authenticated; /* or it need not be */
	uint16_t owner;     /* the store's, see kv_owner_of() */
	bool closing;       /* behind the reply of this command */
	struct resp_seen seen;
	const struct resp_command *command; /* the one under way or the last; a subcommand where it has such */
	size_t pushed; /* where in `out` messages and what is told of subscriptions begin; SIZE_MAX: nowhere */
	enum { RESP_REPLY_ON, RESP_REPLY_OFF, RESP_REPLY_SKIP_NEXT, RESP_REPLY_SKIP } reply;
	/* Bytes of messages that may wait to leave: in front of a place in what was written, and behind it. */
	struct {
		uint64_t place;
		size_t before, since;
	} heard;
	struct list subscriptions; /* pubsub.c's */
	size_t subscribed;         /* bytes of the names that it subscribed to */
	struct resp_track *track;  /* NULL: it does not track keys */
	struct list redirects;     /* of others' messages to it, under shared->lock */
	struct resp_multi *multi;  /* NULL: neither MULTI nor WATCH were said */
	uint64_t tells;            /* the last change that the replies of this visit tell of */
	struct text_gate gate;     /* for the log, while replies are held */
	uint64_t begun;            /* of the command that comes again, for the log of slow ones; 0: none */
	uint64_t since;            /* when it came first, or a long value began to come; 0: neither */
	bool held;                 /* it waits for slots, or the engine: it comes again in a while */
	uint64_t script_spent;     /* ns of the scripts of the command under way, in all its runs */
	void *step; /* of a command that works in steps; freed by step_end(), also when the client goes */
	void (*step_end)(struct resp_client *c);
};

/* Only its own thread counts; others read. */
static inline void resp_count(_Atomic uint64_t *counter)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1, memory_order_relaxed);
}

/*
 * Carries a command out; argv[0] is its name (and argv[1] that of a subcommand), the arity fits, and the client may do
 * it to its keys. 0: it was answered, by resp_...(c->out). -EAGAIN: later; what was written to `out` and the view is
 * taken back, and the same command comes again. Others: an error as of the store, answered by the caller of this.
 */
typedef int resp_serve_fn(struct resp_client *c, const struct resp_arg *argv, unsigned argc);

/* What carries commands out, file by file: RESP_CMD_<first> by resp_do_<second>. */
/* clang-format off */
#define RESP_DO_MULTI(DO) DO(MULTI, multi) DO(EXEC, exec) DO(DISCARD, discard) DO(WATCH, watch) DO(UNWATCH, unwatch)
#define RESP_DO_STRINGS(DO) \
	DO(GET, get) DO(SET, set) DO(SETNX, setnx) DO(SETEX, setex) DO(PSETEX, psetex) DO(GETSET, getset) \
	DO(GETDEL, getdel) DO(GETEX, getex) DO(MGET, mget) DO(MSET, mset) DO(MSETNX, msetnx) DO(MSETEX, msetex) \
	DO(STRLEN, strlen) DO(APPEND, append) DO(GETRANGE, getrange) DO(SUBSTR, substr) DO(SETRANGE, setrange) \
	DO(INCR, incr) DO(DECR, decr) DO(INCRBY, incrby) DO(DECRBY, decrby) DO(INCRBYFLOAT, incrbyfloat) \
	DO(DELIFEQ, delifeq) DO(DELEX, delex) DO(DIGEST, digest)
#define RESP_DO_KEYS(DO) \
	DO(DEL, del) DO(UNLINK, unlink) DO(EXISTS, exists) DO(TOUCH, touch) DO(TYPE, type) DO(EXPIRE, expire) \
	DO(PEXPIRE, pexpire) DO(EXPIREAT, expireat) DO(PEXPIREAT, pexpireat) DO(TTL, ttl) DO(PTTL, pttl) \
	DO(EXPIRETIME, expiretime) DO(PEXPIRETIME, pexpiretime) DO(PERSIST, persist) DO(RENAME, rename) \
	DO(RENAMENX, renamenx) DO(COPY, copy) DO(OBJECT_ENCODING, object_encoding) \
	DO(OBJECT_IDLETIME, object_idletime) DO(OBJECT_FREQ, object_freq) DO(OBJECT_REFCOUNT, object_refcount) \
	DO(OBJECT_HELP, object_help) DO(MEMORY_USAGE, memory_usage) DO(MEMORY_HELP, memory_help) DO(KEYS, keys) \
	DO(SCAN, scan) DO(RANDOMKEY, randomkey) DO(DBSIZE, dbsize) DO(FLUSHDB, flushdb) DO(FLUSHALL, flushall)
#define RESP_DO_CONNECTION(DO) \
	DO(HELLO, hello) DO(AUTH, auth) DO(PING, ping) DO(ECHO, echo) DO(QUIT, quit) DO(RESET, reset) \
	DO(SELECT, select) DO(READONLY, readonly) DO(READWRITE, readwrite) DO(WAIT, wait) DO(ASKING, asking) \
	DO(CLIENT_ID, client_id) DO(CLIENT_INFO, client_info) DO(CLIENT_LIST, client_list) \
	DO(CLIENT_KILL, client_kill) DO(CLIENT_GETNAME, client_getname) DO(CLIENT_SETNAME, client_setname) \
	DO(CLIENT_SETINFO, client_setinfo) DO(CLIENT_REPLY, client_reply) DO(CLIENT_NO_EVICT, client_no_evict) \
	DO(CLIENT_NO_TOUCH, client_no_touch) DO(CLIENT_UNPAUSE, client_unpause) \
	DO(CLIENT_TRACKING, client_tracking) DO(CLIENT_TRACKINGINFO, client_trackinginfo) \
	DO(CLIENT_CACHING, client_caching) DO(CLIENT_GETREDIR, client_getredir) DO(CLIENT_HELP, client_help) \
	DO(ACL_CAT, acl_cat) DO(ACL_GETUSER, acl_getuser) DO(ACL_LIST, acl_list) DO(ACL_USERS, acl_users) \
	DO(ACL_WHOAMI, acl_whoami) DO(ACL_HELP, acl_help)
#define RESP_DO_SERVER(DO) \
	DO(COMMAND, command) DO(COMMAND_COUNT, command_count) DO(COMMAND_INFO, command_info) \
	DO(COMMAND_DOCS, command_docs) DO(COMMAND_LIST, command_list) DO(COMMAND_GETKEYS, command_getkeys) \
	DO(COMMAND_GETKEYSANDFLAGS, command_getkeysandflags) DO(COMMAND_HELP, command_help) \
	DO(INFO, info) DO(CONFIG_GET, config_get) DO(CONFIG_SET, config_set) DO(CONFIG_RESETSTAT, config_resetstat) \
	DO(CONFIG_REWRITE, config_rewrite) DO(CONFIG_HELP, config_help) DO(TIME, time) \
	DO(LATENCY_LATEST, latency_latest) DO(LATENCY_HISTOGRAM, latency_histogram) DO(LATENCY_RESET, latency_reset) \
	DO(LATENCY_HELP, latency_help) DO(SLOWLOG_GET, slowlog_get) DO(SLOWLOG_LEN, slowlog_len) \
	DO(SLOWLOG_RESET, slowlog_reset) DO(SLOWLOG_HELP, slowlog_help) DO(LASTSAVE, lastsave) DO(BGSAVE, bgsave) \
	DO(SAVE, save) DO(BGREWRITEAOF, bgrewriteaof) DO(ROLE, role) DO(MODULE_LIST, module_list) \
	DO(MEMORY_DOCTOR, memory_doctor) DO(MEMORY_STATS, memory_stats) DO(LATENCY_HISTORY, latency_history) \
	DO(LATENCY_DOCTOR, latency_doctor) \
	DO(SHUTDOWN, shutdown) DO(DEBUG, debug) DO(FUNCTION_FLUSH, function_flush) DO(CLUSTER_INFO, cluster) \
	DO(CLUSTER_KEYSLOT, cluster) DO(CLUSTER_MYID, cluster) DO(CLUSTER_NODES, cluster) DO(CLUSTER_SHARDS, cluster) \
	DO(CLUSTER_SLOTS, cluster) DO(CLUSTER_COUNTKEYSINSLOT, cluster) DO(CLUSTER_GETKEYSINSLOT, cluster) \
	DO(CLUSTER_HELP, cluster)
#define RESP_DO_PUBSUB(DO) \
	DO(SUBSCRIBE, subscribe) DO(UNSUBSCRIBE, unsubscribe) DO(PSUBSCRIBE, psubscribe) \
	DO(PUNSUBSCRIBE, punsubscribe) DO(SSUBSCRIBE, ssubscribe) DO(SUNSUBSCRIBE, sunsubscribe) \
	DO(PUBLISH, publish) DO(SPUBLISH, spublish) DO(PUBSUB_CHANNELS, pubsub_channels) \
	DO(PUBSUB_NUMSUB, pubsub_numsub) DO(PUBSUB_NUMPAT, pubsub_numpat) \
	DO(PUBSUB_SHARDCHANNELS, pubsub_shardchannels) DO(PUBSUB_SHARDNUMSUB, pubsub_shardnumsub) \
	DO(PUBSUB_HELP, pubsub_help)
#define RESP_DO_SCRIPTS(DO) \
	DO(EVAL, eval) DO(EVALSHA, evalsha) DO(EVAL_RO, eval_ro) DO(EVALSHA_RO, evalsha_ro) \
	DO(SCRIPT_LOAD, script_load) DO(SCRIPT_EXISTS, script_exists) DO(SCRIPT_FLUSH, script_flush) \
	DO(SCRIPT_KILL, script_kill) DO(SCRIPT_HELP, script_help)
#define RESP_DO_HASHES(DO) \
	DO(HSET, hset) DO(HGET, hget) DO(HMGET, hmget) DO(HMSET, hmset) DO(HGETALL, hgetall) DO(HDEL, hdel) \
	DO(HEXISTS, hexists) DO(HLEN, hlen) DO(HKEYS, hkeys) DO(HVALS, hvals) DO(HINCRBY, hincrby) \
	DO(HINCRBYFLOAT, hincrbyfloat) DO(HSETNX, hsetnx) DO(HSTRLEN, hstrlen) DO(HRANDFIELD, hrandfield) \
	DO(HSCAN, hscan)
#define RESP_DO_ALL(DO) \
	RESP_DO_MULTI(DO) RESP_DO_STRINGS(DO) RESP_DO_KEYS(DO) RESP_DO_CONNECTION(DO) RESP_DO_SERVER(DO) \
	RESP_DO_PUBSUB(DO) RESP_DO_SCRIPTS(DO) RESP_DO_HASHES(DO)
/* clang-format on */
#define RESP_DECLARE(ID, name) resp_serve_fn resp_do_##name;
RESP_DO_ALL(RESP_DECLARE)
#undef RESP_DECLARE

/* By enum resp_id; NULL: not in this build. */
extern resp_serve_fn *const resp_serve[RESP_IDS];

/* Errors that several commands have. */
int resp_syntax_error(struct resp_client *c);   /* "ERR syntax error"; returns 0, as all of these */
int resp_not_an_integer(struct resp_client *c); /* "ERR value is not an integer or out of range" */
int resp_not_a_float(struct resp_client *c);    /* "ERR value is not a valid float" */
int resp_no_sub(struct resp_client *c,
		const struct resp_arg *argv); /* "ERR unknown subcommand 'X'. Try CLIENT HELP." */
int resp_bad_arity(struct resp_client *c, const char *name);
/* Whether it is the number of a database that there is; false: it was answered. */
bool resp_database_fits(struct resp_client *c, const struct resp_arg *arg);
void resp_ok(struct resp_client *c);
int resp_help(struct resp_client *c, const char *const *lines, size_t count); /* of a command with subcommands */

uint64_t resp_now(const struct resp_client *c); /* time_now() scale, of this turn */

/*
 * view.c: the step of one command, of EXEC, of a script. Reads note the versions that they saw; writes are kept until
 * the end, where all of it is checked and applied at once (store_commit()). If others changed what was read, it is run
 * again. A key may be longer than the store takes: then it is not there, and a write is refused (-EINVAL).
 */
/* Keys that one step writes: each reservation has a place in the log's ring, which all steps share. */
#define RESP_STEP_MOST 32768u
#define RESP_EXEC_SECONDS 10u /* of work for a transaction */
int resp_view_new(struct resp_thread *thread);
void resp_view_free(struct resp_thread *thread);
void resp_fields_free(struct resp_thread *thread); /* hash.c */
/* 1: there, *out. 0: there is no such key. -errno; -EMEDIUMTYPE: it is there, and no string. */
int resp_view_get(struct resp_client *c, const struct resp_arg *key, struct resp_value *out);
/* The same of any type. */
int resp_view_get_any(struct resp_client *c, const struct resp_arg *key, struct resp_value *out);
/* The same without the bytes: at is NULL. */
int resp_view_stat(struct resp_client *c, const struct resp_arg *key, struct resp_value *out);
/* The key gets this value, at the end of the step. 0 or -errno: -EAGAIN: call again; -ENOMEM, -EFBIG. */
int resp_view_set(struct resp_client *c, const struct resp_arg *key, const void *value, size_t len,
		  const struct resp_put *put);
/* The same, whose `len` bytes the caller fills in before the command ends; NULL: *rc. */
char *resp_view_begin(struct resp_client *c, const struct resp_arg *key, size_t len, const struct resp_put *put,
		      int *rc);
/* 1 deleted, 0 there is no such key, -errno. */
int resp_view_delete(struct resp_client *c, const struct resp_arg *key);
/* 1, 0 there is no such key, -errno. An `expires` that is past deletes it. */
int resp_view_expire(struct resp_client *c, const struct resp_arg *key, uint64_t expires);
/* Reply with a value, or a part of it: a long one leaves from where it is, without a copy. */
void resp_reply_value(struct resp_client *c, const struct resp_value *value);
/* All of it happens: 0. -ESTALE: others changed what was read; -EAGAIN; -ENOMEM. */
int resp_view_commit(struct resp_client *c);
/* Nothing of it happens, if it has not. In every case the step's end. */
void resp_view_end(struct resp_client *c);
/* Memory that stays until the step's end; NULL: there is none. */
void *resp_view_keep(struct resp_client *c, size_t size);
/* Whether the step writes or deletes the key, so that it is not as in the store. */
bool resp_view_changes(const struct resp_client *c, const struct resp_arg *key);
/* The same, or has it expire at another time: watchers are told. */
bool resp_view_tells(const struct resp_client *c, const struct resp_arg *key);
/* The next key that it writes or deletes, from *at on, which begins as 0; false: there is none. */
bool resp_view_next(const struct resp_client *c, unsigned *at, struct resp_arg *key, bool *there);
/* One more condition of the commit: what the key has to be. */
int resp_view_expect(struct resp_client *c, const struct resp_arg *key, uint64_t version, uint64_t expires);

/*
 * multi.c
 */
/* resp_waits() of any command that is kept, and of keys that are watched. */
bool resp_multi_waits(const struct resp_client *c);
/* Whether a command is kept until EXEC: it was answered. */
bool resp_multi_keeps(struct resp_client *c, const struct resp_command *command, const struct resp_arg *argv,
		      unsigned argc);
void resp_multi_spoil(struct resp_client *c); /* a command that cannot be: EXEC will refuse */
void resp_multi_free(struct resp_client *c);
bool resp_multi_open(const struct resp_client *c);
unsigned resp_multi_count(const struct resp_client *c); /* commands that wait */

/*
 * pubsub.c
 */
struct resp_pubsub *resp_pubsub_new(void); /* NULL: no memory */
void resp_pubsub_free(struct resp_pubsub *pubsub);
enum resp_kind { RESP_CHANNEL, RESP_PATTERN, RESP_SHARD, RESP_KINDS };
/* How many of them have subscribers. */
unsigned resp_pubsub_count(const struct resp_shared *shared, enum resp_kind kind);
unsigned resp_subscriptions(const struct resp_client *c);
void resp_pubsub_leave(struct resp_client *c); /* ends all, and tells of none */
/* Whether the client may say it now; false: it was answered. */
bool resp_pubsub_allows(struct resp_client *c, const struct resp_command *command);
/* What the command under way has published leaves; or it does not, as the command runs again or has failed. */
void resp_publish_all(struct resp_client *c);
void resp_publish_drop(struct resp_thread *thread);
/* A message on a channel to the thread's own clients, of which those hear it that may read the key. */
void resp_publish_here(struct resp_thread *thread, const struct resp_arg *channel, const struct resp_arg *message,
		       const struct resp_arg *key);

/*
 * track.c: clients that are told of changes to keys that they keep copies of.
 */
struct resp_tracks *resp_tracks_new(void); /* a thread's; NULL: no memory */
void resp_tracks_free(struct resp_tracks *tracks);
bool resp_tracks_any(const struct resp_thread *thread); /* a client of it tracks keys */
/* The client has read the keys of a command, which began when `seen` was store_event_head(). 0 or -ENOMEM. */
int resp_track_read(struct resp_client *c, const struct resp_command *command, const struct resp_arg *argv,
		    unsigned argc, uint64_t seen);
/* A command was answered or refused, for which CLIENT CACHING was said; NULL: an unknown one. */
void resp_track_commanded(struct resp_client *c, const struct resp_command *command);
void resp_track_event(struct resp_thread *thread, const struct store_event *event);
void resp_track_turn(struct resp_thread *thread); /* behind the events of a turn, and the replies of a visit */
void resp_track_end(struct resp_client *c);       /* it tracks no more */
void resp_track_leave(struct resp_client *c);     /* nor hears of what others track */

/*
 * watch.c: events of the store, for tracking and as messages.
 */
#define RESP_NOTIFY_TEXT 16
/* Letters of Redis's notify-keyspace-events. False: there is another one. */
bool resp_notify_read(const char *at, size_t len, unsigned *out);
void resp_notify_text(unsigned flags, char out[static RESP_NOTIFY_TEXT]);
bool resp_notify_check(const char *text, char *why, size_t size); /* as struct setting's check */
/* Whether a subscriber to it may hear of keys. */
bool resp_watch_hears(const char *channel, size_t len, bool pattern);
/* The thread watches the store, or does not, as its clients need. 0 or -ENOMEM. */
int resp_watch_review(struct resp_thread *thread);
int resp_watch_turn(struct service_part *part);
bool resp_watch_arm(struct service_part *part);
void resp_watch_disarm(struct service_part *part);

/* What the events of a client's command have as note. */
static inline uint64_t resp_note(uint64_t client, enum resp_id command)
{
	return client << 16 | ((uint64_t)command + 1);
}

static inline uint64_t resp_note_client(uint64_t note)
{
	return note >> 16;
}

static inline enum resp_id resp_note_command(uint64_t note) /* RESP_IDS: none */
{
	return note & 0xffff ? (enum resp_id)((note & 0xffff) - 1) : RESP_IDS;
}

/*
 * client.c
 */
/* Carry out one command, which was checked, without a step of its own. The errno of the handler. */
int resp_carry_out(struct resp_client *c, const struct resp_command *command, const struct resp_arg *argv,
		   unsigned argc);
/* Whether it comes again, as a key of it is of a slot that is about to be another server's. */
bool resp_waits(const struct resp_client *c, const struct resp_command *command, const struct resp_arg *argv,
		unsigned argc);
/* Whether the keys are of one slot, and that is this server's, where there is a cluster; false: it was answered. */
bool resp_is_here(struct resp_client *c, const struct resp_command *command, const struct resp_arg *argv,
		  unsigned argc);
/* The same, and whether the client may. */
bool resp_may(struct resp_client *c, const struct resp_command *command, const struct resp_arg *argv, unsigned argc);
void resp_reply_errno(struct resp_client *c, int error);
/* server.c: answer which server has the keys of a slot. */
void resp_cluster_moved(struct resp_client *c, unsigned slot);
/* walk.c: whether the command is one of several that are carried out as one, and sees what earlier ones changed. */
bool resp_is_within(const struct resp_client *c);
/* walk.c: CLUSTER COUNTKEYSINSLOT and GETKEYSINSLOT, in steps. As resp_serve_fn. */
int resp_keys_in_slot(struct resp_client *c, const struct resp_arg *argv, unsigned argc);
/* A message beside the replies. A client that takes none is cut off: false. */
bool resp_client_push(struct resp_client *c, const struct stream_piece *piece);
extern const struct stream_ops resp_stream_ops;
struct resp_client *resp_client_new(struct resp_thread *thread);
void resp_client_free(struct resp_client *c);
void resp_client_begin(struct resp_client *c, struct stream *stream);
void resp_client_revised(struct resp_client *c);

/*
 * mailbox.c: what one worker's thread says to another.
 */
int resp_mailbox_init(struct resp_mailbox *mailbox); /* 0 or -errno, logged */
void resp_mailbox_clear(struct resp_mailbox *mailbox);
/* Any thread. Notes of one sender come in their order. False: too many bytes wait for the thread, which is in a long
 * script perhaps; the note is the caller's again. */
bool resp_post(struct resp_thread *to, struct resp_note *note);
/* Before a client's commands: what came before them is done before them, if another client's reply told of it. */
void resp_mailbox_look(struct resp_thread *thread);
int resp_mailbox_fd(const struct service_part *part);
void resp_mailbox_readable(struct service_part *part);

/*
 * clients.c: what is seen of a client.
 */
void resp_seen_begin(struct resp_client *c); /* before it is in shared->clients */
void resp_seen_end(struct resp_client *c);   /* when it is not any more */
/* What it did so far; and at the end of a visit: bytes that came and were not used. */
void resp_seen_commands(struct resp_client *c);
void resp_seen_visit(struct resp_client *c, size_t unused);
/* Its name among clients of the key file, or "default"; its rights may be others now. */
void resp_seen_user(struct resp_client *c);
/* Another thread's client is closed by that one, soon. Under shared->lock. `why` stays valid. */
void resp_seen_kill(struct resp_client *c, const char *why);
void resp_kill_marked(struct resp_thread *thread, struct resp_note *note);

/*
 * script/: EVAL and SCRIPT.
 */
int resp_scripts_open(struct resp_shared *shared);
void resp_scripts_close(struct resp_shared *shared);
void resp_script_free(struct resp_thread *thread);
/* How many are known, and their bytes. */
void resp_scripts_count(const struct resp_shared *shared, uint64_t *count, uint64_t *bytes);

/*
 * info.c
 */
/* Count an error reply, of which `at` is behind the '-'. Any thread. */
void resp_count_error(struct resp_shared *shared, const char *at, size_t len);
/* What the thread does from now on is a command's; RESP_IDS: of none. Until then it was the last one's. */
void resp_time(struct resp_thread *thread, unsigned id);
/* The service's clock: figures of a second. */
uint64_t resp_sample(void *shared, uint64_t now);
extern _Atomic uint64_t resp_refused; /* connections, of this process */

#endif
