/* words.c: how far a word is from the one that was meant; names; text in columns; the lines of a text. */
#include "base/base.h"

unsigned words_distance(const char *a, const char *b)
{
	unsigned row[65], n = (unsigned)MIN(strlen(b), ARRAY_SIZE(row) - 1);

	for (unsigned j = 0; j <= n; j++)
		row[j] = j;
	for (unsigned i = 1; *a; i++, a++) {
		unsigned corner = row[0];

		row[0] = i;
		for (unsigned j = 1; j <= n; j++) {
			unsigned above = row[j];
			unsigned change = corner + (*a != b[j - 1]);

			row[j] = MIN(change, MIN(above, row[j - 1]) + 1);
			corner = above;
		}
	}
	return row[n];
}

#define LINE_WIDTH 79 /* a line that fills all 80 columns of a terminal has an empty one behind it at some */

void words_row(FILE *out, const char *left, unsigned column, const char *text)
{
	unsigned at = (unsigned)fprintf(out, "  %s", left);

	if (at + 2 > column) {
		putc('\n', out);
		at = 0;
	}
	fprintf(out, "%*s", (int)(column - at), "");
	at = column;
	while (*text) {
		unsigned n = (unsigned)strcspn(text, " \n");

		if (at > column && at + 1 + n > LINE_WIDTH) {
			fprintf(out, "\n%*s", (int)column, "");
			at = column;
		} else if (at > column) {
			at += (unsigned)fprintf(out, " ");
		}
		at += (unsigned)fprintf(out, "%.*s", (int)n, text);
		text += n + (text[n] != '\0');
	}
	putc('\n', out);
}

bool words_is_name(const char *text, size_t most)
{
	size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");

	return n > 0 && n <= most && !text[n];
}

struct words_lines words_lines(const char *text, size_t length)
{
	return (struct words_lines){.next = text, .end = text + length};
}

bool words_lines_next(struct words_lines *lines)
{
	while (lines->next < lines->end) {
		const char *at = lines->next;
		const char *end = memchr(at, '\n', (size_t)(lines->end - at));

		end = end ? end : lines->end;
		lines->next = end + 1;
		lines->number++;
		while (at < end && (*at == ' ' || *at == '\t'))
			at++;
		while (at < end && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
			end--;
		if (at == end || *at == '#')
			continue;
		lines->line = at;
		lines->length = (size_t)(end - at);
		return true;
	}
	return false;
}
