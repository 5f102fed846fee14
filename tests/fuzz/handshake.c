/* handshake.c: private data of connect, accept and reject; and the records of a message. */
#include "fuzz.h"
#include "wire/wire.h"

static void request(const uint8_t *data, size_t size)
{
	uint8_t again[WIRE_REQUEST_SIZE];
	struct wire_request r;

	if (wire_request_decode(&r, data, size) != WIRE_REASON_NONE)
		return;
	REQUIRE(r.message_size >= WIRE_MESSAGE_MIN && r.message_size <= WIRE_MESSAGE_MAX);
	REQUIRE(r.credits >= WIRE_CREDITS_MIN && r.credits <= WIRE_CREDITS_MAX);
	wire_request_encode(&r, again);
	REQUIRE(memcmp(again, data, sizeof(again)) == 0);
}

static void accept_data(const uint8_t *data, size_t size)
{
	struct wire_accept a, b;
	uint8_t again[WIRE_ACCEPT_SIZE];

	if (wire_accept_decode(&a, data, size) != 0)
		return;
	wire_accept_encode(&a, again); /* reserved fields come out as 0 */
	REQUIRE(wire_accept_decode(&b, again, sizeof(again)) == 0);
	REQUIRE(a.value_max == b.value_max && a.credits == b.credits);
	REQUIRE(memcmp(a.proof, b.proof, WIRE_PROOF) == 0);
}

static void reject(const uint8_t *data, size_t size)
{
	struct wire_reject r;
	char text[64];

	if (wire_reject_decode(&r, data, size) != 0)
		return;
	REQUIRE(strlen(wire_reject_text(&r, text, sizeof(text))) < sizeof(text));
	REQUIRE(wire_reason_name(r.reason));
}

static void records(const uint8_t *data, size_t size)
{
	const struct wire_record *r;
	size_t offset = sizeof(struct wire_message), sum = 0;

	/* In memory of its length, aligned as received messages are. */
	struct wire_message *m = malloc(size ? size : 1);

	REQUIRE(m);
	memcpy(m, data, size);
	if (size >= sizeof(*m))
		m->length = (uint32_t)size;
	if (wire_message_check(m, size)) {
		while ((r = wire_record_next(m, size, &offset))) {
			for (uint32_t i = 0; i < r->length; i++)
				sum += ((const uint8_t *)(r + 1))[i];
			REQUIRE(offset <= size && offset > sizeof(*m));
		}
		REQUIRE(offset == 0 || offset == size);
	}
	REQUIRE(sum <= 255 * size);
	free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	request(data, size);
	accept_data(data, size);
	reject(data, size);
	records(data, size);
	return 0;
}
