/* rendezvous_common.c: a server for large values, one without manners, and counts of what is allocated, copied and registered. */
#include "tests/client/rendezvous_common.h"

#define TRANSFERS 4 /* of a connection at once: few, so that tests go beyond */

_Atomic unsigned allocations, registrations;
static _Atomic unsigned deregistrations;
_Atomic size_t longest_copy;
unsigned refuse;
pthread_t refused;
unsigned rights;

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__real_calloc(size_t n, size_t m);
void *__wrap_calloc(size_t n, size_t m);
void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);
void *__real_memcpy(void *to, const void *from, size_t n);
void *__wrap_memcpy(void *to, const void *from, size_t n);
void *__real_memmove(void *to, const void *from, size_t n);
void *__wrap_memmove(void *to, const void *from, size_t n);
int __real_fabric_register(struct fabric_domain *domain, void *addr, size_t len, unsigned access,
			   struct fabric_region **out);
int __wrap_fabric_register(struct fabric_domain *domain, void *addr, size_t len, unsigned access,
			   struct fabric_region **out);
void __real_fabric_deregister(struct fabric_region *region);
void __wrap_fabric_deregister(struct fabric_region *region);

void *__wrap_malloc(size_t n)
{
	allocations++;
	return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t m)
{
	allocations++;
	return __real_calloc(n, m);
}

void *__wrap_realloc(void *p, size_t n)
{
	allocations++;
	return __real_realloc(p, n);
}

size_t copy_limit(void *kv)
{
	return strcmp(kv_transport(kv), "shm") == 0 ? 32768 : 4096;
}

void *__wrap_memcpy(void *to, const void *from, size_t n)
{
	if (n > longest_copy)
		longest_copy = n;
	return __real_memcpy(to, from, n);
}

void *__wrap_memmove(void *to, const void *from, size_t n)
{
	if (n > longest_copy)
		longest_copy = n;
	return __real_memmove(to, from, n);
}

int __wrap_fabric_register(struct fabric_domain *domain, void *addr, size_t len, unsigned access,
			   struct fabric_region **out)
{
	int rc;

	if (refuse && pthread_equal(pthread_self(), refused)) {
		refuse--;
		return -ENOMEM;
	}
	rc = __real_fabric_register(domain, addr, len, access, out);
	registrations += rc == 0;
	if (rc == 0 && pthread_equal(pthread_self(), refused))
		rights = access;
	return rc;
}

void __wrap_fabric_deregister(struct fabric_region *region)
{
	deregistrations += region != NULL;
	__real_fabric_deregister(region);
}

unsigned registered(void)
{
	return registrations - deregistrations;
}

/*
 * The server without manners
 */
const struct rogue *rogue;

static int rogue_record(struct conn *c, const struct wire_record *record, const void *body)
{
	struct wire_record *r = conn_reserve(c, rogue->body, NULL);

	(void)body;
	if (!r)
		return -EAGAIN;
	r->id = record->id;
	r->op = record->op;
	r->flags = WIRE_REPLY | rogue->flags;
	r->status = rogue->status;
	if (record->op == WIRE_OP_SET_FROM && !rogue->set) {
		r->flags = WIRE_REPLY;
		conn_commit(c, r, 0);
		return 0;
	}
	if (rogue->body)
		memset(r + 1, 'k', rogue->body);
	if (rogue->body >= 8)
		memcpy(r + 1, &rogue->length, 8);
	conn_commit(c, r, rogue->body);
	return 0;
}

static const struct conn_ops rogue_ops = {
	.established = server_ignores_established,
	.record = rogue_record,
	.closed = server_ignores_closed,
};

/*
 * The server
 */
static const struct conn_ops *instead; /* of the service */

static void server_take(struct fabric_event *event)
{
	struct wire_accept grant = {
		.message_size = conn_group_attr(server.group)->message_size, /* no buffers of its own */
		.eager_max = WIRE_EAGER_MAX,
		.value_max = GIB,
		.pieces = 4,
	};
	struct wire_request wire;

	if (wire_request_decode(&wire, event->data, event->data_len) != WIRE_REASON_NONE)
		conn_refuse(event->request, WIRE_REASON_BAD_REQUEST, 0);
	else if (instead)
		conn_accept(server.group, event->request, &wire, &grant, NULL, instead, NULL, time_now(),
			    &(struct conn *){NULL});
	else
		services_take(&server.services, server.group, event->request, &wire, WIRE_REASON_NONE);
}

static void start(const char *transport, bool large, uint64_t push_max)
{
	server_start(&(struct server_options){
		.transport = transport,
		.no_large = !large,
		.group.transfers = TRANSFERS,
		.services.push_max = push_max,
		.take = server_take,
	});
}

void assert_store_empty(void)
{
	struct store_stats stats = services_store_stats(&server.services);

	ck_assert_uint_eq(stats.pins, 0);
	ck_assert_uint_eq(stats.items, 0);
	ck_assert_uint_eq(stats.bytes_used, 0);
}

void server_rests(void)
{
	uint64_t until = time_now() + PATIENCE;

	server_pause();
	while (conn_group_connections(server.group) || services_store_stats(&server.services).pins) {
		server_turn();
		ck_assert_msg(time_now() < until, "connections or pins are left");
	}
}

uint64_t records_taken(void)
{
	struct conn_group_stats stats;

	conn_group_get_stats(server.group, &stats);
	return stats.records_in;
}

uint8_t *value, *space;

void set_up_memory(void)
{
	value = malloc(LARGEST + 8192);
	space = malloc(LARGEST + 8192);
	ck_assert(value && space);
}

static void set_up_tcp(void)
{
	set_up_memory();
	start("tcp", true, 0);
}

static void set_up_unix(void)
{
	set_up_memory();
	start("unix", true, 0);
}

static void set_up_pushed(void)
{
	set_up_memory();
	start("tcp", true, PUSH_MAX);
}

static void set_up_unix_pushed(void)
{
	set_up_memory();
	start("unix", true, PUSH_MAX);
}

static void set_up_rdma(void)
{
	set_up_memory();
	start("rdma", true, PUSH_MAX); /* which that is not told */
}

void set_up_no_arena(void)
{
	set_up_memory();
	start("tcp", false, 0);
}

void set_up_rogue(void)
{
	instead = &rogue_ops;
	set_up_tcp();
}

void tear_down(void)
{
	server_stop();
	free(value);
	free(space);
}

Suite *suite_over_each(const char *name, void (*add)(TCase *tc), void (*add_pushed)(TCase *tc))
{
	Suite *suite = suite_create(name);

	add(suite_case(suite, "tcp", set_up_tcp, tear_down));
	add(suite_case(suite, "unix", set_up_unix, tear_down));
	add_pushed(suite_case(suite, "pushed tcp", set_up_pushed, tear_down));
	add_pushed(suite_case(suite, "pushed unix", set_up_unix_pushed, tear_down));
	if (getenv("RDMAD_GUEST_ADDR")) /* there is a device, and this is its address */
		add(suite_case(suite, "rdma", set_up_rdma, tear_down));
	return suite;
}

/*
 * Its client
 */
void set_value(void *kv, const char *key, size_t len, uint64_t seed)
{
	int rc;

	value_fill(value, len, seed);
	rc = kv_set_bytes(kv, key, strlen(key), value, len);
	ck_assert_msg(rc == 0, "set of %zu bytes: %d %s", len, rc, rdmad_error());
}

void assert_value(void *kv, const char *key, size_t len, uint64_t seed)
{
	size_t got;
	void *back;
	int rc = kv_get_bytes(kv, key, strlen(key), &back, &got);

	ck_assert_msg(rc == 0, "get of %zu bytes: %d %s", len, rc, rdmad_error());
	ck_assert_uint_eq(got, len);
	ck_assert_msg(value_holds(back, len, seed), "%zu bytes are not what was set", len);
	ck_assert_int_eq(((char *)back)[len], 0);
	kv_release(back);
}

unsigned total;

void done(void *arg, int status, const void *bytes, size_t len)
{
	struct call *call = arg;

	call->called++;
	call->status = status;
	call->len = len;
	call->at = bytes;
	call->whole = bytes && len == call->want && value_holds(bytes, len, call->seed);
	total++;
}

void ignored(void *arg, const struct kv_result *result)
{
	(void)arg;
	(void)result;
}

void assert_done(const struct call *call, int status)
{
	ck_assert_uint_eq(call->called, 1);
	ck_assert_int_eq(call->status, status);
}

void assert_brought(const struct call *call)
{
	assert_done(call, 0);
	ck_assert_uint_eq(call->len, call->want);
	ck_assert(call->whole);
}

void turn_until(void *kv, unsigned calls)
{
	while (total < calls) {
		server_turn();
		if (kv_progress(kv, 0) < 0)
			abort();
	}
}
