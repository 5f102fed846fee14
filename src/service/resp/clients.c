/*
 * clients.c: what is seen of a client, of any thread: CLIENT LIST, INFO and KILL, and what a client says of itself.
 *
 * All of it is under shared->lock, but for the numbers that a client's own thread stores at the end of each visit.
 */
#include "service/resp/server.h"

#include <stdio.h>
#include <stdlib.h>

#define NAME_MAX_BYTES 1024 /* of what a client says of itself */

#define for_each_client(c, shared)                                                                                     \
	for (struct list *pos_ = (shared)->clients.next;                                                               \
	     pos_ != &(shared)->clients && ((c) = container_of(pos_, struct resp_client, node)); pos_ = pos_->next)

/* As Redis writes it: of a UNIX socket the path, which is behind a scheme here, and ":0". */
static char *address_text(const char *address, const char *local, bool is_unix)
{
	const char *path = strchr(local, ':');
	char text[160];

	if (is_unix)
		snprintf(text, sizeof(text), "%s:0", path ? path + 1 : local);
	else
		snprintf(text, sizeof(text), "%s", address);
	return strdup(text);
}

void resp_seen_begin(struct resp_client *c)
{
	struct resp_seen *seen = &c->seen;
	struct stream_info info;
	socklen_t len = sizeof(int);
	int family = AF_INET;

	stream_get_info(c->stream, &info);
	getsockopt(info.fd, SOL_SOCKET, SO_DOMAIN, &family, &len);
	seen->is_unix = family == AF_UNIX;
	seen->peer = address_text(info.peer, info.local, seen->is_unix);
	seen->local = address_text(info.local, info.local, seen->is_unix);
	seen->opened = info.opened;
	seen->fd = info.fd;
	atomic_init(&seen->command, NULL);
	atomic_init(&seen->active, info.opened);
	atomic_init(&seen->kept, -1);
	atomic_init(&seen->redirect, -1);
}

void resp_seen_end(struct resp_client *c)
{
	free(c->seen.name);
	free(c->seen.library);
	free(c->seen.library_version);
	free(c->seen.peer);
	free(c->seen.local);
}

#define SET(atomic, value) atomic_store_explicit(&(atomic), value, memory_order_relaxed)
#define GET(atomic) atomic_load_explicit(&(atomic), memory_order_relaxed)

void resp_seen_commands(struct resp_client *c)
{
	SET(c->seen.command, c->command);
	SET(c->seen.active, resp_now(c));
	SET(c->seen.kept, resp_multi_open(c) ? (int)MIN(resp_multi_count(c), (unsigned)INT32_MAX) : -1);
}

void resp_seen_visit(struct resp_client *c, size_t unused)
{
	struct resp_figures *figures = &c->thread->figures;
	struct stream_stats stats;

	SET(c->seen.unused, unused);
	SET(c->seen.waiting, stream_waiting(c->stream));
	stream_group_get_stats(stream_group_of(c->stream), &stats);
	SET(figures->reads, stats.reads);
	SET(figures->writes, stats.writes);
	SET(figures->bytes_in, stats.bytes_in);
	SET(figures->bytes_out, stats.bytes_out);
	SET(figures->buffer_bytes, stats.buffer_bytes);
	SET(figures->waiting_bytes, stats.waiting_bytes);
}

void resp_seen_user(struct resp_client *c)
{
	const struct auth_admission *admission = stream_admission(c->stream);
	const char *name = admission->key ? admission->key->name : RESP_DEFAULT_USER;

	if (strcmp(c->seen.user, name) == 0)
		return;
	pthread_mutex_lock(&c->thread->shared->lock);
	snprintf(c->seen.user, sizeof(c->seen.user), "%s", name);
	pthread_mutex_unlock(&c->thread->shared->lock);
}

/*
 * CLIENT LIST and INFO
 */

static void put_text(struct resp_out *text, const char *label, const char *value)
{
	resp_print(text, " %s=", label);
	if (value)
		resp_raw(text, value, strlen(value));
}

static const char *flags_of(const struct resp_client *c, char out[static 16])
{
	const struct resp_seen *seen = &c->seen;
	char *at = out;

	if (GET(seen->channels) + GET(seen->patterns) + GET(seen->shards))
		*at++ = 'P';
	if (GET(seen->kept) >= 0)
		*at++ = 'x';
	if (GET(seen->tracking))
		*at++ = 't';
	if (GET(seen->tracking) == 'B')
		*at++ = 'B';
	if (seen->end)
		*at++ = 'A';
	if (seen->is_unix)
		*at++ = 'U';
	if (seen->no_evict)
		*at++ = 'e';
	if (seen->no_touch)
		*at++ = 'T';
	if (at == out)
		*at++ = 'N';
	*at = '\0';
	return out;
}

static uint64_t seconds_since(uint64_t now, uint64_t then)
{
	return now > then ? (now - then) / TIME_S : 0;
}

static void tell_client(struct resp_out *text, const struct resp_client *c, uint64_t now)
{
	const struct resp_seen *seen = &c->seen;
	const struct resp_command *command = GET(seen->command);
	uint64_t unused = GET(seen->unused), waiting = GET(seen->waiting);
	char flags[16];

	resp_print(text, "id=%llu addr=%s laddr=%s fd=%d", (unsigned long long)c->id, seen->peer ? seen->peer : "?:0",
		   seen->local ? seen->local : "?:0", seen->fd);
	put_text(text, "name", seen->name);
	resp_print(text, " age=%llu idle=%llu flags=%s db=0 sub=%u psub=%u ssub=%u multi=%d",
		   (unsigned long long)seconds_since(now, seen->opened),
		   (unsigned long long)seconds_since(now, GET(seen->active)), flags_of(c, flags), GET(seen->channels),
		   GET(seen->patterns), GET(seen->shards), GET(seen->kept));
	resp_print(text,
		   " qbuf=%llu qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=%d omem=%llu tot-mem=%llu",
		   (unsigned long long)unused, waiting != 0, (unsigned long long)waiting,
		   (unsigned long long)(unused + waiting + sizeof(*c)));
	resp_print(text, " events=%s cmd=%s user=%s redir=%lld resp=%d", waiting ? "rw" : "r",
		   command ? command->name : "NULL", seen->user, (long long)GET(seen->redirect), seen->three ? 3 : 2);
	put_text(text, "lib-name", seen->library);
	put_text(text, "lib-ver", seen->library_version);
	resp_raw(text, "\n", 1);
}

static int answer_text(struct resp_client *c, struct resp_out *text)
{
	if (text->failed)
		resp_error(c->out, "ERR no memory for the reply");
	else
		resp_verbatim(c->out, text->len ? text->at : "", text->len);
	free(text->at);
	return 0;
}

int resp_do_client_info(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_out text = {.most = MIB};

	resp_seen_commands(c);
	pthread_mutex_lock(&c->thread->shared->lock);
	tell_client(&text, c, resp_now(c));
	pthread_mutex_unlock(&c->thread->shared->lock);
	return answer_text(c, &text);
}

enum type { TYPE_ANY, TYPE_NORMAL, TYPE_PUBSUB, TYPE_NONE /* a server: there are none */ };

static bool read_type(struct resp_client *c, const struct resp_arg *arg, enum type *out)
{
	if (resp_is(arg, "normal"))
		*out = TYPE_NORMAL;
	else if (resp_is(arg, "pubsub"))
		*out = TYPE_PUBSUB;
	else if (resp_is(arg, "master") || resp_is(arg, "replica") || resp_is(arg, "slave"))
		*out = TYPE_NONE;
	else
		resp_error(c->out, "ERR Unknown client type '%.*s'", (int)MIN(arg->len, 128u), arg->at);
	return *out != TYPE_ANY;
}

static bool has_type(const struct resp_client *c, enum type type)
{
	bool subscribed = GET(c->seen.channels) + GET(c->seen.patterns) + GET(c->seen.shards);

	return type == TYPE_ANY || type == (subscribed ? TYPE_PUBSUB : TYPE_NORMAL);
}

/* Whether a client is told of another one, and may end it: of its own user, unless it may do everything. */
static bool sees_client(const struct resp_client *c, const struct resp_client *other)
{
	return auth_has_all(stream_client(c->stream)) || strcmp(c->seen.user, other->seen.user) == 0;
}

static int compare_numbers(const void *a, const void *b)
{
	const int64_t *one = a, *other = b;

	return (*one > *other) - (*one < *other);
}

int resp_do_client_list(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_shared *shared = c->thread->shared;
	struct resp_out text = {.most = c->out->most};
	const struct resp_client *other;
	enum type type = TYPE_ANY;
	int64_t *id = NULL;
	size_t ids = 0;

	if (argc == 4 && resp_is(&argv[2], "type")) {
		if (!read_type(c, &argv[3], &type))
			return 0;
	} else if (argc > 3 && resp_is(&argv[2], "id")) {
		id = calloc(argc, sizeof(*id));
		for (ids = 0; id && ids < argc - 3; ids++)
			if (!resp_read_int64(argv[ids + 3].at, argv[ids + 3].len, &id[ids]) || id[ids] < 1)
				break;
		if (ids < argc - 3) {
			resp_error(c->out, "ERR Invalid client ID");
			free(id);
			return 0;
		}
		qsort(id, ids, sizeof(*id), compare_numbers);
	} else if (argc != 2) {
		return resp_syntax_error(c);
	}
	resp_seen_commands(c);
	pthread_mutex_lock(&shared->lock);
	for_each_client(other, shared)
	{
		int64_t of = (int64_t)other->id;

		if (sees_client(c, other) && has_type(other, type) &&
		    (!id || bsearch(&of, id, ids, sizeof(*id), compare_numbers)))
			tell_client(&text, other, resp_now(c));
	}
	pthread_mutex_unlock(&shared->lock);
	free(id);
	return answer_text(c, &text);
}

/*
 * CLIENT KILL
 */

struct kill {
	int64_t id; /* 0: any */
	enum type type;
	const struct resp_arg *peer, *local, *user;
	bool me; /* the client itself, too */
};

static bool is_text(const struct resp_arg *arg, const char *text)
{
	return text && arg->len == strlen(text) && memcmp(arg->at, text, arg->len) == 0;
}

static bool kill_fits(const struct kill *kill, const struct resp_client *c)
{
	return (!kill->id || kill->id == (int64_t)c->id) && has_type(c, kill->type) &&
	       (!kill->peer || is_text(kill->peer, c->seen.peer)) &&
	       (!kill->local || is_text(kill->local, c->seen.local)) &&
	       (!kill->user || is_text(kill->user, c->seen.user));
}

/* In the thread of the clients that were marked. */
void resp_kill_marked(struct resp_thread *thread, struct resp_note *note)
{
	struct resp_client *c;

	if (!thread)
		return;
	pthread_mutex_lock(&thread->shared->lock);
	thread->ending = false;
	for_each_client(c, thread->shared) if (c->thread == thread && c->seen.end)
		stream_close(c->stream, -ECONNABORTED, "%s", c->seen.end);
	pthread_mutex_unlock(&thread->shared->lock);
}

void resp_seen_kill(struct resp_client *c, const char *why)
{
	struct resp_thread *thread = c->thread;

	atomic_store_explicit(&c->seen.end, why, memory_order_release);
	if (!thread->ending)
		resp_post(thread, &thread->ended);
	thread->ending = true;
}

/* How many. Its own connection ends behind the reply. */
static unsigned kill_all(struct resp_client *c, const struct kill *kill)
{
	struct resp_shared *shared = c->thread->shared;
	struct resp_client *other;
	unsigned killed = 0;

	pthread_mutex_lock(&shared->lock);
	for_each_client(other, shared)
	{
		if (other->seen.end || (other == c && !kill->me) || !sees_client(c, other) || !kill_fits(kill, other))
			continue;
		killed++;
		if (other == c) {
			c->closing = true;
			continue;
		}
		resp_seen_kill(other, "ended by CLIENT KILL");
	}
	pthread_mutex_unlock(&shared->lock);
	return killed;
}

static bool user_exists(const struct resp_client *c, const struct resp_arg *name)
{
	const struct auth_table *table = stream_admission(c->stream)->table;
	const struct auth_key *key;

	if (is_text(name, RESP_DEFAULT_USER) || is_text(name, c->seen.user))
		return true;
	if (resp_is_open(c) || !auth_has_all(stream_client(c->stream)))
		return false;
	for (size_t i = 0; (key = auth_table_key(table, i)); i++)
		if (is_text(name, key->name))
			return true;
	return false;
}

/* False: it was answered. */
static bool read_filter(struct resp_client *c, struct kill *kill, const struct resp_arg *option)
{
	const struct resp_arg *value = option + 1;

	if (resp_is(option, "id")) {
		if (resp_read_int64(value->at, value->len, &kill->id) && kill->id > 0)
			return true;
		resp_error(c->out, "ERR client-id should be greater than 0");
		return false;
	}
	if (resp_is(option, "type"))
		return read_type(c, value, &kill->type);
	if (resp_is(option, "addr"))
		kill->peer = value;
	else if (resp_is(option, "laddr"))
		kill->local = value;
	else if (resp_is(option, "user"))
		kill->user = value;
	else if (resp_is(option, "skipme") && (resp_is(value, "yes") || resp_is(value, "no")))
		kill->me = resp_is(value, "no");
	else
		return resp_syntax_error(c) != 0;
	if (!kill->user || user_exists(c, kill->user))
		return true;
	resp_error(c->out, "ERR No such user '%.*s'", (int)MIN(value->len, 128u), value->at);
	return false;
}

int resp_do_client_kill(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct kill kill = {.me = false};

	if (argc == 3) { /* the old form */
		kill.peer = &argv[2];
		kill.me = true;
		if (kill_all(c, &kill))
			resp_ok(c);
		else
			resp_error(c->out, "ERR No such client");
		return 0;
	}
	for (unsigned i = 2; i < argc; i += 2) {
		if (i + 1 == argc)
			return resp_syntax_error(c);
		if (!read_filter(c, &kill, &argv[i]))
			return 0;
	}
	resp_number(c->out, kill_all(c, &kill));
	return 0;
}

/*
 * What a client says of itself
 */

static bool is_name(const struct resp_arg *arg)
{
	for (size_t i = 0; i < arg->len; i++)
		if (arg->at[i] < '!' || arg->at[i] > '~')
			return false;
	return arg->len <= NAME_MAX_BYTES;
}

/* Empty: it says nothing more. */
static void replace_text(struct resp_client *c, char **at, const struct resp_arg *arg)
{
	char *text = arg->len ? resp_text(arg) : NULL, *old;

	pthread_mutex_lock(&c->thread->shared->lock);
	old = *at;
	*at = text;
	pthread_mutex_unlock(&c->thread->shared->lock);
	free(old);
}

bool resp_name_fits(struct resp_client *c, const struct resp_arg *name)
{
	if (is_name(name))
		return true;
	resp_error(c->out, "ERR Client names cannot contain spaces, newlines or special characters.");
	return false;
}

void resp_set_name(struct resp_client *c, const struct resp_arg *name)
{
	replace_text(c, &c->seen.name, name);
}

int resp_do_client_setname(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	if (!resp_name_fits(c, &argv[2]))
		return 0;
	resp_set_name(c, &argv[2]);
	resp_ok(c);
	return 0;
}

int resp_do_client_getname(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	if (c->seen.name)
		resp_bulk_text(c->out, c->seen.name);
	else
		resp_null(c->out);
	return 0;
}

int resp_do_client_setinfo(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	const struct resp_arg *what = &argv[2];
	char **at = NULL;

	if (resp_is(what, "lib-name"))
		at = &c->seen.library;
	else if (resp_is(what, "lib-ver"))
		at = &c->seen.library_version;
	if (!at) {
		resp_error(c->out, "ERR Unrecognized option '%.*s'", (int)MIN(what->len, 128u), what->at);
	} else if (!is_name(&argv[3])) {
		resp_error(c->out, "ERR %.*s cannot contain spaces, newlines or special characters.", (int)what->len,
			   what->at);
	} else {
		replace_text(c, at, &argv[3]);
		resp_ok(c);
	}
	return 0;
}

static int set_flag(struct resp_client *c, const struct resp_arg *arg, bool *flag)
{
	if (!resp_is(arg, "on") && !resp_is(arg, "off"))
		return resp_syntax_error(c);
	pthread_mutex_lock(&c->thread->shared->lock);
	*flag = resp_is(arg, "on");
	pthread_mutex_unlock(&c->thread->shared->lock);
	resp_ok(c);
	return 0;
}

int resp_do_client_no_evict(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return set_flag(c, &argv[2], &c->seen.no_evict);
}

int resp_do_client_no_touch(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return set_flag(c, &argv[2], &c->seen.no_touch);
}

void resp_set_three(struct resp_client *c, bool three)
{
	c->three = c->out->three = three;
	pthread_mutex_lock(&c->thread->shared->lock);
	c->seen.three = three;
	pthread_mutex_unlock(&c->thread->shared->lock);
}

void resp_seen_reset(struct resp_client *c)
{
	replace_text(c, &c->seen.name, &(struct resp_arg){.len = 0});
	resp_set_three(c, false);
	pthread_mutex_lock(&c->thread->shared->lock);
	c->seen.no_evict = c->seen.no_touch = false;
	pthread_mutex_unlock(&c->thread->shared->lock);
}
