/* verbs_shim.c: the shapes. Whatever fabric/verbs/verbs.h calls through a context's table is replaced in that table. */
#include "fake/verbs_shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#undef ibv_reg_mr

static struct {
	const char *name, *help, *text;
	bool on;
	_Atomic long calls;
} shapes[SHAPE_COUNT] = {
#define SHAPE_ROW(n, h) [SHAPE_##n] = {.name = #n, .help = h},
	SHAPES(SHAPE_ROW)};

struct shim_cq shim_cqs[SHIM_OBJECTS];
struct ibv_srq *shim_srqs[SHIM_OBJECTS];

static struct ibv_context_ops real; /* one provider's: all devices are Soft-RoCE */
static int (*real_query_port)(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t pinned;
static _Atomic unsigned long dropped;

bool shim_on(enum shim_shape shape)
{
	return shapes[shape].on;
}

long shim_value(enum shim_shape shape)
{
	return shapes[shape].on ? strtol(shapes[shape].text, NULL, 0) : 0;
}

const char *shim_text(enum shim_shape shape)
{
	return shapes[shape].text;
}

/* Is this the call that has to fail? */
static bool fails(enum shim_shape shape)
{
	return shapes[shape].on && ++shapes[shape].calls == shim_value(shape);
}

static bool beyond(enum shim_shape shape, uint64_t value)
{
	return shapes[shape].on && value > (uint64_t)shim_value(shape);
}

static void print_help(void)
{
	fprintf(stderr, "VERBS_SHIM=SHAPE,...\n");
	for (int i = 0; i < SHAPE_COUNT; i++)
		fprintf(stderr, "  %-16s %s\n", shapes[i].name, shapes[i].help);
	shim_commands_help();
}

static void choose(char *word)
{
	char *value = strchr(word, '=');

	if (value)
		*value++ = 0;
	for (int i = 0; i < SHAPE_COUNT; i++)
		if (strcmp(shapes[i].name, word) == 0) {
			shapes[i].on = true;
			shapes[i].text = value ? value : "0";
			return;
		}
	fprintf(stderr, "verbs_shim: there is no shape %s\n", word);
	print_help();
	_exit(2);
}

__attribute__((constructor)) static void begin(void)
{
	const char *text = getenv("VERBS_SHIM");
	char *copy = strdup(text ? text : ""), *rest;

	if (strcmp(copy, "help") == 0)
		print_help();
	else
		for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
			choose(word);
	/* The copy stays: shapes point into it. */
}

__attribute__((destructor)) static void end(void)
{
	if (shim_on(SHAPE_count) && dropped)
		fprintf(stderr, "verbs_shim: %lu completions dropped\n", dropped);
}

void *shim_next(const char *name)
{
	void *function = dlsym(RTLD_NEXT, name);

	if (function)
		return function;
	fprintf(stderr, "verbs_shim: nobody has %s\n", name);
	abort();
}

static int refuse(int error)
{
	errno = error;
	return error;
}

/*
 * Memory that counts against RLIMIT_MEMLOCK.
 */
static bool pin(uint64_t bytes)
{
	bool fits;

	pthread_mutex_lock(&lock);
	fits = !beyond(SHAPE_memlock, pinned + bytes);
	pinned += fits ? bytes : 0;
	pthread_mutex_unlock(&lock);
	return fits;
}

static void unpin(uint64_t bytes)
{
	pthread_mutex_lock(&lock);
	pinned -= bytes;
	pthread_mutex_unlock(&lock);
}

/* Regions, by local key, with their rights. */
static struct {
	uint32_t lkey;
	int access;
} regions[SHIM_OBJECTS];

static void region_put(uint32_t lkey, uint32_t was, int access)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < SHIM_OBJECTS; i++)
		if (regions[i].lkey == was) {
			regions[i].lkey = lkey;
			regions[i].access = access;
			break;
		}
	pthread_mutex_unlock(&lock);
}

static bool region_allows(uint32_t lkey, int access)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < SHIM_OBJECTS && !found; i++)
		found = regions[i].lkey == lkey && (regions[i].access & access);
	pthread_mutex_unlock(&lock);
	return found;
}

SHIM_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
					    unsigned access)
{
	struct ibv_mr *mr = NULL;

	errno = shim_gone() ? EIO : ENOMEM;
	if (shim_gone() || fails(SHAPE_fail_reg_mr) || !pin(length))
		return NULL;
	mr = SHIM_NEXT(ibv_reg_mr_iova2)(pd, addr, length, iova, access);
	if (mr)
		region_put(mr->lkey, 0, (int)access);
	else
		unpin(length);
	return mr;
}

SHIM_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

/* The pages stay pinned, also when they are not mapped any more. The kernel pins no shared ones that it may only read. */
static struct ibv_mr *reg_mapped(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	size_t before = offset % 4096;
	char *map = mmap(NULL, before + length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(offset - before));
	struct ibv_mr *mr;

	if (map == MAP_FAILED) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	mr = ibv_reg_mr_iova2(pd, map + before, length, iova, (unsigned)access);
	munmap(map, before + length);
	return mr;
}

SHIM_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
					     int access)
{
	return shim_on(SHAPE_dmabuf) ? reg_mapped(pd, offset, length, iova, fd, access)
				     : SHIM_NEXT(ibv_reg_dmabuf_mr)(pd, offset, length, iova, fd, access);
}

SHIM_EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	uint32_t lkey = mr->lkey;
	size_t length = mr->length;
	int rc = SHIM_NEXT(ibv_dereg_mr)(mr);

	if (rc == 0) {
		region_put(0, lkey, 0);
		unpin(length);
	}
	return rc;
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	if (shim_on(SHAPE_no_windows)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return real.alloc_mw(pd, type);
}

/*
 * Completion queues.
 */
static struct shim_cq *cq_find(const struct ibv_cq *cq)
{
	for (int i = 0; i < SHIM_OBJECTS; i++)
		if (shim_cqs[i].cq == cq)
			return &shim_cqs[i];
	return NULL;
}

static int cq_size(int cqe)
{
	int size = 1;

	while (size < cqe + 1)
		size *= 2;
	return shim_on(SHAPE_cq_round) ? size - 1 : cqe;
}

static struct ibv_cq *cq_make(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel,
			      int vector, uint64_t bytes)
{
	struct ibv_cq *cq;

	shim_kernel_begin(context, channel);
	cq = SHIM_NEXT(ibv_create_cq)(context, cqe, cq_context, channel, vector);
	shim_kernel_end(context, channel);
	if (!cq)
		unpin(bytes);
	return cq;
}

SHIM_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
					 struct ibv_comp_channel *channel, int vector)
{
	uint64_t bytes = ((uint64_t)cq_size(cqe) + 1) * 64;
	struct ibv_cq *cq = NULL;
	struct shim_cq *c;

	if (shim_on(SHAPE_fail_create_cq) && ++shapes[SHAPE_fail_create_cq].calls >= shim_value(SHAPE_fail_create_cq))
		errno = ENOMEM;
	else if (shim_gone())
		errno = EIO;
	else if (beyond(SHAPE_max_cqe, (uint64_t)cqe))
		errno = EINVAL;
	else if (!pin(bytes))
		errno = ENOMEM;
	else
		cq = cq_make(context, cqe, cq_context, channel, vector, bytes);
	if (!cq)
		return NULL;
	pthread_mutex_lock(&lock);
	c = cq_find(NULL);
	*c = (struct shim_cq){.cq = cq, .pinned = bytes};
	pthread_mutex_unlock(&lock);
	return cq;
}

SHIM_EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	uint64_t bytes = ((uint64_t)cq_size(cqe) + 1) * 64;
	struct shim_cq *c = cq_find(cq);
	int rc;

	if (shim_gone())
		return refuse(EIO);
	if (beyond(SHAPE_max_cqe, (uint64_t)cqe))
		return refuse(EINVAL);
	if (!pin(bytes))
		return refuse(ENOMEM);
	rc = SHIM_NEXT(ibv_resize_cq)(cq, cqe);
	unpin(rc ? bytes : c->pinned);
	if (rc == 0)
		c->pinned = bytes;
	return rc;
}

SHIM_EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct shim_cq *c = cq_find(cq);
	int rc;

	shim_forget(cq);
	rc = SHIM_NEXT(ibv_destroy_cq)(cq);
	if (rc != 0)
		return rc;
	unpin(c->pinned);
	pthread_mutex_lock(&lock);
	free(c->stash);
	*c = (struct shim_cq){.cq = NULL};
	pthread_mutex_unlock(&lock);
	return 0;
}

static void stash_add(struct shim_cq *c, const struct ibv_wc *wc)
{
	if (c->stashed == c->room) {
		c->room = c->room ? 2 * c->room : 64;
		c->stash = realloc(c->stash, c->room * sizeof(*c->stash));
		if (!c->stash)
			abort();
	}
	c->stash[c->stashed++] = *wc;
}

/* Take all that there is out of the queue, and throw away what is of this queue pair. */
static void cq_clean(struct ibv_cq *cq, uint32_t qp_num)
{
	struct shim_cq *c = cq_find(cq);
	struct ibv_wc wc;
	unsigned kept = 0;

	while (real.poll_cq(cq, 1, &wc) == 1)
		stash_add(c, &wc);
	for (unsigned i = 0; i < c->stashed; i++)
		if (c->stash[i].qp_num == qp_num)
			dropped++;
		else
			c->stash[kept++] = c->stash[i];
	c->stashed = kept;
}

static int poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
	struct shim_cq *c = cq_find(cq);
	int n = 0, got;

	if (c->negative)
		return -1;
	if (c->silent || shim_gone())
		return 0;
	while (n < max && n < (int)c->stashed) {
		wc[n] = c->stash[n];
		n++;
	}
	if (n) {
		c->stashed -= (unsigned)n;
		memmove(c->stash, c->stash + n, c->stashed * sizeof(*c->stash));
	}
	if (n == max)
		return n;
	got = real.poll_cq(cq, max - n, wc + n);
	for (int i = n; i < n + got && shim_cut(); i++)
		if (wc[i].status == IBV_WC_SUCCESS && !(wc[i].opcode & IBV_WC_RECV))
			wc[i].status = IBV_WC_LOC_QP_OP_ERR;
	return got < 0 ? got : n + got;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	return cq_find(cq)->deaf ? refuse(EIO) : real.req_notify_cq(cq, solicited_only);
}

/*
 * Queue pairs and shared receive queues.
 */
static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	*bad = wr;
	if (fails(SHAPE_fail_post_send))
		return refuse(ENOMEM);
	if (shim_gone())
		return 0;
	for (struct ibv_send_wr *w = wr; w; w = w->next) {
		uint64_t bytes = 0;

		*bad = w;
		if ((shim_on(SHAPE_no_write_imm) || shim_on(SHAPE_iwarp)) && w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
			return refuse(EINVAL);
		for (int i = 0; i < w->num_sge; i++) {
			bytes += w->sg_list[i].length;
			if (shim_on(SHAPE_iwarp) && w->opcode == IBV_WR_RDMA_READ &&
			    !region_allows(w->sg_list[i].lkey, IBV_ACCESS_REMOTE_WRITE))
				return refuse(EINVAL);
		}
		if ((w->send_flags & IBV_SEND_INLINE) && beyond(SHAPE_inline_size, bytes))
			return refuse(EINVAL);
	}
	return real.post_send(qp, wr, bad);
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	*bad = wr;
	return fails(SHAPE_fail_post_recv) ? refuse(ENOMEM) : real.post_recv(qp, wr, bad);
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	*bad = wr;
	return fails(SHAPE_fail_post_recv) ? refuse(ENOMEM) : real.post_srq_recv(srq, wr, bad);
}

static int qp_refused(const struct ibv_qp_cap *cap)
{
	if (shim_gone())
		return EIO;
	if (fails(SHAPE_fail_create_qp))
		return ENOMEM;
	if (shim_on(SHAPE_no_rc))
		return EOPNOTSUPP;
	if (beyond(SHAPE_inline_size, cap->max_inline_data) || beyond(SHAPE_max_sge, cap->max_send_sge) ||
	    beyond(SHAPE_max_sge, cap->max_recv_sge) || beyond(SHAPE_max_wr, cap->max_send_wr) ||
	    beyond(SHAPE_max_wr, cap->max_recv_wr))
		return EINVAL;
	return 0;
}

SHIM_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	int error = qp_refused(&attr->cap);
	struct ibv_qp *qp;

	if (error) {
		errno = error;
		return NULL;
	}
	shim_kernel_begin(pd->context, NULL);
	qp = SHIM_NEXT(ibv_create_qp)(pd, attr);
	shim_kernel_end(pd->context, NULL);
	if (qp && beyond(SHAPE_inline_size, attr->cap.max_inline_data))
		attr->cap.max_inline_data = (uint32_t)shim_value(SHAPE_inline_size);
	return qp;
}

SHIM_EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	/* As Chelsio's driver does: what a peer may do is settled before it is connected. */
	bool late =
		shim_on(SHAPE_iwarp) && attr->qp_state == IBV_QPS_RTS && mask == (IBV_QP_STATE | IBV_QP_ACCESS_FLAGS);
	int rc = shim_gone() || late ? refuse(EIO) : SHIM_NEXT(ibv_modify_qp)(qp, attr, mask);

	if (rc == 0 && qp->srq && (mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_ERR && shim_on(SHAPE_last_wqe))
		shim_async(IBV_EVENT_QP_LAST_WQE_REACHED, qp);
	return rc;
}

SHIM_EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct ibv_cq *cqs[] = {qp->send_cq, qp->recv_cq};
	uint32_t qp_num = qp->qp_num;
	int rc;

	shim_forget(qp);
	for (int i = 0; i < 2 && shim_on(SHAPE_drop_on_destroy); i++)
		cq_clean(cqs[i], qp_num);
	rc = SHIM_NEXT(ibv_destroy_qp)(qp);
	for (int i = 0; i < 2 && shim_on(SHAPE_drop_on_destroy); i++)
		cq_clean(cqs[i], qp_num);
	return rc;
}

static struct ibv_srq *srq_make(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq *srq;

	shim_kernel_begin(pd->context, NULL);
	srq = SHIM_NEXT(ibv_create_srq)(pd, attr);
	shim_kernel_end(pd->context, NULL);
	return srq;
}

SHIM_EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq *srq = NULL;

	if (shim_on(SHAPE_no_srq))
		errno = EOPNOTSUPP;
	else if (shim_gone())
		errno = EIO;
	else if (beyond(SHAPE_max_wr, attr->attr.max_wr))
		errno = EINVAL;
	else
		srq = srq_make(pd, attr);
	pthread_mutex_lock(&lock);
	for (int i = 0; srq && i < SHIM_OBJECTS; i++)
		if (!shim_srqs[i]) {
			shim_srqs[i] = srq;
			break;
		}
	pthread_mutex_unlock(&lock);
	return srq;
}

SHIM_EXPORT int ibv_destroy_srq(struct ibv_srq *srq)
{
	shim_forget(srq);
	for (int i = 0; i < SHIM_OBJECTS; i++)
		if (shim_srqs[i] == srq)
			shim_srqs[i] = NULL;
	return SHIM_NEXT(ibv_destroy_srq)(srq);
}

/*
 * Devices and connections.
 */
static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size)
{
	int rc = real_query_port(context, port, attr, size);

	if (shim_cut())
		attr->state = IBV_PORT_DOWN;
	return rc;
}

SHIM_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *context = SHIM_NEXT(ibv_open_device)(device);

	if (!context)
		return NULL;
	real = context->ops;
	context->ops.alloc_mw = alloc_mw;
	context->ops.poll_cq = poll_cq;
	context->ops.req_notify_cq = req_notify_cq;
	context->ops.post_send = post_send;
	context->ops.post_recv = post_recv;
	context->ops.post_srq_recv = post_srq_recv;
	real_query_port = verbs_get_ctx(context)->query_port;
	verbs_get_ctx(context)->query_port = query_port;
	if (shim_on(SHAPE_iwarp))
		context->device->transport_type = IBV_TRANSPORT_IWARP;
	if (shim_on(SHAPE_events) || shim_on(SHAPE_file) || shim_on(SHAPE_last_wqe))
		shim_watch_context(context);
	return context;
}

static void cap_to(int *value, enum shim_shape shape)
{
	if (beyond(shape, (uint64_t)*value))
		*value = (int)shim_value(shape);
}

SHIM_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	int rc = shim_gone() ? EIO : SHIM_NEXT(ibv_query_device)(context, attr);

	if (shim_on(SHAPE_no_srq))
		attr->max_srq = attr->max_srq_wr = attr->max_srq_sge = 0;
	if (shim_on(SHAPE_no_windows)) {
		attr->max_mw = 0;
		attr->device_cap_flags &= ~(unsigned)(IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2A |
						      IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	}
	if (shim_on(SHAPE_no_atomics) || shim_on(SHAPE_iwarp))
		attr->atomic_cap = IBV_ATOMIC_NONE;
	cap_to(&attr->max_qp_wr, SHAPE_max_wr);
	cap_to(&attr->max_srq_wr, SHAPE_max_wr);
	cap_to(&attr->max_sge, SHAPE_max_sge);
	cap_to(&attr->max_cqe, SHAPE_max_cqe);
	return rc;
}

SHIM_EXPORT int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	int rc = fails(SHAPE_fail_init_qp_attr) ? refuse(EINVAL) : SHIM_NEXT(rdma_init_qp_attr)(id, attr, mask);

	if (shim_on(SHAPE_iwarp))
		attr->max_rd_atomic = attr->max_dest_rd_atomic = 0;
	if (shim_on(SHAPE_path_mtu))
		attr->path_mtu = (enum ibv_mtu)(__builtin_ctzl((unsigned long)shim_value(SHAPE_path_mtu)) - 7);
	return rc;
}
