// One trial: how it ended, what its agent did turn by turn, and what the verifier said.

import { h, icon } from "./dom.js";
import { onChange, store } from "./store.js";
import { PHASES, duration, number, plural, words } from "./words.js";

const SHOWN_LINES = 14;

const PHASE_NAMES = { queue: "Queue", start: "Sandbox", setup: "Set-up", run: "Agent", verify: "Verifier" };

/** Long text: its first lines (or its last: test runners sum up there), and a button for all of them. */
function lines(text, label, { end = false } = {}) {
  const all = text.replace(/\n+$/, "").split("\n");
  if (all.length <= SHOWN_LINES + 4) return h("pre", {}, all.join("\n"));
  const part = end ? ["[...]", ...all.slice(-SHOWN_LINES)] : [...all.slice(0, SHOWN_LINES), "[...]"];
  const shown = h("pre", {}, part.join("\n"));
  const button = h("button", { type: "button", class: "more", "aria-expanded": "false", onclick: () => {
    const open = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!open));
    shown.textContent = (open ? part : all).join("\n");
    button.textContent = open ? `Show all ${all.length} lines of ${label}` : `Show fewer lines of ${label}`;
  } }, `Show all ${all.length} lines of ${label}`);
  return h("div", {}, shown, button);
}

function exitChip(code) {
  if (code === null) return null;
  return h("span", { class: "exit", "data-family": code === 0 ? "graded" : "infra" }, icon(code === 0 ? "graded" : "infra"), `exit code ${code}`);
}

function turn(one, index) {
  if (one.told) return h("li", { class: "turn told", tabindex: -1 }, h("h3", {}, "Told in between"), lines(one.told, "this message"));
  const name = `turn ${index + 1}`;
  const commands = one.commands.map((command) => h("div", { class: "command" }, h("span", { "aria-hidden": "true" }, "$"), h("div", {}, h("span", { class: "visually-hidden" }, "Command: "), lines(command, "the command"))));
  const outputs = one.outputs.map((output) => h("div", { class: "output" }, h("p", { class: "label" }, "Output", exitChip(output.exit_code)), lines(output.text || "(nothing)", "the output")));
  return h("li", { class: "turn", id: `turn-${index + 1}`, tabindex: -1, "aria-label": `Turn ${index + 1}` },
    h("h3", {}, `Turn ${index + 1}`, one.tokens === null ? null : h("small", {}, plural(one.tokens, "token"))),
    one.reasoning ? h("details", { class: "reasoning" }, h("summary", {}, "Reasoning"), lines(one.reasoning, `the reasoning of ${name}`)) : null,
    one.said ? h("div", { class: "said" }, lines(one.said, "the reply")) : null,
    commands, outputs);
}

function trajectory(document) {
  const found = document.trajectory;
  const title = h("h2", {}, "Trajectory");
  if (!found) {
    const why = document.ended ? "This trial left no conversation." : "The conversation is written when the agent's phase ends.";
    return h("section", { class: "panel" }, h("header", {}, title), h("p", { class: "empty" }, why));
  }
  const opening = found.opening.map((message) => h("div", { class: "message" }, h("p", { class: "label" }, message.role), lines(message.text, "this message")));
  return h("section", { class: "panel trajectory" },
    h("header", {}, title, h("span", { class: "count" }, plural(found.turns.length + found.omitted, "turn"))),
    opening.length ? h("details", {}, h("summary", {}, `Prompt before the task (${plural(opening.length, "message")})`), opening) : null,
    found.instruction ? h("div", { class: "instruction" }, h("p", { class: "label" }, "Task"), lines(found.instruction, "the task")) : null,
    h("ol", { class: "turns" }, found.turns.map(turn)),
    found.omitted ? h("p", { class: "note" }, `${plural(found.omitted, "further turn")}: on the trials volume.`) : null);
}

function phases(seconds) {
  const found = Object.entries(PHASE_NAMES).filter(([key]) => seconds[key] > 0);
  const total = found.reduce((sum, [key]) => sum + seconds[key], 0);
  if (!total) return null;
  return h("section", { class: "panel" }, h("header", {}, h("h2", {}, "Time"), h("span", { class: "count" }, duration(total))),
    h("ol", { class: "phases" }, found.map(([key, label]) => {
      const bar = h("i", { "aria-hidden": "true" });
      bar.style.width = `${(seconds[key] / total) * 100}%`;
      return h("li", {}, h("span", {}, label), h("b", {}, duration(seconds[key])), bar);
    })));
}

const FILES = { "test-stdout.txt": "Output", "test-stderr.txt": "Error output", "reward.json": "reward.json", "reward.txt": "reward.txt" };

function verifier(found) {
  const parts = Object.entries(FILES).filter(([name]) => found[name] !== undefined);
  const body = parts.map(([name, label]) => h("div", { class: "output" }, h("p", { class: "label" }, label), lines(found[name] || "(empty)", `the ${label.toLowerCase()}`, { end: true })));
  return h("section", { class: "panel" }, h("header", {}, h("h2", {}, "Verifier")), body.length ? body : h("p", { class: "empty" }, "The verifier has left nothing."));
}

function facts({ request, answer }) {
  const measured = answer?.agent_metrics ?? {};
  const rows = [
    ["Agent", request.agent_name ?? "the server's default"], ["Model", request.model], ["Session", request.session_server_instance_id],
    ["Sampling", request.sampling_params && Object.entries(request.sampling_params).map(([key, value]) => `${key} ${JSON.stringify(value)}`).join(", ")],
    ["Token limit", request.max_seq_len], ["Turns", measured.turns], ["Commands", measured.tool_calls],
    ["Model time", measured.model_query_time_sum !== undefined ? duration(measured.model_query_time_sum) : null],
    ["Sandbox time", measured.env_execution_time_sum !== undefined ? duration(measured.env_execution_time_sum) : null],
  ].filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("section", { class: "panel" }, h("header", {}, h("h2", {}, "Facts")), h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, String(value))))));
}

/** The phase of a trial that has not ended, as far as this page knows. */
function phaseNow(name) {
  const row = [...store.live.values()].find((one) => one.trial === name);
  return row ? PHASES[row.phase] ?? row.phase : "Not ended, and not running here";
}

function heading(document) {
  const { answer } = document;
  const badge = answer
    ? h("p", { class: "badge", "data-family": answer.family }, icon(answer.family), words(answer.exit_status))
    : h("p", { class: "badge" }, icon("waiting"), phaseNow(document.trial));
  return h("header", { class: "heading" }, h("a", { href: "/", class: "back" }, "← All trials"),
    h("h1", { class: "mono" }, document.request.instance_id ?? document.trial), h("p", { class: "note mono" }, document.trial),
    h("div", { class: "verdict" }, badge, h("p", {}, "Reward ", h("b", {}, number(answer?.reward ?? null)))),
    answer?.message ? h("p", { class: "message-line" }, answer.message) : null,
    (answer?.warnings ?? []).map((warning) => h("p", { class: "message-line" }, `Warning: ${warning}`)),
    document.problems.map((problem) => h("p", { class: "message-line" }, problem)));
}

function page(document) {
  return h("div", { class: "trial" }, heading(document),
    h("div", { class: "columns" }, trajectory(document),
      h("div", { class: "aside" }, verifier(document.verifier), phases(document.answer?.phase_seconds ?? {}), facts(document),
        document.exception ? h("section", { class: "panel" }, h("details", {}, h("summary", {}, "Exception"), lines(document.exception, "the exception"))) : null)));
}

export async function trial(name) {
  const answer = await fetch(`/api/trials/${name}`).catch(() => null);
  if (answer?.status === 401) location.reload();
  if (!answer?.ok) {
    const why = answer?.status === 404 ? "There is no such trial on the trials volume; it may have been removed by age." : "The server did not answer. Reload the page to ask again.";
    return { element: h("div", { class: "trial" }, h("a", { href: "/", class: "back" }, "← All trials"), h("h1", { class: "mono" }, name), h("p", { class: "empty" }, why)), title: name, leave() {}, shown() {} };
  }
  return living(name, await answer.json());
}

/** The page of a trial that still runs says its phase, and is made anew once the trial has ended. */
function living(name, first) {
  const element = h("div", {}, page(first));
  const stop = first.ended ? () => {} : onChange(async () => {
    const phase = element.querySelector(".verdict .badge");
    if (phase) phase.lastChild.data = phaseNow(name);
    if (!store.ended.some((row) => row.trial === name)) return;
    stop();
    const answer = await fetch(`/api/trials/${name}`).catch(() => null);
    if (answer?.ok) element.replaceChildren(page(await answer.json()));
  });
  return { element, title: first.request.instance_id ?? name, leave: stop, shown() {} };
}
