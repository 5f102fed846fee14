/*
 * engine.c: what the nodes of a cluster agree by. The rules are cluster/member.c's; here are the clock, the requests to
 * etcd, and the service, which is told what to serve and until when. What is served ends by the clock that the workers
 * read, whatever this thread does.
 */
#include "daemon/daemon.h"
#include "etcd/etcd.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sysexits.h>
#include <unistd.h>

#define SETTLE_LOOK TIME_MS       /* between looks whether the workers go by a table */
#define SWEEP_LOOK (20 * TIME_MS) /* between looks whether slots that are to go are served */
#define RETRY (100 * TIME_MS)     /* of a table that could not be adopted */
#define LEAVE_WAIT TIME_S
#define SEAL_LONG                                                                                                      \
	(900 * TIME_MS) /* a seal whose values are not all there then is given up: requests wait for a second */
#define MOVE_RETRY (100 * TIME_MS)    /* behind a move that failed; doubled with each, */
#define MOVE_RETRY_MOST (10 * TIME_S) /* to this */
#define MOVE_ASK TIME_S               /* for which a target is asked that may have no time now, */
#define MOVE_ASK_LONG (10 * TIME_S)   /* where no other one waits for its turn */
#define ANSWER_PART 8u                /* of a period, for one answer: a leader's change outlasts none of the others */

/* What becomes of the slots that are given next. */
enum phase {
	PHASE_NONE,
	PHASE_COPY,   /* the mover sends the keys */
	PHASE_LOOK,   /* almost all: the engine is asked whether all is as it was */
	PHASE_SEAL,   /* requests are held up; workers may be about some yet */
	PHASE_FINISH, /* the mover sends what is left */
	PHASE_COMMIT, /* the table is on the way; the slots stay sealed until its outcome is known */
	PHASE_UNSEAL  /* it has ended: the table of now is gone by first */
};

static const char *const phases[] = {"none", "copying", "looking", "sealing", "finishing", "committing", "unsealing"};

/* A target to which a move failed: for so long it gets none, and others do. */
struct rest {
	char node[CLUSTER_NAME_MAX + 1];
	uint64_t time, until; /* 0: it does not */
	uint64_t said;        /* hash of the fault that was logged last */
};

struct engine {
	struct daemon *daemon;
	const struct service *service;
	void *shared; /* the service's */
	struct service_engine settings;
	struct cluster_member *member;
	struct etcd *etcd;
	struct loop_watch *timer;
	int lock; /* of the state's file; -1: none */

	uint64_t told;     /* serial of the wish that the service was told, */
	bool dropped;      /* or that it is to drop everything first, which it was told */
	bool adopted;      /* and goes by */
	uint64_t retry_at; /* of one that it did not take; 0: it did */
	bool asks;
	uint64_t asked, lost, heard; /* transactions, those without an answer; when the last answer came */
	enum cluster_member_state state;
	uint64_t said[SETTING_LIST_MAX]; /* hashes of faults that were logged since the last answer */
	unsigned saids;

	char boot[CLUSTER_BOOT + 1];
	uint64_t asked_in; /* the look behind which another node's session is decided on */
	enum phase phase;
	struct cluster_step step;
	struct mover *mover;
	unsigned slots;    /* of the step */
	uint64_t look;     /* that PHASE_LOOK waits for */
	uint64_t complete; /* epoch of the table that is committed */
	uint64_t serial;   /* of the wish by which the step was looked at last */
	uint64_t began, sealed;
	struct rest rest[CLUSTER_NODES];
	uint64_t move_at;          /* when a step is looked for, if nothing comes before */
	char move_fault[256];      /* as long as a mover's reason */
	const struct rest *faulty; /* whose it is */
	struct engine_moves moves;
};

static const char *const states[] = {[CLUSTER_LOOKING] = "looking",
				     [CLUSTER_BEATING] = "beating",
				     [CLUSTER_REPLACED] = "replaced",
				     [CLUSTER_LEFT] = "left",
				     [CLUSTER_REFUSED] = "refused"};

/*
 * What is served
 */
static void tell_until(struct engine *engine)
{
	engine->service->cluster->until(engine->shared, cluster_member_until(engine->member));
}

/* The service takes what the wish says. */
static int tell_wish(struct engine *engine, const struct cluster_wish *wish)
{
	const struct service_cluster *cluster = engine->service->cluster;
	bool listed = cluster_find(wish->table, engine->settings.node) != CLUSTER_NODES;
	int rc = 0;

	if (!listed || (wish->anew && !engine->dropped))
		rc = cluster->change(engine->shared, NULL, NULL);
	engine->dropped = rc == 0;
	if (rc == 0 && listed)
		rc = cluster->change(engine->shared, wish->table, wish->slots);
	return rc;
}

static void adopt_wish(struct engine *engine, uint64_t now)
{
	const struct cluster_wish *wish = cluster_member_wish(engine->member);

	if (!wish->serial || now < engine->retry_at)
		return;
	if (wish->serial != engine->told) {
		bool again = engine->retry_at != 0;
		int rc;

		engine->adopted = false;
		if (again)
			log_hush_begin(); /* why it is refused was said */
		rc = tell_wish(engine, wish);
		if (again)
			log_hush_end();
		engine->retry_at = rc == 0 ? 0 : now + RETRY;
		if (rc != 0)
			return;
		engine->dropped = false;
		engine->told = wish->serial;
	}
	if (engine->adopted || !engine->service->cluster->settled(engine->shared))
		return;
	engine->adopted = true;
	cluster_member_adopted(engine->member, engine->told);
}

static void say_state(struct engine *engine)
{
	enum cluster_member_state state = cluster_member_state(engine->member);
	const char *reason = cluster_member_reason(engine->member);

	if (state == engine->state)
		return;
	engine->state = state;
	if (state == CLUSTER_BEATING)
		log_info("engine", "node %s is a member of cluster %s", engine->settings.node,
			 engine->settings.cluster);
	else if (state == CLUSTER_REFUSED || state == CLUSTER_REPLACED)
		log_error("engine", "node %s serves nothing: %s", engine->settings.node, reason);
	else if (*reason)
		log_warn("engine", "node %s serves nothing: %s", engine->settings.node, reason);
}

/*
 * Slots that go to other nodes with their values
 */
static void engine_turn(void *arg);

static void mover_changed(void *arg)
{
	struct engine *engine = arg;

	loop_set_timer(engine->timer, 0);
}

static void count_moved(struct engine *engine)
{
	struct mover_progress progress;

	mover_get_progress(engine->mover, &progress);
	engine->moves.keys += progress.keys;
	engine->moves.bytes += progress.bytes;
}

/* The target's, or a free one. */
static struct rest *rest_of(struct engine *engine, const char *node)
{
	struct rest *found = &engine->rest[0];

	for (unsigned i = 0; i < CLUSTER_NODES; i++) {
		if (strcmp(engine->rest[i].node, node) == 0)
			return &engine->rest[i];
		if (engine->rest[i].until < found->until)
			found = &engine->rest[i];
	}
	*found = (struct rest){.node = ""};
	snprintf(found->node, sizeof(found->node), "%s", node);
	return found;
}

/* The next step, and whether another target could take its turn; false: there is none. */
static bool find_step(struct engine *engine, uint64_t now, bool *others)
{
	const struct cluster_table *table = cluster_member_wish(engine->member)->table;
	struct cluster_step other;
	bool rests[CLUSTER_NODES] = {false};

	engine->move_at = TIME_NEVER;
	for (unsigned i = 0; table && i < CLUSTER_NODES; i++) {
		unsigned node = engine->rest[i].until > now ? cluster_find(table, engine->rest[i].node) : CLUSTER_NODES;

		if (node == CLUSTER_NODES)
			continue;
		rests[node] = true;
		engine->move_at = MIN(engine->move_at, engine->rest[i].until);
	}
	if (!cluster_member_step(engine->member, rests, &engine->step))
		return false;
	rests[cluster_find(table, engine->step.target)] = true;
	other = engine->step;
	*others = cluster_member_step(engine->member, rests, &other);
	return true;
}

/* It has ended, well or not: what was sealed is served again, or is another node's, when the table of now holds. */
static void move_ends(struct engine *engine, uint64_t now, const char *fault)
{
	struct rest *rest = rest_of(engine, engine->step.target);
	uint64_t said = fault ? hash_bytes(fault, strlen(fault)) : 0;

	if (fault) {
		engine->moves.failed++;
		rest->time = MIN(MAX(2 * rest->time, MOVE_RETRY), MOVE_RETRY_MOST);
		if (rest->said != said)
			log_warn("engine", "slots %u to node %s: %s; it is tried again", engine->slots,
				 engine->step.target, fault);
		snprintf(engine->move_fault, sizeof(engine->move_fault), "%s", fault);
		engine->faulty = rest;
		mover_close(engine->mover); /* the fault was perhaps its text */
		engine->mover = NULL;
	} else {
		count_moved(engine);
		engine->moves.done++;
		engine->moves.slots += engine->slots;
		rest->time = 0;
		if (engine->faulty == rest || (engine->faulty && engine->faulty->until <= now))
			engine->move_fault[0] = '\0';
	}
	rest->said = said;
	rest->until = rest->time ? now + rest->time : 0;
	engine->phase = PHASE_UNSEAL;
}

/* Whether the step is to be taken as it is. Keys that are to be swept must not go to another node. */
static bool step_holds(const struct engine *engine)
{
	return cluster_member_holds(engine->member, &engine->step) &&
	       engine->service->cluster->serves(engine->shared, engine->step.slots);
}

static void move_begin(struct engine *engine, uint64_t now)
{
	const struct cluster_wish *wish = cluster_member_wish(engine->member);
	struct service_engine *s = &engine->settings;
	struct mover_attr attr = {.cluster = s->cluster,
				  .node = s->node,
				  .boot = engine->boot,
				  .service = engine->service,
				  .shared = engine->shared,
				  .changed = mover_changed,
				  .arg = engine};
	bool others;

	if (!find_step(engine, now, &others))
		return;
	if (!step_holds(engine)) {
		engine->move_at = now + SWEEP_LOOK;
		return;
	}
	attr.address = wish->table->node[cluster_find(wish->table, engine->step.target)].address[CLUSTER_NATIVE];
	attr.epoch = wish->table->epoch;
	/* A reload may have changed it. */
	engine->service->engine(engine->daemon->config->service[engine->service->id], s);
	attr.key_file = s->key_file;
	memcpy(attr.slots, engine->step.slots, sizeof(attr.slots));
	engine->slots = cluster_bit_count(engine->step.slots);
	engine->serial = wish->serial;
	engine->began = now;
	engine->sealed = 0;
	engine->moves.begun++;
	if (!cluster_member_fits(engine->member, &engine->step)) {
		move_ends(engine, now, cluster_member_fault(engine->member));
		return;
	}
	attr.patience = others ? MOVE_ASK : MOVE_ASK_LONG;
	if (mover_open(engine->daemon, &attr, &engine->mover) != 0) {
		engine->mover = NULL;
		move_ends(engine, now, "it cannot begin, as the log says");
		return;
	}
	engine->phase = PHASE_COPY;
	if (!rest_of(engine, engine->step.target)->time)
		log_info("engine", "slots %u to node %s with their values: they are copied", engine->slots,
			 engine->step.target);
}

/* Nothing was done yet that could not be given up: is it wanted as it was? */
static const char *move_fault(struct engine *engine, uint64_t now)
{
	const struct cluster_wish *wish = cluster_member_wish(engine->member);

	if (mover_state(engine->mover) == MOVER_ENDED)
		return mover_reason(engine->mover);
	if (engine->phase >= PHASE_SEAL && now - engine->sealed > SEAL_LONG)
		return "the last changes did not come there in 900 ms";
	if (wish->serial == engine->serial && engine->phase > PHASE_LOOK)
		return NULL; /* the commit compares the nodes' keys */
	engine->serial = wish->serial;
	return step_holds(engine) ? NULL : "the table or that node has changed";
}

static void move_seal(struct engine *engine, uint64_t now)
{
	if (cluster_member_seen(engine->member) < engine->look)
		return;
	if (engine->service->cluster->seal(engine->shared, engine->step.slots) != 0) {
		move_ends(engine, now, "no memory for the seal");
		return;
	}
	engine->complete = cluster_member_wish(engine->member)->table->epoch + 1;
	engine->sealed = now;
	engine->phase = PHASE_SEAL;
}

static void move_known(struct engine *engine, uint64_t now)
{
	enum cluster_outcome outcome = cluster_member_outcome(engine->member);
	const char *fault = cluster_member_fault(engine->member);

	if (outcome == CLUSTER_OPEN)
		return;
	if (outcome == CLUSTER_DONE)
		mover_done(engine->mover);
	move_ends(engine, now,
		  outcome == CLUSTER_DONE ? NULL
		  : *fault                ? fault
					  : "the table or a node has changed meanwhile");
}

static void move_unseal(struct engine *engine, uint64_t now)
{
	const struct cluster_wish *wish = cluster_member_wish(engine->member);
	uint64_t took;

	if (engine->sealed && (wish->serial != engine->told || !engine->adopted))
		return;
	if (engine->sealed) {
		if (engine->service->cluster->seal(engine->shared, NULL) != 0)
			return; /* no memory: it is tried again */
		took = now - engine->sealed;
		engine->moves.sealed = took;
		engine->moves.sealed_most = MAX(engine->moves.sealed_most, took);
	}
	if (engine->mover)
		log_info("engine",
			 "slots %u are node %s's now, with their values: in %" PRIu64 " ms, of which they were not "
			 "served for %" PRIu64 " us",
			 engine->slots, engine->step.target, (uint64_t)((now - engine->began) / TIME_MS),
			 (uint64_t)((now - engine->sealed) / TIME_US));
	mover_close(engine->mover);
	engine->mover = NULL;
	engine->phase = PHASE_NONE;
}

static void move_turn(struct engine *engine, uint64_t now)
{
	const char *fault = engine->phase > PHASE_NONE && engine->phase < PHASE_COMMIT ? move_fault(engine, now) : NULL;

	if (fault)
		move_ends(engine, now, fault);
	if (engine->phase == PHASE_COPY && mover_state(engine->mover) == MOVER_NEAR) {
		engine->look = cluster_member_look(engine->member);
		engine->phase = PHASE_LOOK;
	}
	if (engine->phase == PHASE_LOOK)
		move_seal(engine, now);
	if (engine->phase == PHASE_SEAL && engine->service->cluster->settled(engine->shared)) {
		mover_finish(engine->mover, engine->complete);
		engine->phase = PHASE_FINISH;
	}
	if (engine->phase == PHASE_FINISH && mover_state(engine->mover) == MOVER_COMPLETE) {
		engine->phase = PHASE_COMMIT;
		cluster_member_commit(engine->member, &engine->step, engine->complete);
	}
	if (engine->phase == PHASE_COMMIT)
		move_known(engine, now);
	if (engine->phase == PHASE_UNSEAL)
		move_unseal(engine, now);
	if (engine->phase == PHASE_NONE)
		move_begin(engine, now);
}

/* When it has something to do that nobody tells of. */
static uint64_t move_due(const struct engine *engine, uint64_t now)
{
	if (engine->phase == PHASE_SEAL || (engine->phase == PHASE_UNSEAL && !engine->adopted))
		return now + SETTLE_LOOK;
	if (engine->phase == PHASE_UNSEAL)
		return now + RETRY;
	if (engine->phase == PHASE_FINISH)
		return engine->sealed + SEAL_LONG;
	return engine->phase == PHASE_NONE && engine->move_at > now ? engine->move_at : TIME_NEVER;
}

/* Another node has slots for this one. */
static bool session_allowed(void *arg, const struct cluster_session *session, char *why, size_t size)
{
	const struct engine *engine = arg;

	return cluster_member_allows(engine->member, session, why, size);
}

static bool session_abandoned(void *arg, const struct cluster_session *session)
{
	return cluster_member_abandoned(((const struct engine *)arg)->member, session);
}

/* It asks, and the engine was looked at since; or it says that the table is there. */
static void receive_turn(struct engine *engine)
{
	if (cluster_member_seen(engine->member) >= engine->asked_in)
		engine->service->cluster->receive(engine->shared, session_allowed, session_abandoned, engine);
}

/*
 * Requests
 */

/* What is wrong with each endpoint is logged once, until one answers. */
static void say_fault(struct engine *engine)
{
	const char *fault = etcd_fault(engine->etcd);
	uint64_t hash = hash_bytes(fault, strlen(fault));

	if (!*fault) {
		if (engine->saids)
			log_info("engine", "%s answers", etcd_endpoint(engine->etcd));
		engine->saids = 0;
		return;
	}
	for (unsigned i = 0; i < MIN(engine->saids, SETTING_LIST_MAX); i++)
		if (engine->said[i] == hash)
			return;
	engine->said[engine->saids++ % SETTING_LIST_MAX] = hash;
	log_warn("engine", "%s", fault);
}

static void txn_answered(void *arg, struct etcd_answer *answer)
{
	struct engine *engine = arg;
	uint64_t now = time_boot();

	engine->asks = false;
	if (answer) {
		engine->heard = now;
		cluster_member_answer(engine->member, now, &answer->view);
	} else {
		engine->lost++;
		cluster_member_lost(engine->member, now);
	}
	tell_until(engine);
	say_fault(engine);
	say_state(engine);
	loop_set_timer(engine->timer, 0);
}

/* The time is that before it is sent. */
static void ask_engine(struct engine *engine, uint64_t now)
{
	struct cluster_txn txn;

	if (engine->asks || !cluster_member_next(engine->member, now, &txn))
		return;
	if (etcd_send(engine->etcd, &txn, txn_answered, engine) != 0) {
		cluster_member_lost(engine->member, now);
		return;
	}
	engine->asks = true;
	engine->asked++;
}

static void engine_turn(void *arg)
{
	struct engine *engine = arg;
	uint64_t now = time_boot(), due;

	must(daemon_is_main(engine->daemon));
	adopt_wish(engine, now);
	tell_until(engine);
	receive_turn(engine);
	move_turn(engine, now);
	ask_engine(engine, now);
	due = cluster_member_due(engine->member);
	if (engine->retry_at > now)
		due = MIN(due, engine->retry_at);
	else if (engine->told && !engine->adopted)
		due = MIN(due, now + SETTLE_LOOK);
	due = MIN(due, move_due(engine, now));
	loop_set_timer(engine->timer, due == TIME_NEVER ? TIME_NEVER : due > now ? due - now : TIME_MS / 10);
}

void engine_look(struct daemon *d)
{
	if (!d->engine)
		return;
	d->engine->asked_in = cluster_member_look(d->engine->member);
	loop_set_timer(d->engine->timer, 0);
}

/*
 * Open and close
 */

/* The first line of the file; NULL, logged. */
static char *read_password(const char *path)
{
	FILE *file = fopen(path, "re");
	char line[256] = "", *end;
	struct stat st;

	if (!file || !fgets(line, sizeof(line), file)) {
		log_error("engine", "cluster.password_file: %s: %s", path, file ? "it is empty" : strerror(errno));
		if (file)
			fclose(file);
		return NULL;
	}
	if (fstat(fileno(file), &st) == 0 && st.st_mode & 077)
		log_warn("engine", "cluster.password_file: %s can be read by others: chmod 600", path);
	fclose(file);
	end = strpbrk(line, "\r\n");
	if (end)
		*end = '\0';
	return strdup(line);
}

/* Lock a file beside the state's, for the life of the process: two with one place are never at the same time. A place
 * is of one start of one machine. 0, or -errno, logged. */
static int take_place(struct engine *engine, char place[static CLUSTER_BOOT + 1])
{
	const char *state = engine->settings.state;
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
	char path[4096], machine[9] = "";
	struct stat st;

	strcpy(place, "-");
	if (file && fread(machine, 1, sizeof(machine) - 1, file) != sizeof(machine) - 1)
		machine[0] = '\0';
	if (file)
		fclose(file);
	if (!state || !*machine)
		return 0;
	if ((size_t)snprintf(path, sizeof(path), "%s.lock", state) >= sizeof(path))
		return log_fail(-ENAMETOOLONG, "engine", "cluster.state: the path is too long");
	engine->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (engine->lock < 0 || fstat(engine->lock, &st) != 0)
		return log_fail(-errno, "engine", "cluster.state: %s: %m", path);
	if (flock(engine->lock, LOCK_EX | LOCK_NB) != 0)
		return log_fail(-EBUSY, "engine", "cluster.state: %s is locked: another rdmad is this node", path);
	snprintf(place, CLUSTER_BOOT + 1, "%s%08x%016llx", machine, (unsigned)st.st_dev, (unsigned long long)st.st_ino);
	return 0;
}

static int make_boot(char boot[static CLUSTER_BOOT + 1])
{
	uint8_t bytes[CLUSTER_BOOT / 2];

	if (random_fill(bytes, sizeof(bytes)) != 0)
		return -EIO;
	for (size_t i = 0; i < sizeof(bytes); i++)
		sprintf(boot + 2 * i, "%02x", bytes[i]);
	return 0;
}

static int make_member(struct engine *engine)
{
	const struct service_engine *s = &engine->settings;
	char place[CLUSTER_BOOT + 1];
	struct cluster_member_attr attr = {.cluster = s->cluster,
					   .node = s->node,
					   .boot = engine->boot,
					   .place = place,
					   .epoch = engine->service->cluster->served(engine->shared),
					   .period = s->period,
					   .spread_after = s->spread_after,
					   .lasting = s->lasting,
					   .serves = CLUSTER_SERVES,
					   .silence = CLUSTER_SILENCE};
	int rc = take_place(engine, place);

	if (rc == 0)
		rc = make_boot(engine->boot);
	return rc == 0 ? cluster_member_new(&attr, &engine->member) : rc;
}

static int make_client(struct engine *engine)
{
	const struct service_engine *s = &engine->settings;
	const char *endpoint[SETTING_LIST_MAX];
	char *password = s->password_file ? read_password(s->password_file) : NULL;
	struct etcd_attr attr = {.base = loop_base(engine->daemon->loop),
				 .cluster = s->cluster,
				 .endpoints = endpoint,
				 .count = s->endpoints->count,
				 .user = s->user,
				 .password = password ? password : "",
				 .timeout = s->period / ANSWER_PART};
	int rc;

	for (unsigned i = 0; i < attr.count; i++)
		endpoint[i] = s->endpoints->item[i];
	rc = s->password_file && !password ? -EINVAL : etcd_open(&attr, &engine->etcd);
	if (password)
		explicit_bzero(password, strlen(password));
	free(password);
	return rc;
}

static void engine_free(struct engine *engine)
{
	mover_close(engine->mover);
	loop_remove(engine->timer);
	etcd_close(engine->etcd);
	cluster_member_free(engine->member);
	if (engine->lock >= 0)
		close(engine->lock);
	free(engine);
}

/* The service whose keys an engine shares out; NULL: there is none. */
static const struct service *find_service(const struct daemon *d, struct service_engine *settings)
{
	for (unsigned id = 0; id < WIRE_SERVICES; id++) {
		const struct service *service = service_find(id);

		if (service && service->engine && d->shared.open >> id & 1 &&
		    service->engine(d->config->service[id], settings))
			return service;
	}
	return NULL;
}

int engine_open(struct daemon *d)
{
	struct service_engine settings;
	const struct service *service = find_service(d, &settings);
	struct engine *engine = service ? calloc(1, sizeof(*engine)) : NULL;
	int rc;

	must(daemon_is_main(d));
	if (!service)
		return 0;
	if (!engine)
		return EX_OSERR;
	*engine = (struct engine){.daemon = d,
				  .service = service,
				  .shared = d->shared.of[service->id],
				  .settings = settings,
				  .lock = -1,
				  .state = CLUSTER_LOOKING};
	engine->timer = loop_add_timer(d->loop, engine_turn, engine);
	rc = engine->timer ? make_member(engine) : -ENOMEM;
	if (rc == 0)
		rc = make_client(engine);
	if (rc != 0) {
		engine_free(engine);
		return daemon_exit_status(rc);
	}
	log_info("engine", "node %s asks etcd at %s for cluster %s", settings.node, etcd_endpoint(engine->etcd),
		 settings.cluster);
	loop_set_timer(engine->timer, 0);
	d->engine = engine;
	return 0;
}

void engine_close(struct daemon *d)
{
	struct engine *engine = d->engine;
	uint64_t until = time_now() + LEAVE_WAIT, now;

	must(daemon_is_main(d));
	if (!engine)
		return;
	/* Where a table is on the way, the node's key decides: it is there, or never will be, when this node is out. */
	mover_close(engine->mover);
	engine->mover = NULL;
	engine->phase = PHASE_NONE;
	cluster_member_leave(engine->member);
	loop_set_timer(engine->timer, 0);
	while (cluster_member_state(engine->member) != CLUSTER_LEFT &&
	       cluster_member_state(engine->member) != CLUSTER_REPLACED && (now = time_now()) < until)
		loop_once(d->loop, until - now);
	d->engine = NULL;
	engine_free(engine);
}

bool engine_report(const struct daemon *d, struct engine_report *out)
{
	const struct engine *engine = d->engine;
	const struct cluster_wish *wish;
	uint64_t now = time_boot(), until;
	unsigned away = 0;

	if (!engine)
		return false;
	until = cluster_member_until(engine->member);
	wish = cluster_member_wish(engine->member);
	*out = (struct engine_report){.state = states[cluster_member_state(engine->member)],
				      .endpoint = etcd_endpoint(engine->etcd),
				      .reason = cluster_member_reason(engine->member),
				      .asked = engine->asked,
				      .lost = engine->lost,
				      .heard = engine->heard ? now - engine->heard : TIME_NEVER,
				      .left = until == TIME_NEVER ? until
					      : until > now       ? until - now
								  : 0,
				      .epoch = engine->adopted ? wish->table->epoch : 0};
	if (!*out->reason)
		out->reason = etcd_fault(engine->etcd);
	out->moves = engine->moves;
	out->moving = (struct engine_moving){.phase = phases[engine->phase],
					     .target = engine->phase == PHASE_NONE ? "" : engine->step.target,
					     .reason = engine->move_fault,
					     .slots = engine->phase == PHASE_NONE ? 0 : engine->slots};
	if (engine->mover)
		mover_get_progress(engine->mover, &out->moving.progress);
	for (unsigned slot = 0; wish->table && slot < CLUSTER_SLOTS; slot++) {
		const struct cluster_entry *target;

		if (!cluster_bit(wish->slots, slot) || !wish->table->to[slot])
			continue;
		target = cluster_member_entry(engine->member, wish->table->to[slot] - 1u);
		away += !cluster_entry_is_member(target);
		out->moving.wished++;
	}
	if (away && away == out->moving.wished && engine->phase == PHASE_NONE)
		out->moving.reason = "no node that is to get slots is a member: rdmactl cluster show";
	for (unsigned i = 0; cluster_member_entry(engine->member, i); i++)
		out->out += cluster_member_entry(engine->member, i)->out;
	return true;
}
