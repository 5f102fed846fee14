/* config.c: the one door to libconfig: reads a file, checks every key of it against the table. */
#include "daemon/settings.h"

#include <ctype.h>
#include <libconfig.h>
#include <libgen.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <sysexits.h>

#define ERRORS_MAX 20
#define SETTINGS_MAX 128
#define SETTINGS_DEPTH 8 /* of brackets that are open */

struct reader {
	const char *path;
	struct config *config;
	unsigned errors;
	const struct setting *seen[SETTINGS_MAX]; /* in the file so far */
	unsigned seen_count;
};

static void config_fault(struct reader *r, const config_setting_t *at, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void config_fault(struct reader *r, const config_setting_t *at, const char *format, ...)
{
	const char *file = at ? config_setting_source_file(at) : NULL;
	char text[400], line[16] = "";
	va_list args;

	if (++r->errors > ERRORS_MAX)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (at)
		snprintf(line, sizeof(line), ":%u", config_setting_source_line(at));
	log_error("config", "%s%s: %s (RD-2601)", file ? file : r->path, line, text);
}

/* NULL when no name is near enough to be meant. */
static const char *nearest_name(const char *path)
{
	const char *dot = strchr(path, '.'), *best = NULL;
	unsigned least = dot ? 4 : 3;

	for (struct settings_walk at = settings_walk(NULL); at.setting; settings_next(&at)) {
		unsigned d = words_distance(path, at.setting->path);

		if (d < least) {
			least = d;
			best = at.setting->path;
		}
	}
	return best;
}

/* The length of the comment or string that begins here, 0: none does. */
static size_t hidden_length(const char *at)
{
	const char *end;
	size_t n = 1;

	if (at[0] == '#' || (at[0] == '/' && at[1] == '/'))
		return strcspn(at, "\n");
	if (at[0] == '/' && at[1] == '*') {
		end = strstr(at + 2, "*/");
		return end ? (size_t)(end + 2 - at) : strlen(at);
	}
	if (at[0] != '"')
		return 0;
	while (at[n] && at[n] != '"')
		n += at[n] == '\\' && at[n + 1] ? 2 : 1;
	return n + (at[n] == '"');
}

/* Blanks in place of what is no name and no number, and every line where it was. */
static void hide_comments_and_strings(char *text)
{
	while (*text) {
		size_t n = hidden_length(text);

		text += n == 0;
		for (; n > 0; n--, text++)
			if (*text != '\n')
				*text = ' ';
	}
}

static bool is_name(char c)
{
	return c && strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-*", c);
}

/* "kv.memory", which libconfig takes for no name, becomes "kv*memory", which it does; lengths stay. */
static void join_dots(char *text)
{
	size_t n;

	while (*text) {
		n = hidden_length(text);
		if (n) {
			text += n;
		} else if (*text >= '0' && *text <= '9') {
			text += strspn(text, "0123456789abcdefxABCDEFXL.+-");
		} else if (!is_name(*text)) {
			text++;
		} else {
			for (; is_name(*text) || (*text == '.' && is_name(text[1])); text++)
				if (*text == '.')
					*text = '*';
		}
	}
}

/* The file with such names; free() it. NULL: no memory, or it cannot be read. */
static char *text_of(FILE *in, size_t *len)
{
	char *text = NULL, part[4096];
	FILE *out = open_memstream(&text, len);

	for (size_t n; out && (n = fread(part, 1, sizeof(part), in)) > 0;)
		fwrite(part, 1, n, out);
	if (out)
		putc('\n', out); /* libconfig wants one behind a comment */
	if (!out || fclose(out) != 0 || ferror(in)) {
		free(text);
		return NULL;
	}
	join_dots(text);
	return text;
}

/* NULL: it cannot be read, any more. */
static char *plain_text(const char *path)
{
	FILE *in = fopen(path, "re");
	char *text = NULL;
	size_t len;

	if (!in)
		return NULL;
	text = text_of(in, &len);
	fclose(in);
	if (text)
		hide_comments_and_strings(text);
	return text;
}

/* What is assigned to `name` in this line, NULL: nothing is, or *times it is. */
static const char *find_assigned(const char *line, const char *name, unsigned *times)
{
	const char *end = line + strcspn(line, "\n"), *found = NULL, *before = line;
	size_t n = strlen(name);

	for (const char *p = line; (p = strstr(p, name)) && p < end; p += n) {
		const char *behind = p + n + strspn(p + n, " \t\r\n\f");

		if ((p > before && is_name(p[-1])) || is_name(p[n]) || (*behind != '=' && *behind != ':'))
			continue;
		found = behind + 1 + strspn(behind + 1, " \t\r\n\f");
		(*times)++;
	}
	return *times == 1 ? found : NULL;
}

/* The file that has the setting; an included one is named as in the @include. */
static char *source_path(const config_setting_t *at, const char *path)
{
	const char *file = config_setting_source_file(at), *slash = strrchr(path, '/');
	char *out;

	if (!file || file[0] == '/' || !slash)
		return strdup(file ? file : path);
	return asprintf(&out, "%.*s/%s", (int)(slash - path), path, file) < 0 ? NULL : out;
}

/* libconfig reads 4294967297 as 1 and 010 as 10, so the digits are looked up as they were written; it names the line
 * alone. False: they were not found there, for the reason that `why` gets. */
static bool written_number(const config_setting_t *at, const char *path, char out[static 32], const char **why)
{
	char *file = source_path(at, path), *text = file ? plain_text(file) : NULL;
	const char *line = text, *found = NULL;
	unsigned times = 0;
	size_t n = 0;

	for (unsigned i = config_setting_source_line(at); line && i > 1; i--) {
		line = strchr(line, '\n');
		line += line != NULL;
	}
	if (line)
		found = find_assigned(line, config_setting_name(at), &times);
	if (found)
		n = strcspn(found, " \t\r\n\f;,}");
	if (n > 0 && n < 32)
		snprintf(out, 32, "%.*s", (int)n, found);
	*why = times > 1 ? "it stands more than once in this line; give each a line of its own"
			 : "write it in a line of its own";
	free(text);
	free(file);
	return n > 0 && n < 32;
}

static void read_number(struct reader *r, const struct settings_walk *to, const config_setting_t *at)
{
	const struct setting *s = to->setting;
	char text[32], why[160];
	const char *lost;

	if (config_setting_type(at) != CONFIG_TYPE_INT)
		config_fault(r, at, "%s is a number without quotes, from %llu to %llu", s->path,
			     (unsigned long long)s->min, (unsigned long long)s->max);
	else if (!written_number(at, r->path, text, &lost))
		config_fault(r, at, "%s: %s", s->path, lost);
	else if (text[0] == '0' && text[1])
		config_fault(r, at, "%s: write %s without a leading 0 or 0x", s->path, text);
	else if (!setting_set(s, to->values, text, why, sizeof(why)))
		config_fault(r, at, "%s: %s", s->path, why);
}

static void read_bool(struct reader *r, const struct settings_walk *to, const config_setting_t *at)
{
	char why[160];

	if (config_setting_type(at) != CONFIG_TYPE_BOOL)
		config_fault(r, at, "%s is true or false, without quotes", to->setting->path);
	else
		setting_set(to->setting, to->values, config_setting_get_bool(at) ? "true" : "false", why, sizeof(why));
}

static void read_text(struct reader *r, const struct settings_walk *to, const config_setting_t *at)
{
	static const char *const form[] = {
		[SETTING_SIZE] = "a size in quotes, such as \"64M\"",
		[SETTING_TIME] = "a time in quotes, such as \"50us\" or \"2s\"",
		[SETTING_MODE] = "a mode in quotes, such as \"0600\"",
		[SETTING_STRING] = "a text in quotes",
		[SETTING_CHOICE] = "a word in quotes",
		[SETTING_SET] = "a list of words in quotes, such as [\"ping\", \"kv\"]",
		[SETTING_LIST] = "a list of texts in quotes, such as [\"10.0.0.1\", \"tcp://0.0.0.0\"]",
	};
	const struct setting *s = to->setting;
	char why[600];

	if (config_setting_type(at) != CONFIG_TYPE_STRING)
		config_fault(r, at, "%s is %s", s->path, form[s->type]);
	else if (!setting_set(s, to->values, config_setting_get_string(at), why, sizeof(why)))
		config_fault(r, at, "%s: %s", s->path, why);
}

static void read_list(struct reader *r, const struct settings_walk *to, const config_setting_t *at)
{
	int type = config_setting_type(at);

	setting_clear(to->setting, to->values);
	if (type != CONFIG_TYPE_ARRAY && type != CONFIG_TYPE_LIST) {
		read_text(r, to, at);
		return;
	}
	for (int i = 0; i < config_setting_length(at); i++)
		read_text(r, to, config_setting_get_elem(at, (unsigned)i));
}

static void (*const readers[])(struct reader *, const struct settings_walk *, const config_setting_t *) = {
	[SETTING_NUMBER] = read_number, [SETTING_SIZE] = read_text, [SETTING_TIME] = read_text,
	[SETTING_MODE] = read_text,     [SETTING_BOOL] = read_bool, [SETTING_STRING] = read_text,
	[SETTING_CHOICE] = read_text,   [SETTING_SET] = read_list,  [SETTING_LIST] = read_list,
};

/* The setting of that name; `setting` is NULL where there is none. */
static struct settings_walk setting_find(const struct config *config, const char *path)
{
	struct settings_walk at = settings_walk(config);

	while (at.setting && strcmp(at.setting->path, path) != 0)
		settings_next(&at);
	return at;
}

static bool is_group(const char *path)
{
	size_t n = strlen(path);

	for (struct settings_walk at = settings_walk(NULL); at.setting; settings_next(&at))
		if (strncmp(at.setting->path, path, n) == 0 && at.setting->path[n] == '.')
			return true;
	return false;
}

static void read_group(struct reader *r, const config_setting_t *group, const char *prefix);

/* As kv.memory and within kv = { ... }; what is twice in one group libconfig refuses. */
static bool seen_before(struct reader *r, const struct setting *setting)
{
	for (unsigned i = 0; i < r->seen_count; i++)
		if (r->seen[i] == setting)
			return true;
	if (r->seen_count < SETTINGS_MAX)
		r->seen[r->seen_count++] = setting;
	return false;
}

static void read_member(struct reader *r, const config_setting_t *at, const char *prefix)
{
	struct settings_walk to;
	const char *near;
	char path[128];

	snprintf(path, sizeof(path), "%s%s", prefix, config_setting_name(at));
	for (char *star; (star = strchr(path, '*'));)
		*star = '.'; /* see join_dots() */
	to = setting_find(r->config, path);
	if (to.setting && seen_before(r, to.setting)) {
		config_fault(r, at, "%s is set twice", path);
	} else if (to.setting) {
		readers[to.setting->type](r, &to, at);
	} else if (is_group(path) && config_setting_is_group(at)) {
		snprintf(path + strlen(path), sizeof(path) - strlen(path), ".");
		read_group(r, at, path);
	} else if (is_group(path)) {
		config_fault(r, at, "%s is a group: %s = { ... };", path, path);
	} else {
		near = nearest_name(path);
		config_fault(r, at, "unknown setting %s%s%s%s", path, near ? "; did you mean " : "", near ? near : "",
			     near ? "?" : "");
	}
}

static void read_group(struct reader *r, const config_setting_t *group, const char *prefix)
{
	for (int i = 0; i < config_setting_length(group); i++)
		read_member(r, config_setting_get_elem(group, (unsigned)i), prefix);
}

/* The line of the first string that goes on in the next, mostly for want of a quote; 0: there is none. */
static unsigned open_string(const char *text)
{
	unsigned line = 1;

	while (*text) {
		size_t n = MAX(hidden_length(text), 1u);

		if (*text == '"' && memchr(text, '\n', n))
			return line;
		for (; n > 0; n--)
			line += *text++ == '\n';
	}
	return 0;
}

/* What is open at the end: the line in which the last such bracket stands, 0: none. */
static unsigned open_bracket(const char *text, char *bracket)
{
	unsigned line = 1, depth = 0, lines[SETTINGS_DEPTH];

	for (; *text; line += *text++ == '\n') {
		if (strchr("{[(", *text) && depth < SETTINGS_DEPTH) {
			*bracket = *text;
			lines[depth++] = line;
		} else if (strchr("}])", *text) && depth > 0) {
			depth--;
		}
	}
	return depth ? lines[depth - 1] : 0;
}

/* The last byte before `at` that is no blank, or '\0'. */
static char byte_before(const char *text, const char *at)
{
	while (at > text && isspace((unsigned char)at[-1]))
		at--;
	return at > text ? at[-1] : '\0';
}

static bool is_word(const char *at, size_t n, const char *word)
{
	return n == strlen(word) && strncasecmp(at, word, n) == 0;
}

/* Of `line`, in which libconfig gave up, what people write there by habit. `text` is without comments and strings. */
static void find_habit(const char *text, unsigned line, char *hint, size_t size)
{
	const char *at = text, *word;
	size_t n;

	while (line-- > 1 && (at = strchr(at, '\n')))
		at++;
	for (; at && *at && *at != '\n' && !*hint; at++) {
		if (strchr("}])", *at) && byte_before(text, at) == ',') {
			snprintf(hint, size, "; there is a comma in front of this %c", *at);
		} else if (*at == '{' && is_name(byte_before(text, at))) {
			snprintf(hint, size, "; a group is NAME = { ... };");
		} else if (*at == '=' || *at == ':') {
			word = at + 1 + strspn(at + 1, " \t");
			n = strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
			if (n > 0 && !is_word(word, n, "true") && !is_word(word, n, "false"))
				snprintf(hint, size,
					 "; %.*s is no value: texts are in quotes, and there are true and false",
					 (int)MIN(n, 32), word);
		}
	}
}

/* libconfig says "syntax error" of every fault: what it most likely was, or "". */
static void explain_syntax(const char *text, unsigned line, char *hint, size_t size)
{
	unsigned begin = open_string(text);
	char *plain = strdup(text), bracket = 0;

	*hint = '\0';
	if (begin) {
		snprintf(hint, size, "; a text begins in line %u and does not end there", begin);
	} else if (plain) {
		hide_comments_and_strings(plain);
		find_habit(plain, line, hint, size);
		begin = *hint ? 0 : open_bracket(plain, &bracket);
		if (begin)
			snprintf(hint, size, "; the %c of line %u is not closed", bracket, begin);
	}
	free(plain);
}

static void read_text_of(struct reader *r, const char *text)
{
	char *copy = strdup(r->path), hint[128] = "";
	const char *in;
	config_t file;

	config_init(&file);
	if (copy)
		config_set_include_dir(&file, dirname(copy));
	if (config_read_string(&file, text) == CONFIG_TRUE) {
		read_group(r, config_root_setting(&file), "");
	} else {
		r->errors++;
		in = config_error_file(&file);
		if (!in) /* else the fault is in another text */
			explain_syntax(text, (unsigned)config_error_line(&file), hint, sizeof(hint));
		log_error("config", "%s:%d: %s%s (RD-2601)", in ? in : r->path, config_error_line(&file),
			  config_error_text(&file), hint);
	}
	config_destroy(&file);
	free(copy);
}

/* libconfig's scanner ends the process when it cannot read, and a pipe has its text once, if it has a writer: look
 * first. */
static void read_file(struct reader *r)
{
	char *text = NULL;
	size_t len = 0;
	struct stat st;
	FILE *in;

	if (stat(r->path, &st) == 0 && (S_ISDIR(st.st_mode) || S_ISFIFO(st.st_mode))) {
		config_fault(r, NULL, "it is a %s", S_ISDIR(st.st_mode) ? "directory" : "pipe");
		return;
	}
	in = fopen(r->path, "re");
	if (!in) {
		config_fault(r, NULL, "cannot read it: %s", strerror(errno));
		return;
	}
	text = text_of(in, &len);
	if (text && strlen(text) == len)
		read_text_of(r, text);
	else
		config_fault(r, NULL, text ? "it has a byte of 0" : "cannot read it");
	free(text);
	fclose(in);
}

static void set_defaults(struct config *config)
{
	/* systemd gives a service that is not root's a directory, where rdmactl as root looks. */
	const char *given = getenv("RUNTIME_DIRECTORY");
	char path[256];

	for (struct settings_walk at = settings_walk(config); at.setting; settings_next(&at))
		setting_set_default(at.setting, at.values);
	address_runtime_path(ADDRESS_SERVICE_SOCKET, ADDRESS_SERVICE_SOCKET, given, path, sizeof(path));
	config->unix_socket = strdup(path);
	wire_control_path(given, path, sizeof(path));
	config->control_socket = strdup(path);
}

static void apply_overrides(struct reader *r, const struct config_overrides *overrides)
{
	const struct setting *listen = setting_find(NULL, "listen").setting;
	char why[600];

	if (overrides->listen.count)
		setting_clear(listen, r->config);
	for (unsigned i = 0; i < overrides->listen.count; i++)
		if (!setting_set(listen, r->config, overrides->listen.item[i], why, sizeof(why)))
			config_fault(r, NULL, "listen: %s", why);
	r->config->insecure |= overrides->insecure;
	if (overrides->log_level)
		setting_set(setting_find(NULL, "log.level").setting, r->config, overrides->log_level, why, sizeof(why));
}

static const char *transport_names(bool devices_only, char *buf, size_t size)
{
	buf[0] = '\0';
	for (unsigned i = 0; i < FABRIC_TRANSPORTS; i++)
		if (!devices_only || !fabric_transports[i].processor)
			snprintf(buf + strlen(buf), size - strlen(buf), "%s%s", *buf ? ", " : "",
				 fabric_transports[i].name);
	return buf;
}

static void check_transports(struct reader *r)
{
	bool device = false, any = false;
	char names[128];

	for (unsigned i = 0; i < FABRIC_TRANSPORTS; i++)
		if (config_allows(r->config, &fabric_transports[i])) {
			device |= !fabric_transports[i].processor;
			any |= !fabric_transports[i].inside;
		}
	if (!any)
		config_fault(r, NULL, "transports has none by which a client can connect: there are %s",
			     transport_names(false, names, sizeof(names)));
	if (r->config->require_rdma && !device)
		config_fault(r, NULL, "require_rdma is true, but transports lacks %s",
			     transport_names(true, names, sizeof(names)));
}

/* What no single setting shows. */
static void check_together(struct reader *r)
{
	const struct config *c = r->config;

	if (!c->unix_socket || !c->control_socket)
		config_fault(r, NULL, "no memory");
	check_transports(r);
	if (c->message_max < c->message_size)
		config_fault(r, NULL, "message_max is less than message_size");
	for (unsigned i = 0; i < c->listen.count; i++) {
		const struct fabric_transport *transport = NULL;
		struct address address;

		if (fabric_address_parse(c->listen.item[i], &address) == 0)
			transport = fabric_transport_find(address.scheme);
		if (transport && !config_allows(c, transport))
			config_fault(r, NULL, "listen has %s, but transports lacks %s", c->listen.item[i],
				     transport->name);
	}
}

int config_load(const char *path, const struct config_overrides *overrides, struct config **out)
{
	struct reader r = {.path = path ? path : "rdmad", .config = calloc(1, sizeof(struct config))};

	if (!r.config || settings_make_room(r.config) != 0) {
		log_error("config", "no memory");
		config_free(r.config);
		return EX_OSERR;
	}
	set_defaults(r.config);
	if (path)
		read_file(&r);
	apply_overrides(&r, overrides);
	if (!r.errors)
		check_together(&r);
	if (!r.errors) {
		*out = r.config;
		return 0;
	}
	if (r.errors > ERRORS_MAX)
		log_error("config", "%s: %u more errors", r.path, r.errors - ERRORS_MAX);
	config_free(r.config);
	return EX_CONFIG;
}

void config_free(struct config *config)
{
	if (!config)
		return;
	for (struct settings_walk at = settings_walk(config); at.setting; settings_next(&at))
		if (at.values)
			setting_clear(at.setting, at.values);
	settings_free_room(config);
	free(config);
}

void config_merge(struct config *config, struct config *fresh,
		  void (*changed)(void *arg, const char *path, bool restart), void *arg)
{
	struct settings_walk to = settings_walk(config), from = settings_walk(fresh);

	for (; to.setting; settings_next(&to), settings_next(&from)) {
		if (setting_equal(to.setting, to.values, from.values))
			continue;
		if (to.setting->reload)
			setting_swap(to.setting, to.values, from.values);
		changed(arg, to.setting->path, !to.setting->reload);
	}
}

int config_listen_address(const struct config *config, const char *text, struct address *out)
{
	int rc = fabric_address_parse(text, out);

	if (rc == 0 && !out->path && !out->port_given)
		out->port = (uint16_t)config->port;
	return rc;
}
