/* slot.c: the slot of a key. */
#include "cluster/cluster.h"

#define POLYNOMIAL 0x1021 /* x^16 + x^12 + x^5 + 1 */
#define SLICES 8

/* crc[n][b]: the remainder of byte b with n bytes of 0 behind it, so that eight bytes are one step. */
static uint16_t crc[SLICES][256];

__attribute__((constructor)) static void fill(void)
{
	for (unsigned b = 0; b < 256; b++) {
		unsigned rest = b << 8;

		for (unsigned bit = 0; bit < 8; bit++)
			rest = rest << 1 ^ (rest & 0x8000 ? POLYNOMIAL : 0);
		crc[0][b] = (uint16_t)rest;
	}
	for (unsigned n = 1; n < SLICES; n++)
		for (unsigned b = 0; b < 256; b++)
			crc[n][b] = (uint16_t)(crc[n - 1][b] << 8 ^ crc[0][crc[n - 1][b] >> 8]);
}

static inline unsigned crc_step(const uint8_t at[static SLICES], unsigned rest)
{
	return crc[7][at[0] ^ rest >> 8] ^ crc[6][at[1] ^ (rest & 255)] ^ crc[5][at[2]] ^ crc[4][at[3]] ^
	       crc[3][at[4]] ^ crc[2][at[5]] ^ crc[1][at[6]] ^ crc[0][at[7]];
}

/* What is no whole step comes first: its bytes do not wait for each other. */
static inline unsigned crc_key(const uint8_t *at, size_t len)
{
	unsigned rest = 0;

	for (size_t first = len % SLICES; first--; at++)
		rest ^= crc[first][*at];
	for (len /= SLICES; len--; at += SLICES)
		rest = crc_step(at, rest);
	return rest;
}

/* The slot of the text between the braces; the key has the first one. */
static __attribute__((noinline)) unsigned slot_between(const uint8_t *at, size_t len, const uint8_t *open)
{
	const uint8_t *close = memchr(open + 1, '}', len - (size_t)(open + 1 - at));

	if (close && close > open + 1)
		return crc_key(open + 1, (size_t)(close - open - 1)) % CLUSTER_SLOTS;
	return crc_key(at, len) % CLUSTER_SLOTS;
}

unsigned cluster_slot(const void *key, size_t len)
{
	const uint8_t *open = len ? memchr(key, '{', len) : NULL;

	return unlikely(open) ? slot_between(key, len, open) : crc_key(key, len) % CLUSTER_SLOTS;
}
