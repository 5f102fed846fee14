/* service.c: messages of records to a service, by a client that is connected. The first byte: the service, in its
 * high bits the credits; then the chunks of fuzz_stream(). */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t stream[1u << 17];
	static bool open;
	size_t used;
	int fd;

	if (!open)
		fuzz_server_open(NULL);
	open = true;
	if (!size)
		return 0;
	fd = fuzz_server_connect();
	used = fuzz_connect(stream, 1 + (*data & 1), 2 + (*data >> 1));
	if (fuzz_server_write(fd, stream, used)) {
		used = fuzz_stream(data + 1, size - 1, stream, sizeof(stream));
		fuzz_server_write(fd, stream, used);
	}
	fuzz_server_close(fd);
	return 0;
}
