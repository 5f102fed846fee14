/*
 * renew.c: devices that are taken away and come back, or come late.
 *
 * A device that is gone is given back in steps, each of which waits for the one before: its endpoints get their ends
 * and are destroyed by their owners; each queue gives back its completion queue, in its own thread; then go
 * registrations, protection domains and the context itself. Some drivers hold the removal up until then. When a device
 * of the same name is there it goes the other way. Queues, domains and regions stay the same objects. A device that
 * comes for the first time begins as one that is away.
 */
#include "fabric/verbs/verbs.h"

#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <unistd.h>

#define PAUSE_MIN TIME_S /* between two tries to take a device ... */
#define PAUSE_MAX (60 * TIME_S)
#define LISTED_MAX 32 /* devices of the kernel that are looked at */
#define ASKED_MAX 10  /* calls in which a queue is waited for */

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

/* The first word of a file of the kernel; "": there is none. */
static void verbs_read_word(const char *path, char word[IBV_SYSFS_NAME_MAX])
{
	FILE *in = fopen(path, "re");

	if (!in || fscanf(in, "%63s", word) != 1)
		word[0] = '\0';
	if (in)
		fclose(in);
}

/* The names of the devices whose files may be opened by now: librdmacm never tries again what it could not open
 * once. */
static unsigned verbs_list_there(char name[static LISTED_MAX][IBV_SYSFS_NAME_MAX])
{
	char file[32], path[64];
	unsigned count = 0;
	glob_t all = {0};

	glob("/sys/class/infiniband_verbs/uverbs*/ibdev", 0, NULL, &all);
	for (size_t i = 0; i < all.gl_pathc && count < LISTED_MAX; i++) {
		if (sscanf(all.gl_pathv[i], "/sys/class/infiniband_verbs/%31[^/]", file) != 1)
			continue;
		snprintf(path, sizeof(path), "/dev/infiniband/%s", file);
		verbs_read_word(all.gl_pathv[i], name[count]);
		count += *name[count] && access(path, R_OK | W_OK) == 0;
	}
	globfree(&all);
	return count;
}

bool verbs_any_is_there(void)
{
	char name[LISTED_MAX][IBV_SYSFS_NAME_MAX];

	return verbs_list_there(name) > 0;
}

static bool verbs_is_there(const struct verbs_device *device)
{
	char name[LISTED_MAX][IBV_SYSFS_NAME_MAX];

	for (unsigned i = verbs_list_there(name); i-- > 0;)
		if (strcmp(name[i], device->name) == 0)
			return true;
	return false;
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

/*
 * librdmacm sorts its devices by the addresses of their records. Up to version 44 at least it compares them by the
 * lower halves alone. Where two are too far apart for that, it takes one that is there for one that was taken away, and
 * opens it a second time. So the queue that was made first lists the devices before anything else does: its thread has
 * made the other records, and libc makes those of one thread near each other.
 */
void verbs_queue_list(struct verbs_queue *q)
{
	enum verbs_listing asked = VERBS_ASKED;
	struct ibv_device **list;

	if (!q->lists || !atomic_compare_exchange_strong(&q->fabric->listing, &asked, VERBS_LISTING))
		return;
	list = ibv_get_device_list(NULL);
	if (list)
		ibv_free_device_list(list);
	atomic_store(&q->fabric->listing, VERBS_LISTED);
}

/* False: not in this call. Where that queue has no turns, or is no more, it is not waited for. */
static bool verbs_is_listed_first(struct verbs_fabric *fabric)
{
	enum verbs_listing listing = atomic_load(&fabric->listing);

	if (listing == VERBS_UNLISTED) {
		fabric->asked = 0;
		atomic_store(&fabric->listing, VERBS_ASKED);
	}
	if (listing == VERBS_LISTED || ++fabric->asked > ASKED_MAX) {
		atomic_store(&fabric->listing, VERBS_UNLISTED);
		return true;
	}
	verbs_wake_queues(fabric);
	return false;
}

static bool verbs_are_near(void)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	bool near = true;

	for (int i = 1; i < count; i++)
		for (int j = 0; j < i; j++) {
			intptr_t apart = (intptr_t)list[i] - (intptr_t)list[j];

			near &= apart == (int)apart;
		}
	if (list)
		ibv_free_device_list(list);
	return near;
}

/* False, and why: nothing was done. */
static bool verbs_contexts_renew(struct verbs_fabric *fabric, char why[static VERBS_REASON])
{
	if (!verbs_are_near()) {
		snprintf(why, VERBS_REASON, "librdmacm would take another device for one that was removed: restart");
		return false;
	}
	pthread_mutex_lock(&last_lock);
	verbs_contexts_replace(fabric, rdma_get_devices(NULL));
	pthread_mutex_unlock(&last_lock);
	snprintf(why, VERBS_REASON, "it cannot be opened");
	return true;
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

static void verbs_wait_longer(struct verbs_patience *patience, bool anew)
{
	patience->pause = anew ? 0 : MIN(MAX(2 * patience->pause, PAUSE_MIN), PAUSE_MAX);
	patience->again = time_now() + patience->pause;
}

/* Why not, as far as it can be told: once. */
static bool verbs_look_for(struct verbs_fabric *fabric, unsigned number)
{
	struct verbs_device *device = &fabric->device[number], fresh;
	struct ibv_context *ctx;
	char why[VERBS_REASON];
	bool taken = false;
	int rc;

	if (time_now() < device->patience.again || !verbs_is_there(device) || !verbs_is_listed_first(fabric))
		return false;
	ctx = verbs_contexts_renew(fabric, why) ? verbs_context_find(fabric->contexts, device->name) : NULL;
	if (ctx && verbs_device_init(&fresh, ctx, device->only_port, why) && verbs_is_as_before(device, &fresh, why)) {
		log_hush_begin();
		rc = verbs_take_back(fabric, number, ctx);
		snprintf(why, sizeof(why), "%s", log_hush_end());
		taken = rc == 0;
	}
	if (!taken && !device->complained)
		log_warn("verbs", "device %s is there and not taken%s yet: %s", device->name,
			 device->used ? " again" : "", why);
	device->complained = !taken;
	verbs_wait_longer(&device->patience, taken);
	return taken;
}

/* Has the port, or any of the device, a link? */
static bool verbs_has_link(const char *name, unsigned port)
{
	char pattern[64 + IBV_SYSFS_NAME_MAX], state[IBV_SYSFS_NAME_MAX];
	bool active = false;
	glob_t all = {0};

	if (port)
		snprintf(pattern, sizeof(pattern), "/sys/class/infiniband/%.63s/ports/%u/state", name, port);
	else
		snprintf(pattern, sizeof(pattern), "/sys/class/infiniband/%.63s/ports/*/state", name);
	glob(pattern, 0, NULL, &all);
	for (size_t i = 0; i < all.gl_pathc && !active; i++) {
		verbs_read_word(all.gl_pathv[i], state);
		active = strcmp(state, "4:") == 0;
	}
	globfree(&all);
	return active;
}

static bool verbs_is_known(const struct verbs_fabric *fabric, const char *name)
{
	for (unsigned i = 0; i < fabric->count; i++)
		if (strcmp(fabric->device[i].name, name) == 0)
			return true;
	return false;
}

/* Makes them devices of the fabric; `unused` gets why that fails. */
static void verbs_try_new(struct verbs_fabric *fabric, char name[][IBV_SYSFS_NAME_MAX], unsigned count, char *unused,
			  size_t size)
{
	char why[VERBS_REASON] = "rdma_cm does not answer", one[IBV_SYSFS_NAME_MAX + VERBS_REASON + 4];
	bool renewed = verbs_check_cm() == 0 && verbs_contexts_renew(fabric, why);

	for (unsigned i = 0; i < count; i++) {
		struct ibv_context *ctx = renewed ? verbs_context_find(fabric->contexts, name[i]) : NULL;

		if (ctx && verbs_device_add(fabric, ctx, VERBS_AWAY, why))
			continue;
		snprintf(one, sizeof(one), "%.63s (%s)", name[i], why);
		verbs_append(unused, size, one);
	}
}

/* Devices that have come, or have a link by now. One that was tried and is of no use is tried now and then. */
static void verbs_look_for_new(struct verbs_fabric *fabric)
{
	char name[LISTED_MAX][IBV_SYSFS_NAME_MAX], unused[sizeof(fabric->unused)] = "", there[sizeof(unused)] = "";
	unsigned listed = verbs_list_there(name), count = 0;
	bool same;

	for (unsigned i = 0; i < listed; i++) {
		if (verbs_is_known(fabric, name[i]) || !verbs_is_wanted(fabric, name[i]) ||
		    !verbs_has_link(name[i], fabric->wanted.port))
			continue;
		verbs_append(there, sizeof(there), name[i]);
		memmove(name[count++], name[i], sizeof(name[i]));
	}
	same = strcmp(there, fabric->tried) == 0;
	if (!count || (same && time_now() < fabric->patience.again) || !verbs_is_listed_first(fabric))
		return;
	verbs_wait_longer(&fabric->patience, !same);
	snprintf(fabric->tried, sizeof(fabric->tried), "%s", there);
	log_hush_begin();
	verbs_try_new(fabric, name, count, unused, sizeof(unused));
	log_hush_end();
	if (*unused && strcmp(unused, fabric->unused) != 0)
		log_warn("verbs", "not used of the devices that have come: %s", unused);
	snprintf(fabric->unused, sizeof(fabric->unused), "%s", unused);
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
		log_info("verbs", "device %s is %s", device->name,
			 device->used ? "back" : "there: it came after the start, and is used from now on");
		device->used = true;
	}
	if (device->presence == VERBS_LOST || device->presence == VERBS_COMING)
		verbs_wake_queues(fabric);
}

unsigned verbs_renew(struct fabric *base)
{
	struct verbs_fabric *fabric = container_of(base, struct verbs_fabric, base);
	unsigned present = 0;

	if (fabric->late)
		verbs_look_for_new(fabric);
	for (unsigned i = 0; i < fabric->count; i++) {
		verbs_device_renew(fabric, i);
		present += fabric->device[i].presence == VERBS_PRESENT;
	}
	return present;
}

bool verbs_hold_devices(struct fabric *base)
{
	struct verbs_fabric *fabric = container_of(base, struct verbs_fabric, base);

	if (pthread_rwlock_tryrdlock(&fabric->lock) != 0)
		return false;
	if (!atomic_load(&fabric->count))
		return true;
	pthread_rwlock_unlock(&fabric->lock);
	return false;
}

void verbs_release_devices(struct fabric *base)
{
	pthread_rwlock_unlock(&container_of(base, struct verbs_fabric, base)->lock);
}
