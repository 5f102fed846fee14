/* check_peer_group.c: groups of programs: how they form by a server; parts of them; members that leave; shrinking; what
 * does not fit. */
#include "tests/peer/groups/peer_members.h"

#include "peer/messages/message.h"

/*
 * By a server
 */
static void create_run(struct member *m)
{
	star(m);
	m->group = rdma_group_create(m->ctx);
	SAYS(m->group);
	ck_assert_int_eq(m->number == 0, rdma_group_rank(m->group) == 0);
	assert_works(m->group, world.size);
	end(m);
}

START_TEST(test_create)
{
	unsigned before = descriptors_before();

	run(_i, create_run);
	ck_assert_uint_eq(count_entries("/proc/self/fd"), before);
}
END_TEST

static void transport_run(struct member *m)
{
	const char *by = getenv("RDMAD_GUEST_ADDR") ? "rdma" : "shm";

	star(m);
	m->group = rdma_group_create(m->ctx);
	SAYS(m->group);
	for (int i = 0; i < world.size; i++)
		if (i != rdma_group_rank(m->group))
			ck_assert_str_eq(rdma_transport(m->ctx, rdma_group_peer(m->group, i)), by);
	assert_works(m->group, world.size);
	end(m);
}

/* The mesh goes by the best transport, too. */
START_TEST(test_transport)
{
	run(4, transport_run);
}
END_TEST

START_TEST(test_create_threads)
{
	world.options.progress_thread = true;
	run(4, create_run);
}
END_TEST

/* One after the other, and two at a time. */
static void create_often_run(struct member *m)
{
	rdma_group *other;

	star(m);
	for (int i = 0; i < 20; i++) {
		m->group = rdma_group_create(m->ctx);
		SAYS(m->group);
		other = rdma_group_create(m->ctx);
		SAYS(other);
		ck_assert_uint_ne(other->number, m->group->number);
		assert_works(i % 2 ? m->group : other, world.size);
		assert_works(i % 2 ? other : m->group, world.size);
		rdma_group_free(other);
		rdma_group_free(m->group);
	}
	m->group = NULL;
	end(m);
}

START_TEST(test_create_often)
{
	run(3, create_often_run);
}
END_TEST

/* Programs talk with members by their indices, too. */
static void peers_run(struct member *m)
{
	char text[8] = "";
	int next, before;

	star(m);
	m->group = rdma_group_create(m->ctx);
	SAYS(m->group);
	next = (rdma_group_rank(m->group) + 1) % world.size;
	before = (rdma_group_rank(m->group) + world.size - 1) % world.size;
	REFUSED(rdma_group_peer(m->group, rdma_group_rank(m->group)) >= 0, EINVAL, "is this program");
	REFUSED(rdma_group_peer(m->group, world.size) >= 0, EINVAL, "Invalid parameters: rank 4 of a group of 4");
	REFUSED(rdma_group_lost(m->group, -1) >= 0, EINVAL, "rank -1");
	SAYS(rdma_send(m->ctx, rdma_group_peer(m->group, next), "hello", 6) == 6);
	SAYS(rdma_recv(m->ctx, rdma_group_peer(m->group, before), text, sizeof(text)) == 6);
	ck_assert_str_eq(text, "hello");
	SAYS(rdma_barrier(m->group) == 0);
	end(m);
}

START_TEST(test_peers)
{
	run(4, peers_run);
}
END_TEST

static void late_run(struct member *m)
{
	star(m);
	m->ctx->options.connect_timeout_ms = 2000;
	if (m->number != 1) {
		m->group = rdma_group_create(m->ctx);
		ck_assert(!m->group);
		ck_assert_msg(strstr(rdma_get_error(), " of 3 did not come within 2 s"), "%s", rdma_get_error());
		ck_assert_int_eq(rdma_get_errno(), ETIMEDOUT);
	}
	meet_all();
	/* the member that was late finds nothing any more; then all go on */
	if (m->number == 1)
		REFUSED(rdma_group_create(m->ctx), ETIMEDOUT, "did not call rdma_group_create() within 2 s");
	meet_all();
	m->ctx->options.connect_timeout_ms = 600000;
	m->group = rdma_group_create(m->ctx);
	SAYS(m->group);
	assert_works(m->group, world.size);
	end(m);
}

START_TEST(test_member_late)
{
	run(3, late_run);
}
END_TEST

static void alone_run(struct member *m)
{
	rdma_context *client = context_of(1);

	m->ctx = context_of(0);
	REFUSED(rdma_group_create(client), ENOTCONN, "No server is connected");
	REFUSED(rdma_group_create(NULL), EINVAL, "the context is NULL");
	m->group = rdma_group_create(m->ctx);
	SAYS(m->group);
	assert_works(m->group, 1);
	rdma_cleanup(client);
	end(m);
}

START_TEST(test_alone)
{
	run(1, alone_run);
}
END_TEST

/*
 * Parts
 */
static void subset_run(struct member *m)
{
	const int even[] = {0, 2, 4}, odd[] = {5, 3, 1}, one[] = {m->number ? 3 : 0};
	rdma_group *half[2], *alone, *pair;
	int rank;

	star(m);
	m->group = rdma_group_create(m->ctx);
	SAYS(m->group);
	rank = rdma_group_rank(m->group);
	for (int i = 0; i < 2; i++) { /* the same twice is two groups */
		half[i] = rdma_group_subset(m->group, rank % 2 ? odd : even, 3);
		SAYS(half[i]);
		ck_assert_int_eq(rdma_group_rank(half[i]), rank % 2 ? 2 - rank / 2 : rank / 2);
	}
	ck_assert_uint_ne(half[0]->number, half[1]->number);
	assert_works(half[1], 3);
	assert_works(half[0], 3);
	assert_works(m->group, 6);
	if (rdma_group_rank(half[0]) < 2) { /* a part of a part */
		pair = rdma_group_subset(half[0], (const int[]){1, 0}, 2);
		SAYS(pair);
		assert_works(pair, 2);
		rdma_group_free(pair);
	}
	if (rank == 0 || rank == 3) {
		alone = rdma_group_subset(m->group, rank ? (const int[]){3} : one, 1);
		SAYS(alone);
		assert_works(alone, 1);
		rdma_group_free(alone);
	}
	rdma_group_free(half[0]);
	assert_works(half[1], 3);
	rdma_group_free(m->group);
	m->group = half[1];
	assert_works(half[1], 3);
	end(m);
}

START_TEST(test_subset)
{
	run(6, subset_run);
}
END_TEST

static void subset_refused_run(struct member *m)
{
	int ranks[] = {0, 1, 2};

	star(m);
	m->group = rdma_group_create(m->ctx);
	SAYS(m->group);
	REFUSED(rdma_group_subset(NULL, ranks, 1), EINVAL, "the group is NULL");
	REFUSED(rdma_group_subset(m->group, NULL, 1), EINVAL, "a subset of 0");
	REFUSED(rdma_group_subset(m->group, ranks, 0), EINVAL, "a subset of 0");
	REFUSED(rdma_group_subset(m->group, ranks, 4), EINVAL, "a subset of 4 members of a group of 3");
	ranks[1] = 3;
	REFUSED(rdma_group_subset(m->group, ranks, 2), EINVAL, "rank 3 of a group of 3");
	ranks[1] = -1;
	REFUSED(rdma_group_subset(m->group, ranks, 2), EINVAL, "rank -1");
	ranks[1] = 0;
	REFUSED(rdma_group_subset(m->group, ranks, 2), EINVAL, "rank 0 is named twice");
	ranks[0] = (rdma_group_rank(m->group) + 1) % 3;
	REFUSED(rdma_group_subset(m->group, ranks, 1), EINVAL, "a subset without this program");
	assert_works(m->group, 3);
	end(m);
}

START_TEST(test_subset_refused)
{
	run(3, subset_refused_run);
}
END_TEST

/*
 * Members that leave
 */

/* In peace: others complete what they began, and are told when they begin anew. */
static void leave_run(struct member *m)
{
	star(m);
	m->group = rdma_group_create(m->ctx);
	SAYS(m->group);
	for (int i = 0; i < 20; i++)
		SAYS(rdma_barrier(m->group) == 0);
	if (m->number == 2) {
		end(m);
		meet_all();
		return;
	}
	meet_all();
	ck_assert_int_eq(rdma_barrier(m->group), -1);
	ck_assert_msg(strstr(rdma_get_error(), "it has left the group") || strstr(rdma_get_error(), "has disconnected"),
		      "%s", rdma_get_error());
	end(m);
}

START_TEST(test_leave)
{
	run(4, leave_run);
}
END_TEST

/*
 * Shrink
 */
static void shrink_all_run(struct member *m)
{
	rdma_group *again, *third;

	star(m);
	m->group = rdma_group_create(m->ctx);
	SAYS(m->group);
	again = rdma_group_shrink(m->group); /* nobody was lost */
	SAYS(again);
	assert_works(again, 4);
	third = rdma_group_shrink(m->group);
	SAYS(third);
	ck_assert_uint_ne(again->number, third->number);
	assert_works(third, 4);
	rdma_group_free(m->group);
	m->group = rdma_group_shrink(again);
	SAYS(m->group);
	rdma_group_free(again);
	assert_works(third, 4);
	rdma_group_free(third);
	assert_works(m->group, 4);
	REFUSED(rdma_group_shrink(NULL), EINVAL, "the group is NULL");
	end(m);
}

START_TEST(test_shrink_all)
{
	run(4, shrink_all_run);
}
END_TEST

/* A survivor that does not come, then comes late: one that waited is told, and the next call of all succeeds. */
static void shrink_late_run(struct member *m)
{
	rdma_group *less = NULL;

	star(m);
	m->group = rdma_group_create(m->ctx);
	SAYS(m->group);
	SAYS(rdma_barrier(m->group) == 0);
	if (m->number) {
		m->ctx->options.connect_timeout_ms = 300;
		m->ctx->options.heartbeat_ms = 100;
		REFUSED(rdma_group_shrink(m->group), ETIMEDOUT, "rank 0 of 3 did not call rdma_group_shrink()");
		m->ctx->options.connect_timeout_ms = 600000;
	}
	meet_all();
	less = rdma_group_shrink(m->group);
	SAYS(less);
	assert_works(less, 3);
	rdma_group_free(less);
	end(m);
}

START_TEST(test_shrink_late)
{
	run(3, shrink_late_run);
}
END_TEST

/*
 * What others say that does not fit: it ends their connection at most.
 */
static const struct {
	unsigned kind, length;
	int fill;
} bad[] = {
	{WIRE_CONTROL_GROUP_ADDRESS, 0, 0},     {WIRE_CONTROL_GROUP_ADDRESS, 3, 0xff},
	{WIRE_CONTROL_GROUP_ADDRESS, 16, 0},    {WIRE_CONTROL_GROUP_ADDRESS, 16, 0xff},
	{WIRE_CONTROL_GROUP_ADDRESS, 80, 0xff}, {WIRE_CONTROL_GROUP_TABLE, 4, 0},
	{WIRE_CONTROL_GROUP_TABLE, 16, 0xff},   {WIRE_CONTROL_GROUP_TABLE, 300, 0xff},
	{WIRE_CONTROL_GROUP_READY, 4, 0},       {WIRE_CONTROL_GROUP_READY, 8, 0xff},
	{WIRE_CONTROL_GROUP_LOST, 4, 0},        {WIRE_CONTROL_GROUP_LOST, 12, 0xff},
	{WIRE_CONTROL_GROUP_LOST, 16, 0xff},    {WIRE_CONTROL_GROUP_LOST, 400, 1},
	{WIRE_CONTROL_GROUP_SHRINK, 4, 0},      {WIRE_CONTROL_GROUP_SHRINK, 40, 0xff},
	{WIRE_CONTROL_GROUP_SHRINK, 41, 0xff},  {WIRE_CONTROL_GROUP_SHRINK, 41, 1},
	{WIRE_CONTROL_GROUP_SHRINK, 41, 0},     {WIRE_CONTROL_GROUP_SHRINK, 500, 1},
};

/* While the server forms a group, or has one. */
static void bad_run(struct member *m)
{
	unsigned at = world.step / 2;
	bool forming = world.step % 2;
	uint8_t body[512];
	uint32_t number;

	star(m);
	m->ctx->options.connect_timeout_ms = m->ctx->options.timeout_ms = 1000;
	if (!forming) {
		m->group = rdma_group_create(m->ctx);
		SAYS(m->group);
		SAYS(rdma_barrier(m->group) == 0);
	}
	meet_all();
	if (m->number == 1) {
		while (forming && list_empty(&m->ctx->groups))
			rdma_progress(m->ctx);
		number = group_of(list_first(&m->ctx->groups, struct rdma_group, node))->base.number;
		memset(body, bad[at].fill, sizeof(body));
		memcpy(body, &number, sizeof(number));
		rdma_enter(m->ctx);
		control_send(m->ctx->peer[0], bad[at].kind, body, bad[at].length);
		message_flush(m->ctx->peer[0]);
		rdma_leave(m->ctx);
		for (int i = 0; i < 1000; i++)
			rdma_progress(m->ctx);
	} else if (forming) {
		m->group = rdma_group_create(m->ctx);
		ck_assert(!m->group);
	} else {
		rdma_barrier(m->group); /* fails where the connection was ended */
	}
	end(m);
}

START_TEST(test_bad)
{
	world.step = (unsigned)_i;
	run(2, bad_run);
}
END_TEST

/* Reports without end: of a round that never was, and, when the group was shrunk, of that one and the one before. Each is answered once at
 * most. */
static void report_run(struct member *m)
{
	uint32_t rounds[] = {UINT32_MAX, 0, 1, 2};
	struct {
		struct wire_group_shrink word;
		uint8_t set[1];
	} body = {.word.kind = 1, .set = {3}};
	uint64_t before;
	rdma_group *less;

	star(m);
	m->group = rdma_group_create(m->ctx);
	SAYS(m->group);
	for (unsigned i = 0; i < world.step; i++) {
		less = rdma_group_shrink(m->group);
		SAYS(less);
		rdma_group_free(less);
	}
	SAYS(rdma_barrier(m->group) == 0);
	meet_all();
	before = m->ctx->peer[0]->message->out[RDMA_URGENT].next;
	body.word.number = m->group->number;
	for (int i = 0; m->number == 1 && i < 4000; i++) {
		body.word.round = rounds[i % ARRAY_SIZE(rounds)];
		rdma_enter(m->ctx);
		ck_assert_int_eq(control_send(m->ctx->peer[0], WIRE_CONTROL_GROUP_SHRINK, &body, sizeof(body.word) + 1),
				 0);
		message_flush(m->ctx->peer[0]);
		rdma_leave(m->ctx);
	}
	SAYS(rdma_barrier(m->group) == 0);
	SAYS(rdma_barrier(m->group) == 0);
	if (m->number == 0)
		ck_assert_uint_le(m->ctx->peer[0]->message->out[RDMA_URGENT].next - before, 20);
	meet_all();
	end(m);
}

START_TEST(test_reports_without_end)
{
	world.step = (unsigned)_i;
	run(2, report_run);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("peer_group");
	TCase *four = suite_case(suite, "four", options_default, NULL);
	TCase *tc = suite_case(suite, "group", options_default, NULL);

	log_set_handler(log_keep);
	tcase_add_loop_test(four, test_create, 4, 5); /* few enough for the guest */
	tcase_add_test(four, test_transport);
	tcase_add_loop_test(tc, test_create, 1, 7);
	tcase_add_loop_test(tc, test_create, MEMBERS, MEMBERS + 1);
	tcase_add_test(tc, test_create_threads);
	tcase_add_test(tc, test_create_often);
	tcase_add_test(tc, test_peers);
	tcase_add_test(tc, test_member_late);
	tcase_add_test(tc, test_alone);
	tcase_add_test(tc, test_subset);
	tcase_add_test(tc, test_subset_refused);
	tcase_add_test(tc, test_leave);
	tcase_add_test(tc, test_shrink_all);
	tcase_add_test(tc, test_shrink_late);
	tcase_add_loop_test(tc, test_bad, 0, 2 * ARRAY_SIZE(bad));
	tcase_add_loop_test(tc, test_reports_without_end, 0, 3);
	return suite_run(suite);
}
