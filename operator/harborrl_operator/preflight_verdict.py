"""What a preflight pod found: its termination message is tests/contract/preflight.json."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, StringConstraints, ValidationError

from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import Reason
from harborrl_operator.models.status import StatusModel
from harborrl_operator.observed import Object, pod_phase
from harborrl_operator.preflight_findings import Finding, Result, parse, parser_findings, terminated
from harborrl_operator.problems import last_words

CONTAINER = "preflight"

Quantity = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,18}(\.[0-9]{1,9})?(m|[kMGTPE]|[KMGTPE]i)?$")]


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
    """None while it may still refuse: what its own checks refuse is told before Miles' parser has answered."""
    over = pod_phase(pod) in ("Succeeded", "Failed")
    ended = terminated(pod, CONTAINER)
    if not ended and not over:
        return None
    finished_at = str(ended.get("finishedAt") or pod["metadata"]["creationTimestamp"])
    result = parse(str(ended.get("message", "")))
    if result is None or ended.get("exitCode") not in (0, 1):
        said = last_words(pod) or "it ended without a result"
        return PreflightOutcome(Verdict(Reason.PREFLIGHT_CRASHED, f"Preflight ended unexpectedly: {said}"), finished_at)
    of_parser = parser_findings(pod)
    if of_parser is None and result.ok:
        return None
    return _outcome(result, [*result.findings, *(of_parser or [])], finished_at)


def is_asking(pod: Object) -> bool:
    """Whether its own checks are through, and Miles' parser has not answered yet."""
    return bool(terminated(pod, CONTAINER)) and parser_findings(pod) is None


def _outcome(result: Result, findings: list[Finding], finished_at: str) -> PreflightOutcome:
    warned = [finding for finding in findings if finding.severity == "warn"]
    tight = " ".join(finding.message for finding in warned if finding.reason == Reason.CAPACITY_TIGHT)
    notes = tuple(finding.message for finding in warned if finding.reason != Reason.CAPACITY_TIGHT)
    refusals = [finding for finding in findings if finding.severity == "refuse"]
    if result.ok and not refusals:
        return PreflightOutcome(None, finished_at, tight, notes, _facts(result.facts))
    return PreflightOutcome(_refusal(refusals), finished_at, tight, notes)


def _refusal(findings: list[Finding]) -> Verdict:
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
