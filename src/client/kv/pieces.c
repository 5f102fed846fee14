/*
 * pieces.c: values that lie in several pieces of the caller's memory. The server reads and writes each where it is.
 * Short ones lie side by side in a landing buffer meanwhile, where a copy costs less than a registration and a transfer
 * of its own; and so do all where there are more than the server takes, or where it takes no pieces.
 */
#include "client/kv/kv.h"

#include <stdlib.h>

int kv_pieces_size(const struct iovec *pieces, size_t count, size_t *size)
{
	bool good = pieces || !count;

	*size = 0;
	for (size_t i = 0; good && i < count; i++)
		good = (pieces[i].iov_base || !pieces[i].iov_len) &&
		       !__builtin_add_overflow(*size, pieces[i].iov_len, size);
	if (!good)
		log_error("kv", "pieces need addresses where they have lengths, and a sum that is a length");
	return good ? 0 : -EINVAL;
}

/* Whether the piece is copied: it is short, and a processor can read it. */
static bool piece_copied(const struct iovec *piece, size_t small)
{
	return piece->iov_len <= small && !(device_memory() && device_memory_has(piece->iov_base, piece->iov_len));
}

void kv_pieces_gather(const struct iovec *pieces, size_t count, size_t small, char *to)
{
	for (size_t i = 0; i < count; i++) {
		size_t len = pieces[i].iov_len;

		if (!len || !piece_copied(&pieces[i], small))
			continue;
		memcpy(to, pieces[i].iov_base, len);
		to += len;
	}
}

void kv_pieces_scatter(const struct iovec *pieces, size_t small, const char *from, size_t length)
{
	for (; length; pieces++) {
		size_t len = MIN(pieces->iov_len, length);

		length -= len;
		if (!len || !piece_copied(pieces, small))
			continue;
		memcpy(pieces->iov_base, from, len);
		from += len;
	}
}

/* How many ranges they make if those of up to `small` bytes are copied. */
static void plan_ranges(const struct kv *kv, struct kv_plan *plan, size_t small)
{
	bool copied = false;

	plan->small = small;
	plan->ranges = plan->landing = 0;
	plan->reached = true;
	for (size_t i = 0; i < plan->count; i++) {
		size_t len = plan->pieces[i].iov_len;
		bool copies = piece_copied(&plan->pieces[i], small);

		if (!len)
			continue;
		plan->ranges += !copied || !copies;
		plan->landing += copies ? len : 0;
		plan->reached &= copies || buffers_reached(kv->buffers, plan->pieces[i].iov_base, len);
		copied = copies;
	}
}

void kv_pieces_plan(const struct kv *kv, const struct iovec *pieces, size_t count, struct kv_plan *plan)
{
	*plan = (struct kv_plan){.pieces = pieces, .count = count};
	plan_ranges(kv, plan, WIRE_INLINE_MAX);
	if (plan->ranges > 1 && plan->ranges > MIN(conn_granted(kv->conn)->pieces, WIRE_PIECES_MAX))
		plan_ranges(kv, plan, SIZE_MAX);
}

static int reach_ranges(struct kv *kv, struct request *r, const struct kv_plan *plan, unsigned access,
			struct wire_remote *ranges)
{
	struct wire_remote *last = NULL; /* while it is in the landing buffer */
	char *at = r->landing ? landing_data(r->landing) : NULL;

	for (size_t i = 0; i < plan->count; i++) {
		const struct iovec *piece = &plan->pieces[i];
		struct reach *reach = &r->pieces->reach[r->pieces->reaches];
		int rc;

		if (!piece->iov_len)
			continue;
		if (!piece_copied(piece, plan->small)) {
			rc = buffers_reach(kv->buffers, piece->iov_base, piece->iov_len, access, reach);
			if (rc != 0)
				return rc;
			r->pieces->reaches++;
			*ranges++ = kv_remote(kv, piece->iov_base, piece->iov_len, reach_region(reach));
			last = NULL;
			continue;
		}
		if (last) {
			last->length += piece->iov_len;
		} else {
			last = ranges++;
			*last = kv_remote(kv, at, piece->iov_len, landing_region(r->landing));
		}
		at += piece->iov_len;
	}
	return 0;
}

int kv_pieces_take(struct kv *kv, struct request *r, const struct kv_plan *plan, unsigned access,
		   struct wire_remote ranges[static WIRE_PIECES_MAX])
{
	struct kv_pieces *p = kv->free_pieces;

	if (p)
		kv->free_pieces = p->next;
	else
		p = malloc(sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->small = plan->small;
	p->reaches = 0;
	r->pieces = p;
	if (plan->landing)
		r->landing = landing_take(kv->buffers, plan->landing, access);
	return plan->landing && !r->landing ? -ENOMEM : reach_ranges(kv, r, plan, access, ranges);
}

void kv_pieces_unreach(struct kv *kv, struct kv_pieces *p)
{
	while (p->reaches)
		buffers_unreach(kv->buffers, &p->reach[--p->reaches]);
}

void kv_pieces_give(struct kv *kv, struct request *r)
{
	struct kv_pieces *p = r->pieces;

	kv_pieces_unreach(kv, p);
	p->next = kv->free_pieces;
	kv->free_pieces = p;
	r->pieces = NULL;
}

void kv_pieces_free(struct kv *kv)
{
	while (kv->free_pieces) {
		struct kv_pieces *p = kv->free_pieces;

		kv->free_pieces = p->next;
		free(p);
	}
}
