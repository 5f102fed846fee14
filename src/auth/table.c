/* table.c: keys and rights together, as they hold at one time; and what one connection has of them. */
#include "auth/internal.h"

#include <stdlib.h>
#include <unistd.h>

struct auth_table {
	_Atomic uint32_t references;
	struct auth_keys *keys;       /* NULL: no client is asked for a key */
	struct auth_clients *clients; /* NULL: all may do everything */
	unsigned others;              /* enum auth_others */
	struct auth_key nobody;       /* in place of one that is not known, so that its client fails at the proof */
};

int auth_table_load(const char *keys, const char *clients, unsigned others, const char *const *services,
		    struct auth_table **out)
{
	struct auth_table *table;
	int rc = auth_begin();

	if (rc != 0)
		return rc;
	table = sodium_malloc((sizeof(*table) + 15) & ~(size_t)15);
	if (!table)
		return log_fail(-ENOMEM, "auth", "no memory that may be locked");
	*table = (struct auth_table){.references = 1, .others = others};
	rc = auth_key_new(1, "nobody", &table->nobody);
	if (rc == 0 && keys)
		rc = auth_keys_load(keys, &table->keys);
	if (rc == -ENOENT)
		log_error("auth", "%s: there is no such file; rdmactl key new NAME --into %s makes it", keys, keys);
	if (rc == 0 && clients) {
		rc = auth_clients_load(clients, services, &table->clients);
		if (rc == -ENOENT)
			log_error("auth", "%s: there is no such file", clients);
	}
	if (rc == 0)
		*out = table;
	else
		auth_table_put(table);
	return rc;
}

struct auth_table *auth_table_get(struct auth_table *table)
{
	atomic_fetch_add(&table->references, 1);
	return table;
}

void auth_table_put(struct auth_table *table)
{
	if (!table || atomic_fetch_sub(&table->references, 1) > 1)
		return;
	auth_keys_free(table->keys);
	auth_clients_free(table->clients);
	sodium_free(table);
}

bool auth_table_asks(const struct auth_table *table)
{
	return table->keys || table->others & AUTH_MUNGE;
}

const struct auth_key *auth_table_key(const struct auth_table *table, size_t index)
{
	return table->keys && index < auth_keys_count(table->keys) ? auth_keys_at(table->keys, index) : NULL;
}

const struct auth_client *auth_table_client(const struct auth_table *table, const char *name)
{
	return auth_clients_find(table->clients, name);
}

bool auth_admit(struct auth_table *table, uint16_t key_id, bool is_user, uid_t uid, struct auth_admission *out)
{
	*out = (struct auth_admission){.uid = uid, .is_user = is_user};
	if (key_id == AUTH_ID_MUNGE) {
		if (!(table->others & AUTH_MUNGE))
			return false;
		out->key = &auth_munge;
		out->client = &auth_nothing;
	} else if (key_id) {
		const struct auth_key *key = table->keys ? auth_keys_find(table->keys, key_id) : NULL;
		const struct auth_client *client;

		if (!table->keys)
			return false;
		/* A number that is not known takes as long as another one. */
		client = auth_clients_find(table->clients, (key ? key : auth_keys_at(table->keys, 0))->name);
		out->known = key;
		out->key = key ? key : &table->nobody;
		out->client = key ? client : &auth_nothing;
	} else if (table->others & AUTH_OWN_USERS && !(is_user && (uid == 0 || uid == geteuid()))) {
		return false;
	} else if (is_user) {
		out->client = auth_clients_user(table->clients, uid);
	} else if (auth_table_asks(table)) {
		return false;
	} else {
		out->client = auth_clients_find(table->clients, "*");
	}
	out->table = auth_table_get(table);
	return true;
}

bool auth_may_use(const struct auth_admission *admission, unsigned service)
{
	return (admission->key && !admission->known) || !admission->client ||
	       admission->client->services & 1u << service;
}

void auth_identify(struct auth_admission *admission, uid_t uid)
{
	must(!admission->table || admission->key == &auth_munge);
	admission->known = true;
	admission->uid = uid;
	if (admission->table)
		admission->client = auth_clients_user(admission->table->clients, uid);
}

/* Computes the password of each key of that name, or one where there is none. */
static const struct auth_key *find_password(const struct auth_table *table, const char *name, const char *secret)
{
	const struct auth_key *key, *fits = NULL;
	char right[AUTH_PASSWORD];
	bool any = false;

	for (size_t i = 0; (key = auth_table_key(table, i)); i++) {
		if (strcmp(key->name, name) != 0)
			continue;
		any = true;
		auth_password(key, right);
		if (sodium_memcmp(right, secret, sizeof(right) - 1) == 0)
			fits = key;
	}
	if (!any)
		auth_password(&table->nobody, right);
	auth_wipe(right, sizeof(right));
	return fits;
}

bool auth_password_admit(struct auth_table *table, const char *name, size_t name_len, const char *secret, size_t len,
			 struct auth_admission *out)
{
	char given[AUTH_PASSWORD] = "", text[AUTH_NAME_MAX + 1] = "";
	const struct auth_key *key;

	if (name_len <= AUTH_NAME_MAX && !memchr(name, 0, name_len))
		memcpy(text, name, name_len);
	if (len == sizeof(given) - 1)
		memcpy(given, secret, len);
	key = find_password(table, text, given);
	auth_wipe(given, sizeof(given));
	if (!key)
		return false;
	*out = (struct auth_admission){
		.table = auth_table_get(table),
		.key = key,
		.client = auth_clients_find(table->clients, key->name),
		.known = true,
	};
	return true;
}

bool auth_has_place(const struct auth_client *client)
{
	return !client->open || atomic_load(client->open) < client->connections;
}

bool auth_enter(struct auth_admission *admission)
{
	const struct auth_client *client = admission->client;

	admission->proved = true;
	if (!client || !client->open)
		return true;
	admission->entered = true;
	return atomic_fetch_add(client->open, 1) < client->connections;
}

bool auth_readmit(struct auth_admission *admission, struct auth_table *table)
{
	const struct auth_key *old = admission->key;
	struct auth_admission fresh;

	if (!admission->table || admission->table == table)
		return true;
	if (!auth_admit(table, old ? old->id : 0, admission->is_user, admission->uid, &fresh))
		return false;
	if (old == &auth_munge) {
		if (admission->known)
			auth_identify(&fresh, admission->uid);
	} else if (old && (!fresh.known || strcmp(old->name, fresh.key->name) != 0 ||
			   sodium_memcmp(old->secret, fresh.key->secret, sizeof(old->secret)) != 0)) {
		auth_admission_end(&fresh);
		return false;
	}
	if (admission->proved)
		auth_enter(&fresh);
	auth_admission_end(admission);
	*admission = fresh;
	return true;
}

void auth_admission_end(struct auth_admission *admission)
{
	if (admission->entered)
		atomic_fetch_sub(admission->client->open, 1);
	auth_table_put(admission->table);
	*admission = (struct auth_admission){0};
}

char *auth_admission_name(const struct auth_admission *admission, char out[static AUTH_NAME_MAX + 1])
{
	const struct auth_key *key = admission->key;

	*out = '\0';
	if (key && key != &auth_munge && admission->proved)
		snprintf(out, AUTH_NAME_MAX + 1, "%s", key->name);
	else if (admission->is_user || (key == &auth_munge && admission->known))
		snprintf(out, AUTH_NAME_MAX + 1, "@%u", (unsigned)admission->uid);
	return out;
}
