/*
 * commit_threads: commits of many threads among each other and beside single calls. Money moves between accounts, and none is made or
 * lost: not for one that looks at all of them by a commit of checks alone, nor for one that takes the changes. Pairs are written
 * together, and no thread finds two halves of different pairs.
 */
#include <pthread.h>

#include "tests/store/commit_common.h"

#define WORKERS 3u
#define ACCOUNTS 24u
#define MONEY 100 /* of each at first */
#define PAIRS 16u
#define NOISE 3000u /* keys of single calls: the tables grow */
#define EPOCH 5000u

struct bank {
	struct fixture f;
	bool changes, evicts;
	unsigned bits;  /* halves of pairs are shorter than 2^bits */
	unsigned noise; /* and single values than this */
	atomic_bool end;
	atomic_uint moved, stale, looked, torn;
};

struct worker {
	struct bank *bank;
	uint64_t state;
	uint64_t turns;
	pthread_t thread;
};

struct name { /* of a key */
	uint32_t kind, number;
};

enum { ACCOUNT = 1, LEFT, RIGHT, SINGLE, KINDS };

static uint64_t dice(struct worker *w, uint64_t sides)
{
	return random_next(&w->state) % sides;
}

/* A balance and what is needed to check it. An account that is not there has none. */
struct read {
	struct name name;
	int64_t balance;
};

static struct store_check account_read(struct bank *bank, struct read *r, uint32_t number)
{
	struct store_check check = {.key = &r->name, .key_len = sizeof(r->name)};
	struct store_ref ref;

	r->name = (struct name){ACCOUNT, number};
	r->balance = 0;
	if (store_get(bank->f.store, &r->name, sizeof(r->name), time_now(), &ref) == 0)
		return check;
	expect(ref.len == sizeof(r->balance));
	memcpy(&r->balance, ref.addr, sizeof(r->balance));
	check.version = ref.version;
	check.expires = ref.expires;
	store_unpin(bank->f.store, &ref);
	return check;
}

static int commit_all(struct bank *bank, struct store_check *checks, unsigned nchecks, struct store_step *steps,
		      unsigned nsteps)
{
	uint64_t lsn;
	int rc;

	do
		rc = store_commit(bank->f.store, checks, nchecks, steps, nsteps, time_now(), &lsn);
	while (rc == -EAGAIN);
	for (unsigned i = 0; i < nsteps && rc != 0; i++)
		if (steps[i].kind == STORE_STEP_PUT)
			store_abandon(bank->f.store, &steps[i].ref);
	return rc;
}

/* What is empty is deleted; one in eight is told once more not to expire. */
static unsigned account_steps(struct worker *w, const struct read *r, struct store_step *steps)
{
	struct store *store = w->bank->f.store;
	unsigned n = 0;

	if (!r->balance) {
		steps[n++] = delete_of_bytes(&r->name, sizeof(r->name));
		return n;
	}
	steps[n] = put_of(store, &r->name, sizeof(r->name), sizeof(r->balance));
	memcpy(steps[n++].ref.addr, &r->balance, sizeof(r->balance));
	if (dice(w, 8) == 0) {
		steps[n] = delete_of_bytes(&r->name, sizeof(r->name));
		steps[n].kind = STORE_STEP_EXPIRE;
		steps[n++].expires = TIME_NEVER;
	}
	return n;
}

/* From the first to all the others, what it has or a part of it. */
static void move_money(struct worker *w)
{
	struct bank *bank = w->bank;
	unsigned n = 2 + (unsigned)dice(w, 3), nsteps;
	uint32_t first = (uint32_t)dice(w, ACCOUNTS), stride = 1 + (uint32_t)dice(w, 5);
	struct store_check checks[4];
	struct store_step steps[8];
	struct read read[4];
	int64_t most;
	int rc;

	do {
		for (unsigned i = 0; i < n; i++)
			checks[i] = account_read(bank, &read[i], (first + i * stride) % ACCOUNTS);
		most = dice(w, 3) ? read[0].balance / 2 : read[0].balance;
		for (unsigned i = 1; i < n; i++) {
			int64_t some = i + 1 < n ? most / 2 : most;

			read[0].balance -= some;
			read[i].balance += some;
			most -= some;
		}
		nsteps = 0;
		for (unsigned i = 0; i < n; i++)
			nsteps += account_steps(w, &read[i], &steps[nsteps]);
		rc = commit_all(bank, checks, n, steps, nsteps);
		expect(rc == 0 || rc == -ESTALE);
		atomic_fetch_add(rc == 0 ? &bank->moved : &bank->stale, 1);
	} while (rc != 0);
}

/* Blindly, both halves with the same first bytes, in any order. */
static void write_pair(struct worker *w)
{
	uint32_t number = (uint32_t)dice(w, PAIRS);
	uint64_t seed = random_next(&w->state);
	struct store_step steps[2];
	struct name name;
	unsigned n = 0;

	for (; n < 2; n++) {
		uint64_t len = 8 + random_size(&w->state, w->bank->bits);

		name = (struct name){(seed & 1) == n ? LEFT : RIGHT, number};
		steps[n] = (struct store_step){.kind = STORE_STEP_PUT, .expires = TIME_NEVER};
		if (reserve_all(w->bank->f.store, &name, sizeof(name), len, time_now(), &steps[n].ref) != 0)
			break; /* no memory in a row */
		pattern_fill(steps[n].ref.addr, len, seed);
	}
	if (n == 2)
		expect(commit_all(w->bank, NULL, 0, steps, 2) == 0);
	else if (n == 1)
		store_abandon(w->bank->f.store, &steps[0].ref);
}

static void look_at_pair(struct worker *w)
{
	uint32_t number = (uint32_t)dice(w, PAIRS);
	struct name name[2] = {{LEFT, number}, {RIGHT, number}};
	struct store_check checks[2];
	struct store_ref ref[2];

	for (unsigned i = 0; i < 2; i++) {
		store_get(w->bank->f.store, &name[i], sizeof(name[i]), time_now(), &ref[i]);
		checks[i] = (struct store_check){.key = &name[i],
						 .key_len = sizeof(name[i]),
						 .version = ref[i].version,
						 .expires = ref[i].expires};
	}
	if (commit_all(w->bank, checks, 2, NULL, 0) == 0 && ref[0].item && ref[1].item)
		atomic_fetch_add(&w->bank->torn, memcmp(ref[0].addr, ref[1].addr, 8) != 0);
	for (unsigned i = 0; i < 2; i++) {
		if (ref[i].item)
			atomic_fetch_add(&w->bank->torn, !pattern_holds(ref[i].addr, ref[i].len));
		store_unpin(w->bank->f.store, &ref[i]);
	}
}

static void look_at_money(struct bank *bank)
{
	struct store_check checks[ACCOUNTS];
	struct read read[ACCOUNTS];
	int64_t sum = 0;

	for (uint32_t i = 0; i < ACCOUNTS; i++) {
		checks[i] = account_read(bank, &read[i], i);
		sum += read[i].balance;
	}
	if (commit_all(bank, checks, ACCOUNTS, NULL, 0) != 0)
		return;
	expect(sum == (int64_t)ACCOUNTS * MONEY);
	atomic_fetch_add(&bank->looked, 1);
}

static bool take_key(void *arg, const void *key, size_t key_len, const struct store_meta *meta)
{
	return true;
}

/* Single calls on other keys, and what goes over all of them. */
static void make_noise(struct worker *w)
{
	struct store *store = w->bank->f.store;
	struct name name = {SINGLE, (uint32_t)dice(w, NOISE)};
	uint64_t now = time_now(), cursor = dice(w, 16) << 48;
	struct store_put put = {STORE_ALWAYS, 0, dice(w, 2) ? TIME_NEVER : now + dice(w, 5 * TIME_MS)};
	unsigned char key[STORE_KEY_MAX], value[3000] = "noise";
	size_t len;

	switch (dice(w, 16)) {
	case 0:
		store_tick(store, now);
		break;
	case 1:
		len = store_random(store, random_next(&w->state), now, key);
		expect(len == sizeof(name) || (len == 0 && w->bank->evicts)); /* which begins with none */
		break;
	case 2:
		store_scan(store, &cursor, 20, NULL, 0, now, take_key, NULL);
		break;
	case 3 ... 6:
		while (store_delete(store, &name, sizeof(name), 0, now) == -EAGAIN)
			;
		break;
	default:
		set_all(store, &name, sizeof(name), value, dice(w, w->bank->noise), &put, now, NULL);
	}
}

static void *worker_run(void *arg)
{
	struct worker *w = arg;
	bool money = !w->bank->evicts;

	for (uint64_t i = 0; i < w->turns; i++) {
		uint64_t what = dice(w, 100);

		if (what < 30 && money)
			move_money(w);
		else if (what < 45)
			write_pair(w);
		else if (what < 55)
			look_at_pair(w);
		else if (what < 60 && money)
			look_at_money(w->bank);
		else
			make_noise(w);
	}
	return NULL;
}

/*
 * What takes the changes has all that there is, and the same money behind each commit.
 */
struct told {
	bool there;
	uint64_t len, version, expires;
	int64_t balance;
	uint64_t first; /* eight bytes */
};

struct teller {
	struct bank *bank;
	uint64_t lsn, commits;
	int64_t sum;
	struct told told[KINDS][NOISE];
	pthread_t thread;
};

static void told_set(struct told *t, const struct store_change *c)
{
	*t = (struct told){.there = true, .len = c->value_len, .version = c->lsn, .expires = c->expires};
	memcpy(&t->first, c->value, MIN(c->value_len, sizeof(t->first)));
}

static void teller_apply(struct teller *teller, const struct store_change *c)
{
	struct name name;
	struct told *t;

	expect(c->lsn == ++teller->lsn && c->key_len == sizeof(name));
	memcpy(&name, c->key, sizeof(name));
	t = &teller->told[name.kind][name.number];
	if (name.kind == ACCOUNT)
		teller->sum -= t->balance;
	if (c->type == STORE_CHANGE_SET) {
		told_set(t, c);
	} else if (c->type == STORE_CHANGE_DELETE) {
		*t = (struct told){0};
	} else {
		expect(t->there && t->version == c->version);
		t->expires = c->expires;
	}
	if (name.kind == ACCOUNT && t->there)
		memcpy(&t->balance, &t->first, sizeof(t->balance));
	if (name.kind == ACCOUNT)
		teller->sum += t->balance;
	if (c->flags & STORE_CHANGE_MORE)
		return;
	/* The first ones come one by one. */
	expect(teller->bank->evicts || teller->lsn < EPOCH + ACCOUNTS || teller->sum == (int64_t)ACCOUNTS * MONEY);
	teller->commits++;
}

static unsigned teller_step(struct teller *teller)
{
	struct store_change c[32];
	unsigned n = store_changes_take(teller->bank->f.store, c, ARRAY_SIZE(c));

	for (unsigned i = 0; i < n; i++)
		teller_apply(teller, &c[i]);
	store_changes_release(teller->bank->f.store, c, n);
	return n;
}

static void *teller_run(void *arg)
{
	struct teller *teller = arg;
	bool end;

	do
		end = atomic_load(&teller->bank->end);
	while (teller_step(teller) || !end);
	return NULL;
}

/* Each key, in the store and as it was told. */
static void teller_check(struct teller *teller)
{
	uint64_t now = time_now();
	struct store_ref ref;

	expect(teller->lsn == store_lsn(teller->bank->f.store));
	for (uint32_t kind = ACCOUNT; kind < KINDS; kind++) {
		for (uint32_t i = 0; i < NOISE; i++) {
			const struct told *t = &teller->told[kind][i];
			struct name name = {kind, i};

			store_get(teller->bank->f.store, &name, sizeof(name), now, &ref);
			expect((t->there && t->expires > now) == !!ref.item);
			if (!ref.item)
				continue;
			expect(ref.version == t->version && ref.expires == t->expires && ref.len == t->len);
			expect(!memcmp(ref.addr, &t->first, MIN(ref.len, sizeof(t->first))));
			store_unpin(teller->bank->f.store, &ref);
		}
	}
}

static void bank_open(struct bank *bank)
{
	int64_t money = MONEY;

	for (uint32_t i = 0; i < ACCOUNTS; i++) {
		struct name name = {ACCOUNT, i};

		if (!bank->evicts)
			expect(set_all(bank->f.store, &name, sizeof(name), &money, sizeof(money), NULL, NOW, NULL) ==
			       0);
	}
}

START_TEST(test_bank)
{
	static const struct {
		size_t arena;
		unsigned bits;
		bool evicts, changes;
	} row[] = {{16 * MIB, 8, false, false},
		   {16 * MIB, 12, false, true},
		   {MIB, 10, true, false},
		   {4 * MIB, 19, true, false}, /* windows, and moves */
		   {MIB, 11, true, true}};
	static struct bank bank;
	static struct teller teller;
	struct worker worker[WORKERS];

	memset(&bank, 0, sizeof(bank));
	bank.bits = row[_i].bits;
	bank.evicts = row[_i].evicts;
	bank.changes = row[_i].changes;
	bank.noise = bank.evicts ? 3000 : 500;
	bank.f = fixture_open_ring(row[_i].arena, GIB, bank.evicts ? STORE_EVICT_S3_FIFO : STORE_EVICT_NONE,
				   bank.changes ? 256 : 0);
	if (bank.changes)
		store_changes_begin(bank.f.store, EPOCH);
	teller = (struct teller){.bank = &bank, .lsn = EPOCH};
	bank_open(&bank);
	if (bank.changes)
		ck_assert_int_eq(pthread_create(&teller.thread, NULL, teller_run, &teller), 0);
	for (unsigned i = 0; i < WORKERS; i++) {
		worker[i] = (struct worker){.bank = &bank, .state = 3 + i, .turns = suite_part(30000)};
		ck_assert_int_eq(pthread_create(&worker[i].thread, NULL, worker_run, &worker[i]), 0);
	}
	for (unsigned i = 0; i < WORKERS; i++)
		pthread_join(worker[i].thread, NULL);
	atomic_store(&bank.end, true);
	if (bank.changes) {
		pthread_join(teller.thread, NULL);
		teller_check(&teller);
	}
	printf("store: bank %d: %u moved, %u stale, %u looked, %lu evicted\n", _i, bank.moved, bank.stale, bank.looked,
	       fixture_stats(&bank.f).evictions);
	ck_assert_uint_eq(bank.torn, 0);
	if (!bank.evicts)
		look_at_money(&bank);
	ck_assert(bank.evicts ? fixture_stats(&bank.f).evictions > 0 : bank.looked > 0);
	ring_close(&bank.f);
}
END_TEST

TCase *commit_threads_case(void)
{
	TCase *tc = tcase_create("threads");

	tcase_set_timeout(tc, 600);
	tcase_add_loop_test(tc, test_bank, 0, 5);
	return tc;
}
