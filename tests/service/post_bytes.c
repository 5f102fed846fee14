/*
 * post_bytes.c: what leaves was written by us. Linked into a suite with --wrap=fabric_post,--wrap=memory_pool_get, it fills each
 * buffer that a connection takes, as another connection might have, and looks at each message that is posted, whatever service and
 * provider it is of: the padding between two records is 0, and nowhere else is what the buffer was filled with.
 */
#include <stdio.h>
#include <stdlib.h>

#include "fabric/fabric.h"
#include "memory/memory.h"
#include "wire/wire.h"

#define FILLED ((size_t)WIRE_MESSAGE_MIN) /* bytes: each pool's buffers have as many */

static const uint8_t filling[] = {0xa5, 0xc3, 0x5a, 0x3c};

struct memory_buffer *__real_memory_pool_get(struct memory_pool *pool);
struct memory_buffer *__wrap_memory_pool_get(struct memory_pool *pool);
int __real_fabric_post(struct fabric_endpoint *endpoint, const struct fabric_wr *chain);
int __wrap_fabric_post(struct fabric_endpoint *endpoint, const struct fabric_wr *chain);

struct memory_buffer *__wrap_memory_pool_get(struct memory_pool *pool)
{
	struct memory_buffer *buffer = __real_memory_pool_get(pool);

	for (size_t i = 0; buffer && i < FILLED; i++)
		((uint8_t *)buffer->addr)[i] = filling[i % sizeof(filling)];
	return buffer;
}

static void found(const char *what, const uint8_t *message, size_t at)
{
	fprintf(stderr, "a message leaves with %s at byte %zu, of a record of operation %u\n", what, at,
		((const struct wire_record *)(message + sizeof(struct wire_message)))->op);
	abort();
}

static void look_for_filling(const uint8_t *message, size_t length)
{
	uint8_t turned[sizeof(filling)];

	for (size_t turn = 0; turn < sizeof(filling); turn++) {
		const uint8_t *at;

		for (size_t i = 0; i < sizeof(filling); i++)
			turned[i] = filling[(i + turn) % sizeof(filling)];
		at = memmem(message, length, turned, sizeof(turned));
		if (at)
			found("what nobody wrote", message, (size_t)(at - message));
	}
}

static void look_at_padding(const uint8_t *message, size_t length)
{
	size_t at = sizeof(struct wire_message);

	while (at + sizeof(struct wire_record) <= length) {
		size_t end = at + sizeof(struct wire_record) + ((const struct wire_record *)(message + at))->length;

		for (at = end; at < WIRE_PAD(end) && at < length; at++)
			if (message[at])
				found("padding that is not 0", message, at);
	}
}

int __wrap_fabric_post(struct fabric_endpoint *endpoint, const struct fabric_wr *chain)
{
	for (const struct fabric_wr *wr = chain; wr; wr = wr->next) {
		if (wr->opcode != FABRIC_SEND || !wr->sge_count)
			continue;
		look_at_padding(wr->sge[0].addr, wr->sge[0].len);
		look_for_filling(wr->sge[0].addr, wr->sge[0].len);
	}
	return __real_fabric_post(endpoint, chain);
}
