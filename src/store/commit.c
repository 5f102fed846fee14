/*
 * commit.c: several keys in one step. The stripes of all of them are locked, in the order of their numbers, so that two
 * commits never wait for each other; and as all other threads hold one stripe's lock at a time, a commit waits for none
 * that waits for it.
 *
 * All that can fail comes first: grants for the changes, the checks, and places in the index. A new key's place is
 * taken by the reservation itself, which counts as absent until its step comes: no other thread sees it, as its stripe
 * is locked, and if a further key finds no memory it is taken out again. From there on the tables do not grow, so that
 * a key which is deleted and put again finds its place free.
 *
 * Changes are told when all steps are done, as only then their count is known: they get numbers in a row.
 */
#include "store/internal.h"

struct commit {
	struct store *store;
	struct store_check *checks;
	struct store_step *steps;
	unsigned nchecks, nsteps, told;
	uint64_t now;
	uint64_t stripes[(STRIPES_MAX + 63) / 64]; /* those of the keys, a bit each */
	struct dead dead;
};

/*
 * Stripes.
 */

static void stripe_note(struct commit *c, uint32_t tag)
{
	unsigned at = tag >> c->store->stripe_shift;

	c->stripes[at / 64] |= 1ull << (at % 64);
}

static void tags_find(struct commit *c)
{
	for (unsigned i = 0; i < c->nchecks; i++) {
		struct store_check *check = &c->checks[i];

		check->tag = store_tag(c->store, check->key, check->key_len);
		stripe_note(c, check->tag);
	}
	for (unsigned i = 0; i < c->nsteps; i++) {
		struct store_step *step = &c->steps[i];

		if (step->kind == STORE_STEP_PUT)
			step->tag = item_tag(step->ref.item);
		else
			step->tag = store_tag(c->store, step->key, step->key_len);
		stripe_note(c, step->tag);
	}
}

static void stripes_each(const struct commit *c, void (*fn)(struct stripe *s))
{
	for (unsigned i = 0; i < ARRAY_SIZE(c->stripes); i++)
		for (uint64_t left = c->stripes[i]; left; left &= left - 1)
			fn(&c->store->stripe[i * 64 + (unsigned)__builtin_ctzll(left)]);
}

static void lock_further(struct stripe *s)
{
	lock_take_further(&s->lock, LOCK_STRIPE);
}

static void unlock_stripe(struct stripe *s)
{
	lock_give(&s->lock, LOCK_STRIPE);
}

/*
 * What can fail. Keys that have expired are left where they are.
 */

static bool check_holds(const struct commit *c, const struct store_check *check)
{
	struct stripe *s = store_stripe(c->store, check->tag);
	struct slot slot;
	struct store_item *item =
		index_find(&s->index, &c->store->arena, check->tag, check->key, check->key_len, &slot);

	if (!item || item->expires <= c->now)
		return !check->version;
	return item->version == check->version && (!check->expires || item->expires == check->expires);
}

static int place_take(struct commit *c, const struct store_step *step)
{
	struct store_item *item = step->ref.item;
	struct index *x = &store_stripe(c->store, step->tag)->index;
	struct slot slot;

	must(item_is_reserved(item) && item->queue == QUEUE_NONE);
	if (index_find(x, &c->store->arena, step->tag, item->key, item->key_len, &slot))
		return 0;
	return index_insert(x, step->tag, arena_link(&c->store->arena, item));
}

/* All or none: a reservation that a place was taken for is in the index, others are not. */
static int places_take(struct commit *c)
{
	unsigned done = 0;
	struct slot slot;
	int rc = 0;

	for (; done < c->nsteps && rc == 0; done++)
		if (c->steps[done].kind == STORE_STEP_PUT)
			rc = place_take(c, &c->steps[done]);
	if (rc == 0)
		return 0;
	while (done--) {
		const struct store_step *step = &c->steps[done];
		struct index *x = &store_stripe(c->store, step->tag)->index;

		if (step->kind == STORE_STEP_PUT &&
		    index_find_link(x, step->tag, arena_link(&c->store->arena, step->ref.item), &slot))
			index_remove(x, slot);
	}
	return rc;
}

/*
 * Steps, which cannot fail. One that is to be told of keeps its item in ref.item until then.
 */

/* A step's key: where the index has it, and its item, if it is there. */
struct found {
	struct stripe *s;
	struct slot slot;
	bool placed;  /* the index has the key, if only by a reservation whose step has not come yet, */
	bool expired; /* or by an item that has just left, as its time was over */
	struct store_item *item;
};

static struct found step_find(struct commit *c, struct store_step *step, const void *key, size_t key_len)
{
	struct found f = {.s = store_stripe(c->store, step->tag)};

	f.item = index_find(&f.s->index, &c->store->arena, step->tag, key, key_len, &f.slot);
	f.placed = f.item;
	if (f.item && item_is_reserved(f.item))
		f.item = NULL;
	if (f.item && f.item->expires <= c->now) { /* it goes, and leaves its place to the step */
		store_item_left(c->store, f.s, f.item, DROP_EXPIRED, &c->dead);
		f.item = NULL;
		f.expired = true;
	}
	step->found = f.item;
	step->version = 0;
	return f;
}

static void put_apply(struct commit *c, struct store_step *step)
{
	struct store_item *item = step->ref.item;
	struct found f = step_find(c, step, item->key, item->key_len);
	uint32_t link = arena_link(&c->store->arena, item);
	bool told = c->store->changes.on;

	store_reservation_ends(c->store, item);
	item->expires = step->keep_expiry && f.item ? f.item->expires : step->expires;
	if (f.item) {
		evict_replace(c->store, f.s, f.item, item);
		wheel_remove(c->store, f.s, f.item);
		owner_discharge(c->store, f.item);
		dead_add(&c->store->arena, &c->dead, f.item);
	} else {
		evict_add(c->store, f.s, item);
	}
	if (f.placed)
		f.slot.bucket->link[f.slot.at] = link;
	else
		index_refill(&f.s->index, step->tag, link);
	f.s->sets++;
	event_tell(c->store,
		   (struct event){STORE_EVENT_SET, item, step->note, !f.item, item_is_timed(item, step->keep_expiry)},
		   &c->dead);
	c->told += told;
	item->version = step->version = told ? 0 : ++f.s->version;
	wheel_add(c->store, f.s, item, c->now);
	atomic_store_explicit(&item->refs, told && !change_is_copy(item, STORE_CHANGE_SET) ? 2 : 1,
			      memory_order_release);
	if (!told)
		step->ref.item = NULL;
}

/* The item of a step that is no PUT; NULL: there is none. */
static struct store_item *step_item(struct commit *c, struct store_step *step, struct found *f)
{
	*f = step_find(c, step, step->key, step->key_len);
	step->ref.item = NULL;
	if (f->expired)
		index_clear(&f->s->index, f->slot);
	return f->item;
}

static void delete_apply(struct commit *c, struct store_step *step)
{
	struct found f;
	struct store_item *item = step_item(c, step, &f);

	if (!item)
		return;
	index_clear(&f.s->index, f.slot);
	item_leave(c->store, f.s, item);
	f.s->deletes++;
	event_tell(c->store, (struct event){STORE_EVENT_DELETED, item, step->note}, &c->dead);
	if (unlikely(c->store->changes.on)) {
		step->ref.item = item;
		c->told++;
		if (!change_is_copy(item, STORE_CHANGE_DELETE))
			return; /* the change has the index's reference */
	}
	dead_add(&c->store->arena, &c->dead, item);
}

static void expire_apply(struct commit *c, struct store_step *step)
{
	struct found f;
	struct store_item *item = step_item(c, step, &f);

	if (!item)
		return;
	wheel_remove(c->store, f.s, item);
	item->expires = step->expires;
	wheel_add(c->store, f.s, item, c->now);
	step->version = item->version;
	event_tell(c->store, (struct event){STORE_EVENT_EXPIRY, item, step->note, .timed = item->expires != TIME_NEVER},
		   &c->dead);
	if (unlikely(c->store->changes.on)) {
		step->ref.item = item;
		c->told++;
		if (!change_is_copy(item, STORE_CHANGE_EXPIRE))
			atomic_fetch_add_explicit(&item->refs, 1, memory_order_relaxed);
	}
}

static const struct {
	void (*apply)(struct commit *c, struct store_step *step);
	enum store_change_type change;
} kinds[] = {
	[STORE_STEP_PUT] = {put_apply, STORE_CHANGE_SET},
	[STORE_STEP_DELETE] = {delete_apply, STORE_CHANGE_DELETE},
	[STORE_STEP_EXPIRE] = {expire_apply, STORE_CHANGE_EXPIRE},
};

/* Tells the changes. Returns the last number; 0: nothing is told. */
static uint64_t steps_tell(struct commit *c)
{
	uint64_t last, lsn;

	if (!c->told)
		return 0;
	last = changes_draw(&c->store->changes, c->told);
	lsn = last - c->told;
	for (unsigned i = 0; i < c->nsteps; i++) {
		struct store_step *step = &c->steps[i];
		struct store_item *item = step->ref.item;

		if (!item)
			continue;
		lsn++;
		/* A miss there tells of it; also of a PUT that expires at once, which a later step may have found so.
		 */
		if (step->kind != STORE_STEP_PUT || item->expires <= c->now)
			stripe_removed(store_stripe(c->store, step->tag), lsn);
		change_put_at(c->store, lsn, item, kinds[step->kind].change, lsn < last ? STORE_CHANGE_MORE : 0);
		step->version = step->kind == STORE_STEP_DELETE ? 0 : item->version;
		step->ref.item = NULL;
	}
	must(lsn == last);
	return last;
}

static int commit_locked(struct commit *c, uint64_t *lsn)
{
	int rc;

	for (unsigned i = 0; i < c->nchecks; i++)
		if (!check_holds(c, &c->checks[i]))
			return -ESTALE;
	rc = places_take(c);
	if (rc != 0)
		return rc;
	for (unsigned i = 0; i < c->nsteps; i++)
		kinds[c->steps[i].kind].apply(c, &c->steps[i]);
	*lsn = steps_tell(c);
	return 0;
}

int store_commit(struct store *store, struct store_check checks[], unsigned nchecks, struct store_step steps[],
		 unsigned nsteps, uint64_t now, uint64_t *lsn)
{
	struct commit c = {
		.store = store, .checks = checks, .steps = steps, .nchecks = nchecks, .nsteps = nsteps, .now = now};
	struct changes *changes = &store->changes;
	unsigned grants = 0;
	uint64_t last = 0;
	int rc;

	if (nsteps > STORE_COMMIT_MAX || (changes->on && nsteps > changes->size))
		return -E2BIG;
	for (unsigned i = 0; changes->on && i < nsteps; i++)
		grants += steps[i].kind != STORE_STEP_PUT; /* reservations have theirs */
	if (grants && !changes_grant(changes, grants))
		return -EAGAIN;
	tags_find(&c);
	stripes_each(&c, lock_further);
	rc = commit_locked(&c, &last);
	stripes_each(&c, unlock_stripe);
	store_dead_release(store, &c.dead);
	if (changes->on)
		changes_return(changes, rc == 0 ? nsteps - c.told : grants);
	if (rc == -ENOMEM)
		atomic_fetch_add(&store->out_of_memory, 1);
	if (lsn)
		*lsn = last;
	return rc;
}
