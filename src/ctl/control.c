/* control.c: ask the daemon by its control socket: one line there, one JSON object back. */
#include "ctl/watch/watch.h"
#include "base/local.h"
#include "wire/wire.h"

#include <stdlib.h>
#include <unistd.h>

static bool yes;

static bool all;

static const char *every; /* of --watch; NULL: once */

static struct watch_times times;

static const struct ctl_option status_options[] = {
	{"all", 'a', CTL_FLAG, &all, NULL, "counters that are 0, too"},
	{"watch", 'w', CTL_CHECKED, &every, "SECONDS", "look again and again, every 2 s without a number; q leaves",
	 .check = watch_every_check, .otherwise = "2"},
	{"count", 'c', CTL_NUMBER, &times.count, "COUNT", "with --watch: end after so many looks", .min = 1},
	{NULL},
};

static const struct ctl_option end_options[] = {
	{"yes", 'y', CTL_FLAG, &yes, NULL, "do not ask"},
	{NULL},
};

#define ANSWER_MAX (64u << 20)
#define READ_LEAST 16384
#define ANSWER_LIMIT (10 * TIME_S) /* unless --timeout says another */

/* Everything until the daemon closes. free() *out. */
static int receive_all(int fd, char **out, size_t *len)
{
	char *text = NULL, *to;
	size_t room = 0;
	ssize_t got;
	int rc = 0;

	*len = 0;
	do {
		to = buffer_grow(&text, &room, *len, READ_LEAST, ANSWER_MAX);
		got = to ? recv(fd, to, room - *len, 0) : -1;
		if (got < 0)
			rc = !to ? -ENOMEM : errno == EAGAIN ? -ETIMEDOUT : -errno;
		else
			*len += (size_t)got;
	} while (got > 0);
	if (rc != 0)
		free(text);
	else
		*out = text;
	return rc;
}

/* The socket that was named; NULL: none was. */
static const char *named_socket(void)
{
	const char *path = ctl.control ? ctl.control : getenv("RDMAD_CONTROL");

	return path && *path ? path : NULL;
}

static int fail_connect(int error, const char *path)
{
	char system[256];

	if (error != -EACCES && error != -EPERM && error != -ENOENT && error != -ECONNREFUSED)
		return ctl_fail(error, strerror(-error), "cannot reach the daemon at %s", path);
	if (error == -EACCES || error == -EPERM) {
		ctl_say("cannot reach the daemon at %s: %s", path, strerror(-error));
		fputs("run rdmactl as root or as the user of rdmad\n", stderr);
	} else if (!named_socket() && geteuid() != 0 &&
		   access(wire_control_path("/run/rdmad", system, sizeof(system)), F_OK) == 0) {
		ctl_say("no daemon of yours is at %s; the system's is at %s, and answers root", path, system);
		fprintf(stderr, "try: sudo rdmactl %s\n", ctl_command_name());
	} else {
		ctl_say("cannot reach the daemon at %s: %s", path, strerror(-error));
		fputs("start the daemon with: rdmad; where one of another user or file runs: --control PATH, its "
		      "control.socket\n",
		      stderr);
	}
	return CTL_UNREACHABLE;
}

/* A connection on which nothing waits for longer than --timeout says, or -errno. */
static int connect_to(const char *path)
{
	return local_connect(path, ctl.timeout == TIME_NEVER ? ANSWER_LIMIT : ctl.timeout);
}

/* Not a program of another user, which has made the socket in a place that all users may write to. Root goes where it
 * says. */
static bool is_trusted(uid_t user)
{
	return geteuid() == 0 || local_is_own_user(user);
}

static bool is_ours(int fd, const char *path)
{
	struct ucred peer;
	int rc = local_peer(fd, &peer);

	if (rc != 0) {
		ctl_say("%s: the kernel does not tell whose it is: %s", path, strerror(-rc));
		return false;
	}
	if (is_trusted(peer.uid))
		return true;
	ctl_say("%s is of user %u, and neither of this user, %u, nor of root: nothing was said to it", path,
		(unsigned)peer.uid, (unsigned)geteuid());
	fputs("name the daemon's socket with --control, or start one with: rdmad\n", stderr);
	return false;
}

/* One command there and its answer back: free() *out. 0 or -errno. */
static int control_exchange(int fd, const char *command, char **out, size_t *len)
{
	char line[WIRE_CONTROL_LINE];
	int n = snprintf(line, sizeof(line), "%s\n", command);
	ssize_t sent = send(fd, line, (size_t)n, MSG_NOSIGNAL);

	if (sent < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	return sent == n ? receive_all(fd, out, len) : -EIO;
}

/* The same at the socket of that path. 0 or an exit status, with the cause told. */
static int socket_ask(const char *path, const char *command, char **out, size_t *len)
{
	int fd = connect_to(path), rc;

	if (fd < 0)
		return fail_connect(fd, path);
	if (!is_ours(fd, path)) {
		close(fd);
		return CTL_UNREACHABLE;
	}
	rc = control_exchange(fd, command, out, len);
	close(fd);
	if (rc == -ETIMEDOUT) {
		ctl_say("%s: no answer by %s in time", command, path);
		fputs("the limit is --timeout; does the daemon stand still? see its log\n", stderr);
		return CTL_TIMEOUT;
	}
	return rc ? ctl_fail(rc, strerror(-rc), "%s by %s", command, path) : CTL_OK;
}

/* Takes the text apart: *out is the answer, also of a failure that it tells of, where there is one at all. */
static int answer_parse(const char *text, size_t len, json_t **out)
{
	json_error_t error;
	json_t *answer = json_loadb(text, len, 0, &error);
	json_t *reason;
	const char *why;
	int rc = CTL_OK;
	size_t i;

	*out = NULL;
	if (!json_is_object(answer)) {
		json_decref(answer);
		return ctl_fail(-EPROTO, "its answer is not a JSON object; is it an rdmad?", "%s", ctl_command_name());
	}
	json_array_foreach(json_object_get(answer, "reasons"), i, reason)
		ctl_say("%s: %s", ctl_command_name(), json_string_value(reason));
	if (!json_is_true(json_object_get(answer, "ok"))) {
		why = json_string_value(json_object_get(answer, "error"));
		rc = ctl_fail(-EREMOTEIO, why ? why : "refused", "%s", ctl_command_name());
	}
	*out = answer;
	return rc;
}

/* For people: what is looked for first, and of the counters the ones above 0. */
static void put_in_order(json_t *status)
{
	static const char *const late[] = {"listen", "missing", "gpu", "channel", "peer", "counters"};
	const char *name;
	json_t *counter;
	void *next;

	json_object_foreach_safe(json_object_get(status, "counters"), next, name, counter)
	{
		if (!all && json_integer_value(counter) == 0)
			json_object_del(json_object_get(status, "counters"), name);
	}
	for (size_t i = 0; i < ARRAY_SIZE(late); i++) {
		json_t *moved = json_incref(json_object_get(status, late[i]));

		json_object_del(status, late[i]);
		if (moved)
			json_object_set_new(status, late[i], moved);
	}
}

void ctl_control_render(FILE *out, json_t *answer)
{
	json_object_del(answer, "ok");
	put_in_order(answer);
	ctl_render(out, answer);
}

static int answer_show(const char *text, size_t len)
{
	json_t *answer;
	int rc = answer_parse(text, len, &answer);

	if (!answer)
		return rc;
	if (ctl.json)
		return ctl_json_print(answer) ? CTL_FAILED : rc;
	if (rc == CTL_OK) {
		ctl_control_render(stdout, answer);
		if (!json_object_size(answer) && !ctl.quiet)
			ctl_say("%s: done", ctl_command_name());
	}
	json_decref(answer);
	return rc;
}

static char *path_of_socket(char *buf, size_t size)
{
	if (!named_socket())
		return wire_control_path(NULL, buf, size);
	snprintf(buf, size, "%s", named_socket());
	return buf;
}

int ctl_control_ask(const char *command, json_t **out)
{
	char path[256], *text = NULL;
	size_t len = 0;
	int rc = socket_ask(path_of_socket(path, sizeof(path)), command, &text, &len);

	*out = NULL;
	if (rc == CTL_OK)
		rc = answer_parse(text, len, out);
	free(text);
	if (rc != CTL_OK) {
		json_decref(*out);
		*out = NULL;
	}
	return rc;
}

json_t *ctl_control_try(const char *command)
{
	char path[256], *text = NULL;
	int fd = connect_to(path_of_socket(path, sizeof(path)));
	json_t *answer = NULL;
	struct ucred peer;
	size_t len = 0;

	if (fd < 0)
		return NULL;
	if (local_peer(fd, &peer) == 0 && is_trusted(peer.uid) && control_exchange(fd, command, &text, &len) == 0)
		answer = json_loadb(text, len, 0, NULL);
	close(fd);
	free(text);
	return answer;
}

static int command_control(const struct ctl_arguments *arguments)
{
	char path[256], line[WIRE_CONTROL_LINE / 2], *text = NULL;
	size_t len = 0;
	int rc;

	snprintf(line, sizeof(line), "%s%s%s", ctl_command_name(), arguments->count ? " " : "",
		 arguments->count ? arguments->text[0] : "");
	rc = socket_ask(path_of_socket(path, sizeof(path)), line, &text, &len);

	if (rc == CTL_OK)
		rc = answer_show(text, len);
	free(text);
	return rc;
}

/* The answer's text as it is: what is scraped by HTTP, too. */
static int command_metrics(const struct ctl_arguments *arguments)
{
	json_t *answer;
	int rc;

	if (ctl.json)
		return command_control(arguments);
	rc = ctl_control_ask("metrics", &answer);
	if (rc == CTL_OK)
		fputs(json_string_value(json_object_get(answer, "text")), stdout);
	json_decref(answer);
	return rc;
}

/*
 * status --watch
 */
static int look_at_status(void *arg)
{
	json_t **status = arg;

	json_decref(*status);
	return ctl_control_ask("status", status);
}

static void draw_status(void *arg, FILE *out)
{
	json_t **status = arg;

	ctl_control_render(out, *status);
}

static json_t *json_of_status(void *arg)
{
	json_t **status = arg;

	return json_incref(*status);
}

static int command_status(const struct ctl_arguments *arguments)
{
	json_t *status = NULL;
	struct watch_view view = {
		.look = look_at_status,
		.draw = draw_status,
		.json = json_of_status,
		.arg = &status,
	};
	int rc;

	if (!every && times.count)
		return ctl_usage_error("status: --count is of --watch");
	if (!every)
		return command_control(arguments);
	times.every = watch_every(every);
	rc = watch_run(&view, &times);
	json_decref(status);
	return rc;
}

static int64_t number_of(const json_t *object, const char *name)
{
	return json_integer_value(json_object_get(object, name));
}

/* The question says what ends for whom. */
static int command_end(const struct ctl_arguments *arguments)
{
	json_t *status;
	char path[256];
	int rc;

	if (yes || !isatty(STDIN_FILENO))
		return command_control(arguments);
	rc = ctl_control_ask("status", &status);
	if (rc != CTL_OK)
		return rc;
	if (!ctl_confirmed("%s the rdmad of process %lld at %s, connections %lld, keys %lld?", ctl_command_name(),
			   (long long)number_of(status, "pid"), path_of_socket(path, sizeof(path)),
			   (long long)number_of(status, "connections"),
			   (long long)number_of(json_object_get(status, "store"), "items"))) {
		ctl_say("%s: nothing was done", ctl_command_name());
		rc = CTL_FAILED;
	}
	json_decref(status);
	return rc == CTL_OK ? command_control(arguments) : rc;
}

const struct ctl_command ctl_control_commands[] = {
	{"status", command_status, "", "state, addresses and counters of the daemon", status_options, .local = true},
	{"memory", command_control, "", "the memory of the daemon", .local = true},
	{"resources", command_control, "", "descriptors, buffers and queues in use", .local = true},
	{"metrics", command_metrics, "", "the daemon's metrics, as Prometheus reads them", .local = true},
	{"reload", command_control, "", "read the configuration again, all or nothing", .local = true},
	{"drain", command_end, "", "take no new connections, let the present ones finish", end_options, .local = true},
	{"shutdown", command_end, "", "drain, then end the daemon", end_options, .local = true},
	{NULL},
};
