/*
 * check_timing.c: what takes a server as long as something else, so that a client learns nothing by its clock: a number
 * that is known and one that is not, and proofs that are wrong in other bytes. The two alternate by chance, what was
 * interrupted is left out, and Welch's t says whether they differ. On a machine that does other things they may once: so
 * each has three tries.
 */
#include "auth/internal.h"
#include "tests/suite.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SAMPLES 20000 /* of both together */
#define KEPT 3 / 4    /* of them: the fastest */
#define DIFFER 4.5    /* |t| ... */
#define MARGIN 20.0   /* ... of what is beyond so many ns, as a cache line's place takes */
#define TRIES 3

static char directory[] = "/tmp/rdmad-timing.XXXXXX";
static struct auth_table *table;
static struct auth_key known;
static uint8_t request[AUTH_REQUEST], accept_bytes[AUTH_ACCEPT];
static volatile bool sink;

static void put_line(FILE *file, unsigned id, const char *name, struct auth_key *key)
{
	char line[AUTH_LINE_MAX];

	ck_assert_int_eq(auth_key_new(id, name, key), 0);
	fprintf(file, "%s\n", auth_key_format(key, line));
}

static FILE *make(const char *name, char path[80])
{
	FILE *file;

	snprintf(path, 80, "%s/%s", directory, name);
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(chmod(path, 0600), 0);
	return file;
}

static void set_up(void)
{
	static const char *const services[] = {"ping", "kv", NULL};
	char keys[80], rights[80];
	struct auth_key other;
	FILE *file;

	ck_assert_int_eq(auth_begin(), 0);
	ck_assert_ptr_nonnull(mkdtemp(directory));
	file = make("keys", keys);
	put_line(file, 300, "app", &known);
	put_line(file, 400, "lab", &other);
	put_line(file, 500, "mpi", &other);
	fclose(file);
	file = make("clients", rights);
	fputs("app kv\nlab kv\nmpi ping\n* ping\n", file);
	fclose(file);
	ck_assert_int_eq(auth_table_load(keys, rights, 0, services, &table), 0);
	unlink(keys);
	unlink(rights);
	ck_assert_int_eq(random_fill(request, sizeof(request)), 0);
	ck_assert_int_eq(random_fill(accept_bytes, sizeof(accept_bytes)), 0);
}

static void tear_down(void)
{
	auth_table_put(table);
	rmdir(directory);
}

/* All that a server does with a key, from the request to the client's proof. */
static bool handshake(uint16_t number, const uint8_t proof[static AUTH_PROOF])
{
	struct auth_admission admission;
	struct auth_transcript th;
	uint8_t own[AUTH_PROOF];
	bool fits;

	if (!auth_admit(table, number, false, 0, &admission))
		abort();
	auth_transcript(AUTH_SOCKET, request, accept_bytes, &th);
	auth_prove(admission.key, &th, AUTH_SERVER, own);
	fits = auth_proof_fits(admission.key, &th, AUTH_CLIENT, proof);
	auth_admission_end(&admission);
	return fits;
}

struct sample {
	uint32_t time; /* ns */
	bool second;
};

static int compare_times(const void *a, const void *b)
{
	uint32_t x = ((const struct sample *)a)->time, y = ((const struct sample *)b)->time;

	return (x > y) - (x < y);
}

/* Of the fastest of both, at least 0. */
static double welch(struct sample *samples, size_t count)
{
	double n[2] = {0}, sum[2] = {0}, squares[2] = {0}, mean[2], error = 0;

	qsort(samples, count, sizeof(*samples), compare_times);
	for (size_t i = 0; i < count * KEPT; i++) {
		n[samples[i].second]++;
		sum[samples[i].second] += samples[i].time;
	}
	for (unsigned k = 0; k < 2; k++)
		mean[k] = sum[k] / MAX(n[k], 1.0);
	for (size_t i = 0; i < count * KEPT; i++) {
		double off = samples[i].time - mean[samples[i].second];

		squares[samples[i].second] += off * off;
	}
	/* A difference may be all of one kind's being left out. */
	if (n[0] < (double)count / 8 || n[1] < (double)count / 8)
		return INFINITY;
	for (unsigned k = 0; k < 2; k++)
		error += squares[k] / (n[k] - 1) / n[k];
	mean[0] = MAX(fabs(mean[0] - mean[1]) - MARGIN, 0.0);
	return mean[0] > 0 ? mean[0] / sqrt(error) : 0;
}

/* `work` of false and of true: whether they differ, by one try. */
static double differ(void (*work)(bool second))
{
	static struct sample samples[SAMPLES];
	static uint8_t order[SAMPLES];
	uint64_t before, after;

	ck_assert_int_eq(random_fill(order, sizeof(order)), 0);
	for (size_t i = 0; i < SAMPLES; i++) {
		samples[i].second = order[i] & 1;
		before = time_now();
		work(samples[i].second);
		after = time_now();
		samples[i].time = (uint32_t)MIN(after - before, UINT32_MAX);
	}
	return welch(samples, SAMPLES);
}

static void expect_same(void (*work)(bool second), const char *what)
{
	double t[TRIES];

	for (unsigned i = 0; i < TRIES; i++) {
		t[i] = differ(work);
		if (t[i] < DIFFER)
			return;
	}
	ck_abort_msg("%s: t is %.1f, %.1f and %.1f", what, t[0], t[1], t[2]);
}

static uint8_t right[AUTH_PROOF], wrong[2][AUTH_PROOF];

static void known_or_not(bool second)
{
	sink = handshake(second ? 301 : 300, wrong[0]);
}

static void first_or_last(bool second)
{
	sink = handshake(300, wrong[second]);
}

static void more_or_less(bool second)
{
	sink = handshake(300, wrong[0]);
	for (unsigned i = 0; second && i < 4; i++)
		sink = handshake(300, wrong[0]);
}

static void set_proofs(void)
{
	struct auth_transcript th;

	auth_transcript(AUTH_SOCKET, request, accept_bytes, &th);
	auth_prove(&known, &th, AUTH_CLIENT, right);
	memcpy(wrong[0], right, sizeof(right));
	memcpy(wrong[1], right, sizeof(right));
	wrong[0][0] ^= 0x80;
	wrong[1][AUTH_PROOF - 1] ^= 0x80;
	ck_assert(handshake(300, right) && !handshake(300, wrong[0]) && !handshake(300, wrong[1]));
	ck_assert(!handshake(301, right));
}

START_TEST(numbers_take_the_same_time)
{
	set_proofs();
	expect_same(known_or_not, "a number that is known, and one that is not");
}
END_TEST

START_TEST(proofs_take_the_same_time)
{
	set_proofs();
	expect_same(first_or_last, "proofs that are wrong in the first and in the last byte");
}
END_TEST

/* By this measure what takes longer is found. */
START_TEST(a_difference_is_found)
{
	set_proofs();
	ck_assert(differ(more_or_less) >= DIFFER);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("timing");
	TCase *tc = suite_case(suite, "timing", set_up, tear_down);

	tcase_add_test(tc, a_difference_is_found);
	tcase_add_test(tc, numbers_take_the_same_time);
	tcase_add_test(tc, proofs_take_the_same_time);
	return suite_run(suite);
}
