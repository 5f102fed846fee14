/*
 * fuzz.h: what the fuzz targets share. Each target is one file; built by --enable-fuzzing with libFuzzer, else
 * with main.c, which runs its corpus as a test.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include "../require.h"
#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Messages are expected and not worth their time. */
static inline void fuzz_silence(void)
{
	log_threshold = LOG_LEVEL_ERROR;
	log_set_handler(log_keep);
}

/*
 * Of decoders of streams: one that comes whole and one that comes in pieces, whose lengths the input's front says, have
 * the same commands and the same end.
 */
#define FUZZ_STEPS 8

/* What a stream comes to. */
struct fuzz_record {
	size_t len;
	uint8_t bytes[100000];
};

static inline void fuzz_note(struct fuzz_record *record, const void *bytes, size_t len)
{
	len = MIN(len, sizeof(record->bytes) - record->len); /* the same bytes are missing of the other */
	if (len)
		memcpy(record->bytes + record->len, bytes, len);
	record->len += len;
}

static inline void fuzz_same(const struct fuzz_record *a, const struct fuzz_record *b)
{
	REQUIRE(a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0);
}

/*
 * server.c: a listener on an abstract UNIX socket, a group behind it and its services.
 */
struct gpu_service;

/* The first call opens it. `gpu` stays the caller's; NULL: not offered. */
void fuzz_server_open(struct gpu_service *gpu);
/* Have what the server sends instead of throwing it away. */
void fuzz_server_on_answer(void (*fn)(int fd, const uint8_t *data, size_t len));
/* A socket that is connected to it, non-blocking. */
int fuzz_server_connect(void);
/* A turn of it, and what it answered on `fd` is taken. False: `fd` has ended. */
bool fuzz_server_turn(int fd);
/* Write, turning the server; false when it hung up. */
bool fuzz_server_write(int fd, const void *data, size_t len);
/* `fd` closes; the server must be left without connections. */
void fuzz_server_close(int fd);

/* Bytes of a soft stream for what a fuzzer thinks of: chunks of
 *   1 byte flags, 1 byte credits, 2 bytes length, `length` bytes of records
 * become a SEND with a message of these records each. Flags: 1 the message's length lies, 2 the frame's opcode
 * is that of the credits byte. Returns the length in `out`. */
size_t fuzz_stream(const uint8_t *data, size_t size, uint8_t *out, size_t room);
/* A CONNECT or ACCEPT with the private data of one. `count`: of the request, as the service wants it. */
size_t fuzz_connect(uint8_t *out, unsigned service, unsigned credits, uint32_t count);
size_t fuzz_accept(uint8_t *out, unsigned credits);
/* A socket on which a CONNECT and the chunks of `data` were written. */
int fuzz_server_client(unsigned service, unsigned credits, uint32_t count, const void *data, size_t size);

#endif
