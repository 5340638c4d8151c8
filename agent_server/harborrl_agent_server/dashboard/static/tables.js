// Trials that run, trials that wait, and trials that have ended.

import { agentSeconds, measure, meter, onWorker, phaseCell, showPhase, taskCell, trialSeconds } from "./cells.js";
import { attribute, follow, h, icon, put } from "./dom.js";
import { now, store } from "./store.js";
import { FAMILIES, PHASES, WAY, ago, duration, moment, number, words } from "./words.js";

const PAGE = 12;
/* Rows before the rest is asked for: the lists below stay within reach. */
export const filter = { text: "", family: "" };

const matches = (row) =>
  !filter.text || `${row.task} ${row.trial ?? ""} ${row.session ?? ""} ${row.agent} ${PHASES[row.phase] ?? row.phase ?? words(row.status)}${onWorker(row)}`.toLowerCase().includes(filter.text);

const COLUMNS = [
  { name: "Task", by: (row) => row.task },
  { name: "Phase", by: (row) => WAY.indexOf(row.phase) },
  { name: "Agent time", by: (row) => agentSeconds(row) ?? -1 },
  { name: "Whole trial", by: (row) => trialSeconds(row) ?? -1 },
  { name: "Session", by: (row) => row.session ?? "" },
];
const order = { column: 3, down: true };

function sorted(rows) {
  const { by } = COLUMNS[order.column];
  const direction = order.down ? -1 : 1;
  return rows.sort((a, b) => (by(a) < by(b) ? -direction : by(a) > by(b) ? direction : a.id < b.id ? -1 : 1));
}

function sortableHead(changed) {
  const heads = COLUMNS.map((column, index) =>
    h("th", { scope: "col", role: "columnheader" }, h("button", { type: "button", onclick: () => {
      order.down = order.column === index ? !order.down : index > 1;
      order.column = index;
      show();
      changed();
    } }, column.name, h("span", { class: "arrow", "aria-hidden": "true" }))));
  const show = () => heads.forEach((head, index) => {
    const chosen = index === order.column;
    attribute(head, "aria-sort", chosen ? (order.down ? "descending" : "ascending") : null);
    put(head.querySelector(".arrow"), chosen ? (order.down ? "↓" : "↑") : "");
  });
  show();
  return h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads));
}

/** A table of at most a page of rows, with a button for the rest. */
function paged(element, body, items, key, create, update) {
  const more = h("button", { type: "button", class: "more", onclick: () => { more.open = !more.open; show(items()); } });
  more.open = false;
  function show(all) {
    const part = more.open ? all : all.slice(0, PAGE);
    follow(body, part, key, create, update);
    more.hidden = all.length <= PAGE;
    put(more, more.open ? `Show the first ${PAGE}` : `Show all ${all.length}`);
    attribute(more, "aria-expanded", String(more.open));
    element.hidden = all.length === 0;
  }
  return { more, show };
}

const NUMBERS = new Set(["Reward", "Took", "Waits"]);
const byKey = (row) => row.key;

export function running() {
  const body = h("tbody", { role: "rowgroup" });
  const count = h("span", { class: "count" });
  const none = h("p", { class: "empty" });
  const rows = () => sorted([...store.live.values()].filter((row) => row.phase !== "queued" && matches(row)));
  const table = h("table", { class: "list live", role: "table", "aria-label": "Running trials" }, sortableHead(() => update()), body);
  const { more, show } = paged(table, body, rows, byKey, create, fill);

  function create(row) {
    return h("tr", { role: "row" }, taskCell(row), phaseCell(),
      h("td", { class: "c-agent", role: "cell" }, meter("Agent time")), h("td", { class: "c-trial", role: "cell" }, meter("Whole trial")),
      h("td", { class: "c-session", role: "cell" }, h("span", { class: "mono" }), h("span", { class: "sub" }, row.agent)));
  }

  function fill(element, row) {
    const [task, phase, agent, trial, session] = element.children;
    if (row.trial && !task.querySelector("a")) element.replaceChild(taskCell(row), task);
    showPhase(phase, row);
    const ceilings = store.facts;
    measure(agent.firstChild, agentSeconds(row), ceilings.budgets.agent_timeout_s, row.agent_since === null);
    measure(trial.firstChild, trialSeconds(row), ceilings.total, false);
    put(session.firstChild, row.session ? row.session.slice(0, 12) : "no session");
    attribute(session.firstChild, "title", row.session);
  }

  function update() {
    if (!store.facts) return;
    const all = rows();
    const live = [...store.live.values()].filter((row) => row.phase !== "queued").length;
    put(count, all.length === live ? String(live) : `${all.length} of ${live}`);
    put(none, live ? "No running trial matches the filter." : "No trial runs.");
    none.hidden = all.length > 0;
    show(all);
  }

  return { element: h("section", { class: "panel" }, h("header", {}, h("h2", {}, "Running"), count), none, table, more), update };
}

export function waiting() {
  const body = h("tbody", { role: "rowgroup" });
  const count = h("span", { class: "count" });
  const rows = () => [...store.live.values()].filter((row) => row.phase === "queued" && matches(row));
  const head = ["Place", "Task", "Waits", "Session"].map((name) => h("th", { scope: "col", role: "columnheader", class: NUMBERS.has(name) && "number" }, name));
  const table = h("table", { class: "list queue", role: "table", "aria-label": "Waiting trials, in order" }, h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)), body);
  const places = new Map();
  const { more, show } = paged(table, body, rows, byKey,
    (row) => h("tr", { role: "row" }, h("td", { class: "c-place", role: "cell" }), taskCell(row), h("td", { class: "c-waits number", role: "cell" }),
      h("td", { class: "c-session", role: "cell" }, h("span", { class: "mono" }, row.session ? row.session.slice(0, 12) : "no session"))),
    (element, row) => {
      put(element.children[0], `${places.get(row.key)}.`);
      put(element.children[2], duration(now() - row.since));
    });
  const section = h("section", { class: "panel" }, h("header", {}, h("h2", {}, "Queue"), count, h("span", { class: "count" }, "in the order they came")), table, more);

  function update() {
    places.clear();
    [...store.live.values()].filter((row) => row.phase === "queued").forEach((row, index) => places.set(row.key, index + 1));
    put(count, String(places.size));
    section.hidden = places.size === 0;
    show(rows());
  }

  return { element: section, update };
}

function familyChoice(changed) {
  return h("select", { "aria-label": "Outcome", onchange: (event) => { filter.family = event.target.value; changed(); } },
    h("option", { value: "" }, "All outcomes"), FAMILIES.map(({ name, label }) => h("option", { value: name }, label)));
}

export function ended() {
  const body = h("tbody", { role: "rowgroup" });
  const count = h("span", { class: "count" });
  const none = h("p", { class: "empty" });
  const rows = () => store.ended.filter((row) => matches(row) && (!filter.family || row.family === filter.family));
  const head = ["Outcome", "Task", "Reward", "Took", "Ended"].map((name) => h("th", { scope: "col", role: "columnheader", class: NUMBERS.has(name) && "number" }, name));
  const table = h("table", { class: "list ended", role: "table", "aria-label": "Ended trials, newest first" }, h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)), body);
  const { more, show } = paged(table, body, rows, byKey, create, (element, row) => put(element.lastChild, ago(now() - row.at)));

  function create(row) {
    return h("tr", { role: "row" },
      h("td", { class: "c-outcome", role: "cell" }, h("span", { class: "badge", "data-family": row.family }, icon(row.family), words(row.status)), row.cause ? h("span", { class: "sub" }, row.cause.replace("_", " ")) : null),
      taskCell(row), h("td", { class: "c-reward number", role: "cell" }, number(row.reward)), h("td", { class: "c-took number", role: "cell" }, duration(row.seconds)),
      h("td", { class: "c-ended", role: "cell", title: moment(row.at) }));
  }

  function update() {
    const all = rows();
    put(count, all.length === store.ended.length ? `the last ${store.ended.length}` : `${all.length} of the last ${store.ended.length}`);
    count.hidden = store.ended.length === 0;
    put(none, store.ended.length ? "No ended trial matches the filter." : "No trial has ended since the server started.");
    none.hidden = all.length > 0;
    show(all);
  }

  return { element: h("section", { class: "panel" }, h("header", {}, h("h2", {}, "Ended"), count, h("span", { class: "spacer" }), familyChoice(() => update())), none, table, more), update };
}

export function filterField(changed) {
  const field = h("input", { type: "search", id: "filter", placeholder: "Filter by task, phase, outcome, session", "aria-label": "Filter trials", value: filter.text, oninput: () => {
    filter.text = field.value.trim().toLowerCase();
    changed();
  } });
  return field;
}
