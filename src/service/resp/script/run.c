/*
 * run.c: a script's life. Lua has a bound of memory, in what gives it memory, and one of time: the clock is looked at
 * with each call, each so many instructions and each so many bytes. From then on each instruction is an error, so that
 * no pcall() of the script goes on.
 */
#include "service/resp/script/run.h"

#include <stdlib.h>

#define LOOK_INSTRUCTIONS 200
#define LOOK_BYTES (256 * KIB)
#define COMPILED_MAX 1000 /* scripts of a worker, which then begins anew */
#define RUNS_MOST 16      /* times resp.script_time in all runs of a command that others disturb */
#define OUT_KEPT (64 * KIB)

static const char compiled_key, globals_key; /* in the registry, by their addresses */

struct resp_script *resp_script_of(lua_State *lua)
{
	void *script;

	lua_getallocf(lua, &script);
	return script;
}

bool resp_script_goes_on(struct resp_script *s)
{
	if (!s->error && s->client && time_coarse() >= s->deadline)
		s->error = -ETIME;
	return !s->error;
}

static void hook_look(lua_State *lua, lua_Debug *at)
{
	(void)at;
	if (!resp_script_goes_on(resp_script_of(lua)))
		resp_script_stop(lua, resp_script_of(lua)->error);
}

int resp_script_stop(lua_State *lua, int error)
{
	resp_script_of(lua)->error = error;
	lua_sethook(lua, hook_look, LUA_MASKCALL | LUA_MASKCOUNT, 1);
	lua_pushliteral(lua, "the script was ended");
	return lua_error(lua);
}

static void *script_allocate(void *of, void *at, size_t had, size_t size)
{
	struct resp_script *s = of;
	void *to;

	if (!size) {
		free(at);
		s->used -= had;
		return NULL;
	}
	if (size > had && !s->lifted) {
		if (size - had > s->limit || s->used > s->limit - (size - had))
			return NULL;
		s->fresh += size - had;
		if (s->fresh >= LOOK_BYTES) {
			s->fresh = 0;
			if (!resp_script_goes_on(s))
				return NULL;
		}
	}
	to = realloc(at, size);
	if (to)
		s->used += size - had;
	return to ? to : size <= had ? at : NULL;
}

static int open_library(lua_State *lua)
{
	lua_gc(lua, LUA_GCSETPAUSE, 130);
	lua_pushlightuserdata(lua, (void *)(uintptr_t)&globals_key);
	resp_library_open(lua);
	lua_rawset(lua, LUA_REGISTRYINDEX);
	lua_pushlightuserdata(lua, (void *)(uintptr_t)&compiled_key);
	lua_newtable(lua);
	lua_rawset(lua, LUA_REGISTRYINDEX);
	return 0;
}

static void close_lua(struct resp_script *s)
{
	if (s->lua)
		lua_close(s->lua);
	s->lua = NULL;
	s->compiled = 0;
	s->configured = false;
}

static int open_lua(struct resp_script *s)
{
	if (s->lua)
		return 0;
	s->lua = lua_newstate(script_allocate, s);
	if (!s->lua)
		return -ENOMEM;
	s->age = resp_known_age(s->thread->shared->scripts);
	if (lua_cpcall(s->lua, open_library, NULL) == 0)
		return 0;
	close_lua(s);
	return -ENOBUFS;
}

static int script_of(struct resp_thread *thread, struct resp_script **out)
{
	const struct resp_settings *settings = thread->shared->settings;

	if (!thread->script) {
		thread->script = calloc(1, sizeof(*thread->script));
		if (!thread->script)
			return -ENOMEM;
		thread->script->thread = thread;
		thread->script->limit = settings->script_memory;
		thread->script->out.most = settings->script_memory;
	}
	*out = thread->script;
	return open_lua(*out);
}

void resp_script_free(struct resp_thread *thread)
{
	if (!thread->script)
		return;
	close_lua(thread->script);
	free(thread->script->out.at);
	free(thread->script);
	thread->script = NULL;
}

/* What an error is, and where: a table {err, source, line}, as Redis makes it. */
static int on_error(lua_State *lua)
{
	lua_Debug at;
	bool is = false;

	for (int level = 1; !is && lua_getstack(lua, level, &at); level++)
		is = lua_getinfo(lua, "Sl", &at) && *at.what != 'C';
	if (!lua_istable(lua, 1)) {
		const char *text = lua_tostring(lua, 1);

		lua_newtable(lua);
		lua_pushfstring(lua, "ERR %s", text ? text : luaL_typename(lua, 1));
		lua_setfield(lua, -2, "err");
		lua_replace(lua, 1);
	}
	lua_settop(lua, 1);
	if (is) {
		lua_pushliteral(lua, "source");
		lua_pushstring(lua, at.source);
		lua_rawset(lua, 1);
		lua_pushliteral(lua, "line");
		lua_pushinteger(lua, at.currentline);
		lua_rawset(lua, 1);
	}
	return 1;
}

static const char *string_field(lua_State *lua, const char *name)
{
	lua_pushstring(lua, name);
	lua_rawget(lua, -2);
	return lua_tostring(lua, -1);
}

/* The table of on_error() is on top. */
static void reply_error(lua_State *lua, struct resp_client *c, const char *sha)
{
	const char *text, *source, *line;

	luaL_checkstack(lua, 8, NULL);
	if (!lua_istable(lua, -1)) {
		text = lua_tostring(lua, -1);
		resp_error(c->out, "ERR %s", text ? text : "the script failed, and the error has no text");
		return;
	}
	text = string_field(lua, "err");
	lua_pushvalue(lua, -2);
	source = string_field(lua, "source");
	lua_pushvalue(lua, -2);
	line = string_field(lua, "line");
	if (!text)
		text = "ERR unknown error";
	if (source && line)
		resp_error(c->out, "%s script: %s, on %s:%s.", text, sha, source, line);
	else
		resp_error(c->out, "%s", text);
}

/* "#!lua flags=no-writes" in the first line. False: it was answered. */
static bool read_shebang(struct resp_client *c, const char *text, size_t *len, bool *reads)
{
	char line[256], *rest, *word;
	const char *end = memchr(text, '\n', *len);

	*reads = false;
	if (*len < 2 || memcmp(text, "#!", 2) != 0) {
		*len = 0;
		return true;
	}
	*len = end ? (size_t)(end - text) : *len;
	snprintf(line, sizeof(line), "%.*s", (int)MIN(*len, sizeof(line) - 1), text);
	word = strtok_r(line, " \t\r", &rest);
	if (strcmp(word, "#!lua") != 0) {
		resp_error(c->out, "ERR Unexpected engine in script shebang: %s", word);
		return false;
	}
	while ((word = strtok_r(NULL, " \t\r", &rest))) {
		char *flag, *flags;

		if (strncmp(word, "flags=", 6) != 0) {
			resp_error(c->out, "ERR Unknown lua shebang option: %s", word);
			return false;
		}
		for (flag = strtok_r(word + 6, ",", &flags); flag; flag = strtok_r(NULL, ",", &flags)) {
			if (strcmp(flag, "no-writes") == 0) {
				*reads = true;
			} else if (strcmp(flag, "allow-oom") != 0 && strcmp(flag, "allow-stale") != 0 &&
				   strcmp(flag, "no-cluster") != 0 && strcmp(flag, "allow-cross-slot-keys") != 0) {
				resp_error(c->out, "ERR Unexpected flag in script shebang: %s", flag);
				return false;
			}
		}
	}
	return true;
}

/* The text as a function on the stack, and behind it whether it only reads. False: it was answered. */
static bool compile_text(lua_State *lua, struct resp_client *c, const char *text, size_t len)
{
	size_t skip = len;
	bool reads;

	if (len > RESP_SCRIPT_TEXT) {
		resp_error(c->out, "ERR the script is longer than %llu bytes", RESP_SCRIPT_TEXT);
		return false;
	}
	if (!read_shebang(c, text, &skip, &reads))
		return false;
	if (len > skip && text[skip] == LUA_SIGNATURE[0]) {
		resp_error(c->out, "ERR Error compiling script (new function): user_script: it is bytecode");
		return false;
	}
	if (luaL_loadbuffer(lua, text + skip, len - skip, "@user_script") != 0) {
		resp_error(c->out, "ERR Error compiling script (new function): %s", lua_tostring(lua, -1));
		return false;
	}
	lua_pushboolean(lua, reads);
	return true;
}

/* The function is on the stack, from what is compiled or newly. False: it was answered, or is not known. */
static bool find_function(lua_State *lua, struct resp_script *s)
{
	const struct resp_call *call = s->call;
	struct resp_scripts *scripts = s->thread->shared->scripts;
	const char *text = call->text;
	size_t len = call->len;

	lua_pushlightuserdata(lua, (void *)(uintptr_t)&compiled_key);
	lua_rawget(lua, LUA_REGISTRYINDEX);
	lua_pushstring(lua, call->sha);
	lua_rawget(lua, -2);
	if (lua_istable(lua, -1)) {
		lua_rawgeti(lua, -1, 2);
		lua_rawgeti(lua, -2, 1);
		s->reads = s->reads || lua_toboolean(lua, -2);
		return true;
	}
	if (!text)
		text = s->text = resp_known_text(scripts, call->sha, &len);
	if (!text) {
		s->error = -ENOENT;
		return false;
	}
	lua_pop(lua, 1);
	lua_createtable(lua, 2, 0);
	if (!compile_text(lua, s->client, text, len))
		return false;
	s->reads = s->reads || lua_toboolean(lua, -1);
	lua_rawseti(lua, -3, 2);
	lua_pushvalue(lua, -1);
	lua_rawseti(lua, -3, 1);
	lua_pushstring(lua, call->sha);
	lua_pushvalue(lua, -3);
	lua_rawset(lua, -5);
	s->compiled++;
	if (call->text)
		resp_known_add(scripts, call->sha, text, len, false);
	return true;
}

static void push_args(lua_State *lua, const char *name, const struct resp_arg *argv, unsigned argc)
{
	lua_pushstring(lua, name);
	lua_createtable(lua, (int)argc, 0);
	for (unsigned i = 0; i < argc; i++) {
		lua_pushlstring(lua, argv[i].at, argv[i].len);
		lua_rawseti(lua, -2, (int)i + 1);
	}
	lua_rawset(lua, -3);
}

static int run_call(lua_State *lua)
{
	struct resp_script *s = lua_touserdata(lua, 1);
	const struct resp_call *call = s->call;
	int rc;

	luaL_checkstack(lua, 20, NULL);
	lua_pushlightuserdata(lua, (void *)(uintptr_t)&globals_key);
	lua_rawget(lua, LUA_REGISTRYINDEX);
	push_args(lua, "KEYS", call->keys, call->key_count);
	push_args(lua, "ARGV", call->args, call->arg_count);
	lua_pushcfunction(lua, on_error);
	rc = lua_gettop(lua);
	if (!find_function(lua, s))
		return 0;
	lua_sethook(lua, hook_look, LUA_MASKCALL | LUA_MASKCOUNT, LOOK_INSTRUCTIONS);
	rc = lua_pcall(lua, 0, 1, rc);
	lua_sethook(lua, NULL, 0, 0);
	if (s->error)
		return 0;
	if (rc == LUA_ERRMEM)
		s->error = -ENOBUFS;
	else if (rc != 0)
		reply_error(lua, s->client, call->sha);
	else
		resp_reply_lua(lua);
	return 0;
}

static int check_call(lua_State *lua)
{
	struct resp_script *s = lua_touserdata(lua, 1);

	luaL_checkstack(lua, 20, NULL);
	s->reads = compile_text(lua, s->client, s->call->text, s->call->len); /* whether it is fine */
	return 0;
}

/* What a script leaves behind. */
static void script_clean(struct resp_script *s, int rc)
{
	lua_settop(s->lua, 0);
	free(s->text);
	s->text = NULL;
	s->client = NULL;
	s->call = NULL;
	s->error = 0;
	s->lifted = false;
	s->out.len = 0;
	if (s->out.room > OUT_KEPT) {
		free(s->out.at);
		s->out.at = NULL;
		s->out.room = 0;
	}
	if (rc == -ETIME || rc == -ENOBUFS || s->configured || s->used > s->limit / 2)
		close_lua(s);
	else if (s->used > s->limit / 8)
		lua_gc(s->lua, LUA_GCCOLLECT, 0);
}

static int run_protected(struct resp_client *c, const struct resp_call *call, lua_CFunction fn, bool *reads)
{
	const struct resp_command *command = c->command;
	const struct resp_settings *settings = c->thread->shared->settings;
	struct resp_script *s = c->thread->script;
	struct resp_out *out = c->out;
	uint64_t began = time_coarse();
	int rc;

	if (c->script_spent > RUNS_MOST * settings->script_time)
		return -ETIME;
	if (s && s->lua && (s->age != resp_known_age(c->thread->shared->scripts) || s->compiled >= COMPILED_MAX))
		close_lua(s);
	rc = script_of(c->thread, &s);
	if (rc != 0)
		return rc;
	s->client = c;
	s->call = call;
	s->error = 0;
	s->three = false;
	s->reads = *reads;
	s->kept = 0;
	s->deadline = time_after(began, settings->script_time);
	rc = lua_cpcall(s->lua, fn, s);
	c->script_spent += time_coarse() - began;
	c->out = out;
	c->command = command;
	if (s->error)
		rc = s->error;
	else if (rc == LUA_ERRMEM)
		rc = -ENOBUFS;
	else if (rc != 0)
		resp_error(c->out, "ERR %s", lua_tostring(s->lua, -1) ? lua_tostring(s->lua, -1) : "the script failed");
	*reads = s->reads;
	script_clean(s, rc);
	return rc < 0 ? rc : 0;
}

int resp_script_run(struct resp_client *c, const struct resp_call *call)
{
	bool reads = call->reads;

	return run_protected(c, call, run_call, &reads);
}

int resp_script_check(struct resp_client *c, const char *sha, const char *text, size_t len, bool *fine)
{
	const struct resp_call call = {.sha = sha, .text = text, .len = len};

	*fine = false;
	return run_protected(c, &call, check_call, fine);
}
