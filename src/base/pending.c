/* pending.c: a list in order of arrival, in which all may stay equally long: the first one's deadline is the next. */
#include "base/base.h"

void pending_init(struct pending *pending, const struct pending_attr *attr)
{
	*pending = (struct pending){.attr = *attr};
	list_init(&pending->entries);
}

void pending_add(struct pending *pending, struct pending_entry *entry, uint64_t now)
{
	pending_remove(pending, entry);
	entry->since = now;
	entry->holds = false;
	list_add_tail(&pending->entries, &entry->node);
	pending->count++;
}

void pending_remove(struct pending *pending, struct pending_entry *entry)
{
	if (!pending_has(entry))
		return;
	must(pending->count > 0);
	list_del(&entry->node);
	pending->count--;
}

static void entry_drop(struct pending *pending, struct pending_entry *entry, enum pending_reason reason)
{
	pending_remove(pending, entry);
	pending->attr.drop(entry, reason);
}

struct pending_entry *pending_first(const struct pending *pending)
{
	return list_empty(&pending->entries) ? NULL : list_first(&pending->entries, struct pending_entry, node);
}

static struct pending_entry *first_to_give_way(const struct pending *pending)
{
	list_for_each (pos, &pending->entries) {
		struct pending_entry *entry = container_of(pos, struct pending_entry, node);

		if (!entry->holds)
			return entry;
	}
	return NULL;
}

bool pending_make_room(struct pending *pending, uint64_t now)
{
	struct pending_entry *entry = first_to_give_way(pending);

	if (!entry || now < time_after(entry->since, pending->attr.grace))
		return false;
	entry_drop(pending, entry, PENDING_GAVE_WAY);
	return true;
}

bool pending_has_place(struct pending *pending, uint64_t now)
{
	pending->crowded = pending->count >= pending->attr.limit && !pending_make_room(pending, now);
	return !pending->crowded;
}

int pending_turn(struct pending *pending, uint64_t now)
{
	struct pending_entry *entry;
	int n = 0;

	while (n < PENDING_TURN && (entry = pending_first(pending)) &&
	       now >= time_after(entry->since, pending->attr.stay)) {
		entry_drop(pending, entry, PENDING_LATE);
		n++;
	}
	return n;
}

uint64_t pending_deadline(const struct pending *pending)
{
	const struct pending_entry *late = pending_first(pending),
				   *next = pending->crowded ? first_to_give_way(pending) : NULL;
	uint64_t deadline = late ? time_after(late->since, pending->attr.stay) : TIME_NEVER;

	return next ? MIN(deadline, time_after(next->since, pending->attr.grace)) : deadline;
}

void pending_close(struct pending *pending)
{
	struct pending_entry *entry;

	while ((entry = pending_first(pending)))
		entry_drop(pending, entry, PENDING_CLOSED);
}
