/*
 * check_member.c: nodes that serve slots by an engine's word, over a simulated network, engine and time. At every step no two
 * processes may serve one slot, and what one has of a slot must be what was written there last, or nothing. Rules that are left out
 * must be found out so.
 */
#include "cluster/cluster.h"
#include "tests/suite.h"

#define NODES 4u
#define PROCESSES 6u /* some nodes run twice, by mistake */
#define SAMPLES 8u   /* slots that are looked at, each for as many */
#define EACH (CLUSTER_SLOTS / SAMPLES)
#define PERIOD (3 * TIME_S)
#define RUN (60 * TIME_S)
#define TABLES 256u
#define EVENTS 8192u

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
};

struct answer {
	enum purpose purpose;
	struct cluster_view view;
	struct cluster_entry member[NODES];
	unsigned table; /* of world->text */
	struct process *to;
	uint64_t number;
};

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
	uint64_t data[SAMPLES];
	unsigned table; /* FAULT_NO_TABLE: that it has heard of */
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
		bool other;       /* hits not the one that asked */
		unsigned percent; /* of those moments */
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

	uint64_t latest[SAMPLES];
	uint64_t writes;
	unsigned twice, stale;                                         /* what must not be */
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
		if (*revision_of(w, txn->compare[i].node) != txn->compare[i].revision)
			return false;
	}
	return true;
}

static void write_key(struct world *w, const struct request *request)
{
	const struct cluster_txn *txn = &request->txn;

	w->revision++;
	if (txn->node) {
		struct cluster_entry *entry = &w->key[txn->node[1] - '0'];
		bool out = entry->out;

		ck_assert_int_eq(cluster_entry_parse(txn->value, txn->length, entry), 0);
		strcpy(entry->node, txn->node);
		if (w->fault == FAULT_PERIOD)
			entry->period = 0;
		entry->revision = w->revision;
		w->outs += entry->out && !out;
		w->returns += out && !entry->out;
		return;
	}
	ck_assert_uint_lt(++w->tables, TABLES);
	w->text[w->tables] = strdup(txn->value);
	*strstr(w->text[w->tables], "checksum") = '\0'; /* of each table, for each process: most of the time of a run */
	w->text_revision[w->tables] = w->revision;
	w->applied += !request->from;
	w->spreads += request->from != NULL;
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
	return runs(p) && (p->slots[slot / 8] >> slot % 8 & 1) && clock_of(p) < cluster_member_until(p->member);
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
	request->number = from ? from->asked : 0;
	request->purpose = purpose_of(w, txn, from);
	w->late = false;
	moment(w, IT_LEAVES, request->purpose, from, request->txn.node);
	at(w, hop_time(w) + (w->late ? between(w, TIME_S / 4, 3 * TIME_S) : 0), arrived, request, 0);
}

/* Change what is served: what is lost and what is gained begins empty. */
static void change_slots(struct process *p, const struct cluster_wish *wish)
{
	bool anew = wish->anew && p->world->fault != FAULT_KEEP;

	for (unsigned i = 0; i < SAMPLES; i++) {
		unsigned slot = i * EACH;

		if (anew || ((p->slots[slot / 8] ^ wish->slots[slot / 8]) >> slot % 8 & 1))
			p->data[i] = 0;
	}
	p->world->anew += anew;
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
	change_slots(p, wish);
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
	at(w, between(w, 20 * TIME_MS, 60 * TIME_MS), turn, p, boot);
	if (w->now < p->paused)
		return;
	if (p->asked && clock_of(p) > p->given_up) {
		p->asked = 0;
		cluster_member_lost(p->member, clock_of(p));
	}
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
	memset(p->data, 0, sizeof(p->data));
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
static void kill_process(struct world *w, struct process *p)
{
	p->dead = true;
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
		p->dead = true;
	else
		start(w, p, node, (unsigned)(p - w->process));
}

static void stand(struct world *w, struct process *p, uint64_t time)
{
	p->paused = w->now + time;
	p->stood += time;
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
	}
}

/* An operator looks, makes a table of what is there, and applies it somewhat later. */
static void change_table(struct world *w, void *arg, uint64_t number)
{
	static struct cluster_table now, next;
	static char text[CLUSTER_TEXT_MAX + 1];
	bool settled[CLUSTER_NODES] = {false}, gone[CLUSTER_NODES] = {false};
	struct cluster_txn txn = {.compares = 1, .value = text};

	at(w,
	   w->hasty ? between(w, TIME_S / 5, TIME_S) : between(w, TIME_S, (w->fault == FAULT_KEEP ? 3 : 12) * TIME_S),
	   change_table, arg, number);
	ck_assert_int_eq(cluster_parse("table", w->text[w->tables], strlen(w->text[w->tables]), &now), 0);
	next = now;
	next.epoch++;
	for (unsigned n = 1 + (unsigned)below(w, 3); n; n--) {
		unsigned first = (unsigned)below(w, SAMPLES), owner = (unsigned)below(w, NODES + 1);

		for (unsigned slot = first * EACH; slot < (first + 1) * EACH; slot++)
			next.owner[slot] = (uint16_t)(owner == NODES && chance(w, 1) ? CLUSTER_ABSENT : owner % NODES);
	}
	for (unsigned i = 0; i < now.count; i++)
		settled[i] = cluster_entry_settled(&w->key[i], now.epoch);
	log_hush_begin(); /* it may be too early */
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

/* Look for two servers of a slot, and for values that are not the last ones; and write new ones. */
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
			w->stale += server->data[i] && server->data[i] != w->latest[i];
		}
		w->served += server != NULL;
		if (server && chance(w, 20))
			server->data[i] = w->latest[i] = ++w->writes;
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
	for (unsigned i = 0; i < NODES; i++)
		snprintf(w->key[i].node, sizeof(w->key[i].node), "n%u", i);
	for (unsigned i = 0; i < NODES; i++)
		start(w, &w->process[i], i, i);
	at(w, TIME_S / 20, trouble, NULL, 0);
	at(w, TIME_S, change_table, NULL, 0);
	while (w->now < RUN) {
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

		ck_assert_msg(!w->twice && !w->stale,
			      "seed %llu, manner %u: a slot with two servers %u times, an old value %u times",
			      (unsigned long long)seed, manner, w->twice, w->stale);
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
		printf("%llu runs%s%s%s%s: %u tables, %u out, %u spread, %u crashes, %u back, %u anew, %u aimed, %llu "
		       "looks, "
		       "%.1f %% served\n",
		       (unsigned long long)seeds, manner & SLOW ? " slow" : "", manner & WILD ? " wild" : "",
		       manner & MIXED ? " mixed" : "", manner & AIMED ? " aimed" : "", sum.applied, sum.outs,
		       sum.spreads, sum.crashes, sum.returns, sum.anew, sum.hits, (unsigned long long)sum.looks,
		       100.0 * (double)sum.served / (double)sum.looks);
	if (seeds < 10)
		return;
	/* All that the rules are for has happened, and slots were served all the same. */
	ck_assert_uint_gt(sum.applied, seeds);
	ck_assert_uint_gt(sum.outs, seeds);
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
	unsigned found = 0, seeds = 0;

	while (!found && seeds < 1500) {
		struct world *w =
			run(seeds, (enum fault)_i,
			    (seeds & (SLOW | WILD)) | (seeds & 4 ? AIMED : 0) | (_i == FAULT_PERIOD ? MIXED : 0));

		seeds++;
		found = w->twice + w->stale;
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
