/* record.c: a file for "rdmactl kv import", JSON lines or binary. A record that was taken is written in both formats, and
 * read again as the same. */
#include "ctl/ctl.h"
#include "fuzz.h"

#define VALUE_MAX 1024 /* a longer one in the binary format is skipped */

/* Of exactly these bytes, so that a read beyond them is seen. */
static struct script_reader reader_of(const void *data, size_t size)
{
	struct script_reader reader = {
		.fd = -1, .buffer = malloc(size ? size : 1), .end = size, .room = size, .eof = true};

	REQUIRE(reader.buffer);
	memcpy(reader.buffer, data, size);
	return reader;
}

/* As record_read(); 1 may also be a line that is wrong, in *wrong; a line that is the end mark is the end. */
static int next(struct script_reader *reader, enum record_format format, uint64_t count, struct record *record,
		const char **wrong)
{
	const char *line;
	size_t len;
	int rc;

	*wrong = NULL;
	if (format == RECORD_BINARY)
		return record_read(reader, count, VALUE_MAX, record);
	rc = script_read(reader, &line, &len);
	if (rc == 1)
		*wrong = record_parse(line, len, record);
	if (rc != 1 || *wrong || !record->end)
		return rc;
	record_release(record);
	return 0;
}

static void same(const struct record *a, const struct record *b)
{
	REQUIRE(a->key_len == b->key_len && memcmp(a->key, b->key, a->key_len) == 0);
	REQUIRE(a->value_len == b->value_len && memcmp(a->value, b->value, a->value_len) == 0);
	REQUIRE(a->ttl_us == b->ttl_us);
}

static void write_and_read(const struct record *record, enum record_format format)
{
	size_t size = 0, skip = format == RECORD_BINARY ? RECORD_MAGIC_LEN : 0;
	char *text = NULL;
	FILE *out = open_memstream(&text, &size);
	struct script_reader reader;
	struct record again;
	const char *wrong;

	REQUIRE(out && record_begin(out, format) == 0 && record_write(out, format, record) == 0 &&
		record_end(out, format, 1) == 0 && fclose(out) == 0);
	REQUIRE(record_magic(text, size) == (format == RECORD_BINARY));
	reader = reader_of(text, size);
	REQUIRE(script_skip(&reader, skip) == 0);
	if (format == RECORD_JSON || record->value_len <= VALUE_MAX) {
		REQUIRE(next(&reader, format, 0, &again, &wrong) == 1 && !wrong);
		same(record, &again);
		record_release(&again);
	} else {
		REQUIRE(next(&reader, format, 0, &again, &wrong) == -EMSGSIZE);
	}
	REQUIRE(next(&reader, format, 1, &again, &wrong) == 0);
	script_reader_destroy(&reader);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script_reader reader = reader_of(data, size);
	enum record_format format = record_magic(data, size) ? RECORD_BINARY : RECORD_JSON;
	struct record record;
	const char *wrong;
	int rc = format == RECORD_BINARY ? script_skip(&reader, RECORD_MAGIC_LEN) : 0;

	REQUIRE(rc == 0);
	for (uint64_t count = 0; (rc = next(&reader, format, count, &record, &wrong)) == 1 || rc == -EMSGSIZE;
	     count++) {
		if (rc != 1 || wrong)
			continue;
		REQUIRE(record.key_len >= 1 && record.key_len < 4096);
		write_and_read(&record, RECORD_JSON);
		write_and_read(&record, RECORD_BINARY);
		record_release(&record);
	}
	REQUIRE(rc == 0 || (format == RECORD_BINARY && rc == -EPROTO));
	script_reader_destroy(&reader);
	return 0;
}
