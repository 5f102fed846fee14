/* peer.c: messages of records to the peer service, by a client that is connected, beside one that waits for the second of its group. The
 * first byte: in its lowest bit the name, in the others the credits; then the chunks of fuzz_stream(). */
#include <unistd.h>

#include "fabric/soft_frame.h"
#include "fuzz.h"
#include "wire/wire.h"

#define COUNT_AT (SOFT_HEADER + 16) /* of the connect request's count */

static size_t connect_for(uint8_t *out, const char *name, unsigned credits)
{
	uint32_t count = WIRE_PEER_COUNT(name, strlen(name));
	size_t used = fuzz_connect(out, WIRE_PEER, credits);

	memcpy(out + COUNT_AT, &count, sizeof(count));
	return used;
}

/* Joins "n". */
static int other_connect(uint8_t *stream, size_t room)
{
	struct {
		uint8_t chunk[4];
		struct wire_record record;
		struct wire_peer_join join;
		char name[1];
	} __attribute__((packed)) say = {
		.record = {.length = sizeof(say.join) + 1, .op = WIRE_OP_PEER_JOIN},
		.join = {.size = 2, .rank = WIRE_PEER_ANY_RANK, .name_len = 1},
		.name = {'n'},
	};
	int fd = fuzz_server_connect();

	say.chunk[2] = (uint8_t)(sizeof(say) - sizeof(say.chunk));
	fuzz_server_write(fd, stream, connect_for(stream, "n", 8));
	fuzz_server_write(fd, stream, fuzz_stream((uint8_t *)&say, sizeof(say), stream, room));
	for (unsigned i = 0; i < 16; i++)
		fuzz_server_turn(fd); /* until it waits */
	return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t stream[1u << 17];
	static bool open;
	int fd, other;

	if (!open)
		fuzz_server_open(NULL);
	open = true;
	if (!size)
		return 0;
	other = other_connect(stream, sizeof(stream));
	fd = fuzz_server_connect();
	if (fuzz_server_write(fd, stream, connect_for(stream, *data & 1 ? "n" : "m", 2 + (*data >> 1))))
		fuzz_server_write(fd, stream, fuzz_stream(data + 1, size - 1, stream, sizeof(stream)));
	for (unsigned i = 0; i < 16; i++)
		fuzz_server_turn(other);
	close(other);
	fuzz_server_close(fd);
	return 0;
}
