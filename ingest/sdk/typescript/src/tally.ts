/**
 * What became of the events, counted. Every event that was told is in exactly one place:
 * told = taken + refused + withheld + dropped + queued + (spooled - recovered), summed over the programs that share a spool.
 */

/** A moment's figures, in events (`requests` and `retries` in requests). */
export interface Stats {
  readonly told: number;
  readonly taken: number;
  /** The collector refused them one by one, with reasons; see `onRefused`. */
  readonly refused: number;
  /** Told without consent: the collector has counted them and kept nothing. */
  readonly withheld: number;
  /** By reason: queue_full, too_large, not_json, bad_call, closed, spool_full, too_old, denied, server_error, exit, ... */
  readonly dropped: Readonly<Record<string, number>>;
  /** In memory, in flight included. */
  readonly queued: number;
  /** Put into the spool by this client, ever. */
  readonly spooled: number;
  /** Taken out of the spool by this client, ever, whoever put them there. */
  readonly recovered: number;
  readonly requests: number;
  readonly retries: number;
  /** Why the last request failed; undefined after one that did not. */
  readonly lastFault: string | undefined;
}

export class Tally {
  told = 0;
  taken = 0;
  refused = 0;
  withheld = 0;
  spooled = 0;
  recovered = 0;
  requests = 0;
  retries = 0;
  lastFault: string | undefined = undefined;
  readonly #dropped = new Map<string, number>();

  drop(reason: string, events = 1): void {
    if (events > 0) this.#dropped.set(reason, (this.#dropped.get(reason) ?? 0) + events);
  }

  stats(queued: number): Stats {
    const { told, taken, refused, withheld, spooled, recovered, requests, retries, lastFault } = this;
    const dropped = Object.fromEntries(this.#dropped);
    return { told, taken, refused, withheld, dropped, queued, spooled, recovered, requests, retries, lastFault };
  }
}
