"""The bash agent's protocol: pure text in, text out. Simple enough for a model of 135 million parameters.

A reply that holds a fenced block runs it as one shell command; a reply without one ends the trial.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

FENCE = re.compile(r"```[ \t]*+([A-Za-z]*+)[ \t]*+\n(.*?)(?:^[ \t]*+```|\Z)", re.DOTALL | re.MULTILINE)
"""The closing fence may be the very next line: an empty block must not swallow what follows it. Nothing is given back
(`*+`): two runs of blanks side by side took a second for 25,000 of them, in which every other trial stood still."""

SHELL_LABELS = frozenset({"sh", "bash", "shell", "console"})

DONE_MARKER = "TASK_DONE"
"""A line of its own. Beside a command it saves the request in which the model would say that it is done."""

SYSTEM_PROMPT = f"""You solve tasks in a Linux shell.
Answer with one command in a sh block. You will see its exit code and output.
When the task is done, answer {DONE_MARKER} without a block."""

EXAMPLES: tuple[dict[str, str], ...] = (
    {"role": "user", "content": "Create the file /app/color.txt with the text blue."},
    {"role": "assistant", "content": "```sh\necho blue > /app/color.txt\n```"},
    {"role": "user", "content": "exit code 0\n(no output)"},
    {"role": "assistant", "content": DONE_MARKER},
    {"role": "user", "content": "Write the number of entries in /etc to /app/entries.txt."},
    {"role": "assistant", "content": "```sh\nls /etc | wc -l > /app/entries.txt\n```"},
    {"role": "user", "content": "exit code 0\n(no output)"},
    {"role": "assistant", "content": DONE_MARKER},
)
"""Two worked trials before the real one. A small model imitates better than it obeys: on one task at
temperature 0.8 SmolLM2-135M gave 4 commands in 6 replies after one of them, and 6 in 6 after two."""


@dataclass(frozen=True)
class Action:
    """What a reply asks for."""

    command: str | None
    """None: the trial is over."""
    last: bool
    """The reply also says that nothing follows this command."""


def parse_reply(content: str) -> Action:
    """The first block labelled sh, bash, shell or console; without one, the first block with no label.

    A block that the reply leaves open ends with the reply. Blocks in other languages and empty blocks are no commands.
    Lines may end as those of Windows do.
    """
    content = content.replace("\r\n", "\n")
    blocks = [(label.lower(), body.strip("\n")) for label, body in FENCE.findall(content)]
    labelled = [body for label, body in blocks if label in SHELL_LABELS]
    bare = [body for label, body in blocks if not label]
    command = next((body for body in [*labelled, *bare] if body.strip()), None)
    outside = FENCE.sub("", content)
    done = any(line.strip() == DONE_MARKER for line in outside.splitlines())
    return Action(command=command, last=command is None or done)


def observation(exit_code: int, stdout: str, stderr: str, *, limit: int) -> str:
    """The user message after a command: exit code, output, error output, cut in the middle to `limit` characters."""
    output = "\n".join(part.rstrip("\n") for part in (stdout, stderr) if part.strip())
    if len(output) > limit:
        half = limit // 2
        output = f"{output[:half]}\n[... {len(output) - 2 * half} characters omitted ...]\n{output[-half:]}"
    return f"exit code {exit_code}\n{output or '(no output)'}"


def opening(system_prompt: str, examples: Sequence[dict[str, Any]], instruction: str) -> list[dict[str, Any]]:
    """Messages before the first reply."""
    system = [{"role": "system", "content": system_prompt}] if system_prompt else []
    return [*system, *examples, {"role": "user", "content": instruction.strip()}]
