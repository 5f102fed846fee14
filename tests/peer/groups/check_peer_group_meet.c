/* check_peer_group_meet.c: groups of programs that form at an rdmad. */
#include "tests/peer/groups/peer_members.h"

#include "tests/late_end.h"

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
	for (uint64_t until = time_now() + 60 * TIME_S;
	     quota_taken(services_peer(&server.services)->table.names.quota) && time_now() < until;)
		server_turn();
	ck_assert_uint_eq(quota_taken(services_peer(&server.services)->table.names.quota), 0);
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
	m->ctx->options.connect_timeout_ms = 600000;
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
	REFUSED(rdma_group_run(ctx), EINVAL, "RDMA_SIZE is set, and RDMA_RANK is not (rdmarun)");
	set_run("0", "", "run");
	REFUSED(rdma_group_run(ctx), EINVAL, "RDMA_SIZE is \"\"");
	set_run("0x1", "1", "run");
	REFUSED(rdma_group_run(ctx), EINVAL, "RDMA_RANK is \"0x1\", which is no number that it can be");
	set_run("-1", "1", "run");
	REFUSED(rdma_group_run(ctx), EINVAL, "RDMA_RANK is \"-1\"");
	set_run("0", "1", NULL);
	REFUSED(rdma_group_run(ctx), EINVAL, "RDMA_RANK is set, and RDMA_GROUP is not (rdmarun)");
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

/*
 * Every call of a program whose progress thread is busy: none fails, and under the thread sanitizer none is a race.
 */
#define BUSY 300000
#define ROUNDS 100

static struct busy {
	rdma_context *ctx;
	int peer;
	rdma_window *window; /* the peer writes to it without end */
	rdma_remote *remote; /* of the peer's */
	rdma_group *group;
	char data[BUSY];
	_Atomic bool stop;
} busy;

static void *busy_peer(void *port)
{
	rdma_context *ctx = rdma_init_options(NULL, 0, false, &world.options);
	int peer = rdma_connect_peer(ctx, "127.0.0.1", *(int *)port);
	rdma_window *window =
		rdma_window_create(ctx, NULL, BUSY, RDMA_WINDOW_WRITE | RDMA_WINDOW_READ | RDMA_WINDOW_ATOMIC);
	char *data = calloc(1, BUSY);
	rdma_remote *remote;

	SAYS(peer == 0 && window && rdma_window_share(window, peer) == 0);
	remote = rdma_window_open(ctx, peer, UINT64_MAX);
	SAYS(remote);
	while (!busy.stop) {
		SAYS(rdma_write(remote, 0, data, BUSY, RDMA_NO_NOTICE) == 0);
		SAYS(rdma_send(ctx, peer, data, 100) == 100);
		while (rdma_probe(ctx, peer, 0) >= 0)
			SAYS(rdma_recv(ctx, peer, data, BUSY) >= 0);
	}
	SAYS(rdma_disconnect_peer(ctx, peer) == 0);
	rdma_cleanup(ctx);
	free(data);
	return NULL;
}

static void busy_lost(rdma_context *ctx, int peer, const char *why, void *arg)
{
	(void)ctx, (void)peer, (void)why, (void)arg;
}

static int64_t busy_wait(rdma_request *request)
{
	int64_t result = -1;

	return request && rdma_wait(request, UINT64_MAX, &result) == 0 ? result : -1;
}

static bool call_meet(void)
{
	rdma_group *group = rdma_group_meet(busy.ctx, server.address, "alone", 1, 0);

	rdma_group_free(group);
	return group;
}

static bool call_run(void)
{
	rdma_group *group = rdma_group_run(busy.ctx);

	rdma_group_free(group);
	return group;
}

static bool call_subset(void)
{
	rdma_group *group = rdma_group_subset(busy.group, &(int){0}, 1);
	bool works = group && rdma_barrier(group) == 0;

	rdma_group_free(group);
	return works;
}

static bool call_group(void)
{
	rdma_group *group = busy.group;

	return rdma_group_rank(group) == 0 && rdma_group_size(group) == 1 && rdma_group_lost(group, 0) == 0 &&
	       rdma_group_algorithm(group, "barrier", NULL) == 0 && busy_wait(rdma_ibarrier(group)) >= 0 &&
	       rdma_allreduce(group, RDMA_IN_PLACE, busy.data, 8, RDMA_INT64, RDMA_SUM) == 0;
}

static bool call_messages(void)
{
	bool sent = rdma_send(busy.ctx, busy.peer, busy.data, 10) == 10 &&
		    rdma_broadcast(busy.ctx, busy.data, 10) == 1 &&
		    busy_wait(rdma_isend(busy.ctx, busy.peer, busy.data, 4000)) == 4000;

	while (rdma_probe(busy.ctx, busy.peer, 0) > 0)
		if (busy_wait(rdma_irecv(busy.ctx, busy.peer, busy.data, BUSY)) != 100)
			return false;
	return sent;
}

static bool call_requests(void)
{
	rdma_request *request[2] = {rdma_isend(busy.ctx, busy.peer, "a", 1), rdma_isend(busy.ctx, busy.peer, "b", 1)};
	rdma_request *receive = rdma_irecv(busy.ctx, busy.peer, busy.data, BUSY);
	bool all = request[0] && request[1] && rdma_wait_any(request, 2, UINT64_MAX, NULL) >= 0 &&
		   rdma_wait_all(request, 2, UINT64_MAX, NULL) == 0;

	while (receive && rdma_test(receive, NULL) == 0)
		;
	receive = rdma_irecv(busy.ctx, busy.peer, busy.data, BUSY);
	if (rdma_cancel(receive) != 0)
		rdma_wait(receive, UINT64_MAX, NULL);
	return all;
}

static bool call_context(void)
{
	return rdma_peers(busy.ctx) == 1 && rdma_transport(busy.ctx, busy.peer) && rdma_port(busy.ctx) > 0 &&
	       rdma_fd(busy.ctx) >= 0 && rdma_progress(busy.ctx) >= 0 && rdma_progress_timeout(busy.ctx) >= -1 &&
	       rdma_send_class(busy.ctx, RDMA_NORMAL) == 0 && rdma_rate_limit(busy.ctx, busy.peer, 0) == 0 &&
	       (rdma_on_lost(busy.ctx, busy_lost, NULL), true);
}

static bool call_memory(void)
{
	return rdma_register(busy.ctx, busy.data, BUSY) == 0 && rdma_unregister(busy.ctx, busy.data) == 0;
}

static bool call_window(void)
{
	rdma_window *window = rdma_window_create(busy.ctx, NULL, 100, RDMA_WINDOW_READ);
	bool there = window && rdma_window_addr(window);

	rdma_window_close(window);
	return there && rdma_notice(busy.window, NULL, NULL, 0) == -1;
}

static bool call_remote(void)
{
	uint64_t before;

	return rdma_remote_size(busy.remote) == BUSY && rdma_remote_rights(busy.remote) & RDMA_WINDOW_ATOMIC &&
	       rdma_remote_atomics(busy.remote) && rdma_write(busy.remote, 0, busy.data, 5000, RDMA_NO_NOTICE) == 0 &&
	       rdma_read(busy.remote, 0, busy.data, 5000) == 0 &&
	       busy_wait(rdma_iwrite(busy.remote, 0, busy.data, 10, RDMA_NO_NOTICE)) >= 0 &&
	       busy_wait(rdma_iread(busy.remote, 0, busy.data, 10)) >= 0 &&
	       rdma_fetch_add(busy.remote, 8, 1, &before) == 0 && rdma_compare_swap(busy.remote, 8, 0, 1, &before) == 0;
}

static const struct {
	const char *name;
	bool (*call)(void);
} busy_calls[] = {
	{"meet", call_meet},         {"run", call_run},           {"subset", call_subset},   {"group", call_group},
	{"messages", call_messages}, {"requests", call_requests}, {"context", call_context}, {"memory", call_memory},
	{"window", call_window},     {"remote", call_remote},
};

START_TEST(test_calls_beside_a_busy_thread)
{
	pthread_t peer;
	int port;

	server_start(&(struct server_options){0});
	set_run("0", "1", "run");
	world.options.progress_thread = true;
	busy.ctx = rdma_init_options("127.0.0.1", 0, true, &world.options);
	SAYS(busy.ctx);
	port = rdma_port(busy.ctx);
	ck_assert_int_eq(pthread_create(&peer, NULL, busy_peer, &port), 0);
	busy.peer = rdma_accept_peer(busy.ctx);
	busy.window = rdma_window_create(busy.ctx, NULL, BUSY, RDMA_WINDOW_WRITE);
	SAYS(busy.peer == 0 && busy.window && rdma_window_share(busy.window, 0) == 0);
	busy.remote = rdma_window_open(busy.ctx, 0, UINT64_MAX);
	SAYS(busy.remote);
	busy.group = rdma_group_meet(busy.ctx, server.address, "one", 1, 0);
	SAYS(busy.group);
	for (unsigned i = 0; i < MAX(suite_part(ROUNDS), 10u); i++)
		for (size_t k = 0; k < ARRAY_SIZE(busy_calls); k++) {
			usleep(2000 + i * 37 % 500); /* until the thread is at work again */
			ck_assert_msg(busy_calls[k].call(), "%s: %s", busy_calls[k].name, rdma_get_error());
		}
	busy.stop = true;
	while (pthread_tryjoin_np(peer, NULL) != 0)
		if (rdma_probe(busy.ctx, 0, 10) >= 0)
			SAYS(rdma_recv(busy.ctx, 0, busy.data, BUSY) == 100);
	rdma_cleanup(busy.ctx);
	server_stop();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("peer_group_meet");
	TCase *four = suite_case(suite, "four", options_default, NULL);
	TCase *tc = suite_case(suite, "rdmad", options_default, NULL);
	int most = (int)suite_part(MEMBERS);

	log_set_handler(log_keep);
	tcase_add_loop_test(four, test_meet, 4, 5);
	tcase_add_test(tc, test_meet_again);
	tcase_add_loop_test(tc, test_meet, 1, 6);
	tcase_add_loop_test(tc, test_meet, most, most + 1);
	tcase_add_test(tc, test_meet_missing);
	tcase_add_test(tc, test_meet_refused);
	tcase_add_test(tc, test_meet_without);
	tcase_add_test(tc, test_run);
	tc = suite_case(suite, "busy", options_default, NULL);
	tcase_add_test(tc, test_calls_beside_a_busy_thread);
	return suite_run(suite);
}
