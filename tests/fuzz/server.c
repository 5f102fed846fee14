/* server.c: a server for bytes from a socket, turned by the target itself. */
#include <fcntl.h>
#include <unistd.h>

#include "fabric/soft/frame.h"
#include "fuzz.h"
#include "tests/service/server.h"

#define READS 4         /* that the client serves, or would */
#define TURNS_MAX 10000 /* a connection that takes longer to end never does */

static void (*answer)(int fd, const uint8_t *data, size_t len);

void fuzz_server_open(struct gpu_service *gpu)
{
	if (server.fabric)
		return;
	fuzz_silence();
	server_open(&(struct server_options){
		.transport = "abstract",
		.services = {.arena = 4 * MIB, .push_max = 65536, .eviction = STORE_EVICT_S3_FIFO, .gpu = gpu},
		.group =
			{
				.message_max = 65536,
				.credits = 16,
				.receives = 64,
				.max_connections = 4,
				.handshake_timeout = 5 * TIME_S,
				.stall_timeout = 60 * TIME_S,
			},
		.time = 1000 * TIME_S,
	});
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

	for (unsigned i = 0; i < 4; i++)
		fuzz_server_turn(fd);
	close(fd);
	do {
		fuzz_server_turn(-1);
		if (turns == TURNS_MAX / 2)
			server.time += 10 * TIME_S; /* what waits for time */
		conn_group_get_stats(server.group, &stats);
		REQUIRE(turns++ < TURNS_MAX);
	} while (stats.connections || services_sessions(&server.services));
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

	if (fuzz_server_write(fd, stream, fuzz_connect(stream, service, credits, count)))
		fuzz_server_write(fd, stream, fuzz_stream(data, size, stream, sizeof(stream)));
	return fd;
}
