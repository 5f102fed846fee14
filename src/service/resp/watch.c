/*
 * watch.c: changed keys, as a thread's clients hear of them: by CLIENT TRACKING (track.c), and as messages on channels,
 * which Redis calls keyspace notifications. A thread watches the store while one of its clients may hear of anything.
 *
 * The store tells what happened to a key; by which command, its event's note says. A key that a transaction or a script
 * changes several times is told of once, by the last of its commands.
 */
#include "service/resp/resp.h"

#define EVENTS_TURN 256  /* in one turn */
#define CHANNELS "__key" /* with which the names of their channels begin */

/* The classes of Redis, in the order in which it names them. Classes of types that rdmad lacks are never told. */
static const struct {
	char letter;
	unsigned bit;
} classes[] = {
	{'g', 1u << 0},  {'$', 1u << 1},  {'l', 1u << 2},  {'s', 1u << 3}, {'h', 1u << 4},
	{'z', 1u << 5},  {'x', 1u << 6},  {'e', 1u << 7},  {'t', 1u << 8}, {'d', 1u << 9},
	{'n', 1u << 10}, {'K', 1u << 11}, {'E', 1u << 12},
};

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
		unsigned bit = at[i] == 'A' ? ALL : 0;

		for (size_t j = 0; j < ARRAY_SIZE(classes); j++)
			bit |= at[i] == classes[j].letter ? classes[j].bit : 0;
		if (!bit)
			return false;
		*out |= bit;
	}
	return true;
}

void resp_notify_text(unsigned flags, char out[static RESP_NOTIFY_TEXT])
{
	bool all = (flags & ALL) == ALL;

	if (all)
		*out++ = 'A';
	for (size_t i = 0; i < ARRAY_SIZE(classes); i++)
		if (flags & classes[i].bit && !(all && classes[i].bit < BY_KEY))
			*out++ = classes[i].letter;
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

/* What it is called that a command has written a key. */
static struct name name_of_set(enum resp_id command)
{
	switch (command) {
	case RESP_CMD_APPEND:
		return (struct name){STRING, "append"};
	case RESP_CMD_SETRANGE:
		return (struct name){STRING, "setrange"};
	case RESP_CMD_INCR:
	case RESP_CMD_DECR:
	case RESP_CMD_INCRBY:
	case RESP_CMD_DECRBY:
		return (struct name){STRING, "incrby"};
	case RESP_CMD_INCRBYFLOAT:
		return (struct name){STRING, "incrbyfloat"};
	case RESP_CMD_HSET:
	case RESP_CMD_HMSET:
	case RESP_CMD_HSETNX:
		return (struct name){HASH, "hset"};
	case RESP_CMD_HDEL:
		return (struct name){HASH, "hdel"};
	case RESP_CMD_HINCRBY:
		return (struct name){HASH, "hincrby"};
	case RESP_CMD_HINCRBYFLOAT:
		return (struct name){HASH, "hincrbyfloat"};
	case RESP_CMD_RENAME:
	case RESP_CMD_RENAMENX:
		return (struct name){GENERIC, "rename_to"};
	case RESP_CMD_COPY:
		return (struct name){GENERIC, "copy_to"};
	default:
		return (struct name){STRING, "set"};
	}
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

static void publish(struct resp_thread *thread, const char *prefix, const void *name, size_t len,
		    const struct resp_arg *message, const struct resp_arg *key)
{
	char channel[32 + STORE_KEY_MAX];
	size_t at = strlen(prefix);

	memcpy(channel, prefix, at);
	memcpy(channel + at, name, len);
	resp_publish_here(thread, &(struct resp_arg){channel, at + len}, message, key);
}

static void notify(struct resp_thread *thread, unsigned flags, const struct store_event *event)
{
	const struct resp_arg key = {(const char *)event->key, event->key_len};
	struct name name[3];
	unsigned n = names_of(event, name);

	for (unsigned i = 0; i < n; i++) {
		const struct resp_arg text = {name[i].text, strlen(name[i].text)};

		if (!(flags & name[i].class))
			continue;
		if (flags & BY_KEY)
			publish(thread, "__keyspace@0__:", key.at, key.len, &text, &key);
		if (flags & BY_EVENT)
			publish(thread, "__keyevent@0__:", text.at, text.len, &key, &key);
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
	bool wanted = thread->listeners || resp_tracks_any(thread);
	int rc;

	if (wanted == thread->watching)
		return 0;
	if (wanted) {
		rc = store_watch_begin(thread->store, &thread->watcher, thread->mailbox.event);
		if (rc != 0)
			return rc;
		service_part_join(&thread->part);
	} else {
		store_watch_end(thread->store, &thread->watcher);
		service_part_leave(&thread->part);
	}
	thread->watching = wanted;
	return 0;
}

int resp_watch_turn(struct service_part *part)
{
	struct resp_thread *thread = container_of(part, struct resp_thread, part);
	struct store_event event;
	int n = 0;

	for (; thread->watching && n < EVENTS_TURN && store_watch_next(thread->store, &thread->watcher, &event); n++) {
		unsigned flags = atomic_load_explicit(&thread->shared->notify, memory_order_relaxed);

		resp_track_event(thread, &event);
		if (thread->listeners && flags)
			notify(thread, flags, &event);
	}
	if (n)
		resp_track_turn(thread);
	return n;
}

bool resp_watch_arm(struct service_part *part)
{
	struct resp_thread *thread = container_of(part, struct resp_thread, part);

	return store_watch_sleep(thread->store, &thread->watcher);
}

void resp_watch_disarm(struct service_part *part)
{
	struct resp_thread *thread = container_of(part, struct resp_thread, part);

	store_watch_rise(thread->store, &thread->watcher);
}
