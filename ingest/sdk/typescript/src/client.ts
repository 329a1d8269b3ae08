/** The client: only making one can throw. Telling never throws, never waits, and `stats` says what became of everything. */

import { Courier, type Refused } from "./courier.js";
import { unwatch, watch } from "./endings.js";
import { encode, NotJson } from "./event.js";
import { Teller, type About, type Kind, type Kinds, type Target } from "./kinds.js";
import { limitsOf, type Limits } from "./limits.js";
import type { Spool } from "./spool.js";
import { Tally, type Stats } from "./tally.js";
import { Wire, type Key } from "./wire.js";

export interface Options {
  /** The collector's address, without a path. */
  readonly url: string;
  /** The policy that gave the answers. */
  readonly policy: string;
  readonly key?: Key;
  /** Your program and its version, such as `/vscode/1.4`. */
  readonly source?: string;
  /** Whether this person agreed to be learned from; see also `client.consent`. Default: true. */
  readonly consent?: boolean;
  /** Where events wait that could not be sent; default: in memory. */
  readonly spool?: Spool;
  /** Called for each event that the collector refused. */
  readonly onRefused?: (refused: Refused) => unknown;
  readonly limits?: Partial<Limits>;
}

export class Client extends Teller {
  /** May be changed at any time; holds for what is told from then on. */
  consent: boolean;
  readonly #source: string;
  readonly #policy: string;
  readonly #limits: Limits;
  readonly #tally = new Tally();
  readonly #courier: Courier;
  #ended: Promise<boolean> | undefined;

  /** Throws a TypeError or RangeError for an address or a limit that makes no sense. */
  constructor(options: Options) {
    super();
    this.consent = options.consent ?? true;
    this.#source = options.source ?? "/typescript";
    this.#policy = options.policy;
    this.#limits = limitsOf(options.limits ?? {});
    const wire = new Wire(options.url, options.key);
    this.#courier = new Courier(wire, options.spool, this.#limits, this.#tally, options.onRefused);
    watch(this.#courier);
  }

  override tell<K extends Kind>(kind: K, target: Target, data: Kinds[K], about: About = {}): string | undefined {
    this.#tally.told += 1;
    try {
      const sender = { source: this.#source, policy: this.#policy, consent: this.consent };
      const [id, line] = encode(kind, target, data, about, sender);
      if (this.#ended !== undefined) this.#tally.drop("closed");
      else if (isLongerThan(this.#limits.eventBytes, line)) this.#tally.drop("too_large");
      else if (!this.#courier.take(line)) this.#tally.drop("queue_full");
      else return id;
    } catch (error) {
      this.#tally.drop(error instanceof NotJson ? "not_json" : "bad_call");
    }
    return undefined;
  }

  get stats(): Stats {
    return this.#tally.stats(this.#courier.queued);
  }

  /** True once everything told so far was sent; false when some of it still waits after `withinMs`. */
  async flush(withinMs = 10_000): Promise<boolean> {
    return this.#ended ?? this.#courier.flush(withinMs);
  }

  /** Send what is in memory, at most `withinMs` (default: the limit `exitMs`); the rest goes to the spool. */
  close(withinMs = this.#limits.exitMs): Promise<boolean> {
    this.#ended ??= this.#courier.end(withinMs).finally(() => unwatch(this.#courier));
    return this.#ended;
  }

  /** For lists of disposables, which do not wait; where you can, return `close()` from your `deactivate`. */
  dispose(): void {
    void this.close();
  }
}

function isLongerThan(bytes: number, line: string): boolean {
  return line.length > bytes || (line.length * 3 > bytes && new TextEncoder().encode(line).length > bytes);
}
