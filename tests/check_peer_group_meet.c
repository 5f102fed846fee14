/* check_peer_group_meet.c: groups of programs that form at an rdmad. */
#include "peer_members.h"

#include "late_end.h"

static void meet_run(struct member *m)
{
	m->ctx = context_of(m->number);
	m->group = rdma_group_meet(m->ctx, server.address, "work", world.size, m->number % 2 ? m->number : -1);
	SAYS(m->group);
	ck_assert(m->number % 2 == 0 || rdma_group_rank(m->group) == m->number);
	assert_works(m->group, world.size);
	end(m);
}

START_TEST(test_meet)
{
	unsigned before;

	server_start(&(struct server_options){.group.max_connections = 2 * MEMBERS});
	before = descriptors_before();
	run(_i, meet_run);
	/* the server has its end of the connections for a moment longer */
	for (uint64_t until = time_now() + 60 * TIME_S; count_entries("/proc/self/fd") != before && time_now() < until;)
		usleep(1000);
	ck_assert_uint_eq(count_entries("/proc/self/fd"), before);
	server_pause();
	for (uint64_t until = time_now() + 60 * TIME_S; services_peer(&server.services)->groups && time_now() < until;)
		server_turn();
	ck_assert_uint_eq(services_peer(&server.services)->groups, 0);
	ck_assert_uint_eq(services_count(&server.services, "peer_groups"), 1);
	server_stop();
}
END_TEST

/* Each comes again as soon as it has left, to an rdmad that hears late of its connection's end. */
static void meet_again_run(struct member *m)
{
	m->ctx = context_of(m->number);
	for (int i = 0; i < 5; i++) {
		m->group = rdma_group_meet(m->ctx, server.address, "work", world.size, m->number);
		SAYS(m->group);
		assert_works(m->group, world.size);
		meet_all();
		rdma_group_free(m->group);
	}
	rdma_cleanup(m->ctx);
}

START_TEST(test_meet_again)
{
	late_end_by(200 * TIME_MS);
	server_start(&(struct server_options){0});
	run(3, meet_again_run);
	server_stop();
}
END_TEST

static void meet_missing_run(struct member *m)
{
	m->ctx = context_of(m->number);
	REFUSED(rdma_group_meet(m->ctx, server.address, "work", 3, m->number), ETIMEDOUT, "group \"work\": rank");
	ck_assert_msg(strstr(rdma_get_error(), "2 of 3 did not come") || strstr(rdma_get_error(), "1, 2 of 3"), "%s",
		      rdma_get_error());
	ck_assert_msg(strstr(rdma_get_error(), "within 2 s"), "%s", rdma_get_error());
	meet_all();
	m->ctx->options.connect_timeout_ms = 60000;
	m->group = rdma_group_meet(m->ctx, server.address, "work", 2, m->number);
	SAYS(m->group);
	assert_works(m->group, 2);
	end(m);
}

START_TEST(test_meet_missing)
{
	server_start(&(struct server_options){0});
	world.options.connect_timeout_ms = 2000;
	run(2, meet_missing_run);
	server_stop();
}
END_TEST

START_TEST(test_meet_refused)
{
	rdma_context *ctx = context_of(1);
	char name[300];

	server_start(&(struct server_options){0});
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	REFUSED(rdma_group_meet(ctx, server.address, name, 2, 0), EINVAL, "a name of 299 bytes; from 1 to 200");
	REFUSED(rdma_group_meet(ctx, server.address, "", 2, 0), EINVAL, "a name of 0 bytes");
	REFUSED(rdma_group_meet(ctx, server.address, NULL, 2, 0), EINVAL, "the name is NULL");
	REFUSED(rdma_group_meet(NULL, server.address, "a", 2, 0), EINVAL, "the context is NULL");
	REFUSED(rdma_group_meet(ctx, server.address, "a", 2, 2), EINVAL, "rank 2 of a group of 2");
	REFUSED(rdma_group_meet(ctx, server.address, "a", 2, -2), EINVAL, "rank -2");
	REFUSED(rdma_group_meet(ctx, server.address, "a", 0, 0), EINVAL, "of 0");
	REFUSED(rdma_group_meet(ctx, server.address, "a", 2000, 0), ERANGE, "see peer.members");
	REFUSED(rdma_group_meet(ctx, server.address, "a\n", 1, 0), EINVAL, "a name with a control character");
	REFUSED(rdma_group_meet(ctx, "127.0.0.1:1", "a", 2, 0), ECONNREFUSED, "the rdmad is not reached");
	server_stop();
	rdma_cleanup(ctx);
}
END_TEST

/* The end of the rdmad is none of the group's. */
static void meet_without_run(struct member *m)
{
	m->ctx = context_of(m->number);
	m->group = rdma_group_meet(m->ctx, server.address, "work", world.size, -1);
	SAYS(m->group);
	meet_all();
	if (m->number == 0) {
		server_pause();
		server_die();
	}
	meet_all();
	for (int i = 0; i < 3; i++)
		assert_works(m->group, world.size);
	end(m);
}

START_TEST(test_meet_without)
{
	server_start(&(struct server_options){0});
	run(3, meet_without_run);
	server_stop();
}
END_TEST

static void set_run(const char *rank, const char *size, const char *group)
{
	setenv("RDMA_MEETING", server.address, 1);
	(rank ? setenv("RDMA_RANK", rank, 1) : unsetenv("RDMA_RANK"));
	(size ? setenv("RDMA_SIZE", size, 1) : unsetenv("RDMA_SIZE"));
	(group ? setenv("RDMA_GROUP", group, 1) : unsetenv("RDMA_GROUP"));
}

/* Ranks of one machine listen in the directory of their run, unless they have an address of their own. */
static void run_in(const char *directory, const char *ip)
{
	rdma_context *ctx = rdma_init_options(ip, 0, false, &world.options);
	rdma_group *group = rdma_group_run(ctx);

	SAYS(group);
	ck_assert_uint_eq(count_entries(directory), ip ? 2u : 3u); /* with itself and its parent */
	ck_assert_int_eq(ctx->connections->at.path, !ip);
	rdma_group_free(group);
	rdma_cleanup(ctx);
	ck_assert_uint_eq(count_entries(directory), 2);
}

START_TEST(test_run)
{
	char directory[] = "/tmp/check_peer_run.XXXXXX";
	rdma_context *ctx = context_of(1);
	rdma_group *group;

	server_start(&(struct server_options){0});
	set_run(NULL, "1", "run");
	REFUSED(rdma_group_run(ctx), EINVAL, "RDMA_RANK is not set: was the program started by rdmarun?");
	set_run("0", "", "run");
	REFUSED(rdma_group_run(ctx), EINVAL, "RDMA_SIZE is \"\"");
	set_run("0x1", "1", "run");
	REFUSED(rdma_group_run(ctx), EINVAL, "RDMA_RANK is \"0x1\", which is no number that it can be");
	set_run("-1", "1", "run");
	REFUSED(rdma_group_run(ctx), EINVAL, "RDMA_RANK is \"-1\"");
	set_run("0", "1", NULL);
	REFUSED(rdma_group_run(ctx), EINVAL, "RDMA_GROUP is not set");
	set_run("0", "1", "run");
	group = rdma_group_run(ctx);
	SAYS(group);
	assert_works(group, 1);
	rdma_group_free(group);
	rdma_cleanup(ctx);
	ck_assert_ptr_nonnull(mkdtemp(directory));
	setenv("RDMA_DIRECTORY", directory, 1);
	run_in(directory, NULL);
	run_in(directory, "127.0.0.1");
	ck_assert_int_eq(rmdir(directory), 0);
	server_stop();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("peer_group_meet");
	TCase *four = suite_case(suite, "four", options_default, NULL);
	TCase *tc = suite_case(suite, "rdmad", options_default, NULL);

	log_set_handler(log_keep);
	tcase_add_loop_test(four, test_meet, 4, 5);
	tcase_add_test(tc, test_meet_again);
	tcase_add_loop_test(tc, test_meet, 1, 6);
	tcase_add_loop_test(tc, test_meet, MEMBERS, MEMBERS + 1);
	tcase_add_test(tc, test_meet_missing);
	tcase_add_test(tc, test_meet_refused);
	tcase_add_test(tc, test_meet_without);
	tcase_add_test(tc, test_run);
	return suite_run(suite);
}
