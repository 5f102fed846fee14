/* member.c: beats, nodes that are out, and what may be served when. */
#include "cluster/cluster.h"

#include <stdlib.h>

#define BEATS 16u /* whose times are kept: more than there are in half a period */

struct beat {
	uint64_t count, sent;
};

struct cluster_member {
	struct cluster_member_attr attr;
	char cluster[CLUSTER_NAME_MAX + 1], node[CLUSTER_NAME_MAX + 1]; /* its strings */
	char boot[CLUSTER_BOOT + 1], place[CLUSTER_BOOT + 1];
	enum cluster_member_state state;
	char reason[160];

	/* What the engine said. */
	uint64_t revision, viewed;                /* of the last view, and when it came; 0: none has */
	struct cluster_table table;               /* epoch 0: none */
	uint64_t table_revision;                  /* of what was read last, also where it was refused */
	struct cluster_entry own;                 /* as the engine has it */
	uint64_t own_since;                       /* when its revision was seen first */
	bool was_member;                          /* once */
	bool away;                                /* was not a member in the last view */
	bool leaves;                              /* is to, for ever */
	unsigned self;                            /* index in the table, or CLUSTER_NODES */
	bool gives;                               /* slots of its own that are to go to others */
	unsigned counts[CLUSTER_NODES];           /* of slots, of the table's nodes */
	struct cluster_entry seen[CLUSTER_NODES]; /* of the table's nodes */
	uint64_t since[CLUSTER_NODES];            /* when that revision was seen first, with no gap between views */

	/* What it asks. */
	struct beat beat[BEATS];       /* by count % BEATS */
	uint64_t count;                /* of the last beat */
	uint64_t next;                 /* when the next one is due */
	uint64_t next_other;           /* and anything else */
	bool waits;                    /* for an answer */
	struct cluster_entry put;      /* what is to be written, */
	char value[CLUSTER_VALUE_MAX]; /* as its value; or a table: */
	char text[CLUSTER_TEXT_MAX + 1];
	struct cluster_table spare;

	uint64_t looks, looks_sent, looks_seen; /* that were asked for, are covered by what was sent, and answered */
	uint64_t patience;                      /* neither a look nor a commit before: the last one was lost */

	/* The table by which slots are to be another node's: one text, whatever the number of attempts. */
	struct {
		enum cluster_outcome outcome;
		char target[CLUSTER_NAME_MAX + 1], boot[CLUSTER_BOOT + 1];
		uint64_t table_revision; /* that it follows */
		size_t length;
		char text[CLUSTER_TEXT_MAX + 1];
		char fault[160];
	} commit;

	/* What comes of it. */
	struct cluster_wish wish;
	bool expects;     /* slots that other nodes have not let go of */
	uint64_t adopted; /* serial */
	uint64_t epoch;   /* of the table that was adopted, and is told */
	uint64_t fence;   /* of the beats */
	uint64_t until;   /* the same, of what was adopted */
};

int cluster_member_new(const struct cluster_member_attr *attr, struct cluster_member **out)
{
	struct cluster_member *m = calloc(1, sizeof(*m));

	*out = m;
	if (!m)
		return -ENOMEM;
	m->attr = *attr;
	snprintf(m->cluster, sizeof(m->cluster), "%s", attr->cluster);
	snprintf(m->node, sizeof(m->node), "%s", attr->node);
	snprintf(m->boot, sizeof(m->boot), "%s", attr->boot);
	snprintf(m->place, sizeof(m->place), "%s", attr->place);
	snprintf(m->own.node, sizeof(m->own.node), "%s", attr->node);
	m->self = CLUSTER_NODES;
	m->away = true;
	return 0;
}

void cluster_member_free(struct cluster_member *member)
{
	free(member);
}

const struct cluster_wish *cluster_member_wish(const struct cluster_member *m)
{
	return &m->wish;
}

uint64_t cluster_member_until(const struct cluster_member *m)
{
	return m->until;
}

enum cluster_member_state cluster_member_state(const struct cluster_member *m)
{
	return m->state;
}

const char *cluster_member_reason(const struct cluster_member *m)
{
	return m->reason;
}

const struct cluster_entry *cluster_member_entry(const struct cluster_member *m, unsigned node)
{
	return m->viewed && node < m->table.count ? &m->seen[node] : NULL;
}

static bool is_over(const struct cluster_member *m)
{
	return m->state == CLUSTER_REPLACED || m->state == CLUSTER_LEFT;
}

static uint64_t part_of(const struct cluster_member *m, unsigned percent)
{
	return m->attr.period / 100 * percent;
}

/* How long a node is silent until it serves nothing: by its own period, where that is longer. */
static uint64_t silence_of(const struct cluster_member *m, const struct cluster_entry *entry)
{
	return MAX(m->attr.period, entry->period) / 100 * m->attr.silence;
}

/* Serve nothing, and say why. */
static void member_stop(struct cluster_member *m, enum cluster_member_state state, const char *reason)
{
	m->state = state;
	m->fence = 0;
	if (!m->attr.lasting || state == CLUSTER_REPLACED)
		m->until = 0;
	snprintf(m->reason, sizeof(m->reason), "%s", reason);
}

/*
 * What may be served
 */

/* `anew`: it may be that others had served its slots. */
static void wish_for(struct cluster_member *m, bool changed, bool anew)
{
	struct cluster_wish *wish = &m->wish;
	uint8_t slots[sizeof(wish->slots)] = {0};

	if (!changed && !anew && !m->expects)
		return;
	m->expects = false;
	for (unsigned slot = 0; slot < CLUSTER_SLOTS && m->self != CLUSTER_NODES; slot++) {
		unsigned from = m->table.from[slot];

		if (m->table.owner[slot] != m->self)
			continue;
		/* A slot that is served is its own until it says itself that it is not, or is out. One that came with
		 * its values was let go of before the table said so. */
		if (!from || m->table.moved[slot] || (!anew && cluster_bit(wish->slots, slot)) ||
		    cluster_entry_settled(&m->seen[from - 1], m->table.epoch))
			cluster_bit_set(slots, slot);
		else
			m->expects = true;
	}
	if (!changed && !anew && memcmp(slots, wish->slots, sizeof(slots)) == 0)
		return;
	memcpy(wish->slots, slots, sizeof(slots));
	wish->table = &m->table;
	wish->anew |= anew;
	wish->serial++;
}

void cluster_member_adopted(struct cluster_member *m, uint64_t serial)
{
	m->adopted = serial;
	if (serial != m->wish.serial || m->leaves)
		return;
	m->wish.anew = false;
	m->epoch = m->table.epoch;
	m->until = m->fence;
	if (m->attr.lasting && m->state == CLUSTER_BEATING)
		m->until = TIME_NEVER;
	m->next = 0; /* others may wait for that */
}

/*
 * What the engine says
 */

/* Whether the table of the view holds; it is m->table then. */
static bool take_table(struct cluster_member *m, const struct cluster_view *view)
{
	struct cluster_table *fresh = &m->spare;
	uint64_t least = MAX(m->attr.epoch, m->table.epoch);

	if (view->table_revision == m->table_revision)
		return m->state != CLUSTER_REFUSED;
	m->table_revision = view->table_revision;
	if (!view->table_revision) {
		member_stop(m, CLUSTER_REFUSED, "the engine has no table any more");
		return false;
	}
	if (cluster_parse("the engine's table", view->table, view->table_length, fresh) != 0) {
		member_stop(m, CLUSTER_REFUSED, "the engine's table is none, as the log says");
		return false;
	}
	if (strcmp(fresh->name, m->cluster) != 0) {
		member_stop(m, CLUSTER_REFUSED, "the engine's table is that of another cluster");
		return false;
	}
	if (fresh->epoch < least || (fresh->epoch == m->table.epoch && memcmp(fresh, &m->table, sizeof(*fresh)) != 0)) {
		char why[sizeof(m->reason)];

		snprintf(why, sizeof(why), "the engine's table has epoch %llu, which is no later one than %llu here",
			 (unsigned long long)fresh->epoch, (unsigned long long)least);
		member_stop(m, CLUSTER_REFUSED, why);
		return false;
	}
	if (m->state == CLUSTER_REFUSED)
		m->state = CLUSTER_LOOKING;
	m->table = *fresh;
	return true;
}

/* Entries of the table's nodes, and since when they are as they are. A node's silence counts only while this one could
 * have heard it. */
static void take_members(struct cluster_member *m, const struct cluster_view *view, bool changed, bool gap,
			 uint64_t now)
{
	if (changed) {
		m->self = cluster_find(&m->table, m->node);
		cluster_count(&m->table, m->counts);
		m->gives = false;
		for (unsigned slot = 0; slot < CLUSTER_SLOTS && !m->gives; slot++)
			m->gives = m->table.owner[slot] == m->self && m->table.to[slot];
	}
	for (unsigned i = 0; i < m->table.count; i++) {
		const struct cluster_entry *entry = cluster_view_find(view, m->table.node[i].name);
		bool same = strcmp(m->seen[i].node, m->table.node[i].name) == 0 &&
			    m->seen[i].revision == (entry ? entry->revision : 0);

		if (!same || gap)
			m->since[i] = now;
		if (same)
			continue;
		m->seen[i] = entry ? *entry : (struct cluster_entry){.revision = 0};
		memcpy(m->seen[i].node, m->table.node[i].name, sizeof(m->seen[i].node));
	}
}

/* A beat was carried out, if the engine has it; and it came with the table. */
static void take_beat(struct cluster_member *m)
{
	const struct beat *beat = &m->beat[m->own.count % BEATS];

	m->state = CLUSTER_BEATING;
	m->was_member = true;
	m->reason[0] = '\0';
	if (beat->count == m->own.count && beat->sent + part_of(m, m->attr.serves) > m->fence)
		m->fence = beat->sent + part_of(m, m->attr.serves);
	if (m->adopted == m->wish.serial && m->adopted && !m->leaves)
		m->until = m->attr.lasting ? TIME_NEVER : m->fence;
}

static void take_own(struct cluster_member *m, const struct cluster_view *view, bool gap, uint64_t now)
{
	const struct cluster_entry *entry = cluster_view_find(view, m->node);

	if (gap || !m->own_since || m->own.revision != (entry ? entry->revision : 0))
		m->own_since = now;
	if (entry)
		m->own = *entry;
	else
		m->own.revision = 0;
}

/* Whether a member is that start of its node. */
static bool is_start(const struct cluster_entry *entry, const char *boot)
{
	return cluster_entry_is_member(entry) && strcmp(entry->boot, boot) == 0;
}

/* The table is there, or what an attempt compares has changed, so that none can be carried out any more. All attempts
 * follow one table: the first that is carried out is the last. */
static void take_commit(struct cluster_member *m, const struct cluster_view *view)
{
	if (m->commit.outcome != CLUSTER_OPEN)
		return;
	if (view->table_length == m->commit.length && memcmp(view->table, m->commit.text, m->commit.length) == 0)
		m->commit.outcome = CLUSTER_DONE;
	else if (view->table_revision != m->commit.table_revision || !is_start(&m->own, m->boot) ||
		 !is_start(cluster_view_find(view, m->commit.target), m->commit.boot))
		m->commit.outcome = CLUSTER_NOT_DONE;
}

void cluster_member_answer(struct cluster_member *m, uint64_t now, const struct cluster_view *view)
{
	bool gap = !m->viewed || now - m->viewed > part_of(m, 50), changed, mine, away;
	uint64_t before = m->table.epoch;

	m->waits = false;
	m->looks_seen = m->looks_sent;
	if (is_over(m))
		return;
	if (view->revision < m->revision) {
		member_stop(m, CLUSTER_REFUSED,
			    "the engine has an older state than it had: it was restored; start anew");
		return;
	}
	m->revision = view->revision;
	m->viewed = now;
	take_own(m, view, gap, now);
	mine = m->own.revision && strcmp(m->own.boot, m->boot) == 0;
	if (m->own.revision && !mine && m->was_member) {
		member_stop(m, CLUSTER_REPLACED, "another process is this node now");
		return;
	}
	if (!take_table(m, view))
		return;
	changed = m->table.epoch != before;
	take_members(m, view, changed, gap, now);
	take_commit(m, view);
	away = !mine || m->own.out;
	if (away && m->leaves) {
		member_stop(m, CLUSTER_LEFT, "it has left");
		return;
	}
	wish_for(m, changed, changed && before && (away || m->away));
	m->away = away;
	if (away && m->state == CLUSTER_BEATING)
		member_stop(m, CLUSTER_LOOKING, "it was out for want of beats");
	if (away) {
		m->until = m->attr.lasting ? m->until : 0;
		memset(m->beat, 0, sizeof(m->beat));
		if (m->was_member)
			m->next = 0;
	} else {
		take_beat(m);
		if (m->own.count != m->count)
			m->next = MIN(m->next, now + part_of(m, 2)); /* that one was not carried out */
	}
}

void cluster_member_lost(struct cluster_member *m, uint64_t now)
{
	m->waits = false;
	m->looks_sent = m->looks_seen;
	m->patience = now + part_of(m, 1);
	m->next = MIN(m->next, now + part_of(m, 6));
}

void cluster_member_leave(struct cluster_member *m)
{
	m->leaves = true;
	m->until = 0;
	m->next = 0;
	if (m->state != CLUSTER_BEATING && m->state != CLUSTER_REPLACED)
		m->state = CLUSTER_LEFT;
}

/*
 * What the engine is asked
 */

/* Whether it may take the key: no other process can serve as this node. */
static bool may_join(const struct cluster_member *m, uint64_t now)
{
	return !m->own.revision || m->own.out || m->was_member ||
	       (strcmp(m->own.place, "-") != 0 && strcmp(m->own.place, m->place) == 0) ||
	       now - m->own_since >= silence_of(m, &m->own);
}

static void put_entry(struct cluster_member *m, struct cluster_txn *txn, const struct cluster_entry *entry)
{
	m->put = *entry;
	cluster_entry_print(entry, m->value);
	txn->compare[0].node = m->put.node;
	txn->compare[0].revision = entry->revision;
	txn->compares = 1;
	txn->node = m->put.node;
	txn->value = m->value;
	txn->length = strlen(m->value);
}

static void next_beat(struct cluster_member *m, uint64_t now, struct cluster_txn *txn)
{
	struct cluster_entry entry = m->own;

	if (!m->viewed || m->state == CLUSTER_REFUSED || (m->state == CLUSTER_LOOKING && !may_join(m, now)))
		return; /* look only */
	m->count++;
	m->beat[m->count % BEATS] = (struct beat){m->count, now};
	snprintf(entry.boot, sizeof(entry.boot), "%s", m->boot);
	snprintf(entry.place, sizeof(entry.place), "%s", m->place);
	entry.count = m->count;
	/* One that comes back serves nothing before it knows the table. */
	entry.epoch = m->state == CLUSTER_BEATING ? m->epoch : 0;
	entry.period = m->attr.period;
	entry.lasting = m->attr.lasting;
	entry.out = m->leaves;
	put_entry(m, txn, &entry);
}

/* How much later this node acts than another one would: the first live one acts at once. */
static uint64_t turn_of(const struct cluster_member *m, unsigned target)
{
	unsigned before = 0;

	for (unsigned i = 0; i < m->self && i < m->table.count; i++)
		before += i != target && !m->seen[i].out;
	return before * part_of(m, 25);
}

/* Say of a node that was silent for long enough that it is out. */
static bool next_out(struct cluster_member *m, uint64_t now, struct cluster_txn *txn)
{
	for (unsigned i = 0; i < m->table.count; i++) {
		struct cluster_entry entry = m->seen[i];

		if (i == m->self || entry.out || entry.lasting ||
		    now - m->since[i] < silence_of(m, &entry) + turn_of(m, i))
			continue;
		entry.out = true;
		put_entry(m, txn, &entry);
		return true;
	}
	return false;
}

static void find_settled(const struct cluster_member *m, bool settled[static CLUSTER_NODES])
{
	for (unsigned i = 0; i < m->table.count; i++)
		settled[i] = cluster_entry_settled(&m->seen[i], m->table.epoch);
}

/* Give slots of nodes that are out to live nodes: a table that holds only while they stay out. */
static bool next_spread(struct cluster_member *m, uint64_t now, struct cluster_txn *txn)
{
	bool gone[CLUSTER_NODES] = {false}, lives[CLUSTER_NODES], settled[CLUSTER_NODES];
	int rc;

	txn->compares = 1; /* the table, and nodes behind it */
	txn->compare[0].revision = m->table_revision;
	find_settled(m, settled);
	for (unsigned i = 0; i < m->table.count; i++) {
		lives[i] = !m->seen[i].out;
		if (!m->seen[i].out || !m->counts[i] || txn->compares == CLUSTER_COMPARES ||
		    now - m->since[i] < time_after(m->attr.spread_after, turn_of(m, i)))
			continue;
		gone[i] = true;
		txn->compare[txn->compares].node = m->seen[i].node;
		txn->compare[txn->compares++].revision = m->seen[i].revision;
	}
	if (!m->attr.spread_after || txn->compares == 1)
		return false;
	log_hush_begin(); /* what holds it up now will not for long */
	rc = cluster_spread(&m->table, gone, lives, &m->spare);
	if (rc == 0)
		rc = cluster_hand_over(&m->table, settled, gone, &m->spare);
	if (rc == 0)
		rc = cluster_print(&m->spare, m->text);
	log_hush_end();
	if (rc < 0)
		return false;
	txn->node = NULL;
	txn->value = m->text;
	txn->length = (size_t)rc;
	return true;
}

/*
 * Slots that go to another node with their values
 */
uint64_t cluster_member_look(struct cluster_member *m)
{
	return ++m->looks;
}

uint64_t cluster_member_seen(const struct cluster_member *m)
{
	return m->looks_seen;
}

enum cluster_outcome cluster_member_outcome(const struct cluster_member *m)
{
	return m->commit.outcome;
}

/* Whether the slot is served here, and is to go to that node. */
static bool slot_goes(const struct cluster_member *m, unsigned slot, unsigned target)
{
	unsigned from = m->table.from[slot];

	return m->table.owner[slot] == m->self && m->table.to[slot] == target + 1 && cluster_bit(m->wish.slots, slot) &&
	       (!from || cluster_entry_settled(&m->seen[from - 1], m->table.epoch));
}

/* It is in the table, and keeps what it has. */
static bool may_move(const struct cluster_member *m)
{
	return m->state == CLUSTER_BEATING && m->self != CLUSTER_NODES && !m->wish.anew && !m->leaves;
}

bool cluster_member_step(const struct cluster_member *m, const bool *rests, struct cluster_step *step)
{
	unsigned last = cluster_find(&m->table, step->target), first = last == CLUSTER_NODES ? 0 : last + 1, slots = 0;
	bool gets[CLUSTER_NODES] = {false};

	if (!m->gives || !may_move(m) || m->adopted != m->wish.serial)
		return false;
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++)
		if (m->table.owner[slot] == m->self && m->table.to[slot])
			gets[m->table.to[slot] - 1] = true;
	for (unsigned i = 0; i < m->table.count && !slots; i++) {
		unsigned target = (first + i) % m->table.count;

		if (!gets[target] || (rests && rests[target]) || !cluster_entry_is_member(&m->seen[target]))
			continue;
		memset(step->slots, 0, sizeof(step->slots));
		for (unsigned slot = 0; slot < CLUSTER_SLOTS && slots < CLUSTER_STEP; slot++) {
			if (!slot_goes(m, slot, target))
				continue;
			cluster_bit_set(step->slots, slot);
			slots++;
		}
		memcpy(step->target, m->table.node[target].name, sizeof(step->target));
		memcpy(step->boot, m->seen[target].boot, sizeof(step->boot));
	}
	return slots;
}

bool cluster_member_holds(const struct cluster_member *m, const struct cluster_step *step)
{
	unsigned target = cluster_find(&m->table, step->target);

	if (!may_move(m) || target == CLUSTER_NODES || !is_start(&m->seen[target], step->boot))
		return false;
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++)
		if (cluster_bit(step->slots, slot) && !slot_goes(m, slot, target))
			return false;
	return true;
}

bool cluster_member_allows(const struct cluster_member *m, const struct cluster_session *session, char *why,
			   size_t size)
{
	unsigned donor = cluster_find(&m->table, session->donor);

	/* One that was out, and does not know the table by which it is back, may yet have to drop all that it has. */
	if (!may_move(m) || m->adopted != m->wish.serial) {
		snprintf(why, size, "node %s does not serve by the newest table yet", m->node);
		return false;
	}
	return cluster_session_allowed(session, &m->table, m->self, donor == CLUSTER_NODES ? NULL : &m->seen[donor],
				       why, size);
}

/* The donor's commit compares its key, which is another one now; before it has one again it gives the commit up. */
bool cluster_member_abandoned(const struct cluster_member *m, const struct cluster_session *session)
{
	unsigned donor = cluster_find(&m->table, session->donor);

	return may_move(m) && m->table.epoch < session->complete &&
	       (donor == CLUSTER_NODES || !is_start(&m->seen[donor], session->boot));
}

/* The table by which the target has the step's slots: the length of its text, or -errno and why there is none. */
static int print_commit(struct cluster_member *m, const struct cluster_step *step)
{
	bool settled[CLUSTER_NODES];
	const char *why;
	int rc;

	must(m->commit.outcome != CLUSTER_OPEN);
	find_settled(m, settled);
	log_hush_begin(); /* it is tried again and again */
	rc = cluster_move(&m->table, settled, step->slots, cluster_find(&m->table, step->target), &m->spare);
	if (rc == 0)
		rc = cluster_print(&m->spare, m->commit.text);
	why = log_hush_end();
	snprintf(m->commit.fault, sizeof(m->commit.fault), "%s%s", rc < 0 ? why : "",
		 rc == -EFBIG ? "; rdmactl cluster plan drop, as fewer nodes have fewer" : "");
	return rc;
}

bool cluster_member_fits(struct cluster_member *m, const struct cluster_step *step)
{
	return print_commit(m, step) >= 0;
}

const char *cluster_member_fault(const struct cluster_member *m)
{
	return m->commit.fault;
}

bool cluster_member_commit(struct cluster_member *m, const struct cluster_step *step, uint64_t epoch)
{
	int rc;

	m->commit.outcome = CLUSTER_NOT_DONE;
	m->commit.fault[0] = '\0';
	if (m->table.epoch + 1 != epoch || !cluster_member_holds(m, step))
		return false;
	rc = print_commit(m, step);
	if (rc < 0)
		return false;
	m->commit.outcome = CLUSTER_OPEN;
	m->commit.length = (size_t)rc;
	m->commit.table_revision = m->table_revision;
	memcpy(m->commit.target, step->target, sizeof(step->target));
	memcpy(m->commit.boot, step->boot, sizeof(step->boot));
	return true;
}

/* There is one to send. Where what the engine has is refused, no answer says what became of it. */
static bool commit_goes(const struct cluster_member *m)
{
	return m->commit.outcome == CLUSTER_OPEN && m->state != CLUSTER_REFUSED;
}

/* It holds only while both nodes are as they were seen last. */
static bool next_commit(struct cluster_member *m, uint64_t now, struct cluster_txn *txn)
{
	const struct cluster_entry *target = &m->seen[cluster_find(&m->table, m->commit.target)];

	if (!commit_goes(m) || now < m->patience)
		return false;
	txn->compares = 3;
	txn->compare[0].revision = m->commit.table_revision;
	txn->compare[1].node = m->own.node;
	txn->compare[1].revision = m->own.revision;
	txn->compare[2].node = target->node;
	txn->compare[2].revision = target->revision;
	txn->value = m->commit.text;
	txn->length = m->commit.length;
	return true;
}

uint64_t cluster_member_due(const struct cluster_member *m)
{
	bool open = commit_goes(m);
	uint64_t due = MIN(m->next, open || m->looks != m->looks_sent ? m->patience : TIME_NEVER);

	return m->waits || is_over(m) ? TIME_NEVER : open ? due : MIN(due, m->next_other);
}

bool cluster_member_next(struct cluster_member *m, uint64_t now, struct cluster_txn *txn)
{
	if (m->waits || is_over(m))
		return false;
	memset(txn, 0, sizeof(*txn));
	if (now >= m->next) {
		m->next = now + part_of(m, 25);
		next_beat(m, now, txn);
	} else if (next_commit(m, now, txn)) {
		/* and nothing else until its outcome is known */
	} else if (m->looks != m->looks_sent && now >= m->patience) {
		/* only a look */
	} else if (now >= m->next_other && !commit_goes(m)) {
		m->next_other = now + part_of(m, 12);
		/* Only one that beats itself can say that it would have heard others. */
		if (m->state != CLUSTER_BEATING || m->fence <= now || m->self == CLUSTER_NODES)
			return false;
		if (!next_out(m, now, txn) && !next_spread(m, now, txn))
			return false;
	} else {
		return false;
	}
	m->looks_sent = m->looks;
	m->waits = true;
	return true;
}
