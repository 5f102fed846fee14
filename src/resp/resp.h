/*
 * resp: the protocol of Redis's clients, RESP2 and RESP3, as bytes: commands are taken apart, replies are built, and
 * the table of commands says what each is. No I/O, no store, no clock. The specification is that of Redis 7.2:
 * https://redis.io/docs/reference/protocol-spec/
 *
 * Threads: none of it is shared, but for the tables, which do not change.
 */
#ifndef RDMAD_RESP_H
#define RDMAD_RESP_H

#include "base/base.h"

/*
 * parse.c: commands, cut anywhere.
 */
#define RESP_INLINE_MAX (64 * KIB)  /* bytes of a line, with which an array, an argument or an inline command begins */
#define RESP_ARGS_MAX (1024 * 1024) /* arguments of a command */
#define RESP_BULK_MAX (512 * MIB)   /* bytes of an argument */
#define RESP_ARGS_UNPROVED 10       /* the same two of a client that has to log in, and has not */
#define RESP_BULK_UNPROVED (16 * KIB)

struct resp_limits {
	uint64_t args;  /* most arguments of a command */
	uint64_t bulk;  /* bytes of one */
	uint64_t total; /* bytes of all of a command */
	uint64_t large; /* an argument of so many bytes or more is offered to the caller: RESP_LARGE */
};

/* One argument. `at` is valid until the bytes move that were given to resp_parse(). */
struct resp_arg {
	const char *at;
	size_t len;
};

enum resp_result {
	RESP_MORE, /* all bytes were looked at, and the command is not whole: call again with the same bytes and more */
	RESP_COMMAND, /* argc and argv are a command of `used` bytes; argc 0: an empty line, to be passed over */
	RESP_LARGE,   /* argv[argc - 1] is long; its first byte is at `used`, and perhaps not here yet */
	RESP_BAD,     /* `error` is the text of the reply, with which the connection ends */
};

struct resp_parser {
	/* The result */
	struct resp_arg *argv;
	unsigned argc;   /* of RESP_LARGE: with the long one as the last */
	size_t used;     /* bytes, from the first that was given */
	size_t want;     /* of RESP_MORE: so many bytes more at least are to come; at least 1 */
	char error[160]; /* of RESP_BAD: "ERR Protocol error: ..." without the line's end */
	bool is_inline;  /* not an array */
	/* The parser's own */
	size_t *offset;    /* of each argument from the first byte; SIZE_MAX: taken by the caller */
	unsigned room;     /* of argv and offset */
	unsigned expected; /* arguments of the array; 0: none has begun */
	size_t line;       /* where the line begins that is looked at */
	size_t at;         /* the next byte to look at */
	size_t bulk;       /* bytes of the argument that has begun which are to come here, SIZE_MAX: none has begun */
	uint64_t total;
	char *text; /* quoted arguments of an inline command, as they are meant */
	size_t text_room;
};

void resp_parser_init(struct resp_parser *parser);
void resp_parser_clear(struct resp_parser *parser); /* frees; it may be used again */
void resp_parser_trim(struct resp_parser *parser);  /* frees what few commands need, if none is under way */

/*
 * The bytes from the first of a command on; they may have moved since the last call, not changed. After RESP_COMMAND
 * or RESP_BAD the next call is about the bytes behind it. argv and offset grow by malloc, only beyond the largest
 * number of arguments so far; -ENOMEM is a RESP_BAD. Time: each byte is looked at once, however they come.
 *
 * Errors have Redis's words: "ERR Protocol error: invalid multibulk length", "... expected '$', got 'x'",
 * "... invalid bulk length", "... too big mbulk count string", "... too big bulk count string",
 * "... unauthenticated multibulk length", "... unauthenticated bulk length", "... too big inline request",
 * "... unbalanced quotes in request"; and, which is ours, "... command of more than 100 bytes" for limits->total.
 * Limits of RESP_ARGS_UNPROVED, RESP_BULK_UNPROVED or less give the unauthenticated ones. An inline command knows
 * limits->total only, and no RESP_LARGE.
 */
enum resp_result resp_parse(struct resp_parser *parser, const struct resp_limits *limits, const char *bytes,
			    size_t len);

/* After RESP_LARGE: the caller takes the argument's bytes out of the stream itself, so that what is given from now on
 * are the `used` bytes and what comes behind the argument, from its line's end on. In argv it is {at, len}. */
void resp_take_large(struct resp_parser *parser, const char *at);
/* Or it does not: the argument comes as all others, and is not offered again. */
void resp_leave_large(struct resp_parser *parser);

/*
 * build.c: replies. The bytes go to memory that grows by malloc up to `most`; after a failure all calls do nothing,
 * and `failed` is looked at once in the end.
 */
struct resp_out {
	char *at;
	size_t len, room, most;
	bool three;  /* RESP3 */
	bool failed; /* no memory, or beyond `most` */
};

char *resp_grow(struct resp_out *out, size_t bytes); /* room for so many behind len, which stays; NULL: failed */
void resp_raw(struct resp_out *out, const void *bytes, size_t len);
void resp_simple(struct resp_out *out, const char *text); /* +OK */
void resp_error(struct resp_out *out, const char *format, ...)
	__attribute__((format(printf, 2, 3)));          /* -ERR ...; line ends become blanks */
void resp_number(struct resp_out *out, int64_t number); /* :1 */
void resp_bulk(struct resp_out *out, const void *bytes, size_t len);
void resp_bulk_text(struct resp_out *out, const char *text);
void resp_bulk_number(struct resp_out *out, int64_t number); /* as text: $1 */
void resp_bulk_begin(struct resp_out *out, size_t len);      /* its bytes and resp_bulk_end() follow */
void resp_bulk_end(struct resp_out *out);
void resp_verbatim(struct resp_out *out, const char *text, size_t len); /* RESP3: =txt:, else a bulk */
void resp_null(struct resp_out *out);                                   /* RESP3: _, else $-1 */
void resp_null_array(struct resp_out *out);                             /* RESP3: _, else *-1 */
void resp_bool(struct resp_out *out, bool is);                          /* RESP3: #t, else :1 */
void resp_double(struct resp_out *out, double number); /* RESP3: , else a bulk; %.17g, inf, -inf, nan */
void resp_array(struct resp_out *out, size_t members);
void resp_map(struct resp_out *out, size_t pairs);    /* RESP3: %, else an array of twice as many */
void resp_set(struct resp_out *out, size_t members);  /* RESP3: ~, else an array */
void resp_push(struct resp_out *out, size_t members); /* RESP3: >, else an array */

/*
 * text.c: what Redis takes for a number, a pattern, a word.
 */

/* All of the bytes are a decimal 64-bit integer as Redis writes it: no blanks, no plus, no leading zeros, no -0. */
bool resp_read_int64(const void *bytes, size_t len, int64_t *out);
/* As strtold takes all of the bytes (no blanks in front, not nan, at most 5 KiB). */
bool resp_read_long_double(const void *bytes, size_t len, long double *out);
/* As INCRBYFLOAT answers: "%.17Lf" without trailing zeros, never with an exponent; the length. -1: it does not fit. */
#define RESP_LONG_DOUBLE (5 * KIB)
int resp_write_long_double(char out[RESP_LONG_DOUBLE], long double number);
#define RESP_INT64 21
int resp_write_int64(char out[RESP_INT64], int64_t number);
/* Redis's glob: * ? [a-z] [^a] \x, byte by byte. Bounded time: see the source. */
bool resp_match(const char *pattern, size_t pattern_len, const char *text, size_t len, bool any_case);
/* `word` is lower case. */
bool resp_is(const struct resp_arg *arg, const char *word);

/*
 * commands.c: the table of commands. COMMAND, COMMAND DOCS, the manual's list and the tests' are made from it.
 */
enum resp_flag {
	RESP_WRITE = 1u << 0,
	RESP_READONLY = 1u << 1,
	RESP_DENYOOM = 1u << 2,
	RESP_ADMIN = 1u << 3,
	RESP_PUBSUB = 1u << 4,
	RESP_NOSCRIPT = 1u << 5,
	RESP_LOADING = 1u << 6,
	RESP_STALE = 1u << 7,
	RESP_FAST = 1u << 8,
	RESP_NO_AUTH = 1u << 9,
	RESP_BLOCKING = 1u << 10,
	RESP_MOVABLE_KEYS = 1u << 11,
	RESP_NO_MULTI = 1u << 12,
	RESP_ALLOW_BUSY = 1u << 13,
	RESP_SKIP_MONITOR = 1u << 14,
	RESP_SKIP_SLOWLOG = 1u << 15,
	RESP_NO_MANDATORY_KEYS = 1u << 16,
	RESP_NO_ASYNC_LOADING = 1u << 17,
	RESP_DANGEROUS = 1u << 18, /* in the category @dangerous, though no RESP_ADMIN */
};

enum resp_group {
	RESP_STRING,
	RESP_GENERIC,
	RESP_CONNECTION,
	RESP_SERVER,
	RESP_TRANSACTIONS,
	RESP_PUBSUB_GROUP,
	RESP_SCRIPTING,
	RESP_CLUSTER,
	RESP_HASH
};

struct resp_command {
	const char *name;      /* lower case; of a subcommand "client|id" */
	unsigned id;           /* enum resp_id, from 0 without a gap, subcommands behind the commands */
	int arity;             /* with the name; negative: at least so many */
	unsigned flags;        /* of enum resp_flag */
	int first, last, step; /* positions of keys; 0: none; last -1: the last argument */
	enum resp_group group;
	const char *since, *complexity, *summary;
};

/* An id for each command: RESP_CMD_GET, ..., and for each subcommand: RESP_CMD_CLIENT_ID, ... Made from the rows there:
 * ROW(GET, "get", 2, RESP_READONLY | RESP_FAST, 1, 1, 1, RESP_STRING, "1.0.0", "O(1)", "Returns a value.") */
#include "resp/commands.h"

extern const struct resp_command resp_commands[RESP_IDS];

/* Of ASCII alone, in any locale. */
static inline char resp_lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

/* By name in any case, in constant time; NULL: none. No subcommands. */
const struct resp_command *resp_find(const char *name, size_t len);
/* "id" of "client"; NULL: none. */
const struct resp_command *resp_find_sub(const struct resp_command *of, const char *name, size_t len);
bool resp_has_subs(const struct resp_command *command);
/* Whether Redis has a command of that name, in any case, and rdmad does not: of other types, of replication, ... */
bool resp_is_refused(const char *name, size_t len);
/* Whether that many arguments, with the name, are right. */
static inline bool resp_arity_fits(const struct resp_command *command, unsigned argc)
{
	return command->arity < 0 ? argc >= (unsigned)-command->arity : argc == (unsigned)command->arity;
}
/* Answers of COMMAND (an array) and COMMAND DOCS (the name, and a map) about one, with its subcommands. */
void resp_tell_command(struct resp_out *out, const struct resp_command *command);
void resp_tell_docs(struct resp_out *out, const struct resp_command *command);
/* Keys among arguments: one at `first`, and one `step` behind each. */
struct resp_keys {
	unsigned first, step, count;
};

/* Those of any command of the table (SET k v, MSET k v k v, EVAL script 2 k k ...). None: also where their number is
 * none. The arity fits. */
struct resp_keys resp_keys(const struct resp_command *command, const struct resp_arg *argv, unsigned argc);
static inline const struct resp_arg *resp_key(const struct resp_keys *keys, const struct resp_arg *argv, unsigned i)
{
	return &argv[keys->first + i * keys->step];
}

#endif
