/* words.c: how far a word is from the one that was meant. */
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
