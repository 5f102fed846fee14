/* print.c: the text of a table. */
#include "cluster/cluster.h"

#include <inttypes.h>

#define XXH_INLINE_ALL /* as part of librdmad it needs no other library at run time */
#include <xxhash.h>

struct writer {
	char *text;
	size_t len; /* also of what had no room */
};

__attribute__((format(printf, 2, 3))) static void put(struct writer *w, const char *format, ...)
{
	size_t room = CLUSTER_TEXT_MAX + 1;
	va_list args;
	int n;

	va_start(args, format);
	n = w->len < room ? vsnprintf(w->text + w->len, room - w->len, format, args) : 0;
	va_end(args);
	w->len += (size_t)MAX(n, 0);
}

static void put_node(struct writer *w, const struct cluster_node *node)
{
	put(w, "node %s %s", node->name, node->address[CLUSTER_NATIVE]);
	for (enum cluster_kind kind = CLUSTER_NATIVE + 1; kind < CLUSTER_KINDS; kind++)
		if (*node->address[kind])
			put(w, " %s %s", cluster_kind_name(kind), node->address[kind]);
	put(w, "\n");
}

static void put_range(struct writer *w, unsigned first, unsigned last)
{
	put(w, first == last ? " %u" : " %u-%u", first, last);
}

/* Those of the owner's slots that have a node in `of`, which is table->from or ->to. */
static void put_nodes(struct writer *w, const struct cluster_table *table, unsigned owner, const char *word,
		      const uint16_t *of)
{
	bool had[CLUSTER_NODES] = {false};

	for (unsigned next = 0, slot, last; cluster_range(table, owner, &next, &slot, &last);)
		for (; slot <= last; slot++)
			if (of[slot])
				had[of[slot] - 1] = true;
	for (unsigned node = 0; node < table->count; node++) {
		if (!had[node])
			continue;
		put(w, " %s %s", word, table->node[node].name);
		for (unsigned next = 0, slot, last; cluster_range(table, owner, &next, &slot, &last);)
			for (unsigned first = slot; slot <= last; first = ++slot) {
				if (of[slot] != node + 1)
					continue;
				while (slot < last && of[slot + 1] == node + 1)
					slot++;
				put_range(w, first, slot);
			}
	}
}

/* The owner's slots that came with their values: the epoch again where it is another than before. */
static void put_moved(struct writer *w, const struct cluster_table *table, unsigned owner)
{
	const uint64_t *moved = table->moved;
	uint64_t said = 0;

	for (unsigned next = 0, slot, last; cluster_range(table, owner, &next, &slot, &last);)
		for (unsigned first = slot; slot <= last; first = ++slot) {
			if (!moved[slot])
				continue;
			while (slot < last && moved[slot + 1] == moved[slot])
				slot++;
			if (moved[slot] != said)
				put(w, " moved %" PRIu64, moved[slot]);
			said = moved[slot];
			put_range(w, first, slot);
		}
}

/* A line of an owner's ranges, if it has any. */
static void put_ranges(struct writer *w, const struct cluster_table *table, unsigned owner, const char *what)
{
	const char *before = what;

	for (unsigned next = 0, first, last; cluster_range(table, owner, &next, &first, &last); before = "") {
		put(w, "%s", before);
		put_range(w, first, last);
	}
	if (before == what)
		return;
	put_nodes(w, table, owner, "from", table->from);
	put_nodes(w, table, owner, "to", table->to);
	put_moved(w, table, owner);
	put(w, "\n");
}

int cluster_print(const struct cluster_table *table, char text[static CLUSTER_TEXT_MAX + 1])
{
	char shard[2 * CLUSTER_NAME_MAX + 16];
	struct writer w = {.text = text};

	put(&w, "rdmad-cluster 1\nname %s\nepoch %" PRIu64 "\n", table->name, table->epoch);
	for (unsigned i = 0; i < table->count; i++)
		put_node(&w, &table->node[i]);
	for (unsigned i = 0; i < table->count; i++) {
		snprintf(shard, sizeof(shard), "shard %s %s", table->node[i].name, table->node[i].name);
		put_ranges(&w, table, i, shard);
	}
	put_ranges(&w, table, CLUSTER_ABSENT, "absent");
	put(&w, "checksum %016" PRIx64 "\n", (uint64_t)XXH3_64bits(text, MIN(w.len, CLUSTER_TEXT_MAX)));
	if (w.len > CLUSTER_TEXT_MAX)
		return log_fail(-EFBIG, "cluster", "the table would have more than %u bytes: it has too many ranges",
				CLUSTER_TEXT_MAX);
	return (int)w.len;
}
