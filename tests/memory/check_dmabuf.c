/*
 * check_dmabuf.c: dmabufs of the provider for devices, by an ibv_reg_dmabuf_mr() that is not a device's: what it is asked
 * for, what becomes of its errors, and that no descriptor and no registration is left.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fabric/verbs/verbs.h"

#include "tests/suite.h"

struct ibv_mr *__wrap_ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
					int access);
int __wrap_ibv_dereg_mr(struct ibv_mr *mr);
struct ibv_pd *__wrap_ibv_alloc_pd(struct ibv_context *ctx);
int __wrap_ibv_dealloc_pd(struct ibv_pd *pd);

#define SIZE 65536

static struct ibv_pd pds[2];
static struct verbs_fabric fabric;
static struct verbs_domain domain;
static int fd;

static struct asked {
	struct ibv_pd *pd;
	uint64_t offset, iova;
	size_t length;
	int fd, access;
} asked[4];
static unsigned asks, registered, fails_at, domains;
static int error;
static struct ibv_mr mrs[4];

struct ibv_mr *__wrap_ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int dmabuf,
					int access)
{
	struct stat mine, its;

	ck_assert(fstat(dmabuf, &its) == 0 && fstat(fd, &mine) == 0);
	ck_assert_uint_eq(its.st_ino, mine.st_ino);
	ck_assert_int_ne(fcntl(dmabuf, F_GETFD) & FD_CLOEXEC, 0);
	asked[asks] = (struct asked){pd, offset, iova, length, dmabuf, access};
	errno = error;
	if (asks++ == fails_at)
		return NULL;
	registered++;
	mrs[asks - 1] = (struct ibv_mr){.pd = pd, .rkey = asks, .lkey = asks, .length = length};
	return &mrs[asks - 1];
}

/* Nothing of a device is given back while another thread may give back the device itself. */
static void assert_kept(void)
{
	ck_assert_int_eq(pthread_rwlock_trywrlock(&fabric.lock), EBUSY);
}

struct ibv_pd *__wrap_ibv_alloc_pd(struct ibv_context *ctx)
{
	ck_assert_ptr_null(ctx);
	return &pds[domains++];
}

int __wrap_ibv_dealloc_pd(struct ibv_pd *pd)
{
	ck_assert(pd >= pds && pd < pds + ARRAY_SIZE(pds));
	assert_kept();
	domains--;
	return 0;
}

int __wrap_ibv_dereg_mr(struct ibv_mr *mr)
{
	assert_kept();
	ck_assert(mr >= mrs && mr < mrs + ARRAY_SIZE(mrs));
	registered--;
	return 0;
}

static void set_up(void)
{
	fabric.base.ops = &fabric_verbs;
	fabric.count = 2;
	pthread_rwlock_init(&fabric.lock, NULL);
	for (unsigned i = 0; i < 2; i++) {
		static const char *const names[] = {"one", "two"};

		snprintf(fabric.device[i].name, sizeof(fabric.device[i].name), "%s", names[i]);
		domain.pd[i] = &pds[i];
	}
	domain.base.ops = &fabric_verbs;
	domain.base.fabric = &fabric.base;
	domain.fabric = &fabric;
	list_init(&domain.regions);
	fails_at = UINT32_MAX;
	fd = memfd_create("dmabuf", MFD_CLOEXEC);
	ck_assert(fd >= 0 && ftruncate(fd, SIZE) == 0);
}

static void tear_down(void)
{
	ck_assert_uint_eq(registered, 0);
	pthread_rwlock_destroy(&fabric.lock);
	close(fd);
}

static char *const addr = (char *)0x7f0000003010;

static int try(uint64_t offset, size_t len, struct fabric_region **out)
{
	return fabric_register_dmabuf(&domain.base, &(struct fabric_dmabuf){fd, offset}, addr, len,
				      FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE, out);
}

START_TEST(test_registered)
{
	unsigned before = count_descriptors();
	struct fabric_region *region;

	ck_assert_int_eq(try(0x1010, 5000, &region), 0);
	ck_assert_uint_eq(asks, 2);
	for (unsigned i = 0; i < asks; i++) {
		ck_assert_ptr_eq(asked[i].pd, &pds[i]);
		ck_assert_uint_eq(asked[i].offset, 0x1010);
		ck_assert_uint_eq(asked[i].length, 5000);
		ck_assert_uint_eq(asked[i].iova, (uintptr_t)addr);
		ck_assert_int_eq(asked[i].access,
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
		ck_assert_int_ne(asked[i].fd, fd);
	}
	ck_assert_uint_eq(fabric_region_named(region, addr + 7), (uintptr_t)addr + 7);
	/* A device that comes back has it again. */
	registered--;
	ck_assert_int_eq(verbs_region_enter(container_of(region, struct verbs_region, base), 1), 0);
	ck_assert_uint_eq(asked[2].iova, (uintptr_t)addr);
	ck_assert_int_eq(asked[2].fd, asked[1].fd);
	fabric_deregister(region);
	ck_assert_uint_eq(count_descriptors(), before);
}
END_TEST

static const struct {
	int is, becomes;
	const char *says;
} errors[] = {
	{EOPNOTSUPP, -EOPNOTSUPP, "two cannot register 5000 of a dmabuf"},
	{ENOSYS, -EOPNOTSUPP, "Linux 5.12, rdma-core 34"},
	{ENOMEM, -ENOMEM, "RLIMIT_MEMLOCK"},
	{EINVAL, -EINVAL, "Invalid argument"},
	{EBADF, -EBADF, "Bad file"},
};

/* By the second device: the first gives back what it has. */
START_TEST(test_errors)
{
	unsigned before = count_descriptors();
	struct fabric_region *region = NULL;
	const char *said;

	fails_at = 1;
	error = errors[_i].is;
	log_hush_begin();
	ck_assert_int_eq(try(0x1010, 5000, &region), errors[_i].becomes);
	said = log_hush_end();
	ck_assert_msg(strstr(said, errors[_i].says), "%s", said);
	ck_assert_ptr_null(region);
	ck_assert_uint_eq(asks, 2);
	ck_assert_uint_eq(count_descriptors(), before);
	ck_assert(list_empty(&domain.regions));
}
END_TEST

START_TEST(test_domain)
{
	struct fabric_domain *made;

	list_init(&fabric.domains);
	ck_assert_int_eq(fabric_domain_create(&fabric.base, &made), 0);
	ck_assert_uint_eq(domains, 2);
	fabric_domain_destroy(made);
	ck_assert_uint_eq(domains, 0);
	ck_assert(list_empty(&fabric.domains));
}
END_TEST

/* No device is asked. */
START_TEST(test_ranges)
{
	struct fabric_region *region;

	ck_assert_int_eq(try(0x1011, 10, &region), -EINVAL);
	ck_assert_int_eq(try(0x1010, 0, &region), -EINVAL);
	ck_assert_int_eq(try(0x1010, SIZE, &region), -EINVAL);
	ck_assert_int_eq(try(SIZE + 0x10, 1, &region), -EINVAL);
	ck_assert_int_eq(try(UINT64_MAX - 0xfef, 0x1000, &region), -EINVAL);
	ck_assert_int_eq(try(0x10, SIZE_MAX, &region), -EINVAL);
	ck_assert_uint_eq(asks, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("dmabuf");
	TCase *tc = suite_case(suite, "verbs", set_up, tear_down);

	tcase_add_test(tc, test_registered);
	tcase_add_loop_test(tc, test_errors, 0, ARRAY_SIZE(errors));
	tcase_add_test(tc, test_domain);
	tcase_add_test(tc, test_ranges);
	return suite_run(suite);
}
