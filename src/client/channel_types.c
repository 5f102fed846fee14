/*
 * channel_types.c: values by tables, into bytes and out of them. A value is encoded into memory or into the ring itself, and
 * decoded from memory or out of the ring, where a walk over the type waits for what has not come yet.
 */
#include "client/channel.h"
#include "rdmad/channel_types.h"

#include <stdlib.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are copied as they are");

#define SMALL                                                                                                          \
	512 /* values up to this are encoded once and then put; longer ones are measured, then encoded in the ring */
#define TINY (RDMAD_CHANNEL_SIZE_MIN / 2) /* up to this a put is all or nothing, whatever the ring */

const struct rdmad_type rdmad_type_u8 = RDMAD_TYPE_NUMBER(uint8_t, 0);
const struct rdmad_type rdmad_type_u16 = RDMAD_TYPE_NUMBER(uint16_t, 0);
const struct rdmad_type rdmad_type_u32 = RDMAD_TYPE_NUMBER(uint32_t, 0);
const struct rdmad_type rdmad_type_u64 = RDMAD_TYPE_NUMBER(uint64_t, 0);
const struct rdmad_type rdmad_type_i8 = RDMAD_TYPE_NUMBER(int8_t, 0);
const struct rdmad_type rdmad_type_i16 = RDMAD_TYPE_NUMBER(int16_t, 0);
const struct rdmad_type rdmad_type_i32 = RDMAD_TYPE_NUMBER(int32_t, 0);
const struct rdmad_type rdmad_type_i64 = RDMAD_TYPE_NUMBER(int64_t, 0);
const struct rdmad_type rdmad_type_bool = RDMAD_TYPE_NUMBER(bool, 1);
const struct rdmad_type rdmad_type_float = RDMAD_TYPE_NUMBER(float, 0);
const struct rdmad_type rdmad_type_double = RDMAD_TYPE_NUMBER(double, 0);
const struct rdmad_type rdmad_type_size = RDMAD_TYPE_NUMBER(uint64_t, 0);

static const struct rdmad_field dim3_fields[] = {
	RDMAD_FIELD(struct rdmad_dim3, x, &rdmad_type_u32),
	RDMAD_FIELD(struct rdmad_dim3, y, &rdmad_type_u32),
	RDMAD_FIELD(struct rdmad_dim3, z, &rdmad_type_u32),
};
const struct rdmad_type rdmad_type_cuda_error = RDMAD_TYPE_NUMBER(uint32_t, 0);
const struct rdmad_type rdmad_type_cuda_memcpy_kind = RDMAD_TYPE_NUMBER(uint32_t, 4);
const struct rdmad_type rdmad_type_cuda_dim3 = RDMAD_TYPE_STRUCT(struct rdmad_dim3, dim3_fields);
const struct rdmad_type rdmad_type_cuda_handle = RDMAD_TYPE_NUMBER(uint64_t, 0);

/* Where a walk over a type is. */
struct walk {
	const char *field; /* for messages */
	unsigned depth;
};

/* Where the bytes of a value go. From the first that has no room on they are counted only. */
struct sink {
	struct walk walk;
	uint8_t *bytes;
	size_t room, at, beyond;
};

/* Where they come from: memory, or what a channel lets us view. */
struct source {
	struct walk walk;
	const uint8_t *bytes;
	size_t have, at;               /* bytes to be seen, and read */
	struct rdmad_channel *channel; /* NULL: memory, all of which is to be seen */
	uint64_t timeout_us, until;    /* until: TIME_NEVER where nothing was waited for yet */
	bool moved;                    /* bytes of this value were consumed */
};

/* Of all kinds but numbers, which most values are made of. */
struct kind {
	int (*encode)(struct sink *sink, const struct rdmad_type *type, const void *value);
	int (*decode)(struct source *source, const struct rdmad_type *type, void *value);
	void (*release)(const struct rdmad_type *type, void *value);
	size_t size;
	bool counts, has_element, has_fields; /* limit, of and field are set */
};
static const struct kind kinds[RDMAD_STRUCT + 1];

/*
 * A type itself. Tables are the program's own: a look at each as it is used finds slips.
 */
static inline bool type_is_number(const struct rdmad_type *type)
{
	return type->kind == RDMAD_NUMBER && type->size - 1 < 8 && (type->size & (type->size - 1)) == 0;
}

static bool type_makes_sense(const struct rdmad_type *type)
{
	const struct kind *kind;

	if (!type || type->kind == RDMAD_NUMBER)
		return type && type_is_number(type);
	if (type->kind < RDMAD_NUMBER || type->kind > RDMAD_STRUCT)
		return false;
	kind = &kinds[type->kind];
	return (!kind->size || type->size == kind->size) && (!kind->counts || type->limit) &&
	       (!kind->has_element || type->of) && (!kind->has_fields || (type->field && type->fields));
}

static inline bool field_makes_sense(const struct rdmad_type *type, const struct rdmad_field *field)
{
	return field->type && field->size == field->type->size && field->offset <= type->size &&
	       field->size <= type->size - field->offset;
}

static int type_check(const struct walk *walk, const struct rdmad_type *type)
{
	if (likely(type_makes_sense(type)))
		return 0;
	log_error("channel", "%s: its type makes no sense: kind, size, limit or what it is of", walk->field);
	return -EINVAL;
}

__attribute__((cold)) static int field_refuse(const struct rdmad_type *type, const struct rdmad_field *field)
{
	log_error("channel", "%s: a field of %zu bytes at %zu, whose type has %zu, in a struct of %zu", field->name,
		  field->size, field->offset, field->type ? field->type->size : 0, type->size);
	return -EINVAL;
}

static int count_check(const struct walk *walk, const struct rdmad_type *type, uint64_t count)
{
	if (likely(count <= type->limit))
		return 0;
	log_error("channel", "%s: a count of %llu, and the type's limit is %llu", walk->field,
		  (unsigned long long)count, (unsigned long long)type->limit);
	return -EMSGSIZE;
}

/* By its size, of which there are four. */
static inline uint64_t number_load(const void *from, size_t size)
{
	uint64_t number = 0;

	if (size == 8)
		memcpy(&number, from, 8);
	else if (size == 4)
		memcpy(&number, from, 4);
	else if (size == 1)
		memcpy(&number, from, 1);
	else
		memcpy(&number, from, 2);
	return number;
}

static inline void number_store(void *to, uint64_t number, size_t size)
{
	if (size == 8)
		memcpy(to, &number, 8);
	else if (size == 4)
		memcpy(to, &number, 4);
	else if (size == 1)
		memcpy(to, &number, 1);
	else
		memcpy(to, &number, 2);
}

__attribute__((cold)) static int number_refuse(const struct walk *walk, const struct rdmad_type *type, uint64_t number,
					       int error)
{
	log_error("channel", "%s: it is %llu, and at most %llu is valid", walk->field, (unsigned long long)number,
		  (unsigned long long)type->limit);
	return error;
}

static inline bool number_is_valid(const struct rdmad_type *type, uint64_t number)
{
	return likely(!type->limit || number <= type->limit);
}

/* Each of `count` numbers, which are the caller's own memory. `error` if one is too large. */
static int numbers_check(const struct walk *walk, const struct rdmad_type *type, const void *numbers, uint64_t count,
			 int error)
{
	for (uint64_t i = 0; type->limit && i < count; i++) {
		uint64_t number = number_load((const uint8_t *)numbers + i * type->size, type->size);

		if (!number_is_valid(type, number))
			return number_refuse(walk, type, number, error);
	}
	return 0;
}

static bool too_deep(const struct walk *walk)
{
	if (likely(walk->depth < RDMAD_TYPE_DEPTH))
		return false;
	log_error("channel", "%s: more than %d types within types", walk->field, RDMAD_TYPE_DEPTH);
	return true;
}

/*
 * Encoding
 */
static void sink_put(struct sink *sink, const void *bytes, size_t count)
{
	if (unlikely(count > sink->room - sink->at)) {
		sink->room = sink->at;
		sink->beyond += count;
	} else if (count) {
		memcpy(sink->bytes + sink->at, bytes, count);
		sink->at += count;
	}
}

static inline int encode_number(struct sink *sink, const struct rdmad_type *type, const void *value)
{
	uint64_t number = number_load(value, type->size);

	if (likely(type->size <= sink->room - sink->at)) {
		number_store(sink->bytes + sink->at, number, type->size);
		sink->at += type->size;
	} else {
		sink_put(sink, &number, type->size);
	}
	return number_is_valid(type, number) ? 0 : number_refuse(&sink->walk, type, number, -EINVAL);
}

static int encode(struct sink *sink, const struct rdmad_type *type, const void *value)
{
	int rc = type_check(&sink->walk, type);

	if (rc == 0 && type->kind == RDMAD_NUMBER)
		return encode_number(sink, type, value);
	if (rc == 0 && too_deep(&sink->walk))
		rc = -EINVAL;
	if (rc != 0)
		return rc;
	sink->walk.depth++;
	rc = kinds[type->kind].encode(sink, type, value);
	sink->walk.depth--;
	return rc;
}

static int encode_count(struct sink *sink, const struct rdmad_type *type, uint64_t count, const void *items)
{
	sink_put(sink, &count, sizeof(count));
	if (items || !count)
		return count_check(&sink->walk, type, count);
	log_error("channel", "%s: NULL, and a count of %llu", sink->walk.field, (unsigned long long)count);
	return -EINVAL;
}

static int encode_string(struct sink *sink, const struct rdmad_type *type, const void *value)
{
	const char *text = *(char *const *)value;
	size_t length;
	int rc;

	if (!text) {
		log_error("channel", "%s: a string that is NULL; there are optional ones", sink->walk.field);
		return -EINVAL;
	}
	length = strlen(text);
	rc = encode_count(sink, type, length, text);
	if (rc == 0)
		sink_put(sink, text, length);
	return rc;
}

static int encode_array(struct sink *sink, const struct rdmad_type *type, const void *value)
{
	const struct rdmad_array *array = value;
	const struct rdmad_type *of = type->of;
	int rc = encode_count(sink, type, array->count, array->items);

	if (rc == 0)
		rc = type_check(&sink->walk, of);
	if (rc == 0 && of->kind == RDMAD_NUMBER) {
		rc = numbers_check(&sink->walk, of, array->items, array->count, -EINVAL);
		sink_put(sink, array->items, array->count * of->size);
		return rc;
	}
	for (uint64_t i = 0; rc == 0 && i < array->count; i++)
		rc = encode(sink, of, (const uint8_t *)array->items + i * of->size);
	return rc;
}

static int encode_optional(struct sink *sink, const struct rdmad_type *type, const void *value)
{
	const void *there = *(void *const *)value;

	sink_put(sink, &(uint8_t){there != NULL}, 1);
	return there ? encode(sink, type->of, there) : 0;
}

static int encode_struct(struct sink *sink, const struct rdmad_type *type, const void *value)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < type->fields; i++) {
		const struct rdmad_field *field = &type->field[i];
		const uint8_t *place = (const uint8_t *)value + field->offset;

		sink->walk.field = field->name;
		if (unlikely(!field_makes_sense(type, field)))
			rc = field_refuse(type, field);
		else if (type_is_number(field->type)) /* most are */
			rc = encode_number(sink, field->type, place);
		else
			rc = encode(sink, field->type, place);
	}
	return rc;
}

/* How long it is, whether it fits or not. */
static ssize_t encode_into(const struct rdmad_type *type, const void *value, void *bytes, size_t room)
{
	struct sink sink = {.walk.field = "value", .bytes = bytes, .room = room};
	int rc = encode(&sink, type, value);

	return rc ? rc : (ssize_t)(sink.at + sink.beyond);
}

/*
 * Decoding
 */

/* What is left of the time. The clock begins with the first wait: most values need none. */
static uint64_t source_left(struct source *source)
{
	uint64_t now;

	if (source->timeout_us == RDMAD_CHANNEL_FOREVER)
		return source->timeout_us;
	now = time_now();
	if (source->until == TIME_NEVER)
		source->until = time_after(now, time_of_us(source->timeout_us));
	return now < source->until ? (source->until - now) / TIME_US : 0;
}

static int source_view(struct source *source, size_t count)
{
	const void *bytes = NULL;
	int rc = rdmad_channel_view(source->channel, count, 0, &bytes, &source->have);

	if (rc == -ETIMEDOUT && source->timeout_us)
		rc = rdmad_channel_view(source->channel, count, source_left(source), &bytes, &source->have);
	if (rc == 0)
		source->bytes = bytes;
	else
		source->have = source->at; /* nothing may be looked at any more */
	return rc;
}

/* See more: `count` bytes from `at` on. -ENOSPC: a ring does not hold so many. */
static int source_wait(struct source *source, size_t count)
{
	size_t capacity;
	int rc;

	if (!source->channel) {
		log_error("channel", "%s: it ends after %zu bytes, and %zu more are needed", source->walk.field,
			  source->have, count - (source->have - source->at));
		return -ENODATA;
	}
	capacity = source->channel->capacity;
	if (count <= capacity - source->at)
		return source_view(source, source->at + count);
	/* Longer than the capacity: on with the ring's next bytes. */
	rc = rdmad_channel_consume(source->channel, source->at);
	source->moved |= source->at != 0;
	source->have = source->at = 0;
	if (rc != 0)
		return rc;
	return count <= capacity ? source_view(source, count) : -ENOSPC;
}

/* Not inlined: so what is checked afterwards is the copy, whatever a peer does to its memory meanwhile. */
__attribute__((noinline)) static int source_get(struct source *source, void *out, size_t count)
{
	int rc = 0;

	if (unlikely(count > source->have - source->at))
		rc = source_wait(source, count);
	if (unlikely(rc == -ENOSPC)) {
		source->moved = true;
		return rdmad_channel_get(source->channel, out, count, source_left(source));
	}
	if (rc != 0)
		return rc;
	memcpy(out, source->bytes + source->at, count);
	source->at += count;
	return 0;
}

/* Room for `count` of them. */
static int allocate(const struct walk *walk, const struct rdmad_type *of, uint64_t count, void **out)
{
	*out = reallocarray(NULL, count, of->size);
	if (*out)
		return 0;
	log_error("channel", "%s: no memory for %llu of %zu bytes", walk->field, (unsigned long long)count, of->size);
	return -ENOMEM;
}

/* Read once, as source_get() does, whatever a peer does to its memory. */
static inline int decode_number(struct source *source, const struct rdmad_type *type, void *value)
{
	uint64_t number;

	if (unlikely(type->size > source->have - source->at)) {
		int rc = source_get(source, value, type->size);

		return rc ? rc : numbers_check(&source->walk, type, value, 1, -EPROTO);
	}
	number = number_load(source->bytes + source->at, type->size);
	__asm__("" : "+r"(number));
	source->at += type->size;
	number_store(value, number, type->size);
	return number_is_valid(type, number) ? 0 : number_refuse(&source->walk, type, number, -EPROTO);
}

static void release(const struct rdmad_type *type, void *value);

/* What decodes leaves nothing allocated when it fails, so that nothing need be zero before. */
static int decode(struct source *source, const struct rdmad_type *type, void *value)
{
	int rc = type_check(&source->walk, type);

	if (rc == 0 && type->kind == RDMAD_NUMBER)
		return decode_number(source, type, value);
	if (rc == 0 && too_deep(&source->walk))
		rc = -EPROTO;
	if (rc != 0)
		return rc;
	source->walk.depth++;
	rc = kinds[type->kind].decode(source, type, value);
	source->walk.depth--;
	return rc;
}

/* Checked against the limit and, in memory, against what is there: no element has less than a byte. */
static int decode_count(struct source *source, const struct rdmad_type *type, uint64_t *count)
{
	int rc = source_get(source, count, sizeof(*count));

	if (rc == 0)
		rc = count_check(&source->walk, type, *count);
	if (rc == 0 && !source->channel && *count > source->have - source->at)
		rc = source_wait(source, (size_t)*count);
	return rc;
}

static int decode_text(struct source *source, char *text, uint64_t length)
{
	int rc = source_get(source, text, length);

	text[length] = '\0';
	if (rc == 0 && memchr(text, 0, length)) {
		log_error("channel", "%s: a string of %llu bytes has a 0 in it", source->walk.field,
			  (unsigned long long)length);
		rc = -EPROTO;
	}
	return rc;
}

static int decode_string(struct source *source, const struct rdmad_type *type, void *value)
{
	uint64_t length;
	char **text = value;
	int rc = decode_count(source, type, &length);

	if (rc == 0)
		rc = length == UINT64_MAX ? -ENOMEM : allocate(&source->walk, &rdmad_type_u8, length + 1, value);
	if (rc != 0)
		return rc;
	rc = decode_text(source, *text, length);
	if (rc != 0)
		free(*text);
	return rc;
}

static int decode_items(struct source *source, const struct rdmad_type *of, uint8_t *items, uint64_t count)
{
	int rc = 0;

	if (of->kind == RDMAD_NUMBER) {
		rc = source_get(source, items, count * of->size);
		return rc ? rc : numbers_check(&source->walk, of, items, count, -EPROTO);
	}
	for (uint64_t i = 0; i < count; i++) {
		rc = decode(source, of, items + i * of->size);
		if (likely(rc == 0))
			continue;
		while (i-- > 0)
			release(of, items + i * of->size);
		break;
	}
	return rc;
}

static int decode_array(struct source *source, const struct rdmad_type *type, void *value)
{
	struct rdmad_array *array = value;
	int rc = decode_count(source, type, &array->count);

	array->items = NULL;
	if (rc == 0)
		rc = type_check(&source->walk, type->of);
	if (rc != 0 || !array->count)
		return rc;
	rc = allocate(&source->walk, type->of, array->count, &array->items);
	if (rc == 0)
		rc = decode_items(source, type->of, array->items, array->count);
	if (rc != 0)
		free(array->items);
	return rc;
}

static int decode_optional(struct source *source, const struct rdmad_type *type, void *value)
{
	void **place = value;
	bool there;
	int rc = decode_number(source, &rdmad_type_bool, &there);

	*place = NULL;
	if (rc == 0)
		rc = type_check(&source->walk, type->of);
	if (rc != 0 || !there)
		return rc;
	rc = allocate(&source->walk, type->of, 1, place);
	if (rc == 0)
		rc = decode(source, type->of, *place);
	if (rc != 0)
		free(*place);
	return rc;
}

static int decode_struct(struct source *source, const struct rdmad_type *type, void *value)
{
	int rc = 0;

	for (size_t i = 0; i < type->fields; i++) {
		const struct rdmad_field *field = &type->field[i];
		uint8_t *place = (uint8_t *)value + field->offset;

		source->walk.field = field->name;
		if (unlikely(!field_makes_sense(type, field)))
			rc = field_refuse(type, field);
		else if (type_is_number(field->type)) /* most are */
			rc = decode_number(source, field->type, place);
		else
			rc = decode(source, field->type, place);
		if (likely(rc == 0))
			continue;
		while (i-- > 0)
			release(type->field[i].type, (uint8_t *)value + type->field[i].offset);
		break;
	}
	return rc;
}

/* After a failure the value is zero. */
static int decode_from(struct source *source, const struct rdmad_type *type, void *value)
{
	int rc = decode(source, type, value);

	if (unlikely(rc != 0) && type_makes_sense(type))
		memset(value, 0, type->size);
	return rc;
}

/*
 * Releasing
 */
static void release(const struct rdmad_type *type, void *value)
{
	if (type_makes_sense(type) && kinds[type->kind].release)
		kinds[type->kind].release(type, value);
}

static void release_string(const struct rdmad_type *type, void *value)
{
	(void)type;
	free(*(char **)value);
}

static void release_array(const struct rdmad_type *type, void *value)
{
	const struct rdmad_array *array = value;

	for (uint64_t i = 0; type->of->kind != RDMAD_NUMBER && i < array->count; i++)
		release(type->of, (uint8_t *)array->items + i * type->of->size);
	free(array->items);
}

static void release_optional(const struct rdmad_type *type, void *value)
{
	void *there = *(void **)value;

	if (there)
		release(type->of, there);
	free(there);
}

static void release_struct(const struct rdmad_type *type, void *value)
{
	for (size_t i = 0; i < type->fields; i++)
		if (field_makes_sense(type, &type->field[i]))
			release(type->field[i].type, (uint8_t *)value + type->field[i].offset);
}

static const struct kind kinds[RDMAD_STRUCT + 1] = {
	[RDMAD_STRING] = {encode_string, decode_string, release_string, sizeof(char *), .counts = true},
	[RDMAD_ARRAY] = {encode_array, decode_array, release_array, sizeof(struct rdmad_array), .counts = true,
			 .has_element = true},
	[RDMAD_OPTIONAL] = {encode_optional, decode_optional, release_optional, sizeof(void *), .has_element = true},
	[RDMAD_STRUCT] = {encode_struct, decode_struct, release_struct, .has_fields = true},
};

/*
 * The calls
 */
ssize_t rdmad_type_length(const struct rdmad_type *type, const void *value)
{
	return encode_into(type, value, NULL, 0);
}

ssize_t rdmad_type_encode(const struct rdmad_type *type, const void *value, void *bytes, size_t room)
{
	ssize_t length = encode_into(type, value, bytes, room);

	if (length < 0 || (size_t)length <= room)
		return length;
	log_error("channel", "a value of %zd bytes, and there is room for %zu", length, room);
	return -ENOSPC;
}

ssize_t rdmad_type_decode(const struct rdmad_type *type, const void *bytes, size_t count, void *value)
{
	struct source source = {.walk.field = "value", .bytes = bytes, .have = count};
	int rc = decode_from(&source, type, value);

	return rc ? rc : (ssize_t)source.at;
}

void rdmad_type_release(const struct rdmad_type *type, void *value)
{
	if (!value || !type_makes_sense(type))
		return;
	release(type, value);
	memset(value, 0, type->size);
}

/* Longer than the capacity: in one piece, which the ring takes bit by bit. */
static int put_long(struct rdmad_channel *channel, const struct rdmad_type *type, const void *value, size_t length,
		    uint64_t timeout_us)
{
	void *bytes = malloc(length);
	int rc;

	if (!bytes) {
		log_error("channel", "no memory to encode a value of %zu bytes", length);
		return -ENOMEM;
	}
	rc = (int)MIN(encode_into(type, value, bytes, length), 0);
	if (rc == 0)
		rc = rdmad_channel_put(channel, bytes, length, timeout_us);
	free(bytes);
	return rc;
}

int rdmad_channel_put_value(struct rdmad_channel *channel, const struct rdmad_type *type, const void *value,
			    uint64_t timeout_us)
{
	uint8_t small[SMALL];
	ssize_t length = encode_into(type, value, small, sizeof(small));
	void *bytes;
	int rc;

	if (length < 0)
		return (int)length;
	if (length <= TINY)
		return rdmad_channel_put(channel, small, (size_t)length, timeout_us);
	if ((size_t)length > channel->capacity)
		return put_long(channel, type, value, (size_t)length, timeout_us);
	rc = rdmad_channel_reserve(channel, (size_t)length, timeout_us, &bytes);
	if (rc != 0)
		return rc;
	if (length <= SMALL)
		memcpy(bytes, small, (size_t)length);
	else
		rc = (int)MIN(encode_into(type, value, bytes, (size_t)length), 0);
	return rc ? rc : rdmad_channel_commit(channel, (size_t)length);
}

int rdmad_channel_get_value(struct rdmad_channel *channel, const struct rdmad_type *type, void *value,
			    uint64_t timeout_us)
{
	struct source source = {
		.walk.field = "value", .channel = channel, .timeout_us = timeout_us, .until = TIME_NEVER};
	int rc = decode_from(&source, type, value);

	if (rc == 0) {
		rc = rdmad_channel_consume(channel, source.at);
		if (rc != 0)
			rdmad_type_release(type, value);
	}
	if (rc != -ETIMEDOUT || !source.moved)
		return rc;
	log_error("channel", "%s: its time was over in the midst of a value that is longer than the capacity",
		  source.walk.field);
	return -EIO;
}
