"""The supervisor's report (tests/contract/progress.json) -> status, verdict and stall."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationError

from harborrl_operator.clock import from_text, seconds_since, to_text
from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import Reason
from harborrl_operator.models import JobSpec
from harborrl_operator.models.status import (
    CheckpointStatus,
    EvalStatus,
    Moment,
    ResumeStatus,
    RolloutStatus,
    StatusModel,
)

STALL_MARGIN_SECONDS = 60

FINAL_STATES = ("SUCCEEDED", "FAILED", "STOPPED")

FailureClass = Literal["configuration", "infrastructure", "application", "storage"]
_CLASSES: tuple[FailureClass, ...] = ("configuration", "infrastructure", "application", "storage")


@dataclass(frozen=True)
class Unreadable:
    """The ConfigMap holds no progress document; the supervisor's next write replaces it."""

    why: str
    """Each wrong field."""


Short = Annotated[str, AfterValidator(lambda text: text[:256])]
"""Goes into status: a report that holds something else under this name must not fill it."""


class _Driver(StatusModel):
    submission_id: Short = ""
    state: Short
    message: str | None = None
    failure_class: str | None = None
    cause: str | None = None
    started_at: Moment = None


class _Server(StatusModel):
    capacity: int | None = None
    in_flight: int | None = None
    oldest_trial_since: Moment = None


class Volume(StatusModel):
    """Room on one of the run's volumes."""

    free_bytes: int = 0
    needed_bytes: int = 0
    low: bool = False


class Progress(StatusModel):
    """One report, typed."""

    uid: str = ""
    """The job's; empty in the report of a supervisor that is older than the field."""
    attempt: int
    incarnation: int
    driver: _Driver
    rollout: RolloutStatus | None = None
    eval: EvalStatus | None = None
    checkpoint: CheckpointStatus | None = None
    agent_server: _Server | None = None
    resume: ResumeStatus | None = None
    notices: Annotated[list[Short], AfterValidator(lambda said: said[:10])] = Field(default_factory=list)
    volumes: dict[str, Volume] = Field(default_factory=dict)
    observed_at: Moment = None
    faults: dict[str, str] = Field(default_factory=dict)
    """Parts that cannot be read and why; they count as unknown, and hide nothing of the rest."""

    @property
    def driver_message(self) -> str:
        return self.driver.message or ""

    @property
    def failure_class(self) -> FailureClass:
        """An unknown one counts as the application's."""
        return next((known for known in _CLASSES if known == self.driver.failure_class), "application")

    @property
    def in_flight(self) -> int | None:
        return self.agent_server.in_flight if self.agent_server else None

    @property
    def step(self) -> str:
        return f"{self.rollout.trained}/{self.rollout.total}" if self.rollout else ""


def read_progress(text: str | None, uid: str) -> Progress | Unreadable | None:
    """None while this run's supervisor has written nothing.

    A job that was deleted and applied again keeps its names: the ConfigMap may still hold the former run's report.
    """
    if not text:
        return None
    try:
        progress = Progress.model_validate_json(text)
    except ValidationError as error:
        readable = _readable(text, error)
        if isinstance(readable, Unreadable):
            return readable
        progress = readable
    return progress if progress.uid in ("", uid) else None


def _readable(text: str, error: ValidationError) -> Progress | Unreadable:
    """The report without its wrong fields, if what is left says whose driver is in which state."""
    said = {tuple(fault["loc"]): f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()}
    try:
        document = json.loads(text)
        faults: dict[str, str] = {}
        for where, why in said.items():
            part = document["driver"] if where[0] == "driver" else document
            part.pop(where[1] if where[0] == "driver" else where[0], None)
            faults[str(where[0])] = why
        if "uid" not in faults:
            return Progress.model_validate(document | {"faults": faults})
    except (ValueError, TypeError, LookupError, AttributeError):
        pass  # no document, or one that lacks the verdict itself
    return Unreadable("; ".join(said.values()))


def stall_seconds(spec: JobSpec, rollout: RolloutStatus | None) -> float:
    """How long a healthy run may be without a rollout, as its own pace tells."""
    median = (rollout.median_seconds if rollout else None) or 0.0
    ceiling = spec.rollout.agent_trial_timeout_seconds
    return max(spec.progress.stall_factor * median, ceiling) + STALL_MARGIN_SECONDS


def stall(
    spec: JobSpec, progress: Progress, running_since: str, now: datetime, *, missing: str = "", run_path: str = ""
) -> Verdict | None:
    """Judged by the run's own median and never before the trial ceiling, counted from the newest sign of life.

    `running_since` is this incarnation's: the time that a job was suspended or queued is nobody's stall.
    `missing`: the pods that the gang lacks, which explain more than trials that still run. `run_path`: of the job.
    """
    median = (progress.rollout.median_seconds if progress.rollout else None) or 0.0
    threshold = stall_seconds(spec, progress.rollout)
    last_dump = progress.rollout.last_dump_time if progress.rollout else None
    moved = max(from_text(running_since), from_text(last_dump)) if last_dump else from_text(running_since)
    if (now - moved).total_seconds() <= threshold:
        return None
    # Since when, not for how long: a message that changes by the clock would be written, seen and written again.
    waited = f"No rollout was collected since {to_text(moved)} (median {median:.0f} s, limit {threshold:.0f} s)"
    if missing:
        return Verdict(Reason.NO_PROGRESS, f"{waited}. {missing}")
    if progress.in_flight:
        return Verdict(Reason.AGENT_SERVER_BUSY, f"{waited}; {_busy(spec, progress, now)}")
    log = f"{run_path}/a{progress.attempt}/i{progress.incarnation}/traces/driver.log".lstrip("/")
    return Verdict(Reason.NO_PROGRESS, f"{waited} and no trial runs. Look at {log} on the volume of storage.traces.")


def _busy(spec: JobSpec, progress: Progress, now: datetime) -> str:
    """The agent server's side: how many trials, how old the oldest, against the two time-outs that should end it.

    What limits an agent in a server of the user's own is not known here.
    """
    agent, ceiling = spec.agent_server.agent_timeout_seconds, spec.rollout.agent_trial_timeout_seconds
    running = f"{progress.in_flight} trials run in the agent server"
    since = progress.agent_server.oldest_trial_since if progress.agent_server else None
    if since is None:
        return f"{running}: they are slow, not lost."
    known = "" if spec.agent_server.url else f"agentServer.agentTimeoutSeconds {agent}, "
    oldest = f"{running}, the oldest since {since} ({known}rollout.agentTrialTimeoutSeconds {ceiling})"
    age = seconds_since(since, now)
    if age <= (ceiling if spec.agent_server.url else agent):
        return f"{oldest}: they are slow, not lost."
    if age <= ceiling:
        return f"{oldest}: its agent's time is over, it is being verified or cleaned up."
    return f"{oldest}: it should have ended at its ceiling, so the agent server hangs. Restart its pod."


def has_elapsed(since: str | None, seconds: float, now: datetime) -> bool:
    return since is not None and seconds_since(since, now) > seconds
