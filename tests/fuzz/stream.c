/* stream.c: any bytes on a socket of the soft provider: requests, frames, messages, services. The first
 * byte says in pieces of which length they come. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t piece;
	int fd;

	fuzz_server_open(NULL);
	if (!size)
		return 0;
	piece = *data ? *data : size;
	data++;
	size--;
	fd = fuzz_server_connect();
	while (size && fuzz_server_write(fd, data, MIN(piece, size))) {
		data += MIN(piece, size);
		size -= MIN(piece, size);
	}
	fuzz_server_close(fd);
	return 0;
}
