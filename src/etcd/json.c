/* json.c: transactions and their answers. The gateway writes numbers of 64 bits as strings, and leaves out what is 0 or
 * false. */
#include "etcd/etcd.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#define KEY_MAX (sizeof("/rdmad//member/") + 2 * CLUSTER_NAME_MAX)

static const char members[] = "member/";

/* The key of a node, or of the table. */
static void print_key(const char *cluster, const char *node, char key[static KEY_MAX])
{
	snprintf(key, KEY_MAX, "/rdmad/%s/%s%s", cluster, node ? members : "table", node ? node : "");
}

static json_t *pack_bytes(const void *bytes, size_t length)
{
	char *text = malloc(ETCD_BASE64_SIZE(length));
	json_t *json;

	if (!text)
		return NULL;
	etcd_base64_encode(bytes, length, text);
	json = json_string(text);
	free(text);
	return json;
}

static json_t *pack_key(const char *cluster, const char *node)
{
	char key[KEY_MAX];

	print_key(cluster, node, key);
	return pack_bytes(key, strlen(key));
}

static json_t *pack_compare(const char *cluster, const char *node, uint64_t revision)
{
	char number[24];

	snprintf(number, sizeof(number), "%" PRIu64, revision);
	return json_pack("{s:o, s:s, s:s, s:s}", "key", pack_key(cluster, node), "target", "MOD", "result", "EQUAL",
			 "mod_revision", number);
}

/* All keys of the cluster begin with its prefix. */
static json_t *pack_range(const char *cluster)
{
	char first[KEY_MAX], behind[KEY_MAX];

	snprintf(first, sizeof(first), "/rdmad/%s/", cluster);
	snprintf(behind, sizeof(behind), "/rdmad/%s%c", cluster, '/' + 1);
	return json_pack("{s:{s:o, s:o, s:i}}", "request_range", "key", pack_bytes(first, strlen(first)), "range_end",
			 pack_bytes(behind, strlen(behind)), "limit", (int)ETCD_MEMBERS + 2);
}

char *etcd_encode(const char *cluster, const struct cluster_txn *txn)
{
	json_t *compare = json_array(), *success = json_array(), *all;
	char *text;

	for (unsigned i = 0; i < txn->compares; i++)
		json_array_append_new(compare, pack_compare(cluster, txn->compare[i].node, txn->compare[i].revision));
	if (txn->value)
		json_array_append_new(success,
				      json_pack("{s:{s:o, s:o}}", "request_put", "key", pack_key(cluster, txn->node),
						"value", pack_bytes(txn->value, txn->length)));
	json_array_append_new(success, pack_range(cluster));
	all = json_pack("{s:o, s:o, s:[o]}", "compare", compare, "success", success, "failure", pack_range(cluster));
	text = all ? json_dumps(all, JSON_COMPACT) : NULL;
	json_decref(all);
	return text;
}

/*
 * Answers
 */
struct reader {
	const char *cluster;
	struct etcd_answer *answer;
	struct cluster_entry *member;
	char *table;
	char value[CLUSTER_TEXT_MAX];
};

static int fail_answer(const char *what)
{
	return log_fail(-EPROTO, "etcd", "its answer is none: %s", what);
}

/* The number of that name; 0 where there is none. */
static int read_number(const json_t *object, const char *name, uint64_t *out)
{
	const json_t *json = json_object_get(object, name);
	const char *text = json_string_value(json);

	*out = 0;
	if (json && (!text || units_parse_number(text, 0, INT64_MAX, out) != 0))
		return fail_answer("a number of 64 bits is no such string");
	return 0;
}

/* The key's part behind the cluster's prefix, or NULL. */
static const char *read_key(const struct reader *r, const json_t *kv, char key[static KEY_MAX])
{
	const char *text = json_string_value(json_object_get(kv, "key"));
	ssize_t length = text ? etcd_base64_decode(text, key, KEY_MAX - 1) : -EINVAL;
	char prefix[KEY_MAX];
	size_t n = (size_t)snprintf(prefix, sizeof(prefix), "/rdmad/%s/", r->cluster);

	if (length < 0 || memchr(key, 0, (size_t)length))
		return NULL;
	key[length] = '\0';
	return strncmp(key, prefix, n) == 0 ? key + n : NULL;
}

static int read_member(struct reader *r, const char *node, uint64_t revision, size_t length)
{
	struct cluster_view *view = &r->answer->view;
	struct cluster_entry *entry = &r->member[view->members];

	if (!words_is_name(node, CLUSTER_NAME_MAX))
		return 0; /* nobody's */
	if (view->members == ETCD_MEMBERS)
		return fail_answer("there are too many nodes");
	if (view->members && strcmp(entry[-1].node, node) >= 0)
		return fail_answer("its keys are in no order");
	*entry = (struct cluster_entry){.revision = revision};
	strcpy(entry->node, node);
	cluster_entry_parse(r->value, length, entry); /* of one that cannot be read it says so */
	view->members++;
	return 0;
}

static int read_table(struct reader *r, uint64_t revision, size_t length)
{
	struct cluster_view *view = &r->answer->view;

	if (r->table)
		return fail_answer("there are two tables");
	r->table = malloc(length + 1);
	if (!r->table)
		return -ENOMEM;
	memcpy(r->table, r->value, length);
	r->table[length] = '\0';
	view->table = r->table;
	view->table_length = length;
	view->table_revision = revision;
	return 0;
}

static int read_kv(struct reader *r, const json_t *kv)
{
	const char *text = json_string_value(json_object_get(kv, "value")), *name;
	ssize_t length = text ? etcd_base64_decode(text, r->value, sizeof(r->value)) : 0;
	char key[KEY_MAX];
	uint64_t revision;
	int rc = read_number(kv, "mod_revision", &revision);

	if (rc != 0)
		return rc;
	name = read_key(r, kv, key);
	if (!name)
		return 0; /* another program's, below the same prefix */
	if (!revision)
		return fail_answer("a key has no revision");
	if (strcmp(name, "table") == 0)
		return length < 0 ? fail_answer("the table is no base64, or too long")
				  : read_table(r, revision, (size_t)length);
	if (strncmp(name, members, sizeof(members) - 1) != 0)
		return 0;
	return read_member(r, name + sizeof(members) - 1, revision, length < 0 ? 0 : (size_t)length);
}

static int read_answer(struct reader *r, const json_t *json)
{
	struct cluster_view *view = &r->answer->view;
	json_t *response = json_object_get(json, "responses"), *range = NULL, *kvs, *kv;
	size_t i;
	int rc = read_number(json_object_get(json, "header"), "revision", &view->revision);

	if (rc != 0)
		return rc;
	if (!view->revision)
		return fail_answer("it has no revision");
	r->answer->carried_out = json_is_true(json_object_get(json, "succeeded"));
	if (json_array_size(response))
		range = json_object_get(json_array_get(response, json_array_size(response) - 1), "response_range");
	if (!range)
		return fail_answer("it has no keys");
	if (json_is_true(json_object_get(range, "more")))
		return fail_answer("there are too many keys");
	kvs = json_object_get(range, "kvs");
	json_array_foreach(kvs, i, kv)
	{
		rc = read_kv(r, kv);
		if (rc != 0)
			return rc;
	}
	return 0;
}

int etcd_decode(const char *cluster, const char *text, size_t length, struct etcd_answer *out)
{
	json_t *json = length <= ETCD_ANSWER_MAX ? json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL) : NULL;
	struct reader *r = malloc(sizeof(*r));
	int rc;

	*out = (struct etcd_answer){0};
	if (r)
		*r = (struct reader){.cluster = cluster,
				     .answer = out,
				     .member = calloc(ETCD_MEMBERS, sizeof(struct cluster_entry))};
	if (!r || !r->member)
		rc = -ENOMEM;
	else if (!json)
		rc = fail_answer("it is no JSON");
	else
		rc = read_answer(r, json);
	json_decref(json);
	if (r && rc == 0)
		out->view.member = r->member;
	if (r && rc != 0) {
		free(r->member);
		free(r->table);
		*out = (struct etcd_answer){0};
	}
	free(r);
	return rc;
}

void etcd_answer_free(struct etcd_answer *answer)
{
	free((void *)answer->view.member);
	free((void *)answer->view.table);
	*answer = (struct etcd_answer){0};
}
