/*
 * measure.c: the figures that a network is compared with. Tq is one image by one thread, called
 * directly; Tring one image after another through a ring and its process; and the rate is
 * that of 64 images at once on that way. Every result is compared with the first.
 */
#include "gpu/program/cpu.h"
#include "gpu/program/program.h"

#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sysexits.h>

#define OUTSTANDING 64
#define QUEUES 8
#define SLOTS 16

struct figures {
	double quantize, ring; /* ns, medians */
	double rate;           /* images per second */
};

struct measurement {
	const struct gpu_arguments *arguments;
	struct wire_ring_job job;
	uint8_t *image, *expected;
	struct gpu_session *session;
	struct gpu_port *port;
	struct figures figures;
};

static void image_fill(uint8_t *image, uint32_t n)
{
	uint32_t random = 1;

	for (uint32_t i = 0; i < n; i++) {
		random = random * 1664525 + 1013904223;
		image[i] = (uint8_t)(random >> 24);
	}
}

static void measure_direct(struct measurement *m, struct histogram *times)
{
	static const uint32_t stop;

	histogram_init(times);
	for (uint64_t i = 0; i < m->arguments->images; i++) {
		uint64_t begin = time_now();

		cpu_run(&m->job, m->image, m->expected, &stop);
		histogram_add(times, time_now() - begin);
	}
	m->figures.quantize = (double)histogram_percentile(times, 50);
}

static int wait_until_running(struct gpu_session *session)
{
	enum gpu_session_state state;

	while ((state = gpu_session_progress(session, time_now())) == GPU_STARTING) {
		struct pollfd fd = {.fd = gpu_session_fd(session), .events = POLLIN};

		poll(&fd, 1, 100);
	}
	if (state == GPU_RUNNING)
		return 0;
	return log_fail(-ENODEV, "gpu", "%s", gpu_session_reason(session));
}

static int session_start(struct measurement *m)
{
	struct gpu_process_attr attr = m->arguments->attr;
	struct wire_ring_shape shape = {QUEUES, SLOTS,
					(m->job.length + WIRE_RING_LINE - 1) / WIRE_RING_LINE * WIRE_RING_LINE};
	int rc;

	attr.program = "/proc/self/exe";
	/* In queue mode: the process waits for jobs as it does for those of a client from afar. */
	rc = gpu_session_start(&attr, &shape, true, &m->session);
	if (rc == 0)
		rc = gpu_port_create(gpu_session_ring(m->session), &m->port);
	return rc == 0 ? wait_until_running(m->session) : rc;
}

static bool job_submit(struct measurement *m)
{
	struct gpu_cell cell;
	void *input;

	if (gpu_port_reserve(m->port, &cell, &input) != 0)
		return false;
	memcpy(input, m->image, m->job.length);
	gpu_port_submit(m->port, &cell, &m->job);
	return true;
}

/* Compare and give back what came; waits for nothing. Negative: the session is over. */
static int job_collect(struct measurement *m, unsigned *idle)
{
	struct gpu_done done[OUTSTANDING];
	int n = gpu_port_poll(m->port, done, OUTSTANDING);

	for (int i = 0; i < n; i++) {
		if (done[i].result.length != m->job.length || memcmp(done[i].output, m->expected, m->job.length) != 0)
			return log_fail(-EBADMSG, "gpu", "a result is not what this processor makes of the image");
		gpu_port_release(m->port, &done[i].cell);
	}
	*idle = n ? 0 : *idle + 1;
	if (!time_to_yield(*idle))
		return n;
	sched_yield();
	if (gpu_session_progress(m->session, time_now()) == GPU_RUNNING)
		return n;
	return log_fail(-ECONNRESET, "gpu", "%s", gpu_session_reason(m->session));
}

static int measure_ring(struct measurement *m, uint64_t images, struct histogram *times)
{
	unsigned idle = 0;

	histogram_init(times);
	for (uint64_t i = 0; i < images; i++) {
		uint64_t begin = time_now();
		int n = 0;

		job_submit(m);
		gpu_port_kick(m->port);
		while (n == 0)
			n = job_collect(m, &idle);
		if (n < 0)
			return n;
		histogram_add(times, time_now() - begin);
	}
	m->figures.ring = (double)histogram_percentile(times, 50);
	return 0;
}

static int measure_rate(struct measurement *m)
{
	uint64_t begin = time_now(), images = m->arguments->images, sent = 0, received = 0;
	unsigned idle = 0;

	while (received < images) {
		int n;

		while (sent < images && sent - received < OUTSTANDING && job_submit(m))
			sent++;
		gpu_port_kick(m->port);
		n = job_collect(m, &idle);
		if (n < 0)
			return n;
		received += (uint64_t)n;
	}
	m->figures.rate = (double)images * (double)TIME_S / (double)(time_now() - begin);
	return 0;
}

static void results_print(const struct measurement *m)
{
	const struct gpu_arguments *a = m->arguments;
	const struct gpu_probe *probe = gpu_session_probe(m->session);
	const struct figures *f = &m->figures;

	if (a->json)
		printf("{\"backend\": \"%s\", \"device\": \"%s\", \"width\": %" PRIu64 ", \"height\": %" PRIu64
		       ", \"levels\": %" PRIu64 ", \"images\": %" PRIu64
		       ", \"quantize_ns\": %.0f, \"ring_ns\": %.0f, \"outstanding\": %d"
		       ", \"images_per_s\": %.0f}\n",
		       probe->backend, probe->device, a->width, a->height, a->levels, a->images, f->quantize, f->ring,
		       OUTSTANDING, f->rate);
	else
		printf("backend %s (%s), %" PRIu64 " images of %" PRIu64 " x %" PRIu64 ", %" PRIu64 " levels\n"
		       "Tq     %8.2f us   one image by one thread, median\n"
		       "Tring  %8.2f us   one image at a time through the ring, median\n"
		       "rate   %8.0f /s   %d images at once\n",
		       probe->backend, probe->device, a->images, a->width, a->height, a->levels, f->quantize / TIME_US,
		       f->ring / TIME_US, f->rate, OUTSTANDING);
}

static int measure_jobs(struct measurement *m)
{
	static struct histogram times;
	const struct gpu_arguments *a = m->arguments;
	uint32_t length = (uint32_t)(a->width * a->height);
	int rc;

	m->job = (struct wire_ring_job){
		.op = WIRE_RING_QUANTIZE,
		.length = length,
		.param = {(uint32_t)a->width, (uint32_t)a->height, (uint32_t)a->levels},
	};
	m->image = aligned_alloc(WIRE_RING_LINE, wire_ring_pages(length));
	m->expected = aligned_alloc(WIRE_RING_LINE, wire_ring_pages(length));
	if (!m->image || !m->expected)
		return log_fail(-ENOMEM, "gpu", "no memory for an image");
	image_fill(m->image, length);
	measure_direct(m, &times);
	rc = session_start(m);
	if (rc == 0) /* new memory is slow: each cell once */
		rc = measure_ring(m, QUEUES * SLOTS, &times);
	if (rc == 0)
		rc = measure_ring(m, m->arguments->images, &times);
	if (rc == 0)
		rc = measure_rate(m);
	if (rc == 0)
		results_print(m);
	return rc;
}

int gpu_measure(const struct gpu_arguments *arguments)
{
	struct measurement m = {.arguments = arguments};
	int rc = measure_jobs(&m);

	gpu_port_destroy(m.port);
	gpu_session_destroy(m.session);
	free(m.expected);
	free(m.image);
	if (rc != 0)
		return EX_UNAVAILABLE;
	return fflush(stdout) == 0 ? EX_OK : EX_IOERR;
}
