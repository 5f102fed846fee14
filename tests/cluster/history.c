/*
 * history ADDRESS SECONDS CLIENTS KEYS [PAUSE]: clients write, read, delete and exchange the same few keys by an address
 * of kv_open(), each PAUSE microseconds after its last answer, while servers are killed, stopped and given other tables;
 * until the time is over, or SIGTERM comes. Then the history of each key is checked by wgl, and every byte of every hit.
 * Prints what was done; status 1: a client saw what it must not see.
 */
#include "tests/cluster/wgl.h"

#include <errno.h>
#include <pthread.h>
#include <rdmad/kv.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEYS_MAX 256u
#define STEPS 20000000u /* for the history of a key */
#define ANSWER_US 2000000u
#define NUMBER sizeof(uint64_t)

static const size_t lengths[] = {1, 8, 200, 512, 4000, 40000}; /* of values, in numbers */
#define LENGTH_MAX 40000u

/* What one client did with one key. */
struct past {
	struct wgl_op *op;
	unsigned count, room;
};

struct client {
	pthread_t thread;
	unsigned index;
	void *kv;
	uint64_t seed;
	struct past past[KEYS_MAX];
	uint64_t value[LENGTH_MAX]; /* that is written */
};

static const char *address;
static unsigned keys;
static uint64_t end_ns, pause_us;
static atomic_bool ends;
static _Atomic uint64_t numbers = 1, hits, misses, refused, unanswered, torn;

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void rest(uint64_t us)
{
	nanosleep(&(struct timespec){.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000}, NULL);
}

static void term_came(int signal_number)
{
	(void)signal_number;
	atomic_store(&ends, true);
}

static uint64_t draw(struct client *c, uint64_t below)
{
	c->seed ^= c->seed << 13;
	c->seed ^= c->seed >> 7;
	c->seed ^= c->seed << 17;
	return c->seed % below;
}

static void past_add(struct past *past, const struct wgl_op *op)
{
	if (past->count == past->room) {
		past->room = past->room ? 2 * past->room : 64;
		past->op = realloc(past->op, past->room * sizeof(*past->op));
		if (!past->op)
			abort();
	}
	past->op[past->count++] = *op;
}

/* A value is one number, again and again. 0: it is not. */
static uint64_t value_number(const void *value, size_t length)
{
	uint64_t first, each;

	if (length < NUMBER || length % NUMBER)
		return 0;
	memcpy(&first, value, NUMBER);
	for (size_t at = NUMBER; at < length; at += NUMBER) {
		memcpy(&each, (const char *)value + at, NUMBER);
		if (each != first)
			return 0;
	}
	return first;
}

/* The length of the next value, which is in c->value. */
static size_t value_make(struct client *c, uint64_t number)
{
	size_t length = lengths[draw(c, sizeof(lengths) / sizeof(lengths[0]))];

	for (size_t i = 0; i < length; i++)
		c->value[i] = number;
	return length * NUMBER;
}

/* Whether a request that ended so took effect. */
static bool is_unknown(int status)
{
	return status == -ECONNABORTED || status == -ECANCELED || status == -EPROTO || status == -ETIMEDOUT;
}

/* Add the request by what became of it. Without an answer, a pause keeps a dead server from filling the history. */
static void request_ended(struct client *c, unsigned key, struct wgl_op *op, int status, bool effect)
{
	op->end = now();
	op->unknown = op->kind != WGL_HIT && is_unknown(status);
	if (status < 0 && status != -ENOENT && status != -ESTALE) {
		atomic_fetch_add(is_unknown(status) ? &unanswered : &refused, 1);
		rest(5000);
	}
	if (op->unknown || effect)
		past_add(&c->past[key], op);
}

/* The value's number, 0: there is none, or it is torn. */
static uint64_t hit_number(int status, const void *value, size_t length)
{
	uint64_t number;

	if (status != 0) {
		atomic_fetch_add(&misses, status == -ENOENT);
		return 0;
	}
	atomic_fetch_add(&hits, 1);
	number = value_number(value, length);
	if (!number)
		atomic_fetch_add(&torn, 1);
	return number;
}

static void client_request(struct client *c)
{
	unsigned index = (unsigned)draw(c, keys), kind = (unsigned)draw(c, 10);
	struct wgl_op op = {.begin = now()};
	char key[24];
	size_t key_len = (size_t)snprintf(key, sizeof(key), "history %u", index), length = 0;
	uint64_t version = 0;
	void *value = NULL;
	int rc;

	if (kind < 4) {
		op.kind = WGL_HIT;
		rc = kv_get_bytes(c->kv, key, key_len, &value, &length);
		op.value = hit_number(rc, value, length);
		request_ended(c, index, &op, rc, op.value);
	} else if (kind < 7) {
		op.value = atomic_fetch_add(&numbers, 1);
		length = value_make(c, op.value);
		rc = kv_set_bytes(c->kv, key, key_len, c->value, length);
		request_ended(c, index, &op, rc, rc == 0);
	} else if (kind < 8) {
		op.kind = WGL_DELETE;
		rc = kv_delete(c->kv, key, key_len);
		request_ended(c, index, &op, rc, rc == 1);
	} else { /* another value in place of the one that was read */
		op.kind = WGL_HIT;
		rc = kv_get_version(c->kv, key, key_len, &value, &length, &version);
		op.value = hit_number(rc, value, length);
		request_ended(c, index, &op, rc, op.value);
		if (op.value) {
			struct kv_put_options options = {.condition = KV_IF_VERSION, .version = version};

			op = (struct wgl_op){.kind = WGL_CAS, .expect = op.value, .begin = now()};
			op.value = atomic_fetch_add(&numbers, 1);
			length = value_make(c, op.value);
			rc = kv_put(c->kv, key, key_len, c->value, length, &options, NULL);
			request_ended(c, index, &op, rc, rc == 0);
		}
	}
	kv_release(value);
}

static void *client_run(void *arg)
{
	const struct rdmad_options options = {.timeout_us = ANSWER_US, .connect_timeout_us = ANSWER_US};
	struct client *c = arg;

	while (!atomic_load(&ends) && now() < end_ns) {
		if (!c->kv && kv_open_options(address, &options, NULL, &c->kv) == 0)
			kv_keep_connected(c->kv, UINT64_MAX);
		if (c->kv)
			client_request(c);
		else
			rest(20000);
		if (pause_us)
			rest(pause_us);
	}
	kv_close(c->kv);
	return NULL;
}

/* The history of a key as all clients have it. */
static enum wgl_verdict key_check(struct client *clients, unsigned count, unsigned key, uint64_t *requests)
{
	struct past all = {NULL, 0, 0};
	enum wgl_verdict verdict;

	for (unsigned c = 0; c < count; c++)
		for (unsigned i = 0; i < clients[c].past[key].count; i++)
			past_add(&all, &clients[c].past[key].op[i]);
	*requests += all.count;
	verdict = wgl_check(all.op, all.count, STEPS);
	if (verdict == WGL_NOT) {
		static const char *const kinds[] = {"set", "hit", "delete", "exchange"};

		for (unsigned i = 0; i < all.count; i++)
			fprintf(stderr, "key%u %s %llu expect %llu from %llu to %llu%s\n", key, kinds[all.op[i].kind],
				(unsigned long long)all.op[i].value, (unsigned long long)all.op[i].expect,
				(unsigned long long)all.op[i].begin, (unsigned long long)all.op[i].end,
				all.op[i].unknown ? ", no answer" : "");
	}
	free(all.op);
	return verdict;
}

int main(int argc, char **argv)
{
	unsigned verdicts[3] = {0}, count = argc == 5 || argc == 6 ? (unsigned)strtoul(argv[3], NULL, 10) : 0;
	uint64_t requests = 0;
	struct client *clients;

	keys = count ? (unsigned)strtoul(argv[4], NULL, 10) : 0;
	pause_us = argc == 6 ? strtoul(argv[5], NULL, 10) : 0;
	if (!count || !keys || keys > KEYS_MAX) {
		fprintf(stderr, "usage: history ADDRESS SECONDS CLIENTS KEYS [PAUSE]\n");
		return 2;
	}
	signal(SIGTERM, term_came);
	address = argv[1];
	end_ns = now() + strtoul(argv[2], NULL, 10) * 1000000000u;
	clients = calloc(count, sizeof(*clients));
	if (!clients)
		return 2;
	for (unsigned i = 0; i < count; i++) {
		clients[i].seed = 1 + i * 0x9e3779b97f4a7c15u;
		if (pthread_create(&clients[i].thread, NULL, client_run, &clients[i]) != 0)
			return 2;
	}
	for (unsigned i = 0; i < count; i++)
		pthread_join(clients[i].thread, NULL);
	for (unsigned key = 0; key < keys; key++)
		verdicts[key_check(clients, count, key, &requests)]++;
	for (unsigned i = 0; i < count; i++)
		for (unsigned key = 0; key < keys; key++)
			free(clients[i].past[key].op);
	free(clients);
	printf("%llu requests, %llu hits, %llu misses, %llu refused, %llu unanswered; %llu values torn; of %u keys %u "
	       "are linearizable, "
	       "%u are not, %u are undecided\n",
	       (unsigned long long)requests, (unsigned long long)hits, (unsigned long long)misses,
	       (unsigned long long)refused, (unsigned long long)unanswered, (unsigned long long)torn, keys,
	       verdicts[WGL_LINEARIZABLE], verdicts[WGL_NOT], verdicts[WGL_UNDECIDED]);
	return torn || verdicts[WGL_NOT] || !hits;
}
