/*
 * limit.c: how many bytes a second leave for a peer. Tokens are bytes: they come with time, up to a few milliseconds'
 * worth, and what leaves takes them, perhaps more than there are; then nothing leaves until the debt is paid.
 */
#include "peer/messages/message.h"

#define BURST (10 * TIME_MS)
#define COUNTED (60 * TIME_S) /* longer than any debt lasts; of more, the bytes of the highest rate are no int64_t */

static int64_t bytes_in(uint64_t rate, uint64_t ns)
{
	return (int64_t)((double)rate * (double)ns / (double)TIME_S);
}

void message_limit_set(struct peer *peer, uint64_t rate)
{
	struct peer_message *m = peer->message;

	if (rate && !list_linked(&m->limited_node))
		list_add_tail(&peer->ctx->limited, &m->limited_node);
	else if (!rate && list_linked(&m->limited_node))
		list_del(&m->limited_node);
	m->rate = rate;
	m->tokens = 0;
	m->tokens_time = rate ? time_now() : 0;
	m->limited = false;
}

bool message_limit_passes(struct peer_message *m)
{
	uint64_t now;
	int64_t more;

	if (likely(!m->rate))
		return true;
	now = time_now();
	more = bytes_in(m->rate, MIN(now - m->tokens_time, COUNTED));
	if (more) { /* of less than a byte the time is counted later */
		m->tokens = MIN(m->tokens + more, bytes_in(m->rate, BURST));
		m->tokens_time = now;
	}
	m->limited |= m->tokens < 0;
	return m->tokens >= 0;
}

void message_limit_take(struct peer_message *m, uint64_t bytes)
{
	if (unlikely(m->rate))
		m->tokens -= (int64_t)bytes;
}

uint64_t message_limit_quantum(const struct peer_message *m)
{
	uint64_t bytes = (uint64_t)bytes_in(m->rate, BURST);

	return m->rate ? MIN(MAX(bytes, (uint64_t)PEER_EAGER_MAX), (uint64_t)MESSAGE_PIECE) : UINT64_MAX;
}

/* When what waits may go on: at once if the debt was found to be paid since. */
static uint64_t limit_deadline(const struct peer_message *m)
{
	if (!m->limited || !m->open)
		return TIME_NEVER;
	if (m->tokens >= 0)
		return m->tokens_time;
	return m->tokens_time + (uint64_t)((double)-m->tokens * (double)TIME_S / (double)m->rate) + 1;
}

uint64_t messages_deadline(const rdma_context *ctx)
{
	uint64_t deadline = TIME_NEVER;

	for (const struct list *pos = ctx->limited.next; unlikely(pos != &ctx->limited); pos = pos->next)
		deadline = MIN(deadline, limit_deadline(container_of(pos, struct peer_message, limited_node)));
	return deadline;
}

/* Peers that have gone leave here, where the list is not being walked. */
void message_limits_turn(rdma_context *ctx)
{
	uint64_t now = time_now();
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &ctx->limited) {
		struct peer_message *m = container_of(pos, struct peer_message, limited_node);

		if (m->gone)
			list_del(&m->limited_node);
		if (limit_deadline(m) > now)
			continue;
		message_writable(m->peer);
		message_flush(m->peer);
	}
}
