/* entry.c: a node's value in the engine, as a line of words. */
#include "cluster/cluster.h"

#include <inttypes.h>

#define PERIOD_MAX 3600000u /* ms */

static const char begin[] = "rdmad-member 1";

void cluster_entry_print(const struct cluster_entry *entry, char text[static CLUSTER_VALUE_MAX])
{
	snprintf(text, CLUSTER_VALUE_MAX,
		 "%s boot %s place %s count %" PRIu64 " epoch %" PRIu64 " period %" PRIu64 "%s%s", begin,
		 *entry->boot ? entry->boot : "-", *entry->place ? entry->place : "-", entry->count, entry->epoch,
		 (uint64_t)((entry->period + TIME_MS - 1) / TIME_MS), entry->lasting ? " lasting" : "",
		 entry->out ? " out" : "");
}

static bool take_period(const char *word, uint64_t *period)
{
	if (units_parse_number(word, 0, PERIOD_MAX, period) != 0)
		return false;
	*period *= TIME_MS;
	return true;
}

/* A word of letters and digits, or "-". */
static bool take_word(const char *word, char out[static CLUSTER_BOOT + 1])
{
	if (!words_is_name(word, CLUSTER_BOOT))
		return false;
	strcpy(out, word);
	return true;
}

static bool take_field(struct cluster_entry *entry, const char *name, char **rest)
{
	const char *value;

	if (strcmp(name, "lasting") == 0 || strcmp(name, "out") == 0) {
		*(*name == 'o' ? &entry->out : &entry->lasting) = true;
		return true;
	}
	value = strsep(rest, " ");
	if (!value)
		return false;
	if (strcmp(name, "boot") == 0)
		return take_word(value, entry->boot);
	if (strcmp(name, "place") == 0)
		return take_word(value, entry->place);
	if (strcmp(name, "count") == 0)
		return units_parse_number(value, 0, INT64_MAX, &entry->count) == 0;
	if (strcmp(name, "epoch") == 0)
		return units_parse_number(value, 0, CLUSTER_EPOCH_MAX, &entry->epoch) == 0;
	if (strcmp(name, "period") == 0)
		return take_period(value, &entry->period);
	return false;
}

int cluster_entry_parse(const char *text, size_t length, struct cluster_entry *out)
{
	struct cluster_entry entry = {.revision = out->revision};
	char copy[CLUSTER_VALUE_MAX], *rest = copy + sizeof(begin) - 1;
	bool good = length >= sizeof(begin) && length < sizeof(copy) && !memchr(text, 0, length);

	memcpy(entry.node, out->node, sizeof(entry.node));
	*out = entry;
	if (good) {
		memcpy(copy, text, length);
		copy[length] = '\0';
		good = strncmp(copy, begin, sizeof(begin) - 1) == 0 && *rest++ == ' ';
	}
	while (good && rest) {
		const char *name = strsep(&rest, " ");

		good = take_field(&entry, name, &rest);
	}
	if (!good || !*entry.boot || !*entry.place)
		return -EINVAL;
	*out = entry;
	return 0;
}

bool cluster_entry_settled(const struct cluster_entry *entry, uint64_t epoch)
{
	return entry && (entry->out || (*entry->boot && entry->epoch >= epoch));
}

bool cluster_entry_is_member(const struct cluster_entry *entry)
{
	return entry && entry->revision && *entry->boot && !entry->out;
}

const struct cluster_entry *cluster_view_find(const struct cluster_view *view, const char *node)
{
	unsigned low = 0, high = view->members;

	while (low < high) {
		unsigned middle = (low + high) / 2;
		int order = strcmp(view->member[middle].node, node);

		if (order == 0)
			return &view->member[middle];
		*(order < 0 ? &low : &high) = order < 0 ? middle + 1 : middle;
	}
	return NULL;
}
