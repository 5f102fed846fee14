/* url.c: a URL, and what it is listened on and opened with. */
#include "channel/channel.h"

#include <ctype.h>

static const struct channel_kind {
	const char *scheme; /* NULL: those of the transports, or none */
	int (*listen)(const struct channel_url *url, size_t size, const struct rdmad_channel_options *options,
		      struct rdmad_channel_listener **out);
	int (*open)(const struct channel_url *url, size_t size, const struct rdmad_channel_options *options,
		    struct rdmad_channel **out);
} kinds[] = {
	[CHANNEL_SHM] = {"shm", channel_shm_listen, channel_shm_open},
	[CHANNEL_FAR] = {NULL, channel_far_listen, channel_far_open},
	[CHANNEL_MEET] = {"meet", channel_meet_listen, channel_meet_open},
};

static int bad_url(const char *text, const char *why)
{
	return log_fail(-EINVAL, "channel",
			"\"%.300s\" is not a channel: %s; write shm://NAME, unix:///PATH, tcp://HOST:PORT/NAME, "
			"rdma://HOST:PORT/NAME, HOST:PORT/NAME or meet://HOST[:PORT]/NAME",
			text, why);
}

static const char *bad_name(const char *name)
{
	if (!*name)
		return "it has no name";
	if (strlen(name) > RDMAD_CHANNEL_NAME_MAX)
		return "the name is longer than 200 characters";
	for (const char *c = name; *c; c++)
		if (*c == '/' || iscntrl((unsigned char)*c))
			return "a slash or a control character has no place in a name";
	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return "such a name is a directory";
	return NULL;
}

static int set_name(const char *text, const char *name, struct channel_url *url)
{
	const char *why = bad_name(name);

	if (why)
		return bad_url(text, why);
	memcpy(url->name, name, strlen(name) + 1);
	return 0;
}

/* `address` begins where the scheme does, if a transport's scheme is part of it. */
static int parse_host(const char *text, const char *address, const char *host, struct channel_url *url)
{
	const char *slash = strchr(host, '/');

	if (!slash)
		return bad_url(text, "it has no name");
	if ((size_t)(slash - address) >= sizeof(url->address))
		return bad_url(text, "the address is too long");
	memcpy(url->address, address, (size_t)(slash - address));
	return set_name(text, slash + 1, url);
}

int channel_url_parse(const char *text, struct channel_url *out)
{
	const char *end = strstr(text, "://"), *rest = end ? end + 3 : text;
	struct channel_url url = {.scheme = CHANNEL_FAR};
	int rc;

	for (unsigned i = 0; end && i < ARRAY_SIZE(kinds); i++)
		if (kinds[i].scheme && strlen(kinds[i].scheme) == (size_t)(end - text) &&
		    !strncmp(text, kinds[i].scheme, (size_t)(end - text)))
			url.scheme = i;
	if (url.scheme == CHANNEL_SHM) {
		rc = set_name(text, rest, &url);
	} else if (url.scheme == CHANNEL_MEET) {
		rc = parse_host(text, rest, rest, &url);
	} else if (end && *rest == '/') {
		if (strlen(text) >= sizeof(url.address))
			return bad_url(text, "the path is too long");
		memcpy(url.address, text, strlen(text));
		rc = 0;
	} else {
		rc = parse_host(text, text, rest, &url);
	}
	if (rc == 0)
		*out = url;
	return rc;
}

static const struct rdmad_channel_options defaults;

static int parse_options(const char *text, size_t size, const struct rdmad_channel_options *options,
			 struct channel_url *out)
{
	int rc = channel_url_parse(text, out);

	if (rc == 0 && (size < RDMAD_CHANNEL_SIZE_MIN || size > RDMAD_CHANNEL_SIZE_MAX))
		return log_fail(-EINVAL, "channel", "rings of %zu bytes; a ring has %u to %llu", size,
				RDMAD_CHANNEL_SIZE_MIN, RDMAD_CHANNEL_SIZE_MAX);
	if (rc == 0 && out->scheme == CHANNEL_SHM && options->common.require_rdma)
		return log_fail(-EINVAL, "channel", "%s is not RDMA, which is required", text);
	return rc;
}

int rdmad_channel_listen(const char *url, size_t size, const struct rdmad_channel_options *options,
			 struct rdmad_channel_listener **listener)
{
	struct channel_url parsed;
	int rc;

	if (!options)
		options = &defaults;
	rc = parse_options(url, size, options, &parsed);
	return rc != 0 ? rc : kinds[parsed.scheme].listen(&parsed, size, options, listener);
}

int rdmad_channel_open(const char *url, size_t size, const struct rdmad_channel_options *options,
		       struct rdmad_channel **channel)
{
	struct channel_url parsed;
	int rc;

	if (!options)
		options = &defaults;
	rc = parse_options(url, size, options, &parsed);
	return rc != 0 ? rc : kinds[parsed.scheme].open(&parsed, size, options, channel);
}

int rdmad_channel_accept(struct rdmad_channel_listener *listener, uint64_t timeout_us, struct rdmad_channel **channel)
{
	int rc = listener->ops->accept(listener, time_after(time_now(), time_of_us(timeout_us)), channel);

	if (rc == -ETIMEDOUT && timeout_us)
		log_error("channel", "no client came to %s in %llu us", listener->url, (unsigned long long)timeout_us);
	return rc;
}

int rdmad_channel_listener_fd(const struct rdmad_channel_listener *listener)
{
	return listener->ops->fd(listener);
}

const char *rdmad_channel_listener_url(const struct rdmad_channel_listener *listener)
{
	return listener->url;
}

void rdmad_channel_listener_close(struct rdmad_channel_listener *listener)
{
	if (listener)
		listener->ops->close(listener);
}
