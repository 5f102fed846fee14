/*
 * arena.c: the memory of keys and values, touched and registered before the first client comes, so that no request
 * ever waits for a page or a registration.
 */
#include "daemon/daemon.h"

#include <sys/mman.h>
#include <sysexits.h>

#define PAGE 4096ull
#define STEP (256 * MIB) /* touched between two lines of the log */

/* Take the pages now, in steps, so that a large arena says how far it is. */
static void touch(char *arena, size_t size)
{
	char done[32], all[32];

	for (size_t at = 0; at < size; at += STEP) {
		size_t end = MIN(at + STEP, size);

		for (size_t page = at; page < end; page += PAGE)
			((volatile char *)arena)[page] = 0;
		if (size > STEP)
			log_info("rdmad", "kv.memory: %s of %s ready", units_human_size((double)end, done),
				 units_human_size((double)size, all));
	}
}

int arena_create(struct daemon *d, size_t size)
{
	char text[32];

	d->arena_size = (size + PAGE - 1) & ~(PAGE - 1);
	d->arena = mmap(NULL, d->arena_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (d->arena == MAP_FAILED) {
		log_error("rdmad", "cannot map %s for kv.memory: %m; make it smaller",
			  units_human_size((double)d->arena_size, text));
		return EX_OSERR;
	}
	madvise(d->arena, d->arena_size, MADV_HUGEPAGE); /* fewer address translations, where there are any */
	touch(d->arena, d->arena_size);
	return 0;
}

/* Without it a transport offers small values only. The provider logged the cause and what to do. */
void arena_register(struct daemon *d)
{
	char text[32];

	for (unsigned i = 0; i < d->fabrics; i++) {
		struct service_arena *a = &d->shared.arena[i];
		int rc = fabric_register(d->fabric[i].domain, d->arena, d->arena_size, FABRIC_LOCAL_WRITE, &a->region);

		if (rc == 0)
			a->domain = d->fabric[i].domain;
		else
			log_warn("rdmad",
				 "%s: kv.memory of %s is not registered (%s): values from 4 KiB on "
				 "are refused there",
				 d->fabric[i].provider, units_human_size((double)d->arena_size, text), strerror(-rc));
	}
}

void arena_destroy(struct daemon *d)
{
	for (size_t i = 0; i < ARRAY_SIZE(d->shared.arena); i++) {
		fabric_deregister(d->shared.arena[i].region);
		d->shared.arena[i] = (struct service_arena){0};
	}
	munmap(d->arena, d->arena_size);
}
