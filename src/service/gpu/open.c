/*
 * open.c: the ring of a session: what of it is granted, and how it is reached. In RPC mode no process does but the
 * daemon. In queue mode the client may read the process's part and write its own; the control page behind them is
 * in no region.
 */
#include "service/gpu/gpu.h"

#include <inttypes.h>
#include <stdlib.h>

#define PAYLOAD_DEFAULT (64u << 10) /* for a client that does not say how long its inputs are */

/* A ring of one slot has two cells, each on pages of its own, and pages for what is beside them. */
uint32_t gpu_service_payload_max(uint64_t memory)
{
	const struct wire_ring_shape least = {1, 1, WIRE_RING_LINE};
	uint64_t others = wire_ring_layout(&least).bytes - 2 * WIRE_RING_PAGE;
	uint64_t cell = memory > others ? (memory - others) / 2 : 0;

	cell = cell / WIRE_RING_PAGE * WIRE_RING_PAGE;
	return cell ? (uint32_t)MIN(cell - WIRE_RING_LINE, (uint64_t)WIRE_RING_PAYLOAD_MAX) : 0;
}

/* Most bytes of a session's ring: by the configuration, and by its client's line in the file of clients. */
static uint64_t memory_of(const struct gpu_agent *a)
{
	return MIN(gpu_agent_service(a)->memory, MAX(conn_client(a->conn)->gpu_memory, (uint64_t)GPU_MEMORY_MIN));
}

static uint32_t clip_number(uint32_t asked, uint32_t most)
{
	return asked ? MIN(asked, most) : most;
}

/* The payload as asked for, since a job fits or does not; of slots and queues what the memory then leaves. */
static struct wire_ring_shape shape_of(const struct gpu_agent *a, const struct wire_gpu_open *asked)
{
	const struct gpu_service *gpu = gpu_agent_service(a);
	uint64_t memory = memory_of(a);
	uint32_t payload = clip_number(asked->payload, gpu_service_payload_max(memory));
	struct wire_ring_shape shape = {clip_number(asked->queues, gpu->queues), clip_number(asked->slots, gpu->slots),
					0};

	if (!asked->payload)
		payload = MIN(payload, PAYLOAD_DEFAULT);
	shape.payload = (payload + WIRE_RING_LINE - 1) / WIRE_RING_LINE * WIRE_RING_LINE;
	while (shape.slots > 1 && wire_ring_layout(&shape).bytes > memory)
		shape.slots--;
	while (shape.queues > 1 && wire_ring_layout(&shape).bytes > memory)
		shape.queues--;
	return shape;
}

static int register_part(struct gpu_agent *a, unsigned part, uint64_t from, uint64_t to, unsigned access)
{
	return fabric_register(a->domain, a->ring->base + from, to - from, access, &a->region[part]);
}

static int register_ring(struct gpu_agent *a)
{
	const struct wire_ring_layout *at = &a->ring->at;
	bool windows = a->limits.windows, rpc = a->mode == WIRE_GPU_RPC;
	int rc;

	if (rpc && !a->limits.open_sinks)
		return register_part(a, 0, 0, at->control, FABRIC_LOCAL_WRITE);
	/* In RPC mode, where inputs are read as if the client wrote them, it may write as much as in queue mode: its
	 * part. */
	rc = register_part(a, 0, 0, at->client,
			   rpc       ? FABRIC_LOCAL_WRITE
			   : windows ? FABRIC_WINDOWS
				     : FABRIC_REMOTE_READ);
	if (rc == 0)
		rc = register_part(a, 1, at->client, at->control,
				   windows && !rpc ? FABRIC_WINDOWS : FABRIC_REMOTE_WRITE);
	return rc;
}

int gpu_agent_open(struct gpu_agent *a, const struct wire_record *request, const void *body)
{
	uint32_t most = gpu_service_payload_max(memory_of(a));
	struct wire_gpu_open asked;

	memcpy(&asked, body, sizeof(asked));
	if (a->state != GPU_WAITING) {
		gpu_agent_fail(a, -EBADMSG, "a session was opened twice");
	} else if (asked.mode >= WIRE_GPU_MODES) {
		gpu_agent_fail(a, -EBADMSG, "there is no mode %u", asked.mode);
	} else if (asked.flags & ~WIRE_GPU_SENDS || asked.reserved) {
		gpu_agent_fail(a, -EBADMSG, "an unknown flag (%#x) or reserved field (%u) is not 0",
			       asked.flags & ~WIRE_GPU_SENDS, asked.reserved);
	} else if (asked.payload > most) {
		gpu_agent_fail(a, -EMSGSIZE, "a payload of %u bytes was asked for; gpu%cmemory of the server allows %u",
			       asked.payload, memory_of(a) < gpu_agent_service(a)->memory ? '_' : '.', most);
	} else {
		a->mode = asked.mode;
		a->sends = asked.flags & WIRE_GPU_SENDS || !a->limits.write_imm;
		a->open_id = request->id;
		a->shape = shape_of(a, &asked);
		gpu_agent_handle(a, GPU_EVENT_OPENED);
	}
	return 0;
}

void gpu_agent_make(struct gpu_agent *a)
{
	struct gpu_service *gpu = gpu_agent_service(a);
	struct gpu_process_attr attr = gpu->attr;

	must(gpu_helper_is_here(&gpu->helper));
	if (gpu->devices) /* each session's process takes the next one */
		attr.device = gpu->device[atomic_fetch_add(&gpu->turn, 1) % gpu->devices];
	a->made = gpu_session_start(&attr, &a->shape, a->mode == WIRE_GPU_QUEUE, &a->session);
	if (a->made != 0)
		return;
	a->ring = gpu_session_ring(a->session);
	a->made = register_ring(a);
	if (a->made == 0 && a->mode == WIRE_GPU_RPC)
		a->made = gpu_agent_rpc_start(a);
}

/* The key by which the client reaches a part of the ring; a window's, where the device has windows. 0, or -EAGAIN. */
static int part_key(struct gpu_agent *a, unsigned part, uint64_t from, uint64_t to, unsigned access, uint32_t *key)
{
	struct fabric_endpoint *endpoint = conn_endpoint(a->conn);
	int rc;

	if (a->limits.windows && !a->window[part]) {
		rc = fabric_window_open(endpoint, a->region[part], a->ring->base + from, to - from, access,
					&a->window[part]);
		if (rc != 0)
			return rc;
	}
	*key = a->window[part] ? fabric_window_rkey(a->window[part]) : fabric_region_rkey(a->region[part], endpoint);
	return 0;
}

bool gpu_agent_open_answer(struct gpu_agent *a)
{
	const struct gpu_probe *probe = gpu_session_probe(a->session);
	const struct wire_ring_layout *at = &a->ring->at;
	struct wire_gpu_ring answer = {
		.queues = a->ring->shape.queues,
		.slots = a->ring->shape.slots,
		.payload = a->ring->shape.payload,
		.flags = a->sends ? WIRE_GPU_SENDS : 0,
	};
	int rc = 0;

	must(a->state == GPU_ANSWERING);
	if (a->mode == WIRE_GPU_QUEUE) {
		conn_admit(a->conn);
		answer.worker_addr = (uintptr_t)a->ring->base;
		answer.client_addr = (uintptr_t)a->ring->base + at->client;
		rc = part_key(a, 0, 0, at->client, FABRIC_REMOTE_READ, &answer.worker_rkey);
		if (rc == 0)
			rc = part_key(a, 1, at->client, at->control, FABRIC_REMOTE_WRITE, &answer.client_rkey);
	}
	if (rc == -EAGAIN)
		return false;
	if (rc != 0) {
		gpu_agent_fail(a, -EIO, "the server cannot open the ring: %s", strerror(-rc));
		return false;
	}
	memcpy(answer.backend, probe->backend, sizeof(answer.backend));
	memcpy(answer.device, probe->device, sizeof(answer.device));
	return gpu_agent_reply(a, WIRE_OP_GPU_OPEN, a->open_id, &answer, sizeof(answer));
}

void gpu_agent_close_windows(struct gpu_agent *a)
{
	must(!a->conn);
	for (size_t i = 0; i < ARRAY_SIZE(a->window); i++) {
		fabric_window_close(a->window[i]);
		a->window[i] = NULL;
	}
}

void gpu_agent_unmake(struct gpu_agent *a)
{
	must(gpu_helper_is_here(&gpu_agent_service(a)->helper));
	for (size_t i = 0; i < ARRAY_SIZE(a->region); i++)
		fabric_deregister(a->region[i]);
	gpu_port_destroy(a->port);
	free(a->job);
	free(a->bucket);
	a->port = NULL;
	a->ring = NULL;
	gpu_session_destroy(a->session);
	a->session = NULL;
	fabric_domain_destroy(a->domain);
	a->domain = NULL;
}
