"""The bash agent's protocol, as much as a measurement needs. The agent server's own is `harborrl_agent_server.agents.protocol`."""

import re
from dataclasses import dataclass

FENCE = re.compile(r"```[ \t]*([A-Za-z]*)[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
SHELL_LABELS = frozenset({"sh", "bash", "shell", "console"})
DONE_MARKER = "TASK_DONE"


@dataclass(frozen=True)
class Action:
    command: str | None
    last: bool


EMPTY = Action(None, last=True)


def parse_reply(content: str) -> Action:
    blocks = [(label.lower(), body.strip("\n")) for label, body in FENCE.findall(content)]
    ordered = [body for label, body in blocks if label in SHELL_LABELS] + [body for label, body in blocks if not label]
    command = next((body for body in ordered if body.strip()), None)
    done = any(line.strip() == DONE_MARKER for line in FENCE.sub("", content).splitlines())
    return Action(command, last=command is None or done)


def observation(code: int, output: str, *, limit: int) -> str:
    text = output.rstrip("\n")
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]}\n[... {len(text) - 2 * half} characters omitted ...]\n{text[-half:]}"
    return f"exit code {code}\n{text or '(no output)'}"
