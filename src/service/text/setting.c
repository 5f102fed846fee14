/* setting.c: what the settings and passwords of such services have in common. */
#include "service/text/text.h"

bool text_check_listen(const char *text, char *why, size_t size)
{
	struct address address;
	bool valid;

	log_hush_begin(); /* the caller says it, with its place */
	valid = address_parse(text, &address) == 0;
	snprintf(why, size, "%s", log_hush_end());
	if (!valid || (!*address.scheme && !address.path))
		return valid;
	snprintf(why, size, "\"%s\" is not host or host:port; for a UNIX socket there is unix_socket beside it", text);
	return false;
}

bool text_is_near(int fd)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);

	return getpeername(fd, (struct sockaddr *)&peer, &len) == 0 &&
	       (peer.ss_family == AF_UNIX || address_is_loopback((struct sockaddr *)&peer));
}
