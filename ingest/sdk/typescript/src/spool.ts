/** Where events wait that could not be sent. `MemorySpool` is the default; `@slipstream-rl/events/node` has one on disk. */

/** Told of every event that a spool gives up, with the reason to count it by. */
export type Lost = (reason: string, events: number) => void;

/** Some events that are the caller's alone until it settles them. */
export interface Claim {
  readonly lines: readonly string[];
  /** `undone`: those that are still to be sent; they are free again. */
  settle(undone: readonly string[]): Promise<void>;
}

/** Anything that can keep lines. Bounded; the oldest go first, both to the collector and overboard. */
export interface Spool {
  add(lines: readonly string[], lost: Lost): Promise<void>;
  /** At the end of the program, when nothing can be waited for. Answers whether the lines are safe. */
  addNow(lines: readonly string[]): boolean;
  /** The oldest that nobody has claimed. */
  claim(lost: Lost): Promise<Claim | undefined>;
}

export class MemorySpool implements Spool {
  readonly #mostCharacters: number;
  #held: (readonly string[])[] = [];
  #characters = 0;

  constructor(mostCharacters = 4 << 20) {
    this.#mostCharacters = mostCharacters;
  }

  async add(lines: readonly string[], lost: Lost): Promise<void> {
    this.#held.push(lines);
    this.#characters += sizeOf(lines);
    while (this.#characters > this.#mostCharacters && this.#held.length > 1) lost("spool_full", this.#take()!.length);
  }

  addNow(): boolean {
    return false;
  }

  async claim(): Promise<Claim | undefined> {
    const lines = this.#take();
    if (lines === undefined) return undefined;
    const settle = async (undone: readonly string[]): Promise<void> => {
      if (undone.length === 0) return;
      this.#held.unshift(undone);
      this.#characters += sizeOf(undone);
    };
    return { lines, settle };
  }

  /** How many events would be lost with this program. */
  get events(): number {
    return this.#held.reduce((sum, lines) => sum + lines.length, 0);
  }

  #take(): readonly string[] | undefined {
    const lines = this.#held.shift();
    if (lines !== undefined) this.#characters -= sizeOf(lines);
    return lines;
  }
}

function sizeOf(lines: readonly string[]): number {
  return lines.reduce((sum, line) => sum + line.length, 0);
}
