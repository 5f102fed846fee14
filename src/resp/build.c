/* build.c: replies, in RESP2 or RESP3. */
#include "resp/resp.h"

#include <math.h>
#include <stdlib.h>

#define HEAD (RESP_INT64 + 3) /* a mark, a number, a line's end */

char *resp_grow(struct resp_out *out, size_t bytes)
{
	char *at;

	if (likely(!out->failed && bytes <= out->room - out->len))
		return out->at + out->len;
	at = out->failed ? NULL : buffer_grow(&out->at, &out->room, out->len, bytes, out->most);
	out->failed = !at;
	return at;
}

/* A mark and a number end a line at `to`; the place behind it. */
static char *put_head(char *to, char mark, int64_t number)
{
	*to++ = mark;
	if (likely(number >= 0 && number <= 9))
		*to++ = (char)('0' + number);
	else
		to += resp_write_int64(to, number);
	*to++ = '\r';
	*to++ = '\n';
	return to;
}

static void reply_head(struct resp_out *out, char mark, int64_t number)
{
	char *to = resp_grow(out, HEAD);

	if (to)
		out->len = (size_t)(put_head(to, mark, number) - out->at);
}

void resp_raw(struct resp_out *out, const void *bytes, size_t len)
{
	char *to = resp_grow(out, len);

	if (!to || !len)
		return;
	memcpy(to, bytes, len);
	out->len += len;
}

static void raw_text(struct resp_out *out, const char *text)
{
	resp_raw(out, text, strlen(text));
}

void resp_simple(struct resp_out *out, const char *text)
{
	size_t len = strlen(text);
	char *to = resp_grow(out, len + 3);

	if (!to)
		return;
	*to = '+';
	memcpy(to + 1, text, len);
	memcpy(to + 1 + len, "\r\n", 2);
	out->len += len + 3;
}

void resp_error(struct resp_out *out, const char *format, ...)
{
	va_list args;
	char *to;
	int len;

	va_start(args, format);
	len = vsnprintf(NULL, 0, format, args);
	va_end(args);
	to = len < 0 ? NULL : resp_grow(out, (size_t)len + 4);
	if (!to) {
		out->failed = true;
		return;
	}
	*to++ = '-';
	va_start(args, format);
	vsnprintf(to, (size_t)len + 1, format, args);
	va_end(args);
	for (int i = 0; i < len; i++)
		if (to[i] == '\r' || to[i] == '\n')
			to[i] = ' ';
	memcpy(to + len, "\r\n", 2);
	out->len += (size_t)len + 3;
}

void resp_number(struct resp_out *out, int64_t number)
{
	reply_head(out, ':', number);
}

void resp_bulk(struct resp_out *out, const void *bytes, size_t len)
{
	char *to = resp_grow(out, len + HEAD + 2);

	if (!to)
		return;
	to = put_head(to, '$', (int64_t)len);
	if (len)
		memcpy(to, bytes, len);
	memcpy(to + len, "\r\n", 2);
	out->len = (size_t)(to + len + 2 - out->at);
}

void resp_bulk_text(struct resp_out *out, const char *text)
{
	resp_bulk(out, text, strlen(text));
}

void resp_bulk_number(struct resp_out *out, int64_t number)
{
	char text[RESP_INT64];

	resp_bulk(out, text, (size_t)resp_write_int64(text, number));
}

void resp_bulk_begin(struct resp_out *out, size_t len)
{
	reply_head(out, '$', (int64_t)len);
}

void resp_bulk_end(struct resp_out *out)
{
	resp_raw(out, "\r\n", 2);
}

void resp_verbatim(struct resp_out *out, const char *text, size_t len)
{
	if (!out->three) {
		resp_bulk(out, text, len);
		return;
	}
	reply_head(out, '=', (int64_t)len + 4);
	resp_raw(out, "txt:", 4);
	resp_raw(out, text, len);
	resp_bulk_end(out);
}

void resp_null(struct resp_out *out)
{
	raw_text(out, out->three ? "_\r\n" : "$-1\r\n");
}

void resp_null_array(struct resp_out *out)
{
	raw_text(out, out->three ? "_\r\n" : "*-1\r\n");
}

void resp_bool(struct resp_out *out, bool is)
{
	if (out->three)
		raw_text(out, is ? "#t\r\n" : "#f\r\n");
	else
		resp_number(out, is);
}

void resp_double(struct resp_out *out, double number)
{
	char text[40];

	if (isnan(number))
		snprintf(text, sizeof(text), "nan");
	else
		snprintf(text, sizeof(text), "%.17g", number); /* and inf, -inf */
	if (!out->three) {
		resp_bulk_text(out, text);
		return;
	}
	raw_text(out, ",");
	raw_text(out, text);
	raw_text(out, "\r\n");
}

void resp_array(struct resp_out *out, size_t members)
{
	reply_head(out, '*', (int64_t)members);
}

void resp_map(struct resp_out *out, size_t pairs)
{
	reply_head(out, out->three ? '%' : '*', (int64_t)(out->three ? pairs : 2 * pairs));
}

void resp_set(struct resp_out *out, size_t members)
{
	reply_head(out, out->three ? '~' : '*', (int64_t)members);
}

void resp_push(struct resp_out *out, size_t members)
{
	reply_head(out, out->three ? '>' : '*', (int64_t)members);
}
