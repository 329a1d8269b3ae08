/**
 * A spool on disk, for Node: bounded, shared by processes, and there after this one is gone.
 *
 * A file belongs to whoever renamed it: `<microseconds>-<pid>-<n>.events` is free, `<...>.events~<host>~<pid>~<milliseconds>` is
 * taken. A taken file whose process is gone is free again, at once where that can be seen (same host), else after two minutes.
 */

import { createHash } from "node:crypto";
import * as fs from "node:fs";
import { mkdir, open, readdir, readFile, rename, rm, stat } from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";
import type { Claim, Lost, Spool } from "./spool.js";

const ABANDONED_MS = 120_000;
const ENDING = ".events";
const HOST = digest(hostname()).slice(0, 8);
const STARTED_MS = Date.now() - process.uptime() * 1_000;
let files = 0;

export interface FileSpoolLimits {
  /** When it is full the oldest go, as `spool_full`. */
  readonly mostBytes?: number;
  /** What lies longer is dropped as `too_old`. */
  readonly mostAgeMs?: number;
  /** Events of one file, which is sent in one request. */
  readonly fileEvents?: number;
}

export class FileSpool implements Spool {
  readonly #folder: string;
  readonly #mostBytes: number;
  readonly #mostAgeMs: number;
  readonly #fileEvents: number;
  #filling: { readonly free: string; readonly events: number } | undefined;

  /** `url`: the collector's; each has a folder of its own in `folder`, so that no other gets what was told to one. */
  constructor(folder: string, url: string, limits: FileSpoolLimits = {}) {
    this.#folder = join(folder, digest(url.replace(/\/+$/, "")).slice(0, 12));
    this.#mostBytes = limits.mostBytes ?? 32 << 20;
    this.#mostAgeMs = limits.mostAgeMs ?? 7 * 86_400_000;
    this.#fileEvents = limits.fileEvents ?? 100;
  }

  async add(lines: readonly string[], lost: Lost): Promise<void> {
    await mkdir(this.#folder, { recursive: true, mode: 0o700 });
    await this.#makeRoom(Buffer.byteLength(contentOf(lines)), lost);
    const { free, events } = this.#filling ?? { free: "", events: Infinity };
    this.#filling = undefined;
    if (events + lines.length <= this.#fileEvents) {
      const taken = await take(free);
      if (taken !== undefined) {
        await append(taken, lines, free);
        this.#filling = { free, events: events + lines.length };
        return;
      }
    }
    const fresh = this.#newFile();
    await append(takenName(fresh), lines, fresh);
    this.#filling = { free: fresh, events: lines.length };
  }

  addNow(lines: readonly string[]): boolean {
    try {
      fs.mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
      const free = this.#newFile();
      const taken = takenName(free);
      fs.writeFileSync(taken, contentOf(lines), { mode: 0o600, flush: true });
      fs.renameSync(taken, free);
      return true;
    } catch {
      return false;
    }
  }

  async claim(lost: Lost): Promise<Claim | undefined> {
    for (const free of await this.#freeFiles()) {
      const taken = await take(free);
      if (taken === undefined) continue;
      if (this.#filling?.free === free) this.#filling = undefined;
      const { lines, damaged } = await linesOf(taken);
      lost("damaged", damaged);
      if (lines.length > 0 && ageMs(free) <= this.#mostAgeMs) {
        return { lines, settle: (undone) => settle(taken, free, lines, undone) };
      }
      lost("too_old", lines.length);
      await rm(taken, { force: true });
    }
    return undefined;
  }

  #newFile(): string {
    const name = `${String(Date.now() * 1_000).padStart(17, "0")}-${process.pid}-${files++}${ENDING}`;
    return join(this.#folder, name);
  }

  async #makeRoom(moreBytes: number, lost: Lost): Promise<void> {
    let held = moreBytes;
    for (const name of await readdir(this.#folder)) held += await sizeOf(join(this.#folder, name));
    if (held <= this.#mostBytes) return;
    for (const free of await this.#freeFiles()) {
      if (held <= this.#mostBytes) return;
      const taken = await take(free);
      if (taken === undefined) continue;
      held -= await sizeOf(taken);
      lost("spool_full", (await linesOf(taken)).lines.length);
      await rm(taken, { force: true });
    }
  }

  /** Oldest first; files of processes that are gone are free. */
  async #freeFiles(): Promise<string[]> {
    const free = new Set<string>();
    for (const name of await readdir(this.#folder).catch(() => [] as string[])) {
      const [base = "", ...holder] = name.split("~");
      if (!base.endsWith(ENDING) || (holder.length > 0 && isAlive(holder))) continue;
      try {
        if (holder.length > 0) await rename(join(this.#folder, name), join(this.#folder, base));
        free.add(base);
      } catch {
        // another process was quicker
      }
    }
    return [...free].sort().map((name) => join(this.#folder, name));
  }
}

function digest(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

function contentOf(lines: readonly string[]): string {
  return lines.map((line) => `${line}\n`).join("");
}

function takenName(free: string): string {
  return `${free}~${HOST}~${process.pid}~${Date.now()}`;
}

/** Only one of several processes succeeds in renaming a file. */
async function take(free: string): Promise<string | undefined> {
  const taken = takenName(free);
  try {
    await rename(free, taken);
    return taken;
  } catch {
    return undefined;
  }
}

function isAlive([host, pid, takenMs]: readonly string[]): boolean {
  const since = Number(takenMs);
  if (!(Date.now() - since <= ABANDONED_MS)) return false;
  if (host !== HOST) return true;
  if (Number(pid) === process.pid) return since >= STARTED_MS - 1; // else an earlier process with our number
  try {
    return process.kill(Number(pid), 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== "ESRCH";
  }
}

function ageMs(free: string): number {
  const microseconds = Number(/(\d+)-[^/\\]*$/.exec(free)?.[1]?.slice(0, 17));
  return Number.isNaN(microseconds) ? 0 : Date.now() - microseconds / 1_000;
}

async function sizeOf(file: string): Promise<number> {
  return stat(file).then(
    ({ size }) => size,
    () => 0,
  );
}

/** All or nothing: what a full disk cut short is taken back. Free afterwards, whatever happens. */
async function append(taken: string, lines: readonly string[], free: string): Promise<void> {
  const file = await open(taken, "a", 0o600);
  try {
    const before = (await file.stat()).size;
    try {
      await file.appendFile(contentOf(lines));
      await file.sync();
    } catch (error) {
      await file.truncate(before);
      throw error;
    }
  } finally {
    await file.close();
    await rename(taken, free);
  }
}

async function settle(taken: string, free: string, lines: readonly string[], undone: readonly string[]): Promise<void> {
  if (undone.length === 0) return rm(taken, { force: true });
  if (undone.length < lines.length) {
    const rest = `${free}.rest`;
    await rm(rest, { force: true });
    await append(rest, undone, taken);
  }
  await rename(taken, free);
}

/** Whole lines that are JSON, and how many are not: a kill may have cut one short. */
async function linesOf(file: string): Promise<{ lines: string[]; damaged: number }> {
  const written = (await readFile(file, "utf8")).split("\n");
  const torn = written.pop();
  const lines = written.filter((line) => line !== "" && isJson(line));
  return { lines, damaged: written.filter((line) => line !== "").length - lines.length + (torn ? 1 : 0) };
}

function isJson(line: string): boolean {
  try {
    JSON.parse(line);
    return true;
  } catch {
    return false;
  }
}
