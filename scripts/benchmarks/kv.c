/* bench-kv ADDRESS WHAT COUNT: calls of librdmad that wait, one after the other: "set", "get" of 64 bytes, us of one; or "blocks",
 * kv_mget_into() of 64 values of 2 MiB, MB a second. */
#include <rdmad/kv.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BLOCKS 64
#define BLOCK (2u << 20)

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int blocks(void *kv, int count)
{
	struct kv_place places[BLOCKS];
	char name[BLOCKS][16];
	void *memory;
	double begin;

	if (kv_buffer_lend(kv, (size_t)BLOCKS * BLOCK, &memory) != 0)
		return -1;
	memset(memory, 'x', (size_t)BLOCKS * BLOCK);
	for (int i = 0; i < BLOCKS; i++) {
		snprintf(name[i], sizeof(name[i]), "block:%d", i);
		places[i] = (struct kv_place){name[i], strlen(name[i]), (char *)memory + (size_t)i * BLOCK, BLOCK, 0, 0};
		if (kv_set_bytes(kv, name[i], strlen(name[i]), places[i].buffer, BLOCK) != 0)
			return -1;
	}
	begin = now_us();
	for (int i = 0; i < count; i++)
		if (kv_mget_into(kv, places, BLOCKS) != 0)
			return -1;
	printf("%f\n", (double)count * BLOCKS * BLOCK / (now_us() - begin));
	return 0;
}

int main(int argc, char **argv)
{
	char value[64] = {0}, got[4096];
	double begin;
	size_t len;
	void *kv;
	int count, rc = 0;

	if (argc != 4 || kv_open(argv[1], &kv) != 0)
		return fprintf(stderr, "bench-kv: %s\n", argc != 4 ? "ADDRESS WHAT COUNT" : rdmad_error()), 1;
	count = atoi(argv[3]);
	if (strcmp(argv[2], "blocks") == 0) {
		rc = blocks(kv, count);
	} else {
		begin = now_us();
		rc = kv_set_bytes(kv, "key", 3, value, sizeof(value));
		for (int i = 0; rc == 0 && i < count; i++)
			rc = strcmp(argv[2], "get") == 0 ? kv_get_into(kv, "key", 3, got, sizeof(got), &len)
							 : kv_put(kv, "key", 3, value, sizeof(value), NULL, NULL);
		printf("%f\n", (now_us() - begin) / count);
	}
	if (rc != 0)
		fprintf(stderr, "bench-kv: %s\n", rdmad_error());
	kv_close(kv);
	return rc != 0;
}
