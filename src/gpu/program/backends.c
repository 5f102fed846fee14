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

static bool is_wanted(const struct gpu_backend *backend, const struct gpu_process_attr *attr)
{
	return is_auto(attr) || strcmp(attr->backend, backend->name) == 0;
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
	return log_fail(-ENODEV, "gpu", "there is no backend %s in this build", name);
}

const struct gpu_backend *gpu_backend_choose(const struct gpu_process_attr *attr, struct gpu_probe *out)
{
	char why[GPU_WHY] = "";

	*out = (struct gpu_probe){0};
	for (const struct gpu_backend *const *backend = gpu_backends; *backend; backend++) {
		if (!is_wanted(*backend, attr))
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

int gpu_backend_run(struct gpu_process *process)
{
	char why[GPU_WHY] = "";
	int rc = -ENODEV;

	for (const struct gpu_backend *const *backend = gpu_backends; *backend; backend++) {
		if (!is_wanted(*backend, &process->attr))
			continue;
		process->backend = *backend;
		begin_probe(*backend, &process->probe);
		rc = gpu_confine_files(*backend);
		if (rc == 0)
			rc = (*backend)->run(process, why);
		if (rc == -ENODEV && !is_auto(&process->attr))
			gpu_process_fail(process, WIRE_RING_DEVICE, 0, 0, "%s", why);
		if (rc != -ENODEV || !is_auto(&process->attr))
			return rc;
		log_warn("gpu", "backend %s cannot start: %s", (*backend)->name, why);
		pass_over(*backend, why, &process->probe);
	}
	return is_auto(&process->attr) ? rc : lacks_backend(process->attr.backend);
}
