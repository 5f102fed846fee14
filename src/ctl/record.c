/*
 * record.c: exported keys: a JSON object on each line, or a compact binary form. No network. See rdmactl(1) for both.
 */
#include "ctl/ctl.h"
#include "wire/wire.h"

#include <stdlib.h>

#define MAGIC "RDMADKV1"
#define MAGIC_LEN 8u
#define HEAD 20u /* key length, value length, time to live */
#define KEY_MAX 4095u

_Static_assert(MAGIC_LEN == RECORD_MAGIC_LEN, "as promised");

void record_release(struct record *record)
{
	json_decref(record->json);
	free(record->owned[0]);
	free(record->owned[1]);
	memset(record, 0, sizeof(*record));
}

/*
 * JSON lines.
 */

/* "NAME", or "NAME_base64" decoded into *owned. NULL, or what is wrong. */
static const char *parse_bytes(json_t *object, const char *name, const void **data, size_t *len, char **owned)
{
	const json_t *plain = json_object_get(object, name), *coded;
	char member[32];

	snprintf(member, sizeof(member), "%s_base64", name);
	coded = json_object_get(object, member);
	if (json_is_string(plain) && !coded) {
		*data = json_string_value(plain);
		*len = json_string_length(plain);
		return NULL;
	}
	if (!json_is_string(coded) || plain)
		return "it needs a key and a value, each as a string or in base64";
	*owned = ctl_base64_decode(json_string_value(coded), json_string_length(coded), len);
	*data = *owned;
	return *owned ? NULL : "that is not base64";
}

const char *record_parse(const char *line, size_t len, struct record *record)
{
	const char *wrong;
	const json_t *ttl;
	json_error_t error;

	memset(record, 0, sizeof(*record));
	record->json = json_loadb(line, len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
	if (!json_is_object(record->json)) {
		record_release(record);
		return "it is no JSON object";
	}
	if (json_is_true(json_object_get(record->json, "end"))) {
		record->end = true;
		record->count = (uint64_t)json_integer_value(json_object_get(record->json, "keys"));
		return NULL;
	}
	wrong = parse_bytes(record->json, "key", &record->key, &record->key_len, &record->owned[0]);
	if (!wrong)
		wrong = parse_bytes(record->json, "value", &record->value, &record->value_len, &record->owned[1]);
	ttl = json_object_get(record->json, "ttl_us");
	if (!wrong && json_is_integer(ttl) && json_integer_value(ttl) > 0)
		record->ttl_us = (uint64_t)json_integer_value(ttl);
	else if (!wrong && ttl && !json_is_null(ttl))
		wrong = "ttl_us is not a number over 0";
	if (!wrong && (!record->key_len || record->key_len > KEY_MAX))
		wrong = "a key has 1 to 4095 bytes";
	if (wrong)
		record_release(record);
	return wrong;
}

/* Why a write to a stream failed. */
static int stream_error(void)
{
	return errno ? -errno : -EIO;
}

static int write_json(FILE *out, const struct record *record)
{
	json_t *o = json_object();
	int rc = -ENOMEM;

	if (o && ctl_json_set_bytes(o, "key", record->key, record->key_len) == 0 &&
	    ctl_json_set_bytes(o, "value", record->value, record->value_len) == 0) {
		if (record->ttl_us)
			json_object_set_new(o, "ttl_us", json_integer((json_int_t)record->ttl_us));
		rc = ctl_put_json(out, o) == 0 && putc('\n', out) != EOF ? 0 : stream_error();
	}
	json_decref(o);
	return rc;
}

/*
 * Binary: the magic number, then records, then a head without a key, whose length of the value is the number of
 * records: so a missing end is noticed.
 */
static int write_head(FILE *out, size_t key_len, uint64_t value_len, uint64_t ttl_us)
{
	uint8_t head[HEAD];
	struct wire_cursor c;

	wire_cursor_init(&c, head, sizeof(head));
	wire_put32(&c, (uint32_t)key_len);
	wire_put64(&c, value_len);
	wire_put64(&c, ttl_us);
	return fwrite(head, 1, sizeof(head), out) == sizeof(head) ? 0 : stream_error();
}

static int write_binary(FILE *out, const struct record *record)
{
	int rc = write_head(out, record->key_len, record->value_len, record->ttl_us);

	if (rc == 0 && (fwrite(record->key, 1, record->key_len, out) != record->key_len ||
			fwrite(record->value, 1, record->value_len, out) != record->value_len))
		rc = stream_error();
	return rc;
}

static int begin_binary(FILE *out)
{
	return fwrite(MAGIC, 1, MAGIC_LEN, out) == MAGIC_LEN ? 0 : stream_error();
}

static int end_binary(FILE *out, uint64_t count)
{
	return write_head(out, 0, count, 0);
}

static int begin_json(FILE *out)
{
	(void)out;
	return 0;
}

static int end_json(FILE *out, uint64_t count)
{
	return fprintf(out, "{\"end\":true,\"keys\":%llu}\n", (unsigned long long)count) < 0 ? stream_error() : 0;
}

static const struct format {
	const char *name;
	int (*begin)(FILE *out);
	int (*write)(FILE *out, const struct record *record);
	int (*end)(FILE *out, uint64_t count);
} formats[] = {
	[RECORD_JSON] = {"json", begin_json, write_json, end_json},
	[RECORD_BINARY] = {"binary", begin_binary, write_binary, end_binary},
};

int record_format(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++)
		if (strcmp(formats[i].name, name) == 0)
			return (int)i;
	return -EINVAL;
}

int record_begin(FILE *out, enum record_format format)
{
	return formats[format].begin(out);
}

int record_write(FILE *out, enum record_format format, const struct record *record)
{
	return formats[format].write(out, record);
}

int record_end(FILE *out, enum record_format format, uint64_t count)
{
	return formats[format].end(out, count);
}

bool record_magic(const void *data, size_t len)
{
	return len >= MAGIC_LEN && memcmp(data, MAGIC, MAGIC_LEN) == 0;
}

/* 1: a record; 0: the end; -EPROTO: nothing can be read from here on. */
static int parse_head(const void *data, uint64_t count, struct record *record)
{
	struct wire_cursor c;

	wire_cursor_init(&c, (void *)data, HEAD);
	record->key_len = wire_get32(&c);
	record->value_len = wire_get64(&c);
	record->ttl_us = wire_get64(&c);
	if (!record->key_len)
		return record->value_len == count && !record->ttl_us ? 0 : -EPROTO;
	if (record->key_len > KEY_MAX || record->value_len > INT64_MAX - HEAD - KEY_MAX || record->ttl_us > INT64_MAX)
		return -EPROTO; /* also what JSON could not say */
	return 1;
}

int record_read(struct script_reader *reader, uint64_t count, uint64_t value_max, struct record *record)
{
	const char *data;
	size_t have, all;
	int rc = script_peek(reader, HEAD, &data, &have);

	memset(record, 0, sizeof(*record));
	if (rc == 0)
		rc = have < HEAD ? -EPROTO : parse_head(data, count, record);
	if (rc <= 0)
		return rc == 0 ? script_skip(reader, HEAD) : rc;
	all = HEAD + record->key_len + record->value_len;
	if (record->value_len > value_max) {
		rc = script_skip(reader, all);
		return rc ? rc : -EMSGSIZE;
	}
	rc = script_peek(reader, all, &data, &have);
	if (rc != 0 || have < all)
		return rc ? rc : -EPROTO;
	record->key = data + HEAD;
	record->value = data + HEAD + record->key_len;
	return (int)(script_skip(reader, all) == 0);
}
