/* service.c: the table of services, and how a request becomes a connection of one. */
#include "service/internal.h"

#include <stdlib.h>

static const struct service *const services[] = {&service_ping, &service_kv, &service_gpu};

int service_worker_create(struct service_worker *worker, const struct service_shared *shared)
{
	*worker = (struct service_worker){.shared = shared};
	return shared->gpu ? gpu_worker_create(worker) : 0;
}

void service_worker_free(struct service_worker *worker)
{
	gpu_worker_free(worker);
	kv_worker_free(worker);
}

const struct service *service_find(unsigned id)
{
	for (size_t i = 0; i < ARRAY_SIZE(services); i++)
		if (services[i]->id == id)
			return services[i];
	return NULL;
}

void service_refuse(struct fabric_request *fabric_request, enum wire_reason reason, uint64_t detail)
{
	struct wire_reject reject = {.version = WIRE_VERSION, .reason = reason, .detail = detail};
	uint8_t data[WIRE_REJECT_SIZE];
	char peer[128];

	log_info("service", "%s refused: %s", fabric_request_peer(fabric_request, peer, sizeof(peer)),
		 wire_reason_name(reason));
	wire_reject_encode(&reject, data);
	fabric_reject(fabric_request, data, sizeof(data));
}

int service_accept(const struct service *service, struct service_worker *worker, struct conn_group *group,
		   struct fabric_request *fabric_request, const struct wire_request *request)
{
	struct wire_accept grant = {0};
	struct conn_attr attr = {0};
	enum wire_reason reason;
	uint64_t detail = 0;
	struct conn *conn;
	void *agent;
	int rc;

	reason = service->admit(worker->shared, group, request, &grant, &detail);
	if (reason != WIRE_REASON_NONE) {
		service_refuse(fabric_request, reason, detail);
		return -EACCES;
	}
	agent = service->agent_new(worker, group);
	if (!agent) {
		service_refuse(fabric_request, WIRE_REASON_RESOURCES, 0);
		return -ENOMEM;
	}
	if (service->attr)
		service->attr(agent, &attr);
	rc = conn_accept(group, fabric_request, request, &grant, &attr, service->ops, agent, worker->now, &conn);
	if (rc != 0)
		service->agent_free(agent);
	return rc;
}

void service_drain(struct conn *conn)
{
	const struct service *service = service_find(conn_request(conn)->service);

	if (!conn_idle(conn))
		return;
	if (service->drain)
		service->drain(conn);
	else
		conn_close(conn, 0, "the server is shutting down");
}
