/*
 * login.c: ASCII authentication. A client that may not come otherwise says "set <any key> <flags> <exptime> <bytes>" at
 * first, and as the value its name and a password.
 */
#include "service/memcached/memcached.h"

#define SECRET_MAX 1024 /* bytes of a name and a password */

static const char *admit_name(struct memcached_client *c, const struct memc_word *name, const struct memc_word *secret)
{
	struct auth_admission admission;

	if (!text_takes_password(c->thread->shared->settings, c->fd))
		return "CLIENT_ERROR authentication failure: others may hear a password on its way from another "
		       "machine, "
		       "see memcached.clear in rdmad-memcached(7)";
	if (!auth_password_admit(stream_admission(c->stream)->table, name->at, name->len, secret->at, secret->len,
				 &admission))
		return "CLIENT_ERROR authentication failure";
	if (!(admission.client->services & 1u << WIRE_MEMCACHED)) {
		auth_admission_end(&admission);
		return "CLIENT_ERROR authentication failure: the client has no right to memcached, see rdmad-auth(7)";
	}
	if (!stream_admit(c->stream, &admission)) {
		auth_admission_end(&admission);
		return "CLIENT_ERROR authentication failure: the client has as many connections as it may";
	}
	memcached_client_revised(c);
	return NULL;
}

static void check_login(struct memcached_client *c, const char *at, size_t len)
{
	struct memc_word name, secret;
	const char *error;

	if (memcmp(at + len - 2, "\r\n", 2) != 0) {
		memc_line(c->out, "CLIENT_ERROR bad command line termination");
		return;
	}
	if (!memc_parse_secret(at, len - 2, &name, &secret)) {
		memc_line(c->out, "CLIENT_ERROR bad authentication token format");
		return;
	}
	error = admit_name(c, &name, &secret);
	memcached_count(c, MEMCACHED_AUTH_CMDS);
	if (error)
		memcached_count(c, MEMCACHED_AUTH_ERRORS);
	memc_line(c->out, error ? error : "STORED");
}

ssize_t memcached_login(struct memcached_client *c, const char *at, size_t len)
{
	const char *end;
	uint32_t bytes;

	if (c->login) {
		size_t used = c->login;

		if (len < used)
			return 0;
		c->login = 0;
		check_login(c, at, used);
		return (ssize_t)used;
	}
	end = memchr(at, '\n', MIN(len, MEMC_LINE_MAX));
	if (!end)
		return len >= MEMC_LINE_MAX ? -EPROTO : 0;
	if (!memc_parse_login(at, (size_t)(end - at), &bytes))
		memc_line(c->out, "CLIENT_ERROR unauthenticated");
	else if (bytes > SECRET_MAX)
		return -EPROTO;
	else
		c->login = bytes + 2;
	return end + 1 - at;
}
