/*
 * control.c: the control socket: one line in, one JSON object out, closed. A client that is slow, silent or sends
 * garbage costs a descriptor and CLIENT_TIMEOUT, nothing else. A descriptor is kept in reserve, so that one client is
 * served also when connections have taken all others.
 */
#include "daemon/daemon.h"
#include "base/local.h"

#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#define CLIENTS_MAX 16
#define CLIENT_TIMEOUT (5 * TIME_S)
#define ACCEPT_PAUSE (100 * TIME_MS) /* when there is no descriptor, and the reserve is in use */

struct control {
	struct daemon *daemon;
	struct local_file file;
	bool others;     /* the socket's mode lets other users come */
	int fd, reserve; /* reserve -1: it is in use */
	struct loop_watch *watch, *pause;
	struct list clients;
	unsigned count;
};

struct client {
	struct list node;
	struct control *control; /* NULL: closed, and the workers' answer is still to come */
	bool asking;             /* the workers have the question and will come back to it */
	int fd;
	struct loop_watch *watch, *timer;
	const struct command *command;
	json_t *acted;       /* the answer of a command that acted, and waits for the workers */
	uint64_t connection; /* the argument of a command that needs one */
	char line[WIRE_CONTROL_LINE];
	size_t used;
	char *answer;
	size_t length, sent;
};

/* `answer` makes the object, from what the workers reported where `needs` says so, or `act` makes it before: where
 * NEEDS_TURN says so, it is the answer when each worker has ended the turn in which that was. `after` acts once the
 * answer is on its way. */
struct command {
	const char *name;
	enum { NEEDS_NOTHING, NEEDS_TURN, NEEDS_STATS, NEEDS_LIST, NEEDS_HOT, NEEDS_CONNECTION, NEEDS_END } needs;
	json_t *(*answer)(const struct status *status);
	json_t *(*act)(struct daemon *daemon);
	void (*after)(struct daemon *daemon);
};

/* A text that may have been cut off. */
static json_t *array_of_lines(const char *lines)
{
	json_t *array = json_array();
	char line[512];

	for (size_t n; *lines; lines += n + (lines[n] == '\n')) {
		n = strcspn(lines, "\n");
		snprintf(line, sizeof(line), "%.*s", (int)MIN(n, sizeof(line) - 1), lines);
		json_array_append_new(array, json_string(line));
	}
	return array;
}

static json_t *reload_answer(struct daemon *d)
{
	struct reloaded told;
	int rc = daemon_reload(d, &told);

	if (rc == 0)
		return json_pack("{s:o, s:o}", "changed", array_of_lines(told.changed), "needs_restart",
				 array_of_lines(told.restart));
	if (rc == -ESHUTDOWN)
		return json_pack("{s:s}", "error", "the daemon is ending");
	return json_pack("{s:s, s:o}", "error", "nothing was changed", "reasons", array_of_lines(told.reasons));
}

static json_t *hot_begin(struct daemon *d)
{
	workers_tell(d, WORKER_HOT);
	return json_pack("{s:b}", "begun", true);
}

static json_t *slow_taken(struct daemon *d)
{
	json_t *o = status_slow_json(d);

	if (o)
		service_slow_reset(d->slow);
	return o;
}

static json_t *checkpoint_answer(struct daemon *d)
{
	int rc = service_shared_command(&d->shared, "checkpoint");

	if (rc == 0 || rc == -EALREADY)
		return json_pack("{s:b}", "begun", rc == 0);
	return json_pack("{s:s}", "error", "there is no log: set log.directory and log.policy in rdmad.conf");
}

static json_t *workers_agree(struct daemon *d)
{
	return json_pack("{s:I}", "connections", (json_int_t)workers_load(d));
}

static json_t *connection_answer(const struct status *status)
{
	if (!status->total.count)
		return json_pack("{s:s}", "error", "there is no such connection: see rdmactl conn list");
	return status_connections_json(status);
}

static json_t *disconnect_answer(const struct status *status)
{
	const struct conn_info *c = status->total.list;

	if (!status->total.count)
		return connection_answer(status);
	log_info("control", "disconnects #%" PRIu64 ", %s (%s, %s)", c->id, c->peer, c->service, c->transport);
	return status_connections_json(status);
}

static const struct command commands[] = {
	{"status", NEEDS_STATS, .answer = status_json},
	{"connections", NEEDS_LIST, .answer = status_connections_json},
	{"connection", NEEDS_CONNECTION, .answer = connection_answer},
	{"disconnect", NEEDS_END, .answer = disconnect_answer},
	{"memory", NEEDS_STATS, .answer = status_memory_json},
	{"resources", NEEDS_STATS, .answer = status_resources_json},
	{"metrics", NEEDS_STATS, .answer = metrics_json},
	{"reload", NEEDS_TURN, .act = reload_answer},
	{"hot-begin", NEEDS_NOTHING, .act = hot_begin},
	{"hot", NEEDS_HOT, .answer = status_hot_json},
	{"slow", NEEDS_NOTHING, .act = status_slow_json},
	{"slow-reset", NEEDS_NOTHING, .act = slow_taken},
	{"checkpoint", NEEDS_NOTHING, .act = checkpoint_answer},
	{"drain", NEEDS_NOTHING, .act = workers_agree, .after = daemon_drain},
	{"shutdown", NEEDS_NOTHING, .act = workers_agree, .after = daemon_end},
};

static void reserve_descriptor(struct control *control)
{
	if (control->reserve < 0)
		control->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void client_close(struct client *c)
{
	loop_remove(c->watch);
	loop_remove(c->timer);
	local_close(c->fd);
	reserve_descriptor(c->control);
	list_del(&c->node);
	c->control->count--;
	c->control = NULL;
	free(c->answer);
	json_decref(c->acted);
	c->acted = NULL;
	if (!c->asking)
		free(c);
}

static void client_write(struct client *c)
{
	while (c->sent < c->length) {
		ssize_t n = send(c->fd, c->answer + c->sent, c->length - c->sent, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			loop_change_fd(c->watch, LOOP_WRITE);
			return;
		}
		if (n < 0)
			break;
		c->sent += (size_t)n;
	}
	client_close(c);
}

/* Takes `object`; NULL: no memory. */
static void client_answer(struct client *c, json_t *object)
{
	struct daemon *d = c->control->daemon;
	const struct command *command = c->command;
	bool ok = object && !json_object_get(object, "error");
	char *text;

	must(!c->answer);
	if (!object)
		object = json_pack("{s:s}", "error", "no memory");
	json_object_set_new(object, "ok", json_boolean(ok));
	text = json_dumps(object, JSON_COMPACT); /* NULL: no memory, and the client sees the end without an answer */
	json_decref(object);
	if (text) {
		c->answer = text;
		c->length = strlen(text) + 1;
		text[c->length - 1] = '\n'; /* in place of the end: it goes out by its length */
	}
	client_write(c);
	if (ok && command && command->after)
		command->after(d);
}

static void status_gathered(void *arg, struct status *status)
{
	struct client *c = arg;

	c->asking = false;
	if (!c->control) {
		free(c); /* it went away meanwhile */
	} else if (c->acted) {
		json_t *acted = c->acted;

		c->acted = NULL;
		client_answer(c, acted);
	} else {
		client_answer(c, c->command->answer(status));
	}
}

static const struct command *command_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

/* Names go into an answer in JSON. */
static bool is_printable(const char *s)
{
	for (; *s; s++)
		if (*s < ' ' || *s > '~')
			return false;
	return true;
}

static void client_command(struct client *c)
{
	static const enum status_list lists[] = {
		[NEEDS_LIST] = STATUS_LIST,
		[NEEDS_HOT] = STATUS_HOT,
		[NEEDS_CONNECTION] = STATUS_LIST,
		[NEEDS_END] = STATUS_END,
	};
	size_t end = strcspn(c->line, " \t\r\n"), at = end + strspn(c->line + end, " \t\r\n");
	const struct command *command;
	char *argument = c->line + at;

	argument[strcspn(argument, " \t\r\n")] = '\0';
	c->line[end] = '\0';
	command = command_find(c->line);
	log_debug("control", "command %s", command ? command->name : "that does not exist");
	if (!command) {
		client_answer(c, json_pack("{s:s+}", "error", "there is no command ",
					   is_printable(c->line) ? c->line : "of such bytes"));
		return;
	}
	c->command = command;
	if (command->needs == NEEDS_NOTHING) {
		client_answer(c, command->act(c->control->daemon));
		return;
	}
	if (command->needs >= NEEDS_CONNECTION && units_parse_number(argument, 1, UINT64_MAX, &c->connection) != 0) {
		client_answer(c, json_pack("{s:s}", "error", "it takes the id of a connection: see rdmactl conn list"));
		return;
	}
	if (command->needs == NEEDS_TURN) {
		c->acted = command->act(c->control->daemon);
		if (!c->acted) {
			client_answer(c, NULL);
			return;
		}
	}
	/* Only its end matters until the answer. */
	loop_change_fd(c->watch, 0);
	c->asking = true;
	if (status_gather(c->control->daemon, lists[command->needs], c->connection, status_gathered, c) != 0) {
		c->asking = false;
		client_answer(c, NULL);
	}
}

static void client_ready(void *arg)
{
	struct client *c = arg;
	ssize_t n;

	if (c->answer) {
		client_write(c);
		return;
	}
	n = local_recv(c->fd, c->line + c->used, sizeof(c->line) - 1 - c->used);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		client_close(c);
		return;
	}
	c->used += (size_t)n;
	c->line[c->used] = '\0';
	if (memchr(c->line, '\n', c->used))
		client_command(c);
	else if (!isprint((unsigned char)c->line[0]))
		/* A client of the services is told at once, and not by a time-out. */
		client_answer(c, json_pack("{s:s}", "error", "this is the control socket, which takes lines of text"));
	else if (c->used == sizeof(c->line) - 1)
		client_answer(c, json_pack("{s:s}", "error", "the command is too long"));
}

static void client_late(void *arg)
{
	client_close(arg);
}

static bool user_allowed(int fd)
{
	struct ucred peer;

	if (local_peer(fd, &peer) != 0)
		return false;
	if (local_is_own_user(peer.uid))
		return true;
	log_warn("control", "user %u, process %d: not allowed", (unsigned)peer.uid, (int)peer.pid);
	return false;
}

static struct client *client_new(struct control *control, int fd)
{
	struct client *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->control = control;
	c->fd = fd;
	c->watch = loop_add_fd(control->daemon->loop, fd, LOOP_READ, client_ready, c);
	c->timer = loop_add_timer(control->daemon->loop, client_late, c);
	if (!c->watch || !c->timer) {
		loop_remove(c->watch);
		loop_remove(c->timer);
		free(c);
		return NULL;
	}
	loop_set_timer(c->timer, CLIENT_TIMEOUT);
	list_add_tail(&control->clients, &c->node);
	control->count++;
	return c;
}

static bool out_of_descriptors(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

static void accept_pause(struct control *control)
{
	loop_change_fd(control->watch, 0);
	loop_set_timer(control->pause, ACCEPT_PAUSE);
}

/* As accept(); the reserve takes the place of a descriptor that is not there. Else it looks again after a pause, as the
 * socket stays readable. */
static int accept_by_reserve(struct control *control)
{
	int fd = accept4(control->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd >= 0 || !out_of_descriptors(errno))
		return fd;
	if (control->reserve >= 0) {
		close(control->reserve);
		control->reserve = -1;
		fd = accept4(control->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	}
	if (fd >= 0 || !out_of_descriptors(errno))
		return fd;
	log_warn("control", "cannot take a client: %m");
	accept_pause(control);
	return -1;
}

static void accept_again(void *arg)
{
	struct control *control = arg;

	reserve_descriptor(control);
	loop_change_fd(control->watch, LOOP_READ);
}

static void accept_client(void *arg)
{
	static const char refused[] = "{\"ok\":false,\"error\":\"only root and the daemon's user may\"}\n";
	static const char busy[] = "{\"ok\":false,\"error\":\"too many control clients\"}\n";
	struct control *control = arg;
	const char *why = NULL;
	int fd = -1;

	if (control->others && local_closing_full())
		accept_pause(control);
	else
		fd = accept_by_reserve(control);
	if (fd < 0)
		return;
	if (!user_allowed(fd))
		why = refused;
	else if (control->count >= CLIENTS_MAX)
		why = busy;
	else if (client_new(control, fd))
		return;
	if (why && send(fd, why, strlen(why), MSG_NOSIGNAL) < 0)
		log_debug("control", "cannot refuse: %m");
	local_close(fd);
	reserve_descriptor(control);
}

/* 0 or an exit status. */
static int listen_on(struct control *control, const char *path, mode_t mode)
{
	struct sockaddr_un at;
	int rc;

	rc = local_address(path, &at);
	control->fd = rc == 0 ? inherited_take(control->daemon, (const struct sockaddr *)&at) : -1;
	if (control->fd >= 0) {
		control->others = true; /* its mode is the service manager's */
		return 0;
	}
	if (process_make_parent(path) != 0)
		return EX_CANTCREAT;
	if (rc == 0)
		rc = local_listen(&at, sizeof(at), SOCK_STREAM, mode, &control->file);
	if (rc >= 0) {
		control->fd = rc;
		return 0;
	}
	return log_fail(rc == -EACCES || rc == -EPERM ? EX_NOPERM : EX_CANTCREAT, "control",
			"cannot listen on %s: %s%s", path, strerror(-rc),
			rc == -EADDRINUSE ? "; another rdmad has it: stop that one, or set control.socket"
			: rc == -EACCES
				? "; the daemon's user may not write there: change control.socket or XDG_RUNTIME_DIR"
				: "");
}

int control_open(struct daemon *d)
{
	struct control *control = calloc(1, sizeof(*control));
	int rc;

	must(daemon_is_main(d));
	if (!control)
		return EX_OSERR;
	control->daemon = d;
	control->others = d->config->control_mode & 066;
	list_init(&control->clients);
	rc = listen_on(control, d->config->control_socket, (mode_t)d->config->control_mode);
	if (rc != 0)
		goto free_control;
	rc = EX_OSERR;
	control->watch = loop_add_fd(d->loop, control->fd, LOOP_READ, accept_client, control);
	control->pause = loop_add_timer(d->loop, accept_again, control);
	if (!control->watch || !control->pause)
		goto close_socket;
	control->reserve = -1;
	reserve_descriptor(control);
	d->control = control;
	return 0;

close_socket:
	loop_remove(control->pause);
	loop_remove(control->watch);
	local_file_remove(&control->file);
	close(control->fd);
free_control:
	free(control);
	return rc;
}

void control_close(struct daemon *d)
{
	struct control *control = d->control;

	must(daemon_is_main(d));
	while (!list_empty(&control->clients))
		client_close(list_first(&control->clients, struct client, node));
	loop_remove(control->pause);
	loop_remove(control->watch);
	if (control->reserve >= 0)
		close(control->reserve);
	local_file_remove(&control->file);
	local_close(control->fd); /* what was not accepted may hold a descriptor */
	free(control);
	d->control = NULL;
}
