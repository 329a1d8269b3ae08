/** How much of an accepted text is still there. Pure: it knows documents as strings and edits as offsets. */

/** When to look again, in seconds after acceptance. */
export const CHECKS_S = [15, 30, 120, 300, 600] as const;

export interface Edit {
  readonly rangeOffset: number;
  readonly rangeLength: number;
  readonly text: string;
}

/** A stretch of a document, [start, end), that moves with the edits around it and grows and shrinks with those inside it. */
export class Stretch {
  constructor(
    public start: number,
    public end: number,
  ) {}

  /** Answers whether the edit touched it. */
  apply({ rangeOffset, rangeLength, text }: Edit): boolean {
    const editEnd = rangeOffset + rangeLength;
    const moved = text.length - rangeLength;
    if (rangeOffset >= this.end) return false;
    if (editEnd <= this.start) {
      this.start += moved;
      this.end += moved;
      return false;
    }
    const cutHead = rangeOffset < this.start;
    this.end = editEnd <= this.end ? this.end + moved : rangeOffset;
    if (cutHead) this.start = Math.min(this.end, rangeOffset + text.length);
    return true;
  }
}

const SMALL = 2_000;

/** The share of the accepted characters that `now` still has, in their order: 1 untouched, 0 all gone. Blanks do not count. */
export function survivingShare(accepted: string, now: string): number {
  const was = accepted.replace(/\s+/g, "");
  const is = now.replace(/\s+/g, "");
  if (was === "" || is.includes(was)) return 1;
  if (was.length <= SMALL && is.length <= SMALL) return common([...was], [...is], () => 1) / [...was].length;
  const lines = (text: string): string[] => text.split("\n").map((line) => line.replace(/\s+/g, ""));
  return Math.min(1, common(lines(accepted), lines(now), (line) => line.length) / was.length);
}

/** The weight of the longest common subsequence. */
function common(a: readonly string[], b: readonly string[], weight: (item: string) => number): number {
  let above = new Float64Array(b.length + 1);
  for (const item of a) {
    const row = new Float64Array(b.length + 1);
    for (let j = 1; j <= b.length; j++) {
      row[j] = item === b[j - 1] ? above[j - 1]! + weight(item) : Math.max(above[j]!, row[j - 1]!);
    }
    above = row;
  }
  return above[b.length]!;
}
