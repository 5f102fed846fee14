/* channel.c: messages of records to the channel service, by a client that is connected, beside one that listens on a name. The
 * first byte: in its lowest bit the name, in the others the credits; then the chunks of fuzz_stream(). */
#include <unistd.h>

#include "fabric/soft_frame.h"
#include "fuzz.h"
#include "wire/wire.h"

#define COUNT_AT (SOFT_HEADER + 16) /* of the connect request's count */

static size_t connect_for(uint8_t *out, const char *name, unsigned credits)
{
	uint32_t count = WIRE_CHANNEL_COUNT(name, strlen(name));
	size_t used = fuzz_connect(out, WIRE_CHANNEL, credits);

	memcpy(out + COUNT_AT, &count, sizeof(count));
	return used;
}

/* Listens on "n". */
static int listener_connect(uint8_t *stream, size_t room)
{
	struct {
		uint8_t chunk[4];
		struct wire_record record;
		struct wire_channel_listen listen;
		char name[1];
	} __attribute__((packed)) say = {
		.record = {.length = sizeof(say.listen) + 1, .op = WIRE_OP_CHANNEL_LISTEN},
		.listen = {.capacity = 4096, .name_len = 1},
		.name = {'n'},
	};
	int fd = fuzz_server_connect();

	say.chunk[2] = (uint8_t)(sizeof(say) - sizeof(say.chunk));
	fuzz_server_write(fd, stream, connect_for(stream, "n", 8));
	fuzz_server_write(fd, stream, fuzz_stream((uint8_t *)&say, sizeof(say), stream, room));
	for (unsigned i = 0; i < 16; i++)
		fuzz_server_turn(fd); /* until it has the name */
	return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t stream[1u << 17];
	static bool open;
	int fd, listener;

	if (!open)
		fuzz_server_open(NULL);
	open = true;
	if (!size)
		return 0;
	listener = listener_connect(stream, sizeof(stream));
	fd = fuzz_server_connect();
	if (fuzz_server_write(fd, stream, connect_for(stream, *data & 1 ? "n" : "echo", 2 + (*data >> 1))))
		fuzz_server_write(fd, stream, fuzz_stream(data + 1, size - 1, stream, sizeof(stream)));
	for (unsigned i = 0; i < 16; i++)
		fuzz_server_turn(listener);
	close(listener);
	fuzz_server_close(fd);
	return 0;
}
