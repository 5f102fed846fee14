/* script.c: command files: "set KEY VALUE", "get KEY", "setsize KEY N", "printkv". */
#include "ctl/ctl.h"

#include <stdlib.h>
#include <unistd.h>

#define SIZE_MAX_TEXT (1ull << 40)

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* Find the next word of [*at, end), and move *at behind it and the one blank that ends it. */
static size_t next_word(const char **at, const char *end, const char **word)
{
	const char *p = *at;

	while (p < end && is_blank(*p))
		p++;
	*word = p;
	while (p < end && !is_blank(*p))
		p++;
	*at = p < end ? p + 1 : p;
	return (size_t)(p - *word);
}

static const char *parse_set(const char *at, const char *end, struct script_command *c)
{
	c->value = at; /* the rest of the line, blanks and all */
	c->value_len = (size_t)(end - at);
	return NULL;
}

static const char *parse_end(const char *at, const char *end)
{
	const char *word;

	return next_word(&at, end, &word) ? "there is more behind what the command takes" : NULL;
}

static const char *parse_get(const char *at, const char *end, struct script_command *c)
{
	return parse_end(at, end);
}

static const char *parse_setsize(const char *at, const char *end, struct script_command *c)
{
	const char *word;
	char text[32];
	size_t len = next_word(&at, end, &word);

	if (!len || len >= sizeof(text))
		return "setsize needs a size: setsize KEY N";
	memcpy(text, word, len);
	text[len] = '\0';
	if (units_parse_size(text, &c->size) != 0 || c->size < 1 || c->size > SIZE_MAX_TEXT)
		return "the size is not a number from 1 on";
	return parse_end(at, end);
}

static const struct verb {
	const char *name;
	enum script_verb verb;
	bool key;
	const char *(*parse)(const char *at, const char *end, struct script_command *c);
} verbs[] = {
	{"set", SCRIPT_SET, true, parse_set},
	{"get", SCRIPT_GET, true, parse_get},
	{"setsize", SCRIPT_SETSIZE, true, parse_setsize},
	{"printkv", SCRIPT_PRINTKV, false, parse_get},
};

const char *script_parse(const char *line, size_t len, struct script_command *command)
{
	const char *at = line, *end = line + len, *word;
	const struct verb *verb = verbs, *last = verbs + ARRAY_SIZE(verbs);

	memset(command, 0, sizeof(*command));
	if (len && line[len - 1] == '\r') /* of a file that another system wrote */
		end--;
	len = next_word(&at, end, &word);
	if (!len || word[0] == '#')
		return NULL;
	while (verb < last && (strlen(verb->name) != len || memcmp(verb->name, word, len) != 0))
		verb++;
	if (verb == last)
		return "no such command: there are set, get, setsize and printkv";
	if (verb->key) {
		command->key_len = next_word(&at, end, &command->key);
		if (!command->key_len)
			return "the key is missing";
	}
	command->verb = verb->verb;
	return verb->parse(at, end, command);
}

void script_random_text(char *out, size_t n, uint64_t *state)
{
	static const char digit[64] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	while (n) {
		uint64_t bits = random_step(state);

		for (unsigned i = 0; i < 10 && n; i++, n--, bits >>= 6)
			*out++ = digit[bits & 63];
	}
}

/* Move the rest to the buffer's start and read more behind it. 0 or -errno. */
static int read_more(struct script_reader *r)
{
	ssize_t got;

	if (r->begin) {
		memmove(r->buffer, r->buffer + r->begin, r->end - r->begin);
		r->end -= r->begin;
		r->begin = 0;
	}
	if (r->end == r->room) {
		size_t room = MAX(2 * r->room, 65536u);
		char *buffer = realloc(r->buffer, room);

		if (!buffer)
			return -ENOMEM;
		r->buffer = buffer;
		r->room = room;
	}
	if (r->idle)
		r->idle(r->arg);
	got = read(r->fd, r->buffer + r->end, r->room - r->end);
	if (got < 0)
		return -errno;
	r->end += (size_t)got;
	r->eof = got == 0;
	return 0;
}

int script_read(struct script_reader *r, const char **line, size_t *len)
{
	size_t searched = 0;
	int rc;

	while (true) {
		size_t have = r->end - r->begin;
		char *start = have ? r->buffer + r->begin : r->buffer; /* NULL before the first */
		char *end = have > searched ? memchr(start + searched, '\n', have - searched) : NULL;

		if (end || (r->eof && have)) {
			*line = start;
			*len = end ? (size_t)(end - start) : have;
			r->begin += *len + (end != NULL);
			return 1;
		}
		if (r->eof)
			return 0;
		searched = have;
		rc = read_more(r);
		if (rc != 0)
			return rc;
	}
}

int script_peek(struct script_reader *r, size_t want, const char **data, size_t *have)
{
	int rc;

	while (r->end - r->begin < want && !r->eof) {
		rc = read_more(r);
		if (rc != 0)
			return rc;
	}
	*data = r->buffer + r->begin;
	*have = MIN(want, r->end - r->begin);
	return 0;
}

int script_skip(struct script_reader *r, size_t n)
{
	while (n) {
		size_t have = MIN(n, r->end - r->begin);
		int rc;

		r->begin += have;
		n -= have;
		if (n && r->eof)
			return -EPROTO;
		rc = n ? read_more(r) : 0;
		if (rc != 0)
			return rc;
	}
	return 0;
}

void script_reader_destroy(struct script_reader *r)
{
	free(r->buffer);
	memset(r, 0, sizeof(*r));
}
