/**
 * Gathers what was told into batches, sends them, and keeps what could not be sent.
 *
 * What is told while the collector is there goes out at once; while it is away everything goes to the spool and one batch at a time
 * asks whether it is back, less and less often and never before the collector said.
 */

import { LONGEST_WAIT_MS, type Fate, type Verdict } from "./answer.js";
import type { Limits } from "./limits.js";
import { MemorySpool, type Claim, type Spool } from "./spool.js";
import type { Tally } from "./tally.js";
import type { Wire } from "./wire.js";

/** An event that the collector did not take, and why. Sending it again would not help. */
export interface Refused {
  readonly event: Readonly<Record<string, unknown>>;
  readonly code: number;
  readonly reason: string;
  readonly detail: string;
}

/** Requests that are denied, or that the collector fails on, before their events are dropped. */
export const TRIES = 3;
const FIRST_WAIT_MS = 250;
/** How often an idle client looks for what other programs left in the spool. */
const LOOK_MS = 30_000;
/** Browsers send no more than 64 KB for a page that goes away. */
const FAREWELL_CHARACTERS = 60_000;

export class Courier {
  readonly #memory: MemorySpool;
  readonly #lost = (reason: string, events: number): void => {
    this.#tally.recovered += events;
    this.#tally.drop(reason, events);
  };
  readonly #tries = new Map<string, number>();
  #queue: string[] = [];
  #inHand: readonly string[] = [];
  #characters = 0;
  #put = 0;
  #out = 0;
  #firstAt = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #timerAt = Infinity;
  #running: Promise<void> | undefined;
  #hurry = 0;
  #deadline = Infinity;
  #failures = 0;
  #notBefore = 0;
  #lookAt = 0;

  constructor(
    readonly wire: Wire,
    readonly spool: Spool | undefined,
    readonly limits: Limits,
    readonly tally: Tally,
    readonly onRefused: ((refused: Refused) => unknown) | undefined,
  ) {
    this.#memory = new MemorySpool(limits.queueBytes);
  }

  get #tally(): Tally {
    return this.tally;
  }

  get queued(): number {
    return this.#queue.length + this.#inHand.length;
  }

  /** Answers whether there was room. */
  take(line: string): boolean {
    if (this.queued >= this.limits.queueEvents || this.#characters + line.length > this.limits.queueBytes) return false;
    if (this.#queue.push(line) === 1) this.#firstAt = performance.now();
    this.#characters += line.length;
    this.#put += 1;
    this.#schedule();
    return true;
  }

  /** True once everything told so far was sent; false when time is up. */
  async flush(withinMs: number): Promise<boolean> {
    const end = performance.now() + withinMs;
    const target = this.#put;
    this.#hurry += 1;
    this.#lookAt = 0;
    try {
      for (;;) {
        await within(this.#run(), end - performance.now());
        const now = performance.now();
        if (this.#out >= target && this.#lookAt > now) return true;
        if (now >= end) return false;
        await sleep(Math.min(end - now, Math.max(5, this.#notBefore - now)));
      }
    } finally {
      this.#hurry -= 1;
    }
  }

  /** Send what would be lost with the program, within a time; the rest goes to the spool. */
  async end(withinMs: number): Promise<boolean> {
    this.#deadline = performance.now() + withinMs;
    this.#hurry += 1;
    await within(this.#run(), withinMs);
    this.#hurry -= 1;
    await this.#keep(this.#takeAll());
    const sent = this.tally.spooled <= this.tally.recovered;
    this.#lost("exit", this.#memory.events);
    clearTimeout(this.#timer);
    return sent;
  }

  /** The event loop has nothing else to do: as `end`, but the client may be used again. */
  async pause(): Promise<void> {
    if (this.#queue.length === 0 || this.#running !== undefined) return;
    this.#deadline = performance.now() + this.limits.exitMs;
    this.#hurry += 1;
    await this.#run();
    this.#hurry -= 1;
    this.#deadline = Infinity;
  }

  /** The program ends now, and nothing can be waited for. */
  endNow(): void {
    const lines = this.#takeAll();
    if (lines.length === 0) return;
    if (this.spool?.addNow(lines)) this.tally.spooled += lines.length;
    else this.tally.drop("exit", lines.length);
  }

  /** A page goes away, perhaps to come back: a copy of what waits is left to the browser. */
  farewell(): void {
    const lines: string[] = [];
    let characters = 0;
    for (const line of [...this.#inHand, ...this.#queue]) {
      characters += line.length + 1;
      if (characters > FAREWELL_CHARACTERS) break;
      lines.push(line);
    }
    if (lines.length > 0) this.wire.sendAndForget(lines);
  }

  #takeAll(): string[] {
    const lines = [...this.#inHand, ...this.#queue];
    this.#inHand = [];
    this.#queue = [];
    this.#characters = 0;
    this.#out = this.#put;
    return lines;
  }

  #schedule(): void {
    if (this.#running !== undefined) return;
    let at = Math.max(this.#lookAt, this.#notBefore);
    if (this.#queue.length >= this.limits.batchEvents || (this.#hurry > 0 && this.#queue.length > 0)) at = 0;
    else if (this.#queue.length > 0) at = Math.min(at, this.#firstAt + this.limits.lingerMs);
    if (this.#timer !== undefined && this.#timerAt <= at) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (at === Infinity || performance.now() > this.#deadline) return;
    this.#timerAt = at;
    this.#timer = setTimeout(() => void this.#run(), Math.max(0, Math.ceil(at - performance.now())));
    (this.#timer as { unref?: () => void }).unref?.();
  }

  #run(): Promise<void> {
    this.#running ??= this.#work().finally(() => {
      this.#running = undefined;
      clearTimeout(this.#timer);
      this.#timer = undefined;
      this.#schedule();
    });
    return this.#running;
  }

  async #work(): Promise<void> {
    await Promise.resolve();
    for (;;) {
      const now = performance.now();
      const full = this.#queue.length >= this.limits.batchEvents;
      const due = full || (this.#queue.length > 0 && (this.#hurry > 0 || now >= this.#firstAt + this.limits.lingerMs - 1));
      const look = this.#maySend() && now >= this.#lookAt;
      if (!due && !look) return;
      if (due) await this.#forward();
      if (look && this.#maySend()) await this.#recover();
    }
  }

  async #forward(): Promise<void> {
    const lines = this.#queue.splice(0, this.limits.batchEvents);
    this.#inHand = lines;
    this.#firstAt = performance.now();
    const undone = await this.#send(lines);
    if (this.#inHand !== lines) return; // the end of the program has saved them meanwhile
    await this.#keep(undone);
    this.#inHand = [];
    this.#out += lines.length;
    for (const line of lines) this.#characters -= line.length;
  }

  async #keep(lines: readonly string[]): Promise<void> {
    if (lines.length === 0) return;
    this.#lookAt = 0;
    this.tally.spooled += lines.length;
    try {
      await (this.spool ?? this.#memory).add(lines, this.#lost);
    } catch (error) {
      this.tally.lastFault = `the spool cannot be written: ${String(error)}`;
      await this.#memory.add(lines, this.#lost);
    }
  }

  async #recover(): Promise<void> {
    let claim: Claim | undefined;
    try {
      const ending = this.#deadline < Infinity;
      claim = ending ? undefined : await this.spool?.claim(this.#lost);
      claim ??= await this.#memory.claim();
    } catch (error) {
      this.tally.lastFault = `the spool cannot be read: ${String(error)}`;
    }
    if (claim === undefined) {
      this.#lookAt = this.spool === undefined ? Infinity : performance.now() + LOOK_MS;
      return;
    }
    this.#lookAt = 0;
    const undone = await this.#send(claim.lines);
    this.tally.recovered += claim.lines.length - undone.length;
    try {
      await claim.settle(undone);
    } catch (error) {
      this.tally.lastFault = `the spool cannot be written: ${String(error)}`;
      await this.#memory.add(undone, this.#lost);
    }
  }

  #withinMs(): number {
    return Math.min(this.limits.requestMs, this.#deadline - performance.now());
  }

  #maySend(): boolean {
    return performance.now() >= this.#notBefore && this.#withinMs() > 20;
  }

  /** Answers the lines that are still to be sent. */
  async #send(lines: readonly string[]): Promise<readonly string[]> {
    const undone: string[] = [];
    const parts = [lines];
    for (let part = parts.shift(); part !== undefined; part = parts.shift()) {
      if (!this.#maySend()) {
        undone.push(...part);
        continue;
      }
      const verdict = await this.wire.send(part, this.#withinMs());
      this.tally.requests += 1;
      this.tally.retries += verdict.then === "settled" ? 0 : 1;
      this.tally.lastFault = verdict.then === "settled" ? undefined : verdict.fault;
      if (verdict.then === "settled") {
        this.#failures = 0;
        this.#tries.delete(part[0]!);
        this.#settle(part, verdict.fates ?? []);
      } else if (verdict.then === "hopeless") {
        this.tally.drop(verdict.fault.toLowerCase().replace(" ", "_"), part.length);
      } else if (verdict.then === "split" || (verdict.then === "broken" && this.#tried(part) > TRIES)) {
        const half = Math.ceil(part.length / 2);
        if (part.length > 1) parts.unshift(part.slice(0, half), part.slice(half));
        else this.#giveUp(part, verdict.then === "split" ? "too_large" : "server_error");
      } else if (verdict.then === "denied" && this.#tried(part) >= TRIES) {
        this.#giveUp(part, "denied");
        this.#backOff(verdict);
      } else {
        this.#backOff(verdict);
        undone.push(...part);
      }
    }
    return undone;
  }

  #giveUp(part: readonly string[], reason: string): void {
    this.#tries.delete(part[0]!);
    this.tally.drop(reason, part.length);
  }

  #tried(part: readonly string[]): number {
    if (this.#tries.size > 1_000) this.#tries.clear();
    const tries = (this.#tries.get(part[0]!) ?? 0) + 1;
    this.#tries.set(part[0]!, tries);
    return tries;
  }

  /** Half of the wait is certain and half is chance, so that many clients do not come back together. */
  #backOff(verdict: Verdict): void {
    this.#failures += 1;
    const denied = verdict.then === "denied";
    const first = denied ? this.limits.deniedWaitMs : FIRST_WAIT_MS;
    const longest = denied ? LONGEST_WAIT_MS : this.limits.waitMs;
    let waitMs = Math.min(longest, first * 2 ** Math.min(this.#failures - 1, 20)) * (0.5 + Math.random() / 2);
    if (verdict.waitMs !== undefined) {
      waitMs = Math.max(waitMs, verdict.waitMs + Math.random() * Math.min(5_000, 100 + verdict.waitMs / 4));
    }
    this.#notBefore = performance.now() + waitMs;
  }

  #settle(lines: readonly string[], fates: readonly Fate[]): void {
    fates.forEach((fate, index) => {
      if (fate.taken) this.tally.taken += 1;
      else if (fate.reason === "no_consent") this.tally.withheld += 1;
      else {
        this.tally.refused += 1;
        this.#report(lines[index]!, fate);
      }
    });
  }

  #report(line: string, { code, reason, detail }: Fate): void {
    try {
      const heard = this.onRefused?.({ event: JSON.parse(line) as Record<string, unknown>, code, reason, detail });
      if (heard instanceof Promise) heard.catch(() => undefined);
    } catch {
      // the host's own mistake is not ours to spread
    }
  }
}

/** Keeps the program alive meanwhile: somebody waits. */
function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.max(0, ms)));
}

async function within(work: Promise<void>, ms: number): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, Math.max(0, ms))));
  await Promise.race([work, late]);
  clearTimeout(timer);
}
