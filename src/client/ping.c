/* ping.c: the caller's half of the ping service. */
#include <rdmad/ping.h>

#include "engine/engine.h"

#include <stdlib.h>

struct rdmad_ping {
	struct engine *engine;
	struct conn *conn; /* NULL once it has ended */
	struct rdmad_ping_options options;
	struct engine_options engine_options;
	const char *transport;
	bool closed;
	unsigned forks; /* of the process when it was opened */
	int error;
	char reason[160];
	uint64_t sent, answered, received; /* received: taken by the caller */
	uint64_t facts_asked, facts_answered;
	int facts_error;
	size_t facts_len;
	char facts[WIRE_FACTS_MAX]; /* of the last answer */
	struct pong {
		uint64_t time; /* when its ping was sent, then its round trip */
		bool bad;
	} * pongs; /* ring of depth */
};

/* The bytes of ping number `number`: each word differs from its neighbours and from ping to ping. */
static uint64_t pattern_word(uint64_t number, size_t word)
{
	return (number + 1) * 0x9e3779b97f4a7c15ull + word * 0xbf58476d1ce4e5b9ull;
}

static void ping_fill(void *data, size_t size, uint64_t number)
{
	for (size_t at = 0; at < size; at += 8) {
		uint64_t word = pattern_word(number, at / 8);

		memcpy((char *)data + at, &word, MIN(size - at, sizeof(word)));
	}
}

static bool pong_matches(const void *data, size_t size, uint64_t number)
{
	for (size_t at = 0; at < size; at += 8) {
		uint64_t word = pattern_word(number, at / 8);

		if (memcmp((const char *)data + at, &word, MIN(size - at, sizeof(word))) != 0)
			return false;
	}
	return true;
}

static void ping_established(struct conn *conn)
{
	(void)conn;
}

static int ping_facts(struct rdmad_ping *ping, const struct wire_record *record, const void *body)
{
	if (ping->facts_answered == ping->facts_asked || record->id != (uint32_t)ping->facts_asked ||
	    record->status >= WIRE_STATUSES)
		return -EPROTO;
	if (record->status == WIRE_OK && !wire_facts_valid(body, record->length))
		return -EPROTO;
	ping->facts_error = wire_status_errno(record->status);
	ping->facts_len = record->status == WIRE_OK ? record->length : 0;
	memcpy(ping->facts, body, ping->facts_len);
	ping->facts_answered++;
	return 0;
}

static int ping_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct rdmad_ping *ping = conn_context(conn);
	struct pong *pong = &ping->pongs[ping->answered % ping->options.depth];

	if (record->op == WIRE_OP_FACTS)
		return ping_facts(ping, record, body);
	if (record->op != WIRE_OP_ECHO || ping->answered == ping->sent || record->id != (uint32_t)ping->answered)
		return -EPROTO;
	pong->time = time_now() - pong->time;
	pong->bad = record->length != ping->options.size ||
		    (ping->options.verify && !pong_matches(body, record->length, ping->answered));
	ping->answered++;
	return 0;
}

static void ping_closed(struct conn *conn, int error, const char *reason)
{
	struct rdmad_ping *ping = conn_context(conn);

	if (client_was_ended(error, reason))
		log_warn("ping", "the connection ended: %s", reason);
	snprintf(ping->reason, sizeof(ping->reason), "%s", reason);
	ping->conn = NULL;
	ping->closed = true;
	/* ETIMEDOUT is of a call that may be made again. */
	ping->error = error && error != -ETIMEDOUT ? error : -ENOTCONN;
	ping->answered++; /* a caller that waits checks again; nothing is received any more */
	ping->facts_answered++;
}

static const struct conn_ops ping_ops = {
	.established = ping_established,
	.record = ping_record,
	.closed = ping_closed,
};

static int check_options(const char *server, const struct rdmad_ping_options *options, struct rdmad_ping **out)
{
	log_clear_last();
	if (!server || !options || !out)
		return log_fail(-EINVAL, "ping", "rdmad_ping_open needs a server, options and a place for the handle");
	if (options->size > RDMAD_PING_SIZE_MAX)
		return log_fail(-EINVAL, "ping", "a ping of %u bytes; at most %u fit a message", options->size,
				RDMAD_PING_SIZE_MAX);
	return 0;
}

int rdmad_ping_open(const char *server, const struct rdmad_ping_options *options, struct rdmad_ping **out)
{
	struct wire_request request = {.service = WIRE_PING};
	struct rdmad_ping *ping;
	int rc = check_options(server, options, out);

	if (rc != 0)
		return rc;
	rc = -ENOMEM;
	ping = calloc(1, sizeof(*ping));
	if (!ping)
		goto fail;
	ping->forks = client_forks;
	ping->options = *options;
	engine_options_from(&options->common, &ping->engine_options);
	ping->options.depth = MIN(MAX(options->depth, 1u), ping->engine_options.credits - 1);
	ping->pongs = calloc(ping->options.depth, sizeof(ping->pongs[0]));
	if (!ping->pongs)
		goto free_ping;
	request.credits = (uint16_t)ping->engine_options.credits;
	request.count = options->count;
	request.size = options->size;
	request.message_size =
		MAX(ping->engine_options.message_size,
		    options->size + (uint32_t)(sizeof(struct wire_message) + sizeof(struct wire_record)));
	rc = client_connect(server, &ping->engine_options, NULL, &request, &ping_ops, ping, &ping->engine, &ping->conn);
	if (rc != 0)
		goto free_pongs;
	ping->transport = conn_transport(ping->conn)->name;
	engine_leave(ping->engine);
	*out = ping;
	return client_end("ping", "open", 0);

free_pongs:
	free(ping->pongs);
free_ping:
	free(ping);
fail:
	return client_end("ping", "open", rc);
}

/* Begins a public function. `whole`: what else it needs is there. */
static int ping_begin(const struct rdmad_ping *ping, bool whole)
{
	log_clear_last();
	if (likely(ping && whole))
		return client_owned("ping", ping->forks);
	return log_fail(-EINVAL, "ping", "this needs a handle, and to receive a place for the time");
}

static int ping_ended(const struct rdmad_ping *ping)
{
	log_error("ping", "the connection has ended: %s", ping->reason);
	return ping->error;
}

static int send_ping(struct rdmad_ping *ping)
{
	struct wire_record *record;

	if (!ping->conn)
		return ping_ended(ping);
	if (ping->sent - ping->received >= ping->options.depth)
		return log_fail(-EAGAIN, "ping", "%u pings are out, as many as may be: receive first",
				ping->options.depth);
	record = conn_reserve(ping->conn, ping->options.size, NULL);
	if (!record) {
		log_error("ping", "there is no room for a ping now: receive first");
		return conn_established(ping->conn) ? -EAGAIN : -ENOTCONN;
	}
	record->op = WIRE_OP_ECHO;
	record->id = (uint32_t)ping->sent;
	if (ping->options.verify)
		ping_fill(record + 1, ping->options.size, ping->sent);
	else
		memset(record + 1, 0, ping->options.size); /* not what others of the process said */
	conn_commit(ping->conn, record, ping->options.size);
	ping->pongs[ping->sent % ping->options.depth].time = time_now();
	ping->sent++;
	conn_flush(ping->conn);
	return 0;
}

int rdmad_ping_send(struct rdmad_ping *ping)
{
	int rc = ping_begin(ping, true);

	if (rc != 0)
		return rc;
	engine_enter(ping->engine);
	rc = send_ping(ping);
	engine_leave(ping->engine);
	return client_end("ping", "send", rc);
}

/* Not now: the oldest ping has no pong yet. */
static int pong_here(struct blocking *b)
{
	const struct rdmad_ping *ping = b->handle;

	if (ping->answered == ping->received && ping->conn)
		return -EAGAIN;
	blocking_done(b, 0);
	return 0;
}

static int pong_await(void *handle, uint64_t until)
{
	struct rdmad_ping *ping = handle;

	return engine_wait_change(ping->engine, &ping->answered, until);
}

static int receive_pong(struct rdmad_ping *ping, uint64_t *rtt_ns)
{
	struct blocking b = {.handle = ping, .submit = pong_here, .await = pong_await};
	struct pong *pong;
	int rc;

	if (ping->received == ping->sent)
		return log_fail(-EINVAL, "ping", "no ping is out: send one first");
	rc = engine_block(ping->engine, &b, ping->engine_options.timeout);
	if (rc == -ETIMEDOUT)
		log_error("ping", "no pong after %llu ms",
			  (unsigned long long)(ping->engine_options.timeout / TIME_MS));
	if (rc != 0)
		return rc;
	if (!ping->conn)
		return ping_ended(ping);
	pong = &ping->pongs[ping->received++ % ping->options.depth];
	*rtt_ns = pong->time;
	if (pong->bad)
		return log_fail(-EBADMSG, "ping", "pong %llu has not the bytes of its ping",
				(unsigned long long)ping->received);
	return 0;
}

int rdmad_ping_receive(struct rdmad_ping *ping, uint64_t *rtt_ns)
{
	int rc = ping_begin(ping, rtt_ns);

	if (rc != 0)
		return rc;
	engine_enter(ping->engine);
	rc = receive_pong(ping, rtt_ns);
	engine_leave(ping->engine);
	return client_end("ping", "receive", rc);
}

static int facts_here(struct blocking *b)
{
	const struct rdmad_ping *ping = b->handle;

	if (ping->facts_answered < ping->facts_asked && ping->conn)
		return -EAGAIN;
	blocking_done(b, 0);
	return 0;
}

static int facts_await(void *handle, uint64_t until)
{
	struct rdmad_ping *ping = handle;

	return engine_wait_change(ping->engine, &ping->facts_answered, until);
}

static int ask_facts(struct rdmad_ping *ping, char *text, size_t size)
{
	struct blocking b = {.handle = ping, .submit = facts_here, .await = facts_await};
	struct wire_record *record;
	int rc;

	if (!ping->conn)
		return ping_ended(ping);
	if (!(conn_granted(ping->conn)->flags & WIRE_FACTS))
		return log_fail(-EOPNOTSUPP, "ping", "the server tells nothing of itself: it is of an earlier version");
	if (ping->facts_asked != ping->facts_answered)
		return log_fail(-EALREADY, "ping", "the server has not answered the last question of this kind");
	record = conn_reserve(ping->conn, 0, NULL);
	if (!record)
		return log_fail(-EAGAIN, "ping", "there is no room for a question now: receive first");
	record->op = WIRE_OP_FACTS;
	record->id = (uint32_t)++ping->facts_asked;
	conn_commit(ping->conn, record, 0);
	conn_flush(ping->conn);
	rc = engine_block(ping->engine, &b, ping->engine_options.timeout);
	if (rc != 0)
		return rc;
	if (!ping->conn)
		return ping_ended(ping);
	if (ping->facts_error)
		return log_fail(ping->facts_error, "ping",
				"the server does not tell of itself: its file of clients does not give this one the "
				"right \"facts\"");
	if (ping->facts_len >= size)
		return log_fail(-EMSGSIZE, "ping", "the server tells %zu bytes of itself", ping->facts_len);
	memcpy(text, ping->facts, ping->facts_len);
	text[ping->facts_len] = '\0';
	return 0;
}

int rdmad_ping_facts(struct rdmad_ping *ping, char *text, size_t size)
{
	int rc = ping_begin(ping, text);

	if (rc != 0)
		return rc;
	engine_enter(ping->engine);
	rc = ask_facts(ping, text, size);
	engine_leave(ping->engine);
	return client_end("ping", "facts", rc);
}

const char *rdmad_ping_transport(const struct rdmad_ping *ping)
{
	return ping ? ping->transport : "";
}

void rdmad_ping_close(struct rdmad_ping *ping)
{
	if (!ping || client_abandoned(ping->engine, ping->forks))
		return;
	engine_enter(ping->engine);
	client_disconnect(ping->engine, ping->conn, &ping->closed);
	engine_leave(ping->engine);
	engine_release(ping->engine);
	free(ping->pongs);
	free(ping);
}
