/*
 * agent.c: rdmarun at another host, for one rank. Standard input brings frames of rank.c, and its end is the rank's;
 * standard output and standard error are the rank's own.
 */
#include "run/run.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define WORDS_MAX (1u << 20)  /* of arguments, and of variables */
#define INPUT_ROOM (1u << 20) /* while more waits for the rank, no more is read, but for the end */

struct words {
	char **word; /* ended by NULL */
	size_t count, room;
};

struct agent {
	struct words arguments, environment;
	char *directory;
	struct child child;
	bool started, ended, ending, broken;
	int status, signals, to; /* to: the rank's standard input; -1: closed */
	char *input;             /* frames that are not whole */
	size_t have, room;
	char *outbox; /* for the rank */
	size_t waiting, outbox_room;
	bool input_over;
	uint64_t grace, kill_at;
};

typedef int frame_fn(struct agent *a, char *text, size_t length);

static int words_add(struct words *words, const char *text)
{
	if (words->count + 2 > words->room) {
		size_t room = 2 * words->room + 16;
		char **grown = room < WORDS_MAX ? realloc(words->word, room * sizeof(*grown)) : NULL;

		if (!grown)
			return -ENOMEM;
		words->word = grown;
		words->room = room;
	}
	words->word[words->count] = strdup(text);
	if (!words->word[words->count])
		return -ENOMEM;
	words->word[++words->count] = NULL;
	return 0;
}

static void words_free(struct words *words)
{
	for (size_t i = 0; i < words->count; i++)
		free(words->word[i]);
	free(words->word);
}

static int take_argument(struct agent *a, char *text, size_t length)
{
	return words_add(&a->arguments, text);
}

static int take_environment(struct agent *a, char *text, size_t length)
{
	return words_add(&a->environment, text);
}

static int take_directory(struct agent *a, char *text, size_t length)
{
	free(a->directory);
	a->directory = strdup(text);
	return a->directory ? 0 : -ENOMEM;
}

static int take_grace(struct agent *a, char *text, size_t length)
{
	return units_parse_number(text, 0, UINT64_MAX, &a->grace);
}

static int take_start(struct agent *a, char *text, size_t length)
{
	char name[256] = "";
	int theirs, rc;

	if (a->started || !a->arguments.count)
		return -EPROTO;
	rc = child_pipe(1, &a->to, &theirs);
	if (rc != 0)
		return rc;
	a->child.argv = a->arguments.word;
	a->child.directory = a->directory;
	a->child.envp = child_environment((const char *const *)a->environment.word, a->environment.count);
	a->child.fd[0] = theirs;
	a->child.fd[1] = STDOUT_FILENO;
	a->child.fd[2] = STDERR_FILENO;
	gethostname(name, sizeof(name) - 1);
	rc = child_start(&a->child, name);
	close(theirs);
	free((char **)a->child.envp);
	a->child.envp = NULL;
	a->started = rc == 0;
	a->ended = rc != 0;
	a->status = rc == -ENOENT ? RUN_NOT_FOUND : rc == -EACCES ? RUN_NOT_EXECUTABLE : RUN_FAILED;
	return 0;
}

static void close_to(struct agent *a)
{
	if (a->to >= 0)
		close(a->to);
	a->to = -1;
	a->waiting = 0;
}

static int take_input(struct agent *a, char *text, size_t length)
{
	return a->to < 0 ? 0 : run_append(&a->outbox, &a->waiting, &a->outbox_room, text, length);
}

static int take_input_over(struct agent *a, char *text, size_t length)
{
	a->input_over = true;
	if (!a->waiting)
		close_to(a);
	return 0;
}

static void end_child(struct agent *a, int number)
{
	if (a->started && !a->ended)
		kill(-a->child.pid, number);
	if (number == SIGUSR1 || number == SIGUSR2 || a->ending)
		return;
	a->ending = true;
	a->kill_at = time_after(time_now(), a->grace);
}

static int take_signal_frame(struct agent *a, char *text, size_t length)
{
	uint64_t number;
	int rc = units_parse_number(text, 1, NSIG - 1, &number);

	if (rc == 0)
		end_child(a, (int)number);
	return rc;
}

static const struct {
	enum wire_run_kind kind;
	frame_fn *fn;
} frames[] = {
	{WIRE_RUN_ARGUMENT, take_argument},     {WIRE_RUN_ENVIRONMENT, take_environment},
	{WIRE_RUN_DIRECTORY, take_directory},   {WIRE_RUN_GRACE, take_grace},
	{WIRE_RUN_START, take_start},           {WIRE_RUN_INPUT, take_input},
	{WIRE_RUN_INPUT_OVER, take_input_over}, {WIRE_RUN_SIGNAL, take_signal_frame},
};

static int take_frame(struct agent *a, uint8_t kind, char *data, size_t length)
{
	int rc = -EPROTO;
	char *text = malloc(length + 1);

	if (!text)
		return -ENOMEM;
	memcpy(text, data, length);
	text[length] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(frames); i++)
		if (frames[i].kind == (enum wire_run_kind)kind)
			rc = frames[i].fn(a, text, length);
	free(text);
	return rc;
}

/* All frames that are whole. */
static int take_frames(struct agent *a)
{
	size_t at = 0;
	int rc = 0;

	while (rc == 0 && a->have - at >= sizeof(struct wire_run_head)) {
		const struct wire_run_head *head = (const struct wire_run_head *)(a->input + at);
		size_t length;

		rc = wire_run_decode(head, &length);
		if (rc != 0 || a->have - at - sizeof(*head) < length)
			break;
		rc = take_frame(a, head->kind, (char *)(head + 1), length);
		at += sizeof(*head) + length;
	}
	a->have -= at;
	memmove(a->input, a->input + at, a->have);
	return rc;
}

/* Nobody is there any more whose rank this is. */
static void agent_lose(struct agent *a)
{
	a->broken = true;
	close_to(a);
	if (a->started)
		end_child(a, SIGTERM);
	else
		a->ended = true;
}

static void read_frames(struct agent *a)
{
	char piece[64 * 1024];
	ssize_t n = read(STDIN_FILENO, piece, sizeof(piece));
	int rc = n > 0 ? run_append(&a->input, &a->have, &a->room, piece, (size_t)n) : 0;

	if (rc == 0 && n > 0)
		rc = take_frames(a);
	if (rc != 0)
		run_say("what came is of no rdmarun of this version: %s", strerror(-rc));
	if (rc != 0 || n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
		agent_lose(a);
}

static void flush_outbox(struct agent *a)
{
	ssize_t n = write(a->to, a->outbox, a->waiting);

	if (n < 0 && errno != EAGAIN && errno != EINTR) {
		close_to(a);
		return;
	}
	n = MAX(n, 0);
	a->waiting -= (size_t)n;
	memmove(a->outbox, a->outbox + n, a->waiting);
	if (!a->waiting && a->input_over)
		close_to(a);
}

static void take_signal(struct agent *a)
{
	struct signalfd_siginfo got;
	siginfo_t info;

	if (read(a->signals, &got, sizeof(got)) != (ssize_t)sizeof(got))
		return;
	if (got.ssi_signo != SIGCHLD) {
		end_child(a, (int)got.ssi_signo);
		return;
	}
	while (child_reap(&info)) {
		if (!a->started || info.si_pid != a->child.pid)
			continue;
		a->ended = true;
		a->status = child_exit_status(&info);
	}
}

static void agent_turn(struct agent *a)
{
	bool full = a->waiting > INPUT_ROOM;
	uint64_t now = time_now();
	struct pollfd fd[3] = {
		{.fd = a->broken ? -1 : STDIN_FILENO, .events = full ? POLLRDHUP : POLLIN | POLLRDHUP},
		{.fd = a->signals, .events = POLLIN},
		{.fd = a->waiting ? a->to : -1, .events = POLLOUT},
	};
	int limit = a->kill_at == TIME_NEVER ? -1 : a->kill_at > now ? (int)((a->kill_at - now) / TIME_MS) + 1 : 0;

	if (poll(fd, ARRAY_SIZE(fd), limit) > 0) {
		if (fd[2].revents)
			flush_outbox(a);
		if (fd[0].revents & POLLIN)
			read_frames(a);
		else if (fd[0].revents)
			agent_lose(a);
		if (fd[1].revents)
			take_signal(a);
	}
	if (time_now() >= a->kill_at && a->started && !a->ended) {
		kill(-a->child.pid, SIGKILL);
		a->kill_at = TIME_NEVER;
	}
}

int run_agent(void)
{
	struct agent a = {.to = -1, .grace = 5 * TIME_S, .kill_at = TIME_NEVER, .status = RUN_FAILED};

	a.signals = child_signals();
	if (a.signals < 0)
		return RUN_FAILED;
	fcntl(STDIN_FILENO, F_SETFD, FD_CLOEXEC);
	puts(WIRE_RUN_GREETING);
	fflush(stdout);
	while (!a.ended)
		agent_turn(&a);
	close_to(&a);
	words_free(&a.arguments);
	words_free(&a.environment);
	free(a.directory);
	free(a.input);
	free(a.outbox);
	return a.status;
}
