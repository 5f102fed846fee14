/*
 * watch.c: changed keys, as a thread's clients hear of them: by CLIENT TRACKING (track.c), and as messages on channels,
 * which Redis calls keyspace notifications. A thread watches the store while one of its clients may hear of anything.
 *
 * The store tells what happened to a key; by which command, its event's note says. A key that a transaction or a script
 * changes several times is told of once, by the last of its commands.
 */
#include "service/resp/resp.h"

#define CHANNELS "__key" /* with which the names of their channels begin */

/* The classes of Redis, by bits in the order in which it names them. Those of types that rdmad lacks are never told. */
static const char classes[] = "g$lshzxetdnKE";

enum {
	GENERIC = 1u << 0,
	STRING = 1u << 1,
	HASH = 1u << 4,
	EXPIRED = 1u << 6,
	EVICTED = 1u << 7,
	NEW = 1u << 10,
	BY_KEY = 1u << 11,
	BY_EVENT = 1u << 12,
	ALL = NEW - 1, /* of "A" */
};

bool resp_notify_read(const char *at, size_t len, unsigned *out)
{
	*out = 0;
	for (size_t i = 0; i < len; i++) {
		const char *class = memchr(classes, at[i], sizeof(classes) - 1);

		if (!class && at[i] != 'A')
			return false;
		*out |= class ? 1u << (class - classes) : ALL;
	}
	return true;
}

void resp_notify_text(unsigned flags, char out[static RESP_NOTIFY_TEXT])
{
	bool all = (flags & ALL) == ALL;

	if (all) {
		*out++ = 'A';
		flags &= BY_KEY | BY_EVENT;
	}
	for (unsigned i = 0; i < sizeof(classes) - 1; i++)
		if (flags & 1u << i)
			*out++ = classes[i];
	*out = '\0';
}

bool resp_notify_check(const char *text, char *why, size_t size)
{
	unsigned flags;

	if (resp_notify_read(text, strlen(text), &flags))
		return true;
	snprintf(why, size, "\"%s\" has letters other than Ag$lshzxetdnKE, the classes of events of rdmad-resp(7)",
		 text);
	return false;
}

/*
 * What an event is called
 */

struct name {
	unsigned class;
	const char *text;
};

/* What it is called that a command has written a key; where it has no row, "set". */
static const struct name writes[RESP_IDS] = {
	[RESP_CMD_APPEND] = {STRING, "append"},
	[RESP_CMD_SETRANGE] = {STRING, "setrange"},
	[RESP_CMD_INCR] = {STRING, "incrby"},
	[RESP_CMD_DECR] = {STRING, "incrby"},
	[RESP_CMD_INCRBY] = {STRING, "incrby"},
	[RESP_CMD_DECRBY] = {STRING, "incrby"},
	[RESP_CMD_INCRBYFLOAT] = {STRING, "incrbyfloat"},
	[RESP_CMD_HSET] = {HASH, "hset"},
	[RESP_CMD_HMSET] = {HASH, "hset"},
	[RESP_CMD_HSETNX] = {HASH, "hset"},
	[RESP_CMD_HDEL] = {HASH, "hdel"},
	[RESP_CMD_HINCRBY] = {HASH, "hincrby"},
	[RESP_CMD_HINCRBYFLOAT] = {HASH, "hincrbyfloat"},
	[RESP_CMD_RENAME] = {GENERIC, "rename_to"},
	[RESP_CMD_RENAMENX] = {GENERIC, "rename_to"},
	[RESP_CMD_COPY] = {GENERIC, "copy_to"},
};

static struct name name_of_set(enum resp_id command)
{
	return command < RESP_IDS && writes[command].text ? writes[command] : (struct name){STRING, "set"};
}

/* The key gets the value of another, with the time that this has; one that was there before is another key in Redis. */
static bool is_copied(enum resp_id command)
{
	return command == RESP_CMD_RENAME || command == RESP_CMD_RENAMENX || command == RESP_CMD_COPY;
}

/* As many names as the event has, one behind the other. */
static unsigned names_of(const struct store_event *event, struct name out[static 3])
{
	enum resp_id command = resp_note_command(event->note);
	unsigned n = 0;

	switch (event->type) {
	case STORE_EVENT_SET:
		if (event->fresh || is_copied(command))
			out[n++] = (struct name){NEW, "new"};
		out[n++] = name_of_set(command);
		if (event->timed && !is_copied(command))
			out[n++] = (struct name){GENERIC, "expire"};
		break;
	case STORE_EVENT_DELETED:
		if (command == RESP_CMD_FLUSHALL || command == RESP_CMD_FLUSHDB) /* in a transaction or a script */
			break;
		if (command == RESP_CMD_HDEL)
			out[n++] = name_of_set(command);
		out[n++] = command == RESP_CMD_RENAME || command == RESP_CMD_RENAMENX
				   ? (struct name){GENERIC, "rename_from"}
				   : (struct name){GENERIC, "del"};
		break;
	case STORE_EVENT_EXPIRY:
		out[n++] = (struct name){GENERIC, event->timed ? "expire" : "persist"};
		break;
	case STORE_EVENT_EXPIRED:
		out[n++] = (struct name){EXPIRED, "expired"};
		break;
	case STORE_EVENT_EVICTED:
		out[n++] = (struct name){EVICTED, "evicted"};
		break;
	case STORE_EVENT_MISSED:
	case STORE_EVENT_FLUSHED:
		break;
	}
	return n;
}

static void publish_event(struct resp_thread *thread, const char *prefix, const void *name, size_t len,
			  const struct resp_arg *message, const struct resp_arg *key)
{
	char channel[32 + STORE_KEY_MAX];
	size_t at = strlen(prefix);

	memcpy(channel, prefix, at);
	memcpy(channel + at, name, len);
	resp_publish_here(thread, &(struct resp_arg){channel, at + len}, message, key);
}

static void notify_event(struct resp_thread *thread, unsigned flags, const struct store_event *event)
{
	const struct resp_arg key = {(const char *)event->key, event->key_len};
	struct name name[3];
	unsigned n = names_of(event, name);

	for (unsigned i = 0; i < n; i++) {
		const struct resp_arg text = {name[i].text, strlen(name[i].text)};

		if (!(flags & name[i].class))
			continue;
		if (flags & BY_KEY)
			publish_event(thread, "__keyspace@0__:", key.at, key.len, &text, &key);
		if (flags & BY_EVENT)
			publish_event(thread, "__keyevent@0__:", text.at, text.len, &key, &key);
	}
}

/*
 * The thread
 */

bool resp_watch_hears(const char *channel, size_t len, bool pattern)
{
	for (size_t i = 0; i < strlen(CHANNELS); i++) {
		if (i == len)
			return false;
		if (pattern && strchr("*?[\\", channel[i]))
			return true;
		if (channel[i] != CHANNELS[i])
			return false;
	}
	return true;
}

int resp_watch_review(struct resp_thread *thread)
{
	return service_watch_set(&thread->watch, &thread->part, thread->store, thread->mailbox.event,
				 thread->listeners || resp_tracks_any(thread));
}

int resp_watch_turn(struct service_part *part)
{
	struct resp_thread *thread = container_of(part, struct resp_thread, part);
	struct store_event event;
	int n = 0;

	for (; service_watch_next(&thread->watch, &event); n++) {
		unsigned flags = atomic_load_explicit(&thread->shared->notify, memory_order_relaxed);

		if (kv_event_hides(thread->shared->kv->cluster, &event))
			continue;
		resp_track_event(thread, &event);
		if (thread->listeners && flags)
			notify_event(thread, flags, &event);
	}
	if (n)
		resp_track_turn(thread);
	return n;
}

bool resp_watch_arm(struct service_part *part)
{
	return service_watch_arm(&container_of(part, struct resp_thread, part)->watch);
}

void resp_watch_disarm(struct service_part *part)
{
	service_watch_disarm(&container_of(part, struct resp_thread, part)->watch);
}
