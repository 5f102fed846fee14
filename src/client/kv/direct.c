/*
 * direct.c: values in memory that no processor may touch, as that of an accelerator. This is the one place that tells
 * them from others, before a request is built. Such a value, of any length, goes by no message and by no push: the
 * server reads it from its registration, or writes it there. What needs bytes that a processor reads, as keys, is
 * refused.
 */
#include "client/kv/kv.h"

int kv_readable(const void *bytes, size_t len, const char *what)
{
	if (likely(!device_memory()) || !device_memory_has(bytes, len))
		return 0;
	return log_fail(-EFAULT, "kv", "%s at %p lies in memory of a device, which a processor cannot read", what,
			bytes);
}

/* As buffers_device(), of all pieces. */
static int pieces_device(const struct kv *kv, const struct iovec *pieces, size_t count)
{
	int found = 0;

	for (size_t i = 0; i < count; i++) {
		int rc = buffers_device(kv->buffers, pieces[i].iov_base, pieces[i].iov_len);

		if (rc < 0)
			return rc;
		found |= rc;
	}
	return found;
}

int kv_direct(const struct kv *kv, const struct ask *ask)
{
	const bool reads = wire_op_reads(ask->op);
	const void *value = reads ? ask->into : ask->value;
	int rc = ask->key ? kv_readable(ask->key, ask->key_len, "the key") : 0;

	if (rc != 0)
		return rc;
	if (ask->pieces)
		rc = pieces_device(kv, value, ask->pieces);
	else
		rc = buffers_device(kv->buffers, value, reads ? ask->into_size : ask->value_len);
	if (rc <= 0)
		return rc;
	if (!reads && ask->op != WIRE_OP_SET && ask->op != WIRE_OP_PUT)
		return log_fail(-EFAULT, "kv",
				"%s takes no bytes from memory of a device: a processor would have to read them",
				wire_op_name(ask->op));
	if (kv->value_max <= WIRE_EAGER_MAX)
		return log_fail(-EFAULT, "kv",
				"the server has no registered memory for large values on this transport, and those in "
				"memory of a device go that way; its log says why");
	if (reads && !kv->direct)
		return log_fail(-EFAULT, "kv",
				"the server at %s writes no short values to memory of a device: it is an older one",
				kv->server);
	return 1;
}

int kv_direct_ranges(const struct kv *kv, const struct kv_plan *plan)
{
	size_t most = MAX(MIN(conn_granted(kv->conn)->pieces, WIRE_PIECES_MAX), 1u);

	if (plan->ranges <= most)
		return 0;
	return log_fail(
		-EFAULT, "kv",
		"pieces in memory of a device cannot be put together: these are %zu ranges, and the server takes %zu",
		plan->ranges, most);
}
