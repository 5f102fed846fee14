/* sha1.c: SHA-1 by FIPS 180-4. It names scripts, and protects nothing. */
#include "service/resp/script/script.h"

static uint32_t rotate_left(uint32_t word, unsigned by)
{
	return word << by | word >> (32 - by);
}

static void sha1_block(uint32_t h[5], const uint8_t *at)
{
	uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];

	for (unsigned i = 0; i < 16; i++)
		w[i] = (uint32_t)at[4 * i] << 24 | (uint32_t)at[4 * i + 1] << 16 | (uint32_t)at[4 * i + 2] << 8 |
		       at[4 * i + 3];
	for (unsigned i = 16; i < 80; i++)
		w[i] = rotate_left(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
	for (unsigned i = 0; i < 80; i++) {
		static const uint32_t k[] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
		uint32_t f = i < 20 ? (b & c) | (~b & d) : i < 40 || i >= 60 ? b ^ c ^ d : (b & c) | (b & d) | (c & d);
		uint32_t next = rotate_left(a, 5) + f + e + k[i / 20] + w[i];

		e = d;
		d = c;
		c = rotate_left(b, 30);
		b = a;
		a = next;
	}
	h[0] += a;
	h[1] += b;
	h[2] += c;
	h[3] += d;
	h[4] += e;
}

void resp_sha1(const void *bytes, size_t len, char hex[static RESP_SHA1 + 1])
{
	uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
	const uint8_t *at = bytes;
	uint8_t last[128] = {0};
	size_t left = len % 64, end = left < 56 ? 64 : 128;

	for (size_t i = 0; i < len / 64; i++)
		sha1_block(h, at + 64 * i);
	if (left)
		memcpy(last, at + len - left, left);
	last[left] = 0x80;
	for (unsigned i = 0; i < 8; i++)
		last[end - 1 - i] = (uint8_t)((uint64_t)len * 8 >> (8 * i));
	for (size_t i = 0; i < end; i += 64)
		sha1_block(h, last + i);
	for (unsigned i = 0; i < 5; i++)
		snprintf(hex + 8 * i, 9, "%08x", h[i]);
}
