/* main.c: rdmad-gpu, the process of a session. */
#include "gpu/program/program.h"

#include <sys/prctl.h>
#include <sysexits.h>

/* As probe.c reads it. What a session would be confined by is tried at this process, last. */
static int print_probe(const struct gpu_arguments *arguments)
{
	struct gpu_probe probe;
	const struct gpu_backend *backend = gpu_backend_choose(&arguments->attr, &probe);

	if (!backend)
		return EX_UNAVAILABLE;
	printf("backend %s\ndevice %s\n", probe.backend, probe.device);
	if (probe.passed[0])
		printf("passed %s\n", probe.passed);
	fflush(stdout);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (gpu_sandbox(backend->sealed, probe.lacks) == 0 && backend->sealed)
		gpu_sandbox_calls(probe.lacks);
	if (probe.lacks[0])
		printf("lacks %s\n", probe.lacks);
	return fflush(stdout) == 0 ? EX_OK : EX_IOERR;
}

static int (*const modes[])(const struct gpu_arguments *arguments) = {
	[GPU_SERVE] = gpu_serve,
	[GPU_PROBE] = print_probe,
	[GPU_MEASURE] = gpu_measure,
};

int main(int argc, char **argv)
{
	struct gpu_arguments arguments;
	int rc = gpu_arguments_parse(argc, argv, &arguments);

	return rc >= 0 ? rc : modes[arguments.mode](&arguments);
}
