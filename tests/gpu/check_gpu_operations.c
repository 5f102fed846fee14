/* check_gpu_operations.c: the table, what is refused, and every form of quantize bit for bit. */
#include <check.h>
#include <stdlib.h>

#include "gpu/program/cpu.h"
#include "tests/suite.h"

static const uint32_t stop;
static const struct wire_ring_shape shape = {1, 1, WIRE_RING_PAYLOAD_MAX};

/* As the document of the operation says it, pixel by pixel. */
static void reference(const uint8_t *in, uint8_t *out, uint32_t n, uint32_t levels)
{
	uint64_t cdf[256] = {0};

	for (uint32_t i = 0; i < n; i++)
		cdf[in[i]]++;
	for (unsigned v = 1; v < 256; v++)
		cdf[v] += cdf[v - 1];
	for (uint32_t i = 0; i < n; i++)
		out[i] = (uint8_t)((256 / levels) * (levels * cdf[in[i]] / n));
}

static uint8_t *cell(uint32_t n)
{
	uint8_t *memory = aligned_alloc(WIRE_RING_LINE, wire_ring_pages(n + 1));

	ck_assert_ptr_nonnull(memory);
	memset(memory, 0xa5, wire_ring_pages(n + 1));
	return memory;
}

static struct wire_ring_job quantize_job(uint32_t width, uint32_t height, uint32_t levels)
{
	return (struct wire_ring_job){
		.op = WIRE_RING_QUANTIZE, .length = width * height, .param = {width, height, levels}};
}

static uint64_t run_body(const struct wire_ring_job *job, const void *in, void *out)
{
	uint32_t scratch[GPU_TEAM_SCRATCH / sizeof(uint32_t)];
	struct gpu_team alone = {.count = 1, .scratch = scratch, .stop = &stop};

	return gpu_operation_body(&alone, job, in, out);
}

static void assert_output(const char *form, const struct wire_ring_job *job, const uint8_t *out,
			  const uint8_t *expected, uint64_t sum)
{
	for (uint32_t i = 0; i < job->length; i++)
		if (out[i] != expected[i])
			ck_abort_msg("%s: %u x %u, %u levels, pixel %u: %u, not %u", form, job->param[0], job->param[1],
				     job->param[2], i, out[i], expected[i]);
	ck_assert_uint_eq(sum, wire_ring_check_payload(expected, job->length, 0, 1));
}

/* By the body that accelerators run, and by each form that this processor can. */
static void assert_all_forms(const struct wire_ring_job *job, const uint8_t *in)
{
	uint8_t *expected = cell(job->length), *out = cell(job->length);
	const char *why = NULL;

	ck_assert_int_eq(gpu_job_check(&shape, job, &why), job->length);
	reference(in, expected, job->length, job->param[WIRE_GPU_QUANTIZE_LEVELS]);
	assert_output("body", job, out, expected, run_body(job, in, out));
	for (unsigned i = 0; cpu_vectors(i); i++) {
		memset(out, 0x5a, job->length + 1);
		assert_output(cpu_vectors(i)->name, job, out, expected, cpu_vectors(i)->quantize(job, in, out));
		ck_assert_uint_eq(out[job->length], 0x5a); /* what is behind it stays */
	}
	free(out);
	free(expected);
}

static uint32_t next_random(uint32_t *random)
{
	*random = *random * 1664525 + 1013904223;
	return *random >> 8;
}

static void fill(uint8_t *in, uint32_t n, uint32_t seed)
{
	for (uint32_t i = 0; i < n; i++)
		in[i] = (uint8_t)next_random(&seed);
}

START_TEST(test_all_levels)
{
	uint8_t *in = cell(64 * 64);

	fill(in, 64 * 64, 1);
	for (uint32_t levels = 1; levels <= 256; levels++) {
		struct wire_ring_job job = quantize_job(64, 64, levels);

		assert_all_forms(&job, in);
	}
	free(in);
}
END_TEST

/* Sizes around those of words and vectors; few levels go by comparisons, many by the table. */
START_TEST(test_sizes)
{
	static const uint32_t levels[] = {1, 2, 4, 7, 8, 9, 200, 256};
	uint8_t *in = cell(300 * 7);

	fill(in, 300 * 7, 2);
	for (uint32_t width = 1; width <= 300; width += width < 140 ? 1 : 13)
		for (unsigned i = 0; i < ARRAY_SIZE(levels); i++) {
			struct wire_ring_job job = quantize_job(width, width % 7 + 1, levels[i]);

			assert_all_forms(&job, in);
		}
	free(in);
}
END_TEST

/* Images that fill few bins, at either end. */
START_TEST(test_contents)
{
	static const uint8_t values[][2] = {{0, 0}, {255, 255}, {0, 255}, {127, 128}, {7, 7}};
	uint32_t n = 33 * 17;
	uint8_t *in = cell(n);

	for (unsigned k = 0; k < ARRAY_SIZE(values); k++)
		for (uint32_t levels = 1; levels <= 256; levels += 5) {
			struct wire_ring_job job = quantize_job(33, 17, levels);

			for (uint32_t i = 0; i < n; i++)
				in[i] = values[k][i * 7 % 3 == 0];
			assert_all_forms(&job, in);
		}
	free(in);
}
END_TEST

/* Counts times levels go beyond 32 bits. */
START_TEST(test_largest)
{
	struct wire_ring_job job = quantize_job(8192, 8192, 255);
	uint8_t *in = cell(job.length);

	memset(in, 3, job.length);
	in[0] = 0;
	in[job.length - 1] = 255;
	assert_all_forms(&job, in);
	free(in);
}
END_TEST

/* 256 does not fit 8 bits. */
START_TEST(test_wraps_to_zero)
{
	struct wire_ring_job job = quantize_job(1, 1, 4);
	uint8_t *in = cell(1), *out = cell(1);

	in[0] = 99;
	run_body(&job, in, out);
	ck_assert_uint_eq(out[0], 0);
	assert_all_forms(&job, in);
	free(out);
	free(in);
}
END_TEST

/* Teams of more than one thread are tested where there is one: check_gpu_cuda. Here their shares of
 * the check. */
START_TEST(test_shares_of_the_check)
{
	uint8_t *data = cell(1000);

	fill(data, 1000, 3);
	for (uint32_t n = 0; n < 1000; n += n < 70 ? 1 : 37) {
		uint64_t whole = wire_ring_check_payload(data, n, 0, 1), sum = 0;

		for (uint32_t i = 0; i < 32; i++)
			sum += wire_ring_check_payload(data, n, i, 32);
		ck_assert_uint_eq(sum, whole);
	}
	free(data);
}
END_TEST

START_TEST(test_echo)
{
	struct wire_ring_job job = {.op = WIRE_RING_ECHO};
	uint8_t *in = cell(100), *out = cell(100);

	fill(in, 100, 4);
	for (job.length = 1; job.length <= 100; job.length++) {
		ck_assert_uint_eq(cpu_run(&job, in, out, &stop), wire_ring_check_payload(in, job.length, 0, 1));
		ck_assert_mem_eq(in, out, job.length);
	}
	free(out);
	free(in);
}
END_TEST

START_TEST(test_echo_takes_its_time)
{
	struct wire_ring_job job = {.op = WIRE_RING_ECHO, .length = 8, .param = {3000}};
	const uint32_t stopped = 1;
	uint64_t in = 1, out, begin = time_now();

	cpu_run(&job, &in, &out, &stop);
	ck_assert_uint_ge(time_now() - begin, 3 * TIME_MS);
	job.param[WIRE_GPU_ECHO_MICROSECONDS] = WIRE_GPU_ECHO_LONGEST;
	cpu_run(&job, &in, &out, &stopped); /* and not when it should stop */
}
END_TEST

static void assert_refused(struct wire_ring_shape s, struct wire_ring_job job, const char *text)
{
	const char *why = "";

	ck_assert_int_eq(gpu_job_check(&s, &job, &why), -EINVAL);
	ck_assert_msg(strstr(why, text), "'%s' has no '%s'", why, text);
}

START_TEST(test_refused)
{
	struct wire_ring_shape small = {1, 1, 4096};
	struct wire_ring_job job = quantize_job(64, 64, 4);

	assert_refused(small, quantize_job(64, 64, 0), "levels");
	assert_refused(small, quantize_job(64, 64, 257), "levels");
	assert_refused(small, quantize_job(64, 64, UINT32_MAX), "levels");
	assert_refused(small, quantize_job(0, 64, 4), "at least one pixel");
	assert_refused(small, quantize_job(64, 0, 4), "at least one pixel");
	assert_refused(small, quantize_job(65, 64, 4), "longer than a cell");
	job.length--;
	assert_refused(small, job, "width times height");
	job = quantize_job(64, 64, 4);
	job.param[0] = job.param[1] = 65536 + 64; /* whose product is the length in 32 bits only */
	assert_refused(small, job, "width times height");
	job = quantize_job(64, 64, 4);
	job.op = 0;
	assert_refused(small, job, "no such operation");
	job.op = WIRE_RING_OPS;
	assert_refused(small, job, "no such operation");
	job.op = UINT32_MAX;
	assert_refused(small, job, "no such operation");
	job = quantize_job(64, 64, 4);
	job.reserved = 1;
	assert_refused(small, job, "reserved");
	job.reserved = 0;
	job.reserved2 = 1;
	assert_refused(small, job, "reserved");
	job = (struct wire_ring_job){.op = WIRE_RING_ECHO};
	assert_refused(small, job, "empty");
	job.length = 4097;
	assert_refused(small, job, "longer than a cell");
	job.length = 4096;
	job.param[WIRE_GPU_ECHO_MICROSECONDS] = WIRE_GPU_ECHO_LONGEST + 1;
	assert_refused(small, job, "60 s");
}
END_TEST

START_TEST(test_table)
{
	char *page = suite_source("man/rdmad-gpu-ring.7"), row[64];

	for (unsigned op = 1; op < WIRE_RING_OPS; op++) {
		ck_assert_ptr_nonnull(wire_gpu_operation_name(op));
		snprintf(row, sizeof(row), "\n.It %u %s Ta", op, wire_gpu_operation_name(op));
		ck_assert_msg(strstr(page, row), "the manual has no row%s", row);
	}
	free(page);
	ck_assert_ptr_null(wire_gpu_operation_name(0));
	ck_assert_ptr_null(wire_gpu_operation_name(WIRE_RING_OPS));
	ck_assert_ptr_null(wire_gpu_operation_name(UINT32_MAX));
	ck_assert_str_eq(wire_gpu_operation_name(WIRE_RING_QUANTIZE), "quantize");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gpu operations");
	TCase *tc = suite_case(suite, "operations", NULL, NULL);

	tcase_add_test(tc, test_all_levels);
	tcase_add_test(tc, test_sizes);
	tcase_add_test(tc, test_contents);
	tcase_add_test(tc, test_largest);
	tcase_add_test(tc, test_wraps_to_zero);
	tcase_add_test(tc, test_shares_of_the_check);
	tcase_add_test(tc, test_echo);
	tcase_add_test(tc, test_echo_takes_its_time);
	tcase_add_test(tc, test_refused);
	tcase_add_test(tc, test_table);
	return suite_run(suite);
}
