/* setting.c: one setting's value, from text to its field. */
#include "base/setting.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/un.h>

struct target {
	const struct setting *setting;
	void *values;
	char *why;
	size_t size;
};

static void *setting_field(const struct setting *s, const void *values)
{
	return (char *)(uintptr_t)values + s->offset;
}

static bool setting_wrong(const struct target *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool setting_wrong(const struct target *t, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(t->why, t->size, format, args);
	va_end(args);
	return false;
}

static bool set_number(const struct target *t, const char *text)
{
	const struct setting *s = t->setting;

	if (units_parse_number(text, s->min, s->max, setting_field(s, t->values)) == 0)
		return true;
	return setting_wrong(t, "%s is not a number from %" PRIu64 " to %" PRIu64, text, s->min, s->max);
}

static bool set_size(const struct target *t, const char *text)
{
	const struct setting *s = t->setting;
	char min[32], max[32];
	uint64_t value;

	if (units_parse_size(text, &value) == 0 && ((value >= s->min && value <= s->max) || (s->zero && !value))) {
		*(uint64_t *)setting_field(s, t->values) = value;
		return true;
	}
	return setting_wrong(t, "\"%s\" is not a size from \"%s\" to \"%s\"", text, units_format_size(s->min, min),
			     units_format_size(s->max, max));
}

static bool set_time(const struct target *t, const char *text)
{
	const struct setting *s = t->setting;
	char min[32], max[32];
	uint64_t value = 0;

	if (s->always && strcmp(text, "always") == 0)
		value = TIME_NEVER;
	else if (units_parse_time(text, &value) != 0 || value < s->min || value > s->max)
		return setting_wrong(t, "\"%s\" is not a time from \"%s\" to \"%s\"%s", text,
				     units_format_time(s->min, min), units_format_time(s->max, max),
				     s->always ? ", or \"always\"" : "");
	*(uint64_t *)setting_field(s, t->values) = value;
	return true;
}

static bool set_mode(const struct target *t, const char *text)
{
	char *end;
	unsigned long value = strtoul(text, &end, 8);

	if (text[0] < '0' || text[0] > '7' || *end || value > t->setting->max)
		return setting_wrong(t, "\"%s\" is not a mode such as \"0600\"", text);
	*(uint64_t *)setting_field(t->setting, t->values) = value;
	return true;
}

static bool set_bool(const struct target *t, const char *text)
{
	*(bool *)setting_field(t->setting, t->values) = strcmp(text, "true") == 0;
	return true;
}

static bool check_text(const struct target *t, const char *text)
{
	if (t->setting->check)
		return t->setting->check(text, t->why, t->size);
	return *text || setting_wrong(t, "it is empty");
}

bool setting_check_path(const char *text, char *why, size_t size)
{
	if (text[0] == '/' && strlen(text) < sizeof(((struct sockaddr_un *)0)->sun_path))
		return true;
	if (text[0] == '/')
		snprintf(why, size, "the path is longer than 107 bytes");
	else
		snprintf(why, size, "\"%s\" is not a path from /", text);
	return false;
}

bool setting_check_address(int (*parse)(const char *text, struct address *out), const char *text, struct address *out,
			   char *why, size_t size)
{
	bool valid;

	log_hush_begin(); /* the caller says it, with its place */
	valid = parse(text, out) == 0;
	snprintf(why, size, "%s", log_hush_end());
	return valid;
}

bool setting_check_host(const char *text, char *why, size_t size)
{
	struct address address;
	bool valid = setting_check_address(address_parse, text, &address, why, size);

	if (!valid || (!*address.scheme && !address.path))
		return valid;
	snprintf(why, size, "\"%s\" is not host or host:port; the path of a UNIX socket is for unix_socket", text);
	return false;
}

static bool set_string(const struct target *t, const char *text)
{
	char **at = setting_field(t->setting, t->values), *copy;

	if (!check_text(t, text))
		return false;
	copy = strdup(text);
	if (!copy)
		return setting_wrong(t, "no memory");
	free(*at);
	*at = copy;
	return true;
}

static bool add_item(const struct target *t, const char *text)
{
	struct setting_list *list = setting_field(t->setting, t->values);

	if (!check_text(t, text))
		return false;
	if (list->count == SETTING_LIST_MAX)
		return setting_wrong(t, "more than %d items", SETTING_LIST_MAX);
	list->item[list->count] = strdup(text);
	if (!list->item[list->count])
		return setting_wrong(t, "no memory");
	list->count++;
	return true;
}

const char *setting_choice(const struct setting *s, unsigned i)
{
	return s->choice ? s->choice(i) : s->choices[i];
}

static bool no_such_choice(const struct target *t, const char *text)
{
	char list[128] = "";
	const char *name;

	for (unsigned i = 0; (name = setting_choice(t->setting, i)); i++)
		if (*name)
			snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", *list ? ", " : "", name);
	return setting_wrong(t, "there is no \"%s\"; there are %s", text, list);
}

static bool find_choice(const struct target *t, const char *text, unsigned *out)
{
	const char *name;

	if (t->setting->former[0] && strcmp(text, t->setting->former[0]) == 0)
		text = t->setting->former[1];
	for (unsigned i = 0; (name = setting_choice(t->setting, i)); i++) {
		if (*name && strcmp(name, text) == 0) {
			*out = i;
			return true;
		}
	}
	return no_such_choice(t, text);
}

static bool set_choice(const struct target *t, const char *text)
{
	unsigned choice;

	if (!find_choice(t, text, &choice))
		return false;
	*(uint64_t *)setting_field(t->setting, t->values) = choice;
	return true;
}

static bool add_choice(const struct target *t, const char *text)
{
	unsigned choice;

	if (!find_choice(t, text, &choice))
		return false;
	*(uint64_t *)setting_field(t->setting, t->values) |= 1ull << choice;
	return true;
}

static bool (*const setters[])(const struct target *t, const char *text) = {
	[SETTING_NUMBER] = set_number, [SETTING_SIZE] = set_size,  [SETTING_TIME] = set_time,
	[SETTING_MODE] = set_mode,     [SETTING_BOOL] = set_bool,  [SETTING_STRING] = set_string,
	[SETTING_CHOICE] = set_choice, [SETTING_SET] = add_choice, [SETTING_LIST] = add_item,
};

bool setting_set(const struct setting *s, void *values, const char *text, char *why, size_t size)
{
	struct target t = {s, values, why, size};

	return setters[s->type](&t, text);
}

static void set_items(const struct setting *s, void *values, const char *items)
{
	char text[128], why[160];

	for (; *items; items += *items == ',') {
		size_t n = strcspn(items, ",");

		snprintf(text, sizeof(text), "%.*s", (int)n, items);
		setting_set(s, values, text, why, sizeof(why));
		items += n;
	}
}

static void set_every(const struct setting *s, void *values)
{
	const char *name;

	for (unsigned i = 0; (name = setting_choice(s, i)); i++)
		if (*name)
			*(uint64_t *)setting_field(s, values) |= 1ull << i;
}

void setting_set_default(const struct setting *s, void *values)
{
	char why[160];

	if (!s->value)
		return;
	if (s->type == SETTING_SET && strcmp(s->value, SETTING_EVERY) == 0)
		set_every(s, values);
	else if (s->type == SETTING_LIST || s->type == SETTING_SET)
		set_items(s, values, s->value);
	else
		setting_set(s, values, s->value, why, sizeof(why));
}

void setting_clear(const struct setting *s, void *values)
{
	struct setting_list *list = setting_field(s, values);

	if (s->type == SETTING_LIST) {
		while (list->count > 0)
			free(list->item[--list->count]);
	} else if (s->type == SETTING_STRING) {
		free(*(char **)setting_field(s, values));
		*(char **)setting_field(s, values) = NULL;
	} else if (s->type == SETTING_SET) {
		*(uint64_t *)setting_field(s, values) = 0;
	}
}

static bool list_equal(const struct setting_list *a, const struct setting_list *b)
{
	if (a->count != b->count)
		return false;
	for (unsigned i = 0; i < a->count; i++)
		if (strcmp(a->item[i], b->item[i]) != 0)
			return false;
	return true;
}

bool setting_equal(const struct setting *s, const void *a, const void *b)
{
	const char *one, *other;

	switch (s->type) {
	case SETTING_LIST:
		return list_equal(setting_field(s, a), setting_field(s, b));
	case SETTING_STRING:
		one = *(char **)setting_field(s, a);
		other = *(char **)setting_field(s, b);
		return one && other ? strcmp(one, other) == 0 : one == other;
	case SETTING_BOOL:
		return *(bool *)setting_field(s, a) == *(bool *)setting_field(s, b);
	default:
		return *(uint64_t *)setting_field(s, a) == *(uint64_t *)setting_field(s, b);
	}
}

void setting_swap(const struct setting *s, void *a, void *b)
{
	char kept[sizeof(struct setting_list)];
	size_t n = s->type == SETTING_LIST     ? sizeof(struct setting_list)
		   : s->type == SETTING_BOOL   ? sizeof(bool)
		   : s->type == SETTING_STRING ? sizeof(char *)
					       : sizeof(uint64_t);

	memcpy(kept, setting_field(s, a), n);
	memcpy(setting_field(s, a), setting_field(s, b), n);
	memcpy(setting_field(s, b), kept, n);
}

static const char *set_item(const struct setting *s, uint64_t set, unsigned i)
{
	for (unsigned bit = 0; bit < 64 && set >> bit; bit++)
		if (set >> bit & 1 && i-- == 0)
			return setting_choice(s, bit);
	return NULL;
}

const char *setting_text(const struct setting *s, const void *values, unsigned i, char buf[static 32])
{
	const void *at = setting_field(s, values);
	const struct setting_list *list = at;
	uint64_t ns;

	switch (s->type) {
	case SETTING_LIST:
		return i < list->count ? list->item[i] : NULL;
	case SETTING_SET:
		return set_item(s, *(const uint64_t *)at, i);
	case SETTING_STRING:
		return *(char *const *)at;
	case SETTING_CHOICE:
		return setting_choice(s, (unsigned)*(const uint64_t *)at);
	case SETTING_BOOL:
		return *(const bool *)at ? "true" : "false";
	case SETTING_SIZE:
		return units_format_size(*(const uint64_t *)at, buf);
	case SETTING_TIME:
		ns = *(const uint64_t *)at;
		return ns == TIME_NEVER ? "always" : ns ? units_format_time(ns, buf) : "0";
	case SETTING_MODE:
		snprintf(buf, 32, "%04" PRIo64, *(const uint64_t *)at);
		return buf;
	case SETTING_NUMBER:
		break;
	}
	snprintf(buf, 32, "%" PRIu64, *(const uint64_t *)at);
	return buf;
}
