/* terminal.c: what is different where people look: bytes of others must not speak to their terminal, and they can be
 * asked. */
#include "ctl/ctl.h"

#include <stdlib.h>
#include <unistd.h>

bool ctl_at_terminal(void)
{
	static int known = -1;

	if (known < 0)
		known = isatty(STDOUT_FILENO);
	return known;
}

/* Find how many bytes the character at `at` has, and a text for it that a terminal only shows. */
static size_t show_character(const char *at, size_t len, char shown[static 17])
{
	unsigned char lead = (unsigned char)*at;
	size_t takes = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
	char text[5] = "";

	takes = MIN(takes, len);
	memcpy(text, at, takes);
	if (memchr(text, '\0', takes)) {
		snprintf(shown, 17, "\\x%02x", lead);
		return 1;
	}
	log_printable(text, shown, 17);
	return takes;
}

static void put_safely(const char *data, size_t len, bool lines)
{
	char shown[17];

	for (size_t n; len; data += n, len -= n) {
		n = 1;
		if ((*data >= ' ' && *data < 0x7f) || (lines && (*data == '\n' || *data == '\t'))) {
			putchar(*data);
		} else {
			n = show_character(data, len, shown);
			fputs(shown, stdout);
		}
	}
}

void ctl_put_key(const void *key, size_t len)
{
	if (ctl_at_terminal())
		put_safely(key, len, false);
	else
		fwrite(key, 1, len, stdout);
}

void ctl_put_value(const void *value, size_t len)
{
	if (ctl_at_terminal())
		put_safely(value, len, true);
	else
		fwrite(value, 1, len, stdout);
}

/* The number of a character of up to three bytes. */
static unsigned number_of(const char *at, size_t takes)
{
	unsigned number = (unsigned char)*at & (takes > 1 ? 0x7fu >> takes : 0x7fu);

	for (size_t i = 1; i < takes; i++)
		number = number << 6 | ((unsigned char)at[i] & 0x3f);
	return number;
}

static void put_json_safely(const char *text, size_t len)
{
	char shown[17];

	for (size_t n; len; text += n, len -= n) {
		n = show_character(text, len, shown);
		if (memcmp(shown, text, n) == 0)
			fputs(shown, stdout);
		else
			printf("\\u%04x", number_of(text, n));
	}
}

int ctl_put_json(FILE *out, const json_t *json)
{
	const size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(9);
	char *text;

	if (out != stdout || !ctl_at_terminal())
		return json_dumpf(json, out, flags);
	text = json_dumps(json, flags);
	if (!text)
		return -1;
	put_json_safely(text, strlen(text));
	free(text);
	return ferror(out) ? -1 : 0;
}

bool ctl_line_is_open(const void *value, size_t len)
{
	return ctl_at_terminal() && (!len || ((const char *)value)[len - 1] != '\n');
}

bool ctl_confirmed(const char *format, ...)
{
	char answer[16];
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputs(" [y/N] ", stderr);
	fflush(stderr);
	return fgets(answer, sizeof(answer), stdin) &&
	       (strcasecmp(answer, "y\n") == 0 || strcasecmp(answer, "yes\n") == 0);
}
