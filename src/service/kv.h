/*
 * kv.h: what the files of the key/value service share.
 *
 *   kv_store.c    what the process has: the store, its arena, settings and counters
 *   kv.c          admission, the table of operations, and how a request goes through it to its answer
 *   kv_small.c    operations on one key whose value fits a message
 *   kv_scan.c     operations on all keys
 *   rendezvous.c  large values
 *   kv_hold.c     how much memory those under way may hold
 */
#ifndef RDMAD_SERVICE_KV_H
#define RDMAD_SERVICE_KV_H

#include "service/internal.h"
#include "store/store.h"

/* By the rows of kv_settings. */
struct kv_settings {
	uint64_t memory, value_max, transfer_memory;
	uint64_t eviction; /* enum store_eviction */
};

struct kv_agent;

/* What large values under way hold of the store's memory. The workers share it. */
struct kv_hold {
	uint64_t limit; /* bytes of all clients */
	uint64_t share; /* of one that holds more than one value */
	_Atomic uint64_t bytes;
	_Atomic uint64_t begun, ended;           /* transfers */
	_Atomic(const struct kv_agent *) beyond; /* the one that went ahead beyond the limit, until it holds nothing */
};

/* What the workers share. Constant but for the store, which has its own locks, and the numbers of `hold`. */
struct kv_shared {
	struct store *store;
	void *arena;
	size_t arena_size;
	uint64_t value_max; /* longest value */
	struct kv_hold hold;
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
	KV_COUNT_WAITS,
	KV_COUNT_OPERATIONS,
};

struct kv_thread {
	struct service_part part;
	struct store *store;
	struct kv_transfer *free_transfers; /* kept for the next large value */
	uint64_t retry_at;                  /* the part is active until then, for requests that wait; 0: it is not */
};

struct kv_agent {
	struct kv_thread *thread;
	const struct fabric_region *arena; /* NULL: large values are not offered here */
	struct list sets;                  /* transfers that are KV_TRANSFER_READING */
	struct list finished;              /* transfers that are KV_TRANSFER_WAITING */
	unsigned beside;                   /* what the next request must look at: bits of enum kv_beside */
	uint64_t held;                     /* bytes of kv_hold */
	uint64_t waits_for;                /* KV_BESIDE_WAIT: hold.ended after which it has waited long enough */
};

enum kv_beside {
	KV_BESIDE_SETS = 1, /* large SETs are under way */
	KV_BESIDE_WAIT = 2, /* the request that comes again waits for memory; see kv_hold_wait() */
	KV_BESIDE_FULL = 4, /* and does so since the store was full */
};

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

/* kv_serve_get and so on: each operation of the wire's list has one, in kv_small.c, kv_scan.c or rendezvous.c. */
#define KV_SERVE(OP, number, name, words) kv_serve_fn kv_serve_##name;
WIRE_OPS_KV(KV_SERVE)
#undef KV_SERVE

/*
 * kv_store.c: the store and its arena. Main thread, but for the regions.
 */
extern const struct setting_table kv_settings;

int kv_shared_open(const struct service_host *host, const void *settings, void **shared);
void kv_shared_close(void *shared);
uint64_t kv_shared_tick(void *shared, uint64_t now);
void kv_shared_status(const void *shared, struct service_report *report);
void kv_shared_memory(const void *shared, struct service_report *report);
void kv_shared_resources(const void *shared, struct service_report *report);

/* The arena as a connection that comes so moves values to and from it. NULL: not at all. */
const struct fabric_region *kv_shared_region(const struct kv_shared *shared, const struct service_way *way);

/*
 * kv.c
 */

/* The answer that was reserved is complete: the request counts as what it is, and as an error if it is one. */
void kv_answer(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, struct wire_record *reply,
	       enum wire_status status, uint32_t length);

/* The same from what the store said; where it went well (0), with a body of `length` bytes. */
int kv_answer_result(struct conn *conn, struct kv_agent *agent, const struct wire_record *request,
		     struct wire_record *reply, int rc, const void *body, uint32_t length);

/* A value beyond the message: tell its length and the key to ask again with. Only that next request counts. */
int kv_answer_too_large(struct conn *conn, const struct wire_record *request, const char *key, uint32_t key_len,
			uint64_t value_len);

/* Longest value that this connection takes: without an arena for large ones it has to fit a message. */
uint64_t kv_agent_value_max(const struct kv_agent *agent);

/* Room for a value is made in steps, here as many as the turn has time for. `call` is one of the store's. */
#define KV_STEPS(conn, rc, call)                                                                                       \
	do {                                                                                                           \
		(rc) = (call);                                                                                         \
	} while (unlikely((rc) == -EAGAIN) && conn_time_left(conn))

/* The number that some bodies begin with. */
static inline uint64_t kv_number(const char *body)
{
	uint64_t number;

	memcpy(&number, body, sizeof(number));
	return number;
}

/*
 * kv_small.c
 */
/* What a put asks for in the store's terms; its condition was checked. */
struct store_put kv_store_put(const struct wire_put *put, uint64_t now);

/* What the store knows of a key in the wire's terms. */
struct wire_meta kv_wire_meta(const struct store_meta *meta, uint64_t now);

/*
 * rendezvous.c
 */

/* The life of a large value's transfer. In reserved and published it never rests: the call that brought it there takes
 * it further. */
enum kv_transfer_state {
	KV_TRANSFER_FREE,     /* kept by the thread; woken by the next large request */
	KV_TRANSFER_RESERVED, /* holds memory for a SET's value, or pins a GET's */
	KV_TRANSFER_READING, /* in agent->sets; woken by done(), once: the value came, it never will, or the connection is
				* buried */
	KV_TRANSFER_WRITING,   /* of a GET, whose answer was committed behind it; woken by done() likewise */
	KV_TRANSFER_PUBLISHED, /* the SET was carried out and is to be answered */
	KV_TRANSFER_WAITING, /* in agent->finished, for room to answer; woken by the connection's writable(), and given up
				* by closed() */
	KV_TRANSFER_STATES
};

struct kv_transfer {
	struct conn_transfer wire;
	enum kv_transfer_state state;
	struct list node; /* in the agent's list of the state */
	struct kv_transfer *next_free;
	struct kv_agent *agent;
	struct store_ref ref;
	struct wire_record request; /* of a SET: to be answered when the bytes are here */
	struct wire_put put;        /* zeros: always, for ever */
	uint64_t key_hash;
	uint64_t version;
	enum wire_status status;
};

/* The only writer of the state, for rendezvous.c alone: moves the transfer to the state's list and logs. It must be a
 * state that may follow the one it is in. */
void kv_transfer_set_state(struct kv_transfer *transfer, enum kv_transfer_state state);

/* Whether a SET of this key is under way on the connection: a later request for it has to wait, so that
 * requests for one key are carried out in their order. */
bool kv_key_busy(const struct kv_agent *agent, const void *key, size_t key_len);

/* The connection's ops->writable. */
void kv_rendezvous_writable(struct conn *conn);

/* Transfers that were finished but not answered. */
void kv_rendezvous_close(struct kv_agent *agent);

/* Transfers that were kept for the next large value. */
void kv_thread_clear(struct service_part *part);

/*
 * kv_hold.c: a transfer takes what it will hold before it reserves or pins, and gives it back in the end.
 */
#define KV_HOLD_SHARES 4 /* clients that the limit is meant for at once */

void kv_hold_init(struct kv_hold *hold, uint64_t limit);
uint64_t kv_hold_bytes(const struct kv_hold *hold);

/* False: it would be too much, and the request waits by kv_hold_wait(). A single value is never too much for ever,
 * however long. */
bool kv_hold_take(struct kv_agent *agent, uint64_t bytes);
void kv_hold_give(struct kv_agent *agent, uint64_t bytes);
/* Whether kv_hold_take() would say no, as far as one can tell without trying. */
bool kv_hold_would_wait(const struct kv_agent *agent, uint64_t bytes);
/* What was taken was not used: no transfer ended. */
void kv_hold_cancel(struct kv_agent *agent, uint64_t bytes);

/* Returns -EAGAIN: the request waits, and comes again when something ended, in a millisecond at the latest. */
int kv_hold_wait(struct conn *conn, struct kv_agent *agent);

/* What the store said of a write: it has to come again, because room is made in further steps (-EAGAIN), or may come back
 * when transfers that are under way have ended (-ENOMEM). False: rc is its result. */
bool kv_hold_room(struct conn *conn, struct kv_agent *agent, int rc);

static inline bool kv_write_waits(struct conn *conn, struct kv_agent *agent, int rc)
{
	return unlikely(rc == -EAGAIN || rc == -ENOMEM) && kv_hold_room(conn, agent, rc);
}

/* Hooks of the service. */
int kv_hold_progress(struct service_part *part);
uint64_t kv_hold_deadline(const struct service_part *part);

#endif
