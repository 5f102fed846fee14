/*
 * server.h: what the files about connections, clients and the server share.
 */
#ifndef RDMAD_SERVICE_RESP_SERVER_H
#define RDMAD_SERVICE_RESP_SERVER_H

#include "service/resp/resp.h"

#define RESP_REDIS_VERSION "7.2.4" /* whose clients this is made for */

/* Text behind what is there. */
void resp_print(struct resp_out *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A string of an argument; NULL: no memory. */
char *resp_text(const struct resp_arg *arg);

/*
 * connection.c
 */
#define RESP_DEFAULT_USER "default"
/* Whether no client is asked for a password. */
bool resp_is_open(const struct resp_client *c);
/* What concerns all is for clients that may do everything; false: it was answered. */
bool resp_may_all(struct resp_client *c);

/*
 * clients.c
 */
bool resp_name_fits(struct resp_client *c, const struct resp_arg *name); /* false: it was answered */
void resp_set_name(struct resp_client *c, const struct resp_arg *name);
void resp_set_three(struct resp_client *c, bool three);
void resp_seen_reset(struct resp_client *c); /* but for its library */

/*
 * acl.c
 */
/* Whether there is a category of that name, lower case or not, and the command is one of it. */
bool resp_in_category(const struct resp_command *command, const struct resp_arg *name);

/*
 * server.c
 */

/*
 * info.c: numbers of the whole process.
 */
struct resp_totals {
	uint64_t clients, pubsub, kept; /* connections, now; of them: subscribers, and clients that said MULTI */
	uint64_t commands;
	uint64_t reads, writes, bytes_in, bytes_out, buffer_bytes;
	struct store_stats store;
	/* As in struct resp_shared */
	struct resp_sample sample[2];
	uint64_t peak, base[RESP_BASES];
};

void resp_get_totals(struct resp_client *c, struct resp_totals *out);
/* What was called so often, failed and was rejected, since the process began. Under shared->lock. */
struct resp_calls resp_calls_of(const struct resp_shared *shared, unsigned id);
void resp_errors_reset(struct resp_shared *shared);
unsigned resp_tcp_port(const struct resp_client *c);
bool resp_evicts(const struct resp_shared *shared);

#endif
