/* log.c: the one place where a message becomes a line. */
#include "base/base.h"

_Atomic int log_threshold = LOG_LEVEL_INFO;

static const char *const level_names[] = {
	[LOG_LEVEL_ERROR] = "error",
	[LOG_LEVEL_WARN] = "warn",
	[LOG_LEVEL_INFO] = "info",
	[LOG_LEVEL_DEBUG] = "debug",
};

static void write_stderr(enum log_level level, const char *room, const char *text)
{
	fprintf(stderr, "%s %s: %s\n", level_names[level], room, text);
}

static _Atomic(log_handler) handler = write_stderr; /* a reload sets it while threads log */
static __thread char last[512];
/* Whether `last` is of the present call. Calls clear it on their way in, so it is where a load finds it. */
static __thread bool kept __attribute__((tls_model("initial-exec")));
static __thread unsigned hushed; /* one within another */
static atomic_bool throttled;

void log_set_handler(log_handler h)
{
	handler = h ? h : write_stderr;
}

void log_keep(enum log_level level, const char *room, const char *text)
{
	(void)room;
	if (level > LOG_LEVEL_WARN)
		return;
	snprintf(last, sizeof(last), "%s", text);
	kept = true;
}

const char *log_last(void)
{
	return kept ? last : "";
}

void log_clear_last(void)
{
	kept = false;
}

void log_hush_begin(void)
{
	log_clear_last();
	hushed++;
}

const char *log_hush_end(void)
{
	hushed--;
	return log_last();
}

const char *log_level_name(enum log_level level)
{
	return level_names[level];
}

int log_level_parse(const char *name, enum log_level *level)
{
	for (size_t i = 0; i < ARRAY_SIZE(level_names); i++) {
		if (strcmp(name, level_names[i]) == 0) {
			*level = i;
			return 0;
		}
	}
	return -EINVAL;
}

/* The length of the character, 0 where it is none or may not stand in a line: control characters, those that break a
 * line or turn its direction, and what is not UTF-8. */
static size_t printable_bytes(const char *text)
{
	static const struct {
		unsigned char mask, lead;
		uint32_t least;
	} forms[] = {{0x80, 0x00, ' '}, {0xe0, 0xc0, 0xa0}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
	const unsigned char *s = (const unsigned char *)text;
	size_t n = 0;
	uint32_t c;

	while (n < ARRAY_SIZE(forms) && (*s & forms[n].mask) != forms[n].lead)
		n++;
	if (n == ARRAY_SIZE(forms))
		return 0;
	c = *s & (unsigned char)~forms[n].mask;
	for (size_t i = 1; i <= n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	if (c < forms[n].least || c == 0x7f || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return 0;
	return (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) ? 0 : n + 1;
}

char *log_printable(const char *text, char *buf, size_t size)
{
	size_t at = 0;

	while (*text) {
		size_t n = printable_bytes(text), takes = n ? n : 4;

		if (at + takes >= size)
			break;
		if (n)
			memcpy(buf + at, text, n);
		else
			snprintf(buf + at, size - at, "\\x%02x", (unsigned char)*text);
		at += takes;
		text += n ? n : 1;
	}
	buf[at] = '\0';
	return buf;
}

char *log_json(const char *text, char *buf, size_t size)
{
	size_t at = 0;

	while (*text) {
		size_t n = printable_bytes(text), takes = n;
		unsigned char c = (unsigned char)*text;
		char escape[LOG_JSON_MAX + 1];

		if (n == 0)
			takes = (size_t)snprintf(escape, sizeof(escape), "\\u%04x", c < 0x80 ? c : 0xfffdu);
		else if (c == '"' || c == '\\')
			takes = (size_t)snprintf(escape, sizeof(escape), "\\%c", c);
		if (at + takes >= size)
			break;
		memcpy(buf + at, takes == n ? text : escape, takes);
		at += takes;
		text += n ? n : 1;
	}
	buf[at] = '\0';
	return buf;
}

void log_throttle(bool on)
{
	throttled = on;
}

enum log_verdict log_site_judge(struct log_site *site, uint64_t now, uint32_t *missed)
{
	uint64_t since = atomic_load_explicit(&site->since, memory_order_relaxed);
	uint32_t n;

	*missed = 0;
	if (now - since >= LOG_WINDOW && atomic_compare_exchange_strong(&site->since, &since, now)) {
		n = atomic_exchange(&site->count, 1);
		*missed = n > LOG_BURST ? n - LOG_BURST : 0;
		return LOG_PASS;
	}
	n = atomic_fetch_add(&site->count, 1) + 1;
	return n < LOG_BURST ? LOG_PASS : n == LOG_BURST ? LOG_PASS_LAST : LOG_HOLD;
}

static void hand_over(struct log_site *site, enum log_level level, const char *room, const char *text)
{
	enum log_verdict verdict = LOG_PASS;
	log_handler handle = handler;
	uint32_t missed = 0;
	char note[96];

	if (throttled && level < LOG_LEVEL_DEBUG)
		verdict = log_site_judge(site, time_now(), &missed);
	if (verdict == LOG_HOLD) {
		log_keep(level, room, text);
		return;
	}
	if (missed) {
		snprintf(note, sizeof(note), "%u more like the next line were not logged", missed);
		handle(level, room, note);
	}
	if (verdict == LOG_PASS_LAST)
		handle(level, room, "more like the next line will only be counted, for a minute");
	handle(level, room, text);
}

void log_write(struct log_site *site, enum log_level level, const char *room, const char *format, ...)
{
	int saved = errno; /* callers log on the way out with errno still to be read */
	char raw[512], text[512];
	va_list args;

	va_start(args, format);
	errno = saved; /* for %m */
	vsnprintf(raw, sizeof(raw), format, args);
	va_end(args);
	log_printable(raw, text, sizeof(text));
	if (hushed)
		log_keep(level, room, text);
	else
		hand_over(site, level, room, text);
	errno = saved;
}
