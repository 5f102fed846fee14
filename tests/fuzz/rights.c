/* rights.c: files of rights. A table that is taken answers for each name, and a prefix holds for what begins with it. */
#include "auth/internal.h"
#include "fuzz.h"

static const char *const services[] = {"ping", "kv", "gpu", "channel", "peer", NULL};

static void try_client(const struct auth_client *client)
{
	char name[UINT16_MAX + 2];

	for (unsigned access = 0; access < AUTH_ACCESSES; access++) {
		const struct auth_prefixes *prefixes = &client->prefixes[access];

		REQUIRE(prefixes->count <= AUTH_PREFIXES_MAX && auth_may(client, access, "", 0) == prefixes->all);
		for (unsigned i = 0; i < prefixes->count; i++) {
			uint16_t length = prefixes->prefix[i].length;

			memcpy(name, client->text + prefixes->prefix[i].offset, length);
			name[length] = 'x';
			REQUIRE(length > 0 && auth_may(client, access, name, length));
			REQUIRE(auth_may(client, access, name, (size_t)length + 1));
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct auth_clients *clients;

	fuzz_silence();
	REQUIRE(auth_begin() == 0);
	if (auth_clients_parse("rights", (const char *)data, size, services, &clients) != 0)
		return 0;
	try_client(auth_clients_find(clients, "app"));
	try_client(auth_clients_find(clients, "lab"));
	try_client(auth_clients_user(clients, 1000));
	try_client(auth_clients_user(clients, 7));
	auth_clients_free(clients);
	return 0;
}
