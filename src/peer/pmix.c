/*
 * pmix.c: PMIx, by which Slurm and Open MPI let the ranks of a job find each other. libpmix is loaded when a program
 * that one of them has started makes a group, so that no other one depends on it, and so that an MPI in the same
 * program has the same one. PMIx counts its begins: a context ends its own at its end and not before, as MPI cannot
 * begin behind the last end.
 */
#include "config.h"

#include "peer/peer.h"

#include <stdlib.h>
#include <unistd.h>

#ifdef HAVE_PMIX

#include <dlfcn.h>
#include <pmix.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#define FENCE_GRACE (2 * TIME_S) /* the server may say that our time is over, and why */
#define LOOK_MOST (2 * TIME_S)   /* for the ranks that did not come */
#define LOOK_SECONDS 1           /* for one of them */
#define GET_SECONDS 30           /* what a rank has published is here after the fence */
#define FENCE_PENDING 1          /* a status of PMIx is not positive */

static struct {
	void *library;
	pmix_status_t (*init)(pmix_proc_t *, pmix_info_t *, size_t);
	pmix_status_t (*finalize)(const pmix_info_t *, size_t);
	pmix_status_t (*put)(pmix_scope_t, const char *, pmix_value_t *);
	pmix_status_t (*commit)(void);
	pmix_status_t (*fence)(const pmix_proc_t *, size_t, const pmix_info_t *, size_t, pmix_op_cbfunc_t, void *);
	pmix_status_t (*get)(const pmix_proc_t *, const char *, const pmix_info_t *, size_t, pmix_value_t **);
	const char *(*strerror)(pmix_status_t);
	pid_t process;   /* that has begun it; a child of that has its memory, and not its threads */
	unsigned users;  /* contexts */
	unsigned number; /* of the last time that something was published */
	bool sharing;    /* a thread waits for all ranks */
	char why[200];   /* the library is not there */
} pmix;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void pmix_load(void)
{
	static const struct {
		const char *name;
		void *at;
	} functions[] = {
		{"PMIx_Init", &pmix.init},
		{"PMIx_Finalize", &pmix.finalize},
		{"PMIx_Put", &pmix.put},
		{"PMIx_Commit", &pmix.commit},
		{"PMIx_Fence_nb", &pmix.fence},
		{"PMIx_Get", &pmix.get},
		{"PMIx_Error_string", &pmix.strerror},
	};
	void *library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
	void *function = library;

	for (size_t i = 0; i < ARRAY_SIZE(functions) && function; i++) {
		function = dlsym(library, functions[i].name);
		memcpy(functions[i].at, &function, sizeof(function)); /* C has no cast from a datum to a function */
	}
	if (function)
		pmix.library = library;
	else
		snprintf(pmix.why, sizeof(pmix.why), "%s", dlerror());
}

static const char *pmix_text(pmix_status_t status)
{
	const char *text = pmix.strerror(status);

	return text ? text : "an unknown status";
}

static pmix_info_t info_of(const char *key, pmix_value_t value)
{
	pmix_info_t info;

	memset(&info, 0, sizeof(info));
	snprintf(info.key, sizeof(info.key), "%s", key);
	info.value = value;
	return info;
}

static pmix_info_t info_seconds(uint64_t seconds)
{
	return info_of(PMIX_TIMEOUT, (pmix_value_t){.type = PMIX_INT, .data.integer = (int)MIN(seconds, INT32_MAX)});
}

static pmix_info_t info_set(const char *key)
{
	return info_of(key, (pmix_value_t){.type = PMIX_BOOL, .data.flag = true});
}

/* A datum of a rank that the server has. The caller checks its type, and frees it by value_free(). */
static pmix_status_t value_get(const char *nspace, pmix_rank_t rank, const char *key, uint64_t seconds,
			       pmix_value_t **out)
{
	const pmix_info_t info[] = {info_seconds(seconds), info_set(PMIX_IMMEDIATE)};
	pmix_proc_t proc = {.rank = rank};
	pmix_status_t status;

	*out = NULL;
	snprintf(proc.nspace, sizeof(proc.nspace), "%s", nspace);
	status = pmix.get(&proc, key, info, ARRAY_SIZE(info), out);
	return status == PMIX_SUCCESS && !*out ? PMIX_ERR_NOT_FOUND : status;
}

static void value_free(pmix_value_t *value)
{
	if (value && value->type == PMIX_BYTE_OBJECT)
		free(value->data.bo.bytes);
	free(value);
}

/*
 * Begin and end
 */
/* Whether PMIx says the same as the environment. */
static int job_check(const struct launch *launch, const pmix_proc_t *self)
{
	pmix_value_t *value;
	pmix_status_t status;
	uint32_t size = 0;

	if (strnlen(self->nspace, sizeof(self->nspace)) == sizeof(self->nspace) ||
	    strcmp(self->nspace, launch->nspace) != 0 || self->rank != (pmix_rank_t)launch->rank)
		return rdma_fail(-EPROTO,
				 "PMIx says that this is rank %u of job %.100s, and the environment says rank %d of %s",
				 self->rank, self->nspace, launch->rank, launch->nspace);
	status = value_get(self->nspace, PMIX_RANK_WILDCARD, PMIX_JOB_SIZE, GET_SECONDS, &value);
	if (status == PMIX_SUCCESS && value->type == PMIX_UINT32)
		size = value->data.uint32;
	value_free(value);
	if (status != PMIX_SUCCESS)
		return rdma_fail(-EPROTO, "PMIx does not tell the size of job %s: %s", launch->nspace,
				 pmix_text(status));
	if (size != (uint32_t)launch->size)
		return rdma_fail(-EPROTO, "PMIx says that job %s has %u ranks, and the environment says %d",
				 launch->nspace, size, launch->size);
	return 0;
}

static int pmix_begin(rdma_context *ctx, const struct launch *launch)
{
	pmix_proc_t self = {.rank = PMIX_RANK_WILDCARD};
	pmix_status_t status;

	if (!pmix.library && !pmix.why[0])
		pmix_load();
	if (!pmix.library)
		return rdma_fail(-EHOSTUNREACH, "libpmix cannot be loaded: %s", pmix.why);
	if (pmix.users && pmix.process != getpid())
		return rdma_fail(-EHOSTUNREACH, "this process is a child of one that uses PMIx");
	status = pmix.init(&self, NULL, 0);
	if (status != PMIX_SUCCESS)
		return rdma_fail(-EHOSTUNREACH, "PMIx does not answer: %s", pmix_text(status));
	if (job_check(launch, &self) != 0) {
		pmix.finalize(NULL, 0);
		return -EPROTO;
	}
	pmix.users++;
	pmix.process = ctx->pmix = getpid();
	return 0;
}

int pmix_enter(rdma_context *ctx, const struct launch *launch)
{
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (!ctx->pmix || ctx->pmix != getpid())
		rc = pmix_begin(ctx, launch);
	pthread_mutex_unlock(&lock);
	return rc == 0 ? 0 : -rdma_get_errno();
}

void pmix_leave(rdma_context *ctx)
{
	if (ctx->pmix != getpid())
		return;
	pthread_mutex_lock(&lock);
	ctx->pmix = 0;
	pmix.users--;
	pmix.finalize(NULL, 0);
	pthread_mutex_unlock(&lock);
}

/*
 * To publish
 */
/* Held by the thread that waits, and by PMIx until it has called fence_done(), which may be later. */
struct fence {
	atomic_int holders, status;
	int fd;
	pmix_info_t info[2];
};

static void fence_release(struct fence *fence)
{
	if (atomic_fetch_sub(&fence->holders, 1) > 1)
		return;
	close(fence->fd);
	free(fence);
}

/* In a thread of PMIx. */
static void fence_done(pmix_status_t status, void *arg)
{
	struct fence *fence = arg;

	atomic_store(&fence->status, status);
	eventfd_write(fence->fd, 1);
	fence_release(fence);
}

static bool fence_is_over(const void *arg)
{
	return atomic_load(&((const struct fence *)arg)->status) != FENCE_PENDING;
}

static struct fence *fence_new(rdma_context *ctx, uint64_t timeout)
{
	struct fence *fence = calloc(1, sizeof(*fence));

	if (!fence)
		return NULL;
	fence->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	fence->info[0] = info_set(PMIX_COLLECT_DATA);
	fence->info[1] = info_seconds((timeout + TIME_S - 1) / TIME_S);
	atomic_store(&fence->status, FENCE_PENDING);
	atomic_store(&fence->holders, 2);
	if (fence->fd >= 0 && door_watch("peer", ctx->epoll, fence->fd) == 0)
		return fence;
	if (fence->fd >= 0)
		close(fence->fd);
	free(fence);
	return NULL;
}

/* A status of PMIx, or PMIX_ERR_TIMEOUT. */
static pmix_status_t fence_wait(rdma_context *ctx, uint64_t timeout)
{
	uint64_t until = time_after(time_now(), timeout + FENCE_GRACE);
	struct fence *fence = fence_new(ctx, timeout);
	pmix_status_t status;
	int rc = 0;

	if (!fence)
		return PMIX_ERR_NOMEM;
	status = pmix.fence(NULL, 0, fence->info, ARRAY_SIZE(fence->info), fence_done, fence);
	if (status == PMIX_SUCCESS) {
		rc = context_wait(ctx, fence_is_over, fence, until);
		status = rc == 0 ? atomic_load(&fence->status) : PMIX_ERR_TIMEOUT;
	} else { /* it is not called */
		fence_release(fence);
		status = status == PMIX_OPERATION_SUCCEEDED ? PMIX_SUCCESS : status;
	}
	epoll_ctl(ctx->epoll, EPOLL_CTL_DEL, fence->fd, NULL);
	fence_release(fence);
	return status;
}

static void key_of(unsigned number, char key[static 32])
{
	snprintf(key, 32, "rdma_lib.%u", number);
}

/* The ranks that have published nothing, as far as the server tells soon. */
static int share_late(const struct launch *launch, unsigned number, uint64_t timeout)
{
	uint64_t until = time_after(time_now(), LOOK_MOST);
	char key[32], first[60] = "some ranks";
	pmix_value_t *value;
	int missing = 0;

	key_of(number, key);
	for (int rank = 0; rank < launch->size && time_now() < until; rank++) {
		bool here = rank == launch->rank ||
			    value_get(launch->nspace, (pmix_rank_t)rank, key, LOOK_SECONDS, &value) == PMIX_SUCCESS;

		if (here && rank != launch->rank)
			value_free(value);
		if (!here && missing++ == 0)
			snprintf(first, sizeof(first), "rank %d", rank);
	}
	return rdma_fail(-ETIMEDOUT, "%s%s of %d did not come within %g s (PMIx, job %s)", first,
			 missing > 1 ? " and others" : "", launch->size, (double)timeout / TIME_S, launch->nspace);
}

static int share_data(rdma_context *ctx, const struct launch *launch, const void *data, size_t length, uint64_t timeout,
		      unsigned number)
{
	pmix_value_t value = {.type = PMIX_BYTE_OBJECT,
			      .data.bo = {.bytes = (char *)(uintptr_t)data, .size = length}}; /* it is copied */
	pmix_status_t status;
	char key[32];

	key_of(number, key);
	status = pmix.put(PMIX_GLOBAL, key, &value);
	if (status == PMIX_SUCCESS)
		status = pmix.commit();
	if (status != PMIX_SUCCESS)
		return rdma_fail(-EIO, "PMIx takes nothing of rank %d of job %s: %s", launch->rank, launch->nspace,
				 pmix_text(status));
	status = fence_wait(ctx, timeout);
	if (status == PMIX_ERR_TIMEOUT)
		return share_late(launch, number, timeout);
	if (status != PMIX_SUCCESS)
		return rdma_fail(-ECONNRESET, "The ranks of job %s did not all come: PMIx says: %s", launch->nspace,
				 pmix_text(status));
	return 0;
}

int pmix_share(rdma_context *ctx, const struct launch *launch, const void *data, size_t length, uint64_t timeout,
	       unsigned *number)
{
	bool busy;

	pthread_mutex_lock(&lock);
	busy = pmix.sharing;
	pmix.sharing = true;
	if (!busy)
		*number = ++pmix.number;
	pthread_mutex_unlock(&lock);
	if (busy) {
		rdma_fail(-EBUSY, "Another thread of this program is making a group by PMIx");
		return -EBUSY;
	}
	busy = share_data(ctx, launch, data, length, timeout, *number) == 0;
	pthread_mutex_lock(&lock);
	pmix.sharing = false;
	pthread_mutex_unlock(&lock);
	return busy ? 0 : -rdma_get_errno();
}

int pmix_shared(const struct launch *launch, unsigned number, int rank, void *out, size_t room)
{
	pmix_value_t *value;
	pmix_status_t status;
	int length = -EPROTO;
	char key[32];

	key_of(number, key);
	status = value_get(launch->nspace, (pmix_rank_t)rank, key, GET_SECONDS, &value);
	if (status != PMIX_SUCCESS)
		rdma_fail(-EPROTO, "PMIx does not tell what rank %d of job %s has published: %s", rank, launch->nspace,
			  pmix_text(status));
	else if (value->type != PMIX_BYTE_OBJECT || !value->data.bo.bytes || value->data.bo.size > room)
		rdma_fail(-EPROTO, "What rank %d of job %s has published by PMIx is nothing of this library", rank,
			  launch->nspace);
	else
		length = (int)value->data.bo.size;
	if (length > 0)
		memcpy(out, value->data.bo.bytes, (size_t)length);
	value_free(value);
	return length;
}

#else

int pmix_enter(rdma_context *ctx, const struct launch *launch)
{
	(void)ctx;
	rdma_fail(-EHOSTUNREACH, "PMIx, by which %s tells ranks of each other, was left out when the library was built",
		  launch->launcher);
	return -EHOSTUNREACH;
}

void pmix_leave(rdma_context *ctx)
{
	(void)ctx;
}

int pmix_share(rdma_context *ctx, const struct launch *launch, const void *data, size_t length, uint64_t timeout,
	       unsigned *number)
{
	(void)ctx, (void)launch, (void)data, (void)length, (void)timeout, (void)number;
	return -ENOSYS;
}

int pmix_shared(const struct launch *launch, unsigned number, int rank, void *out, size_t room)
{
	(void)launch, (void)number, (void)rank, (void)out, (void)room;
	return -ENOSYS;
}

#endif
