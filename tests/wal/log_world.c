/* log_world.c: see log_world.h. */
#include "tests/wal/log_world.h"

#include <stdlib.h>

#include "tests/suite.h"

#define LONG (64 * KIB)
#define VALUE_MAX (300 * KIB)
#define KEY_MAX 600

uint64_t world_draw(struct world *w, uint64_t below)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return (w->random * 0x2545f4914f6cdd1dull >> 11) % below;
}

void world_create(struct world *w, unsigned seed)
{
	*w = (struct world){.seed = seed, .random = seed * 0x9e3779b97f4a7c15ull + 7, .long_values = true};
	w->disk = disk_create(seed);
	w->config = (struct wal_config){.directory = "log", .segment = WAL_SEGMENT_MIN, .files = disk_files(w->disk)};
}

void world_destroy(struct world *w)
{
	world_close(w);
	disk_destroy(w->disk);
	free(w->history);
	free(w->told);
}

/*
 * Keys and values are made of numbers, so that nobody has to keep them.
 */

static uint16_t key_of(unsigned key, char *buf)
{
	unsigned len = key % 4 == 3 ? 100 * key % KEY_MAX : 0;
	int n = sprintf(buf, "key-%u", key);

	memset(buf + n, 'k', len);
	return (uint16_t)((unsigned)n + len);
}

static unsigned char byte_of(uint64_t lsn, uint64_t i)
{
	return (unsigned char)(((lsn + i / 8) * 0x9e3779b97f4a7c15ull) >> (i % 8 * 8));
}

static void value_of(uint64_t lsn, uint64_t len, unsigned char *out)
{
	for (uint64_t i = 0; i < len; i++)
		out[i] = byte_of(lsn, i);
}

static void key_check(unsigned key, const struct wal_record *r)
{
	char want[KEY_MAX + 32];

	ck_assert_uint_eq(r->key_len, key_of(key, want));
	ck_assert(memcmp(want, r->key, r->key_len) == 0);
}

static unsigned key_number(const struct wal_record *r)
{
	char text[32] = "";
	unsigned key;

	memcpy(text, r->key, MIN(r->key_len, sizeof(text) - 1));
	ck_assert(sscanf(text, "key-%u", &key) == 1 && key < WORLD_KEYS);
	key_check(key, r);
	return key;
}

/* Every other item has attributes. */
static uint32_t flags_of(uint64_t lsn)
{
	return lsn % 2 ? 0x80000000u | (uint32_t)lsn : 0;
}

static uint8_t type_of(uint64_t lsn)
{
	return lsn % 2 ? 255 - lsn % 16 : 0;
}

static void value_check(const struct wal_record *r, uint64_t lsn)
{
	const unsigned char *value = r->value;

	ck_assert_uint_eq(r->item_flags, flags_of(lsn));
	ck_assert_uint_eq(r->item_type, type_of(lsn));
	for (uint64_t i = 0; i < r->value_len; i++)
		if (value[i] != byte_of(lsn, i))
			ck_abort_msg("value of LSN %ju is wrong at %ju", (uintmax_t)lsn, (uintmax_t)i);
}

/*
 * Changes.
 */

static void state_apply(struct state *s, const struct change *c)
{
	struct item *item = &s->item[c->key];

	switch (c->type) {
	case WAL_SET:
		if (c->lsn > item->version)
			*item = (struct item){.there = true, .version = c->lsn, .expires = c->expires, .len = c->len};
		break;
	case WAL_DELETE:
		if (c->lsn > item->version)
			*item = (struct item){0};
		break;
	case WAL_EXPIRE:
		if (item->there && item->version == c->version)
			item->expires = c->expires;
		break;
	case WAL_FLUSH:
		for (unsigned i = 0; i < WORLD_KEYS; i++)
			if (s->item[i].version < c->lsn)
				s->item[i] = (struct item){0};
		break;
	}
}

static uint64_t last_lsn(const struct world *w)
{
	return w->drawn ? w->history[w->drawn - 1].lsn : 0;
}

static void history_add(struct world *w, struct change c)
{
	if (w->drawn == w->room) {
		w->room = w->room ? 2 * w->room : 64;
		w->history = realloc(w->history, w->room * sizeof(*w->history));
		ck_assert_ptr_nonnull(w->history);
	}
	c.lsn = MAX(last_lsn(w), w->above) + 1 + (world_draw(w, 8) ? 0 : world_draw(w, 1000));
	state_apply(&w->state, &c);
	w->history[w->drawn++] = c;
}

static uint64_t length_draw(struct world *w)
{
	uint64_t what = world_draw(w, 100);

	if (what < 70)
		return world_draw(w, 200);
	if (what < 90)
		return world_draw(w, 5000);
	if (what < 98 || !w->long_values)
		return world_draw(w, 20000);
	return LONG - 10 + world_draw(w, what == 98 ? 20 : VALUE_MAX - LONG);
}

void world_set(struct world *w, unsigned key, uint64_t len)
{
	history_add(w, (struct change){.type = WAL_SET, .key = key, .expires = WAL_NEVER, .len = len});
}

void world_flush(struct world *w)
{
	history_add(w, (struct change){.type = WAL_FLUSH});
}

void world_change(struct world *w, unsigned n)
{
	while (n--) {
		unsigned key = (unsigned)world_draw(w, WORLD_KEYS), what = (unsigned)world_draw(w, 64);
		struct change c = {.type = WAL_SET,
				   .key = key,
				   .expires = world_draw(w, 2) ? WAL_NEVER : world_draw(w, 1ull << 40)};

		if (what == 0) {
			c = (struct change){.type = WAL_FLUSH};
		} else if (what < 10) {
			c.type = WAL_DELETE;
		} else if (what < 20) {
			c.type = WAL_EXPIRE;
			c.version = w->state.item[key].there ? w->state.item[key].version : 1;
		} else {
			c.len = length_draw(w);
		}
		history_add(w, c);
	}
}

/*
 * Writing.
 */

struct batch {
	struct wal_record record[64];
	char key[64][KEY_MAX + 32];
	unsigned char *value;
};

static void batch_add(struct batch *b, unsigned n, const struct change *c)
{
	struct wal_record *r = &b->record[n];

	*r = (struct wal_record){
		.lsn = c->lsn, .expires = c->expires, .version = c->version, .type = c->type, .key = b->key[n]};
	if (c->type != WAL_FLUSH)
		r->key_len = key_of(c->key, b->key[n]);
	if (c->type != WAL_SET)
		return;
	r->value_len = c->len;
	r->item_flags = flags_of(c->lsn);
	r->item_type = type_of(c->lsn);
}

static void batch_values(struct batch *b, unsigned n)
{
	uint64_t len = 0;

	for (unsigned i = 0; i < n; i++)
		len += b->record[i].value_len;
	b->value = malloc(len + 1);
	ck_assert_ptr_nonnull(b->value);
	for (unsigned i = 0, at = 0; i < n; i++) {
		value_of(b->record[i].lsn, b->record[i].value_len, b->value + at);
		b->record[i].value = b->value + at;
		at += (unsigned)b->record[i].value_len;
	}
}

static void durable_note(struct world *w)
{
	struct wal_info info;

	wal_get_info(w->wal, &info);
	ck_assert_uint_le(info.durable, info.written);
	w->durable = MAX(w->durable, info.durable);
}

int world_write(struct world *w, unsigned n)
{
	struct batch *b = calloc(1, sizeof(*b));
	int rc;

	ck_assert_ptr_nonnull(b);
	n = MIN(MIN(n, w->drawn - w->handed), ARRAY_SIZE(b->record));
	for (unsigned i = 0; i < n; i++)
		batch_add(b, i, &w->history[w->handed + i]);
	batch_values(b, n);
	rc = n ? wal_write(w->wal, b->record, n) : 0;
	if (rc == 0)
		w->handed += n;
	free(b->value);
	free(b);
	durable_note(w); /* a segment may have ended */
	return rc;
}

int world_sync(struct world *w)
{
	int rc = wal_sync(w->wal);

	durable_note(w);
	if (rc == 0)
		ck_assert(w->handed == 0 || w->durable >= w->history[w->handed - 1].lsn);
	return rc;
}

static int item_write(struct world *w, unsigned key)
{
	const struct item *item = &w->state.item[key];
	struct batch *b = calloc(1, sizeof(*b));
	int rc;

	ck_assert_ptr_nonnull(b);
	batch_add(
		b, 0,
		&(struct change){
			.type = WAL_SET, .key = key, .lsn = item->version, .expires = item->expires, .len = item->len});
	batch_values(b, 1);
	rc = wal_checkpoint_write(w->wal, b->record, 1);
	free(b->value);
	free(b);
	return rc;
}

static int checkpoint_end(struct world *w)
{
	int rc = wal_checkpoint_end(w->wal, w->seen);

	if (rc == 0)
		w->walking = false;
	if (rc != -EAGAIN)
		return rc;
	ck_assert_uint_lt(w->durable, w->seen);
	ck_assert(!w->rests);
	rc = world_write(w, 64);
	return rc ? rc : world_sync(w);
}

/* One key at a time, while changes go on between. */
int world_checkpoint(struct world *w)
{
	int rc = 0;

	if (!w->walking) {
		rc = wal_checkpoint_begin(w->wal, w->rests || world_draw(w, 8) ? last_lsn(w) : 0);
		w->walking = rc == 0;
		w->walk = 0;
		return rc;
	}
	if (w->walk < WORLD_KEYS) {
		if (w->state.item[w->walk].there)
			rc = item_write(w, w->walk);
		w->walk += rc == 0;
		w->seen = last_lsn(w);
		if (rc == -ENOSPC) {
			wal_checkpoint_abandon(w->wal);
			w->walking = false;
		}
		return rc;
	}
	return checkpoint_end(w);
}

int world_checkpoint_whole(struct world *w)
{
	int rc = world_checkpoint(w);

	while (rc == 0 && w->walking)
		rc = world_checkpoint(w);
	return rc;
}

int world_step(struct world *w)
{
	uint64_t what = world_draw(w, 100);

	if (what < 40)
		world_change(w, 1 + (unsigned)world_draw(w, 6));
	else if (what < 70)
		return world_write(w, 1 + (unsigned)world_draw(w, 20));
	else if (what < 78)
		return world_sync(w);
	else if (what < 80)
		return wal_mark(w->wal);
	else if (what < 98)
		return w->walking || world_draw(w, 4) == 0 ? world_checkpoint(w) : 0;
	else if (w->walking) {
		wal_checkpoint_abandon(w->wal);
		w->walking = false;
	}
	return 0;
}

/*
 * Reading.
 */

static const struct change *history_find(const struct world *w, uint64_t lsn)
{
	unsigned low = 0, high = w->drawn;

	while (low < high) {
		unsigned middle = (low + high) / 2;

		if (w->history[middle].lsn < lsn)
			low = middle + 1;
		else
			high = middle;
	}
	ck_assert_msg(low < w->drawn && w->history[low].lsn == lsn, "LSN %ju was never written", (uintmax_t)lsn);
	return &w->history[low];
}

static int on_place(void *arg, const struct wal_record *record, void **value)
{
	struct world *w = arg;

	ck_assert_ptr_null(w->placed);
	ck_assert_uint_gt(record->value_len, LONG);
	ck_assert_uint_le(record->value_len, VALUE_MAX);
	*value = w->placed = malloc(record->value_len);
	ck_assert_ptr_nonnull(*value);
	return 0;
}

static void on_drop(void *arg, void *value)
{
	struct world *w = arg;

	ck_assert_ptr_eq(value, w->placed);
	free(w->placed);
	w->placed = NULL;
}

static int on_record(void *arg, const struct wal_record *r)
{
	struct world *w = arg;

	if (r->type == WAL_SET) {
		ck_assert(!r->value_len || r->value);
		ck_assert((r->value_len > LONG) == (w->placed != NULL));
		ck_assert(!w->placed || r->value == w->placed);
		value_check(r, r->lsn);
	}
	if (w->placed)
		on_drop(w, w->placed);
	if (w->tolds == w->told_room) {
		w->told_room = w->told_room ? 2 * w->told_room : 64;
		w->told = realloc(w->told, w->told_room * sizeof(*w->told));
		ck_assert_ptr_nonnull(w->told);
	}
	w->told[w->tolds++] = (struct change){.type = r->type,
					      .key = r->key_len ? key_number(r) : 0,
					      .lsn = r->lsn,
					      .expires = r->expires,
					      .version = r->version,
					      .len = r->value_len};
	return 0;
}

static bool on_again(void *arg)
{
	struct world *w = arg;

	if (w->twice)
		w->tolds = 0;
	return w->twice;
}

int world_open(struct world *w, struct wal_found *found)
{
	const struct wal_reader reader = {
		.arg = w, .place = on_place, .drop = on_drop, .record = on_record, .again = on_again};
	int rc = wal_open(&w->config, &w->wal);

	w->tolds = 0;
	if (rc) {
		w->wal = NULL;
		return rc;
	}
	rc = wal_recover(w->wal, &reader, found);
	w->above = found->given;
	ck_assert_ptr_null(w->placed);
	if (rc)
		world_close(w);
	return rc;
}

void world_close(struct world *w)
{
	wal_close(w->wal);
	w->wal = NULL;
	w->walking = false;
}

/* Of a checkpoint: what a key was at some time; its expiry may come from a later change. */
static void item_compare(struct world *w, const struct change *told)
{
	const struct change *c = history_find(w, told->lsn);

	ck_assert(told->type == WAL_SET && c->type == WAL_SET && told->key == c->key && told->len == c->len);
}

static void change_compare(const struct change *told, const struct change *c)
{
	bool expires = c->type == WAL_SET || c->type == WAL_EXPIRE;

	ck_assert(told->type == c->type && told->key == c->key && told->len == c->len && told->version == c->version);
	ck_assert(!expires || told->expires == c->expires);
}

static void states_compare(const struct state *found, const struct state *want, uint64_t lsn)
{
	for (unsigned i = 0; i < WORLD_KEYS; i++) {
		const struct item *a = &found->item[i], *b = &want->item[i];

		if (a->there != b->there ||
		    (a->there && (a->version != b->version || a->expires != b->expires || a->len != b->len)))
			ck_abort_msg("key %u up to LSN %ju: found version %ju, expires %ju; written %ju, %ju", i,
				     (uintmax_t)lsn, (uintmax_t)a->version, (uintmax_t)a->expires,
				     (uintmax_t)b->version, (uintmax_t)b->expires);
	}
}

/* The log's are told without a gap, up to the last one. */
static void told_compare(struct world *w, const struct wal_found *found)
{
	const struct change *c = NULL;

	ck_assert_uint_eq(found->records, w->tolds);
	w->found = (struct state){0};
	for (unsigned i = 0; i < w->tolds; i++) {
		if (i < found->items) {
			item_compare(w, &w->told[i]);
		} else {
			c = c ? c + 1 : history_find(w, w->told[i].lsn);
			ck_assert_uint_eq(c->lsn, w->told[i].lsn);
			change_compare(&w->told[i], c);
		}
		state_apply(&w->found, &w->told[i]);
	}
	ck_assert(!c || c->lsn == found->last);
}

void world_compare_prefix(struct world *w, const struct wal_found *found)
{
	unsigned n = 0;

	told_compare(w, found);
	if (found->last)
		n = (unsigned)(history_find(w, found->last) - w->history) + 1;
	w->state = (struct state){0};
	for (unsigned i = 0; i < n; i++)
		state_apply(&w->state, &w->history[i]);
	states_compare(&w->found, &w->state, found->last);
	w->drawn = w->handed = n;
	w->durable = found->last;
}

void world_compare(struct world *w, const struct wal_found *found)
{
	ck_assert_msg(found->last >= w->durable, "seed %u: LSN %ju was durable, found up to %ju", w->seed,
		      (uintmax_t)w->durable, (uintmax_t)found->last);
	world_compare_prefix(w, found);
}
