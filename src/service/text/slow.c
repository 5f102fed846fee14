/* slow.c: commands of streams in the log of slow requests. */
#include "service/text/text.h"

void text_slow_end(struct service_part *part, const struct stream *stream, uint64_t *begun,
		   struct service_slow_request *request)
{
	struct stream_info info;

	if (request->key)
		service_hot_key(part, request->key, request->key_len);
	request->took = time_now() - *begun;
	*begun = 0;
	if (!service_part_is_slow(part, request->took))
		return;
	stream_get_info(stream, &info);
	request->client = info.peer;
	request->key_of = info.key;
	service_slow_add(part, request);
}
