/* driver.c: finds the driver library and the entries of api.h in it. */
#include "base/base.h"
#include "gpu/cuda/api.h"

#include <dlfcn.h>

struct cuda_entry {
	const char *name, *exported;
	int version;
	size_t offset; /* of its pointer in struct cuda_api */
};

#define CUDA_ENTRY_ROW(name, exported, version, arguments) {#name, exported, version, offsetof(struct cuda_api, name)},

static const struct cuda_entry entries[] = {CUDA_ENTRIES(CUDA_ENTRY_ROW)};

/* cuGetProcAddress of CUDA 11.3 and later; its successor only says more. */
typedef int (*find_fn)(const char *name, void **entry, int version, uint64_t flags);

int cuda_api_load(struct cuda_api *api)
{
	/* The library stays for the life of the process: its threads outlive every context. */
	void *library = dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	find_fn find_entry;

	if (!library) {
		/* The loader has many words for a library that is not there. */
		const char *said = dlerror();

		if (strstr(said, "No such file"))
			said = "there is no " CUDA_LIBRARY;
		cuda_api_failed(api, "%s", said);
		return -ENOENT;
	}
	find_entry = (find_fn)dlsym(library, "cuGetProcAddress");
	for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
		void *found = NULL;

		/* The library is asked first: only it knows which of its exports has the arguments of a version. */
		if (!find_entry || find_entry(entries[i].name, &found, entries[i].version, 0) != 0 || !found)
			found = dlsym(library, entries[i].exported);
		if (!found) {
			cuda_api_failed(api, CUDA_LIBRARY " has no %s of version %d.%d", entries[i].name,
					entries[i].version / 1000, entries[i].version % 1000 / 10);
			return -ENOSYS;
		}
		memcpy((char *)api + entries[i].offset, &found, sizeof(found));
	}
	return 0;
}

void cuda_api_failed(struct cuda_api *api, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(api->why, sizeof(api->why), format, args);
	va_end(args);
}

int cuda_api_result(struct cuda_api *api, const char *entry, int result)
{
	const char *text = NULL;

	if (!result)
		return 0;
	if (api->cuGetErrorString(result, &text) || !text)
		text = "unknown error";
	cuda_api_failed(api, "%s: %s (%d)", entry, text, result);
	return -EIO;
}
