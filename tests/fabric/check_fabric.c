/*
 * check_fabric: the promises of fabric.h, run against the provider that is named.
 *
 *   check_fabric soft 127.0.0.1 [SUITE]
 *   check_fabric soft unix:/tmp/socket [SUITE]
 *   check_fabric soft memory:127.0.0.1 [SUITE]         where both ends ask for shared memory
 *   check_fabric verbs 10.99.0.1 [SUITE]
 *   check_fabric PROVIDER SCHEME://ADDRESS [SUITE]
 *
 * Suites "large" (one call of more than 2 GiB) and "removal" (deletes the RDMA link
 * rxe0) run only when they are named.
 */
#include "tests/fabric/fabric_pair.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct {
	const char *name;
	Suite *(*make)(void);
	bool always;
} suites[] = {
	{"connect", connect_suite, true},  {"message", message_suite, true}, {"memory", memory_suite, true},
	{"window", window_suite, true},    {"atomic", atomic_suite, true},   {"teardown", teardown_suite, true},
	{"wait", wait_suite, true},        {"scale", scale_suite, true},     {"loss", loss_suite, true},
	{"hostile", hostile_suite, true},  {"stall", stall_suite, true},     {"fair", fair_suite, true},
	{"rings", rings_suite, true},      {"share", share_suite, true},     {"large", large_suite, false},
	{"removal", removal_suite, false},
};

/* As an address with a scheme. One without is of the provider's own: a number of its first transport that has numbers. */
static void set_text(const char *text)
{
	const struct fabric_transport *t = fabric_transports;

	if (strstr(text, "://")) {
		snprintf(target.text, sizeof(target.text), "%s", text);
	} else if (strncmp(text, "unix:", 5) == 0) {
		snprintf(target.text, sizeof(target.text), "unix://%s", text + 5);
	} else {
		while (t + 1 < fabric_transports + FABRIC_TRANSPORTS &&
		       (!t->plain || strcmp(fabric_transport_provider(t), target.provider) != 0))
			t++;
		snprintf(target.text, sizeof(target.text), strchr(text, ':') ? "%s://[%s]" : "%s://%s", t->name, text);
	}
}

static bool parse_address(const char *text)
{
	static const char memory[] = "memory:";
	struct address address;
	socklen_t len;

	target.memory = strncmp(text, memory, sizeof(memory) - 1) == 0;
	set_text(target.memory ? text + sizeof(memory) - 1 : text);
	if (fabric_address_parse(target.text, &address) != 0)
		return false;
	target.transport = fabric_transport_find(address.scheme);
	return target.transport && strcmp(fabric_transport_provider(target.transport), target.provider) == 0 &&
	       target_address(0, &target.sa, &len);
}

enum { SHARED = 1, OPEN_SINKS = 2, CLOSED = 4 };

static int look_at_limits(void)
{
	struct fabric_limits limits;
	struct fabric *fabric;

	if (fabric_open(target.provider, &(struct fabric_config){0}, &fabric) != 0)
		return CLOSED;
	fabric_limits(fabric, &limits);
	fabric_close(fabric);
	return (limits.shared ? SHARED : 0) | (limits.open_sinks ? OPEN_SINKS : 0);
}

/* In a process of its own: the tests are forked, which comes before the first look at a device. */
static bool ask_limits(void)
{
	pid_t child = fork();
	int status;

	if (child == 0)
		_exit(look_at_limits());
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) & CLOSED)
		return false;
	target.shared = WEXITSTATUS(status) & SHARED;
	target.open_sinks = WEXITSTATUS(status) & OPEN_SINKS;
	return true;
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
		target.soft = strcmp(argv[1], "soft") == 0;
		target.slow = getenv("RDMAD_GUEST") || getenv("RDMAD_GUEST_ADDR") ? 10 : 1;
	}
	if (argc < 3 || argc > 4 || !parse_address(argv[2])) {
		fprintf(stderr, "usage: check_fabric PROVIDER [memory:]NUMBER|unix:PATH|SCHEME://ADDRESS [SUITE]\n");
		return EXIT_FAILURE;
	}
	if (!ask_limits()) {
		fprintf(stderr, "check_fabric: cannot open %s\n", target.provider);
		return EXIT_FAILURE;
	}
	return run(argv[3]);
}
