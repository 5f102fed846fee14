/*
 * client.c: a connection: bytes to commands, what the client may, answers on their way.
 *
 * A visit of the stream carries out the commands that came, as far as the turn has time, and writes all their answers
 * at once. A value is there with its command, or, if it is a long one, goes from the socket to its place in the arena,
 * while the command's line is kept.
 */
#include "service/memcached/memcached.h"

#include <stdlib.h>

#define LARGE (16 * KIB)            /* values from this length on go to their place at once */
#define OUT_KEPT (256 * KIB)        /* the buffer of answers is kept up to here */
#define DAYS_30 (60 * 60 * 24 * 30) /* a longer time is one since 1970 */

/*
 * Answers
 */

int memcached_say(struct memcached_client *c, const struct memc_command *command, const char *text)
{
	if (!command->quiet)
		memc_line(c->out, text);
	return 0;
}

int memcached_fault(struct memcached_client *c, const struct memc_command *command, const char *text)
{
	if (!command->quiet || command->meta)
		memc_line(c->out, text);
	return 0;
}

uint64_t memcached_expires(const struct memcached_client *c, int32_t exptime)
{
	uint64_t now = memcached_now(c);

	if (exptime == 0)
		return TIME_NEVER;
	if (exptime < 0)
		return now;
	return exptime > DAYS_30 ? text_expires_at(now, (int64_t)exptime * 1000) : now + (uint64_t)exptime * TIME_S;
}

uint64_t memcached_expires_made(const struct memcached_client *c, const struct memc_command *command)
{
	int32_t exptime = 0;

	for (unsigned i = 0; i < command->flags; i++)
		if (memc_letter(&command->flag[i]) == 'T')
			exptime = command->exptime;
		else if (memc_letter(&command->flag[i]) == 'N')
			exptime = command->vivify_exptime;
	return memcached_expires(c, exptime);
}

int64_t memcached_ttl(const struct memcached_client *c, uint64_t expires)
{
	uint64_t now = memcached_now(c);

	if (expires == TIME_NEVER)
		return -1;
	return expires > now ? (int64_t)((expires - now + TIME_S - 1) / TIME_S) : 0;
}

void memcached_tell(struct memcached_client *c, const struct memc_word *key, uint64_t version)
{
	if (c->thread->kv->committed == UINT64_MAX)
		return;
	c->tells = MAX(c->tells, version ? version : store_removed(c->thread->store, key->at, key->len));
}

void memcached_tell_all(struct memcached_client *c)
{
	if (c->thread->kv->committed != UINT64_MAX)
		c->tells = MAX(c->tells, store_lsn(c->thread->store));
}

static int answer_errno(struct memcached_client *c, const struct memc_command *command, int error)
{
	switch (-error) {
	case ENOMEM:
		memcached_count(c, MEMCACHED_STORE_NO_MEMORY);
		return memcached_fault(c, command, "SERVER_ERROR out of memory storing object");
	case EDQUOT:
		c->thread->kv->part.count[KV_COUNT_OVER_QUOTA]++;
		return memcached_fault(c, command,
				       "SERVER_ERROR out of memory storing object: the client has stored as much as it "
				       "may, see stored= in rdmad-auth(7)");
	case EFBIG:
		memcached_count(c, MEMCACHED_STORE_TOO_LARGE);
		return memcached_fault(c, command, "SERVER_ERROR object too large for cache");
	case EINVAL:
		return memcached_fault(c, command, "CLIENT_ERROR bad command line format");
	case EACCES:
		c->thread->kv->part.count[KV_COUNT_DENIED]++;
		return memcached_fault(c, command,
				       "CLIENT_ERROR the client has no right to do this, see rdmad-auth(7)");
	case EREMOTE:
		c->thread->kv->part.count[KV_COUNT_ELSEWHERE]++;
		return memcached_fault(c, command, "SERVER_ERROR another server has the key, see rdmad-cluster(7)");
	case EROFS:
		return memcached_fault(c, command, "SERVER_ERROR the log takes no writes, see rdmactl log status");
	default:
		return memcached_fault(c, command, "SERVER_ERROR out of memory");
	}
}

/* The answers of this visit go to the stream. */
static void client_write(struct memcached_client *c)
{
	struct memcached_thread *thread = c->thread;
	struct memc_out *out = &thread->out;

	memcached_add(c, MEMCACHED_BYTES_WRITTEN, out->len + thread->pins.bytes);
	text_gate_hold(&c->gate, c->tells);
	text_write(c->stream, thread->store, &thread->pins, out->at, out->len);
	out->len = 0;
	if (out->room > OUT_KEPT) {
		free(out->at);
		out->at = NULL;
		out->room = 0;
	}
}

/*
 * Commands
 */

static bool may_read(const struct memcached_client *c, struct memc_command *command)
{
	const struct auth_client *client = stream_client(c->stream);
	struct memc_word rest = command->rest, key;
	bool may = true;

	if (command->id != MEMC_GET)
		return auth_may(client, AUTH_READ, command->key.at, command->key.len);
	while (may && memc_next_key(command, &key))
		may = auth_may(client, AUTH_READ, key.at, key.len) &&
		      (!command->touches || auth_may(client, AUTH_WRITE, key.at, key.len));
	command->rest = rest;
	return may;
}

enum { READS = 1, WRITES = 2 };

/* What it does with its key. A number that is told was read, too. */
static unsigned access_of(const struct memc_command *command)
{
	switch (command->id) {
	case MEMC_GET:
		return READS;
	case MEMC_META_GET:
		return command->vivify || command->has_exptime || command->recache ? READS | WRITES : READS;
	case MEMC_META_DEBUG:
		return READS;
	case MEMC_SET:
	case MEMC_ADD:
	case MEMC_REPLACE:
	case MEMC_APPEND:
	case MEMC_PREPEND:
	case MEMC_CAS:
	case MEMC_DELETE:
	case MEMC_TOUCH:
	case MEMC_META_SET:
	case MEMC_META_DELETE:
		return WRITES;
	case MEMC_INCR:
	case MEMC_DECR:
	case MEMC_META_COUNT:
		return READS | WRITES;
	default:
		return 0;
	}
}

/* 0; -EREMOTE: another server has one of its keys; -EAGAIN: that is about to be so. */
static int find_keys(struct memcached_client *c, struct memc_command *command)
{
	const struct kv_cluster *cluster = c->thread->shared->kv->cluster;
	const struct kv_view *view = kv_cluster_view(cluster);
	struct memc_word rest = command->rest, key;
	bool elsewhere = false;
	unsigned slot = 0;

	if (command->id != MEMC_GET)
		elsewhere = kv_view_elsewhere(view, command->key.at, command->key.len, &slot);
	else
		while (!elsewhere && memc_next_key(command, &key))
			elsewhere = kv_view_elsewhere(view, key.at, key.len, &slot);
	command->rest = rest;
	if (likely(!elsewhere))
		return 0;
	c->held = kv_view_holds(cluster, view, slot);
	return c->held ? -EAGAIN : -EREMOTE;
}

/* 0, -EACCES, -EROFS. */
static int client_may_do(const struct memcached_client *c, struct memc_command *command)
{
	const struct auth_client *client = stream_client(c->stream);
	unsigned access = access_of(command);
	bool writes = access & WRITES || command->id == MEMC_FLUSH || command->touches;

	if (writes && kv_gate_refused(c->thread->kv))
		return -EROFS;
	if (likely(auth_has_all(client)))
		return 0;
	if (command->id == MEMC_FLUSH)
		return client->flush ? 0 : -EACCES;
	if ((access & READS && !may_read(c, command)) ||
	    (access & WRITES && !auth_may(client, AUTH_WRITE, command->key.at, command->key.len)))
		return -EACCES;
	return 0;
}

static int client_may(struct memcached_client *c, struct memc_command *command)
{
	int rc = client_may_do(c, command);

	if (rc == 0 && unlikely(c->thread->shared->kv->cluster) && access_of(command))
		rc = find_keys(c, command);
	return rc;
}

static int carry_out(struct memcached_client *c, struct memc_command *command, const struct memcached_data *data)
{
	switch (command->id) {
	case MEMC_GET:
		return memcached_get(c, command);
	case MEMC_SET:
	case MEMC_ADD:
	case MEMC_REPLACE:
	case MEMC_CAS:
		return memcached_store(c, command, data);
	case MEMC_APPEND:
	case MEMC_PREPEND:
		return memcached_append(c, command, data);
	case MEMC_META_SET:
		return command->mode == MEMC_APPEND || command->mode == MEMC_PREPEND
			       ? memcached_append(c, command, data)
			       : memcached_store(c, command, data);
	case MEMC_INCR:
	case MEMC_DECR:
		return memcached_count_by(c, command);
	case MEMC_DELETE:
		return memcached_delete(c, command);
	case MEMC_TOUCH:
		return memcached_touch(c, command);
	case MEMC_FLUSH:
		return memcached_flush(c, command);
	case MEMC_VERSION:
		return memcached_say(c, command, "VERSION " MEMCACHED_VERSION);
	case MEMC_VERBOSITY:
		return memcached_say(c, command, "OK");
	case MEMC_STATS:
		return memcached_stats(c, command);
	case MEMC_META_GET:
		return memcached_meta_get(c, command);
	case MEMC_META_DELETE:
		return memcached_meta_delete(c, command);
	case MEMC_META_COUNT:
		return memcached_meta_count(c, command);
	case MEMC_META_NOOP:
		return memcached_say(c, command, "MN");
	case MEMC_META_DEBUG:
		return memcached_meta_debug(c, command);
	case MEMC_QUIT:
	case MEMC_CLOSE:
		c->closing = true;
		return 0;
	case MEMC_FAULTY:
		break;
	}
	return memcached_say(c, command, command->error);
}

/* A whole command. 0: it was answered; -EAGAIN. */
static int client_command(struct memcached_client *c, struct memc_command *command, const struct memcached_data *data)
{
	size_t len = c->out->len;
	unsigned pins = c->thread->pins.count;
	struct memc_word rest = command->rest;
	int rc = command->error ? memcached_say(c, command, command->error) : client_may(c, command);

	if (rc == 0 && !command->error)
		rc = carry_out(c, command, data);
	if (likely(rc == 0 && !c->out->failed))
		return 0;
	command->rest = rest;
	text_pins_cut(&c->thread->pins, c->thread->store, pins);
	c->out->len = len;
	if (rc == -EAGAIN && !c->out->failed)
		return rc;
	if (c->out->failed) {
		c->out->failed = false;
		memc_line(c->out, "SERVER_ERROR out of memory writing get response");
		c->closing = c->out->failed;
		c->out->failed = false;
		return 0;
	}
	return command->stores && (rc == -ENOMEM || rc == -EFBIG || rc == -EDQUOT)
		       ? answer_errno(c, command, memcached_not_stored(c, command, rc))
		       : answer_errno(c, command, rc);
}

/* The same, while slow commands are logged. */
static __attribute__((cold, noinline)) int
client_command_timed(struct memcached_client *c, struct memc_command *command, const struct memcached_data *data)
{
	size_t before = c->out->len + c->thread->pins.bytes;
	struct service_slow_request slow = {.operation = memc_command_name(command), .size = data->len};
	struct memc_word key = command->key, rest = command->rest;
	int rc;

	if (command->id == MEMC_GET)
		memc_next_key(command, &key);
	command->rest = rest;
	text_slow_begin(&c->begun);
	rc = client_command(c, command, data);
	if (rc != 0)
		return rc;
	slow.size += MAX(c->out->len + c->thread->pins.bytes, before) - before;
	slow.key = key.len ? key.at : NULL;
	slow.key_len = key.len;
	text_slow_end(&c->thread->part, c->stream, &c->begun, &slow);
	return 0;
}

static enum service_class class_of(const struct memc_command *command)
{
	if (command->id == MEMC_FLUSH)
		return SERVICE_SCAN;
	return access_of(command) & WRITES || command->touches ? SERVICE_WRITE : SERVICE_READ;
}

static int client_serve(struct memcached_client *c, struct memc_command *command, const struct memcached_data *data)
{
	int rc;

	if (text_slow_is_on(&c->thread->part, c->begun))
		rc = client_command_timed(c, command, data);
	else
		rc = client_command(c, command, data);
	if (likely(rc == 0)) {
		text_gate_answered(&c->gate, class_of(command), c->since, c->tells);
		c->since = 0;
		return 0;
	}
	c->since = c->since ? c->since : memcached_now(c);
	text_again(c->stream, c->thread->shared->kv, c->held);
	c->held = false;
	return rc;
}

/*
 * Long values
 */

/* The next bytes of it. */
static void large_go(struct memcached_client *c)
{
	const struct memc_command *command = &c->parser.command;
	const struct store_put put = memcached_put(c, command);
	const struct kv_shared *kv = c->thread->shared->kv;

	text_value_go(&c->large, c->stream, kv, command->key.at, &put, kv->value_max);
}

/* The line is kept. What the client may not store is not given a place. */
static ssize_t large_begin(struct memcached_client *c, const char *at)
{
	struct memc_command *command = &c->parser.command;
	size_t len = c->parser.used;

	c->line.at = malloc(len);
	if (!c->line.at)
		return -ENOMEM;
	memcpy(c->line.at, at, len);
	c->line.len = len;
	memc_parse(&c->parser, c->line.at, len); /* its words are in the line that is kept */
	c->large = (struct text_value){.len = command->value_len,
				       .key_len = command->key.len,
				       .error = command->error ? -EPROTO : client_may(c, command),
				       .coming = true};
	if (c->large.error == -EAGAIN) /* it is looked at once more when all of it is here */
		c->large.error = 0, c->held = false;
	c->since = memcached_now(c);
	large_go(c);
	return (ssize_t)len;
}

static void client_received(struct stream *stream)
{
	struct memcached_client *c = stream_context(stream);

	if (c->large.done < c->large.len) {
		large_go(c);
		return;
	}
	c->large.coming = false;
	if (c->large.ref.item)
		service_part_moved(&c->thread->part, SERVICE_IN, c->since);
}

/* Behind a long value: the line's end, by which it is whole. */
static ssize_t large_finish(struct memcached_client *c, const char *at, size_t len)
{
	struct memc_command *command = &c->parser.command;
	struct memcached_data data = {c->large.at, c->large.len, &c->large.ref};
	bool ends = c->pending || (len >= 2 && memcmp(at, "\r\n", 2) == 0);
	int rc = c->large.error;

	if (!c->pending && len < 2)
		return 0;
	if (command->error)
		memcached_say(c, command, command->error);
	else if (rc != 0)
		answer_errno(c, command, memcached_not_stored(c, command, rc));
	else if (!ends)
		memcached_fault(c, command, "CLIENT_ERROR bad data chunk");
	else if (client_serve(c, command, &data) != 0) {
		bool again = c->pending;

		c->pending = true;
		return again ? 0 : 2;
	}
	rc = c->pending;
	text_value_end(&c->large, c->thread->store);
	free(c->line.at);
	c->line.at = NULL;
	c->line.len = 0;
	c->pending = false;
	c->since = 0;
	return rc ? 0 : 2;
}

/*
 * Bytes
 */

/* One command at most of the bytes; how many were used, or -errno. *whole: there was one. */
static ssize_t client_take(struct memcached_client *c, const char *at, size_t len, bool *whole)
{
	struct memc_command *command = &c->parser.command;
	struct memcached_data data = {NULL, 0, NULL};
	size_t used;
	ssize_t n;

	*whole = false;
	if (unlikely(c->line.at)) {
		n = large_finish(c, at, len);
		*whole = !c->line.at;
		return n;
	}
	if (unlikely(!c->authenticated)) {
		n = memcached_login(c, at, len);
		*whole = n > 0;
		return n;
	}
	switch (memc_parse(&c->parser, at, len)) {
	case MEMC_MORE:
		return 0;
	case MEMC_BAD:
		return -EPROTO;
	case MEMC_COMMAND:
		break;
	}
	used = c->parser.used;
	if (command->stores) {
		if (command->value_len >= LARGE)
			return large_begin(c, at);
		if (len - used < command->value_len + 2)
			return 0;
		data.at = at + used;
		data.len = command->value_len;
		used += command->value_len + 2;
		if (!command->error && data.len <= c->thread->shared->kv->value_max &&
		    memcmp(data.at + data.len, "\r\n", 2) != 0)
			command->error = "CLIENT_ERROR bad data chunk";
		command->quiet &= !command->error || !command->meta;
	}
	if (client_serve(c, command, &data) != 0)
		return 0;
	*whole = true;
	return (ssize_t)used;
}

static ssize_t client_bytes(struct stream *stream, const char *at, size_t len)
{
	struct memcached_client *c = stream_context(stream);
	unsigned commands = 0;
	bool whole = true;
	ssize_t n = 0;
	size_t used = 0;

	if (unlikely(!c->spoke)) {
		c->spoke = true;
		if ((uint8_t)*at == MEMC_BINARY) {
			stream_close(stream, -EPROTO,
				     "it speaks memcached's binary protocol; have it speak text or meta, see "
				     "rdmad-memcached(7)");
			return 0;
		}
	}
	if (c->large.coming) { /* it waited for room */
		large_go(c);
		return 0;
	}
	text_gate_begin(&c->gate);
	while ((used < len || c->pending) && whole && text_goes_on(stream, &c->thread->pins, c->out->len, ++commands) &&
	       !c->closing) {
		n = client_take(c, at + used, len - used, &whole);
		used += n > 0 ? (size_t)n : 0;
	}
	memcached_add(c, MEMCACHED_BYTES_READ, used);
	client_write(c);
	stream_served(stream, commands - !(whole && used == len));
	text_visited(stream, commands, c->closing, whole && n >= 0 && used < len);
	return n < 0 ? n : (ssize_t)used;
}

/*
 * Life
 */

struct memcached_client *memcached_client_new(struct memcached_thread *thread, int fd)
{
	struct memcached_client *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->thread = thread;
	c->out = &thread->out;
	c->fd = fd;
	return c;
}

void memcached_client_free(struct memcached_client *c)
{
	free(c->line.at);
	free(c);
}

void memcached_client_revised(struct memcached_client *c)
{
	const struct auth_client *client = stream_client(c->stream);

	c->authenticated = client != &auth_nothing && client->services & 1u << WIRE_MEMCACHED;
	if (!c->authenticated)
		c->parser.at = 0; /* what was looked at goes by memcached_login() */
	c->owner = kv_owner_of(c->thread->shared->kv, client);
}

void memcached_client_begin(struct memcached_client *c, struct stream *stream)
{
	c->stream = stream;
	text_gate_init(&c->gate, &c->thread->part, c->thread->kv, stream);
	memcached_client_revised(c);
	atomic_fetch_add_explicit(&c->thread->shared->clients, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&c->thread->shared->accepted, 1, memory_order_relaxed);
}

static bool client_revised(struct stream *stream)
{
	struct memcached_client *c = stream_context(stream);

	memcached_client_revised(c);
	return c->authenticated;
}

static bool client_quiet(const struct stream *stream)
{
	const struct memcached_client *c = stream_context(stream);

	return !c->line.at;
}

static void client_closed(struct stream *stream, int error, const char *reason)
{
	struct memcached_client *c = stream_context(stream);

	text_log_closed(stream, "memcached", error, reason);
	atomic_fetch_sub_explicit(&c->thread->shared->clients, 1, memory_order_relaxed);
	text_gate_end(&c->gate);
	text_value_end(&c->large, c->thread->store);
	memcached_client_free(c);
}

const struct stream_ops memcached_stream_ops = {
	.bytes = client_bytes,
	.received = client_received,
	.revised = client_revised,
	.quiet = client_quiet,
	.closed = client_closed,
};
