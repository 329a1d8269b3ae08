/** One request to the collector. A collector that cannot be reached is a verdict like any other; nothing throws. */

import { judge, type Verdict } from "./answer.js";

/** An `sk_...` of scope producer, or a function that gives the current one. */
export type Key = string | (() => string | undefined | PromiseLike<string | undefined>);

const COMPRESS_FROM = 1_024;

export class Wire {
  readonly #url: string;
  readonly #key: Key | undefined;
  #compresses = typeof CompressionStream === "function";

  constructor(url: string, key: Key | undefined) {
    const parsed = new URL(url); // throws a TypeError that says so
    if (parsed.protocol !== "http:" && parsed.protocol !== "https:") throw new TypeError(`url: expected http(s)://host[:port], got ${url}`);
    this.#url = `${url.replace(/\/+$/, "")}/v1/events`;
    this.#key = key;
  }

  async send(lines: readonly string[], withinMs: number): Promise<Verdict> {
    let verdict = await this.#post(lines, withinMs);
    if (verdict.then === "plain" && this.#compresses) {
      this.#compresses = false;
      verdict = await this.#post(lines, withinMs);
    }
    return verdict.then === "plain" ? { then: "hopeless", fault: verdict.fault } : verdict;
  }

  /** While a page goes away: the browser sends it on its own, at most 64 KB, and nobody hears the answer. */
  sendAndForget(lines: readonly string[]): void {
    if (typeof this.#key === "function") return;
    fetch(this.#url, { method: "POST", headers: this.#headers(this.#key), body: bodyOf(lines), keepalive: true }).catch(() => undefined);
  }

  async #post(lines: readonly string[], withinMs: number): Promise<Verdict> {
    try {
      const headers = this.#headers(typeof this.#key === "function" ? await this.#key() : this.#key);
      let body: string | ArrayBuffer = bodyOf(lines);
      if (this.#compresses && body.length >= COMPRESS_FROM) {
        body = await gzip(body);
        headers["content-encoding"] = "gzip";
      }
      const signal = AbortSignal.timeout(Math.max(1, Math.ceil(withinMs)));
      const answer = await fetch(this.#url, { method: "POST", headers, body, signal, redirect: "manual" });
      return judge(answer.status, answer.headers.get("retry-after"), await answer.text(), lines.length);
    } catch (error) {
      const cause = error instanceof Error && error.cause instanceof Error ? `: ${error.cause.message}` : "";
      return { then: "again", fault: `${String(error)}${cause}`.slice(0, 200) };
    }
  }

  #headers(key: string | undefined): Record<string, string> {
    const headers: Record<string, string> = { "content-type": "application/cloudevents-batch+json" };
    if (key) headers["authorization"] = `Bearer ${key}`;
    return headers;
  }
}

function bodyOf(lines: readonly string[]): string {
  return `[${lines.join(",")}]`;
}

function gzip(text: string): Promise<ArrayBuffer> {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}
