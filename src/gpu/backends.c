/* backends.c: which of them works on a session. */
#include "gpu/process.h"

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

static const struct gpu_backend *probe(const struct gpu_backend *backend, const struct gpu_process_attr *attr,
				       struct gpu_probe *out, char why[GPU_WHY])
{
	*out = (struct gpu_probe){0};
	snprintf(out->backend, sizeof(out->backend), "%s", backend->name);
	return backend->probe(attr, out, why) == 0 ? backend : NULL;
}

const struct gpu_backend *gpu_backend_choose(const struct gpu_process_attr *attr, struct gpu_probe *out)
{
	bool any = strcmp(attr->backend, "auto") == 0;
	const struct gpu_backend *found;
	char why[GPU_WHY] = "";

	for (const struct gpu_backend *const *backend = gpu_backends; *backend; backend++) {
		if (!any && strcmp(attr->backend, (*backend)->name) != 0)
			continue;
		found = probe(*backend, attr, out, why);
		if (found)
			return found;
		log_at(any ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR, "gpu", "backend %s: %s", (*backend)->name, why);
		if (!any)
			return NULL;
	}
	log_error("gpu", "there is no backend %s in this build", attr->backend);
	return NULL;
}
