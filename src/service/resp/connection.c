/* connection.c: HELLO, AUTH, and other commands about the connection. */
#include "service/resp/server.h"

#include <stdlib.h>

static const char no_password[] = "ERR AUTH <password> called without any password configured for the default user. "
				  "Are you sure your configuration is correct?";

char *resp_text(const struct resp_arg *arg)
{
	return strndup(arg->at, arg->len);
}

/*
 * Names and passwords
 */

bool resp_is_open(const struct resp_client *c)
{
	const struct auth_table *table = stream_admission(c->stream)->table;

	return !table || !auth_table_key(table, 0);
}

bool resp_may_all(struct resp_client *c)
{
	if (auth_has_all(stream_client(c->stream)))
		return true;
	resp_error(c->out, "NOPERM this user has no permissions to run the '%s' command", c->command->name);
	return false;
}

static bool wrong_password(struct resp_client *c)
{
	resp_error(c->out, "WRONGPASS invalid username-password pair or user is disabled.");
	return false;
}

/* False: it was answered. */
static bool authenticate_client(struct resp_client *c, const struct resp_arg *name, const struct resp_arg *secret)
{
	struct auth_admission admission;

	if (resp_is_open(c)) /* then each password of the default user is right */
		return (name->len == strlen(RESP_DEFAULT_USER) &&
			memcmp(name->at, RESP_DEFAULT_USER, name->len) == 0) ||
		       wrong_password(c);
	if (!text_takes_password(&c->thread->shared->settings->text, c->seen.fd)) {
		resp_error(c->out, "ERR others may hear a password on its way from another machine: rdmad takes it by "
				   "loopback and UNIX sockets, and else with resp.clear = true, see rdmad-resp(7)");
		return false;
	}
	if (!auth_password_admit(stream_admission(c->stream)->table, name->at, name->len, secret->at, secret->len,
				 &admission))
		return wrong_password(c);
	if (!(admission.client->services & 1u << WIRE_RESP)) {
		resp_error(c->out, "NOPERM this user has no right to the service resp: see rdmad-auth(7)");
		auth_admission_end(&admission);
		return false;
	}
	if (!stream_admit(c->stream, &admission)) {
		resp_error(c->out, "ERR max number of clients reached: this user has as many connections as it may");
		auth_admission_end(&admission);
		return false;
	}
	resp_client_revised(c);
	return true;
}

int resp_do_auth(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	static const struct resp_arg user = {RESP_DEFAULT_USER, sizeof(RESP_DEFAULT_USER) - 1};

	if (argc > 3)
		return resp_syntax_error(c);
	if (argc == 2 && resp_is_open(c))
		resp_error(c->out, "%s", no_password);
	else if (authenticate_client(c, argc == 2 ? &user : &argv[1], &argv[argc - 1]))
		resp_ok(c);
	return 0;
}

static void tell_server(struct resp_client *c)
{
	resp_map(c->out, 7);
	resp_bulk_text(c->out, "server");
	resp_bulk_text(c->out, "redis");
	resp_bulk_text(c->out, "version");
	resp_bulk_text(c->out, RESP_REDIS_VERSION);
	resp_bulk_text(c->out, "proto");
	resp_number(c->out, c->three ? 3 : 2);
	resp_bulk_text(c->out, "id");
	resp_number(c->out, (int64_t)c->id);
	resp_bulk_text(c->out, "mode");
	resp_bulk_text(c->out, c->thread->shared->kv->cluster ? "cluster" : "standalone");
	resp_bulk_text(c->out, "role");
	resp_bulk_text(c->out, "master");
	resp_bulk_text(c->out, "modules");
	resp_array(c->out, 0);
}

/* In the order in which Redis looks at it, so that clients that fall back find the error that they know. */
int resp_do_hello(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	const struct resp_arg *user = NULL, *name = NULL;
	int64_t version = 0;

	if (argc > 1 && !resp_read_int64(argv[1].at, argv[1].len, &version)) {
		resp_error(c->out, "ERR Protocol version is not an integer or out of range");
		return 0;
	}
	if (argc > 1 && version != 2 && version != 3) {
		resp_error(c->out, "NOPROTO unsupported protocol version");
		return 0;
	}
	for (unsigned i = 2; i < argc; i++) {
		if (resp_is(&argv[i], "auth") && i + 2 < argc) {
			user = &argv[i + 1];
			i += 2;
		} else if (resp_is(&argv[i], "setname") && i + 1 < argc) {
			name = &argv[++i];
			if (!resp_name_fits(c, name))
				return 0;
		} else {
			resp_error(c->out, "ERR Syntax error in HELLO option '%.*s'", (int)MIN(argv[i].len, 128u),
				   argv[i].at);
			return 0;
		}
	}
	if (user && !authenticate_client(c, user, user + 1))
		return 0;
	if (!c->authenticated) {
		resp_error(c->out, "NOAUTH HELLO must be called with the client already authenticated, otherwise the "
				   "HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and "
				   "select the RESP protocol version at the same time");
		return 0;
	}
	if (name)
		resp_set_name(c, name);
	if (version)
		resp_set_three(c, version == 3);
	tell_server(c);
	return 0;
}

/* As at the beginning; with keys, it has to give a password again. */
int resp_do_reset(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	resp_multi_free(c);
	resp_pubsub_leave(c);
	resp_track_end(c);
	resp_seen_reset(c);
	c->reply = RESP_REPLY_ON;
	if (stream_admission(c->stream)->key) {
		struct auth_admission nothing = {.client = &auth_nothing,
						 .table = auth_table_get(stream_admission(c->stream)->table)};

		stream_admit(c->stream, &nothing); /* which has no limit */
		resp_client_revised(c);
	}
	resp_simple(c->out, "RESET");
	return 0;
}

/*
 * The connection
 */

int resp_do_ping(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	bool subscribed = resp_subscriptions(c);

	if (argc > 2)
		return resp_bad_arity(c, "ping");
	if (subscribed && !c->three) {
		resp_array(c->out, 2);
		resp_bulk_text(c->out, "pong");
		resp_bulk(c->out, argc > 1 ? argv[1].at : "", argc > 1 ? argv[1].len : 0);
	} else if (argc > 1) {
		resp_bulk(c->out, argv[1].at, argv[1].len);
	} else {
		resp_simple(c->out, "PONG");
	}
	return 0;
}

int resp_do_echo(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	resp_bulk(c->out, argv[1].at, argv[1].len);
	return 0;
}

int resp_do_quit(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	c->closing = true;
	resp_ok(c);
	return 0;
}

int resp_do_select(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	if (resp_database_fits(c, &argv[1]))
		resp_ok(c);
	return 0;
}

int resp_do_readonly(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	resp_ok(c);
	return 0;
}

int resp_do_readwrite(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	resp_ok(c);
	return 0;
}

/* No slot is ever on its way from one server to another. */
int resp_do_asking(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	if (c->thread->shared->kv->cluster)
		resp_ok(c);
	else
		resp_error(c->out, "ERR This instance has cluster support disabled");
	return 0;
}

/* For copies on other servers, of which there are none: it waits for none, either. */
int resp_do_wait(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	int64_t copies, timeout;

	if (!resp_read_int64(argv[1].at, argv[1].len, &copies))
		return resp_not_an_integer(c);
	if (!resp_read_int64(argv[2].at, argv[2].len, &timeout))
		resp_error(c->out, "ERR timeout is not an integer or out of range");
	else if (timeout < 0)
		resp_error(c->out, "ERR timeout is negative");
	else
		resp_number(c->out, 0);
	return 0;
}

/*
 * CLIENT, as far as it is not in clients.c
 */

int resp_do_client_id(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	resp_number(c->out, (int64_t)c->id);
	return 0;
}

/* What is written here is dropped by the new mode, but for ON. */
int resp_do_client_reply(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	if (resp_is(&argv[2], "on")) {
		c->reply = RESP_REPLY_ON;
		resp_ok(c);
	} else if (resp_is(&argv[2], "off")) {
		c->reply = RESP_REPLY_OFF;
	} else if (resp_is(&argv[2], "skip")) {
		if (c->reply != RESP_REPLY_OFF)
			c->reply = RESP_REPLY_SKIP_NEXT;
	} else {
		resp_syntax_error(c);
	}
	return 0;
}

int resp_do_client_unpause(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	resp_ok(c);
	return 0;
}

int resp_do_client_help(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	static const char *const lines[] = {
		"CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
		"GETREDIR",
		"    Return the client ID we are redirecting to when tracking is enabled.",
		"GETNAME",
		"    Return the name of the current connection.",
		"ID",
		"    Return the ID of the current connection.",
		"INFO",
		"    Return information about the current client connection.",
		"KILL <ip:port>",
		"    Kill connection made from <ip:port>.",
		"KILL <option> <value> [<option> <value> [...]]",
		"    Kill connections. Options are:",
		"    * ADDR (<ip:port>|<unixsocket>:0)",
		"      Kill connections made from the specified address",
		"    * LADDR (<ip:port>|<unixsocket>:0)",
		"      Kill connections made to specified local address",
		"    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
		"      Kill connections by type.",
		"    * USER <username>",
		"      Kill connections authenticated by <username>.",
		"    * SKIPME (YES|NO)",
		"      Skip killing current connection (default: yes).",
		"LIST [options ...]",
		"    Return information about client connections. Options:",
		"    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
		"      Return clients of specified type.",
		"UNPAUSE",
		"    Stop the current client pause, resuming traffic.",
		"REPLY (ON|OFF|SKIP)",
		"    Control the replies sent to the current connection.",
		"SETNAME <name>",
		"    Assign the name <name> to the current connection.",
		"SETINFO <option> <value>",
		"    Set client meta attr. Options are:",
		"    * LIB-NAME: the client lib name.",
		"    * LIB-VER: the client lib version.",
		"CACHING (YES|NO)",
		"    Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.",
		"TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
		"         [OPTIN] [OPTOUT] [NOLOOP]",
		"    Control server assisted client side caching.",
		"TRACKINGINFO",
		"    Report tracking status for the current connection.",
		"NO-EVICT (ON|OFF)",
		"    Protect current client connection from eviction.",
		"NO-TOUCH (ON|OFF)",
		"    Will not touch LRU/LFU stats when this mode is on.",
		"HELP",
		"    Prints this help.",
	};

	return resp_help(c, lines, ARRAY_SIZE(lines));
}
