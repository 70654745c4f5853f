// What applications rely on, through nats.js: node nats_js.mjs nats://127.0.0.1:4222 [nats://second:4222]
//
// Prints one line per story; the exit status is 0 only if all hold. With a second URL of the same
// cluster, the stories run between the two nodes.
import assert from "node:assert/strict";
import { AckPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect, headers, NoRespondersError, RequestError } from "@nats-io/transport-node";

const [first, second = first] = process.argv.slice(2);
if (!first) {
  console.error("usage: node nats_js.mjs URL [URL of another node]");
  process.exit(2);
}
const text = new TextDecoder();
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function pair(options = {}) {
  return [await connect({ servers: first, ...options }), await connect({ servers: second, ...options })];
}

async function settle(nc) {
  await nc.flush();
  if (first !== second) await sleep(200); // interest reaches the other node after the PONG of this one
}

async function take(sub, n) {
  const got = [];
  for await (const m of sub) {
    got.push(m);
    if (got.length === n) break;
  }
  return got;
}

const stories = {
  async publishAndSubscribe() {
    const [a, b] = await pair();
    const sub = b.subscribe("js.*.x");
    await settle(b);
    for (let i = 0; i < 100; i++) a.publish(`js.${i}.x`, String(i));
    const got = await take(sub, 100);
    got.forEach((m, i) => assert.deepEqual([m.subject, m.string()], [`js.${i}.x`, String(i)]));
    await a.close();
    await b.close();
  },
  async requestAndReply() {
    const [a, b] = await pair();
    b.subscribe("js.help", { queue: "q", callback: (_, m) => m.respond("re: " + m.string()) });
    await settle(b);
    for (let i = 0; i < 20; i++) {
      assert.equal((await a.request("js.help", String(i), { timeout: 10000 })).string(), "re: " + i);
    }
    assert.equal((await a.request("js.help", "old", { timeout: 10000, noMux: true })).string(), "re: old");
    await a.close();
    await b.close();
  },
  async nobodyAnswers() {
    const [a, b] = await pair();
    await assert.rejects(a.request("js.nobody", "", { timeout: 10000 }), (err) =>
      err instanceof NoRespondersError || (err instanceof RequestError && err.isNoResponders()));
    await a.close();
    await b.close();
  },
  async headers() {
    const [a, b] = await pair();
    const sub = b.subscribe("js.headers");
    await settle(b);
    const h = headers();
    h.append("Key", "one");
    h.append("Key", "two");
    a.publish("js.headers", "data", { headers: h });
    const [m] = await take(sub, 1);
    assert.deepEqual(m.headers.values("Key"), ["one", "two"]);
    assert.equal(m.string(), "data");
    await a.close();
    await b.close();
  },
  async unsubscribeAfter() {
    const [a, b] = await pair();
    const sub = b.subscribe("js.max", { max: 3 });
    await settle(b);
    for (let i = 0; i < 10; i++) a.publish("js.max", String(i));
    const got = [];
    for await (const m of sub) got.push(m.string());
    assert.deepEqual(got, ["0", "1", "2"]);
    await a.close();
    await b.close();
  },
  async noEcho() {
    const [a, b] = await pair({ noEcho: true });
    const own = a.subscribe("js.echo");
    const others = b.subscribe("js.echo");
    await settle(a);
    await settle(b);
    a.publish("js.echo", "from a");
    assert.equal((await take(others, 1))[0].string(), "from a");
    b.publish("js.echo", "from b");
    assert.equal((await take(own, 1))[0].string(), "from b");
    await a.close();
    await b.close();
  },
  async drain() {
    const [a, b] = await pair();
    const got = [];
    b.subscribe("js.drain", { callback: (_, m) => got.push(m.string()) });
    await settle(b);
    for (let i = 0; i < 200; i++) a.publish("js.drain", String(i));
    await settle(a);
    await b.drain();
    assert.deepEqual(got, Array.from({ length: 200 }, (_, i) => String(i)));
    await a.close();
  },
  async largePayload() {
    const [a, b] = await pair();
    const sub = b.subscribe("js.large");
    await settle(b);
    const data = new Uint8Array(a.info.max_payload).map((_, i) => (i * 7) % 251);
    a.publish("js.large", data);
    const [m] = await take(sub, 1);
    assert.equal(Buffer.compare(Buffer.from(m.data), Buffer.from(data)), 0);
    await a.close();
    await b.close();
  },
  async verboseAndPedantic() {
    const [a, b] = await pair({ verbose: true, pedantic: true });
    const sub = b.subscribe("js.verbose");
    await settle(b);
    a.publish("js.verbose", "heard");
    assert.equal(text.decode((await take(sub, 1))[0].data), "heard");
    await a.close();
    await b.close();
  },
  async streams() {
    const [a, b] = await pair();
    const [manager, other] = [await jetstreamManager(a), await jetstreamManager(b)];
    await manager.streams.delete("js").catch(() => {});
    const info = await manager.streams.add({ name: "js", subjects: ["jsstream.>"] });
    assert.deepEqual([info.config.name, info.state.messages], ["js", 0]);
    const js = jetstream(b);
    for (let i = 0; i < 10; i++) {
      assert.equal((await js.publish("jsstream.a", String(i), { msgID: String(i), retries: 3 })).seq, i + 1);
    }
    assert.ok((await js.publish("jsstream.a", "again", { msgID: "3" })).duplicate);
    const stream = await js.streams.get("js");
    assert.equal((await stream.getMessage({ seq: 3 })).string(), "2");
    assert.equal((await stream.getMessage({ last_by_subj: "jsstream.a" })).string(), "9");
    assert.equal(await stream.getMessage({ seq: 99 }), null);
    const names = [];
    for await (const s of other.streams.list()) names.push(s.config.name);
    assert.ok(names.includes("js"));
    assert.equal((await other.streams.purge("js", { keep: 3 })).purged, 7);
    assert.ok(await other.streams.delete("js"));
    await assert.rejects(manager.streams.info("js"), { message: "stream not found" });
    await a.close();
    await b.close();
  },
  async consumers() {
    const [a, b] = await pair();
    const manager = await jetstreamManager(a);
    await manager.streams.delete("jsc").catch(() => {});
    await manager.streams.add({ name: "jsc", subjects: ["jsc.>"] });
    for (let i = 0; i < 10; i++) await jetstream(a).publish("jsc.a", String(i));
    const made = await manager.consumers.add("jsc", { durable_name: "d", ack_policy: AckPolicy.Explicit });
    assert.deepEqual([made.name, made.num_pending], ["d", 10]);
    const js = jetstream(b);
    const durable = await js.consumers.get("jsc", "d");
    const got = [];
    for await (const m of await durable.fetch({ max_messages: 4, expires: 10000 })) {
      got.push(m.string());
      m.ack();
    }
    for await (const m of await durable.consume({ max_messages: 10 })) {
      got.push(m.string());
      await m.ackAck();
      if (got.length === 10) break;
    }
    assert.deepEqual(got, Array.from({ length: 10 }, (_, i) => String(i)));
    assert.equal((await durable.info()).ack_floor.stream_seq, 10);
    assert.equal(await durable.next({ expires: 1000 }), null);
    const ordered = [];
    for await (const m of await (await js.consumers.get("jsc")).consume()) {
      ordered.push(m.seq);
      if (ordered.length === 10) break;
    }
    assert.deepEqual(ordered, Array.from({ length: 10 }, (_, i) => i + 1));
    assert.ok(await manager.consumers.delete("jsc", "d"));
    assert.ok(await manager.streams.delete("jsc"));
    await a.close();
    await b.close();
  },
};

let failed = 0;
for (const [name, story] of Object.entries(stories)) {
  let timer;
  try {
    await Promise.race([
      story(),
      new Promise((_, reject) => (timer = setTimeout(() => reject(new Error("no end after 60 s")), 60000))),
    ]);
    console.log("ok  ", name);
  } catch (err) {
    failed++;
    console.log("FAIL", name, err);
  } finally {
    clearTimeout(timer);
  }
}
console.log(`${Object.keys(stories).length - failed} of ${Object.keys(stories).length} hold`);
process.exit(failed ? 1 : 0);
