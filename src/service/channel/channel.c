/* channel.c: the row of the channel service, and what all its workers share: names, and how much a source may have. */
#include "service/channel/channel.h"
#include "service/internal.h"

#include <stdlib.h>

#define AT(member) offsetof(struct channel_settings, member)

static uint64_t names_per_source(const void *values)
{
	const struct channel_settings *s = values;

	return quota_most(s->names_per_source, s->names);
}

static uint64_t joined_per_source(const void *values)
{
	const struct channel_settings *s = values;

	return quota_most(s->joined_per_source, s->joined);
}

static const struct setting settings[] = {
	{"channel.names", SETTING_NUMBER, AT(names), "1024", 1, 16384,
	 .help = "Most names that clients listen on; more are refused."},
	{"channel.names_per_source", SETTING_NUMBER, AT(names_per_source), "0", 0, 16384, .effective = names_per_source,
	 .help = "Most of them of one source: of an address, a network of IPv6 (/64), or a user of this\n"
		 "machine. 0: half of them, and as many as there are is no limit."},
	{"channel.joined", SETTING_NUMBER, AT(joined), "1024", 1, 16384,
	 .help = "Most channels whose bytes go through the daemon, because the two ends cannot reach each\n"
		 "other, and of the channel echo; more are refused."},
	{"channel.joined_per_source", SETTING_NUMBER, AT(joined_per_source), "0", 0, 16384,
	 .effective = joined_per_source, .help = "Most of them that one source opened. As above."},
	{"channel.invite_timeout", SETTING_TIME, AT(invite_timeout), "10s", TIME_MS, 3600 * TIME_S,
	 .help = "How long who listens on a name may take to accept a client that comes through the daemon."},
};

static const struct setting_table channel_settings = {settings, ARRAY_SIZE(settings), sizeof(struct channel_settings)};

static const char *const counters[] = {
	[CHANNEL_COUNT_LISTENS] = "channel_listens",
	[CHANNEL_COUNT_OPENS] = "channel_opens",
	[CHANNEL_COUNT_MOVED] = "channel_moved",
	[CHANNEL_COUNT_INVITES] = "channel_invites",
	[CHANNEL_COUNT_JOINED] = "channel_joined",
	[CHANNEL_COUNT_ECHOES] = "channel_echoes",
	[CHANNEL_COUNT_BYTES] = "channel_bytes",
	[CHANNEL_COUNT_REFUSED] = "channel_refused",
	[CHANNEL_COUNT_LIMITS] = "channel_limits",
	[CHANNEL_COUNT_EXPIRED] = "channel_expired",
	[CHANNEL_COUNTS] = NULL,
};

struct quota_share *channel_take(struct channel_service *service, struct channel_limit *limit,
				 const struct fabric_source *source, const char **why)
{
	struct quota_share *share;
	unsigned met;

	pthread_mutex_lock(&service->lock);
	met = quota_take(limit->quota, fabric_source_key(source), limit->per_source, &share);
	pthread_mutex_unlock(&service->lock);
	if (met)
		*why = met & QUOTA_ALL ? limit->full : limit->enough;
	return share;
}

/*
 * Names
 */
static struct channel_name *name_look(const struct channel_service *service, const char *text, uint32_t len)
{
	for (uint32_t i = 0, left = service->entered; left; i++) {
		struct channel_name *name = service->name[i];

		left -= name != NULL;
		if (name && name->len == len && memcmp(name->text, text, len) == 0)
			return name;
	}
	return NULL;
}

bool channel_name_enter(struct channel_service *service, struct channel_name *name)
{
	bool entered;

	pthread_mutex_lock(&service->lock);
	entered = !name_look(service, name->text, name->len);
	if (entered) {
		for (name->place = 0; service->name[name->place];) /* a name with a share finds a place */
			name->place++;
		service->name[name->place] = name;
		service->entered++;
	}
	pthread_mutex_unlock(&service->lock);
	return entered;
}

void channel_name_remove(struct channel_service *service, struct channel_name *name)
{
	pthread_mutex_lock(&service->lock);
	service->name[name->place] = NULL;
	service->entered--;
	pthread_mutex_unlock(&service->lock);
}

void channel_name_free(struct channel_name *name)
{
	if (!name)
		return;
	quota_give(name->share);
	auth_wipe(name->secret, sizeof(name->secret));
	free(name);
}

struct channel_name *channel_name_find(struct channel_service *service, const char *text, uint32_t len)
{
	struct channel_name *name;

	pthread_mutex_lock(&service->lock);
	name = name_look(service, text, len);
	pthread_mutex_unlock(&service->lock);
	return name;
}

void channel_name_clients(struct channel_service *service, struct channel_name *name, int change)
{
	pthread_mutex_lock(&service->lock);
	name->clients += (uint32_t)change;
	pthread_mutex_unlock(&service->lock);
}

static uint32_t entry_put(const struct channel_name *name, uint8_t *out, uint32_t room)
{
	struct wire_channel_entry entry = {.capacity = name->capacity, .clients = name->clients, .name_len = name->len};
	uint32_t bytes = (uint32_t)sizeof(entry) + WIRE_PAD(name->len);

	if (bytes > room)
		return 0;
	memset(out, 0, bytes);
	memcpy(out, &entry, sizeof(entry));
	memcpy(out + sizeof(entry), name->text, name->len);
	return bytes;
}

uint32_t channel_names_list(struct channel_service *service, const struct auth_client *client, uint64_t *cursor,
			    uint8_t *out, uint32_t room)
{
	uint32_t at = (uint32_t)MIN(*cursor, service->names.max), used = 0, bytes;

	pthread_mutex_lock(&service->lock);
	for (; at < service->names.max; at++) {
		const struct channel_name *name = service->name[at];

		if (!name || !auth_may(client, AUTH_NAMES, name->text, name->len))
			continue;
		bytes = entry_put(name, out + used, room - used);
		if (!bytes)
			break;
		used += bytes;
	}
	pthread_mutex_unlock(&service->lock);
	*cursor = at < service->names.max ? at : 0;
	return used;
}

/*
 * The process
 */
static void channel_close(void *shared)
{
	struct channel_service *service = shared;

	pthread_mutex_destroy(&service->lock);
	free(service->name);
	quota_destroy(service->joined.quota);
	quota_destroy(service->names.quota);
	free(service);
}

static int channel_open(const struct service_host *host, const void *values, void **out)
{
	struct channel_service *service = calloc(1, sizeof(*service));
	int rc;

	(void)host;
	if (!service)
		return -ENOMEM;
	service->settings = *(const struct channel_settings *)values;
	service->names = (struct channel_limit){
		.max = (uint32_t)service->settings.names,
		.per_source = (uint32_t)names_per_source(values),
		.full = "as many names are listened on as channel.names of its rdmad.conf allows",
		.enough = "this address, network of IPv6 (/64) or user listens on as many names as "
			  "channel.names_per_source allows",
	};
	service->joined = (struct channel_limit){
		.max = (uint32_t)service->settings.joined,
		.per_source = (uint32_t)joined_per_source(values),
		.full = "as many channels lead through it as channel.joined of its rdmad.conf allows",
		.enough = "this address, network of IPv6 (/64) or user has as many channels as "
			  "channel.joined_per_source allows",
	};
	pthread_mutex_init(&service->lock, NULL);
	service->name = calloc(service->settings.names, sizeof(struct channel_name *));
	rc = service->name ? 0 : -ENOMEM;
	if (rc == 0)
		rc = quota_create(service->names.max, sizeof(struct fabric_source), &service->names.quota);
	if (rc == 0)
		rc = quota_create(service->joined.max, sizeof(struct fabric_source), &service->joined.quota);
	if (rc == 0)
		*out = service;
	else
		channel_close(service);
	return rc;
}

static void channel_status(const void *shared, struct service_report *report)
{
	const struct channel_service *service = shared;

	report->begin(report, "channel");
	report->number(report, "names", quota_taken(service->names.quota));
	report->number(report, "names_max", service->names.max);
	report->number(report, "names_per_source", service->names.per_source);
	report->number(report, "joined", quota_taken(service->joined.quota));
	report->number(report, "joined_max", service->joined.max);
	report->number(report, "joined_per_source", service->joined.per_source);
	report->end(report);
}

static void channel_resources(const void *shared, struct service_report *report)
{
	const struct channel_service *service = shared;

	report->number(report, "channel_names_now", service ? quota_taken(service->names.quota) : 0);
	report->number(report, "channel_joined_now", service ? quota_taken(service->joined.quota) : 0);
}

const struct service service_channel = {
	.id = WIRE_CHANNEL,
	.help = "byte channels between clients: it introduces them, or takes their bytes from one to the other",
	.settings = &channel_settings,
	.counters = counters,
	.open = channel_open,
	.close = channel_close,
	.status = channel_status,
	.resources = channel_resources,
	.worker = service_worker_of_name,
	.part_size = sizeof(struct channel_thread),
	.part_init = channel_thread_init,
	.progress = channel_thread_progress,
	.deadline = channel_thread_deadline,
	.ops = &channel_agent_ops,
	.revised = channel_agent_revised,
	.agent_new = channel_agent_new,
	.agent_free = free,
};
