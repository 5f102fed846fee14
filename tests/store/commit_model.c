/* commit_model: random commits and single calls on the store and on an array, which must agree; and so must another array, of what the
 * changes tell. */
#include "tests/store/commit_common.h"

#define KEYS 40u /* few: most commits have some of them twice */
#define CHECKS 5u
#define STEPS 16u
#define LEN 600u /* longer ones than the ring copies */
#define EPOCH 5000u

struct entry {
	bool there;
	uint64_t len, version, expires;
	unsigned char first; /* each byte of the value */
};

struct model {
	struct fixture f;
	bool changes;
	uint64_t state, now, top[KEYS], lsn;
	struct entry entry[KEYS], told[KEYS]; /* told: by changes */
	unsigned stale, done;
};

static uint64_t dice(struct model *m, uint64_t sides)
{
	return random_next(&m->state) % sides;
}

static bool is_live(const struct model *m, const struct entry *e)
{
	return e->there && e->expires > m->now;
}

static uint64_t random_expiry(struct model *m)
{
	return dice(m, 2) ? TIME_NEVER : m->now - 1 + dice(m, 1ull << (1 + dice(m, 30)));
}

/*
 * What the changes tell.
 */

static void told_apply(struct model *m, const struct store_change *c)
{
	struct entry *e;
	uint32_t key;

	if (c->type == STORE_CHANGE_FLUSH) {
		for (key = 0; key < KEYS; key++)
			m->told[key].there = false;
		return;
	}
	expect(c->key_len == sizeof(key));
	memcpy(&key, c->key, sizeof(key));
	e = &m->told[key];
	switch (c->type) {
	case STORE_CHANGE_SET:
		*e = (struct entry){true, c->value_len, c->lsn, c->expires,
				    c->value_len ? *(const unsigned char *)c->value : 0};
		return;
	case STORE_CHANGE_DELETE:
		e->there = false;
		return;
	default:
		expect(e->there && e->version == c->version);
		e->expires = c->expires;
	}
}

/* All that there is: `n` changes, which are one commit if there are more. */
static void ring_drain(struct model *m, unsigned n)
{
	struct store_change c[STEPS + 1];

	if (!m->changes)
		return;
	expect(store_changes_take(m->f.store, c, STEPS + 1) == n);
	for (unsigned i = 0; i < n; i++) {
		expect(c[i].lsn == ++m->lsn);
		expect(c[i].flags == (i + 1 < n ? STORE_CHANGE_MORE : 0));
		told_apply(m, &c[i]);
	}
	store_changes_release(m->f.store, c, n);
}

/*
 * A commit.
 */

struct commit_op {
	uint32_t check_key[CHECKS], step_key[STEPS];
	struct store_check checks[CHECKS];
	struct store_step steps[STEPS];
	unsigned char first[STEPS];
	unsigned nchecks, nsteps;
	bool holds;
};

static void random_check(struct model *m, struct commit_op *op, unsigned i)
{
	uint32_t key = op->check_key[i] = (uint32_t)dice(m, KEYS);
	const struct entry *e = &m->entry[key];
	struct store_check *check = &op->checks[i];

	*check = (struct store_check){.key = &op->check_key[i], .key_len = sizeof(key)};
	if (is_live(m, e)) {
		check->version = e->version;
		check->expires = dice(m, 2) ? e->expires : 0;
	}
	if (dice(m, 20))
		return;
	op->holds = false;
	if (check->version && dice(m, 2))
		check->expires = e->expires + 1;
	else
		check->version = dice(m, 2) || !check->version ? check->version + 1 : 0;
	if (check->expires == 0 && check->version == (is_live(m, e) ? e->version : 0))
		check->version++; /* expires was TIME_NEVER, and one more is any */
}

static void op_random(struct model *m, struct commit_op *op, unsigned i)
{
	uint32_t key = op->step_key[i] = (uint32_t)dice(m, KEYS);
	struct store_step *step = &op->steps[i];
	uint64_t len = dice(m, 3) ? dice(m, 60) : dice(m, LEN);

	if (dice(m, 3)) {
		*step = put_of(m->f.store, &key, sizeof(key), len);
		op->first[i] = (unsigned char)dice(m, 256);
		memset(step->ref.addr, op->first[i], len);
		step->keep_expiry = dice(m, 2);
		step->expires = random_expiry(m);
		return;
	}
	*step = delete_of_bytes(&op->step_key[i], sizeof(key));
	if (dice(m, 2)) {
		step->kind = STORE_STEP_EXPIRE;
		step->expires = random_expiry(m);
	}
}

/* Returns whether a change tells of it. */
static bool model_step(struct model *m, const struct commit_op *op, unsigned i)
{
	uint32_t key = op->step_key[i];
	struct entry *e = &m->entry[key];
	const struct store_step *step = &op->steps[i];
	bool found = is_live(m, e);

	expect(step->found == found && !step->ref.item);
	switch (step->kind) {
	case STORE_STEP_PUT:
		if (!step->keep_expiry || !found)
			e->expires = step->expires;
		e->there = true;
		expect(step->version > m->top[key]);
		m->top[key] = e->version = step->version;
		e->len = step->ref.len;
		e->first = e->len ? op->first[i] : 0;
		return true;
	case STORE_STEP_DELETE:
		e->there = false;
		expect(!step->version);
		return found;
	case STORE_STEP_EXPIRE:
		e->there = found;
		e->expires = step->expires;
		expect(step->version == (found ? e->version : 0));
		return found;
	}
	return false;
}

static void op_commit(struct model *m)
{
	struct commit_op op = {
		.nchecks = (unsigned)dice(m, CHECKS + 1), .nsteps = (unsigned)dice(m, STEPS + 1), .holds = true};
	unsigned told = 0;
	uint64_t lsn;
	int rc;

	for (unsigned i = 0; i < op.nchecks; i++)
		random_check(m, &op, i);
	for (unsigned i = 0; i < op.nsteps; i++)
		op_random(m, &op, i);
	rc = store_commit(m->f.store, op.checks, op.nchecks, op.steps, op.nsteps, m->now, &lsn);
	expect(rc == (op.holds ? 0 : -ESTALE));
	m->stale += rc != 0;
	m->done += rc == 0;
	for (unsigned i = 0; i < op.nsteps; i++) {
		if (rc == 0)
			told += model_step(m, &op, i);
		else if (op.steps[i].kind == STORE_STEP_PUT)
			store_abandon(m->f.store, &op.steps[i].ref);
	}
	ring_drain(m, told);
	expect(lsn == (m->changes && told ? m->lsn : 0));
}

/*
 * Single calls, in between.
 */

static void op_set(struct model *m, uint32_t key)
{
	struct entry *e = &m->entry[key];
	struct store_put put = {STORE_ALWAYS, 0, random_expiry(m)};
	unsigned char value[LEN];

	e->len = dice(m, LEN);
	e->first = e->len ? (unsigned char)dice(m, 256) : 0;
	memset(value, e->first, e->len);
	expect(set_all(m->f.store, &key, sizeof(key), value, e->len, &put, m->now, &e->version) == 0);
	expect(e->version > m->top[key]);
	m->top[key] = e->version;
	e->there = true;
	e->expires = put.expires;
	ring_drain(m, 1);
}

static void op_delete(struct model *m, uint32_t key)
{
	int rc = store_delete(m->f.store, &key, sizeof(key), 0, m->now);

	expect(rc == is_live(m, &m->entry[key]));
	m->entry[key].there = false;
	ring_drain(m, (unsigned)rc);
}

static void entry_check(struct model *m, uint32_t key)
{
	const struct entry *e = &m->entry[key], *told = &m->told[key];
	struct store_ref ref;

	expect(store_get(m->f.store, &key, sizeof(key), m->now, &ref) == is_live(m, e));
	expect(!m->changes || is_live(m, told) == is_live(m, e));
	if (!ref.item)
		return;
	expect(ref.len == e->len && ref.version == e->version && ref.expires == e->expires);
	for (uint64_t i = 0; i < ref.len; i++)
		expect(((unsigned char *)ref.addr)[i] == e->first);
	store_unpin(m->f.store, &ref);
	expect(!m->changes || !memcmp(told, e, sizeof(*e)));
}

/* All of it; the reads drop what had expired. */
static void op_audit(struct model *m)
{
	uint64_t items = 0, expiring = 0, asked = 0;
	unsigned char key[STORE_KEY_MAX];
	struct store_stats stats;

	for (uint32_t k = 0; k < KEYS; k++) {
		const struct entry *e = &m->entry[k];

		entry_check(m, k);
		items += is_live(m, e);
		expiring += is_live(m, e) && e->expires != TIME_NEVER;
		asked += is_live(m, e) ? sizeof(k) + e->len : 0;
	}
	stats = fixture_stats(&m->f);
	expect(stats.items == items && stats.expiring == expiring && stats.bytes_asked == asked);
	expect(stats.pins == 0 && stats.bytes_reserved == 0);
	expect(store_random(m->f.store, random_next(&m->state), m->now, key) == (items ? sizeof(uint32_t) : 0));
}

static void op_flush(struct model *m)
{
	fixture_flush(&m->f);
	for (uint32_t k = 0; k < KEYS; k++)
		m->entry[k].there = false;
	ring_drain(m, 1);
}

/* _i: with eviction's queues, though nothing is evicted; with changes. */
START_TEST(test_model)
{
	static struct model m;
	uint64_t turns = suite_part(40000);

	memset(&m, 0, sizeof(m));
	m.changes = _i & 2;
	m.f = fixture_open_ring(4 * MIB, MIB, _i & 1 ? STORE_EVICT_S3_FIFO : STORE_EVICT_NONE, m.changes ? 64 : 0);
	m.state = (uint64_t)_i + 1;
	m.now = NOW;
	m.lsn = EPOCH;
	if (m.changes)
		store_changes_begin(m.f.store, EPOCH);
	for (uint64_t i = 0; i < turns; i++) {
		switch (dice(&m, 40)) {
		case 0 ... 3:
			op_set(&m, (uint32_t)dice(&m, KEYS));
			break;
		case 4 ... 5:
			op_delete(&m, (uint32_t)dice(&m, KEYS));
			break;
		case 6 ... 7:
			m.now += dice(&m, 1ull << (1 + dice(&m, 28)));
			break;
		case 8:
			store_tick(m.f.store, m.now);
			break;
		case 9:
			op_audit(&m);
			break;
		case 10:
			if (!dice(&m, 20))
				op_flush(&m);
			break;
		default:
			op_commit(&m);
		}
	}
	op_audit(&m);
	printf("store: model %d of commits: %u done, %u stale\n", _i, m.done, m.stale);
	expect(m.done > m.stale && m.stale > 0);
	ring_close(&m.f);
}
END_TEST

TCase *commit_model_case(void)
{
	TCase *tc = tcase_create("model");

	tcase_set_timeout(tc, 240);
	tcase_add_loop_test(tc, test_model, 0, 4);
	return tc;
}
