/*
 * register.c: memory that a program registered for its messages. An engine pins it when it is first needed there, so
 * that it may be registered before there is a peer.
 */
#include "peer/messages/message.h"

#include <stdlib.h>

struct range {
	char *addr;
	size_t len;
	uint32_t pinned; /* by the engines' places in rdma_context.engine, the first place of each */
};

struct message_memory {
	struct range *range;
	unsigned count, room;
};

static struct range *range_of(const rdma_context *ctx, const char *addr, size_t len)
{
	struct message_memory *memory = ctx->memory;

	for (unsigned i = 0; memory && i < memory->count; i++) {
		struct range *range = &memory->range[i];

		if (addr >= range->addr && len <= range->len && (size_t)(addr - range->addr) <= range->len - len)
			return range;
	}
	return NULL;
}

static bool engine_has_windows(const struct engine *engine)
{
	struct fabric_limits limits;

	fabric_limits(fabric_domain_fabric(conn_group_domain(engine_group(engine))), &limits);
	return limits.windows;
}

static int range_pin(rdma_context *ctx, struct range *range, struct engine *engine)
{
	unsigned place = 0; /* two transports of one provider share one */
	int rc = 0;

	while (place < FABRIC_TRANSPORTS && ctx->engine[place] != engine)
		place++;
	if (range->pinned & 1u << place)
		return 0;
	rc = buffers_register(engine_buffers(engine), range->addr, range->len,
			      FABRIC_LOCAL_WRITE | (engine_has_windows(engine) ? FABRIC_WINDOWS : FABRIC_REMOTE_READ));
	if (rc == 0)
		range->pinned |= 1u << place;
	return rc;
}

int message_reach(struct peer *peer, const void *addr, size_t len, unsigned access, struct reach *out)
{
	struct range *range = range_of(peer->ctx, addr, len);

	if (range && range_pin(peer->ctx, range, peer->engine) != 0)
		log_debug("peer", "registered memory is registered again for each message");
	return buffers_reach(engine_buffers(peer->engine), addr, len, access, out);
}

/* Memory that a peer may read is shown by a window of its connection. Where there are none, by a key that all of them
 * may use; so is memory that may only be read, such as a constant, as a window takes what may be written. */
int message_show(struct peer *peer, const void *addr, size_t len, struct reach *out, struct fabric_window **window)
{
	const char *logged;
	int rc;

	if (!engine_has_windows(peer->engine))
		return message_reach(peer, addr, len, FABRIC_REMOTE_READ, out);
	log_hush_begin();
	rc = message_reach(peer, addr, len, FABRIC_WINDOWS, out);
	logged = log_hush_end();
	if (rc == -EFAULT)
		return message_reach(peer, addr, len, FABRIC_REMOTE_READ, out);
	if (rc != 0) {
		log_error("peer", "%s", logged);
		return rc;
	}
	rc = fabric_window_open(conn_endpoint(peer->conn), reach_region(out), (void *)addr, len, FABRIC_REMOTE_READ,
				window);
	if (rc != 0)
		message_unreach(peer, out);
	return rc;
}

void message_unreach(struct peer *peer, struct reach *reach)
{
	if (reach_region(reach))
		buffers_unreach(engine_buffers(peer->engine), reach);
}

/* -EBUSY: an operation uses it. */
static int range_unpin(rdma_context *ctx, struct range *range)
{
	for (unsigned i = 0; i < FABRIC_TRANSPORTS; i++) {
		int rc;

		if (!(range->pinned & 1u << i))
			continue;
		rc = buffers_unregister(engine_buffers(ctx->engine[i]), range->addr);
		if (rc != 0)
			return rc;
		range->pinned &= ~(1u << i);
	}
	return 0;
}

static int range_pin_all(rdma_context *ctx, struct range *range)
{
	int rc = 0;

	for (unsigned i = 0; i < FABRIC_TRANSPORTS && rc == 0; i++)
		if (ctx->engine[i])
			rc = range_pin(ctx, range, ctx->engine[i]);
	if (rc != 0)
		range_unpin(ctx, range);
	return rc;
}

static bool memory_overlaps(const struct message_memory *memory, const char *addr, size_t len)
{
	for (unsigned i = 0; i < memory->count; i++)
		if (addr < memory->range[i].addr + memory->range[i].len && memory->range[i].addr < addr + len)
			return true;
	return false;
}

static int memory_register(rdma_context *ctx, void *addr, size_t len)
{
	struct range range = {.addr = addr, .len = len};
	struct message_memory *memory;

	if (!ctx->memory)
		ctx->memory = calloc(1, sizeof(*ctx->memory));
	memory = ctx->memory;
	if (memory && memory->count == memory->room) {
		unsigned room = memory->room ? 2 * memory->room : 8;
		struct range *more = realloc(memory->range, room * sizeof(*more));

		if (more) {
			memory->range = more;
			memory->room = room;
		}
	}
	if (!memory || memory->count == memory->room)
		return rdma_fail(-ENOMEM, "No memory to remember what is registered");
	if (memory_overlaps(memory, addr, len))
		return rdma_fail(-EEXIST, "Invalid parameters: some of the memory is registered already");
	if (range_pin_all(ctx, &range) != 0)
		return rdma_fail_logged(-ENOMEM, "Cannot register memory");
	memory->range[memory->count++] = range;
	return 0;
}

bool memory_ends(const void *addr, size_t len)
{
	if (len <= PTRDIFF_MAX && (uintptr_t)addr + len >= (uintptr_t)addr)
		return true;
	rdma_fail(-EINVAL, "Invalid parameters: %zu bytes at %p do not end", len, addr);
	return false;
}

int rdma_register(rdma_context *ctx, void *addr, size_t len)
{
	int rc;

	if (!ctx || !addr || !len)
		return rdma_fail(-EINVAL, "Invalid parameters: the %s",
				 !ctx    ? "context is NULL"
				 : !addr ? "memory is NULL"
					 : "memory has 0 bytes");
	if (!memory_ends(addr, len))
		return -1;
	rdma_enter(ctx);
	rc = memory_register(ctx, addr, len);
	rdma_leave(ctx);
	return rc;
}

int rdma_unregister(rdma_context *ctx, const void *addr)
{
	struct range *range;
	int rc = 0;

	if (!ctx || !addr)
		return rdma_fail(-EINVAL, "Invalid parameters: the %s is NULL", !ctx ? "context" : "memory");
	rdma_enter(ctx);
	range = range_of(ctx, addr, 1);
	if (!range || range->addr != addr)
		rc = rdma_fail(-ENOENT, "Invalid parameters: no memory that begins there is registered");
	else if (range_unpin(ctx, range) != 0)
		rc = rdma_fail(-EBUSY, "The memory is being sent or received");
	else
		*range = ctx->memory->range[--ctx->memory->count];
	rdma_leave(ctx);
	return rc;
}

void register_end(rdma_context *ctx)
{
	if (!ctx->memory)
		return;
	free(ctx->memory->range);
	free(ctx->memory);
	ctx->memory = NULL;
}
