/*
 * check_transfer.c: reads, writes and immediates of connections, and what a connection has of its own, on the
 * soft provider, in one thread.
 *
 * What a side is told, records and immediates alike, is kept in the order in which it came.
 */
#include "conn/internal.h" /* for the completion queue's room, which is a million here */
#include "tests/conn/conn_pair.h"
#include "tests/suite.h"

#define MEMORY 65536
#define SEEN 4096
#define IMMEDIATE 0x80000000u /* in `seen` */

struct peer {
	struct conn *conn;
	unsigned established, closed, writables;
	int error;
	char reason[200];
	uint32_t seen[SEEN];
	unsigned count;
	unsigned refuse; /* record() answers -EAGAIN so often */
	struct fabric_region *region;
	_Alignas(8) uint8_t memory[MEMORY];
};

static struct conn_pair pair;
static struct peer client[2], server[2]; /* in the order of their connections */
static unsigned servers;
static const struct conn_attr *client_attr, *server_attr; /* of the next connection */
static uint32_t room; /* of each side's completion queue when there is no connection */

static void see(struct peer *p, uint32_t what)
{
	ck_assert_uint_eq(p->established, 1);
	ck_assert_uint_eq(p->closed, 0);
	ck_assert_uint_lt(p->count, SEEN);
	p->seen[p->count++] = what;
}

static void on_established(struct conn *conn)
{
	struct peer *p = conn_context(conn);

	p->established++;
	conn_admit(conn);
}

static int on_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct peer *p = conn_context(conn);

	if (p->refuse) {
		p->refuse--;
		return -EAGAIN;
	}
	see(p, record->id);
	return 0;
}

static void on_immediate(struct conn *conn, uint32_t imm)
{
	see(conn_context(conn), imm | IMMEDIATE);
}

static void on_writable(struct conn *conn)
{
	struct peer *p = conn_context(conn);

	p->writables++;
}

static void on_closed(struct conn *conn, int error, const char *reason)
{
	struct peer *p = conn_context(conn);

	ck_assert_uint_eq(p->closed++, 0);
	p->error = error;
	snprintf(p->reason, sizeof(p->reason), "%s", reason);
	p->conn = NULL;
}

static const struct conn_ops ops = {
	.established = on_established,
	.record = on_record,
	.immediate = on_immediate,
	.writable = on_writable,
	.closed = on_closed,
};

static void take(void *arg, struct fabric_request *request, const struct wire_request *wire, enum wire_reason reason)
{
	struct peer *p = &server[servers % ARRAY_SIZE(server)];

	ck_assert_int_eq(reason, WIRE_REASON_NONE);
	if (conn_accept(pair.server.group, request, wire, &(struct wire_accept){0}, server_attr, &ops, p, pair.now,
			&p->conn) == 0)
		servers++;
}

static struct conn_group_attr default_attr(void)
{
	return (struct conn_group_attr){
		.message_size = 8192,
		.message_max = 8192,
		.credits = 32,
		.receives = 256,
		.max_connections = 8,
		.transfers = 8,
		.reads_in = 8,
		.handshake_timeout = 5 * TIME_S,
	};
}

static void begin(bool unix_socket)
{
	struct conn_group_attr attr = default_attr();

	pair = (struct conn_pair){.listener.take = take};
	memset(client, 0, sizeof(client));
	memset(server, 0, sizeof(server));
	servers = 0;
	client_attr = server_attr = NULL;
	conn_pair_open(&pair, unix_socket, &attr, &attr);
	room = pair.server.group->completions;
}

static int try_connect(unsigned n, uint16_t credits)
{
	struct wire_request request = {
		.version = WIRE_VERSION,
		.service = WIRE_GPU,
		.credits = credits,
		.message_size = 8192,
	};

	return conn_pair_connect(&pair, &request, client_attr, &ops, &client[n], &client[n].conn);
}

static void connect_both(unsigned n, uint16_t credits)
{
	ck_assert_int_eq(try_connect(n, credits), 0);
	PAIR_UNTIL(&pair, client[n].established && server[n].established);
}

static void register_memory(struct peer *p, struct fabric_domain *domain)
{
	ck_assert_int_eq(
		fabric_register(domain, p->memory, MEMORY, FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE, &p->region), 0);
}

/* One connection as the group says, and memory of both sides. */
static void begin_one(bool unix_socket, uint16_t credits)
{
	begin(unix_socket);
	connect_both(0, credits);
	register_memory(&client[0], pair.client.domain);
	register_memory(&server[0], pair.server.domain);
}

static void end(void)
{
	for (unsigned n = 0; n < 2; n++)
		if (client[n].conn)
			conn_close(client[n].conn, 0, "the test is over");
	PAIR_UNTIL(&pair, !client[0].conn && !client[1].conn && !server[0].conn && !server[1].conn);
	conn_pair_rest(&pair);
	ck_assert_uint_eq(pair.client.group->completions, room);
	ck_assert_uint_eq(pair.server.group->completions, room);
	for (unsigned n = 0; n < 2; n++) {
		fabric_deregister(client[n].region);
		fabric_deregister(server[n].region);
	}
	conn_pair_close(&pair);
}

static uint64_t address_of(const struct peer *p, size_t offset)
{
	return (uintptr_t)p->memory + offset;
}

static uint32_t key_of(const struct peer *p)
{
	return fabric_region_rkey(p->region, conn_endpoint(p->conn));
}

static struct fabric_sge sge_of(struct peer *p, size_t offset, size_t len)
{
	return (struct fabric_sge){p->memory + offset, len, p->region};
}

/* A transfer that counts. */
struct job {
	struct conn_transfer transfer;
	unsigned done;
	enum fabric_status status;
};

static void job_done(struct conn_transfer *transfer, enum fabric_status status)
{
	struct job *job = container_of(transfer, struct job, transfer);

	ck_assert_uint_eq(job->done++, 0);
	job->status = status;
}

static struct conn_transfer *begin_job(struct job *job)
{
	*job = (struct job){.transfer.done = job_done};
	return &job->transfer;
}

static bool send_record(struct peer *p, uint32_t id)
{
	return conn_say(p->conn, &(struct wire_record){.id = id}, (uint8_t[16]){0}, 16, NULL, 0);
}

/*
 * Immediates
 */

/* Of any length, into one of several places. */
static const size_t lengths[] = {0, 4, 300, 20000};

static int write_imm(struct job *job, uint32_t imm)
{
	size_t len = lengths[imm % ARRAY_SIZE(lengths)];
	size_t at = imm % 3 * 20000;
	struct fabric_sge sge;

	memcpy(client[0].memory + at, &imm, sizeof(imm));
	sge = sge_of(&client[0], at, len);
	return conn_write_imm(client[0].conn, begin_job(job), &sge, address_of(&server[0], at), key_of(&server[0]),
			      imm);
}

static bool send_either(struct job *job, uint32_t number)
{
	return number % 2 ? write_imm(job, number) == 0 : send_record(&client[0], number);
}

/* Every second is a record, and some of those are refused, so that all behind them are parked. */
START_TEST(test_order)
{
	enum { COUNT = 3000 };
	static struct job jobs[COUNT];
	uint64_t until = conn_pair_patience();
	unsigned sent = 0;

	begin_one(_i % 2, _i < 2 ? 32 : WIRE_CREDITS_MIN);
	while (server[0].count < COUNT) {
		for (; sent < COUNT && send_either(&jobs[sent], sent); sent++)
			if (sent % 11 == 0)
				server[0].refuse = sent % 5;
		conn_pair_turn(&pair);
		ck_assert(time_now() < until);
	}
	for (unsigned i = 0; i < COUNT; i++)
		ck_assert_uint_eq(server[0].seen[i], i % 2 ? i | IMMEDIATE : i);
	conn_pair_rest(&pair);
	for (unsigned i = 1; i < COUNT; i += 2)
		ck_assert(jobs[i].done == 1 && jobs[i].status == FABRIC_OK);
	ck_assert_mem_eq(server[0].memory + (COUNT - 1) % 3 * 20000, &(uint32_t){COUNT - 1}, 4);
	ck_assert(conn_idle(client[0].conn));
	end();
}
END_TEST

/* An immediate takes a credit like a message, and credits come back though the peer has nothing else to say. */
START_TEST(test_immediates_and_credits)
{
	static struct job jobs[SEEN];
	unsigned sent = 0;

	begin_one(_i, 4);
	pair.server_stops = true;
	while (write_imm(&jobs[sent], 4 * sent) == 0) /* of no bytes */
		sent++;
	ck_assert_uint_eq(sent, 4);
	ck_assert(!send_record(&client[0], 0));
	pair.server_stops = false;
	client[0].writables = 0;
	PAIR_UNTIL(&pair, client[0].writables);
	while (sent < 1000) {
		if (write_imm(&jobs[sent], 4 * sent) == 0)
			sent++;
		else
			conn_pair_turn(&pair);
	}
	PAIR_UNTIL(&pair, server[0].count == 1000);
	for (unsigned i = 0; i < 1000; i++)
		ck_assert_uint_eq(server[0].seen[i], 4 * i | IMMEDIATE);
	end();
}
END_TEST

/*
 * What a connection has of its own
 */
static void write_to(unsigned n, struct job *job, const struct peer *to)
{
	struct fabric_sge sge = sge_of(&client[n], 0, 8);

	ck_assert_int_eq(conn_write(client[n].conn, begin_job(job), &sge, address_of(to, 0), key_of(to)), 0);
	PAIR_UNTIL(&pair, job->done);
}

/* Turns in which the server had work until it has served this. */
static unsigned turns_to_serve(bool reads, size_t len)
{
	struct fabric_sge sge = sge_of(&client[0], 0, len);
	unsigned worked = 0;
	struct job job;

	conn_pair_rest(&pair);
	pair.server_stops = true;
	ck_assert_int_eq((reads ? conn_read : conn_write)(client[0].conn, begin_job(&job), &sge,
							  address_of(&server[0], 0), key_of(&server[0])),
			 0);
	TURN_UNTIL(worked += conn_group_progress(pair.server.group, pair.now) > 0; conn_pair_turn(&pair), job.done);
	pair.server_stops = false;
	return worked;
}

/* Nobody at the server is told of what its peer reads and writes: a turn that served it had work all the same, so that a thread
 * that polls does not take it for a wait in vain. */
START_TEST(test_serving_is_work)
{
	static const size_t bytes[] = {8, 4096, 20000};

	begin_one(_i, 32);
	for (unsigned i = 0; i < 2 * ARRAY_SIZE(bytes); i++)
		ck_assert_uint_gt(turns_to_serve(i % 2, bytes[i / 2]), 0);
	end();
}
END_TEST

static struct fabric_domain *own_domain;

/* Nothing of the connection is left in the domain when it is closed. */
static void on_closed_with_domain(struct conn *conn, int error, const char *reason)
{
	struct peer *p = conn_context(conn);

	fabric_deregister(p->region);
	p->region = NULL;
	fabric_domain_destroy(own_domain);
	on_closed(conn, error, reason);
}

static const struct conn_ops owner_ops = {
	.established = on_established,
	.record = on_record,
	.closed = on_closed_with_domain,
};

/* The first connection is in a domain of its own, the second in its group's. */
static void begin_two_domains(bool unix_socket)
{
	struct conn_attr attr = {.domain = NULL};
	struct job job;

	begin(unix_socket);
	ck_assert_int_eq(fabric_domain_create(pair.fabric, &own_domain), 0);
	attr.domain = own_domain;
	server_attr = &attr;
	connect_both(0, 32);
	conn_set_owner(server[0].conn, &owner_ops, &server[0]);
	register_memory(&server[0], own_domain);
	server_attr = NULL;
	connect_both(1, 32);
	register_memory(&server[1], pair.server.domain);
	for (unsigned n = 0; n < 2; n++) {
		register_memory(&client[n], pair.client.domain);
		client[n].memory[0] = 0xaa;
		write_to(n, &job, &server[n]);
		ck_assert_int_eq(job.status, FABRIC_OK);
		ck_assert_uint_eq(server[n].memory[0], 0xaa);
		client[n].memory[0] = 0xbb;
	}
}

/* Neither reaches the other's memory by its key, and one that tries is alone in its fate. */
START_TEST(test_domains_apart)
{
	unsigned n = (unsigned)_i / 2, other = 1 - n;
	struct job job;

	begin_two_domains(_i % 2);
	write_to(n, &job, &server[other]);
	ck_assert_int_eq(job.status, FABRIC_REMOTE_ACCESS);
	PAIR_UNTIL(&pair, client[n].closed && server[n].closed);
	ck_assert_uint_eq(server[other].memory[0], 0xaa);
	write_to(other, &job, &server[other]);
	ck_assert_int_eq(job.status, FABRIC_OK);
	ck_assert_uint_eq(server[other].memory[0], 0xbb);
	end();
}
END_TEST

/* Messages both ways through buffers of its own; the shared receives are the other's. */
START_TEST(test_own_buffers)
{
	struct conn_group_stats before, after;

	begin_two_domains(_i);
	ck_assert_uint_eq(fabric_shared_wanted(pair.server.group->queue, 0), 32 + WIRE_RETURNS_MAX);
	conn_group_get_stats(pair.server.group, &before);
	for (unsigned sent = 0, answered = 0; client[0].count < 1000; conn_pair_turn(&pair)) {
		for (; sent < 1000 && send_record(&client[0], sent); sent++)
			conn_flush(client[0].conn);
		for (; answered < server[0].count && send_record(&server[0], answered); answered++)
			conn_flush(server[0].conn);
	}
	for (unsigned i = 0; i < 1000; i++)
		ck_assert(server[0].seen[i] == i && client[0].seen[i] == i);
	conn_group_get_stats(pair.server.group, &after);
	ck_assert_uint_eq(after.buffers, before.buffers);
	end();
}
END_TEST

static unsigned read_what_goes(unsigned n, struct job *jobs, unsigned most)
{
	struct fabric_sge sge = sge_of(&client[n], 0, 8);
	unsigned posted = 0;

	while (posted < most && conn_read(client[n].conn, begin_job(&jobs[posted]), &sge, address_of(&server[n], 0),
					  key_of(&server[n])) == 0)
		posted++;
	return posted;
}

START_TEST(test_own_transfers)
{
	struct conn_attr attr = {.transfers = 60};
	struct job jobs[100];

	begin(_i);
	connect_both(0, 32);
	client_attr = &attr;
	connect_both(1, 32);
	for (unsigned n = 0; n < 2; n++) {
		register_memory(&client[n], pair.client.domain);
		register_memory(&server[n], pair.server.domain);
		ck_assert_uint_eq(read_what_goes(n, jobs, 100), n ? 60 : 8);
		ck_assert(!conn_transfer_room(client[n].conn, 1));
		PAIR_UNTIL(&pair, conn_idle(client[n].conn));
		ck_assert_uint_eq(jobs[n ? 59 : 7].done, 1);
	}
	end();
}
END_TEST

/* Reads that the peer may have in flight; 0 there are none to be had from the group. */
START_TEST(test_own_reads)
{
	struct conn_attr attr = {.reads_in = 4};
	struct job job;

	begin(false);
	pair.server.group->attr.reads_in = 0;
	server_attr = _i ? &attr : NULL;
	connect_both(0, 32);
	register_memory(&client[0], pair.client.domain);
	register_memory(&server[0], pair.server.domain);
	ck_assert_uint_eq(read_what_goes(0, &job, 1), 1);
	PAIR_UNTIL(&pair, job.done);
	ck_assert_int_eq(job.status, _i ? FABRIC_OK : FABRIC_REMOTE_ACCESS);
	end();
}
END_TEST

/* A connection that may have more outstanding takes more of the completion queue; one that does not fit is refused, on either
 * side, and the room comes back. */
START_TEST(test_completions)
{
	struct conn_attr attr = {.transfers = 500};
	uint32_t ordinary;

	begin(false);
	connect_both(0, 32);
	ordinary = room - pair.server.group->completions;
	pair.server.group->completions = ordinary + 491;
	room = 2 * ordinary + 491;
	pair.client.group->completions = room - ordinary;
	server_attr = &attr;
	ck_assert_int_eq(try_connect(1, 32), 0);
	PAIR_UNTIL(&pair, client[1].closed);
	ck_assert_int_eq(client[1].error, -ENOBUFS);
	ck_assert_msg(strstr(client[1].reason, "device resources"), "%s", client[1].reason);
	client[1].closed = 0;
	client_attr = &attr;
	ck_assert_int_eq(try_connect(1, 32), -EUSERS);
	attr.transfers = 499;
	connect_both(1, 32);
	ck_assert_uint_eq(pair.server.group->completions, 0);
	end();
}
END_TEST

/*
 * Chains
 */
static struct conn_part part_of(enum fabric_opcode opcode, size_t at, size_t len)
{
	return (struct conn_part){
		.opcode = opcode,
		.sge_count = 1,
		.sge = {sge_of(&client[0], at, len)},
		.remote_addr = address_of(&server[0], at),
		.rkey = key_of(&server[0]),
	};
}

/* A cell of two pieces, its index from memory of no region, and what was there before. */
START_TEST(test_chain)
{
	struct conn_part parts[3];
	uint64_t index = 7;
	struct job job;

	begin_one(_i, 32);
	memset(client[0].memory, 0xcc, 5000);
	memset(server[0].memory + 40000, 0xdd, 3000);
	parts[0] = part_of(FABRIC_WRITE, 0, 1000);
	parts[0].sge_count = 2;
	parts[0].sge[1] = sge_of(&client[0], 2000, 3000);
	parts[1] = part_of(FABRIC_WRITE, 8000, sizeof(index));
	parts[1].sge[0] = (struct fabric_sge){&index, sizeof(index), NULL};
	parts[2] = part_of(FABRIC_READ, 40000, 3000);
	ck_assert_int_eq(conn_transfer_chain(client[0].conn, begin_job(&job), parts, 3), 0);
	index = 0; /* at once ours again */
	memset(parts, 0, sizeof(parts));
	PAIR_UNTIL(&pair, job.done);
	ck_assert_int_eq(job.status, FABRIC_OK);
	for (unsigned i = 0; i < 4000; i++)
		ck_assert_uint_eq(server[0].memory[i], 0xcc);
	ck_assert_uint_eq(server[0].memory[4000], 0);
	ck_assert_mem_eq(server[0].memory + 8000, &(uint64_t){7}, 8);
	ck_assert_mem_eq(client[0].memory + 40000, server[0].memory + 40000, 3000);
	end();
}
END_TEST

/* Immediates in a chain come in order, behind what was committed before; without credits for all of them nothing is posted. */
START_TEST(test_chain_immediates)
{
	struct conn_part parts[4];
	struct job jobs[3];

	begin_one(_i, 8);
	for (uint32_t i = 0; i < 4; i++) {
		parts[i] = part_of(i == 1 ? FABRIC_WRITE : FABRIC_WRITE_IMM, 4000 * i, 100);
		parts[i].imm = 4 * i;
	}
	pair.server_stops = true;
	ck_assert(send_record(&client[0], 99));
	ck_assert_int_eq(conn_transfer_chain(client[0].conn, begin_job(&jobs[0]), parts, 4), 0);
	ck_assert_int_eq(conn_transfer_chain(client[0].conn, begin_job(&jobs[1]), parts, 4), 0);
	/* A credit is left, for a write but not for three. */
	ck_assert_int_eq(conn_transfer_chain(client[0].conn, begin_job(&jobs[2]), parts, 4), -EAGAIN);
	pair.server_stops = false;
	PAIR_UNTIL(&pair, jobs[1].done);
	PAIR_UNTIL(&pair, conn_transfer_chain(client[0].conn, begin_job(&jobs[2]), parts, 4) == 0);
	PAIR_UNTIL(&pair, jobs[2].done && server[0].count == 10);
	ck_assert_uint_eq(server[0].seen[0], 99);
	for (unsigned i = 1; i < 10; i += 3) {
		ck_assert_uint_eq(server[0].seen[i], 0 | IMMEDIATE);
		ck_assert_uint_eq(server[0].seen[i + 1], 8 | IMMEDIATE);
		ck_assert_uint_eq(server[0].seen[i + 2], 12 | IMMEDIATE);
	}
	end();
}
END_TEST

/* Each part counts; all or nothing is posted; done() is called once for each chain. */
START_TEST(test_chain_room)
{
	struct conn_part parts[CONN_CHAIN_MAX + 1];
	struct job jobs[1000], beyond;
	unsigned posted = 0;

	begin_one(_i, 32);
	for (unsigned i = 0; i < ARRAY_SIZE(parts); i++)
		parts[i] = part_of(i % 2 ? FABRIC_READ : FABRIC_WRITE, 0, 100);
	ck_assert_int_eq(conn_transfer_chain(client[0].conn, begin_job(&beyond), parts, 0), -EINVAL);
	ck_assert_int_eq(conn_transfer_chain(client[0].conn, begin_job(&beyond), parts, 9), -EINVAL);
	client[0].conn->attr.transfers = 100;
	ck_assert_int_eq(conn_transfer_chain(client[0].conn, begin_job(&beyond), parts, CONN_CHAIN_MAX + 1), -EINVAL);
	client[0].conn->attr.transfers = 8;
	ck_assert_int_eq(conn_transfer_chain(client[0].conn, begin_job(&jobs[0]), parts, 5), 0);
	ck_assert_int_eq(conn_transfer_chain(client[0].conn, begin_job(&beyond), parts, 4), -EAGAIN);
	ck_assert_int_eq(conn_transfer_chain(client[0].conn, begin_job(&jobs[1]), parts, 3), 0);
	ck_assert(!conn_transfer_room(client[0].conn, 1));
	PAIR_UNTIL(&pair, client[0].writables);
	for (posted = 2; posted < ARRAY_SIZE(jobs);) {
		if (conn_transfer_chain(client[0].conn, begin_job(&jobs[posted]), parts, 1 + posted % 8) == 0)
			posted++;
		else
			conn_pair_turn(&pair);
	}
	PAIR_UNTIL(&pair, conn_idle(client[0].conn));
	for (unsigned i = 0; i < posted; i++)
		ck_assert(jobs[i].done == 1 && jobs[i].status == FABRIC_OK);
	ck_assert_uint_eq(beyond.done, 0);
	end();
}
END_TEST

/* The first, one in the middle or the last is refused: the connection ends and the job is done once. */
START_TEST(test_chain_fails)
{
	struct conn_part parts[5];
	struct job jobs[2];
	unsigned bad = (unsigned)_i / 2;

	begin_one(_i % 2, 32);
	for (unsigned i = 0; i < 5; i++) {
		parts[i] = part_of(FABRIC_WRITE, 100 * i, 100);
		memset(client[0].memory + 100 * i, 1, 100);
	}
	parts[bad].remote_addr = address_of(&server[0], MEMORY - 99);
	ck_assert_int_eq(conn_transfer_chain(client[0].conn, begin_job(&jobs[0]), parts, 5), 0);
	ck_assert_int_eq(conn_transfer_chain(client[0].conn, begin_job(&jobs[1]), parts, 1), 0);
	PAIR_UNTIL(&pair, client[0].closed && server[0].closed);
	ck_assert_int_eq(client[0].error, -EIO);
	ck_assert_str_eq(client[0].reason, fabric_status_text(FABRIC_REMOTE_ACCESS));
	ck_assert_uint_eq(jobs[0].done, 1);
	ck_assert_int_eq(jobs[0].status, bad == 4 ? FABRIC_REMOTE_ACCESS : FABRIC_FLUSHED);
	ck_assert_uint_eq(jobs[1].done, 1);
	ck_assert_int_eq(jobs[1].status, FABRIC_FLUSHED);
	for (unsigned i = 0; i < 5; i++)
		ck_assert_uint_eq(server[0].memory[100 * i], i < bad);
	end();
}
END_TEST

/* A provider without atomics says so, and the connection goes on. */
START_TEST(test_chain_atomics)
{
	struct conn_part part;
	struct job job;

	begin_one(_i, 32);
	part = part_of(FABRIC_FETCH_ADD, 0, 8);
	ck_assert_int_eq(conn_transfer_chain(client[0].conn, begin_job(&job), &part, 1), -EOPNOTSUPP);
	part = part_of(FABRIC_WRITE, 0, 8);
	ck_assert_int_eq(conn_transfer_chain(client[0].conn, &job.transfer, &part, 1), 0);
	PAIR_UNTIL(&pair, job.done);
	ck_assert_int_eq(job.status, FABRIC_OK);
	end();
}
END_TEST

/* It ends while chains are under way: each is done once, from the burial. */
START_TEST(test_chain_at_the_end)
{
	struct conn_part parts[2];
	struct job jobs[4];

	begin_one(_i, 32);
	parts[0] = parts[1] = part_of(FABRIC_READ, 0, 20000);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(conn_transfer_chain(client[0].conn, begin_job(&jobs[i]), parts, 2), 0);
	conn_close(client[0].conn, 0, "enough");
	ck_assert_int_eq(conn_transfer_chain(client[0].conn, begin_job(&(struct job){0}), parts, 2), -ENOTCONN);
	PAIR_UNTIL(&pair, client[0].closed);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_uint_eq(jobs[i].done, 1);
	end();
}
END_TEST

static void add(Suite *suite, const char *name, const TTest *test, int times)
{
	TCase *tc = suite_case(suite, name, NULL, NULL);

	tcase_add_loop_test(tc, test, 0, times);
	suite_add_tcase(suite, tc);
}

static Suite *suite_of_transfer(void)
{
	Suite *suite = suite_create("transfer");

	add(suite, "order", test_order, 4);
	add(suite, "credits", test_immediates_and_credits, 2);
	add(suite, "serving", test_serving_is_work, 2);
	add(suite, "domains", test_domains_apart, 4);
	add(suite, "buffers", test_own_buffers, 2);
	add(suite, "transfers", test_own_transfers, 2);
	add(suite, "reads", test_own_reads, 2);
	add(suite, "completions", test_completions, 1);
	add(suite, "chain", test_chain, 2);
	add(suite, "chain immediates", test_chain_immediates, 2);
	add(suite, "room", test_chain_room, 2);
	add(suite, "failure", test_chain_fails, 10);
	add(suite, "end", test_chain_at_the_end, 2);
	add(suite, "atomics", test_chain_atomics, 2);
	return suite;
}

int main(void)
{
	log_set_handler(log_keep);
	return suite_run(suite_of_transfer());
}
