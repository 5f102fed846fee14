/* cluster.c: which keys are this server's, by the table of a cluster. It is read at the start, and does not change. */
#include "service/kv/kv.h"

#include <stdlib.h>

static int check_settings(const struct kv_settings *s)
{
	if (!s->cluster_table || !s->cluster_node)
		return log_fail(-EINVAL, "kv",
				"cluster.table and cluster.node: set both, which table there is and which of its nodes "
				"this server is");
	if (kv_log_wanted(s))
		return log_fail(-EINVAL, "kv",
				"cluster.table and log.policy or log.save_at_exit: keys of slots that have another "
				"server meanwhile would come back from the log; set one of them");
	return 0;
}

int kv_cluster_open(const struct kv_settings *s, struct kv_cluster **out)
{
	struct kv_cluster *cluster;
	unsigned slots = 0;
	int rc;

	*out = NULL;
	if (!s->cluster_table && !s->cluster_node)
		return 0;
	rc = check_settings(s);
	if (rc != 0)
		return rc;
	cluster = calloc(1, sizeof(*cluster));
	if (!cluster)
		return -ENOMEM;
	rc = cluster_load(s->cluster_table, &cluster->table);
	if (rc != 0 && rc != -ENOMEM)
		rc = -EINVAL; /* the setting is wrong, however the file fails */
	cluster->self = rc == 0 ? cluster_find(&cluster->table, s->cluster_node) : 0;
	if (rc == 0 && cluster->self == CLUSTER_NODES)
		rc = log_fail(-EINVAL, "kv", "cluster.node: %s has no node %s", s->cluster_table, s->cluster_node);
	if (rc != 0) {
		free(cluster);
		return rc;
	}
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++)
		slots += cluster->table.owner[slot] == cluster->self;
	cluster->slots = slots;
	cluster->length = (uint32_t)cluster_print(&cluster->table, cluster->text); /* as it was when it was read */
	*out = cluster;
	return 0;
}

/* Where the key's slot is; "": nowhere. */
static const char *address_of(const struct kv_cluster *cluster, unsigned slot)
{
	uint16_t owner = cluster->table.owner[slot];

	return owner == CLUSTER_ABSENT ? "" : cluster->table.node[owner].address[CLUSTER_NATIVE];
}

int kv_answer_elsewhere(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, unsigned slot)
{
	const struct kv_cluster *cluster = ((const struct kv_shared *)agent->thread->part.shared)->cluster;
	struct wire_elsewhere where = {.epoch = cluster->table.epoch, .slot = (uint16_t)slot};
	const char *address = address_of(cluster, slot);
	uint32_t length = (uint32_t)(sizeof(where) + strlen(address));
	struct wire_record *reply = conn_reserve(conn, length, NULL);

	if (!reply)
		return -EAGAIN;
	memcpy(reply + 1, &where, sizeof(where));
	memcpy((char *)(reply + 1) + sizeof(where), address, strlen(address));
	kv_answer(conn, agent, request, reply, WIRE_MOVED, length, 0);
	return 0;
}

void kv_cluster_report(const struct kv_cluster *cluster, struct service_report *report)
{
	report->begin(report, "cluster");
	report->text(report, "name", cluster->table.name);
	report->text(report, "node", cluster->table.node[cluster->self].name);
	report->number(report, "epoch", cluster->table.epoch);
	report->number(report, "nodes", cluster->table.count);
	report->number(report, "slots", cluster->slots);
	report->end(report);
}

int kv_serve_table(struct conn *conn, struct kv_agent *agent, const struct wire_record *request, const char *body,
		   struct wire_record *reply)
{
	const struct kv_cluster *cluster = ((const struct kv_shared *)agent->thread->part.shared)->cluster;
	uint64_t has = kv_number(body), offset = kv_number(body + sizeof(has));
	struct wire_table head;
	uint32_t room, length;

	if (!cluster)
		return kv_answer_status(conn, agent, request, WIRE_UNSUPPORTED, 0, 0);
	reply = conn_reserve(conn, KV_GATE_BODY, &room);
	if (!reply)
		return -EAGAIN;
	head = (struct wire_table){cluster->table.epoch, cluster->length};
	memcpy(reply + 1, &head, sizeof(head));
	offset = has == head.epoch ? head.length : MIN(offset, head.length);
	length = (uint32_t)MIN(head.length - offset, room - sizeof(head));
	memcpy((char *)(reply + 1) + sizeof(head), cluster->text + offset, length);
	kv_answer(conn, agent, request, reply, WIRE_OK, (uint32_t)sizeof(head) + length, 0);
	return 0;
}
