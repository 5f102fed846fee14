/*
 * kv.h: what the files of the caller's half of the key/value service share.
 *
 *   handle.c      open, close, what a handle tells, registered memory, the caller's own loop
 *   life.c        the connection of a handle: its end, and how another is made
 *   wait.c        how long a caller waits, and requests that are given up
 *   error.c       statuses, and what rdmad_error() says of a call that failed
 *   slots.c       the table of requests: how one ends, and what a progress thread leaves to the caller
 *   large.c       values beside the message: landing buffers, the caller's memory, a get that asks again
 *   direct.c      values in memory that no processor may touch
 *   operations.c  the table of operations, how a request is built and its answer read; the shortest submissions
 *   calls.c       the calls about one key, and how one waits
 *   walk.c        the calls about all keys
 *   cluster.c     the handle of a cluster: its table, and a handle for each of its servers
 *   route.c       to which of them a request goes, and what becomes of one that another server has
 *   batch.c       many keys in one call
 *   queue.c       requests and completions by the array
 *   watch.c       changes of keys, as the server tells of them
 *   part.c        parts of values, and values that are read and changed in one step
 *   pieces.c      values in several pieces of the caller's memory
 *   move.c        items and sessions, by which rdmad moves slots to another server
 *
 * A request is a slot in a table, found by the id that its answer brings back, and calls back exactly once. A slot is
 * free (done is NULL), or taken: sent, in the list `retry` to be sent once more, or finished by the progress thread and
 * in the list `finished` until the caller's next turn.
 */
#ifndef RDMAD_CLIENT_KV_H
#define RDMAD_CLIENT_KV_H

#define RDMAD_KV_ANY void /* here, too: each public function casts its handle */
#include <rdmad/kv.h>

#include "cluster/cluster.h"
#include "engine/engine.h"
#include "wire/way.h"

struct kv_nodes;

#define KV_SLOTS 1024 /* requests outstanding on one handle; a power of two */
#define KV_BLOCK 64   /* requests that the table grows by */
#define KV_SIZES 1024 /* keys whose value's length is remembered */

struct request {
	/* A cache line, which is all that a small request touches. */
	_Alignas(CACHE_LINE) kv_callback done; /* NULL: the slot is free */
	void *arg;
	kv_result_callback result; /* NULL: the caller gave `done`; else what is done is to call this */
	void *into;                /* of a get, the caller's */
	uint64_t message;          /* that it left in, counted as conn_message_begun() */
	uint64_t since;            /* when it was submitted, where requests time out */
	uint32_t id;               /* the slot's number, and above it how often it was given back */
	uint32_t next;             /* free slot behind this one, or finished one */
	int status;                /* what its callback is still to be told, when the progress thread finished it */
	uint8_t op;                /* enum wire_op, as it was sent last: the answer has the same */
	bool large;                /* what is for large values is in use */
	bool copied;               /* value, below, is ours */
	uint8_t tries;

	size_t into_size;
	struct landing *landing;  /* of a get, ours */
	struct kv_push *push;     /* under way; of a large one */
	struct kv_pieces *pieces; /* of a large one that has several; `into` is then an array of them */
	const void *value;
	size_t value_len;
	uint64_t key_hash;  /* of a get with a landing buffer */
	struct reach reach; /* the caller's memory */
	void *result_arg;
	struct kv_meta meta; /* what the answer told, for result() */
	int64_t number;
	uint32_t flags;
	uint8_t type;
	bool direct; /* of a large one: the caller's memory is none that a processor may touch */
};
_Static_assert(offsetof(struct request, into_size) == CACHE_LINE, "a small request is a cache line");

/* The head before the key of a FETCH. */
struct kv_fetch_head {
	struct wire_remote remote; /* how long the buffer is, and where it is if it is large */
	struct wire_fetch fetch;
};
_Static_assert(sizeof(struct kv_fetch_head) == 56, "wire layout");

/* Memory of the caller that holds a value in pieces. */
struct kv_pieces {
	struct kv_pieces *next; /* free one */
	size_t small;           /* those of up to so many bytes are in the request's landing buffer */
	unsigned reaches;       /* of the others */
	struct reach reach[WIRE_PIECES_MAX];
};

/* A get to be sent again with a landing buffer of the right size, when there is room. */
struct retry {
	struct retry *next;
	uint32_t id;
	size_t key_len;
	char key[];
};

#define KV_PUSHES 128 /* values on their way with a message, of a handle */

/* A request whose value goes behind it, or whose answer's value comes. */
struct kv_push {
	struct conn_transfer wire;
	struct kv_push *next; /* free one */
	struct kv *kv;
	struct request *request;
	bool answered; /* of a set: with `status`, while the value was not yet out of the caller's memory */
	int status;
};

struct remembered {
	uint64_t hash, length;
};

struct kv {
	struct engine *engine;
	struct conn *conn; /* NULL once it has ended */
	uint64_t *completed;
	size_t outstanding;       /* slots that are taken */
	uint32_t free;            /* first free slot, KV_SLOTS: none */
	uint32_t slots;           /* that the table has by now */
	unsigned forks;           /* of the process when it was opened */
	bool taking;              /* requests, or not: it was told to leave, is being made again, or is closed */
	bool leaving;             /* the server takes no new connections or is to end: what is under way is finished */
	bool wants_room;          /* a request was refused for want of credits, or of places for values on their way */
	uint16_t took_moved;      /* what requests say, see WIRE_TOOK_MOVED; 0: it is no node of a cluster's handle */
	uint64_t request_timeout; /* ns; 0: submitted requests wait as long as the connection lives */
	struct landing *lent;     /* during a callback, which takes it to keep the value */
	struct remembered *size;  /* KV_SIZES; NULL: none was remembered yet */
	uint64_t eager_max, value_max;
	uint64_t push_max;      /* longest value that goes with its message; 0: none beyond what it holds */
	bool leases;            /* the server has them */
	bool watches;           /* and watches */
	bool tables;            /* and tells its table, if it has one */
	bool moves;             /* and takes slots with their values */
	bool direct;            /* and writes short values to the caller's memory, too */
	struct kv_nodes *nodes; /* of a cluster, to which each request goes; NULL: it is of one server */
	struct request *block[KV_SLOTS / KV_BLOCK];

	/* Each small request needs the members above. */
	struct engine_options options;
	char *server;

	struct wire_over_quota quota; /* as the last answer said that was -EDQUOT */
	bool disk_full;               /* the last answer that was -ENOSPC meant the disk of the log, not the store */

	/* The connection's life. */
	bool spared;   /* the server leaves, and has not carried out what it did not answer */
	bool closed;   /* no other is made but by kv_reopen() */
	bool ending;   /* the caller closes it */
	bool protocol; /* the server broke the protocol */
	bool ended;    /* its requests are to be told */
	char reason[160];
	uint64_t unposted; /* of its requests, those of this message on did not leave */

	/* Making it again. */
	struct dial dial; /* joins again, where it was */
	struct dial_target at;
	uint64_t keep;            /* ns to try; 0: not at all */
	uint64_t lost;            /* since when there is none; 0: there is one */
	enum wire_reason refused; /* the last attempt, by the server */
	struct engine_timer rejoin;

	/* Timeouts. */
	uint64_t moved, moved_at; /* conn_moved() when it was read last and had changed, and that time */
	struct engine_timer watch;

	/* of the slots that are taken, whose callback will not be called: the caller gave up waiting */
	size_t orphans;
	uint32_t eager_limit; /* the caller's; 0: none */
	struct kv_push *pushes, *free_push;
	unsigned free_pushes;
	struct kv_pieces *free_pieces;
	const char *transport;
	struct buffers *buffers;
	struct retry *retry, **retry_tail;
	struct deferred deferred;
	uint32_t finished, *finished_tail; /* slots that the progress thread left to the caller */
	struct kv_queue *queue;            /* of kv_submit(); NULL: it was not called yet */
	struct kv_watch *watching;         /* NULL: kv_watch() was not called yet */

	/* Where it is one of several servers of a cluster. */
	struct kv *whole;            /* the cluster's handle; NULL: it is no node */
	struct dial_target *targets; /* where it may be, DIAL_TARGETS; NULL: at `at` */
	struct kv_kept **kept;       /* its requests, a place for each slot */
	struct kv_elsewhere {
		bool told; /* the answer had it */
		struct wire_elsewhere where;
		char address[CLUSTER_ADDRESS_MAX + 1];
	} elsewhere;    /* as the last answer said that was -EREMOTE */
	bool retired;   /* the table has it no more */
	bool asks;      /* its table is to be read */
	unsigned round; /* of a batch, in which it had no room */
};

/* One request as the caller wants it. Its body is head, key, value. */
struct ask {
	enum wire_op op;
	uint8_t flags;  /* of a put: WIRE_DURABLE */
	uint32_t limit; /* of a scan: most keys */
	const void *head;
	size_t head_len;
	const void *key; /* NULL: of no key, or of all that begin with the value */
	size_t key_len;
	const void *value;
	size_t value_len;
	void *into; /* of a GET_INTO */
	size_t into_size;
	bool direct;               /* kv_direct() */
	size_t pieces;             /* not 0: `value` or `into` is an array of so many struct iovec */
	kv_callback done;          /* NULL: none is called */
	kv_result_callback result; /* in place of `done`, for all that the answer tells */
	void *arg;
};

/* A request of a cluster's handle, as it was submitted: as long as it is under way at a node, or while it waits for
 * another way. */
struct kv_kept {
	struct kv_kept *next;
	uint32_t id;       /* of the node's request */
	uint8_t tries;     /* submitted so often */
	uint8_t fails;     /* tables that were read for it in vain */
	bool behind;       /* another of its slot waits before it */
	bool packed;       /* the bytes are the record of a first submission; with id and epoch that is all */
	uint16_t slot;     /* the key's, once it has waited */
	int status;        /* 0: it is to be submitted again; else to be told */
	uint64_t order;    /* among those of its slot; 0: it has not waited yet; KV_ORDER_NEW: it was never submitted */
	uint64_t epoch;    /* of the table that it went by */
	uint64_t when;     /* it is seen to; TIME_NEVER: when a table was read */
	uint64_t answered; /* 0, or the server's epoch, where that is higher */
	struct kv *from;   /* that server */
	struct ask ask;
	size_t room;
	_Alignas(8) char bytes[];
};

#define KV_ORDER_NEW UINT64_MAX

#define KV_RUN 64u /* slots side by side, which are mostly one node's */
#define KV_RUNS (CLUSTER_SLOTS / KV_RUN)

/* What the handle of a cluster has. */
struct kv_nodes {
	uint64_t epoch; /* of the table */
	char name[CLUSTER_NAME_MAX + 1];
	unsigned count;               /* of members */
	bool miss;                    /* KV_CLUSTER_MISS */
	uint16_t node[CLUSTER_SLOTS]; /* the member that has a slot, or KV_NO_NODE */
	struct kv *run[KV_RUNS];      /* that of all slots of a run, as few lines of a cache hold; NULL: see node */
	struct kv *member[CLUSTER_NODES];
	struct kv *spoke; /* the last call that failed was about this one; NULL: about all */
	unsigned round;   /* of a batch: its items were looked at so often */
	char fault[400];  /* why two servers cannot both be right; "": they can */

	/* route.c: requests that wait. */
	struct kv *whole; /* the cluster's handle */
	struct kv_kept *waiting, **waiting_tail;
	unsigned waiters;
	uint32_t waits[CLUSTER_SLOTS]; /* how many of them are to be submitted again, of each slot */
	uint64_t order;                /* that was given last */
	struct engine_timer timer;
	struct deferred deferred;

	/* A table that is being read, for these. */
	struct kv_table_text *text; /* NULL: none is */
	struct kv *from;
	uint64_t reading_until;
	uint64_t asked;      /* when a table was wanted last */
	unsigned next_asked; /* of whom, while a server is away */

	uint64_t walked; /* what kv_nodes_epoch() was when kv_scan() began a walk */

	/* Of kv_watch(). */
	uint32_t kinds;
	unsigned next; /* node that is asked for events first */
	size_t prefix_len;
	char prefix[WIRE_KEY_MAX];
};
#define KV_NO_NODE UINT16_MAX

/* Enter and leave as engine_enter and engine_leave do. */
static inline void kv_enter(struct kv *kv)
{
	engine_enter(kv->engine);
}

static inline void kv_leave(struct kv *kv)
{
	engine_leave(kv->engine);
}

/* How long it is made again: of a node, what the cluster's caller wants. */
static inline uint64_t kv_keep(const struct kv *kv)
{
	return kv->whole ? kv->whole->keep : kv->keep;
}

#pragma GCC visibility push(hidden) /* nothing of this leaves the library, so calls may be inlined */

/*
 * slots.c. All of it inside the engine.
 */
void kv_slots_init(struct kv *kv);
void kv_slots_free(struct kv *kv);

/* `done` of a request without any. */
void request_unheard(void *arg, int status, const void *value, size_t value_len);

/* `done` of a request with `result`; its argument is the request, whose slot is not taken again yet. */
void request_tell_result(void *arg, int status, const void *value, size_t value_len);

/* wait.c: it is given up when it has waited for kv->request_timeout. */
void request_watch(struct kv *kv, struct request *r);

/* The slot of a request's id; there must be one. */
static inline struct request *kv_slot(const struct kv *kv, uint32_t id)
{
	return &kv->block[id % KV_SLOTS / KV_BLOCK][id % KV_BLOCK];
}

/* No slot is free: make more. 0, -EAGAIN: as many are outstanding as a handle takes; -ENOMEM. */
int kv_slots_grow(struct kv *kv);

/* A free slot, of which there is one, for a request that is about to be sent. */
static inline struct request *request_take(struct kv *kv, const struct ask *ask)
{
	struct request *r = kv_slot(kv, kv->free);

	must(engine_entered(kv->engine));
	must(kv->free != KV_SLOTS && !r->done);
	if (unlikely(kv->request_timeout))
		request_watch(kv, r);
	kv->free = r->next;
	kv->outstanding++;
	r->op = (uint8_t)ask->op;
	r->result = ask->result;
	if (ask->result) {
		r->done = request_tell_result;
		r->arg = r;
		r->result_arg = ask->arg;
		r->meta = (struct kv_meta){0};
		r->number = 0;
		r->flags = r->type = 0;
	} else {
		r->done = ask->done ? ask->done : request_unheard;
		r->arg = ask->arg;
	}
	return r;
}

/* Gives it back to the free ones; no callback is told. */
void request_give(struct kv *kv, struct request *r);

/* The end: the slot is free and its callback called, now or, where the progress thread found the end, by the caller's
 * next turn. */
void kv_request_finish(struct kv *kv, struct request *r, int status, const void *value, size_t len);

/* The caller gave up waiting: the answer, should it come, is dropped, and the caller's memory is left alone. */
void request_orphan(struct kv *kv, struct request *r);
bool request_is_orphan(const struct request *r);

/* It was answered, and goes on elsewhere: its slot is free, or will be, and no callback is told. */
void request_pass_on(struct kv *kv, struct request *r);

/* The connection has ended, and all that is outstanding with it. */
void kv_slots_end(struct kv *kv);

/* The length that the key's value had last, 0: not known or small. Asked where there is kv->size. */
static inline uint64_t kv_size_recall(const struct kv *kv, const void *key, size_t key_len)
{
	uint64_t hash = hash_bytes(key, key_len);

	return kv->size[hash % KV_SIZES].hash == hash ? kv->size[hash % KV_SIZES].length : 0;
}

void kv_size_remember(struct kv *kv, const void *key, size_t key_len, uint64_t length);

/* The guess of a get was good enough, the next may be better: another client may have set the key. */
static inline void kv_size_correct(struct kv *kv, const struct request *r, uint64_t length)
{
	if (unlikely(r->landing) && kv->size && kv->size[r->key_hash % KV_SIZES].hash == r->key_hash)
		kv->size[r->key_hash % KV_SIZES].length = length;
}

/*
 * large.c. All of it inside the engine. 0, -EAGAIN: no room now, nothing is taken; -ENOTCONN; -ENOMEM.
 */

/* Submit a SET or PUT whose value, of `size`, goes behind the message or is read by the server; or a GET_INTO or FETCH,
 * whose answer's value may be written to the caller's memory, of `size`: how long it is, is not known yet. */
int request_large(struct kv *kv, const struct ask *ask, uint64_t size, struct request **taken);

/* Submit a GET that has a landing buffer of `size`. */
int request_get_large(struct kv *kv, const struct ask *ask, uint64_t size, struct request **taken);

/* The limits that decide a value's way, for a key of so many bytes. */
static inline struct wire_ways kv_ways(const struct kv *kv, size_t key_len)
{
	return (struct wire_ways){
		.message_max = kv->eager_max > key_len ? kv->eager_max - key_len : 0,
		.push_max = kv->push_max,
		.moves = kv->value_max > WIRE_EAGER_MAX,
	};
}

/* Whether a get of a value of `size` needs memory that it names. */
static inline bool kv_get_names(const struct kv *kv, uint64_t size)
{
	const struct wire_ways can = {.push_max = kv->push_max};

	return wire_way(WIRE_OP_GET, size, &can) == WIRE_WAY_NONE;
}

/* Memory as it is named to the server. */
struct wire_remote kv_remote(const struct kv *kv, const void *addr, size_t length, const struct fabric_region *region);

/* When the connection's grant is known. Without memory for pushes, values go by themselves. */
void kv_pushes_init(struct kv *kv, uint64_t push_max);

/* Answers to a get: the value was too long for the message or the buffer, and the key to ask again with came back; or
 * it was written to the buffer before this answer. -EPROTO: it cannot be so. */
int request_get_again(struct kv *kv, struct request *r, const struct wire_record *record, const char *body);
int request_get_landed(struct kv *kv, struct request *r, const char *body, size_t length);

/* There is room again: send what request_get_again left. */
void kv_large_writable(struct kv *kv);
void kv_large_end(struct kv *kv); /* it will never be sent */

/*
 * direct.c. From the second on inside the engine.
 */

/* 0; -EFAULT, said: these bytes, which are `what`, are a device's. */
int kv_readable(const void *bytes, size_t len, const char *what);

/* Asked where there is device_memory(). 1: the request's value lies, or goes, at least in part, where no processor may
 * touch it; 0: it does not; -EFAULT, said: it does, and cannot be carried out so. */
int kv_direct(const struct kv *kv, const struct ask *ask);

/* The pieces of such a request: 0; -EFAULT, said: they are too many ranges. */
struct kv_plan;
int kv_direct_ranges(const struct kv *kv, const struct kv_plan *plan);

/*
 * pieces.c. From the third on inside the engine.
 */

/* The sum of the lengths. -EINVAL, said: they are none of memory. */
int kv_pieces_size(const struct iovec *pieces, size_t count, size_t *size);

/* Copy pieces of up to `small` bytes, side by side; and back, as far as the value goes whose `length` is that of
 * all. */
void kv_pieces_gather(const struct iovec *pieces, size_t count, size_t small, char *to);
void kv_pieces_scatter(const struct iovec *pieces, size_t small, const char *from, size_t length);

/* How they are named to the server. */
struct kv_plan {
	const struct iovec *pieces;
	size_t count, small;
	size_t landing; /* bytes of the copied ones */
	size_t ranges;
	bool reached; /* nothing is to be registered */
};
void kv_pieces_plan(const struct kv *kv, const struct iovec *pieces, size_t count, struct kv_plan *plan);

/* Takes what a request needs for it; kv_pieces_give() gives it back, also after a failure. */
int kv_pieces_take(struct kv *kv, struct request *r, const struct kv_plan *plan, unsigned access,
		   struct wire_remote ranges[static WIRE_PIECES_MAX]);
void kv_pieces_give(struct kv *kv, struct request *r);
void kv_pieces_unreach(struct kv *kv, struct kv_pieces *pieces);
void kv_pieces_free(struct kv *kv);

/*
 * operations.c
 */

/* Answers for a request without room, of conn_reserve() or for a push: the caller is roused when there is some. */
static inline int kv_no_room(struct kv *kv)
{
	kv->wants_room = true;
	return conn_established(kv->conn) || (kv_keep(kv) && !kv->ending) ? -EAGAIN : -ENOTCONN;
}

/* Submit one request; *taken is its slot. Inside. -EAGAIN: no slot is free or no room, progress first; else what
 * kv_submit_set and its like return. */
int request_submit(struct kv *kv, const struct ask *ask, struct request **taken);

/* Whether the value of a request to this server stays in the caller's memory, or is to come there: 1, 0, or -errno: it
 * is refused. */
int kv_goes_large(struct kv *kv, const struct ask *ask);

/* The request whose record this is, as encode_small() made it: its bytes stay there, and whom it tells is not in it. */
void kv_ask_read(struct ask *ask, const struct wire_record *record);

/* From outside. `begun`: what kv_begin() returned; where that is not 0 so does this. Neither callback nor key may be
 * NULL. */
int kv_submit_result(struct kv *kv, int begun, struct ask *ask, kv_result_callback done, void *arg);

/* conn_ops.record */
int kv_answered(struct conn *conn, const struct wire_record *record, const void *body);

/*
 * calls.c
 */

/* A request that is waited for. */
struct kv_call {
	struct blocking b;
	struct kv *kv;
	const struct ask *ask;
	struct request *request;
	bool want_value, want_result;
	char *value; /* given back with value_release */
	size_t value_len;
	struct kv_result result; /* without the value */
};

/* The value of a callback, kept: where it landed, or a copy. Given back with value_release. NULL: no memory. Inside. */
void *kv_keep_value(struct kv *kv, const void *value, size_t value_len);

/* Submit, send, wait. -EDEADLK from inside a callback. `begun` as above. */
int kv_call(struct kv *kv, int begun, struct ask *ask, struct kv_call *call);

/*
 * handle.c
 */

/* A handle that is not connected, NULL: no memory; and its end. */
struct kv *kv_new(const char *server, const struct engine_options *options, uint32_t eager_limit);
void kv_free(struct kv *kv);

/*
 * cluster.c. Inside, but for kv_nodes_open() and kv_nodes_reopen().
 */

/* What kv_open_options, kv_close and kv_reopen do for one. */
int kv_nodes_open(const char *server, const struct rdmad_options *options, struct engine *share, struct kv **out);
void kv_nodes_close(struct kv *kv);
int kv_nodes_reopen(struct kv *kv);

/* The nodes of slots were changed: finds anew which runs are one node's. */
void kv_nodes_find_runs(struct kv_nodes *nodes);

/* The i-th handle of a server, also one that the table has no more; NULL: there are no more. Of a handle of one server
 * it is itself the first. */
static inline struct kv *kv_part(const struct kv *kv, unsigned i)
{
	if (kv->nodes)
		return i < kv->nodes->count ? kv->nodes->member[i] : NULL;
	return i == 0 ? (struct kv *)kv : NULL;
}

/* The server's table, in pages: 1 another page is to be asked for, 0 it is complete, or the server has the epoch that
 * is here; -EPROTO. */
struct kv_table_text {
	uint64_t has; /* the epoch that is here, 0: none */
	struct wire_table head;
	uint64_t at; /* so many bytes came; 0: it is the table that is here */
	unsigned restarts;
	char text[CLUSTER_TEXT_MAX];
};
int kv_table_page(struct kv_table_text *t, const char *body, size_t length);
/* The head of the request for the next page. */
struct kv_table_head {
	uint64_t epoch, offset;
};
struct kv_table_head kv_table_next(const struct kv_table_text *t);
/* It is read: the cluster goes by it from here on, if it is the newer one. 0, or -errno, logged: it is no table. */
int kv_table_take(struct kv *kv, const struct kv *from, const struct kv_table_text *t);
/* The same of a server that is asked, and waited for. */
int kv_table_learn(struct kv *kv, struct kv *from);
/* The epoch that all servers go by, which are asked; 0: they go by several, or one does not say. From outside. */
uint64_t kv_nodes_epoch(struct kv *kv);

/*
 * route.c. Inside.
 */

/* The handle of the server that has the key; NULL: none has. */
struct kv *kv_route_to(const struct kv *kv, const void *key, size_t key_len);
/* The same by the slot. */
static inline struct kv *kv_node_of(const struct kv *kv, unsigned slot)
{
	const struct kv_nodes *nodes = kv->nodes;
	struct kv *node = nodes->run[slot / KV_RUN];

	if (unlikely(!node) && nodes->node[slot] != KV_NO_NODE)
		node = nodes->member[nodes->node[slot]];
	return node;
}
/* The node that a request is submitted to, where none has its slot or requests of a cluster wait. NULL: it is to wait
 * behind others of its slot, or *rc says why it is refused. */
struct kv *kv_route_aside(struct kv *kv, const struct ask *ask, unsigned slot, int *rc);
/* What is to be told of a request that its node has not taken: `rc`, or 0: its callback is told by the next turn. */
int kv_route_failed(struct kv *kv, struct kv *node, const struct ask *ask, int rc);
/* A request was submitted to a node: what it takes to submit it to another one. Without memory for that its callback
 * will be told where another server has the key. */
void kv_route_keep(struct kv *node, const struct kv_nodes *nodes, const struct wire_record *record,
		   const struct request *r);
void kv_route_keep_large(struct kv *node, const struct ask *ask, const struct request *r);
/* A call about one key that waits, from outside: `run` is the same for one server. */
int kv_route_call(struct kv *kv, struct ask *ask, struct kv_call *call,
		  int (*run)(struct kv *kv, struct ask *ask, struct kv_call *call));
/* A request that no server takes is told its status by the next turn. 0, -EAGAIN, -ENOMEM. The second from outside. */
int kv_route_tell(struct kv *kv, const struct ask *ask, int status);
int kv_route_tell_outside(struct kv *kv, const struct ask *ask, int status);
/* A status that says that the key's server is not there, while others may be. */
bool kv_route_gone(int status);
/* A node's answer WIRE_MOVED. True: the request is seen to; false: its callback is to be told. */
bool kv_route_moved(struct kv *node, struct request *r, const struct wire_record *record, const char *body);
/* The status of a node's request whose connection ended. */
int kv_route_end_status(const struct kv *node, const struct request *r, int status);
/* Drop waiting requests, for kv_cancel() and for a batch that is given up. `told`: their callbacks are called with
 * -ECANCELED. Returns their number. */
int kv_route_drop(struct kv *kv, bool (*is)(const struct ask *ask, const void *arg), const void *arg, bool told);
void kv_route_init(struct kv *kv);
/* All that wait are told that; none waits any more. */
void kv_route_end(struct kv *kv, int status);
void kv_route_forget(struct kv *node); /* requests that it keeps */
/* A node is connected: it may have a newer table. One is not, and the others may know more, once a second. */
void kv_route_ask(struct kv *kv, struct kv *node);
void kv_route_away(struct kv *kv);

/* Requests that have no answer yet, and whose callers wait for it. */
static inline size_t kv_outstanding_of(const struct kv *kv)
{
	size_t sum = kv->nodes ? kv->nodes->waiters : 0;
	const struct kv *part;

	for (unsigned i = 0; (part = kv_part(kv, i)); i++)
		sum += part->outstanding - part->orphans;
	return sum;
}

/*
 * life.c. Inside, but for kv_join().
 */

/* The handle uses this engine, which has another holder. */
void kv_join_engine(struct kv *kv, struct engine *engine);
/* The same for a node of a cluster, and where it is, as far as the engine reaches it: 0, or -errno, logged. */
int kv_find(struct kv *kv, struct engine *engine);
/* Have a node connected from now on. */
void kv_join_soon(struct kv *kv);

/* Connect, with a new engine or the one to share; the caller is inside when it went well. Else it was logged. */
int kv_join(struct kv *kv, struct engine *share);

/* End the connection, and each request; kv_reopen() may make another. */
void kv_hang_up(struct kv *kv);

/* The last request is through, and the server was left: go. */
void kv_go(struct kv *kv);

/* Why it takes no request now: -EAGAIN: it is being made again; -ESHUTDOWN: the server is to end; -ENOTCONN. */
int kv_not_taking(const struct kv *kv);

/* The status of a request that has no answer when the connection has ended. */
int kv_end_status(const struct kv *kv, const struct request *r);

/* batch.c: what the caller submitted a request with, also one of many with one callback. */
const void *kv_caller_arg(kv_result_callback result, const void *arg);
static inline const void *request_arg(const struct request *r)
{
	return kv_caller_arg(r->result, r->result ? r->result_arg : r->arg);
}

/* queue.c: completions wait for kv_done(); and all of it goes, of a handle without requests. */
bool kv_queue_filled(const struct kv *kv);
void kv_queue_free(struct kv *kv);

/*
 * watch.c. Inside, but for the last one.
 */

/* There is a connection, or room to send: what is to be sent is. */
void kv_watch_send(struct kv *kv);
/* An answer to WATCH: as kv_answered(). */
int kv_watch_answered(struct kv *kv, const struct wire_record *record, const char *body);
/* The connection has ended; the watch goes on with the next one. */
void kv_watch_end(struct kv *kv);
/* The watch of a cluster begins anew, at each server of a new table. */
void kv_watch_follow(struct kv *kv);
/* The caller's turn behind one of the progress thread. */
void kv_watch_deliver(struct kv *kv);
/* Events, or the watch's end, wait for kv_events(). */
bool kv_watch_filled(const struct kv *kv);
void kv_watch_free(struct kv *kv);

/*
 * wait.c. Inside. One rule for all waits: too long is a time in which no answer came and no byte of a large value
 * moved, on this handle.
 */
void kv_timeout_begin(struct kv *kv);

/* The await() of struct blocking: sends, and turns until something was completed, or may be submitted again. By that
 * rule -ETIMEDOUT; while the connection is being made again -ESHUTDOWN, where the server says so, or -ENOTCONN. */
int kv_await(void *kv, uint64_t until);

void kv_timeout_init(struct kv *kv);

/*
 * error.c. What a public function does first and last, so that rdmad_error() speaks of it and of nothing else.
 */

/* 0; or -EINVAL: there is no handle; -EPERM: it is another process's. Said. Forgets what was said before. */
int kv_unusable(const struct kv *kv);
static inline int kv_begin(const struct kv *kv)
{
	log_clear_last();
	return likely(kv && kv->forks == client_forks) ? 0 : kv_unusable(kv);
}

/* The same, and that the caller gave what the call needs; else -EINVAL, with those words. */
int kv_begin_given(const struct kv *kv, bool given, const char *needs);

/* The result of a function named `what`: that of a failure is explained, unless it was; a success has no words,
 * whatever callbacks did meanwhile. */
int kv_end(const struct kv *kv, int rc, const char *what);

/* Says what the server answered to an operation, or why there is no answer. Returns status. */
int kv_explain(const struct kv *kv, int status, const struct ask *ask);

int kv_status_errno(unsigned wire_status);

#pragma GCC visibility pop

#endif
