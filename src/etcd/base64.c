/* base64.c: keys and values as the gateway has them. */
#include "etcd/etcd.h"

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void etcd_base64_encode(const void *bytes, size_t length, char text[static 1])
{
	const uint8_t *in = bytes;

	for (size_t i = 0; i < length; i += 3) {
		size_t left = length - i;
		unsigned group = in[i] << 16 | (left > 1 ? in[i + 1] << 8 : 0) | (left > 2 ? in[i + 2] : 0);

		*text++ = digits[group >> 18];
		*text++ = digits[group >> 12 & 63];
		*text++ = left > 1 ? digits[group >> 6 & 63] : '=';
		*text++ = left > 2 ? digits[group & 63] : '=';
	}
	*text = '\0';
}

ssize_t etcd_base64_decode(const char *text, void *bytes, size_t size)
{
	size_t length = strlen(text), used = 0, padding = 0;
	uint8_t *out = bytes;
	unsigned group = 0;

	if (length % 4)
		return -EINVAL;
	for (size_t i = 0; i < length; i++) {
		const char *digit = strchr(digits, text[i]);

		if (text[i] == '=' && i + 2 >= length)
			padding++;
		else if (!digit || padding)
			return -EINVAL;
		group = group << 6 | (digit ? (unsigned)(digit - digits) : 0);
		if (i % 4 != 3)
			continue;
		if (used + 3 - padding > size)
			return -EINVAL;
		for (unsigned n = 0; n < 3 - padding; n++)
			out[used++] = (uint8_t)(group >> (16 - 8 * n));
		group = 0;
	}
	return (ssize_t)used;
}
