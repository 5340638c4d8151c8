"""One line of a finished data set -> a prompt, or why it is none.

Read as strictly as `harborrl data prepare` reads its input, so that both judge a row alike: Python's own JSON takes
numbers that no request can carry, text that no tokenizer can encode, and UTF-16.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

INSTANCE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""A directory's name that needs no quoting and cannot lead out of the task root; the agent server takes no other."""

_SURROGATE = re.compile(rb"\\ud[89a-f]", re.IGNORECASE)
"""Escapes of pairs as well; where there is none, no half is alone."""


@dataclass(frozen=True)
class Prompt:
    index: int
    """Position among the good rows of its source, from 0: the identity that shuffling permutes."""
    text: str
    instance_id: str
    metadata: Mapping[str, Any]
    """All columns of the row's metadata without the reserved keys; `instance_id` included."""
    where: str
    """Line or directory it came from, for messages."""


@dataclass(frozen=True)
class BadRow:
    where: str
    problem: str
    empty_prompt: bool = False


def parse_row(line: bytes, where: str, *, index: int) -> Prompt | BadRow:
    """Of `{prompt, metadata: {instance_id, ...}}`, reserved keys still in it."""
    try:
        row = _parsed(line)
    except (ValueError, RecursionError) as error:
        return BadRow(where, _unparsed(error))
    metadata = row.get("metadata") if isinstance(row, dict) else None
    if not isinstance(metadata, dict):
        return BadRow(where, "is not a JSON object with a metadata object")
    instance_id: Any = metadata.get("instance_id")
    if problem := id_problem(instance_id):
        return BadRow(where, problem)
    text = _prompt_text(row.get("prompt"))
    if text is None:
        return BadRow(where, "has a prompt that is neither a string nor a list of messages")
    if not text.strip():
        return BadRow(where, f"has an empty prompt (instance {instance_id})", empty_prompt=True)
    return Prompt(index, text, instance_id, metadata, where)


def id_problem(instance_id: Any) -> str:
    """Empty where it can be the name of a task directory."""
    if not isinstance(instance_id, str) or not instance_id:
        return "has no metadata.instance_id (a non-empty string)"
    if INSTANCE_ID.fullmatch(instance_id):
        return ""
    return (
        f"has an id that no task directory may have ({instance_id[:80]!r}: letters, digits, '.', '_' and '-', beginning"
        " with a letter or digit, at most 128)"
    )


def _unparsed(error: ValueError | RecursionError) -> str:
    return "is nested too deeply" if isinstance(error, RecursionError) else f"is not JSON ({error})"


def _parsed(line: bytes) -> Any:
    """ValueError, or RecursionError where it is nested too deeply."""
    value = json.loads(line.decode(), parse_constant=_no_number, parse_float=_finite)
    if _SURROGATE.search(line):
        _refuse_lone_surrogates(value)
    return value


def _refuse_lone_surrogates(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{error.object[error.start]!a} is half a character, which no tokenizer takes") from None


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_number(text)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:40]} is no number that a request can carry")


def _prompt_text(value: Any) -> str | None:
    """A string as it is; a list of messages as their contents in order (Miles takes both)."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(m, dict) and isinstance(m.get("content"), str) for m in value):
        return "\n\n".join(message["content"] for message in value)
    return None
