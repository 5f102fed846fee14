/* server.c: a server for bytes from a socket, turned by the target itself. */
#include <fcntl.h>
#include <unistd.h>

#include "fabric/soft/frame.h"
#include "fuzz.h"
#include "tests/service/server.h"

#define READS 4         /* that the client serves, or would */
#define TURNS 20        /* in which what was sent is looked at, and answered */
#define TURNS_MAX 10000 /* a connection that takes longer to end never does */

static void (*answer)(int fd, const uint8_t *data, size_t len);

/* The server is node q of a cluster, and has all slots but one, which node p is to hand over. */
#define SLOT 3300 /* of the key "b" */
#define BOOT "0123456789abcdef0123456789abcdef"
static struct cluster_table table;
static bool closes; /* then p is out */

static bool allowed(void *arg, const struct cluster_session *session, char *why, size_t size)
{
	static const struct cluster_entry donor = {.node = "p", .boot = BOOT, .revision = 1};

	(void)arg;
	return cluster_session_allowed(session, &table, 0, &donor, why, size);
}

static bool abandoned(void *arg, const struct cluster_session *session)
{
	(void)arg, (void)session;
	return closes;
}

static void join_cluster(void)
{
	struct kv_shared *kv = server.services.shared.of[WIRE_KV];
	uint8_t all[CLUSTER_SLOT_BYTES];

	memset(all, 0xff, sizeof(all));
	table = (struct cluster_table){.name = "test", .epoch = 7};
	for (unsigned i = 0; i < 2; i++) {
		struct cluster_node node = {.name = {i ? 'p' : 'q'}};

		REQUIRE(cluster_node_set(&node, CLUSTER_NATIVE, i ? "10.0.0.1:7471" : "10.0.0.2:7471") == 0);
		REQUIRE(cluster_add(&table, &node) == 0);
	}
	table.owner[SLOT] = 1;
	table.to[SLOT] = 1;
	kv_service_cluster.until(kv, TIME_NEVER);
	REQUIRE(kv_cluster_change(kv, &table, all) == 0);
}

/* What the main thread does. */
static int receive_slots(void)
{
	kv_service_cluster.receive(server.services.shared.of[WIRE_KV], allowed, abandoned, NULL);
	service_shared_tick(&server.services.shared, server.time);
	return 0;
}

void fuzz_server_open(struct gpu_service *gpu)
{
	if (server.fabric)
		return;
	fuzz_silence();
	server_open(&(struct server_options){
		.transport = "abstract",
		.services = {.arena = 4 * MIB,
			     .push_max = 65536,
			     .eviction = STORE_EVICT_S3_FIFO,
			     .gpu = gpu,
			     .cluster_engine = true,
			     .cluster_node = "q"},
		.group =
			{
				.message_max = 65536,
				.credits = 16,
				.receives = 64,
				.max_connections = 4,
				.handshake_timeout = 5 * TIME_S,
				.stall_timeout = 60 * TIME_S,
			},
		.work = receive_slots,
		.time = 1000 * TIME_S,
	});
	join_cluster();
}

void fuzz_server_on_answer(void (*fn)(int fd, const uint8_t *data, size_t len))
{
	answer = fn;
}

int fuzz_server_connect(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	REQUIRE(fd >= 0);
	REQUIRE(connect(fd, (struct sockaddr *)&server.bound, server.bound_len) == 0);
	REQUIRE(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
	return fd;
}

bool fuzz_server_turn(int fd)
{
	uint8_t waste[4096];
	ssize_t n;

	if (services_fd(&server.services) >= 0)
		services_readable(&server.services);
	server_turn();
	if (fd < 0)
		return false;
	while ((n = recv(fd, waste, sizeof(waste), MSG_DONTWAIT)) > 0)
		if (answer)
			answer(fd, waste, (size_t)n);
	return n < 0 && errno == EAGAIN;
}

static void turn_some(int fd)
{
	for (unsigned i = 0; i < TURNS && fuzz_server_turn(fd); i++)
		;
}

bool fuzz_server_write(int fd, const void *data, size_t len)
{
	const uint8_t *at = data;

	while (len) {
		ssize_t n = send(fd, at, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno != EAGAIN)
			return false;
		if (!fuzz_server_turn(fd))
			return false;
		if (n > 0) {
			at += n;
			len -= (size_t)n;
		}
	}
	return true;
}

void fuzz_server_close(int fd)
{
	uint64_t cursor = 0, deleted;
	struct conn_group_stats stats;
	unsigned turns = 0;

	turn_some(fd);
	close(fd);
	closes = true;
	do {
		fuzz_server_turn(-1);
		if (turns == TURNS_MAX / 2)
			server.time += 10 * TIME_S; /* what waits for time */
		conn_group_get_stats(server.group, &stats);
		REQUIRE(turns++ < TURNS_MAX);
	} while (stats.connections || services_sessions(&server.services) || store_flushes_held(server.services.store));
	closes = false;
	do {
		store_flush_some(server.services.store, &cursor, &deleted);
	} while (cursor);
}

static size_t put_frame(uint8_t *out, unsigned op, size_t len)
{
	struct soft_frame frame = {.op = (uint8_t)op, .len = len};

	if (op == SOFT_CONNECT || op == SOFT_ACCEPT) {
		frame.addr = SOFT_MAGIC;
		frame.key = soft_greeting_key(SOFT_VERSION, READS, READS);
	}
	soft_frame_encode(out, &frame);
	return SOFT_HEADER;
}

size_t fuzz_connect(uint8_t *out, unsigned service, unsigned credits, uint32_t count)
{
	struct wire_request request = {
		.version = WIRE_VERSION,
		.service = (uint8_t)service,
		.credits = (uint16_t)credits,
		.message_size = 8192,
		.size = 16,
		.count = count,
	};

	put_frame(out, SOFT_CONNECT, WIRE_REQUEST_SIZE);
	wire_request_encode(&request, out + SOFT_HEADER);
	return SOFT_HEADER + WIRE_REQUEST_SIZE;
}

size_t fuzz_accept(uint8_t *out, unsigned credits)
{
	struct wire_accept accept = {
		.version = WIRE_VERSION,
		.service = WIRE_KV,
		.flags = WIRE_WATCHES | WIRE_TABLES,
		.credits = (uint16_t)credits,
		.message_size = 8192,
		.eager_max = WIRE_EAGER_MAX,
		.value_max = GIB,
		.pieces = WIRE_PIECES_MAX,
	};

	put_frame(out, SOFT_ACCEPT, WIRE_ACCEPT_SIZE);
	wire_accept_encode(&accept, out + SOFT_HEADER);
	return SOFT_HEADER + WIRE_ACCEPT_SIZE;
}

size_t fuzz_stream(const uint8_t *data, size_t size, uint8_t *out, size_t room)
{
	size_t used = 0;

	while (size >= 4) {
		size_t len = MIN((size_t)(data[2] | data[3] << 8), size - 4);
		struct wire_message m = {
			.length = (uint32_t)(sizeof(m) + len + (data[0] & 1)),
			.credits = data[1],
		};

		if (used + SOFT_HEADER + sizeof(m) + len > room)
			break;
		used += put_frame(out + used, data[0] & 2 ? data[1] : SOFT_SEND, sizeof(m) + len);
		memcpy(out + used, &m, sizeof(m));
		memcpy(out + used + sizeof(m), data + 4, len);
		used += sizeof(m) + len;
		data += 4 + len;
		size -= 4 + len;
	}
	return used;
}

int fuzz_server_client(unsigned service, unsigned credits, uint32_t count, const void *data, size_t size)
{
	static uint8_t stream[1u << 17];
	int fd = fuzz_server_connect();
	const uint8_t *at = data;
	bool open = fuzz_server_write(fd, stream, fuzz_connect(stream, service, credits, count));

	while (open && size >= 4) {
		size_t len = MIN(4 + (size_t)(at[2] | at[3] << 8), size);

		turn_some(fd);
		open = fuzz_server_write(fd, stream, fuzz_stream(at, len, stream, sizeof(stream)));
		at += len;
		size -= len;
	}
	return fd;
}
