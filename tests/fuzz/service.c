/* service.c: messages of records to a service, by a client that is connected. The first byte: the service, in its
 * high bits the credits; then the chunks of fuzz_stream(). */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	fuzz_server_open(NULL);
	if (size)
		fuzz_server_close(fuzz_server_client(1 + (*data & 1), 2 + (*data >> 1), 0, data + 1, size - 1));
	return 0;
}
