/*
 * memcached: the protocol of memcached's clients, text and meta, as bytes: commands are taken apart, answers are built.
 * No I/O, no store, no clock. What is right, and which words tell of what is wrong, is as in memcached 1.6.18:
 * https://github.com/memcached/memcached/blob/1.6.18/doc/protocol.txt
 *
 * Threads: none of it is shared.
 */
#ifndef RDMAD_MEMCACHED_H
#define RDMAD_MEMCACHED_H

#include "base/base.h"

#define MEMC_KEY_MAX 250         /* bytes of a key, as it stands in a command */
#define MEMC_LINE_MAX (16 * KIB) /* bytes of a line, with its end */
#define MEMC_GET_MAX (1 * MIB)   /* the same of one that begins with "get " or "gets " */
#define MEMC_FLAGS_MAX 20        /* of a meta command */
#define MEMC_VALUE_MAX (INT32_MAX - 2)

/* Bytes within what was parsed, which do not end with a 0. */
struct memc_word {
	const char *at;
	size_t len;
};

enum memc_id {
	MEMC_FAULTY, /* `error` is the answer */
	MEMC_GET,    /* get gets gat gats: keys by memc_next_key() */
	MEMC_SET,
	MEMC_ADD,
	MEMC_REPLACE,
	MEMC_APPEND,
	MEMC_PREPEND,
	MEMC_CAS,
	MEMC_INCR,
	MEMC_DECR,
	MEMC_DELETE,
	MEMC_TOUCH,
	MEMC_FLUSH,
	MEMC_VERSION,
	MEMC_VERBOSITY,
	MEMC_STATS, /* its words by memc_next_key() */
	MEMC_QUIT,
	MEMC_META_GET,
	MEMC_META_SET, /* `mode` says what it does: MEMC_SET, ... MEMC_CAS */
	MEMC_META_DELETE,
	MEMC_META_COUNT, /* `mode`: MEMC_INCR or MEMC_DECR */
	MEMC_META_NOOP,
	MEMC_META_DEBUG,
	MEMC_CLOSE, /* it speaks HTTP: nothing more is said to it */
};

struct memc_command {
	enum memc_id id;
	enum memc_id mode;
	const char *error; /* without the line's end */
	bool quiet;        /* noreply: nothing is answered; q of a meta command: nothing that was to be expected */
	bool stores;       /* value_len bytes and a line's end follow; of a faulty command they are to be dropped */
	bool meta;
	uint64_t value_len;
	struct memc_word key; /* of a `binary` one as it is meant, in the parser */
	bool binary;          /* flag b: the key came in base64 */
	bool with_cas;        /* gets, gats */
	bool touches;         /* gat, gats */
	uint32_t client_flags;
	int32_t exptime; /* of text commands, T, and flush_all */
	uint64_t cas;    /* cas, C */
	uint64_t delta;  /* incr, decr, D */
	/* Of meta commands. */
	bool has_cas, has_exptime; /* C and T are there */
	bool vivify;               /* N is: make it if it is not there, for so long */
	int32_t vivify_exptime;
	bool recache; /* R is: win if it expires within so long */
	int32_t recache_exptime;
	bool value;                            /* v */
	bool no_bump;                          /* u */
	bool stale;                            /* I */
	uint64_t start;                        /* J */
	struct memc_word flag[MEMC_FLAGS_MAX]; /* each as it came, in its order; no letter twice */
	unsigned flags;
	/* What memc_next_key() has still. */
	struct memc_word rest;
};

#define MEMC_BINARY 0x80 /* first byte of a connection whose client speaks the binary protocol */

enum memc_result {
	MEMC_MORE,    /* the line is not whole: call again with the same bytes and more */
	MEMC_COMMAND, /* `command` is what `used` bytes say */
	MEMC_BAD,     /* a line that never ends: the connection does */
};

struct memc_parser {
	struct memc_command command;
	size_t used;
	/* The parser's own */
	size_t at; /* the next byte to look at */
	char key[MEMC_KEY_MAX];
};

/* The bytes from the first of a line on; they may have moved since the last call, not changed. Words of the command
 * stay until they do. A zeroed parser is a fresh one, and it has nothing to be freed. */
enum memc_result memc_parse(struct memc_parser *parser, const char *bytes, size_t len);
/* The next word of `rest`. False: there is none. */
bool memc_next_key(struct memc_command *command, struct memc_word *word);
/* Its name, "get" or "mg"; of a faulty one, too. */
const char *memc_command_name(const struct memc_command *command);
bool memc_is(const struct memc_word *word, const char *text);
/* The first letter of a meta command's flag. */
static inline char memc_letter(const struct memc_word *flag)
{
	return *flag->at;
}

/* The words of ASCII authentication: "set <key> <flags> <exptime> <bytes>" is a line, whose data are a name and a
 * password. False: it is no such line. */
bool memc_parse_login(const char *line, size_t len, uint32_t *bytes);
bool memc_parse_secret(const char *data, size_t len, struct memc_word *name, struct memc_word *secret);

/* What memcached takes for an unsigned number: C's strtoull(), with a blank or the end behind it. */
bool memc_read_number(const char *at, size_t len, uint64_t *out);

/* From base64, as memcached reads it: what is no digit of it is passed over. 0: it is none, or not `room` bytes. */
size_t memc_base64_read(const char *at, size_t len, char *out, size_t room);
#define MEMC_BASE64(len) (((len) + 2) / 3 * 4)
size_t memc_base64_write(const char *at, size_t len, char *out); /* MEMC_BASE64(len) bytes */

/*
 * build.c: answers. The bytes go to memory that grows by malloc up to `most`; after a failure all calls do nothing, and
 * `failed` is looked at once in the end.
 */
struct memc_out {
	char *at;
	size_t len, room, most;
	bool failed; /* no memory, or beyond `most` */
};

char *memc_grow(struct memc_out *out, size_t bytes); /* room for so many behind len, which stays; NULL: failed */
void memc_put(struct memc_out *out, const void *bytes, size_t len);
void memc_put_text(struct memc_out *out, const char *text);
void memc_put_number(struct memc_out *out, uint64_t number);
void memc_line(struct memc_out *out, const char *text); /* with the line's end */
/* VALUE <key> <flags> <bytes> [<cas>]; the bytes and a line's end follow. */
void memc_value(struct memc_out *out, const struct memc_word *key, uint32_t flags, uint64_t len, const uint64_t *cas);
#define MEMC_VALUE_HEAD (MEMC_KEY_MAX + 64) /* bytes of that line, at most */
/* The same to memory that has room for it: the place behind it. */
char *memc_write_value(char *to, const struct memc_word *key, uint32_t flags, uint64_t len, const uint64_t *cas);
/* What stands behind a meta answer's first word: a letter and a number; the key of the command; a flag as it came. */
void memc_flag(struct memc_out *out, char letter);
void memc_flag_number(struct memc_out *out, char letter, uint64_t number);
/* O and k, as they were asked for; nothing for other flags. */
void memc_flag_echo(struct memc_out *out, const struct memc_command *command, const struct memc_word *flag);
/* The flags O and k of the command, which each answer has. */
void memc_flags_echo(struct memc_out *out, const struct memc_command *command);

#endif
