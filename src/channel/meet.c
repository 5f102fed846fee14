/* meet.c: what both ends of a meet:// URL do. */
#include "channel/meet.h"

#define RELAY_MESSAGE_MAX (64u * 1024) /* bytes go in messages of so many through the rdmad */

const char *channel_machine(char buf[static CHANNEL_MACHINE_MAX])
{
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

	buf[0] = 0;
	if (file) {
		if (!fgets(buf, CHANNEL_MACHINE_MAX, file))
			buf[0] = 0;
		fclose(file);
	}
	buf[strcspn(buf, "\n")] = 0;
	return buf;
}

void channel_give_time(struct rdmad_channel_options *options, uint64_t end, unsigned share)
{
	uint64_t now = time_now();

	options->common.connect_timeout_us = MAX(end > now ? (end - now) / share / TIME_US : 0, 1ull);
}

int channel_meet_ask(const struct channel_far_ask *asked, const struct rdmad_channel_options *options,
		     struct rdmad_channel **out)
{
	struct channel_far_ask ask = *asked;
	bool connected = false;
	char why[256];
	int rc;

	ask.connected = &connected;
	ask.message_size = (uint32_t)MIN(MAX(ask.size, 8192ull), (uint64_t)RELAY_MESSAGE_MAX);
	log_hush_begin();
	rc = channel_far_ask(&ask, options, out);
	snprintf(why, sizeof(why), "%s", log_hush_end());
	if (rc == 0 || rc == -EREMOTE)
		return rc;
	if (connected || (rc != -EMSGSIZE && rc != -ENOBUFS)) {
		log_error("channel", "%s", why);
		return rc;
	}
	ask.message_size = 0;
	return channel_far_ask(&ask, options, out);
}
