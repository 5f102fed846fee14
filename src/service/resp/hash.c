/*
 * hash.c: commands on hashes. A hash is one value of the type STORE_HASH, of HASH_MAX bytes at most: its fields in the
 * order in which they came, each as two lengths of 16 bits, the name, the value. So it is read, evicted, kept in the
 * log and changed as a whole, like any value, and a change is a step of the view: read, and write another one.
 *
 * Names are looked for one after the other. A command with many of them has an index, so that it takes no longer than
 * its bytes.
 */
#include "service/resp/keys.h"

#include <stdlib.h>

#define HASH_MAX 65536u
#define INDEX_FROM 8u               /* names of a command that has an index */
#define FIELDS_KEPT (HASH_MAX / 4)  /* that a thread keeps memory for: the most of a hash */
#define LISTPACK_FIELDS 512u        /* up to which Redis has a listpack ... */
#define LISTPACK_BYTES 64u          /* ... if none is longer */
#define RANDOM_MOST (HASH_MAX * 16) /* fields that HRANDFIELD returns */

struct slice {
	const char *at;
	uint32_t len;
};

struct field {
	struct slice name, value;
	bool gone;
};

/* The fields of the hash that is changed, in the thread's memory. */
struct resp_fields {
	struct field *at;
	uint32_t count, room, left; /* `left` are not gone */
	uint64_t expires;
	uint32_t flags;
	uint32_t *slot; /* places in `at`, + 1; 0: empty */
	uint32_t slots; /* a power of two; 0: there is no index */
	uint32_t slot_room;
};

/* The memory of a command with very many names is not kept. */
static void fields_trim(struct resp_fields *fields, uint32_t kept)
{
	if (fields->room > kept) {
		free(fields->at);
		fields->at = NULL;
		fields->room = 0;
	}
	if (fields->slot_room > 4 * kept) {
		free(fields->slot);
		fields->slot = NULL;
		fields->slot_room = 0;
	}
}

void resp_fields_free(struct resp_thread *thread)
{
	if (thread->fields)
		fields_trim(thread->fields, 0);
	free(thread->fields);
}

/*
 * Reading
 */

/* The field at *at, behind which that is moved. 0: there is none; -EIO: the bytes are no hash. */
static int field_next(const struct resp_value *hash, size_t *at, struct field *out)
{
	uint16_t len[2];

	if (*at == hash->len)
		return 0;
	if (hash->len - *at < sizeof(len))
		return -EIO;
	memcpy(len, hash->at + *at, sizeof(len));
	*at += sizeof(len);
	if (hash->len - *at < (size_t)len[0] + len[1])
		return -EIO;
	*out = (struct field){{hash->at + *at, len[0]}, {hash->at + *at + len[0], len[1]}, false};
	*at += (size_t)len[0] + len[1];
	return 1;
}

/* 1 there, 0 not, -errno; -EMEDIUMTYPE: it is no hash. One that is not there has no bytes. */
static int hash_get(struct resp_client *c, const struct resp_arg *key, struct resp_value *out)
{
	int rc = resp_view_get_any(c, key, out);

	if (rc == 0)
		*out = (struct resp_value){.at = ""};
	return rc == 1 && out->type != STORE_HASH ? -EMEDIUMTYPE : rc;
}

static bool is_name(const struct field *field, const struct resp_arg *name)
{
	return field->name.len == name->len && memcmp(field->name.at, name->at, name->len) == 0;
}

/* 1: *out, 0: there is no such field. */
static int field_find(const struct resp_value *hash, const struct resp_arg *name, struct field *out)
{
	size_t at = 0;
	int rc;

	while ((rc = field_next(hash, &at, out)) == 1)
		if (is_name(out, name))
			return 1;
	return rc;
}

static int field_get(struct resp_client *c, const struct resp_arg *argv, struct field *out)
{
	struct resp_value hash;
	int rc = hash_get(c, &argv[1], &hash);

	return rc == 1 ? field_find(&hash, &argv[2], out) : rc;
}

static int64_t fields_count(const struct resp_value *hash)
{
	struct field field;
	int64_t n = 0;

	for (size_t at = 0; field_next(hash, &at, &field) == 1;)
		n++;
	return n;
}

bool resp_hash_is_small(const struct resp_value *value)
{
	struct field field;
	unsigned n = 0;

	for (size_t at = 0; field_next(value, &at, &field) == 1;)
		if (++n > LISTPACK_FIELDS || field.name.len > LISTPACK_BYTES || field.value.len > LISTPACK_BYTES)
			return false;
	return true;
}

static void slice_reply(struct resp_client *c, const struct slice *slice)
{
	resp_bulk(c->out, slice->at, slice->len);
}

int resp_do_hget(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct field field;
	int rc = field_get(c, argv, &field);

	if (rc < 0)
		return rc;
	if (rc)
		slice_reply(c, &field.value);
	else
		resp_null(c->out);
	return 0;
}

static int tell_field(struct resp_client *c, const struct resp_arg *argv, bool length)
{
	struct field field;
	int rc = field_get(c, argv, &field);

	if (rc < 0)
		return rc;
	resp_number(c->out, rc && length ? (int64_t)field.value.len : rc);
	return 0;
}

int resp_do_hexists(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return tell_field(c, argv, false);
}

int resp_do_hstrlen(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return tell_field(c, argv, true);
}

int resp_do_hlen(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_value hash;
	int rc = hash_get(c, &argv[1], &hash);

	if (rc < 0)
		return rc;
	resp_number(c->out, fields_count(&hash));
	return 0;
}

static int tell_all(struct resp_client *c, const struct resp_arg *key, bool names, bool values)
{
	struct resp_value hash;
	struct field field;
	size_t at = 0;
	int rc = hash_get(c, key, &hash);

	if (rc < 0)
		return rc;
	if (names && values)
		resp_map(c->out, (size_t)fields_count(&hash));
	else
		resp_array(c->out, (size_t)fields_count(&hash));
	while ((rc = field_next(&hash, &at, &field)) == 1) {
		if (names)
			slice_reply(c, &field.name);
		if (values)
			slice_reply(c, &field.value);
	}
	return rc;
}

int resp_do_hgetall(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return tell_all(c, &argv[1], true, true);
}

int resp_do_hkeys(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return tell_all(c, &argv[1], true, false);
}

int resp_do_hvals(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return tell_all(c, &argv[1], false, true);
}

/*
 * The fields, to be changed or looked for many times
 */
static bool fields_grow(struct resp_fields *fields)
{
	uint32_t room = fields->room ? 2 * fields->room : 64;
	struct field *at = realloc(fields->at, room * sizeof(*at));

	if (!at)
		return false;
	fields->at = at;
	fields->room = room;
	return true;
}

static uint32_t *slot_of(struct resp_client *c, const struct resp_fields *fields, const struct resp_arg *name)
{
	uint32_t at = (uint32_t)store_hash(c->thread->store, name->at, name->len) & (fields->slots - 1);

	while (fields->slot[at] && !is_name(&fields->at[fields->slot[at] - 1], name))
		at = (at + 1) & (fields->slots - 1);
	return &fields->slot[at];
}

static int fields_add(struct resp_client *c, struct resp_fields *fields, const struct slice *name,
		      const struct slice *value)
{
	if (fields->count == fields->room && !fields_grow(fields))
		return -ENOMEM;
	fields->at[fields->count++] = (struct field){*name, *value, false};
	fields->left++;
	if (fields->slots)
		*slot_of(c, fields, &(struct resp_arg){name->at, name->len}) = fields->count;
	return 0;
}

/* NULL: there is no such field, or none any more. */
static struct field *fields_find(struct resp_client *c, const struct resp_fields *fields, const struct resp_arg *name)
{
	struct field *field = NULL;
	uint32_t at = 0;

	if (fields->slots) {
		at = *slot_of(c, fields, name);
		field = at ? &fields->at[at - 1] : NULL;
	} else {
		while (at < fields->count && !is_name(&fields->at[at], name))
			at++;
		field = at < fields->count ? &fields->at[at] : NULL;
	}
	return field;
}

/* An index for so many fields. */
static bool fields_index(struct resp_fields *fields, uint32_t most)
{
	uint32_t slots = 64, *slot = fields->slot;

	while (slots < 2 * most)
		slots *= 2;
	if (slots > fields->slot_room) {
		slot = realloc(slot, slots * sizeof(*slot));
		if (!slot)
			return false;
		fields->slot = slot;
		fields->slot_room = slots;
	}
	memset(slot, 0, slots * sizeof(*slot));
	fields->slots = slots;
	return true;
}

/* As many names as the command has; with an index it may add as many. 1 there, 0 not, -errno. */
static int fields_load(struct resp_client *c, const struct resp_arg *key, unsigned names, struct resp_fields **out)
{
	struct resp_fields *fields = c->thread->fields;
	struct resp_value hash;
	struct field field;
	size_t at = 0;
	int found = hash_get(c, key, &hash), rc = 0;

	if (found < 0)
		return found;
	if (!fields)
		fields = c->thread->fields = calloc(1, sizeof(*fields));
	if (!fields)
		return -ENOMEM;
	fields_trim(fields, FIELDS_KEPT);
	fields->count = fields->left = fields->slots = 0;
	fields->flags = hash.flags;
	if (names >= INDEX_FROM) {
		if (!fields_index(fields, names + (uint32_t)fields_count(&hash)))
			return -ENOMEM;
		stream_charge(c->stream, names / 64);
	}
	while (rc == 0 && (rc = field_next(&hash, &at, &field)) == 1)
		rc = fields_add(c, fields, &field.name, &field.value);
	*out = fields;
	return rc < 0 ? rc : found;
}

/* Another hash, which has what is left of the fields. 0, also where it was answered that it is too long, with *done
 * false. */
static int fields_store(struct resp_client *c, const struct resp_arg *key, const struct resp_fields *fields, bool *done)
{
	const struct resp_put put = {
		.expires = TIME_NEVER, .keep_expiry = true, .type = STORE_HASH, .flags = fields->flags};
	size_t len = 0;
	char *at;
	int rc;

	*done = true;
	if (!fields->left)
		return MIN(resp_view_delete(c, key), 0);
	for (uint32_t i = 0; i < fields->count; i++)
		if (!fields->at[i].gone)
			len += 2 * sizeof(uint16_t) + fields->at[i].name.len + fields->at[i].value.len;
	*done = len <= HASH_MAX;
	if (!*done) {
		resp_error(c->out, "ERR hash would have %zu bytes, and rdmad keeps hashes of %u at most", len,
			   HASH_MAX);
		return 0;
	}
	*done = resp_may_write(c, key, len);
	if (!*done)
		return 0;
	at = resp_view_begin(c, key, len, &put, &rc);
	for (uint32_t i = 0; at && i < fields->count; i++) {
		const struct field *field = &fields->at[i];
		const uint16_t lengths[] = {(uint16_t)field->name.len, (uint16_t)field->value.len};

		if (field->gone)
			continue;
		memcpy(at, lengths, sizeof(lengths));
		at += sizeof(lengths);
		memcpy(at, field->name.at, field->name.len);
		at += field->name.len;
		memcpy(at, field->value.at, field->value.len);
		at += field->value.len;
	}
	return rc;
}

/* 1: the field is a new one, 0: it was there, -errno. A name or value that is longer than a hash may be is found by
 * fields_store(). */
static int fields_set(struct resp_client *c, struct resp_fields *fields, const struct resp_arg *name,
		      const struct resp_arg *bytes)
{
	const struct slice value = {bytes->at, (uint32_t)bytes->len};
	struct field *field = fields_find(c, fields, name);
	int rc;

	if (field) {
		field->value = value;
		return 0;
	}
	rc = fields_add(c, fields, &(struct slice){name->at, (uint32_t)name->len}, &value);
	return rc ? rc : 1;
}

static int set_all(struct resp_client *c, const struct resp_arg *argv, unsigned argc, bool tells_count)
{
	struct resp_fields *fields;
	int64_t added = 0;
	bool done;
	int rc;

	if (argc % 2)
		return resp_bad_arity(c, c->command->name);
	rc = fields_load(c, &argv[1], argc / 2, &fields);
	for (unsigned i = 2; rc >= 0 && i < argc; i += 2) {
		rc = fields_set(c, fields, &argv[i], &argv[i + 1]);
		added += rc > 0;
	}
	rc = rc < 0 ? rc : fields_store(c, &argv[1], fields, &done);
	if (rc == 0 && done && tells_count)
		resp_number(c->out, added);
	else if (rc == 0 && done)
		resp_ok(c);
	return rc;
}

int resp_do_hset(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return set_all(c, argv, argc, true);
}

int resp_do_hmset(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return set_all(c, argv, argc, false);
}

int resp_do_hsetnx(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_fields *fields;
	bool done = true;
	int rc = fields_load(c, &argv[1], 1, &fields), added = 0;

	if (rc >= 0 && !fields_find(c, fields, &argv[2]))
		added = fields_set(c, fields, &argv[2], &argv[3]);
	if (rc < 0 || added < 0)
		return MIN(rc, added);
	rc = added ? fields_store(c, &argv[1], fields, &done) : 0;
	if (rc == 0 && done)
		resp_number(c->out, added);
	return rc;
}

int resp_do_hdel(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_fields *fields;
	int64_t deleted = 0;
	bool done = true;
	int rc = fields_load(c, &argv[1], argc - 2, &fields);

	if (rc < 0)
		return rc;
	for (unsigned i = 2; i < argc; i++) {
		struct field *field = fields_find(c, fields, &argv[i]);

		if (!field || field->gone)
			continue;
		field->gone = true;
		fields->left--;
		deleted++;
	}
	rc = deleted ? fields_store(c, &argv[1], fields, &done) : 0;
	if (rc == 0 && done)
		resp_number(c->out, deleted);
	return rc;
}

int resp_do_hmget(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_fields *fields;
	int rc = fields_load(c, &argv[1], argc - 2, &fields);

	if (rc < 0)
		return rc;
	resp_array(c->out, argc - 2);
	for (unsigned i = 2; i < argc; i++) {
		const struct field *field = fields_find(c, fields, &argv[i]);

		if (field)
			slice_reply(c, &field->value);
		else
			resp_null(c->out);
	}
	return 0;
}

/*
 * Numbers
 */

/* The field becomes this text. */
static int number_store(struct resp_client *c, const struct resp_arg *argv, struct resp_fields *fields,
			const char *text, int len, bool *done)
{
	int rc = fields_set(c, fields, &argv[2], &(struct resp_arg){text, (size_t)len});

	return rc < 0 ? rc : fields_store(c, &argv[1], fields, done);
}

int resp_do_hincrby(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_fields *fields;
	const struct field *field;
	char text[RESP_INT64];
	int64_t number = 0, delta;
	bool done;
	int rc;

	if (!resp_read_int64(argv[3].at, argv[3].len, &delta))
		return resp_not_an_integer(c);
	rc = fields_load(c, &argv[1], 1, &fields);
	if (rc < 0)
		return rc;
	field = fields_find(c, fields, &argv[2]);
	if (field && !resp_read_int64(field->value.at, field->value.len, &number)) {
		resp_error(c->out, "ERR hash value is not an integer");
		return 0;
	}
	if (__builtin_add_overflow(number, delta, &number)) {
		resp_error(c->out, "ERR increment or decrement would overflow");
		return 0;
	}
	rc = number_store(c, argv, fields, text, resp_write_int64(text, number), &done);
	if (rc == 0 && done)
		resp_number(c->out, number);
	return rc;
}

int resp_do_hincrbyfloat(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	char text[RESP_LONG_DOUBLE];
	struct resp_fields *fields;
	const struct field *field;
	long double number = 0, delta;
	bool done;
	int rc, len;

	if (!resp_read_long_double(argv[3].at, argv[3].len, &delta))
		return resp_not_a_float(c);
	if (__builtin_isnan(delta) || __builtin_isinf(delta)) {
		resp_error(c->out, "ERR value is NaN or Infinity");
		return 0;
	}
	rc = fields_load(c, &argv[1], 1, &fields);
	if (rc < 0)
		return rc;
	field = fields_find(c, fields, &argv[2]);
	if (field && !resp_read_long_double(field->value.at, field->value.len, &number)) {
		resp_error(c->out, "ERR hash value is not a float");
		return 0;
	}
	len = resp_add_float(c, number, delta, text);
	if (len <= 0)
		return len;
	rc = number_store(c, argv, fields, text, len, &done);
	if (rc == 0 && done)
		resp_bulk(c->out, text, (size_t)len);
	return rc;
}

/*
 * Walks
 */

/* The whole hash comes with the first call. */
int resp_do_hscan(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_scan scan = {.pattern = NULL};
	struct resp_value hash;
	struct field field;
	uint64_t cursor;
	int64_t matches = 0;
	int rc;

	if (!resp_read_cursor(&argv[2], &cursor)) {
		resp_error(c->out, "ERR invalid cursor");
		return 0;
	}
	rc = hash_get(c, &argv[1], &hash);
	if (rc < 0)
		return rc;
	if (rc && !resp_read_scan(c, argv + 3, argc - 3, &scan, NULL))
		return 0;
	for (unsigned pass = 0; pass < 2; pass++) {
		for (size_t at = 0; (rc = field_next(&hash, &at, &field)) == 1;) {
			if (scan.pattern &&
			    !resp_match(scan.pattern->at, scan.pattern->len, field.name.at, field.name.len, false))
				continue;
			matches += !pass;
			if (!pass)
				continue;
			slice_reply(c, &field.name);
			slice_reply(c, &field.value);
		}
		if (pass)
			break;
		resp_array(c->out, 2);
		resp_bulk_text(c->out, "0");
		resp_array(c->out, (size_t)matches * 2);
	}
	return rc;
}

static void random_reply(struct resp_client *c, const struct field *field, bool values)
{
	if (values && c->out->three)
		resp_array(c->out, 2);
	slice_reply(c, &field->name);
	if (values)
		slice_reply(c, &field->value);
}

/* A number below `most`, which is not 0. */
static uint32_t random_below(uint64_t *state, uint32_t most)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((*state >> 32) * most >> 32);
}

/* Each field once, `wanted` of them; or any of them `wanted` times. */
static void random_fields(struct resp_client *c, const struct resp_fields *fields, uint32_t wanted, bool again,
			  bool values, uint64_t random)
{
	stream_charge(c->stream, wanted / 64);
	resp_array(c->out, (size_t)wanted * (values && !c->out->three ? 2 : 1));
	for (uint32_t i = 0; again && i < wanted; i++)
		random_reply(c, &fields->at[random_below(&random, fields->count)], values);
	/* Knuth, The Art of Computer Programming, volume 2, 3.4.2, algorithm S. */
	for (uint32_t i = 0; !again && wanted; i++)
		if (random_below(&random, fields->count - i) < wanted) {
			random_reply(c, &fields->at[i], values);
			wanted--;
		}
}

int resp_do_hrandfield(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_fields *fields;
	bool values = argc == 4;
	uint64_t random;
	int64_t count = 0;
	int rc;

	if (argc > 2 && !resp_read_int64(argv[2].at, argv[2].len, &count))
		return resp_not_an_integer(c);
	if (argc > 4 || (values && !resp_is(&argv[3], "withvalues")))
		return resp_syntax_error(c);
	if (count < (values ? INT64_MIN / 2 + 1 : -INT64_MAX)) {
		resp_error(c->out, "ERR value is out of range");
		return 0;
	}
	rc = fields_load(c, &argv[1], 1, &fields);
	if (rc >= 0 && random_fill(&random, sizeof(random)) != 0)
		rc = -EIO;
	if (rc < 0)
		return rc;
	if (argc == 2 && !rc) {
		resp_null(c->out);
	} else if (argc == 2) {
		random_reply(c, &fields->at[random_below(&random, fields->count)], false);
	} else if (!rc || !count) {
		resp_array(c->out, 0);
	} else if (count < -(int64_t)RANDOM_MOST) {
		resp_error(c->out, "ERR value is out of range: rdmad returns %u fields at most", RANDOM_MOST);
	} else {
		random_fields(c, fields, (uint32_t)(count < 0 ? -count : MIN(count, (int64_t)fields->count)), count < 0,
			      values, random);
	}
	return 0;
}
