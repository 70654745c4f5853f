// What applications rely on, through nats.js: node tour.mjs nats://127.0.0.1:4222 [nats://second:4222]
// or node tour.mjs --connect
//
// Prints one line per story; the exit status is 0 only if all hold. With a second URL of the same
// cluster, the stories run between the two nodes. WEBSOCKET='ws://127.0.0.1:9222 ws://second:9222':
// some of them are told by clients as in browsers, too. With --connect, they are those of
// connecting.mjs.
import * as buckets from "./buckets.mjs";
import * as connecting from "./connecting.mjs";
import * as consumers from "./consumers.mjs";
import * as core from "./core.mjs";
import * as objects from "./objects.mjs";
import { Site } from "./site.mjs";
import * as streams from "./streams.mjs";

const [first, second = first] = process.argv.slice(2);
if (!first) {
  console.error("usage: node tour.mjs URL [URL of another node], or --connect");
  process.exit(2);
}
const [web, secondWeb = web] = (process.env.WEBSOCKET ?? "").split(" ").filter((url) => url);
let tours = [];
if (first === "--connect") {
  tours = [[undefined, "", connecting]];
} else {
  const site = new Site(first, second);
  tours = [core, streams, consumers, buckets, objects].map((chapter) => [site, "", chapter]);
  if (web) {
    const browsers = new Site(web, secondWeb);
    for (const chapter of [core, consumers, objects]) tours.push([browsers, " (WebSocket)", chapter]);
  }
}
let told = 0;
let failed = 0;
for (const [site, where, chapter] of tours) {
  for (const [title, story] of Object.entries(chapter)) {
    const name = title + where;
    let timer;
    told++;
    try {
      await Promise.race([
        story(site),
        new Promise((_, reject) => (timer = setTimeout(() => reject(new Error("no end after 60 s")), 60000))),
      ]);
      console.log("ok  ", name);
    } catch (err) {
      failed++;
      console.log("FAIL", name);
      console.log(err);
    } finally {
      clearTimeout(timer);
    }
  }
}
console.log(`${told - failed} of ${told} hold`);
process.exit(failed ? 1 : 0);
