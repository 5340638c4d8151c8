"""`status` of a HarborRLJob: what was seen, never what is planned."""

import math
from datetime import datetime
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationInfo

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
    """`True`, `False` or `Unknown`."""
    reason: str
    """One word of the closed list in docs/conditions.md."""
    message: str = ""
    """What, where, numbers, and what to do."""
    last_transition_time: str
    """When `status` last changed."""
    observed_generation: int = 0
    """`metadata.generation` that this was judged for."""


def _known(conditions: Any) -> Any:
    """Without the types that a newer operator may have written: going back to this one must not stop its jobs."""
    if not isinstance(conditions, list):
        return conditions
    known = set(ConditionType)
    return [one for one in conditions if not isinstance(one, dict) or one.get("type") in known]


class RestartStatus(StatusModel):
    """The end of an incarnation whose pods were made anew within the quota."""

    at: Moment = None
    """When that was decided."""
    cause: str
    """As in `attempts`; the failure class is `infrastructure`."""
    message: str = ""
    """Why it ended."""
    node: str | None = None
    """Of the pod that ended it."""
    at_rollout: int | None = None
    """Rollouts trained over the run by then; unset when its driver never reported."""


def _known_phase(phase: Any) -> Any:
    """A phase of a newer operator counts as none: every pass says it anew, from what is there."""
    return phase if not isinstance(phase, str) or phase in set(Phase) else Phase.PENDING


def _known_outcome(outcome: Any, info: ValidationInfo) -> Any:
    if not isinstance(outcome, str) or outcome in get_args(Outcome):
        return outcome
    return "Failed" if info.data.get("finished_at") else "Running"


Outcome = Literal["Running", "Succeeded", "Failed"]


class AttemptStatus(StatusModel):
    """One RayCluster and how it ended."""

    number: int
    """Counted from 1; the RayCluster is `<job>-a<number>`."""
    started_at: str
    """When its record was opened."""
    finished_at: str | None = None
    """When it ended; absent while it goes on."""
    outcome: Annotated[Outcome, BeforeValidator(_known_outcome)] = "Running"
    """How it ended, or `Running`."""
    failure_class: str | None = None
    """`configuration`, `infrastructure`, `application` or `storage`: decides whether another attempt follows."""
    cause: str | None = None
    """What ended it (docs/conditions.md, "Causes")."""
    message: str = ""
    """Why it ended."""
    node: str | None = None
    """Of the head pod, or of the pod whose loss ended the attempt."""
    incarnations: int = 0
    """Head pods that it had: one more after each suspend or preemption."""
    at_rollout: int | None = None
    """Rollouts trained over the run when it ended; unset when its driver never reported."""
    lost_rollouts: int = 0
    """Rollouts trained beyond the newest checkpoint when it, or one of its incarnations, ended."""
    lost_gpu_hours: float = 0.0
    """GPUs x hours between the newest checkpoint and the end; 0 without GPUs. `message` says when the end is an
    estimate."""
    restarts: int = 0
    """How often its pods were made anew within the quota that it holds."""
    last_restart: RestartStatus | None = None
    """Why, the last time."""


class RolloutStatus(StatusModel):
    """From dumps and trial logs (docs/contracts.md, progress)."""

    collected: int = 0
    """Rollouts collected, over all attempts."""
    trained: int = 0
    """Rollouts trained on; at most `collected`."""
    total: int = 0
    """Rollouts of the whole run (`trainer.config.numRollout`)."""
    last_dump_time: Moment = None
    """When the newest rollout was written: the sign of life by which a stall is judged."""
    median_seconds: Finite = None
    """Median time of the last 20 rollouts."""
    reward_mean: Finite = None
    """Mean reward of the kept trials of the newest rollout."""
    dropped_groups: int = 0
    """Groups of a prompt that were not trained on because trials of them were lost."""
    lost_rollouts: int = 0
    """Rollouts that had to be collected again after a failure."""
    trials: int = 0
    """Trials that ended."""
    aborted: int = 0
    """Trials that infrastructure lost; never a training signal."""


class EvalStatus(StatusModel):
    """Newest evaluation beside the first."""

    rollout: int | None = None
    """Rollout after which it was taken."""
    mean: Finite = None
    """Mean reward on the held-out set."""
    baseline: Finite = None
    """The first evaluation of the run, to compare with."""


class CheckpointStatus(StatusModel):
    """Newest complete checkpoint; the path is relative to the checkpoints volume."""

    rollout_id: int | None = None
    """Rollout that it was saved after; a resume goes on with the next one."""
    path: Annotated[str | None, AfterValidator(lambda path: path and path[:1024])] = None
    """Directory, relative to the checkpoints volume."""
    saved_at: Moment = None
    """When it became complete."""


class AgentServerStatus(StatusModel):
    """The server as the trainer sees it."""

    url: str | None = None
    """Where the trainer sends trials."""
    capacity: int | None = None
    """Trials that it runs at once."""
    in_flight: int | None = None
    """Trials that it runs now, at most a minute old."""
    oldest_trial_since: Moment = None
    """When the oldest trial that runs now began."""


class FateStatus(StatusModel):
    """What befell a trainer pod, remembered because the pod may be gone when its attempt is judged."""

    cause: str
    """As in `attempts`."""
    pod: str
    """Its name."""
    uid: str | None = None
    """Its uid."""
    at_rollout: int | None = None
    """Rollouts trained when it was seen: a run that trains on was not ended by it."""
    node: str | None = None
    """Where it ran."""
    message: str = ""
    """What is known of its end."""
    ended_at: Moment = None
    """When it ended, or has to have ended; absent where neither its containers nor its deletion tell."""


class TrainerStatus(StatusModel):
    """The current attempt's cluster."""

    ray_cluster: str | None = None
    """RayCluster of the attempt that exists; absent between two attempts."""
    head_pod: str | None = None
    """Set once the head pod was seen; its absence afterwards is a loss."""
    head_uid: str | None = None
    """Its uid: KubeRay may give the next head the same name."""
    released_incarnation: int = 0
    """Incarnations up to this one ended because we took their cluster away; their verdict counts for nothing."""
    released_cluster: str | None = None
    """uid of the cluster that we took away (empty: there was none), until another one is seen: what is reported
    meanwhile counts for nothing."""
    accounted_incarnation: int = 0
    """Incarnations up to this one whose lost work is already counted."""
    running_since: str | None = None
    """When the driver of this incarnation was first seen running."""
    last_trial_at: Moment = None
    """When a trial was last seen to have ended: a sign of life of a run whose rollout is late."""
    short_since: Moment = None
    """Since when a pod of the gang is missing while the driver runs."""
    unreadable_since: Moment = None
    """Since when the report of a driver that ran cannot be read."""
    kept: bool = False
    """The cluster outlives the failed job for debugging."""
    fate: FateStatus | None = None
    admitted_at: Moment = None
    """When KubeRay was last allowed to start the cluster of this head, as it says: another moment beside another head
    tells of a preemption that nobody saw."""
    restarted_at: Moment = None
    """When its pods were last made anew within the quota."""
    ending_pods: list[str] = Field(default_factory=list)
    """uids of pods of earlier incarnations that are still there: they count for nothing, and each pass tells them to
    end."""
    submission_id: str | None = None
    """Id of the driver in Ray: `<job>-a<attempt>-i<incarnation>`."""
    driver_state: str | None = None
    """`STARTING`, `PENDING`, `RUNNING`, `SUCCEEDED`, `FAILED` or `STOPPED`, as the supervisor reports it."""
    notices: list[str] = Field(default_factory=list)
    """What this run lacks or does otherwise than was written, as the supervisor reports it: a version of Miles without
    a save trigger, a torn checkpoint that was passed over, an adjusted argument."""


class PreflightStatus(StatusModel):
    """Repeated preflights of one configuration."""

    config_hash: str = ""
    """Configuration and attempt that were judged."""
    runs: int = 0
    """Refusals of it so far; the pause before the next try doubles with each."""
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
    cluster: str | None = None
    """uid of its RayCluster."""
    withdrawn: bool = False
    """`spec.suspend` was set back before anything was released."""
    released_at: str | None = None
    """When the cluster was given back."""
    lost_rollouts: int | None = None
    """Rollouts trained beyond the newest complete checkpoint. Unset until the last pod has ended."""


class FailureCounts(StatusModel):
    """Failed attempts by class; each class has a budget of its own in `spec.retries`."""

    infrastructure: int = 0
    """Towards `retries.maxAttempts`; counted from 1 again after a day that brought a newer checkpoint."""
    infrastructure_at: Moment = None
    """When the last of them was counted."""
    infrastructure_kept: int = 0
    """Rollouts that the newest checkpoint held then."""
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
    """Field of the spec."""
    value: str
    """What it became."""
    reason: str
    """Why."""


class ResumeSource(StatusModel):
    """What `resumeFrom.job` meant at the first admission: the other job may be gone before a later attempt."""

    job: str
    """Name of the other job."""
    path: str
    """Directory of its run, relative to the checkpoints volume."""


class JobStatus(StatusModel):
    """Status of a HarborRLJob."""

    observed_generation: int = 0
    """`metadata.generation` that the last pass looked at."""
    phase: Annotated[Phase, BeforeValidator(_known_phase)] = Phase.PENDING
    """One word for people (docs/conditions.md); programs read the conditions."""
    reason: str = ""
    """Reason of what the job waits for or how it ended."""
    message: str = ""
    """The first 256 characters of it; the conditions have all."""
    step: str = ""
    """Trained of all rollouts, for example `2/3`."""
    conditions: Annotated[list[Condition], BeforeValidator(_known)] = Field(default_factory=list)
    """The truth, one entry a type; all types are there from the first pass on."""
    attempt: int = 1
    """Current attempt, counted from 1."""
    incarnation: int | None = None
    """Head pod life within the attempt, counted from 1; preemption and resume begin another."""
    attempts: list[AttemptStatus] = Field(default_factory=list)
    """The newest ones; `failures` and `lost` count over all."""
    failures: FailureCounts | None = None
    """Failed attempts by class."""
    lost: LossStatus | None = None
    """Work that is done twice."""
    started_at: str | None = None
    """When it first passed the checks."""
    active_seconds: int = 0
    """Time towards `activeDeadlineSeconds` up to `activeSince`."""
    active_since: str | None = None
    """Begin of the stretch that counts now; unset while suspended or queued."""
    suspension: SuspensionStatus | None = None
    """The suspend under way; absent without one, unless a driver may still stop for one that was taken back."""
    starting_since: str | None = None
    """Begin of the start deadline; unset while queued, suspended or running."""
    retry_at: str | None = None
    """When the next attempt begins, while one is waited for."""
    finished_at: str | None = None
    """When it ended, for good."""
    run_path: str | None = None
    """Directory of the run below each storage volume."""
    resume_source: ResumeSource | None = None
    rollout: RolloutStatus | None = None
    """What is on disk."""
    eval: EvalStatus | None = None
    """Newest evaluation."""
    checkpoint: CheckpointStatus | None = None
    """What a resume goes on from."""
    resume: ResumeStatus | None = None
    """Where the current incarnation began."""
    agent_server: AgentServerStatus | None = None
    """The server as the trainer sees it."""
    trainer: TrainerStatus | None = None
    """The current attempt's cluster."""
    preflight: PreflightStatus | None = None
    """Repeated preflights of one configuration."""
    adjustments: list[Adjustment] = Field(default_factory=list)
    """Values that the operator chose or changed, each with its reason."""
