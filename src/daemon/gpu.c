/* gpu.c: what the sessions of the gpu service will use. */
#include "daemon/daemon.h"

#include <sysexits.h>

static const char *const backends[] = {
	[CONFIG_GPU_AUTO] = "auto", [CONFIG_GPU_CPU] = "cpu", [CONFIG_GPU_CUDA] = "cuda"};

static unsigned threads(const struct config *c)
{
	return c->gpu_threads ? (unsigned)c->gpu_threads : MAX(process_cpus() / 2, 1u);
}

static void take_settings(struct service_gpu *gpu, const struct config *c)
{
	*gpu = (struct service_gpu){
		.attr =
			{
				.program = c->gpu_program ? c->gpu_program : LIBEXECDIR "/rdmad-gpu",
				.backend = backends[c->gpu_backend],
				.kernels = c->gpu_kernels,
				.threads = threads(c),
				.poll = c->gpu_poll == CONFIG_POLL_ALWAYS ? TIME_NEVER : c->gpu_poll,
				.job_timeout = c->gpu_job_timeout,
			},
		.devices = c->gpu_devices.count,
		.sessions_max = (uint32_t)c->gpu_sessions,
		.queues = (uint32_t)c->gpu_queues,
		.slots = (uint32_t)c->gpu_slots,
		.memory = c->gpu_memory,
	};
	for (unsigned i = 0; i < gpu->devices; i++)
		gpu->device[i] = c->gpu_devices.item[i];
	if (gpu->devices)
		gpu->attr.device = gpu->device[0];
}
_Static_assert(SERVICE_GPU_DEVICES == CONFIG_LIST_MAX, "each that the configuration can name has its place");

static int not_offered(const struct daemon *d, const char *why)
{
	const char *advice = "see gpu.backend, gpu.devices and gpu.program in rdmad.conf, or take gpu out of "
			     "services";

	if (d->config->gpu_backend == CONFIG_GPU_CUDA) {
		log_error("rdmad", "gpu: %s; %s", why, advice);
		return EX_UNAVAILABLE;
	}
	log_warn("rdmad", "gpu: the service is not offered: %s; %s", why, advice);
	return 0;
}

int daemon_gpu_start(struct daemon *d)
{
	struct service_gpu *gpu = &d->gpu;
	char why[256];
	int rc;

	if (!daemon_serves(d, WIRE_GPU))
		return 0;
	take_settings(gpu, d->config);
	logging_hush_begin();
	rc = gpu_probe(&gpu->attr, &gpu->probe);
	snprintf(why, sizeof(why), "%s", logging_hush_end());
	if (rc != 0)
		return not_offered(d, *why ? why : strerror(-rc));
	d->shared.gpu = gpu;
	if (strcmp(gpu->probe.backend, "cpu") == 0)
		log_info("rdmad", "gpu: cpu backend, %u thread%s a session", gpu->attr.threads,
			 gpu->attr.threads == 1 ? "" : "s");
	else
		log_info("rdmad", "gpu: %s backend, %s", gpu->probe.backend, gpu->probe.device);
	return 0;
}

void daemon_gpu_stop(struct daemon *d)
{
	d->shared.gpu = NULL;
}
