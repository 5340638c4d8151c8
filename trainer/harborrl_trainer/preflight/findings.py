"""A finding, and the result document that carries findings to the operator (tests/contract/preflight.json)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

SCHEMA_VERSION = 1
RESULT_LIMIT = 4096
"""Bytes that Kubernetes keeps of a termination message."""
MESSAGE_LIMIT = 700
"""Bytes of one message, so that a single finding cannot crowd out the next."""


type Severity = Literal["refuse", "warn"]
type Reason = Literal[
    "AgentServerDegraded",
    "AgentServerUnhealthy",
    "ArgumentConflict",
    "BudgetsUnknown",
    "CapacityTight",
    "CapacityTooSmall",
    "CapacityUnknown",
    "CheckTimedOut",
    "CheckpointIncomplete",
    "DataInvalid",
    "DataNotFound",
    "EngineUnavailable",
    "ImageUnresolved",
    "LowSpace",
    "ModelIncomplete",
    "ModelNotFound",
    "ModelNotReadable",
    "NoTasks",
    "ParserNotAsked",
    "PromptEmpty",
    "ReservedKeysStripped",
    "ResumeSourceInvalid",
    "RestartAtZero",
    "TaskInvalid",
    "TaskNotFound",
    "TaskTooLarge",
    "TaskUnsupported",
    "TaskWithoutVerifier",
    "TimeoutOrder",
    "VolumeNotReadable",
    "VolumeNotWritable",
]
"""The closed list of docs/trainer.md, "Preflight": the operator shows them as condition reasons."""


@dataclass(frozen=True)
class Finding:
    check: str
    """The invariant it belongs to, `I5` say, or `storage`, `model`."""
    reason: Reason
    severity: Severity
    message: str
    """One sentence or two: what, where, what to do."""


@dataclass(frozen=True)
class Outcome:
    """What one check has to say: nothing wrong is no finding; facts are shown whatever the verdict."""

    findings: Sequence[Finding] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


def refuse(check: str, reason: Reason, message: str) -> Finding:
    return Finding(check, reason, "refuse", message)


def warn(check: str, reason: Reason, message: str) -> Finding:
    return Finding(check, reason, "warn", message)


def some(names: Sequence[str], limit: int = 5) -> str:
    """The first few of `names` and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def accepted(findings: Sequence[Finding]) -> bool:
    return not any(finding.severity == "refuse" for finding in findings)


def render(findings: Sequence[Finding], facts: Mapping[str, Any], limit: int = RESULT_LIMIT) -> str:
    """The result as JSON of at most `limit` bytes: refusals first, findings cut from the end and counted in `cut`."""
    ordered = sorted(findings, key=lambda finding: finding.severity != "refuse")
    shown = [asdict(finding) | {"message": _clip(finding.message)} for finding in ordered]
    for kept in range(len(shown), -1, -1):
        document: dict[str, Any] = {"schemaVersion": SCHEMA_VERSION, "ok": accepted(findings), "findings": shown[:kept]}
        if kept < len(shown):
            document["cut"] = len(shown) - kept
        text = _dump(document | {"facts": dict(facts)})
        if len(text.encode()) <= limit:
            return text
    return _dump({"schemaVersion": SCHEMA_VERSION, "ok": accepted(findings), "findings": [], "cut": len(shown)})


def _dump(document: Mapping[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _clip(message: str) -> str:
    encoded = message.encode()
    if len(encoded) <= MESSAGE_LIMIT:
        return message
    return encoded[: MESSAGE_LIMIT - 3].decode(errors="ignore") + "…"
