// Streams, and what publishers ask of them.
import assert from "node:assert/strict";
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { refusal } from "./site.mjs";

export async function streams(site) {
  const [a, b] = await site.pair();
  const [manager, other] = [await jetstreamManager(a), await jetstreamManager(b)];
  const info = await site.stream(manager, "js", { subjects: ["jsstream.>"] });
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
}

export async function deletedMessages(site) {
  const [a, b] = await site.pair();
  const [manager, other] = [await jetstreamManager(a), await jetstreamManager(b)];
  await site.stream(manager, "jsdel", { subjects: ["jsdel.>"], max_msgs_per_subject: 2 });
  for (let i = 0; i < 6; i++) await jetstream(a).publish(`jsdel.${i % 2}`, String(i));
  const { state } = await other.streams.info("jsdel");
  assert.deepEqual([state.messages, state.first_seq, state.last_seq], [4, 3, 6]);
  assert.ok(await other.streams.deleteMessage("jsdel", 4));
  assert.equal(await manager.streams.getMessage("jsdel", { seq: 4 }), null);
  const next = await other.streams.getMessage("jsdel", { seq: 4, next_by_subj: "jsdel.0" });
  assert.deepEqual([next.seq, next.string()], [5, "4"]);
  const details = await other.streams.info("jsdel", { deleted_details: true, subjects_filter: ">" });
  assert.deepEqual(details.state.deleted, [4]);
  assert.deepEqual({ ...details.state.subjects }, { "jsdel.0": 2, "jsdel.1": 1 });
  assert.equal((await manager.streams.purge("jsdel", { filter: "jsdel.0" })).purged, 2);
  assert.equal((await other.streams.info("jsdel")).state.messages, 1);
  assert.ok(await manager.streams.delete("jsdel"));
  await a.close();
  await b.close();
}

export async function expectations(site) {
  const [a, b] = await site.pair();
  const manager = await jetstreamManager(a);
  await site.stream(manager, "jsexpect", { subjects: ["jsexpect.>"] });
  const [js, other] = [jetstream(a), jetstream(b)];
  assert.equal((await js.publish("jsexpect.a", "", { msgID: "one" })).seq, 1);
  assert.equal((await other.publish("jsexpect.a", "", { expect: { lastSequence: 1 } })).seq, 2);
  await assert.rejects(js.publish("jsexpect.a", "", { expect: { lastSequence: 1 } }), refusal(10071));
  await assert.rejects(js.publish("jsexpect.a", "", { expect: { lastMsgID: "one" } }), refusal(10070));
  const first = { expect: { lastSubjectSequence: 0 } };
  assert.equal((await js.publish("jsexpect.b", "", first)).seq, 3);
  await assert.rejects(other.publish("jsexpect.b", "", first), refusal(10071));
  await assert.rejects(other.publish("jsexpect.a", "", { expect: { streamName: "other" } }), refusal(10060));
  assert.equal((await other.publish("jsexpect.a", "", { expect: { streamName: "jsexpect" } })).seq, 4);
  const acks = await Promise.all(Array.from({ length: 200 }, () => js.publish("jsexpect.async")));
  assert.deepEqual(acks.map((ack) => ack.seq), Array.from({ length: 200 }, (_, i) => i + 5));
  assert.ok(await manager.streams.delete("jsexpect"));
  await a.close();
  await b.close();
}

export async function directGets(site) {
  const [a, b] = await site.pair();
  const manager = await jetstreamManager(a);
  await site.stream(manager, "jsdirect", { subjects: ["jsdirect.>"], allow_direct: true });
  for (let i = 0; i < 9; i++) await jetstream(a).publish(`jsdirect.${i % 3}`, String(i));
  const direct = (await jetstreamManager(b)).direct;
  assert.equal((await direct.getMessage("jsdirect", { seq: 4 })).string(), "3");
  assert.equal((await direct.getMessage("jsdirect", { last_by_subj: "jsdirect.1" })).string(), "7");
  assert.equal(await direct.getMessage("jsdirect", { seq: 99 }), null);
  const batch = await direct.getBatch("jsdirect", { seq: 1, batch: 3, next_by_subj: "jsdirect.2" });
  const got = [];
  for await (const m of batch) got.push(m.string());
  assert.deepEqual(got, ["2", "5", "8"]);
  const last = [];
  for await (const m of await direct.getLastMessagesFor("jsdirect", { multi_last: ["jsdirect.*"] })) {
    last.push(m.string());
  }
  assert.deepEqual(last, ["6", "7", "8"]);
  assert.ok(await manager.streams.delete("jsdirect"));
  await a.close();
  await b.close();
}
