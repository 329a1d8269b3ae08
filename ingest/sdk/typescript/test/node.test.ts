import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, type Lost } from "../src/index.js";
import { FileSpool, type FileSpoolLimits } from "../src/node.js";
import { allTaken, Collector } from "./server.js";

const TURN = "ep-1.1-0";
const AWAY = { lingerMs: 20, waitMs: 100, exitMs: 1_000, batchEvents: 10 };
let collector: Collector;
let folder: string;

beforeEach(async () => {
  collector = await Collector.start();
  folder = mkdtempSync(join(tmpdir(), "spool-"));
});

afterEach(async () => {
  await collector.stop();
  rmSync(folder, { recursive: true });
});

function make(limits: FileSpoolLimits = { fileEvents: 10 }): Client {
  const spool = new FileSpool(folder, collector.url, limits);
  return new Client({ url: collector.url, policy: "tab", spool, limits: AWAY });
}

function files(): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .sort();
}

function spooled(): number {
  return files().reduce((sum, file) => sum + readFileSync(file, "utf8").split("\n").length - 1, 0);
}

function line(n: number): string {
  return JSON.stringify({ id: `e${n}`, type: "slipstream.shown" });
}

function losses(): [Lost, Record<string, number>] {
  const lost: Record<string, number> = {};
  return [(reason, events) => events > 0 && (lost[reason] = (lost[reason] ?? 0) + events), lost];
}

/** A program of its own: `body` has `client` and `TURN`. */
function program(body: string): ChildProcess {
  const source = `
    import { Client } from ${JSON.stringify(new URL("../src/index.js", import.meta.url).href)};
    import { FileSpool } from ${JSON.stringify(new URL("../src/node.js", import.meta.url).href)};
    const url = ${JSON.stringify(collector.url)}, TURN = ${JSON.stringify(TURN)};
    const spool = new FileSpool(${JSON.stringify(folder)}, url, { fileEvents: 10 });
    const client = new Client({ url, policy: "tab", spool, limits: { exitMs: 500 } });
    ${body}`;
  return spawn(process.execPath, ["--input-type=module", "-e", source], { stdio: ["ignore", "pipe", "inherit"] });
}

async function ended(child: ChildProcess): Promise<[code: number | null, output: string]> {
  let output = "";
  child.stdout!.on("data", (chunk: Buffer) => (output += chunk.toString()));
  const code = await new Promise<number | null>((resolve) => child.on("close", resolve));
  return [code, output];
}

test("what one program could not send the next one sends, oldest first", async () => {
  collector.answers = () => ({ status: 503 });
  const first = make();
  const told = Array.from({ length: 35 }, () => first.shown(TURN));
  assert.equal(await first.close(), false);
  assert.equal(first.stats.queued, 0);
  assert.ok(files().length >= 4 && spooled() === 35);
  collector.answers = allTaken;
  const second = make();
  assert.ok(await second.flush());
  await second.close();
  assert.deepEqual(collector.ids, told);
  assert.equal(second.stats.recovered, 35);
  assert.deepEqual(files(), []);
});

test("files fill up before there is another, and the oldest make room", async () => {
  const [lost, losses_] = losses();
  const spool = new FileSpool(folder, "http://x", { fileEvents: 10, mostBytes: 2_000 });
  for (let n = 0; n < 25; n++) await spool.add([line(n)], lost);
  assert.equal(files().length, 3);
  for (let n = 25; n < 100; n++) await spool.add([line(n)], lost);
  assert.ok(files().reduce((sum, file) => sum + statSync(file).size, 0) <= 2_000);
  const kept: string[] = [];
  for (let claim = await spool.claim(lost); claim !== undefined; claim = await spool.claim(lost)) {
    kept.push(...claim.lines);
    await claim.settle([]);
  }
  assert.deepEqual(kept, Array.from({ length: 100 }, (_, n) => line(n)).slice(-kept.length));
  assert.deepEqual(losses_, { spool_full: 100 - kept.length });
  assert.equal(files().length, 0);
});

test("what is too old, and what a kill cut short, is dropped and counted", async () => {
  const [lost, losses_] = losses();
  const spool = new FileSpool(folder, "http://x", { fileEvents: 2, mostAgeMs: 100 });
  await spool.add([line(1), line(2)], lost);
  await sleep(150);
  await spool.add([line(3)], lost);
  const file = files()[1]!;
  writeFileSync(file, `${readFileSync(file, "utf8")}{"oops\n${line(4).slice(0, 7)}`);
  assert.deepEqual((await spool.claim(lost))?.lines, [line(3)]);
  assert.deepEqual(losses_, { too_old: 2, damaged: 2 });
});

test("a file in hand belongs to one, what is left of it is free again, and so is that of a process that is gone", async () => {
  const [lost] = losses();
  const spool = new FileSpool(folder, "http://x");
  await spool.add([line(1), line(2), line(3)], lost);
  const claim = await spool.claim(lost);
  assert.equal(await spool.claim(lost), undefined);
  assert.equal(await new FileSpool(folder, "http://x").claim(lost), undefined);
  await claim!.settle([line(2)]);
  assert.deepEqual((await spool.claim(lost))?.lines, [line(2)]);
  const [file] = files();
  renameSync(file!, file!.replace(`~${process.pid}~`, "~999999999~"));
  assert.deepEqual((await spool.claim(lost))?.lines, [line(2)]);
  const [again] = files();
  renameSync(again!, again!.replace(/~\d+$/, "~1000")); // our number, long before we started
  assert.deepEqual((await spool.claim(lost))?.lines, [line(2)]);
  utimesSync(files()[0]!, 0, 0);
});

test("a disk of no use costs nothing but the spool", async () => {
  writeFileSync(join(folder, "file"), "");
  let left = 2;
  collector.answers = (events) => (left-- > 0 ? { status: 503 } : allTaken(events));
  const spool = new FileSpool(join(folder, "file"), collector.url);
  const client = new Client({ url: collector.url, policy: "tab", spool, limits: AWAY });
  const told = Array.from({ length: 25 }, () => client.shown(TURN));
  assert.ok(await client.flush());
  assert.deepEqual(collector.ids.sort(), told.sort());
  await client.close();
});

test("the end of the program sends what is left", async () => {
  const [code] = await ended(program("for (let n = 0; n < 250; n++) client.shown(TURN);"));
  assert.equal(code, 0);
  assert.equal(new Set(collector.ids).size, 250);
  assert.equal(collector.ids.length, 250);
  assert.equal(spooled(), 0);
});

test("process.exit leaves it to the spool, and so does a collector that hangs", async () => {
  await ended(program("for (let n = 0; n < 250; n++) client.shown(TURN); process.exit(0);"));
  assert.equal(spooled(), 250);
  rmSync(folder, { recursive: true });
  collector.answers = (events) => ({ ...allTaken(events), afterMs: 20_000 });
  const began = performance.now();
  await ended(program("for (let n = 0; n < 250; n++) client.shown(TURN); await client.close();"));
  assert.ok(performance.now() - began < 5_000);
  assert.equal(spooled(), 250);
});

test("after kill -9 what was spooled is sent by the next program, once", async () => {
  collector.answers = () => ({ status: 503 });
  const killed = program(`
    for (let n = 0; n < 100; n++) client.shown(TURN);
    while (client.stats.spooled < 100) await client.flush(100);
    console.log("spooled");
    setInterval(() => client.flush(1000), 100);`);
  await new Promise((resolve) => killed.stdout!.once("data", resolve));
  killed.kill("SIGKILL");
  await new Promise((resolve) => killed.once("close", resolve));
  assert.equal(spooled(), 100);
  collector.answers = allTaken;
  const next = make();
  assert.ok(await next.flush());
  await next.close();
  assert.equal(collector.ids.length, 100);
  assert.equal(new Set(collector.ids).size, 100);
});

test("programs share a folder without sending anything twice", async () => {
  collector.answers = () => ({ status: 503 });
  const away = make();
  const told = Array.from({ length: 300 }, () => away.shown(TURN));
  await away.close();
  assert.equal(spooled(), 300);
  collector.answers = (events) => ({ ...allTaken(events), afterMs: 10 });
  const body = "client.shown(TURN); await client.flush(20000); console.log(client.stats.recovered); await client.close();";
  const recovered = await Promise.all([1, 2, 3].map(async () => Number((await ended(program(body)))[1])));
  assert.equal(recovered[0]! + recovered[1]! + recovered[2]!, 300);
  assert.equal(collector.ids.length, 303);
  const ids = new Set(collector.ids);
  assert.equal(ids.size, 303);
  assert.ok(told.every((id) => ids.has(id!)));
});

test("the spool is for this person's eyes only", async () => {
  collector.answers = () => ({ status: 503 });
  const client = make();
  client.followUp(TURN, { text: "my words" });
  await client.close(100);
  assert.equal(statSync(files()[0]!).mode & 0o077, 0);
});
