/*
 * run: rdmarun, which starts the ranks of a run, on this machine or by a remote shell, and outlives them all.
 * rdmarun(1) has the promises to users.
 *
 *   main.c      the command
 *   options.c   its options; hosts.c  what -H, a file or a batch system says of hosts
 *   launch.c    the ranks of a run: their start, their signals, their end
 *   rank.c      one rank: a process here, or a remote shell at whose other end is an agent
 *   agent.c     rdmarun at another host: a run of one rank, which the launcher's frames direct
 *   child.c     starting a process
 *   guard.c     a process that ends what is left when rdmarun is killed
 *   meeting.c   the rdmad where the ranks meet
 *   stream.c    lines, standard input
 *
 * One thread. 0 or a negative errno; what fails is said where it is found.
 */
#ifndef RDMAD_RUN_H
#define RDMAD_RUN_H

#include <signal.h>

#include "auth/auth.h"
#include "base/base.h"
#include "wire/run.h"

/* Exit statuses of rdmarun's own; else it is that of the first rank that failed. */
enum run_exit {
	RUN_OK = 0,
	RUN_FAILED = 1,
	RUN_USAGE = 2,
	RUN_UNWRITTEN = 74, /* EX_IOERR of sysexits.h, as rdmad has it */
	RUN_TIMEOUT = 124,
	RUN_NOT_EXECUTABLE = 126,
	RUN_NOT_FOUND = 127
};

/* The status that a shell has for a process that a signal ended, less the signal. */
#define RUN_SIGNALLED 128

/* stderr: "rdmarun: TEXT"; see run_say_to(). */
void run_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same with -v only. */
void run_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* From now on by this sink, so that it never waits and stands between the ranks' lines. NULL: to stderr at
 * once. */
struct sink;
void run_say_to(struct sink *sink);

/*
 * options.c, hosts.c
 */
#define RUN_RANKS_MAX 4096u

struct run_host {
	char *name; /* owned; NULL: this machine */
	unsigned slots;
	unsigned ranks; /* how many have their place here */
};

struct run_hosts {
	struct run_host *host;
	unsigned count;
};

/* HOST[:SLOTS],...; "localhost" is this machine, as is its own name. -EINVAL. */
int run_hosts_parse(const char *text, struct run_hosts *out);
/* A file with a host a line: HOST[:SLOTS] or HOST slots=SLOTS; # begins a comment. -errno, said. */
int run_hosts_read(const char *path, struct run_hosts *out);
/* The hosts that a batch system says this job has, of Slurm or PBS; none: there is no such job. -errno, said. */
int run_hosts_of_job(struct run_hosts *out);
/* Says so where another launcher has started this program, perhaps in place of the ranks; `of_job`: or where one could
 * start them at the several hosts of the job. */
void run_hosts_say_launcher(bool of_job);
void run_hosts_free(struct run_hosts *hosts);
unsigned run_hosts_slots(const struct run_hosts *hosts);
bool run_hosts_remote(const struct run_hosts *hosts); /* any that is not this machine */

/*
 * stream.c: bytes, whole lines of many streams to standard output and standard error, and standard input of ranks.
 */
struct buffer {
	char *data;
	size_t used, room;
};

/* Without memory the process ends. */
void buffer_add(struct buffer *buffer, const void *data, size_t length);
void buffer_drop(struct buffer *buffer, size_t length); /* so many, at its begin */
/* Adds what is there. False: it is over. */
bool buffer_read(struct buffer *buffer, int fd);
void buffer_free(struct buffer *buffer);

struct sink {
	int fd;
	struct buffer text;
	int error; /* errno of the write that failed: nothing is written any more */
	bool told; /* that it did */
};

struct stream {
	int fd; /* of a pipe that does not block; -1: over */
	struct sink *sink;
	char label[32]; /* in front of each line */
	struct buffer text;
	bool awaits_agent; /* the line WIRE_RUN_GREETING has not come */
};

#define RUN_LINE_MAX (1u << 20) /* a longer one is cut */

/* Whether the sink takes more: else streams are not read. */
bool sink_has_room(const struct sink *sink);
void sink_flush(struct sink *sink); /* writes what does not block, when poll() said POLLOUT */
void sink_put(struct sink *sink, const void *data, size_t length);
void sink_end(struct sink *sink); /* the same, while it takes more */
/* Reads what is there, when poll() said POLLIN or POLLHUP; at the end takes what has no line feed, and closes it. */
void stream_read(struct stream *stream);
void stream_close(struct stream *stream);
/* Takes what is there, though others may go on writing, and closes it. */
void stream_end(struct stream *stream);

struct feed {
	int fd; /* of a pipe that does not block; -1: closed */
	struct buffer waiting;
	bool over; /* closed when all of it is written */
};

void feed_add(struct feed *feed, const void *data, size_t length);
void feed_flush(struct feed *feed); /* writes what does not block */
void feed_end(struct feed *feed);
void feed_close(struct feed *feed);

struct run_options {
	uint64_t count; /* ranks */
	struct run_hosts hosts;
	bool label, verbose, keep_going, agent, no_stdin;
	uint64_t grace, timeout; /* ns; timeout TIME_NEVER: none */
	const char *meeting;     /* NULL: an rdmad of its own */
	const char *rsh, *remote, *rdmad, *address, *directory;
	struct buffer env; /* NAME=VALUE, each ended by a zero */
	char **argv;       /* the program */
};

extern struct run_options run_options;

/* -1: go on; else an exit status. */
int run_options_parse(int argc, char **argv);
void run_options_free(void);

/*
 * child.c
 */
struct child {
	char *const *argv;
	struct buffer env;     /* in front of this process's: NAME=VALUE, each ended by a zero; the first holds */
	const char *directory; /* NULL: this process's */
	int fd[3];             /* become its standard input, output and error */
	pid_t pid;             /* of it, and of its process group */
};

/* As with a run's ranks all descriptors are of pipes, so many may be needed; its children have the usual limit. */
void child_raise_limit(void);
/* Starts a child, which the kernel ends when the calling process ends. A failure is said, with `who` in front:
 * -ENOTDIR of the directory, else of the program. */
int child_start(struct child *child, const char *who);
/* Both ends closed by exec. `ours` does not block; it is end number `end` (0: the one that reads). */
int child_pipe(unsigned end, int *ours, int *theirs);
/* The status as shells have it. */
int child_exit_status(const siginfo_t *info);
/* "exit status 3", "signal 11 (Segmentation fault)". Returns buf. */
char *child_end_text(int status, char *buf, size_t size);
/* The signals that it is told of by a descriptor, which is returned; or -errno. */
int child_signals(void);
/* The next child that has ended, which it reaps after what is left of its process group is killed. False: none. */
bool child_reap(siginfo_t *info);

/*
 * guard.c: it is told of each process group, and of a directory to remove.
 */
/* `directory`: a descriptor of it, which is at `path`; -1: none. */
int guard_start(const char *path, int directory);
void guard_add(pid_t group);
void guard_remove(pid_t group);
/* Ends the guard, which removes the directory. */
void guard_stop(void);

/*
 * meeting.c
 */
#define MEETING_PATH_MAX 94 /* the path of a socket in it has at most 107 bytes, also with rdma_group_run()'s name */

struct meeting {
	char url[400];                    /* what ranks are told; "": none */
	char directory[MEETING_PATH_MAX]; /* "": none */
	char key[AUTH_LINE_MAX];          /* of this run, as text; "": none */
	int opened;                       /* the directory; -1 */
	pid_t daemon;                     /* 0: none */
	struct stream log;                /* what it says to people */
	int notify;                       /* the socket by which it says that it is ready; -1 */
};

/* Makes a directory that only this user enters: for the rdmad, and, without other hosts, for the ranks' sockets. */
int meeting_prepare(struct meeting *meeting);
/* Starts an rdmad, unless --meeting names one. */
int meeting_start(struct meeting *meeting);
/* Its notify socket is readable: whether ranks can meet now. */
bool meeting_is_ready(struct meeting *meeting);
void meeting_stop(struct meeting *meeting);

/*
 * rank.c
 */
struct rank {
	int rank, local_rank;
	const struct run_host *host;
	char name[300]; /* "rank 3", "rank 3 at HOST"; of an agent's, the host */
	pid_t pid;      /* of it or its remote shell, and of the process group; 0: it was not started */
	bool ended;
	int status;
	struct feed in; /* its standard input, or the agent's */
	struct stream out, err;
};

struct run;
/* 0 or -errno, said. */
int rank_start(struct rank *rank, const struct run *run);
bool rank_is_remote(const struct rank *rank);
void rank_input(struct rank *rank, const void *data, size_t length);
void rank_input_over(struct rank *rank);
/* `hard`: by any means; the remote shell itself, too. */
void rank_signal(struct rank *rank, int number, bool hard);
void rank_free(struct rank *rank);

/*
 * launch.c
 */
struct run {
	struct rank *rank;
	unsigned ranks, alive;
	struct sink out, err;
	struct meeting meeting;
	char group[40];
	int signals, input; /* descriptors; input -1: over */
	struct buffer come; /* of standard input: an agent's frames that are not whole */
	int status;         /* of the first that failed; 0: none has */
	bool started;       /* all, or it was tried */
	bool ending;        /* all were told to end */
	bool asked;         /* by a signal or the time: output without a reader is not waited for */
	unsigned killed;    /* how often: softly, hard */
	uint64_t kill_at, timeout_at, start_by, drain_at;
};

/* Answers the exit status. */
int run_launch(void);
void run_start(struct run *run);
void run_signal(struct run *run, int number); /* passes it on; most end the run */

/*
 * agent.c
 */
/* Carries out the frames that are whole. 0 or -errno, said: they are of no launcher. */
int agent_take(struct run *run, struct buffer *come);

#endif
