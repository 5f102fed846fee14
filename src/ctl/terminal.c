/* terminal.c: what is different where people look: bytes of others must not speak to their terminal, and they can be asked. */
#include "ctl/ctl.h"

#include <unistd.h>

bool ctl_at_terminal(void)
{
	static int known = -1;

	if (known < 0)
		known = isatty(STDOUT_FILENO);
	return known;
}

/* One character from `at` on, as text that does nothing. How many bytes it took. */
static size_t put_character(const char *at, size_t len)
{
	unsigned char lead = (unsigned char)*at;
	size_t takes = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
	char text[5] = "", shown[17];

	takes = MIN(takes, len);
	memcpy(text, at, takes);
	if (memchr(text, '\0', takes)) {
		printf("\\x%02x", lead);
		return 1;
	}
	fputs(log_printable(text, shown, sizeof(shown)), stdout);
	return takes;
}

static void put_safely(const char *data, size_t len, bool lines)
{
	for (size_t n; len; data += n, len -= n) {
		n = 1;
		if ((*data >= ' ' && *data < 0x7f) || (lines && (*data == '\n' || *data == '\t')))
			putchar(*data);
		else
			n = put_character(data, len);
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
