/*
 * resp.c: commands of Redis's clients. A stream comes whole, and again in pieces whose lengths the input's front says:
 * both have the same commands and the same end. Long arguments are left in the stream once, and taken out of it once.
 */
#include "fuzz.h"
#include "resp/resp.h"

#define STEPS 8
#define MOST 100000 /* of a record */

/* What a stream comes to: each argument with its length, each result with a mark. */
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

static void note_command(struct record *record, const struct resp_parser *parser)
{
	const struct resp_command *command = NULL;
	struct resp_keys keys = {.count = 0};

	note(record, &parser->argc, sizeof(parser->argc));
	for (unsigned i = 0; i < parser->argc; i++) {
		note(record, &parser->argv[i].len, sizeof(parser->argv[i].len));
		note(record, parser->argv[i].at, parser->argv[i].len);
	}
	if (parser->argc)
		command = resp_find(parser->argv[0].at, parser->argv[0].len);
	if (!command || !resp_arity_fits(command, parser->argc))
		return;
	if (parser->argc > 1 && resp_find_sub(command, parser->argv[1].at, parser->argv[1].len))
		command = resp_find_sub(command, parser->argv[1].at, parser->argv[1].len);
	if (resp_arity_fits(command, parser->argc))
		keys = resp_keys(command, parser->argv, parser->argc);
	REQUIRE(!keys.count || (keys.first > 0 && keys.first + (uint64_t)(keys.count - 1) * keys.step < parser->argc));
	if (command->id == RESP_CMD_KEYS)
		resp_match(parser->argv[1].at, parser->argv[1].len, "some:key", 8, true);
}

/* The bytes that are known are copied for each call, so that what is behind them is nobody's. */
static void take_apart(struct record *record, const uint8_t *bytes, size_t len, const uint8_t *steps, bool take)
{
	struct resp_limits limits = {.args = 40, .bulk = 5000, .total = 9000, .large = 30};
	struct resp_parser parser;
	size_t begin = 0, known = steps ? 0 : len, front = 0, gap = 0; /* what was taken out, and where */
	unsigned step = 0;
	char *copy = NULL, *held[64] = {NULL};
	unsigned holds = 0;

	resp_parser_init(&parser);
	for (;;) {
		enum resp_result result;

		free(copy);
		copy = malloc(known - begin - gap + 1);
		REQUIRE(copy);
		/* what was taken is missing, in front of what is behind it */
		if (gap) {
			memcpy(copy, bytes + begin, front);
			memcpy(copy + front, bytes + begin + front + gap, known - begin - front - gap);
		} else {
			memcpy(copy, bytes + begin, known - begin);
		}
		copy = realloc(copy, MAX(known - begin - gap, 1));
		REQUIRE(copy);
		result = resp_parse(&parser, &limits, copy, known - begin - gap);
		if (result == RESP_COMMAND) {
			REQUIRE(parser.used && parser.used + gap <= known - begin);
			note_command(record, &parser);
			begin += parser.used + gap;
			gap = 0;
			while (holds)
				free(held[--holds]);
		} else if (result == RESP_LARGE) {
			size_t value = parser.argv[parser.argc - 1].len;

			REQUIRE(value >= limits.large && parser.used + gap <= known - begin);
			if (take && !gap &&
			    known - begin - parser.used >= value) { /* one of a command is enough here */
				held[holds] = malloc(value);
				REQUIRE(held[holds]);
				memcpy(held[holds], bytes + begin + parser.used, value);
				resp_take_large(&parser, held[holds++]);
				front = parser.used;
				gap = value;
			} else {
				resp_leave_large(&parser);
			}
		} else if (result == RESP_BAD) {
			REQUIRE(strncmp(parser.error, "ERR ", 4) == 0);
			note(record, parser.error, strlen(parser.error));
			break;
		} else {
			REQUIRE(result == RESP_MORE && parser.want >= 1);
			if (known == len)
				break;
			known += 1 + steps[step++ % STEPS] % 64;
			known = MIN(len, known);
		}
	}
	note(record, "end", 3);
	while (holds)
		free(held[--holds]);
	free(copy);
	resp_parser_clear(&parser);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct record whole = {malloc(MOST), 0}, cut = {malloc(MOST), 0}, taken = {malloc(MOST), 0};

	REQUIRE(whole.bytes && cut.bytes && taken.bytes);
	if (size > STEPS) {
		take_apart(&whole, data + STEPS, size - STEPS, NULL, false);
		take_apart(&cut, data + STEPS, size - STEPS, data, false);
		take_apart(&taken, data + STEPS, size - STEPS, data, true);
		REQUIRE(whole.len == cut.len && memcmp(whole.bytes, cut.bytes, cut.len) == 0);
		REQUIRE(whole.len == taken.len && memcmp(whole.bytes, taken.bytes, taken.len) == 0);
	}
	free(whole.bytes);
	free(cut.bytes);
	free(taken.bytes);
	return 0;
}
