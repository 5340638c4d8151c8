"""What an agent did, turn by turn, from whichever file it left. Pure.

Understood: the conversation of our bash agent, and ATIF, in which Harbor's agents write (terminus-2, mini-swe-agent).
The file may come out of a sandbox, so nothing about its shape is taken for granted.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harborrl_agent_server.agents.protocol import FENCE, parse_reply

TEXT_LIMIT = 64 * 1024
"""Characters of one message that the page gets."""

TURN_LIMIT = 2000
"""Turns that the page gets."""

EXIT_CODE = re.compile(r"exit code (-?\d+)\n")

COMMAND_KEYS = ("command", "cmd", "keystrokes", "code", "script")
"""Under which agents' tools keep what they run."""


@dataclass(frozen=True)
class Message:
    role: str
    text: str


@dataclass(frozen=True)
class Output:
    """What a command gave back."""

    text: str
    exit_code: int | None = None


@dataclass(frozen=True)
class Turn:
    """One reply of the model, what it ran, and what came of it."""

    said: str = ""
    reasoning: str = ""
    commands: tuple[str, ...] = ()
    outputs: tuple[Output, ...] = ()
    told: str = ""
    """A message of the user or the system in between, instead of a reply."""
    tokens: int | None = None
    """Of the completion."""


@dataclass(frozen=True)
class Trajectory:
    model: str = ""
    opening: tuple[Message, ...] = ()
    """Everything before the task: system prompt and worked examples."""
    instruction: str = ""
    turns: tuple[Turn, ...] = ()
    omitted: int = 0
    """Turns after the last that is here."""
    context: Mapping[str, float] = field(default_factory=dict)


def trajectory(document: Any) -> Trajectory | None:
    """None for what is neither format."""
    if not isinstance(document, dict):
        return None
    schema = str(document.get("schema") or document.get("schema_version") or "")
    if schema.startswith("harborrl-bash/"):
        return from_messages(document)
    return from_atif(document) if schema.startswith("ATIF") else None


def from_messages(document: Mapping[str, Any]) -> Trajectory:
    """`turns` says how many of the replies are the model's own: examples look like turns."""
    messages = [(str(one.get("role", "")), one) for one in entries(document, "messages")]
    replies = [at for at, (role, _) in enumerate(messages) if role == "assistant"]
    progress = document.get("progress")
    own = count(progress.get("turns")) if isinstance(progress, Mapping) else None
    own = len(replies) if own is None else min(own, len(replies))
    start = replies[len(replies) - own] if own else len(messages)
    before = [Message(role, content(one.get("content"))) for role, one in messages[:start]]
    instruction = before.pop().text if before and before[-1].role == "user" else ""
    turns: list[Turn] = []
    for role, one in messages[start:]:
        if role == "assistant":
            turns.append(reply_turn(one))
        elif turns:
            turns[-1] = with_output(turns[-1], content(one.get("content")))
    return Trajectory(
        model=str(document.get("model", "")),
        opening=tuple(before),
        instruction=instruction,
        turns=tuple(turns[:TURN_LIMIT]),
        omitted=max(len(turns) - TURN_LIMIT, 0),
    )


def reply_turn(message: Mapping[str, Any]) -> Turn:
    text = content(message.get("content"))
    command = parse_reply(text).command
    said = FENCE.sub("", text).strip() if command is not None else text.strip()
    return Turn(
        said=said,
        reasoning=content(message.get("reasoning_content")),
        commands=() if command is None else (command,),
    )


def with_output(turn: Turn, text: str) -> Turn:
    code = EXIT_CODE.match(text)
    output = Output(text[code.end() :], int(code[1])) if code else Output(text)
    return Turn(turn.said, turn.reasoning, turn.commands, (*turn.outputs, output), turn.told, turn.tokens)


def from_atif(document: Mapping[str, Any]) -> Trajectory:
    steps = [step for step in entries(document, "steps") if step.get("is_copied_context") is not True]
    first = next((at for at, step in enumerate(steps) if step.get("source") == "agent"), len(steps))
    before = [Message(str(step.get("source", "")), content(step.get("message"))) for step in steps[:first]]
    instruction = before.pop().text if before and before[-1].role == "user" else ""
    agent = document.get("agent")
    turns = [atif_turn(step) for step in steps[first:]]
    return Trajectory(
        model=str(agent.get("model_name") or "") if isinstance(agent, Mapping) else "",
        opening=tuple(before),
        instruction=instruction,
        turns=tuple(turns[:TURN_LIMIT]),
        omitted=max(len(turns) - TURN_LIMIT, 0),
    )


def atif_turn(step: Mapping[str, Any]) -> Turn:
    if step.get("source") != "agent":
        return Turn(told=content(step.get("message")))
    observed, measured = step.get("observation"), step.get("metrics")
    results = entries(observed, "results") if isinstance(observed, Mapping) else []
    return Turn(
        said=content(step.get("message")),
        reasoning=content(step.get("reasoning_content")),
        commands=tuple(command_of(call) for call in entries(step, "tool_calls")),
        outputs=tuple(Output(content(result.get("content"))) for result in results),
        tokens=count(measured.get("completion_tokens")) if isinstance(measured, Mapping) else None,
    )


def command_of(call: Mapping[str, Any]) -> str:
    arguments = call.get("arguments")
    if isinstance(arguments, Mapping):
        for key in COMMAND_KEYS:
            if isinstance(arguments.get(key), str):
                return clipped(str(arguments[key]))
    shown = json.dumps(arguments, ensure_ascii=False, default=str) if arguments else ""
    return clipped(f"{call.get('function_name', 'tool')} {shown}".strip())


def content(value: Any) -> str:
    """The text of a message: a string, or parts of which only the text can be shown."""
    if isinstance(value, str):
        return clipped(value)
    if not isinstance(value, Sequence):
        return ""
    parts = [part for part in value if isinstance(part, Mapping)]
    texts = (str(part["text"]) if "text" in part else f"[{part.get('type', 'part')}]" for part in parts)
    return clipped("\n".join(texts))


def clipped(text: str) -> str:
    if len(text) <= TEXT_LIMIT:
        return text
    half = TEXT_LIMIT // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def entries(document: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The objects in a list, and nothing else that it may hold."""
    value = document.get(key)
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
