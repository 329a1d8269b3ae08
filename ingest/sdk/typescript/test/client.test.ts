import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, newId, type Options, type Refused } from "../src/index.js";
import { judge } from "../src/answer.js";
import { allTaken, Collector } from "./server.js";

const TURN = "ep-1.1-0";
const QUICK = { lingerMs: 20, waitMs: 100, deniedWaitMs: 50, exitMs: 1_000 };
let collector: Collector;
const clients: Client[] = [];

function make(options: Partial<Options> = {}): Client {
  const client = new Client({ url: collector.url, policy: "tab", source: "/test/1", limits: QUICK, ...options });
  clients.push(client);
  return client;
}

function accounted(client: Client): void {
  const s = client.stats;
  const settled = s.taken + s.refused + s.withheld + Object.values(s.dropped).reduce((sum, n) => sum + n, 0);
  assert.equal(s.told, settled + s.queued + s.spooled - s.recovered, JSON.stringify(s));
}

async function until(condition: () => boolean, withinMs = 5_000): Promise<void> {
  for (const end = performance.now() + withinMs; !condition(); await sleep(5)) {
    assert.ok(performance.now() < end, "it did not come to pass");
  }
}

beforeEach(async () => {
  collector = await Collector.start();
});

afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.close(100)));
  await collector.stop();
});

test("the envelope is that of the wire format", async () => {
  const client = make({ key: "sk_1" });
  client.accepted(TURN, { characters: 4 }, { at: new Date("2026-01-01T12:00:00+05:30"), id: "e1" });
  client.closed({ episode: "ep-1" });
  assert.ok(await client.flush());
  const [first, second] = collector.events;
  assert.deepEqual(first, {
    specversion: "1.0",
    id: "e1",
    source: "/test/1",
    type: "slipstream.accepted",
    policy: "tab",
    time: "2026-01-01T06:30:00.000Z",
    turnid: TURN,
    data: { characters: 4 },
  });
  assert.equal(second?.["episodeid"], "ep-1");
  assert.ok(!("data" in second!) && !("turnid" in second!));
  assert.equal(collector.requests[0]?.headers["content-type"], "application/cloudevents-batch+json");
  assert.equal(collector.requests[0]?.headers["authorization"], "Bearer sk_1");
});

test("without consent nothing is sent but that something happened", async () => {
  const client = make({ consent: false });
  client.followUp(TURN, { text: "my secret" });
  client.consent = true;
  client.followUp(`${TURN}-withheld`, { text: "my secret" });
  client.followUp(TURN, { text: "my secret" }, { consent: false });
  assert.ok(await client.flush());
  assert.equal(collector.events.length, 3);
  for (const { id, ...event } of collector.events) {
    assert.ok(id);
    assert.deepEqual(event, { specversion: "1.0", source: "/test/1", type: "slipstream.follow_up", policy: "tab", consent: false });
  }
});

test("ids are version 7 UUIDs in the order of time", async () => {
  const ids: string[] = [];
  for (let n = 0; n < 3; n++, await sleep(2)) ids.push(newId());
  assert.deepEqual([...ids].sort(), ids);
  for (const id of ids) assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
});

test("a full batch goes at once, compressed, and the rest after the linger", async () => {
  const client = make({ limits: { batchEvents: 10, lingerMs: 300 } });
  client.shown(TURN);
  await until(() => collector.requests.length === 1);
  const began = performance.now();
  for (let n = 0; n < 25; n++) client.shown(TURN);
  await until(() => collector.events.length === 26);
  const arrived = collector.requests.slice(1);
  assert.deepEqual(arrived.map((request) => request.events.length), [10, 10, 5]);
  assert.ok(arrived[1]!.at - began < 250 && arrived[2]!.at - began >= 290);
  assert.equal(arrived[0]!.headers["content-encoding"], "gzip");
});

test("a collector that knows no gzip gets plain text", async () => {
  collector.answers = (events) => (collector.requests.length === 0 ? { status: 415 } : allTaken(events));
  const client = make();
  client.followUp(TURN, { text: "x".repeat(3_000) });
  assert.ok(await client.flush());
  assert.deepEqual(collector.requests.map((request) => request.headers["content-encoding"]), ["gzip", undefined]);
});

test("a refused event is reported and counted and never sent again", async () => {
  collector.answers = (events) => ({
    status: 207,
    body: {
      results: events.map(({ id, type }) => {
        if (type === "slipstream.edited") return { id, status: "refused", code: 422, reason: "bad_field", detail: "surviving" };
        if (type === "slipstream.copied") return { id: null, status: "refused", code: 422, reason: "no_consent", detail: "" };
        return { id, status: "taken" };
      }),
    },
  });
  const heard: Refused[] = [];
  const client = make({
    onRefused: (refused) => {
      heard.push(refused);
      throw new Error("the host's own mistake");
    },
  });
  client.shown(TURN);
  const bad = client.edited(TURN, { surviving: 7 });
  client.copied(TURN, {}, { consent: false });
  assert.ok(await client.flush());
  const { taken, refused, withheld, dropped } = client.stats;
  assert.deepEqual({ taken, refused, withheld, dropped }, { taken: 1, refused: 1, withheld: 1, dropped: {} });
  assert.deepEqual(heard.map((one) => [one.event["id"], one.code, one.reason]), [[bad, 422, "bad_field"]]);
  assert.equal(collector.events.length, 3);
});

for (const header of ["seconds", "date"]) {
  test(`Retry-After in ${header} is respected and the same ids come again`, async () => {
    const when = header === "seconds" ? "1" : new Date(Date.now() + 2_000).toUTCString();
    collector.answers = (events) =>
      collector.requests.length === 0 ? { status: 503, headers: { "retry-after": when } } : allTaken(events);
    const client = make();
    const id = client.shown(TURN);
    assert.ok(await client.flush(6_000));
    const [first, second] = collector.requests;
    assert.ok(second!.at - first!.at >= 950);
    assert.deepEqual(first!.events, second!.events);
    assert.deepEqual(collector.ids, [id]);
    accounted(client);
  });
}

test("waits grow and are never quite the same", async () => {
  collector.answers = () => ({ status: 503 });
  make({ limits: { lingerMs: 0, waitMs: 600 } }).shown(TURN);
  await until(() => collector.requests.length >= 4);
  const at = collector.requests.map((request) => request.at);
  const gaps = [at[1]! - at[0]!, at[2]! - at[1]!, at[3]! - at[2]!];
  assert.ok(gaps[0]! >= 120 && gaps[0]! <= 400 && gaps[1]! >= 245 && gaps[1]! <= 750 && gaps[2]! <= 850, gaps.join());
});

for (const status of [401, 403]) {
  test(`a wrong key (${status}) is not tried for ever`, async () => {
    collector.answers = () => ({ status });
    const client = make({ key: () => "sk_old" });
    client.shown(TURN);
    await until(() => "denied" in client.stats.dropped);
    await sleep(400);
    assert.deepEqual(client.stats.dropped, { denied: 1 });
    assert.equal(collector.requests.length, 3);
    accounted(client);
    collector.answers = allTaken;
    client.shown(TURN);
    await until(() => client.stats.taken === 1);
  });
}

test("a batch that is too much at once goes in halves", async () => {
  collector.answers = (events) => (events.length > 3 ? { status: 413 } : allTaken(events));
  const client = make();
  const told = Array.from({ length: 20 }, () => client.shown(TURN));
  assert.ok(await client.flush());
  assert.deepEqual(collector.ids.sort(), told.sort());
  collector.answers = () => ({ status: 413 });
  client.shown(TURN);
  assert.ok(await client.flush());
  assert.deepEqual(client.stats.dropped, { too_large: 1 });
  accounted(client);
});

test("one event that the collector fails on does not hold up the others", async () => {
  collector.answers = (events) => (events.some(({ id }) => id === "poison") ? { status: 500 } : allTaken(events));
  const client = make();
  for (let n = 0; n < 20; n++) client.shown(TURN, n === 7 ? { id: "poison" } : {});
  await until(() => client.stats.taken === 19 && "server_error" in client.stats.dropped, 15_000);
  assert.deepEqual(client.stats.dropped, { server_error: 1 });
  accounted(client);
});

test("a page of a hotel is no answer", async () => {
  collector.answers = (events) => (collector.requests.length < 2 ? { status: 200, body: "<html>Welcome!</html>" } : allTaken(events));
  const client = make();
  client.shown(TURN);
  assert.ok(await client.flush());
  assert.equal(client.stats.retries, 2);
});

test("every answer has a meaning", () => {
  for (let status = 100; status < 600; status++) {
    for (const retryAfter of [null, "nan", "Infinity", "-5", "soon", "Wed, 21 Oct 2015 07:28:00 GMT"]) {
      for (const body of ["", "[]", '{"results":[1]}', '{"results":{}}', "null"]) {
        const verdict = judge(status, retryAfter, body, 2);
        assert.ok(verdict.waitMs === undefined || (verdict.waitMs >= 0 && verdict.waitMs <= 3_600_000));
        assert.notEqual(verdict.then, "settled");
      }
    }
  }
});

test("no call throws, whatever it is given, and each is counted", () => {
  const client = make() as any;
  assert.equal(client.edited(TURN, { surviving: NaN }), undefined);
  assert.equal(client.tell("shown", TURN, { big: 1n }), undefined);
  const ring: Record<string, unknown> = {};
  ring["ring"] = ring;
  assert.equal(client.tell("shown", TURN, ring), undefined);
  assert.equal(client.shown(17), undefined);
  assert.equal(client.shown(null), undefined);
  assert.equal(client.shown(TURN, { at: new Date("yesterday") }), undefined);
  assert.equal(client.shown(TURN, null), undefined);
  assert.equal(client.followUp(TURN, { text: "ä".repeat(40_000) }), undefined);
  assert.deepEqual(client.stats.dropped, { not_json: 3, bad_call: 4, too_large: 1 });
  accounted(client);
});

test("an address or a limit that makes no sense is said when the client is made", () => {
  for (const url of ["", "localhost", "ftp://x"]) assert.throws(() => new Client({ url, policy: "tab" }), TypeError);
  assert.throws(() => make({ limits: { batchEvents: 0 } }), /batchEvents/);
});

test("every event is accounted for whatever the collector answers", async () => {
  const statuses = [202, 202, 202, 503, 429, 413, 400, 500, 401];
  for (let round = 0; round < 8; round++) {
    const script = Array.from({ length: round }, () => statuses[Math.floor(Math.random() * statuses.length)]!);
    const shown = script.join();
    collector.answers = (events) => {
      const status = script.pop() ?? 202;
      return status === 202 ? allTaken(events) : { status };
    };
    const client = make({ limits: { batchEvents: 4, lingerMs: 0, waitMs: 50, deniedWaitMs: 50 } });
    const told = Array.from({ length: 10 }, () => client.shown(TURN));
    assert.ok(await client.flush(), shown);
    accounted(client);
    const { taken, dropped } = client.stats;
    const arrived = collector.ids.filter((id) => told.includes(id));
    assert.equal(arrived.length, new Set(arrived).size, shown);
    assert.equal(arrived.length, taken, shown);
    assert.equal(taken + Object.values(dropped).reduce((sum, n) => sum + n, 0), told.length, shown);
  }
});

test("a collector that hangs never holds up the host, and the queue is bounded", async () => {
  collector.answers = (events) => ({ ...allTaken(events), afterMs: 3_000 });
  const client = make({ limits: { ...QUICK, batchEvents: 10, queueEvents: 50 } });
  for (let n = 0; n < 500; n++) client.shown(TURN);
  assert.deepEqual(client.stats.dropped, { queue_full: 450 });
  const began = performance.now();
  assert.equal(await client.flush(200), false);
  assert.equal(await client.close(100), false);
  assert.ok(performance.now() - began < 1_000);
  assert.equal(client.shown(TURN), undefined);
  assert.deepEqual(client.stats.dropped, { queue_full: 450, exit: 50, closed: 1 });
});

test("memory alone is bounded, and what it loses is counted", async () => {
  const client = make({ url: "http://127.0.0.1:9", limits: { ...QUICK, lingerMs: 0, queueBytes: 2_048, batchEvents: 5 } });
  for (let n = 0; n < 100; n++, await sleep(1)) client.shown(TURN);
  await client.close(50);
  accounted(client);
  const { dropped, queued, spooled, recovered } = client.stats;
  assert.equal(Object.values(dropped).reduce((sum, n) => sum + n, 0), 100);
  assert.ok(dropped["spool_full"]! > 0 && dropped["exit"]! > 0);
  assert.ok(queued === 0 && spooled === recovered);
});

test("telling costs the host less than 50 microseconds", async () => {
  const client = make({ limits: { queueEvents: 100_000, queueBytes: 64 << 20 } });
  for (let n = 0; n < 2_000; n++) client.accepted(TURN, { characters: 42 });
  await client.flush();
  const count = 10_000;
  const began = process.cpuUsage();
  for (let n = 0; n < count; n++) client.accepted(TURN, { characters: 42 });
  const { user, system } = process.cpuUsage(began);
  const costUs = (user + system) / count;
  console.log(`tell: ${costUs.toFixed(1)} µs of processor time per event`);
  assert.ok(costUs < 50);
  assert.ok(await client.flush(20_000));
  assert.equal(new Set(collector.ids).size, 12_000);
});
