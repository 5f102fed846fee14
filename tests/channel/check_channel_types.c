/* check_channel_types.c: typed values: their bytes, what is refused, and how they go through a channel. */
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <unistd.h>

#include <rdmad/channel_types.h>

#include "base/base.h"
#include "tests/suite.h"

/*
 * What the decoder allocates.
 */
static size_t allocated;
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_reallocarray(void *old, size_t count, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_reallocarray(void *old, size_t count, size_t size);

void *__wrap_malloc(size_t size)
{
	allocated += size;
	return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	allocated += count * size;
	return __real_calloc(count, size);
}

void *__wrap_reallocarray(void *old, size_t count, size_t size)
{
	allocated += count * size;
	return __real_reallocarray(old, count, size);
}

/*
 * A struct with one of everything.
 */
struct point {
	int16_t x;
	double y;
};

static const struct rdmad_field point_fields[] = {
	RDMAD_FIELD(struct point, x, &rdmad_type_i16),
	RDMAD_FIELD(struct point, y, &rdmad_type_double),
};
static const struct rdmad_type point_type = RDMAD_TYPE_STRUCT(struct point, point_fields);
static const struct rdmad_type points_type = RDMAD_TYPE_ARRAY(&point_type, 3);
static const struct rdmad_type maybe_point_type = RDMAD_TYPE_OPTIONAL(&point_type);
static const struct rdmad_type name_type = RDMAD_TYPE_STRING(8);
static const struct rdmad_type names_type = RDMAD_TYPE_ARRAY(&name_type, 4);
static const struct rdmad_type bytes_type = RDMAD_TYPE_BYTES(5);
static const struct rdmad_type words_type = RDMAD_TYPE_ARRAY(&rdmad_type_u32, 1u << 20);
static const struct rdmad_type flags_type = RDMAD_TYPE_ARRAY(&rdmad_type_bool, 4);

struct all {
	bool yes;
	size_t size;
	char *name;
	struct rdmad_array bytes, points, names;
	struct point *here, *nowhere;
	struct rdmad_dim3 grid;
};

static const struct rdmad_field all_fields[] = {
	RDMAD_FIELD(struct all, yes, &rdmad_type_bool),
	RDMAD_FIELD(struct all, size, &rdmad_type_size),
	RDMAD_FIELD(struct all, name, &name_type),
	RDMAD_FIELD(struct all, bytes, &bytes_type),
	RDMAD_FIELD(struct all, points, &points_type),
	RDMAD_FIELD(struct all, names, &names_type),
	RDMAD_FIELD(struct all, here, &maybe_point_type),
	RDMAD_FIELD(struct all, nowhere, &maybe_point_type),
	RDMAD_FIELD(struct all, grid, &rdmad_type_cuda_dim3),
};
static const struct rdmad_type all_type = RDMAD_TYPE_STRUCT(struct all, all_fields);

/* Nothing but numbers: in another order than they have in memory, between which there is padding; and some that share bytes. */
struct plain {
	uint8_t a;
	double d;
	bool yes;
	uint16_t s;
	uint32_t w;
};

static const struct rdmad_field plain_fields[] = {
	RDMAD_FIELD(struct plain, d, &rdmad_type_double), RDMAD_FIELD(struct plain, yes, &rdmad_type_bool),
	RDMAD_FIELD(struct plain, w, &rdmad_type_u32),    RDMAD_FIELD(struct plain, s, &rdmad_type_u16),
	RDMAD_FIELD(struct plain, a, &rdmad_type_u8),
};
static const struct rdmad_type plain_type = RDMAD_TYPE_STRUCT(struct plain, plain_fields);
static const struct plain a_plain = {.a = 0x11, .d = 1.0, .yes = true, .s = 0x2233, .w = 0x44556677};
#define PLAIN_D "000000000000f03f"
#define PLAIN PLAIN_D "0177665544332211"

static const struct rdmad_field shared_fields[] = {
	{"w", 0, 4, &rdmad_type_u32},
	{"high", 2, 2, &rdmad_type_u16},
	{"low", 0, 1, &rdmad_type_u8},
};
static const struct rdmad_type shared_type = RDMAD_TYPE_STRUCT(uint32_t, shared_fields);

static struct point some_points[] = {{-2, 1.0}, {300, -0.5}};
static char *some_names[] = {"a", "", "bcd"};
static const struct all an_all = {
	.yes = true,
	.size = 0x1122334455667788,
	.name = "name",
	.bytes = {"\1\2\0\4", 4},
	.points = {some_points, 2},
	.names = {some_names, 3},
	.here = &some_points[1],
	.grid = {1, 2, 0x10203},
};

/*
 * Golden bytes.
 */
#define HEX_MAX 200
struct golden {
	const char *name;
	const struct rdmad_type *type;
	const void *value;
	const char *hex;
};

#define VALUE(type, ...) (&(const type){__VA_ARGS__})
#define COUNT(n) #n "00000000000000"
#define POINTS "feff000000000000f03f2c01000000000000e0bf"

static const struct golden goldens[] = {
	{"u8", &rdmad_type_u8, VALUE(uint8_t, 0xfe), "fe"},
	{"u16", &rdmad_type_u16, VALUE(uint16_t, 0x1234), "3412"},
	{"u32", &rdmad_type_u32, VALUE(uint32_t, 0x12345678), "78563412"},
	{"u64", &rdmad_type_u64, VALUE(uint64_t, 0x123456789abcdef0), "f0debc9a78563412"},
	{"i8", &rdmad_type_i8, VALUE(int8_t, -1), "ff"},
	{"i16", &rdmad_type_i16, VALUE(int16_t, -2), "feff"},
	{"i32", &rdmad_type_i32, VALUE(int32_t, INT32_MIN), "00000080"},
	{"i64", &rdmad_type_i64, VALUE(int64_t, -3), "fdffffffffffffff"},
	{"false", &rdmad_type_bool, VALUE(bool, false), "00"},
	{"true", &rdmad_type_bool, VALUE(bool, true), "01"},
	{"float", &rdmad_type_float, VALUE(float, -1.5f), "0000c0bf"},
	{"infinity", &rdmad_type_float, VALUE(float, INFINITY), "0000807f"},
	{"double", &rdmad_type_double, VALUE(double, 0.1), "9a9999999999b93f"},
	{"smallest double", &rdmad_type_double, VALUE(double, DBL_TRUE_MIN), "0100000000000000"},
	{"size", &rdmad_type_size, VALUE(size_t, 4096), "0010000000000000"},
	{"string", &name_type, VALUE(char *, "name"), COUNT(04) "6e616d65"},
	{"empty string", &name_type, VALUE(char *, ""), COUNT(00)},
	{"longest string", &name_type, VALUE(char *, "12345678"), COUNT(08) "3132333435363738"},
	{"bytes", &bytes_type, VALUE(struct rdmad_array, "\0\1\377", 3), COUNT(03) "0001ff"},
	{"no bytes", &bytes_type, VALUE(struct rdmad_array, NULL, 0), COUNT(00)},
	{"words", &words_type, VALUE(struct rdmad_array, (uint32_t[]){1, 0xa0b0c0d0}, 2), COUNT(02) "01000000d0c0b0a0"},
	{"flags", &flags_type, VALUE(struct rdmad_array, (bool[]){true, false, true}, 3), COUNT(03) "010001"},
	{"struct", &point_type, &some_points[0], "feff000000000000f03f"},
	{"numbers", &plain_type, &a_plain, PLAIN},
	{"shared bytes", &shared_type, VALUE(uint32_t, 0x44556677), "77665544554477"},
	{"structs", &points_type, VALUE(struct rdmad_array, some_points, 2), COUNT(02) POINTS},
	{"strings", &names_type, VALUE(struct rdmad_array, some_names, 3),
	 COUNT(03) COUNT(01) "61" COUNT(00) COUNT(03) "626364"},
	{"there", &maybe_point_type, VALUE(struct point *, &some_points[0]), "01feff000000000000f03f"},
	{"absent", &maybe_point_type, VALUE(struct point *, NULL), "00"},
	{"cudaErrorUnknown", &rdmad_type_cuda_error, VALUE(uint32_t, 999), "e7030000"},
	{"cudaMemcpyDefault", &rdmad_type_cuda_memcpy_kind, VALUE(uint32_t, 4), "04000000"},
	{"dim3", &rdmad_type_cuda_dim3, VALUE(struct rdmad_dim3, 256, 2, 1), "000100000200000001000000"},
	{"cudaStream_t", &rdmad_type_cuda_handle, VALUE(void *, (void *)0x7f0011223344),
	 "443322110"
	 "07f0000"},
	{"all", &all_type, &an_all,
	 "01"
	 "8877665544332211" COUNT(04) "6e616d65" COUNT(04) "01020004" COUNT(02) POINTS COUNT(03)
		 COUNT(01) "61" COUNT(00) COUNT(03) "626364"
						    "012c01000000000000e0bf"
						    "00"
						    "010000000200000003020100"},
};

static size_t from_hex(const char *hex, uint8_t *bytes)
{
	size_t n = strlen(hex) / 2;

	ck_assert_uint_le(n, HEX_MAX);
	for (size_t i = 0; i < n; i++) {
		unsigned byte;

		ck_assert_int_eq(sscanf(hex + 2 * i, "%2x", &byte), 1);
		bytes[i] = (uint8_t)byte;
	}
	return n;
}

/* Memory that ends where the bytes do, so that a look behind them is seen. */
static uint8_t *exactly(const uint8_t *bytes, size_t n)
{
	uint8_t *copy = __real_malloc(n ? n : 1);

	if (n)
		memcpy(copy, bytes, n);
	return copy;
}

START_TEST(test_golden)
{
	const struct golden *g = &goldens[_i];
	uint8_t want[HEX_MAX], got[HEX_MAX], *bytes;
	size_t n = from_hex(g->hex, want);
	union {
		struct all all;
		uint64_t number;
	} value;

	ck_assert_int_eq(rdmad_type_length(g->type, g->value), (ssize_t)n);
	ck_assert_int_eq(rdmad_type_encode(g->type, g->value, got, sizeof(got)), (ssize_t)n);
	ck_assert_msg(memcmp(got, want, n) == 0, "%s", g->name);

	bytes = exactly(want, n);
	ck_assert_int_eq(rdmad_type_decode(g->type, bytes, n, &value), (ssize_t)n);
	ck_assert_int_eq(rdmad_type_encode(g->type, &value, got, sizeof(got)), (ssize_t)n);
	ck_assert_msg(memcmp(got, want, n) == 0, "%s, decoded", g->name);
	rdmad_type_release(g->type, &value);
	free(bytes);
	for (size_t i = 0; i < g->type->size; i++)
		ck_assert_uint_eq(((uint8_t *)&value)[i], 0);
}
END_TEST

/* Each shorter piece is known to be one, and no room that is too small is written. */
START_TEST(test_shorter)
{
	const struct golden *g = &goldens[_i];
	uint8_t want[HEX_MAX];
	size_t n = from_hex(g->hex, want);

	for (size_t i = 0; i < n; i++) {
		uint8_t *bytes = exactly(want, i);
		struct all value;

		ck_assert_int_eq(rdmad_type_decode(g->type, bytes, i, &value), -ENODATA);
		ck_assert_int_eq(rdmad_type_encode(g->type, g->value, bytes, i), -ENOSPC);
		free(bytes);
	}
}
END_TEST

START_TEST(test_decoded_values)
{
	uint8_t bytes[HEX_MAX];
	ssize_t n = rdmad_type_encode(&all_type, &an_all, bytes, sizeof(bytes));
	struct point *points;
	struct all all;

	ck_assert_int_eq(rdmad_type_decode(&all_type, bytes, (size_t)n, &all), n);
	ck_assert(all.yes && all.size == an_all.size && all.grid.z == 0x10203);
	ck_assert_str_eq(all.name, "name");
	ck_assert_uint_eq(all.bytes.count, 4);
	ck_assert_mem_eq(all.bytes.items, "\1\2\0\4", 4);
	points = all.points.items;
	ck_assert(all.points.count == 2 && points[0].x == -2 && points[1].y < -0.4);
	ck_assert(all.names.count == 3 && strcmp(((char **)all.names.items)[2], "bcd") == 0);
	ck_assert(all.here && all.here->x == 300 && !all.nowhere);
	rdmad_type_release(&all_type, &all);
	rdmad_type_release(&all_type, &all);
}
END_TEST

/*
 * What is refused.
 */
#define MANY "ffffffffffffffff"

static const struct {
	const char *name;
	const struct rdmad_type *type;
	const char *hex;
	int error;
} bad_bytes[] = {
	{"bool", &rdmad_type_bool, "02", -EPROTO},
	{"bool", &rdmad_type_bool, "ff", -EPROTO},
	{"bools", &flags_type, COUNT(03) "010002", -EPROTO},
	{"optional", &maybe_point_type, "02feff000000000000f03f", -EPROTO},
	{"memcpy kind", &rdmad_type_cuda_memcpy_kind, "05000000", -EPROTO},
	{"memcpy kind", &rdmad_type_cuda_memcpy_kind, "04000001", -EPROTO},
	{"bool among numbers", &plain_type, PLAIN_D "0277665544332211", -EPROTO},
	{"0 in a string", &name_type, COUNT(03) "610062", -EPROTO},
	{"string", &name_type, COUNT(09) "616161616161616161", -EMSGSIZE},
	{"string", &name_type, MANY, -EMSGSIZE},
	{"bytes", &bytes_type, COUNT(06) "010203040506", -EMSGSIZE},
	{"words", &words_type, "0100100000000000", -EMSGSIZE},
	{"words", &words_type, "0100000000000040", -EMSGSIZE}, /* 4 times which is 4 */
	{"words", &words_type, "0000100000000000", -ENODATA},
	{"structs", &points_type, COUNT(04) POINTS POINTS, -EMSGSIZE},
	{"strings", &names_type, COUNT(05), -EMSGSIZE},
	{"strings", &names_type, COUNT(02) COUNT(01) "61" COUNT(09), -EMSGSIZE},
	{"all", &all_type,
	 "01"
	 "8877665544332211" COUNT(04) "6e616d65" COUNT(06),
	 -EMSGSIZE},
};

START_TEST(test_bad_bytes)
{
	uint8_t bytes[HEX_MAX];
	size_t n = from_hex(bad_bytes[_i].hex, bytes);
	struct all value;

	allocated = 0;
	ck_assert_int_eq(rdmad_type_decode(bad_bytes[_i].type, bytes, n, &value), bad_bytes[_i].error);
	ck_assert_msg(allocated < 256, "%s: %zu bytes", bad_bytes[_i].name, allocated);
	ck_assert_uint_gt(strlen(rdmad_error()), 10);
	for (size_t i = 0; i < bad_bytes[_i].type->size && bad_bytes[_i].type->kind != RDMAD_NUMBER; i++)
		ck_assert_uint_eq(((uint8_t *)&value)[i], 0);
}
END_TEST

static const struct {
	const char *name;
	const struct rdmad_type *type;
	const void *value;
	int error;
} bad_values[] = {
	{"bool of 2", &rdmad_type_bool, VALUE(uint8_t, 2), -EINVAL},
	{"memcpy kind", &rdmad_type_cuda_memcpy_kind, VALUE(uint32_t, 5), -EINVAL},
	{"bool among numbers", &plain_type, (const uint8_t[sizeof(struct plain)]){[offsetof(struct plain, yes)] = 2},
	 -EINVAL},
	{"NULL string", &name_type, VALUE(char *, NULL), -EINVAL},
	{"NULL and a count", &bytes_type, VALUE(struct rdmad_array, NULL, 1), -EINVAL},
	{"long string", &name_type, VALUE(char *, "123456789"), -EMSGSIZE},
	{"many", &bytes_type, VALUE(struct rdmad_array, "123456", 6), -EMSGSIZE},
	{"bools", &flags_type, VALUE(struct rdmad_array, (uint8_t[]){0, 3}, 2), -EINVAL},
};

START_TEST(test_bad_values)
{
	uint8_t bytes[HEX_MAX];

	ck_assert_int_eq(rdmad_type_encode(bad_values[_i].type, bad_values[_i].value, bytes, sizeof(bytes)),
			 bad_values[_i].error);
	ck_assert_int_eq(rdmad_type_length(bad_values[_i].type, bad_values[_i].value), bad_values[_i].error);
	ck_assert_uint_gt(strlen(rdmad_error()), 10);
}
END_TEST

/* Tables with slips. */
static const struct rdmad_field wrong_size_field[] = {RDMAD_FIELD(struct point, x, &rdmad_type_u32)};
static const struct rdmad_field outside_field[] = {{"x", sizeof(struct point) - 1, 2, &rdmad_type_u16}};
static const struct rdmad_field far_outside_field[] = {{"x", SIZE_MAX, 2, &rdmad_type_u16}};
static const struct rdmad_field no_type_field[] = {RDMAD_FIELD(struct point, x, NULL)};
static const struct rdmad_type three_bytes_type = {RDMAD_NUMBER, 3};
static const struct rdmad_field three_bytes_field[] = {{"x", 0, 3, &three_bytes_type}};
static const struct rdmad_type bad_types[] = {
	{0},
	{RDMAD_STRUCT + 1, 8},
	{(enum rdmad_type_kind) - 1, 8},
	{RDMAD_NUMBER, 0},
	{RDMAD_NUMBER, 3},
	{RDMAD_NUMBER, 16},
	RDMAD_TYPE_STRING(0),
	{RDMAD_STRING, 4, 10},
	RDMAD_TYPE_BYTES(0),
	RDMAD_TYPE_ARRAY(NULL, 1),
	{RDMAD_ARRAY, 8, 10, &rdmad_type_u8},
	RDMAD_TYPE_OPTIONAL(NULL),
	{RDMAD_STRUCT, 8},
	{RDMAD_STRUCT, 8, 0, NULL, point_fields, 0},
	RDMAD_TYPE_STRUCT(struct point, wrong_size_field),
	RDMAD_TYPE_STRUCT(struct point, outside_field),
	RDMAD_TYPE_STRUCT(struct point, far_outside_field),
	RDMAD_TYPE_STRUCT(struct point, no_type_field),
	RDMAD_TYPE_STRUCT(struct point, three_bytes_field),
	RDMAD_TYPE_ARRAY(&bad_types[0], 1),
	RDMAD_TYPE_OPTIONAL(&bad_types[0]),
};

START_TEST(test_bad_types)
{
	static const uint8_t ones[64] = {1, 0, 0, 0, 0, 0, 0, 0, 1};
	struct {
		struct rdmad_array array;
		uint64_t more[8];
	} value = {.array = {&value.more, 1}};
	struct {
		void *items;
		uint64_t count, more[8];
	} got = {NULL, 0, {0}};
	uint8_t bytes[64];

	ck_assert_int_eq(rdmad_type_encode(&bad_types[_i], &value, bytes, sizeof(bytes)), -EINVAL);
	ck_assert_int_eq(rdmad_type_decode(&bad_types[_i], ones, sizeof(ones), &got), -EINVAL);
	ck_assert_uint_gt(strlen(rdmad_error()), 10);
	rdmad_type_release(&bad_types[_i], &got);
	ck_assert_int_eq(rdmad_type_decode(NULL, ones, sizeof(ones), &got), -EINVAL);
	rdmad_type_release(NULL, &got);
	rdmad_type_release(&all_type, NULL);
}
END_TEST

/* A list that a peer makes as long as it likes. */
struct node {
	uint8_t value;
	struct node *next;
};
static const struct rdmad_field node_fields[2];
static const struct rdmad_type node_type = {RDMAD_STRUCT, sizeof(struct node), 0, NULL, node_fields, 2};
static const struct rdmad_type next_type = RDMAD_TYPE_OPTIONAL(&node_type);
static const struct rdmad_field node_fields[2] = {
	RDMAD_FIELD(struct node, value, &rdmad_type_u8),
	RDMAD_FIELD(struct node, next, &next_type),
};

/* Each node is a struct and an optional one, and the last one's number is deepest, as the first one's 0 is. */
START_TEST(test_depth)
{
	struct node list[RDMAD_TYPE_DEPTH] = {{0}}, got;
	uint8_t bytes[3 * RDMAD_TYPE_DEPTH];
	ssize_t n;

	for (unsigned i = 0; i < RDMAD_TYPE_DEPTH / 2 - 1; i++)
		list[i].next = &list[i + 1];
	n = rdmad_type_encode(&node_type, list, bytes, sizeof(bytes));
	ck_assert_int_eq(n, RDMAD_TYPE_DEPTH);
	ck_assert_int_eq(rdmad_type_decode(&node_type, bytes, (size_t)n, &got), n);
	rdmad_type_release(&node_type, &got);

	list[RDMAD_TYPE_DEPTH / 2 - 1].next = &list[RDMAD_TYPE_DEPTH / 2];
	ck_assert_int_eq(rdmad_type_encode(&node_type, list, bytes, sizeof(bytes)), -EINVAL);
	memset(bytes, 1, sizeof(bytes));
	ck_assert_int_eq(rdmad_type_decode(&node_type, bytes, sizeof(bytes), &got), -EPROTO);
}
END_TEST

/*
 * Through a channel.
 */
#define CAPACITY 256
static struct rdmad_channel_listener *listener;
static struct rdmad_channel *near_end, *far_end;
static char url[80];

static void *accept_one(void *arg)
{
	(void)arg;
	ck_assert_int_eq(rdmad_channel_accept(listener, 60000000, &far_end), 0);
	return NULL;
}

static void up(void)
{
	pthread_t thread;

	snprintf(url, sizeof(url), "shm://check-types-%d", (int)getpid());
	ck_assert_msg(rdmad_channel_listen(url, CAPACITY, NULL, &listener) == 0, "%s", rdmad_error());
	ck_assert_int_eq(pthread_create(&thread, NULL, accept_one, NULL), 0);
	ck_assert_msg(rdmad_channel_open(url, CAPACITY, NULL, &near_end) == 0, "%s", rdmad_error());
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

static void down(void)
{
	rdmad_channel_close(near_end);
	rdmad_channel_close(far_end);
	rdmad_channel_listener_close(listener);
}

#define LIMIT 60000000

/* Each value, so often that it lies at each place of the ring. */
START_TEST(test_channel_golden)
{
	const struct golden *g = &goldens[_i];
	uint8_t want[HEX_MAX], got[HEX_MAX];
	size_t n = from_hex(g->hex, want);
	struct all value;

	for (unsigned i = 0; i < 2 * CAPACITY; i++) {
		ck_assert_int_eq(rdmad_channel_put_value(near_end, g->type, g->value, LIMIT), 0);
		ck_assert_int_eq(rdmad_channel_flush(near_end, LIMIT), 0);
		if (i % 2) {
			ck_assert_int_eq(rdmad_channel_get(far_end, got, n, LIMIT), 0);
			ck_assert_msg(memcmp(got, want, n) == 0, "%s", g->name);
			continue;
		}
		ck_assert_int_eq(rdmad_channel_get_value(far_end, g->type, &value, LIMIT), 0);
		ck_assert_int_eq(rdmad_type_encode(g->type, &value, got, sizeof(got)), (ssize_t)n);
		ck_assert_msg(memcmp(got, want, n) == 0, "%s", g->name);
		rdmad_type_release(g->type, &value);
	}
	ck_assert_uint_eq(rdmad_channel_available(far_end), 0);
}
END_TEST

/* A value of which each piece but the last is there is not got at all, and whole afterwards. */
START_TEST(test_channel_whole_or_nothing)
{
	uint8_t bytes[HEX_MAX];
	size_t n = (size_t)rdmad_type_encode(&all_type, &an_all, bytes, sizeof(bytes));
	struct all value;

	for (size_t i = 0; i < n; i++) {
		ck_assert_int_eq(rdmad_channel_put(near_end, bytes, i, LIMIT), 0);
		ck_assert_int_eq(rdmad_channel_flush(near_end, LIMIT), 0);
		ck_assert_int_eq(rdmad_channel_get_value(far_end, &all_type, &value, i % 2), -ETIMEDOUT);
		ck_assert_ptr_null(value.name);
		ck_assert_uint_eq(rdmad_channel_available(far_end), i);
		ck_assert_int_eq(rdmad_channel_put(near_end, bytes + i, n - i, LIMIT), 0);
		ck_assert_int_eq(rdmad_channel_flush(near_end, LIMIT), 0);
		ck_assert_int_eq(rdmad_channel_get_value(far_end, &all_type, &value, 0), 0);
		ck_assert_str_eq(value.name, "name");
		rdmad_type_release(&all_type, &value);
	}
	ck_assert_uint_eq(rdmad_channel_available(far_end), 0);
}
END_TEST

/* Put bytes that nobody looks at, and get them, until the ring's next place is `place`. */
static void move_on(size_t place, size_t ring)
{
	struct rdmad_channel_info info;
	uint8_t fill[CAPACITY] = {0};
	size_t count;

	rdmad_channel_info(near_end, &info);
	for (size_t n = (place + ring - info.bytes_put % ring) % ring; n; n -= count) {
		count = MIN(n, sizeof(fill));
		ck_assert_int_eq(rdmad_channel_put(near_end, fill, count, LIMIT), 0);
		ck_assert_int_eq(rdmad_channel_flush(near_end, LIMIT), 0);
		ck_assert_int_eq(rdmad_channel_get(far_end, fill, count, LIMIT), 0);
	}
}

/* The ring ends at each byte of a struct, of which so many bytes come first, and then the rest; and with none behind it. */
START_TEST(test_channel_numbers_at_end)
{
	size_t ring = (size_t)sysconf(_SC_PAGESIZE), n = strlen(PLAIN) / 2;
	uint8_t bytes[HEX_MAX], got[HEX_MAX];
	struct plain value;

	from_hex(PLAIN, bytes);
	for (size_t i = 0; i <= n; i++) {
		move_on(ring - i, ring);
		ck_assert_int_eq(rdmad_channel_put_value(near_end, &plain_type, &a_plain, LIMIT), 0);
		ck_assert_int_eq(rdmad_channel_flush(near_end, LIMIT), 0);
		ck_assert_int_eq(rdmad_channel_get(far_end, got, n, LIMIT), 0);
		ck_assert_mem_eq(got, bytes, n);

		move_on(ring - i, ring);
		ck_assert_int_eq(rdmad_channel_put(near_end, bytes, i, LIMIT), 0);
		ck_assert_int_eq(rdmad_channel_flush(near_end, LIMIT), 0);
		ck_assert_int_eq(rdmad_channel_get_value(far_end, &plain_type, &value, 0), i < n ? -ETIMEDOUT : 0);
		ck_assert_int_eq(rdmad_channel_put(near_end, bytes + i, n - i, LIMIT), 0);
		ck_assert_int_eq(rdmad_channel_flush(near_end, LIMIT), 0);
		if (i < n)
			ck_assert_int_eq(rdmad_channel_get_value(far_end, &plain_type, &value, LIMIT), 0);
		ck_assert(value.a == 0x11 && value.yes && value.s == 0x2233 && value.w == 0x44556677);
		ck_assert_uint_eq(rdmad_channel_available(far_end), 0);
	}
}
END_TEST

/* One that does not fit is not put, neither by a small nor by a large value. */
START_TEST(test_channel_full)
{
	uint8_t fill[CAPACITY] = {0};

	ck_assert_int_eq(rdmad_channel_put(near_end, fill, CAPACITY - 7, LIMIT), 0);
	ck_assert_int_eq(rdmad_channel_flush(near_end, LIMIT), 0);
	ck_assert_int_eq(rdmad_channel_put_value(near_end, &rdmad_type_u64, VALUE(uint64_t, 1), 1), -ETIMEDOUT);
	ck_assert_int_eq(rdmad_channel_put_value(near_end, &all_type, &an_all, 1), -ETIMEDOUT);
	ck_assert_uint_eq(rdmad_channel_available(far_end), CAPACITY - 7);
	ck_assert_uint_eq(rdmad_channel_room(near_end), 7);
	ck_assert_int_eq(rdmad_channel_put_value(near_end, &rdmad_type_u32, VALUE(uint32_t, 1), 0), 0);
}
END_TEST

/* Nor is a part of one that is longer than half of the ring. */
START_TEST(test_channel_nearly_room)
{
	uint8_t fill[CAPACITY] = {0};
	struct rdmad_array words = {(uint32_t[40]){0}, 40};
	size_t length = (size_t)rdmad_type_length(&words_type, &words), full = CAPACITY - length + 1;

	ck_assert_uint_gt(length, CAPACITY / 2);
	ck_assert_int_eq(rdmad_channel_put(near_end, fill, full, LIMIT), 0);
	ck_assert_int_eq(rdmad_channel_flush(near_end, LIMIT), 0);
	ck_assert_int_eq(rdmad_channel_put_value(near_end, &words_type, &words, 1000), -ETIMEDOUT);
	ck_assert_uint_eq(rdmad_channel_available(far_end), full);
	ck_assert_int_eq(rdmad_channel_get(far_end, fill, 1, LIMIT), 0);
	ck_assert_int_eq(rdmad_channel_put_value(near_end, &words_type, &words, LIMIT), 0);
}
END_TEST

/* What is no value is refused, and stays: an end that asks again is told again. */
START_TEST(test_channel_bad_bytes)
{
	uint8_t bytes[HEX_MAX];
	size_t n = from_hex(bad_bytes[_i].hex, bytes);
	struct all value;

	if (bad_bytes[_i].error == -ENODATA) /* in a channel it may still come */
		return;
	ck_assert_int_eq(rdmad_channel_put(near_end, bytes, n, LIMIT), 0);
	ck_assert_int_eq(rdmad_channel_flush(near_end, LIMIT), 0);
	for (unsigned i = 0; i < 2; i++) {
		allocated = 0;
		ck_assert_int_eq(rdmad_channel_get_value(far_end, bad_bytes[_i].type, &value, LIMIT),
				 bad_bytes[_i].error);
		ck_assert_uint_lt(allocated, 256);
	}
	ck_assert_uint_eq(rdmad_channel_available(far_end), n);
}
END_TEST

/* Values longer than the capacity: of one array, and of many strings. */
struct bulk {
	struct rdmad_array words, names;
};
static const struct rdmad_type many_names_type = RDMAD_TYPE_ARRAY(&name_type, 10000);
static const struct rdmad_field bulk_fields[] = {
	RDMAD_FIELD(struct bulk, words, &words_type),
	RDMAD_FIELD(struct bulk, names, &many_names_type),
};
static const struct rdmad_type bulk_type = RDMAD_TYPE_STRUCT(struct bulk, bulk_fields);

static void *put_bulk(void *arg)
{
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(rdmad_channel_put_value(near_end, &bulk_type, arg, LIMIT), 0);
	ck_assert_int_eq(rdmad_channel_flush(near_end, LIMIT), 0);
	ck_assert_str_eq(rdmad_error(), ""); /* what works is no error */
	return NULL;
}

static void bulk_make(struct bulk *bulk)
{
	static uint32_t words[20000];
	static char *names[1000];

	for (uint32_t i = 0; i < ARRAY_SIZE(words); i++)
		words[i] = i * 2654435761u;
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++)
		names[i] = some_names[i % 3];
	*bulk = (struct bulk){{words, ARRAY_SIZE(words)}, {names, ARRAY_SIZE(names)}};
}

START_TEST(test_channel_bulk)
{
	struct bulk bulk, got;
	pthread_t thread;

	bulk_make(&bulk);
	ck_assert_int_eq(pthread_create(&thread, NULL, put_bulk, &bulk), 0);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(rdmad_channel_get_value(far_end, &bulk_type, &got, LIMIT), 0);
		ck_assert(got.words.count == bulk.words.count && got.names.count == bulk.names.count);
		ck_assert_mem_eq(got.words.items, bulk.words.items, 4 * got.words.count);
		for (unsigned k = 0; k < got.names.count; k++)
			ck_assert_str_eq(((char **)got.names.items)[k], some_names[k % 3]);
		rdmad_type_release(&bulk_type, &got);
	}
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_eq(rdmad_channel_available(far_end), 0);
	ck_assert_ptr_null(strstr(rdmad_error(), "beyond the capacity"));
}
END_TEST

/* The end that gets waits for all of the first array, for which the end that puts has to fill a ring that is nearly
 * full. */
struct two {
	struct rdmad_array first, second;
};
static const struct rdmad_type longer_type = RDMAD_TYPE_BYTES(4 * CAPACITY);
static const struct rdmad_field two_fields[] = {
	RDMAD_FIELD(struct two, first, &longer_type),
	RDMAD_FIELD(struct two, second, &longer_type),
};
static const struct rdmad_type two_type = RDMAD_TYPE_STRUCT(struct two, two_fields);

static void *put_two(void *arg)
{
	ck_assert_int_eq(rdmad_channel_put_value(near_end, &two_type, arg, LIMIT), 0);
	ck_assert_int_eq(rdmad_channel_flush(near_end, LIMIT), 0);
	return NULL;
}

START_TEST(test_channel_nearly_full)
{
	static uint8_t bytes[4 * CAPACITY];
	struct two got;
	pthread_t thread;

	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7);
	for (size_t first = CAPACITY - 12; first < CAPACITY + 12; first++) {
		struct two two = {{bytes, first}, {bytes, sizeof(bytes)}};

		ck_assert_int_eq(pthread_create(&thread, NULL, put_two, &two), 0);
		ck_assert_int_eq(rdmad_channel_get_value(far_end, &two_type, &got, LIMIT), 0);
		ck_assert_uint_eq(got.first.count, first);
		ck_assert_mem_eq(got.first.items, bytes, first);
		ck_assert_mem_eq(got.second.items, bytes, sizeof(bytes));
		rdmad_type_release(&two_type, &got);
		ck_assert_int_eq(pthread_join(thread, NULL), 0);
	}
}
END_TEST

/* In the midst of a long value there is no way back. */
START_TEST(test_channel_bulk_timeout)
{
	static uint32_t words[2 * CAPACITY];
	struct rdmad_array array = {words, ARRAY_SIZE(words)}, got;
	uint8_t count[8] = {0x90, 1}; /* 400 strings, most of which do not come */
	struct rdmad_array names;

	ck_assert_int_eq(rdmad_channel_put(near_end, count, sizeof(count), LIMIT), 0);
	for (unsigned i = 0; i < 100; i++) {
		ck_assert_int_eq(rdmad_channel_put_value(near_end, &name_type, &some_names[2], 1),
				 i < (CAPACITY - 8) / 11 ? 0 : -ETIMEDOUT);
	}
	ck_assert_int_eq(rdmad_channel_flush(near_end, LIMIT), 0);
	ck_assert_int_eq(rdmad_channel_get_value(far_end, &many_names_type, &names, 1000), -EIO);
	ck_assert_ptr_null(names.items);

	ck_assert_int_lt(rdmad_channel_put_value(near_end, &words_type, &array, 1000), 0);
	ck_assert_int_lt(rdmad_channel_get_value(far_end, &words_type, &got, 1000), 0);
	ck_assert_ptr_null(got.items);
}
END_TEST

/* Values that were sent before the end are got; then it is told. */
START_TEST(test_channel_end)
{
	uint64_t number;

	ck_assert_int_eq(rdmad_channel_put_value(near_end, &rdmad_type_u64, VALUE(uint64_t, 7), LIMIT), 0);
	ck_assert_int_eq(rdmad_channel_put_value(near_end, &rdmad_type_u32, VALUE(uint32_t, 8), LIMIT), 0);
	ck_assert_int_eq(rdmad_channel_close(near_end), 0);
	near_end = NULL;
	ck_assert_int_eq(rdmad_channel_get_value(far_end, &rdmad_type_u64, &number, LIMIT), 0);
	ck_assert_uint_eq(number, 7);
	ck_assert_int_eq(rdmad_channel_get_value(far_end, &rdmad_type_u64, &number, LIMIT), -EPIPE);
	ck_assert_int_eq(rdmad_channel_put_value(far_end, &rdmad_type_u64, &number, LIMIT), -EPIPE);
}
END_TEST

/* Each name of the header's own is in the manual. */
START_TEST(test_manual)
{
	char *manual = suite_source("man/rdmad_channel_types.3");
	char *header = suite_source("src/include/rdmad/channel_types.h");
	unsigned names = 0;

	for (char *word = strtok(header, " \t\n#{}()[]<>*&;,.:?|\\/\""); word;
	     word = strtok(NULL, " \t\n#{}()[]<>*&;,.:?|\\/\"")) {
		if ((strncmp(word, "RDMAD_", 6) != 0 && strncmp(word, "rdmad_type_", 11) != 0) ||
		    strcmp(word, "RDMAD_CHANNEL_TYPES_H") == 0)
			continue;
		ck_assert_msg(strstr(manual, word) != NULL, "the manual has no %s", word);
		names++;
	}
	ck_assert_uint_gt(names, 30);
	free(manual);
	free(header);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("channel types");
	TCase *tc = suite_case(suite, "memory", NULL, NULL);

	tcase_add_loop_test(tc, test_golden, 0, ARRAY_SIZE(goldens));
	tcase_add_loop_test(tc, test_shorter, 0, ARRAY_SIZE(goldens));
	tcase_add_test(tc, test_decoded_values);
	tcase_add_loop_test(tc, test_bad_bytes, 0, ARRAY_SIZE(bad_bytes));
	tcase_add_loop_test(tc, test_bad_values, 0, ARRAY_SIZE(bad_values));
	tcase_add_loop_test(tc, test_bad_types, 0, ARRAY_SIZE(bad_types));
	tcase_add_test(tc, test_depth);
	tcase_add_test(tc, test_manual);
	tc = suite_case(suite, "channel", up, down);
	tcase_add_loop_test(tc, test_channel_golden, 0, ARRAY_SIZE(goldens));
	tcase_add_test(tc, test_channel_whole_or_nothing);
	tcase_add_test(tc, test_channel_numbers_at_end);
	tcase_add_test(tc, test_channel_full);
	tcase_add_test(tc, test_channel_nearly_room);
	tcase_add_loop_test(tc, test_channel_bad_bytes, 0, ARRAY_SIZE(bad_bytes));
	tcase_add_test(tc, test_channel_bulk);
	tcase_add_test(tc, test_channel_nearly_full);
	tcase_add_test(tc, test_channel_bulk_timeout);
	tcase_add_test(tc, test_channel_end);
	return suite_run(suite);
}
