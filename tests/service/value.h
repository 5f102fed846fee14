/* value.h: values that say which client wrote them: each byte follows from the seed and its place. */
#ifndef RDMAD_TESTS_VALUE_H
#define RDMAD_TESTS_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* memcpy() itself may be counted. */
static inline uint64_t value_word(uint64_t seed, size_t i)
{
	return (seed + 1) * 0x9e3779b97f4a7c15u + i * 0x100000001b3u;
}

static inline void value_fill(void *value, size_t len, uint64_t seed)
{
	unsigned char *to = value;

	for (size_t i = 0; i < len / 8; i++) {
		uint64_t word = value_word(seed, i);

		__builtin_memcpy(to + 8 * i, &word, 8);
	}
	for (size_t i = len & ~(size_t)7; i < len; i++)
		to[i] = (unsigned char)(value_word(seed, i / 8) >> (8 * (i % 8)));
}

static inline bool value_holds(const void *value, size_t len, uint64_t seed)
{
	const unsigned char *at = value;

	for (size_t i = 0; i < len / 8; i++) {
		uint64_t word;

		__builtin_memcpy(&word, at + 8 * i, 8);
		if (word != value_word(seed, i))
			return false;
	}
	for (size_t i = len & ~(size_t)7; i < len; i++)
		if (at[i] != (unsigned char)(value_word(seed, i / 8) >> (8 * (i % 8))))
			return false;
	return true;
}

#endif
