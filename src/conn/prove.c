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
	enum auth_side side; /* of this end */
	bool proved;         /* the client, perhaps before the fabric said that the connection is established */
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
	conn->group->unproved += side == AUTH_SERVER;
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
		conn->group->unproved--;
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

/* Without memory nothing is sealed. */
static void conn_session_new(struct conn *conn)
{
	conn->session = calloc(1, sizeof(*conn->session));
	if (!conn->session)
		return;
	conn->session->side = conn->prover->side;
	auth_session(&conn->prover->key, &conn->prover->th, NULL, &conn->session->keys);
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

bool conn_prove_answer(struct conn *conn)
{
	if (!conn->prover)
		return true;
	prover_make_transcript(conn);
	if (auth_proof_fits(&conn->prover->key, &conn->prover->th, AUTH_SERVER, conn->accept.proof))
		return true;
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
		conn_session_new(conn);
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
	prover_release_bytes(conn);
	conn_session_new(conn);
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

/* Clients that know no key are not to hold what the others need. */
static bool unproved_are_too_many(const struct conn_group *group)
{
	const struct memory_budget *budget = group->attr.own;

	return group->unproved > MAX(CONN_UNPROVED, group->attr.max_connections / 2) ||
	       (budget && group->unproved > 1 && budget->unproved > budget->limit / UNPROVED_PART);
}

static bool unproved_close_oldest(struct conn_group *group)
{
	list_for_each (pos, &group->fresh) {
		struct conn *conn = container_of(pos, struct conn, fresh);

		if (!conn_unproved(conn) || conn->state >= CONN_ESTABLISHED)
			continue;
		group->stats.gave_way++;
		conn_close(conn, -ETIMEDOUT, "others came, and it had not proved its key");
		return true;
	}
	return false;
}

void conn_prove_make_room(struct conn_group *group)
{
	while (unproved_are_too_many(group) && unproved_close_oldest(group))
		;
}
