"""What a preflight pod found: its termination message is tests/contract/preflight.json."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, StringConstraints, ValidationError

from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import Reason
from harborrl_operator.models.status import StatusModel
from harborrl_operator.observed import Object, container_statuses, pod_phase
from harborrl_operator.problems import last_words

Quantity = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,18}(\.[0-9]{1,9})?(m|[kMGTPE]|[KMGTPE]i)?$")]


class _Finding(StatusModel):
    severity: str
    reason: str
    message: str


class SandboxFacts(StatusModel):
    """Largest amount of each resource that any task's sandbox asks for, as Kubernetes quantities."""

    requests: dict[str, Quantity] = Field(default_factory=dict)
    limits: dict[str, Quantity] = Field(default_factory=dict)
    unset: list[str] = Field(default_factory=list)
    """Resources that some sandbox neither requests nor limits."""
    unlimited: list[str] = Field(default_factory=list)
    """Resources that some sandbox does not limit."""


class _ServerFacts(StatusModel):
    capacity: float | None = None


class Facts(StatusModel):
    """What the preflight measured, as far as admission computes with it."""

    eval_prompts: int | None = None
    agent_server: _ServerFacts | None = None
    sandboxes: SandboxFacts | None = None

    @property
    def capacity(self) -> float | None:
        return self.agent_server.capacity if self.agent_server else None


class _Result(StatusModel):
    schema_version: int
    ok: bool
    findings: list[_Finding]
    facts: Any = None


@dataclass(frozen=True)
class PreflightOutcome:
    """The result of one ended preflight pod."""

    refusal: Verdict | None
    """None: the job may start."""
    finished_at: str
    tight: str = ""
    """What the preflight says about slots that bursts will wait for."""
    notes: tuple[str, ...] = ()
    """Its other warnings."""
    facts: Facts = field(default_factory=Facts)


def read_outcome(pod: Object) -> PreflightOutcome | None:
    """None while the pod runs."""
    if pod_phase(pod) not in ("Succeeded", "Failed"):
        return None
    ended = _terminated(pod)
    finished_at = str(ended.get("finishedAt") or pod["metadata"]["creationTimestamp"])
    result = _parse(str(ended.get("message", "")))
    if result is None or ended.get("exitCode") not in (0, 1):
        said = last_words(pod) or "it ended without a result"
        return PreflightOutcome(Verdict(Reason.PREFLIGHT_CRASHED, f"Preflight ended unexpectedly: {said}"), finished_at)
    warned = [finding for finding in result.findings if finding.severity == "warn"]
    tight = " ".join(finding.message for finding in warned if finding.reason == Reason.CAPACITY_TIGHT)
    notes = tuple(finding.message for finding in warned if finding.reason != Reason.CAPACITY_TIGHT)
    refusals = [finding for finding in result.findings if finding.severity == "refuse"]
    if result.ok and not refusals:
        return PreflightOutcome(None, finished_at, tight, notes, _facts(result.facts))
    return PreflightOutcome(_refusal(refusals), finished_at, tight, notes)


def _refusal(findings: list[_Finding]) -> Verdict:
    if not findings:
        return Verdict(Reason.PREFLIGHT_REFUSED, "Preflight refused the job without saying why.")
    first, more = findings[0], len(findings) - 1
    known = first.reason in set(Reason)
    reason = Reason(first.reason) if known else Reason.PREFLIGHT_REFUSED
    rest = f" And {more} more: {', '.join(finding.reason for finding in findings[1:])}." if more else ""
    return Verdict(reason, (first.message if known else f"{first.reason}: {first.message}") + rest)


def _facts(told: Any) -> Facts:
    """Numbers that another version tells otherwise are none: a job is not held up for a remark."""
    try:
        return Facts.model_validate(told or {})
    except ValidationError:
        return Facts()


def _terminated(pod: Object) -> Mapping[str, Any]:
    for status in container_statuses(pod):
        ended = (status.get("state") or {}).get("terminated")
        if ended and status["name"] == "preflight":
            return dict(ended)
    return {}


def _parse(message: str) -> _Result | None:
    """None for anything else, such as the log tail of a crash, which may be JSON of another kind."""
    try:
        return _Result.model_validate_json(message)
    except ValidationError:
        return None
