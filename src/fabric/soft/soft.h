/*
 * soft.h: the objects of the soft provider. Private to fabric/soft*.c.
 *
 * Each queue has one epoll instance, edge-triggered for endpoints; what an edge no longer
 * announces (bytes left over when a turn's budget was spent, an owed ACK, a flush that waits
 * for room) stands in the list `ready` of the queue and is continued by the next poll.
 */
#ifndef RDMAD_FABRIC_SOFT_H
#define RDMAD_FABRIC_SOFT_H

#include <pthread.h>
#include <sys/uio.h>

#include "base/local.h"
#include "fabric/provider.h"
#include "fabric/soft/frame.h"
#include "fabric/soft/rings.h"

#define SOFT_INLINE 256                       /* payloads up to this are copied */
#define SOFT_PULLS 128                        /* said of pushes before they come */
#define SOFT_SHORT_PUSH 16384                 /* up to this, a system call for each takes longer than the bytes */
#define SOFT_SMALL 64                         /* writes up to this take effect at once, whole words */
#define SOFT_STAGE (SOFT_HEADER + 4096)       /* so no more of a large payload is copied */
#define SOFT_BUDGET (SOFT_PIECE + SOFT_STAGE) /* bytes that an endpoint moves before others that wait do */
/* While none comes, 64 small requests and an ACK before them come by one call: where so many frames in a row had
 * none. */
#define SOFT_STAGE_MOST (2 * SOFT_HEADER + 8192)
#define SOFT_ROW 256
/* Bytes that all of them move in one turn: 1 MiB of payload and what goes with it, so that no turn ends a few bytes
 * before a value does. Then each may still send and receive what is small. */
#define SOFT_TURN ((size_t)4 * SOFT_BUDGET)
#define SOFT_VISIT ((size_t)2048) /* what it costs to come to an endpoint, as bytes */
#define SOFT_BATCH 128            /* frames in one system call */
#define SOFT_MAX_READS 128
#define SOFT_MAX_DEPTH 65536
#define SOFT_MAX_COMPLETIONS (64 * SOFT_MAX_DEPTH) /* memory that is touched when there are so many at once */
#define SOFT_MAX_REQUESTS 256                      /* sockets without a complete request, or not yet pulled */
#define SOFT_MAX_LINGERS 256
#define SOFT_DEADLINE (2 * TIME_S)     /* to complete a request, to send an ERROR */
#define SOFT_LINGER_TIME TIME_S        /* for the peer to take our last bytes */
#define SOFT_ORPHAN_TIME (60 * TIME_S) /* for its program to read them, when ours is gone */
#define SOFT_TICK_MS 250               /* how often deadlines are looked at */
#define SOFT_TICKS 4u                  /* of the timer between two looks at an endpoint */
#define SOFT_RETRY_MS 10               /* after the kernel had no memory to send */
#define SOFT_FEW 2                     /* endpoints that are read without asking epoll */
#define SOFT_SKIP 16                   /* polls of those few between two looks at epoll */
#define SOFT_NEAR_TIME (20 * TIME_US)  /* how long epoll is not asked while there is work for the caller ... */
#define SOFT_NEAR_BYTES 4096           /* ... of messages of so many bytes in a poll, which may mean long work */
#define SOFT_NEAR_QUIET 256            /* polls without a byte after which an endpoint is not near any more */
#define SOFT_NEAR_ALONE 64             /* messages that one of few brings until epoll is not told of it any more */
#define SOFT_RINGS_FEW 16              /* endpoints with rings that are checked by each poll, awake or not */
#define SOFT_CROWD 64             /* looks at epoll with something, for which none is near when more than few had */
#define SOFT_PATIENCE 8u          /* polls that an ACK waits to travel with a reply */
#define SOFT_DROPPED ((void *)-1) /* context of a completion whose endpoint was destroyed */
#define SOFT_NO_KEY 1u            /* never given out: generation 0 */

struct soft_fabric {
	struct fabric base;
	pthread_mutex_t lock;
	struct list queues;    /* under lock */
	uint32_t lost_ms;      /* a host silent for so long is lost */
	uint32_t check_ms;     /* between two looks at what may have stalled */
	uint32_t stall_checks; /* at so many of them a frame may be where it was */
	uint8_t traffic_class;
};

/* Regions: region.c */
struct soft_slot {
	_Atomic uint32_t key; /* 0: free or being deregistered */
	uint16_t generation;
	uint16_t next_free;
	unsigned access;
	uint64_t start, len;
	uint64_t only; /* a window: the endpoint of this serial; 0: every endpoint of the domain */
};

#define SOFT_CHUNK 256
#define SOFT_CHUNKS 256

struct soft_domain {
	struct fabric_domain base;
	struct soft_fabric *fabric;
	_Atomic(struct soft_slot *) chunk[SOFT_CHUNKS];
	pthread_mutex_t lock; /* for what follows */
	uint32_t used;        /* slots handed out at least once */
	uint16_t free;        /* list of others, valid when free_count */
	uint32_t free_count;
	uint64_t random;
};

struct soft_region {
	struct fabric_region base;
	struct soft_domain *domain;
	uint32_t key;
	void *map; /* of a dmabuf; NULL: it is none */
	size_t map_len;
};

struct soft_window {
	struct fabric_window base;
	struct soft_region region; /* of the window's range and key */
};

/* The key of memory that is to be in `domain`; SOFT_NO_KEY: it is not, or is none. */
static inline uint32_t soft_region_key(const struct soft_domain *domain, const struct fabric_region *base)
{
	const struct soft_region *region = container_of(base, const struct soft_region, base);

	return base && region->domain == domain ? region->key : SOFT_NO_KEY;
}

/* Kinds of objects that an epoll event points at. */
enum soft_kind { SOFT_KICK, SOFT_TIMER, SOFT_LISTENER, SOFT_REQUEST, SOFT_ENDPOINT, SOFT_LINGER };

struct soft_source {
	enum soft_kind kind;
	int fd;           /* -1: closed, to be freed */
	struct list link; /* in the list of the queue that has such objects, at last in `buried` */
};

/* A connection event that waits to be pulled; it lies in the object that it tells of. */
struct soft_note {
	struct list link;
	enum fabric_event_type type;
	void *object; /* endpoint, or request for FABRIC_REQUEST */
};

struct soft_recv {
	uint64_t id;
	uint8_t *addr;
	size_t len;
	uint32_t key;
};

/* Targets of the next pushes. */
struct soft_pull {
	struct soft_recv to;
	unsigned drop; /* not 0: so many are not wanted, and `to` is nothing */
};

struct soft_recvs {
	struct soft_recv *ring;
	uint32_t mask, depth, head, tail;
	uint32_t held; /* taken out by a message that has not arrived entirely */
};

enum soft_part { SOFT_PART_NONE, SOFT_PART_CONTROL, SOFT_PART_RESPONSE, SOFT_PART_REQUEST };

/* The frames of one system call; scratch memory of the queue. */
struct soft_batch {
	unsigned iovs, frames;
	size_t bytes, copied, most;
	struct iovec iov[3 * SOFT_BATCH + 1];
	struct {
		enum soft_part part;
		uint64_t left; /* bytes of the frame not sent before, also those beyond the budget */
	} frame[SOFT_BATCH];
	uint8_t copy[SOFT_BATCH * (SOFT_HEADER + SOFT_INLINE)];
};

struct soft_queue {
	struct fabric_queue base;
	_Alignas(CACHE_LINE) _Atomic uint32_t section; /* odd while caller memory may be touched */
	_Alignas(CACHE_LINE) struct soft_fabric *fabric;
	struct soft_domain *domain;
	struct list link; /* in fabric->queues */
	int epoll_fd, reserve_fd;
	struct soft_source kick, timer;
	uint32_t timer_ms; /* 0: off */
	bool armed, kicked, polled;
	bool moved;  /* many bytes; see fabric_moving() */
	bool served; /* a read or write of the peer, of which the caller is not told; see fabric_moving() */
	struct {
		size_t allowance; /* bytes that this turn may still move */
		size_t share;     /* of them, what one endpoint may have: all if no other waits */
		uint32_t number;  /* counts the polls */
	} turn;
	struct {
		struct fabric_completion *ring;
		uint32_t mask, head, tail, depth;
	} cq;
	struct {
		struct soft_recvs shared;
		uint32_t wanted;       /* of all endpoints */
		struct list starved;   /* endpoints that wait for a shared receive */
		struct list borrowing; /* endpoints whose message has come in part and holds one */
	} recvs;

	struct list endpoints;   /* those with a socket and no rings */
	unsigned endpoint_count; /* of them, the ones that are read */
	unsigned connecting, blocked;
	struct {
		struct list list;  /* of many endpoints the few that are read, too; see near.c */
		struct list alone; /* of the few, the ones that epoll is not told of */
		unsigned count;    /* of `list` */
		unsigned crowd;
		unsigned skipped; /* polls since the last check of epoll */
		uint64_t worked;  /* bytes and number of what the last poll had for its caller */
		uint64_t asked;   /* the time of the last check of epoll, while there are any near */
	} near;
	struct {
		struct list list;     /* endpoints with rings; see rings.c */
		struct list awake;    /* rings that are checked by each poll */
		struct list roomless; /* rings whose room is */
		unsigned count, awake_count, roomless_count;
	} rings;
	unsigned given;    /* endpoints of TCP that have rings of ours */
	struct list ready; /* endpoints to be continued by the next poll */
	struct list later; /* endpoints for whose bytes the kernel had no memory */
	struct {
		struct list list; /* endpoints with something under way, in the order of the last check; see look.c */
		uint64_t tick;    /* when the timer last fired */
		bool more;        /* more are to be checked than one turn may */
	} check;
	struct {
		struct list list; /* endpoints that owe an ACK, for which a post that would carry it is awaited ... */
		struct list now;  /* ... and those for which it is not */
		bool more;        /* some ACKs might have gone, and this turn could do no more */
	} owing;
	struct list notes, listeners, requests, lingers, buried;
	struct pending asking; /* requests that are incomplete */
	unsigned request_count, linger_count;

	struct soft_batch *batch;
	uint8_t *dropped; /* where pushes go that are not wanted; NULL until there is one */
	uint8_t stage[SOFT_STAGE_MOST];
};

struct soft_listener {
	struct fabric_listener base;
	struct soft_source source;
	struct soft_queue *queue;
	void *context;
	bool paused; /* no descriptors: tried again by the timer */
	uint16_t port;
	char congestion[16];    /* the system's choice; "" of a UNIX socket */
	struct local_file file; /* of a UNIX socket that has one; else its path is "" */
};

/* The peer's identity. What a peer calls itself (the path that its UNIX socket is bound to) says nothing: the kernel
 * does. */
struct soft_peer {
	struct sockaddr_storage address;
	bool asked; /* by a UNIX socket: it is process `pid` of user `uid` */
	bool local; /* by whatever socket of this machine: it is of user `uid` */
	pid_t pid;
	uid_t uid;
};

struct soft_request {
	struct fabric_request base;
	struct soft_source source; /* in queue->requests until it is pulled */
	struct soft_note note;
	struct soft_queue *queue; /* the listener's, of no meaning once pulled */
	struct soft_listener *listener;
	struct pending_entry asking; /* until it is complete, and offered to the caller */
	uint32_t have;
	uint8_t reads_out, reads_in; /* what the peer wants and serves */
	uint8_t data_len;
	uint8_t buf[SOFT_HEADER + FABRIC_REQUEST_DATA];
	struct soft_peer peer;
};

/* A socket that sent its last byte and reads on so that no reset overtakes those bytes. */
struct soft_linger {
	struct soft_source source;
	uint64_t deadline;
};

/* In the order of an endpoint's life: soft_set_state() alone writes it, and it only rises. */
enum soft_state {
	SOFT_CONNECTING, /* the socket is */
	SOFT_ASKING,     /* CONNECT is sent */
	SOFT_TAKEN,      /* to be accepted by the caller */
	SOFT_OPEN,
	SOFT_REFUSING, /* answers that precede an ERROR, then that, then it fails */
	SOFT_FLUSHING, /* no socket any more; completions wait for room */
	SOFT_DEAD,
};

struct soft_seg {
	uint8_t *addr;
	size_t len;
	uint32_t key; /* 0: memory of ours */
};

struct soft_wr {
	uint64_t id;
	uint64_t len, remote_addr;
	uint32_t imm, rkey;
	uint64_t got; /* bytes that have come of a READ */
	uint8_t opcode, signaled, segs;
	uint8_t done; /* a READ: all its data is here; a PUSH: it has completed */
	struct soft_seg seg[FABRIC_MAX_SGE];
};

struct soft_response {
	uint64_t addr, len;
	uint64_t sent; /* of it in complete pieces */
	uint32_t key, number;
};

/* On the way from a socket to memory that both ends share; see share.c. */
enum soft_share {
	SOFT_SHARE_NOT,
	SOFT_SHARE_OFFERED, /* the client may ask */
	SOFT_SHARE_ASKED,   /* the client waits for the answer, and sends nothing */
	SOFT_SHARE_DUE,     /* the client is to be answered: whether there is an `offer` */
	SOFT_SHARE_TOLD,    /* the answer is under way, and nothing follows it by the socket */
};

enum soft_phase { SOFT_PHASE_HEADER, SOFT_PHASE_BEGIN, SOFT_PHASE_PAYLOAD, SOFT_PHASE_FINISH };

struct soft_endpoint {
	struct fabric_endpoint base;
	struct soft_source source; /* in queue->endpoints or ringed while it has a socket */
	struct list ready;         /* in queue->ready */
	struct list later;         /* in queue->later */
	struct soft_queue *queue;
	struct soft_domain *domain;
	uint64_t serial; /* never again of another endpoint */
	void *context;
	enum soft_state state;
	bool unix_socket, hung_up;
	bool undecided;           /* nothing behind ACCEPT is read: it may be encrypted */
	bool encrypted;           /* by the kernel; see tls.c */
	bool tx_wanted;           /* there may be something to send */
	struct soft_rings *rings; /* NULL: the socket carries its frames */
	struct soft_rings *offer; /* rings that may come to be used; NULL: none */
	bool memory;              /* its caller would share some */
	bool given;               /* of TCP, and has rings of ours: counted in queue->given */
	bool announced;           /* the caller was told that it is open */
	bool admitted;            /* the peer may reach memory */
	enum soft_share share;
	int share_fd;      /* of the client: where the memory comes, or (UNIX) that has come; -1: none */
	uint64_t deadline; /* of REFUSING */
	uint32_t heard;    /* reads that brought bytes */
	uint64_t moved;    /* of reads and writes; see fabric_moved_bytes() */
	uint32_t shared;   /* of queue->recvs.wanted */
	struct soft_peer peer;
	struct {
		struct list link;  /* in queue->near.list ... */
		uint32_t quiet;    /* ... and nothing has come in so many polls */
		struct list alone; /* in queue->near.alone ... */
		uint32_t news;     /* ... since so many polls had brought something */
	} near;
	struct {
		struct list link; /* in queue->owing.list or .now ... */
		uint32_t since;   /* ... since this turn */
	} owing;
	struct {
		struct list link; /* in queue->check.list */
		uint64_t tick;    /* of the last check; see look.c */
		uint32_t silent;  /* checks since the frame at hand got on */
		uint32_t owed;    /* checks in a row at which the peer had bytes to acknowledge */
		uint32_t heard;   /* as of the last check */
	} check;

	/* Send queue: tail <= sent <= head, free-running. A request's index is its number in
	 * the stream. It stays until the peer has it: the peer's ACKs, asked for by the signaled
	 * ones, are cumulative. So the peer's refusal always finds its request here. */
	struct {
		struct soft_wr *ring;
		uint32_t mask, depth, head, sent, tail, acked, kept;
		uint8_t *copies; /* payloads of SOFT_INLINE that the socket did not take; NULL until there are any */
	} sq;
	struct {
		uint32_t *ring; /* indices of READs in flight */
		uint32_t mask, head, tail;
	} reads;
	uint8_t reads_wanted, reads_out;
	struct {
		struct soft_response *ring; /* READs of the peer that are to be answered */
		uint32_t mask, head, tail;
	} responses;
	uint8_t reads_in;

	/* The stream out. */
	struct {
		enum soft_part part; /* which frame is sent in part ... */
		uint64_t part_sent;  /* ... and how much of it */
		bool blocked;        /* it waits for room */
		bool watched;        /* ... of which epoll tells */
		bool turn;           /* of answers, before requests */
		bool ack_due;
		uint32_t control_len;
		uint8_t control[SOFT_HEADER + FABRIC_ACCEPT_DATA];
	} out;
	struct {
		uint32_t number; /* of the request */
		enum soft_refusal why;
		bool sent;
	} refusal;

	/* The stream in. */
	enum soft_phase phase;
	uint32_t header_have;
	uint8_t header[SOFT_HEADER];
	struct soft_frame frame;
	uint32_t rx_number; /* of the next request */
	struct {            /* where the payload goes */
		struct soft_seg seg[FABRIC_MAX_SGE];
		struct soft_domain *domain;
		unsigned right;
		uint8_t segs, at;
	} target;
	uint16_t row; /* frames since one had a large payload, up to SOFT_ROW */
	uint64_t left;
	_Alignas(8) uint8_t small[SOFT_SMALL]; /* payload of a small write until it is complete */
	uint8_t *leftover;                     /* staged bytes that wait while it is starved */
	uint32_t leftover_at, leftover_len;
	struct soft_recvs recvs;
	struct {
		struct soft_recv to;   /* of the message at hand */
		bool held;             /* `to` is taken from its queue and not completed */
		bool starved;          /* it waits for one */
		struct list starving;  /* in queue->recvs.starved */
		struct list borrowing; /* in queue->recvs.borrowing */
		uint8_t *aside;        /* the message at hand, if its receive went to another */
	} recv;
	struct {
		struct soft_pull *ring; /* of SOFT_PULLS; NULL until there is any */
		uint32_t head, tail;
	} pulls;

	/* How it ended. */
	struct {
		bool used; /* request `index` completes with `status` */
		uint32_t index;
		enum fabric_status status;
	} blame;
	int error;
	struct soft_note opened, closed;
	uint8_t data_len;
	uint8_t data[FABRIC_ACCEPT_DATA];
};

enum soft_step {
	SOFT_GO,
	SOFT_WAIT, /* for a receive or for room: try the same frame again */
	SOFT_END,  /* the endpoint failed or refuses */
};

/* soft.c */

/* Caller memory is touched only between these two; see region.c. */
static inline bool soft_section_inside(const struct soft_queue *q)
{
	return atomic_load_explicit(&q->section, memory_order_relaxed) % 2;
}

static inline void soft_section_enter(struct soft_queue *q)
{
	must(!soft_section_inside(q));
	atomic_exchange(&q->section, atomic_load_explicit(&q->section, memory_order_relaxed) + 1);
}

static inline void soft_section_leave(struct soft_queue *q)
{
	must(soft_section_inside(q));
	atomic_store_explicit(&q->section, atomic_load_explicit(&q->section, memory_order_relaxed) + 1,
			      memory_order_release);
}

static inline bool soft_cq_room(const struct soft_queue *q)
{
	return q->cq.head - q->cq.tail < q->cq.depth;
}

static inline void soft_cq_push(struct soft_queue *q, const struct fabric_completion *c)
{
	must(soft_cq_room(q));
	q->cq.ring[q->cq.head++ & q->cq.mask] = *c;
}

/* Let the next poll continue it. */
static inline void soft_ready(struct soft_endpoint *ep)
{
	if (!list_linked(&ep->ready))
		list_add_tail(&ep->queue->ready, &ep->ready);
}

/* Its room for bytes is not waited for any more. */
void soft_rings_unblock(struct soft_endpoint *ep);

static inline void soft_unblock(struct soft_endpoint *ep)
{
	if (ep->rings && ep->out.blocked)
		soft_rings_unblock(ep);
	else
		ep->queue->blocked -= ep->out.blocked;
	ep->out.blocked = false;
}

/* Bytes that an endpoint may move now, and the account of them. */
static inline size_t soft_budget(const struct soft_queue *q)
{
	return MIN(MAX(q->turn.allowance, (size_t)SOFT_STAGE), q->turn.share);
}

static inline void soft_spend(struct soft_queue *q, size_t bytes)
{
	q->turn.allowance -= MIN(q->turn.allowance, bytes);
}

/* Make the queue's descriptor readable if the caller has something to fetch. Last call of
 * each entry into the provider. */
void soft_settle(struct soft_queue *q);
/* Deadlines are to be looked at every `ms` or more often. */
void soft_timer_want(struct soft_queue *q, uint32_t ms);
int soft_watch(struct soft_queue *q, struct soft_source *source, uint32_t events, bool add);
void soft_unwatch(struct soft_queue *q, struct soft_source *source);
/* No event names the source after this turn. Closing alone does not see to that while another process has the socket,
 * too: one that was forked, if only until its exec. */
void soft_source_close(struct soft_queue *q, struct soft_source *source);
/* Close it, and free the source's object at the end of the turn: an event may still name it. */
void soft_bury_later(struct soft_queue *q, struct soft_source *source);
void soft_note_post(struct soft_queue *q, struct soft_note *note, enum fabric_event_type type, void *object);
/* Log a peer's fault; the log holds back a flood of them. */
void soft_complain(const struct soft_peer *peer, const char *what);
uint32_t soft_ring_size(uint32_t depth);

/* region.c: the entries of the provider, and */

/* Is [addr, addr+len) within the region of `key`, or a window of `ep`, with `right`? Within a section only. */
bool soft_region_check(const struct soft_endpoint *ep, struct soft_domain *d, uint32_t key, uint64_t addr, uint64_t len,
		       unsigned right);
int soft_domain_create(struct fabric *fabric, struct fabric_domain **out);
void soft_domain_destroy(struct fabric_domain *domain);
int soft_register(struct fabric_domain *domain, void *addr, size_t len, unsigned access, struct fabric_region **out);
int soft_register_dmabuf(struct fabric_domain *domain, const struct fabric_dmabuf *dmabuf, void *addr, size_t len,
			 unsigned access, struct fabric_region **out);
void soft_deregister(struct fabric_region *region);
uint32_t soft_rkey(const struct fabric_region *region, const struct fabric_endpoint *endpoint);
int soft_window_open(struct fabric_endpoint *endpoint, const struct fabric_region *region, void *addr, size_t len,
		     unsigned access, struct fabric_window **out);
void soft_window_close(struct fabric_window *window);

/* connect.c */
int soft_listen(struct fabric_queue *queue, const struct sockaddr *sa, socklen_t len, void *context,
		struct fabric_listener **out);
uint16_t soft_listener_port(const struct fabric_listener *listener);
void soft_listener_close(struct fabric_listener *listener);
int soft_connect(struct fabric_queue *queue, struct fabric_domain *domain, const struct sockaddr *sa, socklen_t len,
		 const struct fabric_endpoint_attr *attr, const void *data, size_t data_len,
		 struct fabric_endpoint **out);
int soft_take(struct fabric_queue *queue, struct fabric_domain *domain, struct fabric_request *request,
	      const struct fabric_endpoint_attr *attr, struct fabric_endpoint **out);
int soft_accept(struct fabric_endpoint *endpoint, const void *data, size_t data_len);
/* A greeting and private data to a socket whose buffer is empty: they fit, or it is broken. */
int soft_greet(int fd, enum soft_op op, uint32_t key, uint32_t arg, const void *data, size_t data_len);
void soft_reject(struct fabric_request *request, const void *data, size_t data_len);
char *soft_request_peer(const struct fabric_request *request, char *buf, size_t size);
void soft_request_source(const struct fabric_request *request, struct fabric_source *out);
void soft_listener_run(struct soft_queue *q, struct soft_source *source, uint32_t events);
void soft_request_run(struct soft_queue *q, struct soft_source *source, uint32_t events);
/* The socket of a CONNECTING endpoint is connected or failed. */
void soft_connect_run(struct soft_endpoint *ep);
/* Deadlines of requests, pauses of listeners. True while any is left. */
bool soft_connect_tick(struct soft_queue *q, uint64_t now);
void soft_requests_drop(struct soft_queue *q, const struct soft_listener *listener);
extern const struct pending_attr soft_requests_asking; /* of queue->asking */

/* endpoint.c */
struct soft_cause {
	bool linger; /* our last bytes matter */
	bool blame;  /* request `index` completes with `status` */
	bool untold; /* it was open, and the caller was not told */
	uint32_t index;
	enum fabric_status status;
	int error;                    /* of the event, while it was not open */
	enum fabric_event_type event; /* 0 or FABRIC_REJECTED or FABRIC_UNREACHABLE */
};

int soft_endpoint_create(struct soft_queue *q, struct soft_domain *d, const struct fabric_endpoint_attr *attr,
			 struct soft_endpoint **out);
/* Give it its socket, which it then owns. */
void soft_endpoint_adopt(struct soft_endpoint *ep, int fd, const struct soft_peer *peer);
/* Close the socket, flush, tell. The caller must look at the state after any call that may
 * come here. */
void soft_fail(struct soft_endpoint *ep, const struct soft_cause *cause);
void soft_fail_socket(struct soft_endpoint *ep, int error);
void soft_fail_protocol(struct soft_endpoint *ep, const char *what);
/* Answer request `number` by an ERROR and fail. */
void soft_refuse(struct soft_endpoint *ep, uint32_t number, enum soft_refusal why);
void soft_flush(struct soft_endpoint *ep);
/* The events that epoll watches for an open endpoint. */
uint32_t soft_endpoint_events(const struct soft_endpoint *ep);
/* Both greetings are exchanged: watch the socket, tell. */
void soft_endpoint_opened(struct soft_endpoint *ep);
void soft_set_state(struct soft_endpoint *ep, enum soft_state state);
/* The caller hears that it is open, once. */
void soft_announce(struct soft_endpoint *ep);
int soft_admit(struct fabric_endpoint *endpoint);

/* tls.c */

int soft_encrypts(void);
int soft_encrypt(struct fabric_endpoint *endpoint, const struct fabric_secret *sends,
		 const struct fabric_secret *receives);
bool soft_exposed(const struct sockaddr *sa);
bool soft_request_exposed(const struct fabric_request *request);
bool soft_hung_up(struct fabric_endpoint *endpoint);
void soft_disconnect(struct fabric_endpoint *endpoint);
void soft_endpoint_destroy(struct fabric_endpoint *endpoint);
int soft_endpoint_local(const struct fabric_endpoint *endpoint, struct sockaddr_storage *out);
void soft_endpoint_source(const struct fabric_endpoint *endpoint, struct fabric_source *out);
char *soft_endpoint_peer(const struct fabric_endpoint *endpoint, char *buf, size_t size);
const struct fabric_transport *soft_endpoint_transport(const struct fabric_endpoint *endpoint);
void soft_endpoint_run(struct soft_queue *q, struct soft_source *source, uint32_t events);
void soft_endpoint_continue(struct soft_endpoint *ep);
void soft_linger_run(struct soft_queue *q, struct soft_source *source, uint32_t events);
bool soft_linger_tick(struct soft_queue *q, uint64_t now);
char *soft_peer_format(const struct soft_peer *peer, char *buf, size_t size);
void soft_peer_source(const struct soft_peer *peer, struct fabric_source *out);

/* For want of a receive, or of a word about a push: it does not read, so it does not see the stream's end. */
bool soft_stands_still(const struct soft_endpoint *ep);

/* share.c: a connection within one machine comes to share memory */

/* May the client be told that it can ask? *memory: not -1, and to be passed along; the caller closes it. */
bool soft_share_offer(struct soft_endpoint *ep, int *memory);
/* Forgets a share of which the peer was not told. */
void soft_share_forget(struct soft_endpoint *ep);
/* As recv() without waiting, of a UNIX socket to whose server there is no connection yet; keeps memory that comes with
 * it. */
ssize_t soft_share_read(struct soft_endpoint *ep, void *bytes, size_t size);
/* Asks, unless that cannot be or is not wanted. */
void soft_share_ask(struct soft_endpoint *ep);
enum soft_step soft_begin_share(struct soft_endpoint *ep, const struct soft_frame *f);
enum soft_step soft_finish_share(struct soft_endpoint *ep);
/* The client has its answer. */
void soft_share_told(struct soft_endpoint *ep);
void soft_share_leave(struct soft_endpoint *ep);

/* near.c: the few that are read without asking epoll. Within a section. */

/* One more endpoint is read. */
void soft_near_more(struct soft_queue *q);
/* Read them. True: epoll need not be asked in this turn. */
bool soft_near_progress(struct soft_queue *q);
/* Epoll told of so many. */
void soft_near_found(struct soft_queue *q, int found);
/* Epoll told of an endpoint, and bytes had come. */
void soft_near_heard(struct soft_endpoint *ep);
void soft_near_leave(struct soft_endpoint *ep);
/* Epoll is told of it, of all of them, again. */
int soft_near_watch(struct soft_endpoint *ep);
void soft_near_watch_all(struct soft_queue *q);

/* rings.c: memory that both ends share */

/* Makes rings, to be passed as *fd, which the caller closes. NULL: there is no memory, and the socket will do. */
struct soft_rings *soft_rings_create(int *fd);
/* The rings that came as `fd`, which is closed. NULL: it is nothing that can be used. */
struct soft_rings *soft_rings_take(int fd);
void soft_rings_free(struct soft_rings *r);
/* From now on the frames of `ep` go by the rings in `offer`. */
void soft_rings_open(struct soft_endpoint *ep, bool client);
/* Room for `len` bytes in one piece, to be filled and committed; NULL: not now. */
uint8_t *soft_rings_reserve(struct soft_endpoint *ep, size_t len);
void soft_rings_commit(struct soft_endpoint *ep, size_t len);
/* Sends as many bytes as there is room for; -1: the endpoint failed. */
ssize_t soft_rings_send(struct soft_endpoint *ep, const struct iovec *iov, unsigned iovs);
/* There was no more room: when there is, it goes on. */
void soft_rings_block(struct soft_endpoint *ep);
/* Work off a piece of what is there. False when there is no more to do now. */
bool soft_rings_receive(struct soft_endpoint *ep, size_t *budget);
/* Its socket told something. */
void soft_rings_run(struct soft_endpoint *ep, uint32_t events);
/* Check the rings that are awake. */
void soft_rings_progress(struct soft_queue *q);
/* The caller may sleep: from now on each tells by its socket. */
void soft_rings_arm(struct soft_queue *q);
/* The kernel had no memory to wake the peer. */
void soft_rings_tell_again(struct soft_endpoint *ep);
void soft_rings_leave(struct soft_endpoint *ep);

/* Is there one that only epoll tells of? */
static inline bool soft_rings_doze_any(const struct soft_queue *q)
{
	return q->rings.count > SOFT_RINGS_FEW && q->rings.count > q->rings.awake_count;
}

/* look.c */
void soft_check_begin(struct soft_endpoint *ep);
bool soft_host_lost(const struct fabric_endpoint *endpoint, uint64_t ns);

/* Notes that something is under way that may never arrive or never end. */
static inline void soft_watched(struct soft_endpoint *ep)
{
	if (unlikely(!list_linked(&ep->check.link)))
		soft_check_begin(ep);
}

/* Check the endpoints whose time has come. */
uint32_t soft_check_tick(struct soft_queue *q, uint64_t now); /* the next tick in so many ms, 0: none */
void soft_check_continue(struct soft_queue *q);               /* where the last turn stopped */

/* send.c */
int soft_post(struct fabric_endpoint *endpoint, const struct fabric_wr *chain);
/* Send what can be sent, complete what thereby is. Within a section. */
void soft_transmit(struct soft_endpoint *ep);
/* Complete what is done, in order. */
void soft_retire(struct soft_endpoint *ep);
void soft_wr_complete(struct soft_endpoint *ep, const struct soft_wr *wr, enum fabric_status status);

/* recvs.c */
int soft_recvs_create(struct soft_recvs *r, uint32_t depth);
int soft_post_recv(struct fabric_queue *queue, struct fabric_endpoint *endpoint, const struct fabric_recv *recv,
		   unsigned count);

static inline struct soft_recvs *soft_recvs_of(struct soft_endpoint *ep)
{
	return ep->recvs.ring ? &ep->recvs : &ep->queue->recvs.shared;
}

/* Does an endpoint wait for a shared receive that is there, or borrowed? */
static inline bool soft_recvs_wanted(const struct soft_queue *q)
{
	return unlikely(!list_empty(&q->recvs.starved)) &&
	       (q->recvs.shared.head != q->recvs.shared.tail || !list_empty(&q->recvs.borrowing));
}

/* Lets as many waiting endpoints go on with the next poll as there are receives. */
void soft_recvs_feed(struct soft_queue *q);
/* Take a receive for the frame at hand. Within a section. */
enum soft_step soft_recv_take(struct soft_endpoint *ep);
/* Complete it. There is room. */
void soft_recv_complete(struct soft_endpoint *ep, enum fabric_status status);
/* The rest of the message at hand is not here yet: if it has a shared receive, others may have that. */
void soft_recv_lend(struct soft_endpoint *ep);
/* A shared receive that a message has taken and not filled goes back to the others. */
void soft_recv_return(struct soft_endpoint *ep);

/* push.c: pushes that come */
int soft_pull(struct fabric_endpoint *endpoint, const struct fabric_recv *to, unsigned count);
enum soft_step soft_begin_push(struct soft_endpoint *ep, const struct soft_frame *f);
/* The push is here. SOFT_WAIT: no room to say so. */
enum soft_step soft_push_ends(struct soft_endpoint *ep);
/* True: none is left. */
bool soft_flush_pulls(struct soft_endpoint *ep);

/* receive.c */

/* Where the payload of the frame at hand goes, and is it registered? */
void soft_target(struct soft_endpoint *ep, struct soft_domain *d, const struct soft_seg *seg, unsigned segs,
		 unsigned right);
bool soft_target_check(struct soft_endpoint *ep);
void soft_target_lost(struct soft_endpoint *ep);

/* Has a frame come in part? */
static inline bool soft_frame_begun(const struct soft_endpoint *ep)
{
	return ep->phase == SOFT_PHASE_PAYLOAD || ep->header_have;
}

/* Work off bytes of the stream. How many were used: less than n when it has to wait or has ended. */
size_t soft_parse(struct soft_endpoint *ep, const uint8_t *bytes, size_t n, enum soft_step *step);

/* Read what is there, up to the budget. Within a section. */
void soft_receive(struct soft_endpoint *ep);

#endif
