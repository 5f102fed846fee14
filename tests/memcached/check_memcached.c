/* check_memcached.c: commands however they are cut, in memcached's words; answers, numbers, base64. */
#include <stdlib.h>

#include "memcached/memcached.h"
#include "tests/suite.h"

/* What a stream of commands comes to, as text. */
struct account {
	char text[1 << 15];
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

static void note_number(struct account *account, const char *name, int64_t number)
{
	char text[64];

	snprintf(text, sizeof(text), " %s%lld", name, (long long)number);
	note_text(account, text);
}

static void note_command(struct account *account, struct memc_command *c)
{
	static const char *const name[] = {"-",       "get",     "set",       "add",   "replace", "append",
					   "prepend", "cas",     "incr",      "decr",  "delete",  "touch",
					   "flush",   "version", "verbosity", "stats", "quit",    "mg",
					   "ms",      "md",      "ma",        "mn",    "me",      "close"};
	struct memc_word word;

	note_text(account, "[");
	note_text(account, name[c->id]);
	if (c->error) {
		note_text(account, " ");
		note_text(account, c->error);
	} else if (c->key.len) {
		note_text(account, c->binary ? " b:" : " ");
		note(account, c->key.at, c->key.len);
	}
	while (!c->error && memc_next_key(c, &word)) {
		note_text(account, " +");
		note(account, word.at, word.len);
	}
	if (c->mode)
		note_text(account, name[c->mode]);
	if (c->stores)
		note_number(account, "len", (int64_t)c->value_len);
	if (c->client_flags)
		note_number(account, "flags", c->client_flags);
	if (c->exptime)
		note_number(account, "exp", c->exptime);
	if (c->has_cas)
		note_number(account, "cas", (int64_t)c->cas);
	if (c->quiet)
		note_text(account, " q");
	for (unsigned i = 0; i < c->flags; i++) {
		note_text(account, " /");
		note(account, c->flag[i].at, c->flag[i].len);
	}
	note_text(account, "]");
}

/* All commands of the bytes, of which ever more are known, `step` at a time; they move with each call. */
static void take_apart(struct account *account, const char *bytes, size_t len, size_t first, size_t step)
{
	struct memc_parser parser = {.at = 0};
	size_t begin = 0, known = MIN(first, len);

	account->len = 0;
	for (;;) {
		size_t n = known - begin;
		char *moved = malloc(n + !n);
		enum memc_result result;

		ck_assert_ptr_nonnull(moved);
		memcpy(moved, bytes + begin, n);
		result = memc_parse(&parser, moved, n);
		if (result == MEMC_COMMAND) {
			ck_assert_uint_le(parser.used, n);
			note_command(account, &parser.command);
			begin += parser.used;
			if (parser.command.stores)
				begin = MIN(begin + parser.command.value_len + 2, len);
			known = MAX(known, begin);
		} else if (result == MEMC_BAD) {
			note_text(account, "BAD");
		} else if (known < len) {
			known = MIN(known + step, len);
			result = MEMC_COMMAND;
		}
		free(moved);
		if (result != MEMC_COMMAND)
			return;
	}
}

/* However it is cut. */
static void expect(const char *bytes, size_t len, const char *want)
{
	static struct account account;

	for (size_t cut = 0; cut <= len; cut++) {
		take_apart(&account, bytes, len, cut, len);
		ck_assert_str_eq(account.text, want);
	}
	take_apart(&account, bytes, len, 0, 1);
	ck_assert_str_eq(account.text, want);
}

#define EXPECT(bytes, want) expect(bytes, sizeof(bytes) - 1, want)
#define FORMAT "CLIENT_ERROR bad command line format"

START_TEST(test_text)
{
	EXPECT("get a\r\n", "[get +a]");
	EXPECT("get a b\tc\n", "[get +a +b\tc]");
	EXPECT("  gets   a  b \r\n", "[get +a +b]");
	EXPECT("get\r\ngets \r\ngat\r\n", "[- ERROR][- ERROR][- ERROR]");
	EXPECT("gat 10 a\r\ngats -1\r\ngat x a\r\n",
	       "[get +a exp10][get exp-1][- CLIENT_ERROR invalid exptime argument]");
	EXPECT("get a\0b\r\nGET a\r\n", "[get +a][- ERROR]");
}
END_TEST

START_TEST(test_store)
{
	EXPECT("set k 5 10 3\r\nabc\r\n", "[set k len3 flags5 exp10]");
	EXPECT("set k 0 0 2 noreply\r\n\r\n\r\nadd k 0 0 0\r\n\r\n", "[set k len2 q][add k len0]");
	EXPECT("replace k 4294967296 0 1\r\nx\r\n", "[replace k len1]");
	EXPECT("append k 0 0 1\r\nx\r\nprepend k 0 -1 1\r\nx\r\n", "[append k len1][prepend k len1 exp-1]");
	EXPECT("cas k 0 0 1 77\r\nx\r\ncas k 0 0 1\r\n", "[cas k len1 cas77][- ERROR]");
	EXPECT("set k 0 0\r\nset k 0 0 1 2 3\r\n", "[- ERROR][- ERROR]");
	EXPECT("set k 0 0 -1\r\nset k 0 0 noreply\r\n", "[- " FORMAT "][- " FORMAT " q]");
	EXPECT("set k -1 0 1\r\nset k 0 x 1\r\nset k 0 0 2147483646\r\n", "[- " FORMAT "][- " FORMAT "][- " FORMAT "]");
}
END_TEST

START_TEST(test_others)
{
	EXPECT("incr k 5\r\ndecr k x\r\nincr k\r\n",
	       "[incr k][- CLIENT_ERROR invalid numeric delta argument][- ERROR]");
	EXPECT("delete k\r\ndelete k 0\r\ndelete k noreply\r\ndelete k 0 noreply\r\n",
	       "[delete k][delete k][delete k q][delete k q]");
	EXPECT("delete k 1\r\n", "[- CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]]");
	EXPECT("touch k 5\r\nflush_all\r\nflush_all 10 noreply\r\nflush_all x\r\n",
	       "[touch k exp5][flush][flush exp10 q][- CLIENT_ERROR invalid exptime argument]");
	EXPECT("version\r\nverbosity 1\r\nverbosity\r\nquit\r\nstats items\r\n",
	       "[version][verbosity][- ERROR][quit][stats +items]");
	EXPECT("\r\n\nx\r\nnothing\r\nGET / HTTP/1.1\r\n", "[- ERROR][- ERROR][- ERROR][- ERROR][close]");
	EXPECT("shutdown\r\n", "[- ERROR: shutdown not enabled]");
}
END_TEST

START_TEST(test_meta)
{
	EXPECT("mg k v f O1 k q\r\n", "[mg k q /v /f /O1 /k /q]");
	EXPECT("mg Zm9v b v\r\nmg ? b\r\n", "[mg b:foo /b /v][- CLIENT_ERROR error decoding key /b]");
	EXPECT("mg\r\nmg k x\r\nmg k v v\r\nmg k Tx\r\n",
	       "[- ERROR][- CLIENT_ERROR invalid flag /x][- CLIENT_ERROR duplicate flag /v]"
	       "[- CLIENT_ERROR bad token in command line format /Tx]");
	EXPECT("ms k 3 T10 F5 C7\r\nabc\r\n", "[ms kcas len3 flags5 exp10 cas7 /T10 /F5 /C7]");
	EXPECT("ms k 3 ME\r\nabc\r\nms k 3 MQ\r\nabc\r\nmn\r\n",
	       "[ms kadd len3 /ME][- CLIENT_ERROR invalid mode for ms M token len3 /MQ][mn]");
	EXPECT("ms k\r\nms k x\r\n", "[- " FORMAT "][- " FORMAT "]");
	EXPECT("md k I T5\r\nmd k I I\r\n", "[md k exp5 /I /T5][- CLIENT_ERROR invalid or duplicate flag /I]");
	EXPECT("ma k\r\nma k MD D5 N0 J3\r\nma k MX\r\n",
	       "[ma kincr][ma kdecr /MD /D5 /N0 /J3][- CLIENT_ERROR invalid mode for ma M token /MX]");
	EXPECT("me k\r\nme\r\nmx k\r\n", "[me k][- " FORMAT "][- ERROR]");
	EXPECT("mg k O123456789012345678901234567890123\r\n",
	       "[- CLIENT_ERROR opaque token too long /O123456789012345678901234567890123]");
}
END_TEST

/* Keys and lines at the edge. */
START_TEST(test_lengths)
{
	static char line[3 * MEMC_GET_MAX];
	static struct account account;
	struct memc_parser parser = {.at = 0};
	size_t n;

	for (size_t key = MEMC_KEY_MAX - 1; key <= MEMC_KEY_MAX + 1; key++) {
		for (unsigned which = 0; which < 4; which++) {
			static const char *const before[] = {"get ", "delete ", "mg ", "set "}, *const behind[] = {
													"\r\n", "\r\n",
													" v\r\n",
													" 0 0 0\r\n"};

			n = strlen(before[which]);
			memcpy(line, before[which], n);
			memset(line + n, 'k', key);
			strcpy(line + n + key, behind[which]);
			take_apart(&account, line, strlen(line), 0, 7);
			ck_assert_int_eq(strcmp(account.text, "[- " FORMAT "]") == 0, key > MEMC_KEY_MAX);
		}
	}
	memset(line, 'x', sizeof(line));
	ck_assert_int_eq(memc_parse(&parser, line, MEMC_LINE_MAX - 1), MEMC_MORE);
	ck_assert_int_eq(memc_parse(&parser, line, MEMC_LINE_MAX), MEMC_BAD);
	parser.at = 0;
	for (size_t i = 0; i < sizeof(line); i += 2)
		memcpy(line + i, i ? "k " : "  ", 2);
	memcpy(line, "get ", 4);
	ck_assert_int_eq(memc_parse(&parser, line, MEMC_GET_MAX - 1), MEMC_MORE);
	line[MEMC_GET_MAX - 1] = '\n';
	ck_assert_int_eq(memc_parse(&parser, line, MEMC_GET_MAX), MEMC_COMMAND);
	ck_assert_int_eq(parser.command.id, MEMC_GET);
	line[MEMC_GET_MAX - 1] = ' ';
	ck_assert_int_eq(memc_parse(&parser, line, sizeof(line)), MEMC_BAD);
}
END_TEST

static void expect_number(const char *text, bool is, uint64_t want)
{
	uint64_t number = 0;

	ck_assert_int_eq(memc_read_number(text, strlen(text), &number), is);
	if (is)
		ck_assert_uint_eq(number, want);
}

START_TEST(test_numbers)
{
	expect_number("0", true, 0);
	expect_number("007", true, 7);
	expect_number(" +5 x", true, 5);
	expect_number("\t9\r\n", true, 9);
	expect_number("18446744073709551615", true, UINT64_MAX);
	expect_number("18446744073709551616", false, 0);
	expect_number("-0", true, 0);
	expect_number("-1", false, 0);
	expect_number("-18446744073709551615", true, 1);
	expect_number("", false, 0);
	expect_number("-", false, 0);
	expect_number("1x", false, 0);
	expect_number("0x1", false, 0);
}
END_TEST

START_TEST(test_base64)
{
	char bytes[256], coded[MEMC_BASE64(sizeof(bytes))], back[sizeof(bytes) + 3];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (char)(i * 37);
	for (size_t len = 1; len <= 180; len++) {
		size_t n = memc_base64_write(bytes, len, coded);

		ck_assert_uint_eq(n, MEMC_BASE64(len));
		ck_assert_uint_eq(memc_base64_read(coded, n, back, sizeof(back)), len);
		ck_assert_mem_eq(back, bytes, len);
	}
	ck_assert_uint_eq(memc_base64_write("foob", 4, coded), 8);
	ck_assert_mem_eq(coded, "Zm9vYg==", 8);
	ck_assert_uint_eq(memc_base64_read("Zm9", 3, back, sizeof(back)), 0);
	ck_assert_uint_eq(memc_base64_read("====", 4, back, sizeof(back)), 0);
	ck_assert_uint_eq(memc_base64_read("Zm9vYmFy", 8, back, 5), 0);
	ck_assert_uint_eq(memc_base64_read("", 0, back, sizeof(back)), 0);
}
END_TEST

START_TEST(test_build)
{
	struct memc_out out = {.most = 1000};
	struct memc_parser parser = {.at = 0};
	uint64_t cas = UINT64_MAX;

	ck_assert_int_eq(memc_parse(&parser, "mg Zm9v b k O9\r\n", 16), MEMC_COMMAND);
	memc_value(&out, &(struct memc_word){"key", 3}, UINT32_MAX, 10, NULL);
	memc_value(&out, &(struct memc_word){"key", 3}, 0, 0, &cas);
	memc_put_text(&out, "HD");
	memc_flags_echo(&out, &parser.command);
	memc_flag_number(&out, 't', 0);
	memc_line(&out, "");
	memc_put(&out, "", 1);
	ck_assert(!out.failed);
	ck_assert_str_eq(out.at,
			 "VALUE key 4294967295 10\r\nVALUE key 0 0 18446744073709551615\r\nHD kZm9v b O9 t0\r\n");
	while (!out.failed)
		memc_line(&out, "more");
	ck_assert_uint_le(out.len, out.most);
	cas = out.len;
	memc_line(&out, "");
	ck_assert_uint_eq(out.len, cas);
	free(out.at);
}
END_TEST

START_TEST(test_login)
{
	struct memc_word name, secret;
	uint32_t bytes;

	ck_assert(memc_parse_login("set a 0 0 10\r", 13, &bytes) && bytes == 10);
	ck_assert(!memc_parse_login("set a 0 0", 9, &bytes));
	ck_assert(!memc_parse_login("get a 0 0 10", 12, &bytes));
	ck_assert(!memc_parse_login("set a 0 0 x", 11, &bytes));
	ck_assert(memc_parse_secret("user pass more", 14, &name, &secret));
	ck_assert(memc_is(&name, "user") && memc_is(&secret, "pass"));
	ck_assert(!memc_parse_secret("user", 4, &name, &secret));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("memcached");
	TCase *c = suite_case(suite, "memcached", NULL, NULL);

	tcase_add_test(c, test_text);
	tcase_add_test(c, test_store);
	tcase_add_test(c, test_others);
	tcase_add_test(c, test_meta);
	tcase_add_test(c, test_lengths);
	tcase_add_test(c, test_numbers);
	tcase_add_test(c, test_base64);
	tcase_add_test(c, test_build);
	tcase_add_test(c, test_login);
	return suite_run(suite);
}
