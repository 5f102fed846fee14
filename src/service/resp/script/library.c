/*
 * library.c: what scripts may call. Their globals and the tables of functions are shared by all scripts of a worker, so
 * a script sees them through empty tables in front, which cannot be written to.
 */
#include "service/resp/script/run.h"

#include <math.h>
#include <stdlib.h>

#define ARGS_MAX 8000 /* of a call: Lua's stack has no room for more */

/*
 * redis
 */

static int fail_text(lua_State *lua, bool raises, const char *text)
{
	resp_push_error(lua, text);
	return raises ? lua_error(lua) : 1;
}

/* Arguments are strings or numbers, on the stack. */
static bool read_args(lua_State *lua, struct resp_arg *argv, int argc)
{
	for (int i = 0; i < argc; i++) {
		if (lua_type(lua, i + 1) == LUA_TNUMBER) {
			char text[64];
			int len = snprintf(text, sizeof(text), "%.17g", (double)lua_tonumber(lua, i + 1));

			lua_pushlstring(lua, text, (size_t)len);
			lua_replace(lua, i + 1);
		}
		if (lua_type(lua, i + 1) != LUA_TSTRING)
			return false;
		argv[i].at = lua_tolstring(lua, i + 1, &argv[i].len);
	}
	return true;
}

/* The step has keys until its end, which Lua may collect before. */
static int keep_keys(struct resp_script *s, const struct resp_command *command, struct resp_arg *argv, unsigned argc)
{
	struct resp_keys keys = resp_keys(command, argv, argc);

	for (unsigned i = 0; i < keys.count; i++) {
		struct resp_arg *key = &argv[keys.first + i * keys.step];
		char *copy;

		s->kept += key->len + 64;
		if (s->kept > s->limit)
			return -ENOBUFS;
		copy = resp_view_keep(s->client, key->len + 1);
		if (!copy)
			return -ENOMEM;
		memcpy(copy, key->at, key->len);
		key->at = copy;
	}
	return 0;
}

static const struct resp_command *script_command(struct resp_script *s, const struct resp_arg *argv, unsigned argc,
						 const char **why)
{
	const struct resp_command *command = resp_find(argv[0].at, argv[0].len);

	*why = NULL;
	if (command && resp_has_subs(command) && argc >= 2)
		command = resp_find_sub(command, argv[1].at, argv[1].len);
	if (!command)
		*why = resp_is_refused(argv[0].at, argv[0].len)
			       ? "This Redis command is not allowed from script: rdmad stores strings and hashes"
			       : "Unknown Redis command called from script";
	else if (!resp_arity_fits(command, argc))
		*why = "Wrong number of args calling Redis command from script";
	else if (command->flags & RESP_NOSCRIPT || !resp_serve[command->id] ||
		 (command->group != RESP_STRING && command->group != RESP_HASH && command->group != RESP_GENERIC &&
		  !(command->id == RESP_CMD_TIME || command->id == RESP_CMD_PING || command->id == RESP_CMD_ECHO ||
		    command->id == RESP_CMD_DBSIZE || command->id == RESP_CMD_FLUSHDB ||
		    command->id == RESP_CMD_FLUSHALL || command->id == RESP_CMD_SELECT)))
		*why = "This Redis command is not allowed from script";
	else if (command->flags & RESP_WRITE && s->reads)
		*why = "Write commands are not allowed from read-only scripts.";
	else if (command->flags & RESP_WRITE && kv_gate_refused(s->thread->kv) != 0)
		*why = "-MISCONF the log takes no writes: see rdmactl log status";
	return *why ? NULL : command;
}

/* -errno, or 0: the reply is in s->out. */
static int carry_out(struct resp_script *s, const struct resp_command *command, struct resp_arg *argv, unsigned argc)
{
	struct resp_client *c = s->client;
	struct resp_out *out = c->out;
	int rc = keep_keys(s, command, argv, argc);

	if (rc != 0)
		return rc;
	s->out.len = 0;
	s->out.failed = false;
	s->out.three = s->three;
	c->out = &s->out;
	if (resp_may(c, command, argv, argc))
		rc = resp_carry_out(c, command, argv, argc);
	c->out = out;
	resp_count(&s->thread->calls[command->id]);
	if (rc == 0 && !s->out.failed)
		resp_raw(&s->out, "", 1); /* ends strings that are looked for in it */
	return rc == 0 && s->out.failed ? -ENOBUFS : rc;
}

static int call_command(lua_State *lua, bool raises)
{
	struct resp_script *s = resp_script_of(lua);
	int argc = lua_gettop(lua), rc;
	const struct resp_command *command;
	struct resp_arg *argv;
	const char *why;

	if (!s->client || !resp_script_goes_on(s))
		return resp_script_stop(lua, s->error ? s->error : -EINVAL);
	if (argc == 0)
		return fail_text(lua, raises, "Please specify at least one argument for this redis lib call");
	if (argc > ARGS_MAX)
		return fail_text(lua, raises, "Too many arguments for this redis lib call");
	/* Of Lua's memory, as an error goes past what is here. */
	argv = lua_newuserdata(lua, (size_t)argc * sizeof(*argv));
	if (!read_args(lua, argv, argc))
		return fail_text(lua, raises, "Lua redis lib command arguments must be strings or integers");
	command = script_command(s, argv, (unsigned)argc, &why);
	if (!command)
		return fail_text(lua, raises, why);
	rc = carry_out(s, command, argv, (unsigned)argc);
	if (rc != 0)
		return resp_script_stop(lua, rc);
	resp_push_reply(lua, s->out.at);
	if (raises && *s->out.at == '-')
		return lua_error(lua);
	return 1;
}

static int redis_call(lua_State *lua)
{
	return call_command(lua, true);
}

static int redis_pcall(lua_State *lua)
{
	return call_command(lua, false);
}

static int wrong_arguments(lua_State *lua)
{
	resp_push_error(lua, "wrong number or type of arguments");
	return 1;
}

static int redis_error_reply(lua_State *lua)
{
	if (lua_gettop(lua) != 1 || lua_type(lua, 1) != LUA_TSTRING)
		return wrong_arguments(lua);
	if (*lua_tostring(lua, 1) != '-')
		lua_pushfstring(lua, "-%s", lua_tostring(lua, 1));
	resp_push_error(lua, lua_tostring(lua, -1));
	return 1;
}

static int redis_status_reply(lua_State *lua)
{
	if (lua_gettop(lua) != 1 || lua_type(lua, 1) != LUA_TSTRING)
		return wrong_arguments(lua);
	lua_newtable(lua);
	lua_pushvalue(lua, 1);
	lua_setfield(lua, -2, "ok");
	return 1;
}

static int redis_sha1hex(lua_State *lua)
{
	char sha[RESP_SHA1 + 1];
	const char *text;
	size_t len;

	if (lua_gettop(lua) != 1) {
		resp_push_error(lua, "wrong number of arguments");
		return lua_error(lua);
	}
	text = lua_tolstring(lua, 1, &len);
	resp_sha1(text ? text : "", text ? len : 0, sha);
	lua_pushstring(lua, sha);
	return 1;
}

static int redis_log(lua_State *lua)
{
	if (lua_gettop(lua) < 2) {
		resp_push_error(lua, "redis.log() requires two arguments or more.");
		return lua_error(lua);
	}
	if (!lua_isnumber(lua, 1)) {
		resp_push_error(lua, "First argument must be a number (log level).");
		return lua_error(lua);
	}
	if (lua_tonumber(lua, 1) < 0 || lua_tonumber(lua, 1) > 3) {
		resp_push_error(lua, "Invalid debug level.");
		return lua_error(lua);
	}
	for (int i = 2; i <= lua_gettop(lua); i++)
		if (lua_tostring(lua, i))
			log_debug("resp", "script: %s", lua_tostring(lua, i));
	return 0;
}

static int lua_print(lua_State *lua)
{
	for (int i = 1; i <= lua_gettop(lua); i++)
		if (lua_tostring(lua, i))
			log_debug("resp", "script: %s", lua_tostring(lua, i));
	return 0;
}

static int redis_setresp(lua_State *lua)
{
	lua_Number version;

	if (lua_gettop(lua) != 1) {
		resp_push_error(lua, "redis.setresp() requires one argument.");
		return lua_error(lua);
	}
	version = lua_tonumber(lua, 1);
	if (version != 2 && version != 3) {
		resp_push_error(lua, "RESP version must be 2 or 3.");
		return lua_error(lua);
	}
	resp_script_of(lua)->three = version == 3;
	return 0;
}

static int redis_set_repl(lua_State *lua)
{
	if (lua_gettop(lua) != 1) {
		resp_push_error(lua, "redis.set_repl() requires one argument.");
		return lua_error(lua);
	}
	return 0;
}

static int redis_replicate_commands(lua_State *lua)
{
	lua_pushboolean(lua, true);
	return 1;
}

static const luaL_Reg redis_library[] = {
	{"call", redis_call},
	{"pcall", redis_pcall},
	{"error_reply", redis_error_reply},
	{"status_reply", redis_status_reply},
	{"sha1hex", redis_sha1hex},
	{"log", redis_log},
	{"setresp", redis_setresp},
	{"set_repl", redis_set_repl},
	{"replicate_commands", redis_replicate_commands},
	{NULL, NULL},
};

static const struct {
	const char *name;
	int value;
} redis_numbers[] = {
	{"LOG_DEBUG", 0}, {"LOG_VERBOSE", 1}, {"LOG_NOTICE", 2},   {"LOG_WARNING", 3}, {"REPL_NONE", 0},
	{"REPL_AOF", 1},  {"REPL_SLAVE", 2},  {"REPL_REPLICA", 2}, {"REPL_ALL", 3},    {"REDIS_VERSION_NUM", 0x070204},
};

/*
 * What of Lua's own has bounds that it lacks, or is the same for each run.
 */

static int math_random(lua_State *lua)
{
	uint32_t random = resp_known_random(resp_script_of(lua)->thread->shared->scripts);
	lua_Number r = (lua_Number)(random % 0x7fffffff) / (lua_Number)0x7fffffff;
	int from = 1, to;

	switch (lua_gettop(lua)) {
	case 0:
		lua_pushnumber(lua, r);
		return 1;
	case 1:
		to = luaL_checkint(lua, 1);
		luaL_argcheck(lua, 1 <= to, 1, "interval is empty");
		break;
	case 2:
		from = luaL_checkint(lua, 1);
		to = luaL_checkint(lua, 2);
		luaL_argcheck(lua, from <= to, 2, "interval is empty");
		break;
	default:
		return luaL_error(lua, "wrong number of arguments");
	}
	lua_pushnumber(lua, floor(r * ((lua_Number)to - from + 1)) + from);
	return 1;
}

static int math_randomseed(lua_State *lua)
{
	resp_known_seed(resp_script_of(lua)->thread->shared->scripts, (uint32_t)luaL_checkint(lua, 1));
	return 0;
}

static int string_rep(lua_State *lua)
{
	luaL_Buffer buffer;
	size_t len;
	const char *text = luaL_checklstring(lua, 1, &len);
	int times = luaL_checkint(lua, 2);

	if (!len || times <= 0) {
		lua_pushliteral(lua, "");
		return 1;
	}
	if ((size_t)times > resp_script_of(lua)->limit / len)
		return luaL_error(lua, "not enough memory");
	luaL_buffinit(lua, &buffer);
	while (times--)
		luaL_addlstring(&buffer, text, len);
	luaL_pushresult(&buffer);
	return 1;
}

/* What Lua compares by, with a look at the clock: a sort of many numbers calls nothing else. */
static int lua_less(lua_State *lua)
{
	lua_pushboolean(lua, lua_lessthan(lua, 1, 2));
	return 1;
}

/* A function of Lua's own, the first upvalue, that would write into a table of all scripts. */
static int guarded_call(lua_State *lua)
{
	if (lua_istable(lua, 1) && lua_getmetatable(lua, 1)) {
		lua_pushliteral(lua, "__metatable");
		lua_rawget(lua, -2);
		if (lua_rawequal(lua, -1, lua_upvalueindex(2))) {
			lua_pushliteral(lua, "Attempt to modify a readonly table");
			return lua_error(lua);
		}
		lua_pop(lua, 2);
	}
	lua_pushvalue(lua, lua_upvalueindex(1));
	lua_insert(lua, 1);
	lua_call(lua, lua_gettop(lua) - 1, LUA_MULTRET);
	return lua_gettop(lua);
}

/* The handler is called when the call has ended: while a hook ends a script, Lua would call no hook in it. */
static int lua_xpcall_safe(lua_State *lua)
{
	luaL_checkany(lua, 2);
	lua_settop(lua, 2);
	lua_insert(lua, 1);
	lua_pushboolean(lua, true);
	lua_insert(lua, 2);
	if (lua_pcall(lua, 0, LUA_MULTRET, 0) == 0)
		return lua_gettop(lua) - 1;
	lua_pushvalue(lua, 1);
	lua_insert(lua, -2);
	lua_pcall(lua, 1, 1, 0);
	lua_pushboolean(lua, false);
	lua_insert(lua, -2);
	return 2;
}

/* Scripts see the text of an error that is a table {err}, as by Redis. */
static int lua_pcall_safe(lua_State *lua)
{
	luaL_checkany(lua, 1);
	lua_pushboolean(lua, true);
	lua_insert(lua, 1);
	if (lua_pcall(lua, lua_gettop(lua) - 2, LUA_MULTRET, 0) == 0)
		return lua_gettop(lua);
	if (lua_istable(lua, -1)) {
		lua_pushliteral(lua, "err");
		lua_rawget(lua, -2);
		if (lua_isstring(lua, -1))
			lua_replace(lua, -2);
		else
			lua_pop(lua, 1);
	}
	lua_pushboolean(lua, false);
	lua_insert(lua, -2);
	return 2;
}

/* Lua's own takes a range of 2^32 members for none. */
static int lua_unpack(lua_State *lua)
{
	lua_Integer from, to;

	luaL_checktype(lua, 1, LUA_TTABLE);
	from = luaL_optint(lua, 2, 1);
	to = lua_isnoneornil(lua, 3) ? (lua_Integer)lua_objlen(lua, 1) : luaL_checkint(lua, 3);
	if (from > to)
		return 0;
	if (to - from >= ARGS_MAX || !lua_checkstack(lua, (int)(to - from + 1)))
		return luaL_error(lua, "too many results to unpack");
	for (lua_Integer i = from; i <= to; i++)
		lua_rawgeti(lua, 1, (int)i);
	return (int)(to - from + 1);
}

/* Lua's own moves all members down to a position that may be far below 0. */
static int table_insert(lua_State *lua)
{
	if (lua_gettop(lua) == 3 && luaL_checkint(lua, 2) < 0)
		return luaL_error(lua, "wrong position of 'insert'");
	lua_pushvalue(lua, lua_upvalueindex(1));
	lua_insert(lua, 1);
	lua_call(lua, lua_gettop(lua) - 1, 0);
	return 0;
}

static int table_sort(lua_State *lua)
{
	luaL_checktype(lua, 1, LUA_TTABLE);
	lua_settop(lua, 2);
	if (lua_isnil(lua, 2)) {
		lua_pushcfunction(lua, lua_less);
		lua_replace(lua, 2);
	}
	lua_pushvalue(lua, lua_upvalueindex(1));
	lua_insert(lua, 1);
	lua_call(lua, 2, 0);
	return 0;
}

/* Text only: bytecode can do anything. */
static int load_text(lua_State *lua)
{
	size_t len;
	const char *text = luaL_checklstring(lua, 1, &len), *name = luaL_optstring(lua, 2, text);
	int rc = 1;

	if (len > RESP_SCRIPT_TEXT)
		lua_pushfstring(lua, "a text longer than %d bytes", (int)RESP_SCRIPT_TEXT);
	else if (len && *text == LUA_SIGNATURE[0])
		lua_pushliteral(lua, "bytecode is not loaded");
	else
		rc = luaL_loadbuffer(lua, text, len, name);
	if (rc == 0)
		return 1;
	lua_pushnil(lua);
	lua_insert(lua, -2);
	return 2;
}

static int lua_collect(lua_State *lua)
{
	static const char *const words[] = {"count", "collect",  "stop",       "restart",
					    "step",  "setpause", "setstepmul", NULL};

	if (luaL_checkoption(lua, 1, "collect", words) == 0)
		lua_pushnumber(lua, (lua_Number)lua_gc(lua, LUA_GCCOUNT, 0) + lua_gc(lua, LUA_GCCOUNTB, 0) / 1024.0);
	else
		lua_pushinteger(lua, 0);
	return 1;
}

static int os_clock(lua_State *lua)
{
	lua_pushnumber(lua, (lua_Number)time_now() / TIME_S);
	return 1;
}

/*
 * bit
 */

static uint32_t bit_word(lua_State *lua, int at)
{
	lua_Number number = fmod(luaL_checknumber(lua, at), 0x1p32);

	return isnan(number) ? 0 : (uint32_t)(int64_t)nearbyint(number);
}

static int push_bits(lua_State *lua, uint32_t word)
{
	lua_pushnumber(lua, (lua_Number)(int32_t)word);
	return 1;
}

static int bit_tobit(lua_State *lua)
{
	return push_bits(lua, bit_word(lua, 1));
}

static int bit_bnot(lua_State *lua)
{
	return push_bits(lua, ~bit_word(lua, 1));
}

static int bit_band(lua_State *lua)
{
	uint32_t word = bit_word(lua, 1);

	for (int i = lua_gettop(lua); i > 1; i--)
		word &= bit_word(lua, i);
	return push_bits(lua, word);
}

static int bit_bor(lua_State *lua)
{
	uint32_t word = bit_word(lua, 1);

	for (int i = lua_gettop(lua); i > 1; i--)
		word |= bit_word(lua, i);
	return push_bits(lua, word);
}

static int bit_bxor(lua_State *lua)
{
	uint32_t word = bit_word(lua, 1);

	for (int i = lua_gettop(lua); i > 1; i--)
		word ^= bit_word(lua, i);
	return push_bits(lua, word);
}

static int bit_lshift(lua_State *lua)
{
	return push_bits(lua, bit_word(lua, 1) << (bit_word(lua, 2) & 31));
}

static int bit_rshift(lua_State *lua)
{
	return push_bits(lua, bit_word(lua, 1) >> (bit_word(lua, 2) & 31));
}

static int bit_arshift(lua_State *lua)
{
	return push_bits(lua, (uint32_t)((int32_t)bit_word(lua, 1) >> (bit_word(lua, 2) & 31)));
}

static uint32_t rotate_word(uint32_t word, unsigned by)
{
	return word << (by & 31) | word >> (-by & 31);
}

static int bit_rol(lua_State *lua)
{
	return push_bits(lua, rotate_word(bit_word(lua, 1), bit_word(lua, 2)));
}

static int bit_ror(lua_State *lua)
{
	return push_bits(lua, rotate_word(bit_word(lua, 1), -bit_word(lua, 2)));
}

static int bit_bswap(lua_State *lua)
{
	return push_bits(lua, __builtin_bswap32(bit_word(lua, 1)));
}

static int bit_tohex(lua_State *lua)
{
	uint32_t word = bit_word(lua, 1);
	int32_t digits = lua_isnoneornil(lua, 2) ? 8 : (int32_t)bit_word(lua, 2);
	bool upper = digits < 0;
	char text[9];

	digits = digits == INT32_MIN || digits > 8 || digits < -8 ? 8 : abs(digits);
	snprintf(text, sizeof(text), upper ? "%08X" : "%08x", word);
	lua_pushlstring(lua, text + 8 - digits, (size_t)digits);
	return 1;
}

static const luaL_Reg bit_library[] = {
	{"tobit", bit_tobit}, {"bnot", bit_bnot},     {"band", bit_band},     {"bor", bit_bor},
	{"bxor", bit_bxor},   {"lshift", bit_lshift}, {"rshift", bit_rshift}, {"arshift", bit_arshift},
	{"rol", bit_rol},     {"ror", bit_ror},       {"bswap", bit_bswap},   {"tohex", bit_tohex},
	{NULL, NULL},
};

/*
 * The globals
 */

static int no_such_global(lua_State *lua)
{
	const char *name = lua_tostring(lua, 2);

	if (name && strcmp(name, "cjson") == 0)
		return luaL_error(lua, "cjson is not available: install lua-cjson");
	if (name && (strcmp(name, "cmsgpack") == 0 || strcmp(name, "struct") == 0))
		return luaL_error(lua, "%s is not available: see rdmad-resp(7)", name);
	return luaL_error(lua, "Script attempted to access nonexistent global variable '%s'",
			  name ? name : luaL_typename(lua, 2));
}

static int is_read_only(lua_State *lua)
{
	return luaL_error(lua, "Attempt to modify a readonly table");
}

/* What scripts get of `base` and its relatives. */
static const char *const base_names[] = {
	"assert",   "error",     "getmetatable", "ipairs",       "next",     "pairs",    "rawequal",
	"rawget",   "rawset",    "select",       "setmetatable", "tonumber", "tostring", "type",
	"_VERSION", "coroutine", "string",       "table",        "math",
};

/* Functions that write into the table that is their first argument. */
static const struct {
	const char *of, *name;
} writers[] = {
	{NULL, "rawset"}, {"table", "insert"}, {"table", "remove"}, {"table", "sort"}, {"table", "setn"},
};

/* Put an empty table, which cannot be written to, in front of the one on top of the stack. The mark, by which it is
 * known, is the metatable that scripts see: the upvalue of the guarded functions. */
static void front_table(lua_State *lua)
{
	lua_newtable(lua);
	lua_newtable(lua);
	lua_pushvalue(lua, -3);
	lua_setfield(lua, -2, "__index");
	lua_pushcfunction(lua, is_read_only);
	lua_setfield(lua, -2, "__newindex");
	lua_pushliteral(lua, "read-only");
	lua_setfield(lua, -2, "__metatable");
	lua_setmetatable(lua, -2);
	lua_remove(lua, -2);
}

static void set_function(lua_State *lua, const char *name, lua_CFunction fn)
{
	lua_pushcfunction(lua, fn);
	lua_setfield(lua, -2, name);
}

static void drop_global(lua_State *lua, const char *name)
{
	lua_pushnil(lua);
	lua_setfield(lua, -2, name);
}

static void open_one(lua_State *lua, lua_CFunction fn, const char *name)
{
	lua_pushcfunction(lua, fn);
	lua_pushstring(lua, name);
	lua_call(lua, 1, 0);
}

static void mend_libraries(lua_State *lua)
{
	lua_getglobal(lua, "string");
	set_function(lua, "rep", string_rep);
	luaL_register(lua, NULL, resp_match_library);
	drop_global(lua, "dump");
	drop_global(lua, "gfind");
	lua_getglobal(lua, "math");
	set_function(lua, "random", math_random);
	set_function(lua, "randomseed", math_randomseed);
	lua_getglobal(lua, "table");
	lua_getfield(lua, -1, "sort");
	lua_pushcclosure(lua, table_sort, 1);
	lua_setfield(lua, -2, "sort");
	lua_getfield(lua, -1, "insert");
	lua_pushcclosure(lua, table_insert, 1);
	lua_setfield(lua, -2, "insert");
	lua_pop(lua, 3);
	for (size_t i = 0; i < ARRAY_SIZE(writers); i++) {
		lua_pushvalue(lua, LUA_GLOBALSINDEX);
		if (writers[i].of)
			lua_getglobal(lua, writers[i].of);
		lua_getfield(lua, -1, writers[i].name);
		lua_pushliteral(lua, "read-only");
		lua_pushcclosure(lua, guarded_call, 2);
		lua_setfield(lua, -2, writers[i].name);
		lua_settop(lua, 0);
	}
	/* Of all strings. */
	lua_pushliteral(lua, "");
	lua_getmetatable(lua, -1);
	lua_pushliteral(lua, "read-only");
	lua_setfield(lua, -2, "__metatable");
	lua_settop(lua, 0);
}

/* The library as a global, read-only, of the table below it. */
static void add_library(lua_State *lua, const char *name)
{
	front_table(lua);
	lua_setfield(lua, -2, name);
}

void resp_library_open(lua_State *lua)
{
	int key = lua_gettop(lua);

	lua_pushvalue(lua, key); /* mend_libraries() needs an empty stack */
	lua_setfield(lua, LUA_REGISTRYINDEX, "key");
	lua_settop(lua, 0);
	open_one(lua, luaopen_base, "");
	open_one(lua, luaopen_string, LUA_STRLIBNAME);
	open_one(lua, luaopen_table, LUA_TABLIBNAME);
	open_one(lua, luaopen_math, LUA_MATHLIBNAME);
	mend_libraries(lua);
	lua_getfield(lua, LUA_REGISTRYINDEX, "key");

	lua_newtable(lua);
	for (size_t i = 0; i < ARRAY_SIZE(base_names); i++) {
		lua_getglobal(lua, base_names[i]);
		if (lua_istable(lua, -1))
			front_table(lua);
		lua_setfield(lua, -2, base_names[i]);
	}
	set_function(lua, "pcall", lua_pcall_safe);
	set_function(lua, "unpack", lua_unpack);
	set_function(lua, "xpcall", lua_xpcall_safe);
	set_function(lua, "print", lua_print);
	set_function(lua, "load", load_text);
	set_function(lua, "loadstring", load_text);
	set_function(lua, "collectgarbage", lua_collect);
	lua_newtable(lua);
	set_function(lua, "clock", os_clock);
	add_library(lua, "os");
	lua_newtable(lua);
	luaL_register(lua, NULL, bit_library);
	add_library(lua, "bit");
	if (resp_json_open(lua))
		add_library(lua, "cjson");
	lua_newtable(lua);
	luaL_register(lua, NULL, redis_library);
	for (size_t i = 0; i < ARRAY_SIZE(redis_numbers); i++) {
		lua_pushinteger(lua, redis_numbers[i].value);
		lua_setfield(lua, -2, redis_numbers[i].name);
	}
	lua_pushliteral(lua, "7.2.4");
	lua_setfield(lua, -2, "REDIS_VERSION");
	front_table(lua);
	lua_pushvalue(lua, -1);
	lua_setfield(lua, -3, "redis");
	lua_setfield(lua, -2, "server");

	/* A global that is not there is an error. */
	lua_newtable(lua);
	set_function(lua, "__index", no_such_global);
	lua_setmetatable(lua, -2);
	lua_pushvalue(lua, -1);
	front_table(lua);
	lua_pushvalue(lua, -1);
	lua_setfield(lua, -3, "_G");
	lua_replace(lua, LUA_GLOBALSINDEX);
}
