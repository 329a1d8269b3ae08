/** The ends of a program, in Node and in a browser: whatever clients are open save what they have. One listener for all. */

import type { Courier } from "./courier.js";

const open = new Set<Courier>();
let listening = false;

interface Host {
  readonly process?: { on?: (event: string, listener: () => void) => unknown };
  readonly addEventListener?: (event: string, listener: () => void) => void;
}

export function watch(courier: Courier): void {
  open.add(courier);
  if (listening) return;
  listening = true;
  const { process, addEventListener } = globalThis as Host;
  if (typeof process?.on === "function") {
    process.on("beforeExit", () => open.forEach((one) => void one.pause()));
    process.on("exit", () => open.forEach((one) => one.endNow()));
  } else {
    addEventListener?.("pagehide", () => open.forEach((one) => one.farewell()));
  }
}

export function unwatch(courier: Courier): void {
  open.delete(courier);
}
