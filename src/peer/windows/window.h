/*
 * window.h: memory that peers reach. The program that has it is its owner; each peer that it is shared with, a user,
 * gets a share of it.
 *
 *   window.c         the owner: windows, their registration, shares and their keys, the end of both
 *   notice.c  the owner: notices
 *   remote.c  the user: what is on offer and open, keys, the end
 *   op.c      operations: what is refused, their begin, their ends
 *   access.c  reads and writes: cut into pieces, under way and done again
 *   atomic.c         atomic operations: by a device, or by the owner's progress
 *
 * What they say to each other, in control messages, which are in order, once, and sent again on the next connection:
 *
 *   owner            user
 *   SHARE     ->               here is a window; no key
 *             <-     ASK the key for my connection number `epoch`: at the opening, and again on each new connection
 *   KEY       -> the same epoch: only then it is used. A key is of one connection, by fabric_window_open(), where the
 *                              provider has windows, so that no other peer reaches it; else the region's own
 *   CLOSE     ->               begin nothing more
 *             <-     CLOSED nothing of mine is under way, and nothing will be: answers CLOSE, or the user is through
 *                              with it. The share is no more, and its key void
 *             <-     NOTICE what I wrote before is there: behind the completion of the write, or, where a broken
 *                              connection is not made anew, right behind the write, which the connection keeps in order
 *   NOTICED   ->               so many notices were taken: at most WIRE_WINDOW_NOTICES are under way and kept
 *             <-     ATOMIC    an operation for the owner's progress
 *   ANSWER    ->               its result
 *   SWITCH    ->               from now on the owner carries out the atomic operations, not a device
 *             <-     SWITCHED  none of mine is under way on a device
 *
 * The end of a window: the owner says CLOSE to all users, waits for CLOSED for at most WINDOW_CLOSE_TIMEOUT, then voids
 * the keys: a user that did not answer, and goes on, meets a remote access error, which ends its connection.
 *
 * Atomic operations of one window are carried out by one, for all its users: by the device, if all of them come by one
 * engine whose device has them, and their own devices, too; else by the owner. While the last users answer SWITCHED, it
 * keeps the ATOMIC of others waiting.
 *
 * A connection that breaks: what was read and written and had not completed is done again on the next one. An atomic
 * operation that a device may have carried out fails instead; one of the owner's goes on, as control messages do.
 *
 * Promises on both sides: nothing is begun at a share that is closed, out of range, without the right or not aligned;
 * and what a peer says is refused if it breaks the rules above.
 */
#ifndef RDMAD_PEER_WINDOWS_WINDOW_H
#define RDMAD_PEER_WINDOWS_WINDOW_H

#include "peer/messages/messages.h"

#define WINDOW_CLOSE_TIMEOUT (5 * TIME_S)
#define WINDOW_GRACE (1 * TIME_S)              /* for what is under way when the time of its call is over */
#define WINDOW_PIECE ((size_t)256 * 1024)      /* of a read or write: others of the connection get between */
#define WINDOW_AHEAD ((size_t)2 * 1024 * 1024) /* bytes of pieces that are under way with one peer */
#define WINDOW_COPIED                                                                                                  \
	4096u /* bytes that are copied through a registered buffer rather than registered where they are */

/* A window's memory, as an engine's peers reach it. */
struct window_region {
	struct engine *engine;
	struct fabric_region *region;
};

struct window_notice {
	uint64_t value, share; /* the id of whose: the peer may have another one by now */
	int from;
};

/* Notices that came and were not taken. */
struct window_notices {
	struct window_notice *ring;
	uint32_t mask, head, tail; /* free-running; mask + 1 places */
};

struct rdma_window {
	struct list node; /* of ctx->windows */
	rdma_context *ctx;
	char *addr;
	size_t size;
	unsigned rights;
	bool mapped; /* the memory is the library's */
	bool closing;
	bool by_device;         /* atomic operations */
	struct engine *atomics; /* whose device; NULL: not shared yet */
	unsigned switching;     /* shares whose SWITCHED has not come */
	struct list parked;     /* ATOMICs that wait for them */
	struct window_region regions[FABRIC_TRANSPORTS];
	struct list shares;
	unsigned shared; /* how many there are */
	struct window_notices notices;
};

/* One window, for one peer. */
struct window_share {
	struct list node;      /* of the window */
	struct list peer_node; /* of the peer */
	struct rdma_window *window;
	struct peer *peer;
	uint64_t id;
	struct fabric_window *fabric; /* of the present connection, or of an earlier one; NULL: none */
	bool asked;                   /* a KEY is owed, for `epoch` */
	bool switching;
	uint64_t epoch;
	uint32_t notices; /* that came and of which the user does not know that they were taken */
	uint32_t taken;   /* of these */
	uint32_t parked;
};

struct rdma_remote {
	struct list node; /* of the peer's offers, remotes or ended */
	struct peer *peer;
	uint64_t id, addr, size;
	unsigned rights;
	bool opened;
	bool closed;   /* by the owner, or it has gone */
	bool released; /* by this program */
	bool ended;    /* CLOSED was said, or the peer has gone */
	bool by_device;
	bool keyed; /* rkey is of this connection */
	bool switching;
	uint32_t rkey;
	int refused;         /* the owner has no key: its errno */
	uint64_t asked;      /* epoch */
	uint64_t blocked;    /* in this round of the pump */
	uint32_t operations; /* not complete, of all kinds */
	uint32_t in_flight;  /* pieces on the device */
	uint32_t atomics;    /* of them, atomic operations */
	uint32_t notices;    /* under way */
	uint32_t answers;    /* awaited */
};

struct window_op;

struct window_piece {
	struct conn_transfer transfer;
	struct list node; /* in peer_window.pieces while it is free */
	struct window_op *op;
	size_t length;
};

enum window_kind { WINDOW_WRITE, WINDOW_READ, WINDOW_FETCH_ADD, WINDOW_COMPARE_SWAP };

/* An operation. Its place: `waiting` until all its pieces are posted, then `posted`; of an ATOMIC, `asked`. */
struct window_op {
	struct list node;
	struct rdma_request *request; /* NULL: given up, and only its end is awaited */
	struct rdma_remote *remote;
	enum window_kind kind;
	uint64_t offset;
	char *data;
	size_t length;
	size_t posted, done; /* bytes; done: all before have completed */
	bool begun;          /* a piece was posted since `posted` was 0: one of 0 bytes, too */
	bool counted;        /* among the remote's notices */
	bool noticed;        /* NOTICE was said */
	unsigned in_flight;  /* pieces */
	int status;          /* it has failed, and waits for its pieces */
	char *why;
	uint64_t notify;
	uint64_t operand, swap, number;
	uint64_t *before;
	struct engine *engine; /* where the memory is reached by one of the following; NULL: nowhere */
	const struct fabric_region *own;
	struct landing *landing;
	struct reach reach;
	struct window_piece first;
	bool first_used;
};

/* The windows that are open of and for a peer. */
struct peer_window {
	struct peer *peer;
	struct list shares;          /* of this program's windows */
	struct list offers, remotes; /* of the peer's windows */
	struct list ended;           /* handles that the program still has, with which nothing can be done */
	uint32_t share_count, remote_count;
	uint64_t epoch; /* of its connections */
	bool stalled;   /* this connection is ending: nothing more is posted to it */
	struct list waiting, posted, asked;
	uint32_t in_flight; /* pieces */
	size_t ahead;       /* bytes of them */
	uint64_t round, numbers;
	struct engine *engine; /* that the following is of */
	uint32_t inline_size;
	bool atomics;  /* its devices have them */
	unsigned sink; /* access of memory that reads land in */
	struct list free, pieces;
};

/* A control message's, of the length that its kind has. */
union window_body {
	struct wire_window_share share;
	struct wire_window_ask ask;
	struct wire_window_key key;
	struct wire_window_id which;
	struct wire_window_atomic atomic;
	struct wire_window_answer answer;
	struct wire_window_notice notice;
};

/* NULL: no memory. */
struct peer_window *peer_window_of(struct peer *peer);
/* Sets in *pw what the peer's engine can do. */
void peer_window_update(struct peer_window *pw);

/* Control messages that cannot be lost: without memory, the peer is. */
void window_say(struct peer *peer, enum wire_control_kind kind, const void *body, size_t length);
void window_say_id(struct peer *peer, enum wire_control_kind kind, uint64_t id);

/*
 * window.c
 */
struct window_share *share_find(struct peer *peer, uint64_t id);
/* NULL: it is not registered there. */
const struct fabric_region *window_region_find(const struct rdma_window *window, const struct engine *engine);
/* By its user. */
struct window_share *share_of(const struct rdma_window *window, int peer);
void share_free(struct window_share *share);

/*
 * notice.c
 */
int window_notice_came(struct peer *peer, const union window_body *body);

/*
 * remote.c
 */
struct rdma_remote *remote_find(struct peer_window *pw, uint64_t id);
int remote_offered(struct peer *peer, const union window_body *body);
int remote_key(struct peer *peer, const union window_body *body);
int remote_close_asked(struct peer *peer, const union window_body *body);
int remote_noticed(struct peer *peer, const union window_body *body);
/* An operation of it is complete: what waited for that. It may be freed by it. */
void remote_settle(struct rdma_remote *remote);
/* Each asks for its key on the connection that is there now. */
void remotes_ask_keys(struct peer_window *pw);
/* The peer has gone. */
void remotes_lost(struct peer_window *pw);
void remotes_free(struct peer_window *pw);

/*
 * op.c
 */
/* In sentences: "read". */
const char *op_verb(enum window_kind kind);
/* Whether the operation may be begun; if not rdma_fail() was called. */
bool op_check(const struct rdma_remote *remote, enum window_kind kind, uint64_t offset, const void *data,
	      size_t length);
/* NULL: no memory, rdma_fail() was called. */
struct window_op *op_new(struct rdma_remote *remote, enum window_kind kind, uint64_t offset, void *data, size_t length);
/* Behind the operations that wait. The request to wait for. */
struct rdma_request *op_begin(struct window_op *op);
/* Ended: completes its request, and it is free. With `status` its `why` says more, if there is one. */
void op_end(struct window_op *op, int status);
/* Fails it, now or when its pieces are back. */
void op_fail(struct window_op *op, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The operations of a remote that wait, or with NULL all of the peer's, end; those with pieces under way do so with
 * these. */
void ops_fail(struct peer_window *pw, const struct rdma_remote *remote, int status, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
void ops_free(struct peer_window *pw);

/*
 * access.c
 */
/* Its memory is where the connection's engine reaches it: 0 or -errno, logged. And not any more. */
int op_reach(struct peer_window *pw, struct window_op *op);
void op_unreach(struct window_op *op);
struct fabric_sge op_sge(const struct window_op *op, size_t at, size_t length);
/* The memory of a piece: NULL: there is none. Then it was posted, or goes back. */
struct window_piece *piece_take(struct peer_window *pw, struct window_op *op, size_t length);
void piece_posted(struct peer_window *pw, struct window_piece *piece);
void piece_give(struct peer_window *pw, struct window_piece *piece);
/* Posts what can be. */
void window_pump(struct peer_window *pw);
/* The connection has gone, and nothing is under way: all that was is to be posted again. */
void ops_rewind(struct peer_window *pw);

/*
 * atomic.c
 */
/* Whether a device can go on to carry them out, if this peer is a user, too. */
bool window_may_device(const struct rdma_window *window, const struct peer *peer);
/* From now on the owner carries them out. */
void window_switch(struct rdma_window *window);
/* The share is no more: refuses the operations that wait for it. */
void atomic_forget(struct window_share *share);
int atomic_switched(struct peer *peer, const union window_body *body);
int atomic_switch(struct peer *peer, const union window_body *body);
int atomic_asked(struct peer *peer, const union window_body *body);
int atomic_answered(struct peer *peer, const union window_body *body);
/* Says SWITCHED when none is under way. */
void remote_switch_settle(struct rdma_remote *remote);
/* Post or send one: 0, -EAGAIN: later; -EBUSY: not before something of its remote's. */
int atomic_advance(struct peer_window *pw, struct window_op *op);

#endif
