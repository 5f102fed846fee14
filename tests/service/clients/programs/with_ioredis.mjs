// with_ioredis.mjs MODULE HOST PORT: ioredis and iovalkey: values, pipelines, transactions, a command that is a script, messages.
import assert from "node:assert/strict";

const [name, host, port] = process.argv.slice(2);
const { default: Redis } = await import(name);
const client = new Redis(Number(port), host, { connectionName: "with_ioredis", keyPrefix: `${name}:`, maxRetriesPerRequest: 1 });
const other = client.duplicate();
for (const c of [client, other]) c.on("error", (error) => { throw error; });

const binary = Buffer.from(Array.from({ length: 10000 }, (_, i) => i & 255));
assert.equal(await client.client("GETNAME"), "with_ioredis");
assert.equal(await client.set("a", binary, "EX", 100, "NX"), "OK");
assert.equal(await client.set("a", "x", "NX"), null);
assert.deepEqual(await client.getBuffer("a"), binary);
assert.ok((await client.pttl("a")) > 90000);
assert.equal(await client.mset({ m1: 1, m2: "ü" }), "OK");
assert.deepEqual(await client.mget("m1", "none", "m2"), ["1", null, "ü"]);

const pipeline = client.pipeline();
for (let i = 0; i < 1000; i++) pipeline.set(`p${i}`, i);
assert.equal((await pipeline.get("p999").exec()).at(-1)[1], "999");
assert.deepEqual(await client.multi().set("t", 1).incr("t").expire("t", 60).exec(), [[null, "OK"], [null, 2], [null, 1]]);
await client.watch("t");
await other.set("t", "changed");
assert.equal(await client.multi().set("t", 3).exec(), null);
const broken = await client.multi().set("t", "text").incr("t").exec();
assert.equal(broken[0][1], "OK");
assert.match(broken[1][0].message, /not an integer/);

client.defineCommand("release", {
	numberOfKeys: 1,
	lua: "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
});
assert.deepEqual([await client.release("t", "other"), await client.release("t", "text")], [0, 1]);
await client.script("FLUSH");
assert.equal(await client.release("t", "text"), 0);

const found = [];
for await (const keys of client.scanStream({ match: `${name}:m*`, count: 1 })) found.push(...keys);
assert.deepEqual(found.sort(), [`${name}:m1`, `${name}:m2`]);

const heard = new Promise((resolve) => other.on("pmessageBuffer", (pattern, channel, message) => resolve(message)));
await other.psubscribe(`${name}:ch*`);
const publisher = new Redis({ host, port: Number(port) });
assert.equal(await publisher.publish(`${name}:channel`, binary), 1);
assert.deepEqual(await heard, binary);
await assert.rejects(publisher.call("NOSUCH", "a"), /unknown command/);
await Promise.all([client.quit(), other.quit(), publisher.quit()]);
