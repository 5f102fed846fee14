/* types.c: the typed decoder of channels. The first byte chooses a type; what is decoded encodes to the bytes it came from. */
#include <stdlib.h>

#include <rdmad/channel_types.h>

#include "fuzz.h"

struct leaf {
	uint8_t number;
	bool flag;
	struct rdmad_dim3 grid;
	uint32_t kind;
};

struct tree {
	char *name;
	struct rdmad_array leaves, children; /* of leaves; of trees */
	struct tree *next;
};

static const struct rdmad_field leaf_fields[] = {
	RDMAD_FIELD(struct leaf, number, &rdmad_type_u8),
	RDMAD_FIELD(struct leaf, flag, &rdmad_type_bool),
	RDMAD_FIELD(struct leaf, grid, &rdmad_type_cuda_dim3),
	RDMAD_FIELD(struct leaf, kind, &rdmad_type_cuda_memcpy_kind),
};
static const struct rdmad_type leaf_type = RDMAD_TYPE_STRUCT(struct leaf, leaf_fields);
static const struct rdmad_type leaves_type = RDMAD_TYPE_ARRAY(&leaf_type, 100);
static const struct rdmad_type name_type = RDMAD_TYPE_STRING(20);
static const struct rdmad_type names_type = RDMAD_TYPE_ARRAY(&name_type, 1000);
static const struct rdmad_field tree_fields[4];
static const struct rdmad_type tree_type = {RDMAD_STRUCT, sizeof(struct tree), 0, NULL, tree_fields, 4};
static const struct rdmad_type trees_type = RDMAD_TYPE_ARRAY(&tree_type, 100);
static const struct rdmad_type next_type = RDMAD_TYPE_OPTIONAL(&tree_type);
static const struct rdmad_field tree_fields[4] = {
	RDMAD_FIELD(struct tree, name, &name_type),
	RDMAD_FIELD(struct tree, leaves, &leaves_type),
	RDMAD_FIELD(struct tree, children, &trees_type),
	RDMAD_FIELD(struct tree, next, &next_type),
};
static const struct rdmad_type words_type = RDMAD_TYPE_ARRAY(&rdmad_type_u32, UINT64_MAX);
static const struct rdmad_type flags_type = RDMAD_TYPE_ARRAY(&rdmad_type_bool, UINT64_MAX);
static const struct rdmad_type text_type = RDMAD_TYPE_STRING(UINT64_MAX);

static const struct rdmad_type *const types[] = {
	&tree_type, &leaf_type, &names_type, &words_type, &flags_type, &text_type, &next_type, &rdmad_type_float,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct rdmad_type *type;
	uint8_t *bytes, *again;
	struct tree value;
	ssize_t n;

	fuzz_silence();
	if (!size)
		return 0;
	type = types[*data % ARRAY_SIZE(types)];
	/* Exactly as long: a read behind it is seen. */
	bytes = malloc(size);
	again = malloc(size);
	REQUIRE(bytes && again);
	memcpy(bytes, data + 1, --size);
	bytes = realloc(bytes, size ? size : 1);
	n = rdmad_type_decode(type, bytes, size, &value);
	if (n >= 0) {
		REQUIRE((size_t)n <= size && rdmad_type_length(type, &value) == n);
		REQUIRE(rdmad_type_encode(type, &value, again, size) == n && memcmp(bytes, again, (size_t)n) == 0);
		rdmad_type_release(type, &value);
	} else {
		REQUIRE(n == -EPROTO || n == -EMSGSIZE || n == -ENODATA || n == -ENOMEM);
	}
	free(again);
	free(bytes);
	return 0;
}
