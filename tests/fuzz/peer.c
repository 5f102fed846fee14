/* peer.c: messages of records to the peer service, by a client that is connected, beside one that waits for the second of its group. The
 * first byte: in its lowest bit the name, in the others the credits; then the chunks of fuzz_stream(). */
#include <unistd.h>

#include "fuzz.h"
#include "wire/wire.h"

static int client(const char *name, unsigned credits, const void *data, size_t size)
{
	return fuzz_server_client(WIRE_PEER, credits, WIRE_PEER_COUNT(name, strlen(name)), data, size);
}

/* Joins "n". */
static int other_connect(void)
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
	int fd;

	say.chunk[2] = (uint8_t)(sizeof(say) - sizeof(say.chunk));
	fd = client("n", 8, &say, sizeof(say));
	for (unsigned i = 0; i < 16; i++)
		fuzz_server_turn(fd); /* until it waits */
	return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd, other;

	fuzz_server_open(NULL);
	if (!size)
		return 0;
	other = other_connect();
	fd = client(*data & 1 ? "n" : "m", 2 + (*data >> 1), data + 1, size - 1);
	for (unsigned i = 0; i < 16; i++)
		fuzz_server_turn(other);
	close(other);
	fuzz_server_close(fd);
	return 0;
}
