/*
 * ring.h: the job ring of a GPU session, to the byte. It lies in memory that the server makes. One
 * side submits jobs: the daemon in RPC mode, the client itself by one-sided operations in queue
 * mode. The other side is the worker process, whose processor threads or accelerator kernel take
 * the jobs. So this one header compiles as C11 and as CUDA C++. rdmad-gpu-ring(7) describes the
 * same in words.
 *
 * A session has `queues` pairs of queues, each with one producer and one consumer: jobs towards the
 * worker, results back. Each queue has `slots` cells; indices are free-running 64-bit counts, so
 * cell = index % slots, and a queue is full when its indices differ by `slots`. Each word has one
 * writer:
 *
 *   submitted  by the client  jobs written
 *   taken      by the worker  jobs whose cell is free again
 *   collected  by the client  results read
 *   done       by the worker  results written
 *
 * A cell is a descriptor and its payload. A descriptor has the number of its turn (index + 1), so
 * that a half-written job is never taken. The descriptor of a result also has a check over itself
 * and its payload, so that a reader knows from the bytes alone that all of it is there.
 *
 * There are three parts by their writers, each from a page on: the worker's (the peer may read it),
 * the client's (the peer may write it), and the control page of daemon and worker, which no peer
 * reaches.
 */
#ifndef RDMAD_WIRE_RING_H
#define RDMAD_WIRE_RING_H

#include <stdint.h>

#define WIRE_RING_MAGIC 0x474e495244414d52ull /* "RMADRING" in memory order */
#define WIRE_RING_VERSION 1
#define WIRE_RING_QUEUES_MAX 64u
#define WIRE_RING_SLOTS_MAX 1024u
#define WIRE_RING_PAYLOAD_MAX (64u << 20)
#define WIRE_RING_LINE 64u
#define WIRE_RING_PAGE 4096u
#define WIRE_RING_PARAMS 8

#ifdef __cplusplus
#define WIRE_RING_ASSERT static_assert
#else
#define WIRE_RING_ASSERT _Static_assert
#endif

/* An operation, its parameters and how many bytes follow in the cell. It is copied by its words, so that each is read
 * once. */
struct wire_ring_job {
	union {
		struct {
			uint64_t sequence; /* index + 1 */
			uint32_t id;       /* chosen by the client, comes back in the result */
			uint32_t op;       /* enum wire_ring_op of gpu_operations.h */
			uint32_t length;   /* of the input */
			uint32_t reserved;
			uint32_t param[WIRE_RING_PARAMS]; /* by op */
			uint64_t reserved2;
		};
		uint64_t word[WIRE_RING_LINE / 8];
	};
};
WIRE_RING_ASSERT(sizeof(struct wire_ring_job) == WIRE_RING_LINE, "ring layout");

struct wire_ring_result {
	union {
		struct {
			uint64_t sequence; /* index + 1 */
			uint64_t check;    /* wire_ring_check() */
			uint32_t id;
			uint32_t length;      /* of the output, which follows in the cell */
			uint32_t nanoseconds; /* that the operation took, at most 4 s */
			uint32_t reserved;
			uint64_t reserved2[4];
		};
		uint64_t word[WIRE_RING_LINE / 8];
	};
};
WIRE_RING_ASSERT(sizeof(struct wire_ring_result) == WIRE_RING_LINE, "ring layout");

enum wire_ring_state { WIRE_RING_STARTING, WIRE_RING_RUNNING, WIRE_RING_STOPPED, WIRE_RING_FAILED };

/* Why a worker gave its session up; a queue and an index say where. */
enum wire_ring_error {
	WIRE_RING_NO_ERROR,
	WIRE_RING_JUMPED,   /* an index that moved backwards or by more than there are slots */
	WIRE_RING_SEQUENCE, /* a job's sequence number is not that of its place */
	WIRE_RING_BAD_JOB,  /* an operation, parameter or length outside of what there is */
	WIRE_RING_OVERTIME, /* a job took longer than the session allows */
	WIRE_RING_DEVICE,   /* the accelerator failed */
	WIRE_RING_DIED,     /* the worker process is gone; written by the daemon, in its place */
	WIRE_RING_ERRORS
};

/* At the start of the worker's part. */
struct wire_ring_header {
	uint64_t magic;
	uint32_t version;
	uint32_t queues, slots;
	uint32_t payload; /* bytes of room in each cell, a multiple of WIRE_RING_LINE */
	uint32_t state;   /* enum wire_ring_state */
	uint32_t error;   /* enum wire_ring_error, before state becomes WIRE_RING_FAILED */
	uint32_t error_queue;
	uint32_t reserved;
	uint64_t error_index;
	uint64_t heartbeat; /* counts while the worker is alive */
};

/* One per queue, behind the header; a cache line each. */
struct wire_ring_worker_line {
	union {
		struct {
			uint64_t taken, done;
			uint64_t reserved[6];
		};
		uint64_t word[WIRE_RING_LINE / 8];
	};
};
WIRE_RING_ASSERT(sizeof(struct wire_ring_worker_line) == WIRE_RING_LINE, "ring layout");

/* One per queue, at the start of the client's part. */
struct wire_ring_client_line {
	uint64_t submitted, collected;
	uint64_t reserved[6];
};
WIRE_RING_ASSERT(sizeof(struct wire_ring_client_line) == WIRE_RING_LINE, "ring layout");

/* The last page: daemon and worker only. */
struct wire_ring_control {
	/* written by the daemon */
	uint32_t stop;  /* not 0: end now */
	uint32_t kick;  /* changes with each submission that should wake a sleeper; a futex */
	uint32_t waits; /* not 0: the daemon sleeps, and wants its event descriptor written to after
			   the next result, once for each value that this word takes; a futex */
	uint32_t reserved[13];
	/* written by the worker */
	uint32_t sleepers; /* its threads that sleep on `kick` */
	uint32_t watches;  /* not 0: a thread sleeps on `waits`, as the daemon looks for results itself */
	uint32_t reserved2[14];
};

/* Where things are, in bytes from the ring's start. */
struct wire_ring_layout {
	uint64_t lines;   /* struct wire_ring_worker_line[queues] */
	uint64_t results; /* cells, queue after queue */
	uint64_t client;  /* the client's part: struct wire_ring_client_line[queues] */
	uint64_t jobs;    /* cells, queue after queue */
	uint64_t control; /* struct wire_ring_control */
	uint64_t bytes;
};

struct wire_ring_shape {
	uint32_t queues, slots, payload;
};

/* A ring in this process (or kernel). */
struct wire_ring {
	uint8_t *base;
	struct wire_ring_shape shape;
	struct wire_ring_layout at;
};

/*
 * The words, for processors and for CUDA. Between a processor and an accelerator the scope is the
 * whole system.
 */
#ifdef __CUDACC__
#define WIRE_RING_FN static __device__ __forceinline__

WIRE_RING_FN uint64_t wire_ring_load(const uint64_t *word)
{
	uint64_t value;

	asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
	return value;
}

WIRE_RING_FN uint64_t wire_ring_load_relaxed(const uint64_t *word)
{
	uint64_t value;

	asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
	return value;
}

WIRE_RING_FN void wire_ring_store(uint64_t *word, uint64_t value)
{
	asm volatile("st.release.sys.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
}

WIRE_RING_FN uint32_t wire_ring_load32(const uint32_t *word)
{
	uint32_t value;

	asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
	return value;
}

WIRE_RING_FN void wire_ring_store32(uint32_t *word, uint32_t value)
{
	asm volatile("st.release.sys.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}

/* Two words that lie side by side on 16 bytes, in one transfer over the bus, behind all that was written before. */
WIRE_RING_FN void wire_ring_store_pair(uint64_t *words, uint64_t first, uint64_t second)
{
	asm volatile("fence.acq_rel.sys;\n\tst.relaxed.sys.v2.u64 [%0], {%1, %2};"
		     :
		     : "l"(words), "l"(first), "l"(second)
		     : "memory");
}

/* Between a store and a load of what the other side stores, where one of the two must see the other's store. */
WIRE_RING_FN void wire_ring_fence(void)
{
	__threadfence_system();
}

WIRE_RING_FN uint64_t wire_ring_word(const void *payload, uint64_t i)
{
	return ((const uint64_t *)payload)[i];
}
#else
#define WIRE_RING_FN static inline

WIRE_RING_FN uint64_t wire_ring_load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

WIRE_RING_FN uint64_t wire_ring_load_relaxed(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

WIRE_RING_FN void wire_ring_store(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

WIRE_RING_FN uint32_t wire_ring_load32(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

WIRE_RING_FN void wire_ring_store32(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

WIRE_RING_FN void wire_ring_store_pair(uint64_t *words, uint64_t first, uint64_t second)
{
	wire_ring_store(&words[1], second);
	wire_ring_store(&words[0], first);
}

/* Between a store and a load of what the other side stores, where one of the two must see the other's store. */
WIRE_RING_FN void wire_ring_fence(void)
{
	__sync_synchronize();
}

/* Word i of a payload, which a reader may have copied to any address. */
WIRE_RING_FN uint64_t wire_ring_word(const void *payload, uint64_t i)
{
	uint64_t word;

	__builtin_memcpy(&word, (const uint8_t *)payload + i * 8, sizeof(word));
	return word;
}
#endif

WIRE_RING_FN uint64_t wire_ring_pages(uint64_t bytes)
{
	return (bytes + WIRE_RING_PAGE - 1) / WIRE_RING_PAGE * WIRE_RING_PAGE;
}

/* Bytes from one cell to the next. */
WIRE_RING_FN uint64_t wire_ring_stride(const struct wire_ring_shape *shape)
{
	return (uint64_t)WIRE_RING_LINE + shape->payload;
}

/* Whether a ring can have this shape. */
WIRE_RING_FN int wire_ring_shape_valid(const struct wire_ring_shape *shape)
{
	return shape->queues >= 1 && shape->queues <= WIRE_RING_QUEUES_MAX && shape->slots >= 1 &&
	       shape->slots <= WIRE_RING_SLOTS_MAX && shape->payload >= WIRE_RING_LINE &&
	       shape->payload <= WIRE_RING_PAYLOAD_MAX && shape->payload % WIRE_RING_LINE == 0;
}

/* The shape is valid: no sum overflows. */
WIRE_RING_FN struct wire_ring_layout wire_ring_layout(const struct wire_ring_shape *shape)
{
	uint64_t cells = (uint64_t)shape->queues * shape->slots * wire_ring_stride(shape);
	struct wire_ring_layout at;

	at.lines = 1024;
	at.results = wire_ring_pages(at.lines + (uint64_t)shape->queues * WIRE_RING_LINE);
	at.client = at.results + wire_ring_pages(cells);
	at.jobs = at.client + wire_ring_pages((uint64_t)shape->queues * WIRE_RING_LINE);
	at.control = at.jobs + wire_ring_pages(cells);
	at.bytes = at.control + WIRE_RING_PAGE;
	return at;
}

/* Byte offset of cell `index` of `queue`, from layout.jobs or layout.results. */
WIRE_RING_FN uint64_t wire_ring_cell(const struct wire_ring_shape *shape, uint32_t queue, uint64_t index)
{
	return ((uint64_t)queue * shape->slots + index % shape->slots) * wire_ring_stride(shape);
}

WIRE_RING_FN struct wire_ring_header *wire_ring_header(const struct wire_ring *ring)
{
	return (struct wire_ring_header *)ring->base;
}

WIRE_RING_FN struct wire_ring_worker_line *wire_ring_worker_line(const struct wire_ring *ring, uint32_t queue)
{
	return (struct wire_ring_worker_line *)(ring->base + ring->at.lines) + queue;
}

WIRE_RING_FN struct wire_ring_client_line *wire_ring_client_line(const struct wire_ring *ring, uint32_t queue)
{
	return (struct wire_ring_client_line *)(ring->base + ring->at.client) + queue;
}

WIRE_RING_FN struct wire_ring_job *wire_ring_job(const struct wire_ring *ring, uint32_t queue, uint64_t index)
{
	return (struct wire_ring_job *)(ring->base + ring->at.jobs + wire_ring_cell(&ring->shape, queue, index));
}

WIRE_RING_FN struct wire_ring_result *wire_ring_result(const struct wire_ring *ring, uint32_t queue, uint64_t index)
{
	return (struct wire_ring_result *)(ring->base + ring->at.results + wire_ring_cell(&ring->shape, queue, index));
}

WIRE_RING_FN struct wire_ring_control *wire_ring_control(const struct wire_ring *ring)
{
	return (struct wire_ring_control *)(ring->base + ring->at.control);
}

/*
 * The check: NH of UMAC (Black, Halevi, Krawczyk, Krovetz, Rogaway, 1999; RFC 4418): a sum of 32 x
 * 32 bit products, so that any number of threads can each add a share. Keys are the multiples of
 * the golden ratio. It tells torn and stale results from whole ones. It is no protection against
 * forgery, and need not be: a writer of these bytes could write any result.
 */

#define WIRE_RING_CHECK_KEY 0x9e3779b97f4a7c15ull

/* The share of 8 bytes at word `place` of what is checked. */
WIRE_RING_FN uint64_t wire_ring_check_word(uint64_t place, uint64_t word)
{
	uint64_t key = (place + 1) * WIRE_RING_CHECK_KEY;

	return (uint64_t)(uint32_t)((uint32_t)word + (uint32_t)key) *
	       (uint32_t)((uint32_t)(word >> 32) + (uint32_t)(key >> 32));
}

/* The share of the descriptor: everything but `check` itself. */
WIRE_RING_FN uint64_t wire_ring_check_descriptor(const struct wire_ring_result *result)
{
	return wire_ring_check_word(0, result->sequence) +
	       wire_ring_check_word(1, (uint64_t)result->length << 32 | result->id) +
	       wire_ring_check_word(2, result->nanoseconds);
}

/* The share of every `step`th 8 bytes of the output from word `first` on; what lies behind its end
 * counts as 0. */
WIRE_RING_FN uint64_t wire_ring_check_payload(const void *payload, uint32_t length, uint32_t first, uint32_t step)
{
	const uint8_t *bytes = (const uint8_t *)payload;
	uint32_t whole = length / 8;
	uint64_t sum = 0, last = 0;

	for (uint32_t i = first; i < whole; i += step)
		sum += wire_ring_check_word(3 + (uint64_t)i, wire_ring_word(payload, i));
	if (length % 8 && whole % step == first) {
		for (uint32_t i = whole * 8; i < length; i++)
			last |= (uint64_t)bytes[i] << (i % 8 * 8);
		sum += wire_ring_check_word(3 + (uint64_t)whole, last);
	}
	return sum;
}

/* All of it; the reader's comparison: a result copied with its payload is whole if this is its
 * `check`. */
WIRE_RING_FN uint64_t wire_ring_check(const struct wire_ring_result *result, const void *payload)
{
	return wire_ring_check_descriptor(result) + wire_ring_check_payload(payload, result->length, 0, 1);
}

/*
 * The worker's side of one queue. `taken` and `done` are its own counts; it alone writes those
 * words.
 */

/* Copy the next job, once: what the client may still change is not looked at again. 1: *job; 0:
 * there is none; negative: minus an enum wire_ring_error, and the session is over. */
WIRE_RING_FN int wire_ring_take(const struct wire_ring *ring, uint32_t queue, uint64_t taken, struct wire_ring_job *job)
{
	uint64_t submitted = wire_ring_load(&wire_ring_client_line(ring, queue)->submitted);
	const struct wire_ring_job *cell = wire_ring_job(ring, queue, taken);
	uint64_t word[WIRE_RING_LINE / 8];

	if (submitted == taken)
		return 0;
	if (submitted - taken > ring->shape.slots)
		return -WIRE_RING_JUMPED;
	/* All loads before the first store: over a bus they are one round trip then, not one after the other. */
	for (unsigned i = 0; i < WIRE_RING_LINE / 8; i++)
		word[i] = wire_ring_load_relaxed(&cell->word[i]);
	for (unsigned i = 0; i < WIRE_RING_LINE / 8; i++)
		job->word[i] = word[i];
	return job->sequence == taken + 1 ? 1 : -WIRE_RING_SEQUENCE;
}

/* How many cells are free for results, or negative as above. */
WIRE_RING_FN int wire_ring_room(const struct wire_ring *ring, uint32_t queue, uint64_t done)
{
	uint64_t collected = wire_ring_load(&wire_ring_client_line(ring, queue)->collected);

	if (done - collected > ring->shape.slots)
		return -WIRE_RING_JUMPED;
	return (int)(ring->shape.slots - (done - collected));
}

/* Output and descriptor of result `index` are in its cell: publish it, and free the cell of its job, which has the same
 * index. */
WIRE_RING_FN void wire_ring_publish(const struct wire_ring *ring, uint32_t queue, uint64_t index)
{
	struct wire_ring_worker_line *line = wire_ring_worker_line(ring, queue);

	wire_ring_store_pair(line->word, index + 1, index + 1);
}

/* The output is in place: the descriptor too, and publish. */
WIRE_RING_FN void wire_ring_finish(const struct wire_ring *ring, uint32_t queue, uint64_t index,
				   const struct wire_ring_result *result)
{
	*wire_ring_result(ring, queue, index) = *result;
	wire_ring_publish(ring, queue, index);
}

#endif
