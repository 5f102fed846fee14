/* answer.c: answers to a stream, with values that leave from where they are, and the log that they wait for. */
#include "service/text/text.h"

#include <stdlib.h>

#define AGAIN TIME_MS /* what waits for the log is tried again */

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

static void unpin(void *owner, void *item)
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
		piece[n++] = (struct stream_piece){pin->ref.addr, pin->ref.len, unpin, store, pin->ref.item};
		at = pin->at;
	}
	if (len > at)
		piece[n++] = (struct stream_piece){bytes + at, len - at, NULL, NULL, NULL};
	if (n)
		stream_write(stream, piece, n);
	pins->count = 0;
	pins->bytes = 0;
}

/* What is held waits for the log, which wakes this. */
static void gate_look(struct kv_waiter *waiter, uint64_t durable, bool failed)
{
	struct text_gate *gate = container_of(waiter, struct text_gate, waiter);

	stream_release_to(gate->stream, durable);
	if (stream_held(gate->stream) == UINT64_MAX)
		kv_gate_wait_end(gate->kv, waiter);
	else if (failed)
		stream_close(gate->stream, -EIO, "the log failed: what it wrote is not on disk");
}

void text_gate_init(struct text_gate *gate, struct kv_thread *kv, struct stream *stream)
{
	*gate = (struct text_gate){.waiter.look = gate_look, .kv = kv, .stream = stream};
}

void text_gate_hold(struct text_gate *gate, uint64_t tells)
{
	if (tells <= kv_gate_durable(gate->kv))
		return;
	stream_hold(gate->stream, tells);
	kv_gate_wait(gate->kv, &gate->waiter, tells);
}

void text_gate_end(struct text_gate *gate)
{
	if (gate->kv)
		kv_gate_wait_end(gate->kv, &gate->waiter);
}

void text_again(struct stream *stream, const struct kv_shared *kv)
{
	if (!store_changes_full(kv->store)) {
		stream_again(stream, 0);
		return;
	}
	if (kv->log)
		kv_log_want(kv->log, 0);
	stream_again(stream, stream_now(stream) + AGAIN);
}
