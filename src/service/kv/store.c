/*
 * store.c: what the process has of the key/value service: the store, and the memory of keys and values. Where a device
 * is to move values, all of it is touched and registered before the first client comes, so that no request ever waits
 * for a page or a registration; where processors do, pages come with the values, and memory that is not used costs
 * nothing.
 */
#include "service/kv/kv.h"
#include "base/thread.h"

#include <libgen.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096ull
#define STEP (256 * MIB)     /* touched between two lines of the log */
#define MEMORY_MAX (4 * GIB) /* unless the configuration says how much */
#define VALUE_MAX GIB        /* likewise */
#define TOUCHERS_MAX 16u
#define TICKS 4        /* steps of some 1000 keys that expire, in a turn of the main thread, one a millisecond */
#define AHEAD_SHARE 32 /* of the memory: see struct kv_shared */

#define AT(member) offsetof(struct kv_settings, member)

static const char *const evictions[] = {
	[STORE_EVICT_NONE] = "none", [STORE_EVICT_S3_FIFO] = "s3-fifo", [STORE_EVICT_S3_FIFO + 1] = NULL};

static const char *const policies[] = {
	[KV_POLICY_NONE] = "none", [KV_POLICY_INTERVAL] = "interval", [KV_POLICY_ALWAYS] = "always", NULL};
static const char *const errors[] = {[KV_ERROR_STOP] = "stop", [KV_ERROR_READ_ONLY] = "read-only", NULL};
static const char *const recovers[] = {[KV_RECOVER_REFUSE] = "refuse", [KV_RECOVER_PREFIX] = "prefix", NULL};

static const char *const engines[] = {[KV_ENGINE_NONE] = "none", [KV_ENGINE_ETCD] = "etcd", NULL};
static const char *const fences[] = {[KV_FENCE_STRICT] = "strict", [KV_FENCE_NONE] = "none", NULL};

static bool check_endpoint(const char *text, char *why, size_t size)
{
	struct address address;
	bool good;

	log_hush_begin();
	good = strncmp(text, "http://", 7) == 0 && address_parse(text + 7, &address) == 0 && !*address.scheme &&
	       !address.path;
	log_hush_end();
	if (!good)
		snprintf(why, size, "\"%s\" is not http://HOST:PORT", text);
	return good;
}

static bool check_directory(const char *text, char *why, size_t size)
{
	if (text[0] == '/')
		return true;
	snprintf(why, size, "\"%s\" is not a path from /", text);
	return false;
}

static uint64_t memory_of(const void *values)
{
	const struct kv_settings *s = values;
	uint64_t share = MIN(ram_usable() / 8, MEMORY_MAX);

	return s->memory ? s->memory : MAX(share / MIB * MIB, MIB);
}

static uint64_t value_max_of(const void *values)
{
	const struct kv_settings *s = values;

	return MIN(s->value_max, memory_of(s));
}

static uint64_t transfer_memory_of(const void *values)
{
	const struct kv_settings *s = values;

	return s->transfer_memory ? s->transfer_memory : memory_of(s) / 2;
}

static uint64_t lease_memory_of(const void *values)
{
	const struct kv_settings *s = values;

	return s->lease_memory ? s->lease_memory : memory_of(s) / 4;
}

static const struct setting settings[] = {
	{"kv.memory", SETTING_SIZE, AT(memory), "0", MIB, 1ull << 46, .effective = memory_of, .zero = true,
	 .help = "Memory for keys and values. \"0\": an eighth of what the machine has, or the control group\n"
		 "allows, and 4 GiB at most. With RDMA it is taken and registered at the start, and needs\n"
		 "as much locked memory for each device (ulimit -l), or values from 4 KiB on are refused by\n"
		 "RDMA; else it is taken as keys and values come."},
	{"kv.value_max", SETTING_SIZE, AT(value_max), "1G" /* VALUE_MAX */, 1, 1ull << 40, .effective = value_max_of,
	 .help = "Longest value."},
	{"kv.push_max", SETTING_SIZE, AT(push_max), "64K", 0, WIRE_PUSH_MAX,
	 .help = "Over TCP and UNIX sockets values up to this long go with their request or answer;\n"
		 "longer ones take a round trip more."},
	{"kv.transfer_memory", SETTING_SIZE, AT(transfer_memory), "0", 0, 1ull << 46, .effective = transfer_memory_of,
	 .help = "Most memory that large values under way may hold, those of all clients: room for what\n"
		 "is coming, and what is being sent. A quarter of it for one client, or one value. What\n"
		 "is beyond waits. \"0\": half of the memory."},
	{"kv.lease_memory", SETTING_SIZE, AT(lease_memory), "0", 0, 1ull << 46, .effective = lease_memory_of,
	 .help = "Most memory of values that clients have leased, which are not evicted meanwhile. A\n"
		 "quarter of it for one client, or one value. What is beyond is told, and not leased.\n"
		 "\"0\": a quarter of the memory."},
	{"kv.lease_time", SETTING_TIME, AT(lease_time), "60s", TIME_MS, 3600 * TIME_S,
	 .help = "Longest time of a lease; a client that asks for more gets this."},
	{"kv.eviction", SETTING_CHOICE, AT(eviction), "none", .choices = evictions, .former = {"lru", "s3-fifo"},
	 .help = "When the memory is full: \"none\" refuses new values, \"s3-fifo\" (once named \"lru\")\n"
		 "drops what is not read, as rdmad.conf(5) explains."},

	{"cluster.table", SETTING_STRING, AT(cluster_table), NULL, .check = setting_check_path,
	 .sample = "/etc/rdmad.cluster",
	 .help = "A table that says which server of a cluster has which keys: others' are refused, by every\n"
		 "protocol. rdmactl reload reads it again. Unset: all keys are this server's. See\n"
		 "rdmad-cluster(7)."},
	{"cluster.node", SETTING_STRING, AT(cluster_node), NULL, .sample = "a",
	 .help = "This server's name in that table."},
	{"cluster.state", SETTING_STRING, AT(cluster_state), NULL, .check = setting_check_path,
	 .sample = "/var/lib/rdmad/table",
	 .help = "A file of rdmad's own, where the table that was served last is kept: no start serves an\n"
		 "older one. Unset: only while the daemon runs."},

	{"cluster.engine", SETTING_CHOICE, AT(cluster_engine), "none", .choices = engines,
	 .help = "What the servers of a cluster agree by on which has which keys, in place of a file: \"etcd\", whose\n"
		 "table rdmactl cluster apply changes while all run. See rdmad-cluster(7)."},
	{"cluster.endpoints", SETTING_LIST, AT(cluster_endpoints), NULL, .check = check_endpoint,
	 .sample = "http://10.0.0.9:2379", .help = "Where it is: one is asked after the other. TLS is not spoken."},
	{"cluster.name", SETTING_STRING, AT(cluster_name), NULL, .sample = "kv",
	 .help = "The cluster's name there. cluster.node is this server's, as above."},
	{"cluster.period", SETTING_TIME, AT(cluster_period), "10s", TIME_S, 600 * TIME_S,
	 .help = "A server that was silent for so long is out. Each says four times in it that it is there, and\n"
		 "serves for half of it without an answer. The same for all servers of a cluster."},
	{"cluster.spread_after", SETTING_TIME, AT(cluster_spread_after), "60s", 0, 30 * 24 * 3600 * TIME_S,
	 .help = "The slots of a server that is out for so long go to the others, empty. \"0\": they wait for it."},
	{"cluster.fence", SETTING_CHOICE, AT(cluster_fence), "strict", .choices = fences,
	 .help = "\"strict\": a server that has no answer for half a period serves nothing, so that no key ever has\n"
		 "two servers; \"none\": it goes on, for keys whose values never change."},
	{"cluster.user", SETTING_STRING, AT(cluster_user), NULL, .sample = "rdmad",
	 .help = "A user of etcd; unset: none is named."},
	{"cluster.password_file", SETTING_STRING, AT(cluster_password_file), NULL, .check = setting_check_path,
	 .sample = "/etc/rdmad.etcd", .help = "Its password: the first line of a file that only rdmad can read."},
	{"cluster.key_file", SETTING_STRING, AT(cluster_key_file), NULL, .check = setting_check_path, .reload = true,
	 .sample = "/etc/rdmad.node.key",
	 .help = "A key by which the other servers admit this one when slots move there with their values; it\n"
		 "has the right move. Unset: the key of any client of this machine, if there is one."},

	{"log.directory", SETTING_STRING, AT(directory), NULL, .check = check_directory, .sample = "/var/lib/rdmad",
	 .help = "Where keys and values are kept on disk: a directory of rdmad's own, made if need be. Unset:\n"
		 "nowhere. Messages go to log.target."},
	{"log.policy", SETTING_CHOICE, AT(policy), "none", .choices = policies,
	 .help = "\"none\": nothing is written; \"interval\": changes are on disk within log.sync_every, and no\n"
		 "answer waits; \"always\": an answer comes when all that it tells of is on disk. See POLICIES\n"
		 "in rdmad.conf(5)."},
	{"log.sync_every", SETTING_TIME, AT(sync_every), "1s", TIME_MS, 3600 * TIME_S,
	 .help = "With \"interval\": how long changes may be on their way to the disk."},
	{"log.segment", SETTING_SIZE, AT(segment), "256M", WAL_SEGMENT_MIN, 1ull << 40,
	 .help = "Length of a file of the log. They are made once, and used again."},
	{"log.checkpoint_budget", SETTING_SIZE, AT(checkpoint_budget), "256M", 0, 1ull << 46,
	 .help = "Bytes a second that a checkpoint may write, which writes half of the time at most, so\n"
		 "that it leaves some of the disk to the log. \"0\": as fast as it can."},
	{"log.on_error", SETTING_CHOICE, AT(on_error), "stop", .choices = errors,
	 .help = "When the disk fails: \"stop\": the daemon ends, exit status 74; \"read-only\": it refuses\n"
		 "writes, and goes on reading what is on disk."},
	{"log.recover", SETTING_CHOICE, AT(recover), "refuse", .choices = recovers,
	 .help = "When the log is damaged: \"refuse\": do not start; \"prefix\": go on with what comes before\n"
		 "the damage, and lose what comes behind it."},
	{"log.save_at_exit", SETTING_BOOL, AT(save_at_exit), "false",
	 .help = "With \"none\": save all at the end, and find it at the next start. Nothing is there after a\n"
		 "crash."},
};

const struct setting_table kv_settings = {settings, ARRAY_SIZE(settings), sizeof(struct kv_settings)};

struct touching {
	char *arena;
	size_t size;
	_Atomic size_t next, done;
};

static void *touch_steps(void *arg)
{
	struct touching *t = arg;
	char done[32], all[32];
	size_t at;

	while ((at = atomic_fetch_add(&t->next, STEP)) < t->size) {
		size_t n = MIN(STEP, t->size - at);

		for (size_t page = at; page < at + n; page += PAGE)
			((volatile char *)t->arena)[page] = 0;
		n += atomic_fetch_add(&t->done, n);
		if (t->size > STEP)
			log_info("kv", "kv.memory: %s of %s ready", units_human_size((double)n, done),
				 units_human_size((double)t->size, all));
	}
	return NULL;
}

/* Take the pages now, in steps, so that a large arena says how far it is. The kernel clears them, in the threads that
 * ask: a few do. */
static void arena_touch(char *arena, size_t size)
{
	struct touching t = {.arena = arena, .size = size};
	pthread_t thread[TOUCHERS_MAX];
	unsigned threads = 0, most = MIN(processors_half(), TOUCHERS_MAX);

	while (threads + 1 < most && (threads + 1) * STEP < size &&
	       thread_start(&thread[threads], "touch", touch_steps, &t) == 0)
		threads++;
	touch_steps(&t);
	while (threads > 0)
		pthread_join(thread[--threads], NULL);
}

/* Refuses settings that make no sense together. */
static int log_check(const struct kv_settings *s)
{
	if (s->directory) {
		if (!kv_log_wanted(s))
			log_warn("kv", "log.directory is set, and log.policy is \"none\": nothing is kept there, nor "
				       "read from there");
		return 0;
	}
	if (s->policy == KV_POLICY_NONE && !s->save_at_exit)
		return 0;
	return log_fail(-EINVAL, "kv", "log.policy or log.save_at_exit asks for a log: set log.directory");
}

/* Made if need be. */
static int directory_check(const struct kv_settings *s)
{
	struct stat st;
	char *parent;
	int rc;

	if (!kv_log_wanted(s))
		return 0;
	if (stat(s->directory, &st) == 0 && !S_ISDIR(st.st_mode))
		rc = -ENOTDIR;
	else
		rc = access(s->directory, R_OK | W_OK | X_OK) == 0 ? 0 : -errno;
	if (rc == -ENOENT) {
		parent = strdup(s->directory);
		rc = parent && access(dirname(parent), W_OK | X_OK) == 0 ? 0 : -errno;
		free(parent);
	}
	return rc == 0 ? 0
		       : log_fail(rc, "kv", "log.directory: cannot write to %s, or make it: %s (RD-5005)", s->directory,
				  strerror(-rc));
}

static int memory_check(const struct kv_settings *s)
{
	uint64_t memory = memory_of(s), has = ram_usable();
	char wanted[32], there[32];
	void *at;

	units_human_size((double)memory, wanted);
	if (s->value_max > memory && s->value_max != VALUE_MAX)
		log_warn("kv", "kv.value_max is %s, and kv.memory %s: no value is longer than that",
			 units_human_size((double)s->value_max, there), wanted);
	if (memory > has)
		return log_fail(-ENOMEM, "kv", "kv.memory is %s, and there is %s in all: make it smaller (RD-5006)",
				wanted, units_human_size((double)has, there));
	/* Not to be written to, so that it takes nothing from a daemon that runs. */
	at = mmap(NULL, memory, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return log_fail(-ENOMEM, "kv",
				"cannot map %s for kv.memory: %m; make it smaller, or raise ulimit -v (RD-5006)",
				wanted);
	munmap(at, memory);
	return 0;
}

uint64_t kv_shared_registered(const void *values)
{
	return memory_of(values);
}

int kv_shared_check(const void *values, uint64_t services)
{
	int rc = log_check(values), status = memory_check(values);
	struct kv_cluster *cluster;

	(void)services;
	if (rc == 0 && (rc = kv_cluster_open(values, &cluster)) == 0)
		kv_cluster_close(cluster);
	if (rc == 0)
		rc = directory_check(values);
	return rc ? rc : status;
}

static bool have_device(const struct service_host *host)
{
	struct fabric_limits limits;

	for (unsigned i = 0; i < host->domains; i++)
		for (unsigned t = 0; t < FABRIC_TRANSPORTS; t++) {
			const struct fabric *fabric = fabric_domain_fabric(host->domain[i]);

			fabric_limits(fabric, &limits);
			if (fabric_transports[t].device && limits.devices && fabric_has(fabric, &fabric_transports[t]))
				return true;
		}
	return false;
}

static int arena_map(struct kv_shared *shared, size_t size, bool touch)
{
	char text[32];

	shared->arena_size = (size + PAGE - 1) & ~(PAGE - 1);
	shared->arena = mmap(NULL, shared->arena_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (shared->arena == MAP_FAILED)
		return log_fail(-errno, "kv", "cannot map %s for kv.memory: %m; make it smaller",
				units_human_size((double)shared->arena_size, text));
	madvise(shared->arena, shared->arena_size, MADV_HUGEPAGE); /* fewer address translations, where there are any */
	if (touch)
		arena_touch(shared->arena, shared->arena_size);
	return 0;
}

/* For each domain that can: large values move by it. Without it a transport offers small values only. The provider
 * logged the cause and what to do. */
static void arena_register(struct kv_shared *shared, const struct service_host *host)
{
	char text[32];

	for (unsigned i = 0; i < host->domains; i++) {
		struct kv_region *r = &shared->region[shared->regions];
		int rc = fabric_register(host->domain[i], shared->arena, shared->arena_size, FABRIC_LOCAL_WRITE,
					 &r->region);

		if (rc == 0) {
			r->domain = host->domain[i];
			shared->regions++;
		} else {
			log_warn("kv",
				 "%s: kv.memory of %s is not registered (%s): values from 4 KiB on are refused there, "
				 "and "
				 "clients that name no transport come by another",
				 fabric_name(fabric_domain_fabric(host->domain[i])),
				 units_human_size((double)shared->arena_size, text), strerror(-rc));
		}
	}
}

static int store_make(struct kv_shared *shared, const struct kv_settings *s, bool gives_back)
{
	struct store_config config = {
		.arena = shared->arena,
		.arena_size = shared->arena_size,
		.value_max = s->value_max,
		.eviction = (enum store_eviction)s->eviction,
		.gives_back = gives_back,
		.epoch = store_epoch(),
		.changes = kv_log_wanted(s) ? KV_RING : 0,
	};
	int rc = store_create(&config, &shared->store);
	char text[32];

	return rc == 0 ? 0
		       : log_fail(rc, "kv", "cannot make a store of %s",
				  units_human_size((double)shared->arena_size, text));
}

int kv_shared_open(const struct service_host *host, const void *values, void **out)
{
	const struct kv_settings *s = values;
	struct kv_shared *shared = calloc(1, sizeof(*shared));
	uint64_t memory = memory_of(s);
	int rc = -ENOMEM;
	bool device;

	if (!shared)
		return rc;
	rc = log_check(s);
	if (rc == 0)
		rc = kv_cluster_open(s, &shared->cluster);
	if (rc != 0)
		goto free_shared;
	rc = -ENOMEM;
	shared->owners = kv_owners_create();
	if (!shared->owners)
		goto free_shared;
	shared->value_max = value_max_of(s);
	shared->ahead = s->eviction == STORE_EVICT_NONE ? UINT64_MAX : MAX(memory / AHEAD_SHARE, 2 * STORE_PART_MIN);
	shared->push_max = MIN(s->push_max, shared->ahead); /* what is pushed cannot come in pieces */
	kv_hold_init(&shared->hold, transfer_memory_of(s));
	kv_lease_init(&shared->leases, lease_memory_of(s), s->lease_time);
	shared->region = calloc(host->domains + 1, sizeof(*shared->region));
	if (!shared->region)
		goto free_owners;
	device = have_device(host);
	rc = arena_map(shared, memory, device);
	if (rc != 0)
		goto free_regions;
	rc = store_make(shared, s, !device);
	if (rc != 0)
		goto unmap;
	if (kv_log_wanted(s))
		rc = kv_log_open(s, shared->store, host, &shared->log);
	if (rc == 0 && shared->cluster)
		rc = kv_cluster_begin(shared->cluster, shared->store, host);
	if (rc != 0)
		goto destroy;
	arena_register(shared, host);
	*out = shared;
	return 0;

destroy:
	store_destroy(shared->store);
unmap:
	munmap(shared->arena, shared->arena_size);
free_regions:
	free(shared->region);
free_owners:
	kv_owners_destroy(shared->owners);
free_shared:
	kv_cluster_close(shared->cluster);
	free(shared);
	return rc;
}

void kv_shared_close(void *closed)
{
	struct kv_shared *shared = closed;

	kv_log_close(shared->log);
	store_destroy(shared->store);
	while (shared->regions > 0)
		fabric_deregister(shared->region[--shared->regions].region);
	munmap(shared->arena, shared->arena_size);
	free(shared->region);
	kv_owners_destroy(shared->owners);
	kv_cluster_close(shared->cluster);
	free(shared);
}

/* Where a device came after the start it knows the arena's pages, and none goes back any more. */
static uint64_t give_back(struct kv_shared *shared, uint64_t now)
{
	unsigned held = 0;
	uint64_t next = TIME_NEVER;

	while (held < shared->regions && fabric_hold_devices(fabric_domain_fabric(shared->region[held].domain)))
		held++;
	if (held == shared->regions)
		next = store_give_back(shared->store, now);
	while (held > 0)
		fabric_release_devices(fabric_domain_fabric(shared->region[--held].domain));
	return next;
}

uint64_t kv_shared_tick(void *arg, uint64_t now)
{
	struct kv_shared *shared = arg;
	struct store *store = shared->store;
	uint64_t next = now;

	for (unsigned n = 0; n < TICKS && next <= now; n++)
		next = store_tick(store, now);
	next = MIN(next, give_back(shared, now));
	if (shared->cluster)
		next = MIN(next, kv_cluster_tick(shared->cluster, now));
	return store_flush_rest(store, now) ? now : next;
}

const struct fabric_region *kv_shared_region(const struct kv_shared *shared, const struct service_way *way)
{
	/* Where a client could write to whatever the server reads into, that is never the store. */
	if (way->limits.open_sinks)
		return NULL;
	return kv_shared_region_in(shared, conn_group_domain(way->group));
}

const struct fabric_region *kv_shared_region_in(const struct kv_shared *shared, const struct fabric_domain *domain)
{
	for (unsigned i = 0; i < shared->regions; i++)
		if (shared->region[i].domain == domain)
			return shared->region[i].region;
	return NULL;
}

#define STORE(name, member)                                                                                            \
	{                                                                                                              \
		name, offsetof(struct store_stats, member)                                                             \
	}
static const struct {
	const char *name;
	size_t offset;
} numbers[] = {
	STORE("items", items),
	STORE("pins", pins),
	STORE("used_bytes", bytes_used),
	STORE("asked_bytes", bytes_asked),
	STORE("held_bytes", bytes_held),
	STORE("free_run_bytes", bytes_free_run),
	STORE("reserved_bytes", bytes_reserved),
	STORE("total_bytes", bytes_total),
	STORE("returned_bytes", bytes_returned),
	STORE("hits", hits),
	STORE("misses", misses),
	STORE("sets", sets),
	STORE("deletes", deletes),
	STORE("evictions", evictions),
	STORE("evicted_age_us", evicted_age),
	STORE("expired", expired),
	STORE("moves", moves),
	STORE("out_of_memory", out_of_memory),
};

void kv_shared_status(const void *of, struct service_report *report)
{
	const struct kv_shared *shared = of;
	struct store_stats stats;

	store_get_stats(shared->store, &stats);
	report->begin(report, "store");
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		report->number(report, numbers[i].name, *(uint64_t *)((char *)&stats + numbers[i].offset));
	report->number(report, "transfer_bytes", kv_hold_bytes(&shared->hold));
	report->number(report, "leased_bytes", kv_lease_bytes(&shared->leases));
	report->number(report, "watches", atomic_load(&shared->watches));
	report->end(report);
	kv_owners_report(shared, report);
	if (shared->log)
		kv_log_report(shared->log, report);
	if (shared->cluster)
		kv_cluster_report(shared->cluster, report);
}

int kv_shared_command(void *shared, const char *word)
{
	return strcmp(word, "checkpoint") == 0 ? kv_log_checkpoint(((struct kv_shared *)shared)->log) : -ENOENT;
}

void kv_shared_memory(const void *of, struct service_report *report)
{
	const struct kv_shared *shared = of;

	report->number(report, "arena_bytes", shared ? shared->arena_size : 0);
	if (shared)
		kv_shared_status(shared, report);
}

void kv_shared_resources(const void *of, struct service_report *report)
{
	const struct kv_shared *shared = of;
	struct store_stats stats = {0};

	if (shared)
		store_get_stats(shared->store, &stats);
	report->number(report, "store_items", stats.items);
	report->number(report, "store_pins", stats.pins);
	report->number(report, "store_used_bytes", stats.bytes_used);
	report->number(report, "transfer_bytes", shared ? kv_hold_bytes(&shared->hold) : 0);
	report->number(report, "leased_bytes", shared ? kv_lease_bytes(&shared->leases) : 0);
	report->number(report, "watches", shared ? atomic_load(&shared->watches) : 0);
}
