/* proof.c: transcripts, proofs, sessions, sealing, tickets. auth.h has the formulas. */
#include "auth/internal.h"

_Static_assert(crypto_auth_hmacsha256_KEYBYTES == AUTH_SECRET && crypto_auth_hmacsha256_BYTES == AUTH_PROOF &&
		       crypto_hash_sha256_BYTES == 32 && crypto_kdf_KEYBYTES == 32 && crypto_secretbox_MACBYTES == 16,
	       "sizes of libsodium");

void auth_transcript(enum auth_transport transport, const uint8_t request[static AUTH_REQUEST],
		     const uint8_t accept[static AUTH_ACCEPT], struct auth_transcript *out)
{
	const uint8_t number = (uint8_t)transport;
	crypto_hash_sha256_state state;

	crypto_hash_sha256_init(&state);
	crypto_hash_sha256_update(&state, (const uint8_t *)"rdmad1 hello", 12);
	crypto_hash_sha256_update(&state, &number, 1);
	crypto_hash_sha256_update(&state, request, AUTH_REQUEST);
	crypto_hash_sha256_update(&state, accept, AUTH_ACCEPT);
	crypto_hash_sha256_final(&state, out->hash);
}

/* HMAC-SHA-256(secret, label | a | b). */
static void keyed_hash(const uint8_t secret[static AUTH_SECRET], const char *label, const void *a, size_t a_len,
		       const void *b, size_t b_len, uint8_t out[static 32])
{
	crypto_auth_hmacsha256_state state;

	crypto_auth_hmacsha256_init(&state, secret, AUTH_SECRET);
	crypto_auth_hmacsha256_update(&state, (const uint8_t *)label, strlen(label));
	crypto_auth_hmacsha256_update(&state, a, a_len);
	crypto_auth_hmacsha256_update(&state, b, b_len);
	crypto_auth_hmacsha256_final(&state, out);
	auth_wipe(&state, sizeof(state));
}

void auth_prove(const struct auth_key *key, const struct auth_transcript *th, enum auth_side side,
		uint8_t out[static AUTH_PROOF])
{
	keyed_hash(key->secret, side == AUTH_SERVER ? "rdmad1 server" : "rdmad1 client", th->hash, sizeof(th->hash), "",
		   0, out);
}

bool auth_proof_fits(const struct auth_key *key, const struct auth_transcript *th, enum auth_side side,
		     const uint8_t proof[static AUTH_PROOF])
{
	uint8_t right[AUTH_PROOF];

	auth_prove(key, th, side, right);
	return crypto_verify_32(right, proof) == 0;
}

char *auth_password(const struct auth_key *key, char out[static AUTH_PASSWORD])
{
	uint8_t hash[32];

	_Static_assert(sodium_base64_ENCODED_LEN(32, sodium_base64_VARIANT_URLSAFE_NO_PADDING) == AUTH_PASSWORD,
		       "its length");
	keyed_hash(key->secret, "rdmad1 resp", "", 0, "", 0, hash);
	sodium_bin2base64(out, AUTH_PASSWORD, hash, sizeof(hash), sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	auth_wipe(hash, sizeof(hash));
	return out;
}

int auth_exchange_new(uint8_t secret[static 32], uint8_t public[static 32])
{
	int rc = random_fill(secret, crypto_scalarmult_SCALARBYTES);

	if (rc == 0)
		crypto_scalarmult_base(public, secret);
	return rc;
}

int auth_exchange(uint8_t secret[static 32], const uint8_t other[static 32], uint8_t shared[static 32])
{
	int rc = crypto_scalarmult(shared, secret, other); /* fails where the result is zero */

	auth_wipe(secret, crypto_scalarmult_SCALARBYTES);
	return rc == 0 ? 0 : -EPROTO;
}

void auth_session(const struct auth_key *key, const struct auth_transcript *th, const uint8_t shared[32],
		  struct auth_session *out)
{
	uint8_t session[32], iv[16];

	keyed_hash(key->secret, "rdmad1 session", th->hash, sizeof(th->hash), shared ? shared : (const uint8_t *)"",
		   shared ? 32 : 0, session);
	*out = (struct auth_session){0};
	for (unsigned side = AUTH_CLIENT; side <= AUTH_SERVER; side++) {
		struct auth_direction *to = &out->direction[side];

		crypto_kdf_derive_from_key(to->record, sizeof(to->record), 1 + side, "rdmad1__", session);
		crypto_kdf_derive_from_key(iv, sizeof(iv), 3 + side, "rdmad1__", session);
		memcpy(to->record_iv, iv, sizeof(to->record_iv));
		crypto_kdf_derive_from_key(to->sealing, sizeof(to->sealing), 5 + side, "rdmad1__", session);
	}
	auth_wipe(session, sizeof(session));
	auth_wipe(iv, sizeof(iv));
}

static void seal_nonce(const struct auth_direction *direction, uint8_t out[static crypto_secretbox_NONCEBYTES])
{
	memset(out, 0, crypto_secretbox_NONCEBYTES);
	for (unsigned i = 0; i < 8; i++)
		out[i] = (uint8_t)(direction->sealed >> 8 * i);
}

void auth_seal(struct auth_session *session, enum auth_side from, const void *text, size_t length, void *out)
{
	struct auth_direction *direction = &session->direction[from];
	uint8_t nonce[crypto_secretbox_NONCEBYTES];

	seal_nonce(direction, nonce);
	crypto_secretbox_easy(out, text, length, nonce, direction->sealing);
	direction->sealed++;
}

int auth_open(struct auth_session *session, enum auth_side from, const void *sealed, size_t length, void *out)
{
	struct auth_direction *direction = &session->direction[from];
	uint8_t nonce[crypto_secretbox_NONCEBYTES];

	seal_nonce(direction, nonce);
	if (crypto_secretbox_open_easy(out, sealed, length, nonce, direction->sealing) != 0)
		return -EBADMSG;
	direction->sealed++;
	return 0;
}

void auth_ticket(const uint8_t secret[static AUTH_SECRET], uint64_t about, uint32_t serial, struct auth_key *out)
{
	uint8_t a[8], b[4];

	for (unsigned i = 0; i < sizeof(a); i++)
		a[i] = (uint8_t)(about >> 8 * i);
	for (unsigned i = 0; i < sizeof(b); i++)
		b[i] = (uint8_t)(serial >> 8 * i);
	*out = (struct auth_key){.id = AUTH_ID_TICKET, .name = "ticket"};
	keyed_hash(secret, "rdmad1 ticket", a, sizeof(a), b, sizeof(b), out->secret);
}
