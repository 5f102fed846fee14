/* provider.c: what stands in a provider's table where it has no function of its own. */
#include "fabric/provider.h"

typedef void (*any_function)(void);

static int no_open(const struct fabric_config *config, struct fabric **out)
{
	return -EOPNOTSUPP;
}

static void no_close(struct fabric *fabric)
{
}

static void no_limits(const struct fabric *fabric, struct fabric_limits *limits)
{
	*limits = (struct fabric_limits){.inline_size = 0};
}

static char *no_devices(const struct fabric *fabric, char *buf, size_t size)
{
	snprintf(buf, size, "%s", "");
	return buf;
}

static unsigned no_renew(struct fabric *fabric)
{
	return 1;
}

static bool no_hold_devices(struct fabric *fabric)
{
	return true;
}

static void no_release_devices(struct fabric *fabric)
{
}

static unsigned no_ports(struct fabric *fabric, struct fabric_port *out, unsigned most)
{
	return 0;
}

static int no_domain_create(struct fabric *fabric, struct fabric_domain **out)
{
	return -EOPNOTSUPP;
}

static void no_domain_destroy(struct fabric_domain *domain)
{
}

static int no_queue_create(struct fabric_domain *domain, const struct fabric_queue_attr *attr,
			   struct fabric_queue **out)
{
	return -EOPNOTSUPP;
}

static void no_queue_destroy(struct fabric_queue *queue)
{
}

static void no_queue_abandon(struct fabric_queue *queue)
{
}

static int no_listen(struct fabric_queue *queue, const struct sockaddr *sa, socklen_t len, void *context,
		     struct fabric_listener **out)
{
	return -EOPNOTSUPP;
}

static uint16_t no_listener_port(const struct fabric_listener *listener)
{
	return 0;
}

static void no_listener_close(struct fabric_listener *listener)
{
}

static int no_connect(struct fabric_queue *queue, struct fabric_domain *domain, const struct sockaddr *sa,
		      socklen_t len, const struct fabric_endpoint_attr *attr, const void *data, size_t data_len,
		      struct fabric_endpoint **out)
{
	return -EOPNOTSUPP;
}

static int no_ready(struct fabric_queue *queue, const struct fabric_request *request)
{
	return 0;
}

static int no_take(struct fabric_queue *queue, struct fabric_domain *domain, struct fabric_request *request,
		   const struct fabric_endpoint_attr *attr, struct fabric_endpoint **out)
{
	return -EOPNOTSUPP;
}

static int no_accept(struct fabric_endpoint *endpoint, const void *data, size_t data_len)
{
	return -EOPNOTSUPP;
}

static void no_reject(struct fabric_request *request, const void *data, size_t data_len)
{
}

static void no_request_source(const struct fabric_request *request, struct fabric_source *out)
{
	*out = (struct fabric_source){.family = AF_UNSPEC};
}

static void no_request_limits(const struct fabric_request *request, struct fabric_limits *limits)
{
	*limits = (struct fabric_limits){.inline_size = 0};
}

static char *no_request_peer(const struct fabric_request *request, char *buf, size_t size)
{
	snprintf(buf, size, "unknown");
	return buf;
}

static void no_endpoint_source(const struct fabric_endpoint *endpoint, struct fabric_source *out)
{
	*out = (struct fabric_source){.family = AF_UNSPEC};
}

static int no_endpoint_local(const struct fabric_endpoint *endpoint, struct sockaddr_storage *out)
{
	return -EOPNOTSUPP;
}

static char *no_endpoint_peer(const struct fabric_endpoint *endpoint, char *buf, size_t size)
{
	snprintf(buf, size, "unknown");
	return buf;
}

static const struct fabric_transport *no_endpoint_transport(const struct fabric_endpoint *endpoint)
{
	static const struct fabric_transport none = {.name = "none", .text = "no transport"};

	return &none;
}

static int no_admit(struct fabric_endpoint *endpoint)
{
	return -EOPNOTSUPP;
}

static int no_encrypt(struct fabric_endpoint *endpoint, const struct fabric_secret *sends,
		      const struct fabric_secret *receives)
{
	return -EOPNOTSUPP;
}

static int no_encrypts(void)
{
	return -EOPNOTSUPP;
}

static bool no_exposed(const struct sockaddr *sa)
{
	return false;
}

static bool no_request_exposed(const struct fabric_request *request)
{
	return false;
}

static void no_disconnect(struct fabric_endpoint *endpoint)
{
}

static void no_endpoint_destroy(struct fabric_endpoint *endpoint)
{
}

static int no_register_memory(struct fabric_domain *domain, void *addr, size_t len, unsigned access,
			      struct fabric_region **out)
{
	return -EOPNOTSUPP;
}

static int no_register_dmabuf(struct fabric_domain *domain, const struct fabric_dmabuf *dmabuf, void *addr, size_t len,
			      unsigned access, struct fabric_region **out)
{
	return -EOPNOTSUPP;
}

static void no_deregister(struct fabric_region *region)
{
}

static uint32_t no_region_rkey(const struct fabric_region *region, const struct fabric_endpoint *endpoint)
{
	return 0;
}

static int no_window_open(struct fabric_endpoint *endpoint, const struct fabric_region *region, void *addr, size_t len,
			  unsigned access, struct fabric_window **out)
{
	return -EOPNOTSUPP;
}

static void no_window_close(struct fabric_window *window)
{
}

static int no_post_recv(struct fabric_queue *queue, struct fabric_endpoint *endpoint, const struct fabric_recv *recv,
			unsigned count)
{
	return -EOPNOTSUPP;
}

static uint32_t no_shared_wanted(const struct fabric_queue *queue, uint32_t spare)
{
	return 0;
}

static int no_pull(struct fabric_endpoint *endpoint, const struct fabric_recv *to, unsigned count)
{
	return -EOPNOTSUPP;
}

static int no_post(struct fabric_endpoint *endpoint, const struct fabric_wr *chain)
{
	return -EOPNOTSUPP;
}

static int no_poll(struct fabric_queue *queue, struct fabric_completion *out, int max)
{
	return 0;
}

static int no_next_event(struct fabric_queue *queue, struct fabric_event *out)
{
	return 0;
}

static bool no_moving(struct fabric_queue *queue)
{
	return false;
}

static bool no_arriving(const struct fabric_endpoint *endpoint)
{
	return false;
}

static bool no_unsent(const struct fabric_endpoint *endpoint)
{
	return false;
}

static uint64_t no_moved_bytes(const struct fabric_endpoint *endpoint)
{
	return FABRIC_MOVED_UNKNOWN;
}

static int no_arm(struct fabric_queue *queue)
{
	return 0;
}

static bool no_hung_up(struct fabric_endpoint *endpoint)
{
	return false;
}

static bool no_host_lost(const struct fabric_endpoint *endpoint, uint64_t ns)
{
	return false;
}

static int no_fds(const struct fabric_queue *queue, int fds[static FABRIC_MAX_FDS])
{
	return 0;
}

static const struct fabric_provider nothing = {
	.open = no_open,
	.close = no_close,
	.limits = no_limits,
	.devices = no_devices,
	.renew = no_renew,
	.hold_devices = no_hold_devices,
	.release_devices = no_release_devices,
	.ports = no_ports,
	.domain_create = no_domain_create,
	.domain_destroy = no_domain_destroy,
	.queue_create = no_queue_create,
	.queue_destroy = no_queue_destroy,
	.queue_abandon = no_queue_abandon,
	.listen = no_listen,
	.listener_port = no_listener_port,
	.listener_close = no_listener_close,
	.connect = no_connect,
	.ready = no_ready,
	.take = no_take,
	.accept = no_accept,
	.reject = no_reject,
	.request_limits = no_request_limits,
	.request_peer = no_request_peer,
	.request_source = no_request_source,
	.endpoint_peer = no_endpoint_peer,
	.endpoint_source = no_endpoint_source,
	.endpoint_local = no_endpoint_local,
	.endpoint_transport = no_endpoint_transport,
	.admit = no_admit,
	.encrypt = no_encrypt,
	.encrypts = no_encrypts,
	.exposed = no_exposed,
	.request_exposed = no_request_exposed,
	.disconnect = no_disconnect,
	.endpoint_destroy = no_endpoint_destroy,
	.register_memory = no_register_memory,
	.register_dmabuf = no_register_dmabuf,
	.deregister = no_deregister,
	.region_rkey = no_region_rkey,
	.window_open = no_window_open,
	.window_close = no_window_close,
	.post_recv = no_post_recv,
	.shared_wanted = no_shared_wanted,
	.pull = no_pull,
	.post = no_post,
	.poll = no_poll,
	.next_event = no_next_event,
	.moving = no_moving,
	.moved_bytes = no_moved_bytes,
	.arriving = no_arriving,
	.unsent = no_unsent,
	.hung_up = no_hung_up,
	.host_lost = no_host_lost,
	.arm = no_arm,
	.fds = no_fds,
};

/* From the first function on, a table is nothing but pointers to functions. */
_Static_assert((sizeof(struct fabric_provider) - offsetof(struct fabric_provider, open)) % sizeof(any_function) == 0,
	       "a provider's table is walked");

void fabric_provider_complete(struct fabric_provider *out, const struct fabric_provider *own)
{
	static const any_function none;

	*out = *own;
	for (size_t at = offsetof(struct fabric_provider, open); at < sizeof(*out); at += sizeof(none))
		if (memcmp((char *)out + at, &none, sizeof(none)) == 0)
			memcpy((char *)out + at, (const char *)&nothing + at, sizeof(none));
}
