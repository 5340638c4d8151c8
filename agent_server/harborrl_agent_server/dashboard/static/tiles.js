// The figures at the top: slots, queue, and how the last hour's trials ended.

import { h, put } from "./dom.js";
import { FAMILIES, duration, plural } from "./words.js";
import { now, store } from "./store.js";

const HOUR = 60;

/** Sums of the minutes of the last hour. */
export function lastHour() {
  const oldest = now() / 60 - HOUR;
  const sum = { graded: 0, limit: 0, fault: 0, aborted: 0, infra: 0, scored: 0, reward: 0 };
  for (const [minute, counts] of store.minutes) {
    if (minute < oldest) continue;
    for (const key of Object.keys(sum)) sum[key] += counts[key];
  }
  return { ...sum, total: FAMILIES.reduce((total, { name }) => total + sum[name], 0) };
}

function tile(label) {
  const [value, note] = [h("p", { class: "value" }), h("p", { class: "note" })];
  return { value, note, element: h("section", { class: "tile panel" }, h("h2", {}, label), value, note) };
}

function big(element, figure, unit) {
  if (!element.firstChild) element.append(h("span"), " ", h("small"));
  put(element.children[0], figure);
  put(element.children[1], unit);
}

export function tiles() {
  const [slots, queue, hour, reward] = ["Slots", "Queue", "Ended, last hour", "Mean reward, last hour"].map(tile);
  const gauge = h("div", { class: "gauge", "aria-hidden": "true" }, h("div"));
  slots.element.insertBefore(gauge, slots.note);

  function update() {
    const { capacity, in_flight: taken, queued, leaked } = store.server;
    big(slots.value, `${taken} / ${capacity}`, "in use");
    gauge.firstChild.style.width = `${capacity ? Math.min((taken / capacity) * 100, 100) : 0}%`;
    const left = leaked ? `; something is left of ${plural(leaked, "ended trial")}` : "";
    put(slots.note, `${Math.max(capacity - taken, 0)} free${left}`);
    const first = [...store.live.values()].find((row) => row.phase === "queued");
    big(queue.value, String(queued), queued === 1 ? "trial waits" : "trials wait");
    put(queue.note, first ? `the first for ${duration(now() - first.since)}` : "no clock of theirs would run");
    const sum = lastHour();
    const kept = sum.graded + sum.limit + sum.fault;
    big(hour.value, String(sum.total), sum.total === 1 ? "trial" : "trials");
    put(hour.note, sum.total ? `${plural(kept, "may train", "may train")}, ${sum.aborted} aborted, ${sum.infra} infrastructure` : "none yet");
    big(reward.value, sum.scored ? (sum.reward / sum.scored).toFixed(3) : "–", "");
    put(reward.note, sum.scored ? `over ${plural(sum.scored, "trial")} with a reward` : "no trial with a reward");
  }

  const element = h("div", { class: "tiles" }, [slots, queue, hour, reward].map((one) => one.element));
  return { element, update };
}
