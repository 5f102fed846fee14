/* cluster.c: the table of a cluster, as its servers tell it, page by page. */
#include "client/kv/kv.h"
#include "cluster/cluster.h"

#include <stdlib.h>

#define PAGE_MIN 1024u /* bytes of a page that is not the last one, so that no server makes many of them */
#define RESTARTS 8u    /* tables that change while they are read */

/* A table that is being read. */
struct table_text {
	uint64_t has; /* the epoch that the caller knows, 0: none */
	struct wire_table head;
	uint64_t at; /* so many bytes are here */
	unsigned restarts;
	char text[CLUSTER_TEXT_MAX + 1];
};

/* The next page: 1: another one is to be asked for, from t->at on; 0: it is complete, or, with t->at 0, the one that
 * the caller has; -EPROTO: it cannot be one. */
static int table_page(struct table_text *t, const char *body, size_t length)
{
	struct wire_table head;

	memcpy(&head, body, sizeof(head));
	body += sizeof(head);
	length -= sizeof(head);
	if (!head.epoch || head.epoch > CLUSTER_EPOCH_MAX || !head.length || head.length > CLUSTER_TEXT_MAX)
		return -EPROTO;
	if (head.epoch != t->head.epoch && t->at) { /* another table since the page before */
		t->at = 0;
		return ++t->restarts <= RESTARTS ? 1 : -EPROTO;
	}
	if (t->at && head.length != t->head.length)
		return -EPROTO;
	t->head = head;
	if (head.epoch == t->has)
		return length ? -EPROTO : 0;
	if (length > head.length - t->at || length < MIN(head.length - t->at, PAGE_MIN))
		return -EPROTO;
	memcpy(t->text + t->at, body, length);
	t->at += length;
	return t->at < head.length;
}

/* What was read is to be a table, and of the epoch that it was announced with. */
static int table_check(const char *server, const struct table_text *t, struct cluster_table *table)
{
	int rc = cluster_parse(server, t->text, t->at, table);

	if (rc != 0)
		return rc == -ENOMEM ? rc : -EPROTO;
	if (table->epoch == t->head.epoch)
		return 0;
	return log_fail(-EPROTO, "kv", "%s: the table has the epoch %llu, and was announced with %llu", server,
			(unsigned long long)table->epoch, (unsigned long long)t->head.epoch);
}

/* All pages of the server's table; t->has is set. */
static int table_read(struct kv *kv, struct table_text *t)
{
	struct {
		uint64_t epoch, offset;
	} head;
	const struct ask ask = {.op = WIRE_OP_TABLE, .head = &head, .head_len = sizeof(head)};
	int rc;

	do {
		struct kv_call call = {.want_value = true};
		struct ask page = ask;

		head.epoch = t->has;
		head.offset = t->at;
		rc = kv_call(kv, kv_begin(kv), &page, &call);
		if (rc == -EOPNOTSUPP && kv->tables)
			log_error("kv", "the server at %s is of no cluster, see rdmad-cluster(7)", kv->server);
		if (rc != 0)
			return rc;
		rc = table_page(t, call.value, call.value_len);
		value_release(call.value);
		if (rc < 0)
			log_error("kv", "the server at %s sent what is no table of a cluster", kv->server);
	} while (rc > 0);
	return rc;
}

int kv_cluster_table(void *kv_handle, uint64_t *epoch, char **table)
{
	struct kv *kv = kv_handle;
	int rc = kv_begin_given(kv, epoch && table, "kv_cluster_table needs places for the epoch and the table");
	struct cluster_table *parsed;
	struct table_text *t;

	if (rc != 0)
		return rc;
	*table = NULL;
	t = calloc(1, sizeof(*t));
	parsed = malloc(sizeof(*parsed));
	if (t)
		t->has = *epoch;
	rc = t && parsed ? table_read(kv, t) : log_fail(-ENOMEM, "kv", "no memory for a table");
	if (rc == 0 && t->at)
		rc = table_check(kv->server, t, parsed);
	if (rc == 0 && t->at && !(*table = value_copy(t->text, t->at)))
		rc = log_fail(-ENOMEM, "kv", "no memory for a table");
	if (rc == 0)
		*epoch = t->head.epoch;
	free(parsed);
	free(t);
	return rc;
}
