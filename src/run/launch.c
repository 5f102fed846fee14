/* launch.c: the ranks of a run, from the first to the end of the last. */
#include "run/run.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define PIECE (64u * 1024)
#define FOREGROUND_INTERVAL (200 * TIME_MS) /* nothing tells that a shell's `fg` gave the terminal back */
#define DRAIN_LIMIT (2 * TIME_S) /* what a process that left its rank's group keeps open is not waited for any longer */

struct run {
	struct rank *rank;
	unsigned ranks, alive;
	struct sink out, err;
	struct meeting meeting;
	char group[40];
	int signals, input; /* descriptors; input -1: over */
	int status;         /* of the first that failed; 0: none has */
	bool ending;        /* all were told to end */
	bool asked;         /* by a signal or the time: what nobody reads is not waited for */
	unsigned killed;    /* how often: softly, hard */
	uint64_t kill_at, timeout_at, drain_at;
};

/*
 * Places
 */
static void place_rank(struct run *run, unsigned rank, struct run_host *host)
{
	struct rank *r = &run->rank[rank];

	*r = (struct rank){.rank = (int)rank, .local_rank = (int)host->ranks++, .host = host, .to = -1};
	r->out = (struct stream){.fd = -1, .sink = &run->out, .rank = (int)rank};
	r->err = (struct stream){.fd = -1, .sink = &run->err, .rank = (int)rank};
	snprintf(r->name, sizeof(r->name), "rank %u%s%s", rank, host->name ? " at " : "", host->name ? host->name : "");
}

/* A host may be named several times: its ranks are counted at the first. */
static struct run_host *first_of_name(const struct run_hosts *hosts, const struct run_host *host)
{
	unsigned h = 0;

	while (strcmp(hosts->host[h].name ? hosts->host[h].name : "", host->name ? host->name : "") != 0)
		h++;
	return &hosts->host[h];
}

/* Each host has as many ranks as slots, in their order; with more ranks than slots, from the first again. */
static void place_all(struct run *run)
{
	struct run_hosts *hosts = &run_options.hosts;
	unsigned rank = 0;

	while (rank < run->ranks)
		for (unsigned h = 0; h < hosts->count; h++)
			for (unsigned slot = 0; slot < hosts->host[h].slots && rank < run->ranks; slot++)
				place_rank(run, rank++, first_of_name(hosts, &hosts->host[h]));
	for (rank = 0; rank < run->ranks; rank++)
		run->rank[rank].local_size = (int)run->rank[rank].host->ranks;
}

/*
 * The end
 */
static void signal_all(struct run *run, int number, bool hard)
{
	for (unsigned i = 0; i < run->ranks; i++)
		rank_signal(&run->rank[i], number, hard);
}

static void end_all(struct run *run, int number)
{
	if (!run->ending) {
		run->ending = true;
		run->kill_at = time_after(time_now(), run_options.grace);
	}
	signal_all(run, number, false);
}

/* Kills; at the second time, the remote shell itself, at whose end its agent kills. */
static void kill_all(struct run *run)
{
	run_note("killing what has not ended");
	signal_all(run, SIGKILL, run->killed++ > 0);
	run->kill_at = time_after(time_now(), run_options.grace + TIME_S);
}

static void fail_run(struct run *run, int status)
{
	if (!run->status)
		run->status = status;
	if (!run->ending)
		end_all(run, SIGTERM);
}

/* Explains the end of a remote shell that never reached the agent. */
static bool explain_remote(const struct rank *rank)
{
	char text[80];

	if (!rank_is_remote(rank) || !rank->out.awaits_agent)
		return false;
	child_end_text(rank->status, text, sizeof(text));
	if (rank->status == RUN_NOT_FOUND)
		run_say("%s: no rdmarun there (%s); where it is, --remote says", rank->name, text);
	else
		run_say("%s: not reached: %s ended with %s; try: %s %s true", rank->name, run_options.rsh, text,
			run_options.rsh, rank->host->name);
	return true;
}

static void rank_has_ended(struct run *run, struct rank *rank, const siginfo_t *info)
{
	bool missing, failed, goes_on;
	char text[80];

	rank->ended = true;
	rank->status = child_exit_status(info);
	guard_remove(rank->child.pid);
	run->alive--;
	run->drain_at = time_now() + DRAIN_LIMIT;
	stream_read(&rank->out); /* whether the agent was there */
	rank_input_over(rank);
	missing = rank_is_remote(rank) && rank->out.awaits_agent; /* also where the remote shell is content */
	child_end_text(rank->status, text, sizeof(text));
	failed = rank->status || missing;
	goes_on = run_options.keep_going && !missing;
	if (failed && (!run->status || run_options.keep_going) && !run->ending && !explain_remote(rank))
		run_say("%s ended: %s%s", rank->name, text,
			!run->alive ? ""
			: goes_on   ? "; the others go on"
				    : "; the others are ended");
	else
		run_note("%s ended: %s", rank->name, text);
	if (failed && !goes_on)
		fail_run(run, rank->status ? rank->status : RUN_FAILED);
	else if (!run->status)
		run->status = rank->status;
}

static void reap_children(struct run *run)
{
	siginfo_t info;

	while (child_reap(&info)) {
		if (info.si_pid == run->meeting.daemon) {
			run_say("the meeting point has ended; ranks that have met go on");
			run->meeting.daemon = 0;
			guard_remove(info.si_pid);
		}
		for (unsigned i = 0; i < run->ranks; i++)
			if (run->rank[i].started && !run->rank[i].ended && run->rank[i].child.pid == info.si_pid)
				rank_has_ended(run, &run->rank[i], &info);
	}
}

static void take_signal(struct run *run)
{
	struct signalfd_siginfo info;

	if (read(run->signals, &info, sizeof(info)) != (ssize_t)sizeof(info))
		return;
	if (info.ssi_signo == SIGCHLD) {
		reap_children(run);
		return;
	}
	run_note("passing on %s", strsignal((int)info.ssi_signo));
	if (info.ssi_signo == SIGUSR1 || info.ssi_signo == SIGUSR2) {
		signal_all(run, (int)info.ssi_signo, false);
		return;
	}
	/* A user that asks twice does not want to wait. Where all have ended, only output is left that nobody
	 * reads. */
	run->asked = true;
	if (!run->alive)
		fail_run(run, RUN_SIGNALLED + (int)info.ssi_signo);
	else if (run->ending)
		kill_all(run);
	else
		end_all(run, (int)info.ssi_signo);
}

/* A reader that has gone, or a closed descriptor, is told by the exit status alone. Else something is lost. */
static void check_sink(struct run *run, struct sink *sink, const char *name)
{
	bool unread = sink->error == EPIPE || sink->error == EBADF;

	if (!sink->error || sink->told || (unread && run->ending))
		return;
	sink->told = true;
	if (!unread)
		run_say("cannot write to standard %s: %s%s", name, strerror(sink->error),
			run->alive && !run->ending ? "; the ranks are ended" : "");
	fail_run(run, unread ? RUN_SIGNALLED + SIGPIPE : RUN_UNWRITTEN);
}

static void check_time(struct run *run)
{
	uint64_t now = time_now();

	/* A process that left its rank's group and holds its output open may write for ever. */
	for (unsigned i = 0; !run->alive && now >= run->drain_at && i < run->ranks; i++) {
		stream_end(&run->rank[i].out);
		stream_end(&run->rank[i].err);
	}
	if (now >= run->timeout_at) {
		run->timeout_at = TIME_NEVER;
		run->asked = true;
		if (!run->ending)
			run_say("the run is ended after its --timeout");
		fail_run(run, RUN_TIMEOUT);
	}
	if (now >= run->kill_at)
		kill_all(run);
	check_sink(run, &run->out, "output");
	check_sink(run, &run->err, "error");
}

/*
 * Standard input, to rank 0
 */
static bool has_room_for_input(const struct run *run)
{
	const struct rank *first = &run->rank[0];

	return run->input >= 0 && !first->ended && first->to >= 0 && !first->waiting;
}

/* In the background the terminal is another's, and reading it would stop this process; not where it is that of no
 * session, or another's. */
static bool in_background(const struct run *run)
{
	pid_t front = tcgetpgrp(run->input);

	return front >= 0 && front != getpgrp();
}

/*
 * The loop
 */
struct polled {
	struct pollfd *fd;
	unsigned count;
};

/* `wanted`: else its place is empty. */
static void polled_add(struct polled *p, int fd, short events, bool wanted)
{
	p->fd[p->count++] = (struct pollfd){.fd = wanted ? fd : -1, .events = events};
}

static void watch_all(struct run *run, struct polled *p)
{
	p->count = 0;
	polled_add(p, run->signals, POLLIN, true);
	polled_add(p, run->meeting.log, POLLIN, run->meeting.log >= 0);
	polled_add(p, run->out.fd, POLLOUT, run->out.used > 0);
	polled_add(p, run->err.fd, POLLOUT, run->err.used > 0);
	polled_add(p, run->input, POLLIN, has_room_for_input(run) && !in_background(run));
	for (unsigned i = 0; i < run->ranks; i++) {
		struct rank *r = &run->rank[i];

		polled_add(p, r->out.fd, POLLIN, r->out.fd >= 0 && sink_has_room(&run->out));
		polled_add(p, r->err.fd, POLLIN, r->err.fd >= 0 && sink_has_room(&run->err));
		polled_add(p, r->to, POLLOUT, r->to >= 0 && r->waiting > 0);
	}
}

static void serve_all(struct run *run, const struct polled *p)
{
	const struct pollfd *fd = p->fd + 5;

	for (unsigned i = 0; i < run->ranks; i++, fd += 3) {
		struct rank *r = &run->rank[i];

		if (fd[0].revents)
			stream_read(&r->out);
		if (fd[1].revents)
			stream_read(&r->err);
		if (fd[2].revents)
			rank_flush(r);
	}
	if (p->fd[4].revents) {
		char piece[PIECE];
		ssize_t n = read(run->input, piece, sizeof(piece));

		if (n > 0) {
			rank_input(&run->rank[0], piece, (size_t)n);
		} else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
			run->input = -1;
			rank_input_over(&run->rank[0]);
		}
	}
	if (p->fd[3].revents)
		sink_flush(&run->err);
	if (p->fd[2].revents)
		sink_flush(&run->out);
	if (p->fd[1].revents)
		meeting_read(&run->meeting);
	if (p->fd[0].revents)
		take_signal(run);
}

static bool is_draining(const struct run *run)
{
	for (unsigned i = 0; i < run->ranks; i++)
		if (run->rank[i].out.fd >= 0 || run->rank[i].err.fd >= 0)
			return true;
	return (run->out.used || run->err.used) && (!run->asked || time_now() < run->drain_at);
}

static int next_wake(const struct run *run)
{
	uint64_t now = time_now(), until = MIN(run->kill_at, run->timeout_at);

	if (!run->alive && now < run->drain_at)
		until = MIN(until, run->drain_at);
	if (has_room_for_input(run) && in_background(run))
		until = MIN(until, now + FOREGROUND_INTERVAL);
	if (until == TIME_NEVER)
		return -1;
	return until <= now ? 0 : (int)MIN((until - now) / TIME_MS + 1, 1000000ull);
}

/*
 * The beginning
 */
static int start_ranks(struct run *run)
{
	const char *meeting = run->meeting.url[0] ? run->meeting.url : NULL, *directory = run->meeting.directory;
	const char *key = run->meeting.key[0] ? run->meeting.key : NULL;
	int rc = 0;

	if (!*directory || run_hosts_remote(&run_options.hosts))
		directory = NULL;
	for (unsigned i = 0; i < run->ranks && rc == 0; i++) {
		rc = rank_start(&run->rank[i], run->ranks, meeting, directory, key, run->group);
		run->alive += rc == 0;
	}
	if (rc != 0)
		fail_run(run, rc == -ENOENT ? RUN_NOT_FOUND : rc == -EACCES ? RUN_NOT_EXECUTABLE : RUN_FAILED);
	return rc;
}

static int prepare_run(struct run *run)
{
	uint64_t number[2];
	bool late;
	int rc = getrandom(number, sizeof(number), 0) == (ssize_t)sizeof(number) ? 0 : -EIO;

	if (rc == 0) {
		snprintf(run->group, sizeof(run->group), "run-%016llx%016llx", (unsigned long long)number[0],
			 (unsigned long long)number[1]);
		rc = run->signals = child_signals();
	}
	if (rc >= 0)
		rc = meeting_prepare(&run->meeting, run_hosts_remote(&run_options.hosts));
	if (rc == 0) {
		rc = guard_start(run->meeting.directory, run->meeting.opened);
		if (rc != 0 && run->meeting.opened >= 0)
			rmdir(run->meeting.directory);
	}
	if (rc == 0)
		rc = meeting_start(&run->meeting, run->ranks, run_hosts_remote(&run_options.hosts), run->signals,
				   run->timeout_at);
	if (rc == 0)
		return 0;
	/* There are no ranks, but what was said. */
	late = time_now() >= run->timeout_at;
	run->asked = late || run->meeting.signal;
	run->drain_at = time_now() + DRAIN_LIMIT;
	run->status = run->meeting.signal ? RUN_SIGNALLED + run->meeting.signal : late ? RUN_TIMEOUT : RUN_FAILED;
	return rc;
}

int run_launch(void)
{
	struct run run = {
		.ranks = (unsigned)run_options.count,
		.out.fd = STDOUT_FILENO,
		.err.fd = STDERR_FILENO,
		.input = run_options.no_stdin ? -1 : STDIN_FILENO,
		.kill_at = TIME_NEVER,
		.meeting = {.opened = -1, .log = -1, .notify = -1},
	};
	struct polled polled = {.fd = calloc(5 + 3 * run.ranks, sizeof(*polled.fd))};

	child_raise_limit();
	run.timeout_at = time_after(time_now(), run_options.timeout);
	run.rank = calloc(run.ranks, sizeof(*run.rank));
	if (!run.rank || !polled.fd) {
		run_say("no memory for %u ranks", run.ranks);
		free(run.rank);
		free(polled.fd);
		return RUN_FAILED;
	}
	place_all(&run);
	run_say_to(&run.err);
	if (prepare_run(&run) == 0 && start_ranks(&run) == 0)
		run_note("%u rank%s run%s", run.ranks, run.ranks > 1 ? "s" : "", run.ranks > 1 ? "" : "s");
	while (run.alive || is_draining(&run)) {
		watch_all(&run, &polled);
		if (poll(polled.fd, polled.count, next_wake(&run)) > 0)
			serve_all(&run, &polled);
		check_time(&run);
		if (!run.alive)
			run.kill_at = TIME_NEVER;
	}
	run_say_to(NULL);
	for (unsigned i = 0; i < run.ranks; i++)
		rank_free(&run.rank[i]);
	meeting_stop(&run.meeting);
	guard_stop();
	sink_end(&run.out);
	sink_end(&run.err);
	free(run.rank);
	free(polled.fd);
	return run.status;
}
