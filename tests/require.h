/* require.h: what tests without check ask for; what is not so ends the program and says where. */
#ifndef RDMAD_TESTS_REQUIRE_H
#define RDMAD_TESTS_REQUIRE_H

#include <stdio.h>
#include <stdlib.h>

#define REQUIRE(condition)                                                                                             \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                        \
			abort();                                                                                       \
		}                                                                                                      \
	} while (0)

#endif
