/*
 * wgl: whether what several clients saw of one key is linearizable, that is: each request could have taken effect at one
 * moment between its begin and its end, and what was seen is what a single value would have shown. The search is that
 * of Wing and Gong, with Lowe's memory of what was tried.
 *
 * The key is one of a cache, which may lose it at any time: misses, deletions that found nothing and writes whose
 * condition failed say nothing, and are not given. A hit has to be the latest value. What a deletion found is not asked:
 * else each write without an answer might be that, and histories with many of them are not decided.
 */
#ifndef RDMAD_TESTS_WGL_H
#define RDMAD_TESTS_WGL_H

#include <stdbool.h>
#include <stdint.h>

enum wgl_kind { WGL_SET, WGL_HIT, WGL_DELETE, WGL_CAS };

struct wgl_op {
	enum wgl_kind kind;
	uint64_t value;      /* of SET and CAS: what it wrote; of HIT: what it read. Not 0 */
	uint64_t expect;     /* of CAS: the value that was there */
	uint64_t begin, end; /* any clock, the same for all */
	bool unknown;        /* it has no answer: it may have taken effect at any time from begin on, or never */
};

enum wgl_verdict { WGL_LINEARIZABLE, WGL_NOT, WGL_UNDECIDED };

/* In any order. Values that are written are unique. WGL_UNDECIDED: after so many steps, or without memory, there was no
 * result. */
enum wgl_verdict wgl_check(const struct wgl_op *op, unsigned count, uint64_t steps);

#endif
