/* check_channel.c: the ring, and channels over shared memory. */
#include <errno.h>
#include <stdlib.h>

#include "channel_cases.h"
#include "channel_pair.h"
#include "client/channel.h"
#include "suite.h"

const char *channel_cases_url;

int main(void)
{
	Suite *suite = suite_create("channel");
	char url[64], runtime[] = "/tmp/check_channel.XXXXXX";
	int status;

	if (!mkdtemp(runtime)) {
		perror(runtime);
		return EXIT_FAILURE;
	}
	setenv("XDG_RUNTIME_DIR", runtime, 1);
	snprintf(url, sizeof(url), "shm://check");
	channel_cases_url = url;
	channel_cases(suite);
	status = suite_run(suite);
	return status;
}
