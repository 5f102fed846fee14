/*
 * resp.c: commands of Redis's clients, whole and in pieces. Long arguments are left in the stream once, and taken out of it
 * once.
 */
#include "fuzz.h"
#include "resp/resp.h"

/* Each argument with its length, each result with a mark. */
static void note_command(struct fuzz_record *record, const struct resp_parser *parser)
{
	const struct resp_command *command = NULL;
	struct resp_keys keys = {.count = 0};

	fuzz_note(record, &parser->argc, sizeof(parser->argc));
	for (unsigned i = 0; i < parser->argc; i++) {
		fuzz_note(record, &parser->argv[i].len, sizeof(parser->argv[i].len));
		fuzz_note(record, parser->argv[i].at, parser->argv[i].len);
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
static void take_apart(struct fuzz_record *record, const uint8_t *bytes, size_t len, const uint8_t *steps, bool take)
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
			fuzz_note(record, parser.error, strlen(parser.error));
			break;
		} else {
			REQUIRE(result == RESP_MORE && parser.want >= 1);
			if (known == len)
				break;
			known += 1 + steps[step++ % FUZZ_STEPS] % 64;
			known = MIN(len, known);
		}
	}
	fuzz_note(record, "end", 3);
	while (holds)
		free(held[--holds]);
	free(copy);
	resp_parser_clear(&parser);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct fuzz_record whole, cut, taken;

	whole.len = cut.len = taken.len = 0;
	if (size > FUZZ_STEPS) {
		take_apart(&whole, data + FUZZ_STEPS, size - FUZZ_STEPS, NULL, false);
		take_apart(&cut, data + FUZZ_STEPS, size - FUZZ_STEPS, data, false);
		take_apart(&taken, data + FUZZ_STEPS, size - FUZZ_STEPS, data, true);
		fuzz_same(&whole, &cut);
		fuzz_same(&whole, &taken);
	}
	return 0;
}
