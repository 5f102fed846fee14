/*
 * blocks.c: "bench blocks": the work of a cache of keys and values for a language model. A request has a batch of
 * blocks. Its first ones are a prefix that other requests have too, such as the instructions of a program, and are in
 * the cache; the others are its own. As the caches of vLLM, SGLang and LMCache do, a client looks up how much of the
 * batch is there, reads that, and stores the rest, which it would have computed meanwhile.
 *
 * A block begins and ends with its number, which is compared when it was read.
 */
#include "ctl/bench/blocks.h"
#include "rdmad/kv.h"

#include <stdlib.h>
#include <sys/mman.h>

#define SIZE_LIMIT (1ull << 30)
#define SIZE_LEAST 16
#define PREFIXES_DEFAULT 4u
#define OVERHEAD 128 /* of a key in the store, about */

enum { LOOKUP, LOAD, STORE, STEPS };
static const char *const step_names[STEPS] = {"lookup", "load", "store"};

/* Steps that a client has done in a phase. */
struct blocks_steps {
	struct bench_result result[STEPS];
	uint64_t busy[STEPS], blocks[STEPS]; /* ns; blocks that were asked for, read, stored */
	uint64_t quota, turn, random;
	char prefix[8]; /* of its own keys */
	struct block block[BLOCKS_BATCH_MAX], old[BLOCKS_BATCH_MAX];
	uint32_t old_count; /* blocks of its own that the last request stored */
};

static const char *sizes_text = "2M";
static uint64_t batch = 64, shared = 75, prefixes_wanted, clients = 1;
static bool keep, resp;

static int check_sizes(const char *text)
{
	return bench_check_sizes(text, SIZE_LEAST, SIZE_LIMIT);
}

static const struct ctl_option bench_options[] = {
	{"size", 's', CTL_CHECKED, &sizes_text, "SIZES",
	 "bytes of a block, 16 or more: a list of sizes and ranges that double; default 2M", .check = check_sizes},
	{"batch", 'b', CTL_NUMBER, &batch, "N", "blocks of a request; default 64", .min = 1, .max = BLOCKS_BATCH_MAX},
	{"shared", 'S', CTL_NUMBER, &shared, "PERCENT",
	 "of a request's blocks are a prefix that it shares with others; default 75", .max = 100},
	{"prefixes", 'P', CTL_NUMBER, &prefixes_wanted, "N",
	 "different prefixes, the first ones more often; default 4, fewer where they fill half of the store", .min = 1,
	 .max = 1000000},
	{"clients", 'c', CTL_NUMBER, &clients, "N", "connections, each with a thread; default 1", .min = 1, .max = 256},
	{"duration", 'D', CTL_TIME, &bench.duration, "TIME", "of each measurement; default 1s", .min = TIME_MS,
	 .max = 86400 * TIME_S},
	{"count", 'n', CTL_NUMBER, &bench.count, "N", "requests of each measurement, instead of a time", .min = 1,
	 .max = UINT32_MAX},
	{"warmup", 'w', CTL_TIME, &bench.warmup, "TIME", "run this long before measuring; default 200ms",
	 .max = 86400 * TIME_S},
	{"keep", 0, CTL_FLAG, &keep, NULL,
	 "leave a request's own blocks to the store, which is to evict; else the next request deletes them"},
	{"resp", 0, CTL_FLAG, &resp, NULL, "the server is not an rdmad, but speaks RESP, e.g. redis-server"},
	{"no-verify", 0, CTL_FLAG, &bench.no_verify, NULL, "do not compare what is read"},
	{NULL},
};

static struct {
	struct bench_case driven;
	const struct blocks_way *way;
	struct blocks_client *client; /* bench.clients of them */
	struct blocks_steps *steps;
	char run[5];       /* what all keys begin with */
	uint32_t prefixes; /* 0: none was stored yet */
	uint32_t shared;   /* blocks of a prefix */
	bool lost;         /* a connection ended */
} plan;

/*
 * Blocks and their names
 */
static void name_block(struct block *block, const char *of, uint64_t which, uint32_t at)
{
	block->key_len = (uint32_t)snprintf(block->key, sizeof(block->key), "%s:%s:%012llx:%04x", plan.run, of,
					    (unsigned long long)which, (unsigned)at);
	block->status = 0;
}

static uint64_t stamp_of(const struct block *block)
{
	return hash_bytes(block->key, block->key_len);
}

/* Write the block's number to its begin and its end. */
static void block_stamp(struct block *block, uint64_t number)
{
	memcpy(block->bytes, &number, sizeof(number));
	memcpy(block->bytes + bench.size - sizeof(number), &number, sizeof(number));
}

static bool is_stamped(const struct block *block)
{
	uint64_t number = stamp_of(block);

	return memcmp(block->bytes, &number, sizeof(number)) == 0 &&
	       memcmp(block->bytes + bench.size - sizeof(number), &number, sizeof(number)) == 0;
}

/*
 * A request. Its steps answer 0, or the negative errno that ends the phase.
 */
static void step_end(struct blocks_steps *s, int step, uint64_t began, uint64_t blocks)
{
	uint64_t took = time_now() - began;

	histogram_add(&s->result[step].latency, took);
	s->result[step].operations++;
	s->busy[step] += took;
	s->blocks[step] += blocks;
}

/* Read the first `count` blocks. One that is gone meanwhile has the status -ENOENT. */
static int blocks_load(struct blocks_client *client, uint32_t count)
{
	struct blocks_steps *s = client->steps;
	uint64_t loaded = 0, began;
	int rc;

	for (uint32_t i = 0; i < count && !bench.no_verify; i++)
		block_stamp(&s->block[i], 0);
	began = time_now();
	rc = plan.way->load(client, s->block, count);
	if (rc != 0)
		return rc;
	for (uint32_t i = 0; i < count; i++)
		loaded += s->block[i].status == 0;
	step_end(s, LOAD, began, loaded);
	for (uint32_t i = 0; i < count && !bench.no_verify; i++)
		client->thread.result.mismatches +=
			s->block[i].status == -EBADMSG || (s->block[i].status == 0 && !is_stamped(&s->block[i]));
	return 0;
}

/* Store the blocks that were not read. */
static int blocks_store(struct blocks_client *client, uint32_t count)
{
	struct blocks_steps *s = client->steps;
	struct block missing[BLOCKS_BATCH_MAX];
	uint32_t n = 0;
	uint64_t began;
	int rc;

	for (uint32_t i = 0; i < count; i++) {
		if (s->block[i].status == 0)
			continue;
		block_stamp(&s->block[i], stamp_of(&s->block[i]));
		missing[n++] = s->block[i];
	}
	if (n == 0)
		return 0;
	began = time_now();
	rc = plan.way->store(client, missing, n);
	if (rc == 0)
		step_end(s, STORE, began, n);
	return rc;
}

/* Delete what the last request has stored of its own, and remember what this one has. */
static int blocks_drop(struct blocks_client *client)
{
	struct blocks_steps *s = client->steps;
	int rc = s->old_count && !keep ? plan.way->drop(client, s->old, s->old_count) : 0;

	s->old_count = (uint32_t)batch - plan.shared;
	memcpy(s->old, s->block + plan.shared, s->old_count * sizeof(s->old[0]));
	return rc;
}

static int blocks_request(struct blocks_client *client)
{
	struct blocks_steps *s = client->steps;
	double u = (double)(random_step(&s->random) >> 11) / (double)(1ull << 53);
	uint64_t prefix = (uint64_t)(u * u * plan.prefixes), began; /* a quarter of them gets half of the requests */
	int64_t found;
	int rc;

	for (uint32_t i = 0; i < batch; i++) {
		bool own = i >= plan.shared;

		name_block(&s->block[i], own ? s->prefix : "prefix", own ? s->turn : prefix, i);
		s->block[i].status = -ENOENT;
	}
	s->turn++;
	began = time_now();
	found = plan.way->look_up(client, s->block, (uint32_t)batch);
	if (found < 0)
		return (int)found;
	step_end(s, LOOKUP, began, batch);
	for (uint32_t i = 0; i < batch; i++)
		s->block[i].status = -ENOENT;
	rc = found ? blocks_load(client, (uint32_t)found) : 0;
	if (rc == 0)
		rc = blocks_store(client, (uint32_t)batch);
	return rc == 0 ? blocks_drop(client) : rc;
}

static void blocks_run(struct bench_thread *thread)
{
	struct blocks_client *client = (struct blocks_client *)thread;
	struct blocks_steps *s = client->steps;
	uint64_t now = time_now(), until = time_after(now, thread->duration), began;
	int rc = 0;

	thread->result.begin = now;
	for (uint64_t i = 0; i < s->quota && rc == 0 && now < until && !ctl_interrupted(); i++) {
		began = now;
		client->why = NULL;
		rc = blocks_request(client);
		now = time_now();
		if (rc != 0)
			break;
		histogram_add(&thread->result.latency, now - began);
		thread->result.operations++;
	}
	if (rc != 0)
		bench_result_fail(&thread->result, rc, client->why);
	thread->result.end = now;
}

static void client_begin(uint64_t number, uint64_t quota)
{
	struct blocks_steps *s = &plan.steps[number];

	for (int step = 0; step < STEPS; step++) {
		bench_result_init(&s->result[step], step_names[step]);
		s->busy[step] = s->blocks[step] = 0;
	}
	s->quota = quota;
}

/* An operation counts the bytes that it moved. */
static void set_bytes(struct bench_result *result, uint64_t blocks)
{
	result->size = result->operations ? bench.size * blocks / result->operations : 0;
}

static void phase_end(struct bench_result *result)
{
	uint64_t moved = 0;

	plan.lost |= result->error && !ctl_kv_status_final(result->error);
	for (uint64_t i = 0; i < bench.clients; i++) {
		moved += plan.steps[i].blocks[LOAD] + plan.steps[i].blocks[STORE];
		result->blocks += plan.steps[i].blocks[LOOKUP];
		result->hits += plan.steps[i].blocks[LOAD];
	}
	set_bytes(result, moved);
}

/* Report requests, and then each step: as often as a client that does nothing else could do it. */
static void blocks_report(const struct bench_result *result, const char *transport)
{
	struct bench_result *all = malloc(sizeof(*all));

	bench_report(result, transport);
	for (int step = 0; step < STEPS && all; step++) {
		uint64_t busy = 0, blocks = 0;

		bench_result_init(all, step_names[step]);
		all->step = true;
		for (uint64_t i = 0; i < bench.clients; i++) {
			bench_result_merge(all, &plan.steps[i].result[step]);
			busy += plan.steps[i].busy[step];
			blocks += plan.steps[i].blocks[step];
		}
		all->begin = 0;
		all->end = busy / bench.clients;
		set_bytes(all, step == LOOKUP ? 0 : blocks);
		bench_report(all, transport);
	}
	free(all);
	if (!ctl.json && result->blocks)
		printf("hits: %.1f %% of %llu blocks; %u prefix%s of %u blocks, %llu of %llu blocks are a request's "
		       "own\n",
		       100.0 * (double)result->hits / (double)result->blocks, (unsigned long long)result->blocks,
		       plan.prefixes, plan.prefixes == 1 ? "" : "es", plan.shared,
		       (unsigned long long)batch - plan.shared, (unsigned long long)batch);
}

/*
 * Set-up
 */

/* Choose as many prefixes as fill half of what the store has left, at most, unless --prefixes says. */
static void choose_prefixes(void)
{
	uint64_t each = (bench.size + OVERHEAD) * plan.shared, own, room = 0, need;
	struct kv_info info;
	char text[2][32];

	plan.prefixes = (uint32_t)(prefixes_wanted ? prefixes_wanted : PREFIXES_DEFAULT);
	if (resp || kv_info(plan.client[0].kv, &info) != 0)
		return;
	room = info.bytes_total - MIN(info.bytes_used, info.bytes_total);
	if (!prefixes_wanted && each)
		plan.prefixes = (uint32_t)MAX(1, MIN(plan.prefixes, room / 2 / each));
	/* The store holds what a request stores beside what the last one stored. */
	own = keep ? 0 : 2 * bench.clients * (batch - plan.shared) * (bench.size + OVERHEAD);
	need = plan.prefixes * each + own;
	if (need > room)
		ctl_say("%s: the blocks take %s, and the store has %s left: it may refuse them, or drop keys of others",
			ctl_command_name(), units_human_size((double)need, text[0]),
			units_human_size((double)room, text[1]));
}

/* Store each prefix, by the first client. */
static int blocks_fill(void)
{
	struct blocks_client *client = &plan.client[0];
	struct blocks_steps *s = client->steps;
	int rc = 0;

	client->why = NULL;
	for (uint32_t p = 0; p < plan.prefixes && rc == 0 && !ctl_interrupted(); p++) {
		for (uint32_t i = 0; i < plan.shared; i++) {
			name_block(&s->block[i], "prefix", p, i);
			block_stamp(&s->block[i], stamp_of(&s->block[i]));
		}
		rc = plan.shared ? plan.way->store(client, s->block, plan.shared) : 0;
	}
	plan.lost |= rc != 0 && !ctl_kv_status_final(rc);
	name_block(&s->block[0], "prefix", 0, 0);
	bench.key_bytes = s->block[0].key_len;
	return rc == 0 ? CTL_OK : ctl_fail(rc, client->why, "%s: cannot store the prefixes", ctl_command_name());
}

/* The memory of a program's cache, in which nothing is as it was before: no page of it is shared. */
static int client_make(struct blocks_client *client)
{
	uint64_t state = time_now() | 1;

	client->memory_len = (size_t)(bench.size * batch);
	client->memory = mmap(NULL, client->memory_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (client->memory == MAP_FAILED) {
		client->memory = NULL;
		ctl_say("%s: no memory for %llu blocks of %llu bytes", ctl_command_name(), (unsigned long long)batch,
			(unsigned long long)bench.size);
		return CTL_FAILED;
	}
	script_random_text((char *)client->memory, MIN(client->memory_len, (size_t)MIB), &state);
	for (size_t at = MIB; at < client->memory_len; at += MIB)
		memcpy(client->memory + at, client->memory, MIN(client->memory_len - at, (size_t)MIB));
	for (uint32_t i = 0; i < batch; i++)
		client->steps->block[i].bytes = client->memory + i * bench.size;
	return plan.way->open(client);
}

static int set_up(void)
{
	uint64_t state = time_now() | 1;
	int rc = CTL_OK;

	script_random_text(plan.run, sizeof(plan.run) - 1, &state);
	plan.shared = (uint32_t)(batch * shared / 100);
	plan.way = resp ? &blocks_resp : &blocks_kv;
	plan.client = calloc(bench.clients, sizeof(*plan.client));
	plan.steps = calloc(bench.clients, sizeof(*plan.steps));
	if (!plan.client || !plan.steps) {
		ctl_say("%s: no memory for %llu clients", ctl_command_name(), (unsigned long long)bench.clients);
		return CTL_FAILED;
	}
	for (uint64_t i = 0; i < bench.clients; i++) {
		plan.client[i].fd = -1;
		plan.client[i].steps = &plan.steps[i];
		plan.steps[i].random = (time_now() ^ (i + 1) * 0x9e3779b97f4a7c15ull) | 1;
		snprintf(plan.steps[i].prefix, sizeof(plan.steps[i].prefix), "own%03x", (unsigned)i);
	}
	for (uint64_t i = 0; i < bench.clients && rc == CTL_OK; i++) {
		rc = client_make(&plan.client[i]);
		if (rc == CTL_OK && ctl_interrupted())
			rc = CTL_INTERRUPTED;
	}
	if (rc != CTL_OK)
		return rc;
	plan.driven = (struct bench_case){
		.op = "request",
		.transport = plan.client[0].transport,
		.threads = plan.client,
		.thread_size = sizeof(*plan.client),
		.client_begin = client_begin,
		.run = blocks_run,
		.end = phase_end,
	};
	choose_prefixes();
	return blocks_fill();
}

/* Delete the prefixes and what the last requests stored; with --keep all that the run has stored, where the server can
 * do that by the begin of the keys. */
static int delete_blocks(void)
{
	struct blocks_client *client = &plan.client[0];
	int rc = 0;

	client->why = NULL;
	if (!resp) {
		char prefix[sizeof(plan.run) + 1];
		int len = snprintf(prefix, sizeof(prefix), "%s:", plan.run);

		rc = kv_delete_prefix(client->kv, prefix, (size_t)len, NULL);
		client->why = rc ? rdmad_error() : NULL;
	}
	for (uint64_t i = 0; i < bench.clients && resp && rc == 0; i++)
		rc = plan.way->drop(&plan.client[i], plan.steps[i].old, plan.steps[i].old_count);
	for (uint32_t p = 0; p < plan.prefixes && resp && rc == 0; p++) {
		for (uint32_t i = 0; i < plan.shared; i++)
			name_block(&client->steps->block[i], "prefix", p, i);
		rc = plan.way->drop(client, client->steps->block, plan.shared);
	}
	return rc == 0 ? CTL_OK : ctl_fail(rc, client->why, "%s: cannot delete the blocks", ctl_command_name());
}

static int take_down(int rc)
{
	int ended = CTL_OK;

	if (plan.prefixes && plan.lost)
		ctl_say(resp ? "%s: blocks are left, whose keys begin with \"%s:\": redis-cli --scan --pattern '%s:*' "
			       "finds "
			       "them"
			     : "%s: blocks are left, whose keys begin with \"%s:\"; to delete them: rdmactl kv flush "
			       "%s:",
			ctl_command_name(), plan.run, plan.run);
	else if (plan.prefixes)
		ended = delete_blocks();
	for (uint64_t i = 0; plan.client && plan.steps && plan.way && i < bench.clients; i++) {
		plan.way->close(&plan.client[i]);
		if (plan.client[i].memory)
			munmap(plan.client[i].memory, plan.client[i].memory_len);
	}
	free(plan.client);
	free(plan.steps);
	memset(&plan, 0, sizeof(plan));
	return rc == CTL_OK ? ended : rc;
}

/* Blocks of another size take other memory and other prefixes, so each round connects anew. */
static int round_of_size(void)
{
	int rc = set_up();

	if (rc == CTL_OK && !ctl_interrupted())
		rc = bench_measure(&plan.driven, blocks_report);
	return take_down(rc);
}

static int command_bench(const struct ctl_arguments *arguments)
{
	uint64_t sizes[BENCH_SIZES_MAX];
	int n = ctl_sizes_parse(sizes_text, SIZE_LIMIT, sizes, ARRAY_SIZE(sizes));

	bench.depth = batch;
	bench.clients = bench.threads = clients;
	return bench_rounds(arguments, sizes, (size_t)n, round_of_size);
}

const struct ctl_command ctl_bench_blocks_commands[] = {
	{"bench blocks", command_bench, "[HOST]", "measure the work of a cache of a language model", bench_options, 0,
	 1},
	{NULL},
};
