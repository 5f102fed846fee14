/*
 * prove.c: both ends prove that they have the same key. auth/auth.h has the formulas.
 *
 * The server's proof is in its accept. The client looks at it before it says anything. Its own proof is the first
 * record of its first message, so it takes no round trip; requests may stand behind it. The server carries nothing out
 * before: a connection whose client has not proved itself may send this one message, and reaches no memory.
 *
 * With auth_munge in place of a key, the proof of the client is a credential of MUNGE, with a secret that stands for
 * the key from then on, and so is that of the server, which answers it by its own first record. In its accept the
 * server only says which user it is, so that the client can have its credential for this user alone. So a client goes
 * on when it has the answer, after a round trip. On the server munged is asked by a thread beside (munge.c); a client
 * waits for it.
 */
#include "conn/internal.h"

#include <stdlib.h>
#include <unistd.h>

#define UNPROVED_PART 4 /* of the budget of own buffers, that clients without a proof may hold */

struct conn_prover {
	struct auth_key key;
	struct auth_transcript th;
	uint8_t exchange[32];     /* the secret of this side's public key, which is in place of its nonce ... */
	bool exchanges;           /* ... as it asks for encryption, or agrees */
	enum auth_side side;      /* of this end */
	bool proved;              /* the client, perhaps before the fabric said that the connection is established */
	uid_t server;             /* MUNGE: what the server says of itself */
	struct check *check;      /* MUNGE: of the server, until it is done; once it is proved, with the answer */
	enum wire_reason refused; /* MUNGE: the client is told so, when it is established for the fabric, and to go */
	uint64_t detail;
};

static bool prover_munges(const struct conn *conn)
{
	return conn->prover && conn->prover->key.id == AUTH_ID_MUNGE;
}

/* Keys that both ends have from the handshake. */
struct conn_session {
	struct auth_session keys;
	enum auth_side side; /* of this end */
};

int conn_prover_new(struct conn *conn, const struct auth_key *key, enum auth_side side)
{
	if (!key)
		return 0;
	must(key->id != AUTH_ID_MUNGE || side == AUTH_CLIENT || conn->group->attr.munge);
	conn->prover = calloc(1, sizeof(*conn->prover));
	if (!conn->prover)
		return -ENOMEM;
	conn->prover->key = *key;
	conn->prover->side = side;
	return 0;
}

/* Gives back what it holds of the part for clients without a proof. */
static void prover_release_bytes(const struct conn *conn)
{
	if (conn->own.bytes)
		conn->group->attr.own->unproved -= conn->own.bytes;
}

/* A server's: from here on it counts as the others. */
static void prover_proved(struct conn *conn)
{
	conn->prover->proved = true;
	pending_remove(&conn->group->unproved, &conn->unproved);
	prover_release_bytes(conn);
}

void conn_prover_free(struct conn *conn)
{
	if (!conn->prover)
		return;
	if (conn->prover->side == AUTH_SERVER) {
		pending_remove(&conn->group->unproved, &conn->unproved);
		if (!conn->prover->proved)
			prover_release_bytes(conn);
	}
	if (conn->prover->proved)
		conn_check_free(conn->prover->check);
	else
		conn_check_abandon(conn->prover->check);
	auth_wipe(conn->prover, sizeof(*conn->prover));
	free(conn->prover);
	conn->prover = NULL;
}

void conn_session_free(struct conn *conn)
{
	if (!conn->session)
		return;
	auth_wipe(conn->session, sizeof(*conn->session));
	free(conn->session);
	conn->session = NULL;
}

/* Without memory nothing is sealed. `shared`: NULL where nothing is encrypted; where it is, it has begun already. */
static void conn_session_new(struct conn *conn, const uint8_t shared[32])
{
	if (conn->session)
		return;
	conn->session = calloc(1, sizeof(*conn->session));
	if (!conn->session)
		return;
	conn->session->side = conn->prover->side;
	auth_session(&conn->prover->key, &conn->prover->th, shared, &conn->session->keys);
}

bool conn_seals(const struct conn *conn)
{
	return conn->session;
}

void conn_seal(struct conn *conn, const void *text, size_t length, void *out)
{
	auth_seal(&conn->session->keys, conn->session->side, text, length, out);
}

int conn_unseal(struct conn *conn, const void *sealed, size_t length, void *out)
{
	enum auth_side other = conn->session->side == AUTH_SERVER ? AUTH_CLIENT : AUTH_SERVER;

	return auth_open(&conn->session->keys, other, sealed, length, out);
}

bool conn_unproved(const struct conn *conn)
{
	return conn->prover && conn->prover->side == AUTH_SERVER && !conn->prover->proved;
}

/* A transport's bytes may come to go by shared memory, so those of sockets are told from those of a device only. */
static void prover_make_transcript(struct conn *conn)
{
	uint8_t request[WIRE_REQUEST_SIZE], accept[WIRE_ACCEPT_SIZE];

	_Static_assert(WIRE_REQUEST_SIZE == AUTH_REQUEST && offsetof(struct wire_accept, proof) >= WIRE_NONCE &&
			       WIRE_ACCEPT_SIZE == AUTH_ACCEPT + WIRE_PROOF && WIRE_PROOF == AUTH_PROOF,
		       "the transcript is the request, and the accept without the proof at its end");
	wire_request_encode(&conn->request, request);
	wire_accept_encode(&conn->accept, accept);
	auth_transcript(conn->transport->processor ? AUTH_SOCKET : AUTH_RDMA, request, accept, &conn->prover->th);
}

#define MUNGE_ASKS 1 /* behind the user: the server asks munged, and not nobody */

/* Is it one that the client trusts to be the server? Only its credential says that it is true. */
static bool prover_take_user(struct conn *conn)
{
	uid_t trusted = conn->group->attr.server_user;
	struct wire_cursor c;

	wire_cursor_init(&c, conn->accept.proof, WIRE_PROOF);
	conn->prover->server = wire_get32(&c);
	if (wire_get32(&c) != MUNGE_ASKS) {
		conn_close(conn, -EACCES, "the server does not ask MUNGE; see auth.munge in its rdmad.conf");
		return false;
	}
	if (conn->prover->server == 0 || conn->prover->server == geteuid() || conn->prover->server == trusted)
		return true;
	conn_close(conn, -EACCES,
		   "the server is of user %u, and neither of root nor of this one, %u; if it is to be, name it: "
		   "--server-user %u, or server_user",
		   conn->prover->server, geteuid(), conn->prover->server);
	return false;
}

void conn_prove_accept(struct conn *conn)
{
	struct wire_cursor c;

	if (!conn->prover)
		return;
	prover_make_transcript(conn);
	if (prover_munges(conn)) { /* this process's user stands in place of the proof that it cannot have yet */
		wire_cursor_init(&c, conn->accept.proof, WIRE_PROOF);
		wire_put32(&c, geteuid());
		wire_put32(&c, MUNGE_ASKS);
	} else {
		auth_prove(&conn->prover->key, &conn->prover->th, AUTH_SERVER, conn->accept.proof);
	}
}

int conn_prove_ask(struct conn *conn, const struct sockaddr *sa)
{
	const struct conn_group *group = conn->group;
	const struct fabric *fabric = fabric_domain_fabric(group->domain);
	bool required = group->attr.encrypt == CONN_REQUIRE;

	if (group->attr.encrypt == CONN_CLEAR || !fabric_exposed(fabric, sa))
		return 0;
	if (!conn->prover)
		return required ? -ENOKEY : 0;
	if (fabric_encrypts(fabric) != 0)
		return required ? -ENOPROTOOPT : 0;
	conn->prover->exchanges = true;
	conn->request.flags |= required ? WIRE_ENCRYPT | WIRE_ENCRYPT_REQUIRED : WIRE_ENCRYPT;
	return auth_exchange_new(conn->prover->exchange, conn->request.nonce);
}

int conn_prove_agree(struct conn *conn)
{
	enum conn_encrypt encrypt = conn->group->attr.encrypt;

	if (encrypt == CONN_CLEAR || !(conn->request.flags & WIRE_ENCRYPT) || !conn->prover ||
	    (encrypt == CONN_DEMAND && !(conn->request.flags & WIRE_ENCRYPT_REQUIRED)) ||
	    fabric_encrypts(fabric_domain_fabric(conn->group->domain)) != 0)
		return 0;
	conn->prover->exchanges = true;
	conn->accept.flags |= WIRE_ENCRYPT;
	return auth_exchange_new(conn->prover->exchange, conn->accept.nonce);
}

static struct fabric_secret record_secret(const struct auth_direction *direction)
{
	struct fabric_secret secret;

	memcpy(secret.key, direction->record, sizeof(secret.key));
	memcpy(secret.iv, direction->record_iv, sizeof(secret.iv));
	return secret;
}

/* From here on, by the public key of the other end. */
static bool prove_encrypt(struct conn *conn, const uint8_t other[32])
{
	enum auth_side side = conn->prover->side;
	struct fabric_secret sends, receives;
	uint8_t shared[32];
	int rc = auth_exchange(conn->prover->exchange, other, shared);

	if (rc == 0)
		conn_session_new(conn, shared);
	if (rc == 0 && !conn->session)
		rc = -ENOMEM;
	if (rc == 0) {
		sends = record_secret(&conn->session->keys.direction[side]);
		receives = record_secret(&conn->session->keys.direction[!side]);
		rc = fabric_encrypt(conn->endpoint, &sends, &receives);
		auth_wipe(&sends, sizeof(sends));
		auth_wipe(&receives, sizeof(receives));
	}
	auth_wipe(shared, sizeof(shared));
	if (rc != 0)
		conn_close(conn, rc, "it cannot be encrypted: %s", strerror(-rc));
	return rc == 0;
}

void conn_prove_encrypt(struct conn *conn)
{
	if (conn->prover && conn->prover->exchanges)
		conn->group->stats.encrypted += prove_encrypt(conn, conn->request.nonce);
}

/* The server has proved itself, or will by MUNGE, so what it says of encryption is its word. */
static bool prove_decide(struct conn *conn)
{
	bool agreed = conn->accept.flags & WIRE_ENCRYPT;

	if (!conn->prover->exchanges)
		return true;
	if (agreed)
		return prove_encrypt(conn, conn->accept.nonce);
	if (conn->group->attr.encrypt == CONN_REQUIRE) {
		conn_close(conn, -EACCES,
			   "encryption is required, and the server does not agree; see auth.encrypt in its "
			   "rdmad.conf");
		return false;
	}
	return fabric_encrypt(conn->endpoint, NULL, NULL) == 0; /* else its end is on its way */
}

bool conn_prove_answer(struct conn *conn)
{
	if (conn->accept.flags & WIRE_ENCRYPT && !(conn->request.flags & WIRE_ENCRYPT)) {
		conn_close(conn, -EPROTO, "the server encrypts, which nobody has asked for");
		return false;
	}
	if (!conn->prover)
		return true;
	prover_make_transcript(conn);
	if (prover_munges(conn))
		return prover_take_user(conn) && prove_decide(conn);
	if (auth_proof_fits(&conn->prover->key, &conn->prover->th, AUTH_SERVER, conn->accept.proof))
		return prove_decide(conn);
	conn_close(conn, -EACCES, "the server does not have key %u (%s), or is another one", conn->prover->key.id,
		   conn->prover->key.name);
	return false;
}

bool conn_prove_awaits(const struct conn *conn)
{
	return prover_munges(conn) && conn->prover->side == AUTH_CLIENT;
}

bool conn_prove_speaks(const struct conn *conn)
{
	return conn_prove_awaits(conn) || (conn->prover && conn->prover->refused);
}

/* Says a credential, as the first record. False: the connection is closed. */
static bool prove_say(struct conn *conn, unsigned op, const char *credential)
{
	const struct wire_record head = {.op = (uint8_t)op};
	size_t length = strlen(credential);

	if (conn_say(conn, &head, credential, length, "", 0))
		return true;
	if (length > WIRE_BODY_MAX(conn->message_size))
		conn_close(conn, -EMSGSIZE, "a credential of MUNGE of %zu bytes does not fit the messages, of %u bytes",
			   length, conn->message_size);
	else
		conn_close(conn, -ENOBUFS, "no buffer for the credential of MUNGE");
	return false;
}

void conn_prove_speak(struct conn *conn)
{
	struct conn_prover *prover = conn->prover;
	struct auth_munge_payload payload = {.th = prover->th};
	char credential[AUTH_CREDENTIAL_MAX], why[AUTH_WHY];
	int rc = random_fill(prover->key.secret, sizeof(prover->key.secret));

	if (rc != 0) {
		conn_close(conn, rc, "no random bytes");
		return;
	}
	memcpy(payload.secret, prover->key.secret, sizeof(payload.secret));
	rc = auth_munge_encode(&payload, sizeof(payload), prover->server, credential, why);
	auth_wipe(&payload, sizeof(payload));
	if (rc != 0)
		conn_close(conn, -EACCES, "there is no credential of MUNGE: %s", why);
	else
		prove_say(conn, WIRE_OP_PROOF, credential);
}

bool conn_prove_begin(struct conn *conn)
{
	const struct wire_record head = {.op = WIRE_OP_PROOF};
	uint8_t proof[AUTH_PROOF];

	if (prover_munges(conn)) {
		if (conn->prover->side == AUTH_SERVER &&
		    !prove_say(conn, WIRE_OP_PROVED, conn->prover->check->credential))
			return false;
	} else if (conn->prover && conn->prover->side == AUTH_CLIENT) {
		auth_prove(&conn->prover->key, &conn->prover->th, AUTH_CLIENT, proof);
		if (!conn_say(conn, &head, proof, sizeof(proof), "", 0)) {
			conn_close(conn, -ENOBUFS, "no buffer for the proof of its key");
			return false;
		}
		conn_session_new(conn, NULL);
	}
	conn_prover_free(conn);
	return true;
}

/* The body of the first record, if it is a credential by this operation, and there is no other proof yet. */
static const char *prove_credential(const struct conn *conn, const struct wire_record *record, unsigned op)
{
	const char *text;

	if (!record || conn->prover->check || conn->prover->refused || record->op != op || record->flags)
		return NULL;
	text = (const char *)(record + 1);
	return auth_credential_valid(text, record->length) ? text : NULL;
}

/* The client says nothing more before it has the answer. */
static bool prove_check(struct conn *conn, const struct wire_record *record, bool more)
{
	const char *credential = prove_credential(conn, record, WIRE_OP_PROOF);

	if (credential && !more)
		conn->prover->check = conn_check_new(conn, &conn->prover->th, credential, record->length);
	if (!credential || more || !conn->prover->check)
		conn_prove_failed(conn);
	else
		conn_consumed(conn);
	return false;
}

/* Tell the peer why, as a request is refused; it has as long to go as for its proof. */
static void prove_refuse(struct conn *conn, enum wire_reason reason, uint64_t detail)
{
	conn->prover->refused = reason;
	conn->prover->detail = detail;
	conn->error = wire_reason_errno(reason);
	snprintf(conn->reason, sizeof(conn->reason), "refused: %s", wire_reason_name(reason));
	if (conn->state == CONN_PROVING)
		conn_prove_say_refusal(conn);
}

void conn_prove_say_refusal(struct conn *conn)
{
	const struct wire_record head = {.op = WIRE_OP_PROVED, .status = WIRE_DENIED};
	struct wire_reject reject = {.version = WIRE_VERSION, .detail = conn->prover->detail};
	uint8_t data[WIRE_REJECT_SIZE];

	if (!conn->prover->refused)
		return;
	reject.reason = (uint16_t)conn->prover->refused;
	wire_reject_encode(&reject, data);
	if (!conn_say(conn, &head, data, sizeof(data), "", 0))
		conn_handle(conn, CONN_EVENT_CLOSE);
}

/* Admit by the user, which the listener could not know before. */
static enum wire_reason prove_admit(struct conn *conn, uint64_t *detail)
{
	const struct auth_client *client = conn_client(conn);
	enum wire_reason reason = WIRE_REASON_NONE;

	*detail = conn->request.service;
	if (!auth_may_use(&conn->admission, conn->request.service)) {
		reason = WIRE_REASON_RIGHTS;
	} else if (!auth_has_place(client)) {
		reason = WIRE_REASON_SOURCE;
		*detail = client->connections;
	}
	if (reason == WIRE_REASON_NONE)
		return reason;
	log_info("conn", "%s, which is of user %u, refused: %s", conn->peer, conn->admission.uid,
		 wire_reason_name(reason));
	conn->group->stats.refused++;
	return reason;
}

void conn_prove_checked(struct conn *conn, struct check *check)
{
	struct conn_prover *prover = conn->prover;
	enum wire_reason reason;
	uint64_t detail = 0;

	must(prover && prover->check == check);
	if (check->rc != 0) {
		log_warn("conn", "%s has not proved by MUNGE which user it is: %s", conn->peer, check->why);
		reason = WIRE_REASON_KEY;
		conn->group->stats.unproved++;
	} else {
		auth_identify(&conn->admission, check->uid);
		reason = prove_admit(conn, &detail);
	}
	if (reason != WIRE_REASON_NONE) {
		prover->check = NULL;
		conn_check_free(check);
		prove_refuse(conn, reason, detail);
		return;
	}
	prover_proved(conn);
	memcpy(prover->key.secret, check->payload.secret, sizeof(prover->key.secret));
	conn_session_new(conn, NULL);
	if (conn->state == CONN_PROVING)
		conn_handle(conn, CONN_EVENT_PROVED);
}

#define MUNGE_REFUSED                                                                                                  \
	"the server does not take the credential of MUNGE; its log says why: clocks that differ (timedatectl), or "    \
	"another /etc/munge/munge.key"

/* Read the server's answer to the credential. */
static bool prove_answered(struct conn *conn, const struct wire_record *record)
{
	const char *text = prove_credential(conn, record, WIRE_OP_PROVED);
	char credential[AUTH_CREDENTIAL_MAX], why[AUTH_WHY] = "it says something else";
	uint8_t proof[AUTH_PROOF];
	struct wire_reject reject;
	uid_t uid = 0;
	int rc = -EACCES;

	if (record && record->op == WIRE_OP_PROVED && record->status) {
		if (wire_reject_decode(&reject, (const uint8_t *)(record + 1), record->length) != 0 ||
		    reject.reason == WIRE_REASON_KEY)
			conn_close(conn, -EACCES, MUNGE_REFUSED);
		else
			conn_told_refusal(conn, &reject);
		return false;
	}
	if (text && conn->state == CONN_PROVING) {
		memcpy(credential, text, record->length);
		credential[record->length] = '\0';
		rc = auth_munge_decode(credential, proof, sizeof(proof), &uid, why);
	}
	if (rc == 0 && uid != conn->prover->server) {
		snprintf(why, sizeof(why), "it is of user %u, and had said %u", uid, conn->prover->server);
		rc = -EACCES;
	} else if (rc == 0 && !auth_proof_fits(&conn->prover->key, &conn->prover->th, AUTH_SERVER, proof)) {
		snprintf(why, sizeof(why), "its credential is about another connection");
		rc = -EACCES;
	}
	if (rc != 0)
		conn_close(conn, -EACCES, "the server has not proved by MUNGE who it is: %s", why);
	else
		conn_session_new(conn, NULL);
	return rc == 0;
}

bool conn_prove_received(struct conn *conn, const void *data, size_t bytes, size_t *offset)
{
	const struct wire_record *record;
	size_t at = *offset;

	if (!conn_unproved(conn) && !conn_prove_awaits(conn))
		return true;
	record = wire_record_next(data, bytes, &at);
	if (conn_prove_awaits(conn)) {
		if (!prove_answered(conn, record))
			return false;
	} else if (prover_munges(conn)) {
		return prove_check(conn, record, at < bytes);
	} else if (!record || record->op != WIRE_OP_PROOF || record->flags || record->length != AUTH_PROOF ||
		   !auth_proof_fits(&conn->prover->key, &conn->prover->th, AUTH_CLIENT, (const void *)(record + 1))) {
		conn_prove_failed(conn);
		return false;
	} else {
		prover_proved(conn);
		conn_session_new(conn, NULL);
	}
	*offset = at;
	if (conn->state == CONN_PROVING)
		conn_handle(conn, CONN_EVENT_PROVED);
	if (at < bytes)
		return true;
	conn_consumed(conn);
	return false;
}

void conn_prove_failed(struct conn *conn)
{
	if (conn_prove_awaits(conn)) {
		conn_close(conn, -ETIMEDOUT, "the server does not answer the credential of MUNGE in time");
	} else if (conn->prover->refused) {
		conn_handle(conn, CONN_EVENT_CLOSE);
	} else if (prover_munges(conn)) {
		log_warn("conn", "%s has not proved by MUNGE which user it is: %s: it is cut off", conn->peer,
			 conn->prover->check ? "munged has not answered in time; systemctl status munge"
					     : "there is no credential of it");
		conn->group->stats.unproved++;
		conn_close(conn, -EACCES, "it has not proved which user it is");
	} else {
		log_warn("conn", "%s has not proved that it has key %u: it is cut off", conn->peer,
			 conn->request.key_id);
		conn->group->stats.unproved++;
		conn_close(conn, -EACCES, "it has not proved that it has its key");
	}
}

void conn_prove_lost(struct conn *conn)
{
	if (conn->reason[0] || !conn_prove_awaits(conn))
		return;
	conn->error = -EACCES;
	snprintf(conn->reason, sizeof(conn->reason),
		 "the server has ended the connection in place of an answer to the credential of MUNGE; its log says "
		 "why");
}

static void unproved_drop(struct pending_entry *entry, enum pending_reason reason)
{
	struct conn *conn = container_of(entry, struct conn, unproved);

	(void)reason;
	conn->group->stats.gave_way++;
	conn_close(conn, -ETIMEDOUT, "others came, and it had not proved its key");
}

/* Clients that know no key are not to hold what the others need. Each has a deadline among the timers. */
void conn_prove_init(struct conn_group *group)
{
	const struct pending_attr attr = {
		.limit = MAX(CONN_UNPROVED, group->attr.max_connections / 2),
		.stay = TIME_NEVER,
		.drop = unproved_drop,
	};

	pending_init(&group->unproved, &attr);
}

void conn_prove_enter(struct conn *conn)
{
	struct conn_group *group = conn->group;
	const struct memory_budget *budget = group->attr.own;

	if (!conn->prover)
		return;
	pending_has_place(&group->unproved, group->now); /* the first gives way at once */
	pending_add(&group->unproved, &conn->unproved, group->now);
	while (group->unproved.count > 1 && budget && budget->unproved > budget->limit / UNPROVED_PART)
		pending_make_room(&group->unproved, group->now);
}
