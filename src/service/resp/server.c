/* server.c: COMMAND, and other commands about the server. INFO and CONFIG have files of their own. */
#include "service/resp/script/script.h"
#include "service/resp/server.h"

#include <stdlib.h>
#include <sys/time.h>

/*
 * COMMAND
 */

/* Whether this build has the command, or one of its subcommands. */
static bool is_offered(const struct resp_command *command)
{
	size_t len = strlen(command->name);

	if (resp_serve[command->id])
		return true;
	for (unsigned id = RESP_COMMANDS; id < RESP_IDS; id++)
		if (resp_serve[id] && strncmp(resp_commands[id].name, command->name, len) == 0 &&
		    resp_commands[id].name[len] == '|')
			return true;
	return false;
}

static unsigned count_commands(void)
{
	unsigned n = 0;

	for (unsigned id = 0; id < RESP_COMMANDS; id++)
		n += is_offered(&resp_commands[id]);
	return n;
}

/* "get", "client|id"; NULL: there is none. */
static const struct resp_command *find_named(const struct resp_arg *name)
{
	const char *bar = memchr(name->at, '|', name->len);
	size_t len = bar ? (size_t)(bar - name->at) : name->len;
	const struct resp_command *command = resp_find(name->at, len);

	if (command && bar)
		command = resp_find_sub(command, bar + 1, name->len - len - 1);
	return command && is_offered(command) ? command : NULL;
}

static int tell_all(struct resp_client *c)
{
	resp_array(c->out, count_commands());
	for (unsigned id = 0; id < RESP_COMMANDS; id++)
		if (is_offered(&resp_commands[id]))
			resp_tell_command(c->out, &resp_commands[id]);
	return 0;
}

int resp_do_command(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return tell_all(c);
}

int resp_do_command_count(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	resp_number(c->out, count_commands());
	return 0;
}

int resp_do_command_info(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	if (argc == 2)
		return tell_all(c);
	resp_array(c->out, argc - 2);
	for (unsigned i = 2; i < argc; i++) {
		const struct resp_command *command = find_named(&argv[i]);

		if (command)
			resp_tell_command(c->out, command);
		else
			resp_null_array(c->out);
	}
	return 0;
}

int resp_do_command_docs(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	unsigned n = 0;

	if (argc == 2) {
		resp_map(c->out, count_commands());
		for (unsigned id = 0; id < RESP_COMMANDS; id++)
			if (is_offered(&resp_commands[id]))
				resp_tell_docs(c->out, &resp_commands[id]);
		return 0;
	}
	for (unsigned i = 2; i < argc; i++)
		n += find_named(&argv[i]) != NULL;
	resp_map(c->out, n);
	for (unsigned i = 2; i < argc; i++) {
		const struct resp_command *command = find_named(&argv[i]);

		if (command)
			resp_tell_docs(c->out, command);
	}
	return 0;
}

/* Of COMMAND LIST: whether a command passes the filter, argv[3] by argv[4]. */
static bool passes_filter(const struct resp_command *command, const struct resp_arg *argv, unsigned argc)
{
	if (argc == 2)
		return is_offered(command);
	if (!is_offered(command) || resp_is(&argv[3], "module"))
		return false;
	if (resp_is(&argv[3], "aclcat"))
		return resp_in_category(command, &argv[4]);
	return resp_match(argv[4].at, argv[4].len, command->name, strlen(command->name), true);
}

int resp_do_command_list(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	unsigned n = 0;

	if (argc != 2 &&
	    (argc != 5 || !resp_is(&argv[2], "filterby") ||
	     !(resp_is(&argv[3], "module") || resp_is(&argv[3], "aclcat") || resp_is(&argv[3], "pattern"))))
		return resp_syntax_error(c);
	for (unsigned id = 0; id < RESP_IDS; id++)
		n += passes_filter(&resp_commands[id], argv, argc);
	resp_array(c->out, n);
	for (unsigned id = 0; id < RESP_IDS; id++)
		if (passes_filter(&resp_commands[id], argv, argc))
			resp_bulk_text(c->out, resp_commands[id].name);
	return 0;
}

/* What a command does to its keys: Redis's flags of a key. */
static void tell_key_flags(struct resp_out *out, const struct resp_command *command)
{
	static const struct {
		unsigned id;
		const char *flags[4];
	} special[] = {
		{RESP_CMD_SET, {"OW", "update"}},
		{RESP_CMD_SETEX, {"OW", "update"}},
		{RESP_CMD_PSETEX, {"OW", "update"}},
		{RESP_CMD_MSET, {"OW", "update"}},
		{RESP_CMD_SETNX, {"OW", "insert"}},
		{RESP_CMD_MSETNX, {"OW", "insert"}},
		{RESP_CMD_APPEND, {"RW", "insert"}},
		{RESP_CMD_SETRANGE, {"RW", "update"}},
		{RESP_CMD_DEL, {"RM", "delete"}},
		{RESP_CMD_UNLINK, {"RM", "delete"}},
		{RESP_CMD_GETDEL, {"RW", "access", "delete"}},
		{RESP_CMD_EXPIRE, {"RW", "update"}},
		{RESP_CMD_PEXPIRE, {"RW", "update"}},
		{RESP_CMD_EXPIREAT, {"RW", "update"}},
		{RESP_CMD_PEXPIREAT, {"RW", "update"}},
		{RESP_CMD_PERSIST, {"RW", "update"}},
		{RESP_CMD_EXISTS, {"RO"}},
		{RESP_CMD_TOUCH, {"RO"}},
		{RESP_CMD_TYPE, {"RO"}},
		{RESP_CMD_STRLEN, {"RO"}},
		{RESP_CMD_MEMORY_USAGE, {"RO"}},
		{RESP_CMD_WATCH, {"RO"}},
	};
	static const char *const reads[4] = {"RO", "access"}, *const writes[4] = {"RW", "access", "update"};
	const char *const *flags = command->flags & RESP_WRITE ? writes : reads;
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(special); i++)
		if (special[i].id == command->id)
			flags = special[i].flags;
	while (flags[n])
		n++;
	resp_set(out, n);
	for (size_t i = 0; i < n; i++)
		resp_simple(out, flags[i]);
}

static int tell_keys(struct resp_client *c, const struct resp_arg *argv, unsigned argc, bool flags)
{
	const struct resp_command *command = resp_find(argv[0].at, argv[0].len);
	struct resp_keys keys;

	if (command && resp_has_subs(command) && argc > 1)
		command = resp_find_sub(command, argv[1].at, argv[1].len);
	if (!command) {
		resp_error(c->out, "ERR Invalid command specified");
		return 0;
	}
	if (!command->first && !(command->flags & RESP_MOVABLE_KEYS)) {
		resp_error(c->out, "ERR The command has no key arguments");
		return 0;
	}
	if (!resp_arity_fits(command, argc)) {
		resp_error(c->out, "ERR Invalid number of arguments specified for command");
		return 0;
	}
	keys = resp_keys(command, argv, argc);
	if (!keys.count && !(command->flags & RESP_NO_MANDATORY_KEYS)) {
		resp_error(c->out, "ERR Invalid arguments specified for command");
		return 0;
	}
	resp_array(c->out, keys.count);
	for (unsigned i = 0; i < keys.count; i++) {
		const struct resp_arg *key = resp_key(&keys, argv, i);

		if (flags)
			resp_array(c->out, 2);
		resp_bulk(c->out, key->at, key->len);
		if (flags)
			tell_key_flags(c->out, command);
	}
	return 0;
}

int resp_do_command_getkeys(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return tell_keys(c, argv + 2, argc - 2, false);
}

int resp_do_command_getkeysandflags(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return tell_keys(c, argv + 2, argc - 2, true);
}

int resp_do_command_help(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	static const char *const lines[] = {
		"COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
		"(no subcommand)",
		"    Return details about all Redis commands.",
		"COUNT",
		"    Return the total number of commands in this Redis server.",
		"LIST",
		"    Return a list of all commands in this Redis server.",
		"INFO [<command-name> ...]",
		"    Return details about multiple Redis commands.",
		"    If no command names are given, documentation details for all",
		"    commands are returned.",
		"DOCS [<command-name> ...]",
		"    Return documentation details about multiple Redis commands.",
		"    If no command names are given, documentation details for all",
		"    commands are returned.",
		"GETKEYS <full-command>",
		"    Return the keys from a full Redis command.",
		"GETKEYSANDFLAGS <full-command>",
		"    Return the keys and the access flags from a full Redis command.",
		"HELP",
		"    Prints this help.",
	};

	return resp_help(c, lines, ARRAY_SIZE(lines));
}

/*
 * What is measured: nothing of single commands, so all of it is empty
 */

int resp_do_latency_latest(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	resp_array(c->out, 0);
	return 0;
}

int resp_do_latency_histogram(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	resp_map(c->out, 0);
	return 0;
}

int resp_do_latency_reset(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	resp_number(c->out, 0);
	return 0;
}

int resp_do_latency_history(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	resp_array(c->out, 0);
	return 0;
}

int resp_do_latency_doctor(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	static const char text[] = "rdmad does not measure single commands. Latencies from a client: rdmactl bench kv, "
				   "or redis-cli --latency.\n";

	resp_verbatim(c->out, text, strlen(text));
	return 0;
}

int resp_do_latency_help(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	static const char *const lines[] = {
		"LATENCY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
		"DOCTOR",
		"    Return a human readable latency analysis report.",
		"HISTORY <event>",
		"    Return time-latency samples for the <event> class.",
		"LATEST",
		"    Return the latest latency samples for all events.",
		"RESET [<event> ...]",
		"    Reset latency data of one or more <event> classes.",
		"    (default: reset all data for all event classes)",
		"HISTOGRAM [COMMAND ...]",
		("    Return a cumulative distribution of latencies in the format of a histogram for the specified "
		 "command names."),
		"    If no commands are specified then all histograms are replied.",
		"HELP",
		"    Prints this help.",
	};

	return resp_help(c, lines, ARRAY_SIZE(lines));
}

/* Of all services: so only for clients that may do everything. */
static void tell_slow(struct resp_client *c, size_t most)
{
	struct service_slow *slow = c->thread->part.thread->slow;
	struct service_slow_entry *entry = slow && most ? calloc(most, sizeof(*entry)) : NULL;
	size_t n = entry ? service_slow_read(slow, entry, most) : 0;

	resp_array(c->out, n);
	for (size_t i = 0; i < n; i++) {
		const struct service_slow_entry *e = &entry[i];

		resp_array(c->out, 6);
		resp_number(c->out, (int64_t)e->id);
		resp_number(c->out, (int64_t)(e->at / 1000000));
		resp_number(c->out, (int64_t)(e->took / TIME_US));
		resp_array(c->out, e->key_len ? 2 : 1);
		resp_bulk_text(c->out, e->operation);
		if (e->key_len)
			resp_bulk(c->out, e->key, e->key_len);
		resp_bulk_text(c->out, e->client);
		resp_bulk_text(c->out, e->key_of);
	}
	free(entry);
}

int resp_do_slowlog_get(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	int64_t count = 10;

	if (argc > 3)
		return resp_bad_arity(c, "slowlog|get");
	if (argc == 3 && !resp_read_int64(argv[2].at, argv[2].len, &count))
		return resp_not_an_integer(c);
	if (count < -1)
		resp_error(c->out, "ERR count should be greater than or equal to -1");
	else if (resp_may_all(c))
		tell_slow(c, count < 0 ? SERVICE_SLOW_MAX : (size_t)MIN(count, (int64_t)SERVICE_SLOW_MAX));
	return 0;
}

int resp_do_slowlog_len(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct service_slow *slow = c->thread->part.thread->slow;

	resp_number(c->out, slow ? (int64_t)service_slow_count(slow) : 0);
	return 0;
}

int resp_do_slowlog_reset(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	if (!resp_may_all(c))
		return 0;
	if (c->thread->part.thread->slow)
		service_slow_reset(c->thread->part.thread->slow);
	resp_ok(c);
	return 0;
}

int resp_do_slowlog_help(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	static const char *const lines[] = {
		"SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
		"GET [<count>]",
		"    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
		"    Entries are made of:",
		"    id, timestamp, time in microseconds, arguments array, client IP and port,",
		"    client name",
		"LEN",
		"    Return the length of the slowlog.",
		"RESET",
		"    Reset the slowlog.",
		"HELP",
		"    Prints this help.",
	};

	return resp_help(c, lines, ARRAY_SIZE(lines));
}

/*
 * The server
 */

int resp_do_time(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct timeval now;

	gettimeofday(&now, NULL);
	resp_array(c->out, 2);
	resp_bulk_number(c->out, now.tv_sec);
	resp_bulk_number(c->out, now.tv_usec);
	return 0;
}

/* With a log all is kept as it comes; else nothing is but at the end: since the start. */
int resp_do_lastsave(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	const struct resp_shared *shared = c->thread->shared;
	bool keeps = shared->kv->log && kv_log_keeps(shared->kv->log);

	resp_number(c->out, (keeps ? text_unix_ms() : text_unix_of(shared->started)) / 1000);
	return 0;
}

/* A checkpoint of the log; where there is none, what Redis's clients expect. */
static int save_log(struct resp_client *c, const char *begun, bool again)
{
	struct kv_log *log = c->thread->shared->kv->log;
	int rc;

	if (!resp_may_all(c))
		return 0;
	rc = log ? kv_log_checkpoint(log) : 0;
	if (rc == 0 || rc == -EOPNOTSUPP)
		resp_simple(c->out, begun);
	else if (rc == -EALREADY && again)
		resp_simple(c->out, "Background saving scheduled");
	else if (rc == -EALREADY)
		resp_error(c->out, "ERR Background save already in progress");
	else
		resp_error(c->out, "ERR no checkpoint can be made: %s, see rdmactl log status", strerror(-rc));
	return 0;
}

int resp_do_bgsave(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	bool again = argc == 2 && resp_is(&argv[1], "schedule");

	return argc > 1 && !again ? resp_syntax_error(c) : save_log(c, "Background saving started", again);
}

/* It does not wait: with a log all is kept as it comes. */
int resp_do_save(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return save_log(c, "OK", false);
}

int resp_do_bgrewriteaof(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return save_log(c, "Background append only file rewriting started", false);
}

int resp_do_role(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	resp_array(c->out, 3);
	resp_bulk_text(c->out, "master");
	resp_number(c->out, 0);
	resp_array(c->out, 0);
	return 0;
}

int resp_do_module_list(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	resp_array(c->out, 0);
	return 0;
}

int resp_do_shutdown(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	resp_error(c->out, "NOPERM rdmad serves more than Redis's clients, and does not end for one of them: "
			   "systemctl stop rdmad, or rdmactl shutdown");
	return 0;
}

int resp_do_debug(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	resp_error(c->out, "ERR DEBUG command not allowed. rdmad has no option that allows it.");
	return 0;
}

/*
 * The cluster, as Redis tells of one: no bus, no replicas, and a node's identity is the SHA1 of its name.
 */
#define ID (RESP_SHA1 + 1)

static void id_of(const struct cluster_node *node, char id[static ID])
{
	resp_sha1(node->name, strlen(node->name), id);
	id[RESP_SHA1] = '\0';
}

/* Where Redis's clients find a node. False: nowhere. */
static bool place_of(const struct cluster_node *node, struct address *place)
{
	return *node->address[CLUSTER_RESP] && address_parse(node->address[CLUSTER_RESP], place) == 0;
}

void resp_cluster_moved(struct resp_client *c, unsigned slot)
{
	const struct cluster_table *table = &c->thread->table->table;
	uint16_t owner = table->owner[slot];
	struct address place;

	c->thread->kv->part.count[KV_COUNT_ELSEWHERE]++;
	if (kv_view_waits(c->thread->table, slot))
		resp_error(c->out, "TRYAGAIN Hash slot is this server's, and is not served yet: see rdmactl status");
	else if (owner == CLUSTER_ABSENT)
		resp_error(c->out, "CLUSTERDOWN Hash slot not served");
	else if (place_of(&table->node[owner], &place))
		resp_error(c->out, "MOVED %u %s:%u", slot, place.host, place.port);
	else
		resp_error(c->out, "CLUSTERDOWN Hash slot is served by node %s, whose table names no address for resp",
			   table->node[owner].name);
}

static void tell_node(struct resp_out *out, const struct cluster_node *node, const struct address *place)
{
	char id[ID];

	id_of(node, id);
	resp_bulk_text(out, place->host);
	resp_number(out, place->port);
	resp_bulk_text(out, id);
}

static void tell_slots(struct resp_out *out, const struct cluster_table *table)
{
	unsigned ranges = 0;

	/* Twice, as their number comes first. */
	for (unsigned tell = 0; tell < 2; tell++) {
		if (tell)
			resp_array(out, ranges);
		for (unsigned first = 0, last; first < CLUSTER_SLOTS; first = last + 1) {
			uint16_t owner = table->owner[first];
			struct address place;

			last = cluster_run(table, first);
			if (owner == CLUSTER_ABSENT || !place_of(&table->node[owner], &place))
				continue;
			ranges++;
			if (!tell)
				continue;
			resp_array(out, 3);
			resp_number(out, first);
			resp_number(out, last);
			resp_array(out, 4);
			tell_node(out, &table->node[owner], &place);
			resp_array(out, 0);
		}
	}
}

static void tell_shard(struct resp_out *out, const struct cluster_table *table, unsigned node,
		       const struct address *place)
{
	unsigned ranges = 0;
	char id[ID];

	for (unsigned next = 0, first, last; cluster_range(table, node, &next, &first, &last);)
		ranges++;
	resp_map(out, 2);
	resp_bulk_text(out, "slots");
	resp_array(out, 2 * ranges);
	for (unsigned next = 0, first, last; cluster_range(table, node, &next, &first, &last);) {
		resp_number(out, first);
		resp_number(out, last);
	}
	resp_bulk_text(out, "nodes");
	resp_array(out, 1);
	resp_map(out, 7);
	id_of(&table->node[node], id);
	resp_bulk_text(out, "id");
	resp_bulk_text(out, id);
	resp_bulk_text(out, "port");
	resp_number(out, place->port);
	resp_bulk_text(out, "ip");
	resp_bulk_text(out, place->host);
	resp_bulk_text(out, "endpoint");
	resp_bulk_text(out, place->host);
	resp_bulk_text(out, "role");
	resp_bulk_text(out, "master");
	resp_bulk_text(out, "replication-offset");
	resp_number(out, 0);
	resp_bulk_text(out, "health");
	resp_bulk_text(out, "online");
}

static void tell_shards(struct resp_out *out, const struct cluster_table *table)
{
	struct address place;
	unsigned nodes = 0;

	for (unsigned i = 0; i < table->count; i++)
		nodes += place_of(&table->node[i], &place);
	resp_array(out, nodes);
	for (unsigned i = 0; i < table->count; i++)
		if (place_of(&table->node[i], &place))
			tell_shard(out, table, i, &place);
}

static void print_nodes(struct resp_out *text, const struct kv_view *view)
{
	const struct cluster_table *table = &view->table;

	for (unsigned i = 0; i < table->count; i++) {
		struct address place;
		char id[ID];

		if (!place_of(&table->node[i], &place))
			continue;
		id_of(&table->node[i], id);
		resp_print(text, "%s %s:%u@0 %smaster - 0 0 %llu connected", id, place.host, place.port,
			   i == view->self ? "myself," : "", (unsigned long long)table->epoch);
		for (unsigned next = 0, first, last; cluster_range(table, i, &next, &first, &last);)
			resp_print(text, first == last ? " %u" : " %u-%u", first, last);
		resp_print(text, "\n");
	}
}

/* Slots that wait to be swept are what Redis has as possibly failing. There is no bus, and no message on it. */
static void print_info(struct resp_out *text, const struct kv_view *view)
{
	unsigned counts[CLUSTER_NODES], slots = 0, size = 0, waiting = view->out ? view->slots : view->waiting;
	const unsigned long long epoch = view->table.epoch;

	cluster_count(&view->table, counts);
	for (unsigned i = 0; i < view->table.count; i++) {
		slots += counts[i];
		size += counts[i] > 0;
	}
	resp_print(text,
		   "cluster_enabled:1\r\ncluster_state:%s\r\ncluster_slots_assigned:%u\r\ncluster_slots_ok:%u\r\n"
		   "cluster_slots_pfail:%u\r\ncluster_slots_fail:0\r\ncluster_known_nodes:%u\r\ncluster_size:%u\r\n"
		   "cluster_current_epoch:%llu\r\ncluster_my_epoch:%llu\r\ncluster_stats_messages_sent:0\r\n"
		   "cluster_stats_messages_received:0\r\ntotal_cluster_links_buffer_limit_exceeded:0\r\n",
		   slots == CLUSTER_SLOTS && !view->out ? "ok" : "fail", slots, slots - waiting, waiting,
		   view->table.count, size, epoch, epoch);
}

/* A text that is as long as it comes. */
static void tell_text(struct resp_client *c, void (*print)(struct resp_out *text, const struct kv_view *view))
{
	struct resp_out text = {.most = MIB};

	print(&text, c->thread->table);
	if (text.failed)
		resp_error(c->out, "ERR no memory for it");
	else
		resp_verbatim(c->out, text.at, text.len);
	free(text.at);
}

int resp_do_cluster(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	static const char *const help[] = {
		"CLUSTER <subcommand>. The table is told, see rdmad-cluster(7):",
		"COUNTKEYSINSLOT <slot>, GETKEYSINSLOT <slot> <count>: both go over all keys",
		"INFO, KEYSLOT <key>, MYID, NODES, SHARDS, SLOTS"};
	const struct kv_view *view = c->thread->table;
	char id[ID];

	if (!view) {
		resp_error(c->out, "ERR This instance has cluster support disabled");
		return 0;
	}
	switch (c->command->id) {
	case RESP_CMD_CLUSTER_INFO:
		tell_text(c, print_info);
		break;
	case RESP_CMD_CLUSTER_KEYSLOT:
		resp_number(c->out, cluster_slot(argv[2].at, argv[2].len));
		break;
	case RESP_CMD_CLUSTER_MYID:
		id_of(&view->table.node[view->self], id);
		resp_bulk_text(c->out, id);
		break;
	case RESP_CMD_CLUSTER_NODES:
		tell_text(c, print_nodes);
		break;
	case RESP_CMD_CLUSTER_SHARDS:
		tell_shards(c->out, &view->table);
		break;
	case RESP_CMD_CLUSTER_SLOTS:
		tell_slots(c->out, &view->table);
		break;
	case RESP_CMD_CLUSTER_COUNTKEYSINSLOT:
	case RESP_CMD_CLUSTER_GETKEYSINSLOT:
		return resp_keys_in_slot(c, argv, argc);
	default:
		return resp_help(c, help, ARRAY_SIZE(help));
	}
	return 0;
}

/* There are none. */
int resp_do_function_flush(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	if (argc > 3 || (argc == 3 && !resp_is(&argv[2], "sync") && !resp_is(&argv[2], "async")))
		resp_error(c->out, "ERR FUNCTION FLUSH only supports SYNC|ASYNC option");
	else
		resp_ok(c);
	return 0;
}
