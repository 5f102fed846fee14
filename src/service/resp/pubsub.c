/*
 * pubsub.c: channels, patterns, and what is published on them.
 *
 * One table, under a lock, has the channels of all workers and their subscribers. A message is handed out by each
 * worker to its own clients: by the one that publishes it at once, by the others from a note in their mailbox. Its
 * bytes are built once for a worker and a version of the protocol, and the streams of all its clients share them.
 *
 * What a command publishes is kept until the step of that command has happened, as a step that others disturb runs
 * again.
 */
#include "service/resp/resp.h"

#include <stdlib.h>

#define SUBSCRIPTIONS_MAX 100000
#define SUBSCRIBED_BYTES (16 * MIB) /* of the names of them */
#define BUCKETS_FIRST 256u

static const char *const subscribe_words[] = {"subscribe", "psubscribe", "ssubscribe"};
static const char *const unsubscribe_words[] = {"unsubscribe", "punsubscribe", "sunsubscribe"};
static const char *const message_words[] = {"message", "pmessage", "smessage"};

struct channel {
	struct channel *next; /* in its bucket */
	struct list node;     /* RESP_PATTERN: in `patterns` */
	struct list subscriptions;
	enum resp_kind kind;
	uint64_t hash;
	unsigned count; /* of subscriptions */
	size_t len;
	char name[];
};

struct subscription {
	struct list of_channel, of_client;
	struct channel *channel;
	struct resp_client *client;
};

struct resp_pubsub {
	pthread_mutex_t lock;
	struct channel **bucket;
	unsigned buckets, channels;
	struct list patterns;
	unsigned count[RESP_KINDS]; /* of channels of that kind */
};

struct words {
	enum resp_kind kind;
	struct resp_arg name, text; /* of the channel, and the message */
	const struct resp_arg *key; /* that it tells of; NULL: none */
};

/* What was published: for another worker, or until the step has happened. */
struct resp_published {
	struct resp_note note;
	struct resp_published *next;
	struct words words;
	char bytes[]; /* of the words */
};

/* As one version of the protocol has it. The worker's own. */
struct message {
	unsigned refs;
	size_t len;
	char bytes[];
};

struct resp_pubsub *resp_pubsub_new(void)
{
	struct resp_pubsub *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->buckets = BUCKETS_FIRST;
	p->bucket = calloc(p->buckets, sizeof(*p->bucket));
	if (!p->bucket) {
		free(p);
		return NULL;
	}
	pthread_mutex_init(&p->lock, NULL);
	list_init(&p->patterns);
	return p;
}

void resp_pubsub_free(struct resp_pubsub *p)
{
	if (!p)
		return;
	must(!p->channels);
	pthread_mutex_destroy(&p->lock);
	free(p->bucket);
	free(p);
}

static struct resp_pubsub *pubsub_of(const struct resp_client *c)
{
	return c->thread->shared->pubsub;
}

/*
 * The table. Under the lock.
 */

static struct channel **channel_place(struct resp_pubsub *p, enum resp_kind kind, uint64_t hash, const char *name,
				      size_t len)
{
	struct channel **at = &p->bucket[hash & (p->buckets - 1)];

	while (*at &&
	       ((*at)->kind != kind || (*at)->hash != hash || (*at)->len != len || memcmp((*at)->name, name, len) != 0))
		at = &(*at)->next;
	return at;
}

static void table_grow(struct resp_pubsub *p)
{
	unsigned buckets = 2 * p->buckets;
	struct channel **bucket = calloc(buckets, sizeof(*bucket));

	if (!bucket)
		return; /* it is slower then */
	for (unsigned i = 0; i < p->buckets; i++) {
		struct channel *channel, *next;

		for (channel = p->bucket[i]; channel; channel = next) {
			next = channel->next;
			channel->next = bucket[channel->hash & (buckets - 1)];
			bucket[channel->hash & (buckets - 1)] = channel;
		}
	}
	free(p->bucket);
	p->bucket = bucket;
	p->buckets = buckets;
}

static struct channel *channel_get(struct resp_pubsub *p, enum resp_kind kind, uint64_t hash,
				   const struct resp_arg *name)
{
	struct channel **at = channel_place(p, kind, hash, name->at, name->len), *channel = *at;

	if (channel)
		return channel;
	channel = malloc(sizeof(*channel) + name->len);
	if (!channel)
		return NULL;
	*channel = (struct channel){.kind = kind, .hash = hash, .len = name->len};
	memcpy(channel->name, name->at, name->len);
	list_init(&channel->subscriptions);
	list_init(&channel->node);
	if (kind == RESP_PATTERN)
		list_add_tail(&p->patterns, &channel->node);
	*at = channel;
	p->count[kind]++;
	if (++p->channels > p->buckets)
		table_grow(p);
	return channel;
}

static _Atomic unsigned *seen_count(struct resp_client *c, enum resp_kind kind)
{
	return kind == RESP_CHANNEL ? &c->seen.channels : kind == RESP_PATTERN ? &c->seen.patterns : &c->seen.shards;
}

static bool hears_of_keys(const struct channel *channel)
{
	return channel->kind != RESP_SHARD &&
	       resp_watch_hears(channel->name, channel->len, channel->kind == RESP_PATTERN);
}

static void subscription_end(struct resp_pubsub *p, struct subscription *s)
{
	struct channel *channel = s->channel;

	s->client->thread->listeners -= hears_of_keys(channel);
	s->client->subscribed -= channel->len;
	atomic_fetch_sub_explicit(seen_count(s->client, channel->kind), 1, memory_order_relaxed);
	list_del(&s->of_client);
	list_del(&s->of_channel);
	free(s);
	if (--channel->count)
		return;
	*channel_place(p, channel->kind, channel->hash, channel->name, channel->len) = channel->next;
	list_del(&channel->node);
	p->count[channel->kind]--;
	p->channels--;
	free(channel);
}

/* The client's subscription to it; NULL: it has none. Each client's list is its own thread's. */
static struct subscription *subscription_find(struct resp_client *c, const struct channel *channel)
{
	/* The shorter list of the two. */
	if (channel->count < resp_subscriptions(c)) {
		list_for_each (pos, &channel->subscriptions) {
			struct subscription *s = container_of(pos, struct subscription, of_channel);

			if (s->client == c)
				return s;
		}
		return NULL;
	}
	list_for_each (pos, &c->subscriptions) {
		struct subscription *s = container_of(pos, struct subscription, of_client);

		if (s->channel == channel)
			return s;
	}
	return NULL;
}

unsigned resp_subscriptions(const struct resp_client *c)
{
	return atomic_load_explicit(&c->seen.channels, memory_order_relaxed) +
	       atomic_load_explicit(&c->seen.patterns, memory_order_relaxed) +
	       atomic_load_explicit(&c->seen.shards, memory_order_relaxed);
}

void resp_pubsub_leave(struct resp_client *c)
{
	struct resp_pubsub *p = pubsub_of(c);
	struct list *pos, *next;

	if (list_empty(&c->subscriptions))
		return;
	pthread_mutex_lock(&p->lock);
	list_for_each_safe (pos, next, &c->subscriptions)
		subscription_end(p, container_of(pos, struct subscription, of_client));
	pthread_mutex_unlock(&p->lock);
	resp_watch_review(c->thread);
}

unsigned resp_pubsub_count(const struct resp_shared *shared, enum resp_kind kind)
{
	struct resp_pubsub *p = shared->pubsub;
	unsigned n;

	pthread_mutex_lock(&p->lock);
	n = p->count[kind];
	pthread_mutex_unlock(&p->lock);
	return n;
}

/*
 * Messages
 */

static void message_put(void *owner, void *item)
{
	struct message *m = owner;

	(void)item;
	if (--m->refs == 0)
		free(m);
}

/* NULL: no memory. `pattern`: the channel by which a client hears of it. */
static struct message *message_new(const struct words *what, const struct channel *by, bool three)
{
	struct resp_out out = {.most = SIZE_MAX, .three = three};
	struct message *m = NULL;

	resp_push(&out, by->kind == RESP_PATTERN ? 4 : 3);
	resp_bulk_text(&out, message_words[by->kind]);
	if (by->kind == RESP_PATTERN)
		resp_bulk(&out, by->name, by->len);
	resp_bulk(&out, what->name.at, what->name.len);
	resp_bulk(&out, what->text.at, what->text.len);
	if (!out.failed)
		m = malloc(sizeof(*m) + out.len);
	if (m) {
		*m = (struct message){.refs = 1, .len = out.len};
		memcpy(m->bytes, out.at, out.len);
	}
	free(out.at);
	return m;
}

/* `visited`: the client whose command published it, if that is one of this thread. Its replies are not written yet. */
static void message_send(struct resp_client *c, struct message *m, const struct resp_client *visited)
{
	if (c == visited) {
		c->pushed = MIN(c->pushed, c->out->len);
		resp_raw(c->out, m->bytes, m->len);
		return;
	}
	m->refs++; /* before: a stream that is closed gives the piece back at once */
	if (!resp_client_push(c, &(struct stream_piece){m->bytes, m->len, message_put, m, m}))
		m->refs--;
}

/* Its rights may be others than those by which it subscribed. */
static bool may_hear(const struct resp_client *c, const struct channel *by, const struct words *what)
{
	const struct auth_client *client = stream_client(c->stream);

	return auth_may(client, AUTH_NAMES, by->name, by->len) &&
	       (!what->key || auth_may(client, AUTH_READ, what->key->at, what->key->len));
}

struct handing {
	struct resp_thread *thread; /* whose clients are looked at */
	const struct words *what;
	const struct resp_client *visited;
	uint64_t subscribers; /* that were found */
};

static void channel_send(const struct channel *channel, struct handing *h)
{
	struct message *m[2] = {NULL, NULL};

	list_for_each (pos, &channel->subscriptions) {
		struct resp_client *c = container_of(pos, struct subscription, of_channel)->client;

		if (c->thread != h->thread || !may_hear(c, channel, h->what))
			continue;
		if (!m[c->three])
			m[c->three] = message_new(h->what, channel, c->three);
		if (m[c->three])
			message_send(c, m[c->three], h->visited);
		else
			stream_close(c->stream, -ENOMEM, "no memory for a message");
	}
	for (unsigned i = 0; i < 2; i++)
		if (m[i])
			message_put(m[i], m[i]);
}

static void channel_count(const struct channel *channel, struct handing *h)
{
	h->subscribers += channel->count;
}

static void channel_look(const struct channel *channel, struct handing *h)
{
	list_for_each (pos, &channel->subscriptions) {
		if (container_of(pos, struct subscription, of_channel)->client->thread == h->thread) {
			h->subscribers = 1;
			return;
		}
	}
}

/* Its subscribers lack a message: they are cut off, so that they know. Under shared->lock, too. */
static void channel_lost(const struct channel *channel, struct handing *h)
{
	list_for_each (pos, &channel->subscriptions) {
		struct resp_client *c = container_of(pos, struct subscription, of_channel)->client;

		if (c->thread == h->thread)
			resp_seen_kill(c, "a message was lost: its worker was busy, and 64 MiB waited already");
	}
}

/* The channel, and each pattern that fits it. */
static void for_channels(struct handing *h, void (*fn)(const struct channel *channel, struct handing *h))
{
	struct resp_pubsub *p = h->thread->shared->pubsub;
	const struct words *what = h->what;
	const struct channel *channel;

	pthread_mutex_lock(&p->lock);
	channel = *channel_place(p, what->kind, store_hash(h->thread->store, what->name.at, what->name.len),
				 what->name.at, what->name.len);
	if (channel)
		fn(channel, h);
	if (what->kind == RESP_CHANNEL) {
		list_for_each (pos, &p->patterns) {
			const struct channel *pattern = container_of(pos, struct channel, node);

			if (resp_match(pattern->name, pattern->len, what->name.at, what->name.len, false))
				fn(pattern, h);
		}
	}
	pthread_mutex_unlock(&p->lock);
}

static void note_came(struct resp_thread *to, struct resp_note *note)
{
	struct resp_published *what = container_of(note, struct resp_published, note);

	if (to)
		for_channels(&(struct handing){.thread = to, .what = &what->words}, channel_send);
	free(what);
}

static struct resp_published *published_new(const struct words *words)
{
	struct resp_published *p = malloc(sizeof(*p) + words->name.len + words->text.len);

	if (!p)
		return NULL;
	*p = (struct resp_published){.note = {.fn = note_came, .bytes = sizeof(*p) + words->name.len + words->text.len},
				     .words = *words};
	p->words.name.at = memcpy(p->bytes, words->name.at, words->name.len);
	p->words.text.at = memcpy(p->bytes + words->name.len, words->text.at, words->text.len);
	return p;
}

/* To the threads that have subscribers of it. */
static void post_to_others(struct resp_thread *thread, const struct resp_published *what)
{
	struct resp_shared *shared = thread->shared;

	pthread_mutex_lock(&shared->lock);
	list_for_each (pos, &shared->threads) {
		struct handing h = {.thread = container_of(pos, struct resp_thread, node), .what = &what->words};
		struct resp_published *copy;

		if (h.thread == thread)
			continue;
		for_channels(&h, channel_look);
		if (!h.subscribers)
			continue;
		copy = published_new(&what->words);
		if (copy && resp_post(h.thread, &copy->note))
			continue;
		free(copy);
		for_channels(&h, channel_lost);
	}
	pthread_mutex_unlock(&shared->lock);
}

void resp_publish_here(struct resp_thread *thread, const struct resp_arg *channel, const struct resp_arg *message,
		       const struct resp_arg *key)
{
	for_channels(
		&(struct handing){.thread = thread, .what = &(struct words){RESP_CHANNEL, *channel, *message, key}},
		channel_send);
}

void resp_publish_drop(struct resp_thread *thread)
{
	while (thread->published) {
		struct resp_published *what = thread->published;

		thread->published = what->next;
		free(what);
	}
	thread->published_last = NULL;
}

void resp_publish_all(struct resp_client *c)
{
	struct resp_thread *thread = c->thread;

	for (const struct resp_published *what = thread->published; what; what = what->next) {
		for_channels(&(struct handing){.thread = thread, .what = &what->words, .visited = c}, channel_send);
		post_to_others(thread, what);
	}
	resp_publish_drop(thread);
}

/*
 * Commands
 */

static bool may_name(struct resp_client *c, const struct resp_arg *name)
{
	if (auth_may(stream_client(c->stream), AUTH_NAMES, name->at, name->len))
		return true;
	c->thread->kv->part.count[KV_COUNT_DENIED]++;
	resp_error(c->out, "NOPERM this user has no permissions to access one of the channels used as arguments");
	return false;
}

static int publish_message(struct resp_client *c, const struct resp_arg *argv, enum resp_kind kind)
{
	struct resp_thread *thread = c->thread;
	struct handing h = {.thread = thread};
	struct resp_published *what;

	if (!may_name(c, &argv[1]))
		return 0;
	what = published_new(&(struct words){kind, argv[1], argv[2], NULL});
	if (!what)
		return -ENOMEM;
	h.what = &what->words;
	for_channels(&h, channel_count); /* that it will reach, as far as one knows now */
	resp_number(c->out, (int64_t)h.subscribers);
	if (thread->published_last)
		thread->published_last->next = what;
	else
		thread->published = what;
	thread->published_last = what;
	return 0;
}

int resp_do_publish(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	(void)argc;
	return publish_message(c, argv, RESP_CHANNEL);
}

int resp_do_spublish(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	(void)argc;
	return publish_message(c, argv, RESP_SHARD);
}

/* Subscriptions to channels and patterns are counted together, those of shards apart. */
static int64_t told_count(struct resp_client *c, enum resp_kind kind)
{
	unsigned shards = atomic_load_explicit(&c->seen.shards, memory_order_relaxed);

	return kind == RESP_SHARD ? shards : resp_subscriptions(c) - shards;
}

static void tell_subscribed(struct resp_client *c, const char *word, enum resp_kind kind, const char *name, size_t len)
{
	c->pushed = MIN(c->pushed, c->out->len);
	resp_push(c->out, 3);
	resp_bulk_text(c->out, word);
	if (name)
		resp_bulk(c->out, name, len);
	else
		resp_null(c->out);
	resp_number(c->out, told_count(c, kind));
}

/* 0, also where it was subscribed already. */
static int subscribe_one(struct resp_client *c, enum resp_kind kind, const struct resp_arg *name)
{
	struct resp_pubsub *p = pubsub_of(c);
	uint64_t hash = store_hash(c->thread->store, name->at, name->len);
	struct subscription *s = malloc(sizeof(*s));
	struct channel *channel;
	int rc = -ENOMEM;

	pthread_mutex_lock(&p->lock);
	channel = s ? channel_get(p, kind, hash, name) : NULL;
	if (channel && !(channel->count && subscription_find(c, channel))) {
		*s = (struct subscription){.channel = channel, .client = c};
		list_add_tail(&channel->subscriptions, &s->of_channel);
		list_add_tail(&c->subscriptions, &s->of_client);
		channel->count++;
		c->thread->listeners += hears_of_keys(channel);
		c->subscribed += channel->len;
		atomic_fetch_add_explicit(seen_count(c, kind), 1, memory_order_relaxed);
		s = NULL;
	}
	rc = channel ? 0 : rc;
	pthread_mutex_unlock(&p->lock);
	free(s);
	return rc == 0 ? resp_watch_review(c->thread) : rc;
}

static int subscribe_all(struct resp_client *c, const struct resp_arg *argv, unsigned argc, enum resp_kind kind)
{
	size_t bytes = c->subscribed;

	for (unsigned i = 1; i < argc; i++) {
		if (!may_name(c, &argv[i]))
			return 0;
		bytes += argv[i].len;
	}
	if (bytes > SUBSCRIBED_BYTES) {
		resp_error(c->out, "ERR more than %llu bytes of names of one client's subscriptions",
			   (unsigned long long)SUBSCRIBED_BYTES);
		return 0;
	}
	if (resp_subscriptions(c) + argc > SUBSCRIPTIONS_MAX) {
		resp_error(c->out, "ERR more than %u subscriptions of one client", SUBSCRIPTIONS_MAX);
		return 0;
	}
	for (unsigned i = 1; i < argc; i++) {
		int rc = subscribe_one(c, kind, &argv[i]);

		if (rc != 0)
			return rc;
		tell_subscribed(c, subscribe_words[kind], kind, argv[i].at, argv[i].len);
	}
	return 0;
}

static void unsubscribe_one(struct resp_client *c, enum resp_kind kind, const struct resp_arg *name)
{
	struct resp_pubsub *p = pubsub_of(c);
	uint64_t hash = store_hash(c->thread->store, name->at, name->len);
	struct subscription *s;
	struct channel *channel;

	pthread_mutex_lock(&p->lock);
	channel = *channel_place(p, kind, hash, name->at, name->len);
	s = channel ? subscription_find(c, channel) : NULL;
	if (s)
		subscription_end(p, s);
	pthread_mutex_unlock(&p->lock);
	tell_subscribed(c, unsubscribe_words[kind], kind, name->at, name->len);
}

/* From all of a kind; each is told. */
static int unsubscribe_all(struct resp_client *c, enum resp_kind kind)
{
	struct resp_pubsub *p = pubsub_of(c);
	struct list *pos, *next;
	bool any = false;

	list_for_each_safe (pos, next, &c->subscriptions) {
		struct subscription *s = container_of(pos, struct subscription, of_client);
		struct resp_arg name = {s->channel->name, s->channel->len};
		char *copy;

		if (s->channel->kind != kind)
			continue;
		copy = malloc(name.len + 1);
		if (!copy)
			return -ENOMEM;
		memcpy(copy, name.at, name.len);
		pthread_mutex_lock(&p->lock);
		subscription_end(p, s);
		pthread_mutex_unlock(&p->lock);
		tell_subscribed(c, unsubscribe_words[kind], kind, copy, name.len);
		free(copy);
		any = true;
	}
	if (!any)
		tell_subscribed(c, unsubscribe_words[kind], kind, NULL, 0);
	return 0;
}

static int unsubscribe_names(struct resp_client *c, const struct resp_arg *argv, unsigned argc, enum resp_kind kind)
{
	int rc = argc == 1 ? unsubscribe_all(c, kind) : 0;

	for (unsigned i = 1; i < argc; i++)
		unsubscribe_one(c, kind, &argv[i]);
	resp_watch_review(c->thread);
	return rc;
}

int resp_do_subscribe(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return subscribe_all(c, argv, argc, RESP_CHANNEL);
}

int resp_do_psubscribe(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return subscribe_all(c, argv, argc, RESP_PATTERN);
}

int resp_do_ssubscribe(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return subscribe_all(c, argv, argc, RESP_SHARD);
}

int resp_do_unsubscribe(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return unsubscribe_names(c, argv, argc, RESP_CHANNEL);
}

int resp_do_punsubscribe(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return unsubscribe_names(c, argv, argc, RESP_PATTERN);
}

int resp_do_sunsubscribe(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return unsubscribe_names(c, argv, argc, RESP_SHARD);
}

static bool is_listed(const struct channel *channel, enum resp_kind kind, const struct resp_arg *pattern)
{
	return channel->kind == kind &&
	       (!pattern || resp_match(pattern->at, pattern->len, channel->name, channel->len, false));
}

static int list_channels(struct resp_client *c, const struct resp_arg *argv, unsigned argc, enum resp_kind kind)
{
	const struct resp_arg *pattern = argc > 2 ? &argv[2] : NULL;
	struct resp_pubsub *p = pubsub_of(c);
	size_t n = 0;

	if (argc > 3)
		return resp_no_sub(c, argv);
	pthread_mutex_lock(&p->lock);
	for (unsigned i = 0; i < p->buckets; i++)
		for (const struct channel *channel = p->bucket[i]; channel; channel = channel->next)
			n += is_listed(channel, kind, pattern);
	resp_array(c->out, n);
	for (unsigned i = 0; i < p->buckets && n; i++)
		for (const struct channel *channel = p->bucket[i]; channel; channel = channel->next)
			if (is_listed(channel, kind, pattern))
				resp_bulk(c->out, channel->name, channel->len);
	pthread_mutex_unlock(&p->lock);
	return 0;
}

static int count_subscribers(struct resp_client *c, const struct resp_arg *argv, unsigned argc, enum resp_kind kind)
{
	struct resp_pubsub *p = pubsub_of(c);

	resp_array(c->out, 2 * (size_t)(argc - 2));
	for (unsigned i = 2; i < argc; i++) {
		uint64_t hash = store_hash(c->thread->store, argv[i].at, argv[i].len);
		const struct channel *channel;

		pthread_mutex_lock(&p->lock);
		channel = *channel_place(p, kind, hash, argv[i].at, argv[i].len);
		resp_bulk(c->out, argv[i].at, argv[i].len);
		resp_number(c->out, channel ? channel->count : 0);
		pthread_mutex_unlock(&p->lock);
	}
	return 0;
}

int resp_do_pubsub_channels(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return list_channels(c, argv, argc, RESP_CHANNEL);
}

int resp_do_pubsub_shardchannels(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return list_channels(c, argv, argc, RESP_SHARD);
}

int resp_do_pubsub_numsub(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return count_subscribers(c, argv, argc, RESP_CHANNEL);
}

int resp_do_pubsub_shardnumsub(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return count_subscribers(c, argv, argc, RESP_SHARD);
}

int resp_do_pubsub_numpat(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_pubsub *p = pubsub_of(c);

	(void)argv, (void)argc;
	pthread_mutex_lock(&p->lock);
	resp_number(c->out, p->count[RESP_PATTERN]);
	pthread_mutex_unlock(&p->lock);
	return 0;
}

int resp_do_pubsub_help(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	static const char *const lines[] = {
		"PUBSUB <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
		"CHANNELS [<pattern>]",
		"    Return the currently active channels matching a <pattern> (default: '*').",
		"NUMPAT",
		"    Return number of subscriptions to patterns.",
		"NUMSUB [<channel> ...]",
		"    Return the number of subscribers for the specified channels, excluding",
		"    pattern subscriptions(default: no channels).",
		"SHARDCHANNELS [<pattern>]",
		"    Return the currently active shard level channels matching a <pattern> (default: '*').",
		"SHARDNUMSUB [<shardchannel> ...]",
		"    Return the number of subscribers for the specified shard level channel(s)",
		"HELP",
		"    Prints this help.",
	};

	(void)argv, (void)argc;
	return resp_help(c, lines, ARRAY_SIZE(lines));
}

/* A client of RESP2 that has subscriptions could not tell messages from replies. */
bool resp_pubsub_allows(struct resp_client *c, const struct resp_command *command)
{
	if (c->three || !resp_subscriptions(c))
		return true;
	switch (command->id) {
	case RESP_CMD_SUBSCRIBE:
	case RESP_CMD_PSUBSCRIBE:
	case RESP_CMD_SSUBSCRIBE:
	case RESP_CMD_UNSUBSCRIBE:
	case RESP_CMD_PUNSUBSCRIBE:
	case RESP_CMD_SUNSUBSCRIBE:
	case RESP_CMD_PING:
	case RESP_CMD_QUIT:
	case RESP_CMD_RESET:
		return true;
	default:
		resp_error(c->out,
			   "ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are "
			   "allowed in this context",
			   command->name);
		return false;
	}
}
