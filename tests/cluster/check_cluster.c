/* check_cluster.c: slots as Redis Cluster has them; tables as text, and what is wrong with one; plans. */
#include "cluster/cluster.h"
#include "tests/suite.h"

static struct cluster_table table, again;
static char text[CLUSTER_TEXT_MAX + 1];

#define X10 "xxxxxxxxxx"
#define X100 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10
#define X300 X100 X100 X100
#define BEGIN "rdmad-cluster 1\nname kv\nepoch 7\n"
#define TWO BEGIN "node a 10.0.0.1:7471 resp 10.0.0.1:6379\nnode b 10.0.0.2\n"

static int parse(const char *lines)
{
	return cluster_parse("table", lines, strlen(lines), &table);
}

/* The text is refused, and the message is this. */
static void refused(const char *lines, const char *why)
{
	log_clear_last();
	ck_assert_int_lt(parse(lines), 0);
	ck_assert_msg(strstr(log_last(), why), "\"%s\" is said of\n%s, not \"%s\"", log_last(), lines, why);
}

START_TEST(test_slot)
{
	static const struct {
		const char *key;
		unsigned slot;
	} known[] = {{"", 0},
		     {"123456789", 12739},
		     {"foo", 12182},
		     {"bar", 5061},
		     {"hello", 866},
		     {"{bar}", 5061},
		     {"foo{bar}{zap}", 5061},
		     {"foo{}{bar}", 8363},
		     {"foo{{bar}}zap", 4015},
		     {"}{bar}", 5061}};
	uint64_t random = 1;

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		ck_assert_uint_eq(cluster_slot(known[i].key, strlen(known[i].key)), known[i].slot);
	ck_assert_uint_ne(cluster_slot("{foo", 4), 12182);
	ck_assert_uint_ne(cluster_slot("foo}", 4), 12182);
	ck_assert_uint_eq(cluster_slot(NULL, 0), 0);
	/* Bit by bit, for every length and place. */
	for (unsigned n = 0; n < suite_part(20000); n++) {
		uint8_t bytes[128], *key = bytes + random_step(&random) % 8;
		size_t len = random_step(&random) % 100;
		unsigned rest = 0;

		for (size_t i = 0; i < len; i++) {
			key[i] = (uint8_t)random_step(&random);
			if (key[i] == '{')
				key[i] = 0;
			rest ^= (unsigned)key[i] << 8;
			for (unsigned bit = 0; bit < 8; bit++)
				rest = (rest << 1 ^ (rest >> 15) * 0x1021) & 0xffff;
		}
		ck_assert_uint_eq(cluster_slot(key, len), rest % CLUSTER_SLOTS);
	}
}
END_TEST

START_TEST(test_text)
{
	char changed[1000];
	int length;

	ck_assert_int_eq(
		parse("# by hand\n\n  rdmad-cluster 1 \nepoch 7\n\tname kv\r\nnode a  10.0.0.1 resp 10.0.0.1:6379\n"
		      "shard a a 9000\nabsent 16100-16383 16001-16099\nnode b 10.0.0.2:7471\nshard b b "
		      "9001-16000\nshard b b 8191-8999\nshard a a 0-8190"),
		0);
	ck_assert_str_eq(table.name, "kv");
	ck_assert_uint_eq(table.epoch, 7);
	ck_assert_uint_eq(table.count, 2);
	ck_assert_uint_eq(table.owner[9000], cluster_find(&table, "a"));
	ck_assert_uint_eq(table.owner[9001], cluster_find(&table, "b"));
	ck_assert_uint_eq(table.owner[16001], CLUSTER_ABSENT);
	ck_assert_uint_eq(cluster_find(&table, "c"), CLUSTER_NODES);
	ck_assert_uint_eq(cluster_run(&table, 9001), 16000);
	length = cluster_print(&table, text);
	ck_assert_int_gt(length, 0);
	ck_assert(strstr(text, BEGIN "node a 10.0.0.1:7471 resp 10.0.0.1:6379\nnode b 10.0.0.2:7471\nshard a a 0-8190 "
				     "9000\nshard b b 8191-8999 9001-16000\n"
				     "absent 16001-16383\nchecksum "));
	ck_assert_int_eq(cluster_parse("table", text, (size_t)length, &again), 0);
	ck_assert_mem_eq(&table, &again, sizeof(table));
	/* The checksum is of what the table says: comments are free, and a changed digit is not. */
	ck_assert_int_lt(snprintf(changed, sizeof(changed), "# a comment\n%.900s", text), 900);
	ck_assert_int_eq(parse(changed), 0);
	*strstr(changed, "10.0.0.2") = '2';
	refused(changed, "table: the checksum is not the table's");
}
END_TEST

START_TEST(test_addresses)
{
	static const struct {
		enum cluster_kind kind;
		const char *text, *kept; /* NULL: refused */
	} rows[] = {{CLUSTER_NATIVE, "Host.Example", "host.example:7471"},
		    {CLUSTER_NATIVE, "rdma://10.0.0.1:1", "rdma://10.0.0.1:1"},
		    {CLUSTER_NATIVE, "unix:///run/A.sock", "unix:///run/A.sock"},
		    {CLUSTER_NATIVE, "[FE80::1]:1", "[fe80::1]:1"},
		    {CLUSTER_NATIVE, "fe80::1", "[fe80::1]:7471"},
		    {CLUSTER_NATIVE, "*:7471", NULL},
		    {CLUSTER_NATIVE, "host:0", NULL},
		    {CLUSTER_NATIVE, "ho st:1", NULL},
		    {CLUSTER_NATIVE, "h\xc3\xb6st:1", NULL},
		    {CLUSTER_RESP, "host:6379", "host:6379"},
		    {CLUSTER_RESP, "host", NULL},
		    {CLUSTER_RESP, "tcp://host:6379", NULL},
		    {CLUSTER_METRICS, "unix:///run/a", NULL},
		    {CLUSTER_METRICS, "", NULL}};
	char longest[CLUSTER_ADDRESS_MAX + 2] = "";
	struct cluster_node node = {"a"};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int rc = cluster_node_set(&node, rows[i].kind, rows[i].text);

		ck_assert_msg((rc == 0) == (rows[i].kept != NULL), "%s", rows[i].text);
		if (rows[i].kept)
			ck_assert_str_eq(node.address[rows[i].kind], rows[i].kept);
	}
	memset(longest, 'h', CLUSTER_ADDRESS_MAX - 5);
	ck_assert_int_eq(cluster_node_set(&node, CLUSTER_NATIVE, longest), 0);
	memset(longest, 'h', CLUSTER_ADDRESS_MAX - 4);
	ck_assert_int_eq(cluster_node_set(&node, CLUSTER_NATIVE, longest), -EINVAL);
}
END_TEST

START_TEST(test_faults)
{
	refused("", "table: no line begins with rdmad-cluster 1");
	refused("# nothing", "table: no line begins with rdmad-cluster 1");
	refused("hello", "table:1: this is no table of a cluster");
	refused("rdmad-cluster", "table:1: the version is missing");
	refused("rdmad-cluster 2", "table:1: version 2 of the table is not known here");
	refused("rdmad-cluster 1 1", "table:1: \"1\" is one word too many");
	refused("rdmad-cluster 1\nrdmad-cluster 1", "table:2: a second table");
	refused("rdmad-cluster 1\nnam kv", "table:2: \"nam\" begins no line");
	refused("rdmad-cluster 1\nname k/v", "table:2: \"k/v\" is no name of a cluster");
	refused("rdmad-cluster 1\nname", "table:2: the name is missing");
	refused(BEGIN "name kv", "table:4: a second name: the cluster is kv");
	refused(BEGIN "epoch 8", "table:4: a second epoch: it is 7");
	refused("rdmad-cluster 1\nepoch 0", "table:2: \"0\" is no epoch");
	refused("rdmad-cluster 1\nepoch 9223372036854775808", "is no epoch");
	refused("rdmad-cluster 1\nname kv\nnode a 10.0.0.1\nshard a a 0-16383", "table: no line begins with epoch");
	refused(BEGIN, "table: no line begins with node");
	refused(BEGIN "node a", "table:4: the address is missing");
	refused(BEGIN "node a/b h", "table:4: \"a/b\" is no name of a node");
	refused(BEGIN "node a h:0", "table:4: native address \"h:0\": port 0");
	refused(BEGIN "node a h resp", "table:4: the address is missing");
	refused(BEGIN "node a h resp h", "table:4: resp address \"h\": it needs a port");
	refused(BEGIN "node a h rest h:1", "table:4: rest is no kind of address");
	refused(BEGIN "node a h resp h:1 resp h:2", "table:4: a second resp address");
	refused(BEGIN "node a h:1 resp h:1", "table:4: node a has h:1 twice");
	refused(BEGIN "node a h:1\nnode a h:2", "table:5: there are two nodes a");
	refused(BEGIN "node a h:1\nnode b tcp://H:1", "table:5: h:1 is the address of node a and of node b");
	refused(BEGIN "node a h:1 metrics h:3\nnode b h:2 resp h:3", "h:3 is the address of node a and of node b");
	refused(TWO "shard a a", "table:6: a range of slots is missing");
	refused(TWO "shard c c 0-1", "table:6: no line before this one has a node c");
	refused(TWO "shard a b 0-1", "table:6: shard a has node b: here a shard has one node");
	refused(TWO "shard a a 0-1 x", "table:6: \"x\" is no range");
	refused(TWO "shard a a 0-16384", "table:6: \"0-16384\" is no range");
	refused(TWO "shard a a 2-1", "table:6: \"2-1\" is no range");
	refused(TWO "shard a a 2-", "table:6: \"2-\" is no range");
	refused(TWO "shard a a -2", "table:6: \"-2\" is no range");
	refused(TWO "shard a a 1-2-3", "table:6: \"1-2-3\" is no range");
	refused(TWO "shard a a 0-9\nshard b b 9-16383", "table:7: slot 9 is of node a already");
	refused(TWO "absent 0-9\nshard b b 9-16383", "table:7: slot 9 is absent already");
	refused(TWO "shard a a 0-9 from", "table:6: the node's name is missing");
	refused(TWO "shard a a 0-9 from b", "table:6: a range of slots is missing");
	refused(TWO "shard a a 0-9 from c 1", "table:6: no line before this one has a node c");
	refused(TWO "shard a a 0-9 from a 1", "table:6: node a has no slots from itself");
	refused(TWO "shard a a 0-9 from b 9-10", "table:6: slot 10 is not in the line's ranges before from");
	refused(TWO "shard a a from b 9", "table:6: slot 9 is not in the line's ranges before from");
	refused(TWO "shard a a 0-9 from b 1 from b 1", "table:6: slot 1 has a second from");
	refused(TWO "shard a a 0-9 to b", "table:6: a range of slots is missing");
	refused(TWO "shard a a 0-9 to a 1", "table:6: node a has no slots to itself");
	refused(TWO "shard a a 0-9 to c 1", "table:6: no line before this one has a node c");
	refused(TWO "shard a a 0-9 to b 10", "table:6: slot 10 is not in the line's ranges before to");
	refused(TWO "shard a a 0-9 to b 1 from b 2 to b 0-2", "table:6: slot 1 has a second to");
	refused(TWO "shard a a 0-9 moved", "table:6: the epoch is missing");
	refused(TWO "shard a a 0-9 moved 0 1", "table:6: \"0\" is no epoch");
	refused(TWO "shard a a 0-9 moved 7", "table:6: a range of slots is missing");
	refused(TWO "shard a a 0-9 moved 7 1 moved 6 1", "table:6: slot 1 has a second moved");
	refused(TWO "shard a a 0-16383 moved 8 1", "table: slot 1 was moved by epoch 8, which is yet to come");
	refused(TWO "absent 0-9 to b 1", "table:6: absent slots have no to");
	refused(TWO "absent 0-9 moved 7 1", "table:6: absent slots have no moved");
	refused(TWO "shard a a 0-9 12-16383", "table: slots 10-11 are of no shard");
	refused(TWO "shard a a 0-16383\nchecksum 12", "table:7: \"12\" is no checksum");
	refused(TWO "shard a a 0-16383\nchecksum 0123456789abcdef", "table: the checksum is not the table's");
	refused(TWO "checksum 0123456789abcdef\nshard a a 0-16383", "table:7: nothing may follow the checksum");
}
END_TEST

/* Texts that are too big, and bytes that no text has. */
START_TEST(test_bounds)
{
	size_t len = strlen(BEGIN);

	memset(text, ' ', sizeof(text));
	memcpy(text, BEGIN, len);
	ck_assert_int_eq(cluster_parse("table", text, CLUSTER_TEXT_MAX + 1, &table), -EINVAL);
	ck_assert(strstr(log_last(), "table has more than 65536 bytes"));
	refused("x" X300, "table:1: a word has more than 300 characters");
	ck_assert_int_eq(cluster_parse("table", "rdmad-cluster 1\nname k\0v", 24, &table), -EINVAL);
	ck_assert(strstr(log_last(), "table:2: a byte of 0"));
	for (unsigned i = 0; i <= CLUSTER_NODES; i++)
		len += (size_t)sprintf(text + len, "node n%u h%u\n", i, i);
	ck_assert_int_eq(cluster_parse("table", text, len, &table), -E2BIG);
	ck_assert(strstr(log_last(), "table:260: more than 256 nodes"));
	/* Every other slot of each: its text would be longer than any table may be. */
	ck_assert_int_eq(parse(TWO "shard a a 0-16383"), 0);
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot += 2)
		table.owner[slot] = 1;
	ck_assert_int_eq(cluster_print(&table, text), -EFBIG);
}
END_TEST

/*
 * Plans
 */
static struct cluster_node name_node(unsigned number)
{
	struct cluster_node node = {0};
	char address[32];

	snprintf(node.name, sizeof(node.name), "n%u", number);
	snprintf(address, sizeof(address), "h%u", number);
	ck_assert_int_eq(cluster_node_set(&node, CLUSTER_NATIVE, address), 0);
	return node;
}

static void start_empty(void)
{
	memset(&table, 0, sizeof(table));
	strcpy(table.name, "kv");
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++)
		table.owner[slot] = CLUSTER_ABSENT;
}

static unsigned count_runs(const struct cluster_table *of)
{
	unsigned runs = 0;

	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot = cluster_run(of, slot) + 1)
		runs++;
	return runs;
}

static int compare_down(const void *a, const void *b)
{
	return (int)(*(const unsigned *)b - *(const unsigned *)a);
}

/* The least that has to move from `table`: what nodes that stay may keep is theirs. */
static unsigned least_moves(const struct cluster_table *wished)
{
	unsigned counts[CLUSTER_NODES], kept[CLUSTER_NODES] = {0}, stay = 0, n = wished->count;

	cluster_count(&table, counts);
	for (unsigned i = 0; i < table.count; i++)
		if (cluster_find(wished, table.node[i].name) != CLUSTER_NODES)
			kept[stay++] = counts[i];
	qsort(kept, stay, sizeof(kept[0]), compare_down);
	stay = 0;
	for (unsigned i = 0; i < n; i++)
		stay += MIN(kept[i], CLUSTER_SLOTS / n + (i < CLUSTER_SLOTS % n));
	return CLUSTER_SLOTS - stay;
}

/* Of `again`, the plan after `table`. */
static void check_plan(void)
{
	unsigned counts[CLUSTER_NODES], moved = 0;

	ck_assert_uint_eq(again.epoch, table.epoch + 1);
	cluster_count(&again, counts);
	for (unsigned i = 0; i < again.count; i++)
		ck_assert_uint_le(counts[i] - CLUSTER_SLOTS / again.count, 1);
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++) {
		uint16_t old = table.owner[slot];

		ck_assert_uint_lt(again.owner[slot], again.count);
		moved += old == CLUSTER_ABSENT || strcmp(table.node[old].name, again.node[again.owner[slot]].name) != 0;
	}
	ck_assert_uint_eq(moved, least_moves(&again));
}

START_TEST(test_plan_growth)
{
	struct cluster_node nodes[16];

	for (unsigned i = 0; i < ARRAY_SIZE(nodes); i++)
		nodes[i] = name_node(i);
	start_empty();
	ck_assert_int_eq(cluster_plan(&table, nodes, 0, &again), -EINVAL);
	for (unsigned n = 1; n <= ARRAY_SIZE(nodes); n++) {
		unsigned before = count_runs(&table);

		ck_assert_int_eq(cluster_plan(&table, nodes, n, &again), 0);
		check_plan();
		/* Each old node gives one range, and two that are neighbours give one together. */
		ck_assert_uint_le(count_runs(&again), before + n);
		table = again;
	}
	start_empty();
	ck_assert_int_eq(cluster_plan(&table, nodes, 3, &again), 0);
	ck_assert_uint_eq(count_runs(&again), 3);
	ck_assert_uint_eq(again.owner[0], 0);
	ck_assert_uint_eq(again.owner[CLUSTER_SLOTS - 1], 2);
	/* The same nodes: nothing moves. */
	table = again;
	ck_assert_int_eq(cluster_plan(&table, nodes, 3, &again), 0);
	ck_assert_mem_eq(table.owner, again.owner, sizeof(table.owner));
	table.epoch = CLUSTER_EPOCH_MAX;
	ck_assert_int_eq(cluster_plan(&table, nodes, 3, &again), -ERANGE);
	nodes[1] = nodes[0];
	table.epoch = 1;
	ck_assert_int_eq(cluster_plan(&table, nodes, 3, &again), -EINVAL);
}
END_TEST

START_TEST(test_plan_full)
{
	static struct cluster_node nodes[CLUSTER_NODES];
	int length;

	for (unsigned i = 0; i < CLUSTER_NODES; i++)
		nodes[i] = name_node(i);
	start_empty();
	ck_assert_int_eq(cluster_plan(&table, nodes, CLUSTER_NODES, &again), 0);
	check_plan();
	length = cluster_print(&again, text);
	ck_assert_int_gt(length, 0);
	ck_assert_int_eq(cluster_parse("table", text, (size_t)length, &table), 0);
	ck_assert_mem_eq(&table, &again, sizeof(table));
}
END_TEST

/* Change the cluster that `table` is of: nodes join and leave, and one may have died with its slots. */
static void change(uint64_t *random, unsigned *next)
{
	struct cluster_node nodes[32];
	unsigned count = 0, joins = (unsigned)(random_step(random) % 3);

	if (random_step(random) % 8 == 0 && table.count)
		for (unsigned slot = 0, dead = (unsigned)(random_step(random) % table.count); slot < CLUSTER_SLOTS;
		     slot++)
			if (table.owner[slot] == dead)
				table.owner[slot] = CLUSTER_ABSENT;
	for (unsigned i = 0; i < table.count; i++)
		if (random_step(random) % 12 && count < 28)
			nodes[count++] = table.node[i];
	for (unsigned i = 0; i < joins || !count; i++)
		nodes[count++] = name_node((*next)++);
	ck_assert_int_eq(cluster_plan(&table, nodes, count, &again), 0);
}

START_TEST(test_plan_random)
{
	for (unsigned seed = 1; seed <= suite_part(2000); seed++) {
		uint64_t random = seed * 0x9e3779b97f4a7c15ull;
		unsigned next = 0;

		start_empty();
		for (unsigned i = 0; i < 4; i++) {
			change(&random, &next);
			check_plan();
			table = again;
		}
	}
}
END_TEST

/* After many changes ranges are still long ones, and the text is that of a table. */
START_TEST(test_plan_long)
{
	for (unsigned seed = 1; seed <= suite_part(10); seed++) {
		uint64_t random = seed;
		unsigned next = 0;
		int length;

		start_empty();
		for (unsigned i = 0; i < 200; i++) {
			change(&random, &next);
			check_plan();
			table = again;
		}
		ck_assert_uint_lt(count_runs(&table), 700);
		length = cluster_print(&table, text);
		ck_assert_int_gt(length, 0);
		ck_assert_int_eq(cluster_parse("table", text, (size_t)length, &again), 0);
		ck_assert_mem_eq(&table, &again, sizeof(table));
	}
}
END_TEST

/*
 * Tables by which nodes hand slots over
 */
static void no_error(const char *lines)
{
	ck_assert_msg(parse(lines) == 0, "%s", log_last());
}

START_TEST(test_hand_over)
{
	static const char told[] = "shard b b 100-8191 8193-16383 from a 8193-16383\nabsent 8192 from a 8192\n";
	bool none[CLUSTER_NODES] = {false}, first[CLUSTER_NODES] = {true};

	no_error(TWO "shard a a 0-99 8192-16383\nshard b b 100-8191");
	again = table;
	again.epoch++;
	for (unsigned slot = 8192; slot < CLUSTER_SLOTS; slot++)
		again.owner[slot] = slot == 8192 ? CLUSTER_ABSENT : 1;
	ck_assert_int_eq(cluster_hand_over(&table, none, none, &again), 0);
	ck_assert_int_gt(cluster_print(&again, text), 0);
	ck_assert_msg(strstr(text, told), "%s", text);
	ck_assert_int_eq(cluster_parse("table", text, strlen(text), &table), 0);
	ck_assert_mem_eq(&table, &again, sizeof(table));

	/* What was not let go of stays so, and goes nowhere else. */
	again.epoch++;
	ck_assert_int_eq(cluster_hand_over(&table, none, none, &again), 0);
	ck_assert_mem_eq(table.from, again.from, sizeof(table.from));
	again.owner[9000] = 0;
	ck_assert_int_eq(cluster_hand_over(&table, none, none, &again), -EBUSY);
	ck_assert(strstr(log_last(), "slot 9000 goes on from node b, and node a has not let go of it"));
	ck_assert_int_eq(cluster_hand_over(&table, first, none, &again), 0);
	ck_assert_uint_eq(again.from[9000], 2);
	ck_assert_uint_eq(again.from[9001], 0);

	/* One that is out for as long as the table needs has to say nothing. */
	no_error(TWO "shard a a 0-8191\nshard b b 8192-16383");
	again = table;
	again.epoch++;
	again.owner[0] = 1;
	again.owner[9000] = 0;
	ck_assert_int_eq(cluster_hand_over(&table, none, first, &again), 0);
	ck_assert_uint_eq(again.from[0], 0);
	ck_assert_uint_eq(again.from[9000], 2);

	/* One that loses its slots has to be there to say so. */
	no_error("rdmad-cluster 1\nname kv\nepoch 8\nnode b 10.0.0.2\nshard b b 0-16383");
	again = table;
	no_error(TWO "shard a a 0-8191\nshard b b 8192-16383");
	ck_assert_int_eq(cluster_hand_over(&table, none, none, &again), 0);
	ck_assert_uint_eq(again.count, 2);
	ck_assert_str_eq(again.node[1].name, "a");
	ck_assert_uint_eq(again.from[8191], 2);
	ck_assert_uint_eq(again.from[8192], 0);
	again.epoch = 7;
	ck_assert_int_eq(cluster_hand_over(&table, none, none, &again), -EINVAL);
	again.epoch = 8;
	strcpy(again.name, "other");
	ck_assert_int_eq(cluster_hand_over(&table, none, none, &again), -EINVAL);
}
END_TEST

static void round_trip(void)
{
	static struct cluster_table parsed;

	ck_assert_int_gt(cluster_print(&again, text), 0);
	ck_assert_msg(cluster_parse("table", text, strlen(text), &parsed) == 0, "%s", log_last());
	ck_assert_mem_eq(&parsed, &again, sizeof(parsed));
}

/* Slots that go to another node with their values. */
START_TEST(test_moves)
{
	static const char wished[] =
		"shard a a 0-8191 to b 0-99 to c 8000-8191\nshard b b 8192-16383 to c 16383\nchecksum";
	bool none[CLUSTER_NODES] = {false}, all[CLUSTER_NODES], b_is[CLUSTER_NODES] = {[1] = true};
	uint8_t slots[CLUSTER_SLOT_BYTES] = {0};

	memset(all, true, sizeof(all));
	no_error(TWO "node c h3\nshard a a 0-8191\nshard b b 8192-16383");
	again = table;
	again.epoch++;
	for (unsigned slot = 0; slot < 100; slot++)
		again.owner[slot] = 1;
	for (unsigned slot = 8000; slot < 8192; slot++)
		again.owner[slot] = 2;
	again.to[CLUSTER_SLOTS - 1] = 3; /* as a text may say it */
	ck_assert_int_eq(cluster_keep_values(&table, all, &again), 0);
	ck_assert_int_eq(cluster_hand_over(&table, none, none, &again), 0);
	round_trip();
	ck_assert_msg(strstr(text, wished), "%s", text);

	/* Of a node that does not live the slots go at once, and an owner that is asked for again keeps its own. */
	table = again;
	again.epoch++;
	again.owner[8191] = 0, again.to[8191] = 0;
	ck_assert_int_eq(cluster_keep_values(&table, b_is, &again), 0);
	ck_assert_uint_eq(again.owner[0], 1);
	ck_assert_uint_eq(again.to[0], 0);
	ck_assert_uint_eq(again.owner[8191], 0);
	ck_assert_uint_eq(again.to[8191], 0);
	ck_assert_uint_eq(again.owner[CLUSTER_SLOTS - 1], 1);
	ck_assert_uint_eq(again.to[CLUSTER_SLOTS - 1], 3);

	/* It has moved: as long as the new owner has not said that it serves it, the table says so. */
	for (unsigned slot = 0; slot < 50; slot++)
		cluster_bit_set(slots, slot);
	ck_assert_int_eq(cluster_move(&table, none, slots, 1, &again), 0);
	round_trip();
	ck_assert(strstr(text, "shard a a 50-8191 to b 50-99 to c 8000-8191\n"));
	ck_assert(strstr(text, "shard b b 0-49 8192-16383 from a 0-49 to c 16383 moved 9 0-49\n"));
	table = again;
	ck_assert_int_eq(cluster_spread(&table, none, all, &again), 0);
	ck_assert_int_eq(cluster_hand_over(&table, none, none, &again), 0);
	ck_assert_mem_eq(table.moved, again.moved, sizeof(table.moved));
	ck_assert_mem_eq(table.to, again.to, sizeof(table.to));
	again = table;
	again.epoch++;
	ck_assert_int_eq(cluster_hand_over(&table, b_is, none, &again), 0);
	ck_assert_uint_eq(again.moved[0], 0);
	again = table;
	again.epoch++;
	again.owner[0] = 2, again.to[1] = 1, again.moved[2] = 4;
	ck_assert_int_eq(cluster_hand_over(&table, none, none, &again), -EBUSY); /* a may not know yet */
	table.from[0] = 0;
	ck_assert_int_eq(cluster_hand_over(&table, none, none, &again), 0);
	ck_assert_uint_eq(again.moved[0], 0);
	ck_assert_uint_eq(again.from[0], 2);
	ck_assert_uint_eq(again.to[1], 1);
	ck_assert_uint_eq(again.moved[1], 9);
	ck_assert_uint_eq(again.moved[2], 9); /* it is no one's to say but that of the table before */

	/* A target that is gone is none, and its own slots go on without their values. */
	memset(table.from, 0, sizeof(table.from));
	ck_assert_int_eq(cluster_spread(&table, b_is, all, &again), 0);
	ck_assert_int_eq(cluster_hand_over(&table, b_is, b_is, &again), 0);
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++) {
		ck_assert_uint_ne(again.owner[slot], 1);
		ck_assert_uint_eq(again.to[slot], table.owner[slot] != 1 && table.to[slot] == 3 ? 3 : 0);
		ck_assert_uint_eq(again.moved[slot], 0);
	}

	/* A plan counts a slot as that of the node that is to get it. */
	no_error(TWO "shard a a 0-8191 to b 0-8191\nshard b b 8192-16383 to a 8192-16383");
	ck_assert_int_eq(cluster_plan(&table, table.node, 2, &again), 0);
	ck_assert_uint_eq(again.owner[0], 1);
	ck_assert_uint_eq(again.owner[CLUSTER_SLOTS - 1], 0);
	ck_assert_uint_eq(again.to[0] | again.to[CLUSTER_SLOTS - 1], 0);

	/* One that is to be left out stays as long as it has slots. */
	no_error("rdmad-cluster 1\nname kv\nepoch 8\nnode b 10.0.0.2\nshard b b 0-16383");
	again = table;
	no_error(TWO "shard a a 0-16383");
	ck_assert_int_eq(cluster_keep_values(&table, all, &again), 0);
	ck_assert_int_eq(cluster_hand_over(&table, none, none, &again), 0);
	round_trip();
	ck_assert(strstr(text, "shard a a 0-16383 to b 0-16383\n"));
}
END_TEST

/* What random changes make of a table: its text says it all, and no mark outlives what it is for. */
static void change_randomly(uint64_t *random)
{
	bool settled[CLUSTER_NODES] = {false}, gone[CLUSTER_NODES] = {false}, lives[CLUSTER_NODES] = {false};
	uint8_t slots[CLUSTER_SLOT_BYTES] = {0};
	unsigned kind = (unsigned)(random_step(random) % 4), target = (unsigned)(random_step(random) % table.count);
	unsigned first = (unsigned)(random_step(random) % CLUSTER_SLOTS),
		 count = (unsigned)(random_step(random) % 3000), last = MIN(first + count, CLUSTER_SLOTS - 1);
	int rc = 0;

	for (unsigned i = 0; i < table.count; i++) {
		gone[i] = kind == 0 && random_step(random) % 8 == 0;
		lives[i] = !gone[i] && random_step(random) % 4;
		settled[i] = gone[i] || random_step(random) % 4;
	}
	again = table;
	again.epoch++;
	if (kind == 0) {
		lives[target] = true, gone[target] = false;
		rc = cluster_spread(&table, gone, lives, &again);
	} else if (kind == 1) {
		for (unsigned slot = first; slot <= last; slot++)
			if (table.to[slot] == target + 1u && (!table.from[slot] || settled[table.from[slot] - 1]))
				cluster_bit_set(slots, slot);
		rc = cluster_move(&table, settled, slots, target, &again);
	} else {
		for (unsigned slot = first; slot <= last; slot++)
			again.owner[slot] = (uint16_t)target, again.to[slot] = 0;
		if (kind == 3)
			rc = cluster_keep_values(&table, lives, &again);
	}
	ck_assert_int_eq(rc, 0);
	if (kind != 1 && cluster_hand_over(&table, settled, gone, &again) != 0) {
		again = table;
		return;
	}
	if (random_step(random) % 8 == 0)
		round_trip();
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++) {
		unsigned owner = again.owner[slot], old = table.owner[slot], to = again.to[slot], was = table.to[slot];
		bool came = kind == 1 && cluster_bit(slots, slot), asked = slot >= first && slot <= last;
		uint64_t moved = came ? again.epoch : owner == old && !settled[old] ? table.moved[slot] : 0;
		bool right = owner < again.count && !gone[owner] && again.moved[slot] == moved;

		right &= !to || (owner == old && to - 1 != owner && !gone[to - 1]);
		right &= !came || (owner == target && again.from[slot] == old + 1);
		right &= kind >= 2 || came || owner != old || to == (was && gone[was - 1] ? 0 : was);
		if (kind == 3 && asked && old != target)
			right &= lives[old] ? owner == old && to == target + 1 : owner == target;
		if (!right)
			ck_abort_msg("kind %u, slot %u: from node %u to %u, to %u, moved %llu", kind, slot, old, owner,
				     to, (unsigned long long)again.moved[slot]);
	}
}

START_TEST(test_moves_random)
{
	log_hush_begin();
	for (unsigned seed = 1; seed <= suite_part(500); seed++) {
		uint64_t random = seed * 0x9e3779b97f4a7c15ull;

		no_error(BEGIN "node a h1\nnode b h2\nnode c h3\nnode d h4\nnode e h5\n"
			       "shard a a 0-4095\nshard b b 4096-8191\nshard c c 8192-12287\nshard d d 12288-16383");
		for (unsigned i = 0; i < 20; i++) {
			change_randomly(&random);
			table = again;
		}
	}
	log_hush_end();
}
END_TEST

START_TEST(test_spread)
{
	bool gone[CLUSTER_NODES] = {[1] = true}, lives[CLUSTER_NODES] = {[0] = true, [2] = true};
	unsigned counts[CLUSTER_NODES];

	no_error(BEGIN "node a h1\nnode b h2\nnode c h3\nnode d h4\n"
		       "shard a a 0-999\nshard b b 1000-3999\nshard c c 4000-5999\nshard d d 6000-16382\nabsent 16383");
	ck_assert_int_eq(cluster_spread(&table, gone, lives, &again), 0);
	ck_assert_uint_eq(again.epoch, table.epoch + 1);
	ck_assert_uint_eq(again.count, 4);
	cluster_count(&again, counts);
	ck_assert_uint_eq(counts[0], 3000);
	ck_assert_uint_eq(counts[1], 0);
	ck_assert_uint_eq(counts[2], 3000);
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++)
		ck_assert(table.owner[slot] == 1 || again.owner[slot] == table.owner[slot]);
	lives[0] = lives[2] = false;
	ck_assert_int_eq(cluster_spread(&table, gone, lives, &again), -ESRCH);
}
END_TEST

/* A node's value, whatever is in it. */
START_TEST(test_entry)
{
	static const char *const none[] = {"",
					   "rdmad-member",
					   "rdmad-member 1",
					   "rdmad-member 1 ",
					   "rdmad-member 2 boot a place b",
					   "rdmad-member 1 boot a",
					   "rdmad-member 1 boot a place",
					   "rdmad-member 1 boot a place b count",
					   "rdmad-member 1 boot a place b count -1",
					   "rdmad-member 1 boot a place b epoch 9223372036854775808",
					   "rdmad-member 1 boot a place b period 3600001",
					   "rdmad-member 1 boot a place b in",
					   "rdmad-member 1 boot a/ place b",
					   "rdmad-member 1 boot 0123456789012345678901234567890123 place b"};
	struct cluster_entry entry = {"a", 5, "b1", "-", 7, 8, 3 * TIME_S, true, true}, other = {"a", 5};
	char value[CLUSTER_VALUE_MAX];

	cluster_entry_print(&entry, value);
	ck_assert_str_eq(value, "rdmad-member 1 boot b1 place - count 7 epoch 8 period 3000 lasting out");
	ck_assert_int_eq(cluster_entry_parse(value, strlen(value), &other), 0);
	ck_assert_mem_eq(&entry, &other, sizeof(entry));
	for (size_t i = 0; i < ARRAY_SIZE(none); i++) {
		ck_assert_msg(cluster_entry_parse(none[i], strlen(none[i]), &entry) == -EINVAL, "%s", none[i]);
		ck_assert(!*entry.boot && !entry.out && entry.revision == 5);
	}
	ck_assert_int_eq(cluster_entry_parse("rdmad-member 1\0boot a place b", 30, &entry), -EINVAL);
	ck_assert(!cluster_entry_settled(NULL, 1) && !cluster_entry_settled(&entry, 0));
	ck_assert(cluster_entry_settled(&other, 9));
	other.out = false;
	ck_assert(cluster_entry_settled(&other, 8) && !cluster_entry_settled(&other, 9));
}
END_TEST

/* The engine's answer to what the member asks now: it has `table_text`, and the nodes. */
static void answer_member(struct cluster_member *member, uint64_t now, const char *table_text)
{
	static uint64_t revision = 10;
	struct cluster_entry entries[] = {{"a", 0, "a1", "-", 1, 0, TIME_S, false, false},
					  {"b", 7, "b1", "-", 1, 1, TIME_S, false, false},
					  {"c", 7, "c1", "-", 1, 1, TIME_S, false, false}};
	struct cluster_view view = {.revision = ++revision,
				    .table_revision = table_text ? 5 + strlen(table_text) : 0,
				    .table = table_text,
				    .table_length = table_text ? strlen(table_text) : 0,
				    .member = entries,
				    .members = ARRAY_SIZE(entries)};

	entries[0].revision = revision;
	cluster_member_answer(member, now, &view);
}

static struct cluster_member *a_member(const char *table_text)
{
	struct cluster_member_attr attr = {.cluster = "kv",
					   .node = "a",
					   .boot = "a1",
					   .place = "-",
					   .period = TIME_S,
					   .serves = CLUSTER_SERVES,
					   .silence = CLUSTER_SILENCE};
	struct cluster_member *member;
	uint64_t now = 100 * TIME_S;
	struct cluster_txn txn;

	ck_assert_int_eq(cluster_member_new(&attr, &member), 0);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert(cluster_member_next(member, now, &txn));
		answer_member(member, now, table_text);
		if (i == 0)
			cluster_member_adopted(member, cluster_member_wish(member)->serial);
	}
	return member;
}

/* What becomes of a commit cannot be known while the engine's table is none: it is not sent again and again then. */
START_TEST(test_commit_refused)
{
	static const char first[] =
		"rdmad-cluster 1\nname kv\nepoch 1\nnode a h1\nnode b h2\nshard a a 0-16383 to b 0-9\n",
			  other[] = "rdmad-cluster 1\nname kv\nepoch 3\nnode a h1\nnode b h2\nshard a a 0-16383\n";
	struct cluster_step step = {.target = ""};
	struct cluster_member *member = a_member(first);
	struct cluster_txn txn;
	uint64_t now = 100 * TIME_S;

	ck_assert(cluster_member_step(member, NULL, &step));
	ck_assert_str_eq(step.target, "b");
	ck_assert(cluster_member_commit(member, &step, 2));
	ck_assert(cluster_member_next(member, now, &txn));
	ck_assert_uint_eq(txn.compares, 3);
	answer_member(member, now, NULL);
	ck_assert_int_eq(cluster_member_state(member), CLUSTER_REFUSED);
	ck_assert_int_eq(cluster_member_outcome(member), CLUSTER_OPEN);
	while (cluster_member_due(member) <= now) { /* what else there is */
		if (cluster_member_next(member, now, &txn)) {
			ck_assert_uint_ne(txn.compares, 3);
			answer_member(member, now, NULL);
		}
		ck_assert_msg((now += TIME_MS) < 101 * TIME_S, "it never waits");
	}
	now += TIME_S;
	ck_assert(cluster_member_next(member, now, &txn));
	answer_member(member, now, other);
	ck_assert_int_eq(cluster_member_outcome(member), CLUSTER_NOT_DONE);
	cluster_member_free(member);
}
END_TEST

/* Targets take their turn, and one that rests is passed over. */
START_TEST(test_step_rests)
{
	static const char first[] = "rdmad-cluster 1\nname kv\nepoch 1\nnode a h1\nnode b h2\nnode c h3\n"
				    "shard a a 0-16383 to b 0-4999 to c 5000-9999\n";
	struct cluster_step step = {.target = ""};
	bool rests[CLUSTER_NODES] = {false};
	struct cluster_member *member = a_member(first);

	for (unsigned i = 0; i < 4; i++) {
		ck_assert(cluster_member_step(member, rests, &step));
		ck_assert_str_eq(step.target, i % 2 ? "c" : "b");
	}
	rests[1] = true;
	ck_assert(cluster_member_step(member, rests, &step));
	ck_assert_str_eq(step.target, "c");
	ck_assert(cluster_member_step(member, rests, &step));
	ck_assert_str_eq(step.target, "c");
	rests[2] = true;
	ck_assert(!cluster_member_step(member, rests, &step));
	cluster_member_free(member);
}
END_TEST

/* The table behind a step has no room: that is known before any key is copied, and said with what there is to do. */
START_TEST(test_step_fits)
{
	struct cluster_step step = {.target = ""};
	struct cluster_member *member;

	table = (struct cluster_table){.name = "kv", .epoch = 1};
	for (unsigned i = 0; i < 3; i++) {
		struct cluster_node node = {.name = {(char)('a' + i)}};

		snprintf(node.address[CLUSTER_NATIVE], sizeof(node.address[0]), "h%u:7471", i);
		ck_assert_int_eq(cluster_add(&table, &node), 0);
	}
	/* Each other slot of a range goes. */
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++) {
		table.owner[slot] = slot < 2000 || slot % 2 == 0 || slot > 12300 ? 0 : 2;
		table.to[slot] = slot < 2000 && slot % 2 ? 2 : 0;
	}
	ck_assert_int_gt(cluster_print(&table, text), 0);
	text[cluster_print(&table, text)] = '\0';
	member = a_member(text);
	ck_assert(cluster_member_step(member, NULL, &step));
	ck_assert(!cluster_member_fits(member, &step));
	ck_assert_ptr_nonnull(strstr(cluster_member_fault(member), "too many ranges; rdmactl cluster plan"));
	ck_assert(!cluster_member_commit(member, &step, 2));
	ck_assert_ptr_nonnull(strstr(cluster_member_fault(member), "too many ranges"));
	cluster_member_free(member);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cluster");
	TCase *c = suite_case(suite, "cluster", NULL, NULL);

	log_set_handler(log_keep);
	tcase_add_test(c, test_slot);
	tcase_add_test(c, test_text);
	tcase_add_test(c, test_addresses);
	tcase_add_test(c, test_faults);
	tcase_add_test(c, test_bounds);
	tcase_add_test(c, test_hand_over);
	tcase_add_test(c, test_moves);
	tcase_add_test(c, test_moves_random);
	tcase_add_test(c, test_spread);
	tcase_add_test(c, test_entry);
	tcase_add_test(c, test_commit_refused);
	tcase_add_test(c, test_step_rests);
	tcase_add_test(c, test_step_fits);
	tcase_add_test(c, test_plan_growth);
	tcase_add_test(c, test_plan_full);
	tcase_add_test(c, test_plan_random);
	tcase_add_test(c, test_plan_long);
	return suite_run(suite);
}
