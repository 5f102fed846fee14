/* fabric_message.c: sends, receives, and the rules of posting and completing. */
#include "tests/fabric/fabric_pair.h"
#include "tests/suite.h"

#include <stdlib.h>

#define MANY ((int)MIN(suite_part(10000), target.slow > 1 ? 3000u : 10000u))

START_TEST(send_of_each_size)
{
	static const size_t sizes[] = {0, 1, 7, 64, 255, 256, 4095, 4096, 65536, 1048576};
	struct buffer from, to;
	struct fabric_completion c;
	struct fabric_wr wr;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&from, &p.client, MIB, 0);
	buffer_make(&to, &p.server, MIB, FABRIC_LOCAL_WRITE);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		buffer_fill(&from, (uint8_t)i);
		memset(to.at, 0xee, to.len);
		receive(&p.server, p.s, 100 + i, &to, 0, to.len);
		wr = wr_local(FABRIC_SEND, 200 + i, &from, 0, sizes[i]);
		post(p.c, &wr);
		c = done_expect(&p, &p.server, p.s, 100 + i, FABRIC_RECV, FABRIC_OK);
		ck_assert_uint_eq(c.bytes, sizes[i]);
		ck_assert(buffer_has(&to, 0, sizes[i], (uint8_t)i));
		ck_assert(sizes[i] == to.len || to.at[sizes[i]] == 0xee);
		done_expect(&p, &p.client, p.c, 200 + i, FABRIC_SEND, FABRIC_OK);
	}
	buffer_drop(&from);
	buffer_drop(&to);
	fabric_pair_close(&p);
}
END_TEST

/* One direction of a numbered stream: 16 slots to send from, 64 to receive into. */
struct stream {
	struct station *from, *to;
	struct fabric_endpoint *out, *in;
	struct buffer source, sink;
	uint64_t sent, acked, seen;
};

static void stream_open(struct stream *s, struct station *from, struct fabric_endpoint *out, struct station *to,
			struct fabric_endpoint *in)
{
	*s = (struct stream){.from = from, .to = to, .out = out, .in = in};
	buffer_make(&s->source, from, 16 * 16, 0);
	buffer_make(&s->sink, to, 64 * 16, FABRIC_LOCAL_WRITE);
	for (uint64_t i = 0; i < 64; i++)
		receive(to, in, i, &s->sink, i * 16, 16);
}

static void stream_send(struct stream *s, uint64_t total)
{
	while (s->sent < total && s->sent - s->acked < 16) {
		size_t slot = s->sent % 16;
		struct fabric_wr wr = wr_local(FABRIC_SEND, 1000 + s->sent, &s->source, slot * 16, 16);
		int err;

		memcpy(s->source.at + slot * 16, &s->sent, sizeof(s->sent));
		err = fabric_post(s->out, &wr);
		check_that(err == 0 || err == -EAGAIN, "post answers %d", err);
		if (err)
			return;
		s->sent++;
	}
}

/* Look at what this direction brought; anything out of order fails. */
static void stream_look(struct stream *s, const struct fabric_completion *c)
{
	uint64_t number;

	check_that(c->status == FABRIC_OK, "%s", fabric_status_text(c->status));
	if (c->endpoint == s->out && c->opcode == FABRIC_SEND) {
		check_that(c->id == 1000 + s->acked, "send %llu", (unsigned long long)c->id);
		s->acked++;
	} else if (c->endpoint == s->in && c->opcode == FABRIC_RECV) {
		check_that(c->id == s->seen % 64, "receive %llu", (unsigned long long)c->id);
		check_that(c->bytes == 16, "%u bytes", c->bytes);
		memcpy(&number, s->sink.at + c->id * 16, sizeof(number));
		check_that(number == s->seen, "out of order");
		s->seen++;
		receive(s->to, s->in, c->id, &s->sink, c->id * 16, 16);
	}
}

START_TEST(many_sends_stay_in_order_both_ways)
{
	uint64_t total = (uint64_t)MANY, until;
	struct stream there, back;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	stream_open(&there, &p.client, p.c, &p.server, p.s);
	stream_open(&back, &p.server, p.s, &p.client, p.c);
	until = deadline();
	while (there.acked < total || back.acked < total || there.seen < total || back.seen < total) {
		check_that(time_now() < until, "waited in vain");
		stream_send(&there, total);
		stream_send(&back, total);
		fabric_pair_pump(&p);
		for (int i = 0; i < p.client.done_count; i++) {
			stream_look(&there, &p.client.done[i]);
			stream_look(&back, &p.client.done[i]);
		}
		for (int i = 0; i < p.server.done_count; i++) {
			stream_look(&there, &p.server.done[i]);
			stream_look(&back, &p.server.done[i]);
		}
		p.client.done_count = p.server.done_count = 0;
	}
	buffer_drop(&there.source);
	buffer_drop(&there.sink);
	buffer_drop(&back.source);
	buffer_drop(&back.sink);
	fabric_pair_close(&p);
}
END_TEST

START_TEST(sends_gather)
{
	struct buffer from, to;
	struct fabric_wr wr;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&from, &p.client, 8192, 0);
	buffer_make(&to, &p.server, 8192, FABRIC_LOCAL_WRITE);
	buffer_fill(&from, 1);
	receive(&p.server, p.s, 1, &to, 0, 8192);
	wr = wr_local(FABRIC_SEND, 2, &from, 0, 1000);
	wr.sge_count = 2;
	wr.sge[1] = (struct fabric_sge){from.at + 1000, 3001, from.region};
	post(p.c, &wr);
	ck_assert_uint_eq(done_expect(&p, &p.server, p.s, 1, FABRIC_RECV, FABRIC_OK).bytes, 4001);
	ck_assert(buffer_has(&to, 0, 4001, 1));
	done_expect(&p, &p.client, p.c, 2, FABRIC_SEND, FABRIC_OK);

	/* Empty pieces and none at all. */
	wr.sge[0].len = 0;
	receive(&p.server, p.s, 3, &to, 0, 8192);
	post(p.c, &wr);
	ck_assert_uint_eq(done_expect(&p, &p.server, p.s, 3, FABRIC_RECV, FABRIC_OK).bytes, 3001);
	ck_assert_mem_eq(to.at, from.at + 1000, 3001);
	wr.sge_count = 0;
	receive(&p.server, p.s, 4, &to, 0, 8192);
	post(p.c, &wr);
	ck_assert_uint_eq(done_expect(&p, &p.server, p.s, 4, FABRIC_RECV, FABRIC_OK).bytes, 0);
	buffer_drop(&from);
	buffer_drop(&to);
	fabric_pair_close(&p);
}
END_TEST

/* Up to the inline limit the memory is free when post returns, and needs no region. */
START_TEST(inline_memory_is_free_at_once)
{
	struct buffer to;
	uint8_t stack[512];
	struct fabric_pair p;
	size_t len;

	fabric_pair_make(&p, &fabric_pair_defaults);
	len = MIN(p.limits.inline_size, sizeof(stack));
	if (len == 0) { /* a device that has no inline */
		fabric_pair_close(&p);
		return;
	}
	buffer_make(&to, &p.server, 64 * 512, FABRIC_REMOTE_WRITE);
	for (unsigned i = 0; i < 32; i++) {
		struct fabric_wr wr = {.id = i, .opcode = FABRIC_SEND, .signaled = true, .sge_count = 2};

		receive(&p.server, p.s, i, &to, i * 512, 512);
		memset(stack, (int)i, sizeof(stack));
		wr.sge[0] = (struct fabric_sge){stack, len / 2, NULL};
		wr.sge[1] = (struct fabric_sge){stack + len / 2, len - len / 2, NULL};
		post(p.c, &wr);
		memset(stack, 0xff, sizeof(stack));
		memset(&wr, 0xff, sizeof(wr));
	}
	for (unsigned i = 0; i < 32; i++) {
		done_expect(&p, &p.client, p.c, i, FABRIC_SEND, FABRIC_OK);
		done_expect(&p, &p.server, p.s, i, FABRIC_RECV, FABRIC_OK);
		for (size_t j = 0; j < len; j++)
			check_that(to.at[i * 512 + j] == i, "message %u", i);
	}
	for (unsigned i = 0; i < 32; i++) {
		struct fabric_wr wr = wr_remote(FABRIC_WRITE, i, &to, 0, 0, &to, p.s, i * 512);

		memset(stack, (int)i + 100, sizeof(stack));
		wr.sge[0] = (struct fabric_sge){stack, len, NULL};
		post(p.c, &wr);
		memset(stack, 0xff, sizeof(stack));
	}
	for (unsigned i = 0; i < 32; i++)
		done_expect(&p, &p.client, p.c, i, FABRIC_WRITE, FABRIC_OK);
	for (unsigned i = 0; i < 32; i++)
		for (size_t j = 0; j < len; j++)
			check_that(to.at[i * 512 + j] == i + 100, "write %u", i);
	buffer_drop(&to);
	fabric_pair_close(&p);
}
END_TEST

/* A message, and a number with nothing else. */
START_TEST(write_with_immediate)
{
	struct buffer from, to;
	struct fabric_completion c;
	struct fabric_wr wr;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&from, &p.client, 8192, 0);
	buffer_make(&to, &p.server, 8192, FABRIC_REMOTE_WRITE);
	buffer_fill(&from, 5);
	wr = wr_remote(FABRIC_WRITE_IMM, 1, &from, 0, 5000, &to, p.s, 3000);
	wr.imm = 0xfedcba98;
	if (!p.limits.write_imm) {
		ck_assert_int_eq(fabric_post(p.c, &wr), -EOPNOTSUPP);
		goto out;
	}
	receive(&p.server, p.s, 10, &to, 0, 16);
	receive(&p.server, p.s, 11, &to, 0, 16);
	memset(to.at, 0xee, to.len);
	post(p.c, &wr);
	c = done_expect(&p, &p.server, p.s, 10, FABRIC_RECV_IMM, FABRIC_OK);
	ck_assert_uint_eq(c.imm, 0xfedcba98);
	ck_assert_uint_eq(c.bytes, 5000);
	ck_assert(buffer_has(&to, 3000, 5000, 5));
	check_that(to.at[0] == 0xee, "it wrote into the receive");
	c = done_next(&p, &p.client, p.c);
	ck_assert(c.id == 1 && c.status == FABRIC_OK);
	ck_assert(c.opcode == FABRIC_WRITE || c.opcode == FABRIC_WRITE_IMM);

	wr = (struct fabric_wr){.id = 2, .opcode = FABRIC_WRITE_IMM, .signaled = true, .imm = 7};
	wr.rkey = 0xdeadbeef;
	wr.remote_addr = 1;
	post(p.c, &wr);
	c = done_expect(&p, &p.server, p.s, 11, FABRIC_RECV_IMM, FABRIC_OK);
	ck_assert_uint_eq(c.imm, 7);
	ck_assert_uint_eq(c.bytes, 0);
	c = done_next(&p, &p.client, p.c);
	ck_assert(c.id == 2 && c.status == FABRIC_OK);

	/* The next send takes the next receive. */
	receive(&p.server, p.s, 12, &to, 0, 16);
	wr = wr_local(FABRIC_SEND, 3, &from, 0, 16);
	post(p.c, &wr);
	done_expect(&p, &p.server, p.s, 12, FABRIC_RECV, FABRIC_OK);
out:
	buffer_drop(&from);
	buffer_drop(&to);
	fabric_pair_close(&p);
}
END_TEST

START_TEST(each_signaled_completes_once)
{
	struct buffer from, to;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&from, &p.client, 4096, sink_rights());
	buffer_make(&to, &p.server, 4096, FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE);
	for (uint64_t i = 0; i < 16; i++)
		receive(&p.server, p.s, i, &to, 0, 64);
	for (uint64_t i = 0; i < 16; i++) {
		struct fabric_wr read = wr_remote(FABRIC_READ, i * 10 + 2, &from, 0, 64, &to, p.s, 0);
		struct fabric_wr write = wr_remote(FABRIC_WRITE, i * 10 + 1, &from, 0, 64, &to, p.s, 0);
		struct fabric_wr send = wr_local(FABRIC_SEND, i * 10, &from, 0, 64);

		send.next = &write;
		write.next = &read;
		write.signaled = i % 2;
		post(p.c, &send);
	}
	for (uint64_t i = 0; i < 16; i++) {
		done_expect(&p, &p.client, p.c, i * 10, FABRIC_SEND, FABRIC_OK);
		if (i % 2)
			done_expect(&p, &p.client, p.c, i * 10 + 1, FABRIC_WRITE, FABRIC_OK);
		done_expect(&p, &p.client, p.c, i * 10 + 2, FABRIC_READ, FABRIC_OK);
		done_expect(&p, &p.server, p.s, i, FABRIC_RECV, FABRIC_OK);
	}
	fabric_pair_pump_for(&p, 20);
	ck_assert_int_eq(p.client.done_count + p.server.done_count, 0);
	buffer_drop(&from);
	buffer_drop(&to);
	fabric_pair_close(&p);
}
END_TEST

/* One signaled in eight gives the slots of the seven before it back too. */
START_TEST(selective_signaling)
{
	struct fabric_pair_options options = fabric_pair_defaults;
	struct buffer from, to;
	struct fabric_pair p;

	options.client.send_depth = 16;
	fabric_pair_make(&p, &options);
	buffer_make(&from, &p.client, 4096, 0);
	buffer_make(&to, &p.server, 4096, FABRIC_REMOTE_WRITE);
	for (uint64_t i = 0; i < 16 * 20; i++) {
		struct fabric_wr wr = wr_remote(FABRIC_WRITE, i, &from, 0, 100, &to, p.s, 0);

		wr.signaled = i % 8 == 7;
		post_patiently(&p, p.c, &wr);
	}
	for (uint64_t i = 7; i < 16 * 20; i += 8)
		done_expect(&p, &p.client, p.c, i, FABRIC_WRITE, FABRIC_OK);
	fabric_pair_pump_for(&p, 20);
	ck_assert_int_eq(p.client.done_count, 0);
	buffer_drop(&from);
	buffer_drop(&to);
	fabric_pair_close(&p);
}
END_TEST

/* Exactly send_depth fit, a chain that does not fit leaves nothing behind. */
START_TEST(send_depth_is_exact)
{
	struct fabric_pair_options options = fabric_pair_defaults;
	struct fabric_wr one, two;
	struct buffer from, to;
	struct fabric_pair p;

	options.client.send_depth = 8;
	fabric_pair_make(&p, &options);
	buffer_make(&from, &p.client, 4096, 0);
	buffer_make(&to, &p.server, 4096, FABRIC_REMOTE_WRITE);
	for (uint64_t round = 0; round < 3; round++) {
		two = wr_remote(FABRIC_WRITE, 99, &from, 0, 10, &to, p.s, 0);
		for (uint64_t i = 0; i < 7; i++) {
			one = wr_remote(FABRIC_WRITE, i, &from, 0, 10, &to, p.s, 0);
			post(p.c, &one);
		}
		one = wr_remote(FABRIC_WRITE, 98, &from, 0, 10, &to, p.s, 0);
		one.next = &two;
		ck_assert_int_eq(fabric_post(p.c, &one), -EAGAIN);
		one.next = NULL;
		one.id = 7;
		post(p.c, &one);
		ck_assert_int_eq(fabric_post(p.c, &one), -EAGAIN);
		station_pump(&p.server);
		ck_assert_int_eq(fabric_post(p.c, &one), -EAGAIN);
		for (uint64_t i = 0; i < 8; i++)
			done_expect(&p, &p.client, p.c, i, FABRIC_WRITE, FABRIC_OK);
	}
	fabric_pair_pump_for(&p, 20);
	ck_assert_int_eq(p.client.done_count, 0);
	buffer_drop(&from);
	buffer_drop(&to);
	fabric_pair_close(&p);
}
END_TEST

/* At least recv_depth fit; what answered -EAGAIN was not posted, not even in part. */
START_TEST(recv_depth_is_respected)
{
	bool shared = _i;
	struct fabric_pair_options options = shared ? fabric_pair_shared : fabric_pair_defaults;
	struct fabric_recv batch[3];
	struct buffer to;
	struct fabric_pair p;
	uint64_t posted = 0;

	options.queue.shared_depth = shared ? 4 : 0;
	options.server.recv_depth = shared ? 0 : 4;
	fabric_pair_make(&p, &options);
	struct fabric_endpoint *to_whom = shared ? NULL : p.s;

	buffer_make(&to, &p.server, 4096, FABRIC_LOCAL_WRITE);
	while (posted < 10000) {
		for (uint64_t i = 0; i < 3; i++)
			batch[i] = (struct fabric_recv){posted + i, {to.at, 16, to.region}};
		int err = fabric_post_recv(p.server.queue, to_whom, batch, 3);

		if (err) {
			ck_assert_int_eq(err, -EAGAIN);
			break;
		}
		posted += 3;
	}
	while (try_receive(&p.server, to_whom, posted, &to, 0, 16) == 0)
		posted++;
	ck_assert_uint_ge(posted, 4);
	ck_assert_uint_lt(posted, 10000);
	for (uint64_t i = 0; i < posted; i++) {
		struct fabric_wr wr = wr_local(FABRIC_SEND, i, NULL, 0, 0);

		post_patiently(&p, p.c, &wr);
		done_expect(&p, &p.server, p.s, i, FABRIC_RECV, FABRIC_OK);
	}
	receive(&p.server, to_whom, 1, &to, 0, 16);
	buffer_drop(&to);
	fabric_pair_close(&p);
}
END_TEST

/* The sender waits, for a receive of the endpoint's own (_i 0) or a shared one (1). */
START_TEST(late_receives_lose_nothing)
{
	bool shared = _i;
	struct buffer from, to;
	struct fabric_pair p;

	fabric_pair_make(&p, shared ? &fabric_pair_shared : &fabric_pair_defaults);
	buffer_make(&from, &p.client, 20000, 0);
	buffer_make(&to, &p.server, 20000, FABRIC_LOCAL_WRITE);
	buffer_fill(&from, 8);
	for (uint64_t i = 0; i < 10; i++) {
		struct fabric_wr wr = wr_local(FABRIC_SEND, i, &from, i * 2000, 2000);

		post(p.c, &wr);
	}
	fabric_pair_pump_for(&p, 100);
	ck_assert_int_eq(p.server.done_count, 0);
	ck_assert_int_eq(p.client.event_count + p.server.event_count, 0);
	for (uint64_t i = 0; i < 10; i++) {
		receive(&p.server, shared ? NULL : p.s, i, &to, i * 2000, 2000);
		if (i % 3 == 0)
			fabric_pair_pump_for(&p, 1);
	}
	for (uint64_t i = 0; i < 10; i++) {
		done_expect(&p, &p.server, p.s, i, FABRIC_RECV, FABRIC_OK);
		done_expect(&p, &p.client, p.c, i, FABRIC_SEND, FABRIC_OK);
	}
	ck_assert(buffer_has(&to, 0, 20000, 8));
	buffer_drop(&from);
	buffer_drop(&to);
	fabric_pair_close(&p);
}
END_TEST

/* One endpoint that waits for a receive does not hold up another one of the queue. */
START_TEST(a_waiting_sender_holds_up_nobody)
{
	struct fabric_endpoint *c2, *s2;
	struct buffer from, to;
	struct fabric_wr wr;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	fabric_pair_connect(&p, &c2, &s2);
	buffer_make(&from, &p.client, 40000, 0);
	buffer_make(&to, &p.server, 40000, FABRIC_LOCAL_WRITE);
	wr = wr_local(FABRIC_SEND, 1, &from, 0, 40000);
	post(p.c, &wr);
	fabric_pair_pump_for(&p, 10);
	fabric_pair_exercise(&p, c2, s2);
	receive(&p.server, p.s, 2, &to, 0, 40000);
	done_expect(&p, &p.server, p.s, 2, FABRIC_RECV, FABRIC_OK);
	done_expect(&p, &p.client, p.c, 1, FABRIC_SEND, FABRIC_OK);
	buffer_drop(&from);
	buffer_drop(&to);
	fabric_pair_close(&p);
}
END_TEST

#define CLIENTS 8
#define EACH 40

/* A device without shared receives says so, and makes no queue that has some. */
/* Behind the message that tells of them; one is not wanted. */
START_TEST(pushes)
{
	static const size_t lens[] = {1, 100, 5000, FABRIC_PUSH_MAX, 70000};
	struct buffer from, to;
	struct fabric_recv at;
	struct fabric_wr wr;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&from, &p.client, FABRIC_PUSH_MAX, 0);
	buffer_make(&to, &p.server, FABRIC_PUSH_MAX, FABRIC_LOCAL_WRITE);
	buffer_fill(&from, 5);
	wr = wr_local(FABRIC_PUSH, 1, &from, 0, 100);
	if (!p.limits.pushes) {
		ck_assert_int_eq(fabric_post(p.c, &wr), -EOPNOTSUPP);
		ck_assert_int_eq(fabric_pull(p.s, NULL, 1), -EOPNOTSUPP);
		goto out;
	}
	for (unsigned early = 0; early < 2; early++) {
		for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
			bool wanted = i != 2;

			at = (struct fabric_recv){10 + i, {to.at, lens[i], to.region}};
			memset(to.at, 0xee, to.len);
			wr = wr_local(FABRIC_PUSH, i, &from, 0, lens[i]);
			if (!early)
				post_patiently(&p, p.c, &wr);
			if (!early && lens[i] < 65536) /* the stream stands still, and this side's memory is free */
				done_expect(&p, &p.client, p.c, i, FABRIC_PUSH, FABRIC_OK);
			ck_assert_int_eq(fabric_pull(p.s, wanted ? &at : NULL, 1), 0);
			if (early)
				post_patiently(&p, p.c, &wr);
			if (wanted)
				done_expect(&p, &p.server, p.s, 10 + i, FABRIC_PULL, FABRIC_OK);
			if (early || lens[i] >= 65536)
				done_expect(&p, &p.client, p.c, i, FABRIC_PUSH, FABRIC_OK);
			ck_assert(!wanted || buffer_has(&to, 0, lens[i], 5));
			check_that(lens[i] == to.len || to.at[lens[i]] == 0xee, "it wrote behind its place");
		}
	}
	fabric_pair_exercise(&p, p.c, p.s);
	at = (struct fabric_recv){20, {to.at, 99, to.region}};
	ck_assert_int_eq(fabric_pull(p.s, &at, 1), 0);
	at.id = 21;
	ck_assert_int_eq(fabric_pull(p.s, &at, 1), 0);
	wr = wr_local(FABRIC_PUSH, 3, &from, 0, 100); /* another length than was told */
	post(p.c, &wr);
	done_expect(&p, &p.server, p.s, 20, FABRIC_PULL, FABRIC_FLUSHED);
	done_expect(&p, &p.server, p.s, 21, FABRIC_PULL, FABRIC_FLUSHED);
	event_expect(&p, &p.server, p.s, FABRIC_DISCONNECTED);
	event_expect(&p, &p.client, p.c, FABRIC_DISCONNECTED);
out:
	buffer_drop(&from);
	buffer_drop(&to);
	fabric_pair_close(&p);
}
END_TEST

START_TEST(nothing_is_shared)
{
	struct fabric_queue_attr attr = {.shared_depth = 64};
	struct fabric_queue *queue;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	ck_assert_uint_eq(p.limits.max_shared_depth, 0);
	ck_assert_int_eq(fabric_queue_create(p.client.domain, &attr, &queue), -EINVAL);
	fabric_pair_exercise(&p, p.c, p.s);
	fabric_pair_close(&p);
}
END_TEST

START_TEST(shared_receives_serve_many)
{
	struct fabric_endpoint *c[CLIENTS], *s[CLIENTS];
	uint32_t sent[CLIENTS] = {0}, seen[CLIENTS] = {0};
	struct buffer from, to;
	struct fabric_pair p;
	int total = 0;

	fabric_pair_open(&p, &fabric_pair_shared);
	buffer_make(&from, &p.client, CLIENTS * EACH * 8, 0);
	buffer_make(&to, &p.server, 64 * 64, FABRIC_LOCAL_WRITE);
	for (int i = 0; i < CLIENTS; i++)
		fabric_pair_connect(&p, &c[i], &s[i]);
	for (uint64_t i = 0; i < 16; i++)
		receive(&p.server, NULL, i, &to, i * 64, 64);
	for (uint32_t n = 0; n < EACH; n++)
		for (uint32_t i = 0; i < CLIENTS; i++, sent[i - 1]++) {
			size_t at = (n * CLIENTS + i) * 8;
			struct fabric_wr wr = wr_local(FABRIC_SEND, n, &from, at, 8);

			memcpy(from.at + at, &i, 4);
			memcpy(from.at + at + 4, &n, 4);
			post_patiently(&p, c[i], &wr);
		}
	for (; total < CLIENTS * EACH; total++) {
		struct fabric_completion done = done_next(&p, &p.server, NULL);
		uint32_t who, number;

		ck_assert_int_eq(done.status, FABRIC_OK);
		memcpy(&who, to.at + done.id * 64, 4);
		memcpy(&number, to.at + done.id * 64 + 4, 4);
		ck_assert_uint_lt(who, CLIENTS);
		ck_assert_ptr_eq(done.endpoint, s[who]);
		ck_assert_uint_eq(number, seen[who]);
		seen[who]++;
		receive(&p.server, NULL, done.id, &to, done.id * 64, 64);
	}
	/* Shared receives stay with the queue when endpoints go. */
	for (int i = 1; i < CLIENTS; i++)
		station_destroy(&p.server, &s[i]);
	struct fabric_wr last = wr_local(FABRIC_SEND, 77, &from, 0, 8);

	post_patiently(&p, c[0], &last);
	ck_assert_ptr_eq(done_next(&p, &p.server, NULL).endpoint, s[0]);
	buffer_drop(&from);
	buffer_drop(&to);
	fabric_pair_close(&p);
}
END_TEST

static void expect_both_end(struct fabric_pair *p)
{
	event_expect(p, &p->client, p->c, FABRIC_DISCONNECTED);
	event_expect(p, &p->server, p->s, FABRIC_DISCONNECTED);
}

/* How many there are to be follows from the endpoints that are there, up to the depth of the queue. */
START_TEST(shared_receives_are_wanted)
{
	struct fabric_pair_options options = fabric_pair_shared;
	struct fabric_endpoint *c[4], *s[4];
	struct fabric_pair p;

	options.queue.shared_depth = 64;
	options.server.shared = 20;
	fabric_pair_open(&p, &options);
	ck_assert_uint_eq(fabric_shared_wanted(p.server.queue, 8), 0);
	for (uint32_t i = 0; i < ARRAY_SIZE(s); i++) {
		fabric_pair_connect(&p, &c[i], &s[i]);
		ck_assert_uint_eq(fabric_shared_wanted(p.server.queue, 0), MIN(20 * (i + 1), 64u));
		ck_assert_uint_eq(fabric_shared_wanted(p.server.queue, 8), MIN(20 * (i + 1) + 8, 64u));
	}
	for (unsigned i = 0; i < ARRAY_SIZE(s); i++)
		station_destroy(&p.server, &s[i]);
	ck_assert_uint_eq(fabric_shared_wanted(p.server.queue, 8), 0);
	fabric_pair_close(&p);
}
END_TEST

START_TEST(send_larger_than_the_receive)
{
	bool shared = _i;
	struct fabric_endpoint *c2, *s2;
	struct buffer from, to;
	struct fabric_wr wr;
	struct fabric_pair p;

	fabric_pair_make(&p, shared ? &fabric_pair_shared : &fabric_pair_defaults);
	fabric_pair_connect(&p, &c2, &s2);
	buffer_make(&from, &p.client, 4096, 0);
	buffer_make(&to, &p.server, 4096, FABRIC_LOCAL_WRITE);
	receive(&p.server, shared ? NULL : p.s, 1, &to, 0, 100);
	memset(to.at, 0xee, to.len);
	wr = wr_local(FABRIC_SEND, 2, &from, 0, 101);
	wr.signaled = false;
	post(p.c, &wr);
	done_expect(&p, &p.server, p.s, 1, FABRIC_RECV, FABRIC_LOCAL_ERROR);
	done_expect(&p, &p.client, p.c, 2, FABRIC_SEND, FABRIC_REMOTE_ERROR);
	check_that(to.at[100] == 0xee, "it wrote behind the receive");
	expect_both_end(&p);
	fabric_pair_exercise(&p, c2, s2);
	buffer_drop(&from);
	buffer_drop(&to);
	fabric_pair_close(&p);
}
END_TEST

/* Local mistakes: either post refuses or the request fails; nothing leaves the region. */
START_TEST(local_range_not_registered)
{
	struct buffer from, to;
	struct fabric_wr wr;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&from, &p.client, 4096, 0);
	buffer_make(&to, &p.server, 8192, FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE);
	memset(from.at, 0x11, from.len);
	memset(to.at, 0xee, to.len);
	receive(&p.server, p.s, 1, &to, 0, 8192);
	switch (_i) {
	case 0:
		wr = wr_local(FABRIC_SEND, 2, &from, 1, 4096);
		break;
	case 1:
		wr = wr_remote(FABRIC_WRITE, 2, &from, 1, 4096, &to, p.s, 0);
		break;
	default: /* into a region that may not be written */
		wr = wr_remote(FABRIC_READ, 2, &from, 0, 4096, &to, p.s, 0);
		break;
	}
	wr.signaled = false;
	if (fabric_post(p.c, &wr) == 0) {
		done_expect(&p, &p.client, p.c, 2, FABRIC_SEND, FABRIC_LOCAL_ERROR);
		expect_both_end(&p);
	}
	for (size_t i = 0; i < to.len; i++)
		check_that(to.at[i] == 0xee, "byte %zu was touched", i);
	for (size_t i = 0; i < from.len; i++)
		check_that(from.at[i] == 0x11, "byte %zu was touched", i);
	buffer_drop(&from);
	buffer_drop(&to);
	fabric_pair_close(&p);
}
END_TEST

START_TEST(receive_into_memory_without_the_right)
{
	struct buffer from, to;
	struct fabric_wr wr;
	struct fabric_pair p;

	fabric_pair_make(&p, &fabric_pair_defaults);
	buffer_make(&from, &p.client, 4096, 0);
	buffer_make(&to, &p.server, 4096, 0);
	memset(to.at, 0xee, to.len);
	if (try_receive(&p.server, p.s, 1, &to, 0, 4096) == 0) {
		wr = wr_local(FABRIC_SEND, 2, &from, 0, 4096);
		post(p.c, &wr);
		done_expect(&p, &p.server, p.s, 1, FABRIC_RECV, FABRIC_LOCAL_ERROR);
		done_expect(&p, &p.client, p.c, 2, FABRIC_SEND, FABRIC_REMOTE_ERROR);
		expect_both_end(&p);
	}
	for (size_t i = 0; i < to.len; i++)
		check_that(to.at[i] == 0xee, "byte %zu was touched", i);
	buffer_drop(&from);
	buffer_drop(&to);
	fabric_pair_close(&p);
}
END_TEST

Suite *message_suite(void)
{
	Suite *s = suite_create("message");
	TCase *t = fabric_pair_tcase(s, "content", 40);

	tcase_add_test(t, send_of_each_size);
	tcase_add_test(t, many_sends_stay_in_order_both_ways);
	tcase_add_test(t, sends_gather);
	tcase_add_test(t, inline_memory_is_free_at_once);
	tcase_add_test(t, write_with_immediate);
	tcase_add_test(t, pushes);
	t = fabric_pair_tcase(s, "posting", 30);
	tcase_add_test(t, each_signaled_completes_once);
	tcase_add_test(t, selective_signaling);
	tcase_add_test(t, send_depth_is_exact);
	tcase_add_loop_test(t, recv_depth_is_respected, 0, 1 + target.shared);
	t = fabric_pair_tcase(s, "receives", 30);
	tcase_add_loop_test(t, late_receives_lose_nothing, 0, 1 + target.shared);
	tcase_add_test(t, a_waiting_sender_holds_up_nobody);
	if (target.shared) {
		tcase_add_test(t, shared_receives_serve_many);
		tcase_add_test(t, shared_receives_are_wanted);
	} else {
		tcase_add_test(t, nothing_is_shared);
	}
	tcase_add_loop_test(t, send_larger_than_the_receive, 0, 1 + target.shared);
	tcase_add_loop_test(t, local_range_not_registered, 0, 3);
	tcase_add_test(t, receive_into_memory_without_the_right);
	return s;
}
