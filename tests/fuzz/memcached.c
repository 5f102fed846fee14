/*
 * memcached.c: lines of memcached's clients, whole and in pieces. Values are passed over.
 */
#include "fuzz.h"
#include "memcached/memcached.h"

static void note_word(struct fuzz_record *record, const struct memc_word *word)
{
	fuzz_note(record, &word->len, sizeof(word->len));
	fuzz_note(record, word->at, word->len);
}

static void note_command(struct fuzz_record *record, struct memc_command *c)
{
	struct memc_out out = {.most = 8192};
	struct memc_word word;

	fuzz_note(record, &c->id, sizeof(c->id));
	fuzz_note(record, &c->mode, sizeof(c->mode));
	fuzz_note(record, &c->value_len, sizeof(c->value_len));
	fuzz_note(record, &c->cas, sizeof(c->cas));
	if (c->id == MEMC_FAULTY) {
		REQUIRE(c->error);
		fuzz_note(record, c->error, strlen(c->error));
		return;
	}
	REQUIRE(!c->error && c->key.len <= MEMC_KEY_MAX && c->flags <= MEMC_FLAGS_MAX);
	note_word(record, &c->key);
	for (unsigned i = 0; i < c->flags; i++)
		note_word(record, &c->flag[i]);
	if (c->meta)
		memc_flags_echo(&out, c);
	fuzz_note(record, out.at, out.len);
	free(out.at);
	while (memc_next_key(c, &word)) {
		REQUIRE(word.len && (c->id != MEMC_GET || word.len <= MEMC_KEY_MAX));
		note_word(record, &word);
	}
}

/* The bytes that are known are copied for each call, so that what is behind them is nobody's. */
static void take_apart(struct fuzz_record *record, const uint8_t *bytes, size_t len, const uint8_t *steps)
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
			fuzz_note(record, &result, sizeof(result));
			break;
		} else {
			known += 1 + steps[step++ % FUZZ_STEPS] % 64;
			known = MIN(len, known);
		}
	}
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct fuzz_record whole, cut;
	struct memc_word name, secret;
	uint32_t bytes;

	whole.len = cut.len = 0;
	if (size > FUZZ_STEPS) {
		take_apart(&whole, data + FUZZ_STEPS, size - FUZZ_STEPS, NULL);
		take_apart(&cut, data + FUZZ_STEPS, size - FUZZ_STEPS, data);
		fuzz_same(&whole, &cut);
		memc_parse_login((const char *)data, size, &bytes);
		memc_parse_secret((const char *)data, size, &name, &secret);
	}
	return 0;
}
