/*
 * key.c: the key of a program: which one it proves to a server, and which one it asks its own clients for.
 *
 * A file that the program or RDMAD_KEY_FILE names counts everywhere. The user's and the machine's files, which may be
 * there for other programs, count beyond this machine only: on it the kernel says which user a peer is.
 *
 * A program that is to have MUNGE say which user it is has no key of its own. It does so to all servers, and takes no
 * clients by it: only those that rdmad introduces to it.
 *
 * Programs that rdmad introduces to each other have tickets, whatever keys they have: rdmad makes one of a secret of
 * the program that listens, and hands it to the program that is to connect.
 */
#include "engine/engine.h"
#include "rdmad/rdmad.h"

#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

#define MACHINE_FILE "/etc/rdmad/key"
#define USER_FILE "rdmad/key" /* in the user's directory of configurations */

struct issued {
	struct issued *next;
	uint32_t count;
	uint8_t secret[AUTH_SECRET];
};

struct engine_key {
	struct auth_key key;
	struct auth_key nobody; /* in place of one that is not known */
	bool everywhere;        /* this end names it to servers of this machine, too ... */
	bool from_all;          /* ... and asks clients of this machine for it */
	uid_t server;           /* see engine_key_server() */
	struct issued *issued;
	_Atomic unsigned holders;
};

/* 1: there is no such file, or it is another user's to read. */
static int load_default(const char *path, struct auth_key *out)
{
	int rc;

	log_hush_begin();
	rc = auth_key_load(path, out);
	if (rc == 0 || rc == -ENOENT || rc == -EACCES || rc == -ENOTDIR) {
		log_hush_end();
		return rc == 0 ? 0 : 1;
	}
	log_error("client", "%s", log_hush_end());
	return rc;
}

static int load_defaults(struct auth_key *out)
{
	const char *home = secure_getenv("HOME"), *directory = secure_getenv("XDG_CONFIG_HOME");
	char path[4096];
	int rc = 1, n = 0;

	if (directory && *directory == '/')
		n = snprintf(path, sizeof(path), "%s/" USER_FILE, directory);
	else if (home && *home == '/')
		n = snprintf(path, sizeof(path), "%s/.config/" USER_FILE, home);
	if (n > 0 && (size_t)n < sizeof(path))
		rc = load_default(path, out);
	return rc == 1 ? load_default(MACHINE_FILE, out) : rc;
}

static int find_user(const char *name, uid_t *out)
{
	char buffer[4096], *end;
	unsigned long number = strtoul(name, &end, 10);
	struct passwd entry, *found = NULL;

	if (*name >= '0' && *name <= '9' && !*end && number < (uid_t)-1) {
		*out = (uid_t)number;
		return 0;
	}
	getpwnam_r(name, &entry, buffer, sizeof(buffer), &found);
	if (!found)
		return log_fail(-EINVAL, "client",
				"the servers' user \"%s\" is no user of this machine, and no number of one", name);
	*out = found->pw_uid;
	return 0;
}

static int take_munge(const struct engine_key_source *source, struct engine_key *key)
{
	int rc = auth_munge_begin();

	if (rc == 0 && source->file && *source->file) {
		log_error("client", "a file of a key and MUNGE are two ways to prove who one is: choose one");
		rc = -EINVAL;
	}
	if (rc == 0 && source->server_user && *source->server_user)
		rc = find_user(source->server_user, &key->server);
	key->key = auth_munge;
	key->everywhere = true;
	return rc;
}

static int take_key(const struct engine_key_source *source, struct engine_key *key)
{
	const char *file = source->file, *fault;
	int rc;

	key->from_all = source->line && *source->line && (!file || !*file);
	if (!file || !*file)
		file = secure_getenv("RDMAD_KEY_FILE");
	key->everywhere = key->from_all || (file && *file);
	if (key->from_all) {
		fault = auth_key_parse(source->line, strlen(source->line), &key->key);
		if (fault)
			log_error("client", "RDMA_KEY: %s", fault);
		return fault ? -EINVAL : 0;
	}
	rc = key->everywhere ? auth_key_load(file, &key->key) : load_defaults(&key->key);
	if (rc != -ENOENT)
		return rc;
	return log_fail(-EINVAL, "client", "%s: there is no such file of a key; rdmactl key new makes one", file);
}

int engine_key_create(const struct engine_key_source *source, struct engine_key **out)
{
	struct engine_key *key;
	int rc = auth_begin();

	*out = NULL;
	if (rc != 0)
		return rc;
	key = calloc(1, sizeof(*key));
	if (!key)
		return -ENOMEM;
	rc = source->munge ? take_munge(source, key) : take_key(source, key);
	if (rc == 0)
		rc = auth_key_new(1, "nobody", &key->nobody);
	key->holders = 1;
	if (rc == 0)
		*out = key;
	else
		engine_key_release(key);
	return MIN(rc, 0);
}

struct engine_key *engine_key_hold(struct engine_key *key)
{
	if (key)
		key->holders++;
	return key;
}

void engine_key_release(struct engine_key *key)
{
	if (!key || --key->holders)
		return;
	engine_key_withdraw(key);
	auth_wipe(key, sizeof(*key));
	free(key);
}

int engine_key_of_ticket(const uint8_t secret[static AUTH_SECRET], struct engine_key **out)
{
	struct engine_key *key = calloc(1, sizeof(*key));

	*out = key;
	if (!key)
		return -ENOMEM;
	key->key = (struct auth_key){.id = AUTH_ID_TICKET, .name = "ticket"};
	memcpy(key->key.secret, secret, sizeof(key->key.secret));
	key->everywhere = true;
	key->holders = 1;
	return auth_key_new(1, "nobody", &key->nobody);
}

void engine_key_withdraw(struct engine_key *key)
{
	while (key->issued) {
		struct issued *first = key->issued;

		key->issued = first->next;
		auth_wipe(first, sizeof(*first));
		free(first);
	}
}

int engine_key_issue(struct engine_key *key, uint32_t count, const uint8_t secret[static AUTH_SECRET])
{
	struct issued *issued = key->issued;

	while (issued && issued->count != count)
		issued = issued->next;
	if (!issued) {
		issued = calloc(1, sizeof(*issued));
		if (!issued)
			return -ENOMEM;
		issued->count = count;
		issued->next = key->issued;
		key->issued = issued;
	}
	memcpy(issued->secret, secret, sizeof(issued->secret));
	return 0;
}

static const struct auth_key *find_ticket(const struct engine_key *key, uint32_t count, uint32_t serial,
					  struct auth_key *room)
{
	for (const struct issued *i = key ? key->issued : NULL; i; i = i->next)
		if (i->count == count) {
			auth_ticket(i->secret, count, serial, room);
			return room;
		}
	return NULL;
}

const struct auth_key *engine_key_ticket(const struct engine_key *key, uint32_t count, struct auth_key *room)
{
	return find_ticket(key, count, 0, room);
}

uid_t engine_key_server(const struct engine_key *key)
{
	return key ? key->server : 0;
}

const struct auth_key *engine_key_to(const struct engine_key *key, const struct sockaddr *sa)
{
	bool near = sa->sa_family == AF_UNIX || address_is_loopback(sa);

	return key && (key->everywhere || !near) ? &key->key : NULL;
}

enum wire_reason engine_key_from(const struct engine_key *key, const struct fabric_request *request,
				 const struct wire_request *asked, struct auth_key *room, const struct auth_key **out)
{
	struct fabric_source source;

	*out = NULL;
	if (asked->key_id == AUTH_ID_MUNGE)
		return WIRE_REASON_KEY;
	if (asked->key_id && key) {
		if (asked->key_id == AUTH_ID_TICKET)
			*out = find_ticket(key, asked->count, asked->size, room);
		else if (asked->key_id == key->key.id)
			*out = &key->key;
		if (!*out) /* a client with a ticket that is none is treated as if it had a wrong key */
			*out = &key->nobody;
		return WIRE_REASON_NONE;
	}
	fabric_request_source(request, &source);
	return asked->key_id || (key && (key->from_all || source.family != AF_UNIX)) ? WIRE_REASON_KEY
										     : WIRE_REASON_NONE;
}

static int key_info(const char *server, const struct engine_key_source *source, struct rdmad_key_info *info)
{
	struct address_socket at[ADDRESS_SOCKETS];
	const struct auth_key *proved;
	struct engine_key *key;
	struct address address;
	int rc = fabric_address_parse(server, &address);

	if (rc != 0)
		return rc;
	rc = address_resolve(&address, at);
	if (rc < 0)
		return rc;
	rc = engine_key_create(source, &key);
	if (rc != 0)
		return rc;
	proved = engine_key_to(key, (const struct sockaddr *)&at[0].sa);
	if (proved && proved->id == AUTH_ID_MUNGE) {
		info->number = proved->id;
		snprintf(info->name, sizeof(info->name), "@%u", geteuid());
	} else if (proved) {
		info->number = proved->id;
		snprintf(info->name, sizeof(info->name), "%s", proved->name);
		auth_key_fingerprint(proved, info->fingerprint);
	}
	engine_key_release(key);
	return proved ? 0 : -ENOENT;
}

int rdmad_key_info(const char *server, const struct rdmad_options *options, struct rdmad_key_info *info)
{
	struct engine_options filled;

	log_clear_last();
	engine_options_from(options, &filled);
	*info = (struct rdmad_key_info){0};
	return client_end("client", server, key_info(server, &filled.proof, info));
}

bool rdmad_transport_encrypted(const char *name)
{
	const struct fabric_transport *transport = fabric_transport_find(name);

	return transport && transport->encrypted;
}
