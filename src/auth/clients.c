/* clients.c: what each client may do, out of a file; and whether it may. */
#include "auth/internal.h"

#include <stdlib.h>

struct auth_clients {
	size_t count;
	struct auth_client *client; /* by name */
};

#define BURST (TIME_S / 10)
#define LONGEST (3600 * TIME_S) /* that anything is paid for */

/* The times at which what a client has used is paid for. */
struct auth_spent {
	_Atomic uint64_t bytes, requests;
};

#define NO_LIMITS                                                                                                      \
	.connections = AUTH_NO_LIMIT, .gpu_sessions = AUTH_NO_LIMIT, .gpu_memory = AUTH_NO_LIMIT,                      \
	.bytes = AUTH_NO_LIMIT, .requests = AUTH_NO_LIMIT, .stored = AUTH_NO_LIMIT

const struct auth_client auth_everything = {
	.name = "*",
	.services = UINT32_MAX,
	.flush = true,
	.facts = true,
	.move = true,
	.prefixes = {{.all = true}, {.all = true}, {.all = true}},
	NO_LIMITS,
};
const struct auth_client auth_nothing = {NO_LIMITS};

struct parser {
	const char *path;
	unsigned line;
	const char *const *services;
	struct auth_client *client;
	char *free; /* in the client's text */
};

static int parser_complain(const struct parser *p, const char *word, const char *why)
{
	/* A file of keys may have been named in place of that of clients. */
	if (strstr(word, "rdmad1:"))
		word = "rdmad1:...";
	return log_fail(-EINVAL, "auth", "%s:%u: \"%s\": %s", p->path, p->line, word, why);
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

/* Prefixes between commas, in which %2c is a comma and %20 a blank. An empty word is all. */
static int parse_prefixes(struct parser *p, const char *word, struct auth_prefixes *out)
{
	const char *at = word;

	if (out->all || out->count)
		return parser_complain(p, word, "that right stands twice: its prefixes belong behind one =");
	out->all = !*word;
	while (*at) {
		char *begin = p->free;

		for (; *at && *at != ','; at++) {
			if (*at != '%') {
				*p->free++ = *at;
				continue;
			}
			if (hex_digit(at[1]) < 0 || hex_digit(at[2]) < 0)
				return parser_complain(p, word, "behind a % there are two hexadecimal digits");
			*p->free++ = (char)(hex_digit(at[1]) * 16 + hex_digit(at[2]));
			at += 2;
		}
		if (p->free == begin)
			return parser_complain(p, word,
					       "a prefix is empty; nothing behind the = stands for everything");
		if (out->count == AUTH_PREFIXES_MAX)
			return parser_complain(p, word, "there are more than 16 prefixes");
		out->prefix[out->count].offset = (uint16_t)(begin - p->client->text);
		out->prefix[out->count++].length = (uint16_t)(p->free - begin);
		if (*at == ',' && !*++at)
			return parser_complain(p, word, "it ends with a comma");
	}
	return 0;
}

static const struct {
	const char *name;
	enum auth_access access;
} prefix_words[] = {{"read=", AUTH_READ}, {"write=", AUTH_WRITE}, {"names=", AUTH_NAMES}};

static const struct {
	const char *name;
	size_t offset;
	bool size; /* or a number */
	uint64_t least;
} limit_words[] = {
	{"connections=", offsetof(struct auth_client, connections), .size = false, .least = 0},
	{"gpu=", offsetof(struct auth_client, gpu_sessions), .size = false, .least = 0},
	{"gpu_memory=", offsetof(struct auth_client, gpu_memory), .size = true, .least = 0},
	{"stored=", offsetof(struct auth_client, stored), .size = true, .least = 0},
	{"bytes=", offsetof(struct auth_client, bytes), .size = true, .least = 1},
	{"requests=", offsetof(struct auth_client, requests), .size = false, .least = 1},
};

static int parse_word(struct parser *p, const char *word)
{
	for (size_t i = 0; i < ARRAY_SIZE(prefix_words); i++) {
		size_t n = strlen(prefix_words[i].name);

		if (strncmp(word, prefix_words[i].name, n) == 0)
			return parse_prefixes(p, word + n, &p->client->prefixes[prefix_words[i].access]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(limit_words); i++) {
		size_t n = strlen(limit_words[i].name);
		uint64_t *to = (uint64_t *)((char *)p->client + limit_words[i].offset);

		if (strncmp(word, limit_words[i].name, n) != 0)
			continue;
		if ((limit_words[i].size ? units_parse_size(word + n, to)
					 : units_parse_number(word + n, 0, UINT32_MAX, to)) != 0)
			return parser_complain(
				p, word, limit_words[i].size ? "it needs a size, such as 64M" : "it needs a number");
		return *to < limit_words[i].least ? parser_complain(p, word, "it is to be at least 1") : 0;
	}
	for (unsigned i = 0; p->services[i]; i++)
		if (strcmp(word, p->services[i]) == 0) {
			p->client->services |= 1u << i;
			return 0;
		}
	if (strcmp(word, "flush") == 0) {
		p->client->flush = true;
		return 0;
	}
	if (strcmp(word, "facts") == 0) {
		p->client->facts = true;
		return 0;
	}
	if (strcmp(word, "move") == 0) {
		p->client->move = true;
		return 0;
	}
	return parser_complain(p, word, "this is no service and no right");
}

static bool subject_valid(const char *name)
{
	uint64_t uid;

	if (*name == '@') /* as a number is written here when a user's line is looked for */
		return strcmp(name, "@*") == 0 ||
		       ((name[1] != '0' || !name[2]) && units_parse_number(name + 1, 0, UINT32_MAX, &uid) == 0);
	return strcmp(name, "*") == 0 || auth_name_valid(name);
}

/* A line is the name and words behind it, between blanks. */
static int parse_client(struct parser *p, const char *line, size_t length)
{
	char *copy = strndup(line, length), *rest = copy, *word;
	int rc = -ENOMEM;

	p->client->text = p->free = malloc(length + 1);
	if (copy && p->client->text)
		rc = strlen(copy) == length ? 0 : parser_complain(p, copy, "a byte of 0 is behind it");
	else
		log_error("auth", "no memory");
	word = rc == 0 ? strsep(&rest, " \t") : NULL;
	if (word && !subject_valid(word))
		rc = parser_complain(p, word, "this is no name of a client, nor @USER-ID, @* or *");
	else if (word)
		snprintf(p->client->name, sizeof(p->client->name), "%s", word);
	while (rc == 0 && (word = strsep(&rest, " \t")))
		if (*word)
			rc = parse_word(p, word);
	if (rc == 0 && p->client->connections != AUTH_NO_LIMIT) {
		p->client->open = calloc(1, sizeof(*p->client->open));
		rc = p->client->open ? 0 : parser_complain(p, p->client->name, "no memory");
	}
	if (rc == 0 && (p->client->bytes != AUTH_NO_LIMIT || p->client->requests != AUTH_NO_LIMIT)) {
		p->client->spent = calloc(1, sizeof(*p->client->spent));
		rc = p->client->spent ? 0 : parser_complain(p, p->client->name, "no memory");
	}
	free(copy);
	return rc;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(((const struct auth_client *)a)->name, ((const struct auth_client *)b)->name);
}

static int parse_lines(const char *path, const char *text, size_t length, const char *const *services,
		       struct auth_clients *clients)
{
	struct words_lines lines = words_lines(text, length);
	struct parser p = {.path = path, .services = services};
	int rc;

	while (words_lines_next(&lines)) {
		p.line = lines.number;
		if (lines.length > UINT16_MAX)
			return parser_complain(&p, "", "the line is longer than 65535 bytes");
		p.client = &clients->client[clients->count++];
		*p.client = auth_nothing;
		rc = parse_client(&p, lines.line, lines.length);
		if (rc != 0)
			return rc;
	}
	qsort(clients->client, clients->count, sizeof(clients->client[0]), compare_names);
	for (size_t i = 1; i < clients->count; i++)
		if (compare_names(&clients->client[i - 1], &clients->client[i]) == 0)
			return log_fail(-EINVAL, "auth", "%s: %s has two lines", path, clients->client[i].name);
	return 0;
}

int auth_clients_parse(const char *path, const char *text, size_t length, const char *const *services,
		       struct auth_clients **out)
{
	struct auth_clients *clients = calloc(1, sizeof(*clients));
	struct words_lines lines = words_lines(text, length);
	size_t most = 1;
	int rc = -ENOMEM;

	while (words_lines_next(&lines))
		most++;
	if (clients)
		clients->client = calloc(most, sizeof(clients->client[0]));
	if (clients && clients->client)
		rc = parse_lines(path, text, length, services, clients);
	else
		log_error("auth", "%s: no memory", path);
	if (rc == 0)
		*out = clients;
	else
		auth_clients_free(clients);
	return rc;
}

int auth_clients_load(const char *path, const char *const *services, struct auth_clients **out)
{
	size_t length;
	char *text;
	int rc = auth_file_read(path, false, &text, &length);

	if (rc != 0)
		return rc;
	rc = auth_clients_parse(path, text, length, services, out);
	auth_file_end(text, length);
	return rc;
}

void auth_clients_free(struct auth_clients *clients)
{
	if (!clients)
		return;
	for (size_t i = 0; i < clients->count; i++) {
		free(clients->client[i].text);
		free(clients->client[i].open);
		free(clients->client[i].spent);
	}
	free(clients->client);
	free(clients);
}

static const struct auth_client *find_name(const struct auth_clients *clients, const char *name)
{
	struct auth_client wanted = {0};

	snprintf(wanted.name, sizeof(wanted.name), "%s", name);
	return bsearch(&wanted, clients->client, clients->count, sizeof(clients->client[0]), compare_names);
}

const struct auth_client *auth_clients_find(const struct auth_clients *clients, const char *name)
{
	const struct auth_client *client;

	if (!clients)
		return &auth_everything;
	client = find_name(clients, name);
	if (!client)
		client = find_name(clients, "*");
	return client ? client : &auth_nothing;
}

const struct auth_client *auth_clients_user(const struct auth_clients *clients, uid_t uid)
{
	const struct auth_client *client;
	char name[AUTH_NAME_MAX + 1];

	if (!clients)
		return &auth_everything;
	snprintf(name, sizeof(name), "@%u", (unsigned)uid);
	client = find_name(clients, name);
	return client ? client : auth_clients_find(clients, "@*");
}

bool auth_may(const struct auth_client *client, enum auth_access access, const void *name, size_t length)
{
	const struct auth_prefixes *prefixes = &client->prefixes[access];

	for (unsigned i = 0; i < prefixes->count; i++)
		if (prefixes->prefix[i].length <= length &&
		    memcmp(client->text + prefixes->prefix[i].offset, name, prefixes->prefix[i].length) == 0)
			return true;
	return prefixes->all;
}

bool auth_may_some(const struct auth_client *client, enum auth_access access, const void *prefix, size_t length)
{
	const struct auth_prefixes *prefixes = &client->prefixes[access];

	for (unsigned i = 0; i < prefixes->count; i++)
		if (memcmp(client->text + prefixes->prefix[i].offset, prefix,
			   MIN(prefixes->prefix[i].length, length)) == 0)
			return true;
	return prefixes->all;
}

static uint64_t bucket_spend(_Atomic uint64_t *paid, uint64_t used, uint64_t rate, uint64_t now)
{
	uint64_t old = atomic_load_explicit(paid, memory_order_relaxed), next;
	uint64_t cost = rate == AUTH_NO_LIMIT
				? 0
				: (uint64_t)MIN((double)used / (double)rate * (double)TIME_S, (double)LONGEST);

	do
		next = MIN(MAX(old, now) + cost, now + LONGEST);
	while (cost &&
	       !atomic_compare_exchange_weak_explicit(paid, &old, next, memory_order_relaxed, memory_order_relaxed));
	return next > BURST ? next - BURST : 0;
}

uint64_t auth_spend(const struct auth_client *client, uint64_t bytes, uint64_t requests, uint64_t now)
{
	uint64_t by_bytes = bucket_spend(&client->spent->bytes, bytes, client->bytes, now);
	uint64_t by_requests = bucket_spend(&client->spent->requests, requests, client->requests, now);

	return MAX(by_bytes, by_requests);
}
