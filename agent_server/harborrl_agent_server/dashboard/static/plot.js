// What both charts share: axes drawn at the size they are shown, a cursor for mouse and keyboard, and a table beside.

import { attribute, h, put, s } from "./dom.js";

const EDGE = { left: 38, right: 8, top: 10, bottom: 22 };
const HEIGHT = 210;

/** A scale's top and its lines: 1, 2 or 5 times a power of ten, at most four of them. */
export function ticks(low, high, whole = false) {
  const span = high - low || 1;
  const raw = span / 4;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = Math.max([1, 2, 5, 10].map((one) => one * power).find((one) => one >= raw), whole ? 1 : 0);
  const first = Math.floor(low / step + 1e-9) * step;
  const lines = [];
  for (let at = first; at < high + step * 0.999; at += step) lines.push(Math.round(at / step) * step);
  return lines;
}

/**
 * A plot of `points()` along the x axis. `draw(frame, points)` fills the svg; `read(point)` says a point in words.
 * It is a slider for assistive technology: arrows move along the points, and the value is what `read` says.
 */
export function plot({ label, points, draw, read, table }) {
  const svg = s("svg", { class: "plot", "aria-hidden": "true" });
  const field = h("div", { class: "field", role: "slider", tabindex: 0, "aria-label": label, "aria-valuemin": 0 }, svg);
  const readout = h("p", { class: "readout" });
  const rows = h("div", { class: "rows", role: "region", "aria-label": `${label} as a table`, tabindex: 0 });
  const details = h("details", { class: "table", ontoggle: () => details.open && fillTable() }, h("summary", {}, "As a table"), rows);
  let at = null;
  let shown = [];

  function fillTable() {
    rows.replaceChildren(table(shown));
  }

  function render() {
    const width = field.clientWidth;
    if (!width) return;
    shown = points();
    if (at !== null && at >= shown.length) at = null;
    attribute(svg, "viewBox", `0 0 ${width} ${HEIGHT}`);
    attribute(svg, "width", width);
    attribute(svg, "height", HEIGHT);
    const frame = { svg, width, height: HEIGHT, ...EDGE, at, innerWidth: width - EDGE.left - EDGE.right, innerHeight: HEIGHT - EDGE.top - EDGE.bottom };
    svg.replaceChildren();
    draw(frame, shown);
    const point = shown[at ?? shown.length - 1];
    const text = point ? read(point) : "Nothing yet";
    put(readout, text);
    attribute(field, "aria-valuemax", Math.max(shown.length - 1, 0));
    attribute(field, "aria-valuenow", at ?? Math.max(shown.length - 1, 0));
    attribute(field, "aria-valuetext", text);
    if (details.open) fillTable();
  }

  function moveTo(index) {
    at = Math.min(Math.max(index, 0), shown.length - 1);
    render();
  }

  const MOVES = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity };
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") at = null;
    else if (!(event.key in MOVES) || event.ctrlKey || event.metaKey || event.altKey) return;
    else moveTo((at ?? shown.length - 1) + MOVES[event.key]);
    event.preventDefault();
    render();
  });
  field.addEventListener("pointermove", (event) => {
    const along = (event.offsetX - EDGE.left) / (field.clientWidth - EDGE.left - EDGE.right);
    if (shown.length) moveTo(Math.round(along * shown.length - 0.5));
  });
  field.addEventListener("pointerleave", () => {
    at = null;
    render();
  });
  new ResizeObserver(render).observe(field);
  return { element: h("div", {}, readout, field, details), render };
}

/** Horizontal lines with their numbers; returns value -> y. */
export function vertical(frame, lines, text = String) {
  const [low, high] = [lines[0], lines.at(-1)];
  const y = (value) => frame.top + frame.innerHeight * (1 - (value - low) / (high - low || 1));
  for (const line of lines) {
    frame.svg.append(
      s("line", { class: "grid", x1: frame.left, x2: frame.width - frame.right, y1: y(line), y2: y(line) }),
      s("text", { class: "tick", x: frame.left - 7, y: y(line) + 4, "text-anchor": "end" }, text(line)),
    );
  }
  return y;
}

/** Marks below the plot, as many as fit; `marks` are [x, text]. */
export function horizontal(frame, marks) {
  const fits = Math.max(Math.floor(frame.innerWidth / 70), 1);
  const every = Math.ceil(marks.length / fits);
  marks.forEach(([x, text], index) => {
    if (index % every) return;
    const anchor = x > frame.width - 28 ? "end" : x < frame.left + 14 ? "start" : "middle";
    frame.svg.append(s("text", { class: "tick", x, y: frame.height - 5, "text-anchor": anchor }, text));
  });
}

export function tableOf(caption, heads, rows) {
  return h(
    "table",
    { class: "plain" },
    h("caption", { class: "visually-hidden" }, caption),
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell, index) => h(index ? "td" : "th", index ? {} : { scope: "row" }, cell))))),
  );
}
