#!/usr/bin/env python3
"""Scripts (EVAL) by rdmad and by a redis-server: each reply has to be the same, byte by byte; then scripts that would not end or take all
memory, and scripts that meet.

    resp_scripts.py [--rdmad PATH] [--redis PATH]

Exit status 77: there is no redis-server, or rdmad was built without Lua.
"""
import argparse
import hashlib
import os
import shutil
import sys
import tempfile
import threading
import time

from resp_differential import CONFIGURATION, Connection, Error, Server, redis, show

# --- scripts of libraries: (text, keys, arguments)

REDIS_PY_RELEASE = """
        local token = redis.call('get', KEYS[1])
        if not token or token ~= ARGV[1] then
            return 0
        end
        redis.call('del', KEYS[1])
        return 1
    """
REDIS_PY_EXTEND = """
        local token = redis.call('get', KEYS[1])
        if not token or token ~= ARGV[1] then
            return 0
        end
        local expiration = redis.call('pttl', KEYS[1])
        if not expiration then
            expiration = 0
        end
        if expiration < 0 then
            return 0
        end

        local newttl = ARGV[2]
        if ARGV[3] == "0" then
            newttl = ARGV[2] + expiration
        end
        redis.call('pexpire', KEYS[1], newttl)
        return 1
    """
REDIS_PY_REACQUIRE = """
        local token = redis.call('get', KEYS[1])
        if not token or token ~= ARGV[1] then
            return 0
        end
        redis.call('pexpire', KEYS[1], ARGV[2])
        return 1
    """
DJANGO_INCR = """
        local exists = redis.call('EXISTS', KEYS[1])
        if (exists == 1) then
            return redis.call('INCRBY', KEYS[1], ARGV[1])
        else return false end
    """
RATE_LIMIT_REDIS = """
      local windowMs = tonumber(ARGV[2])
      local resetOnChange = ARGV[1] == "1"

      local timeToExpire = redis.call("PTTL", KEYS[1])

      if timeToExpire <= 0 then
        redis.call("SET", KEYS[1], 1, "PX", windowMs)
        return { 1, windowMs }
      end

      local totalHits = redis.call("INCR", KEYS[1])

      if resetOnChange then
        redis.call("PEXPIRE", KEYS[1], windowMs)
        timeToExpire = windowMs
      end

      return { totalHits, timeToExpire > 0 }
    """
RATE_LIMIT_REDIS_GET = """
      local totalHits = redis.call("GET", KEYS[1])
      local timeToExpire = redis.call("PTTL", KEYS[1])
      return { totalHits, timeToExpire > 0 }
    """
RATE_LIMITER_FLEXIBLE = """redis.call('set', KEYS[1], 0, 'EX', ARGV[2], 'NX') \
local consumed = redis.call('incrby', KEYS[1], ARGV[1]) \
local ttl = redis.call('pttl', KEYS[1]) \
if ttl == -1 then \
  redis.call('expire', KEYS[1], ARGV[2]) \
  ttl = 1000 * ARGV[2] \
end \
return {consumed, ttl > 0} \
"""
REDLOCK_LOCK = """
  -- Return 0 if an entry already exists.
  for i, key in ipairs(KEYS) do
    if redis.call("exists", key) == 1 then
      return 0
    end
  end
  for i, key in ipairs(KEYS) do
    redis.call("set", key, ARGV[1], "PX", ARGV[2])
  end
  return #KEYS
"""
REDLOCK_UNLOCK = """
  local count = 0
  for i, key in ipairs(KEYS) do
    -- Only remove entries for *this* lock value.
    if redis.call("get", key) == ARGV[1] then
      redis.pcall("del", key)
      count = count + 1
    end
  end
  return count
"""
REDLOCK_EXTEND = """
  for i, key in ipairs(KEYS) do
    if redis.call("get", key) ~= ARGV[1] then
      return 0
    end
  end
  for i, key in ipairs(KEYS) do
    redis.call("set", key, ARGV[1], "PX", ARGV[2])
  end
  return #KEYS
"""
LARAVEL_ADD = "return redis.call('exists',KEYS[1])<1 and redis.call('setex',KEYS[1],ARGV[2],ARGV[1])"
LARAVEL_RELEASE = """
if redis.call("get",KEYS[1]) == ARGV[1] then
    return redis.call("del",KEYS[1])
else
    return 0
end
"""
LIMITS_INCR = """
        local current
        local amount = tonumber(ARGV[2])
        current = redis.call("incrby", KEYS[1], amount)
        if tonumber(current) == amount then
            redis.call("expire", KEYS[1], ARGV[1])
        end
        return current
        """
LIMITS_CLEAR = """
        local keys = redis.call('keys', KEYS[1])
        local res = 0
        for i=1,#keys,5000 do
            res = res + redis.call(
                'del', unpack(keys, i, math.min(i+4999, #keys))
            )
        end
        return res
        """
SYMFONY_LOCK = """
            local key = KEYS[1]
            local uniqueToken = ARGV[2]
            local ttl = tonumber(ARGV[3])
            -- asserts the KEY is compatible with current version (old Symfony <5.2 BC)
            if redis.call("GET", key) == uniqueToken then
                redis.call("PEXPIRE", key, ttl)
                return true
            end
            if redis.call("SET", key, uniqueToken, "NX", "PX", ttl) then return true end
            return false
"""
LIBRARIES = [
    ("SET", "lock", "token", "PX", "100000"),
    (REDIS_PY_RELEASE, ["lock"], ["other"]), (REDIS_PY_EXTEND, ["lock"], ["token", "5000", "0"]),
    (REDIS_PY_EXTEND, ["lock"], ["token", "500000", "1"]), (REDIS_PY_EXTEND, ["lock"], ["x", "5000", "1"]),
    (REDIS_PY_REACQUIRE, ["lock"], ["token", "70000"]), (REDIS_PY_REACQUIRE, ["lock"], ["nobody", "70000"]),
    (REDIS_PY_RELEASE, ["lock"], ["token"]), (REDIS_PY_RELEASE, ["lock"], ["token"]), ("EXISTS", "lock"),
    (DJANGO_INCR, ["count"], ["5"]), ("SET", "count", "7"), (DJANGO_INCR, ["count"], ["5"]), (DJANGO_INCR, ["count"], ["-20"]),
    (RATE_LIMIT_REDIS, ["hits"], ["0", "60000"]), (RATE_LIMIT_REDIS, ["hits"], ["0", "60000"]), (RATE_LIMIT_REDIS, ["hits"], ["1", "60000"]),
    (RATE_LIMIT_REDIS_GET, ["hits"], []), (RATE_LIMIT_REDIS_GET, ["none"], []),
    (RATE_LIMITER_FLEXIBLE, ["flex"], ["1", "100"]), (RATE_LIMITER_FLEXIBLE, ["flex"], ["3", "100"]),
    (REDLOCK_LOCK, ["r1", "r2"], ["v", "100000"]), (REDLOCK_LOCK, ["r1", "r2"], ["v", "100000"]), (REDLOCK_EXTEND, ["r1", "r2"], ["v", "200000"]),
    (REDLOCK_EXTEND, ["r1", "r2"], ["w", "200000"]), (REDLOCK_UNLOCK, ["r1", "r2"], ["w"]), (REDLOCK_UNLOCK, ["r1", "r2"], ["v"]),
    (LARAVEL_ADD, ["cache"], ["value", "100"]), (LARAVEL_ADD, ["cache"], ["value", "100"]), ("GET", "cache"),
    (LARAVEL_RELEASE, ["cache"], ["x"]), (LARAVEL_RELEASE, ["cache"], ["value"]),
    (LIMITS_INCR, ["limit"], ["60", "1"]), (LIMITS_INCR, ["limit"], ["60", "1"]), ("TTL", "limit"), (LIMITS_CLEAR, ["l*"], []), ("EXISTS", "limit"),
    (SYMFONY_LOCK, ["sym"], ["x", "token", "10000"]), (SYMFONY_LOCK, ["sym"], ["x", "other", "10000"]), (SYMFONY_LOCK, ["sym"], ["x", "token", "10000"]),
]

# --- what scripts answer. "s" and "n" are a string and a number, "none" is not there.

SCRIPTS = """
return 1
return -1
return 3.99
return -3.99
return 0.1
return 1e15
return -1e18
return 'text'
return ''
return 'a\\0b\\r\\n'
return nil
return
return true
return false
return {}
return {1,2,3}
return {1,nil,3}
return {1,2,{3,{4,{5}}}}
return {'a',true,false,1.7}
return {a=1}
return {1,a=2}
return {ok='fine'}
return {ok='two\\r\\nlines'}
return {err='bad'}
return {err='MY bad thing'}
return {err='-MY bad thing'}
return {{err='inner'},{ok='inner'}}
return {ok=1}
return {err=1}
return function() end
return redis.status_reply('STATUS')
return redis.error_reply('failed')
return redis.error_reply('MY failed')
return redis.error_reply('-MY failed')
return redis.error_reply('-MYFAILED')
return redis.error_reply('')
return redis.status_reply('')
return redis.status_reply()
return redis.error_reply()
return redis.status_reply(1)
return redis.error_reply('a','b')
return redis.sha1hex('')
return redis.sha1hex('abc')
return redis.sha1hex(string.rep('a',55))
return redis.sha1hex(string.rep('a',56))
return redis.sha1hex(string.rep('a',64))
return redis.sha1hex(string.rep('a',119))
return redis.sha1hex(string.rep('ab',1000))
return redis.sha1hex(12)
return redis.sha1hex()
return #KEYS
return #ARGV
return KEYS
return ARGV
return {KEYS[1],ARGV[1],KEYS[2],ARGV[2]}
KEYS[1]='x' return KEYS[1]
return type(KEYS)
return redis.call('get','s')
return redis.call('get','none')
return redis.call('GET',KEYS[1])
return redis.call('set','t','1')
return redis.call('set','t','1','NX')
return redis.call('set','t','2','XX','GET')
return redis.call('incr','n')
return redis.call('incrby','n',5)
return redis.call('incrby','n',1.5)
return redis.call('incrbyfloat','n',1.5)
return redis.call('incr','s')
return redis.pcall('incr','s')
return redis.pcall('incr','s').err
return redis.pcall('incr','s')['err']
return {redis.pcall('incr','s'),1}
return type(redis.pcall('incr','s'))
return type(redis.call('get','none'))
return type(redis.call('set','t',1))
return redis.call('set','t',1).ok
return redis.call('set','t',1)['ok']
return redis.call('mget','s','none','n')
return #redis.call('mget','s','none','n')
return redis.call('mget','s','none','n')[2]
return redis.call('mset','a','1','b','2')
return redis.call('exists','a','b','none')
return redis.call('del','a','b')
return redis.call('type','s')
return redis.call('type','s').ok
return redis.call('type','none')
return redis.call('strlen','s')
return redis.call('append','s','more')
return redis.call('getrange','s',0,2)
return redis.call('getrange','s','0','-1')
return redis.call('setrange','s',1,'X')
return redis.call('ttl','s')
return redis.call('pttl','none')
return redis.call('expire','s',10000)
return redis.call('ttl','s') > 9990
return redis.call('persist','s')
return redis.call('getset','s','again')
return redis.call('getdel','t')
return redis.call('setnx','t','x')
return redis.call('rename','t','u')
return redis.call('rename','none','u')
return redis.call('copy','s','v')
return redis.call('ping')
return redis.call('echo','text')
return redis.call('time')[1] ~= nil
return redis.call('dbsize')
return redis.call('set','num',10) and redis.call('get','num')
return redis.call('set','num',3.5) and redis.call('get','num')
return redis.call('set','num',1e20) and redis.call('get','num')
return redis.call('set','num',0.1) and redis.call('get','num')
return redis.call()
return redis.pcall()
return redis.call('nosuchcommand')
return redis.pcall('nosuchcommand')
return redis.call('get')
return redis.pcall('get')
return redis.call('get','a','b')
return redis.call('get',nil)
return redis.call('get',true)
return redis.call('get',{})
return redis.pcall('get',{})
return redis.call('eval','return 1',0)
return redis.call('multi')
return redis.call('watch','a')
return redis.call('auth','x')
return redis.call('hello')
return redis.call('script','load','return 1')
return redis.call('subscribe','a')
return redis.call('client','id')
return redis.call('set','a')
return redis.call('set','a','b','NX','XX')
return redis.call('setex','a','x','b')
return redis.call('setex','a',0,'b')
return redis.call('expire','a','x')
return x
x = 1
x = 1 return x
local x = 1 return x
function f() return 1 end return f()
local function f() return 1 end return f()
_G.x = 1
_G['x'] = 1 return 1
return _G.nosuch
redis.call = nil
redis.x = 1
string.x = 1
string.format = nil
math.x = 1
table.insert(table, 1)
rawset(_G, 'x', 1)
error('failed')
error({err='failed'})
error({err='MY failed'})
error('failed', 0)
error('failed', 2)
error()
error(nil)
error(12)
assert(false)
assert(false, 'reason')
assert(nil)
return assert(1)
local t = nil return t.x
return 1 + nil
return 1 + 'a'
return 1 + '2'
return 'a' .. nil
return 'a' .. 1
return #nil
return {} < {}
return 1 < 'a'
return nil()
local a = {} return a.b.c
return tostring(nil)
return tostring(1.5)
return tostring(1e15)
return tostring(1e100)
return tostring(true)
return tonumber('12')
return tonumber('0x10')
return tonumber('abc')
return tonumber('10', 2)
return tonumber('zz', 36)
return type(nil)
return select('#', 1, 2, 3)
return select(2, 'a', 'b', 'c')
return unpack({1,2,3})
return {unpack({1,2,3})}
return {pcall(error, 'x')}
return {pcall(error, {err='x'})}
local ok, e = pcall(error, 'x') return e
local ok, e = pcall(function() error('x') end) return e
local ok, e = pcall(redis.call, 'incr', 's') return e
local ok, e = pcall(redis.call, 'incr', 's') return e.err
local ok, e = pcall(redis.call, 'nosuch') return e
local ok, e = xpcall(function() error('x') end, function(m) return 'handled ' .. m end) return e
return next({})
return rawget({a=1}, 'a')
return rawequal('a', 'a')
return setmetatable({}, {__index = function(t, k) return k end}).field
return getmetatable({})
return math.floor(1.5)
return math.huge
return -math.huge
return 0/0
return math.max(1, 5, 3)
return math.pi
return {math.random(1000000), math.random(1000000)}
return {math.random(1000000), math.random(-5, 5)}
math.randomseed(7) return {math.random(1000), math.random(1000)}
return math.random(1000000)
math.randomseed(-1) return math.random(1000000)
return math.random(1000000)
return math.random(0)
return math.random(5, 1)
return string.len('abc')
return ('abc'):upper()
return string.rep('ab', 3)
return string.rep('ab', 0)
return string.rep('ab', -1)
return string.rep('', 100)
return string.reverse('abc')
return string.byte('a')
return string.char(65, 66)
return string.format('%d %s %5.2f %x', 1, 'a', 1.5, 255)
return string.format('%q', 'a"b')
return string.format('%99999d', 1)
return string.format('%d')
return string.sub('abcdef', 2, -2)
return {string.find('hello world', 'o w')}
return {string.find('hello world', 'l+')}
return {string.find('hello world', '(o)%s(w)')}
return {string.find('hello', '')}
return {string.find('hello', '', 10)}
return {string.find('hello', 'l', -2)}
return {string.find('a.b', '.', 1, true)}
return {string.find('a.b', '.', 2, true)}
return string.match('key=value', '(%w+)=(%w+)')
return {string.match('key=value', '(%w+)=(%w+)')}
return string.match('  trim  ', '^%s*(.-)%s*$')
return string.match('2026-11-27', '%d+-%d+')
return string.match('abc', '()b()')
return {string.match('abc', '()b()')}
return string.match('THE (quick) fox', '%((%a+)%)')
return string.match('f(a(b)c)d', '%b()')
return string.match('THE (quick) fox', '%f[%a]%a+%f[%A]')
return string.match('abcabc', '(abc)%1')
return string.match('hello', '[^h]+')
return string.match('hello', '[a-g]+')
return string.match('he]lo', '[]]')
return string.match('he-lo', '[a%-]')
return string.match('x', '%')
return string.match('x', '[a')
return string.match('x', '(x')
return string.match('x', 'x)')
return string.match('x', '%1')
return string.match('x', '%b')
return string.match('x', '%f')
return {string.gsub('hello world', 'o', '0')}
return {string.gsub('hello world', 'o', '0', 1)}
return {string.gsub('hello world', '(%w+)', '<%1>')}
return {string.gsub('hello world', '%w+', '%0 %0', 1)}
return {string.gsub('abc', '', '-')}
return {string.gsub('abc', '^a', 'x')}
return {string.gsub('abc', 'c$', 'x')}
return {string.gsub('$name is', '%$(%w+)', {name='N'})}
return {string.gsub('abc', '%w', function(c) return c .. c end)}
return {string.gsub('abc', '%w', function(c) return nil end)}
return {string.gsub('abc', '%w', function(c) return {} end)}
return {string.gsub('abc', '%w', '%2')}
return {string.gsub('abc', '%w', '%%')}
return string.gsub('abc', 'b', nil)
local r = {} for w in string.gmatch('one two three', '%a+') do r[#r+1] = w end return r
local r = {} for k, v in string.gmatch('a=1, b=2', '(%w+)=(%w+)') do r[#r+1] = k .. v end return r
local r = {} for w in string.gmatch('abc', '') do r[#r+1] = w end return #r
local t = {3,1,2} table.sort(t) return t
local t = {3,1,2} table.sort(t, function(a, b) return a > b end) return t
local t = {'b','a',1} table.sort(t) return t
local t = {1,2} table.insert(t, 3) table.insert(t, 1, 0) return t
local t = {1,2,3} return table.remove(t)
local t = {1,2,3} table.remove(t, 1) return t
return table.concat({1,2,'x'}, ',')
return table.concat({1,{}}, ',')
return table.maxn({1,2,[10]=1})
local c = coroutine.create(function(a) local b = coroutine.yield(a + 1) return b * 2 end) local _, x = coroutine.resume(c, 1) local _, y = coroutine.resume(c, 10) return {x, y, coroutine.status(c)}
local f = coroutine.wrap(function() coroutine.yield(1) error('x') end) f() return f()
return coroutine.yield(1)
return loadstring('return 1 + 1')()
return loadstring('return (')
return bit.band(255, 15)
return bit.bor(1, 2, 4)
return bit.bxor(5, 1)
return bit.bnot(0)
return bit.lshift(1, 31)
return bit.rshift(-1, 28)
return bit.arshift(-16, 2)
return bit.rol(0x12345678, 12)
return bit.ror(0x12345678, 12)
return bit.bswap(0x12345678)
return bit.tohex(-1)
return bit.tohex(255, 4)
return bit.tohex(255, -4)
return bit.tobit(0xffffffff)
return bit.tobit(2^40+1)
redis.log(redis.LOG_DEBUG, 'text') return 1
redis.log()
redis.log('x', 'y')
redis.log(10, 'y')
return redis.LOG_WARNING
return redis.replicate_commands()
redis.set_repl(redis.REPL_ALL) return 1
redis.setresp(3) return true
redis.setresp(3) return {1, false, true}
redis.setresp(3) return redis.call('get','none')
redis.setresp(3) return type(redis.call('get','none'))
redis.setresp(3) return {double=1.5}
redis.setresp(3) return {map={a=1}}
redis.setresp(3) return {set={a=true}}
redis.setresp(4)
redis.setresp()
return {double=3.25}
return {map={a=1}}
return dofile('/etc/passwd')
return loadfile('/etc/passwd')
return require('os')
return io.open('/etc/passwd')
return debug.getinfo(1)
return newproxy()
local n = 0 for i = 1, 1000 do n = n + i end return n
local n = 0 while n < 10 do n = n + 1 end return n
if KEYS[1] then return 'key' else return 'no key' end
#!lua\\nreturn 1
#!lua flags=no-writes\\nreturn redis.call('set','a','b')
#!lua flags=no-writes\\nreturn redis.call('get','s')
#!lua flags=nosuch\\nreturn 1
#!nosuch\\nreturn 1
return (
return 1 1
local
redis.call('set','half','1') error('then')
return redis.call('get','half')
redis.call('set','half','2') redis.call('incr','s') return 1
return redis.call('get','half')
for i=1,100 do redis.call('incr','loop') end return redis.call('get','loop')
for i=1,10 do redis.call('set','l'..i,i) end return redis.call('exists','l1','l10')
for i=1,10 do redis.call('del','l'..i) end return redis.call('exists','l1','l10')
redis.call('set','w','1') redis.call('set','w','2') redis.call('del','w') return redis.call('get','w')
redis.call('set','w','1') redis.call('del','w') redis.call('set','w','3') return {redis.call('get','w'),redis.call('strlen','w')}
redis.call('set','w',string.rep('x',100000)) return redis.call('strlen','w')
return redis.call('get','w')
return redis.call('hset','hash','a','1','b','2')
return redis.call('hgetall','hash')
return redis.call('hmget','hash','a','none')
return redis.call('hincrby','hash','a',5)
return redis.call('hincrbyfloat','hash','b','0.5')
return {redis.call('hdel','hash','b','c'), redis.call('hlen','hash'), redis.call('hexists','hash','b')}
return redis.call('hscan','hash',0)
return redis.call('get','hash')
return redis.call('hget','s','a')
return redis.call('type','hash')
""".strip().split("\n")


class Two:
    def __init__(self, subject, model, resp):
        self.subject, self.model = Connection(subject, resp), Connection(model, resp)
        self.compared = 0
        self.wrong = []

    def same(self, what, command, alike=lambda a, b: a == b):
        mine, its = self.subject.ask(command), self.model.ask(command)
        self.compared += 1
        if not alike(mine, its):
            self.wrong.append(f"{what}: {show(mine)}, redis-server: {show(its)}")


def encode(word):
    return word if isinstance(word, bytes) else word.encode()


def begins_alike(mine, its):
    """Compilers' words differ: redis-server wraps the text in a function."""
    start = b"-ERR Error compiling script"
    return mine == its or (mine[0].startswith(start) and its[0].startswith(start))


def evaluate(two, script, keys=("s", "k2"), args=("a1", "a2"), by="EVAL"):
    text = script.replace("\\n", "\n") if script.startswith("#!") else script
    command = [by.encode(), text.encode(), b"%d" % len(keys), *map(encode, keys), *map(encode, args)]
    two.same(f"{by} {script!r}", command, begins_alike)


def compare(subject, model, resp):
    two = Two(subject, model, resp)
    two.same("FLUSHALL", [b"FLUSHALL"])
    two.same("FLUSH", [b"SCRIPT", b"FLUSH"])
    for command in ([b"SET", b"s", b"string"], [b"SET", b"n", b"10"]):
        two.same(command, command)
    for script in SCRIPTS:
        evaluate(two, script)
        two.same(f"SHA of {script!r}", [b"SCRIPT", b"EXISTS", hashlib.sha1(script.encode()).hexdigest().encode()])
    for script in JSON + JSON_SETTINGS if has_json(subject) else []:
        evaluate(two, script)
    for entry in LIBRARIES:
        if isinstance(entry[1], str):
            two.same(entry, [encode(word) for word in entry])
        else:
            evaluate(two, *entry)
    for script in SCRIPTS[:120]:
        evaluate(two, script, by="EVAL_RO")
    for command in ("EVAL", "EVAL x", "EVAL|return 1|x", "EVAL|return 1|-1", "EVAL|return 1|2|a", "EVALSHA|x|0", f"EVALSHA|{'a' * 40}|0",
                    "SCRIPT|LOAD|return 7", "SCRIPT|LOAD|return (", "SCRIPT|LOAD", "SCRIPT|EXISTS", "SCRIPT|EXISTS|x",
                    f"EVALSHA|{hashlib.sha1(b'return 7').hexdigest()}|0", f"EVALSHA|{hashlib.sha1(b'return 7').hexdigest().upper()}|0",
                    f"EVALSHA_RO|{hashlib.sha1(b'return 7').hexdigest()}|0", "SCRIPT|KILL", "SCRIPT|FLUSH|NOW", "SCRIPT|FLUSH|ASYNC",
                    f"EVALSHA|{hashlib.sha1(b'return 7').hexdigest()}|0", "MULTI", "SET|m|1", "EVAL|return redis.call('incr','m')|0",
                    "EVAL|return redis.call('incr','s')|0", "EVAL|return redis.call('get','m')|0", "EXEC", "GET|m"):
        two.same(command, [word.encode() for word in command.split("|")], begins_alike)
    return two


# --- cjson, if lua-cjson is installed

JSON = """
return cjson.encode({})
return cjson.encode({1, 2.5, 'a', true, false, cjson.null})
return cjson.encode({a = {b = {c = {}}}})
return cjson.encode('a "quoted" \\ text / \0 \1 \127 \200')
return cjson.encode(1e100)
return cjson.encode(0.1)
return cjson.encode(123456789012345)
return cjson.encode(-0)
return cjson.encode({[1] = 'a', [2] = 'b', [4] = 'd'})
return cjson.encode({[1] = 'a', [11] = 'b'})
return cjson.encode({[1] = 'a', [10] = 'b'})
return cjson.encode({[0] = 'a'})
return cjson.encode({[-1] = 'a'})
return cjson.encode({[1.5] = 'a'})
return cjson.encode({[2^40] = 'a'})
return cjson.encode({[true] = 'a'})
return cjson.encode({a = function() end})
return cjson.encode({function() end})
return cjson.encode(nil)
return cjson.encode(cjson.null)
return cjson.encode()
return cjson.encode(1, 2)
return cjson.encode(0/0)
return cjson.encode(math.huge)
local t = {} t[1] = t return cjson.encode(t)
local t = {} t.a = t return cjson.encode(t)
local t = {} local u = t for i = 1, 999 do u[1] = {} u = u[1] end return #cjson.encode(t)
local t = {} local u = t for i = 1, 1000 do u[1] = {} u = u[1] end return #cjson.encode(t)
return cjson.encode(setmetatable({}, {__index = function() return 1 end}))
local t = {} for i = 1, 1000 do t[i] = {id = i} end return cjson.encode(t)
return cjson.decode('[1, 2.5, "a", true, false, null]')
return cjson.decode('{"a": {"b": [1, 2, {"c": "d"}]}}').a.b[3].c
return cjson.decode('[1, null, 3]')[2] == cjson.null
return cjson.decode('"\\u00e9\\ud83d\\ude00\\n\\/"')
return cjson.decode('  7  ')
return cjson.decode('1e3')
return cjson.decode('0x10')
return cjson.decode('nan') ~= nil
return cjson.decode('-infinity')
return cjson.decode('')
return cjson.decode('{')
return cjson.decode('[1,]')
return cjson.decode('[1 2]')
return cjson.decode('{"a" 1}')
return cjson.decode('{a: 1}')
return cjson.decode('"x')
return cjson.decode('"\\x"')
return cjson.decode('"\\ud800"')
return cjson.decode('[1] 2')
return cjson.decode('a\0b')
return cjson.decode('\0a')
return cjson.decode(12)
return cjson.decode()
return cjson.decode({})
return cjson.decode(nil)
return cjson.decode(string.rep('[', 1000) .. string.rep(']', 1000)) ~= nil
return cjson.decode(string.rep('[', 1001) .. string.rep(']', 1001)) ~= nil
return cjson.decode(string.rep('[', 1001))
local ok, e = pcall(cjson.decode, 'x') return e
local ok, e = pcall(cjson.encode, {[1] = 1, [100] = 1}) return e
return type(cjson.null)
return cjson.null
return {1, cjson.null, 3}
return cjson._NAME
return cjson._VERSION
return {cjson.encode_sparse_array()}
return {cjson.encode_max_depth(), cjson.decode_max_depth(), cjson.encode_number_precision()}
cjson.x = 1
local x = cjson x.encode = nil
return redis.call('set', 'json', cjson.encode({id = 7})) and cjson.decode(redis.call('get', 'json')).id
local t = cjson.decode(cjson.encode({n = 1, list = {1, 2, 3}})) return t.list
""".strip().split("\n")

# Settings: of redis-server they stay, so it is told to forget them.
JSON_SETTINGS = """
cjson.encode_sparse_array(true) local r = cjson.encode({[1] = 'a', [100] = 'b'}) cjson.encode_sparse_array(false) return r
cjson.encode_sparse_array(false, 0) local r = cjson.encode({[30] = 'a'}) cjson.encode_sparse_array(false, 2) return r
cjson.encode_max_depth(2) local ok, e = pcall(cjson.encode, {{{}}}) cjson.encode_max_depth(1000) return e
cjson.decode_max_depth(2) local ok, e = pcall(cjson.decode, '[[[]]]') cjson.decode_max_depth(1000) return e
cjson.encode_number_precision(3) local r = cjson.encode(3.14159) cjson.encode_number_precision(14) return r
cjson.encode_invalid_numbers('null') local r = cjson.encode({0/0}) cjson.encode_invalid_numbers(false) return r
cjson.decode_invalid_numbers(false) local ok, e = pcall(cjson.decode, 'nan') cjson.decode_invalid_numbers(true) return e
local ok = pcall(cjson.encode_max_depth, 0) return ok
local ok = pcall(cjson.encode_number_precision, 100) return ok
""".strip().split("\n")

JSON_HOSTILE = """
local s = string.rep('a', 1000000) local t = {} for i = 1, 5000 do t[i] = s end return #cjson.encode(t)
local t = {} for i = 1, 40 do t = {t, t} end return #cjson.encode(t)
local t = {} for i = 1, 40 do t = {a = t, b = t} end return #cjson.encode(t)
local t = {} for i = 1, 40 do t = {[2] = t, [1] = t, x = t} end return #cjson.encode(t)
cjson.encode_sparse_array(false, 0) return #cjson.encode({[2^31 - 1] = 1})
cjson.encode_sparse_array(false, 0) return #cjson.encode({[2^60] = 1})
cjson.encode_max_depth(2^31 - 1) local t = {} t[1] = t return cjson.encode(t)
cjson.encode_max_depth(2^31 - 1) local t = {} t.a = t return cjson.encode(t)
cjson.decode_max_depth(2^31 - 1) return cjson.decode(string.rep('[', 10000000)) ~= nil
cjson.decode_max_depth(2^31 - 1) return cjson.decode(string.rep('{"a":', 1000000)) ~= nil
return cjson.decode('[' .. string.rep('[],', 10000000) .. '1]') ~= nil
return cjson.decode('[' .. string.rep('{"a":1},', 500000) .. '1]') ~= nil
while true do cjson.decode('[' .. string.rep('[],', 20000) .. '1]') end
while true do pcall(cjson.decode, '[' .. string.rep('[],', 20000)) end
local t = {} while true do t[#t + 1] = cjson.decode('[' .. string.rep('"abc",', 10000) .. '1]') end
local t = {} while true do t[#t + 1] = cjson.encode({string.rep('a', 100000)}) .. #t end
local s = string.rep('a', 8000000) while true do cjson.encode(s) end
local t = {} for i = 1, 100000 do t[i] = i end while true do cjson.encode(t) end
local s = string.rep(' ', 20000000) while true do cjson.decode(s .. '1') end
cjson.encode = nil
cjson.encode_keep_buffer(true) while true do cjson.encode(string.rep('a', 4000000)) end
cjson.encode_number_precision(1)
cjson.encode_sparse_array(false, 2, 2^31 - 1) return #cjson.encode({[2^40] = 1, [2^31 - 2] = 1})
""".strip().split("\n")


def has_json(server):
    line, _ = Connection(server).ask([b"EVAL", b"return type(cjson)", b"0"])
    if line == b"$5\r\n":
        return True
    print("resp_scripts: lua-cjson is missing: left out")
    if not line.startswith(b"-ERR cjson is not available: install lua-cjson script: "):
        raise Error(f"without cjson: {line!r}")
    return False


# --- rdmad alone: some of these end a redis-server

HOSTILE = """
while true do end
while true do pcall(function() while true do end end) end
while true do pcall(error) end
local function f() return pcall(f) end while true do f() end
local function f() pcall(f) pcall(f) end f()
local function f() return f() end return f()
local function f() return 1 + f() end return f()
local function f(s) return (s:gsub('.', f)) end return f('a')
repeat local ok = xpcall(function() while true do end end, function() while true do end end) until false
while true do coroutine.wrap(function() while true do end end)() end
while true do local c = coroutine.create(function() while true do end end) coroutine.resume(c) end
local function f() return coroutine.wrap(f)() end return f()
local c c = coroutine.wrap(function() while true do coroutine.yield() end end) while true do c() end
local t = {} for i = 1, 1e9 do t[i] = coroutine.create(function() end) end
return string.rep('a', 1e9)
return string.rep('', 2^31 - 1)
return string.rep('a', 2^31 - 1)
return ('x'):rep(60000000):rep(60000000)
local s = 'a' while true do s = s .. s end
local s = string.rep('a', 16000000) while true do local t = s .. 'b' end
local s = string.rep('a', 16000000) while true do s:upper() end
local a, b = string.rep('a', 16000000), string.rep('a', 16000000) .. 'b' while true do local c = a < b end
local t = {} while true do t[#t + 1] = {} end
local t = {} for i = 1, 1e9 do t[i] = i end
local t = {} for i = 1, 1e9 do t['k' .. i] = i end
local t = {} for i = 1, 1e9 do table.insert(t, 1, i) end
local t = {} for i = 1, 200000 do t[i] = i % 7 end while true do table.sort(t) end
local t = {} for i = 1, 1000 do t[i] = i end table.sort(t, function() return true end)
local t = {} for i = 1, 100 do t[i] = i end while true do table.sort(t, function(a, b) return math.random(2) == 1 end) end
return string.format('%99999d', 1)
return string.format('%s', string.rep('a', 40000000)) .. string.rep('b', 40000000)
return string.find(string.rep('a', 40), string.rep('a?', 40) .. string.rep('a', 40))
return string.find(string.rep('a', 10000), string.rep('.-', 20) .. 'b')
return string.match(string.rep('a', 100000), '.*.*.*.*b')
return string.gsub(string.rep('a', 100000), '.-.-.-b', '')
for w in string.gmatch(string.rep('a', 100000), '.-.-.-b') do end
return string.find('a', string.rep('a?', 1000000))
return string.find(string.rep('a', 100000), string.rep('(', 40))
return string.find('x', string.rep('(x', 1000))
return string.match(string.rep('(', 1000000), string.rep('%b()', 100))
return string.match(string.rep('ab', 200000), '(.*)(.*)%1%2x')
return {unpack({}, 1, 1e7)}
while true do table.insert({}, -2^31, 1) end
return {unpack({}, -2^31, 2^31 - 1)}
return string.byte(string.rep('a', 1000000), 1, -1)
return string.char(unpack({1}, 1, 7000))
return loadstring(string.rep('(', 100000))
return loadstring(string.rep('a = {', 100000))
return loadstring('\\27Lua')
return string.dump(function() end)
return loadstring(string.rep(' ', 50000000))
local t = {} t[1] = t return t
local t = {} for i = 1, 10 do t[i] = t end return t
local t = {} local u = t for i = 1, 10000 do u[1] = {} u = u[1] end return t
local s = string.rep('a', 1000000) local t = {} for i = 1, 5000 do t[i] = s end return t
return setmetatable({}, {__index = function(t, k) return t[k] end}).x
local t = setmetatable({}, {}) getmetatable(t).__index = t return t.x
return setmetatable({}, {__tostring = function(s) return tostring(s) end}) .. ''
return tostring(setmetatable({}, {__tostring = function(s) return tostring(s) end}))
while true do redis.call('set', 'a', 'b') end
while true do pcall(redis.call, 'get') end
while true do redis.pcall('nosuch') end
local i = 0 while true do i = i + 1 redis.call('set', 'key' .. i, i) end
local i = 0 while true do i = i + 1 redis.call('get', 'key' .. i) end
local s = string.rep('a', 1000000) while true do redis.call('append', 'a', s) end
local t = {} for i = 1, 8000 do t[i] = 'k' end return #redis.call('mget', unpack(t, 1, 7000))
while true do redis.log(0, 'x') end
while true do print('x') end
while true do collectgarbage() end
collectgarbage('stop') while true do local t = {} end
getmetatable('').__index = nil
setmetatable(_G, {})
setmetatable(string, {})
getmetatable(_G).__index = nil
table.insert(_G, 'x')
table.insert(redis, 'x')
table.sort(_G, function() end)
for k in pairs(string) do string[k] = nil end
string.gsub = nil
rawset(redis, 'call', nil)
local x = redis x.call = nil
error({})
error({a=1})
error({err={}})
""".strip().split("\n")

# After all of them, everything is as it was.
STILL = [("return redis.call('set','still','1')", b"+OK\r\n"), ("return ('abc'):upper()", b"$3\r\n"), ("return #KEYS", b":0\r\n"),
         ("return type(string.gsub)", b"$8\r\n"), ("return _G[1] == nil", b"-ERR"), ("return math.random(1000) > 0", b":1\r\n")]


def hostile(server):
    wrong = []
    scripts = HOSTILE + (JSON_HOSTILE if has_json(server) else [])
    still = STILL + ([("return cjson.encode({0.125, 'a'})", b"$11\r\n")] if len(scripts) > len(HOSTILE) else [])
    connection = Connection(server)
    for script in scripts:
        begin = time.monotonic()
        connection.ask([b"EVAL", script.encode(), b"0"])
        took = time.monotonic() - begin
        if os.environ.get("VERBOSE"):
            print(f"{took:6.2f} s {script[:100]}", flush=True)
        if took > 20:  # of a build with sanitizers, on a machine that has other work
            wrong.append(f"{script!r} took {took:.1f} s")
        for check, want in still:
            line, _ = connection.ask([b"EVAL", check.encode(), b"0"])
            if not line.startswith(want):
                wrong.append(f"after {script!r} {check!r} answers {line!r}")
    connection.ask([b"FLUSHALL"])
    return wrong


COUNT = b"local n = tonumber(redis.call('get', KEYS[1]) or '0') redis.call('set', KEYS[1], n + 1) return n + 1"


def meet(server, clients=6, times=150):
    """Scripts that read, add and write lose nothing, beside each other and INCR, in two workers; and all know what one has loaded."""
    wrong = []
    sha, _ = Connection(server).ask([b"SCRIPT", b"LOAD", COUNT])[1], None
    seen = []

    def count(number):
        connection = Connection(server)
        for _ in range(times):
            line, _ = connection.ask([b"INCR", b"counted"] if number == 0 else [b"EVALSHA", sha[:40], b"1", b"counted"])
            if line[:1] != b":":
                wrong.append(f"a counting script: {line!r}")
                return
            seen.append(int(line[1:]))

    threads = [threading.Thread(target=count, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not wrong and sorted(seen) != list(range(1, clients * times + 1)):
        wrong.append(f"{clients} clients counted to {max(seen)}, with {len(set(seen))} answers of {clients * times}")
    return wrong


LONG_TABLE = "local s = string.rep('a', 100000) local t = {} for i = 1, 1000 do t[i] = s end"


def bounds(server):
    """Nothing happens of a script that took too long, also within a transaction."""
    wrong = []
    connection = Connection(server)

    def see(want, *command):
        line, rest = connection.ask([encode(word) for word in command])
        got = line if not isinstance(rest, bytes) else line + rest
        if not got.startswith(want):
            wrong.append(f"{command}: {got!r}, not {want!r}")

    see(b"+OK", "SET", "k", "before")
    see(b"-ERR script ran for more than 100 ms: see resp.script_time", "EVAL", "redis.call('set','k','after') while true do end", "0")
    see(b"$6\r\nbefore", "GET", "k")
    see(b"+OK", "MULTI")
    see(b"+QUEUED", "SET", "k", "after")
    see(b"+QUEUED", "EVAL", "while true do end", "0")
    see(b"-ERR script ran for more than", "EXEC")
    see(b"$6\r\nbefore", "GET", "k")
    see(b"-ERR the script is longer than 1048576 bytes", "EVAL", " " * (1024 * 1024 + 1), "0")
    see(b"-ERR Error compiling script (new function): user_script: it is bytecode", "EVAL", b"\x1bLua", "0")
    see(b"-ERR unknown subcommand", "SCRIPT", "DEBUG", "YES")
    see(b"-ERR This Redis command is not allowed from script", "EVAL", "return redis.call('lpush','a','b')", "0")
    for i in range(7985, 8005) if has_json(server) else []:  # where Lua's stack ends; 100 MB
        see(b"-ERR", "EVAL", f"cjson.encode_max_depth(10000) {LONG_TABLE} for i = 1, {i} do t = {{t}} end return #cjson.encode(t)", "0")
    if has_json(server):
        see(b"-ERR user_script:1: not enough memory", "EVAL", f"{LONG_TABLE} return #cjson.encode({{[2^40] = t}})", "0")
    for i in range(10050):
        connection.send([[b"EVAL", b"return %d" % i, b"0"]])
    for i in range(10050):
        connection.read()
    see(b"$40", "SCRIPT", "LOAD", "return 'loaded'")
    see(b"*1", "SCRIPT", "EXISTS", hashlib.sha1(b"return 0").hexdigest())
    return wrong


def locks(server):
    """redis-py's lock, if it is there."""
    try:
        import redis as module  # pylint: disable=import-outside-toplevel
    except ImportError:
        print("resp_scripts: python3-redis is missing: left out")
        return []
    client = module.Redis(unix_socket_path=server.path)
    client.script_flush()
    lock = client.lock("a-lock", timeout=100)
    if not lock.acquire(blocking=False) or client.lock("a-lock").acquire(blocking=False):
        return ["redis-py: the lock is not taken, or twice"]
    lock.extend(50)
    lock.reacquire()
    lock.release()
    if client.exists("a-lock"):
        return ["redis-py: the lock is still there"]
    try:
        lock.local.token = b"x"
        lock.release()
    except module.exceptions.LockError:
        return []
    return ["redis-py: a lock is released that is not there"]


def rdmad(path, program, settings):
    with open(path + ".conf", "w", encoding="ascii") as out:
        out.write(CONFIGURATION.format(path=path, memory="256M", rdma="") + settings)
    return Server("rdmad", [program, "-c", path + ".conf"], path)


def off(folder, program):
    server = rdmad(folder + "/off", program, "")
    line, _ = Connection(server).ask([b"EVAL", b"return 1", b"0"])
    wrong = server.stop()
    if wrong:
        raise Error(wrong)
    if b"it has no Lua" in line:
        return 77
    if line != b"-ERR scripts are off: set resp.scripts = true, see rdmad-resp(7)\r\n":
        raise Error(f"without resp.scripts: {line!r}")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rdmad", default="./rdmad")
    parser.add_argument("--redis", default="redis-server")
    options = parser.parse_args()
    if not shutil.which(options.redis):
        print("resp_scripts: there is no redis-server to compare with; scripts/packages --install has it")
        return 77
    folder = tempfile.mkdtemp(prefix="rdmad-scripts.")
    servers, failed = [], []
    try:
        if off(folder, options.rdmad) == 77:
            print("resp_scripts: rdmad was built without Lua")
            return 77
        servers.append(redis(folder + "/redis", options.redis))
        servers.append(rdmad(folder + "/patient", options.rdmad, 'resp.scripts = true;\nresp.script_time = "10s";\n'))
        servers.append(rdmad(folder + "/rdmad", options.rdmad, "resp.scripts = true;\n"))
        compared = 0
        for resp in (2, 3):
            two = compare(servers[1], servers[0], resp)
            compared += two.compared
            failed += two.wrong
        failed += bounds(servers[2]) + hostile(servers[2]) + meet(servers[1]) + locks(servers[1])
        print(f"resp_scripts: {compared} replies compared, {len(HOSTILE) + len(JSON_HOSTILE)} hostile scripts")
    except (Error, OSError) as error:
        failed.append(f"{error}\n" + "".join(server.tail() for server in servers[1:]))
    finally:
        for server in servers:
            wrong = server.stop()
            if wrong:
                failed.append(f"{wrong}:\n{server.tail()}")
        shutil.rmtree(folder)
    for text in failed:
        print(f"resp_scripts: {text}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
