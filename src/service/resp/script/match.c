/*
 * match.c: string.find, match, gmatch and gsub. Lua's own try all ways to match, which may take for ever, and no hook
 * is called meanwhile; and they call themselves as deep as the pattern wants. These here look at the clock and count
 * how deep they are. The patterns and the order of trials are those of Lua 5.1 (lstrlib.c by R. Ierusalimschy and
 * others, Lua.org, PUC-Rio).
 */
#include "service/resp/script/run.h"

#include <ctype.h>

#define ESCAPE '%'
#define DEEPEST 200
#define LOOK_STEPS 4096
#define UNFINISHED ((ptrdiff_t)-1)
#define POSITION ((ptrdiff_t)-2)

struct match {
	const char *text, *end;
	const char *pattern_end;
	lua_State *lua;
	unsigned deep, steps;
	int level; /* captures */
	struct {
		const char *at;
		ptrdiff_t len;
	} capture[LUA_MAXCAPTURES];
};

static void match_step(struct match *m)
{
	if (++m->steps % LOOK_STEPS == 0 && !resp_script_goes_on(resp_script_of(m->lua)))
		resp_script_stop(m->lua, resp_script_of(m->lua)->error);
}

/* The end of the single character, class or set that begins here. */
static const char *single_end(struct match *m, const char *p)
{
	switch (*p++) {
	case '\0':
		if (p > m->pattern_end)
			luaL_error(m->lua, "malformed pattern");
		return p;
	case ESCAPE:
		if (p == m->pattern_end)
			luaL_error(m->lua, "malformed pattern (ends with '%%')");
		return p + 1;
	case '[':
		if (p < m->pattern_end && *p == '^')
			p++;
		do {
			if (p >= m->pattern_end)
				luaL_error(m->lua, "malformed pattern (missing ']')");
			if (*p++ == ESCAPE && p < m->pattern_end)
				p++;
		} while (p >= m->pattern_end || *p != ']');
		return p + 1;
	default:
		return p;
	}
}

static bool in_class(int c, int class)
{
	bool is;

	switch (tolower(class)) {
	case 'a':
		is = isalpha(c);
		break;
	case 'c':
		is = iscntrl(c);
		break;
	case 'd':
		is = isdigit(c);
		break;
	case 'l':
		is = islower(c);
		break;
	case 'p':
		is = ispunct(c);
		break;
	case 's':
		is = isspace(c);
		break;
	case 'u':
		is = isupper(c);
		break;
	case 'w':
		is = isalnum(c);
		break;
	case 'x':
		is = isxdigit(c);
		break;
	case 'z':
		is = c == 0;
		break;
	default:
		return class == c;
	}
	return isupper(class) ? !is : is;
}

/* `p` is at the '[', `last` at the ']'. */
static bool in_set(int c, const char *p, const char *last)
{
	bool is = true;

	if (p[1] == '^') {
		is = false;
		p++;
	}
	while (++p < last) {
		if (*p == ESCAPE) {
			p++;
			if (in_class(c, (unsigned char)*p))
				return is;
		} else if (p[1] == '-' && p + 2 < last) {
			p += 2;
			if ((unsigned char)p[-2] <= c && c <= (unsigned char)*p)
				return is;
		} else if ((unsigned char)*p == c) {
			return is;
		}
	}
	return !is;
}

static bool is_single(struct match *m, const char *s, const char *p, const char *end)
{
	int c;

	match_step(m);
	if (s >= m->end)
		return false;
	c = (unsigned char)*s;
	switch (*p) {
	case '.':
		return true;
	case ESCAPE:
		return in_class(c, (unsigned char)p[1]);
	case '[':
		return in_set(c, p, end - 1);
	default:
		return (unsigned char)*p == c;
	}
}

static const char *match_attempt(struct match *m, const char *s, const char *p);

static const char *match_balanced(struct match *m, const char *s, const char *p)
{
	int depth = 1;

	if (m->pattern_end - p < 2)
		luaL_error(m->lua, "unbalanced pattern");
	if (s >= m->end || *s != *p)
		return NULL;
	while (++s < m->end) {
		match_step(m);
		if (*s == p[1]) {
			if (--depth == 0)
				return s + 1;
		} else if (*s == *p) {
			depth++;
		}
	}
	return NULL;
}

static const char *match_most(struct match *m, const char *s, const char *p, const char *end)
{
	ptrdiff_t n = 0;

	while (is_single(m, s + n, p, end))
		n++;
	for (; n >= 0; n--) {
		const char *found = match_attempt(m, s + n, end + 1);

		if (found)
			return found;
	}
	return NULL;
}

static const char *match_fewest(struct match *m, const char *s, const char *p, const char *end)
{
	for (;; s++) {
		const char *found = match_attempt(m, s, end + 1);

		if (found || !is_single(m, s, p, end))
			return found;
	}
}

static const char *capture_begin(struct match *m, const char *s, const char *p, ptrdiff_t what)
{
	const char *found;

	if (m->level >= LUA_MAXCAPTURES)
		luaL_error(m->lua, "too many captures");
	m->capture[m->level].at = s;
	m->capture[m->level].len = what;
	m->level++;
	found = match_attempt(m, s, p);
	if (!found)
		m->level--;
	return found;
}

static const char *capture_end(struct match *m, const char *s, const char *p)
{
	int at = m->level - 1;
	const char *found;

	while (at >= 0 && m->capture[at].len != UNFINISHED)
		at--;
	if (at < 0)
		luaL_error(m->lua, "invalid pattern capture");
	m->capture[at].len = s - m->capture[at].at;
	found = match_attempt(m, s, p);
	if (!found)
		m->capture[at].len = UNFINISHED;
	return found;
}

static const char *match_again(struct match *m, const char *s, int digit)
{
	int at = digit - '1';
	ptrdiff_t len = at >= 0 && at < m->level ? m->capture[at].len : UNFINISHED;

	if (len < 0) /* also of a position, which has no bytes */
		luaL_error(m->lua, "invalid capture index");
	m->steps += (unsigned)MIN(len / 64, LOOK_STEPS);
	return m->end - s >= len && memcmp(m->capture[at].at, s, (size_t)len) == 0 ? s + len : NULL;
}

/* A frontier: %f[set]. */
static bool is_frontier(struct match *m, const char *s, const char *p, const char *end)
{
	int before = s == m->text ? 0 : (unsigned char)s[-1], here = s < m->end ? (unsigned char)*s : 0;

	return !in_set(before, p, end - 1) && in_set(here, p, end - 1);
}

static const char *attempt_one(struct match *m, const char *s, const char *p)
{
	const char *end;

	while (p != m->pattern_end) {
		match_step(m);
		if (*p == '(')
			return p + 1 < m->pattern_end && p[1] == ')' ? capture_begin(m, s, p + 2, POSITION)
								     : capture_begin(m, s, p + 1, UNFINISHED);
		if (*p == ')')
			return capture_end(m, s, p + 1);
		if (*p == '$' && p + 1 == m->pattern_end)
			return s == m->end ? s : NULL;
		if (*p == ESCAPE && p + 1 < m->pattern_end && p[1] == 'b') {
			s = match_balanced(m, s, p + 2);
			if (!s)
				return NULL;
			p += 4;
			continue;
		}
		if (*p == ESCAPE && p + 1 < m->pattern_end && p[1] == 'f') {
			p += 2;
			if (p >= m->pattern_end || *p != '[')
				luaL_error(m->lua, "missing '[' after '%%f' in pattern");
			end = single_end(m, p);
			if (!is_frontier(m, s, p, end))
				return NULL;
			p = end;
			continue;
		}
		if (*p == ESCAPE && p + 1 < m->pattern_end && isdigit((unsigned char)p[1])) {
			s = match_again(m, s, (unsigned char)p[1]);
			if (!s)
				return NULL;
			p += 2;
			continue;
		}
		end = single_end(m, p);
		switch (end < m->pattern_end ? *end : '\0') {
		case '?': {
			const char *found = is_single(m, s, p, end) ? match_attempt(m, s + 1, end + 1) : NULL;

			if (found)
				return found;
			p = end + 1;
			continue;
		}
		case '*':
			return match_most(m, s, p, end);
		case '+':
			return is_single(m, s, p, end) ? match_most(m, s + 1, p, end) : NULL;
		case '-':
			return match_fewest(m, s, p, end);
		default:
			if (!is_single(m, s, p, end))
				return NULL;
			s++;
			p = end;
		}
	}
	return s;
}

static const char *match_attempt(struct match *m, const char *s, const char *p)
{
	const char *found;

	if (++m->deep > DEEPEST)
		luaL_error(m->lua, "pattern too complex");
	found = attempt_one(m, s, p);
	m->deep--;
	return found;
}

static void match_begin(struct match *m, lua_State *lua, const char *text, size_t len, const char *pattern,
			size_t pattern_len)
{
	m->lua = lua;
	m->text = text;
	m->end = text + len;
	m->pattern_end = pattern + pattern_len;
	m->deep = 0;
	m->steps = 0;
	m->level = 0;
}

static void push_capture(struct match *m, int i, const char *s, const char *end)
{
	if (i >= m->level) {
		if (i != 0)
			luaL_error(m->lua, "invalid capture index");
		lua_pushlstring(m->lua, s, (size_t)(end - s));
	} else if (m->capture[i].len == UNFINISHED) {
		luaL_error(m->lua, "unfinished capture");
	} else if (m->capture[i].len == POSITION) {
		lua_pushinteger(m->lua, m->capture[i].at - m->text + 1);
	} else {
		lua_pushlstring(m->lua, m->capture[i].at, (size_t)m->capture[i].len);
	}
}

static int push_captures(struct match *m, const char *s, const char *end)
{
	int n = m->level == 0 && s ? 1 : m->level;

	luaL_checkstack(m->lua, n, "too many captures");
	for (int i = 0; i < n; i++)
		push_capture(m, i, s, end);
	return n;
}

static int find_pattern(lua_State *lua, bool finds)
{
	size_t len, pattern_len;
	const char *text = luaL_checklstring(lua, 1, &len), *pattern = luaL_checklstring(lua, 2, &pattern_len);
	ptrdiff_t init = luaL_optinteger(lua, 3, 1);
	const char *s, *found;
	struct match m;
	bool anchored;

	init = init < 0 ? init + (ptrdiff_t)len + 1 : init;
	init = MAX(init, 1) - 1;
	if (init > (ptrdiff_t)len)
		init = (ptrdiff_t)len;
	s = text + init;
	if (finds && (lua_toboolean(lua, 4) || !strpbrk(pattern, "^$*+?.([%-"))) {
		found = pattern_len ? memmem(s, len - (size_t)init, pattern, pattern_len) : s;
		if (!found) {
			lua_pushnil(lua);
			return 1;
		}
		lua_pushinteger(lua, found - text + 1);
		lua_pushinteger(lua, found - text + (ptrdiff_t)pattern_len);
		return 2;
	}
	anchored = pattern_len && *pattern == '^';
	match_begin(&m, lua, text, len, pattern, pattern_len);
	pattern += anchored;
	do {
		m.level = 0;
		m.deep = 0;
		found = match_attempt(&m, s, pattern);
		if (found && finds) {
			lua_pushinteger(lua, s - text + 1);
			lua_pushinteger(lua, found - text);
			return push_captures(&m, NULL, NULL) + 2;
		}
		if (found)
			return push_captures(&m, s, found);
	} while (s++ < m.end && !anchored);
	lua_pushnil(lua);
	return 1;
}

static int string_find(lua_State *lua)
{
	return find_pattern(lua, true);
}

static int string_match(lua_State *lua)
{
	return find_pattern(lua, false);
}

static int gmatch_next(lua_State *lua)
{
	size_t len, pattern_len;
	const char *text = lua_tolstring(lua, lua_upvalueindex(1), &len);
	const char *pattern = lua_tolstring(lua, lua_upvalueindex(2), &pattern_len);
	struct match m;

	match_begin(&m, lua, text, len, pattern, pattern_len);
	for (const char *s = text + (size_t)lua_tointeger(lua, lua_upvalueindex(3)); s <= m.end; s++) {
		const char *found;

		m.level = 0;
		m.deep = 0;
		found = match_attempt(&m, s, pattern);
		if (!found)
			continue;
		lua_pushinteger(lua, found - text + (found == s));
		lua_replace(lua, lua_upvalueindex(3));
		return push_captures(&m, s, found);
	}
	return 0;
}

static int string_gmatch(lua_State *lua)
{
	luaL_checkstring(lua, 1);
	luaL_checkstring(lua, 2);
	lua_settop(lua, 2);
	lua_pushinteger(lua, 0);
	lua_pushcclosure(lua, gmatch_next, 3);
	return 1;
}

static void add_text(struct match *m, luaL_Buffer *to, const char *s, const char *end)
{
	size_t len;
	const char *text = lua_tolstring(m->lua, 3, &len);

	for (size_t i = 0; i < len; i++) {
		match_step(m);
		if (text[i] != ESCAPE) {
			luaL_addchar(to, text[i]);
			continue;
		}
		i++;
		if (!isdigit((unsigned char)text[i])) {
			if (i < len)
				luaL_addchar(to, text[i]);
		} else if (text[i] == '0') {
			luaL_addlstring(to, s, (size_t)(end - s));
		} else {
			push_capture(m, text[i] - '1', s, end);
			luaL_addvalue(to);
		}
	}
}

static void add_value(struct match *m, luaL_Buffer *to, const char *s, const char *end)
{
	lua_State *lua = m->lua;

	switch (lua_type(lua, 3)) {
	case LUA_TNUMBER:
	case LUA_TSTRING:
		add_text(m, to, s, end);
		return;
	case LUA_TFUNCTION:
		lua_pushvalue(lua, 3);
		lua_call(lua, push_captures(m, s, end), 1);
		break;
	default:
		push_capture(m, 0, s, end);
		lua_gettable(lua, 3);
	}
	if (!lua_toboolean(lua, -1)) {
		lua_pop(lua, 1);
		lua_pushlstring(lua, s, (size_t)(end - s));
	} else if (!lua_isstring(lua, -1)) {
		luaL_error(lua, "invalid replacement value (a %s)", luaL_typename(lua, -1));
	}
	luaL_addvalue(to);
}

static int string_gsub(lua_State *lua)
{
	size_t len, pattern_len;
	const char *text = luaL_checklstring(lua, 1, &len), *pattern = luaL_checklstring(lua, 2, &pattern_len);
	const char *s = text;
	int type = lua_type(lua, 3), times = 0, times_max = luaL_optint(lua, 4, (int)MIN(len + 1, INT32_MAX));
	bool anchored = pattern_len && *pattern == '^';
	luaL_Buffer to;
	struct match m;

	luaL_argcheck(lua, type == LUA_TNUMBER || type == LUA_TSTRING || type == LUA_TFUNCTION || type == LUA_TTABLE, 3,
		      "string/function/table expected");
	match_begin(&m, lua, text, len, pattern, pattern_len);
	pattern += anchored;
	luaL_buffinit(lua, &to);
	while (times < times_max) {
		const char *found;

		m.level = 0;
		m.deep = 0;
		found = match_attempt(&m, s, pattern);
		if (found) {
			times++;
			add_value(&m, &to, s, found);
		}
		if (found && found > s)
			s = found;
		else if (s < m.end)
			luaL_addchar(&to, *s++);
		else
			break;
		if (anchored)
			break;
	}
	luaL_addlstring(&to, s, (size_t)(m.end - s));
	luaL_pushresult(&to);
	lua_pushinteger(lua, times);
	return 2;
}

const luaL_Reg resp_match_library[] = {
	{"find", string_find}, {"match", string_match}, {"gmatch", string_gmatch}, {"gsub", string_gsub}, {NULL, NULL},
};
