/* launch.c: the ranks of a run, from the first to the end of the last; those of a launcher, or the one of an agent. */
#include "run/run.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define FOREGROUND_INTERVAL (200 * TIME_MS) /* nothing tells that a shell's `fg` gave the terminal back */
#define DRAIN_LIMIT (2 * TIME_S) /* what a process that left its rank's group keeps open is not waited for any longer */
#define START_LIMIT (60 * TIME_S) /* of the meeting point */
#define AGENT_ROOM (1u << 20)     /* an agent whose rank leaves more input unread reads no more, but for the end */

/*
 * Places
 */
static void place_rank(struct run *run, unsigned rank, struct run_host *host)
{
	struct rank *r = &run->rank[rank];

	*r = (struct rank){.rank = (int)rank, .local_rank = (int)host->ranks++, .host = host, .in.fd = -1};
	r->out = (struct stream){.fd = -1, .sink = &run->out};
	if (run_options.label)
		snprintf(r->out.label, sizeof(r->out.label), "%*u: ", snprintf(NULL, 0, "%u", run->ranks - 1), rank);
	r->err = r->out;
	r->err.sink = &run->err;
	if (run_options.agent)
		gethostname(r->name, sizeof(r->name) - 1);
	else
		snprintf(r->name, sizeof(r->name), "rank %u%s%s", rank, host->name ? " at " : "",
			 host->name ? host->name : "");
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
		if (!run->drain_at) /* no rank has ended, perhaps as none was started */
			run->drain_at = time_now() + DRAIN_LIMIT;
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
	guard_remove(rank->pid);
	run->alive--;
	run->drain_at = time_now() + DRAIN_LIMIT;
	stream_read(&rank->out); /* whether the agent was there */
	rank_input_over(rank);
	missing = rank_is_remote(rank) && rank->out.awaits_agent; /* also where the remote shell is content */
	child_end_text(rank->status, text, sizeof(text));
	failed = rank->status || missing;
	goes_on = run_options.keep_going && !missing;
	if (failed && (!run->status || run_options.keep_going) && !run->ending && !run_options.agent &&
	    !explain_remote(rank))
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
			stream_end(&run->meeting.log);
			run_say("the meeting point has ended%s",
				run->started ? "; ranks that have met go on" : " before it was ready");
			run->meeting.daemon = 0;
			guard_remove(info.si_pid);
			if (!run->started)
				fail_run(run, RUN_FAILED);
		}
		for (unsigned i = 0; i < run->ranks; i++)
			if (!run->rank[i].ended && run->rank[i].pid == info.si_pid)
				rank_has_ended(run, &run->rank[i], &info);
	}
}

void run_signal(struct run *run, int number)
{
	if (number == SIGUSR1 || number == SIGUSR2) {
		signal_all(run, number, false);
		return;
	}
	/* A user that asks twice does not want to wait; a launcher asks for what it wants. Where all have ended, only
	 * output is left that is not read. */
	run->asked = true;
	if (!run->alive)
		fail_run(run, RUN_SIGNALLED + number);
	else if (run->ending && !run_options.agent)
		kill_all(run);
	else
		end_all(run, number);
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
	if (now >= MIN(run->timeout_at, run->start_by)) {
		bool late = now >= run->timeout_at;

		run->start_by = TIME_NEVER;
		if (late)
			run->timeout_at = TIME_NEVER;
		run->asked |= late;
		if (!run->ending)
			run_say(run->started ? "the run is ended after its --timeout"
					     : "the meeting point does not become ready");
		fail_run(run, late ? RUN_TIMEOUT : RUN_FAILED);
	}
	if (now >= run->kill_at)
		kill_all(run);
	check_sink(run, &run->out, "output");
	check_sink(run, &run->err, "error");
}

/*
 * Standard input: that of rank 0, or an agent's frames
 */
static bool has_room_for_input(const struct run *run)
{
	const struct rank *first = &run->rank[0];

	if (run->input < 0 || run_options.agent)
		return run->input >= 0 && first->in.waiting.used <= AGENT_ROOM;
	return !first->ended && first->in.fd >= 0 && !first->in.waiting.used;
}

static void read_input(struct run *run)
{
	bool open = has_room_for_input(run) ? buffer_read(&run->come, run->input) : !run_options.agent;

	if (run_options.agent) {
		open = agent_take(run, &run->come) == 0 && open;
	} else if (run->come.used) {
		rank_input(&run->rank[0], run->come.data, run->come.used);
		run->come.used = 0;
	}
	if (open)
		return;
	run->input = -1;
	if (!run_options.agent) {
		rank_input_over(&run->rank[0]);
		return;
	}
	/* The launcher is gone, whose rank this is. */
	feed_close(&run->rank[0].in);
	fail_run(run, RUN_FAILED);
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
enum { AT_SIGNALS, AT_LOG, AT_NOTIFY, AT_OUT, AT_ERR, AT_INPUT, AT_RANKS };

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
	bool room = has_room_for_input(run) && !in_background(run);

	p->count = 0;
	polled_add(p, run->signals, POLLIN, true);
	polled_add(p, run->meeting.log.fd, POLLIN, sink_has_room(&run->err));
	polled_add(p, run->meeting.notify, POLLIN, !run->started);
	polled_add(p, run->out.fd, POLLOUT, run->out.text.used > 0);
	polled_add(p, run->err.fd, POLLOUT, run->err.text.used > 0);
	polled_add(p, run->input, room ? POLLIN : POLLRDHUP, room || run_options.agent);
	for (unsigned i = 0; i < run->ranks; i++) {
		struct rank *r = &run->rank[i];

		polled_add(p, r->out.fd, POLLIN, sink_has_room(&run->out));
		polled_add(p, r->err.fd, POLLIN, sink_has_room(&run->err));
		polled_add(p, r->in.fd, POLLOUT, r->in.waiting.used > 0);
	}
}

static void serve_all(struct run *run, const struct polled *p)
{
	const struct pollfd *fd = p->fd + AT_RANKS;
	struct signalfd_siginfo info;

	for (unsigned i = 0; i < run->ranks; i++, fd += 3) {
		struct rank *r = &run->rank[i];

		if (fd[0].revents)
			stream_read(&r->out);
		if (fd[1].revents)
			stream_read(&r->err);
		if (fd[2].revents)
			feed_flush(&r->in);
	}
	if (p->fd[AT_INPUT].revents)
		read_input(run);
	if (p->fd[AT_ERR].revents)
		sink_flush(&run->err);
	if (p->fd[AT_OUT].revents)
		sink_flush(&run->out);
	if (p->fd[AT_LOG].revents)
		stream_read(&run->meeting.log);
	if (p->fd[AT_NOTIFY].revents && !run->ending && meeting_is_ready(&run->meeting))
		run_start(run);
	if (!p->fd[AT_SIGNALS].revents || read(run->signals, &info, sizeof(info)) != (ssize_t)sizeof(info))
		return;
	if (info.ssi_signo == SIGCHLD) {
		reap_children(run);
	} else {
		run_note("passing on %s", strsignal((int)info.ssi_signo));
		run_signal(run, (int)info.ssi_signo);
	}
}

static bool is_draining(const struct run *run)
{
	for (unsigned i = 0; i < run->ranks; i++)
		if (run->rank[i].out.fd >= 0 || run->rank[i].err.fd >= 0)
			return true;
	return (run->out.text.used || run->err.text.used) && (!run->asked || time_now() < run->drain_at);
}

static int next_wake(const struct run *run)
{
	uint64_t now = time_now(), until = MIN(run->kill_at, MIN(run->timeout_at, run->start_by));

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
void run_start(struct run *run)
{
	int rc = 0;

	run->started = true;
	run->start_by = TIME_NEVER;
	for (unsigned i = 0; i < run->ranks && rc == 0; i++) {
		rc = rank_start(&run->rank[i], run);
		run->alive += rc == 0;
	}
	if (rc != 0)
		fail_run(run, rc == -ENOENT ? RUN_NOT_FOUND : rc == -EACCES ? RUN_NOT_EXECUTABLE : RUN_FAILED);
	else
		run_note("%u rank%s run%s", run->ranks, run->ranks > 1 ? "s" : "", run->ranks > 1 ? "" : "s");
}

/* Prepare what the ranks need, which are started when the meeting point is ready or, of an agent, when the launcher
 * says so. */
static int prepare_run(struct run *run)
{
	uint64_t number[2];
	int rc = random_fill(number, sizeof(number));

	if (rc != 0)
		return rc;
	snprintf(run->group, sizeof(run->group), "run-%016llx%016llx", (unsigned long long)number[0],
		 (unsigned long long)number[1]);
	rc = run->signals = child_signals();
	if (rc >= 0)
		rc = meeting_prepare(&run->meeting);
	if (rc == 0) {
		rc = guard_start(run->meeting.directory, run->meeting.opened);
		if (rc != 0 && run->meeting.opened >= 0)
			rmdir(run->meeting.directory);
	}
	if (rc == 0)
		rc = meeting_start(&run->meeting);
	if (rc != 0)
		return rc;
	if (run_options.agent) {
		puts(WIRE_RUN_GREETING);
		fflush(stdout);
	} else if (run->meeting.notify < 0) {
		run_start(run);
	} else {
		run->start_by = time_now() + START_LIMIT;
	}
	return 0;
}

int run_launch(void)
{
	struct run run = {
		.ranks = (unsigned)run_options.count,
		.out.fd = STDOUT_FILENO,
		.err.fd = STDERR_FILENO,
		.signals = -1,
		.input = run_options.no_stdin ? -1 : STDIN_FILENO,
		.kill_at = TIME_NEVER,
		.start_by = TIME_NEVER,
		.meeting = {.opened = -1, .notify = -1, .log = {.fd = -1, .label = "rdmarun: the meeting point: "}},
	};
	struct polled polled = {.fd = calloc(AT_RANKS + 3 * run.ranks, sizeof(*polled.fd))};

	child_raise_limit();
	run.meeting.log.sink = &run.err;
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
	if (prepare_run(&run) != 0)
		fail_run(&run, RUN_FAILED);
	while ((!run.started && !run.ending) || run.alive || is_draining(&run)) {
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
	buffer_free(&run.come);
	free(run.rank);
	free(polled.fd);
	return run.status;
}
