/*
 * error.c: statuses in words, and what rdmad_error() says of a call: what failed, of which server, the numbers, and
 * what to do. Each public function begins with kv_begin(), once, and hands its result to kv_end() or kv_explain().
 */
#include "client/kv/kv.h"

/* Statuses that no server sends, or not by that number: the words of the others are the wire's. */
static const struct {
	int status;
	const char *text;
} texts[] = {
	{-EAGAIN, "the handle takes no more requests now"},
	{-ECANCELED, "cancelled; it may have been carried out"},
	{-ECONNABORTED, "the connection ended before the answer came; it may have been carried out"},
	{-EDEADLK, "a callback must not wait"},
	{-EFAULT, "memory of a device, which a processor cannot reach; see kv_buffer_register"},
	{-EINVAL, "an argument is not valid"},
	{-EMSGSIZE, "the value is longer than the limit or the buffer"},
	{-ENAMETOOLONG, "the key is too long"},
	{-ENOMEM, "this program has no memory for it"},
	{-ENOSPC, "the store is full (an overwrite needs room for both values at once), or the disk of its log"},
	{-ENOTCONN, "the connection has ended; it was not carried out"},
	{-EPERM, "the handle is the parent process's"},
	{-EPROTO, "the server breaks the protocol, and the connection ended; it may have been carried out"},
	{-EREMOTE, "another server of its cluster has the key; it was not carried out; see rdmad-cluster(7)"},
	{-ESTALE, "the key has another version, or the value was replaced before it could be taken"},
	{-ESHUTDOWN, "the server takes no more requests; it was not carried out"},
	{-ETIMEDOUT, "no answer in time; it may have been carried out"},
};

/* The server's memory is not this program's. */
int kv_status_errno(unsigned wire_status)
{
	return wire_status == WIRE_NO_MEMORY ? -ENOSPC : wire_status_errno(wire_status);
}

int kv_status_answered(int status)
{
	if (status == -EAGAIN)
		return 0; /* no answer of this service */
	if (status == -ENOSPC)
		return 1;
	return status != -ENOMEM && wire_status_errno(wire_status_of(status)) == status;
}

const char *kv_status_text(int status)
{
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (texts[i].status == status)
			return texts[i].text;
	return kv_status_answered(status) ? wire_status_text(wire_status_of(status)) : strerror(-status);
}

int kv_unusable(const struct kv *kv)
{
	if (!kv)
		return log_fail(-EINVAL, "kv", "the handle is NULL: open one with kv_open");
	return client_owned("kv", kv->forks);
}

int kv_begin_given(const struct kv *kv, bool given, const char *needs)
{
	int rc = kv_begin(kv);

	if (rc != 0 || given)
		return rc;
	return log_fail(-EINVAL, "kv", "%s", needs);
}

/* The server that it is about, where the handle is of a cluster. */
static const struct kv *last_spoken(const struct kv *kv)
{
	return kv->nodes && kv->nodes->spoke ? kv->nodes->spoke : kv;
}

static void explain_rejoin(const struct kv *kv, const char *what)
{
	log_error("kv", "%s: the connection to %s (%s) is being made again since %llu ms", what, kv->server, kv->reason,
		  (unsigned long long)((time_now() - kv->lost) / TIME_MS));
}

/* Why no connection takes requests, for both kinds of calls. */
static void explain_connection(const struct kv *kv, int rc, const char *what)
{
	if (kv->lost && !kv->closed && (rc == -ESHUTDOWN || rc == -ENOTCONN))
		explain_rejoin(kv, what);
	else if (rc == -ESHUTDOWN)
		log_error("kv",
			  "%s: %s is to end, or takes no new connections, and has not carried it out; kv_reopen() when "
			  "it is back",
			  what, kv->server);
	else if (rc != -ENOTCONN)
		log_error("kv",
			  "%s: the connection to %s ended before the answer came (%s); it may have been carried out",
			  what, kv->server, kv->reason);
	else
		log_error("kv", "%s: the connection to %s has ended (%s); kv_reopen() makes it again", what, kv->server,
			  kv->reason);
}

static void explain_full(const struct kv *kv, const char *what)
{
	if (kv->leaving)
		log_error("kv", "%s: %s said that it is to end; another connection is made after %zu requests", what,
			  kv->server, kv->outstanding);
	else if (!kv->taking)
		explain_rejoin(kv, what);
	else if (kv->outstanding == KV_SLOTS)
		log_error("kv",
			  "%s: %u requests are outstanding, the most of one handle, with those that were given up and "
			  "have "
			  "no answer yet; kv_progress() first",
			  what, KV_SLOTS);
	else
		log_error(
			"kv",
			"%s: the server has not returned credits yet for %zu requests, or too many large values are on "
			"their way; kv_progress() first",
			what, kv->outstanding);
}

int kv_end(const struct kv *kv, int rc, const char *what)
{
	kv = last_spoken(kv);
	if (rc >= 0)
		log_clear_last();
	else if (rc == -ENOTCONN || rc == -ESHUTDOWN || rc == -ECONNABORTED || rc == -EPROTO)
		explain_connection(kv, rc, what);
	else if (rc == -EAGAIN)
		explain_full(kv, what);
	else if (rc == -ETIMEDOUT)
		log_error("kv", "no answer to %s after %llu ms without any from %s; it may have been carried out", what,
			  (unsigned long long)(kv->options.timeout / TIME_MS), kv->server);
	else if (rc == -EDEADLK || !*log_last())
		log_error("kv", "%s: %s", what, kv_status_text(rc));
	return rc;
}

#define SHOWN 60 /* bytes of a key */

int kv_explain(const struct kv *kv, int status, const struct ask *ask)
{
	char words[SHOWN + 64], stored[32], limit[32];
	const char *what = "";

	if (unlikely(kv->nodes && status == -EREMOTE && *log_last()))
		return status; /* what the servers say was told */
	kv = last_spoken(kv);
	if (unlikely(status < 0 && (!ask->key || status == -EFAULT))) { /* the key may be what cannot be read */
		what = wire_op_name(ask->op);
	} else if (unlikely(status < 0)) { /* the operation, and the key that it is on */
		snprintf(words, sizeof(words), "%s of \"%.*s%s\"", wire_op_name(ask->op), (int)MIN(ask->key_len, SHOWN),
			 (const char *)ask->key, ask->key_len > SHOWN ? "..." : "");
		what = words;
	}
	if (unlikely(status == -ENOSPC && kv->disk_full))
		log_error(
			"kv",
			"%s with a value of %zu bytes: the disk of the server's log is full; see log.directory in its "
			"rdmad.conf, and rdmactl log status",
			what, ask->value_len);
	else if (unlikely(status == -ENOSPC))
		log_error("kv",
			  "%s with a value of %zu bytes: the store is full (an overwrite needs room for both values at "
			  "once); see kv.memory and kv.eviction in its rdmad.conf",
			  what, ask->value_len);
	else if (unlikely(status == -EDQUOT))
		log_error("kv",
			  "%s with a value of %zu bytes: that is over the quota of this client's name: it has %s "
			  "stored, and may have %s; delete some, or see stored= in the server's file of clients, "
			  "rdmad-auth(7)",
			  what, ask->value_len, units_human_size((double)kv->quota.stored, stored),
			  units_human_size((double)kv->quota.limit, limit));
	else if (unlikely(status == -EOPNOTSUPP && ask->flags & WIRE_DURABLE))
		log_error("kv",
			  "%s: the server keeps no log, so that nothing can be on its disk; see log.directory and "
			  "log.policy in its rdmad.conf. Nothing was set",
			  what);
	else if (unlikely(status == -EMSGSIZE && ask->value && !*log_last()))
		log_error("kv",
			  "%s with a value of %zu bytes: too long for the store; see kv.memory and kv.value_max in its "
			  "rdmad.conf",
			  what, ask->value_len);
	else if (unlikely(status == -EMSGSIZE && kv->value_max <= WIRE_EAGER_MAX && !*log_last()))
		log_error("kv",
			  "%s: the value is longer than %llu bytes, the most that the server brings by this transport; "
			  "if its log says that its memory is not registered for RDMA, tcp:// brings it",
			  what, (unsigned long long)kv->value_max);
	else if (unlikely(status < 0 && status != -EMSGSIZE && kv_status_answered(status) && ask->value))
		log_error("kv", "%s with a value of %zu bytes: %s", what, ask->value_len, kv_status_text(status));
	else if (unlikely(status < 0 && status != -EMSGSIZE && kv_status_answered(status)))
		log_error("kv", "%s: %s", what, kv_status_text(status));
	else
		return kv_end(kv, status, what);
	return status;
}
