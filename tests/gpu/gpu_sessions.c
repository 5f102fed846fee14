/* gpu_sessions.c: opens as many sessions as the server allows, and one more, which is refused. Server and number come from
 * the command line: see check_gpu_sessions.sh. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rdmad/gpu.h"

#define MOST 16

static void die(const char *what, int rc)
{
	fprintf(stderr, "gpu_sessions: %s: %s: %s\n", what, strerror(-rc), rdmad_error());
	exit(EXIT_FAILURE);
}

int main(int argc, char **argv)
{
	const struct rdmad_gpu_options options = {.size_max = 4096};
	struct rdmad_gpu *gpu[MOST], *more = NULL;
	int n = argc == 3 ? atoi(argv[2]) : 0, rc = 0;

	if (n < 1 || n > MOST)
		return EXIT_FAILURE;
	for (int i = 0; i < n; i++) {
		rc = rdmad_gpu_open(argv[1], &options, &gpu[i]);
		if (rc != 0)
			die("a session that is allowed", rc);
	}
	rc = rdmad_gpu_open(argv[1], &options, &more);
	if (rc != -EAGAIN || more || !strstr(rdmad_error(), "all the gpu sessions"))
		die("one more is not told -EAGAIN", rc);
	printf("%s\n", rdmad_error());
	for (int i = 0; i < n; i++)
		rdmad_gpu_close(gpu[i]);
	return EXIT_SUCCESS;
}
