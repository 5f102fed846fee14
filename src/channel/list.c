/* list.c: the names that programs listen on at an rdmad. */
#include "channel/channel.h"
#include "engine/engine.h"

struct channels {
	rdmad_channel_each each;
	void *arg;
};

static const struct list_kind channels;

static int channels_page(void *arg, const uint8_t *page, uint32_t length)
{
	const struct channels *to = arg;
	struct rdmad_channel_entry out;
	struct wire_channel_entry entry;
	int rc = 0;

	for (uint32_t at = 0; at < length && rc == 0; at += (uint32_t)sizeof(entry) + WIRE_PAD(entry.name_len)) {
		if (length - at < sizeof(entry))
			return list_broken(&channels);
		memcpy(&entry, page + at, sizeof(entry));
		if (entry.name_len > RDMAD_CHANNEL_NAME_MAX || WIRE_PAD(entry.name_len) > length - at - sizeof(entry))
			return list_broken(&channels);
		out = (struct rdmad_channel_entry){.capacity = entry.capacity, .clients = entry.clients};
		memcpy(out.name, page + at + sizeof(entry), entry.name_len);
		rc = to->each(to->arg, &out);
	}
	return rc;
}

static const struct list_kind channels = {
	.service = WIRE_CHANNEL,
	.op = WIRE_OP_CHANNEL_LIST,
	.room = "channel",
	.things = "channels",
	.page = channels_page,
};

int rdmad_channel_list(const char *server, const struct rdmad_options *options, rdmad_channel_each each, void *arg,
		       char transport[8])
{
	return list_all(&channels, server, options, &(struct channels){each, arg}, transport);
}
