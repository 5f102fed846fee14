/*
 * types.h: what the files of typed values share.
 *
 *   types.c   the types that there are, what is wrong with one or with a value, and the public calls
 *   encode.c  a value into bytes
 *   decode.c  bytes into a value, and what that has allocated
 */
#ifndef RDMAD_CHANNEL_VALUE_TYPES_H
#define RDMAD_CHANNEL_VALUE_TYPES_H

#include "base/base.h"
#include "rdmad/channel_types.h"

/* The place of a walk over a type. */
struct channel_walk {
	const char *field; /* for messages */
	unsigned depth;
};

/*
 * types.c. Tables are the program's own: a check of each as it is used finds slips. What refuses logs it.
 */
bool channel_type_is_shaped(const struct rdmad_type *type); /* of any kind but the two that are looked at here */
int channel_type_refuse(const struct channel_walk *walk);   /* -EINVAL */
/* -EINVAL */
int channel_field_refuse(const struct rdmad_type *type, const struct rdmad_field *field);
/* 0 or -EMSGSIZE */
int channel_count_check(const struct channel_walk *walk, const struct rdmad_type *type, uint64_t count);
/* `error` */
int channel_number_refuse(const struct channel_walk *walk, const struct rdmad_type *type, uint64_t number, int error);
/* Each of `count` numbers, which are the caller's own memory. 0, or `error` if one is too large. */
int channel_numbers_check(const struct channel_walk *walk, const struct rdmad_type *type, const void *numbers,
			  uint64_t count, int error);
int channel_depth_refuse(const struct channel_walk *walk, int error); /* `error` */

static inline bool channel_type_is_number(const struct rdmad_type *type)
{
	return type->kind == RDMAD_NUMBER && type->size - 1 < 8 && (type->size & (type->size - 1)) == 0;
}

static inline bool channel_type_makes_sense(const struct rdmad_type *type)
{
	if (unlikely(!type))
		return false;
	if (type->kind == RDMAD_STRUCT)
		return type->field && type->fields;
	return channel_type_is_number(type) || channel_type_is_shaped(type);
}

static inline int channel_type_check(const struct channel_walk *walk, const struct rdmad_type *type) /* 0 or -EINVAL */
{
	return likely(channel_type_makes_sense(type)) ? 0 : channel_type_refuse(walk);
}

static inline bool channel_field_makes_sense(const struct rdmad_type *type, const struct rdmad_field *field)
{
	return field->type && field->size == field->type->size && field->offset <= type->size &&
	       field->size <= type->size - field->offset;
}

/* A number, but perhaps of a size that there is not: channel_number_move() checks that. `whole`: the struct's
 * size. */
static inline bool channel_field_is_number(const struct rdmad_field *field, size_t whole)
{
	const struct rdmad_type *of = field->type;
	size_t last;

	return likely(of && of->kind == RDMAD_NUMBER && of->size == field->size &&
		      !__builtin_sub_overflow(whole, field->size, &last) && field->offset <= last);
}

/* Loads one of the four sizes. Memory is read once, as a peer may write to it meanwhile. */
static inline uint64_t channel_number_load(const void *from, size_t size)
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
	__asm__("" : "+r"(number));
	return number;
}

static inline void channel_number_store(void *to, uint64_t number, size_t size)
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

static inline bool channel_number_is_valid(const struct rdmad_type *type, uint64_t number)
{
	return likely(!type->limit) || number <= type->limit;
}

/* Moves a number, with one check of its size. False: it is too large, or of another size. */
static inline bool channel_number_move(const struct rdmad_type *type, void *to, const void *from, size_t size)
{
	uint64_t number;

	if (size == 8) {
		number = channel_number_load(from, 8);
		channel_number_store(to, number, 8);
	} else if (size == 4) {
		number = channel_number_load(from, 4);
		channel_number_store(to, number, 4);
	} else if (size == 1) {
		number = channel_number_load(from, 1);
		channel_number_store(to, number, 1);
	} else if (size == 2) {
		number = channel_number_load(from, 2);
		channel_number_store(to, number, 2);
	} else {
		return false;
	}
	return channel_number_is_valid(type, number);
}

#endif
