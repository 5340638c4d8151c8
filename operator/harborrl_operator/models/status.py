"""`status` of a HarborRLJob: what was seen, never what is planned."""

import math
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from harborrl_operator.constants import ConditionType, Phase
from harborrl_operator.models.base import Model


class StatusModel(Model):
    """Read back from the cluster, where an older or newer operator may have written it: unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore")


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _moment(text: str | None) -> str | None:
    if text is not None and datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("a time needs its offset from UTC")
    return text


Finite = Annotated[float | None, BeforeValidator(_finite)]
"""NaN and infinities, which Python writes into JSON and the API server refuses, count as absent."""

Moment = Annotated[str | None, AfterValidator(_moment)]
"""A time that can be compared with ours."""


class Condition(StatusModel):
    """One condition in Kubernetes' usual shape."""

    type: ConditionType
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""
    last_transition_time: str
    observed_generation: int = 0


def _known(conditions: Any) -> Any:
    """Without the types that a newer operator may have written: going back to this one must not stop its jobs."""
    if not isinstance(conditions, list):
        return conditions
    known = set(ConditionType)
    return [one for one in conditions if not isinstance(one, dict) or one.get("type") in known]


class AttemptStatus(StatusModel):
    """One RayCluster and how it ended."""

    number: int
    started_at: str
    finished_at: str | None = None
    outcome: Literal["Running", "Succeeded", "Failed"] = "Running"
    failure_class: str | None = None
    cause: str | None = None
    """What ended it (docs/conditions.md, "Causes")."""
    message: str = ""
    node: str | None = None
    """Of the head pod, or of the pod whose loss ended the attempt."""
    incarnations: int = 0
    """Head pods that it had: one more after each suspend or preemption."""
    at_rollout: int | None = None
    """Rollouts trained over the run when it ended; unset when its driver never reported."""
    lost_rollouts: int = 0
    """Rollouts trained beyond the newest checkpoint when it, or one of its incarnations, ended."""
    lost_gpu_hours: float = 0.0
    """GPUs x hours between the newest checkpoint and the end; 0 without GPUs."""
    restarts: int = 0
    """How often its pods were made anew within the quota that it holds."""


class RolloutStatus(StatusModel):
    """From dumps and trial logs (docs/contracts.md, progress)."""

    collected: int = 0
    trained: int = 0
    total: int = 0
    last_dump_time: Moment = None
    median_seconds: Finite = None
    reward_mean: Finite = None
    dropped_groups: int = 0
    lost_rollouts: int = 0
    trials: int = 0
    aborted: int = 0


class EvalStatus(StatusModel):
    """Newest evaluation beside the first."""

    rollout: int | None = None
    mean: Finite = None
    baseline: Finite = None


class CheckpointStatus(StatusModel):
    """Newest complete checkpoint; the path is relative to the checkpoints volume."""

    rollout_id: int | None = None
    path: str | None = None
    saved_at: Moment = None
    """When it became complete."""


class AgentServerStatus(StatusModel):
    """The server as the trainer sees it."""

    url: str | None = None
    capacity: int | None = None
    in_flight: int | None = None
    oldest_trial_since: Moment = None
    """When the oldest trial that runs now began."""


class FateStatus(StatusModel):
    """What befell a trainer pod, remembered because the pod may be gone when its attempt is judged."""

    cause: str
    """As in `attempts`."""
    pod: str
    """Its name."""
    node: str | None = None
    """Where it ran."""
    message: str = ""
    """What is known of its end."""


class TrainerStatus(StatusModel):
    """The current attempt's cluster."""

    ray_cluster: str | None = None
    head_pod: str | None = None
    """Set once the head pod was seen; its absence afterwards is a loss."""
    released_incarnation: int = 0
    """Incarnations up to this one ended because we took their cluster away; their verdict counts for nothing."""
    accounted_incarnation: int = 0
    """Incarnations up to this one whose lost work is already counted."""
    running_since: str | None = None
    """When the driver of this incarnation was first seen running."""
    kept: bool = False
    """The cluster outlives the failed job for debugging."""
    fate: FateStatus | None = None
    restarted_at: Moment = None
    """When its pods were made anew within the quota: an older pod belongs to an incarnation that has been judged."""
    submission_id: str | None = None
    driver_state: str | None = None


class PreflightStatus(StatusModel):
    """Repeated preflights of one configuration."""

    config_hash: str = ""
    runs: int = 0
    judged_pod: str | None = None
    """uid of the pod whose verdict is already counted."""


class ResumeStatus(StatusModel):
    """Where the current incarnation began."""

    first_rollout: int = 0
    """First rollout that it collects; those before are in the checkpoint that it loaded."""
    optimizer: bool | None = None
    """Whether that checkpoint held the optimizer's state; absent for a start from the model."""
    set_aside: Annotated[list[str], AfterValidator(lambda paths: paths[:10])] = Field(default_factory=list)
    """Newer checkpoints that were found damaged, the first ten."""


class SuspensionStatus(StatusModel):
    """A suspend under way or done."""

    requested_at: str
    """When the driver was asked to stop, or everything was released because none ran."""
    attempt: int
    """Attempt that is suspended."""
    incarnation: int
    """Its incarnation that is asked to stop; 0 when there was none."""
    withdrawn: bool = False
    """`spec.suspend` was set back before anything was released."""
    released_at: str | None = None
    """When the cluster was given back."""
    lost_rollouts: int | None = None
    """Rollouts trained beyond the newest complete checkpoint. Unset until the last pod has ended."""


class FailureCounts(StatusModel):
    """Failed attempts by class; each class has a budget of its own in `spec.retries`."""

    infrastructure: int = 0
    """Towards `retries.maxAttempts`."""
    application: int = 0
    """Towards `retries.maxApplicationFailures`."""
    storage: int = 0
    """Towards `retries.maxStorageFailures`."""


class LossStatus(StatusModel):
    """Work that was done and has to be done again, over the whole run."""

    rollouts: int = 0
    """Trained beyond the newest complete checkpoint when an incarnation ended."""
    gpu_hours: float = 0.0
    """GPUs x hours since that checkpoint."""


class Adjustment(StatusModel):
    """A value that resolve() chose, and why."""

    field: str
    value: str
    reason: str


class ResumeSource(StatusModel):
    """What `resumeFrom.job` meant at the first admission: the other job may be gone before a later attempt."""

    job: str
    path: str
    """Directory of its run, relative to the checkpoints volume."""


class JobStatus(StatusModel):
    """Status of a HarborRLJob."""

    observed_generation: int = 0
    phase: Phase = Phase.PENDING
    reason: str = ""
    message: str = ""
    step: str = ""
    """Trained of all rollouts, for example `2/3`."""
    conditions: Annotated[list[Condition], BeforeValidator(_known)] = Field(default_factory=list)
    attempt: int = 1
    incarnation: int | None = None
    attempts: list[AttemptStatus] = Field(default_factory=list)
    """The newest ones; `failures` and `lost` count over all."""
    failures: FailureCounts | None = None
    """Failed attempts by class."""
    lost: LossStatus | None = None
    """Work that is done twice."""
    started_at: str | None = None
    active_seconds: int = 0
    """Time towards `activeDeadlineSeconds` up to `activeSince`."""
    active_since: str | None = None
    """Begin of the stretch that counts now; unset while suspended or queued."""
    suspension: SuspensionStatus | None = None
    """The suspend under way; absent without one, unless a driver may still stop for one that was taken back."""
    starting_since: str | None = None
    """Begin of the start deadline; unset while queued, suspended or running."""
    retry_at: str | None = None
    finished_at: str | None = None
    run_path: str | None = None
    """Directory of the run below each storage volume."""
    resume_source: ResumeSource | None = None
    rollout: RolloutStatus | None = None
    eval: EvalStatus | None = None
    checkpoint: CheckpointStatus | None = None
    resume: ResumeStatus | None = None
    """Where the current incarnation began."""
    agent_server: AgentServerStatus | None = None
    trainer: TrainerStatus | None = None
    preflight: PreflightStatus | None = None
    adjustments: list[Adjustment] = Field(default_factory=list)
