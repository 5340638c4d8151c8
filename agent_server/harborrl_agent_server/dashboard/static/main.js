// Pages by path, the bar above them, and keys.

import { icon, put } from "./dom.js";
import { overview } from "./overview.js";
import { onChange, start, store } from "./store.js";
import { trial } from "./trial.js";

const main = document.getElementById("main");
let page = null;
let visit = 0;

async function show(moved) {
  const mine = ++visit;
  const name = location.pathname.match(/^\/trials\/([A-Za-z0-9_-]+)$/)?.[1];
  const next = name ? await trial(name) : overview();
  if (mine !== visit) return;
  page?.leave();
  page = next;
  main.replaceChildren(next.element);
  document.title = `${next.title} · HarborRL agent server`;
  next.shown();
  const part = location.hash && document.getElementById(location.hash.slice(1));
  if (part) part.scrollIntoView();
  else if (moved) scrollTo(0, 0);
  if (moved) (part || main).focus({ preventScroll: true });
}

function go(path) {
  history.pushState(null, "", path);
  show(true);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='/']");
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go(link.getAttribute("href"));
});
addEventListener("popstate", () => show(true));

const STATUS = {
  ok: ["Serving", "ok", "graded"], draining: ["Draining: takes no new trials", "warn", "limit"],
  degraded: ["Degraded", "bad", "infra"], starting: ["Starting", "warn", "waiting"],
};

/** Why a server is degraded; workers that are silent may be the whole of it. */
function reasons({ leaked, silent }) {
  const found = [];
  if (silent.length) found.push(`${silent.length === 1 ? "worker" : "workers"} ${silent.join(", ")} ${silent.length === 1 ? "does" : "do"} not answer`);
  if (leaked || !silent.length) found.push("something is left of ended trials");
  return `: ${found.join("; ")}`;
}

function showStatus() {
  const status = document.getElementById("status");
  const [said, tone, shape] = store.connection === "live" ? (STATUS[store.server.status] ?? [store.server.status, "warn", "limit"])
    : store.connection === "lost" ? ["Connection lost, trying again", "bad", "infra"] : ["Connecting", "warn", "waiting"];
  const text = said === "Degraded" ? said + reasons(store.server) : said;
  if (status.dataset.said === text) return;
  status.dataset.said = text;
  status.dataset.tone = tone;
  status.replaceChildren(icon(shape), text);
  document.getElementById("logout").hidden = !store.facts?.guarded;
  const { job, instance, version } = store.facts ?? {};
  put(document.getElementById("where"), [job, instance, version && `v${version}`].filter(Boolean).join(" · "));
}

const THEMES = ["auto", "light", "dark"];
const themeButton = document.getElementById("theme");
function showTheme() {
  put(themeButton, `Theme: ${document.documentElement.dataset.theme ?? "auto"}`);
}
themeButton.addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % THEMES.length];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  remember("harborrl-theme", next);
  showTheme();
});

function remember(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // storage is blocked: the choice holds until the page is left
  }
}

function remembered(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

const keys = document.getElementById("keys");
const singleKeys = document.getElementById("single-keys");
singleKeys.checked = remembered("harborrl-keys") !== "off";
singleKeys.addEventListener("change", () => remember("harborrl-keys", singleKeys.checked ? "on" : "off"));
document.getElementById("show-keys").addEventListener("click", () => keys.showModal());

/** To the next (1) or last (-1) of the page's stops: turns of a trial, else links to trials. */
function step(by) {
  const turns = [...main.querySelectorAll(".turn")];
  const stops = turns.length ? turns : [...main.querySelectorAll("table a")];
  const here = stops.findIndex((stop) => stop === document.activeElement || stop.contains(document.activeElement));
  const next = stops[here < 0 ? (by > 0 ? 0 : stops.length - 1) : Math.min(Math.max(here + by, 0), stops.length - 1)];
  next?.focus({ preventScroll: true });
  next?.scrollIntoView({ block: "nearest" });
}

const KEYS = {
  "/": () => document.getElementById("filter")?.focus(), j: () => step(1), k: () => step(-1),
  u: () => location.pathname !== "/" && go("/"), "?": () => keys.showModal(),
};
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || keys.open) return;
  if (event.target.matches("input:not([type=radio]):not([type=checkbox]), select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (!singleKeys.checked || !KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key]();
});

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

onChange(showStatus);
showTheme();
showStatus();
await start();
showStatus();
show(false);
