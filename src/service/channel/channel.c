/* channel.c: the row of the channel service: its settings, its counters, its limits. */
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
	 .help = "How long the listener of a name may take to accept a client that comes through the daemon."},
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

static void channel_close(void *shared)
{
	struct channel_service *service = shared;

	quota_destroy(service->joined.quota);
	meet_close(&service->table);
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
	service->table.names = (struct meet_limit){
		.max = (uint32_t)service->settings.names,
		.per_source = (uint32_t)names_per_source(values),
		.full = "as many names are listened on as channel.names of its rdmad.conf allows",
		.enough = "this address, network of IPv6 (/64) or user listens on as many names as "
			  "channel.names_per_source allows",
	};
	service->joined = (struct meet_limit){
		.max = (uint32_t)service->settings.joined,
		.per_source = (uint32_t)joined_per_source(values),
		.full = "as many channels lead through it as channel.joined of its rdmad.conf allows",
		.enough = "this address, network of IPv6 (/64) or user has as many channels as "
			  "channel.joined_per_source allows",
	};
	rc = meet_open(&service->table);
	if (rc == 0)
		rc = meet_limit_open(&service->joined);
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
	meet_limit_report(&service->table.names, "names", report);
	meet_limit_report(&service->joined, "joined", report);
	report->end(report);
}

static void channel_resources(const void *shared, struct service_report *report)
{
	const struct channel_service *service = shared;

	report->number(report, "channel_names_now", service ? quota_taken(service->table.names.quota) : 0);
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
	.revised = meet_revised,
	.agent_new = meet_agent_new,
	.agent_free = meet_agent_free,
};
