/* valkey.c: a client of Valkey's protocol over RDMA. */
#include "tests/stream/valkey.h"

#include <arpa/inet.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define DEPTH 128u

/* In a test and in a program of its own. */
#define EXPECT(condition)                                                                                              \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                        \
			abort();                                                                                       \
		}                                                                                                      \
	} while (0)

static size_t memory_of(const struct valkey *v)
{
	return v->len + VALKEY_STAGE + VALKEY_RECEIVES * VALKEY_MESSAGE;
}

static char *receive_at(const struct valkey *v, uint64_t i)
{
	return v->memory + v->len + VALKEY_STAGE + i * VALKEY_MESSAGE;
}

static void post_receive(struct valkey *v, uint64_t i)
{
	struct fabric_recv recv = {.id = i, .sge = {receive_at(v, i), VALKEY_MESSAGE, v->region}};
	int rc = fabric_post_recv(v->queue, v->endpoint, &recv, 1);

	EXPECT(rc == 0 || rc == -ENOTCONN);
}

void valkey_connect(struct valkey *v, const char *provider, const struct sockaddr *sa, socklen_t sa_len, uint32_t len,
		    const void *data, size_t data_len)
{
	struct fabric_endpoint_attr attr = {
		.send_depth = DEPTH, .recv_depth = VALKEY_RECEIVES, .reads_in = 1, .reads_out = 1, .context = v};

	*v = (struct valkey){.len = len};
	EXPECT(fabric_open(provider, &(struct fabric_config){.device = NULL}, &v->fabric) == 0);
	EXPECT(fabric_domain_create(v->fabric, &v->domain) == 0);
	EXPECT(fabric_queue_create(v->domain, &(struct fabric_queue_attr){.completions = 0}, &v->queue) == 0);
	v->memory = mmap(NULL, memory_of(v), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	EXPECT(v->memory != MAP_FAILED);
	EXPECT(fabric_register(v->domain, v->memory, memory_of(v), FABRIC_REMOTE_WRITE, &v->region) == 0);
	EXPECT(fabric_connect(v->queue, v->domain, sa, sa_len, &attr, data, data_len, &v->endpoint) == 0);
	for (uint64_t i = 0; i < VALKEY_RECEIVES; i++)
		post_receive(v, i);
}

static bool post(struct valkey *v, struct fabric_wr *wr)
{
	int rc;

	wr->signaled = true;
	rc = fabric_post(v->endpoint, wr);
	v->under_way += rc == 0;
	EXPECT(rc == 0 || rc == -EAGAIN || rc == -ENOTCONN);
	return rc == 0;
}

/* A place on the stage, with a copy. NULL: it has no room. */
static void *stage(struct valkey *v, const void *bytes, uint32_t len)
{
	char *to = v->memory + v->len + v->staged;

	if (v->staged + len > VALKEY_STAGE)
		return NULL;
	memcpy(to, bytes, len);
	v->staged += len;
	return to;
}

bool valkey_send(struct valkey *v, const void *bytes, uint32_t len)
{
	struct fabric_wr wr = {.opcode = FABRIC_SEND, .sge_count = 1};

	wr.sge[0] = (struct fabric_sge){stage(v, bytes, len), len, v->region};
	return wr.sge[0].addr && post(v, &wr);
}

bool valkey_register_as(struct valkey *v, uint64_t addr, uint32_t len, uint32_t key)
{
	unsigned char m[VALKEY_MESSAGE] = {0, VALKEY_REGISTER};

	addr = htobe64(addr);
	len = htonl(len);
	key = htonl(key);
	memcpy(m + 16, &addr, 8);
	memcpy(m + 24, &len, 4);
	memcpy(m + 28, &key, 4);
	return valkey_send(v, m, sizeof(m));
}

void valkey_register(struct valkey *v)
{
	uint32_t key = fabric_region_rkey(v->region, v->endpoint);

	v->owes = !valkey_register_as(v, (uintptr_t)v->memory, v->len, key);
}

void valkey_message(struct valkey *v, unsigned opcode, unsigned select, uint64_t features)
{
	unsigned char m[VALKEY_MESSAGE] = {(unsigned char)(opcode >> 8), (unsigned char)opcode,
					   (unsigned char)(select >> 8), (unsigned char)select};

	features = htobe64(features);
	memcpy(m + 24, &features, 8);
	valkey_send(v, m, sizeof(m));
}

static void message_came(struct valkey *v, const unsigned char *m, uint32_t bytes)
{
	uint32_t number;

	EXPECT(bytes == VALKEY_MESSAGE);
	EXPECT(m[0] == 0);
	switch (m[1]) {
	case VALKEY_GET_FEATURES:
		v->features++;
		v->select = (unsigned)m[2] << 8 | m[3];
		break;
	case VALKEY_KEEPALIVE:
		v->keepalives++;
		break;
	case VALKEY_REGISTER:
		EXPECT(v->filled == v->window); /* not before the last byte */
		v->registers++;
		memcpy(&v->addr, m + 16, 8);
		v->addr = be64toh(v->addr);
		memcpy(&number, m + 24, 4);
		EXPECT(!v->window || v->window == ntohl(number)); /* libvalkey takes no other */
		v->window = ntohl(number);
		memcpy(&number, m + 28, 4);
		v->key = ntohl(number);
		v->filled = 0;
		break;
	default:
		EXPECT(!"a message of this kind");
	}
}

static void completed(struct valkey *v, const struct fabric_completion *c)
{
	if (c->status != FABRIC_OK) {
		v->status = v->failed || c->status == FABRIC_FLUSHED ? v->status : c->status;
		v->failed |= c->status != FABRIC_FLUSHED;
		return;
	}
	if (c->opcode != FABRIC_RECV && c->opcode != FABRIC_RECV_IMM) {
		if (--v->under_way == 0)
			v->staged = 0;
		return;
	}
	if (c->opcode == FABRIC_RECV) {
		message_came(v, (unsigned char *)receive_at(v, c->id), c->bytes);
	} else {
		EXPECT(c->imm <= v->len - v->came);
		v->came += c->imm;
	}
	post_receive(v, c->id);
}

int valkey_turn(struct valkey *v)
{
	struct fabric_completion c[32];
	struct fabric_event event;
	int n = fabric_poll(v->queue, c, 32), events = 0;

	for (int i = 0; i < n; i++)
		completed(v, &c[i]);
	while (fabric_next_event(v->queue, &event)) {
		events++;
		if (event.type == FABRIC_ESTABLISHED) {
			v->established = true;
			if (!v->silent)
				valkey_register(v);
		} else {
			v->over = true;
		}
	}
	if (v->owes && !v->over)
		valkey_register(v);
	return MAX(n, 0) + events;
}

bool valkey_arm(struct valkey *v)
{
	return fabric_arm(v->queue) == 0 && valkey_turn(v) == 0;
}

size_t valkey_write(struct valkey *v, const void *bytes, size_t len)
{
	uint32_t n = (uint32_t)MIN(MIN(len, (size_t)VALKEY_STAGE - v->staged), (size_t)(v->window - v->filled));
	struct fabric_wr wr = {.opcode = FABRIC_WRITE_IMM, .imm = n, .sge_count = 1, .rkey = v->key};

	if (!n || v->under_way >= DEPTH / 2)
		return 0;
	wr.remote_addr = v->addr + v->filled;
	wr.sge[0] = (struct fabric_sge){stage(v, bytes, n), n, v->region};
	if (!post(v, &wr))
		return 0;
	v->filled += n;
	return n;
}

void valkey_write_at(struct valkey *v, uint64_t addr, uint32_t key, uint32_t len, uint32_t imm)
{
	struct fabric_wr wr = {
		.opcode = FABRIC_WRITE_IMM, .imm = imm, .sge_count = 1, .rkey = key, .remote_addr = addr};

	wr.sge[0] = (struct fabric_sge){v->memory + v->len, len, v->region};
	post(v, &wr);
}

size_t valkey_read(struct valkey *v, void *to, size_t len)
{
	uint32_t n = (uint32_t)MIN(len, (size_t)(v->came - v->used));

	memcpy(to, v->memory + v->used, n);
	v->used += n;
	if (v->used == v->len && !v->over) {
		v->came = v->used = 0;
		valkey_register(v);
	}
	return n;
}

void valkey_close(struct valkey *v)
{
	fabric_endpoint_destroy(v->endpoint);
	fabric_deregister(v->region);
	munmap(v->memory, memory_of(v));
	fabric_queue_destroy(v->queue);
	fabric_domain_destroy(v->domain);
	fabric_close(v->fabric);
}
