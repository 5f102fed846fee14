/*
 * gpu_keys.c: guessed keys. `gpu_keys ADDRESS KEYS`: a victim has a session of the gpu service in queue mode, so there
 * is a ring that the right connection reads and writes by an address and a key. Others connect, and each names one
 * key at the victim's true address: the victim's own keys and those near them, for a read and for a write, and the keys from
 * 0 to KEYS - 1, for one of the two. Every one must be refused, and lose its own connection, as nobody else does. At the
 * end the victim's ring is untouched, and its session does a job. check_gpu_keys.sh starts the server.
 */
#include <poll.h>
#include <stdlib.h>

#include "conn/conn.h"
#include "wire/gpu_operations.h"
#include "wire/ring.h"

#define ATTACKERS 32           /* at the same time */
#define PATIENCE (60 * TIME_S) /* without any news */
#define AGAIN (10 * TIME_MS)   /* after a refusal */
#define REPORT (30 * TIME_S)
#define OVERTAKEN 3  /* times that an attempt may not be told of its refusal */
#define NEAR 600     /* keys near the victim's, at most */
#define ROOM 4096    /* of each client's memory */
#define PAYLOAD 1000 /* of the victim's job */
#define MARK 1       /* an attacker writes it: to the victim's worker, a job */

struct client {
	struct conn *conn;
	struct wire_gpu_ring ring; /* of its session, if it opens one */
	bool opened;
	uint8_t *memory;
	struct conn_transfer transfer;
	bool transferring;
	enum fabric_status status;
	struct attempt *attempt; /* NULL: an attacker with nothing to do, or the victim */
	uint64_t again;          /* not before this time */
};

struct attempt {
	uint32_t key;
	bool writes;
	bool session; /* of a client that has a session, too */
	unsigned overtaken;
};

static struct address_socket server[ADDRESS_SOCKETS];
static struct conn_group *group;
static struct fabric_region *region; /* of all clients' memory */
static _Alignas(64) uint8_t memory[ATTACKERS + 1][ROOM];
static struct client victim, attackers[ATTACKERS];
static struct attempt *attempts;
static unsigned count, begun, refused, overtaken, connections, tried;
static uint64_t news, reported; /* when something went on last, and when that was told */
static char why[200];           /* the last connection was not to be had */
static bool leaving;

static void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

static void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\n");
	exit(1);
}

/*
 * Connections
 */
static void nap(void)
{
	struct fabric_queue *queue = conn_group_queue(group);
	struct pollfd fds[FABRIC_MAX_FDS];
	int fd[FABRIC_MAX_FDS], n = fabric_fds(queue, fd);

	for (int i = 0; i < n; i++)
		fds[i] = (struct pollfd){.fd = fd[i], .events = POLLIN};
	fabric_arm(queue);
	if (conn_group_progress(group, time_now()) == 0)
		poll(fds, (nfds_t)n, AGAIN / TIME_MS);
}

static void turn(void)
{
	if (conn_group_progress(group, time_now()) == 0)
		nap();
	if (time_now() > news + PATIENCE)
		die("nothing goes on: %u of %u attempts were refused; %s", refused, count, why);
}

static void transferred(struct conn_transfer *transfer, enum fabric_status status)
{
	struct client *c = container_of(transfer, struct client, transfer);

	c->transferring = false;
	c->status = status;
	news = time_now();
}

static void begin_transfer(struct client *c, bool writes, size_t length, uint64_t remote, uint32_t key)
{
	struct fabric_sge sge = {c->memory, length, region};
	int rc;

	c->transfer.done = transferred;
	c->transferring = true;
	rc = writes ? conn_write(c->conn, &c->transfer, &sge, remote, key)
		    : conn_read(c->conn, &c->transfer, &sge, remote, key);
	if (rc != 0)
		die("a transfer cannot be posted: %s", strerror(-rc));
}

/* Where the right key would open the door: what may be read, and the word that tells of jobs, which may be written. */
static void attack(struct client *c)
{
	const struct attempt *a = c->attempt;

	memset(c->memory, MARK, sizeof(uint64_t));
	begin_transfer(c, a->writes, sizeof(uint64_t), a->writes ? victim.ring.client_addr : victim.ring.worker_addr,
		       a->key);
}

static void on_established(struct conn *conn)
{
	static const struct wire_gpu_open open = {.mode = WIRE_GPU_QUEUE, .payload = PAYLOAD};
	struct client *c = conn_context(conn);

	conn_admit(conn);
	connections++;
	if (c->attempt && !c->attempt->session) {
		attack(c);
		return;
	}
	if (!conn_say(conn, &(struct wire_record){.op = WIRE_OP_GPU_OPEN}, &open, sizeof(open), NULL, 0))
		die("there is no room for the first record");
}

static int on_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct client *c = conn_context(conn);

	if (record->op != WIRE_OP_GPU_OPEN || record->length != sizeof(c->ring))
		die("operation %u came: %.*s", record->op, record->op == WIRE_OP_GPU_ENDED ? (int)record->length : 0,
		    (const char *)body);
	memcpy(&c->ring, body, sizeof(c->ring));
	c->opened = true;
	if (c->attempt)
		attack(c);
	return 0;
}

/* The server ends the connection once it has refused. Over RDMA its farewell and the refusal go different ways, and where
 * the first is faster, nobody is told of the second: such an attempt is made again. */
static bool was_refused(const struct client *c, const char *reason)
{
	static const uint8_t untouched[sizeof(uint64_t)] = {MARK, MARK, MARK, MARK, MARK, MARK, MARK, MARK};
	struct attempt *a = c->attempt;

	if (c->status != FABRIC_REMOTE_ACCESS && (c->status != FABRIC_FLUSHED || ++a->overtaken > OVERTAKEN))
		die("key %#x, by a %s at the ring of another (keys %#x and %#x): %s, and the connection: %s", a->key,
		    a->writes ? "write" : "read", victim.ring.worker_rkey, victim.ring.client_rkey,
		    fabric_status_text(c->status), reason);
	if (memcmp(c->memory, untouched, sizeof(untouched)) != 0)
		die("key %#x was refused, but brought something", a->key);
	return c->status == FABRIC_REMOTE_ACCESS;
}

static void on_closed(struct conn *conn, int error, const char *reason)
{
	struct client *c = conn_context(conn);

	c->conn = NULL;
	if (c == &victim) {
		if (!leaving)
			die("the victim's connection ended: %s: %s", reason, strerror(-error));
	} else if (c->transfer.done) {
		if (was_refused(c, reason)) {
			refused++;
			c->attempt = NULL;
		} else {
			overtaken++;
		}
	} else { /* too many are connected, or not buried yet */
		snprintf(why, sizeof(why), "%s", reason);
		c->again = time_now() + AGAIN;
	}
}

static const struct conn_ops ops = {
	.established = on_established,
	.record = on_record,
	.closed = on_closed,
};

static void connect_client(struct client *c)
{
	struct wire_request request = {
		.service = WIRE_GPU, .credits = WIRE_CREDITS_MIN, .message_size = WIRE_MESSAGE_MIN};
	int rc;

	c->transfer.done = NULL;
	rc = conn_connect(group, (struct sockaddr *)&server->sa, server->len, &request, NULL, &ops, c, time_now(),
			  &c->conn);
	if (rc != 0)
		die("cannot connect: %s", strerror(-rc));
}

/*
 * The attackers
 */
static void add(uint32_t key, bool writes, bool session)
{
	attempts[count++] = (struct attempt){.key = key, .writes = writes, .session = session};
}

static void add_both(uint32_t key, bool session)
{
	add(key, false, session);
	add(key, true, session);
	tried++;
}

/* Keys of devices count up in their upper 24 bits, and in the lower 8 with each use of the same. */
static void add_near(uint32_t key)
{
	add_both(key, true);
	add_both(key, false);
	for (uint32_t low = 1; low < 256; low++)
		add_both(key ^ low, false);
	for (unsigned bit = 8; bit < 32; bit++)
		add_both(key ^ 1u << bit, false);
	for (uint32_t distance = 1; distance <= 8; distance++) {
		add_both(key + (distance << 8), false);
		add_both(key - (distance << 8), false);
	}
}

static void make_attempts(unsigned keys)
{
	attempts = calloc(2 * NEAR + keys, sizeof(*attempts));
	if (!attempts)
		die("out of memory");
	add_near(victim.ring.worker_rkey);
	add_near(victim.ring.client_rkey);
	for (uint32_t key = 0; key < keys; key++, tried++)
		add(key, (key ^ key >> 8) & 1, false);
}

static void report(void)
{
	uint64_t now = time_now();

	if (now < reported + REPORT)
		return;
	printf("%u of %u attempts\n", refused, count);
	fflush(stdout);
	reported = now;
}

static void attack_all(void)
{
	while (refused < count) {
		for (struct client *c = attackers; c < attackers + ATTACKERS; c++) {
			if (!c->attempt && begun < count)
				c->attempt = &attempts[begun++];
			if (c->attempt && !c->conn && time_now() >= c->again)
				connect_client(c);
		}
		turn();
		report();
	}
}

/*
 * The victim
 */
static void open_victim(void)
{
	connect_client(&victim);
	while (!victim.opened)
		turn();
}

static void reach(bool writes, size_t length, uint64_t remote)
{
	begin_transfer(&victim, writes, length, remote, writes ? victim.ring.client_rkey : victim.ring.worker_rkey);
	while (victim.transferring)
		turn();
	if (victim.status != FABRIC_OK)
		die("the victim cannot reach its own ring: %s", fabric_status_text(victim.status));
}

/* Header and lines of the worker's part, as they are now. */
static const struct wire_ring_worker_line *look(const struct wire_ring_layout *at)
{
	const struct wire_ring_header *header = (const void *)victim.memory;

	reach(false, at->lines + victim.ring.queues * sizeof(struct wire_ring_worker_line), victim.ring.worker_addr);
	if (header->magic != WIRE_RING_MAGIC || header->state != WIRE_RING_RUNNING || header->error)
		die("the victim's ring: magic %#llx, state %u, error %u", (unsigned long long)header->magic,
		    header->state, header->error);
	return (const void *)(victim.memory + at->lines);
}

/* Of the client's part, which cannot be read, the worker tells: it has seen no job. */
static void check_untouched(const struct wire_ring_layout *at)
{
	const struct wire_ring_worker_line *line = look(at);

	for (uint32_t q = 0; q < victim.ring.queues; q++)
		if (line[q].taken || line[q].done)
			die("queue %u of the victim has a job that is not its own", q);
}

static void check_works(const struct wire_ring_layout *at)
{
	struct wire_ring_job *job = (void *)victim.memory;
	const struct wire_ring_result *result = (const void *)victim.memory;
	const uint64_t submitted = 1;
	uint64_t until = time_now() + PATIENCE;

	*job = (struct wire_ring_job){.sequence = 1, .op = WIRE_RING_ECHO, .length = PAYLOAD};
	memset(job + 1, 'k', PAYLOAD);
	reach(true, sizeof(*job) + PAYLOAD, victim.ring.client_addr + at->jobs - at->client);
	memcpy(victim.memory, &submitted, sizeof(submitted));
	reach(true, sizeof(submitted), victim.ring.client_addr);
	while (look(at)->done == 0)
		if (time_now() > until)
			die("the victim's job is not done");
	reach(false, sizeof(*result) + PAYLOAD, victim.ring.worker_addr + at->results);
	if (result->sequence != 1 || result->length != PAYLOAD ||
	    result->check != wire_ring_check(result, result + 1) || ((const char *)(result + 1))[PAYLOAD - 1] != 'k')
		die("the victim's job has a wrong result");
}

static void leave(void)
{
	leaving = true;
	conn_close(victim.conn, 0, "the test is over");
	while (victim.conn)
		turn();
}

/*
 * The whole
 */
static void open_group(const char *text, struct fabric **fabric, struct fabric_domain **domain)
{
	const struct conn_group_attr attr = {
		.message_size = WIRE_MESSAGE_MIN,
		.message_max = WIRE_MESSAGE_MIN,
		.credits = WIRE_CREDITS_MIN,
		.receives = 4 * (ATTACKERS + 1),
		.max_connections = ATTACKERS + 1,
		.transfers = 1,
		.handshake_timeout = 10 * TIME_S,
	};
	struct address address;

	if (address_parse(text, &address) != 0 || address_resolve(&address, server) < 1 ||
	    fabric_open(strcmp(address.scheme, "rdma") == 0 ? "verbs" : "soft", NULL, fabric) != 0 ||
	    fabric_domain_create(*fabric, domain) != 0 || conn_group_create(*domain, &attr, &group) != 0 ||
	    fabric_register(*domain, memory, sizeof(memory), FABRIC_LOCAL_WRITE, &region) != 0)
		die("there is no way to %s", text);
	victim.memory = memory[ATTACKERS];
	for (unsigned i = 0; i < ATTACKERS; i++)
		attackers[i].memory = memory[i];
}

int main(int argc, char **argv)
{
	struct fabric *fabric;
	struct fabric_domain *domain;
	struct wire_ring_layout at;
	uint64_t keys;

	if (argc != 3 || units_parse_number(argv[2], 0, 1u << 24, &keys) != 0) {
		fprintf(stderr, "usage: gpu_keys ADDRESS KEYS\n");
		return 2;
	}
	news = reported = time_now();
	open_group(argv[1], &fabric, &domain);
	open_victim();
	at = wire_ring_layout(&(struct wire_ring_shape){victim.ring.queues, victim.ring.slots, victim.ring.payload});
	make_attempts((unsigned)keys);
	attack_all();
	check_untouched(&at);
	check_works(&at);
	leave();
	if (overtaken)
		printf("%u refusals were overtaken by the end of their connection\n", overtaken);
	printf("%u keys refused, %u connections\n", tried, connections);
	fabric_deregister(region);
	conn_group_destroy(group);
	fabric_domain_destroy(domain);
	fabric_close(fabric);
	free(attempts);
	return 0;
}
