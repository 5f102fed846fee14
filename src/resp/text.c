/* text.c: what Redis takes for a number, a pattern, a word. */
#include "resp/resp.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>

bool resp_read_int64(const void *bytes, size_t len, int64_t *out)
{
	const char *c = bytes, *end = c + len;
	bool negative = len && *c == '-';
	uint64_t value = 0;

	c += negative;
	if (end - c == 1 && *c == '0' && !negative) {
		*out = 0;
		return true;
	}
	if (c == end || end - c > 19 || *c < '1' || *c > '9') /* 19 digits fit into 64 bits */
		return false;
	for (; c < end; c++) {
		if (*c < '0' || *c > '9')
			return false;
		value = value * 10 + (uint64_t)(*c - '0');
	}
	if (value > (uint64_t)INT64_MAX + negative)
		return false;
	*out = (int64_t)(negative ? -value : value);
	return true;
}

bool resp_read_long_double(const void *bytes, size_t len, long double *out)
{
	char text[RESP_LONG_DOUBLE], *end;
	long double value;
	int error;

	if (!len || len >= sizeof(text))
		return false;
	memcpy(text, bytes, len);
	text[len] = '\0';
	if (isspace((unsigned char)*text))
		return false;
	error = errno;
	errno = 0;
	value = strtold(text, &end);
	if (end != text + len || isnan(value) || errno == EINVAL ||
	    (errno == ERANGE && (isinf(value) || fpclassify(value) == FP_ZERO))) {
		errno = error;
		return false;
	}
	errno = error;
	*out = value;
	return true;
}

int resp_write_long_double(char out[RESP_LONG_DOUBLE], long double number)
{
	int len;

	if (isinf(number))
		return snprintf(out, RESP_LONG_DOUBLE, number > 0 ? "inf" : "-inf");
	len = snprintf(out, RESP_LONG_DOUBLE, "%.17Lf", number);
	if (len < 0 || (size_t)len >= RESP_LONG_DOUBLE)
		return -1;
	if (memchr(out, '.', (size_t)len)) {
		while (out[len - 1] == '0')
			len--;
		len -= out[len - 1] == '.';
	}
	out[len] = '\0';
	if (strcmp(out, "-0") == 0)
		len = snprintf(out, RESP_LONG_DOUBLE, "0");
	return len;
}

int resp_write_int64(char out[RESP_INT64], int64_t number)
{
	uint64_t rest = number < 0 ? -(uint64_t)number : (uint64_t)number;
	char digits[RESP_INT64], *c = digits + sizeof(digits);
	int len;

	do
		*--c = (char)('0' + rest % 10);
	while (rest /= 10);
	if (number < 0)
		*--c = '-';
	len = (int)(digits + sizeof(digits) - c);
	memcpy(out, c, (size_t)len);
	out[len] = '\0';
	return len;
}

static bool chars_equal(char a, char b, bool any_case)
{
	return a == b || (any_case && resp_lower(a) == resp_lower(b));
}

/* tolower() of a signed byte, as the C library has it: unsigned, but for the one that is EOF. */
static int lower_signed(int c)
{
	return c == EOF ? EOF : (uint8_t)resp_lower((char)c);
}

/* A range's ends may stand the wrong way round, as signed bytes. */
static bool in_range(signed char from, signed char to, signed char c, bool any_case)
{
	int low = MIN(from, to), high = MAX(from, to);

	if (any_case)
		return lower_signed(c) >= lower_signed(low) && lower_signed(c) <= lower_signed(high);
	return c >= low && c <= high;
}

/* The class from behind its '[' on. A class that does not end goes to the pattern's end. *end: behind it. */
static bool match_class(const char *p, const char *pattern_end, char c, bool any_case, const char **end)
{
	bool no = p < pattern_end && *p == '^', match = false;

	for (p += no; p < pattern_end && *p != ']'; p++) {
		if (*p == '\\' && pattern_end - p >= 2) {
			match |= *++p == c;
		} else if (pattern_end - p >= 3 && p[1] == '-') {
			match |= in_range((signed char)*p, (signed char)p[2], (signed char)c, any_case);
			p += 2;
		} else {
			match |= chars_equal(*p, c, any_case);
		}
	}
	*end = p < pattern_end ? p + 1 : p;
	return match != no;
}

/* What stands for one byte, at the pattern's front. *end: behind it. */
static bool match_byte(const char *p, const char *pattern_end, char c, bool any_case, const char **end)
{
	if (*p == '[')
		return match_class(p + 1, pattern_end, c, any_case, end);
	*end = p + 1;
	if (*p == '?')
		return true;
	if (*p == '\\' && pattern_end - p >= 2)
		*end = ++p + 1;
	return chars_equal(*p, c, any_case);
}

/*
 * All but '*' stands for one byte. So where the rest behind a star does not match, only the last star need take one
 * byte more: what stars before it took gave the earliest place for what is between them. At most pattern_len * len
 * steps.
 * As in Redis nothing but an empty pattern matches an empty text.
 */
bool resp_match(const char *pattern, size_t pattern_len, const char *text, size_t len, bool any_case)
{
	const char *p = pattern, *p_end = pattern + pattern_len, *t = text, *t_end = text + len;
	const char *star = NULL, *star_text = NULL; /* behind the last star, and what it leaves to match */

	if (!len)
		return !pattern_len;
	while (t < t_end) {
		if (p < p_end && *p == '*') {
			star = ++p;
			star_text = t;
			if (p == p_end)
				return true;
		} else if (p < p_end && match_byte(p, p_end, *t, any_case, &p)) {
			t++;
		} else if (star) {
			p = star;
			t = ++star_text;
		} else {
			return false;
		}
	}
	while (p < p_end && *p == '*')
		p++;
	return p == p_end;
}

bool resp_is(const struct resp_arg *arg, const char *word)
{
	for (size_t i = 0; i < arg->len; i++)
		if (!word[i] || resp_lower(arg->at[i]) != word[i])
			return false;
	return !word[arg->len];
}
