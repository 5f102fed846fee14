/* check_peer_guest.c: connections below the library, to a server that nobody has accepted yet: silent ones, and ones that lie. */
#include "tests/peer/peer_clients.h"

struct guest {
	struct engine *engine;
	struct conn *conn;
	bool closed, answered, offered;
	enum wire_status status;
	char words[300];
	struct wire_peer_offer offer;
	struct conn_transfer transfer; /* what it tries */
	bool tried;
	enum fabric_status outcome;
};

static void guest_established(struct conn *conn)
{
	(void)conn;
}

static int guest_record(struct conn *conn, const struct wire_record *record, const void *body)
{
	struct guest *guest = conn_context(conn);

	if (record->op == WIRE_OP_PEER_OFFER) {
		ck_assert_uint_eq(record->length, sizeof(guest->offer));
		memcpy(&guest->offer, body, sizeof(guest->offer));
		guest->offered = true;
		return 0;
	}
	guest->answered = true;
	guest->status = record->status;
	snprintf(guest->words, sizeof(guest->words), "%.*s", (int)record->length, (const char *)body);
	return 0;
}

static void guest_closed(struct conn *conn, int error, const char *reason)
{
	struct guest *guest = conn_context(conn);

	(void)error;
	(void)reason;
	guest->closed = true;
}

static const struct conn_ops guest_ops = {
	.established = guest_established,
	.record = guest_record,
	.closed = guest_closed,
};

#define NOT_YET (0 - 60 * TIME_S) /* their time begins in a minute */

struct guest_call {
	struct guest *guest;
	_Atomic bool done;
};

static void *guest_connects(void *arg)
{
	struct wire_request request = {.service = WIRE_PEER, .credits = 8, .message_size = 8192};
	struct guest_call *call = arg;
	struct guest *guest = call->guest;
	struct engine_options options;
	char address[200];

	engine_options_from(NULL, &options);
	options.poll = 0;
	options.transfers = 4;
	if (strstr(target, "unix:"))
		snprintf(address, sizeof(address), "%s", target);
	else
		snprintf(address, sizeof(address), "%s:%d", target, rdma_port(server));
	if (client_connect(address, &options, NULL, &request, &guest_ops, guest, &guest->engine, &guest->conn) == 0)
		engine_leave(guest->engine);
	call->done = true;
	return NULL;
}

/* Guests that came first have been silent for so long. */
static void guests_have_waited(uint64_t ns)
{
	list_for_each (pos, &server->connections->guests.entries)
		container_of(pos, struct pending_entry, node)->since = time_now() - ns;
}

/* The server turns meanwhile. */
static void guest_comes(struct guest *guest)
{
	struct guest_call call = {guest, false};
	pthread_t thread;

	*guest = (struct guest){.closed = false};
	ck_assert_int_eq(pthread_create(&thread, NULL, guest_connects, &call), 0);
	while (!call.done)
		turn(server);
	pthread_join(thread, NULL);
	ck_assert_msg(guest->conn, "%s", rdmad_error());
}

static void guest_turn(struct guest *guest)
{
	engine_enter(guest->engine);
	engine_turn(guest->engine);
	engine_leave(guest->engine);
}

static void guest_goes(struct guest *guest)
{
	engine_enter(guest->engine);
	if (!guest->closed)
		client_disconnect(guest->engine, guest->conn, &guest->closed);
	engine_leave(guest->engine);
	engine_release(guest->engine);
}

static void guest_says(struct guest *guest, enum wire_op op, const void *body, uint32_t length)
{
	struct wire_record record = {.op = (uint8_t)op};

	engine_enter(guest->engine);
	ck_assert(conn_say(guest->conn, &record, body, length, NULL, 0));
	conn_flush(guest->conn);
	engine_leave(guest->engine);
}

/* Until the guest is answered, or closed. */
static void guest_waits_for(struct guest *guest, const bool *what)
{
	while (!*what) {
		turn(server);
		guest_turn(guest);
	}
}

START_TEST(silent_guests_keep_nobody_out)
{
	struct guest guest[PEER_GUESTS + 4];
	struct client c;

	serve(NULL);
	for (unsigned i = 0; i < ARRAY_SIZE(guest); i++)
		guest_comes(&guest[i]);
	client_accepted(&c, NULL);
	say(c.ctx, 0, "an honest one");
	hear(server, 0, "an honest one");
	guest_waits_for(&guest[0], &guest[0].closed);                     /* gave way */
	guest_waits_for(&guest[PEER_GUESTS], &guest[PEER_GUESTS].closed); /* its time was over */
	for (unsigned i = 0; i < ARRAY_SIZE(guest); i++)
		guest_goes(&guest[i]);
	client_ends(&c);
}
END_TEST

static struct peer_link *first_link(void)
{
	return list_first(&server->connections->links, struct peer_link, node);
}

/* The server was busy with something else while they said hello and another one came. */
START_TEST(who_has_asked_does_not_give_way)
{
	rdma_options options = {.timeout_ms = PATIENCE_MS};
	struct wire_peer_hello hello = {.version = WIRE_PEER_VERSION};
	struct guest guest[PEER_GUESTS];
	struct client c;

	serve(&options);
	for (int i = 0; i < PEER_GUESTS; i++) {
		guest_comes(&guest[i]);
		guests_have_waited(NOT_YET);
	}
	client_begin(&c, NULL);
	for (int i = 0; i < 200; i++) /* it stands at the door */
		turn(server);
	for (int i = 0; i < PEER_GUESTS; i++) {
		hello.session = 100 + (uint64_t)i;
		guest_says(&guest[i], WIRE_OP_PEER_HELLO, &hello, sizeof(hello));
	}
	guests_have_waited(PEER_GUEST_GIVES_WAY);
	for (int i = 0; i < PEER_GUESTS + 1; i++)
		ck_assert_msg(rdma_accept_peer(server) == i, "%s", rdma_get_error());
	client_join(&c);
	ck_assert_msg(c.peer >= 0, "%s", c.why);
	for (int i = 0; i < PEER_GUESTS; i++)
		guest_waits_for(&guest[i], &guest[i].answered);
	for (int i = 0; i < PEER_GUESTS; i++)
		guest_goes(&guest[i]);
	client_ends(&c);
}
END_TEST

/* And one that had to, as its hello was late, does not hear of it. */
START_TEST(who_gave_way_comes_again)
{
	rdma_options options = {.timeout_ms = PATIENCE_MS};
	struct client c;

	serve(&options);
	client_begin(&c, &(rdma_options){.connect_timeout_ms = PATIENCE_MS});
	while (list_empty(&server->connections->links))
		turn(server);
	for (int i = 0; i < 3; i++) {
		if (_i)
			usleep(100000); /* its hello is there, and was not read */
		rdma_enter(server);
		link_close(first_link(), -ETIMEDOUT, "others came, and it had said nothing");
		while (!list_empty(&server->connections->links))
			context_turn(server);
		rdma_leave(server);
		while (list_empty(&server->connections->links))
			turn(server);
	}
	ck_assert_msg(rdma_accept_peer(server) == 0, "%s", rdma_get_error());
	client_join(&c);
	ck_assert_msg(c.peer == 0, "%s", c.why);
	client_ends(&c);
}
END_TEST

START_TEST(guests_who_lie)
{
	static const char junk[200] = "junk";
	static const struct {
		enum wire_op op;
		uint32_t length;
	} lies[] = {
		{WIRE_OP_PEER_HELLO, 0},  {WIRE_OP_PEER_HELLO, 1},  {WIRE_OP_PEER_DATA, 100},
		{WIRE_OP_PEER_OFFER, 40}, {WIRE_OP_PEER_TAKEN, 0},  {WIRE_OP_PEER_CONFIRM, 48},
		{WIRE_OP_PEER_BYE, 0},    {WIRE_OP_PEER_JOIN, 100}, {WIRE_OP_ECHO, 100},
	};
	uint16_t version = WIRE_PEER_VERSION;

	serve(NULL);
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		struct guest guest;

		guest_comes(&guest);
		guest_says(&guest, lies[i].op, junk, lies[i].length);
		guest_waits_for(&guest, &guest.closed);
		guest_goes(&guest);
	}
	for (uint32_t length = 2; length < sizeof(struct wire_peer_hello); length += 35) {
		struct guest guest;
		char hello[sizeof(struct wire_peer_hello)] = "";

		memcpy(hello, &version, sizeof(version));
		guest_comes(&guest);
		guest_says(&guest, WIRE_OP_PEER_HELLO, hello, length);
		guest_waits_for(&guest, &guest.closed);
		guest_goes(&guest);
	}
	ck_assert_int_eq(rdma_peers(server), 0);
}
END_TEST

START_TEST(a_session_needs_its_secret)
{
	rdma_options options = {.reconnect_ms = PATIENCE_MS};
	struct wire_peer_hello hello = {.version = WIRE_PEER_VERSION, .flags = WIRE_PEER_RESUME};
	struct guest guest;
	struct client c;

	serve(&options);
	client_accepted(&c, &options);
	hello.session = server->peer[0]->session->id;
	guest_comes(&guest);
	guest_says(&guest, WIRE_OP_PEER_HELLO, &hello, sizeof(hello));
	guest_waits_for(&guest, &guest.answered);
	ck_assert_int_eq(guest.status, WIRE_NOT_FOUND);
	ck_assert_ptr_nonnull(strstr(guest.words, "the session is over here"));
	guest_goes(&guest);
	say(c.ctx, 0, "still there");
	hear(server, 0, "still there");
	client_ends(&c);
}
END_TEST

/*
 * What they reach
 */
static void guest_tried(struct conn_transfer *transfer, enum fabric_status status)
{
	struct guest *guest = container_of(transfer, struct guest, transfer);

	guest->outcome = status;
	guest->tried = true;
}

/* Reads or writes 64 bytes, which end what it is allowed or not. */
static enum fabric_status guest_tries(struct guest *guest, bool write, const void *addr, uint32_t rkey, void *bytes)
{
	struct landing *landing;
	struct fabric_sge sge;
	int rc;

	engine_enter(guest->engine);
	landing = landing_take(engine_buffers(guest->engine), 64, FABRIC_REMOTE_WRITE);
	memcpy(landing_data(landing), bytes, 64);
	sge = (struct fabric_sge){landing_data(landing), 64, landing_region(landing)};
	guest->tried = false;
	guest->transfer = (struct conn_transfer){.done = guest_tried};
	rc = write ? conn_write(guest->conn, &guest->transfer, &sge, (uintptr_t)addr, rkey)
		   : conn_read(guest->conn, &guest->transfer, &sge, (uintptr_t)addr, rkey);
	ck_assert_int_eq(rc, 0);
	engine_leave(guest->engine);
	guest_waits_for(guest, &guest->tried);
	if (guest->outcome != FABRIC_OK)
		guest_waits_for(guest, &guest->closed);
	engine_enter(guest->engine);
	memcpy(bytes, landing_data(landing), 64);
	landing_give(landing);
	engine_leave(guest->engine);
	return guest->outcome;
}

static void guest_is_refused(struct guest *guest, bool write, const void *addr, uint32_t rkey)
{
	char bytes[64], before[64], kept[64];

	memset(bytes, 0x11, sizeof(bytes));
	memcpy(kept, bytes, sizeof(kept));
	memcpy(before, addr, sizeof(before));
	ck_assert_int_ne(guest_tries(guest, write, addr, rkey, bytes), FABRIC_OK);
	ck_assert_mem_eq(addr, before, sizeof(before));
	ck_assert_mem_eq(bytes, kept, sizeof(kept));
	guest_goes(guest);
}

static void guest_is_accepted(struct guest *guest, int index)
{
	struct wire_peer_hello hello = {.version = WIRE_PEER_VERSION, .session = 77 + (uint64_t)index, .room = 4096};

	guest_comes(guest);
	guest_says(guest, WIRE_OP_PEER_HELLO, &hello, sizeof(hello));
	ck_assert_msg(rdma_accept_peer(server) == index, "%s", rdma_get_error());
	guest_waits_for(guest, &guest->answered);
	ck_assert_int_eq(guest->status, WIRE_OK);
}

static struct fabric_domain *server_domain(void)
{
	return conn_group_domain(engine_group(first_link()->engine));
}

static struct fabric_limits server_limits(void)
{
	struct fabric_limits limits;

	fabric_limits(fabric_domain_fabric(server_domain()), &limits);
	return limits;
}

/* Nobody has accepted it. It knows the address and a true key of memory that anybody may read and write. */
START_TEST(guests_reach_nothing)
{
	const char asks = _i % 2, writes = _i / 2;
	struct wire_peer_hello hello = {.version = WIRE_PEER_VERSION, .session = 77};
	static _Alignas(4096) char memory[4096];
	struct fabric_region *region;
	struct guest guest;

	serve(NULL);
	guest_comes(&guest);
	if (asks) {
		guest_says(&guest, WIRE_OP_PEER_HELLO, &hello, sizeof(hello));
		while (list_empty(&server->waiting))
			turn(server);
	}
	ck_assert_int_eq(fabric_register(server_domain(), memory, sizeof(memory),
					 FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE, &region),
			 0);
	if (!server_limits().open_sinks)
		guest_is_refused(&guest, writes, memory, fabric_region_rkey(region, conn_endpoint(first_link()->conn)));
	else
		guest_goes(&guest);
	fabric_deregister(region);
	ck_assert_int_eq(rdma_peers(server), 0);
}
END_TEST

/* Of memory that is registered as a whole a peer reads what it is offered, and changes nothing; another peer does not even that. */
START_TEST(offers_show_what_is_sent)
{
	enum { LENGTH = 64 * 1024, FROM = 128 * 1024, WHOLE = 1024 * 1024 };
	static _Alignas(4096) char memory[WHOLE];
	struct guest guest, other;
	rdma_request *sent;
	char bytes[64] = "";
	bool windows;

	serve(NULL);
	ck_assert_msg(rdma_register(server, memory, WHOLE) == 0, "%s", rdma_get_error());
	memset(memory, 0x22, WHOLE);
	memset(memory + FROM, 0x33, LENGTH);
	guest_is_accepted(&guest, 0);
	windows = server_limits().windows;
	guest_is_accepted(&other, 1);
	sent = rdma_isend(server, 0, memory + FROM, LENGTH);
	ck_assert_msg(sent, "%s", rdma_get_error());
	guest_waits_for(&guest, &guest.offered);
	ck_assert_uint_eq(guest.offer.addr, (uintptr_t)memory + FROM);
	ck_assert_int_eq(guest_tries(&guest, false, memory + FROM, guest.offer.rkey, bytes), FABRIC_OK);
	ck_assert_mem_eq(bytes, memory + FROM, sizeof(bytes));
	ck_assert_int_eq(guest_tries(&guest, false, memory + FROM + LENGTH - 64, guest.offer.rkey, bytes), FABRIC_OK);
	if (windows)
		guest_is_refused(&other, false, memory + FROM, guest.offer.rkey);
	else
		guest_goes(&other);
	if (_i == 0)
		guest_is_refused(&guest, true, memory + FROM, guest.offer.rkey);
	else if (_i == 1 && windows)
		guest_is_refused(&guest, false, memory + FROM + LENGTH - 32, guest.offer.rkey);
	else if (_i == 2 && windows)
		guest_is_refused(&guest, false, memory, guest.offer.rkey);
	else
		guest_goes(&guest);
	ck_assert_int_ne(rdma_wait(sent, PATIENCE_MS, NULL), 0);
	ck_assert_msg(rdma_unregister(server, memory) == 0, "%s", rdma_get_error());
}
END_TEST

/* A crowd of a group that nobody forms is refused; one that waits to be accepted keeps nobody out: neither a client of another source
 * (here: none can be told from another, so the first gives way), nor this program, which connects and accepts others. */
START_TEST(strangers_take_no_place_of_peers)
{
	rdma_options options = {.max_peers = 4};
	struct wire_peer_hello hello = {.version = WIRE_PEER_VERSION, .group = 0x1234567};
	struct guest guest[6];
	struct client c;

	serve(&options);
	for (unsigned i = 0; i < ARRAY_SIZE(guest); i++) {
		hello.session = 100 + i;
		guest_comes(&guest[i]);
		guest_says(&guest[i], WIRE_OP_PEER_HELLO, &hello, sizeof(hello));
		guest_waits_for(&guest[i], &guest[i].answered);
		ck_assert_int_eq(guest[i].status, WIRE_NOT_FOUND);
		guest_goes(&guest[i]);
	}
	hello.group = 0;
	for (unsigned i = 0; i < ARRAY_SIZE(guest); i++) {
		hello.session = 200 + i;
		guest_comes(&guest[i]);
		guest_says(&guest[i], WIRE_OP_PEER_HELLO, &hello, sizeof(hello));
		for (unsigned k = 0; k < 50; k++) {
			turn(server);
			guest_turn(&guest[i]);
		}
	}
	ck_assert_uint_eq(server->connections->held, 0);
	guest_waits_for(&guest[0], &guest[0].answered);
	ck_assert_int_eq(guest[0].status, WIRE_BUSY);
	guest_waits_for(&guest[1], &guest[1].answered);
	client_begin(&c, NULL); /* it waits behind those four, of whom the first gives way */
	guest_waits_for(&guest[2], &guest[2].answered);
	ck_assert_int_eq(guest[2].status, WIRE_BUSY);
	for (unsigned i = 0; i < ARRAY_SIZE(guest); i++)
		guest_goes(&guest[i]);
	do {
		ck_assert_int_ge(rdma_accept_peer(server), 0);
		usleep(50000); /* a stranger that has gone is none after that */
	} while (rdma_peers(server) == 0);
	client_join(&c);
	ck_assert_msg(c.peer >= 0, "%s", c.why);
	client_ends(&c);
}
END_TEST

static void guest_asks(struct guest *guest, uint64_t session)
{
	struct wire_peer_hello hello = {.version = WIRE_PEER_VERSION, .session = session};

	guest_comes(guest);
	guest_says(guest, WIRE_OP_PEER_HELLO, &hello, sizeof(hello));
}

static unsigned waiting(void)
{
	unsigned n = 0;

	list_for_each (pos, &server->waiting)
		n++;
	return n;
}

#define PEERS (2 * PEER_GUESTS + 2) /* so that these, and as many that wait, are more than peers and guests */

/* As many wait as there may be peers, beside the peers that there are; and another one comes in. */
START_TEST(strangers_leave_room_beside_peers)
{
	rdma_options options = {.max_peers = PEERS};
	static struct guest guest[2 * PEERS];

	if (strstr(target, "rdma:"))
		return; /* the limit is the same, and so many queue pairs take long */
	serve(&options);
	for (unsigned i = 0; i < ARRAY_SIZE(guest); i++) {
		guest_asks(&guest[i], 100 + i);
		if (i < PEERS - 1)
			ck_assert_msg(rdma_accept_peer(server) >= 0, "%s", rdma_get_error());
		while (i >= PEERS - 1 && i < 2 * PEERS - 1 && waiting() < i - PEERS + 2)
			turn(server);
	}
	ck_assert_uint_eq(server->connections->held, PEERS - 1);
	guest_waits_for(&guest[PEERS - 1], &guest[PEERS - 1].answered);
	ck_assert_int_eq(guest[PEERS - 1].status, WIRE_BUSY);
	ck_assert_uint_eq(waiting(), PEERS);
	for (unsigned i = 0; i < ARRAY_SIZE(guest); i++)
		guest_goes(&guest[i]);
}
END_TEST

/* One that waits to be accepted has not admitted this side, nor this side it: neither ends the other by looking whether it is there. */
START_TEST(accepted_after_many_heartbeats)
{
	rdma_options options = {.heartbeat_ms = 100};
	uint64_t until = time_now() + 2 * TIME_S;
	struct client c;

	serve(&options);
	client_begin(&c, &options);
	while (time_now() < until)
		turn(server);
	ck_assert_msg(rdma_accept_peer(server) == 0, "%s", rdma_get_error());
	client_join(&c);
	ck_assert_msg(c.peer >= 0, "%s", c.why);
	for (until = time_now() + TIME_S; time_now() < until;)
		turn(server);
	say(c.ctx, 0, "still here");
	hear(server, 0, "still here");
	client_ends(&c);
}
END_TEST

static Suite *suite_make(const char *name)
{
	Suite *suite = suite_create(name);
	TCase *tc = suite_case(suite, "guests", set_up, tear_down);

	tcase_add_test(tc, silent_guests_keep_nobody_out);
	tcase_add_test(tc, who_has_asked_does_not_give_way);
	tcase_add_loop_test(tc, who_gave_way_comes_again, 0, 2);
	tcase_add_test(tc, guests_who_lie);
	tcase_add_test(tc, a_session_needs_its_secret);
	tcase_add_loop_test(tc, guests_reach_nothing, 0, 4);
	tcase_add_loop_test(tc, offers_show_what_is_sent, 0, 4);
	tcase_add_test(tc, strangers_take_no_place_of_peers);
	tcase_add_test(tc, strangers_leave_room_beside_peers);
	tc = suite_case(suite, "heartbeats", set_up, tear_down);
	tcase_add_test(tc, accepted_after_many_heartbeats);
	return suite;
}

int main(int argc, char **argv)
{
	return run_over_each(argc, argv, suite_make);
}
