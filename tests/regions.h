/*
 * regions.h: how many regions of the fabric there are. For a test program that is linked with --wrap=fabric_register and
 * --wrap=fabric_deregister; it says fabric.h's types before.
 */
#ifndef TESTS_REGIONS_H
#define TESTS_REGIONS_H

static _Atomic int regions;

int __real_fabric_register(struct fabric_domain *domain, void *addr, size_t len, unsigned access,
			   struct fabric_region **out);
int __wrap_fabric_register(struct fabric_domain *domain, void *addr, size_t len, unsigned access,
			   struct fabric_region **out);
int __wrap_fabric_register(struct fabric_domain *domain, void *addr, size_t len, unsigned access,
			   struct fabric_region **out)
{
	int rc = __real_fabric_register(domain, addr, len, access, out);

	regions += rc == 0;
	return rc;
}

void __real_fabric_deregister(struct fabric_region *region);
void __wrap_fabric_deregister(struct fabric_region *region);
void __wrap_fabric_deregister(struct fabric_region *region)
{
	regions -= region != NULL;
	__real_fabric_deregister(region);
}

#endif
