/* check_peer_group_end.c: groups whose members, processes here, are killed or stand still: which ones are told, and how
 * the others go on. */
#include "tests/peer/groups/peer_members.h"

#include "peer/messages/message.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "tests/service/server.h"

/* What processes that are forked have in common. */
static struct common {
	_Atomic int port;
	_Atomic int ready, frozen, settled;
	_Atomic unsigned long long
		survivors[8]; /* what a shrink returned to each: a bit for each number, and 1 << 63 */
	_Atomic bool meeting; /* the server is there, at: */
	char address[160];
} * common;

static struct {
	bool meeting; /* processes need a server, whose thread must not run when they are forked */
	int victim;
	unsigned die_kind, die_at; /* of a process: dies by the so-manyth message of that kind that it says; 0: lives */
} fate;

int __real_control_send(struct peer *peer, enum wire_control_kind kind, const void *body, size_t length);
int __wrap_control_send(struct peer *peer, enum wire_control_kind kind, const void *body, size_t length);
int __wrap_control_send(struct peer *peer, enum wire_control_kind kind, const void *body, size_t length)
{
	if (fate.die_at && (!fate.die_kind || fate.die_kind == kind) && --fate.die_at == 0)
		raise(SIGKILL);
	return __real_control_send(peer, kind, body, length);
}

/* What goes wrong in one ends it with status 1. */
#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, rdma_get_error());          \
			_exit(1);                                                                                      \
		}                                                                                                      \
	} while (0)

static void process_star(struct member *m, int size)
{
	m->ctx = rdma_init_options(suite_address(), 0, m->number == 0, &world.options);
	CHECK(m->ctx);
	if (m->number == 0)
		common->port = rdma_port(m->ctx);
	while (!common->port)
		usleep(1000);
	for (int i = 1; i < size && m->number == 0; i++)
		CHECK(rdma_accept_peer(m->ctx) >= 0);
	if (m->number == 0)
		return;
	while (common->ready != -m->number) /* one after the other: a number is a rank */
		usleep(1000);
	CHECK(rdma_connect_peer(m->ctx, suite_address(), common->port) == 0);
	common->ready = -m->number - 1;
}

/* All have come so far: nobody is in a collective. */
static void settle(int size)
{
	common->settled++;
	while (common->settled < size)
		usleep(1000);
}

/* Each a process. A bit of `die` for each that is to be killed by a signal; the others answer 0. */
static void processes(int size, unsigned die, void (*member_run)(struct member *m))
{
	pid_t pid[8];
	int status;

	common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(common, MAP_FAILED);
	common->ready = -1;
	world.size = size;
	fflush(NULL);
	for (int i = 0; i < size; i++) {
		pid[i] = fork();
		if (pid[i] == 0) {
			struct member m = {.number = i};

			alarm(200);
			member_run(&m);
			_exit(0);
		}
	}
	if (fate.meeting) {
		server_start(&(struct server_options){0});
		memcpy(common->address, server.address, sizeof(common->address));
		common->meeting = true;
	}
	for (int i = 0; i < size; i++) {
		ck_assert_int_eq(waitpid(pid[i], &status, 0), pid[i]);
		if (die >> i & 1)
			ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%d: status %x", i, status);
		else
			ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%d: status %x", i, status);
	}
}

/* A collective fails on all survivors alike, and they go on without the dead one. */
static void die_run(struct member *m)
{
	int victim = fate.victim, size = world.size, rc;
	rdma_group *less;

	process_star(m, size);
	m->group = rdma_group_create(m->ctx);
	CHECK(m->group);
	for (int i = 0; i < 5; i++)
		CHECK(rdma_barrier(m->group) == 0);
	settle(size);
	if (m->number == victim)
		raise(SIGKILL);
	while ((rc = rdma_barrier(m->group)) == 0)
		;
	CHECK(rdma_get_errno() == ECONNRESET && strstr(rdma_get_error(), "was lost"));
	CHECK(rdma_group_lost(m->group, victim) == 1);
	CHECK(rdma_barrier(m->group) == -1);
	less = rdma_group_shrink(m->group);
	CHECK(less && rdma_group_size(less) == size - 1);
	CHECK(rdma_group_rank(less) == m->number - (m->number > victim));
	assert_works(less, size - 1);
	rdma_group_free(m->group);
	assert_works(less, size - 1);
	rdma_group_free(less);
	rdma_cleanup(m->ctx);
}

START_TEST(test_die)
{
	fate.victim = _i;
	processes(4, 1u << _i, die_run);
}
END_TEST

/* Two at a time. */
static void die_two_run(struct member *m)
{
	rdma_group *less;

	process_star(m, 5);
	m->group = rdma_group_create(m->ctx);
	CHECK(m->group);
	settle(5);
	if (m->number == 1 || m->number == 3)
		raise(SIGKILL);
	while (!rdma_group_lost(m->group, 1) || !rdma_group_lost(m->group, 3))
		CHECK(rdma_progress(m->ctx) >= 0);
	less = rdma_group_shrink(m->group);
	CHECK(less && rdma_group_size(less) == 3);
	assert_works(less, 3);
	rdma_group_free(less);
	end(m);
}

START_TEST(test_die_two)
{
	processes(5, 1u << 1 | 1u << 3, die_two_run);
}
END_TEST

/* While the group forms: a survivor is told, or has the group, and the group learns it. */
static void die_forming_run(struct member *m)
{
	process_star(m, 3);
	settle(3);
	if (m->number == fate.victim)
		fate.die_at = world.step;
	m->group = rdma_group_create(m->ctx);
	if (m->number == fate.victim)
		raise(SIGKILL);
	if (m->group) {
		while (rdma_barrier(m->group) == 0)
			;
		CHECK(rdma_get_errno() == ECONNRESET);
	} else {
		CHECK(strstr(rdma_get_error(), "the group of") || strstr(rdma_get_error(), "No server is connected") ||
		      strstr(rdma_get_error(), "did not call rdma_group_create()"));
	}
	end(m);
}

START_TEST(test_die_forming)
{
	world.options.connect_timeout_ms = 10000;
	fate.victim = _i % 3;
	world.step = (unsigned)_i / 3 + 1;
	processes(3, 1u << fate.victim, die_forming_run);
}
END_TEST

/* At an rdmad, before the others came and while they connect. */
static void die_meeting_run(struct member *m)
{
	m->ctx = rdma_init_options(suite_address(), 0, false, &world.options);
	CHECK(m->ctx);
	if (m->number == 0)
		fate.die_at = world.step;
	while (!common->meeting)
		usleep(1000);
	m->group = rdma_group_meet(m->ctx, common->address, "work", 3, m->number);
	if (m->number == 0)
		raise(SIGKILL);
	if (m->group)
		while (rdma_barrier(m->group) == 0)
			;
	CHECK(strstr(rdma_get_error(), "rank 0") || strstr(rdma_get_error(), "rank"));
	end(m);
}

START_TEST(test_die_meeting)
{
	fate.meeting = true;
	world.options.connect_timeout_ms = 3000;
	world.step = (unsigned)_i;
	processes(3, 1, die_meeting_run);
	server_stop();
}
END_TEST

/* Of the ranks of `group`, the ones in `part`. */
static unsigned long long survivors_of(const rdma_group *group, const rdma_group *part)
{
	unsigned long long set = 1ull << 63;

	for (int i = 0; i < group->size; i++)
		for (int k = 0; k < part->size; k++)
			if (group->member[i] == part->member[k])
				set |= 1ull << i;
	return set;
}

/* Rank 4 has died, and another one dies by a message of the shrink. All others have the same from it. */
static void die_shrinking_run(struct member *m)
{
	rdma_group *group, *less;

	process_star(m, 5);
	group = rdma_group_create(m->ctx);
	CHECK(group);
	CHECK(rdma_barrier(group) == 0);
	settle(5);
	if (m->number == 4)
		raise(SIGKILL);
	while (rdma_barrier(group) == 0)
		;
	fate.die_kind = WIRE_CONTROL_GROUP_SHRINK;
	fate.die_at = m->number == fate.victim ? world.step : 0;
	less = rdma_group_shrink(group);
	if (m->number == fate.victim)
		raise(SIGKILL);
	CHECK(less);
	common->survivors[m->number] = survivors_of(group, less);
	while (rdma_barrier(less) != 0) { /* it may have the second dead in it */
		rdma_group_free(group);
		group = less;
		less = rdma_group_shrink(group);
		CHECK(less);
	}
	rdma_group_free(group);
	rdma_group_free(less);
	rdma_cleanup(m->ctx);
}

START_TEST(test_die_shrinking)
{
	unsigned long long all = 0;

	fate.victim = _i % 2 ? 0 : 2;
	world.step = (unsigned)_i / 2 + 1;
	processes(5, 1u << 4 | 1u << fate.victim, die_shrinking_run);
	for (int i = 0; i < 4; i++) {
		if (i == fate.victim)
			continue;
		ck_assert_uint_ne(common->survivors[i], 0);
		ck_assert(!all || all == common->survivors[i]);
		all = common->survivors[i];
	}
	ck_assert_uint_eq(all | 1ull << fate.victim, 1ull << 63 | 0xf);
}
END_TEST

/* At any time, on all at once. */
static void die_by_alarm(int signal)
{
	(void)signal;
	raise(SIGKILL);
}

static void die_any_time_run(struct member *m)
{
	rdma_group *group, *less;
	struct itimerval timer = {.it_value.tv_usec = 1 + 150 * (int)world.step};

	process_star(m, 5);
	group = rdma_group_create(m->ctx);
	CHECK(group);
	settle(5);
	signal(SIGALRM, die_by_alarm);
	if (m->number >= 3) {
		timer.it_value.tv_usec *= m->number - 2;
		setitimer(ITIMER_REAL, &timer, NULL);
	}
	while (true) {
		while (rdma_barrier(group) == 0 && rdma_group_size(group) > 3)
			;
		if (rdma_group_size(group) == 3)
			break;
		less = rdma_group_shrink(group);
		if (m->number >= 3)
			raise(SIGKILL);
		CHECK(less);
		rdma_group_free(group);
		group = less;
	}
	rdma_group_free(group);
	rdma_cleanup(m->ctx);
}

START_TEST(test_die_any_time)
{
	world.step = (unsigned)_i;
	processes(5, 1u << 4 | 1u << 3, die_any_time_run);
}
END_TEST

#define FREEZE_HEARTBEAT_MS 100

/* One that stands still for many heartbeats is waited for, as it may compute. */
static void freeze_run(struct member *m)
{
	process_star(m, 4);
	m->group = rdma_group_create(m->ctx);
	CHECK(m->group);
	CHECK(rdma_barrier(m->group) == 0);
	settle(4);
	if (m->number == 2) {
		common->frozen = getpid();
		raise(SIGSTOP);
	}
	if (m->number == 0) {
		rdma_request *barrier = rdma_ibarrier(m->group);

		CHECK(barrier);
		CHECK(rdma_wait(barrier, 20 * FREEZE_HEARTBEAT_MS, NULL) == -1 && rdma_get_errno() == ETIMEDOUT);
		while (!common->frozen)
			usleep(1000);
		kill(common->frozen, SIGCONT);
		CHECK(rdma_wait(barrier, UINT64_MAX, NULL) == 0);
	} else {
		CHECK(rdma_barrier(m->group) == 0);
	}
	assert_works(m->group, 4);
	end(m);
}

START_TEST(test_freeze)
{
	world.options.heartbeat_ms = FREEZE_HEARTBEAT_MS;
	processes(4, 0, freeze_run);
}
END_TEST

/* Two die while the first takes its leave of them, and a broadcast that they did not begin ends by that. */
static void die_leaving_run(struct member *m)
{
	char data[8];

	process_star(m, 3);
	m->group = rdma_group_create(m->ctx);
	CHECK(m->group && rdma_barrier(m->group) == 0);
	settle(3);
	if (m->number != 0) {
		while (common->ready != 0)
			rdma_progress(m->ctx);
		usleep(200000);
		raise(SIGKILL);
	}
	CHECK(rdma_ibcast(m->group, data, sizeof(data), 1));
	for (int i = 0; i < 2; i++)
		while (!message_idle(m->ctx->peer[i]))
			rdma_progress(m->ctx);
	common->ready = 0;
	rdma_cleanup(m->ctx);
}

START_TEST(test_die_leaving)
{
	processes(3, 6, die_leaving_run);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("peer_group_end");
	TCase *four = suite_case(suite, "four", options_default, NULL);
	TCase *tc = suite_case(suite, "processes", options_default, NULL);

	log_set_handler(log_keep);
	tcase_add_loop_test(four, test_die, 2, 3);
	tcase_add_loop_test(tc, test_die, 0, 4);
	tcase_add_test(tc, test_die_two);
	tcase_add_loop_test(tc, test_die_forming, 0, 24);
	tcase_add_loop_test(tc, test_die_meeting, 0, 6);
	tcase_add_loop_test(tc, test_die_shrinking, 0, 24);
	tcase_add_loop_test(tc, test_die_any_time, 0, 12);
	tcase_add_test(tc, test_die_leaving);
	tcase_add_test(tc, test_freeze);
	return suite_run(suite);
}
