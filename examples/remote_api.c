/* remote_api.c: the calls of remote.h. Each is put into the channel; one that is answered waits, and so all before it leave. */
#include "remote.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#define SECONDS 1000000ull
#define LIMIT (60 * SECONDS)

static struct rdmad_channel *channel;

enum remote_error remote_connect(const char *url)
{
	int rc, tries = 100;

	/* A server that was started just now may not listen yet. */
	while (((rc = rdmad_channel_open(url, REMOTE_CAPACITY, NULL, &channel)) == -ENOENT || rc == -ECONNREFUSED) &&
	       --tries)
		poll(NULL, 0, 50);
	return rc == 0 ? REMOTE_SUCCESS : REMOTE_CONNECTION;
}

enum remote_error remote_disconnect(void)
{
	int rc = rdmad_channel_close(channel);

	channel = NULL;
	return rc == 0 ? REMOTE_SUCCESS : REMOTE_CONNECTION;
}

const char *remote_error_name(enum remote_error error)
{
	switch (error) {
	case REMOTE_SUCCESS:
		return "success";
	case REMOTE_INVALID_VALUE:
		return "invalid value";
	case REMOTE_OUT_OF_MEMORY:
		return "out of memory";
	case REMOTE_INVALID_ADDRESS:
		return "invalid address";
	case REMOTE_INVALID_COPY:
		return "invalid direction of a copy";
	case REMOTE_NO_DEVICE:
		return "no such device";
	case REMOTE_INVALID_STREAM:
		return "invalid stream";
	case REMOTE_NOT_FOUND:
		return "no such operation";
	case REMOTE_CONNECTION:
		return rdmad_error();
	}
	return "unknown";
}

/* Put a call: no answer is waited for, and nothing need be sent yet. */
static enum remote_error put_call(uint32_t number, const void *arguments)
{
	const struct rdmad_type *type = remote_calls[number].arguments;

	if (rdmad_channel_put_value(channel, &rdmad_type_u32, &number, LIMIT) != 0)
		return REMOTE_CONNECTION;
	if (type && rdmad_channel_put_value(channel, type, arguments, LIMIT) != 0)
		return REMOTE_CONNECTION;
	return REMOTE_SUCCESS;
}

/* Put a call and get its answer. */
static enum remote_error ask(uint32_t number, const void *arguments, void *answer)
{
	const struct rdmad_type *type = remote_calls[number].answer;
	uint32_t error;

	if (put_call(number, arguments) != REMOTE_SUCCESS ||
	    rdmad_channel_get_value(channel, &rdmad_type_cuda_error, &error, LIMIT) != 0)
		return REMOTE_CONNECTION;
	if (error == REMOTE_SUCCESS && type && rdmad_channel_get_value(channel, type, answer, LIMIT) != 0)
		return REMOTE_CONNECTION;
	return (enum remote_error)error;
}

enum remote_error remote_get_device_count(uint32_t *count)
{
	return ask(REMOTE_DEVICE_COUNT, NULL, count);
}

enum remote_error remote_get_device_properties(uint32_t device, struct remote_properties *properties)
{
	struct remote_properties_answer answer;
	enum remote_error error = ask(REMOTE_DEVICE_PROPERTIES, &device, &answer);

	if (error != REMOTE_SUCCESS)
		return error;
	strcpy(properties->name, answer.name); /* its type has a limit */
	properties->memory = answer.memory;
	properties->processors = answer.processors;
	rdmad_type_release(remote_calls[REMOTE_DEVICE_PROPERTIES].answer, &answer);
	return error;
}

enum remote_error remote_malloc(remote_address *address, uint64_t size)
{
	return ask(REMOTE_MALLOC, &size, address);
}

enum remote_error remote_free(remote_address address)
{
	return put_call(REMOTE_FREE, &address);
}

enum remote_error remote_memset(remote_address to, uint8_t byte, uint64_t size, remote_stream stream)
{
	struct remote_memset_arguments arguments = {to, size, stream, byte};

	return put_call(REMOTE_MEMSET, &arguments);
}

/* The bytes go from the caller's memory into the ring, whether they fit at once or not. */
enum remote_error remote_copy_to_device(remote_address to, const void *from, uint64_t size, remote_stream stream)
{
	struct remote_copy_arguments arguments = {to, 0, size, stream, REMOTE_HOST_TO_DEVICE};

	if (put_call(REMOTE_COPY_TO_DEVICE, &arguments) != REMOTE_SUCCESS ||
	    rdmad_channel_put(channel, from, size, LIMIT) != 0)
		return REMOTE_CONNECTION;
	return REMOTE_SUCCESS;
}

enum remote_error remote_copy_on_device(remote_address to, remote_address from, uint64_t size, remote_stream stream)
{
	struct remote_copy_arguments arguments = {to, from, size, stream, REMOTE_DEVICE_TO_DEVICE};

	return put_call(REMOTE_COPY_ON_DEVICE, &arguments);
}

enum remote_error remote_copy_to_host(void *to, remote_address from, uint64_t size, remote_stream stream)
{
	struct remote_copy_arguments arguments = {0, from, size, stream, REMOTE_DEVICE_TO_HOST};
	enum remote_error error = ask(REMOTE_COPY_TO_HOST, &arguments, NULL);

	if (error == REMOTE_SUCCESS && rdmad_channel_get(channel, to, size, LIMIT) != 0)
		return REMOTE_CONNECTION;
	return error;
}

enum remote_error remote_launch(const char *operation, struct rdmad_dim3 grid, struct rdmad_dim3 block,
				const uint64_t *arguments, unsigned count, remote_stream stream)
{
	struct remote_launch_arguments launch = {
		(char *)(uintptr_t)operation, grid, block, stream, {(void *)(uintptr_t)arguments, count}};

	if (!operation || strlen(operation) > REMOTE_NAME || count > REMOTE_ARGUMENTS || (!arguments && count))
		return REMOTE_INVALID_VALUE;
	return put_call(REMOTE_LAUNCH, &launch);
}

enum remote_error remote_stream_create(remote_stream *stream)
{
	return ask(REMOTE_STREAM_CREATE, NULL, stream);
}

enum remote_error remote_stream_destroy(remote_stream stream)
{
	return put_call(REMOTE_STREAM_DESTROY, &stream);
}

enum remote_error remote_stream_synchronize(remote_stream stream)
{
	return ask(REMOTE_STREAM_SYNCHRONIZE, &stream, NULL);
}

enum remote_error remote_device_synchronize(void)
{
	return ask(REMOTE_DEVICE_SYNCHRONIZE, NULL, NULL);
}

enum remote_error remote_get_last_error(void)
{
	return ask(REMOTE_LAST_ERROR, NULL, NULL);
}
