/*
 * client.c: a connection: bytes to commands, what the client may, replies on their way.
 *
 * A visit of the stream carries out the commands that came, as far as the turn has time, and writes all their replies
 * at once. A long value of a SET goes from the socket to its place in the arena: see "Long values".
 */
#include "service/resp/resp.h"

#include <ctype.h>
#include <stdlib.h>

#define LARGE (16 * KIB)       /* values from this length on go to their place at once */
#define OUT_KEPT (256 * KIB)   /* the buffer of replies is kept up to here */
#define WAITING_MAX (32 * MIB) /* of messages that wait for one client, as in Redis */
#define RUNS 16                /* of a command whose step others disturb, until it waits for its next turn */

/*
 * Replies
 */

void resp_ok(struct resp_client *c)
{
	resp_simple(c->out, "OK");
}

int resp_help(struct resp_client *c, const char *const *lines, size_t count)
{
	resp_array(c->out, count);
	for (size_t i = 0; i < count; i++)
		resp_simple(c->out, lines[i]);
	return 0;
}

int resp_syntax_error(struct resp_client *c)
{
	resp_error(c->out, "ERR syntax error");
	return 0;
}

int resp_not_an_integer(struct resp_client *c)
{
	resp_error(c->out, "ERR value is not an integer or out of range");
	return 0;
}

int resp_not_a_float(struct resp_client *c)
{
	resp_error(c->out, "ERR value is not a valid float");
	return 0;
}

int resp_bad_arity(struct resp_client *c, const char *name)
{
	resp_error(c->out, "ERR wrong number of arguments for '%s' command", name);
	return 0;
}

int resp_no_sub(struct resp_client *c, const struct resp_arg *argv)
{
	char command[32];
	unsigned n = 0;

	for (; n < argv[0].len && n + 1 < sizeof(command); n++)
		command[n] = (char)toupper((unsigned char)argv[0].at[n]);
	command[n] = '\0';
	resp_error(c->out, "ERR unknown subcommand '%.*s'. Try %s HELP.", (int)MIN(argv[1].len, 128u), argv[1].at,
		   command);
	return 0;
}

void resp_reply_errno(struct resp_client *c, int error)
{
	const struct resp_shared *shared = c->thread->shared;
	const struct auth_client *client = stream_client(c->stream);

	switch (-error) {
	case ENOMEM:
		resp_error(c->out, "OOM command not allowed when used memory > 'maxmemory'.");
		break;
	case EFBIG:
		resp_error(c->out, "ERR string exceeds maximum allowed size (%llu bytes, kv.value_max)",
			   (unsigned long long)MIN(shared->kv->value_max, RESP_BULK_MAX));
		break;
	case EDQUOT:
		c->thread->kv->part.count[KV_COUNT_OVER_QUOTA]++;
		resp_error(c->out, "OOM %s has stored %llu of %llu bytes: see stored= in rdmad-auth(7)", client->name,
			   (unsigned long long)store_owner_bytes(shared->store, c->owner),
			   (unsigned long long)client->stored);
		break;
	case EINVAL:
		resp_error(c->out, "ERR key is too long, %d bytes at most, or empty", STORE_KEY_MAX);
		break;
	case E2BIG:
		resp_error(c->out, "ERR a command or transaction writes %u keys at most", RESP_STEP_MOST);
		break;
	case ETIMEDOUT:
		resp_error(c->out, "ERR transaction took more than %u s, and nothing of it happened",
			   RESP_EXEC_SECONDS);
		break;
	case ETIME:
		resp_error(c->out, "ERR script ran for more than %llu ms: see resp.script_time",
			   (unsigned long long)(shared->settings->script_time / TIME_MS));
		break;
	case ENOBUFS:
		resp_error(c->out, "ERR script needs more than %llu bytes: see resp.script_memory",
			   (unsigned long long)shared->settings->script_memory);
		break;
	default:
		resp_error(c->out, "ERR %s", strerror(-error));
	}
}

/* Replies so far are taken back to where `len` bytes and `pins` values were. */
static void take_back(struct resp_client *c, size_t len, unsigned pins)
{
	text_pins_cut(&c->thread->pins, c->thread->store, pins);
	c->out->len = len;
	c->out->failed = false;
}

/* The replies of this visit go to the stream. */
static void client_write(struct resp_client *c)
{
	struct resp_thread *thread = c->thread;
	struct resp_out *out = &thread->out;

	text_gate_hold(&c->gate, c->tells);
	text_write(c->stream, thread->store, &thread->pins, out->at, out->len);
	out->len = 0;
	if (out->room > OUT_KEPT) {
		free(out->at);
		out->at = NULL;
		out->room = 0;
	}
}

bool resp_client_push(struct resp_client *c, const struct stream_piece *piece)
{
	uint64_t written = stream_written(c->stream);
	size_t waiting = stream_waiting(c->stream);

	/* Replies wait, too, and may be long. */
	if (written - waiting >= c->heard.place) {
		c->heard.before = c->heard.since;
		c->heard.since = 0;
		c->heard.place = written;
	}
	waiting = MIN(waiting, c->heard.before + c->heard.since);
	if (waiting + piece->len <= WAITING_MAX) {
		c->heard.since += piece->len;
		stream_write(c->stream, piece, 1);
		return true;
	}
	stream_close(c->stream, -ENOBUFS, "it takes no messages: %zu bytes wait", waiting);
	return false;
}

/*
 * Commands
 */

/* Up to 128 bytes of what came. */
static void unknown_command(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	char args[256] = "";
	size_t n = 0;

	/* A web page may have a browser send requests to any address; the body of one could have commands. */
	if (resp_is(&argv[0], "post") || resp_is(&argv[0], "host:")) {
		log_warn("resp", "a client speaks HTTP: it is cut off before what may follow is taken for commands");
		c->closing = true;
		return;
	}
	if (resp_is_refused(argv[0].at, argv[0].len)) {
		resp_error(c->out, "ERR unknown command '%.*s', rdmad stores strings and hashes, see rdmad-resp(7)",
			   (int)MIN(argv[0].len, 128u), argv[0].at);
		return;
	}
	for (unsigned i = 1; i < argc && n < 128; i++)
		n += (size_t)snprintf(args + n, sizeof(args) - n, "'%.*s' ", (int)MIN(argv[i].len, 128 - n),
				      argv[i].at);
	resp_error(c->out, "ERR unknown command '%.*s', with args beginning with: %s", (int)MIN(argv[0].len, 128u),
		   argv[0].at, args);
}

/* The command of these arguments; NULL: an error was answered. */
static const struct resp_command *command_of(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	const struct resp_command *command = resp_find(argv[0].at, argv[0].len), *sub;

	if (!command || (!resp_serve[command->id] && !resp_has_subs(command))) {
		unknown_command(c, argv, argc);
		return NULL;
	}
	if (resp_has_subs(command) && argc >= 2) {
		sub = resp_find_sub(command, argv[1].at, argv[1].len);
		if (!sub || !resp_serve[sub->id]) {
			resp_no_sub(c, argv);
			return NULL;
		}
		command = sub;
	}
	if (resp_arity_fits(command, argc) && resp_serve[command->id])
		return command;
	resp_count(&c->thread->rejected[command->id]);
	if (command->id == RESP_CMD_EXEC) {
		resp_multi_free(c);
		resp_error(c->out,
			   "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command");
	} else {
		resp_bad_arity(c, command->name);
	}
	return NULL;
}

/* A write that also tells of what is there. */
static bool tells_of_value(const struct resp_command *command, const struct resp_arg *argv, unsigned argc)
{
	static const char *const tell[] = {"get", "ifeq", "ifne", "ifdeq", "ifdne"};

	switch (command->id) {
	case RESP_CMD_SET:
		for (unsigned i = 3; i < argc; i++)
			for (unsigned j = 0; j < ARRAY_SIZE(tell); j++)
				if (resp_is(&argv[i], tell[j]))
					return true;
		return false;
	case RESP_CMD_SETNX:
	case RESP_CMD_MSETNX:
	case RESP_CMD_MSETEX:
	case RESP_CMD_SETEX:
	case RESP_CMD_PSETEX:
	case RESP_CMD_MSET:
	case RESP_CMD_DEL:
	case RESP_CMD_UNLINK:
		return false;
	default:
		return true;
	}
}

static bool may_keys(struct resp_client *c, const struct resp_command *command, const struct resp_arg *argv,
		     unsigned argc)
{
	const struct auth_client *client = stream_client(c->stream);
	bool reads = command->flags & RESP_READONLY || tells_of_value(command, argv, argc);
	bool writes = command->flags & RESP_WRITE;
	struct resp_keys keys = resp_keys(command, argv, argc);
	bool may = true;

	for (unsigned i = 0; i < keys.count && may; i++) {
		const struct resp_arg *key = resp_key(&keys, argv, i);

		may = (!reads || auth_may(client, AUTH_READ, key->at, key->len)) &&
		      (!writes || auth_may(client, AUTH_WRITE, key->at, key->len));
	}
	return may;
}

/* By its rights. */
static bool may_do(struct resp_client *c, const struct resp_command *command, const struct resp_arg *argv,
		   unsigned argc)
{
	const struct auth_client *client = stream_client(c->stream);

	if (unlikely(!c->authenticated) && !(command->flags & RESP_NO_AUTH)) {
		resp_error(c->out, "NOAUTH Authentication required.");
		return false;
	}
	if (likely(auth_has_all(client)))
		return true;
	if ((command->id == RESP_CMD_FLUSHALL || command->id == RESP_CMD_FLUSHDB) && !client->flush)
		resp_error(c->out, "NOPERM this user has no permissions to run the '%s' command", command->name);
	else if ((command->first || command->flags & RESP_MOVABLE_KEYS) && !may_keys(c, command, argv, argc))
		resp_error(c->out, "NOPERM this user has no permissions to access one of the keys used as arguments");
	else
		return true;
	c->thread->kv->part.count[KV_COUNT_DENIED]++;
	return false;
}

/* The slot by which a command that goes over the keys waits, or is refused; CLUSTER_SLOTS: it does not, or is not. */
static unsigned walks_unknown(const struct resp_client *c, const struct resp_command *command)
{
	switch (command->id) {
	case RESP_CMD_KEYS:
	case RESP_CMD_SCAN:
	case RESP_CMD_RANDOMKEY:
	case RESP_CMD_CLUSTER_COUNTKEYSINSLOT:
	case RESP_CMD_CLUSTER_GETKEYSINSLOT:
		return kv_view_unknown(c->thread->table);
	case RESP_CMD_FLUSHALL:
	case RESP_CMD_FLUSHDB: /* the changes of a transaction are keys that are shown */
		return resp_is_within(c) ? kv_view_unknown(c->thread->table) : CLUSTER_SLOTS;
	default:
		return CLUSTER_SLOTS;
	}
}

bool resp_is_here(struct resp_client *c, const struct resp_command *command, const struct resp_arg *argv, unsigned argc)
{
	struct resp_keys keys = resp_keys(command, argv, argc);
	unsigned first = walks_unknown(c, command), slot;
	bool elsewhere = first < CLUSTER_SLOTS;

	for (unsigned i = 0; i < keys.count; i++) {
		const struct resp_arg *key = resp_key(&keys, argv, i);

		elsewhere = kv_view_elsewhere(c->thread->table, key->at, key->len, &slot);
		if (i && slot != first) {
			resp_error(c->out, "CROSSSLOT Keys in request don't hash to the same slot");
			return false;
		}
		first = slot;
	}
	if (elsewhere)
		resp_cluster_moved(c, first);
	return !elsewhere;
}

bool resp_waits(const struct resp_client *c, const struct resp_command *command, const struct resp_arg *argv,
		unsigned argc)
{
	const struct kv_cluster *cluster = c->thread->shared->kv->cluster;
	struct resp_keys keys = resp_keys(command, argv, argc);
	unsigned unknown = walks_unknown(c, command);

	if (unknown < CLUSTER_SLOTS && kv_view_holds(cluster, c->thread->table, unknown))
		return true;
	for (unsigned i = 0; i < keys.count; i++) {
		const struct resp_arg *key = resp_key(&keys, argv, i);

		if (kv_view_holds(cluster, c->thread->table, cluster_slot(key->at, key->len)))
			return true;
	}
	return command->id == RESP_CMD_EXEC && resp_multi_waits(c);
}

bool resp_may(struct resp_client *c, const struct resp_command *command, const struct resp_arg *argv, unsigned argc)
{
	return may_do(c, command, argv, argc) && (likely(!c->thread->table) || resp_is_here(c, command, argv, argc));
}

int resp_carry_out(struct resp_client *c, const struct resp_command *command, const struct resp_arg *argv,
		   unsigned argc)
{
	uint64_t seen = unlikely(c->track) ? store_event_head(c->thread->store) : 0;
	int rc;

	c->command = command;
	rc = resp_serve[command->id](c, argv, argc);
	if (rc == -EMEDIUMTYPE) {
		resp_error(c->out, "WRONGTYPE Operation against a key holding the wrong kind of value");
		rc = 0;
	}
	if (unlikely(c->track) && rc == 0)
		rc = resp_track_read(c, command, argv, argc, seen);
	return rc;
}

/* GET, straight from the table into the reply. */
static bool fast_get(struct resp_client *c, const struct resp_arg *key)
{
	struct resp_thread *thread = c->thread;
	struct store_meta meta;
	uint64_t len;
	char head[RESP_INT64 + 3] = "$";
	char *to;
	int found, n;

	if (key->len < 1 || key->len > STORE_KEY_MAX || thread->kv->committed != UINT64_MAX)
		return false;
	to = resp_grow(c->out, STORE_COPY_MAX + sizeof(head) + 2);
	if (!to)
		return false;
	found = store_read(thread->store, key->at, key->len, resp_now(c), to + sizeof(head), STORE_COPY_MAX, &meta);
	len = meta.len;
	if (found == 0) /* the miss was counted */
		resp_null(c->out);
	if (found != 1 || len > STORE_COPY_MAX || meta.type != STORE_STRING)
		return found == 0;
	n = 1 + resp_write_int64(head + 1, (int64_t)len);
	memcpy(head + n, "\r\n", 2);
	n += 2;
	memmove(to + n, to + sizeof(head), len);
	memcpy(to, head, (size_t)n);
	memcpy(to + n + len, "\r\n", 2);
	c->out->len += (size_t)n + len + 2;
	return true;
}

/* SET without options of a short value, straight into the table. What cannot be done so is done as any command. */
static bool fast_set(struct resp_client *c, const struct resp_arg *argv)
{
	const struct store_put put = {.expires = TIME_NEVER, .owner = c->owner, .note = resp_note(c->id, RESP_CMD_SET)};
	uint64_t version;

	if (argv[2].len > STORE_COPY_MAX || store_set(c->thread->store, argv[1].at, argv[1].len, argv[2].at,
						      argv[2].len, &put, resp_now(c), &version) != 0)
		return false;
	c->tells = MAX(c->tells, version);
	resp_ok(c);
	return true;
}

static void client_answered(struct resp_client *c, unsigned id)
{
	resp_count(&c->thread->calls[id]);
	c->thread->part.count[resp_commands[id].group]++;
	text_gate_answered(&c->gate, c->thread->timed.class, c->since, c->tells);
}

/* Carry out a command as one step, again if others disturb it. 0: it was answered; -EAGAIN. */
static int client_run(struct resp_client *c, const struct resp_command *command, const struct resp_arg *argv,
		      unsigned argc)
{
	size_t len = c->out->len;
	unsigned pins = c->thread->pins.count;
	int rc = -ESTALE;

	c->command = command;
	if (c->thread->timed.id != command->id)
		resp_time(c->thread, command->id);

	if ((command->id == RESP_CMD_GET && !c->track && fast_get(c, &argv[1])) ||
	    (command->id == RESP_CMD_SET && argc == 3 && fast_set(c, argv))) {
		client_answered(c, command->id);
		return 0;
	}
	for (unsigned i = 0; i < RUNS && rc == -ESTALE; i++) {
		rc = resp_carry_out(c, command, argv, argc);
		if (rc == 0)
			rc = resp_view_commit(c);
		resp_view_end(c);
		if (rc != 0) {
			take_back(c, len, pins);
			resp_publish_drop(c->thread);
		}
	}
	if (c->thread->published)
		resp_publish_all(c);
	if (rc == -ESTALE || rc == -EAGAIN)
		return -EAGAIN;
	c->script_spent = 0;
	if (c->out->failed) {
		take_back(c, len, pins);
		resp_error(c->out, "ERR the reply is longer than %zu bytes, or there is no memory for it",
			   c->out->most);
	} else if (rc != 0) {
		resp_reply_errno(c, rc);
	}
	client_answered(c, command->id);
	if (c->out->len > len && c->out->at[len] == '-')
		resp_count(&c->thread->failed[command->id]);
	return 0;
}

/* CLIENT REPLY: some clients want no replies, but hear of channels. */
static void client_mute(struct resp_client *c, size_t len, unsigned pins)
{
	size_t heard = MIN(c->pushed, c->out->len), n = c->out->len - heard;

	if (c->reply == RESP_REPLY_OFF || c->reply == RESP_REPLY_SKIP) {
		if (n)
			memmove(c->out->at + len, c->out->at + heard, n);
		take_back(c, len + n, pins);
	}
	if (c->reply == RESP_REPLY_SKIP)
		c->reply = RESP_REPLY_ON;
	if (c->reply == RESP_REPLY_SKIP_NEXT)
		c->reply = RESP_REPLY_SKIP;
}

static int client_command(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	const struct resp_command *command;
	const struct kv_cluster *cluster = c->thread->shared->kv->cluster;
	size_t len = c->out->len;
	unsigned pins = c->thread->pins.count;
	int refused, rc = 0;

	/* One for all that it does: a transaction's commands and a script's, too. */
	if (unlikely(cluster))
		c->thread->table = kv_cluster_view(cluster);
	c->pushed = SIZE_MAX;
	command = command_of(c, argv, argc);
	if (unlikely(cluster && kv_view_holds_any(cluster, c->thread->table)) && command &&
	    resp_waits(c, command, argv, argc)) {
		c->held = true;
		return -EAGAIN;
	}
	if (!command || !resp_may(c, command, argv, argc) || !resp_pubsub_allows(c, command)) {
		if (command)
			resp_count(&c->thread->rejected[command->id]);
		resp_multi_spoil(c);
	} else if (c->large.error) {
		resp_multi_spoil(c);
		resp_reply_errno(c, c->large.error);
	} else if (command->flags & RESP_WRITE && (refused = kv_gate_refused(c->thread->kv)) != 0) {
		resp_multi_spoil(c);
		resp_error(c->out, "MISCONF the log takes no writes: %s: see rdmactl log status", strerror(-refused));
	} else if (!resp_multi_keeps(c, command, argv, argc)) {
		rc = client_run(c, command, argv, argc);
	}
	if (rc != 0)
		return rc;
	if (unlikely(c->out->len > len && c->out->at[len] == '-'))
		resp_count_error(c->thread->shared, c->out->at + len + 1, c->out->len - len - 1);
	client_mute(c, len, pins);
	if (unlikely(c->track))
		resp_track_commanded(c, command);
	if (c->step) /* of a command that was refused when it came again */
		c->step_end(c);
	return 0;
}

/* The name of a command that was carried out or refused, and its first key. */
static const char *name_of(const struct resp_arg *argv, unsigned argc, const struct resp_arg **key)
{
	const struct resp_command *command = resp_find(argv[0].at, argv[0].len), *sub = NULL;

	if (command && resp_has_subs(command) && argc >= 2)
		sub = resp_find_sub(command, argv[1].at, argv[1].len);
	command = sub ? sub : command;
	*key = command && command->first > 0 && (unsigned)command->first < argc ? &argv[command->first] : NULL;
	return command ? command->name : "unknown";
}

/* The same, while slow commands are logged. */
static __attribute__((cold, noinline)) int client_command_timed(struct resp_client *c, const struct resp_arg *argv,
								unsigned argc)
{
	size_t before = c->out->len + c->thread->pins.bytes;
	struct service_slow_request slow = {.size = 0};
	const struct resp_arg *key;
	int rc;

	text_slow_begin(&c->begun);
	rc = client_command(c, argv, argc);
	if (rc != 0)
		return rc;
	slow.operation = name_of(argv, argc, &key);
	for (unsigned i = 0; i < argc; i++)
		slow.size += argv[i].len;
	slow.size += MAX(c->out->len + c->thread->pins.bytes, before) - before;
	slow.key = key ? key->at : NULL;
	slow.key_len = key ? key->len : 0;
	text_slow_end(&c->thread->part, c->stream, &c->begun, &slow);
	return 0;
}

static int client_serve(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	if (text_slow_is_on(&c->thread->part, c->begun))
		return client_command_timed(c, argv, argc);
	return client_command(c, argv, argc);
}

/*
 * Long values go to their places. What is before one and behind it is kept in the head, where the command is then
 * whole.
 */

static bool large_argument(const struct resp_client *c)
{
	const struct resp_parser *p = &c->parser;
	const struct resp_command *command = resp_find(p->argv[0].at, p->argv[0].len);
	unsigned at;

	if (!command || p->argc < 3 || !c->authenticated || resp_multi_open(c) || kv_gate_refused(c->thread->kv))
		return false;
	switch (command->id) {
	case RESP_CMD_SET:
	case RESP_CMD_SETNX:
	case RESP_CMD_GETSET:
		at = 2;
		break;
	case RESP_CMD_SETEX:
	case RESP_CMD_PSETEX:
		at = 3;
		break;
	default:
		return false;
	}
	return p->argc == at + 1 && p->argv[1].len >= 1 && p->argv[1].len <= STORE_KEY_MAX &&
	       (auth_has_all(stream_client(c->stream)) ||
		auth_may(stream_client(c->stream), AUTH_WRITE, p->argv[1].at, p->argv[1].len));
}

static bool head_add(struct resp_client *c, const char *at, size_t len)
{
	if (c->head.len + len > c->head.room) {
		size_t room = MAX(2 * c->head.room, c->head.len + len);
		char *to = realloc(c->head.at, room);

		if (!to)
			return false;
		c->head.at = to;
		c->head.room = room;
	}
	memcpy(c->head.at + c->head.len, at, len);
	c->head.len += len;
	return true;
}

/* The next bytes of it. */
static void large_go(struct resp_client *c)
{
	const struct kv_shared *kv = c->thread->shared->kv;
	const struct store_put put = {.owner = c->owner};

	text_value_go(&c->large, c->stream, kv, c->head.at + c->large.key, &put, MIN(kv->value_max, RESP_BULK_MAX));
}

static void client_received(struct stream *stream)
{
	struct resp_client *c = stream_context(stream);

	if (c->large.done < c->large.len) {
		large_go(c);
		return;
	}
	c->large.coming = false;
	if (c->large.ref.item)
		service_part_moved(&c->thread->part, SERVICE_IN, c->since);
	resp_take_large(&c->parser, c->large.at);
}

/* The parser stands before a long argument. True: it goes to its place. */
static bool large_begin(struct resp_client *c, const char *at)
{
	const struct resp_parser *p = &c->parser;

	if (!large_argument(c) || !head_add(c, at, p->used)) {
		resp_leave_large(&c->parser);
		return false;
	}
	c->large = (struct text_value){.len = p->argv[p->argc - 1].len,
				       .key = (size_t)(p->argv[1].at - at),
				       .key_len = p->argv[1].len,
				       .coming = true};
	c->since = resp_now(c);
	large_go(c);
	return true;
}

/*
 * Bytes
 */

static struct resp_limits limits_of(const struct resp_client *c)
{
	if (unlikely(!c->authenticated))
		return (struct resp_limits){RESP_ARGS_UNPROVED, RESP_BULK_UNPROVED, RESP_BULK_UNPROVED, UINT64_MAX};
	return (struct resp_limits){RESP_ARGS_MAX, RESP_BULK_MAX, 2 * RESP_BULK_MAX, c->head.len ? UINT64_MAX : LARGE};
}

/* What was kept for it goes. */
static void client_end_command(struct resp_client *c)
{
	text_value_end(&c->large, c->thread->store);
	c->since = 0;
	if (c->head.len) {
		free(c->head.at);
		c->head.at = NULL;
		c->head.len = c->head.room = 0;
	}
}

/* The command comes again. */
static void client_wait(struct resp_client *c)
{
	c->since = c->since ? c->since : resp_now(c);
	text_again(c->stream, c->thread->shared->kv, c->held);
	c->held = false;
}

/* One command at most of the bytes; how many were used, or -errno. *whole: there was one. */
static ssize_t client_take(struct resp_client *c, const char *at, size_t len, bool *whole)
{
	struct resp_limits limits = limits_of(c);
	size_t before = c->head.len;
	enum resp_result result;
	int rc = 0;

	*whole = false;
	if (before) { /* of a command with a long value */
		if (!head_add(c, at, len))
			return -ENOMEM;
		at = c->head.at;
		len = c->head.len;
	}
	result = resp_parse(&c->parser, &limits, at, len);
	while (result == RESP_LARGE) {
		if (large_begin(c, at))
			return (ssize_t)c->parser.used;
		result = resp_parse(&c->parser, &limits, at, len);
	}
	if (result == RESP_BAD) {
		resp_error(c->out, "%s", c->parser.error);
		resp_count_error(c->thread->shared, c->parser.error, strlen(c->parser.error));
		return -EPROTO;
	}
	if (result != RESP_COMMAND)
		return before ? (ssize_t)(len - before) : 0;
	if (c->parser.argc)
		rc = client_serve(c, c->parser.argv, c->parser.argc);
	*whole = rc == 0;
	if (rc == 0)
		client_end_command(c);
	else
		client_wait(c);
	/* A command in the head is kept whole; the bytes of another come again. */
	c->pending = rc != 0 && before;
	return rc == 0 || before ? (ssize_t)(c->parser.used - before) : 0;
}

static ssize_t client_bytes(struct stream *stream, const char *at, size_t len)
{
	struct resp_client *c = stream_context(stream);
	unsigned commands = 0;
	bool whole = true;
	ssize_t n = 0;
	size_t used = 0;

	if (c->large.coming) { /* it waited for room */
		large_go(c);
		return 0;
	}
	resp_mailbox_look(c->thread);
	if (atomic_load_explicit(&c->seen.end, memory_order_acquire)) /* its thread is told to close it */
		return 0;
	c->out->three = c->three;
	text_gate_begin(&c->gate);
	if (c->pending) {
		if (client_serve(c, c->parser.argv, c->parser.argc) != 0) {
			client_wait(c);
			return 0;
		}
		c->pending = false;
		client_end_command(c);
	}
	while (used < len && whole && text_goes_on(stream, &c->thread->pins, c->out->len, ++commands) && !c->closing) {
		n = client_take(c, at + used, len - used, &whole);
		used += n > 0 ? (size_t)n : 0;
	}
	if (c->thread->timed.id != RESP_IDS)
		resp_time(c->thread, RESP_IDS);
	resp_seen_commands(c); /* before its client hears of them */
	client_write(c);
	if (unlikely(c->track))
		resp_track_turn(c->thread);
	stream_served(stream, commands - !(whole && used == len));
	resp_seen_visit(c, len - used);
	if (!c->pending)
		resp_parser_trim(&c->parser);
	text_visited(stream, commands, c->closing, whole && n >= 0 && used < len);
	return n < 0 ? n : (ssize_t)used;
}

/*
 * Life
 */

struct resp_client *resp_client_new(struct resp_thread *thread)
{
	struct resp_client *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->thread = thread;
	c->out = &thread->out;
	c->id = atomic_fetch_add(&thread->shared->last_id, 1) + 1;
	list_init(&c->subscriptions);
	list_init(&c->redirects);
	resp_parser_init(&c->parser);
	return c;
}

void resp_client_free(struct resp_client *c)
{
	if (c->step)
		c->step_end(c);
	resp_multi_free(c);
	resp_parser_clear(&c->parser);
	free(c->head.at);
	resp_seen_end(c);
	free(c);
}

void resp_client_revised(struct resp_client *c)
{
	const struct auth_client *client = stream_client(c->stream);

	c->authenticated = client != &auth_nothing && client->services & 1u << WIRE_RESP;
	c->owner = kv_owner_of(c->thread->shared->kv, client);
	resp_seen_user(c);
}

void resp_client_begin(struct resp_client *c, struct stream *stream)
{
	struct resp_shared *shared = c->thread->shared;

	c->stream = stream;
	text_gate_init(&c->gate, &c->thread->part, c->thread->kv, stream);
	resp_seen_begin(c);
	resp_client_revised(c);
	pthread_mutex_lock(&shared->lock);
	list_add_tail(&shared->clients, &c->node);
	pthread_mutex_unlock(&shared->lock);
}

static bool client_revised(struct stream *stream)
{
	struct resp_client *c = stream_context(stream);

	resp_client_revised(c);
	return c->authenticated;
}

static bool client_quiet(const struct stream *stream)
{
	const struct resp_client *c = stream_context(stream);

	return !c->pending; /* a part of a command, or MULTI without EXEC, is no work in hand */
}

static void client_closed(struct stream *stream, int error, const char *reason)
{
	struct resp_client *c = stream_context(stream);
	struct resp_shared *shared = c->thread->shared;

	text_log_closed(stream, "resp", error, reason);
	pthread_mutex_lock(&shared->lock);
	list_del(&c->node);
	pthread_mutex_unlock(&shared->lock);
	text_gate_end(&c->gate);
	resp_pubsub_leave(c);
	resp_track_leave(c);
	text_value_end(&c->large, c->thread->store);
	resp_client_free(c);
}

const struct stream_ops resp_stream_ops = {
	.bytes = client_bytes,
	.received = client_received,
	.revised = client_revised,
	.quiet = client_quiet,
	.closed = client_closed,
};

/*
 * Time
 */

uint64_t resp_now(const struct resp_client *c)
{
	return stream_now(c->stream);
}
