/* access.c: which clients may come in: the files of keys and of rights, read at the start and by each reload. */
#include "daemon/daemon.h"

#include <sys/prctl.h>
#include <sysexits.h>
#include <unistd.h>

#include "config.h"

#define KEYS SYSCONFDIR "/rdmad/keys"
#define CLIENTS SYSCONFDIR "/rdmad/clients"

/* A file that the configuration does not name counts where it is there. */
static const char *path_or(const char *named, const char *usual)
{
	return named ? named : access(usual, F_OK) == 0 || errno != ENOENT ? usual : NULL;
}

/* It may start later than this one. */
static void warn_without_munged(void)
{
	char credential[AUTH_CREDENTIAL_MAX], why[AUTH_WHY];

	if (auth_munge_encode("", 0, geteuid(), credential, why) != 0)
		log_warn("rdmad", "auth.munge is true, and no client can prove itself so for now: %s", why);
}

int access_load(const struct config *config, struct auth_table **out)
{
	const char *services[WIRE_SERVICES + 1] = {NULL};
	int rc;

	for (unsigned i = 0; i < WIRE_SERVICES; i++)
		services[i] = service_find(i) ? wire_service_name(i) : "";
	rc = config->auth_munge ? auth_munge_begin() : 0;
	if (rc == 0)
		rc = auth_table_load(path_or(config->auth_keys, KEYS), path_or(config->auth_clients, CLIENTS),
				     (config->auth_local == ACCESS_USER ? AUTH_OWN_USERS : 0) |
					     (config->auth_munge ? AUTH_MUNGE : 0),
				     services, out);
	if (rc == 0 && config->auth_encrypt == CONN_REQUIRE && !auth_table_asks(*out)) {
		log_error("rdmad", "auth.encrypt is \"require\", which needs keys: rdmactl key new NAME --into " KEYS
				   ", or auth.munge = true");
		auth_table_put(*out);
		return -EINVAL;
	}
	if (rc == 0 && config->auth_munge)
		warn_without_munged();
	return rc == -EACCES ? -EPERM : rc;
}

bool access_may_expose(const struct config *config, const struct auth_table *access, const char *address)
{
	if (config->insecure || auth_table_asks(access))
		return true;
	log_error(
		"rdmad",
		"%s is for other machines, and there are no keys: each host that reaches it could do everything. Make "
		"one for each client: rdmactl key new NAME --into " KEYS "; or, in a network that is trusted, set "
		"insecure = true; or listen on the loopback alone; see rdmad-auth(7) (RD-5002)",
		address);
	return false;
}

int access_open(struct daemon *d)
{
	int rc = access_load(d->config, &d->access);

	/* Other programs of this user do not read its memory, nor does a core file have the keys. */
	if (rc == 0 && auth_table_asks(d->access) && prctl(PR_SET_DUMPABLE, 0) != 0)
		log_warn("rdmad", "programs of this user could read the daemon's memory: %m");
	return rc == 0 ? 0 : rc == -EPERM ? EX_NOPERM : rc == -ENOMEM ? EX_OSERR : EX_CONFIG;
}

void access_close(struct daemon *d)
{
	auth_table_put(d->access);
	d->access = NULL;
}

void access_replace(struct daemon *d, struct auth_table *fresh)
{
	must(daemon_is_main(d));
	auth_table_put(d->access);
	d->access = fresh;
	workers_tell(d, WORKER_ACCESS);
}
