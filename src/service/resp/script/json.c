/*
 * json.c: cjson, by the library lua-cjson, if it is installed. It has memory that is not Lua's, and loses it where Lua
 * ends it by an error; and no clock is looked at in it. So it is called when all that it may need is known and there,
 * and Lua gives it what it asks for.
 */
#include "service/resp/script/run.h"

#include <dlfcn.h>
#include <math.h>

#define LOOK_VALUES 1024 /* between two looks at the clock */

/* Most bytes of what becomes of a JSON text in Lua, and of one that is written. */
#define TABLE 96  /* a table with one member */
#define MEMBER 72 /* each further one, as tables grow */
#define QUOTE 24  /* half a string, without its bytes */
#define STACK (64 * KIB)
#define NUMBER 32  /* digits */
#define LITERAL 5  /* "false" */
#define ESCAPED 6u /* bytes of one, "\u0000" */

static lua_CFunction open_library;

static void find_library(void)
{
	static const char *const names[] = {
		"liblua5.1-cjson.so.0",
		LUA_CDIR "cjson.so",
#ifdef LUA_CDIR2
		LUA_CDIR2 "cjson.so",
#endif
	};
	void *library = NULL, *symbol;

	for (size_t i = 0; i < ARRAY_SIZE(names) && !library; i++)
		library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	symbol = library ? dlsym(library, "luaopen_cjson") : NULL;
	memcpy(&open_library, &symbol, sizeof(symbol));
	if (!open_library)
		log_debug("resp", "scripts have no cjson: install lua-cjson");
}

/*
 * How long the text of a value may be
 */

struct measure {
	lua_State *lua;
	size_t bytes, most;
	unsigned values;
	bool convert;          /* arrays that are too sparse are written as objects */
	int ratio, safe, deep; /* what too sparse and too deep is */
};

/* False: longer than `most`. */
static bool measure_add(struct measure *m, size_t bytes)
{
	if (++m->values % LOOK_VALUES == 0 && !resp_script_goes_on(resp_script_of(m->lua)))
		resp_script_stop(m->lua, resp_script_of(m->lua)->error);
	m->bytes += MIN(bytes, m->most + 1);
	return m->bytes <= m->most;
}

/* What cjson says of a value that it does not write. */
static void json_refuse(struct measure *m, const char *why)
{
	luaL_error(m->lua, "Cannot serialise %s: %s", luaL_typename(m->lua, -1), why);
}

/*
 * How cjson writes the table on top of the stack, as it counts: as an array of *length; else, or where that is not
 * certain as well, *by_member. It makes an int of each key, which is undefined of a longer number: that is the least
 * int, so that keys before it count no more, or the greatest. False: too long.
 */
static bool look_at_table(struct measure *m, int *length, bool *by_member)
{
	lua_State *lua = m->lua;
	int max = 0, items = 0;
	bool beyond = false;

	*length = 0;
	*by_member = true;
	lua_pushnil(lua);
	while (lua_next(lua, -2) != 0) {
		lua_Number key = lua_type(lua, -2) == LUA_TNUMBER ? lua_tonumber(lua, -2) : 0;

		if (key < 1 || floor(key) != key) {
			lua_pop(lua, 2);
			return true;
		}
		beyond = beyond || key > INT_MAX;
		max = key > INT_MAX ? max : MAX(max, (int)key);
		items++;
		lua_pop(lua, 1);
		if (!measure_add(m, 0))
			return false;
	}
	if (beyond && (m->ratio <= 0 || m->safe == INT_MAX))
		max = INT_MAX;
	if (m->ratio > 0 && max > (int64_t)items * m->ratio && max > m->safe) {
		if (!m->convert && !beyond)
			json_refuse(m, "excessively sparse array");
		return true;
	}
	*length = max;
	*by_member = beyond || !max;
	return true;
}

static bool measure_value(struct measure *m, int depth);

/* What is refused here may be written by cjson no more: the rest of it was not measured. */
static bool measure_table(struct measure *m, int depth)
{
	lua_State *lua = m->lua;
	bool by_member;
	int length;

	if (depth > m->deep || !lua_checkstack(lua, 8))
		luaL_error(lua, "Cannot serialise, excessive nesting (%d)", depth);
	if (!measure_add(m, 2) || !look_at_table(m, &length, &by_member))
		return false;
	for (int i = 1; i <= length; i++) {
		lua_rawgeti(lua, -1, i);
		if (!measure_add(m, 1) || !measure_value(m, depth))
			return false;
		lua_pop(lua, 1);
	}
	if (!by_member)
		return true;
	lua_pushnil(lua);
	while (lua_next(lua, -2) != 0) {
		int type = lua_type(lua, -2);

		if (type != LUA_TSTRING && type != LUA_TNUMBER) {
			lua_pop(lua, 1);
			json_refuse(m, "table key must be a number or string");
		}
		if (!measure_add(m, 4 + (type == LUA_TNUMBER ? NUMBER : ESCAPED * lua_objlen(lua, -2))) ||
		    !measure_value(m, depth))
			return false;
		lua_pop(lua, 1);
	}
	return true;
}

/* Add the value on top of the stack. False: too long. */
static bool measure_value(struct measure *m, int depth)
{
	switch (lua_type(m->lua, -1)) {
	case LUA_TSTRING:
		return measure_add(m, 2 + ESCAPED * lua_objlen(m->lua, -1));
	case LUA_TNUMBER:
		return measure_add(m, NUMBER);
	case LUA_TNIL:
	case LUA_TBOOLEAN:
	case LUA_TLIGHTUSERDATA:
		return measure_add(m, LITERAL);
	case LUA_TTABLE:
		return measure_table(m, depth + 1);
	default:
		json_refuse(m, "type not supported");
		return false;
	}
}

/*
 * What scripts call
 */

/* So many bytes are there, or the script gets an error. */
static void make_room(lua_State *lua, size_t bytes)
{
	struct resp_script *s = resp_script_of(lua);

	if (s->used < s->limit && bytes <= s->limit - s->used)
		return;
	lua_gc(lua, LUA_GCCOLLECT, 0);
	if (s->used >= s->limit || bytes > s->limit - s->used)
		luaL_error(lua, "not enough memory: cjson may need %f bytes", (lua_Number)bytes);
}

/* The first upvalue, with the one argument. */
static int call_library(lua_State *lua)
{
	struct resp_script *s = resp_script_of(lua);
	int rc;

	lua_pushvalue(lua, lua_upvalueindex(1));
	lua_insert(lua, 1);
	s->lifted = true;
	rc = lua_pcall(lua, lua_gettop(lua) - 1, 1, 0);
	s->lifted = false;
	if (rc == 0)
		return 1;
	/* Where the script called it. */
	if (rc == LUA_ERRRUN && lua_isstring(lua, -1)) {
		luaL_where(lua, 1);
		lua_insert(lua, -2);
		lua_concat(lua, 2);
	}
	return lua_error(lua);
}

static int json_encode(lua_State *lua)
{
	struct measure m = {.lua = lua, .most = resp_script_of(lua)->limit / 4};

	luaL_argcheck(lua, lua_gettop(lua) == 1, 1, "expected 1 argument");
	lua_pushvalue(lua, lua_upvalueindex(2));
	lua_call(lua, 0, 3);
	m.convert = lua_toboolean(lua, 2);
	m.ratio = (int)lua_tointeger(lua, 3);
	m.safe = (int)lua_tointeger(lua, 4);
	lua_settop(lua, 1);
	lua_pushvalue(lua, lua_upvalueindex(3));
	lua_call(lua, 0, 1);
	m.deep = (int)lua_tointeger(lua, 2);
	lua_settop(lua, 1);
	measure_value(&m, 0);
	lua_settop(lua, 1);
	/* Its buffer is doubled and copied as it grows; then it is a string. */
	make_room(lua, 4 * m.bytes + STACK);
	return call_library(lua);
}

static int json_decode(lua_State *lua)
{
	size_t len, need = STACK;
	const char *text;

	luaL_argcheck(lua, lua_gettop(lua) == 1, 1, "expected 1 argument");
	text = luaL_checklstring(lua, 1, &len);
	need += 2 * len;
	for (size_t i = 0; i < len; i++)
		need += text[i] == '[' || text[i] == '{'   ? TABLE
			: text[i] == ',' || text[i] == ':' ? MEMBER
			: text[i] == '"'                   ? QUOTE
							   : 0;
	make_room(lua, need);
	return call_library(lua);
}

/* A setting holds as long as the script that makes it. */
static int json_configure(lua_State *lua)
{
	if (lua_gettop(lua) > 0)
		resp_script_of(lua)->configured = true;
	lua_pushvalue(lua, lua_upvalueindex(1));
	lua_insert(lua, 1);
	lua_call(lua, lua_gettop(lua) - 1, LUA_MULTRET);
	return lua_gettop(lua);
}

/* No buffer is kept. */
static int encode_keep_buffer(lua_State *lua)
{
	lua_pushboolean(lua, lua_isnoneornil(lua, 1) || lua_toboolean(lua, 1));
	return 1;
}

bool resp_json_open(lua_State *lua)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	static const char *const settings[] = {"encode_sparse_array",    "encode_max_depth",
					       "decode_max_depth",       "encode_number_precision",
					       "encode_invalid_numbers", "decode_invalid_numbers"};
	static const char *const values[] = {"null", "_NAME", "_VERSION"};
	int library;

	pthread_once(&once, find_library);
	if (!open_library)
		return false;
	lua_pushcfunction(lua, open_library);
	lua_call(lua, 0, 1);
	library = lua_gettop(lua);
	lua_getfield(lua, library, "encode_keep_buffer");
	lua_pushboolean(lua, false);
	lua_call(lua, 1, 0);

	lua_newtable(lua);
	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		lua_getfield(lua, library, values[i]);
		lua_setfield(lua, -2, values[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
		lua_getfield(lua, library, settings[i]);
		lua_pushcclosure(lua, json_configure, 1);
		lua_setfield(lua, -2, settings[i]);
	}
	lua_pushcfunction(lua, encode_keep_buffer);
	lua_setfield(lua, -2, "encode_keep_buffer");
	lua_getfield(lua, library, "encode");
	lua_getfield(lua, library, "encode_sparse_array");
	lua_getfield(lua, library, "encode_max_depth");
	lua_pushcclosure(lua, json_encode, 3);
	lua_setfield(lua, -2, "encode");
	lua_getfield(lua, library, "decode");
	lua_pushcclosure(lua, json_decode, 1);
	lua_setfield(lua, -2, "decode");
	lua_remove(lua, library);
	return true;
}
