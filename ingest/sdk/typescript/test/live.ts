/**
 * A program that tells every kind of event again and again while somebody may kill the collector. For `test_sdk_typescript.py`.
 *
 * node live.js URL FOLDER COUNT: one id a line as it is told, then the figures as JSON.
 */

import { setTimeout as sleep } from "node:timers/promises";
import { Client, type Kind, type Kinds } from "../src/index.js";
import { FileSpool } from "../src/node.js";

const ONE_OF_EACH: Kinds = {
  shown: {},
  replayed: {},
  accepted: { characters: 4, whole: false },
  rejected: {},
  dismissed: {},
  typed_through: { characters: null },
  copied: { characters: 17 },
  edited: { surviving: 0.5 },
  reverted: {},
  persisted: { after_s: 15, surviving: 1 },
  committed: { surviving: 0.25 },
  merged: {},
  follow_up: { text: "nein, \u00e4ndere das \ud83d\ude42\n\u0000" },
  thumbs: { up: false },
  tool_result: { tool: "grep", valid: true, error: "timeout" },
  test_result: { passed: null, failed: null, error: "collection" },
  build_result: { ok: false, errors: 3 },
  latency: { first_ms: 12.5 },
  error: { error: "stream_broken" },
  closed: {},
};

const [url = "", folder = "", count = "0"] = process.argv.slice(2);
const client = new Client({
  url,
  policy: "tab",
  source: "/test/live",
  spool: new FileSpool(folder, url),
  limits: { lingerMs: 50, waitMs: 500 },
});
const kinds = Object.keys(ONE_OF_EACH) as Kind[];
for (let n = 0; n < Number(count); n++) {
  const kind = kinds[n % kinds.length]!;
  const turn = `ep-ts-${Math.floor(n / 40)}.1-0`;
  console.log(client.tell(kind, turn, ONE_OF_EACH[kind]));
  if (n % 10 === 9) await sleep(5);
}
const sent = await client.flush(60_000);
console.log(JSON.stringify({ sent, ...client.stats }));
await client.close();
