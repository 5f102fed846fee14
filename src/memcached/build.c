/* build.c: answers, and base64. */
#include "memcached/memcached.h"

#include <stdlib.h>

#define DIGITS 20 /* of 64 bits */

char *memc_grow(struct memc_out *out, size_t bytes)
{
	char *at;

	if (likely(!out->failed && bytes <= out->room - out->len))
		return out->at + out->len;
	at = out->failed ? NULL : buffer_grow(&out->at, &out->room, out->len, bytes, out->most);
	out->failed = !at;
	return at;
}

void memc_put(struct memc_out *out, const void *bytes, size_t len)
{
	char *to = memc_grow(out, len);

	if (!to || !len)
		return;
	memcpy(to, bytes, len);
	out->len += len;
}

void memc_put_text(struct memc_out *out, const char *text)
{
	memc_put(out, text, strlen(text));
}

static char *write_number(char *to, uint64_t number)
{
	char digits[DIGITS], *at = digits + DIGITS;
	size_t len;

	do
		*--at = (char)('0' + number % 10);
	while (number /= 10);
	len = (size_t)(digits + DIGITS - at);
	memcpy(to, at, len);
	return to + len;
}

void memc_put_number(struct memc_out *out, uint64_t number)
{
	char *to = memc_grow(out, DIGITS);

	if (to)
		out->len = (size_t)(write_number(to, number) - out->at);
}

void memc_line(struct memc_out *out, const char *text)
{
	size_t len = strlen(text);
	char *to = memc_grow(out, len + 2);

	if (!to)
		return;
	memcpy(to, text, len);
	memcpy(to + len, "\r\n", 2);
	out->len += len + 2;
}

char *memc_write_value(char *to, const struct memc_word *key, uint32_t flags, uint64_t len, const uint64_t *cas)
{
	memcpy(to, "VALUE ", 6);
	memcpy(to + 6, key->at, key->len);
	to += 6 + key->len;
	*to++ = ' ';
	to = write_number(to, flags);
	*to++ = ' ';
	to = write_number(to, len);
	if (cas) {
		*to++ = ' ';
		to = write_number(to, *cas);
	}
	*to++ = '\r';
	*to++ = '\n';
	return to;
}

void memc_value(struct memc_out *out, const struct memc_word *key, uint32_t flags, uint64_t len, const uint64_t *cas)
{
	char *to = memc_grow(out, MEMC_VALUE_HEAD);

	if (to)
		out->len = (size_t)(memc_write_value(to, key, flags, len, cas) - out->at);
}

void memc_flag(struct memc_out *out, char letter)
{
	const char text[2] = {' ', letter};

	memc_put(out, text, sizeof(text));
}

void memc_flag_number(struct memc_out *out, char letter, uint64_t number)
{
	memc_flag(out, letter);
	memc_put_number(out, number);
}

static void flag_key(struct memc_out *out, const struct memc_command *c)
{
	char *to;

	memc_flag(out, 'k');
	if (!c->binary) {
		memc_put(out, c->key.at, c->key.len);
		return;
	}
	to = memc_grow(out, MEMC_BASE64(c->key.len));
	if (to)
		out->len += memc_base64_write(c->key.at, c->key.len, to);
	memc_flag(out, 'b');
}

void memc_flag_echo(struct memc_out *out, const struct memc_command *c, const struct memc_word *flag)
{
	if (memc_letter(flag) == 'k') {
		flag_key(out, c);
	} else if (memc_letter(flag) == 'O') {
		memc_put(out, " ", 1);
		memc_put(out, flag->at, flag->len);
	}
}

void memc_flags_echo(struct memc_out *out, const struct memc_command *c)
{
	for (unsigned i = 0; i < c->flags; i++)
		memc_flag_echo(out, c, &c->flag[i]);
}

/*
 * Base64
 */

static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Its six bits; 0 of what fills up; -1: it is no digit. */
static int digit_of(char c)
{
	const char *at = c ? strchr(digit, c) : NULL;

	return at ? (int)(at - digit) : c == '=' ? 0 : -1;
}

size_t memc_base64_read(const char *at, size_t len, char *out, size_t room)
{
	unsigned count = 0, pad = 0, bits = 0;
	size_t digits = 0, n = 0;

	for (size_t i = 0; i < len; i++)
		digits += digit_of(at[i]) >= 0;
	if (!digits || digits % 4 || digits / 4 * 3 > room)
		return 0;
	for (size_t i = 0; i < len; i++) {
		if (digit_of(at[i]) < 0)
			continue;
		pad += at[i] == '=';
		bits = bits << 6 | (unsigned)digit_of(at[i]);
		if (++count % 4)
			continue;
		for (unsigned byte = 0; byte < 3; byte++)
			out[n++] = (char)(bits >> (16 - 8 * byte));
		bits = 0;
		if (pad)
			return pad > 2 ? 0 : n - pad;
	}
	return n;
}

size_t memc_base64_write(const char *at, size_t len, char *out)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i += 3) {
		unsigned bits = 0;

		for (size_t byte = 0; byte < 3; byte++)
			bits = bits << 8 | (i + byte < len ? (unsigned char)at[i + byte] : 0u);
		for (unsigned k = 0; k < 4; k++)
			out[n++] = i + k <= len ? digit[bits >> (18 - 6 * k) & 63] : '=';
	}
	return n;
}
