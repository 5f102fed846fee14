/* fabric_memory.c: reads and writes, and which peer may touch what. */
#include "tests/fabric/fabric_pair.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define BOTH (FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE)

static const size_t sizes[] = {1, 7, 255, 4095, 4096, 4097, 65536, 1000003};

START_TEST(write_of_each_size)
{
	struct buffer from, to;
	struct fabric_wr wr;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&from, &p.client, MIB, 0);
	buffer_make(&to, &p.server, MIB, FABRIC_REMOTE_WRITE);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		size_t at = to.len - sizes[i] - (i % 2 ? 3 : 0);

		buffer_fill(&from, (uint8_t)i);
		memset(to.at, 0xee, to.len);
		wr = wr_remote(FABRIC_WRITE, i, &from, 0, sizes[i], &to, p.s, at);
		post(p.c, &wr);
		done_expect(&p, &p.client, p.c, i, FABRIC_WRITE, FABRIC_OK);
		ck_assert(buffer_has(&to, at, sizes[i], (uint8_t)i));
		ck_assert_uint_eq(to.at[at - 1], 0xee);
		buffer_check_guards(&to);
	}
	buffer_drop(&from);
	buffer_drop(&to);
	fabric_pair_close(&p);
}
END_TEST

START_TEST(read_of_each_size)
{
	struct buffer from, to;
	struct fabric_wr wr;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&from, &p.server, MIB, FABRIC_REMOTE_READ);
	buffer_make(&to, &p.client, MIB, sink_rights());
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		size_t at = to.len - sizes[i] - (i % 2 ? 3 : 0);

		buffer_fill(&from, (uint8_t)i);
		memset(to.at, 0xee, to.len);
		wr = wr_remote(FABRIC_READ, i, &to, at, sizes[i], &from, p.s, 0);
		post(p.c, &wr);
		done_expect(&p, &p.client, p.c, i, FABRIC_READ, FABRIC_OK);
		ck_assert(buffer_has(&to, at, sizes[i], (uint8_t)i));
		ck_assert_uint_eq(to.at[at - 1], 0xee);
		buffer_check_guards(&to);
	}
	buffer_drop(&from);
	buffer_drop(&to);
	fabric_pair_close(&p);
}
END_TEST

/* More reads than may be in flight, each of other memory: all come, in order. */
START_TEST(many_reads_at_once)
{
	struct buffer from, to;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&from, &p.server, 40 * 5000, FABRIC_REMOTE_READ);
	buffer_make(&to, &p.client, 40 * 5000, sink_rights());
	buffer_fill(&from, 2);
	for (size_t i = 0; i < 40; i++) {
		struct fabric_wr wr = wr_remote(FABRIC_READ, i, &to, i * 5000, 5000, &from, p.s, i * 5000);

		post(p.c, &wr);
	}
	for (size_t i = 0; i < 40; i++)
		done_expect(&p, &p.client, p.c, i, FABRIC_READ, FABRIC_OK);
	ck_assert(buffer_has(&to, 0, to.len, 2));
	buffer_drop(&from);
	buffer_drop(&to);
	fabric_pair_close(&p);
}
END_TEST

START_TEST(both_sides_read_and_write_at_once)
{
	struct buffer mine, theirs;
	struct fabric_wr wr;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&mine, &p.client, 4 * MIB, BOTH);
	buffer_make(&theirs, &p.server, 4 * MIB, BOTH);
	buffer_fill(&mine, 1);
	buffer_fill(&theirs, 1);
	/* The first MiB is written and the second read, by each side in the other's memory. */
	memset(mine.at, 0, MIB);
	memset(theirs.at, 0, MIB);
	memset(mine.at + 3 * MIB, 0, MIB);
	memset(theirs.at + 3 * MIB, 0, MIB);
	wr = wr_remote(FABRIC_WRITE, 1, &mine, MIB, MIB, &theirs, p.s, 0);
	post(p.c, &wr);
	wr = wr_remote(FABRIC_READ, 2, &mine, 3 * MIB, MIB, &theirs, p.s, 2 * MIB);
	post(p.c, &wr);
	wr = wr_remote(FABRIC_WRITE, 3, &theirs, MIB, MIB, &mine, p.c, 0);
	post(p.s, &wr);
	wr = wr_remote(FABRIC_READ, 4, &theirs, 3 * MIB, MIB, &mine, p.c, 2 * MIB);
	post(p.s, &wr);
	done_expect(&p, &p.client, p.c, 1, FABRIC_WRITE, FABRIC_OK);
	done_expect(&p, &p.client, p.c, 2, FABRIC_READ, FABRIC_OK);
	done_expect(&p, &p.server, p.s, 3, FABRIC_WRITE, FABRIC_OK);
	done_expect(&p, &p.server, p.s, 4, FABRIC_READ, FABRIC_OK);
	ck_assert_mem_eq(mine.at, theirs.at + MIB, MIB);
	ck_assert_mem_eq(theirs.at, mine.at + MIB, MIB);
	ck_assert_mem_eq(mine.at + 3 * MIB, theirs.at + 2 * MIB, MIB);
	ck_assert_mem_eq(theirs.at + 3 * MIB, mine.at + 2 * MIB, MIB);
	buffer_drop(&mine);
	buffer_drop(&theirs);
	fabric_pair_close(&p);
}
END_TEST

START_TEST(writes_gather_and_reads_scatter)
{
	struct buffer mine, theirs;
	struct fabric_wr wr;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&mine, &p.client, 16384, sink_rights());
	buffer_make(&theirs, &p.server, 16384, BOTH);
	buffer_fill(&mine, 6);
	wr = wr_remote(FABRIC_WRITE, 1, &mine, 0, 5001, &theirs, p.s, 10);
	wr.sge_count = 2;
	wr.sge[1] = (struct fabric_sge){mine.at + 5001, 4000, mine.region};
	post(p.c, &wr);
	done_expect(&p, &p.client, p.c, 1, FABRIC_WRITE, FABRIC_OK);
	ck_assert(buffer_has(&theirs, 10, 9001, 6));
	memset(mine.at, 0xee, mine.len);
	wr = wr_remote(FABRIC_READ, 2, &mine, 100, 3000, &theirs, p.s, 10);
	wr.sge_count = 2;
	wr.sge[1] = (struct fabric_sge){mine.at + 8000, 6001, mine.region};
	post(p.c, &wr);
	done_expect(&p, &p.client, p.c, 2, FABRIC_READ, FABRIC_OK);
	ck_assert(buffer_has(&mine, 100, 3000, 6));
	ck_assert_mem_eq(mine.at + 8000, theirs.at + 3010, 6001);
	ck_assert_uint_eq(mine.at[3100], 0xee);
	ck_assert_uint_eq(mine.at[14001], 0xee);
	buffer_drop(&mine);
	buffer_drop(&theirs);
	fabric_pair_close(&p);
}
END_TEST

/* 0 bytes touch nothing and check no key: with an empty piece of memory and with none. */
START_TEST(zero_bytes_need_no_key)
{
	static const enum fabric_opcode opcodes[] = {FABRIC_WRITE, FABRIC_READ};
	struct buffer mine;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&mine, &p.client, 4096, sink_rights());
	for (uint64_t i = 0; i < 4; i++) {
		struct fabric_wr wr = wr_local(opcodes[i % 2], i, i < 2 ? &mine : NULL, 0, 0);

		wr.rkey = 0xdeadbeef;
		wr.remote_addr = i ? UINT64_MAX : 0;
		post(p.c, &wr);
		done_expect(&p, &p.client, p.c, i, opcodes[i % 2], FABRIC_OK);
	}
	fabric_pair_exercise(&p, p.c, p.s);
	buffer_drop(&mine);
	fabric_pair_close(&p);
}
END_TEST

/* What was written before a send is there when the send arrives, each time. */
START_TEST(writes_precede_the_send)
{
	struct buffer from, to, inbox;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&from, &p.client, 300000, 0);
	buffer_make(&to, &p.server, 300000, FABRIC_REMOTE_WRITE);
	buffer_make(&inbox, &p.server, 64, FABRIC_LOCAL_WRITE);
	for (unsigned i = 1; i <= (target.slow > 1 ? 50 : 300); i++) {
		size_t len = i % 10 ? i * 7 : 300000;
		struct fabric_wr send = wr_local(FABRIC_SEND, i, &from, 0, 8);
		struct fabric_wr write = wr_remote(FABRIC_WRITE, i, &from, 0, len, &to, p.s, 0);

		memset(from.at, (int)i, from.len);
		receive(&p.server, p.s, i, &inbox, 0, 64);
		write.signaled = false;
		write.next = &send;
		post(p.c, &write);
		while (!p.server.done_count)
			fabric_pair_pump(&p);
		ck_assert_uint_eq(to.at[0], i & 255);
		ck_assert_uint_eq(to.at[len / 2], i & 255);
		ck_assert_uint_eq(to.at[len - 1], i & 255);
		done_expect(&p, &p.server, p.s, i, FABRIC_RECV, FABRIC_OK);
		done_expect(&p, &p.client, p.c, i, FABRIC_SEND, FABRIC_OK);
	}
	buffer_drop(&from);
	buffer_drop(&to);
	buffer_drop(&inbox);
	fabric_pair_close(&p);
}
END_TEST

/* A read that follows a write of the same endpoint sees it. */
START_TEST(reads_see_earlier_writes)
{
	struct buffer mine, theirs;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&mine, &p.client, 20000, sink_rights());
	buffer_make(&theirs, &p.server, 10000, BOTH);
	for (unsigned i = 0; i < 50; i++) {
		struct fabric_wr read = wr_remote(FABRIC_READ, i, &mine, 10000, 10000, &theirs, p.s, 0);
		struct fabric_wr write = wr_remote(FABRIC_WRITE, i, &mine, 0, 10000, &theirs, p.s, 0);

		memset(mine.at, (int)i + 1, 10000);
		write.signaled = false;
		write.next = &read;
		post(p.c, &write);
		done_expect(&p, &p.client, p.c, i, FABRIC_READ, FABRIC_OK);
		ck_assert_mem_eq(mine.at, mine.at + 10000, 10000);
	}
	buffer_drop(&mine);
	buffer_drop(&theirs);
	fabric_pair_close(&p);
}
END_TEST

START_TEST(register_checks_its_arguments)
{
	struct fabric_region *region;
	struct fabric_pair p;
	char byte;

	fabric_pair_open(&p, &fabric_pair_defaults);
	ck_assert_int_eq(fabric_register(p.client.domain, &byte, 0, 0, &region), -EINVAL);
	ck_assert_int_eq(fabric_register(p.client.domain, &byte, SIZE_MAX, 0, &region), -EINVAL);
	fabric_deregister(NULL);
	fabric_pair_close(&p);
}
END_TEST

/* Registered many times and given back: keys of regions that live differ. */
START_TEST(regions_come_and_go)
{
	struct fabric_region *region[64];
	struct buffer b;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&b, &p.server, 64 * 4096, BOTH);
	for (int round = 0; round < 10; round++) {
		for (size_t i = 0; i < 64; i++) {
			ck_assert_int_eq(fabric_register(p.server.domain, b.at + i * 4096, 4096, BOTH, &region[i]), 0);
			for (size_t j = 0; j < i; j++)
				ck_assert_uint_ne(fabric_region_rkey(region[i], p.s),
						  fabric_region_rkey(region[j], p.s));
		}
		for (size_t i = 0; i < 64; i++)
			fabric_deregister(region[(i * 7 + (size_t)round) % 64]);
	}
	fabric_pair_exercise(&p, p.c, p.s);
	buffer_drop(&b);
	fabric_pair_close(&p);
}
END_TEST

/*
 * What is refused. The region is bytes [4096, 8192) of a mapping of three pages.
 */
enum key { KEY_RIGHT, KEY_BAD, KEY_NEIGHBOUR, KEY_OTHER_DOMAIN, KEY_STALE };

static const struct refusal {
	const char *name;
	enum fabric_opcode opcode;
	unsigned access;
	enum key key;
	bool from_zero; /* offset is the address itself */
	int64_t offset; /* from the region's begin */
	size_t len;
} refusals[] = {
	{"write, bad key", FABRIC_WRITE, BOTH, KEY_BAD, false, 0, 100},
	{"read, bad key", FABRIC_READ, BOTH, KEY_BAD, false, 0, 100},
	{"write, key of another region", FABRIC_WRITE, BOTH, KEY_NEIGHBOUR, false, 0, 100},
	{"read, key of another region", FABRIC_READ, BOTH, KEY_NEIGHBOUR, false, 0, 100},
	{"write, one byte beyond", FABRIC_WRITE, BOTH, KEY_RIGHT, false, 3997, 100},
	{"read, one byte beyond", FABRIC_READ, BOTH, KEY_RIGHT, false, 3997, 100},
	{"write, all and one byte", FABRIC_WRITE, BOTH, KEY_RIGHT, false, 0, 4097},
	{"read, all and one byte", FABRIC_READ, BOTH, KEY_RIGHT, false, 0, 4097},
	{"write, one byte before", FABRIC_WRITE, BOTH, KEY_RIGHT, false, -1, 100},
	{"read, one byte before", FABRIC_READ, BOTH, KEY_RIGHT, false, -1, 100},
	{"write, a range that wraps", FABRIC_WRITE, BOTH, KEY_RIGHT, true, -10, 100},
	{"read, a range that wraps", FABRIC_READ, BOTH, KEY_RIGHT, true, -10, 100},
	{"write, last byte of all", FABRIC_WRITE, BOTH, KEY_RIGHT, true, -1, 1},
	{"write to null", FABRIC_WRITE, BOTH, KEY_RIGHT, true, 0, 100},
	{"write, may only read", FABRIC_WRITE, FABRIC_REMOTE_READ, KEY_RIGHT, false, 0, 100},
	{"write, local right only", FABRIC_WRITE, FABRIC_LOCAL_WRITE, KEY_RIGHT, false, 0, 100},
	{"read, may only write", FABRIC_READ, FABRIC_REMOTE_WRITE, KEY_RIGHT, false, 0, 100},
	{"read, local right only", FABRIC_READ, FABRIC_LOCAL_WRITE, KEY_RIGHT, false, 0, 100},
	{"write, key of another domain", FABRIC_WRITE, BOTH, KEY_OTHER_DOMAIN, false, 0, 100},
	{"read, key of another domain", FABRIC_READ, BOTH, KEY_OTHER_DOMAIN, false, 0, 100},
	{"write, deregistered", FABRIC_WRITE, BOTH, KEY_STALE, false, 0, 100},
	{"read, deregistered", FABRIC_READ, BOTH, KEY_STALE, false, 0, 100},
	{"write with immediate, bad key", FABRIC_WRITE_IMM, BOTH, KEY_BAD, false, 0, 100},
	{"write with immediate, beyond", FABRIC_WRITE_IMM, BOTH, KEY_RIGHT, false, 4000, 100},
};

struct scene {
	struct fabric_pair p;
	struct fabric_domain *other;
	struct fabric_region *region, *neighbour, *foreign;
	struct buffer mine, theirs, inbox;
	struct fabric_endpoint *c2, *s2; /* another connection of the same queues */
};

static void scene_open(struct scene *x, unsigned access)
{
	fabric_pair_make(&x->p, &fabric_pair_defaults);
	fabric_pair_connect(&x->p, &x->c2, &x->s2);
	buffer_make(&x->mine, &x->p.client, 8192, sink_rights());
	buffer_make(&x->theirs, &x->p.server, 3 * 4096, 0);
	buffer_make(&x->inbox, &x->p.server, 4096, FABRIC_LOCAL_WRITE);
	ck_assert_int_eq(fabric_register(x->p.server.domain, x->theirs.at + 4096, 4096, access, &x->region), 0);
	ck_assert_int_eq(fabric_register(x->p.server.domain, x->theirs.at, 4096, BOTH, &x->neighbour), 0);
	ck_assert_int_eq(fabric_domain_create(x->p.fabric, &x->other), 0);
	ck_assert_int_eq(fabric_register(x->other, x->theirs.at, 3 * 4096, BOTH, &x->foreign), 0);
	memset(x->mine.at, 0x11, x->mine.len);
	memset(x->theirs.at, 0xee, x->theirs.len);
}

static void scene_close(struct scene *x)
{
	fabric_deregister(x->region);
	fabric_deregister(x->neighbour);
	fabric_deregister(x->foreign);
	buffer_drop(&x->mine);
	buffer_drop(&x->theirs);
	buffer_drop(&x->inbox);
	fabric_domain_destroy(x->other);
	fabric_pair_close(&x->p);
}

static uint32_t choose_key(struct scene *x, enum key key)
{
	uint32_t right = fabric_region_rkey(x->region, x->p.s);

	switch (key) {
	case KEY_BAD:
		return right ^ 0x5a5a5a5a;
	case KEY_NEIGHBOUR:
		return fabric_region_rkey(x->neighbour, x->p.s);
	case KEY_OTHER_DOMAIN:
		return fabric_region_rkey(x->foreign, x->p.s);
	case KEY_STALE:
		fabric_deregister(x->region);
		x->region = NULL;
		return right;
	case KEY_RIGHT:
		break;
	}
	return right;
}

static void expect_untouched(const struct buffer *b, uint8_t value)
{
	for (size_t i = 0; i < b->len; i++)
		check_that(b->at[i] == value, "byte %zu was touched", i);
}

/* A refused request, two more behind it, receives on both sides: all end, and in order. */
START_TEST(refused)
{
	const struct refusal *r = &refusals[_i];
	struct fabric_wr bad, after;
	struct scene x;
	struct fabric_pair *p = &x.p;

	scene_open(&x, r->access);
	if (r->opcode == FABRIC_WRITE_IMM && !p->limits.write_imm)
		return scene_close(&x);
	for (uint64_t i = 0; i < 3; i++) {
		receive(&p->client, p->c, 50 + i, &x.mine, 0, 10);
		receive(&p->server, p->s, 60 + i, &x.inbox, 0, 10);
	}
	bad = wr_local(r->opcode, 1, &x.mine, 0, r->len);
	bad.rkey = choose_key(&x, r->key);
	bad.remote_addr = (r->from_zero ? 0 : (uint64_t)(uintptr_t)x.theirs.at + 4096) + (uint64_t)r->offset;
	bad.signaled = _i % 2;
	after = wr_local(FABRIC_SEND, 2, NULL, 0, 0);
	bad.next = &after;
	post(p->c, &bad);

	struct fabric_completion c = done_next(p, &p->client, p->c);

	check_that(c.id == 1 && c.status == FABRIC_REMOTE_ACCESS, "%s: completion %d (%s)", r->name, (int)c.id,
		   fabric_status_text(c.status));
	/* The send and the receives; their order to each other is free. */
	for (uint64_t recvs = 0, sends = 0; recvs + sends < 4;) {
		c = done_next(p, &p->client, p->c);
		check_that(c.status == FABRIC_FLUSHED, "%s: %d is %s", r->name, (int)c.id,
			   fabric_status_text(c.status));
		ck_assert_uint_eq(c.id, c.id == 2 ? 2 + sends++ : 50 + recvs++);
	}
	for (uint64_t i = 0; i < 3; i++)
		done_expect(p, &p->server, p->s, 60 + i, FABRIC_RECV, FABRIC_FLUSHED);
	event_expect(p, &p->client, p->c, FABRIC_DISCONNECTED);
	event_expect(p, &p->server, p->s, FABRIC_DISCONNECTED);
	ck_assert_int_eq(fabric_post(p->c, &after), -ENOTCONN);
	expect_untouched(&x.theirs, 0xee);
	expect_untouched(&x.mine, 0x11);
	fabric_pair_exercise(p, x.c2, x.s2);
	ck_assert_int_eq(p->client.done_count + p->server.done_count, 0);
	scene_close(&x);
}
END_TEST

/* reads_in 0: the peer may not read, whatever its key. */
START_TEST(no_reads_where_none_are_served)
{
	struct fabric_pair_options options = fabric_pair_defaults;
	struct buffer mine, theirs;
	struct fabric_wr wr;
	struct fabric_pair p;

	options.server.reads_in = 0;
	fabric_pair_make(&p, &options);
	buffer_make(&mine, &p.client, 4096, sink_rights());
	buffer_make(&theirs, &p.server, 4096, BOTH);
	memset(mine.at, 0x11, mine.len);
	wr = wr_remote(FABRIC_WRITE, 1, &mine, 0, 100, &theirs, p.s, 0);
	post(p.c, &wr);
	done_expect(&p, &p.client, p.c, 1, FABRIC_WRITE, FABRIC_OK);
	memset(theirs.at, 0xee, theirs.len);
	wr = wr_remote(FABRIC_READ, 2, &mine, 0, 100, &theirs, p.s, 0);
	if (fabric_post(p.c, &wr) == 0) {
		struct fabric_completion c = done_next(&p, &p.client, p.c);

		ck_assert_uint_eq(c.id, 2);
		check_that(c.status == FABRIC_REMOTE_ACCESS || c.status == FABRIC_REMOTE_ERROR, "%s",
			   fabric_status_text(c.status));
		event_expect(&p, &p.client, p.c, FABRIC_DISCONNECTED);
		event_expect(&p, &p.server, p.s, FABRIC_DISCONNECTED);
	}
	expect_untouched(&mine, 0x11);
	buffer_drop(&mine);
	buffer_drop(&theirs);
	fabric_pair_close(&p);
}
END_TEST

/* After fabric_deregister nothing touches the memory, in mid-transfer too: it may not even be
 * looked at here. The peer's request fails, other connections go on. A write fails with
 * FABRIC_REMOTE_ACCESS; a read that had begun to be answered cannot always be told why. */
START_TEST(deregistered_in_mid_transfer)
{
	enum fabric_opcode opcode = _i % 2 ? FABRIC_READ : FABRIC_WRITE;
	int pumps = _i / 2;
	size_t len = 8 * MIB, mapped = 0;
	struct fabric_endpoint *c2, *s2;
	struct fabric_completion c;
	struct buffer mine, theirs;
	struct fabric_wr wr;
	struct fabric_pair p;
	bool ended = false;

	fabric_pair_make(&p, &fabric_pair_defaults);
	fabric_pair_connect(&p, &c2, &s2);
	buffer_make(&mine, &p.client, len, sink_rights());
	buffer_make(&theirs, &p.server, len, BOTH);
	for (uint64_t i = 0; i < 4; i++) {
		wr = wr_remote(opcode, i, &mine, 0, len, &theirs, p.s, 0);
		post(p.c, &wr);
	}
	for (int i = 0; i < pumps; i++)
		fabric_pair_pump(&p);
	buffer_deregister(&theirs);
	mapped = len + 2 * BUFFER_GUARD;
	ck_assert_int_eq(mprotect(theirs.at - BUFFER_GUARD, mapped, PROT_NONE), 0);
	for (uint64_t i = 0; i < 4; i++) {
		c = done_next(&p, &p.client, p.c);
		ck_assert_uint_eq(c.id, i);
		if (c.status == FABRIC_OK) {
			ck_assert(!ended);
			continue;
		}
		check_that(c.status == (ended ? FABRIC_FLUSHED : FABRIC_REMOTE_ACCESS) ||
				   (!ended && opcode == FABRIC_READ),
			   "%d is %s", (int)i, fabric_status_text(c.status));
		ended = true;
	}
	if (ended) {
		event_expect(&p, &p.client, p.c, FABRIC_DISCONNECTED);
		event_expect(&p, &p.server, p.s, FABRIC_DISCONNECTED);
	}
	fabric_pair_exercise(&p, c2, s2);
	munmap(theirs.at - BUFFER_GUARD, mapped);
	buffer_drop(&mine);
	fabric_pair_close(&p);
}
END_TEST

/* Beyond one message of the device (8 MiB on the emulated one): split, not refused. */
START_TEST(larger_than_a_message)
{
	size_t len = target.slow > 1 ? 20 * MIB + 4096 : 64 * MIB + 4096;
	struct buffer mine, theirs;
	struct fabric_wr wr;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&mine, &p.client, len, sink_rights());
	buffer_make(&theirs, &p.server, len, BOTH);
	buffer_fill(&mine, 4);
	wr = wr_remote(FABRIC_WRITE, 1, &mine, 0, len, &theirs, p.s, 0);
	post(p.c, &wr);
	done_expect(&p, &p.client, p.c, 1, FABRIC_WRITE, FABRIC_OK);
	ck_assert(memcmp(mine.at, theirs.at, len) == 0);
	memset(mine.at, 0, len);
	wr = wr_remote(FABRIC_READ, 2, &mine, 0, len, &theirs, p.s, 0);
	post(p.c, &wr);
	done_expect(&p, &p.client, p.c, 2, FABRIC_READ, FABRIC_OK);
	ck_assert(memcmp(mine.at, theirs.at, len) == 0);
	fabric_pair_pump_for(&p, 10);
	ck_assert_int_eq(p.client.done_count, 0);
	buffer_drop(&mine);
	buffer_drop(&theirs);
	fabric_pair_close(&p);
}
END_TEST

/* The split of a large one takes nobody's slots: send_depth of them fit at once. */
START_TEST(large_ones_fill_send_depth)
{
	size_t len = target.slow > 1 ? 9 * MIB : 17 * MIB;
	struct fabric_pair_options options = fabric_pair_defaults;
	struct buffer mine, theirs;
	struct fabric_wr wr;
	struct fabric_pair p;

	options.client.send_depth = 2;
	fabric_pair_make(&p, &options);
	buffer_make(&mine, &p.client, 2 * len, sink_rights());
	buffer_make(&theirs, &p.server, len, BOTH);
	buffer_fill(&mine, 4);
	wr = wr_remote(FABRIC_WRITE, 1, &mine, 0, len, &theirs, p.s, 0);
	wr.signaled = false;
	post(p.c, &wr);
	wr = wr_remote(FABRIC_READ, 2, &mine, len, len, &theirs, p.s, 0);
	post(p.c, &wr);
	ck_assert_int_eq(fabric_post(p.c, &wr), -EAGAIN);
	done_expect(&p, &p.client, p.c, 2, FABRIC_READ, FABRIC_OK);
	ck_assert(memcmp(mine.at, mine.at + len, len) == 0);
	post(p.c, &wr);
	done_expect(&p, &p.client, p.c, 2, FABRIC_READ, FABRIC_OK);
	buffer_drop(&mine);
	buffer_drop(&theirs);
	fabric_pair_close(&p);
}
END_TEST

/* The bad byte is behind the first message: still refused, still one completion. */
START_TEST(large_and_beyond_the_region)
{
	size_t len = target.slow > 1 ? 9 * MIB : 33 * MIB;
	enum fabric_opcode opcode = _i ? FABRIC_READ : FABRIC_WRITE;
	struct buffer mine, theirs;
	struct fabric_wr wr;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&mine, &p.client, len, sink_rights());
	buffer_make(&theirs, &p.server, len, BOTH);
	wr = wr_remote(opcode, 1, &mine, 0, len, &theirs, p.s, 1);
	post(p.c, &wr);
	done_expect(&p, &p.client, p.c, 1, opcode, FABRIC_REMOTE_ACCESS);
	event_expect(&p, &p.client, p.c, FABRIC_DISCONNECTED);
	event_expect(&p, &p.server, p.s, FABRIC_DISCONNECTED);
	ck_assert_int_eq(p.client.done_count, 0);
	buffer_drop(&mine);
	buffer_drop(&theirs);
	fabric_pair_close(&p);
}
END_TEST

/* Where a read's results come as the peer's writes, memory that the peer may not write to takes none; and it stays closed to the
 * peer whatever else it is used for. */
START_TEST(reads_open_nothing)
{
	struct buffer mine, theirs;
	struct fabric_wr wr;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&mine, &p.client, 4096, FABRIC_LOCAL_WRITE);
	buffer_make(&theirs, &p.server, 4096, BOTH);
	memset(mine.at, 0xee, mine.len);
	wr = wr_remote(FABRIC_READ, 1, &mine, 0, 100, &theirs, p.s, 0);
	ck_assert_int_eq(fabric_post(p.c, &wr), target.open_sinks ? -EACCES : 0);
	if (!target.open_sinks)
		done_expect(&p, &p.client, p.c, 1, FABRIC_READ, FABRIC_OK);
	memset(mine.at, 0xee, mine.len);
	wr = wr_remote(FABRIC_WRITE, 2, &theirs, 0, 100, &mine, p.c, 0);
	post(p.s, &wr);
	done_expect(&p, &p.server, p.s, 2, FABRIC_WRITE, FABRIC_REMOTE_ACCESS);
	for (size_t i = 0; i < mine.len; i++)
		check_that(mine.at[i] == 0xee, "written to");
	buffer_drop(&mine);
	buffer_drop(&theirs);
	fabric_pair_close(&p);
}
END_TEST

/*
 * Promise 10. A server that has admitted nobody, with memory that its peer knows the address and the key of.
 */
struct closed_scene {
	struct fabric_pair p;
	struct buffer mine, theirs;
	bool admitted; /* by the device's nature */
};

static void closed_open(struct closed_scene *x)
{
	struct fabric_pair_options options = fabric_pair_defaults;

	*x = (struct closed_scene){.admitted = target.open_sinks};
	options.server.closed = true;
	fabric_pair_make(&x->p, &options);
	buffer_make(&x->mine, &x->p.client, 4096, sink_rights());
	buffer_make(&x->theirs, &x->p.server, 4096, BOTH | FABRIC_REMOTE_ATOMIC);
	memset(x->mine.at, 0x11, x->mine.len);
	memset(x->theirs.at, 0xee, x->theirs.len);
}

static void closed_close(struct closed_scene *x)
{
	ck_assert_int_eq(x->p.client.done_count + x->p.server.done_count, 0);
	buffer_drop(&x->mine);
	buffer_drop(&x->theirs);
	fabric_pair_close(&x->p);
}

static void expect_bytes(const struct buffer *b, uint8_t value)
{
	for (size_t i = 0; i < b->len; i++)
		check_that(b->at[i] == value, "byte %zu was touched", i);
}

/* From the server and to it: needs no rights. */
static void closed_talk(struct closed_scene *x)
{
	struct fabric_pair *p = &x->p;
	struct fabric_wr wr = wr_local(FABRIC_SEND, 7, &x->theirs, 0, 64);
	uint8_t kept[64];

	receive(&p->client, p->c, 8, &x->mine, 64, 64);
	post(p->s, &wr);
	done_expect(p, &p->client, p->c, 8, FABRIC_RECV, FABRIC_OK);
	done_expect(p, &p->server, p->s, 7, FABRIC_SEND, FABRIC_OK);
	memset(x->mine.at + 64, 0x11, 64);
	memcpy(kept, x->theirs.at + 64, 64);
	receive(&p->server, p->s, 8, &x->theirs, 64, 64);
	wr = wr_local(FABRIC_SEND, 7, &x->mine, 0, 64);
	post(p->c, &wr);
	done_expect(p, &p->server, p->s, 8, FABRIC_RECV, FABRIC_OK);
	done_expect(p, &p->client, p->c, 7, FABRIC_SEND, FABRIC_OK);
	ck_assert_mem_eq(x->theirs.at + 64, x->mine.at, 64);
	memcpy(x->theirs.at + 64, kept, 64);
}

static const struct {
	enum fabric_opcode opcode;
	size_t len;
} closed_tries[] = {
	{FABRIC_WRITE, 8}, {FABRIC_WRITE, 4096}, {FABRIC_WRITE, 0}, {FABRIC_WRITE_IMM, 8}, {FABRIC_WRITE_IMM, 0},
	{FABRIC_READ, 8},  {FABRIC_READ, 4096},  {FABRIC_READ, 0},  {FABRIC_FETCH_ADD, 8}, {FABRIC_COMPARE_SWAP, 8},
};

static bool closed_can(const struct closed_scene *x, enum fabric_opcode opcode)
{
	if (opcode == FABRIC_WRITE_IMM)
		return x->p.limits.write_imm;
	return (opcode != FABRIC_FETCH_ADD && opcode != FABRIC_COMPARE_SWAP) || x->p.limits.atomics;
}

START_TEST(not_admitted)
{
	enum fabric_opcode opcode = closed_tries[_i].opcode;
	struct closed_scene x;
	struct fabric_pair *p = &x.p;
	struct fabric_wr wr;

	closed_open(&x);
	if (!x.admitted && closed_can(&x, opcode)) {
		closed_talk(&x);
		if (opcode == FABRIC_WRITE_IMM)
			receive(&p->server, p->s, 9, &x.theirs, 0, 8);
		wr = wr_remote(opcode, 1, &x.mine, 0, closed_tries[_i].len, &x.theirs, p->s, 0);
		wr.swap = 1;
		post(p->c, &wr);
		done_expect(p, &p->client, p->c, 1, opcode, FABRIC_REMOTE_ACCESS);
		event_expect(p, &p->client, p->c, FABRIC_DISCONNECTED);
		if (opcode == FABRIC_WRITE_IMM)
			done_expect(p, &p->server, p->s, 9, FABRIC_RECV, FABRIC_FLUSHED);
		event_expect(p, &p->server, p->s, FABRIC_DISCONNECTED);
		ck_assert_int_eq(fabric_admit(p->s), -ENOTCONN);
		expect_bytes(&x.mine, 0x11);
		expect_bytes(&x.theirs, 0xee);
	}
	closed_close(&x);
}
END_TEST

START_TEST(admitted)
{
	enum fabric_opcode opcode = closed_tries[_i].opcode;
	struct closed_scene x;
	struct fabric_pair *p = &x.p;
	struct fabric_wr wr;

	closed_open(&x);
	if (closed_can(&x, opcode)) {
		closed_talk(&x);
		ck_assert_int_eq(fabric_admit(p->s), 0);
		ck_assert_int_eq(fabric_admit(p->s), 0);
		if (opcode == FABRIC_WRITE_IMM)
			receive(&p->server, p->s, 9, &x.theirs, 0, 8);
		wr = wr_remote(opcode, 1, &x.mine, 0, closed_tries[_i].len, &x.theirs, p->s, 0);
		post(p->c, &wr);
		done_expect(p, &p->client, p->c, 1, opcode, FABRIC_OK);
		if (opcode == FABRIC_WRITE_IMM)
			done_expect(p, &p->server, p->s, 9, FABRIC_RECV_IMM, FABRIC_OK);
		closed_talk(&x);
	}
	closed_close(&x);
}
END_TEST

/* Three chains of half the send queue at once, of which the first request alone asks for a completion: that one makes room, and
 * nothing that the peer would refuse is sent for it. */
START_TEST(chains_to_one_that_admits_nobody)
{
	struct closed_scene x;
	struct fabric_pair *p = &x.p;
	struct fabric_wr wr[32];

	closed_open(&x);
	ck_assert_uint_eq(p->options.client.send_depth, 2 * ARRAY_SIZE(wr));
	for (unsigned i = 0; i < ARRAY_SIZE(wr); i++) {
		wr[i] = wr_local(FABRIC_SEND, 100, &x.mine, 0, 8);
		wr[i].signaled = i == 0;
		wr[i].next = i + 1 < ARRAY_SIZE(wr) ? &wr[i + 1] : NULL;
	}
	for (unsigned round = 0; round < 10; round++) {
		for (unsigned i = 0; i < 2 * ARRAY_SIZE(wr); i++)
			receive(&p->server, p->s, i, &x.theirs, 0, 8);
		for (unsigned i = 0; i < 3; i++)
			post_patiently(p, p->c, wr);
		for (unsigned i = 0; i < 3 * ARRAY_SIZE(wr); i++) {
			if (i < ARRAY_SIZE(wr))
				receive(&p->server, p->s, 2 * ARRAY_SIZE(wr) + i, &x.theirs, 0, 8);
			done_expect(p, &p->server, p->s, i, FABRIC_RECV, FABRIC_OK);
		}
		for (unsigned i = 0; i < 3; i++)
			done_expect(p, &p->client, p->c, 100, FABRIC_SEND, FABRIC_OK);
	}
	closed_close(&x);
}
END_TEST

Suite *memory_suite(void)
{
	Suite *s = suite_create("memory");
	TCase *t = fabric_pair_tcase(s, "content", 40);

	tcase_add_test(t, write_of_each_size);
	tcase_add_test(t, read_of_each_size);
	tcase_add_test(t, many_reads_at_once);
	tcase_add_test(t, both_sides_read_and_write_at_once);
	tcase_add_test(t, writes_gather_and_reads_scatter);
	tcase_add_test(t, zero_bytes_need_no_key);
	tcase_add_test(t, writes_precede_the_send);
	tcase_add_test(t, reads_see_earlier_writes);
	t = fabric_pair_tcase(s, "access", 40);
	tcase_add_test(t, register_checks_its_arguments);
	tcase_add_test(t, regions_come_and_go);
	tcase_add_loop_test(t, refused, 0, ARRAY_SIZE(refusals));
	tcase_add_test(t, no_reads_where_none_are_served);
	tcase_add_test(t, reads_open_nothing);
	tcase_add_loop_test(t, deregistered_in_mid_transfer, 0, 12);
	tcase_add_loop_test(t, not_admitted, 0, ARRAY_SIZE(closed_tries));
	tcase_add_loop_test(t, admitted, 0, ARRAY_SIZE(closed_tries));
	tcase_add_test(t, chains_to_one_that_admits_nobody);
	t = fabric_pair_tcase(s, "size", 60);
	tcase_add_test(t, larger_than_a_message);
	tcase_add_test(t, large_ones_fill_send_depth);
	tcase_add_loop_test(t, large_and_beyond_the_region, 0, 2);
	return s;
}

/*
 * More than 2 GiB in one call.
 */

#define HUGE_LEN (2 * GIB + 4096)

static uint64_t available_memory(void)
{
	return (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void fill_numbers(struct buffer *b)
{
	uint64_t *word = (uint64_t *)b->at;

	for (uint64_t i = 0; i < b->len / 8; i++)
		word[i] = i * 0x9e3779b97f4a7c15ull;
}

START_TEST(more_than_two_gib_in_one_call)
{
	struct buffer mine, theirs;
	struct fabric_wr wr;
	struct fabric_pair p;

	if (available_memory() < 3 * HUGE_LEN) {
		fprintf(stderr, "skipped: less than 6 GiB of memory are free\n");
		return;
	}
	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&mine, &p.client, HUGE_LEN, sink_rights());
	buffer_make(&theirs, &p.server, HUGE_LEN, BOTH);
	fill_numbers(&mine);
	wr = wr_remote(FABRIC_WRITE, 1, &mine, 0, HUGE_LEN, &theirs, p.s, 0);
	post(p.c, &wr);
	wait_until(&p, p.client.done_count == 1);
	done_expect(&p, &p.client, p.c, 1, FABRIC_WRITE, FABRIC_OK);
	ck_assert(memcmp(mine.at, theirs.at, HUGE_LEN) == 0);
	memset(mine.at, 0, HUGE_LEN);
	wr = wr_remote(FABRIC_READ, 2, &mine, 0, HUGE_LEN, &theirs, p.s, 0);
	post(p.c, &wr);
	done_expect(&p, &p.client, p.c, 2, FABRIC_READ, FABRIC_OK);
	ck_assert(memcmp(mine.at, theirs.at, HUGE_LEN) == 0);
	buffer_drop(&mine);
	buffer_drop(&theirs);
	fabric_pair_close(&p);
}
END_TEST

Suite *large_suite(void)
{
	Suite *s = suite_create("large");

	tcase_add_test(fabric_pair_tcase(s, "large", 120), more_than_two_gib_in_one_call);
	return s;
}
