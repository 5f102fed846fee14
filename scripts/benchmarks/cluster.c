/*
 * cluster.c: what the handle of a cluster costs beside a plain one. Values of 64 bytes, 1024 keys.
 *
 *     cc -O2 -o bench-cluster cluster.c -lrdmad
 *     ./bench-cluster time PLAIN CLUSTER ROUNDS    processor time of this thread for a request by either, 64 in flight, by turns
 *     ./bench-cluster burst SERVER get|set COUNT   so many requests, 64 in flight, in the function burst(): for callgrind
 *     ./bench-cluster mget SERVER COUNT            so many calls for all keys
 *     ./bench-cluster kill CLUSTER DEAD            round trips to servers other than DEAD, 16 in flight, for a second; then prints
 *                                                  "kill", reads a line, and does the same for another second
 *
 * One JSON object, times in nanoseconds. Errors end it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <rdmad/kv.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEYS 1024
#define KEY_LEN 16
#define VALUE_LEN 64
#define BURST 5000 /* requests of a turn */
#define ROUNDS_MOST 10000
#define SAMPLES_MOST (1 << 22)

static char keys[KEYS][KEY_LEN + 1], value[VALUE_LEN];
static unsigned done;

static void expect(int good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "bench-cluster: %s: %s\n", what, rdmad_error());
	exit(1);
}

static void *handle_open(char *server)
{
	void *kv;

	expect(kv_open(server, &kv) == 0, server);
	for (unsigned i = 0; i < KEYS; i++)
		expect(kv_set_bytes(kv, keys[i], KEY_LEN, value, VALUE_LEN) == 0, "set");
	return kv;
}

static uint64_t now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int in_order(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static double quantile(double *of, size_t count, double at)
{
	qsort(of, count, sizeof(*of), in_order);
	return of[(size_t)((double)(count - 1) * at)];
}

static void answered(void *arg, int status, const void *bytes, size_t len)
{
	(void)arg;
	(void)bytes;
	(void)len;
	expect(status == 0, "an answer");
	done++;
}

__attribute__((noinline)) static void burst(void *kv, int sets, unsigned count)
{
	unsigned sent = 0;

	for (done = 0; done < count; expect(kv_progress(kv, 1000000) >= 0, "progress"))
		for (; sent < count && sent - done < 64; sent++) {
			const char *key = keys[sent % KEYS];

			if (sets)
				expect(kv_submit_set(kv, key, KEY_LEN, value, VALUE_LEN, answered, NULL) == 0, "set");
			else
				expect(kv_submit_get(kv, key, KEY_LEN, answered, NULL) == 0, "get");
		}
}

static void compare(char *plain, char *cluster, unsigned rounds)
{
	static double took[2][ROUNDS_MOST], ratio[ROUNDS_MOST];
	void *kv[2] = {handle_open(plain), handle_open(cluster)};

	for (int sets = 0; sets < 2; sets++) {
		for (unsigned i = 0; i < rounds; i++) {
			for (unsigned turn = 0; turn < 2; turn++) {
				unsigned side = (turn + i) % 2;
				uint64_t before = now(CLOCK_THREAD_CPUTIME_ID);

				burst(kv[side], sets, BURST);
				took[side][i] = (double)(now(CLOCK_THREAD_CPUTIME_ID) - before) / BURST;
			}
			ratio[i] = took[1][i] / took[0][i];
		}
		printf("%s\"%s\": {\"plain\": %.1f, \"cluster\": %.1f, \"ratio\": %.4f}", sets ? ", " : "{", sets ? "set" : "get",
		       quantile(took[0], rounds, 0.5), quantile(took[1], rounds, 0.5), quantile(ratio, rounds, 0.5));
	}
	printf("}\n");
}

static void got(void *arg, size_t index, int status, const void *bytes, size_t len)
{
	(void)index;
	answered(arg, status, bytes, len);
}

static void many(void *kv, unsigned count)
{
	static struct kv_item items[KEYS];

	for (unsigned i = 0; i < KEYS; i++)
		items[i] = (struct kv_item){.key = keys[i], .key_len = KEY_LEN};
	for (unsigned i = 0; i < count; i++)
		expect(kv_mget(kv, items, KEYS, got, NULL) == 0, "mget");
	printf("{\"calls\": %u, \"answers\": %u}\n", count, done);
}

/*
 * While a server dies
 */
static struct trip {
	uint64_t since;
	int live;
} trips[KEYS];
static double samples[SAMPLES_MOST];
static size_t sampled;
static unsigned under_way;

static void arrived(void *arg, int status, const void *bytes, size_t len)
{
	struct trip *trip = arg;

	(void)bytes;
	(void)len;
	under_way--;
	if (!trip->live)
		return;
	expect(status == 0, "an answer of a server that lives");
	if (sampled < SAMPLES_MOST)
		samples[sampled++] = (double)(now(CLOCK_MONOTONIC) - trip->since);
}

static void second_of(void *kv, const char *what)
{
	uint64_t until = now(CLOCK_MONOTONIC) + 1000000000u;
	unsigned at = 0;

	sampled = 0;
	while (now(CLOCK_MONOTONIC) < until) {
		for (unsigned tries = 0; under_way < 16 && tries < 16; tries++, at++) {
			struct trip *trip = &trips[at % KEYS];

			trip->since = now(CLOCK_MONOTONIC);
			if (kv_submit_get(kv, keys[at % KEYS], KEY_LEN, arrived, trip) == 0)
				under_way++;
			else
				expect(!trip->live, "a get of a server that lives");
		}
		expect(kv_progress(kv, 1000) >= 0, "progress");
	}
	while (under_way)
		kv_progress(kv, 1000);
	printf("%s\"%s\": {\"p50\": %.0f, \"p99\": %.0f, \"count\": %zu}", *what == 'b' ? "{" : ", ", what,
	       quantile(samples, sampled, 0.5), quantile(samples, sampled, 0.99), sampled);
}

static void while_killed(char *cluster, char *dead)
{
	void *kv = handle_open(cluster), *other;
	char line[8];

	expect(kv_open(dead, &other) == 0, dead);
	for (unsigned i = 0; i < KEYS; i++)
		trips[i].live = kv_exists(other, keys[i], KEY_LEN) == -EREMOTE;
	kv_close(other);
	second_of(kv, "before");
	fprintf(stderr, "kill\n");
	expect(fgets(line, sizeof(line), stdin) != NULL, "a line");
	second_of(kv, "while");
	printf("}\n");
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	unsigned count = argc > 3 ? (unsigned)atoi(argv[argc - 1]) : 0;

	for (unsigned i = 0; i < KEYS; i++)
		snprintf(keys[i], sizeof(keys[i]), "key:%012u", i);
	if (argc == 5 && strcmp(what, "time") == 0 && count && count <= ROUNDS_MOST)
		compare(argv[2], argv[3], count);
	else if (argc == 5 && strcmp(what, "burst") == 0)
		burst(handle_open(argv[2]), strcmp(argv[3], "set") == 0, count);
	else if (argc == 4 && strcmp(what, "mget") == 0)
		many(handle_open(argv[2]), count);
	else if (argc == 4 && strcmp(what, "kill") == 0)
		while_killed(argv[2], argv[3]);
	else
		return fprintf(stderr, "usage: see the head of cluster.c\n"), 1;
	return 0;
}
