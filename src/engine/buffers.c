/*
 * buffers.c: memory that the server may reach. Landing buffers are made once per size class and kept; the caller's own
 * memory is registered for repeated use, or for one request. A registration has the rights that its use needs, and no
 * others.
 *
 * A landing buffer is a page of ours, which is not registered, and behind it the pages that are: a
 * server that writes where it may not cannot touch our part. Another page behind them has room for the 0 byte
 * that ends a value as long as the buffer.
 *
 * A device's memory is a range like any other, but has a dmabuf, by which it is registered, and never a registration
 * for one request.
 */
#include "engine/engine.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096u
#define CLASS_MIN 12 /* 4 KiB, the first class */
#define CLASSES 30
#define RIGHTS FABRIC_REMOTE_ATOMIC /* sets of rights, which are bits; that one and higher ones are not used */
#define KEEP (256 * MIB)            /* of free buffers; beyond this, the longest unused are unmapped */

struct landing {
	struct list node;      /* in buffers->free[class][access] or buffers->lent */
	struct list age;       /* in buffers->idle while it is free */
	struct buffers *owner; /* NULL: the engine is gone */
	struct fabric_region *region;
	size_t size; /* of the registered part */
	unsigned class, access;
};

/* The word before each value that a caller holds. */
struct value_header {
	struct landing *landing; /* NULL: from malloc */
	uint64_t pad;
};

struct range {
	char *addr;
	size_t len;
	struct fabric_region *region; /* NULL: could not be made anew */
	struct fabric_region *before; /* with fewer rights: it goes with the last request that uses it */
	unsigned access;              /* the region's */
	unsigned users, before_users; /* outstanding requests of each */
	bool own;                     /* registered here for the caller; else a lent buffer's */
	struct fabric_dmabuf dmabuf;  /* of a device's memory; the descriptor is a copy. Else it is -1 */
	void *reserved; /* addresses that were made for it, and whole pages; NULL: they are the caller's */
	size_t reserved_len;
};

struct buffers {
	struct engine *engine;
	struct fabric_domain *domain;
	struct list free[CLASSES][RIGHTS], lent;
	struct list idle;     /* all that are free, longest unused first */
	size_t kept;          /* their bytes */
	struct range *ranges; /* sorted by address, none overlaps */
	size_t count, room;
};

struct buffers *buffers_create(struct engine *engine, struct fabric_domain *domain)
{
	struct buffers *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->engine = engine;
	b->domain = domain;
	list_init(&b->lent);
	list_init(&b->idle);
	for (unsigned i = 0; i < CLASSES; i++)
		for (unsigned access = 0; access < RIGHTS; access++)
			list_init(&b->free[i][access]);
	return b;
}

static void landing_unmap(struct landing *l)
{
	munmap((char *)l, PAGE + l->size + PAGE);
}

static struct landing *idle_remove(struct landing *l)
{
	list_del(&l->node);
	list_del(&l->age);
	l->owner->kept -= l->size;
	return l;
}

/* Give up the longest unused ones until no more than `most` bytes are kept. */
static void buffers_keep(struct buffers *b, size_t most)
{
	while (b->kept > most) {
		struct landing *l = idle_remove(list_first(&b->idle, struct landing, age));

		fabric_deregister(l->region);
		landing_unmap(l);
	}
}

/* Regions kept for later count against the same limits: they go before a registration fails. */
static int buffers_pin(struct buffers *b, void *addr, size_t len, unsigned access, struct fabric_region **out)
{
	int rc;

	if (b->kept == 0)
		return fabric_register(b->domain, addr, len, access, out);
	log_hush_begin();
	rc = fabric_register(b->domain, addr, len, access, out);
	log_hush_end();
	if (rc == 0)
		return 0;
	buffers_keep(b, 0);
	return fabric_register(b->domain, addr, len, access, out);
}

static bool range_is_device(const struct range *range)
{
	return range->dmabuf.fd >= 0;
}

static int range_pin(struct buffers *b, const struct range *range, unsigned access, struct fabric_region **out)
{
	if (range_is_device(range)) /* of which the machine's memory is no limit */
		return fabric_register_dmabuf(b->domain, &range->dmabuf, range->addr, range->len, access, out);
	return buffers_pin(b, range->addr, range->len, access, out);
}

/* What the range has beside its regions. */
static void range_end(const struct range *range)
{
	if (!range_is_device(range))
		return;
	device_memory_remove(range->addr, range->len);
	close(range->dmabuf.fd);
	if (range->reserved)
		munmap(range->reserved, range->reserved_len);
}

void buffers_destroy(struct buffers *b)
{
	if (!b)
		return;
	buffers_keep(b, 0);
	/* The caller still holds these: the memory stays, the server's way to it goes. */
	while (!list_empty(&b->lent)) {
		struct landing *l = list_first(&b->lent, struct landing, node);

		list_del(&l->node);
		fabric_deregister(l->region);
		l->owner = NULL;
	}
	for (size_t i = 0; i < b->count; i++)
		if (b->ranges[i].own) {
			fabric_deregister(b->ranges[i].region);
			fabric_deregister(b->ranges[i].before);
			range_end(&b->ranges[i]);
		}
	free(b->ranges);
	free(b);
}

static unsigned class_of(size_t size)
{
	unsigned bits = CLASS_MIN;

	while (bits < CLASS_MIN + CLASSES && ((size_t)1 << bits) < size)
		bits++;
	return bits - CLASS_MIN;
}

static struct landing *landing_create(struct buffers *b, unsigned class, unsigned access)
{
	size_t size = (size_t)1 << (class + CLASS_MIN);
	char *memory = mmap(NULL, PAGE + size + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct landing *l = (void *)memory;

	if (memory == MAP_FAILED) {
		log_error("client", "no %zu bytes of registered memory: %m", size);
		return NULL;
	}
	if (buffers_pin(b, memory + PAGE, size, access, &l->region) != 0) {
		munmap(memory, PAGE + size + PAGE);
		return NULL;
	}
	list_init(&l->age);
	l->owner = b;
	l->size = size;
	l->class = class;
	l->access = access;
	((struct value_header *)(memory + PAGE))[-1].landing = l;
	return l;
}

struct landing *landing_take(struct buffers *b, size_t size, unsigned access)
{
	unsigned class = class_of(size);
	struct landing *l;

	must(engine_entered(b->engine) && access < RIGHTS);
	if (class >= CLASSES) {
		log_error("client", "%zu bytes are beyond what a registered buffer holds", size);
		return NULL;
	}
	if (list_empty(&b->free[class][access]))
		l = landing_create(b, class, access);
	else
		l = idle_remove(list_first(&b->free[class][access], struct landing, node));
	if (l)
		list_add_tail(&b->lent, &l->node);
	return l;
}

void landing_give(struct landing *l)
{
	struct buffers *b = l->owner;

	if (!b) {
		landing_unmap(l);
		return;
	}
	must(engine_entered(b->engine));
	list_del(&l->node);
	b->kept += l->size;
	list_add_head(&b->free[l->class][l->access], &l->node);
	list_add_tail(&b->idle, &l->age);
	buffers_keep(b, KEEP);
}

void *landing_data(struct landing *l)
{
	return (char *)l + PAGE;
}

size_t landing_size(const struct landing *l)
{
	return l->size;
}

const struct fabric_region *landing_region(const struct landing *l)
{
	return l->region;
}

void *value_copy(const void *bytes, size_t len)
{
	struct value_header *h = malloc(sizeof(*h) + len + 1);
	char *value;

	if (!h)
		return NULL;
	h->landing = NULL;
	value = (char *)(h + 1);
	if (len)
		memcpy(value, bytes, len);
	value[len] = '\0';
	return value;
}

/* First range that ends behind addr. */
static size_t range_after(const struct buffers *b, const char *addr)
{
	size_t low = 0, high = b->count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (b->ranges[middle].addr + b->ranges[middle].len <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int range_add(struct buffers *b, const struct range *range)
{
	size_t at = range_after(b, range->addr);

	must(engine_entered(b->engine));
	if (at < b->count && b->ranges[at].addr < range->addr + range->len)
		return -EEXIST;
	if (b->count == b->room) {
		size_t room = b->room ? 2 * b->room : 16;
		struct range *ranges = realloc(b->ranges, room * sizeof(*ranges));

		if (!ranges)
			return -ENOMEM;
		b->ranges = ranges;
		b->room = room;
	}
	memmove(&b->ranges[at + 1], &b->ranges[at], (b->count - at) * sizeof(*range));
	b->ranges[at] = *range;
	b->count++;
	return 0;
}

static void range_remove(struct buffers *b, size_t at)
{
	b->count--;
	memmove(&b->ranges[at], &b->ranges[at + 1], (b->count - at) * sizeof(b->ranges[0]));
}

static struct range *range_find(const struct buffers *b, const void *addr, size_t len)
{
	size_t at = range_after(b, addr);
	const char *begin = addr;

	if (at == b->count || b->ranges[at].addr > begin ||
	    len > b->ranges[at].len - (size_t)(begin - b->ranges[at].addr))
		return NULL;
	return &b->ranges[at];
}

static int range_register(struct buffers *b, struct range *range)
{
	int rc = range_pin(b, range, range->access, &range->region);

	if (rc != 0)
		return rc;
	rc = range_add(b, range);
	if (rc != 0)
		fabric_deregister(range->region);
	return rc;
}

int buffers_register(struct buffers *b, void *addr, size_t len, unsigned access)
{
	struct range range = {.addr = addr, .len = len, .access = access, .own = true, .dmabuf.fd = -1};

	return range_register(b, &range);
}

/* Addresses for memory that has none, at the same place of a page. A touch of them is a fault. */
static int range_reserve(struct range *range)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), before = range->dmabuf.offset % page;

	if (range->len > SIZE_MAX - 2 * page)
		return -EINVAL;
	range->reserved_len = (before + range->len + page - 1) / page * page;
	range->reserved =
		mmap(NULL, range->reserved_len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (range->reserved == MAP_FAILED) {
		range->reserved = NULL;
		return log_fail(-ENOMEM, "client", "no %zu bytes of addresses for a dmabuf: %m", range->len);
	}
	range->addr = (char *)range->reserved + before;
	return 0;
}

int buffers_register_dmabuf(struct buffers *b, const struct fabric_dmabuf *dmabuf, void **addr, size_t len,
			    unsigned access)
{
	struct range range = {.addr = *addr, .len = len, .access = access, .own = true, .dmabuf = *dmabuf};
	int rc;

	range.dmabuf.fd = fcntl(dmabuf->fd, F_DUPFD_CLOEXEC, 0);
	if (range.dmabuf.fd < 0)
		return log_fail(-errno, "client", "no copy of the descriptor %d of a dmabuf: %m", dmabuf->fd);
	rc = *addr ? 0 : range_reserve(&range);
	if (rc == 0)
		rc = device_memory_add(range.addr, len);
	if (rc != 0) {
		close(range.dmabuf.fd);
		if (range.reserved)
			munmap(range.reserved, range.reserved_len);
		return rc;
	}
	rc = range_register(b, &range);
	if (rc == 0)
		*addr = range.addr;
	else
		range_end(&range);
	return rc;
}

int buffers_device(const struct buffers *b, const void *addr, size_t len)
{
	const struct range *range;

	if (!device_memory_has(addr, len))
		return 0;
	range = range_find(b, addr, len);
	if (range && range_is_device(range))
		return 1;
	return log_fail(
		-EFAULT, "client",
		"of %zu bytes at %p some are memory of a device, and this handle has no registration with all of them",
		len, addr);
}

int buffers_unregister(struct buffers *b, const void *addr)
{
	struct range *range = range_find(b, addr, 1);

	must(engine_entered(b->engine));
	if (!range || range->addr != addr || !range->own)
		return -ENOENT;
	if (range->users || range->before)
		return -EBUSY;
	fabric_deregister(range->region);
	range_end(range);
	range_remove(b, (size_t)(range - b->ranges));
	return 0;
}

int buffers_lend(struct buffers *b, size_t size, void **buffer)
{
	struct landing *l = landing_take(b, size, FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE); /* for its caller's use */
	struct range range;
	int rc;

	if (!l)
		return -ENOMEM;
	range = (struct range){
		.addr = landing_data(l), .len = l->size, .region = l->region, .access = l->access, .dmabuf.fd = -1};
	rc = range_add(b, &range);
	if (rc != 0) {
		landing_give(l);
		return rc;
	}
	*buffer = landing_data(l);
	return 0;
}

static void landing_release(struct landing *l, const void *value)
{
	struct engine *engine = l->owner->engine;
	struct range *range;

	engine_enter(engine);
	range = range_find(l->owner, value, 1);
	if (range)
		range_remove(l->owner, (size_t)(range - l->owner->ranges));
	landing_give(l);
	engine_leave(engine);
}

void value_release(void *value)
{
	struct value_header *h;
	struct landing *l;

	if (!value)
		return;
	h = (struct value_header *)value - 1;
	l = h->landing;
	if (!l)
		free(h);
	else if (l->owner)
		landing_release(l, value);
	else
		landing_give(l);
}

bool buffers_reached(const struct buffers *b, const void *addr, size_t len)
{
	return range_find(b, addr, len) != NULL;
}

/* While requests use the registration, one with more rights comes beside it. */
static bool range_add_beside(struct buffers *b, struct range *range, unsigned access)
{
	struct fabric_region *region;

	if (range->before || range_pin(b, range, access, &region) != 0)
		return false;
	range->before = range->region;
	range->before_users = range->users;
	range->region = region;
	range->users = 0;
	range->access = access;
	return true;
}

/* The old one goes first, as both may be more than can be pinned, and comes again where the new one is refused. */
static bool range_renew(struct buffers *b, struct range *range, unsigned access)
{
	fabric_deregister(range->region);
	range->region = NULL;
	if (range_pin(b, range, access, &range->region) == 0) {
		range->access = access;
		return true;
	}
	range_pin(b, range, range->access, &range->region);
	return false;
}

/* Its registration has, or gets, these rights beside the ones that it has: a registration for each request would cost
 * more. */
static bool range_allows(struct buffers *b, struct range *range, unsigned access)
{
	unsigned has = range->access;

	if (has & (FABRIC_REMOTE_WRITE | FABRIC_WINDOWS))
		has |= FABRIC_LOCAL_WRITE;
	if (likely(range->region && !(access & ~has)))
		return true;
	if (!range->own)
		return false;
	return range->users ? range_add_beside(b, range, range->access | access)
			    : range_renew(b, range, range->access | access);
}

int buffers_reach(struct buffers *b, const void *addr, size_t len, unsigned access, struct reach *out)
{
	struct range *range = range_find(b, addr, len);

	must(engine_entered(b->engine));
	*out = (struct reach){.addr = addr};
	if (range && range_allows(b, range, access)) {
		range->users++;
		out->region = range->region;
		return 0;
	}
	if (range && range_is_device(range))
		return -EFAULT; /* it has not these rights; logged */
	return buffers_pin(b, (void *)addr, len, access, &out->temporary);
}

void buffers_unreach(struct buffers *b, struct reach *reach)
{
	struct range *range;

	must(engine_entered(b->engine));
	fabric_deregister(reach->temporary);
	if (reach->region) {
		range = range_find(b, reach->addr, 1);
		if (range && range->region == reach->region) {
			range->users--;
		} else if (range && --range->before_users == 0) {
			fabric_deregister(range->before);
			range->before = NULL;
		}
	}
	*reach = (struct reach){0};
}
