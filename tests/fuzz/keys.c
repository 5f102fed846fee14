/* keys.c: files of keys. A table that is taken has sorted numbers, and its keys make the lines that they came from. */
#include "auth/internal.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct auth_key again;
	struct auth_keys *keys;
	char line[AUTH_LINE_MAX];

	fuzz_silence();
	REQUIRE(auth_begin() == 0);
	if (auth_keys_parse("keys", (const char *)data, size, true, &keys) != 0)
		return 0;
	for (size_t i = 0; i < auth_keys_count(keys); i++) {
		const struct auth_key *key = auth_keys_at(keys, i);

		REQUIRE(auth_keys_find(keys, key->id) == key && (i == 0 || auth_keys_at(keys, i - 1)->id < key->id));
		auth_key_format(key, line);
		REQUIRE(!auth_key_parse(line, strlen(line), &again) && memcmp(key, &again, sizeof(again)) == 0);
		REQUIRE(memmem(data, size, line, strlen(line)));
	}
	auth_keys_free(keys);
	return 0;
}
