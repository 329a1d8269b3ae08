// Asks once a second and redraws the sections whose data changed, so that focus and selection stay where they are.

import { bar, chart, element, key, percent, ramp, signed, table, tag, time, whisker, whole } from "./draw.js";

const $ = (id) => document.getElementById(id);
const drawn = new Map();
let latest = null;

const colour = (version) => {
  const found = latest.versions.find((v) => v.version === version);
  return (found ? found.number : 0) % 6;
};

function put(id, data, build) {
  const slice = JSON.stringify(data ?? null);
  if (drawn.get(id) === slice) return;
  drawn.set(id, slice);
  $(id).replaceChildren(...[build(data)].flat());
}

const empty = (words) => element("p", { class: "empty" }, words);
const interval = (f, say) => (f === null ? "–" : [say(f.value), element("small", {}, f.low === null ? "" : `${say(f.low)} to ${say(f.high)}`)]);

function headline(o) {
  const live = o.versions.find((v) => v.state === "live")?.figures ?? null;
  const settled = o.accounting.joined + o.accounting.late;
  const box = (name, value, small) => element("div", {}, element("dt", {}, name), element("dd", {}, value, element("small", {}, small)));
  const range = (f, say) => (f && f.low !== null ? `${say(f.low)} to ${say(f.high)}` : "no figure yet");
  return [
    box("Requests", whole(o.requests), `${whole(settled)} events joined`),
    box("Accepted when shown", percent(live?.accept_rate?.value), range(live?.accept_rate, percent)),
    box("Reward per request", signed(live?.reward?.value), range(live?.reward, signed)),
    box("Silent", percent(live?.silent_share?.value), range(live?.silent_share, percent)),
    box("Accepted characters", live?.accepted_characters == null ? "–" : live.accepted_characters.toFixed(2), "per request"),
  ];
}

function rollout(r) {
  if (r === null) return empty("Nothing is routed yet. The first sealed version goes live by itself.");
  const plan = r.step === null ? null : r.steps[r.step];
  const where = r.candidate === null
    ? `${r.champion} serves everybody. The next sealed version starts here by itself.`
    : plan === null || plan === undefined ? `${r.candidate} waits for gateways and bench.`
    : `${whole(r.requests)} of ${whole(plan.min_requests)} rewarded requests, ${whole(r.subjects)} of ${whole(plan.min_subjects)} subjects; since ${time(r.since)}, decided by ${time(new Date(Date.parse(r.since) + 1000 * plan.max_seconds).toISOString())}.`;
  const left = element("div", {}, ramp(r), element("p", {}, where), element("p", { class: "quiet" }, `Last move: ${r.reason}`));
  const heads = [{ name: "Gate" }, { name: "Verdict" }, { name: "Interval" }, { name: "Because", kind: "why" }];
  const rows = r.gates.map((g) => [g.gate, tag(g.verdict), whisker(g), g.reason]);
  const gates = r.gates.length
    ? table(`Gates of ${r.gates_of}${r.candidate === null ? ", as they stood at the end" : ""}`, heads, rows)
    : empty("No gate has judged yet: gates judge a candidate on its bench and in each step.");
  return element("div", { class: "split" }, left, gates);
}

function versions(list) {
  if (!list.length) return empty("No version is sealed yet. Start the learner: it seals the base weights as the first one.");
  const heads = [{ name: "Version" }, { name: "State" }, { name: "Traffic", number: true }, { name: "Requests", number: true }, { name: "Accepted when shown", number: true }, { name: "Silent", number: true }, { name: "Reward per request", number: true }, { name: "Characters", number: true }, { name: "Because", kind: "why" }];
  return table("Newest first; intervals are 95 %, one look. Characters are accepted characters per request.", heads, list.map((v) => {
    const f = v.figures;
    return [v.version, tag(v.state), v.share ? percent(v.share, 0) : "–", f ? whole(f.requests) : "–", f ? interval(f.accept_rate, percent) : "–", f ? percent(f.silent_share?.value) : "–", f ? interval(f.reward, signed) : "–", f?.accepted_characters == null ? "–" : f.accepted_characters.toFixed(2), v.reason];
  }));
}

function series(s) {
  if (s.points.length < 2) return empty("A line appears once rewards arrive: an episode is rewarded when it closes or falls quiet.");
  return chart(s, document.querySelector("input[name=measure]:checked").value, colour, Math.max(280, $("series").clientWidth));
}

function parts(list) {
  const seen = list.filter((v) => v.figures?.parts.length);
  if (!seen.length) return empty("No reward yet. Rewards follow from what people do: see the accounting below for events that arrived.");
  const names = [...new Set(seen.flatMap((v) => v.figures.parts.map((p) => p.name)))].sort();
  const weight = (name) => seen.flatMap((v) => v.figures.parts).find((p) => p.name === name).weight;
  const heads = [{ name: "Part" }, { name: "Weight", number: true }, ...seen.map((v) => ({ name: v.version, number: true }))];
  return table("Mean of each part over the episodes it speaks about. Weight 0 is measured and not paid.", heads, names.map((name) => [
    name, String(weight(name)),
    ...seen.map((v) => {
      const p = v.figures.parts.find((q) => q.name === name);
      return p ? [signed(p.mean), element("small", {}, `n ${whole(p.n)}`)] : "–";
    })]));
}

function learner(cycles) {
  if (!cycles.length) return empty("The learner has not started a cycle. It does when enough samples wait, or when its time has come.");
  const stats = [...new Set(cycles.flatMap((c) => Object.keys(c.stats)))].slice(0, 8);
  const heads = [{ name: "Started" }, { name: "State" }, { name: "Makes" }, { name: "Samples", number: true }, { name: "Seconds", number: true }, ...stats.map((s) => ({ name: s.replaceAll("_", " "), number: true })), { name: "Why no step", kind: "why" }];
  return table("Last cycles, newest first. A step that must not be taken is skipped, with its reason.", heads, cycles.map((c) => [
    time(c.started), tag(c.state === "sealed" ? "sealed-cycle" : c.state, c.state), c.version, whole(c.samples), c.ended ? ((Date.parse(c.ended) - Date.parse(c.started)) / 1000).toFixed(0) : "–",
    ...stats.map((s) => (c.stats[s] === undefined ? "–" : Number(c.stats[s].toPrecision(3)).toString())), c.reason ?? ""]));
}

function accounting(a) {
  const refused = a.refused.reduce((sum, r) => sum + r.count, 0);
  const total = a.joined + a.late + a.waiting + refused;
  if (!total && !a.counters.length) return empty("No event has arrived. Clients send what happened to an answer to the collector.");
  const fates = [
    { name: "joined", count: a.joined, mark: "done" }, { name: "late", count: a.late, mark: "late" },
    { name: "waiting", count: a.waiting, mark: "waiting" }, { name: "refused", count: refused, mark: "refused" }];
  const rows = [...fates.slice(0, 3).map((f) => [f.name, whole(f.count)]), ...a.refused.map((r) => [`refused: ${r.name}`, whole(r.count)]), ["all events", whole(total)], ...a.counters.map((c) => [`counted only: ${c.name}`, whole(c.count)])];
  return [
    total ? bar(fates) : empty("No event has arrived yet."),
    key(fates.map((f) => [`${f.name} ${whole(f.count)}`, f.mark])),
    table("Each event that somebody sent is exactly one of these.", [{ name: "What became of it" }, { name: "Events", number: true }], rows)];
}

function replicas(list) {
  if (!list.length) return empty("No gateway has said what it holds. Start serving.");
  return table("What each gateway says about the versions it holds.", [{ name: "Replica" }, { name: "Version" }, { name: "State" }, { name: "Load, ms", number: true }, { name: "Because", kind: "why" }],
    list.map((r) => [r.replica, r.version, tag(r.state), r.load_ms === null ? "–" : r.load_ms.toFixed(0), r.reason ?? ""]));
}

function audit(list) {
  if (!list.length) return empty("Nothing has moved yet. Each move is written here with who, why and on what evidence.");
  return table("Newest first.", [{ name: "When" }, { name: "Version" }, { name: "Move" }, { name: "Who" }, { name: "Why", kind: "why" }],
    list.map((a) => [time(a.at), a.version, `${(a.before ?? "new").replaceAll("_", " ")} → ${a.after.replaceAll("_", " ")}`, a.who, a.why]));
}

function show(o) {
  latest = o;
  if ($("now").textContent !== o.now) $("now").textContent = o.now;
  $("now").dataset.tone = o.tone;
  $("clock").textContent = `${o.policy}, reward ${o.spec}, as of ${time(o.at)}`;
  put("headline", { requests: o.requests, accounting: o.accounting, versions: o.versions }, () => headline(o));
  put("rollout", o.rollout, rollout);
  put("versions", o.versions, versions);
  put("series", o.series, series);
  put("parts", o.versions, parts);
  put("learner", o.cycles, learner);
  put("accounting", o.accounting, accounting);
  put("replicas", o.replicas, replicas);
  put("audit", o.audit, audit);
  if ($("chooser").hidden && o.policies.length > 1) {
    $("policy").replaceChildren(...o.policies.map((name) => element("option", {}, name)));
    $("policy").value = o.policy;
    $("chooser").hidden = false;
  }
}

async function poll() {
  const wanted = $("policy").value || new URLSearchParams(location.search).get("policy");
  try {
    const answer = await fetch(`/api/overview${wanted ? `?policy=${encodeURIComponent(wanted)}` : ""}`);
    if (!answer.ok) throw new Error(`the console answered ${answer.status}`);
    show(await answer.json());
  } catch (error) {
    $("clock").textContent = `no news: ${error.message}; trying again`;
  }
  setTimeout(poll, document.hidden ? 5000 : 1000);
}

function redraw() {
  drawn.delete("series");
  if (latest) put("series", latest.series, series);
}

$("measure").addEventListener("change", redraw);
addEventListener("resize", redraw);
$("policy").addEventListener("change", () => history.replaceState(null, "", `?policy=${encodeURIComponent($("policy").value)}`));
poll();
