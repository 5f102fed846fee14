/* cluster.c: tables of a cluster. One that is taken has a text that parses to the same, and a table after it. */
#include "cluster/cluster.h"
#include "fuzz.h"

static struct cluster_table table, again, next;
static char text[CLUSTER_TEXT_MAX + 1];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned counts[CLUSTER_NODES];
	int length;

	fuzz_silence();
	if (cluster_parse("table", (const char *)data, size, &table) != 0)
		return 0;
	length = cluster_print(&table, text);
	REQUIRE(length > 0 && text[length] == '\0' && strlen(text) == (size_t)length);
	REQUIRE(cluster_parse("table", text, (size_t)length, &again) == 0);
	REQUIRE(memcmp(&table, &again, sizeof(table)) == 0);
	for (unsigned i = 0; i < table.count; i++)
		REQUIRE(cluster_find(&table, table.node[i].name) == i);
	if (table.count < 2 || table.epoch == CLUSTER_EPOCH_MAX)
		return 0;
	/* Without the first node. */
	REQUIRE(cluster_plan(&table, table.node + 1, table.count - 1, &next) == 0);
	cluster_count(&next, counts);
	for (unsigned i = 0; i < next.count; i++)
		REQUIRE(counts[i] - CLUSTER_SLOTS / next.count <= 1);
	return 0;
}
