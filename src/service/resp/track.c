/*
 * track.c: clients that keep copies of values, and are told when a key is changed: CLIENT TRACKING. By default a client
 * hears of the keys that it read, once each, until it reads them again; with BCAST of all with one of its prefixes.
 *
 * A thread has what its own clients read in a table, which entries leave from the oldest on when it is full: their
 * clients hear of them as if they had been changed. Each entry has the number of the event that was to come when the
 * key was read: events before it are of changes that the client has seen.
 *
 * With REDIRECT another client hears of it, which may be another thread's: a note goes there.
 */
#include "service/resp/resp.h"

#include <stdlib.h>

#define TRACKED_BYTES (64 * MIB) /* of the entries of one thread */
#define BUCKETS_FIRST 1024u
#define PREFIXES_MAX 1000u
#define BATCH_BYTES (16 * MIB) /* of keys in one message; beyond it a client is told to drop all */
#define CHANNEL "__redis__:invalidate"

/* Where the messages of some client go. Under shared->lock. */
struct resp_redirect {
	unsigned refs;
	uint64_t id;
	struct resp_thread *thread;
	struct resp_client *to; /* NULL: it has gone; else that thread's */
	struct list node;       /* in to->redirects */
};

enum caching { CACHING_NONE, CACHING_YES, CACHING_NO };

struct resp_track {
	struct resp_client *client;
	struct list node;    /* in the thread's */
	struct list tracked; /* entries, of one without BCAST */
	bool bcast, optin, optout, noloop;
	enum caching caching; /* of the command that comes next */
	struct resp_redirect *redirect;
	struct resp_arg *prefix; /* with BCAST: at the least one, which may be empty; in their order */
	unsigned prefixes;
	struct resp_out batch; /* keys that it is told of at the end of the turn, or of a visit */
	size_t batched;
};

/* A client has read a key. */
struct tracked {
	struct tracked *next; /* in its bucket */
	struct list of_client, of_thread;
	struct resp_track *track;
	uint64_t hash, seen;
	bool written; /* by the step in which it was read, before that: the event of it is still to come */
	size_t len;
	char key[];
};

struct resp_tracks {
	struct list tracks; /* resp_track.node */
	struct list oldest; /* tracked.of_thread, the oldest first */
	struct tracked **bucket;
	unsigned buckets, count;
	size_t bytes;
	bool batched;        /* a track has keys in its batch */
	struct resp_out out; /* a message that is built */
};

struct resp_tracks *resp_tracks_new(void)
{
	struct resp_tracks *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	list_init(&t->tracks);
	list_init(&t->oldest);
	t->buckets = BUCKETS_FIRST;
	t->bucket = calloc(t->buckets, sizeof(*t->bucket));
	t->out.most = SIZE_MAX;
	if (t->bucket)
		return t;
	free(t);
	return NULL;
}

void resp_tracks_free(struct resp_tracks *t)
{
	if (!t)
		return;
	must(list_empty(&t->tracks) && !t->count);
	free(t->bucket);
	free(t->out.at);
	free(t);
}

bool resp_tracks_any(const struct resp_thread *thread)
{
	return !list_empty(&thread->tracks->tracks);
}

static void count_change(_Atomic uint64_t *count, int64_t by)
{
	atomic_fetch_add_explicit(count, (uint64_t)by, memory_order_relaxed);
}

/*
 * Redirections
 */

static void redirect_put(struct resp_shared *shared, struct resp_redirect *r)
{
	unsigned refs;

	if (!r)
		return;
	pthread_mutex_lock(&shared->lock);
	refs = --r->refs;
	if (!refs && r->to)
		list_del(&r->node);
	pthread_mutex_unlock(&shared->lock);
	if (!refs)
		free(r);
}

/* NULL: there is no such client, or *rc is -ENOMEM. */
static struct resp_redirect *redirect_new(struct resp_shared *shared, uint64_t id, int *rc)
{
	struct resp_redirect *r = malloc(sizeof(*r));
	struct resp_client *to = NULL;

	*rc = r ? 0 : -ENOMEM;
	if (!r)
		return NULL;
	pthread_mutex_lock(&shared->lock);
	list_for_each (pos, &shared->clients)
		if (container_of(pos, struct resp_client, node)->id == id)
			to = container_of(pos, struct resp_client, node);
	if (to) {
		*r = (struct resp_redirect){.refs = 1, .id = id, .thread = to->thread, .to = to};
		list_add_tail(&to->redirects, &r->node);
	}
	pthread_mutex_unlock(&shared->lock);
	if (to)
		return r;
	free(r);
	return NULL;
}

/* The client that it leads to; NULL: it has gone. Of another thread, it may have gone behind this. */
static struct resp_client *redirect_to(struct resp_shared *shared, const struct resp_redirect *r)
{
	struct resp_client *to;

	pthread_mutex_lock(&shared->lock);
	to = r->to;
	pthread_mutex_unlock(&shared->lock);
	return to;
}

/*
 * Messages
 */

/* What a client hears of keys: `keys` has them as strings of the protocol, `count` of them; 0: of all that it has. One
 * of RESP2 has to be a subscriber. */
static void tell_client(struct resp_thread *thread, struct resp_client *to, const char *keys, size_t len, size_t count)
{
	struct resp_out *out = &thread->tracks->out;

	if (!to->three && !resp_subscriptions(to))
		return;
	out->len = 0;
	out->three = to->three;
	resp_push(out, to->three ? 2 : 3);
	resp_bulk_text(out, to->three ? "invalidate" : "message");
	if (!to->three)
		resp_bulk_text(out, CHANNEL);
	if (count) {
		resp_array(out, count);
		resp_raw(out, keys, len);
	} else {
		resp_null(out);
	}
	if (out->failed)
		stream_close(to->stream, -ENOMEM, "no memory for a message");
	else
		resp_client_push(to, &(struct stream_piece){out->at, out->len, NULL, NULL, NULL});
	out->failed = false;
}

struct told {
	struct resp_note note;
	struct resp_redirect *redirect;
	size_t len, count;
	char keys[];
};

static void told_came(struct resp_thread *to, struct resp_note *note)
{
	struct told *told = container_of(note, struct told, note);
	struct resp_shared *shared = told->redirect->thread->shared;
	struct resp_client *c = to ? redirect_to(shared, told->redirect) : NULL;

	if (c)
		tell_client(to, c, told->keys, told->len, told->count);
	redirect_put(shared, told->redirect);
	free(told);
}

/* By a note; without memory or room for it the client that hears too little is cut off. */
static void tell_far(struct resp_track *track, const char *keys, size_t len, size_t count)
{
	struct resp_shared *shared = track->client->thread->shared;
	struct told *told = malloc(sizeof(*told) + len);

	if (!told) {
		stream_close(track->client->stream, -ENOMEM, "no memory for a message");
		return;
	}
	*told = (struct told){.note = {.fn = told_came, .bytes = sizeof(*told) + len},
			      .redirect = track->redirect,
			      .len = len,
			      .count = count};
	if (len)
		memcpy(told->keys, keys, len);
	pthread_mutex_lock(&shared->lock);
	told->redirect->refs++;
	pthread_mutex_unlock(&shared->lock);
	if (resp_post(told->redirect->thread, &told->note))
		return;
	told_came(NULL, &told->note);
	stream_close(track->client->stream, -ENOBUFS, "a message was lost: too many wait for the thread of its client");
}

static void tell_broken(struct resp_track *track)
{
	struct resp_client *c = track->client;
	struct resp_out *out = &c->thread->tracks->out;

	if (!c->three)
		return;
	out->len = 0;
	out->three = true;
	resp_push(out, 2);
	resp_bulk_text(out, "tracking-redir-broken");
	resp_number(out, (int64_t)track->redirect->id);
	if (!out->failed)
		resp_client_push(c, &(struct stream_piece){out->at, out->len, NULL, NULL, NULL});
	out->failed = false;
}

static void track_tell(struct resp_track *track, const char *keys, size_t len, size_t count)
{
	struct resp_thread *thread = track->client->thread;
	struct resp_client *to = track->client;

	if (track->redirect)
		to = redirect_to(thread->shared, track->redirect);
	else if (!to->three)
		return;
	if (!to)
		tell_broken(track);
	else if (track->redirect && track->redirect->thread != thread)
		tell_far(track, keys, len, count);
	else
		tell_client(thread, to, keys, len, count);
}

static void batch_add(struct resp_track *track, const char *key, size_t len)
{
	resp_bulk(&track->batch, key, len);
	track->batched++;
	track->client->thread->tracks->batched = true;
}

static void batch_end(struct resp_track *track)
{
	if (track->batch.failed)
		track_tell(track, NULL, 0, 0);
	else if (track->batched)
		track_tell(track, track->batch.at, track->batch.len, track->batched);
	free(track->batch.at);
	track->batch = (struct resp_out){.most = BATCH_BYTES};
	track->batched = 0;
}

/*
 * The table
 */

static size_t tracked_bytes(const struct tracked *e)
{
	return sizeof(*e) + e->len;
}

static struct tracked **tracked_place(struct resp_tracks *t, const struct tracked *e)
{
	struct tracked **at = &t->bucket[e->hash & (t->buckets - 1)];

	while (*at != e)
		at = &(*at)->next;
	return at;
}

static void tracked_end(struct resp_tracks *t, struct tracked *e)
{
	*tracked_place(t, e) = e->next;
	list_del(&e->of_client);
	list_del(&e->of_thread);
	t->count--;
	t->bytes -= tracked_bytes(e);
	count_change(&e->track->client->thread->shared->tracked, -1);
	free(e);
}

static void table_grow(struct resp_tracks *t)
{
	unsigned buckets = 2 * t->buckets;
	struct tracked **bucket = calloc(buckets, sizeof(*bucket));

	if (!bucket)
		return; /* it is slower then */
	list_for_each (pos, &t->oldest) {
		struct tracked *e = container_of(pos, struct tracked, of_thread);

		e->next = bucket[e->hash & (buckets - 1)];
		bucket[e->hash & (buckets - 1)] = e;
	}
	free(t->bucket);
	t->bucket = bucket;
	t->buckets = buckets;
}

static bool is_key(const struct tracked *e, uint64_t hash, const char *key, size_t len)
{
	return e->hash == hash && e->len == len && memcmp(e->key, key, len) == 0;
}

/* 0 or -ENOMEM. */
static int tracked_add(struct resp_client *c, const struct resp_arg *key, uint64_t seen)
{
	struct resp_thread *thread = c->thread;
	struct resp_track *track = c->track;
	struct resp_tracks *t = thread->tracks;
	bool written = resp_view_tells(c, key);
	uint64_t hash = store_hash(thread->store, key->at, key->len);
	struct tracked **bucket = &t->bucket[hash & (t->buckets - 1)], *e = *bucket;

	while (e && !(e->track == track && is_key(e, hash, key->at, key->len)))
		e = e->next;
	if (e) {
		e->seen = seen;
		e->written = written;
		return 0;
	}
	e = malloc(sizeof(*e) + key->len);
	if (!e)
		return -ENOMEM;
	*e = (struct tracked){
		.next = *bucket, .track = track, .hash = hash, .seen = seen, .written = written, .len = key->len};
	memcpy(e->key, key->at, key->len);
	*bucket = e;
	list_add_tail(&track->tracked, &e->of_client);
	list_add_tail(&t->oldest, &e->of_thread);
	t->bytes += tracked_bytes(e);
	count_change(&thread->shared->tracked, 1);
	if (++t->count > t->buckets)
		table_grow(t);
	while (t->bytes > TRACKED_BYTES) {
		e = container_of(t->oldest.next, struct tracked, of_thread);
		batch_add(e->track, e->key, e->len); /* the reply that has its value may have to leave first */
		tracked_end(t, e);
	}
	return 0;
}

static void track_forget(struct resp_track *track)
{
	struct list *pos, *next;

	list_for_each_safe (pos, next, &track->tracked)
		tracked_end(track->client->thread->tracks, container_of(pos, struct tracked, of_client));
}

int resp_track_read(struct resp_client *c, const struct resp_command *command, const struct resp_arg *argv,
		    unsigned argc, uint64_t seen)
{
	struct resp_track *track = c->track;
	struct resp_keys keys;
	int rc = 0;

	/* What a script reads counts, not the keys that it names. */
	if (!track || track->bcast || !(command->flags & RESP_READONLY) || command->flags & RESP_NOSCRIPT ||
	    (track->optin && track->caching != CACHING_YES) || (track->optout && track->caching == CACHING_NO))
		return 0;
	keys = resp_keys(command, argv, argc);
	for (unsigned i = 0; i < keys.count && rc == 0; i++)
		if (resp_key(&keys, argv, i)->len <= STORE_KEY_MAX)
			rc = tracked_add(c, resp_key(&keys, argv, i), seen);
	return rc;
}

void resp_track_commanded(struct resp_client *c, const struct resp_command *command)
{
	bool of_client = command && strncmp(command->name, "client|", strlen("client|")) == 0;

	if (!of_client && !resp_multi_open(c))
		c->track->caching = CACHING_NONE;
}

/*
 * Events
 */

static bool is_own(const struct resp_track *track, const struct store_event *event)
{
	return track->noloop && resp_note_client(event->note) == track->client->id;
}

/* 0: the key begins with the prefix. */
static int compare_key(const void *key, const void *prefix)
{
	const struct store_event *event = key;
	const struct resp_arg *p = prefix;
	int order = memcmp(event->key, p->at, MIN(p->len, event->key_len));

	return order ? order : -(event->key_len < p->len);
}

/* None of them begins with another, so one at most fits, and they have an order. */
static bool has_prefix(const struct resp_track *track, const struct store_event *event)
{
	return bsearch(event, track->prefix, track->prefixes, sizeof(*track->prefix), compare_key);
}

static bool may_read(const struct resp_track *track, const struct store_event *event)
{
	return auth_may(stream_client(track->client->stream), AUTH_READ, event->key, event->key_len);
}

static void tell_all(struct resp_thread *thread)
{
	list_for_each (pos, &thread->tracks->tracks) {
		struct resp_track *track = container_of(pos, struct resp_track, node);

		batch_end(track);
		track_forget(track);
		track_tell(track, NULL, 0, 0);
	}
}

void resp_track_event(struct resp_thread *thread, const struct store_event *event)
{
	struct resp_tracks *t = thread->tracks;
	const char *key = (const char *)event->key;
	uint64_t hash;

	if (event->type == STORE_EVENT_MISSED || event->type == STORE_EVENT_FLUSHED) {
		tell_all(thread);
		return;
	}
	list_for_each (pos, &t->tracks) {
		struct resp_track *track = container_of(pos, struct resp_track, node);

		if (track->bcast && has_prefix(track, event) && !is_own(track, event) && may_read(track, event))
			batch_add(track, key, event->key_len);
	}
	hash = store_hash(thread->store, key, event->key_len);
	for (struct tracked *e = t->bucket[hash & (t->buckets - 1)], *next; e; e = next) {
		next = e->next;
		if (!is_key(e, hash, key, event->key_len) || event->number < e->seen)
			continue;
		if (is_own(e->track, event) && e->written) { /* its copy has that value */
			e->written = false;
			continue;
		}
		/* One that may read it no more hears no name, and drops all, its copy of this one too. */
		if (!is_own(e->track, event) && may_read(e->track, event)) {
			batch_add(e->track, key, event->key_len);
			batch_end(e->track);
		} else if (!is_own(e->track, event)) {
			track_tell(e->track, NULL, 0, 0);
		}
		tracked_end(t, e);
	}
}

void resp_track_turn(struct resp_thread *thread)
{
	if (likely(!thread->tracks->batched))
		return;
	thread->tracks->batched = false;
	list_for_each (pos, &thread->tracks->tracks) {
		struct resp_track *track = container_of(pos, struct resp_track, node);

		if (track->batched)
			batch_end(track);
	}
}

/*
 * Begin and end
 */

static void prefixes_cut(struct resp_track *track, unsigned count)
{
	while (track->prefixes > count) {
		free((char *)track->prefix[--track->prefixes].at);
		count_change(&track->client->thread->shared->prefixes, -1);
	}
}

void resp_track_end(struct resp_client *c)
{
	struct resp_track *track = c->track;
	struct resp_shared *shared = c->thread->shared;

	if (!track)
		return;
	c->track = NULL;
	atomic_store_explicit(&c->seen.tracking, 0, memory_order_relaxed);
	atomic_store_explicit(&c->seen.redirect, -1, memory_order_relaxed);
	track_forget(track);
	list_del(&track->node);
	redirect_put(shared, track->redirect);
	count_change(&shared->trackers, -1);
	prefixes_cut(track, 0);
	free(track->prefix);
	free(track->batch.at);
	free(track);
	resp_watch_review(c->thread);
}

void resp_track_leave(struct resp_client *c)
{
	struct resp_shared *shared = c->thread->shared;
	struct list *pos, *next;

	resp_track_end(c);
	pthread_mutex_lock(&shared->lock);
	list_for_each_safe (pos, next, &c->redirects) {
		struct resp_redirect *r = container_of(pos, struct resp_redirect, node);

		list_del(&r->node);
		r->to = NULL;
	}
	pthread_mutex_unlock(&shared->lock);
}

/* What CLIENT TRACKING ON is asked for. */
struct asked {
	bool bcast, optin, optout, noloop;
	uint64_t redirect; /* 0: none */
	const struct resp_arg *argv;
	unsigned argc;
	unsigned prefixes;
};

static bool asked_redirect(struct resp_client *c, const struct resp_arg *arg, struct asked *asked)
{
	int64_t id;

	if (asked->redirect) {
		resp_error(c->out, "ERR A client can only redirect to a single other client");
		return false;
	}
	if (!resp_read_int64(arg->at, arg->len, &id)) {
		resp_not_an_integer(c);
		return false;
	}
	asked->redirect = (uint64_t)id;
	if (id > 0)
		return true;
	resp_error(c->out, "ERR The client ID you want redirect to does not exist");
	return false;
}

/* False: it was answered. */
static bool asked_read(struct resp_client *c, struct asked *asked)
{
	for (unsigned i = 3; i < asked->argc; i++) {
		const struct resp_arg *arg = &asked->argv[i];
		bool more = i + 1 < asked->argc;

		if (resp_is(arg, "redirect") && more) {
			if (!asked_redirect(c, &asked->argv[++i], asked))
				return false;
		} else if (resp_is(arg, "prefix") && more) {
			i++;
			asked->prefixes++;
		} else if (resp_is(arg, "bcast")) {
			asked->bcast = true;
		} else if (resp_is(arg, "optin")) {
			asked->optin = true;
		} else if (resp_is(arg, "optout")) {
			asked->optout = true;
		} else if (resp_is(arg, "noloop")) {
			asked->noloop = true;
		} else {
			resp_syntax_error(c);
			return false;
		}
	}
	return true;
}

static const char *asked_wrong(const struct resp_track *now, const struct asked *asked)
{
	if (asked->prefixes && !asked->bcast)
		return "PREFIX option requires BCAST mode to be enabled";
	if (now && now->bcast != asked->bcast)
		return "You can't switch BCAST mode on/off before disabling tracking for this client, and then "
		       "re-enabling it with a different mode.";
	if (asked->bcast && (asked->optin || asked->optout))
		return "OPTIN and OPTOUT are not compatible with BCAST";
	if (asked->optin && asked->optout)
		return "You can't specify both OPTIN mode and OPTOUT mode";
	if (now && ((asked->optin && now->optout) || (asked->optout && now->optin)))
		return "You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then "
		       "re-enabling it with a different mode.";
	return NULL;
}

/* Beside the ones that the client has, of which the prefixes from `before` on came with it. False: it was answered. */
static bool prefix_fits(struct resp_client *c, const struct resp_track *track, const struct resp_arg *prefix,
			unsigned before)
{
	if (prefix->len > STORE_KEY_MAX) {
		resp_error(c->out, "ERR prefix is too long: a key has %d bytes at most", STORE_KEY_MAX);
		return false;
	}
	for (unsigned i = 0; i < track->prefixes; i++) {
		const struct resp_arg *other = &track->prefix[i], *first = i < before ? prefix : other;

		if (memcmp(prefix->at, other->at, MIN(prefix->len, other->len)) != 0)
			continue;
		other = first == other ? prefix : other;
		resp_error(c->out,
			   "ERR Prefix '%.*s' overlaps with an existing prefix '%.*s'. Prefixes for a single client "
			   "must not overlap.",
			   (int)MIN(first->len, 128u), first->at, (int)MIN(other->len, 128u), other->at);
		return false;
	}
	return true;
}

/* 0 or -ENOMEM. */
static int prefix_add(struct resp_client *c, struct resp_track *track, const struct resp_arg *prefix)
{
	struct resp_arg *grown = realloc(track->prefix, (track->prefixes + 1) * sizeof(*grown));
	char *copy = malloc(prefix->len + 1);

	track->prefix = grown ? grown : track->prefix;
	if (!grown || !copy) {
		free(copy);
		return -ENOMEM;
	}
	memcpy(copy, prefix->at, prefix->len);
	grown[track->prefixes++] = (struct resp_arg){copy, prefix->len};
	count_change(&c->thread->shared->prefixes, 1);
	return 0;
}

static int compare_prefixes(const void *a, const void *b)
{
	const struct resp_arg *one = a, *other = b;

	return memcmp(one->at, other->at, MIN(one->len, other->len)); /* no two are alike so far */
}

/* All or none: 0, -ENOMEM; 1: it was answered that they do not fit. */
static int prefixes_add(struct resp_client *c, struct resp_track *track, const struct asked *asked)
{
	unsigned before = track->prefixes;
	int rc = 0;

	if (asked->bcast && !asked->prefixes && !track->prefixes)
		return prefix_add(c, track, &(struct resp_arg){"", 0});
	if (track->prefixes + asked->prefixes > PREFIXES_MAX) {
		resp_error(c->out, "ERR more than %u prefixes of one client", PREFIXES_MAX);
		return 1;
	}
	for (unsigned i = 3; i < asked->argc && rc == 0; i++) {
		if (resp_is(&asked->argv[i], "redirect"))
			i++;
		else if (resp_is(&asked->argv[i], "prefix"))
			rc = prefix_fits(c, track, &asked->argv[++i], before) ? prefix_add(c, track, &asked->argv[i])
									      : 1;
	}
	if (rc != 0)
		prefixes_cut(track, before);
	else if (track->prefixes)
		qsort(track->prefix, track->prefixes, sizeof(*track->prefix), compare_prefixes);
	return rc;
}

static struct resp_track *track_new(struct resp_client *c)
{
	struct resp_track *track = calloc(1, sizeof(*track));

	if (!track)
		return NULL;
	track->client = c;
	track->batch.most = BATCH_BYTES;
	list_init(&track->tracked);
	list_add_tail(&c->thread->tracks->tracks, &track->node);
	count_change(&c->thread->shared->trackers, 1);
	c->track = track;
	return track;
}

static int track_begin(struct resp_client *c, const struct asked *asked)
{
	struct resp_shared *shared = c->thread->shared;
	bool fresh = !c->track;
	struct resp_redirect *redirect = NULL;
	struct resp_track *track;
	int rc = 0;

	if (asked->redirect) {
		redirect = redirect_new(shared, asked->redirect, &rc);
		if (!redirect && rc == 0)
			resp_error(c->out, "ERR The client ID you want redirect to does not exist");
		if (!redirect)
			return rc;
	}
	track = fresh ? track_new(c) : c->track;
	if (track)
		rc = prefixes_add(c, track, asked);
	else
		rc = -ENOMEM;
	if (rc == 0)
		rc = resp_watch_review(c->thread);
	if (rc != 0) {
		redirect_put(shared, redirect);
		if (fresh)
			resp_track_end(c);
		return MIN(rc, 0);
	}
	redirect_put(shared, track->redirect);
	track->redirect = redirect;
	track->bcast = asked->bcast;
	track->optin = asked->optin;
	track->optout = asked->optout;
	track->noloop = asked->noloop;
	atomic_store_explicit(&c->seen.tracking, track->bcast ? 'B' : 't', memory_order_relaxed);
	atomic_store_explicit(&c->seen.redirect, (int64_t)asked->redirect, memory_order_relaxed);
	resp_ok(c);
	return 0;
}

int resp_do_client_tracking(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct asked asked = {.argv = argv, .argc = argc};
	const char *wrong;

	if (!asked_read(c, &asked))
		return 0;
	if (resp_is(&argv[2], "off")) {
		resp_track_end(c);
		resp_ok(c);
		return 0;
	}
	if (!resp_is(&argv[2], "on"))
		return resp_syntax_error(c);
	wrong = asked_wrong(c->track, &asked);
	if (!wrong)
		return track_begin(c, &asked);
	resp_error(c->out, "ERR %s", wrong);
	return 0;
}

int resp_do_client_caching(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_track *track = c->track;
	bool yes = resp_is(&argv[2], "yes");

	(void)argc;
	if (!track)
		resp_error(c->out, "ERR CLIENT CACHING can be called only when the client is in tracking mode with "
				   "OPTIN or OPTOUT mode enabled");
	else if (!yes && !resp_is(&argv[2], "no"))
		return resp_syntax_error(c);
	else if (yes && !track->optin)
		resp_error(c->out, "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.");
	else if (!yes && !track->optout)
		resp_error(c->out, "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.");
	else {
		track->caching = yes ? CACHING_YES : CACHING_NO;
		resp_ok(c);
	}
	return 0;
}

int resp_do_client_trackinginfo(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	const struct resp_track *track = c->track;
	const struct {
		const char *name;
		bool holds;
	} flag[] = {
		{"off", !track},
		{"on", track},
		{"bcast", track && track->bcast},
		{"optin", track && track->optin},
		{"caching-yes", track && track->caching == CACHING_YES},
		{"optout", track && track->optout},
		{"caching-no", track && track->caching == CACHING_NO},
		{"noloop", track && track->noloop},
		{"broken_redirect", track && track->redirect && !redirect_to(c->thread->shared, track->redirect)},
	};
	size_t n = 0;

	(void)argv, (void)argc;
	for (size_t i = 0; i < ARRAY_SIZE(flag); i++)
		n += flag[i].holds;
	resp_map(c->out, 3);
	resp_bulk_text(c->out, "flags");
	resp_set(c->out, n);
	for (size_t i = 0; i < ARRAY_SIZE(flag); i++)
		if (flag[i].holds)
			resp_bulk_text(c->out, flag[i].name);
	resp_bulk_text(c->out, "redirect");
	resp_number(c->out, atomic_load_explicit(&c->seen.redirect, memory_order_relaxed));
	resp_bulk_text(c->out, "prefixes");
	resp_array(c->out, track ? track->prefixes : 0);
	for (unsigned i = 0; track && i < track->prefixes; i++)
		resp_bulk(c->out, track->prefix[i].at, track->prefix[i].len);
	return 0;
}

int resp_do_client_getredir(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	(void)argv, (void)argc;
	resp_number(c->out, atomic_load_explicit(&c->seen.redirect, memory_order_relaxed));
	return 0;
}
