/*
 * check_conn.c: connections from request to burial, on the soft provider, in one thread.
 *
 * A `peer` is what this test knows of one end of a connection. It sends records with rising ids
 * and expects the other's ids to rise by one, so that a loss, a double or a change of order shows
 * at the first record it concerns.
 */
#include <signal.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conn/internal.h" /* for `probes`, which the soft provider needs none of, and for limits of a device */
#include "tests/conn/conn_pair.h"
#include "tests/suite.h"
#include "fabric/soft/frame.h"

struct peer {
	struct conn *conn;
	unsigned established, writables, closed;
	int error;
	enum wire_reason refusal;
	char reason[200];
	uint32_t sent, got; /* ids */
	unsigned immediates;
	unsigned refuse; /* record() answers -EAGAIN so often */
	unsigned refused;
	int violate;     /* what record() answers once, if not 0 */
	uint32_t body;   /* bytes of each record that it sends */
	bool echo;       /* each record is answered by one of the same id */
	uint32_t answer; /* bytes of that, 0: as many as came */
	bool close_in_record, close_in_writable, close_in_established;
	bool in_callback;
	bool leave_at_once; /* of a server: the client is told so before it is established */
	unsigned left;      /* told to leave */
	unsigned ahead;     /* records that it was told of before */
};

static struct conn_pair pair;
static struct peer client, server[3]; /* servers in the order of their connections */
static unsigned servers;
static enum wire_reason refusal; /* of the next request */
static uint64_t refusal_detail;
static const struct conn_attr *own_attr; /* of the next connections */

static bool out_of_memory;  /* at the next requests ... */
static unsigned memory_for; /* ... after so many allocations */
static bool no_memory;      /* now, but for `allocations` more */
static unsigned allocations;
static int accepted;             /* conn_accept() of the last */
static uint32_t granted_message; /* at most, by the server; 0: what was asked for */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	return no_memory && allocations-- == 0 ? NULL : __real_calloc(n, size);
}

static bool admits_nobody;

/* As base/random.c finds it: without a random byte when a test wants that. */
static bool no_random;

ssize_t getrandom(void *buffer, size_t length, unsigned flags)
{
	if (!no_random)
		return syscall(SYS_getrandom, buffer, length, flags);
	errno = ENOSYS;
	return -1;
}

static void on_established(struct conn *conn)
{
	struct peer *p = conn_context(conn);

	ck_assert_uint_eq(p->established++, 0);
	ck_assert(conn_established(conn));
	if (!admits_nobody)
		conn_admit(conn);
	if (p->close_in_established)
		conn_close(conn, 0, "as it began");
}

static bool peer_send(struct peer *p, uint32_t id)
{
	struct wire_record *r = conn_reserve(p->conn, p->body, NULL);

	if (!r)
		return false;
	r->id = id;
	memset(r + 1, (int)(id & 0xff), p->body);
	conn_commit(p->conn, r, p->body);
	return true;
}

static int on_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct peer *p = conn_context(conn);

	ck_assert_uint_eq(p->closed, 0);
	ck_assert_uint_eq(p->established, 1);
	if (p->violate)
		return p->violate;
	if (p->refuse) {
		p->refuse--;
		p->refused++;
		return -EAGAIN;
	}
	ck_assert_uint_eq(record->id, p->got);
	if (record->length)
		ck_assert_uint_eq(((const uint8_t *)body)[record->length - 1], record->id & 0xff);
	if (p->echo) {
		p->body = p->answer ? p->answer : record->length;
		if (!peer_send(p, record->id))
			return -EAGAIN;
	}
	p->got++;
	if (p->close_in_record) {
		conn_close(conn, -ECANCELED, "enough");
		conn_close(conn, -EIO, "the second close does not count");
		ck_assert_uint_eq(p->closed, 0);
	}
	return 0;
}

static void on_ahead(struct conn *conn, const struct wire_record *const record[], unsigned count)
{
	struct peer *p = conn_context(conn);

	ck_assert_uint_ge(count, 2);
	ck_assert_uint_le(count, CONN_AHEAD);
	for (unsigned i = 0; i < count; i++) {
		const uint8_t *body = (const uint8_t *)(record[i] + 1);

		ck_assert_uint_eq(record[i]->id, p->got + i);
		if (record[i]->length)
			ck_assert_uint_eq(body[record[i]->length - 1], record[i]->id & 0xff);
	}
	p->ahead += count;
}

static void on_immediate(struct conn *conn, uint32_t imm)
{
	struct peer *p = conn_context(conn);

	ck_assert_uint_eq(p->established, 1);
	ck_assert_uint_eq(imm, p->immediates++);
}

static void on_writable(struct conn *conn)
{
	struct peer *p = conn_context(conn);

	p->writables++;
	if (p->close_in_writable)
		conn_close(conn, 0, "has no more to say");
}

static void on_leave(struct conn *conn, bool last)
{
	struct peer *p = conn_context(conn);

	ck_assert(!last);
	ck_assert_uint_eq(p->established, 1);
	p->left++;
}

static void on_closed(struct conn *conn, int error, const char *reason)
{
	struct peer *p = conn_context(conn);

	ck_assert_uint_eq(p->closed++, 0);
	ck_assert_ptr_nonnull(reason);
	p->error = error;
	p->refusal = conn_refusal(conn);
	snprintf(p->reason, sizeof(p->reason), "%s", reason);
	p->conn = NULL;
}

static const struct conn_ops ops = {
	.established = on_established,
	.record = on_record,
	.ahead = on_ahead,
	.immediate = on_immediate,
	.writable = on_writable,
	.leave = on_leave,
	.closed = on_closed,
};

/* The server side takes each request for the next of `server`. */
static void take(void *arg, struct fabric_request *request, const struct wire_request *wire, enum wire_reason reason)
{
	struct wire_accept grant = {.eager_max = 4095, .value_max = 12345678901, .message_size = granted_message};
	struct peer *p = &server[servers % ARRAY_SIZE(server)];

	if (refusal) {
		struct wire_reject reject = {WIRE_VERSION, (uint16_t)refusal, refusal_detail};
		uint8_t data[WIRE_REJECT_SIZE];

		wire_reject_encode(&reject, data);
		fabric_reject(request, data, sizeof(data));
		return;
	}
	if (reason != WIRE_REASON_NONE) {
		fabric_reject(request, NULL, 0);
		return;
	}
	no_memory = out_of_memory;
	allocations = memory_for;
	accepted = conn_accept(pair.server.group, request, wire, &grant, own_attr, &ops, p, pair.now, &p->conn);
	no_memory = false;
	if (accepted == 0)
		servers++;
	if (accepted == 0 && p->leave_at_once)
		conn_leave(p->conn, TIME_NEVER, false);
}

static struct conn_group_attr default_attr(void)
{
	return (struct conn_group_attr){
		.message_size = 8192,
		.message_max = 1u << 20,
		.credits = 32,
		.receives = 256,
		.max_connections = 8,
		.handshake_timeout = 5 * TIME_S,
		.memory = true,
	};
}

static void begin_with(bool unix_socket, const struct conn_group_attr *server_attr,
		       const struct conn_group_attr *client_attr)
{
	pair = (struct conn_pair){.listener.take = take};
	client = (struct peer){.body = 16};
	for (size_t i = 0; i < ARRAY_SIZE(server); i++)
		server[i] = (struct peer){.body = 16};
	servers = 0;
	refusal = WIRE_REASON_NONE;
	granted_message = 0;
	own_attr = NULL;
	conn_pair_open(&pair, unix_socket, server_attr, client_attr);
}

static void begin(bool unix_socket)
{
	struct conn_group_attr attr = default_attr();

	begin_with(unix_socket, &attr, &attr);
}

static struct wire_request kv_request(void)
{
	return (struct wire_request){
		.version = WIRE_VERSION,
		.service = WIRE_KV,
		.credits = 32,
		.message_size = 8192,
	};
}

static void connect_as(const struct wire_request *request)
{
	ck_assert_int_eq(conn_pair_connect(&pair, request, own_attr, &ops, &client, &client.conn), 0);
}

static void connect_both(const struct wire_request *request)
{
	connect_as(request);
	PAIR_UNTIL(&pair, client.established && server[0].established);
}

static void connect_default(void)
{
	struct wire_request request = kv_request();

	connect_both(&request);
}

/* Both sides close, each exactly once, and the pair is taken down. */
static void end(void)
{
	if (client.conn)
		conn_close(client.conn, 0, "the test is over");
	PAIR_UNTIL(&pair, !client.conn && !server[0].conn);
	conn_pair_rest(&pair);
	conn_pair_close(&pair);
}

static struct conn_info info_of(const struct conn *conn)
{
	struct conn_info info;

	conn_get_info(conn, &info);
	return info;
}

static struct conn_group_stats stats_of(const struct side *side)
{
	struct conn_group_stats stats;

	conn_group_get_stats(side->group, &stats);
	return stats;
}

/*
 * Handshake
 */
START_TEST(test_granted)
{
	struct conn_group_attr s = default_attr(), c = default_attr();
	struct wire_request request = kv_request();

	s.credits = 16;
	c.credits = 24;
	request.count = 77;
	request.size = 88;
	begin_with(_i, &s, &c);
	connect_both(&request);
	ck_assert_uint_eq(conn_granted(client.conn)->credits, 16);
	ck_assert_uint_eq(conn_granted(client.conn)->message_size, 8192);
	ck_assert_uint_eq(conn_granted(client.conn)->eager_max, 4095);
	ck_assert_uint_eq(conn_granted(client.conn)->value_max, 12345678901);
	ck_assert_uint_eq(conn_granted(client.conn)->service, WIRE_KV);
	ck_assert_uint_eq(conn_request(server[0].conn)->credits, 24); /* cut to the group's */
	ck_assert_uint_eq(conn_request(server[0].conn)->count, 77);
	ck_assert_uint_eq(conn_request(server[0].conn)->size, 88);
	ck_assert_mem_eq(conn_request(server[0].conn)->nonce, conn_request(client.conn)->nonce, WIRE_NONCE);
	ck_assert_str_eq(info_of(client.conn).transport, _i || conn_pair_memory ? "shm" : "tcp");
	ck_assert_str_eq(info_of(client.conn).state, "established");
	ck_assert_str_eq(info_of(server[0].conn).service, "kv");
	end();
	ck_assert_int_eq(client.error, 0);
	ck_assert_str_eq(client.reason, "the test is over");
	ck_assert_int_eq(server[0].error, 0);
	ck_assert_str_eq(server[0].reason, "disconnected by the peer");
}
END_TEST

/* Each refusal reaches the caller in words, once, without established(). */
START_TEST(test_refusals)
{
	static const struct {
		enum wire_reason reason;
		uint64_t detail;
		int error;
		const char *says;
	} cases[] = {
		{WIRE_REASON_BAD_REQUEST, 0, -EPROTO, "did not understand"},
		{WIRE_REASON_VERSION, 1, -EPROTONOSUPPORT, "protocol version"},
		{WIRE_REASON_SERVICE, WIRE_KV, -EOPNOTSUPP, "service kv"},
		{WIRE_REASON_CONNECTIONS, 100, -EUSERS, "100"},
		{WIRE_REASON_MESSAGE_SIZE, 4608, -EMSGSIZE, "4608"},
		{WIRE_REASON_CREDITS, 2, -EINVAL, "credits"},
		{WIRE_REASON_KEY, 0, -EACCES, "key"},
		{WIRE_REASON_DRAINING, 0, -ESHUTDOWN, "shutting down"},
		{WIRE_REASON_RESOURCES, 0, -ENOBUFS, "out of memory"},
		{WIRE_REASON_SESSIONS, 8, -EAGAIN, "all the gpu sessions it allows, 8"},
		{WIRE_REASON_PACKET, 1024ull << 32 | 4096, -ENETUNREACH,
		 "1024 bytes at most, and this machine's sends 4096"},
		{WIRE_REASON_VALUES, 4095, -EFBIG, "values of 4095 bytes at most"},
		{WIRE_REASONS + 5, 0, -ECONNREFUSED, "unknown to this program"},
	};
	struct wire_request request = kv_request();

	begin(false);
	refusal = cases[_i].reason;
	refusal_detail = cases[_i].detail;
	connect_as(&request);
	PAIR_UNTIL(&pair, client.closed);
	ck_assert_uint_eq(client.established, 0);
	ck_assert_int_eq(client.error, cases[_i].error);
	ck_assert_uint_eq(client.refusal, MIN(cases[_i].reason, WIRE_REASONS));
	ck_assert_msg(strstr(client.reason, cases[_i].says) && !strncmp(client.reason, "refused: ", 9), "%s",
		      client.reason);
	ck_assert_uint_eq(stats_of(&pair.client).connections, 0);
	end();
}
END_TEST

START_TEST(test_too_many_connections)
{
	struct conn_group_attr s = default_attr(), c = default_attr();
	struct wire_request request = kv_request();

	s.max_connections = 0;
	begin_with(false, &s, &c);
	connect_as(&request);
	PAIR_UNTIL(&pair, client.closed);
	ck_assert_int_eq(client.error, -EUSERS);
	ck_assert_uint_eq(client.refusal, WIRE_REASON_CONNECTIONS);
	ck_assert_ptr_nonnull(strstr(client.reason, "all the connections it allows, 0"));
	ck_assert_uint_eq(stats_of(&pair.server).refused, 1);
	ck_assert_uint_eq(stats_of(&pair.client).closed, 0); /* it was not accepted either */
	end();
}
END_TEST

/* A server without memory says so, and not that it has too many connections: for the connection or for its endpoint. */
START_TEST(test_no_memory_for_a_connection)
{
	struct wire_request request = kv_request();

	begin(false);
	out_of_memory = true;
	memory_for = (unsigned)_i;
	connect_as(&request);
	PAIR_UNTIL(&pair, client.closed);
	out_of_memory = false;
	ck_assert_int_eq(accepted, -ENOMEM);
	ck_assert_int_eq(client.error, -ENOBUFS);
	ck_assert_uint_eq(client.refusal, WIRE_REASON_RESOURCES);
	ck_assert_msg(strstr(client.reason, "out of memory"), "%s", client.reason);
	ck_assert_uint_eq(stats_of(&pair.server).refused, 1);
	end();
}
END_TEST

/* What the device bounds is no limit of the configuration: another transport may have room. */
START_TEST(test_device_bound)
{
	struct conn_group_attr s = default_attr(), c = default_attr();
	struct wire_request request = kv_request();

	s.max_connections = UINT32_MAX;
	begin_with(false, &s, &c);
	ck_assert_uint_lt(pair.server.group->attr.max_connections, UINT32_MAX);
	pair.server.group->attr.max_connections = 0;
	connect_as(&request);
	PAIR_UNTIL(&pair, client.closed);
	ck_assert_uint_eq(client.refusal, WIRE_REASON_RESOURCES);
	end();
}
END_TEST

/* As rdmad has them unless it is told otherwise: one worker is enough for ten thousand clients. */
START_TEST(test_sockets_are_for_many_connections)
{
	struct conn_group_attr s = default_attr(), c = default_attr();

	s.max_connections = 10000;
	s.transfers = 16;
	s.receives = 1024;
	begin_with(false, &s, &c);
	ck_assert_uint_eq(pair.server.group->attr.max_connections, 10000);
	end();
}
END_TEST

START_TEST(test_message_size_beyond_the_server)
{
	struct conn_group_attr s = default_attr(), c = default_attr();
	struct wire_request request = kv_request();

	s.message_max = 65536;
	request.message_size = 65537;
	begin_with(false, &s, &c);
	connect_as(&request);
	PAIR_UNTIL(&pair, client.closed);
	ck_assert_int_eq(client.error, -EMSGSIZE);
	ck_assert_ptr_nonnull(strstr(client.reason, "65536 bytes"));
	end();
}
END_TEST

/* A client that asks for more than the server wants to give is not refused, and uses what it was given. */
START_TEST(test_message_size_is_cut)
{
	struct conn_group_attr s = default_attr(), c = default_attr();
	struct wire_request request = kv_request();
	uint32_t room;

	s.message_max = 8192;
	c.message_size = 32768;
	request.message_size = 0; /* the client's buffers */
	begin_with(_i, &s, &c);
	granted_message = 8192;
	connect_both(&request);
	ck_assert_uint_eq(conn_request(server[0].conn)->message_size, 32768);
	ck_assert_uint_eq(conn_granted(client.conn)->message_size, 8192);
	ck_assert_ptr_nonnull(conn_reserve(client.conn, 0, &room));
	ck_assert_uint_eq(room, WIRE_BODY_MAX(8192));
	ck_assert_uint_eq(stats_of(&pair.server).own_buffer_bytes, 0);
	end();
}
END_TEST

START_TEST(test_nobody_listens)
{
	struct wire_request request = kv_request();

	begin(_i);
	fabric_listener_close(pair.listener.listener);
	pair.listener.listener = NULL;
	connect_as(&request);
	PAIR_UNTIL(&pair, client.closed);
	ck_assert_int_eq(client.error, _i ? -ENOENT : -ECONNREFUSED);
	ck_assert_uint_eq(client.established, 0);
	ck_assert_uint_eq(stats_of(&pair.client).connections, 0);
	end();
}
END_TEST

/* Nobody answers: the caller's clock decides. */
START_TEST(test_handshake_timeout)
{
	struct wire_request request = kv_request();

	begin(false);
	connect_as(&request);
	ck_assert_uint_eq(conn_group_deadline(pair.client.group), pair.now + 5 * TIME_S);
	pair.now += 5 * TIME_S - 1;
	conn_group_progress(pair.client.group, pair.now);
	ck_assert_uint_eq(client.closed, 0);
	pair.now++;
	conn_group_progress(pair.client.group, pair.now);
	ck_assert_uint_eq(client.closed, 1);
	ck_assert_int_eq(client.error, -ETIMEDOUT);
	ck_assert_uint_eq(client.established, 0);
	end();
}
END_TEST

/*
 * Records and messages
 */
static void send_some(struct peer *p, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		ck_assert(peer_send(p, p->sent++));
}

/* What was committed before one flush is one message. */
START_TEST(test_packing)
{
	begin(_i);
	connect_default();
	send_some(&client, 100);
	ck_assert_uint_eq(info_of(client.conn).messages_out, 0);
	ck_assert(!conn_idle(client.conn));
	conn_flush(client.conn);
	ck_assert_uint_eq(info_of(client.conn).messages_out, 1);
	ck_assert_uint_eq(info_of(client.conn).records_out, 100);
	conn_flush(client.conn); /* nothing to send, nothing is sent */
	ck_assert_uint_eq(info_of(client.conn).messages_out, 1);
	PAIR_UNTIL(&pair, server[0].got == 100);
	ck_assert_uint_eq(info_of(server[0].conn).messages_in, 1);
	ck_assert_uint_eq(info_of(server[0].conn).records_in, 100);
	ck_assert_uint_eq(info_of(server[0].conn).bytes_in, info_of(client.conn).bytes_out);
	PAIR_UNTIL(&pair, conn_idle(client.conn));
	end();
}
END_TEST

/* The turn sends what was committed, without a flush. */
START_TEST(test_turn_flushes)
{
	begin(false);
	connect_default();
	send_some(&client, 1);
	PAIR_UNTIL(&pair, server[0].got == 1);
	end();
}
END_TEST

/* Records that fill a message go on in the next: 4 of 2000 bytes each in 8192. */
START_TEST(test_messages_roll_over)
{
	begin(false);
	connect_default();
	client.body = 2000;
	send_some(&client, 40);
	conn_flush(client.conn);
	ck_assert_uint_eq(info_of(client.conn).messages_out, 10);
	PAIR_UNTIL(&pair, server[0].got == 40);
	ck_assert_uint_eq(info_of(server[0].conn).messages_in, 10);
	end();
}
END_TEST

/* Of the records of one message their owner is told a few at a time, as long as it is more than one; and not again at each try. */
START_TEST(test_look_ahead)
{
	begin(false);
	connect_default();
	send_some(&client, 1);
	PAIR_UNTIL(&pair, server[0].got == 1);
	ck_assert_uint_eq(server[0].ahead, 0);
	send_some(&client, 2 * CONN_AHEAD + 1);
	PAIR_UNTIL(&pair, server[0].got == 2 * CONN_AHEAD + 2);
	ck_assert_uint_eq(server[0].ahead, 2 * CONN_AHEAD);
	server[0].refuse = 50;
	send_some(&client, 2);
	PAIR_UNTIL(&pair, server[0].got == 2 * CONN_AHEAD + 4);
	ck_assert_uint_le(server[0].ahead, 2 * CONN_AHEAD + 4);
	end();
}
END_TEST

/* A record may take all of a message, and not one byte more. */
START_TEST(test_longest_record)
{
	uint32_t room = 0;

	begin(false);
	connect_default();
	client.body = WIRE_BODY_MAX(8192);
	ck_assert_ptr_null(conn_reserve(client.conn, client.body + 1, &room));
	ck_assert_ptr_null(conn_reserve(client.conn, UINT32_MAX, &room));
	send_some(&client, 3);
	ck_assert_ptr_nonnull(conn_reserve(client.conn, 0, &room));
	ck_assert_uint_eq(room, WIRE_BODY_MAX(8192));
	PAIR_UNTIL(&pair, server[0].got == 3);
	end();
}
END_TEST

/* Reserved and not committed: nothing of it is sent. */
START_TEST(test_reserve_without_commit)
{
	begin(false);
	connect_default();
	ck_assert_ptr_nonnull(conn_reserve(client.conn, 100, NULL));
	conn_flush(client.conn);
	send_some(&client, 1);
	ck_assert_ptr_nonnull(conn_reserve(client.conn, 100, NULL));
	PAIR_UNTIL(&pair, server[0].got == 1);
	conn_pair_rest(&pair);
	ck_assert_uint_eq(info_of(client.conn).messages_out, 1);
	ck_assert_uint_eq(info_of(client.conn).records_out, 1);
	end();
}
END_TEST

START_TEST(test_no_reserve_before_established)
{
	struct wire_request request = kv_request();

	begin(false);
	connect_as(&request);
	ck_assert_ptr_null(conn_reserve(client.conn, 8, NULL));
	PAIR_UNTIL(&pair, client.established);
	ck_assert_ptr_nonnull(conn_reserve(client.conn, 8, NULL));
	end();
	ck_assert_uint_eq(client.closed, 1);
}
END_TEST

/*
 * Credits
 */
static void begin_credits(bool unix_socket, uint16_t server_credits, uint16_t client_credits)
{
	struct conn_group_attr s = default_attr(), c = default_attr();
	struct wire_request request = kv_request();

	s.credits = server_credits;
	c.credits = client_credits;
	begin_with(unix_socket, &s, &c);
	request.credits = client_credits;
	connect_both(&request);
}

/* Send as much as goes, a message per record. */
static void send_what_goes(struct peer *p, uint32_t most)
{
	while (p->sent < most && peer_send(p, p->sent)) {
		p->sent++;
		conn_flush(p->conn);
	}
}

START_TEST(test_slow_receiver)
{
	begin_credits(_i, 4, 4);
	server[0].refuse = 1000;
	send_what_goes(&client, 1000);
	ck_assert_uint_eq(client.sent, 4);
	ck_assert_ptr_null(conn_reserve(client.conn, 8, NULL));
	for (unsigned i = 0; i < 100; i++)
		conn_pair_turn(&pair);
	ck_assert_uint_gt(server[0].refused, 10);
	ck_assert_uint_eq(server[0].got, 0);
	ck_assert_uint_eq(client.writables, 0);
	server[0].refuse = 0;
	PAIR_UNTIL(&pair, client.writables);
	ck_assert_uint_ge(server[0].got, 1);
	ck_assert_ptr_nonnull(conn_reserve(client.conn, 8, NULL));
	PAIR_UNTIL(&pair, server[0].got == 4);
	end();
}
END_TEST

#define MANY ((uint32_t)suite_part(20000))

/* Both send as fast as the other lets them: nothing is lost and they never wait for each other
 * for ever, and with all said they fall silent. */
START_TEST(test_both_directions)
{
	static const struct {
		uint16_t server, client;
	} cases[] = {{2, 2}, {2, 3}, {4, 3}, {32, 2}};
	uint64_t until = conn_pair_patience();

	begin_credits(_i % 2, cases[_i].server, cases[_i].client);
	while (server[0].got < MANY || client.got < MANY) {
		send_what_goes(&client, MANY);
		send_what_goes(&server[0], MANY);
		conn_pair_turn(&pair);
		ck_assert_msg(time_now() < until, "%u and %u of %u", client.got, server[0].got, MANY);
	}
	conn_pair_rest(&pair);
	end();
	ck_assert_uint_eq(client.got, MANY);
	ck_assert_uint_eq(server[0].got, MANY);
}
END_TEST

/* The same in questions and answers: the answerer parks what it has no room to answer. */
START_TEST(test_echo_with_few_credits)
{
	uint64_t until = conn_pair_patience();

	begin_credits(_i, WIRE_CREDITS_MIN, WIRE_CREDITS_MIN);
	server[0].echo = true;
	client.body = 3000;
	while (client.got < MANY / 4) {
		send_what_goes(&client, MANY / 4);
		conn_pair_turn(&pair);
		ck_assert(time_now() < until);
	}
	conn_pair_rest(&pair);
	end();
}
END_TEST

/* One request message whose answers take many times the credits there are, all of which the asker
 * has used for requests: it still gives back those of the answers. */
START_TEST(test_answers_beyond_all_credits)
{
	begin_credits(_i, 4, 4);
	server[0].echo = true;
	server[0].answer = 7000;
	client.body = 8;
	while (peer_send(&client, client.sent))
		client.sent++;
	conn_flush(client.conn);
	ck_assert_uint_gt(client.sent, 1000);
	PAIR_UNTIL(&pair, client.got == client.sent);
	conn_pair_rest(&pair);
	end();
}
END_TEST

/* Two with the fewest credits fall silent after one record. */
START_TEST(test_silence)
{
	begin_credits(_i, WIRE_CREDITS_MIN, WIRE_CREDITS_MIN);
	send_some(&client, 1);
	PAIR_UNTIL(&pair, server[0].got == 1);
	conn_pair_rest(&pair);
	ck_assert_uint_le(info_of(client.conn).messages_out, 4);
	end();
}
END_TEST

/* Both can still send after any rest, in any order. */
START_TEST(test_credits_after_rest)
{
	begin_credits(_i, WIRE_CREDITS_MIN, WIRE_CREDITS_MIN);
	for (unsigned i = 0; i < 64; i++) {
		struct peer *p = i * 0x9e3779b9u >> 31 ? &client : &server[0];

		send_some(p, 1);
		conn_pair_rest(&pair);
	}
	ck_assert_uint_eq(client.got + server[0].got, 64);
	end();
}
END_TEST

/*
 * -EAGAIN and parked messages
 */
START_TEST(test_parked_in_order)
{
	begin(_i);
	connect_default();
	server[0].refuse = 50;
	for (unsigned i = 0; i < 10; i++) {
		send_some(&client, 7);
		conn_flush(client.conn);
	}
	PAIR_UNTIL(&pair, server[0].got == 70);
	ck_assert_uint_eq(server[0].refused, 50);
	ck_assert_uint_eq(info_of(server[0].conn).records_in, 70);
	ck_assert_uint_eq(info_of(server[0].conn).messages_in, 10);
	end();
}
END_TEST

/* -EAGAIN in the middle of a message: the records before it do not come again. */
START_TEST(test_parked_in_the_middle)
{
	begin(false);
	connect_default();
	server[0].echo = true;
	client.body = 700; /* 11 a message; the answers use up the credits */
	for (unsigned i = 0; i < 31; i++)
		send_some(&client, 11);
	PAIR_UNTIL(&pair, client.got == 31 * 11);
	end();
}
END_TEST

START_TEST(test_closed_while_parked)
{
	begin(false);
	connect_default();
	server[0].refuse = UINT32_MAX;
	send_some(&client, 5);
	PAIR_UNTIL(&pair, server[0].refused > 2);
	end();
	ck_assert_uint_eq(server[0].got, 0);
}
END_TEST

/* A parked record that breaks the protocol ends it like one that was not parked. */
START_TEST(test_violation_while_parked)
{
	begin(false);
	connect_default();
	server[0].refuse = 3;
	send_some(&client, 5);
	PAIR_UNTIL(&pair, server[0].refused == 3);
	server[0].violate = -EPROTO;
	PAIR_UNTIL(&pair, server[0].closed);
	ck_assert_int_eq(server[0].error, -EPROTO);
	ck_assert_uint_eq(stats_of(&pair.server).violations, 1);
	end();
}
END_TEST

/*
 * Closing
 */
START_TEST(test_close_while_connecting)
{
	struct wire_request request = kv_request();

	begin(_i);
	connect_as(&request);
	conn_close(client.conn, -ECANCELED, "changed its mind");
	ck_assert_uint_eq(client.closed, 0); /* not inside conn_close */
	ck_assert_uint_le(conn_group_deadline(pair.client.group), pair.now);
	conn_pair_rest(&pair);
	ck_assert_uint_eq(client.closed, 1);
	ck_assert_int_eq(client.error, -ECANCELED);
	ck_assert_str_eq(client.reason, "changed its mind");
	end();
}
END_TEST

static void take_and_close(void *arg, struct fabric_request *request, const struct wire_request *wire,
			   enum wire_reason reason)
{
	take(arg, request, wire, reason);
	conn_close(server[0].conn, 0, "not today");
	ck_assert_uint_eq(server[0].closed, 0);
}

START_TEST(test_close_while_accepting)
{
	struct wire_request request = kv_request();

	begin(_i);
	pair.listener.take = take_and_close;
	connect_as(&request);
	PAIR_UNTIL(&pair, client.closed && server[0].closed);
	ck_assert_str_eq(server[0].reason, "not today");
	ck_assert_uint_eq(server[0].established, 0);
	end();
}
END_TEST

START_TEST(test_close_established)
{
	begin(_i);
	connect_default();
	send_some(&client, 3);
	conn_flush(client.conn);
	conn_close(client.conn, 0, "done");
	conn_close(client.conn, -EIO, "twice");
	ck_assert_ptr_null(conn_reserve(client.conn, 8, NULL));
	ck_assert(!conn_established(client.conn));
	PAIR_UNTIL(&pair, client.closed && server[0].closed);
	ck_assert_int_eq(client.error, 0);
	ck_assert_str_eq(client.reason, "done");
	ck_assert_uint_eq(server[0].got, 3); /* what was posted is delivered */
	end();
}
END_TEST

/* However many messages come with the end, which overtakes none of them: more than the server takes from its queue at a time. */
START_TEST(test_end_behind_messages)
{
	struct conn_group_attr attr = default_attr();
	struct wire_request request = kv_request();

	attr.credits = 200;
	attr.receives = 512;
	request.credits = 200;
	begin_with(_i, &attr, &attr);
	connect_both(&request);
	pair.server_stops = true;
	for (unsigned i = 0; i < 180; i++) {
		send_some(&client, 1);
		conn_flush(client.conn);
	}
	conn_close(client.conn, 0, "done");
	for (unsigned i = 0; i < 1000; i++)
		conn_pair_turn(&pair);
	pair.server_stops = false;
	PAIR_UNTIL(&pair, client.closed && server[0].closed);
	ck_assert_uint_eq(server[0].got, 180);
	ck_assert_int_eq(server[0].error, 0);
	end();
}
END_TEST

/* A client that was only accepted when the server began to leave hears of it all the same, once. */
START_TEST(test_leave_while_accepting)
{
	begin(_i);
	server[0].leave_at_once = true;
	connect_default();
	PAIR_UNTIL(&pair, client.left);
	conn_leave(server[0].conn, TIME_NEVER, false);
	conn_pair_rest(&pair);
	ck_assert_uint_eq(client.left, 1);
	end();
}
END_TEST

START_TEST(test_close_in_callbacks)
{
	begin(false);
	client.close_in_established = _i == 0;
	server[0].close_in_record = _i == 1;
	connect_default();
	if (_i == 1) {
		send_some(&client, 4);
		conn_flush(client.conn);
	}
	if (_i == 2) {
		while (peer_send(&client, client.sent++))
			;
		client.close_in_writable = true;
	}
	PAIR_UNTIL(&pair, client.closed && server[0].closed);
	if (_i == 1) {
		ck_assert_uint_eq(server[0].got, 1); /* no record after the close */
		ck_assert_int_eq(server[0].error, -ECANCELED);
		ck_assert_str_eq(server[0].reason, "enough");
	}
	end();
}
END_TEST

/* Each connection counts once: one that was seen and ended, one that ended before it was seen, one that stays. */
START_TEST(test_statistics_in_steps)
{
	struct wire_request request = kv_request();
	struct peer clients[3];
	struct conn_group_stats all;

	begin(false);
	for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
		clients[i] = (struct peer){.body = 16};
		ck_assert_int_eq(conn_pair_connect(&pair, &request, NULL, &ops, &clients[i], &clients[i].conn), 0);
		PAIR_UNTIL(&pair, clients[i].established && server[i].established);
		send_some(&clients[i], 2);
		PAIR_UNTIL(&pair, server[i].got == 2);
	}
	ck_assert_uint_eq(stats_of(&pair.server).records_in, 6);
	ck_assert(!conn_group_step_stats(pair.server.group, 1, NULL, NULL, &all));
	for (size_t i = 0; i < 2; i++) {
		conn_close(clients[i].conn, 0, "done");
		PAIR_UNTIL(&pair, server[i].closed);
	}
	ck_assert(conn_group_step_stats(pair.server.group, 1, NULL, NULL, &all));
	ck_assert_uint_eq(all.records_in, 6);
	ck_assert_uint_eq(all.connections, 1);
	ck_assert_uint_eq(all.bytes_in, stats_of(&pair.server).bytes_in);
	ck_assert(conn_group_step_stats(pair.server.group, 2, NULL, NULL, &all)); /* another walk */
	ck_assert_uint_eq(all.records_in, 6);
	conn_close(clients[2].conn, 0, "done");
	PAIR_UNTIL(&pair, clients[0].closed && clients[1].closed && clients[2].closed && server[2].closed);
	end();
}
END_TEST

/* The disconnect of a peer that does not answer has a deadline. */
START_TEST(test_close_patience)
{
	begin(_i);
	connect_default();
	pair.server_stops = true;
	conn_close(client.conn, 0, "done");
	for (unsigned i = 0; i < 100 && !client.closed; i++) {
		pair.now = MAX(pair.now, MIN(conn_group_deadline(pair.client.group), pair.now + TIME_S));
		conn_pair_turn(&pair);
	}
	ck_assert_uint_eq(client.closed, 1);
	pair.server_stops = false;
	end();
}
END_TEST

/* A group that is destroyed tells each of its connections, whatever its state. */
START_TEST(test_group_destroyed)
{
	begin(false);
	connect_default();
	if (_i == 1)
		send_some(&client, 3);
	if (_i == 2)
		conn_close(client.conn, 0, "done");
	conn_pair_close(&pair);
	ck_assert_uint_eq(client.closed, 1);
	ck_assert_uint_eq(server[0].closed, 1);
}
END_TEST

static void connect_and_close(unsigned cycle)
{
	client = (struct peer){.body = 16};
	server[0] = (struct peer){.body = 16};
	servers = 0;
	connect_default();
	send_some(&client, 5);
	if (cycle % 3)
		PAIR_UNTIL(&pair, server[0].got == 5);
	conn_close(cycle % 2 ? client.conn : server[0].conn, 0, "cycle");
	PAIR_UNTIL(&pair, client.closed && server[0].closed);
}

START_TEST(test_thousand_cycles)
{
	struct conn_group_stats before, after;
	size_t fds;

	begin(_i);
	connect_and_close(0);
	conn_pair_rest(&pair);
	fds = count_descriptors();
	before = stats_of(&pair.server);
	for (unsigned i = 0; i < 1000; i++)
		connect_and_close(i);
	conn_pair_rest(&pair);
	after = stats_of(&pair.server);
	ck_assert_uint_eq(count_descriptors(), fds);
	ck_assert_uint_eq(after.connections, 0);
	ck_assert_uint_eq(after.closed, before.closed + 1000);
	ck_assert_uint_eq(after.buffers, before.buffers);
	ck_assert_uint_eq(after.buffers_in_use, before.buffers_in_use);
	end();
}
END_TEST

/*
 * Time
 */
/* A peer that takes its time, and a server that asks after its host when nothing came for a second. */
static struct evil *begin_watched(bool probes)
{
	struct conn_group_attr attr = default_attr();
	struct wire_request request = kv_request();
	uint8_t data[WIRE_REQUEST_SIZE];
	struct evil *evil;

	attr.keepalive = TIME_S;
	begin_with(false, &attr, &attr);
	evil = evil_new(&pair);
	wire_request_encode(&request, data);
	evil_connect(&pair, evil, data, sizeof(data));
	PAIR_UNTIL(&pair, server[0].established);
	ck_assert(!server[0].conn->probe.used);
	server[0].conn->probe.used = probes;
	conn_timer_set(server[0].conn, pair.now);
	return evil;
}

static void end_watched(struct evil *evil)
{
	fabric_disconnect(evil->endpoint);
	PAIR_UNTIL(&pair, server[0].closed);
	evil_free(evil);
	end();
}

START_TEST(test_keepalive_probe)
{
	struct evil *evil = begin_watched(true);
	uint64_t until = conn_pair_patience();

	for (unsigned i = 0; i < 5; i++) {
		pair.now += TIME_S - 1;
		conn_pair_turn(&pair);
		ck_assert(conn_idle(server[0].conn));
		pair.now++;
		conn_pair_turn(&pair);
		ck_assert(!conn_idle(server[0].conn)); /* the probe is out */
		while (!conn_idle(server[0].conn)) {
			evil_turn(evil);
			conn_pair_turn(&pair);
			ck_assert(time_now() < until);
		}
	}
	ck_assert_uint_eq(server[0].closed, 0);
	end_watched(evil);
}
END_TEST

START_TEST(test_keepalive_dead_host)
{
	struct evil *evil = begin_watched(true);

	pair.now += TIME_S;
	conn_pair_turn(&pair);
	pair.now += TIME_S - 1;
	conn_pair_turn(&pair);
	ck_assert(conn_established(server[0].conn));
	pair.now++;
	conn_pair_turn(&pair);
	ck_assert(!server[0].conn || !conn_established(server[0].conn));
	PAIR_UNTIL(&pair, (evil_turn(evil), server[0].closed));
	ck_assert_int_eq(server[0].error, -ETIMEDOUT);
	ck_assert_str_eq(server[0].reason, "the peer's host does not answer");
	evil_free(evil);
	end();
}
END_TEST

/* After a long absence a side asks first and judges later. */
START_TEST(test_keepalive_after_absence)
{
	struct evil *evil = begin_watched(true);

	pair.now += 100 * TIME_S;
	for (unsigned i = 0; i < 5; i++)
		conn_pair_turn(&pair);
	ck_assert(conn_established(server[0].conn));
	ck_assert(!conn_idle(server[0].conn));
	PAIR_UNTIL(&pair, (evil_turn(evil), conn_idle(server[0].conn)));
	pair.now += TIME_S - 1;
	conn_pair_turn(&pair);
	ck_assert(conn_idle(server[0].conn));
	end_watched(evil);
}
END_TEST

/* Over software the peer's program would have to answer: one that computes for a minute is not
 * dead, and the provider itself notices a dead host. */
START_TEST(test_keepalive_busy_program)
{
	struct evil *evil = begin_watched(false);

	for (unsigned i = 0; i < 60; i++) {
		pair.now += TIME_S;
		conn_pair_turn(&pair);
	}
	ck_assert(conn_established(server[0].conn));
	end_watched(evil);
}
END_TEST

static void begin_stall(void)
{
	struct conn_group_attr s = default_attr(), c = default_attr();
	struct wire_request request = kv_request();

	s.stall_timeout = 10 * TIME_S;
	begin_with(false, &s, &c);
	request.credits = 4;
	connect_both(&request);
}

/* The client takes no answers: those to its requests, or what the server says of its own. */
START_TEST(test_stall)
{
	begin_stall();
	if (_i == 0) {
		server[0].echo = true;
		server[0].answer = 5000;
		pair.client_stops = true;
		for (client.sent = 0; client.sent < 10; client.sent++)
			ck_assert(peer_send(&client, client.sent));
		conn_flush(client.conn);
		for (unsigned i = 0; i < 10; i++)
			conn_pair_turn(&pair);
		ck_assert_uint_lt(server[0].got, client.sent);
	} else {
		pair.client_stops = true;
		send_what_goes(&server[0], 10);
	}
	for (unsigned i = 0; i < 9; i++) {
		pair.now += TIME_S;
		conn_pair_turn(&pair);
	}
	ck_assert(conn_established(server[0].conn));
	ck_assert_uint_le(conn_group_deadline(pair.server.group), pair.now + TIME_S);
	pair.now += TIME_S;
	conn_pair_turn(&pair);
	ck_assert(!server[0].conn || !conn_established(server[0].conn));
	pair.client_stops = false;
	PAIR_UNTIL(&pair, client.closed && server[0].closed);
	ck_assert_int_eq(server[0].error, -ETIMEDOUT);
	ck_assert_ptr_nonnull(strstr(server[0].reason, "takes no answers since 10 s"));
	end();
}
END_TEST

/* A client that is slow but takes something in time is never cut off, though the server always
 * has more than it takes. */
START_TEST(test_slow_is_not_stalled)
{
	uint64_t until = conn_pair_patience();

	begin_stall();
	pair.client_stops = true;
	server[0].echo = _i == 0;
	client.body = 5000;
	for (unsigned i = 0; i < 30; i++) {
		uint32_t before = client.got;

		/* The client takes one message or two in three seconds. */
		while (client.got == before) {
			send_what_goes(_i ? &server[0] : &client, UINT32_MAX);
			conn_pair_turn(&pair);
			conn_group_progress(pair.client.group, pair.now);
			ck_assert(time_now() < until);
		}
		conn_pair_turn(&pair);
		pair.now += 3 * TIME_S;
		conn_pair_turn(&pair);
		ck_assert_msg(server[0].conn && conn_established(server[0].conn), "at turn %u", i);
	}
	pair.client_stops = false;
	end();
}
END_TEST

/*
 * Violations
 */
static size_t message(uint8_t *out, uint32_t length, uint16_t credits, uint32_t record, size_t body)
{
	struct wire_message m = {.length = length, .credits = credits};
	struct wire_record r = {.length = record};

	memset(out, 0, sizeof(m) + sizeof(r) + body);
	memcpy(out, &m, sizeof(m));
	memcpy(out + sizeof(m), &r, sizeof(r));
	return sizeof(m) + sizeof(r) + body;
}

static const struct {
	size_t bytes; /* sent, of the message below */
	uint32_t length;
	uint16_t credits;
	uint32_t record;
	unsigned times;
	int error;
	const char *says;
} violations[] = {
	{32, 33, 0, 8, 1, -EBADMSG, "the message's length"},
	{32, 31, 0, 8, 1, -EBADMSG, "the message's length"},
	{32, 0, 0, 8, 1, -EBADMSG, "the message's length"},
	{4, 4, 0, 8, 1, -EBADMSG, "the message's length"},
	{0, 0, 0, 0, 1, -EBADMSG, "the message's length"},
	{32, 32, 0, 9, 1, -EBADMSG, "a record's length"},
	{32, 32, 0, UINT32_MAX, 1, -EBADMSG, "a record's length"},
	{23, 23, 0, 0, 1, -EBADMSG, "a record's length"},
	{9, 9, 0, 0, 1, -EBADMSG, "a record's length"},
	{32, 32, 1, 8, 1, -EPROTO, "more credits returned"},
	{32, 32, UINT16_MAX, 8, 1, -EPROTO, "more credits returned"},
	{8, 8, 3, 0, 1, -EPROTO, "more credits returned"},
	{8, 8, 0, 0, 1, -EPROTO, "a message of nothing"},
	{32, 32, 0, 8, 33, -EPROTO, "beyond its credits"},
	{8200, 8200, 0, 8176, 1, -EIO, "this side"},
};

static struct evil *begin_evil(void)
{
	struct wire_request request = kv_request();
	uint8_t data[WIRE_REQUEST_SIZE];
	struct evil *evil;

	begin(false);
	connect_default();
	evil = evil_new(&pair);
	wire_request_encode(&request, data);
	evil_connect(&pair, evil, data, sizeof(data));
	PAIR_UNTIL(&pair, server[1].established);
	server[0].echo = true;
	return evil;
}

/* The other connection of the group does not notice. */
static void end_evil(struct evil *evil)
{
	uint64_t until = conn_pair_patience();

	while (!server[1].closed || !evil->disconnected) {
		conn_pair_turn(&pair);
		evil_turn(evil);
		ck_assert(time_now() < until);
	}
	send_some(&client, 100);
	PAIR_UNTIL(&pair, client.got == 100);
	evil_free(evil);
	end();
}

START_TEST(test_violations)
{
	struct evil *evil = begin_evil();
	static uint8_t data[16384];

	message(data, violations[_i].length, violations[_i].credits, violations[_i].record, 8192);
	if (violations[_i].times > 1)
		server[1].refuse = UINT32_MAX;
	for (unsigned i = 0; i < violations[_i].times; i++) {
		ck_assert_uint_eq(server[1].closed, 0);
		evil_send(&pair, evil, data, violations[_i].bytes);
	}
	end_evil(evil);
	ck_assert_int_eq(server[1].error, violations[_i].error);
	ck_assert_msg(strstr(server[1].reason, violations[_i].says), "%s", server[1].reason);
}
END_TEST

/* All its credits are a peer's right. */
START_TEST(test_all_credits_used)
{
	struct evil *evil = begin_evil();
	uint8_t data[64];
	size_t len = message(data, 32, 0, 8, 8);

	server[1].refuse = UINT32_MAX;
	for (unsigned i = 0; i < 32; i++)
		evil_send(&pair, evil, data, len);
	ck_assert_uint_eq(server[1].closed, 0);
	ck_assert_uint_eq(info_of(server[1].conn).messages_in, 32);
	server[1].violate = -EPROTO;
	end_evil(evil);
}
END_TEST

/* The bytes of a frame of the soft provider. */
static size_t frame(uint8_t *out, unsigned op, const void *payload, size_t len)
{
	struct soft_frame f = {.op = (uint8_t)op, .len = len};

	if (op == SOFT_CONNECT) {
		f.addr = SOFT_MAGIC;
		f.key = soft_greeting_key(SOFT_VERSION, 0, 0);
	}
	soft_frame_encode(out, &f);
	memcpy(out + SOFT_HEADER, payload, len);
	return SOFT_HEADER + len;
}

/* A receive that a dying connection's half message had taken from the shared ones comes back. */
START_TEST(test_shared_receives_come_back)
{
	struct wire_request request = kv_request();
	uint8_t hello[WIRE_REQUEST_SIZE], bytes[512], data[64] = {0};
	size_t len;

	begin(true);
	connect_default();
	server[0].echo = true;
	wire_request_encode(&request, hello);
	for (unsigned round = 0; round < 200; round++) {
		int fd = socket(pair.listener.address.ss_family, SOCK_STREAM, 0);

		servers = 1;
		server[1] = (struct peer){.body = 16};
		ck_assert_int_eq(connect(fd, (struct sockaddr *)&pair.listener.address, pair.listener.address_len), 0);
		len = frame(bytes, SOFT_CONNECT, hello, sizeof(hello));
		ck_assert_int_eq(write(fd, bytes, len), len);
		PAIR_UNTIL(&pair, server[1].established);
		len = frame(bytes, SOFT_SEND, data, sizeof(data)); /* says that it has no length */
		len += frame(bytes + len, SOFT_SEND, data, sizeof(data)) - 1;
		ck_assert_int_eq(write(fd, bytes, len), len);
		PAIR_UNTIL(&pair, server[1].closed);
		close(fd);
	}
	pair.server_stops = true;
	send_what_goes(&client, 30);
	ck_assert_uint_eq(client.sent, 30);
	conn_pair_turn(&pair);
	conn_group_progress(pair.server.group, pair.now);
	ck_assert_uint_eq(server[0].got, 30); /* there are receives for all of it */
	pair.server_stops = false;
	PAIR_UNTIL(&pair, client.got == 30);
	end();
}
END_TEST

/* What a peer must not say is counted and is the reason, whatever comes behind. */
START_TEST(test_violation_in_service)
{
	struct evil *evil = begin_evil();
	uint8_t data[64];
	size_t len = message(data, 32, 0, 8, 8);

	server[1].violate = -EPROTO;
	for (unsigned i = 0; i < 5; i++)
		evil_send(&pair, evil, data, len);
	end_evil(evil);
	ck_assert_int_eq(server[1].error, -EPROTO);
	ck_assert_str_eq(server[1].reason, "a request that breaks the protocol");
	ck_assert_uint_eq(server[1].got, 0);
}
END_TEST

static void evil_immediates(struct evil *evil, unsigned count)
{
	struct fabric_wr wr = {.opcode = FABRIC_WRITE_IMM};

	for (; wr.imm < count; wr.imm++)
		ck_assert_int_eq(fabric_post(evil->endpoint, &wr), 0);
	for (unsigned i = 0; i < 10; i++) {
		evil_turn(evil);
		conn_pair_turn(&pair);
	}
}

/* Behind a message that waits all wait, and take credits. */
START_TEST(test_immediates_beyond_credits)
{
	struct evil *evil = begin_evil();
	uint8_t data[64];

	server[1].refuse = UINT32_MAX;
	evil_send(&pair, evil, data, message(data, 32, 0, 8, 8));
	evil_immediates(evil, 31 + _i);
	ck_assert_uint_eq(server[1].closed, _i);
	ck_assert_uint_eq(server[1].immediates, 0);
	server[1].refuse = 0;
	PAIR_UNTIL(&pair, server[1].closed || server[1].immediates == 31);
	fabric_disconnect(evil->endpoint);
	end_evil(evil);
	ck_assert_str_eq(server[1].reason, _i ? "an immediate beyond its credits" : "disconnected by the peer");
	ck_assert_uint_eq(server[1].immediates, _i ? 0 : 31);
}
END_TEST

/* A client that is connected, and not admitted, reaches nothing, by a true key of a true address. */
START_TEST(test_nobody_admitted)
{
	static const enum fabric_opcode opcodes[] = {FABRIC_WRITE, FABRIC_READ, FABRIC_WRITE_IMM};
	static uint64_t word;
	struct fabric_region *region;
	struct fabric_wr wr = {.opcode = opcodes[_i], .signaled = true, .sge_count = 1};
	struct evil *evil;

	admits_nobody = true;
	evil = begin_evil();
	word = 0xeeee;
	ck_assert_int_eq(fabric_register(pair.server.domain, &word, sizeof(word),
					 FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE, &region),
			 0);
	wr.rkey = fabric_region_rkey(region, conn_endpoint(server[1].conn));
	wr.remote_addr = (uintptr_t)&word;
	wr.sge[0] = (struct fabric_sge){evil->memory, sizeof(word), evil->region};
	memset(evil->memory, 0x11, sizeof(word));
	ck_assert_int_eq(fabric_post(evil->endpoint, &wr), 0);
	PAIR_UNTIL(&pair, (evil_turn(evil), server[1].closed && evil->disconnected));
	ck_assert_uint_eq(word, 0xeeee);
	ck_assert_mem_eq(evil->memory, "\x11\x11\x11\x11\x11\x11\x11\x11", sizeof(word));
	fabric_deregister(region);
	end_evil(evil);
	admits_nobody = false;
}
END_TEST

/* An earlier client makes room by a write of no bytes, and a server that knows it by its request lets it. */
START_TEST(test_earlier_client)
{
	const struct conn_attr attr = {.admitted = true};
	struct fabric_wr wr = {.opcode = FABRIC_WRITE, .signaled = true};
	struct wire_request request = kv_request();
	uint8_t data[WIRE_REQUEST_SIZE];
	struct evil *evil;

	admits_nobody = true;
	begin(false);
	connect_default();
	own_attr = &attr;
	evil = evil_new(&pair);
	wire_request_encode(&request, data);
	evil_connect(&pair, evil, data, sizeof(data));
	PAIR_UNTIL(&pair, server[1].established);
	server[0].echo = true;
	ck_assert(conn_request(server[0].conn)->flags & WIRE_WRITES_NOT);
	ck_assert_int_eq(fabric_post(evil->endpoint, &wr), 0);
	for (unsigned i = 0; i < 50; i++) {
		conn_pair_turn(&pair);
		evil_turn(evil);
	}
	ck_assert_msg(!server[1].closed && !evil->disconnected, "%s", server[1].reason);
	fabric_disconnect(evil->endpoint);
	end_evil(evil);
	own_attr = NULL;
	admits_nobody = false;
}
END_TEST

/* A service that gives nobody a reason to send one. */
START_TEST(test_immediates_unwanted)
{
	static const struct conn_ops without = {
		.established = on_established,
		.record = on_record,
		.closed = on_closed,
	};
	struct evil *evil = begin_evil();
	uint8_t data[64];

	conn_set_owner(server[1].conn, &without, &server[1]);
	server[1].refuse = _i ? 3 : 0; /* found out at once, or behind a message that waits */
	evil_send(&pair, evil, data, message(data, 32, 0, 8, 8));
	evil_immediates(evil, 1);
	PAIR_UNTIL(&pair, server[1].closed);
	ck_assert_uint_eq(stats_of(&pair.server).violations, 1);
	end_evil(evil);
	ck_assert_uint_eq(server[1].got, 1);
	ck_assert_int_eq(server[1].error, -EPROTO);
	ck_assert_str_eq(server[1].reason, "an immediate that nobody asked for");
}
END_TEST

/*
 * A server without manners
 */
static struct evil *evil_server;
static struct wire_accept evil_answer;
static size_t evil_answer_len;
static bool evil_talks_first;

static void take_evil(void *arg, struct fabric_request *request, const struct wire_request *wire,
		      enum wire_reason reason)
{
	struct fabric_endpoint_attr attr = {.send_depth = 16, .recv_depth = 64};
	uint8_t data[WIRE_ACCEPT_SIZE];
	uint8_t m[64];
	struct fabric_wr wr = {
		.opcode = FABRIC_SEND,
		.sge_count = 1,
		.sge = {{m, message(m, 32, 0, 8, 8), NULL}},
	};

	ck_assert_int_eq(fabric_take(evil_server->queue, evil_server->domain, request, &attr, &evil_server->endpoint),
			 0);
	wire_accept_encode(&evil_answer, data);
	ck_assert_int_eq(fabric_accept(evil_server->endpoint, data, evil_answer_len), 0);
	if (!evil_talks_first)
		return;
	evil_turn(evil_server); /* its own ESTABLISHED */
	ck_assert(evil_server->established);
	ck_assert_int_eq(fabric_post(evil_server->endpoint, &wr), 0);
	evil_turn(evil_server);
}

static struct wire_accept honest_answer(void)
{
	return (struct wire_accept){
		.version = WIRE_VERSION,
		.service = WIRE_KV,
		.message_size = 8192,
		.credits = 32,
	};
}

static void connect_to_evil(void)
{
	struct wire_request request = kv_request();

	begin(false);
	evil_server = evil_new(&pair);
	pair.listener.take = take_evil;
	connect_as(&request);
}

static void end_evil_server(void)
{
	if (client.conn)
		conn_close(client.conn, 0, "the test is over");
	PAIR_UNTIL(&pair, (evil_turn(evil_server), client.closed));
	evil_free(evil_server);
	conn_pair_close(&pair);
}

START_TEST(test_bad_answers)
{
	struct wire_accept a[] = {honest_answer(), honest_answer(), honest_answer(), honest_answer(), honest_answer()};
	int error[] = {-EPROTO, -EPROTONOSUPPORT, -EPROTO, -EPROTO, -EPROTO};

	a[1].version = WIRE_VERSION + 1;
	a[2].credits = 33;
	a[3].message_size = 8193;
	a[4].message_size = 1;
	evil_answer = a[_i];
	evil_answer_len = _i == 0 ? WIRE_ACCEPT_SIZE - 1 : WIRE_ACCEPT_SIZE;
	evil_talks_first = false;
	connect_to_evil();
	PAIR_UNTIL(&pair, (evil_turn(evil_server), client.closed));
	ck_assert_uint_eq(client.established, 0);
	ck_assert_int_eq(client.error, error[_i]);
	end_evil_server();
}
END_TEST

/* A message that comes with or before the server's answer waits for established(). */
START_TEST(test_early_message)
{
	evil_answer = honest_answer();
	evil_answer_len = WIRE_ACCEPT_SIZE;
	evil_talks_first = true;
	connect_to_evil();
	PAIR_UNTIL(&pair, (evil_turn(evil_server), client.got || client.closed));
	ck_assert_uint_eq(client.got, 1);
	ck_assert_uint_eq(client.established, 1);
	ck_assert_uint_eq(client.closed, 0);
	end_evil_server();
}
END_TEST

/* Without a nonce neither side has a connection. */
START_TEST(test_no_random_bytes)
{
	struct wire_request request = kv_request();
	struct conn *conn = NULL;
	int rc;

	begin(false);
	no_random = _i == 0;
	rc = conn_pair_connect(&pair, &request, NULL, &ops, &client, &conn);
	ck_assert_int_eq(rc, _i == 0 ? -ENOSYS : 0);
	client.conn = conn;
	no_random = true;
	if (conn)
		PAIR_UNTIL(&pair, client.closed);
	ck_assert_uint_eq(client.established, 0);
	ck_assert_uint_eq(servers, 0);
	ck_assert_int_eq(_i ? accepted : -ENOSYS, -ENOSYS);
	no_random = false;
	conn_pair_close(&pair);
}
END_TEST

static void refuse_plainly(void *arg, struct fabric_request *request, const struct wire_request *wire,
			   enum wire_reason reason)
{
	fabric_reject(request, "go away", 7);
}

START_TEST(test_refused_by_a_stranger)
{
	struct wire_request request = kv_request();

	begin(_i);
	pair.listener.take = refuse_plainly;
	connect_as(&request);
	PAIR_UNTIL(&pair, client.closed);
	ck_assert_int_eq(client.error, -ECONNREFUSED);
	ck_assert_uint_eq(client.refusal, WIRE_REASONS);
	ck_assert_str_eq(client.reason, "refused by a program that is not rdmad");
	end();
}
END_TEST

#ifdef RDMAD_CONTRACTS
/* A turn of the group inside of one of its callbacks breaks its contract. */
static int turn_again(struct conn *conn, const struct wire_record *record, const void *body)
{
	conn_group_progress(pair.server.group, pair.now);
	return 0;
}

START_TEST(test_turn_in_a_callback)
{
	struct conn_ops again = ops;
	struct wire_request request = kv_request();

	again.record = turn_again;
	begin(false);
	connect_as(&request);
	PAIR_UNTIL(&pair, client.established && server[0].established);
	conn_set_owner(server[0].conn, &again, &server[0]);
	ck_assert(peer_send(&client, 0));
	PAIR_UNTIL(&pair, server[0].closed);
}
END_TEST

/* A buffer that is given back twice. */
START_TEST(test_buffer_back_twice)
{
	struct memory_buffer *buffer;

	begin(false);
	buffer = memory_pool_get(pair.server.group->sends);
	memory_pool_get(pair.server.group->sends);
	memory_pool_put(pair.server.group->sends, buffer);
	memory_pool_put(pair.server.group->sends, buffer);
}
END_TEST
#endif

/*
 * Connections with long messages have buffers of their own
 */
START_TEST(test_large_messages)
{
	struct wire_request request = kv_request();
	struct conn_group_stats before;

	request.message_size = 200 * 1024;
	begin(_i);
	before = stats_of(&pair.server);
	connect_both(&request);
	ck_assert_uint_eq(conn_granted(client.conn)->message_size, 200 * 1024);
	ck_assert_uint_le(conn_granted(client.conn)->credits, 8);
	client.body = server[0].body = 100 * 1024;
	while (client.got < 300 || server[0].got < 300) {
		send_what_goes(&client, 300);
		send_what_goes(&server[0], 300);
		conn_pair_turn(&pair);
	}
	conn_pair_rest(&pair);
	ck_assert_uint_eq(stats_of(&pair.server).buffers, before.buffers);
	end();
}
END_TEST

START_TEST(test_large_echo)
{
	struct wire_request request = kv_request();

	request.message_size = WIRE_MESSAGE_MAX;
	begin(_i);
	connect_both(&request);
	server[0].echo = true;
	client.body = WIRE_BODY_MAX(WIRE_MESSAGE_MAX);
	while (client.got < 50) {
		send_what_goes(&client, 50);
		conn_pair_turn(&pair);
	}
	end();
}
END_TEST

static void add_loop(TCase *tc, const TTest *test, int end_of_loop)
{
	tcase_add_loop_test(tc, test, 0, end_of_loop);
}

static Suite *suite_of_conn(void)
{
	Suite *suite = suite_create("conn");
	TCase *tc = suite_case(suite, "handshake", NULL, NULL);

	add_loop(tc, test_granted, 2);
	add_loop(tc, test_refusals, 13);
	tcase_add_test(tc, test_too_many_connections);
	tcase_add_loop_test(tc, test_no_memory_for_a_connection, 0, 2);
	tcase_add_test(tc, test_device_bound);
	tcase_add_test(tc, test_sockets_are_for_many_connections);
	tcase_add_test(tc, test_message_size_beyond_the_server);
	tcase_add_loop_test(tc, test_message_size_is_cut, 0, 2);
	add_loop(tc, test_nobody_listens, 2);
	tcase_add_test(tc, test_handshake_timeout);
	tc = suite_case(suite, "records", NULL, NULL);
	add_loop(tc, test_packing, 2);
	tcase_add_test(tc, test_turn_flushes);
	tcase_add_test(tc, test_messages_roll_over);
	tcase_add_test(tc, test_look_ahead);
	tcase_add_test(tc, test_longest_record);
	tcase_add_test(tc, test_reserve_without_commit);
	tcase_add_test(tc, test_no_reserve_before_established);
	tc = suite_case(suite, "credits", NULL, NULL);
	add_loop(tc, test_slow_receiver, 2);
	add_loop(tc, test_both_directions, 4);
	add_loop(tc, test_echo_with_few_credits, 2);
	add_loop(tc, test_answers_beyond_all_credits, 2);
	add_loop(tc, test_silence, 2);
	add_loop(tc, test_credits_after_rest, 2);
	tc = suite_case(suite, "parked", NULL, NULL);
	add_loop(tc, test_parked_in_order, 2);
	tcase_add_test(tc, test_parked_in_the_middle);
	tcase_add_test(tc, test_closed_while_parked);
	tcase_add_test(tc, test_violation_while_parked);
	tc = suite_case(suite, "close", NULL, NULL);
	add_loop(tc, test_close_while_connecting, 2);
	add_loop(tc, test_close_while_accepting, 2);
	add_loop(tc, test_close_established, 2);
	add_loop(tc, test_end_behind_messages, 2);
	add_loop(tc, test_leave_while_accepting, 2);
	add_loop(tc, test_close_in_callbacks, 3);
	add_loop(tc, test_close_patience, 2);
	add_loop(tc, test_statistics_in_steps, 2);
	add_loop(tc, test_group_destroyed, 3);
	add_loop(tc, test_thousand_cycles, 2);
	tc = suite_case(suite, "time", NULL, NULL);
	tcase_add_test(tc, test_keepalive_probe);
	tcase_add_test(tc, test_keepalive_dead_host);
	tcase_add_test(tc, test_keepalive_after_absence);
	tcase_add_test(tc, test_keepalive_busy_program);
	add_loop(tc, test_stall, 2);
	add_loop(tc, test_slow_is_not_stalled, 2);
	tc = suite_case(suite, "violations", NULL, NULL);
	add_loop(tc, test_violations, ARRAY_SIZE(violations));
	tcase_add_test(tc, test_all_credits_used);
	tcase_add_test(tc, test_shared_receives_come_back);
	tcase_add_test(tc, test_violation_in_service);
	add_loop(tc, test_immediates_beyond_credits, 2);
	add_loop(tc, test_immediates_unwanted, 2);
	add_loop(tc, test_bad_answers, 5);
	tcase_add_test(tc, test_early_message);
	tcase_add_loop_test(tc, test_nobody_admitted, 0, 3);
	tcase_add_test(tc, test_earlier_client);
	tcase_add_loop_test(tc, test_no_random_bytes, 0, 2);
	add_loop(tc, test_refused_by_a_stranger, 2);
	tc = suite_case(suite, "large", NULL, NULL);
	add_loop(tc, test_large_messages, 2);
	add_loop(tc, test_large_echo, 2);
#ifdef RDMAD_CONTRACTS
	tc = suite_case(suite, "contracts", NULL, NULL);
	tcase_add_test_raise_signal(tc, test_turn_in_a_callback, SIGABRT);
	tcase_add_test_raise_signal(tc, test_buffer_back_twice, SIGABRT);
#endif
	return suite;
}

int main(void)
{
	log_set_handler(log_keep);
	if (suite_run(suite_of_conn()) != 0)
		return EXIT_FAILURE;
	conn_pair_memory = true;
	return suite_run(suite_of_conn());
}
