/* run.h: what the files about Lua share. */
#ifndef RDMAD_SERVICE_RESP_SCRIPT_RUN_H
#define RDMAD_SERVICE_RESP_SCRIPT_RUN_H

#include "service/resp/script/script.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#define RESP_SCRIPT_TEXT (1 * MIB) /* bytes of a script's text; no clock is looked at while it is compiled */
#define RESP_SCRIPT_DEEP 100       /* tables in tables of a reply */

/* The one Lua of a worker. */
struct resp_script {
	lua_State *lua;
	struct resp_thread *thread;
	size_t used, limit; /* bytes of Lua's memory */
	size_t fresh;       /* bytes since the last look at the clock */
	uint64_t age;       /* of what is compiled */
	unsigned compiled;
	/* The script that runs */
	struct resp_client *client; /* NULL: none runs */
	const struct resp_call *call;
	uint64_t deadline;   /* time_coarse() */
	int error;           /* why it has to end, though its own pcall() may not know; 0: it goes on */
	bool three;          /* redis.setresp(3) */
	bool reads;          /* it must not write */
	size_t kept;         /* bytes that the step keeps for it */
	bool lifted;         /* Lua gets what it asks for: what is called could lose memory */
	bool configured;     /* settings of a library are not what they were */
	char *text;          /* of what is compiled */
	struct resp_out out; /* reply of a command of it */
};

struct resp_script *resp_script_of(lua_State *lua);
/* Whether there is time; else the script has to end. */
bool resp_script_goes_on(struct resp_script *script);
/* The script ends, also where it would catch this. */
int resp_script_stop(lua_State *lua, int error);

/*
 * library.c
 */
/* What all scripts see. Leaves on the stack the table of their globals, which gets KEYS and ARGV. */
void resp_library_open(lua_State *lua);

/*
 * match.c: string.find, match, gmatch, gsub.
 */
extern const luaL_Reg resp_match_library[];

/*
 * json.c: cjson, on top of the stack; false: it is not installed, and the stack is as it was.
 */
bool resp_json_open(lua_State *lua);

/*
 * convert.c
 */
/* The reply becomes a value on the stack. */
void resp_push_reply(lua_State *lua, const char *reply);
/* The value on top of the stack is the reply. */
void resp_reply_lua(lua_State *lua);
/* A table {err = text} on the stack; "-CODE text", or ERR is the code. */
void resp_push_error(lua_State *lua, const char *text);

#endif
