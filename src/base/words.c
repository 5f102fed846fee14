/* words.c: how far a word is from the one that was meant; text in columns. */
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
