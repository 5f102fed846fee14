/* channel.c: messages of records to the channel service, by a client that is connected, beside one that listens on a name. The
 * first byte: in its lowest bit the name, in the others the credits; then the chunks of fuzz_stream(). */
#include <unistd.h>

#include "fuzz.h"
#include "wire/wire.h"

static int client(const char *name, unsigned credits, const void *data, size_t size)
{
	return fuzz_server_client(WIRE_CHANNEL, credits, WIRE_CHANNEL_COUNT(name, strlen(name)), data, size);
}

/* Listens on "n". */
static int listener_connect(void)
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
	int fd;

	say.chunk[2] = (uint8_t)(sizeof(say) - sizeof(say.chunk));
	fd = client("n", 8, &say, sizeof(say));
	for (unsigned i = 0; i < 16; i++)
		fuzz_server_turn(fd); /* until it has the name */
	return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd, listener;

	fuzz_server_open(NULL);
	if (!size)
		return 0;
	listener = listener_connect();
	fd = client(*data & 1 ? "n" : "echo", 2 + (*data >> 1), data + 1, size - 1);
	for (unsigned i = 0; i < 16; i++)
		fuzz_server_turn(listener);
	close(listener);
	fuzz_server_close(fd);
	return 0;
}
