/* caller.h: a caller of librdmad, of the server in this process. */
#ifndef RDMAD_TESTS_CALLER_H
#define RDMAD_TESTS_CALLER_H

#include <check.h>

#include <rdmad/kv.h>

#include "tests/service/server.h"

static inline void *open_kv(const struct rdmad_options *options, void *share)
{
	void *kv = NULL;
	int rc = kv_open_options(server.address, options, share, &kv);

	ck_assert_msg(rc == 0, "%s: %s", server.address, rdmad_error());
	return kv;
}

#define ASSERT_ERROR(call, error, text)                                                                                \
	do {                                                                                                           \
		int rc_ = (call);                                                                                      \
		ck_assert_int_eq(rc_, error);                                                                          \
		ck_assert_msg(strstr(rdmad_error(), text), "%s", rdmad_error());                                       \
	} while (0)

#endif
