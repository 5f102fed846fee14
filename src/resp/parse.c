/* parse.c: commands are taken apart, wherever the bytes that carry them were cut. */
#include "resp/resp.h"

#include <stdlib.h>

#define NO_BULK SIZE_MAX
#define ROOM_KEPT 1024 /* arguments that a parser keeps memory for */

void resp_parser_init(struct resp_parser *parser)
{
	*parser = (struct resp_parser){.bulk = NO_BULK};
}

void resp_parser_clear(struct resp_parser *parser)
{
	free(parser->argv);
	free(parser->offset);
	free(parser->text);
	resp_parser_init(parser);
}

void resp_parser_trim(struct resp_parser *parser)
{
	if (parser->at == 0 && parser->room > ROOM_KEPT)
		resp_parser_clear(parser);
}

/* The next call begins a command. */
static void command_finish(struct resp_parser *parser)
{
	parser->used = parser->at;
	parser->expected = 0;
	parser->line = parser->at = 0;
	parser->bulk = NO_BULK;
	parser->total = 0;
}

static enum resp_result bad_command(struct resp_parser *parser, const char *text)
{
	snprintf(parser->error, sizeof(parser->error), "ERR Protocol error: %s", text);
	command_finish(parser);
	parser->argc = 0;
	return RESP_BAD;
}

static enum resp_result no_memory(struct resp_parser *parser)
{
	bad_command(parser, "");
	snprintf(parser->error, sizeof(parser->error), "ERR out of memory for the arguments of a command");
	return RESP_BAD;
}

static enum resp_result too_long(struct resp_parser *parser, const struct resp_limits *limits)
{
	char text[96];

	snprintf(text, sizeof(text), "command of more than %llu bytes", (unsigned long long)limits->total);
	return bad_command(parser, text);
}

static enum resp_result need_more(struct resp_parser *parser, size_t want)
{
	parser->want = want;
	return RESP_MORE;
}

/* The bytes may have moved since an argument was found. */
static void point_arguments(struct resp_parser *parser, const char *bytes)
{
	for (unsigned i = 0; i < parser->argc; i++)
		if (parser->offset[i] != SIZE_MAX)
			parser->argv[i].at = bytes + parser->offset[i];
}

static bool grow_arguments(struct resp_parser *parser)
{
	unsigned room = parser->room ? 2 * parser->room : 16;
	struct resp_arg *argv = realloc(parser->argv, room * sizeof(*argv));
	size_t *offset;

	if (!argv)
		return false;
	parser->argv = argv;
	offset = realloc(parser->offset, room * sizeof(*offset));
	if (!offset)
		return false;
	parser->offset = offset;
	parser->room = room;
	return true;
}

static inline bool add_argument(struct resp_parser *parser, const char *at, size_t len, size_t offset)
{
	if (unlikely(parser->argc == parser->room) && !grow_arguments(parser))
		return false;
	parser->argv[parser->argc] = (struct resp_arg){at, len};
	parser->offset[parser->argc++] = offset;
	return true;
}

/*
 * Inline commands: words of a line, as a shell has them. isspace() of the C locale, with which Redis passes over blanks
 * between words; a word itself ends at fewer.
 */
static bool is_blank(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool ends_word(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

static char escaped_char(char c)
{
	switch (c) {
	case 'n':
		return '\n';
	case 'r':
		return '\r';
	case 't':
		return '\t';
	case 'b':
		return '\b';
	case 'a':
		return '\a';
	}
	return c;
}

/* From an opening quote on. What is meant goes to *to; the place behind the closing quote, which ends the word. NULL:
 * there is none, or no blank behind it. */
static const char *unquote_word(const char *c, const char *end, char **to)
{
	char quote = *c++;

	for (; c < end; c++) {
		bool has_next = end - c > 1;

		if (*c == quote)
			return has_next && !is_blank(c[1]) ? NULL : c + 1;
		if (*c != '\\' || !has_next) {
			*(*to)++ = *c;
		} else if (quote == '\'') {
			c += c[1] == '\'';
			*(*to)++ = *c;
		} else if (end - c > 3 && c[1] == 'x' && hex_digit(c[2]) >= 0 && hex_digit(c[3]) >= 0) {
			*(*to)++ = (char)(hex_digit(c[2]) << 4 | hex_digit(c[3]));
			c += 3;
		} else {
			*(*to)++ = escaped_char(*++c);
		}
	}
	return NULL;
}

/* A word without quotes stays where it is. 0, -EINVAL: quotes without end, -ENOMEM. */
static int split_words(struct resp_parser *parser, const char *c, const char *end)
{
	size_t room = (size_t)(end - c);
	char *to;

	if (parser->text_room < room && (memchr(c, '"', room) || memchr(c, '\'', room))) {
		to = realloc(parser->text, room);
		if (!to)
			return -ENOMEM;
		parser->text = to;
		parser->text_room = room;
	}
	to = parser->text;
	for (;;) {
		const char *word, *from;

		while (c < end && is_blank(*c))
			c++;
		if (c == end)
			return 0;
		word = from = c;
		while (c < end && !ends_word(*c) && *c != '"' && *c != '\'')
			c++;
		if (c < end && !ends_word(*c)) {
			word = to;
			memcpy(to, from, (size_t)(c - from));
			to += c - from;
			c = unquote_word(c, end, &to);
			if (!c)
				return -EINVAL;
		}
		if (!add_argument(parser, word, word == from ? (size_t)(c - from) : (size_t)(to - word), SIZE_MAX))
			return -ENOMEM;
	}
}

static enum resp_result parse_inline(struct resp_parser *parser, const struct resp_limits *limits, const char *bytes,
				     size_t len)
{
	size_t most = MIN(len, RESP_INLINE_MAX + 1);
	const char *line_feed = memchr(bytes + parser->at, '\n', most - parser->at), *end;

	if (!line_feed) {
		parser->at = most;
		return len > RESP_INLINE_MAX ? bad_command(parser, "too big inline request") : need_more(parser, 1);
	}
	end = line_feed > bytes && line_feed[-1] == '\r' ? line_feed - 1 : line_feed;
	if ((uint64_t)(end - bytes) > limits->total)
		return too_long(parser, limits);
	parser->at = (size_t)(line_feed + 1 - bytes);
	switch (split_words(parser, bytes, end)) {
	case 0:
		command_finish(parser);
		return RESP_COMMAND;
	case -EINVAL:
		return bad_command(parser, "unbalanced quotes in request");
	}
	return no_memory(parser);
}

/*
 * Arrays.
 */
enum line { LINE_MORE, LINE_LONG, LINE_WRONG, LINE_NUMBER };

/* A mark, a number, a carriage return and whatever byte stands for the line feed. parser->at goes behind them. */
static inline enum line read_line(struct resp_parser *parser, const char *bytes, size_t len, int64_t *number)
{
	const char *from = bytes + parser->line, *end = bytes + len, *c;
	size_t most;

	/* As nearly all are: a few digits without a zero in front, and here. */
	if (likely(len - parser->line > 3)) {
		c = from + 1;
		*number = *c - '0';
		if (likely(*number >= 1 && *number <= 9)) {
			for (c++; c < end && *c >= '0' && *c <= '9' && *number < 1000000000000000; c++)
				*number = *number * 10 + (*c - '0');
			if (likely(end - c >= 2 && *c == '\r')) {
				parser->at = (size_t)(c + 2 - bytes);
				return LINE_NUMBER;
			}
		}
	}
	most = MIN(len, parser->line + RESP_INLINE_MAX + 1);
	c = most > parser->at ? memchr(bytes + parser->at, '\r', most - parser->at) : NULL;
	if (!c) {
		parser->at = most;
		return len - parser->line > RESP_INLINE_MAX ? LINE_LONG : LINE_MORE;
	}
	parser->at = (size_t)(c - bytes);
	if (len - parser->at < 2)
		return LINE_MORE;
	parser->at += 2;
	return c > from && resp_read_int64(from + 1, (size_t)(c - from - 1), number) ? LINE_NUMBER : LINE_WRONG;
}

/* RESP_COMMAND: it is one without arguments. RESP_LARGE: parser->expected is set. */
static enum resp_result begin_array(struct resp_parser *parser, const struct resp_limits *limits, const char *bytes,
				    size_t len)
{
	int64_t number;

	switch (read_line(parser, bytes, len, &number)) {
	case LINE_MORE:
		return need_more(parser, 1);
	case LINE_LONG:
		return bad_command(parser, "too big mbulk count string");
	case LINE_WRONG:
		return bad_command(parser, "invalid multibulk length");
	case LINE_NUMBER:
		break;
	}
	if (number > (int64_t)RESP_ARGS_MAX)
		return bad_command(parser, "invalid multibulk length");
	if (number > 0 && (uint64_t)number > limits->args)
		return bad_command(parser, limits->args <= RESP_ARGS_UNPROVED ? "unauthenticated multibulk length"
									      : "invalid multibulk length");
	if (number <= 0) {
		command_finish(parser);
		return RESP_COMMAND;
	}
	parser->expected = (unsigned)number;
	parser->line = parser->at;
	return RESP_LARGE;
}

/* RESP_LARGE: the header of an argument is whole, and parser->bulk is its length. */
static inline enum resp_result begin_bulk(struct resp_parser *parser, const struct resp_limits *limits,
					  const char *bytes, size_t len)
{
	int64_t number;
	enum line line = read_line(parser, bytes, len, &number);
	char mark, text[32];

	if (line == LINE_MORE)
		return need_more(parser, 1);
	if (line == LINE_LONG)
		return bad_command(parser, "too big bulk count string");
	mark = bytes[parser->line];
	if (unlikely(mark != '$')) {
		snprintf(text, sizeof(text), "expected '$', got '%c'", mark == '\r' || mark == '\n' ? ' ' : mark);
		return bad_command(parser, text);
	}
	if (line == LINE_WRONG || number < 0 || number > (int64_t)RESP_BULK_MAX)
		return bad_command(parser, "invalid bulk length");
	if (unlikely((uint64_t)number > limits->bulk))
		return bad_command(parser, limits->bulk <= RESP_BULK_UNPROVED ? "unauthenticated bulk length"
									      : "invalid bulk length");
	/* It may be less by now than what there is. */
	if (unlikely(parser->total > limits->total || (uint64_t)number > limits->total - parser->total))
		return too_long(parser, limits);
	if (unlikely(!add_argument(parser, bytes + parser->at, (size_t)number, parser->at)))
		return no_memory(parser);
	parser->total += (uint64_t)number;
	parser->bulk = (size_t)number;
	return RESP_LARGE;
}

enum resp_result resp_parse(struct resp_parser *parser, const struct resp_limits *limits, const char *bytes, size_t len)
{
	enum resp_result result;
	bool moved = parser->expected; /* or may have */

	if (!len)
		return need_more(parser, 1);
	if (parser->at == 0) {
		parser->argc = 0;
		parser->is_inline = *bytes != '*';
	}
	if (unlikely(parser->is_inline))
		return parse_inline(parser, limits, bytes, len);
	if (!parser->expected) {
		result = begin_array(parser, limits, bytes, len);
		if (result != RESP_LARGE)
			return result;
	}
	for (;;) {
		if (parser->bulk == NO_BULK) {
			if (parser->argc == parser->expected)
				break;
			result = begin_bulk(parser, limits, bytes, len);
			if (unlikely(result != RESP_LARGE))
				return result;
			if (unlikely(parser->bulk >= limits->large)) {
				if (moved)
					point_arguments(parser, bytes);
				parser->used = parser->at;
				return RESP_LARGE;
			}
		}
		if (len - parser->at < parser->bulk + 2)
			return need_more(parser, parser->bulk + 2 - (len - parser->at));
		parser->at += parser->bulk + 2;
		parser->line = parser->at;
		parser->bulk = NO_BULK;
	}
	if (moved)
		point_arguments(parser, bytes);
	command_finish(parser);
	return RESP_COMMAND;
}

void resp_take_large(struct resp_parser *parser, const char *at)
{
	must(parser->argc && parser->bulk == parser->argv[parser->argc - 1].len);
	parser->argv[parser->argc - 1].at = at;
	parser->offset[parser->argc - 1] = SIZE_MAX;
	parser->bulk = 0;
}

void resp_leave_large(struct resp_parser *parser)
{
	must(parser->argc && parser->bulk == parser->argv[parser->argc - 1].len);
}
