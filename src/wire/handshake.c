/* handshake.c: private data of connect, accept and reject. */
#include "wire/wire.h"

#include <inttypes.h>

void wire_request_encode(const struct wire_request *r, uint8_t out[static WIRE_REQUEST_SIZE])
{
	struct wire_cursor c;

	wire_cursor_init(&c, out, WIRE_REQUEST_SIZE);
	wire_put32(&c, WIRE_MAGIC);
	wire_put16(&c, r->version);
	wire_put8(&c, r->flags);
	wire_put8(&c, r->service);
	wire_put16(&c, r->key_id);
	wire_put16(&c, r->credits);
	wire_put32(&c, r->message_size);
	wire_put32(&c, r->count);
	wire_put32(&c, r->size);
	wire_put_bytes(&c, r->nonce, WIRE_NONCE);
}

bool wire_request_is_ours(const uint8_t *data, size_t len)
{
	struct wire_cursor c;

	wire_cursor_init(&c, (void *)(uintptr_t)data, len);
	return wire_get32(&c) == WIRE_MAGIC;
}

enum wire_reason wire_request_decode(struct wire_request *r, const uint8_t *data, size_t len)
{
	struct wire_cursor c;
	uint32_t magic;

	wire_cursor_init(&c, (void *)data, len);
	memset(r, 0, sizeof(*r));
	magic = wire_get32(&c);
	r->version = wire_get16(&c);
	if (c.failed || magic != WIRE_MAGIC)
		return WIRE_REASON_BAD_REQUEST;
	if (r->version != WIRE_VERSION)
		return WIRE_REASON_VERSION;
	r->flags = wire_get8(&c);
	r->service = wire_get8(&c);
	r->key_id = wire_get16(&c);
	r->credits = wire_get16(&c);
	r->message_size = wire_get32(&c);
	r->count = wire_get32(&c);
	r->size = wire_get32(&c);
	wire_get_bytes(&c, r->nonce, WIRE_NONCE);
	if (c.failed)
		return WIRE_REASON_BAD_REQUEST;
	if (r->service < WIRE_PING || r->service >= WIRE_SERVICES)
		return WIRE_REASON_SERVICE;
	if (r->message_size < WIRE_MESSAGE_MIN || r->message_size > WIRE_MESSAGE_MAX)
		return WIRE_REASON_MESSAGE_SIZE;
	if (r->credits < WIRE_CREDITS_MIN || r->credits > WIRE_CREDITS_MAX)
		return WIRE_REASON_CREDITS;
	return WIRE_REASON_NONE;
}

void wire_accept_encode(const struct wire_accept *a, uint8_t out[static WIRE_ACCEPT_SIZE])
{
	struct wire_cursor c;

	wire_cursor_init(&c, out, WIRE_ACCEPT_SIZE);
	wire_put32(&c, WIRE_MAGIC);
	wire_put16(&c, a->version);
	wire_put8(&c, a->flags);
	wire_put8(&c, a->service);
	wire_put32(&c, a->message_size);
	wire_put16(&c, a->credits);
	wire_put16(&c, a->pieces);
	wire_put32(&c, a->eager_max);
	wire_put32(&c, a->push_max);
	wire_put64(&c, a->value_max);
	wire_put_bytes(&c, a->nonce, WIRE_NONCE);
	wire_put_bytes(&c, a->proof, WIRE_PROOF);
}

int wire_accept_decode(struct wire_accept *a, const uint8_t *data, size_t len)
{
	struct wire_cursor c;
	uint32_t magic;

	wire_cursor_init(&c, (void *)data, len);
	memset(a, 0, sizeof(*a));
	magic = wire_get32(&c);
	a->version = wire_get16(&c);
	if (c.failed || magic != WIRE_MAGIC)
		return -EPROTO;
	if (a->version != WIRE_VERSION)
		return -EPROTONOSUPPORT;
	a->flags = wire_get8(&c);
	a->service = wire_get8(&c);
	a->message_size = wire_get32(&c);
	a->credits = wire_get16(&c);
	a->pieces = wire_get16(&c);
	a->eager_max = wire_get32(&c);
	a->push_max = wire_get32(&c);
	a->value_max = wire_get64(&c);
	wire_get_bytes(&c, a->nonce, WIRE_NONCE);
	wire_get_bytes(&c, a->proof, WIRE_PROOF);
	if (c.failed || a->push_max > WIRE_PUSH_MAX || a->message_size < WIRE_MESSAGE_MIN ||
	    a->message_size > WIRE_MESSAGE_MAX || a->credits < WIRE_CREDITS_MIN || a->credits > WIRE_CREDITS_MAX)
		return -EPROTO;
	return 0;
}

void wire_reject_encode(const struct wire_reject *r, uint8_t out[static WIRE_REJECT_SIZE])
{
	struct wire_cursor c;

	wire_cursor_init(&c, out, WIRE_REJECT_SIZE);
	wire_put32(&c, WIRE_MAGIC);
	wire_put16(&c, r->version);
	wire_put16(&c, r->reason);
	wire_put64(&c, r->detail);
}

int wire_reject_decode(struct wire_reject *r, const uint8_t *data, size_t len)
{
	struct wire_cursor c;
	uint32_t magic;

	wire_cursor_init(&c, (void *)data, len);
	magic = wire_get32(&c);
	r->version = wire_get16(&c);
	r->reason = wire_get16(&c);
	r->detail = wire_get64(&c);
	return c.failed || magic != WIRE_MAGIC ? -EPROTO : 0;
}

/* What a reason's detail is in the sentence. */
enum shows { NOTHING, A_NUMBER, A_SERVICE };

static const struct {
	enum shows shows;
	const char *before, *after;
} texts[WIRE_REASONS] = {
	[WIRE_REASON_BAD_REQUEST] = {NOTHING, "the server did not understand the request", ""},
	[WIRE_REASON_SERVICE] = {A_SERVICE, "the service ",
				 " is not enabled on the server; see services in its rdmad.conf"},
	[WIRE_REASON_CONNECTIONS] = {A_NUMBER, "the server has all the connections it allows, ",
				     "; see max_connections in its rdmad.conf"},
	[WIRE_REASON_MESSAGE_SIZE] = {A_NUMBER, "the message size asked for is beyond the server's limit, ", " bytes"},
	[WIRE_REASON_KEY] = {NOTHING, "the server asks for a key, or for another one; see rdmad-auth(7)", ""},
	[WIRE_REASON_DRAINING] = {NOTHING, "the server takes no more connections: it is draining or shutting down", ""},
	[WIRE_REASON_RESOURCES] = {NOTHING,
				   "the server is out of memory, descriptors or device resources; its log says which",
				   ""},
	[WIRE_REASON_SESSIONS] = {A_NUMBER, "the server has all the gpu sessions it allows, ",
				  "; see gpu.sessions in its rdmad.conf"},
	[WIRE_REASON_SOURCE] = {A_NUMBER, "the server has all the connections it allows from one address or user, ",
				"; see max_connections_per_source in its rdmad.conf"},
	[WIRE_REASON_VALUES] = {A_NUMBER, "the server takes values of ",
				" bytes at most by it, and its log says why; rdma:// connects all the same"},
	[WIRE_REASON_RIGHTS] = {A_SERVICE, "this client has no right to the service ", "; see rdmad-auth(7)"},
	[WIRE_REASON_ENCRYPT] = {NOTHING,
				 "the server takes encrypted connections only, for which a client needs a key, and a "
				 "kernel with TLS (modprobe tls); see rdmad-auth(7)",
				 ""},
};

char *wire_reject_text(const struct wire_reject *r, char *buf, size_t size)
{
	char number[24] = "";
	const char *shown = number;

	switch (r->reason) {
	case WIRE_REASON_VERSION:
		snprintf(buf, size, "the server speaks protocol version %u, this program %u", r->version, WIRE_VERSION);
		return buf;
	case WIRE_REASON_CREDITS:
		snprintf(buf, size, "the credits asked for are outside of %u to %u", WIRE_CREDITS_MIN,
			 WIRE_CREDITS_MAX);
		return buf;
	case WIRE_REASON_PACKET:
		snprintf(
			buf, size,
			"the server's device takes packets of %u bytes at most, and this machine's sends %u: give both "
			"networks the same MTU (ip link)",
			(unsigned)(r->detail >> 32), (unsigned)r->detail);
		return buf;
	}
	if (r->reason >= WIRE_REASONS || !texts[r->reason].before) {
		snprintf(buf, size, "the server refused for reason %u, unknown to this program", r->reason);
		return buf;
	}
	if (texts[r->reason].shows == A_NUMBER)
		snprintf(number, sizeof(number), "%" PRIu64, r->detail);
	else if (texts[r->reason].shows == A_SERVICE)
		shown = wire_service_name((unsigned)r->detail);
	snprintf(buf, size, "%s%s%s", texts[r->reason].before, shown, texts[r->reason].after);
	return buf;
}
