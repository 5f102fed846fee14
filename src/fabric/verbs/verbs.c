/* verbs.c: the RDMA provider: protection domains and regions; asynchronous device errors. */
#include "fabric/verbs/verbs.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

/* Exponent of 4.096 us that is at least `ms`. */
static uint8_t verbs_ack_timeout(uint32_t ms)
{
	uint8_t exponent = 1;

	if (!ms)
		return 14; /* 67 ms */
	while (exponent < 31 && (4096ull << exponent) < ms * TIME_MS)
		exponent++;
	return exponent;
}

int verbs_check_cm(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();

	if (!channel) {
		log_warn("verbs", "rdma_cm does not answer (%m): is rdma_ucm loaded and "
				  "/dev/infiniband/rdma_cm readable?");
		return -ENODEV;
	}
	rdma_destroy_event_channel(channel);
	return 0;
}

/* All devices that are there. */
static int verbs_find_devices(struct verbs_fabric *fabric, const char *wanted)
{
	if (access("/dev/infiniband", X_OK)) {
		log_warn("verbs", "no RDMA on this machine: /dev/infiniband: %m");
		return -ENODEV;
	}
	if (fabric->late && !verbs_any_is_there()) {
		log_warn("verbs", "no RDMA device: `rdma link` and ibv_devices should list one");
		return -ENODEV;
	}
	if (verbs_check_cm())
		return -ENODEV;
	fabric->contexts = rdma_get_devices(NULL);
	if (!fabric->contexts) {
		log_warn("verbs", "no RDMA device: %m");
		return -ENODEV;
	}
	return verbs_devices_add(fabric, wanted);
}

static int verbs_open(const struct fabric_config *config, struct fabric **out)
{
	struct verbs_fabric *fabric = calloc(1, sizeof(*fabric));

	if (!fabric)
		return -ENOMEM;
	fabric->ack_timeout = verbs_ack_timeout(config->ack_timeout_ms);
	fabric->traffic_class = config->traffic_class;
	if (verbs_wanted_parse(config->device, &fabric->wanted) != 0) {
		log_warn("verbs", "%s is no RDMA device: a name like mlx5_0, or with a port from 1 on, mlx5_0:2",
			 config->device);
		goto free_fabric;
	}
	fabric->late = config->late;
	if (verbs_find_devices(fabric, config->device) != 0 && !fabric->late)
		goto free_devices;
	verbs_fabric_add(fabric);
	*out = &fabric->base;
	return 0;
free_devices:
	if (fabric->contexts)
		rdma_free_devices(fabric->contexts);
free_fabric:
	free(fabric);
	return -ENODEV;
}

static void verbs_close(struct fabric *base)
{
	struct verbs_fabric *fabric = container_of(base, struct verbs_fabric, base);

	verbs_fabric_remove(fabric);
	free(fabric);
}

static char *verbs_devices(const struct fabric *base, char *buf, size_t size)
{
	const struct verbs_fabric *fabric = container_of(base, struct verbs_fabric, base);
	unsigned count = atomic_load(&fabric->count);

	snprintf(buf, size, "%s", "");
	for (unsigned i = 0; i < count; i++)
		verbs_append(buf, size, fabric->device[i].name);
	return buf;
}

static void verbs_domain_destroy(struct fabric_domain *base)
{
	struct verbs_domain *domain = container_of(base, struct verbs_domain, base);

	/* To the end: a device that is given back meanwhile takes its context along. */
	pthread_rwlock_rdlock(&domain->fabric->lock);
	verbs_list_remove(&domain->member);
	for (unsigned i = 0; i < domain->fabric->count; i++) {
		int rc = domain->pd[i] ? ibv_dealloc_pd(domain->pd[i]) : 0;

		if (rc != 0)
			log_error("verbs", "protection domain still in use: %s", strerror(rc));
	}
	pthread_rwlock_unlock(&domain->fabric->lock);
	free(domain);
}

/* A device that was taken away answers EIO to all but destroying, so to a question, too. The others go on without
 * it. */
static bool verbs_is_gone(struct verbs_device *device, int error)
{
	struct ibv_device_attr unused;

	if (error == EIO && !atomic_load(&device->gone) && ibv_query_device(device->ctx, &unused) == EIO) {
		verbs_device_gone(device, strerror(error));
		atomic_store(&device->gone, true);
	}
	return atomic_load(&device->gone);
}

/* On each device that is there. */
static int verbs_pds_alloc(struct verbs_domain *domain)
{
	struct verbs_fabric *fabric = domain->fabric;

	for (unsigned i = 0; i < fabric->count; i++) {
		int error;

		if (!verbs_is_gone(&fabric->device[i], 0))
			domain->pd[i] = ibv_alloc_pd(fabric->device[i].ctx);
		error = errno;
		if (domain->pd[i] || verbs_is_gone(&fabric->device[i], error))
			continue;
		log_error("verbs", "protection domain on %s: %s", fabric->device[i].name, strerror(error));
		return -error;
	}
	return 0;
}

static int verbs_domain_create(struct fabric *base, struct fabric_domain **out)
{
	struct verbs_fabric *fabric = container_of(base, struct verbs_fabric, base);
	struct verbs_domain *domain = calloc(1, sizeof(*domain));
	int rc;

	if (!domain)
		return -ENOMEM;
	domain->base.ops = fabric->base.ops;
	domain->fabric = fabric;
	list_init(&domain->member);
	list_init(&domain->regions);
	pthread_rwlock_rdlock(&fabric->lock);
	rc = verbs_pds_alloc(domain);
	verbs_list_add(&fabric->domains, &domain->member);
	pthread_rwlock_unlock(&fabric->lock);
	if (rc == 0)
		*out = &domain->base;
	else
		verbs_domain_destroy(&domain->base);
	return rc;
}

const char *verbs_reason(int error, char text[static VERBS_REASON])
{
	struct rlimit limit = {0};
	char lock[32] = "unlimited";

	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (limit.rlim_cur != RLIM_INFINITY)
		units_format_size(limit.rlim_cur, lock);
	if (error == ENOMEM)
		snprintf(text, VERBS_REASON,
			 "RLIMIT_MEMLOCK is %s (raise it with ulimit -l, or LimitMEMLOCK= in the service), or memory "
			 "is short",
			 lock);
	else
		snprintf(text, VERBS_REASON, "%s", strerror(error));
	return text;
}

static void verbs_log_register(const struct verbs_device *device, const void *addr, size_t len, int error)
{
	char size[32], reason[VERBS_REASON];

	units_format_size(len, size);
	if (error == ENOMEM)
		log_error("verbs", "cannot pin %s for %s: %s (RD-5004)", size, device->name,
			  verbs_reason(error, reason));
	else
		log_error("verbs", "cannot register %s at %p with %s: %s (RD-5004)", size, addr, device->name,
			  strerror(error));
}

static int verbs_access_flags(const struct verbs_device *device, unsigned access)
{
	int flags = 0;

	if (access & FABRIC_LOCAL_WRITE)
		flags |= IBV_ACCESS_LOCAL_WRITE;
	if (access & FABRIC_REMOTE_WRITE)
		flags |= IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	if (access & FABRIC_REMOTE_READ)
		flags |= IBV_ACCESS_REMOTE_READ;
	if (access & FABRIC_WINDOWS && device->windows)
		flags |= IBV_ACCESS_MW_BIND;
	if (access & FABRIC_REMOTE_ATOMIC)
		flags |= IBV_ACCESS_LOCAL_WRITE | (device->atomics ? IBV_ACCESS_REMOTE_ATOMIC : 0);
	return flags;
}

/* Kernels, drivers and libraries without it have each their own error. */
static bool verbs_lacks_dmabuf(int error)
{
	return error == EOPNOTSUPP || error == ENOTSUP || error == ENOSYS || error == EPROTONOSUPPORT ||
	       error == ENOTTY;
}

static int verbs_no_dmabuf(const struct verbs_device *device, size_t len, int error)
{
	char size[32];

	units_format_size(len, size);
	return log_fail(
		-EOPNOTSUPP, "verbs",
		"%s cannot register %s of a dmabuf (%s): that needs Linux 5.12, rdma-core 34 and a driver with it, "
		"as mlx5 of Linux 5.16; copy the values to memory of the host, and use that",
		device->name, size, strerror(error));
}

int verbs_mr_register(const struct verbs_domain *domain, unsigned device, const struct fabric_dmabuf *dmabuf,
		      void *addr, size_t len, unsigned access, struct ibv_mr **out)
{
	const struct verbs_device *d = &domain->fabric->device[device];
	int flags = verbs_access_flags(d, access), error;

	if (dmabuf)
		*out = ibv_reg_dmabuf_mr(domain->pd[device], dmabuf->offset, len, (uintptr_t)addr, dmabuf->fd, flags);
	else
		*out = ibv_reg_mr(domain->pd[device], addr, len, flags);
	if (*out)
		return 0;
	error = errno;
	if (dmabuf && verbs_lacks_dmabuf(error))
		return verbs_no_dmabuf(d, len, error);
	verbs_log_register(d, addr, len, error);
	return -error;
}

int verbs_region_enter(struct verbs_region *region, unsigned device)
{
	const struct fabric_region *r = &region->base;
	const struct fabric_dmabuf *dmabuf = region->dmabuf.fd >= 0 ? &region->dmabuf : NULL;

	return verbs_mr_register(region->domain, device, dmabuf, r->addr, r->len, r->access, &region->mr[device]);
}

static void verbs_deregister(struct fabric_region *base)
{
	struct verbs_region *region = container_of(base, struct verbs_region, base);
	struct verbs_fabric *fabric = region->domain->fabric;

	/* To the end, as of a domain. */
	pthread_rwlock_rdlock(&fabric->lock);
	verbs_list_remove(&region->member);
	for (unsigned i = 0; i < VERBS_MAX_DEVICES; i++) {
		int rc = region->mr[i] ? ibv_dereg_mr(region->mr[i]) : 0;

		if (rc != 0)
			log_error("verbs", "cannot deregister %p: %s", base->addr, strerror(rc));
	}
	pthread_rwlock_unlock(&fabric->lock);
	if (region->dmabuf.fd >= 0)
		close(region->dmabuf.fd);
	free(region);
}

/* With each device that is there. */
static int verbs_mrs_register(struct verbs_region *region)
{
	struct verbs_domain *domain = region->domain;

	for (unsigned i = 0; i < domain->fabric->count; i++) {
		struct verbs_device *device = &domain->fabric->device[i];
		int rc = domain->pd[i] && !verbs_is_gone(device, 0) ? verbs_region_enter(region, i) : 0;

		if (rc != 0 && !verbs_is_gone(device, -rc))
			return rc;
	}
	return 0;
}

/* The descriptor is needed again when a device comes back. */
static int verbs_dmabuf_copy(struct verbs_region *region, const struct fabric_dmabuf *dmabuf)
{
	region->dmabuf.fd = -1;
	if (!dmabuf)
		return 0;
	region->dmabuf = (struct fabric_dmabuf){fcntl(dmabuf->fd, F_DUPFD_CLOEXEC, 0), dmabuf->offset};
	return region->dmabuf.fd < 0 ? log_fail(-errno, "verbs", "no copy of the descriptor of a dmabuf: %m") : 0;
}

/* `dmabuf` NULL: ordinary memory. */
static int verbs_region_create(struct verbs_domain *domain, const struct fabric_dmabuf *dmabuf, void *addr, size_t len,
			       unsigned access, struct fabric_region **out)
{
	struct verbs_region *region = calloc(1, sizeof(*region));
	int rc;

	if (!region)
		return -ENOMEM;
	region->base = (struct fabric_region){.ops = domain->base.ops, .addr = addr, .len = len, .access = access};
	region->domain = domain;
	list_init(&region->member);
	rc = verbs_dmabuf_copy(region, dmabuf);
	if (rc != 0) {
		free(region);
		return rc;
	}
	pthread_rwlock_rdlock(&domain->fabric->lock);
	rc = verbs_mrs_register(region);
	verbs_list_add(&domain->regions, &region->member); /* what there is of one that failed is given back, too */
	pthread_rwlock_unlock(&domain->fabric->lock);
	if (rc == 0)
		*out = &region->base;
	else
		verbs_deregister(&region->base);
	return rc;
}

static int verbs_register(struct fabric_domain *base, void *addr, size_t len, unsigned access,
			  struct fabric_region **out)
{
	return verbs_region_create(container_of(base, struct verbs_domain, base), NULL, addr, len, access, out);
}

static int verbs_register_dmabuf(struct fabric_domain *base, const struct fabric_dmabuf *dmabuf, void *addr, size_t len,
				 unsigned access, struct fabric_region **out)
{
	return verbs_region_create(container_of(base, struct verbs_domain, base), dmabuf, addr, len, access, out);
}

static uint32_t verbs_region_rkey(const struct fabric_region *base, const struct fabric_endpoint *endpoint)
{
	const struct ibv_mr *mr = verbs_mr(base, container_of(endpoint, struct verbs_endpoint, base)->device);

	return mr ? mr->rkey : 0;
}

const struct fabric_provider fabric_verbs = {
	.name = "verbs",
	.open = verbs_open,
	.close = verbs_close,
	.limits = verbs_limits,
	.devices = verbs_devices,
	.renew = verbs_renew,
	.hold_devices = verbs_hold_devices,
	.release_devices = verbs_release_devices,
	.ports = verbs_ports,
	.domain_create = verbs_domain_create,
	.domain_destroy = verbs_domain_destroy,
	.queue_create = verbs_queue_create,
	.queue_destroy = verbs_queue_destroy,
	.queue_abandon = verbs_queue_abandon,
	.listen = verbs_listen,
	.listener_port = verbs_listener_port,
	.listener_close = verbs_listener_close,
	.connect = verbs_connect,
	.ready = verbs_ready,
	.take = verbs_take,
	.accept = verbs_accept,
	.reject = verbs_reject,
	.request_limits = verbs_request_limits,
	.request_peer = verbs_request_peer,
	.request_source = verbs_request_source,
	.endpoint_peer = verbs_endpoint_peer,
	.endpoint_source = verbs_endpoint_source,
	.endpoint_local = verbs_endpoint_local,
	.endpoint_transport = verbs_endpoint_transport,
	.admit = verbs_admit,
	.disconnect = verbs_disconnect,
	.endpoint_destroy = verbs_endpoint_destroy,
	.register_memory = verbs_register,
	.register_dmabuf = verbs_register_dmabuf,
	.deregister = verbs_deregister,
	.region_rkey = verbs_region_rkey,
	.window_open = verbs_window_open,
	.window_close = verbs_window_close,
	.post_recv = verbs_post_recv,
	.shared_wanted = verbs_shared_wanted,
	.post = verbs_post,
	.poll = verbs_poll,
	.next_event = verbs_next_event,
	.moving = verbs_moving,
	.arm = verbs_arm,
	.hung_up = verbs_hung_up,
	.fds = verbs_fds,
};
