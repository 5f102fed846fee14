/* hot.c: the keys of the daemon of this machine that are asked for most. */
#include "ctl/watch/watch.h"

#define SHOWN 20 /* keys for people */

static const char *span = "1";

static const struct ctl_option options[] = {
	{"for", 'f', CTL_CHECKED, &span, "SECONDS", "how long to look; default 1, 60 at most",
	 .check = watch_every_check},
	{NULL},
};

static void print_keys(json_t *answer)
{
	json_t *keys = json_object_get(answer, "keys");
	struct ctl_table table;
	json_t *key;
	size_t i;

	printf("requests %lld, of which %lld were looked at\n",
	       (long long)json_integer_value(json_object_get(answer, "requests")),
	       (long long)json_integer_value(json_object_get(answer, "sampled")));
	ctl_table_init(&table);
	ctl_table_column(&table, "share", true);
	ctl_table_column(&table, "at least", true);
	ctl_table_column(&table, "key", false);
	json_array_foreach(keys, i, key)
	{
		double share = json_number_value(json_object_get(key, "share_percent"));

		if (i == SHOWN)
			break;
		ctl_table_cell(&table, "%.1f %%", share);
		ctl_table_cell(&table, "%.1f %%", share - json_number_value(json_object_get(key, "over_percent")));
		ctl_table_cell(&table, "%s", json_string_value(json_object_get(key, "key")));
	}
	if (json_array_size(keys))
		ctl_table_print(stdout, &table, 0);
	ctl_table_destroy(&table);
	if (json_integer_value(json_object_get(answer, "evictions")))
		printf("evictions %lld, lately of keys that had been there for %.1f s\n",
		       (long long)json_integer_value(json_object_get(answer, "evictions")),
		       (double)json_integer_value(json_object_get(answer, "evicted_age_us")) / 1e6);
}

/* Add the store's counts of keys that had to make room. */
static int add_evicted(json_t *answer)
{
	static const char *const members[] = {"evictions", "evicted_age_us"};
	json_t *status;
	int rc = ctl_control_ask("status", &status);

	if (rc != CTL_OK)
		return rc;
	for (size_t i = 0; i < ARRAY_SIZE(members); i++)
		json_object_set(answer, members[i], json_object_get(json_object_get(status, "store"), members[i]));
	json_decref(status);
	return CTL_OK;
}

static int command_hot(const struct ctl_arguments *arguments)
{
	uint64_t ns = MIN(watch_every(span), (uint64_t)(60 * TIME_S));
	json_t *answer;
	int rc;

	(void)arguments;
	ctl_catch_interrupt();
	rc = ctl_control_ask("hot-begin", &answer);
	json_decref(answer);
	if (rc != CTL_OK)
		return rc;
	watch_wait(time_now() + ns); /* an interruption shows what was found until then */
	rc = ctl_control_ask("hot", &answer);
	if (rc == CTL_OK)
		rc = add_evicted(answer);
	if (rc != CTL_OK) {
		json_decref(answer);
		return rc;
	}
	if (ctl.json)
		return ctl_json_print(answer);
	print_keys(answer);
	json_decref(answer);
	return CTL_OK;
}

const struct ctl_command ctl_hot_commands[] = {
	{"kv hot", command_hot, "", "the keys that are asked for most", options, .local = true},
	{NULL},
};
