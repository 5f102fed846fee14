/* key.c: keys of clients: a new one, which ones a file has, and what a server lets this client do. */
#include "auth/auth.h"
#include "ctl/ctl.h"
#include "rdmad/channel.h"
#include "rdmad/gpu.h"
#include "rdmad/kv.h"
#include "rdmad/peer.h"
#include "rdmad/ping.h"
#include "wire/wire.h"

#include <inttypes.h>

static const char *into;

static const struct ctl_option new_options[] = {
	{"into", 0, CTL_TEXT, &into, "FILE", "append it to the server's file, which is made if it is not there"},
	{NULL},
};

static int command_new(const struct ctl_arguments *arguments)
{
	const char *name = arguments->text[0];
	char line[AUTH_LINE_MAX], print[9];
	struct auth_key key;
	uint16_t number;
	int rc = auth_begin();

	if (rc == 0 && !auth_name_valid(name))
		return ctl_usage_error("\"%s\" is no name of a client: it has 1 to %u of letters, digits and \"._-\"",
				       name, AUTH_NAME_MAX);
	if (rc == 0 && into)
		rc = auth_keys_append(into, name, &key);
	else if (rc == 0 && (rc = random_fill(&number, sizeof(number))) == 0)
		rc = auth_key_new(number % AUTH_ID_MAX + 1u, name, &key);
	if (rc != 0)
		return (int)ctl_exit_of(rc); /* the reason was logged */
	auth_key_format(&key, line);
	if (ctl.json)
		rc = ctl_json_print(json_pack("{s:i, s:s, s:s, s:s}", "number", key.id, "name", key.name, "fingerprint",
					      auth_key_fingerprint(&key, print), "key", line));
	else
		puts(line);
	if (!ctl.json && ctl_sums_up())
		ctl_say("%s: key %u of %s, fingerprint %s; the line is for the client's file of mode 0600%s%s",
			ctl_command_name(), key.id, key.name, auth_key_fingerprint(&key, print),
			into ? "" : ", and for the server's", into ? ", and rdmactl reload tells the server" : "");
	auth_wipe(&key, sizeof(key));
	auth_wipe(line, sizeof(line));
	return rc;
}

static int command_list(const struct ctl_arguments *arguments)
{
	json_t *list = ctl.json ? json_array() : NULL;
	struct ctl_table table;
	struct auth_keys *keys;
	char print[9];
	int rc = auth_begin();

	if (rc == 0)
		rc = auth_keys_load(arguments->text[0], &keys);
	if (rc != 0) {
		json_decref(list);
		return rc == -ENOENT ? ctl_fail(rc, strerror(-rc), "%s: %s", ctl_command_name(), arguments->text[0])
				     : (int)ctl_exit_of(rc); /* and the reason was logged */
	}
	ctl_table_init(&table);
	ctl_table_column(&table, "number", true);
	ctl_table_column(&table, "name", false);
	ctl_table_column(&table, "fingerprint", false);
	for (size_t i = 0; i < auth_keys_count(keys); i++) {
		const struct auth_key *key = auth_keys_at(keys, i);

		auth_key_fingerprint(key, print);
		if (list) {
			json_array_append_new(list, json_pack("{s:i, s:s, s:s}", "number", key->id, "name", key->name,
							      "fingerprint", print));
			continue;
		}
		ctl_table_cell(&table, "%u", key->id);
		ctl_table_cell(&table, "%s", key->name);
		ctl_table_cell(&table, "%s", print);
	}
	auth_keys_free(keys);
	if (list)
		rc = ctl_json_print(json_pack("{s:o}", "keys", list));
	else
		ctl_table_print(stdout, &table, 0);
	ctl_table_destroy(&table);
	return rc;
}

/* The newest of that name: they are in the order of their numbers. */
static int command_resp(const struct ctl_arguments *arguments)
{
	const char *file = arguments->text[0], *name = arguments->text[1];
	const struct auth_key *key = NULL;
	char password[AUTH_PASSWORD];
	struct auth_keys *keys;
	int rc = auth_begin();

	if (rc == 0)
		rc = auth_keys_load(file, &keys);
	if (rc != 0)
		return rc == -ENOENT ? ctl_fail(rc, strerror(-rc), "%s: %s", ctl_command_name(), file)
				     : (int)ctl_exit_of(rc); /* and the reason was logged */
	for (size_t i = 0; i < auth_keys_count(keys); i++)
		if (strcmp(auth_keys_at(keys, i)->name, name) == 0)
			key = auth_keys_at(keys, i);
	if (!key) {
		rc = ctl_fail(-ENOENT, "no such key", "%s: %s has no key of %s: rdmactl key list %s",
			      ctl_command_name(), file, name, file);
	} else {
		auth_password(key, password);
		if (ctl.json)
			rc = ctl_json_print(json_pack("{s:i, s:s, s:s}", "number", key->id, "name", key->name,
						      "password", password));
		else
			puts(password);
	}
	auth_wipe(password, sizeof(password));
	auth_keys_free(keys);
	return rc;
}

/*
 * What a server lets the key do: one connection for each service
 */
static int try_ping(const struct rdmad_options *common, char transport[8])
{
	struct rdmad_ping_options options = {.common = *common};
	struct rdmad_ping *ping;
	int rc = rdmad_ping_open(ctl.host, &options, &ping);

	if (rc != 0)
		return rc;
	snprintf(transport, 8, "%s", rdmad_ping_transport(ping));
	rdmad_ping_close(ping);
	return 0;
}

static int try_kv(const struct rdmad_options *common, char transport[8])
{
	void *kv;
	int rc = kv_open_options(ctl.host, common, NULL, &kv);

	if (rc != 0)
		return rc;
	snprintf(transport, 8, "%s", kv_transport(kv));
	kv_close(kv);
	return 0;
}

static int try_gpu(const struct rdmad_options *common, char transport[8])
{
	struct rdmad_gpu_info info;
	int rc = rdmad_gpu_server_info(ctl.host, common, &info);

	if (rc == 0)
		snprintf(transport, 8, "%s", info.transport);
	return rc;
}

static int first_name(void *arg, const struct rdmad_channel_entry *entry)
{
	(void)arg, (void)entry;
	return 1;
}

static int try_channel(const struct rdmad_options *common, char transport[8])
{
	return MIN(rdmad_channel_list(ctl.host, common, first_name, NULL, transport), 0);
}

static int first_member(void *arg, const struct rdmad_peer_entry *entry)
{
	(void)arg, (void)entry;
	return 1;
}

static int try_peer(const struct rdmad_options *common, char transport[8])
{
	return MIN(rdmad_peer_list(ctl.host, common, first_member, NULL, transport), 0);
}

static const struct {
	enum wire_service service;
	int (*open)(const struct rdmad_options *common, char transport[8]);
} tries[] = {{WIRE_PING, try_ping},
	     {WIRE_KV, try_kv},
	     {WIRE_GPU, try_gpu},
	     {WIRE_CHANNEL, try_channel},
	     {WIRE_PEER, try_peer}};

/* Try each service. That this client may not use one, or that the server does not offer it, is no fault of the key. */
static int check_services(const struct rdmad_options *options, struct ctl_table *table, json_t *services,
			  char transport[8])
{
	for (size_t i = 0; i < ARRAY_SIZE(tries); i++) {
		int rc = tries[i].open(options, transport);
		const char *answer = rc == 0 ? "yes" : rc == -EPERM ? "no right" : "not offered";

		if (rc != 0 && rc != -EPERM && rc != wire_reason_errno(WIRE_REASON_SERVICE))
			return rc;
		if (services)
			json_object_set_new(services, wire_service_name(tries[i].service), json_string(answer));
		ctl_table_cell(table, "%s", wire_service_name(tries[i].service));
		ctl_table_cell(table, "%s", answer);
	}
	return 0;
}

static int command_check(const struct ctl_arguments *arguments)
{
	json_t *services = ctl.json ? json_object() : NULL;
	struct rdmad_options options;
	struct rdmad_key_info info;
	struct ctl_table table;
	char transport[8] = "";
	int rc;

	(void)arguments;
	ctl_library_options(&options);
	ctl_table_init(&table);
	ctl_table_column(&table, "service", false);
	ctl_table_column(&table, "may use", false);
	rc = rdmad_key_info(ctl.host, &options, &info);
	if (rc == 0 || rc == -ENOENT)
		rc = check_services(&options, &table, services, transport);
	if (rc != 0) {
		json_decref(services);
		rc = ctl_fail_open(rc, ctl.host);
	} else if (ctl.json) {
		json_t *key = info.number ? json_pack("{s:i, s:s, s:s}", "number", info.number, "name", info.name,
						      "fingerprint", info.fingerprint)
					  : json_null();

		rc = ctl_json_print(json_pack("{s:s, s:s, s:o, s:s, s:b, s:o}", "command", "key check", "server",
					      ctl.host, "key", key, "transport", transport, "encrypted",
					      rdmad_transport_encrypted(transport), "services", services));
	} else {
		if (info.number == AUTH_ID_MUNGE)
			printf("key: none, but MUNGE; to the server this is %s\n", info.name);
		else if (info.number)
			printf("key: %u of %s, fingerprint %s; the server has proved the same\n", info.number,
			       info.name, info.fingerprint);
		else
			printf("key: none, and the server asks for none\n");
		printf("transport: %s, %sencrypted\n", *transport ? transport : "none",
		       rdmad_transport_encrypted(transport) ? "" : "not ");
		ctl_table_print(stdout, &table, 0);
	}
	ctl_table_destroy(&table);
	return rc;
}

const struct ctl_command ctl_key_commands[] = {
	{"key new", command_new, "NAME", "make a key for a client", new_options, 1, 1, .local = true},
	{"key list", command_list, "FILE", "number, name and fingerprint of each key of a file", NULL, 1, 1,
	 .local = true},
	{"key resp", command_resp, "FILE NAME", "the password of a client that speaks Redis's protocol", NULL, 2, 2,
	 .local = true},
	{"key check", command_check, "", "what the server lets this client's key do", NULL, 0, 0},
	{NULL},
};
