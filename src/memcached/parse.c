/* parse.c: lines of memcached's clients, text and meta. */
#include "memcached/memcached.h"

#include <ctype.h>

#define WORDS 23      /* that are told apart in a line */
#define META_WORDS 19 /* of a meta command at most, with its name and key */
#define OPAQUE 32     /* characters of O with what it brings */
#define FLAG_LETTERS 127

static const char bad_format[] = "CLIENT_ERROR bad command line format";
static const char bad_token[] = "CLIENT_ERROR bad token in command line format";
static const char bad_exptime[] = "CLIENT_ERROR invalid exptime argument";

struct words {
	struct memc_word of[WORDS];
	unsigned count;
	const char *end; /* of the line */
};

/*
 * Numbers
 */

static bool is_blank(char c)
{
	return isspace((unsigned char)c);
}

/* Digits behind blanks and a sign, and a blank or the end behind them. */
static bool read_digits(const char *at, size_t len, uint64_t *out, bool *negative)
{
	const char *end = at + len;
	uint64_t value = 0;

	while (at < end && is_blank(*at))
		at++;
	*negative = at < end && *at == '-';
	at += at < end && (*at == '-' || *at == '+');
	if (at == end || *at < '0' || *at > '9')
		return false;
	for (; at < end && *at >= '0' && *at <= '9'; at++)
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
			return false;
	*out = value;
	return at == end || is_blank(*at) || !*at;
}

bool memc_read_number(const char *at, size_t len, uint64_t *out)
{
	bool negative;

	if (!read_digits(at, len, out, &negative))
		return false;
	*out = negative ? -*out : *out;
	return (int64_t)*out >= 0 || !memchr(at, '-', len);
}

static bool read_u32(const struct memc_word *word, uint32_t *out)
{
	uint64_t value;

	if (!memc_read_number(word->at, word->len, &value))
		return false;
	*out = (uint32_t)value;
	return true;
}

/* A number that does not fit 32 bits loses the bits above. */
static bool read_i32(const char *at, size_t len, int32_t *out)
{
	uint64_t value;
	bool negative;

	if (!read_digits(at, len, &value, &negative) || value > (uint64_t)INT64_MAX + negative)
		return false;
	*out = (int32_t)(uint32_t)(negative ? -value : value);
	return true;
}

/*
 * Words
 */

bool memc_is(const struct memc_word *word, const char *text)
{
	return strlen(text) == word->len && memcmp(word->at, text, word->len) == 0;
}

static bool next_word(const char **at, const char *end, struct memc_word *word)
{
	const char *stop;

	while (*at < end && **at == ' ')
		++*at;
	if (*at == end)
		return false;
	stop = memchr(*at, ' ', (size_t)(end - *at));
	stop = stop ? stop : end;
	*word = (struct memc_word){*at, (size_t)(stop - *at)};
	*at = stop;
	return true;
}

static void words_of(struct words *words, const char *line, size_t len)
{
	const char *at = line;

	words->count = 0;
	words->end = line + len;
	while (words->count < WORDS && next_word(&at, words->end, &words->of[words->count]))
		words->count++;
}

bool memc_next_key(struct memc_command *command, struct memc_word *word)
{
	const char *at = command->rest.at, *end = at + command->rest.len;
	bool found = next_word(&at, end, word);

	command->rest = (struct memc_word){at, (size_t)(end - at)};
	return found;
}

static void rest_from(struct memc_command *c, const struct words *words, unsigned from)
{
	const char *at = from < words->count ? words->of[from].at : words->end;

	c->rest = (struct memc_word){at, (size_t)(words->end - at)};
}

/*
 * Text commands
 */

static void faulty_command(struct memc_command *c, const char *error)
{
	c->id = MEMC_FAULTY;
	c->error = error;
}

static void take_noreply(struct memc_command *c, const struct words *words)
{
	c->quiet = memc_is(&words->of[words->count - 1], "noreply");
}

/* Its key, which every command has as its second word. */
static bool take_key(struct memc_command *c, const struct words *words)
{
	c->key = words->of[1];
	if (c->key.len <= MEMC_KEY_MAX)
		return true;
	faulty_command(c, bad_format);
	return false;
}

static void parse_get(struct memc_command *c, const struct words *words)
{
	struct memc_word key;

	if (words->count < 2) {
		faulty_command(c, "ERROR");
		return;
	}
	if (c->touches && !read_i32(words->of[1].at, words->of[1].len, &c->exptime)) {
		faulty_command(c, bad_exptime);
		return;
	}
	rest_from(c, words, c->touches ? 2 : 1);
	while (memc_next_key(c, &key))
		if (key.len > MEMC_KEY_MAX) {
			faulty_command(c, bad_format);
			return;
		}
	rest_from(c, words, c->touches ? 2 : 1);
}

static void parse_store(struct memc_command *c, const struct words *words)
{
	unsigned most = c->id == MEMC_CAS ? 6 : 5;
	int32_t len;

	if (words->count != most && words->count != most + 1) {
		faulty_command(c, "ERROR");
		return;
	}
	take_noreply(c, words);
	if (!take_key(c, words))
		return;
	if (!read_u32(&words->of[2], &c->client_flags) || !read_i32(words->of[3].at, words->of[3].len, &c->exptime) ||
	    !read_i32(words->of[4].at, words->of[4].len, &len) ||
	    (c->id == MEMC_CAS && !memc_read_number(words->of[5].at, words->of[5].len, &c->cas)) || len < 0 ||
	    len > MEMC_VALUE_MAX) {
		faulty_command(c, bad_format);
		return;
	}
	c->has_cas = c->id == MEMC_CAS;
	c->stores = true;
	c->value_len = (uint64_t)len;
}

static void parse_count(struct memc_command *c, const struct words *words)
{
	if (words->count != 3 && words->count != 4) {
		faulty_command(c, "ERROR");
		return;
	}
	take_noreply(c, words);
	if (take_key(c, words) && !memc_read_number(words->of[2].at, words->of[2].len, &c->delta))
		faulty_command(c, "CLIENT_ERROR invalid numeric delta argument");
}

static void parse_touch(struct memc_command *c, const struct words *words)
{
	if (words->count != 3 && words->count != 4) {
		faulty_command(c, "ERROR");
		return;
	}
	take_noreply(c, words);
	if (take_key(c, words) && !read_i32(words->of[2].at, words->of[2].len, &c->exptime))
		faulty_command(c, bad_exptime);
}

/* A time of 0 behind the key is of clients of long ago. */
static void parse_delete(struct memc_command *c, const struct words *words)
{
	bool zero = words->count > 2 && memc_is(&words->of[2], "0");

	if (words->count < 2 || words->count > 4) {
		faulty_command(c, "ERROR");
		return;
	}
	if (words->count > 2)
		take_noreply(c, words);
	if ((words->count == 3 && !zero && !c->quiet) || (words->count == 4 && !(zero && c->quiet)))
		faulty_command(c, "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]");
	else
		take_key(c, words);
}

static void parse_flush(struct memc_command *c, const struct words *words)
{
	if (words->count > 3) {
		faulty_command(c, "ERROR");
		return;
	}
	take_noreply(c, words);
	if (words->count != (c->quiet ? 2 : 1) && !read_i32(words->of[1].at, words->of[1].len, &c->exptime))
		faulty_command(c, bad_exptime);
}

static void parse_verbosity(struct memc_command *c, const struct words *words)
{
	uint32_t level;

	if (words->count != 2 && words->count != 3) {
		faulty_command(c, "ERROR");
		return;
	}
	take_noreply(c, words);
	if (!read_u32(&words->of[1], &level))
		faulty_command(c, bad_format);
}

/*
 * Meta commands
 */

static bool read_time(struct memc_command *c, const struct memc_word *flag, int32_t *out)
{
	if (read_i32(flag->at + 1, flag->len - 1, out))
		return true;
	c->error = bad_token;
	return false;
}

static bool read_flag_number(struct memc_command *c, const struct memc_word *flag, uint64_t *out, const char *error)
{
	if (memc_read_number(flag->at + 1, flag->len - 1, out))
		return true;
	c->error = error;
	return false;
}

static bool take_mode(struct memc_command *c, const struct memc_word *flag, char *mode)
{
	if (flag->len == 2)
		*mode = flag->at[1];
	else
		c->error = "CLIENT_ERROR incorrect length for M token";
	return flag->len == 2;
}

static bool take_base64_key(struct memc_parser *p)
{
	struct memc_command *c = &p->command;
	size_t len = memc_base64_read(c->key.at, c->key.len, p->key, sizeof(p->key));

	c->binary = true;
	c->key = (struct memc_word){p->key, len};
	if (!len)
		c->error = "CLIENT_ERROR error decoding key";
	return len;
}

/* One flag. False: `error` says what is wrong with it. */
static bool take_flag(struct memc_parser *p, const struct memc_word *flag, char *mode, bool *known)
{
	struct memc_command *c = &p->command;
	struct memc_word number = {flag->at + 1, flag->len - 1};

	switch (memc_letter(flag)) {
	case 'b':
		return take_base64_key(p);
	case 'N':
		c->vivify = true;
		return read_time(c, flag, &c->vivify_exptime);
	case 'T':
		c->has_exptime = true;
		return read_time(c, flag, &c->exptime);
	case 'R':
		c->recache = true;
		return read_time(c, flag, &c->recache_exptime);
	case 'v':
		c->value = true;
		return true;
	case 'u':
		c->no_bump = true;
		return true;
	case 'q':
		c->quiet = true;
		return true;
	case 'I':
		c->stale = true;
		return true;
	case 'F':
		return read_u32(&number, &c->client_flags);
	case 'C':
		c->has_cas = true;
		return read_flag_number(c, flag, &c->cas, bad_token);
	case 'M':
		return take_mode(c, flag, mode);
	case 'J':
		return read_flag_number(c, flag, &c->start, "CLIENT_ERROR invalid numeric initial value");
	case 'D':
		return read_flag_number(c, flag, &c->delta, "CLIENT_ERROR invalid numeric delta value");
	case 'O':
	case 'P':
	case 'L':
	case 'k':
	case 's':
	case 't':
	case 'c':
	case 'f':
	case 'l':
	case 'h':
		return true;
	default:
		*known = false;
		c->error = "CLIENT_ERROR invalid flag";
		return false;
	}
}

/* All flags. False: `error` says what is wrong, of several the last but where a flag is unknown or there twice. */
static bool take_flags(struct memc_parser *p, const struct words *words, unsigned from, char *mode)
{
	struct memc_command *c = &p->command;
	bool seen[FLAG_LETTERS] = {false}, good = true, known = true;

	c->error = bad_format;
	for (unsigned i = from; i < words->count; i++) {
		unsigned char letter = (unsigned char)memc_letter(&words->of[i]);

		if (letter >= FLAG_LETTERS || seen[letter]) {
			c->error = "CLIENT_ERROR duplicate flag";
			return false;
		}
		seen[letter] = true;
		c->flag[c->flags++] = words->of[i];
		good &= take_flag(p, &words->of[i], mode, &known);
		if (!known)
			return false;
	}
	c->error = good ? NULL : c->error;
	return good;
}

static bool opaque_fits(const struct memc_command *c)
{
	for (unsigned i = 0; i < c->flags; i++)
		if (memc_letter(&c->flag[i]) == 'O' && c->flag[i].len > OPAQUE)
			return false;
	return true;
}

/* A meta command's words and key; false: it was found faulty. */
static bool meta_begins(struct memc_command *c, const struct words *words, const char *too_long)
{
	c->meta = true;
	c->delta = 1;
	if (words->count < 2)
		faulty_command(c, "ERROR");
	else if (take_key(c, words) && words->count > META_WORDS)
		faulty_command(c, too_long);
	return c->id != MEMC_FAULTY;
}

/* What is told in any case. */
static void meta_faulty(struct memc_command *c, const char *error)
{
	c->quiet = false;
	faulty_command(c, error);
}

static void parse_meta_get(struct memc_parser *p, const struct words *words)
{
	struct memc_command *c = &p->command;
	char mode = 0;

	if (!meta_begins(c, words, "CLIENT_ERROR options flags are too long"))
		return;
	if (!take_flags(p, words, 2, &mode))
		meta_faulty(c, c->error);
	else if (!opaque_fits(c))
		meta_faulty(c, "CLIENT_ERROR opaque token too long");
}

static bool take_set_mode(struct memc_command *c, char mode)
{
	switch (mode) {
	case 0:
	case 'S':
		c->mode = c->has_cas ? MEMC_CAS : MEMC_SET;
		return true;
	case 'R':
		c->mode = c->has_cas ? MEMC_CAS : MEMC_REPLACE;
		return true;
	case 'E':
		c->mode = MEMC_ADD;
		return true;
	case 'A':
		c->mode = MEMC_APPEND;
		return true;
	case 'P':
		c->mode = MEMC_PREPEND;
		return true;
	default:
		return false;
	}
}

static void parse_meta_set(struct memc_parser *p, const struct words *words)
{
	struct memc_command *c = &p->command;
	char mode = 0;
	int32_t len;

	if (words->count == 2) {
		c->meta = true;
		faulty_command(c, bad_format);
		return;
	}
	if (!meta_begins(c, words, "CLIENT_ERROR options flags too long"))
		return;
	if (!read_i32(words->of[2].at, words->of[2].len, &len) || len < 0 || len > MEMC_VALUE_MAX) {
		faulty_command(c, bad_format);
		return;
	}
	c->stores = true;
	c->value_len = (uint64_t)len;
	if (!take_flags(p, words, 3, &mode))
		meta_faulty(c, c->error);
	else if (!take_set_mode(c, mode))
		meta_faulty(c, "CLIENT_ERROR invalid mode for ms M token");
	else if (!opaque_fits(c))
		meta_faulty(c, "CLIENT_ERROR opaque token too long");
}

static void parse_meta_delete(struct memc_parser *p, const struct words *words)
{
	struct memc_command *c = &p->command;
	char mode = 0;

	if (!meta_begins(c, words, "CLIENT_ERROR options flags too long"))
		return;
	if (!take_flags(p, words, 2, &mode))
		meta_faulty(c, "CLIENT_ERROR invalid or duplicate flag");
	else if (!opaque_fits(c))
		meta_faulty(c, "CLIENT_ERROR opaque token too long");
}

static void parse_meta_count(struct memc_parser *p, const struct words *words)
{
	struct memc_command *c = &p->command;
	char mode = 0;

	if (!meta_begins(c, words, "CLIENT_ERROR options flags too long"))
		return;
	if (!take_flags(p, words, 2, &mode)) {
		meta_faulty(c, "CLIENT_ERROR invalid or duplicate flag");
		return;
	}
	if (mode && !strchr("I+D-", mode))
		meta_faulty(c, "CLIENT_ERROR invalid mode for ma M token");
	else if (!opaque_fits(c))
		meta_faulty(c, "CLIENT_ERROR opaque token too long");
	else
		c->mode = mode == 'D' || mode == '-' ? MEMC_DECR : MEMC_INCR;
}

static void parse_meta_debug(struct memc_parser *p, const struct words *words)
{
	struct memc_command *c = &p->command;

	c->meta = true;
	if (words->count < 2)
		faulty_command(c, bad_format);
	else if (take_key(c, words) && words->count > 2 && memc_is(&words->of[2], "b") && !take_base64_key(p))
		faulty_command(c, bad_format);
}

/*
 * Lines
 */

static const struct row {
	const char *name;
	enum memc_id id;
	void (*parse)(struct memc_command *c, const struct words *words);
	bool with_cas, touches;
	const char
		*error; /* of commands that rdmad lacks, in the words of a memcached that was told not to have them */
} rows[] = {
	{"get", MEMC_GET, parse_get},
	{"gets", MEMC_GET, parse_get, .with_cas = true},
	{"set", MEMC_SET, parse_store},
	{"gat", MEMC_GET, parse_get, .touches = true},
	{"gats", MEMC_GET, parse_get, .touches = true, .with_cas = true},
	{"bget", MEMC_GET, parse_get},
	{"add", MEMC_ADD, parse_store},
	{"replace", MEMC_REPLACE, parse_store},
	{"append", MEMC_APPEND, parse_store},
	{"prepend", MEMC_PREPEND, parse_store},
	{"cas", MEMC_CAS, parse_store},
	{"incr", MEMC_INCR, parse_count},
	{"decr", MEMC_DECR, parse_count},
	{"delete", MEMC_DELETE, parse_delete},
	{"touch", MEMC_TOUCH, parse_touch},
	{"flush_all", MEMC_FLUSH, parse_flush},
	{"version", MEMC_VERSION},
	{"verbosity", MEMC_VERBOSITY, parse_verbosity},
	{"stats", MEMC_STATS},
	{"quit", MEMC_QUIT},
	{"shutdown", .error = "ERROR: shutdown not enabled"},
	{"watch", .error = "CLIENT_ERROR watch commands not allowed"},
	{"cache_memlimit", .error = "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust"},
	{"lru_crawler", .error = "CLIENT_ERROR lru crawler disabled"},
	{"slabs", .error = "CLIENT_ERROR slab reassignment disabled"},
};

static const struct {
	char name[3];
	enum memc_id id;
	void (*parse)(struct memc_parser *p, const struct words *words);
} meta_rows[] = {
	{"mg", MEMC_META_GET, parse_meta_get},
	{"ms", MEMC_META_SET, parse_meta_set},
	{"md", MEMC_META_DELETE, parse_meta_delete},
	{"ma", MEMC_META_COUNT, parse_meta_count},
	{"mn", MEMC_META_NOOP, NULL},
	{"me", MEMC_META_DEBUG, parse_meta_debug},
};

const char *memc_command_name(const struct memc_command *command)
{
	for (unsigned i = 0; command->id != MEMC_FAULTY && i < ARRAY_SIZE(rows); i++)
		if (rows[i].id == command->id && rows[i].with_cas == command->with_cas &&
		    rows[i].touches == command->touches)
			return rows[i].name;
	for (unsigned i = 0; i < ARRAY_SIZE(meta_rows); i++)
		if (meta_rows[i].id == command->id)
			return meta_rows[i].name;
	return "unknown";
}

static bool parse_meta(struct memc_parser *p, const struct words *words)
{
	const struct memc_word *name = &words->of[0];

	if (name->len != 2 || name->at[0] != 'm')
		return false;
	for (unsigned i = 0; i < ARRAY_SIZE(meta_rows); i++) {
		if (meta_rows[i].name[1] != name->at[1])
			continue;
		p->command.id = meta_rows[i].id;
		if (meta_rows[i].parse)
			meta_rows[i].parse(p, words);
		return true;
	}
	faulty_command(&p->command, "ERROR");
	return true;
}

/* A word by which no command of memcached begins, in a line that ends as a web browser's request. */
static bool is_http(const struct words *words)
{
	const struct memc_word *last = &words->of[words->count - 1];

	return !strchr("gsacidt", words->of[0].at[0]) && last->len >= 5 && memcmp(last->at, "HTTP/", 5) == 0;
}

static void parse_text(struct memc_command *c, const struct words *words)
{
	const struct row *row = rows;

	while (row < rows + ARRAY_SIZE(rows) && !memc_is(&words->of[0], row->name))
		row++;
	if (row == rows + ARRAY_SIZE(rows)) {
		faulty_command(c, "ERROR");
		if (is_http(words))
			*c = (struct memc_command){.id = MEMC_CLOSE, .rest = {words->end, 0}};
		return;
	}
	c->id = row->id;
	c->error = row->error;
	c->with_cas = row->with_cas;
	c->touches = row->touches;
	if (row->parse)
		row->parse(c, words);
	else
		rest_from(c, words, 1);
}

static void parse_line(struct memc_parser *p, const char *line, size_t len)
{
	struct memc_command *c = &p->command;
	struct words words;

	c->id = MEMC_FAULTY;
	c->mode = MEMC_FAULTY;
	memset((char *)c + offsetof(struct memc_command, error), 0,
	       offsetof(struct memc_command, flag) - offsetof(struct memc_command, error));
	c->flags = 0;
	c->rest = (struct memc_word){line, 0};
	words_of(&words, line, strnlen(line, len));
	if (!words.count || words.of[0].len < 2)
		faulty_command(c, "ERROR");
	else if (!parse_meta(p, &words))
		parse_text(c, &words);
}

/* Whether a line may be that long: one of many keys. */
static bool may_be_long(const char *bytes, size_t len)
{
	size_t blanks = 0;

	while (blanks < len && bytes[blanks] == ' ')
		blanks++;
	return blanks <= 100 && len - blanks >= 5 &&
	       (memcmp(bytes + blanks, "get ", 4) == 0 || memcmp(bytes + blanks, "gets ", 5) == 0);
}

enum memc_result memc_parse(struct memc_parser *p, const char *bytes, size_t len)
{
	const char *end = len > p->at ? memchr(bytes + p->at, '\n', len - p->at) : NULL;
	size_t line = end ? (size_t)(end - bytes) : len;

	if (unlikely(line >= MEMC_LINE_MAX && (line >= MEMC_GET_MAX || !may_be_long(bytes, line))))
		return MEMC_BAD;
	if (!end) {
		p->at = len;
		return MEMC_MORE;
	}
	p->at = 0;
	p->used = line + 1;
	if (line > 1 && bytes[line - 1] == '\r')
		line--;
	parse_line(p, bytes, line);
	return MEMC_COMMAND;
}

/*
 * ASCII authentication
 */

bool memc_parse_login(const char *line, size_t len, uint32_t *bytes)
{
	struct words words;

	words_of(&words, line, strnlen(line, len));
	return words.count >= 5 && memc_is(&words.of[0], "set") && read_u32(&words.of[4], bytes);
}

bool memc_parse_secret(const char *data, size_t len, struct memc_word *name, struct memc_word *secret)
{
	struct words words;

	words_of(&words, data, strnlen(data, len));
	if (words.count < 2)
		return false;
	*name = words.of[0];
	*secret = words.of[1];
	return true;
}
