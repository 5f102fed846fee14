/* answer.c: answers to a stream, with values that leave from where they are, and the log that they wait for. */
#include "service/text/text.h"

#include <stdlib.h>

#define AGAIN TIME_MS /* what waits for the log, or is held, is tried again */

bool text_pins_add(struct text_pins *pins, size_t at, const struct store_ref *ref)
{
	if (pins->count == pins->room) {
		unsigned room = pins->room ? 2 * pins->room : 64;
		struct text_pin *pin = realloc(pins->pin, room * sizeof(*pin));

		if (!pin)
			return false;
		pins->pin = pin;
		pins->room = room;
	}
	pins->pin[pins->count++] = (struct text_pin){at, *ref};
	pins->bytes += ref->len;
	return true;
}

void text_pins_cut(struct text_pins *pins, struct store *store, unsigned count)
{
	while (pins->count > count) {
		struct text_pin *pin = &pins->pin[--pins->count];

		pins->bytes -= pin->ref.len;
		store_unpin(store, &pin->ref);
	}
}

static void answer_unpin(void *owner, void *item)
{
	struct store_ref ref = {.item = item};

	store_unpin(owner, &ref);
}

void text_write(struct stream *stream, struct store *store, struct text_pins *pins, const char *bytes, size_t len)
{
	struct stream_piece piece[64];
	unsigned n = 0;
	size_t at = 0;

	for (unsigned i = 0; i < pins->count; i++) {
		const struct text_pin *pin = &pins->pin[i];

		if (n + 3 > ARRAY_SIZE(piece)) {
			stream_write(stream, piece, n);
			n = 0;
		}
		piece[n++] = (struct stream_piece){bytes + at, pin->at - at, NULL, NULL, NULL};
		piece[n++] = (struct stream_piece){pin->ref.addr, pin->ref.len, answer_unpin, store, pin->ref.item};
		at = pin->at;
	}
	if (len > at)
		piece[n++] = (struct stream_piece){bytes + at, len - at, NULL, NULL, NULL};
	if (n)
		stream_write(stream, piece, n);
	pins->count = 0;
	pins->bytes = 0;
}

/* They leave behind those that are held already. */
static struct text_held *held_add(struct text_gate *gate, uint64_t tells, uint64_t since)
{
	struct text_held *last = gate->helds ? &gate->held[gate->helds - 1] : NULL;

	tells = MAX(tells, last ? last->tells : 0);
	if (!last || (gate->helds < TEXT_HELDS && (last->tells != tells || last->since != since))) {
		last = &gate->held[gate->helds++];
		*last = (struct text_held){.since = since};
	}
	last->tells = tells;
	return last;
}

/* Answers that tell of what is on disk have left. */
static void held_end(struct text_gate *gate, uint64_t durable)
{
	unsigned n = 0;

	for (; n < gate->helds && gate->held[n].tells <= durable; n++)
		for (unsigned i = 0; i < SERVICE_COUNTED; i++)
			service_part_took(gate->part, i, gate->held[n].since, gate->held[n].times[i]);
	if (!n)
		return;
	gate->helds -= n;
	memmove(gate->held, gate->held + n, gate->helds * sizeof(gate->held[0]));
}

/* What is held waits for the log, which wakes this. */
static void gate_look(struct kv_waiter *waiter, uint64_t durable, bool failed)
{
	struct text_gate *gate = container_of(waiter, struct text_gate, waiter);

	stream_release_to(gate->stream, durable);
	held_end(gate, durable);
	if (stream_held(gate->stream) == UINT64_MAX)
		kv_gate_wait_end(gate->kv, waiter);
	else if (failed)
		stream_close(gate->stream, -EIO, "the log failed: what it wrote is not on disk");
}

void text_gate_init(struct text_gate *gate, struct service_part *part, struct kv_thread *kv, struct stream *stream)
{
	*gate = (struct text_gate){.waiter.look = gate_look, .part = part, .kv = kv, .stream = stream};
}

void text_gate_answered_late(struct text_gate *gate, enum service_class class, uint64_t since, uint64_t tells)
{
	service_part_late(gate->part, class, 1);
	if (gate->helds || tells > kv_gate_durable(gate->kv))
		held_add(gate, tells, since)->times[class]++;
	else
		service_part_took(gate->part, class, since, 1);
}

void text_gate_hold(struct text_gate *gate, uint64_t tells)
{
	uint64_t durable = kv_gate_durable(gate->kv);
	struct text_held *held;

	if (unlikely(gate->helds))
		held_end(gate, durable);
	if (tells <= durable && !gate->helds)
		return;
	held = held_add(gate, tells, service_part_now(gate->part));
	for (unsigned i = 0; i < SERVICE_COUNTED; i++) {
		uint64_t times = gate->part->answered[i] - gate->part->late[i] - gate->before[i];

		service_part_late(gate->part, i, times);
		held->times[i] += times;
	}
	if (tells <= durable)
		return;
	stream_hold(gate->stream, tells);
	kv_gate_wait(gate->kv, &gate->waiter, tells);
}

void text_gate_end(struct text_gate *gate)
{
	if (gate->kv)
		kv_gate_wait_end(gate->kv, &gate->waiter);
}

void text_again(struct stream *stream, const struct kv_shared *kv, bool held)
{
	if (!store_changes_full(kv->store) && !held) {
		stream_again(stream, 0);
		return;
	}
	if (kv->log)
		kv_log_want(kv->log, 0);
	stream_again(stream, stream_now(stream) + AGAIN);
}
