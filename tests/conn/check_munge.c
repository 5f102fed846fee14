/*
 * check_munge.c: connections whose ends MUNGE proves, and peers that would like to pass for others. munged is a table of
 * this program, which it can hold up; or, where RDMAD_MUNGE_SOCKET names one, a real one for the cases that may have it.
 */
#include "auth/internal.h"
#include "conn/internal.h"
#include "tests/conn/conn_pair.h"
#include "tests/suite.h"

#include <pthread.h>
#include <unistd.h>

struct peer {
	struct conn *conn;
	unsigned established, records, closed;
	int error;
	char reason[256];
};

#define CLIENTS 300

static struct conn_pair pair;
static struct peer client[CLIENTS], server[CLIENTS];
static unsigned servers;
static struct conn_munge *munge;
static const struct auth_key *asked;
static uintptr_t main_thread;

/*
 * munged
 */
enum lie { HONEST, OTHER_USER, OTHER_PAYLOAD, REFLECTION, NO_MUNGED, OTHER_REALM };

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct {
		uint8_t payload[64];
		size_t length;
		uid_t maker, reader;
		bool shown;
	} made[4 * CLIENTS];
	unsigned count;
	unsigned asked, held; /* of the server's thread: decodings, and the ones that wait */
	bool holds;
	enum lie server, client;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static bool real(void)
{
	return getenv("RDMAD_MUNGE_SOCKET");
}

int __real_auth_munge_encode(const void *payload, size_t length, uid_t reader, char *out, char *why);
int __real_auth_munge_decode(const char *credential, void *payload, size_t length, uid_t *uid, char *why);
int __wrap_auth_munge_encode(const void *payload, size_t length, uid_t reader, char *out, char *why);
int __wrap_auth_munge_decode(const char *credential, void *payload, size_t length, uid_t *uid, char *why);

int __wrap_auth_munge_encode(const void *payload, size_t length, uid_t reader, char *out, char *why)
{
	enum lie lie = thread_self() == main_thread ? table.client : table.server;
	unsigned at;

	if (real())
		return __real_auth_munge_encode(payload, length, reader, out, why);
	snprintf(why, AUTH_WHY, "munged does not answer");
	if (lie == NO_MUNGED)
		return -EHOSTDOWN;
	pthread_mutex_lock(&table.lock);
	at = lie == REFLECTION ? 0 : table.count++;
	ck_assert_uint_lt(at, ARRAY_SIZE(table.made));
	if (lie != REFLECTION) {
		memcpy(table.made[at].payload, payload, length);
		table.made[at].payload[7] ^= lie == OTHER_PAYLOAD;
		table.made[at].length = length;
		table.made[at].maker = lie == OTHER_USER ? 4321 : geteuid();
		table.made[at].reader = reader;
		table.made[at].shown = false;
	}
	table.made[at].shown &= lie != REFLECTION;
	snprintf(out, AUTH_CREDENTIAL_MAX, "MUNGE:AwQ%u+/=:", at);
	pthread_mutex_unlock(&table.lock);
	return 0;
}

int __wrap_auth_munge_decode(const char *credential, void *payload, size_t length, uid_t *uid, char *why)
{
	const char *wrong = NULL;
	unsigned at = 0;

	pthread_mutex_lock(&table.lock);
	table.asked += thread_self() != main_thread;
	while (table.holds && thread_self() != main_thread) {
		table.held++;
		pthread_cond_wait(&table.changed, &table.lock);
		table.held--;
	}
	if (real()) {
		pthread_mutex_unlock(&table.lock);
		return __real_auth_munge_decode(credential, payload, length, uid, why);
	}
	if (table.server == OTHER_REALM || sscanf(credential, "MUNGE:AwQ%u", &at) != 1 || at >= table.count)
		wrong = "of another realm";
	else if (table.made[at].shown)
		wrong = "replayed";
	else if (table.made[at].length != length)
		wrong = "of another length";
	else if (table.made[at].reader != geteuid())
		wrong = "for another user";
	if (wrong) {
		snprintf(why, AUTH_WHY, "%s", wrong);
	} else {
		table.made[at].shown = true;
		memcpy(payload, table.made[at].payload, length);
		*uid = table.made[at].maker;
	}
	pthread_mutex_unlock(&table.lock);
	return wrong ? -EACCES : 0;
}

static void hold(bool holds)
{
	pthread_mutex_lock(&table.lock);
	table.holds = holds;
	pthread_cond_broadcast(&table.changed);
	pthread_mutex_unlock(&table.lock);
}

static bool is_held(void)
{
	bool held;

	pthread_mutex_lock(&table.lock);
	held = table.held;
	pthread_mutex_unlock(&table.lock);
	return held;
}

static bool holds_events; /* the server's group hears nothing of the fabric but messages */

int __real_fabric_next_event(struct fabric_queue *queue, struct fabric_event *event);
int __wrap_fabric_next_event(struct fabric_queue *queue, struct fabric_event *event);

int __wrap_fabric_next_event(struct fabric_queue *queue, struct fabric_event *event)
{
	if (holds_events && queue == conn_group_queue(pair.server.group))
		return false;
	return __real_fabric_next_event(queue, event);
}

/*
 * A kernel that encrypts: what either end has it do is kept, and all goes on in clear.
 */
static struct {
	bool can;
	unsigned asked;
	struct fabric_secret sends[2], receives[2];
} kernel;

int __wrap_fabric_encrypts(const struct fabric *fabric);
bool __wrap_fabric_exposed(const struct fabric *fabric, const struct sockaddr *sa);
int __real_fabric_encrypt(struct fabric_endpoint *endpoint, const struct fabric_secret *sends,
			  const struct fabric_secret *receives);
int __wrap_fabric_encrypt(struct fabric_endpoint *endpoint, const struct fabric_secret *sends,
			  const struct fabric_secret *receives);

int __wrap_fabric_encrypts(const struct fabric *fabric)
{
	(void)fabric;
	return kernel.can ? 0 : -EOPNOTSUPP;
}

bool __wrap_fabric_exposed(const struct fabric *fabric, const struct sockaddr *sa)
{
	(void)fabric, (void)sa;
	return kernel.can;
}

/* The server is first. */
int __wrap_fabric_encrypt(struct fabric_endpoint *endpoint, const struct fabric_secret *sends,
			  const struct fabric_secret *receives)
{
	ck_assert_uint_lt(kernel.asked, 2);
	kernel.sends[kernel.asked] = *sends;
	kernel.receives[kernel.asked] = *receives;
	return kernel.asked++ ? __real_fabric_encrypt(endpoint, NULL, NULL) : 0;
}

/*
 * The two ends
 */
static void on_established(struct conn *conn)
{
	struct peer *p = conn_context(conn);

	ck_assert_uint_eq(p->established++, 0);
	ck_assert(conn_established(conn));
}

static int on_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct peer *p = conn_context(conn);

	ck_assert_uint_eq(p->established, 1);
	ck_assert_uint_eq(record->op, 77);
	ck_assert_mem_eq(body, "request", 8);
	p->records++;
	return 0;
}

static void on_closed(struct conn *conn, int error, const char *reason)
{
	struct peer *p = conn_context(conn);

	p->closed++;
	p->error = error;
	snprintf(p->reason, sizeof(p->reason), "%s", reason);
	p->conn = NULL;
}

static const struct conn_ops ops = {.established = on_established, .record = on_record, .closed = on_closed};

static void take(void *arg, struct fabric_request *request, const struct wire_request *wire, enum wire_reason reason)
{
	struct conn_attr attr = {.key = asked};
	struct wire_accept grant = {.eager_max = 4095, .value_max = 1234567};
	struct peer *p = &server[servers++];

	ck_assert_int_eq(reason, WIRE_REASON_NONE);
	ck_assert_int_eq(conn_accept(pair.server.group, request, wire, &grant, &attr, &ops, p, pair.now, &p->conn), 0);
}

static _Atomic unsigned woken;

static void wake(void *arg)
{
	(void)arg;
	woken++;
}

static void begin(int unix_socket)
{
	struct conn_group_attr attr = {
		.message_size = 8192,
		.message_max = 1u << 20,
		.credits = 4,
		.receives = 256,
		.max_connections = 2 * CLIENTS,
		.handshake_timeout = 5 * TIME_S,
		.memory = true,
	};
	struct conn_group_attr theirs;

	if (kernel.can)
		attr.encrypt = CONN_OFFER;
	theirs = attr;
	ck_assert_int_eq(auth_begin(), 0);
	ck_assert_int_eq(conn_munge_create(&munge), 0);
	theirs.munge = munge;
	theirs.wake = wake;
	main_thread = thread_self();
	asked = &auth_munge;
	servers = 0;
	woken = 0;
	memset(client, 0, sizeof(client));
	memset(server, 0, sizeof(server));
	table.count = table.asked = 0;
	table.server = table.client = HONEST;
	log_set_handler(log_keep);
	pair = (struct conn_pair){.listener.take = take};
	conn_pair_memory = unix_socket == 2;
	conn_pair_open(&pair, unix_socket == 1, &theirs, &attr);
}

static void end(void)
{
	for (unsigned i = 0; i < CLIENTS; i++)
		if (client[i].conn)
			conn_close(client[i].conn, 0, "the test is over");
	conn_pair_rest(&pair);
	hold(false);
	conn_munge_stop(munge);
	conn_pair_close(&pair);
	conn_munge_destroy(munge);
}

static struct conn_group_stats stats(void)
{
	struct conn_group_stats out;

	conn_group_get_stats(pair.server.group, &out);
	return out;
}

static void connect_with(struct peer *p, const struct auth_key *key)
{
	const struct wire_request request = {.service = WIRE_KV, .credits = 4};
	const struct conn_attr attr = {.key = key};

	ck_assert_int_eq(conn_pair_connect(&pair, &request, &attr, &ops, p, &p->conn), 0);
}

static void ask(struct peer *p)
{
	const struct wire_record head = {.op = 77};

	ck_assert(conn_say(p->conn, &head, "request", 8, "", 0));
}

/*
 * In order
 */
START_TEST(munge_proves_both)
{
	begin(_i);
	connect_with(&client[0], &auth_munge);
	PAIR_UNTIL(&pair, client[0].established && server[0].established);
	ck_assert_uint_gt(woken, 0);
	ask(&client[0]);
	ask(&server[0]);
	PAIR_UNTIL(&pair, server[0].records == 1 && client[0].records == 1);
	ck_assert_uint_eq(server[0].conn->admission.uid, geteuid());
	ck_assert(server[0].conn->admission.known);
	ck_assert_uint_eq(stats().unproved, 0);
	ck_assert_uint_eq(pair.server.group->checks + pair.server.group->unproved.count, 0);
	for (unsigned i = 0; i < 2; i++) {
		struct conn *from = i ? server[0].conn : client[0].conn, *to = i ? client[0].conn : server[0].conn;
		uint8_t sealed[AUTH_SEALED(6)], text[6];

		ck_assert(conn_seals(from));
		conn_seal(from, "secret", 6, sealed);
		ck_assert_int_eq(conn_unseal(to, sealed, sizeof(sealed), text), 0);
		ck_assert_mem_eq(text, "secret", 6);
	}
	end();
}
END_TEST

/* Encryption begins before either is proved, by what both are to prove. */
START_TEST(munge_proves_what_is_encrypted)
{
	static const struct fabric_secret none;

	kernel.can = true;
	begin(0);
	connect_with(&client[0], &auth_munge);
	PAIR_UNTIL(&pair, client[0].established && server[0].established);
	ck_assert_uint_eq(kernel.asked, 2);
	ck_assert_mem_eq(&kernel.sends[0], &kernel.receives[1], sizeof(none));
	ck_assert_mem_eq(&kernel.receives[0], &kernel.sends[1], sizeof(none));
	ck_assert_mem_ne(&kernel.sends[0], &kernel.receives[0], sizeof(none));
	ck_assert_mem_ne(&kernel.sends[0], &none, sizeof(none));
	ck_assert_uint_eq(stats().encrypted, 1);
	ck_assert(conn_seals(client[0].conn) && conn_seals(server[0].conn));
	ask(&client[0]);
	ask(&server[0]);
	PAIR_UNTIL(&pair, server[0].records == 1 && client[0].records == 1);
	kernel.can = false;
	end();
}
END_TEST

/* What the server says at once does not overtake its proof; the client says nothing before it. */
START_TEST(the_proof_comes_first)
{
	begin(_i);
	hold(true);
	connect_with(&client[0], &auth_munge);
	PAIR_UNTIL(&pair, is_held());
	conn_pair_rest(&pair);
	ck_assert_uint_eq(client[0].established + server[0].established, 0);
	ck_assert_ptr_null(conn_reserve(server[0].conn, 8, NULL));
	hold(false);
	PAIR_UNTIL(&pair, server[0].established);
	ask(&server[0]);
	PAIR_UNTIL(&pair, client[0].records == 1);
	end();
}
END_TEST

/* The other end is asked for a key that it lacks, or for none. */
START_TEST(one_alone_has_munge)
{
	struct auth_key key;

	begin(_i);
	ck_assert_int_eq(auth_key_new(7, "app", &key), 0);
	connect_with(&client[0], &key);
	PAIR_UNTIL(&pair, client[0].closed);
	ck_assert_str_eq(client[0].reason, "the server does not have key 7 (app), or is another one");
	asked = NULL;
	connect_with(&client[1], &auth_munge);
	PAIR_UNTIL(&pair, client[1].closed);
	ck_assert_str_eq(client[1].reason, "the server does not ask MUNGE; see auth.munge in its rdmad.conf");
	ck_assert_uint_eq(client[0].established + client[1].established + server[1].records, 0);
	end();
}
END_TEST

/* What the client is told, and how it fails without having told anything. */
START_TEST(who_fails_is_told)
{
	static const struct {
		enum lie server, client;
		const char *client_says;
		int error;
		unsigned unproved;
	} rows[] = {
		{OTHER_REALM, HONEST, "does not take the credential of MUNGE", -EACCES, 1},
		{NO_MUNGED, HONEST, "does not take the credential of MUNGE", -EACCES, 1},
		{HONEST, NO_MUNGED, "there is no credential of MUNGE: munged does not answer", -EACCES, 0},
		{HONEST, OTHER_PAYLOAD, "does not take the credential of MUNGE", -EACCES, 1},
		{OTHER_USER, HONEST, "has not proved by MUNGE who it is: it is of user 4321", -EACCES, 0},
		{OTHER_PAYLOAD, HONEST, "has not proved by MUNGE who it is: its credential is about another", -EACCES,
		 0},
		{REFLECTION, HONEST, "has not proved by MUNGE who it is: of another length", -EACCES, 0},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		begin(_i);
		table.server = rows[i].server;
		table.client = rows[i].client;
		connect_with(&client[0], &auth_munge);
		PAIR_UNTIL(&pair, client[0].closed && server[0].closed);
		ck_assert_msg(strstr(client[0].reason, rows[i].client_says), "row %zu: %s", i, client[0].reason);
		ck_assert_int_eq(client[0].error, rows[i].error);
		ck_assert_uint_eq(client[0].established + server[0].records, 0);
		ck_assert_uint_eq(stats().unproved, rows[i].unproved);
		end();
	}
}
END_TEST

/* munged may have answered before the fabric says that the connection is established. */
START_TEST(an_answer_comes_early)
{
	for (unsigned refused = 0; refused < 2; refused++) {
		begin(_i);
		table.server = refused ? OTHER_REALM : HONEST;
		holds_events = true;
		hold(true);
		connect_with(&client[0], &auth_munge);
		PAIR_UNTIL(&pair, is_held() && pair.server.group->checks);
		hold(false);
		PAIR_UNTIL(&pair, !pair.server.group->checks);
		ck_assert_uint_eq(server[0].established + server[0].closed + client[0].closed, 0);
		holds_events = false;
		PAIR_UNTIL(&pair, client[0].established || client[0].closed);
		if (refused)
			ck_assert_msg(strstr(client[0].reason, "does not take the credential"), "%s", client[0].reason);
		else
			ck_assert_uint_eq(client[0].established + server[0].established, 2);
		end();
	}
}
END_TEST

/*
 * While munged is asked
 */
START_TEST(a_client_goes_meanwhile)
{
	begin(_i);
	hold(true);
	for (unsigned i = 0; i < 3; i++)
		connect_with(&client[i], &auth_munge);
	PAIR_UNTIL(&pair, is_held() && pair.server.group->checks == 3);
	conn_close(client[0].conn, 0, "it goes");
	conn_close(client[1].conn, 0, "it goes");
	PAIR_UNTIL(&pair, server[0].closed && server[1].closed);
	hold(false);
	PAIR_UNTIL(&pair, client[2].established && server[2].established);
	PAIR_UNTIL(&pair, !pair.server.group->checks);
	ck_assert_uint_eq(server[0].established + server[1].established, 0);
	ck_assert_uint_le(table.asked, 2); /* for one that was gone before its turn nobody is asked */
	end();
}
END_TEST

/* And the server does: with its connections, its checks end. */
START_TEST(the_server_ends_meanwhile)
{
	begin(_i);
	hold(true);
	for (unsigned i = 0; i < 5; i++)
		connect_with(&client[i], &auth_munge);
	PAIR_UNTIL(&pair, is_held() && pair.server.group->checks == 5);
	hold(false);
	conn_munge_stop(munge);
	conn_pair_close(&pair);
	conn_munge_destroy(munge);
	ck_assert_uint_eq(server[0].closed + server[4].closed, 2);
}
END_TEST

START_TEST(munged_hangs)
{
	begin(_i);
	hold(true);
	connect_with(&client[0], &auth_munge);
	PAIR_UNTIL(&pair, is_held());
	pair.now += 6 * TIME_S;
	PAIR_UNTIL(&pair, client[0].closed && server[0].closed);
	ck_assert_int_eq(server[0].error, -EACCES);
	hold(false);
	PAIR_UNTIL(&pair, !pair.server.group->checks);
	connect_with(&client[1], &auth_munge);
	PAIR_UNTIL(&pair, client[1].established && server[1].established);
	end();
}
END_TEST

/* No more wait than there is room for; the others come in. */
START_TEST(too_many_ask)
{
	unsigned refused = 0;

	begin(_i);
	hold(true);
	for (unsigned i = 0; i < CLIENTS; i++) {
		connect_with(&client[i], &auth_munge);
		PAIR_UNTIL(&pair,
			   (i ? pair.server.group->checks + refused > i : is_held()) ||
				   (refused = (unsigned)stats().unproved, pair.server.group->checks + refused > i));
	}
	ck_assert_uint_eq(pair.server.group->checks, 257);
	ck_assert_uint_eq(stats().unproved, CLIENTS - 257);
	hold(false);
	PAIR_UNTIL(&pair, !pair.server.group->checks);
	for (unsigned i = 0; i < CLIENTS; i++)
		PAIR_UNTIL(&pair, client[i].established || client[i].closed);
	ck_assert_uint_eq(stats().accepted, 257);
	end();
}
END_TEST

/*
 * Peers without manners
 */
static uint8_t asks[WIRE_REQUEST_SIZE];

/* Connects, and answers what its credential is to be about. */
static struct evil *evil_asks(struct auth_munge_payload *payload)
{
	struct wire_request request = {.version = WIRE_VERSION,
				       .service = WIRE_KV,
				       .key_id = AUTH_ID_MUNGE,
				       .credits = 4,
				       .message_size = 8192,
				       .nonce = {1, 2, 3}};
	struct evil *evil = evil_new(&pair);
	uint8_t accept[WIRE_ACCEPT_SIZE];
	struct wire_cursor c;

	wire_request_encode(&request, asks);
	evil_connect(&pair, evil, asks, sizeof(asks));
	ck_assert(evil->established);
	wire_accept_encode(&evil->accept, accept);
	*payload = (struct auth_munge_payload){.secret = {9}};
	auth_transcript(AUTH_SOCKET, asks, accept, &payload->th);
	wire_cursor_init(&c, evil->accept.proof, WIRE_PROOF);
	ck_assert_uint_eq(wire_get32(&c), geteuid());
	ck_assert_uint_eq(wire_get32(&c), 1);
	return evil;
}

static void encode(const struct auth_munge_payload *payload, char credential[AUTH_CREDENTIAL_MAX])
{
	char why[AUTH_WHY];

	ck_assert_int_eq(auth_munge_encode(payload, sizeof(*payload), geteuid(), credential, why), 0);
}

/* A message of one record, or of two: a request is behind it. */
static void evil_says(struct evil *evil, unsigned op, const void *body, size_t length, bool request)
{
	struct wire_record record = {.length = (uint32_t)length, .op = (uint8_t)op};
	struct wire_message head = {.length = (uint32_t)(sizeof(head) + sizeof(record) + WIRE_PAD(length))};
	_Alignas(8) uint8_t out[8192] = {0}, *at = out + sizeof(head);

	memcpy(at, &record, sizeof(record));
	memcpy(at + sizeof(record), body, length);
	if (request) {
		at = out + head.length;
		head.length += (uint32_t)sizeof(record) + 8;
		record = (struct wire_record){.length = 8, .op = 77};
		memcpy(at, &record, sizeof(record));
		memcpy(at + sizeof(record), "request", 8);
	}
	memcpy(out, &head, sizeof(head));
	evil_send(&pair, evil, out, head.length);
}

/* One whose credential was looked at may stay to hear that it is refused, for a while. */
static void expect_cut_off(struct evil *evil, const char *what)
{
	const struct peer *p = &server[servers - 1];

	for (unsigned i = 0; i < 2; i++) {
		PAIR_UNTIL(&pair, (evil_turn(evil), p->closed || (!i && evil->received > 0)));
		pair.now += i ? 0 : 6 * TIME_S;
	}
	PAIR_UNTIL(&pair, (evil_turn(evil), evil->disconnected));
	ck_assert_msg(p->established == 0 && p->records == 0, "%s: it was let in", what);
	ck_assert_msg(p->error == -EACCES || p->error == wire_reason_errno(WIRE_REASON_KEY), "%s: %d (%s)", what,
		      p->error, p->reason);
	evil_free(evil);
}

START_TEST(credentials_shown_again)
{
	char first[AUTH_CREDENTIAL_MAX], credential[AUTH_CREDENTIAL_MAX];
	struct auth_munge_payload payload, other;
	struct evil *evil[2];

	begin(_i);
	evil[0] = evil_asks(&payload);
	encode(&payload, first);
	evil_says(evil[0], WIRE_OP_PROOF, first, strlen(first), false);
	PAIR_UNTIL(&pair, (evil_turn(evil[0]), server[0].established));
	/* On another connection the same, then a new one about the first, then one of its own with a bit changed. */
	for (unsigned kind = 0; kind < 3; kind++) {
		evil[1] = evil_asks(&other);
		ck_assert_mem_ne(other.th.hash, payload.th.hash, sizeof(other.th.hash));
		snprintf(credential, sizeof(credential), "%s", first);
		other.th.hash[31] ^= 1;
		if (kind)
			encode(kind == 1 ? &payload : &other, credential);
		evil_says(evil[1], WIRE_OP_PROOF, credential, strlen(credential), false);
		expect_cut_off(evil[1], kind == 0 ? "a replay" : kind == 1 ? "another connection's" : "a bit");
	}
	ck_assert_uint_eq(server[0].closed, 0);
	ck_assert_uint_eq(stats().accepted, 1);
	ck_assert_uint_eq(stats().unproved, 3);
	evil_free(evil[0]);
	end();
}
END_TEST

/* None of it comes to munged. */
START_TEST(what_is_no_credential)
{
	static const struct {
		const char *what, *text;
		unsigned op;
		bool request;
	} rows[] = {
		{"a request first", "request", 77, false},
		{"nothing", "", WIRE_OP_PROOF, false},
		{"no end", "MUNGE:AwQDAAA", WIRE_OP_PROOF, false},
		{"no begin", "UNGE:AwQDAAA:", WIRE_OP_PROOF, false},
		{"a blank", "MUNGE:AwQ DAAA:", WIRE_OP_PROOF, false},
		{"the server's operation", "MUNGE:AwQDAAA:", WIRE_OP_PROVED, false},
		{"a request behind it", "MUNGE:AwQDAAA:", WIRE_OP_PROOF, true},
	};
	char text[AUTH_CREDENTIAL_MAX + 1], credential[AUTH_CREDENTIAL_MAX];
	struct auth_munge_payload payload;
	uint8_t proof[AUTH_PROOF];
	struct evil *evil;

	begin(_i);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		evil = evil_asks(&payload);
		evil_says(evil, rows[i].op, rows[i].text, strlen(rows[i].text), rows[i].request);
		expect_cut_off(evil, rows[i].what);
	}
	evil = evil_asks(&payload);
	evil_says(evil, WIRE_OP_PROOF, "MUNGE:Aw\0Q:", 11, false);
	expect_cut_off(evil, "a zero");
	memset(text, 'A', sizeof(text));
	memcpy(text, "MUNGE:", 6);
	text[AUTH_CREDENTIAL_MAX - 1] = ':';
	evil = evil_asks(&payload);
	evil_says(evil, WIRE_OP_PROOF, text, AUTH_CREDENTIAL_MAX, false);
	expect_cut_off(evil, "too long");
	/* The proof by the secret of auth_munge, which is no secret. */
	evil = evil_asks(&payload);
	auth_prove(&auth_munge, &payload.th, AUTH_CLIENT, proof);
	evil_says(evil, WIRE_OP_PROOF, proof, sizeof(proof), true);
	expect_cut_off(evil, "the proof of a key");
	ck_assert_uint_eq(table.asked, 0);
	/* A second message, while the first is looked at. */
	hold(true);
	evil = evil_asks(&payload);
	encode(&payload, credential);
	evil_says(evil, WIRE_OP_PROOF, credential, strlen(credential), false);
	PAIR_UNTIL(&pair, is_held());
	evil_says(evil, 77, "request", 8, false);
	expect_cut_off(evil, "a second message");
	hold(false);
	PAIR_UNTIL(&pair, !pair.server.group->checks);
	ck_assert_uint_eq(stats().accepted, 0);
	end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("munge");
	TCase *tc = suite_case(suite, "in order", NULL, NULL);

	tcase_add_loop_test(tc, munge_proves_both, 0, 3);
	tcase_add_test(tc, munge_proves_what_is_encrypted);
	tcase_add_loop_test(tc, the_proof_comes_first, 0, 3);
	tcase_add_loop_test(tc, one_alone_has_munge, 0, 3);
	tcase_add_loop_test(tc, credentials_shown_again, 0, 3);
	tcase_add_loop_test(tc, a_client_goes_meanwhile, 0, 3);
	if (!real()) {
		tc = suite_case(suite, "failures", NULL, NULL);
		tcase_add_loop_test(tc, who_fails_is_told, 0, 3);
		tcase_add_loop_test(tc, an_answer_comes_early, 0, 3);
		tcase_add_loop_test(tc, the_server_ends_meanwhile, 0, 3);
		tcase_add_loop_test(tc, munged_hangs, 0, 3);
		tcase_add_loop_test(tc, too_many_ask, 0, 2);
		tcase_add_loop_test(tc, what_is_no_credential, 0, 3);
	}
	return suite_run(suite);
}
