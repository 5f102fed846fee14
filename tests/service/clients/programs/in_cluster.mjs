// in_cluster.mjs MODULE PORT: a client of Redis Cluster that begins at the server of that port counts until SIGTERM, while slots move from
// server to server. Each answer is to be the next number. It prints how many there were, and the slowest.
import assert from "node:assert/strict";

const COUNTERS = 100;
const [name, port] = process.argv.slice(2);
const address = { host: "127.0.0.1", port: Number(port) };

async function connected() {
	const module = await import(name);

	if (name === "redis") {
		const client = module.createCluster({ rootNodes: [{ socket: address }] });
		client.on("error", (error) => { throw error; });
		await client.connect();
		return client;
	}
	if (name === "@valkey/valkey-glide") {
		return await module.GlideClusterClient.createClient({ addresses: [address], requestTimeout: 20000 });
	}
	const client = new module.default.Cluster([address]);
	client.on("error", (error) => { throw error; });
	return client;
}

const client = await connected();
let ended = false, answers = 0, slowest = 0;
process.on("SIGTERM", () => { ended = true; });
console.log("began");

async function count(counter) {
	for (let counted = 1; !ended; counted++) {
		const began = performance.now();
		const answer = await client.incr(`${name} ${counter}`);
		assert.equal(answer, counted, `${name} ${counter}`);
		slowest = Math.max(slowest, performance.now() - began);
		answers++;
	}
}

await Promise.all(Array.from({ length: COUNTERS }, (_, counter) => count(counter)));
console.log(`${name}: ${answers} answers, the slowest after ${slowest.toFixed(0)} ms`);
process.exit(0);
