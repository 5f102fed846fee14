/* check_resp.c: commands however they are cut, replies in both forms, numbers, patterns, the table of commands. */
#include <float.h>
#include <math.h>

#include "resp/resp.h"
#include "tests/suite.h"

static const struct resp_limits wide = {
	.args = RESP_ARGS_MAX,
	.bulk = RESP_BULK_MAX,
	.total = GIB,
	.large = UINT64_MAX,
};

static uint64_t seed = 88172645463325252;

static unsigned chance(unsigned below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (unsigned)((seed >> 11) % below);
}

/* What a stream of commands comes to, as text: "[3:SET|1:k]" for a command, "()" for an empty one, the error, "..." */
struct account {
	char text[1 << 16];
	size_t len;
};

static void note(struct account *account, const void *bytes, size_t len)
{
	ck_assert_uint_lt(account->len + len, sizeof(account->text));
	memcpy(account->text + account->len, bytes, len);
	account->len += len;
	account->text[account->len] = '\0';
}

static void note_text(struct account *account, const char *text)
{
	note(account, text, strlen(text));
}

static void note_command(struct account *account, const struct resp_parser *parser)
{
	char head[32];

	note_text(account, parser->argc ? "[" : "(");
	for (unsigned i = 0; i < parser->argc; i++) {
		snprintf(head, sizeof(head), "%s%zu:", i ? "|" : "", parser->argv[i].len);
		note_text(account, head);
		note(account, parser->argv[i].at, parser->argv[i].len);
	}
	note_text(account, parser->argc ? "]" : ")");
}

/* All commands of the bytes, of which ever more are known, as next() says. They move with each call. */
static void take_apart(struct account *account, const struct resp_limits *limits, const char *bytes, size_t len,
		       size_t (*next)(size_t known, void *data), void *data)
{
	struct resp_parser parser;
	size_t begin = 0, known = 0;
	char *moved = NULL;

	account->len = 0;
	resp_parser_init(&parser);
	for (;;) {
		char *again = malloc(known - begin + 1);

		memcpy(again, bytes + begin, known - begin);
		free(moved);
		moved = again;
		switch (resp_parse(&parser, limits, moved, known - begin)) {
		case RESP_COMMAND:
			ck_assert_uint_le(parser.used, known - begin);
			ck_assert_uint_gt(parser.used, 0);
			note_command(account, &parser);
			begin += parser.used;
			continue;
		case RESP_LARGE:
			resp_leave_large(&parser);
			continue;
		case RESP_BAD:
			note_text(account, parser.error);
			break;
		case RESP_MORE:
			ck_assert_uint_ge(parser.want, 1);
			if (known == len) {
				note_text(account, begin == len ? "" : "...");
				break;
			}
			known = next(known, data);
			ck_assert_uint_le(known, len);
			continue;
		}
		break;
	}
	free(moved);
	resp_parser_clear(&parser);
}

static size_t to_the_end(size_t known, void *data)
{
	return *(size_t *)data;
}

/* First to the cut, then to the end. */
static size_t to_the_cut(size_t known, void *data)
{
	const size_t *cut = data;

	return known < cut[0] ? cut[0] : cut[1];
}

static size_t by_one(size_t known, void *data)
{
	return known + 1;
}

static size_t by_chance(size_t known, void *data)
{
	size_t len = *(size_t *)data, step = 1 + chance(chance(4) ? 7 : 200);

	return MIN(len, known + step);
}

/* In one piece, in two at every place, in single bytes: always the same. */
static void expect_limited(const struct resp_limits *limits, const char *bytes, size_t len, const char *text)
{
	static struct account account;

	take_apart(&account, limits, bytes, len, to_the_end, &len);
	ck_assert_str_eq(account.text, text);
	for (size_t at = 1; at < len; at++) {
		size_t cut[2] = {at, len};

		take_apart(&account, limits, bytes, len, to_the_cut, cut);
		ck_assert_msg(strcmp(account.text, text) == 0, "cut at %zu: %s, not %s", at, account.text, text);
	}
	take_apart(&account, limits, bytes, len, by_one, NULL);
	ck_assert_str_eq(account.text, text);
}

#define expect(bytes, text) expect_limited(&wide, bytes, sizeof(bytes) - 1, text)
#define expect_bad(bytes, text) expect(bytes, "ERR Protocol error: " text)

START_TEST(test_arrays)
{
	expect("*1\r\n$4\r\nPING\r\n", "[4:PING]");
	expect("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\na\r\n$1\r\n", "[3:SET|1:k|5:a\r\n$1]");
}
END_TEST

START_TEST(test_pipeline)
{
	expect("*2\r\n$3\r\nGET\r\n$1\r\na\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n*1\r\n$4\r\nQUIT\r\n",
	       "[3:GET|1:a][3:GET|0:][4:QUIT]");
	expect("*2\r\n$3\r\nGET\r\n$12\r\n$3\r\nx\r\n*1\r\n$\r\n", "[3:GET|12:$3\r\nx\r\n*1\r\n$]");
	expect("PING\r\n*1\r\n$4\r\nPING\r\nPING\nGET x\n", "[4:PING][4:PING][4:PING][3:GET|1:x]");
	expect("*2\r\n$3\r\nGET\r\n$10\r\nabc", "...");
	/* more arguments than there was room for, and digits enough for the long way */
	expect("*20\r\n$1\r\n0\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n$1\r\n4\r\n$1\r\n5\r\n$1\r\n6\r\n$1\r\n7\r\n$"
	       "1\r\n8\r\n$1\r\n9\r\n"
	       "$1\r\n0\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n$1\r\n4\r\n$1\r\n5\r\n$1\r\n6\r\n$1\r\n7\r\n$1\r\n8\r\n$"
	       "1\r\n9\r\n",
	       "[1:0|1:1|1:2|1:3|1:4|1:5|1:6|1:7|1:8|1:9|1:0|1:1|1:2|1:3|1:4|1:5|1:6|1:7|1:8|1:9]");
}
END_TEST

START_TEST(test_passed_over)
{
	expect("*0\r\n*-1\r\n*-7\r\n\r\n\n  \t\r\nPING\r\n", "()()()()()()[4:PING]");
	/* Redis looks for the carriage return only, and passes over whatever is behind it. */
	expect("*1\rx$4\ryPINGzz", "[4:PING]");
}
END_TEST

START_TEST(test_errors)
{
	expect_bad("*x\r\n", "invalid multibulk length");
	expect_bad("*\r\n", "invalid multibulk length");
	expect_bad("*03\r\n", "invalid multibulk length");
	expect_bad("*+3\r\n", "invalid multibulk length");
	expect_bad("*3 \r\n", "invalid multibulk length");
	expect_bad("*1048577\r\n", "invalid multibulk length");
	expect_bad("*99999999999999999999999\r\n", "invalid multibulk length");
	expect_bad("*18446744073709551617\r\n", "invalid multibulk length");
	expect_bad("*1\r\n#3\r\nabc\r\n", "expected '$', got '#'");
	expect_bad("*1\r\nPING\r\n", "expected '$', got 'P'");
	expect_bad("*1\r\n\r\n\r\n", "expected '$', got ' '");
	expect_bad("*1\r\n:x\r\n", "expected '$', got ':'");
	expect_bad("*1\r\n$-1\r\n", "invalid bulk length");
	expect_bad("*1\r\n$x\r\n", "invalid bulk length");
	expect_bad("*1\r\n$\r\n", "invalid bulk length");
	expect_bad("*1\r\n$04\r\n", "invalid bulk length");
	expect_bad("*1\r\n$-0\r\n", "invalid bulk length");
	expect_bad("*1\r\n$4x\r\n", "invalid bulk length");
	expect_bad("*1\r\n$536870913\r\n", "invalid bulk length");
	expect_bad("*1\r\n$9223372036854775808\r\n", "invalid bulk length");
	expect_bad("*1\r\n$9223372036854775807\r\n", "invalid bulk length");
	expect("*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n*", "[4:PING]...");
	expect("*1\r\n$536870912\r\n", "...");
	expect("*1048576\r\n", "...");
}
END_TEST

/* Of the bytes in front, and so many of the filling. */
static void expect_line(const char *front, size_t fill, const char *behind, const char *text)
{
	static const size_t cuts[] = {1, 2, 5, 6, 7, 65534, 65535, 65536, 65537, 65538, 65539, 65540, 65541};
	static struct account account;
	size_t len = strlen(front) + fill + strlen(behind);
	char *bytes = malloc(len + 1);

	strcpy(bytes, front);
	memset(bytes + strlen(front), '1', fill);
	strcpy(bytes + strlen(front) + fill, behind);
	take_apart(&account, &wide, bytes, len, to_the_end, &len);
	ck_assert_str_eq(account.text, text);
	for (unsigned i = 0; i < ARRAY_SIZE(cuts); i++) {
		size_t cut[2] = {MIN(cuts[i], len), len};

		take_apart(&account, &wide, bytes, len, to_the_cut, cut);
		ck_assert_str_eq(account.text, text);
	}
	free(bytes);
}

START_TEST(test_long_lines)
{
	expect_line("*", RESP_INLINE_MAX - 1, "", "...");
	expect_line("*", RESP_INLINE_MAX - 1, "\r\n", "ERR Protocol error: invalid multibulk length");
	expect_line("*", RESP_INLINE_MAX, "", "ERR Protocol error: too big mbulk count string");
	expect_line("*", RESP_INLINE_MAX, "\r\n", "ERR Protocol error: too big mbulk count string");
	expect_line("*1\r\n$", RESP_INLINE_MAX - 1, "\r\n", "ERR Protocol error: invalid bulk length");
	expect_line("*1\r\n$", RESP_INLINE_MAX, "\r\n", "ERR Protocol error: too big bulk count string");
	expect_line("*1\r\nx", RESP_INLINE_MAX, "\r\n", "ERR Protocol error: too big bulk count string");
	expect_line("A", RESP_INLINE_MAX, "", "ERR Protocol error: too big inline request");
	expect_line("A", RESP_INLINE_MAX, "\n", "ERR Protocol error: too big inline request");
	expect_line("A", RESP_INLINE_MAX - 1, "", "...");
}
END_TEST

START_TEST(test_limits)
{
	struct resp_limits limits = {
		.args = RESP_ARGS_UNPROVED,
		.bulk = RESP_BULK_UNPROVED,
		.total = UINT64_MAX,
		.large = UINT64_MAX,
	};

#define expect_so(bytes, text) expect_limited(&limits, bytes, sizeof(bytes) - 1, text)
	expect_so("*11\r\n", "ERR Protocol error: unauthenticated multibulk length");
	expect_so("*10\r\n", "...");
	expect_so("*1048577\r\n", "ERR Protocol error: invalid multibulk length");
	expect_so("*1\r\n$16385\r\n", "ERR Protocol error: unauthenticated bulk length");
	expect_so("*1\r\n$16384\r\n", "...");
	expect_so("*1\r\n$-1\r\n", "ERR Protocol error: invalid bulk length");
	limits = (struct resp_limits){.args = 100, .bulk = MIB, .total = 20, .large = UINT64_MAX};
	expect_so("*101\r\n", "ERR Protocol error: invalid multibulk length");
	expect_so("*1\r\n$1048577\r\n", "ERR Protocol error: invalid bulk length");
	expect_so("*1\r\n$21\r\n", "ERR Protocol error: command of more than 20 bytes");
	expect_so("*2\r\n$4\r\nECHO\r\n$17\r\n", "ERR Protocol error: command of more than 20 bytes");
	expect_so("*2\r\n$4\r\nECHO\r\n$16\r\n0123456789abcdef\r\n*2\r\n$4\r\nECHO\r\n$16\r\n0123456789abcdef\r\n",
		  "[4:ECHO|16:0123456789abcdef][4:ECHO|16:0123456789abcdef]");
	expect_so("ECHO 0123456789abcde\r\n", "[4:ECHO|15:0123456789abcde]");
	expect_so("ECHO 0123456789abcdef\r\n", "ERR Protocol error: command of more than 20 bytes");
#undef expect_so
}
END_TEST

/* Limits that shrink behind its beginning, as a client has lost its rights: more than they allow is there already. */
START_TEST(test_limits_shrink)
{
	static const char bytes[] = "*4\r\n$3\r\nSET\r\n$10\r\n0123456789\r\n$10\r\n0123456789\r\n$1\r\n";
	struct resp_limits limits = wide;
	struct resp_parser parser;

	resp_parser_init(&parser);
	ck_assert_int_eq(resp_parse(&parser, &limits, bytes, sizeof(bytes) - 5), RESP_MORE);
	limits.total = limits.bulk = 20;
	ck_assert_int_eq(resp_parse(&parser, &limits, bytes, sizeof(bytes) - 1), RESP_BAD);
	ck_assert_str_eq(parser.error, "ERR Protocol error: command of more than 20 bytes");
	resp_parser_clear(&parser);
}
END_TEST

/* What many arguments took is not kept, unless a command is under way. */
START_TEST(test_trim)
{
	struct resp_parser parser;
	unsigned at = 0;
	char *bytes = malloc(64 * KIB);

	ck_assert_ptr_nonnull(bytes);
	at += (unsigned)sprintf(bytes, "*5000\r\n");
	for (unsigned i = 0; i < 5000; i++)
		at += (unsigned)sprintf(bytes + at, "$1\r\nx\r\n");
	resp_parser_init(&parser);
	ck_assert_int_eq(resp_parse(&parser, &wide, bytes, at - 1), RESP_MORE);
	resp_parser_trim(&parser);
	ck_assert_int_eq(resp_parse(&parser, &wide, bytes, at), RESP_COMMAND);
	ck_assert_uint_eq(parser.argc, 5000);
	resp_parser_trim(&parser);
	ck_assert_uint_eq(parser.room, 0);
	ck_assert_int_eq(resp_parse(&parser, &wide, "PING\r\n", 6), RESP_COMMAND);
	resp_parser_trim(&parser);
	ck_assert_uint_ne(parser.room, 0);
	resp_parser_clear(&parser);
	free(bytes);
}
END_TEST

START_TEST(test_inline)
{
	expect("  SET  k\tv \r\n", "[3:SET|1:k|1:v]");
	expect("GET k\n", "[3:GET|1:k]");
	expect("a\rb\n", "[1:a|1:b]");
	expect("a\vb \v c\n", "[3:a\vb|1:c]");
	expect("SET k \"a b\"\r\n", "[3:SET|1:k|3:a b]");
	expect("SET k \"\"\r\n", "[3:SET|1:k|0:]");
	expect("SET k ''\r\n", "[3:SET|1:k|0:]");
	expect("SET k \"\\x41\\x6a\\n\\r\\t\\b\\a\\\\\\\"\\q\"\r\n", "[3:SET|1:k|10:Aj\n\r\t\b\a\\\"q]");
	expect("SET k \"\\x4\\x4g\\xzz\"\r\n", "[3:SET|1:k|8:x4x4gxzz]");
	expect("SET k \"\\x00\"x\r\n", "ERR Protocol error: unbalanced quotes in request");
	expect("SET k '\\x41\\'\\n\"'\r\n", "[3:SET|1:k|8:\\x41'\\n\"]");
	expect("foo\"bar\" x'y z' \"q\"\r\n", "[6:foobar|4:xy z|1:q]");
	expect_bad("SET k \"abc\r\n", "unbalanced quotes in request");
	expect_bad("SET k \"abc\\\"\r\n", "unbalanced quotes in request");
	expect_bad("SET k \"abc\"d\r\n", "unbalanced quotes in request");
	expect_bad("SET k 'abc\r\n", "unbalanced quotes in request");
	expect_bad("SET k 'abc\\'\r\n", "unbalanced quotes in request");
	expect_bad("SET k 'abc'd\r\n", "unbalanced quotes in request");
	expect_bad("\"\r\n", "unbalanced quotes in request");
	expect("SET k \"a\" \"b\" 'c' d\n", "[3:SET|1:k|1:a|1:b|1:c|1:d]");
	expect("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 '18'\n",
	       "[1:1|1:2|1:3|1:4|1:5|1:6|1:7|1:8|1:9|2:10|2:11|2:12|2:13|2:14|2:15|2:16|2:17|2:18]");
}
END_TEST

/* A zero byte is one as others; Redis waits for the line's end in vain. */
START_TEST(test_inline_zero)
{
	struct resp_parser parser;

	resp_parser_init(&parser);
	ck_assert_int_eq(resp_parse(&parser, &wide, "GET k\0\r\n", 8), RESP_COMMAND);
	ck_assert(parser.used == 8 && parser.argc == 2 && parser.argv[1].len == 2);
	resp_parser_clear(&parser);
}
END_TEST

START_TEST(test_inline_is_told)
{
	struct resp_parser parser;

	resp_parser_init(&parser);
	ck_assert_int_eq(resp_parse(&parser, &wide, "PING\r\n", 6), RESP_COMMAND);
	ck_assert(parser.is_inline && parser.used == 6);
	ck_assert_int_eq(resp_parse(&parser, &wide, "*1\r\n$4\r\nPING\r\n*", 15), RESP_COMMAND);
	ck_assert(!parser.is_inline && parser.used == 14);
	ck_assert_int_eq(resp_parse(&parser, &wide, "*", 1), RESP_MORE);
	ck_assert_uint_eq(parser.argc, 0);
	resp_parser_clear(&parser);
}
END_TEST

/* How much is to come is said, as far as it is known. */
START_TEST(test_want)
{
	static const char bytes[] = "*2\r\n$3\r\nGET\r\n$1000\r\nx";
	struct resp_parser parser;

	resp_parser_init(&parser);
	ck_assert_int_eq(resp_parse(&parser, &wide, bytes, 0), RESP_MORE);
	ck_assert_uint_eq(parser.want, 1);
	ck_assert_int_eq(resp_parse(&parser, &wide, bytes, 8), RESP_MORE);
	ck_assert_uint_eq(parser.want, 5);
	ck_assert_int_eq(resp_parse(&parser, &wide, bytes, 15), RESP_MORE);
	ck_assert_uint_eq(parser.want, 1);
	ck_assert_int_eq(resp_parse(&parser, &wide, bytes, 21), RESP_MORE);
	ck_assert_uint_eq(parser.want, 1001);
	resp_parser_clear(&parser);
}
END_TEST

/* The bytes of a long argument never come here; cut at every place before and behind it. */
START_TEST(test_large_taken)
{
	static const char front[] = "*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$100\r\n",
			  behind[] = "\r\n$2\r\nEX\r\n*1\r\n$4\r\nPING\r\n";
	struct resp_limits limits = wide;
	char value[100], bytes[sizeof(front) + sizeof(behind)];
	size_t front_len = sizeof(front) - 1, len = front_len + sizeof(behind) - 1;

	limits.large = 100;
	memcpy(bytes, front, front_len);
	memcpy(bytes + front_len, behind, sizeof(behind));
	memset(value, 'v', sizeof(value));
	for (size_t cut = 0; cut <= len; cut++) {
		struct resp_parser parser;
		enum resp_result result;
		char *moved;

		resp_parser_init(&parser);
		result = RESP_MORE;
		if (cut < front_len) {
			moved = strndup(bytes, cut);
			ck_assert_int_eq(resp_parse(&parser, &limits, moved, cut), RESP_MORE);
			free(moved);
		}
		moved = strndup(bytes, front_len);
		result = resp_parse(&parser, &limits, moved, front_len);
		ck_assert_int_eq(result, RESP_LARGE);
		ck_assert_uint_eq(parser.argc, 3);
		ck_assert_uint_eq(parser.used, front_len);
		ck_assert(parser.argv[2].len == 100 && resp_is(&parser.argv[0], "set") &&
			  resp_is(&parser.argv[1], "k"));
		ck_assert_ptr_eq(parser.argv[2].at, moved + front_len);
		resp_take_large(&parser, value);
		free(moved);
		if (cut >= front_len && cut < len - 14) {
			moved = strndup(bytes, cut);
			ck_assert_int_eq(resp_parse(&parser, &limits, moved, cut), RESP_MORE);
			free(moved);
		}
		moved = strndup(bytes, len);
		ck_assert_int_eq(resp_parse(&parser, &limits, moved, len), RESP_COMMAND);
		ck_assert_uint_eq(parser.argc, 4);
		ck_assert_uint_eq(parser.used, len - 14);
		ck_assert(parser.argv[2].at == value && parser.argv[2].len == 100);
		ck_assert(resp_is(&parser.argv[0], "set") && resp_is(&parser.argv[3], "ex"));
		ck_assert_int_eq(resp_parse(&parser, &limits, moved + parser.used, 14), RESP_COMMAND);
		ck_assert(parser.argc == 1 && resp_is(&parser.argv[0], "ping"));
		free(moved);
		resp_parser_clear(&parser);
	}
}
END_TEST

START_TEST(test_large_left)
{
	static const char bytes[] = "*3\r\n$3\r\nSET\r\n$10\r\n0123456789\r\n$11\r\n0123456789a\r\n";
	struct resp_limits limits = wide;
	struct resp_parser parser;

	limits.large = 10;
	/* take_apart() leaves all of them */
	expect_limited(&limits, bytes, sizeof(bytes) - 1, "[3:SET|10:0123456789|11:0123456789a]");
	resp_parser_init(&parser);
	for (unsigned argc = 2; argc <= 3; argc++) { /* each is offered once */
		ck_assert_int_eq(resp_parse(&parser, &limits, bytes, sizeof(bytes) - 1), RESP_LARGE);
		ck_assert_uint_eq(parser.argc, argc);
		ck_assert_int_eq(memcmp(parser.argv[argc - 1].at, "0123456789", 10), 0);
		resp_leave_large(&parser);
	}
	ck_assert_int_eq(resp_parse(&parser, &limits, bytes, sizeof(bytes) - 1), RESP_COMMAND);
	ck_assert_uint_eq(parser.argc, 3);
	resp_parser_clear(&parser);
}
END_TEST

/* Commands by chance, written by the builder and read in pieces by chance. */
START_TEST(test_model)
{
	static struct account expected, account;

	for (uint64_t round = 0; round < suite_part(3000); round++) {
		struct resp_out out = {.most = MIB};
		struct resp_limits limits = wide;
		unsigned commands = 1 + chance(5);

		expected.len = 0;
		limits.large = 20 + chance(60);
		for (unsigned i = 0; i < commands; i++) {
			unsigned argc = chance(chance(8) ? 5 : 40);

			resp_array(&out, argc);
			note_text(&expected, argc ? "[" : "(");
			for (unsigned k = 0; k < argc; k++) {
				char value[90], head[32];
				unsigned len = chance(chance(4) ? 12 : sizeof(value));

				for (unsigned n = 0; n < len; n++)
					value[n] = "abc\r\n$*19"[chance(9)];
				resp_bulk(&out, value, len);
				snprintf(head, sizeof(head), "%s%u:", k ? "|" : "", len);
				note_text(&expected, head);
				note(&expected, value, len);
			}
			note_text(&expected, argc ? "]" : ")");
		}
		ck_assert(!out.failed);
		take_apart(&account, &limits, out.at, out.len, by_chance, &out.len);
		ck_assert_uint_eq(account.len, expected.len);
		ck_assert_int_eq(memcmp(account.text, expected.text, expected.len), 0);
		free(out.at);
	}
}
END_TEST

/*
 * Replies.
 */
static void expect_out(struct resp_out *out, const char *text)
{
	ck_assert(!out->failed);
	resp_raw(out, "", 1);
	ck_assert_str_eq(out->at, text);
	free(out->at);
	*out = (struct resp_out){.most = out->most, .three = out->three};
}

/* What is written in both forms, and what comes of it. */
#define expect_both(call, in_two, in_three)                                                                            \
	do {                                                                                                           \
		struct resp_out out_ = {.most = MIB}, *out = &out_;                                                    \
                                                                                                                       \
		call;                                                                                                  \
		expect_out(out, in_two);                                                                               \
		out->three = true;                                                                                     \
		call;                                                                                                  \
		expect_out(out, in_three);                                                                             \
	} while (0)

START_TEST(test_replies)
{
	expect_both(resp_simple(out, "OK"), "+OK\r\n", "+OK\r\n");
	expect_both(resp_error(out, "ERR %s of %d", "no", 3), "-ERR no of 3\r\n", "-ERR no of 3\r\n");
	expect_both(resp_error(out, "ERR %s", "a\r\nb\n"), "-ERR a  b \r\n", "-ERR a  b \r\n");
	expect_both(resp_number(out, 7), ":7\r\n", ":7\r\n");
	expect_both(resp_number(out, -1), ":-1\r\n", ":-1\r\n");
	expect_both(resp_number(out, INT64_MIN), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n");
	expect_both(resp_bulk(out, "a\r\nb", 4), "$4\r\na\r\nb\r\n", "$4\r\na\r\nb\r\n");
	expect_both(resp_bulk(out, NULL, 0), "$0\r\n\r\n", "$0\r\n\r\n");
	expect_both(resp_bulk_text(out, "0123456789"), "$10\r\n0123456789\r\n", "$10\r\n0123456789\r\n");
	expect_both(resp_bulk_number(out, -12), "$3\r\n-12\r\n", "$3\r\n-12\r\n");
	expect_both((resp_bulk_begin(out, 2), resp_raw(out, "ab", 2), resp_bulk_end(out)), "$2\r\nab\r\n",
		    "$2\r\nab\r\n");
	expect_both(resp_verbatim(out, "abc", 3), "$3\r\nabc\r\n", "=7\r\ntxt:abc\r\n");
	expect_both(resp_null(out), "$-1\r\n", "_\r\n");
	expect_both(resp_null_array(out), "*-1\r\n", "_\r\n");
	expect_both(resp_bool(out, true), ":1\r\n", "#t\r\n");
	expect_both(resp_bool(out, false), ":0\r\n", "#f\r\n");
	expect_both(resp_double(out, 3.5), "$3\r\n3.5\r\n", ",3.5\r\n");
	expect_both(resp_double(out, 0.1), "$19\r\n0.10000000000000001\r\n", ",0.10000000000000001\r\n");
	expect_both(resp_double(out, -INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n");
	expect_both(resp_double(out, INFINITY), "$3\r\ninf\r\n", ",inf\r\n");
	expect_both(resp_double(out, -NAN), "$3\r\nnan\r\n", ",nan\r\n");
	expect_both(resp_array(out, 12), "*12\r\n", "*12\r\n");
	expect_both(resp_map(out, 6), "*12\r\n", "%6\r\n");
	expect_both(resp_set(out, 2), "*2\r\n", "~2\r\n");
	expect_both(resp_push(out, 3), "*3\r\n", ">3\r\n");
}
END_TEST

START_TEST(test_out_of_room)
{
	struct resp_out out = {.most = 700};
	char value[600] = "v";
	char *at;

	at = resp_grow(&out, 700);
	ck_assert_ptr_nonnull(at);
	ck_assert_ptr_eq(at, out.at);
	resp_bulk(&out, value, 500);
	ck_assert(!out.failed && out.len == 508);
	resp_bulk(&out, value, 600);
	ck_assert(out.failed);
	ck_assert_uint_eq(out.len, 508);
	resp_simple(&out, "OK"); /* nothing comes behind what is missing */
	resp_error(&out, "ERR");
	ck_assert_uint_eq(out.len, 508);
	ck_assert_ptr_null(resp_grow(&out, 1));
	free(out.at);
	out = (struct resp_out){.most = 10};
	resp_raw(&out, "0123456789", 10);
	ck_assert(!out.failed && out.len == 10);
	ck_assert_ptr_null(resp_grow(&out, SIZE_MAX));
	ck_assert(out.failed);
	free(out.at);
	out = (struct resp_out){.most = 0};
	resp_error(&out, "ERR %d", 1);
	ck_assert(out.failed && !out.len);
	free(out.at);
}
END_TEST

/*
 * Text.
 */
START_TEST(test_int64)
{
	static const char *const no[] = {"",
					 "-",
					 "-0",
					 "+1",
					 " 1",
					 "1 ",
					 "01",
					 "00",
					 "-01",
					 "0x1",
					 "1a",
					 "a",
					 "--1",
					 "1.0",
					 "9223372036854775808",
					 "-9223372036854775809",
					 "18446744073709551616",
					 "99999999999999999999"};
	static const int64_t yes[] = {0,
				      1,
				      -1,
				      9,
				      10,
				      -10,
				      99,
				      1234567890123456789,
				      INT64_MAX,
				      INT64_MIN,
				      INT64_MAX - 1,
				      INT64_MIN + 1,
				      999999999999999999,
				      1000000000000000000};
	char text[RESP_INT64], library[RESP_INT64];
	int64_t number = 77;

	for (unsigned i = 0; i < ARRAY_SIZE(no); i++)
		ck_assert_msg(!resp_read_int64(no[i], strlen(no[i]), &number), "%s is taken", no[i]);
	ck_assert(!resp_read_int64("1\0", 2, &number));
	ck_assert_int_eq(number, 77);
	for (unsigned i = 0; i < ARRAY_SIZE(yes); i++) {
		ck_assert_int_eq(resp_write_int64(text, yes[i]),
				 snprintf(library, sizeof(library), "%jd", (intmax_t)yes[i]));
		ck_assert_str_eq(text, library);
		ck_assert(resp_read_int64(text, strlen(text), &number));
		ck_assert_int_eq(number, yes[i]);
	}
}
END_TEST

START_TEST(test_long_double)
{
	static const char *const no[] = {"",  " 1",      "1 ",       "1x",       "nan", "-nan",
					 "x", "1e99999", "-1e99999", "1e-99999", "1,5", "--1"};
	static const struct {
		const char *read, *written;
	} yes[] = {
		{"0", "0"},
		{"-0", "0"},
		{"10.50", "10.5"},
		{"5.0e3", "5000"},
		{"3", "3"},
		{"-1.5", "-1.5"},
		{"0x10", "16"},
		{"3.0", "3"},
		{"1e-18", "0"},
		{"-1e-18", "0"},
		{"1e-17", "0.00000000000000001"},
		{"+1", "1"},
		{".5", "0.5"},
		{"inf", "inf"},
		{"-inf", "-inf"},
		{"200000", "200000"},
		{"1.1", "1.1"},
		{"0.1", "0.1"},
	};
	char text[RESP_LONG_DOUBLE], *longest = malloc(RESP_LONG_DOUBLE + 1);
	long double number = 77;

	for (unsigned i = 0; i < ARRAY_SIZE(no); i++)
		ck_assert_msg(!resp_read_long_double(no[i], strlen(no[i]), &number), "%s is taken", no[i]);
	ck_assert(!resp_read_long_double("1\0", 2, &number));
	ck_assert(number == 77);
	for (unsigned i = 0; i < ARRAY_SIZE(yes); i++) {
		ck_assert_msg(resp_read_long_double(yes[i].read, strlen(yes[i].read), &number), "%s is not taken",
			      yes[i].read);
		ck_assert_int_eq(resp_write_long_double(text, number), (int)strlen(text));
		ck_assert_str_eq(text, yes[i].written);
	}
	ck_assert_int_gt(resp_write_long_double(text, -LDBL_MAX), 4000);
	ck_assert(resp_read_long_double(text, strlen(text), &number) && number == -LDBL_MAX);
	memset(longest, '0', RESP_LONG_DOUBLE + 1);
	ck_assert(resp_read_long_double(longest, RESP_LONG_DOUBLE - 1, &number));
	ck_assert(!resp_read_long_double(longest, RESP_LONG_DOUBLE, &number));
	ck_assert(!resp_read_long_double(longest, RESP_LONG_DOUBLE + 1, &number));
	free(longest);
}
END_TEST

START_TEST(test_match)
{
	/* `cased` as it is, `any` in any case; each as Redis 7.2 has it */
	static const struct {
		const char *pattern, *text;
		bool cased, any;
	} rows[] = {
		{"", "", true, true},
		{"*", "", false, false}, /* so it is */
		{"", "a", false, false},
		{"*", "abc", true, true},
		{"**", "abc", true, true},
		{"a*", "a", true, true},
		{"a**", "a", true, true},
		{"*a", "a", true, true},
		{"a*c", "abc", true, true},
		{"a*c", "abcd", false, false},
		{"a*c", "ac", true, true},
		{"a*b*c", "aXbXbXc", true, true},
		{"a*b*c", "aXcXbX", false, false},
		{"h?llo", "hello", true, true},
		{"h?llo", "hllo", false, false},
		{"h*llo", "heeeello", true, true},
		{"h[ae]llo", "hallo", true, true},
		{"h[ae]llo", "hillo", false, false},
		{"h[^e]llo", "hallo", true, true},
		{"h[^e]llo", "hello", false, false},
		{"h[a-b]llo", "hbllo", true, true},
		{"h[a-b]llo", "hcllo", false, false},
		{"h[b-a]llo", "hallo", true, true},
		{"HELLO", "hello", false, true},
		{"[A-C]", "b", false, true},
		{"[Z-a]", "c", false, false},
		{"\\*", "*", true, true},
		{"\\*", "a", false, false},
		{"a\\", "a\\", true, true},
		{"\\a", "a", true, true},
		{"\\a", "\\", false, false},
		{"[\\]]", "]", true, true},
		{"[]]", "]", false, false},
		{"[]", "a", false, false},
		{"[^]", "a", true, true},
		{"[", "[", false, false},
		{"[", "a", false, false},
		{"[^", "a", true, true},
		{"[a", "a", true, true},
		{"[a-", "-", true, true},
		{"[a-]", "]", true, true}, /* from ']' to 'a', and no end */
		{"[a-]b", "bb", false, false},
		{"[\\", "\\", true, true},
		{"[\\A]", "a", false, false},
		{"[a-\\]", "b", false, false},
		{"a*[b", "aab", true, true},
		{"*?", "a", true, true},
		{"*??", "a", false, false},
		{"?*", "a", true, true},
		{"user:*:[0-9]", "user:x:y:7", true, true},
		{"[a-\xff]", "b", false, false}, /* as signed bytes */
		{"[a-\xff]", "A", true, true},
		{"[\x80-\xff]", "\xc3", true, false},
		{"\xc3\xa4*", "\xc3\xa4x", true, true},
	};

	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++)
		for (unsigned any = 0; any < 2; any++)
			ck_assert_msg(resp_match(rows[i].pattern, strlen(rows[i].pattern), rows[i].text,
						 strlen(rows[i].text), any) == (any ? rows[i].any : rows[i].cased),
				      "%s against %s%s", rows[i].pattern, rows[i].text, any ? " in any case" : "");
	ck_assert(resp_match("a\0?c", 4, "a\0bc", 4, false));
	ck_assert(!resp_match("a\0?c", 4, "a\0bd", 4, false));
}
END_TEST

/* What takes exponential time where each star tries all that is left. */
START_TEST(test_match_is_bounded)
{
	static char pattern[2001], text[20000];

	for (unsigned i = 0; i < sizeof(pattern) - 1; i += 2)
		memcpy(pattern + i, "*a", 2);
	pattern[sizeof(pattern) - 1] = 'b';
	memset(text, 'a', sizeof(text));
	ck_assert(!resp_match(pattern, sizeof(pattern), text, sizeof(text), false));
	ck_assert(!resp_match("a*a*a*a*a*a*a*a*a*a*a*a*a*b", 27, text, sizeof(text), true));
	text[sizeof(text) - 1] = 'b';
	ck_assert(resp_match(pattern, sizeof(pattern), text, sizeof(text), false));
}
END_TEST

START_TEST(test_words)
{
	ck_assert(resp_is(&(struct resp_arg){"EX", 2}, "ex"));
	ck_assert(resp_is(&(struct resp_arg){"eXat", 2}, "ex"));
	ck_assert(!resp_is(&(struct resp_arg){"e", 1}, "ex"));
	ck_assert(!resp_is(&(struct resp_arg){"exa", 3}, "ex"));
	ck_assert(!resp_is(&(struct resp_arg){"ex\0", 3}, "ex"));
	ck_assert(resp_is(&(struct resp_arg){"", 0}, ""));
	ck_assert(!resp_is(&(struct resp_arg){"\x45\x18", 2}, "e8"));
}
END_TEST

/*
 * The table.
 */
static size_t to_upper(const char *name, char *out)
{
	size_t len = strlen(name);

	for (size_t i = 0; i <= len; i++)
		out[i] = (char)(name[i] >= 'a' && name[i] <= 'z' ? name[i] - 'a' + 'A' : name[i]);
	return len;
}

START_TEST(test_rows)
{
	unsigned parents = 0;

	for (unsigned id = 0; id < RESP_IDS; id++) {
		const struct resp_command *row = &resp_commands[id];
		const char *bar = strchr(row->name, '|');
		char upper[64];
		size_t len = to_upper(row->name, upper);

		ck_assert_uint_eq(row->id, id);
		ck_assert_int_eq(bar != NULL, id >= RESP_COMMANDS);
		for (const char *c = row->name; *c; c++)
			ck_assert_msg(strchr("abcdefghijklmnopqrstuvwxyz_-|", *c), "%s", row->name);
		ck_assert_msg(row->arity, "%s", row->name);
		ck_assert_msg(!(row->flags & RESP_WRITE && row->flags & RESP_READONLY), "%s", row->name);
		ck_assert_msg(row->flags & RESP_WRITE || !(row->flags & RESP_DENYOOM), "%s", row->name);
		/* a key is among the arguments that the arity asks for, but of SUNSUBSCRIBE */
		ck_assert_msg(row->first == 0 ? !row->last && !row->step : row->step > 0, "%s", row->name);
		ck_assert_msg(row->first < abs(row->arity) || id == RESP_CMD_SUNSUBSCRIBE, "%s", row->name);
		ck_assert_msg(row->last == -1 || (row->last >= row->first && row->last < abs(row->arity)), "%s",
			      row->name);
		ck_assert_msg(row->since && strlen(row->since) >= 5 &&
				      strspn(row->since, "0123456789.") == strlen(row->since),
			      "%s", row->name);
		ck_assert(row->summary && row->summary[strlen(row->summary) - 1] == '.');
		ck_assert(row->complexity && *row->complexity);
		ck_assert(row->group <= RESP_HASH);
		ck_assert(!resp_is_refused(row->name, len));
		if (!bar) {
			ck_assert_ptr_eq(resp_find(row->name, len), row);
			ck_assert_ptr_eq(resp_find(upper, len), row);
			ck_assert_ptr_null(resp_find(row->name, len - 1) == row ? row : NULL);
			parents += resp_has_subs(row);
			continue;
		}
		ck_assert_ptr_null(resp_find(row->name, len));
		{
			const struct resp_command *of = resp_find(row->name, (size_t)(bar - row->name));
			size_t at = (size_t)(bar + 1 - row->name);

			ck_assert(of && resp_has_subs(of) && of->arity < 0);
			ck_assert_ptr_eq(resp_find_sub(of, bar + 1, len - at), row);
			ck_assert_ptr_eq(resp_find_sub(of, upper + at, len - at), row);
			ck_assert_ptr_null(resp_find_sub(row, bar + 1, len - at));
			ck_assert_ptr_null(resp_find_sub(&resp_commands[RESP_CMD_GET], bar + 1, len - at));
		}
		ck_assert(!resp_has_subs(row));
	}
	ck_assert_uint_eq(parents, 13);
}
END_TEST

START_TEST(test_find)
{
	static const char *const no[] = {"",
					 "g",
					 "gett",
					 "ge",
					 "get ",
					 "client|id",
					 "id",
					 "lpush",
					 "xxxxxxxxxxxxxxxxxxxxxxxx",
					 "ge\x14",
					 "\xc7\xc5\xd4",
					 "GE4",
					 "set\x7f",
					 "eval?ro"};

	for (unsigned i = 0; i < ARRAY_SIZE(no); i++)
		ck_assert_msg(!resp_find(no[i], strlen(no[i])), "%s is found", no[i]);
	ck_assert_ptr_null(resp_find("get\0", 4));
	ck_assert_ptr_eq(resp_find("Eval_Ro", 7), &resp_commands[RESP_CMD_EVAL_RO]);
	ck_assert_ptr_null(resp_find("EVAL\x7fRO", 7)); /* is '_' with the bit of lower case */
	ck_assert_ptr_eq(resp_find_sub(&resp_commands[RESP_CMD_CLIENT], "No-Evict", 8),
			 &resp_commands[RESP_CMD_CLIENT_NO_EVICT]);
	ck_assert_ptr_null(resp_find_sub(&resp_commands[RESP_CMD_CLIENT], "usage", 5));
	ck_assert_ptr_null(resp_find_sub(&resp_commands[RESP_CMD_CLIENT], "", 0));
	ck_assert(resp_arity_fits(&resp_commands[RESP_CMD_GET], 2) &&
		  !resp_arity_fits(&resp_commands[RESP_CMD_GET], 3));
	ck_assert(resp_arity_fits(&resp_commands[RESP_CMD_SET], 9) &&
		  !resp_arity_fits(&resp_commands[RESP_CMD_SET], 2));
}
END_TEST

START_TEST(test_refused)
{
	static const char *const yes[] = {
		"lpush", "LPUSH",   "monitor",   "zunionstore",    "sort", "Sort_RO", "geoadd", "pfadd",
		"xadd",  "migrate", "replicaof", "restore-asking", "sync", "setbit",  "lrange", "georadiusbymember_ro"};
	static const char *const no[] = {"", "a", "zzzz", "lpus", "lpushh", "get", "hset", "flushall", "SORT_", "b"};

	for (unsigned i = 0; i < ARRAY_SIZE(yes); i++)
		ck_assert_msg(resp_is_refused(yes[i], strlen(yes[i])), "%s", yes[i]);
	for (unsigned i = 0; i < ARRAY_SIZE(no); i++)
		ck_assert_msg(!resp_is_refused(no[i], strlen(no[i])), "%s", no[i]);
	ck_assert(!resp_is_refused("lpush\0", 6));
}
END_TEST

/* Words of a line, their keys as a list of positions. */
static void expect_keys(const char *line, const char *positions)
{
	struct resp_parser parser;
	const struct resp_command *command, *sub;
	struct resp_keys keys;
	char inlined[200], list[200] = "";

	resp_parser_init(&parser);
	snprintf(inlined, sizeof(inlined), "%s\n", line);
	ck_assert_int_eq(resp_parse(&parser, &wide, inlined, strlen(inlined)), RESP_COMMAND);
	command = resp_find(parser.argv[0].at, parser.argv[0].len);
	ck_assert_ptr_nonnull(command);
	sub = parser.argc > 1 ? resp_find_sub(command, parser.argv[1].at, parser.argv[1].len) : NULL;
	command = sub ? sub : command;
	ck_assert(resp_arity_fits(command, parser.argc));
	keys = resp_keys(command, parser.argv, parser.argc);
	for (unsigned i = 0; i < keys.count; i++)
		sprintf(list + strlen(list), "%s%td", i ? " " : "", resp_key(&keys, parser.argv, i) - parser.argv);
	ck_assert_msg(strcmp(list, positions) == 0, "%s: %s", line, list);
	resp_parser_clear(&parser);
}

START_TEST(test_keys)
{
	expect_keys("get k", "1");
	expect_keys("set k v nx", "1");
	expect_keys("mget a b c", "1 2 3");
	expect_keys("mset a 1 b 2", "1 3");
	expect_keys("mset a 1 b", "1 3");
	expect_keys("rename a b", "1 2");
	expect_keys("copy a b replace", "1 2");
	expect_keys("watch a b", "1 2");
	expect_keys("ping", "");
	expect_keys("keys *", "");
	expect_keys("scan 0", "");
	expect_keys("object encoding k", "2");
	expect_keys("memory usage k samples 5", "2");
	expect_keys("client id", "");
	expect_keys("eval script 2 a b c", "3 4");
	expect_keys("eval script 0 c", "");
	expect_keys("eval script 4 a b c", "");
	expect_keys("eval script -1 a", "");
	expect_keys("eval script x a", "");
	expect_keys("evalsha_ro sha 1 a", "3");
	expect_keys("eval script 9223372036854775807 a", "");
	expect_keys("msetex 2 a 1 b 2 ex 10", "2 4");
	expect_keys("msetex 2 a 1 b", "");
	expect_keys("msetex 9223372036854775807 a 1 b", "");
	expect_keys("subscribe a b", "");
	expect_keys("ssubscribe a b", "");
	expect_keys("sunsubscribe", "");
	expect_keys("spublish a b", "");
	expect_keys("hset k f v f v", "1");
}
END_TEST

/* One value of a reply is passed over; NULL: there is none. */
static const char *pass(const char *c, const char *end)
{
	char *behind;
	long long number = strtoll(c + 1, &behind, 10);
	char mark = *c;

	if (c >= end)
		return NULL;
	c = memmem(c, (size_t)(end - c), "\r\n", 2);
	if (!c)
		return NULL;
	c += 2;
	if (mark == '+' || mark == ':')
		return c;
	if (behind != c - 2 || number < 0)
		return NULL;
	if (mark == '$')
		return c + number + 2 <= end && memcmp(c + number, "\r\n", 2) == 0 ? c + number + 2 : NULL;
	if (!strchr("*%~", mark))
		return NULL;
	for (long long i = 0; c && i < (mark == '%' ? 2 * number : number); i++)
		c = pass(c, end);
	return c;
}

START_TEST(test_told)
{
	struct resp_out out = {.most = MIB};

	for (unsigned three = 0; three < 2; three++) {
		for (unsigned id = 0; id < RESP_IDS; id++) {
			out.len = 0;
			out.three = three;
			resp_tell_command(&out, &resp_commands[id]);
			resp_raw(&out, "", 1);
			ck_assert_ptr_eq(pass(out.at, out.at + out.len - 1), out.at + out.len - 1);
			out.len = 0;
			resp_tell_docs(&out, &resp_commands[id]);
			resp_raw(&out, "", 1);
			ck_assert_ptr_eq(pass(pass(out.at, out.at + out.len - 1), out.at + out.len - 1),
					 out.at + out.len - 1);
		}
	}
	free(out.at);
	out = (struct resp_out){.most = MIB};
	resp_tell_command(&out, &resp_commands[RESP_CMD_GET]);
	expect_out(&out,
		   "*10\r\n$3\r\nget\r\n:2\r\n*2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n*3\r\n+@read\r\n+@"
		   "string\r\n+@fast\r\n*0\r\n"
		   "*1\r\n*6\r\n$5\r\nflags\r\n*1\r\n+RO\r\n"
		   "$12\r\nbegin_search\r\n*4\r\n$4\r\ntype\r\n$5\r\nindex\r\n$4\r\nspec\r\n*2\r\n$5\r\nindex\r\n:1\r\n"
		   "$9\r\nfind_keys\r\n*4\r\n$4\r\ntype\r\n$5\r\nrange\r\n$4\r\nspec\r\n*6\r\n$7\r\nlastkey\r\n:0\r\n$"
		   "7\r\nkeystep\r\n:1\r\n"
		   "$5\r\nlimit\r\n:0\r\n*0\r\n");
	out.three = true;
	resp_tell_command(&out, &resp_commands[RESP_CMD_LASTSAVE]);
	expect_out(&out, "*10\r\n$8\r\nlastsave\r\n:1\r\n~3\r\n+loading\r\n+stale\r\n+fast\r\n:0\r\n:0\r\n:0\r\n"
			 "~3\r\n+@admin\r\n+@fast\r\n+@dangerous\r\n~0\r\n~0\r\n~0\r\n");
	resp_tell_docs(&out, &resp_commands[RESP_CMD_FUNCTION]);
	expect_out(
		&out,
		"$8\r\nfunction\r\n%5\r\n$7\r\nsummary\r\n$44\r\nIs about functions, which are not supported.\r\n"
		"$5\r\nsince\r\n$5\r\n7.0.0\r\n$5\r\ngroup\r\n$9\r\nscripting\r\n$10\r\ncomplexity\r\n$11\r\nBy its "
		"kind\r\n"
		"$11\r\nsubcommands\r\n%1\r\n$14\r\nfunction|flush\r\n%4\r\n"
		"$7\r\nsummary\r\n$47\r\nDeletes all functions, of which there are none.\r\n"
		"$5\r\nsince\r\n$5\r\n7.0.0\r\n$5\r\ngroup\r\n$9\r\nscripting\r\n$10\r\ncomplexity\r\n$4\r\nO(1)\r\n");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("resp");
	TCase *tc;

	tc = suite_case(suite, "commands", NULL, NULL);
	tcase_add_test(tc, test_arrays);
	tcase_add_test(tc, test_pipeline);
	tcase_add_test(tc, test_passed_over);
	tcase_add_test(tc, test_errors);
	tcase_add_test(tc, test_long_lines);
	tcase_add_test(tc, test_limits);
	tcase_add_test(tc, test_limits_shrink);
	tcase_add_test(tc, test_trim);
	tcase_add_test(tc, test_want);
	tcase_add_test(tc, test_model);
	tc = suite_case(suite, "inline", NULL, NULL);
	tcase_add_test(tc, test_inline);
	tcase_add_test(tc, test_inline_zero);
	tcase_add_test(tc, test_inline_is_told);
	tc = suite_case(suite, "large", NULL, NULL);
	tcase_add_test(tc, test_large_taken);
	tcase_add_test(tc, test_large_left);
	tc = suite_case(suite, "replies", NULL, NULL);
	tcase_add_test(tc, test_replies);
	tcase_add_test(tc, test_out_of_room);
	tc = suite_case(suite, "text", NULL, NULL);
	tcase_add_test(tc, test_int64);
	tcase_add_test(tc, test_long_double);
	tcase_add_test(tc, test_match);
	tcase_add_test(tc, test_match_is_bounded);
	tcase_add_test(tc, test_words);
	tc = suite_case(suite, "table", NULL, NULL);
	tcase_add_test(tc, test_rows);
	tcase_add_test(tc, test_find);
	tcase_add_test(tc, test_refused);
	tcase_add_test(tc, test_keys);
	tcase_add_test(tc, test_told);
	return suite_run(suite);
}
