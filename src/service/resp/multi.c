/*
 * multi.c: MULTI keeps commands, and EXEC carries them out as one step, if no key that was watched has changed since.
 */
#include "service/resp/resp.h"

#include <stdlib.h>

#define BYTES_MAX (1 * GIB) /* of what is kept */
#define EXEC_MOST (RESP_EXEC_SECONDS * TIME_S)
#define LOOK_BACK 64 /* watched keys among which one that comes again is found */

struct kept {
	const struct resp_command *command;
	bool failed, rejected;       /* when EXEC carried it out */
	char error[RESP_ERROR_NAME]; /* the begin of its reply then */
	unsigned argc;
	struct resp_arg argv[]; /* and the bytes behind them */
};

struct watched {
	struct resp_arg key;
	uint64_t version; /* 0: it was not there */
	uint64_t expires;
};

struct resp_multi {
	bool open, spoilt;
	struct kept **kept;
	unsigned count, room;
	size_t bytes;   /* of commands and of watched keys */
	uint64_t spent; /* ns of the runs of EXEC */
	struct watched *watched;
	unsigned watches, watch_room;
};

bool resp_multi_open(const struct resp_client *c)
{
	return c->multi && c->multi->open;
}

unsigned resp_multi_count(const struct resp_client *c)
{
	return c->multi ? c->multi->count : 0;
}

void resp_multi_spoil(struct resp_client *c)
{
	if (resp_multi_open(c))
		c->multi->spoilt = true;
}

static struct resp_multi *multi_of(struct resp_client *c)
{
	if (!c->multi)
		c->multi = calloc(1, sizeof(*c->multi));
	return c->multi;
}

static void forget_watched(struct resp_multi *m)
{
	while (m->watches)
		free((void *)(uintptr_t)m->watched[--m->watches].key.at);
	free(m->watched);
	m->watched = NULL;
	m->watch_room = 0;
	m->bytes = 0; /* no command is kept then */
}

void resp_multi_free(struct resp_client *c)
{
	struct resp_multi *m = c->multi;

	if (!m)
		return;
	while (m->count)
		free(m->kept[--m->count]);
	free(m->kept);
	forget_watched(m);
	free(m);
	c->multi = NULL;
}

static bool keep_command(struct resp_multi *m, const struct resp_command *command, const struct resp_arg *argv,
			 unsigned argc)
{
	size_t size = sizeof(struct kept) + argc * sizeof(*argv);
	struct kept *kept;
	char *to;

	for (unsigned i = 0; i < argc; i++)
		size += argv[i].len;
	if (m->count == m->room) {
		unsigned room = m->room ? 2 * m->room : 8;
		struct kept **grown = realloc(m->kept, room * sizeof(*grown));

		if (!grown)
			return false;
		m->kept = grown;
		m->room = room;
	}
	kept = m->bytes + size <= BYTES_MAX ? malloc(size) : NULL;
	if (!kept)
		return false;
	m->bytes += size;
	kept->command = command;
	kept->argc = argc;
	to = (char *)&kept->argv[argc];
	for (unsigned i = 0; i < argc; i++) {
		kept->argv[i] = (struct resp_arg){to, argv[i].len};
		memcpy(to, argv[i].at, argv[i].len);
		to += argv[i].len;
	}
	m->kept[m->count++] = kept;
	return true;
}

bool resp_multi_keeps(struct resp_client *c, const struct resp_command *command, const struct resp_arg *argv,
		      unsigned argc)
{
	if (!resp_multi_open(c))
		return false;
	switch (command->id) {
	case RESP_CMD_EXEC:
	case RESP_CMD_DISCARD:
	case RESP_CMD_MULTI:
	case RESP_CMD_WATCH:
	case RESP_CMD_QUIT:
	case RESP_CMD_RESET:
		return false;
	default:
		break;
	}
	if (command->flags & RESP_NO_MULTI) {
		c->multi->spoilt = true;
		resp_error(c->out, "ERR Command not allowed inside a transaction");
	} else if (keep_command(c->multi, command, argv, argc)) {
		resp_simple(c->out, "QUEUED");
	} else {
		c->multi->spoilt = true;
		resp_error(c->out, "OOM no memory to keep the command until EXEC");
	}
	return true;
}

int resp_do_multi(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	(void)argv, (void)argc;
	if (resp_multi_open(c)) {
		resp_error(c->out, "ERR MULTI calls can not be nested");
		return 0;
	}
	if (!multi_of(c))
		return -ENOMEM;
	c->multi->open = true;
	resp_ok(c);
	return 0;
}

int resp_do_discard(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	(void)argv, (void)argc;
	if (!resp_multi_open(c)) {
		resp_error(c->out, "ERR DISCARD without MULTI");
		return 0;
	}
	resp_multi_free(c);
	resp_ok(c);
	return 0;
}

/* One that was watched long before is watched once more, which only takes memory. */
static bool is_watched(const struct resp_multi *m, const struct resp_arg *key)
{
	for (unsigned i = m->watches > LOOK_BACK ? m->watches - LOOK_BACK : 0; i < m->watches; i++)
		if (m->watched[i].key.len == key->len && memcmp(m->watched[i].key.at, key->at, key->len) == 0)
			return true;
	return false;
}

static int watch_key(struct resp_client *c, const struct resp_arg *key)
{
	struct resp_multi *m = c->multi;
	size_t size = sizeof(struct watched) + key->len;
	struct resp_value value;
	char *copy;
	int rc;

	if (m->watches == m->watch_room) {
		unsigned room = m->watch_room ? 2 * m->watch_room : 8;
		struct watched *grown = realloc(m->watched, room * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		m->watched = grown;
		m->watch_room = room;
	}
	copy = m->bytes + size <= BYTES_MAX ? malloc(key->len + 1) : NULL;
	rc = copy ? resp_view_stat(c, key, &value) : -ENOMEM;
	if (rc < 0) {
		free(copy);
		return rc;
	}
	m->bytes += size;
	memcpy(copy, key->at, key->len);
	m->watched[m->watches++] = (struct watched){{copy, key->len}, value.version, value.expires};
	return 0;
}

int resp_do_watch(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	if (resp_multi_open(c)) {
		resp_error(c->out, "ERR WATCH inside MULTI is not allowed");
		return 0;
	}
	if (!multi_of(c))
		return -ENOMEM;
	for (unsigned i = 1; i < argc; i++) {
		int rc = is_watched(c->multi, &argv[i]) ? 0 : watch_key(c, &argv[i]);

		if (rc != 0)
			return rc;
	}
	resp_ok(c);
	return 0;
}

int resp_do_unwatch(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	(void)argv, (void)argc;
	if (c->multi && !c->multi->open) /* EXEC forgets them by itself, and its step has their names until then */
		forget_watched(c->multi);
	resp_ok(c);
	return 0;
}

/* Whether what was watched is as it was. The checks go into the step, so that it is so until the commit. */
static int still_watched(struct resp_client *c)
{
	const struct resp_multi *m = c->multi;

	for (unsigned i = 0; i < m->watches; i++) {
		int rc = resp_view_expect(c, &m->watched[i].key, m->watched[i].version, m->watched[i].expires);

		if (rc != 0)
			return rc;
	}
	return 0;
}

/* Whether all of it is this server's still: what the commands have keys of, and what was watched. Else nothing is
 * carried out, and the reason was answered, as Redis does it. */
static bool all_here(struct resp_client *c)
{
	const struct resp_multi *m = c->multi;
	unsigned slot;

	for (unsigned i = 0; i < m->count; i++)
		if (!resp_is_here(c, m->kept[i]->command, m->kept[i]->argv, m->kept[i]->argc))
			return false;
	for (unsigned i = 0; i < m->watches; i++)
		if (kv_view_elsewhere(c->thread->table, m->watched[i].key.at, m->watched[i].key.len, &slot)) {
			resp_null_array(c->out); /* others may have changed it there */
			return false;
		}
	return true;
}

bool resp_multi_waits(const struct resp_client *c)
{
	const struct kv_cluster *cluster = c->thread->shared->kv->cluster;
	const struct resp_multi *m = c->multi;

	for (unsigned i = 0; m && i < m->count; i++)
		if (resp_waits(c, m->kept[i]->command, m->kept[i]->argv, m->kept[i]->argc))
			return true;
	for (unsigned i = 0; m && i < m->watches; i++)
		if (kv_view_holds(cluster, c->thread->table, cluster_slot(m->watched[i].key.at, m->watched[i].key.len)))
			return true;
	return false;
}

/* One of the commands, whose answer may be an error, and the others go on. What it answers nothing to, as there is no
 * memory, or others disturb it, ends all: a part of it may be in the step. */
static int exec_one(struct resp_client *c, struct kept *kept)
{
	size_t len = c->out->len;
	int rc;

	kept->failed = false;
	kept->rejected = !resp_may(c, kept->command, kept->argv, kept->argc);
	resp_time(c->thread, kept->command->id);
	rc = kept->rejected ? 0 : resp_carry_out(c, kept->command, kept->argv, kept->argc);
	kept->failed = c->out->len > len && c->out->at[len] == '-';
	if (kept->failed) {
		memset(kept->error, 0, sizeof(kept->error));
		memcpy(kept->error, c->out->at + len + 1, MIN(c->out->len - len - 1, sizeof(kept->error)));
	}
	return rc;
}

/* All of them. Their worker serves no other client meanwhile, so there is an end of it, in all runs together. */
static int exec_all(struct resp_client *c)
{
	struct resp_multi *m = c->multi;
	uint64_t began = time_coarse();
	int rc = 0;

	for (unsigned i = 0; i < m->count && rc == 0; i++) {
		rc = exec_one(c, m->kept[i]);
		if (rc == 0 && m->spent + (time_coarse() - began) > EXEC_MOST)
			rc = -ETIMEDOUT;
	}
	m->spent += time_coarse() - began;
	return rc;
}

/* Once, however often the step was tried. */
static void count_kept(struct resp_client *c)
{
	const struct resp_multi *m = c->multi;
	struct resp_thread *thread = c->thread;

	for (unsigned i = 0; i < m->count; i++) {
		const struct kept *kept = m->kept[i];

		resp_count(kept->rejected ? &thread->rejected[kept->command->id] : &thread->calls[kept->command->id]);
		thread->part.count[kept->command->group]++;
		if (kept->failed && !kept->rejected)
			resp_count(&thread->failed[kept->command->id]);
		if (kept->failed)
			resp_count_error(thread->shared, kept->error, sizeof(kept->error));
	}
}

int resp_do_exec(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	struct resp_multi *m = c->multi;
	int rc;

	(void)argv, (void)argc;
	if (!resp_multi_open(c)) {
		resp_error(c->out, "ERR EXEC without MULTI");
		return 0;
	}
	if (m->spoilt) {
		resp_multi_free(c);
		resp_error(c->out, "EXECABORT Transaction discarded because of previous errors.");
		return 0;
	}
	if (unlikely(c->thread->table) && !all_here(c)) {
		resp_multi_free(c);
		return 0;
	}
	rc = still_watched(c);
	if (rc == -ESTALE) {
		resp_view_end(c); /* before the keys go that it has */
		resp_multi_free(c);
		resp_null_array(c->out);
		return 0;
	}
	resp_array(c->out, m->count);
	if (rc == 0)
		rc = exec_all(c);
	resp_time(c->thread, RESP_CMD_EXEC);
	if (rc == 0)
		rc = resp_view_commit(c);
	if (rc == -EAGAIN || rc == -ESTALE)
		return rc;
	resp_view_end(c); /* as above */
	c->command = &resp_commands[RESP_CMD_EXEC];
	if (rc == 0)
		count_kept(c);
	resp_multi_free(c);
	return rc;
}
