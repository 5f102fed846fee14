/* must.c: contracts that run. */
#include "base/base.h"

#include <stdlib.h>

void must_fail(const char *condition, const char *function, const char *file, int line)
{
	/* Not by the log's handler: a library's keeps the text, and this is the last word. */
	fprintf(stderr, "rdmad: %s:%d: %s: must hold: %s\n", file, line, function, condition);
	abort();
}

uintptr_t thread_self(void)
{
	static _Thread_local char here;

	return (uintptr_t)&here;
}
