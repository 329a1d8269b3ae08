// Builds elements and pictures. Data becomes text nodes and attributes only, never markup.

const SVG = "http://www.w3.org/2000/svg";

export function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function shape(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== null && child !== undefined).map((child) => (child instanceof Node ? child : String(child))));
  return node;
}

export function table(caption, heads, rows) {
  const head = element("tr", {}, ...heads.map((h) => element("th", { scope: "col", class: h.number ? "number" : null }, h.name)));
  const body = rows.map((cells) =>
    element("tr", {}, ...cells.map((cell, i) =>
      i === 0
        ? element("th", { scope: "row" }, cell)
        : element("td", { class: heads[i].number ? "number" : heads[i].kind ?? null }, ...[cell].flat()))));
  const drawn = element("table", {}, element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, ...body));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, drawn);
}

export function tag(kind, words = kind) {
  return element("span", { class: "tag", "data-kind": kind }, words.replaceAll("_", " "));
}

export const percent = (x, digits = 1) => (x === null || x === undefined ? "–" : `${(100 * x).toFixed(digits)} %`);
export const signed = (x, digits = 3) => (x === null || x === undefined ? "–" : `${x < 0 ? "−" : x > 0 ? "+" : ""}${Math.abs(x).toFixed(digits)}`);
export const whole = (x) => x.toLocaleString("en").replaceAll(",", "\u202f");
export const time = (iso) => new Date(iso).toLocaleTimeString("en-GB");

// The ramp: one column per place a candidate passes, as high as its share (square root, so that 1 % is seen).
export function ramp(rollout) {
  const places = [{ name: "bench", share: 0 }, ...rollout.steps.map((s) => ({ name: percent(s.share, s.share < 0.01 ? 1 : 0), share: s.share })), { name: "live", share: 1 }];
  const at = rollout.candidate === null ? -1 : rollout.step === null ? 0 : rollout.step + 1;
  const step = 340 / places.length;
  const columns = places.flatMap((place, i) => {
    const height = 8 + 92 * Math.sqrt(place.share);
    const box = { x: i * step + 4, y: 120 - height, width: step - 8, height, rx: 4 };
    const plan = rollout.steps[i - 1];
    const progress = i === at && plan ? Math.min(1, rollout.requests / plan.min_requests) : i === at ? 1 : 0;
    return [
      shape("rect", { ...box, class: i < at ? "done" : "track" }),
      progress > 0 ? shape("rect", { ...box, y: 120 - height * progress, height: height * progress, class: "current" }) : null,
      shape("text", { x: i * step + step / 2, y: 138, "text-anchor": "middle", class: i === at ? "strong" : null }, place.name),
    ];
  }).filter(Boolean);
  const words = rollout.candidate === null
    ? "No candidate is on the ramp."
    : `${rollout.candidate} is at ${places[at].name}, place ${at + 1} of ${places.length}.`;
  return shape("svg", { viewBox: "0 0 340 144", role: "img", "aria-label": words }, ...columns);
}

// A figure with its interval around zero.
export function whisker(gate) {
  const known = [gate.low, gate.value, gate.high].filter((x) => x !== null);
  if (known.length < 3) return element("span", { class: "quiet" }, "–");
  const reach = Math.max(...known.map(Math.abs), 1e-9) * 1.1;
  const left = Math.min(...known) < 0 ? -reach : 0;
  const x = (v) => 4 + (104 * (v - left)) / (reach - left);
  return shape("svg", { viewBox: "0 0 112 20", class: "glyph", "aria-hidden": "true" },
    shape("line", { x1: x(0), x2: x(0), y1: 1, y2: 19, class: "zero" }),
    shape("line", { x1: x(gate.low), x2: x(gate.high), y1: 10, y2: 10, class: `whisker ${gate.verdict}` }),
    shape("circle", { cx: x(gate.value), cy: 10, r: 3.5, class: "dot" }));
}

// Drawn at the width it is shown at, so that its words are as large on a phone as on a desk.
export function chart(series, measure, colour, width) {
  const right = width - 8;
  const points = series.points.filter((p) => p[measure] !== null);
  const times = series.points.map((p) => Date.parse(p.at));
  const [first, last] = [Math.min(...times), Math.max(...times)];
  const values = points.map((p) => p[measure]);
  const [low, high] = [Math.min(0, ...values), Math.max(0.02, ...values)];
  const x = (t) => 44 + ((right - 44) * (t - first)) / Math.max(1, last - first);
  const y = (v) => 190 - (176 * (v - low)) / (high - low);
  const say = measure === "reward" ? (v) => signed(v, 2) : (v) => percent(v, 0);
  const lines = [...new Set([low, (low + high) / 2, high, 0])].flatMap((v) => [
    shape("line", { x1: 44, x2: right, y1: y(v), y2: y(v), class: v === 0 ? "zero" : "axis" }),
    shape("text", { x: 38, y: y(v) + 4, "text-anchor": "end" }, v === 0 ? "0" : say(v)),
  ]);
  const versions = [...new Set(points.map((p) => p.version))].sort();
  const paths = versions.flatMap((version) => {
    const mine = points.filter((p) => p.version === version);
    const path = mine.map((p, i) => `${i ? "L" : "M"}${x(Date.parse(p.at)).toFixed(1)} ${y(p[measure]).toFixed(1)}`).join("");
    return [
      shape("path", { d: path, class: `line s${colour(version)}` }),
      ...mine.map((p) => shape("circle", { cx: x(Date.parse(p.at)), cy: y(p[measure]), r: 2.5, class: `f${colour(version)}` },
        shape("title", {}, `${version} ${time(p.at)}: ${say(p[measure])}, ${p.requests} requests`))),
    ];
  });
  const ends = [[first, "start"], [last, "end"]].map(([t, anchor]) => shape("text", { x: x(t), y: 208, "text-anchor": anchor }, time(new Date(t).toISOString())));
  const picture = shape("svg", { viewBox: `0 0 ${width} 212`, role: "img", "aria-label": `${measure.replace("_", " ")} of each version over time; the versions table has the figures` }, ...lines, ...paths, ...ends);
  return [picture, key(versions.map((v) => [v, `f${colour(v)}`]))];
}

export function key(entries) {
  return element("ul", { class: "key" }, ...entries.map(([words, mark]) =>
    element("li", {}, shape("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, shape("rect", { width: 10, height: 10, rx: 2, class: mark })), words)));
}

export function bar(parts) {
  const total = parts.reduce((sum, part) => sum + part.count, 0);
  let x = 0;
  const pieces = parts.filter((p) => p.count > 0).map((p) => {
    const width = Math.max(1.5, (700 * p.count) / total);
    const piece = shape("rect", { x: Math.min(x, 698.5), y: 0, width, height: 16, class: p.mark }, shape("title", {}, `${p.name}: ${p.count}`));
    x += width;
    return piece;
  });
  return shape("svg", { viewBox: "0 0 700 16", role: "img", "aria-label": parts.map((p) => `${p.name} ${p.count}`).join(", ") }, ...pieces);
}
