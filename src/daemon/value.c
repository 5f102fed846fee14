/* value.c: one setting's value, from text to its field. */
#include "daemon/settings.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/un.h>

struct target {
	const struct setting *setting;
	struct config *config;
	char *why;
	size_t size;
};

static void *field(const struct setting *s, const struct config *config)
{
	return (char *)config + s->offset;
}

static bool wrong(const struct target *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool wrong(const struct target *t, const char *format, ...)
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

	if (units_parse_number(text, s->min, s->max, field(s, t->config)) == 0)
		return true;
	return wrong(t, "%s is not a number from %" PRIu64 " to %" PRIu64, text, s->min, s->max);
}

static bool set_size(const struct target *t, const char *text)
{
	const struct setting *s = t->setting;
	char min[32], max[32];
	uint64_t value;

	if (units_parse_size(text, &value) == 0 && value >= s->min && value <= s->max) {
		*(uint64_t *)field(s, t->config) = value;
		return true;
	}
	return wrong(t, "\"%s\" is not a size from \"%s\" to \"%s\"", text, units_format_size(s->min, min),
		     units_format_size(s->max, max));
}

static bool set_time(const struct target *t, const char *text)
{
	const struct setting *s = t->setting;
	char min[32], max[32];
	uint64_t value = 0;

	if (s->always && strcmp(text, "always") == 0)
		value = CONFIG_POLL_ALWAYS;
	else if (units_parse_time(text, &value) != 0 || value < s->min || value > s->max)
		return wrong(t, "\"%s\" is not a time from \"%s\" to \"%s\"%s", text, units_format_time(s->min, min),
			     units_format_time(s->max, max), s->always ? ", or \"always\"" : "");
	*(uint64_t *)field(s, t->config) = value;
	return true;
}

static bool set_mode(const struct target *t, const char *text)
{
	char *end;
	unsigned long value = strtoul(text, &end, 8);

	if (text[0] < '0' || text[0] > '7' || *end || value > t->setting->max)
		return wrong(t, "\"%s\" is not a mode such as \"0600\"", text);
	*(uint64_t *)field(t->setting, t->config) = value;
	return true;
}

static bool set_bool(const struct target *t, const char *text)
{
	*(bool *)field(t->setting, t->config) = strcmp(text, "true") == 0;
	return true;
}

static bool check_text(const struct target *t, const char *text)
{
	struct address address;

	switch (t->setting->check) {
	case SETTING_ANY:
		return *text || wrong(t, "it is empty");
	case SETTING_PATH:
		if (text[0] != '/')
			return wrong(t, "\"%s\" is not a path from /", text);
		if (strlen(text) >= sizeof(((struct sockaddr_un *)0)->sun_path))
			return wrong(t, "the path is longer than 107 bytes");
		return true;
	case SETTING_ADDRESS:
		log_clear_last();
		return address_parse(text, &address) == 0 || wrong(t, "%s", log_last());
	case SETTING_TARGET:
		return strcmp(text, "stderr") == 0 || strcmp(text, "syslog") == 0 || strncmp(text, "file:/", 6) == 0 ||
		       wrong(t, "\"%s\" is not \"stderr\", \"syslog\" or \"file:/path\"", text);
	}
	return true;
}

static bool set_string(const struct target *t, const char *text)
{
	char **at = field(t->setting, t->config), *copy;

	if (!check_text(t, text))
		return false;
	copy = strdup(text);
	if (!copy)
		return wrong(t, "no memory");
	free(*at);
	*at = copy;
	return true;
}

static bool add_item(const struct target *t, const char *text)
{
	struct config_list *list = field(t->setting, t->config);

	if (!check_text(t, text))
		return false;
	if (list->count == CONFIG_LIST_MAX)
		return wrong(t, "more than %d items", CONFIG_LIST_MAX);
	list->item[list->count] = strdup(text);
	if (!list->item[list->count])
		return wrong(t, "no memory");
	list->count++;
	return true;
}

static bool no_such_choice(const struct target *t, const char *text)
{
	char list[128] = "";
	const char *name;
	bool usable;

	for (unsigned i = 0; (name = setting_choice(t->setting, i, &usable)); i++)
		if (usable)
			snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", *list ? ", " : "", name);
	return wrong(t, "there is no \"%s\"; there are %s", text, list);
}

static bool find_choice(const struct target *t, const char *text, unsigned *out)
{
	const char *name;
	bool usable;

	if (t->setting->former[0] && strcmp(text, t->setting->former[0]) == 0)
		text = t->setting->former[1];
	for (unsigned i = 0; (name = setting_choice(t->setting, i, &usable)); i++) {
		if (usable && strcmp(name, text) == 0) {
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
	*(uint64_t *)field(t->setting, t->config) = choice;
	return true;
}

static bool add_choice(const struct target *t, const char *text)
{
	unsigned choice;

	if (!find_choice(t, text, &choice))
		return false;
	*(uint64_t *)field(t->setting, t->config) |= 1ull << choice;
	return true;
}

static bool (*const setters[])(const struct target *t, const char *text) = {
	[SETTING_NUMBER] = set_number, [SETTING_SIZE] = set_size,  [SETTING_TIME] = set_time,
	[SETTING_MODE] = set_mode,     [SETTING_BOOL] = set_bool,  [SETTING_STRING] = set_string,
	[SETTING_CHOICE] = set_choice, [SETTING_SET] = add_choice, [SETTING_LIST] = add_item,
};

bool setting_set(const struct setting *s, struct config *config, const char *text, char *why, size_t size)
{
	struct target t = {s, config, why, size};

	return setters[s->type](&t, text);
}

static void clear_list(struct config_list *list)
{
	while (list->count > 0)
		free(list->item[--list->count]);
}

void setting_clear(const struct setting *s, struct config *config)
{
	if (s->type == SETTING_LIST) {
		clear_list(field(s, config));
	} else if (s->type == SETTING_STRING) {
		free(*(char **)field(s, config));
		*(char **)field(s, config) = NULL;
	} else if (s->type == SETTING_SET) {
		*(uint64_t *)field(s, config) = 0;
	}
}

static bool list_equal(const struct config_list *a, const struct config_list *b)
{
	if (a->count != b->count)
		return false;
	for (unsigned i = 0; i < a->count; i++)
		if (strcmp(a->item[i], b->item[i]) != 0)
			return false;
	return true;
}

static bool string_equal(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

bool setting_equal(const struct setting *s, const struct config *a, const struct config *b)
{
	switch (s->type) {
	case SETTING_LIST:
		return list_equal(field(s, a), field(s, b));
	case SETTING_STRING:
		return string_equal(*(char **)field(s, a), *(char **)field(s, b));
	case SETTING_BOOL:
		return *(bool *)field(s, a) == *(bool *)field(s, b);
	default:
		return *(uint64_t *)field(s, a) == *(uint64_t *)field(s, b);
	}
}

static size_t field_size(enum setting_type type)
{
	return type == SETTING_LIST     ? sizeof(struct config_list)
	       : type == SETTING_BOOL   ? sizeof(bool)
	       : type == SETTING_STRING ? sizeof(char *)
					: sizeof(uint64_t);
}

void setting_swap(const struct setting *s, struct config *a, struct config *b)
{
	char kept[sizeof(struct config_list)];
	size_t n = field_size(s->type);

	memcpy(kept, field(s, a), n);
	memcpy(field(s, a), field(s, b), n);
	memcpy(field(s, b), kept, n);
}
