"""The supervisor's report (tests/contract/progress.json) -> status, verdict and stall."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from harborrl_operator.clock import from_text, seconds_since, to_text
from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import Reason
from harborrl_operator.models import JobSpec
from harborrl_operator.models.status import CheckpointStatus, EvalStatus, RolloutStatus

STALL_MARGIN_SECONDS = 60

FailureClass = Literal["configuration", "infrastructure", "application", "storage"]
_CLASSES: tuple[FailureClass, ...] = ("configuration", "infrastructure", "application", "storage")


@dataclass(frozen=True)
class Progress:
    """One report, typed."""

    attempt: int
    incarnation: int
    submission_id: str
    driver_state: str
    driver_message: str
    failure_class: FailureClass
    rollout: RolloutStatus | None
    evaluation: EvalStatus | None
    checkpoint: CheckpointStatus | None
    capacity: int | None
    in_flight: int | None

    @property
    def step(self) -> str:
        return f"{self.rollout.trained}/{self.rollout.total}" if self.rollout else ""


def read_progress(document: Mapping[str, Any] | None) -> Progress | None:
    """None while the supervisor has written nothing. An unknown failure class counts as the application's."""
    if not document:
        return None
    driver, server = document["driver"], document.get("agentServer") or {}
    failure = driver.get("failureClass")
    return Progress(
        attempt=document["attempt"],
        incarnation=document["incarnation"],
        submission_id=driver["submissionId"],
        driver_state=driver["state"],
        driver_message=driver.get("message") or "",
        failure_class=failure if failure in _CLASSES else "application",
        rollout=_optional(RolloutStatus, document.get("rollout")),
        evaluation=_optional(EvalStatus, document.get("eval")),
        checkpoint=_optional(CheckpointStatus, document.get("checkpoint")),
        capacity=server.get("capacity"),
        in_flight=server.get("inFlight"),
    )


def _optional[M: (RolloutStatus, EvalStatus, CheckpointStatus)](model: type[M], value: Any) -> M | None:
    return model.model_validate(value) if value else None


def stall(spec: JobSpec, progress: Progress, running_since: str, now: datetime) -> Verdict | None:
    """Judged by the run's own median and never before the trial ceiling, counted from the newest sign of life."""
    median = (progress.rollout.median_seconds if progress.rollout else None) or 0.0
    ceiling = spec.rollout.agent_trial_timeout_seconds
    threshold = max(spec.progress.stall_factor * median, ceiling) + STALL_MARGIN_SECONDS
    last_dump = progress.rollout.last_dump_time if progress.rollout else None
    moved = max(from_text(running_since), from_text(last_dump)) if last_dump else from_text(running_since)
    if (now - moved).total_seconds() <= threshold:
        return None
    # Since when, not for how long: a message that changes by the clock would be written, seen and written again.
    waited = f"No rollout was collected since {to_text(moved)} (median {median:.0f} s, limit {threshold:.0f} s)"
    if progress.in_flight:
        return Verdict(
            Reason.AGENT_SERVER_BUSY,
            f"{waited}; {progress.in_flight} trials still run in the agent server: they are slow, not lost.",
        )
    return Verdict(Reason.NO_PROGRESS, f"{waited} and no trial runs. Look at traces/driver.log of the run.")


def has_elapsed(since: str | None, seconds: float, now: datetime) -> bool:
    return since is not None and seconds_since(since, now) > seconds
