import assert from "node:assert/strict";
import { test } from "node:test";
import { Stretch, survivingShare, type Edit } from "../examples/survival.js";

function edited(text: string, { rangeOffset, rangeLength, text: put }: Edit): string {
  return text.slice(0, rangeOffset) + put + text.slice(rangeOffset + rangeLength);
}

test("the share of accepted characters that are still there", () => {
  assert.equal(survivingShare("return x", "return x"), 1);
  assert.equal(survivingShare("return x", "\treturn  x;\n"), 1);
  assert.equal(survivingShare("abcd", "abXd"), 0.75);
  assert.equal(survivingShare("abcd", ""), 0);
  assert.equal(survivingShare("abcd", "wxyz"), 0);
  assert.equal(survivingShare(" \n", ""), 1);
  const lines = Array.from({ length: 500 }, (_, n) => `line ${String(n).padStart(4, "0")}`);
  assert.equal(survivingShare(lines.join("\n"), lines.slice(0, 250).join("\n")), 0.5);
});

test("a stretch moves with the edits around it", () => {
  const cases: [Edit, touched: boolean, left: string][] = [
    [{ rangeOffset: 0, rangeLength: 0, text: "new " }, false, "MIDDLE"],
    [{ rangeOffset: 0, rangeLength: 5, text: "" }, false, "MIDDLE"],
    [{ rangeOffset: 12, rangeLength: 3, text: "x" }, false, "MIDDLE"],
    [{ rangeOffset: 13, rangeLength: 1, text: "" }, false, "MIDDLE"],
    [{ rangeOffset: 9, rangeLength: 1, text: "" }, true, "MIDLE"],
    [{ rangeOffset: 9, rangeLength: 0, text: "xx" }, true, "MIDxxDLE"],
    [{ rangeOffset: 6, rangeLength: 6, text: "" }, true, ""],
    [{ rangeOffset: 4, rangeLength: 4, text: "__" }, true, "DDLE"],
    [{ rangeOffset: 10, rangeLength: 4, text: "?" }, true, "MIDD"],
    [{ rangeOffset: 0, rangeLength: 18, text: "all new" }, true, ""],
  ];
  for (const [edit, touched, left] of cases) {
    const stretch = new Stretch(6, 12);
    assert.equal(stretch.apply(edit), touched, JSON.stringify(edit));
    assert.equal(edited("before" + "MIDDLE" + "_after", edit).slice(stretch.start, stretch.end), left, JSON.stringify(edit));
  }
});
