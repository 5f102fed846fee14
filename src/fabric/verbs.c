/* verbs.c: the RDMA provider: devices, protection domains and regions. */
#include "fabric/verbs.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

int verbs_find_device(const struct verbs_fabric *fabric, const struct ibv_context *ctx)
{
	for (unsigned i = 0; i < fabric->count; i++)
		if (fabric->device[i].ctx == ctx)
			return (int)i;
	return -ENODEV;
}

static bool verbs_port_active(struct ibv_context *ctx, unsigned ports, struct ibv_port_attr *out)
{
	for (unsigned port = 1; port <= ports; port++)
		if (ibv_query_port(ctx, (uint8_t)port, out) == 0 && out->state == IBV_PORT_ACTIVE)
			return true;
	return false;
}

/* Inline room has no attribute to ask for: devices refuse queue pairs that want too much. */
static uint32_t verbs_probe_inline(struct ibv_context *ctx)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC};
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 4, NULL, NULL, 0);
	struct ibv_qp *qp = NULL;
	uint32_t granted = 0;

	attr.send_cq = attr.recv_cq = cq;
	for (uint32_t want = VERBS_INLINE; pd && cq && !qp && want >= 32; want /= 2) {
		attr.cap = (struct ibv_qp_cap){.max_send_wr = 4,
					       .max_recv_wr = 1,
					       .max_send_sge = FABRIC_MAX_SGE,
					       .max_recv_sge = 1,
					       .max_inline_data = want};
		qp = ibv_create_qp(pd, &attr);
		if (qp)
			granted = MIN(attr.cap.max_inline_data, want);
	}
	if (qp)
		ibv_destroy_qp(qp);
	if (cq)
		ibv_destroy_cq(cq);
	if (pd)
		ibv_dealloc_pd(pd);
	return granted;
}

static bool verbs_device_init(struct verbs_device *device, struct ibv_context *ctx)
{
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	int flags;

	*device = (struct verbs_device){.ctx = ctx, .name = ibv_get_device_name(ctx->device)};
	if (ibv_query_device(ctx, &attr) || !verbs_port_active(ctx, attr.phys_port_cnt, &port)) {
		log_info("verbs", "device %s has no active port", device->name);
		return false;
	}
	device->iwarp = ctx->device->transport_type == IBV_TRANSPORT_IWARP;
	device->windows = attr.device_cap_flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	device->infiniband = port.link_layer == IBV_LINK_LAYER_INFINIBAND;
	device->max_reads = (uint8_t)MIN(MIN(attr.max_qp_rd_atom, attr.max_qp_init_rd_atom), 255);
	device->max_message = port.max_msg_sz ? MIN(port.max_msg_sz, (uint32_t)GIB) : MIB;
	device->max_wr = (uint32_t)attr.max_qp_wr;
	device->max_srq_wr = (uint32_t)MAX(attr.max_srq_wr, 0);
	device->max_cqe = (uint32_t)attr.max_cqe;
	device->max_inline = verbs_probe_inline(ctx);
	flags = fcntl(ctx->async_fd, F_GETFL);
	if (flags < 0 || fcntl(ctx->async_fd, F_SETFL, flags | O_NONBLOCK)) {
		log_error("verbs", "device %s: %m", device->name);
		return false;
	}
	return true;
}

static void verbs_append(char *text, size_t size, const char *name)
{
	size_t used = strlen(text);

	snprintf(text + used, size - used, "%s%s", used ? ", " : "", name);
}

static int verbs_no_device(const struct fabric_config *config, struct ibv_context *const *contexts)
{
	char names[512] = "";

	for (; *contexts; contexts++)
		verbs_append(names, sizeof(names), ibv_get_device_name((*contexts)->device));
	if (!*names)
		log_warn("verbs", "no RDMA device: `rdma link` and ibv_devices should list one");
	else if (config->device)
		log_warn("verbs", "no RDMA device %s with an active port; there are: %s", config->device, names);
	else
		log_warn("verbs", "no RDMA device has an active port; looked at: %s", names);
	return -ENODEV;
}

static void verbs_add_devices(struct verbs_fabric *fabric, const char *wanted)
{
	for (struct ibv_context **ctx = fabric->contexts; *ctx; ctx++) {
		if (wanted && strcmp(wanted, ibv_get_device_name((*ctx)->device)))
			continue;
		if (fabric->count == VERBS_MAX_DEVICES) {
			log_warn("verbs", "more than %d devices: %s is not used", VERBS_MAX_DEVICES,
				 ibv_get_device_name((*ctx)->device));
			continue;
		}
		if (!verbs_device_init(&fabric->device[fabric->count], *ctx))
			continue;
		verbs_append(fabric->names, sizeof(fabric->names), fabric->device[fabric->count++].name);
	}
}

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

/* The device list alone does not say whether the connection manager is there. */
static int verbs_check_cm(void)
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

static int verbs_open(const struct fabric_config *config, struct fabric **out)
{
	struct verbs_fabric *fabric;

	if (access("/dev/infiniband", X_OK)) {
		log_warn("verbs", "no RDMA on this machine: /dev/infiniband: %m");
		return -ENODEV;
	}
	if (verbs_check_cm())
		return -ENODEV;
	fabric = calloc(1, sizeof(*fabric));
	if (!fabric)
		return -ENOMEM;
	fabric->ack_timeout = verbs_ack_timeout(config->ack_timeout_ms);
	fabric->contexts = rdma_get_devices(NULL);
	if (!fabric->contexts) {
		log_warn("verbs", "no RDMA device: %m");
		goto free_fabric;
	}
	verbs_add_devices(fabric, config->device);
	if (!fabric->count) {
		verbs_no_device(config, fabric->contexts);
		goto free_devices;
	}
	*out = &fabric->base;
	return 0;
free_devices:
	rdma_free_devices(fabric->contexts);
free_fabric:
	free(fabric);
	return -ENODEV;
}

static void verbs_close(struct fabric *base)
{
	struct verbs_fabric *fabric = container_of(base, struct verbs_fabric, base);

	rdma_free_devices(fabric->contexts);
	free(fabric);
}

void verbs_limits(const struct fabric *base, struct fabric_limits *limits)
{
	const struct verbs_fabric *fabric = container_of(base, struct verbs_fabric, base);

	*limits = (struct fabric_limits){VERBS_INLINE, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, 255, true, true};
	for (unsigned i = 0; i < fabric->count; i++) {
		const struct verbs_device *d = &fabric->device[i];

		limits->inline_size = MIN(limits->inline_size, d->max_inline);
		limits->max_send_depth = MIN(limits->max_send_depth, d->max_wr - 1);
		limits->max_recv_depth = MIN(limits->max_recv_depth, d->max_wr);
		limits->max_shared_depth = MIN(limits->max_shared_depth, d->max_srq_wr);
		limits->max_completions = MIN(limits->max_completions, d->max_cqe);
		limits->max_reads = MIN(limits->max_reads, d->max_reads);
		limits->write_imm = limits->write_imm && !d->iwarp;
		limits->windows = limits->windows && d->windows;
	}
}

static const char *verbs_devices(const struct fabric *base)
{
	return container_of(base, struct verbs_fabric, base)->names;
}

static void verbs_domain_destroy(struct fabric_domain *base)
{
	struct verbs_domain *domain = container_of(base, struct verbs_domain, base);

	for (unsigned i = 0; i < domain->fabric->count; i++) {
		int rc = domain->pd[i] ? ibv_dealloc_pd(domain->pd[i]) : 0;

		if (rc != 0)
			log_error("verbs", "protection domain still in use: %s", strerror(rc));
	}
	free(domain);
}

static int verbs_domain_create(struct fabric *base, struct fabric_domain **out)
{
	struct verbs_fabric *fabric = container_of(base, struct verbs_fabric, base);
	struct verbs_domain *domain = calloc(1, sizeof(*domain));

	if (!domain)
		return -ENOMEM;
	domain->base.ops = fabric->base.ops;
	domain->fabric = fabric;
	for (unsigned i = 0; i < fabric->count; i++) {
		int error;

		domain->pd[i] = ibv_alloc_pd(fabric->device[i].ctx);
		if (domain->pd[i])
			continue;
		error = errno;
		log_error("verbs", "protection domain on %s: %s", fabric->device[i].name, strerror(error));
		verbs_domain_destroy(&domain->base);
		return -error;
	}
	*out = &domain->base;
	return 0;
}

static void verbs_log_register(const struct verbs_device *device, const void *addr, size_t len, int error)
{
	struct rlimit limit = {0};
	char size[32], lock[32] = "unlimited";

	units_format_size(len, size);
	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (limit.rlim_cur != RLIM_INFINITY)
		units_format_size(limit.rlim_cur, lock);
	if (error == ENOMEM)
		log_error("verbs",
			  "cannot pin %s for %s: RLIMIT_MEMLOCK is %s (raise it with ulimit -l, or "
			  "LimitMEMLOCK= in the service), or memory is short",
			  size, device->name, lock);
	else
		log_error("verbs", "cannot register %s at %p with %s: %s", size, addr, device->name, strerror(error));
}

/* On iWARP the sink of a read is written by the peer, like the target of a write. */
static int verbs_access_flags(const struct verbs_device *device, unsigned access)
{
	int flags = 0;

	if (access & FABRIC_LOCAL_WRITE)
		flags |= IBV_ACCESS_LOCAL_WRITE | (device->iwarp ? IBV_ACCESS_REMOTE_WRITE : 0);
	if (access & FABRIC_REMOTE_WRITE)
		flags |= IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	if (access & FABRIC_REMOTE_READ)
		flags |= IBV_ACCESS_REMOTE_READ;
	if (access & FABRIC_WINDOWS && device->windows)
		flags |= IBV_ACCESS_MW_BIND;
	return flags;
}

int verbs_mr_register(const struct verbs_domain *domain, unsigned device, void *addr, size_t len, unsigned access,
		      struct ibv_mr **out)
{
	const struct verbs_device *d = &domain->fabric->device[device];
	int error;

	*out = ibv_reg_mr(domain->pd[device], addr, len, verbs_access_flags(d, access));
	if (*out)
		return 0;
	error = errno;
	verbs_log_register(d, addr, len, error);
	return -error;
}

static void verbs_deregister(struct fabric_region *base)
{
	struct verbs_region *region = container_of(base, struct verbs_region, base);

	for (unsigned i = 0; i < region->count; i++) {
		int rc = ibv_dereg_mr(region->mr[i]);

		if (rc != 0)
			log_error("verbs", "cannot deregister %p: %s", base->addr, strerror(rc));
	}
	free(region);
}

static int verbs_register(struct fabric_domain *base, void *addr, size_t len, unsigned access,
			  struct fabric_region **out)
{
	struct verbs_domain *domain = container_of(base, struct verbs_domain, base);
	struct verbs_region *region = calloc(1, sizeof(*region));

	if (!region)
		return -ENOMEM;
	region->base = (struct fabric_region){base->ops, addr, len, access};
	for (; region->count < domain->fabric->count; region->count++) {
		int rc = verbs_mr_register(domain, region->count, addr, len, access, &region->mr[region->count]);

		if (rc != 0) {
			verbs_deregister(&region->base);
			return rc;
		}
	}
	*out = &region->base;
	return 0;
}

static uint32_t verbs_region_rkey(const struct fabric_region *base, const struct fabric_endpoint *endpoint)
{
	const struct verbs_region *region = container_of(base, struct verbs_region, base);

	return region->mr[container_of(endpoint, struct verbs_endpoint, base)->device]->rkey;
}

const struct fabric_provider fabric_verbs = {
	.name = "verbs",
	.open = verbs_open,
	.close = verbs_close,
	.limits = verbs_limits,
	.devices = verbs_devices,
	.domain_create = verbs_domain_create,
	.domain_destroy = verbs_domain_destroy,
	.queue_create = verbs_queue_create,
	.queue_destroy = verbs_queue_destroy,
	.listen = verbs_listen,
	.listener_port = verbs_listener_port,
	.listener_close = verbs_listener_close,
	.connect = verbs_connect,
	.ready = verbs_ready,
	.take = verbs_take,
	.accept = verbs_accept,
	.reject = verbs_reject,
	.request_peer = verbs_request_peer,
	.request_source = verbs_request_source,
	.endpoint_peer = verbs_endpoint_peer,
	.endpoint_source = verbs_endpoint_source,
	.endpoint_transport = verbs_endpoint_transport,
	.disconnect = verbs_disconnect,
	.endpoint_destroy = verbs_endpoint_destroy,
	.register_memory = verbs_register,
	.deregister = verbs_deregister,
	.region_rkey = verbs_region_rkey,
	.window_open = verbs_window_open,
	.window_close = verbs_window_close,
	.post_recv = verbs_post_recv,
	.post = verbs_post,
	.poll = verbs_poll,
	.next_event = verbs_next_event,
	.moving = verbs_moving,
	.arm = verbs_arm,
	.fds = verbs_fds,
};
