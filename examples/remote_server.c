/*
 * remote_server.c: carries out the calls of remote.h on a processor: a thread and an account of memory for each client. Nothing of
 * a client is trusted: numbers, counts and names are checked by their types, addresses, sizes and streams here. A client that sends
 * what is no call loses its connection; any other mistake is an error that it is told of. Usage: remote_server URL
 */
#define _GNU_SOURCE
#include "remote.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECONDS 1000000ull
#define LIMIT (30 * SECONDS) /* for the rest of a call that has begun, and for room for an answer */
#define MEMORY (64ull << 20) /* of one client */
#define ALLOCATIONS 256
#define STREAMS 64
#define FIRST_ADDRESS (1ull << 32)
#define ALIGN 4096ull

struct allocation {
	uint64_t address, size;
	uint8_t *bytes; /* NULL: not in use */
};

struct session {
	struct rdmad_channel *channel;
	struct allocation allocation[ALLOCATIONS];
	uint64_t next_address, memory;
	bool stream[STREAMS]; /* 0 is always there */
	enum remote_error last;
	const uint8_t *to_send; /* behind the answer */
	uint64_t send_size;
	int broken; /* of the channel */
};

/*
 * What addresses and streams mean.
 */
static struct allocation *allocation_at(struct session *session, uint64_t address, uint64_t size)
{
	for (unsigned i = 0; i < ALLOCATIONS; i++) {
		struct allocation *a = &session->allocation[i];

		if (a->bytes && address >= a->address && address - a->address <= a->size &&
		    size <= a->size - (address - a->address))
			return a;
	}
	return NULL;
}

/* NULL: this client has no such memory. */
static uint8_t *bytes_at(struct session *session, uint64_t address, uint64_t size)
{
	struct allocation *a = allocation_at(session, address, size);

	return a ? a->bytes + (address - a->address) : NULL;
}

static bool stream_is(const struct session *session, uint64_t stream)
{
	return stream == 0 || (stream < STREAMS && session->stream[stream]);
}

/*
 * The operations that can be launched.
 */
static enum remote_error quantize(struct session *session, const uint64_t *argument)
{
	uint64_t width = argument[2], height = argument[3], levels = argument[4], pixels, up_to[256] = {0};
	const uint8_t *in;
	uint8_t *out, map[256];

	if (width == 0 || height == 0 || width > MEMORY || height > MEMORY || levels == 0 || levels > 256)
		return REMOTE_INVALID_VALUE;
	pixels = width * height;
	in = bytes_at(session, argument[0], pixels);
	out = bytes_at(session, argument[1], pixels);
	if (!in || !out)
		return REMOTE_INVALID_ADDRESS;
	for (uint64_t i = 0; i < pixels; i++)
		up_to[in[i]]++;
	for (unsigned v = 1; v < 256; v++)
		up_to[v] += up_to[v - 1];
	for (unsigned v = 0; v < 256; v++)
		map[v] = (uint8_t)(256 / levels * (levels * up_to[v] / pixels));
	for (uint64_t i = 0; i < pixels; i++)
		out[i] = map[in[i]];
	return REMOTE_SUCCESS;
}

static enum remote_error echo(struct session *session, const uint64_t *argument)
{
	const uint8_t *in = bytes_at(session, argument[0], argument[2]);
	uint8_t *out = bytes_at(session, argument[1], argument[2]);

	if (!in || !out)
		return REMOTE_INVALID_ADDRESS;
	memmove(out, in, argument[2]);
	return REMOTE_SUCCESS;
}

static const struct {
	const char *name;
	unsigned arguments;
	enum remote_error (*run)(struct session *session, const uint64_t *argument);
} operations[] = {
	{"quantize", 5, quantize}, /* in, out, width, height, levels */
	{"echo", 3, echo},         /* in, out, size */
};

/*
 * The calls.
 */
static enum remote_error serve_device_count(struct session *session, union remote_arguments *a,
					    union remote_answer *answer)
{
	(void)session, (void)a;
	answer->count = 1;
	return REMOTE_SUCCESS;
}

static enum remote_error serve_device_properties(struct session *session, union remote_arguments *a,
						 union remote_answer *answer)
{
	static char name[] = "a processor";

	(void)session;
	if (a->device != 0)
		return REMOTE_NO_DEVICE;
	answer->properties = (struct remote_properties_answer){name, MEMORY, (uint32_t)sysconf(_SC_NPROCESSORS_ONLN)};
	return REMOTE_SUCCESS;
}

static enum remote_error serve_malloc(struct session *session, union remote_arguments *a, union remote_answer *answer)
{
	uint64_t size = a->number;

	if (size == 0)
		return REMOTE_INVALID_VALUE;
	for (unsigned i = 0; i < ALLOCATIONS && size <= MEMORY - session->memory; i++) {
		struct allocation *free_one = &session->allocation[i];

		if (free_one->bytes)
			continue;
		free_one->bytes = calloc(1, size);
		if (!free_one->bytes)
			break;
		free_one->address = answer->number = session->next_address;
		free_one->size = size;
		session->next_address += (size + 2 * ALIGN - 1) / ALIGN * ALIGN; /* a gap: overruns are seen */
		session->memory += size;
		return REMOTE_SUCCESS;
	}
	return REMOTE_OUT_OF_MEMORY;
}

static enum remote_error serve_free(struct session *session, union remote_arguments *a, union remote_answer *answer)
{
	struct allocation *there = allocation_at(session, a->number, 0);

	(void)answer;
	if (!there || there->address != a->number)
		return REMOTE_INVALID_ADDRESS;
	session->memory -= there->size;
	free(there->bytes);
	there->bytes = NULL;
	return REMOTE_SUCCESS;
}

static enum remote_error serve_memset(struct session *session, union remote_arguments *a, union remote_answer *answer)
{
	uint8_t *to = bytes_at(session, a->memset.to, a->memset.size);

	(void)answer;
	if (!stream_is(session, a->memset.stream))
		return REMOTE_INVALID_STREAM;
	if (!to)
		return REMOTE_INVALID_ADDRESS;
	memset(to, a->memset.byte, a->memset.size);
	return REMOTE_SUCCESS;
}

/* The bytes follow, and must be got also where they cannot be used. */
static int drop(struct session *session, uint64_t size)
{
	while (size && !session->broken) {
		const void *bytes;
		size_t there;

		session->broken = rdmad_channel_view(session->channel, 1, LIMIT, &bytes, &there);
		if (session->broken)
			break;
		if (there > size)
			there = size;
		session->broken = rdmad_channel_consume(session->channel, there);
		size -= there;
	}
	return session->broken;
}

static enum remote_error copy_check(struct session *session, const struct remote_copy_arguments *copy, uint32_t kind)
{
	if (copy->kind != kind)
		return REMOTE_INVALID_COPY;
	return stream_is(session, copy->stream) ? REMOTE_SUCCESS : REMOTE_INVALID_STREAM;
}

static enum remote_error serve_copy_to_device(struct session *session, union remote_arguments *a,
					      union remote_answer *answer)
{
	uint8_t *to = bytes_at(session, a->copy.to, a->copy.size);
	enum remote_error error = copy_check(session, &a->copy, REMOTE_HOST_TO_DEVICE);

	(void)answer;
	if (!to || error != REMOTE_SUCCESS) {
		drop(session, a->copy.size);
		return error != REMOTE_SUCCESS ? error : REMOTE_INVALID_ADDRESS;
	}
	session->broken = rdmad_channel_get(session->channel, to, a->copy.size, LIMIT);
	return REMOTE_SUCCESS;
}

static enum remote_error serve_copy_on_device(struct session *session, union remote_arguments *a,
					      union remote_answer *answer)
{
	const uint8_t *from = bytes_at(session, a->copy.from, a->copy.size);
	uint8_t *to = bytes_at(session, a->copy.to, a->copy.size);
	enum remote_error error = copy_check(session, &a->copy, REMOTE_DEVICE_TO_DEVICE);

	(void)answer;
	if (error != REMOTE_SUCCESS)
		return error;
	if (!from || !to)
		return REMOTE_INVALID_ADDRESS;
	memmove(to, from, a->copy.size);
	return REMOTE_SUCCESS;
}

static enum remote_error serve_copy_to_host(struct session *session, union remote_arguments *a,
					    union remote_answer *answer)
{
	const uint8_t *from = bytes_at(session, a->copy.from, a->copy.size);
	enum remote_error error = copy_check(session, &a->copy, REMOTE_DEVICE_TO_HOST);

	(void)answer;
	if (error != REMOTE_SUCCESS)
		return error;
	if (!from)
		return REMOTE_INVALID_ADDRESS;
	session->to_send = from;
	session->send_size = a->copy.size;
	return REMOTE_SUCCESS;
}

static enum remote_error serve_launch(struct session *session, union remote_arguments *a, union remote_answer *answer)
{
	const struct rdmad_dim3 *grid = &a->launch.grid, *block = &a->launch.block;

	(void)answer;
	if (!stream_is(session, a->launch.stream))
		return REMOTE_INVALID_STREAM;
	if (!grid->x || !grid->y || !grid->z || !block->x || !block->y || !block->z)
		return REMOTE_INVALID_VALUE;
	for (unsigned i = 0; i < sizeof(operations) / sizeof(operations[0]); i++) {
		if (strcmp(operations[i].name, a->launch.operation) != 0)
			continue;
		if (a->launch.arguments.count != operations[i].arguments)
			return REMOTE_INVALID_VALUE;
		return operations[i].run(session, a->launch.arguments.items);
	}
	return REMOTE_NOT_FOUND;
}

static enum remote_error serve_stream_create(struct session *session, union remote_arguments *a,
					     union remote_answer *answer)
{
	(void)a;
	for (unsigned i = 1; i < STREAMS; i++) {
		if (session->stream[i])
			continue;
		session->stream[i] = true;
		answer->number = i;
		return REMOTE_SUCCESS;
	}
	return REMOTE_OUT_OF_MEMORY;
}

static enum remote_error serve_stream_destroy(struct session *session, union remote_arguments *a,
					      union remote_answer *answer)
{
	(void)answer;
	if (a->number == 0 || !stream_is(session, a->number))
		return REMOTE_INVALID_STREAM;
	session->stream[a->number] = false;
	return REMOTE_SUCCESS;
}

/* All is done when it is asked for, so that there is only to tell how it went. */
static enum remote_error serve_stream_synchronize(struct session *session, union remote_arguments *a,
						  union remote_answer *answer)
{
	(void)answer;
	return stream_is(session, a->number) ? session->last : REMOTE_INVALID_STREAM;
}

static enum remote_error serve_device_synchronize(struct session *session, union remote_arguments *a,
						  union remote_answer *answer)
{
	(void)a, (void)answer;
	return session->last;
}

static enum remote_error serve_last_error(struct session *session, union remote_arguments *a,
					  union remote_answer *answer)
{
	enum remote_error last = session->last;

	(void)a, (void)answer;
	session->last = REMOTE_SUCCESS;
	return last;
}

static enum remote_error (*const serve[REMOTE_NUMBERS])(struct session *session, union remote_arguments *arguments,
							union remote_answer *answer) = {
	[REMOTE_DEVICE_COUNT] = serve_device_count,
	[REMOTE_DEVICE_PROPERTIES] = serve_device_properties,
	[REMOTE_MALLOC] = serve_malloc,
	[REMOTE_FREE] = serve_free,
	[REMOTE_MEMSET] = serve_memset,
	[REMOTE_COPY_TO_DEVICE] = serve_copy_to_device,
	[REMOTE_COPY_ON_DEVICE] = serve_copy_on_device,
	[REMOTE_COPY_TO_HOST] = serve_copy_to_host,
	[REMOTE_LAUNCH] = serve_launch,
	[REMOTE_STREAM_CREATE] = serve_stream_create,
	[REMOTE_STREAM_DESTROY] = serve_stream_destroy,
	[REMOTE_STREAM_SYNCHRONIZE] = serve_stream_synchronize,
	[REMOTE_DEVICE_SYNCHRONIZE] = serve_device_synchronize,
	[REMOTE_LAST_ERROR] = serve_last_error,
};

/*
 * A client.
 */
static int send_answer(struct session *session, const struct remote_call *call, uint32_t error,
		       const union remote_answer *answer)
{
	int rc = rdmad_channel_put_value(session->channel, &rdmad_type_cuda_error, &error, LIMIT);

	if (rc == 0 && error == REMOTE_SUCCESS && call->answer)
		rc = rdmad_channel_put_value(session->channel, call->answer, answer, LIMIT);
	if (rc == 0 && session->to_send)
		rc = rdmad_channel_put(session->channel, session->to_send, session->send_size, LIMIT);
	session->to_send = NULL;
	return rc ? rc : rdmad_channel_flush(session->channel, LIMIT);
}

/* 0, or why the connection ends: -EPIPE, in peace. */
static int serve_call(struct session *session)
{
	union remote_arguments arguments;
	const struct remote_call *call;
	union remote_answer answer;
	enum remote_error error;
	uint32_t number;
	int rc;

	rc = rdmad_channel_get_value(session->channel, &rdmad_type_u32, &number, RDMAD_CHANNEL_FOREVER);
	if (rc != 0)
		return rc;
	if (number >= REMOTE_NUMBERS || !serve[number])
		return -EPROTO;
	call = &remote_calls[number];
	if (call->arguments)
		rc = rdmad_channel_get_value(session->channel, call->arguments, &arguments, LIMIT);
	if (rc != 0)
		return rc;
	error = serve[number](session, &arguments, &answer);
	if (call->arguments)
		rdmad_type_release(call->arguments, &arguments);
	if (session->broken)
		return session->broken;
	if (call->answered)
		return send_answer(session, call, error, &answer);
	if (error != REMOTE_SUCCESS)
		session->last = error;
	return 0;
}

static void *serve_client(void *arg)
{
	struct session *session = arg;
	int rc;

	do
		rc = serve_call(session);
	while (rc == 0);
	if (rc != -EPIPE)
		fprintf(stderr, "remote_server: a client is cut off: %s\n", strerror(-rc));
	for (unsigned i = 0; i < ALLOCATIONS; i++)
		free(session->allocation[i].bytes);
	rdmad_channel_close(session->channel);
	free(session);
	return NULL;
}

static void start_client(struct rdmad_channel *channel)
{
	struct session *session = calloc(1, sizeof(*session));
	pthread_t thread;

	if (session) {
		session->channel = channel;
		session->next_address = FIRST_ADDRESS;
		if (pthread_create(&thread, NULL, serve_client, session) == 0) {
			pthread_detach(thread);
			return;
		}
	}
	rdmad_channel_close(channel);
	free(session);
}

/* All clients that wait: the descriptor tells of later ones. 0, or why nobody can come any more. */
static int accept_clients(struct rdmad_channel_listener *listener)
{
	struct rdmad_channel *channel;
	int rc;

	while ((rc = rdmad_channel_accept(listener, 0, &channel)) == 0)
		start_client(channel);
	return rc == -ETIMEDOUT ? 0 : rc;
}

static volatile sig_atomic_t stopped;

static void stop(int signal)
{
	stopped = signal;
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = stop};
	struct rdmad_channel_listener *listener;
	struct pollfd pollfd = {.events = POLLIN};
	sigset_t ends, waiting;
	int rc = 0;

	if (argc < 2 || rdmad_channel_listen(argv[1], REMOTE_CAPACITY, NULL, &listener) != 0) {
		fprintf(stderr, "remote_server: %s\n", argc < 2 ? "which URL?" : rdmad_error());
		return 1;
	}
	/* The signals that end it come only while it waits. */
	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &ends, &waiting);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	printf("listening on %s\n", rdmad_channel_listener_url(listener));
	fflush(stdout);
	pollfd.fd = rdmad_channel_listener_fd(listener);
	while (!stopped && (rc = accept_clients(listener)) == 0)
		ppoll(&pollfd, 1, NULL, &waiting);
	if (rc != 0)
		fprintf(stderr, "remote_server: %s\n", rdmad_error());
	rdmad_channel_listener_close(listener);
	return rc != 0;
}
