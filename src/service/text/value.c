/* value.c: a long value goes from the socket to its place in the arena, as there is room for it. */
#include "service/text/text.h"

#define BUSY_MOST (5 * TIME_S) /* that it waits for what is in its way */
#define AGAIN TIME_MS          /* and tries again */

static int value_place(struct text_value *v, struct stream *stream, const struct kv_shared *kv, const void *key,
		       const struct store_put *put, uint64_t most)
{
	if (v->error != 0)
		return v->error;
	if (v->len > most)
		return -EFBIG;
	return store_reserve_part(kv->store, key, v->key_len, v->len, put, MAX(kv->ahead, STORE_PART_MIN),
				  stream_now(stream), &v->ref, &v->ready);
}

void text_value_go(struct text_value *v, struct stream *stream, const struct kv_shared *kv, const void *key,
		   const struct store_put *put, uint64_t most)
{
	uint64_t now = stream_now(stream);
	int rc = 0;

	if (!v->placed) {
		rc = value_place(v, stream, kv, key, put, most);
		v->placed = rc != -EAGAIN;
		v->at = rc == 0 ? v->ref.addr : "";
	} else if (v->ref.item && v->ready <= v->done) {
		rc = store_reserve_more(kv->store, &v->ref, MIN(v->len, v->done + STORE_PART_MIN), &v->ready);
	}
	if (rc == -EAGAIN) {
		text_again(stream, kv, false);
		return;
	}
	v->busy = rc != -EBUSY ? 0 : v->busy ? v->busy : now;
	if (rc == -EBUSY && now - v->busy < BUSY_MOST) {
		stream_again(stream, now + AGAIN);
		return;
	}
	if (rc != 0) {
		v->error = rc == -EBUSY ? -ENOMEM : rc; /* another's long value, which may never be whole */
		store_abandon(kv->store, &v->ref);
		v->at = "";
	}
	if (v->ref.item) {
		uint64_t n = MIN(v->ready, v->len) - v->done;

		stream_receive(stream, (char *)v->ref.addr + v->done, n);
		v->done += n;
	} else {
		stream_receive(stream, NULL, v->len - v->done);
		v->done = v->len;
	}
}

void text_value_end(struct text_value *v, struct store *store)
{
	store_abandon(store, &v->ref);
	*v = (struct text_value){.len = 0};
}
