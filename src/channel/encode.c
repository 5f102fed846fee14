/* encode.c: a value into bytes, by its type: into memory, or into the ring itself. */
#include "channel/types.h"

#include "channel/channel.h"

#include <stdlib.h>

/* The place for a value's bytes. From the first that has no room on they are counted only. */
struct sink {
	struct channel_walk walk;
	uint8_t *bytes;
	size_t room, at, beyond;
};

static int (*const encoders[RDMAD_STRUCT + 1])(struct sink *sink, const struct rdmad_type *type, const void *value);

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

/*
 * From field i on, all numbers that there is nothing to say about, behind `*length` of `room` bytes: the index of the
 * field behind them. What stays the same is read once: a store might change it for all that the compiler knows.
 */
static inline size_t encode_numbers(const struct rdmad_type *type, size_t i, const uint8_t *value, uint8_t *bytes,
				    size_t *length, size_t room)
{
	const struct rdmad_field *field = &type->field[i], *end = &type->field[type->fields];
	const size_t whole = type->size;
	size_t at = *length;

	room -= at;
	for (; field < end; field++) {
		size_t size = field->size;

		if (unlikely(!channel_field_is_number(field, whole) || __builtin_sub_overflow(room, size, &room) ||
			     !channel_number_move(field->type, bytes + at, value + field->offset, size)))
			break;
		at += size;
	}
	*length = at;
	return (size_t)(field - type->field);
}

/* Most values are a number, or a struct of numbers, and need nothing else: the length. 0: it is another one, or there
 * is something to say about it, and encode_typed() is to begin anew. */
static inline size_t encode_plain(const struct rdmad_type *type, const void *value, uint8_t *bytes, size_t room)
{
	size_t length = 0;

	if (unlikely(!type))
		return 0;
	if (type->kind == RDMAD_NUMBER)
		return type->size <= room && channel_number_move(type, bytes, value, type->size) ? type->size : 0;
	if (type->kind != RDMAD_STRUCT || unlikely(!type->field))
		return 0;
	return likely(encode_numbers(type, 0, value, bytes, &length, room) == type->fields) ? length : 0;
}

static int encode_number(struct sink *sink, const struct rdmad_type *type, const void *value)
{
	uint64_t number = channel_number_load(value, type->size);

	if (likely(type->size <= sink->room - sink->at)) {
		channel_number_store(sink->bytes + sink->at, number, type->size);
		sink->at += type->size;
	} else {
		sink_put(sink, &number, type->size);
	}
	return channel_number_is_valid(type, number) ? 0 : channel_number_refuse(&sink->walk, type, number, -EINVAL);
}

static int encode_typed(struct sink *sink, const struct rdmad_type *type, const void *value)
{
	int rc = channel_type_check(&sink->walk, type);

	if (rc == 0 && type->kind == RDMAD_NUMBER)
		return encode_number(sink, type, value);
	if (rc != 0)
		return rc;
	if (unlikely(sink->walk.depth >= RDMAD_TYPE_DEPTH))
		return channel_depth_refuse(&sink->walk, -EINVAL);
	sink->walk.depth++;
	rc = encoders[type->kind](sink, type, value);
	sink->walk.depth--;
	return rc;
}

static int encode_count(struct sink *sink, const struct rdmad_type *type, uint64_t count, const void *items)
{
	sink_put(sink, &count, sizeof(count));
	if (items || !count)
		return channel_count_check(&sink->walk, type, count);
	return log_fail(-EINVAL, "channel", "%s: NULL, and a count of %llu", sink->walk.field,
			(unsigned long long)count);
}

static int encode_string(struct sink *sink, const struct rdmad_type *type, const void *value)
{
	const char *text = *(char *const *)value;
	size_t length;
	int rc;

	if (!text)
		return log_fail(-EINVAL, "channel", "%s: a string that is NULL; there are optional ones",
				sink->walk.field);
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
		rc = channel_type_check(&sink->walk, of);
	if (rc == 0 && of->kind == RDMAD_NUMBER) {
		rc = channel_numbers_check(&sink->walk, of, array->items, array->count, -EINVAL);
		sink_put(sink, array->items, array->count * of->size);
		return rc;
	}
	for (uint64_t i = 0; rc == 0 && i < array->count; i++)
		rc = encode_typed(sink, of, (const uint8_t *)array->items + i * of->size);
	return rc;
}

static int encode_optional(struct sink *sink, const struct rdmad_type *type, const void *value)
{
	const void *there = *(void *const *)value;

	sink_put(sink, &(uint8_t){there != NULL}, 1);
	return there ? encode_typed(sink, type->of, there) : 0;
}

static int encode_struct(struct sink *sink, const struct rdmad_type *type, const void *value)
{
	int rc = 0;

	for (size_t i = 0;
	     rc == 0 && (i = encode_numbers(type, i, value, sink->bytes, &sink->at, sink->room)) < type->fields; i++) {
		const struct rdmad_field *field = &type->field[i];

		sink->walk.field = field->name;
		if (unlikely(!channel_field_makes_sense(type, field)))
			rc = channel_field_refuse(type, field);
		else
			rc = encode_typed(sink, field->type, (const uint8_t *)value + field->offset);
	}
	return rc;
}

static int (*const encoders[RDMAD_STRUCT + 1])(struct sink *sink, const struct rdmad_type *type, const void *value) = {
	[RDMAD_STRING] = encode_string,
	[RDMAD_ARRAY] = encode_array,
	[RDMAD_OPTIONAL] = encode_optional,
	[RDMAD_STRUCT] = encode_struct,
};

__attribute__((noinline)) static ssize_t encode_walking(const struct rdmad_type *type, const void *value, void *bytes,
							size_t room)
{
	struct sink sink = {.walk.field = "value", .bytes = bytes, .room = room};
	int rc = encode_typed(&sink, type, value);

	return rc != 0 ? rc : (ssize_t)(sink.at + sink.beyond);
}

/* How long it is, whether it fits or not. */
static inline ssize_t encode_into(const struct rdmad_type *type, const void *value, void *bytes, size_t room)
{
	size_t length = encode_plain(type, value, bytes, room);

	return likely(length) ? (ssize_t)length : encode_walking(type, value, bytes, room);
}

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
	return log_fail(-ENOSPC, "channel", "a value of %zd bytes, and there is room for %zu", length, room);
}

/* Longer than the capacity: in one piece, which the ring takes bit by bit. */
static int put_long(struct rdmad_channel *channel, const struct rdmad_type *type, const void *value, size_t length,
		    uint64_t timeout_us)
{
	void *bytes = malloc(length);
	int rc;

	if (!bytes)
		return log_fail(-ENOMEM, "channel", "no memory to encode a value of %zu bytes", length);
	rc = (int)MIN(encode_into(type, value, bytes, length), 0);
	if (rc == 0)
		rc = rdmad_channel_put(channel, bytes, length, timeout_us);
	free(bytes);
	return rc;
}

int rdmad_channel_put_value(struct rdmad_channel *channel, const struct rdmad_type *type, const void *value,
			    uint64_t timeout_us)
{
	size_t room = channel_has_room(channel, 0) ? channel_known_room(channel) : 0;
	ssize_t length = encode_into(type, value, channel->out.mirror.data + channel->out.at, room);
	void *bytes;
	int rc;

	if (unlikely(length < 0))
		return (int)length;
	if (likely((size_t)length <= room)) {
		channel_advance_out(channel, (size_t)length);
		return 0;
	}
	if ((size_t)length > channel->capacity)
		return put_long(channel, type, value, (size_t)length, timeout_us);
	rc = rdmad_channel_reserve(channel, (size_t)length, timeout_us, &bytes);
	if (rc == 0)
		rc = (int)MIN(encode_into(type, value, bytes, (size_t)length), 0);
	return rc != 0 ? rc : rdmad_channel_commit(channel, (size_t)length);
}
