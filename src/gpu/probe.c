/* probe.c: asking the program what a process would use. Blocks, so it is done before there are
 * clients. */
#include "gpu/gpu.h"
#include "gpu/spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#define PROBE_LIMIT (30 * TIME_S) /* as a session has */

/* The program's output, and when it must have ended. */
struct answer {
	char text[1024];
	size_t length;
	uint64_t limit;
};

/* Wait until it is readable or the time is over. */
static bool wait_for(int fd, const struct answer *answer)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	uint64_t now;
	int rc;

	do {
		now = time_now();
		rc = poll(&poll_fd, 1, now < answer->limit ? (int)((answer->limit - now + TIME_MS - 1) / TIME_MS) : 0);
	} while (rc < 0 && errno == EINTR);
	return rc > 0;
}

/* All it prints; what is beyond the room is thrown away. */
static void read_answer(int fd, struct answer *answer)
{
	char more[256];
	ssize_t n;

	while (wait_for(fd, answer) && (n = read(fd, more, sizeof(more))) > 0) {
		n = MIN(n, (ssize_t)(sizeof(answer->text) - 1 - answer->length));
		memcpy(answer->text + answer->length, more, (size_t)n);
		answer->length += (size_t)n;
	}
	answer->text[answer->length] = '\0';
}

/* The rest of the line that begins with `name` and a blank. */
static bool find_line(const char *text, const char *name, char *out, size_t size)
{
	size_t n = strlen(name);

	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
		if (strncmp(line, name, n) == 0 && line[n] == ' ') {
			snprintf(out, size, "%.*s", (int)strcspn(line + n + 1, "\n"), line + n + 1);
			return true;
		}
	return false;
}

static int probe_judge(struct answer *answer, bool ended, int status, struct gpu_probe *out)
{
	char how[64], *rest = answer->text;

	if (ended && status == 0 && find_line(answer->text, "backend", out->backend, sizeof(out->backend)) &&
	    find_line(answer->text, "device", out->device, sizeof(out->device))) {
		if (!find_line(answer->text, "passed", out->passed, sizeof(out->passed)))
			out->passed[0] = '\0';
		if (!find_line(answer->text, "lacks", out->lacks, sizeof(out->lacks)))
			out->lacks[0] = '\0';
		return 0;
	}
	if (!ended)
		log_error("gpu", "rdmad-gpu --probe was not done within 30 s");
	else if (status != 0)
		log_error("gpu", "rdmad-gpu --probe %s", gpu_spawn_status(status, how));
	else
		log_error("gpu", "rdmad-gpu --probe named no backend and device");
	for (char *line; (line = strsep(&rest, "\n"));) /* last, as the cause */
		if (*line)
			log_error("gpu", "rdmad-gpu: %s", line);
	return ended ? -ENODEV : -ETIMEDOUT;
}

int gpu_probe(const struct gpu_process_attr *attr, struct gpu_probe *out)
{
	struct answer answer = {.limit = time_now() + PROBE_LIMIT};
	int ends[2], process, status = 0, rc;
	bool ended;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) != 0) {
		rc = -errno;
		log_error("gpu", "pipe: %m");
		return rc;
	}
	rc = gpu_spawn(attr, &(struct gpu_spawn){.probe = true, .output = ends[1]}, &pid, &process);
	close(ends[1]); /* so that its end ends the answer */
	if (rc == 0) {
		read_answer(ends[0], &answer);
		ended = wait_for(process, &answer);
		if (!ended)
			kill(pid, SIGKILL);
		gpu_spawn_reap(process, 0, &status);
		close(process);
		rc = probe_judge(&answer, ended, status, out);
	}
	close(ends[0]);
	return rc;
}
