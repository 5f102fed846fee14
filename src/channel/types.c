/*
 * types.c: the types that there are, and what is wrong with one, or with a value.
 */
#include "channel/types.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are copied as they are");

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

/*
 * A type itself
 */

/* Members that are set of each kind but numbers and structs. */
static const struct {
	size_t size;
	bool counts, has_element; /* limit, of are set */
} shapes[RDMAD_STRUCT] = {
	[RDMAD_STRING] = {sizeof(char *), .counts = true},
	[RDMAD_ARRAY] = {sizeof(struct rdmad_array), .counts = true, .has_element = true},
	[RDMAD_OPTIONAL] = {sizeof(void *), .has_element = true},
};

bool channel_type_is_shaped(const struct rdmad_type *type)
{
	if (type->kind <= RDMAD_NUMBER || type->kind >= RDMAD_STRUCT)
		return false;
	return type->size == shapes[type->kind].size && (!shapes[type->kind].counts || type->limit) &&
	       (!shapes[type->kind].has_element || type->of);
}

__attribute__((cold)) int channel_type_refuse(const struct channel_walk *walk)
{
	return log_fail(-EINVAL, "channel", "%s: its type makes no sense: kind, size, limit or what it is of",
			walk->field);
}

__attribute__((cold)) int channel_field_refuse(const struct rdmad_type *type, const struct rdmad_field *field)
{
	return log_fail(-EINVAL, "channel", "%s: a field of %zu bytes at %zu, whose type has %zu, in a struct of %zu",
			field->name, field->size, field->offset, field->type ? field->type->size : 0, type->size);
}

int channel_count_check(const struct channel_walk *walk, const struct rdmad_type *type, uint64_t count)
{
	if (likely(count <= type->limit))
		return 0;
	return log_fail(-EMSGSIZE, "channel", "%s: %s of %llu%s, and the type's limit is %llu", walk->field,
			type->kind == RDMAD_STRING ? "a string" : "a count", (unsigned long long)count,
			type->kind == RDMAD_STRING ? " bytes" : "", (unsigned long long)type->limit);
}

__attribute__((cold)) int channel_number_refuse(const struct channel_walk *walk, const struct rdmad_type *type,
						uint64_t number, int error)
{
	log_error("channel", "%s: it is %llu, and at most %llu is valid", walk->field, (unsigned long long)number,
		  (unsigned long long)type->limit);
	return error;
}

/* Each of `count` numbers, which are the caller's own memory. `error` if one is too large. */
int channel_numbers_check(const struct channel_walk *walk, const struct rdmad_type *type, const void *numbers,
			  uint64_t count, int error)
{
	for (uint64_t i = 0; type->limit && i < count; i++) {
		uint64_t number = channel_number_load((const uint8_t *)numbers + i * type->size, type->size);

		if (!channel_number_is_valid(type, number))
			return channel_number_refuse(walk, type, number, error);
	}
	return 0;
}

__attribute__((cold)) int channel_depth_refuse(const struct channel_walk *walk, int error)
{
	log_error("channel", "%s: more than %d types within types", walk->field, RDMAD_TYPE_DEPTH);
	return error;
}
