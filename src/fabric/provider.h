/*
 * provider.h: what a provider of the fabric fills in. Private to the room.
 *
 * A provider's own objects begin with the struct of the same name below, so that fabric.c finds the table;
 * everything behind it is the provider's. fabric_open() sets the table of the fabric, and each other object takes
 * over that of the object that it is made of. Arguments were checked by fabric.c; what is promised of each function
 * stands with its namesake in fabric.h.
 *
 * A provider names only the functions that it has. fabric_provider_complete() puts those of provider.c in place of
 * the others: what makes or moves something answers -EOPNOTSUPP, the rest finds nothing and does nothing. So no pointer
 * is NULL.
 */
#ifndef RDMAD_FABRIC_PROVIDER_H
#define RDMAD_FABRIC_PROVIDER_H

#include "fabric/fabric.h"

struct fabric_provider {
	const char *name;

	/* Its addresses, where they are not those of sockets: what listen and connect take. NULL: address_resolve(). */
	int (*resolve)(const struct address *address, struct address_socket out[static ADDRESS_SOCKETS]);

	/* The provider and its devices; any thread. `devices` is a text for people. */
	int (*open)(const struct fabric_config *config, struct fabric **out);
	void (*close)(struct fabric *fabric);
	void (*limits)(const struct fabric *fabric, struct fabric_limits *limits);
	char *(*devices)(const struct fabric *fabric, char *buf, size_t size);
	unsigned (*renew)(struct fabric *fabric);    /* left out: they never go */
	bool (*hold_devices)(struct fabric *fabric); /* left out, both: memory needs no device */
	void (*release_devices)(struct fabric *fabric);
	unsigned (*ports)(struct fabric *fabric, struct fabric_port *out, unsigned most); /* left out: none */

	/* What owns memory (domain; any thread) and what owns everything of one thread (queue). */
	int (*domain_create)(struct fabric *fabric, struct fabric_domain **out);
	void (*domain_destroy)(struct fabric_domain *domain);
	int (*queue_create)(struct fabric_domain *domain, const struct fabric_queue_attr *attr,
			    struct fabric_queue **out);
	void (*queue_destroy)(struct fabric_queue *queue);
	void (*queue_abandon)(struct fabric_queue *queue);

	/* The listening side, in the queue's thread. */
	int (*listen)(struct fabric_queue *queue, const struct sockaddr *sa, socklen_t len, void *context,
		      struct fabric_listener **out);
	uint16_t (*listener_port)(const struct fabric_listener *listener);
	void (*listener_close)(struct fabric_listener *listener);

	/* From a request to an endpoint and its end, in the queue's thread; `reject` and `request_` in any. `take`
	 * gets a request of any queue of the fabric, and consumes it also when it fails, as `reject` does. */
	int (*ready)(struct fabric_queue *queue, const struct fabric_request *request);
	int (*connect)(struct fabric_queue *queue, struct fabric_domain *domain, const struct sockaddr *sa,
		       socklen_t len, const struct fabric_endpoint_attr *attr, const void *data, size_t data_len,
		       struct fabric_endpoint **out);
	int (*take)(struct fabric_queue *queue, struct fabric_domain *domain, struct fabric_request *request,
		    const struct fabric_endpoint_attr *attr, struct fabric_endpoint **out);
	int (*accept)(struct fabric_endpoint *endpoint, const void *data, size_t data_len);
	void (*reject)(struct fabric_request *request, const void *data, size_t data_len);
	void (*request_limits)(const struct fabric_request *request, struct fabric_limits *limits);
	char *(*request_peer)(const struct fabric_request *request, char *buf, size_t size);
	void (*request_source)(const struct fabric_request *request, struct fabric_source *out);
	char *(*endpoint_peer)(const struct fabric_endpoint *endpoint, char *buf, size_t size);
	void (*endpoint_source)(const struct fabric_endpoint *endpoint, struct fabric_source *out);
	int (*endpoint_local)(const struct fabric_endpoint *endpoint, struct sockaddr_storage *out);
	const struct fabric_transport *(*endpoint_transport)(const struct fabric_endpoint *endpoint);
	int (*admit)(struct fabric_endpoint *endpoint);
	int (*encrypt)(struct fabric_endpoint *endpoint, const struct fabric_secret *sends,
		       const struct fabric_secret *receives);
	int (*encrypts)(void);
	bool (*exposed)(const struct sockaddr *sa);                    /* left out: never */
	bool (*request_exposed)(const struct fabric_request *request); /* left out: never */
	void (*disconnect)(struct fabric_endpoint *endpoint);
	void (*endpoint_destroy)(struct fabric_endpoint *endpoint);

	/* Memory: regions in any thread, windows in that of their endpoint's queue. */
	int (*register_memory)(struct fabric_domain *domain, void *addr, size_t len, unsigned access,
			       struct fabric_region **out);
	int (*register_dmabuf)(struct fabric_domain *domain, const struct fabric_dmabuf *dmabuf, void *addr, size_t len,
			       unsigned access, struct fabric_region **out);
	void (*deregister)(struct fabric_region *region);
	uint32_t (*region_rkey)(const struct fabric_region *region, const struct fabric_endpoint *endpoint);
	int (*window_open)(struct fabric_endpoint *endpoint, const struct fabric_region *region, void *addr, size_t len,
			   unsigned access, struct fabric_window **out);
	void (*window_close)(struct fabric_window *window);

	/* The hot path, in the queue's thread: no allocation, no lock. */
	int (*post_recv)(struct fabric_queue *queue, struct fabric_endpoint *endpoint, const struct fabric_recv *recv,
			 unsigned count);
	uint32_t (*shared_wanted)(const struct fabric_queue *queue, uint32_t spare);
	int (*pull)(struct fabric_endpoint *endpoint, const struct fabric_recv *to, unsigned count);
	int (*post)(struct fabric_endpoint *endpoint, const struct fabric_wr *chain);
	int (*poll)(struct fabric_queue *queue, struct fabric_completion *out, int max);
	int (*next_event)(struct fabric_queue *queue, struct fabric_event *out);

	/* Waiting, in the queue's thread. */
	bool (*moving)(struct fabric_queue *queue);
	uint64_t (*moved_bytes)(const struct fabric_endpoint *endpoint);        /* left out: they are not known */
	bool (*arriving)(const struct fabric_endpoint *endpoint);               /* left out: never */
	bool (*unsent)(const struct fabric_endpoint *endpoint);                 /* left out: never */
	bool (*hung_up)(struct fabric_endpoint *endpoint);                      /* left out: polls always ask */
	bool (*host_lost)(const struct fabric_endpoint *endpoint, uint64_t ns); /* left out: nothing is known of it */
	int (*arm)(struct fabric_queue *queue);
	int (*fds)(const struct fabric_queue *queue, int fds[static FABRIC_MAX_FDS]);
};

/* provider.c: *out is *own, with a function for each that *own lacks. */
void fabric_provider_complete(struct fabric_provider *out, const struct fabric_provider *own);

static inline bool fabric_is_atomic(enum fabric_opcode opcode)
{
	return opcode == FABRIC_FETCH_ADD || opcode == FABRIC_COMPARE_SWAP;
}

/* Whether its memory is where the target's answer lands, not what is sent. */
static inline bool fabric_brings(enum fabric_opcode opcode)
{
	return opcode == FABRIC_READ || fabric_is_atomic(opcode);
}

struct fabric {
	const struct fabric_provider *ops;
};
struct fabric_domain {
	const struct fabric_provider *ops;
	struct fabric *fabric; /* set by fabric.c */
};
struct fabric_queue {
	const struct fabric_provider *ops;
	_Atomic uintptr_t user; /* contracts: the thread that is inside of a function of the queue, or 0 */
};
struct fabric_listener {
	const struct fabric_provider *ops;
	struct fabric_queue *queue; /* set by fabric.c */
};
struct fabric_request {
	const struct fabric_provider *ops;
};
struct fabric_endpoint {
	const struct fabric_provider *ops;
	struct fabric_queue *queue; /* set by fabric.c */
};
struct fabric_region {
	const struct fabric_provider *ops;
	void *addr;
	size_t len;
	unsigned access;
	uint64_t elsewhere; /* from the caller's address to the one that a peer names, modulo 2^64 */
};
struct fabric_window {
	const struct fabric_provider *ops;
	uint32_t rkey;
};

#define FABRIC_DECLARE_ROW(name, provider, ...) extern const struct fabric_provider fabric_##provider;
FABRIC_TRANSPORT_ROWS(FABRIC_DECLARE_ROW)

#endif
