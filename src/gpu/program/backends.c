/* backends.c: which of them works on a session. */
#include "gpu/program/program.h"

const struct gpu_backend *const gpu_backends[] = {
	&gpu_backend_cuda,
	&gpu_backend_cpu,
	NULL,
};

const struct gpu_backend *gpu_backend_find(const char *name)
{
	const struct gpu_backend *const *backend = gpu_backends;

	while (*backend && strcmp((*backend)->name, name) != 0)
		backend++;
	return *backend;
}

static bool is_auto(const struct gpu_process_attr *attr)
{
	return strcmp(attr->backend, "auto") == 0;
}

/* One that was passed over is told of with the one that is taken. */
static void begin_probe(const struct gpu_backend *backend, struct gpu_probe *out)
{
	out->device[0] = '\0';
	snprintf(out->backend, sizeof(out->backend), "%s", backend->name);
}

static void pass_over(const struct gpu_backend *backend, const char *why, struct gpu_probe *out)
{
	snprintf(out->passed, sizeof(out->passed), "%s: %.*s", backend->name, GPU_WHY - 16, why);
}

static int lacks_backend(const char *name)
{
	log_error("gpu", "there is no backend %s in this build", name);
	return -ENODEV;
}

const struct gpu_backend *gpu_backend_choose(const struct gpu_process_attr *attr, struct gpu_probe *out)
{
	char why[GPU_WHY] = "";

	*out = (struct gpu_probe){0};
	for (const struct gpu_backend *const *backend = gpu_backends; *backend; backend++) {
		if (!is_auto(attr) && strcmp(attr->backend, (*backend)->name) != 0)
			continue;
		begin_probe(*backend, out);
		if ((*backend)->probe(attr, out, why) == 0)
			return *backend;
		if (!is_auto(attr)) {
			log_error("gpu", "backend %s: %s", (*backend)->name, why);
			return NULL;
		}
		pass_over(*backend, why, out);
	}
	lacks_backend(attr->backend);
	return NULL;
}

static int start(struct gpu_process *process, const struct gpu_backend *backend, char *why)
{
	int rc = gpu_confine_files(backend);

	process->backend = backend;
	begin_probe(backend, &process->probe);
	return rc == 0 ? backend->run(process, why) : rc;
}

int gpu_backend_run(struct gpu_process *process)
{
	const struct gpu_backend *backend = gpu_backend_find(process->attr.backend);
	char why[GPU_WHY] = "";
	int rc = -ENODEV;

	if (!is_auto(&process->attr)) {
		if (!backend)
			return lacks_backend(process->attr.backend);
		rc = start(process, backend, why);
		if (rc == -ENODEV)
			gpu_process_fail(process, WIRE_RING_DEVICE, 0, 0, "%s", why);
		return rc;
	}
	for (unsigned i = 0; rc == -ENODEV && gpu_backends[i]; i++) {
		rc = start(process, gpu_backends[i], why);
		if (rc != -ENODEV)
			break;
		log_warn("gpu", "backend %s cannot start: %s", gpu_backends[i]->name, why);
		pass_over(gpu_backends[i], why, &process->probe);
	}
	return rc;
}
