/*
 * decode.c: bytes into a value, by its type: out of memory, or out of the ring, where a walk over the type waits for
 * what has not come yet. And what that has allocated.
 */
#include "channel/types.h"

#include "channel/channel.h"

#include <stdlib.h>

/* The source of bytes: memory, or what a channel lets us view. */
struct source {
	struct channel_walk walk;
	const uint8_t *bytes;
	size_t have, at;               /* bytes to be seen, and read */
	struct rdmad_channel *channel; /* NULL: memory, all of which is to be seen */
	uint64_t timeout_us, until;    /* until: TIME_NEVER where nothing was waited for yet */
	bool moved;                    /* bytes of this value were consumed */
};

struct decoder {
	int (*decode)(struct source *source, const struct rdmad_type *type, void *value);
	void (*release)(const struct rdmad_type *type, void *value);
};
static const struct decoder decoders[RDMAD_STRUCT + 1];

/* The time that is left. The clock begins with the first wait: most values need none. */
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
		source->have = source->at; /* nothing may be read any more */
	return rc;
}

/* See more: `count` bytes from `at` on. -ENOSPC: a ring does not hold so many. */
static int source_wait(struct source *source, size_t count)
{
	size_t capacity;
	int rc;

	if (!source->channel)
		return log_fail(-ENODATA, "channel", "%s: it ends after %zu bytes, and %zu more are needed",
				source->walk.field, source->have, count - (source->have - source->at));
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
static int items_allocate(const struct channel_walk *walk, const struct rdmad_type *of, uint64_t count, void **out)
{
	*out = reallocarray(NULL, count, of->size);
	if (*out)
		return 0;
	return log_fail(-ENOMEM, "channel", "%s: no memory for %llu of %zu bytes", walk->field,
			(unsigned long long)count, of->size);
}

/* Read once, as source_get() does, whatever a peer does to its memory. */
static int decode_number(struct source *source, const struct rdmad_type *type, void *value)
{
	uint64_t number;

	if (unlikely(type->size > source->have - source->at)) {
		int rc = source_get(source, value, type->size);

		return rc != 0 ? rc : channel_numbers_check(&source->walk, type, value, 1, -EPROTO);
	}
	number = channel_number_load(source->bytes + source->at, type->size);
	source->at += type->size;
	channel_number_store(value, number, type->size);
	return channel_number_is_valid(type, number) ? 0 : channel_number_refuse(&source->walk, type, number, -EPROTO);
}

/* Decodes as encode_numbers() encodes. */
static inline size_t decode_numbers(const struct rdmad_type *type, size_t i, uint8_t *value, const uint8_t *bytes,
				    size_t *length, size_t have)
{
	const struct rdmad_field *field = &type->field[i], *end = &type->field[type->fields];
	const size_t whole = type->size;
	size_t at = *length;

	have -= at;
	for (; field < end; field++) {
		size_t size = field->size;

		if (unlikely(!channel_field_is_number(field, whole) || __builtin_sub_overflow(have, size, &have) ||
			     !channel_number_move(field->type, value + field->offset, bytes + at, size)))
			break;
		at += size;
	}
	*length = at;
	return (size_t)(field - type->field);
}

/* Decodes as encode_plain() encodes. The value may have been written to. */
static inline size_t decode_plain(const struct rdmad_type *type, const uint8_t *bytes, size_t have, void *value)
{
	size_t length = 0;

	if (unlikely(!type))
		return 0;
	if (type->kind == RDMAD_NUMBER)
		return type->size <= have && channel_number_move(type, value, bytes, type->size) ? type->size : 0;
	if (type->kind != RDMAD_STRUCT || unlikely(!type->field))
		return 0;
	return likely(decode_numbers(type, 0, value, bytes, &length, have) == type->fields) ? length : 0;
}

static void release_value(const struct rdmad_type *type, void *value);

/* A decoder leaves nothing allocated when it fails, so that nothing need be zero before. */
static int decode_typed(struct source *source, const struct rdmad_type *type, void *value)
{
	int rc = channel_type_check(&source->walk, type);

	if (rc == 0 && type->kind == RDMAD_NUMBER)
		return decode_number(source, type, value);
	if (rc != 0)
		return rc;
	if (unlikely(source->walk.depth >= RDMAD_TYPE_DEPTH))
		return channel_depth_refuse(&source->walk, -EPROTO);
	source->walk.depth++;
	rc = decoders[type->kind].decode(source, type, value);
	source->walk.depth--;
	return rc;
}

/* Checked against the limit and, in memory, against what is there: no element has less than a byte. */
static int decode_count(struct source *source, const struct rdmad_type *type, uint64_t *count)
{
	int rc = source_get(source, count, sizeof(*count));

	if (rc == 0)
		rc = channel_count_check(&source->walk, type, *count);
	if (rc == 0 && !source->channel && *count > source->have - source->at)
		rc = source_wait(source, (size_t)*count);
	return rc;
}

static int decode_string(struct source *source, const struct rdmad_type *type, void *value)
{
	uint64_t length;
	char **text = value;
	int rc = decode_count(source, type, &length);

	if (rc == 0)
		rc = length == UINT64_MAX ? -ENOMEM : items_allocate(&source->walk, &rdmad_type_u8, length + 1, value);
	if (rc != 0)
		return rc;
	rc = source_get(source, *text, length);
	(*text)[length] = '\0';
	if (rc == 0 && memchr(*text, 0, length)) {
		log_error("channel", "%s: a string of %llu bytes has a 0 in it", source->walk.field,
			  (unsigned long long)length);
		rc = -EPROTO;
	}
	if (rc != 0)
		free(*text);
	return rc;
}

static int decode_items(struct source *source, const struct rdmad_type *of, uint8_t *items, uint64_t count)
{
	int rc = 0;

	if (of->kind == RDMAD_NUMBER) {
		rc = source_get(source, items, count * of->size);
		return rc != 0 ? rc : channel_numbers_check(&source->walk, of, items, count, -EPROTO);
	}
	for (uint64_t i = 0; i < count; i++) {
		rc = decode_typed(source, of, items + i * of->size);
		if (likely(rc == 0))
			continue;
		while (i-- > 0)
			release_value(of, items + i * of->size);
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
		rc = channel_type_check(&source->walk, type->of);
	if (rc != 0 || !array->count)
		return rc;
	rc = items_allocate(&source->walk, type->of, array->count, &array->items);
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
	int rc = decode_typed(source, &rdmad_type_bool, &there);

	*place = NULL;
	if (rc == 0)
		rc = channel_type_check(&source->walk, type->of);
	if (rc != 0 || !there)
		return rc;
	rc = items_allocate(&source->walk, type->of, 1, place);
	if (rc == 0)
		rc = decode_typed(source, type->of, *place);
	if (rc != 0)
		free(*place);
	return rc;
}

static int decode_struct(struct source *source, const struct rdmad_type *type, void *value)
{
	for (size_t i = 0;
	     (i = decode_numbers(type, i, value, source->bytes, &source->at, source->have)) < type->fields; i++) {
		const struct rdmad_field *field = &type->field[i];
		int rc;

		source->walk.field = field->name;
		if (unlikely(!channel_field_makes_sense(type, field)))
			rc = channel_field_refuse(type, field);
		else
			rc = decode_typed(source, field->type, (uint8_t *)value + field->offset);
		if (likely(rc == 0))
			continue;
		while (i-- > 0)
			release_value(type->field[i].type, (uint8_t *)value + type->field[i].offset);
		return rc;
	}
	return 0;
}

/* After a failure the value is zero. */
static int decode_from(struct source *source, const struct rdmad_type *type, void *value)
{
	int rc = decode_typed(source, type, value);

	if (unlikely(rc != 0) && channel_type_makes_sense(type))
		memset(value, 0, type->size);
	return rc;
}

/*
 * Releasing
 */
static void release_value(const struct rdmad_type *type, void *value)
{
	if (channel_type_makes_sense(type) && decoders[type->kind].release)
		decoders[type->kind].release(type, value);
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
		release_value(type->of, (uint8_t *)array->items + i * type->of->size);
	free(array->items);
}

static void release_optional(const struct rdmad_type *type, void *value)
{
	void *there = *(void **)value;

	if (there)
		release_value(type->of, there);
	free(there);
}

static void release_struct(const struct rdmad_type *type, void *value)
{
	for (size_t i = 0; i < type->fields; i++)
		if (channel_field_makes_sense(type, &type->field[i]))
			release_value(type->field[i].type, (uint8_t *)value + type->field[i].offset);
}

static const struct decoder decoders[RDMAD_STRUCT + 1] = {
	[RDMAD_STRING] = {decode_string, release_string},
	[RDMAD_ARRAY] = {decode_array, release_array},
	[RDMAD_OPTIONAL] = {decode_optional, release_optional},
	[RDMAD_STRUCT] = {decode_struct, release_struct},
};

/*
 * The calls
 */
__attribute__((noinline)) static ssize_t decode_walking(const struct rdmad_type *type, const void *bytes, size_t count,
							void *value)
{
	struct source source = {.walk.field = "value", .bytes = bytes, .have = count};
	int rc = decode_from(&source, type, value);

	return rc != 0 ? rc : (ssize_t)source.at;
}

ssize_t rdmad_type_decode(const struct rdmad_type *type, const void *bytes, size_t count, void *value)
{
	size_t length = decode_plain(type, bytes, count, value);

	return likely(length) ? (ssize_t)length : decode_walking(type, bytes, count, value);
}

void rdmad_type_release(const struct rdmad_type *type, void *value)
{
	if (!value || !channel_type_makes_sense(type))
		return;
	release_value(type, value);
	memset(value, 0, type->size);
}

__attribute__((noinline)) static int get_walking(struct rdmad_channel *channel, const struct rdmad_type *type,
						 void *value, uint64_t timeout_us)
{
	struct source source = {
		.walk.field = "value",
		.bytes = channel->in.mirror.data + channel->in.at,
		.have = channel_has_bytes(channel, 0) ? channel_known_bytes(channel) : 0,
		.channel = channel,
		.timeout_us = timeout_us,
		.until = TIME_NEVER,
	};
	int rc = decode_from(&source, type, value);

	if (likely(rc == 0)) {
		channel_advance_in(channel, source.at);
		return 0;
	}
	if (rc != -ETIMEDOUT || !source.moved)
		return rc;
	return log_fail(-EIO, "channel",
			"%s: its time was over in the midst of a value that is longer than the capacity",
			source.walk.field);
}

int rdmad_channel_get_value(struct rdmad_channel *channel, const struct rdmad_type *type, void *value,
			    uint64_t timeout_us)
{
	size_t have = channel_has_bytes(channel, 0) ? channel_known_bytes(channel) : 0;
	size_t length = decode_plain(type, channel->in.mirror.data + channel->in.at, have, value);

	if (unlikely(!length))
		return get_walking(channel, type, value, timeout_us);
	channel_advance_in(channel, length);
	return 0;
}
