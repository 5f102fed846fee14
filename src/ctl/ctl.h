/*
 * ctl: rdmactl, one file per subcommand. Data goes to stdout, all other text to stderr.
 *
 * A command is a row of the table at the end of its file, and its options are a table there too: parser, usage,
 * shell completion and the check of the manual page all read these tables. rdmactl(1) has the promises to users.
 */
#ifndef RDMAD_CTL_H
#define RDMAD_CTL_H

#include <jansson.h>
#include <pthread.h>

#include "base/base.h"
#include "rdmad/gpu.h"
#include "rdmad/rdmad.h"

/* Exit statuses, promised in rdmactl(1). */
enum ctl_exit {
	CTL_OK = 0,
	CTL_FAILED = 1,
	CTL_USAGE = 2,
	CTL_UNREACHABLE = 3,
	CTL_NOT_FOUND = 4,
	CTL_TIMEOUT = 5,
	CTL_VERSION = 7,
	CTL_INTERRUPTED = 130,
};

/*
 * options.c: parsing by tables.
 */
enum ctl_type {
	CTL_FLAG,   /* bool */
	CTL_TEXT,   /* const char * */
	CTL_NUMBER, /* uint64_t in [min, max] */
	CTL_SIZE,   /* uint64_t bytes in [min, max] */
	CTL_TIME,   /* uint64_t nanoseconds in [min, max] */
	CTL_POLL,   /* uint64_t nanoseconds; "always" is TIME_NEVER */
	CTL_CHECKED /* const char * that `check` accepts */
};

enum ctl_of { CTL_OF_ALL, CTL_OF_SERVER, CTL_OF_DAEMON }; /* commands; but local ones; local ones alone */

struct ctl_option {
	const char *name; /* without the dashes; a NULL name ends a table */
	char letter;      /* 0: none */
	enum ctl_type type;
	void *value;                    /* where the parsed value goes */
	const char *metavar;            /* NULL for flags */
	const char *help;               /* one line */
	uint64_t min, max;              /* of CTL_NUMBER, CTL_SIZE and CTL_TIME; max 0: no bound */
	int (*check)(const char *text); /* of CTL_CHECKED: 0, or says why not and answers -EINVAL */
	const char *choices;            /* for the completion: words, "@file", or NULL */
	bool *given;                    /* where not NULL, set when the option occurs */
	const char *otherwise;          /* the value where none follows by "="; NULL: it needs one */
	enum ctl_of of;                 /* whose it is, of those in ctl_globals */
};

/* The words behind the command's name. */
struct ctl_arguments {
	int count;
	const char **text;
};

struct ctl_command {
	const char *name;                                   /* "status", "kv get"; a NULL name ends the table */
	int (*main)(const struct ctl_arguments *arguments); /* answers an exit status */
	const char *arguments;                              /* for the usage line, e.g. "KEY [VALUE]" */
	const char *help;                                   /* one line */
	const struct ctl_option *options;                   /* its own, besides ctl_globals; NULL: none */
	int min, max;                                       /* how many arguments; max -1: any */
	bool local;                                         /* of the daemon of this machine: no --host */
	const char *choices; /* for the completion of its first argument: words, or NULL */
};

extern const struct ctl_option ctl_globals[]; /* options.c: accepted by every command */

/* Whether the next word may be its value. */
static inline bool ctl_option_takes_word(const struct ctl_option *option)
{
	return option->type != CTL_FLAG && !option->otherwise;
}

/* The files that have commands, in the order of the help: NAME.c has ctl_NAME_commands. commands.c puts them
 * together. */
/* clang-format off */
#define CTL_FILES(ROW) \
	ROW(ping) \
	ROW(kv) ROW(kv_keys) ROW(kv_part) ROW(kv_walk) ROW(kv_watch) ROW(kv_move) ROW(kv_import) ROW(kv_run) ROW(hot) \
	ROW(bench_kv) ROW(bench_blocks) ROW(bench_ping) ROW(bench_sweep) \
	ROW(bench_channel) ROW(bench_gpu) ROW(bench_peer) \
	ROW(gpu) ROW(channel_names) ROW(channel) ROW(peer) ROW(peer_groups) \
	ROW(control) ROW(conn) ROW(top) ROW(slow) ROW(log) ROW(key) ROW(cluster) ROW(cluster_status) ROW(doctor) \
	ROW(explain) ROW(completion) ROW(version) ROW(help)
/* clang-format on */
#define CTL_DECLARE(file) extern const struct ctl_command ctl_##file##_commands[];
CTL_FILES(CTL_DECLARE)
#undef CTL_DECLARE

/* Values of the options in ctl_globals. */
struct ctl_settings {
	bool json, quiet, help, version, require_rdma, require_encryption, munge;
	const char *host; /* never NULL when a command runs */
	bool host_given;
	const char *control;
	const char *key; /* file of the key; NULL: not given */
	const char *server_user;
	uint64_t timeout; /* ns; TIME_NEVER: not given */
	uint64_t poll;    /* ns; see poll_given */
	bool poll_given;
};

extern struct ctl_settings ctl;

/* Apply argv[0..argc-1]: options of `own` (NULL: none) and of ctl_globals anywhere, until "--"; the rest goes to
 * `arguments`, whose text has room for argc. 0, or -EINVAL after saying what is wrong. */
int ctl_options_parse(const struct ctl_option *own, int argc, const char **argv, struct ctl_arguments *arguments);

/* Finds the words that are no options: nothing is applied and nothing said. False: there are options of neither
 * table, taken for flags. */
bool ctl_options_words(const struct ctl_option *own, int argc, const char **argv, struct ctl_arguments *arguments);

/* "4K", or "64,1K-8K": sizes separated by commas, ranges doubled from the first to the last.
 * Answers how many there are, at most `max`. -EINVAL: the text is no such list; -ERANGE: one is beyond the limit,
 * there are too many, or a range is empty. */
int ctl_sizes_parse(const char *text, uint64_t limit, uint64_t *sizes, size_t max);

/* How long to wait for an answer before giving up, ns: --timeout, 30 s unless it is given. */
uint64_t ctl_answer_limit(void);

/* A wait is cut into pieces of this length, so that Ctrl-C is seen. */
#define CTL_SLICE (200 * TIME_MS)
#define CTL_SLICE_US (CTL_SLICE / TIME_US)

/* The options for the library that ctl_globals gave. */
void ctl_library_options(struct rdmad_options *options);

/* These options on `out`, aligned, as far as the command has them. command NULL: all. */
void ctl_options_usage(FILE *out, const struct ctl_option *options, const struct ctl_command *command);

/*
 * commands.c
 */

/* Run the command that the words of a command line (without the program's name) say: an exit status. */
int ctl_run(int argc, const char **argv);

/* The row of that number among all commands, from 0 on. NULL: there are no more. */
const struct ctl_command *ctl_command_at(unsigned number);

/* The row whose name are the first words of argv; *words is how many that took. NULL: none. */
const struct ctl_command *ctl_command_find(int argc, const char **argv, int *words);

/* Say that the words are no command, what was perhaps meant, and how to see all. Answers CTL_USAGE. */
int ctl_unknown_command(const struct ctl_arguments *words);

/* Say how to see the usage, after a message about the fault. Answers CTL_USAGE. */
int ctl_usage_hint(void);

/* Say what is wrong with the call, and how to see the usage. Answers CTL_USAGE. */
int ctl_usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Name of the command that runs, for messages: "kv get". */
const char *ctl_command_name(void);

/*
 * help.c, completion.c
 */
int ctl_help(const struct ctl_arguments *arguments);
void ctl_help_command(FILE *out, const struct ctl_command *command);
/* The commands whose name begins with the word `group`, all for NULL. Answers how many. out NULL: only that. */
int ctl_help_list(FILE *out, const char *group);

/* For "bash", "zsh" or "fish"; false: there is no such script. */
bool ctl_completion_write(FILE *out, const char *shell);

/*
 * report.c: errors, exit statuses, interruption.
 */

/* stderr: "rdmactl: TEXT". */
void ctl_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Why the command that runs failed at an address (NULL: none), which is named unless the reason does so. */
void ctl_say_of(const char *address, const char *why);

/* The last of them, "" if there was none. */
const char *ctl_said(void);
/* How messages and --json write a number of rdmactl explain. */
#define CTL_ERROR_ID "RD-%04u"
/* The number that rdmactl explain has of the last next step that was said; 0: none. */
unsigned ctl_said_number(void);

/* Say that an operation failed by `error` (negative errno), why, and the next step. `why` NULL: the library's
 * sentence, or strerror's where it left none. Answers the exit status. */
int ctl_fail(int error, const char *why, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Like ctl_fail() for the command that runs, on a channel: the next step is one with rdmad, so it is said where the URL
 * has one. */
int ctl_fail_channel(int error, const char *why, const char *url);

/* The exit status that stands for an error. */
enum ctl_exit ctl_exit_of(int error);

/* Like ctl_fail() for a connection to ctl.host (or `server`) that could not be made. */
int ctl_fail_open(int error, const char *server);

/* From the first call on, SIGINT or SIGTERM sets ctl_interrupted(); the second one ends the process. */
void ctl_catch_interrupt(void);
bool ctl_interrupted(void);
void ctl_interrupt(void); /* as such a signal, for handlers of others */

/* The ending of what there are so many of: "1 key", "2 keys". */
#define CTL_S(count) ((count) == 1 ? "" : "s")

/* In any case of its letters. */
bool ctl_file_ends(const char *path, const char *ending);

/* Whether a summary is said on stderr: not with --quiet, and not of data that stdout did not take. */
bool ctl_sums_up(void);
/* "SERVER: transport tcp" on stderr unless --json, or nothing is summed up. */
void ctl_say_transport(const char *server, const char *transport);

/*
 * output.c: standard output, which is whole, or ends early and says so.
 */

/* From here on stdout is written by output.c. */
void ctl_output_begin(void);
/* For a command that ended by `rc`: the exit status, which is not 0 where not all of its output was written; that is
 * said, too. */
int ctl_output_end(int rc);

/* Ends a record in the output: a key with its value, a line. An interrupted command whose reader is slow ends there. */
void ctl_record_end(void);
/* The same, and it is written now. As fflush(). */
int ctl_flush(void);

/* Whether standard output takes something, or fails, without a wait, within so many ms. */
bool ctl_output_takes(int ms);
/* Write as many bytes as it takes without a wait, after that: how many, or -errno. */
ssize_t ctl_output_some(const void *data, size_t len);

/*
 * terminal.c: where people look.
 */

/* Whether stdout is one. */
bool ctl_at_terminal(void);

/* Bytes of others on stdout: as they are, but at a terminal without what would speak to it; of a value, lines stay
 * lines. */
void ctl_put_key(const void *key, size_t len);
void ctl_put_value(const void *value, size_t len);
/* As JSON without blanks; on stdout at a terminal, what would speak to it is \uNNNN, which means the same. 0; -1: no
 * memory, or ferror(). */
int ctl_put_json(FILE *out, const json_t *json);
/* Whether a line feed is to follow the value, so that what comes next begins a line of the terminal. */
bool ctl_line_is_open(const void *value, size_t len);

/* Ask at the terminal whether to do it: "TEXT [y/N] ". */
bool ctl_confirmed(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * render.c: JSON and tables.
 */

/* One line on stdout, when the command ends or prints the next one. Takes `object`; NULL stands for no memory, and is
 * told. Answers CTL_OK or CTL_FAILED. */
int ctl_json_print(json_t *object);

/* Print what waits for it. Where the command ends by another exit status than 0, with an "error": {"text", "status"},
 * which then also stands alone. An exit status. */
int ctl_json_end(int status);
/* Makes the member "error" of an object that the command prints by itself; ctl_json_end() then adds none. */
json_t *ctl_json_error(int status);

/* Bytes as a JSON string under "KEY", or under "KEY_base64" where they are no UTF-8. */
int ctl_json_set_bytes(json_t *object, const char *key, const void *data, size_t len);

/* Base64 (RFC 4648) of data, 0-terminated; free() it. NULL: no memory. */
char *ctl_base64(const void *data, size_t len);

/* The bytes that base64 text stands for, and a 0 byte behind them; free() them. NULL: it is none, or no memory. */
char *ctl_base64_decode(const char *text, size_t len, size_t *out_len);

/* A JSON object for people: scalars as a list, objects as indented lists, arrays of objects as tables.
 * Units are taken from the ends of the names: _bytes, _us, _ns, _seconds, _per_second. */
void ctl_render(FILE *out, const json_t *object);

/* Seconds as hours, minutes and seconds, from a day on as days, hours and minutes. Returns buf. */
char *ctl_clock_text(uint64_t seconds, char buf[static 32]);

/* Print an object, which it takes, as --json says or as people want to read it. An exit status. */
int ctl_print(json_t *object);

/* The same of an answer that is a list with a name: for people each of its items is the row that row_of() makes of
 * it. */
int ctl_print_rows(json_t *answer, const char *name, json_t *(*row_of)(const json_t *item));

#define CTL_TABLE_COLUMNS 24

/* Rows of text, columns as wide as their widest cell. */
struct ctl_table {
	size_t columns, cells, room;
	const char *title[CTL_TABLE_COLUMNS]; /* borrowed */
	char **cell;                          /* row by row */
	bool right[CTL_TABLE_COLUMNS];        /* align to the right */
	bool failed;                          /* a cell was lost for lack of memory */
};

void ctl_table_init(struct ctl_table *table);
void ctl_table_column(struct ctl_table *table, const char *title, bool right);
void ctl_table_cell(struct ctl_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ctl_table_print(FILE *out, const struct ctl_table *table, unsigned indent);
void ctl_table_destroy(struct ctl_table *table);

/*
 * control.c: the daemon itself.
 */

/* One command there; *out is its answer, json_decref() it. 0 or an exit status, with the cause told. */
int ctl_control_ask(const char *command, json_t **out);

/* The same where a daemon need not be: NULL, and nothing is said. json_decref() it. */
json_t *ctl_control_try(const char *command);

/* The answer to "status" for people, which changes it. */
void ctl_control_render(FILE *out, json_t *status);

/*
 * ctl/kv/kv.c: one connection and one request at a time.
 */

/* The words for a status that a kv callback got. */
const char *ctl_kv_status_text(int status);

/* True: the server's own answer; false: the connection ended before it came. */
bool ctl_kv_status_final(int status);

/* Why a request was not taken: true: no further one will be, either; the server may be told to end. */
bool ctl_kv_cannot_go_on(int error);

/* Connect to ctl.host. 0, or says why not and answers an exit status. */
int ctl_kv_open(void **kv);

/* Send and receive until a request is answered. 0, -EINTR, -ETIMEDOUT or -ENOTCONN. */
int ctl_kv_await(void *kv);

/* Say that the running command failed at `key`; an exit status. */
int ctl_kv_fail(int error, const char *key);
/* Say that there is no such key, in JSON too. CTL_NOT_FOUND. */
int ctl_kv_missing(const void *kv, const char *key);

/* {"command", "key", "server", "transport"}, to be completed by the caller. key NULL: without. */
json_t *ctl_kv_describe(const void *kv, const char *key);

/* The value of a command: argument number `at`, the file `path` (NULL: none) or stdin. free() *owned. An exit
 * status. */
/* version 0: unknown. An exit status. */
int ctl_kv_print_value(const void *kv, const char *key, const void *value, size_t len, uint64_t version);
int ctl_kv_take_value(const struct ctl_arguments *arguments, int at, const char *path, const char **value, size_t *len,
		      char **owned);

/*
 * ctl/kv/keys.c: the other commands for named keys.
 */

/* The rest of a time to live, in text: "never", "12.5 s". Returns buf. */
char *ctl_kv_ttl_text(uint64_t ttl_us, char buf[static 32]);

/* The same as JSON: microseconds, or null. */
json_t *ctl_kv_ttl_json(uint64_t ttl_us);

/*
 * gpu.c: the gpu service, and one image.
 */

/* Checks a --mode; says what is wrong. */
int ctl_gpu_check_mode(const char *text);
const char *ctl_gpu_mode_name(enum rdmad_gpu_mode mode);

/* The options for a session that ctl_globals and --mode, which was checked, gave. */
void ctl_gpu_options(struct rdmad_gpu_options *options, const char *mode);

/*
 * gpu_image.c: grey images of 8 bits. Colours of a PNG or PPM become grey by 0.2126 red + 0.7152 green + 0.0722 blue of
 * the values in the file. Its transparency is left out, and its samples of 16 bits are rounded to 8. Values of a PGM or
 * PPM are scaled to 255.
 */
struct image {
	uint32_t width, height;
	uint8_t *pixels;
};

/* An image from the bytes of a file, to be released. NULL, or the fault in words, perhaps in `why`. */
const char *image_parse(const void *data, size_t len, struct image *image, char *why, size_t why_size);
void image_release(struct image *image);

/* Whether it is said by the name, as ".png" or ".pgm", or nothing is. */
bool image_format_known(const char *path);
/* "-" is standard input or output. Written as PNG where the name ends in .png, else as PGM. Exit statuses. */
int image_read(const char *path, struct image *image);
int image_write(const char *path, const struct image *image);

/*
 * progress.c: how far a long command has come, on a terminal's stderr; nothing with --quiet or --json.
 */
struct ctl_progress {
	const char *things; /* that are counted: "keys" */
	uint64_t count, bytes;
	uint64_t begin, shown; /* time_now() */
	bool on, drawn;
};

void ctl_progress_begin(struct ctl_progress *progress, const char *things);
/* One more thing, of so many bytes. */
void ctl_progress_add(struct ctl_progress *progress, uint64_t bytes);
/* Leaves no trace on the terminal. */
void ctl_progress_end(struct ctl_progress *progress);

/* ctl/kv/export.c: the summary of keys that were `verb`, "exported", which also names the member in JSON. Takes `more`,
 * further members there; NULL: none. An exit status. */
int ctl_kv_moved(const void *kv, const char *verb, const struct ctl_progress *progress, uint64_t failed, json_t *more);

/*
 * script.c: the lines of a command file, and reading them. No network.
 */
enum script_verb { SCRIPT_NONE, SCRIPT_SET, SCRIPT_GET, SCRIPT_SETSIZE, SCRIPT_PRINTKV };

struct script_command {
	enum script_verb verb;   /* SCRIPT_NONE: a comment or a blank line */
	const char *key, *value; /* in the line itself, not 0-terminated */
	size_t key_len, value_len;
	uint64_t size; /* of setsize */
};

/* Parse one line without its line feed. NULL, or what is wrong with it. */
const char *script_parse(const char *line, size_t len, struct script_command *command);

/* n printable characters from the state of a random number generator (any value but 0). */
void script_random_text(char *out, size_t n, uint64_t *state);

struct script_reader {
	int fd;
	char *buffer;
	size_t begin, end, room;
	bool eof;
	/* Called before a read that may block, so that requests under way are answered. */
	void (*idle)(void *arg);
	void *arg;
};

/* 1: *line has the next line, without its line feed, valid until the next call; 0: the end; -errno. */
int script_read(struct script_reader *reader, const char **line, size_t *len);
/* The next `want` bytes at least, fewer at the end, valid until the next call. 0 or -errno. */
int script_peek(struct script_reader *reader, size_t want, const char **data, size_t *have);
/* 0, -EPROTO: there are not so many, or -errno. Peeked data stays valid where it had `n` bytes. */
int script_skip(struct script_reader *reader, size_t n);
void script_reader_destroy(struct script_reader *reader);

/*
 * record.c: keys as "kv export" writes them.
 */
enum record_format { RECORD_JSON, RECORD_BINARY };

struct record {
	const void *key, *value;
	size_t key_len, value_len;
	uint64_t ttl_us; /* 0: does not expire */
	bool end;        /* in JSON: no record but the archive's end, behind `count` records */
	uint64_t count;
	json_t *json; /* this and the next: the memory of the above, if need be */
	char *owned[2];
};

#define RECORD_MAGIC_LEN 8u

/* -EINVAL: no such format. */
int record_format(const char *name);

/* These write to a stream: 0 or a negative errno. */
int record_begin(FILE *out, enum record_format format);
int record_write(FILE *out, enum record_format format, const struct record *record);
int record_end(FILE *out, enum record_format format, uint64_t count);

/* Whether a file that begins with these RECORD_MAGIC_LEN bytes is in the binary format. */
bool record_magic(const void *data, size_t len);

/* A line of the JSON format. NULL, *record is to be released; or what is wrong with it. */
const char *record_parse(const char *line, size_t len, struct record *record);
void record_release(struct record *record);

/* The next record behind `count` others in the binary format; it is valid until the reader's next call. 1; 0: the end,
 * as promised; -EMSGSIZE: its value has over value_max bytes, it was skipped; -EPROTO: the file is cut off or broken;
 * -errno. */
int record_read(struct script_reader *reader, uint64_t count, uint64_t value_max, struct record *record);

/*
 * ctl/bench/bench.c: the common parts of the benchmarks.
 */

/* Processor time of this process, in seconds. */
struct ctl_usage {
	double user, system;
};

/* Add (sign 1) or take away (-1) what it used until now. */
void ctl_usage_add(struct ctl_usage *usage, int sign);

#define BENCH_SIZES_MAX 64

struct bench_plan {
	const char *server, *transport; /* transport: NULL until connected */
	uint64_t depth, clients, threads;
	uint64_t count;            /* operations in all; 0: until duration has passed */
	uint64_t duration, warmup; /* ns */
	bool no_verify, no_latency, csv;
	uint64_t size;  /* of the value or message, in this round */
	bool measuring; /* this phase is not a warm-up, nor sets up or takes down */
	/* Of kv; told in the head. */
	uint64_t rate, ttl;       /* per second of all, 0: as fast as answers come; ns, 0: none */
	uint64_t keys, key_bytes; /* of each connection */
};

extern struct bench_plan bench; /* read by all threads, written between rounds */

/* The measurements of a thread, or of all of them, in one phase. */
struct bench_result {
	const char *op;
	uint64_t size, operations, mismatches;
	uint64_t misses;     /* of kv: keys that were not there any more */
	uint64_t unsent;     /* of a rate: requests that were due and never sent */
	uint64_t at;         /* of a slice: ns from the begin of the measurement to its end; else 0 */
	uint64_t keys;       /* of kv: different keys that were used */
	uint64_t blocks;     /* of requests of blocks: that were asked for; else 0 */
	uint64_t hits;       /* of these: that were there */
	bool step;           /* it is a step of the operations of another result */
	uint64_t depth;      /* requests outstanding on each connection, at most */
	const char *way;     /* of kv: "eager" or "rendezvous"; else NULL */
	uint64_t begin, end; /* time_now(); begin TIME_NEVER: nothing was measured */
	int error;           /* the first one */
	char why[256];       /* and its sentence */
	struct ctl_usage usage;
	struct histogram latency;
};

void bench_result_init(struct bench_result *result, const char *op);

/* Add a part of what was measured to the whole. */
void bench_result_merge(struct bench_result *into, const struct bench_result *from);

/* Keep the first error; `why` "" or NULL: strerror's. */
void bench_result_fail(struct bench_result *result, int error, const char *why);

/* Print one result, or keep it for --json. */
typedef void bench_report_fn(const struct bench_result *result, const char *transport);
bench_report_fn bench_report;

/* The same for a part of the time of the result that comes next. */
bench_report_fn bench_report_slice;

void bench_print_head(const char *transport);
double bench_per_second(const struct bench_result *result);
json_t *bench_result_json(const struct bench_result *result);

/* The members of a result that is a time alone, of one operation; `way` NULL: without. */
json_t *bench_rate_json(const char *op, const char *way, uint64_t size, double ns);

/* The object that --json prints about a benchmark. Takes `rows`. */
json_t *bench_summary(const char *what, json_t *rows);

/* A thread of a benchmark with its share of the connections. A benchmark's own struct of a thread begins with it. */
struct bench_thread {
	uint64_t first, clients; /* the connections number `first` and those behind it */
	uint64_t duration;       /* of this phase; TIME_NEVER: until each connection has done its quota */
	const struct bench_case *benchmark;
	pthread_t id;
	struct bench_result result;
};

/* A benchmark of connections that threads share, as the driver needs it. */
struct bench_case {
	const char *op, *transport;
	void *threads; /* bench.threads structs, of thread_size bytes each, which begin with struct bench_thread */
	size_t thread_size;
	/* Before each phase, for each connection: how many operations it is to do, or UINT64_MAX. */
	void (*client_begin)(uint64_t client, uint64_t quota);
	void (*run)(struct bench_thread *thread);   /* a thread's part of a phase */
	void (*begin)(struct bench_result *result); /* before the threads of a phase are started; NULL: nothing */
	void (*end)(struct bench_result *result);   /* when all have ended; NULL: nothing */
};

/* Share out the connections among the threads. */
void bench_share(const struct bench_case *c);

/* Run one phase of `count` operations, or of `duration` where that is 0, and say what is wrong with its result, if
 * anything. `report` gets the result; NULL: nothing is measured. An exit status. */
int bench_phase(const struct bench_case *c, uint64_t duration, uint64_t count, bench_report_fn *report);

/* Warm up, and measure for as long as `bench` says. An exit status. */
int bench_measure(const struct bench_case *c, bench_report_fn *report);

/* Check a --size: 0, or a negative errno after saying what is wrong with it. */
int bench_check_sizes(const char *text, uint64_t least, uint64_t most);

/* Set bench.server and get ready for Ctrl-C. Answers an exit status. */
int bench_prepare(const struct ctl_arguments *arguments);

/* round() for each size, until one answers another exit status than CTL_OK or Ctrl-C. */
int bench_rounds(const struct ctl_arguments *arguments, const uint64_t *sizes, size_t n, int (*round)(void));

/* ctl/bench/kv.c, for bench.size and by connections of their own: fill, measure `ops` ("set,get"), delete.
 * `eager_limit` as in struct rdmad_options. Answers an exit status. */
int bench_kv_once(const char *ops, uint32_t eager_limit, bench_report_fn *report);

/*
 * ctl/bench/sweep.c: throughput by size, and one way against the other.
 */

/* The first size from which on the second way is at least as fast as the first at every size, 0: none. `eager` and
 * `rendezvous` are operations per second at sizes[i], 0 where one was not measured: such sizes do not count. */
uint64_t bench_crossover(const uint64_t *sizes, const double *eager, const double *rendezvous, size_t n);

/*
 * ctl/bench/plot.c: a picture of curves, both axes logarithmic.
 */
#define PLOT_POINTS BENCH_SIZES_MAX

struct plot_curve {
	const char *name;
	char mark; /* in text */
	size_t n;
	double x[PLOT_POINTS], y[PLOT_POINTS]; /* over 0 */
};

/* Whether gnuplot is there. CTL_OK, or says which package has it and answers CTL_FAILED. */
int plot_check(void);

/* A picture by gnuplot into the file `path`: an SVG where it ends so, else a PNG. Answers an exit status. */
int plot_file(const char *path, const char *title, const struct plot_curve *curves, size_t n);

/* In characters. */
void plot_text(FILE *out, const char *title, const struct plot_curve *curves, size_t n);

#endif
