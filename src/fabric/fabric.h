/*
 * fabric: listen, connect, register, post, poll. One contract, two providers: "verbs"
 * (rdma_cm and RC queue pairs) and "soft" (the same semantics over TCP, a UNIX socket or shared memory).
 * A transport is a way to a peer that a provider offers; the table below has all of them.
 * No policy: it neither reconnects nor queues nor times out (but see fabric_post).
 *
 * Objects, from the outside in:
 *   fabric           a provider, opened, with its devices          any thread
 *   fabric_domain    protection domain: a peer reaches its memory   any thread
 *                    and no other
 *   fabric_queue     completions, connection events and shared      one thread at a time, with
 *                    receives of one thread                         everything below; see must()
 *   fabric_listener  hands out fabric_request values
 *   fabric_endpoint  one reliable, ordered connection
 *   fabric_window    what one endpoint's peer may reach of a region
 *   fabric_region    registered memory of a domain                  any thread
 *
 * Promises, the same for each provider; tests/fabric/check_fabric.c runs them against each:
 *  1. Reliable and in order per endpoint. When the receive of a send or of a
 *     write-with-immediate completes, all writes posted before it are visible.
 *  2. Each posted work request that asked for a completion gets exactly one, also at
 *     teardown: flushed, in order. A failed one completes whether it asked or not.
 *     Posted receives of an endpoint's own (not the shared ones) are flushed too.
 *  3. No receive posted: the sender waits. Nothing is lost, no error is raised.
 *  4. A bad key, a range outside its region or a missing right is a remote access error:
 *     nothing is touched, the work request completes with FABRIC_REMOTE_ACCESS, both
 *     endpoints go to error, get their flushes and then FABRIC_DISCONNECTED.
 *  5. Connection events are values, copied and acknowledged before the caller sees them. FABRIC_DISCONNECTED comes at
 *     most once and is an endpoint's last event. If a device or its queue is lost, FABRIC_REMOVED comes in its place,
 *     behind the flushes: then it is not known whether the flushed requests were carried out. Either may come before
 *     completions that are in the queue already: a caller that wants all of them polls until there are none.
 *  6. Reads and writes of any size work: 0 bytes touch nothing and check no key; 2 GiB and
 *     more are split below this contract. A send fits one posted receive, or both
 *     endpoints fail.
 *  7. A read of an aligned word of 8 bytes, while a write of up to 64 bytes comes in, gives the old
 *     word or the new one, and the new one only after what was written before.
 *  8. If fabric_limits.atomics is set, FABRIC_FETCH_ADD and FABRIC_COMPARE_SWAP change an aligned word of 8 bytes in a
 *     region with FABRIC_REMOTE_ATOMIC, and bring back what it was. They are atomic to each other, whichever endpoints
 *     of the fabric they come by, but not to a processor that uses the word meanwhile. They count among the reads in
 *     flight. A word that is not aligned is -EINVAL, and the endpoint goes on. If it is not set, they answer
 *     -EOPNOTSUPP, and FABRIC_REMOTE_ATOMIC has no effect.
 *  9. If fabric_limits.pushes is set, FABRIC_PUSH sends bytes without a place for them. The peer says by fabric_pull(),
 *     for one push after another, where they go or that it does not want them; until it does, the stream waits at the
 *     push. A push completes when its memory may be used again, whether or not the peer wanted it, and not always in
 *     order with other requests.
 * 10. The peer of an endpoint with fabric_endpoint_attr.closed reaches no memory: a read, write or atomic operation of
 *     it, of 0 bytes too, ends as promise 4 says, whatever its key. fabric_admit() ends that. Messages go either way
 *     meanwhile. Towards such a peer a chain of requests that do not ask for completions is no longer than half of
 *     send_depth: to find room for a longer one, a provider may have to write 0 bytes.
 *
 * Events and completions are pulled, not called back, so that no caller is ever re-entered.
 * What a provider lacks is a function that answers -EOPNOTSUPP, never a NULL.
 */
#ifndef RDMAD_FABRIC_H
#define RDMAD_FABRIC_H

#include "base/base.h"

#define FABRIC_REQUEST_DATA 56 /* private data of a connect request, all that RDMA leaves */
#define FABRIC_ACCEPT_DATA 196 /* of an accept */
#define FABRIC_REJECT_DATA 148 /* of a reject */
#define FABRIC_MAX_FDS 20
#define FABRIC_MAX_SGE 2
#define FABRIC_PUSH_MAX (1u << 20)

struct fabric;
struct fabric_domain;
struct fabric_queue;
struct fabric_listener;
struct fabric_request;
struct fabric_endpoint;
struct fabric_region;
struct fabric_window;

enum fabric_access {
	/* For receives and the results of reads. With fabric_limits.open_sinks the latter need FABRIC_REMOTE_WRITE. */
	FABRIC_LOCAL_WRITE = 1,
	FABRIC_REMOTE_READ = 2,
	FABRIC_REMOTE_WRITE = 4, /* implies FABRIC_LOCAL_WRITE */
	/* Windows may be opened onto it. Implies FABRIC_LOCAL_WRITE. The peer can reach nothing by this right alone. */
	FABRIC_WINDOWS = 8,
	FABRIC_REMOTE_ATOMIC = 16, /* implies FABRIC_LOCAL_WRITE */
};

enum fabric_opcode {
	FABRIC_SEND,
	FABRIC_WRITE,
	FABRIC_WRITE_IMM, /* consumes a receive at the target and brings it `imm` */
	FABRIC_READ,
	/* both: what the word was lands in the only piece of memory, 8 bytes in the machine's order */
	FABRIC_FETCH_ADD,
	FABRIC_COMPARE_SWAP, /* becomes `swap` if it was `operand` */
	FABRIC_PUSH,         /* 1 to FABRIC_PUSH_MAX bytes, for which the target has a place or not */
	FABRIC_RECV,         /* completions only: of a send */
	FABRIC_RECV_IMM,     /* completions only: of a write with immediate */
	FABRIC_PULL,         /* completions only: of fabric_pull() */
};

enum fabric_status {
	FABRIC_OK,
	FABRIC_FLUSHED,     /* the endpoint went to error or was disconnected first */
	FABRIC_LOCAL_ERROR, /* a receive too short, a local range not registered; verbs: the address or route is gone */
	FABRIC_REMOTE_ACCESS, /* key, range or right refused by the target */
	FABRIC_REMOTE_ERROR,  /* the target could not take it (its receive was too short) */
	FABRIC_PEER_LOST,     /* retries exhausted: the host does not answer */
	FABRIC_LINK_DOWN,     /* the device could not send: its port is down */
};

struct fabric_config {
	const char
		*device; /* verbs: use this one only, "mlx5_0", or one port of it, "mlx5_0:2"; NULL: every active one */
	uint32_t ack_timeout_ms; /* 0: default. verbs: a peer counts as dead about eight times this after a packet is
	                          * lost; soft: when its host was silent for eight times this */
	uint32_t stall_ms;       /* 0: 30 s. soft: a peer that begins to send something and does not go on with it for
	                          * so long is cut off. A device sees to that itself */
	uint8_t traffic_class;   /* of all packets: the byte that IPv4 calls type of service; 0: the system's */
	bool late;               /* fabric_renew() takes devices that come later, and there may be none yet */
};

struct fabric_queue_attr {
	uint32_t completions;  /* work requests outstanding on all endpoints at first; more where the device lets the
	                        * queue grow; 0: 4096 */
	uint32_t shared_depth; /* shared receives that may be posted for each device; 0: no shared receives */
};

struct fabric_endpoint_attr {
	uint32_t send_depth; /* sends, reads and writes posted and not completed; 0: 64 */
	uint32_t recv_depth; /* receives of its own; 0: takes from the queue's shared receives, which is for endpoints
	                        * of the queue's own domain only (-EINVAL), and of devices that share (-EOPNOTSUPP) */
	uint32_t
		/* of shared receives: how many it may take before others are posted, see fabric_shared_wanted() */
		shared;
	uint8_t reads_out; /* reads in flight towards the peer; 0: none */
	uint8_t reads_in;  /* reads served to the peer; 0: the peer may not read */
	/* If both ends are on one machine and both set this, the bytes go by memory that they share, rather than by the
	 * socket; the transport is "shm" then. It means nothing to devices. */
	bool memory;
	/* A connect, of which fabric_encrypt() says whether it is encrypted, when it is established and before anything
	 * else is called. */
	bool undecided;
	/* Promise 10. It means nothing where fabric_limits.open_sinks is set: devices of iWARP learn a peer's rights
	 * before it is connected, and never again. */
	bool closed;
	void *context; /* comes back with every event and completion */
	/* For a connect: this machine's address that it is made from, with a port or 0. NULL, or one of another family:
	 * any. */
	const struct sockaddr *from;
	/* To fabric_take(): what the peer is told when it fails, at most FABRIC_REJECT_DATA bytes. NULL: nothing. */
	const void *refusal;
	size_t refusal_len;
};

struct fabric_sge {
	void *addr;
	size_t len;
	const struct fabric_region *region; /* may be NULL for sends and writes up to the inline limit */
};

struct fabric_wr {
	struct fabric_wr *next;
	uint64_t id; /* comes back in the completion */
	enum fabric_opcode opcode;
	bool signaled; /* ask for a completion */
	bool more;     /* of a chain's last: what is posted next may go together with it, or the next poll sends it */
	uint8_t sge_count;
	struct fabric_sge sge[FABRIC_MAX_SGE];
	uint32_t imm;
	uint32_t rkey;        /* of the target's region, with remote_addr */
	uint64_t remote_addr; /* the target's own virtual address */
	uint64_t operand;     /* FABRIC_FETCH_ADD: is added; FABRIC_COMPARE_SWAP: is compared */
	uint64_t swap;        /* FABRIC_COMPARE_SWAP */
};

struct fabric_recv {
	uint64_t id;
	struct fabric_sge sge;
};

struct fabric_completion {
	uint64_t id;
	struct fabric_endpoint *endpoint;
	void *context;             /* the endpoint's */
	enum fabric_opcode opcode; /* valid when status is FABRIC_OK */
	enum fabric_status status;
	uint32_t bytes; /* received; receives only */
	uint32_t imm;   /* FABRIC_RECV_IMM only */
};

enum fabric_event_type {
	FABRIC_REQUEST,      /* on a listener's queue: accept or reject `request` */
	FABRIC_ESTABLISHED,  /* post sends from here on; receives may complete earlier */
	FABRIC_REJECTED,     /* by the peer, with `error` and its private data */
	FABRIC_UNREACHABLE,  /* `error`: -ECONNREFUSED, -EHOSTUNREACH, -ETIMEDOUT, -ENETUNREACH ... */
	FABRIC_DISCONNECTED, /* by either side or by an error */
	FABRIC_WIDENED,      /* of a fabric opened with `late`: one device more; fabric_limits() says what holds now */
	FABRIC_REMOVED, /* in the place of FABRIC_DISCONNECTED; for a listener endpoint is NULL. `error` -ENODEV: the
	                      * device is gone, see fabric_renew(). -EADDRNOTAVAIL: the address of a listener is. -EIO:
	                      * the queue of completions failed; a new endpoint may do well */
};

struct fabric_event {
	enum fabric_event_type type;
	struct fabric_endpoint *endpoint; /* NULL for FABRIC_REQUEST and FABRIC_WIDENED */
	void *context; /* the endpoint's; the listener's for FABRIC_REQUEST, and its FABRIC_REMOVED */
	struct fabric_request *request;
	int error;
	uint8_t data_len; /* padded by some devices: trust your own length field */
	uint8_t data[FABRIC_ACCEPT_DATA];
};

/* A fabric's: what is true for all of its devices; but the limits named max_ are those of the device that has most,
 * and another device refuses what is beyond its own. Where it has no device yet nothing is limited. Of a
 * request: what is true for the device that it came by. */
struct fabric_limits {
	uint32_t inline_size; /* sends and writes up to this need no region */
	uint32_t max_send_depth, max_recv_depth, max_shared_depth, max_completions;
	uint8_t max_reads; /* reads_out and reads_in are cut to it */
	bool write_imm;    /* false: FABRIC_WRITE_IMM answers -EOPNOTSUPP */
	bool windows;      /* false: fabric_window_open answers -EOPNOTSUPP */
	bool shared;       /* false: endpoints have receives of their own */
	unsigned devices;  /* that it has or had; none takes a shared receive that another one has */
	/* A request's: bytes of the peer's packets, and of the longest that the device takes. Where the former are
	 * more, nothing long would arrive. 0: it does not matter. */
	unsigned peer_packet, packet;
	bool pushes;  /* promise 9; false: FABRIC_PUSH and fabric_pull() answer -EOPNOTSUPP */
	bool atomics; /* promise 8. Never where a fabric has several devices that are not atomic to each other */
	/* iWARP: the peer learns the key of the memory that a read brings its bytes to, and could write there itself.
	 * So this memory must be registered with FABRIC_REMOTE_WRITE (else -EACCES), and its region should hold nothing
	 * else. */
	bool open_sinks;
};

/*
 * transport.c: the transports, best first. A row is all that the other rooms know of one, and they ask for its
 * members, not for its name. ROW(name, provider, members): the name is the scheme of its addresses, its name in the
 * configuration, in results and in logs; the provider's table is fabric_PROVIDER (provider.h).
 */
#define FABRIC_TRANSPORT_ROWS(ROW)                                                                                     \
	ROW("rdma", verbs, .text = "RDMA", .plain = true, .device = true, .silent = true)                              \
	ROW("tcp", soft, .text = "TCP", .plain = true, .loopback = true, .processor = true)                            \
	ROW("shm", soft, .text = "shared memory", .inside = true, .processor = true)                                   \
	ROW("unix", soft, .text = "UNIX socket", .path = true, .loopback = true, .processor = true)                    \
	ROW("tls", soft, .text = "TCP, encrypted", .inside = true, .encrypted = true, .processor = true)

struct fabric_transport {
	const char *name;
	const struct fabric_provider *provider;
	const char *text; /* in sentences */
	bool plain;       /* an address without a scheme may mean it */
	bool path;        /* its addresses are paths, not hosts */
	bool inside;      /* has no addresses: connections by others come to go by it */
	bool encrypted;   /* its bytes are, by the kernel: not one that a configuration names. The last row */
	bool loopback;    /* reaches this machine by a loopback address */
	bool device;      /* needs a device, which a machine may lack */
	bool processor;   /* a processor moves its bytes: not what require_rdma asks for */
	bool silent;      /* says nothing of a peer whose host died */
};

#define FABRIC_COUNT_ROW(...) +1
enum { FABRIC_TRANSPORTS = 0 FABRIC_TRANSPORT_ROWS(FABRIC_COUNT_ROW) };

extern const struct fabric_transport fabric_transports[FABRIC_TRANSPORTS];

/* The name of row i, NULL behind the last. */
const char *fabric_transport_name(unsigned i);
/* NULL: there is none of this name. */
const struct fabric_transport *fabric_transport_find(const char *name);
/* What fabric_open() opens for it. */
const char *fabric_transport_provider(const struct fabric_transport *transport);
/* May an address that fabric_address_parse() took mean this transport? */
bool fabric_transport_serves(const struct fabric_transport *transport, const struct address *address);
/* The best that it may mean; NULL: none. */
const struct fabric_transport *fabric_transport_of(const struct address *address);
/* What fabric_listen() and fabric_connect() take, of an address that the transport serves. How many, as
 * address_resolve(), or -errno, logged. */
int fabric_transport_resolve(const struct fabric_transport *transport, const struct address *address,
			     struct address_socket out[static ADDRESS_SOCKETS]);
/* address_parse(), and its scheme is that of a transport, its form the transport's. -EINVAL, logged. */
int fabric_address_parse(const char *text, struct address *out);

/*
 * fabric.c
 */

/* Open a provider, "verbs" or "soft". -ENODEV: no device of that kind (text in the log says
 * what was looked for; also where it is opened all the same, as it may come late). On success *out is to be closed
 * after all else of it. */
int fabric_open(const char *provider, const struct fabric_config *config, struct fabric **out);
void fabric_close(struct fabric *fabric);
const char *fabric_name(const struct fabric *fabric); /* "verbs" */
/* Is `transport` one of its provider's? */
bool fabric_has(const struct fabric *fabric, const struct fabric_transport *transport);
void fabric_limits(const struct fabric *fabric, struct fabric_limits *limits);
/* "rxe0, mlx5_0" for verbs, "tcp, unix" for soft. Returns buf. */
char *fabric_devices(const struct fabric *fabric, char *buf, size_t size);
/* How many devices can be used. One that was taken away is given back, when the endpoints that had FABRIC_REMOVED are
 * destroyed; one of the same name is taken in its place when it is there: all regions are registered with it and all
 * queues use it, but nothing listens by it yet. That takes several calls, while the queues have their polls. With
 * fabric_config.late other devices come so, too. Any thread, one at a time, now and then; it may take as long as
 * registering all memory of the fabric. 1 of a provider without devices. */
unsigned fabric_renew(struct fabric *fabric);
/* True: no device knows memory of the fabric, and none will until fabric_release_devices(). False: one does, or is
 * about to, and pages of registered memory must stay as they are. Any thread; it does not wait. */
bool fabric_hold_devices(struct fabric *fabric);
void fabric_release_devices(struct fabric *fabric);

/* A port of a device, as it is now. */
#define FABRIC_PORT_GIDS 4u
struct fabric_port {
	char device[64], firmware[64]; /* "": it has none */
	unsigned number;
	bool there; /* false: the device was taken away, and nothing else is known */
	bool active, infiniband;
	unsigned mtu, mtu_max; /* bytes of its packets, and of the longest that it could have */
	char netdev[16];       /* "": none */
	bool roce_2;           /* one of its GIDs is of RoCE v2 */
	unsigned gids;         /* the first GIDs that are not of the link alone */
	char gid[FABRIC_PORT_GIDS][46];
};

/* How many there are in `out`, which has room for `most`. It asks the devices, which may take ms. Any thread. */
unsigned fabric_ports(struct fabric *fabric, struct fabric_port *out, unsigned most);

int fabric_domain_create(struct fabric *fabric, struct fabric_domain **out);
void fabric_domain_destroy(struct fabric_domain *domain); /* regions first */
struct fabric *fabric_domain_fabric(const struct fabric_domain *domain);

/* Shared receives are of `domain`. -EINVAL beyond the limits, -ENOMEM, -EMFILE ...: logged. */
int fabric_queue_create(struct fabric_domain *domain, const struct fabric_queue_attr *attr, struct fabric_queue **out);
void fabric_queue_destroy(struct fabric_queue *queue); /* listeners and endpoints first */
/* For a child of the process that made the queue: closes the descriptors of the queue and of all that is on it, and
 * does nothing else. So the parent's connections go on, and end with the parent. The queue and what is on it must not
 * be used any more. */
void fabric_queue_abandon(struct fabric_queue *queue);

/* Listen on a resolved address; port 0 picks one, fabric_listener_port tells (0 for UNIX).
 * A stale UNIX socket, without a listener, is replaced, a live one is -EADDRINUSE.
 * -EADDRINUSE, -EADDRNOTAVAIL, -EACCES, -EAFNOSUPPORT (provider has no such address). */
int fabric_listen(struct fabric_queue *queue, const struct sockaddr *sa, socklen_t len, void *context,
		  struct fabric_listener **out);
uint16_t fabric_listener_port(const struct fabric_listener *listener);
void fabric_listener_close(struct fabric_listener *listener);

/* Begin to connect; the outcome is an event of *out: ESTABLISHED, REJECTED or UNREACHABLE (destroy the endpoint after
 * the last two). The event may never come, so the caller needs a timer. Receives of its own may be posted at once.
 * `data` is at most FABRIC_REQUEST_DATA bytes, copied. */
int fabric_connect(struct fabric_queue *queue, struct fabric_domain *domain, const struct sockaddr *sa, socklen_t len,
		   const struct fabric_endpoint_attr *attr, const void *data, size_t data_len,
		   struct fabric_endpoint **out);

/* Could `queue` take the request? -ENODEV: its device is gone. -EIO: its queue of completions failed and is not made
 * anew yet. Call it in the queue's thread, before fabric_take(), so that a refusal can say why. */
int fabric_ready(struct fabric_queue *queue, const struct fabric_request *request);

/* Accept in two steps, so that receives can be posted before the peer can send. take makes the endpoint on `queue`, the
 * listener's or another one of the same fabric; call it in the thread of that queue. accept sends the answer, and
 * ESTABLISHED or DISCONNECTED follows. The request is gone after take, even if that fails: then the peer is refused
 * with attr->refusal. It is also gone after reject, which any thread may call. */
int fabric_take(struct fabric_queue *queue, struct fabric_domain *domain, struct fabric_request *request,
		const struct fabric_endpoint_attr *attr, struct fabric_endpoint **out);
int fabric_accept(struct fabric_endpoint *endpoint, const void *data, size_t data_len);
void fabric_reject(struct fabric_request *request, const void *data, size_t data_len);

/* What holds for an endpoint that is made of it. */
void fabric_request_limits(const struct fabric_request *request, struct fabric_limits *limits);

/* Printable address of the peer that asks or is connected. Returns buf. */
char *fabric_request_peer(const struct fabric_request *request, char *buf, size_t size);
char *fabric_endpoint_peer(const struct fabric_endpoint *endpoint, char *buf, size_t size);

/* The source of a request, as far as one can be told from another: by its user, if it is on this machine and the kernel
 * knows, else by its address of IPv4, its network of IPv6 (/64), or its link-local address and the link. All addresses
 * of the loopback are one. Without padding: compare the bytes. */
struct fabric_source {
	uint64_t family; /* AF_UNIX: a user of this machine, id[0]; AF_INET, AF_INET6, its link in the upper half;
	                  * AF_UNSPEC: unknown */
	uint64_t id[2];
};
/* Are these known to be the same? Never if one of them is unknown. */
static inline bool fabric_source_same(const struct fabric_source *a, const struct fabric_source *b)
{
	return a->family != AF_UNSPEC && memcmp(a, b, sizeof(*a)) == 0;
}
/* As quota_take() wants it. */
static inline const void *fabric_source_key(const struct fabric_source *source)
{
	return source->family != AF_UNSPEC ? source : NULL;
}

/* This machine's address of it, with the port. -errno: it has none. */
int fabric_endpoint_local(const struct fabric_endpoint *endpoint, struct sockaddr_storage *out);
void fabric_request_source(const struct fabric_request *request, struct fabric_source *out);
void fabric_endpoint_source(const struct fabric_endpoint *endpoint, struct fabric_source *out);
/* The source that an IP address stands for; of other addresses it has the family alone. */
void fabric_source_of(const struct sockaddr *sa, struct fabric_source *out);
const struct fabric_transport *fabric_endpoint_transport(const struct fabric_endpoint *endpoint);

/* The peer may reach memory from now on: what was registered for peers, by a key that it was told. Idempotent.
 * -ENOTCONN: it is not established, or is ending. */
int fabric_admit(struct fabric_endpoint *endpoint);

/*
 * Encryption of all that follows the private data of the accept, by AES-256-GCM in records of TLS 1.3. Both ends call
 * it when they know the keys and before anything is posted: the accepting one right behind fabric_accept(), the
 * connecting one when it is established. `sends` is the secret of what this end sends; NULL, of both, for a connect
 * that was `undecided`: it goes on in clear. 0, -EOPNOTSUPP, -ENOTCONN (its end is on its way), or another -errno: it
 * must be destroyed. Each secret may be used once.
 */
struct fabric_secret {
	uint8_t key[32], iv[12];
};
int fabric_encrypt(struct fabric_endpoint *endpoint, const struct fabric_secret *sends,
		   const struct fabric_secret *receives);
/* 0: it works, which was tried, once for a process. -EOPNOTSUPP: this kernel lacks it, or it means nothing for
 * devices. */
int fabric_encrypts(const struct fabric *fabric);
/* Does a connection to that address go by a network, where others may hear it, and does fabric_encrypt() apply? */
bool fabric_exposed(const struct fabric *fabric, const struct sockaddr *sa);
bool fabric_request_exposed(const struct fabric_request *request);

/* Go to error now: what is outstanding is flushed, the peer sees FABRIC_DISCONNECTED. What was
 * posted and has completed is delivered; idempotent. This side's FABRIC_DISCONNECTED follows. */
void fabric_disconnect(struct fabric_endpoint *endpoint);

/* Free it in any state. Completions and events of it that were not pulled are dropped, so pull the flushes first if
 * they matter. After that no call returns this endpoint or its context. A shared receive that it had taken still
 * completes, so that its buffer comes back, with endpoint and context NULL. */
void fabric_endpoint_destroy(struct fabric_endpoint *endpoint);

/* Register [addr, addr+len) with rights from enum fabric_access. With -ENOMEM the log names RLIMIT_MEMLOCK and the
 * sizes. If a region is deregistered while a peer uses it, the peer gets a remote access error. Deregistering never
 * blocks for long, and after it nothing touches the memory. */
int fabric_register(struct fabric_domain *domain, void *addr, size_t len, unsigned access, struct fabric_region **out);
/* The same of memory of a device: what lies at `offset` of a dmabuf, for peers alone, never for a work request of this
 * side. `addr` is the caller's name for it, where nothing is read or written; its offset in a page is that of `offset`.
 * The descriptor stays the caller's; a copy is kept. Devices reach the memory where it is. Soft transports, where a
 * processor moves the bytes, map the descriptor. -EINVAL: the range; -EBADF; -EOPNOTSUPP: a device, or the kernel,
 * cannot do it, or the descriptor cannot be mapped; logged, with what to do. */
struct fabric_dmabuf {
	int fd;
	uint64_t offset;
};
int fabric_register_dmabuf(struct fabric_domain *domain, const struct fabric_dmabuf *dmabuf, void *addr, size_t len,
			   unsigned access, struct fabric_region **out);
void fabric_deregister(struct fabric_region *region);
/* The address by which a peer reaches what the caller of fabric_register() and its like names `addr`. */
uint64_t fabric_region_named(const struct fabric_region *region, const void *addr);
/* The key that the peer of `endpoint` must name to reach this region. */
uint32_t fabric_region_rkey(const struct fabric_region *region, const struct fabric_endpoint *endpoint);

/* A window: a key by which the peer of `endpoint`, and no other of its domain, reaches [addr, addr+len) with some of
 * FABRIC_REMOTE_READ, FABRIC_REMOTE_WRITE and FABRIC_REMOTE_ATOMIC. The range is of a region of the endpoint's domain
 * that was registered with FABRIC_WINDOWS. The window is open before anything is carried out that is posted on the
 * endpoint afterwards, such as a send that tells the peer the key. It takes one of send_depth and brings no completion:
 * a window that the device cannot open ends the endpoint. -EINVAL: range or rights; -EAGAIN and -ENOTCONN as
 * fabric_post; -EOPNOTSUPP: the device has none (fabric_limits.windows), the region's own key has to do. */
int fabric_window_open(struct fabric_endpoint *endpoint, const struct fabric_region *region, void *addr, size_t len,
		       unsigned access, struct fabric_window **out);
uint32_t fabric_window_rkey(const struct fabric_window *window);
/* The key is void at once: a peer that names it gets a remote access error. Call it in the endpoint's thread, before or
 * after the endpoint is destroyed (which voids the key, too), but before the region is deregistered. NULL is
 * allowed. */
void fabric_window_close(struct fabric_window *window);

/* Post receives, to the endpoint's own queue or, with endpoint NULL, to the shared one.
 * -EAGAIN: no room (nothing posted). -ENOTCONN: that endpoint is ending. */
int fabric_post_recv(struct fabric_queue *queue, struct fabric_endpoint *endpoint, const struct fabric_recv *recv,
		     unsigned count);

/* How many shared receives there are to be. A device that has endpoints is to have what these may take and `spare`, at
 * most shared_depth; one that has more keeps it. A receive counts until its completion was polled. */
uint32_t fabric_shared_wanted(const struct fabric_queue *queue, uint32_t spare);

/* Say where the next of the peer's pushes goes: it has exactly to->sge.len bytes, and completes as FABRIC_PULL. With
 * `to` NULL the next `count` pushes are dropped, and do not complete. It may be called before the pushes come. -EAGAIN:
 * too many calls came before their pushes. -ENOTCONN, -ENOMEM: nothing was done. */
int fabric_pull(struct fabric_endpoint *endpoint, const struct fabric_recv *to, unsigned count);

/* Post a chain in order, by one doorbell or system call where the provider can. -EAGAIN when fewer than the chain's
 * length of send_depth are free (nothing posted): poll, then retry. Slots come back at completion, those of unsignaled
 * requests with the next signaled one or earlier. -ENOTCONN in error: nothing posted, no completion. The wr structs may
 * be reused at once, the memory not until completion (inline-sized sends: at once). Small sends may be buffered until
 * the next fabric_poll or fabric_arm, never longer. */
int fabric_post(struct fabric_endpoint *endpoint, const struct fabric_wr *chain);

/* Take up to `max` completions without waiting; soft moves its bytes here. Count. */
int fabric_poll(struct fabric_queue *queue, struct fabric_completion *out, int max);

/* Next connection event: 1 and *out, or 0. Cheap when there is none. */
int fabric_next_event(struct fabric_queue *queue, struct fabric_event *out);

/* Before sleeping on the descriptors: arm, then poll and pull events once more; only when both are empty may
 * one sleep. */
int fabric_arm(struct fabric_queue *queue);

/* Has the peer ended the connection, perhaps, and no poll has told of it yet? A system call, for one that posts after a
 * pause: polls ask the kernel now and then only. Nothing is taken. Where it says yes, the next polls and pulls of
 * events find what there is. */
bool fabric_hung_up(struct fabric_endpoint *endpoint);

/* Has the peer's host left unanswered, for longer than `ns`, what it was sent more than once? What the provider knows:
 * false for one that is on this machine, and where a device moves the bytes. */
bool fabric_host_lost(const struct fabric_endpoint *endpoint, uint64_t ns);

/* Since the last completion and the last call: were bytes of large transfers moved, or reads or writes of peers served,
 * which bring no completion here? Then more are near, and to go on polling is faster than to sleep; the queue is not
 * armed any more. Never true if a device moves the bytes. */
bool fabric_moving(struct fabric_queue *queue);

/* A number that grows while bytes of the endpoint's reads and writes move, in either direction: two calls show whether
 * a long one that has not completed makes progress. FABRIC_MOVED_UNKNOWN: a device moves them, and only completions
 * tell. */
#define FABRIC_MOVED_UNKNOWN UINT64_MAX
uint64_t fabric_moved_bytes(const struct fabric_endpoint *endpoint);

/* Has a part of a short push come that has its place, so that the next poll goes on with it? Then what could be sent
 * now may wait, to go together with what is sent after that. Never true if a device moves it. */
bool fabric_arriving(const struct fabric_endpoint *endpoint);

/* Does something that was posted wait for room, so that only further polls send it? Never true if a device sends. */
bool fabric_unsent(const struct fabric_endpoint *endpoint);

/* Descriptors that become readable, after fabric_arm, when there is a completion or an event. They are drained by poll
 * and next_event; they do not change, and are quiet when a device is gone. Count, at most FABRIC_MAX_FDS. */
int fabric_fds(const struct fabric_queue *queue, int fds[static FABRIC_MAX_FDS]);

/* "remote access refused" and so on, for logs and callers' errors. */
const char *fabric_status_text(enum fabric_status status);

#endif
