/* store_model: random operations on the store and on an array, which must agree. */
#include "tests/store/store_common.h"

#define KEYS 300
#define BUF 9000

struct entry {
	bool there;
	uint64_t len, version, expires;
	uint32_t flags;
	uint8_t type;
	unsigned char value[BUF];
};

struct model {
	struct fixture f;
	uint64_t state, now, top[KEYS];
	struct entry entry[KEYS];
};

static uint64_t dice(struct model *m, uint64_t sides)
{
	return random_next(&m->state) % sides;
}

static struct entry *model_entry(struct model *m, unsigned key)
{
	struct entry *e = &m->entry[key];

	if (e->there && e->expires <= m->now)
		e->there = false;
	return e;
}

static int model_check(const struct entry *e, const struct store_put *put)
{
	if (put->condition == STORE_IF_ABSENT && e->there)
		return -EEXIST;
	if ((put->condition == STORE_IF_PRESENT || put->condition == STORE_IF_VERSION) && !e->there)
		return -ENOENT;
	if (put->condition == STORE_IF_VERSION && e->version != put->version)
		return -ESTALE;
	return 0;
}

static void model_wrote(struct model *m, unsigned key, uint64_t version)
{
	expect(version > m->top[key]);
	m->top[key] = version;
	m->entry[key].version = version;
	m->entry[key].there = true;
}

static uint64_t random_expiry(struct model *m)
{
	return dice(m, 2) ? TIME_NEVER : m->now + dice(m, 1ull << (1 + dice(m, 40)));
}

/* Mostly none. */
static void random_attributes(struct model *m, struct store_put *put)
{
	put->flags = dice(m, 3) ? 0 : (uint32_t)dice(m, 1ull << 32);
	put->type = dice(m, 4) ? STORE_STRING : STORE_HASH;
	put->keep_attributes = !dice(m, 4);
}

static void op_set(struct model *m, unsigned key)
{
	struct entry *e = model_entry(m, key);
	static unsigned char value[BUF];
	uint64_t len = dice(m, 4) ? dice(m, 40) : dice(m, BUF), version = 0;
	struct store_put put = {(enum store_condition)dice(m, 4), dice(m, 3) ? e->version : 12345, random_expiry(m)};
	struct store_ref ref;
	int rc, want = model_check(e, &put);

	if (!dice(m, 3))
		len = (uint64_t)snprintf((char *)value, BUF, "%ld", (long)dice(m, 1000) - 500);
	else
		pattern_fill(value, len, dice(m, UINT64_MAX));
	random_attributes(m, &put);
	if (dice(m, 2)) {
		rc = set_all(m->f.store, &key, 4, value, len, &put, m->now, &version);
	} else {
		do
			rc = store_reserve_for(m->f.store, &key, 4, len, &put, m->now, &ref);
		while (rc == -EAGAIN);
		expect(rc == 0);
		memcpy(ref.addr, value, len);
		rc = store_publish(m->f.store, &ref, &put, m->now, &version);
	}
	expect(rc == want);
	if (rc != 0)
		return;
	memcpy(e->value, value, len);
	e->len = len;
	e->expires = put.expires;
	if (!put.keep_attributes || !e->there) {
		e->flags = put.flags;
		e->type = put.type;
	}
	model_wrote(m, key, version);
}

static void op_read(struct model *m, unsigned key)
{
	struct entry *e = model_entry(m, key);
	static unsigned char buf[BUF];
	uint64_t len, version;
	struct store_meta meta, read;
	struct store_ref ref;

	expect(copy(m->f.store, &key, 4, m->now, buf, BUF, &len, &version) == e->there);
	expect(store_get(m->f.store, &key, 4, m->now, &ref) == e->there);
	expect(store_stat(m->f.store, &key, 4, m->now, &meta) == e->there);
	if (!e->there)
		return;
	expect(store_read(m->f.store, &key, 4, m->now, buf, BUF, &read) == 1);
	expect(read.len == e->len && read.version == e->version && read.expires == e->expires);
	expect(read.flags == e->flags && ref.flags == e->flags && meta.flags == e->flags);
	expect(read.type == e->type && ref.type == e->type && meta.type == e->type);
	expect(len == e->len);
	expect(ref.len == e->len);
	expect(meta.len == e->len);
	expect(version == e->version);
	expect(ref.version == e->version);
	expect(meta.version == e->version);
	expect(meta.expires == e->expires);
	expect(!memcmp(buf, e->value, e->len));
	expect(!memcmp(ref.addr, e->value, e->len));
	store_unpin(m->f.store, &ref);
}

static void op_delete(struct model *m, unsigned key)
{
	struct entry *e = model_entry(m, key);
	uint64_t version = dice(m, 2) ? 0 : dice(m, 2) ? e->version : 54321;
	int want = !e->there ? 0 : version && version != e->version ? -ESTALE : 1;

	expect(store_delete(m->f.store, &key, 4, version, m->now) == want);
	if (want == 1)
		e->there = false;
}

static void op_expire(struct model *m, unsigned key)
{
	struct entry *e = model_entry(m, key);
	uint64_t expires = random_expiry(m);

	expect(store_expire(m->f.store, &key, 4, 0, expires, m->now) == e->there);
	e->expires = expires;
}

static void op_incr(struct model *m, unsigned key)
{
	struct entry *e = model_entry(m, key);
	char text[32] = "0", *end = text + 1;
	long old = 0, delta = (long)dice(m, 200) - 100;
	int64_t value;
	uint64_t version;
	int want = 0;

	if (e->there) {
		memcpy(text, e->value, MIN(e->len, 31));
		text[MIN(e->len, 31)] = 0;
		old = strtol(text, &end, 10);
		want = e->len > 20 || !e->len || end != text + e->len || !strchr("-0123456789", text[0]) ? -EINVAL : 0;
		want = e->type == STORE_STRING ? want : -EMEDIUMTYPE;
	}
	expect(incr(m->f.store, &key, 4, delta, m->now, &value, &version) == want);
	if (want)
		return;
	expect(value == old + delta);
	if (!e->there) {
		e->expires = TIME_NEVER;
		e->flags = 0;
		e->type = STORE_STRING;
	}
	e->len = (uint64_t)snprintf((char *)e->value, BUF, "%ld", old + delta);
	model_wrote(m, key, version);
}

static bool see(void *arg, const void *key, size_t key_len, const struct store_meta *meta)
{
	unsigned *count = arg, k;

	expect(key_len == 4);
	memcpy(&k, key, 4);
	expect(k < KEYS);
	count[k]++;
	return true;
}

/* Everything at once: what the scan lists, what the figures say. */
static void op_audit(struct model *m)
{
	unsigned count[KEYS] = {0};
	uint64_t cursor = 0, asked = 0, items = 0;
	struct store_stats stats;

	do {
		store_scan(m->f.store, &cursor, 10, NULL, 0, m->now, see, count);
	} while (cursor);
	for (unsigned k = 0; k < KEYS; k++) {
		struct entry *e = model_entry(m, k);

		expect(count[k] == e->there);
		op_read(m, k);
		items += e->there;
		asked += e->there ? 4 + e->len : 0;
	}
	stats = fixture_stats(&m->f); /* the reads have dropped what had expired */
	expect(stats.items == items);
	expect(stats.bytes_asked == asked);
	expect(stats.pins == 0);
}

static void op_time(struct model *m)
{
	m->now += dice(m, 1ull << (1 + dice(m, 36)));
	if (dice(m, 2))
		store_tick(m->f.store, m->now);
}

START_TEST(test_model)
{
	static struct model m;

	memset(&m, 0, sizeof(m));
	m.f = fixture_open(16 * MIB, BUF, _i % 2 ? STORE_EVICT_S3_FIFO : STORE_EVICT_NONE);
	m.state = 1000 + (uint64_t)_i;
	m.now = NOW;
	for (int n = 0; n < 40000; n++) {
		unsigned key = (unsigned)dice(&m, KEYS);
		uint64_t what = dice(&m, 100);

		if (what < 45)
			op_set(&m, key);
		else if (what < 75)
			op_read(&m, key);
		else if (what < 85)
			op_delete(&m, key);
		else if (what < 90)
			op_expire(&m, key);
		else if (what < 97)
			op_incr(&m, key);
		else
			op_time(&m);
		if (n % 5000 == 0)
			op_audit(&m);
		if (n % 9000 == 8999) {
			fixture_flush(&m.f);
			for (unsigned k = 0; k < KEYS; k++)
				m.entry[k].there = false;
		}
	}
	op_audit(&m);
	fixture_close(&m.f);
}
END_TEST

TCase *store_model_case(void)
{
	TCase *tc = tcase_create("model");

	tcase_set_timeout(tc, 240);
	tcase_add_loop_test(tc, test_model, 0, 4);
	return tc;
}
