/* check_mover.c: slots go with their values from one store to another server's, while others write. The test is the
 * main thread of both, and says what an engine would. */
#include "tests/client/caller.h"
#include "tests/suite.h"

#include "client/client.h"
#include "daemon/daemon.h"

#include <unistd.h>

#define KEYS 100000u
#define MOVED 8192u /* slots, from 0 on */
#define EPOCH 7u
#define LIMIT (120 * TIME_S)
#define BOOT "0123456789abcdef0123456789abcdef"

static const char *transports[] = {"tcp", "unix"}; /* all "rdma" where there is a device, at $RDMAD_GUEST_ADDR */

static struct services donor;
static struct daemon d;
static struct cluster_table table, next;
static struct cluster_entry entry;
static struct mover *mover;
static uint8_t moved[CLUSTER_SLOT_BYTES], all[CLUSTER_SLOT_BYTES];
static uint64_t patience = 10 * TIME_S;
static unsigned told;
static atomic_bool writing;
static _Atomic uint64_t turns; /* of the receiver's worker */
static char *value;

static struct kv_shared *donor_kv(void)
{
	return donor.shared.of[WIRE_KV];
}

static struct kv_shared *receiver_kv(void)
{
	return server.services.shared.of[WIRE_KV];
}

static const struct kv_view *receiver_view(void)
{
	return atomic_load(&receiver_kv()->cluster->view);
}

static bool allowed(void *arg, const struct cluster_session *session, char *why, size_t size)
{
	return cluster_session_allowed(session, arg, 1, &entry, why, size);
}

static bool abandoned(void *arg, const struct cluster_session *session)
{
	(void)arg;
	return entry.out && session->complete;
}

/* A turn of both main threads, and of the donor's worker. */
static void main_turn(void)
{
	kv_service_cluster.receive(receiver_kv(), allowed, abandoned, &table);
	service_shared_tick(&server.services.shared, time_now());
	services_set_time(&donor, time_now());
	services_turn(&donor);
	service_shared_tick(&donor.shared, time_now());
	loop_once(d.loop, TIME_MS);
}

#define TURN_UNTIL(condition)                                                                                          \
	do {                                                                                                           \
		uint64_t until_ = time_now() + LIMIT;                                                                  \
		while (!(condition)) {                                                                                 \
			main_turn();                                                                                   \
			ck_assert_uint_lt(time_now(), until_);                                                         \
		}                                                                                                      \
	} while (0)

static void woken(void *arg)
{
	mover_turn(arg);
}

static void note_change(void *arg)
{
	(void)arg;
	told++;
}

static void make_table(void)
{
	table = (struct cluster_table){.name = "test", .epoch = EPOCH};
	for (unsigned i = 0; i < 2; i++) {
		struct cluster_node node = {.name = {i ? 'q' : 'p'}};

		ck_assert_int_eq(cluster_node_set(&node, CLUSTER_NATIVE, i ? "10.0.0.2:7471" : "10.0.0.1:7471"), 0);
		ck_assert_int_eq(cluster_add(&table, &node), 0);
	}
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++) {
		table.owner[slot] = 0;
		table.to[slot] = slot < MOVED ? 2 : 0;
		cluster_bit_set(all, slot);
		if (slot < MOVED)
			cluster_bit_set(moved, slot);
	}
	next = table;
	next.epoch++;
	for (unsigned slot = 0; slot < MOVED; slot++) {
		next.owner[slot] = 1;
		next.to[slot] = 0;
		next.moved[slot] = next.epoch;
	}
}

static int count_turn(void)
{
	turns++;
	return 0;
}

static void open_both(const char *transport)
{
	struct server_options options = {
		.transport = transport,
		.work = count_turn,
		.services = {.arena = 256 * MIB, .push_max = 64 * KIB, .cluster_engine = true, .cluster_node = "q"}};

	make_table();
	entry = (struct cluster_entry){.node = "p", .boot = BOOT, .revision = 1};
	services_open(&donor,
		      &(struct services_options){.arena = 256 * MIB, .cluster_engine = true, .cluster_node = "p"});
	server_start(&options);
	d = (struct daemon){.main = thread_self()};
	ck_assert_int_eq(loop_create(&d.loop), 0);
	loop_on_wake(d.loop, woken, &d);
	kv_service_cluster.until(donor_kv(), TIME_NEVER);
	kv_service_cluster.until(receiver_kv(), TIME_NEVER);
	ck_assert_int_eq(kv_cluster_change(donor_kv(), &table, all), 0);
	ck_assert_int_eq(kv_cluster_change(receiver_kv(), &table, all), 0);
	told = 0;
	value = malloc(MIB);
	ck_assert_ptr_nonnull(value);
	for (unsigned i = 0; i < MIB; i++)
		value[i] = (char)(i * 7 + i / 251);
}

static void close_both(void)
{
	mover_close(mover);
	mover = NULL;
	ck_assert_uint_eq(services_store_stats(&donor).pins, 0);
	server_stop();
	services_close(&donor);
	loop_destroy(d.loop);
	free(value);
}

static void open_mover(void)
{
	struct mover_attr attr = {.address = server.address,
				  .cluster = "test",
				  .node = "p",
				  .boot = BOOT,
				  .epoch = EPOCH,
				  .patience = patience,
				  .service = service_find(WIRE_KV),
				  .shared = donor_kv(),
				  .changed = note_change};

	memcpy(attr.slots, moved, sizeof(moved));
	ck_assert_int_eq(mover_open(&d, &attr, &mover), 0);
}

static void await_state(enum mover_state state)
{
	TURN_UNTIL(mover_state(mover) >= state);
	ck_assert_msg(mover_state(mover) == state, "%d: %s", mover_state(mover), mover_reason(mover));
}

/* Lengths of all kinds; few are long. */
static size_t length_of(unsigned i, unsigned round)
{
	unsigned mix = (i * 2654435761u) ^ (round * 40503u);

	return i % 1000 == 0 ? mix % (MIB + 1) : i % 50 == 0 ? mix % 9000 : mix % 200;
}

static size_t key_of(unsigned i, char key[static 32])
{
	return (size_t)snprintf(key, 32, "key%u", i);
}

/* A key of the donor gets another value, and attributes, or goes. */
static void write_key(unsigned i, unsigned round)
{
	struct store_put put = {.expires = i % 7 == 0 ? time_now() + 3600 * TIME_S : TIME_NEVER,
				.flags = i % 3 == 0 ? i : 0,
				.type = i % 5 == 0 ? STORE_HASH | (i % 2 ? STORE_STALE : 0) : STORE_STRING};
	size_t len = length_of(i, round);
	char key[32];
	int rc;

	if (round && (i + round) % 11 == 0) {
		store_delete(donor.store, key, key_of(i, key), 0, time_now());
		return;
	}
	do
		rc = store_set(donor.store, key, key_of(i, key), value + (i + round) % 64, MIN(len, MIB - 64), &put,
			       time_now(), NULL);
	while (rc == -EAGAIN);
	ck_assert_int_eq(rc, 0);
}

static void *write_keys(void *arg)
{
	const unsigned keys = (unsigned)suite_part(KEYS);

	for (unsigned i = 1; atomic_load(&writing); i++) {
		write_key((unsigned)((uint64_t)i * 7919 % keys), 1 + i / keys);
		if (i % 64 == 0)
			usleep(500);
	}
	return arg;
}

struct compare {
	unsigned here, away;
};

static bool count_key(void *arg, const void *key, size_t key_len, const struct store_meta *meta)
{
	struct compare *c = arg;

	(void)meta;
	if (cluster_slot(key, key_len) < MOVED)
		c->here++;
	else
		c->away++;
	return true;
}

static struct compare count_keys(struct store *store)
{
	struct compare c = {0};
	uint64_t cursor = 0;

	do
		store_scan(store, &cursor, 1000, "", 0, time_now(), count_key, &c);
	while (cursor);
	return c;
}

static void compare_key(unsigned i)
{
	struct store_ref here, there;
	char key[32];
	size_t len = key_of(i, key);
	uint64_t now = time_now();
	int found = store_get(donor.store, key, len, now, &here);

	if (cluster_slot(key, len) >= MOVED) {
		store_unpin(donor.store, &here);
		return;
	}
	ck_assert_int_eq(store_get(server.services.store, key, len, now, &there), found);
	if (!found)
		return;
	ck_assert_uint_eq(here.len, there.len);
	ck_assert(memcmp(here.addr, there.addr, here.len) == 0);
	ck_assert_uint_eq(here.flags, there.flags);
	ck_assert_uint_eq(here.type, there.type);
	ck_assert_uint_eq(here.stale, there.stale);
	ck_assert_uint_eq(here.expires == TIME_NEVER, there.expires == TIME_NEVER);
	if (here.expires != TIME_NEVER)
		ck_assert_uint_lt(here.expires > there.expires ? here.expires - there.expires
							       : there.expires - here.expires,
				  100 * TIME_S);
	ck_assert_uint_gt(there.version, here.version); /* no client has it of another value */
	store_unpin(donor.store, &here);
	store_unpin(server.services.store, &there);
}

static int count_each(void *arg, const void *key, size_t key_len, const struct kv_meta *meta)
{
	(void)key, (void)key_len, (void)meta;
	++*(unsigned *)arg;
	return 0;
}

static unsigned shown_keys(void)
{
	void *kv = open_kv(NULL, NULL);
	unsigned n = 0;

	ck_assert_int_eq(kv_each(kv, NULL, 0, count_each, &n), 0);
	kv_close(kv);
	return n;
}

START_TEST(test_all_keys_move)
{
	const unsigned keys = (unsigned)suite_part(KEYS);
	struct compare before, after;
	pthread_t writer[2];

	open_both(transports[_i]);
	for (unsigned i = 0; i < keys; i++)
		write_key(i, 0);
	atomic_store(&writing, true);
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&writer[i], NULL, write_keys, NULL), 0);
	open_mover();
	await_state(MOVER_NEAR);
	ck_assert_uint_gt(receiver_view()->hidden, 0);
	ck_assert_uint_eq(shown_keys(), 0);
	atomic_store(&writing, false);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(writer[i], NULL);
	ck_assert_int_eq(kv_service_cluster.seal(donor_kv(), moved), 0);
	TURN_UNTIL(kv_cluster_settled(donor_kv(), NULL));
	mover_finish(mover, next.epoch);
	await_state(MOVER_COMPLETE);
	ck_assert_uint_gt(told, 1);
	ck_assert_uint_eq(shown_keys(), 0);
	before = count_keys(donor.store);
	ck_assert_int_eq(kv_cluster_change(receiver_kv(), &next, all), 0);
	ck_assert_uint_eq(receiver_view()->session, 0);
	ck_assert_uint_eq(receiver_view()->sweeping, 0);
	after = count_keys(server.services.store);
	ck_assert_uint_eq(after.here, before.here);
	ck_assert_uint_eq(after.away, 0);
	ck_assert_uint_gt(after.here, keys / 4);
	for (unsigned i = 0; i < keys; i++)
		compare_key(i);
	TURN_UNTIL(kv_cluster_settled(receiver_kv(), NULL));
	ck_assert_uint_eq(shown_keys(), after.here);
	mover_done(mover);
	/* The donor loses them. */
	ck_assert_int_eq(kv_cluster_change(donor_kv(), &next, all), 0);
	TURN_UNTIL(count_keys(donor.store).here == 0);
	ck_assert_uint_eq(count_keys(donor.store).away, before.away);
	close_both();
}
END_TEST

static void fill(unsigned keys)
{
	for (unsigned i = 0; i < keys; i++)
		write_key(i, 0);
}

/* What came of a session that is not completed goes. */
static void await_swept(void)
{
	TURN_UNTIL(!receiver_view()->session && count_keys(server.services.store).here == 0 &&
		   !receiver_view()->sweeping);
}

START_TEST(test_missed_changes_end_it)
{
	open_both(transports[0]);
	fill(2000);
	open_mover();
	await_state(MOVER_NEAR);
	store_watch_all_missed(donor.store);
	await_state(MOVER_ENDED);
	ck_assert_ptr_nonnull(strstr(mover_reason(mover), "changes"));
	mover_close(mover);
	await_swept();
	/* Another session does it. */
	open_mover();
	await_state(MOVER_NEAR);
	mover_finish(mover, next.epoch);
	await_state(MOVER_COMPLETE);
	ck_assert_int_eq(kv_cluster_change(receiver_kv(), &next, all), 0);
	ck_assert_uint_eq(count_keys(server.services.store).here, count_keys(donor.store).here);
	close_both();
}
END_TEST

START_TEST(test_flush_ends_it)
{
	uint64_t cursor = 0, deleted;

	open_both(transports[0]);
	fill(2000);
	open_mover();
	await_state(MOVER_NEAR);
	do
		ck_assert_int_eq(store_flush_some(_i ? server.services.store : donor.store, &cursor, &deleted), 0);
	while (cursor);
	mover_finish(mover, next.epoch);
	await_state(MOVER_ENDED);
	close_both();
}
END_TEST

START_TEST(test_receiver_dies)
{
	open_both(transports[0]);
	fill(20000);
	open_mover();
	await_state(MOVER_COPYING);
	server_die();
	TURN_UNTIL(mover_state(mover) == MOVER_ENDED);
	ck_assert_str_ne(mover_reason(mover), "");
	close_both();
}
END_TEST

START_TEST(test_withdrawn_wish_sweeps)
{
	open_both(transports[0]);
	fill(2000);
	open_mover();
	await_state(MOVER_NEAR);
	ck_assert_uint_gt(count_keys(server.services.store).here, 0);
	table.epoch++;
	table.to[5] = 0;
	ck_assert_int_eq(kv_cluster_change(receiver_kv(), &table, all), 0);
	ck_assert_uint_eq(receiver_view()->session, 0);
	mover_finish(mover, next.epoch);
	await_state(MOVER_ENDED);
	await_swept();
	close_both();
}
END_TEST

/* Complete: neither the connection's end nor an older table ends it; one that does not say `moved` does. */
START_TEST(test_complete_stays)
{
	unsigned here;

	open_both(transports[0]);
	fill(2000);
	open_mover();
	await_state(MOVER_NEAR);
	mover_finish(mover, next.epoch + 1);
	await_state(MOVER_COMPLETE);
	mover_close(mover);
	mover = NULL;
	here = count_keys(server.services.store).here;
	kv_moves_tick(receiver_kv()->cluster, time_now() + 3600 * TIME_S);
	table.epoch++;
	table.to[5] = 0;
	ck_assert_int_eq(kv_cluster_change(receiver_kv(), &table, all), 0);
	ck_assert_uint_ne(receiver_view()->session, 0);
	ck_assert_uint_eq(count_keys(server.services.store).here, here);
	next.epoch++; /* and `moved` is of another epoch */
	ck_assert_int_eq(kv_cluster_change(receiver_kv(), &next, all), 0);
	ck_assert_uint_eq(receiver_view()->session, 0);
	await_swept();
	close_both();
}
END_TEST

/* It is closed as soon as the table is there: the receiver is told nevertheless. */
START_TEST(test_done_is_told)
{
	uint64_t before;

	open_both(transports[0]);
	fill(2000);
	open_mover();
	await_state(MOVER_NEAR);
	mover_finish(mover, next.epoch);
	await_state(MOVER_COMPLETE);
	before = services_count(&server.services, "kv_moves");
	usleep(5000); /* it waits */
	mover_done(mover);
	mover_close(mover);
	mover = NULL;
	ck_assert_uint_eq(services_count(&server.services, "kv_moves"), before + 1);
	close_both();
}
END_TEST

/*
 * Requests that a mover does not make
 */
struct answer {
	bool there;
	int status;
	char text[256];
};

static void take_answer(void *arg, int status, const void *text, size_t len)
{
	struct answer *a = arg;

	a->there = true;
	a->status = status;
	snprintf(a->text, sizeof(a->text), "%.*s", (int)len, len ? (const char *)text : "");
}

static int await_answer(void *kv, int rc, struct answer *a)
{
	ck_assert_int_eq(rc, 0);
	TURN_UNTIL((kv_progress(kv, 0), a->there));
	return a->status;
}

static int ask_move(void *kv, enum wire_move_kind kind, const void *body, size_t len, struct answer *a)
{
	*a = (struct answer){0};
	return await_answer(kv, client_move(kv, kind, body, len, take_answer, a), a);
}

static int put_one(void *kv, const char *key)
{
	const struct client_item item = {.key = key, .key_len = strlen(key), .value = "v", .value_len = 1};
	struct answer a = {0};

	return await_answer(kv, client_put_item(kv, &item, take_answer, &a), &a);
}

static struct wire_move_begin a_begin(const char *node, uint8_t id)
{
	struct wire_move_begin begin = {.move = {.id = {id}, .epoch = EPOCH, .version = 1}, .cluster = "test"};

	snprintf(begin.node, sizeof(begin.node), "%s", node);
	memcpy(begin.boot, BOOT, sizeof(begin.boot));
	memcpy(begin.slots, moved, sizeof(moved));
	return begin;
}

static int begin_until(void *kv, const struct wire_move_begin *begin, struct answer *a)
{
	uint64_t until = time_now() + 2 * TIME_S;
	int rc;

	while ((rc = ask_move(kv, WIRE_MOVE_BEGIN, begin, sizeof(*begin), a)) == -EAGAIN && time_now() < until &&
	       !strstr(a->text, "already"))
		main_turn();
	return rc;
}

static void take_right(void *arg, struct conn *conn)
{
	static struct auth_client client;

	(void)arg;
	client = auth_everything;
	client.move = false;
	conn->admission.client = &client;
	service_revised(conn);
}

START_TEST(test_hostile_requests)
{
	struct wire_move_begin begin, other;
	struct answer a;
	void *kv, *second;

	open_both(transports[0]);
	begin = a_begin("p", 1);
	other = a_begin("q", 2);
	kv = open_kv(NULL, NULL);
	second = open_kv(NULL, NULL);
	/* Of a slot that moves, and of one that does not. */
	ck_assert_uint_lt(cluster_slot("b", 1), MOVED);
	ck_assert_uint_ge(cluster_slot("a", 1), MOVED);
	ck_assert_int_eq(put_one(kv, "b"), -EREMOTE); /* without a session */
	ck_assert_int_eq(begin_until(kv, &begin, &a), 0);
	ck_assert_int_eq(put_one(kv, "b"), 0);
	ck_assert_int_eq(put_one(kv, "a"), -EREMOTE);     /* no slot of it */
	ck_assert_int_eq(put_one(second, "b"), -EREMOTE); /* another connection */
	ck_assert_int_eq(kv_set_bytes(kv, "b", 1, "w", 1), -EREMOTE);
	ck_assert_int_eq(ask_move(second, WIRE_MOVE_BEGIN, &begin, sizeof(begin), &a), -ESTALE);
	ck_assert_int_eq(ask_move(second, WIRE_MOVE_COMPLETE, &begin, sizeof(begin.move), &a), -ESTALE);
	ck_assert_int_eq(ask_move(second, WIRE_MOVE_END, &begin, sizeof(begin.move), &a), -ESTALE);
	ck_assert_int_eq(begin_until(second, &other, &a), -EAGAIN);
	/* A later one of the same node takes its place, and what came before goes. */
	begin = a_begin("p", 3);
	ck_assert_int_eq(begin_until(second, &begin, &a), 0);
	ck_assert_uint_eq(count_keys(server.services.store).here, 0);
	ck_assert_int_eq(put_one(kv, "b"), -EREMOTE); /* of the older session */
	ck_assert_int_eq(put_one(second, "b"), 0);
	ck_assert_int_eq(ask_move(second, WIRE_MOVE_COMPLETE, &begin, sizeof(begin.move), &a), 0);
	ck_assert_int_eq(put_one(second, "b"), -EREMOTE); /* it is complete */
	server_pause();
	conn_group_each(server.group, take_right, NULL);
	server_resume();
	ck_assert_int_eq(ask_move(second, WIRE_MOVE_DONE, &begin, sizeof(begin.move), &a), -EACCES);
	kv_close(second);
	kv_close(kv);
	close_both();
}
END_TEST

/* A session in which one key has come, by `kv`. */
static struct wire_move_begin begin_with_key(void **kv, void **client)
{
	struct wire_move_begin begin = a_begin("p", 1);
	struct answer a;

	*kv = open_kv(NULL, NULL);
	*client = open_kv(NULL, NULL);
	ck_assert_int_eq(begin_until(*kv, &begin, &a), 0);
	ck_assert_int_eq(put_one(*kv, "b"), 0);
	return begin;
}

/* The session has ended, and the slot is the receiver's: what its connection deletes then is another one's value. */
START_TEST(test_late_delete)
{
	struct wire_move_begin begin;
	struct answer a, late = {0};
	void *kv, *client;

	open_both(transports[0]);
	begin = begin_with_key(&kv, &client);
	if (_i) /* it has given the session up itself */
		ck_assert_int_eq(ask_move(kv, WIRE_MOVE_END, &begin, sizeof(begin.move), &a), 0);
	ck_assert_int_eq(kv_cluster_change(receiver_kv(), &next, all), 0);
	await_swept();
	TURN_UNTIL(kv_cluster_settled(receiver_kv(), NULL));
	ck_assert_int_eq(kv_set_bytes(client, "b", 1, "w", 1), 0);
	ck_assert_int_eq(await_answer(kv, kv_submit_delete(kv, "b", 1, take_answer, &late), &late), -ESTALE);
	ck_assert_uint_eq(count_keys(server.services.store).here, 1);
	ck_assert_int_eq(kv_delete(client, "b", 1), 1);
	kv_close(client);
	kv_close(kv);
	close_both();
}
END_TEST

/* A begin that keeps the session from being idle comes while the workers are told of another table. */
START_TEST(test_keeps_amid_table)
{
	struct wire_move_begin begin;
	struct answer a;
	void *kv;

	open_both(transports[0]);
	begin = a_begin("p", 1);
	kv = open_kv(NULL, NULL);
	ck_assert_int_eq(begin_until(kv, &begin, &a), 0);
	table.epoch++;
	ck_assert_int_eq(kv_cluster_change(receiver_kv(), &table, all), 0);
	kv_moves_tick(receiver_kv()->cluster, time_now()); /* they are not all through */
	a = (struct answer){0};
	ck_assert_int_eq(client_move(kv, WIRE_MOVE_BEGIN, &begin, sizeof(begin), take_answer, &a), 0);
	while (!a.there)
		ck_assert_int_ge(kv_progress(kv, 1000), 0);
	ck_assert_msg(a.status == 0, "%d: %s", a.status, a.text);
	kv_close(kv);
	close_both();
}
END_TEST

/* It is asked for as long as is wanted, and no longer. */
START_TEST(test_patience_ends)
{
	uint64_t since = time_now();

	open_both(transports[0]);
	entry.out = true; /* so that none is let in */
	patience = 50 * TIME_MS;
	open_mover();
	await_state(MOVER_ENDED);
	ck_assert_str_ne(mover_reason(mover), "");
	ck_assert_uint_lt(time_now() - since, 8 * TIME_S);
	close_both();
}
END_TEST

/* Neither the versions of this server's keys are used up, nor is a table waited for that is far away. */
START_TEST(test_numbers_are_bounded)
{
	struct wire_move_begin begin;
	struct answer a;
	void *kv;

	open_both(transports[0]);
	kv = open_kv(NULL, NULL);
	begin = a_begin("p", 1);
	begin.move.version = store_epoch() + (1ull << 48);
	ck_assert_int_eq(begin_until(kv, &begin, &a), -EAGAIN);
	ck_assert_ptr_nonnull(strstr(a.text, "the clock here"));
	ck_assert_uint_lt(store_highest(server.services.store), begin.move.version);
	begin.move.version = store_epoch() + (1ull << 46);
	ck_assert_int_eq(begin_until(kv, &begin, &a), 0);
	begin.move.epoch = EPOCH + 5000;
	ck_assert_int_eq(ask_move(kv, WIRE_MOVE_COMPLETE, &begin, sizeof(begin.move), &a), -ESTALE);
	ck_assert(!store_flushes_held(server.services.store));
	await_swept();
	kv_close(kv);
	close_both();
}
END_TEST

static void *flush_all(void *kv)
{
	return (void *)(intptr_t)kv_delete_all(kv, NULL);
}

/* A delete-all waits for the table of a session that is complete, and asks for it a thousand times a second at most. When
 * the donor is out that table never comes, and the session ends. */
START_TEST(test_flush_waits)
{
	struct wire_move_begin begin;
	struct answer a;
	void *kv, *client, *rc;
	uint64_t until, before;
	pthread_t thread;

	open_both(transports[0]);
	begin = begin_with_key(&kv, &client);
	begin.move.epoch = EPOCH + 1;
	ck_assert_int_eq(ask_move(kv, WIRE_MOVE_COMPLETE, &begin, sizeof(begin.move), &a), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, flush_all, client), 0);
	for (unsigned i = 0; i < 50; i++)
		main_turn();
	before = turns;
	until = time_now() + 200 * TIME_MS;
	while (time_now() < until)
		main_turn();
	ck_assert_uint_lt(turns - before, 2000);
	ck_assert_uint_eq(count_keys(server.services.store).here, 1);
	entry.out = true;
	await_swept();
	pthread_join(thread, &rc);
	ck_assert_int_ge((intptr_t)rc, 0);
	ck_assert(!store_flushes_held(server.services.store));
	kv_close(client);
	kv_close(kv);
	close_both();
}
END_TEST

/* A slot is sealed: a request waits, and is carried out where the seal is taken away, or answered after a second. */
START_TEST(test_seal_holds)
{
	struct answer a = {0};
	uint64_t since;
	void *kv;

	open_both(transports[0]);
	next.from[0] = 0;
	ck_assert_int_eq(kv_cluster_change(receiver_kv(), &next, all), 0);
	kv = open_kv(NULL, NULL);
	ck_assert_int_eq(kv_set_bytes(kv, "b", 1, "v", 1), 0);
	since = time_now();
	ck_assert_int_eq(kv_service_cluster.seal(receiver_kv(), moved), 0);
	TURN_UNTIL(kv_cluster_settled(receiver_kv(), NULL));
	ck_assert_int_eq(kv_submit_get(kv, "b", 1, take_answer, &a), 0);
	if (_i) {
		ck_assert_int_eq(await_answer(kv, 0, &a), -EREMOTE);
		ck_assert_uint_ge(time_now() - since, TIME_S);
	} else {
		for (unsigned i = 0; i < 10; i++) {
			kv_progress(kv, 1000);
			ck_assert(!a.there || time_now() - since >= TIME_S);
		}
		if (a.there) { /* the machine was too slow */
			a = (struct answer){0};
			ck_assert_int_eq(kv_service_cluster.seal(receiver_kv(), NULL), 0);
			ck_assert_int_eq(kv_submit_get(kv, "b", 1, take_answer, &a), 0);
		}
		ck_assert_int_eq(kv_service_cluster.seal(receiver_kv(), NULL), 0);
		ck_assert_int_eq(await_answer(kv, 0, &a), 0);
		ck_assert_str_eq(a.text, "v");
	}
	kv_close(kv);
	close_both();
}
END_TEST

static int no_key(void *arg, const void *key, size_t key_len, const struct kv_meta *meta)
{
	(void)arg, (void)key, (void)key_len, (void)meta;
	return 0;
}

static void *list_keys(void *kv)
{
	uint64_t cursor = 0;

	return (void *)(intptr_t)kv_scan(kv, &cursor, NULL, 0, 0, no_key, NULL);
}

/* The engine's word is late: what is here is not known, and no keys that are not shown are left out of a list. Requests
 * wait, and are carried out where the word comes, or refused after a second. */
START_TEST(test_late_word)
{
	struct answer a = {0};
	void *kv, *lister, *rc;
	pthread_t thread;
	uint64_t since;

	open_both(transports[0]);
	next.from[0] = 0;
	ck_assert_int_eq(kv_cluster_change(receiver_kv(), &next, all), 0);
	kv = open_kv(NULL, NULL);
	lister = open_kv(NULL, NULL);
	ck_assert_int_eq(kv_set_bytes(kv, "b", 1, "v", 1), 0);
	since = time_now();
	kv_service_cluster.until(receiver_kv(), time_boot());
	ck_assert_int_eq(pthread_create(&thread, NULL, list_keys, lister), 0);
	ck_assert_int_eq(kv_submit_get(kv, "b", 1, take_answer, &a), 0);
	if (!_i) {
		for (unsigned i = 0; i < 20; i++)
			kv_progress(kv, 1000);
		ck_assert(!a.there || time_now() - since >= TIME_S);
		kv_service_cluster.until(receiver_kv(), TIME_NEVER);
	}
	pthread_join(thread, &rc);
	ck_assert_int_ge(time_now() - since, _i ? TIME_S : 0);
	if (_i || time_now() - since < TIME_S) { /* else the machine was too slow */
		ck_assert_int_eq(await_answer(kv, 0, &a), _i ? -EREMOTE : 0);
		ck_assert_int_eq((intptr_t)rc, _i ? -EREMOTE : 1);
	}
	kv_close(lister);
	kv_close(kv);
	close_both();
}
END_TEST

/* A slot that is lost and comes again is not to go on before its former keys are swept. */
START_TEST(test_swept_slots_wait)
{
	open_both(transports[0]);
	fill(20000);
	ck_assert(kv_service_cluster.serves(donor_kv(), moved));
	ck_assert_int_eq(kv_service_cluster.seal(donor_kv(), moved), 0);
	ck_assert(kv_service_cluster.serves(donor_kv(), moved));
	ck_assert_int_eq(kv_cluster_change(donor_kv(), &next, all), 0);
	ck_assert(!kv_service_cluster.serves(donor_kv(), moved));
	table.epoch = next.epoch + 1;
	ck_assert_int_eq(kv_cluster_change(donor_kv(), &table, all), 0);
	ck_assert(!kv_service_cluster.serves(donor_kv(), moved));
	TURN_UNTIL(kv_service_cluster.serves(donor_kv(), moved));
	ck_assert_uint_eq(count_keys(donor.store).here, 0);
	close_both();
}
END_TEST

static void take_status(void *arg, int status, const void *at, size_t len)
{
	(void)at, (void)len;
	*(int *)arg = status;
}

/* All slots are the receiver's, and a client of the cluster's handle goes by its table. */
static void *open_cluster(void)
{
	char address[256];
	void *kv = NULL;

	open_both(transports[0]);
	memset(next.to, 0, sizeof(next.to));
	memset(next.moved, 0, sizeof(next.moved));
	for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++)
		next.owner[slot] = 1;
	ck_assert_int_eq(cluster_node_set(&next.node[1], CLUSTER_NATIVE, server.address), 0);
	ck_assert_int_eq(kv_cluster_change(receiver_kv(), &next, all), 0);
	TURN_UNTIL(kv_cluster_settled(receiver_kv(), NULL));
	snprintf(address, sizeof(address), "cluster:%s", server.address);
	ck_assert_msg(kv_open(address, &kv) == 0, "%s", rdmad_error());
	return kv;
}

/* A large value is under way when its slot is not served any more, and a later one for the key comes when that is over,
 * or before the large one is here: the later one stays. By a transport whose bytes wait for the client. */
START_TEST(test_large_order)
{
	enum { LATE_WORD, SEALED, BEFORE } when = _i;
	void *kv = open_cluster(), *got;
	const struct kv_hold *hold = &receiver_kv()->hold;
	int first = 1, second = 1;
	size_t len;

	ck_assert_int_eq(kv_submit_set(kv, "k", 1, value, MIB, take_status, &first), 0);
	ck_assert_int_eq(kv_flush(kv), 0);
	while (!kv_hold_bytes(hold))
		sched_yield();
	if (when == SEALED)
		ck_assert_int_eq(kv_service_cluster.seal(receiver_kv(), all), 0);
	else
		kv_service_cluster.until(receiver_kv(), time_boot() - (when == BEFORE ? 2 * TIME_S : 0));
	if (when == BEFORE) {
		ck_assert_int_eq(kv_submit_set(kv, "k", 1, "second", 6, take_status, &second), 0);
		ck_assert_int_eq(kv_flush(kv), 0);
		usleep(20000); /* the server has it */
	}
	while (kv_hold_bytes(hold))
		kv_progress(kv, 1000);
	if (when != BEFORE) {
		server_pause();
		ck_assert_int_eq(kv_submit_set(kv, "k", 1, "second", 6, take_status, &second), 0);
		ck_assert_int_eq(kv_flush(kv), 0);
		if (when == SEALED)
			ck_assert_int_eq(kv_service_cluster.seal(receiver_kv(), NULL), 0);
		kv_service_cluster.until(receiver_kv(), TIME_NEVER);
		server_resume();
	}
	kv_service_cluster.until(receiver_kv(), TIME_NEVER);
	ck_assert_int_eq(kv_wait(kv), 0);
	ck_assert_int_eq(first, 0);
	ck_assert_int_eq(second, 0);
	ck_assert_int_eq(kv_get_bytes(kv, "k", 1, &got, &len), 0);
	ck_assert_uint_eq(len, 6);
	kv_release(got);
	kv_close(kv);
	close_both();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("mover");
	TCase *tc = suite_case(suite, "mover", NULL, NULL);

	if (getenv("RDMAD_GUEST_ADDR"))
		transports[0] = transports[1] = "rdma";
	tcase_add_loop_test(tc, test_all_keys_move, 0, getenv("RDMAD_GUEST_ADDR") ? 1 : (int)ARRAY_SIZE(transports));
	tcase_add_test(tc, test_missed_changes_end_it);
	tcase_add_loop_test(tc, test_flush_ends_it, 0, 2);
	tcase_add_test(tc, test_receiver_dies);
	tcase_add_test(tc, test_withdrawn_wish_sweeps);
	tcase_add_test(tc, test_complete_stays);
	tcase_add_test(tc, test_done_is_told);
	tcase_add_test(tc, test_hostile_requests);
	tcase_add_loop_test(tc, test_late_delete, 0, 2);
	tcase_add_test(tc, test_keeps_amid_table);
	tcase_add_test(tc, test_patience_ends);
	tcase_add_test(tc, test_numbers_are_bounded);
	tcase_add_test(tc, test_flush_waits);
	tcase_add_loop_test(tc, test_seal_holds, 0, 2);
	tcase_add_loop_test(tc, test_late_word, 0, 2);
	tcase_add_test(tc, test_swept_slots_wait);
	if (!getenv("RDMAD_GUEST_ADDR"))
		tcase_add_loop_test(tc, test_large_order, 0, 3);
	return suite_run(suite);
}
