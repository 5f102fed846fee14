/*
 * gpu.c: messages of records to the gpu service, by a client that is connected and that serves reads of its memory
 * with zeros. The first byte: the credits; then the chunks of fuzz_stream(). The process is played by
 * this one, so that a session costs no process, and the helper by this thread, so that each run is the same.
 */
#include <sys/eventfd.h>
#include <unistd.h>

#include "fabric/soft/frame.h"
#include "fuzz.h"
#include "service/gpu/gpu.h"

#define MEMORY (128 * KIB)
#define QUEUES 2
#define TURNS 6 /* until the server has answered what was asked, as a rule */

/*
 * A session, in place of gpu/session.c
 */
struct gpu_session {
	struct wire_ring ring;
	struct gpu_probe probe;
	enum gpu_session_state *state;
	bool stopped;
	uint64_t done[QUEUES];
	int fd;
};

int gpu_session_start(const struct gpu_process_attr *attr, const struct wire_ring_shape *shape, bool queue_mode,
		      struct gpu_session **out)
{
	struct gpu_session *s = calloc(1, sizeof(*s));

	(void)attr;
	(void)queue_mode;
	REQUIRE(s && wire_ring_shape_valid(shape) && shape->queues <= QUEUES);
	s->ring = (struct wire_ring){.shape = *shape, .at = wire_ring_layout(shape)};
	REQUIRE(s->ring.at.bytes <= MEMORY);
	s->ring.base = aligned_alloc(WIRE_RING_PAGE, s->ring.at.bytes);
	s->fd = eventfd(1, EFD_CLOEXEC);
	REQUIRE(s->ring.base && s->fd >= 0);
	memset(s->ring.base, 0, s->ring.at.bytes);
	*out = s;
	return 0;
}

const struct wire_ring *gpu_session_ring(const struct gpu_session *s)
{
	return &s->ring;
}

int gpu_session_fd(const struct gpu_session *s)
{
	return s->fd;
}

/* What the service lets through must be a good job, whatever was asked for. */
static void work(struct gpu_session *s, uint32_t queue)
{
	const struct wire_ring *ring = &s->ring;
	uint64_t *done = &s->done[queue];
	struct wire_ring_job job;
	const char *why;

	while (wire_ring_room(ring, queue, *done) == 1 && wire_ring_take(ring, queue, *done, &job) == 1) {
		int64_t length = gpu_job_check(&ring->shape, &job, &why);
		struct wire_ring_result result = {.sequence = *done + 1, .id = job.id, .length = (uint32_t)length};

		REQUIRE(length >= 0);
		wire_ring_finish(ring, queue, *done, &result);
		++*done;
	}
}

enum gpu_session_state gpu_session_progress(struct gpu_session *s, uint64_t now)
{
	(void)now;
	gpu_session_handle(s->state, s->stopped ? GPU_EVENT_EXITED : GPU_EVENT_READY);
	for (uint32_t queue = 0; !s->stopped && queue < s->ring.shape.queues; queue++)
		work(s, queue);
	return *s->state;
}

bool gpu_session_alive(const struct gpu_session *s)
{
	return !s->stopped;
}

uint64_t gpu_session_deadline(const struct gpu_session *s)
{
	(void)s;
	return TIME_NEVER;
}

const struct gpu_probe *gpu_session_probe(const struct gpu_session *s)
{
	return &s->probe;
}

const char *gpu_session_reason(const struct gpu_session *s)
{
	(void)s;
	return "";
}

pid_t gpu_session_pid(const struct gpu_session *s)
{
	(void)s;
	return 1;
}

void gpu_session_stop(struct gpu_session *s, uint64_t now)
{
	(void)now;
	s->stopped = true;
}

void gpu_session_own(struct gpu_session *s, enum gpu_session_state *state)
{
	s->state = state;
}

void gpu_session_abandon(struct gpu_session *s)
{
	(void)s;
	abort(); /* a stopped one ends */
}

void gpu_session_destroy(struct gpu_session *s)
{
	close(s->fd);
	free(s->ring.base);
	free(s);
}

/*
 * The helper, in place of service/gpu/helper.c
 */
int gpu_helper_start(struct gpu_service_helper *h)
{
	atomic_store(&h->self, thread_self());
	return 0;
}

void gpu_helper_stop(struct gpu_service_helper *h)
{
	(void)h;
}

void gpu_agent_send_errand(struct gpu_agent *a, void (*errand)(struct gpu_agent *a))
{
	a->work = errand;
	errand(a);
	list_add_tail(&a->thread->ended, &a->errand);
	gpu_service_thread_wake(a->thread);
	a->thread->look = 0;
}

/*
 * A client that serves what the server asks of it
 */
static struct {
	uint8_t header[SOFT_HEADER];
	size_t used;
	uint64_t payload; /* to be skipped */
	uint32_t requests;
} heard;

static void send_frame(int fd, unsigned op, uint64_t length, uint32_t arg)
{
	static uint8_t out[SOFT_HEADER + MEMORY];
	struct soft_frame frame = {.op = (uint8_t)op, .len = length, .arg = arg};

	REQUIRE(length <= MEMORY);
	soft_frame_encode(out, &frame);
	if (send(fd, out, SOFT_HEADER + length, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return; /* it hung up */
}

static void serve(int fd, const struct soft_frame *frame)
{
	if (frame->op == SOFT_READ) {
		heard.requests++;
		send_frame(fd, SOFT_READ_DATA, frame->len, 0);
		return;
	}
	heard.payload = frame->op == SOFT_ACK || frame->op == SOFT_ERROR ? 0 : frame->len;
	if (frame->op == SOFT_SEND || frame->op == SOFT_WRITE || frame->op == SOFT_WRITE_IMM)
		heard.requests++;
	if (frame->flags & SOFT_FLAG_ACK)
		send_frame(fd, SOFT_ACK, 0, heard.requests);
}

static void hear(int fd, const uint8_t *data, size_t len)
{
	struct soft_frame frame;

	while (len) {
		size_t n = heard.payload ? MIN(len, heard.payload) : MIN(len, SOFT_HEADER - heard.used);

		if (heard.payload) {
			heard.payload -= n;
		} else {
			memcpy(heard.header + heard.used, data, n);
			heard.used += n;
		}
		data += n;
		len -= n;
		if (heard.used == SOFT_HEADER) {
			heard.used = 0;
			soft_frame_decode(heard.header, &frame);
			serve(fd, &frame);
		}
	}
}

static void open_server(void)
{
	static struct gpu_service gpu = {.sessions_max = 4, .queues = QUEUES, .slots = 4, .memory = MEMORY};

	fuzz_server_open(&gpu);
	fuzz_server_on_answer(hear);
}

/* Chunk after chunk, with time for an answer: nothing may be asked of a session before it is open. */
static void send_chunks(int fd, const uint8_t *data, size_t size)
{
	static uint8_t stream[1u << 17];
	bool alive = true;

	while (alive && size >= 4) {
		size_t chunk = 4 + MIN((size_t)(data[2] | data[3] << 8), size - 4);

		alive = fuzz_server_write(fd, stream, fuzz_stream(data, chunk, stream, sizeof(stream)));
		for (unsigned i = 0; alive && i < TURNS; i++)
			alive = fuzz_server_turn(fd);
		data += chunk;
		size -= chunk;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t request[256];
	size_t used;
	int fd;

	open_server();
	if (!size)
		return 0;
	memset(&heard, 0, sizeof(heard));
	fd = fuzz_server_connect();
	used = fuzz_connect(request, WIRE_GPU, 2 + *data, 0);
	if (fuzz_server_write(fd, request, used))
		send_chunks(fd, data + 1, size - 1);
	fuzz_server_close(fd);
	return 0;
}
