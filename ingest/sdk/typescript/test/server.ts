/** A collector for the tests: real HTTP, answers as the test says, and remembers what it was sent. */

import { createServer, type IncomingHttpHeaders, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { gunzipSync } from "node:zlib";

export type Event = Record<string, any>;

export interface Answer {
  status: number;
  body?: unknown;
  headers?: Record<string, string>;
  afterMs?: number;
}

export interface Request {
  headers: IncomingHttpHeaders;
  events: Event[];
  at: number;
  answer: Answer;
}

export function allTaken(events: Event[]): Answer {
  return { status: 202, body: { results: events.map((event) => ({ id: event["id"], status: "taken" })) } };
}

export class Collector {
  readonly requests: Request[] = [];
  answers: (events: Event[]) => Answer = allTaken;
  readonly #server: Server;

  private constructor() {
    this.#server = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on("data", (chunk: Buffer) => chunks.push(chunk));
      request.on("end", () => {
        let body = Buffer.concat(chunks);
        if (request.headers["content-encoding"] === "gzip") body = gunzipSync(body);
        const events = JSON.parse(body.toString()) as Event[];
        const answer = this.answers(events);
        this.requests.push({ headers: request.headers, events, at: performance.now(), answer });
        setTimeout(() => {
          response.writeHead(answer.status, answer.headers);
          response.end(typeof answer.body === "string" ? answer.body : JSON.stringify(answer.body ?? {}));
        }, answer.afterMs ?? 0);
      });
    });
  }

  static async start(): Promise<Collector> {
    const collector = new Collector();
    await new Promise<void>((resolve) => collector.#server.listen(0, "127.0.0.1", resolve));
    return collector;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  get events(): Event[] {
    return this.requests.flatMap((request) => request.events);
  }

  /** Of the events that were taken, in the order in which they came, repeats included. */
  get ids(): string[] {
    return this.requests
      .flatMap((request) => (request.answer.body as { results?: { id: string; status: string }[] } | undefined)?.results ?? [])
      .filter((result) => result.status === "taken")
      .map((result) => result.id);
  }

  stop(): Promise<void> {
    this.#server.closeAllConnections();
    return new Promise((resolve) => this.#server.close(() => resolve()));
  }
}
