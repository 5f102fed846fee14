/* script.c: the lines of a command file of rdmactl. */
#include "ctl/ctl.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size ? size : 1);
	size_t at = 0;

	REQUIRE(text);
	memcpy(text, data, size);
	while (at < size) {
		const char *newline = memchr(text + at, '\n', size - at);
		size_t len = newline ? (size_t)(newline - text) - at : size - at;
		struct script_command c;
		const char *wrong = script_parse(text + at, len, &c);

		if (!wrong && c.key_len)
			REQUIRE(c.key >= text + at && c.key + c.key_len <= text + at + len);
		at += len + 1;
	}
	free(text);
	return 0;
}
