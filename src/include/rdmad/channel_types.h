/*
 * channel_types.h: typed values on a channel, or in memory. See rdmad_channel_types(3).
 *
 * A type is a table that says how a value lies in memory and how it is encoded in a channel. Both programs must have
 * the same table: one encodes by it, the other decodes by it. In a channel there is no padding and no alignment:
 *   number            its 1, 2, 4 or 8 bytes, little endian; float and double as IEEE 754 has them; bool 0 or 1
 *   array             a count of 64 bits, then the elements, one behind the other
 *   string            as an array of its bytes, without the 0 at its end; no other byte of it is 0
 *   optional          a byte, 0: absent, 1: the value follows
 *   struct            its fields, in the table's order
 *
 * What is decoded is checked: a number against its largest, a count against its limit before anything is allocated.
 * Errors:
 *   -EINVAL    the type makes no sense, or the value to be encoded is not of the type: a bool of 2, a count with NULL
 *              items
 *   -EMSGSIZE  a count, or a string's length, beyond the type's limit
 *   -EPROTO    what came is no value of the type: a number beyond its largest, a string with a 0 in it
 *   -ENODATA   decoding from memory: the value does not end there
 *   -ENOMEM    and the errors of the channel
 * rdmad_error() says it in words.
 */
#ifndef RDMAD_CHANNEL_TYPES_H
#define RDMAD_CHANNEL_TYPES_H

#include <rdmad/channel.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RDMAD_TYPE_DEPTH 32 /* types within types, at most */

enum rdmad_type_kind {
	RDMAD_NUMBER = 1, /* in memory: 1, 2, 4 or 8 bytes */
	RDMAD_STRING,     /* char *, never NULL */
	RDMAD_ARRAY,      /* struct rdmad_array */
	RDMAD_OPTIONAL,   /* a pointer to the value, NULL: absent */
	RDMAD_STRUCT      /* the struct */
};

struct rdmad_array {
	void *items; /* each of the element's size; NULL where there are none */
	uint64_t count;
};

struct rdmad_field;

struct rdmad_type {
	enum rdmad_type_kind kind;
	size_t size;                 /* of a value in memory: sizeof */
	uint64_t limit;              /* number: the largest as it is without a sign, 0: any; string, array: the most */
	const struct rdmad_type *of; /* array, optional: what of */
	const struct rdmad_field *field; /* struct */
	size_t fields;
};

struct rdmad_field {
	const char *name;
	size_t offset, size;
	const struct rdmad_type *type;
};

/* For tables: const struct rdmad_type point_type = RDMAD_TYPE_STRUCT(struct point, point_fields); */
#define RDMAD_TYPE_NUMBER(c_type, largest)                                                                             \
	{                                                                                                              \
		RDMAD_NUMBER, sizeof(c_type), largest, NULL, NULL, 0                                                   \
	}
#define RDMAD_TYPE_STRING(limit)                                                                                       \
	{                                                                                                              \
		RDMAD_STRING, sizeof(char *), limit, NULL, NULL, 0                                                     \
	}
#define RDMAD_TYPE_ARRAY(type, limit)                                                                                  \
	{                                                                                                              \
		RDMAD_ARRAY, sizeof(struct rdmad_array), limit, type, NULL, 0                                          \
	}
#define RDMAD_TYPE_BYTES(limit) RDMAD_TYPE_ARRAY(&rdmad_type_u8, limit)
#define RDMAD_TYPE_OPTIONAL(type)                                                                                      \
	{                                                                                                              \
		RDMAD_OPTIONAL, sizeof(void *), 0, type, NULL, 0                                                       \
	}
#define RDMAD_TYPE_STRUCT(c_struct, table)                                                                             \
	{                                                                                                              \
		RDMAD_STRUCT, sizeof(c_struct), 0, NULL, table, sizeof(table) / sizeof((table)[0])                     \
	}
#define RDMAD_FIELD(c_struct, member, type)                                                                            \
	{                                                                                                              \
#member, offsetof(c_struct, member), sizeof(((c_struct *)0)->member), type                             \
	}

extern const struct rdmad_type rdmad_type_u8, rdmad_type_u16, rdmad_type_u32, rdmad_type_u64;
extern const struct rdmad_type rdmad_type_i8, rdmad_type_i16, rdmad_type_i32, rdmad_type_i64;
extern const struct rdmad_type rdmad_type_bool, rdmad_type_float, rdmad_type_double;
extern const struct rdmad_type rdmad_type_size; /* uint64_t, or size_t where it has 64 bits */

/* What the CUDA runtime's calls take and return; for its own types, and for those here, which need no header of it. */
struct rdmad_dim3 {
	uint32_t x, y, z;
};
extern const struct rdmad_type rdmad_type_cuda_error;       /* cudaError_t: 32 bits */
extern const struct rdmad_type rdmad_type_cuda_memcpy_kind; /* enum cudaMemcpyKind: 32 bits, 0 to 4 */
extern const struct rdmad_type rdmad_type_cuda_dim3;        /* dim3, struct rdmad_dim3 */
extern const struct rdmad_type rdmad_type_cuda_handle; /* 64 bits: a pointer of the device, cudaStream_t, cudaEvent_t */

/* Put a value. One of up to the capacity is put whole or not at all, as rdmad_channel_put() does. */
int rdmad_channel_put_value(struct rdmad_channel *channel, const struct rdmad_type *type, const void *value,
			    uint64_t timeout_us);

/* Get a value. Strings, arrays and optional values are allocated: rdmad_type_release() frees them. After an error
 * nothing is allocated, and nothing was taken from the channel: after -ETIMEDOUT the call may be made again. Only of a
 * value that is longer than the capacity a part may have been taken when the time was over: that is -EIO. Close the
 * channel then, as after -EPROTO and -EMSGSIZE. */
int rdmad_channel_get_value(struct rdmad_channel *channel, const struct rdmad_type *type, void *value,
			    uint64_t timeout_us);

/* The same in memory. They return how many bytes the value takes; were written, or -ENOSPC if there is too little room;
 * were read. Decoding allocates, as rdmad_channel_get_value() does. */
ssize_t rdmad_type_length(const struct rdmad_type *type, const void *value);
ssize_t rdmad_type_encode(const struct rdmad_type *type, const void *value, void *bytes, size_t room);
ssize_t rdmad_type_decode(const struct rdmad_type *type, const void *bytes, size_t count, void *value);

/* Free what was allocated for a decoded value, but not the value itself, which is all zeros then. */
void rdmad_type_release(const struct rdmad_type *type, void *value);

#ifdef __cplusplus
}
#endif

#endif
