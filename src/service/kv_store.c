/*
 * kv_store.c: what the process has of the key/value service: the store, and the memory of keys and values, touched and
 * registered before the first client comes, so that no request ever waits for a page or a registration.
 */
#include "service/kv.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE 4096ull
#define STEP (256 * MIB) /* touched between two lines of the log */
#define TOUCHERS_MAX 16u

#define AT(member) offsetof(struct kv_settings, member)

static const char *const evictions[] = {
	[STORE_EVICT_NONE] = "none", [STORE_EVICT_S3_FIFO] = "s3-fifo", [STORE_EVICT_S3_FIFO + 1] = NULL};

static const struct setting settings[] = {
	{"kv.memory", SETTING_SIZE, AT(memory), "64M", MIB, 1ull << 46,
	 .help = "Memory for keys and values, taken and registered at the start. RDMA needs as much\n"
		 "locked memory (ulimit -l), or refuses values from 4 KiB on."},
	{"kv.value_max", SETTING_SIZE, AT(value_max), "1G", 1, 1ull << 40, .help = "Longest value."},
	{"kv.transfer_memory", SETTING_SIZE, AT(transfer_memory), "0", 0, 1ull << 46,
	 .help = "Most memory that large values under way may hold, those of all clients: room for what\n"
		 "is coming, and what is being sent. A quarter of it for one client, or one value. What\n"
		 "is beyond waits. \"0\": half of the memory."},
	{"kv.eviction", SETTING_CHOICE, AT(eviction), "none", .choices = evictions, .former = {"lru", "s3-fifo"},
	 .help = "When the memory is full: \"none\" refuses new values, \"s3-fifo\" (once named \"lru\")\n"
		 "drops what is not read, as rdmad.conf(5) explains."},
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

/* Take the pages now, in steps, so that a large arena says how far it is. The kernel clears them, in the threads that ask: a
 * few do. Signals are for the main thread. */
static void arena_touch(char *arena, size_t size)
{
	struct touching t = {.arena = arena, .size = size};
	pthread_t thread[TOUCHERS_MAX];
	unsigned threads = 0, most = MIN(processors_half(), TOUCHERS_MAX);
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (threads + 1 < most && (threads + 1) * STEP < size &&
	       pthread_create(&thread[threads], NULL, touch_steps, &t) == 0)
		threads++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	touch_steps(&t);
	while (threads > 0)
		pthread_join(thread[--threads], NULL);
}

static int arena_map(struct kv_shared *shared, size_t size)
{
	char text[32];
	int rc;

	shared->arena_size = (size + PAGE - 1) & ~(PAGE - 1);
	shared->arena = mmap(NULL, shared->arena_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (shared->arena == MAP_FAILED) {
		rc = -errno;
		log_error("kv", "cannot map %s for kv.memory: %m; make it smaller",
			  units_human_size((double)shared->arena_size, text));
		return rc;
	}
	madvise(shared->arena, shared->arena_size, MADV_HUGEPAGE); /* fewer address translations, where there are any */
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
				 "%s: kv.memory of %s is not registered (%s): values from 4 KiB on are refused there",
				 fabric_name(fabric_domain_fabric(host->domain[i])),
				 units_human_size((double)shared->arena_size, text), strerror(-rc));
		}
	}
}

static int store_make(struct kv_shared *shared, const struct kv_settings *s)
{
	struct store_config config = {
		.arena = shared->arena,
		.arena_size = shared->arena_size,
		.value_max = s->value_max,
		.eviction = (enum store_eviction)s->eviction,
		.epoch = store_epoch(),
	};
	int rc = store_create(&config, &shared->store);
	char text[32];

	if (rc != 0)
		log_error("kv", "cannot make a store of %s", units_human_size((double)shared->arena_size, text));
	return rc;
}

int kv_shared_open(const struct service_host *host, const void *values, void **out)
{
	const struct kv_settings *s = values;
	struct kv_shared *shared = calloc(1, sizeof(*shared));
	int rc = -ENOMEM;

	if (!shared)
		return rc;
	shared->value_max = s->value_max;
	kv_hold_init(&shared->hold, s->transfer_memory ? s->transfer_memory : s->memory / 2);
	shared->region = calloc(host->domains + 1, sizeof(*shared->region));
	if (!shared->region)
		goto free_shared;
	rc = arena_map(shared, s->memory);
	if (rc != 0)
		goto free_regions;
	rc = store_make(shared, s);
	if (rc != 0)
		goto unmap;
	arena_register(shared, host);
	*out = shared;
	return 0;

unmap:
	munmap(shared->arena, shared->arena_size);
free_regions:
	free(shared->region);
free_shared:
	free(shared);
	return rc;
}

void kv_shared_close(void *closed)
{
	struct kv_shared *shared = closed;

	store_destroy(shared->store);
	while (shared->regions > 0)
		fabric_deregister(shared->region[--shared->regions].region);
	munmap(shared->arena, shared->arena_size);
	free(shared->region);
	free(shared);
}

uint64_t kv_shared_tick(void *shared, uint64_t now)
{
	return store_tick(((struct kv_shared *)shared)->store, now);
}

const struct fabric_region *kv_shared_region(const struct kv_shared *shared, const struct service_way *way)
{
	/* Where a client could write to whatever the server reads into, that is never the store. */
	if (way->limits.open_sinks)
		return NULL;
	for (unsigned i = 0; i < shared->regions; i++)
		if (shared->region[i].domain == conn_group_domain(way->group))
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
	STORE("hits", hits),
	STORE("misses", misses),
	STORE("sets", sets),
	STORE("deletes", deletes),
	STORE("evictions", evictions),
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
	report->end(report);
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
}
