/* check_bench_gpu.c: rdmactl bench gpu finds results that are none, of a librdmad of the test's own. */
#include <check.h>
#include <stdlib.h>

#include <rdmad/gpu.h>

#include "ctl/ctl.h"
#include "tests/suite.h"

static unsigned writes;                 /* images that become results; of the others only the end is told */
static struct rdmad_gpu_result waiting; /* one job at a time */
static bool has_job;

int rdmad_gpu_open(const char *server, const struct rdmad_gpu_options *options, struct rdmad_gpu **gpu)
{
	(void)server, (void)options;
	*gpu = NULL;
	return 0;
}

int rdmad_gpu_close(struct rdmad_gpu *gpu)
{
	(void)gpu;
	return 0;
}

const struct rdmad_gpu_session *rdmad_gpu_session(const struct rdmad_gpu *gpu)
{
	static const struct rdmad_gpu_session session = {
		.mode = RDMAD_GPU_RPC, .backend = "none", .device = "none", .transport = "none"};

	(void)gpu;
	return &session;
}

int rdmad_gpu_buffer_lend(struct rdmad_gpu *gpu, size_t size, void **buffer)
{
	(void)gpu;
	*buffer = calloc(1, size);
	return *buffer ? 0 : -ENOMEM;
}

void rdmad_gpu_buffer_release(void *buffer)
{
	free(buffer);
}

/* By the definition. */
static void quantize(const struct rdmad_gpu_job *job)
{
	const uint8_t *in = job->input;
	uint8_t *out = job->output;

	for (size_t i = 0; i < job->input_size; i++) {
		size_t below = 0;

		for (size_t j = 0; j < job->input_size; j++)
			below += in[j] <= in[i];
		out[i] = (uint8_t)(256 / job->param[2] * (job->param[2] * below / job->input_size));
	}
}

int rdmad_gpu_enqueue(struct rdmad_gpu *gpu, const struct rdmad_gpu_job *job)
{
	(void)gpu;
	if (has_job)
		return -EAGAIN;
	if (writes) {
		quantize(job);
		writes--;
	}
	waiting = (struct rdmad_gpu_result){.id = job->id, .output_size = job->output_size, .latency_ns = 1};
	has_job = true;
	return 0;
}

int rdmad_gpu_dequeue(struct rdmad_gpu *gpu, struct rdmad_gpu_result *results, unsigned max)
{
	int n = has_job && max;

	(void)gpu;
	results[0] = waiting;
	has_job = false;
	return n;
}

int rdmad_gpu_wait(struct rdmad_gpu *gpu, uint64_t timeout_us)
{
	(void)gpu, (void)timeout_us;
	return has_job;
}

int rdmad_gpu_progress(struct rdmad_gpu *gpu, uint64_t timeout_us)
{
	(void)gpu, (void)timeout_us;
	return 0;
}

/* Four passes over one image, with a place for its result that has held it before. */
static int measure(const char *size, unsigned good)
{
	const char *words[] = {"bench", "gpu", "-j", "-n", "1", "-p", "4", "-o", "1", "-s", size};

	writes = good;
	return ctl_run(ARRAY_SIZE(words), words);
}

static const char *const sizes[] = {"64x64", "3x1", "1x1"};

START_TEST(test_all_written)
{
	ck_assert_int_eq(measure(sizes[_i], 4), CTL_OK);
	ck_assert_uint_eq(writes, 0);
}
END_TEST

START_TEST(test_first_written)
{
	ck_assert_int_eq(measure(sizes[_i], 1), CTL_FAILED);
	ck_assert_ptr_nonnull(strstr(ctl_said(), "the results are wrong"));
}
END_TEST

START_TEST(test_last_missing)
{
	ck_assert_int_eq(measure(sizes[_i], 3), CTL_FAILED);
	ck_assert_ptr_nonnull(strstr(ctl_said(), "the results are wrong"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bench_gpu");
	TCase *tc = suite_case(suite, "results", NULL, NULL);

	tcase_add_loop_test(tc, test_all_written, 0, ARRAY_SIZE(sizes));
	tcase_add_loop_test(tc, test_first_written, 0, ARRAY_SIZE(sizes));
	tcase_add_loop_test(tc, test_last_missing, 0, ARRAY_SIZE(sizes));
	return suite_run(suite);
}
