// The servers that the stories run at: two nodes of a cluster, or twice the same server.
import { JetStreamApiError } from "@nats-io/jetstream";
import { connect, wsconnect } from "@nats-io/transport-node";

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class Site {
  // The URLs are ws:// and wss:// ones for clients as in browsers.
  constructor(first, second) {
    this.first = first;
    this.second = second;
    this.connect = first.startsWith("ws") ? wsconnect : connect;
    this.replicas = Number(process.env.REPLICAS ?? 1);
  }

  async pair(options = {}) {
    return [
      await this.connect({ servers: this.first, ...options }),
      await this.connect({ servers: this.second, ...options }),
    ];
  }

  async settle(nc) {
    await nc.flush();
    if (this.first !== this.second) await sleep(200); // interest reaches the other node after the PONG of this one
  }

  // stream makes an empty stream with as many replicas as there are nodes.
  async stream(manager, name, settings) {
    await manager.streams.delete(name).catch(() => {}); // one of a run that was ended
    return await manager.streams.add({ name, num_replicas: this.replicas, ...settings });
  }
}

// items iterates without an end of its own: a loop that is left would close a subscription.
export const items = (iterable) => iterable[Symbol.asyncIterator]();

// take returns the next n items.
export async function take(iterable, n) {
  const got = [];
  const iterator = items(iterable);
  while (got.length < n) got.push((await iterator.next()).value);
  return got;
}

// refusal is for assert.rejects: an error with this code of JetStream.
export const refusal = (code) => (err) => err instanceof JetStreamApiError && err.code === code;
