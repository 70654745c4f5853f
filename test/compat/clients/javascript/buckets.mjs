// Key-value buckets.
import assert from "node:assert/strict";
import { Kvm, KvWatchInclude } from "@nats-io/kv";
import { items, refusal, take } from "./site.mjs";

// make makes an empty bucket at the first connection, and opens it at the second.
async function make(site, a, b, bucket, settings) {
  await (await new Kvm(a).open(bucket)).destroy().catch(() => {}); // one of a run that was ended
  const kv = await new Kvm(a).create(bucket, { replicas: site.replicas, ...settings });
  return [kv, await new Kvm(b).open(bucket)];
}

async function all(iterator) {
  const got = [];
  for await (const item of iterator) got.push(item);
  return got;
}

export async function keysAndValues(site) {
  const [a, b] = await site.pair();
  const [kv, other] = await make(site, a, b, "jskv", { history: 5 });
  assert.equal(await kv.put("key", "first"), 1);
  const entry = await other.get("key");
  assert.deepEqual([entry.string(), entry.revision, entry.operation], ["first", 1, "PUT"]);
  await assert.rejects(other.create("key", "again"), refusal(10071));
  assert.equal(await other.create("other", "second"), 2);
  await assert.rejects(kv.update("key", "third", 9), refusal(10071));
  assert.equal(await kv.update("key", "third", 1), 3);
  assert.equal((await other.get("key")).string(), "third");
  assert.equal((await other.get("key", { revision: 1 })).string(), "first");
  assert.equal(await kv.get("nothing"), null);
  assert.deepEqual((await all(await other.keys())).sort(), ["key", "other"]);
  const history = async () => (await all(await other.history({ key: "key" }))).map((e) => [e.operation, e.string()]);
  assert.deepEqual(await history(), [["PUT", "first"], ["PUT", "third"]]);
  await kv.delete("key");
  assert.equal((await other.get("key")).operation, "DEL");
  assert.deepEqual(await all(await other.keys()), ["other"]);
  await assert.rejects(kv.delete("other", { previousSeq: 9 }), refusal(10071));
  assert.equal(await other.create("key", "fourth"), 5);
  for (let i = 0; i < 10; i++) await kv.put("key", String(i));
  assert.deepEqual(await history(), ["5", "6", "7", "8", "9"].map((value) => ["PUT", value]));
  await kv.purge("key");
  assert.deepEqual(await history(), [["PURGE", ""]]);
  const status = await other.status();
  assert.deepEqual([status.values, status.history, status.replicas], [2, 5, site.replicas]);
  assert.equal((await kv.purgeDeletes(0)).purged, 1);
  assert.equal((await other.status()).values, 1);
  const names = (await all(new Kvm(b).list())).map((s) => s.bucket);
  assert.ok(names.includes("jskv"), names);
  assert.ok(await kv.destroy());
  await assert.rejects(other.status(), { message: "stream not found" });
  await a.close();
  await b.close();
}

export async function watchedKeys(site) {
  const [a, b] = await site.pair();
  const [kv, other] = await make(site, a, b, "jswatch", { history: 3 });
  for (const value of ["1", "2"]) await kv.put("a.x", value);
  await kv.put("b.x", "3");
  const watch = async (options) => items(await other.watch(options));
  const told = async (watch, n) => (await take(watch, n)).map((e) => [e.key, e.operation, e.string()]);
  const before = [["a.x", "PUT", "1"], ["a.x", "PUT", "2"], ["b.x", "PUT", "3"]];
  const after = [["a.y", "PUT", "4"], ["a.x", "DEL", ""], ["b.x", "PURGE", ""]];
  const last = await watch();
  const some = await watch({ key: "a.*", include: KvWatchInclude.AllHistory });
  const updates = await watch({ include: KvWatchInclude.UpdatesOnly });
  const resumed = await watch({ resumeFromRevision: 2 });
  assert.deepEqual(await told(last, 2), before.slice(1));
  assert.deepEqual(await told(some, 2), before.slice(0, 2));
  assert.deepEqual(await told(resumed, 2), before.slice(1));
  await kv.put("a.y", "4");
  await kv.delete("a.x");
  await kv.purge("b.x");
  assert.deepEqual(await told(last, 3), after);
  assert.deepEqual(await told(some, 2), after.slice(0, 2));
  assert.deepEqual(await told(updates, 3), after);
  assert.deepEqual(await told(resumed, 3), after);
  assert.ok(await kv.destroy());
  await a.close();
  await b.close();
}

export async function manyKeys(site) {
  const [a, b] = await site.pair();
  const [kv, other] = await make(site, a, b, "jskvmany", { history: 1 });
  const value = new Uint8Array(1_000_000).map((_, i) => (i * 7) % 251);
  for (let i = 0; i < 3; i++) await kv.put("large", value);
  assert.equal(Buffer.compare(Buffer.from((await other.get("large")).value), Buffer.from(value)), 0);
  assert.equal((await other.status()).values, 1);
  await Promise.all(Array.from({ length: 1000 }, (_, i) => kv.put(`many.${i}`, String(i))));
  assert.equal((await all(await other.keys("many.>"))).length, 1000);
  assert.equal((await all(await other.keys(["many.1", "many.2", "large"]))).length, 3);
  assert.ok(await kv.destroy());
  await a.close();
  await b.close();
}
