/* rank.c: one rank, here or at another host. */
#include "run/run.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define WORDS_MAX 64 /* of --rsh, with what is behind it */
#define VARIABLES 8  /* that each rank is given */

bool rank_is_remote(const struct rank *rank)
{
	return rank->host->name != NULL;
}

/*
 * What it is told
 */
static void outbox_add(struct rank *rank, const void *data, size_t length)
{
	if (rank->to >= 0)
		run_append(&rank->outbox, &rank->waiting, &rank->room, data, length);
}

static void frame_add(struct rank *rank, enum wire_run_kind kind, const void *data, size_t length)
{
	struct wire_run_head head = wire_run_encode(kind, length);

	outbox_add(rank, &head, sizeof(head));
	outbox_add(rank, data, length);
}

static void frame_add_text(struct rank *rank, enum wire_run_kind kind, const char *text)
{
	frame_add(rank, kind, text, strlen(text));
}

void rank_input(struct rank *rank, const void *data, size_t length)
{
	if (rank_is_remote(rank))
		frame_add(rank, WIRE_RUN_INPUT, data, length);
	else
		outbox_add(rank, data, length);
}

static void close_to(struct rank *rank)
{
	if (rank->to >= 0)
		close(rank->to);
	rank->to = -1;
	rank->waiting = 0;
}

void rank_input_over(struct rank *rank)
{
	if (rank->input_over)
		return;
	rank->input_over = true;
	if (rank_is_remote(rank))
		frame_add(rank, WIRE_RUN_INPUT_OVER, "", 0);
	else if (!rank->waiting)
		close_to(rank);
}

void rank_flush(struct rank *rank)
{
	ssize_t n = write(rank->to, rank->outbox, rank->waiting);

	if (n < 0 && errno != EAGAIN && errno != EINTR) {
		close_to(rank); /* it does not read any more, which is its own affair */
		return;
	}
	n = MAX(n, 0);
	rank->waiting -= (size_t)n;
	memmove(rank->outbox, rank->outbox + n, rank->waiting);
	if (!rank->waiting && rank->input_over && !rank_is_remote(rank))
		close_to(rank);
}

void rank_signal(struct rank *rank, int number, bool hard)
{
	char text[16];

	if (!rank->started || rank->ended)
		return;
	/* Where no agent is, nobody would read of it. */
	if (!rank_is_remote(rank) || hard || (number == SIGKILL && rank->out.awaits_agent)) {
		kill(-rank->child.pid, number);
		return;
	}
	snprintf(text, sizeof(text), "%d", number);
	frame_add_text(rank, WIRE_RUN_SIGNAL, text);
	rank_flush(rank);
}

/*
 * Its start
 */

/* Its three descriptors: theirs in child.fd, ours in the streams. */
static int open_pipes(struct rank *rank)
{
	int *fd = rank->child.fd, rc = 0;

	fd[0] = fd[1] = fd[2] = -1;
	if ((rank->rank == 0 && !run_options.no_stdin) || rank_is_remote(rank))
		rc = child_pipe(1, &rank->to, &fd[0]);
	else if ((fd[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0)
		rc = -errno;
	if (rc == 0)
		rc = child_pipe(0, &rank->out.fd, &fd[1]);
	if (rc == 0)
		rc = child_pipe(0, &rank->err.fd, &fd[2]);
	return rc;
}

static int start_child(struct rank *rank)
{
	int rc = open_pipes(rank);

	if (rc == 0)
		rc = child_start(&rank->child, rank->name);
	for (int i = 0; i < 3; i++)
		if (rank->child.fd[i] >= 0)
			close(rank->child.fd[i]);
	rank->started = rc == 0;
	if (rc == 0)
		guard_add(rank->child.pid);
	return rc;
}

static int start_here(struct rank *rank, const char *const *first, size_t count)
{
	char **environment = child_environment(first, count);
	int rc;

	if (!environment)
		return -ENOMEM;
	rank->child.argv = run_options.argv;
	rank->child.envp = environment;
	rank->child.directory = run_options.directory;
	rc = start_child(rank);
	free(environment);
	rank->child.envp = NULL;
	if (rc == 0)
		run_note("%s: process %d: %s", rank->name, (int)rank->child.pid, run_options.argv[0]);
	return rc;
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
	n += (size_t)snprintf(out + n, size - n, "' --agent");
	return *from ? -ENAMETOOLONG : 0;
}

static void send_program(struct rank *rank, const char *const *first, size_t count)
{
	char grace[32], here[4096];

	snprintf(grace, sizeof(grace), "%llu", (unsigned long long)run_options.grace);
	frame_add_text(rank, WIRE_RUN_GRACE, grace);
	for (size_t i = 0; i < count; i++)
		frame_add_text(rank, WIRE_RUN_ENVIRONMENT, first[i]);
	if (run_options.directory)
		frame_add_text(rank, WIRE_RUN_DIRECTORY, run_options.directory);
	else if (getcwd(here, sizeof(here)))
		frame_add_text(rank, WIRE_RUN_DIRECTORY, here);
	for (char **word = run_options.argv; *word; word++)
		frame_add_text(rank, WIRE_RUN_ARGUMENT, *word);
	frame_add(rank, WIRE_RUN_START, "", 0);
	if (rank->rank != 0 || run_options.no_stdin)
		rank_input_over(rank);
}

static int start_remote(struct rank *rank, const char *const *first, size_t count)
{
	char command[2048], *words = strdup(run_options.rsh), *state = NULL, *argv[WORDS_MAX];
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
	rank->child.argv = argv;
	rank->out.awaits_agent = true;
	if (rc == 0)
		rc = start_child(rank);
	else
		run_say("%s: --rsh \"%s\": %s", rank->name, run_options.rsh, strerror(-rc));
	if (rc == 0) {
		run_note("%s: process %d: %s %s %s", rank->name, (int)rank->child.pid, run_options.rsh,
			 rank->host->name, command);
		send_program(rank, first, count);
	}
	free(words);
	rank->child.argv = NULL;
	return rc;
}

/* A variable of this run, which another run that has this one as a rank may have set, too. `value` NULL: the rank has
 * none. */
static size_t add_variable(char text[512], const char *name, const char *value, const char **first, size_t count)
{
	if (!value) {
		unsetenv(name);
		return count;
	}
	snprintf(text, 512, "%s=%s", name, value);
	first[count] = text;
	return count + 1;
}

static size_t add_number(char text[512], const char *name, unsigned number, const char **first, size_t count)
{
	char value[16];

	snprintf(value, sizeof(value), "%u", number);
	return add_variable(text, name, value, first, count);
}

int rank_start(struct rank *rank, unsigned size, const char *meeting, const char *directory, const char *key,
	       const char *group)
{
	char text[VARIABLES][512];
	size_t count = 0, owned;
	const char **first = calloc(VARIABLES + run_options.envs, sizeof(*first));
	int rc;

	if (!first)
		return -ENOMEM;
	count = add_number(text[0], "RDMA_RANK", (unsigned)rank->rank, first, count);
	count = add_number(text[1], "RDMA_SIZE", size, first, count);
	count = add_variable(text[2], "RDMA_GROUP", group, first, count);
	count = add_number(text[3], "RDMA_LOCAL_RANK", (unsigned)rank->local_rank, first, count);
	count = add_number(text[4], "RDMA_LOCAL_SIZE", (unsigned)rank->local_size, first, count);
	count = add_variable(text[5], "RDMA_MEETING", meeting, first, count);
	count = add_variable(text[6], "RDMA_DIRECTORY", directory, first, count);
	count = add_variable(text[7], "RDMA_KEY", key, first, count);
	owned = count;
	for (size_t i = 0; i < run_options.envs; i++) {
		const char *name = run_options.env[i], *value = getenv(name); /* NAME alone: as it is here */
		char *env = NULL;

		if (strchr(name, '='))
			env = strdup(name);
		else if (value && asprintf(&env, "%s=%s", name, value) < 0)
			env = NULL;
		if (env)
			first[count++] = env;
	}
	rc = rank_is_remote(rank) ? start_remote(rank, first, count) : start_here(rank, first, count);
	while (count > owned)
		free((char *)first[--count]);
	free(first);
	auth_wipe(text, sizeof(text));
	return rc;
}

void rank_free(struct rank *rank)
{
	close_to(rank);
	stream_close(&rank->out);
	stream_close(&rank->err);
	free(rank->outbox);
}
