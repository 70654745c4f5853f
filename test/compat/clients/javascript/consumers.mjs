// Pull, push and ordered consumers.
import assert from "node:assert/strict";
import { AckPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { nanos } from "@nats-io/transport-node";
import { refusal } from "./site.mjs";

export async function consumers(site) {
  const [a, b] = await site.pair();
  const manager = await jetstreamManager(a);
  await site.stream(manager, "jsc", { subjects: ["jsc.>"] });
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
}

export async function acks(site) {
  const [a, b] = await site.pair();
  const manager = await jetstreamManager(a);
  await site.stream(manager, "jsack", { subjects: ["jsack.>"] });
  for (let i = 0; i < 5; i++) await jetstream(a).publish("jsack.a", String(i));
  await manager.consumers.add("jsack", {
    durable_name: "acks", ack_policy: AckPolicy.Explicit, ack_wait: nanos(1000), max_deliver: 3,
  });
  const consumer = await jetstream(b).consumers.get("jsack", "acks");
  const first = [];
  for await (const m of await consumer.fetch({ max_messages: 5, expires: 10000 })) first.push(m);
  assert.ok(await first[0].ackAck());
  first[1].term("broken");
  first[2].nak(200);
  assert.ok(await first[4].ackAck());
  const again = []; // the third was refused, the fourth's time ended
  for await (const m of await consumer.fetch({ max_messages: 2, expires: 10000 })) {
    again.push([m.string(), m.info.deliveryCount, m.redelivered]);
    assert.ok(await m.ackAck());
  }
  assert.deepEqual(again, [["2", 2, true], ["3", 2, true]]);
  const info = await manager.consumers.info("jsack", "acks");
  assert.deepEqual([info.ack_floor.stream_seq, info.num_ack_pending], [5, 0]);
  assert.ok(await manager.consumers.delete("jsack", "acks"));
  await assert.rejects(manager.consumers.info("jsack", "acks"), refusal(10014));
  assert.ok(await manager.streams.delete("jsack"));
  await a.close();
  await b.close();
}

export async function pushConsumers(site) {
  const [a, b] = await site.pair();
  const manager = await jetstreamManager(a);
  await site.stream(manager, "jspush", { subjects: ["jspush.>"] });
  for (let i = 0; i < 100; i++) await jetstream(a).publish("jspush.a", String(i));
  await manager.consumers.add("jspush", {
    durable_name: "pushed", ack_policy: AckPolicy.Explicit, deliver_subject: "jspushed",
    idle_heartbeat: nanos(1000), flow_control: true,
  });
  const pushed = await jetstream(b).consumers.getPushConsumer("jspush", "pushed");
  const got = [];
  for await (const m of await pushed.consume()) {
    got.push(m.string());
    assert.ok(await m.ackAck());
    if (got.length === 100) break;
  }
  assert.deepEqual(got, Array.from({ length: 100 }, (_, i) => String(i)));
  assert.equal((await manager.consumers.info("jspush", "pushed")).ack_floor.stream_seq, 100);
  assert.ok(await pushed.delete());
  assert.ok(await manager.streams.delete("jspush"));
  await a.close();
  await b.close();
}

export async function orderedConsumers(site) {
  const [a, b] = await site.pair();
  const manager = await jetstreamManager(a);
  await site.stream(manager, "jsordered", { subjects: ["jsordered.>"] });
  for (let i = 0; i < 300; i++) await jetstream(a).publish(`jsordered.${i % 3}`, String(i));
  const consumers = jetstream(b).consumers;
  const options = { filter_subjects: ["jsordered.1", "jsordered.2"], opt_start_seq: 100 };
  const want = Array.from({ length: 201 }, (_, i) => i + 100).filter((seq) => seq % 3 !== 1);
  for (const get of ["get", "getPushConsumer"]) {
    const ordered = await consumers[get]("jsordered", { ...options });
    const got = [];
    for await (const m of await ordered.consume({ max_messages: 20, expires: 2000 })) {
      got.push(m.seq);
      if (got.length === 50 && get === "get") { // a consumer that is gone is made again, from where it was
        await manager.consumers.delete("jsordered", (await ordered.info()).name);
      }
      if (got.length === want.length) break;
    }
    assert.deepEqual(got, want);
  }
  assert.ok(await manager.streams.delete("jsordered"));
  await a.close();
  await b.close();
}
