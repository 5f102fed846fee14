/* move.c: slots that come to a node with their values: which of them it takes, and what becomes of them. */
#include "cluster/cluster.h"

#include <inttypes.h>

bool cluster_session_allowed(const struct cluster_session *session, const struct cluster_table *table, unsigned self,
			     const struct cluster_entry *donor, char *why, size_t size)
{
	unsigned from = cluster_find(table, session->donor), slots = 0;

	*why = '\0';
	if (table->epoch < session->epoch)
		snprintf(why, size, "the table here has epoch %" PRIu64 ", and %s has %" PRIu64, table->epoch,
			 session->donor, session->epoch);
	else if (from == CLUSTER_NODES || self == CLUSTER_NODES || from == self)
		snprintf(why, size, "the table of epoch %" PRIu64 " has not both nodes", table->epoch);
	else if (!donor || strcmp(donor->boot, session->boot) != 0 || donor->out)
		snprintf(why, size, "the engine does not have this start of node %s as a member", session->donor);
	for (unsigned slot = 0; slot < CLUSTER_SLOTS && !*why; slot++) {
		if (!cluster_bit(session->slots, slot))
			continue;
		slots++;
		if (table->owner[slot] != from || table->to[slot] != self + 1)
			snprintf(why, size, "by the table of epoch %" PRIu64 " slot %u does not go from %s to here",
				 table->epoch, slot, session->donor);
	}
	if (!*why && !slots)
		snprintf(why, size, "it has no slot");
	return !*why;
}

bool cluster_session_replaces(const struct cluster_session *session, const struct cluster_session *next)
{
	return strcmp(session->donor, next->donor) == 0 &&
	       (strcmp(session->boot, next->boot) != 0 || memcmp(session->id, next->id, sizeof(next->id)) < 0);
}

bool cluster_session_over(const struct cluster_session *session, const struct cluster_table *table, unsigned self)
{
	unsigned from = cluster_find(table, session->donor);

	if (session->complete)
		return table->epoch >= session->complete;
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++)
		if (cluster_bit(session->slots, slot) && (table->owner[slot] != from || table->to[slot] != self + 1))
			return true;
	return false;
}

bool cluster_session_keeps(const struct cluster_session *session, const struct cluster_table *table, unsigned self,
			   unsigned slot)
{
	return session->complete && cluster_bit(session->slots, slot) && table->owner[slot] == self &&
	       table->moved[slot] == session->complete;
}
