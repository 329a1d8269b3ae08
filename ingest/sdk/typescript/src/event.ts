/** One event as it travels: a CloudEvents 1.0 object, encoded once and never touched again. */

import type { About, Target } from "./kinds.js";

const WITHHELD = "-withheld";

/** A value that JSON does not have: `JSON.stringify` would quietly make it null, or leave it out. */
export class NotJson extends Error {}

/** A UUID whose first 48 bits are the time (version 7), so that ids of a time lie together in an index. */
export function newId(): string {
  const random = crypto.getRandomValues(new Uint8Array(10));
  random[0] = (random[0]! & 0x0f) | 0x70;
  random[2] = (random[2]! & 0x3f) | 0x80;
  let text = Date.now().toString(16).padStart(12, "0");
  for (const byte of random) text += HEX[byte];
  return `${text.slice(0, 8)}-${text.slice(8, 12)}-${text.slice(12, 16)}-${text.slice(16, 20)}-${text.slice(20)}`;
}

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

export interface Sender {
  readonly source: string;
  readonly policy: string;
  readonly consent: boolean;
}

/** Throws on what cannot be told; the client makes a count of it. */
export function encode(kind: string, target: Target, data: object, about: About, sender: Sender): [id: string, line: string] {
  const turn = typeof target === "string" ? target : undefined;
  if (turn === undefined && typeof (target as { episode?: unknown } | null)?.episode !== "string") {
    throw new TypeError("an event names its turn or its episode");
  }
  const id = about.id ?? newId();
  const event: Record<string, unknown> = {
    specversion: "1.0",
    id,
    source: sender.source,
    type: `slipstream.${kind}`,
    policy: about.policy ?? sender.policy,
  };
  if (!(about.consent ?? sender.consent) || turn?.endsWith(WITHHELD)) {
    event["consent"] = false; // and nothing of when, where or what
    return [id, JSON.stringify(event)];
  }
  event["time"] = (about.at ?? new Date()).toISOString();
  if (turn !== undefined) event["turnid"] = turn;
  else event["episodeid"] = (target as { episode: string }).episode;
  for (const field in data) {
    check((data as Record<string, unknown>)[field], field);
    event["data"] = data;
  }
  return [id, JSON.stringify(event)];
}

function check(value: unknown, where: string, depth = 0): void {
  const strange = typeof value === "number" ? !Number.isFinite(value) : typeof value === "function" || typeof value === "bigint";
  if (strange || depth > 32) throw new NotJson(`${where} is not a value of JSON`);
  if (typeof value === "object" && value !== null) {
    for (const [name, inner] of Object.entries(value)) check(inner, `${where}.${name}`, depth + 1);
  }
}
