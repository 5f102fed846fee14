/* channel_cases.h: what holds over each transport. The cases run on a pair of `channel_cases_url`. */
#ifndef RDMAD_TESTS_CHANNEL_CASES_H
#define RDMAD_TESTS_CHANNEL_CASES_H

#include <check.h>

extern const char *channel_cases_url; /* set by the program; listened on anew by each case */

void channel_cases(Suite *suite);
void channel_cases_errors(Suite *suite); /* a part of them */

#endif
