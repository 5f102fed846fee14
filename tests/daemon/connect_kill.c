/*
 * connect_kill.c: clients that die. `connect_kill ADDRESS CYCLES` forks clients that connect to rdmad and end at
 * once, at a point that a random number chooses: in the middle of the handshake, idle, with requests in flight, or
 * killed from outside at any moment. check_connect_kill.sh compares the daemon's resources before and after.
 */
#include <rdmad/kv.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

#define PARALLEL 8

static const char *server;

/* A socket with a piece of a handshake, or with bytes that are none. */
static void half_handshake(unsigned seed)
{
	static const unsigned char begin[24] = {1, 0, 56, 0, 0, 0, 0, 0, 'r', 'd', 'm', 'a', 's', 'o', 'f', 't', 1};
	unsigned char bytes[80];
	struct address address;
	struct address_socket to[ADDRESS_SOCKETS];
	int fd;

	if (address_parse(server, &address) != 0 || address_resolve(&address, to) < 1)
		_exit(1);
	fd = socket(to[0].sa.ss_family, SOCK_STREAM, 0);
	if (connect(fd, (struct sockaddr *)&to[0].sa, to[0].len) != 0)
		_exit(0); /* RDMA has no such socket */
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)rand_r(&seed);
	if (seed % 2)
		memcpy(bytes, begin, sizeof(begin));
	if (send(fd, bytes, seed % sizeof(bytes), MSG_NOSIGNAL) < 0)
		_exit(0);
}

static void ignore(void *arg, int status, const void *value, size_t len)
{
	(void)arg;
	(void)status;
	(void)value;
	(void)len;
}

/* Never returns: dies without a word at a point of its life. */
static void client(unsigned seed)
{
	unsigned how = rand_r(&seed) % 5, n = rand_r(&seed) % 64;
	char value[2000];
	void *kv;

	if (how == 0) {
		half_handshake(seed);
		_exit(0);
	}
	memset(value, 'k', sizeof(value));
	if (kv_open_options(server, NULL, NULL, &kv) != 0)
		_exit(how == 4 ? 0 : 1);
	for (unsigned i = 0; how >= 2 && i < n; i++)
		if (i % 2)
			kv_submit_get(kv, &i, sizeof(i), ignore, NULL);
		else
			kv_submit_set(kv, &i, sizeof(i), value, sizeof(value), ignore, NULL);
	if (how == 2)
		kv_flush(kv);
	while (how >= 3 && kv_outstanding(kv))
		kv_progress(kv, 1000);
	if (how == 4)
		pause(); /* until the parent's kill */
	_exit(0);
}

/* Ends one child: kills it at once, or when it has not ended by itself. 1 when it failed by itself. */
static unsigned finish(pid_t pid, unsigned seed)
{
	struct timespec moment = {.tv_nsec = rand_r(&seed) % 2000000};
	int tries = seed % 4 == 0 ? 1 : 50, status;

	for (int i = 0; i < tries; i++) {
		nanosleep(&moment, NULL);
		if (waitpid(pid, &status, WNOHANG) == pid)
			return WIFEXITED(status) && WEXITSTATUS(status) != 0;
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return WIFEXITED(status) && WEXITSTATUS(status) != 0;
}

int main(int argc, char **argv)
{
	pid_t pids[PARALLEL] = {0};
	unsigned cycles, failed = 0;

	if (argc != 3) {
		fprintf(stderr, "usage: connect_kill ADDRESS CYCLES\n");
		return 2;
	}
	server = argv[1];
	cycles = (unsigned)atoi(argv[2]);
	srand(1);
	for (unsigned i = 0; i < cycles + PARALLEL; i++) {
		pid_t *pid = &pids[i % PARALLEL];

		if (*pid)
			failed += finish(*pid, (unsigned)rand());
		*pid = 0;
		if (i >= cycles)
			continue;
		*pid = fork();
		if (*pid == 0)
			client((unsigned)rand() + i);
		if (*pid < 0) {
			perror("fork");
			return 1;
		}
	}
	printf("%u clients, %u could not connect\n", cycles, failed);
	return failed > cycles / 100 ? 1 : 0;
}
