"""One line each: where, what, and what to do."""

import re
from dataclasses import dataclass
from typing import Literal

type Severity = Literal["refused", "warning", "note"]

_FIELD = re.compile(
    r"\b(?:spec\.)?((?:agentServer|checkpoint|data|eval|model|network|progress|queueName|resumeFrom|retries|rollout"
    r"|storage|trainer)(?:\.[A-Za-z]+)*)"
)


@dataclass(frozen=True)
class Finding:
    path: str
    """Field, from `spec` or `metadata` on; empty for the whole document."""
    message: str
    severity: Severity = "refused"
    reason: str = ""
    """The operator's condition reason, where there is one."""
    line: int = 0
    """Within the file, from 1; 0: that of the path."""


def told(message: str, reason: str = "") -> Finding:
    """A refusal that names its field itself, which is then not said twice."""
    field = field_of(message)
    for place in (f"{field}: ", f"{field.removeprefix('spec.')}: "):
        message = message.removeprefix(place)
    return Finding(field, message, reason=reason)


def field_of(message: str) -> str:
    """The field that a message of the operator speaks about: the first one with a dot that it names."""
    named = [found[1] for found in _FIELD.finditer(message)]
    dotted = [name for name in named if "." in name]
    return f"spec.{(dotted or named)[0]}" if named else "spec"
