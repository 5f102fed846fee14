/*
 * window.c: memory windows of type 2. Devices know two kinds, 2A and 2B: both refuse the key on another queue
 * pair than the one that bound it, 2B in another protection domain as well.
 *
 * Soft-RoCE checks the peer's range against the region under the window only. There a window that shows a part of a
 * region is bound to a registration of that part.
 */
#include "fabric/verbs/verbs.h"

#include <stdlib.h>

static void verbs_window_free(struct verbs_window *window)
{
	int rc = window->mw ? ibv_dealloc_mw(window->mw) : 0;

	if (!rc && window->mr)
		rc = ibv_dereg_mr(window->mr);
	if (rc != 0)
		log_error("verbs", "cannot give back a memory window: %s", strerror(rc));
	window->mw = NULL;
	window->mr = NULL;
}

/* The registration to bind to. */
static int verbs_window_mr(struct verbs_endpoint *ep, struct verbs_window *window, const struct fabric_region *region,
			   void *addr, size_t len, struct ibv_mr **out)
{
	int rc;

	*out = verbs_mr(region, ep->device);
	if (!*out || (*out)->pd != ep->domain->pd[ep->device])
		return -EINVAL;
	if (len == region->len || !ep->cq->device->loose_windows)
		return 0;
	rc = verbs_mr_register(ep->domain, ep->device, NULL, addr, len, FABRIC_LOCAL_WRITE | FABRIC_WINDOWS,
			       &window->mr);
	*out = window->mr;
	return rc;
}

static int verbs_window_bind(struct verbs_endpoint *ep, struct verbs_window *window, const struct fabric_region *region,
			     void *addr, size_t len, unsigned access)
{
	struct ibv_mw_bind_info info = {
		.addr = (uintptr_t)addr,
		.length = len,
		.mw_access_flags =
			(access & FABRIC_REMOTE_READ ? IBV_ACCESS_REMOTE_READ : 0) |
			(access & FABRIC_REMOTE_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0) |
			(access & FABRIC_REMOTE_ATOMIC && ep->cq->device->atomics ? IBV_ACCESS_REMOTE_ATOMIC : 0),
	};
	int rc = verbs_window_mr(ep, window, region, addr, len, &info.mr);

	if (rc != 0)
		return rc;
	window->mw = ibv_alloc_mw(ep->domain->pd[ep->device], IBV_MW_TYPE_2);
	if (!window->mw) {
		rc = -errno;
		log_error("verbs", "memory window on %s: %s", ep->cq->device->name, strerror(-rc));
		return rc;
	}
	window->base.rkey = ibv_inc_rkey(window->mw->rkey);
	return verbs_post_bind(ep, window->mw, window->base.rkey, &info);
}

int verbs_window_open(struct fabric_endpoint *endpoint, const struct fabric_region *region, void *addr, size_t len,
		      unsigned access, struct fabric_window **out)
{
	struct verbs_endpoint *ep = container_of(endpoint, struct verbs_endpoint, base);
	struct verbs_window *window;
	int rc;

	if (!ep->qp)
		return -ENOTCONN;
	if (!ep->cq->device->windows)
		return -EOPNOTSUPP;
	window = calloc(1, sizeof(*window));
	if (!window)
		return -ENOMEM;
	window->base.ops = endpoint->ops;
	rc = verbs_window_bind(ep, window, region, addr, len, access);
	if (rc != 0) {
		verbs_window_free(window);
		free(window);
		return rc;
	}
	list_add_tail(&ep->windows, &window->member);
	*out = &window->base;
	return 0;
}

void verbs_windows_void(struct verbs_endpoint *ep)
{
	while (!list_empty(&ep->windows)) {
		struct verbs_window *window = list_first(&ep->windows, struct verbs_window, member);

		list_del(&window->member);
		verbs_window_free(window);
	}
}

void verbs_window_close(struct fabric_window *base)
{
	struct verbs_window *window = container_of(base, struct verbs_window, base);

	list_del(&window->member);
	verbs_window_free(window);
	free(window);
}
