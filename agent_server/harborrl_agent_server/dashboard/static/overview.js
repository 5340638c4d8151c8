// The first page: the server at a glance.

import { h } from "./dom.js";
import { outcomes, patterns, rewardChart, tally } from "./charts.js";
import { onChange } from "./store.js";
import { ended, filterField, running, waiting } from "./tables.js";
import { tiles } from "./tiles.js";

export function overview() {
  const [figures, over, reward, since] = [tiles(), outcomes(), rewardChart(), tally()];
  const lists = [running(), waiting(), ended()];
  const updateLists = () => lists.forEach((list) => list.update());
  const updateAll = () => [figures, over, reward, since, ...lists].forEach((part) => part.update());

  const stop = onChange(updateAll);
  // Ages grow between two messages of the server.
  const ticking = setInterval(() => {
    figures.update();
    updateLists();
  }, 1000);

  const element = h("div", { class: "overview" },
    h("h1", { class: "visually-hidden" }, "Trials of this server"),
    patterns(),
    figures.element,
    h("div", { class: "charts" }, over.element, reward.element, since.element),
    h("div", { class: "finder" }, filterField(updateLists), h("kbd", { "aria-hidden": "true" }, "/")),
    lists.map((list) => list.element));
  const leave = () => {
    stop();
    clearInterval(ticking);
  };
  return { element, title: "Trials", leave, shown: updateAll };
}
