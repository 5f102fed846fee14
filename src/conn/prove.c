/*
 * prove.c: both ends prove that they have the same key. auth/auth.h has the formulas.
 *
 * The server's proof is in its accept. The client looks at it before it says anything. Its own proof is the first
 * record of its first message, so it takes no round trip; requests may stand behind it. The server carries nothing out
 * before: a connection whose client has not proved itself may send this one message, and reaches no memory.
 */
#include "conn/internal.h"

#include <stdlib.h>

#define UNPROVED_PART 4 /* of the budget of own buffers, that clients without a proof may hold */

struct conn_prover {
	struct auth_key key;
	struct auth_transcript th;
	uint8_t exchange[32]; /* the secret of this side's public key, which is in place of its nonce ... */
	bool exchanges;       /* ... as it asks for encryption, or agrees */
	enum auth_side side;  /* of this end */
	bool proved;          /* the client, perhaps before the fabric said that the connection is established */
};

/* What both have from the handshake of keys. */
struct conn_session {
	struct auth_session keys;
	enum auth_side side; /* of this end */
};

int conn_prover_new(struct conn *conn, const struct auth_key *key, enum auth_side side)
{
	if (!key)
		return 0;
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

void conn_prover_free(struct conn *conn)
{
	if (!conn->prover)
		return;
	if (conn->prover->side == AUTH_SERVER) {
		pending_remove(&conn->group->unproved, &conn->unproved);
		if (!conn->prover->proved)
			prover_release_bytes(conn);
	}
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

void conn_prove_accept(struct conn *conn)
{
	if (!conn->prover)
		return;
	prover_make_transcript(conn);
	auth_prove(&conn->prover->key, &conn->prover->th, AUTH_SERVER, conn->accept.proof);
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

/* The server has proved itself, so what it says of encryption is its word. */
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
	if (auth_proof_fits(&conn->prover->key, &conn->prover->th, AUTH_SERVER, conn->accept.proof))
		return prove_decide(conn);
	conn_close(conn, -EACCES, "the server does not have key %u (%s), or is another one", conn->prover->key.id,
		   conn->prover->key.name);
	return false;
}

bool conn_prove_begin(struct conn *conn)
{
	const struct wire_record head = {.op = WIRE_OP_PROOF};
	uint8_t proof[AUTH_PROOF];

	if (conn->prover && conn->prover->side == AUTH_CLIENT) {
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

bool conn_prove_received(struct conn *conn, const void *data, size_t bytes, size_t *offset)
{
	const struct wire_record *record;
	size_t at = *offset;

	if (!conn_unproved(conn))
		return true;
	record = wire_record_next(data, bytes, &at);
	if (!record || record->op != WIRE_OP_PROOF || record->flags || record->length != AUTH_PROOF ||
	    !auth_proof_fits(&conn->prover->key, &conn->prover->th, AUTH_CLIENT, (const void *)(record + 1))) {
		conn_prove_failed(conn);
		return false;
	}
	conn->prover->proved = true;
	pending_remove(&conn->group->unproved, &conn->unproved);
	prover_release_bytes(conn);
	conn_session_new(conn, NULL);
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
	log_warn("conn", "%s has not proved that it has key %u: it is cut off", conn->peer, conn->request.key_id);
	conn->group->stats.unproved++;
	conn_close(conn, -EACCES, "it has not proved that it has its key");
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

static bool unproved_hold_too_much(const struct conn_group *group)
{
	const struct memory_budget *budget = group->attr.own;

	return budget && budget->unproved > budget->limit / UNPROVED_PART;
}

void conn_prove_enter(struct conn *conn)
{
	struct conn_group *group = conn->group;

	if (!conn->prover)
		return;
	pending_has_place(&group->unproved, group->now); /* the first gives way at once */
	pending_add(&group->unproved, &conn->unproved, group->now);
	while (group->unproved.count > 1 && unproved_hold_too_much(group))
		pending_make_room(&group->unproved, group->now);
}
