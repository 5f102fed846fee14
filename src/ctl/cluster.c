/*
 * cluster.c: tables of a cluster as files: a first one, the next one, what is in one; and the one in etcd, by which its
 * servers agree. No server is asked.
 */
#include "ctl/ctl.h"
#include "etcd/etcd.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define ETCD_TIMEOUT (5 * TIME_S)  /* of each endpoint */
#define DRAIN_LOOK (500 * TIME_MS) /* between looks whether a node is empty */
#define DRAIN_STILL (30 * TIME_S)  /* without a slot that went, until that is said */
#define DRAIN_TRIES 20u            /* to write the plan before another table is there */

static const char *cluster_name = "rdmad", *table_file, *etcd_urls, *etcd_user, *etcd_password_file;
static uint64_t resp_port, metrics_port;
static bool as_text, as_empty, waits;

#define NAME_OPTION                                                                                                    \
	{                                                                                                              \
		"name", 0, CTL_TEXT, &cluster_name, "NAME", "name of the cluster, rdmad by default"                    \
	}

static const struct ctl_option make_options[] = {
	NAME_OPTION,
	{"resp-port", 0, CTL_NUMBER, &resp_port, "PORT", "where nodes answer Redis's clients", .min = 1, .max = 65535},
	{"metrics-port", 0, CTL_NUMBER, &metrics_port, "PORT", "where nodes have metrics", .min = 1, .max = 65535},
	{NULL},
};

static const struct ctl_option plan_options[] = {
	{"resp-port", 0, CTL_NUMBER, &resp_port, "PORT", "where new nodes answer Redis's clients", .min = 1,
	 .max = 65535},
	{"metrics-port", 0, CTL_NUMBER, &metrics_port, "PORT", "where new nodes have metrics", .min = 1, .max = 65535},
	{NULL},
};

static const struct ctl_option slot_options[] = {
	{"table", 0, CTL_TEXT, &table_file, "FILE", "say which node has it", .choices = "@file"},
	{NULL},
};

#define ETCD_OPTIONS                                                                                                   \
	{"etcd", 0, CTL_TEXT, &etcd_urls, "URL", "where it is: http://HOST:PORT, several with commas between them"},   \
		{"user", 0, CTL_TEXT, &etcd_user, "NAME", "a user of etcd"},                                           \
	{                                                                                                              \
		"password-file", 0, CTL_TEXT, &etcd_password_file, "FILE", "whose first line is its password",         \
			.choices = "@file"                                                                             \
	}

static const struct ctl_option apply_options[] = {
	ETCD_OPTIONS, {"empty", 0, CTL_FLAG, &as_empty, NULL, "give slots on at once, without their values"}, {NULL}};

static const struct ctl_option drain_options[] = {
	ETCD_OPTIONS, NAME_OPTION, {"wait", 0, CTL_FLAG, &waits, NULL, "until the node has no slot"}, {NULL}};

static const struct ctl_option show_options[] = {
	ETCD_OPTIONS,
	NAME_OPTION,
	{"text", 0, CTL_FLAG, &as_text, NULL, "the table itself, as cluster plan takes it"},
	{NULL}};

static struct cluster_table now, next;
static char text[CLUSTER_TEXT_MAX + 1];

/* A file's table into `now`: an exit status; why not was logged. */
static int load_table(const char *path)
{
	int rc = cluster_load(strcmp(path, "-") == 0 ? "/dev/stdin" : path, &now);

	return rc == -ENOENT ? CTL_FAILED : (int)ctl_exit_of(rc); /* a file that is not there is no key */
}

/*
 * Nodes of the command line: [NAME=]ADDRESS[,KIND=ADDRESS]...
 */

/* The address at a port of the node's host, unless it has one or there is no port. */
static int set_port(struct cluster_node *node, enum cluster_kind kind, uint64_t port)
{
	char address[sizeof(((struct address *)0)->host) + 16];
	struct address native;
	int rc;

	if (!port || *node->address[kind])
		return 0;
	rc = address_parse(node->address[CLUSTER_NATIVE], &native);
	if (rc != 0)
		return rc;
	if (native.path)
		return log_fail(-EINVAL, "cluster", "%s has no host for a port: %s=HOST:PORT", native.host,
				cluster_kind_name(kind));
	snprintf(address, sizeof(address), strchr(native.host, ':') ? "[%s]:%" PRIu64 : "%s:%" PRIu64, native.host,
		 port);
	return cluster_node_set(node, kind, address);
}

static int parse_node(const char *word, struct cluster_node *node)
{
	char copy[512], *rest = copy, *part, *value;
	struct address native;
	const char *name;
	int rc;

	memset(node, 0, sizeof(*node));
	if ((size_t)snprintf(copy, sizeof(copy), "%s", word) >= sizeof(copy))
		return log_fail(-EINVAL, "cluster", "a node has more than %zu characters", sizeof(copy) - 1);
	part = strsep(&rest, ",");
	value = strchr(part, '=');
	if (value)
		*value++ = '\0';
	rc = cluster_node_set(node, CLUSTER_NATIVE, value ? value : part);
	if (rc == 0)
		rc = address_parse(node->address[CLUSTER_NATIVE], &native);
	if (rc != 0)
		return rc;
	name = value ? part : native.host;
	if (!words_is_name(name, CLUSTER_NAME_MAX))
		return log_fail(-EINVAL, "cluster",
				"\"%s\" is no name of a node, which has 1 to %u of letters, digits and \"._-\": "
				"NAME=ADDRESS gives it one",
				name, CLUSTER_NAME_MAX);
	strcpy(node->name, name);
	while (rc == 0 && (part = strsep(&rest, ","))) {
		enum cluster_kind kind;

		value = strchr(part, '=');
		if (value)
			*value++ = '\0';
		kind = cluster_kind_find(part);
		if (!value || kind == CLUSTER_NATIVE || kind == CLUSTER_KINDS)
			return log_fail(-EINVAL, "cluster", "\"%s\" is neither resp=HOST:PORT nor metrics=HOST:PORT",
					part);
		rc = cluster_node_set(node, kind, value);
	}
	if (rc == 0)
		rc = set_port(node, CLUSTER_RESP, resp_port);
	if (rc == 0)
		rc = set_port(node, CLUSTER_METRICS, metrics_port);
	return rc;
}

/*
 * make, plan
 */

/* The plan from `now` with these nodes into `next`, and its text. */
static int make_next(const struct cluster_node *nodes, unsigned count)
{
	int rc = cluster_plan(&now, nodes, count, &next);

	if (rc == 0)
		rc = MIN(cluster_print(&next, text), 0);
	return (int)ctl_exit_of(rc); /* the reason was logged */
}

static int command_make(const struct ctl_arguments *arguments)
{
	unsigned count = (unsigned)arguments->count;
	struct cluster_node *nodes;
	int rc;

	if (!words_is_name(cluster_name, CLUSTER_NAME_MAX))
		return ctl_usage_error("\"%s\" is no name of a cluster: it has 1 to %u of letters, digits and \"._-\"",
				       cluster_name, CLUSTER_NAME_MAX);
	nodes = calloc(count, sizeof(*nodes));
	rc = nodes ? 0 : -ENOMEM;
	strcpy(now.name, cluster_name);
	memset(now.owner, 0xff, sizeof(now.owner)); /* CLUSTER_ABSENT */
	for (unsigned i = 0; i < count && rc == 0; i++)
		rc = parse_node(arguments->text[i], &nodes[i]);
	rc = rc == 0 ? make_next(nodes, count) : (int)ctl_exit_of(rc);
	free(nodes);
	if (rc != CTL_OK)
		return rc;
	if (ctl.json)
		return ctl_json_print(json_pack("{s:s, s:I, s:s}", "command", ctl_command_name(), "epoch",
						(json_int_t)next.epoch, "table", text));
	fputs(text, stdout);
	return CTL_OK;
}

static bool is_change(const char *word)
{
	return strcmp(word, "add") == 0 || strcmp(word, "drop") == 0;
}

/* The nodes of `now`, as the words behind the table change them. How many; -EINVAL, logged. */
static int change_nodes(const struct ctl_arguments *arguments, struct cluster_node *nodes)
{
	int count = (int)now.count;
	bool adds = false;

	memcpy(nodes, now.node, now.count * sizeof(nodes[0]));
	for (int i = 1; i < arguments->count; i++) {
		const char *word = arguments->text[i];
		int at = 0;

		if (is_change(word)) {
			adds = *word == 'a';
			continue;
		}
		if (adds) {
			if (parse_node(word, &nodes[count++]) != 0)
				return -EINVAL;
			continue;
		}
		while (at < count && strcmp(nodes[at].name, word) != 0)
			at++;
		if (at == count)
			return log_fail(-EINVAL, "cluster", "the table has no node %s", word);
		count--;
		memmove(&nodes[at], &nodes[at + 1], (size_t)(count - at) * sizeof(nodes[0]));
	}
	return count;
}

static const char *owner_name(const struct cluster_table *table, unsigned slot)
{
	return table->owner[slot] == CLUSTER_ABSENT ? "absent" : table->node[table->owner[slot]].name;
}

/* The last slot of those from `first` on that go from one node to one other, or stay where they are. */
static unsigned move_end(unsigned first)
{
	return MIN(cluster_run(&now, first), cluster_run(&next, first));
}

/* Whether a node of `now` has a slot that another one has next. */
static bool node_loses(unsigned node)
{
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++)
		if (now.owner[slot] == node && strcmp(now.node[node].name, owner_name(&next, slot)) != 0)
			return true;
	return false;
}

/* What is to be done: which ranges move, and which nodes take the table first. */
static json_t *describe_table(void)
{
	json_t *moves = json_array(), *first = json_array(), *then = json_array();
	unsigned moved = 0;

	for (unsigned slot = 0, last; slot < CLUSTER_SLOTS; slot = last + 1) {
		const char *from = owner_name(&now, slot), *to = owner_name(&next, slot);

		last = move_end(slot);
		if (strcmp(from, to) == 0)
			continue;
		moved += last - slot + 1;
		json_array_append_new(
			moves, json_pack("{s:i, s:i, s:s, s:s}", "first", slot, "last", last, "from", from, "to", to));
	}
	for (unsigned i = 0; i < now.count; i++)
		if (node_loses(i))
			json_array_append_new(first, json_string(now.node[i].name));
	for (unsigned i = 0; i < next.count; i++) {
		unsigned old = cluster_find(&now, next.node[i].name);

		if (old == CLUSTER_NODES || !node_loses(old))
			json_array_append_new(then, json_string(next.node[i].name));
	}
	return json_pack("{s:I, s:i, s:o, s:o, s:o}", "epoch", (json_int_t)next.epoch, "moved", moved, "moves", moves,
			 "first", first, "then", then);
}

static void say_nodes(const char *what, const json_t *names)
{
	json_t *name;
	size_t i;

	if (!json_array_size(names))
		return;
	fprintf(stderr, "%s", what);
	json_array_foreach(names, i, name) fprintf(stderr, " %s", json_string_value(name));
	fputc('\n', stderr);
}

static void say_plan(const json_t *plan)
{
	int moved = (int)json_integer_value(json_object_get(plan, "moved"));
	json_t *moves = json_object_get(plan, "moves"), *move;
	size_t i;

	ctl_say("%s: epoch %" PRIu64 ": %d of %u slots move, in %zu range%s", ctl_command_name(), next.epoch, moved,
		CLUSTER_SLOTS, json_array_size(moves), CTL_S(json_array_size(moves)));
	json_array_foreach(moves, i, move)
	{
		const char *from, *to;
		int first, last;

		if (json_unpack(move, "{s:i, s:i, s:s, s:s}", "first", &first, "last", &last, "from", &from, "to",
				&to) == 0)
			fprintf(stderr, "%d-%d from %s to %s\n", first, last, from, to);
	}
	say_nodes("first, as they lose slots:", json_object_get(plan, "first"));
	say_nodes("then:", json_object_get(plan, "then"));
}

static int command_plan(const struct ctl_arguments *arguments)
{
	struct cluster_node *nodes;
	json_t *plan;
	int rc, count;

	if (!is_change(arguments->text[1]))
		return ctl_usage_error("\"%s\" is neither add nor drop", arguments->text[1]);
	rc = load_table(arguments->text[0]);
	if (rc != CTL_OK)
		return rc;
	nodes = calloc(CLUSTER_NODES + (size_t)arguments->count, sizeof(*nodes));
	count = nodes ? change_nodes(arguments, nodes) : -ENOMEM;
	rc = count < 0 ? (int)ctl_exit_of(count) : make_next(nodes, (unsigned)count);
	free(nodes);
	if (rc != CTL_OK)
		return rc;
	plan = describe_table();
	if (!plan || ctl.json) {
		if (plan)
			json_object_set_new(plan, "table", json_string(text));
		return ctl_json_print(plan);
	}
	fputs(text, stdout);
	if (ctl_sums_up())
		say_plan(plan);
	json_decref(plan);
	return CTL_OK;
}

/*
 * check, slot, targets
 */
static int command_check(const struct ctl_arguments *arguments)
{
	unsigned counts[CLUSTER_NODES], ranges[CLUSTER_NODES] = {0}, present = 0;
	int rc = load_table(arguments->text[0]);
	json_t *nodes;

	if (rc != CTL_OK)
		return rc;
	cluster_count(&now, counts);
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot = cluster_run(&now, slot) + 1)
		if (now.owner[slot] != CLUSTER_ABSENT)
			ranges[now.owner[slot]]++;
	nodes = json_array();
	for (unsigned i = 0; i < now.count; i++) {
		const struct cluster_node *node = &now.node[i];

		present += counts[i];
		json_array_append_new(
			nodes, json_pack("{s:s, s:i, s:i, s:s, s:s, s:s}", "node", node->name, "slots", counts[i],
					 "ranges", ranges[i], "native", node->address[CLUSTER_NATIVE], "resp",
					 node->address[CLUSTER_RESP], "metrics", node->address[CLUSTER_METRICS]));
	}
	return ctl_print(json_pack("{s:s, s:I, s:i, s:o}", "name", now.name, "epoch", (json_int_t)now.epoch,
				   "absent_slots", CLUSTER_SLOTS - present, "nodes", nodes));
}

static int command_slot(const struct ctl_arguments *arguments)
{
	json_t *list = ctl.json ? json_array() : NULL;
	int rc = table_file ? load_table(table_file) : CTL_OK;

	for (int i = 0; i < arguments->count && rc == CTL_OK; i++) {
		const char *key = arguments->text[i];
		unsigned slot = cluster_slot(key, strlen(key));
		bool present = table_file && now.owner[slot] != CLUSTER_ABSENT;
		const char *node = table_file ? owner_name(&now, slot) : "";
		const char *address = present ? now.node[now.owner[slot]].address[CLUSTER_NATIVE] : "";

		if (list) {
			json_t *o = json_pack("{s:i}", "slot", slot);

			ctl_json_set_bytes(o, "key", key, strlen(key));
			if (table_file)
				json_object_set_new(o, "node", present ? json_string(node) : json_null());
			if (present)
				json_object_set_new(o, "address", json_string(address));
			json_array_append_new(list, o);
		} else {
			printf("%u%s%s%s%s\n", slot, *node ? " " : "", node, *address ? " " : "", address);
		}
	}
	if (rc == CTL_OK && list)
		return ctl_json_print(json_pack("{s:o}", "keys", list));
	json_decref(list);
	return rc;
}

static int command_targets(const struct ctl_arguments *arguments)
{
	json_t *list = json_array();
	int rc = load_table(arguments->text[0]);

	for (unsigned i = 0; i < now.count && rc == CTL_OK; i++) {
		const struct cluster_node *node = &now.node[i];

		if (*node->address[CLUSTER_METRICS])
			json_array_append_new(list, json_pack("{s:[s], s:{s:s, s:s}}", "targets",
							      node->address[CLUSTER_METRICS], "labels", "cluster",
							      now.name, "node", node->name));
		else if (ctl_sums_up())
			ctl_say("%s: node %s has no metrics address", ctl_command_name(), node->name);
	}
	if (rc == CTL_OK)
		return ctl_json_print(list);
	json_decref(list);
	return rc;
}

/*
 * apply, show: the table in etcd
 */
#define ENDPOINTS 16u

/* Ask for the transaction: an exit status, with *answer to be freed where that is CTL_OK. */
static int ask_etcd(const char *name, const struct cluster_txn *txn, struct etcd_answer *answer)
{
	char urls[2048], password[256] = "", *rest = urls;
	const char *endpoint[ENDPOINTS];
	struct etcd_attr attr = {.cluster = name,
				 .endpoints = endpoint,
				 .user = etcd_user,
				 .password = password,
				 .timeout = ETCD_TIMEOUT};
	FILE *file = etcd_password_file ? fopen(etcd_password_file, "re") : NULL;
	bool read = file && fgets(password, sizeof(password), file);

	if (file)
		fclose(file);
	if (etcd_password_file && !read) {
		log_error("cluster", "%s: %s", etcd_password_file, file ? "it is empty" : strerror(errno));
		return CTL_FAILED;
	}
	password[strcspn(password, "\r\n")] = '\0';
	if (!etcd_urls)
		return ctl_usage_error("--etcd says where etcd is: http://HOST:PORT");
	if ((size_t)snprintf(urls, sizeof(urls), "%s", etcd_urls) >= sizeof(urls))
		return ctl_usage_error("--etcd is too long");
	while (rest && attr.count < ENDPOINTS)
		endpoint[attr.count++] = strsep(&rest, ",");
	switch (etcd_ask(&attr, txn, answer)) {
	case 0:
		return CTL_OK;
	case -EINVAL:
		return CTL_USAGE;
	default:
		return CTL_UNREACHABLE;
	}
}

/* The answer's table into `now`: CTL_OK, also where there is none, and its epoch is 0. */
static int take_table(const struct cluster_view *view)
{
	memset(&now, 0, sizeof(now));
	if (!view->table_revision)
		return CTL_OK;
	return (int)ctl_exit_of(cluster_parse("etcd", view->table, view->table_length, &now));
}

/* What there is of that cluster, into `now` and *answer, which is to be freed where this is CTL_OK. */
static int look_at(const char *name, struct etcd_answer *answer)
{
	static const struct cluster_txn look;
	int rc;

	if (!words_is_name(name, CLUSTER_NAME_MAX))
		return ctl_usage_error("\"%s\" is no name of a cluster", name);
	rc = ask_etcd(name, &look, answer);
	if (rc != CTL_OK)
		return rc;
	rc = take_table(&answer->view);
	if (rc != CTL_OK)
		etcd_answer_free(answer);
	return rc;
}

static const char *state_of(const struct cluster_entry *entry)
{
	return !entry || !entry->revision ? "absent" : entry->out ? "out" : !*entry->boot ? "unknown" : "member";
}

/* Whether a node of `now` is one. */
static bool is_member(const struct cluster_view *view, unsigned node)
{
	return cluster_entry_is_member(cluster_view_find(view, now.node[node].name));
}

static int fail_no_table(const char *name)
{
	log_error("cluster", "etcd has no table of cluster %s: rdmactl cluster apply puts one there", name);
	return CTL_NOT_FOUND;
}

/* What there is in etcd: the table, and what each node of it says. */
static json_t *describe_etcd(const struct cluster_view *view)
{
	unsigned counts[CLUSTER_NODES], waits_for[CLUSTER_NODES] = {0}, gives[CLUSTER_NODES] = {0};
	json_t *nodes = json_array();

	cluster_count(&now, counts);
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++) {
		unsigned from = now.from[slot], owner = now.owner[slot];

		if (from && owner != CLUSTER_ABSENT && !now.moved[slot] &&
		    !cluster_entry_settled(cluster_view_find(view, now.node[from - 1].name), now.epoch))
			waits_for[owner]++;
		if (now.to[slot])
			gives[owner]++;
	}
	for (unsigned i = 0; i < now.count; i++) {
		const struct cluster_entry *entry = cluster_view_find(view, now.node[i].name);

		json_array_append_new(nodes, json_pack("{s:s, s:s, s:I, s:i, s:i, s:i, s:s}", "node", now.node[i].name,
						       "state", state_of(entry), "epoch",
						       (json_int_t)(entry ? entry->epoch : 0), "slots", counts[i],
						       "gives", gives[i], "waits_for", waits_for[i], "native",
						       now.node[i].address[CLUSTER_NATIVE]));
	}
	return json_pack("{s:s, s:I, s:o}", "name", now.name, "epoch", (json_int_t)now.epoch, "nodes", nodes);
}

static int command_show(const struct ctl_arguments *arguments)
{
	struct etcd_answer answer;
	int rc;

	(void)arguments;
	rc = look_at(cluster_name, &answer);
	if (rc != CTL_OK)
		return rc;
	if (!now.epoch)
		rc = fail_no_table(cluster_name);
	if (rc == CTL_OK && as_text)
		fputs(answer.view.table, stdout);
	else if (rc == CTL_OK)
		rc = ctl_print(describe_etcd(&answer.view));
	etcd_answer_free(&answer);
	return rc;
}

/* Make `next` the table after what there is. */
static int follow_table(const struct cluster_view *view)
{
	bool settled[CLUSTER_NODES] = {false}, gone[CLUSTER_NODES] = {false}, lives[CLUSTER_NODES] = {false};
	int rc = 0;

	for (unsigned i = 0; i < now.count; i++) {
		settled[i] = cluster_entry_settled(cluster_view_find(view, now.node[i].name), now.epoch);
		lives[i] = is_member(view, i);
	}
	if (now.epoch && next.epoch <= now.epoch) {
		log_error("cluster",
			  "the file has epoch %" PRIu64 ", and etcd has %" PRIu64
			  " already: slots that move or another operator have changed the "
			  "table; make the next one of rdmactl cluster show, or of its text in etcd",
			  next.epoch, now.epoch);
		return CTL_FAILED;
	}
	if (now.epoch && !as_empty)
		rc = cluster_keep_values(&now, lives, &next);
	if (now.epoch && rc == 0)
		rc = cluster_hand_over(&now, settled, gone, &next);
	return (int)ctl_exit_of(rc);
}

/* Write `next` if the table is still that of the revision: CTL_OK, with what there is then. Where it is another one,
 * *raced says so; without a place for that, a message does. */
static int write_table(uint64_t revision, struct etcd_answer *answer, bool *raced)
{
	int rc, length = cluster_print(&next, text);
	struct cluster_txn txn = {.compare = {{NULL, revision}}, .compares = 1, .value = text};

	if (length < 0)
		return CTL_FAILED;
	txn.length = (size_t)length;
	rc = ask_etcd(next.name, &txn, answer);
	if (rc == CTL_OK)
		rc = take_table(&answer->view);
	if (rc != CTL_OK || answer->carried_out)
		return rc;
	/* It may have been carried out by a request whose answer was lost. */
	if (answer->view.table_length == txn.length && memcmp(answer->view.table, text, txn.length) == 0)
		return CTL_OK;
	if (raced)
		*raced = true;
	else
		log_error("cluster", "the table has changed meanwhile: etcd has epoch %" PRIu64, now.epoch);
	return CTL_FAILED;
}

static int command_apply(const struct ctl_arguments *arguments)
{
	struct etcd_answer answer;
	uint64_t revision;
	json_t *json;
	int rc = load_table(arguments->text[0]);

	if (rc != CTL_OK)
		return rc;
	next = now;
	rc = look_at(next.name, &answer);
	if (rc != CTL_OK)
		return rc;
	rc = follow_table(&answer.view);
	revision = answer.view.table_revision;
	if (rc == CTL_OK) {
		etcd_answer_free(&answer);
		rc = write_table(revision, &answer, NULL);
	}
	json = now.epoch && answer.view.table_revision ? describe_etcd(&answer.view) : NULL;
	etcd_answer_free(&answer);
	if (json && rc == CTL_OK)
		return ctl_print(json);
	if (json && !ctl.json)
		ctl_print(json); /* what there is in its place */
	else
		json_decref(json);
	return rc;
}

/* The plan without a node, into `next`: an exit status. Nodes that are no members, or are being drained, get nothing
 * either; what the former have stays theirs, and all stay listed. */
static int plan_without(const char *name, const struct cluster_view *view)
{
	static struct cluster_node left[CLUSTER_NODES];
	unsigned at = cluster_find(&now, name), has[CLUSTER_NODES], keeps[CLUSTER_NODES] = {0}, count = 0;
	int rc;

	if (!now.epoch)
		return fail_no_table(cluster_name);
	if (at == CLUSTER_NODES) {
		log_error("cluster", "the table of cluster %s has no node %s", now.name, name);
		return CTL_NOT_FOUND;
	}
	cluster_count(&now, has);
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++) {
		unsigned owner = cluster_next_owner(&now, slot);

		if (owner != CLUSTER_ABSENT)
			keeps[owner]++;
	}
	for (unsigned i = 0; i < now.count; i++) {
		if (i != at && is_member(view, i) && (keeps[i] || !has[i]))
			left[count++] = now.node[i];
	}
	if (!count) {
		log_error("cluster", "no other node is a member that could get the slots of node %s", name);
		return CTL_FAILED;
	}
	rc = cluster_plan(&now, left, count, &next);
	for (unsigned i = 0; i < now.count && rc == 0; i++)
		if (cluster_find(&next, now.node[i].name) == CLUSTER_NODES)
			rc = cluster_add(&next, &now.node[i]);
	for (unsigned slot = 0; slot < CLUSTER_SLOTS && rc == 0; slot++) {
		unsigned owner = cluster_next_owner(&now, slot);

		if (owner != CLUSTER_ABSENT && owner != at && !is_member(view, owner))
			next.owner[slot] = (uint16_t)cluster_find(&next, now.node[owner].name);
	}
	return (int)ctl_exit_of(rc);
}

/* Why no slot of the node can go; NULL: some can. */
static const char *drain_fault(const struct cluster_view *view, unsigned node)
{
	if (!is_member(view, node))
		return "it is no member";
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++)
		if (now.owner[slot] == node && now.to[slot] && is_member(view, now.to[slot] - 1u))
			return NULL;
	return "no node that is to get them is a member";
}

/* Until the node has no slot, or somebody withdraws that, or none can go. */
static int await_drain(const char *name, struct etcd_answer *answer)
{
	unsigned counts[CLUSTER_NODES], last = CLUSTER_SLOTS + 1;
	uint64_t went = 0, able = time_now();
	int rc = CTL_OK;

	while (rc == CTL_OK && !ctl_interrupted()) {
		unsigned at = cluster_find(&now, name), goes = 0;
		uint64_t time = time_now();
		const char *fault;

		cluster_count(&now, counts);
		if (!now.epoch)
			return fail_no_table(cluster_name);
		if (at == CLUSTER_NODES || !counts[at])
			return CTL_OK;
		for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++)
			goes += now.owner[slot] == at && now.to[slot];
		if (!goes) {
			log_error("cluster", "node %s has %u slots that are to go nowhere: another table was applied",
				  name, counts[at]);
			return CTL_FAILED;
		}
		fault = drain_fault(&answer->view, at);
		able = fault ? able : time;
		went = goes == last ? went : time;
		last = goes;
		if (time - able > DRAIN_STILL) {
			log_error("cluster",
				  "node %s has %u slots that cannot go: %s, see rdmactl cluster show; they go when it "
				  "is there again, or apply another table",
				  name, counts[at], fault);
			return CTL_FAILED;
		}
		if (time - went > DRAIN_STILL) {
			ctl_say("%s: no slot of node %s went in %u s, %u are left: move_reason of rdmactl status there "
				"may say why",
				ctl_command_name(), name, (unsigned)(DRAIN_STILL / TIME_S), goes);
			went = time;
		}
		usleep(DRAIN_LOOK / TIME_US);
		etcd_answer_free(answer);
		rc = look_at(cluster_name, answer);
	}
	return rc == CTL_OK ? CTL_FAILED : rc;
}

static int command_drain(const struct ctl_arguments *arguments)
{
	struct etcd_answer answer;
	unsigned tries = 0;
	uint64_t revision;
	bool raced;
	int rc;

	/* Each step of a move is a table, so another one may be there when the plan is made. */
	do {
		raced = false;
		rc = look_at(cluster_name, &answer);
		if (rc != CTL_OK)
			return rc;
		rc = plan_without(arguments->text[0], &answer.view);
		if (rc == CTL_OK)
			rc = follow_table(&answer.view);
		revision = answer.view.table_revision;
		etcd_answer_free(&answer);
		if (rc == CTL_OK)
			rc = write_table(revision, &answer, ++tries < DRAIN_TRIES ? &raced : NULL);
		if (raced)
			etcd_answer_free(&answer);
	} while (raced);
	if (rc == CTL_OK && waits)
		rc = await_drain(arguments->text[0], &answer);
	if (rc == CTL_OK)
		rc = ctl_print(describe_etcd(&answer.view));
	etcd_answer_free(&answer);
	return rc;
}

const struct ctl_command ctl_cluster_commands[] = {
	{"cluster make", command_make, "NODE...", "a first table of a cluster", make_options, 1, (int)CLUSTER_NODES,
	 .local = true},
	{"cluster plan", command_plan, "FILE add [NODE...] | drop NAME...", "the table with more or less nodes",
	 plan_options, 2, -1, .local = true},
	{"cluster check", command_check, "FILE", "whether a table is right, and what it has", NULL, 1, 1,
	 .local = true},
	{"cluster slot", command_slot, "KEY...", "the slot of a key, and the node that has it", slot_options, 1, -1,
	 .local = true},
	{"cluster targets", command_targets, "FILE", "the metrics addresses, as Prometheus reads them", NULL, 1, 1,
	 .local = true},
	{"cluster apply", command_apply, "FILE", "put the next table into etcd", apply_options, 1, 1, .local = true},
	{"cluster drain", command_drain, "NODE", "have a node's slots go to the others, with their values",
	 drain_options, 1, 1, .local = true},
	{"cluster show", command_show, "", "the table in etcd, and what its nodes say", show_options, 0, 0,
	 .local = true},
	{NULL},
};
