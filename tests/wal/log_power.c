/*
 * log_power URL FILE [COUNT [DEVICE]]: sets keys at an rdmad one after the other and keeps outside of its machine, in FILE, the number of the
 * last set that was answered, until it is killed or has set so many. With COUNT 0 it looks what the rdmad has found after a power cut instead:
 * it prints the last number that was answered, and that of the last set that is there. Exit status 1: what is there is not what there was
 * after one of the sets.
 *
 * With DEVICE, a device of device-mapper's target log-writes, each of these numbers is also put into the record of that device, as a mark,
 * behind all that was on its disk when the answer came.
 *
 * Key n % KEYS has the value n, and the sets are carried out in their order.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <rdmad/kv.h>

#define KEYS 64
#define OUTSTANDING 16
#define SHORT 100 /* bytes of a value */
#define LONG 2000

static int file, mapper;
static const char *device; /* NULL: no marks */
static uint64_t answered;

static void give_up(const char *what)
{
	fprintf(stderr, "log_power: %s: %s\n", what, rdmad_error());
	exit(1);
}

static uint64_t last_answered(void)
{
	uint64_t n = 0;

	return pread(file, &n, sizeof(n), 0) == sizeof(n) ? n : 0;
}

static void put_mark(void)
{
	union {
		struct dm_ioctl head;
		unsigned char bytes[sizeof(struct dm_ioctl) + 64];
	} ask = {.head = {.version = {4, 0, 0}, .data_size = sizeof(ask), .data_start = sizeof(ask.head)}};
	unsigned char *text = ask.bytes + sizeof(ask.head) + offsetof(struct dm_target_msg, message);

	snprintf(ask.head.name, sizeof(ask.head.name), "%s", device);
	snprintf((char *)text, (size_t)(ask.bytes + sizeof(ask) - text), "mark %llu", (unsigned long long)answered);
	if (ioctl(mapper, DM_TARGET_MSG, &ask) != 0) {
		perror("log_power: DM_TARGET_MSG");
		exit(1);
	}
}

static void keep_answered(void)
{
	if (pwrite(file, &answered, sizeof(answered), 0) != sizeof(answered))
		give_up("cannot write the file");
	if (device)
		put_mark();
}

static size_t key_of(uint64_t n, char out[16])
{
	return (size_t)snprintf(out, 16, "key %u", (unsigned)(n % KEYS));
}

/* In a record some are such that a group has several blocks of the disk. */
static size_t length_of(uint64_t n)
{
	return device && n % 4 == 0 ? LONG : SHORT;
}

static void done(void *arg, int status, const void *value, size_t len)
{
	(void)value;
	(void)len;
	if (status != 0)
		give_up(kv_status_text(status));
	if ((uint64_t)(uintptr_t)arg > answered)
		answered = (uint64_t)(uintptr_t)arg;
}

static void set(void *kv, uint64_t n)
{
	char key[16], value[LONG];
	size_t len = key_of(n, key), value_len = length_of(n);
	int rc;

	memset(value, 'a' + (int)(n % 26), value_len);
	memcpy(value, &n, sizeof(n));
	do {
		rc = kv_submit_set(kv, key, len, value, value_len, done, (void *)(uintptr_t)n);
		if (kv_progress(kv, kv_outstanding(kv) < OUTSTANDING ? 0 : 1000) < 0)
			give_up("the connection has ended");
	} while (rc == -EAGAIN);
	if (rc != 0)
		give_up("set");
}

static void write_some(void *kv, uint64_t from, uint64_t count)
{
	uint64_t told = answered = from;

	for (uint64_t n = from + 1; n <= from + count; n++) {
		set(kv, n);
		if (answered > told)
			keep_answered();
		told = answered;
	}
	if (kv_wait(kv) != 0)
		give_up("the last ones");
	keep_answered();
}

static uint64_t read_key(void *kv, uint64_t k)
{
	uint64_t n;
	char key[16];
	size_t len = key_of(k, key), got;
	void *value;
	int rc = kv_get_bytes(kv, key, len, &value, &got);

	if (rc == -ENOENT)
		return 0;
	if (rc != 0 || (got != SHORT && got != LONG))
		give_up("get");
	memcpy(&n, value, sizeof(n));
	for (size_t i = sizeof(n); i < got; i++)
		if (((char *)value)[i] != 'a' + (int)(n % 26))
			give_up("a value that nobody wrote");
	kv_release(value);
	return n;
}

/* The last set that is there, when all before it are. */
static uint64_t find_last(void *kv)
{
	uint64_t is[KEYS], last = 0;

	for (unsigned k = 0; k < KEYS; k++) {
		is[k] = read_key(kv, k);
		last = is[k] > last ? is[k] : last;
	}
	for (uint64_t n = last; n > 0 && n + KEYS > last; n--) {
		if (is[n % KEYS] == n)
			continue;
		fprintf(stderr, "log_power: %llu is there, and in the place of %llu %llu\n", (unsigned long long)last,
			(unsigned long long)n, (unsigned long long)is[n % KEYS]);
		exit(1);
	}
	return last;
}

int main(int argc, char **argv)
{
	void *kv = NULL;

	if (argc < 3)
		return 2;
	file = open(argv[2], O_RDWR | O_CREAT, 0644);
	if (file < 0 || kv_open(argv[1], &kv) != 0)
		give_up(argv[1]);
	device = argc > 4 ? argv[4] : NULL;
	mapper = device ? open("/dev/mapper/control", O_RDWR) : -1;
	if (device && mapper < 0) {
		perror("log_power: /dev/mapper/control");
		exit(1);
	}
	if (argc > 3 && strcmp(argv[3], "0") == 0)
		printf("%llu %llu\n", (unsigned long long)last_answered(), (unsigned long long)find_last(kv));
	else
		write_some(kv, find_last(kv), argc > 3 ? strtoull(argv[3], NULL, 10) : UINT64_MAX / 2);
	return kv_close(kv) == 0 ? 0 : 1;
}
