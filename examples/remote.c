/* remote.c: the calls and their types, the same for client and server. */
#include "remote.h"

static const struct rdmad_type name_type = RDMAD_TYPE_STRING(REMOTE_NAME);
static const struct rdmad_type numbers_type = RDMAD_TYPE_ARRAY(&rdmad_type_u64, REMOTE_ARGUMENTS);

static const struct rdmad_field memset_fields[] = {
	RDMAD_FIELD(struct remote_memset_arguments, to, &rdmad_type_cuda_handle),
	RDMAD_FIELD(struct remote_memset_arguments, size, &rdmad_type_size),
	RDMAD_FIELD(struct remote_memset_arguments, stream, &rdmad_type_cuda_handle),
	RDMAD_FIELD(struct remote_memset_arguments, byte, &rdmad_type_u8),
};
static const struct rdmad_type memset_type = RDMAD_TYPE_STRUCT(struct remote_memset_arguments, memset_fields);

static const struct rdmad_field copy_fields[] = {
	RDMAD_FIELD(struct remote_copy_arguments, to, &rdmad_type_cuda_handle),
	RDMAD_FIELD(struct remote_copy_arguments, from, &rdmad_type_cuda_handle),
	RDMAD_FIELD(struct remote_copy_arguments, size, &rdmad_type_size),
	RDMAD_FIELD(struct remote_copy_arguments, stream, &rdmad_type_cuda_handle),
	RDMAD_FIELD(struct remote_copy_arguments, kind, &rdmad_type_cuda_memcpy_kind),
};
static const struct rdmad_type copy_type = RDMAD_TYPE_STRUCT(struct remote_copy_arguments, copy_fields);

static const struct rdmad_field launch_fields[] = {
	RDMAD_FIELD(struct remote_launch_arguments, operation, &name_type),
	RDMAD_FIELD(struct remote_launch_arguments, grid, &rdmad_type_cuda_dim3),
	RDMAD_FIELD(struct remote_launch_arguments, block, &rdmad_type_cuda_dim3),
	RDMAD_FIELD(struct remote_launch_arguments, stream, &rdmad_type_cuda_handle),
	RDMAD_FIELD(struct remote_launch_arguments, arguments, &numbers_type),
};
static const struct rdmad_type launch_type = RDMAD_TYPE_STRUCT(struct remote_launch_arguments, launch_fields);

static const struct rdmad_field properties_fields[] = {
	RDMAD_FIELD(struct remote_properties_answer, name, &name_type),
	RDMAD_FIELD(struct remote_properties_answer, memory, &rdmad_type_size),
	RDMAD_FIELD(struct remote_properties_answer, processors, &rdmad_type_u32),
};
static const struct rdmad_type properties_type = RDMAD_TYPE_STRUCT(struct remote_properties_answer, properties_fields);

const struct remote_call remote_calls[REMOTE_NUMBERS] = {
	[REMOTE_DEVICE_COUNT] = {NULL, true, &rdmad_type_u32},
	[REMOTE_DEVICE_PROPERTIES] = {&rdmad_type_u32, true, &properties_type},
	[REMOTE_MALLOC] = {&rdmad_type_size, true, &rdmad_type_cuda_handle},
	[REMOTE_FREE] = {&rdmad_type_cuda_handle, false, NULL},
	[REMOTE_MEMSET] = {&memset_type, false, NULL},
	[REMOTE_COPY_TO_DEVICE] = {&copy_type, false, NULL},
	[REMOTE_COPY_ON_DEVICE] = {&copy_type, false, NULL},
	[REMOTE_COPY_TO_HOST] = {&copy_type, true, NULL},
	[REMOTE_LAUNCH] = {&launch_type, false, NULL},
	[REMOTE_STREAM_CREATE] = {NULL, true, &rdmad_type_cuda_handle},
	[REMOTE_STREAM_DESTROY] = {&rdmad_type_cuda_handle, false, NULL},
	[REMOTE_STREAM_SYNCHRONIZE] = {&rdmad_type_cuda_handle, true, NULL},
	[REMOTE_DEVICE_SYNCHRONIZE] = {NULL, true, NULL},
	[REMOTE_LAST_ERROR] = {NULL, true, NULL},
};
