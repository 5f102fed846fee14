/* service.c: what the process has of the gpu service: its settings, what its sessions will use, its numbers. */
#include "service/gpu/gpu.h"

#include <stdlib.h>

#include "config.h"

#define DESCRIPTORS 4 /* of a session, beside its connection */

enum gpu_backend_choice { GPU_SERVICE_AUTO, GPU_SERVICE_CPU, GPU_SERVICE_CUDA };

#define AT(member) offsetof(struct gpu_service_settings, member)

static const char *const backends[] = {[GPU_SERVICE_AUTO] = "auto",
				       [GPU_SERVICE_CPU] = "cpu",
				       [GPU_SERVICE_CUDA] = "cuda",
				       [GPU_SERVICE_CUDA + 1] = NULL};

static uint64_t per_source_of(const void *values)
{
	const struct gpu_service_settings *s = values;

	return quota_most(s->per_source, s->sessions);
}

static uint64_t threads_of(const void *values)
{
	const struct gpu_service_settings *s = values;

	return gpu_threads((unsigned)s->threads);
}

static const struct setting settings[] = {
	{"gpu.backend", SETTING_CHOICE, AT(backend), "auto", .choices = backends,
	 .help = "Who does the jobs of the gpu service: \"cpu\", processors; \"cuda\", GPUs, without which\n"
		 "the daemon then does not start; \"auto\", GPUs where there are any."},
	{"gpu.devices", SETTING_LIST, AT(devices), "",
	 .help = "GPUs to use, by number or UUID; sessions take turns. Empty: the first."},
	{"gpu.kernels", SETTING_STRING, AT(kernels), NULL, .check = setting_check_path,
	 .sample = "/usr/local/lib/rdmad-gpu.ptx",
	 .help = "A file of kernels, PTX or machine code, in place of those that are built in."},
	{"gpu.sessions", SETTING_NUMBER, AT(sessions), "8", 1, 1024,
	 .help = "Most sessions, each of which has a process; more are refused."},
	{"gpu.sessions_per_source", SETTING_NUMBER, AT(per_source), "0", 0, 1024, .effective = per_source_of,
	 .help = "Most of them of one source: of an address, a network of IPv6 (/64), or a user of this\n"
		 "machine. 0: half of them, and as many as there are is no limit."},
	{"gpu.idle_timeout", SETTING_TIME, AT(idle_timeout), "60s", 0, 3600 * 24 * TIME_S,
	 .help = "A session without a job for so long ends when another client wants its place. 0: never."},
	{"gpu.queues", SETTING_NUMBER, AT(queues), "4", 1, WIRE_RING_QUEUES_MAX,
	 .help = "Most queues of a session. Queues are worked on at the same time."},
	{"gpu.slots", SETTING_NUMBER, AT(slots), "16", 1, WIRE_RING_SLOTS_MAX,
	 .help = "Most jobs that wait in a queue, and most results that wait to be fetched."},
	{"gpu.memory", SETTING_SIZE, AT(memory), "256M", GPU_MEMORY_MIN, 1ull << 40,
	 .help = "Most memory for the queues of a session, taken and registered when it begins. The\n"
		 "longest input or output is a little less than half of it, and 64M at most."},
	{"gpu.threads", SETTING_NUMBER, AT(threads), "0", 0, GPU_THREADS_MAX, .effective = threads_of,
	 .help = "Threads of a session where processors do the jobs. 0: half as many as processors."},
	{"gpu.poll", SETTING_TIME, AT(poll), "200us", 0, TIME_S, .always = true,
	 .help = "How long a session's process that has nothing to do polls before it naps."},
	{"gpu.park", SETTING_TIME, AT(park), "1s", TIME_MS, 3600 * TIME_S, .always = true,
	 .help = "Of GPUs: after so long without jobs a session leaves its device to others, and is back\n"
		 "with the next job, which waits for the launch of a kernel."},
	{"gpu.job_timeout", SETTING_TIME, AT(job_timeout), "10s", TIME_MS, 3600 * TIME_S,
	 .help = "A job that takes longer ends its session."},
	{"gpu.program", SETTING_STRING, AT(program), NULL, .check = setting_check_path,
	 .sample = "/usr/local/libexec/rdmad-gpu",
	 .help = "The program of a session's process. Unset: the one installed with the daemon."},
};

const struct setting_table gpu_service_settings = {settings, ARRAY_SIZE(settings), sizeof(struct gpu_service_settings)};

const char *const gpu_service_counters[] = {
	[GPU_SERVICE_SESSIONS] = "gpu_sessions",
	[GPU_SERVICE_ERRORS] = "gpu_errors",
	[GPU_SERVICE_REFUSED] = "gpu_refused",
	[GPU_SERVICE_EVICTED] = "gpu_evicted",
#define COUNTER_NAME(OP, number, name, names) [GPU_SERVICE_JOBS + WIRE_RING_##OP] = "gpu_" #names,
	WIRE_GPU_OPERATIONS(COUNTER_NAME)
#undef COUNTER_NAME
		[GPU_SERVICE_IN_BYTES] = "gpu_in_bytes",
	[GPU_SERVICE_OUT_BYTES] = "gpu_out_bytes",
	[GPU_SERVICE_QUEUE_JOBS] = "gpu_queue_jobs",
	[GPU_SERVICE_QUEUE_JOBS + 1] = NULL,
};

static void take_settings(struct gpu_service *gpu, const struct gpu_service_settings *s)
{
	*gpu = (struct gpu_service){
		.attr =
			{
				.program = s->program ? s->program : LIBEXECDIR "/rdmad-gpu",
				.backend = backends[s->backend],
				.device = s->devices.count ? s->devices.item[0] : NULL,
				.kernels = s->kernels,
				.threads = (unsigned)threads_of(s),
				.poll = s->poll,
				.park = s->park,
				.job_timeout = s->job_timeout,
			},
		.device = s->devices.item,
		.devices = s->devices.count,
		.sessions_max = (uint32_t)s->sessions,
		.per_source = (uint32_t)per_source_of(s),
		.idle_timeout = s->idle_timeout,
		.queues = (uint32_t)s->queues,
		.slots = (uint32_t)s->slots,
		.memory = s->memory,
	};
}

static bool on_processors(const struct gpu_probe *probe)
{
	return strcmp(probe->backend, backends[GPU_SERVICE_CPU]) == 0;
}

/* A process that is known to run on processors alone is confined more. */
static void take_found(struct gpu_service *gpu)
{
	const char *passed = gpu->probe.passed;

	if (gpu->probe.lacks[0])
		log_warn("gpu", "the process of a session is confined less: here it cannot have %s", gpu->probe.lacks);
	if (!on_processors(&gpu->probe)) {
		log_info("gpu", "%s backend, %s", gpu->probe.backend, gpu->probe.device);
		return;
	}
	gpu->attr.backend = backends[GPU_SERVICE_CPU];
	log_info("gpu", "cpu backend, %u thread%s a session%s%s", gpu->attr.threads, gpu->attr.threads == 1 ? "" : "s",
		 *passed ? "; not " : "", passed);
}

static void places_destroy(struct gpu_service *gpu)
{
	quota_destroy(gpu->clients);
	quota_destroy(gpu->sources);
	free(gpu->place);
}

static int places_create(struct gpu_service *gpu)
{
	int rc = -ENOMEM;

	gpu->sources = gpu->clients = NULL;
	gpu->place = calloc(gpu->sessions_max, sizeof(*gpu->place));
	if (gpu->place)
		rc = quota_create(gpu->sessions_max, sizeof(struct fabric_source), &gpu->sources);
	if (rc == 0)
		rc = quota_create(gpu->sessions_max, AUTH_NAME_MAX + 1, &gpu->clients);
	if (rc != 0)
		places_destroy(gpu);
	return rc;
}

int gpu_service_start(struct gpu_service *gpu)
{
	int rc = places_create(gpu);

	if (rc != 0)
		return rc;
	pthread_mutex_init(&gpu->lock, NULL);
	rc = gpu_helper_start(&gpu->helper);
	if (rc == 0)
		return 0;
	pthread_mutex_destroy(&gpu->lock);
	places_destroy(gpu);
	return rc;
}

void gpu_service_stop(struct gpu_service *gpu)
{
	gpu_helper_stop(&gpu->helper);
	pthread_mutex_destroy(&gpu->lock);
	places_destroy(gpu);
}

/* Each that is named, since each will have sessions: what the first one that cannot be used leaves is what all have. */
static int probe_devices(struct gpu_service *gpu)
{
	struct gpu_process_attr attr = gpu->attr;
	struct gpu_probe other;
	int rc = gpu_probe(&attr, &gpu->probe);

	for (unsigned i = 1; rc == 0 && i < gpu->devices && !on_processors(&gpu->probe); i++) {
		attr.device = gpu->device[i];
		rc = gpu_probe(&attr, &other);
		if (rc == 0 && on_processors(&other))
			gpu->probe = other;
	}
	return rc;
}

/* Ask the program, because the daemon itself never touches an accelerator. 0, or as open(). */
static int find_out(struct gpu_service *gpu, const struct gpu_service_settings *s)
{
	const char *advice = "see gpu.backend, gpu.devices and gpu.program in rdmad.conf, or take gpu out of "
			     "services";
	char why[256];
	int rc;

	take_settings(gpu, s);
	log_hush_begin();
	rc = probe_devices(gpu);
	snprintf(why, sizeof(why), "%s", log_hush_end());
	if (rc == 0) {
		take_found(gpu);
		return 0;
	}
	if (!*why)
		snprintf(why, sizeof(why), "%s", strerror(-rc));
	if (s->backend == GPU_SERVICE_CUDA)
		return log_fail(-ENODEV, "gpu", "%s; %s", why, advice);
	log_warn("gpu", "the service is not offered: %s; %s (RD-5009)", why, advice);
	return SERVICE_NOT_OFFERED;
}

int gpu_service_check(const void *values, uint64_t services)
{
	struct gpu_service *gpu = calloc(1, sizeof(*gpu));
	int rc = gpu ? find_out(gpu, values) : -ENOMEM;

	(void)services;
	free(gpu);
	return MIN(rc, 0);
}

int gpu_service_open(const struct service_host *host, const void *values, void **out)
{
	struct gpu_service *gpu = calloc(1, sizeof(*gpu));
	int rc;

	(void)host;
	if (!gpu)
		return -ENOMEM;
	rc = find_out(gpu, values);
	if (rc != 0) {
		free(gpu);
		return rc;
	}
	rc = gpu_hide_memory();
	if (rc != 0)
		log_warn("gpu", "workers of this user could read the daemon's memory: %s", strerror(-rc));
	rc = gpu_service_start(gpu);
	if (rc == 0)
		*out = gpu;
	else
		free(gpu);
	return rc;
}

void gpu_service_close(void *shared)
{
	gpu_service_stop(shared);
	free(shared);
}

unsigned gpu_service_descriptors(const void *values)
{
	const struct gpu_service_settings *s = values;

	return DESCRIPTORS * (unsigned)s->sessions;
}

void gpu_service_status(const void *shared, struct service_report *report)
{
	const struct gpu_service *gpu = shared;

	report->begin(report, "gpu");
	report->text(report, "backend", gpu->probe.backend);
	report->text(report, "device", gpu->probe.device);
	report->text(report, "passed_over", gpu->probe.passed);
	report->text(report, "sandbox_lacks", gpu->probe.lacks);
	report->number(report, "sessions", quota_taken(gpu->sources));
	report->number(report, "sessions_max", gpu->sessions_max);
	report->number(report, "sessions_per_source", gpu->per_source);
	report->end(report);
}

void gpu_service_resources(const void *shared, struct service_report *report)
{
	const struct gpu_service *gpu = shared;

	if (gpu)
		report->number(report, "gpu_sessions", quota_taken(gpu->sources));
}
