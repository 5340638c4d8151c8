// What the cells of the lists hold: a task and its link, a phase, seconds against a ceiling.

import { attribute, h, put } from "./dom.js";
import { now } from "./store.js";
import { PHASES, WAY, duration, spoken } from "./words.js";

const NEAR = 0.8;
/* Of a ceiling: from here on a trial may well meet it. */

export function taskCell(row) {
  const name = row.trial ? h("a", { href: `/trials/${row.trial}`, class: "mono task" }, row.task) : h("span", { class: "mono task" }, row.task);
  return h("td", { class: "c-task", role: "cell" }, name, h("span", { class: "sub mono" }, (row.trial ? row.trial.slice(-12) : row.id) + onWorker(row)));
}

/** Where the server has several processes: which one has the trial. */
export const onWorker = (row) => (row.worker === null ? "" : ` · worker ${row.worker}`);

export function meter(label) {
  const [spent, limit, flag] = [h("span", { class: "spent" }), h("span", { class: "of" }), h("span", { class: "flag" })];
  return h("div", { class: "meter", role: "meter", "aria-label": label, "aria-valuemin": 0 }, h("span", { class: "figures" }, spent, limit, flag), h("span", { class: "track", "aria-hidden": "true" }, h("span")));
}

/** Fills a meter with seconds spent of a ceiling; null: its time has not come. */
export function measure(element, seconds, ceiling, over) {
  const [spent, limit, flag] = element.firstChild.children;
  const share = seconds === null ? 0 : seconds / ceiling;
  put(spent, duration(seconds));
  put(limit, ` / ${duration(ceiling)}`);
  put(flag, share >= 1 ? "at its limit" : share >= NEAR ? "near its limit" : "");
  attribute(element, "data-state", seconds === null || over ? "past" : share >= NEAR ? "near" : "fine");
  attribute(element, "aria-valuemax", ceiling);
  attribute(element, "aria-valuenow", Math.min(Math.round(seconds ?? 0), ceiling));
  attribute(element, "aria-valuetext", seconds === null ? "not begun" : `${spoken(seconds)} of ${spoken(ceiling)}${flag.textContent ? `, ${flag.textContent}` : ""}`);
  element.lastChild.firstChild.style.width = `${Math.min(share * 100, 100)}%`;
}

export const agentSeconds = (row) => (row.agent_since !== null ? now() - row.agent_since : row.agent_spent);
export const trialSeconds = (row) => (row.slot_since !== null ? now() - row.slot_since : null);

export function phaseCell() {
  const pips = h("span", { class: "pips", "aria-hidden": "true" }, WAY.map(() => h("i")));
  return h("td", { class: "c-phase", role: "cell" }, h("span", { class: "phase" }, h("span"), pips), h("span", { class: "sub" }));
}

export function showPhase(cell, row) {
  const reached = WAY.indexOf(row.phase);
  put(cell.firstChild.firstChild, PHASES[row.phase] ?? row.phase);
  cell.firstChild.lastChild.hidden = reached < 0;
  [...cell.firstChild.lastChild.children].forEach((pip, index) => attribute(pip, "class", index < reached ? "done" : index === reached ? "here" : null));
  put(cell.lastChild, `for ${duration(now() - row.phase_since)}`);
}
