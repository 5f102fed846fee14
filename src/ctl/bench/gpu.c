/*
 * gpu.c: many images through the gpu service. Each result is compared with the one that this processor makes of the
 * same image.
 */
#include "ctl/ctl.h"
#include "rdmad/gpu.h"
#include "rdmad/ping.h"

#include <stdlib.h>

#define COUNT_DEFAULT 50000
#define PASSES_MAX 100
#define IMAGES 1024             /* different ones, at most */
#define IMAGES_BYTES (64 * MIB) /* and what all of them have */
#define BATCH 64                /* results taken by one call */
#define REFERENCE_PINGS 2000
#define REFERENCE_IMAGES 200

static uint64_t count = COUNT_DEFAULT, passes = 3, outstanding = 64, levels = 4, queues, slots;
static const char *mode_text = "rpc", *size_text = "64x64";
static bool reference, no_immediate, read_indices;

static int parse_size(const char *text, uint32_t *width, uint32_t *height)
{
	char first[16];
	const char *x = strchr(text, 'x');
	uint64_t w, h;

	if (!x || (size_t)(x - text) >= sizeof(first))
		return -EINVAL;
	memcpy(first, text, (size_t)(x - text));
	first[x - text] = '\0';
	if (units_parse_number(first, 1, RDMAD_GPU_SIZE_MAX, &w) != 0 ||
	    units_parse_number(x + 1, 1, RDMAD_GPU_SIZE_MAX, &h) != 0 || w * h > RDMAD_GPU_SIZE_MAX)
		return -EINVAL;
	*width = (uint32_t)w;
	*height = (uint32_t)h;
	return 0;
}

static int check_size(const char *text)
{
	uint32_t width, height;
	int rc = parse_size(text, &width, &height);

	if (rc != 0)
		ctl_say("--size %s: not a size like 64x64, of at most 64 Mi pixels", text);
	return rc;
}

static const struct ctl_option bench_options[] = {
	{"mode", 'm', CTL_CHECKED, &mode_text, "MODE",
	 "rpc, or queue: drive the server's queues from here; default rpc", .check = ctl_gpu_check_mode,
	 .choices = "rpc queue"},
	{"count", 'n', CTL_NUMBER, &count, "N", "images; default 50000", .min = 1, .max = UINT32_MAX},
	{"passes", 'p', CTL_NUMBER, &passes, "N", "times all of them; default 3", .min = 1, .max = PASSES_MAX},
	{"outstanding", 'o', CTL_NUMBER, &outstanding, "N", "most outstanding at a time; default 64", .min = 1,
	 .max = RDMAD_GPU_OUTSTANDING},
	{"size", 's', CTL_CHECKED, &size_text, "WxH", "pixels of an image; default 64x64", .check = check_size},
	{"levels", 'l', CTL_NUMBER, &levels, "N", "levels of grey, 1 to 256; default 4", .min = 1, .max = 256},
	{"queues", 0, CTL_NUMBER, &queues, "N", "queues to ask for", .min = 1, .max = 64},
	{"slots", 0, CTL_NUMBER, &slots, "N", "slots of each to ask for", .min = 1, .max = 1024},
	{"no-immediate", 0, CTL_FLAG, &no_immediate, NULL, "rpc: have jobs end by a message rather than an immediate"},
	{"read-indices", 0, CTL_FLAG, &read_indices, NULL, "queue: learn of results from the index words alone"},
	{"reference", 'r', CTL_FLAG, &reference, NULL,
	 "also measure a local image and a 64 byte ping, and give ratios"},
	{NULL},
};

/* Times of this processor for one image, and of the network for one message. */
struct yardstick {
	double local_us, rtt_us;
};

struct pass {
	uint64_t number; /* 1 for the first; 0: all of them */
	uint64_t images, distance;
	uint64_t elapsed, work; /* ns; work: of the operations alone */
	struct histogram latency;
};

struct run {
	struct rdmad_gpu *gpu;
	uint32_t width, height;
	size_t bytes;
	size_t images;             /* different ones */
	uint8_t *input, *output;   /* registered */
	uint8_t *baseline;         /* of each input, by this processor */
	uint32_t *image_of, *free; /* of each place of the outstanding */
	uint32_t free_count;
	struct pass pass, all;
	struct pass *done;
	uint64_t done_count;
	struct ctl_progress progress;
	int error;
};

/*
 * The baseline: with CDF(v) the pixels up to v among N, v becomes (256 / levels) * (levels * CDF(v) / N) in 8 bits.
 */
static void quantize_here(const uint8_t *in, size_t pixels, uint32_t most, uint8_t *out)
{
	uint64_t cdf[256] = {0};
	uint8_t map[256];

	for (size_t i = 0; i < pixels; i++)
		cdf[in[i]]++;
	for (unsigned v = 1; v < 256; v++)
		cdf[v] += cdf[v - 1];
	for (unsigned v = 0; v < 256; v++)
		map[v] = (uint8_t)(256 / most * (most * cdf[v] / pixels));
	for (size_t i = 0; i < pixels; i++)
		out[i] = map[in[i]];
}

/* Random pixels, but from image to image of another range, so that each has a histogram of its own. */
static void paint_image(uint8_t *pixels, size_t n, uint64_t seed)
{
	uint64_t state = (seed + 1) * 0x9e3779b97f4a7c15ull;
	unsigned range = 2 + (unsigned)(seed % 255), low = (unsigned)(state >> 40) % (257 - range);

	for (size_t i = 0; i < n; i++)
		pixels[i] = (uint8_t)(low + (random_step(&state) >> 32) % range);
}

static uint64_t distance_of(const uint8_t *a, const uint8_t *b, size_t n)
{
	uint64_t sum = 0;

	if (memcmp(a, b, n) == 0)
		return 0;
	for (size_t i = 0; i < n; i++)
		sum += (uint64_t)((a[i] - b[i]) * (a[i] - b[i]));
	return sum;
}

static int make_images(struct run *run)
{
	run->images = (size_t)MAX(MIN(MIN(count, (uint64_t)IMAGES), IMAGES_BYTES / run->bytes), 1ull);
	run->baseline = malloc(run->images * run->bytes);
	run->image_of = calloc(outstanding, sizeof(run->image_of[0]));
	run->free = calloc(outstanding, sizeof(run->free[0]));
	run->done = calloc(passes, sizeof(run->done[0]));
	if (!run->baseline || !run->image_of || !run->free || !run->done)
		return -ENOMEM;
	if (rdmad_gpu_buffer_lend(run->gpu, run->images * run->bytes, (void **)&run->input) != 0 ||
	    rdmad_gpu_buffer_lend(run->gpu, outstanding * run->bytes, (void **)&run->output) != 0)
		return -ENOMEM;
	for (size_t i = 0; i < run->images; i++) {
		paint_image(run->input + i * run->bytes, run->bytes, i);
		quantize_here(run->input + i * run->bytes, run->bytes, (uint32_t)levels,
			      run->baseline + i * run->bytes);
	}
	for (uint32_t i = 0; i < outstanding; i++)
		run->free[run->free_count++] = i;
	return 0;
}

/*
 * A pass
 */

/* Send image number `number`. -EAGAIN: the handle takes no more now. */
static int run_send(struct run *run, uint64_t number)
{
	uint32_t place = run->free[run->free_count - 1];
	uint32_t image = (uint32_t)(number % run->images);
	uint8_t *output = run->output + place * run->bytes, *wanted = run->baseline + image * run->bytes;
	struct rdmad_gpu_job job = {
		.id = place,
		.op = RDMAD_GPU_QUANTIZE,
		.param = {run->width, run->height, (uint32_t)levels},
		.input = run->input + image * run->bytes,
		.input_size = run->bytes,
		.output = output,
		.output_size = run->bytes,
	};
	int rc;

	/* A result that was there before must not count, not even of the same image. */
	output[0] = (uint8_t)~wanted[0];
	output[run->bytes - 1] = (uint8_t)~wanted[run->bytes - 1];
	rc = rdmad_gpu_enqueue(run->gpu, &job);
	if (rc != 0)
		return rc;
	run->image_of[place] = image;
	run->free_count--;
	return 0;
}

/* Take the results that are there: count them, and compare them with the baseline. */
static int run_take_results(struct run *run)
{
	struct rdmad_gpu_result results[BATCH];
	int n = rdmad_gpu_dequeue(run->gpu, results, BATCH), rc = MIN(n, 0);
	struct pass *pass = &run->pass;

	for (int i = 0; i < n; i++) {
		const struct rdmad_gpu_result *result = &results[i];
		const uint8_t *output = run->output + result->id * run->bytes;
		const uint8_t *baseline = run->baseline + run->image_of[result->id] * run->bytes;

		run->free[run->free_count++] = result->id;
		if (result->status != 0) {
			rc = rc ? rc : result->status;
			continue;
		}
		pass->images++;
		pass->distance += distance_of(output, baseline, run->bytes);
		pass->work += result->work_ns;
		histogram_add(&pass->latency, result->latency_ns);
		ctl_progress_add(&run->progress, run->bytes);
	}
	return rc;
}

/* Wait for results, at most as long as --timeout says without any. */
static int run_await(struct run *run)
{
	uint64_t until = time_now() + ctl_answer_limit();
	int rc;

	do
		rc = rdmad_gpu_wait(run->gpu, CTL_SLICE_US);
	while (rc == -ETIMEDOUT && !ctl_interrupted() && time_now() < until);
	if (rc == -ETIMEDOUT && ctl_interrupted())
		return -EINTR;
	return rc < 0 ? rc : run_take_results(run);
}

static int run_pass(struct run *run, uint64_t number)
{
	uint64_t sent = 0, begin;
	struct pass *pass = &run->pass, *all = &run->all;
	int rc = 0;

	*pass = (struct pass){.number = number};
	histogram_init(&pass->latency);
	begin = time_now();
	while (rc == 0 && (pass->images < sent || (sent < count && !ctl_interrupted()))) {
		for (; rc == 0 && sent < count && run->free_count && !ctl_interrupted(); sent += rc == 0)
			rc = run_send(run, sent);
		if (rc == 0 || rc == -EAGAIN)
			rc = run_await(run);
	}
	pass->elapsed = time_now() - begin;
	all->images += pass->images;
	all->distance += pass->distance;
	all->elapsed += pass->elapsed;
	all->work += pass->work;
	histogram_merge(&all->latency, &pass->latency);
	run->done[run->done_count++] = *pass;
	return rc;
}

/*
 * The yardstick, in the same run: the time of one image here, and of a message there and back.
 */
static double local_us(const struct run *run)
{
	uint8_t *out = malloc(run->bytes);
	struct histogram times;

	histogram_init(&times);
	for (unsigned i = 0; out && i < REFERENCE_IMAGES && !ctl_interrupted(); i++) {
		uint64_t begin = time_now();

		quantize_here(run->input + i % run->images * run->bytes, run->bytes, (uint32_t)levels, out);
		histogram_add(&times, time_now() - begin);
	}
	free(out);
	return (double)histogram_percentile(&times, 50) / 1e3;
}

static int ping_us(double *us)
{
	struct rdmad_ping_options options = {.size = 64, .count = REFERENCE_PINGS};
	struct rdmad_ping *ping;
	struct histogram times;
	int rc;

	histogram_init(&times);
	ctl_library_options(&options.common);
	rc = rdmad_ping_open(bench.server, &options, &ping);
	if (rc != 0)
		return rc;
	for (unsigned i = 0; i < REFERENCE_PINGS && rc == 0 && !ctl_interrupted(); i++) {
		uint64_t rtt = 0;

		rc = rdmad_ping_send(ping);
		if (rc == 0)
			rc = rdmad_ping_receive(ping, &rtt);
		histogram_add(&times, rtt);
	}
	rdmad_ping_close(ping);
	*us = (double)histogram_percentile(&times, 50) / 1e3;
	return rc;
}

static bool by_queues(const struct run *run)
{
	return rdmad_gpu_session(run->gpu)->mode == RDMAD_GPU_QUEUE;
}

static double ns_to_us(uint64_t ns)
{
	return (double)ns / 1e3;
}

/* The time of the operation at the server; known in queue mode. */
static double work_us(const struct pass *pass)
{
	return pass->images ? ns_to_us(pass->work) / (double)pass->images : 0;
}

/* Count the round trips of one image, with no other outstanding: a request, a read and a write; or two reads and a
 * write, or one. */
static double round_trips(const struct run *run)
{
	if (!by_queues(run))
		return 2;
	return read_indices ? 2.5 : 1.5;
}

/* Divide the median by the sum of an image's parts with no other outstanding. */
static double median_ratio(const struct run *run, const struct yardstick *yard)
{
	double work = by_queues(run) ? work_us(&run->all) : yard->local_us;

	return ns_to_us(histogram_percentile(&run->all.latency, 50)) / (round_trips(run) * yard->rtt_us + work);
}

/*
 * Output
 */
static double per_second(const struct pass *pass)
{
	return pass->elapsed ? (double)pass->images * 1e9 / (double)pass->elapsed : 0;
}

static void print_pass(struct ctl_table *table, const struct pass *pass)
{
	const struct histogram *h = &pass->latency;

	if (pass->number)
		ctl_table_cell(table, "%llu", (unsigned long long)pass->number);
	else
		ctl_table_cell(table, "all");
	ctl_table_cell(table, "%llu", (unsigned long long)pass->images);
	ctl_table_cell(table, "%llu", (unsigned long long)pass->distance);
	ctl_table_cell(table, "%.0f", per_second(pass));
	ctl_table_cell(table, "%.1f", histogram_mean(h) / 1e3);
	ctl_table_cell(table, "%.1f", ns_to_us(h->count ? h->min : 0));
	ctl_table_cell(table, "%.1f", ns_to_us(histogram_percentile(h, 50)));
	ctl_table_cell(table, "%.1f", ns_to_us(histogram_percentile(h, 99)));
	ctl_table_cell(table, "%.1f", ns_to_us(h->max));
}

static void print_passes(const struct run *run)
{
	static const char *const titles[] = {"pass",       "images", "distance from baseline",
					     "requests/s", "avg us", "min us",
					     "median us",  "p99 us", "max us"};
	struct ctl_table table;

	ctl_table_init(&table);
	for (size_t i = 0; i < ARRAY_SIZE(titles); i++)
		ctl_table_column(&table, titles[i], true);
	for (uint64_t i = 0; i < run->done_count; i++)
		print_pass(&table, &run->done[i]);
	print_pass(&table, &run->all);
	ctl_table_print(stdout, &table, 0);
	ctl_table_destroy(&table);
}

static void print_text(const struct run *run, const struct yardstick *yard)
{
	const struct rdmad_gpu_session *s = rdmad_gpu_session(run->gpu);

	printf("%s: transport %s, mode %s%s, backend %s on %s\n", bench.server, s->transport,
	       ctl_gpu_mode_name(s->mode), s->mode == RDMAD_GPU_RPC && !s->immediate ? " without immediates" : "",
	       s->backend, s->device);
	printf("%u x %u pixels, %llu levels, %llu outstanding, %u queues of %u slots\n", run->width, run->height,
	       (unsigned long long)levels, (unsigned long long)outstanding, s->queues, s->slots);
	print_passes(run);
	if (!yard)
		return;
	printf("one image here %.1f us, %.0f/s; round trip of 64 bytes %.1f us", yard->local_us,
	       yard->local_us > 0 ? 1e6 / yard->local_us : 0, yard->rtt_us);
	if (by_queues(run))
		printf("; the operation there %.1f us", work_us(&run->all));
	putchar('\n');
	if (outstanding == 1)
		printf("median / (%.1f round trips + %s) %.2f\n", round_trips(run),
		       by_queues(run) ? "operation there" : "image here", median_ratio(run, yard));
}

static json_t *pass_json(const struct pass *pass)
{
	const struct histogram *h = &pass->latency;

	return json_pack("{s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "images", (json_int_t)pass->images,
			 "distance", (json_int_t)pass->distance, "elapsed_seconds", (double)pass->elapsed / 1e9,
			 "requests_per_second", per_second(pass), "latency_us_mean", histogram_mean(h) / 1e3,
			 "latency_us_min", ns_to_us(h->count ? h->min : 0), "latency_us_p50",
			 ns_to_us(histogram_percentile(h, 50)), "latency_us_p99", ns_to_us(histogram_percentile(h, 99)),
			 "latency_us_max", ns_to_us(h->max));
}

static int print_json(const struct run *run, const struct yardstick *yard)
{
	const struct rdmad_gpu_session *s = rdmad_gpu_session(run->gpu);
	json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:o}", "command",
			      ctl_command_name(), "server", bench.server, "transport", s->transport, "mode",
			      ctl_gpu_mode_name(s->mode), "backend", s->backend, "device", s->device, "immediate",
			      s->immediate, "width", (json_int_t)run->width, "height", (json_int_t)run->height,
			      "levels", (json_int_t)levels, "outstanding", (json_int_t)outstanding, "queues",
			      (json_int_t)s->queues, "slots", (json_int_t)s->slots, "interrupted", ctl_interrupted(),
			      "total", pass_json(&run->all));
	json_t *list = json_array(), *beside;

	for (uint64_t i = 0; i < run->done_count; i++)
		json_array_append_new(list, pass_json(&run->done[i]));
	json_object_set_new(o, "passes", list);
	if (!yard)
		return ctl_json_print(o);
	beside = json_pack("{s:f, s:f, s:f}", "local_us", yard->local_us, "rtt_us", yard->rtt_us, "round_trips",
			   round_trips(run));
	if (outstanding == 1)
		json_object_set_new(beside, "ratio", json_real(median_ratio(run, yard)));
	if (by_queues(run))
		json_object_set_new(beside, "work_us", json_real(work_us(&run->all)));
	json_object_set_new(o, "reference", beside);
	return ctl_json_print(o);
}

static int print_results(const struct run *run, const struct yardstick *yard)
{
	int rc = CTL_OK;

	if (ctl.json)
		rc = print_json(run, yard);
	else
		print_text(run, yard);
	if (run->all.distance) {
		ctl_say("%s: the distance from the baseline is %llu, and should be 0: the results are wrong",
			ctl_command_name(), (unsigned long long)run->all.distance);
		rc = CTL_FAILED;
	}
	if (run->error && run->error != -EINTR)
		return ctl_fail(run->error, NULL, "%s, after %llu images", ctl_command_name(),
				(unsigned long long)run->all.images);
	return ctl_interrupted() ? CTL_INTERRUPTED : rc;
}

/* An exit status. */
static int bench_session(struct run *run)
{
	struct yardstick yard;
	int rc = make_images(run);

	if (rc != 0)
		return ctl_fail(rc, NULL, "%s: no memory for the images", ctl_command_name());
	if (reference) {
		rc = ping_us(&yard.rtt_us);
		if (rc != 0)
			return ctl_fail(rc, NULL, "%s: ping", ctl_command_name());
		yard.local_us = local_us(run);
	}
	histogram_init(&run->all.latency);
	ctl_progress_begin(&run->progress, "images");
	for (uint64_t i = 1; i <= passes && run->error == 0 && !ctl_interrupted(); i++)
		run->error = run_pass(run, i);
	ctl_progress_end(&run->progress);
	if (run->error && run->error != -EINTR) {
		/* A job that the session's end took along does not know why: the next call does, and says it. */
		rc = rdmad_gpu_progress(run->gpu, 0);
		run->error = rc < 0 ? rc : run->error;
	}
	return print_results(run, reference ? &yard : NULL);
}

static int command_bench(const struct ctl_arguments *arguments)
{
	struct rdmad_gpu_options options;
	int rc = bench_prepare(arguments);
	struct run *run;

	if (rc != CTL_OK)
		return rc;
	run = calloc(1, sizeof(*run));
	if (!run)
		return ctl_fail(-ENOMEM, NULL, "%s", ctl_command_name());
	parse_size(size_text, &run->width, &run->height);
	run->bytes = (size_t)run->width * run->height;
	ctl_gpu_options(&options, mode_text);
	options.size_max = (uint32_t)run->bytes;
	options.queues = (uint32_t)queues;
	options.slots = (uint32_t)slots;
	options.outstanding = (uint32_t)outstanding;
	options.no_immediate = no_immediate;
	options.read_indices = read_indices;
	rc = rdmad_gpu_open(bench.server, &options, &run->gpu);
	rc = rc == 0 ? bench_session(run) : ctl_fail_open(rc, bench.server);
	rdmad_gpu_close(run->gpu);
	rdmad_gpu_buffer_release(run->input);
	rdmad_gpu_buffer_release(run->output);
	free(run->baseline);
	free(run->image_of);
	free(run->free);
	free(run->done);
	free(run);
	return rc;
}

const struct ctl_command ctl_bench_gpu_commands[] = {
	{"bench gpu", command_bench, "[HOST]", "many images, compared and measured", bench_options, 0, 1},
	{"gpu bench", command_bench, "[HOST]", "another name for bench gpu", bench_options, 0, 1},
	{NULL},
};
