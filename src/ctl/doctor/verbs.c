/* verbs.c: the door of libibverbs and librdmacm. Only what a check tries goes by it. */
#include "ctl/doctor/doctor.h"

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <sys/mman.h>

char *verbs_names(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	size_t room = 1;
	char *names, *to;

	for (struct ibv_device **at = list; at && *at; at++)
		room += strlen(ibv_get_device_name(*at)) + 1;
	names = to = malloc(room);
	for (struct ibv_device **at = list; to && at && *at; at++)
		to = stpcpy(to, ibv_get_device_name(*at)) + 1;
	if (to)
		*to = '\0';
	if (list)
		ibv_free_device_list(list);
	return names;
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (struct ibv_device **at = list; at && *at && !ctx; at++)
		if (strcmp(ibv_get_device_name(*at), name) == 0)
			ctx = ibv_open_device(*at);
	if (list)
		ibv_free_device_list(list);
	return ctx;
}

unsigned verbs_mtu(const char *device, unsigned port)
{
	struct ibv_context *ctx = open_device(device);
	struct ibv_port_attr attr;
	unsigned bytes = 0;

	if (!ctx)
		return 0;
	if (ibv_query_port(ctx, (uint8_t)port, &attr) == 0 && attr.state == IBV_PORT_ACTIVE)
		bytes = 128u << attr.active_mtu; /* IBV_MTU_256 is 1 */
	ibv_close_device(ctx);
	return bytes;
}

static int error_now(void)
{
	return errno ? -errno : -EIO;
}

int verbs_register(const char *device, size_t bytes, const char **step)
{
	struct ibv_context *ctx = open_device(device);
	struct ibv_pd *pd = NULL;
	struct ibv_mr *mr = NULL;
	void *memory = MAP_FAILED;
	int rc = 0;

	*step = "ibv_open_device";
	if (!ctx)
		return error_now();
	*step = "mmap";
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory != MAP_FAILED) {
		*step = "ibv_alloc_pd";
		pd = ibv_alloc_pd(ctx);
	}
	if (pd) {
		*step = "ibv_reg_mr";
		mr = ibv_reg_mr(pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	}
	if (!mr)
		rc = error_now();
	if (mr)
		ibv_dereg_mr(mr);
	if (pd)
		ibv_dealloc_pd(pd);
	if (memory != MAP_FAILED)
		munmap(memory, bytes);
	ibv_close_device(ctx);
	return rc;
}

const char *cm_stage_name(enum cm_stage stage)
{
	static const char *const names[] = {"rdma_create_id", "rdma_bind_addr", "rdma_resolve_addr",
					    "rdma_resolve_route"};

	return names[stage];
}

/* Wait for the event of a request: 0, or -errno. */
static int await_event(struct rdma_event_channel *channel, enum rdma_cm_event_type wanted, int timeout_ms)
{
	struct pollfd in = {.fd = channel->fd, .events = POLLIN};
	struct rdma_cm_event *event;
	int rc;

	if (poll(&in, 1, timeout_ms) <= 0)
		return -ETIMEDOUT;
	if (rdma_get_cm_event(channel, &event) != 0)
		return error_now();
	rc = event->event == wanted ? 0 : event->status < 0 ? event->status : -EHOSTUNREACH;
	rdma_ack_cm_event(event);
	return rc;
}

static enum cm_stage resolve_way(struct rdma_event_channel *channel, struct rdma_cm_id *id, const struct sockaddr *from,
				 const struct sockaddr *to, int timeout_ms, int *error)
{
	if (from && rdma_bind_addr(id, (struct sockaddr *)from) != 0) {
		*error = error_now();
		return CM_NOTHING;
	}
	*error = rdma_resolve_addr(id, NULL, (struct sockaddr *)to, timeout_ms) ? error_now() : 0;
	if (!*error)
		*error = await_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED, 2 * timeout_ms);
	if (*error)
		return CM_BIND;
	*error = rdma_resolve_route(id, timeout_ms) ? error_now() : 0;
	if (!*error)
		*error = await_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED, 2 * timeout_ms);
	return *error ? CM_ADDRESS : CM_ROUTE;
}

/* What the identifier knows of the way by now. */
static void describe_way(const struct rdma_cm_id *id, enum cm_stage stage, struct cm_way *way)
{
	const struct rdma_ib_addr *gids = &id->route.addr.addr.ibaddr;
	struct ibv_port_attr attr;

	if (!id->verbs)
		return;
	snprintf(way->device, sizeof(way->device), "%s", ibv_get_device_name(id->verbs->device));
	way->port = id->port_num;
	if (id->port_num && ibv_query_port(id->verbs, id->port_num, &attr) == 0)
		way->mtu = 128u << attr.active_mtu; /* IBV_MTU_256 is 1 */
	if (stage < CM_ADDRESS)
		return;
	inet_ntop(AF_INET6, &gids->sgid, way->from_gid, sizeof(way->from_gid));
	inet_ntop(AF_INET6, &gids->dgid, way->to_gid, sizeof(way->to_gid));
}

enum cm_stage verbs_resolve(const struct sockaddr *from, const struct sockaddr *to, int timeout_ms, int *error,
			    struct cm_way *way)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = NULL;
	enum cm_stage stage = CM_NOTHING;

	*way = (struct cm_way){.port = 0};
	*error = 0;
	if (!channel || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != 0) {
		*error = error_now();
	} else {
		stage = resolve_way(channel, id, from, to, timeout_ms, error);
		describe_way(id, stage, way);
		rdma_destroy_id(id);
	}
	if (channel)
		rdma_destroy_event_channel(channel);
	return stage;
}
