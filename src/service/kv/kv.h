/*
 * kv.h: what the files of the key/value service share.
 *
 *   store.c    what the process has: the store, its arena, settings and counters
 *   kv.c          admission, the table of operations, and how a request goes through it to its answer
 *   small.c    operations on one key whose value fits a message
 *   part.c     values that are read into memory of the client, all or a part, and writes into values
 *   scan.c     operations on all keys
 *   rendezvous.c  large values
 *   again.c    gets that are asked again, in the place that they had
 *   lease.c    values that clients want to find again
 *   watch.c    changed keys, for clients that ask
 *   cluster.c  which keys are another server's, and tables that change
 *   move.c     slots that come here with their values
 *   source.c   slots that go to another server with their values
 *   owner.c    how much of the store each client may fill
 *   hold.c     how much memory those under way may hold
 *   gate.c     answers that wait until what they tell of is on disk
 *   log.c      the log: its threads and settings, and what is told of it; log.h has what these share
 *   load.c     what is found in it at the start
 *   checkpoint.c  and what keeps it short
 *   slow.c     how long requests take, for the log of slow ones
 */
#ifndef RDMAD_SERVICE_KV_H
#define RDMAD_SERVICE_KV_H

#include "cluster/cluster.h"
#include "wal/wal.h"
#include "service/internal.h"
#include "store/store.h"
#include "wire/way.h"

/* By the rows of kv_settings. */
struct kv_settings {
	uint64_t memory, value_max, push_max, transfer_memory, lease_memory, lease_time;
	uint64_t eviction;                  /* enum store_eviction */
	char *cluster_table, *cluster_node; /* NULL: it is of no cluster */
	char *cluster_state;                /* NULL: what was served is known no longer than the process lives */
	uint64_t cluster_engine;            /* enum kv_engine */
	struct setting_list cluster_endpoints;
	char *cluster_name, *cluster_user, *cluster_password_file, *cluster_key_file;
	uint64_t cluster_period, cluster_spread_after;
	uint64_t cluster_fence; /* enum kv_fence */

	/* The log's */
	char *directory; /* NULL: there is none */
	uint64_t policy; /* enum kv_policy */
	uint64_t sync_every, segment, checkpoint_budget;
	uint64_t on_error; /* enum kv_on_error */
	uint64_t recover;  /* enum kv_recover */
	bool save_at_exit;
	const struct wal_files *files; /* no setting: a test's disk. NULL: the kernel's */
};

/* When the answer of a write leaves: the changes go to the log, or not. */
enum kv_policy { KV_POLICY_NONE, KV_POLICY_INTERVAL, KV_POLICY_ALWAYS };
enum kv_on_error { KV_ERROR_STOP, KV_ERROR_READ_ONLY };
enum kv_recover { KV_RECOVER_REFUSE, KV_RECOVER_PREFIX };

/* By what the servers of a cluster agree, in place of a file; and what holds while that cannot be asked. */
enum kv_engine { KV_ENGINE_NONE, KV_ENGINE_ETCD };
enum kv_fence { KV_FENCE_STRICT, KV_FENCE_NONE };

struct kv_log;
struct kv_chunk;
struct kv_owners;
struct kv_slow;
struct kv_watch;

struct kv_agent;

/* What large values under way hold of the store's memory. The workers share it. */
struct kv_hold {
	uint64_t limit; /* bytes of all clients */
	uint64_t share; /* of one that holds more than one value */
	_Atomic uint64_t bytes;
	_Atomic uint64_t kept;                   /* beside them: see again.c */
	_Atomic uint64_t begun, ended;           /* transfers */
	_Atomic(const struct kv_agent *) beyond; /* the one that went ahead beyond the limit, until it holds nothing */
};

/* What clients may lease. The workers share it. */
struct kv_lease_limits {
	uint64_t memory; /* bytes of all clients */
	uint64_t time;   /* ns, the longest */
	_Atomic uint64_t bytes;
};

/*
 * A table, and what this server has by it. Constant once it is published. A worker loads the pointer once for each
 * request, and does not keep it beyond the turn: a table that was replaced is freed when every worker has ended the
 * turn in which it may have had it.
 */
#define KV_SLOT_BYTES (CLUSTER_SLOTS / 8)
/* For so long requests wait for a slot that goes or comes, or is not known to be here: few clients of Redis Cluster
 * know TRYAGAIN. */
#define KV_HOLD TIME_S
struct kv_view {
	struct cluster_table table;
	unsigned self;                   /* its node in the table */
	unsigned slots;                  /* of its own, in the table */
	unsigned sweeping;               /* slots, its own and others', that have keys of before they were lost */
	unsigned waiting;                /* how many of them are its own */
	bool out;                        /* it answers for none of its slots: kv_cluster_change(NULL) */
	uint8_t here[KV_SLOT_BYTES];     /* bits: what it answers for */
	uint8_t old[KV_SLOT_BYTES];      /* what is sweeping */
	uint8_t held[KV_SLOT_BYTES];     /* its own, that another server has not let go of */
	uint8_t incoming[KV_SLOT_BYTES]; /* what another one sends the values of */
	uint8_t sealed[KV_SLOT_BYTES];   /* its own, for which no request is carried out */
	uint64_t sealed_until;           /* by time_now(), such requests wait; 0: none is sealed */
	uint64_t session;                /* number of the session that has incoming slots; 0: none */
	unsigned hidden;                 /* slots that may have keys, which are not shown */
	struct kv_view *closed;          /* the same table, with nothing here; NULL where there is no engine */
	uint64_t number;                 /* of views so far */
	struct list node;                /* in kv_cluster's list of replaced views */
	uint32_t length;
	char text[CLUSTER_TEXT_MAX + 1]; /* the table, of that length */
};

/* What of a cluster this server is. The main thread's, but for `view`, and `number`, which workers read. */
struct kv_cluster {
	struct kv_view *_Atomic view;
	_Atomic uint64_t number; /* the view's */
	bool fenced;             /* there is an engine, and what is here is here until then: */
	_Atomic uint64_t until;  /* by time_boot() */
	uint64_t served;         /* the epoch that `state` had at the start */
	const char *file, *name; /* the settings': the table's path, this node's name, */
	const char *state;       /* the path of what was served last; NULL: none */
	struct store *store;
	struct list threads, replaced;
	struct kv_moves *moves;
	_Atomic uint64_t coming; /* by time_now(), requests for incoming slots wait until then: all of them are here */
	bool settled;            /* every worker goes by `view` */
	bool sweeps;             /* a sweep is under way, */
	uint64_t cursor;         /* so far, */
	uint64_t swept, began;   /* has deleted so many keys, and began then */
	void (*soon)(void *arg); /* see struct service_host; NULL: none */
	void *arg;
};

/* What the workers share. Constant but for the store, which has its own locks, the numbers of `hold` and
 * `leases`, and `watches`. */
struct kv_shared {
	struct store *store;
	struct kv_log *log; /* NULL: no directory, or nothing goes there */
	struct kv_owners *owners;
	struct kv_cluster *cluster; /* NULL: every key is its own */
	void *arena;
	size_t arena_size;
	uint64_t value_max; /* longest value */
	uint64_t push_max;  /* longest that goes with its message, where the fabric can */
	uint64_t ahead;     /* most room that is made by eviction for bytes that are not here yet, of one value */
	struct kv_hold hold;
	struct kv_lease_limits leases;
	_Atomic uint64_t watches; /* how many there are */
	/* The arena as registered in each domain; a domain without has no large values. */
	struct kv_region {
		struct fabric_domain *domain;
		struct fabric_region *region;
	} * region;
	unsigned regions;
};

/* Counters beside those of the operations, which kv.c has. */
enum kv_count {
	KV_COUNT_ERRORS,
	KV_COUNT_READS,
	KV_COUNT_WRITES,
	KV_COUNT_PULLS,
	KV_COUNT_PUSHES,
	KV_COUNT_WAITS,
	KV_COUNT_HELD,
	KV_COUNT_DENIED,
	KV_COUNT_OVER_QUOTA,
	KV_COUNT_ELSEWHERE, /* by whichever protocol */
	KV_COUNT_LEASES_REFUSED,
	KV_COUNT_LEASES_EXPIRED,
	KV_COUNT_WATCHES, /* it waits, which is not a request's time */
	KV_COUNT_EVENTS,
	KV_COUNT_EVENTS_MISSED,
	KV_COUNT_OPERATIONS,
};

struct kv_thread {
	struct service_part part;
	struct store *store;
	struct kv_transfer *free_transfers; /* kept for the next large value */
	uint64_t retry_at;                  /* the part is active until then, for requests that wait; 0: it is not */

	struct list free_agains;
	struct list keeping;    /* agents that keep values for gets that come again */
	uint64_t keeping_until; /* the first such value's end, or before it */

	struct list leasing;   /* agents that have leases */
	uint64_t leased_until; /* the first lease's end, or before it */

	struct service_watch watch;
	struct list watching; /* agents */

	struct list clustered;   /* in kv_cluster's list of threads */
	_Atomic uint64_t passed; /* the number of the view that was there between two of its turns; by the worker */

	/* The gate's. What an answer tells of that has a higher number than `committed` waits. */
	uint64_t committed;       /* UINT64_MAX: nothing does, but for a client that asks for it */
	_Atomic int refused;      /* writes are, with this error: written by the log's thread. 0: they are not */
	_Atomic bool sleeps;      /* and is to be woken */
	uint64_t wants;           /* number that an answer waits for, and the log's thread is to hear of; 0: none */
	bool waits_for_ring;      /* a write has to come again when the log has taken further changes */
	_Atomic bool ring_sleeps; /* as `sleeps`, for that */
	uint64_t ring_seen;       /* how many it had taken then */
	bool look;                /* at all that waits, whatever was seen */
	bool seen_failed;         /* kv_log_failed() */
	uint64_t seen;            /* and kv_log_durable(), when they were looked at last */
	int event;                /* by which the log's thread, and changes of keys, wake this one */
	struct list waiting;      /* agents */
	struct list waiters;      /* of other services */
	_Atomic uint64_t held;    /* answers and transfers of theirs, for figures */
	struct kv_chunk *free_chunks;
	unsigned spare_chunks;
	struct list node; /* in the log's list of threads */
};

#define KV_REFUSALS 8u /* slots; of more at a time the first ones are forgotten */
struct kv_agent {
	struct kv_thread *thread;
	const struct fabric_region *arena; /* NULL: large values are not offered here */
	uint64_t push_max;                 /* as granted */
	uint16_t owner;                    /* the store's, of its client; 0: that has no limit */
	uint16_t moved;                    /* answers with WIRE_MOVED */
	unsigned refusals;                 /* that the client may not know of, of these: */
	struct kv_refusal {
		uint16_t slot, number; /* by `moved` */
	} refusal[KV_REFUSALS];
	uint64_t session;         /* of move.c: the number of its connection's; 0: it never had one */
	struct list sets;         /* transfers that are KV_TRANSFER_READING */
	struct list finished;     /* transfers that are KV_TRANSFER_WAITING */
	unsigned beside;          /* what the next request must look at: bits of enum kv_beside */
	uint64_t held;            /* bytes of kv_hold */
	struct list again;        /* gets that may come again */
	struct list keeping;      /* in the thread's list, while a value is kept for any of them */
	unsigned agains, keeps;   /* how many of either */
	uint64_t kept;            /* bytes */
	struct kv_leases *leases; /* NULL: it has none */
	struct list leasing;      /* in the thread's list, while it has some */
	struct kv_watch *watch;   /* NULL: it watches nothing */
	struct list watching;     /* in the thread's list, while it does */
	uint64_t waits_for;       /* KV_BESIDE_WAIT: hold.ended after which it has waited long enough */
	struct kv_slow *slow;     /* slow.c: NULL until requests are timed */

	/* The gate's. */
	struct conn *conn;             /* of what waits, also for changes of keys */
	struct list waiting;           /* in the thread's list, while anything waits */
	struct kv_chunk *first, *last; /* answers, in their order */
	unsigned chunks, held_answers;
	struct list uncommitted; /* transfers that are KV_TRANSFER_UNCOMMITTED */
	unsigned reads;          /* how many */
	uint64_t since;          /* when the request that is being answered was taken up; 0: in this turn */
};

enum kv_beside {
	KV_BESIDE_SETS = 1,     /* large SETs are under way */
	KV_BESIDE_WAIT = 2,     /* the request that comes again waits for memory; see kv_hold_wait() */
	KV_BESIDE_FULL = 4,     /* and does so since the store was full */
	KV_BESIDE_AGAIN = 16,   /* gets may come again, for which values are kept before they are replaced */
	KV_BESIDE_GATE = 8,     /* so many answers wait that there is no room for another one */
	KV_BESIDE_RIGHTS = 32,  /* its client may not do everything */
	KV_BESIDE_CLUSTER = 64, /* other servers have other keys; always set, then */
};

/*
 * cluster.c
 */

/* By the settings, which stay: 0, and *out is NULL where there is no cluster; or -errno, logged. `state`: the table is
 * one that may be served after what was served last. Nothing is written. */
int kv_cluster_open(const struct kv_settings *s, struct kv_cluster **out);
void kv_cluster_close(struct kv_cluster *cluster); /* NULL is fine. The workers have ended */
/* It is going to serve: `state` is written. 0 or -errno, logged. */
int kv_cluster_begin(struct kv_cluster *cluster, struct store *store, const struct service_host *host);

/*
 * Serve by another table from now on. Main thread. 0; -EINVAL, -ESTALE, -EIO, -ENOMEM: it was refused, logged with the
 * reason, and nothing changed. -EOPNOTSUPP: this server is of no cluster.
 *
 * Refused are a table of another name, one without this node, one of a lower epoch than was served before (with
 * cluster.state: ever), and one of the same epoch with other content. The one that is served already changes nothing.
 *
 * Slots that are lost are refused from here on, by a worker at the latest when the request ends that it is carrying
 * out. They may be another server's when kv_cluster_settled(), not before: then each worker has begun a turn since, and
 * no write for them will be published, not even one that was begun before (a long value on its way is answered as
 * elsewhere when it has come). Their keys are deleted, in steps of kv_shared_tick(), each as a deletion with its event;
 * watchers, and clients that track keys, are told at once that they missed something.
 *
 * Slots that are gained begin empty. One that still has keys of before it was lost is refused until these are gone.
 *
 * `slots`: bits of its own that it serves, as others have not let go of the rest yet; NULL: all.
 *
 * NULL as table: this server is in no table, as far as is known: all its slots are lost, and stay in the table. A later
 * call with a table, also with the same one, gives it its slots there, empty.
 */
int kv_cluster_change(struct kv_shared *shared, const struct cluster_table *table, const uint8_t *slots);
/* Whether no worker goes by a former table any more; *epoch (may be NULL): that of the one that all go by then. Main
 * thread. */
bool kv_cluster_settled(const struct kv_shared *shared, uint64_t *epoch);
/* Reads cluster.table again: as service->reload. */
int kv_shared_reload(void *shared, const char **changed);
/* service->engine(), and what it is told. */
bool kv_cluster_engine(const void *settings, struct service_engine *out);
extern const struct service_cluster kv_service_cluster;
/* Its clock, as kv_shared_tick(). */
uint64_t kv_cluster_tick(struct kv_cluster *cluster, uint64_t now);
/* A worker's thread joins before it runs: main thread. It passes between two of its turns. */
void kv_cluster_join(struct kv_cluster *cluster, struct kv_thread *thread);
void kv_cluster_pass(struct kv_thread *thread);

/* The view that a request goes by. With an engine it depends on the time, which is asked behind the request's coming:
 * a process may be stopped anywhere. */
static inline const struct kv_view *kv_cluster_view(const struct kv_cluster *cluster)
{
	const struct kv_view *view = atomic_load_explicit(&cluster->view, memory_order_acquire);

	if (likely(!cluster->fenced) || time_boot() < atomic_load_explicit(&cluster->until, memory_order_acquire))
		return view;
	return view->closed;
}

/* Whether it is `closed`: what is here is not known, until the engine says more. */
static inline bool kv_view_is_closed(const struct kv_view *view)
{
	return view->out && !view->closed;
}

/* The slot that stands for all of this server's in a request about all keys, where it is not known what is here;
 * CLUSTER_SLOTS: it is known. */
unsigned kv_view_unknown(const struct kv_view *view);

/* Whether this server answers for the slot. */
static inline bool kv_view_has(const struct kv_view *view, unsigned slot)
{
	return view->here[slot / 8] >> slot % 8 & 1;
}

/* Whether another server has the key, or none, or not this one yet; and its slot. */
static inline bool kv_view_elsewhere(const struct kv_view *view, const void *key, size_t len, unsigned *slot)
{
	*slot = cluster_slot(key, len);
	return !kv_view_has(view, *slot);
}

/* Whether requests for some slot wait. */
static inline bool kv_view_holds_any(const struct kv_cluster *cluster, const struct kv_view *view)
{
	return view->sealed_until || kv_view_is_closed(view) ||
	       (view->session && atomic_load_explicit(&cluster->coming, memory_order_relaxed));
}

/* Whether the table has the slot here, and it is not served yet. */
static inline bool kv_view_waits(const struct kv_view *view, unsigned slot)
{
	return view->table.owner[slot] == view->self;
}

/* Whether requests for the slot wait, as it is about to be another server's, or this one's: else the two of them would
 * send clients to each other until both have the table. Or as the engine's word is late. */
static inline bool kv_view_holds(const struct kv_cluster *cluster, const struct kv_view *view, unsigned slot)
{
	if (likely(!kv_view_holds_any(cluster, view)))
		return false;
	if (kv_view_is_closed(view))
		return kv_view_waits(view, slot) && time_boot() < time_after(atomic_load(&cluster->until), KV_HOLD);
	return (cluster_bit(view->sealed, slot) && time_now() < view->sealed_until) ||
	       (cluster_bit(view->incoming, slot) && time_now() < atomic_load(&cluster->coming));
}

/* Whether a key that is here is not to be shown. */
static inline bool kv_view_hides(const struct kv_view *view, const void *key, size_t len)
{
	unsigned slot;

	return unlikely(view->hidden) && kv_view_elsewhere(view, key, len, &slot) && !cluster_bit(view->sealed, slot);
}

/* Whether it is of a key of another server's slot: on its way here, or deleted as it has gone there, which is no change
 * to anyone. Without an engine the latter is gone for all. */
static inline bool kv_event_hides(const struct kv_cluster *cluster, const struct store_event *event)
{
	const struct kv_view *view;
	unsigned slot;

	if (likely(!cluster) || !cluster->fenced || !event->key_len)
		return false;
	view = atomic_load_explicit(&cluster->view, memory_order_acquire);
	return kv_view_elsewhere(view, event->key, event->key_len, &slot) && !cluster_bit(view->sealed, slot);
}

/* Whether the request was sent before its client knew that another one for the slot was refused. */
bool kv_overtakes(struct kv_agent *agent, const struct wire_record *request, unsigned slot);

/* 0; -EAGAIN. What was begun is refused at once: what comes behind it for its key would else be carried out first. */
int kv_refuse_elsewhere(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, unsigned slot);
/* The same, and -EAGAIN while requests for the slot wait. */
int kv_answer_elsewhere(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, unsigned slot);
void kv_cluster_report(const struct kv_cluster *cluster, struct service_report *report);

static inline uint64_t kv_now(const struct kv_thread *thread)
{
	return service_part_now(&thread->part);
}

static inline void kv_agent_count(struct kv_agent *agent, unsigned counter)
{
	agent->thread->part.count[counter]++;
}

/*
 * Carries one request out; its body's length was checked. `reply`: an answer's record with the room that the
 * operation's row asks for, NULL where the row leaves that to the handler. 0: the request was answered, or will be.
 * -EAGAIN: no room now, it comes again. -EPROTO: the request breaks the protocol.
 */
typedef int kv_serve_fn(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
			struct wire_record *reply);

/* Operations that differ in optional parts of the body share one, which asks for request->op. */
kv_serve_fn kv_serve_get, kv_serve_set, kv_serve_put, kv_serve_delete, kv_serve_exists, kv_serve_stat, kv_serve_expire,
	kv_serve_count;                                   /* small.c */
kv_serve_fn kv_serve_scan, kv_serve_flush, kv_serve_info; /* scan.c */
kv_serve_fn kv_serve_fetch, kv_serve_edit;                /* part.c */
kv_serve_fn kv_serve_set_from;                            /* rendezvous.c */
kv_serve_fn kv_serve_lease;                               /* lease.c */
kv_serve_fn kv_serve_table;                               /* cluster.c */
kv_serve_fn kv_serve_watch;                               /* watch.c */
kv_serve_fn kv_serve_move;                                /* move.c */

/*
 * For move.c. Main thread.
 */
/* Serve by the view from here on. */
void kv_cluster_publish(struct kv_cluster *cluster, struct kv_view *view);
/* One that is to follow it; NULL: no memory, logged. Count what was changed of it before it is published. */
struct kv_view *kv_view_next(const struct kv_cluster *cluster);
void kv_view_count(struct kv_view *view);

/*
 * move.c: a session of another server. It asks for it by a worker, the main thread decides, and from then on the view
 * has the slots as incoming: what is put there by the session's connection is stored, and shown to nobody. What becomes
 * of them a later table says. Main thread, but where said.
 */
int kv_moves_open(struct kv_cluster *cluster, const struct service_host *host); /* 0 or -ENOMEM */
void kv_moves_close(struct kv_cluster *cluster);
/* service->cluster->receive() */
void kv_moves_receive(void *shared,
		      bool (*allowed)(void *arg, const struct cluster_session *session, char *why, size_t size),
		      bool (*abandoned)(void *arg, const struct cluster_session *session), void *arg);
/* While a table takes the place of another no session becomes complete. Behind that it may, or has ended. */
void kv_moves_freeze(struct kv_cluster *cluster);
void kv_moves_thaw(struct kv_cluster *cluster);
/* In `view`, which follows `before` with its incoming slots: what the table makes of them. */
void kv_moves_follow(struct kv_cluster *cluster, const struct kv_view *before, struct kv_view *view);
/* All of them are lost; they are swept in `view`. */
void kv_moves_lose(struct kv_cluster *cluster, struct kv_view *view);
/* Its clock: drops a session that is idle, or whose connection has ended. */
uint64_t kv_moves_tick(struct kv_cluster *cluster, uint64_t now);
void kv_moves_report(const struct kv_cluster *cluster, struct service_report *report);

/* Whether a session of this connection takes the slot. Its worker; also for what lasts longer than a turn. */
bool kv_move_takes(const struct kv_agent *agent, unsigned slot);
#define KV_SESSION_PAST UINT64_MAX /* it has none any more */
/* Whether the request is one of them: an item, or a deletion. Its worker. */
bool kv_move_writes(const struct kv_agent *agent, const struct wire_record *request, const char *body, unsigned slot);
/* It was carried out, so many bytes. */
void kv_move_wrote(const struct kv_agent *agent, uint64_t bytes);
void kv_move_closed(struct kv_agent *agent);

/*
 * source.c: service->cluster->moves
 */
extern const struct service_moves kv_source_moves;

/*
 * store.c: the store and its arena. Main thread, but for the regions.
 */
extern const struct setting_table kv_settings;

int kv_shared_check(const void *settings, uint64_t services);
uint64_t kv_shared_registered(const void *settings);
int kv_shared_open(const struct service_host *host, const void *settings, void **shared);
void kv_shared_close(void *shared);
uint64_t kv_shared_tick(void *shared, uint64_t now);
int kv_shared_command(void *shared, const char *word);
void kv_shared_status(const void *shared, struct service_report *report);
void kv_shared_memory(const void *shared, struct service_report *report);
void kv_shared_resources(const void *shared, struct service_report *report);

/* The arena as a connection that comes so moves values to and from it. NULL: not at all. */
const struct fabric_region *kv_shared_region(const struct kv_shared *shared, const struct service_way *way);
/* Of that domain; NULL: it is not registered there. */
const struct fabric_region *kv_shared_region_in(const struct kv_shared *shared, const struct fabric_domain *domain);

/*
 * kv.c
 */

/* The answer that was reserved is complete: the request counts as what it is, and as an error if it is one. It leaves
 * when the change `tells`, the last that it tells of, is committed: see gate.c. */
void kv_answer(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, struct wire_record *reply,
	       enum wire_status status, uint32_t length, uint64_t tells);

/* An answer without a body, and with this argument. As kv_serve_fn. */
int kv_answer_status(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
		     enum wire_status status, uint32_t arg, uint64_t tells);

/* How long a request takes, for its histogram, where not as long as this turn: its answer is late, told in the turn of
 * kv_answer(); and it leaves, of a request that was taken up then. */
void kv_late(struct kv_agent *agent, const struct wire_record *request);
void kv_took(struct kv_agent *agent, const struct wire_record *request, uint64_t since);

/* The same from what the store said; where it went well (0), with a body of `length` bytes. */
int kv_answer_result(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
		     struct wire_record *reply, int rc, const void *body, uint32_t length, uint64_t tells);

/* A value beyond the message: tell its length and the key to ask again with. Only that next request counts. */
int kv_answer_too_large(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *key,
			uint32_t key_len, uint64_t value_len, uint64_t version);

/* Longest value that this connection takes: without an arena for large ones it has to fit a message. */
uint64_t kv_agent_value_max(const struct kv_agent *agent);

/* Room for a value is made in steps, as many as the turn has time for: the store said rc; whether to call it again. */
static inline bool kv_step_again(struct conn *conn, const struct kv_agent *agent, int rc)
{
	return unlikely(rc == -EAGAIN) && conn_time_left(conn) && !store_changes_full(agent->thread->store);
}

/* The number that some bodies begin with. */
static inline uint64_t kv_number(const char *body)
{
	uint64_t number;

	memcpy(&number, body, sizeof(number));
	return number;
}

/* The conditions by which a GET's answer finds its way. */
static inline struct wire_ways kv_get_ways(const struct kv_agent *agent, const struct wire_record *request)
{
	return (struct wire_ways){.push_max = request->flags & WIRE_TAKES_PUSH ? agent->push_max : 0};
}

/*
 * slow.c: only where thread->part.slow is not 0, or agent->slow is not NULL
 */
/* Before a request is carried out, again where it comes again; and after. False: no memory, and it is not timed. */
bool kv_slow_begin(struct kv_agent *agent, const struct wire_record *request, const char *body, const char *key,
		   uint32_t key_len);
void kv_slow_end(struct kv_agent *agent, int rc);
/* Its answer is ready, with a body of `length` bytes. */
void kv_slow_answered(const struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
		      uint32_t length);

/*
 * small.c
 */
/* Whether its condition, and the attributes of an item, are ones that there are. */
bool kv_put_valid(const struct wire_put *put);
/* A put in the store's terms, which is valid. */
struct store_put kv_store_put(const struct wire_put *put, uint64_t now);

/* A time to live from the wire made absolute; however long it is. */
static inline uint64_t kv_expires_of(uint64_t ttl, uint64_t now)
{
	return ttl == 0 ? TIME_NEVER : time_after(now, time_of_us(ttl));
}

/* A key's figures in the wire's terms. */
struct wire_meta kv_wire_meta(const struct store_meta *meta, uint64_t now);

/*
 * rendezvous.c
 */

/* The life of a large value's transfer. In reserved and published it never rests: the call that brought it there takes
 * it further. */
enum kv_transfer_state {
	KV_TRANSFER_FREE,     /* kept by the thread; woken by the next large request */
	KV_TRANSFER_RESERVED, /* holds memory for a SET's value, or pins a GET's */
	/* in agent->sets; woken by done(), for each piece: it came, it never will, or the connection is freed */
	KV_TRANSFER_READING,
	/* in agent->sets, with no piece on its way: room for the next one is to be made; woken by the connection's
	 * writable(), and given up by closed() */
	KV_TRANSFER_GROWING,
	KV_TRANSFER_UNCOMMITTED, /* of a GET, in agent->uncommitted; woken by the gate, and given up by closed() */
	KV_TRANSFER_WRITING,     /* of a GET, whose answer was committed behind it; woken by done() likewise */
	KV_TRANSFER_PUBLISHED,   /* the SET was carried out and is to be answered */
	/* in agent->finished, for room to answer; woken by the connection's writable(), and given up by closed() */
	KV_TRANSFER_WAITING,
	KV_TRANSFER_STATES
};

/* Memory of the client: the first range, then the next. */
struct kv_ranges {
	const struct wire_remote *at;
	unsigned count;
	uint64_t length; /* of all */
};

/* Bytes of a value that go to the client's memory, and the answer behind them. */
#define KV_WRITE_BODY (3 * sizeof(uint64_t))
struct kv_write {
	struct kv_ranges to;
	uint64_t at, len;
	uint64_t tells; /* as kv_answer() */
	bool later;     /* it waits in every case: the request was carried out, and must not come again */
	uint32_t body_len;
	char body[KV_WRITE_BODY];
};

struct kv_transfer {
	struct conn_transfer wire;
	struct conn_transfer next; /* of a SET in pieces, of which two are under way: every other one */
	enum kv_transfer_state state;
	struct list node; /* in the agent's list of the state */
	struct kv_transfer *next_free;
	struct kv_agent *agent;
	struct store_ref ref;
	/* of a SET: answered when the bytes are here; of a GET: when it is committed */
	struct wire_record request;
	struct kv_write write; /* of a GET that waits for that */
	struct kv_ranges from; /* of a SET in pieces */
	uint64_t ready;        /* of a SET: bytes that there is room for, */
	uint64_t asked;        /* and that were asked for */
	unsigned pieces;       /* asked for, */
	unsigned coming;       /* and not here yet */
	bool failed;           /* one of them */
	struct wire_put put;   /* zeros: always, for ever */
	uint64_t since;        /* of a SET: when it was taken up; of a GET: when its bytes left */
	uint64_t key_hash;
	uint64_t version;
	uint16_t slot; /* of a SET, where there is a cluster */
	enum wire_status status;
	struct wire_remote kept[]; /* WIRE_PIECES_MAX; write.to, where that waits, or from */
};

/* The only writer of the state, for rendezvous.c alone: moves the transfer to the state's list and logs. It must be a
 * state that may follow the one it is in. */
void kv_transfer_set_state(struct kv_transfer *transfer, enum kv_transfer_state state);

/* The SET of this key that is under way on the connection, or NULL: a later request for it has to wait, so that
 * requests for one key are carried out in their order. */
const struct kv_transfer *kv_key_busy(const struct kv_agent *agent, const void *key, size_t key_len);

/* A request that names the client's memory, taken apart. */
struct kv_named {
	struct kv_ranges ranges; /* of length 0: it names none */
	const char *head;        /* of the operation's own */
	const char *key;
	uint32_t key_len;
	struct wire_remote at[WIRE_PIECES_MAX];
};

/* Reads it, once: a range, `head` bytes and the key; or those, the key, and ranges to the end. False: it breaks the
 * protocol. `may_be_none`: a single range may have the length 0. */
bool kv_named_read(const struct conn *conn, const struct wire_record *request, const char *body, uint32_t head,
		   bool may_be_none, struct kv_named *named);

/* A value that has to wait is not read yet: a read counts, and makes it last. */
bool kv_get_waits(const struct kv_agent *agent, const char *key, uint32_t key_len);

/* Write bytes of a value, which is pinned and taken of kv_hold, to the client's memory, and the answer behind them,
 * when all that it tells of is committed; pin and hold are given back when they are there. -EAGAIN, -ENOMEM: nothing
 * was done, and nothing of the hold is left. */
int kv_write_value(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
		   struct wire_record *reply, const struct kv_write *write, const struct store_ref *ref);
/* The two apart, of what waits for nothing. */
int kv_write_part(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
		  const struct kv_write *write, const struct store_ref *ref);
void kv_write_answer(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
		     struct wire_record *reply, const struct kv_write *write);

/* The answer to a GET whose value goes behind it. -EAGAIN as kv_serve_fn. */
int kv_push_value(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body);

/* Room to answer SETs that were finished. */
void kv_rendezvous_writable(struct conn *conn);

/* Transfers that waited for the gate: the ones that may go on do, as far as there is room. `failed`: the others never
 * will, and are answered so. How many did. */
unsigned kv_rendezvous_committed(struct conn *conn, struct kv_agent *agent, uint64_t durable, bool failed);

/* Transfers that were finished but not answered. */
void kv_rendezvous_close(struct kv_agent *agent);

/* Transfers that were kept for the next large value. */
void kv_thread_clear(struct service_part *part);

/*
 * owner.c
 */
struct kv_owners *kv_owners_create(void); /* NULL: no memory */
void kv_owners_destroy(struct kv_owners *owners);
/* The client's owner in the store, with its limit as it is now. Any thread. */
uint16_t kv_owner_of(const struct kv_shared *shared, const struct auth_client *client);
void kv_owners_report(const struct kv_shared *shared, struct service_report *report);
/* The answer to a write for which the store has said -EDQUOT. As kv_serve_fn. */
int kv_answer_over_quota(struct conn *conn, struct kv_agent *agent, const struct wire_record *request);

/*
 * hold.c: a transfer takes what it will hold before it reserves or pins, and gives it back in the end.
 */
#define KV_HOLD_SHARES 4 /* clients that the limit is meant for at once */

static inline struct kv_hold *kv_hold_of(const struct kv_agent *agent)
{
	return &((struct kv_shared *)agent->thread->part.shared)->hold;
}

void kv_hold_init(struct kv_hold *hold, uint64_t limit);
uint64_t kv_hold_bytes(const struct kv_hold *hold);

/* False: it would be too much, and the request waits by kv_hold_wait(). A single value is never too much for ever,
 * however long. */
bool kv_hold_take(struct kv_agent *agent, uint64_t bytes);
void kv_hold_give(struct kv_agent *agent, uint64_t bytes);
/* Whether kv_hold_take() would say no, as far as one can tell without trying. */
bool kv_hold_would_wait(const struct kv_agent *agent, uint64_t bytes);
/* Gives back what was not used: no transfer ended. */
void kv_hold_cancel(struct kv_agent *agent, uint64_t bytes);

/* Returns -EAGAIN: the request waits, and comes again when something ended, in a millisecond at the latest. */
int kv_hold_wait(struct conn *conn, struct kv_agent *agent);
/* The same for what has begun: writable() is called. */
void kv_hold_retry(struct conn *conn, struct kv_thread *thread);

/* What the store said of a write: it has to come again, because room is made in further steps (-EAGAIN), or may come
 * back when transfers that are under way have ended (-ENOMEM). False: rc is its result. */
bool kv_hold_room(struct conn *conn, struct kv_agent *agent, int rc);

static inline bool kv_write_waits(struct conn *conn, struct kv_agent *agent, int rc)
{
	return unlikely(rc == -EAGAIN || rc == -ENOMEM) && kv_hold_room(conn, agent, rc);
}

/* The groups' turn came before this one: an agent that still waits has said so again. */
void kv_hold_turn(struct kv_thread *thread);

/*
 * again.c
 */
struct kv_again;

/* The client was told that the value is too long, and asks again under the same id. */
void kv_again_expect(struct kv_agent *agent, const struct wire_record *request, const void *key, size_t key_len);

/* A request that comes behind may change the key. */
void kv_again_before_write(struct kv_agent *agent, const void *key, size_t key_len);

/* Finds what is known of a get that comes again; NULL: nothing. */
struct kv_again *kv_again_find(const struct kv_agent *agent, const struct wire_record *request);

/* As store_get(), the value that it is to have: 0, -ENOENT, -ESTALE: that is not there any more. A pinned one goes back
 * with put_back, if it is not taken; the other two also where `again` is NULL. */
int kv_again_get(struct kv_agent *agent, struct kv_again *again, const void *key, size_t key_len,
		 struct store_ref *ref);
void kv_again_put_back(struct kv_agent *agent, const struct kv_again *again, struct store_ref *ref);
/* Ends it: it is answered, and does not come any more. `taken`: the pin is the caller's. */
void kv_again_end(struct kv_agent *agent, struct kv_again *again, bool taken);
/* A request of another kind under its id: the value is not wanted any more. */
void kv_again_given_up(struct kv_agent *agent, uint32_t id);

void kv_again_turn(struct kv_thread *thread);
void kv_again_close(struct kv_agent *agent);
void kv_again_clear(struct kv_thread *thread);

/*
 * lease.c
 */
void kv_lease_init(struct kv_lease_limits *limits, uint64_t memory, uint64_t time);
uint64_t kv_lease_bytes(const struct kv_lease_limits *limits);
void kv_lease_turn(struct kv_thread *thread);
/* The connection's end: its leases end, too. */
void kv_lease_close(struct kv_agent *agent);

/*
 * watch.c
 */
int kv_watch_turn(struct kv_thread *thread); /* how many events there were */
void kv_watch_writable(struct kv_agent *agent);
/* The client's rights are others now: what it may not read any more it is not told of. */
void kv_watch_revised(struct kv_agent *agent);
void kv_watch_close(struct kv_agent *agent);

/*
 * gate.c
 */

/* Whether an answer has to wait: what it tells of is no more than a number beyond what is known to be on disk. */
static inline bool kv_gate_may_wait(const struct kv_agent *agent, const struct wire_record *request, uint64_t tells)
{
	return unlikely(tells > agent->thread->committed || request->flags & WIRE_DURABLE);
}

/* Asks the log whether it has to. */
bool kv_gate_waits(struct kv_agent *agent, uint64_t tells);

/* What an answer tells of when it is of no single version: of a key that is not there, or its time to live; of all that
 * there is. Asked for behind the call of the store. */
uint64_t kv_gate_all(const struct kv_agent *agent);

static inline bool kv_gate_is_on(const struct kv_agent *agent, const struct wire_record *request)
{
	return unlikely(agent->thread->committed != UINT64_MAX || request->flags & WIRE_DURABLE);
}

static inline uint64_t kv_tells_removed(const struct kv_agent *agent, const struct wire_record *request,
					const void *key, size_t key_len)
{
	return kv_gate_is_on(agent, request) ? store_removed(agent->thread->store, key, key_len) : 0;
}

static inline uint64_t kv_tells_all(const struct kv_agent *agent, const struct wire_record *request)
{
	return kv_gate_is_on(agent, request) ? kv_gate_all(agent) : 0;
}

/* Longest answer that can wait: a page of a walk with a key of any length. */
#define KV_GATE_BODY ((uint32_t)(sizeof(uint64_t) + sizeof(struct wire_entry)) + WIRE_PAD(WIRE_KEY_MAX))

/* The answer waits, without its record; kv_gate_waits() said so. */
void kv_gate_hold(struct conn *conn, struct kv_agent *agent, const struct wire_record *reply, uint64_t tells,
		  bool counts);

/* A write finds no room in the ring of changes: -EAGAIN, and it comes again when there may be some. */
void kv_gate_wait_ring(struct kv_agent *agent);

/* A transfer of the agent waits, KV_TRANSFER_UNCOMMITTED. */
void kv_gate_join(struct conn *conn, struct kv_agent *agent, uint64_t tells);

/* Before a request is carried out, where the agent or the thread says that there is something: whether it may be. 1: it
 * may; 0: it was refused, and answered; -EAGAIN. */
int kv_gate_admit(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, bool writes);

/* Why the log takes no writes; 0: it does. */
static inline int kv_gate_refused(const struct kv_thread *thread)
{
	return atomic_load_explicit(&thread->refused, memory_order_relaxed);
}

/* Nothing waits. */
static inline bool kv_gate_quiet(const struct kv_agent *agent)
{
	return !list_linked(&agent->waiting);
}

/* For other services: what they hold waits for the log. */
struct kv_waiter {
	struct list node;
	/* The log has got on, or has failed and will not. The waiter stays until kv_gate_wait_end(). */
	void (*look)(struct kv_waiter *waiter, uint64_t durable, bool failed);
};
void kv_gate_wait(struct kv_thread *thread, struct kv_waiter *waiter, uint64_t tells);
void kv_gate_wait_end(struct kv_thread *thread, struct kv_waiter *waiter);
/* The last change that is known to be on disk; UINT64_MAX: none has to be. */
uint64_t kv_gate_durable(struct kv_thread *thread);

int kv_gate_init(struct kv_thread *thread);
void kv_gate_clear(struct kv_thread *thread);
/* The connection's end: the answers that wait go nowhere. */
void kv_gate_close(struct kv_agent *agent);

/* The connection's ops->writable. */
void kv_gate_writable(struct conn *conn);

/* Hooks of the service. */
int kv_thread_fd(const struct service_part *part);
void kv_thread_readable(struct service_part *part);
int kv_thread_progress(struct service_part *part);
uint64_t kv_thread_deadline(const struct service_part *part);
bool kv_thread_arm(struct service_part *part);
void kv_thread_disarm(struct service_part *part);

/*
 * log.c: one thread writes, another makes checkpoints. Main thread, but where said.
 */

#define KV_RING 65536u /* changes that are not written yet */

/* Whether there is to be one. */
bool kv_log_wanted(const struct kv_settings *settings);
/* Opens it and loads the store from it, which no other thread uses yet; begins to keep changes. */
int kv_log_open(const struct kv_settings *settings, struct store *store, const struct service_host *host,
		struct kv_log **out);
/* All is written and on disk, as far as that can be; NULL: nothing is done. The workers have ended. */
void kv_log_close(struct kv_log *log);

/* Changes are kept, and answers can wait for the disk. Any thread. */
bool kv_log_keeps(const struct kv_log *log);
bool kv_log_gates(const struct kv_log *log); /* and every answer waits */

/* A worker's thread, which is to be woken and told. */
void kv_log_join(struct kv_log *log, struct kv_thread *thread);
void kv_log_leave(struct kv_log *log, struct kv_thread *thread);

/* The last change that is on disk; and whether there will be no further one. Any thread. */
uint64_t kv_log_durable(const struct kv_log *log);
bool kv_log_failed(const struct kv_log *log);
/* How many changes it has taken out of the ring. Any thread. */
uint64_t kv_log_taken(const struct kv_log *log);
/* An answer waits for that one; wakes the log's thread. Any thread. */
void kv_log_want(struct kv_log *log, uint64_t lsn);

/* A checkpoint is to be made: 0, -EALREADY: one is; -EOPNOTSUPP: there is no log. */
int kv_log_checkpoint(struct kv_log *log);
/* For tests and figures. */
const struct wal *kv_log_wal(const struct kv_log *log);
void kv_log_report(struct kv_log *log, struct service_report *report);

#endif
