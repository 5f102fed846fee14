/* commands.c: EVAL, EVALSHA, SCRIPT. */
#include "config.h"
#include "service/resp/script/script.h"

#include <ctype.h>
#include <stdlib.h>

/* Whether scripts run; false: it was answered why not. */
static bool are_on(struct resp_client *c)
{
#ifdef HAVE_LUA
	if (c->thread->shared->scripts)
		return true;
	resp_error(c->out, "ERR scripts are off: set resp.scripts = true, see rdmad-resp(7)");
#else
	resp_error(c->out, "ERR scripts are not in this build of rdmad: it has no Lua, see rdmad-resp(7)");
#endif
	return false;
}

/* In small letters; false: it is no SHA1. */
static bool sha_of(const struct resp_arg *arg, char sha[static RESP_SHA1 + 1])
{
	if (arg->len != RESP_SHA1)
		return false;
	for (unsigned i = 0; i < RESP_SHA1; i++) {
		if (!isxdigit((unsigned char)arg->at[i]))
			return false;
		sha[i] = (char)tolower((unsigned char)arg->at[i]);
	}
	sha[RESP_SHA1] = '\0';
	return true;
}

#ifdef HAVE_LUA
/* Keys and arguments; false: they make no sense, and it was answered. */
static bool read_call(struct resp_client *c, struct resp_call *call, const struct resp_arg *argv, unsigned argc)
{
	int64_t keys;

	if (!resp_read_int64(argv[2].at, argv[2].len, &keys)) {
		resp_not_an_integer(c);
	} else if (keys > (int64_t)argc - 3) {
		resp_error(c->out, "ERR Number of keys can't be greater than number of args");
	} else if (keys < 0) {
		resp_error(c->out, "ERR Number of keys can't be negative");
	} else {
		call->keys = argv + 3;
		call->key_count = (unsigned)keys;
		call->args = argv + 3 + keys;
		call->arg_count = argc - 3 - (unsigned)keys;
		return true;
	}
	return false;
}

static int eval_text(struct resp_client *c, const struct resp_arg *argv, unsigned argc, bool reads)
{
	struct resp_call call = {.text = argv[1].at, .len = argv[1].len, .reads = reads};
	char sha[RESP_SHA1 + 1];

	if (!are_on(c) || !read_call(c, &call, argv, argc))
		return 0;
	resp_sha1(call.text, call.len, sha);
	call.sha = sha;
	return resp_script_run(c, &call);
}

static int eval_sha(struct resp_client *c, const struct resp_arg *argv, unsigned argc, bool reads)
{
	struct resp_call call = {.reads = reads};
	char sha[RESP_SHA1 + 1];
	int rc = -ENOENT;

	if (!are_on(c) || !read_call(c, &call, argv, argc))
		return 0;
	call.sha = sha;
	if (sha_of(&argv[1], sha))
		rc = resp_script_run(c, &call);
	if (rc != -ENOENT)
		return rc;
	resp_error(c->out, "NOSCRIPT No matching script. Please use EVAL.");
	return 0;
}
#else
static int eval_text(struct resp_client *c, const struct resp_arg *argv, unsigned argc, bool reads)
{
	are_on(c);
	return 0;
}

static int eval_sha(struct resp_client *c, const struct resp_arg *argv, unsigned argc, bool reads)
{
	are_on(c);
	return 0;
}

int resp_script_check(struct resp_client *c, const char *sha, const char *text, size_t len, bool *fine)
{
	return -ENOSYS;
}

void resp_script_free(struct resp_thread *thread)
{
}
#endif

int resp_do_eval(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return eval_text(c, argv, argc, false);
}

int resp_do_eval_ro(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return eval_text(c, argv, argc, true);
}

int resp_do_evalsha(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return eval_sha(c, argv, argc, false);
}

int resp_do_evalsha_ro(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	return eval_sha(c, argv, argc, true);
}

int resp_do_script_load(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	char sha[RESP_SHA1 + 1];
	bool fine;
	int rc;

	if (!are_on(c))
		return 0;
	resp_sha1(argv[2].at, argv[2].len, sha);
	rc = resp_script_check(c, sha, argv[2].at, argv[2].len, &fine);
	if (rc != 0 || !fine)
		return rc;
	if (resp_known_add(c->thread->shared->scripts, sha, argv[2].at, argv[2].len, true))
		resp_bulk(c->out, sha, RESP_SHA1);
	else
		resp_error(c->out, "ERR there are %d scripts, or %llu MiB of them: SCRIPT FLUSH forgets them",
			   RESP_SCRIPTS_MAX, RESP_SCRIPTS_BYTES / MIB);
	return 0;
}

int resp_do_script_exists(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	char sha[RESP_SHA1 + 1];

	if (!are_on(c))
		return 0;
	resp_array(c->out, argc - 2);
	for (unsigned i = 2; i < argc; i++)
		resp_number(c->out, sha_of(&argv[i], sha) && resp_known_has(c->thread->shared->scripts, sha));
	return 0;
}

int resp_do_script_flush(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	if (!are_on(c))
		return 0;
	if (argc > 3 || (argc == 3 && !resp_is(&argv[2], "sync") && !resp_is(&argv[2], "async"))) {
		resp_error(c->out, "ERR SCRIPT FLUSH only support SYNC|ASYNC option");
		return 0;
	}
	resp_known_flush(c->thread->shared->scripts);
	resp_ok(c);
	return 0;
}

/* The one that runs is ended by resp.script_time, long before a client could say so. */
int resp_do_script_kill(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	if (are_on(c))
		resp_error(c->out, "NOTBUSY No scripts in execution right now.");
	return 0;
}

int resp_do_script_help(struct resp_client *c, const struct resp_arg *argv, unsigned argc)
{
	static const char *const lines[] = {
		"SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
		"EXISTS <sha1> [<sha1> ...]",
		"    Return information about the existence of the scripts in the script cache.",
		"FLUSH [ASYNC|SYNC]",
		"    Flush the Lua scripts cache. Very dangerous on replicas.",
		"    When called without the optional mode argument, the behavior is determined",
		"    by the lazyfree-lazy-user-flush configuration directive. Valid modes are:",
		"    * ASYNC: Asynchronously flush the scripts cache.",
		"    * SYNC: Synchronously flush the scripts cache.",
		"KILL",
		"    Kill the currently executing Lua script.",
		"LOAD <script>",
		"    Load a script into the scripts cache without executing it.",
		"HELP",
		"    Prints this help.",
	};

	return resp_help(c, lines, ARRAY_SIZE(lines));
}
