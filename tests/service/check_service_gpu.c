/*
 * check_service_gpu.c: the gpu service through pairs of connections, with real worker processes and the cpu backend.
 * The client's half is written out here by hand, so that it can also do what no client should.
 */
#include <dirent.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/conn/conn_pair.h"
#include "tests/service/server.h"
#include "tests/suite.h"

#define CLIENTS 4
#define MEMORY (1u << 20)   /* of each client */
#define OUTPUT (MEMORY / 2) /* where in it results are wanted */
#define JOBS 8192

/* One client of the service. */
struct client {
	struct conn *conn;
	bool established, closed;
	char why[200];
	uint8_t *memory; /* the service reads and writes it */
	struct fabric_region *region;
	struct wire_gpu_ring ring;
	bool opened, ended;
	enum wire_status status;
	char reason[300];
	struct wire_gpu_info info;
	unsigned informed, answers, terminated;
	uint8_t answered[JOBS];
	struct conn_transfer transfer;
	enum fabric_status transferred;
	bool transferring;
};

static struct conn_pair pair;
static struct gpu_service gpu;
static struct services services;
static struct client client[CLIENTS];
static uint64_t skipped; /* of time, by the test */
static unsigned descriptors;

/*
 * What is to come back
 */
/* Processes that are children of this one's threads, dead ones too. */
static unsigned children(pid_t *pids, unsigned max)
{
	DIR *threads = opendir("/proc/self/task");
	struct dirent *thread;
	unsigned n = 0;

	ck_assert_ptr_nonnull(threads);
	while ((thread = readdir(threads))) {
		char path[sizeof("/proc/self/task//children") + sizeof(thread->d_name)];
		FILE *in;

		snprintf(path, sizeof(path), "/proc/self/task/%s/children", thread->d_name);
		in = fopen(path, "re");
		while (in && n < max && fscanf(in, "%d", &pids[n]) == 1)
			n++;
		if (in)
			fclose(in);
	}
	closedir(threads);
	return n;
}

static unsigned count_children(void)
{
	pid_t pids[64];

	return children(pids, ARRAY_SIZE(pids));
}

/*
 * What takes long
 */
int __real_gpu_session_start(const struct gpu_process_attr *attr, const struct wire_ring_shape *shape, bool queue_mode,
			     struct gpu_session **out);
int __wrap_gpu_session_start(const struct gpu_process_attr *attr, const struct wire_ring_shape *shape, bool queue_mode,
			     struct gpu_session **out);
void __real_gpu_session_destroy(struct gpu_session *session);
void __wrap_gpu_session_destroy(struct gpu_session *session);
bool __real_gpu_spawn_reap(int pidfd, int flags, int *status);
bool __wrap_gpu_spawn_reap(int pidfd, int flags, int *status);

static _Atomic bool takes_long; /* without end, until it is cleared */
static _Atomic unsigned begun;
static _Atomic bool unkillable;
static pthread_t network; /* the thread that turns connections */

static void take_long(void)
{
	ck_assert(!pthread_equal(pthread_self(), network));
	begun++;
	while (takes_long)
		usleep(1000);
}

int __wrap_gpu_session_start(const struct gpu_process_attr *attr, const struct wire_ring_shape *shape, bool queue_mode,
			     struct gpu_session **out)
{
	take_long();
	return __real_gpu_session_start(attr, shape, queue_mode, out);
}

void __wrap_gpu_session_destroy(struct gpu_session *session)
{
	take_long();
	__real_gpu_session_destroy(session);
}

bool __wrap_gpu_spawn_reap(int pidfd, int flags, int *status)
{
	return !unkillable && __real_gpu_spawn_reap(pidfd, flags, status);
}

/*
 * Turns
 */
static int turn(void)
{
	int n;

	pair.now = time_now() + skipped;
	services_set_time(&services, pair.now);
	n = conn_pair_turn(&pair) + services_turn(&services);
	if (!n)
		sched_yield(); /* to the worker processes */
	return n;
}

#define UNTIL(condition) TURN_UNTIL(turn(), condition)

/*
 * The client's half
 */
static void on_established(struct conn *c)
{
	conn_admit(c);
	((struct client *)conn_context(c))->established = true;
}

static void answered(struct client *c, uint32_t id)
{
	if (id == WIRE_GPU_TERMINATE) {
		c->terminated++;
		return;
	}
	ck_assert_uint_lt(id, JOBS);
	c->answered[id]++;
	c->answers++;
}

static int on_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct client *c = conn_context(conn);

	ck_assert(record->op == WIRE_OP_GPU_ENDED || record->flags == WIRE_REPLY);
	switch (record->op) {
	case WIRE_OP_GPU_OPEN:
		ck_assert_uint_eq(record->length, sizeof(c->ring));
		memcpy(&c->ring, body, sizeof(c->ring));
		c->opened = true;
		break;
	case WIRE_OP_GPU_JOB:
		ck_assert_uint_eq(record->length, 0);
		answered(c, record->id);
		break;
	case WIRE_OP_GPU_ENDED:
		ck_assert(!c->ended);
		c->ended = true;
		c->status = record->status;
		snprintf(c->reason, sizeof(c->reason), "%.*s", (int)record->length, (const char *)body);
		break;
	case WIRE_OP_GPU_INFO:
		ck_assert_uint_eq(record->length, sizeof(c->info));
		memcpy(&c->info, body, sizeof(c->info));
		c->informed++;
		break;
	default:
		ck_abort_msg("operation %u came", record->op);
	}
	return 0;
}

static void on_immediate(struct conn *conn, uint32_t imm)
{
	answered(conn_context(conn), imm);
}

static void on_closed(struct conn *conn, int error, const char *reason)
{
	struct client *c = conn_context(conn);

	c->closed = true;
	c->conn = NULL;
	snprintf(c->why, sizeof(c->why), "%s", reason);
}

static const struct conn_ops ops = {
	.established = on_established,
	.record = on_record,
	.immediate = on_immediate,
	.closed = on_closed,
};

static void connect_client(struct client *c)
{
	struct wire_request request = {.service = WIRE_GPU, .credits = 32, .message_size = 8192};

	ck_assert_ptr_null(c->conn);
	c->established = c->closed = c->opened = c->ended = false;
	c->informed = c->answers = c->terminated = 0;
	memset(c->answered, 0, sizeof(c->answered));
	ck_assert_int_eq(conn_pair_connect(&pair, &request, NULL, &ops, c, &c->conn), 0);
	UNTIL(c->established || c->closed);
}

static void leave(struct client *c)
{
	if (c->conn)
		conn_close(c->conn, 0, "the test is over");
	UNTIL(!c->conn);
}

/* False: there is no room. */
static bool try_send(struct client *c, unsigned op, uint32_t id, const void *body, size_t length)
{
	struct wire_record record = {.id = id, .op = (uint8_t)op};

	return conn_say(c->conn, &record, body, length, NULL, 0);
}

static void send_record(struct client *c, unsigned op, uint32_t id, const void *body, size_t length)
{
	UNTIL(try_send(c, op, id, body, length));
}

static void send_open(struct client *c, struct wire_gpu_open open)
{
	send_record(c, WIRE_OP_GPU_OPEN, 77, &open, sizeof(open));
}

static void open_client(struct client *c, struct wire_gpu_open open)
{
	connect_client(c);
	ck_assert_msg(c->established, "%s", c->why);
	send_open(c, open);
	UNTIL(c->opened || c->ended || c->closed);
	ck_assert_msg(c->opened, "%s %s", c->reason, c->why);
	ck_assert_str_eq(c->ring.backend, "cpu");
}

static void open_rpc(struct client *c)
{
	open_client(c, (struct wire_gpu_open){.mode = WIRE_GPU_RPC});
}

static struct wire_remote range(struct client *c, size_t at, size_t length)
{
	return (struct wire_remote){
		.addr = (uintptr_t)c->memory + at,
		.length = length,
		.rkey = fabric_region_rkey(c->region, conn_endpoint(c->conn)),
	};
}

static struct wire_gpu_job echo_job(struct client *c, size_t at, size_t length)
{
	return (struct wire_gpu_job){
		.op = WIRE_RING_ECHO,
		.input = range(c, at, length),
		.output = range(c, OUTPUT + at, length),
	};
}

static void send_job(struct client *c, uint32_t id, struct wire_gpu_job job)
{
	send_record(c, WIRE_OP_GPU_JOB, id, &job, sizeof(job));
}

static void fill(struct client *c, unsigned seed)
{
	for (unsigned i = 0; i < OUTPUT; i++)
		c->memory[i] = (uint8_t)((i * 2654435761u + seed) >> 24);
	memset(c->memory + OUTPUT, 0, OUTPUT);
}

/* One job, with its right result: the session is in order. */
static void assert_works(struct client *c)
{
	unsigned before = c->answers, length = MIN(1000u, c->ring.payload);

	fill(c, before);
	c->answered[1] = 0;
	send_job(c, 1, echo_job(c, 0, length));
	UNTIL(c->answers > before || c->closed || c->ended);
	ck_assert_msg(c->answered[1] == 1, "%s", c->reason);
	ck_assert_mem_eq(c->memory, c->memory + OUTPUT, length);
	ck_assert_uint_eq(c->memory[OUTPUT + length], 0);
}

/* The session was ended, and told so; the client leaves. */
static void assert_ended(struct client *c, enum wire_status status, const char *says)
{
	UNTIL(c->ended || c->closed);
	ck_assert_msg(c->ended, "closed without a word: %s", c->why);
	ck_assert_msg(strstr(c->reason, says), "%s, not %s", c->reason, says);
	ck_assert_uint_eq(c->status, status);
	leave(c);
}

/*
 * Set up
 */
static void take(void *arg, struct fabric_request *request, const struct wire_request *wire, enum wire_reason reason)
{
	ck_assert_int_eq(reason, WIRE_REASON_NONE);
	services_set_time(&services, pair.now);
	services_take(&services, pair.server.group, request, wire, reason);
}

static void take_settings(void)
{
	const char *program = getenv("RDMAD_GPU");

	gpu = (struct gpu_service){
		.attr =
			{
				.program = program ? program : "./rdmad-gpu",
				.backend = "cpu",
				.threads = 1,
				.park = TIME_S,
				.job_timeout = 20 * TIME_S,
			},
		.probe = {.backend = "cpu", .device = "one"},
		.sessions_max = CLIENTS,
		.queues = 2,
		.slots = 8,
		.memory = 4 * MIB,
	};
}

/* How many there may be is said when a service starts. */
static void allow_sessions(uint32_t most)
{
	gpu_service_stop(&gpu);
	gpu.sessions_max = most;
	ck_assert_int_eq(gpu_service_start(&gpu), 0);
}

static void set_up(void)
{
	struct conn_group_attr attr = server_group_attr((struct conn_group_attr){
		.receives = 256,
		.max_connections = CLIENTS + 1,
		.transfers = 16,
		.reads_in = 16,
	});

	descriptors = count_descriptors();
	network = pthread_self();
	skipped = 0;
	take_settings();
	services_open(&services, &(struct services_options){.gpu = &gpu});
	pair = (struct conn_pair){.listener.take = take};
	conn_pair_open(&pair, false, &attr, &attr);
	pair.now = time_now(); /* the worker processes' time */
	memset(client, 0, sizeof(client));
	for (unsigned i = 0; i < CLIENTS; i++) {
		client[i].memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		ck_assert_ptr_ne(client[i].memory, MAP_FAILED);
		ck_assert_int_eq(fabric_register(pair.client.domain, client[i].memory, MEMORY,
						 FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE, &client[i].region),
				 0);
	}
}

/* Slots, processes and descriptors are back after every test, whatever happened in it. */
static void tear_down(void)
{
	for (unsigned i = 0; i < CLIENTS; i++)
		leave(&client[i]);
	UNTIL(conn_group_connections(pair.server.group) == 0 && services_sessions(&services) == 0);
	ck_assert_uint_eq(quota_taken(gpu.sources), 0);
	ck_assert_uint_eq(count_children(), 0);
	for (unsigned i = 0; i < CLIENTS; i++) {
		fabric_deregister(client[i].region);
		munmap(client[i].memory, MEMORY);
	}
	conn_pair_close(&pair);
	services_close(&services);
	ck_assert_uint_eq(count_descriptors(), descriptors);
}

/*
 * RPC mode
 */
static const struct wire_gpu_open rpc_opens[] = {
	{.mode = WIRE_GPU_RPC},
	{.mode = WIRE_GPU_RPC, .flags = WIRE_GPU_SENDS},
};

START_TEST(test_rpc)
{
	struct client *c = &client[0];

	open_client(c, rpc_opens[_i]);
	ck_assert_uint_eq(c->ring.flags, rpc_opens[_i].flags);
	ck_assert_uint_eq(c->ring.queues, 2);
	ck_assert_uint_eq(c->ring.slots, 8);
	ck_assert_uint_eq(c->ring.payload, 64 * KIB);
	ck_assert_uint_eq(c->ring.worker_rkey | c->ring.client_rkey, 0);
	ck_assert_uint_eq(c->ring.worker_addr | c->ring.client_addr, 0);
	for (unsigned i = 0; i < 20; i++)
		assert_works(c);
	ck_assert_uint_eq(services_count(&services, "gpu_sessions"), 1);
	ck_assert_uint_eq(services_count(&services, "gpu_echoes"), 20);
	ck_assert_uint_eq(services_count(&services, "gpu_in_bytes"), 20 * 1000);
	ck_assert_uint_eq(services_count(&services, "gpu_out_bytes"), 20 * 1000);
	ck_assert_uint_eq(services_count(&services, "gpu_errors"), 0);
}
END_TEST

/* As the seed has it. */
static void quantize(const uint8_t *in, uint8_t *out, unsigned n, unsigned levels)
{
	unsigned count[256] = {0};

	for (unsigned i = 0; i < n; i++)
		count[in[i]]++;
	for (unsigned v = 1; v < 256; v++)
		count[v] += count[v - 1];
	for (unsigned i = 0; i < n; i++)
		out[i] = (uint8_t)(256 / levels * (levels * count[in[i]] / n));
}

START_TEST(test_rpc_quantize)
{
	static const unsigned levels[] = {4, 1, 2, 3, 200, 256};
	static uint8_t expected[64 * 64];
	struct client *c = &client[0];

	open_rpc(c);
	for (unsigned i = 0; i < ARRAY_SIZE(levels); i++) {
		struct wire_gpu_job job = echo_job(c, 0, sizeof(expected));

		fill(c, i);
		job.op = WIRE_RING_QUANTIZE;
		job.param[0] = job.param[1] = 64;
		job.param[2] = levels[i];
		send_job(c, i, job);
		UNTIL(c->answered[i] || c->ended);
		quantize(c->memory, expected, sizeof(expected), levels[i]);
		ck_assert_mem_eq(c->memory + OUTPUT, expected, sizeof(expected));
	}
	ck_assert_uint_eq(services_count(&services, "gpu_quantizes"), ARRAY_SIZE(levels));
}
END_TEST

/* More than the ring has room for: they wait, none is lost and each is answered once. */
START_TEST(test_rpc_many)
{
	struct client *c = &client[0];
	uint64_t until = conn_pair_patience();

	open_client(c, rpc_opens[_i]);
	fill(c, 5);
	for (uint32_t id = 0; id < JOBS; turn()) {
		struct wire_gpu_job job = echo_job(c, id * 64, 60);

		while (id < JOBS && try_send(c, WIRE_OP_GPU_JOB, id, &job, sizeof(job))) {
			id++;
			job = echo_job(c, id * 64 % OUTPUT, 60);
		}
		ck_assert(time_now() < until && !c->ended && !c->closed);
	}
	UNTIL(c->answers == JOBS || c->ended || c->closed);
	for (unsigned i = 0; i < JOBS; i++) {
		ck_assert_uint_eq(c->answered[i], 1);
		ck_assert_mem_eq(c->memory + i * 64, c->memory + OUTPUT + i * 64, 60);
		ck_assert_uint_eq(c->memory[OUTPUT + i * 64 + 60], 0);
	}
}
END_TEST

/* One byte, and as much as a cell holds. */
START_TEST(test_rpc_lengths)
{
	static const unsigned lengths[] = {1, 7, 8, 63, 64, 4096, 100000, OUTPUT};
	struct client *c = &client[0];

	open_client(c, (struct wire_gpu_open){.mode = WIRE_GPU_RPC, .payload = OUTPUT});
	ck_assert_uint_eq(c->ring.payload, OUTPUT);
	for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
		fill(c, i);
		send_job(c, i, echo_job(c, 0, lengths[i]));
		UNTIL(c->answered[i] || c->ended || c->closed);
		ck_assert_mem_eq(c->memory, c->memory + OUTPUT, lengths[i]);
		ck_assert(lengths[i] == OUTPUT || c->memory[OUTPUT + lengths[i]] == 0);
	}
}
END_TEST

/* As a thread of the daemon sleeps. */
static void nap(void)
{
	struct fabric_queue *queues[] = {conn_group_queue(pair.server.group), conn_group_queue(pair.client.group)};
	struct pollfd fds[2 * FABRIC_MAX_FDS + 1] = {{.fd = services_fd(&services), .events = POLLIN}};
	int fd[FABRIC_MAX_FDS], n = 1;
	bool armed = services_arm(&services);

	for (unsigned i = 0; i < ARRAY_SIZE(queues); i++) {
		ck_assert_int_eq(fabric_arm(queues[i]), 0);
		for (int k = fabric_fds(queues[i], fd); k > 0; k--)
			fds[n++] = (struct pollfd){.fd = fd[k - 1], .events = POLLIN};
	}
	if (turn() == 0 && armed) {
		ck_assert_int_gt(poll(fds, (nfds_t)n, 60000), 0);
		if (fds[0].revents)
			services_readable(&services);
	}
	services_disarm(&services);
}

/* The worker naps, the daemon's thread sleeps: each is woken by the other. */
START_TEST(test_rpc_sleeping)
{
	struct client *c = &client[0];

	open_rpc(c);
	for (unsigned i = 0; i < 50; i++) {
		struct wire_gpu_job job = echo_job(c, 0, 1000);

		job.param[0] = i % 2 ? 5000 : 0;
		send_job(c, i, job);
		while (!c->answered[i])
			nap();
	}
}
END_TEST

/* It is answered after all jobs before it, and the client leaves. */
START_TEST(test_rpc_terminate)
{
	struct client *c = &client[0];

	open_client(c, rpc_opens[_i]);
	for (unsigned i = 0; i < 100; i++)
		send_job(c, i, echo_job(c, i * 64, 64));
	send_record(c, WIRE_OP_GPU_JOB, WIRE_GPU_TERMINATE, NULL, 0);
	UNTIL(c->terminated || c->closed);
	ck_assert_uint_eq(c->terminated, 1);
	ck_assert_uint_eq(c->answers, 100);
	ck_assert(!c->ended);
	ck_assert_uint_eq(services_count(&services, "gpu_errors"), 0);
	leave(c);
}
END_TEST

/* A client that does not leave is cut off after a moment. */
START_TEST(test_terminate_and_stay)
{
	struct client *c = &client[0];

	open_rpc(c);
	send_record(c, WIRE_OP_GPU_JOB, WIRE_GPU_TERMINATE, NULL, 0);
	UNTIL(c->terminated);
	conn_pair_rest(&pair);
	ck_assert(!c->closed);
	skipped += 2 * TIME_S;
	turn();
	ck_assert_uint_gt(services_deadline(&services), pair.now); /* the rest is the connection's: sleep meanwhile */
	UNTIL(c->closed);
	ck_assert_uint_eq(services_count(&services, "gpu_errors"), 0);
}
END_TEST

START_TEST(test_info)
{
	struct client *c = &client[0];

	open_rpc(&client[1]);
	connect_client(c);
	send_record(c, WIRE_OP_GPU_INFO, 3, NULL, 0);
	UNTIL(c->informed);
	ck_assert_uint_eq(c->info.sessions, 1); /* the other one: this connection opened none */
	ck_assert_uint_eq(c->info.sessions_max, CLIENTS);
	ck_assert_uint_eq(c->info.queues_max, 2);
	ck_assert_uint_eq(c->info.slots_max, 8);
	ck_assert_uint_eq(c->info.memory_max, 4 * MIB);
	ck_assert_uint_lt(c->info.payload_max, 2 * MIB);
	ck_assert_uint_ge(c->info.payload_max, 2 * MIB - 5 * 4096);
	ck_assert_uint_eq(c->info.operations, 1 << WIRE_RING_QUANTIZE | 1 << WIRE_RING_ECHO);
	ck_assert_str_eq(c->info.backend, "cpu");
	assert_works(&client[1]);
	send_record(c, WIRE_OP_GPU_INFO, 4, NULL, 0);
	UNTIL(c->informed == 2);
	ck_assert_uint_eq(c->info.jobs, 1);
	ck_assert_uint_eq(c->info.bytes_in, 1000);
	ck_assert_uint_eq(c->info.bytes_out, 1000);
}
END_TEST

/* The payload is as asked for, and what does not fit the memory is fewer slots, then fewer queues. */
START_TEST(test_shapes)
{
	static const struct {
		struct wire_gpu_open open;
		unsigned queues, slots, payload;
	} cases[] = {
		{{.queues = 1, .slots = 1, .payload = 1}, 1, 1, 64},
		{{.queues = 100, .slots = 10000, .payload = 64}, 2, 8, 64},
		{{.payload = 300000}, 2, 3, 300032},
		{{.payload = 1000000}, 2, 1, 1000000},
		{{.queues = 2, .payload = 1500000}, 1, 1, 1500032},
	};
	struct client *c = &client[0];

	open_client(c, cases[_i].open);
	ck_assert_uint_eq(c->ring.queues, cases[_i].queues);
	ck_assert_uint_eq(c->ring.slots, cases[_i].slots);
	ck_assert_uint_eq(c->ring.payload, cases[_i].payload);
	assert_works(c);
}
END_TEST

/*
 * Queue mode
 */
static void transferred(struct conn_transfer *transfer, enum fabric_status status)
{
	struct client *c = container_of(transfer, struct client, transfer);

	c->transferred = status;
	c->transferring = false;
}

/* A read or write of the ring, or of what is not the client's to reach. */
static enum fabric_status transfer(struct client *c, bool writes, size_t at, size_t length, uint64_t remote,
				   uint32_t key)
{
	struct fabric_sge sge = {c->memory + at, length, c->region};

	c->transfer.done = transferred;
	c->transferring = true;
	ck_assert_int_eq(writes ? conn_write(c->conn, &c->transfer, &sge, remote, key)
				: conn_read(c->conn, &c->transfer, &sge, remote, key),
			 0);
	UNTIL(!c->transferring);
	return c->transferred;
}

static struct wire_ring_layout layout(const struct client *c)
{
	struct wire_ring_shape shape = {c->ring.queues, c->ring.slots, c->ring.payload};

	return wire_ring_layout(&shape);
}

static uint64_t cell(const struct client *c, uint32_t queue, uint64_t index)
{
	struct wire_ring_shape shape = {c->ring.queues, c->ring.slots, c->ring.payload};

	return wire_ring_cell(&shape, queue, index);
}

static void open_queue(struct client *c)
{
	open_client(c, (struct wire_gpu_open){.mode = WIRE_GPU_QUEUE, .payload = 4096});
	ck_assert_uint_ne(c->ring.worker_addr, 0);
	ck_assert_uint_ne(c->ring.worker_rkey, c->ring.client_rkey);
	ck_assert_uint_eq(c->ring.client_addr, c->ring.worker_addr + layout(c).client);
}

/* Address of what lies `at` bytes from the ring's begin, in the client's part. */
static uint64_t in_client_part(const struct client *c, uint64_t at)
{
	return c->ring.client_addr + at - layout(c).client;
}

/* The worker may have ended the session meanwhile: whether it still takes writes. */
static void put_word(struct client *c, uint64_t at, uint64_t word)
{
	memcpy(c->memory, &word, sizeof(word));
	transfer(c, true, 0, sizeof(word), in_client_part(c, at), c->ring.client_rkey);
}

static void put_job(struct client *c, uint32_t queue, uint64_t index, struct wire_ring_job job)
{
	memcpy(c->memory, &job, sizeof(job));
	ck_assert_int_eq(transfer(c, true, 0, sizeof(job) + job.length % 4096,
				  in_client_part(c, layout(c).jobs + cell(c, queue, index)), c->ring.client_rkey),
			 FABRIC_OK);
}

static uint64_t submitted_at(uint32_t queue)
{
	return queue * sizeof(struct wire_ring_client_line);
}

static void submit(struct client *c, uint32_t queue, uint64_t count)
{
	put_word(c, layout(c).client + submitted_at(queue), count);
}

static void collect(struct client *c, uint32_t queue, uint64_t count)
{
	put_word(c, layout(c).client + submitted_at(queue) + sizeof(uint64_t), count);
}

static uint64_t done_of(struct client *c, uint32_t queue)
{
	struct wire_ring_worker_line line;

	ck_assert_int_eq(transfer(c, false, 0, sizeof(line),
				  c->ring.worker_addr + layout(c).lines + queue * sizeof(line), c->ring.worker_rkey),
			 FABRIC_OK);
	memcpy(&line, c->memory, sizeof(line));
	return line.done;
}

/* All steps of one job through a queue. */
static void one_by_queue(struct client *c, uint32_t queue, uint64_t index)
{
	struct wire_ring_job job = {.sequence = index + 1, .id = 99, .op = WIRE_RING_ECHO, .length = 1000};
	struct wire_ring_result result;
	uint64_t until = conn_pair_patience();

	fill(c, (unsigned)index);
	put_job(c, queue, index, job);
	submit(c, queue, index + 1);
	while (done_of(c, queue) != index + 1)
		ck_assert(time_now() < until);
	ck_assert_int_eq(transfer(c, false, OUTPUT, sizeof(result) + 1000,
				  c->ring.worker_addr + layout(c).results + cell(c, queue, index), c->ring.worker_rkey),
			 FABRIC_OK);
	memcpy(&result, c->memory + OUTPUT, sizeof(result));
	ck_assert_uint_eq(result.sequence, index + 1);
	ck_assert_uint_eq(result.id, 99);
	ck_assert_uint_eq(result.length, 1000);
	ck_assert_uint_eq(result.check, wire_ring_check(&result, c->memory + OUTPUT + sizeof(result)));
	fill(c, (unsigned)index);
	collect(c, queue, index + 1);
}

START_TEST(test_queue)
{
	struct client *c = &client[0];
	open_queue(c);
	for (unsigned i = 0; i < 20; i++)
		one_by_queue(c, i % 2, i / 2);
	ck_assert_uint_eq(services_count(&services, "gpu_queue_jobs"), 20);
	leave(c);
	UNTIL(!services_sessions(&services));
	ck_assert_uint_eq(services_count(&services, "gpu_queue_jobs"), 20);
	ck_assert_uint_eq(services_count(&services, "gpu_errors"), 0);
}
END_TEST

/* While the process has jobs of the queues the thread knows of it, for it yields then; also of one whose client goes. */
START_TEST(test_queue_busy)
{
	struct wire_ring_job job = {.id = 99, .op = WIRE_RING_ECHO, .length = 8, .param = {500000}};
	struct client *c = &client[0];

	open_queue(c);
	ck_assert_uint_eq(services.thread.busy, 0);
	for (job.sequence = 1; job.sequence <= 2; job.sequence++) {
		put_job(c, 0, job.sequence - 1, job);
		submit(c, 0, job.sequence);
		UNTIL(services.thread.busy == 1);
		if (job.sequence == 1)
			UNTIL(services.thread.busy == 0);
	}
	leave(c);
	UNTIL(!services_sessions(&services));
	ck_assert_uint_eq(services.thread.busy, 0);
}
END_TEST

/* It is answered when the ring is empty. */
START_TEST(test_queue_terminate)
{
	struct client *c = &client[0];

	open_queue(c);
	put_job(c, 1, 0, (struct wire_ring_job){.sequence = 1, .op = WIRE_RING_ECHO, .length = 100, .param = {100000}});
	submit(c, 1, 1);
	send_record(c, WIRE_OP_GPU_JOB, WIRE_GPU_TERMINATE, NULL, 0);
	UNTIL(c->terminated || c->closed);
	ck_assert_uint_eq(c->terminated, 1);
	ck_assert_uint_eq(done_of(c, 1), 1);
}
END_TEST

/*
 * Bad input: the session alone ends, with a reason
 */
static const struct {
	const char *says;
	struct wire_gpu_job change; /* what differs from a good job, where it is not 0 */
	enum { SET, ADD } how;
} bad_jobs[] = {
	{"no such operation", {.op = 1000}},
	{"longer than a cell", {.input.length = 64 * KIB}, ADD},
	{"longer than a cell", {.input.length = UINT64_MAX}},
	{"longer than a cell", {.input.length = 1ull << 32}, ADD},
	{"room for 1001 bytes", {.output.length = 1}, ADD},
	{"room for 999 bytes", {.output.length = UINT64_MAX}, ADD},
	{"more than 60 s", {.param[0] = UINT32_MAX}},
	{"levels is not", {.op = WIRE_RING_QUANTIZE, .param = {1000, 1}}},
	{"not between 1 and 256", {.op = WIRE_RING_QUANTIZE, .param = {1000, 1, 257}}},
	{"not the length", {.op = WIRE_RING_QUANTIZE, .param = {1000, 2, 4}}},
	{"not the length", {.op = WIRE_RING_QUANTIZE, .param = {1u << 31, 1u << 31, 4}}},
	{"at least one pixel", {.op = WIRE_RING_QUANTIZE, .param = {1000, 0, 4}}},
	{"reserved", {.reserved = 1}},
	{"reserved", {.input.reserved = 1}},
	{"reserved", {.output.reserved = 1}},
	{"last address", {.input.addr = UINT64_MAX}},
	{"last address", {.output.addr = UINT64_MAX - 998}},
};

static void change(struct wire_gpu_job *job, unsigned i)
{
	const struct wire_gpu_job *by = &bad_jobs[i].change;
	bool add = bad_jobs[i].how == ADD;

#define CHANGE(member)                                                                                                 \
	do {                                                                                                           \
		if (by->member)                                                                                        \
			job->member = (add ? job->member : 0) + by->member;                                            \
	} while (0)
	CHANGE(op);
	CHANGE(reserved);
	for (unsigned k = 0; k < WIRE_GPU_PARAMS; k++)
		CHANGE(param[k]);
	CHANGE(input.addr);
	CHANGE(input.length);
	CHANGE(input.reserved);
	CHANGE(output.addr);
	CHANGE(output.length);
	CHANGE(output.reserved);
#undef CHANGE
}

START_TEST(test_bad_job)
{
	struct client *c = &client[0], *other = &client[1];
	struct wire_gpu_job job;

	open_rpc(other);
	open_rpc(c);
	assert_works(c);
	job = echo_job(c, 0, 1000);
	change(&job, (unsigned)_i);
	send_job(c, 5, job);
	assert_ended(c, WIRE_BAD_REQUEST, bad_jobs[_i].says);
	ck_assert_ptr_nonnull(strstr(c->reason, "job 5: "));
	ck_assert_uint_eq(c->answered[5], 0);
	ck_assert_uint_eq(services_count(&services, "gpu_errors"), 1);
	assert_works(other);
}
END_TEST

enum bad {
	BAD_JOB_FIRST,
	BAD_OPEN_TWICE,
	BAD_MODE,
	BAD_FLAGS,
	BAD_RESERVED,
	BAD_PAYLOAD,
	BAD_PAYLOAD_MOST,
	BAD_OPEN_SHORT,
	BAD_JOB_SHORT,
	BAD_JOB_NOTHING,
	BAD_ID_TWICE,
	BAD_ID_TERMINATE,
	BAD_JOB_IN_QUEUE_MODE,
	BAD_JOB_AFTER_END,
	BAD_TERMINATE_FIRST,
	BAD_OPERATION,
	BAD_INFO_LONG,
	BADS
};

static void do_bad(struct client *c, enum bad bad)
{
	static const struct wire_gpu_open opens[BADS] = {
		[BAD_MODE] = {.mode = WIRE_GPU_MODES},
		[BAD_FLAGS] = {.flags = 2},
		[BAD_RESERVED] = {.reserved = 1},
		[BAD_PAYLOAD] = {.payload = 2 * MIB},
		[BAD_PAYLOAD_MOST] = {.payload = UINT32_MAX},
		[BAD_JOB_IN_QUEUE_MODE] = {.mode = WIRE_GPU_QUEUE},
	};
	struct wire_gpu_job job = {0};

	connect_client(c);
	switch (bad) {
	case BAD_JOB_FIRST:
		send_job(c, 1, echo_job(c, 0, 10));
		return;
	case BAD_TERMINATE_FIRST:
		send_record(c, WIRE_OP_GPU_JOB, WIRE_GPU_TERMINATE, NULL, 0);
		return;
	case BAD_OPEN_SHORT:
		send_record(c, WIRE_OP_GPU_OPEN, 1, opens, sizeof(opens[0]) - 1);
		return;
	case BAD_OPERATION:
		send_record(c, WIRE_OP_GET, 1, "key", 3);
		return;
	case BAD_INFO_LONG:
		send_record(c, WIRE_OP_GPU_INFO, 1, "", 1);
		return;
	default:
		break;
	}
	send_open(c, opens[bad]);
	UNTIL(c->opened || c->ended || c->closed);
	if (!c->opened)
		return;
	job = echo_job(c, 0, 1000);
	switch (bad) {
	case BAD_OPEN_TWICE:
		send_open(c, opens[bad]);
		break;
	case BAD_JOB_SHORT:
		send_record(c, WIRE_OP_GPU_JOB, 1, &job, sizeof(job) - 8);
		break;
	case BAD_JOB_NOTHING:
		send_record(c, WIRE_OP_GPU_JOB, 1, NULL, 0);
		break;
	case BAD_ID_TWICE:
		job.param[0] = 200000;
		send_job(c, 1, job);
		send_job(c, 1, job);
		break;
	case BAD_ID_TERMINATE:
		send_job(c, WIRE_GPU_TERMINATE, job);
		break;
	case BAD_JOB_AFTER_END:
		job.param[0] = 200000;
		send_job(c, 1, job);
		send_record(c, WIRE_OP_GPU_JOB, WIRE_GPU_TERMINATE, NULL, 0);
		send_job(c, 2, job);
		break;
	default:
		send_job(c, 1, job);
	}
}

START_TEST(test_bad_record)
{
	static const struct {
		const char *says;
		enum wire_status status;
	} cases[BADS] = {
		[BAD_JOB_FIRST] = {"before the session was opened", WIRE_BAD_REQUEST},
		[BAD_TERMINATE_FIRST] = {"before the session was opened", WIRE_BAD_REQUEST},
		[BAD_OPEN_TWICE] = {"opened twice", WIRE_BAD_REQUEST},
		[BAD_MODE] = {"no mode 2", WIRE_BAD_REQUEST},
		[BAD_FLAGS] = {"flag (0x2)", WIRE_BAD_REQUEST},
		[BAD_RESERVED] = {"reserved", WIRE_BAD_REQUEST},
		[BAD_PAYLOAD] = {"a payload of 2097152 bytes", WIRE_TOO_LARGE},
		[BAD_PAYLOAD_MOST] = {"a payload of 4294967295 bytes", WIRE_TOO_LARGE},
		[BAD_OPEN_SHORT] = {"operation 49 with 23 bytes", WIRE_BAD_REQUEST},
		[BAD_JOB_SHORT] = {"80 bytes", WIRE_BAD_REQUEST},
		[BAD_JOB_NOTHING] = {"0 bytes", WIRE_BAD_REQUEST},
		[BAD_ID_TWICE] = {"job 1: this id is that of", WIRE_BAD_REQUEST},
		[BAD_ID_TERMINATE] = {"request to end", WIRE_BAD_REQUEST},
		[BAD_JOB_IN_QUEUE_MODE] = {"in queue mode", WIRE_BAD_REQUEST},
		[BAD_JOB_AFTER_END] = {"after the request to end", WIRE_BAD_REQUEST},
		[BAD_OPERATION] = {"operation 16 with 3 bytes", WIRE_BAD_REQUEST},
		[BAD_INFO_LONG] = {"operation 48 with 1 bytes", WIRE_BAD_REQUEST},
	};

	open_rpc(&client[1]);
	do_bad(&client[0], (enum bad)_i);
	assert_ended(&client[0], cases[_i].status, cases[_i].says);
	assert_works(&client[1]);
}
END_TEST

/* An input or output that is not the client's to name ends its connection. */
START_TEST(test_bad_key)
{
	struct client *c = &client[0];
	struct wire_gpu_job job;

	open_rpc(&client[1]);
	open_rpc(c);
	job = echo_job(c, 0, 1000);
	switch (_i) {
	case 0:
		job.input.rkey ^= 0x55;
		break;
	case 1:
		job.output.rkey ^= 0x55;
		break;
	case 2:
		job.input.addr += MEMORY - 999;
		break;
	case 3:
		job.output.addr += OUTPUT - 999;
		break;
	}
	send_job(c, 1, job);
	UNTIL(c->closed);
	ck_assert_uint_eq(c->answers, 0);
	UNTIL(services_sessions(&services) == 1);
	ck_assert_uint_eq(services_count(&services, "gpu_errors"), 1);
	assert_works(&client[1]);
}
END_TEST

/* What a client of queue mode must not write. */
START_TEST(test_bad_queue)
{
	static const struct {
		const char *says;
		enum { JUMP_ON, JUMP_BACK, COLLECT, SEQUENCE, JOB, LENGTH } what;
	} cases[] = {
		{"queue 0", JUMP_ON},  {"queue 0", JUMP_BACK}, {"queue 0", COLLECT},
		{"queue 0", SEQUENCE}, {"queue 0", JOB},       {"queue 0", LENGTH},
	};
	struct wire_ring_job job = {.sequence = 1, .op = WIRE_RING_ECHO, .length = 100};
	struct client *c = &client[0];

	open_rpc(&client[1]);
	open_queue(c);
	switch (cases[_i].what) {
	case JUMP_ON:
		submit(c, 0, 9);
		break;
	case JUMP_BACK:
		one_by_queue(c, 0, 0);
		submit(c, 0, 0);
		break;
	case COLLECT:
		collect(c, 0, 1);
		put_job(c, 0, 0, job);
		submit(c, 0, 1);
		break;
	case SEQUENCE:
		job.sequence = 2;
		put_job(c, 0, 0, job);
		submit(c, 0, 1);
		break;
	case JOB:
		job.op = 77;
		put_job(c, 0, 0, job);
		submit(c, 0, 1);
		break;
	case LENGTH:
		job.length = UINT32_MAX;
		put_job(c, 0, 0, job);
		submit(c, 0, 1);
		break;
	}
	assert_ended(c, WIRE_BAD_REQUEST, cases[_i].says);
	assert_works(&client[1]);
}
END_TEST

/* Neither another session's ring, nor the control page, nor a part the other way round. */
START_TEST(test_reach)
{
	struct client *c = &client[0], *other = &client[1];
	enum fabric_status status = FABRIC_OK;
	struct wire_ring_layout at;

	open_queue(other);
	open_queue(c);
	at = layout(c);
	switch (_i) {
	case 0:
		status = transfer(c, false, 0, 64, other->ring.worker_addr, other->ring.worker_rkey);
		break;
	case 1:
		status = transfer(c, true, 0, 8, other->ring.client_addr, other->ring.client_rkey);
		break;
	case 2:
		status = transfer(c, true, 0, 8, c->ring.worker_addr, c->ring.worker_rkey);
		break;
	case 3:
		status = transfer(c, false, 0, 8, c->ring.client_addr, c->ring.client_rkey);
		break;
	case 4:
		status = transfer(c, true, 0, 8, in_client_part(c, at.control), c->ring.client_rkey);
		break;
	case 5:
		status = transfer(c, true, 0, 16, in_client_part(c, at.control - 8), c->ring.client_rkey);
		break;
	case 6:
		status = transfer(c, false, 0, 16, c->ring.worker_addr + at.client - 8, c->ring.worker_rkey);
		break;
	case 7:
		status = transfer(c, false, 0, 8, c->ring.worker_addr + at.control, c->ring.worker_rkey);
		break;
	}
	ck_assert_int_eq(status, FABRIC_REMOTE_ACCESS);
	UNTIL(c->closed);
	one_by_queue(other, 0, 0);
}
END_TEST

/*
 * Ends
 */

/* A client that goes without a word, at each point of the protocol. */
START_TEST(test_client_leaves)
{
	struct client *c = &client[0];
	struct wire_gpu_job job;

	open_rpc(&client[1]);
	if (_i < 3) {
		connect_client(c);
		if (_i > 0)
			send_open(c, (struct wire_gpu_open){.mode = WIRE_GPU_RPC});
		for (int i = 0; i < 10 * (_i - 1); i++)
			turn();
	} else if (_i < 10) {
		open_rpc(c);
		job = echo_job(c, 0, 64 * KIB);
		job.param[0] = _i == 3 ? 300000 : 0;
		for (uint32_t id = 0; id < 200; id++)
			if (!try_send(c, WIRE_OP_GPU_JOB, id, &job, sizeof(job)))
				break;
		for (int i = 3; i < _i; i++)
			turn();
	} else {
		open_queue(c);
		put_job(c, 0, 0,
			(struct wire_ring_job){.sequence = 1, .op = WIRE_RING_ECHO, .length = 64, .param = {300000}});
		submit(c, 0, 1);
		if (_i > 10)
			send_record(c, WIRE_OP_GPU_JOB, WIRE_GPU_TERMINATE, NULL, 0);
	}
	leave(c);
	UNTIL(conn_group_connections(pair.server.group) == 1);
	ck_assert(services_arm(&services)); /* its process may still be there */
	services_disarm(&services);
	assert_works(&client[1]);
	UNTIL(services_sessions(&services) == 1);
	ck_assert_uint_eq(count_children(), 1);
}
END_TEST

/* Its process dies: in RPC mode with jobs under way, in queue mode, and while it starts. */
START_TEST(test_worker_killed)
{
	struct client *c = &client[0];
	struct wire_gpu_job job;
	pid_t pids[4];

	if (_i == 0) {
		connect_client(c);
		send_open(c, (struct wire_gpu_open){.mode = WIRE_GPU_RPC});
		UNTIL(count_children() == 1);
	} else if (_i == 1) {
		open_rpc(c);
		job = echo_job(c, 0, 1000);
		job.param[0] = 1000000;
		send_job(c, 1, job);
		UNTIL(!turn() && !turn() && !turn());
	} else {
		open_queue(c);
	}
	ck_assert_uint_eq(children(pids, 4), 1);
	kill(pids[0], SIGKILL);
	open_rpc(&client[1]);
	assert_ended(c, WIRE_FAILED, "the worker process");
	assert_works(&client[1]);
}
END_TEST

START_TEST(test_overtime)
{
	struct client *c = &client[0];
	struct wire_gpu_job job;

	gpu.attr.job_timeout = 50 * TIME_MS;
	open_rpc(&client[1]);
	open_rpc(c);
	job = echo_job(c, 0, 1000);
	job.param[0] = 30000000;
	send_job(c, 1, job);
	assert_ended(c, WIRE_FAILED, "takes longer than 50ms");
	assert_works(&client[1]);
}
END_TEST

START_TEST(test_no_program)
{
	struct client *c = &client[0];

	gpu.attr.program = "/nowhere/rdmad-gpu";
	connect_client(c);
	send_open(c, (struct wire_gpu_open){.mode = WIRE_GPU_RPC});
	assert_ended(c, WIRE_FAILED, "worker");
	UNTIL(!services_sessions(&services));
}
END_TEST

/* The place comes back with the process. */
START_TEST(test_sessions_limit)
{
	struct client *c = &client[1];

	allow_sessions(1);
	open_rpc(&client[0]);
	connect_client(c);
	send_open(c, (struct wire_gpu_open){.mode = WIRE_GPU_RPC});
	assert_ended(c, WIRE_BUSY, "gpu sessions it allows, 1");
	ck_assert_uint_eq(services_count(&services, "gpu_refused"), 1);
	ck_assert_uint_eq(services_count(&services, "gpu_errors"), 0);
	assert_works(&client[0]);
	leave(&client[0]);
	UNTIL(!services_sessions(&services));
	open_rpc(c);
	assert_works(c);
}
END_TEST

/* Connections that open nothing take no place: clients that do, or only ask, are served. */
START_TEST(test_idle_connections)
{
	allow_sessions(1);
	for (unsigned i = 0; i < CLIENTS - 1; i++) {
		connect_client(&client[i]);
		ck_assert(client[i].established);
	}
	open_rpc(&client[CLIENTS - 1]);
	for (unsigned i = 0; i < CLIENTS - 1; i++) {
		send_record(&client[i], WIRE_OP_GPU_INFO, 3, NULL, 0);
		UNTIL(client[i].informed);
		ck_assert_uint_eq(client[i].info.sessions, 1);
	}
	assert_works(&client[CLIENTS - 1]);
}
END_TEST

/* One source has its part of the places, and no more. */
START_TEST(test_source_limit)
{
	struct client *c = &client[2];

	gpu.per_source = 2;
	open_rpc(&client[0]);
	open_rpc(&client[1]);
	connect_client(c);
	send_open(c, (struct wire_gpu_open){.mode = WIRE_GPU_RPC});
	assert_ended(c, WIRE_BUSY, "allows one address, network of IPv6 (/64) or user, 2");
	ck_assert_uint_eq(services_count(&services, "gpu_refused"), 1);
	leave(&client[1]);
	UNTIL(quota_taken(gpu.sources) == 1);
	open_rpc(c);
	assert_works(c);
	assert_works(&client[0]);
}
END_TEST

/* In both modes: a client that has no job for gpu.idle_timeout leaves when another comes, and not before. */
START_TEST(test_idle_session_leaves)
{
	struct client *idle = &client[0], *c = &client[1];

	allow_sessions(1);
	gpu.idle_timeout = 4 * TIME_S;
	if (_i)
		open_queue(idle);
	else
		open_rpc(idle);
	for (unsigned i = 0; i < 20; i++) {
		skipped += TIME_S / 2;
		turn();
	}
	ck_assert(!idle->ended);
	connect_client(c);
	send_open(c, (struct wire_gpu_open){.mode = WIRE_GPU_RPC});
	assert_ended(idle, WIRE_FAILED, "no job for 4s and another client wanted its place");
	UNTIL(c->opened || c->ended);
	ck_assert_msg(c->opened, "%s", c->reason);
	assert_works(c);
	ck_assert_uint_eq(services_count(&services, "gpu_evicted"), 1);
	ck_assert_uint_eq(services_count(&services, "gpu_errors"), 0);
}
END_TEST

/* One that had a job a moment ago, or has one now, stays. */
START_TEST(test_busy_session_stays)
{
	struct client *busy = &client[0], *c = &client[1];

	allow_sessions(1);
	gpu.idle_timeout = 60 * TIME_S;
	open_queue(busy);
	for (unsigned i = 0; i < 20; i++) {
		skipped += 10 * TIME_S;
		if (_i == 1)
			one_by_queue(busy, 0, i);
		turn();
	}
	if (_i == 0) {
		one_by_queue(busy, 0, 0);
	} else if (_i == 2) {
		put_job(busy, 0, 0,
			(struct wire_ring_job){.sequence = 1, .op = WIRE_RING_ECHO, .length = 64, .param = {5000000}});
		submit(busy, 0, 1);
	}
	connect_client(c);
	send_open(c, (struct wire_gpu_open){.mode = WIRE_GPU_RPC});
	if (_i != 1)
		conn_pair_rest(&pair); /* it is asked, and has worked since it was looked at last */
	turn();
	skipped += 4 * TIME_S;
	assert_ended(c, WIRE_BUSY, "gpu sessions it allows, 1");
	ck_assert(!busy->ended);
	ck_assert_uint_eq(services_count(&services, "gpu_evicted"), 0);
}
END_TEST

/* Making a session and giving it back are without end: others are served, and its client may go. */
START_TEST(test_nobody_waits_for_memory)
{
	struct client *c = &client[0], *other = &client[1];

	open_rpc(other);
	begun = 0;
	takes_long = true;
	connect_client(c);
	send_open(c, (struct wire_gpu_open){.mode = _i % 2 ? WIRE_GPU_QUEUE : WIRE_GPU_RPC});
	UNTIL(begun == 1);
	assert_works(other);
	ck_assert(!c->opened && !c->ended);
	if (_i < 2) {
		takes_long = false;
		UNTIL(c->opened);
		takes_long = true;
	}
	leave(c);
	assert_works(other);
	if (_i < 2)
		UNTIL(begun == 2);
	assert_works(other);
	ck_assert_uint_eq(quota_taken(gpu.sources), 2);
	takes_long = false;
	UNTIL(quota_taken(gpu.sources) == 1);
	assert_works(other);
}
END_TEST

/* A process that not even SIGKILL ends: its place stays taken, and the thread ends all the same. */
START_TEST(test_unkillable)
{
	open_rpc(&client[0]);
	unkillable = true;
	leave(&client[0]);
	skipped += TIME_S;
	turn();
	skipped += 10 * TIME_S;
	turn();
	ck_assert_uint_eq(quota_taken(gpu.sources), 1);
	services_end(&services);
	UNTIL(!services_sessions(&services));
	unkillable = false;
	ck_assert_int_gt(waitpid(-1, NULL, 0), 0);
}
END_TEST

/* A connection that opens nothing, and one whose client does not leave. */
START_TEST(test_patience)
{
	struct client *c = &client[0];

	connect_client(c);
	skipped += 11 * TIME_S;
	UNTIL(c->ended);
	ck_assert_ptr_nonnull(strstr(c->reason, "no session was opened"));
	conn_pair_rest(&pair);
	ck_assert(!c->closed);
	ck_assert_uint_le(services_deadline(&services), pair.now + TIME_S);
	skipped += 2 * TIME_S;
	UNTIL(c->closed);
}
END_TEST

static void drain(void *arg, struct conn *conn)
{
	service_drain(conn);
}

/* What was begun is done; then the client is told. */
START_TEST(test_drain)
{
	struct client *c = &client[0];
	struct wire_gpu_job job;

	open_rpc(c);
	open_queue(&client[1]);
	connect_client(&client[2]);
	job = echo_job(c, 0, 1000);
	job.param[0] = 100000;
	send_job(c, 1, job);
	put_job(&client[1], 0, 0,
		(struct wire_ring_job){.sequence = 1, .op = WIRE_RING_ECHO, .length = 64, .param = {100000}});
	submit(&client[1], 0, 1);
	UNTIL(!turn() && !turn() && !turn());
	for (unsigned i = 0; i < 3; i++)
		while (!client[i].ended) {
			conn_group_each(pair.server.group, drain, NULL);
			turn();
		}
	ck_assert_uint_eq(c->answered[1], 1);
	ck_assert_uint_eq(done_of(&client[1], 0), 1);
	for (unsigned i = 0; i < 3; i++)
		assert_ended(&client[i], WIRE_FAILED, "shutting down");
	ck_assert_uint_eq(services_count(&services, "gpu_errors"), 0);
}
END_TEST

/* The end of the worker's thread leaves nothing behind, however busy the sessions are. */
START_TEST(test_shutdown)
{
	struct wire_gpu_job job;

	for (unsigned i = 0; i < 2; i++) {
		open_rpc(&client[i]);
		job = echo_job(&client[i], 0, 64 * KIB);
		job.param[0] = 5000000;
		for (uint32_t id = 0; id < 10; id++)
			send_job(&client[i], id, job);
	}
	connect_client(&client[2]);
	send_open(&client[2], (struct wire_gpu_open){.mode = WIRE_GPU_QUEUE});
	connect_client(&client[3]);
	if (_i) {
		services_end(&services);
		ck_assert_uint_eq(count_children(), 0);
	}
	conn_group_destroy(pair.server.group);
	services_close(&services);
	ck_assert_uint_eq(count_children(), 0);
	/* So that the rest of the test has something to take down. */
	services_open(&services, &(struct services_options){.gpu = &gpu});
	ck_assert_int_eq(conn_group_create(pair.server.domain, conn_group_attr(pair.client.group), &pair.server.group),
			 0);
}
END_TEST

/* What opening the services comes to where the gpu service has no program: without it, or not at all where its backend
 * was asked for by name. */
START_TEST(test_open)
{
	struct kv_settings kv = {.memory = MIB, .value_max = MIB};
	struct gpu_service_settings no = {.program = (char *)"/nowhere/rdmad-gpu", .sessions = 1};
	void *const settings[WIRE_SERVICES] = {[WIRE_KV] = &kv, [WIRE_GPU] = &no};
	uint64_t wanted = 1u << WIRE_KV | 1u << WIRE_GPU;
	const struct setting_table *table = service_find(WIRE_GPU)->settings;
	struct service_host host = {.domains = 0};
	struct service_shared shared;
	char why[160];

	ck_assert_int_eq(service_shared_open(&shared, &host, wanted, settings), 0);
	ck_assert(service_is_open(&shared, WIRE_PING) && service_is_open(&shared, WIRE_KV));
	ck_assert(!service_is_open(&shared, WIRE_GPU));
	ck_assert_uint_le(service_shared_tick(&shared, 1), 1 + TIME_S);
	service_shared_close(&shared);

	for (unsigned i = 0; i < table->count; i++)
		setting_set_default(&table->row[i], &no);
	ck_assert_uint_eq(no.slots, 16);
	ck_assert_uint_eq(service_find(WIRE_GPU)->descriptors(&no), 4 * 8);
	ck_assert_str_eq(table->row[0].path, "gpu.backend");
	ck_assert(setting_set(&table->row[0], &no, "cuda", why, sizeof(why)));
	ck_assert_int_eq(service_shared_open(&shared, &host, wanted, settings), -ENODEV);
	ck_assert_uint_eq(shared.open, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("service_gpu");
	TCase *tc = suite_case(suite, "service_gpu", set_up, tear_down);

	log_set_handler(log_keep);
	tcase_add_loop_test(tc, test_rpc, 0, ARRAY_SIZE(rpc_opens));
	tcase_add_test(tc, test_rpc_quantize);
	tcase_add_loop_test(tc, test_rpc_many, 0, ARRAY_SIZE(rpc_opens));
	tcase_add_test(tc, test_rpc_lengths);
	tcase_add_test(tc, test_rpc_sleeping);
	tcase_add_loop_test(tc, test_rpc_terminate, 0, ARRAY_SIZE(rpc_opens));
	tcase_add_test(tc, test_terminate_and_stay);
	tcase_add_test(tc, test_info);
	tcase_add_loop_test(tc, test_shapes, 0, 5);
	tcase_add_test(tc, test_open);
	tcase_add_test(tc, test_queue);
	tcase_add_test(tc, test_queue_busy);
	tcase_add_test(tc, test_queue_terminate);
	tcase_add_loop_test(tc, test_bad_job, 0, ARRAY_SIZE(bad_jobs));
	tcase_add_loop_test(tc, test_bad_record, 0, BADS);
	tcase_add_loop_test(tc, test_bad_key, 0, 4);
	tcase_add_loop_test(tc, test_bad_queue, 0, 6);
	tcase_add_loop_test(tc, test_reach, 0, 8);
	tcase_add_loop_test(tc, test_client_leaves, 0, 12);
	tcase_add_loop_test(tc, test_worker_killed, 0, 3);
	tcase_add_test(tc, test_overtime);
	tcase_add_test(tc, test_no_program);
	tcase_add_test(tc, test_sessions_limit);
	tcase_add_test(tc, test_idle_connections);
	tcase_add_test(tc, test_source_limit);
	tcase_add_loop_test(tc, test_idle_session_leaves, 0, 2);
	tcase_add_loop_test(tc, test_busy_session_stays, 0, 3);
	tcase_add_loop_test(tc, test_nobody_waits_for_memory, 0, 4);
	tcase_add_test(tc, test_unkillable);
	tcase_add_test(tc, test_patience);
	tcase_add_test(tc, test_drain);
	tcase_add_loop_test(tc, test_shutdown, 0, 2);
	return suite_run(suite);
}
