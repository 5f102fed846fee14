/* check_auth.c: keys and their files, proofs beside vectors of an independent program, sealing, rights. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "auth/internal.h"
#include "tests/auth/vectors.h"
#include "tests/suite.h"

static bool no_random;

ssize_t __real_getrandom(void *out, size_t size, unsigned flags);
ssize_t __wrap_getrandom(void *out, size_t size, unsigned flags);
ssize_t __wrap_getrandom(void *out, size_t size, unsigned flags)
{
	if (!no_random)
		return __real_getrandom(out, size, flags);
	errno = ENOSYS;
	return -1;
}

static char directory[] = "/tmp/check_auth.XXXXXX", path[64];

static void set_up(void)
{
	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/keys", directory);
	log_set_handler(log_keep);
	ck_assert_int_eq(auth_begin(), 0);
}

static void tear_down(void)
{
	no_random = false;
	unlink(path);
	rmdir(directory);
}

static void write_file(const char *text, size_t length, mode_t mode)
{
	int fd;

	unlink(path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, length), (ssize_t)length);
	ck_assert_int_eq(fchmod(fd, mode), 0);
	close(fd);
}

static void expect_words(const char *words)
{
	ck_assert_msg(strstr(log_last(), words), "\"%s\" does not say \"%s\"", log_last(), words);
}

static struct auth_key vector(void)
{
	struct auth_key key = {.id = 300, .name = "app"};

	memcpy(key.secret, vector_key, sizeof(key.secret));
	return key;
}

/*
 * Lines
 */
START_TEST(a_line_has_the_key)
{
	struct auth_key key = vector(), again;
	char line[AUTH_LINE_MAX], print[9];

	ck_assert_str_eq(auth_key_format(&key, line), vector_line);
	ck_assert_str_eq(auth_key_fingerprint(&key, print), vector_print);
	ck_assert_ptr_null(auth_key_parse(line, strlen(line), &again));
	ck_assert_mem_eq(&key, &again, sizeof(key));
	/* The longest one. */
	ck_assert_int_eq(auth_key_new(AUTH_ID_MAX, "abcdefghijklmnopqrstuvwxyz01234", &key), 0);
	ck_assert_uint_lt(strlen(auth_key_format(&key, line)), AUTH_LINE_MAX);
	ck_assert_ptr_null(auth_key_parse(line, strlen(line), &again));
	ck_assert_mem_eq(&key, &again, sizeof(key));
}
END_TEST

/* Each bit of the digits and of the number, and each cut. */
START_TEST(a_changed_line_is_refused)
{
	struct auth_key key;
	char line[AUTH_LINE_MAX];
	size_t n = strlen(vector_line);

	for (size_t i = 0; i < n; i++)
		for (unsigned bit = 0; bit < 8; bit++) {
			memcpy(line, vector_line, n);
			line[i] = (char)(line[i] ^ 1 << bit);
			ck_assert_msg(auth_key_parse(line, n, &key), "byte %zu, bit %u", i, bit);
			ck_assert_uint_eq(key.id, 0);
		}
	for (size_t i = 0; i < n; i++)
		ck_assert_ptr_nonnull(auth_key_parse(vector_line, i, &key));
}
END_TEST

START_TEST(what_is_wrong_with_a_line)
{
	static const struct {
		const char *line, *words;
	} rows[] = {
		{"ssh-rsa AAAA", "begins with"},
		{"rdmad1:1:app", "NUMBER:NAME:DIGITS"},
		{"rdmad1:0:app:AAAA", "number"},
		{"rdmad1:65001:app:AAAA", "number"},
		{"rdmad1:07:app:AAAA", "number"},
		{"rdmad1:99999999999999999999:app:AAAA", "number"},
		{"rdmad1:1::AAAA", "letters"},
		{"rdmad1:1:a b:AAAA", "letters"},
		{"rdmad1:1:abcdefghijklmnopqrstuvwxyz012345:AAAA", "longer"},
		{"rdmad1:1:app:AAAA", "48 digits"},
		{"rdmad1:1:app:", "48 digits"},
	};
	struct auth_key key;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *why = auth_key_parse(rows[i].line, strlen(rows[i].line), &key);

		ck_assert_msg(why && strstr(why, rows[i].words), "%s: %s", rows[i].line, why ? why : "taken");
	}
	ck_assert_str_eq(auth_key_parse("rdmad1:7\0x:app:AAAA", 20, &key), "its number is not one of 1 to 65000");
	ck_assert_int_eq(auth_key_new(0, "app", &key), -EINVAL);
	ck_assert_int_eq(auth_key_new(1, "a/b", &key), -EINVAL);
	no_random = true;
	ck_assert_int_lt(auth_key_new(1, "app", &key), 0);
	expect_words("no random bytes");
}
END_TEST

/*
 * Files
 */
START_TEST(files_that_others_may_use_are_refused)
{
	struct auth_keys *keys;
	char line[AUTH_LINE_MAX + 1], other[80];

	ck_assert_int_eq(auth_keys_load(path, &keys), -ENOENT);
	snprintf(line, sizeof(line), "%s\n", vector_line);
	for (unsigned bit = 1; bit <= 040; bit <<= 1) {
		write_file(line, strlen(line), 0600 | bit);
		ck_assert_int_eq(auth_keys_load(path, &keys), -EPERM);
		expect_words("chmod 600");
	}
	write_file(line, strlen(line), 0600);
	snprintf(other, sizeof(other), "%s/link", directory);
	ck_assert_int_eq(symlink(path, other), 0);
	ck_assert_int_eq(auth_keys_load(other, &keys), -ELOOP);
	expect_words("symbolic link");
	unlink(other);
	ck_assert_int_eq(mkfifo(other, 0600), 0);
	ck_assert_int_eq(auth_keys_load(other, &keys), -EINVAL);
	expect_words("no regular file");
	unlink(other);
	ck_assert_int_eq(auth_keys_load(directory, &keys), -EINVAL);
	if (geteuid() == 0) { /* which may look after another user's */
		ck_assert_int_eq(chown(path, 12345, 0), 0);
		ck_assert_int_eq(auth_keys_load(path, &keys), 0);
		auth_keys_free(keys);
		ck_assert_int_eq(chmod(path, 0644) | chmod(directory, 0755), 0);
		ck_assert_int_eq(seteuid(54321), 0);
		ck_assert_int_eq(auth_keys_load(path, &keys), -EPERM);
		expect_words("belongs to user 12345");
		ck_assert_int_eq(seteuid(0), 0);
	}
}
END_TEST

START_TEST(a_table_has_the_keys_of_its_file)
{
	struct auth_keys *keys;
	struct auth_key key, made[3];
	char text[1000] = "# keys\n\n";

	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(auth_key_new(9 - i, i ? "app" : "lab", &made[i]), 0);
		auth_key_format(&made[i], text + strlen(text));
		strcat(text, i ? "\n" : " \t\r\n");
	}
	write_file(text, strlen(text), 0600);
	ck_assert_int_eq(auth_keys_load(path, &keys), 0);
	ck_assert_uint_eq(auth_keys_count(keys), 3);
	ck_assert_uint_eq(auth_keys_at(keys, 0)->id, 7);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_mem_eq(auth_keys_find(keys, (uint16_t)(9 - i)), &made[i], sizeof(made[i]));
	ck_assert_ptr_null(auth_keys_find(keys, 6));
	ck_assert_uint_eq(auth_keys_at(keys, 2)->id, 9);
	auth_keys_free(keys);
	ck_assert_int_eq(auth_key_load(path, &key), 0);
	ck_assert_mem_eq(&key, &made[0], sizeof(key));

	auth_key_format(&made[1], text + strlen(text)); /* without a newline */
	write_file(text, strlen(text), 0600);
	ck_assert_int_eq(auth_keys_load(path, &keys), -EINVAL);
	expect_words(":6: number 8 stands in another line");
	write_file("# none\n", 7, 0600);
	ck_assert_int_eq(auth_keys_load(path, &keys), -EINVAL);
	expect_words("rdmactl key new");
	ck_assert_int_eq(auth_key_load(path, &key), -EINVAL);
	write_file("rdmad1:1:app:x\n", 15, 0600);
	ck_assert_int_eq(auth_keys_load(path, &keys), -EINVAL);
	expect_words(":1: it does not end in 48 digits");
}
END_TEST

START_TEST(new_keys_are_appended)
{
	struct auth_keys *keys;
	struct auth_key key, last;
	char text[AUTH_LINE_MAX];
	struct stat st;

	ck_assert_int_eq(auth_keys_append(path, "app", &key), 0);
	ck_assert_uint_eq(key.id, 1);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0600);
	ck_assert_int_eq(auth_keys_append(path, "bad name", &key), -EINVAL);
	ck_assert_int_eq(auth_keys_append(path, "lab", &key), 0);
	ck_assert_uint_eq(key.id, 2);
	ck_assert_int_eq(auth_keys_load(path, &keys), 0);
	ck_assert_uint_eq(auth_keys_count(keys), 2);
	ck_assert_str_eq(auth_keys_at(keys, 1)->name, "lab");
	auth_keys_free(keys);
	/* Behind the last number there is the first gap; behind a line without its end a line of its own. */
	ck_assert_int_eq(auth_key_new(AUTH_ID_MAX, "last", &last), 0);
	auth_key_format(&last, text);
	write_file(text, strlen(text), 0600);
	ck_assert_int_eq(auth_keys_append(path, "app", &key), 0);
	ck_assert_uint_eq(key.id, 1);
	ck_assert_int_eq(auth_keys_load(path, &keys), 0);
	ck_assert_mem_eq(auth_keys_at(keys, 0), &key, sizeof(key));
	auth_keys_free(keys);
	chmod(path, 0644);
	ck_assert_int_eq(auth_keys_append(path, "app", &key), -EPERM);
}
END_TEST

/*
 * Proofs
 */
static void check_vectors(enum auth_transport transport, const uint8_t *th, const uint8_t *server,
			  const uint8_t *client, const uint8_t *plain, const uint8_t *shared)
{
	struct auth_key key = vector();
	struct auth_transcript made;
	struct auth_session session;
	uint8_t proof[AUTH_PROOF];

	auth_transcript(transport, vector_request, vector_accept, &made);
	ck_assert_mem_eq(made.hash, th, 32);
	auth_prove(&key, &made, AUTH_SERVER, proof);
	ck_assert_mem_eq(proof, server, 32);
	ck_assert(auth_proof_fits(&key, &made, AUTH_SERVER, server));
	ck_assert(!auth_proof_fits(&key, &made, AUTH_CLIENT, server)); /* its own proof comes back */
	ck_assert(auth_proof_fits(&key, &made, AUTH_CLIENT, client));
	for (unsigned both = 0; both < 2; both++) {
		auth_session(&key, &made, both ? vector_shared : NULL, &session);
		for (unsigned side = 0; side < 2; side++) {
			const uint8_t *want = (both ? shared : plain) + 76 * side;

			ck_assert_mem_eq(session.direction[side].record, want, 32);
			ck_assert_mem_eq(session.direction[side].record_iv, want + 32, 12);
			ck_assert_mem_eq(session.direction[side].sealing, want + 44, 32);
		}
	}
}

START_TEST(proofs_are_those_of_another_program)
{
	struct auth_key ticket, key = {.id = 1};
	uint8_t secret[AUTH_SECRET];
	char password[AUTH_PASSWORD];

	check_vectors(AUTH_RDMA, vector_th_1, vector_server_1, vector_client_1, vector_plain_1, vector_shared_1);
	check_vectors(AUTH_SOCKET, vector_th_2, vector_server_2, vector_client_2, vector_plain_2, vector_shared_2);
	memcpy(secret, vector_key, sizeof(secret));
	auth_ticket(secret, 0x1122334455667788, 7, &ticket);
	ck_assert_uint_eq(ticket.id, AUTH_ID_TICKET);
	ck_assert_mem_eq(ticket.secret, vector_ticket, 32);
	memcpy(key.secret, vector_key, sizeof(key.secret));
	ck_assert_str_eq(auth_password(&key, password), vector_password);
}
END_TEST

/* Each bit of the request, of the accept, of the proof and of the key; another transport. */
START_TEST(each_bit_counts)
{
	struct auth_key key = vector();
	uint8_t request[AUTH_REQUEST], accept[AUTH_ACCEPT], proof[AUTH_PROOF];
	struct auth_transcript th;

	memcpy(request, vector_request, sizeof(request));
	memcpy(accept, vector_accept, sizeof(accept));
	memcpy(proof, vector_client_2, sizeof(proof));
	for (unsigned i = 0; i < 8 * (sizeof(request) + sizeof(accept) + sizeof(proof) + sizeof(key.secret)); i++) {
		unsigned byte = i / 8;
		uint8_t *at = byte < 56    ? &request[byte]
			      : byte < 120 ? &accept[byte - 56]
			      : byte < 152 ? &proof[byte - 120]
					   : &key.secret[byte - 152];

		*at = (uint8_t)(*at ^ 1 << i % 8);
		auth_transcript(AUTH_SOCKET, request, accept, &th);
		ck_assert_msg(!auth_proof_fits(&key, &th, AUTH_CLIENT, proof), "bit %u", i);
		*at = (uint8_t)(*at ^ 1 << i % 8);
	}
	auth_transcript(AUTH_SOCKET, request, accept, &th);
	ck_assert(auth_proof_fits(&key, &th, AUTH_CLIENT, proof));
	auth_transcript(AUTH_RDMA, request, accept, &th);
	ck_assert(!auth_proof_fits(&key, &th, AUTH_CLIENT, proof));
}
END_TEST

/* Any bytes of them, in a million ways: no proof fits. */
START_TEST(mutated_handshakes_prove_nothing)
{
	struct auth_key key = vector();
	uint8_t sent[AUTH_REQUEST + AUTH_ACCEPT + AUTH_PROOF], changed[sizeof(sent)], random[16];
	struct auth_transcript th;
	uint64_t many = suite_part(1000000), fits = 0;

	memcpy(sent, vector_request, AUTH_REQUEST);
	memcpy(sent + AUTH_REQUEST, vector_accept, AUTH_ACCEPT);
	memcpy(sent + AUTH_REQUEST + AUTH_ACCEPT, vector_client_2, AUTH_PROOF);
	for (uint64_t n = 0; n < many; n++) {
		memcpy(changed, sent, sizeof(sent));
		do {
			ck_assert_int_eq(random_fill(random, sizeof(random)), 0);
			for (unsigned i = 0; i <= random[0] % 7u; i++)
				changed[random[2 * i + 1] % sizeof(changed)] ^= random[2 * i + 2];
		} while (memcmp(changed, sent, sizeof(sent)) == 0);
		auth_transcript(AUTH_SOCKET, changed, changed + AUTH_REQUEST, &th);
		fits += auth_proof_fits(&key, &th, AUTH_CLIENT, changed + AUTH_REQUEST + AUTH_ACCEPT);
	}
	ck_assert_uint_eq(fits, 0);
}
END_TEST

/* RFC 7748, 6.1, and points of low order. */
START_TEST(both_ends_have_the_same_secret)
{
	static const uint8_t low[][32] = {
		{0},
		{1},
		{0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4, 0x6a,
		 0xda, 0x09, 0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00},
	};
	uint8_t secret[2][32], public[2][32], shared[2][32], zeros[32] = {0};

	ck_assert_int_eq(auth_exchange_new(secret[0], public[0]), 0);
	ck_assert_int_eq(auth_exchange_new(secret[1], public[1]), 0);
	ck_assert_int_eq(auth_exchange(secret[0], public[1], shared[0]), 0);
	ck_assert_int_eq(auth_exchange(secret[1], public[0], shared[1]), 0);
	ck_assert_mem_eq(shared[0], shared[1], 32);
	ck_assert_mem_eq(secret[0], zeros, 32);
	for (size_t i = 0; i < ARRAY_SIZE(low); i++) {
		ck_assert_int_eq(auth_exchange_new(secret[0], public[0]), 0);
		ck_assert_int_eq(auth_exchange(secret[0], low[i], shared[0]), -EPROTO);
	}
	no_random = true;
	ck_assert_int_lt(auth_exchange_new(secret[0], public[0]), 0);
}
END_TEST

START_TEST(sealed_texts_open_once_and_in_order)
{
	struct auth_key key = vector();
	struct auth_session seals, opens;
	struct auth_transcript th;
	uint8_t sealed[3][AUTH_SEALED(32)], out[32];

	auth_transcript(AUTH_SOCKET, vector_request, vector_accept, &th);
	auth_session(&key, &th, NULL, &seals);
	opens = seals;
	for (unsigned i = 0; i < 3; i++)
		auth_seal(&seals, AUTH_SERVER, vector_shared, 32, sealed[i]);
	ck_assert_mem_ne(sealed[0], sealed[1], sizeof(sealed[0]));
	ck_assert_int_eq(auth_open(&opens, AUTH_SERVER, sealed[1], sizeof(sealed[1]), out), -EBADMSG);
	ck_assert_int_eq(auth_open(&opens, AUTH_CLIENT, sealed[0], sizeof(sealed[0]), out), -EBADMSG);
	ck_assert_int_eq(auth_open(&opens, AUTH_SERVER, sealed[0], sizeof(sealed[0]) - 1, out), -EBADMSG);
	ck_assert_int_eq(auth_open(&opens, AUTH_SERVER, sealed[0], 3, out), -EBADMSG);
	for (unsigned i = 0; i < 3; i++) {
		sealed[i][i] ^= 1;
		ck_assert_int_eq(auth_open(&opens, AUTH_SERVER, sealed[i], sizeof(sealed[i]), out), -EBADMSG);
		sealed[i][i] ^= 1;
		ck_assert_int_eq(auth_open(&opens, AUTH_SERVER, sealed[i], sizeof(sealed[i]), out), 0);
		ck_assert_mem_eq(out, vector_shared, 32);
		ck_assert_int_eq(auth_open(&opens, AUTH_SERVER, sealed[i], sizeof(sealed[i]), out), -EBADMSG);
	}
}
END_TEST

/*
 * Rights
 */
static const char *const services[] = {"ping", "kv", "gpu", NULL};

static int rights_of(const char *text, struct auth_clients **out)
{
	return auth_clients_parse("rights", text, strlen(text), services, out);
}

static bool may(const struct auth_client *client, enum auth_access access, const char *name)
{
	return auth_may(client, access, name, strlen(name));
}

static bool may_some(const struct auth_client *client, const char *prefix)
{
	return auth_may_some(client, AUTH_READ, prefix, strlen(prefix));
}

START_TEST(rights_are_those_of_the_line)
{
	struct auth_clients *all;
	const struct auth_client *c;

	ck_assert_int_eq(
		rights_of("# who\n app  kv\tread=app/,sha%2cred/ write=app/ connections=64\n"
			  "lab kv gpu read= write= flush move gpu=2 gpu_memory=1G bytes=1M requests=5 stored=2G\n"
			  "@1000 ping names=a%20b,lab.\n@* ping\n* kv read=public/\n",
			  &all),
		0);
	c = auth_clients_find(all, "app");
	ck_assert_str_eq(c->name, "app");
	ck_assert_uint_eq(c->services, 2);
	ck_assert_uint_eq(c->connections, 64);
	ck_assert_uint_eq(c->bytes, AUTH_NO_LIMIT);
	ck_assert_uint_eq(c->stored, AUTH_NO_LIMIT);
	ck_assert(!auth_has_all(c) && !c->flush && !c->move);
	ck_assert(may(c, AUTH_READ, "app/x") && may(c, AUTH_READ, "app/") && may(c, AUTH_READ, "sha,red/1"));
	ck_assert(!may(c, AUTH_READ, "app") && !may(c, AUTH_READ, "") && !may(c, AUTH_READ, "xapp/"));
	ck_assert(may_some(c, "") && may_some(c, "a") && may_some(c, "app/") && may_some(c, "app/x/y"));
	ck_assert(!may_some(c, "b") && !may_some(c, "app.") && !may_some(c, "appx"));
	ck_assert(may(c, AUTH_WRITE, "app/x") && !may(c, AUTH_WRITE, "sha,red/1"));
	ck_assert(!may(c, AUTH_NAMES, "app/"));
	c = auth_clients_find(all, "lab");
	ck_assert(auth_has_all(c) && c->move && may(c, AUTH_READ, "") && may(c, AUTH_WRITE, "x"));
	ck_assert(may_some(c, "") && may_some(c, "x") && !may_some(auth_clients_user(all, 1000), ""));
	ck_assert_uint_eq(c->services, 6);
	ck_assert_uint_eq(c->gpu_sessions, 2);
	ck_assert_uint_eq(c->gpu_memory, GIB);
	ck_assert_uint_eq(c->bytes, MIB);
	ck_assert_uint_eq(c->requests, 5);
	ck_assert_uint_eq(c->stored, 2 * GIB);
	c = auth_clients_user(all, 1000);
	ck_assert(may(c, AUTH_NAMES, "a b") && may(c, AUTH_NAMES, "lab.1") && !may(c, AUTH_READ, "public/"));
	ck_assert_str_eq(auth_clients_user(all, 7)->name, "@*");
	ck_assert_str_eq(auth_clients_find(all, "other")->name, "*");
	auth_clients_free(all);

	ck_assert_int_eq(rights_of("app kv\n", &all), 0);
	ck_assert_ptr_eq(auth_clients_find(all, "other"), &auth_nothing);
	ck_assert_ptr_eq(auth_clients_user(all, 0), &auth_nothing);
	auth_clients_free(all);
	ck_assert_ptr_eq(auth_clients_find(NULL, "other"), &auth_everything);
	ck_assert(auth_has_all(&auth_everything) && !auth_nothing.services && !may(&auth_nothing, AUTH_READ, "x"));
}
END_TEST

/* A tenth of a second's share at once, the rest at its rate; two connections spend the same; a pause saves nothing up. */
START_TEST(what_is_spent_is_waited_for)
{
	struct auth_clients *all;
	const struct auth_client *c;
	uint64_t now = 50 * TIME_S;

	ck_assert_int_eq(rights_of("app kv requests=10 bytes=1M\nlab kv\nbig kv bytes=1\n", &all), 0);
	ck_assert_ptr_null(auth_clients_find(all, "lab")->spent);
	c = auth_clients_find(all, "app");
	ck_assert_uint_le(auth_spend(c, 100, 0, now), now);
	ck_assert_uint_le(auth_spend(c, 100, 1, now), now);
	ck_assert_uint_eq(auth_spend(c, 100, 1, now), now + TIME_S / 10);
	ck_assert_uint_eq(auth_spend(c, 100, 3, now), now + 4 * TIME_S / 10);
	now += TIME_S;
	ck_assert_uint_le(auth_spend(c, MIB / 10, 0, now), now);
	ck_assert_uint_le(auth_spend(c, 2 * MIB, 0, now), now + 2 * TIME_S);
	ck_assert_uint_gt(auth_spend(c, 0, 0, now), now + 19 * TIME_S / 10);
	now += 100 * TIME_S;
	ck_assert_uint_le(auth_spend(c, 0, 1, now), now);
	ck_assert_uint_eq(auth_spend(c, 0, 1, now), now + TIME_S / 10);
	c = auth_clients_find(all, "big"); /* what takes for ever to pay for does not turn into a time that is past */
	ck_assert_uint_gt(auth_spend(c, UINT64_MAX / 2, 0, now), now + 1000 * TIME_S);
	ck_assert_uint_gt(auth_spend(c, UINT64_MAX / 2, 0, now), now + 1000 * TIME_S);
	ck_assert_uint_gt(auth_spend(c, UINT64_MAX / 2, 0, now), now + 1000 * TIME_S);
	auth_clients_free(all);
}
END_TEST

START_TEST(what_is_wrong_with_rights)
{
	static const struct {
		const char *text, *words;
	} rows[] = {
		{"app kv\n\nb/c kv\n", "rights:3: \"b/c\": this is no name"},
		{"@x kv", "no name"},
		{"app kv writes=", "no service and no right"},
		{"app kv bytes=0", "\"bytes=0\": it is to be at least 1"},
		{"app kv requests=0", "\"requests=0\": it is to be at least 1"},
		{"app kw", "no service"},
		{"app read=a,", "comma"},
		{"app read=,a", "empty"},
		{"app read=a%2", "hexadecimal"},
		{"app read=%zz", "hexadecimal"},
		{"app read=1,2,3,4,5,6,7,8,9,a,b,c,d,e,f,g,h", "more than 16"},
		{"app connections=x", "number"},
		{"app gpu_memory=1X", "it needs a size"},
		{"app stored=", "it needs a size"},
		{"app stored=-1", "it needs a size"},
		{"@007 kv", "no name"},
		{"app read=a read=b", "stands twice"},
		{"app read= read=b", "stands twice"},
		{"app rdmad1:300:app:secret", "\"rdmad1:...\""},
		{"app kv\n* kv\napp gpu", "app has two lines"},
	};
	struct auth_clients *all;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		ck_assert_int_eq(rights_of(rows[i].text, &all), -EINVAL);
		expect_words(rows[i].words);
	}
	write_file("app kv\n", 7, 0622);
	ck_assert_int_eq(auth_clients_load(path, services, &all), -EPERM);
	expect_words("chmod go-w");
	chmod(path, 0644);
	ck_assert_int_eq(auth_clients_load(path, services, &all), 0);
	auth_clients_free(all);
}
END_TEST

/*
 * Tables
 */
static struct auth_table *table_of(const char *keys, const char *rights, unsigned others)
{
	struct auth_table *table;
	char clients[80];
	FILE *file;

	snprintf(clients, sizeof(clients), "%s/clients", directory);
	if (keys)
		write_file(keys, strlen(keys), 0600);
	file = fopen(clients, "w");
	ck_assert_ptr_nonnull(file);
	fputs(rights, file);
	fclose(file);
	ck_assert_int_eq(auth_table_load(keys ? path : NULL, clients, others, services, &table), 0);
	unlink(clients);
	return table;
}

START_TEST(who_is_admitted)
{
	static const struct {
		bool keys, own, is_user;
		uint16_t key;
		uid_t uid;
		bool admitted, known;
		const char *client; /* whose line */
	} rows[] = {
		{false, false, false, 0, 0, true, false, "*"}, /* nobody is asked for a key ... */
		{false, false, true, 0, 7, true, false, "@7"},
		{false, false, false, 300, 0, false, false, NULL}, /* ... and to name one leads nowhere */
		{true, false, false, 0, 0, false, false, NULL},
		{true, false, true, 0, 7, true, false, "@7"},
		{true, false, true, 0, 8, true, false, "@*"},
		{true, false, false, 300, 0, true, true, "app"},
		{true, false, true, 300, 7, true, true, "app"},
		{true, false, false, 301, 0, true, false, ""}, /* to fail at its proof */
		{false, true, true, 0, 0, true, false, "@*"},
		{false, true, true, 0, 7, false, false, NULL},
		{false, true, false, 0, 0, false, false, NULL}, /* it may be of this machine, and not say so */
		{true, true, true, 0, 7, false, false, NULL},
		{true, true, true, 300, 7, true, true, "app"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct auth_table *table = table_of(rows[i].keys ? vector_line : NULL, "app kv\n@7 kv\n@* kv\n* kv\n",
						    rows[i].own ? AUTH_OWN_USERS : 0);
		struct auth_admission a;
		bool admitted = auth_admit(table, rows[i].key, rows[i].is_user, rows[i].uid, &a);

		ck_assert_msg(admitted == rows[i].admitted, "row %zu", i);
		if (admitted) {
			ck_assert_msg(a.known == rows[i].known && !a.key == !rows[i].key, "row %zu", i);
			ck_assert_str_eq(a.client->name, rows[i].client);
			auth_admission_end(&a);
		}
		auth_table_put(table);
	}
}
END_TEST

/* A user by MUNGE has the rights of the same user here, but only where the administrator says so; a reload that does not
 * takes them away. Until it is known which user it is, nobody can say what it may. */
START_TEST(users_by_munge)
{
	static const char rights[] = "app kv\n@7 kv connections=1\n@* ping\n* kv\n";
	struct auth_table *table = table_of(vector_line, rights, AUTH_MUNGE | AUTH_OWN_USERS);
	struct auth_table *alone = table_of(NULL, "@7 ping\n@8 kv\n", AUTH_MUNGE);
	struct auth_table *without = table_of(vector_line, rights, 0);
	struct auth_admission a, b;

	ck_assert(auth_table_asks(table) && auth_table_asks(alone) && auth_table_asks(without));
	ck_assert(!auth_admit(without, AUTH_ID_MUNGE, false, 0, &a));
	ck_assert(!auth_admit(without, AUTH_ID_MUNGE, true, 7, &a));
	ck_assert(!auth_admit(alone, 0, false, 0, &a)); /* nobody of another machine comes without */
	ck_assert(!auth_admit(alone, 300, false, 0, &a));

	ck_assert(auth_admit(table, AUTH_ID_MUNGE, false, 0, &a));
	ck_assert_ptr_eq(a.key, &auth_munge);
	ck_assert(auth_may_use(&a, 0) && auth_may_use(&a, 1));
	ck_assert_str_eq(a.client->name, "");
	ck_assert(auth_readmit(&a, alone)); /* before it is proved */
	ck_assert(auth_may_use(&a, 0) && auth_may_use(&a, 1));
	ck_assert(auth_readmit(&a, table));
	auth_identify(&a, 7);
	ck_assert_str_eq(a.client->name, "@7");
	ck_assert(!auth_may_use(&a, 0) && auth_may_use(&a, 1));
	ck_assert(auth_has_place(a.client) && auth_enter(&a) && !auth_has_place(a.client));
	ck_assert(auth_admit(table, AUTH_ID_MUNGE, false, 0, &b)); /* root has not proved its name */
	auth_identify(&b, 9);
	ck_assert_str_eq(b.client->name, "@*");
	auth_admission_end(&b);

	ck_assert(auth_readmit(&a, alone));
	ck_assert_str_eq(a.client->name, "@7");
	ck_assert(auth_may_use(&a, 0) && !auth_may_use(&a, 1));
	ck_assert(!auth_readmit(&a, without));
	auth_admission_end(&a);
	auth_table_put(without);
	auth_table_put(alone);
	auth_table_put(table);
}
END_TEST

/* Each key of a name has one, and none of another name's, however it is cut. */
START_TEST(passwords_admit_by_name)
{
	char lines[3 * AUTH_LINE_MAX], line[AUTH_LINE_MAX], password[2][AUTH_PASSWORD];
	struct auth_key key = vector(), other;
	struct auth_admission a;
	struct auth_table *table, *open = table_of(NULL, "* kv\n", false);

	ck_assert_int_eq(auth_key_new(7, "app", &other), 0);
	snprintf(lines, sizeof(lines), "%s\n%s\n", vector_line, auth_key_format(&other, line));
	ck_assert_int_eq(auth_key_new(8, "lab", &other), 0);
	snprintf(lines + strlen(lines), sizeof(lines) - strlen(lines), "%s", auth_key_format(&other, line));
	table = table_of(lines, "app kv connections=1\n", false);
	auth_password(&key, password[0]);
	auth_password(auth_table_key(table, 0), password[1]);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert(auth_password_admit(table, "app", 3, password[i], AUTH_PASSWORD - 1, &a));
		ck_assert_uint_eq(a.key->id, i ? 7 : 300);
		ck_assert_str_eq(a.client->name, "app");
		ck_assert(auth_enter(&a) && a.proved && !auth_has_place(a.client));
		ck_assert(auth_readmit(&a, table));
		auth_admission_end(&a);
		for (size_t len = 0; len < AUTH_PASSWORD - 1; len++)
			ck_assert(!auth_password_admit(table, "app", 3, password[i], len, &a));
		ck_assert(!auth_password_admit(table, "lab", 3, password[i], AUTH_PASSWORD - 1, &a));
		ck_assert(!auth_password_admit(table, "app\0", 4, password[i], AUTH_PASSWORD - 1, &a));
		ck_assert(!auth_password_admit(table, "", 0, password[i], AUTH_PASSWORD - 1, &a));
		ck_assert(!auth_password_admit(open, "app", 3, password[i], AUTH_PASSWORD - 1, &a));
		password[i][3] ^= 1;
		ck_assert(!auth_password_admit(table, "app", 3, password[i], AUTH_PASSWORD - 1, &a));
	}
	ck_assert(!auth_table_key(table, 3) && !auth_table_key(open, 0));
	ck_assert_str_eq(auth_table_client(table, "app")->name, "app");
	auth_table_put(table);
	auth_table_put(open);
}
END_TEST

/* Connections that were there before their client had a limit count, and those of a key that is gone end. */
START_TEST(what_a_reload_does)
{
	struct auth_table *unlimited = table_of(vector_line, "app kv\n", 0);
	struct auth_table *two = table_of(vector_line, "app kv connections=2\n", 0), *other;
	struct auth_admission a[3], late;
	struct auth_key key;
	char line[AUTH_LINE_MAX];

	for (unsigned i = 0; i < 3; i++) {
		ck_assert(auth_admit(unlimited, 300, false, 0, &a[i]));
		ck_assert(i == 2 || auth_enter(&a[i])); /* the last one has not proved its key yet */
	}
	for (unsigned i = 0; i < 3; i++)
		ck_assert(auth_readmit(&a[i], two));
	ck_assert(!auth_has_place(a[2].client));
	ck_assert(!auth_enter(&a[2]));
	auth_admission_end(&a[2]);
	auth_admission_end(&a[1]);
	ck_assert(auth_admit(two, 300, false, 0, &late) && auth_has_place(late.client) && auth_enter(&late));
	auth_admission_end(&late);
	ck_assert(auth_readmit(&a[0], unlimited));
	ck_assert(auth_has_place(a[0].client));

	ck_assert_int_eq(auth_key_new(300, "app", &key), 0);
	other = table_of(auth_key_format(&key, line), "app kv\n", 0); /* the same number, and another secret */
	ck_assert(!auth_readmit(&a[0], other));
	ck_assert_ptr_eq(a[0].table, unlimited);
	auth_admission_end(&a[0]);
	auth_table_put(other);
	auth_table_put(two);
	auth_table_put(unlimited);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("auth");
	TCase *tc = suite_case(suite, "lines", set_up, tear_down);

	tcase_add_test(tc, a_line_has_the_key);
	tcase_add_test(tc, a_changed_line_is_refused);
	tcase_add_test(tc, what_is_wrong_with_a_line);
	tc = suite_case(suite, "files", set_up, tear_down);
	tcase_add_test(tc, files_that_others_may_use_are_refused);
	tcase_add_test(tc, a_table_has_the_keys_of_its_file);
	tcase_add_test(tc, new_keys_are_appended);
	tc = suite_case(suite, "proofs", set_up, tear_down);
	tcase_add_test(tc, proofs_are_those_of_another_program);
	tcase_add_test(tc, each_bit_counts);
	tcase_add_test(tc, mutated_handshakes_prove_nothing);
	tcase_add_test(tc, both_ends_have_the_same_secret);
	tcase_add_test(tc, sealed_texts_open_once_and_in_order);
	tc = suite_case(suite, "rights", set_up, tear_down);
	tcase_add_test(tc, rights_are_those_of_the_line);
	tcase_add_test(tc, what_is_spent_is_waited_for);
	tcase_add_test(tc, what_is_wrong_with_rights);
	tc = suite_case(suite, "tables", set_up, tear_down);
	tcase_add_test(tc, who_is_admitted);
	tcase_add_test(tc, users_by_munge);
	tcase_add_test(tc, passwords_admit_by_name);
	tcase_add_test(tc, what_a_reload_does);
	return suite_run(suite);
}
