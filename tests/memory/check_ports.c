/*
 * check_ports.c: what ports of devices are said to be, by tables of GIDs that are no device's: as the kernel does, a
 * table that has more entries than there is room for tells none.
 */
#include <check.h>
#include <errno.h>

#include "fabric/verbs/verbs.h"

#include "tests/suite.h"

#define TABLE 256 /* entries of a port */

#undef ibv_query_port
int __wrap_ibv_query_port(struct ibv_context *ctx, uint8_t number, struct ibv_port_attr *attr);
int __wrap_ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr);
ssize_t __wrap__ibv_query_gid_table(struct ibv_context *ctx, struct ibv_gid_entry *entries, size_t room, uint32_t flags,
				    size_t size);

static struct ibv_context context;
static struct verbs_fabric fabric;
static unsigned valid; /* entries of each port */

int __wrap_ibv_query_port(struct ibv_context *ctx, uint8_t number, struct ibv_port_attr *attr)
{
	ck_assert_ptr_eq(ctx, &context);
	ck_assert(number == 1 || number == 2);
	attr->state = IBV_PORT_ACTIVE;
	attr->link_layer = IBV_LINK_LAYER_ETHERNET;
	attr->active_mtu = IBV_MTU_1024;
	attr->max_mtu = IBV_MTU_4096;
	attr->gid_tbl_len = TABLE;
	return 0;
}

int __wrap_ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	ck_assert_ptr_eq(ctx, &context);
	attr->phys_port_cnt = 2;
	snprintf(attr->fw_ver, sizeof(attr->fw_ver), "1.2");
	return 0;
}

ssize_t __wrap__ibv_query_gid_table(struct ibv_context *ctx, struct ibv_gid_entry *entries, size_t room, uint32_t flags,
				    size_t size)
{
	ck_assert_ptr_eq(ctx, &context);
	ck_assert_uint_eq(flags, 0);
	ck_assert_uint_eq(size, sizeof(*entries));
	if (room < 2 * valid)
		return -EINVAL;
	for (unsigned i = 0; i < 2 * valid; i++) {
		struct ibv_gid_entry *e = &entries[i];

		*e = (struct ibv_gid_entry){.port_num = 1 + i / valid, .gid_index = i % valid};
		e->gid_type = i % 2 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
		memcpy(e->gid.raw, (uint8_t[16]){0xfe, 0x80, [15] = 1}, 16);
		if (i % valid / 2)
			memcpy(e->gid.raw,
			       (uint8_t[16]){
				       [10] = 0xff, 0xff, 10, (uint8_t)(1 + i / valid), 0, (uint8_t)(i % valid / 2)},
			       16);
	}
	return 2 * valid;
}

static void set_up(void)
{
	fabric.base.ops = &fabric_verbs;
	fabric.count = 1;
	pthread_rwlock_init(&fabric.lock, NULL);
	snprintf(fabric.device[0].name, sizeof(fabric.device[0].name), "mlx5_0");
	fabric.device[0].ctx = &context;
	fabric.device[0].ports = 2;
}

static void tear_down(void)
{
	pthread_rwlock_destroy(&fabric.lock);
}

static const unsigned tables[] = {4, 64, 66, TABLE};

START_TEST(test_gids)
{
	struct fabric_port port[4];

	valid = tables[_i];
	ck_assert_uint_eq(fabric_ports(&fabric.base, port, 4), 2);
	for (unsigned i = 0; i < 2; i++) {
		char first[32];

		snprintf(first, sizeof(first), "::ffff:10.%u.0.1", i + 1);
		ck_assert_str_eq(port[i].device, "mlx5_0");
		ck_assert_str_eq(port[i].firmware, "1.2");
		ck_assert(port[i].there && port[i].active && !port[i].infiniband);
		ck_assert_uint_eq(port[i].number, i + 1);
		ck_assert_uint_eq(port[i].mtu, 1024);
		ck_assert_uint_eq(port[i].mtu_max, 4096);
		ck_assert(port[i].roce_2);
		ck_assert_uint_eq(port[i].gids, MIN(valid / 2, FABRIC_PORT_GIDS));
		ck_assert_str_eq(port[i].gid[0], first);
	}
}
END_TEST

/* What was taken away is not asked. */
START_TEST(test_away)
{
	struct fabric_port port[1];

	fabric.device[0].ctx = NULL;
	ck_assert_uint_eq(fabric_ports(&fabric.base, port, 1), 1);
	ck_assert(!port->there && !port->gids);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ports");
	TCase *tc = suite_case(suite, "verbs", set_up, tear_down);

	tcase_add_loop_test(tc, test_gids, 0, ARRAY_SIZE(tables));
	tcase_add_test(tc, test_away);
	return suite_run(suite);
}
