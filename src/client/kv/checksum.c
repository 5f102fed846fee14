/* checksum.c: the checksum of a value that brings it, from the memory of its writer to that of its reader. */
#include "client/kv/kv.h"

#define XXH_INLINE_ALL /* the library needs no other at run time */
#include <xxhash.h>

uint64_t kv_checksum(const struct iovec *pieces, size_t count)
{
	XXH3_state_t state;

	log_clear_last();
	for (size_t i = 0; i < count; i++)
		if (kv_readable(pieces[i].iov_base, pieces[i].iov_len, "what the checksum is of") != 0)
			return 0;
	if (count == 1)
		return XXH3_64bits(pieces->iov_base, pieces->iov_len);
	XXH3_64bits_reset(&state);
	for (size_t i = 0; i < count; i++)
		if (pieces[i].iov_len)
			XXH3_64bits_update(&state, pieces[i].iov_base, pieces[i].iov_len);
	return XXH3_64bits_digest(&state);
}
