/*
 * log_crash RDMAD CONFIG URL CONTROL POLICY CYCLES [SEED]: writes to an rdmad, kills it at any moment, starts it again and looks what it has
 * found. What was submitted and answered is kept here, outside of the daemon. Prints a summary; exit status 1: a promise was broken.
 *
 * always: of each key the last change that was answered, or one that was submitted after it; also where evictions take keys away.
 * interval: what is found is what there was after one of the changes, in the order in which they were submitted.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdmad/kv.h>

#define KEYS 64
#define KEYS_MAX 600 /* where the memory is to be too small for them */
#define OPS 20000    /* of one life */
#define OUTSTANDING 256
#define SMALL 24
#define LARGE 20000
#define MILLISECONDS_MAX 40 /* that a daemon lives */

enum kind { SET, DELETE };

static struct op {
	uint64_t number; /* in its value; of all lives */
	unsigned key;
	enum kind kind;
	_Bool answered;
} ops[OPS];
static unsigned count;

/* What each key had at the beginning of this life: the number of a set; 0: none. */
static uint64_t base[KEYS_MAX];
static unsigned keys = KEYS;

static const char *daemon_path, *config, *url, *policy;
static pid_t daemon_pid;
static _Bool interval, evicts;
static uint64_t numbers, found_changes, answered_total;

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void give_up(const char *what)
{
	fprintf(stderr, "log_crash: %s\n", what);
	if (daemon_pid > 0)
		kill(daemon_pid, SIGKILL);
	exit(1);
}

static void start_daemon(void)
{
	daemon_pid = fork();
	if (daemon_pid < 0)
		give_up("cannot fork");
	if (daemon_pid > 0)
		return;
	execl(daemon_path, daemon_path, "-c", config, (char *)NULL);
	_exit(127);
}

static void *connect_daemon(void)
{
	struct rdmad_options options = {.timeout_us = 20000000};
	uint64_t until = now_ms() + 120000;
	void *kv;

	while (kv_open_options(url, &options, NULL, &kv) != 0) {
		if (waitpid(daemon_pid, NULL, WNOHANG) != 0)
			give_up("the daemon does not start: see its log");
		if (now_ms() > until)
			give_up("the daemon does not come");
		usleep(5000);
	}
	return kv;
}

static void kill_daemon(void)
{
	kill(daemon_pid, SIGKILL);
	waitpid(daemon_pid, NULL, 0);
}

/*
 * Changes
 */
static char value[LARGE];

static size_t length_of(const struct op *op)
{
	if (evicts)
		return 4000;
	/* Values that are moved by themselves overtake nobody's, but for other keys; what is looked for then is no prefix. */
	return !interval && op->number % 16 == 0 ? LARGE : SMALL + op->number % 500;
}

static void fill(const struct op *op)
{
	memset(value, 'a' + (int)(op->number % 26), LARGE);
	snprintf(value, SMALL, "%020llu", (unsigned long long)op->number);
}

static void done(void *arg, int status, const void *data, size_t len)
{
	struct op *op = arg;

	(void)data;
	(void)len;
	if (status == 0 || (status == -ENOENT && op->kind == DELETE))
		op->answered = 1;
	else if (status != -ECONNABORTED && status != -ENOTCONN)
		give_up(kv_status_text(status));
}

static size_t key_of(unsigned key, char out[16])
{
	return (size_t)snprintf(out, 16, "key %u", key);
}

/* False: the connection has ended, or the table is full. */
static _Bool submit(void *kv)
{
	struct op *op = &ops[count];
	static char large[64][LARGE]; /* must stay until the answer */
	char key[16];
	size_t len;
	int rc;

	if (count == OPS)
		return 0;
	*op = (struct op){.number = numbers + 1, .key = (unsigned)rand() % keys, .kind = rand() % 8 ? SET : DELETE};
	len = key_of(op->key, key);
	if (op->kind == DELETE) {
		rc = kv_submit_delete(kv, key, len, done, op);
	} else {
		char *from = length_of(op) == LARGE ? large[op->number / 16 % 64] : value;

		fill(op);
		if (from != value)
			memcpy(from, value, LARGE);
		rc = kv_submit_set(kv, key, len, from, length_of(op), done, op);
	}
	if (rc == 0) {
		numbers++;
		count++;
	}
	return rc == 0 || rc == -EAGAIN;
}

/* Also in the midst of a checkpoint. */
static void ask_for_checkpoint(const char *path)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	strncpy(sun.sun_path, path, sizeof(sun.sun_path) - 1);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&sun, sizeof(sun)) == 0 &&
	    send(fd, "checkpoint\n", 11, MSG_NOSIGNAL) < 0)
		perror("checkpoint");
	close(fd);
}

static void live(void *kv, const char *control)
{
	uint64_t until = now_ms() + (unsigned)rand() % MILLISECONDS_MAX;
	_Bool checkpoint = rand() % 4 == 0;

	count = 0;
	while (now_ms() < until) {
		for (unsigned burst = 1 + (unsigned)rand() % 32; burst && kv_outstanding(kv) < OUTSTANDING; burst--)
			if (!submit(kv))
				break;
		if (kv_progress(kv, 1000) < 0)
			break;
		if (checkpoint && rand() % 4 == 0) {
			ask_for_checkpoint(control);
			checkpoint = 0;
		}
	}
}

/*
 * What is found
 */

/* The number in a key's value; 0: there is none. */
static uint64_t read_key(void *kv, unsigned key)
{
	struct op op = {.key = key};
	char name[16];
	size_t len = key_of(key, name), got;
	void *data;
	int rc = kv_get_bytes(kv, name, len, &data, &got);

	if (rc == -ENOENT)
		return 0;
	if (rc != 0)
		give_up(rdmad_error());
	if (got < SMALL)
		give_up("a value that is too short");
	op.number = strtoull(data, NULL, 10);
	fill(&op);
	if (got != length_of(&op) || memcmp(data, value, got) != 0)
		give_up("a value that nobody wrote");
	kv_release(data);
	return op.number;
}

static void broken(const char *what, unsigned key, uint64_t is, unsigned cycle)
{
	fprintf(stderr, "log_crash: %s, cycle %u: %s: key %u has %llu; at the beginning %llu\n", policy, cycle, what,
		key, (unsigned long long)is, (unsigned long long)base[key]);
	for (unsigned i = 0; i < count; i++)
		if (ops[i].key == key)
			fprintf(stderr, "  %s %llu%s\n", ops[i].kind == SET ? "set" : "delete",
				(unsigned long long)ops[i].number, ops[i].answered ? ", answered" : "");
	give_up("broken");
}

/* The last one that was answered, or one behind it. */
static void check_key(unsigned key, uint64_t is, unsigned cycle)
{
	unsigned from = 0;
	_Bool allowed;

	for (unsigned i = 0; i < count; i++)
		if (ops[i].key == key && ops[i].answered)
			from = i + 1;
	allowed = (from == 0 && is == base[key]) || (evicts && is == 0);
	for (unsigned i = from ? from - 1 : 0; i < count && !allowed; i++)
		allowed = ops[i].key == key && (ops[i].kind == SET ? is == ops[i].number : is == 0);
	if (!allowed)
		broken("an answer that was not kept, or a value that was not submitted", key, is, cycle);
}

static unsigned differences(const uint64_t *a, const uint64_t *b)
{
	unsigned n = 0;

	for (unsigned k = 0; k < keys; k++)
		n += a[k] != b[k];
	return n;
}

/* As after the first n changes. */
static void check_prefix(const uint64_t *is, unsigned cycle)
{
	uint64_t state[KEYS_MAX];
	unsigned n = 0, best = keys;

	memcpy(state, base, sizeof(state));
	while (differences(state, is) && n < count) {
		state[ops[n].key] = ops[n].kind == SET ? ops[n].number : 0;
		n++;
		if (differences(state, is) < best)
			best = differences(state, is);
	}
	if (differences(state, is)) {
		fprintf(stderr, "log_crash: %u of %u keys differ at least\n", best, keys);
		broken("no prefix of what was submitted", 0, is[0], cycle);
	}
	found_changes += n;
}

static void look(void *kv, unsigned cycle)
{
	uint64_t is[KEYS_MAX];

	for (unsigned k = 0; k < keys; k++)
		is[k] = read_key(kv, k);
	if (interval)
		check_prefix(is, cycle);
	for (unsigned k = 0; k < keys && !interval; k++)
		check_key(k, is[k], cycle);
	for (unsigned i = 0; i < count; i++)
		answered_total += ops[i].answered;
	memcpy(base, is, keys * sizeof(base[0]));
}

int main(int argc, char **argv)
{
	unsigned cycles, seed, cycle;
	void *kv;

	if (argc < 7) {
		fprintf(stderr, "usage: log_crash RDMAD CONFIG URL CONTROL always|interval|evicts CYCLES [SEED]\n");
		return 2;
	}
	daemon_path = argv[1];
	config = argv[2];
	url = argv[3];
	policy = argv[5];
	interval = strcmp(policy, "interval") == 0;
	evicts = strcmp(policy, "evicts") == 0;
	keys = evicts ? KEYS_MAX : KEYS;
	cycles = (unsigned)atoi(argv[6]);
	seed = argc > 7 ? (unsigned)atoi(argv[7]) : (unsigned)time(NULL);
	srand(seed);
	for (cycle = 0; cycle < cycles; cycle++) {
		start_daemon();
		kv = connect_daemon();
		look(kv, cycle);
		live(kv, argv[4]);
		kill_daemon();
		kv_close(kv);
	}
	printf("%s: %u cycles, seed %u: %llu changes, %llu answered\n", policy, cycles, seed,
	       (unsigned long long)numbers, (unsigned long long)answered_total);
	return 0;
}
