/* caller.h: a caller of librdmad, of the server in this process. */
#ifndef RDMAD_TESTS_CALLER_H
#define RDMAD_TESTS_CALLER_H

#include <check.h>

#include <rdmad/kv.h>

#include "conn/internal.h"
#include "tests/service/server.h"

static inline void *open_kv(const struct rdmad_options *options, void *share)
{
	void *kv = NULL;
	int rc = kv_open_options(server.address, options, share, &kv);

	ck_assert_msg(rc == 0, "%s: %s", server.address, rdmad_error());
	return kv;
}

/* A counter of the server's, while it stands still. */
static inline uint64_t server_count(const char *name)
{
	uint64_t n;

	server_pause();
	n = services_count(&server.services, name);
	server_resume();
	return n;
}

/* For each connection of the server: its client may read keys that begin so, and no others. */
static inline void restrict_reads(void *arg, struct conn *conn)
{
	static struct auth_client client;

	client = auth_everything;
	client.text = arg;
	client.prefixes[AUTH_READ] = (struct auth_prefixes){.count = 1, .prefix = {{.length = (uint16_t)strlen(arg)}}};
	conn->admission.client = &client;
	service_revised(conn);
}

#define ASSERT_ERROR(call, error, text)                                                                                \
	do {                                                                                                           \
		int rc_ = (call);                                                                                      \
		ck_assert_int_eq(rc_, error);                                                                          \
		ck_assert_msg(strstr(rdmad_error(), text), "%s", rdmad_error());                                       \
	} while (0)

#endif
