/* key.c: one key: its line, its fingerprint, and what wipes it. */
#include "auth/internal.h"

#define LINE_START "rdmad1:"
#define CHECKSUM 4

int auth_begin(void)
{
	if (sodium_init() >= 0)
		return 0;
	return log_fail(-ENOSYS, "auth", "libsodium does not begin: no random bytes?");
}

void auth_wipe(void *secret, size_t size)
{
	sodium_memzero(secret, size);
}

bool auth_name_valid(const char *name)
{
	return words_is_name(name, AUTH_NAME_MAX);
}

int auth_key_new(unsigned id, const char *name, struct auth_key *out)
{
	if (!auth_name_valid(name))
		return log_fail(-EINVAL, "auth",
				"\"%s\" is no name of a client: it has 1 to %u of letters, digits and \"._-\"", name,
				AUTH_NAME_MAX);
	if (id < 1 || id > AUTH_ID_MAX)
		return log_fail(-EINVAL, "auth", "%u is no number of a key: they are 1 to %u", id, AUTH_ID_MAX);
	*out = (struct auth_key){.id = (uint16_t)id};
	snprintf(out->name, sizeof(out->name), "%s", name);
	return random_fill(out->secret, sizeof(out->secret));
}

/* SHA-256(label | number, 2 bytes little endian | name | secret), of which the first bytes are used; the fingerprint
 * has neither number nor name. */
static void key_checksum(const struct auth_key *key, uint8_t out[static crypto_hash_sha256_BYTES])
{
	const uint8_t id[] = {(uint8_t)key->id, (uint8_t)(key->id >> 8)};
	crypto_hash_sha256_state state;

	crypto_hash_sha256_init(&state);
	crypto_hash_sha256_update(&state, (const uint8_t *)"rdmad1 line", 11);
	crypto_hash_sha256_update(&state, id, sizeof(id));
	crypto_hash_sha256_update(&state, (const uint8_t *)key->name, strlen(key->name));
	crypto_hash_sha256_update(&state, key->secret, sizeof(key->secret));
	crypto_hash_sha256_final(&state, out);
	auth_wipe(&state, sizeof(state));
}

/* libsodium takes a byte beyond ASCII for a digit. */
static bool are_digits(const char *at, const char *end)
{
	for (; at < end; at++)
		if (!*at || !strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", *at))
			return false;
	return true;
}

/* Returns what is wrong with the line. `bytes`: the key and its checksum. */
static const char *parse_line(const char *line, size_t len, struct auth_key *out, uint8_t bytes[AUTH_SECRET + CHECKSUM])
{
	const char *id = line + strlen(LINE_START), *end = line + len, *name, *digits;
	uint8_t sum[crypto_hash_sha256_BYTES];
	char number[8] = "";
	uint64_t n;
	size_t size;

	if (len < strlen(LINE_START) || memcmp(line, LINE_START, strlen(LINE_START)) != 0)
		return "a key begins with \"" LINE_START "\"";
	name = memchr(id, ':', (size_t)(end - id));
	digits = name ? memchr(name + 1, ':', (size_t)(end - name - 1)) : NULL;
	if (!digits)
		return "a key is rdmad1:NUMBER:NAME:DIGITS";
	if (name - id < (ptrdiff_t)sizeof(number))
		memcpy(number, id, (size_t)(name - id));
	/* In its one form: no byte of 0, behind which nothing would be read, and no 0 in front. */
	if (units_parse_number(number, 1, AUTH_ID_MAX, &n) != 0 || *number == '0' ||
	    strlen(number) != (size_t)(name - id))
		return "its number is not one of 1 to 65000";
	name++;
	if (digits - name > AUTH_NAME_MAX)
		return "its name is longer than 31 characters";
	out->id = (uint16_t)n;
	memcpy(out->name, name, (size_t)(digits - name));
	if (!auth_name_valid(out->name) || strlen(out->name) != (size_t)(digits - name))
		return "its name has letters, digits and \"._-\" only";
	digits++;
	if (!are_digits(digits, end) ||
	    sodium_base642bin(bytes, AUTH_SECRET + CHECKSUM, digits, (size_t)(end - digits), NULL, &size, NULL,
			      sodium_base64_VARIANT_ORIGINAL) != 0 ||
	    size != AUTH_SECRET + CHECKSUM)
		return "it does not end in 48 digits of base64: was it cut?";
	memcpy(out->secret, bytes, AUTH_SECRET);
	key_checksum(out, sum);
	return memcmp(sum, bytes + AUTH_SECRET, CHECKSUM) == 0 ? NULL : "its checksum is wrong: was it mistyped?";
}

const char *auth_key_parse(const char *line, size_t len, struct auth_key *out)
{
	uint8_t bytes[AUTH_SECRET + CHECKSUM];
	const char *why;

	*out = (struct auth_key){0};
	why = parse_line(line, len, out, bytes);
	auth_wipe(bytes, sizeof(bytes));
	if (why)
		auth_wipe(out, sizeof(*out));
	return why;
}

char *auth_key_format(const struct auth_key *key, char out[static AUTH_LINE_MAX])
{
	uint8_t bytes[AUTH_SECRET + CHECKSUM], sum[crypto_hash_sha256_BYTES];
	char digits[sodium_base64_ENCODED_LEN(AUTH_SECRET + CHECKSUM, sodium_base64_VARIANT_ORIGINAL)];

	key_checksum(key, sum);
	memcpy(bytes, key->secret, AUTH_SECRET);
	memcpy(bytes + AUTH_SECRET, sum, CHECKSUM);
	sodium_bin2base64(digits, sizeof(digits), bytes, sizeof(bytes), sodium_base64_VARIANT_ORIGINAL);
	snprintf(out, AUTH_LINE_MAX, LINE_START "%u:%s:%s", key->id, key->name, digits);
	auth_wipe(bytes, sizeof(bytes));
	auth_wipe(digits, sizeof(digits));
	return out;
}

char *auth_key_fingerprint(const struct auth_key *key, char out[static 9])
{
	uint8_t text[12 + AUTH_SECRET] = "rdmad1 print", hash[crypto_hash_sha256_BYTES];

	memcpy(text + 12, key->secret, AUTH_SECRET);
	crypto_hash_sha256(hash, text, sizeof(text));
	auth_wipe(text, sizeof(text));
	sodium_bin2hex(out, 9, hash, 4);
	return out;
}
