/* names.c: names and texts of the wire's numbers; the border between errno and the wire. */
#include "wire/wire.h"

static const char *const services[WIRE_SERVICES] = {
	[WIRE_PING] = "ping",
	[WIRE_KV] = "kv",
	[WIRE_GPU] = "gpu",
	[WIRE_CHANNEL] = "channel",
};

const char *wire_service_name(unsigned service)
{
	return service < WIRE_SERVICES && services[service] ? services[service] : "unknown";
}

const char *wire_op_name(unsigned op)
{
	switch ((enum wire_op)op) {
	case WIRE_OP_ECHO:
		return "echo";
	case WIRE_OP_GET:
		return "get";
	case WIRE_OP_SET:
		return "set";
	case WIRE_OP_DELETE:
		return "delete";
	case WIRE_OP_EXISTS:
		return "exists";
	case WIRE_OP_GET_INTO:
		return "get into";
	case WIRE_OP_SET_FROM:
		return "set from";
	case WIRE_OP_PUT:
		return "put";
	case WIRE_OP_PUT_FROM:
		return "put from";
	case WIRE_OP_STAT:
		return "stat";
	case WIRE_OP_EXPIRE:
		return "expire";
	case WIRE_OP_DELETE_IF:
		return "delete if";
	case WIRE_OP_INCR:
		return "incr";
	case WIRE_OP_SCAN:
		return "scan";
	case WIRE_OP_FLUSH:
		return "flush";
	case WIRE_OP_INFO:
		return "info";
	case WIRE_OP_GPU_INFO:
		return "gpu info";
	case WIRE_OP_GPU_OPEN:
		return "gpu open";
	case WIRE_OP_GPU_JOB:
		return "gpu job";
	case WIRE_OP_GPU_ENDED:
		return "gpu ended";
	}
	return "unknown";
}

static const char *const reasons[WIRE_REASONS] = {
	[WIRE_REASON_NONE] = "none",
	[WIRE_REASON_BAD_REQUEST] = "bad request",
	[WIRE_REASON_VERSION] = "version",
	[WIRE_REASON_SERVICE] = "service not enabled",
	[WIRE_REASON_CONNECTIONS] = "too many connections",
	[WIRE_REASON_MESSAGE_SIZE] = "message size",
	[WIRE_REASON_CREDITS] = "credits",
	[WIRE_REASON_KEY] = "key",
	[WIRE_REASON_DRAINING] = "draining",
	[WIRE_REASON_RESOURCES] = "out of resources",
	[WIRE_REASON_SESSIONS] = "too many sessions",
};

const char *wire_reason_name(unsigned reason)
{
	return reason < WIRE_REASONS ? reasons[reason] : "unknown";
}

static const struct {
	const char *text;
	int error;
} statuses[WIRE_STATUSES] = {
	[WIRE_OK] = {"success", 0},
	[WIRE_NOT_FOUND] = {"no such key", -ENOENT},
	[WIRE_TOO_LARGE] = {"too large", -EMSGSIZE},
	[WIRE_NO_MEMORY] = {"the store is full", -ENOMEM},
	[WIRE_BAD_REQUEST] = {"bad request", -EBADMSG},
	[WIRE_UNSUPPORTED] = {"not supported by the server", -EOPNOTSUPP},
	[WIRE_EXISTS] = {"the key exists", -EEXIST},
	[WIRE_STALE] = {"the key has another version", -ESTALE},
	[WIRE_NOT_NUMBER] = {"the value is not a whole number", -EDOM},
	[WIRE_RANGE] = {"the number would not fit in 64 bits", -ERANGE},
	[WIRE_FAILED] = {"the server failed to carry it out", -EIO},
};

const char *wire_status_text(unsigned status)
{
	return status < WIRE_STATUSES ? statuses[status].text : "unknown status";
}

enum wire_status wire_status_of(int error)
{
	for (unsigned i = 0; i < WIRE_STATUSES; i++)
		if (statuses[i].error == error)
			return (enum wire_status)i;
	return error == -EFBIG ? WIRE_TOO_LARGE : WIRE_BAD_REQUEST;
}

int wire_status_errno(unsigned status)
{
	return status < WIRE_STATUSES ? statuses[status].error : -EPROTO;
}
