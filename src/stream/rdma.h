/*
 * rdma.h: the bytes of Valkey's protocol over RDMA, and what its two files share. Private to the room.
 *
 * One reliable queue pair is one stream in each direction. Each end registers memory and tells the other where, by a
 * message of 32 bytes (RDMA_REGISTER). The other end writes the bytes of the stream there, from the beginning to the
 * last byte, and says by the immediate of a write how many came. When all of it was used, it registers again: the same
 * memory, or other. Nothing else holds the sender back.
 *
 *   rdma.c       connections, messages, what comes, and when a client is cut off
 *   rdma_send.c  what leaves
 *
 * A client has two windows of its own, which it fills in turn: the second is offered when the first is full, and so it
 * writes while that is read. It reaches them by keys that are of its queue pair alone. What it wrote is copied out
 * before anything looks at it, because it could change it meanwhile.
 */
#ifndef RDMAD_STREAM_RDMA_H
#define RDMAD_STREAM_RDMA_H

#include "stream/internal.h"

#include <stddef.h>
#include <sys/uio.h>

enum rdma_opcode {
	RDMA_GET_FEATURES,
	RDMA_SET_FEATURES,
	RDMA_KEEPALIVE,
	RDMA_REGISTER,
};

/* All in network order; what is not used is 0. */
struct rdma_message {
	uint16_t opcode;
	uint16_t select; /* RDMA_GET_FEATURES; comes back as it was */
	uint8_t reserved[12];
	uint64_t addr; /* RDMA_REGISTER, with: */
	uint32_t len;
	uint32_t key;
};
_Static_assert(sizeof(struct rdma_message) == 32, "the size of a message");
_Static_assert(offsetof(struct rdma_message, addr) == 16, "its address");
_Static_assert(offsetof(struct rdma_message, len) == 24, "its length");
_Static_assert(offsetof(struct rdma_message, key) == 28, "its key");

#define RDMA_DEPTH 128u    /* requests under way */
#define RDMA_SPARE 8u      /* of them, kept for messages */
#define RDMA_RECEIVES 128u /* one for each message and each write that says how much it brought */
#define RDMA_STAGE (64 * KIB)

struct rdma_window {
	struct fabric_window *handle;
	char *at;
	uint32_t came, used; /* bytes */
};

/* A request that tells of its end, and with it of all before. */
struct rdma_mark {
	uint32_t posted, staged; /* as they were */
};

/* A piece that was taken whole, and is read by the device until `posted` requests are done. */
struct rdma_lent {
	struct stream_piece piece;
	uint32_t posted;
};

enum rdma_state { RDMA_CONNECTING, RDMA_LIVE, RDMA_GONE };

struct rdma_stream {
	enum rdma_state state;
	struct fabric_endpoint *endpoint;
	struct memory_pool *pool;           /* of one buffer, so that what clients had goes back when they go */
	const struct memory_buffer *buffer; /* two windows, the stage, receives */
	const struct fabric_region *values;
	uint32_t inline_size;
	unsigned owed;      /* bits 1 << enum rdma_opcode: messages to send */
	uint16_t select;    /* of the message about features */
	uint64_t messages;  /* that came, and writes of nothing */
	uint64_t last;      /* when something was posted */
	uint64_t settle_by; /* a close in peace waits so long for what is on its way */

	struct {
		struct rdma_window window[2];
		unsigned fills, reads; /* the window that the client fills, that is read */
		bool open;             /* the client may fill it */
		unsigned first, taken; /* receives: the oldest, and so many to post again */
	} in;

	struct {
		uint64_t addr; /* the client's memory */
		uint32_t len, key, used;
		bool known;
		uint32_t posted, marked, done; /* requests, ever: all, up to the last mark, up to the last that ended */
		uint32_t lent;                 /* `posted` behind the last that reads pieces */
		struct rdma_mark mark[RDMA_DEPTH];
		unsigned first, marks;
		uint32_t staged, unstaged; /* bytes, ever: taken of the stage, and free again */
		struct rdma_lent *piece;   /* a ring of `room`, a power of two */
		unsigned first_piece, pieces, room;
	} out;
};

/* What a group has for such clients. */
struct stream_rdma {
	struct fabric_queue *queue;
	unsigned streams;
};

static inline uint32_t rdma_window_size(const struct stream *s)
{
	return s->group->attr.rdma.window;
}

static inline char *rdma_stage(const struct stream *s)
{
	return (char *)s->rdma->buffer->addr + 2 * (size_t)rdma_window_size(s);
}

/* rdma_send.c */
ssize_t stream_rdma_send(struct stream *s, const struct iovec *iov, unsigned count, uint64_t pinned);
void stream_rdma_release(struct stream *s, const struct stream_piece *piece);
/* Post requests that follow each other in `wr`; signaled: their end is told. 0 or -errno. */
int stream_rdma_post(struct stream *s, struct fabric_wr *wr, unsigned count, bool signaled);
static inline bool rdma_has_slots(const struct rdma_stream *r, unsigned count)
{
	return RDMA_DEPTH - (r->out.posted - r->out.done) >= count;
}
/* The oldest mark has been reached. */
void stream_rdma_sent(struct stream *s);
bool stream_rdma_settled(struct stream *s);
/* The endpoint is no more. */
void stream_rdma_drop_lent(struct stream *s);

#endif
