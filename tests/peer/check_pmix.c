/*
 * check_pmix.c: groups by PMIx, with a PMIx of the test's own in place of libpmix: ranks are processes, and what they
 * publish is in memory that they share. It can be missing, be another library, lie, or never answer.
 */
#include "peer/peer.h"

#include <dlfcn.h>
#include <pmix.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/suite.h"

#define RANKS 8
#define TIMES 4
#define BLOB 2048

/* Of all ranks. */
static struct shared {
	atomic_int came[TIMES]; /* to each fence */
	atomic_int finalized, begun;
	struct {
		size_t length;
		char key[64];
		char bytes[BLOB];
	} blob[RANKS][TIMES];
} * shared;

/* Of this one, and how it misbehaves. */
static struct fake {
	int rank, size;
	unsigned published, fences;
	bool no_library, unlike; /* it lacks a function */
	pmix_status_t init, put, commit, fence;
	pmix_proc_t self; /* as PMIx_Init() says */
	bool job_of_other_type;
	pmix_status_t job;
	bool never, late; /* a fence is not over; or when the time of its caller is */
	void (*tamper)(pmix_rank_t rank, pmix_value_t *value); /* with what was published */
	pmix_status_t tampered;
	struct {
		pthread_t thread;
		pmix_op_cbfunc_t done;
		void *arg;
	} waits[TIMES];
	unsigned threads;
	atomic_uint looks;      /* how often it was asked for what nobody has published */
	_Atomic uint64_t ahead; /* ns, of the clock */
} fake;

uint64_t __real_time_now(void);
uint64_t __wrap_time_now(void);
uint64_t __wrap_time_now(void)
{
	return __real_time_now() + atomic_load(&fake.ahead);
}

/*
 * PMIx
 */
static pmix_status_t fake_init(pmix_proc_t *self, pmix_info_t *info, size_t count)
{
	(void)info, (void)count;
	if (fake.init != PMIX_SUCCESS)
		return fake.init;
	*self = fake.self;
	atomic_fetch_add(&shared->begun, 1);
	return PMIX_SUCCESS;
}

static pmix_status_t fake_finalize(const pmix_info_t *info, size_t count)
{
	(void)info, (void)count;
	atomic_fetch_add(&shared->finalized, 1);
	for (; fake.threads; fake.threads--)
		pthread_join(fake.waits[fake.threads - 1].thread, NULL);
	return PMIX_SUCCESS;
}

static pmix_status_t fake_put(pmix_scope_t scope, const char *key, pmix_value_t *value)
{
	ck_assert_int_eq(scope, PMIX_GLOBAL);
	ck_assert_int_eq(value->type, PMIX_BYTE_OBJECT);
	ck_assert_uint_lt(fake.published, TIMES);
	ck_assert_uint_le(value->data.bo.size, BLOB);
	if (fake.put != PMIX_SUCCESS)
		return fake.put;
	shared->blob[fake.rank][fake.published].length = value->data.bo.size;
	snprintf(shared->blob[fake.rank][fake.published].key, 64, "%s", key);
	memcpy(shared->blob[fake.rank][fake.published].bytes, value->data.bo.bytes, value->data.bo.size);
	fake.published++;
	return PMIX_SUCCESS;
}

static pmix_status_t fake_commit(void)
{
	return fake.commit;
}

/* The one that is late comes when its caller has given up, and asks who is missing. */
static void *fence_main(void *arg)
{
	unsigned n = (unsigned)(uintptr_t)arg;

	while (fake.late ? atomic_load(&fake.looks) <= n : atomic_load(&shared->came[n]) < fake.size)
		usleep(1000);
	fake.waits[n].done(PMIX_SUCCESS, fake.waits[n].arg);
	return NULL;
}

static pmix_status_t fake_fence(const pmix_proc_t *procs, size_t count, const pmix_info_t *info, size_t infos,
				pmix_op_cbfunc_t done, void *arg)
{
	bool collects = false, limited = false;

	for (size_t i = 0; i < infos; i++) {
		collects |= strcmp(info[i].key, PMIX_COLLECT_DATA) == 0 && info[i].value.type == PMIX_BOOL &&
			    info[i].value.data.flag;
		limited |= strcmp(info[i].key, PMIX_TIMEOUT) == 0 && info[i].value.type == PMIX_INT &&
			   info[i].value.data.integer == 120;
	}
	ck_assert(!procs && count == 0 && collects && limited);
	ck_assert_uint_lt(fake.fences, TIMES);
	atomic_fetch_add(&shared->came[fake.fences], 1);
	if (fake.fence != PMIX_SUCCESS)
		return fake.fence;
	fake.waits[fake.fences].done = done;
	fake.waits[fake.fences].arg = arg;
	if (fake.never || fake.late)
		atomic_fetch_add(&fake.ahead, 123 * TIME_S);
	if (!fake.never)
		ck_assert_int_eq(pthread_create(&fake.waits[fake.threads++].thread, NULL, fence_main,
						(void *)(uintptr_t)fake.fences),
				 0);
	fake.fences++;
	return PMIX_SUCCESS;
}

static pmix_status_t get_job(pmix_value_t **out)
{
	if (fake.job != PMIX_SUCCESS)
		return fake.job;
	*out = calloc(1, sizeof(**out));
	(*out)->type = fake.job_of_other_type ? PMIX_INT : PMIX_UINT32;
	(*out)->data.uint32 = (uint32_t)fake.size;
	return PMIX_SUCCESS;
}

static pmix_status_t fake_get(const pmix_proc_t *proc, const char *key, const pmix_info_t *info, size_t count,
			      pmix_value_t **out)
{
	(void)info;
	ck_assert_uint_eq(count, 2);
	if (strcmp(key, PMIX_JOB_SIZE) == 0)
		return get_job(out);
	ck_assert_uint_lt(proc->rank, RANKS);
	for (int n = 0; n < TIMES; n++) {
		pmix_value_t *value;

		if (strcmp(shared->blob[proc->rank][n].key, key) != 0)
			continue;
		value = calloc(1, sizeof(*value));
		value->type = PMIX_BYTE_OBJECT;
		value->data.bo.size = shared->blob[proc->rank][n].length;
		value->data.bo.bytes = malloc(BLOB);
		memcpy(value->data.bo.bytes, shared->blob[proc->rank][n].bytes, BLOB);
		if (fake.tamper)
			fake.tamper(proc->rank, value);
		*out = value;
		return fake.tampered;
	}
	atomic_fetch_add(&fake.looks, 1);
	return PMIX_ERR_NOT_FOUND;
}

static const char *fake_string(pmix_status_t status)
{
	return status == PMIX_ERR_UNREACH           ? "UNREACHABLE"
	       : status == PMIX_ERR_LOST_CONNECTION ? "LOST-CONNECTION"
						    : NULL;
}

void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags)
{
	if (strncmp(name, "libpmix", 7) != 0)
		return __real_dlopen(name, flags);
	ck_assert_str_eq(name, "libpmix.so.2");
	return fake.no_library ? __real_dlopen("libpmix-is-not-here.so.2", flags) : &fake;
}

void *__real_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name)
{
	static const struct {
		const char *name;
		void (*function)(void);
	} functions[] = {
		{"PMIx_Init", (void (*)(void))fake_init},
		{"PMIx_Finalize", (void (*)(void))fake_finalize},
		{"PMIx_Put", (void (*)(void))fake_put},
		{"PMIx_Commit", (void (*)(void))fake_commit},
		{"PMIx_Fence_nb", (void (*)(void))fake_fence},
		{"PMIx_Get", (void (*)(void))fake_get},
		{"PMIx_Error_string", (void (*)(void))fake_string},
	};
	void *out = NULL;

	if (library != &fake)
		return __real_dlsym(library, name);
	for (size_t i = 0; i < ARRAY_SIZE(functions); i++)
		if (strcmp(functions[i].name, name) == 0)
			memcpy(&out, &functions[i].function, sizeof(out));
	if (fake.unlike && strcmp(name, "PMIx_Get") == 0)
		return __real_dlsym(RTLD_DEFAULT, "PMIx_Get_of_another_library");
	ck_assert_ptr_nonnull(out);
	return out;
}

/*
 * Ranks
 */
static void launched(int rank, int size)
{
	char text[16];

	fake.rank = rank;
	fake.size = size;
	fake.self = (pmix_proc_t){.nspace = "job", .rank = (pmix_rank_t)rank};
	unsetenv("RDMA_MEETING");
	unsetenv("RDMAD_HOST");
	setenv("PMIX_NAMESPACE", "job", 1);
	snprintf(text, sizeof(text), "%d", rank);
	setenv("PMIX_RANK", text, 1);
	snprintf(text, sizeof(text), "%d", size);
	setenv("OMPI_COMM_WORLD_SIZE", text, 1);
}

static void up(void)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
	launched(0, 2);
}

static rdma_context *context(void)
{
	rdma_options options = {.heartbeat_ms = 60000};
	rdma_context *ctx = rdma_init_options(NULL, 0, false, &options);

	ck_assert_msg(ctx, "%s", rdma_get_error());
	return ctx;
}

static void assert_works(rdma_group *group, int size)
{
	int64_t mine, sum = 0;

	ck_assert_msg(group, "%s", rdma_get_error());
	ck_assert_int_eq(rdma_group_size(group), size);
	mine = rdma_group_rank(group) + 1;
	ck_assert_msg(rdma_allreduce(group, &mine, &sum, 1, RDMA_INT64, RDMA_SUM) == 0, "%s", rdma_get_error());
	ck_assert_int_eq(sum, (int64_t)size * (size + 1) / 2);
}

static void await(pid_t child)
{
	int status = -1;

	ck_assert_int_gt(child, 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}

/* Each in a process. */
static void run(int size, void (*rank_run)(int rank, int size))
{
	pid_t child[RANKS];

	for (int i = 0; i < size; i++) {
		child[i] = fork();
		if (child[i])
			continue;
		launched(i, size);
		rank_run(i, size);
		exit(EXIT_SUCCESS);
	}
	for (int i = 0; i < size; i++)
		await(child[i]);
}

static void once_run(int rank, int size)
{
	rdma_context *ctx = context();
	rdma_group *group = rdma_group_run(ctx);

	assert_works(group, size);
	ck_assert_int_eq(rdma_group_rank(group), rank);
	rdma_group_free(group);
	rdma_cleanup(ctx);
}

/* Two groups at a time of one context, and one of another one, whose end is not that of PMIx. */
static void groups_run(int rank, int size)
{
	rdma_context *ctx = context(), *other = context();
	rdma_group *group = rdma_group_run(ctx), *second, *third;
	pid_t child;

	assert_works(group, size);
	second = rdma_group_run(ctx);
	assert_works(second, size);
	third = rdma_group_run(other);
	assert_works(third, size);
	rdma_group_free(third);
	rdma_cleanup(other);
	assert_works(group, size);
	assert_works(second, size);
	child = fork();
	if (child == 0) { /* the parent's PMIx is none of its own */
		rdma_context *own = context();
		struct launch launch;
		bool refused = launch_read(&launch) == 0 && pmix_enter(own, &launch) == -EHOSTUNREACH &&
			       strstr(rdma_get_error(), "this process is a child of one that uses PMIx");

		rdma_cleanup(own);
		pmix_leave(ctx);
		_exit(refused ? 0 : 9);
	}
	await(child);
	rdma_group_free(second);
	rdma_group_free(group);
	rdma_cleanup(ctx);
	(void)rank;
}

START_TEST(test_once)
{
	run(_i, once_run);
	ck_assert_int_eq(shared->begun, _i);
	ck_assert_int_eq(shared->finalized, _i);
}
END_TEST

START_TEST(test_groups)
{
	run(3, groups_run);
	ck_assert_int_eq(shared->begun, 6);
	ck_assert_int_eq(shared->finalized, 6);
}
END_TEST

/*
 * A PMIx that is not as it should be
 */
static void no_library(void)
{
	fake.no_library = true;
}

static void unlike(void)
{
	fake.unlike = true;
}

static void unreachable(void)
{
	fake.init = PMIX_ERR_UNREACH;
}

static void unknown_status(void)
{
	fake.init = -4711;
}

static void other_job(void)
{
	snprintf(fake.self.nspace, sizeof(fake.self.nspace), "other");
}

static void endless_job(void)
{
	memset(fake.self.nspace, 'j', sizeof(fake.self.nspace));
}

static void other_rank(void)
{
	fake.self.rank = 1;
}

static void other_size(void)
{
	fake.size = 3;
}

static void other_type(void)
{
	fake.job_of_other_type = true;
}

static void no_job(void)
{
	fake.job = PMIX_ERR_NOT_FOUND;
}

static const struct {
	void (*how)(void);
	int error;
	const char *words;
} beginnings[] = {
	{no_library, EHOSTUNREACH, "libpmix cannot be loaded: libpmix-is-not-here.so.2: "},
	{unlike, EHOSTUNREACH, "libpmix cannot be loaded: "},
	{unreachable, EHOSTUNREACH, "PMIx does not answer: UNREACHABLE"},
	{unknown_status, EHOSTUNREACH, "PMIx does not answer: an unknown status"},
	{other_job, EPROTO, "PMIx says that this is rank 0 of job other, and the environment says rank 0 of job"},
	{endless_job, EPROTO, "PMIx says that this is rank 0 of job jjj"},
	{other_rank, EPROTO, "PMIx says that this is rank 1 of job job, and the environment says rank 0"},
	{other_size, EPROTO, "PMIx says that job job has 3 ranks, and the environment says 2"},
	{other_type, EPROTO, "PMIx says that job job has 0 ranks"},
	{no_job, EPROTO, "PMIx does not tell the size of job job: "},
};

/* Twice, as the second time may be another way. */
START_TEST(test_begin)
{
	rdma_context *ctx = context();
	struct launch launch;

	beginnings[_i].how();
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(launch_read(&launch), 0);
		ck_assert_int_eq(pmix_enter(ctx, &launch), -beginnings[_i].error);
		ck_assert_int_eq(rdma_get_errno(), beginnings[_i].error);
		ck_assert_msg(strstr(rdma_get_error(), beginnings[_i].words), "%s", rdma_get_error());
		ck_assert_int_eq(shared->begun, shared->finalized);
	}
	rdma_cleanup(ctx);
	ck_assert_int_eq(shared->begun, shared->finalized);
}
END_TEST

static void put_fails(void)
{
	fake.put = PMIX_ERR_LOST_CONNECTION;
}

static void commit_fails(void)
{
	fake.commit = PMIX_ERR_LOST_CONNECTION;
}

static void fence_fails(void)
{
	fake.fence = PMIX_ERR_LOST_CONNECTION;
}

static void fence_late(void)
{
	fake.fence = PMIX_ERR_TIMEOUT;
}

static void fence_never(void)
{
	fake.never = true;
}

static void fence_later(void)
{
	fake.late = true;
}

static void nobody(void)
{
	fake.fence = PMIX_OPERATION_SUCCEEDED;
}

static const struct {
	void (*how)(void);
	int error;
	const char *words;
} fences[] = {
	{put_fails, EIO, "PMIx takes nothing of rank 0 of job job: LOST-CONNECTION"},
	{commit_fails, EIO, "PMIx takes nothing of rank 0 of job job: LOST-CONNECTION"},
	{fence_fails, ECONNRESET, "The ranks of job job did not all come: PMIx says: LOST-CONNECTION"},
	{fence_late, ETIMEDOUT, "rank 1 of 2 did not come within 120 s (PMIx, job job)"},
	{fence_never, ETIMEDOUT, "rank 1 of 2 did not come within 120 s (PMIx, job job)"},
	{fence_later, ETIMEDOUT, "rank 1 of 2 did not come within 120 s (PMIx, job job)"},
	{nobody, EPROTO, "PMIx does not tell what rank 1 of job job has published: "},
};

START_TEST(test_fence)
{
	rdma_context *ctx = context();

	fences[_i].how();
	for (int i = 0; i < 2; i++) { /* what is left of the first time does no harm */
		ck_assert_ptr_null(rdma_group_run(ctx));
		ck_assert_msg(strstr(rdma_get_error(), fences[_i].words), "%s", rdma_get_error());
		ck_assert_int_eq(rdma_get_errno(), fences[_i].error);
	}
	rdma_cleanup(ctx);
	ck_assert_int_eq(shared->begun, 1);
	ck_assert_int_eq(shared->finalized, 1);
}
END_TEST

/*
 * A server that lies of what rank 1 has published. What it has of rank 0 is right, and has the same form.
 */
struct page {
	struct wire_peer_group head;
	struct wire_peer_member member;
	char addresses[BLOB - 40];
};

static int lie;

static const struct {
	size_t length;               /* but 0: as it should be; 1: none */
	struct wire_peer_group head; /* is added to what should be there */
	struct wire_peer_member member;
	const char *words;
} lies[] = {
	{.length = 1, .words = "what rank 1 has published by PMIx is broken"},
	{.length = 23, .words = "what rank 1 has published by PMIx is broken"},
	{.length = 24, .words = "what rank 1 has published by PMIx is broken"},
	{.length = 39, .words = "what rank 1 has published by PMIx is broken"},
	{.length = 40, .words = "what rank 1 has published by PMIx is broken"},
	{.length = 552, .words = "what rank 1 has published by PMIx is broken"}, /* bytes behind it */
	{.length = 553, .words = "has published by PMIx is nothing of this library"},
	{.length = SIZE_MAX, .words = "has published by PMIx is nothing of this library"},
	{.head.size = 1, .words = "what rank 1 has published by PMIx is broken"},
	{.head.rank = UINT32_MAX, .words = "what rank 1 has published by PMIx is broken"},
	{.head.first = UINT32_MAX, .words = "what rank 1 has published by PMIx is broken"},
	{.head.count = 1, .words = "what rank 1 has published by PMIx is broken"},
	{.head.count = UINT32_MAX, .words = "what rank 1 has published by PMIx is broken"},
	{.member.rank = 1, .words = "what rank 1 has published by PMIx is broken"},
	{.member.rank = UINT32_MAX, .words = "what rank 1 has published by PMIx is broken"},
	{.member.addresses_len = 1u << 31, .words = "what rank 1 has published by PMIx is broken"},
	{.member.addresses_len = 500, .words = "what rank 1 has published by PMIx is broken"},
	{.length = 40, .member.addresses_len = -16u, .words = "rank 1 of 2 has told no address"},
};

static void tamper(pmix_rank_t rank, pmix_value_t *value)
{
	struct page page = {.head = {.size = 2, .rank = 1, .first = 1, .count = 1}};

	if (rank == 0)
		return;
	page.member = (struct wire_peer_member){.token = 1ull << 63 | 1 << 16, .rank = 1, .addresses_len = 16};
	memset(page.addresses, ' ', sizeof(page.addresses));
	memcpy(page.addresses, "tcp://127.0.0.1:1", 16);
	page.head.size += lies[lie].head.size;
	page.head.rank += lies[lie].head.rank;
	page.head.first += lies[lie].head.first;
	page.head.count += lies[lie].head.count;
	page.member.rank += lies[lie].member.rank;
	page.member.addresses_len += lies[lie].member.addresses_len;
	value->data.bo.size = lies[lie].length == 1 ? 0 : lies[lie].length ? lies[lie].length : 56;
	memcpy(value->data.bo.bytes, &page, sizeof(page));
}

START_TEST(test_lies)
{
	rdma_context *ctx = context();

	lie = _i;
	fake.tamper = tamper;
	fake.fence = PMIX_OPERATION_SUCCEEDED;
	shared->blob[1][0].length = 1;
	snprintf(shared->blob[1][0].key, 64, "rdma_lib.1");
	ck_assert_ptr_null(rdma_group_run(ctx));
	ck_assert_msg(strstr(rdma_get_error(), lies[lie].words), "%s", rdma_get_error());
	rdma_cleanup(ctx);
	ck_assert_int_eq(shared->finalized, 1);
}
END_TEST

static void no_bytes(pmix_rank_t rank, pmix_value_t *value)
{
	(void)rank;
	free(value->data.bo.bytes);
	value->data.bo.bytes = NULL;
}

static void other_value(pmix_rank_t rank, pmix_value_t *value)
{
	(void)rank;
	free(value->data.bo.bytes);
	value->type = PMIX_UINT32;
}

static void no_number(pmix_rank_t rank, pmix_value_t *value)
{
	if (rank == 0)
		memset(value->data.bo.bytes, 0, sizeof(uint32_t));
}

static void untouched(pmix_rank_t rank, pmix_value_t *value)
{
	(void)rank, (void)value;
}

static const struct {
	void (*tamper)(pmix_rank_t rank, pmix_value_t *value);
	pmix_status_t status;
	const char *words;
} values[] = {
	{no_bytes, PMIX_SUCCESS, "What rank 0 of job job has published by PMIx is nothing of this library"},
	{other_value, PMIX_SUCCESS, "What rank 0 of job job has published by PMIx is nothing of this library"},
	{no_number, PMIX_SUCCESS, "what rank 0 has published by PMIx is broken"},
	{untouched, PMIX_ERR_LOST_CONNECTION,
	 "PMIx does not tell what rank 0 of job job has published: LOST-CONNECTION"},
};

/* Of rank 0, told to rank 1: its number is the group's. */
START_TEST(test_values)
{
	rdma_context *ctx = context();
	const struct wire_peer_group head = {.number = 7, .size = 2, .count = 1};
	const struct wire_peer_member member = {.token = 1ull << 63};

	launched(1, 2);
	fake.tamper = values[_i].tamper;
	fake.tampered = values[_i].status;
	fake.fence = PMIX_OPERATION_SUCCEEDED;
	shared->blob[0][0].length = sizeof(head) + sizeof(member);
	snprintf(shared->blob[0][0].key, 64, "rdma_lib.1");
	memcpy(shared->blob[0][0].bytes, &head, sizeof(head));
	memcpy(shared->blob[0][0].bytes + sizeof(head), &member, sizeof(member));
	ck_assert_ptr_null(rdma_group_run(ctx));
	ck_assert_msg(strstr(rdma_get_error(), values[_i].words), "%s", rdma_get_error());
	rdma_cleanup(ctx);
}
END_TEST

/* A second thread is refused while the first one waits. */
static void *first_main(void *ctx)
{
	return rdma_group_run(ctx);
}

START_TEST(test_threads)
{
	rdma_context *ctx = context(), *other = context();
	rdma_group *group = NULL;
	pthread_t thread;
	void *none;

	ck_assert_int_eq(pthread_create(&thread, NULL, first_main, other), 0);
	while (!atomic_load(&shared->came[0]))
		usleep(1000);
	group = rdma_group_run(ctx);
	ck_assert_ptr_null(group);
	ck_assert_int_eq(rdma_get_errno(), EBUSY);
	fake.tamper = tamper; /* rank 1 comes, and is none */
	lie = 0;
	snprintf(shared->blob[1][0].key, 64, "rdma_lib.1");
	atomic_fetch_add(&shared->came[0], 1);
	pthread_join(thread, &none);
	ck_assert_ptr_null(none);
	rdma_cleanup(ctx);
	rdma_cleanup(other);
	ck_assert_int_eq(shared->begun, 2);
	ck_assert_int_eq(shared->finalized, 2);
}
END_TEST

/* Where a meeting is named, or nothing of PMIx is set, it is not asked. */
START_TEST(test_unasked)
{
	rdma_context *ctx = context();

	setenv(_i ? "RDMAD_HOST" : "RDMA_MEETING", "unix:///nowhere/at/all", 1);
	ck_assert_ptr_null(rdma_group_run(ctx));
	ck_assert_msg(strstr(rdma_get_error(), "group \"job\": the rdmad is not reached"), "%s", rdma_get_error());
	ck_assert_int_eq(shared->begun, 0);
	rdma_cleanup(ctx);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pmix");
	TCase *tc = suite_case(suite, "groups", up, NULL);

	tcase_add_loop_test(tc, test_once, 1, 5);
	tcase_add_test(tc, test_groups);
	tcase_add_test(tc, test_threads);
	tcase_add_loop_test(tc, test_unasked, 0, 2);
	tc = suite_case(suite, "lies", up, NULL);
	tcase_add_loop_test(tc, test_begin, 0, (int)ARRAY_SIZE(beginnings));
	tcase_add_loop_test(tc, test_fence, 0, (int)ARRAY_SIZE(fences));
	tcase_add_loop_test(tc, test_lies, 0, (int)ARRAY_SIZE(lies));
	tcase_add_loop_test(tc, test_values, 0, (int)ARRAY_SIZE(values));
	return suite_run(suite);
}
