/* fabric.c: finds the provider, checks arguments once for all providers. */
#include "fabric/provider.h"

#include <netinet/in.h>

#include <pthread.h>
#include <unistd.h>

static struct fabric_provider complete[FABRIC_TRANSPORTS]; /* of the provider of each row; written once */
static pthread_once_t completed = PTHREAD_ONCE_INIT;

static void complete_all(void)
{
	for (unsigned i = 0; i < FABRIC_TRANSPORTS; i++)
		fabric_provider_complete(&complete[i], fabric_transports[i].provider);
}

static const struct fabric_provider *find_provider(const char *name)
{
	pthread_once(&completed, complete_all);
	for (unsigned i = 0; i < FABRIC_TRANSPORTS; i++)
		if (strcmp(name, complete[i].name) == 0)
			return &complete[i];
	log_error("fabric", "no provider named %s", name);
	return NULL;
}

int fabric_open(const char *provider, const struct fabric_config *config, struct fabric **out)
{
	static const struct fabric_config defaults;
	const struct fabric_provider *ops = find_provider(provider);
	int rc = ops ? ops->open(config ? config : &defaults, out) : -EINVAL;

	if (rc == 0)
		(*out)->ops = ops;
	return rc;
}

/* For must(), on each way into a queue and out of it: it is one thread's at a time. */
static bool queue_enter(struct fabric_queue *queue)
{
	return atomic_exchange(&queue->user, thread_self()) == 0;
}

static bool queue_leave(struct fabric_queue *queue)
{
	return atomic_exchange(&queue->user, 0) == thread_self();
}

void fabric_close(struct fabric *fabric)
{
	if (fabric)
		fabric->ops->close(fabric);
}

const char *fabric_name(const struct fabric *fabric)
{
	return fabric->ops->name;
}

bool fabric_has(const struct fabric *fabric, const struct fabric_transport *transport)
{
	return fabric->ops->name == transport->provider->name;
}

void fabric_limits(const struct fabric *fabric, struct fabric_limits *limits)
{
	fabric->ops->limits(fabric, limits);
}

char *fabric_devices(const struct fabric *fabric, char *buf, size_t size)
{
	return fabric->ops->devices(fabric, buf, size);
}

unsigned fabric_ports(struct fabric *fabric, struct fabric_port *out, unsigned most)
{
	return fabric->ops->ports(fabric, out, most);
}

unsigned fabric_renew(struct fabric *fabric)
{
	return fabric->ops->renew(fabric);
}

bool fabric_hold_devices(struct fabric *fabric)
{
	return fabric->ops->hold_devices(fabric);
}

void fabric_release_devices(struct fabric *fabric)
{
	fabric->ops->release_devices(fabric);
}

int fabric_domain_create(struct fabric *fabric, struct fabric_domain **out)
{
	int rc = fabric->ops->domain_create(fabric, out);

	if (rc == 0)
		(*out)->fabric = fabric;
	return rc;
}

struct fabric *fabric_domain_fabric(const struct fabric_domain *domain)
{
	return domain->fabric;
}

void fabric_domain_destroy(struct fabric_domain *domain)
{
	if (domain)
		domain->ops->domain_destroy(domain);
}

int fabric_queue_create(struct fabric_domain *domain, const struct fabric_queue_attr *attr, struct fabric_queue **out)
{
	struct fabric_queue_attr a = *attr;

	if (!a.completions)
		a.completions = 4096;
	return domain->ops->queue_create(domain, &a, out);
}

void fabric_queue_destroy(struct fabric_queue *queue)
{
	must(!queue || !queue->user);
	if (queue)
		queue->ops->queue_destroy(queue);
}

void fabric_queue_abandon(struct fabric_queue *queue)
{
	queue->ops->queue_abandon(queue);
}

int fabric_listen(struct fabric_queue *queue, const struct sockaddr *sa, socklen_t len, void *context,
		  struct fabric_listener **out)
{
	int rc;

	must(queue_enter(queue));
	rc = queue->ops->listen(queue, sa, len, context, out);
	must(queue_leave(queue));
	if (rc == 0)
		(*out)->queue = queue;
	return rc;
}

uint16_t fabric_listener_port(const struct fabric_listener *listener)
{
	return listener->ops->listener_port(listener);
}

void fabric_listener_close(struct fabric_listener *listener)
{
	struct fabric_queue *queue = listener ? listener->queue : NULL;

	if (!listener)
		return;
	must(queue_enter(queue));
	listener->ops->listener_close(listener);
	must(queue_leave(queue));
}

static struct fabric_endpoint_attr with_defaults(const struct fabric_endpoint_attr *attr)
{
	struct fabric_endpoint_attr a = *attr;

	if (!a.send_depth)
		a.send_depth = 64;
	return a;
}

int fabric_connect(struct fabric_queue *queue, struct fabric_domain *domain, const struct sockaddr *sa, socklen_t len,
		   const struct fabric_endpoint_attr *attr, const void *data, size_t data_len,
		   struct fabric_endpoint **out)
{
	struct fabric_endpoint_attr a = with_defaults(attr);
	int rc;

	must(domain->ops == queue->ops);
	if (data_len > FABRIC_REQUEST_DATA)
		return -EINVAL;
	must(queue_enter(queue));
	rc = queue->ops->connect(queue, domain, sa, len, &a, data, data_len, out);
	must(queue_leave(queue));
	if (rc == 0)
		(*out)->queue = queue;
	return rc;
}

int fabric_ready(struct fabric_queue *queue, const struct fabric_request *request)
{
	int rc;

	must(request->ops == queue->ops);
	must(queue_enter(queue));
	rc = queue->ops->ready(queue, request);
	must(queue_leave(queue));
	return rc;
}

int fabric_take(struct fabric_queue *queue, struct fabric_domain *domain, struct fabric_request *request,
		const struct fabric_endpoint_attr *attr, struct fabric_endpoint **out)
{
	struct fabric_endpoint_attr a = with_defaults(attr);
	int rc;

	must(domain->ops == queue->ops && request->ops == queue->ops);
	must(queue_enter(queue));
	rc = queue->ops->take(queue, domain, request, &a, out);
	must(queue_leave(queue));
	if (rc == 0)
		(*out)->queue = queue;
	return rc;
}

int fabric_accept(struct fabric_endpoint *endpoint, const void *data, size_t data_len)
{
	int rc;

	if (data_len > FABRIC_ACCEPT_DATA)
		return -EINVAL;
	must(queue_enter(endpoint->queue));
	rc = endpoint->ops->accept(endpoint, data, data_len);
	must(queue_leave(endpoint->queue));
	return rc;
}

void fabric_reject(struct fabric_request *request, const void *data, size_t data_len)
{
	request->ops->reject(request, data, MIN(data_len, (size_t)FABRIC_REJECT_DATA));
}

void fabric_request_source(const struct fabric_request *request, struct fabric_source *out)
{
	request->ops->request_source(request, out);
}

void fabric_endpoint_source(const struct fabric_endpoint *endpoint, struct fabric_source *out)
{
	endpoint->ops->endpoint_source(endpoint, out);
}

int fabric_endpoint_local(const struct fabric_endpoint *endpoint, struct sockaddr_storage *out)
{
	return endpoint->ops->endpoint_local(endpoint, out);
}

void fabric_source_of(const struct sockaddr *sa, struct fabric_source *out)
{
	const struct in6_addr *six = &((const struct sockaddr_in6 *)sa)->sin6_addr;

	*out = (struct fabric_source){.family = sa->sa_family};
	if (address_is_loopback(sa))
		*out = (struct fabric_source){.family = AF_INET, .id = {htonl(INADDR_LOOPBACK)}};
	else if (sa->sa_family == AF_INET)
		out->id[0] = ((const struct sockaddr_in *)sa)->sin_addr.s_addr;
	else if (sa->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(six))
		*out = (struct fabric_source){.family = AF_INET, .id = {six->s6_addr32[3]}};
	else if (sa->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(six))
		memcpy(out->id, six, sizeof(*six) / 2); /* of the rest a host chooses any */
	else if (sa->sa_family == AF_INET6) {           /* all hosts, of all links, have the first half in common */
		memcpy(out->id, six, sizeof(*six));
		out->family |= (uint64_t)((const struct sockaddr_in6 *)sa)->sin6_scope_id << 32;
	}
}

void fabric_request_limits(const struct fabric_request *request, struct fabric_limits *limits)
{
	request->ops->request_limits(request, limits);
}

char *fabric_request_peer(const struct fabric_request *request, char *buf, size_t size)
{
	return request->ops->request_peer(request, buf, size);
}

char *fabric_endpoint_peer(const struct fabric_endpoint *endpoint, char *buf, size_t size)
{
	return endpoint->ops->endpoint_peer(endpoint, buf, size);
}

const struct fabric_transport *fabric_endpoint_transport(const struct fabric_endpoint *endpoint)
{
	return endpoint->ops->endpoint_transport(endpoint);
}

int fabric_admit(struct fabric_endpoint *endpoint)
{
	int rc;

	must(queue_enter(endpoint->queue));
	rc = endpoint->ops->admit(endpoint);
	must(queue_leave(endpoint->queue));
	return rc;
}

int fabric_encrypt(struct fabric_endpoint *endpoint, const struct fabric_secret *sends,
		   const struct fabric_secret *receives)
{
	int rc;

	must(queue_enter(endpoint->queue) && !sends == !receives);
	rc = endpoint->ops->encrypt(endpoint, sends, receives);
	must(queue_leave(endpoint->queue));
	return rc;
}

int fabric_encrypts(const struct fabric *fabric)
{
	return fabric->ops->encrypts();
}

bool fabric_exposed(const struct fabric *fabric, const struct sockaddr *sa)
{
	return fabric->ops->exposed(sa);
}

bool fabric_request_exposed(const struct fabric_request *request)
{
	return request->ops->request_exposed(request);
}

void fabric_disconnect(struct fabric_endpoint *endpoint)
{
	must(queue_enter(endpoint->queue));
	endpoint->ops->disconnect(endpoint);
	must(queue_leave(endpoint->queue));
}

void fabric_endpoint_destroy(struct fabric_endpoint *endpoint)
{
	struct fabric_queue *queue = endpoint ? endpoint->queue : NULL;

	if (!endpoint)
		return;
	must(queue_enter(queue));
	endpoint->ops->endpoint_destroy(endpoint);
	must(queue_leave(queue));
}

static unsigned access_complete(unsigned access)
{
	return access |
	       (access & (FABRIC_REMOTE_WRITE | FABRIC_WINDOWS | FABRIC_REMOTE_ATOMIC) ? FABRIC_LOCAL_WRITE : 0);
}

int fabric_register(struct fabric_domain *domain, void *addr, size_t len, unsigned access, struct fabric_region **out)
{
	if (!len || (uintptr_t)addr + len < (uintptr_t)addr)
		return -EINVAL;
	return domain->ops->register_memory(domain, addr, len, access_complete(access), out);
}

/* What it says of its size, where it says any. */
static int dmabuf_check(const struct fabric_dmabuf *dmabuf, const void *addr, size_t len)
{
	off_t size = lseek(dmabuf->fd, 0, SEEK_END);

	if (size < 0 && errno == EBADF)
		return log_fail(-EBADF, "fabric", "%d is not an open descriptor", dmabuf->fd);
	if (size >= 0 && (dmabuf->offset > (uint64_t)size || len > (uint64_t)size - dmabuf->offset))
		return log_fail(-EINVAL, "fabric", "%zu bytes at %llu of a dmabuf of %lld bytes", len,
				(unsigned long long)dmabuf->offset, (long long)size);
	if ((dmabuf->offset ^ (uintptr_t)addr) % (uintptr_t)sysconf(_SC_PAGESIZE))
		return log_fail(-EINVAL, "fabric",
				"the offset %llu in a dmabuf and its address %p are not at the same place of a page",
				(unsigned long long)dmabuf->offset, addr);
	return 0;
}

int fabric_register_dmabuf(struct fabric_domain *domain, const struct fabric_dmabuf *dmabuf, void *addr, size_t len,
			   unsigned access, struct fabric_region **out)
{
	int rc;

	if (!len || (uintptr_t)addr + len < (uintptr_t)addr)
		return -EINVAL;
	rc = dmabuf_check(dmabuf, addr, len);
	return rc != 0 ? rc : domain->ops->register_dmabuf(domain, dmabuf, addr, len, access_complete(access), out);
}

uint64_t fabric_region_named(const struct fabric_region *region, const void *addr)
{
	return (uintptr_t)addr + region->elsewhere;
}

void fabric_deregister(struct fabric_region *region)
{
	if (region)
		region->ops->deregister(region);
}

uint32_t fabric_region_rkey(const struct fabric_region *region, const struct fabric_endpoint *endpoint)
{
	must(region->ops == endpoint->ops);
	return region->ops->region_rkey(region, endpoint);
}

int fabric_window_open(struct fabric_endpoint *endpoint, const struct fabric_region *region, void *addr, size_t len,
		       unsigned access, struct fabric_window **out)
{
	const unsigned rights = FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE | FABRIC_REMOTE_ATOMIC;
	size_t offset = (size_t)((char *)addr - (char *)region->addr);
	int rc;

	if (!access || access & ~rights || !(region->access & FABRIC_WINDOWS))
		return -EINVAL;
	if (!len || offset > region->len || len > region->len - offset)
		return -EINVAL;
	must(region->ops == endpoint->ops);
	must(queue_enter(endpoint->queue));
	rc = endpoint->ops->window_open(endpoint, region, addr, len, access, out);
	must(queue_leave(endpoint->queue));
	return rc;
}

uint32_t fabric_window_rkey(const struct fabric_window *window)
{
	return window->rkey;
}

void fabric_window_close(struct fabric_window *window)
{
	if (window)
		window->ops->window_close(window);
}

int fabric_post_recv(struct fabric_queue *queue, struct fabric_endpoint *endpoint, const struct fabric_recv *recv,
		     unsigned count)
{
	int rc;

	must(!endpoint || endpoint->queue == queue);
	must(queue_enter(queue));
	rc = queue->ops->post_recv(queue, endpoint, recv, count);
	must(queue_leave(queue));
	return rc;
}

uint32_t fabric_shared_wanted(const struct fabric_queue *queue, uint32_t spare)
{
	return queue->ops->shared_wanted(queue, spare);
}

int fabric_pull(struct fabric_endpoint *endpoint, const struct fabric_recv *to, unsigned count)
{
	int rc;

	must(queue_enter(endpoint->queue));
	rc = endpoint->ops->pull(endpoint, to, count);
	must(queue_leave(endpoint->queue));
	return rc;
}

int fabric_post(struct fabric_endpoint *endpoint, const struct fabric_wr *chain)
{
	int rc;

	must(queue_enter(endpoint->queue));
	rc = endpoint->ops->post(endpoint, chain);
	must(queue_leave(endpoint->queue));
	return rc;
}

int fabric_poll(struct fabric_queue *queue, struct fabric_completion *out, int max)
{
	int rc;

	must(queue_enter(queue));
	rc = queue->ops->poll(queue, out, max);
	must(queue_leave(queue));
	return rc;
}

int fabric_next_event(struct fabric_queue *queue, struct fabric_event *out)
{
	int rc;

	must(queue_enter(queue));
	rc = queue->ops->next_event(queue, out);
	must(queue_leave(queue));
	return rc;
}

bool fabric_moving(struct fabric_queue *queue)
{
	bool moving;

	must(queue_enter(queue));
	moving = queue->ops->moving(queue);
	must(queue_leave(queue));
	return moving;
}

bool fabric_arriving(const struct fabric_endpoint *endpoint)
{
	return endpoint->ops->arriving(endpoint);
}

bool fabric_unsent(const struct fabric_endpoint *endpoint)
{
	return endpoint->ops->unsent(endpoint);
}

uint64_t fabric_moved_bytes(const struct fabric_endpoint *endpoint)
{
	return endpoint->ops->moved_bytes(endpoint);
}

int fabric_arm(struct fabric_queue *queue)
{
	int rc;

	must(queue_enter(queue));
	rc = queue->ops->arm(queue);
	must(queue_leave(queue));
	return rc;
}

bool fabric_hung_up(struct fabric_endpoint *endpoint)
{
	bool hung_up;

	must(queue_enter(endpoint->queue));
	hung_up = endpoint->ops->hung_up(endpoint);
	must(queue_leave(endpoint->queue));
	return hung_up;
}

bool fabric_host_lost(const struct fabric_endpoint *endpoint, uint64_t ns)
{
	return endpoint->ops->host_lost(endpoint, ns);
}

int fabric_fds(const struct fabric_queue *queue, int fds[static FABRIC_MAX_FDS])
{
	return queue->ops->fds(queue, fds);
}

const char *fabric_status_text(enum fabric_status status)
{
	switch (status) {
	case FABRIC_OK:
		return "success";
	case FABRIC_FLUSHED:
		return "flushed, the connection ended first";
	case FABRIC_LOCAL_ERROR:
		return "this side could not send or receive: a length or protection error, or its RDMA device has lost "
		       "the address or the route: see rdmactl doctor";
	case FABRIC_REMOTE_ACCESS:
		return "remote access refused";
	case FABRIC_REMOTE_ERROR:
		return "the peer could not take the message";
	case FABRIC_PEER_LOST:
		return "the peer does not answer";
	case FABRIC_LINK_DOWN:
		return "the link of this side's RDMA device is down: see rdma link, ip link";
	}
	return "unknown";
}
