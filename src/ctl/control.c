/* control.c: ask the daemon by its control socket: one line there, one JSON object back. */
#include "ctl/ctl.h"
#include "wire/wire.h"

#include <stdlib.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_MAX (64u << 20)
#define ANSWER_LIMIT (10 * TIME_S) /* unless --timeout says another */

static int connect_to(const char *path, int *out)
{
	uint64_t timeout = ctl.timeout == TIME_NEVER ? ANSWER_LIMIT : ctl.timeout;
	struct timeval limit = {.tv_sec = (time_t)(timeout / TIME_S),
				.tv_usec = (suseconds_t)(timeout % TIME_S / TIME_US)};
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	int fd, rc;

	if (strlen(path) >= sizeof(sun.sun_path))
		return -ENAMETOOLONG;
	strcpy(sun.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (connect(fd, (struct sockaddr *)&sun, sizeof(sun)) < 0) {
		rc = -errno;
		close(fd);
		return rc;
	}
	*out = fd;
	return 0;
}

static int send_line(int fd, const char *command)
{
	char line[WIRE_CONTROL_LINE];
	int n = snprintf(line, sizeof(line), "%s\n", command);
	ssize_t sent = send(fd, line, (size_t)n, MSG_NOSIGNAL);

	if (sent < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	return sent == n ? 0 : -EIO;
}

/* Everything until the daemon closes. free() *out. */
static int receive_all(int fd, char **out, size_t *len)
{
	size_t room = 0, n = 0;
	char *text = NULL, *bigger;
	ssize_t got;
	int rc;

	do {
		if (n == room) {
			room = MAX(2 * room, 16384u);
			bigger = room > ANSWER_MAX ? NULL : realloc(text, room);
			if (!bigger) {
				rc = -ENOMEM;
				goto err_text;
			}
			text = bigger;
		}
		got = recv(fd, text + n, room - n, 0);
		if (got < 0) {
			rc = errno == EAGAIN ? -ETIMEDOUT : -errno;
			goto err_text;
		}
		n += (size_t)got;
	} while (got > 0);
	*out = text;
	*len = n;
	return 0;

err_text:
	free(text);
	return rc;
}

static int fail_connect(int error, const char *path)
{
	if (error == -ENOENT || error == -ECONNREFUSED)
		return ctl_fail(-ECONNREFUSED, strerror(-error), "cannot reach the daemon at %s", path);
	if (error == -EACCES || error == -EPERM) {
		ctl_say("cannot reach the daemon at %s: %s", path, strerror(-error));
		fputs("run rdmactl as root or as the user of rdmad\n", stderr);
		return CTL_UNREACHABLE;
	}
	return ctl_fail(error, strerror(-error), "cannot reach the daemon at %s", path);
}

static int show(const char *text, size_t len)
{
	json_error_t error;
	json_t *answer = json_loadb(text, len, 0, &error);
	const char *why;
	int rc = CTL_OK;

	if (!json_is_object(answer)) {
		json_decref(answer);
		return ctl_fail(-EPROTO, "its answer is not a JSON object; is it an rdmad?", "%s", ctl_command_name());
	}
	if (!json_is_true(json_object_get(answer, "ok"))) {
		why = json_string_value(json_object_get(answer, "error"));
		rc = ctl_fail(-EREMOTEIO, why ? why : "refused", "%s", ctl_command_name());
	}
	if (ctl.json) {
		if (fwrite(text, 1, len, stdout) == len && len && text[len - 1] != '\n')
			putchar('\n');
	} else if (rc == CTL_OK) {
		json_object_del(answer, "ok");
		ctl_render(stdout, answer);
		if (!json_object_size(answer) && !ctl.quiet)
			ctl_say("%s: done", ctl_command_name());
	}
	json_decref(answer);
	return rc;
}

static int command_control(const struct ctl_arguments *arguments)
{
	char path[256], *text = NULL;
	size_t len = 0;
	int fd = -1, rc;

	if (ctl.control)
		snprintf(path, sizeof(path), "%s", ctl.control);
	else
		wire_control_path(NULL, path, sizeof(path));
	rc = connect_to(path, &fd);
	if (rc != 0)
		return fail_connect(rc, path);
	rc = send_line(fd, ctl_command_name());
	if (rc == 0)
		rc = receive_all(fd, &text, &len);
	close(fd);
	if (rc != 0)
		return ctl_fail(rc, strerror(-rc), "%s by %s", ctl_command_name(), path);
	rc = show(text, len);
	free(text);
	return rc;
}

const struct ctl_command ctl_control_commands[] = {
	{"status", command_control, "", "state, addresses and counters of the daemon", NULL, 0, 0},
	{"connections", command_control, "", "the connections of the daemon", NULL, 0, 0},
	{"memory", command_control, "", "the memory of the daemon", NULL, 0, 0},
	{"resources", command_control, "", "descriptors, buffers and queues in use", NULL, 0, 0},
	{"reload", command_control, "", "read the configuration again, all or nothing", NULL, 0, 0},
	{"drain", command_control, "", "take no new connections, let the present ones finish", NULL, 0, 0},
	{"shutdown", command_control, "", "drain, then end the daemon", NULL, 0, 0},
	{NULL},
};
