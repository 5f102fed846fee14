// with_glide.mjs HOST PORT: Valkey GLIDE: values, a batch, a script, messages. It asks for the primary node before anything.
import assert from "node:assert/strict";
import { Batch, Decoder, GlideClient, GlideClientConfiguration, Script, TimeUnit } from "@valkey/valkey-glide";

const [host, port] = process.argv.slice(2);
const settings = { addresses: [{ host, port: Number(port) }], clientName: "with_glide", requestTimeout: 60000 };
const client = await GlideClient.createClient(settings);
const binary = Buffer.from(Array.from({ length: 10000 }, (_, i) => i & 255));

assert.equal(await client.clientGetName(), "with_glide");
const once = { conditionalSet: "onlyIfDoesNotExist", expiry: { type: TimeUnit.Seconds, count: 100 } };
assert.equal(await client.set("glide:a", binary, once), "OK");
assert.equal(await client.set("glide:a", "x", once), null);
assert.deepEqual(await client.get("glide:a", { decoder: Decoder.Bytes }), binary);
assert.ok((await client.ttl("glide:a")) > 90);
assert.equal(await client.incrBy("glide:n", 42), 42);
assert.equal(await client.mset({ "glide:m1": "1", "glide:m2": "ü" }), "OK");
assert.deepEqual(await client.mget(["glide:m1", "glide:none", "glide:m2"]), ["1", null, "ü"]);
for (const atomic of [true, false]) {
	const batch = new Batch(atomic).set("glide:t", "1").incr("glide:t").expire("glide:t", 60).get("glide:t");
	assert.deepEqual(await client.exec(batch, true), ["OK", 2, true, "2"]);
}
const script = new Script("return {KEYS[1], redis.call('INCRBY', KEYS[1], ARGV[1])}");
assert.deepEqual(await client.invokeScript(script, { keys: ["glide:s"], args: ["7"] }), ["glide:s", 7]);
script.release();
let cursor = "0", found = [];
do {
	const [next, keys] = await client.scan(cursor, { match: "glide:m*" });
	[cursor, found] = [next, found.concat(keys)];
} while (cursor !== "0");
assert.deepEqual(found.sort(), ["glide:m1", "glide:m2"]);

const channels = { [GlideClientConfiguration.PubSubChannelModes.Exact]: new Set(["glide:ch"]) };
const listener = await GlideClient.createClient({ ...settings, pubsubSubscriptions: { channelsAndPatterns: channels } });
while ((await client.publish("told", "glide:ch")) !== 1) await new Promise((resolve) => setTimeout(resolve, 10));
assert.equal((await listener.getPubSubMessage()).message, "told");
await assert.rejects(client.customCommand(["NOSUCH", "a"]), /unknown command/i);
listener.close();
client.close();
