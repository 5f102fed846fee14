/* config.c: the configuration file. */
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/settings.h"
#include "fuzz.h"

/* A string that does not end leaks the buffer of libconfig's scanner. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:libconfig\n";
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct config_overrides none;
	struct config *config = NULL;
	char path[64];
	int fd;

	fuzz_silence();
	if (memmem(data, size, "@include", 8)) /* other files are not the input */
		return 0;
	fd = memfd_create("config", MFD_CLOEXEC);
	REQUIRE(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (config_load(path, &none, &config) == 0)
		config_free(config);
	close(fd);
	return 0;
}
