// Outcomes over time, reward per step, and the tally since the server started.

import { follow, h, icon, put, s } from "./dom.js";
import { horizontal, plot, tableOf, ticks, vertical } from "./plot.js";
import { now, store } from "./store.js";
import { FAMILIES, clock, number, plural, share, words } from "./words.js";

const RANGES = [
  { name: "1 h", minutes: 60, bucket: 1 },
  { name: "6 h", minutes: 360, bucket: 5 },
  { name: "24 h", minutes: 1440, bucket: 20 },
];
let range = RANGES[0];

/** Minutes added up to the buckets of the chosen range, the oldest first. */
function buckets() {
  const size = range.bucket;
  const last = Math.floor(now() / 60 / size);
  const found = Array.from({ length: range.minutes / size }, (_, index) => ({
    from: (last - range.minutes / size + 1 + index) * size * 60, graded: 0, limit: 0, fault: 0, aborted: 0, infra: 0, scored: 0, reward: 0,
  }));
  for (const [minute, counts] of store.minutes) {
    const bucket = found[found.length - 1 - (last - Math.floor(minute / size))];
    if (bucket) for (const key of Object.keys(counts)) bucket[key] += counts[key];
  }
  return found;
}

const total = (bucket) => FAMILIES.reduce((sum, { name }) => sum + bucket[name], 0);

/** Fills that differ in pattern, too: colour is never all that tells two kinds apart. */
export function patterns() {
  const pattern = (name, size, ...parts) =>
    s("pattern", { id: `fill-${name}`, class: `ink-${name}`, width: size, height: size, patternUnits: "userSpaceOnUse" },
      s("rect", { class: "ground", width: size, height: size }), ...parts);
  return s("svg", { class: "patterns", width: 0, height: 0, "aria-hidden": "true" }, s("defs", {},
    pattern("graded", 4),
    pattern("limit", 6, s("path", { class: "cut", d: "M-1 5L5 -1M2 8L8 2" })),
    pattern("fault", 6, s("circle", { class: "hole", cx: 3, cy: 3, r: 1.5 })),
    pattern("aborted", 4, s("path", { class: "cut", d: "M0 2h4" })),
    pattern("infra", 6, s("path", { class: "cut", d: "M0 0l6 6M6 0l-6 6" })),
  ));
}

function drawOutcomes(frame, found) {
  const y = vertical(frame, ticks(0, Math.max(...found.map(total), 3), true));
  const step = frame.innerWidth / found.length;
  found.forEach((bucket, index) => {
    const x = frame.left + index * step;
    if (frame.at === index) frame.svg.append(s("rect", { class: "cursor", x, y: frame.top, width: step, height: frame.innerHeight }));
    let below = 0;
    for (const { name } of FAMILIES) {
      if (!bucket[name]) continue;
      const [foot, head] = [y(below), y(below + bucket[name])];
      frame.svg.append(s("rect", { class: `bar-${name}`, fill: `url(#fill-${name})`, x: x + step * 0.1 + 0.5, y: head + 0.5, width: Math.max(step * 0.8 - 1, 1), height: Math.max(foot - head - 1.5, 0.5) }));
      below += bucket[name];
    }
  });
  const marks = found.map((bucket, index) => [frame.left + (index + 0.5) * step, bucket.from]);
  horizontal(frame, marks.filter(([, from]) => from % (range.bucket * 60 * 6) === 0).map(([x, from]) => [x, clock(from)]));
}

function readOutcomes(bucket) {
  const parts = FAMILIES.filter(({ name }) => bucket[name]).map(({ name, label }) => `${bucket[name]} ${label.toLowerCase()}`);
  const mean = bucket.scored ? `; mean reward ${(bucket.reward / bucket.scored).toFixed(2)}` : "";
  const until = clock(bucket.from + range.bucket * 60);
  return `${clock(bucket.from)}–${until}: ${parts.length ? parts.join(", ") + mean : "no trial ended"}`;
}

function rangeChoice(changed) {
  const choice = (one) =>
    h("label", {}, h("input", { type: "radio", name: "range", checked: one === range, onchange: () => { range = one; changed(); } }), h("span", {}, one.name));
  return h("fieldset", { class: "choice" }, h("legend", { class: "visually-hidden" }, "Time shown"), RANGES.map(choice));
}

export function outcomes() {
  const legend = h("ul", { class: "legend" });
  const chart = plot({
    label: "Outcomes over time", points: buckets, draw: drawOutcomes, read: readOutcomes,
    table: (found) => tableOf("Outcomes over time", ["From", ...FAMILIES.map(({ label }) => label), "Mean reward"],
      found.filter(total).map((one) => [clock(one.from), ...FAMILIES.map(({ name }) => String(one[name])), one.scored ? (one.reward / one.scored).toFixed(2) : "–"])),
  });

  function update() {
    chart.render();
    const found = buckets();
    follow(legend, FAMILIES, ({ name }) => name,
      ({ name, label }) => h("li", {}, s("svg", { width: 12, height: 12, "aria-hidden": "true" }, s("rect", { class: `bar-${name}`, fill: `url(#fill-${name})`, x: 0.5, y: 0.5, width: 11, height: 11 })), h("span", {}, label), h("b")),
      (item, { name }) => put(item.lastChild, String(found.reduce((sum, bucket) => sum + bucket[name], 0))));
  }

  const element = h("section", { class: "panel chart" },
    h("header", {}, h("h2", {}, "Outcomes over time"), h("span", { class: "spacer" }), rangeChoice(update)), legend, chart.element);
  return { element, update };
}

const isTimed = () => store.steps.length === 0;

/** Steps of the trainer's records; without records, the minutes in which something was scored. */
function rewards() {
  if (!isTimed()) return store.steps.filter((step) => step.mean !== null);
  return buckets().filter((bucket) => bucket.scored).map((bucket) => ({ from: bucket.from, mean: bucket.reward / bucket.scored, error: 0, kept: bucket.scored, evaluation: false }));
}

function drawRewards(frame, found) {
  const lows = found.map((one) => one.mean - one.error);
  const highs = found.map((one) => one.mean + one.error);
  const lines = ticks(Math.min(...lows, 0), Math.max(...highs, 1));
  const y = vertical(frame, lines, (line) => number(line));
  const step = frame.innerWidth / Math.max(found.length, 1);
  const x = (index) => frame.left + (index + 0.5) * step;
  const trained = found.map((one, index) => ({ ...one, x: x(index), at: index })).filter((one) => !one.evaluation);
  if (frame.at !== null && found[frame.at]) frame.svg.append(s("line", { class: "hair", x1: x(frame.at), x2: x(frame.at), y1: frame.top, y2: frame.top + frame.innerHeight }));
  const band = [...trained.map((one) => `${one.x},${y(one.mean + one.error)}`), ...trained.map((one) => `${one.x},${y(one.mean - one.error)}`).reverse()];
  frame.svg.append(
    s("polygon", { class: "band", points: band.join(" ") }),
    s("polyline", { class: "line", points: trained.map((one) => `${one.x},${y(one.mean)}`).join(" ") }),
  );
  found.forEach((one, index) => frame.svg.append(mark(x(index), y(one.mean), one.evaluation, frame.at === index || step > 9)));
  horizontal(frame, isTimed() ? found.map((one, index) => [x(index), clock(one.from)]) : stepMarks(found, x));
}

/** Round step numbers, so that a mark says where one is rather than where it happened to fit. */
function stepMarks(found, x) {
  const [first, last] = [found[0]?.step ?? 0, found.at(-1)?.step ?? 0];
  const wanted = new Set(ticks(first, Math.max(last, first + 4), true));
  return found.map((one, index) => [x(index), one]).filter(([, one]) => !one.evaluation && wanted.has(one.step)).map(([at, one]) => [at, String(one.step)]);
}

function mark(x, y, evaluation, shown) {
  if (evaluation) return s("path", { class: "evaluation", d: `M${x} ${y - 6}l6 6l-6 6l-6-6z` });
  return s("circle", { class: "dot", cx: x, cy: y, r: shown ? 3 : 1.5 });
}

const SAMPLES = {
  mean: ["Mean of kept trials", () => [s("path", { class: "line", d: "M0 6h18" }), s("circle", { class: "dot", cx: 9, cy: 6, r: 3 })]],
  error: ["Standard error", () => [s("rect", { class: "band", width: 18, height: 12 })]],
  evaluation: ["Evaluation", () => [mark(9, 6, true)]],
};

function sample(name) {
  const [label, drawn] = SAMPLES[name];
  return h("li", {}, s("svg", { width: 18, height: 13, "aria-hidden": "true" }, drawn()), label);
}

function readReward(one) {
  const spread = one.error ? ` ± ${one.error.toFixed(3)}` : "";
  if (isTimed()) return `${clock(one.from)}: mean ${one.mean.toFixed(3)} over ${plural(one.kept, "trial")}`;
  const kind = one.evaluation ? "Evaluation at step" : "Step";
  return `${kind} ${one.step}: mean ${one.mean.toFixed(3)}${spread}, ${one.kept} of ${plural(one.trials, "trial")} kept`;
}

export function rewardChart() {
  const title = h("h2");
  const note = h("p", { class: "note" });
  const legend = h("ul", { class: "legend" }, ["mean", "error", "evaluation"].map(sample));
  const chart = plot({
    label: "Mean reward", points: rewards, draw: drawRewards, read: readReward,
    table: (found) => tableOf("Mean reward", [isTimed() ? "From" : "Step", "Mean", "Standard error", "Trials kept"],
      found.map((one) => [isTimed() ? clock(one.from) : `${one.step}${one.evaluation ? " (evaluation)" : ""}`, one.mean.toFixed(3), one.error.toFixed(3), String(one.kept)])),
  });

  function update() {
    put(title, isTimed() ? "Reward over time" : "Reward per step");
    put(note, isTimed() ? "No trainer's records beside the trials, so no steps." : "");
    legend.hidden = isTimed();
    chart.render();
  }

  return { element: h("section", { class: "panel chart" }, h("header", {}, title), note, legend, chart.element), update };
}

const FAMILY_OF = {
  Submitted: "graded", TurnLimitExceeded: "limit", TimeLimitExceeded: "limit", SequenceLengthLimitExceeded: "limit",
  VerifierError: "fault", AgentError: "fault", Aborted: "aborted",
};
export const familyOf = (status) => FAMILY_OF[status] ?? "infra";

export function tally() {
  const list = h("ol", { class: "tally" });
  const count = h("span", { class: "count" });
  const none = h("p", { class: "empty" }, "No trial has ended yet.");

  function update() {
    const found = Object.entries(store.outcomes).sort((a, b) => b[1] - a[1]);
    const sum = found.reduce((all, [, each]) => all + each, 0);
    put(count, plural(sum, "trial"));
    none.hidden = sum > 0;
    follow(list, found, ([status]) => status,
      ([status]) => h("li", { "data-family": familyOf(status) }, icon(familyOf(status)), h("span", {}, words(status)), h("b"), h("small")),
      (item, [, each]) => {
        put(item.children[2], String(each));
        put(item.children[3], share(each / sum));
      });
  }

  return { element: h("section", { class: "panel" }, h("header", {}, h("h2", {}, "Since the start"), count), none, list), update };
}
