/* watch.c: changes of keys, a line each, as they come. */
#include "ctl/ctl.h"
#include "rdmad/kv.h"

#define AT_ONCE 256

static uint64_t count;
static const char *kinds;

static const struct {
	const char *name;
	enum kv_event_kind kind;
} names[] = {
	{"stored", KV_EVENT_STORED},   {"deleted", KV_EVENT_DELETED}, {"expired", KV_EVENT_EXPIRED},
	{"evicted", KV_EVENT_EVICTED}, {"ttl", KV_EVENT_TTL},         {"flushed", KV_EVENT_FLUSHED},
	{"began", KV_EVENT_BEGAN},     {"missed", KV_EVENT_MISSED},
};

/* Of "stored,evicted" the bits; 0: it has another word. */
static unsigned kinds_read(const char *text)
{
	unsigned bits = 0;

	while (true) {
		size_t len = strcspn(text, ","), i = 0;

		while (i < ARRAY_SIZE(names) && !(names[i].kind & KV_EVENT_ALL && strlen(names[i].name) == len &&
						  memcmp(names[i].name, text, len) == 0))
			i++;
		if (i == ARRAY_SIZE(names))
			return 0;
		bits |= (unsigned)names[i].kind;
		if (!text[len])
			return bits;
		text += len + 1;
	}
}

static int check_kinds(const char *text)
{
	if (kinds_read(text))
		return 0;
	ctl_usage_error("kv watch: --kinds %s: some of stored, deleted, expired, evicted, ttl, with commas between",
			text);
	return -EINVAL;
}

static const struct ctl_option watch_options[] = {
	{"kinds", 'k', CTL_CHECKED, &kinds, "KINDS", "tell only of these: stored,deleted,expired,evicted,ttl",
	 .check = check_kinds, .choices = "stored deleted expired evicted ttl"},
	{"count", 'c', CTL_NUMBER, &count, "N", "end after so many changes", .min = 1},
	{NULL},
};

static const char *name_of(const struct kv_event *event)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (names[i].kind == event->kind)
			return event->fresh ? "new" : names[i].name;
	return "changed";
}

static void print_event(const struct kv_event *event)
{
	json_t *o;

	if (ctl.json) {
		o = json_pack("{s:s}", "event", name_of(event));
		if (event->key)
			ctl_json_set_bytes(o, "key", event->key, event->key_len);
		if (event->kind == KV_EVENT_MISSED)
			json_object_set_new(o, "missed", json_integer((json_int_t)event->missed));
		ctl_put_json(stdout, o);
		json_decref(o);
	} else {
		fputs(name_of(event), stdout);
		if (event->key)
			putchar(' ');
		if (event->key)
			ctl_put_key(event->key, event->key_len);
		if (event->kind == KV_EVENT_MISSED)
			printf(" %llu", (unsigned long long)event->missed);
	}
	putchar('\n');
	ctl_record_end();
}

/* Until the count is reached or a signal comes; an exit status. */
static int print_events(void *kv)
{
	struct kv_event events[AT_ONCE];
	uint64_t left = count ? count : UINT64_MAX;

	while (left && !ctl_interrupted()) {
		int64_t n = kv_events(kv, events, ARRAY_SIZE(events), CTL_SLICE_US);

		if (n < 0)
			return ctl_fail((int)n, NULL, "kv watch");
		for (int64_t i = 0; i < n && left; i++) {
			print_event(&events[i]);
			left -= events[i].kind != KV_EVENT_BEGAN;
		}
		if (n && (ctl_flush() != 0 || ferror(stdout)))
			return CTL_FAILED;
	}
	return CTL_OK;
}

static int command_watch(const struct ctl_arguments *arguments)
{
	const char *prefix = arguments->count ? arguments->text[0] : "";
	void *kv;
	int rc = ctl_kv_open(&kv), error;

	if (rc != 0)
		return rc;
	ctl_catch_interrupt();
	error = kv_watch(kv, prefix, strlen(prefix), kinds ? kinds_read(kinds) : KV_EVENT_ALL);
	rc = error ? ctl_fail(error, NULL, "kv watch") : print_events(kv);
	kv_close(kv);
	return rc;
}

const struct ctl_command ctl_kv_watch_commands[] = {
	{"kv watch", command_watch, "[PREFIX]", "tell of changes of keys as they come", watch_options, 0, 1},
	{NULL},
};
