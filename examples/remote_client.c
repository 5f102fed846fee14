/*
 * remote_client.c: a program for the remoted runtime: quantizes an image on the server, moves megabytes, makes mistakes, and
 * measures what calls cost that are not answered. Usage: remote_client URL
 */
#define _POSIX_C_SOURCE 200809L
#include "remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SIDE 64u
#define PIXELS (SIDE * SIDE)
#define LEVELS 4u
#define LARGE (3u << 20) /* more than the channel has room for */
#define CALLS 1000

#define TRY(call)                                                                                                      \
	do {                                                                                                           \
		enum remote_error error_ = (call);                                                                     \
		if (error_ != REMOTE_SUCCESS) {                                                                        \
			fprintf(stderr, "%s: %s\n", #call, remote_error_name(error_));                                 \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

#define EXPECT(condition)                                                                                              \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);                                \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

static const struct rdmad_dim3 one = {1, 1, 1};

static double now_us(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static void show_device(void)
{
	struct remote_properties properties;
	uint32_t count;

	TRY(remote_get_device_count(&count));
	EXPECT(count > 0 && remote_get_device_properties(count, &properties) == REMOTE_NO_DEVICE);
	TRY(remote_get_device_properties(0, &properties));
	printf("device 0 of %u: %s, %u processors, %u MiB\n", (unsigned)count, properties.name,
	       (unsigned)properties.processors, (unsigned)(properties.memory >> 20));
}

/* The grey levels of the image that this processor would make. */
static void quantize_here(const uint8_t *in, uint8_t *out)
{
	unsigned up_to[256] = {0};

	for (unsigned i = 0; i < PIXELS; i++)
		up_to[in[i]]++;
	for (unsigned v = 1; v < 256; v++)
		up_to[v] += up_to[v - 1];
	for (unsigned i = 0; i < PIXELS; i++)
		out[i] = (uint8_t)(256 / LEVELS * (LEVELS * up_to[in[i]] / PIXELS));
}

/* Two calls wait, for memory; all others leave with the copy that waits for the result. */
static void quantize(void)
{
	uint8_t image[PIXELS], result[PIXELS], expected[PIXELS];
	struct rdmad_dim3 grid = {SIDE / 16, SIDE / 16, 1}, block = {16, 16, 1};
	remote_address in, out;
	uint64_t arguments[5];

	for (unsigned i = 0; i < PIXELS; i++)
		image[i] = (uint8_t)(i * i / 7 + i % SIDE);
	TRY(remote_malloc(&in, PIXELS));
	TRY(remote_malloc(&out, PIXELS));
	arguments[0] = in;
	arguments[1] = out;
	arguments[2] = arguments[3] = SIDE;
	arguments[4] = LEVELS;
	TRY(remote_copy_to_device(in, image, PIXELS, 0));
	TRY(remote_launch("quantize", grid, block, arguments, 5, 0));
	TRY(remote_free(in));
	TRY(remote_copy_to_host(result, out, PIXELS, 0));
	TRY(remote_free(out));
	quantize_here(image, expected);
	EXPECT(memcmp(result, expected, PIXELS) == 0);
	printf("quantized %u pixels to %u levels\n", PIXELS, LEVELS);
}

static void move_megabytes(void)
{
	uint8_t *bytes = malloc(LARGE), *back = malloc(LARGE);
	remote_address first, second;
	remote_stream stream;
	uint64_t arguments[3];

	EXPECT(bytes && back);
	for (uint32_t i = 0; i < LARGE; i++)
		bytes[i] = (uint8_t)(i * 2654435761u >> 24);
	TRY(remote_stream_create(&stream));
	TRY(remote_malloc(&first, LARGE));
	TRY(remote_malloc(&second, LARGE));
	arguments[0] = first;
	arguments[1] = second;
	arguments[2] = LARGE;
	TRY(remote_copy_to_device(first, bytes, LARGE, stream));
	TRY(remote_launch("echo", one, one, arguments, 3, stream));
	TRY(remote_memset(first, 7, LARGE / 2, stream));
	TRY(remote_copy_on_device(first + LARGE / 2, second + LARGE / 2, LARGE / 2, stream));
	TRY(remote_stream_synchronize(stream));
	TRY(remote_copy_to_host(back, second, LARGE, stream));
	EXPECT(memcmp(back, bytes, LARGE) == 0);
	TRY(remote_copy_to_host(back, first, LARGE, stream));
	EXPECT(back[0] == 7 && back[LARGE / 2 - 1] == 7);
	EXPECT(memcmp(back + LARGE / 2, bytes + LARGE / 2, LARGE / 2) == 0);
	TRY(remote_free(first));
	TRY(remote_free(second));
	TRY(remote_stream_destroy(stream));
	TRY(remote_device_synchronize());
	printf("moved %u bytes there and back\n", 3 * LARGE);
	free(bytes);
	free(back);
}

/* The call before it, which has no answer, failed so. */
static void expect_error(enum remote_error error)
{
	EXPECT(remote_device_synchronize() == error);
	EXPECT(remote_get_last_error() == error);
	EXPECT(remote_get_last_error() == REMOTE_SUCCESS);
}

static void make_mistakes(void)
{
	uint8_t bytes[100] = {0};
	uint64_t arguments[5] = {0};
	remote_address memory;

	TRY(remote_malloc(&memory, sizeof(bytes)));
	arguments[0] = arguments[1] = memory;
	TRY(remote_launch("divine", one, one, arguments, 2, 0));
	expect_error(REMOTE_NOT_FOUND);
	TRY(remote_launch("echo", one, one, arguments, 2, 0));
	expect_error(REMOTE_INVALID_VALUE);
	arguments[2] = sizeof(bytes) + 1;
	TRY(remote_launch("echo", one, one, arguments, 3, 0));
	expect_error(REMOTE_INVALID_ADDRESS);
	TRY(remote_copy_to_device(memory + 1, bytes, sizeof(bytes), 0));
	expect_error(REMOTE_INVALID_ADDRESS);
	EXPECT(remote_copy_to_host(bytes, memory - 1, sizeof(bytes), 0) == REMOTE_INVALID_ADDRESS);
	TRY(remote_memset(memory, 1, UINT64_MAX, 0));
	expect_error(REMOTE_INVALID_ADDRESS);
	TRY(remote_memset(memory, 1, sizeof(bytes), 77));
	expect_error(REMOTE_INVALID_STREAM);
	TRY(remote_free(memory + 1));
	expect_error(REMOTE_INVALID_ADDRESS);
	TRY(remote_free(memory));
	TRY(remote_free(memory));
	expect_error(REMOTE_INVALID_ADDRESS);
	EXPECT(remote_malloc(&memory, UINT64_MAX) == REMOTE_OUT_OF_MEMORY);
	printf("ten mistakes, and the server told of each\n");
}

static void measure(void)
{
	double best_one = 1e9, best_all = 1e9;
	remote_address memory;
	uint64_t arguments[3] = {0};

	TRY(remote_malloc(&memory, 64));
	arguments[0] = arguments[1] = memory;
	arguments[2] = 8;
	for (int round = 0; round < 20; round++) {
		double begin = now_us(), middle;

		TRY(remote_device_synchronize());
		middle = now_us();
		for (int i = 0; i < CALLS; i++)
			TRY(remote_launch("echo", one, one, arguments, 3, 0));
		TRY(remote_device_synchronize());
		if (middle - begin < best_one)
			best_one = middle - begin;
		if (now_us() - middle < best_all)
			best_all = now_us() - middle;
	}
	TRY(remote_free(memory));
	printf("one call with an answer: %.1f us; %d launches without and one with: %.1f us\n", best_one, CALLS,
	       best_all);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: remote_client URL\n");
		return 2;
	}
	TRY(remote_connect(argv[1]));
	show_device();
	quantize();
	move_megabytes();
	make_mistakes();
	measure();
	TRY(remote_disconnect());
	return 0;
}
