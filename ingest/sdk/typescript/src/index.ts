export { Client, type Options } from "./client.js";
export type { Refused } from "./courier.js";
export { newId } from "./event.js";
export { Teller, type About, type Kind, type Kinds, type Target } from "./kinds.js";
export type { Limits } from "./limits.js";
export { MemorySpool, type Claim, type Lost, type Spool } from "./spool.js";
export type { Stats } from "./tally.js";
export type { Key } from "./wire.js";
