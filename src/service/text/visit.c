/* visit.c: a stream from its begin to its end, and a visit of it by bytes(). */
#include "service/text/text.h"

#define CLOCK_EACH 16 /* commands between two looks at the clock */

int text_open(struct service_part *part, struct stream_group *group, struct stream_open *open,
	      const struct stream_ops *ops, void *client, struct stream **out)
{
	if (!client) {
		local_close(open->fd);
		return -ENOMEM;
	}
	open->ops = ops;
	open->context = client;
	return stream_open(group, open, service_part_now(part), out);
}

bool text_goes_on(struct stream *stream, const struct text_pins *pins, size_t answers, unsigned commands)
{
	return answers + pins->bytes <= STREAM_OUT_HIGH && (commands % CLOCK_EACH || stream_time_left(stream));
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
