/* channel_absent.c: the ways that this build lacks. */
#include "client/channel.h"

static int absent(const struct channel_url *url)
{
	log_error("channel", "%s: no way there in this build", url->address);
	return -EOPNOTSUPP;
}

int channel_meet_listen(const struct channel_url *url, size_t size, const struct rdmad_channel_options *options,
			struct rdmad_channel_listener **out)
{
	(void)size, (void)options, (void)out;
	return absent(url);
}

int channel_meet_open(const struct channel_url *url, size_t size, const struct rdmad_channel_options *options,
		      struct rdmad_channel **out)
{
	(void)size, (void)options, (void)out;
	return absent(url);
}
