/* parse.c: a table out of its text, word by word. */
#include "cluster/cluster.h"

#include <inttypes.h>
#include <stdlib.h>

#define UNTOLD (CLUSTER_ABSENT - 1) /* an owner: no line has said the slot's yet */
#define WORD_MAX 300                /* bytes, more than any word may have */

struct parser {
	const char *at, *end; /* what is left of the line */
	char word[WORD_MAX + 1];
	bool begun, ended; /* the version, the checksum was there */
	char checksum[17];
	struct cluster_table *table;
};

static int fail_end(const char *what)
{
	return log_fail(-EINVAL, "cluster", "%s is missing behind it", what);
}

/* The next word of the line: 1, 0 at its end, or -EINVAL. */
static int next_word(struct parser *p)
{
	const char *from;

	while (p->at < p->end && (*p->at == ' ' || *p->at == '\t'))
		p->at++;
	for (from = p->at; p->at < p->end && *p->at != ' ' && *p->at != '\t'; p->at++)
		if (!*p->at)
			return log_fail(-EINVAL, "cluster", "a byte of 0 has no place in a table");
	if (p->at - from > WORD_MAX)
		return log_fail(-EINVAL, "cluster", "a word has more than %u characters", WORD_MAX);
	memcpy(p->word, from, (size_t)(p->at - from));
	p->word[p->at - from] = '\0';
	return p->at > from;
}

/* The word that has to follow. */
static int need_word(struct parser *p, const char *what)
{
	int rc = next_word(p);

	return rc > 0 ? 0 : rc < 0 ? rc : fail_end(what);
}

static int parse_begin(struct parser *p)
{
	int rc = need_word(p, "the version");

	if (rc == 0 && p->begun)
		return log_fail(-EINVAL, "cluster", "a second table begins here");
	if (rc == 0 && strcmp(p->word, "1") != 0)
		return log_fail(-EINVAL, "cluster", "version %s of the table is not known here: 1 is", p->word);
	p->begun = true;
	return rc;
}

static int parse_name(struct parser *p)
{
	int rc = need_word(p, "the name");

	if (rc == 0 && *p->table->name)
		return log_fail(-EINVAL, "cluster", "a second name: the cluster is %s", p->table->name);
	if (rc == 0 && !words_is_name(p->word, CLUSTER_NAME_MAX))
		return log_fail(-EINVAL, "cluster",
				"\"%s\" is no name of a cluster: it has 1 to %u of letters, digits and \"._-\"",
				p->word, CLUSTER_NAME_MAX);
	if (rc == 0)
		strcpy(p->table->name, p->word);
	return rc;
}

static int parse_epoch(struct parser *p)
{
	int rc = need_word(p, "the epoch");

	if (rc == 0 && p->table->epoch)
		return log_fail(-EINVAL, "cluster", "a second epoch: it is %" PRIu64, p->table->epoch);
	if (rc == 0 && units_parse_number(p->word, 1, CLUSTER_EPOCH_MAX, &p->table->epoch) != 0)
		return log_fail(-EINVAL, "cluster", "\"%s\" is no epoch: it is a number from 1 on", p->word);
	return rc;
}

static int parse_node(struct parser *p)
{
	struct cluster_node node = {0};
	enum cluster_kind kind = CLUSTER_NATIVE;
	int rc = need_word(p, "the node's name");

	if (rc == 0 && strlen(p->word) > CLUSTER_NAME_MAX)
		return log_fail(-EINVAL, "cluster", "a name has at most %u characters", CLUSTER_NAME_MAX);
	if (rc == 0)
		strcpy(node.name, p->word);
	do {
		if (rc == 0)
			rc = need_word(p, "the address");
		if (rc == 0 && *node.address[kind])
			return log_fail(-EINVAL, "cluster", "a second %s address", cluster_kind_name(kind));
		if (rc == 0)
			rc = cluster_node_set(&node, kind, p->word);
		if (rc == 0)
			rc = next_word(p);
		if (rc > 0) {
			kind = cluster_kind_find(p->word);
			if (kind == CLUSTER_NATIVE || kind == CLUSTER_KINDS)
				return log_fail(-EINVAL, "cluster", "%s is no kind of address: resp and metrics are",
						p->word);
			rc = 0;
			continue;
		}
		return rc < 0 ? rc : cluster_add(p->table, &node);
	} while (true);
}

/* "7" or "0-8191". */
static int parse_range(struct parser *p, uint64_t *first, uint64_t *last)
{
	char *dash = strchr(p->word, '-');

	if (dash)
		*dash++ = '\0';
	if (units_parse_number(p->word, 0, CLUSTER_SLOTS - 1, first) != 0 ||
	    units_parse_number(dash ? dash : p->word, 0, CLUSTER_SLOTS - 1, last) != 0 || *first > *last)
		return log_fail(-EINVAL, "cluster",
				"\"%s%s%s\" is no range of slots: it is FIRST-LAST or a number, from 0 to %u", p->word,
				dash ? "-" : "", dash ? dash : "", CLUSTER_SLOTS - 1);
	return 0;
}

static int claim_range(struct cluster_table *table, uint64_t first, uint64_t last, unsigned owner)
{
	for (; first <= last; first++) {
		uint16_t other = table->owner[first];

		if (other != UNTOLD)
			return log_fail(-EINVAL, "cluster", "slot %" PRIu64 " is %s%s already", first,
					other == CLUSTER_ABSENT ? "absent" : "of node ",
					other == CLUSTER_ABSENT ? "" : table->node[other].name);
		table->owner[first] = (uint16_t)owner;
	}
	return 0;
}

/* What a word behind a line's ranges says of some of them: another node, or an epoch. */
struct mark {
	const char *word;
	bool of_absent; /* absent slots have it as well */
	uint64_t value; /* 1 + the node's index, or the epoch */
};

/* A slot's value of the mark's word; 0: it has none. */
static uint64_t mark_of(const struct cluster_table *table, const struct mark *mark, uint64_t slot)
{
	return *mark->word == 'f' ? table->from[slot] : *mark->word == 't' ? table->to[slot] : table->moved[slot];
}

/* Slots of the line's owner have the mark. */
static int claim_mark(struct cluster_table *table, uint64_t first, uint64_t last, unsigned owner,
		      const struct mark *mark)
{
	for (; first <= last; first++) {
		if (table->owner[first] != owner)
			return log_fail(-EINVAL, "cluster", "slot %" PRIu64 " is not in the line's ranges before %s",
					first, mark->word);
		if (mark_of(table, mark, first))
			return log_fail(-EINVAL, "cluster", "slot %" PRIu64 " has a second %s", first, mark->word);
		if (*mark->word == 'f')
			table->from[first] = (uint16_t)mark->value;
		else if (*mark->word == 't')
			table->to[first] = (uint16_t)mark->value;
		else
			table->moved[first] = mark->value;
	}
	return 0;
}

/* The node behind "from" or "to", or the epoch behind "moved"; and the word behind it. */
static int parse_mark(struct parser *p, unsigned owner, struct mark *mark)
{
	bool epoch = *mark->word == 'm';
	int rc = need_word(p, epoch ? "the epoch" : "the node's name");
	unsigned node;

	if (rc != 0)
		return rc;
	if (owner == CLUSTER_ABSENT && !mark->of_absent)
		return log_fail(-EINVAL, "cluster", "absent slots have no %s", mark->word);
	if (epoch && units_parse_number(p->word, 1, CLUSTER_EPOCH_MAX, &mark->value) != 0)
		return log_fail(-EINVAL, "cluster", "\"%s\" is no epoch: it is a number from 1 on", p->word);
	if (!epoch) {
		node = cluster_find(p->table, p->word);
		if (node == CLUSTER_NODES)
			return log_fail(-EINVAL, "cluster", "no line before this one has a node %s", p->word);
		if (node == owner)
			return log_fail(-EINVAL, "cluster", "node %s has no slots %s itself", p->word, mark->word);
		mark->value = node + 1;
	}
	return need_word(p, "a range of slots");
}

/* The ranges of a line. "from NAME", "to NAME" and "moved EPOCH" stand before the ranges that they mark. */
static int parse_ranges(struct parser *p, unsigned owner)
{
	static const struct mark marks[] = {{"from", true, 0}, {"to", false, 0}, {"moved", false, 0}};
	struct mark mark = {NULL};
	int rc = need_word(p, "a range of slots");

	while (rc == 0) {
		uint64_t first, last;

		for (size_t i = 0; i < ARRAY_SIZE(marks) && rc == 0; i++)
			if (strcmp(p->word, marks[i].word) == 0) {
				mark = marks[i];
				rc = parse_mark(p, owner, &mark);
				break;
			}
		if (rc == 0)
			rc = parse_range(p, &first, &last);
		if (rc == 0)
			rc = mark.word ? claim_mark(p->table, first, last, owner, &mark)
				       : claim_range(p->table, first, last, owner);
		if (rc == 0)
			rc = next_word(p);
		if (rc <= 0)
			return rc;
		rc = 0;
	}
	return rc;
}

static int parse_absent(struct parser *p)
{
	return parse_ranges(p, CLUSTER_ABSENT);
}

/* A shard is one node, which has its name: tables of several nodes each are of a later version of rdmad. */
static int parse_shard(struct parser *p)
{
	char name[WORD_MAX + 1];
	unsigned node;
	int rc = need_word(p, "the shard's name");

	if (rc != 0)
		return rc;
	strcpy(name, p->word);
	rc = need_word(p, "the shard's node");
	if (rc != 0)
		return rc;
	if (strcmp(name, p->word) != 0)
		return log_fail(-EINVAL, "cluster",
				"shard %s has node %s: here a shard has one node, and its name: shard %s %s", name,
				p->word, name, name);
	node = cluster_find(p->table, name);
	if (node == CLUSTER_NODES)
		return log_fail(-EINVAL, "cluster", "no line before this one has a node %s", name);
	return parse_ranges(p, node);
}

static int parse_checksum(struct parser *p)
{
	int rc = need_word(p, "the checksum");

	if (rc == 0 && (strlen(p->word) != 16 || p->word[strspn(p->word, "0123456789abcdef")]))
		return log_fail(-EINVAL, "cluster", "\"%s\" is no checksum: it has 16 hexadecimal digits", p->word);
	if (rc == 0)
		strcpy(p->checksum, p->word);
	p->ended = true;
	return rc;
}

static const struct {
	const char *word;
	int (*parse)(struct parser *p);
} lines[] = {{"rdmad-cluster", parse_begin}, {"name", parse_name},   {"epoch", parse_epoch},
	     {"node", parse_node},           {"shard", parse_shard}, {"absent", parse_absent},
	     {"checksum", parse_checksum}};

static int parse_line(struct parser *p)
{
	int rc = next_word(p);

	if (rc < 0)
		return rc;
	if (!p->begun && strcmp(p->word, lines[0].word) != 0)
		return log_fail(-EINVAL, "cluster", "this is no table of a cluster: its first line is rdmad-cluster 1");
	if (p->ended)
		return log_fail(-EINVAL, "cluster", "nothing may follow the checksum");
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		if (strcmp(p->word, lines[i].word) != 0)
			continue;
		rc = lines[i].parse(p);
		if (rc == 0)
			rc = next_word(p);
		return rc > 0 ? log_fail(-EINVAL, "cluster", "\"%s\" is one word too many", p->word) : rc;
	}
	return log_fail(-EINVAL, "cluster", "\"%s\" begins no line of a table", p->word);
}

/* What can be said only of all lines. */
static int check_whole(const struct parser *p, char *text)
{
	const struct cluster_table *table = p->table;
	const char *missing = !p->begun ? "rdmad-cluster 1" : !*table->name ? "name" : !table->epoch ? "epoch" : NULL;
	int len;

	if (missing)
		return log_fail(-EINVAL, "cluster", "no line begins with %s", missing);
	if (!table->count)
		return log_fail(-EINVAL, "cluster", "no line begins with node");
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++) {
		if (table->owner[slot] == UNTOLD)
			return log_fail(-EINVAL, "cluster",
					"slots %u-%u are of no shard; where no server has them, write absent %u-%u",
					slot, cluster_run(table, slot), slot, cluster_run(table, slot));
		if (table->moved[slot] > table->epoch)
			return log_fail(-EINVAL, "cluster",
					"slot %u was moved by epoch %" PRIu64 ", which is yet to come", slot,
					table->moved[slot]);
	}
	len = cluster_print(table, text);
	if (len < 0)
		return len;
	if (p->ended && strncmp(text + len - 17, p->checksum, 16) != 0)
		return log_fail(-EINVAL, "cluster",
				"the checksum is not the table's, which was changed or damaged; where you changed it, "
				"leave out that line, and let the epoch be higher");
	return 0;
}

int cluster_parse(const char *path, const char *text, size_t length, struct cluster_table *out)
{
	struct parser p = {.table = out};
	struct words_lines line = words_lines(text, length);
	char *scratch;
	int rc = 0;

	if (length > CLUSTER_TEXT_MAX)
		return log_fail(-EINVAL, "cluster", "%s has more than %u bytes", path, CLUSTER_TEXT_MAX);
	scratch = malloc(CLUSTER_TEXT_MAX + 1);
	if (!scratch)
		return log_fail(-ENOMEM, "cluster", "%s: no memory", path);
	memset(out, 0, sizeof(*out));
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++)
		out->owner[slot] = UNTOLD;
	log_hush_begin();
	while (rc == 0 && words_lines_next(&line)) {
		p.at = line.line;
		p.end = line.line + line.length;
		rc = parse_line(&p);
	}
	if (rc == 0) {
		line.number = 0;
		rc = check_whole(&p, scratch);
	}
	snprintf(scratch, CLUSTER_TEXT_MAX, "%s", log_hush_end());
	if (rc != 0 && line.number)
		log_error("cluster", "%s:%u: %s", path, line.number, scratch);
	else if (rc != 0)
		log_error("cluster", "%s: %s", path, scratch);
	free(scratch);
	return rc;
}
