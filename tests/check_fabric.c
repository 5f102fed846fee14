/*
 * check_fabric: the promises of fabric.h, run against the provider that is named.
 *
 *   check_fabric soft 127.0.0.1 [SUITE]
 *   check_fabric soft unix:/tmp/socket [SUITE]
 *   check_fabric verbs 10.99.0.1 [SUITE]
 *
 * Suites "large" (one call of more than 2 GiB) and "removal" (deletes the RDMA link
 * rxe0) run only when they are named.
 */
#include "fabric_pair.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/un.h>

static const struct {
	const char *name;
	Suite *(*make)(void);
	bool always;
} suites[] = {
	{"connect", connect_suite, true},  {"message", message_suite, true},   {"memory", memory_suite, true},
	{"window", window_suite, true},    {"teardown", teardown_suite, true}, {"wait", wait_suite, true},
	{"scale", scale_suite, true},      {"hostile", hostile_suite, true},   {"large", large_suite, false},
	{"removal", removal_suite, false},
};

static bool parse_address(const char *text)
{
	struct sockaddr_in *in = (struct sockaddr_in *)&target.sa;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&target.sa;
	struct sockaddr_un *un = (struct sockaddr_un *)&target.sa;

	target.transport = target.verbs ? "rdma" : "tcp";
	if (strncmp(text, "unix:", 5) == 0) {
		un->sun_family = AF_UNIX;
		snprintf(un->sun_path, sizeof(un->sun_path), "%s", text + 5);
		target.len = sizeof(*un);
		target.transport = "unix";
		return true;
	}
	if (inet_pton(AF_INET, text, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		target.len = sizeof(*in);
		return true;
	}
	in6->sin6_family = AF_INET6;
	target.len = sizeof(*in6);
	return inet_pton(AF_INET6, text, &in6->sin6_addr) == 1;
}

static int run(const char *only)
{
	SRunner *runner = srunner_create(NULL);
	bool found = false;
	int failed;

	for (size_t i = 0; i < ARRAY_SIZE(suites); i++) {
		if (only ? strcmp(only, suites[i].name) != 0 : !suites[i].always)
			continue;
		srunner_add_suite(runner, suites[i].make());
		found = true;
	}
	if (!found) {
		fprintf(stderr, "check_fabric: no suite named %s\n", only);
		return EXIT_FAILURE;
	}
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	if (argc >= 3) {
		target.provider = argv[1];
		target.verbs = strcmp(argv[1], "verbs") == 0;
		target.slow = getenv("RDMAD_GUEST") || getenv("RDMAD_GUEST_ADDR") ? 10 : 1;
	}
	if (argc < 3 || argc > 4 || !parse_address(argv[2])) {
		fprintf(stderr, "usage: check_fabric PROVIDER ADDRESS|unix:PATH [SUITE]\n");
		return EXIT_FAILURE;
	}
	return run(argv[3]);
}
