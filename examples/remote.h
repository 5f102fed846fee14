/*
 * remote.h: the runtime of an accelerator that another process has, shaped after CUDA's. remote_api.c has the calls, which go
 * through a channel; remote_server.c carries them out on a processor.
 *
 * A program has one server, and one thread that calls. Calls that have nothing to answer do not wait: what becomes wrong with
 * them is told by the next remote_stream_synchronize(), remote_device_synchronize() or remote_get_last_error().
 */
#ifndef REMOTE_H
#define REMOTE_H

#include <rdmad/channel_types.h>

#define REMOTE_CAPACITY (256u << 10) /* of the channel, at both ends */
#define REMOTE_ARGUMENTS 8           /* of a launch, at most */
#define REMOTE_NAME 63               /* characters, at most */

/* The numbers are those of CUDA's errors. */
enum remote_error {
	REMOTE_SUCCESS = 0,
	REMOTE_INVALID_VALUE = 1,
	REMOTE_OUT_OF_MEMORY = 2,
	REMOTE_INVALID_ADDRESS = 17,
	REMOTE_INVALID_COPY = 21,
	REMOTE_NO_DEVICE = 100,
	REMOTE_INVALID_STREAM = 400,
	REMOTE_NOT_FOUND = 500,
	REMOTE_CONNECTION = 999 /* rdmad_error() says what it is */
};

enum remote_copy_kind { REMOTE_HOST_TO_HOST, REMOTE_HOST_TO_DEVICE, REMOTE_DEVICE_TO_HOST, REMOTE_DEVICE_TO_DEVICE };

typedef uint64_t remote_address; /* of the server's memory */
typedef uint64_t remote_stream;  /* 0: the one that is always there */

struct remote_properties {
	char name[REMOTE_NAME + 1];
	uint64_t memory;
	uint32_t processors;
};

/*
 * remote_api.c
 */
enum remote_error remote_connect(const char *url);
enum remote_error remote_disconnect(void);
const char *remote_error_name(enum remote_error error);

/* These wait for an answer. */
enum remote_error remote_get_device_count(uint32_t *count);
enum remote_error remote_get_device_properties(uint32_t device, struct remote_properties *properties);
enum remote_error remote_malloc(remote_address *address, uint64_t size);
enum remote_error remote_stream_create(remote_stream *stream);
enum remote_error remote_stream_synchronize(remote_stream stream);
enum remote_error remote_device_synchronize(void);
enum remote_error remote_get_last_error(void); /* and forget it */
enum remote_error remote_copy_to_host(void *to, remote_address from, uint64_t size, remote_stream stream);

/* These do not. */
enum remote_error remote_free(remote_address address);
enum remote_error remote_memset(remote_address to, uint8_t byte, uint64_t size, remote_stream stream);
enum remote_error remote_copy_to_device(remote_address to, const void *from, uint64_t size, remote_stream stream);
enum remote_error remote_copy_on_device(remote_address to, remote_address from, uint64_t size, remote_stream stream);
enum remote_error remote_launch(const char *operation, struct rdmad_dim3 grid, struct rdmad_dim3 block,
				const uint64_t *arguments, unsigned count, remote_stream stream);
enum remote_error remote_stream_destroy(remote_stream stream);

/*
 * remote.c: what goes through the channel: the number of a call and its arguments; where it is answered, an error and,
 * if that is REMOTE_SUCCESS, the answer. The bytes of a copy from or to the host come behind its arguments or its answer.
 */
enum remote_number {
	REMOTE_DEVICE_COUNT = 1,
	REMOTE_DEVICE_PROPERTIES,
	REMOTE_MALLOC,
	REMOTE_FREE,
	REMOTE_MEMSET,
	REMOTE_COPY_TO_DEVICE,
	REMOTE_COPY_ON_DEVICE,
	REMOTE_COPY_TO_HOST,
	REMOTE_LAUNCH,
	REMOTE_STREAM_CREATE,
	REMOTE_STREAM_DESTROY,
	REMOTE_STREAM_SYNCHRONIZE,
	REMOTE_DEVICE_SYNCHRONIZE,
	REMOTE_LAST_ERROR,
	REMOTE_NUMBERS
};

struct remote_memset_arguments {
	uint64_t to, size, stream;
	uint8_t byte;
};

struct remote_copy_arguments {
	uint64_t to, from, size, stream; /* an address of the host is 0 */
	uint32_t kind;
};

struct remote_launch_arguments {
	char *operation;
	struct rdmad_dim3 grid, block;
	uint64_t stream;
	struct rdmad_array arguments; /* of uint64_t */
};

struct remote_properties_answer {
	char *name;
	uint64_t memory;
	uint32_t processors;
};

union remote_arguments {
	uint64_t number; /* a size, an address, a stream */
	uint32_t device;
	struct remote_memset_arguments memset;
	struct remote_copy_arguments copy;
	struct remote_launch_arguments launch;
};

union remote_answer {
	uint32_t count;
	uint64_t number;
	struct remote_properties_answer properties;
};

struct remote_call {
	const struct rdmad_type *arguments; /* NULL: none */
	bool answered;
	const struct rdmad_type *answer; /* NULL: nothing but the error */
};

extern const struct remote_call remote_calls[REMOTE_NUMBERS];

#endif
