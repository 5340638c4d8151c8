// The server's state as this page knows it, and the stream that keeps it so.

const LATE_SECONDS = 25;
/* The server says something at least every 10 s. */

export const store = {
  facts: null,
  server: { status: "starting", capacity: 0, in_flight: 0, queued: 0, leaked: 0, workers: 1, silent: [] },
  live: new Map(),
  ended: [],
  outcomes: {},
  minutes: new Map(),
  steps: [],
  connection: "connecting",
};

const ENDED_KEPT = 500;
const listeners = new Set();
let skew = 0;
let heard = 0;
let stream = null;

/** The server's time: its clock decides, whatever this machine's says. */
export const now = () => Date.now() / 1000 + skew;

export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const tell = (changed) => listeners.forEach((listener) => listener(changed));

function clear() {
  store.live = new Map();
  store.ended = [];
  store.minutes = new Map();
  store.steps = [];
  store.outcomes = {};
}

function take(data) {
  heard = Date.now() / 1000;
  skew = data.now - heard;
  if (data.server) store.server = data.server;
  for (const row of data.live?.set ?? []) store.live.set(row.key, row);
  for (const key of data.live?.gone ?? []) store.live.delete(key);
  if (data.ended) store.ended = [...data.ended.reverse(), ...store.ended].slice(0, ENDED_KEPT);
  if (data.outcomes) store.outcomes = data.outcomes;
  for (const [minute, counts] of Object.entries(data.minutes ?? {})) store.minutes.set(Number(minute), counts);
  if (data.steps) store.steps = data.steps;
  store.connection = "live";
  tell(data);
}

function lost(how) {
  if (store.connection === how) return;
  store.connection = how;
  tell({});
}

function listen() {
  stream?.close();
  stream = new EventSource("/api/events");
  stream.addEventListener("state", (event) => {
    clear();
    take(JSON.parse(event.data));
  });
  stream.addEventListener("change", (event) => take(JSON.parse(event.data)));
  stream.addEventListener("error", () => {
    lost("lost");
    if (stream.readyState === EventSource.CLOSED) retry();
  });
}

/** The browser itself asks again after a broken connection, but not after an answer such as 401 or 503. */
async function retry() {
  await new Promise((resolve) => setTimeout(resolve, 3000));
  const answer = await fetch("/api/facts").catch(() => null);
  if (answer?.status === 401) location.reload();
  else listen();
}

export async function start() {
  setInterval(() => {
    if (heard && Date.now() / 1000 - heard > LATE_SECONDS) lost("lost");
  }, 1000);
  const answer = await fetch("/api/facts").catch(() => null);
  if (answer?.status === 401) location.reload();
  if (answer?.ok) store.facts = await answer.json();
  listen();
}
