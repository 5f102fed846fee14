/* names.c: names and texts of the wire's numbers; the border between errno and the wire. */
#include "wire/wire.h"

#define SERVICE_NAME(SERVICE, number, name) [number] = name,
static const char *const services[WIRE_SERVICES] = {WIRE_SERVICE_ROWS(SERVICE_NAME)};
#undef SERVICE_NAME

const char *wire_service_name(unsigned service)
{
	return service < WIRE_SERVICES && services[service] ? services[service] : "unknown";
}

#define OP_NAME(OP, number, name, words) [WIRE_OP_##OP] = words,
#define OP_NAMES(SERVICE, number, name) WIRE_OPS_##SERVICE(OP_NAME)
static const char *const ops[] = {WIRE_SERVICE_ROWS(OP_NAMES)};
#undef OP_NAMES
#undef OP_NAME

const char *wire_op_name(unsigned op)
{
	return op < ARRAY_SIZE(ops) && ops[op] ? ops[op] : "unknown";
}

/* Resources, packets and long values depend on the device, so another transport is worth a try; all else is the
 * server's word. The limits of a message are those of its configuration. librdmad(3) has the errors. */
static const struct {
	const char *name;
	int error;
	bool final;
} reasons[WIRE_REASONS + 1] = {
	[WIRE_REASON_NONE] = {"none", 0, false},
	[WIRE_REASON_BAD_REQUEST] = {"bad request", -EPROTO, true},
	[WIRE_REASON_VERSION] = {"version", -EPROTONOSUPPORT, true},
	[WIRE_REASON_SERVICE] = {"service not enabled", -EOPNOTSUPP, true},
	[WIRE_REASON_CONNECTIONS] = {"too many connections", -EUSERS, true},
	[WIRE_REASON_MESSAGE_SIZE] = {"message size", -EMSGSIZE, true},
	[WIRE_REASON_CREDITS] = {"credits", -EINVAL, true},
	[WIRE_REASON_KEY] = {"key", -EACCES, true},
	[WIRE_REASON_DRAINING] = {"draining", -ESHUTDOWN, true},
	[WIRE_REASON_RESOURCES] = {"out of resources", -ENOBUFS, false},
	[WIRE_REASON_SESSIONS] = {"too many sessions", -EAGAIN, true},
	[WIRE_REASON_SOURCE] = {"too many connections of its source", -EDQUOT, true},
	[WIRE_REASON_PACKET] = {"packet size", -ENETUNREACH, false},
	[WIRE_REASON_VALUES] = {"long values", -EFBIG, false},
	[WIRE_REASON_RIGHTS] = {"rights", -EPERM, true},
	[WIRE_REASON_ENCRYPT] = {"encryption", -ENOPROTOOPT, false},
	[WIRE_REASONS] = {"unknown", -ECONNREFUSED, false},
};

static unsigned known_reason(unsigned reason)
{
	return MIN(reason, (unsigned)WIRE_REASONS);
}

const char *wire_reason_name(unsigned reason)
{
	return reasons[known_reason(reason)].name;
}

int wire_reason_errno(unsigned reason)
{
	return reasons[known_reason(reason)].error;
}

bool wire_reason_final(unsigned reason)
{
	return reasons[known_reason(reason)].final;
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
	[WIRE_BUSY] = {"what was asked for is all in use", -EAGAIN},
	[WIRE_MOVED] = {"it is elsewhere", -EREMOTE},
	[WIRE_DISK_FULL] = {"the disk of the server's log is full", -ENOSPC},
	[WIRE_READ_ONLY] = {"the server's log failed, and it takes no writes any more", -EROFS},
	[WIRE_DENIED] = {"the client has no right to it; see the server's file of clients", -EACCES},
	[WIRE_OTHER_TYPE] = {"the value is of another type, which this call does not take", -EMEDIUMTYPE},
	[WIRE_OVER_QUOTA] = {"the client has stored as much as it may; see the server's file of clients", -EDQUOT},
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

bool wire_printable(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
			return false;
	return true;
}

bool wire_facts_valid(const char *text, size_t len)
{
	static const char first[] = WIRE_FACTS_VERSION;
	const char *end;

	if (len < strlen(first) || len > WIRE_FACTS_MAX || memcmp(text, first, strlen(first)) != 0)
		return false;
	for (; len; len -= (size_t)(end + 1 - text), text = end + 1) {
		end = memchr(text, '\n', len);
		if (!end || !wire_printable(text, (size_t)(end - text)))
			return false;
	}
	return true;
}
