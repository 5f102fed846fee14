/* text.c: addresses, sizes, times and numbers as people write them: what is read and written is read
 * again as the same. */
#include "fuzz.h"

static void address(const char *text)
{
	struct address a, b;
	char again[512];

	if (address_parse(text, &a) != 0)
		return;
	snprintf(again, sizeof(again),
		 a.path      ? "%s://%s"
		 : *a.scheme ? "%s://[%s]:%u"
			     : "%s[%s]:%u",
		 a.scheme, a.host, a.port);
	REQUIRE(address_parse(again, &b) == 0);
	REQUIRE(strcmp(a.scheme, b.scheme) == 0 && strcmp(a.host, b.host) == 0);
	REQUIRE(a.path == b.path && a.port == b.port);
}

static void units(const char *text)
{
	uint64_t value, again;
	char buf[32];

	if (units_parse_size(text, &value) == 0) {
		REQUIRE(value <= INT64_MAX);
		REQUIRE(units_parse_size(units_format_size(value, buf), &again) == 0);
		REQUIRE(again == value);
	}
	if (units_parse_time(text, &value) == 0) {
		REQUIRE(units_parse_time(units_format_time(value, buf), &again) == 0);
		REQUIRE(again == value);
	}
	if (units_parse_number(text, 5, 1u << 20, &value) == 0)
		REQUIRE(value >= 5 && value <= 1u << 20);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	REQUIRE(text);
	fuzz_silence();
	memcpy(text, data, size);
	text[size] = '\0';
	address(text);
	units(text);
	free(text);
	return 0;
}
