// Ways to connect, to servers with users and TLS, and what servers refuse. PLAIN, TLS, MTLS, WS and
// WSS are URLs; CA and IDENTITIES are what ../identities.sh makes.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { promisify } from "node:util";
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import {
  AuthorizationError,
  connect,
  nkeyAuthenticator,
  PermissionViolationError,
  wsconnect,
} from "@nats-io/transport-node";
import { items } from "./site.mjs";

const { CA, IDENTITIES } = process.env;
const ann = { user: "ann", pass: "secret" };
const nkey = (name) => ({ authenticator: nkeyAuthenticator(readFileSync(`${IDENTITIES}/${name}.nk`)) });
const tls = (more = {}) => ({ tls: { caFile: CA, ...more } });
const certificate = (name) => ({ certFile: `${IDENTITIES}/${name}.crt`, keyFile: `${IDENTITIES}/${name}.key` });

// dial connects to the URL in a variable. The client for WebSocket has no settings for TLS: as in a
// browser, the process trusts a CA, here with NODE_EXTRA_CA_CERTS.
function dial(variable, options = {}) {
  const servers = process.env[variable];
  return (servers.startsWith("ws") ? wsconnect : connect)({ servers, reconnect: false, timeout: 10000, ...options });
}

// works asks, answers, stores, and is told what it may not publish.
async function works(variable, options) {
  const nc = await dial(variable, options);
  const status = items(nc.status());
  nc.subscribe("jsconnect.help", { callback: (_, m) => m.respond("re: " + m.string()) });
  const ask = async (what) => (await nc.request("jsconnect.help", what, { timeout: 10000 })).string();
  assert.equal(await ask("me"), "re: me");
  const manager = await jetstreamManager(nc);
  await manager.streams.delete("jsconnect").catch(() => {}); // one of a run that was ended
  await manager.streams.add({ name: "jsconnect", subjects: ["jsconnect.stored"] });
  const ack = await jetstream(nc).publish("jsconnect.stored", "data");
  assert.equal((await manager.streams.getMessage("jsconnect", { seq: ack.seq })).string(), "data");
  nc.publish("denied.stored", "data");
  await nc.flush();
  let error;
  while (!error) ({ error } = (await status.next()).value); // INFO may come meanwhile
  assert.ok(error instanceof PermissionViolationError, error);
  assert.deepEqual([error.operation, error.subject], ["publish", "denied.stored"]);
  assert.equal(await ask("again"), "re: again");
  await manager.streams.delete("jsconnect");
  await nc.close();
}

export const userAndPassword = () => works("PLAIN", ann);
export const userAndPasswordOverTLS = () => works("TLS", { ...ann, ...tls() });
export const nKey = () => works("PLAIN", nkey("service"));
export const nKeyOverTLS = () => works("TLS", { ...nkey("service"), ...tls() });
export const clientCertificate = () => works("MTLS", tls(certificate("client")));
export const webSocket = () => works("WS", ann);
export const webSocketWithNKey = () => works("WS", nkey("service"));
export const webSocketOverTLS = () => works("WSS", ann);

const everywhere = [["PLAIN", {}], ["TLS", tls()], ["WS", {}], ["WSS", {}]];

// refusal returns the error of connecting. It tries again if nats-server has closed the connection
// before the client wrote all: then the client reads nothing.
async function refusal(variable, options) {
  for (let i = 1; ; i++) {
    const err = await dial(variable, options).then(() => assert.fail(`no error at ${variable}`), (err) => err);
    if (i === 5 || !["ECONNRESET", "EPIPE"].includes(err.code)) return err;
  }
}

async function unauthorized(who) {
  for (const [variable, options] of everywhere) {
    const err = await refusal(variable, { ...who, ...options });
    assert.ok(err instanceof AuthorizationError, err);
    assert.equal(err.message, "Authorization Violation", variable);
  }
}

export const wrongPassword = () => unauthorized({ user: "ann", pass: "wrong" });
export const wrongNKey = () => unauthorized(nkey("stranger"));
export const nobody = () => unauthorized({});

export async function wrongCA() {
  const other = { tls: { caFile: `${IDENTITIES}/other-ca.crt` } };
  await assert.rejects(dial("TLS", { ...ann, ...other }), { code: "UNABLE_TO_VERIFY_LEAF_SIGNATURE" });
}

// A process that trusts another CA.
export async function wrongCAByWebSocket() {
  const program = `
    import { wsconnect } from "@nats-io/transport-node";
    wsconnect({ servers: process.env.WSS, user: "ann", pass: "secret", reconnect: false }).then(
      () => { console.log("connected"); process.exit(); },
      (err) => console.log(err.name));`;
  const { stdout } = await promisify(execFile)(
    process.execPath, ["--experimental-websocket", "--input-type=module", "--eval", program],
    { cwd: process.env.WORK, env: { ...process.env, NODE_EXTRA_CA_CERTS: `${IDENTITIES}/other-ca.crt` } });
  assert.equal(stdout, "ConnectionError\n");
}

// With TLS 1.3 a client is refused behind its handshake: it reads the alert, or writes in vain.
export async function wrongClientCertificate() {
  for (const certificates of [certificate("stranger"), {}]) {
    await assert.rejects(dial("MTLS", tls(certificates)), { code: /^ERR_SSL_|^ECONNRESET$|^EPIPE$/ });
  }
}
