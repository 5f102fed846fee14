/*
 * cluster.c: the handle of a cluster. It has a handle of its own for each server of the table, all in one engine, so
 * that one turn, one descriptor and one registration of memory serve all; route.c says which of them a request goes to.
 * The table comes from the servers, page by page, at first and where an answer says that there is a newer one.
 */
#include "client/kv/kv.h"

#include <stdlib.h>

#define PAGE_MIN 1024u /* bytes of a page that is not the last one, so that no server makes many of them */
#define RESTARTS 8u    /* tables that change while they are read */
#define LOOK (10 * TIME_MS)

/*
 * A table that is read
 */
struct kv_table_head kv_table_next(const struct kv_table_text *t)
{
	return (struct kv_table_head){t->has, t->at};
}

int kv_table_page(struct kv_table_text *t, const char *body, size_t length)
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
static int table_parse(const char *server, const struct kv_table_text *t, struct cluster_table *table)
{
	int rc = cluster_parse(server, t->text, t->at, table);

	if (rc != 0)
		return rc == -ENOMEM ? rc : -EPROTO;
	if (table->epoch == t->head.epoch)
		return 0;
	return log_fail(-EPROTO, "kv", "%s: the table has the epoch %llu, and was announced with %llu", server,
			(unsigned long long)table->epoch, (unsigned long long)t->head.epoch);
}

/* All pages of the server's table; t->has is set. From outside. */
static int table_read(struct kv *kv, struct kv_table_text *t)
{
	struct kv_table_head head;
	int rc;

	do {
		struct kv_call call = {.want_value = true};
		struct ask ask = {.op = WIRE_OP_TABLE, .head = &head, .head_len = sizeof(head)};

		head = kv_table_next(t);
		rc = kv_call(kv, kv_begin(kv), &ask, &call);
		if (rc == -EOPNOTSUPP && kv->tables)
			log_error("kv", "the server at %s is of no cluster, see rdmad-cluster(7)", kv->server);
		if (rc != 0)
			return rc;
		rc = kv_table_page(t, call.value, call.value_len);
		value_release(call.value);
		if (rc < 0)
			log_error("kv", "the server at %s sent what is no table of a cluster", kv->server);
	} while (rc > 0);
	return rc;
}

/* With memory for it; *out is NULL after a failure. */
static int table_fetch(struct kv *kv, uint64_t has, struct kv_table_text **out)
{
	struct kv_table_text *t = calloc(1, sizeof(*t));
	int rc;

	*out = NULL;
	if (!t)
		return log_fail(-ENOMEM, "kv", "no memory for a table");
	t->has = has;
	rc = table_read(kv, t);
	if (rc == 0)
		*out = t;
	else
		free(t);
	return rc;
}

uint64_t kv_nodes_epoch(struct kv *kv)
{
	const struct kv_nodes *nodes = kv->nodes;
	uint64_t epoch = 0;

	for (unsigned i = 0; i < nodes->count; i++) {
		struct kv_table_text *t;
		bool same;

		if (nodes->member[i]->retired)
			continue;
		if (table_fetch(nodes->member[i], nodes->epoch, &t) != 0)
			return 0;
		same = !epoch || t->head.epoch == epoch;
		epoch = t->head.epoch;
		free(t);
		if (!same)
			return 0;
	}
	return epoch;
}

/*
 * The servers of the table
 */

/* One that takes requests; NULL: none does. */
static struct kv *any_part(const struct kv *kv)
{
	for (unsigned i = 0; i < kv->nodes->count; i++)
		if (kv->nodes->member[i]->taking)
			return kv->nodes->member[i];
	return NULL;
}

/* What is under way there is finished, and the connection ends with it. */
static void node_retire(struct kv *node)
{
	node->retired = true;
	node->leaving = true;
	node->taking = false;
	engine_timer_cancel(node->engine, &node->rejoin);
	if (!node->conn)
		node->closed = true;
	else if (!node->outstanding)
		kv_go(node);
}

static bool node_is_at(const struct kv *node, const struct address_socket *at)
{
	for (unsigned i = 0; i < node->dial.targets; i++)
		if (node->targets[i].to.len == at->len && memcmp(&node->targets[i].to.sa, &at->sa, at->len) == 0)
			return true;
	return false;
}

/* The server that was asked for the table is this node: its connection is the node's. */
static struct kv *node_adopt(struct kv *node, struct kv *seed)
{
	char *server = seed->server;

	seed->server = node->server;
	node->server = server;
	seed->kept = node->kept;
	node->kept = NULL;
	kv_find(seed, node->engine);
	seed->closed = false;
	kv_free(node);
	return seed;
}

/* NULL: no memory. *seed, where it is this one, is NULL then. */
static struct kv *node_new(struct kv *kv, const char *address, struct kv **seed)
{
	struct kv *node = kv_new(address, &kv->options, kv->eager_limit);

	if (!node)
		return NULL;
	node->kept = calloc(KV_SLOTS, sizeof(struct kv_kept *));
	if (!node->kept) {
		kv_free(node);
		return NULL;
	}
	kv_find(node, kv->engine);
	if (*seed && node_is_at(node, &(*seed)->at.to)) {
		node = node_adopt(node, *seed);
		*seed = NULL;
	}
	node->whole = kv;
	node->took_moved = WIRE_TOOK_MOVED;
	node->request_timeout = kv->request_timeout;
	return node;
}

/* Its place: a new one, or that of a server which the table has no more. CLUSTER_NODES: there is none. */
static unsigned node_place(struct kv_nodes *nodes, struct kv *node)
{
	unsigned i = 0;

	while (i < nodes->count &&
	       !(nodes->member[i]->closed && nodes->member[i]->retired && !nodes->member[i]->outstanding))
		i++;
	if (i == CLUSTER_NODES)
		return i;
	if (i == nodes->count)
		nodes->count++;
	else if (nodes->spoke == nodes->member[i])
		nodes->spoke = NULL;
	kv_free(nodes->member[i]);
	nodes->member[i] = node;
	return i;
}

/* The member at that address, or KV_NO_NODE. */
static uint16_t member_at(struct kv *kv, const char *address, struct kv **seed)
{
	struct kv_nodes *nodes = kv->nodes;
	struct kv *node;
	unsigned i = 0;

	while (i < nodes->count && strcmp(nodes->member[i]->server, address) != 0)
		i++;
	node = i < nodes->count ? nodes->member[i] : node_new(kv, address, seed);
	if (!node) {
		log_error("kv", "no memory for a handle");
		return KV_NO_NODE;
	}
	if (i == nodes->count)
		i = node_place(nodes, node);
	if (i == CLUSTER_NODES) { /* former ones have not answered all yet */
		log_error("kv", "%s: no room for %s beside the servers of former tables", kv->server, address);
		kv_free(node);
		return KV_NO_NODE;
	}
	node->retired = false;
	if (node->closed)
		kv_join_soon(node);
	return (uint16_t)i;
}

void kv_nodes_find_runs(struct kv_nodes *nodes)
{
	for (unsigned i = 0; i < KV_RUNS; i++) {
		const uint16_t *of = &nodes->node[i * KV_RUN];
		unsigned n = 1;

		while (n < KV_RUN && of[n] == of[0])
			n++;
		nodes->run[i] = n == KV_RUN && of[0] != KV_NO_NODE ? nodes->member[of[0]] : NULL;
	}
}

/* Go by this table. `seed`: connected, becomes a node, or ends; NULL: there is none. */
static void nodes_install(struct kv *kv, const struct cluster_table *table, struct kv *seed)
{
	struct kv_nodes *nodes = kv->nodes;
	bool stays[CLUSTER_NODES] = {false};
	uint16_t member[CLUSTER_NODES];

	for (unsigned i = 0; i < table->count; i++) {
		member[i] = member_at(kv, table->node[i].address[CLUSTER_NATIVE], &seed);
		if (member[i] != KV_NO_NODE)
			stays[member[i]] = true;
	}
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++)
		nodes->node[slot] = table->owner[slot] == CLUSTER_ABSENT ? KV_NO_NODE : member[table->owner[slot]];
	kv_nodes_find_runs(nodes);
	nodes->epoch = table->epoch;
	snprintf(nodes->name, sizeof(nodes->name), "%s", table->name);
	for (unsigned i = 0; i < nodes->count; i++)
		if (!stays[i] && !nodes->member[i]->retired)
			node_retire(nodes->member[i]);
	kv_watch_follow(kv);
	if (!seed)
		return;
	kv_hang_up(seed);
	kv_free(seed);
}

int kv_cluster_table(void *kv_handle, uint64_t *epoch, char **table)
{
	struct kv *kv = kv_handle;
	int rc = kv_begin_given(kv, epoch && table, "kv_cluster_table needs places for the epoch and the table");
	struct cluster_table *parsed;
	struct kv_table_text *t;

	if (rc != 0)
		return rc;
	*table = NULL;
	if (kv->nodes) {
		kv = any_part(kv);
		if (!kv)
			return log_fail(-ENOTCONN, "kv", "no server of the cluster can be reached");
	}
	rc = table_fetch(kv, *epoch, &t);
	if (rc != 0)
		return rc;
	parsed = malloc(sizeof(*parsed));
	rc = parsed ? 0 : log_fail(-ENOMEM, "kv", "no memory for a table");
	if (rc == 0 && t->at)
		rc = table_parse(kv->server, t, parsed);
	if (rc == 0 && t->at && !(*table = value_copy(t->text, t->at)))
		rc = log_fail(-ENOMEM, "kv", "no memory for a table");
	if (rc == 0)
		*epoch = t->head.epoch;
	free(parsed);
	free(t);
	return rc;
}

/* What was read, where it is newer than a table of that name ("": any) and epoch: to be freed; NULL: it is not. */
static int table_newer(const struct kv *from, const struct kv_table_text *t, const char *name, uint64_t epoch,
		       struct cluster_table **out)
{
	struct cluster_table *told;
	int rc;

	*out = NULL;
	if (!t->at)
		return 0;
	told = malloc(sizeof(*told));
	if (!told)
		return -ENOMEM;
	rc = table_parse(from->server, t, told);
	if (rc == 0 && *name && strcmp(name, told->name) != 0)
		rc = log_fail(-EPROTO, "kv", "%s is of the cluster %s, and not of %s", from->server, told->name, name);
	if (rc == 0 && told->epoch > epoch)
		*out = told;
	else
		free(told);
	return rc;
}

int kv_table_take(struct kv *kv, const struct kv *from, const struct kv_table_text *t)
{
	struct cluster_table *table;
	int rc = table_newer(from, t, kv->nodes->name, kv->nodes->epoch, &table);

	if (table)
		nodes_install(kv, table, NULL);
	free(table);
	return rc;
}

int kv_table_learn(struct kv *kv, struct kv *from)
{
	struct kv_table_text *t;
	int rc = table_fetch(from, kv->nodes->epoch, &t);

	if (rc != 0)
		return rc;
	rc = kv_table_take(kv, from, t);
	free(t);
	return rc;
}

/*
 * Open
 */
/* Until each server has answered the first time, or some have not for a while. */
static void await_parts(struct kv *kv)
{
	uint64_t now = time_now(), until = now + MIN(kv->options.connect_timeout, DIAL_FIRST);
	bool waits = true;

	for (; waits && now < until; now = time_now()) {
		waits = false;
		for (unsigned i = 0; i < kv->nodes->count; i++) {
			const struct kv *node = kv->nodes->member[i];

			waits |= !node->taking && !node->closed && !*node->reason;
		}
		if (waits)
			engine_wait_change(kv->engine, kv->completed, MIN(until, now + LOOK));
	}
}

/* A first server, and its table, where that is not the one of epoch `has`. The caller is outside. */
static int seed_open(const struct kv *kv, const char *address, struct engine *share, uint64_t has, struct kv **seed,
		     struct kv_table_text **t)
{
	struct kv *node = kv_new(address, &kv->options, kv->eager_limit);
	int rc;

	if (!node)
		return log_fail(-ENOMEM, "kv", "no memory for a handle");
	rc = kv_join(node, share);
	if (rc != 0) {
		kv_free(node);
		return rc;
	}
	kv_leave(node);
	rc = table_fetch(node, has, t);
	if (rc != 0) {
		char why[300];

		snprintf(why, sizeof(why), "%s", log_last());
		kv_close(node);
		log_error("kv", "%s", why);
	}
	*seed = rc == 0 ? node : NULL;
	return rc;
}

/* The next of the addresses that are separated by commas. */
static bool next_address(const char **at, char address[static CLUSTER_ADDRESS_MAX + 1])
{
	size_t length = strcspn(*at, ",");

	while (!length && **at) {
		++*at;
		length = strcspn(*at, ",");
	}
	snprintf(address, CLUSTER_ADDRESS_MAX + 1, "%.*s", (int)MIN(length, CLUSTER_ADDRESS_MAX), *at);
	*at += length;
	return length;
}

/* A first server: a node of the table, or, without a table, a server of the list. */
static int seed_find(const struct kv *kv, const char *list, const struct cluster_table *table, struct engine *share,
		     struct kv **seed, struct kv_table_text **t)
{
	char address[CLUSTER_ADDRESS_MAX + 1];
	int rc = log_fail(-EINVAL, "kv", "%s names no server", kv->server);

	if (!table->epoch)
		while (next_address(&list, address)) {
			rc = seed_open(kv, address, share, 0, seed, t);
			if (rc == 0)
				return 0;
		}
	for (unsigned i = 0; i < table->count; i++) {
		rc = seed_open(kv, table->node[i].address[CLUSTER_NATIVE], share, table->epoch, seed, t);
		if (rc == 0)
			return 0;
	}
	return rc;
}

/* The table of a file, and a server's; the newer one counts. */
static int tables_join(const struct kv *seed, const struct kv_table_text *t, struct cluster_table *table)
{
	struct cluster_table *told;
	int rc = table_newer(seed, t, table->epoch ? table->name : "", table->epoch, &told);

	if (told)
		*table = *told;
	free(told);
	return rc;
}

static int cluster_join(struct kv *kv, struct engine *share, struct cluster_table *table)
{
	struct kv_table_text *t = NULL;
	struct kv *seed = NULL;
	const char *list;
	int rc = -EINVAL;

	if (cluster_is_named(kv->server, &list))
		rc = *list == '/' ? cluster_load(list, table) : 0;
	if (rc == 0)
		rc = seed_find(kv, list, table, share, &seed, &t);
	if (rc == 0)
		rc = tables_join(seed, t, table);
	free(t);
	if (rc != 0 && seed)
		kv_close(seed);
	if (rc != 0)
		return rc;
	kv->transport = seed->transport;
	kv_join_engine(kv, seed->engine); /* and its holder */
	kv_enter(kv);
	nodes_install(kv, table, seed);
	await_parts(kv);
	kv_leave(kv);
	return 0;
}

int kv_nodes_open(const char *server, const struct rdmad_options *options, struct engine *share, struct kv **out)
{
	struct cluster_table *table = calloc(1, sizeof(*table));
	struct engine_options engine_options;
	struct kv *kv;
	int rc = -ENOMEM;

	engine_options_from(options, &engine_options);
	kv = kv_new(server, &engine_options, options ? options->eager_limit : 0);
	if (kv)
		kv->nodes = calloc(1, sizeof(*kv->nodes));
	if (table && kv && kv->nodes) {
		kv->value_max = UINT64_MAX; /* each node knows its own */
		kv_route_init(kv);
		rc = cluster_join(kv, share, table);
	} else {
		log_error("kv", "no memory for a handle");
	}
	free(table);
	if (rc != 0) {
		kv_free(kv);
		return rc;
	}
	log_clear_last(); /* of servers that did not answer */
	*out = kv;
	return 0;
}

void kv_nodes_close(struct kv *kv)
{
	kv->ending = true;
	memset(kv->nodes->node, 0xff, sizeof(kv->nodes->node)); /* KV_NO_NODE: nothing is submitted any more */
	kv_nodes_find_runs(kv->nodes);
	for (unsigned i = 0; i < kv->nodes->count; i++)
		kv_hang_up(kv->nodes->member[i]);
	kv_route_end(kv, -ECONNABORTED);
}

int kv_nodes_reopen(struct kv *kv)
{
	struct kv *node;

	kv_enter(kv);
	for (unsigned i = 0; i < kv->nodes->count; i++)
		kv_hang_up(kv->nodes->member[i]);
	kv_route_end(kv, -ECONNABORTED);
	for (unsigned i = 0; i < kv->nodes->count; i++)
		if (!kv->nodes->member[i]->retired)
			kv_join_soon(kv->nodes->member[i]);
	await_parts(kv);
	kv_leave(kv);
	node = any_part(kv);
	if (!node)
		return log_fail(-ENOTCONN, "kv", "%s: no server of the cluster can be reached; %s: %s", kv->server,
				kv->nodes->member[0]->server, kv->nodes->member[0]->reason);
	kv_table_learn(kv, node);
	log_clear_last();
	return 0;
}

int kv_cluster_flags(void *kv_handle, unsigned flags)
{
	struct kv *kv = kv_handle;
	int rc = kv_begin_given(kv, !(flags & ~(unsigned)KV_CLUSTER_MISS), "kv_cluster_flags takes KV_CLUSTER_MISS");

	if (rc != 0)
		return rc;
	kv_enter(kv);
	if (kv->nodes)
		kv->nodes->miss = flags & KV_CLUSTER_MISS;
	kv_leave(kv);
	return 0;
}
