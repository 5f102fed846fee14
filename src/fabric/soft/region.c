/*
 * region.c: domains and registered memory. Any thread.
 *
 * A key is a table index (low 16 bits) and a random generation, never 0 (high 16 bits), so a
 * key that was deregistered does not match its slot's next tenant.
 *
 * After soft_deregister() nothing touches the memory. A queue touches caller memory only
 * within a section (queue->section is odd) and looks the key up within the same section.
 * Deregistering first clears the slot's key and then looks at each queue's section: even, and
 * the queue's next section will see the cleared key (both are sequentially consistent); odd,
 * and it waits until the number changes, which is the end of at most one poll or post. The
 * slot is reused only then, so that a lookup needs no lock and no reference count.
 */
#include "fabric/soft/soft.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int soft_domain_create(struct fabric *fabric, struct fabric_domain **out)
{
	struct soft_domain *d = calloc(1, sizeof(*d));
	int rc;

	if (!d)
		return -ENOMEM;
	d->base.ops = fabric->ops;
	d->fabric = container_of(fabric, struct soft_fabric, base);
	rc = random_fill(&d->random, sizeof(d->random));
	if (rc != 0) {
		free(d);
		return rc;
	}
	pthread_mutex_init(&d->lock, NULL);
	d->random |= 1;
	*out = &d->base;
	return 0;
}

void soft_domain_destroy(struct fabric_domain *domain)
{
	struct soft_domain *d = container_of(domain, struct soft_domain, base);

	must(d->used == d->free_count); /* regions first */
	for (int i = 0; i < SOFT_CHUNKS; i++)
		free(atomic_load(&d->chunk[i]));
	pthread_mutex_destroy(&d->lock);
	free(d);
}

static struct soft_slot *soft_slot_at(struct soft_domain *d, uint32_t index)
{
	struct soft_slot *chunk = atomic_load(&d->chunk[index / SOFT_CHUNK % SOFT_CHUNKS]);

	return chunk ? &chunk[index % SOFT_CHUNK] : NULL;
}

bool soft_region_check(const struct soft_endpoint *ep, struct soft_domain *d, uint32_t key, uint64_t addr, uint64_t len,
		       unsigned right)
{
	struct soft_slot *slot = soft_slot_at(d, key & 0xffff);

	must(soft_section_inside(ep->queue));
	if (!slot || !key || atomic_load(&slot->key) != key)
		return false;
	if (slot->only && slot->only != ep->serial)
		return false;
	return (slot->access & right) == right && addr >= slot->start && len <= slot->len &&
	       addr - slot->start <= slot->len - len;
}

static uint16_t soft_slot_generation(struct soft_domain *d, uint16_t last)
{
	uint16_t generation;

	do {
		generation = random_step(&d->random) >> 32;
	} while (!generation || generation == last);
	return generation;
}

/* Index of a free slot; lock held. */
static int soft_slot_alloc(struct soft_domain *d)
{
	struct soft_slot *chunk;
	uint32_t index = d->free;

	if (d->free_count) {
		d->free_count--;
		d->free = soft_slot_at(d, index)->next_free;
		return index;
	}
	if (d->used == SOFT_CHUNK * SOFT_CHUNKS)
		return -ENOSPC;
	if (d->used % SOFT_CHUNK == 0) {
		chunk = calloc(SOFT_CHUNK, sizeof(*chunk));
		if (!chunk)
			return -ENOMEM;
		atomic_store(&d->chunk[d->used / SOFT_CHUNK], chunk);
	}
	return d->used++;
}

static int soft_slot_fill(struct soft_domain *d, struct soft_region *r, uint64_t only)
{
	struct soft_slot *slot;
	int index;

	pthread_mutex_lock(&d->lock);
	index = soft_slot_alloc(d);
	if (index >= 0) {
		slot = soft_slot_at(d, index);
		slot->generation = soft_slot_generation(d, slot->generation);
		slot->start = (uintptr_t)r->base.addr + r->base.elsewhere;
		slot->len = r->base.len;
		slot->access = r->base.access;
		slot->only = only;
		r->key = (uint32_t)slot->generation << 16 | (uint32_t)index;
		atomic_store(&slot->key, r->key);
	}
	pthread_mutex_unlock(&d->lock);
	return MIN(index, 0);
}

static int soft_region_open(struct soft_domain *d, struct soft_region *r, void *addr, size_t len, unsigned access,
			    uint64_t only)
{
	int rc;

	r->base = (struct fabric_region){d->base.ops, addr, len, access, r->base.elsewhere};
	r->domain = d;
	rc = soft_slot_fill(d, r, only);
	if (rc != 0)
		log_error("soft", "no room for a region of %zu bytes, %u are registered: %s", len,
			  d->used - d->free_count, strerror(-rc));
	return rc;
}

int soft_register(struct fabric_domain *domain, void *addr, size_t len, unsigned access, struct fabric_region **out)
{
	struct soft_region *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return -ENOMEM;
	rc = soft_region_open(container_of(domain, struct soft_domain, base), r, addr, len, access, 0);
	if (rc != 0) {
		free(r);
		return rc;
	}
	*out = &r->base;
	return 0;
}

/* A processor moves the bytes, so it needs a way to them. The address that peers name is that of the mapping, and
 * nothing else here knows the other one. */
static int soft_map(struct soft_region *r, const struct fabric_dmabuf *dmabuf, const void *addr, size_t len,
		    unsigned access)
{
	size_t before = dmabuf->offset % (uint64_t)sysconf(_SC_PAGESIZE);
	int protection = PROT_READ | (access & FABRIC_LOCAL_WRITE ? PROT_WRITE : 0);
	void *map = mmap(NULL, before + len, protection, MAP_SHARED, dmabuf->fd, (off_t)(dmabuf->offset - before));

	if (map == MAP_FAILED)
		return log_fail(
			-EOPNOTSUPP, "soft",
			"the dmabuf cannot be mapped (%m), and without an RDMA device a processor would move its "
			"bytes: connect by rdma://, or copy them to memory of the host and use that");
	r->map = map;
	r->map_len = before + len;
	r->base.elsewhere = (uintptr_t)map + before - (uintptr_t)addr;
	return 0;
}

static void soft_unmap(const struct soft_region *r)
{
	if (r->map)
		munmap(r->map, r->map_len);
}

int soft_register_dmabuf(struct fabric_domain *domain, const struct fabric_dmabuf *dmabuf, void *addr, size_t len,
			 unsigned access, struct fabric_region **out)
{
	struct soft_region *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return -ENOMEM;
	rc = soft_map(r, dmabuf, addr, len, access);
	if (rc == 0)
		rc = soft_region_open(container_of(domain, struct soft_domain, base), r, addr, len, access, 0);
	if (rc == 0) {
		*out = &r->base;
		return 0;
	}
	soft_unmap(r);
	free(r);
	return rc;
}

/* Wait until no queue is in the section that it was in at the call. */
static void soft_wait_sections(struct soft_fabric *f)
{
	struct list *pos, *tmp;

	pthread_mutex_lock(&f->lock);
	list_for_each_safe (pos, tmp, &f->queues) {
		struct soft_queue *q = container_of(pos, struct soft_queue, link);
		uint32_t section = atomic_load(&q->section);

		while (section % 2 && atomic_load(&q->section) == section)
			sched_yield();
	}
	pthread_mutex_unlock(&f->lock);
}

static void soft_region_close(struct soft_region *r)
{
	struct soft_domain *d = r->domain;
	uint32_t index = r->key & 0xffff;
	struct soft_slot *slot = soft_slot_at(d, index);

	/* An exchange, because it must not pass the loads of the sections. */
	atomic_exchange(&slot->key, 0);
	soft_wait_sections(d->fabric);
	pthread_mutex_lock(&d->lock);
	slot->next_free = d->free;
	d->free = index;
	d->free_count++;
	pthread_mutex_unlock(&d->lock);
}

void soft_deregister(struct fabric_region *region)
{
	struct soft_region *r = container_of(region, struct soft_region, base);

	soft_region_close(r);
	soft_unmap(r);
	free(r);
}

uint32_t soft_rkey(const struct fabric_region *region, const struct fabric_endpoint *endpoint)
{
	return container_of(region, const struct soft_region, base)->key;
}

int soft_window_open(struct fabric_endpoint *endpoint, const struct fabric_region *region, void *addr, size_t len,
		     unsigned access, struct fabric_window **out)
{
	struct soft_endpoint *ep = container_of(endpoint, struct soft_endpoint, base);
	struct soft_window *w;
	int rc;

	if (container_of(region, const struct soft_region, base)->domain != ep->domain)
		return -EINVAL;
	if (ep->state != SOFT_OPEN)
		return -ENOTCONN;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	rc = soft_region_open(ep->domain, &w->region, addr, len, access, ep->serial);
	if (rc != 0) {
		free(w);
		return rc;
	}
	w->base = (struct fabric_window){endpoint->ops, w->region.key};
	*out = &w->base;
	return 0;
}

void soft_window_close(struct fabric_window *window)
{
	struct soft_window *w = container_of(window, struct soft_window, base);

	soft_region_close(&w->region);
	free(w);
}
