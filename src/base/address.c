/* address.c: where to listen or connect, as text and as a socket address. */
#include "base/base.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define DIRECTORIES 10 /* names of this user in /tmp that are tried */

static int bad_address(const char *text, const char *why)
{
	return log_fail(-EINVAL, "address",
			"\"%.200s\" is not an address: %s; write host[:port], SCHEME://host[:port] or SCHEME:///path",
			text, why);
}

static int parse_host_port(const char *text, const char *rest, struct address *out)
{
	const char *host = rest, *end, *port = NULL;
	uint64_t number;

	if (*rest == '[') {
		host++;
		end = strchr(host, ']');
		if (!end)
			return bad_address(text, "the bracket is not closed");
		if (end[1] == ':')
			port = end + 2;
		else if (end[1])
			return bad_address(text, "only :port may follow the bracket");
	} else {
		end = strchr(rest, ':');
		if (end && strchr(end + 1, ':'))
			end = NULL; /* a bare IPv6 number has no port */
		else if (end)
			port = end + 1;
		if (!end)
			end = rest + strlen(rest);
	}
	if (end == host)
		return bad_address(text, "the host is empty");
	if (strcspn(host, "[]/") < (size_t)(end - host))
		return bad_address(text, "a bracket or a slash has no place in a host");
	if ((size_t)(end - host) >= sizeof(out->host))
		return bad_address(text, "the host is longer than 255 bytes");
	if (port && units_parse_number(port, 0, 65535, &number) != 0)
		return bad_address(text, "the port is not a number from 0 to 65535");
	out->port = port ? (uint16_t)number : ADDRESS_PORT;
	out->port_given = port;
	memcpy(out->host, host, (size_t)(end - host));
	out->host[end - host] = '\0';
	return 0;
}

int address_parse(const char *text, struct address *out)
{
	struct address parsed = {.path = false};
	const char *end = strstr(text, "://"), *rest = end ? end + 3 : text;
	size_t n = end ? (size_t)(end - text) : 0;
	int rc = 0;

	if (end && (n == 0 || n >= sizeof(parsed.scheme)))
		return bad_address(text, "there is no such scheme");
	memcpy(parsed.scheme, text, n);
	if (n && *rest == '/') {
		if (strlen(rest) >= sizeof(((struct sockaddr_un *)0)->sun_path))
			return bad_address(text, "the path of a UNIX socket has at most 107 bytes");
		snprintf(parsed.host, sizeof(parsed.host), "%s", rest);
		parsed.path = true;
	} else {
		rc = parse_host_port(text, rest, &parsed);
	}
	if (rc == 0)
		*out = parsed;
	return rc;
}

/* The one found, unless it is among the `count` others. The new count. */
static int resolve_add(const struct addrinfo *found, struct address_socket *out, int count)
{
	struct address_socket *to = &out[count];

	*to = (struct address_socket){.len = found->ai_addrlen};
	memcpy(&to->sa, found->ai_addr, MIN(found->ai_addrlen, sizeof(to->sa)));
	for (int i = 0; i < count; i++)
		if (out[i].len == to->len && memcmp(&out[i].sa, &to->sa, to->len) == 0)
			return count;
	return count + 1;
}

int address_resolve(const struct address *address, struct address_socket out[static ADDRESS_SOCKETS])
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&out[1].sa;
	struct sockaddr_in *in = (struct sockaddr_in *)&out[0].sa;
	struct sockaddr_un *sun = (struct sockaddr_un *)&out[0].sa;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
	char port[8];
	int rc, count = 0;

	if (address->path) {
		out[0] = (struct address_socket){.sa = {.ss_family = AF_UNIX}, .len = sizeof(*sun)};
		/* address_parse() saw that it fits */
		memcpy(sun->sun_path, address->host, strnlen(address->host, sizeof(sun->sun_path) - 1));
		return 1;
	}
	if (strcmp(address->host, "*") == 0) { /* all addresses of both families */
		out[0] = (struct address_socket){.len = sizeof(*in)};
		out[1] = (struct address_socket){.len = sizeof(*in6)};
		*in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(address->port)};
		*in6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(address->port)};
		return 2;
	}
	snprintf(port, sizeof(port), "%u", address->port);
	rc = getaddrinfo(address->host, port, &hints, &found);
	if (rc != 0)
		return log_fail(-EHOSTUNREACH, "address", "no address for host %s: %s", address->host,
				gai_strerror(rc));
	for (const struct addrinfo *i = found; i && count < ADDRESS_SOCKETS; i = i->ai_next)
		count = resolve_add(i, out, count);
	freeaddrinfo(found);
	return count;
}

char *address_format_socket(const struct sockaddr *sa, char *buf, size_t size)
{
	char number[INET6_ADDRSTRLEN] = "?";

	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)sa;

		inet_ntop(AF_INET, &in->sin_addr, number, sizeof(number));
		snprintf(buf, size, "%s:%u", number, ntohs(in->sin_port));
	} else if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;

		inet_ntop(AF_INET6, &in6->sin6_addr, number, sizeof(number));
		snprintf(buf, size, "[%s]:%u", number, ntohs(in6->sin6_port));
	} else if (sa->sa_family == AF_UNIX) {
		const char *path = ((const struct sockaddr_un *)sa)->sun_path;

		snprintf(buf, size, "unix:%s%s", *path ? "" : "@", *path ? path : path + 1);
	} else {
		snprintf(buf, size, "family %d", sa->sa_family);
	}
	return buf;
}

/* Its IPv4 number, also where that is in one of IPv6 (::ffff:10.0.0.1). */
static bool is_v4(const struct sockaddr *sa, uint32_t *number)
{
	const struct in6_addr *v6 = &((const struct sockaddr_in6 *)sa)->sin6_addr;

	if (sa->sa_family == AF_INET) {
		*number = ntohl(((const struct sockaddr_in *)sa)->sin_addr.s_addr);
		return true;
	}
	if (sa->sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(v6))
		return false;
	memcpy(number, &v6->s6_addr[12], sizeof(*number));
	*number = ntohl(*number);
	return true;
}

int address_connect(const struct address_socket *to, uint64_t limit)
{
	const struct timeval time = {.tv_sec = (time_t)(limit / TIME_S),
				     .tv_usec = (suseconds_t)(limit % TIME_S / TIME_US)};
	int type = SOCK_STREAM | SOCK_CLOEXEC | (limit < TIME_US ? SOCK_NONBLOCK : 0);
	int fd = socket(to->sa.ss_family, type, 0), rc;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
	if (connect(fd, (const struct sockaddr *)&to->sa, to->len) == 0)
		return fd;
	rc = errno == EINPROGRESS ? -ETIMEDOUT : -errno;
	close(fd);
	return rc;
}

bool address_is_loopback(const struct sockaddr *sa)
{
	uint32_t number;

	if (is_v4(sa, &number))
		return number >> 24 == 127;
	return sa->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)sa)->sin6_addr);
}

bool address_is_unspecified(const struct sockaddr *sa)
{
	uint32_t number;

	if (is_v4(sa, &number))
		return number == INADDR_ANY;
	return sa->sa_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)sa)->sin6_addr);
}

static char *directory_name(int i, char *buf, size_t size)
{
	if (i)
		snprintf(buf, size, "/tmp/rdmad-%u.%d", (unsigned)geteuid(), i);
	else
		snprintf(buf, size, "/tmp/rdmad-%u", (unsigned)geteuid());
	return buf;
}

int address_check_directory(const char *path)
{
	struct stat st;

	if (lstat(path, &st) != 0)
		return -errno;
	return S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 022) ? 0 : -EPERM;
}

char *address_own_directory(char *buf, size_t size)
{
	int absent = -1;

	for (int i = 0; i < DIRECTORIES; i++) {
		int rc = address_check_directory(directory_name(i, buf, size));

		if (rc == 0)
			return buf;
		if (rc == -ENOENT && absent < 0)
			absent = i;
	}
	return directory_name(MAX(absent, 0), buf, size);
}

char *address_runtime_path(const char *name, const char *shared, const char *given, char *buf, size_t size)
{
	const char *user = secure_getenv("XDG_RUNTIME_DIR");
	char own[64];

	if (given && given[0] == '/')
		snprintf(buf, size, "%s/%s", given, name);
	else if (geteuid() == 0)
		snprintf(buf, size, "/run/rdmad/%s", name);
	else if (user && user[0] == '/')
		snprintf(buf, size, "%s/%s", user, shared);
	else
		snprintf(buf, size, "%s/%s", address_own_directory(own, sizeof(own)), name);
	return buf;
}
