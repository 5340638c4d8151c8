// What things are called on the pages, and how numbers and times are written.

export const FAMILIES = [
  { name: "graded", label: "Graded" },
  { name: "limit", label: "Limit reached" },
  { name: "fault", label: "Agent or verifier failed" },
  { name: "aborted", label: "Aborted" },
  { name: "infra", label: "Infrastructure" },
];

export const PHASES = {
  queued: "Queued",
  starting: "Sandbox starts",
  setup: "Agent set-up",
  running: "Agent acts",
  collecting: "Collecting files",
  grading: "Grading",
  stopping: "Sandbox stops",
  cancelling: "Cancelling",
  forcing: "Removing by force",
};

/** A trial's own way, in order. */
export const WAY = ["starting", "setup", "running", "collecting", "grading", "stopping"];

/** "TimeLimitExceeded" as words. */
export const words = (name) => name.replace(/([a-z])([A-Z])/g, (_, a, b) => `${a} ${b.toLowerCase()}`);

const two = (number) => String(number).padStart(2, "0");

/** Short: 4.2 s, 48 s, 12:04, 1:30:00. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const whole = Math.max(Math.floor(seconds), 0);
  if (seconds < 10 && seconds % 1) return `${seconds.toFixed(1)} s`;
  if (whole < 60) return `${whole} s`;
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60), whole % 60];
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

/** For ears: 1 hour 30 minutes. */
export function spoken(seconds) {
  const whole = Math.max(Math.round(seconds), 0);
  const parts = [[Math.floor(whole / 3600), "hour"], [Math.floor((whole % 3600) / 60), "minute"]];
  if (whole < 600) parts.push([whole % 60, "second"]);
  const said = parts.filter(([number]) => number).map(([number, unit]) => `${number} ${unit}${number === 1 ? "" : "s"}`);
  return said.join(" ") || "0 seconds";
}

export function ago(seconds) {
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const MOMENT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export const clock = (unix) => CLOCK.format(unix * 1000);
export const moment = (unix) => MOMENT.format(unix * 1000);

/** A reward: three digits at most, and nothing where there is none. */
export const number = (value) => (value === null || value === undefined ? "–" : String(Math.round(value * 1000) / 1000));

/** A part of a whole; what is not nothing never reads as nothing. */
export const share = (part) => (part > 0 && part < 0.01 ? "< 1 %" : `${Math.round(part * 100)} %`);

export const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;
