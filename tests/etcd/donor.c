/*
 * donor.c: a node that tells a server that it has copied all keys of some slots, and then hangs. It has no keys.
 *
 *   donor SERVER CLUSTER NODE BOOT EPOCH LAST
 *
 * The slots are 0 to LAST. "complete" is printed when the server waits for the table of EPOCH + 1.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client.h"
#include "cluster/cluster.h"
#include "rdmad/kv.h"
#include "wire/wire.h"

struct answer {
	bool there;
	int status;
};

static void take(void *arg, int status, const void *text, size_t len)
{
	struct answer *answer = arg;

	*answer = (struct answer){.there = true, .status = status};
	if (status != 0)
		fprintf(stderr, "%.*s\n", (int)len, len ? (const char *)text : "");
}

static int ask(void *kv, enum wire_move_kind kind, const void *body, size_t len)
{
	struct answer answer = {0};
	int rc = client_move(kv, kind, body, len, take, &answer);

	while (rc == 0 && !answer.there)
		rc = MIN(kv_progress(kv, 100), 0);
	return rc < 0 ? rc : answer.status;
}

int main(int argc, char **argv)
{
	struct wire_move_begin begin = {.move = {.id = {1}, .version = 1}};
	void *kv;
	int rc;

	if (argc != 7 || strlen(argv[4]) != sizeof(begin.boot))
		return 2;
	snprintf(begin.cluster, sizeof(begin.cluster), "%s", argv[2]);
	snprintf(begin.node, sizeof(begin.node), "%s", argv[3]);
	memcpy(begin.boot, argv[4], sizeof(begin.boot));
	begin.move.epoch = strtoull(argv[5], NULL, 10);
	for (unsigned slot = 0; slot <= (unsigned)atoi(argv[6]); slot++)
		cluster_bit_set(begin.slots, slot);
	rc = kv_open(argv[1], &kv);
	if (rc != 0)
		return 1;
	for (unsigned i = 0; i < 200 && (rc = ask(kv, WIRE_MOVE_BEGIN, &begin, sizeof(begin))) == -EAGAIN; i++)
		usleep(50000);
	begin.move.epoch++;
	if (rc == 0)
		rc = ask(kv, WIRE_MOVE_COMPLETE, &begin.move, sizeof(begin.move));
	if (rc == 0) {
		puts("complete");
		fflush(stdout);
	}
	while (rc == 0)
		rc = MIN(kv_progress(kv, 1000), 0);
	kv_close(kv);
	return 1;
}
