// with_redis.mjs HOST PORT: node-redis, in RESP3 and RESP2: values, a transaction, a script, messages, many commands at once.
import assert from "node:assert/strict";
import { createClient, defineScript, WatchError, RESP_TYPES } from "redis";

const [host, port] = process.argv.slice(2);
const binary = Buffer.from(Array.from({ length: 10000 }, (_, i) => i & 255));

for (const RESP of [3, 2]) {
	const client = createClient({
		url: `redis://${host}:${port}/0`, name: "with_redis", RESP,
		scripts: {
			addTwice: defineScript({
				NUMBER_OF_KEYS: 1,
				SCRIPT: "return redis.call('INCRBY', KEYS[1], 2 * ARGV[1])",
				parseCommand(parser, key, by) { parser.pushKey(key); parser.push(String(by)); },
				transformReply: (reply) => reply,
			}),
		},
	});
	client.on("error", (error) => { throw error; });
	await client.connect();
	const key = (name) => `node${RESP}:${name}`;
	assert.equal(await client.ping(), "PONG");
	assert.equal(await client.clientGetName(), "with_redis");
	assert.equal(await client.set(key("a"), binary, { expiration: { type: "EX", value: 100 }, condition: "NX" }), "OK");
	assert.equal(await client.set(key("a"), "x", { condition: "NX" }), null);
	const buffers = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
	assert.deepEqual(await buffers.get(key("a")), binary);
	assert.ok((await client.ttl(key("a"))) > 90);
	assert.equal(await client.getEx(key("a"), { type: "PX", value: 50000 }).then((text) => text.length > 0), true);
	const answers = await Promise.all(Array.from({ length: 1000 }, (_, i) => client.incrBy(key("n"), i)));
	assert.equal(answers.at(-1), 499500);
	await client.mSet([[key("m1"), "1"], [key("m2"), "ü"]]);
	assert.deepEqual(await client.mGet([key("m1"), key("none"), key("m2")]), ["1", null, "ü"]);
	assert.deepEqual(await client.multi().set(key("t"), "1").expire(key("t"), 60).get(key("t")).exec(), ["OK", 1, "1"]);
	const other = client.duplicate();
	await other.connect();
	await client.watch(key("t"));
	await other.set(key("t"), "2");
	await assert.rejects(client.multi().set(key("t"), "3").exec(), WatchError);
	assert.equal(await client.addTwice(key("s"), 21), 42);
	const found = [];
	for await (const keys of client.scanIterator({ MATCH: key("m*"), COUNT: 1 })) found.push(...keys);
	assert.deepEqual(found.sort(), [key("m1"), key("m2")]);
	const heard = await new Promise(async (resolve) => {
		await other.subscribe(key("ch"), resolve, true);
		assert.equal(await client.publish(key("ch"), binary), 1);
	});
	assert.deepEqual(heard, binary);
	await other.unsubscribe(key("ch"));
	await assert.rejects(client.sendCommand(["NOSUCH", "a"]), /unknown command/);
	assert.equal(await client.del([key("a"), key("n"), key("t")]), 3);
	await other.close();
	await client.close();
}
