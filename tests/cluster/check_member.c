/*
 * check_member.c: nodes that serve slots by an engine's word, and move them with their values, over a simulated network, engine
 * and time. At every step no two processes may serve one slot, and what one has of a key must be what was written there last, or
 * nothing; nothing only where a process died or was out, or an operator asked for it. Rules that are left out must be found out so.
 */
#include "cluster/cluster.h"
#include "tests/suite.h"

#define NODES 4u
#define PROCESSES 6u /* some nodes run twice, by mistake */
#define SAMPLES 8u   /* slots that are looked at, each for as many */
#define EACH (CLUSTER_SLOTS / SAMPLES)
#define PERIOD (3 * TIME_S)
#define RUN (60 * TIME_S)
#define TABLES 512u
#define EVENTS 8192u
#define KEYS 2u /* of each sample */
#define CONNS 8192u
#define LATE (20 * TIME_S) /* until when a node may hear that it was out */

/* What is left out, or done in another way than it should. */
enum fault {
	FAULT_NONE,
	FAULT_GREEDY,     /* a beat is good for 1.6 periods */
	FAULT_NO_WAIT,    /* a node is out when it was silent for a tenth of one */
	FAULT_NO_MEMBER,  /* a table that takes slots of a node is written also where that came back meanwhile */
	FAULT_NO_OWN,     /* a beat is written also where the node was out meanwhile */
	FAULT_NO_TABLE,   /* a beat does not bring the table, which comes by itself */
	FAULT_NO_GIVING,  /* an operator's table does not say from where slots come */
	FAULT_EARLY,      /* a node says that it serves by a table before it does */
	FAULT_KEEP,       /* one that comes back does not drop what it has */
	FAULT_SAME_PLACE, /* two processes say that they cannot be at the same time, and are */
	FAULT_CLOCK,      /* a node's clock stands still while the node does */
	FAULT_PERIOD,     /* nodes have several periods, and do not say which */
	/* Of moves: */
	FAULT_NO_SEAL,   /* the donor goes on serving while the table is committed */
	FAULT_NO_DRAIN,  /* the session is complete before all changes were sent */
	FAULT_NO_DONOR,  /* the table is written also where the donor's key is another one meanwhile */
	FAULT_NO_TARGET, /* or the target's */
	FAULT_UNSEAL,    /* the donor goes on serving when the commit had no answer */
	FAULT_TAKE_ALL,  /* the target keeps what came, whatever the table says of it */
	FAULT_NO_SWEEP,  /* it takes a session while it has keys of the one before */
	FAULT_OLD_PUTS,  /* it takes what another session or connection sends */
	FAULT_DROP,      /* it drops a complete session when the connection ends */
	FAULT_NO_MOVED,  /* the next table does not say any more which slots came with their values */
	FAULT_HAND_ON,   /* a slot goes on before its last node knows that it has moved */
	FAULT_OLD_BEGIN, /* a session is replaced by an older one */
	FAULT_OLD_TABLE, /* a complete session ends by a table that is older than it */
	FAULT_OLD_KEYS,  /* the donor sends keys that it is to sweep */
	FAULTS
};

/* What a request is for, */
enum purpose {
	A_LOOK,
	A_BEAT,
	A_NEWS /* a beat of another epoch */,
	A_RETURN /* of a node that is out */,
	AN_OUT,
	A_TABLE,
	PURPOSES
};
/* what becomes of it, and of what it brings, */
enum moment { IT_LEAVES, IT_IS_DONE, IT_IS_ANSWERED, A_WISH_COMES, IT_IS_ADOPTED, MOMENTS };
/* and what can happen to a process then. */
enum blow { DIES, STANDS, STANDS_LONG, LOSES_FROM, LOSES_TO, ASKS_STUCK, RUNS_TWICE, IS_LATE, BLOWS };

struct world;
struct process;

struct request {
	enum purpose purpose;
	struct cluster_txn txn;
	char node[CLUSTER_COMPARES][CLUSTER_NAME_MAX + 1], put[CLUSTER_NAME_MAX + 1];
	char *value;
	struct process *from; /* NULL: an operator's */
	uint64_t number;
	bool commit; /* of a move, */
};

struct answer {
	enum purpose purpose;
	struct cluster_view view;
	struct cluster_entry member[NODES];
	unsigned table; /* of world->text */
	struct process *to;
	uint64_t number;
};

/* What a donor is about. */
enum moving { REST, BEGINNING, COPYING, LOOKING, SEALING, DRAINING, COMPLETING, COMMITTING, UNSEALING };

struct process {
	struct world *world;
	struct cluster_member *member;
	unsigned node, boot;
	bool dead;
	uint64_t paused; /* until then */
	uint64_t stood;  /* in all */
	double speed;    /* of its clock */
	uint64_t asked;  /* number of the last request; 0: none is under way */
	uint64_t numbers;
	uint64_t given_up;                /* when that is, by its clock */
	uint64_t adopted;                 /* serial */
	bool adopts;                      /* it is about to */
	uint8_t slots[CLUSTER_SLOTS / 8]; /* that it serves */
	unsigned table;                   /* FAULT_NO_TABLE: that it has heard of */

	/* Its store. */
	uint64_t value[SAMPLES][KEYS]; /* 0: it has not the key */
	bool old[SAMPLES];             /* to be swept, and not served until then */
	bool sealed[SAMPLES];
	/* What it gives. */
	enum moving moving;
	struct cluster_step step;
	struct cluster_session session;
	unsigned conn;
	uint64_t ids;
	bool dirty[SAMPLES][KEYS]; /* to be sent, again */
	unsigned unanswered;
	uint64_t ticket, serial; /* of a look; of the wish that the step was seen to stand by */
	uint64_t mover_at;       /* when it goes on, or gives up */
	/* What it gets. */
	bool gets;
	struct cluster_session coming;
	unsigned coming_by; /* connection */
	uint64_t heard;
};

enum message_kind { BEGIN, PUT, COMPLETE, DONE, END, BEGIN_ANSWER, PUT_ANSWER, COMPLETE_ANSWER };

struct message {
	enum message_kind kind;
	unsigned conn;
	struct cluster_session session;
	unsigned sample, key;
	uint64_t value;
	bool good;
	struct message *next;
};

struct conn {
	struct process *end[2]; /* the donor, the target */
	unsigned boot[2];
	uint64_t last[2]; /* when the last message to it comes */
	uint64_t held;    /* nothing comes before */
	struct message *first[2], **end_of[2];
	bool closed, loses; /* what was sent is lost then */
};

struct event {
	uint64_t at, order;
	void (*fn)(struct world *world, void *arg, uint64_t number);
	void *arg;
	uint64_t number;
};

/* How a world is: */
enum {
	SLOW = 1,  /* messages are late, */
	WILD = 2,  /* there is more trouble, and clocks differ by more, */
	MIXED = 4, /* nodes have several periods, */
	AIMED = 8, /* most trouble comes at moments of one kind */
	MANNERS = 16
};

struct world {
	enum fault fault;
	bool slow, wild, mixed, aimed;
	struct {
		enum purpose purpose;
		enum moment moment;
		enum blow blow;
		bool other;       /* hits another node than the asking one */
		unsigned percent; /* of such moments */
	} aim;
	bool hasty; /* an operator */
	bool late;  /* the request that is sent */
	uint64_t random, now, order;
	struct event heap[EVENTS];
	unsigned events;

	/* The engine. */
	uint64_t revision;
	struct cluster_entry key[NODES]; /* revision 0: there is none */
	char *text[TABLES];
	uint64_t text_revision[TABLES];
	unsigned tables; /* the last one is valid */

	struct process process[PROCESSES];
	bool cut[PROCESSES][2]; /* from it, to it */
	uint64_t stuck;         /* an old leader: until then */
	bool at_stuck[PROCESSES];

	struct conn conn[CONNS];
	unsigned conns;
	unsigned owner[SAMPLES]; /* by the table, */
	uint64_t was_out[NODES]; /* when it was last */

	uint64_t latest[SAMPLES][KEYS];
	bool kept[SAMPLES][KEYS]; /* no reason is known for which it may be lost */
	uint64_t writes;
	unsigned twice, stale, lost;                                   /* what must not be */
	unsigned sessions, commits, arrived;                           /* moves: begun, committed, with a value */
	unsigned applied, outs, spreads, crashes, returns, anew, hits; /* what there was */
	uint64_t looks, served;
};

static uint64_t below(struct world *w, uint64_t most)
{
	return random_step(&w->random) % most;
}

static bool chance(struct world *w, unsigned percent)
{
	return below(w, 100) < percent;
}

static uint64_t between(struct world *w, uint64_t from, uint64_t to)
{
	return from + below(w, to - from);
}

/*
 * Events, in the order of time
 */
static bool sooner(const struct event *a, const struct event *b)
{
	return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void at(struct world *w, uint64_t after, void (*fn)(struct world *, void *, uint64_t), void *arg,
	       uint64_t number)
{
	struct event event = {w->now + after, w->order++, fn, arg, number};
	unsigned i = w->events++;

	ck_assert_uint_lt(i, EVENTS);
	for (; i && sooner(&event, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
		w->heap[i] = w->heap[(i - 1) / 2];
	w->heap[i] = event;
}

static struct event next_event(struct world *w)
{
	struct event first = w->heap[0], last = w->heap[--w->events];
	unsigned i = 0;

	for (unsigned child = 1; child < w->events; child = 2 * i + 1) {
		if (child + 1 < w->events && sooner(&w->heap[child + 1], &w->heap[child]))
			child++;
		if (!sooner(&w->heap[child], &last))
			break;
		w->heap[i] = w->heap[child];
		i = child;
	}
	w->heap[i] = last;
	return first;
}

/*
 * The engine
 */
static uint64_t *revision_of(struct world *w, const char *node)
{
	return node ? &w->key[node[1] - '0'].revision : &w->text_revision[w->tables];
}

static bool holds(struct world *w, const struct request *request)
{
	const struct cluster_txn *txn = &request->txn;

	for (unsigned i = 0; i < txn->compares; i++) {
		if (w->fault == FAULT_NO_MEMBER && i && !txn->node)
			continue;
		if (w->fault == FAULT_NO_OWN && request->from && txn->node &&
		    txn->node[1] - '0' == (int)request->from->node)
			continue;
		if (request->commit && i && w->fault == (i == 1 ? FAULT_NO_DONOR : FAULT_NO_TARGET))
			continue;
		if (*revision_of(w, txn->compare[i].node) != txn->compare[i].revision)
			return false;
	}
	return true;
}

static bool is_boot(const struct process *p, const char *boot)
{
	char own[CLUSTER_BOOT + 1];

	if (!p->member)
		return false;
	snprintf(own, sizeof(own), "%u.%u", (unsigned)(p - p->world->process), p->boot);
	return strcmp(own, boot) == 0;
}

/* The process that the engine has as the node, if it lives. */
static struct process *process_of(struct world *w, unsigned node)
{
	for (unsigned i = 0; i < PROCESSES; i++)
		if (!w->process[i].dead && w->process[i].node == node && is_boot(&w->process[i], w->key[node].boot))
			return &w->process[i];
	return NULL;
}

/* What the node has may be lost from here on. */
static void may_lose(struct world *w, unsigned node)
{
	for (unsigned i = 0; i < SAMPLES; i++)
		if (w->owner[i] == node)
			memset(w->kept[i], 0, sizeof(w->kept[i]));
}

/* Slots have other owners: without their values, or to a node that cannot have them. */
static void follow_owners(struct world *w, const struct request *request)
{
	static struct cluster_table table;

	ck_assert_int_eq(cluster_parse("table", w->text[w->tables], strlen(w->text[w->tables]), &table), 0);
	for (unsigned i = 0; i < SAMPLES; i++) {
		unsigned owner = table.owner[i * EACH];

		if (owner == w->owner[i])
			continue;
		if (!request || !request->commit || owner >= NODES || !process_of(w, owner) ||
		    (w->was_out[owner] && w->now - w->was_out[owner] < LATE))
			memset(w->kept[i], 0, sizeof(w->kept[i]));
		w->owner[i] = owner;
	}
}

/* The text without what a fault leaves out of it. */
static char *leave_out(const char *value, bool moved, bool from)
{
	static struct cluster_table table;
	static char text[CLUSTER_TEXT_MAX + 1];

	ck_assert_int_eq(cluster_parse("table", value, strlen(value), &table), 0);
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++) {
		if (moved)
			table.moved[slot] = 0;
		if (from && table.moved[slot] == table.epoch)
			table.from[slot] = 0;
	}
	ck_assert_int_gt(cluster_print(&table, text), 0);
	return strdup(text);
}

static void write_key(struct world *w, const struct request *request)
{
	const struct cluster_txn *txn = &request->txn;

	w->revision++;
	if (txn->node) {
		unsigned node = (unsigned)(txn->node[1] - '0');
		struct cluster_entry *entry = &w->key[node], before = *entry;

		ck_assert_int_eq(cluster_entry_parse(txn->value, txn->length, entry), 0);
		strcpy(entry->node, txn->node);
		if (w->fault == FAULT_PERIOD)
			entry->period = 0;
		entry->revision = w->revision;
		w->outs += entry->out && !before.out;
		if (entry->out || before.out)
			w->was_out[node] = w->now;
		w->returns += before.out && !entry->out;
		if (entry->out || strcmp(entry->boot, before.boot) != 0)
			may_lose(w, node);
		return;
	}
	ck_assert_uint_lt(++w->tables, TABLES);
	w->text[w->tables] =
		(w->fault == FAULT_HAND_ON && request->commit) || (w->fault == FAULT_NO_MOVED && !request->commit)
			? leave_out(txn->value, !request->commit, request->commit)
			: strdup(txn->value);
	/* It is checked for each process: most of the time of a run. A node knows its own commit by all of the text. */
	if (!request->commit && strstr(w->text[w->tables], "checksum"))
		*strstr(w->text[w->tables], "checksum") = '\0';
	w->text_revision[w->tables] = w->revision;
	w->applied += !request->from;
	w->spreads += request->from && !request->commit;
	w->commits += request->commit;
	follow_owners(w, request);
}

static void look_at(struct world *w, struct answer *answer)
{
	unsigned n = 0;

	for (unsigned i = 0; i < NODES; i++)
		if (w->key[i].revision)
			answer->member[n++] = w->key[i];
	answer->table = w->tables;
	answer->view = (struct cluster_view){.revision = w->revision, .members = n};
}

static void free_request(struct request *request)
{
	free(request->value);
	free(request);
}

static enum purpose purpose_of(const struct world *w, const struct cluster_txn *txn, const struct process *from)
{
	struct cluster_entry entry = {.revision = 0};

	if (!txn->value)
		return A_LOOK;
	if (!txn->node)
		return A_TABLE;
	if (txn->node[1] - '0' != (int)from->node)
		return AN_OUT;
	if (w->key[from->node].out)
		return A_RETURN;
	cluster_entry_parse(txn->value, txn->length, &entry);
	return entry.epoch == w->key[from->node].epoch ? A_BEAT : A_NEWS;
}

static uint64_t hop_time(struct world *w)
{
	uint64_t time = between(w, TIME_MS / 2, 10 * TIME_MS);

	if (chance(w, w->slow ? 25 : 3))
		time += below(w, w->slow ? 2500 * TIME_MS : 800 * TIME_MS);
	return time;
}

/*
 * Processes
 */
static uint64_t clock_of(const struct process *p)
{
	uint64_t stood = p->world->fault == FAULT_CLOCK ? p->stood : 0;

	return (uint64_t)((double)(p->world->now - stood) * p->speed) + TIME_S;
}

static bool runs(const struct process *p)
{
	return p->member && !p->dead && p->world->now >= p->paused;
}

static bool serves(const struct process *p, unsigned slot)
{
	return runs(p) && cluster_bit(p->slots, slot) && !p->old[slot / EACH] && !p->sealed[slot / EACH] &&
	       clock_of(p) < cluster_member_until(p->member);
}

static void moment(struct world *w, enum moment moment, enum purpose purpose, struct process *p, const char *node);

static void answered(struct world *w, void *arg, uint64_t number)
{
	struct answer *answer = arg;
	struct process *p = answer->to;

	if (w->cut[p - w->process][1] || p->dead || p->asked != answer->number) {
		free(answer);
		return;
	}
	if (w->now < p->paused) {
		at(w, p->paused - w->now + 1000, answered, answer, number);
		return;
	}
	if (w->fault == FAULT_NO_TABLE)
		answer->table = p->table;
	p->asked = 0;
	answer->view.member = answer->member;
	answer->view.table_revision = w->text_revision[answer->table];
	answer->view.table = w->text[answer->table];
	answer->view.table_length = answer->table ? strlen(w->text[answer->table]) : 0;
	cluster_member_answer(p->member, clock_of(p), &answer->view);
	moment(w, IT_IS_ANSWERED, answer->purpose, p, NULL);
	free(answer);
}

static void heard_of_table(struct world *w, void *arg, uint64_t number)
{
	struct process *p = arg;

	if (!w->cut[p - w->process][1])
		p->table = (unsigned)MAX(p->table, number);
}

/* The request is there, and it may be long after it was given up. */
static void arrived(struct world *w, void *arg, uint64_t number)
{
	struct request *request = arg;
	struct answer *answer;

	if (request->from &&
	    (w->cut[request->from - w->process][0] || (w->now < w->stuck && w->at_stuck[request->from - w->process]))) {
		/* A leader that was replaced answers nothing; what it was asked is done later, or never. */
		if (w->now < w->stuck && chance(w, 30) && !number)
			at(w, w->stuck - w->now + below(w, TIME_S), arrived, request, 1);
		else
			free_request(request);
		return;
	}
	if (request->txn.value && holds(w, request)) {
		write_key(w, request);
		moment(w, IT_IS_DONE, request->purpose, request->from, request->txn.node);
	}
	if (request->from && !number) {
		answer = calloc(1, sizeof(*answer));
		answer->purpose = request->purpose;
		look_at(w, answer);
		answer->to = request->from;
		answer->number = request->number;
		at(w, hop_time(w), answered, answer, 0);
		if (w->fault == FAULT_NO_TABLE)
			at(w, hop_time(w), heard_of_table, request->from, w->tables);
	}
	free_request(request);
}

static uint64_t aim(struct world *w, struct process *donor);

static void send_request(struct world *w, struct process *from, const struct cluster_txn *txn)
{
	struct request *request = calloc(1, sizeof(*request));

	request->txn = *txn;
	for (unsigned i = 0; i < txn->compares; i++)
		if (txn->compare[i].node)
			request->txn.compare[i].node = strcpy(request->node[i], txn->compare[i].node);
	if (txn->node)
		request->txn.node = strcpy(request->put, txn->node);
	if (txn->value)
		request->txn.value = request->value = strdup(txn->value);
	request->from = from;
	request->commit = from && !txn->node && txn->value && cluster_member_outcome(from->member) == CLUSTER_OPEN;
	request->number = from ? from->asked : 0;
	request->purpose = purpose_of(w, txn, from);
	w->late = false;
	moment(w, IT_LEAVES, request->purpose, from, request->txn.node);
	at(w, request->commit ? aim(w, from) : hop_time(w) + (w->late ? between(w, TIME_S / 4, 3 * TIME_S) : 0),
	   arrived, request, 0);
}

/*
 * Moves: what donors and targets say to each other
 */
static void delivered(struct world *w, void *arg, uint64_t to);
static void strike_move(struct world *w, void *arg, uint64_t kind);

/* The message goes to one of the connection's ends, behind the messages before it. */
static void send_message(struct world *w, unsigned conn, unsigned to, const struct message *message)
{
	struct conn *c = &w->conn[conn];
	struct message *copy = malloc(sizeof(*copy));

	*copy = *message;
	copy->conn = conn;
	copy->next = NULL;
	*c->end_of[to] = copy;
	c->end_of[to] = &copy->next;
	c->last[to] = MAX(c->last[to] + 1, w->now + hop_time(w) / 4);
	at(w, c->last[to] - w->now, delivered, c, to);
	if (w->fault == FAULT_OLD_PUTS && message->kind == PUT && chance(w, 5)) /* aims at what is on the way */
		at(w, below(w, 10 * TIME_MS), strike_move, c->end[0], 3);
}

/* Both ends hear of it, each some time or other; what was sent before comes, or does not. */
static void close_conn(struct world *w, unsigned conn)
{
	struct message end = {.kind = END};

	if (w->conn[conn].closed)
		return;
	for (unsigned to = 0; to < 2; to++) {
		if (chance(w, 20))
			w->conn[conn].last[to] += below(w, 3 * TIME_S);
		send_message(w, conn, to, &end);
	}
	w->conn[conn].closed = true;
	w->conn[conn].loses = chance(w, 50);
	if (chance(w, 40))
		w->conn[conn].held = w->now + below(w, 2 * TIME_S);
}

static void sweep(struct world *w, void *arg, uint64_t boot)
{
	struct process *p = arg;

	if (p->dead || p->boot != boot)
		return;
	if (w->now < p->paused) {
		at(w, p->paused - w->now + 1000, sweep, p, boot);
		return;
	}
	for (unsigned i = 0; i < SAMPLES; i++) {
		if (p->old[i])
			memset(p->value[i], 0, sizeof(p->value[i]));
		p->old[i] = false;
	}
}

static void drop_sample(struct world *w, struct process *p, unsigned sample)
{
	uint64_t longest = w->fault == FAULT_OLD_KEYS ? 8 * TIME_S : chance(w, 10) ? TIME_S : 50 * TIME_MS;

	p->old[sample] = true;
	at(w, between(w, TIME_MS, longest), sweep, p, p->boot);
}

/* What has come is swept. */
static void drop_session(struct world *w, struct process *p)
{
	p->gets = false;
	for (unsigned i = 0; i < SAMPLES && w->fault != FAULT_NO_SWEEP; i++)
		if (cluster_bit(p->coming.slots, i * EACH))
			drop_sample(w, p, i);
}

static bool may_begin(struct world *w, struct process *p, const struct cluster_session *session)
{
	char why[200];
	bool good;

	if (p->gets && !cluster_session_replaces(&p->coming, session) &&
	    (w->fault != FAULT_OLD_BEGIN || strcmp(p->coming.donor, session->donor) != 0))
		return false;
	good = cluster_member_allows(p->member, session, why, sizeof(why));
	if (!good)
		cluster_member_look(p->member);
	if (good && p->gets)
		drop_session(w, p);
	for (unsigned i = 0; i < SAMPLES; i++)
		good &= !p->old[i] || !cluster_bit(session->slots, i * EACH) || w->fault == FAULT_NO_SWEEP;
	return good;
}

/* What a target does. */
static void serve_message(struct world *w, struct process *p, const struct message *m)
{
	bool mine = p->gets && p->coming_by == m->conn && !p->coming.complete &&
		    memcmp(p->coming.id, m->session.id, CLUSTER_ID_SIZE) == 0;
	struct message answer = *m;

	answer.good = mine;
	p->heard = mine ? w->now : p->heard;
	switch (m->kind) {
	case BEGIN:
		answer.kind = BEGIN_ANSWER;
		answer.good = may_begin(w, p, &m->session);
		if (answer.good) {
			p->gets = true;
			p->coming = m->session;
			p->coming_by = m->conn;
			p->heard = w->now;
			w->sessions++;
		}
		break;
	case PUT:
		answer.kind = PUT_ANSWER;
		if (w->fault == FAULT_OLD_PUTS)
			answer.good = p->gets && cluster_bit(p->coming.slots, m->sample * EACH);
		if (answer.good)
			p->value[m->sample][m->key] = m->value;
		break;
	case COMPLETE:
		answer.kind = COMPLETE_ANSWER;
		if (mine)
			p->coming.complete = m->session.complete;
		break;
	case DONE:
		cluster_member_look(p->member);
		return;
	default:
		if (p->gets && p->coming_by == m->conn && (!p->coming.complete || w->fault == FAULT_DROP))
			drop_session(w, p);
		return;
	}
	if (!w->conn[m->conn].closed)
		send_message(w, m->conn, 0, &answer);
}

static void end_move(struct world *w, struct process *p)
{
	close_conn(w, p->conn);
	p->moving = UNSEALING;
}

/* What a donor hears. */
static void take_answer(struct world *w, struct process *p, const struct message *m)
{
	if (p->moving == REST || p->conn != m->conn || p->moving >= COMMITTING)
		return;
	p->mover_at = w->now + TIME_S;
	if (m->kind == END || !m->good) {
		end_move(w, p);
	} else if (m->kind == BEGIN_ANSWER) {
		p->moving = COPYING;
	} else if (m->kind == PUT_ANSWER) {
		p->unanswered--;
	} else {
		p->moving = COMMITTING;
		if (!cluster_member_commit(p->member, &p->step, p->session.complete))
			end_move(w, p);
	}
}

static void delivered(struct world *w, void *arg, uint64_t to)
{
	struct conn *c = arg;
	struct message *m = c->first[to];
	struct process *p = c->end[to];
	bool gone = p->dead || p->boot != c->boot[to];

	if (!gone && w->now < MAX(p->paused, c->held)) {
		at(w, MAX(p->paused, c->held) - w->now + 1000, delivered, c, to);
		return;
	}
	c->first[to] = m->next;
	if (!m->next)
		c->end_of[to] = &c->first[to];
	if (!gone && (m->kind == END || !c->closed || !c->loses)) {
		if (to)
			serve_message(w, p, m);
		else
			take_answer(w, p, m);
	}
	free(m);
}

/* Whether the donor's step is to be taken as it is. */
static bool step_holds(const struct process *p)
{
	for (unsigned i = 0; i < SAMPLES && p->world->fault != FAULT_OLD_KEYS; i++)
		if (p->old[i] && cluster_bit(p->step.slots, i * EACH))
			return false;
	return cluster_member_holds(p->member, &p->step);
}

static void begin_move(struct world *w, struct process *p)
{
	struct message message = {.kind = BEGIN};
	struct process *target = NULL;
	struct conn *conn;

	if (!cluster_member_step(p->member, NULL, &p->step) || !step_holds(p))
		return;
	for (unsigned i = 0; i < PROCESSES; i++)
		if (!w->process[i].dead && is_boot(&w->process[i], p->step.boot))
			target = &w->process[i];
	p->mover_at = w->now + TIME_S;
	if (!target)
		return;
	memset(&p->session, 0, sizeof(p->session));
	strcpy(p->session.donor, w->key[p->node].node);
	snprintf(p->session.boot, sizeof(p->session.boot), "%u.%u", (unsigned)(p - w->process), p->boot);
	p->session.epoch = cluster_member_wish(p->member)->table->epoch;
	memcpy(p->session.slots, p->step.slots, sizeof(p->step.slots));
	p->ids++;
	for (unsigned i = 0; i < sizeof(p->ids); i++)
		p->session.id[i] = (uint8_t)(p->ids >> (56 - 8 * i));
	p->moving = BEGINNING;
	p->unanswered = 0;
	p->conn = ++w->conns;
	ck_assert_uint_lt(w->conns, CONNS);
	conn = &w->conn[p->conn];
	*conn = (struct conn){.end = {p, target}, .boot = {p->boot, target->boot}, .last = {w->now, w->now}};
	conn->end_of[0] = &conn->first[0];
	conn->end_of[1] = &conn->first[1];
	for (unsigned i = 0; i < SAMPLES; i++)
		memset(p->dirty[i], true, sizeof(p->dirty[i]));
	message.session = p->session;
	send_message(w, p->conn, 1, &message);
}

/* Send some of what is to be sent; true: nothing is left. */
static bool send_values(struct world *w, struct process *p, unsigned most)
{
	struct message message = {.kind = PUT};
	bool all = true;

	message.session = p->session;
	for (unsigned n = 0; n < SAMPLES * KEYS; n++) {
		unsigned i = n / KEYS, key = n % KEYS;

		if (!cluster_bit(p->step.slots, i * EACH) || !p->dirty[i][key])
			continue;
		all = false;
		if (!most--)
			break;
		p->dirty[i][key] = false;
		message.sample = i;
		message.key = key;
		message.value = p->value[i][key];
		p->unanswered++;
		send_message(w, p->conn, 1, &message);
	}
	return all;
}

static void seal(struct process *p, bool sealed)
{
	for (unsigned i = 0; i < SAMPLES; i++)
		p->sealed[i] = sealed && cluster_bit(p->step.slots, i * EACH) && p->world->fault != FAULT_NO_SEAL;
}

static void mover_turn(struct world *w, struct process *p)
{
	const struct cluster_wish *wish = cluster_member_wish(p->member);
	struct message message = {.kind = COMPLETE};
	enum cluster_outcome outcome;

	if (p->moving > REST && p->moving < COMMITTING && p->moving != SEALING && w->now > p->mover_at)
		end_move(w, p);
	if (p->moving > REST && p->moving < COMMITTING && (p->moving <= LOOKING || wish->serial != p->serial)) {
		p->serial = wish->serial;
		if (!step_holds(p))
			end_move(w, p);
	}
	switch (p->moving) {
	case REST:
		if (w->now > p->mover_at)
			begin_move(w, p);
		break;
	case COPYING:
		if (!send_values(w, p, 1) || p->unanswered > 1)
			break;
		p->ticket = cluster_member_look(p->member);
		p->moving = LOOKING;
		break;
	case LOOKING:
		send_values(w, p, 1);
		if (cluster_member_seen(p->member) < p->ticket)
			break;
		p->session.complete = wish->table->epoch + 1;
		p->moving = SEALING;
		break;
	case SEALING: /* no worker goes by the former view now */
		seal(p, true);
		p->mover_at = w->now + 2 * TIME_S;
		p->moving = DRAINING;
		break;
	case DRAINING:
		if (w->fault != FAULT_NO_DRAIN && (!send_values(w, p, 2) || p->unanswered))
			break;
		message.session = p->session;
		send_message(w, p->conn, 1, &message);
		p->moving = COMPLETING;
		break;
	case COMMITTING:
		outcome = cluster_member_outcome(p->member);
		if (outcome == CLUSTER_OPEN)
			break;
		message.kind = DONE;
		if (outcome == CLUSTER_DONE && !w->conn[p->conn].closed)
			send_message(w, p->conn, 1, &message);
		end_move(w, p);
		break;
	case UNSEALING:
		if (wish->serial != p->adopted && w->fault != FAULT_UNSEAL)
			break;
		seal(p, false);
		p->moving = REST;
		p->mover_at = w->now + below(w, 300 * TIME_MS);
		break;
	default: /* waits for an answer */
		break;
	}
}

/* Change what is served: what is lost is swept; what is gained is empty, or has come with its values. */
static void change_slots(struct world *w, struct process *p, const struct cluster_wish *wish)
{
	unsigned self = cluster_find(wish->table, w->key[p->node].node);
	bool anew = wish->anew && w->fault != FAULT_KEEP, over;

	if (anew && p->gets)
		drop_session(w, p);
	over = p->gets && (cluster_session_over(&p->coming, wish->table, self) ||
			   (w->fault == FAULT_OLD_TABLE && wish->table->epoch > p->coming.epoch));
	for (unsigned i = 0; i < SAMPLES; i++) {
		unsigned slot = i * EACH;
		bool had = cluster_bit(p->slots, slot), has = cluster_bit(wish->slots, slot);
		bool comes = over && cluster_bit(p->coming.slots, slot);
		bool keeps = comes && (cluster_session_keeps(&p->coming, wish->table, self, slot) ||
				       (w->fault == FAULT_TAKE_ALL && has));

		if ((had && (anew || !has)) || (comes && !keeps))
			drop_sample(w, p, i);
		w->arrived += keeps && p->value[i][0];
	}
	if (over)
		p->gets = false;
	w->anew += anew;
	memcpy(p->slots, wish->slots, sizeof(p->slots));
}

static void adopt(struct world *w, void *arg, uint64_t boot)
{
	struct process *p = arg;
	const struct cluster_wish *wish = cluster_member_wish(p->member);

	if (p->dead || p->boot != boot)
		return;
	if (w->now < p->paused) {
		at(w, p->paused - w->now + 1000, adopt, p, boot);
		return;
	}
	p->adopts = false;
	p->adopted = wish->serial;
	change_slots(w, p, wish);
	cluster_member_adopted(p->member, wish->serial);
	moment(w, IT_IS_ADOPTED, w->aim.purpose, p, NULL);
}

static void turn(struct world *w, void *arg, uint64_t boot)
{
	struct process *p = arg;
	const struct cluster_wish *wish;
	struct cluster_txn txn;

	if (p->dead || p->boot != boot)
		return;
	at(w, p->moving == REST ? between(w, 20 * TIME_MS, 60 * TIME_MS) : between(w, TIME_MS, 20 * TIME_MS), turn, p,
	   boot);
	if (w->now < p->paused)
		return;
	if (p->asked && clock_of(p) > p->given_up) {
		p->asked = 0;
		cluster_member_lost(p->member, clock_of(p));
		if (w->fault == FAULT_UNSEAL && p->moving == COMMITTING)
			p->moving = UNSEALING;
	}
	mover_turn(w, p);
	if (p->gets && p->coming.complete && w->fault == FAULT_NONE && cluster_member_abandoned(p->member, &p->coming))
		drop_session(w, p);
	if (p->gets && !p->coming.complete && w->now - p->heard > 3 * TIME_S)
		drop_session(w, p);
	wish = cluster_member_wish(p->member);
	if (wish->serial != p->adopted && !p->adopts) {
		p->adopts = true;
		if (w->fault == FAULT_EARLY)
			cluster_member_adopted(p->member, wish->serial);
		at(w, chance(w, 10) ? below(w, TIME_S) : below(w, 30 * TIME_MS), adopt, p, boot);
		moment(w, A_WISH_COMES, w->aim.purpose, p, NULL);
	}
	if (runs(p) && !p->asked && cluster_member_next(p->member, clock_of(p), &txn)) {
		p->asked = ++p->numbers;
		p->given_up = clock_of(p) + PERIOD / 8;
		send_request(w, p, &txn);
	}
}

static void start(struct world *w, struct process *p, unsigned node, unsigned place)
{
	char name[] = "n0", boot[CLUSTER_BOOT + 1], where[CLUSTER_BOOT + 1];
	struct cluster_member_attr attr = {.cluster = "kv",
					   .node = name,
					   .boot = boot,
					   .place = where,
					   .period = w->mixed && node % 2 ? 3 * PERIOD : PERIOD,
					   .spread_after = 6 * TIME_S,
					   .serves = w->fault == FAULT_GREEDY ? 160 : CLUSTER_SERVES,
					   .silence = w->fault == FAULT_NO_WAIT ? 10 : CLUSTER_SILENCE};
	int drift = w->wild ? 20 : 5;

	if (p->member)
		cluster_member_free(p->member);
	memset(p->slots, 0, sizeof(p->slots));
	memset(p->value, 0, sizeof(p->value));
	memset(p->old, 0, sizeof(p->old));
	memset(p->sealed, 0, sizeof(p->sealed));
	p->moving = REST;
	p->gets = false;
	p->world = w;
	p->node = node;
	p->boot++;
	p->dead = false;
	p->paused = p->stood = p->asked = p->adopted = 0;
	p->adopts = false;
	p->speed = 1 + ((double)below(w, (uint64_t)(2 * drift + 1)) - drift) / 100;
	name[1] = (char)('0' + node);
	snprintf(boot, sizeof(boot), "%u.%u", (unsigned)(p - w->process), p->boot);
	snprintf(where, sizeof(where), "%u", w->fault == FAULT_SAME_PLACE ? node : place);
	ck_assert_int_eq(cluster_member_new(&attr, &p->member), 0);
	at(w, below(w, 60 * TIME_MS), turn, p, p->boot);
}

static void start_again(struct world *w, void *arg, uint64_t boot)
{
	struct process *p = arg;

	if (p->dead && p->boot == boot)
		start(w, p, p->node, (unsigned)(p - w->process));
}

/*
 * What happens to them
 */
static void end_process(struct world *w, struct process *p)
{
	if (process_of(w, p->node) == p)
		may_lose(w, p->node);
	if (p->moving != REST)
		close_conn(w, p->conn);
	if (p->gets)
		close_conn(w, p->coming_by);
	p->dead = true;
}

static void kill_process(struct world *w, struct process *p)
{
	end_process(w, p);
	w->crashes++;
	at(w, chance(w, 20) ? between(w, 8 * TIME_S, 20 * TIME_S) : between(w, TIME_S / 4, 8 * TIME_S), start_again, p,
	   p->boot);
}

static void mend(struct world *w, void *arg, uint64_t number)
{
	(void)arg;
	(void)number;
	memset(w->cut, 0, sizeof(w->cut));
}

/* A second process of a node, or its end. */
static void run_twice(struct world *w, unsigned node)
{
	struct process *p = &w->process[NODES + below(w, PROCESSES - NODES)];

	if (p->member && !p->dead)
		end_process(w, p);
	else
		start(w, p, node, (unsigned)(p - w->process));
}

static void stand(struct world *w, struct process *p, uint64_t time)
{
	p->paused = w->now + time;
	p->stood += time;
}

static void change_table(struct world *w, void *arg, uint64_t hasty);

/* Something happens to one of a move's nodes while its table is on the way. */
static void strike_move(struct world *w, void *arg, uint64_t kind)
{
	struct process *p = arg;

	if (p->dead)
		return;
	if (kind == 0) {
		end_process(w, p);
		at(w, between(w, 30 * TIME_MS, 300 * TIME_MS), start_again, p, p->boot);
		w->crashes++;
	} else if (kind == 1)
		stand(w, p, between(w, TIME_S, 12 * TIME_S));
	else if (p->moving != REST)
		close_conn(w, p->conn);
	if (chance(w, 30))
		at(w, between(w, TIME_S / 20, 2 * TIME_S), change_table, NULL, 1);
}

/* How long the table is on the way: sometimes for long. */
static uint64_t aim(struct world *w, struct process *donor)
{
	struct process *end[] = {donor, w->conn[donor->conn].end[1]};

	if (!chance(w, w->fault ? 60 : 25))
		return hop_time(w);
	at(w, below(w, 20 * TIME_MS), strike_move, end[below(w, 2)], below(w, 4));
	return chance(w, 50) ? hop_time(w) : between(w, TIME_S / 10, TIME_S);
}

static void strike(struct world *w, struct process *p, enum blow blow)
{
	switch (blow) {
	case DIES:
		kill_process(w, p);
		break;
	case STANDS:
		stand(w, p, between(w, TIME_S / 10, 6 * TIME_S));
		break;
	case STANDS_LONG:
		stand(w, p, between(w, 6 * TIME_S, 15 * TIME_S));
		break;
	case LOSES_FROM:
	case LOSES_TO:
		w->cut[p - w->process][blow == LOSES_TO] = true;
		at(w, between(w, TIME_S / 3, 8 * TIME_S), mend, NULL, 0);
		break;
	case ASKS_STUCK:
		w->stuck = w->now + between(w, 2 * TIME_S, 12 * TIME_S);
		for (unsigned i = 0; i < PROCESSES; i++)
			w->at_stuck[i] = p == &w->process[i] || chance(w, 50);
		break;
	case IS_LATE:
		w->late = true;
		break;
	default:
		run_twice(w, p->node);
	}
}

/* What the world aims at may be here. `node`: whose key was asked for; p: the process that asked, NULL: an operator. */
static void moment(struct world *w, enum moment moment, enum purpose purpose, struct process *p, const char *node)
{
	if (!w->aimed || moment != w->aim.moment || purpose != w->aim.purpose || !chance(w, w->aim.percent))
		return;
	if (w->aim.other || !p)
		p = &w->process[node && p && node[1] - '0' != (int)p->node ? (uint64_t)(node[1] - '0')
									   : below(w, NODES)];
	if (!runs(p))
		return;
	w->hits++;
	strike(w, p, w->aim.blow);
}

static void trouble(struct world *w, void *arg, uint64_t number)
{
	struct process *p = &w->process[below(w, PROCESSES)];
	uint64_t kind = below(w, 100), pause = between(w, TIME_S / 5, w->wild ? 2 * TIME_S : 4 * TIME_S);

	at(w, w->aimed ? 3 * pause : pause, trouble, arg, number);
	if (kind < 15 && runs(p)) {
		strike(w, p, DIES);
	} else if (kind < 40 && runs(p)) {
		strike(w, p, chance(w, w->fault == FAULT_KEEP ? 100 : 15) ? STANDS_LONG : STANDS);
	} else if (kind < 75) {
		for (unsigned i = 0; i < PROCESSES; i++)
			for (unsigned way = 0; way < 2; way++)
				w->cut[i][way] = chance(w, 35);
		at(w, between(w, TIME_S / 3, 8 * TIME_S), mend, NULL, 0);
	} else if (kind < 85) {
		strike(w, p, ASKS_STUCK);
	} else if (kind < 90 && chance(w, 30)) {
		run_twice(w, (unsigned)below(w, NODES));
	} else if (p->member && !p->dead && p->moving != REST) {
		close_conn(w, p->conn);
	}
}

/* Some slots go to other nodes. */
static void choose_owners(struct world *w, struct cluster_table *next)
{
	for (unsigned n = 1 + (unsigned)below(w, 3); n; n--) {
		unsigned first = (unsigned)below(w, SAMPLES), owner = (unsigned)below(w, NODES + 1);

		for (unsigned slot = first * EACH; slot < (first + 1) * EACH; slot++) {
			next->owner[slot] = (uint16_t)(owner == NODES && chance(w, 1) ? CLUSTER_ABSENT : owner % NODES);
			next->to[slot] = 0;
		}
	}
}

/* An operator looks, makes a table of what is there, and applies it somewhat later. `hasty`: all that is to go with its
 * values goes without, and what has just moved goes on. */
static void change_table(struct world *w, void *arg, uint64_t hasty)
{
	uint64_t rest = (w->fault == FAULT_KEEP || w->fault >= FAULT_NO_SEAL ? 3 : 12) * TIME_S;
	static struct cluster_table now, next;
	static char text[CLUSTER_TEXT_MAX + 1];
	bool settled[CLUSTER_NODES] = {false}, gone[CLUSTER_NODES] = {false}, lives[CLUSTER_NODES] = {false};
	struct cluster_txn txn = {.compares = 1, .value = text};

	if (!hasty)
		at(w, w->hasty ? between(w, TIME_S / 5, TIME_S) : between(w, TIME_S, rest), change_table, arg, 0);
	ck_assert_int_eq(cluster_parse("table", w->text[w->tables], strlen(w->text[w->tables]), &now), 0);
	next = now;
	next.epoch++;
	if (!hasty)
		choose_owners(w, &next);
	for (unsigned slot = 0; slot < CLUSTER_SLOTS && hasty; slot++) {
		if (next.to[slot])
			next.owner[slot] = (uint16_t)(next.to[slot] - 1);
		else if (next.moved[slot] == now.epoch)
			next.owner[slot] = (uint16_t)(slot / EACH % NODES);
	}
	for (unsigned i = 0; i < now.count; i++) {
		settled[i] = cluster_entry_settled(&w->key[i], now.epoch);
		lives[i] = w->key[i].revision && !w->key[i].out;
	}
	log_hush_begin(); /* it may be too early */
	if (!hasty && chance(w, 70))
		ck_assert_int_eq(cluster_keep_values(&now, lives, &next), 0);
	if (cluster_hand_over(&now, settled, gone, &next) == 0) {
		if (w->fault == FAULT_NO_GIVING)
			memset(next.from, 0, sizeof(next.from));
		txn.compare[0].revision = w->text_revision[w->tables];
		ck_assert_int_gt(cluster_print(&next, text), 0);
		txn.length = strlen(text);
		send_request(w, NULL, &txn);
	}
	log_hush_end();
}

/* A client reads a key, and perhaps writes it. */
static void use_key(struct world *w, struct process *server, unsigned sample, unsigned key)
{
	uint64_t *value = &server->value[sample][key], *latest = &w->latest[sample][key];

	if (*value && *value != *latest)
		w->stale++;
	if (!*value && w->kept[sample][key]) {
		w->lost++;
		w->kept[sample][key] = false;
	}
	if (!chance(w, 10))
		return;
	*value = *latest = chance(w, 10) ? 0 : ++w->writes;
	w->kept[sample][key] = *value && w->owner[sample] == server->node && !w->key[server->node].out &&
			       process_of(w, server->node) == server;
	server->dirty[sample][key] = true;
}

/* Look for two servers of a slot, and use what one has. */
static void look(struct world *w)
{
	for (unsigned i = 0; i < SAMPLES; i++) {
		struct process *server = NULL;

		w->looks++;
		for (unsigned n = 0; n < PROCESSES; n++) {
			if (!serves(&w->process[n], i * EACH))
				continue;
			w->twice += server != NULL;
			server = &w->process[n];
			for (unsigned key = 0; key < KEYS; key++)
				use_key(w, server, i, key);
		}
		w->served += server != NULL;
	}
}

static struct world *run(uint64_t seed, enum fault fault, unsigned manner)
{
	static const char first[] =
		"rdmad-cluster 1\nname kv\nepoch 1\nnode n0 h0\nnode n1 h1\nnode n2 h2\nnode n3 h3\n"
		"shard n0 n0 0-4095\nshard n1 n1 4096-8191\nshard n2 n2 8192-12287\n"
		"shard n3 n3 12288-16383\n";
	struct world *w = calloc(1, sizeof(*w));

	*w = (struct world){.fault = fault,
			    .slow = manner & SLOW,
			    .wild = manner & WILD,
			    .mixed = manner & MIXED,
			    .aimed = manner & AIMED,
			    .random = seed * 0x9e3779b97f4a7c15ull | 1};
	w->aim.purpose = (enum purpose)below(w, PURPOSES);
	w->aim.moment = (enum moment)below(w, MOMENTS);
	w->aim.blow = (enum blow)below(w, BLOWS);
	w->aim.other = chance(w, 50);
	w->aim.percent = chance(w, 50) ? 30 : 90;
	w->hasty = w->aimed && chance(w, 50);
	w->revision = w->text_revision[1] = 1;
	w->tables = 1;
	w->text[1] = strdup(first);
	follow_owners(w, NULL);
	for (unsigned i = 0; i < NODES; i++)
		snprintf(w->key[i].node, sizeof(w->key[i].node), "n%u", i);
	for (unsigned i = 0; i < NODES; i++)
		start(w, &w->process[i], i, i);
	at(w, TIME_S / 20, trouble, NULL, 0);
	at(w, TIME_S, change_table, NULL, 0);
	while (w->now < RUN && !(fault && w->twice + w->stale + w->lost)) {
		struct event event = next_event(w);

		w->now = event.at;
		event.fn(w, event.arg, event.number);
		look(w);
	}
	return w;
}

static void end(struct world *w)
{
	for (unsigned i = 0; i < w->events; i++) {
		if (w->heap[i].fn == answered)
			free(w->heap[i].arg);
		else if (w->heap[i].fn == arrived)
			free_request(w->heap[i].arg);
	}
	for (unsigned i = 1; i <= w->conns; i++)
		for (unsigned to = 0; to < 2; to++)
			for (struct message *m = w->conn[i].first[to], *next; m; m = next) {
				next = m->next;
				free(m);
			}
	for (unsigned i = 0; i < PROCESSES; i++)
		cluster_member_free(w->process[i].member);
	for (unsigned i = 0; i < TABLES; i++)
		free(w->text[i]);
	free(w);
}

static void run_clean(unsigned manner, uint64_t seeds)
{
	struct world sum = {0};

	for (uint64_t seed = 1; seed <= seeds; seed++) {
		struct world *w = run(seed, FAULT_NONE, manner);

		ck_assert_msg(!w->twice && !w->stale && !w->lost,
			      "seed %llu, manner %u: a slot with two servers %u times, an old value %u times, a key "
			      "lost %u times",
			      (unsigned long long)seed, manner, w->twice, w->stale, w->lost);
		sum.sessions += w->sessions;
		sum.commits += w->commits;
		sum.arrived += w->arrived;
		sum.applied += w->applied;
		sum.outs += w->outs;
		sum.spreads += w->spreads;
		sum.crashes += w->crashes;
		sum.returns += w->returns;
		sum.anew += w->anew;
		sum.hits += w->hits;
		sum.looks += w->looks;
		sum.served += w->served;
		end(w);
	}
	if (getenv("RDMAD_TEST_FIGURES"))
		printf("%llu runs%s%s%s%s: %u tables, %u out, %u spread, %u crashes, %u back, %u anew, %u aimed, "
		       "%u sessions, %u committed, %u with a value, %llu looks, %.1f %% served\n",
		       (unsigned long long)seeds, manner & SLOW ? " slow" : "", manner & WILD ? " wild" : "",
		       manner & MIXED ? " mixed" : "", manner & AIMED ? " aimed" : "", sum.applied, sum.outs,
		       sum.spreads, sum.crashes, sum.returns, sum.anew, sum.hits, sum.sessions, sum.commits,
		       sum.arrived, (unsigned long long)sum.looks, 100.0 * (double)sum.served / (double)sum.looks);
	if (seeds < 10)
		return;
	/* All that the rules are for has happened, and slots were served all the same. */
	ck_assert_uint_gt(sum.applied, seeds);
	ck_assert_uint_gt(sum.outs, seeds);
	ck_assert_uint_gt(sum.arrived, seeds / 2);
	ck_assert_uint_gt(sum.served, sum.looks / 4);
	if (seeds >= 30)
		ck_assert(sum.spreads && sum.anew && sum.returns && !sum.hits == !(manner & AIMED));
}

/* RDMAD_MEMBER_SEEDS=250: so many of each manner. */
START_TEST(test_clean)
{
	const char *seeds = getenv("RDMAD_MEMBER_SEEDS");

	run_clean((unsigned)_i, seeds ? strtoul(seeds, NULL, 10) : suite_part(_i & MIXED ? 10 : 30));
}
END_TEST

/* Each rule is needed: without it, it is found out. */
START_TEST(test_fault)
{
	static const unsigned first[FAULTS] = {
		[FAULT_NO_MEMBER] = 28,  [FAULT_KEEP] = 20,     [FAULT_PERIOD] = 14,   [FAULT_NO_DONOR] = 92,
		[FAULT_NO_TARGET] = 48,  [FAULT_TAKE_ALL] = 27, [FAULT_OLD_PUTS] = 76, [FAULT_HAND_ON] = 237,
		[FAULT_OLD_BEGIN] = 714, [FAULT_OLD_KEYS] = 31};
	unsigned found = 0, seeds = first[_i]; /* where runs find it soon */

	while (!found && seeds < 1500) {
		struct world *w =
			run(seeds, (enum fault)_i,
			    (seeds & (SLOW | WILD)) | (seeds & 4 ? AIMED : 0) | (_i == FAULT_PERIOD ? MIXED : 0));

		seeds++;
		found = w->twice + w->stale + w->lost;
		end(w);
	}
	if (getenv("RDMAD_TEST_FIGURES"))
		printf("fault %d: found by run %u, %u times\n", _i, seeds, found);
	ck_assert_msg(found, "fault %d was not found", _i);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("member");
	TCase *c = suite_case(suite, "simulation", NULL, NULL);

	tcase_add_loop_test(c, test_clean, 0, MANNERS);
	tcase_add_loop_test(c, test_fault, 1, FAULTS);
	return suite_run(suite);
}
