// Publish, subscribe, request.
import assert from "node:assert/strict";
import { headers, NoRespondersError, RequestError } from "@nats-io/transport-node";
import { take } from "./site.mjs";

export async function publishAndSubscribe(site) {
  const [a, b] = await site.pair();
  const sub = b.subscribe("js.*.x");
  await site.settle(b);
  for (let i = 0; i < 100; i++) a.publish(`js.${i}.x`, String(i));
  const got = await take(sub, 100);
  got.forEach((m, i) => assert.deepEqual([m.subject, m.string()], [`js.${i}.x`, String(i)]));
  await a.close();
  await b.close();
}

export async function requestAndReply(site) {
  const [a, b] = await site.pair();
  b.subscribe("js.help", { queue: "q", callback: (_, m) => m.respond("re: " + m.string()) });
  await site.settle(b);
  for (let i = 0; i < 20; i++) {
    assert.equal((await a.request("js.help", String(i), { timeout: 10000 })).string(), "re: " + i);
  }
  assert.equal((await a.request("js.help", "old", { timeout: 10000, noMux: true })).string(), "re: old");
  await a.close();
  await b.close();
}

export async function nobodyAnswers(site) {
  const [a, b] = await site.pair();
  await assert.rejects(a.request("js.nobody", "", { timeout: 10000 }), (err) =>
    err instanceof NoRespondersError || (err instanceof RequestError && err.isNoResponders()));
  await a.close();
  await b.close();
}

export async function messageHeaders(site) {
  const [a, b] = await site.pair();
  const sub = b.subscribe("js.headers");
  await site.settle(b);
  const h = headers();
  h.append("Key", "one");
  h.append("Key", "two");
  a.publish("js.headers", "data", { headers: h });
  const [m] = await take(sub, 1);
  assert.deepEqual(m.headers.values("Key"), ["one", "two"]);
  assert.equal(m.string(), "data");
  await a.close();
  await b.close();
}

export async function unsubscribeAfter(site) {
  const [a, b] = await site.pair();
  const sub = b.subscribe("js.max", { max: 3 });
  await site.settle(b);
  for (let i = 0; i < 10; i++) a.publish("js.max", String(i));
  const got = [];
  for await (const m of sub) got.push(m.string());
  assert.deepEqual(got, ["0", "1", "2"]);
  await a.close();
  await b.close();
}

export async function noEcho(site) {
  const [a, b] = await site.pair({ noEcho: true });
  const own = a.subscribe("js.echo");
  const others = b.subscribe("js.echo");
  await site.settle(a);
  await site.settle(b);
  a.publish("js.echo", "from a");
  assert.equal((await take(others, 1))[0].string(), "from a");
  b.publish("js.echo", "from b");
  assert.equal((await take(own, 1))[0].string(), "from b");
  await a.close();
  await b.close();
}

export async function drain(site) {
  const [a, b] = await site.pair();
  const got = [];
  b.subscribe("js.drain", { callback: (_, m) => got.push(m.string()) });
  await site.settle(b);
  for (let i = 0; i < 200; i++) a.publish("js.drain", String(i));
  await site.settle(a);
  await b.drain();
  assert.deepEqual(got, Array.from({ length: 200 }, (_, i) => String(i)));
  await a.close();
}

export async function largePayload(site) {
  const [a, b] = await site.pair();
  const sub = b.subscribe("js.large");
  await site.settle(b);
  const data = new Uint8Array(a.info.max_payload).map((_, i) => (i * 7) % 251);
  a.publish("js.large", data);
  const [m] = await take(sub, 1);
  assert.equal(Buffer.compare(Buffer.from(m.data), Buffer.from(data)), 0);
  await a.close();
  await b.close();
}

export async function verboseAndPedantic(site) {
  const [a, b] = await site.pair({ verbose: true, pedantic: true });
  const sub = b.subscribe("js.verbose");
  await site.settle(b);
  a.publish("js.verbose", "heard");
  assert.equal((await take(sub, 1))[0].string(), "heard");
  await a.close();
  await b.close();
}
