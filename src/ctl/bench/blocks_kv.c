/* blocks_kv.c: the steps of "bench blocks" at an rdmad, by librdmad's calls for many keys. */
#include "ctl/bench/blocks.h"
#include "rdmad/kv.h"

static int rdmad_open(struct blocks_client *client)
{
	struct rdmad_options options;
	int rc;

	ctl_library_options(&options);
	rc = kv_open_options(bench.server, &options, NULL, &client->kv);
	if (rc != 0)
		return ctl_fail_open(rc, bench.server);
	client->transport = kv_transport(client->kv);
	if (bench.size > kv_value_max(client->kv)) {
		ctl_say("%s: %s takes values up to %llu bytes", ctl_command_name(), bench.server,
			(unsigned long long)kv_value_max(client->kv));
		return CTL_FAILED;
	}
	rc = kv_buffer_register(client->kv, client->memory, client->memory_len);
	return rc == 0 ? CTL_OK
		       : ctl_fail(rc, NULL, "%s: cannot register %zu bytes", ctl_command_name(), client->memory_len);
}

/* Keep the sentence of an error. */
static int error_keep(struct blocks_client *client, int rc)
{
	client->why = rc < 0 ? rdmad_error() : NULL;
	return rc;
}

static int64_t rdmad_look_up(struct blocks_client *client, struct block *blocks, uint32_t count)
{
	struct kv_item items[BLOCKS_BATCH_MAX];
	int64_t found;

	for (uint32_t i = 0; i < count; i++)
		items[i] = (struct kv_item){.key = blocks[i].key, .key_len = blocks[i].key_len};
	found = kv_mexists(client->kv, items, count, true);
	error_keep(client, (int)MIN(found, 0));
	return found;
}

static int rdmad_load(struct blocks_client *client, struct block *blocks, uint32_t count)
{
	struct kv_place places[BLOCKS_BATCH_MAX];
	int rc;

	for (uint32_t i = 0; i < count; i++)
		places[i] = (struct kv_place){.key = blocks[i].key,
					      .key_len = blocks[i].key_len,
					      .buffer = blocks[i].bytes,
					      .size = bench.size};
	rc = kv_mget_into(client->kv, places, count);
	for (uint32_t i = 0; i < count; i++)
		blocks[i].status =
			places[i].status == 0 && places[i].value_len != bench.size ? -EBADMSG : places[i].status;
	return error_keep(client, rc);
}

static int rdmad_store(struct blocks_client *client, struct block *blocks, uint32_t count)
{
	struct kv_item items[BLOCKS_BATCH_MAX];
	int rc;

	for (uint32_t i = 0; i < count; i++)
		items[i] = (struct kv_item){.key = blocks[i].key,
					    .key_len = blocks[i].key_len,
					    .value = blocks[i].bytes,
					    .value_len = bench.size};
	rc = kv_mset(client->kv, items, count, NULL);
	for (uint32_t i = 0; i < count; i++)
		blocks[i].status = items[i].status;
	return error_keep(client, rc);
}

static int rdmad_drop(struct blocks_client *client, struct block *blocks, uint32_t count)
{
	struct kv_request requests[BLOCKS_BATCH_MAX];
	struct kv_completion done[64];
	uint32_t sent = 0, ended = 0;

	for (uint32_t i = 0; i < count; i++)
		requests[i] = (struct kv_request){
			.tag = i, .op = KV_OP_DELETE, .key = blocks[i].key, .key_len = blocks[i].key_len};
	while (ended < count) {
		int64_t n = sent < count ? kv_submit(client->kv, requests + sent, count - sent) : 0;

		if (n < 0 && n != -EAGAIN)
			return error_keep(client, (int)n);
		sent += (uint32_t)MAX(n, 0);
		n = kv_done(client->kv, done, ARRAY_SIZE(done), ctl_answer_limit() / TIME_US);
		if (n <= 0)
			return error_keep(client, n ? (int)n : -ETIMEDOUT);
		for (int64_t i = 0; i < n; i++)
			blocks[done[i].tag].status = done[i].status;
		ended += (uint32_t)n;
	}
	return 0;
}

static void rdmad_close(struct blocks_client *client)
{
	kv_close(client->kv);
	client->kv = NULL;
}

const struct blocks_way blocks_kv = {
	.open = rdmad_open,
	.look_up = rdmad_look_up,
	.load = rdmad_load,
	.store = rdmad_store,
	.drop = rdmad_drop,
	.close = rdmad_close,
};
