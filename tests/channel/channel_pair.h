/*
 * channel_pair.h: both ends of a channel in one process, and a stream of bytes that can be told from others. For tests of all
 * transports.
 */
#ifndef RDMAD_TESTS_CHANNEL_PAIR_H
#define RDMAD_TESTS_CHANNEL_PAIR_H

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rdmad/channel.h"

#define SECONDS(n) ((n)*1000000ull) /* a limit that only ends a hang */
#define WORKS(call)                                                                                                    \
	do {                                                                                                           \
		long works_rc = (long)(call);                                                                          \
		ck_assert_msg(works_rc == 0, "%s: %ld, %s", #call, works_rc, rdmad_error());                           \
	} while (0)

struct channel_pair {
	struct rdmad_channel_listener *listener;
	struct rdmad_channel *client, *server; /* opened, accepted */
	const char *url;
	size_t size;
	const struct rdmad_channel_options *options;
};

static inline void *channel_pair_client(void *arg)
{
	struct channel_pair *pair = arg;
	int rc = rdmad_channel_open(pair->url, pair->size, pair->options, &pair->client);

	ck_assert_msg(rc == 0, "open %s: %d, %s", pair->url, rc, rdmad_error());
	return NULL;
}

/* One more client of a listener that there is: opened by its URL, so that a port may be 0. */
static inline void channel_pair_join(struct channel_pair *pair)
{
	pthread_t thread;

	pair->url = rdmad_channel_listener_url(pair->listener);
	pthread_create(&thread, NULL, channel_pair_client, pair);
	WORKS(rdmad_channel_accept(pair->listener, SECONDS(60), &pair->server));
	pthread_join(thread, NULL);
}

static inline void channel_pair_open(struct channel_pair *pair, const char *url, size_t size,
				     const struct rdmad_channel_options *options)
{
	*pair = (struct channel_pair){.url = url, .size = size, .options = options};
	WORKS(rdmad_channel_listen(url, size, options, &pair->listener));
	channel_pair_join(pair);
}

static inline void channel_pair_close(struct channel_pair *pair)
{
	rdmad_channel_close(pair->client);
	rdmad_channel_close(pair->server);
	rdmad_channel_listener_close(pair->listener);
}

/*
 * A stream whose byte at each place is known, in pieces of sizes by chance.
 */
struct channel_stream {
	struct rdmad_channel *channel;
	uint64_t total;
	size_t most;   /* bytes of a piece */
	uint64_t seed; /* of the sizes; the bytes depend on the place alone */
	int rc;        /* of the first call that failed */
};

static inline uint8_t channel_stream_byte(uint64_t place)
{
	return (uint8_t)(place * 0x9e3779b97f4a7c15ull >> 56);
}

static inline uint64_t channel_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static inline size_t channel_stream_piece(struct channel_stream *stream, uint64_t done)
{
	uint64_t n = 1 + channel_random(&stream->seed) % stream->most;

	return (size_t)(n < stream->total - done ? n : stream->total - done);
}

/* Threads' functions. */
static inline void *channel_stream_put(void *arg)
{
	struct channel_stream *stream = arg;
	uint8_t *bytes = calloc(1, stream->most);

	for (uint64_t done = 0; done < stream->total;) {
		size_t n = channel_stream_piece(stream, done);

		for (size_t i = 0; i < n; i++)
			bytes[i] = channel_stream_byte(done + i);
		stream->rc = rdmad_channel_put(stream->channel, bytes, n, SECONDS(100));
		if (stream->rc == 0 && channel_random(&stream->seed) % 16 == 0)
			stream->rc = rdmad_channel_flush(stream->channel, SECONDS(100));
		if (stream->rc != 0)
			break;
		done += n;
	}
	if (stream->rc == 0)
		stream->rc = rdmad_channel_flush(stream->channel, SECONDS(100));
	free(bytes);
	return NULL;
}

static inline void *channel_stream_get(void *arg)
{
	struct channel_stream *stream = arg;
	uint8_t *bytes = calloc(1, stream->most);

	for (uint64_t done = 0; done < stream->total && stream->rc == 0;) {
		size_t n = channel_stream_piece(stream, done);

		stream->rc = rdmad_channel_get(stream->channel, bytes, n, SECONDS(100));
		for (size_t i = 0; i < n && stream->rc == 0; i++)
			if (bytes[i] != channel_stream_byte(done + i))
				stream->rc = -EBADMSG;
		done += n;
	}
	free(bytes);
	return NULL;
}

#endif
