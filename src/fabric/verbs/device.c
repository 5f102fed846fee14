/*
 * device.c: which devices there are, and what each can do. What has no attribute to ask for is tried once, at the
 * start: devices differ more than their attributes say.
 */
#include "fabric/verbs/verbs.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#define SOFT_ROCE 0xffffff /* its vendor; that of old kernels has none */

#define VERBS_DEPTH_WANTED 256 /* rather than more bytes inline */

int verbs_wanted_parse(const char *text, struct verbs_wanted *out)
{
	const char *colon = text ? strrchr(text, ':') : NULL;
	size_t len = colon ? (size_t)(colon - text) : text ? strlen(text) : 0;
	char *end = NULL;

	*out = (struct verbs_wanted){.port = 0};
	if (!text)
		return 0;
	if (len == 0 || len >= sizeof(out->name))
		return -EINVAL;
	memcpy(out->name, text, len);
	if (!colon)
		return 0;
	if (colon[1] < '0' || colon[1] > '9')
		return -EINVAL;
	out->port = (unsigned)MIN(strtoul(colon + 1, &end, 10), UINT_MAX);
	return *end == '\0' && out->port >= 1 && out->port <= UINT8_MAX ? 0 : -EINVAL;
}

int verbs_find_device(const struct verbs_fabric *fabric, const struct rdma_cm_id *id)
{
	unsigned count = atomic_load(&fabric->count);

	for (unsigned i = 0; id->verbs && i < count; i++) {
		const struct verbs_device *device = &fabric->device[i];

		if (device->ctx != id->verbs)
			continue;
		if (!device->only_port || !id->port_num || id->port_num == device->only_port)
			return (int)i;
		log_info("verbs", "port %u of device %s is not used, only port %u is", id->port_num, device->name,
			 device->only_port);
		break;
	}
	return -ENODEV;
}

const struct verbs_port *verbs_find_port(const struct verbs_device *device, unsigned number)
{
	return &device->port[number >= 1 && number <= device->ports ? number - 1 : device->first_port];
}

/* For people: the active ones. */
static void verbs_ports_text(struct ibv_context *ctx, unsigned count, char *text, size_t size)
{
	struct ibv_port_attr attr;
	size_t used = 0;

	text[0] = '\0';
	for (unsigned i = 1; i <= count && used < size; i++)
		if (ibv_query_port(ctx, (uint8_t)i, &attr) == 0 && attr.state == IBV_PORT_ACTIVE)
			used += (size_t)snprintf(text + used, size - used, "%s%u", used ? ", " : "", i);
}

/* Ports differ in link layer and message size. False: none that may be used is active. */
static bool verbs_query_ports(struct verbs_device *device, unsigned count)
{
	device->ports = MIN(count, VERBS_MAX_PORTS);
	for (unsigned i = device->ports; i-- > 0;) {
		struct verbs_port *port = &device->port[i];
		struct ibv_port_attr attr;

		port->max_message = MIB;
		if (ibv_query_port(device->ctx, (uint8_t)(i + 1), &attr))
			continue;
		port->infiniband = attr.link_layer == IBV_LINK_LAYER_INFINIBAND;
		if (attr.max_msg_sz)
			port->max_message = MIN(attr.max_msg_sz, (uint32_t)GIB);
		if (attr.state != IBV_PORT_ACTIVE || (device->only_port && device->only_port != i + 1))
			continue;
		device->active = true;
		device->first_port = i;
		device->max_message = MAX(device->max_message, port->max_message);
	}
	return device->active;
}

/* Requests that one with so much inline counts for where the send queue is counted in pieces of 64 bytes. */
static uint32_t verbs_pieces(uint32_t inlined)
{
	return (16 + 16 + 4 + inlined + 63) / 64;
}

/* Devices refuse queue pairs that want too much inline. Also whether there are reliable connections at all. */
static int verbs_try_pair(struct verbs_device *device, struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
	struct ibv_qp *qp = NULL;
	uint32_t want = VERBS_INLINE;

	while (want > 32 && device->max_wr / verbs_pieces(want) < VERBS_DEPTH_WANTED)
		want /= 2;
	for (; !qp; want = want > 32 ? want / 2 : 0) {
		attr.cap = (struct ibv_qp_cap){.max_send_wr = 4,
					       .max_recv_wr = 1,
					       .max_send_sge = FABRIC_MAX_SGE,
					       .max_recv_sge = 1,
					       .max_inline_data = want};
		qp = ibv_create_qp(pd, &attr);
		if (qp)
			device->max_inline = MIN(attr.cap.max_inline_data, want);
		else if (!want)
			return -errno;
	}
	device->max_send = device->max_wr / verbs_pieces(device->max_inline);
	return ibv_destroy_qp(qp);
}

static int verbs_try_device(struct verbs_device *device)
{
	struct ibv_pd *pd = ibv_alloc_pd(device->ctx);
	struct ibv_cq *cq = pd ? ibv_create_cq(device->ctx, 4, NULL, NULL, 0) : NULL;
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = 1, .max_sge = 1}};
	struct ibv_srq *srq = NULL;
	int rc = cq ? 0 : -errno;

	if (rc == 0)
		rc = verbs_try_pair(device, pd, cq);
	if (rc == 0 && device->max_srq_wr)
		srq = ibv_create_srq(pd, &attr);
	if (srq)
		ibv_destroy_srq(srq);
	else if (rc == 0)
		device->max_srq_wr = 0;
	if (cq)
		ibv_destroy_cq(cq);
	if (pd)
		ibv_dealloc_pd(pd);
	return rc;
}

/* librdmacm opens a device once for the whole process. The kernel lets neither a child of it write there, nor the
 * process under another user. It looks at that before it looks at what is written. */
static bool verbs_is_inherited(const struct ibv_context *ctx)
{
	return write(ctx->cmd_fd, "", 1) < 0 && errno == EACCES;
}

bool verbs_device_init(struct verbs_device *device, struct ibv_context *ctx, unsigned only_port,
		       char why[static VERBS_REASON])
{
	struct ibv_device_attr attr;
	char reason[VERBS_REASON], active[32];
	int rc;

	*device = (struct verbs_device){.ctx = ctx, .only_port = only_port};
	snprintf(device->name, sizeof(device->name), "%s", ibv_get_device_name(ctx->device));
	snprintf(why, VERBS_REASON,
		 "it was opened before this process was forked, or changed its user: the child of a fork has "
		 "no RDMA if its parent used it");
	if (verbs_is_inherited(ctx))
		return false;
	snprintf(why, VERBS_REASON, "no active port");
	if (ibv_query_device(ctx, &attr))
		return false;
	if (!verbs_query_ports(device, attr.phys_port_cnt)) {
		verbs_ports_text(ctx, attr.phys_port_cnt, active, sizeof(active));
		if (only_port && *active)
			snprintf(why, VERBS_REASON, "it has no active port %u; active: %s", only_port, active);
		return false;
	}
	device->iwarp = ctx->device->transport_type == IBV_TRANSPORT_IWARP;
	device->windows = attr.device_cap_flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	device->loose_windows = !attr.vendor_id || attr.vendor_id == SOFT_ROCE;
	device->global = attr.atomic_cap == IBV_ATOMIC_GLOB;
	device->atomics = device->global || attr.atomic_cap == IBV_ATOMIC_HCA;
	device->max_reads = (uint8_t)MIN(MIN(attr.max_qp_rd_atom, attr.max_qp_init_rd_atom), 255);
	device->max_wr = (uint32_t)attr.max_qp_wr;
	device->max_srq_wr = attr.max_srq > 0 ? (uint32_t)MAX(attr.max_srq_wr, 0) : 0;
	device->max_cqe = (uint32_t)attr.max_cqe;
	rc = verbs_try_device(device);
	if (rc != 0)
		snprintf(why, VERBS_REASON, "it makes no reliable connections, %s", verbs_reason(-rc, reason));
	else if (verbs_nonblock(ctx->async_fd) != 0)
		snprintf(why, VERBS_REASON, "%s", strerror(errno));
	else
		return true;
	return false;
}

void verbs_append(char *text, size_t size, const char *name)
{
	size_t used = strlen(text);

	snprintf(text + used, size - used, "%s%s", used ? ", " : "", name);
}

bool verbs_is_wanted(const struct verbs_fabric *fabric, const char *name)
{
	return !*fabric->wanted.name || strcmp(fabric->wanted.name, name) == 0;
}

/* A word that two devices change is safe only where each of them minds the other. */
static bool verbs_are_apart(const struct verbs_fabric *fabric, unsigned count)
{
	bool apart = false;

	for (unsigned i = 0; i < count; i++)
		apart |= !fabric->device[i].global;
	return apart && count > 1;
}

bool verbs_device_add(struct verbs_fabric *fabric, struct ibv_context *ctx, enum verbs_presence presence,
		      char why[static VERBS_REASON])
{
	unsigned count = atomic_load(&fabric->count);
	struct verbs_device *device = &fabric->device[count];

	snprintf(why, VERBS_REASON, "there are more than %d", VERBS_MAX_DEVICES);
	if (count == VERBS_MAX_DEVICES || !verbs_device_init(device, ctx, fabric->wanted.port, why))
		return false;
	device->presence = presence;
	device->used = presence == VERBS_PRESENT;
	if (presence == VERBS_AWAY) {
		device->ctx = NULL;
		device->gone = true;
		device->atomics &= !verbs_are_apart(fabric, count + 1); /* the others have what they promised */
	}
	atomic_store(&fabric->count, count + 1);
	return true;
}

int verbs_devices_add(struct verbs_fabric *fabric, const char *wanted)
{
	char unused[512] = "", one[IBV_SYSFS_NAME_MAX + VERBS_REASON + 4], why[VERBS_REASON];

	for (struct ibv_context **ctx = fabric->contexts; *ctx; ctx++) {
		const char *name = ibv_get_device_name((*ctx)->device);

		snprintf(why, sizeof(why), "not asked for");
		if (verbs_is_wanted(fabric, name)) {
			if (verbs_device_add(fabric, *ctx, VERBS_PRESENT, why))
				continue;
			log_info("verbs", "device %s is not used: %s", name, why);
		}
		snprintf(one, sizeof(one), "%s (%s)", name, why);
		verbs_append(unused, sizeof(unused), one);
	}
	for (unsigned i = 0; i < fabric->count; i++)
		fabric->device[i].atomics &= !verbs_are_apart(fabric, fabric->count);
	if (fabric->count)
		return 0;
	if (!*unused)
		log_warn("verbs", "no RDMA device: `rdma link` and ibv_devices should list one");
	else if (wanted)
		log_warn("verbs", "no RDMA device %s that can be used; there are: %s", wanted, unused);
	else
		log_warn("verbs", "no RDMA device can be used: %s", unused);
	return -ENODEV;
}

void verbs_device_limits(const struct verbs_device *d, struct fabric_limits *limits)
{
	*limits = (struct fabric_limits){
		.inline_size = d->max_inline,
		.max_send_depth = d->max_send - 1, /* room for a fence */
		.max_recv_depth = d->max_wr,
		.max_shared_depth = verbs_shared_depth(d, UINT32_MAX),
		.max_completions = d->max_cqe,
		.max_reads = d->max_reads,
		.write_imm = !d->iwarp,
		.windows = d->windows,
		.shared = d->max_srq_wr > 0,
		.devices = 1,
		.atomics = d->atomics,
		.open_sinks = d->iwarp,
	};
}

void verbs_limits(const struct fabric *base, struct fabric_limits *limits)
{
	const struct verbs_fabric *fabric = container_of(base, struct verbs_fabric, base);
	unsigned count = atomic_load(&fabric->count);
	struct fabric_limits one;

	if (!count) {
		*limits = (struct fabric_limits){
			.inline_size = VERBS_INLINE,
			.max_send_depth = UINT32_MAX,
			.max_recv_depth = UINT32_MAX,
			.max_shared_depth = UINT32_MAX,
			.max_completions = UINT32_MAX,
			.max_reads = UINT8_MAX,
			.write_imm = true,
			.windows = true,
			.shared = true,
		};
		return;
	}
	verbs_device_limits(&fabric->device[0], limits);
	for (unsigned i = 1; i < count; i++) {
		verbs_device_limits(&fabric->device[i], &one);
		limits->inline_size = MIN(limits->inline_size, one.inline_size);
		limits->max_send_depth = MAX(limits->max_send_depth, one.max_send_depth);
		limits->max_recv_depth = MAX(limits->max_recv_depth, one.max_recv_depth);
		limits->max_shared_depth = MAX(limits->max_shared_depth, one.max_shared_depth);
		limits->max_completions = MAX(limits->max_completions, one.max_completions);
		limits->max_reads = MAX(limits->max_reads, one.max_reads);
		limits->write_imm &= one.write_imm;
		limits->windows &= one.windows;
		limits->shared &= one.shared;
		limits->devices += one.devices;
		limits->atomics &= one.atomics;
		limits->open_sinks |= one.open_sinks;
	}
}
