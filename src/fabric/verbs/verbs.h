/*
 * verbs.h: private to the verbs provider.
 *
 *   verbs.c           domains, regions
 *   device.c    which devices there are, and what each can do
 *   renew.c     devices that are taken away and come back
 *   async.c     what devices report of themselves, and what is lost with them
 *   queue.c     one thread's completion queues, shared receives
 *   wait.c      sleeping, and looking for events
 *   endpoint.c  the life of a queue pair
 *   cm.c        connections: rdma_cm events in, fabric events out
 *   post.c      work requests out, completions back to their owners
 *   window.c    memory windows
 *
 * rdma_cm only makes connections here: the queue pairs are driven by hand, because librdmacm
 * leaves their RNR timer at 655 ms and takes the retry count from the peer.
 */
#ifndef RDMAD_FABRIC_VERBS_H
#define RDMAD_FABRIC_VERBS_H

#include <pthread.h>
#include <rdma/rdma_cma.h>

#include "fabric/provider.h"

#define VERBS_MAX_DEVICES 8
#define VERBS_MAX_PORTS 4
#define VERBS_REASON 160    /* room for why something failed */
#define VERBS_BATCH 16      /* work requests or completions by one call */
#define VERBS_INLINE 256    /* asked of each device; what it grants counts */
#define VERBS_RETRY_COUNT 6 /* 7 means for ever on some devices */
#define VERBS_RNR_FOREVER 7
#define VERBS_MIN_RNR_TIMER 12           /* 0.64 ms; the default of 0 is 655 ms */
#define VERBS_CLOSING_NS (500 * TIME_MS) /* a flush may never end */
#define VERBS_LOOK_NS (2 * TIME_S)       /* nothing may tell an idle program that a device was taken away: it looks */
#define VERBS_AWAY_NS TIME_S /* while a device is away its queues wake their owners, so that they look for it */
#define VERBS_BACK_NS (200 * TIME_MS)    /* and once more behind its return: their listeners may come back, too */
#define VERBS_RETIRED_NS (100 * TIME_MS) /* some devices never say that a queue pair took its last receive */

/* What fabric_renew() knows of a device. */
enum verbs_presence {
	VERBS_PRESENT,
	VERBS_LOST,   /* it is gone, and queues have something of it */
	VERBS_AWAY,   /* nothing is kept of it */
	VERBS_COMING, /* all memory is registered again; queues may lack it */
};

/* Which devices a fabric is to use. */
struct verbs_wanted {
	char name[IBV_SYSFS_NAME_MAX]; /* "": each device */
	unsigned port;                 /* 0: each of its ports */
};

/* Whether the devices were listed by the thread that is to do it first: see verbs_queue_list(). */
enum verbs_listing { VERBS_UNLISTED, VERBS_ASKED, VERBS_LISTING, VERBS_LISTED };

/* For what failed, and may take long each time. */
struct verbs_patience {
	uint64_t again, pause; /* when to try it again, and how long that is from the last time */
};

struct verbs_device {
	struct ibv_context *_Atomic ctx; /* librdmacm's, shared by the whole process. NULL: away */
	char name[IBV_SYSFS_NAME_MAX];
	bool iwarp, windows;
	bool loose_windows; /* a window shows all of the registration that it is bound to */
	bool atomics;       /* it has some, and they are whole to those of all others of its fabric */
	bool global;        /* they are whole to those of any other device */
	bool active;        /* one of its ports is */
	uint8_t max_reads;
	uint32_t max_inline;
	uint32_t max_message; /* of the port that has most */
	uint32_t max_send;    /* what is left of max_wr with so much inline */
	uint32_t max_wr, max_cqe;
	uint32_t max_srq_wr; /* 0: no shared receives */
	unsigned ports, first_port;
	unsigned only_port; /* the one that may be used; 0: each */
	struct verbs_port {
		bool infiniband;
		uint32_t max_message;
	} port[VERBS_MAX_PORTS];
	atomic_bool gone;  /* until it has come back, nothing but destroying is of use */
	atomic_uint users; /* queues that have something of it */
	enum verbs_presence presence;
	bool used;       /* has been PRESENT */
	bool complained; /* of why it is not taken back */
	struct verbs_patience patience;
};

struct verbs_fabric {
	struct fabric base;
	struct ibv_context **contexts; /* of rdma_get_devices, kept until close or the next one; NULL: no device */
	pthread_rwlock_t lock;         /* a device is given back or taken again, or else domains and regions are made */
	struct list domains;
	struct list member; /* of all fabrics in the process */
	atomic_uint queues;
	struct verbs_device device[VERBS_MAX_DEVICES]; /* they keep their places, and are as they were when counted */
	atomic_uint count;
	struct verbs_wanted wanted;
	_Atomic enum verbs_listing listing;
	unsigned asked;   /* calls in which it was VERBS_ASKED */
	bool late;        /* others may come: see verbs_renew() */
	char tried[512];  /* names of devices that were there at the last try */
	char unused[512]; /* why they are of no use, to be said once */
	struct verbs_patience patience;
	uint8_t ack_timeout; /* 4.096 us times two to this */
	uint8_t traffic_class;
	atomic_uint vectors; /* completion vectors are dealt out in turn */
};

struct verbs_domain {
	struct fabric_domain base;
	struct verbs_fabric *fabric;
	struct list member, regions;
	struct ibv_pd *pd[VERBS_MAX_DEVICES]; /* NULL: the device is away */
};

struct verbs_region {
	struct fabric_region base;
	struct verbs_domain *domain;
	struct list member;
	struct ibv_mr *mr[VERBS_MAX_DEVICES]; /* NULL: the device is away, or took no more */
	struct fabric_dmabuf dmabuf;          /* `fd` is a copy; -1: it is ordinary memory */
};

static inline struct ibv_mr *verbs_mr(const struct fabric_region *region, unsigned device)
{
	return container_of(region, const struct verbs_region, base)->mr[device];
}

/* For a device that is gone it is 0, and nothing is carried out. */
static inline uint32_t verbs_lkey(const struct fabric_region *region, unsigned device)
{
	const struct ibv_mr *mr = verbs_mr(region, device);

	return likely(mr) ? mr->lkey : 0;
}

/* Memory windows of type 2, which the device ties to the queue pair that bound them. */
struct verbs_window {
	struct fabric_window base;
	struct list member; /* of the endpoint, until that is destroyed */
	struct ibv_mw *mw;  /* NULL: void */
	struct ibv_mr *mr;  /* of its range alone; NULL: it shows all of its region */
};

/* A work request id is 2 bits of kind, 30 of the endpoint's generation, 32 of position. */
enum verbs_wr_kind { VERBS_WR_SEND, VERBS_WR_RECV, VERBS_WR_SHARED };
#define VERBS_WR_ID(kind, generation, position)                                                                        \
	((uint64_t)(kind) << 62 | (uint64_t)(generation) << 32 | (uint32_t)(position))
#define VERBS_GENERATION_MASK 0x3fffffffu

struct verbs_shared {
	uint64_t id;
	struct fabric_sge sge;
	uint32_t next;       /* free or parked one */
	struct verbs_cq *at; /* posted to this device; NULL: none */
};

/* What is in the queue's epoll, with the device's number. */
enum verbs_watched { VERBS_TIMER, VERBS_CM, VERBS_CHANNEL, VERBS_ASYNC, VERBS_WATCHED_KINDS };
#define VERBS_WATCHED(what, device) ((uint64_t)(device)*VERBS_WATCHED_KINDS + (what))

struct verbs_endpoint;

struct verbs_bucket {
	uint32_t qp_num;
	struct verbs_endpoint *endpoint; /* NULL: empty */
};

/* What a queue has on one device. */
struct verbs_cq {
	struct verbs_queue *queue;
	struct verbs_device *device;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	bool armed;        /* a notification was asked for and its event not yet taken */
	unsigned unacked;  /* events taken from the channel and not acknowledged */
	uint32_t depth;    /* completions that fit; those of the shared receives have their own room */
	uint32_t reserved; /* promised to endpoints */
	uint32_t dying;    /* of these, to endpoints destroyed since the queue was last empty */
	uint32_t retired;  /* endpoints destroyed for their owner, with a queue pair that may still hold receives */

	_Atomic(const char *) failure; /* set by the thread that read the device's event; NULL: none */
	bool lost;                     /* brings nothing any more: see verbs_cq_lose() */
	bool removed;                  /* with its device, until that has come back */
	bool used;                     /* counts among the device's users */
	bool complained;               /* of what would fail each time */

	struct ibv_srq *srq; /* NULL: the device has none */
	uint32_t shared_depth, shared_posted;
	uint32_t shared_wanted; /* of all its endpoints */

	struct verbs_bucket *bucket; /* endpoints by qp_num, open addressing */
	uint32_t bucket_mask, endpoints;
};

struct verbs_queue {
	struct fabric_queue base;
	struct verbs_domain *domain;
	struct verbs_fabric *fabric;
	struct rdma_event_channel *events; /* NULL until there is a device */
	int timer;                         /* wakes for deadlines, and for other threads that found a fatal error */
	int epoll;                         /* all descriptors: those of a device that is gone can leave it */
	bool cm_lost;                      /* rdma_cm is */
	atomic_bool moved;   /* set by the thread that read it: addresses of a device changed, or a port is up */
	unsigned cm_errors;  /* in a row */
	struct list watched; /* of all queues in the process */
	struct list retired; /* endpoints, by deadline */
	struct list listeners, gone; /* gone: their devices, and their owners were not told yet */
	struct fabric_queue_attr attr;
	unsigned count;  /* of the fabric's devices; it follows that in the queue's own thread */
	bool lists;      /* was the fabric's first one: see verbs_queue_list() */
	bool returned;   /* a device came back since the last wake */
	bool widened;    /* and its owner was not told yet */
	bool complained; /* of what keeps it from following */
	struct verbs_cq cq[VERBS_MAX_DEVICES];
	struct verbs_shared *shared;
	uint32_t shared_depth, shared_used;  /* of all devices */
	uint32_t shared_free, shared_parked; /* lists; parked: not yet given to a device */
	uint32_t parked;                     /* length of the latter */
	uint32_t unbound;                    /* that endpoints may take whose device is not known yet */
	unsigned first;                      /* device to poll first: each in turn */

	struct ibv_send_wr *wr; /* scratch for a chain, linked for good */
	struct ibv_sge (*sge)[FABRIC_MAX_SGE];
	uint32_t wr_count;

	struct list pending;  /* endpoints with an event to deliver */
	struct list closing;  /* endpoints that wait for their flushes, by deadline */
	struct list flushing; /* endpoints whose flushes we make ourselves */
	struct list endpoints;
	uint32_t generation;
	unsigned unsettled; /* endpoints that expect an event soon */
	unsigned checks;    /* check the descriptors in the next so many calls */
	unsigned skipped;   /* calls since they were checked */
	uint64_t tick;      /* coarse time when they were checked */
};

/* First member that an id's context points at: says what the id belongs to. */
struct verbs_owner {
	enum { VERBS_LISTENER, VERBS_REQUEST, VERBS_ENDPOINT } kind;
};

struct verbs_listener {
	struct fabric_listener base;
	struct verbs_owner owner;
	struct verbs_queue *queue;
	struct rdma_cm_id *id; /* NULL: it is gone */
	void *context;
	struct sockaddr_storage at;
	socklen_t len;
	struct list member; /* of the queue's listeners or gone */
	int error;          /* why it is gone, where not with its device */
	bool told;          /* that it is gone */
};

struct verbs_request {
	struct fabric_request base;
	struct verbs_owner owner;
	struct rdma_cm_id *id;
	struct verbs_fabric *fabric;
	unsigned device;
	atomic_bool dead; /* the peer gave up; set by the listener's thread */
};

/* The order matters: up to VERBS_LIVE a failure is still to be reported. */
enum verbs_state {
	VERBS_RESOLVING,  /* address or route asked for */
	VERBS_CONNECTING, /* request sent */
	VERBS_TAKEN,      /* request taken, not answered */
	VERBS_ANSWERED,   /* accept sent */
	VERBS_LIVE,
	VERBS_CLOSING, /* queue pair in error; DISCONNECTED after the flushes */
	VERBS_OVER,    /* the last event was delivered */
};

#define VERBS_SLOT_SIGNALED 1 /* the caller asked */
#define VERBS_SLOT_PART 2     /* not the last piece of a split request */
#define VERBS_SLOT_FENCE 4    /* ours, to learn that those before it are done */
#define VERBS_SLOT_SILENT 8   /* the caller's, but never reported: a window is bound */

struct verbs_slot {
	uint64_t id;
	uint8_t opcode;
	uint8_t flags;
};

/* A request that waits, because it or one before it is too large for one message. */
struct verbs_deferred {
	struct fabric_wr wr;
	uint8_t data[VERBS_INLINE];
};

struct verbs_endpoint {
	struct fabric_endpoint base;
	struct verbs_owner owner;
	enum verbs_state state;
	struct verbs_queue *queue;
	struct verbs_cq *cq; /* NULL until the device is known */
	struct ibv_qp *qp;
	void *context;
	uint32_t generation;
	uint32_t device;
	uint32_t max_inline, max_message;

	/* Send queue: free-running positions, slot = position & mask. */
	struct verbs_slot *slot;
	uint32_t mask, head, tail;
	uint32_t hw_depth;
	uint32_t depth, used; /* the caller's requests, split or not */
	uint32_t unsignaled, signal_every;
	uint32_t odd;    /* outstanding slots that are not the caller's: parts and fences */
	bool fence;      /* one is outstanding */
	bool heard;      /* a receive completed before rdma_cm said that we are connected */
	bool swallow;    /* a part failed and was reported: the rest of its request is silent */
	bool infiniband; /* its port */

	/* Requests that wait behind a split one; ring like `slot`, made when first needed. */
	struct verbs_deferred *deferred;
	uint32_t deferred_head, deferred_tail;
	size_t deferred_done; /* bytes of the oldest that were posted */

	/* Own receives, completed in order. */
	uint64_t *recv_id;
	struct fabric_sge *early; /* posted before there was a queue pair */
	uint32_t recv_depth, recv_mask, recv_head, recv_tail;

	struct rdma_cm_id *id;
	struct verbs_domain *domain;
	struct fabric_endpoint_attr attr;
	uint8_t reads_in, reads_out;       /* granted */
	uint8_t data[FABRIC_REQUEST_DATA]; /* of the connect request, until it is sent */
	uint8_t data_len;
	enum fabric_event_type event;
	int error;
	uint64_t deadline;
	struct list pending, closing, flushing, member;
	struct list windows;
	struct list watched; /* of all endpoints with a queue pair in the process */
	atomic_bool broken;  /* set by the thread that read the device's asynchronous event */
	atomic_bool spent;   /* the same: no shared receive is taken any more */
	bool ready;          /* was ready to receive */
	bool admitted;       /* the peer may reach memory */
	bool drained;        /* retired: at the next empty poll nothing of it is left */
};

static inline uint32_t verbs_outstanding(const struct verbs_endpoint *ep)
{
	return ep->head - ep->tail;
}

static inline bool verbs_has_deferred(const struct verbs_endpoint *ep)
{
	return ep->deferred_head != ep->deferred_tail;
}

/* verbs.c */
/* Is the connection manager there? The device list alone does not say. 0 or -ENODEV, logged. */
int verbs_check_cm(void);
/* What an error of the device means here: what it keeps of its queues is pinned, too. */
const char *verbs_reason(int error, char text[static VERBS_REASON]);
/* `dmabuf`: in which it lies; NULL: in ordinary memory. 0, or an error that was logged. */
int verbs_mr_register(const struct verbs_domain *domain, unsigned device, const struct fabric_dmabuf *dmabuf,
		      void *addr, size_t len, unsigned access, struct ibv_mr **out);
/* The same of a region, which has rights of its own, with this device. */
int verbs_region_enter(struct verbs_region *region, unsigned device);

/* async.c: events name a queue pair or a device of any thread; only watched ones are looked at. One lock is for what
 * the process has of all of them. */
void verbs_list_add(struct list *list, struct list *member);
void verbs_list_remove(struct list *member);
void verbs_watch(struct verbs_endpoint *ep);
void verbs_unwatch(struct verbs_endpoint *ep);
void verbs_watch_queue(struct verbs_queue *q);
void verbs_unwatch_queue(struct verbs_queue *q);
/* It has one device more. */
void verbs_queue_counted(struct verbs_queue *q);
void verbs_async_drain(struct verbs_device *device);
/* Any thread. Each queue of the process that has it will find it so. */
void verbs_device_gone(const struct verbs_device *device, const char *why);
/* This completion queue will bring nothing any more: its endpoints get their flushes and FABRIC_REMOVED. It is made
 * anew for the next endpoint, unless its device is gone. Idempotent. */
void verbs_cq_lose(struct verbs_cq *cq, const char *why);
/* Have each queue of the fabric look at its devices, in its own thread. */
void verbs_wake_queues(const struct verbs_fabric *fabric);
/* Act on what other threads found. */
void verbs_queue_take_losses(struct verbs_queue *q);
/* rdma_cm will bring nothing any more. */
void verbs_cm_lose(struct verbs_queue *q, const char *why);
/* 0: new endpoints may use the device; its queue may have been made anew for them. -ENODEV: never again. -EIO: not
 * now. */
int verbs_device_ready(struct verbs_queue *q, unsigned device);
int verbs_ready(struct fabric_queue *queue, const struct fabric_request *request);

/* device.c */
/* "mlx5_0", "mlx5_0:2", NULL. -EINVAL: no name, or no port from 1 to 255. */
int verbs_wanted_parse(const char *text, struct verbs_wanted *out);
/* All of the fabric's contexts that are wanted and of use. 0, or -ENODEV, logged with what there is and why it is of
 * none. `wanted`: what was asked for, for people. */
int verbs_devices_add(struct verbs_fabric *fabric, const char *wanted);
/* One device more; VERBS_AWAY: nothing uses it yet. Else false, and why not. */
bool verbs_device_add(struct verbs_fabric *fabric, struct ibv_context *ctx, enum verbs_presence presence,
		      char why[static VERBS_REASON]);
void verbs_append(char *text, size_t size, const char *name); /* to a list for people */
/* Does the configuration ask for it? */
bool verbs_is_wanted(const struct verbs_fabric *fabric, const char *name);
/* One that can be used, with what it can do; else false, and why not. */
bool verbs_device_init(struct verbs_device *device, struct ibv_context *ctx, unsigned only_port,
		       char why[static VERBS_REASON]);
/* The device's number. -ENODEV: the id has none yet, or neither that device nor that port is to be used. */
int verbs_find_device(const struct verbs_fabric *fabric, const struct rdma_cm_id *id);
const struct verbs_port *verbs_find_port(const struct verbs_device *device, unsigned number);
void verbs_limits(const struct fabric *fabric, struct fabric_limits *limits);
void verbs_device_limits(const struct verbs_device *device, struct fabric_limits *limits);

/* Shared receives of `asked` that the device takes; each has room in the completion queue, beside others. */
static inline uint32_t verbs_shared_depth(const struct verbs_device *device, uint32_t asked)
{
	return MIN(MIN(asked, device->max_srq_wr), device->max_cqe / 2);
}

/* renew.c */
void verbs_fabric_add(struct verbs_fabric *fabric);
/* Ends the fabric's use of librdmacm's devices. One that was taken away is closed with the last fabric that had it. */
void verbs_fabric_remove(struct verbs_fabric *fabric);
unsigned verbs_renew(struct fabric *fabric);
bool verbs_hold_devices(struct fabric *fabric);
void verbs_release_devices(struct fabric *fabric);
/* In the queue's thread, when it was woken. */
void verbs_queue_list(struct verbs_queue *q);
/* May any of the kernel's devices be opened? librdmacm never tries again what it could not open once. */
bool verbs_any_is_there(void);

/*
 * ports.c
 */
unsigned verbs_ports(struct fabric *fabric, struct fabric_port *out, unsigned most);

/* queue.c */
int verbs_queue_create(struct fabric_domain *domain, const struct fabric_queue_attr *attr, struct fabric_queue **out);
void verbs_queue_destroy(struct fabric_queue *queue);
void verbs_queue_abandon(struct fabric_queue *queue);
int verbs_queue_scratch(struct verbs_queue *q, uint32_t depth);
int verbs_cq_reserve(struct verbs_cq *cq, uint32_t need);
int verbs_queue_insert(struct verbs_cq *cq, struct verbs_endpoint *ep);
void verbs_queue_remove(struct verbs_cq *cq, struct verbs_endpoint *ep);
struct verbs_endpoint *verbs_queue_find(const struct verbs_cq *cq, uint32_t qp_num);
uint32_t verbs_shared_wanted(const struct fabric_queue *queue, uint32_t spare);
int verbs_post_shared(struct verbs_queue *q, const struct fabric_recv *recv, unsigned count);
enum verbs_shared_end { VERBS_SHARED_DONE, VERBS_SHARED_ORPHAN }; /* orphan: taken by an endpoint that is no more */
void verbs_shared_return(struct verbs_cq *cq, uint32_t index, enum verbs_shared_end end);
void verbs_shared_deal(struct verbs_queue *q); /* what is parked goes out, where it may */
int verbs_nonblock(int fd);                    /* 0 or -errno */
/* Make the queue anew, when no queue pair uses it: no shared receive is lost. */
int verbs_cq_rebuild(struct verbs_cq *cq);
/* Have a place for each device of the fabric, in the queue's own thread. 0, or an error that was logged, and the next
 * call goes on. */
int verbs_queue_follow(struct verbs_queue *q);
/* Give back all that the queue has of a device that is gone, and have it again of one that has come back. */
void verbs_cq_renew(struct verbs_cq *cq);

/* wait.c */
void verbs_queue_wake(struct verbs_queue *q, uint64_t ns);
/* At the next deadline. */
void verbs_wake_next(struct verbs_queue *q, uint64_t now);
bool verbs_moving(struct fabric_queue *queue);
int verbs_arm(struct fabric_queue *queue);
bool verbs_hung_up(struct fabric_endpoint *endpoint);
int verbs_fds(const struct fabric_queue *queue, int fds[static FABRIC_MAX_FDS]);
void verbs_take_cq_events(struct verbs_cq *cq);
int verbs_next_event(struct fabric_queue *queue, struct fabric_event *out);

/* cm.c */
int verbs_listen(struct fabric_queue *queue, const struct sockaddr *sa, socklen_t len, void *context,
		 struct fabric_listener **out);
uint16_t verbs_listener_port(const struct fabric_listener *listener);
void verbs_listener_close(struct fabric_listener *listener);
int verbs_connect(struct fabric_queue *queue, struct fabric_domain *domain, const struct sockaddr *sa, socklen_t len,
		  const struct fabric_endpoint_attr *attr, const void *data, size_t data_len,
		  struct fabric_endpoint **out);
int verbs_take(struct fabric_queue *queue, struct fabric_domain *domain, struct fabric_request *request,
	       const struct fabric_endpoint_attr *attr, struct fabric_endpoint **out);
int verbs_accept(struct fabric_endpoint *endpoint, const void *data, size_t data_len);
void verbs_reject(struct fabric_request *request, const void *data, size_t data_len);
void verbs_request_limits(const struct fabric_request *request, struct fabric_limits *limits);
char *verbs_request_peer(const struct fabric_request *request, char *buf, size_t size);
void verbs_request_source(const struct fabric_request *request, struct fabric_source *out);
int verbs_endpoint_local(const struct fabric_endpoint *endpoint, struct sockaddr_storage *out);
void verbs_endpoint_source(const struct fabric_endpoint *endpoint, struct fabric_source *out);
char *verbs_endpoint_peer(const struct fabric_endpoint *endpoint, char *buf, size_t size);
const struct fabric_transport *verbs_endpoint_transport(const struct fabric_endpoint *endpoint);
void verbs_disconnect(struct fabric_endpoint *endpoint);
/* One event of rdma_cm: 1 with something for the caller, 0 without, negative when none is left or can be got. */
int verbs_cm_next(struct verbs_queue *q, struct fabric_event *out);
int verbs_report(struct verbs_endpoint *ep, enum fabric_event_type type, int error, struct fabric_event *out);
/* Listen anew at the same places: rdma_cm's listeners of an address stay with what was known of it when they began, and
 * hear nothing any more when it went and came back, or the port did. One that cannot is gone. */
void verbs_listeners_renew(struct verbs_queue *q);
/* That it is gone: once. */
int verbs_listener_tell(struct verbs_listener *l, struct fabric_event *out);

/* endpoint.c */
int verbs_endpoint_new(struct verbs_queue *q, struct verbs_domain *domain, const struct fabric_endpoint_attr *attr,
		       enum verbs_state state, struct verbs_endpoint **out);
void verbs_endpoint_free(struct verbs_endpoint *ep);
void verbs_endpoint_destroy(struct fabric_endpoint *endpoint);
void verbs_set_state(struct verbs_endpoint *ep, enum verbs_state state);
/* Why a call of the connection manager failed. It says EINVAL of a connection that the peer has ended meanwhile, or
 * given up: that is -ECONNRESET. */
int verbs_cm_failed(void);
/* Make the queue pair on `device`, in INIT, and post what was received early. */
int verbs_endpoint_bind(struct verbs_endpoint *ep, unsigned device);
/* From INIT to ready to send, with what the peer offered. */
int verbs_endpoint_ready(struct verbs_endpoint *ep);
int verbs_admit(struct fabric_endpoint *endpoint);
void verbs_endpoint_flush(struct verbs_endpoint *ep);
/* First sign of the end, wherever it was seen: both sides go to error, DISCONNECTED follows. */
void verbs_endpoint_close(struct verbs_endpoint *ep);
/* The same, when nothing of it will complete: all is flushed by us, and FABRIC_REMOVED with `error` follows. */
void verbs_endpoint_lose(struct verbs_endpoint *ep, int error);
/* Report the end once nothing is outstanding. */
void verbs_endpoint_settle(struct verbs_endpoint *ep);
/* Destroyed endpoints whose queue pairs may hold shared receives: after an empty poll, the done ones go; or all,
 * without waiting. cq NULL: of every device. */
enum verbs_retired { VERBS_RETIRED_DRAINED, VERBS_RETIRED_ALL };
void verbs_retired_free(struct verbs_queue *q, const struct verbs_cq *cq, enum verbs_retired which);

/* window.c */
int verbs_window_open(struct fabric_endpoint *endpoint, const struct fabric_region *region, void *addr, size_t len,
		      unsigned access, struct fabric_window **out);
void verbs_window_close(struct fabric_window *window);
void verbs_windows_void(struct verbs_endpoint *ep); /* all of the endpoint's */

/* post.c */
int verbs_post_recv(struct fabric_queue *queue, struct fabric_endpoint *endpoint, const struct fabric_recv *recv,
		    unsigned count);
int verbs_post_early(struct verbs_endpoint *ep);
int verbs_post(struct fabric_endpoint *endpoint, const struct fabric_wr *chain);
/* Post the binding of `mw` to a range; silent. */
int verbs_post_bind(struct verbs_endpoint *ep, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info);
int verbs_poll(struct fabric_queue *queue, struct fabric_completion *out, int max);

#endif
