/* convert.c: replies to Lua's values, and back, by Redis's rules. */
#include "service/resp/script/run.h"

#include <math.h>
#include <stdlib.h>

void resp_push_error(lua_State *lua, const char *text)
{
	const char *blank = *text == '-' ? strchr(text, ' ') : NULL;

	lua_newtable(lua);
	lua_pushliteral(lua, "err");
	if (blank)
		lua_pushstring(lua, text + 1);
	else
		lua_pushfstring(lua, "ERR %s", *text == '-' ? text + 1 : text);
	lua_rawset(lua, -3);
}

/* A table with one member, the value on top of the stack. */
static void wrap_value(lua_State *lua, const char *name)
{
	lua_newtable(lua);
	lua_pushstring(lua, name);
	lua_pushvalue(lua, -3);
	lua_rawset(lua, -3);
	lua_remove(lua, -2);
}

static const char *push_reply(lua_State *lua, const char *at);

static const char *push_many(lua_State *lua, const char *at, int64_t members)
{
	lua_createtable(lua, (int)MIN(members, 1024), 0);
	for (int64_t i = 0; i < members; i++) {
		at = push_reply(lua, at);
		lua_rawseti(lua, -2, (int)i + 1);
	}
	return at;
}

static const char *push_pairs(lua_State *lua, const char *at, int64_t pairs, bool set)
{
	lua_newtable(lua);
	for (int64_t i = 0; i < pairs; i++) {
		at = push_reply(lua, at);
		if (set)
			lua_pushboolean(lua, true);
		else
			at = push_reply(lua, at);
		if (lua_isnil(lua, -2) || (lua_isnumber(lua, -2) && isnan(lua_tonumber(lua, -2))))
			lua_pop(lua, 2);
		else
			lua_rawset(lua, -3);
	}
	return at;
}

/* One reply, as build.c of resp makes it: no bounds need be looked at. The place behind it. */
static const char *push_reply(lua_State *lua, const char *at)
{
	const char *end = strstr(at, "\r\n");
	char kind = *at++;
	int64_t number = strtoll(at, NULL, 10);

	luaL_checkstack(lua, 8, NULL);
	switch (kind) {
	case '+':
		lua_pushlstring(lua, at, (size_t)(end - at));
		wrap_value(lua, "ok");
		break;
	case '-':
		lua_pushlstring(lua, at, (size_t)(end - at));
		wrap_value(lua, "err");
		break;
	case ':':
		lua_pushnumber(lua, (lua_Number)number);
		break;
	case '$':
		if (number < 0) {
			lua_pushboolean(lua, false);
			break;
		}
		lua_pushlstring(lua, end + 2, (size_t)number);
		return end + 2 + number + 2;
	case '=':
		lua_newtable(lua);
		lua_pushlstring(lua, end + 2, 3);
		lua_setfield(lua, -2, "format");
		lua_pushlstring(lua, end + 6, (size_t)number - 4);
		lua_setfield(lua, -2, "string");
		wrap_value(lua, "verbatim_string");
		return end + 2 + number + 2;
	case '*':
	case '>':
		if (number >= 0)
			return push_many(lua, end + 2, number);
		lua_pushboolean(lua, false);
		break;
	case '%':
	case '~':
		at = push_pairs(lua, end + 2, number, kind == '~');
		wrap_value(lua, kind == '%' ? "map" : "set");
		return at;
	case '#':
		lua_pushboolean(lua, *at == 't');
		break;
	case ',':
		lua_pushnumber(lua, strtod(at, NULL));
		wrap_value(lua, "double");
		break;
	default:
		lua_pushnil(lua);
	}
	return end + 2;
}

void resp_push_reply(lua_State *lua, const char *reply)
{
	push_reply(lua, reply);
}

/* Whether the table on top has this member, of that type, which is then above it. */
static bool has_member(lua_State *lua, const char *name, int type)
{
	lua_pushstring(lua, name);
	lua_rawget(lua, -2);
	if (lua_type(lua, -1) == type)
		return true;
	lua_pop(lua, 1);
	return false;
}

static void reply_value(lua_State *lua, struct resp_script *s, unsigned deep);

static void reply_simple(struct resp_out *out, char mark, const char *text)
{
	char *line = strdup(text);

	if (!line) {
		out->failed = true;
		return;
	}
	for (char *at = line; *at; at++)
		if (*at == '\r' || *at == '\n')
			*at = ' ';
	if (mark == '+')
		resp_simple(out, line);
	else
		resp_error(out, "%s", line);
	free(line);
}

/* Members up to the first nil. */
static void reply_array(lua_State *lua, struct resp_script *s, unsigned deep)
{
	int members = 0;

	for (bool more = true; more;) {
		lua_rawgeti(lua, -1, members + 1);
		more = !lua_isnil(lua, -1);
		members += more;
		lua_pop(lua, 1);
	}
	resp_array(s->client->out, (size_t)members);
	for (int i = 1; i <= members && !s->error && !s->client->out->failed; i++) {
		lua_rawgeti(lua, -1, i);
		reply_value(lua, s, deep + 1);
	}
}

static void reply_pairs(lua_State *lua, struct resp_script *s, unsigned deep, bool set)
{
	size_t pairs = 0;

	for (lua_pushnil(lua); lua_next(lua, -2); lua_pop(lua, 1))
		pairs++;
	if (set)
		resp_set(s->client->out, pairs);
	else
		resp_map(s->client->out, pairs);
	for (lua_pushnil(lua); lua_next(lua, -2);) {
		lua_pushvalue(lua, -2);
		reply_value(lua, s, deep + 1);
		if (set)
			lua_pop(lua, 1);
		else
			reply_value(lua, s, deep + 1);
	}
}

static void reply_table(lua_State *lua, struct resp_script *s, unsigned deep)
{
	struct resp_out *out = s->client->out;

	if (has_member(lua, "err", LUA_TSTRING)) {
		reply_simple(out, '-', lua_tostring(lua, -1));
		lua_pop(lua, 1);
	} else if (has_member(lua, "ok", LUA_TSTRING)) {
		reply_simple(out, '+', lua_tostring(lua, -1));
		lua_pop(lua, 1);
	} else if (has_member(lua, "double", LUA_TNUMBER)) {
		resp_double(out, lua_tonumber(lua, -1));
		lua_pop(lua, 1);
	} else if (has_member(lua, "map", LUA_TTABLE)) {
		reply_pairs(lua, s, deep, false);
		lua_pop(lua, 1);
	} else if (has_member(lua, "set", LUA_TTABLE)) {
		reply_pairs(lua, s, deep, true);
		lua_pop(lua, 1);
	} else if (has_member(lua, "verbatim_string", LUA_TTABLE)) {
		if (has_member(lua, "string", LUA_TSTRING)) {
			size_t len;
			const char *text = lua_tolstring(lua, -1, &len);

			resp_verbatim(out, text, len);
			lua_pop(lua, 1);
		} else {
			resp_null(out);
		}
		lua_pop(lua, 1);
	} else {
		reply_array(lua, s, deep);
	}
}

/* Takes the value from the stack. The clock is looked at with each table, as a table may have itself. */
static void reply_value(lua_State *lua, struct resp_script *s, unsigned deep)
{
	struct resp_out *out = s->client->out;
	const char *text;
	size_t len;

	luaL_checkstack(lua, 8, NULL);
	switch (lua_type(lua, -1)) {
	case LUA_TSTRING:
		text = lua_tolstring(lua, -1, &len);
		resp_bulk(out, text, len);
		break;
	case LUA_TBOOLEAN:
		if (s->three)
			resp_bool(out, lua_toboolean(lua, -1));
		else if (lua_toboolean(lua, -1))
			resp_number(out, 1);
		else
			resp_null(out);
		break;
	case LUA_TNUMBER: {
		lua_Number number = lua_tonumber(lua, -1);

		/* Beyond 64 bits, and of nan: as x86 converts. */
		resp_number(out, number >= -0x1p63 && number < 0x1p63 ? (int64_t)number : INT64_MIN);
		break;
	}
	case LUA_TTABLE:
		if (deep >= RESP_SCRIPT_DEEP)
			resp_error(out, "ERR reached lua stack limit");
		else if (resp_script_goes_on(s))
			reply_table(lua, s, deep);
		break;
	default:
		resp_null(out);
	}
	lua_pop(lua, 1);
}

void resp_reply_lua(lua_State *lua)
{
	reply_value(lua, resp_script_of(lua), 0);
}
