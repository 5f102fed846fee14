/*
 * renew.c: devices that are taken away and come back.
 *
 * A device that is gone is given back in steps, each of which waits for the one before: its endpoints get their ends
 * and are destroyed by their owners; each queue gives back its completion queue, in its own thread; then go
 * registrations, protection domains and the context itself. Some drivers hold the removal up until then. When a device
 * of the same name is there it goes the other way. Queues, domains and regions stay the same objects.
 */
#include "fabric/verbs/verbs.h"

#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <unistd.h>

static struct list fabrics = {&fabrics, &fabrics}; /* by verbs_list_add() */
/* For the last of several fabrics to know that it is the last. */
static pthread_mutex_t last_lock = PTHREAD_MUTEX_INITIALIZER;

void verbs_fabric_add(struct verbs_fabric *fabric)
{
	pthread_rwlock_init(&fabric->lock, NULL);
	list_init(&fabric->domains);
	pthread_mutex_lock(&last_lock);
	list_add_tail(&fabrics, &fabric->member);
	pthread_mutex_unlock(&last_lock);
}

/* Does the kernel have it? While a removal waits for its users, it has not. */
static bool verbs_is_listed(const struct ibv_context *ctx)
{
	return access(ctx->device->dev_path, F_OK) == 0;
}

static bool verbs_is_shared(const struct verbs_fabric *own, const struct ibv_context *ctx)
{
	list_for_each (pos, &fabrics) {
		const struct verbs_fabric *fabric = container_of(pos, struct verbs_fabric, member);

		for (unsigned i = 0; fabric != own && i < fabric->count; i++)
			if (fabric->device[i].ctx == ctx)
				return true;
	}
	return false;
}

/*
 * librdmacm closes a device that was taken away only when it sees another list of devices than before, and not at all
 * where that is empty. A driver that waits for its users would wait until this process ends, and no device of this name
 * could come. So the kernel's files are closed here, and librdmacm keeps two that mean nothing.
 */
static void verbs_context_close(struct ibv_context *ctx)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0 || dup3(null, ctx->cmd_fd, O_CLOEXEC) < 0 || dup3(null, ctx->async_fd, O_CLOEXEC) < 0)
		log_error("verbs", "cannot close device %s: %m", ibv_get_device_name(ctx->device));
	if (null >= 0)
		close(null);
}

/* What librdmacm has is let go last: until then it keeps the context. */
static void verbs_contexts_replace(struct verbs_fabric *fabric, struct ibv_context **contexts)
{
	if (fabric->contexts)
		rdma_free_devices(fabric->contexts);
	fabric->contexts = contexts;
}

/* The fabric needs the device no more. */
static void verbs_device_leave(struct verbs_fabric *fabric, struct verbs_device *device)
{
	struct ibv_context *ctx = device->ctx;

	device->ctx = NULL;
	if (ctx && !verbs_is_listed(ctx) && !verbs_is_shared(fabric, ctx))
		verbs_context_close(ctx);
}

void verbs_fabric_remove(struct verbs_fabric *fabric)
{
	pthread_mutex_lock(&last_lock);
	list_del(&fabric->member);
	for (unsigned i = 0; i < fabric->count; i++)
		verbs_device_leave(fabric, &fabric->device[i]);
	verbs_contexts_replace(fabric, NULL);
	pthread_mutex_unlock(&last_lock);
	pthread_rwlock_destroy(&fabric->lock);
}

/* What all domains have of a device. */
static void verbs_domains_leave(struct verbs_fabric *fabric, unsigned device)
{
	list_for_each (d, &fabric->domains) {
		struct verbs_domain *domain = container_of(d, struct verbs_domain, member);

		list_for_each (r, &domain->regions) {
			struct verbs_region *region = container_of(r, struct verbs_region, member);

			if (region->mr[device])
				ibv_dereg_mr(region->mr[device]);
			region->mr[device] = NULL;
		}
		if (domain->pd[device])
			ibv_dealloc_pd(domain->pd[device]);
		domain->pd[device] = NULL;
	}
}

static bool verbs_give_back(struct verbs_fabric *fabric, unsigned number)
{
	struct verbs_device *device = &fabric->device[number];

	pthread_rwlock_wrlock(&fabric->lock);
	if (atomic_load(&device->users)) {
		pthread_rwlock_unlock(&fabric->lock);
		return false;
	}
	verbs_domains_leave(fabric, number);
	pthread_mutex_lock(&last_lock);
	verbs_device_leave(fabric, device);
	verbs_contexts_replace(fabric, rdma_get_devices(NULL)); /* at which librdmacm learns of the removal */
	pthread_mutex_unlock(&last_lock);
	pthread_rwlock_unlock(&fabric->lock);
	log_info("verbs", "device %s was given back: it is taken again when it is there", device->name);
	return true;
}

/* Where its file may be opened by now: librdmacm never tries again what it could not open once. */
static bool verbs_is_there(const struct verbs_device *device)
{
	char name[IBV_SYSFS_NAME_MAX], path[64] = "";
	bool found = false;
	glob_t all = {0};

	glob("/sys/class/infiniband_verbs/uverbs*/ibdev", 0, NULL, &all);
	for (size_t i = 0; i < all.gl_pathc && !found; i++) {
		FILE *in = fopen(all.gl_pathv[i], "re");

		found = in && fscanf(in, "%63s", name) == 1 && strcmp(name, device->name) == 0;
		if (in)
			fclose(in);
		if (found && sscanf(all.gl_pathv[i], "/sys/class/infiniband_verbs/%31[^/]", name) == 1)
			snprintf(path, sizeof(path), "/dev/infiniband/%.31s", name);
	}
	globfree(&all);
	return found && access(path, R_OK | W_OK) == 0;
}

/* What its limits were before counts on: they are in use. */
static bool verbs_is_as_before(const struct verbs_device *was, const struct verbs_device *is, char why[VERBS_REASON])
{
	bool same = is->iwarp == was->iwarp && is->windows >= was->windows && is->atomics >= was->global &&
		    is->loose_windows <= was->loose_windows && is->ports >= was->ports;

	for (unsigned i = 0; i < was->ports && same; i++)
		same = is->port[i].infiniband == was->port[i].infiniband &&
		       is->port[i].max_message >= was->port[i].max_message;
	snprintf(why, VERBS_REASON, "it can do less than before: restart");
	return same && is->max_reads >= was->max_reads && is->max_inline >= was->max_inline &&
	       is->max_send >= was->max_send && is->max_wr >= was->max_wr && is->max_cqe >= was->max_cqe &&
	       is->max_srq_wr >= was->max_srq_wr;
}

static struct ibv_context *verbs_context_find(struct ibv_context **contexts, const char *name)
{
	for (; contexts && *contexts; contexts++)
		if (strcmp(ibv_get_device_name((*contexts)->device), name) == 0)
			return *contexts;
	return NULL;
}

static int verbs_domain_enter(struct verbs_domain *domain, unsigned device)
{
	domain->pd[device] = ibv_alloc_pd(domain->fabric->device[device].ctx);
	if (!domain->pd[device])
		return -errno;
	list_for_each (pos, &domain->regions) {
		int rc = verbs_region_enter(container_of(pos, struct verbs_region, member), device);

		if (rc != 0)
			return rc;
	}
	return 0;
}

/* All memory, before any queue uses it. */
static int verbs_take_back(struct verbs_fabric *fabric, unsigned number, struct ibv_context *ctx)
{
	struct verbs_device *device = &fabric->device[number];
	int rc = 0;

	pthread_rwlock_wrlock(&fabric->lock);
	device->ctx = ctx;
	list_for_each (pos, &fabric->domains)
		if (rc == 0)
			rc = verbs_domain_enter(container_of(pos, struct verbs_domain, member), number);
	if (rc == 0) {
		atomic_store(&device->gone, false);
	} else {
		verbs_domains_leave(fabric, number);
		device->ctx = NULL;
	}
	pthread_rwlock_unlock(&fabric->lock);
	return rc;
}

/* Why not, as far as it can be told: once. */
static bool verbs_look_for(struct verbs_fabric *fabric, unsigned number)
{
	struct verbs_device *device = &fabric->device[number], fresh;
	struct ibv_context *ctx;
	char why[VERBS_REASON];
	bool taken = false;
	int rc;

	if (!verbs_is_there(device))
		return false;
	pthread_mutex_lock(&last_lock);
	verbs_contexts_replace(fabric, rdma_get_devices(NULL));
	pthread_mutex_unlock(&last_lock);
	ctx = verbs_context_find(fabric->contexts, device->name);
	if (!ctx) {
		snprintf(why, sizeof(why), "it cannot be opened");
	} else if (verbs_device_init(&fresh, ctx, device->only_port, why) && verbs_is_as_before(device, &fresh, why)) {
		log_hush_begin();
		rc = verbs_take_back(fabric, number, ctx);
		snprintf(why, sizeof(why), "%s", log_hush_end());
		taken = rc == 0;
	}
	if (!taken && !device->complained)
		log_warn("verbs", "device %s is there and not taken again yet: %s", device->name, why);
	device->complained = !taken;
	return taken;
}

static void verbs_device_renew(struct verbs_fabric *fabric, unsigned number)
{
	struct verbs_device *device = &fabric->device[number];

	if (device->presence == VERBS_PRESENT || device->presence == VERBS_COMING) {
		if (!atomic_load(&device->gone) && !verbs_is_listed(device->ctx)) {
			verbs_device_gone(device, "it is not among the devices");
			atomic_store(&device->gone, true); /* where no queue is */
		}
		if (atomic_load(&device->gone))
			device->presence = VERBS_LOST;
	}
	if (device->presence == VERBS_LOST && verbs_give_back(fabric, number))
		device->presence = VERBS_AWAY;
	else if (device->presence == VERBS_AWAY && verbs_look_for(fabric, number))
		device->presence = VERBS_COMING;
	if (device->presence == VERBS_COMING && atomic_load(&device->users) == atomic_load(&fabric->queues)) {
		device->presence = VERBS_PRESENT;
		log_info("verbs", "device %s is back", device->name);
	}
	if (device->presence == VERBS_LOST || device->presence == VERBS_COMING)
		verbs_wake_queues(fabric);
}

unsigned verbs_renew(struct fabric *base)
{
	struct verbs_fabric *fabric = container_of(base, struct verbs_fabric, base);
	unsigned present = 0;

	for (unsigned i = 0; i < fabric->count; i++) {
		verbs_device_renew(fabric, i);
		present += fabric->device[i].presence == VERBS_PRESENT;
	}
	return present;
}
