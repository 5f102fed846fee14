/*
 * fabric_hostile.c: a peer that keeps to no protocol (soft: raw bytes on its socket), and a
 * device that goes away (verbs).
 */
#include "tests/fabric/fabric_memory.h"
#include "tests/fabric/fabric_siege.h"
#include "tests/suite.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/un.h>
#include <unistd.h>

#include "fabric/soft/frame.h"

/* The recording itself is understood, so that what follows tests what it says. */
START_TEST(recording_can_be_played)
{
	struct siege x;

	siege_open(&x);
	buffer_fill(&x.region, 77);
	check_that(!siege_replay(&x, x.bytes, x.len, true), "an unchanged replay was cut off");
	check_that(!buffer_has(&x.region, 0, 256, 77), "nothing was written");
	siege_close(&x);
}
END_TEST

/* Whether each word of the region is that of one of two. */
static bool words_of(const struct buffer *region, const uint8_t *old, const uint8_t *new)
{
	for (size_t at = 0; at < 512; at += 8)
		if (memcmp(region->at + at, old + at, 8) != 0 && memcmp(region->at + at, new + at, 8) != 0)
			return false;
	return true;
}

/* Small writes that come in byte by byte are never seen in part of a word. */
START_TEST(small_writes_are_whole)
{
	uint8_t old[512], new[512];
	struct siege x;
	int fd;

	siege_open(&x);
	check_that(!siege_replay(&x, x.bytes, x.len, true), "an unchanged replay was cut off");
	memcpy(new, x.region.at, sizeof(new));
	buffer_fill(&x.region, 77);
	memcpy(old, x.region.at, sizeof(old));
	fd = raw_connect(&x.p.sa, x.p.len);
	raw_send(fd, x.bytes, x.hello);
	check_that(!siege_serve_raw(&x, fd, true), "the hello was cut off");
	for (size_t i = x.hello; i < x.len; i++) {
		raw_send(fd, x.bytes + i, 1);
		for (int j = 0; j < 3; j++)
			siege_serve(&x);
		check_that(words_of(&x.region, old, new), "part of a word was written");
	}
	siege_serve_raw(&x, fd, true);
	check_that(memcmp(x.region.at, new, 32) != 0 && memcmp(x.region.at + 64, new + 64, 64) == 0 &&
			   memcmp(x.region.at + 256, new + 256, 32) == 0,
		   "the writes are not there");
	close(fd);
	siege_close(&x);
}
END_TEST

START_TEST(random_bytes_are_cut_off)
{
	uint8_t noise[4096];
	unsigned seed = 42;
	struct siege x;

	siege_open(&x);
	for (int i = 0; i < 50; i++) {
		for (size_t j = 0; j < sizeof(noise); j++)
			noise[j] = (uint8_t)random_next(&seed);
		siege_replay(&x, noise, sizeof(noise), false);
	}
	siege_replay(&x,
		     (const uint8_t *)"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n"
				      "User-Agent: somebody who is lost in our port range\r\n\r\n",
		     100, true);
	siege_close(&x);
}
END_TEST

START_TEST(silence_and_half_a_handshake)
{
	struct siege x;

	siege_open(&x);
	for (size_t cut = 0; cut < x.hello; cut++)
		siege_replay(&x, x.bytes, cut, true);
	siege_close(&x);
}
END_TEST

/* Half-open connections do not keep others out. */
START_TEST(others_connect_beside_half_open_ones)
{
	struct fabric_endpoint *c;
	struct siege x;
	int fd[40];

	siege_open(&x);
	for (size_t i = 0; i < ARRAY_SIZE(fd); i++) {
		fd[i] = raw_connect(&x.p.sa, x.p.len);
		raw_send(fd[i], x.bytes, i % 2 ? x.hello / 2 : 0);
		siege_serve(&x);
	}
	ck_assert_int_eq(station_connect(&x.p.client, &x.p.sa, x.p.len, &fabric_pair_shared.client, NULL, 0, &c), 0);
	while (!x.p.client.event_count)
		siege_serve(&x);
	event_expect(&x.p, &x.p.client, c, FABRIC_ESTABLISHED);
	station_destroy(&x.p.client, &c);
	for (size_t i = 0; i < ARRAY_SIZE(fd); i++)
		close(fd[i]);
	siege_close(&x);
}
END_TEST

/* A hello that differs in its first bytes is none. */
START_TEST(wrong_magic_is_cut_off)
{
	struct siege x;

	siege_open(&x);
	for (size_t i = 0; i < 4; i++) {
		x.bytes[i] ^= 0x20;
		siege_replay(&x, x.bytes, x.len, false);
		x.bytes[i] ^= 0x20;
	}
	siege_close(&x);
}
END_TEST

START_TEST(frames_cut_short)
{
	struct siege x;

	siege_open(&x);
	for (size_t cut = x.hello; cut < x.len; cut++)
		siege_replay(&x, x.bytes, cut, true);
	siege_close(&x);
}
END_TEST

/* Each word of it, in turn, as large, small and strange as it can be. */
START_TEST(absurd_lengths)
{
	static const uint8_t values[] = {0xff, 0x7f, 0x80, 0x00};
	uint8_t bytes[8192];
	struct siege x;

	siege_open(&x);
	for (size_t at = (size_t)_i; at < x.len; at += 4)
		for (size_t v = 0; v < ARRAY_SIZE(values); v++) {
			memcpy(bytes, x.bytes, x.len);
			memset(bytes + at, values[v], MIN(x.len - at, (size_t)4));
			siege_replay(&x, bytes, x.len, true);
		}
	siege_close(&x);
}
END_TEST

START_TEST(changed_bytes)
{
	uint8_t bytes[8192];
	unsigned seed = 99 + (unsigned)_i;
	struct siege x;

	siege_open(&x);
	for (int i = 0; i < 300; i++) {
		memcpy(bytes, x.bytes, x.len);
		for (unsigned n = 1 + random_next(&seed) % 4; n; n--)
			bytes[random_next(&seed) % x.len] = (uint8_t)random_next(&seed);
		siege_replay(&x, bytes, x.len, true);
	}
	siege_close(&x);
}
END_TEST

/* Good frames and then noise on an established connection: its end, and only its own. */
START_TEST(noise_after_good_frames)
{
	uint8_t bytes[8192 + 4096];
	unsigned seed = 5;
	struct siege x;

	siege_open(&x);
	for (int i = 0; i < 50; i++) {
		memcpy(bytes, x.bytes, x.len);
		for (size_t j = 0; j < 4096; j++)
			bytes[x.len + j] = (uint8_t)random_next(&seed);
		siege_replay(&x, bytes, x.len + 4096, true);
	}
	siege_close(&x);
}
END_TEST

/* The same from the other side: a server that answers a connect with noise. */
START_TEST(client_meets_a_mad_server)
{
	struct sockaddr_storage sa;
	uint8_t noise[1024];
	unsigned seed = 11;
	struct fabric_pair p;
	socklen_t len;
	unsigned fds;
	int listener;

	fabric_pair_make(&p, &fabric_pair_defaults);
	target_address(3, &sa, &len);
	if (sa.ss_family == AF_UNIX)
		unlink(((struct sockaddr_un *)&sa)->sun_path);
	listener = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&sa, len), 0);
	ck_assert_int_eq(listen(listener, 4), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&sa, &len), 0);
	fds = count_descriptors();
	for (int i = 0; i < 50; i++) {
		struct fabric_endpoint *c;
		uint64_t until = deadline();
		int fd;

		ck_assert_int_eq(station_connect(&p.client, &sa, len, &p.options.client, NULL, 0, &c), 0);
		while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0) {
			check_that(time_now() < until, "waited in vain");
			fabric_pair_pump(&p);
		}
		for (size_t j = 0; j < sizeof(noise); j++)
			noise[j] = (uint8_t)random_next(&seed);
		raw_send(fd, noise, i % 2 ? sizeof(noise) : (size_t)i);
		close(fd);
		struct fabric_event e = event_next(&p, &p.client, c);

		check_that(e.type == FABRIC_UNREACHABLE || e.type == FABRIC_REJECTED, "%s", event_name(e.type));
		station_destroy(&p.client, &c);
	}
	fabric_pair_exercise(&p, p.c, p.s);
	ck_assert_uint_eq(count_descriptors(), fds);
	close(listener);
	if (sa.ss_family == AF_UNIX)
		unlink(((struct sockaddr_un *)&sa)->sun_path);
	fabric_pair_close(&p);
}
END_TEST

/* A UNIX socket's peer is told by what the kernel knows of it, not by the path that it has chosen for itself. */
START_TEST(a_peer_does_not_name_itself)
{
	struct sockaddr_un own = {.sun_family = AF_UNIX};
	char name[160], expected[160];
	struct fabric_event e;
	struct siege x;
	int fd;

	if (target.sa.ss_family != AF_UNIX)
		return;
	siege_open(&x);
	snprintf(own.sun_path, sizeof(own.sun_path), "/tmp/forged-%d\n error \033[31m", (int)getpid());
	snprintf(expected, sizeof(expected), "unix:pid %d uid %u", (int)getpid(), (unsigned)getuid());
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&own, sizeof(own)), 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&x.p.sa, x.p.len), 0);
	raw_send(fd, x.bytes, x.hello);
	e = event_expect(&x.p, &x.p.server, NULL, FABRIC_REQUEST);
	ck_assert_str_eq(fabric_request_peer(e.request, name, sizeof(name)), expected);
	fabric_reject(e.request, NULL, 0);
	ck_assert_str_eq(fabric_endpoint_peer(x.p.s, name, sizeof(name)), expected);
	close(fd);
	unlink(own.sun_path);
	siege_close(&x);
}
END_TEST

/*
 * Descriptors that a client passes. The last close of a TCP socket that lingers would take longer than this test may.
 */
#define LINGER_S 600

static bool kernel_is_old; /* as Linux before 6.16 */

int __real_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len);

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	if (!kernel_is_old || level != SOL_SOCKET || name != 83)
		return __real_setsockopt(fd, level, name, value, len);
	errno = ENOPROTOOPT;
	return -1;
}

/* A socket with bytes that nobody reads; *other is its other end, with whose end closing it is over. */
static int lingering(int *other)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct linger linger = {.l_onoff = 1, .l_linger = LINGER_S};
	socklen_t len = sizeof(sa);
	char bytes[4096] = {0};

	ck_assert_int_eq(bind(listener, (struct sockaddr *)&sa, len), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&sa, &len), 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&sa, len), 0);
	*other = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	ck_assert_int_ge(*other, 0);
	close(listener);
	while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
	return fd;
}

/* How a client passes it: where it stands in what is sent. */
enum passed { WITH_THE_FIRST, WITH_THE_LAST, OUT_OF_BAND, BEHIND, PASSED_WAYS };

static bool pass_lingering(struct siege *x, int client, enum passed way, int fd)
{
	size_t at = way == WITH_THE_LAST ? x->hello - 1 : 0;

	if (way == BEHIND) {
		raw_send(client, x->bytes, x->hello);
		return memory_pass(client, NULL, 0, x->bytes, 1, &fd, 1);
	}
	raw_send(client, x->bytes, at);
	if (way == OUT_OF_BAND)
		return memory_pass_flags(client, NULL, 0, x->bytes, 1, &fd, 1, MSG_OOB);
	return memory_pass(client, NULL, 0, x->bytes + at, x->hello - at, &fd, 1);
}

/* The server's thread neither takes nor closes it, so that others are served; the client hears that it is refused. */
START_TEST(descriptors_that_take_long_to_close)
{
	struct siege x;

	kernel_is_old = _i / PASSED_WAYS;
	siege_open(&x);
	for (int i = 0; i < 3; i++) {
		int other, fd = lingering(&other), client = raw_connect(&x.p.sa, x.p.len);
		bool passed = pass_lingering(&x, client, _i % PASSED_WAYS, fd);
		struct fabric_endpoint *c;

		check_that(passed || !kernel_is_old, "nothing was passed");
		if (passed)
			close(fd);
		siege_serve(&x);
		ck_assert_int_eq(
			station_connect(&x.p.client, &x.p.sa, x.p.len, &fabric_pair_shared.client, NULL, 0, &c), 0);
		while (!x.p.client.event_count)
			siege_serve(&x);
		event_expect(&x.p, &x.p.client, c, FABRIC_ESTABLISHED);
		station_destroy(&x.p.client, &c);
		if (passed && _i % PASSED_WAYS != OUT_OF_BAND)
			check_that(siege_serve_raw(&x, client, false), "it was not cut off");
		close(other);
		if (!passed)
			close(fd);
		close(client);
	}
	siege_close(&x);
	kernel_is_old = false;
}
END_TEST

/* An older client passes memory with its request: it is told that its version is not served, or the kernel refuses. */
START_TEST(an_older_client_passes_memory)
{
	uint8_t bytes[SOFT_HEADER];
	struct soft_frame f;
	struct siege x;
	int client, memory;

	kernel_is_old = _i;
	siege_open(&x);
	client = raw_connect(&x.p.sa, x.p.len);
	memory = memory_make(sizeof(struct soft_rings_memory), SEALS);
	if (memory_pass(client, NULL, 0, x.bytes, x.hello, &memory, 1)) {
		for (uint64_t until = deadline(); recv(client, bytes, sizeof(bytes), MSG_DONTWAIT) != SOFT_HEADER;) {
			check_that(time_now() < until, "it was not answered");
			siege_serve(&x);
		}
		soft_frame_decode(bytes, &f);
		ck_assert_int_eq(f.op, SOFT_REJECT);
		ck_assert_uint_eq(f.arg, SOFT_REASON_VERSION);
	} else {
		ck_assert_int_eq(errno, EPERM);
		ck_assert(!kernel_is_old);
	}
	close(memory);
	close(client);
	siege_close(&x);
	kernel_is_old = false;
}
END_TEST

Suite *hostile_suite(void)
{
	Suite *s = suite_create("hostile");
	TCase *t;

	if (!target.soft) /* no bytes of ours on its wire */
		return s;
	t = fabric_pair_tcase(s, "bytes", 60);
	tcase_add_test(t, recording_can_be_played);
	tcase_add_test(t, small_writes_are_whole);
	tcase_add_test(t, random_bytes_are_cut_off);
	tcase_add_test(t, silence_and_half_a_handshake);
	tcase_add_test(t, others_connect_beside_half_open_ones);
	tcase_add_test(t, wrong_magic_is_cut_off);
	tcase_add_test(t, frames_cut_short);
	tcase_add_loop_test(t, absurd_lengths, 0, 4);
	tcase_add_loop_test(t, changed_bytes, 0, 4);
	tcase_add_test(t, noise_after_good_frames);
	tcase_add_test(t, client_meets_a_mad_server);
	tcase_add_test(t, a_peer_does_not_name_itself);
	if (target.sa.ss_family == AF_UNIX) {
		tcase_add_loop_test(t, descriptors_that_take_long_to_close, 0, 2 * PASSED_WAYS);
		tcase_add_loop_test(t, an_older_client_passes_memory, 0, 2);
	}
	return s;
}

/*
 * The device goes while there is traffic. On rxe the command blocks until this process ends,
 * so it runs in a child that was forked before the first verbs call.
 */

#define DOOMED 4

static int fork_remover(void)
{
	int go[2];
	char c;

	ck_assert_int_eq(pipe(go), 0);
	if (fork() == 0) {
		close(go[1]);
		if (read(go[0], &c, 1) == 1)
			execlp("rdma", "rdma", "link", "delete", "rxe0", (char *)NULL);
		_exit(1);
	}
	close(go[0]);
	return go[1];
}

/* The device is gone for this endpoint; a disconnect may have been noticed first. */
static void expect_removed(struct fabric_pair *p, struct station *st, struct fabric_endpoint *endpoint)
{
	struct fabric_event e = event_next(p, st, endpoint);

	if (e.type == FABRIC_DISCONNECTED)
		e = event_next(p, st, endpoint);
	check_that(e.type == FABRIC_REMOVED, "%s, expected removed", event_name(e.type));
}

START_TEST(device_removed_under_traffic)
{
	struct fabric_endpoint *c[DOOMED], *s[DOOMED];
	struct buffer mine, theirs;
	struct fabric_wr wr;
	struct fabric_pair p;
	int go = fork_remover();

	fabric_pair_open(&p, &fabric_pair_defaults);
	for (int i = 0; i < DOOMED; i++)
		fabric_pair_connect(&p, &c[i], &s[i]);
	buffer_make(&mine, &p.client, MIB, sink_rights());
	buffer_make(&theirs, &p.server, MIB, FABRIC_REMOTE_WRITE);
	ck_assert_int_eq(write(go, "x", 1), 1);
	for (uint64_t n = 0, until = deadline(); p.client.event_count < DOOMED; n++) {
		check_that(time_now() < until, "waited in vain");
		wr = wr_remote(FABRIC_WRITE, n, &mine, 0, 65536, &theirs, s[n % DOOMED], 0);
		if (!p.client.event_count)
			(void)fabric_post(c[n % DOOMED], &wr);
		fabric_pair_pump(&p);
		p.client.done_count = 0;
	}
	for (int i = 0; i < DOOMED; i++) {
		expect_removed(&p, &p.client, c[i]);
		expect_removed(&p, &p.server, s[i]);
	}
	event_expect(&p, &p.server, NULL, FABRIC_REMOVED);
	buffer_drop(&mine);
	buffer_drop(&theirs);
	fabric_pair_close(&p);
	close(go);
}
END_TEST

Suite *removal_suite(void)
{
	Suite *s = suite_create("removal");

	tcase_add_test(fabric_pair_tcase(s, "removal", 30), device_removed_under_traffic);
	return s;
}
