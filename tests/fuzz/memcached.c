/*
 * memcached.c: lines of memcached's clients. A stream comes whole, and again in pieces whose lengths the input's front
 * says: both have the same commands and the same end. Values are passed over.
 */
#include "fuzz.h"
#include "memcached/memcached.h"

#define STEPS 8
#define MOST 100000 /* of a record */

/* What a stream comes to. */
struct record {
	uint8_t *bytes;
	size_t len;
};

static void note(struct record *record, const void *bytes, size_t len)
{
	if (record->len + len > MOST) /* the same bytes are missing of the other */
		len = MOST - record->len;
	if (len)
		memcpy(record->bytes + record->len, bytes, len);
	record->len += len;
}

static void note_word(struct record *record, const struct memc_word *word)
{
	note(record, &word->len, sizeof(word->len));
	note(record, word->at, word->len);
}

static void note_command(struct record *record, struct memc_command *c)
{
	struct memc_out out = {.most = 8192};
	struct memc_word word;

	note(record, &c->id, sizeof(c->id));
	note(record, &c->mode, sizeof(c->mode));
	note(record, &c->value_len, sizeof(c->value_len));
	note(record, &c->cas, sizeof(c->cas));
	if (c->id == MEMC_FAULTY) {
		REQUIRE(c->error);
		note(record, c->error, strlen(c->error));
		return;
	}
	REQUIRE(!c->error && c->key.len <= MEMC_KEY_MAX && c->flags <= MEMC_FLAGS_MAX);
	note_word(record, &c->key);
	for (unsigned i = 0; i < c->flags; i++)
		note_word(record, &c->flag[i]);
	if (c->meta)
		memc_flags_echo(&out, c);
	note(record, out.at, out.len);
	free(out.at);
	while (memc_next_key(c, &word)) {
		REQUIRE(word.len && (c->id != MEMC_GET || word.len <= MEMC_KEY_MAX));
		note_word(record, &word);
	}
}

/* The bytes that are known are copied for each call, so that what is behind them is nobody's. */
static void take_apart(struct record *record, const uint8_t *bytes, size_t len, const uint8_t *steps)
{
	struct memc_parser parser = {.at = 0};
	size_t begin = 0, known = steps ? 0 : len;
	unsigned step = 0;
	char *copy = NULL;

	for (;;) {
		enum memc_result result;

		free(copy);
		copy = malloc(MAX(known - begin, 1));
		REQUIRE(copy);
		memcpy(copy, bytes + begin, known - begin);
		result = memc_parse(&parser, copy, known - begin);
		if (result == MEMC_COMMAND) {
			REQUIRE(parser.used && parser.used <= known - begin);
			begin += parser.used;
			if (parser.command.stores)
				begin = MIN(begin + parser.command.value_len + 2, len);
			known = MAX(known, begin);
			note_command(record, &parser.command);
		} else if (result == MEMC_BAD || known == len) {
			note(record, &result, sizeof(result));
			break;
		} else {
			known += 1 + steps[step++ % STEPS] % 64;
			known = MIN(len, known);
		}
	}
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct record whole = {malloc(MOST), 0}, cut = {malloc(MOST), 0};
	struct memc_word name, secret;
	uint32_t bytes;

	REQUIRE(whole.bytes && cut.bytes);
	if (size > STEPS) {
		take_apart(&whole, data + STEPS, size - STEPS, NULL);
		take_apart(&cut, data + STEPS, size - STEPS, data);
		REQUIRE(whole.len == cut.len && memcmp(whole.bytes, cut.bytes, cut.len) == 0);
		memc_parse_login((const char *)data, size, &bytes);
		memc_parse_secret((const char *)data, size, &name, &secret);
	}
	free(whole.bytes);
	free(cut.bytes);
	return 0;
}
