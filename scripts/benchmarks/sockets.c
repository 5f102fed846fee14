/*
 * sockets.c: what "rdmactl bench peer" measures, by polled TCP sockets and nothing else: what is left to a library over them.
 *
 *     cc -O2 -o bench-sockets sockets.c
 *     ./bench-sockets 4 64 200
 *
 * The arguments are ranks, the bytes of a message, and the milliseconds that each measurement takes at least. With two ranks it is
 * latency, with more of them the exchange of strings. One JSON object, as of mpi.c. Errors end it.
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RANKS_MOST 64
#define TEXT 24 /* of each in an exchange */
#define FIRST 1000 /* that warm up */

static int ranks, rank, crowded; /* crowded: each wait yields, as somebody else needs the processor */
static int fd[RANKS_MOST];       /* of rank 0 to each other rank, of these fd[1] to rank 0 */
static size_t size;
static char buffer[1 << 20];

static void expect(int condition, const char *what)
{
	if (condition)
		return;
	perror(what);
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void say(int to, const void *bytes, size_t count)
{
	expect(send(fd[to], bytes, count, MSG_NOSIGNAL) == (ssize_t)count, "send");
}

/* `count` bytes of each from rank 1 to `last`, one behind the other. */
static void hear(int last, void *bytes, size_t count)
{
	size_t got[RANKS_MOST] = {0};

	for (int missing = last; missing;) {
		int idle = 1;

		for (int i = 1; i <= last; i++) {
			char *at = (char *)bytes + (size_t)(i - 1) * count + got[i];
			ssize_t n = got[i] < count ? recv(fd[i], at, count - got[i], MSG_DONTWAIT) : -1;

			expect(n != 0, "recv");
			if (n < 0)
				continue;
			got[i] += (size_t)n;
			missing -= got[i] == count;
			idle = 0;
		}
		if (idle && crowded)
			sched_yield();
	}
}

/* To rank 0 and back. */
static void meet(void)
{
	char bytes[RANKS_MOST] = {0};

	if (rank)
		say(1, bytes, 1);
	hear(rank ? 1 : ranks - 1, bytes, 1);
	for (int i = 1; i < ranks && rank == 0; i++)
		say(i, bytes, 1);
}

static void pingpong(void)
{
	if (rank == 0)
		say(1, buffer, size);
	hear(1, buffer, size);
	if (rank == 1)
		say(1, buffer, size);
}

static void exchange(void)
{
	if (rank)
		say(1, buffer, TEXT);
	hear(rank ? 1 : ranks - 1, buffer, rank ? TEXT * (size_t)ranks : TEXT);
	for (int i = 1; i < ranks && rank == 0; i++)
		say(i, buffer, TEXT * (size_t)ranks);
}

/* Seconds of one, the mean of all ranks. */
static double run(uint32_t count)
{
	double all[RANKS_MOST] = {0}, own = 0;

	meet();
	for (uint32_t i = 0; i < count; i++) {
		double begin = now();

		(ranks == 2 ? pingpong : exchange)();
		own += now() - begin;
		if (ranks > 2)
			meet();
	}
	if (rank) {
		say(1, &own, sizeof(own));
		return 0;
	}
	hear(ranks - 1, all, sizeof(own));
	for (int i = 0; i < ranks - 1; i++)
		own += all[i];
	return own / ranks / count / (ranks == 2 ? 2 : 1);
}

static void measure(double seconds)
{
	double begin = now(), each = run(FIRST);
	uint32_t count = (uint32_t)(FIRST * seconds / (now() - begin)) + 1;

	for (int i = 1; i < ranks && rank == 0; i++)
		say(i, &count, sizeof(count));
	if (rank)
		hear(1, &count, sizeof(count));
	each = run(count);
	if (rank == 0)
		printf("{\"ranks\": %d, \"results\": [{\"op\": \"%s\", \"size_bytes\": %zu, \"time_us\": %.4f}]}\n", ranks,
		       ranks == 2 ? "latency" : "exchange", ranks == 2 ? size : 0, each * 1e6);
}

/* The other ranks are children. */
static void part(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	expect(bind(listener, (struct sockaddr *)&address, length) == 0 && listen(listener, RANKS_MOST) == 0, "listen");
	expect(getsockname(listener, (struct sockaddr *)&address, &length) == 0, "getsockname");
	for (int i = 1; i < ranks && rank == 0; i++) {
		rank = fork() == 0 ? i : 0;
		fd[rank ? 1 : i] = rank ? socket(AF_INET, SOCK_STREAM, 0) : accept(listener, NULL, NULL);
		if (rank) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			expect(connect(fd[1], (struct sockaddr *)&address, length) == 0, "connect");
		}
		expect(setsockopt(fd[rank ? 1 : i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0, "setsockopt");
	}
}

int main(int argc, char **argv)
{
	cpu_set_t usable;

	ranks = argc == 4 ? atoi(argv[1]) : 0;
	size = argc == 4 ? strtoul(argv[2], NULL, 10) : 0;
	if (ranks < 2 || ranks > RANKS_MOST || !size || size > sizeof(buffer))
		return 2;
	sched_getaffinity(0, sizeof(usable), &usable);
	crowded = ranks > CPU_COUNT(&usable);
	part();
	measure(atof(argv[3]) / 1e3);
	while (rank == 0 && wait(NULL) > 0)
		;
	return 0;
}
