/* hosts.c: HOST[:SLOTS],... */
#include "run/run.h"

#include <stdlib.h>

static bool is_here(const char *name)
{
	return strcmp(name, "localhost") == 0 || strcmp(name, "127.0.0.1") == 0 || strcmp(name, "::1") == 0;
}

/* Names, numbers of IPv6 in brackets, and USER@HOST: nothing that a remote shell would take for an option or a word of its own. */
static bool is_name(const char *text, size_t length)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_@:%";

	return length > 0 && length < 256 && text[0] != '-' && strspn(text, allowed) >= length;
}

/* Splits "NAME:SLOTS" or "[NAME]:SLOTS". *slots: what is behind the colon, or "". */
static void split(const char *item, size_t length, const char **name, size_t *name_length, const char **slots)
{
	const char *end = item + length, *close = item[0] == '[' ? memchr(item, ']', length) : NULL;
	const char *colon = memchr(close ? close : item, ':', (size_t)(end - (close ? close : item)));

	*name = close ? item + 1 : item;
	*name_length = (size_t)((close ? close : colon ? colon : end) - *name);
	*slots = colon ? colon + 1 : end;
}

static int add(struct run_hosts *hosts, const char *item, size_t length)
{
	struct run_host *grown = realloc(hosts->host, (hosts->count + 1) * sizeof(*grown));
	const char *name, *slots;
	size_t name_length;
	uint64_t number = 1;
	char text[16];

	if (!grown)
		return -ENOMEM;
	hosts->host = grown;
	split(item, length, &name, &name_length, &slots);
	snprintf(text, sizeof(text), "%.*s", (int)(item + length - slots), slots);
	if (!is_name(name, name_length) ||
	    (slots < item + length && units_parse_number(text, 1, RUN_RANKS_MAX, &number) != 0)) {
		run_say("--hosts: \"%.*s\" is no HOST[:SLOTS]", (int)length, item);
		return -EINVAL;
	}
	grown[hosts->count] = (struct run_host){.name = strndup(name, name_length), .slots = (unsigned)number};
	if (!grown[hosts->count].name)
		return -ENOMEM;
	if (is_here(grown[hosts->count].name)) {
		free(grown[hosts->count].name);
		grown[hosts->count].name = NULL;
	}
	hosts->count++;
	return 0;
}

int run_hosts_parse(const char *text, struct run_hosts *out)
{
	int rc = 0;

	run_hosts_free(out);
	while (rc == 0) {
		size_t length = strcspn(text, ",");

		rc = add(out, text, length);
		if (!text[length])
			break;
		text += length + 1;
	}
	return rc;
}

void run_hosts_free(struct run_hosts *hosts)
{
	for (unsigned i = 0; i < hosts->count; i++)
		free(hosts->host[i].name);
	free(hosts->host);
	*hosts = (struct run_hosts){0};
}

unsigned run_hosts_slots(const struct run_hosts *hosts)
{
	unsigned slots = 0;

	for (unsigned i = 0; i < hosts->count; i++)
		slots += hosts->host[i].slots;
	return slots;
}

bool run_hosts_remote(const struct run_hosts *hosts)
{
	for (unsigned i = 0; i < hosts->count; i++)
		if (hosts->host[i].name && hosts->host[i].ranks)
			return true;
	return false;
}
