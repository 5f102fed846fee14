/*
 * meet_open.c: the opener of a meet:// URL asks the rdmad, tries the addresses that it names, and goes through the
 * rdmad where none leads to the listener.
 */
#include "channel/meet.h"

#include <arpa/inet.h>

#define WAYS 4 /* of a listener's addresses that are tried */

/* Whether the rdmad is on this machine as its address tells. */
static bool rdmad_is_here(const char *rdmad)
{
	struct address_socket at[ADDRESS_SOCKETS];
	struct address address;
	int count = address_parse(rdmad, &address) == 0 ? address_resolve(&address, at) : 0;

	for (int i = 0; i < count; i++)
		if (!address.path && !address_is_loopback((struct sockaddr *)&at[i].sa))
			return false;
	return count > 0;
}

static bool is_shm(const char *address)
{
	return strncmp(address, CHANNEL_SHM_SCHEME, strlen(CHANNEL_SHM_SCHEME)) == 0;
}

/* A number, and none that leads each machine to itself, unless the rdmad is here, too. */
static bool number_leads(const char *address, const char *rdmad)
{
	struct address_socket at[ADDRESS_SOCKETS];
	const struct sockaddr *sa = (const struct sockaddr *)&at[0].sa;
	struct address parsed;
	uint8_t number[16];

	if (strlen(address) >= sizeof(((struct channel_url *)0)->address) ||
	    fabric_address_parse(address, &parsed) != 0 || parsed.path)
		return false;
	if (inet_pton(AF_INET, parsed.host, number) != 1 && inet_pton(AF_INET6, parsed.host, number) != 1)
		return false;
	return address_resolve(&parsed, at) > 0 && !address_is_unspecified(sa) &&
	       (!address_is_loopback(sa) || rdmad_is_here(rdmad));
}

static bool may_lead(const char *address, const char *rdmad, const struct rdmad_channel_options *options)
{
	char here[CHANNEL_MACHINE_MAX + sizeof(CHANNEL_SHM_SCHEME)], buf[CHANNEL_MACHINE_MAX];
	struct channel_url shm;
	bool leads;

	log_hush_begin();
	if (is_shm(address)) { /* it has to be memory of this machine */
		snprintf(here, sizeof(here), CHANNEL_SHM_SCHEME "%s.", channel_machine(buf));
		leads = *buf && strncmp(address, here, strlen(here)) == 0 && !options->common.require_rdma &&
			channel_url_parse(address, &shm) == 0;
	} else {
		leads = number_leads(address, rdmad);
	}
	log_hush_end();
	return leads;
}

/* Returns 0, or it leads nowhere. The words of a listener are to lead to nothing but a channel of this name. */
static int open_direct(const struct channel_url *url, const char *address, size_t size,
		       const struct rdmad_channel_options *options, const struct channel_ticket *ticket,
		       struct rdmad_channel **out)
{
	struct channel_url direct = {.scheme = CHANNEL_FAR};
	struct channel_far_ask ask;

	if (is_shm(address))
		return channel_url_parse(address, &direct) == 0 ? channel_shm_open(&direct, size, options, out)
								: -EREMOTE;
	snprintf(direct.address, sizeof(direct.address), "%s", address);
	memcpy(direct.name, url->name, sizeof(direct.name));
	if (!ticket)
		return channel_far_open(&direct, size, options, out);
	ask = (struct channel_far_ask){.address = direct.address, .name = direct.name, .size = size, .ticket = ticket};
	return channel_far_ask(&ask, options, out);
}

/* In turn, until `end`. The listener may name addresses that lead into the void: each leaves time for those behind
 * it. */
static int open_directs(const struct channel_url *url, char *addresses, const struct channel_ticket *ticket,
			size_t size, uint64_t end, const struct rdmad_channel_options *options,
			struct rdmad_channel **out)
{
	struct rdmad_channel_options timed = *options;
	char *rest = addresses, *address, *way[WAYS];
	unsigned count = 0;
	int rc = -EREMOTE;

	while (count < WAYS && (address = strtok_r(rest, " ", &rest)))
		if (may_lead(address, url->address, options))
			way[count++] = address;
	for (unsigned i = 0; i < count && rc != 0; i++) {
		channel_give_time(&timed, end, count - i);
		log_hush_begin();
		rc = open_direct(url, way[i], size, &timed, ticket, out);
		log_hush_end();
		if (rc != 0)
			log_debug("channel", "meet://%s/%s: not by %s: %s", url->address, url->name, way[i],
				  strerror(-rc));
	}
	return rc;
}

int channel_meet_open(const struct channel_url *url, size_t size, const struct rdmad_channel_options *options,
		      struct rdmad_channel **out)
{
	char addresses[WIRE_CHANNEL_ADDRESSES_MAX + 1] = "";
	struct channel_ticket ticket = {0};
	struct channel_far_ask ask = {.address = url->address,
				      .name = url->name,
				      .size = size,
				      .moved = addresses,
				      .moved_size = sizeof(addresses),
				      .issued = &ticket};
	struct rdmad_channel_options timed = *options;
	struct engine_options engine;
	uint64_t end, now;
	int rc;

	channel_far_options(options, &engine);
	end = time_after(time_now(), engine.connect_timeout);
	rc = channel_meet_ask(&ask, options, out);
	if (rc != -EREMOTE)
		return rc;
	now = time_now();
	rc = open_directs(url, addresses, ticket.given ? &ticket : NULL, size, now + (end > now ? (end - now) / 2 : 0),
			  options, out);
	auth_wipe(&ticket, sizeof(ticket));
	if (rc == 0)
		return 0;
	channel_give_time(&timed, MAX(end, time_after(time_now(), engine.connect_timeout / 4)), 1);
	ask.moved = NULL;
	ask.flags = WIRE_CHANNEL_RELAY;
	return channel_meet_ask(&ask, &timed, out);
}
