/*
 * acl.c: ACL: which client it is, and what it may do, in Redis's terms. It tells and changes nothing: keys and rights
 * are files, see rdmad-auth(7). Of other clients it tells only clients that may do everything.
 */
#include "service/resp/server.h"

#include <stdlib.h>

#define LOOK_BACK 256 /* keys: a client that has several is told once, if they are not farther apart */

struct category {
	const char *name;
	unsigned flags;     /* of commands of which it is true, any of them */
	unsigned not_flags; /* or of commands that have none of these */
	int group;          /* or of these; -1: none */
};

static const struct category categories[] = {
	{"keyspace", 0, 0, RESP_GENERIC},
	{"read", RESP_READONLY, 0, -1},
	{"write", RESP_WRITE, 0, -1},
	{"set", 0, 0, -1},
	{"sortedset", 0, 0, -1},
	{"list", 0, 0, -1},
	{"hash", 0, 0, RESP_HASH},
	{"string", 0, 0, RESP_STRING},
	{"bitmap", 0, 0, -1},
	{"hyperloglog", 0, 0, -1},
	{"geo", 0, 0, -1},
	{"stream", 0, 0, -1},
	{"pubsub", RESP_PUBSUB, 0, RESP_PUBSUB_GROUP},
	{"admin", RESP_ADMIN, 0, -1},
	{"fast", RESP_FAST, 0, -1},
	{"slow", 0, RESP_FAST, -1},
	{"blocking", RESP_BLOCKING, 0, -1},
	{"dangerous", RESP_ADMIN | RESP_DANGEROUS, 0, -1},
	{"connection", 0, 0, RESP_CONNECTION},
	{"transaction", 0, 0, RESP_TRANSACTIONS},
	{"scripting", 0, 0, RESP_SCRIPTING},
};

static const struct category *find_category(const struct resp_arg *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(categories); i++)
		if (resp_is(name, categories[i].name))
			return &categories[i];
	return NULL;
}

static bool is_in(const struct resp_command *command, const struct category *category)
{
	return command->flags & category->flags || (category->not_flags && !(command->flags & category->not_flags)) ||
	       (int)command->group == category->group;
}

bool resp_in_category(const struct resp_command *command, const struct resp_arg *name)
{
	const struct category *category = find_category(name);

	return category && is_in(command, category);
}

int resp_do_acl_cat(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	const struct category *category;
	unsigned n = 0;

	if (argc > 3)
		return resp_bad_arity(c, "acl|cat");
	if (argc == 2) {
		resp_array(c->out, ARRAY_SIZE(categories));
		for (size_t i = 0; i < ARRAY_SIZE(categories); i++)
			resp_bulk_text(c->out, categories[i].name);
		return 0;
	}
	category = find_category(&argv[2]);
	if (!category) {
		resp_error(c->out, "ERR Unknown category '%.*s'", (int)MIN(argv[2].len, 128u), argv[2].at);
		return 0;
	}
	for (unsigned id = 0; id < RESP_IDS; id++)
		n += resp_serve[id] && is_in(&resp_commands[id], category);
	resp_array(c->out, n);
	for (unsigned id = 0; id < RESP_IDS; id++)
		if (resp_serve[id] && is_in(&resp_commands[id], category))
			resp_bulk_text(c->out, resp_commands[id].name);
	return 0;
}

int resp_do_acl_whoami(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	resp_bulk_text(c->out, c->seen.user);
	return 0;
}

/*
 * Rights as words of Redis's
 */

/* Keys that begin so, after the mark "~", "%R~" or "%W~"; channels after "&". */
static void put_prefixes(struct resp_out *text, const struct auth_client *client, enum auth_access access,
			 const char *mark)
{
	const struct auth_prefixes *prefixes = &client->prefixes[access];

	for (unsigned i = 0; !prefixes->all && i < prefixes->count; i++) {
		resp_print(text, "%s%s", text->len ? " " : "", mark);
		resp_raw(text, client->text + prefixes->prefix[i].offset, prefixes->prefix[i].length);
		resp_raw(text, "*", 1);
	}
	if (prefixes->all)
		resp_print(text, "%s%s*", text->len ? " " : "", mark);
}

static void put_keys(struct resp_out *text, const struct auth_client *client)
{
	if (client->prefixes[AUTH_READ].all && client->prefixes[AUTH_WRITE].all) {
		resp_print(text, "~*");
		return;
	}
	put_prefixes(text, client, AUTH_READ, "%R~");
	put_prefixes(text, client, AUTH_WRITE, "%W~");
}

static const char *commands_of(const struct auth_client *client)
{
	if (!(client->services & 1u << WIRE_RESP))
		return "-@all";
	return client->flush ? "+@all" : "+@all -flushall -flushdb";
}

/* The users that a client is told of, from 0 on; NULL: there are no more. */
static const char *next_user(const struct resp_client *c, size_t *at)
{
	const struct auth_table *table = stream_admission(c->stream)->table;
	const struct auth_key *key;

	if (resp_is_open(c) || !auth_has_all(stream_client(c->stream)))
		return (*at)++ == 0 ? c->seen.user : NULL;
	for (; (key = auth_table_key(table, *at)); ++*at) {
		size_t before = *at > LOOK_BACK ? *at - LOOK_BACK : 0;

		while (before < *at && strcmp(auth_table_key(table, before)->name, key->name) != 0)
			before++;
		if (before == *at) { /* the first of its name */
			++*at;
			return key->name;
		}
	}
	return NULL;
}

static const struct auth_client *client_of(const struct resp_client *c, const char *user)
{
	return strcmp(user, c->seen.user) == 0 ? stream_client(c->stream)
					       : auth_table_client(stream_admission(c->stream)->table, user);
}

static unsigned count_users(const struct resp_client *c)
{
	unsigned n = 0;

	for (size_t at = 0; next_user(c, &at);)
		n++;
	return n;
}

int resp_do_acl_users(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	const char *user;

	resp_array(c->out, count_users(c));
	for (size_t at = 0; (user = next_user(c, &at));)
		resp_bulk_text(c->out, user);
	return 0;
}

int resp_do_acl_list(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	const char *user;

	resp_array(c->out, count_users(c));
	for (size_t at = 0; (user = next_user(c, &at));) {
		const struct auth_client *client = client_of(c, user);
		struct resp_out text = {.most = MIB};

		put_keys(&text, client);
		put_prefixes(&text, client, AUTH_NAMES, "&");
		resp_bulk_begin(c->out, strlen(user) + text.len + strlen(commands_of(client)) +
						(resp_is_open(c) ? strlen("user  on nopass  ") : strlen("user  on  ")));
		resp_print(c->out, "user %s on%s ", user, resp_is_open(c) ? " nopass" : "");
		resp_raw(c->out, text.at ? text.at : "", text.len);
		resp_print(c->out, " %s", commands_of(client));
		resp_bulk_end(c->out);
		free(text.at);
	}
	return 0;
}

static void tell_text(struct resp_client *c, const char *name, struct resp_out *text)
{
	resp_bulk_text(c->out, name);
	resp_bulk(c->out, text->at ? text->at : "", text->len);
	free(text->at);
}

static int tell_user(struct resp_client *c, const struct auth_client *client)
{
	struct resp_out keys = {.most = MIB}, channels = {.most = MIB};

	put_keys(&keys, client);
	put_prefixes(&channels, client, AUTH_NAMES, "&");
	resp_map(c->out, 6);
	resp_bulk_text(c->out, "flags");
	resp_set(c->out, resp_is_open(c) ? 2 : 1);
	resp_bulk_text(c->out, "on");
	if (resp_is_open(c))
		resp_bulk_text(c->out, "nopass");
	resp_bulk_text(c->out, "passwords");
	resp_array(c->out, 0);
	resp_bulk_text(c->out, "commands");
	resp_bulk_text(c->out, commands_of(client));
	tell_text(c, "keys", &keys);
	tell_text(c, "channels", &channels);
	resp_bulk_text(c->out, "selectors");
	resp_array(c->out, 0);
	return 0;
}

int resp_do_acl_getuser(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	const char *user;

	for (size_t at = 0; (user = next_user(c, &at));)
		if (argv[2].len == strlen(user) && memcmp(argv[2].at, user, argv[2].len) == 0)
			return tell_user(c, client_of(c, user));
	resp_null(c->out);
	return 0;
}

int resp_do_acl_help(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	static const char *const lines[] = {
		"ACL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
		"CAT [<category>]",
		"    List all commands that belong to <category>, or all command categories",
		"    when no category is specified.",
		"GETUSER <username>",
		"    Get the user's details.",
		"LIST",
		"    Show users details in config file format.",
		"USERS",
		"    List all the registered usernames.",
		"WHOAMI",
		"    Return the current connection username.",
		"HELP",
		"    Prints this help.",
	};

	return resp_help(c, lines, ARRAY_SIZE(lines));
}
