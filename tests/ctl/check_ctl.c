/* check_ctl.c: the parts of rdmactl that need no daemon: command files, options, tables, JSON, completion, manual. */
#include <check.h>
#include <fcntl.h>
#include <rdma_lib.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl/ctl.h"
#include "ctl/doctor/doctor.h"
#include "tests/suite.h"

static struct script_command parse(const char *line)
{
	struct script_command command;

	ck_assert_ptr_null(script_parse(line, strlen(line), &command));
	return command;
}

static void assert_bytes(const char *bytes, size_t len, const char *expected)
{
	ck_assert_uint_eq(len, strlen(expected));
	ck_assert_mem_eq(bytes, expected, len);
}

START_TEST(test_script_lines)
{
	struct script_command c = parse("set key the value,  blanks and all ");

	ck_assert_int_eq(c.verb, SCRIPT_SET);
	assert_bytes(c.key, c.key_len, "key");
	assert_bytes(c.value, c.value_len, "the value,  blanks and all ");
	c = parse("set key");
	ck_assert_int_eq(c.verb, SCRIPT_SET);
	ck_assert_uint_eq(c.value_len, 0);
	c = parse("set key ");
	ck_assert_uint_eq(c.value_len, 0);
	c = parse("  get\tkey  ");
	ck_assert_int_eq(c.verb, SCRIPT_GET);
	assert_bytes(c.key, c.key_len, "key");
	c = parse("setsize key 4K");
	ck_assert_int_eq(c.verb, SCRIPT_SETSIZE);
	ck_assert_uint_eq(c.size, 4096);
	ck_assert_int_eq(parse("printkv").verb, SCRIPT_PRINTKV);
	ck_assert_int_eq(parse("").verb, SCRIPT_NONE);
	ck_assert_int_eq(parse(" \t ").verb, SCRIPT_NONE);
	ck_assert_int_eq(parse("# set key value").verb, SCRIPT_NONE);
}
END_TEST

START_TEST(test_script_bad_lines)
{
	static const char *const bad[] = {"set",
					  "get",
					  "get a b",
					  "setsize",
					  "setsize k",
					  "setsize k 0",
					  "setsize k -1",
					  "setsize k 12 3",
					  "setsize k 1e3",
					  "printkv all",
					  "SET a b",
					  "sett a b",
					  "setsize k 99999999999999999999999999999999999999"};
	struct script_command command;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_msg(script_parse(bad[i], strlen(bad[i]), &command), "%s", bad[i]);
}
END_TEST

/* A value is bytes: only the line feed ends it. */
START_TEST(test_script_binary_value)
{
	char line[4 + 2 + 255];
	struct script_command c;
	size_t n = 6;

	memcpy(line, "set k ", 6);
	for (int i = 0; i < 256; i++)
		if (i != '\n')
			line[n++] = (char)i;
	ck_assert_ptr_null(script_parse(line, n, &c));
	ck_assert_uint_eq(c.value_len, 255);
	ck_assert_mem_eq(c.value, line + 6, 255);
}
END_TEST

START_TEST(test_script_random_text)
{
	char a[101] = {0}, b[101] = {0};
	uint64_t state = 1;

	script_random_text(a, 100, &state);
	script_random_text(b, 100, &state);
	ck_assert_uint_eq(strlen(a), 100);
	ck_assert_str_ne(a, b);
	for (size_t i = 0; i < 100; i++)
		ck_assert(a[i] > ' ' && a[i] < 127);
}
END_TEST

static unsigned idles;

static void count_idle(void *arg)
{
	++*(unsigned *)arg;
}

/* Lines of many lengths through a pipe that is smaller than some of them. */
START_TEST(test_script_reader)
{
	struct script_reader reader = {.idle = count_idle, .arg = &idles};
	char path[] = "/tmp/check_ctl.XXXXXX";
	int fd = mkstemp(path);
	FILE *file = fdopen(fd, "w+");
	const char *line;
	size_t len;

	for (int i = 0; i < 300; i++) {
		for (int j = 0; j < i * i; j++)
			putc('a' + i % 26, file);
		putc('\n', file);
	}
	fputs("no line feed", file);
	fflush(file);
	reader.fd = open(path, O_RDONLY);
	unlink(path);
	for (int i = 0; i < 300; i++) {
		ck_assert_int_eq(script_read(&reader, &line, &len), 1);
		ck_assert_uint_eq(len, (size_t)(i * i));
		ck_assert(!len || (line[0] == 'a' + i % 26 && line[len - 1] == line[0]));
	}
	ck_assert_int_eq(script_read(&reader, &line, &len), 1);
	assert_bytes(line, len, "no line feed");
	ck_assert_int_eq(script_read(&reader, &line, &len), 0);
	ck_assert_uint_gt(idles, 1);
	script_reader_destroy(&reader);
	close(reader.fd);
	fclose(file);
}
END_TEST

START_TEST(test_sizes)
{
	uint64_t sizes[16];

	ck_assert_int_eq(ctl_sizes_parse("64", 1000, sizes, 16), 1);
	ck_assert_uint_eq(sizes[0], 64);
	ck_assert_int_eq(ctl_sizes_parse("0,3,1K-5K", MIB, sizes, 16), 5);
	ck_assert_uint_eq(sizes[0], 0);
	ck_assert_uint_eq(sizes[4], 4096);
	ck_assert_int_eq(ctl_sizes_parse("1-32K", MIB, sizes, 16), 16);
	ck_assert_int_eq(ctl_sizes_parse("1-64K", MIB, sizes, 16), -ERANGE);
	ck_assert_int_eq(ctl_sizes_parse("2K", 1024, sizes, 16), -ERANGE);
	ck_assert_int_eq(ctl_sizes_parse("2K-1K", MIB, sizes, 16), -ERANGE);
	ck_assert_int_eq(ctl_sizes_parse("0-64", MIB, sizes, 16), -ERANGE);
	ck_assert_int_eq(ctl_sizes_parse("", MIB, sizes, 16), -EINVAL);
	ck_assert_int_eq(ctl_sizes_parse("1,,2", MIB, sizes, 16), -EINVAL);
	ck_assert_int_eq(ctl_sizes_parse("1-", MIB, sizes, 16), -EINVAL);
	ck_assert_int_eq(ctl_sizes_parse("-1", MIB, sizes, 16), -EINVAL);
}
END_TEST

static bool flag;
static uint64_t number, size;
static const char *text;
static const struct ctl_option table[] = {
	{"flag", 'f', CTL_FLAG, &flag, NULL, "a flag"},
	{"number", 'n', CTL_NUMBER, &number, "N", "a number", .min = 1, .max = 9},
	{"size", 's', CTL_SIZE, &size, "SIZE", "a size"},
	{"text", 0, CTL_TEXT, &text, "TEXT", "a text"},
	{NULL},
};

static int parse_words(const char **words, struct ctl_arguments *arguments)
{
	int n = 0;

	while (words[n])
		n++;
	flag = false;
	number = size = 0;
	text = NULL;
	memset(&ctl, 0, sizeof(ctl));
	arguments->count = 0;
	return ctl_options_parse(table, n, words, arguments);
}

#define WORDS(...) ((const char *[]){__VA_ARGS__, NULL})

START_TEST(test_options)
{
	const char *room[16];
	struct ctl_arguments arguments = {.text = room};

	ck_assert_int_eq(
		parse_words(WORDS("a", "-fn5", "--size", "4K", "-", "--text=x=y", "--json", "--", "-f", "--nope"),
			    &arguments),
		0);
	ck_assert(flag && ctl.json);
	ck_assert_uint_eq(number, 5);
	ck_assert_uint_eq(size, 4096);
	ck_assert_str_eq(text, "x=y");
	ck_assert_int_eq(arguments.count, 4);
	ck_assert_str_eq(room[1], "-");
	ck_assert_str_eq(room[3], "--nope");
	ck_assert_int_eq(parse_words(WORDS("--poll", "always", "--timeout", "20ms"), &arguments), 0);
	ck_assert_uint_eq(ctl.poll, TIME_NEVER);
	ck_assert_uint_eq(ctl.timeout, 20 * TIME_MS);
	ck_assert(ctl.poll_given);
}
END_TEST

START_TEST(test_bad_options)
{
	static const char *bad[][3] = {{"--nope"},        {"-x"},           {"-n", "0"},
				       {"-n", "10"},      {"-n", "-1"},     {"-n", "1x"},
				       {"-n", ""},        {"-n"},           {"--flag=1"},
				       {"--size", "big"}, {"--size="},      {"--timeout", "5"},
				       {"--host", "a:b"}, {"--numbe", "1"}, {"-s", "99999999T"}};
	const char *room[16];
	struct ctl_arguments arguments = {.text = room};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_msg(parse_words(bad[i], &arguments) == -EINVAL, "%s %s", bad[i][0],
			      bad[i][1] ? bad[i][1] : "");
}
END_TEST

START_TEST(test_commands_found)
{
	int words;

	ck_assert_str_eq(ctl_command_find(3, WORDS("kv", "get", "key"), &words)->name, "kv get");
	ck_assert_int_eq(words, 2);
	ck_assert_str_eq(ctl_command_find(1, WORDS("status"), &words)->name, "status");
	ck_assert_int_eq(words, 1);
	ck_assert_ptr_null(ctl_command_find(1, WORDS("kv"), &words));
	ck_assert_ptr_null(ctl_command_find(2, WORDS("kv", "ge"), &words));
	ck_assert_ptr_null(ctl_command_find(0, WORDS("x"), &words));
}
END_TEST

static char *written(void (*write)(FILE *out, void *arg), void *arg)
{
	static char *buffer; /* gcc 12 takes what a local one points to for itself, and warns */
	size_t len;
	FILE *out = open_memstream(&buffer, &len);

	write(out, arg);
	fclose(out);
	return buffer;
}

static void write_table(FILE *out, void *arg)
{
	ctl_table_print(out, arg, 1);
}

START_TEST(test_table)
{
	struct ctl_table t;
	char *out;

	ctl_table_init(&t);
	ctl_table_column(&t, "name", false);
	ctl_table_column(&t, "n", true);
	ctl_table_column(&t, "note", false);
	for (int i = 0; i < 100; i += 99) {
		ctl_table_cell(&t, "row %d", i);
		ctl_table_cell(&t, "%d", i * i);
		ctl_table_cell(&t, "%s", i ? "much longer than its title" : "");
	}
	out = written(write_table, &t);
	ck_assert_str_eq(out, " name       n  note\n"
			      " row 0      0  \n"
			      " row 99  9801  much longer than its title\n");
	free(out);
	ctl_table_destroy(&t);
}
END_TEST

static void write_json(FILE *out, void *arg)
{
	ctl_render(out, arg);
}

START_TEST(test_render)
{
	json_t *o = json_pack("{s:s, s:i, s:f, s:b, s:n, s:[s,s], s:[], s:{s:i}, s:[{s:s,s:i},{s:s}]}", "state",
			      "running", "heap_bytes", 1048576, "uptime_seconds", 3661.0, "draining", 0, "nothing",
			      "services", "ping", "kv", "errors", "store", "used_bytes", 5, "peers", "address",
			      "10.0.0.1:7", "idle_us", 12, "address", "b");
	char *out = written(write_json, o);

	ck_assert_str_eq(out, "state       running\n"
			      "heap bytes  1.00 MiB\n"
			      "uptime      1:01:01\n"
			      "draining    no\n"
			      "nothing     -\n"
			      "services: ping, kv\n"
			      "errors: none\n"
			      "store:\n"
			      "  used bytes  5 B\n"
			      "peers:\n"
			      "  address        idle\n"
			      "  10.0.0.1:7  12.0 us\n"
			      "  b                 -\n");
	free(out);
	json_decref(o);
}
END_TEST

START_TEST(test_json_bytes)
{
	json_t *o = json_object();
	char *text64;

	ck_assert_int_eq(ctl_json_set_bytes(o, "a", "text\0more", 9), 0);
	ck_assert_uint_eq(json_string_length(json_object_get(o, "a")), 9);
	ck_assert_int_eq(ctl_json_set_bytes(o, "b", "\xff\xfe", 2), 0);
	ck_assert_ptr_null(json_object_get(o, "b"));
	ck_assert_str_eq(json_string_value(json_object_get(o, "b_base64")), "//4=");
	ck_assert_int_eq(ctl_json_set_bytes(o, "c", "", 0), 0);
	ck_assert_str_eq(json_string_value(json_object_get(o, "c")), "");
	json_decref(o);
	text64 = ctl_base64("foobar", 6); /* RFC 4648, section 10 */
	ck_assert_str_eq(text64, "Zm9vYmFy");
	free(text64);
	text64 = ctl_base64("foob", 4);
	ck_assert_str_eq(text64, "Zm9vYg==");
	free(text64);
}
END_TEST

START_TEST(test_base64_decode)
{
	static const char *const bad[] = {
		"A", "AA", "AAA", "AA=A", "A===", "====", "AB==", "AAB=", "AA A", "AAAA====", "AA==AAAA"};
	uint8_t bytes[256];
	char *coded, *decoded;
	size_t len;

	for (int i = 0; i < 256; i++)
		bytes[i] = (uint8_t)(255 - i);
	for (size_t n = 0; n <= 256; n++) {
		coded = ctl_base64(bytes, n);
		decoded = ctl_base64_decode(coded, strlen(coded), &len);
		ck_assert_uint_eq(len, n);
		ck_assert_mem_eq(decoded, bytes, n);
		free(coded);
		free(decoded);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_msg(!ctl_base64_decode(bad[i], strlen(bad[i]), &len), "%s", bad[i]);
}
END_TEST

/* Nasty keys and values, times to live, and one value that is larger than the reader's buffer. */
static void write_records(FILE *out, enum record_format format, const char *large, size_t large_len)
{
	static const struct record some[] = {{.key = "plain", .key_len = 5, .value = "text", .value_len = 4},
					     {.key = "\0\xff\n\"", .key_len = 4, .value = "", .ttl_us = 1},
					     {.key = "n\0l", .key_len = 3, .value = "\0", .value_len = 1}};
	struct record record = {.key = "large", .key_len = 5, .value = large, .value_len = large_len, .ttl_us = 5};

	ck_assert_int_eq(record_begin(out, format), 0);
	for (size_t i = 0; i < ARRAY_SIZE(some); i++)
		ck_assert_int_eq(record_write(out, format, &some[i]), 0);
	ck_assert_int_eq(record_write(out, format, &record), 0);
	ck_assert_int_eq(record_end(out, format, ARRAY_SIZE(some) + 1), 0);
	fflush(out);
	rewind(out);
}

static int next_record(struct script_reader *reader, enum record_format format, uint64_t count, struct record *record)
{
	const char *line;
	size_t len;
	int rc;

	if (format == RECORD_BINARY)
		return record_read(reader, count, MIB, record);
	rc = script_read(reader, &line, &len);
	if (rc == 1)
		ck_assert_ptr_null(record_parse(line, len, record));
	if (rc == 1 && record->end) {
		ck_assert_uint_eq(record->count, count);
		record_release(record);
		return 0;
	}
	return rc;
}

START_TEST(test_records)
{
	static char large[300000];
	uint64_t state = 1;

	script_random_text(large, sizeof(large), &state);
	large[7] = '\xfe'; /* no UTF-8 */
	for (int format = RECORD_JSON; format <= RECORD_BINARY; format++) {
		FILE *file = tmpfile();
		struct script_reader reader = {.fd = fileno(file)};
		struct record r;

		write_records(file, (enum record_format)format, large, sizeof(large));
		if (format == RECORD_BINARY)
			ck_assert_int_eq(script_skip(&reader, RECORD_MAGIC_LEN), 0);
		ck_assert_int_eq(next_record(&reader, (enum record_format)format, 0, &r), 1);
		assert_bytes(r.key, r.key_len, "plain");
		assert_bytes(r.value, r.value_len, "text");
		ck_assert_uint_eq(r.ttl_us, 0);
		record_release(&r);
		ck_assert_int_eq(next_record(&reader, (enum record_format)format, 1, &r), 1);
		ck_assert_uint_eq(r.key_len, 4);
		ck_assert_mem_eq(r.key, "\0\xff\n\"", 4);
		ck_assert_uint_eq(r.value_len, 0);
		ck_assert_uint_eq(r.ttl_us, 1);
		record_release(&r);
		ck_assert_int_eq(next_record(&reader, (enum record_format)format, 2, &r), 1);
		ck_assert_mem_eq(r.key, "n\0l", 3);
		ck_assert_uint_eq(r.value_len, 1);
		record_release(&r);
		ck_assert_int_eq(next_record(&reader, (enum record_format)format, 3, &r), 1);
		ck_assert_uint_eq(r.value_len, sizeof(large));
		ck_assert_mem_eq(r.value, large, sizeof(large));
		ck_assert_uint_eq(r.ttl_us, 5);
		record_release(&r);
		ck_assert_int_eq(next_record(&reader, (enum record_format)format, 4, &r), 0);
		script_reader_destroy(&reader);
		fclose(file);
	}
}
END_TEST

/* Cut off anywhere, it is known to be cut off; a value that is too large is passed over. */
START_TEST(test_bad_records)
{
	static const char *const bad[] = {"",
					  "1",
					  "[]",
					  "{}",
					  "{\"key\":1,\"value\":\"\"}",
					  "{\"key\":\"a\"}",
					  "{\"key\":\"a\",\"value\":\"\",\"key\":\"b\"}",
					  "{\"key\":\"a\",\"value\":\"\",\"value_base64\":\"\"}",
					  "{\"key\":\"\",\"value\":\"\"}",
					  "{\"key\":\"a\",\"value\":\"\",\"ttl_us\":0}",
					  "{\"key\":\"a\",\"value\":\"\",\"ttl_us\":1.5}"};
	FILE *file = tmpfile();
	struct script_reader reader = {.fd = fileno(file)};
	struct record r;
	int rc = 1;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_msg(record_parse(bad[i], strlen(bad[i]), &r), "%s", bad[i]);
	write_records(file, RECORD_BINARY, "1234567890", 10);
	ck_assert_int_eq(script_skip(&reader, RECORD_MAGIC_LEN), 0);
	for (uint64_t i = 0; i < 3; i++)
		ck_assert_int_eq(record_read(&reader, i, 9, &r), 1);
	ck_assert_int_eq(record_read(&reader, 3, 9, &r), -EMSGSIZE);
	ck_assert_int_eq(record_read(&reader, 4, 9, &r), 0);
	script_reader_destroy(&reader);
	for (off_t cut = lseek(reader.fd = fileno(file), 0, SEEK_END) - 1; cut > 8; cut--) {
		ck_assert_int_eq(ftruncate(reader.fd, cut), 0);
		lseek(reader.fd, 8, SEEK_SET);
		for (uint64_t i = 0; (rc = record_read(&reader, i, MIB, &r)) == 1; i++)
			;
		ck_assert_int_eq(rc, -EPROTO);
		script_reader_destroy(&reader);
		reader.fd = fileno(file);
	}
	fclose(file);
}
END_TEST

START_TEST(test_exit_statuses)
{
	ck_assert_int_eq(ctl_exit_of(0), 0);
	ck_assert_int_eq(ctl_exit_of(-EMSGSIZE), 1);
	ck_assert_int_eq(ctl_exit_of(-ECONNREFUSED), 3);
	ck_assert_int_eq(ctl_exit_of(-ENOENT), 4);
	ck_assert_int_eq(ctl_exit_of(-ETIMEDOUT), 5);
	ck_assert_int_eq(ctl_exit_of(-EPROTONOSUPPORT), 7);
}
END_TEST

START_TEST(test_crossover)
{
	static const uint64_t sizes[] = {1, 2, 4, 8, 16};
	static const double eager[] = {9, 9, 9, 9, 0}, never[] = {1, 2, 3, 4, 5}, from4[] = {10, 1, 9, 10, 5};

	ck_assert_uint_eq(bench_crossover(sizes, eager, never, 5), 0);
	ck_assert_uint_eq(bench_crossover(sizes, eager, from4, 5), 4);
	ck_assert_uint_eq(bench_crossover(sizes, never, eager, 5), 1);
	ck_assert_uint_eq(bench_crossover(sizes, eager, never, 0), 0);
}
END_TEST

static void write_plot(FILE *out, void *arg)
{
	plot_text(out, "title", arg, 2);
}

START_TEST(test_plot)
{
	struct plot_curve curves[2] = {{.name = "up", .mark = 'u', .n = 3, .x = {1, 32, 1024}, .y = {1, 10, 100}},
				       {.name = "point", .mark = 'p', .n = 1, .x = {1024}, .y = {100}}};
	char *out = written(write_plot, curves), *line;

	ck_assert_ptr_nonnull(strstr(out, "title\n"));
	line = strstr(out, "       100 |");
	ck_assert_ptr_nonnull(line);
	ck_assert_uint_eq(strcspn(line, "\n"), 12 + 64);
	ck_assert_int_eq(line[12 + 63], '*');
	line = strstr(out, "         1 |u\n");
	ck_assert_ptr_nonnull(line);
	ck_assert_ptr_nonnull(strstr(out, "u up, p point"));
	ck_assert_ptr_null(strstr(out, " \n"));
	ck_assert_ptr_nonnull(strstr(out, "\n        10 |"));
	ck_assert_ptr_nonnull(strstr(out, "\n           1       ")); /* as the sizes are given */
	ck_assert_ptr_nonnull(strstr(out, " 1K bytes\n"));
	free(out);
	/* The axis of the rates ends at round numbers, and no label is another kind of number. */
	curves[0] = (struct plot_curve){.name = "up", .mark = 'u', .n = 3, .x = {1, 32, 1024}, .y = {7.983, 62, 8536}};
	curves[1].n = 0;
	out = written(write_plot, curves);
	ck_assert_ptr_nonnull(strstr(out, "title\n     10000 |"));
	ck_assert_ptr_nonnull(strstr(out, "\n      1000 |"));
	ck_assert_ptr_nonnull(strstr(out, "\n       100 |"));
	ck_assert_ptr_nonnull(strstr(out, "\n         5 |\n"));
	free(out);
	curves[0].n = curves[1].n = 0;
	out = written(write_plot, curves);
	ck_assert_str_eq(out, "");
	free(out);
}
END_TEST

static void write_completion(FILE *out, void *arg)
{
	ck_assert(ctl_completion_write(out, arg));
}

/* Update with: make completions */
START_TEST(test_completion_is_current)
{
	static const char *const shells[] = {"bash", "zsh", "fish"};

	for (size_t i = 0; i < ARRAY_SIZE(shells); i++) {
		char path[64], *current = written(write_completion, (void *)(uintptr_t)shells[i]), *file;

		snprintf(path, sizeof(path), "etc/rdmactl.%s-completion", shells[i]);
		file = suite_source(path);
		ck_assert_msg(strcmp(file, current) == 0, "%s is not current: make completions", path);
		free(current);
		free(file);
	}
	ck_assert(!ctl_completion_write(stdout, "csh"));
}
END_TEST

static void assert_option_told(const char *page, const struct ctl_option *o)
{
	char words[128];

	for (; o && o->name; o++) {
		snprintf(words, sizeof(words), "Fl \\-%s", o->name);
		ck_assert_msg(strstr(page, words), "the manual lacks %s", words);
		snprintf(words, sizeof(words), "Fl %c", o->letter ? o->letter : '\\');
		ck_assert_msg(strstr(page, words), "the manual lacks %s", words);
	}
}

/* Whether a line ".Ss NAME ... , NAME ..." of the page, whose lines begin with it, has this command. */
static bool in_heading(const char *page, const char *name)
{
	size_t len = strlen(name);

	for (const char *line = strstr(page, "\n.Ss "); line; line = strstr(line + 1, "\n.Ss ")) {
		const char *end = strchr(line + 1, '\n');

		for (const char *at = line + 5; (at = strstr(at, name)) && at < end; at++)
			if ((at == line + 5 || strncmp(at - 2, ", ", 2) == 0) && strchr(" \n", at[len]))
				return true;
	}
	return false;
}

/* Whether a heading, which begins at `line`, is of a command: a small letter begins it, as no other heading. */
static bool is_command(const char *line)
{
	const struct ctl_command *c;

	for (unsigned n = 0; (c = ctl_command_at(n)); n++)
		if (strncmp(line, c->name, strlen(c->name)) == 0 && strchr(" \n", line[strlen(c->name)]))
			return true;
	return *line < 'a' || *line > 'z';
}

/* Whether each command of a heading stands for itself: a macro takes all words behind it, brackets too, unless Sy ends it. */
static bool stand_alone(const char *line)
{
	const char *end = strchr(line, '\n'), *from = line;

	for (const char *at = line; (at = strstr(at, " , ")) && at < end; at++) {
		const char *macro = strstr(from, " Ar ");

		if (strncmp(at - 3, " Sy", 3) == 0)
			from = at;
		else if (macro && macro < at)
			return false;
	}
	return true;
}

START_TEST(test_manual_is_complete)
{
	char *page = suite_source("man/rdmactl.1");
	const struct ctl_command *c;

	assert_option_told(page, ctl_globals);
	for (unsigned n = 0; (c = ctl_command_at(n)); n++) {
		ck_assert_msg(in_heading(page, c->name), "the manual has no section of %s", c->name);
		assert_option_told(page, c->options);
	}
	for (const char *line = strstr(page, "\n.Ss "); line; line = strstr(line + 1, "\n.Ss ")) {
		ck_assert_msg(is_command(line + 5), "the manual has no such command: %.20s", line + 5);
		ck_assert_msg(stand_alone(line + 5), "a heading whose commands run into each other: %.20s", line + 5);
	}
	free(page);
}
END_TEST

/* One letter means one thing within a command, and nothing else among the options of all. */
START_TEST(test_letters_are_unique)
{
	const struct ctl_command *c;

	for (unsigned n = 0; (c = ctl_command_at(n)); n++) {
		char seen[256] = {0};

		for (const struct ctl_option *o = ctl_globals; o->name; o++)
			ck_assert(!o->letter || !seen[(unsigned char)o->letter]++);
		for (const struct ctl_option *o = c->options; o && o->name; o++)
			ck_assert_msg(!o->letter || !seen[(unsigned char)o->letter]++, "%s -%c", c->name, o->letter);
	}
}
END_TEST

/* A program's message may be longer than rdmactl takes. The other process is rdmactl; it begins when this one listens. */
START_TEST(test_message_too_long)
{
	enum { TOO_LONG = 64 * 1024 * 1024 + 1, BEHIND = 50 };
	const char *argv[] = {"peer", "recv", "-c", NULL, "-f", "/dev/null"};
	char directory[] = "/tmp/check-ctl.XXXXXX", address[64], *message;
	rdma_options options = {.max_peers = 1, .timeout_ms = 60000};
	rdma_context *ctx;
	int ready[2], status;
	pid_t child;

	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(address, sizeof(address), "unix://%s/peer.sock", directory);
	argv[3] = address;
	ck_assert_int_eq(pipe(ready), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		close(ready[1]);
		status = read(ready[0], &(char){0}, 1) == 1 ? ctl_run((int)ARRAY_SIZE(argv), argv) : 0;
		_exit(BEHIND + status); /* not as a sanitizer ends it */
	}
	ctx = rdma_init_options(address, 0, true, &options);
	ck_assert_msg(ctx != NULL, "%s", rdma_get_error());
	ck_assert_int_eq(write(ready[1], "", 1), 1);
	ck_assert_int_eq(rdma_accept_peer(ctx), 0);
	ck_assert_int_ge(rdma_send(ctx, 0, "short", 5), 0);
	message = calloc(1, TOO_LONG);
	ck_assert_ptr_nonnull(message);
	ck_assert_int_lt(rdma_send(ctx, 0, message, TOO_LONG), 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == BEHIND + CTL_FAILED, "%x", (unsigned)status);
	free(message);
	rdma_cleanup(ctx);
	rmdir(directory);
}
END_TEST

static const struct {
	const char *gids[2];
	const char *finding; /* the port that the way ends at; NULL: neither */
} ways[] = {
	{{"::ffff:10.0.0.2", "::ffff:10.0.0.1"}, "mlx5_1 of far is down"},
	{{"::ffff:10.0.0.2", "::ffff:10.0.0.12,::ffff:10.0.0.1"}, "mlx5_1 of far is down"},
	{{"::ffff:10.0.0.1,::ffff:10.0.0.12", "::ffff:10.0.0.2"}, "mlx5_0 of far is down"},
	{{"1::ffff:10.0.0.1", ",,::ffff:10.0.0.12,"}, NULL},
	{{"", ""}, NULL},
};

/* Of two ports there the one that has the GID at the end of the way. */
START_TEST(test_doctor_way)
{
	const struct cm_way way = {.to_gid = "::ffff:10.0.0.1"};
	struct doctor d = {.wants_rdma = true, .check = "D41"};

	d.there = json_pack("{s:s, s:[{s:s, s:s, s:s}, {s:s, s:s, s:s}]}", "version", rdmad_version(), "ports",
			    "device", "mlx5_0", "state", "down", "gids", ways[_i].gids[0], "device", "mlx5_1", "state",
			    "down", "gids", ways[_i].gids[1]);
	there_judge(&d, "far", &way);
	ck_assert_uint_eq(d.findings, ways[_i].finding ? 1 : 0);
	if (ways[_i].finding)
		ck_assert_str_eq(d.finding[0].figures, ways[_i].finding);
	for (size_t i = 0; i < d.findings; i++) {
		free(d.finding[i].figures);
		free(d.finding[i].mend);
	}
	free(d.finding);
	json_decref(d.there);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ctl");
	TCase *tcase = suite_case(suite, "ctl", NULL, NULL);

	tcase_add_test(tcase, test_script_lines);
	tcase_add_test(tcase, test_script_bad_lines);
	tcase_add_test(tcase, test_script_binary_value);
	tcase_add_test(tcase, test_script_random_text);
	tcase_add_test(tcase, test_script_reader);
	tcase_add_test(tcase, test_sizes);
	tcase_add_test(tcase, test_options);
	tcase_add_test(tcase, test_bad_options);
	tcase_add_test(tcase, test_commands_found);
	tcase_add_test(tcase, test_table);
	tcase_add_test(tcase, test_render);
	tcase_add_test(tcase, test_json_bytes);
	tcase_add_test(tcase, test_base64_decode);
	tcase_add_test(tcase, test_records);
	tcase_add_test(tcase, test_bad_records);
	tcase_add_test(tcase, test_exit_statuses);
	tcase_add_test(tcase, test_crossover);
	tcase_add_test(tcase, test_plot);
	tcase_add_test(tcase, test_completion_is_current);
	tcase_add_test(tcase, test_manual_is_complete);
	tcase_add_test(tcase, test_letters_are_unique);
	tcase_add_test(tcase, test_message_too_long);
	tcase_add_loop_test(tcase, test_doctor_way, 0, ARRAY_SIZE(ways));
	return suite_run(suite);
}
