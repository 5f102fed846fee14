/* visit.c: a stream from its begin to its end, and a visit of it by bytes(). */
#include "service/text/text.h"

int text_open(struct service_part *part, struct stream_group *group, struct stream_open *open,
	      const struct stream_ops *ops, void *client, struct stream **out)
{
	const struct service_part *kv = part->thread->part[WIRE_KV];

	if (!client) {
		stream_refuse(open);
		return -ENOMEM;
	}
	open->ops = ops;
	open->context = client;
	if (open->request)
		open->values = kv_shared_region_in(kv->shared, stream_group_domain(group));
	return stream_open(group, open, service_part_now(part), out);
}

void text_visited(struct stream *stream, unsigned commands, bool closing, bool more)
{
	if (commands > 1)
		stream_charge(stream, commands - 1);
	if (closing)
		stream_close(stream, 0, "the client asked for it");
	else if (more)
		stream_again(stream, 0);
}

void text_log_closed(const struct stream *stream, const char *service, int error, const char *reason)
{
	struct stream_info info;

	if (error == 0)
		return;
	stream_get_info(stream, &info);
	log_info(service, "%s (%s): %s", info.peer, info.transport, reason);
}
