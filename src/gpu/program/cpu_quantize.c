/*
 * cpu_quantize.c: quantize for one processor. Pixels are counted in several tables, because an
 * addition to a word waits for the one before it; and with few levels a pixel's new value is a sum
 * of as many comparisons, of which a vector does dozens at once.
 */
#include "gpu/program/cpu.h"

#define STEPS_MAX 8 /* with more, a look into the table is as fast */

/* The new value of a pixel grows by `by` (in 8 bits) where the old one reaches `from`. */
struct steps {
	unsigned count;
	uint8_t first; /* the new value of 0 */
	uint8_t from[STEPS_MAX], by[STEPS_MAX];
};

static void count_pixels(const uint8_t *pixels, uint32_t n, uint32_t count[256])
{
	uint32_t table[4][256] = {{0}};
	uint32_t i = 0;

	for (; n - i >= 4; i += 4) {
		table[0][pixels[i]]++;
		table[1][pixels[i + 1]]++;
		table[2][pixels[i + 2]]++;
		table[3][pixels[i + 3]]++;
	}
	for (; i < n; i++)
		table[0][pixels[i]]++;
	for (unsigned v = 0; v < 256; v++)
		count[v] = table[0][v] + table[1][v] + table[2][v] + table[3][v];
}

static void make_map(const uint32_t count[256], uint32_t n, uint32_t levels, uint8_t map[256])
{
	uint32_t sum = 0;

	for (unsigned v = 0; v < 256; v++) {
		sum += count[v];
		map[v] = gpu_quantize_value(sum, n, levels);
	}
}

/* False: there are too many. */
static bool find_steps(const uint8_t map[256], struct steps *steps)
{
	*steps = (struct steps){.first = map[0]};
	for (unsigned v = 1; v < 256; v++) {
		if (map[v] == map[v - 1])
			continue;
		if (steps->count == STEPS_MAX)
			return false;
		steps->from[steps->count] = (uint8_t)v;
		steps->by[steps->count++] = (uint8_t)(map[v] - map[v - 1]);
	}
	return true;
}

static void map_by_table(const uint8_t *restrict in, uint8_t *restrict out, uint32_t n, const uint8_t map[restrict 256])
{
	uint32_t i = 0;

	for (; n - i >= 4; i += 4) {
		out[i] = map[in[i]];
		out[i + 1] = map[in[i + 1]];
		out[i + 2] = map[in[i + 2]];
		out[i + 3] = map[in[i + 3]];
	}
	for (; i < n; i++)
		out[i] = map[in[i]];
}

typedef uint32_t (*map_fn)(const uint8_t *in, uint8_t *out, uint32_t n, const struct steps *steps);
typedef uint32_t (*sum_fn)(const uint8_t *out, uint32_t n, uint64_t *sum);

/* The output's share of the check; what the vectors leave over, word by word. */
static uint64_t output_sum(const uint8_t *out, uint32_t n, sum_fn sum_vectors)
{
	uint64_t sum = 0;
	uint32_t done = sum_vectors(out, n, &sum);

	for (uint64_t i = done / 8; i < gpu_words(n); i++) {
		uint64_t word = 0;

		memcpy(&word, out + i * 8, gpu_word_bytes(n, i));
		sum += wire_ring_check_word(3 + i, word);
	}
	return sum;
}

static uint64_t quantize_image(const struct wire_ring_job *job, const uint8_t *in, uint8_t *out, map_fn map_vectors,
			       sum_fn sum_vectors)
{
	uint32_t count[256], n = job->length, done = 0;
	struct steps steps;
	uint8_t map[256];

	count_pixels(in, n, count);
	make_map(count, n, job->param[WIRE_GPU_QUANTIZE_LEVELS], map);
	if (find_steps(map, &steps))
		done = map_vectors(in, out, n, &steps);
	map_by_table(in + done, out + done, n - done, map);
	return output_sum(out, n, sum_vectors);
}

/*
 * The two loops over vectors, once for each length of them. Both do whole vectors and answer how
 * many bytes that were.
 */
#define VECTOR_LOOPS(NAME, BYTES, TARGET)                                                                              \
	TARGET static uint32_t map_##NAME(const uint8_t *in, uint8_t *out, uint32_t n, const struct steps *steps)      \
	{                                                                                                              \
		typedef uint8_t vector __attribute__((vector_size(BYTES)));                                            \
		vector from[STEPS_MAX], by[STEPS_MAX], first = (vector){0} + steps->first;                             \
		uint32_t i = 0;                                                                                        \
                                                                                                                       \
		for (unsigned k = 0; k < steps->count; k++) {                                                          \
			from[k] = (vector){0} + steps->from[k];                                                        \
			by[k] = (vector){0} + steps->by[k];                                                            \
		}                                                                                                      \
		for (; n - i >= BYTES; i += BYTES) {                                                                   \
			vector old, new = first;                                                                       \
                                                                                                                       \
			memcpy(&old, in + i, BYTES);                                                                   \
			for (unsigned k = 0; k < steps->count; k++)                                                    \
				new += (vector)(old >= from[k]) & by[k];                                               \
			memcpy(out + i, &new, BYTES);                                                                  \
		}                                                                                                      \
		return i;                                                                                              \
	}                                                                                                              \
                                                                                                                       \
	TARGET static uint32_t sum_##NAME(const uint8_t *out, uint32_t n, uint64_t *sum)                               \
	{                                                                                                              \
		typedef uint64_t words __attribute__((vector_size(BYTES)));                                            \
		typedef uint32_t halves __attribute__((vector_size(BYTES)));                                           \
		words key, step = (words){0} + BYTES / 8 * WIRE_RING_CHECK_KEY, total = {0};                           \
		uint32_t i = 0;                                                                                        \
                                                                                                                       \
		for (unsigned j = 0; j < BYTES / 8; j++)                                                               \
			key[j] = (4 + j) * WIRE_RING_CHECK_KEY;                                                        \
		for (; n - i >= BYTES; i += BYTES, key += step) {                                                      \
			words word;                                                                                    \
                                                                                                                       \
			memcpy(&word, out + i, BYTES);                                                                 \
			word = (words)((halves)word + (halves)key);                                                    \
			total += (word & UINT32_MAX) * (word >> 32);                                                   \
		}                                                                                                      \
		for (unsigned j = 0; j < BYTES / 8; j++)                                                               \
			*sum += total[j];                                                                              \
		return i;                                                                                              \
	}                                                                                                              \
                                                                                                                       \
	static uint64_t quantize_##NAME(const struct wire_ring_job *job, const void *input, void *output)              \
	{                                                                                                              \
		return quantize_image(job, input, output, map_##NAME, sum_##NAME);                                     \
	}

VECTOR_LOOPS(plain, 16, )
#ifdef __x86_64__
VECTOR_LOOPS(avx2, 32, __attribute__((target("avx2"))))
VECTOR_LOOPS(avx512, 64, __attribute__((target("avx512bw,avx512dq"))))
#endif

const struct cpu_vectors *cpu_vectors(unsigned i)
{
	static const struct cpu_vectors plain = {"", quantize_plain};
#ifdef __x86_64__
	static const struct cpu_vectors avx2 = {"AVX2", quantize_avx2};
	static const struct cpu_vectors avx512 = {"AVX-512", quantize_avx512};

	if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && i-- == 0)
		return &avx512;
	if (__builtin_cpu_supports("avx2") && i-- == 0)
		return &avx2;
#endif
	return i == 0 ? &plain : NULL;
}
