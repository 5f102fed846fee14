/* rank.c: one rank, here or at another host. */
#include "run/run.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#define WORDS_MAX 64 /* of --rsh, with what is behind it */

bool rank_is_remote(const struct rank *rank)
{
	return rank->host->name != NULL;
}

/*
 * What it is told
 */
static void frame_add(struct rank *rank, enum wire_run_kind kind, const void *data, size_t length)
{
	struct wire_run_head head = wire_run_encode(kind, length);

	feed_add(&rank->in, &head, sizeof(head));
	feed_add(&rank->in, data, length);
}

static void frame_add_text(struct rank *rank, enum wire_run_kind kind, const char *text)
{
	frame_add(rank, kind, text, strlen(text));
}

static void frame_add_number(struct rank *rank, enum wire_run_kind kind, uint64_t number)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
	frame_add_text(rank, kind, text);
}

void rank_input(struct rank *rank, const void *data, size_t length)
{
	if (rank_is_remote(rank))
		frame_add(rank, WIRE_RUN_INPUT, data, length);
	else
		feed_add(&rank->in, data, length);
}

void rank_input_over(struct rank *rank)
{
	if (rank_is_remote(rank))
		frame_add(rank, WIRE_RUN_INPUT_OVER, NULL, 0);
	else
		feed_end(&rank->in);
}

void rank_signal(struct rank *rank, int number, bool hard)
{
	if (!rank->pid || rank->ended)
		return;
	/* Without an agent it would not be read. */
	if (!rank_is_remote(rank) || hard || (number == SIGKILL && rank->out.awaits_agent)) {
		kill(-rank->pid, number);
		return;
	}
	frame_add_number(rank, WIRE_RUN_SIGNAL, (uint64_t)number);
	feed_flush(&rank->in);
}

/*
 * Its start
 */

/* Opens its three descriptors: theirs in `fd`, ours in the feed and the streams. An agent's rank has the agent's
 * output. */
static int open_pipes(struct rank *rank, int fd[3])
{
	int rc = 0;

	if ((rank->rank == 0 && !run_options.no_stdin) || rank_is_remote(rank))
		rc = child_pipe(1, &rank->in.fd, &fd[0]);
	else if ((fd[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0)
		rc = -errno;
	for (int i = 1; i < 3 && rc == 0; i++)
		if (run_options.agent)
			fd[i] = fcntl(i, F_DUPFD_CLOEXEC, 3);
		else
			rc = child_pipe(0, i == 1 ? &rank->out.fd : &rank->err.fd, &fd[i]);
	return rc;
}

static int start_child(struct rank *rank, struct child *child)
{
	int rc = open_pipes(rank, child->fd);

	if (rc == 0)
		rc = child_start(child, rank->name);
	for (int i = 0; i < 3; i++)
		if (child->fd[i] >= 0)
			close(child->fd[i]);
	if (rc != 0)
		return rc;
	rank->pid = child->pid;
	guard_add(rank->pid);
	return 0;
}

/* Writes the command for the shell at the other end: 'PATH' --agent. */
static int agent_command(char *out, size_t size)
{
	char path[1024];
	const char *from = run_options.remote;
	size_t n = 0;

	if (!from) {
		ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);

		if (length < 0)
			return -errno;
		path[length] = '\0';
		from = path;
	}
	out[n++] = '\'';
	for (; *from && n + 16 < size; from++) {
		if (*from == '\'')
			n += (size_t)snprintf(out + n, size - n, "'\\''");
		else
			out[n++] = *from;
	}
	snprintf(out + n, size - n, "' --agent");
	return *from ? -ENAMETOOLONG : 0;
}

static void send_program(struct rank *rank, const struct buffer *env)
{
	const char *directory = run_options.directory;
	char here[4096];

	frame_add_number(rank, WIRE_RUN_GRACE, run_options.grace);
	for (const char *at = env->data; at < env->data + env->used; at += strlen(at) + 1)
		frame_add_text(rank, WIRE_RUN_ENVIRONMENT, at);
	if (!directory)
		directory = getcwd(here, sizeof(here));
	if (directory)
		frame_add_text(rank, WIRE_RUN_DIRECTORY, directory);
	for (char **word = run_options.argv; *word; word++)
		frame_add_text(rank, WIRE_RUN_ARGUMENT, *word);
	frame_add(rank, WIRE_RUN_START, NULL, 0);
	if (rank->rank != 0 || run_options.no_stdin)
		rank_input_over(rank);
}

static int start_remote(struct rank *rank, const struct buffer *env)
{
	char command[2048], *words = strdup(run_options.rsh), *state = NULL, *argv[WORDS_MAX];
	struct child child = {.argv = argv, .fd = {-1, -1, -1}};
	size_t n = 0;
	int rc = words ? agent_command(command, sizeof(command)) : -ENOMEM;

	for (char *word = words ? strtok_r(words, " \t", &state) : NULL; word && n < WORDS_MAX - 3;
	     word = strtok_r(NULL, " \t", &state))
		argv[n++] = word;
	if (rc == 0 && !n)
		rc = -EINVAL;
	argv[n++] = rank->host->name;
	argv[n++] = command;
	argv[n] = NULL;
	rank->out.awaits_agent = true;
	if (rc == 0)
		rc = start_child(rank, &child);
	else
		run_say("%s: --rsh \"%s\": %s", rank->name, run_options.rsh, strerror(-rc));
	if (rc == 0) {
		run_note("%s: process %d: %s %s %s", rank->name, (int)rank->pid, run_options.rsh, rank->host->name,
			 command);
		send_program(rank, env);
	}
	free(words);
	return rc;
}

/* A variable of this run, which another run that has this one as a rank may have set, too. Without a value: the rank
 * has none. */
__attribute__((format(printf, 2, 3))) static void add_variable(struct buffer *env, const char *format, ...)
{
	char text[512], *last;
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	last = text + strlen(text) - 1;
	if (*last == '=') {
		*last = '\0';
		unsetenv(text);
	} else {
		buffer_add(env, text, strlen(text) + 1);
	}
	auth_wipe(text, sizeof(text));
}

int rank_start(struct rank *rank, const struct run *run)
{
	const struct meeting *meeting = &run->meeting;
	struct child child = {.argv = run_options.argv, .directory = run_options.directory, .fd = {-1, -1, -1}};
	struct buffer env = {0};
	int rc;

	if (!run_options.agent) {
		add_variable(&env, "RDMA_RANK=%d", rank->rank);
		add_variable(&env, "RDMA_SIZE=%u", run->ranks);
		add_variable(&env, "RDMA_GROUP=%s", run->group);
		add_variable(&env, "RDMA_LOCAL_RANK=%d", rank->local_rank);
		add_variable(&env, "RDMA_LOCAL_SIZE=%u", rank->host->ranks);
		add_variable(&env, "RDMA_MEETING=%s", meeting->url);
		add_variable(&env, "RDMA_DIRECTORY=%s", run_hosts_remote(&run_options.hosts) ? "" : meeting->directory);
		add_variable(&env, "RDMA_KEY=%s", meeting->key);
	}
	buffer_add(&env, run_options.env.data, run_options.env.used);
	child.env = env;
	rc = rank_is_remote(rank) ? start_remote(rank, &env) : start_child(rank, &child);
	if (rc == 0 && !rank_is_remote(rank))
		run_note("%s: process %d: %s", rank->name, (int)rank->pid, run_options.argv[0]);
	auth_wipe(env.data, env.used);
	buffer_free(&env);
	return rc;
}

void rank_free(struct rank *rank)
{
	feed_close(&rank->in);
	stream_close(&rank->out);
	stream_close(&rank->err);
}
