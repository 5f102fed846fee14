/* check_wire.c: the cursor, the handshake to the byte, records, names. */
#include <check.h>
#include <stdlib.h>

#include "wire/run.h"
#include "wire/way.h"
#include "wire/wire.h"
#include "tests/suite.h"

/* A copy in memory of exactly that length, so that a sanitizer sees a read beyond it. */
static void *exactly(const void *data, size_t len)
{
	void *copy = malloc(len ? len : 1);

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, data, len);
	return copy;
}

/*
 * The cursor
 */
START_TEST(test_cursor_little_endian)
{
	uint8_t buf[15];
	static const uint8_t want[15] = {0x11, 0x33, 0x22, 0x77, 0x66, 0x55, 0x44, 0xff,
					 0xee, 0xdd, 0xcc, 0xbb, 0xaa, 0x99, 0x88};
	struct wire_cursor c;

	wire_cursor_init(&c, buf, sizeof(buf));
	wire_put8(&c, 0x11);
	wire_put16(&c, 0x2233);
	wire_put32(&c, 0x44556677);
	wire_put64(&c, 0x8899aabbccddeeffull);
	ck_assert(!c.failed);
	ck_assert_ptr_eq(c.at, c.end);
	ck_assert_mem_eq(buf, want, sizeof(want));
	wire_cursor_init(&c, buf, sizeof(buf));
	ck_assert_uint_eq(wire_get8(&c), 0x11);
	ck_assert_uint_eq(wire_get16(&c), 0x2233);
	ck_assert_uint_eq(wire_get32(&c), 0x44556677);
	ck_assert_uint_eq(wire_get64(&c), 0x8899aabbccddeeffull);
	ck_assert(!c.failed);
}
END_TEST

/* Each read that is one byte too long fails, gives zeros and moves nothing. */
START_TEST(test_cursor_read_edges)
{
	uint8_t buf[8];
	struct wire_cursor c;

	memset(buf, 0xff, sizeof(buf));
	wire_cursor_init(&c, buf, 0);
	ck_assert_uint_eq(wire_get8(&c), 0);
	ck_assert(c.failed);
	wire_cursor_init(&c, buf, 1);
	ck_assert_uint_eq(wire_get16(&c), 0);
	ck_assert(c.failed);
	ck_assert_ptr_eq(c.at, buf);
	wire_cursor_init(&c, buf, 3);
	ck_assert_uint_eq(wire_get32(&c), 0);
	ck_assert(c.failed);
	wire_cursor_init(&c, buf, 7);
	ck_assert_uint_eq(wire_get64(&c), 0);
	ck_assert(c.failed);
	wire_cursor_init(&c, buf, 8);
	ck_assert_uint_eq(wire_get64(&c), UINT64_MAX);
	ck_assert(!c.failed);
}
END_TEST

START_TEST(test_cursor_error_sticks)
{
	uint8_t buf[4] = {1, 2, 3, 4}, out[4] = {9, 9, 9, 9};
	struct wire_cursor c;

	wire_cursor_init(&c, buf, sizeof(buf));
	wire_get64(&c);
	ck_assert(c.failed);
	ck_assert_uint_eq(wire_get8(&c), 0); /* there would be a byte */
	wire_get_bytes(&c, out, 2);
	ck_assert_uint_eq(out[0], 0);
	ck_assert_uint_eq(out[1], 0);
	ck_assert_uint_eq(out[2], 9);
	ck_assert(c.failed);
}
END_TEST

START_TEST(test_cursor_write_edges)
{
	uint8_t buf[4] = {0xee, 0xee, 0xee, 0xee};
	struct wire_cursor c;

	wire_cursor_init(&c, buf, 3);
	wire_put32(&c, 0);
	ck_assert(c.failed);
	wire_put8(&c, 0);
	ck_assert_uint_eq(buf[0], 0xee);
	wire_cursor_init(&c, buf, 3);
	wire_put_bytes(&c, "abc", 3);
	ck_assert(!c.failed);
	wire_put_bytes(&c, "", 0);
	ck_assert(!c.failed);
	ck_assert_uint_eq(buf[3], 0xee);
}
END_TEST

/*
 * The handshake
 */
static const uint8_t golden_request[WIRE_REQUEST_SIZE] = {
	'R',  'M',  'A',  'D',  0x01, 0x00, 0x00, 0x02, /* magic, version 1, flags, kv */
	0x34, 0x12, 0x20, 0x00, 0x00, 0x20, 0x00, 0x00, /* key 0x1234, 32 credits, 8192 bytes */
	0xe8, 0x03, 0x00, 0x00, 0x40, 0x00, 0x00, 0x00, /* count 1000, size 64 */
	0,    1,    2,    3,    4,    5,    6,    7,    8,  9,  10, 11, 12, 13, 14, 15,
	16,   17,   18,   19,   20,   21,   22,   23,   24, 25, 26, 27, 28, 29, 30, 31,
};

static struct wire_request sample_request(void)
{
	struct wire_request r = {
		.version = WIRE_VERSION,
		.service = WIRE_KV,
		.key_id = 0x1234,
		.credits = 32,
		.message_size = 8192,
		.count = 1000,
		.size = 64,
	};

	for (unsigned i = 0; i < WIRE_NONCE; i++)
		r.nonce[i] = (uint8_t)i;
	return r;
}

static void assert_request_eq(const struct wire_request *a, const struct wire_request *b)
{
	ck_assert_uint_eq(a->version, b->version);
	ck_assert_uint_eq(a->flags, b->flags);
	ck_assert_uint_eq(a->service, b->service);
	ck_assert_uint_eq(a->key_id, b->key_id);
	ck_assert_uint_eq(a->credits, b->credits);
	ck_assert_uint_eq(a->message_size, b->message_size);
	ck_assert_uint_eq(a->count, b->count);
	ck_assert_uint_eq(a->size, b->size);
	ck_assert_mem_eq(a->nonce, b->nonce, WIRE_NONCE);
}

START_TEST(test_request_golden)
{
	struct wire_request r = sample_request(), back;
	uint8_t data[WIRE_REQUEST_SIZE];

	wire_request_encode(&r, data);
	ck_assert_mem_eq(data, golden_request, sizeof(data));
	ck_assert_int_eq(wire_request_decode(&back, golden_request, sizeof(golden_request)), WIRE_REASON_NONE);
	assert_request_eq(&back, &r);
}
END_TEST

/* RDMA pads private data: what comes behind is not looked at. */
START_TEST(test_request_padded)
{
	struct wire_request want = sample_request(), back;
	uint8_t data[WIRE_REQUEST_SIZE + 140];

	memset(data, 0xff, sizeof(data));
	memcpy(data, golden_request, sizeof(golden_request));
	ck_assert_int_eq(wire_request_decode(&back, data, sizeof(data)), WIRE_REASON_NONE);
	assert_request_eq(&back, &want);
}
END_TEST

START_TEST(test_request_truncated)
{
	for (size_t len = 0; len < WIRE_REQUEST_SIZE; len++) {
		uint8_t *data = exactly(golden_request, len);
		struct wire_request r;

		ck_assert_int_eq(wire_request_decode(&r, data, len), WIRE_REASON_BAD_REQUEST);
		free(data);
	}
}
END_TEST

/* A request of another version may have another length: only what all versions share is read. */
START_TEST(test_request_version_before_length)
{
	for (size_t len = 6; len <= WIRE_REQUEST_SIZE; len++) {
		uint8_t *data = exactly(golden_request, len);
		struct wire_request r;

		data[4] = 2;
		ck_assert_int_eq(wire_request_decode(&r, data, len), WIRE_REASON_VERSION);
		ck_assert_uint_eq(r.version, 2);
		free(data);
	}
}
END_TEST

static enum wire_reason decode_changed(void (*change)(struct wire_request *r, uint32_t value), uint32_t value)
{
	struct wire_request r = sample_request(), back;
	uint8_t data[WIRE_REQUEST_SIZE];

	change(&r, value);
	wire_request_encode(&r, data);
	return wire_request_decode(&back, data, sizeof(data));
}

static void change_service(struct wire_request *r, uint32_t value)
{
	r->service = (uint8_t)value;
}

static void change_size(struct wire_request *r, uint32_t value)
{
	r->message_size = value;
}

static void change_credits(struct wire_request *r, uint32_t value)
{
	r->credits = (uint16_t)value;
}

static void change_version(struct wire_request *r, uint32_t value)
{
	r->version = (uint16_t)value;
}

START_TEST(test_request_reasons)
{
	static const struct {
		void (*change)(struct wire_request *r, uint32_t value);
		uint32_t value;
		enum wire_reason reason;
	} cases[] = {
		{change_version, 0, WIRE_REASON_VERSION},
		{change_version, WIRE_VERSION + 1, WIRE_REASON_VERSION},
		{change_version, UINT16_MAX, WIRE_REASON_VERSION},
		{change_service, 0, WIRE_REASON_SERVICE},
		{change_service, WIRE_PING, WIRE_REASON_NONE},
		{change_service, WIRE_SERVICES - 1, WIRE_REASON_NONE},
		{change_service, WIRE_SERVICES, WIRE_REASON_SERVICE},
		{change_service, 255, WIRE_REASON_SERVICE},
		{change_size, 0, WIRE_REASON_MESSAGE_SIZE},
		{change_size, WIRE_MESSAGE_MIN - 1, WIRE_REASON_MESSAGE_SIZE},
		{change_size, WIRE_MESSAGE_MIN, WIRE_REASON_NONE},
		{change_size, WIRE_MESSAGE_MAX, WIRE_REASON_NONE},
		{change_size, WIRE_MESSAGE_MAX + 1, WIRE_REASON_MESSAGE_SIZE},
		{change_size, UINT32_MAX, WIRE_REASON_MESSAGE_SIZE},
		{change_credits, 0, WIRE_REASON_CREDITS},
		{change_credits, 1, WIRE_REASON_CREDITS},
		{change_credits, 2, WIRE_REASON_NONE},
		{change_credits, WIRE_CREDITS_MIN - 1, WIRE_REASON_CREDITS},
		{change_credits, WIRE_CREDITS_MIN, WIRE_REASON_NONE},
		{change_credits, WIRE_CREDITS_MAX, WIRE_REASON_NONE},
		{change_credits, WIRE_CREDITS_MAX + 1, WIRE_REASON_CREDITS},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		ck_assert_msg(decode_changed(cases[i].change, cases[i].value) == cases[i].reason, "case %zu", i);
}
END_TEST

/* Any wrong byte of the magic is not ours, whatever follows. */
START_TEST(test_magic)
{
	uint8_t data[WIRE_ACCEPT_SIZE] = {0};
	struct wire_request r;
	struct wire_accept a;
	struct wire_reject j;

	for (unsigned i = 0; i < 4; i++) {
		memcpy(data, golden_request, sizeof(golden_request));
		data[i] ^= 0x20;
		ck_assert_int_eq(wire_request_decode(&r, data, sizeof(data)), WIRE_REASON_BAD_REQUEST);
		ck_assert_int_eq(wire_accept_decode(&a, data, sizeof(data)), -EPROTO);
		ck_assert_int_eq(wire_reject_decode(&j, data, sizeof(data)), -EPROTO);
	}
}
END_TEST

static const uint8_t golden_accept[WIRE_ACCEPT_SIZE] = {
	'R',  'M',  'A',  'D',  0x01, 0x00, 0x00, 0x02, /* magic, version 1, flags, kv */
	0x00, 0x20, 0x00, 0x00, 0x10, 0x00, 0x0c, 0x00, /* 8192 bytes, 16 credits, 12 pieces */
	0xff, 0x0f, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, /* eager 4095 */
	0x00, 0x00, 0x00, 0x40, 0x01, 0x00, 0x00, 0x00, /* values to 5 GiB */
	0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15,
	16,   17,   18,   19,   20,   21,   22,   23,   24,   25,   26,   27,   28,   29,   30,   31,
	0xff, 0xfe, 0xfd, 0xfc, 0xfb, 0xfa, 0xf9, 0xf8, 0xf7, 0xf6, 0xf5, 0xf4, 0xf3, 0xf2, 0xf1, 0xf0,
	0xef, 0xee, 0xed, 0xec, 0xeb, 0xea, 0xe9, 0xe8, 0xe7, 0xe6, 0xe5, 0xe4, 0xe3, 0xe2, 0xe1, 0xe0,
};

static struct wire_accept sample_accept(void)
{
	struct wire_accept a = {
		.version = WIRE_VERSION,
		.service = WIRE_KV,
		.message_size = 8192,
		.credits = 16,
		.pieces = 12,
		.eager_max = 4095,
		.value_max = 5 * GIB,
	};

	for (unsigned i = 0; i < WIRE_NONCE; i++) {
		a.nonce[i] = (uint8_t)i;
		a.proof[i] = (uint8_t)~i;
	}
	return a;
}

START_TEST(test_accept_golden)
{
	struct wire_accept a = sample_accept(), back;
	uint8_t data[WIRE_ACCEPT_SIZE];

	wire_accept_encode(&a, data);
	ck_assert_mem_eq(data, golden_accept, sizeof(data));
	ck_assert_int_eq(wire_accept_decode(&back, golden_accept, sizeof(golden_accept)), 0);
	ck_assert_uint_eq(back.version, a.version);
	ck_assert_uint_eq(back.flags, a.flags);
	ck_assert_uint_eq(back.service, a.service);
	ck_assert_uint_eq(back.message_size, a.message_size);
	ck_assert_uint_eq(back.credits, a.credits);
	ck_assert_uint_eq(back.pieces, a.pieces);
	ck_assert_uint_eq(back.eager_max, a.eager_max);
	ck_assert_uint_eq(back.value_max, a.value_max);
	ck_assert_mem_eq(back.nonce, a.nonce, WIRE_NONCE);
	ck_assert_mem_eq(back.proof, a.proof, WIRE_PROOF);
}
END_TEST

START_TEST(test_accept_truncated)
{
	for (size_t len = 0; len < WIRE_ACCEPT_SIZE; len++) {
		uint8_t *data = exactly(golden_accept, len);
		struct wire_accept a;

		ck_assert_int_eq(wire_accept_decode(&a, data, len), -EPROTO);
		if (len >= 6) {
			data[5] = 1;
			ck_assert_int_eq(wire_accept_decode(&a, data, len), -EPROTONOSUPPORT);
		}
		free(data);
	}
}
END_TEST

START_TEST(test_accept_bounds)
{
	static const struct {
		uint32_t size;
		uint16_t credits;
		int rc;
	} cases[] = {
		{WIRE_MESSAGE_MIN, WIRE_CREDITS_MIN, 0}, {WIRE_MESSAGE_MAX, WIRE_CREDITS_MAX, 0},
		{WIRE_MESSAGE_MIN - 1, 16, -EPROTO},     {WIRE_MESSAGE_MAX + 1, 16, -EPROTO},
		{8192, WIRE_CREDITS_MIN - 1, -EPROTO},   {8192, WIRE_CREDITS_MAX + 1, -EPROTO},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct wire_accept a = sample_accept(), back;
		uint8_t data[WIRE_ACCEPT_SIZE];

		a.message_size = cases[i].size;
		a.credits = cases[i].credits;
		wire_accept_encode(&a, data);
		ck_assert_int_eq(wire_accept_decode(&back, data, sizeof(data)), cases[i].rc);
	}
}
END_TEST

static const uint8_t golden_reject[WIRE_REJECT_SIZE] = {
	'R', 'M', 'A', 'D', 0x01, 0x00, 0x04, 0x00, 0x00, 0x04, 0, 0, 0, 0, 0, 0,
};

START_TEST(test_reject_golden)
{
	struct wire_reject r = {WIRE_VERSION, WIRE_REASON_CONNECTIONS, 1024}, back;
	uint8_t data[WIRE_REJECT_SIZE];

	wire_reject_encode(&r, data);
	ck_assert_mem_eq(data, golden_reject, sizeof(data));
	ck_assert_int_eq(wire_reject_decode(&back, golden_reject, sizeof(golden_reject)), 0);
	ck_assert_uint_eq(back.version, WIRE_VERSION);
	ck_assert_uint_eq(back.reason, WIRE_REASON_CONNECTIONS);
	ck_assert_uint_eq(back.detail, 1024);
	for (size_t len = 0; len < sizeof(data); len++) {
		uint8_t *cut = exactly(golden_reject, len);

		ck_assert_int_eq(wire_reject_decode(&back, cut, len), -EPROTO);
		free(cut);
	}
}
END_TEST

/* A refusal of a server of another version is still read: it says which version that is. */
START_TEST(test_reject_other_version)
{
	struct wire_reject r = {7, WIRE_REASON_VERSION, 7}, back;
	uint8_t data[WIRE_REJECT_SIZE];
	char text[160];

	wire_reject_encode(&r, data);
	ck_assert_int_eq(wire_reject_decode(&back, data, sizeof(data)), 0);
	wire_reject_text(&back, text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "version 7"));
	ck_assert_ptr_nonnull(strstr(text, "this program 1"));
}
END_TEST

/* Each says its numbers, each is another, and fits the buffers that conn has for it. */
START_TEST(test_reject_texts)
{
	static const char *const says[WIRE_REASONS] = {
		[WIRE_REASON_NONE] = "reason 0",
		[WIRE_REASON_BAD_REQUEST] = "did not understand",
		[WIRE_REASON_VERSION] = "protocol version 3",
		[WIRE_REASON_SERVICE] = "service kv is not enabled",
		[WIRE_REASON_CONNECTIONS] = "2",
		[WIRE_REASON_MESSAGE_SIZE] = "2 bytes",
		[WIRE_REASON_CREDITS] = "1024",
		[WIRE_REASON_KEY] = "key",
		[WIRE_REASON_DRAINING] = "shutting down",
		[WIRE_REASON_RESOURCES] = "out of memory",
		[WIRE_REASON_SESSIONS] = "gpu sessions it allows, 2",
		[WIRE_REASON_SOURCE] = "from one address or user, 2",
		[WIRE_REASON_PACKET] = "this machine's sends 2",
		[WIRE_REASON_VALUES] = "values of 2 bytes at most",
		[WIRE_REASON_RIGHTS] = "no right to the service kv",
		[WIRE_REASON_ENCRYPT] = "encrypted connections only",
	};
	char text[WIRE_REASONS + 1][160];

	for (unsigned i = 0; i <= WIRE_REASONS; i++) {
		struct wire_reject r = {3, (uint16_t)i, WIRE_KV};

		ck_assert_ptr_eq(wire_reject_text(&r, text[i], sizeof(text[i])), text[i]);
		ck_assert_uint_lt(strlen(text[i]), sizeof(text[i]) - 11); /* "refused: " is before it */
		ck_assert_msg(i == WIRE_REASONS || strstr(text[i], says[i]), "%s", text[i]);
		for (unsigned j = 0; j < i; j++)
			ck_assert_str_ne(text[i], text[j]);
	}
}
END_TEST

START_TEST(test_reject_text_of_numbers)
{
	struct wire_reject r = {1, WIRE_REASON_MESSAGE_SIZE, UINT64_MAX};
	char text[160], small[8];

	ck_assert_ptr_nonnull(strstr(wire_reject_text(&r, text, sizeof(text)), "18446744073709551615"));
	r.reason = WIRE_REASON_SERVICE; /* beyond the table of services */
	ck_assert_ptr_nonnull(strstr(wire_reject_text(&r, text, sizeof(text)), "unknown"));
	r.reason = UINT16_MAX;
	ck_assert_ptr_nonnull(strstr(wire_reject_text(&r, text, sizeof(text)), "65535"));
	wire_reject_text(&r, small, sizeof(small));
	ck_assert_uint_eq(strlen(small), sizeof(small) - 1);
}
END_TEST

/*
 * Messages and records
 */
#define HEAD sizeof(struct wire_message)
#define RECORD sizeof(struct wire_record)

/* A message of `bytes` bytes, alone in its memory. */
static char *message_new(size_t bytes)
{
	char *m = calloc(1, bytes ? bytes : 1);

	ck_assert_ptr_nonnull(m);
	if (bytes >= HEAD)
		((struct wire_message *)m)->length = (uint32_t)bytes;
	return m;
}

static struct wire_record *record_at(char *m, size_t offset, uint32_t length)
{
	struct wire_record *r = (void *)(m + offset);

	r->length = length;
	return r;
}

START_TEST(test_message_check)
{
	for (size_t bytes = 0; bytes < 40; bytes++) {
		char *m = message_new(bytes);

		ck_assert(!!wire_message_check(m, bytes) == (bytes >= HEAD));
		if (bytes > HEAD) {
			((struct wire_message *)m)->length--;
			ck_assert_ptr_null(wire_message_check(m, bytes));
			((struct wire_message *)m)->length += 2;
			ck_assert_ptr_null(wire_message_check(m, bytes));
		}
		free(m);
	}
}
END_TEST

START_TEST(test_records_all)
{
	/* Bodies of 0 to 17 bytes, each padded to 8. */
	char *m = message_new(HEAD + 18 * (RECORD + 24));
	const struct wire_record *r;
	size_t offset = HEAD, end, n = 0;

	for (uint32_t len = 0; len < 18; len++) {
		record_at(m, offset, len)->id = len;
		offset += RECORD + WIRE_PAD(len);
	}
	end = offset;
	for (offset = HEAD; (r = wire_record_next(m, end, &offset)); n++) {
		ck_assert_uint_eq((uintptr_t)r % 8, 0);
		ck_assert_uint_eq(r->id, n);
		ck_assert_uint_eq(r->length, n);
	}
	ck_assert_uint_eq(n, 18);
	ck_assert_uint_eq(offset, end);
	free(m);
}
END_TEST

/* The last record's padding may be there or not, but nothing else may follow. */
START_TEST(test_record_last_padding)
{
	for (size_t tail = 0; tail < 5 + RECORD; tail++) {
		size_t bytes = HEAD + RECORD + 3 + tail, offset = HEAD;
		char *m = message_new(bytes);

		record_at(m, HEAD, 3);
		ck_assert_ptr_nonnull(wire_record_next(m, bytes, &offset));
		ck_assert_uint_eq(offset, MIN(bytes, HEAD + RECORD + 8));
		ck_assert_ptr_null(wire_record_next(m, bytes, &offset));
		if (tail <= 5)
			ck_assert_uint_eq(offset, bytes);
		else
			ck_assert_uint_eq(offset, 0); /* too short for another record */
		free(m);
	}
}
END_TEST

START_TEST(test_record_lying_lengths)
{
	static const uint32_t lies[] = {9, 16, 0x7fffffff, 0x80000000, UINT32_MAX - 16, UINT32_MAX - 7, UINT32_MAX};
	size_t bytes = HEAD + RECORD + 8;
	char *m = message_new(bytes);

	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		size_t offset = HEAD;

		record_at(m, HEAD, lies[i]);
		ck_assert_ptr_null(wire_record_next(m, bytes, &offset));
		ck_assert_uint_eq(offset, 0);
	}
	free(m);
}
END_TEST

START_TEST(test_record_header_cut)
{
	for (size_t part = 0; part < RECORD; part++) {
		size_t bytes = HEAD + part, offset = HEAD;
		char *m = message_new(bytes);

		ck_assert_ptr_null(wire_record_next(m, bytes, &offset));
		ck_assert_uint_eq(offset, part ? 0 : HEAD);
		free(m);
	}
}
END_TEST

START_TEST(test_body_max)
{
	ck_assert_uint_eq(WIRE_BODY_MAX(4608u), 4608 - 24);
	ck_assert_uint_ge(WIRE_BODY_MAX(WIRE_MESSAGE_MIN), WIRE_EAGER_MAX);
	ck_assert_uint_eq(WIRE_PAD(0), 0);
	ck_assert_uint_eq(WIRE_PAD(1), 8);
	ck_assert_uint_eq(WIRE_PAD(8), 8);
	ck_assert_uint_eq(WIRE_PAD(4095), 4096);
}
END_TEST

/*
 * Ways of values
 */
#define PUSHES 65536 /* longest value that is pushed, where any is */

static const struct {
	enum wire_op op;
	struct wire_ways can;
	uint64_t size;
	enum wire_way way;
} ways[] = {
	/* To the server: by message beside the key, pushed, read from one range or several. */
	{WIRE_OP_SET, {.message_max = 0}, 0, WIRE_WAY_MESSAGE},
	{WIRE_OP_SET, {.message_max = 4085}, 4085, WIRE_WAY_MESSAGE},
	{WIRE_OP_SET, {.message_max = 4085, .push_max = PUSHES, .moves = true}, 4086, WIRE_WAY_PUSHED},
	{WIRE_OP_SET, {.message_max = 4085, .push_max = PUSHES, .moves = true}, PUSHES, WIRE_WAY_PUSHED},
	{WIRE_OP_SET, {.message_max = 4085, .push_max = PUSHES, .moves = true}, PUSHES + 1, WIRE_WAY_REMOTE},
	{WIRE_OP_SET, {.message_max = 4085, .moves = true}, 4086, WIRE_WAY_REMOTE},
	{WIRE_OP_SET, {.message_max = 4085}, 4086, WIRE_WAY_NONE},
	{WIRE_OP_PUT, {.message_max = 100, .moves = true, .ranges = 1}, 101, WIRE_WAY_REMOTE},
	{WIRE_OP_PUT, {.message_max = 100, .moves = true, .ranges = 2}, 101, WIRE_WAY_PIECES},
	{WIRE_OP_PUT, {.message_max = 100, .push_max = PUSHES, .moves = true, .ranges = 1}, 101, WIRE_WAY_PUSHED},
	{WIRE_OP_EDIT, {.message_max = 4000}, 4000, WIRE_WAY_MESSAGE},
	{WIRE_OP_EDIT, {.message_max = 4000}, 4001, WIRE_WAY_NONE},
	/* As the server sees it. */
	{WIRE_OP_SET_FROM, {.push_max = PUSHES, .moves = true, .ranges = 1}, 1, WIRE_WAY_PUSHED},
	{WIRE_OP_SET_FROM, {.push_max = PUSHES, .moves = true, .ranges = 1}, PUSHES + 1, WIRE_WAY_REMOTE},
	{WIRE_OP_SET_FROM, {.moves = true, .ranges = 1}, 1, WIRE_WAY_REMOTE},
	{WIRE_OP_PUT_FROM, {.ranges = 1}, 1, WIRE_WAY_NONE},
	{WIRE_OP_PUT_PIECES, {.moves = true, .ranges = 16}, GIB, WIRE_WAY_PIECES},
	{WIRE_OP_PUT_PIECES, {.moves = true, .ranges = 1}, GIB, WIRE_WAY_REMOTE},
	/* A GET names no memory: by message, pushed, or told so that it comes again. */
	{WIRE_OP_GET, {.moves = true}, 4096, WIRE_WAY_MESSAGE},
	{WIRE_OP_GET, {.moves = true}, 4097, WIRE_WAY_NONE},
	{WIRE_OP_GET, {.push_max = PUSHES, .moves = true}, 4000, WIRE_WAY_MESSAGE},
	{WIRE_OP_GET, {.push_max = PUSHES, .moves = true}, 4001, WIRE_WAY_PUSHED},
	{WIRE_OP_GET, {.push_max = PUSHES, .moves = true}, PUSHES, WIRE_WAY_PUSHED},
	{WIRE_OP_GET, {.push_max = PUSHES, .moves = true}, PUSHES + 1, WIRE_WAY_NONE},
	{WIRE_OP_GET, {.push_max = 4095, .moves = true}, 4001, WIRE_WAY_MESSAGE},
	{WIRE_OP_GET, {.push_max = 4095, .moves = true}, 4097, WIRE_WAY_NONE},
	/* A GET_INTO names some: what a message takes comes by message, however short the memory is. */
	{WIRE_OP_SET, {.message_max = 4085, .push_max = PUSHES, .moves = true, .direct = true}, 1, WIRE_WAY_REMOTE},
	{WIRE_OP_SET, {.message_max = 4085, .push_max = PUSHES, .moves = true, .direct = true}, 0, WIRE_WAY_MESSAGE},
	{WIRE_OP_PUT, {.message_max = 99, .ranges = 2, .moves = true, .direct = true}, 9, WIRE_WAY_PIECES},
	{WIRE_OP_PUT, {.message_max = 99, .direct = true}, 1, WIRE_WAY_NONE},
	{WIRE_OP_GET_INTO, {.named = 8, .moves = true, .direct = true}, 8, WIRE_WAY_REMOTE},
	{WIRE_OP_GET_INTO, {.named = 8, .moves = true, .direct = true}, 9, WIRE_WAY_NONE},
	{WIRE_OP_FETCH, {.named = 8, .moves = true, .direct = true}, 0, WIRE_WAY_MESSAGE},
	{WIRE_OP_FETCH_PIECES, {.named = 8, .ranges = 2, .moves = true, .direct = true}, 1, WIRE_WAY_PIECES},
	{WIRE_OP_GET_INTO, {.named = 1, .ranges = 1, .moves = true}, 4096, WIRE_WAY_MESSAGE},
	{WIRE_OP_GET_INTO, {.named = 8192, .ranges = 1, .moves = true}, 4097, WIRE_WAY_REMOTE},
	{WIRE_OP_GET_INTO, {.named = 8192, .ranges = 1, .moves = true}, 8192, WIRE_WAY_REMOTE},
	{WIRE_OP_GET_INTO, {.named = 8192, .ranges = 1, .moves = true}, 8193, WIRE_WAY_NONE},
	{WIRE_OP_GET_INTO, {.named = 8192, .ranges = 1}, 4097, WIRE_WAY_NONE},
	/* A part has to fit the memory, where there is any or it was asked for so. */
	{WIRE_OP_FETCH, {.moves = true}, 4096, WIRE_WAY_MESSAGE},
	{WIRE_OP_FETCH, {.moves = true}, 4097, WIRE_WAY_NONE},
	{WIRE_OP_FETCH, {.fits = true, .moves = true}, 0, WIRE_WAY_MESSAGE},
	{WIRE_OP_FETCH, {.fits = true, .moves = true}, 1, WIRE_WAY_NONE},
	{WIRE_OP_FETCH, {.named = 100, .ranges = 1, .moves = true}, 100, WIRE_WAY_MESSAGE},
	{WIRE_OP_FETCH, {.named = 100, .ranges = 1, .moves = true}, 101, WIRE_WAY_NONE},
	{WIRE_OP_FETCH, {.named = 5000, .ranges = 1, .moves = true}, 4096, WIRE_WAY_MESSAGE},
	{WIRE_OP_FETCH, {.named = 5000, .ranges = 1, .moves = true}, 4097, WIRE_WAY_REMOTE},
	{WIRE_OP_FETCH, {.named = 5000, .ranges = 1}, 4097, WIRE_WAY_NONE},
	{WIRE_OP_FETCH_PIECES, {.named = 5000, .ranges = 2, .moves = true}, 4096, WIRE_WAY_MESSAGE},
	{WIRE_OP_FETCH_PIECES, {.named = 5000, .ranges = 2, .moves = true}, 4097, WIRE_WAY_PIECES},
	{WIRE_OP_FETCH_PIECES, {.named = 5000, .ranges = 2, .moves = true}, 5001, WIRE_WAY_NONE},
};

START_TEST(test_ways)
{
	enum wire_way way = wire_way(ways[_i].op, ways[_i].size, &ways[_i].can);

	ck_assert_msg(way == ways[_i].way, "row %d, %s of %llu bytes: way %d", _i, wire_op_name(ways[_i].op),
		      (unsigned long long)ways[_i].size, (int)way);
}
END_TEST

/*
 * Names
 */
static void assert_names(const char *(*name)(unsigned), unsigned first, unsigned end)
{
	for (unsigned i = first; i < end; i++) {
		ck_assert_ptr_nonnull(name(i));
		ck_assert_uint_gt(strlen(name(i)), 0);
		ck_assert_ptr_null(strstr(name(i), "unknown"));
		for (unsigned j = first; j < i; j++)
			ck_assert_str_ne(name(i), name(j));
	}
	ck_assert_ptr_nonnull(strstr(name(end), "unknown"));
	ck_assert_ptr_nonnull(strstr(name(UINT32_MAX), "unknown"));
}

START_TEST(test_names)
{
	assert_names(wire_service_name, WIRE_PING, WIRE_SERVICES);
	ck_assert_str_eq(wire_service_name(0), "unknown");
	assert_names(wire_reason_name, WIRE_REASON_NONE, WIRE_REASONS);
	assert_names(wire_status_text, WIRE_OK, WIRE_STATUSES);
	assert_names(wire_op_name, WIRE_OP_ECHO, WIRE_OP_PING_END);
	assert_names(wire_op_name, WIRE_OP_GET, WIRE_OP_KV_END);
	assert_names(wire_op_name, WIRE_OP_GPU_INFO, WIRE_OP_GPU_END);
	assert_names(wire_op_name, WIRE_OP_CHANNEL_OPEN, WIRE_OP_CHANNEL_END);
	ck_assert_str_eq(wire_op_name(0), "unknown");
	ck_assert_str_eq(wire_op_name(255), "unknown");
}
END_TEST

/* Another program that speaks the protocol has it from the manual. */
START_TEST(test_manual_has_numbers)
{
	char *page = suite_source("man/rdmad-protocol.7"), words[128];

	for (unsigned op = 1; op <= UINT8_MAX; op++) {
		snprintf(words, sizeof(words), "\n.It %u %s Ta", op, wire_op_name(op));
		ck_assert_msg(strcmp(wire_op_name(op), "unknown") == 0 || strstr(page, words), "no row%s", words);
	}
	for (unsigned id = WIRE_PING; id < WIRE_SERVICES; id++) {
		snprintf(words, sizeof(words), " %u %s", id, wire_service_name(id));
		ck_assert_msg(strstr(page, words), "the manual lacks the service%s", words);
	}
	free(page);
}
END_TEST

START_TEST(test_status_and_errno)
{
	for (unsigned status = 0; status < WIRE_STATUSES; status++) {
		int error = wire_status_errno(status);

		ck_assert(status == WIRE_OK ? error == 0 : error < 0);
		ck_assert_uint_eq(wire_status_of(error), status);
	}
	ck_assert_int_eq(wire_status_errno(WIRE_STATUSES), -EPROTO);
	ck_assert_int_eq(wire_status_errno(UINT16_MAX), -EPROTO);
	ck_assert_int_eq(wire_status_of(-EFBIG), WIRE_TOO_LARGE); /* what store says */
	ck_assert_int_eq(wire_status_of(-EPROTO), WIRE_BAD_REQUEST);
	ck_assert_int_eq(wire_status_errno(WIRE_NOT_FOUND), -ENOENT);
	ck_assert_int_eq(wire_status_errno(WIRE_TOO_LARGE), -EMSGSIZE);
	ck_assert_int_eq(wire_status_errno(WIRE_NO_MEMORY), -ENOMEM);
}
END_TEST

START_TEST(test_run_head)
{
	struct wire_run_head head = wire_run_encode(WIRE_RUN_ENVIRONMENT, 0x010203);
	size_t length;

	ck_assert_mem_eq(&head, "e\0\1\2\3", 5);
	ck_assert_int_eq(wire_run_decode(&head, &length), 0);
	ck_assert_uint_eq(length, 0x010203);
	head = wire_run_encode(WIRE_RUN_INPUT, WIRE_RUN_LENGTH_MAX);
	ck_assert_int_eq(wire_run_decode(&head, &length), 0);
	head = wire_run_encode(WIRE_RUN_INPUT, WIRE_RUN_LENGTH_MAX + 1);
	ck_assert_int_eq(wire_run_decode(&head, &length), -EPROTO);
}
END_TEST

START_TEST(test_facts)
{
	static const char longest[WIRE_FACTS_MAX + 1] = "facts 1\n";
	static const struct {
		const char *text;
		size_t len;
		bool valid;
	} rows[] = {
		{"facts 1\n", 8, true},
		{"facts 1\nversion 7\n\n", 19, true},
		{"facts 1\nversion 7\n\n", 17, false}, /* a line that is cut */
		{"facts 1", 7, false},
		{"facts 11\n", 9, false},
		{"", 0, false},
		{"facts 1\n\33\n", 10, false},
		{longest, WIRE_FACTS_MAX, false},
		{longest, WIRE_FACTS_MAX + 1, false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		ck_assert_msg(wire_facts_valid(rows[i].text, rows[i].len) == rows[i].valid, "row %zu", i);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("wire");
	TCase *tc = suite_case(suite, "wire", NULL, NULL);

	tcase_add_test(tc, test_cursor_little_endian);
	tcase_add_test(tc, test_cursor_read_edges);
	tcase_add_test(tc, test_cursor_error_sticks);
	tcase_add_test(tc, test_cursor_write_edges);
	tcase_add_test(tc, test_request_golden);
	tcase_add_test(tc, test_request_padded);
	tcase_add_test(tc, test_request_truncated);
	tcase_add_test(tc, test_request_version_before_length);
	tcase_add_test(tc, test_request_reasons);
	tcase_add_test(tc, test_magic);
	tcase_add_test(tc, test_accept_golden);
	tcase_add_test(tc, test_accept_truncated);
	tcase_add_test(tc, test_accept_bounds);
	tcase_add_test(tc, test_reject_golden);
	tcase_add_test(tc, test_facts);
	tcase_add_test(tc, test_reject_other_version);
	tcase_add_test(tc, test_reject_texts);
	tcase_add_test(tc, test_reject_text_of_numbers);
	tcase_add_test(tc, test_message_check);
	tcase_add_test(tc, test_records_all);
	tcase_add_test(tc, test_record_last_padding);
	tcase_add_test(tc, test_record_lying_lengths);
	tcase_add_test(tc, test_record_header_cut);
	tcase_add_test(tc, test_body_max);
	tcase_add_loop_test(tc, test_ways, 0, ARRAY_SIZE(ways));
	tcase_add_test(tc, test_names);
	tcase_add_test(tc, test_manual_has_numbers);
	tcase_add_test(tc, test_status_and_errno);
	tcase_add_test(tc, test_run_head);
	return suite_run(suite);
}
