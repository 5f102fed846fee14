// with_limiters.mjs HOST PORT: sessions by connect-redis, limits of requests by rate-limit-redis and rate-limiter-flexible, locks by redlock.
import assert from "node:assert/strict";
import { promisify } from "node:util";
import session from "express-session";
import { RedisStore as Sessions } from "connect-redis";
import { RedisStore as Limits } from "rate-limit-redis";
import limiters from "rate-limiter-flexible";
import Redlock from "redlock";
import Redis from "ioredis";
import { createClient } from "redis";

const [host, port] = process.argv.slice(2);
const node = createClient({ url: `redis://${host}:${port}` });
await node.connect();
const io = new Redis(Number(port), host);

// connect-redis
const sessions = new Sessions({ client: node, prefix: "session:", ttl: 100 });
const call = (name) => promisify(sessions[name]).bind(sessions);
const cookie = new session.Cookie({ maxAge: 50000 });
await call("set")("one", { cookie, user: 7 });
await call("set")("two", { cookie, user: 8 });
assert.equal((await call("get")("one")).user, 7);
assert.ok((await node.ttl("session:one")) <= 50);
await call("touch")("one", { cookie: new session.Cookie({ maxAge: 90000 }) });
assert.ok((await node.ttl("session:one")) > 80);
assert.deepEqual((await call("ids")()).sort(), ["one", "two"]);
assert.deepEqual((await call("all")()).map((s) => s.user).sort(), [7, 8]);
assert.equal(await call("length")(), 2);
await call("destroy")("one");
assert.equal(await call("get")("one"), null);
await call("clear")();
assert.equal(await call("length")(), 0);

// rate-limit-redis
const limits = new Limits({ sendCommand: (...words) => node.sendCommand(words), prefix: "limit:" });
limits.init({ windowMs: 60000 });
assert.equal((await limits.increment("a")).totalHits, 1);
const second = await limits.increment("a");
assert.equal(second.totalHits, 2);
assert.ok(second.resetTime > new Date());
await limits.decrement("a");
assert.equal((await limits.get("a")).totalHits, 1);
await node.scriptFlush();
assert.equal((await limits.increment("a")).totalHits, 2);
await limits.resetKey("a");
assert.equal(await node.exists("limit:a"), 0);

// rate-limiter-flexible
for (const [storeClient, useRedisPackage] of [[io, false], [node, true]]) {
	const limiter = new limiters.RateLimiterRedis({ storeClient, useRedisPackage, keyPrefix: `flexible${useRedisPackage}`, points: 3, duration: 60 });
	assert.equal((await limiter.consume("a")).remainingPoints, 2);
	assert.equal((await limiter.consume("a", 2)).remainingPoints, 0);
	await assert.rejects(limiter.consume("a"), (refused) => refused.msBeforeNext > 0 && refused.remainingPoints === 0);
	assert.equal((await limiter.get("a")).consumedPoints, 4);
	await limiter.reward("a", 2);
	await limiter.block("b", 60);
	await assert.rejects(limiter.consume("b"));
	assert.equal(await limiter.delete("a"), true);
	assert.equal(await limiter.get("a"), null);
}

// redlock
const locks = new Redlock([io], { retryCount: 200, retryDelay: 10 });
const one = await locks.lock(["lock:a", "lock:b"], 60000);
await assert.rejects(new Redlock([io], { retryCount: 0 }).lock("lock:a", 60000), /LockError|unable/i);
const longer = await one.extend(90000);
assert.ok((await io.pttl("lock:a")) > 60000);
const waits = locks.lock("lock:b", 60000);
await longer.unlock();
await (await waits).unlock();
await assert.rejects(longer.unlock());
assert.equal(await io.exists("lock:a", "lock:b"), 0);

await io.quit();
await node.close();
