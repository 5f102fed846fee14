/* cursor.c: bounds-checked reading and writing with an error that sticks. */
#include "wire/wire.h"

#include <endian.h>

void wire_cursor_init(struct wire_cursor *c, void *data, size_t len)
{
	c->at = data;
	c->end = c->at + len;
	c->failed = false;
}

void wire_get_bytes(struct wire_cursor *c, void *out, size_t len)
{
	if (c->failed || (size_t)(c->end - c->at) < len) {
		c->failed = true;
		memset(out, 0, len);
		return;
	}
	memcpy(out, c->at, len);
	c->at += len;
}

void wire_put_bytes(struct wire_cursor *c, const void *data, size_t len)
{
	if (c->failed || (size_t)(c->end - c->at) < len) {
		c->failed = true;
		return;
	}
	memcpy(c->at, data, len);
	c->at += len;
}

uint8_t wire_get8(struct wire_cursor *c)
{
	uint8_t value;

	wire_get_bytes(c, &value, sizeof(value));
	return value;
}

uint16_t wire_get16(struct wire_cursor *c)
{
	uint16_t value;

	wire_get_bytes(c, &value, sizeof(value));
	return le16toh(value);
}

uint32_t wire_get32(struct wire_cursor *c)
{
	uint32_t value;

	wire_get_bytes(c, &value, sizeof(value));
	return le32toh(value);
}

uint64_t wire_get64(struct wire_cursor *c)
{
	uint64_t value;

	wire_get_bytes(c, &value, sizeof(value));
	return le64toh(value);
}

void wire_put8(struct wire_cursor *c, uint8_t value)
{
	wire_put_bytes(c, &value, sizeof(value));
}

void wire_put16(struct wire_cursor *c, uint16_t value)
{
	value = htole16(value);
	wire_put_bytes(c, &value, sizeof(value));
}

void wire_put32(struct wire_cursor *c, uint32_t value)
{
	value = htole32(value);
	wire_put_bytes(c, &value, sizeof(value));
}

void wire_put64(struct wire_cursor *c, uint64_t value)
{
	value = htole64(value);
	wire_put_bytes(c, &value, sizeof(value));
}
