/** How much a client may use. Milliseconds end in `Ms`, bytes in `Bytes`, events in `Events`. */

export interface Limits {
  /** Events of one request, and of one file in the spool. */
  readonly batchEvents: number;
  /** An event waits at most this long for others to travel with. */
  readonly lingerMs: number;
  /** Events in memory; what comes on top is dropped as `queue_full`. */
  readonly queueEvents: number;
  readonly queueBytes: number;
  /** The collector's own limit for one event; what is larger is dropped as `too_large` before it is sent. */
  readonly eventBytes: number;
  readonly requestMs: number;
  /** How long `close` may take. */
  readonly exitMs: number;
  /** The longest wait between two tries, unless the collector asks for a longer one. */
  readonly waitMs: number;
  /** The first wait after a key was turned down; doubles, up to an hour. */
  readonly deniedWaitMs: number;
}

type Range = readonly [usual: number, low: number, high: number];

const RANGES: { readonly [name in keyof Limits]: Range } = {
  batchEvents: [100, 1, 1_000],
  lingerMs: [1_000, 0, 60_000],
  queueEvents: [10_000, 1, 1_000_000],
  queueBytes: [8 << 20, 1_024, 1 << 30],
  eventBytes: [65_536, 256, 1 << 20],
  requestMs: [10_000, 100, 120_000],
  exitMs: [2_000, 0, 60_000],
  waitMs: [60_000, 50, 3_600_000],
  deniedWaitMs: [60_000, 50, 3_600_000],
};

/** Throws a RangeError that names the knob. */
export function limitsOf(given: Partial<Limits>): Limits {
  const names = Object.keys(RANGES) as (keyof Limits)[];
  return Object.fromEntries(
    names.map((name) => {
      const [usual, low, high] = RANGES[name];
      const value = given[name] ?? usual;
      if (!(value >= low && value <= high)) throw new RangeError(`${name}: expected ${low} to ${high}, got ${value}`);
      return [name, value];
    }),
  ) as unknown as Limits;
}
