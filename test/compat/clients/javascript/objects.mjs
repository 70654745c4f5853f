// Object stores.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { Objm } from "@nats-io/obj";
import { items, refusal, take } from "./site.mjs";

// make makes an empty store at the first connection, and opens it at the second.
async function make(site, a, b, name) {
  await (await new Objm(a).open(name, false)).destroy().catch(() => {}); // one of a run that was ended
  const store = await new Objm(a).create(name, { replicas: site.replicas });
  return [store, await new Objm(b).open(name)];
}

const same = (got, want) => assert.equal(Buffer.compare(Buffer.from(got), Buffer.from(want)), 0);
const bytes = (text) => new TextEncoder().encode(text);

export async function objectStore(site) {
  const [a, b] = await site.pair();
  const [store, other] = await make(site, a, b, "jsobj");
  const data = randomBytes(5_000_000);
  const info = await store.putBlob({ name: "large" }, data);
  assert.deepEqual([info.size, info.chunks], [5_000_000, 39]);
  const small = await other.putBlob({ name: "small", description: "a small one" }, bytes("a few bytes"));
  await store.putBlob({ name: "empty" }, null);
  same(await other.getBlob("large"), data);
  same(await store.getBlob("small"), bytes("a few bytes"));
  const { data: stream, error } = await other.get("large");
  const parts = [];
  for await (const part of stream) parts.push(part);
  assert.ok(!(await error));
  same(Buffer.concat(parts), data);
  const sizes = Object.fromEntries((await other.list()).map((o) => [o.name, o.size]));
  assert.deepEqual(sizes, { large: 5_000_000, small: 11, empty: 0 });

  const changed = await store.putBlob({ name: "small" }, bytes("other bytes of it"));
  assert.notEqual(changed.nuid, small.nuid);
  same(await other.getBlob("small"), bytes("other bytes of it"));
  await store.update("small", { name: "renamed", description: "changed" });
  assert.equal((await other.info("renamed")).description, "changed");
  await store.link("link", await store.info("renamed"));
  same(await other.getBlob("link"), bytes("other bytes of it"));

  const messages = async () => (await other.status()).streamInfo.state.messages;
  const before = await messages();
  assert.equal((await store.delete("large")).purged, 39);
  assert.equal(await messages(), before - 39);
  assert.equal(await other.get("large"), null);
  assert.ok((await other.info("large")).deleted);
  assert.ok(await store.destroy());
  await assert.rejects(new Objm(b).open("jsobj"), /not found/);
  await a.close();
  await b.close();
}

export async function watchedObjects(site) {
  const [a, b] = await site.pair();
  const [store, other] = await make(site, a, b, "jsobjwatch");
  await store.putBlob({ name: "zero" }, bytes("0"));
  const watch = items(await other.watch({ includeHistory: true }));
  const next = async () => (await take(watch, 1)).map((o) => [o.name, o.deleted ?? false])[0];
  assert.deepEqual(await next(), ["zero", false]);
  await store.putBlob({ name: "one" }, bytes("1"));
  assert.deepEqual(await next(), ["one", false]);
  await store.delete("one");
  assert.deepEqual(await next(), ["one", true]);
  assert.ok(await store.destroy());
  await a.close();
  await b.close();
}

export async function sealedObjectStore(site) {
  const [a, b] = await site.pair();
  const [store, other] = await make(site, a, b, "jsseal");
  await store.putBlob({ name: "kept" }, bytes("1"));
  assert.ok((await store.seal()).sealed);
  await assert.rejects(other.putBlob({ name: "more" }, bytes("2")), refusal(10109));
  same(await other.getBlob("kept"), bytes("1"));
  assert.ok(await store.destroy());
  await a.close();
  await b.close();
}
