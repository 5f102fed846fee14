/*
 * etcd: the engine of agreement of a cluster's nodes (cluster.h), by the JSON gateway of etcd's third version, which is
 * one request of HTTP for each transaction. No lease and no watch: what is told is only what a transaction brought.
 *
 *   base64.c   keys and values
 *   json.c     a transaction as JSON, and its answer
 *   client.c   requests, to one endpoint after the other
 *
 * A cluster has the keys /rdmad/NAME/table and /rdmad/NAME/member/NODE. Errors are negative errnos, logged.
 */
#ifndef RDMAD_ETCD_ETCD_H
#define RDMAD_ETCD_ETCD_H

#include "cluster/cluster.h"

#define ETCD_MEMBERS 1024u        /* keys of nodes, at most: tables have fewer */
#define ETCD_ANSWER_MAX (2 * MIB) /* bytes of an answer */

/*
 * base64.c: with padding, as the gateway has it.
 */
#define ETCD_BASE64_SIZE(length) (((length) + 2) / 3 * 4 + 1)

void etcd_base64_encode(const void *bytes, size_t length, char text[static 1]); /* ETCD_BASE64_SIZE(length) */
/* How many bytes, or -EINVAL: it is none, or is longer than `size`. */
ssize_t etcd_base64_decode(const char *text, void *bytes, size_t size);

/*
 * json.c
 */

/* The transaction as a body for POST /v3/kv/txn; free() it. NULL: no memory. */
char *etcd_encode(const char *cluster, const struct cluster_txn *txn);

struct etcd_answer {
	struct cluster_view view; /* what it points at is freed by etcd_answer_free() */
	bool carried_out;         /* the keys had the revisions; if the answer is that of the only one that was sent */
};

/* The answer's body, of any content. -EPROTO: it is none, -ENOMEM; and there is nothing to free. */
int etcd_decode(const char *cluster, const char *text, size_t length, struct etcd_answer *out);
void etcd_answer_free(struct etcd_answer *answer);

/*
 * client.c: one request at a time. One thread, that of the event base.
 */
struct event_base;
struct etcd;

struct etcd_attr {
	struct event_base *base;
	const char *cluster;
	const char *const *endpoints; /* http://host:port */
	unsigned count;
	const char *user, *password; /* NULL: none */
	uint64_t timeout;            /* ns that an answer may take; one to a password may take longer */
};

/* Check what http://host[:port] is meant to be: 0, -EINVAL. Nothing else is an endpoint. */
int etcd_check_endpoint(const char *text, struct address *out);

/* What attr points at is copied. */
int etcd_open(const struct etcd_attr *attr, struct etcd **out);
void etcd_close(struct etcd *etcd); /* NULL is fine. done() is not called any more */

/* Send a transaction, to the endpoint that answered last, or the next one. done() comes later, not from here, once:
 * with the answer, which is used up on return unless it was taken out; or NULL: there is none, and why not is in
 * etcd_fault(). The next one is sent behind it, not from it. */
typedef void etcd_done_fn(void *arg, struct etcd_answer *answer);
int etcd_send(struct etcd *etcd, const struct cluster_txn *txn, etcd_done_fn *done, void *arg);

/* The same at once, by an event base of its own, from one endpoint after the other: 0, and *out is to be freed; -EIO:
 * no endpoint answers, logged. attr->base is of no meaning. */
int etcd_ask(const struct etcd_attr *attr, const struct cluster_txn *txn, struct etcd_answer *out);

/* Why the last request had no answer; "": it had one. */
const char *etcd_fault(const struct etcd *etcd);
/* That the next request goes to. */
const char *etcd_endpoint(const struct etcd *etcd);

#endif
