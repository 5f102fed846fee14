/* dial.c: the transports and addresses of a server in turn, the limits of time, and the pauses. */
#include "engine/engine.h"

int dial_resolve(struct dial *dial, const char *room, const char *text, const struct address *address,
		 bool require_rdma, const struct engine *share)
{
	bool served = false, had = false;
	int rc = 0;

	for (unsigned i = 0; i < FABRIC_TRANSPORTS; i++) {
		const struct fabric_transport *transport = &fabric_transports[i];
		struct address_socket to[ADDRESS_SOCKETS];
		int count;

		if (!fabric_transport_serves(transport, address) || (require_rdma && transport->processor))
			continue;
		served = true;
		if (share && !engine_has(share, transport))
			continue;
		had = true;
		count = fabric_transport_resolve(transport, address, to);
		rc = MIN(count, 0);
		for (int k = 0; k < count && dial->targets < DIAL_TARGETS; k++)
			dial->target[dial->targets++] = (struct dial_target){transport, to[k]};
	}
	if (had)
		return dial->targets ? 0 : rc;
	if (served)
		log_error(room, "%s cannot be reached by the transport of the handle to share with", text);
	else
		log_error(room, "%s is not RDMA, which is required", text);
	return served ? -EPROTOTYPE : -EINVAL;
}

bool dial_has_choice(const struct dial *dial)
{
	return dial->next && dial->target[dial->targets - 1].transport != dial->target[dial->next - 1].transport;
}

void dial_established(struct dial *dial)
{
	dial->attempt_until = dial->until;
}

void dial_failed(struct dial *dial, int error, const char *reason, bool final)
{
	const struct dial_target *target = dial->next ? &dial->target[dial->next - 1] : NULL;
	size_t n;

	if (target && dial->under_way) { /* a transport that could not even begin has answered nothing */
		if (dial->answered && dial->answered != target->transport)
			snprintf(dial->before, sizeof(dial->before), "%.10s: %.80s", dial->answered->text,
				 dial->answer);
		dial->answered = target->transport;
		snprintf(dial->answer, sizeof(dial->answer), "%s", reason);
	}
	dial->under_way = false;
	dial->error = error;
	dial->final = final;
	dial->ops->explain(dial, target, reason, dial->why, sizeof(dial->why));
	n = strlen(dial->why);
	if (!final && dial->next == dial->targets && !dial->small && *dial->before)
		snprintf(dial->why + n, sizeof(dial->why) - n, " (before, by %s)", dial->before);
	if (dial->room)
		log_error(dial->room, "%s", dial->why);
}

void dial_again(struct dial *dial, uint64_t now)
{
	dial->next = 0;
	dial->final = dial->under_way = false;
	dial->again = time_after(now, pauses_take(&dial->pauses));
}

void dial_cancel(struct dial *dial, const char *why)
{
	dial->under_way = false;
	dial->final = true;
	dial->error = -ECANCELED;
	dial->again = 0;
	if (dial->ops->abandon)
		dial->ops->abandon(dial, why);
}

/* NULL: there is none. At the end the one that offers short values is asked again: better these than none. */
static const struct dial_target *next_target(struct dial *dial)
{
	if (dial->next == dial->targets && dial->small) {
		dial->target[0] = dial->target[dial->small - 1];
		dial->targets = 1;
		dial->next = dial->small = 0;
	}
	return dial->next < dial->targets ? &dial->target[dial->next++] : NULL;
}

int dial_turn(struct dial *dial, uint64_t now)
{
	const struct dial_target *target;

	if (now < dial_deadline(dial))
		return 0;
	if (dial->under_way)
		dial_failed(dial, -ETIMEDOUT, "no answer", false);
	if (dial->ops->abandon)
		dial->ops->abandon(dial, "no answer");
	while (!dial->final && now < dial->until && (target = next_target(dial))) {
		int rc;

		dial->attempt_until =
			MIN(dial->until, time_after(now, dial->next < dial->targets ? dial->first : dial->last));
		rc = dial->ops->begin(dial, target, now);
		dial->under_way = rc == 0;
		if (rc == 0)
			return 0;
		dial->error = rc;
	}
	return dial->error ? dial->error : -ETIMEDOUT;
}
