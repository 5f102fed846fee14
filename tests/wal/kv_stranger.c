/*
 * kv_stranger.c: a program as the manual tells to write one, for tests: its own poll loop, 32 requests in flight, values of 10 MiB,
 * of a server that is restarted meanwhile. Arguments: the server and how many requests. It says `half` at the half, and goes on when a
 * line comes on stdin; each request must be answered: no status other than 0, or -ENOENT of a get as the store begins empty.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdmad/kv.h>

#define IN_FLIGHT 32
#define SIZE (10u << 20)
#define KEYS 4

static char *value;
static unsigned answered, missing, lost;

static void done(void *arg, int status, const void *bytes, size_t len)
{
	int is_get = arg != NULL;

	answered++;
	if (status == -ENOENT && is_get)
		missing++;
	else if (status != 0 || (is_get && (len != SIZE || memcmp(bytes, value, 4096) != 0)))
		fprintf(stderr, "%s lost: %s, %zu bytes\n", is_get ? "get" : "set", kv_status_text(status), len),
			lost++;
}

static int submit(void *kv, unsigned number)
{
	char key[16];
	int n = snprintf(key, sizeof(key), "stranger %u", number / 2 % KEYS);

	if (number % 2)
		return kv_submit_get(kv, key, (size_t)n, done, value);
	return kv_submit_set(kv, key, (size_t)n, value, SIZE, done, NULL);
}

static int run(void *kv, unsigned count)
{
	struct pollfd fds[2] = {{.fd = kv_fd(kv), .events = POLLIN}, {.fd = 0, .events = POLLIN}};
	unsigned submitted = 0, told = 0;
	int rc;

	while (answered < count) {
		for (rc = 0; rc == 0 && submitted < count && kv_outstanding(kv) < IN_FLIGHT; submitted += rc == 0)
			rc = submit(kv, submitted);
		if (rc != 0 && rc != -EAGAIN)
			return rc;
		if (!told && answered >= count / 2) {
			told = 1;
			puts("half");
			fflush(stdout);
		}
		if (submitted == count && !kv_outstanding(kv))
			break;
		rc = kv_progress(kv, 0);
		if (rc < 0)
			return rc;
		rc = kv_arm(kv);
		if (rc < 0)
			return rc;
		if (rc == 0 && answered < count && poll(fds, 1, 60000) == 0)
			return -ETIMEDOUT;
	}
	return 0;
}

int main(int argc, char **argv)
{
	unsigned count = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
	void *kv;
	int rc;

	value = malloc(SIZE);
	if (argc < 3 || !value || kv_open(argv[1], &kv) != 0) {
		fprintf(stderr, "stranger: %s\n", rdmad_error());
		return 1;
	}
	memset(value, 's', SIZE);
	kv_buffer_register(kv, value, SIZE);
	kv_keep_connected(kv, 60000000);
	rc = run(kv, count);
	printf("%u answered, %u missing, %u lost: %s\n", answered, missing, lost, rc ? rdmad_error() : "well");
	kv_close(kv);
	free(value);
	return rc != 0 || lost || answered != count;
}
